//! Caddy: Caddyfiles, and the JSON that `caddy adapt` prints.
//!
//! ```text
//! Caddyfile ─words─▶ lines ─file─▶ sites ─adapt, site─▶ ┐
//! JSON ─json──────────────────────────────────────────▶ model: servers with routes of matchers and handlers
//!                                                        └─flow─▶ each way through them ─emit─▶ routes
//! ```
//! [`flow`] explains how a list of handlers becomes routes. What guards a route and cannot be translated closes it
//! (503), so that nothing becomes open by an import.

mod adapt;
mod address;
mod cel;
mod emit;
mod errors;
mod file;
mod flow;
mod json;
mod listeners;
mod matchers;
mod model;
mod options;
mod order;
mod path;
mod proxy;
mod site;
pub(crate) mod stage;
mod syntax;
mod target;
mod text;
mod values;
mod verdicts;
mod world;

use crate::config::{Config, Match, Route as OurRoute, Target};
use crate::ledger::{Ledger, Piece};
use crate::shared::families;
use crate::source::{SourceFile, SourceTree, Unreadable};
use crate::system::System;
use crate::yaml::Map;
use model::{Handler, Kind, Listen, Route};
use site::Adapted;
use std::collections::{BTreeMap, BTreeSet};

/// Caddy 2, with its standard modules.
pub(crate) static SYSTEM: System =
    System { name: "caddy", title: "Caddy", files: "Caddyfile, or JSON from `caddy adapt`", import };

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let mut config = Config::default();
    let adapted = read(tree, &mut config, ledger)?;
    translate(&adapted, &mut config, ledger);
    secrets(&mut config);
    Ok(config)
}

/// Values of variables that the check needs.
fn secrets(config: &mut Config) {
    if config.upstreams.iter().any(|(_, upstream)| upstream.more.get("sticky").is_some()) {
        let value = "replace-this-by-a-long-random-text-that-all-gateways-share";
        config.secrets.push((proxy::STICKY_KEY.to_owned(), value.to_owned()));
    }
    // A variable that is a whole address has a port too.
    let marked = |name: &str| format!("{}{name}{}", crate::yaml::VARIABLE_BEGIN, crate::yaml::VARIABLE_END);
    let endpoints = config.upstreams.iter().flat_map(|(_, upstream)| &upstream.endpoints);
    let addresses: BTreeSet<String> = endpoints.map(|endpoint| endpoint.address.clone()).collect();
    for (name, value) in &mut config.secrets {
        if addresses.contains(&marked(name)) {
            value.push_str(":80");
        }
    }
}

/// Reads the files, whichever form they have.
fn read(tree: &mut SourceTree<'_>, config: &mut Config, ledger: &mut Ledger) -> Result<Adapted, Unreadable> {
    let given = tree.given().to_vec();
    let mut files: Vec<SourceFile> = Vec::new();
    for path in &given {
        files.push(tree.read(path)?);
    }
    if let [file] = &*files
        && is_json(file)
    {
        return json::adapt(file, config, ledger);
    }
    if let Some(file) = files.iter().find(|file| is_json(file)) {
        return Err(Unreadable::anywhere(format!("{}: JSON is a whole config: import it alone", file.name)));
    }
    let file = file::read(tree, &files, ledger)?;
    let options = options::read(&file.options, config, ledger);
    let adapted = site::adapt(&file, &options, config, ledger);
    for (name, default) in &file.variables {
        if default.is_none() {
            // Named for the check only: the environment has the value.
            config.secrets.push((name.clone(), stand_in(name)));
            ledger.note(format!("{name} comes from the environment: set it there, or in secrets.env"));
        } else {
            ledger.note(format!("{name} comes from the environment where it is set there"));
        }
    }
    Ok(adapted)
}

/// A value for a variable that only the environment knows.
fn stand_in(name: &str) -> String {
    format!("{}.invalid", name.to_ascii_lowercase().replace('_', "-"))
}

/// JSON by its name, or because it begins as an object does: a Caddyfile may begin with `{` too, but not with a text
/// behind it.
fn is_json(file: &SourceFile) -> bool {
    let begins = |text: &str| {
        let text = text.trim_start();
        text.strip_prefix('{').is_some_and(|rest| {
            let rest = rest.trim_start();
            rest.starts_with('}') && rest[1..].trim().is_empty()
                || rest
                    .strip_prefix('"')
                    .and_then(|rest| rest.split_once('"'))
                    .is_some_and(|(_, rest)| rest.trim_start().starts_with(':'))
        })
    };
    file.name.ends_with(".json") || begins(&file.text)
}

