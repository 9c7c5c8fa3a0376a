//! All diagnostics of a config: sorted, written, and without what their reader may not see.

use super::super::conceal::holds;
use super::super::node::{Node, Place};
use super::super::refused::without_quoted;
use super::super::secrecy::{self, may_hold_secrets};
use super::{Diagnostic, MAX_PRINTED, Severity};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    pub(crate) fn conceal_outside(&mut self, tree: &Node) {
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
    pub(crate) fn forget(&mut self, code: &str, path: &str) -> bool {
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
    pub(crate) fn source(&self, file: &Arc<PathBuf>) -> Option<&str> {
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
    pub(super) fn line(&self, place: &Place) -> Option<String> {
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

    #[test]
    fn no_terminal_obeys_a_name() {
        let mut found = Diagnostics::default();
        found.push(Diagnostic::error("unknown-key", "a\u{1b}[31m\rb\u{7f}\u{202e}c\td: \u{e9}"));
        let text = found.to_text();
        assert!(text.contains("a\\u{1b}[31m\\rb\\u{7f}\\u{202e}c\td: \u{e9} [unknown-key]"), "{text}");
        assert_eq!(visible("plain\n\ttext".to_owned()), "plain\n\ttext");
    }
}
