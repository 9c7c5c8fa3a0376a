//! `key_auth`: requires the key of a consumer.

use super::prelude::*;
use super::shared::after_scheme;
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named, Nobody, listed};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use weir_filter::directory::{CredentialIndex, Directory, Intake, Lookup, Refused};
use weir_filter::{cookies, query};
use weir_h1::FieldName;
use weir_wire::hex;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<KeyAuthSettings>("key_auth")
    .with_causes(&[&CONSUMER_ADDRESS, &CONSUMERS_UNAVAILABLE, &KEY_MISSING, &KEY_TWICE, &KEY_UNKNOWN])
    .with_index::<Keys>();

pub(super) static CONSUMER_ADDRESS: Cause = Cause {
    code: "consumer_address",
    status: 403,
    meaning: "The consumer may not call from this address.",
    change: "consumers.*.allow_ips",
    ..Cause::USUAL
};

static KEY_MISSING: Cause = Cause {
    code: "key_missing",
    status: 401,
    meaning: "The request carries no key.",
    change: "the client must send one: see `header` and `query` of the filter key_auth",
    no_credentials: true,
    ..Cause::USUAL
};

static KEY_TWICE: Cause = Cause {
    code: "key_twice",
    status: 400,
    meaning: "The path carries a key in more than one segment.",
    change: "the client must send one segment that begins with `~`: see `path` of the filter key_auth",
    ..Cause::USUAL
};

static KEY_UNKNOWN: Cause = Cause {
    code: "key_unknown",
    status: 401,
    meaning: "The request's key belongs to no consumer.",
    change: "consumers.*.key_auth",
    ..Cause::USUAL
};

/// Requires a consumer's key, and identifies the consumer for rate limits, plans and the log.
///
/// Keys are listed under `consumers`, in clear text or as `sha256:` and the 64 hexadecimal digits of their SHA-256
/// (`printf %s KEY | sha256sum`). Weir keeps only hashes and compares them in constant time. A hash protects a
/// randomly generated key; a dictionary word can be guessed. A request with two different keys is refused. During a
/// key rotation a consumer has two keys; `credential` in the access log shows which one it uses.
///
/// ```yaml
/// - key_auth: { header: apikey }
/// - key_auth: { header: authorization, scheme: Bearer }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct KeyAuthSettings {
    /// Header that carries the key. Default `x-api-key`.
    header: HeaderName,
    /// Word before the key in the header, such as `Bearer`; other values carry no key. Default none.
    scheme: Option<String>,
    /// Query parameter that may carry the key instead. Default none, because URLs end up in histories and in logs
    /// other than ours.
    query: Option<String>,
    /// Cookie that may carry the key instead. Default none.
    cookie: Option<String>,
    /// Whether a path segment that begins with `~` may carry the key instead: `/spot/~KEY/price`. It is removed
    /// before routing, so later filters and the upstream never see it. A second such segment is refused with 400.
    /// Default false.
    path: bool,
    /// A file with more keys: each line has the name of a consumer and a key, in clear text or as a hash; text after
    /// `#` is a comment. The file is watched like the config. Default none.
    file: Option<FilePath>,
    /// Lets requests without a key pass, unnamed. An unknown key is still refused. Default false.
    optional: bool,
    /// Whether the key is removed before the request goes to the upstream. Default true: the upstream cannot leak a
    /// key that it never sees.
    hide: bool,
    /// Header that carries the consumer's name to the upstream. A header of this name from the client is removed.
    /// Default none.
    consumer_header: Option<HeaderName>,
}

struct KeyAuth {
    settings: KeyAuthSettings,
    keys: Keys,
    directory: Option<Arc<Directory>>,
    reads_authorization: bool,
    challenge_missing: Vec<u8>,
    challenge_unknown: Vec<u8>,
    www_authenticate: FieldName,
}

/// Hashes of all keys, with their owners.
struct Keys {
    /// By the first half of the hash, which an attacker cannot choose; two keys with the same half are a mistake in
    /// the config. The map is seeded. The comparison of the other half decides.
    by_half: HashMap<u128, (u128, Owner), foldhash::fast::RandomState>,
    verified: Verified,
}

