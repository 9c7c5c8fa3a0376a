//! Rules of a proxy as filters: `tcp-request`, `http-request`, `redirect`, `http-response`.
//!
//! HAProxy runs them in this order, whatever their order in the file. A rule that denies, answers, redirects or changes
//! the path and cannot be translated becomes a 503 for every request that it might concern, so that an import opens
//! nothing and sends no request to another place.

use super::acl::{Facet, Rate, Term, condition};
use super::context::Cx;
use super::limits::{self, Tracks};
use super::model::Proxy;
use super::read::Line;
use super::sample::{Kind, Scope};
use super::text::{target, template};
use super::{answers, fields, users};
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::{redirect, respond, when};
use crate::yaml::{Map, Value};

/// What the rules of a proxy come to.
#[derive(Default)]
pub(super) struct Rules {
    /// Filters, in Weir's order.
    pub(super) filters: Vec<Filter>,
    /// Whether they answer every request.
    pub(super) answers: bool,
    /// Whether there is a limit that counts for all routes that have it together.
    pub(super) has_limit: bool,
}

/// The rules while they are translated.
pub(super) struct Build<'s, 'a> {
    pub(super) scope: &'s mut Scope<'a>,
    pub(super) rules: Rules,
    pub(super) headers: fields::Pending,
    pub(super) tracks: Tracks,
    /// Requests that an `allow` let pass.
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
    /// Ends the list of changes to fields that one filter makes.
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

    /// Filters that run under the condition of a line. Refuses the line if that has none in Weir.
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

    /// `deny` and its like: one filter for each alternative of the condition.
    fn deny(
        &mut self,
        cx: &mut Cx<'a, '_, '_>,
        proxy: &Proxy<'a>,
        line: &Line,
        at: usize,
        status: u16,
        changed: Option<&str>,
    ) {
        let found = condition(cx, self.scope, line, at);
        let mut is_same = true;
        for all in &found.any {
            is_same &= self.deny_one(cx, proxy, line, all, status);
        }
        if found.any.is_empty() {
            cx.ledger.left_out(line.piece, "its condition never holds here");
        } else if is_same {
            match changed {
                Some(why) => cx.ledger.changed(line.piece, why.to_owned()),
                None => cx.ledger.same(line.piece),
            }
        }
    }

    /// One alternative. False if the line was judged already.
    fn deny_one(
        &mut self,
        cx: &mut Cx<'a, '_, '_>,
        proxy: &Proxy<'a>,
        line: &Line,
        all: &[Term],
        status: u16,
    ) -> bool {
        let parts = Parts::of(all, &self.allowed);
        match (&*parts.unknown, &*parts.rates, &*parts.users, &*parts.files) {
            ([], [], [], []) => self.deny_known(all, &parts.is, status),
            ([], [rate], [], []) => {
                let rate = (*rate).clone();
                return self.limit(cx, proxy, line, &rate, &parts.is, status);
            }
            ([], [], [(list, groups)], []) => {
                let filters = users::filters(cx, list, groups, None);
                self.push(when(&parts.is, filters, Vec::new()));
                cx.ledger.changed(line.piece, "Weir asks for a password (401), where HAProxy refuses (403)");
                return false;
            }
            ([], [], [], [(path, is)]) if parts.is.as_constant() == Some(true) && status == 403 => {
                // A file that weir import does not see: the filter reads it itself.
                let key = if *is { "deny_file" } else { "allow_file" };
                self.push([Filter::new("ip", Map::new().with(key, path.as_str()))]);
            }
            (unknown, rates, _, files) => {
                let why = match (unknown.first(), rates.first(), files.first()) {
                    (Some(why), ..) => (*why).clone(),
                    (None, Some(rate), _) => format!("`{}` beside another counter or a user", rate.fetch),
                    (None, None, Some((path, _))) => format!("`{path}` cannot be read"),
                    _ => "several lists of users".to_owned(),
                };
                let is_counter = why.contains("counter of a stick-table") || !rates.is_empty();
                let nearest = if is_counter {
                    "the filters rate_limit and concurrency, limits.per_client"
                } else {
                    "the filters acl: { is }, ip and when"
                };
                cx.ledger.refused(line.piece, why.clone(), nearest);
                self.close(line, &why, &parts.is);
                return false;
            }
        }
        true
    }

