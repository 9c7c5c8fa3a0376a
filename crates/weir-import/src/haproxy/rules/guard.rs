//! Rules that keep requests out: `deny`, `auth`, limits, and the 503 in place of a rule that is not translated.

use super::super::acl::{Facet, Rate, Term, condition};
use super::super::context::Cx;
use super::super::limits;
use super::super::model::Proxy;
use super::super::read::Line;
use super::super::users;
use super::Build;
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::{respond, when};
use crate::yaml::Map;

impl<'a> Build<'_, 'a> {
    /// `deny`, `tarpit` and `reject`: one filter for each alternative of the condition.
    pub(super) fn deny(
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
                // weir import does not see this file: the filter reads it at run time.
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

    /// Answers 503 to all requests that an untranslated rule might concern. `is` holds for all of them. Later filters
    /// are kept for the person who removes this one.
    fn close(&mut self, line: &Line, why: &str, is: &Expression) {
        self.push(when(is, vec![closed(line, why)], Vec::new()));
    }

    /// The same, for all requests that meet the part of the condition that Weir can express.
    pub(in crate::haproxy) fn close_known(
        &mut self,
        cx: &mut Cx<'_, '_, '_>,
        line: &Line,
        at: usize,
        why: &str,
    ) {
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
    pub(super) fn auth(&mut self, cx: &mut Cx<'a, '_, '_>, line: &Line) {
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
pub(in crate::haproxy) fn closed(line: &Line, why: &str) -> Filter {
    let body = "This route is closed: weir import could not translate a rule that guards it.\n".to_owned();
    let comment = format!("CLOSED. `{}` at {}: {why}", super::super::words(line), line.place);
    Filter::new("respond", respond(503, Some(body), None)).because(comment)
}