fn translate(adapted: &Adapted, config: &mut Config, ledger: &mut Ledger) {
    let mut listens: Vec<Listen> = adapted.servers.iter().flat_map(|server| server.listens.clone()).collect();
    // Those for all addresses first: where `weir check` refuses another beside one, the public sites stay.
    let takes_both = |listen: &Listen| listen.address.starts_with("[::]:");
    listens.sort_by_key(|listen| (!takes_both(listen), listen.clone()));
    listens.dedup();
    let names = adapted.plan.listeners(&listens, config);
    if listens.iter().any(takes_both) {
        ledger.note(families::takes_both("Caddy does where no address is named"));
    }
    let (mut upstreams, mut users, mut visited) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    // With TLS, a name that no site has ends in the handshake already.
    let mut open: BTreeSet<&Listen> = listens.iter().filter(|listen| !listen.tls).collect();
    for server in &adapted.servers {
        let tls = match &*server.listens {
            all if all.iter().all(|listen| listen.tls) => Some(true),
            all if all.iter().all(|listen| !listen.tls) => Some(false),
            _ => None,
        };
        let mut flow = flow::Flow {
            ledger,
            config,
            branches: Vec::new(),
            upstreams: &mut upstreams,
            users: &mut users,
            visited: &mut visited,
            overflows: false,
        };
        flow.follow(&server.routes, world::World { tls, ..world::World::default() });
        if flow.overflows {
            let first = server.routes.first().and_then(|route| route.pieces.first());
            if let Some(piece) = first {
                let why = "its conditions can be met in more ways than a person could read. It answers 503";
                flow.ledger.refused(*piece, why, "fewer conditions on one site");
            }
            // The ways that were not followed may be those that keep somebody out.
            for branch in &mut flow.branches {
                branch.out = flow::Out::Closed("there are too many ways through its conditions".to_owned());
            }
        }
        let mut branches = std::mem::take(&mut flow.branches);
        // What no site takes is one route for all listeners, below.
        let is_rest = |branch: &flow::Branch| {
            branch.world.hosts.is_empty()
                && branch.out == flow::Out::Nothing
                && branch.world.pieces.is_empty()
        };
        let has_rest = branches.iter().any(is_rest);
        branches.retain(|branch| !is_rest(branch));
        if !has_rest {
            server.listens.iter().for_each(|listen| _ = open.remove(listen));
        }
        let of = |listen: &Listen| names.get(listen).cloned();
        let own: Vec<String> = server.listens.iter().filter_map(of).collect();
        let name = own.first().cloned().unwrap_or_default();
        let listeners = if own.len() == listens.len() { Vec::new() } else { own };
        let mut around = emit::Around { ledger, config, listeners, pages: &adapted.pages, name };
        emit::emit(branches, &mut around);
    }
    rest(&open, &listens, &names, config);
    // Statements that no request reaches.
    for server in &adapted.servers {
        unreached(&server.routes, &visited, ledger);
    }
    ledger.note("Weir adds Forwarded, X-Forwarded-Port and the like to requests for upstreams, beside what Caddy adds");
    ledger.note("Weir refuses paths that servers read differently: with a backslash, or with a %2F that decides (400)");
}

/// Caddy answers 200 without a body where no site takes a request.
fn rest(open: &BTreeSet<&Listen>, all: &[Listen], names: &BTreeMap<Listen, String>, config: &mut Config) {
    if open.is_empty() {
        return;
    }
    let comment = "Caddy answers 200 without a body where no site takes a request. Without this route Weir answers 404.";
    let listeners: Vec<String> = match open.len() == all.len() {
        true => Vec::new(),
        false => open.iter().filter_map(|listen| names.get(*listen).cloned()).collect(),
    };
    let route = OurRoute {
        file: "unknown".to_owned(),
        comment: vec![comment.to_owned()],
        matches: Match { listeners, ..Match::default() },
        target: Some(Target::Respond(Map::new())),
        ..OurRoute::default()
    };
    config.routes.add("unknown", route);
}

fn unreached(routes: &[Route], visited: &BTreeSet<Piece>, ledger: &mut Ledger) {
    let leave = |piece: Piece, ledger: &mut Ledger| {
        if !visited.contains(&piece) {
            ledger.by_itself(piece, "no request reaches it: another line takes them all before");
        }
    };
    for route in routes {
        for Handler { kind, piece } in &route.handlers {
            leave(*piece, ledger);
            if let Kind::Subroute(inner) = kind {
                unreached(inner, visited, ledger);
            }
        }
    }
}
