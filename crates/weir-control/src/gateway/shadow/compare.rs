//! Compares what two configs decide about a request, and names the first setting that makes the difference.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use weir_config::schema::{Config, Match, Route};
use weir_config::{Node, Value};
use weir_engine::shadow::{Decision, How, Judge, Outcome, Passed};
use weir_engine::snapshot::{Instance, Snapshot, Target};

/// One config, as the comparison needs it.
pub(super) struct Side {
    pub(super) config: Arc<Config>,
    pub(super) snapshot: Arc<Snapshot>,
    /// The config as written, for the names of settings.
    pub(super) tree: Node,
}

/// Compares decisions of the running config and of a candidate.
pub(super) struct Compare {
    running: Side,
    candidate: Side,
    /// The first difference between the targets of two routes, by their indexes.
    targets: RefCell<HashMap<(usize, usize), Option<String>>>,
}

/// The name of what draws an arm of a split whose arms have filters.
const SPLIT: &str = "split";

/// A changed decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// What is decided now, and with the candidate.
    pub(super) before: String,
    pub(super) after: String,
    /// The first setting that differs.
    pub(super) key: String,
    /// It is about a filter that was not run, so the verdict is not known.
    pub(super) estimate: bool,
}

/// What differs first, and whether its effect is only estimated.
type First = (String, bool);

impl Compare {
    pub(super) fn new(running: Side, candidate: Side) -> Self {
        Self { running, candidate, targets: RefCell::default() }
    }

    /// How the decisions differ; `None` if they do not.
    pub(super) fn change(&self, judge: &Judge, before: &Decision, after: &Decision) -> Option<Change> {
        let (key, estimate) = self.first(judge, before, after)?;
        Some(Change { before: self.running.words(before), after: self.candidate.words(after), key, estimate })
    }

    /// A decision of the running config, in words.
    pub(super) fn running_words(&self, decision: &Decision) -> String {
        self.running.words(decision)
    }

    fn first(&self, judge: &Judge, before: &Decision, after: &Decision) -> Option<First> {
        let exact = |key: String| Some((key, false));
        let names = (self.running.route(before), self.candidate.route(after));
        if names.0 != names.1 || (before.route.is_none() && before.outcome != after.outcome) {
            return exact(self.route_key(before, after, names));
        }
        if let Some(found) = self.filter_key(judge, before, after) {
            return Some(found);
        }
        let caller = |decision: &Decision| (decision.consumer.clone(), decision.plan.clone());
        if caller(before) != caller(after) {
            let name = after.consumer.as_deref().or(before.consumer.as_deref()).unwrap_or_default();
            let key = if before.consumer == after.consumer { ".plan" } else { "" };
            return exact(format!("consumers.{name}{key}"));
        }
        let (Some(old), Some(new)) = (before.route, after.route) else { return None };
        if before.outcome != Outcome::Target {
            return None;
        }
        let mut targets = self.targets.borrow_mut();
        let found = targets.entry((old, new)).or_insert_with(|| self.target_key(old, new));
        found.clone().map(|key| (key, false))
    }

    /// Why another route is taken, or none.
    fn route_key(&self, before: &Decision, after: &Decision, names: (Option<&str>, Option<&str>)) -> String {
        if before.outcome == Outcome::NoListener || after.outcome == Outcome::NoListener {
            return "listeners".to_owned();
        }
        let of_match = |name: &str| {
            let of = |side: &Side| side.config.routes.get(name).map(|route| route.matches.clone());
            match (of(&self.running), of(&self.candidate)) {
                (Some(old), Some(new)) if old == new => None,
                (Some(_), Some(_)) => Some(format!("routes.{name}.match")),
                _ => Some(format!("routes.{name}")), // added or removed
            }
        };
        let found = names.1.and_then(of_match).or_else(|| names.0.and_then(of_match));
        let priority = |name: &str| {
            let of = |side: &Side| side.config.routes.get(name).map(|route| route.priority);
            (of(&self.running) != of(&self.candidate)).then(|| format!("routes.{name}.priority"))
        };
        let found = found.or_else(|| names.1.and_then(priority)).or_else(|| names.0.and_then(priority));
        found.unwrap_or_else(|| match [&self.running, &self.candidate].map(|side| &side.config) {
            [old, new] if old.trusted_proxies != new.trusted_proxies => "trusted_proxies".to_owned(),
            [old, new] if old.limits != new.limits => "limits".to_owned(),
            [old, new] if old.listeners != new.listeners => "listeners".to_owned(),
            _ => "routes".to_owned(),
        })
    }

