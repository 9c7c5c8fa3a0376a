//! The config that a translation makes, and the files that it names.
//!
//! Its form is that of a fleet's bundle: one text for `weir.yaml`, and files below the same folder. Routes are listed
//! in the order in which they win, which the program that runs the config declares with `Source::ranked`.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use weir_config::Supply;
use weir_config::schema::{Endpoint, EndpointAddress};

/// The folder of the files that configs name, beside the config.
pub const FILES: &str = "files";

/// A translated config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Listeners by name.
    pub listeners: BTreeMap<String, Value>,
    /// Upstreams by name.
    pub upstreams: BTreeMap<Arc<str>, Upstream>,
    /// Routes with their names. The first that matches a host and path equally well wins.
    pub routes: Vec<(Arc<str>, Thing)>,
    /// Files by their paths below the config's folder: certificates, keys and authorities.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// An upstream of the config.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Its settings: without `endpoints`, if these are supplied.
    pub settings: Thing,
    /// Its endpoints, which change without a reload.
    pub supply: Option<Arc<Supply>>,
}

/// A thing of the config, with its text once that is made. Clones share both, because most things stay the same from
/// one translation to the next.
#[derive(Clone, Debug)]
pub struct Thing(Arc<(Value, OnceLock<Box<str>>)>);

// === impl Config ===

impl Config {
    /// Adds a file, and returns its path. Equal contents share one.
    pub(crate) fn file(&mut self, kind: &str, content: &[u8]) -> String {
        let digest = crate::names::hex(content, 16);
        let path = format!("{FILES}/{digest}.{kind}");
        self.files.insert(path.clone(), content.to_vec());
        path
    }

    /// The text of `weir.yaml`: JSON, with one line for each listener, upstream and route. `rest` has further sections,
    /// such as `admin`, whose `$` the caller has doubled already.
    #[must_use]
    pub fn to_text(&self, rest: &Map<String, Value>) -> String {
        self.text(rest, |upstream, out| out.push_str(upstream.whole().text()))
    }

    /// The same for a gateway that is supplied with endpoints: the text does not have them.
    #[must_use]
    pub fn to_text_without_supplies(&self, rest: &Map<String, Value>) -> String {
        self.text(rest, |upstream, out| out.push_str(upstream.settings.text()))
    }

    fn text(&self, rest: &Map<String, Value>, of_upstream: impl Fn(&Upstream, &mut String)) -> String {
        /// About what a route and an upstream take.
        const USUAL: usize = 400;
        let mut out = String::with_capacity(USUAL * (self.routes.len() + self.upstreams.len()));
        out.push('{');
        for (key, value) in rest {
            out.push_str(&format!("\n  {}: {value},", json!(key)));
        }
        let listeners = self.listeners.iter().map(|(name, value)| (name, Thing::from(value.clone())));
        section(&mut out, "listeners", listeners, |thing, out| out.push_str(thing.text()));
        out.push(',');
        section(&mut out, "upstreams", self.upstreams.iter(), of_upstream);
        out.push(',');
        let routes = self.routes.iter().map(|(name, value)| (name, value));
        section(&mut out, "routes", routes, |thing, out| out.push_str(thing.text()));
        out.push_str("\n}\n");
        out
    }
}

// === impl Upstream ===

impl Upstream {
    /// All its settings, with its endpoints.
    fn whole(&self) -> Thing {
        let Some(supply) = &self.supply else { return self.settings.clone() };
        let endpoints: Value = supply.endpoints.iter().map(written).collect();
        let mut all = Map::from_iter([("endpoints".to_owned(), endpoints)]);
        all.extend(self.settings.as_object().cloned().unwrap_or_default());
        Value::Object(all).into()
    }
}

/// One whose settings say all.
impl From<Value> for Upstream {
    fn from(settings: Value) -> Self {
        Self { settings: settings.into(), supply: None }
    }
}

// === impl Thing ===

impl Thing {
    /// Its text in a config.
    pub(crate) fn text(&self) -> &str {
        let (value, text) = &*self.0;
        text.get_or_init(|| {
            let text = value.to_string();
            if !text.contains('$') {
                return printable(text).into();
            }
            // A text of a tenant never reads the environment or a file: `$$` is a dollar sign.
            let mut value = value.clone();
            double_dollars(&mut value);
            printable(value.to_string()).into()
        })
    }

    /// The value, to change it.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = self.0.0.clone();
        change(&mut value);
        *self = value.into();
    }
}

impl From<Value> for Thing {
    fn from(value: Value) -> Self {
        Self(Arc::new((value, OnceLock::new())))
    }
}

impl Deref for Thing {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.0
    }
}

impl PartialEq for Thing {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.0 == other.0.0
    }
}

fn section<N: AsRef<str>, T>(
    out: &mut String,
    name: &str,
    things: impl Iterator<Item = (N, T)>,
    text: impl Fn(T, &mut String),
) {
    out.push_str(&format!("\n  {}: {{", json!(name)));
    for (at, (name, thing)) in things.enumerate() {
        out.push_str(if at == 0 { "\n    " } else { ",\n    " });
        out.push_str(&json!(name.as_ref()).to_string());
        out.push_str(": ");
        text(thing, out);
    }
    out.push_str(" }");
}

/// An endpoint in the words of a config.
fn written(endpoint: &Endpoint) -> Value {
    let EndpointAddress::Tcp(address) = &endpoint.address else { return Value::Null };
    match &endpoint.zone {
        Some(zone) => json!({ "address": address.to_string(), "zone": zone }),
        None => json!(address.to_string()),
    }
}

/// Escapes characters that JSON allows and YAML refuses or reads as line ends: with one of them, a tenant's text would
/// keep the whole config from loading, or make it slow to load. They occur only in strings.
fn printable(json: String) -> String {
    let is_refused = |c: char| {
        matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    if !json.contains(is_refused) {
        return json;
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
        let value = json!({ "a": ["${HOME}", "$${HOME}", { "b": "$1" }] });
        config.routes.push(("r".into(), value.into()));
        let text = config.to_text(&Map::new());
        assert!(text.contains(r#"{"a":["$${HOME}","$$$${HOME}",{"b":"$$1"}]}"#), "{text}");
    }
}
