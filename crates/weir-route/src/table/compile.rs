//! Compiles a route as written, and reports everything wrong with it.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use weir_expr::Networks;

use super::super::compiled::{Route, RouteSpec, Shown};
use super::super::conflict::{Conflict, ConflictKind};
use super::super::exclusion::Exclusion;
use super::super::host::HostPattern;
use super::super::matcher::{self, Clients, Conditions, Excluded, Field, Rarer, Test};
use super::super::pattern::{Case, Class, Pattern, PatternError};

/// The mistakes of one route, in a part of its `match`.
struct Place<'c> {
    route: usize,
    /// `match`, or that of an exclusion.
    section: String,
    conflicts: &'c mut Vec<Conflict>,
}

impl Route {
    /// Adds the route to `compiled`, once for each of its paths; once as `None` if it has a mistake. `lists` holds the
    /// hosts of earlier routes.
    pub(super) fn compile(
        index: usize,
        spec: RouteSpec,
        lists: &mut HashSet<Arc<[HostPattern]>, RandomState>,
        conflicts: &mut Vec<Conflict>,
        compiled: &mut Vec<Option<Self>>,
    ) {
        let before = conflicts.len();
        let mut place = Place { route: index, section: "match".to_owned(), conflicts };
        let mut hosts = place.hosts(&spec.hosts);
        if spec.hosts.is_empty() {
            hosts.push(HostPattern::Any);
        }
        // Regexes stay as written: of two that match, the first captures.
        hosts.sort_by(|a, b| match (a, b) {
            (HostPattern::Regex(_), HostPattern::Regex(_)) => Ordering::Equal,
            _ => a.cmp(b),
        });
        hosts.dedup();
        let methods = place.methods(&spec.methods);
        let headers = place.headers(&spec.headers);
        let query = place.query(&spec.query);
        let rarer = Rarer {
            clients: place.clients(&spec.clients),
            cookies: place.cookies(&spec.cookies),
            not: spec.not.into_iter().map(|not| place.excluded(not)).collect(),
        };
        let any = ["/*".to_owned()];
        let written = if spec.paths.is_empty() { &any } else { &*spec.paths };
        let patterns = place.paths(written, spec.case);
        patterns.iter().for_each(|pattern| place.captured_twice(&hosts, pattern));
        let listeners = spec.listeners;
        let is_rare = rarer.clients.is_some() || !rarer.cookies.is_empty() || !rarer.not.is_empty();
        let rarer = is_rare.then(|| Box::new(rarer));
        let conditions = Conditions { methods, listeners, headers, query, when: spec.when, rarer };
        if conflicts.len() != before {
            return compiled.push(None);
        }
        let mut pairs = hosts.iter().zip(&spec.hosts);
        let as_compiled = spec.hosts.is_empty()
            || hosts.len() == spec.hosts.len() && pairs.all(|(host, written)| host.to_text() == *written);
        let written_hosts: Box<[String]> = if as_compiled { Box::default() } else { spec.hosts.into() };
        let hosts = lists.get(&*hosts).cloned().unwrap_or_else(|| {
            let list: Arc<[HostPattern]> = hosts.into();
            lists.insert(Arc::clone(&list));
            list
        });
        let conditions = Some(Box::new(conditions)).filter(|conditions| !conditions.is_empty());
        let begin = compiled.len();
        for (at, pattern) in patterns.into_iter().enumerate() {
            let shown = spec.shown.as_ref().map(|shown| {
                let paths = shown.paths.get(at).cloned().into_iter().collect();
                Box::new(Shown { paths, ..(**shown).clone() })
            });
            compiled.push(Some(Self {
                name: Arc::clone(&spec.name),
                priority: spec.priority,
                rank: spec.rank.unwrap_or_default(),
                hosts: Arc::clone(&hosts),
                written_hosts: written_hosts.clone(),
                pattern,
                conditions: conditions.clone(),
                shown,
            }));
        }
        let mut place = Place { route: index, section: "match".to_owned(), conflicts };
        place.nothing_left(compiled.get(begin..).unwrap_or_default());
        if conflicts.len() != before {
            compiled.truncate(begin);
            compiled.push(None);
        }
    }
}

// === impl Place ===

