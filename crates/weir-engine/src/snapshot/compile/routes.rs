//! Routes: their table, filters and targets.

use super::super::{Handling, Route, Target};
use super::arms::has_filters;
use super::filters::Filters;
use super::whens::Whens;
use super::{Compiler, listeners, upstreams};
use crate::fastcgi::Scripts;
use crate::files::{ByHeader, Site};
use std::collections::HashSet;
use std::sync::Arc;
use weir_config::check::is_for_match;
use weir_config::schema;
use weir_config::{Diagnostic, Node, Severity};
use weir_route::{Case, Conflict, ConflictKind, Exclusion, RouteSpec, Shown, Table, capture_names};

/// Warnings about paths with a better hint than that of a pattern that cannot be parsed.
const MIGRATED: &[&str] = &["literal-parameter", "query-in-path", "whole-path"];

impl Compiler<'_> {
    /// The table; `None` if routes are malformed, ambiguous or unreachable.
    pub(super) fn table(&mut self, mut whens: Whens) -> Option<Table> {
        let listener =
            |name: &String| self.config.listeners.names().position(|n| n == name).map(|i| i as u16);
        let ranked = self.config.ranked;
        let specs = (1..).zip(self.config.routes.written(self.tree.get("routes"))).map(|(rank, written)| {
            let route = written.thing;
            let m = &route.matches;
            RouteSpec {
                name: Arc::clone(written.name),
                hosts: m.hosts.iter().map(ToString::to_string).collect(),
                paths: m.path.iter().map(str::to_owned).collect(),
                case: path_case(m.case),
                methods: m.methods.to_vec(),
                headers: m.headers.0.to_vec(),
                query: m.query.0.to_vec(),
                cookies: m.cookies.0.to_vec(),
                clients: m.clients.iter().map(|network| network.0.to_string()).collect(),
                not: exclusions(&m.not, listener),
                listeners: m.listeners.iter().filter_map(listener).collect(),
                when: whens.remove(written.name),
                priority: route.priority,
                rank: ranked.then_some(rank),
                shown: written.node.and_then(|node| shown(node, m)).map(Box::new),
            }
        });
        match Table::build(specs) {
            Ok(table) => {
                self.endless_redirects(&table);
                self.lost_logins(&table);
                Some(table)
            }
            Err(conflicts) => {
                let names: Vec<&str> = self.config.routes.names().collect();
                let told: HashSet<String> = self
                    .found
                    .iter()
                    .filter(|d| d.severity == Severity::Error)
                    .map(|d| d.path.clone())
                    .collect();
                for c in conflicts.into_iter().filter(|c| !is_consequence(c, &names, &told)) {
                    let code = match c.kind {
                        ConflictKind::Ambiguous => "ambiguous-routes",
                        ConflictKind::Unreachable => "unreachable-route",
                        ConflictKind::BadClient => "bad-client",
                        ConflictKind::BadCookie => "bad-cookie",
                        ConflictKind::BadExclusion => "bad-exclusion",
                        ConflictKind::BadHeader => "bad-header",
                        ConflictKind::BadHost => "bad-host",
                        ConflictKind::BadMethod => "bad-method",
                        ConflictKind::BadPattern => "bad-pattern",
                        ConflictKind::BadQuery => "bad-query",
                    };
                    let name = names.get(c.route).copied().unwrap_or_default();
                    let example = c.example.map(|e| format!("; see `weir explain {e}`")).unwrap_or_default();
                    let path = format!("routes.{name}.{}", c.field);
                    let mut hint = format!("{}{example}", c.hint);
                    // For a path in another gateway's syntax, we know what was meant.
                    let is_meant = |d: &Diagnostic| d.path == path && MIGRATED.contains(&d.code);
                    let better = self.found.iter().find(|d| is_meant(d)).and_then(|d| d.hint.clone());
                    if let Some(better) = better.filter(|_| c.kind == ConflictKind::BadPattern) {
                        hint = better;
                        self.found.retain(|d| !is_meant(d));
                    }
                    let mut diagnostic = Diagnostic::error(code, c.message).on(self.tree, &path).hint(hint);
                    // The example involves both routes, whichever field is wrong.
                    for route in [Some(c.route), c.other].into_iter().flatten() {
                        let name = names.get(route).copied().unwrap_or_default();
                        if let Some(node) = self.tree.find(&format!("routes.{name}.match")) {
                            diagnostic = diagnostic.concealing(node);
                        }
                    }
                    self.found.push(diagnostic);
                }
                None
            }
        }
    }

    pub(super) fn route(
        &mut self,
        name: &Arc<str>,
        written: &schema::Route,
        global: &[u32],
        filters: &mut Filters<'_>,
    ) -> Option<Route> {
        // Only filters and our own answers need the parameters.
        let split = written.upstream.as_ref().filter(|split| has_filters(split));
        let asked = !written.filters.is_empty() || written.respond.is_some() || split.is_some();
        let captures = asked.then(|| captures(&written.matches)).flatten().unwrap_or_default();
        let shares = written.upstream.iter().flat_map(|split| &split.0);
        filters.targets = shares.map(|share| share.upstream.to_string()).collect();
        let errors = self.found.errors();
        let own = self.chain(&written.filters, &format!("routes.{name}"), Some(&captures), filters);
        filters.targets.clear();
        let mut chain = [global, &own].concat();
        let arms = match split {
            Some(split) => {
                let (target, draw) = self.arms(name, split, &captures, filters)?;
                chain.push(draw);
                Some(target)
            }
            None => None,
        };
        let target = match (&written.respond, &written.files, &written.upstream) {
            _ if let Some(arms) = arms => arms,
            (Some(respond), ..) => {
                Target::Respond(Box::new(self.answer(name, respond, (&captures, filters.vocabulary))?))
            }
            (_, Some(files), _) => self.site(name, files, written.fastcgi.as_deref())?,
            (.., Some(split)) => self.target(split)?,
            (None, None, None) if self.found.errors() > errors => return None, // its filter may be broken
            (None, None, None) => self.answered_by_filters(name, written, &chain, &filters.made)?,
        };
        let missing = written.files.as_ref().and_then(|files| files.missing.as_ref());
        let missing = match missing {
            Some(split) => Some(Box::new(self.target(split)?)),
            None => None,
        };
        let scripts = match &written.fastcgi {
            Some(scripts) => Some(self.scripts(name, scripts)?),
            None => None,
        };
        let by_header = match &written.files_by_header {
            Some(written) => Some(self.by_header(name, written)?),
            None => None,
        };
        let handling = self.share(Handling {
            missing,
            scripts,
            by_header,
            chain: chain.into(),
            global: global.len(),
            target,
            escaped_slashes: written.escaped_slashes.map(listeners::escaped_slashes),
            early_data: written.early_data,
            response_timeout: written.timeouts.response.map(|t| t.get()),
            exchange_timeout: written.timeouts.exchange.map(|t| t.get()),
            client_gone: written.client_gone.map(upstreams::client_gone),
        });
        Some(Route { name: Arc::clone(name), handling, series: self.carry.telemetry.route(name) })
    }

    fn scripts(&mut self, route: &str, written: &schema::FastCgi) -> Option<Arc<Scripts>> {
        match Scripts::new(written) {
            Ok(scripts) => Some(Arc::new(scripts)),
            Err((key, message)) => {
                let hint = "write the folder with the scripts, or `root_remote: true` if it is on the machine of the FastCGI server";
                self.error(
                    &format!("routes.{route}.fastcgi.{key}"),
                    "missing-root",
                    message,
                    Some(hint.into()),
                );
                None
            }
        }
    }

    fn by_header(&mut self, route: &str, written: &schema::FilesByHeader) -> Option<Arc<ByHeader>> {
        match ByHeader::new(written) {
            Ok(by_header) => Some(Arc::new(by_header)),
            Err((field, prefix, message)) => {
                let dot = if prefix.is_empty() { "" } else { "." };
                let place = format!("routes.{route}.files_by_header.{field}{dot}{prefix}");
                let hint = "make the folder, or write the path of another";
                self.error(&place, "missing-root", message, Some(hint.into()));
                None
            }
        }
    }

    fn site(
        &mut self,
        route: &str,
        written: &schema::Files,
        scripts: Option<&schema::FastCgi>,
    ) -> Option<Target> {
        match Site::new(written, scripts.map(|scripts| scripts.split.as_str())) {
            Ok(site) => Some(Target::Files(Arc::new(site))),
            Err((key, message)) => {
                let (code, hint) = match key {
                    "root" => ("missing-root", Some("make the folder, or write the path of another".into())),
                    _ => ("bad-value", None),
                };
                self.error(&format!("routes.{route}.files.{key}"), code, message, hint);
                None
            }
        }
    }

    /// Shares one handling among all routes that need the same: see [`Handling`]. Chains show which filters are
    /// global.
    fn share(&mut self, handling: Handling) -> Arc<Handling> {
        let (Target::Upstream(upstream), None, None) =
            (&handling.target, &handling.scripts, &handling.by_header)
        else {
            return Arc::new(handling);
        };
        let upstream = *upstream;
        let Handling { chain, response_timeout, exchange_timeout, escaped_slashes, client_gone, .. } =
            &handling;
        let times = (*response_timeout, *exchange_timeout);
        let key = (chain.clone(), upstream, times, *escaped_slashes, *client_gone, handling.early_data);
        Arc::clone(self.handlings.entry(key).or_insert_with(|| Arc::new(handling)))
    }
}

