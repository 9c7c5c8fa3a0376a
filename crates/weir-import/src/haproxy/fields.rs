//! `http-request set-header` and its like: fields that the upstream sees.

use super::context::Cx;
use super::read::Line;
use super::rules::Build;
use super::sample::Scope;
use super::text::template;
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::{Headers, when};
use crate::shared::template::Part;
use crate::yaml::{Map, Value};

/// Names whose values are secrets.
const SECRET: &[&str] =
    &["api-key", "apikey", "authorization", "proxy-authorization", "x-api-key", "x-auth-token", "x-token"];

/// Changes to fields that one filter can make: of several to one name it would not keep the order.
#[derive(Default)]
pub(super) struct Pending {
    headers: Headers,
    names: Vec<String>,
}

impl Pending {
    /// The filter for what was collected.
    pub(super) fn take(&mut self) -> Option<Filter> {
        self.names.clear();
        std::mem::take(&mut self.headers).filter()
    }
}

/// Something that is done to a field.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Add(Value),
    Remove,
    Set(Value),
}

impl<'a> Build<'_, 'a> {
    /// `set-header NAME FORMAT [if …]`, whose condition stands at `at`.
    pub(super) fn field(
        &mut self,
        cx: &mut Cx<'a, '_, '_>,
        line: &Line,
        action: &str,
        name: &str,
        value: &str,
        at: usize,
    ) {
        let lower = name.to_ascii_lowercase();
        if action == "del-header" && line.has(at, "-m") {
            return self.remove_like(cx, line, &lower, at);
        }
        if !is_name(&lower) {
            let why = format!(
                "`{name}` is no name of a field: HAProxy sends a broken one, which servers refuse or misread"
            );
            return cx.ledger.refused(line.piece, why, "headers: { request: { set } }");
        }
        let nearest = "headers: { request: { set, add, remove } }";
        let is = match self.when(cx, line, at) {
            Ok(is) => is,
            Err(why) => {
                cx.ledger.refused(line.piece, format!("its condition: {why}"), nearest);
                return self.withhold(&lower, action, &Expression::constant(true));
            }
        };
        if is.as_constant() == Some(false) {
            return cx.ledger.left_out(line.piece, "its condition never holds here");
        }
        let text = match template(cx, self.scope, value) {
            Ok(text) => text,
            Err(why) => {
                cx.ledger.refused(line.piece, why, nearest);
                return self.withhold(&lower, action, &is);
            }
        };
        if own(cx, line, self.scope, &lower, action, value, &is) {
            return;
        }
        if lower == "host" {
            if action != "set-header" {
                return cx.ledger.refused(line.piece, "a request has one Host", "rewrite: { host }");
            }
            self.scope.touched.extend(["request.headers[\"host\"]".to_owned(), "request.host".to_owned()]);
            let filter = Filter::new("rewrite", Map::new().with("host", text.to_setting()));
            self.push(when(&is, vec![filter], Vec::new()));
            return cx.ledger.same(line.piece);
        }
        let is_id = |part: &Part| matches!(part, Part::Placeholder(name) if name == "request_id");
        if let [one] = text.parts()
            && is_id(one)
        {
            self.push([Filter::new("request_id", Map::new().with("header", &*lower))]);
            let why = "Weir makes an id of its own, and keeps the one that a request has if a trusted proxy sent it";
            return cx.ledger.changed(line.piece, why);
        }
        if lower.contains('_') {
            let why = "Weir drops fields with `_`, because servers read `_` as `-`";
            cx.ledger.refused(line.piece, why, "the same name with `-`");
            return self.withhold(&lower, action, &is);
        }
        let setting =
            if SECRET.contains(&&*lower) && text.as_literal().is_some() && !value.contains(super::read::MARK)
            {
                cx.ledger.conceal(line.piece);
                cx.config.secret(&lower, value)
            } else {
                cx.value(&text.to_setting())
            };
        let change = match action {
            "set-header" => Change::Set(setting),
            "add-header" => Change::Add(setting),
            _ => Change::Remove,
        };
        self.scope.touched.push(format!("request.headers[\"{lower}\"]"));
        // What always has a value: a literal, and what every request has.
        let is_full = |part: &Part| match part {
            Part::Text(_) => true,
            Part::Placeholder(name) => matches!(&**name, "authority" | "client" | "host" | "method" | "path"),
            Part::Value(value) => value.as_str().starts_with("string("),
        };
        if !matches!(change, Change::Remove) && !text.parts().iter().any(is_full) {
            cx.ledger
                .changed(line.piece, "where its value is empty, Weir sends no field, HAProxy an empty one");
        } else {
            cx.ledger.same(line.piece);
        }
        if is.as_constant() == Some(true) {
            self.change(&lower, change);
        } else {
            let mut one = Pending::default();
            one.apply(&lower, change);
            let filters: Vec<Filter> = one.take().into_iter().collect();
            self.push(when(&is, filters, Vec::new()));
        }
    }

    /// `del-header NAME -m beg`: fields by a part of their names. `at` is where `-m` may stand.
    fn remove_like(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line, name: &str, at: usize) {
        let beginning = || name.strip_prefix('^').map_or("", |rest| rest.trim_end_matches(".*"));
        let name = match line.after(at, "-m") {
            Some("beg") => format!("{name}*"),
            Some("end") => format!("*{name}"),
            Some("reg") => format!("{}*", beginning()),
            Some("str") => name.to_owned(),
            Some("sub") => format!("*{name}*"),
            _ => String::new(),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let bare = name.trim_matches('*');
        let is = self.when(cx, line, at + 2);
        let why = match (&is, bare.chars().all(is_plain) && !bare.is_empty()) {
            (Ok(is), true) => {
                let mut one = Pending::default();
                one.apply(&name, Change::Remove);
                let filters: Vec<Filter> = one.take().into_iter().collect();
                // Conditions behind it read what is gone.
                let (open, close) = ("request.headers[\"", "\"]");
                self.scope.touched.push(match (name.starts_with('*'), name.ends_with('*')) {
                    (true, true) => bare.to_owned(),
                    (true, false) => format!("{bare}{close}"),
                    (false, true) => format!("{open}{bare}"),
                    (false, false) => format!("{open}{bare}{close}"),
                });
                self.push(when(is, filters, Vec::new()));
                return cx.ledger.same(line.piece);
            }
            (Ok(_), false) => "names of fields by this pattern".to_owned(),
            (Err(why), _) => format!("its condition: {why}"),
        };
        // The client's own values must not pass.
        cx.ledger.refused(line.piece, why.clone(), "headers: { request: { remove: [ \"x-internal-*\" ] } }");
        self.close_known(cx, line, at + 2, &why);
    }

    /// Keeps the client's own value from the server, where HAProxy overwrites or removes it and Weir cannot: `is` says
    /// for which requests.
    fn withhold(&mut self, name: &str, action: &str, is: &Expression) {
        if action == "add-header" {
            return;
        }
        let mut headers = Headers::default();
        headers.withhold(name);
        for name in std::mem::take(&mut headers.request_remove) {
            self.scope.touched.push(format!("request.headers[\"{name}\"]"));
            match is.as_constant() {
                Some(true) => self.change(&name, Change::Remove),
                _ => {
                    let mut one = Pending::default();
                    one.apply(&name, Change::Remove);
                    let filters: Vec<Filter> = one.take().into_iter().collect();
                    self.push(when(is, filters, Vec::new()));
                }
            }
        }
    }

    fn change(&mut self, name: &str, change: Change) {
        if self.headers.names.iter().any(|known| known == name) {
            self.flush();
        }
        self.headers.apply(name, change);
    }
}