/// Keys that were verified once. The next request with one of them saves the 3,400 instructions of SHA-256.
///
/// A key is remembered by 128 bits of a sum of its words, each multiplied by secrets of this snapshot. Without the
/// secrets, any two different keys have the same bits with a probability of 1 in 2^128 (Lemire and Kaser, "Strongly
/// universal string hashing is fast", 2014, for 128 and 64 bits). The duration of a comparison reveals nothing about
/// the key. Only keys from the config are stored, and they are dropped with the snapshot.
///
/// Invariant: a slot is written once, so a reader sees it either empty or complete. A key whose slots are taken is
/// hashed each time, and so is a key that is longer than the secrets.
struct Verified {
    /// The initial value of a sum, and the multiplier of each word.
    secrets: Box<[[u128; 2]]>,
    slots: Box<[OnceLock<(u128, Owner)>]>,
}

/// The consumer that a key belongs to, and which of its keys it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    consumer: u32,
    /// The first digits of the key's hash.
    digits: [u8; 8],
}

/// Most slots, 48 bytes each, and how many are probed for a key. Two slots per key are made, so the first probe finds
/// most keys.
const SLOTS: usize = 8192;
const PROBES: usize = 8;

/// Longest key that is remembered, in words of eight bytes.
const WORDS: usize = 32;

/// Largest file of keys, in bytes, and most of its mistakes that are reported.
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
const MAX_MISTAKES: usize = 5;

type Hash = [u8; 32];

/// The credentials of a request.
enum Presented<'a> {
    Different,
    None,
    One(Cow<'a, [u8]>),
}

impl Default for KeyAuthSettings {
    fn default() -> Self {
        Self {
            header: HeaderName::fixed("x-api-key"),
            scheme: None,
            query: None,
            cookie: None,
            path: false,
            file: None,
            optional: false,
            hide: true,
            consumer_header: None,
        }
    }
}

impl IntoFilter for KeyAuthSettings {
    type Filter = KeyAuth;

    fn into_filter(self, build: &mut Build<'_>) -> Option<KeyAuth> {
        let before = build.mistakes.len();
        allow_name(build, "header", &self.header);
        if let Some(name) = &self.consumer_header {
            allow_name(build, "consumer_header", name);
            if *name == self.header {
                build.refuse("consumer_header", "is the header that carries the key", None);
            }
        }
        if self.query.as_ref().is_some_and(String::is_empty) {
            build.refuse("query", "is empty", Some("name a parameter, or leave it out".into()));
        }
        if let Some(cookie) = self.cookie.as_ref().filter(|cookie| FieldName::new(cookie).is_err()) {
            build.refuse("cookie", format!("`{cookie}` is not a cookie name"), None);
        }
        if let Some(scheme) = &self.scheme
            && FieldName::new(scheme).is_err()
        {
            build.refuse("scheme", format!("`{scheme}` is not a single word"), Some("write Bearer".into()));
        }
        let keys = Keys::read(self.file.as_ref(), build);
        if build.mistakes.len() > before {
            return None;
        }
        let scheme = self.scheme.as_deref().unwrap_or("ApiKey");
        let missing = format!("{scheme} realm=\"weir\"");
        // RFC 6750 §3.1: tells a client that sent a bearer token that the token is at fault.
        let bearer = scheme.eq_ignore_ascii_case("bearer");
        let unknown = if bearer { format!("{missing}, error=\"invalid_token\"") } else { missing.clone() };
        Some(KeyAuth {
            reads_authorization: self.header.as_str().eq_ignore_ascii_case("authorization"),
            settings: self,
            keys,
            directory: build.directory.cloned(),
            challenge_missing: missing.into_bytes(),
            challenge_unknown: unknown.into_bytes(),
            www_authenticate: FieldName::new("www-authenticate").expect("a name in the source is a token"),
        })
    }
}

// === impl Keys ===

impl Keys {
    fn read(file: Option<&FilePath>, build: &mut Build<'_>) -> Self {
        let mut keys = Self { by_half: HashMap::default(), verified: Verified::new(0) };
        let consumers = Consumers::clone(build.consumers);
        for (index, consumer) in consumers.iter().enumerate() {
            for (n, key) in consumer.credentials.get("key_auth").into_iter().flatten().enumerate() {
                let whose = format!("key {} of consumer `{}`", n + 1, consumer.name);
                match parse_key(key) {
                    Ok(hash) => keys.add("", hash, index, &whose, build),
                    Err(why) => build.refuse("", format!("{whose} {why}"), None),
                }
            }
        }
        if let Some(file) = file {
            keys.read_file(file, build);
        }
        if keys.by_half.is_empty() && build.directory.is_none() && build.mistakes.is_empty() {
            let hint = "write consumers: { NAME: { key_auth: [ \"${NAME_KEY}\" ] } }";
            build.refuse("", "no consumer has a key: every request would be refused", Some(hint.into()));
        }
        keys.verified = Verified::new(keys.by_half.len());
        keys
    }

