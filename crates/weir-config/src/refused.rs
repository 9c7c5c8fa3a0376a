//! The subject of a mistake, kept so that it can be removed from what readers see. It may be a misplaced secret,
//! written as the name of an upstream or as a key.

use super::aliases;
use super::mask::MASK;
use super::node::{NAMED, Node};
use super::secrecy;
use super::spelling::distance;
use std::sync::Arc;

/// The subject of a mistake, as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Refused {
    /// The value. A message may repeat any part of it, in any form.
    pub(super) value: Option<String>,
    /// Values and keys below it, which a message can only quote.
    pub(super) below: Vec<String>,
    /// The key, if that is the mistake.
    pub(super) key: Option<String>,
    /// The same message without the value.
    pub(super) plain: Option<String>,
}

impl Refused {
    /// Maximum number of texts below a value that are kept.
    const MOST: usize = 256;

    /// Stores what was written there, except names of entries of the config.
    pub(super) fn note(&mut self, tree: &Node, node: &Node) {
        match node.as_text() {
            Some(text) if names_a_thing(tree, text) => {}
            Some(text) => self.value = Some(text.to_owned()),
            None => self.note_below(node),
        }
    }

    /// As [`note`](Self::note), for a value that a reader refused; `plain` is the message without it. A key chosen by
    /// people may be the mistake too: under `upstream` it names an upstream, which may not exist.
    pub(super) fn by_reader(node: &Node, path: &str, key: Option<Arc<str>>, plain: Option<String>) -> Self {
        let key = key.filter(|key| !secrecy::is_setting(key) && !is_name_of_thing(path, key));
        let key = key.map(|key| key.to_string());
        let mut refused = Self { value: node.as_text().map(str::to_owned), plain, key, ..Self::default() };
        refused.note_below(node);
        refused
    }

    fn note_below(&mut self, node: &Node) {
        for (key, value) in node.entries() {
            self.add(&key.text);
            self.note_one(value);
        }
        node.elements().iter().for_each(|element| self.note_one(element));
    }

    fn note_one(&mut self, node: &Node) {
        if let Some(text) = node.as_text() {
            self.add(text);
        }
        self.note_below(node);
    }

    fn add(&mut self, text: &str) {
        if self.below.len() < Self::MOST && !secrecy::is_setting(text) {
            self.below.push(text.to_owned());
        }
    }
}

/// Whether a path leads to an entry of the config with this name.
pub(super) fn is_name_of_thing(path: &str, key: &str) -> bool {
    path.split_once('.')
        .is_some_and(|(section, name)| name == key && (NAMED.contains(&section) || section == "stores"))
}

/// Whether an entry of the config has this name.
pub(super) fn names_a_thing(tree: &Node, text: &str) -> bool {
    NAMED
        .iter()
        .chain(&["stores"])
        .any(|section| tree.get(section).is_some_and(|things| things.get(text).is_some()))
}

/// Whether a refused text may be a misplaced secret: not a short word or number, not a word of ours, not a file name.
pub(super) fn may_be_secret(text: &str) -> bool {
    /// Secrets are not shorter.
    const LEAST: usize = 4;
    /// Extensions of files that a config names.
    const FILES: &[&str] =
        &["crt", "cer", "html", "json", "key", "pb", "pem", "proto", "sock", "txt", "yaml", "yml"];
    let is_number = text.len() <= 6 && text.parse::<f64>().is_ok();
    let is_file = text.rsplit_once('.').is_some_and(|(_, end)| FILES.contains(&end));
    text.chars().count() >= LEAST
        && !is_number
        && !is_file
        && !secrecy::is_setting(text)
        && !aliases::is_known(text)
}

/// Whether a hint only names a setting, so that all its text is ours.
pub(super) fn suggests_setting(hint: &str) -> bool {
    let meant = hint.strip_prefix("did you mean ").and_then(|meant| meant.strip_suffix('?'));
    meant.is_some_and(|meant| secrecy::is_setting(meant.trim_matches('`')))
}

/// Whether a text is only a misspelled name.
pub(super) fn is_misspelling(text: &str, name: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    name.starts_with(text) || distance(&plain(text), &plain(name)) <= 2
}

/// A path without one of its keys.
pub(super) fn without_key(path: &str, key: &str) -> String {
    let mut out = String::new();
    let mut rest = path;
    while let Some(at) = rest.find(key) {
        let (before, behind) = (&rest[..at], &rest[at + key.len()..]);
        let whole = (before.is_empty() && out.is_empty() || before.ends_with('.'))
            && (behind.is_empty() || behind.starts_with(['.', '[']));
        out.push_str(before);
        out.push_str(if whole { MASK } else { key });
        rest = behind;
    }
    out + rest
}

/// A text of a syntax error without its quotes. The settings it quotes are not known yet.
pub(super) fn without_quoted(text: &str) -> String {
    let pieces = text.split('`').enumerate().map(|(at, piece)| match at % 2 {
        1 if may_be_secret(piece) => MASK,
        _ => piece,
    });
    pieces.collect::<Vec<_>>().join("`")
}
