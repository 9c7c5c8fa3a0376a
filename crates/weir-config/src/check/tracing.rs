//! Checks of `tracing` and of other collectors.

use super::{Checker, is_field_value, is_token};
use crate::schema::{Collector, OtlpProtocol, Parents};

/// Fields that we set on every request.
const OURS: [&str; 7] =
    ["connection", "content-length", "content-type", "host", "te", "transfer-encoding", "user-agent"];

impl Checker<'_> {
    pub(super) fn tracing(&mut self) {
        let Some(tracing) = &self.config.tracing else { return };
        self.collector("tracing", "otlp", &tracing.collector());
        if tracing.parents == Parents::Trusted && self.config.trusted_proxies.is_empty() {
            let hint =
                "name the networks of your own load balancers under trusted_proxies, or say parents: never";
            self.warn(
                "tracing.parents",
                "trusts-nobody",
                "no proxy is trusted, so every exchange starts a new trace",
                hint,
            );
        }
    }

    /// Checks a collector at `base` whose URL has the key `key`.
    pub(super) fn collector(&mut self, base: &str, key: &'static str, collector: &Collector) {
        let at = |name: &str| format!("{base}.{name}");
        match &collector.url {
            None if !self.is_written(&at(key)) && !self.is_called_otherwise(base, key) => {
                let hint = format!("write {key}: http://127.0.0.1:4318");
                self.error_hint(
                    base,
                    "missing-key",
                    format!("the collector is missing: `{key}` is missing"),
                    hint,
                );
            }
            Some(url) => {
                if collector.spoken() == OtlpProtocol::Grpc && url.target() != "/" {
                    let message = format!("`{url}` has a path; a gRPC service is found by its name alone");
                    self.error_hint(
                        &at(key),
                        "bad-value",
                        message,
                        "leave the path out, or say protocol: http",
                    );
                }
                if !url.is_safe() && !collector.headers.0.is_empty() {
                    let message =
                        format!("fields for the collector are sent to {} in clear text", url.origin());
                    self.warn(&at(key), "clear-text", message, "use https, or a collector on this machine");
                }
            }
            None => {}
        }
        if collector.service.trim().is_empty() {
            self.error(&at("service"), "bad-value", "the name of the service is empty");
        }
        self.must_last(&at("timeout"), collector.timeout);
        self.collector_fields(base, collector);
        if let Some(ca) = &collector.ca {
            self.must_be_file(&at("ca"), &ca.0);
        }
    }

    fn collector_fields(&mut self, base: &str, collector: &Collector) {
        for (name, value) in &collector.headers.0 {
            let path = format!("{base}.headers.{name}");
            if !is_token(name) {
                self.error(&path, "bad-header", format!("`{name}` is not a header name"));
            } else if OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
                self.error(&path, "bad-header", format!("`{name}` is written by the gateway itself"));
            }
            if !is_field_value(value) {
                self.error(&path, "bad-header", "the value holds what a header field may not");
            } else if name.eq_ignore_ascii_case("authorization")
                && self.find(&path).is_some_and(|node| !node.substituted)
            {
                let hint = "write \"${OTLP_TOKEN}\" or \"${file:PATH}\"";
                self.warn(
                    &path,
                    "literal-credential",
                    "the credential is written in plain text in this file",
                    hint,
                );
            }
        }
    }
}
