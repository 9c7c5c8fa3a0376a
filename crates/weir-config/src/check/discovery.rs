//! Checks of `discover`.

use super::Checker;
use crate::schema::{Discover, EtcdFormat, FilePath, KubernetesDiscovery, Upstream, UpstreamProtocol};
use crate::url::Url;

impl Checker<'_> {
    /// Checks that endpoints are listed either here or by a registry.
    pub(super) fn who_lists_endpoints(&mut self, path: &str, upstream: &Upstream) {
        let listed = format!("{path}.endpoints");
        match &upstream.discover {
            None if self.is_supplied(path) => {}
            None => {
                // A section refused as a whole is already reported.
                let is_told = self.is_written(&listed) || self.is_written(&format!("{path}.discover"));
                if !is_told && !self.has_unknown_keys(path) {
                    self.error(&listed, "missing-key", "`endpoints` is missing");
                }
            }
            Some(discover) => {
                if self.is_written(&listed) {
                    let message = "there are `endpoints` and `discover`; expected one of them";
                    let hint = "list these endpoints in the registry, or in a file: discover: { file: endpoints.yaml }";
                    self.error_hint(&listed, "bad-value", message, hint);
                }
                self.discover(&format!("{path}.discover"), upstream, discover);
            }
        }
    }

    /// Whether the program around the gateway supplies the endpoints of the upstream at this path.
    fn is_supplied(&self, path: &str) -> bool {
        let name = path.strip_prefix("upstreams.");
        name.zip(self.config.supplied.as_ref()).is_some_and(|(name, supplied)| supplied.contains(name))
    }

    fn discover(&mut self, path: &str, upstream: &Upstream, discover: &Discover) {
        let kinds = ["consul", "docker", "etcd", "file", "kubernetes", "srv"];
        let written = kinds.iter().filter(|kind| self.is_written(&format!("{path}.{kind}"))).count();
        let hint = "write discover: { etcd: { servers: [..], key: /microservices/orders, format: kratos } }, \
                    { consul: { service: orders } }, \
                    { kubernetes: { namespace: shop, service: orders } }, { srv: _grpc._tcp.orders.internal } \
                    or { file: orders.yaml }";
        match written {
            0 if self.has_unknown_keys(path) => {} // already reported
            0 => self.error_hint(
                path,
                "missing-key",
                "no registry is named; expected one of consul, docker, etcd, file, kubernetes and srv",
                hint,
            ),
            1 => {}
            _ => self.error(
                path,
                "bad-value",
                "there are several registries; expected one of consul, docker, etcd, file, kubernetes and srv",
            ),
        }
        if let Some(etcd) = &discover.etcd {
            self.etcd_discovery(&format!("{path}.etcd"), upstream, etcd);
        }
        if let Some(consul) = &discover.consul {
            let path = format!("{path}.consul");
            self.needs(&path, "service", !consul.service.is_empty(), "service: orders");
            self.servers(
                &path,
                &consul.servers,
                consul.token.is_some(),
                "servers: [\"http://127.0.0.1:8500\"]",
            );
            self.files(&path, consul.ca.as_ref(), consul.client_cert.as_ref(), consul.client_key.as_ref());
        }
        if let Some(kubernetes) = &discover.kubernetes {
            self.kubernetes_discovery(&format!("{path}.kubernetes"), kubernetes);
        }
        if let Some(srv) = &discover.srv {
            let labels = srv.strip_suffix('.').unwrap_or(srv);
            let label = |label: &str| {
                (1..=63).contains(&label.len())
                    && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            };
            if labels.len() > 253 || !labels.split('.').all(label) {
                let hint =
                    "write the name that has the SRV records: _grpc._tcp.orders.internal, without a port";
                self.error_hint(
                    &format!("{path}.srv"),
                    "bad-value",
                    format!("`{srv}` is not a DNS name"),
                    hint,
                );
            }
        }
        if let Some(file) = discover.file.as_ref().filter(|file| !file.0.exists()) {
            let message =
                format!("{} does not exist: the upstream has no endpoints until it does", file.0.display());
            let hint = "write a list into it, such as [ \"127.0.0.1:8000\" ]";
            self.warn(&format!("{path}.file"), "file-missing", message, hint);
        }
    }

    fn etcd_discovery(&mut self, path: &str, upstream: &Upstream, etcd: &crate::schema::EtcdDiscovery) {
        self.servers(path, &etcd.servers, etcd.password.is_some(), "servers: [\"http://127.0.0.1:2379\"]");
        self.needs(path, "key", !etcd.key.trim_matches('/').is_empty(), "key: /microservices/orders");
        self.needs(
            path,
            "format",
            etcd.format.is_some(),
            "format: kratos, or go_zero; sponge uses the format of kratos",
        );
        self.files(path, etcd.ca.as_ref(), etcd.client_cert.as_ref(), etcd.client_key.as_ref());
        if etcd.user.is_some() != etcd.password.is_some() {
            let hint = "write both, or neither";
            self.error_hint(path, "missing-key", "`user` and `password` belong together", hint);
        }
        if etcd.format != Some(EtcdFormat::GoZero) {
            return;
        }
        for (key, is_there) in [("scheme", etcd.scheme.is_some()), ("version", etcd.version.is_some())] {
            if is_there {
                let message = "go-zero instances register only an address";
                self.error_hint(&format!("{path}.{key}"), "bad-value", message, format!("take `{key}` out"));
            }
        }
        if matches!(upstream.protocol, UpstreamProtocol::Fastcgi | UpstreamProtocol::Http1) {
            let hint = "write `protocol: h2c` beside `discover`";
            let message =
                "services that go-zero registers in etcd speak gRPC, but this upstream speaks http1";
            self.warn(path, "grpc-over-http1", message, hint);
        }
    }

    fn kubernetes_discovery(&mut self, path: &str, kubernetes: &KubernetesDiscovery) {
        self.needs(path, "namespace", !kubernetes.namespace.is_empty(), "namespace: shop");
        self.needs(path, "service", !kubernetes.service.is_empty(), "service: orders");
        self.servers(path, &kubernetes.servers, false, "servers: [\"https://kubernetes.default.svc\"]");
        self.files(path, kubernetes.ca.as_ref(), None, None);
        for (index, server) in kubernetes.servers.iter().enumerate().filter(|(_, server)| !server.is_safe()) {
            let message = format!("the token would go to {} in clear text", server.origin());
            self.error_hint(&format!("{path}.servers[{index}]"), "clear-text", message, "write https://");
        }
        if let Some(token) = &kubernetes.token_file {
            self.must_be_file(&format!("{path}.token_file"), &token.0);
        } else if self.is_written(&format!("{path}.servers")) || self.is_written(&format!("{path}.ca")) {
            // Whoever may write an upstream must not learn the token of the pod.
            let message = "`token_file` is missing: without it the pod's own token is sent, and that goes only to the \
                           API server of the pod's cluster";
            let hint = "write token_file, or take `servers` and `ca` out";
            self.error_hint(path, "missing-key", message, hint);
        }
    }

    /// A key required for any query. A refused key is already reported.
    fn needs(&mut self, path: &str, key: &str, is_there: bool, example: &str) {
        let at = format!("{path}.{key}");
        if is_there {
            return;
        }
        if self.is_written(&at) {
            if self
                .find(&at)
                .and_then(|node| node.as_text())
                .is_some_and(|text| text.trim_matches('/').is_empty())
            {
                self.error_hint(&at, "bad-value", format!("`{key}` is empty"), format!("write {example}"));
            }
        } else {
            self.error_hint(path, "missing-key", format!("`{key}` is missing"), format!("write {example}"));
        }
    }

    fn servers(&mut self, path: &str, servers: &[Url], secret: bool, example: &str) {
        let list = format!("{path}.servers");
        if !self.is_whole(&list, servers.len()) {
            return;
        }
        if servers.is_empty() {
            self.error_hint(path, "missing-key", "`servers` is missing", format!("write {example}"));
        }
        for (index, server) in servers.iter().enumerate() {
            let at = format!("{list}[{index}]");
            if server.target() != "/" {
                let message = format!("`{server}` has a path; expected scheme, host and port");
                self.error_hint(&at, "bad-value", message, format!("write {}", server.origin()));
            }
            if secret && !server.is_safe() {
                let message = format!("a secret goes to {} in clear text", server.origin());
                self.warn(&at, "clear-text", message, "use https");
            }
        }
    }

    fn files(&mut self, path: &str, ca: Option<&FilePath>, cert: Option<&FilePath>, key: Option<&FilePath>) {
        for (name, file) in [("ca", ca), ("client_cert", cert), ("client_key", key)] {
            if let Some(file) = file {
                self.must_be_file(&format!("{path}.{name}"), &file.0);
            }
        }
        if cert.is_some() != key.is_some() {
            self.error(path, "missing-key", "`client_cert` and `client_key` belong together");
        }
    }

    /// Whether a key of this section was refused; it may have been meant as the missing one.
    fn has_unknown_keys(&self, path: &str) -> bool {
        let prefix = format!("{path}.");
        self.diagnostics.iter().any(|told| told.code == "unknown-key" && told.path.starts_with(&prefix))
    }
}
