//! Whether a change restricts access, judged from the two configs as written.
//!
//! The guard never loosens access. If it reverted restricting changes because figures got worse, refused strangers
//! could veto every tightening. The holder of a revoked key could restore it by simply using it. `access.txt` lists
//! the settings that cannot restrict; every other setting restricts, including any added later.

use super::shadow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;
use weir_config::Node;
use weir_config::node::NAMED;
use weir_config::node::Value;
use weir_config::secrecy::listed;
use weir_filter::filter::{Access, FilterKind};

/// The reviewed list.
const DECLARED: &str = include_str!("access.txt");

/// How a change restricts access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    /// The restricting settings, such as `routes.orders.filters`: the first ten.
    pub restricts: Vec<String>,
    /// What going back would restore: consumers, credentials, list entries such as those of `acl` and `ip`. The first
    /// ten.
    pub revokes: Vec<String>,
}

/// Most settings named of each kind.
const NAMED_AT_MOST: usize = 10;

/// The list's entry for a setting. A setting without an entry restricts and revokes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It can neither restrict nor reveal.
    Harmless,
    /// It restricts, and going back restores no credential.
    Restricts,
    /// The same if it was not set before.
    RestrictsIfNew,
    /// The same for a list that only gained entries.
    RestrictsIfGrown,
}

/// The effects of a setting and of those below it.
#[derive(Default)]
struct Shape {
    effect: Option<Effect>,
    below: HashMap<&'static str, Self>,
}

static SHAPES: LazyLock<Shape> = LazyLock::new(|| {
    let mut root = Shape::default();
    static PATHS: LazyLock<Vec<(String, Effect)>> = LazyLock::new(declared);
    for (path, effect) in PATHS.iter() {
        path.split('.').fold(&mut root, |shape, key| shape.below.entry(key).or_default()).effect =
            Some(*effect);
    }
    root
});

/// Each setting in the list, such as `upstreams.*.retry.on` or `filter.acl.allow`, with its effect.
pub fn declared() -> Vec<(String, Effect)> {
    let effect = |mark| match mark {
        Some('-') => Effect::Restricts,
        Some('=') => Effect::RestrictsIfNew,
        Some('+') => Effect::RestrictsIfGrown,
        _ => Effect::Harmless,
    };
    listed(DECLARED, "-=+").map(|(path, mark)| (path, effect(mark))).collect()
}

impl Shape {
    fn key(&self, key: &str) -> Option<&Self> {
        self.below.get(key).or_else(|| self.below.get("*"))
    }
}

impl Restriction {
    /// How the change between two configs restricts; `None` if it does not.
    pub fn of(before: &Node, after: &Node, kinds: &[&FilterKind]) -> Option<Self> {
        let never = kinds.iter().filter(|kind| kind.access == Access::Never).map(|kind| kind.name).collect();
        let mut comparison =
            Comparison { never, found: Self::default(), removed: Vec::new(), tightens: false };
        comparison.configs(before, after);
        let found = comparison.end();
        (!found.restricts.is_empty()).then_some(found)
    }

    /// For a warning: which settings restrict.
    pub fn what(&self) -> String {
        self.restricts.join(", ")
    }
}

/// The effect of a difference, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Nothing,
    Restricts,
    Revokes,
}

struct Comparison<'k> {
    /// The names of kinds that never control access.
    never: HashSet<&'k str>,
    found: Restriction,
    /// Removed filters: going back restores them and the credentials they accept.
    removed: Vec<String>,
    /// Something other than a removal restricts.
    tightens: bool,
}

