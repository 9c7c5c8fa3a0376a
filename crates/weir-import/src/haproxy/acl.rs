//! ACLs and conditions: what a line with `if` or `unless` depends on.
//!
//! Lines of one name are alternatives; the terms of a condition must all hold, `or` separates alternatives. A term
//! comes to a [`Term`]: an expression, something that routes say better ([`Facet`]), or what Weir has as a filter.

mod criterion;

use super::context::Cx;
use super::read::Line;
use super::sample::Scope;
use crate::shared::expression::Expression;
use criterion::criterion;

/// Most alternatives of a condition.
const MAX_ALTERNATIVES: usize = 64;
/// Most patterns of one criterion that become one expression.
const MAX_PATTERNS: usize = 1000;

/// A condition: alternatives of terms that must all hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    pub(super) any: Vec<Vec<Term>>,
}

/// A term of a condition.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// An expression, and how a route says the same, if it can.
    Is(Expression, Option<Facet>),
    /// More requests than this in the period of a counter: `gt`.
    Rate(Rate),
    /// A user of this list, in one of these groups, if any is named; false: no such user.
    User { list: String, groups: Vec<String>, is: bool },
    /// Clients in a file of networks that weir import does not see; false: all others.
    File(String, bool),
    /// What weir import cannot translate, with the reason.
    Unknown(String),
}

/// A condition that `match` of a route can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Facet {
    /// `.example.com` for all names that end so.
    Hosts(Vec<String>),
    Methods(Vec<String>),
    Paths(Vec<PathOf>),
    /// Clients' networks; false: all others.
    Clients(Vec<String>, bool),
}

/// A path that `match` of a route can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathOf {
    Exact(String),
    Prefix(String),
}

/// A counter of requests over its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// `sc0_http_req_rate`, or the name of a `src_…` one.
    pub(super) fetch: String,
    /// Which `track-sc`; none for `src_…`.
    pub(super) counter: Option<u8>,
    /// The table that the fetch names itself.
    pub(super) table: Option<String>,
    /// How many may pass.
    pub(super) passes: u64,
}

impl Term {
    fn not(self) -> Self {
        match self {
            Self::Is(is, facet) => {
                let facet = match facet {
                    Some(Facet::Clients(networks, of)) => Some(Facet::Clients(networks, !of)),
                    _ => None,
                };
                Self::Is(is.not(), facet)
            }
            Self::User { list, groups, is } => Self::User { list, groups, is: !is },
            Self::File(path, is) => Self::File(path, !is),
            Self::Rate(rate) => Self::Unknown(format!("`{}` below a limit", rate.fetch)),
            Self::Unknown(why) => Self::Unknown(why),
        }
    }
}

impl Condition {
    /// One that always holds.
    pub(super) fn always() -> Self {
        Self { any: vec![Vec::new()] }
    }

    /// The whole as one expression.
    ///
    /// # Errors
    /// Why it cannot be one.
    pub(super) fn expression(&self) -> Result<Expression, String> {
        let mut any = Expression::constant(false);
        for all in &self.any {
            let mut is = Expression::constant(true);
            for term in all {
                match term {
                    Term::Is(one, _) => is = is.and(one.clone()),
                    Term::Unknown(why) => return Err(why.clone()),
                    Term::Rate(rate) => {
                        return Err(format!("`{}` is a counter of a stick-table", rate.fetch));
                    }
                    Term::User { list, .. } => return Err(format!("a user of `{list}`")),
                    Term::File(path, _) => return Err(format!("`{path}` cannot be read")),
                }
            }
            any = any.or(is);
        }
        Ok(any)
    }
}

/// The condition behind the rule of a line: `if …` or `unless …` from `at` on.
pub(super) fn condition(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, line: &Line, at: usize) -> Condition {
    let Some(found) = line.from(at).iter().position(|word| matches!(&**word, "if" | "unless")) else {
        return Condition::always();
    };
    let negated = line.word(at + found) == "unless";
    let words = line.from(at + found + 1);
    let mut any: Vec<Vec<Term>> = vec![Vec::new()];
    let mut not = false;
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let mut word = word.as_str();
        if word == "or" || word == "||" {
            any.push(Vec::new());
            continue;
        }
        while let Some(rest) = word.strip_prefix('!') {
            not = !not;
            word = rest;
        }
        let term = match word {
            "" => continue,
            "{" => {
                let mut depth = 1;
                let mut inner = Vec::new();
                for word in words.by_ref() {
                    match &**word {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                    inner.push(word.clone());
                }
                criterion(cx, scope, &inner)
            }
            name => named(cx, scope, name),
        };
        if let Some(all) = any.last_mut() {
            all.push(if not { term.not() } else { term });
        }
        not = false;
    }
    if negated {
        any = negation(any);
    }
    // Constants that decide: `ssl_fc` where no client speaks TLS.
    let constant = |term: &Term| match term {
        Term::Is(is, _) => is.as_constant(),
        _ => None,
    };
    any.retain(|all| !all.iter().any(|term| constant(term) == Some(false)));
    for all in &mut any {
        all.retain(|term| constant(term) != Some(true));
    }
    if any.iter().any(Vec::is_empty) {
        any = vec![Vec::new()];
    }
    Condition { any }
}

