//! `return`, `rewrite`, `if` and `set`, in the order in which nginx runs them.

mod answer;
mod directive;
mod next_location;
mod pattern;

pub(super) use answer::to_url;
pub(super) use next_location::leads_to;

use super::context::{Cx, Scope};
use super::fields::fields_of_if;
use super::location::{Location, NewPath};
use super::read::Directive;
use super::site::Site;
use super::text::condition;
use super::variables::{answered_field, choose, chooses_by_path, chosen, set, variable_of};
use crate::config::Filter;
use crate::ledger::{Piece, Verdict};
use crate::shared::expression::Expression;
use crate::shared::filters::{closed, when};
use crate::shared::regex::Searching;
use crate::yaml::Map;
use answer::answer;
use directive::rewrite;

/// The result of a block's rewrite directives.
#[derive(Default)]
pub(super) struct Rewritten {
    /// Conditions that may answer, and changes of the path.
    pub(super) filters: Vec<Filter>,
    /// The answer for every request that reaches the end of the block.
    pub(super) answer: Option<Answer>,
    /// Requests that need a route of their own: their answer needs groups of another pattern, or another location
    /// takes them.
    pub(super) apart: Vec<Apart>,
    /// Guards that could not be translated: the route must stay closed.
    pub(super) closed: Vec<String>,
    /// The conditions of each `if` that adds fields to answers: those of the location are not added then.
    pub(super) own_fields: Vec<Expression>,
    /// Patterns of paths that `filters` change.
    changed: Vec<Searching>,
    /// Whether a `rewrite … break` matched every request: nginx then skips later rewrite directives.
    stopped: bool,
}

/// An answer without an upstream.
#[derive(Clone)]
pub(super) enum Answer {
    Redirect(Filter),
    Respond(Map),
    /// What another location does.
    Search(Search),
}

/// A route of its own.
#[derive(Clone)]
pub(super) struct Apart {
    /// The paths that it takes; none for all of its location.
    pub(super) pattern: Option<Searching>,
    /// A further condition.
    pub(super) when: Option<Expression>,
    /// The filters that run before it.
    pub(super) before: Vec<Filter>,
    pub(super) does: Answer,
    /// The `rewrite`.
    pub(super) piece: Piece,
}

/// `rewrite … last`: nginx searches for a location anew, with another path.
#[derive(Clone)]
pub(super) struct Search {
    /// What changes the path and the query.
    pub(super) filters: Vec<Filter>,
    /// What is known of the new path.
    pub(super) path: NewPath,
}

impl Answer {
    pub(super) fn to_filter(&self) -> Filter {
        match self {
            Self::Redirect(filter) => filter.clone(),
            Self::Respond(map) => Filter::new("respond", map.clone()),
            // It needs a route: see `one_if`.
            Self::Search(_) => Filter::new("respond", Map::new().with("status", 503_u16)),
        }
    }
}

/// Runs the rewrite directives of one block: of a location, or of the server.
pub(super) fn run<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    scope: &mut Scope<'a>,
    directives: &[&'a Directive],
    own: Option<&Location<'a>>,
) -> Rewritten {
    let mut done = Rewritten::default();
    let place = Where { site, own, block: directives };
    for directive in directives {
        if done.answer.is_some() || done.stopped {
            if matches!(&*directive.name, "return" | "rewrite" | "if" | "set" | "break") {
                let why = match done.stopped {
                    true => "no request comes so far: a `break` stands before it",
                    false => "no request comes so far: what stands before it answers",
                };
                leave_out(cx, directive, why);
            }
            continue;
        }
        match &*directive.name {
            "set" => set(cx, scope, directive),
            // It is empty here: see `auth_request_set`.
            "auth_request_set" => {
                scope.set.entry(variable_of(directive).to_owned()).or_default();
                if directive.args.get(1).is_some_and(|value| answered_field(value).is_some()) {
                    cx.ledger.same(directive.piece);
                }
            }
            "break" => cx.ledger.by_itself(directive.piece, "nothing stands behind it"),
            "return" => match answer(cx, scope, directive) {
                Ok(answer) => done.answer = Some(answer),
                Err(why) => {
                    cx.ledger.refused(directive.piece, why.clone(), "redirect, respond");
                    done.closed.push(why);
                }
            },
            "if" => {
                one_if(cx, &place, scope, directive, &mut done);
                // The old value would be wrong for some requests: later directives must not read it.
                if cx.ledger.verdict(directive.piece) == Some(Verdict::Refused) {
                    for inner in directive.block.iter().flatten().filter(|inner| inner.name == "set") {
                        scope.set.remove(variable_of(inner));
                    }
                }
                if directive.block.iter().flatten().any(|inner| inner.name == "rewrite") {
                    scope.set.retain(|_, value| !chooses_by_path(value));
                }
            }
            "rewrite" => {
                let before = done.filters.len();
                rewrite(cx, &place, scope, directive, &mut done);
                if done.filters.len() > before {
                    scope.set.retain(|_, value| !chooses_by_path(value));
                }
            }
            _ => {}
        }
    }
    done
}

fn leave_out(cx: &mut Cx<'_, '_>, directive: &Directive, why: &'static str) {
    cx.ledger.left_out(directive.piece, why);
    for inner in directive.block.iter().flatten() {
        leave_out(cx, inner, why);
    }
}