    fn deny_known(&mut self, all: &[Term], is: &Expression, status: u16) {
        let filter = match (all, status) {
            ([Term::Is(_, Some(Facet::Clients(networks, of)))], 403)
                if self.allowed.as_constant() == Some(false) =>
            {
                let (allow, deny) =
                    if *of { (Vec::new(), networks.clone()) } else { (networks.clone(), Vec::new()) };
                crate::shared::filters::ip(&allow, &deny)
            }
            (_, 403) if is.as_constant().is_none() => {
                let not = is.clone().not();
                Filter::new("acl", Map::new().with("is", not.as_str()))
            }
            _ => {
                let refuse = vec![Filter::new("respond", respond(status, None, None))];
                self.rules.answers |= is.as_constant() == Some(true);
                return self.push(when(is, refuse, Vec::new()));
            }
        };
        self.push([filter]);
    }

    /// Answers 503 to all requests that an untranslated rule might concern. `is` holds for all of them. What stands
    /// behind it is kept for the person who takes it out.
    fn close(&mut self, line: &Line, why: &str, is: &Expression) {
        self.push(when(is, vec![closed(line, why)], Vec::new()));
    }

    /// The same, where only the part of the condition that Weir knows says which requests the rule might concern.
    pub(super) fn close_known(&mut self, cx: &mut Cx<'_, '_, '_>, line: &Line, at: usize, why: &str) {
        let found = condition(cx, self.scope, line, at);
        for all in &found.any {
            let is = Parts::of(all, &self.allowed).is;
            self.close(line, why, &is);
        }
    }

    fn limit(
        &mut self,
        cx: &mut Cx<'a, '_, '_>,
        proxy: &Proxy<'a>,
        line: &Line,
        rate: &Rate,
        is: &Expression,
        status: u16,
    ) -> bool {
        match limits::filter(cx, &self.tracks, proxy, rate) {
            Ok((filter, mut changes)) => {
                self.rules.has_limit = true;
                self.push(when(is, vec![filter], Vec::new()));
                if status != 429 {
                    changes.push(format!("Weir refuses with 429, here {status}"));
                }
                if is.as_constant() != Some(true) {
                    changes
                        .push("Weir counts only the requests that meet the rest of the condition".to_owned());
                }
                changes.push(
                    "HAProxy's window slides over two periods; Weir's bucket refills evenly".to_owned(),
                );
                cx.ledger.changed(line.piece, changes.join("; "));
            }
            Err((why, is_idle)) if is_idle => cx.ledger.left_out(line.piece, why),
            Err((why, _)) => {
                cx.ledger.refused(line.piece, why.clone(), "the filter rate_limit");
                self.close(line, &why, is);
            }
        }
        false
    }

    /// `http-request auth … unless { http_auth(LIST) }`.
    fn auth(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
        let realm = line.after(2, "realm").map(str::to_owned);
        let found = condition(cx, self.scope, line, 2);
        for all in &found.any {
            let parts = Parts::of(all, &self.allowed);
            match (&*parts.unknown, &*parts.users, &*parts.rates, &*parts.files) {
                ([], [(list, groups)], [], []) => {
                    let filters = users::filters(cx, list, groups, realm.as_deref());
                    self.push(when(&parts.is, filters, Vec::new()));
                    if groups.is_empty() {
                        cx.ledger.same(line.piece);
                    } else {
                        let why =
                            "a user who is in none of the groups gets 403, where HAProxy asks again (401)";
                        cx.ledger.changed(line.piece, why);
                    }
                }
                _ => {
                    let why = parts.unknown.first().map_or_else(
                        || "it does not depend on the users of one list".to_owned(),
                        |why| (*why).clone(),
                    );
                    cx.ledger.refused(line.piece, why.clone(), "the filter basic_auth");
                    self.close(line, &why, &parts.is);
                }
            }
        }
        if found.any.is_empty() {
            cx.ledger.left_out(line.piece, "its condition never holds here");
        }
    }

