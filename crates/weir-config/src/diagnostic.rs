//! What is wrong with a config: the place, the expected form and the remedy. As text for people and as JSON for
//! machines.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::conceal::{conceal, holds};
use super::node::{Key, Node, Place};
use super::refused::{
    Refused, is_misspelling, is_name_of_thing, may_be_secret, names_a_thing, suggests_setting, without_key,
    without_quoted,
};
use super::secrecy::{self, may_hold_secrets};

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

/// All mistakes found so far, with the text they point into.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    found: Vec<Diagnostic>,
    errors: usize,
    sources: HashMap<Arc<PathBuf>, Arc<str>>,
    /// What no message may reveal, whichever value it concerns.
    elsewhere: Box<Concealed>,
}

/// Values to conceal in all messages, because a message about one value may quote another.
#[derive(Clone, Debug, Default)]
struct Concealed {
    /// Values from the environment or a file, and credentials.
    outside: Vec<String>,
    /// Secrets shown only to their author.
    quotable: Vec<String>,
    /// Lines that contain credentials.
    lines: HashSet<(Arc<PathBuf>, u32)>,
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

// === impl Diagnostics ===

impl Diagnostics {
    /// Removes the warnings that `known` also has, except those about the entries in `but`, such as `routes.orders`.
    /// Returns how many it removed.
    pub fn take_known(&mut self, known: &Self, but: &[String]) -> usize {
        let before = self.found.len();
        let known: HashSet<(&str, &str, &str)> = known
            .found
            .iter()
            .map(|known| (known.code, known.path.as_str(), known.message.as_str()))
            .collect();
        let is_of = |path: &str, thing: &String| {
            path.strip_prefix(thing.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.found.retain(|found| {
            found.severity == Severity::Error
                || but.iter().any(|thing| is_of(&found.path, thing))
                || !known.contains(&(found.code, found.path.as_str(), found.message.as_str()))
        });
        before - self.found.len()
    }

    /// From now on, no message shows a value of this config that came from outside, whichever setting it concerns.
    pub(super) fn conceal_outside(&mut self, tree: &Node) {
        /// Messages contain shorter pieces, such as ports, by coincidence. A diagnostic still conceals its own value.
        const LEAST: usize = 6;
        let elsewhere = secrecy::elsewhere(tree);
        let long = |values: HashSet<&str>| -> Vec<String> {
            let mut values: Vec<&str> =
                values.into_iter().filter(|value| value.chars().count() >= LEAST).collect();
            values.sort_unstable();
            values.into_iter().map(str::to_owned).collect()
        };
        let mut concealed = Concealed {
            outside: long(elsewhere.concealed),
            quotable: long(elsewhere.quotable),
            lines: HashSet::new(),
        };
        for node in elsewhere.credentials {
            let lines = node.raw().matches('\n').count() + 1;
            let lines = (node.at.line..).take(lines).map(|line| (Arc::clone(&node.at.file), line));
            concealed.lines.extend(lines);
        }
        *self.elsewhere = concealed;
    }

    /// A copy for logs, and for people who may view the gateway but not change its files. It shows no secret of a
    /// file, no source line, and no refused value, which may be a misplaced secret.
    #[must_use]
    pub fn for_readers(&self) -> Self {
        self.for_writers_of(&[])
    }

    /// A copy for a caller who may change these files and no others. It shows everything of these files.
    #[must_use]
    pub fn for_writers_of(&self, files: &[&Path]) -> Self {
        let is_theirs = |file: &PathBuf| files.contains(&file.as_path());
        let mut found = self.found.clone();
        for diagnostic in &mut found {
            if diagnostic.place.as_ref().is_some_and(|place| is_theirs(&place.file)) {
                continue;
            }
            let own = std::mem::take(&mut diagnostic.quotable);
            let told = |value: &&String| {
                let hint = diagnostic.hint.as_deref().unwrap_or_default();
                diagnostic.message.contains(value.as_str()) || hint.contains(value.as_str())
            };
            let values: Vec<&str> =
                self.elsewhere.quotable.iter().filter(told).chain(&own).map(String::as_str).collect();
            if !values.is_empty() {
                diagnostic.conceal(&values);
            }
            if !own.is_empty() {
                diagnostic.value = None;
            }
            diagnostic.without_refused();
            // A syntax error has no setting yet, and its hint may repeat a word of the line.
            if diagnostic.path.is_empty() {
                diagnostic.hint = None;
                if !diagnostic.fixed.0 {
                    diagnostic.message = without_quoted(&diagnostic.message);
                }
            }
        }
        let theirs = self.sources.iter().filter(|(file, _)| is_theirs(file));
        let sources = theirs.map(|(file, text)| (Arc::clone(file), Arc::clone(text))).collect();
        let elsewhere = if files.is_empty() { Box::default() } else { self.elsewhere.clone() };
        Self { found, errors: self.errors, sources, elsewhere }
    }

    /// The settings that keep the config from running, if known.
    pub fn refused_paths(&self) -> impl Iterator<Item = &str> {
        let errors = self.found.iter().filter(|d| d.severity == Severity::Error);
        errors.map(|error| error.path.as_str()).filter(|path| !path.is_empty())
    }

    /// Adds one.
    pub fn push(&mut self, mut diagnostic: Diagnostic) {
        let told = |value: &&String| {
            let lower = value.to_lowercase();
            let mut texts = [Some(&diagnostic.message), diagnostic.hint.as_ref()].into_iter().flatten();
            texts.any(|text| text.contains(value.as_str()) || text.contains(&lower))
        };
        let values: Vec<&str> = self.elsewhere.outside.iter().filter(told).map(String::as_str).collect();
        if !values.is_empty() {
            diagnostic.conceal(&values);
        }
        self.errors += usize::from(diagnostic.severity == Severity::Error);
        self.found.push(diagnostic);
    }

    /// Removes a diagnostic of a setting because more is known now. Returns whether there was one.
    pub(super) fn forget(&mut self, code: &str, path: &str) -> bool {
        let before = self.found.len();
        self.retain(|d| d.code != code || d.path != path);
        self.found.len() < before
    }

    /// Keeps only matching diagnostics.
    pub fn retain(&mut self, keep: impl Fn(&Diagnostic) -> bool) {
        self.found.retain(|diagnostic| keep(diagnostic));
        self.errors = self.found.iter().filter(|d| d.severity == Severity::Error).count();
    }

    /// Adds all diagnostics of another, with its sources.
    pub fn extend(&mut self, other: Self) {
        self.errors += other.errors;
        self.found.extend(other.found);
        self.sources.extend(other.sources);
    }

    /// Stores a file's text, so that diagnostics can show its lines.
    pub fn add_source(&mut self, file: &Arc<PathBuf>, text: Arc<str>) {
        self.sources.insert(file.clone(), text);
    }

    /// A file's text.
    pub(super) fn source(&self, file: &Arc<PathBuf>) -> Option<&str> {
        self.sources.get(file).map(|text| &**text)
    }

    /// The number of errors.
    pub const fn errors(&self) -> usize {
        self.errors
    }

    /// The number of warnings.
    pub fn warnings(&self) -> usize {
        self.found.len() - self.errors()
    }

    /// All diagnostics in the order found.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.found.iter()
    }

    /// Whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All diagnostics, ordered by file and line; those without a place come first.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<_> = self.found.iter().collect();
        sorted.sort_by(|a, b| (&a.place, a.severity, &a.path).cmp(&(&b.place, b.severity, &b.path)));
        sorted.dedup();
        sorted
    }

