//! Where kept state belongs: scopes such as `routes.orders`, and how a scope is recognized after a rename.
//!
//! A route is recognized by the requests it accepts, a plan by its consumers. So state follows a rename, over reloads
//! and upgrades alike.

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use weir_config::schema::Config;

/// The scopes of a config, each with a digest that identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<String, String>);

impl Places {
    /// The scopes of this config.
    pub fn of(config: &Config) -> Self {
        let routes =
            config.routes.iter().map(|(name, route)| (format!("routes.{name}"), digest(&route.matches)));
        let plans = config.plans.names().map(|plan| {
            let has = config.consumers.iter().filter(|(_, consumer)| consumer.plan.as_deref() == Some(plan));
            let names: Vec<&str> = has.map(|(name, _)| name).collect();
            // A plan without consumers is identified by its name only.
            (format!("plans.{plan}"), if names.is_empty() { String::new() } else { digest(&names) })
        });
        Self(routes.chain(plans).collect())
    }

    /// The scopes of `next` that have another name here, with both names.
    pub(crate) fn renamed(&self, next: &Self) -> HashMap<String, String> {
        let mut gone: HashMap<(&str, &str), Vec<&String>> = HashMap::new();
        for (scope, digest) in
            self.0.iter().filter(|(scope, digest)| !digest.is_empty() && !next.0.contains_key(*scope))
        {
            gone.entry((section(scope), digest)).or_default().push(scope);
        }
        let new = next.0.iter().filter(|(scope, _)| !self.0.contains_key(*scope));
        new.filter_map(|(scope, digest)| match gone.get(&(section(scope), digest.as_str()))?.as_slice() {
            [only] => Some((scope.clone(), (*only).clone())),
            _ => None,
        })
        .collect()
    }

    pub(crate) fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }

    pub(crate) fn load(saved: &[u8]) -> Self {
        Self(serde_json::from_slice(saved).unwrap_or_default())
    }
}

fn section(scope: &str) -> &str {
    scope.split('.').next().unwrap_or_default()
}

fn digest(of: &impl Debug) -> String {
    let hash = Sha256::digest(format!("{of:?}"));
    hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(pairs: &[(&str, &str)]) -> Places {
        Places(pairs.iter().map(|(scope, digest)| ((*scope).to_owned(), (*digest).to_owned())).collect())
    }

    #[test]
    fn a_renamed_scope_is_known_again() {
        let old = places(&[("routes.a", "1"), ("routes.b", "2"), ("plans.gold", "1"), ("plans.none", "")]);
        for (what, next, renamed) in [
            ("the same", &[("routes.a", "1"), ("routes.b", "2")][..], None),
            ("renamed", &[("routes.c", "1"), ("routes.b", "2")], Some(("routes.c", "routes.a"))),
            ("another beside it", &[("routes.a", "1"), ("routes.c", "1")], None),
            ("it takes other requests", &[("routes.c", "3"), ("routes.b", "2")], None),
            ("swapped", &[("routes.a", "2"), ("routes.b", "1")], None),
            (
                "a plan",
                &[("routes.a", "1"), ("routes.b", "2"), ("plans.silver", "1")],
                Some(("plans.silver", "plans.gold")),
            ),
            ("a plan that nobody has", &[("routes.a", "1"), ("routes.b", "2"), ("plans.other", "")], None),
        ] {
            let found = old.renamed(&places(next));
            let expected = renamed.map(|(to, from)| (to.to_owned(), from.to_owned())).into_iter().collect();
            assert_eq!(found, expected, "{what}");
        }
        assert_eq!(Places::load(&old.save()), old);
        assert_eq!(Places::load(b"broken"), Places::default());
    }
}
