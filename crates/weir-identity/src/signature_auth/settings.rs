//! Settings of `signature_auth`, and the keys in them.

use super::super::prelude::*;
use super::super::shared::field_form::Structure;
use super::super::shared::jose::algorithm::Algorithm;
use super::super::shared::jose::key::Key;
use super::super::shared::jose::key_set::{KeySet, Secrets};
use super::super::shared::signature::{ALGORITHMS, check_components, component, is_component};
use super::nonces::Nonces;
use super::{Known, Names, SignatureAuth};
use std::collections::{BTreeMap, HashMap};
use weir_filter::sfv::{Bare, Item, write_list};

/// Requires a consumer's signature (HTTP Message Signatures, RFC 9421), and identifies the consumer.
///
/// Keys are listed under `consumers`, each with its name and algorithm. `hmac-sha256` takes a secret of at least 32
/// bytes, as text, or `base64:` and its Base64. The others take a public key in PEM: `ecdsa-p256-sha256`,
/// `ecdsa-p384-sha384`, `ed25519`, `rsa-pss-sha512` and `rsa-v1_5-sha256`.
///
/// A signature must cover `components`, have `created` and `keyid`, and is accepted once. The filter remembers its
/// `nonce` or, without one, everything that it covers. When the memory is full, requests are refused and nothing is
/// forgotten. If the clock is set back, signatures that were already too old are still refused.
///
/// The body is compared with the signed Content-Digest (RFC 9530, SHA-256 or SHA-512) as it passes. The last piece is
/// held back until the digest matches, so no upstream sees the whole of a forged message.
///
/// ```yaml
/// - signature_auth: { components: [ "@method", "@target-uri", content-digest ], max_age: 60s }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SignatureAuthSettings {
    /// What a signature must cover: field names in lower case, and `@method`, `@target-uri`, `@authority`, `@scheme`,
    /// `@request-target`, `@path`, `@query`. `content-digest` is required only of requests with a body. A signature
    /// may cover more, and fields with the parameters `sf`, `bs` and `key`. Default `@method`, `@target-uri` and
    /// `content-digest`.
    pub(super) components: Vec<String>,
    /// Maximum age of a signature. Default 60s.
    pub(super) max_age: Duration,
    /// Allowed clock difference. Default 10s.
    pub(super) leeway: Duration,
    /// Whether a signature must have a nonce. Default false: without a nonce, two equal requests in the same second
    /// count as one.
    pub(super) nonce: bool,
    /// How many signatures are remembered, 100 bytes each. Set it to as many as may come in `max_age`. 0 allows
    /// replays until a signature is too old. Default 100000.
    remember: u32,
    /// Only signatures with this `tag` are considered. Default any.
    pub(super) tag: Option<String>,
    /// The scheme that clients sign, `http` or `https`, if a proxy before this gateway terminates TLS. Default: that
    /// of the connection.
    pub(super) scheme: Option<Scheme>,
    /// Your own structured fields (RFC 9651), by name: `dictionary`, `list` or `item`. With `sf`, a client signs such
    /// a field's content regardless of spacing. Default none, in addition to the registered ones.
    structured: BTreeMap<String, Structure>,
    /// Lets requests without a signature pass, unnamed. A wrong signature is still refused. Default false.
    pub(super) optional: bool,
}

/// A scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scheme {
    /// Clear text.
    Http,
    /// TLS.
    Https,
}

/// A key of a consumer, as written in the config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    key_id: String,
    algorithm: String,
    key: String,
}

impl Default for SignatureAuthSettings {
    fn default() -> Self {
        Self {
            components: ["@method", "@target-uri", "content-digest"].map(str::to_owned).into(),
            max_age: Duration::from_secs(60),
            leeway: Duration::from_secs(10),
            nonce: false,
            remember: 100_000,
            tag: None,
            scheme: None,
            structured: BTreeMap::new(),
            optional: false,
        }
    }
}

impl IntoFilter for SignatureAuthSettings {
    type Filter = SignatureAuth;

