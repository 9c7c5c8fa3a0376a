//! The differences between two configs, by content and not by lines.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use weir_config::Node;
use weir_config::node::NAMED;
use weir_config::node::{Key, Value};
use weir_config::secrecy::masked;

/// Most differences listed; the rest is counted.
pub const MOST: usize = 1000;

/// One setting that differs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Difference {
    /// Its path, such as `routes.orders.upstream`.
    pub path: String,
    /// Its old value; `None` if there was none. Secrets are masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Json>,
    /// Its new value; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Json>,
}

/// The differences between two configs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Differences {
    /// The first thousand, in the newer config's order.
    pub differences: Vec<Difference>,
    /// How many more there are.
    pub more: usize,
    /// The affected named things, such as `routes.orders`; sections without names as a whole.
    pub things: BTreeSet<String>,
}

/// Compares two trees whose secrets are marked.
pub fn diff(before: &Node, after: &Node) -> Differences {
    let mut found = Differences::default();
    walk(At { path: "", thing: "" }, before, after, &mut found);
    found
}

/// The position of the comparison: which setting of which thing.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a str,
    thing: &'a str,
}

fn walk(at: At<'_>, before: &Node, after: &Node, found: &mut Differences) {
    let (Value::Map(old), Value::Map(new)) = (&before.value, &after.value) else {
        if before != after {
            found.add(at, Some(before), Some(after));
        }
        return;
    };
    let index = |entries: &[(Key, Node)]| -> HashMap<_, usize> {
        entries.iter().enumerate().map(|(at, (key, _))| (key.text.clone(), at)).collect()
    };
    let (was, is) = (index(old), index(new));
    let path = |key: &Key| {
        if at.path.is_empty() { key.text.to_string() } else { format!("{}.{}", at.path, key.text) }
    };
    // Names may contain dots, so only this position shows which thing a setting belongs to, not the path.
    let names_a_thing = at.path.is_empty() || NAMED.contains(&at.path);
    for (key, value) in old.iter().filter(|(key, _)| !is.contains_key(&key.text)) {
        let path = path(key);
        let thing = if names_a_thing { &path } else { at.thing };
        found.lost_or_found(At { path: &path, thing }, Some(value), None);
    }
    for (key, value) in new {
        let path = path(key);
        let at = At { path: &path, thing: if names_a_thing { &path } else { at.thing } };
        match was.get(&key.text).and_then(|at| old.get(*at)) {
            Some((_, there)) => walk(at, there, value, found),
            None => found.lost_or_found(at, None, Some(value)),
        }
    }
}

// === impl Differences ===

impl Differences {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Lists an added or removed section thing by thing.
    fn lost_or_found(&mut self, at: At<'_>, before: Option<&Node>, after: Option<&Node>) {
        let things = before.or(after).map_or(&[][..], Node::entries);
        if !NAMED.contains(&at.path) || things.is_empty() {
            return self.add(at, before, after);
        }
        for (key, thing) in things {
            let path = format!("{}.{}", at.path, key.text);
            self.add(At { path: &path, thing: &path }, before.map(|_| thing), after.map(|_| thing));
        }
    }

    fn add(&mut self, at: At<'_>, before: Option<&Node>, after: Option<&Node>) {
        self.things.insert(at.thing.to_owned());
        if self.differences.len() < MOST {
            let (before, after) = (before.map(shown), after.map(shown));
            self.differences.push(Difference { path: at.path.to_owned(), before, after });
        } else {
            self.more += 1;
        }
    }

    /// For people: one line each.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for Difference { path, before, after } in &self.differences {
            let _ = match (before, after) {
                (None, Some(after)) => writeln!(out, "+ {path}: {after}"),
                (Some(before), None) => writeln!(out, "- {path}: {before}"),
                (Some(before), Some(after)) => writeln!(out, "~ {path}: {before} → {after}"),
                (None, None) => Ok(()),
            };
        }
        if self.more > 0 {
            let _ = writeln!(out, "… and {} more", self.more);
        }
        out
    }
}

/// A value as JSON, without what may not be shown.
pub fn shown(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Seq(elements) => elements.iter().map(shown).collect(),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|(key, value)| (key.text.to_string(), shown(value))).collect())
        }
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => match (masked(node), &node.value)
        {
            (Some(mask), _) => json!(mask),
            (None, Value::Bool(value)) => json!(value),
            (None, Value::Int(value)) => json!(value),
            (None, Value::Float(value)) => json!(value),
            (None, _) => json!(node.as_text()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_config::{Diagnostics, parse::parse, secrecy::mark_secrets};

    fn tree(text: &str) -> Node {
        let mut tree = parse(text, Path::new("t"), &mut Diagnostics::default()).unwrap();
        mark_secrets(&mut tree);
        tree
    }

    #[test]
    fn differences_are_told_by_what_is_said() {
        let before = tree(
            "workers: 1\nroutes:\n  a: { upstream: x, filters: [ { cors: {} } ] }\n  gone: { upstream: x }\n\
             consumers: { shop: { key_auth: [ old-key, \"${NEW}\" ] } }\n",
        );
        let after = tree(
            "# a comment\nroutes:\n  b.c: { respond: { status: 200 } }\n  a: { filters: [ { cors: { max_age: 1s } } ], upstream: y }\n\
             consumers: { shop: { key_auth: [ new-key, \"${NEW}\", \"sha256:ab\" ] } }\nplans: { gold: { filters: [] } }\n",
        );
        let found = diff(&before, &after);
        assert_eq!(
            found.to_text(),
            "- workers: 1\n\
             - routes.gone: {\"upstream\":\"x\"}\n\
             + routes.b.c: {\"respond\":{\"status\":200}}\n\
             ~ routes.a.filters: [{\"cors\":{}}] → [{\"cors\":{\"max_age\":\"1s\"}}]\n\
             ~ routes.a.upstream: \"x\" → \"y\"\n\
             ~ consumers.shop.key_auth: [\"***\",\"${NEW}\"] → [\"***\",\"${NEW}\",\"***\"]\n\
             + plans.gold: {\"filters\":[]}\n"
        );
        assert!(!found.to_text().contains("-key"));
        assert!(diff(&before, &before).is_empty());
        let things: Vec<_> = found.things.iter().map(String::as_str).collect();
        assert_eq!(
            things,
            ["consumers.shop", "plans.gold", "routes.a", "routes.b.c", "routes.gone", "workers"]
        );
        assert_eq!(diff(&after, &before).things, found.things);
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = "consumers: { a: { key_auth: [ hunter2, \"${KEY:-hunter2}\", \"${A}hunter2${B}\", \"sha256:hunter2\", 7 ] } }\n\
                    stores: { s: { redis: \"redis://user:hunter2@10.0.0.1/0\" } }\nadmin: { token: hunter2 }\n\
                    filters: [ { sign: { key: hunter2 } }, { jwt: { keys: '{\"k\":\"hunter2\"}' } }, { sign: { key: \"${file:a.key}\" } } ]\n\
                    listeners: { a: { tls: { certificates: [ { cert: a.pem, key: a.key } ] } } }\n";
        let shown = shown(&tree(text)).to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
        for told in [
            "redis://***@10.0.0.1/0",
            "${file:a.key}",
            "\"key\":\"a.key\"",
            "[\"***\",\"***\",\"***\",\"***\",\"***\"]",
        ] {
            assert!(shown.contains(told), "{told}: {shown}");
        }
    }
}