impl Comparison<'_> {
    fn configs(&mut self, before: &Node, after: &Node) {
        let sections: BTreeSet<&str> = keys(Some(before), Some(after));
        for section in sections {
            let (was, is) = (before.get(section), after.get(section));
            if was == is {
                continue;
            }
            if section == "filters" {
                self.filters("filters", was, is);
            } else if NAMED.contains(&section) {
                for name in keys(was, is) {
                    let (was, is) = (at(was, name), at(is, name));
                    if was != is {
                        self.thing((section, name), was, is, before);
                    }
                }
            } else {
                self.section(section, SHAPES.key(section), was, is);
            }
        }
    }

    /// A removal alone restores nothing, because its users pass without the filter. It does if another filter
    /// replaced it.
    fn end(self) -> Restriction {
        let Self { mut found, removed, tightens, .. } = self;
        if tightens {
            removed.iter().for_each(|what| add(&mut found.revokes, what));
        }
        found
    }

    fn thing(&mut self, (section, name): (&str, &str), was: Option<&Node>, is: Option<&Node>, before: &Node) {
        let thing = &*format!("{section}.{name}");
        let shape = SHAPES.key(section).and_then(|shape| shape.key(name));
        match (section, was, is) {
            ("consumers", None, Some(is)) => {
                // A token may have admitted this caller before; these settings now bind it.
                if ["plan", "allow_ips"].iter().any(|key| is.get(key).is_some()) {
                    self.restricts(thing);
                }
            }
            ("consumers", ..) => {
                self.restricts(thing);
                self.revokes(thing);
            }
            ("routes", None, Some(is)) => self.new_route(name, is, before.get("routes")),
            ("routes", Some(was), None) => {
                self.restricts(thing);
                if !self.deciding(was.get("filters")).is_empty() {
                    self.revokes(&format!("{thing}.filters"));
                }
                for (arm, was) in arms(was) {
                    self.filters(&format!("{thing}.upstream.{arm}.filters"), was.get("filters"), None);
                }
            }
            ("routes", Some(was), Some(is)) => self.route(thing, shape, was, is),
            ("plans", Some(was), is) => {
                self.settings(thing, shape, &["filters"], (Some(was), is));
                self.filters(&format!("{thing}.filters"), was.get("filters"), at(is, "filters"));
            }
            ("upstreams", Some(was), is) => {
                let is_gone = is.is_none();
                if is.is_some_and(|is| lost_endpoints(was, is)) {
                    self.restricts(&format!("{thing}.endpoints"));
                }
                for key in keys(Some(was), is) {
                    let verdict = difference(below(shape, key), was.get(key), at(is, key));
                    // An unused thing may be removed, but may not return with its secrets.
                    if !is_gone || verdict == Verdict::Revokes {
                        self.note(&format!("{thing}.{key}"), verdict);
                    }
                }
            }
            // An unused thing may be added.
            ("upstreams" | "listeners" | "plans", None, _) => {}
            _ => self.settings(thing, shape, &[], (was, is)),
        }
    }

    /// A new route may precede one that served the same requests.
    fn new_route(&mut self, name: &str, is: &Node, routes: Option<&Node>) {
        let thing = format!("routes.{name}");
        let deciding = self.deciding(is.get("filters"));
        let target = is.get("upstream").filter(|_| deciding.is_empty());
        let shadowed = routes.map_or(&[][..], Node::entries).iter().any(|(_, there)| {
            let same_target = target.is_some() && target == there.get("upstream");
            !same_target && shadow::may_overlap(is.get("match"), there.get("match"))
        });
        if !deciding.is_empty() {
            self.restricts(&format!("{thing}.filters"));
            let fresh = is.get("filters").map_or(Verdict::Nothing, |filters| self.fresh(filters));
            self.note(&format!("{thing}.filters"), fresh);
        } else if is.get("respond").is_some_and(refuses) {
            self.restricts(&format!("{thing}.respond"));
        } else if shadowed {
            self.restricts(&thing);
        }
        for (arm, is) in arms(is) {
            self.filters(&format!("{thing}.upstream.{arm}.filters"), None, is.get("filters"));
        }
    }

    fn route(&mut self, thing: &str, shape: Option<&'static Shape>, was: &Node, is: &Node) {
        self.settings(thing, shape, &["filters", "respond", "upstream"], (Some(was), Some(is)));
        self.filters(&format!("{thing}.filters"), was.get("filters"), is.get("filters"));
        // A service that is no longer reached was removed; its replacement may refuse. So may the filters of an arm
        // that got no requests before. Changes of an arm's own filters are noted below.
        let (reached, reaches) = (self.reached(was.get("upstream")), self.reached(is.get("upstream")));
        let opened = was.get("respond").is_some_and(refuses);
        let among = |all: &[Reach<'_>], one: &Reach<'_>| {
            let same = |other: &Reach<'_>| other.filters == one.filters || other.arm == one.arm;
            all.iter().any(|other| other.upstream == one.upstream && same(other))
        };
        let begins = reaches.iter().any(|arm| {
            let existed = was.get("upstream").is_some_and(|split| split.get(arm.arm).is_some());
            !arm.filters.is_empty() && existed && !among(&reached, arm)
        });
        let is_open = |one: &Reach<'_>| {
            reaches.iter().any(|other| other.upstream == one.upstream && other.filters.is_empty())
        };
        let is_lost = !reached.iter().all(|arm| among(&reaches, arm) || is_open(arm));
        if is_lost || begins || (reached.is_empty() && !reaches.is_empty() && !opened) {
            self.restricts(&format!("{thing}.upstream"));
        }
        let (before, after) = (arms(was), arms(is));
        for arm in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let filters =
                |arms: &BTreeMap<&str, _>| arms.get(*arm).and_then(|arm: &&Node| arm.get("filters"));
            let place = format!("{thing}.upstream.{arm}.filters");
            self.filters(&place, filters(&before), filters(&after));
        }
        let respond = shape.and_then(|shape| shape.key("respond"));
        if was.get("respond") != is.get("respond") {
            self.note(
                &format!("{thing}.respond"),
                difference(respond, was.get("respond"), is.get("respond")),
            );
            if is.get("respond").is_some_and(refuses) {
                self.restricts(&format!("{thing}.respond"));
            }
        }
    }

    fn section(&mut self, path: &str, shape: Option<&'static Shape>, was: Option<&Node>, is: Option<&Node>) {
        let is_new = was.is_none() && shape.is_some_and(|shape| shape.effect.is_some());
        if is_map(was) && is_map(is) && !keys(was, is).is_empty() && !is_new {
            self.settings(path, shape, &[], (was, is));
        } else {
            self.note(path, difference(shape, was, is));
        }
    }

    /// Compares a thing's settings except these.
    fn settings(
        &mut self,
        thing: &str,
        shape: Option<&'static Shape>,
        but: &[&str],
        (was, is): (Option<&Node>, Option<&Node>),
    ) {
        for key in keys(was, is).into_iter().filter(|key| !but.contains(key)) {
            let verdict = difference(below(shape, key), at(was, key), at(is, key));
            self.note(&format!("{thing}.{key}"), verdict);
        }
    }

    // === filters ===

    fn filters(&mut self, place: &str, was: Option<&Node>, is: Option<&Node>) {
        let (old, new) = (self.deciding(was), self.deciding(is));
        if old == new {
            return;
        }
        let Some(pairs) = pairs(&old, &new) else {
            // Their order changed: requests meet other filters first.
            self.restricts(place);
            return self.revokes(place);
        };
        let is_gone = |(at, _): &(usize, _)| !pairs.contains_key(at);
        for (_, (name, _)) in old.iter().enumerate().filter(is_gone) {
            add(&mut self.found.restricts, place);
            self.removed.push(format!("{place}.{name}"));
            // Going back admits what it refused, if other filters decide as well.
            self.tightens |= !new.is_empty();
        }
        for (at, (name, settings)) in new.iter().enumerate() {
            let verdict = match pairs.iter().find(|(_, to)| **to == at) {
                Some((from, _)) => {
                    old.get(*from).map_or(Verdict::Revokes, |(_, was)| self.altered(name, was, settings))
                }
                None => self.fresh_one(name, settings).max(Verdict::Restricts),
            };
            if verdict != Verdict::Nothing {
                self.restricts(place);
            }
            if verdict == Verdict::Revokes {
                self.revokes(&format!("{place}.{name}"));
            }
        }
    }

    /// The effect of changing a filter's settings.
    fn altered(&self, name: &str, was: &Node, is: &Node) -> Verdict {
        if name == "any" {
            return self.branches(was, is);
        }
        if was == is {
            return Verdict::Nothing;
        }
        let shape = SHAPES.key("filter").and_then(|filters| filters.below.get(name));
        // A kind from an embedding program that declares that it never controls access.
        if shape.is_none() && self.never.contains(name) {
            return Verdict::Nothing;
        }
        let map = |node: &&Node| matches!(node.value, Value::Map(_));
        let (was, is) = (Some(was).filter(map), Some(is).filter(map));
        let settings = keys(was, is).into_iter().map(|key| {
            let setting = below(shape, key);
            let new = setting.is_some_and(|shape| shape.effect == Some(Effect::RestrictsIfNew));
            match difference(setting, at(was, key), at(is, key)) {
                // A new condition beside the filter's old ones excludes some callers.
                Verdict::Restricts if new => Verdict::Revokes,
                verdict => verdict,
            }
        });
        settings.max().unwrap_or(Verdict::Revokes)
    }

    /// The members of `any`: removing one excludes callers, adding one admits others.
    fn branches(&self, was: &Node, is: &Node) -> Verdict {
        let (old, new) = (self.deciding(Some(was)), self.deciding(Some(is)));
        if old == new {
            return if was == is { Verdict::Nothing } else { Verdict::Restricts };
        }
        match pairs(&old, &new) {
            Some(pairs) if pairs.len() == old.len() => {
                let altered = pairs.iter().filter_map(|(from, to)| {
                    let ((name, was), (_, is)) = (old.get(*from)?, new.get(*to)?);
                    Some(self.altered(name, was, is))
                });
                altered.max().unwrap_or(Verdict::Restricts).max(Verdict::Restricts)
            }
            _ => Verdict::Revokes,
        }
    }

    /// The effect of filters where there were none.
    fn fresh(&self, filters: &Node) -> Verdict {
        let each =
            self.deciding(Some(filters)).into_iter().map(|(name, settings)| self.fresh_one(name, settings));
        each.max().unwrap_or(Verdict::Nothing)
    }

    /// Adding a filter can be undone, unless it names whom it excludes.
    fn fresh_one(&self, name: &str, settings: &Node) -> Verdict {
        let shape = SHAPES.key("filter").and_then(|filters| filters.below.get(name));
        match shape.and_then(|shape| shape.effect) {
            _ if name == "any" => self.fresh(settings).max(Verdict::Restricts),
            Some(Effect::Restricts) => {
                let allowing = |key: &str| {
                    let effect = shape.and_then(|shape| shape.key(key)).and_then(|shape| shape.effect);
                    matches!(effect, Some(Effect::RestrictsIfGrown | Effect::RestrictsIfNew))
                };
                let shuts_out = settings.entries().iter().any(|(key, _)| !allowing(&key.text));
                if shuts_out { Verdict::Revokes } else { Verdict::Restricts }
            }
            _ => Verdict::Restricts,
        }
    }

    /// A list's filters that control access, with their settings.
    fn deciding<'n>(&self, filters: Option<&'n Node>) -> Vec<(&'n str, &'n Node)> {
        let elements = match filters {
            Some(list) if matches!(list.value, Value::Seq(_)) => list.elements().iter().collect(),
            Some(one) if !matches!(one.value, Value::Null) => vec![one],
            _ => Vec::new(),
        };
        let named = elements.into_iter().map(|filter| match filter.entries() {
            [(name, settings), ..] => (&*name.text, settings),
            [] => (filter.as_text().unwrap_or_default(), filter),
        });
        named.filter(|(name, settings)| !self.is_harmless(name, settings)).collect()
    }

    /// The arms of a route that get requests. One upstream is one arm of its name.
    fn reached<'n>(&self, upstream: Option<&'n Node>) -> Vec<Reach<'n>> {
        let Some(upstream) = upstream else { return Vec::new() };
        let shares = upstream.entries().iter().filter(|(_, share)| {
            let weight = share.get("weight").unwrap_or(share);
            matches!(weight.value, Value::Int(weight) if weight > 0)
        });
        let arms = shares.map(|(name, share)| Reach {
            arm: &name.text,
            upstream: share.get("upstream").and_then(Node::as_text).unwrap_or(&name.text),
            filters: self.deciding(share.get("filters")),
        });
        let one = [upstream].into_iter().chain(upstream.elements()).filter_map(Node::as_text);
        one.map(|one| Reach { arm: one, upstream: one, filters: Vec::new() }).chain(arms).collect()
    }

    fn is_harmless(&self, name: &str, settings: &Node) -> bool {
        let shape = SHAPES.key("filter").and_then(|filters| filters.below.get(name));
        self.never.contains(name)
            && shape.is_none_or(|shape| {
                let settings = settings.entries().iter();
                settings
                    .map(|(key, value)| difference(shape.key(&key.text), None, Some(value)))
                    .all(|verdict| verdict == Verdict::Nothing)
            })
    }

    // === findings ===

    fn note(&mut self, what: &str, verdict: Verdict) {
        if verdict != Verdict::Nothing {
            self.restricts(what);
        }
        if verdict == Verdict::Revokes {
            self.revokes(what);
        }
    }

    fn restricts(&mut self, what: &str) {
        self.tightens = true;
        add(&mut self.found.restricts, what);
    }

    fn revokes(&mut self, what: &str) {
        add(&mut self.found.revokes, what);
    }
}

