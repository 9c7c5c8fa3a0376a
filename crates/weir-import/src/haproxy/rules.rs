//! Rules of a proxy as filters: `tcp-request`, `http-request`, `redirect`, `http-response`.
//!
//! HAProxy runs them in this order, whatever their order in the file. Some rules that deny, answer, redirect or change
//! the path cannot be translated. Such a rule becomes a 503 for every request that it might concern, so that an import
//! opens nothing and sends no request to another place.

mod guard;
mod path;
mod respond;

pub(super) use guard::closed;

use super::acl::condition;
use super::context::Cx;
use super::limits::{self, Tracks};
use super::model::Proxy;
use super::read::Line;
use super::sample::{Kind, Scope};
use super::text::template;
use super::{answers, fields};
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::{respond, when};
use crate::yaml::Value;

/// The rules of a proxy, translated.
#[derive(Default)]
pub(super) struct Rules {
    /// Filters, in Weir's order.
    pub(super) filters: Vec<Filter>,
    /// Whether they answer every request.
    pub(super) answers: bool,
    /// Whether one of them is a limit that all its routes share.
    pub(super) has_limit: bool,
}

/// The rules while they are translated.
pub(super) struct Build<'s, 'a> {
    pub(super) scope: &'s mut Scope<'a>,
    pub(super) rules: Rules,
    pub(super) headers: fields::Pending,
    pub(super) tracks: Tracks,
    /// Matches requests that an `allow` let pass.
    allowed: Expression,
}

/// Translates the rules of a proxy. `scope` learns what they set and change.
pub(super) fn translate<'a>(cx: &mut Cx<'a, '_, '_>, proxy: &Proxy<'a>, scope: &mut Scope<'a>) -> Rules {
    let mut build = Build {
        scope,
        rules: Rules::default(),
        headers: fields::Pending::default(),
        tracks: Tracks::default(),
        allowed: Expression::constant(false),
    };
    for line in proxy.lines.iter().copied() {
        let word = line.words.iter().position(|word| matches!(&**word, "if" | "unless"));
        let why = match line.key() {
            ".if" => "it stands between .if and .endif, and may guard requests",
            "reqdeny" | "reqideny" | "reqtarpit" | "reqitarpit" => "HAProxy 2.1 dropped it",
            "filter" if line.word(1).starts_with("lua.") => "a program may refuse requests",
            key if !super::known::is_keyword(key) => {
                let why = "weir import does not know this line, and it may guard requests";
                cx.ledger.refused(line.piece, why, "docs/reference/filters.md");
                why
            }
            _ => continue,
        };
        build.close_known(cx, line, word.unwrap_or(line.words.len()), why);
    }
    // `accept` and `allow` end the rules of their own kind only.
    for kind in ["connection", "session", "content"] {
        for line in proxy.all("tcp-request").filter(|line| line.word(1) == kind) {
            build.tcp(cx, proxy, line);
        }
        build.allowed = Expression::constant(false);
    }
    let kinds = ["connection", "session", "content"];
    for line in proxy.all("tcp-request").filter(|line| !kinds.contains(&line.word(1))) {
        build.tcp(cx, proxy, line);
    }
    for line in
        proxy.lines.iter().copied().filter(|line| matches!(line.key(), "http-request" | "reqadd" | "block"))
    {
        build.request(cx, proxy, line);
    }
    build.allowed = Expression::constant(false);
    for line in proxy.all("redirect") {
        build.redirect(cx, line, 1);
    }
    build.flush();
    let after: Vec<&Line> = proxy.all("http-after-response").collect();
    let on_all = answers::translate(cx, build.scope, &after, 1);
    let responses: Vec<&Line> =
        proxy.lines.iter().copied().filter(|line| matches!(line.key(), "http-response" | "rspadd")).collect();
    let on_servers = answers::translate(cx, build.scope, &responses, 1);
    let mut rules = build.rules;
    rules.filters.splice(0..0, on_all);
    // `deny` for responses guards answers.
    let is_refused = |line: &&&Line| {
        line.word(1) == "deny" && cx.ledger.verdict(line.piece) == Some(crate::ledger::Verdict::Refused)
    };
    let closes = after.iter().chain(&responses).find(is_refused).copied();
    if let Some(line) = closes {
        rules.filters.insert(0, closed(line, "it holds back answers"));
    }
    if rules.answers {
        let why = "no server answers: a rule before it answers every request";
        responses.iter().for_each(|line| cx.ledger.left_out(line.piece, why));
    } else {
        rules.filters.extend(on_servers);
    }
    rules
}