/// The names that a route captures; `None` if its path is malformed.
pub(super) fn captures(matches: &schema::Match) -> Option<Vec<String>> {
    capture_names(matches.hosts.iter().map(|host| &**host), matches.path.iter(), path_case(matches.case))
}

fn path_case(written: schema::Case) -> Case {
    match written {
        schema::Case::Insensitive => Case::Insensitive,
        schema::Case::Sensitive => Case::Sensitive,
    }
}

fn exclusions(written: &schema::Exclusions, listener: impl Fn(&String) -> Option<u16>) -> Vec<Exclusion> {
    let one = |(at, not): (usize, &schema::Exclusion)| Exclusion {
        place: written.place(at),
        hosts: not.hosts.iter().map(ToString::to_string).collect(),
        paths: not.path.iter().flat_map(|paths| paths.iter()).map(str::to_owned).collect(),
        case: path_case(not.case),
        methods: not.methods.to_vec(),
        headers: not.headers.0.to_vec(),
        query: not.query.0.to_vec(),
        cookies: not.cookies.0.to_vec(),
        clients: not.clients.iter().map(|network| network.0.to_string()).collect(),
        listeners: not.listeners.iter().filter_map(&listener).collect(),
    };
    written.all.iter().enumerate().map(one).collect()
}

/// How to show a route's `match` if part of it came from outside.
fn shown(route: &Node, matches: &schema::Match) -> Option<Shown> {
    let node = route.get("match")?;
    let parts = [node.get("hosts"), node.get("path"), node.get("methods")];
    let came = |part: &Node| part.substituted || part.elements().iter().any(|e| e.substituted);
    if !parts.iter().flatten().any(|part| came(part)) {
        return None;
    }
    let [hosts, path, methods] = parts.map(|part| {
        let each = part.into_iter().flat_map(|part| [std::slice::from_ref(part), part.elements()]).flatten();
        each.filter_map(Node::written).map(str::to_owned).collect::<Vec<_>>()
    });
    let paths = match path.is_empty() {
        true => matches.path.iter().map(str::to_owned).collect(),
        false => path,
    };
    Some(Shown { hosts, paths, methods })
}

