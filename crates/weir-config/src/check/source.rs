//! Checks of `source` and `labels`.

use super::Checker;
use crate::schema::FilePath;
use crate::url::Url;

/// The keys allowed beside `source`: those of one node of a fleet. The rest comes from the source.
pub(crate) const BOOTSTRAP: &[&str] = &["admin", "labels", "log", "source", "version", "workers", "zone"];

/// Maximum number of labels of a node.
const LABELS: usize = 16;

impl Checker<'_> {
    pub(super) fn source(&mut self) {
        let config = self.config;
        if config.labels.0.len() > LABELS {
            self.error("labels", "out-of-range", format!("there are more than {LABELS} labels"));
        }
        let Some(source) = &config.source else {
            if self.is_written("labels") && !self.is_written("source") {
                let hint =
                    "they choose the nodes of a fleet that take a new config first: see docs/guide/fleet.md";
                self.warn("labels", "unused", "these labels have no effect without a `source`", hint);
            }
            return;
        };
        self.one_kind();
        if let Some(etcd) = &source.etcd {
            self.named("etcd", "cache", etcd.cache.is_some(), "cache: /var/lib/weir/last-good");
            // A refused server is already reported and is not a second mistake.
            if etcd.servers.is_empty() && self.is_whole("source.etcd.servers", 0) {
                let hint = "write servers: [\"http://127.0.0.1:2379\"]";
                self.error_hint("source.etcd", "missing-key", "`servers` is missing", hint);
            }
            self.identity("etcd", etcd.ca.as_ref(), etcd.client_cert.as_ref(), etcd.client_key.as_ref());
            for (index, server) in etcd.servers.iter().enumerate() {
                let path = format!("source.etcd.servers[{index}]");
                if server.target() != "/" {
                    let message = format!("`{server}` has a path; etcd is asked at its own");
                    self.error_hint(&path, "bad-value", message, format!("write {}", server.origin()));
                }
                self.clear_text(&path, server, etcd.password.is_some());
            }
            if etcd.user.is_some() != etcd.password.is_some() {
                let hint = "write both, or neither";
                self.error_hint("source.etcd", "missing-key", "`user` and `password` belong together", hint);
            }
            let good = |node: &String| {
                !node.is_empty()
                    && node.len() <= 128
                    && node.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
            };
            if etcd.node.as_ref().is_some_and(|node| !good(node)) {
                let message = "not a name of a node; expected letters, digits, `_`, `.` and `-`, at most 128";
                self.error("source.etcd.node", "bad-value", message);
            }
            if let Some(text) = etcd.address.as_ref().filter(|_| etcd.address().is_none()) {
                let message = format!("`{text}` is not an address at which other nodes reach this one");
                let hint = "write an IP address of this machine, such as 10.0.0.5 or 10.0.0.5:9182";
                self.error_hint("source.etcd.address", "bad-value", message, hint);
            }
        }
        if let Some(http) = &source.http {
            self.named("http", "cache", http.cache.is_some(), "cache: /var/lib/weir/last-good");
            self.named("http", "url", http.url.is_some(), "url: \"https://config.internal/weir.tar.gz\"");
            self.identity("http", http.ca.as_ref(), http.client_cert.as_ref(), http.client_key.as_ref());
            self.must_last("source.http.every", http.every);
            if let Some(url) = &http.url {
                self.clear_text("source.http.url", url, http.token.is_some());
            }
        }
        if config.admin.writes.is_some() {
            let hint = "take `writes` out; a fleet is changed with `weir fleet publish`";
            let message = "a node of a fleet has its config from the source, so that all nodes have the same";
            self.error_hint("admin.writes", "not-in-fleet", message, hint);
        }
    }

    fn one_kind(&mut self) {
        let kinds = [self.is_written("source.etcd"), self.is_written("source.http")];
        match kinds {
            [true, true] => {
                self.error("source", "bad-value", "there are two sources; expected one of etcd and http")
            }
            [false, false] => {
                let hint = "write source: { etcd: { servers: [..], cache: .. } } or { http: { url: .., cache: .. } }";
                self.error_hint(
                    "source",
                    "missing-key",
                    "no source is named; expected one of etcd and http",
                    hint,
                );
            }
            _ => {}
        }
    }

    fn named(&mut self, kind: &str, key: &str, is_there: bool, example: &str) {
        if !is_there && !self.is_written(&format!("source.{kind}.{key}")) {
            let message = format!("`{key}` is missing");
            self.error_hint(&format!("source.{kind}"), "missing-key", message, format!("write {example}"));
        }
    }

    fn identity(
        &mut self,
        kind: &str,
        ca: Option<&FilePath>,
        cert: Option<&FilePath>,
        key: Option<&FilePath>,
    ) {
        let files = [("ca", ca), ("client_cert", cert), ("client_key", key)];
        for (name, file) in files {
            if let Some(file) = file {
                self.must_be_file(&format!("source.{kind}.{name}"), &file.0);
            }
        }
        if cert.is_some() != key.is_some() {
            let message = "`client_cert` and `client_key` belong together";
            self.error(&format!("source.{kind}"), "missing-key", message);
        }
    }

    fn clear_text(&mut self, path: &str, url: &Url, secret: bool) {
        if secret && !url.is_safe() {
            let message = format!("a secret goes to {} in clear text", url.origin());
            self.warn(path, "clear-text", message, "use https");
        }
    }
}
