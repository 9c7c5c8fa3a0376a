//! OpenAPI 3.0 and 3.1: a step for each operation, with the examples of the description. Operations that write are
//! comments until somebody switches them on.

mod example;
mod style;

use super::har::hoist;
use super::json::{self, Node};
use super::model::{Body, Part, Plan, Request, Scenario, Target};
use super::{Cx, Kind, names, text};
use crate::ledger::Piece;
use crate::source::Unreadable;
use crate::yaml::{Map, Value};
use example::Examples;
use style::Form;

pub(super) static KIND: Kind = Kind { name: "openapi", title: "OpenAPI description", import };

const METHODS: &[&str] = &["get", "head", "options", "trace", "post", "put", "patch", "delete"];
/// Methods that change nothing (RFC 9110 §9.2.1).
const SAFE: &[&str] = &["get", "head", "options", "trace"];
/// Most named examples of a body that become steps.
const EXAMPLES: usize = 20;

fn import(cx: &mut Cx<'_>) -> Result<Plan, Unreadable> {
    let file = cx.source.file.clone();
    let root = json::read_yaml(&file)?;
    let version = root.get("openapi").and_then(Node::as_text).unwrap_or_default().into_owned();
    if !version.starts_with("3.") {
        let why = match root.get("swagger") {
            Some(_) => "this is OpenAPI 2 (Swagger): convert it to OpenAPI 3".to_owned(),
            None => "no OpenAPI 3 description: it has no `openapi: 3.…`".to_owned(),
        };
        return Err(Unreadable::at(&cx.place(1), why));
    }
    let (server, prefix) = server(&root);
    let mut plan = Plan { ..Plan::default() };
    if let Some(more) = root.get("servers").map(|servers| servers.items().len()).filter(|count| *count > 1) {
        cx.ledger
            .note(format!("The first of {more} servers is that of the plan: --target URL takes another."));
    }
    plan.target = Some(server.clone().map_or(Target::Unknown, Target::Known));
    for (name, node) in root.get("webhooks").map(Node::entries).unwrap_or_default() {
        let piece = cx.ledger.enter(cx.place(node.line), &format!("webhook {name}"));
        cx.ledger.left_out(piece, "the server calls a webhook, so there is no request to send");
    }
    for (path, item) in root.get("paths").map(Node::entries).unwrap_or_default() {
        let Some(item) = example::resolved(&root, item) else {
            let piece = cx.ledger.enter(cx.place(item.line), path);
            cx.ledger.refused(
                piece,
                "its `$ref` leads to another file or to nothing",
                "bundle the files into one",
            );
            continue;
        };
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                let (root, prefix, target) = (&root, &*prefix, server.clone());
                Operation { root, path, prefix, target, method, item, node: operation }.import(cx, &mut plan);
            }
        }
    }
    hoist(&mut plan);
    plan.more = Map::new().with("users", 1_i64);
    Ok(plan)
}

/// The first server, with its variables filled in, and the path that all others begin with.
fn server(root: &Node<'_>) -> (Option<String>, String) {
    let Some(first) = root.get("servers").and_then(|servers| servers.items().first()) else {
        return (None, String::new());
    };
    let mut url = first.text("url").unwrap_or_default().to_owned();
    for (name, variable) in first.get("variables").map(Node::entries).unwrap_or_default() {
        let value = variable.get("default").and_then(Node::as_text).unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), &value);
    }
    match text::split_url(&url) {
        Some((server, path)) => (Some(server), path.trim_end_matches('/').to_owned()),
        None if url.starts_with('/') => (None, url.trim_end_matches('/').to_owned()),
        None => (None, String::new()),
    }
}

/// An operation while it is translated.
struct Operation<'r, 's> {
    root: &'r Node<'s>,
    path: &'r str,
    prefix: &'r str,
    /// The server of the plan.
    target: Option<String>,
    method: &'r str,
    item: &'r Node<'s>,
    node: &'r Node<'s>,
}

