//! Whether a change restricts access, told from the two configs as written.
//!
//! The guard never loosens: a change that restricts is not taken back because figures got worse, or strangers who are refused could veto
//! every tightening, and the holder of a revoked key could bring it back by going on to use it. Settings that cannot restrict are listed
//! here; every other setting, also one that is added later, restricts.

use super::diff::diff;
use std::collections::{BTreeSet, HashSet};
use weir_config::Node;
use weir_config::node::Value;
use weir_filter::filter::{Access, FilterKind};

/// How a change restricts access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    /// The settings that restrict, such as `routes.orders.filters`: the first ten.
    pub restricts: Vec<String>,
    /// What going back would give back: consumers, credentials, entries of lists such as those of `acl` and `ip`: the first ten.
    pub revokes: Vec<String>,
}

/// Most settings that are named of each kind.
const NAMED_AT_MOST: usize = 10;

/// Settings of a route that decide how it is served, and not for whom.
const OF_ROUTES: &[&str] = &["timeouts"];

/// The same of an upstream. `tls`, `host` and `source` are not among them: they decide what the upstream believes.
const OF_UPSTREAMS: &[&str] = &[
    "balancer",
    "deadline_header",
    "discover",
    "endpoints",
    "health",
    "hedge",
    "keepalive",
    "limits",
    "max_age",
    "protocol",
    "retry",
    "slow_start",
    "sticky",
    "timeouts",
];

/// The same of a listener.
const OF_LISTENERS: &[&str] = &["timeouts"];

/// Sections and settings of the whole config that concern nobody's access.
const OF_ALL: &[&str] =
    &["access_log", "dns", "labels", "log", "shutdown", "tracing", "watch", "workers", "zone"];

impl Restriction {
    /// How the change from one config to the other restricts; `None` if it does not.
    pub(crate) fn of(before: &Node, after: &Node, kinds: &[&FilterKind]) -> Option<Self> {
        let never = kinds.iter().filter(|kind| kind.access == Access::Never).map(|kind| kind.name).collect();
        let mut comparison = Comparison { never, found: Self::default() };
        for thing in diff(before, after).things {
            comparison.thing(&thing, before, after);
        }
        let found = comparison.found;
        (!found.restricts.is_empty()).then_some(found)
    }

    /// For a warning: what restricts.
    pub fn what(&self) -> String {
        self.restricts.join(", ")
    }
}

struct Comparison<'k> {
    /// The names of kinds that never decide who may do what.
    never: HashSet<&'k str>,
    found: Restriction,
}

