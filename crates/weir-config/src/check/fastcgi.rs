//! Checks of FastCGI: upstreams that speak it, and the routes that name their scripts.

use super::Checker;
use super::spot::Spot;
use crate::schema::{FastCgi, ProbeKind, Route, Upstream, UpstreamProtocol};

/// Parameters that no config may set: the first would change where a body ends, the second which script runs, and the
/// third is read as the proxy for outgoing requests (httpoxy), also in lower case.
const RESERVED: &[&str] = &["CONTENT_LENGTH", "SCRIPT_FILENAME", "HTTP_PROXY"];

impl Checker<'_> {
    /// A route says which script answers exactly where its upstreams ask for one.
    pub(super) fn scripts(&mut self, at: &Spot<'_, '_>, route: &Route) {
        let config = self.config;
        let speaks = |share: &str| Some(config.upstreams.get(share)?.protocol == UpstreamProtocol::Fastcgi);
        let target = if route.files.is_some() {
            at.key("files").key("missing").path()
        } else {
            at.key("upstream").path()
        };
        for share in route.shares() {
            let name = &share.upstream;
            match (speaks(name), &route.fastcgi) {
                (Some(true), None) => {
                    let message =
                        format!("the upstream `{name}` speaks FastCGI, so the route must name its scripts");
                    let hint =
                        "add `fastcgi: { root: /var/www/html }` to the route, with the folder of the scripts";
                    self.error_hint(&target, "no-scripts", message, hint);
                }
                (Some(false), Some(_)) => {
                    let message =
                        format!("the route has `fastcgi`, and its upstream `{name}` does not speak it");
                    let hint =
                        format!("write `protocol: fastcgi` under upstreams.{name}, or remove `fastcgi`");
                    self.error_hint(&target, "scripts-of-nobody", message, hint);
                }
                _ => {}
            }
        }
        let Some(scripts) = &route.fastcgi else { return };
        let at = at.key("fastcgi");
        if route.shares().next().is_none() {
            let hint = "add `upstream: NAME`, or `missing: NAME` to `files`, with an upstream of `protocol: fastcgi`";
            let message = "the route has no upstream that could run scripts";
            self.error_hint(&at.path(), "scripts-of-nobody", message, hint);
        }
        self.script_names(&at, scripts);
    }

    fn script_names(&mut self, at: &Spot<'_, '_>, scripts: &FastCgi) {
        let FastCgi { index, split, params, .. } = scripts;
        let is_name = |text: &str| !text.is_empty() && !text.contains('/') && !text.bytes().any(|b| b < b' ');
        if !split.starts_with('.') || split.len() < 2 || !is_name(split) {
            let message = format!("`{split}` is not how a script's name ends; expected e.g. .php");
            self.error(&at.key("split").path(), "bad-value", message);
        } else if !is_name(index) || !index.ends_with(split.as_str()) || index.starts_with('.') {
            let message = format!("`{index}` is not the name of a script; expected one that ends in {split}");
            self.error(&at.key("index").path(), "bad-value", message);
        }
        let at = at.key("params");
        for (name, value) in &params.0 {
            let path = || at.key(name).path();
            let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            if !name.bytes().all(letter) || name.bytes().next().is_none_or(|b| b.is_ascii_digit()) {
                let message = format!("`{name}` is not the name of a parameter; expected e.g. APP_ENV");
                self.error(&path(), "bad-value", message);
            } else if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
                self.error(&path(), "reserved-parameter", format!("`{name}` is the gateway's to set"));
            }
            if value.contains('\0') {
                self.error(&path(), "bad-value", "the value contains a NUL, where scripts would end it");
            }
        }
    }

    /// What an upstream that speaks FastCGI cannot have.
    pub(super) fn fastcgi_upstream(&mut self, path: &str, upstream: &Upstream) {
        if upstream.protocol != UpstreamProtocol::Fastcgi {
            return;
        }
        let at = |key: &str| format!("{path}.{key}");
        if self.is_written(&at("tls")) {
            let hint = "remove `tls`; over an untrusted network use a tunnel, such as WireGuard or stunnel";
            self.error_hint(&at("tls"), "fastcgi-with-tls", "FastCGI has no TLS: no server speaks it", hint);
        }
        if upstream.proxy_protocol.is_some() {
            let message = "FastCGI servers read no PROXY header";
            let hint = "remove it: scripts find the client's address in REMOTE_ADDR";
            self.error_hint(&at("proxy_protocol"), "fastcgi-with-proxy", message, hint);
        }
        let probe = upstream.health.as_ref().and_then(|health| health.probe.as_ref());
        if probe.is_some_and(|probe| probe.kind != ProbeKind::Tcp) {
            let message = "probes can only connect to a FastCGI server: they do not speak its protocol";
            self.error_hint(&at("health.probe"), "fastcgi-probe", message, "add `kind: tcp`");
        }
    }

    /// Filters call upstreams by HTTP.
    pub(super) fn filters_that_call_scripts(&mut self) {
        let config = self.config;
        let mut wrong = Vec::new();
        for filter in self.filters() {
            let members = filter.node.elements().iter().flat_map(crate::Node::entries);
            let members = members.map(|(name, node)| (&*name.text, node));
            let all = std::iter::once((filter.name.as_str(), &filter.node)).chain(members);
            for named in all.flat_map(|(name, node)| super::upstreams_of_filter(name, node)) {
                let protocol = config.upstreams.get(named).map(|upstream| upstream.protocol);
                if protocol == Some(UpstreamProtocol::Fastcgi) {
                    wrong.push((filter.path.clone(), named.to_owned()));
                }
            }
        }
        for (path, name) in wrong {
            let message = format!("filters call upstreams by HTTP, and `{name}` speaks FastCGI");
            self.error_hint(&path, "filter-calls-fastcgi", message, "name an upstream that speaks HTTP");
        }
    }
}