impl<'r, 's> Operation<'r, 's> {
    fn import(&self, cx: &mut Cx<'_>, plan: &mut Plan) {
        let tags: Vec<&str> = self
            .node
            .get("tags")
            .map(Node::items)
            .unwrap_or_default()
            .iter()
            .filter_map(Node::as_str)
            .collect();
        let shown = format!("{} {}", self.method.to_uppercase(), self.path);
        let piece = cx.ledger.enter(cx.place(self.node.line), &shown);
        if !cx.options.tags.is_empty() && !cx.options.tags.iter().any(|tag| tags.contains(&&**tag)) {
            cx.ledger.left_out(piece, "it has none of the tags of --tag");
            return;
        }
        let mut request = Request::new(self.method.to_uppercase(), String::new());
        request.name = self.node.text("operationId").map(str::to_owned);
        let off = !SAFE.contains(&self.method) && !cx.options.writes;
        request.is_off = off;
        if !self.address(cx, piece, &mut request) {
            return;
        }
        self.security(cx, piece, &mut request);
        request.checks = self.checks();
        for (name, callback) in self.node.get("callbacks").map(Node::entries).unwrap_or_default() {
            let line = cx.ledger.enter(cx.place(callback.line), &format!("callback {name}"));
            cx.ledger.by_itself(line, "the server calls it, so there is no request to send");
        }
        let requests = self.bodies(cx, piece, request);
        if requests.is_empty() {
            return;
        }
        let scenario = tags.first().map_or("api", |tag| tag);
        let at = match plan.scenarios.iter().position(|known| known.name == scenario) {
            Some(at) => at,
            None => {
                plan.scenarios.push(Scenario { name: scenario.to_owned(), ..Scenario::default() });
                plan.scenarios.len() - 1
            }
        };
        if off {
            cx.ledger.left_out(piece, "it writes, so it is a comment in the plan: --writes switches it on");
        } else {
            cx.ledger.same(piece);
        }
        if let Some(scenario) = plan.scenarios.get_mut(at) {
            scenario.steps.extend(requests.into_iter().map(|request| request.step(piece)));
        }
    }

    /// All parameters: those of the operation replace those of the path.
    fn parameters(&self) -> Vec<&'r Node<'s>> {
        let list = |node: &'r Node<'s>| node.get("parameters").map(Node::items).unwrap_or_default();
        let mut all: Vec<&'r Node<'s>> = Vec::new();
        for parameter in list(self.node).iter().chain(list(self.item)) {
            let Some(parameter) = example::resolved(self.root, parameter) else { continue };
            let key =
                |node: &Node<'_>| (node.text("name").map(str::to_owned), node.text("in").map(str::to_owned));
            if !all.iter().any(|known| key(known) == key(parameter)) {
                all.push(parameter);
            }
        }
        all
    }

    /// Path, query and header fields. False if the operation is refused.
    fn address(&self, cx: &mut Cx<'_>, piece: Piece, request: &mut Request) -> bool {
        let own = [self.node, self.item].into_iter().find(|node| node.get("servers").is_some()).map(server);
        let (server, prefix) = match own {
            Some((server, prefix)) => (server, prefix),
            None => (None, self.prefix.to_owned()),
        };
        let mut path = format!("{prefix}{}", self.path);
        let mut query = Vec::new();
        let mut cookies = Vec::new();
        let mut not_sent = Vec::new();
        for parameter in self.parameters() {
            let name = parameter.text("name").unwrap_or_default();
            let place = parameter.text("in").unwrap_or_default();
            let is_required =
                parameter.get("required").and_then(Node::as_bool).unwrap_or(false) || place == "path";
            let form = match Form::of(parameter, place) {
                Ok(form) => form,
                Err(style) => {
                    let why = format!("`{name}` has the style `{style}`, which its place does not have");
                    cx.ledger.refused(piece, why, "a step by hand");
                    return false;
                }
            };
            let mut examples = Examples::new(self.root);
            let mut value = match examples.of_parameter(parameter) {
                Some(value) => value,
                None if !is_required => {
                    not_sent.push(name.to_owned());
                    continue;
                }
                None => {
                    let made = examples.made_up(parameter.get("schema"));
                    let why = format!("`{name}` has no example, so its value is made up");
                    changed(cx, piece, request, &why);
                    Value::Text(made)
                }
            };
            example::hide_secrets(&mut value, name, &mut cx.vault);
            match place {
                "path" => path = path.replace(&format!("{{{name}}}"), &form.path(name, &value)),
                "query" => query.extend(form.query(name, &value)),
                "header" if !is_ignored_header(name) => request.set_header(name, form.field(&value)),
                "cookie" => cookies.push(format!("{name}={}", form.field(&value))),
                _ => {}
            }
        }
        if !not_sent.is_empty() {
            let why = format!("optional parameters without an example are not sent: {}", not_sent.join(", "));
            cx.ledger.by_itself(piece, why);
        }
        if !cookies.is_empty() {
            request.set_header("cookie", cookies.join("; "));
        }
        if let Some(open) = unfilled(&path) {
            cx.ledger.refused(
                piece,
                format!("the path has `{open}`, and no parameter says what it is"),
                "a step by hand",
            );
            return false;
        }
        request.url = literal_path(&path);
        if let Some(server) = server.filter(|server| Some(server) != self.target.as_ref()) {
            request.url.insert_str(0, &server);
        }
        if !query.is_empty() {
            request.url.push('?');
            request.url.push_str(&query.join("&"));
        }
        true
    }