fn one_if<'a>(
    cx: &mut Cx<'a, '_>,
    place: &Where<'_, 'a>,
    scope: &mut Scope<'a>,
    directive: &'a Directive,
    done: &mut Rewritten,
) {
    let inner: Vec<&Directive> = directive.block.iter().flatten().collect();
    // A status of 400 and more is a guard: without it the route would be open.
    let is_guard =
        inner.iter().any(|d| d.name == "return" && d.first().starts_with(['4', '5']) || d.name == "deny");
    let leads_away = inner.iter().any(|d| matches!(&*d.name, "deny" | "return" | "rewrite"));
    let nearest = "the filter when, or match.when of a second route";
    // Where the condition is known, requests that do not meet it pass.
    let refuse = |cx: &mut Cx<'a, '_>, done: &mut Rewritten, why: String, is: Option<&Expression>| {
        for line in &inner {
            if !cx.ledger.is_judged(line.piece) {
                cx.ledger.refused(line.piece, "its `if` is refused", "");
            }
        }
        cx.ledger.refused(directive.piece, why.clone(), nearest);
        let why = format!("`if` at {}: {why}", directive.place);
        match is {
            Some(is) if leads_away => done.filters.extend(when(is, vec![closed(&why)], Vec::new())),
            None if is_guard => done.closed.push(why),
            _ => {}
        }
    };
    let is = match condition(cx, scope, &directive.args) {
        Ok(is) => is,
        Err(why) => return refuse(cx, done, why, None),
    };
    let mut inner_scope = scope.clone();
    let mut filters = Vec::new();
    let mut apart = Vec::new();
    let (mut variables, mut fields) = (Vec::new(), Vec::new());
    let mut ended = false;
    for line in &inner {
        if ended {
            leave_out(cx, line, "no request comes so far: the `rewrite` before it takes all");
            continue;
        }
        match &*line.name {
            "return" => match answer(cx, &inner_scope, line) {
                Ok(answer) => filters.push(answer.to_filter()),
                Err(why) => return refuse(cx, done, why, Some(&is)),
            },
            "rewrite" => {
                let mut nested = Rewritten { changed: done.changed.clone(), ..Rewritten::default() };
                rewrite(cx, place, &mut inner_scope, line, &mut nested);
                done.closed.append(&mut nested.closed);
                let is_refused = cx.ledger.verdict(line.piece) == Some(Verdict::Refused);
                if is_refused {
                    return refuse(cx, done, "its `rewrite` is refused".to_owned(), Some(&is));
                }
                let before: Vec<Filter> = done.filters.iter().chain(&filters).cloned().collect();
                match nested.answer {
                    Some(Answer::Search(search)) => {
                        let does = Answer::Search(search);
                        apart.push(Apart {
                            pattern: None,
                            when: Some(is.clone()),
                            before,
                            does,
                            piece: line.piece,
                        });
                        ended = true;
                    }
                    Some(answer) => filters.push(answer.to_filter()),
                    None => {}
                }
                for one in nested.apart {
                    if matches!(one.does, Answer::Redirect(_) | Answer::Respond(_)) {
                        return refuse(
                            cx,
                            done,
                            "a `rewrite` with groups to another host in an `if`".to_owned(),
                            Some(&is),
                        );
                    }
                    let before = done.filters.iter().chain(&filters).cloned().collect();
                    apart.push(Apart { when: Some(is.clone()), before, ..one });
                }
                filters.extend(nested.filters);
                done.changed = nested.changed;
            }
            "break" => cx.ledger.by_itself(line.piece, "nothing stands behind it"),
            "access_log" if line.first() == "off" => {
                cx.ledger.changed(line.piece, "use access_log.when to choose what is logged");
            }
            "set" => {
                set(cx, &mut inner_scope, line);
                if let Err(why) = choose(&is, scope, &inner_scope, line) {
                    cx.ledger.refused(line.piece, why.clone(), "maps");
                    return refuse(cx, done, why, Some(&is));
                }
                if !variables.contains(&variable_of(line)) {
                    variables.push(variable_of(line));
                }
            }
            "add_header" if place.own.is_some() => fields.push(*line),
            other => {
                let why = format!("`{other}` in an `if`");
                return refuse(cx, done, why, Some(&is));
            }
        }
    }
    cx.ledger.same(directive.piece);
    for name in variables {
        if let Some(value) = inner_scope.set.get(name) {
            let value = chosen(&is, scope, name, value);
            scope.set.insert(name.to_owned(), value);
        }
    }
    done.apart.extend(apart);
    if !fields.is_empty() {
        let returned = inner.iter().find(|line| line.name == "return");
        let status = returned.and_then(|line| line.first().parse().ok());
        filters.splice(0..0, fields_of_if(cx, &inner_scope, &fields, status));
        done.own_fields.push(is.clone());
    }
    if !filters.is_empty() {
        done.filters.extend(when(&is, filters, Vec::new()));
    }
}

/// The place of rewrite directives.
pub(super) struct Where<'s, 'a> {
    pub(super) site: &'s Site<'s, 'a>,
    /// The location; none for the server itself.
    pub(super) own: Option<&'s Location<'a>>,
    /// The directives of the block.
    pub(super) block: &'s [&'a Directive],
}
