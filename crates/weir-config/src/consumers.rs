//! Reads documents of consumers: what a file or a web server under `consumer_sources` holds.
//!
//! A document is written like a config that has nothing but `consumers`, so the same text can be included by a config.
//! It is data, not configuration: `${VAR}` is refused, because whoever may write consumers must not read the
//! gateway's environment, and because a key that was meant to be filled in would otherwise be the key itself.

use crate::check::check_document;
use crate::de;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::node::{Node, Value};
use crate::parse::{MAX_CONSUMER_BYTES, parse_within};
use crate::schema::{Config, Consumer, Named};
use crate::secrecy::mark_secrets;
use std::path::Path;

/// What a document holds, and its tree, which gives mistakes their places.
#[derive(Debug)]
pub struct Document {
    /// The consumers, in the order written.
    pub consumers: Named<Consumer>,
    /// The tree. No message shows a credential of it.
    pub tree: Node,
}

/// Reads a document called `name` in messages. All mistakes go to `found`; with any, the result is incomplete.
/// `credentials` names the filters that know consumers.
pub fn read(text: &str, name: &Path, credentials: &[&str], found: &mut Diagnostics) -> Option<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut tree = parse_within(MAX_CONSUMER_BYTES, text, name, found)?;
    mark_secrets(&mut tree);
    for (key, _) in tree.entries().iter().filter(|(key, _)| &*key.text != "consumers") {
        let message = format!("`{}` has no place here; expected `consumers` alone", key.text);
        let mut wrong = Diagnostic::error("unknown-key", message).at(key.at.clone()).refusing_key(&key.text);
        wrong.path = key.text.to_string();
        found.push(wrong.hint("write consumers: { NAME: { key_auth: [ KEY ] } }"));
    }
    if tree.get("consumers").is_none() {
        // Half a file, or a page of a proxy, must not remove everybody.
        let wrong = Diagnostic::error("missing-key", "`consumers` is missing").at(tree.at.clone());
        found.push(wrong.hint("write `consumers: {}` if there are none"));
        return None;
    }
    tree.index();
    refuse_variables(&tree, &mut String::new(), &tree, found);
    let consumers: Named<Consumer> = de::read(tree.get("consumers")?, "consumers", found)?;
    let config = Config { consumers, ..Config::default() };
    check_document(&config, &tree, credentials, found);
    Some(Document { consumers: config.consumers, tree })
}

/// Refuses `${…}` in values. The parser bounds the depth.
fn refuse_variables(node: &Node, path: &mut String, tree: &Node, found: &mut Diagnostics) {
    let length = path.len();
    match &node.value {
        Value::Map(entries) => {
            for (key, value) in entries {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key.text);
                refuse_variables(value, path, tree, found);
                path.truncate(length);
            }
        }
        Value::Seq(elements) => {
            for (index, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                refuse_variables(element, path, tree, found);
                path.truncate(length);
            }
        }
        Value::Str(text) if text.contains("${") => {
            let message = "holds a variable; a source of consumers has none";
            let hint = "write the value itself, for a key as sha256: and its hash";
            found.push(Diagnostic::error("bad-value", message).on(tree, path).hint(hint));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mistakes of a document, as `LINE:COLUMN CODE PATH`.
    fn mistakes(text: &str) -> Vec<String> {
        let mut found = Diagnostics::default();
        read(text, Path::new("c.yaml"), &["basic_auth", "key_auth"], &mut found);
        assert!(!found.for_readers().to_text().contains("hunter2"), "{}", found.to_text());
        let told = |d: &Diagnostic| {
            let place = d.place.as_ref().map(|at| format!("{}:{}", at.line, at.column)).unwrap_or_default();
            format!("{place} {} {}", d.code, d.path)
        };
        found.iter().map(told).collect()
    }

    #[test]
    fn a_document_is_read_like_a_config() {
        let good =
            "\u{feff}consumers:\r\n  a: { key_auth: [ hunter2 ], plan: gold, groups: [x] }\r\n  b: {}\r\n";
        assert!(mistakes(good).is_empty(), "{:?}", mistakes(good));
        assert!(mistakes("{\"consumers\": {\"a\": {\"allow_ips\": [\"10.0.0.0/8\"]}}}").is_empty());
        assert!(mistakes("consumers: {}").is_empty());
    }

    #[test]
    fn every_mistake_has_its_place() {
        for (text, expected) in [
            ("", &["1:1 missing-key "][..]),
            ("{}", &["1:1 missing-key "]),
            ("<html><body>502</body></html>", &["1:1 missing-key "]),
            ("routes: {}\nconsumers: {}", &["1:1 unknown-key routes"]),
            ("consumers: []", &["1:12 bad-type consumers"]),
            (
                "consumers:\n  a: { key_auth: [ \"\" ] }\n  b: { bad: [x] }\n  c: { allow_ips: [ten] }\n  a: {}\n",
                &[
                    "5:3 duplicate-key ",
                    "4:20 bad-value consumers.c.allow_ips[0]",
                    "2:20 bad-value consumers.a.key_auth[0]",
                    "3:8 unknown-credential consumers.b.bad",
                ],
            ),
            (
                "consumers:\n  a: { key_auth: [ hunter2 ] }\n  b: { key_auth: [ hunter2 ] }\n",
                &["3:20 key-twice consumers.b.key_auth[0]"],
            ),
            (
                "consumers: { a: { key_auth: [ \"${HOME}\" ] }, b: { plan: \"x${file:/etc/passwd}\" } }",
                &["1:31 bad-value consumers.a.key_auth[0]", "1:57 bad-value consumers.b.plan"],
            ),
            ("consumers: { \"a b\": {} }", &["1:14 bad-value consumers.a b"]),
        ] {
            assert_eq!(mistakes(text), expected, "{text}");
        }
    }
}
