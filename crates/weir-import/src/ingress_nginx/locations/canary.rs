//! Canaries: Ingresses that take a share of the requests of another one.

use super::super::Cx;
use super::super::objects::{Backend, Ingress};
use super::super::upstreams::{self, Settings};
use crate::shared::expression::Expression;
use crate::shared::regex::{Searching, Subject};
use std::collections::HashMap;

/// The canary of a path.
pub(super) struct Canary {
    pub(super) backend: Backend,
    pub(super) namespace: String,
    pub(super) settings: Settings,
    pub(super) share: Share,
}

/// Which requests a canary takes.
#[derive(Clone)]
pub(in crate::ingress_nginx) struct Share {
    pub(in crate::ingress_nginx) weight: u64,
    pub(in crate::ingress_nginx) total: u64,
    header: Option<(String, Option<Expression>)>,
    cookie: Option<String>,
}

impl Share {
    /// Conditions in order, each with whether a request that meets it goes to the canary. The first match decides:
    /// header, then cookie. The weight splits all other requests.
    pub(in crate::ingress_nginx) fn choices(&self) -> Vec<(Expression, bool)> {
        let mut choices = Vec::new();
        let words = |value: Expression| {
            let is = |word: &str| value.clone().equals(Expression::text(word));
            [(is("always"), true), (is("never"), false)]
        };
        match &self.header {
            Some((_, Some(is))) => choices.push((is.clone(), true)),
            Some((header, None)) => choices.extend(words(Expression::of("request.headers", header))),
            None => {}
        }
        let cookie = self.cookie.iter();
        choices.extend(cookie.flat_map(|cookie| words(Expression::of("request.cookies", cookie))));
        choices
    }
}

pub(super) const CANARY: &[&str] = &[
    "canary-by-header",
    "canary-by-header-value",
    "canary-by-header-pattern",
    "canary-by-cookie",
    "canary-weight",
    "canary-weight-total",
];

/// Reads an Ingress that is a canary of another.
pub(super) fn canary(
    cx: &mut Cx<'_, '_>,
    ingress: &mut Ingress<'_>,
    all: &mut HashMap<(String, String), Canary>,
) {
    let settings = upstreams::read(cx, ingress);
    let share = canary_of(cx, ingress);
    for (name, piece) in ingress.annotations.rest() {
        cx.ledger.left_out(piece, format!("{name} of a canary: those of the main Ingress count"));
    }
    for rule in &ingress.rules {
        for path in &rule.paths {
            let canary = Canary {
                backend: path.backend.clone(),
                namespace: ingress.namespace.clone(),
                settings: settings.clone(),
                share: share.clone(),
            };
            all.insert((rule.host.clone(), path.path.clone()), canary);
        }
    }
}

/// Reads which requests a canary takes.
pub(in crate::ingress_nginx) fn canary_of(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Share {
    let own = &mut ingress.annotations;
    let mut number = |key: &str, default: u64| match own.take(key) {
        Some((text, piece)) => {
            cx.ledger.same(piece);
            text.parse().unwrap_or(default)
        }
        None => default,
    };
    let (weight, total) = (number("canary-weight", 0), number("canary-weight-total", 100));
    let name = own.take("canary-by-header");
    let value = own.take("canary-by-header-value");
    let pattern = own.take("canary-by-header-pattern");
    let mut header = None;
    if let Some((name, piece)) = name {
        cx.ledger.same(piece);
        let field = Expression::of("request.headers", &name.to_ascii_lowercase());
        let is = match (&value, &pattern) {
            (Some((value, piece)), _) => {
                cx.ledger.same(*piece);
                Some(field.equals(Expression::text(value)))
            }
            (None, Some((pattern, piece))) => match Searching::read(pattern, false, Subject::Text) {
                Ok(read) => {
                    cx.ledger.same(*piece);
                    Some(field.matches(&read.searching()))
                }
                Err(why) => {
                    cx.ledger.refused(*piece, why, "match.when");
                    Some(Expression::constant(false))
                }
            },
            _ => None,
        };
        header = Some((name.to_ascii_lowercase(), is));
    }
    let cookie = own.take("canary-by-cookie").map(|(name, piece)| {
        cx.ledger.same(piece);
        name
    });
    Share { weight, total, header, cookie }
}
