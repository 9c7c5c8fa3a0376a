//! What is known of a request at a place of Caddy's flow, and what conditions say about it.

use super::cel;
use super::model::{FileTest, Matcher, Set};
use super::path::{Holds, Known, Pattern};
use super::text::{self, Scope};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::expression::Expression;
use crate::shared::path::canonical;
use crate::shared::regex::{Searching, Subject, literal};
use crate::shared::template::Template;
use std::collections::{BTreeMap, BTreeSet};

/// A set of requests, and what has been done to them so far.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    /// Hosts; empty for any.
    pub(super) hosts: Vec<String>,
    /// The path as the client sent it.
    pub(super) path: Known,
    pub(super) methods: Option<Vec<String>>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    /// What else must hold.
    pub(super) when: Vec<Expression>,
    /// Matchers that are known to hold, for the path at that time.
    pub(super) holds: Vec<(Matcher, Now)>,
    /// Sets that are known not to match, for the path at that time.
    pub(super) not: Vec<(Set, Now)>,
    /// Whether files exist, if that was asked.
    pub(super) file: Option<(FileTest, bool)>,
    /// Paths without their last slash that have a world of their own already.
    pub(super) folders: BTreeSet<String>,
    /// Whether clients speak TLS, if that is known.
    pub(super) tls: Option<bool>,
    /// The path as handlers see it now.
    pub(super) now: Now,
    pub(super) groups: BTreeSet<String>,
    pub(super) steps: Vec<Step>,
    pub(super) vars: BTreeMap<String, Template>,
    pub(super) root: Option<String>,
    pub(super) tries: Option<Vec<String>>,
    /// The statements that led here.
    pub(super) pieces: Vec<Piece>,
}

/// The path as handlers see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Now {
    /// As the client sent it.
    #[default]
    Same,
    /// Without this prefix.
    Below(String),
    /// This, in lower case.
    Is(String),
    /// Something else.
    Lost,
}

/// Something that happens to requests or answers, and when.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// Alternatives of which one must hold; empty for always.
    pub(super) sets: Vec<Set>,
    /// The path when it happens.
    pub(super) now: Now,
    pub(super) what: What,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Filters(Vec<Filter>),
    /// A change to the path, which the target may make itself.
    Path(Filter),
    /// Changes to fields of the answer.
    Answer(super::model::Ops),
}

impl World {
    /// What placeholders may stand for.
    pub(super) fn scope(&self) -> Scope {
        let captures = match &self.path {
            Known::Regex { name, .. } => name.clone(),
            _ => None,
        };
        Scope { vars: self.vars.clone(), captures, ..Scope::default() }
    }

    /// Whether one of the sets matches.
    pub(super) fn any(&self, sets: &[Set], now: &Now) -> Holds {
        if sets.is_empty() {
            return Holds::Always;
        }
        let each: Vec<Holds> = sets.iter().map(|set| self.set(set, now)).collect();
        match () {
            () if each.contains(&Holds::Always) => Holds::Always,
            () if each.iter().all(|holds| *holds == Holds::Never) => Holds::Never,
            () => Holds::Maybe,
        }
    }

    fn set(&self, set: &Set, now: &Now) -> Holds {
        let excluded =
            |(not, then): &(Set, Now)| then == now && not.iter().all(|matcher| set.contains(matcher));
        if self.not.iter().any(excluded) {
            return Holds::Never;
        }
        let each: Vec<Holds> = set.iter().map(|matcher| self.matcher(matcher, now)).collect();
        match () {
            () if each.contains(&Holds::Never) => Holds::Never,
            () if each.iter().all(|holds| *holds == Holds::Always) => Holds::Always,
            () => Holds::Maybe,
        }
    }

