//! What the consumers of a source must fit: the rest of the config, and the other sources.

use super::super::{Consumers, FilterKind};
use super::roster::Roster;
use super::source::Source;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Weak};

/// What the consumers of a source must fit, besides each other: the rest of the config.
pub struct Rules {
    consumers: Consumers,
    names: HashSet<Box<str>>,
    /// The credentials of the config's own consumers.
    own: Roster,
    plans: BTreeSet<String>,
    /// The sources of the same config.
    pub(super) siblings: Vec<Weak<Source>>,
    /// Whether files are watched.
    pub(super) watch: bool,
}

/// Why consumers do not fit the config.
#[derive(Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The setting in the document.
    pub path: String,
    /// The kind of mistake.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: &'static str,
}

impl Rules {
    /// The rules of a config with these consumers and plans.
    pub fn new(
        consumers: &Consumers,
        plans: impl Iterator<Item = String>,
        kinds: &[&'static FilterKind],
        watch: bool,
    ) -> Self {
        Self {
            consumers: Arc::clone(consumers),
            names: consumers.iter().map(|consumer| consumer.name.as_str().into()).collect(),
            own: Roster::of_config(consumers, kinds),
            plans: plans.collect(),
            siblings: Vec::new(),
            watch,
        }
    }

    /// The same with these sources beside each other.
    pub(super) fn beside(self, siblings: Vec<Weak<Source>>) -> Self {
        Self { siblings, ..self }
    }

    /// Everything that does not fit in the consumers of `source`, beside those of `others`.
    pub fn misfits<'a>(
        &self,
        roster: &Roster,
        others: impl Iterator<Item = (&'a str, Arc<Roster>)>,
    ) -> Vec<Misfit> {
        let misfit = |path: String, code, message, hint| Misfit { path, code, message, hint };
        let mut found = Vec::new();
        for (plan, first) in roster.plans().filter(|(plan, _)| !self.plans.contains(*plan)) {
            let (path, message) = (format!("consumers.{first}.plan"), format!("there is no plan `{plan}`"));
            found.push(misfit(path, "unknown-plan", message, "write it under `plans` of the config"));
        }
        let twice = |name: &str, place: &str| {
            let message = format!("{place} has a consumer `{name}` too");
            misfit(format!("consumers.{name}"), "consumer-twice", message, "a name stands for one consumer")
        };
        let names = || roster.consumers().iter().map(|consumer| consumer.name.as_str());
        let of_config = names().filter(|name| self.names.contains(*name));
        found.extend(of_config.map(|name| twice(name, "the config")));
        let name_of = |index: u32| roster.consumers().get(index as usize).map_or("", |one| &*one.name);
        let mut common = |kind: &str, ours: u32, theirs: &str| {
            let path = format!("consumers.{}.{kind}", name_of(ours));
            let message = format!("`{theirs}` has the same credential, so it does not identify a consumer");
            found.push(misfit(path, "credential-twice", message, "give each consumer its own"));
        };
        for (kind, ours, theirs) in roster.common(&self.own) {
            common(kind, ours, self.consumers.get(theirs as usize).map_or("", |consumer| &*consumer.name));
        }
        let mut doubles = Vec::new();
        for (source, other) in others {
            for (kind, ours, theirs) in roster.common(&other) {
                common(kind, ours, other.consumers().get(theirs as usize).map_or("", |one| &*one.name));
            }
            let known: HashSet<&str> = other.consumers().iter().map(|consumer| &*consumer.name).collect();
            let place = format!("the source `{source}`");
            doubles.extend(names().filter(|name| known.contains(name)).map(|name| twice(name, &place)));
        }
        found.extend(doubles);
        found
    }
}
