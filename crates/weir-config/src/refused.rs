//! What a mistake is about, kept so that it can be taken out of what readers are told: a secret may have been written in the wrong place, as
//! the name of an upstream or as a key.

use super::aliases;
use super::mask::MASK;
use super::node::{NAMED, Node};
use super::secrecy;
use super::spelling::distance;
use std::sync::Arc;

/// What a mistake is about, as it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Refused {
    /// The value itself. A message may repeat any part of it, in any form.
    pub(super) value: Option<String>,
    /// Values and keys below it, which a message can only quote.
    pub(super) below: Vec<String>,
    /// The key, where that is what is wrong.
    pub(super) key: Option<String>,
    /// The same message without the value.
    pub(super) plain: Option<String>,
}

impl Refused {
    /// Most texts below a value that are kept.
    const MOST: usize = 256;

    /// Remembers what was written there, but for names of things of the config.
    pub(super) fn note(&mut self, tree: &Node, node: &Node) {
        match node.as_text() {
            Some(text) if names_a_thing(tree, text) => {}
            Some(text) => self.value = Some(text.to_owned()),
            None => self.note_below(node),
        }
    }

    /// The same of a value that a reader refused; `plain` is the message without it. The key that it stands under, if people chose it, may
    /// be what is wrong: under `upstream` it names one, and whether there is such an upstream was not asked.
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

/// Whether a path leads to a thing of the config, which has this name.
pub(super) fn is_name_of_thing(path: &str, key: &str) -> bool {
    path.split_once('.')
        .is_some_and(|(section, name)| name == key && (NAMED.contains(&section) || section == "stores"))
}

/// Whether a thing of the config is called so.
pub(super) fn names_a_thing(tree: &Node, text: &str) -> bool {
    NAMED
        .iter()
        .chain(&["stores"])
        .any(|section| tree.get(section).is_some_and(|things| things.get(text).is_some()))
}

/// Whether a text that was refused may be a secret in the wrong place: no short word or number, no word of ours, no name of a file.
pub(super) fn may_be_secret(text: &str) -> bool {
    /// Nobody has a shorter secret.
    const LEAST: usize = 4;
    /// What the files that a config names end in.
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

/// Whether a hint names a setting and nothing else: all of it is ours.
pub(super) fn suggests_setting(hint: &str) -> bool {
    let meant = hint.strip_prefix("did you mean ").and_then(|meant| meant.strip_suffix('?'));
    meant.is_some_and(|meant| secrecy::is_setting(meant.trim_matches('`')))
}

/// Whether a text is nothing but a misspelt name.
pub(super) fn is_misspelling(text: &str, name: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    name.starts_with(text) || distance(&plain(text), &plain(name)) <= 2
}

/// A path without a key in it.
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

/// A text of a mistake of the syntax, whose settings nobody knows yet, without what it quotes.
pub(super) fn without_quoted(text: &str) -> String {
    let pieces = text.split('`').enumerate().map(|(at, piece)| match at % 2 {
        1 if may_be_secret(piece) => MASK,
        _ => piece,
    });
    pieces.collect::<Vec<_>>().join("`")
}
