//! What is wrong with a config: the place, the expected form and the remedy. As text for people and as JSON for
//! machines.

mod list;

pub use list::Diagnostics;

use super::conceal::conceal;
use super::node::{Key, Node, Place};
use super::refused::{
    Refused, is_misspelling, is_name_of_thing, may_be_secret, names_a_thing, suggests_setting, without_key,
};
use super::secrecy;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use std::borrow::Cow;

/// Maximum number of diagnostics printed; the rest is only counted.
pub const MAX_PRINTED: usize = 100;

/// Whether a config with this mistake can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The config cannot run.
    Error,
    /// The config can run, but probably does not do what its author meant.
    Warning,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// Whether a config with this mistake can run.
    pub severity: Severity,
    /// The kind of mistake, in kebab-case. Stable, because scripts may depend on it.
    pub code: &'static str,
    /// Where the value is written. None if it is not written.
    pub place: Option<Place>,
    /// The setting, such as `upstreams.orders.timeouts.connect`. Empty if the mistake concerns a whole file.
    pub path: String,
    /// The value as written. None for lists, maps and secrets.
    pub value: Option<String>,
    /// What is wrong and what was expected, in one sentence. Never contains a secret.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
    /// Parts of the affected values that must not be shown.
    concealed: Vec<String>,
    /// The mistake concerns something unwritten, so `place` is the start of the config and its line is irrelevant.
    is_absent: bool,
    /// Whether the message and the hint are constant texts without any value.
    fixed: (bool, bool),
    /// Parts that only the author of the value may see.
    pub(super) quotable: Vec<String>,
    /// What was refused. It may be a misplaced secret.
    pub(super) refused: Refused,
}

// === impl Diagnostic ===

impl Diagnostic {
    /// A mistake that keeps the config from running.
    ///
    /// A message that is a string literal is printed unchanged. Any other message has secret parts of values removed.
    pub fn error(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self {
            fixed: (matches!(message, Cow::Borrowed(_)), false),
            severity: Severity::Error,
            code,
            place: None,
            path: String::new(),
            value: None,
            message: message.into_owned(),
            hint: None,
            concealed: Vec::new(),
            is_absent: false,
            quotable: Vec::new(),
            refused: Refused::default(),
        }
    }

    /// A mistake that does not keep the config from running.
    pub fn warning(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// Sets the place.
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Sets the place by the path of a setting: its value, or else the nearest enclosing value that is written, or
    /// else the start of the config.
    pub fn on(mut self, tree: &Node, path: &str) -> Self {
        path.clone_into(&mut self.path);
        if let Some((key, node, found)) = nearest(tree, path) {
            // A scalar has no keys below it, so the rest of the path may repeat a value from outside.
            if node.outside().iter().any(|piece| path[found..].contains(piece.as_str())) {
                self.path.truncate(found);
            }
            // For a list or map, point at its key, because readers look for that.
            let scalar = node.as_text().is_some() || key.is_none();
            self.place = Some(if scalar { &node.at } else { key.map_or(&node.at, |key| &key.at) }.clone());
            let beyond = path[found..].trim_start_matches('.');
            if !beyond.is_empty() && node.as_text().is_some() {
                // A filter's name written alone in its list.
                self.refused.note(tree, node);
                self.refused.key = beyond.split(['.', '[']).next().map(str::to_owned);
            }
            if tree.find(path).is_some() {
                self.value = node.shown();
                self.refused.note(tree, node);
                self.refuse_last_key(tree, path, key, node.is_blank());
                if let Some(text) = node
                    .as_text()
                    .filter(|text| !text.is_empty() && (node.is_credential() || node.substituted))
                {
                    self.message = self.message.replace(&format!("`{text}`"), "the value");
                }
            }
            self = self.concealing(node);
            if let Some(variable) = node.any_empty_variable() {
                self.message.push_str(&format!(" ({variable} is empty)"));
            }
        } else {
            self.place = Some(tree.at.clone());
            self.is_absent = true;
        }
        self
    }

    /// Removes secrets and values from the environment or a file from all texts. The diagnostic concerns this value,
    /// or one below it.
    pub fn concealing(mut self, node: &Node) -> Self {
        let mut values = Vec::new();
        node.add_concealed(&mut values);
        if !values.is_empty() {
            self.conceal(&values);
            self.concealed.extend(values.into_iter().map(str::to_owned));
        }
        self.with_quotable(node)
    }

    /// Remembers which parts of this value, or of one below it, only the author may see.
    fn with_quotable(mut self, node: &Node) -> Self {
        let mut values = Vec::new();
        node.add_quotable(&mut values);
        self.quotable.extend(values.into_iter().map(str::to_owned));
        self
    }

    /// Adds how to fix it. A string literal is printed unchanged.
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        let hint = hint.into();
        self.fixed.1 = matches!(hint, Cow::Borrowed(_)) || suggests_setting(&hint);
        let values: Vec<&str> = self.concealed.iter().map(String::as_str).collect();
        self.hint = Some(if self.fixed.1 { hint.into_owned() } else { conceal(&hint, &values).into_owned() });
        self
    }

