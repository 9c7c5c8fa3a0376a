//! Caddy's JSON, as `caddy adapt` prints it: servers with routes, in the order in which they run.

use super::address::Address;
use super::errors;
use super::judged::Judged;
use super::listeners::{Plan, Tls};
use super::model::{
    Answer, FileTest, Files, Handler, Kind, Listen, Matcher, Op, Ops, Rewrite, Route, Server, Set,
};
use super::site::Adapted;
use super::values::{file_setting, withheld};
use crate::config::{Config, Filter};
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{self, Entry, Node};
use crate::shared::units;
use crate::source::{SourceFile, Unreadable};
use crate::yaml::Map;

/// Reads a config.
///
/// # Errors
/// If it is no JSON.
pub(super) fn adapt(
    file: &SourceFile,
    config: &mut Config,
    ledger: &mut Ledger,
) -> Result<Adapted, Unreadable> {
    let root = tree::read(file, ledger)?;
    if root.as_map().is_none() {
        return Err(Unreadable::anywhere(format!("{}: a config of Caddy is an object", file.name)));
    }
    let mut reader = Reader { ledger, config, tls: Vec::new() };
    let mut adapted = Adapted { servers: Vec::new(), pages: Vec::new(), plan: Plan::default() };
    let apps = root.get("apps");
    if let Some(tls) = apps.and_then(|apps| apps.get("tls")) {
        reader.tls_app(tls);
    }
    for entry in root.as_map().unwrap_or_default() {
        match &*entry.key {
            "apps" => {
                reader.ledger.same(entry.piece);
                for app in entry.node.as_map().unwrap_or_default() {
                    match &*app.key {
                        "http" => reader.http(app, &mut adapted),
                        "tls" => reader.ledger.same(app.piece),
                        _ => reader.refuse(app, "Weir has nothing for this app", "docs/reference/config.md"),
                    }
                }
            }
            "admin" | "logging" | "storage" => {
                reader.all(
                    entry,
                    &Judged::changed("Weir has `admin`, `log`, `access_log` and `tls.acme.storage`"),
                );
            }
            _ => reader.refuse(entry, "Weir has nothing for it", "docs/reference/config.md"),
        }
    }
    Ok(adapted)
}

pub(super) struct Reader<'a> {
    pub(super) ledger: &'a mut Ledger,
    config: &'a mut Config,
    /// What the automation of certificates says, by names; no names for all.
    tls: Vec<(Vec<String>, Tls)>,
}