/// Whether a conflict only follows from reported errors: the same value is wrong, or a `match` was not understood and
/// stands for every request.
fn is_consequence(conflict: &Conflict, names: &[&str], told: &HashSet<String>) -> bool {
    let is_told = |route: usize, field: &str| {
        let name = names.get(route).copied().unwrap_or_default();
        told.contains(&format!("routes.{name}{field}"))
    };
    // The condition was written under an unknown key.
    let is_matched_otherwise = |route: usize| {
        let name = names.get(route).copied().unwrap_or_default();
        told.iter().any(|path| {
            let key = path.strip_prefix("routes.").and_then(|path| path.strip_prefix(name));
            key.is_some_and(|key| match key.strip_prefix(".match.") {
                Some(key) => is_for_match(key, true),
                None => key.strip_prefix('.').is_some_and(|key| is_for_match(key, false)),
            })
        })
    };
    match conflict.kind {
        ConflictKind::Ambiguous | ConflictKind::Unreachable => {
            [Some(conflict.route), conflict.other].into_iter().flatten().any(|route| {
                let fields = ["", ".match", ".match.path", ".match.hosts", ".match.not", ".match.when"];
                fields.iter().any(|field| is_told(route, field)) || is_matched_otherwise(route)
            })
        }
        _ => is_told(conflict.route, &format!(".{}", conflict.field)),
    }
}
