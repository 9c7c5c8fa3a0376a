//! Handlers of Caddy's JSON with many settings: proxies, passwords, codings and maps.

use super::super::model::{Ask, Kind, Proxy, Table};
use super::super::proxy::Draft;
use super::super::values::{compress, decoded, media_type};
use super::super::verdicts::Judged;
use super::{Reader, pairs, texts, time_text};
use crate::ledger::Piece;
use crate::shared::tree::{Entry, Node};
use crate::yaml::Map;

impl Reader<'_> {
    pub(super) fn reverse_proxy(&mut self, rest: &[&Entry]) -> Kind {
        let mut draft = Draft::default();
        let mut is_tls = false;
        let mut copy: Option<Vec<(String, String)>> = None;
        for entry in rest.iter().filter(|entry| &*entry.key == "transport") {
            is_tls = entry.node.get("tls").is_some();
        }
        for entry in rest {
            match &*entry.key {
                "upstreams" => {
                    self.ledger.same(entry.piece);
                    for upstream in entry.node.as_list().unwrap_or_default() {
                        for field in upstream.as_map().unwrap_or_default() {
                            let judged = match &*field.key {
                                "dial" => draft.upstream(&field.node.as_text().unwrap_or_default()),
                                other => draft.setting(other, &texts(&field.node)),
                            };
                            self.all(field, &judged);
                        }
                    }
                }
                "headers" => {
                    self.ledger.same(entry.piece);
                    for side in entry.node.as_map().unwrap_or_default() {
                        self.ledger.same(side.piece);
                        if &*side.key == "request" {
                            for op in self.request_ops(&side.node) {
                                draft.header_up(op).enter(side.piece, self.ledger);
                            }
                        } else {
                            draft.proxy.response.extend(self.ops(&side.node));
                        }
                    }
                }
                "transport" => self.transport(entry, &mut draft),
                "load_balancing" => {
                    self.ledger.same(entry.piece);
                    for field in entry.node.as_map().unwrap_or_default() {
                        let judged = match &*field.key {
                            "selection_policy" => {
                                let name =
                                    field.node.get("policy").and_then(Node::as_text).unwrap_or_default();
                                let arg = ["field", "key", "name", "choose"]
                                    .iter()
                                    .find_map(|key| field.node.get(key));
                                draft.policy(&name, &arg.map(texts).unwrap_or_default())
                            }
                            "try_duration" => draft.setting("lb_try_duration", &[time_text(&field.node)]),
                            "try_interval" => draft.setting("lb_try_interval", &[]),
                            "retries" => draft.setting("lb_retries", &texts(&field.node)),
                            other => draft.setting(&format!("lb_{other}"), &texts(&field.node)),
                        };
                        self.all(field, &judged);
                    }
                }
                "health_checks" => {
                    self.ledger.same(entry.piece);
                    for kind in entry.node.as_map().unwrap_or_default() {
                        self.ledger.same(kind.piece);
                        for field in kind.node.as_map().unwrap_or_default() {
                            let value = match &*field.key {
                                "interval" | "timeout" | "fail_duration" | "unhealthy_latency" => {
                                    vec![time_text(&field.node)]
                                }
                                _ => texts(&field.node),
                            };
                            let judged = match &*field.key {
                                "expect_status" => {
                                    let value: Vec<String> = value
                                        .iter()
                                        .map(|status| {
                                            if status.len() == 1 {
                                                format!("{status}xx")
                                            } else {
                                                status.clone()
                                            }
                                        })
                                        .collect();
                                    draft.setting("health_status", &value)
                                }
                                "expect_body" => draft.setting("health_body", &value),
                                name if &*kind.key == "active" => {
                                    draft.setting(&format!("health_{name}"), &value)
                                }
                                name => draft.setting(name, &value),
                            };
                            self.all(field, &judged);
                        }
                    }
                }
                "rewrite" => {
                    self.same(entry);
                    draft.proxy.rewrite = entry.node.get("uri").and_then(Node::as_text);
                }
                "handle_response" => match asks(&entry.node) {
                    Some(fields) => {
                        copy = Some(fields);
                        self.same(entry);
                    }
                    None => self.refuse(
                        entry,
                        "Weir does not run routes on an upstream's answer",
                        "the filter `errors` with `upstream`",
                    ),
                },
                "dynamic_upstreams" => {
                    let judged = draft.close("upstreams that are found by a module", "`discover`");
                    self.all(entry, &judged);
                }
                "trusted_proxies" => {
                    self.all(entry, &Judged::changed("set `trusted_proxies` at the top level"));
                }
                "flush_interval" => self.all(entry, &draft.setting("flush_interval", &[])),
                other => {
                    let judged = draft.setting(other, &texts(&entry.node));
                    self.all(entry, &judged);
                }
            }
        }
        if is_tls {
            let _ = draft.transport("tls", &[]);
        }
        let proxy = draft.finish();
        match copy {
            Some(copy) => {
                let uri = proxy.rewrite.clone().unwrap_or_default();
                Kind::Ask(Box::new(Ask { proxy: Proxy { rewrite: None, ..proxy }, uri, copy }))
            }
            None => Kind::Proxy(Box::new(proxy)),
        }
    }

    pub(super) fn transport(&mut self, entry: &Entry, draft: &mut Draft) {
        self.ledger.same(entry.piece);
        let is_fastcgi = entry.node.get("protocol").and_then(Node::as_text).as_deref() == Some("fastcgi");
        if is_fastcgi {
            let _ = draft.fastcgi("index", &["index.php".to_owned()]);
        }
        for field in entry.node.as_map().unwrap_or_default() {
            let value = match &*field.key {
                key if key.contains("timeout") => vec![time_text(&field.node)],
                _ => texts(&field.node),
            };
            match (&*field.key, is_fastcgi) {
                ("protocol", _) => self.same(field),
                ("split_path", true) => self.all(field, &draft.fastcgi("split", &value)),
                ("env", true) => {
                    self.ledger.same(field.piece);
                    for (name, value) in pairs(&field.node) {
                        draft
                            .fastcgi("env", &[name, value.as_text().unwrap_or_default()])
                            .enter(field.piece, self.ledger);
                    }
                    field.node.each_piece(&mut |piece| self.ledger.same(piece));
                }
                (name, true) => self.all(field, &draft.fastcgi(name, &value)),
                ("tls", false) => {
                    self.ledger.same(field.piece);
                    for inner in field.node.as_map().unwrap_or_default() {
                        let value = texts(&inner.node);
                        let judged = match &*inner.key {
                            "insecure_skip_verify" => draft.transport("tls_insecure_skip_verify", &[]),
                            "server_name" => draft.transport("tls_server_name", &value),
                            "root_ca_pem_files" => draft.transport("tls_trusted_ca_certs", &value),
                            "handshake_timeout" => draft.transport("tls_timeout", &value),
                            other => draft.transport(&format!("tls_{other}"), &value),
                        };
                        self.all(inner, &judged);
                    }
                }
                ("keep_alive", false) => {
                    self.ledger.same(field.piece);
                    for inner in field.node.as_map().unwrap_or_default() {
                        let judged = match (&*inner.key, inner.node.as_bool()) {
                            ("enabled", Some(false)) => draft.transport("keepalive", &["off".to_owned()]),
                            ("idle_timeout", _) => draft.transport("keepalive", &[time_text(&inner.node)]),
                            _ => Judged::left_out("Weir keeps as many idle connections as it needs"),
                        };
                        self.all(inner, &judged);
                    }
                }
                (name, false) => self.all(field, &draft.transport(name, &value)),
            }
        }
    }

    pub(super) fn authentication(&mut self, rest: &[&Entry], piece: Piece) -> Kind {
        let mut kind = Kind::Closed("who may pass is not known".to_owned());
        for entry in rest {
            let providers = entry.node.as_map().unwrap_or_default();
            let basic = providers.iter().find(|provider| &*provider.key == "http_basic");
            match basic.filter(|_| &*entry.key == "providers" && providers.len() == 1) {
                Some(basic) => {
                    self.same(entry);
                    let algorithm =
                        basic.node.get("hash").and_then(|hash| hash.get("algorithm")).and_then(Node::as_text);
                    let mut users = Vec::new();
                    for account in basic.node.get("accounts").and_then(Node::as_list).unwrap_or_default() {
                        let text = |key: &str| account.get(key).and_then(Node::as_text).unwrap_or_default();
                        users.push((text("username"), decoded(&text("password"))));
                        account.each_piece(&mut |piece| self.ledger.conceal(piece));
                    }
                    let realm = basic.node.get("realm").and_then(Node::as_text);
                    if algorithm.as_deref().is_none_or(|name| matches!(name, "bcrypt" | "argon2id")) {
                        kind = Kind::Users { users, realm };
                    } else {
                        let why = "Weir reads hashes of bcrypt and argon2id";
                        self.ledger.refused(piece, why, "new hashes by `weir hash --user USER`");
                    }
                }
                None => {
                    self.refuse(entry, "Weir knows no such provider", "`basic_auth`, `jwt` or `forward_auth`")
                }
            }
        }
        kind
    }

    pub(super) fn encode(&mut self, rest: &[&Entry]) -> Kind {
        let (mut algorithms, mut minimum, mut types) = (Vec::new(), "512B".to_owned(), None::<Vec<String>>);
        let mut prefer = Vec::new();
        for entry in rest {
            let mut judged = Judged::Same;
            match &*entry.key {
                "encodings" => {
                    algorithms = pairs(&entry.node).map(|(name, _)| name).collect();
                    if algorithms.iter().any(|name| !matches!(&**name, "gzip" | "zstd" | "br")) {
                        judged = Judged::refused("Weir has other codings", "zstd, br or gzip");
                        algorithms.retain(|name| matches!(&**name, "gzip" | "zstd" | "br"));
                    }
                }
                "prefer" => prefer = texts(&entry.node),
                "minimum_length" => minimum = format!("{}B", entry.node.as_text().unwrap_or_default()),
                "match" => {
                    let fields = entry.node.get("headers");
                    let values = fields.and_then(|fields| {
                        pairs(fields)
                            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
                            .map(|(_, value)| texts(value))
                    });
                    match values {
                        Some(values) => types = Some(values.iter().map(|value| media_type(value)).collect()),
                        None => {
                            judged = Judged::refused("Weir compresses by media type only", "`compress.types`")
                        }
                    }
                }
                _ => judged = Judged::refused("Weir has nothing for it", "the filter `compress`"),
            }
            self.all(entry, &judged);
        }
        if !prefer.is_empty() {
            algorithms = prefer;
        }
        Kind::Filter(compress(&algorithms, &minimum, types, Map::new()))
    }

    pub(super) fn map(&mut self, rest: &[&Entry]) -> Kind {
        let mut table = Table::default();
        for entry in rest {
            self.same(entry);
            match &*entry.key {
                "source" => table.source = entry.node.as_text().unwrap_or_default(),
                "destinations" => {
                    table.destinations = texts(&entry.node)
                        .iter()
                        .map(|name| name.trim_matches(['{', '}']).to_owned())
                        .collect();
                }
                "defaults" => table.defaults = texts(&entry.node),
                "mappings" => {
                    for row in entry.node.as_list().unwrap_or_default() {
                        let text = |key: &str| row.get(key).and_then(Node::as_text);
                        let outputs = row.get("outputs").and_then(Node::as_list).unwrap_or_default();
                        let outputs = outputs
                            .iter()
                            .map(|node| node.as_text().unwrap_or_else(|| "-".to_owned()))
                            .collect();
                        let key = match text("input_regexp") {
                            Some(pattern) => format!("~{pattern}"),
                            None => text("input").unwrap_or_default(),
                        };
                        table.rows.push((key, outputs));
                    }
                }
                _ => self.refuse(entry, "Weir has nothing for it", "`maps.NAME`"),
            }
        }
        Kind::Map(table)
    }
}

/// What `forward_auth` becomes: on 2xx, fields of the answer are set on the request.
fn asks(node: &Node) -> Option<Vec<(String, String)>> {
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