    /// `redirect scheme|prefix|location …`, from `at` on.
    fn redirect(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line, at: usize) {
        let code = line.after(at, "code").and_then(|code| code.parse().ok()).unwrap_or(302);
        let drops = line.has(at, "drop-query");
        let (kind, text) = (line.word(at), line.word(at + 1).to_owned());
        let made = match kind {
            "scheme" => template(cx, self.scope, &text).map(|scheme| {
                redirect(&format!("{}://{{authority}}{{path}}", scheme.to_setting()), code, !drops)
            }),
            "prefix" => template(cx, self.scope, &text).map(|prefix| {
                let prefix = if text == "/" { String::new() } else { prefix.to_setting() };
                redirect(&format!("{prefix}{{path}}"), code, !drops)
            }),
            "location" => template(cx, self.scope, &text).map(|location| {
                let (to, keeps) = target(&location);
                redirect(&to, code, keeps)
            }),
            _ => Err(format!("`redirect {kind}` is not known")),
        };
        let mut filters = match made {
            Ok(filter) => vec![filter],
            Err(why) => {
                cx.ledger.refused(line.piece, why.clone(), "the filter redirect: { to, status }");
                return self.close_known(cx, line, at + 2, &why);
            }
        };
        for word in ["set-cookie", "clear-cookie"] {
            if line.has(at, word) {
                cx.ledger.refused(
                    line.piece,
                    format!("`{word}` of a redirect"),
                    "headers: { response: { set: { set-cookie } } }",
                );
            }
        }
        if line.has(at, "append-slash") {
            cx.ledger.refused(
                line.piece,
                "`append-slash`",
                "redirect: { to: \"{path}/\" } on a route without the slash",
            );
            return self.close_known(cx, line, at + 2, "it adds a slash to the path");
        }
        let Ok(is) = self.when(cx, line, at + 2) else {
            let why = condition(cx, self.scope, line, at + 2).expression().err().unwrap_or_default();
            let why = format!("its condition: {why}");
            cx.ledger.refused(line.piece, why.clone(), "the filter redirect in `when`");
            return self.close_known(cx, line, at + 2, &why);
        };
        match is.as_constant() {
            Some(false) => return cx.ledger.left_out(line.piece, "its condition never holds here"),
            Some(true) => self.rules.answers = true,
            None => {}
        }
        cx.ledger.same(line.piece);
        if is.as_constant().is_none() {
            filters = when(&is, filters, Vec::new());
        }
        self.push(filters);
    }

    /// `http-request return status 200 content-type text/plain string "ok"`.
    fn respond(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
        if let Err((why, nearest)) = self.answer(cx, line) {
            cx.ledger.refused(line.piece, why.clone(), nearest);
            self.close_known(cx, line, 2, &why);
        }
    }

