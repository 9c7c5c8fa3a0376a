//! The config that a translation makes, and the files that it names.
//!
//! Its form is that of a fleet's bundle: one text for `weir.yaml`, and files below the same folder. Routes are listed
//! in the order in which they win, which the program that runs the config declares with `Source::ranked`.

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

    /// The text of `weir.yaml`: JSON, with one line for each listener, upstream and route. `rest` has further sections,
    /// such as `admin`, whose `$` the caller has doubled already.
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
        let mut thing = thing.clone();
        double_dollars(&mut thing);
        out.push_str(&format!("    {}: {}", json!(name), printable(&thing.to_string())));
    }
    out.push_str(" }");
}

/// Escapes characters that JSON allows and YAML refuses: with one of them, a tenant's text would keep the whole config
/// from loading. They occur only in strings.
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

/// Doubles each `$` in texts, so that Weir reads no `${VAR}` in them. Keys stay: Weir never replaces variables there.
pub fn double_dollars(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace('$', "$$"),
        Value::Array(all) => all.iter_mut().for_each(double_dollars),
        Value::Object(all) => all.values_mut().for_each(double_dollars),
        _ => {}
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