/// The alternatives under which none of these holds.
fn negation(any: Vec<Vec<Term>>) -> Vec<Vec<Term>> {
    let mut all: Vec<Vec<Term>> = vec![Vec::new()];
    for alternative in any {
        if all.len() * alternative.len().max(1) > MAX_ALTERNATIVES {
            return vec![vec![Term::Unknown("the condition has too many alternatives".to_owned())]];
        }
        // One of its terms fails.
        all = all
            .iter()
            .flat_map(|before| {
                alternative.iter().map(|term| before.iter().cloned().chain([term.clone().not()]).collect())
            })
            .collect();
    }
    all
}

/// An ACL by its name.
fn named(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, name: &str) -> Term {
    let Some(found) = scope.acls.get(name) else { return predefined(name) };
    let mut terms = Vec::new();
    for line in found.clone() {
        terms.push(criterion(cx, scope, line.from(2)));
    }
    if terms.len() == 1 {
        return terms.remove(0);
    }
    any_of(terms)
}

/// Terms of which one must hold, as one term.
fn any_of(terms: Vec<Term>) -> Term {
    let mut is = Expression::constant(false);
    let mut facets = Vec::new();
    for term in terms {
        match term {
            Term::Is(one, facet) => {
                is = is.or(one);
                facets.push(facet);
            }
            Term::Unknown(why) => return Term::Unknown(why),
            Term::Rate(_) => {
                return Term::Unknown("a counter of a stick-table among alternatives".to_owned());
            }
            Term::User { .. } => return Term::Unknown("a user among alternatives".to_owned()),
            Term::File(path, _) => return Term::Unknown(format!("`{path}` cannot be read")),
        }
    }
    let joined = facets.into_iter().reduce(|one, other| match (one, other) {
        (Some(Facet::Hosts(a)), Some(Facet::Hosts(b))) => Some(Facet::Hosts([a, b].concat())),
        (Some(Facet::Methods(a)), Some(Facet::Methods(b))) => Some(Facet::Methods([a, b].concat())),
        (Some(Facet::Paths(a)), Some(Facet::Paths(b))) => Some(Facet::Paths([a, b].concat())),
        (Some(Facet::Clients(a, true)), Some(Facet::Clients(b, true))) => {
            Some(Facet::Clients([a, b].concat(), true))
        }
        _ => None,
    });
    Term::Is(is, joined.flatten())
}

/// ACLs that HAProxy predefines.
fn predefined(name: &str) -> Term {
    let method = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let is = is_one_of(Expression::raw("request.method"), &names);
        Term::Is(is, Some(Facet::Methods(names)))
    };
    let constant = |value| Term::Is(Expression::constant(value), None);
    match name {
        "TRUE" | "HTTP" | "WAIT_END" | "HTTP_1.1" | "HTTP_URL_SLASH" => constant(true),
        "FALSE" => constant(false),
        "LOCALHOST" => networks(&["127.0.0.0/8".to_owned(), "::1".to_owned()]),
        "METH_GET" => method(&["GET", "HEAD"]),
        "METH_CONNECT" | "METH_DELETE" | "METH_HEAD" | "METH_OPTIONS" | "METH_POST" | "METH_PUT"
        | "METH_TRACE" => method(&[name.trim_start_matches("METH_")]),
        _ => Term::Unknown(format!("no ACL `{name}` is there")),
    }
}

fn networks(all: &[String]) -> Term {
    let is = Expression::raw("client.ip").is_in(all.iter().map(String::as_str));
    Term::Is(is, Some(Facet::Clients(all.to_vec(), true)))
}

fn is_one_of(value: Expression, texts: &[String]) -> Expression {
    match texts {
        [one] => value.equals(Expression::text(one)),
        several => value.is_in(several.iter().map(String::as_str)),
    }
}

/// All ACLs of a proxy, by name.
pub(super) fn acls<'a>(lines: &[&'a Line]) -> std::collections::HashMap<&'a str, Vec<&'a Line>> {
    let mut found: std::collections::HashMap<&str, Vec<&Line>> = std::collections::HashMap::new();
    for line in lines.iter().filter(|line| line.key() == "acl") {
        found.entry(line.word(1)).or_default().push(line);
    }
    found
}
