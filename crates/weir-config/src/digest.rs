//! The digest of a config. Only the content counts, not its position, so comments do not change the digest.
//!
//! With variables filled in, it is `Snapshot::revision` of the engine. As written, it distinguishes entries of the
//! history.

use super::node::{Node, Value};
use sha2::{Digest, Sha256};
use weir_wire::hex;

/// The digest of a tree.
pub fn of(tree: &Node) -> String {
    let mut digest = Digester::default();
    digest.add(tree);
    digest.flush();
    hex::encode(&digest.hash.finalize())[..12].to_owned()
}

/// The digest of a text, including its comments.
pub fn of_text(text: &str) -> String {
    hex::encode(&Sha256::digest(text))[..16].to_owned()
}

/// SHA-256 of a token in hex, as `printf %s TOKEN | sha256sum` prints it.
pub fn of_token(token: &str) -> String {
    hex::encode(&Sha256::digest(token))
}

/// Feeds a tree into a hash through a buffer. As one text, 200,000 routes would take 300 MB.
#[derive(Default)]
struct Digester {
    hash: Sha256,
    buffer: Vec<u8>,
}

impl Digester {
    /// Adds each value with its kind and its length, so that no two trees give the same bytes.
    fn add(&mut self, node: &Node) {
        match &node.value {
            Value::Null => self.text(b'0', node.raw()),
            Value::Bool(_) => self.text(b'?', node.raw()),
            Value::Int(_) | Value::Float(_) => self.text(b'1', node.raw()),
            Value::Str(text) => self.text(b'"', text),
            Value::Seq(elements) => {
                self.begin(b'[', elements.len());
                elements.iter().for_each(|element| self.add(element));
            }
            Value::Map(entries) => {
                self.begin(b'{', entries.len());
                for (key, value) in entries {
                    self.text(b':', &key.text);
                    self.add(value);
                }
            }
        }
    }

    fn text(&mut self, kind: u8, text: &str) {
        self.begin(kind, text.len());
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn begin(&mut self, kind: u8, count: usize) {
        /// Buffer size at which it is passed to the hash.
        const FULL: usize = 16 * 1024;
        if self.buffer.len() >= FULL {
            self.flush();
        }
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&(count as u64).to_be_bytes());
    }

    fn flush(&mut self) {
        self.hash.update(&self.buffer);
        self.buffer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Diagnostics, parse::parse};
    use std::path::Path;

    #[test]
    fn only_what_is_said_counts() {
        let revision = |text: &str| of(&parse(text, Path::new("t"), &mut Diagnostics::default()).unwrap());
        let same =
            ["a: { b: [x, 1] }", "# moved\n\na:\n  b:\n    - x\n    - 1\n", "{\"a\": {\"b\": [\"x\", 1]}}"];
        for text in same {
            assert_eq!(revision(text), revision(same[0]), "{text}");
        }
        let other = [
            "a: { b: [x, \"1\"] }",
            "a: { b: [x, 2] }",
            "a: { b: [x1] }",
            "a: { b: [x, 1], c: ~ }",
            "a: { b: [x], c: 1 }",
            "ab: [x, 1]",
            "a: { b: }",
            "a: { b: ~ }",
            "a: { b: \"\" }",
            "a: { b: true }",
        ];
        let mut all: Vec<_> = other.map(revision).into_iter().chain([revision(same[0])]).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), other.len() + 1);
        assert!(all.iter().all(|r| r.len() == 12), "{all:?}");
    }
}