    /// Reads a file of names and keys. No message contains a key.
    fn read_file(&mut self, file: &FilePath, build: &mut Build<'_>) {
        let text = match build.read_file(file, MAX_FILE_BYTES) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(message) => return build.refuse("file", message, None),
        };
        let consumers = Consumers::clone(build.consumers);
        let before = build.mistakes.len();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
            let Some(name) = words.next() else { continue };
            let whose = format!("{}:{}: the key", file.0.display(), number + 1);
            let (Some(key), None) = (words.next(), words.next()) else {
                let message = format!("{}:{}: is not a pair", file.0.display(), number + 1);
                build.refuse("file", message, Some("write a consumer and a key in each line".into()));
                continue;
            };
            match (consumers.iter().position(|consumer| consumer.name == name), parse_key(key)) {
                (Some(index), Ok(hash)) => self.add("file", hash, index, &whose, build),
                (Some(_), Err(why)) => build.refuse("file", format!("{whose} {why}"), None),
                (None, _) => {
                    let place = format!("{}:{}", file.0.display(), number + 1);
                    let hint = Some("write it under `consumers`, if only as `NAME: {}`".into());
                    build.refuse("file", format!("{place}: there is no consumer `{name}`"), hint);
                }
            }
            if build.mistakes.len() - before >= MAX_MISTAKES {
                return;
            }
        }
    }

    fn add(&mut self, field: &str, hash: Hash, index: usize, whose: &str, build: &mut Build<'_>) {
        if let Some(other) = self.insert(&hash, index as u32) {
            let other = build.consumers.get(other as usize).map_or("", |c| &c.name).to_owned();
            let hint = "a key must identify one consumer: give each consumer its own".to_owned();
            build.refuse(field, format!("{whose} already belongs to consumer `{other}`"), Some(hint.into()));
        }
    }

    /// Adds a key. Returns the consumer that has it already.
    fn insert(&mut self, hash: &Hash, consumer: u32) -> Option<u32> {
        let (half, rest) = halves(hash);
        let owner = Owner { consumer, digits: first_digits(hash) };
        self.by_half.insert(half, (rest, owner)).map(|(_, other)| other.consumer)
    }

    /// The owner of a key that was verified before.
    fn remembered(&self, key: &[u8]) -> Option<Owner> {
        if self.by_half.is_empty() {
            return None;
        }
        self.verified.find(self.verified.tag(key)?)
    }

    /// The owner of a key with this hash, which is then remembered.
    fn verify(&self, key: &[u8], hash: &Hash) -> Option<Owner> {
        let (half, rest) = halves(hash);
        // The comparison of two numbers takes the same time whatever they are.
        let (_, owner) = self.by_half.get(&half).filter(|(known, _)| known ^ rest == 0)?;
        if let Some(tag) = self.verified.tag(key) {
            self.verified.remember(tag, *owner);
        }
        Some(*owner)
    }
}

impl CredentialIndex for Keys {
    fn read(intake: &mut Intake<'_>) -> Self {
        let mut keys = Self { by_half: HashMap::default(), verified: Verified::new(0) };
        intake.each(|consumer, text| {
            let hash = parse_key(text).map_err(|why| Refused::Wrong(why.into()))?;
            keys.insert(&hash, consumer).map_or(Ok(()), |other| Err(Refused::Common(other)))
        });
        keys.by_half.shrink_to_fit();
        keys.verified = Verified::new(keys.by_half.len());
        keys
    }

    fn common(&self, other: &Self) -> Vec<(u32, u32)> {
        let pair = |(half, (rest, ours)): (&u128, &(u128, Owner))| {
            let (_, theirs) = other.by_half.get(half).filter(|(known, _)| known == rest)?;
            Some((ours.consumer, theirs.consumer))
        };
        self.by_half.iter().filter_map(pair).collect()
    }
}

// === impl Verified ===

