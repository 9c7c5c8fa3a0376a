//! The apps `http` and `tls`: servers, what they listen on, and how certificates are automated.

use super::super::address::Address;
use super::super::errors;
use super::super::listeners::Tls;
use super::super::model::{Answer, Handler, Kind, Listen, Matcher, Route, Server};
use super::super::site::{Adapted, host_of};
use super::super::verdicts::Judged;
use super::{Reader, time_text};
use crate::shared::tree::{Entry, Node};
use crate::shared::units;
use crate::yaml::Map;

impl Reader<'_> {
    pub(super) fn http(&mut self, app: &Entry, adapted: &mut Adapted) {
        self.ledger.same(app.piece);
        for entry in app.node.as_map().unwrap_or_default() {
            match &*entry.key {
                "servers" => {
                    self.ledger.same(entry.piece);
                    for server in entry.node.as_map().unwrap_or_default() {
                        self.server(server, adapted);
                    }
                }
                "http_port" | "https_port" => self.same(entry),
                "grace_period" | "shutdown_delay" => {
                    let key = if &*entry.key == "grace_period" { "drain" } else { "delay" };
                    match duration(&entry.node) {
                        Some(time) => {
                            self.config.more.map_mut("shutdown").set(key, time);
                            self.same(entry);
                        }
                        None => self.refuse(entry, "no duration", "a duration such as 10s"),
                    }
                }
                _ => self.refuse(entry, "Weir has nothing for it", "docs/reference/config.md"),
            }
        }
    }

    fn server(&mut self, entry: &Entry, adapted: &mut Adapted) {
        self.ledger.same(entry.piece);
        let node = &entry.node;
        let mut server = Server::default();
        let text =
            |key: &str| node.get("automatic_https").and_then(|auto| auto.get(key)).and_then(Node::as_bool);
        let disabled = text("disable") == Some(true);
        let has_policies = node.get("tls_connection_policies").is_some();
        let hosts = hosts(node);
        let mut ports = Vec::new();
        for listen in node.get("listen").and_then(Node::as_texts).unwrap_or_default() {
            let listen = listen.strip_prefix("tcp/").unwrap_or(&listen).to_owned();
            if let Some(path) = listen.strip_prefix("unix/") {
                server
                    .listens
                    .push(Listen { address: format!("unix:/{}", path.trim_start_matches('/')), tls: false });
                continue;
            }
            let (host, port) = listen.rsplit_once(':').unwrap_or(("", &listen));
            let host = host_of(host);
            let tls = port != "80" && (has_policies || !disabled && (port == "443" || !hosts.is_empty()));
            ports.push(port.to_owned());
            let listen = Listen { address: format!("{host}:{port}"), tls };
            if !server.listens.contains(&listen) {
                server.listens.push(listen);
            }
        }
        for entry in node.as_map().unwrap_or_default() {
            match &*entry.key {
                "routes" => {
                    self.ledger.same(entry.piece);
                    server.routes = self.routes(&entry.node);
                }
                "listen" | "automatic_https" => self.same(entry),
                "errors" => {
                    self.ledger.same(entry.piece);
                    if let Some(routes) = entry.node.get("routes") {
                        entry
                            .node
                            .as_map()
                            .unwrap_or_default()
                            .iter()
                            .for_each(|entry| self.ledger.same(entry.piece));
                        for route in self.routes(routes) {
                            let hosts = route.sets.iter().flatten().find_map(|matcher| match matcher {
                                Matcher::Host(hosts) => Some(hosts.clone()),
                                _ => None,
                            });
                            let inner = Route {
                                sets: if hosts.is_some() { Vec::new() } else { route.sets.clone() },
                                ..route
                            };
                            let keys = ["4xx".to_owned(), "5xx".to_owned()];
                            let map = errors::pages(&[inner], root_of(node).as_deref(), &keys, self.ledger);
                            if !map.is_empty() {
                                adapted.pages.push((hosts.unwrap_or_default(), map));
                            }
                        }
                    }
                }
                "logs" => {
                    if self.config.more.get("access_log").is_none() {
                        self.config.more.set("access_log", Map::new().with("output", "stderr"));
                    }
                    self.all(entry, &Judged::changed("Weir has one access log for all sites: `access_log`"));
                }
                "trusted_proxies" => match (
                    entry.node.get("source").and_then(Node::as_text),
                    entry.node.get("ranges").and_then(Node::as_texts),
                ) {
                    (Some(source), Some(ranges)) if source == "static" => {
                        self.config.more.set("trusted_proxies", ranges);
                        self.same(entry);
                    }
                    _ => self.refuse(entry, "Weir trusts networks that are written out", "`trusted_proxies`"),
                },
                "read_timeout" | "read_header_timeout" | "idle_timeout" => {
                    let key = match &*entry.key {
                        "read_timeout" => "body",
                        "read_header_timeout" => "head",
                        _ => "keepalive",
                    };
                    if let Some(time) = duration(&entry.node) {
                        adapted.plan.timeouts.set(key, time);
                    }
                    self.same(entry);
                }
                "write_timeout"
                | "max_header_bytes"
                | "keepalive_interval"
                | "protocols"
                | "metrics"
                | "trusted_proxies_strict"
                | "enable_full_duplex"
                | "allow_h2c"
                | "experimental_http3" => {
                    self.all(
                        entry,
                        &Judged::changed("Weir has its own limits and protocols: `limits`, `listeners.NAME`"),
                    );
                }
                "tls_connection_policies" => self.connection_policies(entry),
                _ => self.refuse(entry, "Weir has nothing for it", "`listeners.NAME`"),
            }
        }
        let piece = entry.piece;
        for listen in server.listens.iter().filter(|listen| listen.tls) {
            let all = if hosts.is_empty() { vec![String::new()] } else { hosts.clone() };
            for host in all {
                let address = Address { host: host.clone(), ..Address::default() };
                let fits = |names: &Vec<String>| names.is_empty() || names.contains(&host);
                let tls = self
                    .tls
                    .iter()
                    .find(|(names, _)| fits(names))
                    .map(|(_, tls)| tls.clone())
                    .unwrap_or_default();
                adapted.plan.add(listen, &address, &tls, piece, self.ledger);
            }
        }
        let redirects =
            !disabled && text("disable_redirects") != Some(true) && ports.iter().any(|port| port == "443");
        if redirects && !hosts.is_empty() {
            let to = vec![("Location".to_owned(), "https://{host}{uri}".to_owned())];
            let answer = Answer { status: "308".to_owned(), body: String::new(), headers: to };
            // For every host, known or not.
            let route = Route::always(Handler { kind: Kind::Respond(answer), piece });
            let listen = Listen { address: "[::]:80".to_owned(), tls: false };
            let own = adapted.servers.iter_mut().find(|server| server.listens.contains(&listen));
            match own {
                Some(server) => server.routes.push(route),
                None => adapted.servers.push(Server { listens: vec![listen], routes: vec![route] }),
            }
        }
        match adapted.servers.iter_mut().find(|known| known.listens == server.listens) {
            // The redirects came first; a site of its own decides before them.
            Some(known) => {
                let redirects = std::mem::replace(&mut known.routes, server.routes);
                known.routes.extend(redirects);
            }
            None => adapted.servers.push(server),
        }
    }

    fn connection_policies(&mut self, entry: &Entry) {
        let mut least = None;
        let mut judged = Judged::Same;
        for policy in entry.node.as_list().unwrap_or_default() {
            for field in policy.as_map().unwrap_or_default() {
                match &*field.key {
                    "protocol_min" => least = field.node.as_text().filter(|version| version == "tls1.3"),
                    "match" | "alpn" | "certificate_selection" | "protocol_max" | "default_sni" => {}
                    "client_authentication" => {
                        judged = Judged::refused(
                            "who may connect by a certificate is not translated from JSON",
                            "`tls.client_auth: { ca, mode }` of the listener",
                        );
                    }
                    _ => judged = Judged::changed("Weir chooses among the suites of rustls"),
                }
            }
        }
        if least.is_some() {
            self.tls.iter_mut().for_each(|(_, tls)| tls.min_version = Some("1.3"));
        }
        self.all(entry, &judged);
    }

    pub(super) fn tls_app(&mut self, node: &Node) {
        for entry in node.as_map().unwrap_or_default() {
            match &*entry.key {
                "automation" => {
                    self.same(entry);
                    for policy in entry.node.get("policies").and_then(Node::as_list).unwrap_or_default() {
                        let mut tls = Tls::default();
                        let subjects = policy.get("subjects").and_then(Node::as_texts).unwrap_or_default();
                        for issuer in
                            policy.get("issuers").and_then(Node::as_list).unwrap_or_default().iter().take(1)
                        {
                            let text = |key: &str| issuer.get(key).and_then(Node::as_text);
                            match text("module").as_deref() {
                                Some("internal") => tls.is_internal = true,
                                _ => (tls.email, tls.directory) = (text("email"), text("ca")),
                            }
                            if issuer.get("challenges").and_then(|challenges| challenges.get("dns")).is_some()
                            {
                                tls.no_acme =
                                    Some("Weir writes DNS records by a command of yours".to_owned());
                            }
                        }
                        if policy.get("on_demand").and_then(Node::as_bool) == Some(true) {
                            tls.no_acme =
                                Some("Weir orders certificates for names that are written down".to_owned());
                        }
                        self.tls.push((subjects, tls));
                    }
                }
                "certificates" => {
                    let files = entry.node.get("load_files").and_then(Node::as_list).unwrap_or_default();
                    let text = |file: &Node, key: &str| file.get(key).and_then(Node::as_text);
                    let only = files.len() == 1;
                    let cert =
                        files.first().and_then(|file| Some((text(file, "certificate")?, text(file, "key")?)));
                    let tls = Tls { cert, ..Tls::default() };
                    if only && tls.cert.is_some() {
                        self.tls.insert(0, (Vec::new(), tls));
                        self.same(entry);
                    } else {
                        let nearest = "`tls.certificates` of the listener";
                        self.refuse(entry, "which certificate is for which site is not known", nearest);
                    }
                }
                _ => self.all(entry, &Judged::changed("it concerns how Caddy keeps certificates")),
            }
        }
    }
}

fn duration(node: &Node) -> Option<String> {
    units::read_duration(&time_text(node), 1).map(units::duration)
}

/// All hosts that the routes of a server name.
fn hosts(server: &Node) -> Vec<String> {
    let mut hosts = Vec::new();
    for route in server.get("routes").and_then(Node::as_list).unwrap_or_default() {
        for set in route.get("match").and_then(Node::as_list).unwrap_or_default() {
            for host in set.get("host").and_then(Node::as_texts).unwrap_or_default() {
                let host = host.to_ascii_lowercase();
                if !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
        }
    }
    hosts
}

/// The first folder that a server names, for pages.
fn root_of(node: &Node) -> Option<String> {
    match (node.as_map(), node.as_list()) {
        (Some(entries), _) => {
            let own =
                entries.iter().find(|entry| &*entry.key == "root").and_then(|entry| entry.node.as_text());
            own.or_else(|| entries.iter().find_map(|entry| root_of(&entry.node)))
        }
        (_, Some(items)) => items.iter().find_map(root_of),
        _ => None,
    }
}
