//! Explains a routing decision: which route won a request, why the other matching routes lost, and what near misses
//! lacked.
//!
//! The winner comes from [`Table::find`], the same function that routes live traffic, watched through its [`Trace`].
//! The other routes are evaluated here one by one. That is linear in the number of routes, which is fine for a
//! human's question.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use super::compiled::Route;
use super::cookies;
use super::host::{self, HostBuffer, HostPattern, Specificity};
use super::parameters::Parameters;
use super::pattern::{Case, Class, Pattern, Step};
use super::request::{Failed, Headers, Request, RouteId, Trace};
use super::table::Table;
use super::variables::Secrets;

/// The default number of near misses.
pub const NEAR_MISSES: usize = 10;

/// Why a request went to its route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The winning route, if any.
    pub winner: Option<Winner>,
    /// Routes that also match but lost, in the order of precedence.
    pub lost: Vec<Lost>,
    /// Routes that do not match, nearest first.
    pub near_misses: Vec<NearMiss>,
    /// How many more do not match.
    pub omitted: usize,
}

/// The winning route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Winner {
    /// Its index.
    pub index: usize,
    /// Its name.
    pub route: String,
    /// Its host entry that matches the request; `*` for any.
    pub host: String,
    /// Its path pattern.
    pub path: String,
    /// Whether it ignores the case of letters in the path.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignores_case: bool,
    /// How many conditions it has besides host, path and expression.
    pub conditions: usize,
    /// What its expression read, if it has one: the expression holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Vec<Captured>>,
    /// What it captured of path and host.
    pub captures: Vec<Captured>,
    /// Routes with more specific host and path that were tried first and did not match.
    pub asked_before: usize,
}

/// A piece of the path, or a variable of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Captured {
    /// Its name.
    pub name: String,
    /// Its text.
    pub value: String,
}

/// A route that matches but lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Its index.
    pub index: usize,
    /// Its name.
    pub route: String,
    /// The rule that decided.
    pub rule: Rule,
    /// The same as text.
    pub why: String,
}

/// The rules of precedence, in the order they apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The more specific host.
    Host,
    /// The more specific path.
    Path,
    /// The greater number of conditions.
    Conditions,
    /// The expression.
    When,
    /// The higher priority.
    Priority,
    /// The lower rank, in a config that was translated from somebody else's.
    Rank,
}

/// A route that does not match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NearMiss {
    /// Its index.
    pub index: usize,
    /// Its name.
    pub route: String,
    /// The first condition that failed: `host`, `path`, `method`, `listener`, `header x-env`, `query v`, `clients`,
    /// `cookie beta`, `not`, `when`.
    pub failed: String,
    /// The same as text.
    pub why: String,
}

/// Finds the route of a request and explains why, with at most `near_misses` routes that do not match.
pub fn explain<H: Headers>(table: &Table, request: &Request<'_, H>, near_misses: usize) -> Decision {
    explain_without(table, request, near_misses, &Secrets::default())
}