    /// The first filter that differs, in itself or in its verdict.
    fn filter_key(&self, judge: &Judge, before: &Decision, after: &Decision) -> Option<First> {
        let splits = |side: &Side, passed: &Passed| side.filter(*passed).name == SPLIT;
        let mut old = before.filters.clone();
        let new = &after.filters;
        // Once no arm has filters, nothing draws an arm before the target does.
        if !new.iter().any(|passed| splits(&self.candidate, passed)) {
            old.retain(|passed| !splits(&self.running, passed));
        }
        for (&was, &is) in old.iter().zip(new) {
            if !judge.is_same(was.filter, is.filter) {
                let (ours, theirs) = (self.running.filter(was), self.candidate.filter(is));
                return Some((self.filter_difference(ours, theirs), uncertain(was) || uncertain(is)));
            }
        }
        let stops = |decision: &Decision| decision.outcome != Outcome::Target;
        let shared = old.len().min(new.len());
        if before.outcome != after.outcome && shared > 0 && (stops(before) || stops(after)) {
            // The same filter decides otherwise, by what it knows of the caller or of other filters.
            let stopper = |decision: &Decision| match decision.outcome {
                Outcome::Answered { filter, .. } | Outcome::Refused { filter: Some(filter), .. } => {
                    Some(filter)
                }
                _ => None,
            };
            let is_last = |decision: &Decision, filters: &[Passed]| {
                let last = filters.get(shared - 1).map(|passed| passed.filter);
                filters.len() == shared && stopper(decision).is_some() && stopper(decision) == last
            };
            if is_last(before, &old) || is_last(after, new) {
                let passed = *old.get(shared - 1)?;
                let place = place_of(self.running.filter(passed));
                return Some((place, uncertain(passed)));
            }
        }
        match (old.get(shared), new.get(shared)) {
            (None, None) => {
                let other = before.outcome != after.outcome;
                other.then(|| (format!("routes.{}", self.running.route(before).unwrap_or_default()), false))
            }
            (Some(&gone), _) => Some((place_of(self.running.filter(gone)), uncertain(gone))),
            (None, Some(&added)) => Some((place_of(self.candidate.filter(added)), uncertain(added))),
        }
    }

    /// How two filters at one position differ.
    fn filter_difference(&self, ours: &Instance, theirs: &Instance) -> String {
        if ours.name != theirs.name {
            return place_of(theirs);
        }
        match json_difference(&ours.settings, &theirs.settings) {
            Some(key) => format!("{}{key}", place_of(theirs)),
            None if ours.hidden != theirs.hidden => format!("{} (a hidden value)", place_of(theirs)),
            // Its credentials.
            None => self.consumer_key(ours.name),
        }
    }

    /// The first consumer whose credentials for a kind of filter differ.
    fn consumer_key(&self, kind: &str) -> String {
        let (old, new) = (&self.running.config.consumers, &self.candidate.config.consumers);
        let mut names = new.names().chain(old.names());
        let differs = |name: &&str| old.get(name) != new.get(name);
        names.find(differs).map_or_else(|| "consumers".to_owned(), |name| format!("consumers.{name}.{kind}"))
    }

    /// The first difference between the targets of two routes of one name.
    fn target_key(&self, old: usize, new: usize) -> Option<String> {
        let name = |side: &Side, at: usize| side.snapshot.routes.get(at).map(|route| Arc::clone(&route.name));
        let name = name(&self.candidate, new).or_else(|| name(&self.running, old))?;
        let routes = [&self.running, &self.candidate].map(|side| side.config.routes.get(&name).map(rest));
        let of = |key: String| {
            let [ours, theirs] = [&self.running, &self.candidate].map(|side| side.tree.find(&key));
            node_difference(ours, theirs, &key, COMPARED).unwrap_or(key)
        };
        if routes[0] != routes[1] {
            return Some(of(format!("routes.{name}")));
        }
        let shares = self.candidate.config.routes.get(&name).into_iter().flat_map(Route::shares);
        shares.map(|share| &share.upstream).find_map(|upstream| {
            let of_side = |side: &Side| side.config.upstreams.get(upstream).cloned();
            (of_side(&self.running) != of_side(&self.candidate)).then(|| of(format!("upstreams.{upstream}")))
        })
    }

    /// Differences that no decision shows: settings of the process and of listeners.
    pub(super) fn not_judged(&self) -> Vec<String> {
        let (old, new) = (&self.running.tree, &self.candidate.tree);
        let keys = old.entries().iter().chain(new.entries()).map(|(key, _)| &*key.text);
        let mut keys: Vec<&str> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let judged =
            ["consumers", "filters", "include", "maps", "plans", "routes", "trusted_proxies", "upstreams"];
        keys.retain(|key| !judged.contains(key) && old.get(key) != new.get(key));
        let name = |key: &str| {
            let [ours, theirs] = [old, new].map(|tree| tree.get(key));
            node_difference(ours, theirs, key, &[]).unwrap_or_else(|| key.to_owned())
        };
        keys.into_iter().map(name).collect()
    }
}

// === impl Side ===

impl Side {
    fn route(&self, decision: &Decision) -> Option<&str> {
        Some(&*self.snapshot.routes.get(decision.route?)?.name)
    }

