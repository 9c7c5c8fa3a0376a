//! Where in an answer a value stands, and the pattern that finds it there again.

use super::super::read::Entry;
use super::random::{is_random, is_token, may_be_made_up};
use super::{CONTEXT, Source};
use regex::Regex;
use serde_json::Value as Json;
use std::collections::HashMap;

/// What is known about the answers: it is found out once for each.
pub(super) struct Search {
    /// Paths to the texts and numbers of JSON answers, by the position of the entry.
    pub(super) leaves: HashMap<usize, HashMap<String, String>>,
    /// Bytes that may still be searched.
    pub(super) left: usize,
}

impl Search {
    /// Where the answer of an entry has a value, if a plan can say it.
    pub(super) fn source(&mut self, at: usize, entry: &Entry, value: &str) -> Option<Source> {
        let number = entry.number;
        let made = |source: String, shown: String| {
            Some(Source { source, shown: format!("{shown} of entry {number}'s answer") })
        };
        let answer = &entry.answer;
        if let Some((name, _)) = answer.cookies().find(|(_, own)| *own == value)
            && is_token(name)
        {
            return made(format!("cookie:{name}"), format!("the cookie {name}"));
        }
        let single = |name: &str| answer.headers.iter().filter(|(own, _)| own == name).count() == 1;
        if let Some((name, _)) = answer.headers.iter().find(|(name, own)| own == value && single(name))
            && is_token(name)
        {
            return made(format!("header:{name}"), format!("the header field {name}"));
        }
        if answer.media.contains("json") || answer.body.trim_start().starts_with(['{', '[']) {
            let leaves = self.leaves.entry(at).or_insert_with(|| leaves(&answer.body));
            if let Some(path) = leaves.get(value) {
                return made(format!("json:{path}"), format!("`{path}`"));
            }
        }
        let pattern = pattern(&answer.body, value, &mut self.left)?;
        let shown = format!("the text behind `{}`", shown_context(&answer.body, value));
        made(format!("body~{pattern}"), shown)
    }
}

/// The texts and numbers of a JSON body that may be made up, each with the path to its first place.
fn leaves(body: &str) -> HashMap<String, String> {
    let mut all = HashMap::new();
    if let Ok(json) = serde_json::from_str::<Json>(body) {
        collect_leaves(&json, &mut String::from("$"), &mut all);
    }
    all
}

fn collect_leaves(json: &Json, path: &mut String, all: &mut HashMap<String, String>) {
    let length = path.len();
    let mut add = |value: &str, path: &str| {
        if may_be_made_up(value) && !all.contains_key(value) {
            all.insert(value.to_owned(), path.to_owned());
        }
    };
    match json {
        Json::String(text) => add(text, path),
        Json::Number(number) => add(&number.to_string(), path),
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                collect_leaves(item, path, all);
                path.truncate(length);
            }
        }
        Json::Object(members) => {
            for (key, item) in members {
                let is_word = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                    && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                // Quotes, bars and brackets in a key have a meaning of their own in a source.
                let is_fine = key.chars().all(|c| c.is_ascii_alphanumeric() || " -_.:/@".contains(c))
                    && !key.is_empty();
                match (is_word, is_fine) {
                    (true, _) => path.push_str(&format!(".{key}")),
                    (_, true) => path.push_str(&format!("['{key}']")),
                    _ => continue,
                }
                collect_leaves(item, path, all);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// A regular expression whose first match has the value in its group. The shortest text before the value that tells
/// it from all others is part of it.
fn pattern(body: &str, value: &str, left: &mut usize) -> Option<String> {
    let mut search = || {
        let rest = left.checked_sub(body.len());
        *left = rest.unwrap_or(0);
        rest
    };
    search()?;
    for (at, _) in body.match_indices(value).take(4) {
        let after = body.get(at + value.len()..)?.chars().next();
        let delimiter = match after {
            Some(c @ ('"' | '\'' | '<' | '&' | ';' | ',' | ')' | ' ' | '|' | '}' | ']')) => c,
            None | Some('\n' | '\r') => '\n',
            Some(_) => continue,
        };
        let class = match delimiter {
            '\n' => r"([^\s]+)".to_owned(),
            ']' => r"([^\]]+)".to_owned(),
            c => format!("([^{c}]+)"),
        };
        if value.contains(delimiter) {
            continue;
        }
        for before in contexts(body, at) {
            if is_random(before) {
                break;
            }
            search()?;
            let pattern = format!("{}{class}", regex::escape(before));
            let first =
                Regex::new(&pattern).ok()?.captures(body)?.get(1).map(|group| group.as_str() == value);
            if first == Some(true) {
                return Some(pattern);
            }
        }
    }
    None
}

/// Texts before a position on its line, the shortest first, each from a beginning of a word. The least has a name.
fn contexts(body: &str, at: usize) -> Vec<&str> {
    let from = body.get(..at).map_or(0, |before| before.rfind('\n').map_or(0, |end| end + 1));
    let line = body.get(from..at).unwrap_or_default();
    let starts = line.char_indices().rev().take(CONTEXT).filter(|(start, c)| {
        // A quote behind `=` is in the middle of an attribute.
        let is_inside = line.get(..*start).is_some_and(|before| before.ends_with('='));
        let is_boundary =
            matches!(c, ' ' | '<' | '{' | ',' | '?' | '&' | '(') || matches!(c, '"' | '\'') && !is_inside;
        is_boundary && line.get(*start..).is_some_and(tells_place)
    });
    let mut all: Vec<&str> = starts.filter_map(|(start, _)| line.get(start..)).map(str::trim_start).collect();
    if line.chars().count() <= CONTEXT && tells_place(line) {
        all.push(line.trim_start());
    }
    all
}

/// Whether a text before a value has a word that tells it from other values: `value` alone does not.
fn tells_place(text: &str) -> bool {
    const COMMON: &[&str] = &["content", "data", "href", "id", "input", "src", "value"];
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.any(|word| {
        word.len() >= 3 && !COMMON.contains(&word) && word.chars().any(|c| c.is_ascii_alphabetic())
    })
}

/// The text before a value for the proof, without anything that may be a secret.
fn shown_context(body: &str, value: &str) -> String {
    let at = body.find(value).unwrap_or_default();
    let shortest = contexts(body, at).into_iter().next().unwrap_or_default();
    let shown: String = shortest.chars().rev().take(40).collect::<Vec<_>>().into_iter().rev().collect();
    crate::redact::statement(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_the_value_as_its_first_match() {
        let body = "<form>\n <input name=\"q\" value=\"x\">\n <input type=\"hidden\" name=\"csrf\" value=\"a81f0c2e9b7d4c66\">\n";
        let found = pattern(body, "a81f0c2e9b7d4c66", &mut 10_000).unwrap();
        assert_eq!(found, "name=\"csrf\" value=\"([^\"]+)");
        assert_eq!(pattern("x a81f0c2e9b7d4c66y", "a81f0c2e9b7d4c66", &mut 10_000), None);
        // A budget that is spent ends the search.
        let mut left = body.len();
        assert_eq!((pattern(body, "a81f0c2e9b7d4c66", &mut left), left), (None, 0));
    }
}