impl Pending {
    fn apply(&mut self, name: &str, change: Change) {
        self.names.push(name.to_owned());
        let headers = &mut self.headers;
        match change {
            Change::Set(value) => headers.request_set.push((name.to_owned(), value)),
            Change::Add(value) => headers.request_add.push((name.to_owned(), value)),
            Change::Remove => headers.request_remove.push(name.to_owned()),
        }
    }

    /// The same for an answer.
    pub(super) fn apply_to_answer(&mut self, name: &str, change: Change) {
        self.names.push(name.to_owned());
        let headers = &mut self.headers;
        match change {
            Change::Set(value) => headers.response_set.push((name.to_owned(), value)),
            Change::Add(value) => headers.response_add.push((name.to_owned(), value)),
            Change::Remove => headers.response_remove.push(name.to_owned()),
        }
    }
}

/// Whether a text is a name of a field (RFC 9110 §5.1).
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Fields that Weir writes itself. True if the line is one and was judged.
fn own(
    cx: &mut Cx<'_, '_, '_>,
    line: &Line,
    scope: &Scope<'_>,
    name: &str,
    action: &str,
    value: &str,
    is: &Expression,
) -> bool {
    let is_tls = || is.as_str() == "client.tls";
    let is_plain = || is.as_str() == "!client.tls";
    let always = is.as_constant() == Some(true);
    match name {
        "connection" | "upgrade" | "proxy-connection" | "keep-alive" | "te" => {
            cx.ledger.by_itself(line.piece, "Weir passes upgrades (WebSocket) on, and keeps connections");
        }
        "content-length" | "transfer-encoding" | "expect" | "trailer" => {
            cx.ledger.left_out(line.piece, "Weir alone says where a message ends");
        }
        "x-forwarded-for" if action == "del-header" => {
            cx.ledger
                .by_itself(line.piece, "Weir drops what clients claim, unless trusted_proxies names them");
        }
        "x-forwarded-for" => match value {
            "%[src]" | "%ci" => cx.ledger.by_itself(line.piece, "Weir sends the client's address"),
            _ => cx.ledger.changed(
                line.piece,
                "Weir sends the client's address, and what trusted_proxies said before it",
            ),
        },
        "x-forwarded-proto" => {
            let right = match value {
                "https" => is_tls() || always && scope.tls == Some(true),
                "http" => is_plain() || always && scope.tls == Some(false),
                _ => action == "del-header",
            };
            if right {
                cx.ledger.by_itself(line.piece, "Weir sends the scheme of the client's connection");
            } else {
                let why = "Weir sends the scheme of the client's connection: if a balancer before Weir ends TLS, name \
                           it in trusted_proxies, and its X-Forwarded-Proto is passed on";
                cx.ledger.changed(line.piece, why);
            }
        }
        "x-forwarded-host" => match value {
            "%[req.hdr(host)]" | "%[hdr(host)]" | "%[req.hdr(Host)]" | "%[hdr(Host)]" => {
                cx.ledger.by_itself(line.piece, "Weir sends the host that the client asked for");
            }
            _ => cx.ledger.changed(line.piece, "Weir sends the host that the client asked for"),
        },
        "forwarded" => cx.ledger.changed(line.piece, "Weir writes Forwarded itself"),
        _ => return false,
    }
    true
}