    fn into_filter(self, build: &mut Build<'_>) -> Option<SignatureAuth> {
        let before = build.mistakes.len();
        check_components(build, &self.components);
        if self.components.is_empty() {
            let message = "is empty: a signature would fit every request";
            build.refuse(
                "components",
                message,
                Some("write [ \"@method\", \"@target-uri\", content-digest ]".into()),
            );
        }
        for name in self.structured.keys().filter(|name| name.starts_with('@') || !is_component(name)) {
            let hint = "write the name of a field in lower case".to_owned();
            build.refuse(&format!("structured.{name}"), "is not a field name", Some(hint.into()));
        }
        let keys = read_keys(build);
        if build.mistakes.len() > before {
            return None;
        }
        let most = self.remember as usize;
        let resize = |nonces: &Nonces| {
            nonces.resize(most);
            true
        };
        let load = |saved: &[u8]| Nonces::load(saved, most);
        let nonces = (most > 0)
            .then(|| build.keep_portable_for("what was signed", resize, load, |_| Nonces::new(most)));
        let items: Vec<Item> = self.components.iter().map(|name| component(name)).collect();
        let wanted = ["created", "keyid"].into_iter().chain(self.nonce.then_some("nonce"));
        let mut accept = "sig=".to_owned();
        write_list(&items, &wanted.map(|name| (name.to_owned(), Bare::Boolean(true))).collect(), &mut accept);
        let structures = self.structured.iter().map(|(name, structure)| (name.clone(), *structure)).collect();
        Some(SignatureAuth {
            settings: self,
            structures,
            keys,
            directory: build.directory.cloned(),
            nonces,
            names: Names::new(),
            accept: accept.into_bytes(),
        })
    }
}

/// The keys of all consumers, by their names.
fn read_keys(build: &mut Build<'_>) -> HashMap<String, Known> {
    let mut keys: HashMap<String, Known> = HashMap::new();
    let before = build.mistakes.len();
    let all = Consumers::clone(build.consumers);
    for (consumer, written) in all.iter().enumerate() {
        for (n, text) in written.credentials.get("signature_auth").into_iter().flatten().enumerate() {
            let whose = format!("key {} of consumer `{}`", n + 1, written.name);
            match read_key(text) {
                Ok((id, key, algorithm)) => {
                    if let Some(other) = keys.insert(id, Known { key, algorithm, consumer }) {
                        let other = all.get(other.consumer).map_or("", |c| &c.name);
                        let hint = "give each key a `key_id` of its own".to_owned();
                        build.refuse(
                            "",
                            format!("{whose} has the `key_id` of one of `{other}`"),
                            Some(hint.into()),
                        );
                    }
                }
                Err(why) => build.refuse("", format!("{whose} {why}"), None),
            }
        }
    }
    if keys.is_empty() && build.directory.is_none() && build.mistakes.len() == before {
        let hint =
            "write consumers: { NAME: { signature_auth: [ { key_id: ID, algorithm: ed25519, key: PEM } ] } }";
        build.refuse("", "no consumer has a key: every request would be refused", Some(hint.into()));
    }
    keys
}

pub(super) fn read_key(text: &str) -> Result<(String, Key, (&'static str, Algorithm)), String> {
    let written: WrittenKey =
        serde_json::from_str(text).map_err(|_| "is not { key_id: .., algorithm: .., key: .. }")?;
    let algorithm = ALGORITHMS.iter().find(|(name, _)| *name == written.algorithm);
    let names = ALGORITHMS.map(|(name, _)| name).join(", ");
    let algorithm = *algorithm.ok_or_else(|| format!("has an unknown algorithm; expected one of {names}"))?;
    let key = parse_key(&written.key, algorithm.1)?;
    if !key.fits(algorithm.1) {
        return Err(format!("is not a key for {}", algorithm.0));
    }
    Ok((written.key_id, key, algorithm))
}

/// A secret, or a public key in PEM.
pub(super) fn parse_key(text: &str, algorithm: Algorithm) -> Result<Key, String> {
    if algorithm != Algorithm::HS256 {
        let (set, _) = KeySet::read(text.as_bytes(), Secrets::Allowed)
            .map_err(|why| format!("is not a public key: {why}"))?;
        return set.into_only().ok_or_else(|| "holds several keys; expected one".to_owned());
    }
    Key::secret(&secret(text)?).map_err(|why| format!("is weak: {why}"))
}

/// A secret as written: plain text, or `base64:` and its Base64.
pub(crate) fn secret(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix("base64:") {
        Some(digits) => {
            weir_wire::base64::decode(digits.trim().as_bytes()).ok_or_else(|| "is not Base64".to_owned())
        }
        None => Ok(text.as_bytes().to_vec()),
    }
}