/// The same without the values that are `secrets`.
pub fn explain_without<H: Headers>(
    table: &Table,
    request: &Request<'_, H>,
    near_misses: usize,
    secrets: &Secrets,
) -> Decision {
    let mut watched = Watched(0);
    let winner = table.find(request, &mut watched);
    let mut buffer = HostBuffer::new();
    let seen = Seen { table, request, secrets, host: host::normalize(request.host, &mut buffer) };
    let mut matching: Vec<(RouteId, &Route)> = Vec::new();
    let mut misses: Vec<(Reverse<Nearness>, RouteId, &Route, Failed<'_>)> = Vec::new();
    for (entry, route) in table.entries() {
        match seen.judge(entry, route) {
            Ok(()) => matching.push((entry, route)),
            Err(failed) => misses.push((Reverse(seen.nearness(route, failed)), entry, route, failed)),
        }
    }
    let matching = seen.ranked(matching);
    // A route with several paths is told once, by its best.
    let mut told: HashSet<RouteId> = HashSet::new();
    let best: Vec<_> =
        matching.iter().copied().filter(|(entry, _)| told.insert(table.owner(*entry))).collect();
    let is_winner = |(entry, _): &(RouteId, &Route)| Some(table.owner(*entry)) == winner;
    let won = best.iter().copied().find(is_winner);
    // Stable, so that equally near routes keep their order.
    misses.sort_by_key(|(nearness, ..)| *nearness);
    misses.retain(|(_, entry, ..)| told.insert(table.owner(*entry)));
    let omitted = misses.len().saturating_sub(near_misses);
    misses.truncate(near_misses);
    let tell_lost = |(id, route): (RouteId, &Route)| {
        let winner = won.map_or(route, |(_, winner)| winner);
        let (rule, why) = seen.lost_by(winner, route, &matching);
        Lost { index: table.owner(id).index(), route: route.name.to_string(), rule, why }
    };
    Decision {
        winner: won.map(|(id, route)| seen.winner(id, route, watched.0)),
        lost: best.into_iter().filter(|one| !is_winner(one)).map(tell_lost).collect(),
        near_misses: misses
            .into_iter()
            .map(|(_, entry, route, failed)| seen.near_miss(entry, route, failed))
            .collect(),
        omitted,
    }
}

/// Counts the candidates that the table tried in vain.
struct Watched(usize);

impl Trace for Watched {
    fn asked(&mut self, _: RouteId, outcome: Result<(), Failed<'_>>) {
        self.0 += usize::from(outcome.is_err());
    }
}

/// How near a miss is: by path and host, path, host, or neither; then by the bytes that path and pattern share.
type Nearness = (u8, usize);

/// The request, with its host in normalized form.
struct Seen<'a, 'r, H> {
    table: &'a Table,
    request: &'a Request<'r, H>,
    secrets: &'a Secrets,
    host: &'a [u8],
}

impl<'a, H: Headers> Seen<'a, '_, H> {
    fn judge(&self, entry: RouteId, route: &'a Route) -> Result<(), Failed<'a>> {
        if route.host_for(self.host).is_none() {
            return Err(Failed::Host);
        }
        if !route.pattern.matches(self.request.path) {
            return Err(Failed::Path);
        }
        self.table.check(entry, route, self.request)
    }

    /// Matching routes in the order in which each would win if those before it were not there.
    fn ranked<'t>(&self, mut routes: Vec<(RouteId, &'t Route)>) -> Vec<(RouteId, &'t Route)> {
        routes.sort_by(|(_, a), (_, b)| self.precedence(a, b).1);
        let mut ranked = Vec::with_capacity(routes.len());
        for same_host in routes.chunk_by(|(_, a), (_, b)| self.specificity(a) == self.specificity(b)) {
            // Of two sorted lists, the one whose first has the higher priority goes on.
            let of =
                |class| same_host.iter().filter(move |(_, route)| route.pattern.class() == class).copied();
            let (mut regexes, mut prefixes) = (of(Class::Regex).peekable(), of(Class::Prefix).peekable());
            ranked.extend(of(Class::Exact));
            while let Some((_, prefix)) = prefixes.peek() {
                let regex = regexes.next_if(|(_, regex)| regex.priority >= prefix.priority);
                ranked.extend(regex.or_else(|| prefixes.next()));
            }
            ranked.extend(regexes);
        }
        ranked
    }

    /// By which rule a matching route lost, and the same as text. `ranked` are all that match.
    fn lost_by(&self, winner: &Route, loser: &Route, ranked: &[(RouteId, &Route)]) -> (Rule, String) {
        let (rule, _) = self.precedence(winner, loser);
        let classes = (winner.pattern.class(), loser.pattern.class());
        let (Rule::Path, (Class::Regex, Class::Prefix) | (Class::Prefix, Class::Regex)) = (rule, classes)
        else {
            return (rule, self.why(rule, winner, loser));
        };
        let best = ranked.iter().map(|(_, route)| *route).find(|route| {
            route.pattern.class() == classes.1 && self.specificity(route) == self.specificity(loser)
        });
        match best.filter(|best| !std::ptr::eq(*best, loser)) {
            Some(best) if best.name == winner.name => {
                let (rule, _) = self.precedence(best, loser);
                (rule, self.why(rule, best, loser))
            }
            Some(best) => {
                let (rule, _) = self.precedence(best, loser);
                (rule, format!("{}, and `{}` beats that one", self.why(rule, best, loser), winner.name))
            }
            None if winner.priority == loser.priority => (rule, self.why(rule, winner, loser)),
            None => {
                let why = self.why(Rule::Priority, winner, loser);
                (Rule::Priority, format!("{why}: it decides between the best prefix and the best regex"))
            }
        }
    }

    fn parameters(&self, entry: RouteId) -> Option<Parameters<'_>> {
        self.table.parameters(self.table.owner(entry), self.request.path, self.request.host)
    }

    fn specificity(&self, route: &Route) -> Specificity {
        route.host_for(self.host).map(HostPattern::specificity).unwrap_or_default()
    }

    /// Which of two matching routes comes first, and by which rule. Between a regex and a prefix priority comes before
    /// this order; see [`ranked`](Self::ranked).
    fn precedence(&self, a: &Route, b: &Route) -> (Rule, Ordering) {
        let host = |route: &Route| Reverse(self.specificity(route));
        let rules = [
            (Rule::Host, host(a).cmp(&host(b))),
            (Rule::Path, a.pattern.compare(&b.pattern).0),
            (Rule::Rank, a.rank.cmp(&b.rank)),
            (Rule::Conditions, b.conditions().count().cmp(&a.conditions().count())),
            (Rule::When, b.conditions().when.is_some().cmp(&a.conditions().when.is_some())),
        ];
        let decided = rules.into_iter().find(|(_, ordering)| ordering.is_ne());
        decided.unwrap_or((Rule::Priority, b.priority.cmp(&a.priority)))
    }

    fn why(&self, rule: Rule, winner: &Route, loser: &Route) -> String {
        let name = &winner.name;
        match rule {
            Rule::Host => format!(
                "the host `{}` of `{name}` is more specific than `{}`",
                self.host_text(winner),
                self.host_text(loser)
            ),
            Rule::Path => {
                let because = match winner.pattern.compare(&loser.pattern).1 {
                    Step::RawBytes => ": it has more text after its last slash".to_owned(),
                    Step::PartBytes(segment) => format!(": its segment {segment} has more literal text"),
                    Step::PartBefore(segment) => {
                        format!(": its segment {segment} has more literal text before the name")
                    }
                    Step::Case => ": it compares letters exactly".to_owned(),
                    Step::Class
                        if loser.pattern.class() == Class::Prefix
                            && winner.pattern.class() == Class::Regex =>
                    {
                        ": a regex comes before a prefix of the same priority".to_owned()
                    }
                    Step::Class | Step::Kind(_) | Step::Nothing | Step::Segments => String::new(),
                };
                format!(
                    "the path `{}` of `{name}` is more specific than `{}`{because}",
                    winner.shown_path(),
                    loser.shown_path()
                )
            }
            Rule::Conditions => format!(
                "`{name}` has {} conditions beside host and path, this one {}",
                winner.conditions().count(),
                loser.conditions().count()
            ),
            Rule::When => format!("`{name}` has a `when`, this one none"),
            Rule::Priority => {
                format!("`{name}` has priority {}, this one {}", winner.priority, loser.priority)
            }
            Rule::Rank => format!("`{name}` comes first in the order of the source of this config"),
        }
    }

    fn host_text(&self, route: &Route) -> String {
        if let Some(shown) = route.shown.as_ref().filter(|shown| !shown.hosts.is_empty()) {
            return shown.hosts.join(", ");
        }
        route.host_for(self.host).map(HostPattern::to_text).unwrap_or_default()
    }

    fn nearness(&self, route: &Route, failed: Failed<'_>) -> Nearness {
        let pattern = route.pattern.as_str().bytes();
        let shared = pattern.zip(self.request.path).take_while(|(a, b)| a == *b).count();
        let near = match failed {
            Failed::Host if route.pattern.matches(self.request.path) => 2,
            Failed::Host => 0,
            Failed::Path => 1,
            Failed::Client
            | Failed::Cookie(_)
            | Failed::Header(_)
            | Failed::Listener
            | Failed::Method
            | Failed::Not(_)
            | Failed::Query(_)
            | Failed::When => 3,
        };
        (near, shared)
    }

    fn near_miss(&self, id: RouteId, route: &Route, failed: Failed<'_>) -> NearMiss {
        let (failed, why) = match failed {
            Failed::Host => ("host".to_owned(), format!("it is for {}", route.shown_hosts())),
            Failed::Path => {
                let any_case = Pattern::parse(route.pattern.as_str(), Case::Insensitive);
                let only_case = any_case.is_ok_and(|pattern| pattern.matches(self.request.path));
                let why = if only_case { ", and only the case of letters differs" } else { "" };
                (
                    "path".to_owned(),
                    format!("it is for {}{why}", self.table.shown_paths(self.table.owner(id))),
                )
            }
            Failed::Method => ("method".to_owned(), format!("it takes {}", route.shown_methods())),
            Failed::Listener => ("listener".to_owned(), "it is not on this listener".to_owned()),
            Failed::Client => {
                let clients = route.conditions().rarer.as_ref().and_then(|rarer| rarer.clients.as_ref());
                let networks = clients.map_or("", |clients| &clients.text);
                let why = match self.request.headers.client_ip() {
                    Some(address) => format!("{} is not in {networks}", address.to_canonical()),
                    None => format!("the client's address is not known, and it has to be in {networks}"),
                };
                ("clients".to_owned(), why)
            }
            Failed::Cookie(name) => {
                let values = cookies::values(self.request.headers.get_all(b"cookie"), name.as_bytes());
                (format!("cookie {name}"), occurs(values.count()).to_owned())
            }
            Failed::Header(name) => (
                format!("header {name}"),
                occurs(self.request.headers.get_all(name.as_bytes()).count()).to_owned(),
            ),
            Failed::Not(at) => match route.conditions().not().get(at) {
                Some(excluded) => {
                    let kinds = excluded.kinds();
                    (excluded.written.place.clone(), format!("the request meets all of it: {kinds}"))
                }
                None => ("not".to_owned(), String::new()),
            },
            Failed::Query(name) => {
                (format!("query {name}"), "it is absent, has another value or is repeated".to_owned())
            }
            Failed::When => {
                let came = self.came_to(id, route).unwrap_or_default();
                ("when".to_owned(), format!("its expression is false{}", told(&came)))
            }
        };
        NearMiss { index: self.table.owner(id).index(), route: route.name.to_string(), failed, why }
    }

    /// What the route's expression read.
    fn came_to(&self, entry: RouteId, route: &Route) -> Option<Vec<Captured>> {
        let came = route.conditions().when.as_ref()?;
        let came = came.came_to(self.request, self.parameters(entry)?, self.secrets);
        Some(came.into_iter().map(|(name, value)| Captured { name, value }).collect())
    }

    fn winner(&self, id: RouteId, route: &Route, asked_before: usize) -> Winner {
        let captured = |(name, value): (&str, Cow<'_, [u8]>)| Captured {
            name: name.to_owned(),
            value: String::from_utf8_lossy(&value).into_owned(),
        };
        Winner {
            index: self.table.owner(id).index(),
            route: route.name.to_string(),
            host: self.host_text(route),
            path: route.shown_path().to_owned(),
            ignores_case: route.pattern.ignores_case(),
            conditions: route.conditions().count(),
            when: self.came_to(id, route),
            captures: self
                .parameters(id)
                .map(|all| all.all())
                .unwrap_or_default()
                .into_iter()
                .map(captured)
                .collect(),
            asked_before,
        }
    }
}