impl Verified {
    fn new(keys: usize) -> Self {
        let slots = (2 * keys).next_power_of_two().min(SLOTS);
        let slots = (0..slots).map(|_| OnceLock::new()).collect();
        let mut random = vec![[[0; 16]; 2]; WORDS + 1];
        if aws_lc_rs::rand::fill(random.as_flattened_mut().as_flattened_mut()).is_err() {
            random.clear(); // without secrets nothing is remembered
        }
        Self { secrets: random.into_iter().map(|pair| pair.map(u128::from_le_bytes)).collect(), slots }
    }

    /// The tag that a key is remembered by; `None` if the key is too long.
    fn tag(&self, key: &[u8]) -> Option<u128> {
        let (begin, of_words) = self.secrets.split_first()?;
        let (words, rest) = key.as_chunks();
        if words.len() >= of_words.len() {
            return None;
        }
        // The last word contains the number of its key bytes and is never 0, so no two keys have the same words.
        let mut last = [0, 0, 0, 0, 0, 0, 0, rest.len() as u8 + 1];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let words =
            words.iter().chain(std::iter::once(&last)).map(|word| u128::from(u64::from_le_bytes(*word)));
        let [a, b] = of_words.iter().zip(words).fold(*begin, |[a, b], ([of_a, of_b], word)| {
            [a.wrapping_add(of_a.wrapping_mul(word)), b.wrapping_add(of_b.wrapping_mul(word))]
        });
        Some(a >> 64 << 64 | b >> 64)
    }

    fn find(&self, tag: u128) -> Option<Owner> {
        self.probe(tag).map_while(OnceLock::get).find(|(known, _)| *known == tag).map(|(_, owner)| *owner)
    }

    fn remember(&self, tag: u128, owner: Owner) {
        // A slot that another core is taking at this moment counts as taken.
        let _ = self.probe(tag).find(|slot| slot.set((tag, owner)).is_ok());
    }

    fn probe(&self, tag: u128) -> impl Iterator<Item = &OnceLock<(u128, Owner)>> {
        let mask = self.slots.len() - 1; // a power of two
        (0..PROBES).filter_map(move |n| self.slots.get((tag as usize).wrapping_add(n) & mask))
    }
}

/// The hash of a key as written in the config.
fn parse_key(text: &str) -> Result<Hash, &'static str> {
    if let Some(digits) = text.strip_prefix("sha256:") {
        return hex::decode(digits)
            .and_then(|hash| hash.try_into().ok())
            .ok_or("is not a hash: expected `sha256:` and 64 hexadecimal digits");
    }
    match text {
        "" => Err("is empty"),
        _ if !text.bytes().all(|b| b.is_ascii_graphic()) => Err(
            "holds a space, a control byte or a letter that is not ASCII, which no client can send in a header",
        ),
        _ => Ok(Sha256::digest(text.as_bytes()).into()),
    }
}

/// The first digits of a hash, enough to distinguish the keys of a consumer.
fn first_digits(hash: &Hash) -> [u8; 8] {
    let mut digits = [0; 8];
    digits.copy_from_slice(hex::encode(&hash[..4]).as_bytes());
    digits
}

fn halves(hash: &Hash) -> (u128, u128) {
    let (half, rest) = hash.split_first_chunk().expect("a hash is longer than its half");
    let rest = rest.first_chunk().expect("a hash has two halves");
    (u128::from_le_bytes(*half), u128::from_le_bytes(*rest))
}

// === impl KeyAuth ===