    /// The credentials that the operation asks for, as variables.
    fn security(&self, cx: &mut Cx<'_>, piece: Piece, request: &mut Request) {
        let asked = self.node.get("security").or_else(|| self.root.get("security"));
        let Some(first) = asked.and_then(|asked| asked.items().iter().find(|one| !one.entries().is_empty()))
        else {
            return;
        };
        // An empty alternative allows requests without credentials.
        if asked.is_some_and(|asked| asked.items().iter().any(|one| one.entries().is_empty())) {
            return;
        }
        for (name, _) in first.entries() {
            let scheme = self.root.at(&["components", "securitySchemes"]).and_then(|all| all.get(name));
            let Some(scheme) = scheme.and_then(|scheme| example::resolved(self.root, scheme)) else {
                cx.ledger.refused(
                    piece,
                    format!("its security scheme `{name}` is not described"),
                    "`headers` of the step",
                );
                continue;
            };
            let variable = cx.vault.variable(name);
            let kind = scheme.text("type").unwrap_or_default();
            match (kind, scheme.text("scheme").unwrap_or_default().to_ascii_lowercase().as_str()) {
                ("http", "basic") => {
                    request.set_header("authorization", format!("Basic {{{{base64:{variable}}}}}"));
                }
                ("http", "bearer") | ("oauth2" | "openIdConnect", _) => {
                    request.set_header("authorization", format!("Bearer {variable}"));
                }
                ("apiKey", _) => {
                    let key = scheme.text("name").unwrap_or_default();
                    match scheme.text("in") {
                        Some("query") => {
                            let between = if request.url.contains('?') { '&' } else { '?' };
                            request.url.push(between);
                            request.url.push_str(&format!("{}={variable}", text::percent_encoded(key)));
                        }
                        Some("cookie") => request.set_header("cookie", format!("{key}={variable}")),
                        _ => request.set_header(key, variable),
                    }
                }
                _ => cx.ledger.refused(
                    piece,
                    format!("its security scheme `{name}` is not one of a step"),
                    "`weir load --cert`, or `headers` of the step",
                ),
            }
        }
    }

    /// A check of the documented statuses of success.
    fn checks(&self) -> Vec<String> {
        let responses = self.node.get("responses").map(Node::entries).unwrap_or_default();
        let mut good: Vec<String> = Vec::new();
        for (status, _) in responses {
            let lower = status.to_ascii_lowercase();
            if lower.len() == 3
                && lower.starts_with(['2', '3'])
                && (lower.ends_with("xx") || lower.parse::<u16>().is_ok())
            {
                good.push(lower);
            }
        }
        match good.is_empty() {
            true => vec!["status=2xx".to_owned()],
            false => vec![format!("status={}", good.join(","))],
        }
    }