    /// Marks this key as the mistake.
    pub(super) fn refusing_key(mut self, key: &str) -> Self {
        self.refused.key = Some(key.to_owned());
        self
    }

    /// Treats the last key as possibly wrong if the message quotes it or no value is written there, and no entry of
    /// the config has that name.
    fn refuse_last_key(&mut self, tree: &Node, path: &str, key: Option<&Key>, is_blank: bool) {
        let Some(key) = key.filter(|key| !secrecy::is_setting(&key.text)) else { return };
        let is_name = is_name_of_thing(path, &key.text);
        let is_told = is_blank || self.message.contains(&format!("`{}`", key.text));
        if is_told && !is_name && !names_a_thing(tree, &key.text) {
            self.refused.key = Some(key.text.to_string());
        }
    }

    /// Removes what was refused, unless it is a misspelling of a public name.
    fn without_refused(&mut self) {
        if self.severity != Severity::Error {
            return;
        }
        let refused = std::mem::take(&mut self.refused);
        let meant = self.hint.as_deref().and_then(|hint| hint.strip_prefix("did you mean "));
        let meant = meant.map(|meant| meant.trim_end_matches('?').trim_matches('`').to_owned());
        let may_be_secret = |text: &&String| {
            may_be_secret(text) && !meant.as_deref().is_some_and(|meant| is_misspelling(text, meant))
        };
        let told = |text: &&String| {
            self.message.contains(text.as_str())
                || self.hint.as_ref().is_some_and(|hint| hint.contains(text.as_str()))
        };
        let value = refused.value.as_ref().filter(may_be_secret);
        let key = refused.key.as_ref().filter(may_be_secret);
        let below = refused.below.iter().filter(may_be_secret).filter(told);
        let hidden: Vec<&str> = value.into_iter().chain(key).chain(below).map(String::as_str).collect();
        if hidden.is_empty() {
            return;
        }
        if let Some(key) = key {
            self.path = without_key(&self.path, key);
        }
        self.value = None;
        if let Some(plain) = refused.plain.filter(|_| value.is_some()) {
            self.message = plain;
            self.fixed.0 = true;
        }
        self.conceal(&hidden);
    }

    /// Sets whether the message is a literal. A message that passed through a deserializer needs this.
    pub(super) const fn with_fixed(mut self, message: bool) -> Self {
        self.fixed.0 = message;
        self
    }

    /// Removes values from texts that are not literals.
    fn conceal(&mut self, values: &[&str]) {
        let (message, hint) = self.fixed;
        if !message {
            self.message = conceal(&self.message, values).into_owned();
        }
        if !hint && !self.hint.as_deref().is_some_and(suggests_setting) {
            self.hint = self.hint.take().map(|hint| conceal(&hint, values).into_owned());
        }
    }
}

/// The node at `path`, or the innermost enclosing one that is written, and the length of the path that leads to it.
fn nearest<'t>(tree: &'t Node, path: &str) -> Option<(Option<&'t Key>, &'t Node, usize)> {
    let mut path = path;
    loop {
        if let Some((key, node)) = tree.lookup(path) {
            return (!path.is_empty()).then_some((key, node, path.len()));
        }
        path = &path[..path.rfind(['.', '['])?];
    }
}

/// A diagnostic as JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Diagnostic")]
struct Document<'a> {
    severity: Severity,
    /// What kind of mistake; stable.
    code: &'a str,
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    /// The setting; empty for a mistake of a whole file.
    path: &'a str,
    /// The value as written; none for lists, maps and secrets.
    value: Option<&'a str>,
    message: &'a str,
    hint: Option<&'a str>,
}

impl Serialize for Diagnostic {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = self.place.as_ref();
        let document = Document {
            severity: self.severity,
            code: self.code,
            file: place.map(|p| p.file.display().to_string()),
            line: place.map(|p| p.line),
            column: place.map(|p| p.column),
            path: &self.path,
            value: self.value.as_deref(),
            message: &self.message,
            hint: self.hint.as_deref(),
        };
        document.serialize(serializer)
    }
}

impl JsonSchema for Diagnostic {
    fn schema_name() -> Cow<'static, str> {
        Document::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Document::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Value;
    use std::sync::Arc;

    #[test]
    fn a_path_repeats_nothing_from_outside() {
        let at = || Place { file: Arc::default(), line: 1, column: 1 };
        let mut name = Node::new(at(), Value::Str("jwt-s3cr3t".into()), "");
        name.substituted = true;
        name.set_outside(vec!["s3cr3t".to_owned()], "jwt-${S}".to_owned(), None);
        let tree = Node::new(at(), Value::Seq(vec![name]), "");
        for (path, told) in [
            ("[0].jwt-s3cr3t", "[0]"),
            ("[0].jwt-s3cr3t.keys", "[0]"),
            ("[0].jwt-${S}.keys", "[0].jwt-${S}.keys"),
            ("[0]", "[0]"),
        ] {
            assert_eq!(Diagnostic::error("bad-value", "").on(&tree, path).path, told);
        }
    }
}