    fn matcher(&self, matcher: &Matcher, now: &Now) -> Holds {
        match matcher {
            Matcher::Host(_) if self.hosts.is_empty() => Holds::Maybe,
            Matcher::Host(wanted) => {
                let all = self.hosts.iter().all(|host| wanted.iter().any(|wanted| host_within(host, wanted)));
                let overlaps = |host: &String| {
                    wanted.iter().any(|wanted| host_within(host, wanted) || host_within(wanted, host))
                };
                match () {
                    () if all => Holds::Always,
                    () if !self.hosts.iter().any(overlaps) => Holds::Never,
                    () => Holds::Maybe,
                }
            }
            Matcher::Path(paths) => {
                let each: Vec<Holds> =
                    paths.iter().map(|path| self.pattern(&Pattern::read(path), now)).collect();
                match () {
                    () if each.contains(&Holds::Always) => Holds::Always,
                    () if each.iter().all(|holds| *holds == Holds::Never) => Holds::Never,
                    () => Holds::Maybe,
                }
            }
            // A path in lower case stands for all spellings, so a regex that counts case may fit some.
            Matcher::PathRegexp { pattern, .. } if !self.is_held(matcher, now) => {
                let path = match (now, &self.path) {
                    (Now::Same, Known::Exact(path)) => path,
                    _ => return Holds::Maybe,
                };
                let regex = Searching::read(pattern, true, Subject::Path).and_then(|regex| regex.compiled());
                match regex {
                    Ok(regex) if !regex.is_match(canonical(path).as_bytes()) => Holds::Never,
                    _ => Holds::Maybe,
                }
            }
            Matcher::Method(wanted) => match &self.methods {
                Some(known) if known.iter().all(|method| wanted.contains(method)) => Holds::Always,
                Some(known) if !known.iter().any(|method| wanted.contains(method)) => Holds::Never,
                _ => Holds::Maybe,
            },
            Matcher::Protocol(protocol) => match (self.tls, &**protocol) {
                (Some(tls), "https") => {
                    if tls {
                        Holds::Always
                    } else {
                        Holds::Never
                    }
                }
                (Some(tls), "http") => {
                    if tls {
                        Holds::Never
                    } else {
                        Holds::Always
                    }
                }
                _ => Holds::Maybe,
            },
            Matcher::Not(sets) => match self.any(sets, now) {
                Holds::Always => Holds::Never,
                Holds::Never => Holds::Always,
                Holds::Maybe => Holds::Maybe,
            },
            Matcher::File(test) => match &self.file {
                Some((known, exists)) if known.tries == test.tries => {
                    if *exists {
                        Holds::Always
                    } else {
                        Holds::Never
                    }
                }
                _ => Holds::Maybe,
            },
            other if self.is_held(other, now) => Holds::Always,
            _ => Holds::Maybe,
        }
    }

    fn is_held(&self, matcher: &Matcher, now: &Now) -> bool {
        self.holds.iter().any(|(held, then)| held == matcher && then == now)
    }

    fn pattern(&self, pattern: &Pattern, now: &Now) -> Holds {
        match now {
            Now::Same => self.path.holds(pattern),
            Now::Below(prefix) => self.path.holds(&pattern.below(prefix)),
            Now::Is(path) => {
                if pattern.fits(path) {
                    Holds::Always
                } else {
                    Holds::Never
                }
            }
            Now::Lost => {
                if *pattern == Pattern::Any {
                    Holds::Always
                } else {
                    Holds::Maybe
                }
            }
        }
    }

    /// The worlds in which a set matches: several if it names several paths.
    ///
    /// # Errors
    /// What Weir cannot tell.
    pub(super) fn with(&self, set: &Set) -> Result<Vec<Self>, String> {
        let mut worlds = vec![self.clone()];
        for matcher in set {
            let mut next = Vec::new();
            for world in worlds {
                if world.matcher(matcher, &world.now) == Holds::Always {
                    next.push(world);
                    continue;
                }
                // Held only now: a matcher that is known to hold asks for nothing.
                let mut worlds = world.with_matcher(matcher)?;
                worlds.iter_mut().for_each(|world| world.holds.push((matcher.clone(), world.now.clone())));
                next.extend(worlds);
            }
            worlds = next;
        }
        Ok(worlds)
    }