fn add(names: &mut Vec<String>, name: &str) {
    if names.len() < NAMED_AT_MOST && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

fn at<'n>(node: Option<&'n Node>, key: &str) -> Option<&'n Node> {
    node.and_then(|node| node.get(key))
}

fn below(shape: Option<&'static Shape>, key: &str) -> Option<&'static Shape> {
    shape.and_then(|shape| shape.key(key))
}

/// Whether there are settings below, or nothing.
fn is_map(node: Option<&Node>) -> bool {
    node.is_none_or(|node| matches!(node.value, Value::Map(_)))
}

fn keys<'n>(was: Option<&'n Node>, is: Option<&'n Node>) -> BTreeSet<&'n str> {
    let of = |node: Option<&'n Node>| node.map_or(&[][..], Node::entries).iter().map(|(key, _)| &*key.text);
    of(was).chain(of(is)).collect()
}

/// The effect of a difference below a setting. The parser bounds the depth.
fn difference(shape: Option<&'static Shape>, was: Option<&Node>, is: Option<&Node>) -> Verdict {
    if was == is {
        return Verdict::Nothing;
    }
    let effect = shape.and_then(|shape| shape.effect);
    // Going back does not restore a secret that was only added; it restricts all the same.
    if was.is_some_and(contains_secret) {
        return Verdict::Revokes;
    }
    match effect {
        Some(Effect::Harmless) if is.is_some_and(contains_secret) => return Verdict::Restricts,
        Some(Effect::Harmless) => return Verdict::Nothing,
        Some(Effect::Restricts) => return Verdict::Restricts,
        Some(Effect::RestrictsIfNew) if was.is_none() => return Verdict::Restricts,
        Some(Effect::RestrictsIfGrown) if has_grown(was, is) => return Verdict::Restricts,
        _ => {}
    }
    let keys = keys(was, is);
    if !is_map(was) || !is_map(is) || keys.is_empty() {
        return Verdict::Revokes;
    }
    let each = keys.into_iter().map(|key| difference(below(shape, key), at(was, key), at(is, key)));
    each.max().unwrap_or(Verdict::Revokes)
}

/// Whether a list kept all its entries and was not empty: an empty one may stand for everybody.
fn has_grown(was: Option<&Node>, is: Option<&Node>) -> bool {
    let (old, new) = (was.map_or(&[][..], Node::elements), is.map_or(&[][..], Node::elements));
    !old.is_empty() && old.iter().all(|entry| new.contains(entry))
}

fn contains_secret(node: &Node) -> bool {
    node.secret
        || node.elements().iter().any(contains_secret)
        || node.entries().iter().any(|(_, value)| contains_secret(value))
}

/// Pairs old filters with new ones: the nth of a name with the nth of that name. `None` if their order changed.
fn pairs(old: &[(&str, &Node)], new: &[(&str, &Node)]) -> Option<HashMap<usize, usize>> {
    let mut pairs = HashMap::new();
    let mut last = None;
    for (from, (name, _)) in old.iter().enumerate() {
        let nth = old.iter().take(from).filter(|(other, _)| other == name).count();
        let Some((to, _)) = new.iter().enumerate().filter(|(_, (other, _))| other == name).nth(nth) else {
            continue;
        };
        if last.is_some_and(|last| to < last) {
            return None;
        }
        last = Some(to);
        pairs.insert(from, to);
    }
    Some(pairs)
}

/// An arm of a route that gets requests.
struct Reach<'n> {
    arm: &'n str,
    upstream: &'n str,
    /// Its filters that control access.
    filters: Vec<(&'n str, &'n Node)>,
}