impl Filter for KeyAuth {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let KeyAuthSettings { header, consumer_header, .. } = &self.settings;
        let names = std::iter::once(header).chain(consumer_header);
        FieldGuards { request: names.map(|name| (**name).clone()).collect(), response: Vec::new() }
    }

    fn conceals(&self) -> Conceals {
        Conceals {
            path_key: self.settings.path,
            query: self.settings.query.iter().cloned().collect(),
            ..Conceals::default()
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if self.settings.path && cx.path_key().is_some() && has_key_segment(head.path()) {
            return Flow::refuse(&KEY_TWICE); // only the first was removed: the upstream would see the second
        }
        let found = match self.presented(head, cx) {
            Presented::None => None,
            Presented::Different => Some(Err(Nobody::Unknown)),
            Presented::One(key) => Some(self.find(&key)),
        };
        let found = match found {
            Some(found) => found,
            None if self.settings.optional => {
                if let Some(name) = &self.settings.consumer_header {
                    head.headers.remove(name);
                }
                cx.pass_unnamed();
                return Flow::Continue;
            }
            None => return self.refuse(&KEY_MISSING, &self.challenge_missing),
        };
        match found {
            Ok((named, digits)) => {
                named.name(cx);
                cx.set_credential(digits);
            }
            Err(Nobody::Unknown) => return self.refuse(&KEY_UNKNOWN, &self.challenge_unknown),
            Err(Nobody::Unavailable) => return Flow::refuse(&CONSUMERS_UNAVAILABLE),
        }
        let Some(consumer) = cx.consumer() else {
            return self.refuse(&KEY_UNKNOWN, &self.challenge_unknown);
        };
        if !consumer.may_call_from(cx.client) {
            return Flow::refuse(&CONSUMER_ADDRESS);
        }
        if self.settings.hide {
            self.hide(head);
            if self.reads_authorization {
                cx.hides_authorization();
            }
        }
        if let Some(name) = &self.settings.consumer_header
            && head.headers.insert(name, consumer.name.as_bytes()).is_err()
        {
            head.headers.remove(name); // the name cannot be sent; remove the client's own header
        }
        Flow::Continue
    }
}

impl KeyAuth {
    /// The owner of a key, and the first digits of its hash.
    fn find(&self, key: &[u8]) -> Result<(Named, [u8; 8]), Nobody> {
        let of_config = |Owner { consumer, digits }| (Named::Config(consumer as usize), digits);
        if let Some(owner) = self.keys.remembered(key) {
            return Ok(of_config(owner));
        }
        let known = |owner: Owner| (owner.consumer, owner.digits);
        let of_source = |(consumer, digits)| (Named::Listed(consumer), digits);
        let directory = self.directory.as_ref();
        if let Some(directory) = directory
            && let Lookup::Found(consumer, digits) =
                directory.find(KIND.name, |keys: &Keys| keys.remembered(key).map(known))
        {
            return Ok(of_source((consumer, digits)));
        }
        let hash = Sha256::digest(key).into();
        if let Some(owner) = self.keys.verify(key, &hash) {
            return Ok(of_config(owner));
        }
        let Some(directory) = directory else { return Err(Nobody::Unknown) };
        let found = directory.find(KIND.name, |keys: &Keys| keys.verify(key, &hash).map(known));
        listed(found).map(of_source)
    }

    fn presented<'a>(&'a self, head: &'a RequestHead, cx: &'a Cx) -> Presented<'a> {
        let settings = &self.settings;
        let mut in_headers = head.headers.values(&settings.header).filter_map(|v| self.key_of(v));
        let mut presented = match in_headers.next() {
            None => Presented::None,
            Some(key) if in_headers.all(|other| other == key) => Presented::One(Cow::Borrowed(key)),
            Some(_) => Presented::Different,
        };
        if let (Some(name), Some(query)) = (&settings.query, head.query()) {
            query::values(query, name).filter(|key| !key.is_empty()).for_each(|key| presented.add(key));
        }
        if let Some(name) = &settings.cookie {
            let keys = cookies::values(head, name).filter(|key| !key.is_empty());
            keys.for_each(|key| presented.add(Cow::Borrowed(key)));
        }
        if let Some(key) = cx.path_key().filter(|_| settings.path) {
            presented.add(Cow::Borrowed(key));
        }
        presented
    }

    /// The key in the value of a header.
    fn key_of<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        match &self.settings.scheme {
            None => Some(value).filter(|key| !key.is_empty()),
            Some(scheme) => after_scheme(value, scheme),
        }
    }

    fn hide(&self, head: &mut RequestHead) {
        head.headers.remove(&self.settings.header);
        if let Some(cookie) = &self.settings.cookie {
            cookies::remove(head, |name| name == cookie.as_bytes());
        }
        let Some(name) = &self.settings.query else { return };
        let Some(rest) = head.query().and_then(|q| query::without(q, |n| n == name.as_bytes())) else {
            return;
        };
        let rest = if rest.is_empty() { None } else { Some(rest.as_slice()) };
        head.set_query(rest).expect("what is left of a query may stand in a target");
    }

    fn refuse(&self, cause: &'static Cause, challenge: &[u8]) -> Flow {
        // RFC 9110 §11.6.1: a 401 must carry a challenge.
        Flow::refuse_with(cause, vec![(self.www_authenticate.clone(), challenge.to_vec())])
    }
}

