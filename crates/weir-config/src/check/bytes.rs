//! Checks of listeners that pass connections on as bytes: `tcp`, `sni` and `otherwise`.

use super::Checker;
use crate::aliases;
use crate::node::Key;
use crate::schema::{Balancer, Destination, HashBy, Listener, Serves};
use crate::spelling::nearest_name;
use std::collections::{HashMap, HashSet, VecDeque};

impl Checker<'_> {
    /// What a listener does with its connections, and what it must have for that.
    pub(super) fn bytes(&mut self, name: &str, path: &str, listener: &Listener) {
        let config = self.config;
        let named = config.listeners.iter().any(|(_, outer)| outer.leads_to(name));
        if named {
            self.inner(path);
        } else if !self.is_written(&format!("{path}.address")) && !self.is_address_misnamed(path) {
            self.error(&format!("{path}.address"), "missing-key", "`address` is missing");
        }
        self.must_be_within(
            &format!("{path}.limits.connections"),
            listener.limits.connections.unwrap_or(1).into(),
            1,
            u32::MAX.into(),
        );
        if listener.tcp.is_some() && self.is_written(&format!("{path}.sni")) {
            let message = "the listener has both `tcp` and `sni`; expected one of them";
            let hint = "give the destination of each name under `sni`, and of all others under `otherwise`";
            self.error_hint(&format!("{path}.sni"), "two-answers", message, hint);
        }
        if listener.otherwise.is_some() && !self.is_written(&format!("{path}.sni")) {
            let message =
                "`otherwise` says where connections go whose name is not under `sni`, and there is no `sni`";
            let hint =
                "add `sni: { db.example.com: { upstream: NAME } }`, or write `tcp: { upstream: NAME }`";
            self.error_hint(&format!("{path}.otherwise"), "missing-key", message, hint);
        }
        match listener.serves() {
            Serves::Http => {
                if self.is_written(&format!("{path}.ip")) && !named {
                    let message = "`ip` of a listener is for `tcp` and `sni`";
                    let hint = "write the filter `ip`, under `filters` for all routes or at a route";
                    self.error_hint(&format!("{path}.ip"), "no-effect", message, hint);
                }
                return;
            }
            Serves::Tcp => self.tcp(path, listener),
            Serves::Sni => self.sni(path, listener),
        }
        for key in ["protocols", "http3", "slashes", "escaped_slashes"] {
            let path = format!("{path}.{key}");
            if self.is_written(&path) {
                let message = "this listener speaks no HTTP";
                self.warn(&path, "no-effect", message, format!("remove `{key}`"));
            }
        }
    }

    fn tcp(&mut self, path: &str, listener: &Listener) {
        let Some(tcp) = &listener.tcp else { return };
        let path = format!("{path}.tcp");
        self.passes_to(&path, &tcp.upstream);
        if let Some(connect) = tcp.connect {
            self.must_last(&format!("{path}.connect"), connect);
        }
    }

    fn sni(&mut self, path: &str, listener: &Listener) {
        let Some(sni) = &listener.sni else { return };
        let names = format!("{path}.sni");
        if self.find(&names).is_some_and(|node| node.entries().is_empty()) {
            let hint = "write db.example.com: { upstream: NAME }";
            self.error_hint(&names, "empty", "no name is given; expected at least one", hint);
        }
        if self.is_written(&format!("{path}.tls")) {
            let message = "a listener with `sni` does not end TLS";
            let hint = "write `tls` at the listener that a name leads to";
            self.error_hint(&format!("{path}.tls"), "two-answers", message, hint);
        }
        let mut seen = HashSet::new();
        // As written: a name is normalized, and of two that are the same then, each has its own place.
        let mut written: HashMap<String, VecDeque<&Key>> = HashMap::new();
        for (key, _) in self.find(&names).map_or(&[][..], |node| node.entries()) {
            let name = key.text.trim_end_matches('.').to_ascii_lowercase();
            written.entry(name).or_default().push_back(key);
        }
        for (name, destination) in sni.0.iter() {
            let key = written.get_mut(&*name.0).and_then(VecDeque::pop_front);
            let path = format!("{names}.{}", key.map_or(&*name.0, |key| &*key.text));
            if !seen.insert(name) {
                let message = format!("the name `{}` is given twice", name.0);
                self.error(&path, "twice", message);
            }
            self.destination(&path, destination, true);
        }
        if let Some(destination) = &listener.otherwise {
            self.destination(&format!("{path}.otherwise"), destination, false);
        }
    }

    /// `by_name`: its clients speak TLS.
    fn destination(&mut self, path: &str, destination: &Destination, by_name: bool) {
        let config = self.config;
        let of = |key: &str| format!("{path}.{key}");
        match (&destination.upstream, &destination.listener) {
            (Some(_), Some(_)) => {
                let message = "the destination is both an `upstream` and a `listener`; expected one of them";
                self.error(&of("listener"), "two-answers", message);
            }
            (None, None) => {
                if !self.is_written(&of("upstream")) && !self.is_written(&of("listener")) {
                    let hint = "write { upstream: NAME } to pass bytes on, or { listener: NAME }";
                    self.error_hint(path, "missing-key", "there is no `upstream` or `listener`", hint);
                }
            }
            (Some(upstream), None) => self.passes_to(path, upstream),
            (None, Some(name)) => {
                self.must_exist(|| of("listener"), "listeners", "unknown-listener", name);
                for key in ["idle", "connect"] {
                    if self.is_written(&of(key)) {
                        let message = format!("`{key}` is for an `upstream`; a listener has its own");
                        self.error(&of(key), "no-effect", message);
                    }
                }
                let Some(inner) = config.listeners.get(name) else { return };
                if inner.serves() == Serves::Sni {
                    let message =
                        format!("listener `{name}` has `sni` itself; expected one that serves connections");
                    self.error(&of("listener"), "bad-value", message);
                } else if by_name && inner.tls.is_none() && !self.is_written(&format!("listeners.{name}.tls"))
                {
                    let message =
                        format!("clients of this name speak TLS, and listener `{name}` has no `tls`");
                    let hint = format!("add `tls` to listeners.{name}, or write {{ upstream: NAME }}");
                    self.error_hint(&of("listener"), "no-tls", message, hint);
                }
            }
        }
        if let Some(connect) = destination.connect {
            self.must_last(&of("connect"), connect);
        }
    }

    fn passes_to(&mut self, path: &str, upstream: &str) {
        let path = format!("{path}.upstream");
        self.must_exist(|| path.clone(), "upstreams", "unknown-upstream", upstream);
        let Some(written) = self.config.upstreams.get(upstream) else { return };
        let by_header = matches!(&written.balancer, Balancer::Hash(hash) if hash.by != HashBy::Address);
        let routed = self.config.routes.iter().filter_map(|(_, route)| route.upstream.as_ref());
        let is_routed = routed.flat_map(|split| &split.0).any(|share| share.upstream == upstream);
        if by_header && !is_routed {
            let message = format!(
                "bytes have nothing to hash but the client's address, which upstream `{upstream}` does not name"
            );
            let hint = format!("write `balancer: {{ hash: {{ by: address }} }}` under upstreams.{upstream}");
            self.warn(&path, "no-effect", message, hint);
        }
    }

    /// A listener that another one names has nothing that belongs to the address.
    fn inner(&mut self, path: &str) {
        for key in ["address", "proxy_protocol", "ip", "limits"] {
            let path = format!("{path}.{key}");
            if self.is_written(&path) {
                let message = format!("`{key}` belongs to the listener with `sni` that leads here");
                self.error_hint(&path, "no-effect", message, format!("write `{key}` there"));
            }
        }
    }

    /// Whether another key of the listener was meant as its address; that error is enough.
    fn is_address_misnamed(&self, path: &str) -> bool {
        let keys = self.find(path).map_or(&[][..], |node| node.entries()).iter();
        let is_meant = |key: &Key| {
            aliases::key(&key.text, &["address"]).is_some_and(|(ours, _)| ours == Some("address"))
                || nearest_name(&key.text, ["address"]).is_some()
        };
        self.is_mistyped("listeners") || keys.into_iter().any(|(key, _)| is_meant(key))
    }
}