    /// The request with its body: one, or one for each named example.
    fn bodies(&self, cx: &mut Cx<'_>, piece: Piece, request: Request) -> Vec<Request> {
        let body = self.node.get("requestBody").and_then(|body| example::resolved(self.root, body));
        let content = body.and_then(|body| body.get("content")).map(Node::entries).unwrap_or_default();
        let json = content
            .iter()
            .find(|(media, _)| media.split(';').next().is_some_and(|m| m.trim().ends_with("json")));
        let form = content.iter().find(|(media, _)| media.starts_with("application/x-www-form-urlencoded"));
        let multipart = content.iter().find(|(media, _)| media.starts_with("multipart/form-data"));
        let Some((media, media_type)) = json.or(form).or(multipart).or(content.first()) else {
            return vec![request];
        };
        let named = media_type.get("examples").map(Node::entries).unwrap_or_default();
        let mut all = Vec::new();
        if cx.options.examples && named.len() > 1 {
            for (name, example) in named.iter().take(EXAMPLES) {
                let example = example::resolved(self.root, example).and_then(|example| example.get("value"));
                let Some(value) = example else { continue };
                let mut one = request.clone();
                let own = one.name.take().unwrap_or_else(|| names::of_request(&one));
                one.name = Some(format!("{own} {name}"));
                let value = Examples::new(self.root).value(value);
                if self.set_body(cx, piece, &mut one, media, value) {
                    all.push(one);
                }
            }
            return all;
        }
        let mut examples = Examples::new(self.root);
        let value = examples.of_media(media_type);
        if examples.is_made_up {
            cx.ledger.changed(
                piece,
                "its body has made-up values where the description has no example, and only what is required",
            );
        }
        let mut request = request;
        match value {
            Some(value) => match self.set_body(cx, piece, &mut request, media, value) {
                true => vec![request],
                false => Vec::new(),
            },
            None => {
                cx.ledger.refused(
                    piece,
                    "its body has neither an example nor a schema",
                    "`body` of the step",
                );
                Vec::new()
            }
        }
    }

    fn set_body(
        &self,
        cx: &mut Cx<'_>,
        piece: Piece,
        request: &mut Request,
        media: &str,
        mut value: Value,
    ) -> bool {
        example::hide_secrets(&mut value, "", &mut cx.vault);
        let media_type = media.split(';').next().unwrap_or_default().trim();
        let pairs = |value: &Value| match value {
            Value::Map(map) => map.iter().map(|(name, value)| (name.to_owned(), plain(value))).collect(),
            _ => Vec::new(),
        };
        if media_type.ends_with("json") {
            if media_type != "application/json" {
                request.set_header("content-type", media);
            }
            // A lone text or number is no value that `json` takes apart.
            request.body = Some(Body::Json(value));
        } else if media_type == "application/x-www-form-urlencoded" {
            request.body = Some(Body::Form(pairs(&value)));
        } else if media_type == "multipart/form-data" {
            let part = |(name, value): (String, String)| Part { name, value, ..Part::default() };
            request.body = Some(Body::Multipart(pairs(&value).into_iter().map(part).collect()));
        } else if let Value::Text(text) = value {
            request.set_header("content-type", media);
            request.body = Some(Body::Text(text));
        } else {
            cx.ledger.refused(
                piece,
                format!("a body of type {media_type} has no example that is a text"),
                "`body` of the step",
            );
            return false;
        }
        true
    }
}

/// Tells a change, unless the operation is not sent: then that it is left out is what matters.
fn changed(cx: &mut Cx<'_>, piece: Piece, request: &Request, why: &str) {
    if !request.is_off {
        cx.ledger.changed(piece, why.to_owned());
    }
}

/// A value of a form.
fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Plain(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        other => example::to_json(other),
    }
}

/// Header fields that OpenAPI says are not parameters.
fn is_ignored_header(name: &str) -> bool {
    ["accept", "authorization", "content-type", "content-length", "host", "connection"]
        .contains(&&*name.to_ascii_lowercase())
}

/// The first `{name}` of a path that no parameter filled in.
fn unfilled(path: &str) -> Option<String> {
    let mut rest = path;
    while let Some(at) = rest.find('{') {
        let after = rest.get(at..).unwrap_or_default();
        if after.starts_with("{{") {
            rest = after.split_once("}}").map_or("", |(_, rest)| rest);
            continue;
        }
        return Some(after.split_inclusive('}').next().unwrap_or(after).chars().take(40).collect());
    }
    None
}

/// A path whose characters may stand in a URL; placeholders stay.
fn literal_path(path: &str) -> String {
    let out = text::map_literals(path, text::url_literal);
    if out.starts_with('/') { out } else { format!("/{out}") }
}
