//! Checks of `upstreams.*.health`.

use super::Checker;
use crate::schema::{Health, Outlier, Probe, ProbeKind, Upstream, UpstreamProtocol};

/// Maximum number of consecutive probes that a config may require.
const MOST_IN_A_ROW: u64 = 100;

impl Checker<'_> {
    pub(super) fn health(&mut self, upstream_path: &str, upstream: &Upstream, health: &Health) {
        let path = format!("{upstream_path}.health");
        if let Some(probe) = &health.probe {
            self.probe(&format!("{path}.probe"), upstream, probe);
        }
        if let Some(outlier) = &health.outlier {
            let path = format!("{path}.outlier");
            self.must_be_within(&format!("{path}.errors"), outlier.errors.into(), 1, u32::MAX.into());
            self.must_last(&format!("{path}.window"), outlier.window);
            self.must_last(&format!("{path}.eject"), outlier.eject);
        }
        if let (Some(probe), Some(outlier)) = (&health.probe, &health.outlier) {
            self.probe_and_outlier(&path, probe, outlier);
        }
    }

    fn probe(&mut self, path: &str, upstream: &Upstream, probe: &Probe) {
        let at = |key: &str| format!("{path}.{key}");
        self.must_last(&at("interval"), probe.interval);
        self.must_last(&at("timeout"), probe.timeout);
        self.must_fit(path, ("timeout", probe.timeout), ("interval", probe.interval));
        self.must_be_within(&at("healthy"), probe.healthy.into(), 1, MOST_IN_A_ROW);
        self.must_be_within(&at("unhealthy"), probe.unhealthy.into(), 1, MOST_IN_A_ROW);
        let sendable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !probe.path.starts_with('/') || !sendable(&probe.path) {
            let message = format!("`{}` is not a path; expected one that begins with /", probe.path);
            self.error(&at("path"), "bad-value", message);
        }
        if let Some(host) = probe.host.as_ref().filter(|host| host.is_empty() || !sendable(host)) {
            let message = format!("`{host}` is not a host; expected a name such as api.example.com");
            self.error(&at("host"), "bad-value", message);
        }
        if self.find(&at("expect")).is_some_and(|node| node.elements().is_empty()) {
            let message =
                "the list is empty, so that no probe would pass; expected statuses such as [200-299]";
            self.error(&at("expect"), "empty", message);
        }
        let is_script = upstream.protocol == UpstreamProtocol::Fastcgi; // has a mistake of its own
        if probe.kind == ProbeKind::Grpc && !upstream.may_speak_http2() && !is_script {
            let hint = "write `protocol: h2c` for the upstream, or h2 with `tls`; or probe it with `kind: http` or `tcp`";
            self.error_hint(
                &at("kind"),
                "grpc-needs-http2",
                "gRPC needs HTTP/2, which this upstream does not speak",
                hint,
            );
        }
        self.probe_tls(&at("tls"), upstream, probe);
        self.probe_without_effect(path, probe.kind);
    }

    fn probe_tls(&mut self, path: &str, upstream: &Upstream, probe: &Probe) {
        let Some(tls) = &probe.tls else { return };
        if upstream.tls.is_none() {
            let hint = "add `tls: {}` to the upstream, or remove this";
            self.error_hint(
                path,
                "probe-tls",
                "probes speak TLS where the upstream does, and it does not",
                hint,
            );
        } else if tls.verify == Some(false) && upstream.tls.as_ref().is_some_and(|tls| tls.verify) {
            let message = "the probe accepts any certificate, so it may pass where requests fail";
            self.warn(
                &format!("{path}.verify"),
                "unverified-tls",
                message,
                "name the certificate's own with `server_name` instead",
            );
        }
    }

    /// A warning for each key that this kind of probe ignores.
    fn probe_without_effect(&mut self, path: &str, kind: ProbeKind) {
        let (name, unread): (_, &[&str]) = match kind {
            ProbeKind::Grpc => ("grpc", &["path", "expect", "body"]),
            ProbeKind::Http => ("http", &["service"]),
            ProbeKind::Tcp => ("tcp", &["path", "host", "service", "expect", "body"]),
        };
        for key in unread {
            let at = format!("{path}.{key}");
            if self.is_written(&at) {
                let message = format!("`{key}` has no effect with `kind: {name}`");
                self.warn(&at, "no-effect", message, "remove it, or choose another kind");
            }
        }
    }

    fn probe_and_outlier(&mut self, path: &str, probe: &Probe, outlier: &Outlier) {
        if probe.interval > outlier.eject {
            let message = format!(
                "an endpoint is probed every {}, and ejected for {}: it returns before the next probe",
                probe.interval, outlier.eject
            );
            let hint = "make `interval` the shorter one";
            let key = if self.is_written(&format!("{path}.probe.interval")) {
                "probe.interval"
            } else {
                "outlier.eject"
            };
            self.warn(&format!("{path}.{key}"), "probe-after-ejection", message, hint);
        }
    }
}