/// What is wrong with a field that occurs so often.
fn occurs(times: usize) -> &'static str {
    match times {
        0 => "the request does not have it",
        1 => "its value is another",
        _ => "it occurs more than once, which no value matches",
    }
}

/// What an expression read, as the end of a sentence.
fn told(came: &[Captured]) -> String {
    let each: Vec<_> = came.iter().map(|one| format!("{} is {}", one.name, one.value)).collect();
    if each.is_empty() { String::new() } else { format!("; {}", each.join(", ")) }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.winner {
            Some(winner) => {
                writeln!(f, "route: {}", winner.route)?;
                let conditions = match winner.conditions {
                    0 => String::new(),
                    1 => ", 1 condition".to_owned(),
                    many => format!(", {many} conditions"),
                };
                let case = if winner.ignores_case { " in any case" } else { "" };
                writeln!(f, "  matched: host {}, path {}{case}{conditions}", winner.host, winner.path)?;
                if let Some(came) = &winner.when {
                    writeln!(f, "  when: its expression is true{}", told(came))?;
                }
                for captured in &winner.captures {
                    writeln!(f, "  captured: {} = {}", captured.name, captured.value)?;
                }
            }
            None => writeln!(f, "route: none")?,
        }
        if !self.lost.is_empty() {
            writeln!(f, "also match, but lose:")?;
        }
        for lost in &self.lost {
            writeln!(f, "  {}: {}", lost.route, lost.why)?;
        }
        if !self.near_misses.is_empty() {
            writeln!(f, "do not match:")?;
        }
        for miss in &self.near_misses {
            writeln!(f, "  {}: {}; {}", miss.route, miss.failed, miss.why)?;
        }
        if self.omitted > 0 {
            writeln!(f, "  and {} more", self.omitted)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