impl Comparison<'_> {
    fn thing(&mut self, thing: &str, before: &Node, after: &Node) {
        let (section, name) = thing.split_once('.').unwrap_or((thing, ""));
        let of = |tree: &Node| -> Option<Node> {
            let section = tree.get(section)?;
            if name.is_empty() { Some(section.clone()) } else { section.get(name).cloned() }
        };
        let (was, is) = (of(before), of(after));
        match (section, was, is) {
            ("consumers", Some(_), _) => {
                self.restricts(thing);
                self.revokes(thing);
            }
            ("routes", Some(_), None) => self.restricts(thing),
            ("routes", None, Some(is)) => self.new_route(thing, &is),
            ("routes", Some(was), Some(is)) => self.route(thing, &was, &is),
            ("upstreams", Some(was), Some(is)) => self.settings(thing, OF_UPSTREAMS, &was, &is),
            ("listeners", Some(was), Some(is)) => self.settings(thing, OF_LISTENERS, &was, &is),
            ("plans", Some(was), Some(is)) => {
                self.settings(thing, &["filters"], &was, &is);
                self.filters(&format!("{thing}.filters"), was.get("filters"), is.get("filters"));
            }
            ("filters", was, is) => self.filters("filters", was.as_ref(), is.as_ref()),
            // What nobody used can go, and what nobody uses yet can come.
            ("upstreams", _, None) | ("upstreams" | "consumers" | "listeners" | "plans", None, _) => {}
            (section, ..) if OF_ALL.contains(&section) => {}
            _ => self.restricts(thing),
        }
    }

    /// A new route may stand before one that served the same requests.
    fn new_route(&mut self, thing: &str, is: &Node) {
        if !self.deciding(is.get("filters")).is_empty() {
            self.restricts(&format!("{thing}.filters"));
        }
        if is.get("respond").is_some_and(refuses) {
            self.restricts(&format!("{thing}.respond"));
        }
    }

    fn route(&mut self, thing: &str, was: &Node, is: &Node) {
        let rest: Vec<&str> = OF_ROUTES.iter().copied().chain(["filters", "respond", "upstream"]).collect();
        self.settings(thing, &rest, was, is);
        self.filters(&format!("{thing}.filters"), was.get("filters"), is.get("filters"));
        // A service that was reached and is not any more was taken away; an answer in its place may be a refusal.
        if was.get("upstream").is_some() && is.get("upstream").is_none() {
            self.restricts(&format!("{thing}.upstream"));
        }
        if was.get("respond") != is.get("respond") && is.get("respond").is_some_and(refuses) {
            self.restricts(&format!("{thing}.respond"));
        }
    }

    /// Compares all settings of a thing but those that cannot restrict.
    fn settings(&mut self, thing: &str, but: &[&str], was: &Node, is: &Node) {
        let keys = was.entries().iter().chain(is.entries()).map(|(key, _)| &*key.text);
        let differing: BTreeSet<&str> =
            keys.filter(|key| !but.contains(key) && was.get(key) != is.get(key)).collect();
        for key in differing {
            self.restricts(&format!("{thing}.{key}"));
        }
    }

    fn filters(&mut self, place: &str, was: Option<&Node>, is: Option<&Node>) {
        let (old, new) = (self.deciding(was), self.deciding(is));
        if old == new {
            return;
        }
        self.restricts(place);
        for (name, settings) in &old {
            let mut same_kind = new.iter().filter(|(kind, _)| kind == name).peekable();
            if same_kind.peek().is_none() {
                continue; // going back brings the whole filter back, which lets fewer pass
            }
            let mut left = HashSet::new();
            same_kind.for_each(|(_, settings)| add_texts(settings, true, &mut left));
            let mut entries = HashSet::new();
            add_texts(settings, false, &mut entries);
            if !entries.is_subset(&left) {
                self.revokes(&format!("{place}.{name}"));
            }
        }
    }

    /// The filters of a list that decide who may do what, with their settings.
    fn deciding<'n>(&self, filters: Option<&'n Node>) -> Vec<(&'n str, &'n Node)> {
        let elements = filters.map_or(&[][..], Node::elements);
        let named = elements.iter().map(|filter| match filter.entries() {
            [(name, settings), ..] => (&*name.text, settings),
            [] => (filter.as_text().unwrap_or_default(), filter),
        });
        named.filter(|(name, _)| !self.never.contains(name)).collect()
    }

    fn restricts(&mut self, what: &str) {
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

/// Whether a fixed answer can be meant as a refusal. 500, 502 and 504 say that something failed.
fn refuses(respond: &Node) -> bool {
    let status = |node: &Node| match node.get("status").map(|status| &status.value) {
        None => false,
        Some(Value::Int(status)) => !((100..400).contains(status) || [500, 502, 504].contains(status)),
        Some(_) => true,
    };
    status(respond) || respond.get("mix").is_some_and(|mix| mix.elements().iter().any(status))
}

/// Adds the texts in these settings: those in lists and those that are secret, or all.
fn add_texts<'n>(settings: &'n Node, all: bool, texts: &mut HashSet<&'n str>) {
    match &settings.value {
        Value::Map(entries) => entries.iter().for_each(|(_, value)| add_texts(value, all, texts)),
        Value::Seq(elements) => elements.iter().for_each(|value| add_texts(value, true, texts)),
        _ if all || settings.secret => texts.extend(settings.as_text()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_config::{Diagnostics, parse::parse, secrecy::mark_secrets};
    use weir_filter::filter::Settings;

    fn kind(name: &'static str) -> FilterKind {
        fn build(
            _: &mut Settings<'_>,
            _: &mut weir_filter::filter::Build<'_>,
        ) -> Option<weir_filter::filter::Built> {
            None
        }
        fn schema() -> schemars::Schema {
            schemars::schema_for!(bool)
        }
        FilterKind { name, schema, causes: &[], access: Access::Decides, build }
    }

    fn found(before: &str, after: &str) -> Restriction {
        let tree = |text: &str| {
            let mut tree = parse(text, Path::new("t"), &mut Diagnostics::default()).unwrap();
            mark_secrets(&mut tree);
            tree
        };
        let kinds = [kind("key_auth"), kind("timeout").without_access(), kind("acl")];
        let kinds: Vec<&FilterKind> = kinds.iter().collect();
        Restriction::of(&tree(before), &tree(after), &kinds).unwrap_or_default()
    }

    const BEFORE: &str = "listeners: { web: { address: 127.0.0.1:80 } }
upstreams: { api: { endpoints: [ 10.0.0.1:80 ] } }
consumers: { shop: { key_auth: [ old, older ] } }
plans: { gold: { filters: [ { rate_limit: { requests: 9 } } ] } }
routes:
  a: { match: { hosts: [ a.test, b.test ] }, upstream: api, filters: [ { acl: { allow: [ shop, bob ] } }, { timeout: { response: 1s } } ] }
  b: { respond: { status: 200 } }
";

    #[test]
    fn what_restricts() {
        for (from, to, restricts, revokes) in [
            // Ways of serving.
            ("10.0.0.1:80 ]", "10.0.0.2:80 ]", "", ""),
            ("{ timeout: { response: 1s } }", "{ timeout: { response: 1ms } }", "", ""),
            (", { timeout: { response: 1s } } ]", " ]", "", ""),
            ("upstream: api,", "upstream: api, timeouts: { response: 1s },", "", ""),
            ("status: 200", "status: 500", "", ""),
            ("  b: {", "  c: { upstream: api }\n  b: {", "", ""),
            ("consumers: {", "consumers: { new: {},", "", ""),
            ("routes:", "log: { level: debug }\nroutes:", "", ""),
            // Filters.
            ("filters: [ { acl", "filters: [ { key_auth: {} }, { acl", "routes.a.filters", ""),
            ("filters: [ { acl", "filters: [ { unheard_of: {} }, { acl", "routes.a.filters", ""),
            ("[ shop, bob ]", "[ shop ]", "routes.a.filters", "routes.a.filters.acl"),
            ("[ shop, bob ]", "[ shop, bob, eve ]", "routes.a.filters", ""),
            ("{ acl: { allow: [ shop, bob ] } }, ", "", "routes.a.filters", ""),
            ("requests: 9", "requests: 8", "plans.gold.filters", ""),
            ("routes:", "filters: [ { key_auth: {} } ]\nroutes:", "filters", ""),
            (
                "  b: {",
                "  c: { upstream: api, filters: [ { key_auth: {} } ] }\n  b: {",
                "routes.c.filters",
                "",
            ),
            // Things that are gone, or serve fewer.
            ("  b: { respond: { status: 200 } }\n", "", "routes.b", ""),
            ("status: 200", "status: 403", "routes.b.respond", ""),
            ("status: 200", "status: 503", "routes.b.respond", ""),
            ("  b: {", "  c: { respond: { status: 404 } }\n  b: {", "routes.c.respond", ""),
            ("upstream: api,", "respond: { status: 200 },", "routes.a.upstream", ""),
            ("[ a.test, b.test ]", "[ a.test ]", "routes.a.match", ""),
            ("upstream: api,", "upstream: api, priority: 1,", "routes.a.priority", ""),
            ("upstream: api,", "upstream: api, unheard_of: 1,", "routes.a.unheard_of", ""),
            ("shop: { key_auth: [ old, older ] }", "", "consumers.shop", "consumers.shop"),
            ("[ old, older ]", "[ old ]", "consumers.shop", "consumers.shop"),
            ("10.0.0.1:80 ] }", "10.0.0.1:80 ], tls: {} }", "upstreams.api.tls", ""),
            ("address: 127.0.0.1:80", "address: 127.0.0.1:81", "listeners.web.address", ""),
            ("listeners: { web: { address: 127.0.0.1:80 } }\n", "", "listeners.web", ""),
            ("routes:", "trusted_proxies: [ 10.0.0.0/8 ]\nroutes:", "trusted_proxies", ""),
            ("routes:", "unheard_of: 1\nroutes:", "unheard_of", ""),
        ] {
            assert!(BEFORE.contains(from), "{from}");
            let found = found(BEFORE, &BEFORE.replace(from, to));
            assert_eq!(
                (found.what().as_str(), found.revokes.join(", ").as_str()),
                (restricts, revokes),
                "{to}"
            );
        }
    }
}