    /// For people: one block each with the source line, at most [`MAX_PRINTED`], then a line with the counts.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let sorted = self.sorted();
        for diagnostic in sorted.iter().take(MAX_PRINTED) {
            self.write_one(&mut out, diagnostic);
        }
        if sorted.len() > MAX_PRINTED {
            let _ = writeln!(out, "… and {} more", sorted.len() - MAX_PRINTED);
        }
        if !sorted.is_empty() {
            let errors = sorted.iter().filter(|d| d.severity == Severity::Error).count();
            let warnings = sorted.len() - errors;
            let plural = |n: usize| if n == 1 { "" } else { "s" };
            let _ = writeln!(out, "{errors} error{}, {warnings} warning{}", plural(errors), plural(warnings));
        }
        visible(out)
    }

    /// For machines: an object with the counts and all diagnostics.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "errors": self.errors(),
            "warnings": self.warnings(),
            "diagnostics": self.sorted(),
        })
    }

    fn write_one(&self, out: &mut String, diagnostic: &Diagnostic) {
        out.push_str(match diagnostic.severity {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
        });
        if let Some(place) = &diagnostic.place {
            let _ = write!(out, "{place}: ");
        }
        if !diagnostic.path.is_empty() {
            let _ = write!(out, "{}: ", diagnostic.path);
        }
        let _ = writeln!(out, "{} [{}]", diagnostic.message, diagnostic.code);
        let place = diagnostic.place.as_ref().filter(|_| !diagnostic.is_absent);
        let line = place.and_then(|place| self.line(place));
        if let Some(line) = line.filter(|line| !holds(line, &diagnostic.concealed)) {
            let column = diagnostic.place.as_ref().map_or(1, |place| place.column as usize);
            write_line(out, &line, column);
        }
        if let Some(hint) = &diagnostic.hint {
            let _ = writeln!(out, "  hint: {hint}");
        }
    }

    /// The source line of a place, unless it may contain secrets.
    fn line(&self, place: &Place) -> Option<String> {
        let text = self.sources.get(&place.file)?;
        let index = (place.line as usize).checked_sub(1)?;
        let line = text.lines().nth(index)?;
        let secret = self.elsewhere.lines.contains(&(Arc::clone(&place.file), place.line));
        let shows = !secret && !line.trim().is_empty() && !may_hold_secrets(text, index);
        shows.then(|| line.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}"))
    }
}

fn write_line(out: &mut String, line: &str, column: usize) {
    /// Maximum width of a shown line.
    const MAX_WIDTH: usize = 120;
    let shown: String = line.chars().map(|c| if c == '\t' { '→' } else { c }).take(MAX_WIDTH).collect();
    let _ = writeln!(out, "  | {shown}");
    if column <= MAX_WIDTH {
        let _ = writeln!(out, "  | {}^", " ".repeat(column.saturating_sub(1)));
    }
}

/// Escapes control characters and characters that change the text direction. A config or a request may contain them,
/// and a terminal would obey them.
fn visible(text: String) -> String {
    let is_obeyed = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_obeyed) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_obeyed(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Value;

    #[test]
    fn no_terminal_obeys_a_name() {
        let mut found = Diagnostics::default();
        found.push(Diagnostic::error("unknown-key", "a\u{1b}[31m\rb\u{7f}\u{202e}c\td: \u{e9}"));
        let text = found.to_text();
        assert!(text.contains("a\\u{1b}[31m\\rb\\u{7f}\\u{202e}c\td: \u{e9} [unknown-key]"), "{text}");
        assert_eq!(visible("plain\n\ttext".to_owned()), "plain\n\ttext");
    }

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