impl Reader<'_> {
    pub(super) fn all(&mut self, entry: &Entry, judged: &Judged) {
        entry.each_piece(&mut |piece| judged.clone().enter(piece, self.ledger));
    }

    pub(super) fn same(&mut self, entry: &Entry) {
        self.all(entry, &Judged::Same);
    }

    pub(super) fn refuse(&mut self, entry: &Entry, why: &'static str, nearest: &'static str) {
        self.all(entry, &Judged::refused(why, nearest));
    }

    fn http(&mut self, app: &Entry, adapted: &mut Adapted) {
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
            let host = if host.is_empty() { "0.0.0.0" } else { host };
            let tls = port != "80" && (has_policies || !disabled && (port == "443" || !hosts.is_empty()));
            ports.push(port.to_owned());
            server.listens.push(Listen { address: format!("{host}:{port}"), tls });
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
            let listen = Listen { address: "0.0.0.0:80".to_owned(), tls: false };
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

    fn tls_app(&mut self, node: &Node) {
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

    fn routes(&mut self, node: &Node) -> Vec<Route> {
        let routes: Vec<Route> =
            node.as_list().unwrap_or_default().iter().map(|node| self.route(node)).collect();
        php_idiom(routes)
    }

    fn route(&mut self, node: &Node) -> Route {
        let mut route = Route {
            sets: Vec::new(),
            group: None,
            is_terminal: false,
            handlers: Vec::new(),
            pieces: Vec::new(),
        };
        for entry in node.as_map().unwrap_or_default() {
            self.ledger.same(entry.piece);
            match &*entry.key {
                "match" if entry.node.as_list().is_none() => {
                    let why = "a list of matchers is expected";
                    self.refuse(entry, why, "correct the source");
                    route.sets.push(vec![Matcher::Unknown(why.to_owned())]);
                    route.pieces.push(entry.piece);
                }
                "handle" if entry.node.as_list().is_none() => {
                    let why = "a list of handlers is expected";
                    self.refuse(entry, why, "correct the source");
                    route.handlers.push(Handler { kind: Kind::Closed(why.to_owned()), piece: entry.piece });
                    route.pieces.push(entry.piece);
                }
                "match" => {
                    for set in entry.node.as_list().unwrap_or_default() {
                        let set = self.set(set);
                        route.sets.push(set);
                    }
                    route.pieces.push(entry.piece);
                }
                "group" => route.group = entry.node.as_text(),
                "terminal" => route.is_terminal = entry.node.as_bool() == Some(true),
                "handle" => {
                    for handler in entry.node.as_list().unwrap_or_default() {
                        route.handlers.extend(self.handler(handler, entry.piece));
                    }
                    route.pieces.push(entry.piece);
                }
                _ => self.refuse(entry, "Weir has nothing for it", "docs/reference/config.md"),
            }
        }
        route
    }

    fn set(&mut self, node: &Node) -> Set {
        let mut set = Set::new();
        for entry in node.as_map().unwrap_or_default() {
            self.same(entry);
            let matcher = self.matcher(entry);
            super::matchers::tell_query(std::slice::from_ref(&matcher), entry.piece, self.ledger);
            set.push(matcher);
        }
        set
    }

    fn matcher(&mut self, entry: &Entry) -> Matcher {
        let node = &entry.node;
        let is_right = super::matchers::is_of_its_type(&entry.key, node);
        if !is_right {
            let why = format!("the value of the matcher `{}` is of another type", entry.key);
            self.all(entry, &Judged::refused(why.clone(), "correct the source"));
            return Matcher::Unknown(why);
        }
        let texts = || node.as_texts().unwrap_or_default();
        let text = |key: &str| node.get(key).and_then(Node::as_text).unwrap_or_default();
        match &*entry.key {
            "host" => Matcher::Host(texts().iter().map(|host| host.to_ascii_lowercase()).collect()),
            "path" => match super::matchers::paths(texts()) {
                Matcher::Unknown(why) => {
                    self.all(
                        entry,
                        &Judged::refused(why.clone(), "match.path, or an expression in `match.when`"),
                    );
                    Matcher::Unknown(why)
                }
                known => known,
            },
            "path_regexp" => Matcher::PathRegexp { name: text("name"), pattern: text("pattern") },
            "method" => Matcher::Method(texts()),
            "query" => Matcher::Query(
                pairs(node).map(|(name, value)| (name, value.as_texts().unwrap_or_default())).collect(),
            ),
            "header" => Matcher::Header(
                pairs(node).map(|(name, value)| (name.to_ascii_lowercase(), value.as_texts())).collect(),
            ),
            "header_regexp" => Matcher::HeaderRegexp(
                pairs(node)
                    .map(|(name, value)| {
                        let pattern = value.get("pattern").and_then(Node::as_text).unwrap_or_default();
                        (name.to_ascii_lowercase(), pattern)
                    })
                    .collect(),
            ),
            "remote_ip" | "client_ip" => {
                Matcher::Client(node.get("ranges").and_then(Node::as_texts).unwrap_or_default())
            }
            "protocol" => Matcher::Protocol(node.as_text().unwrap_or_default()),
            "expression" => match node.as_text().or_else(|| node.get("expr").and_then(Node::as_text)) {
                Some(text) => Matcher::Expression(text),
                None => Matcher::Unknown("an expression without a text".to_owned()),
            },
            "not" => {
                let sets = node.as_list().unwrap_or_default().iter().map(|node| self.set(node)).collect();
                Matcher::Not(sets)
            }
            "file" => {
                let list = |key: &str| node.get(key).and_then(Node::as_texts);
                Matcher::File(FileTest {
                    root: node.get("root").and_then(Node::as_text),
                    tries: list("try_files").unwrap_or_else(|| vec!["{path}".to_owned()]),
                    splits: list("split_path").is_some(),
                })
            }
            other => {
                let why = format!("Weir knows no matcher `{other}`");
                self.all(entry, &Judged::refused(why.clone(), "an expression in `match.when`"));
                Matcher::Unknown(why)
            }
        }
    }

    fn handler(&mut self, node: &Node, outer: Piece) -> Vec<Handler> {
        let name = node.get("handler").and_then(Node::as_text).unwrap_or_default();
        let piece = node
            .as_map()
            .and_then(|entries| entries.iter().find(|entry| &*entry.key == "handler"))
            .map_or(outer, |entry| entry.piece);
        self.ledger.same(piece);
        let rest: Vec<&Entry> =
            node.as_map().unwrap_or_default().iter().filter(|entry| &*entry.key != "handler").collect();
        let kinds = match &*name {
            "subroute" => {
                let mut kind = Kind::Subroute(Vec::new());
                for entry in rest {
                    match &*entry.key {
                        "routes" => {
                            self.ledger.same(entry.piece);
                            kind = Kind::Subroute(self.routes(&entry.node));
                        }
                        _ => self.refuse(
                            entry,
                            "Weir has pages for errors for a site as a whole",
                            "the filter `errors`",
                        ),
                    }
                }
                vec![kind]
            }
            "headers" => self.headers(&rest),
            "static_response" => self.static_response(&rest),
            "rewrite" => self.rewrite(&rest),
            "vars" => {
                let mut vars = Vec::new();
                for entry in rest {
                    self.same(entry);
                    if let Some(text) = entry.node.as_text() {
                        vars.push((entry.key.to_string(), text));
                    }
                }
                vars.retain(|(name, _)| name != "skip_log" && name != "log_skip");
                vec![Kind::Vars(vars)]
            }
            "file_server" => {
                let mut files = Files::default();
                for entry in rest {
                    let values =
                        entry.node.as_texts().or_else(|| entry.node.as_text().map(|text| vec![text]));
                    let keys =
                        || entry.node.as_map().unwrap_or_default().iter().map(|entry| entry.key.to_string());
                    let judged = match &*entry.key {
                        "index_names" => file_setting(&mut files, "index", &values.unwrap_or_default()),
                        "precompressed" => {
                            file_setting(&mut files, "precompressed", &keys().collect::<Vec<_>>())
                        }
                        "precompressed_order" => Judged::Same,
                        "canonical_uris" => file_setting(&mut files, "disable_canonical_uris", &[]),
                        "browse" => file_setting(&mut files, "browse", &[]),
                        // The adapter adds the config's own file.
                        "hide" => {
                            let hidden: Vec<String> = values
                                .unwrap_or_default()
                                .into_iter()
                                .filter(|path| !path.starts_with("./"))
                                .collect();
                            file_setting(&mut files, "hide", &hidden)
                        }
                        "status_code" => file_setting(&mut files, "status", &[]),
                        name => file_setting(&mut files, name, &values.unwrap_or_default()),
                    };
                    self.all(entry, &judged);
                }
                self.ledger.changed(piece, super::values::HIDDEN);
                vec![Kind::Files(files)]
            }
            "reverse_proxy" => vec![self.reverse_proxy(&rest)],
            "authentication" => vec![self.authentication(&rest, piece)],
            "encode" => vec![self.encode(&rest)],
            "request_body" => {
                let mut kind = Kind::Nothing;
                for entry in rest {
                    match (&*entry.key, entry.node.as_u64()) {
                        ("max_size", Some(bytes)) => {
                            self.same(entry);
                            kind = Kind::Filter(Filter::new(
                                "body_limit",
                                Map::new().with("max", units::size(bytes)),
                            ));
                        }
                        _ => self.refuse(entry, "Weir has nothing for it", "the filter `body_limit`"),
                    }
                }
                vec![kind]
            }
            "map" => vec![self.map(&rest)],
            "error" => {
                let status =
                    node.get("status_code").and_then(Node::as_text).unwrap_or_else(|| "500".to_owned());
                rest.iter().for_each(|entry| self.same(entry));
                vec![Kind::Error { status }]
            }
            "push" | "tracing" | "log_append" => {
                rest.iter()
                    .for_each(|entry| self.all(entry, &Judged::left_out("Weir needs no such handler")));
                self.ledger.left_out(piece, "Weir needs no such handler");
                vec![Kind::Nothing]
            }
            other => {
                let why = format!("Weir has no handler `{other}`");
                rest.iter().for_each(|entry| {
                    self.all(entry, &Judged::refused("it belongs to a handler that Weir refuses", ""))
                });
                self.ledger.refused(piece, why.clone(), "docs/reference/filters.md");
                vec![Kind::Closed(why)]
            }
        };
        kinds.into_iter().map(|kind| Handler { kind, piece }).collect()
    }

    fn headers(&mut self, rest: &[&Entry]) -> Vec<Kind> {
        let mut ops = Ops::default();
        for entry in rest {
            self.ledger.same(entry.piece);
            match &*entry.key {
                "request" => ops.request = self.request_ops(&entry.node),
                "response" => {
                    ops.response = self.ops(&entry.node);
                    ops.is_deferred = entry.node.get("deferred").and_then(Node::as_bool) == Some(true)
                        || entry.node.get("require").is_some();
                    for inner in entry.node.as_map().unwrap_or_default() {
                        match &*inner.key {
                            "deferred" => self.same(inner),
                            "require" => {
                                let fields =
                                    inner.node.get("headers").and_then(Node::as_map).unwrap_or_default();
                                let absent = fields
                                    .iter()
                                    .all(|field| field.node.as_list().is_none_or(<[Node]>::is_empty));
                                if absent && inner.node.get("status_code").is_none() {
                                    ops.unless =
                                        fields.iter().map(|field| field.key.to_ascii_lowercase()).collect();
                                    self.same(inner);
                                } else {
                                    self.refuse(
                                        inner,
                                        "Weir changes answers whatever they are",
                                        "an expression over `response`",
                                    );
                                    ops.response.clear();
                                }
                            }
                            _ => {}
                        }
                    }
                }
                _ => self.refuse(entry, "Weir has nothing for it", "the filter `headers`"),
            }
        }
        vec![Kind::Headers(ops)]
    }

    /// `set`, `add` and `delete`.
    pub(super) fn ops(&mut self, node: &Node) -> Vec<Op> {
        let mut ops = Vec::new();
        for entry in node.as_map().unwrap_or_default() {
            match &*entry.key {
                "set" | "add" => {
                    self.same(entry);
                    for (name, values) in pairs(&entry.node) {
                        for (at, value) in values.as_texts().unwrap_or_default().into_iter().enumerate() {
                            let adds = &*entry.key == "add" || at > 0;
                            ops.push(if adds {
                                Op::Add(name.clone(), value)
                            } else {
                                Op::Set(name.clone(), value)
                            });
                        }
                    }
                }
                "delete" => {
                    self.same(entry);
                    let names = entry.node.as_texts().unwrap_or_default();
                    ops.splice(0..0, names.into_iter().map(Op::Delete));
                }
                "replace" => {
                    self.refuse(entry, "Weir replaces no part of a field", "`headers` with an expression")
                }
                _ => {}
            }
        }
        ops
    }

    /// The same for a request: a value of the client that Caddy would have changed must not pass unchanged.
    pub(super) fn request_ops(&mut self, node: &Node) -> Vec<Op> {
        let mut ops = self.ops(node);
        let replaced = node.get("replace").into_iter().flat_map(pairs);
        ops.extend(replaced.filter_map(|(name, _)| withheld(&[&name])));
        ops
    }

    fn static_response(&mut self, rest: &[&Entry]) -> Vec<Kind> {
        let mut answer = Answer::default();
        let mut aborts = false;
        for entry in rest {
            match &*entry.key {
                "status_code" => answer.status = entry.node.as_text().unwrap_or_default(),
                "body" => answer.body = entry.node.as_text().unwrap_or_default(),
                "headers" => {
                    for (name, values) in pairs(&entry.node) {
                        for value in values.as_texts().unwrap_or_default() {
                            answer.headers.push((name.clone(), value));
                        }
                    }
                }
                "abort" => aborts = entry.node.as_bool() == Some(true),
                "close" => {
                    self.all(entry, &Judged::changed("Weir keeps the connection open for the next request"));
                    continue;
                }
                _ => {
                    self.refuse(entry, "Weir has nothing for it", "`respond`");
                    continue;
                }
            }
            self.same(entry);
        }
        vec![if aborts { Kind::Abort } else { Kind::Respond(answer) }]
    }

    fn rewrite(&mut self, rest: &[&Entry]) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for entry in rest {
            self.same(entry);
            let text = entry.node.as_text().unwrap_or_default();
            kinds.push(Kind::Rewrite(match &*entry.key {
                "uri" => Rewrite::Uri(text),
                "strip_path_prefix" => Rewrite::StripPrefix(format!("/{}", text.trim_matches('/'))),
                "method" => Rewrite::Method(text),
                "path_regexp" => match entry.node.as_list() {
                    Some([one]) => {
                        let text = |key: &str| one.get(key).and_then(Node::as_text).unwrap_or_default();
                        Rewrite::Replace(text("find"), text("replace"))
                    }
                    _ => Rewrite::Other("path_regexp".to_owned()),
                },
                other => Rewrite::Other(other.to_owned()),
            }));
        }
        kinds
    }
}

