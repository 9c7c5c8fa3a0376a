//! What is wrong with one value: an error that knows its node.

use std::fmt;

use serde::de::{Expected, Unexpected};

use super::cx::Cx;
use super::{FIXED, HINT};
use crate::aliases;
use crate::conceal::conceal;
use crate::diagnostic::Diagnostic;
use crate::node::{Key, Node, Place};
use crate::refused::Refused;
use crate::spelling::nearest_name;

/// What is wrong with one value.
#[derive(Debug)]
pub struct Error(pub(super) Box<Mistake>);

#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) code: &'static str,
    /// Continues the name of the value: "is not a duration".
    pub(super) says: String,
    /// Whether the text says only what was expected and quotes nothing of the value.
    pub(super) fixed: bool,
    pub(super) hint: Option<String>,
    pub(super) missing: Option<&'static str>,
    pub(super) node: Option<Identity>,
    pub(super) place: Option<Place>,
    pub(super) path: String,
    /// Set if the key is wrong, not the value.
    pub(super) key: Option<String>,
    /// Parts of the value that only its author may see.
    pub(super) quotable: Vec<String>,
    /// What was refused, kept so that it can be removed from messages.
    pub(super) refused: Refused,
    /// Whether the text is `fixed` and the subject before it reveals nothing of the value either.
    pub(super) told_fixed: bool,
}

/// The address of a node in the tree being read. The tree does not move during a read.
pub(super) type Identity = *const Node;

/// `a, b or c`.
pub(super) fn one_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The config's word for an expected type that serde names in Rust's words.
fn in_words(expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    match expected.strip_prefix("a nonzero ") {
        Some(_) => "a whole number above zero".to_owned(),
        None => expected,
    }
}

// === impl Error ===

impl Error {
    pub(super) fn new(code: &'static str, says: String) -> Self {
        let mistake = Mistake {
            code,
            says,
            fixed: false,
            hint: None,
            missing: None,
            node: None,
            place: None,
            path: String::new(),
            key: None,
            quotable: Vec::new(),
            refused: Refused::default(),
            told_fixed: false,
        };
        Self(Box::new(mistake))
    }

    /// As [`new`](Self::new), with a text that contains no part of the value.
    pub(super) fn fixed(code: &'static str, says: String) -> Self {
        let mut error = Self::new(code, says);
        error.0.fixed = true;
        error
    }

    pub(super) fn hint(mut self, hint: Option<String>) -> Self {
        self.0.hint = hint;
        self
    }

    /// Sets the position, unless a deeper value has set it.
    pub(super) fn within(mut self, node: &Node, cx: &Cx) -> Self {
        if self.0.node.is_none() {
            self.0.node = Some(node);
            self.0.place = Some(node.at.clone());
            self.0.path = cx.path();
            let mut quotable = Vec::new();
            node.add_quotable(&mut quotable);
            self.0.quotable = quotable.into_iter().map(str::to_owned).collect();
            if node.is_credential() || node.substituted {
                // Hints repeat the written value.
                self.0.hint = None;
            }
            let mut values = Vec::new();
            node.add_concealed(&mut values);
            if !values.is_empty() {
                if !self.0.fixed {
                    self.0.says = conceal(&self.0.says, &values).into_owned();
                }
                self.0.hint = self.0.hint.map(|hint| conceal(&hint, &values).into_owned());
            }
            if self.0.missing.is_none() {
                if self.0.hint.is_none()
                    && !node.is_credential()
                    && let Some(word) = node.unquoted_word()
                {
                    self.0.hint = Some(format!("write \"{{{word}}}\" in quotes for literal text"));
                }
                let empty = node.any_empty_variable();
                if empty.is_some() {
                    self.0.hint = Some("set the variable, or give it a default: ${NAME:-default}".to_owned());
                }
                let subject = match node.shown() {
                    Some(shown) => format!("`{shown}`"),
                    None if let Some(written) = node.empty_variable() => format!("{written} is empty, which"),
                    None if let Some(written) = empty => format!("the value ({written} is empty)"),
                    None if node.is_credential() || node.substituted => "the value".to_owned(),
                    None if node.is_blank() => "an empty value".to_owned(),
                    None => node.kind().to_owned(),
                };
                self.0.told_fixed = self.0.fixed && node.shown().is_none();
                let says = std::mem::take(&mut self.0.says);
                let joined = if says.starts_with("is ") { " " } else { ": " };
                let plain = self.0.fixed.then(|| format!("the value{joined}{says}"));
                self.0.refused = Refused::by_reader(node, &self.0.path, cx.last_key(), plain);
                self.0.says = format!("{subject}{joined}{says}");
            }
        }
        self
    }

    /// Marks the key as wrong instead of its value.
    pub(super) fn within_key(mut self, key: &Key, node: &Node, cx: &Cx) -> Self {
        if self.0.node.is_none() {
            self.0.node = Some(node);
            self.0.place = Some(key.at.clone());
            self.0.path = cx.path();
            self.0.says = format!("`{}` {}", key.text, self.0.says);
            self.0.key = Some(key.text.to_string());
        }
        self
    }
}

impl Mistake {
    pub(super) fn into_diagnostic(self, root: &Node, root_path: &str) -> Diagnostic {
        let mut diagnostic = Diagnostic::error(self.code, self.says).with_fixed(self.told_fixed);
        diagnostic.place = Some(self.place.unwrap_or_else(|| root.at.clone()));
        diagnostic.path = if self.node.is_some() { self.path } else { root_path.to_owned() };
        if let Some(field) = self.missing {
            let dot = if diagnostic.path.is_empty() { "" } else { "." };
            diagnostic.path = format!("{}{dot}{field}", diagnostic.path);
        }
        diagnostic.hint = self.hint;
        diagnostic.quotable = self.quotable;
        diagnostic.refused = self.refused;
        if let Some(key) = self.key {
            diagnostic = diagnostic.refusing_key(&key);
            diagnostic.value = Some(key);
        }
        diagnostic
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.says)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        let (message, fixed) = match message.strip_prefix(FIXED) {
            Some(message) => (message, true),
            None => (&*message, false),
        };
        let (says, hint) =
            message.split_once(HINT).map_or((message, None), |(says, hint)| (says, Some(hint)));
        let mut error = Self::new("bad-value", says.to_owned()).hint(hint.map(str::to_owned));
        error.0.fixed = fixed;
        error
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::fixed("bad-type", format!("is not {}", in_words(expected)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::fixed("bad-value", format!("is not {}", in_words(expected)))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let near = || nearest_name(variant, expected.iter().copied());
        let alias = aliases::word(variant, expected).map(str::to_owned);
        let hint = alias.or_else(|| near().map(|near| format!("did you mean {near}?")));
        Self::fixed("bad-value", format!("is not valid here; expected {}", one_of(expected))).hint(hint)
    }

    /// Called only for a map read as an alternative to another form; elsewhere unknown keys are recorded as they are
    /// read.
    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new("unknown-key", format!("is not a valid key; expected {}", one_of(expected)))
    }

    fn missing_field(field: &'static str) -> Self {
        let mut error = Self::new("missing-key", format!("`{field}` is missing"));
        error.0.missing = Some(field);
        error
    }
}