/// Whether a segment of a path may be a key.
fn has_key_segment(path: &[u8]) -> bool {
    path.split(|&b| b == b'/').any(|segment| segment.len() > 1 && segment.starts_with(b"~"))
}

impl<'a> Presented<'a> {
    fn add(&mut self, key: Cow<'a, [u8]>) {
        match self {
            Self::None => *self = Self::One(key),
            Self::One(first) if *first == key => {}
            _ => *self = Self::Different,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Exchange, Stand};
    use super::*;
    use serde_json::{Value, json};

    fn consumer(name: &str, keys: &[&str]) -> Consumer {
        let keys = keys.iter().map(|k| (*k).to_owned()).collect();
        let credentials = std::collections::BTreeMap::from([("key_auth".to_owned(), keys)]);
        Consumer { name: name.to_owned(), credentials, ..Consumer::default() }
    }

    fn stand(settings: Value) -> Stand {
        // sha256 of "hashed"
        let hash = Sha256::digest(b"hashed").iter().map(|b| format!("{b:02X}")).collect::<String>();
        Stand::new(&KIND, settings)
            .consumer(consumer("shop", &["secret", "other"]))
            .consumer(consumer("desk", &[&format!("sha256:{hash}")]))
    }

    async fn run(settings: Value, request: &str) -> Exchange {
        stand(settings).build().request(request).await
    }

    #[tokio::test]
    async fn a_key_names_its_consumer_and_goes_no_further() {
        for (key, name) in [("secret", "shop"), ("other", "shop"), ("hashed", "desk")] {
            let mut exchange = run(json!({}), &format!("GET /\nX-API-Key: {key}")).await;
            exchange.expect_continue().expect_no_header("x-api-key");
            assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some(name));
        }
    }

    #[tokio::test]
    async fn without_a_key_there_is_a_challenge() {
        for request in ["GET /", "GET /\nX-API-Key:", "GET /?apikey=secret"] {
            let mut exchange = run(json!({}), request).await;
            exchange.expect_status(401).expect_cause(&KEY_MISSING);
            exchange.expect_header("www-authenticate", "ApiKey realm=\"weir\"");
            assert!(exchange.cx.consumer().is_none());
        }
    }

    #[tokio::test]
    async fn a_wrong_key_is_unknown() {
        let hash = Sha256::digest(b"hashed").iter().map(|b| format!("{b:02x}")).collect::<String>();
        for key in ["Secret", "secret2", "secre", &format!("sha256:{hash}"), &hash, "\u{e4}"] {
            let mut exchange = run(json!({}), &format!("GET /\nx-api-key: {key}")).await;
            exchange.expect_status(401).expect_cause(&KEY_UNKNOWN);
            exchange.expect_header("www-authenticate", "ApiKey realm=\"weir\"");
        }
    }

    #[tokio::test]
    async fn two_keys_must_agree() {
        let query = json!({ "query": "key" });
        run(json!({}), "GET /\nx-api-key: secret\nx-api-key: secret").await.expect_continue();
        run(json!({}), "GET /\nx-api-key: secret\nx-api-key: other").await.expect_cause(&KEY_UNKNOWN);
        run(query.clone(), "GET /?key=secret\nx-api-key: other").await.expect_cause(&KEY_UNKNOWN);
        run(query.clone(), "GET /?key=secret&key=wrong").await.expect_cause(&KEY_UNKNOWN);
        run(query, "GET /?key=secret\nx-api-key: secret").await.expect_continue().expect_target("/");
    }

    #[tokio::test]
    async fn keys_in_the_query() {
        let settings = json!({ "query": "key" });
        let mut exchange = run(settings.clone(), "GET /?a=1&k%65y=s%65cret&b=2").await;
        exchange.expect_continue().expect_target("/?a=1&b=2");
        let settings = json!({ "query": "key", "hide": false });
        run(settings, "GET /?key=secret\nx-api-key: secret")
            .await
            .expect_target("/?key=secret")
            .expect_header("x-api-key", "secret");
    }