    fn with_matcher(mut self, matcher: &Matcher) -> Result<Vec<Self>, String> {
        match matcher {
            Matcher::Host(wanted) if self.hosts.is_empty() => self.hosts.clone_from(wanted),
            Matcher::Host(wanted) => {
                let mut hosts: Vec<String> = Vec::new();
                for host in &self.hosts {
                    for wanted in wanted {
                        if host_within(host, wanted) {
                            hosts.push(host.clone());
                        } else if host_within(wanted, host) {
                            hosts.push(wanted.clone());
                        }
                    }
                }
                hosts.dedup();
                self.hosts = hosts;
            }
            Matcher::Path(paths) => {
                let mut worlds = Vec::new();
                for path in paths {
                    let pattern = match &self.now {
                        Now::Same => Pattern::read(path),
                        Now::Below(prefix) => Pattern::read(path).below(prefix),
                        Now::Is(_) => continue,
                        Now::Lost => {
                            return Err(format!("the path was rewritten before `{path}` is looked for"));
                        }
                    };
                    if self.path.holds(&pattern) == Holds::Never {
                        continue;
                    }
                    let mut world = self.clone();
                    let (known, asked) = self.path.and(&pattern);
                    world.path = known;
                    world.when.extend(asked);
                    worlds.push(world);
                }
                return Ok(worlds);
            }
            Matcher::PathRegexp { name, pattern } => {
                if self.now != Now::Same {
                    return Err(format!("the path was rewritten before `{pattern}` is looked for"));
                }
                let regex = Searching::read(pattern, false, Subject::Path)?;
                let asked = Expression::raw("request.path").matches(&regex.searching());
                let (whole, start) = (regex.whole(), regex.literal_start());
                let (known, asked) = self.path.and_regex(whole, start, name.clone(), asked);
                self.path = known;
                self.when.extend(asked);
            }
            Matcher::Method(wanted) => {
                let methods = match &self.methods {
                    Some(known) => known.iter().filter(|method| wanted.contains(method)).cloned().collect(),
                    None => wanted.clone(),
                };
                self.methods = Some(methods);
            }
            Matcher::Header(fields) => {
                for field in fields {
                    match field {
                        (name, Some(values)) if **values == ["*"] => {
                            self.headers.push((name.clone(), "*".to_owned()));
                        }
                        field => self.when.push(header(field)?),
                    }
                }
            }
            Matcher::Query(pairs) => {
                for (name, values) in pairs {
                    match &**values {
                        [value] if value == "*" => self.query.push((name.clone(), value.clone())),
                        values => self.when.push(query(name, values)?),
                    }
                }
            }
            Matcher::File(test) => match self.file {
                None => self.file = Some((test.clone(), true)),
                Some(_) => return Err("it asks for files twice".to_owned()),
            },
            Matcher::Not(sets) => {
                if let [set] = &**sets
                    && let [Matcher::File(test)] = &**set
                {
                    if self.file.is_some() {
                        return Err("it asks for files twice".to_owned());
                    }
                    self.file = Some((test.clone(), false));
                    return Ok(vec![self]);
                }
                let expression = self.expression(&[vec![matcher.clone()]], &self.now.clone(), false)?;
                self.not.extend(sets.iter().map(|set| (set.clone(), self.now.clone())));
                self.when.push(expression);
            }
            other => {
                let expression = self.expression(&[vec![other.clone()]], &self.now.clone(), false)?;
                self.when.push(expression);
            }
        }
        Ok(vec![self])
    }

    /// Nothing of the sets matches in this world from now on.
    pub(super) fn without(&mut self, sets: &[Set]) {
        for set in sets {
            match &**set {
                // Sites exclude one another by themselves.
                [Matcher::Host(_)] => {}
                [Matcher::File(test)] if self.file.is_none() => self.file = Some((test.clone(), false)),
                [Matcher::Not(inner)] => {
                    if let [inner] = &**inner {
                        match &**inner {
                            [Matcher::File(test)] if self.file.is_none() => {
                                self.file = Some((test.clone(), true))
                            }
                            [other] => self.holds.push((other.clone(), self.now.clone())),
                            _ => {}
                        }
                    }
                    self.not.push((set.clone(), self.now.clone()));
                }
                _ => self.not.push((set.clone(), self.now.clone())),
            }
        }
    }

    /// One of the sets as an expression. `in_filter`: a filter evaluates it, after the path was changed.
    ///
    /// # Errors
    /// What Weir cannot tell.
    pub(super) fn expression(&self, sets: &[Set], now: &Now, in_filter: bool) -> Result<Expression, String> {
        let mut any = Expression::constant(false);
        for set in sets {
            let mut all = Expression::constant(true);
            for matcher in set {
                let one = match self.matcher(matcher, now) {
                    Holds::Always => Expression::constant(true),
                    Holds::Never => Expression::constant(false),
                    Holds::Maybe => self.one(matcher, now, in_filter)?,
                };
                all = all.and(one);
            }
            any = any.or(all);
        }
        Ok(any)
    }

