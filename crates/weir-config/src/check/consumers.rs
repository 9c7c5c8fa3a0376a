//! Checks of consumers and plans. Messages name consumers, never their keys.
//!
//! They also apply to the documents of `consumer_sources`, in which keys may be plain text.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::{Checker, Config, Diagnostics};
use crate::node::{Node, Value};
use crate::schema::Credentials;
use crate::spelling::nearest_name;
use weir_wire::hex;

/// The prefix of a key given as its hash.
const HASHED: &str = "sha256:";

/// Checks the consumers of a document that is no config. Its reader checks plans, because it knows them.
pub(crate) fn check_document(
    config: &Config,
    tree: &Node,
    credentials: &[&str],
    diagnostics: &mut Diagnostics,
) {
    Checker { config, tree, credentials, diagnostics }.credentials_of(true);
}

impl Checker<'_> {
    pub(super) fn consumers(&mut self) {
        for (name, consumer) in self.config.consumers.iter() {
            if let Some(plan) = &consumer.plan {
                self.must_exist(|| format!("consumers.{name}.plan"), "plans", "unknown-plan", plan);
            }
        }
        self.credentials_of(false);
    }

    fn credentials_of(&mut self, of_document: bool) {
        let config = self.config;
        let mut owners: HashMap<Vec<u8>, String> = HashMap::new();
        for (name, consumer) in config.consumers.iter() {
            for credentials in &consumer.credentials {
                if !self.credentials.contains(&credentials.filter.as_str()) {
                    self.unknown_credentials(credentials);
                } else if credentials.filter == "key_auth" {
                    self.keys(name, credentials, &mut owners, of_document);
                } else if let Value::Seq(elements) = &credentials.node.value {
                    if !of_document {
                        self.shared_secrets(credentials, elements);
                    }
                    self.users(credentials, elements);
                } else {
                    let message = format!("{} is not a list", credentials.node.kind());
                    self.error_hint(&credentials.path, "bad-type", message, "write [ VALUE ]");
                }
            }
        }
    }

    /// Warns if the file contains secrets that sign requests. Public keys are allowed.
    fn shared_secrets(&mut self, credentials: &Credentials, elements: &[Node]) {
        for (index, element) in elements.iter().enumerate() {
            let is_secret = element.get("algorithm").and_then(Node::as_text) == Some("hmac-sha256");
            let literal =
                element.get("key").is_some_and(|node| node.as_text().is_some() && !node.substituted);
            if is_secret && literal {
                let path = format!("{}[{index}].key", credentials.path);
                let hint = "write \"${VAR}\" or \"${file:PATH}\"";
                self.warn(
                    &path,
                    "literal-credential",
                    "the secret is written in plain text in this file",
                    hint,
                );
            }
        }
    }

    /// An error for each entry of `basic_auth` that is not a user. The filter reports mistakes in the hash.
    fn users(&mut self, credentials: &Credentials, elements: &[Node]) {
        if credentials.filter != "basic_auth" {
            return;
        }
        for (index, element) in elements.iter().enumerate().filter(|(_, element)| !element.broken) {
            let pair = element.as_text().and_then(|text| text.split_once(':'));
            if pair.is_none_or(|(user, _)| user.is_empty()) {
                let hint = "write USER:HASH; `weir hash --user USER` makes it";
                let path = format!("{}[{index}]", credentials.path);
                self.error_hint(&path, "bad-value", "the entry is not a user and hash", hint);
            }
        }
    }

    fn unknown_credentials(&mut self, credentials: &Credentials) {
        let known: Vec<&str> =
            self.credentials.iter().copied().chain(["plan", "groups", "allow_ips"]).collect();
        let message =
            format!("no filter `{}` takes credentials; expected {}", credentials.filter, known.join(", "));
        let near = nearest_name(&credentials.filter, known.iter().copied());
        let hint = near.map_or("write credentials under the name of their filter".to_owned(), |near| {
            format!("did you mean {near}?")
        });
        self.error_hint(&credentials.path, "unknown-credential", message, hint);
    }

    fn keys(
        &mut self,
        name: &str,
        credentials: &Credentials,
        owners: &mut HashMap<Vec<u8>, String>,
        of_document: bool,
    ) {
        let path = &credentials.path;
        let Value::Seq(elements) = &credentials.node.value else {
            let message = format!("{} is not a list of keys", credentials.node.kind());
            self.error_hint(path, "bad-type", message, "write [ \"${SHOP_KEY}\" ]");
            return;
        };
        for (index, element) in elements.iter().enumerate().filter(|(_, element)| !element.broken) {
            let path = format!("{path}[{index}]");
            let Some(hash) = self.key_hash(&path, element, of_document) else { continue };
            match owners.get(&hash) {
                Some(owner) if owner == name => {
                    self.error(&path, "key-twice", format!("`{name}` has this key twice"));
                }
                Some(owner) => {
                    let message =
                        format!("`{owner}` has the same key, so the key does not identify a consumer");
                    self.error_hint(&path, "key-twice", message, "give each consumer a key of its own");
                }
                None => {
                    owners.insert(hash, name.to_owned());
                }
            }
        }
    }

    /// Checks one key and returns its hash, by which keys are compared.
    fn key_hash(&mut self, path: &str, element: &Node, of_document: bool) -> Option<Vec<u8>> {
        let Some(key) = element.as_text().filter(|key| !key.is_empty()) else {
            self.error(path, "bad-value", "the key is not a text; expected at least one character");
            return None;
        };
        let Some(digits) = key.strip_prefix(HASHED) else {
            if !key.bytes().all(|b| b.is_ascii_graphic()) {
                let message =
                    "the key cannot be sent in a header; expected visible ASCII characters without spaces";
                self.error(path, "bad-value", message);
                return None;
            }
            if !element.substituted && !of_document {
                let hint = "write \"${VAR}\" or \"${file:PATH}\", or sha256: and its hash";
                self.warn(path, "literal-credential", "the key is written in plain text in this file", hint);
            }
            return Some(Sha256::digest(key.as_bytes()).to_vec());
        };
        let hash = hex::decode(digits);
        if hash.as_ref().is_none_or(|hash| hash.len() != 32) {
            let message = "the hash is incomplete; expected sha256: and 64 hex digits";
            self.error_hint(path, "bad-value", message, "create it with: printf %s KEY | sha256sum");
            return None;
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use crate::{Source, load};

    #[test]
    fn an_entry_that_is_no_user_and_hash_is_told_where_it_stands() {
        let text = "listeners: { a: { address: 127.0.0.1:1 } }\n\
                    consumers: { shop: { basic_auth: [ nobody, \":x\", \"ann:hash\", 7 ] } }\n";
        let loaded = load(&Source::text("t.yaml", text).with_credentials(["basic_auth"])).unwrap();
        let errors = loaded.diagnostics.iter().filter(|d| d.code == "bad-value").map(|d| d.path.as_str());
        let paths = [0, 1, 3].map(|index| format!("consumers.shop.basic_auth[{index}]"));
        assert_eq!(errors.collect::<Vec<_>>(), paths, "{}", loaded.diagnostics.to_text());
        assert!(!loaded.diagnostics.to_text().contains("nobody"));
    }
}
