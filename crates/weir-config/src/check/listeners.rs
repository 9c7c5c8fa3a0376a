//! Checks of listeners.

use super::Checker;
use crate::node::{Node, Value};
use crate::schema::{AdminAddress, FilePath, ListenAddress, Listener, Serves};
use std::net::IpAddr;

impl Checker<'_> {
    pub(super) fn listeners(&mut self) {
        let config = self.config;
        // A translated config has none until somebody creates one in the system that it comes from.
        if self.nothing_listens() && !config.ranked {
            let hint = "add `listeners: { web: { address: 0.0.0.0:8080 } }`";
            self.error_hint("listeners", "no-listeners", "there is no listener; expected at least one", hint);
        }
        for (name, listener) in config.listeners.iter() {
            let path = format!("listeners.{name}");
            if let Some(ListenAddress::Unix(file)) = &listener.address {
                self.check_unix_path(&format!("{path}.address"), file);
            }
            self.bytes(name, &path, listener);
            self.port(&path, listener);
            self.protocols(&path, listener);
            self.http3(name, &path, listener);
            if listener.proxy_protocol && !self.is_written("trusted_proxies") {
                let message = "no one may send the PROXY header: `trusted_proxies` is empty";
                let hint = "add the networks of your load balancers to trusted_proxies";
                self.error_hint(&format!("{path}.proxy_protocol"), "no-trusted-proxies", message, hint);
            }
            self.listener_tls(&path, listener);
        }
        self.addresses();
    }

    /// Whether no listener is written, not even under a mistyped key.
    fn nothing_listens(&self) -> bool {
        let unwritten = self.tree.get("listeners").is_none_or(|node| match &node.value {
            Value::Map(entries) => entries.is_empty(),
            other => *other == Value::Null,
        });
        matches!(self.tree.value, Value::Map(_)) && unwritten && !self.is_mistyped("listeners")
    }

    /// Ports that clients cannot know or take for another service.
    fn port(&mut self, listener_path: &str, listener: &Listener) {
        let Some(ListenAddress::Tcp(address)) = &listener.address else { return };
        let path = format!("{listener_path}.address");
        if listener.serves() != Serves::Http {
            if address.port() == 0 {
                self.any_port(&path);
            }
            return; // what its clients speak is not known here
        }
        let tls = self.is_written(&format!("{listener_path}.tls"));
        match (address.port(), tls) {
            (0, _) => self.any_port(&path),
            (443, false) => {
                let message = "clients speak TLS on port 443, and this listener has no `tls`";
                let hint =
                    "add `tls: { certificates: [ { cert: api.pem, key: api.key } ] }`, or take another port";
                self.warn(&path, "no-tls", message, hint);
            }
            (80, true) => {
                let message = "clients speak cleartext on port 80, and this listener has `tls`";
                self.warn(&path, "tls-on-80", message, "listen on port 443, or remove `tls`");
            }
            _ => {}
        }
    }

    fn any_port(&mut self, path: &str) {
        let message = "port 0 lets the system choose a new port at each start, which clients cannot know";
        self.warn(path, "port-zero", message, "write a port from 1 to 65535, such as 8080");
    }

    fn protocols(&mut self, listener_path: &str, listener: &Listener) {
        let path = format!("{listener_path}.protocols");
        let Some(protocols) = &listener.protocols else { return };
        if protocols.is_empty() && self.find(&path).is_some_and(|node| node.elements().is_empty()) {
            let message = "the list is empty; expected at least one protocol, such as [http1, h2]";
            self.error(&path, "empty", message);
        }
        let whole = self.is_whole(&path, protocols.len());
        for (index, protocol) in protocols.iter().enumerate().filter(|_| whole) {
            if protocols[..index].contains(protocol) {
                self.error(&format!("{path}[{index}]"), "twice", "the protocol is named twice");
            }
        }
    }

    fn listener_tls(&mut self, listener_path: &str, listener: &Listener) {
        let Some(tls) = &listener.tls else { return };
        let path = format!("{listener_path}.tls");
        self.certificate_files(&path);
        if let Some(auth) = &tls.client_auth {
            self.must_be_file(&format!("{path}.client_auth.ca"), &auth.ca.0);
        }
    }

    /// The files named by the `tls` section at a path.
    pub(super) fn certificate_files(&mut self, path: &str) {
        let list = format!("{path}.certificates");
        let by_acme = self.is_written(&format!("{path}.acme"));
        let is_empty = |node: &Node| matches!(&node.value, Value::Seq(items) if items.is_empty());
        if self.find(&list).is_some_and(is_empty) && !by_acme {
            let hint = "add { cert: certs/api.pem, key: certs/api.key }";
            self.error_hint(&list, "empty", "the list is empty; expected at least one certificate", hint);
        }
        let beside: Vec<&str> = ["cert", "key"]
            .into_iter()
            .filter(|key| self.diagnostics.forget("unknown-key", &format!("{path}.{key}")))
            .collect();
        if let [first, ..] = beside[..] {
            let message = "`cert` and `key` belong in the list `certificates`, one pair per certificate";
            let hint = "write `certificates: [ { cert: api.pem, key: api.key } ]`";
            self.error_hint(&format!("{path}.{first}"), "unknown-key", message, hint);
        } else if !self.is_written(&list) && !by_acme {
            let message = "there is no certificate; expected `certificates` or `acme`";
            let hint = "add `certificates: [ { cert: api.pem, key: api.key } ]`, or `acme: { domains: [ api.example.com ] }`";
            self.error_hint(path, "missing-key", message, hint);
        }
        // Uses the tree, because a pair with one refused half still names a file in the other.
        let pairs = self.find(&list).map_or(&[][..], Node::elements);
        for (index, pair) in pairs.iter().enumerate() {
            for key in ["cert", "key"] {
                if let Some(file) = pair.get(key).filter(|node| !node.broken).and_then(FilePath::of) {
                    let path = format!("{list}[{index}].{key}");
                    if key == "key" {
                        self.must_be_key(&path, &file.0);
                    } else {
                        self.must_be_file(&path, &file.0);
                    }
                }
            }
        }
    }

    /// No two listeners can share an address. Port 0 is a new port each time.
    fn addresses(&mut self) {
        let config = self.config;
        let admin = match &config.admin.address {
            AdminAddress::At(address) => Some(("admin".to_owned(), address)),
            AdminAddress::Off => None,
        };
        let listeners = config
            .listeners
            .iter()
            .filter_map(|(name, listener)| Some((format!("listeners.{name}"), listener.address.as_ref()?)));
        // Admin first: its default is not written, so a diagnostic could not point at it.
        let all: Vec<_> = admin.into_iter().chain(listeners).collect();
        for (index, (path, address)) in all.iter().enumerate() {
            let taken = all[..index].iter().find(|(_, earlier)| collide(earlier, address));
            if let Some((other, earlier)) = taken {
                let message = format!("`{address}` is taken by {other}");
                let hint = match both_wildcards(earlier, address).filter(|_| other != "admin") {
                    Some(port) => format!("keep [::]:{port} alone: it serves IPv4 and IPv6"),
                    None => "give each listener an address of its own".to_owned(),
                };
                self.error_hint(&format!("{path}.address"), "address-twice", message, hint);
            }
        }
    }
}