impl<'a> Build<'_, 'a> {
    /// Writes the pending changes of fields as one filter.
    pub(super) fn flush(&mut self) {
        self.rules.filters.extend(self.headers.take());
    }

    pub(super) fn push(&mut self, filters: impl IntoIterator<Item = Filter>) {
        self.flush();
        self.rules.filters.extend(filters);
    }

    /// The condition of a line as an expression, without requests that an `allow` let pass.
    pub(super) fn when(&self, cx: &mut Cx<'_, '_, '_>, line: &Line, at: usize) -> Result<Expression, String> {
        let found = condition(cx, self.scope, line, at);
        found.expression().map(|is| is.and(self.allowed.clone().not()))
    }

    /// Adds filters that run under the condition of a line. Refuses the line if Weir cannot express the condition.
    pub(super) fn conditional(
        &mut self,
        cx: &mut Cx<'_, '_, '_>,
        line: &Line,
        at: usize,
        filters: Vec<Filter>,
        nearest: &'static str,
    ) -> bool {
        match self.when(cx, line, at) {
            Ok(is) => {
                self.push(when(&is, filters, Vec::new()));
                true
            }
            Err(why) => {
                cx.ledger.refused(line.piece, format!("its condition: {why}"), nearest);
                false
            }
        }
    }

    fn tcp(&mut self, cx: &mut Cx<'a, '_, '_>, proxy: &Proxy<'a>, line: &Line) {
        let action = line.word(2);
        match (line.word(1), action) {
            ("inspect-delay", _) => {
                cx.ledger.by_itself(line.piece, "Weir waits for a whole head, for timeouts.head at most");
            }
            ("connection", "expect-proxy") => super::bind::expect_proxy(cx, self.scope, line),
            (_, "accept") => match self.when(cx, line, 3) {
                Ok(is) if is.as_constant() != Some(false) => {
                    cx.ledger.same(line.piece);
                    self.allowed = self.allowed.clone().or(is);
                }
                _ => cx.ledger.by_itself(line.piece, "Weir accepts what no rule refuses"),
            },
            (_, "reject" | "silent-drop") => {
                if !limits::connections(cx, line, self.scope) {
                    let why = "Weir answers 403, where HAProxy closes the connection";
                    self.deny(cx, proxy, line, 3, 403, Some(why));
                }
            }
            (_, track) if track.starts_with("track-sc") => self.tracks.add(cx, self.scope, line, 2),
            _ if action.starts_with("set-var") => self.set_var(cx, line, 2),
            _ => {
                let why = format!("Weir has no rule like `tcp-request {} {action}`", line.word(1));
                cx.ledger.refused(line.piece, why.clone(), "the filters ip, rate_limit and acl");
                self.scope.sets_src |= action == "set-src";
                if super::known::may_refuse(action) {
                    let at = line.words.iter().position(|word| matches!(&**word, "if" | "unless"));
                    self.close_known(cx, line, at.unwrap_or(line.words.len()), &why);
                }
            }
        }
    }

    fn request(&mut self, cx: &mut Cx<'a, '_, '_>, proxy: &Proxy<'a>, line: &Line) {
        if line.key() == "reqadd" {
            let (name, value) = line.word(1).split_once(':').unwrap_or((line.word(1), ""));
            let (name, value) = (name.to_owned(), value.trim().to_owned());
            return self.field(cx, line, "add-header", &name, &value, 2);
        }
        if line.key() == "block" {
            return self.deny(cx, proxy, line, 1, 403, None);
        }
        let action = line.word(1);
        let (name, _) = super::sample::call(action);
        match name {
            "allow" => match self.when(cx, line, 2) {
                Ok(is) => {
                    cx.ledger.same(line.piece);
                    self.allowed = self.allowed.clone().or(is);
                }
                Err(why) => {
                    let nearest = "the conditions of the rules behind it";
                    cx.ledger.refused(line.piece, format!("its condition: {why}"), nearest);
                }
            },
            "deny" | "tarpit" if limits::connections(cx, line, self.scope) => {}
            "deny" => {
                let status = line.after(2, "deny_status").or_else(|| line.after(2, "status"));
                let status = status.and_then(|text| text.parse().ok()).unwrap_or(403);
                let page =
                    line.after(2, "string").map(|_| "the page is Weir's own; the filter errors has others");
                self.deny(cx, proxy, line, 2, status, page);
            }
            "tarpit" => {
                let status = line.after(2, "deny_status").and_then(|text| text.parse().ok()).unwrap_or(500);
                self.deny(
                    cx,
                    proxy,
                    line,
                    2,
                    status,
                    Some("Weir answers at once, where HAProxy lets the client wait"),
                );
            }
            "reject" | "silent-drop" => {
                let why = "Weir answers 403, where HAProxy closes the connection";
                self.deny(cx, proxy, line, 2, 403, Some(why));
            }
            "auth" => self.auth(cx, line),
            "redirect" => self.redirect(cx, line, 2),
            "return" => self.respond(cx, line),
            "set-header" | "add-header" | "del-header" => {
                let (header, value) = (line.word(2).to_owned(), line.word(3).to_owned());
                let at = if name == "del-header" { 3 } else { 4 };
                self.field(cx, line, name, &header, &value, at);
            }
            "replace-header" | "replace-value" => {
                self.scope
                    .touched
                    .push(format!("request.headers[\"{}\"]", line.word(2).to_ascii_lowercase()));
                let nearest =
                    "headers: { request: { set } } with an expression; redirects and rewrite for paths";
                cx.ledger.refused(line.piece, "a field changed by a regular expression", nearest);
            }
            "set-path" | "set-pathq" => self.set_path(cx, line),
            "replace-path" | "replace-pathq" => self.replace_path(cx, line),
            "set-uri" | "replace-uri" | "set-query" | "set-method" | "normalize-uri" => {
                self.scope.touched.push("request.".to_owned());
                let nearest = "the filter rewrite: { path, query: { set, add, remove } }";
                let why = format!("Weir has no `{name}`");
                cx.ledger.refused(line.piece, why.clone(), nearest);
                if name != "normalize-uri" {
                    let at = 2 + usize::from(name == "replace-uri") + 1;
                    self.close_known(cx, line, at.min(line.words.len()), &why);
                }
            }
            "set-var" | "set-var-fmt" => self.set_var(cx, line, 1),
            "unset-var" => {
                let (_, args) = super::sample::call(action);
                self.scope.vars.remove(args.first().map_or("", String::as_str));
                cx.ledger.same(line.piece);
            }
            _ if name.starts_with("track-sc") => self.tracks.add(cx, self.scope, line, 1),
            _ => self.rest(cx, line, name),
        }
    }

    /// Actions that need no filter, or have none.
    fn rest(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line, name: &str) {
        let why = match name {
            "capture" => "captures are for HAProxy's log; access_log of Weir names fields itself",
            "set-log-level" => "access_log: { when } leaves lines out",
            "set-nice" | "set-tos" | "set-mark" | "set-priority-class" | "set-priority-offset" => {
                "Weir treats all requests alike"
            }
            "wait-for-handshake" => "Weir takes no early data",
            "strict-mode" => "an error in a rule is an answer with a cause in Weir",
            "disable-l7-retry" => "upstreams.*.retry says what is repeated",
            "wait-for-body" => {
                return cx.ledger.by_itself(line.piece, "filters that need a body wait for it");
            }
            "use-service" if line.word(2).contains("prometheus") => {
                let not_found = vec![Filter::new("respond", respond(404, None, None)).because(
                    "The admin listener has /metrics; clients never reached the upstream by this path.",
                )];
                if self.conditional(cx, line, 3, not_found, "the admin listener has /metrics") {
                    cx.ledger
                        .changed(line.piece, "the admin listener has /metrics; here the path answers 404");
                }
                return;
            }
            _ => {
                let nearest = match name {
                    _ if name.starts_with("lua.") || name == "use-service" => {
                        "the filter ext_proc, or expressions"
                    }
                    "send-spoe-group" => "the filter ext_proc",
                    "cache-use" => "the filter cache",
                    "set-src" => "trusted_proxies, whose X-Forwarded-For is believed",
                    _ if name.starts_with("sc-") => "the filter rate_limit",
                    _ if name.starts_with("set-map") || name.starts_with("add-acl") => "maps with a file",
                    _ => "docs/reference/filters.md",
                };
                let why = format!("Weir has no `http-request {name}`");
                cx.ledger.refused(line.piece, why.clone(), nearest);
                self.scope.sets_src |= name == "set-src";
                if super::known::may_refuse(name) {
                    let at = line.words.iter().position(|word| matches!(&**word, "if" | "unless"));
                    self.close_known(cx, line, at.unwrap_or(line.words.len()), &why);
                }
                return;
            }
        };
        cx.ledger.left_out(line.piece, why);
    }

    /// `set-var(txn.x) EXPRESSION`: its value is put in its place wherever it is read.
    fn set_var(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line, at: usize) {
        let (function, args) = super::sample::call(line.word(at));
        let name = args.first().cloned().unwrap_or_default();
        let value = match function {
            "set-var-fmt" => template(cx, self.scope, line.word(at + 1)).and_then(|text| {
                let parts = text.parts().iter().map(|part| match part {
                    crate::shared::template::Part::Text(text) => Ok(Expression::text(text)),
                    crate::shared::template::Part::Value(value) => Ok(value.clone()),
                    crate::shared::template::Part::Placeholder(name) => {
                        Err(format!("`{name}` in a variable"))
                    }
                });
                let mut whole: Option<Expression> = None;
                for part in parts {
                    let part = part?;
                    whole = Some(match whole {
                        Some(before) => before.plus(part),
                        None => part,
                    });
                }
                Ok(super::sample::Sample::text(whole.unwrap_or_else(|| Expression::text(""))))
            }),
            _ => super::sample::sample(cx, self.scope, line.word(at + 1)),
        };
        let set = value.and_then(|value| Ok((value, self.when(cx, line, at + 2)?)));
        match set {
            Ok((mut value, is)) => {
                if is.as_constant() != Some(true) {
                    let before = self.scope.vars.get(&name).map(|(value, _)| value.clone());
                    let other = match (&before, value.kind) {
                        (Some(before), _) => before.as_text(),
                        (None, Kind::Bool) => Expression::constant(false),
                        (None, _) => Expression::text(""),
                    };
                    value = match value.kind {
                        Kind::Bool if before.is_none() => {
                            super::sample::Sample::of(is.and(value.is), Kind::Bool)
                        }
                        _ => super::sample::Sample::text(is.choose(value.as_text(), other)),
                    };
                }
                value.field = value.field.filter(|name| name != "host");
                cx.ledger.same(line.piece);
                self.scope.vars.insert(name, (value, self.scope.touched.len()));
            }
            Err(why) => {
                self.scope.vars.remove(&name);
                cx.ledger.refused(line.piece, why, "the expression in the place of the variable");
            }
        }
    }
}

/// A list of texts as a value.
pub(super) fn list(texts: &[String]) -> Value {
    Value::List(texts.iter().map(|text| Value::Text(text.clone())).collect())
}
