//! Handlers of a route; those with many settings are in `proxy.rs`.

use super::super::model::{Answer, Files, Handler, Kind, Op, Ops, Rewrite};
use super::super::values::{file_setting, withheld};
use super::super::verdicts::Judged;
use super::{Reader, pairs};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::tree::{Entry, Node};
use crate::shared::units;
use crate::yaml::Map;

impl Reader<'_> {
    pub(super) fn handler(&mut self, node: &Node, outer: Piece) -> Vec<Handler> {
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
                self.ledger.changed(piece, super::super::values::HIDDEN);
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