    fn one(&self, matcher: &Matcher, now: &Now, in_filter: bool) -> Result<Expression, String> {
        Ok(match matcher {
            Matcher::Host(hosts) => {
                let host = || Expression::raw("request.host");
                let mut any = Expression::constant(false);
                for wanted in hosts {
                    any = any.or(match wanted.strip_prefix('*') {
                        Some(end) => host().ends_with(end),
                        None => host().equals(Expression::text(wanted)),
                    });
                }
                any
            }
            Matcher::Path(paths) => {
                let mut any = Expression::constant(false);
                let ends: Vec<String> = paths.iter().filter_map(|path| ending(path)).collect();
                if ends.len() > 2 && ends.len() == paths.len() {
                    let regex = format!("(?i)(?:{})$", ends.join("|"));
                    return Ok(Expression::raw("request.path").matches(&regex));
                }
                for path in paths {
                    let pattern = match now {
                        Now::Below(prefix) if !in_filter => Pattern::read(path).below(prefix),
                        Now::Lost if !in_filter => {
                            return Err(format!("the path was rewritten before `{path}` is looked for"));
                        }
                        _ => Pattern::read(path),
                    };
                    any = any.or(pattern.expression());
                }
                any
            }
            Matcher::PathRegexp { pattern, .. } => {
                if *now != Now::Same && !in_filter {
                    return Err(format!("the path was rewritten before `{pattern}` is looked for"));
                }
                Expression::raw("request.path")
                    .matches(&Searching::read(pattern, false, Subject::Path)?.searching())
            }
            Matcher::Method(methods) => {
                Expression::raw("request.method").is_in(methods.iter().map(String::as_str))
            }
            Matcher::Header(fields) => fields.iter().try_fold(Expression::constant(true), |all, field| {
                Ok::<_, String>(all.and(header(field)?))
            })?,
            Matcher::Query(pairs) => {
                pairs.iter().try_fold(Expression::constant(true), |all, (name, values)| {
                    Ok::<_, String>(all.and(query(name, values)?))
                })?
            }
            Matcher::HeaderRegexp(fields) => {
                let mut all = Expression::constant(true);
                for (name, pattern) in fields {
                    let regex = Searching::read(pattern, false, Subject::Text)?;
                    let field = Expression::of("request.headers", name);
                    all = all.and(any_value(&field, &Expression::raw("v").matches(&regex.searching())));
                }
                all
            }
            Matcher::Client(nets) => Expression::raw("client.ip").is_in(nets.iter().map(String::as_str)),
            Matcher::Protocol(protocol) => match &**protocol {
                "https" | "http" => Expression::raw("request.scheme").equals(Expression::text(protocol)),
                "grpc" => Expression::of("request.headers", "content-type").starts_with("application/grpc"),
                other => return Err(format!("Weir does not tell the protocol `{other}` apart")),
            },
            Matcher::Not(sets) => self.expression(sets, now, in_filter)?.not(),
            Matcher::Expression(cel) => cel::translate(cel, self, now, in_filter)?,
            Matcher::File(_) => return Err("whether a file exists is no condition of a route".to_owned()),
            Matcher::Unknown(why) => return Err(why.clone()),
        })
    }

    /// A text for a setting.
    ///
    /// # Errors
    /// The placeholder that Weir lacks.
    pub(super) fn text(&self, text: &str) -> Result<Template, String> {
        text::template(text, &self.scope())
    }
}

/// The ending that a pattern asks for, as a regex.
fn ending(path: &str) -> Option<String> {
    match Pattern::read(path) {
        Pattern::Suffix(end) => Some(literal(&canonical(&end))),
        _ => None,
    }
}

/// Caddy looks at each value of a repeated field. `match.headers` matches no repeated field, so a client could get past
/// a guard by sending a field twice. So `match.headers` is used only for the presence of a field.
fn header((name, values): &(String, Option<Vec<String>>)) -> Result<Expression, String> {
    let field = || Expression::of("request.headers", name);
    let has = || Expression::raw(format!("has({})", field().as_str()));
    let Some(values) = values else { return Ok(has().not()) };
    if values.is_empty() {
        return Ok(has());
    }
    let mut any = Expression::constant(false);
    for value in values {
        let value = &*fixed(value)?;
        let inner = value.trim_matches('*');
        let v = || Expression::raw("v");
        any = any.or(match (value.starts_with('*'), value.ends_with('*')) {
            _ if inner.is_empty() && value.contains('*') => has(),
            (true, true) => any_value(&field(), &v().contains(inner)),
            (true, false) => any_value(&field(), &v().ends_with(inner)),
            (false, true) => any_value(&field(), &v().starts_with(inner)),
            (false, false) => any_value(&field(), &v().equals(Expression::text(value))),
        });
    }
    Ok(any)
}

/// Whether a condition holds for `v`, any of the values of a field or parameter that may be repeated.
fn any_value(of: &Expression, is: &Expression) -> Expression {
    Expression::raw(format!("{}.all().exists(v, {})", of.as_str(), is.as_str()))
}

/// A value as an expression can compare with it. Caddy fills in placeholders first: those of the environment are known.
fn fixed(value: &str) -> Result<String, String> {
    let known = text::template(value, &Scope::default()).ok().and_then(|template| template.as_literal());
    known.ok_or_else(|| format!("the value `{value}` is not fixed"))
}

/// A parameter that must have one of the values. Caddy looks at each of a repeated one.
fn query(name: &str, values: &[String]) -> Result<Expression, String> {
    fixed(name)?;
    let argument = || Expression::of("request.args", name);
    let mut any = Expression::constant(false);
    for value in values {
        let value = fixed(value)?;
        any = any.or(match &*value {
            "*" => Expression::raw(format!("has({})", argument().as_str())),
            value => any_value(&argument(), &Expression::raw("v").equals(Expression::text(value))),
        });
    }
    Ok(any)
}

/// Whether every host of `host` is one of `within`. Both may begin with `*.`.
pub(super) fn host_within(host: &str, within: &str) -> bool {
    match within.strip_prefix("*.") {
        _ if host == within => true,
        Some(end) => host.split_once('.').is_some_and(|(_, rest)| rest == end),
        None => within == "*",
    }
}