    fn filter(&self, passed: Passed) -> &Instance {
        &self.snapshot.filters[passed.filter as usize]
    }

    /// A decision in words.
    pub(super) fn words(&self, decision: &Decision) -> String {
        let mut text = String::new();
        if let Some(route) = self.route(decision) {
            let _ = write!(text, "route {route}"); // a String takes everything
        }
        let name = |filter: u32| self.snapshot.filters.get(filter as usize).map_or("", |one| one.name);
        let colon = if text.is_empty() { "" } else { ": " };
        let _ = match &decision.outcome {
            Outcome::NoListener => write!(text, "no listener"),
            Outcome::Answered { filter, status, .. } => write!(text, "{colon}{status} by {}", name(*filter)),
            Outcome::Refused { filter: None, cause } => {
                write!(text, "{colon}{} {}", cause.status, cause.code)
            }
            Outcome::Refused { filter: Some(filter), cause } => {
                write!(text, "{colon}{} {} by {}", cause.status, cause.code, name(*filter))
            }
            Outcome::Target => write!(text, "{colon}{}", self.target(decision)),
        };
        let would = decision.filters.iter().filter(|passed| passed.how == How::Would);
        let would: Vec<&str> = would.map(|passed| name(passed.filter)).collect();
        if !would.is_empty() {
            let _ = write!(text, ", would run {}", would.join(", "));
        }
        if let Some(consumer) = &decision.consumer {
            let _ = write!(text, ", consumer {consumer}");
        }
        text
    }

    fn target(&self, decision: &Decision) -> String {
        let Some(route) = decision.route.and_then(|route| self.snapshot.routes.get(route)) else {
            return String::new();
        };
        match &route.handling.target {
            Target::Files(_) => "files".to_owned(),
            Target::Filters => "no target".to_owned(),
            Target::Respond(fixed) => format!("{} by respond", fixed.status),
            Target::Arms(_) | Target::Upstream(_) | Target::Split(_) => {
                let shares = self.config.routes.get(&route.name).into_iter().flat_map(Route::shares);
                let shares: Vec<_> = shares.collect();
                match shares.as_slice() {
                    [one] => format!("upstream {}", one.upstream),
                    several => {
                        let several = several.iter().map(|one| format!("{} {}", one.name(), one.weight));
                        format!("upstreams {}", several.collect::<Vec<_>>().join(", "))
                    }
                }
            }
        }
    }
}

/// Where a filter is written.
fn place_of(instance: &Instance) -> String {
    match &*instance.place {
        "filters" => format!("filters.{}", instance.name),
        // What draws an arm is no filter of the config.
        place if instance.name == SPLIT => format!("{place}.upstream"),
        place => format!("{place}.filters.{}", instance.name),
    }
}

const fn uncertain(passed: Passed) -> bool {
    !matches!(passed.how, How::Ran)
}

/// What the judge has compared already: keys of a route, none of `upstream` in it, and keys of its arms.
const COMPARED: &[&[&str]] = &[&["filters", "match", "priority"], &[], &["filters"]];

/// A route without what the judge has compared already.
fn rest(route: &Route) -> Route {
    let mut rest = Route { matches: Match::default(), filters: Box::default(), priority: 0, ..route.clone() };
    if let Some(split) = &mut rest.upstream {
        split.forget_filters();
    }
    rest
}

/// The path of the first setting that differs. `but` are the keys to pass over, those of each level.
fn node_difference(
    ours: Option<&Node>,
    theirs: Option<&Node>,
    path: &str,
    but: &[&[&str]],
) -> Option<String> {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return Some(path.to_owned()) };
    if ours == theirs {
        return None;
    }
    let (Value::Map(old), Value::Map(new)) = (&ours.value, &theirs.value) else {
        return Some(path.to_owned());
    };
    let (here, below) = but.split_first().map_or((&[][..], &[][..]), |(here, below)| (*here, below));
    let keys = new.iter().chain(old).map(|(key, _)| &*key.text).filter(|key| !here.contains(key));
    let mut found = None;
    for key in keys {
        found = match (ours.get(key), theirs.get(key)) {
            (None, None) => None,
            (was, is) => node_difference(was, is, &format!("{path}.{key}"), below),
        };
        if found.is_some() {
            break;
        }
    }
    found
}

/// The path of the first setting of a filter that differs, with a dot before it.
fn json_difference(ours: &serde_json::Value, theirs: &serde_json::Value) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let (Some(old), Some(new)) = (ours.as_object(), theirs.as_object()) else { return Some(String::new()) };
    let differing = new.keys().chain(old.keys()).find(|key| old.get(*key) != new.get(*key))?;
    let below = match (old.get(differing), new.get(differing)) {
        (Some(was), Some(is)) => json_difference(was, is).unwrap_or_default(),
        _ => String::new(),
    };
    Some(format!(".{differing}{below}"))
}
