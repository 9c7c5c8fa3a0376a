//! Bodies of requests, by the modes of Postman.

use super::{Importer, is_disabled};
use crate::ledger::Piece;
use crate::plan::json::{self, Node, Value as Tree};
use crate::plan::model::{Body, Part, Request};
use crate::plan::vault::is_secret;
use crate::plan::{bodies, text};
use crate::yaml::{Map, Value};
use std::collections::BTreeSet;

impl Importer<'_, '_> {
    /// Sets the body. False if the request is refused.
    pub(super) fn body(&mut self, body: &Node<'_>, request: &mut Request, piece: Piece) -> bool {
        let mode = body.text("mode").unwrap_or_default();
        match mode {
            "raw" => {
                let raw = body.text("raw").unwrap_or_default();
                let language =
                    body.at(&["options", "raw", "language"]).and_then(Node::as_str).unwrap_or_default();
                let media = request.header("content-type").unwrap_or_default().to_owned();
                let is_json = language == "json" || media.contains("json");
                if raw.trim().is_empty() {
                    return true;
                }
                if is_json && let Some(value) = self.json(raw, piece) {
                    request
                        .headers
                        .retain(|(name, value)| name != "content-type" || value != "application/json");
                    request.body = Some(Body::Json(value));
                    return true;
                }
                if media.is_empty() {
                    let own = match language {
                        "json" => "application/json",
                        "xml" => "application/xml",
                        "html" => "text/html",
                        "javascript" => "application/javascript",
                        _ => "text/plain",
                    };
                    request.set_header("content-type", own);
                }
                request.body = Some(Body::Text(self.text(raw, piece)));
            }
            "urlencoded" => {
                let pairs = self.pairs(body.get("urlencoded"), piece);
                let names: BTreeSet<&String> = pairs.iter().map(|(name, _)| name).collect();
                if names.len() < pairs.len() {
                    self.cx.ledger.refused(
                        piece,
                        "its form has a name twice, and a map of the plan cannot",
                        "`body` of the step",
                    );
                    return false;
                }
                request.headers.retain(|(name, _)| name != "content-type");
                request.body = Some(Body::Form(pairs));
            }
            "formdata" => {
                let mut parts = Vec::new();
                for part in body.get("formdata").map(Node::items).unwrap_or_default() {
                    let (Some(key), false) = (part.text("key"), is_disabled(part)) else { continue };
                    let mut made = Part {
                        name: key.to_owned(),
                        media: part.text("contentType").map(str::to_owned),
                        ..Part::default()
                    };
                    if part.text("type") == Some("file") {
                        let source = part
                            .get("src")
                            .and_then(|src| src.as_str().or_else(|| src.items().first()?.as_str()));
                        let Some(source) = source.filter(|source| !source.is_empty()) else {
                            self.cx.ledger.refused(
                                piece,
                                format!("the part `{key}` names no file"),
                                "`file` of the part",
                            );
                            return false;
                        };
                        self.cx.ledger.changed(piece, "files of the form are read when the plan is read");
                        made.file = Some(source.to_owned());
                    } else {
                        made.value = self.secret_text(key, part.text("value").unwrap_or_default(), piece);
                    }
                    parts.push(made);
                }
                request.headers.retain(|(name, _)| name != "content-type");
                request.body = (!parts.is_empty()).then_some(Body::Multipart(parts));
            }
            "graphql" => {
                let query = body.at(&["graphql", "query"]).and_then(Node::as_str).unwrap_or_default();
                let mut map = Map::new().with("query", self.text(query, piece));
                let variables = body.at(&["graphql", "variables"]).and_then(Node::as_str).unwrap_or_default();
                if !variables.trim().is_empty() {
                    match self.json(variables, piece) {
                        Some(value) => map.set("variables", value),
                        None => {
                            self.cx.ledger.refused(
                                piece,
                                "its GraphQL variables are not JSON",
                                "`json` of the step",
                            );
                            return false;
                        }
                    }
                }
                if let Some(name) = body.at(&["graphql", "operationName"]).and_then(Node::as_str)
                    && !name.is_empty()
                {
                    map.set("operationName", self.text(name, piece));
                }
                request.body = Some(Body::Json(map.into()));
            }
            "file" => {
                let Some(source) = body.at(&["file", "src"]).and_then(Node::as_str) else {
                    self.cx.ledger.refused(
                        piece,
                        "its body is a file, but no path is given",
                        "`body_file` of the step",
                    );
                    return false;
                };
                self.cx.ledger.changed(piece, "the body is read from its file when the plan is read");
                request.body = Some(Body::File(source.to_owned()));
            }
            "none" | "" => {}
            other => {
                let other = text::shortened(other);
                let why = format!("its body has the mode `{other}`, which is not followed");
                self.cx.ledger.refused(piece, why, "`body` of the step");
                return false;
            }
        }
        true
    }

    fn pairs(&mut self, list: Option<&Node<'_>>, piece: Piece) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for pair in list.map(Node::items).unwrap_or_default() {
            if let (Some(key), false) = (pair.text("key"), is_disabled(pair)) {
                let value = self.secret_text(key, pair.text("value").unwrap_or_default(), piece);
                all.push((key.to_owned(), value));
            }
        }
        all
    }

    /// JSON with variables in its texts. A variable outside of texts is no JSON, so that body stays a text.
    fn json(&mut self, raw: &str, piece: Piece) -> Option<Value> {
        if raw.len() > bodies::TREE_BYTES {
            return None;
        }
        let node = json::parse(raw).ok()?;
        bodies::Json::of_node(&node)?;
        Some(self.json_value(&node, "", piece))
    }

    fn json_value(&mut self, node: &Node<'_>, key: &str, piece: Piece) -> Value {
        match &node.value {
            Tree::Null => Value::Plain("null".to_owned()),
            Tree::Bool(flag) => Value::Bool(*flag),
            Tree::Number(number) => {
                number.parse().map_or_else(|_| Value::Plain(number.to_string()), Value::Number)
            }
            Tree::Text(text) if is_secret(key) && !text.contains("{{") && !text.is_empty() => {
                Value::Text(self.cx.vault.hide(key, text))
            }
            Tree::Text(text) => Value::Text(self.text(text, piece)),
            Tree::List(items) => {
                Value::List(items.iter().map(|item| self.json_value(item, key, piece)).collect())
            }
            Tree::Map(entries) => {
                let members =
                    entries.iter().map(|(key, node)| (text::literal(key), self.json_value(node, key, piece)));
                Value::Map(members.collect())
            }
        }
    }
}
