//! The config that a translation makes, and the files that it names.
//!
//! Its form is that of a fleet's bundle: one text for `weir.yaml`, and files below the same folder. So the last good one
//! can be kept on disk and run by itself after a restart. Routes are listed in the order in which they win, which the
//! program that runs it declares with `Source::ranked`.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A translated config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Listeners by name.
    pub listeners: BTreeMap<String, Value>,
    /// Upstreams by name.
    pub upstreams: BTreeMap<String, Value>,
    /// Routes with their names. The first that matches a host and path equally well wins.
    pub routes: Vec<(String, Value)>,
    /// Files by their paths below the config's folder: certificates, keys and authorities.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Config {
    /// Adds a file, and returns its path. Equal contents share one.
    pub(crate) fn file(&mut self, kind: &str, content: &[u8]) -> String {
        let digest = crate::names::hex(content, 16);
        let path = format!("files/{digest}.{kind}");
        self.files.insert(path.clone(), content.to_vec());
        path
    }

    /// The text of `weir.yaml`: JSON, a line for each thing. `rest` has further sections, such as `admin`; its texts are
    /// the operator's, so they may hold `${VAR}`.
    #[must_use]
    pub fn to_text(&self, rest: &Map<String, Value>) -> String {
        let mut out = String::from("{");
        for (key, value) in rest {
            out.push_str(&format!("\n  {}: {value},", json!(key)));
        }
        let listeners = self.listeners.iter();
        let upstreams = self.upstreams.iter();
        section(&mut out, "listeners", listeners);
        out.push(',');
        section(&mut out, "upstreams", upstreams);
        out.push(',');
        section(&mut out, "routes", self.routes.iter().map(|(name, value)| (name, value)));
        out.push_str("\n}\n");
        out
    }
}

fn section<'v>(out: &mut String, name: &str, things: impl Iterator<Item = (&'v String, &'v Value)>) {
    out.push_str(&format!("\n  {}: {{", json!(name)));
    for (at, (name, thing)) in things.enumerate() {
        out.push_str(if at == 0 { "\n" } else { ",\n" });
        // A text of a tenant never reads the environment or a file: `$$` is a dollar sign.
        out.push_str(&format!("    {}: {}", json!(name), printable(&doubled(thing).to_string())));
    }
    out.push_str(" }");
}

/// JSON may hold characters that YAML refuses, in one text of a tenant for all: they are escaped. Only texts have them.
fn printable(json: &str) -> String {
    let is_refused = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    if !json.contains(is_refused) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_refused(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// The same with each `$` doubled. Keys are never filled in.
fn doubled(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('$', "$$")),
        Value::Array(all) => Value::Array(all.iter().map(doubled).collect()),
        Value::Object(all) => {
            Value::Object(all.iter().map(|(key, value)| (key.clone(), doubled(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_variable() {
        let mut config = Config::default();
        config.routes.push(("r".to_owned(), json!({ "a": ["${HOME}", "$${HOME}", { "b": "$1" }] })));
        let text = config.to_text(&Map::new());
        assert!(text.contains(r#"{"a":["$${HOME}","$$$${HOME}",{"b":"$$1"}]}"#), "{text}");
    }
}