    /// The answer of [`Self::respond`], or why there is none and what Weir has.
    fn answer(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) -> Result<(), (String, &'static str)> {
        let nearest = "the filter respond: { status, body }";
        let status = line.after(2, "status").and_then(|status| status.parse().ok()).unwrap_or(200);
        let kind = line.after(2, "content-type").map(str::to_owned);
        let mut body = None;
        if let Some(text) = line.after(2, "string") {
            if text.contains(super::read::MARK) {
                let why = "a variable of the environment in a body".to_owned();
                return Err((why, "the filter respond: { status, body: ${NAME} }"));
            }
            body = Some(crate::shared::template::Template::text(text).to_body());
        } else if let Some(text) = line.after(2, "lf-string").map(str::to_owned) {
            let text = template(cx, self.scope, &text).map_err(|why| (why, nearest))?;
            body = Some(text.to_body());
        } else if let Some(path) =
            ["file", "lf-file", "errorfile"].iter().find_map(|word| line.after(2, word))
        {
            let path = path.to_owned();
            let text = cx.text_of(&path).map_err(|why| (why, nearest))?;
            if !line.has(2, "file") {
                return Err(("a page of HAProxy".to_owned(), nearest));
            }
            body = Some(crate::shared::template::Template::text(&text).to_body());
        }
        let mut map = respond(status, body, kind.as_deref());
        let mut at = 2;
        while let Some(found) = line.from(at).iter().position(|word| word == "hdr") {
            let (name, value) = (line.word(at + found + 1).to_ascii_lowercase(), line.word(at + found + 2));
            match template(cx, self.scope, value) {
                Ok(text) => {
                    let value = cx.value(&text.to_setting());
                    map.map_mut("headers").set(name, value);
                }
                Err(why) => cx.ledger.refused(line.piece, why, "respond: { headers }"),
            }
            at += found + 3;
        }
        let answer = vec![Filter::new("respond", map)];
        let is = self
            .when(cx, line, 2)
            .map_err(|why| (format!("its condition: {why}"), "the filter respond in `when`"))?;
        cx.ledger.same(line.piece);
        self.rules.answers |= is.as_constant() == Some(true);
        self.push(when(&is, answer, Vec::new()));
        Ok(())
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

    fn set_path(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
        let path = line.word(2).to_owned();
        let made = template(cx, self.scope, &path);
        self.touch_path(None);
        match made {
            Ok(text) if !path.contains('?') => {
                let filters =
                    vec![Filter::new("rewrite", Map::new().with("path", super::paths::setting(&text)))];
                match self.conditional(cx, line, 3, filters, "the filter rewrite: { path }") {
                    true => cx.ledger.same(line.piece),
                    false => self.close_known(cx, line, 3, "it changes the path"),
                }
            }
            Ok(_) => {
                cx.ledger.refused(line.piece, "path and query in one", "rewrite: { path, query }");
                self.close_known(cx, line, 3, "it changes the path");
            }
            Err(why) => {
                cx.ledger.refused(line.piece, why.clone(), "the filter rewrite: { path }");
                self.close_known(cx, line, 3, &why);
            }
        }
    }

    fn replace_path(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
        let made = super::paths::replace(line.word(2), line.word(3), line.word(1) == "replace-pathq");
        // The condition sees the path as it came.
        let is = self.when(cx, line, 4);
        let changes = match (&made, &is) {
            (Ok(made), Ok(is)) => Some(is.clone().and(made.is.clone())),
            // Where it is not translated, its requests are closed by a filter.
            (Err(_), Ok(is)) => Some(is.clone()),
            _ => None,
        };
        self.touch_path(changes);
        match (made, is) {
            (Ok(made), Ok(is)) => {
                let is = is.and(made.is);
                self.push(when(&is, vec![made.filter], Vec::new()));
                match made.why {
                    Some(why) => cx.ledger.changed(line.piece, why),
                    None => cx.ledger.same(line.piece),
                }
            }
            (Err(why), _) | (_, Err(why)) => {
                let nearest = "match.path: \"~/a/(.*)\" with rewrite: { path: \"/b/{1}\" }, or strip_prefix";
                cx.ledger.refused(line.piece, why.clone(), nearest);
                self.close_known(cx, line, 4, &why);
            }
        }
    }

    /// Notes that a rule changes the path: of these requests, if that is known.
    fn touch_path(&mut self, of: Option<Expression>) {
        const PATH: &str = "request.path";
        let is_first = !self.scope.touched.iter().any(|touched| touched == PATH);
        self.scope.path_changes = match (of, self.scope.path_changes.take()) {
            (Some(of), None) if is_first => Some(of),
            (Some(of), Some(before)) => Some(before.or(of)),
            _ => None,
        };
        self.scope.touched.push(PATH.to_owned());
    }
}

/// The terms of an alternative, by kind.
struct Parts<'t> {
    /// Those that are expressions.
    is: Expression,
    unknown: Vec<&'t String>,
    rates: Vec<&'t Rate>,
    /// Lists that the user must not be in, with their groups.
    users: Vec<(&'t String, &'t Vec<String>)>,
    files: Vec<(&'t String, bool)>,
}

impl<'t> Parts<'t> {
    fn of(all: &'t [Term], allowed: &Expression) -> Self {
        let mut parts = Self {
            is: Expression::constant(true),
            unknown: Vec::new(),
            rates: Vec::new(),
            users: Vec::new(),
            files: Vec::new(),
        };
        static POSITIVE: std::sync::LazyLock<String> =
            std::sync::LazyLock::new(|| "it refuses users that are known".to_owned());
        for term in all {
            match term {
                Term::Is(is, _) => parts.is = parts.is.and(is.clone()),
                Term::Unknown(why) => parts.unknown.push(why),
                Term::Rate(rate) => parts.rates.push(rate),
                Term::User { list, groups, is: false } => parts.users.push((list, groups)),
                Term::User { .. } => parts.unknown.push(&POSITIVE),
                Term::File(path, is) => parts.files.push((path, *is)),
            }
        }
        parts.is = parts.is.and(allowed.clone().not());
        parts
    }
}

/// 503, in the place of a rule that is not translated.
pub(super) fn closed(line: &Line, why: &str) -> Filter {
    let body = "This route is closed: weir import could not translate a rule that guards it.\n".to_owned();
    let comment = format!("CLOSED. `{}` at {}: {why}", super::words(line), line.place);
    Filter::new("respond", respond(503, Some(body), None)).because(comment)
}

/// A list of texts as a value.
pub(super) fn list(texts: &[String]) -> Value {
    Value::List(texts.iter().map(|text| Value::Text(text.clone())).collect())
}