/// The port of two colliding addresses, if one is `0.0.0.0` and the other `[::]`.
fn both_wildcards(a: &ListenAddress, b: &ListenAddress) -> Option<u16> {
    let (ListenAddress::Tcp(a), ListenAddress::Tcp(b)) = (a, b) else { return None };
    let are_both = a.ip().is_unspecified() && b.ip().is_unspecified() && a.ip() != b.ip();
    are_both.then_some(a.port())
}

/// Whether two sockets conflict: the same address, or the same port on a wildcard and an address that it covers.
fn collide(a: &ListenAddress, b: &ListenAddress) -> bool {
    match (a, b) {
        (ListenAddress::Tcp(a), ListenAddress::Tcp(b)) => {
            // A socket on ::ffff:127.0.0.1 accepts what one on 127.0.0.1 does.
            let (ip, other) = (a.ip().to_canonical(), b.ip().to_canonical());
            let meets = ip == other || covers(ip, other) || covers(other, ip);
            a.port() == b.port() && a.port() != 0 && meets
        }
        (a, b) => a == b,
    }
}

/// Whether a socket on `wildcard` also accepts connections to `other`. We bind `[::]` for both families.
const fn covers(wildcard: IpAddr, other: IpAddr) -> bool {
    wildcard.is_unspecified() && (wildcard.is_ipv6() || other.is_ipv4())
}