pub(super) fn pairs(node: &Node) -> impl Iterator<Item = (String, &Node)> {
    node.as_map().unwrap_or_default().iter().map(|entry| (entry.key.to_string(), &entry.node))
}

/// A text, or each text of a list.
pub(super) fn texts(node: &Node) -> Vec<String> {
    node.as_texts().or_else(|| node.as_text().map(|text| vec![text])).unwrap_or_default()
}

/// A duration as a Caddyfile writes it; JSON may count nanoseconds.
pub(super) fn time_text(node: &Node) -> String {
    match node.as_u64() {
        Some(nanoseconds) => format!("{}ms", nanoseconds / 1_000_000),
        None => node.as_text().unwrap_or_default(),
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

/// What `forward_auth` becomes: on 2xx, fields of the answer are set on the request.
pub(super) fn asks(node: &Node) -> Option<Vec<(String, String)>> {
    let [response] = node.as_list()? else { return None };
    let statuses = response.get("match")?.get("status_code")?;
    if texts(statuses) != ["2"] {
        return None;
    }
    let mut copy = Vec::new();
    for route in response.get("routes").and_then(Node::as_list).unwrap_or_default() {
        for handler in route.get("handle").and_then(Node::as_list).unwrap_or_default() {
            if handler.get("handler").and_then(Node::as_text)? != "headers" {
                continue;
            }
            let set = handler.get("request")?.get("set")?;
            for (to, values) in pairs(set) {
                let value = texts(values).first().cloned().unwrap_or_default();
                let from = value.strip_prefix("{http.reverse_proxy.header.")?.strip_suffix('}')?.to_owned();
                copy.push((from.to_ascii_lowercase(), to.to_ascii_lowercase()));
            }
        }
    }
    Some(copy)
}

/// The routes that `php_fastcgi` becomes, as one handler again: a redirect to a folder, a rewrite to a script, and the
/// proxy for scripts.
fn php_idiom(routes: Vec<Route>) -> Vec<Route> {
    let is_split = |matcher: &Matcher| match matcher {
        Matcher::File(test) => test.splits,
        _ => false,
    };
    let is_index = |matcher: &Matcher| match matcher {
        Matcher::File(test) => test.tries.iter().any(|tried| tried.ends_with("/index.php")),
        _ => false,
    };
    let splits = |route: &Route| {
        let [set] = &*route.sets else { return false };
        set.len() == 1 && set.iter().all(is_split)
    };
    let redirects = |route: &Route| {
        matches!(&*route.sets, [set] if set.len() == 2 && set.iter().any(is_index))
            && matches!(&*route.handlers, [handler] if matches!(&handler.kind, Kind::Respond(_)))
    };
    if !routes.iter().any(splits) {
        return routes;
    }
    let mut kept: Vec<Route> = Vec::new();
    let mut pieces: Vec<Piece> = Vec::new();
    for mut route in routes {
        if splits(&route) || redirects(&route) {
            pieces.extend(route.pieces);
            continue;
        }
        for handler in &mut route.handlers {
            if let Kind::Proxy(proxy) = &mut handler.kind
                && let Some(fastcgi) = &mut proxy.fastcgi
            {
                fastcgi.is_idiom = true;
                route.sets.clear();
                route.pieces.append(&mut pieces);
            }
        }
        kept.push(route);
    }
    kept
}