impl Place<'_> {
    fn bad(&mut self, kind: ConflictKind, field: &str, error: PatternError) {
        let PatternError { message, hint } = error;
        let field = format!("{}.{field}", self.section);
        let conflict = Conflict { kind, route: self.route, other: None, field, message, hint, example: None };
        self.conflicts.push(conflict);
    }

    /// Those that are sound of a list.
    fn each<T>(
        &mut self,
        (kind, key): (ConflictKind, &str),
        written: &[String],
        parse: fn(&str) -> Result<T, PatternError>,
    ) -> Vec<T> {
        let mut sound = Vec::with_capacity(written.len());
        for (at, text) in written.iter().enumerate() {
            match parse(text) {
                Ok(one) => sound.push(one),
                Err(error) => self.bad(kind, &format!("{key}[{at}]"), error),
            }
        }
        sound
    }

    fn hosts(&mut self, written: &[String]) -> Vec<HostPattern> {
        self.each((ConflictKind::BadHost, "hosts"), written, HostPattern::parse)
    }

    fn methods(&mut self, written: &[String]) -> Vec<Box<[u8]>> {
        self.each((ConflictKind::BadMethod, "methods"), written, matcher::parse_method)
    }

    fn headers(&mut self, written: &[(String, String)]) -> Vec<Field> {
        let name = |name: &str| matcher::is_token(name).then(|| name.to_ascii_lowercase());
        self.fields((ConflictKind::BadHeader, "headers"), written, Test::header, name)
    }

    fn query(&mut self, written: &[(String, String)]) -> Vec<Field> {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        self.fields((ConflictKind::BadQuery, "query"), written, Test::query, name)
    }

    fn cookies(&mut self, written: &[(String, String)]) -> Vec<Field> {
        let name = |name: &str| matcher::is_token(name).then(|| name.to_owned());
        self.fields((ConflictKind::BadCookie, "cookies"), written, Test::cookie, name)
    }

    fn fields(
        &mut self,
        (kind, key): (ConflictKind, &str),
        written: &[(String, String)],
        test: fn(&str) -> Result<Test, PatternError>,
        name_of: impl Fn(&str) -> Option<String>,
    ) -> Vec<Field> {
        let mut fields: Vec<Field> = Vec::with_capacity(written.len());
        for (written, value) in written {
            let refused = |message: String, hint: &str| PatternError { message, hint: hint.to_owned() };
            let field = match name_of(written) {
                None => Err(refused(
                    format!("`{written}` is not a name"),
                    "expected a name as written in a request",
                )),
                Some(name) if fields.iter().any(|field| *field.name == *name) => Err(refused(
                    format!("`{name}` occurs twice"),
                    "one name has one condition; use a `~regex` for several values",
                )),
                Some(name) => test(value).map(|test| Field { name: name.into(), test }),
            };
            match field {
                Ok(field) => fields.push(field),
                Err(error) => self.bad(kind, &format!("{key}.{written}"), error),
            }
        }
        fields
    }

    fn clients(&mut self, written: &[String]) -> Option<Clients> {
        match Networks::parse(written.iter().map(String::as_str)) {
            _ if written.is_empty() => None,
            Ok(networks) => Some(Clients { networks, text: written.join(", ").into() }),
            Err(at) => {
                let message = format!("`{}` is not a network", written[at]);
                let hint = "write `10.0.0.0/8`, `2001:db8::/32` or an address".to_owned();
                self.bad(ConflictKind::BadClient, &format!("clients[{at}]"), PatternError { message, hint });
                None
            }
        }
    }

    fn path(&mut self, key: &str, written: &str, case: Case) -> Option<Pattern> {
        match Pattern::parse(written, case) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                let is_case = written.starts_with('~') && case == Case::Insensitive;
                self.bad(ConflictKind::BadPattern, if is_case { "case" } else { key }, error);
                None
            }
        }
    }

    /// Of a list, one may not match the same paths as another.
    fn paths(&mut self, written: &[String], case: Case) -> Vec<Pattern> {
        let key = |at: usize| if written.len() > 1 { format!("path[{at}]") } else { "path".to_owned() };
        let mut patterns: Vec<Pattern> = Vec::with_capacity(written.len());
        let mut known: HashMap<String, String> = HashMap::new();
        for (at, path) in written.iter().enumerate() {
            let Some(pattern) = self.path(&key(at), path, case) else { continue };
            if written.len() > 1 {
                let shape = match pattern.class() {
                    Class::Regex => path.clone(),
                    Class::Exact | Class::Prefix => pattern.shape_key(),
                };
                if let Some(same) = known.insert(shape, path.clone()) {
                    let message = format!("`{path}` matches the same paths as `{same}`");
                    let error = PatternError { message, hint: "leave one of them out".to_owned() };
                    self.bad(ConflictKind::BadPattern, &key(at), error);
                }
            }
            patterns.push(pattern);
        }
        patterns
    }

    fn excluded(&mut self, written: Exclusion) -> Excluded {
        let mut place = Place {
            route: self.route,
            section: format!("match.{}", written.place),
            conflicts: &mut *self.conflicts,
        };
        let hosts = place.hosts(&written.hosts);
        let paths = place.paths(&written.paths, written.case);
        let methods = place.methods(&written.methods);
        let headers = place.headers(&written.headers);
        let query = place.query(&written.query);
        let rarer = Rarer {
            clients: place.clients(&written.clients),
            cookies: place.cookies(&written.cookies),
            not: Vec::new(),
        };
        let is_rare = rarer.clients.is_some() || !rarer.cookies.is_empty();
        let rarer = is_rare.then(|| Box::new(rarer));
        let listeners = written.listeners.clone();
        let conditions = Conditions { methods, listeners, headers, query, when: None, rarer };
        Excluded { written, hosts, paths, conditions }
    }

    /// A name that the path captures and a host too would have two values.
    fn captured_twice(&mut self, hosts: &[HostPattern], pattern: &Pattern) {
        let names = pattern.capture_names();
        for (at, host) in hosts.iter().enumerate() {
            let HostPattern::Regex(regex) = host else { continue };
            if let Some(name) = regex.names().find(|name| names.contains(name)) {
                let message = format!("`{name}` is captured by the path too");
                let hint = "give one of them another name".to_owned();
                self.bad(ConflictKind::BadHost, &format!("hosts[{at}]"), PatternError { message, hint });
            }
        }
    }

    /// An exclusion that leaves no request to any path of the route.
    fn nothing_left(&mut self, paths: &[Option<Route>]) {
        let conditions = paths.first().and_then(|route| Some(route.as_ref()?.conditions()));
        for excluded in conditions.map_or(&[][..], |conditions| conditions.not()) {
            let all = excluded.takes_everything();
            let of_route = |route: &Route| route.hosts.iter().all(|host| excluded.takes_all_of(route, host));
            if !all && !paths.iter().flatten().all(of_route) {
                continue;
            }
            let message = match all {
                true => "this excludes every request, so the route never wins",
                false => "this excludes every request that the route matches, so it never wins",
            };
            let hint = "write in it only what the route must not match".to_owned();
            let error = PatternError { message: message.to_owned(), hint };
            self.bad(ConflictKind::BadExclusion, &excluded.written.place, error);
        }
    }
}