/// The arms of a route's split that have more than a weight.
fn arms(route: &Node) -> BTreeMap<&str, &Node> {
    let split = route.get("upstream").map_or(&[][..], Node::entries);
    let arms = split.iter().filter(|(_, arm)| matches!(arm.value, Value::Map(_)));
    arms.map(|(name, arm)| (&*name.text, arm)).collect()
}

/// Whether endpoints were only removed. If others replaced them, the service has moved.
fn lost_endpoints(was: &Node, is: &Node) -> bool {
    fn served(node: &Node) -> BTreeSet<&str> {
        let endpoints = node.get("endpoints").map_or(&[][..], Node::elements).iter();
        let endpoints = endpoints.filter(|endpoint| {
            !endpoint.get("weight").is_some_and(|weight| matches!(weight.value, Value::Int(0)))
        });
        endpoints.filter_map(|endpoint| endpoint.get("address").unwrap_or(endpoint).as_text()).collect()
    }
    let (old, new) = (served(was), served(is));
    !old.is_subset(&new) && new.is_subset(&old)
}

/// Whether a fixed answer may be meant as a refusal. 500, 502 and 504 report failures.
fn refuses(respond: &Node) -> bool {
    let status = |node: &Node| match node.get("status").map(|status| &status.value) {
        None => false,
        Some(Value::Int(status)) => !((100..400).contains(status) || [500, 502, 504].contains(status)),
        Some(_) => true,
    };
    status(respond) || respond.get("mix").is_some_and(|mix| mix.elements().iter().any(status))
}

#[cfg(test)]
#[path = "access/tests.rs"]
mod tests;