    #[tokio::test]
    async fn schemes() {
        let settings = json!({ "header": "authorization", "scheme": "Bearer" });
        for good in ["Bearer secret", "bearer  secret", "Bearer\tsecret"] {
            let mut exchange = run(settings.clone(), &format!("GET /\nAuthorization: {good}")).await;
            exchange.expect_continue().expect_no_header("authorization");
        }
        for none in ["secret", "Basic secret", "Bearer", "Bearersecret"] {
            let mut exchange = run(settings.clone(), &format!("GET /\nAuthorization: {none}")).await;
            exchange.expect_cause(&KEY_MISSING).expect_header("www-authenticate", "Bearer realm=\"weir\"");
        }
        let challenge = "Bearer realm=\"weir\", error=\"invalid_token\"";
        run(settings, "GET /\nAuthorization: Bearer x").await.expect_header("www-authenticate", challenge);
    }

    #[tokio::test]
    async fn the_upstream_is_told_who_calls() {
        let settings = json!({ "consumer_header": "x-consumer" });
        run(settings, "GET /\nx-api-key: secret\nX-Consumer: admin")
            .await
            .expect_header("x-consumer", "shop");
    }

    #[tokio::test]
    async fn a_consumer_may_be_bound_to_addresses() {
        let bound =
            Consumer { allow_ips: ["10.0.0.0/8".parse().unwrap()].into(), ..consumer("bound", &["k"]) };
        let running = Stand::new(&KIND, json!({})).consumer(bound).build();
        for (client, fine) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("192.0.2.1", false), ("::1", false)]
        {
            let mut exchange = running.from(client).request("GET /\nx-api-key: k").await;
            match fine {
                true => exchange.expect_continue(),
                false => exchange.expect_status(403).expect_cause(&CONSUMER_ADDRESS),
            };
        }
    }

    #[tokio::test]
    async fn a_key_that_was_verified_is_still_the_only_one_that_passes() {
        let running = stand(json!({})).build();
        for _ in 0..3 {
            for (key, name) in [("secret", Some("shop")), ("Secret", None), ("hashed", Some("desk"))] {
                let exchange = running.request(&format!("GET /\nx-api-key: {key}")).await;
                assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), name, "{key}");
            }
        }
    }

    #[test]
    fn verified_keys_are_remembered_and_bounded() {
        let verified = Verified::new(2);
        let owner = |consumer| Owner { consumer, digits: *b"00000000" };
        let tag = |key: &[u8]| verified.tag(key).unwrap();
        assert_eq!(verified.find(tag(b"a")), None);
        verified.remember(tag(b"a"), owner(7));
        verified.remember(tag(b"b"), owner(8));
        assert_eq!(verified.find(tag(b"a")), Some(owner(7)));
        assert_eq!(verified.find(tag(b"b")), Some(owner(8)));
        // A difference of one bit in either half is a different key.
        assert_eq!(verified.find(tag(b"a") ^ 1), None);
        assert_eq!(verified.find(tag(b"a") ^ 1 << 127), None);
        // Keys that do not fit are not remembered, and evict no other key.
        (0..100u8).for_each(|n| verified.remember(tag(&[n]), owner(u32::from(n))));
        assert_eq!(verified.slots.iter().filter(|slot| slot.get().is_some()).count(), 4);
        assert_eq!(verified.find(tag(b"a")), Some(owner(7)));
        assert_eq!(Verified::new(0).find(0), None);
        assert_eq!(Verified::new(1_000_000).slots.len(), SLOTS);
        assert_ne!(Verified::new(2).tag(b"a"), verified.tag(b"a"), "its secrets are its own");
        assert_eq!(verified.tag(&[b'a'; 8 * WORDS]), None, "too long to be remembered");
    }

    #[test]
    fn keys_that_differ_are_told_apart() {
        let verified = Verified::new(1);
        let mut tags = std::collections::HashSet::new();
        // Every length: also ending in zeros, which words are padded with, and with one bit changed in every byte.
        for len in 0..8 * WORDS {
            let key = vec![b'a'; len];
            assert!(tags.insert(verified.tag(&key)));
            assert!(len == 0 || tags.insert(verified.tag(&vec![0; len])));
            for at in 0..len {
                let mut other = key.clone();
                other[at] ^= 1 << (at % 8);
                assert!(tags.insert(verified.tag(&other)), "{at} of {len}");
            }
        }
    }

    #[tokio::test]
    async fn keys_in_a_cookie() {
        let settings = json!({ "cookie": "key" });
        let mut exchange = run(settings.clone(), "GET /\nCookie: a=1; key=secret; b=2").await;
        exchange.expect_continue().expect_header("cookie", "a=1; b=2");
        run(settings.clone(), "GET /\nCookie: key=wrong").await.expect_cause(&KEY_UNKNOWN);
        run(settings, "GET /\nCookie: keys=secret").await.expect_cause(&KEY_MISSING);
    }

    #[tokio::test]
    async fn keys_in_the_path() {
        let settings = json!({ "path": true });
        run(settings.clone(), "GET /spot/~secret/price").await.expect_continue().expect_target("/spot/price");
        run(settings.clone(), "GET /spot/~wrong/price").await.expect_cause(&KEY_UNKNOWN);
        run(settings.clone(), "GET /spot/~/price").await.expect_cause(&KEY_MISSING);
        run(settings.clone(), "GET /spot/~secret/sp~ot/~").await.expect_continue();
        for twice in ["/spot/~secret/~secret/x", "/~secret/~x", "/~secret/spot/~secret", "/~wrong/~secret"] {
            let mut exchange = run(settings.clone(), &format!("GET {twice}")).await;
            exchange.expect_status(400).expect_cause(&KEY_TWICE);
        }
        // Without the setting, the segment is part of an ordinary path.
        run(json!({}), "GET /~bob/~ann\nx-api-key: secret")
            .await
            .expect_continue()
            .expect_target("/~bob/~ann");
    }

    #[tokio::test]
    async fn without_a_key_only_where_it_is_optional() {
        let settings = json!({ "optional": true, "consumer_header": "x-consumer" });
        let mut unnamed = run(settings.clone(), "GET /\nX-Consumer: admin").await;
        unnamed.expect_continue().expect_no_header("x-consumer");
        assert!(unnamed.cx.consumer().is_none());
        run(settings.clone(), "GET /\nx-api-key: wrong").await.expect_cause(&KEY_UNKNOWN);
        run(settings, "GET /\nx-api-key: secret").await.expect_continue().expect_header("x-consumer", "shop");
    }

    #[tokio::test]
    async fn keys_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys.txt");
        std::fs::write(&file, "# rotated in May\nshop third  # the new one\n\ndesk fourth\n").unwrap();
        for (key, name) in [("secret", "shop"), ("third", "shop"), ("fourth", "desk")] {
            let request = format!("GET /\nx-api-key: {key}");
            let mut exchange = run(json!({ "file": file }), &request).await;
            exchange.expect_continue();
            assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some(name));
        }
        std::fs::write(&file, "shop secret\nnobody fifth\nshop\nshop sha256:12\n").unwrap();
        let told = stand(json!({ "file": file })).mistakes();
        assert!(told[0].contains("keys.txt:1: the key already belongs to consumer `shop`"), "{told:?}");
        assert!(told[1].contains("keys.txt:2: there is no consumer `nobody`"), "{told:?}");
        assert!(told[2].contains("keys.txt:3: is not a pair"), "{told:?}");
        assert!(told[3].contains("keys.txt:4: the key is not a hash"), "{told:?}");
        assert!(!told.concat().contains("fifth"), "{told:?}");
    }

    #[tokio::test]
    async fn the_log_tells_which_key() {
        let exchange = run(json!({}), "GET /\nx-api-key: secret").await;
        // printf %s secret | sha256sum
        assert_eq!(exchange.cx.credential, Some(*b"2bb80d53"));
    }

    #[test]
    fn mistakes() {
        let with = |keys: &[&str]| Stand::new(&KIND, json!({})).consumer(consumer("a", keys)).mistakes();
        assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("no consumer has a key"));
        assert!(with(&[""])[0].contains("key 1 of consumer `a` is empty"));
        assert!(with(&["sha256:12"])[0].contains("64 hexadecimal digits"));
        assert!(with(&["a b"])[0].contains("no client can send"));
        let twice = Stand::new(&KIND, json!({}))
            .consumer(consumer("a", &["k"]))
            .consumer(consumer("b", &["k"]))
            .mistakes();
        assert!(twice[0].contains("key 1 of consumer `b` already belongs to consumer `a`"), "{twice:?}");
        let mut bad =
            stand(json!({ "header": "host", "scheme": "a b", "query": "", "consumer_header": "te" }));
        assert_eq!(bad.mistakes().len(), 4);
    }

    #[test]
    fn no_key_is_in_the_resolved_settings() {
        assert!(!stand(json!({})).build().settings.to_string().contains("secret"));
    }
}
