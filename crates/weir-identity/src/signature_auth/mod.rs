//! `signature_auth`: requires a signature by a consumer's key. `nonces` remembers signatures, and `digest` compares
//! the body with the signed digest. What a signature covers is in `shared/signature.rs`.

pub(super) mod digest;
mod nonces;

use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::field_form::{Form, Structure};
use super::shared::jose::algorithm::Algorithm;
use super::shared::jose::key::Key;
use super::shared::jose::key_set::{KeySet, Secrets};
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named, Nobody, listed};
use super::shared::signature::{
    ALGORITHMS, Target, Unsigned, base, check_components, component, is_component, name_of,
};
use digest::Digests;
use nonces::{Mark, Nonces, Seen};
use sha2::{Digest as _, Sha256};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;
use weir_filter::directory::{CredentialIndex, Directory, Intake, Refused};
use weir_filter::sfv::{Bare, Item, Member, Parameters, dictionary, write_list};
use weir_h1::{BodyKind, FieldName, TargetForm};

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<SignatureAuthSettings>("signature_auth")
    .with_causes(&[
        &CONSUMER_ADDRESS,
        &CONSUMERS_UNAVAILABLE,
        &DIGEST_WRONG,
        &SIGNATURE_COMPONENTS,
        &SIGNATURE_EXPIRED,
        &SIGNATURE_KEY,
        &SIGNATURE_MALFORMED,
        &SIGNATURE_MEMORY,
        &SIGNATURE_MISSING,
        &SIGNATURE_REPLAYED,
        &SIGNATURE_UNKNOWN,
        &SIGNATURE_WRONG,
    ])
    .with_index::<SignatureKeys>();

causes! {
    DIGEST_WRONG "digest_wrong" 400
        "The body does not match its Content-Digest." "the client must send the body that it signed"
    SIGNATURE_COMPONENTS "signature_components" 401
        "The signature does not cover a required component, or covers one that the request lacks." "`components` of the filter signature_auth"
    SIGNATURE_EXPIRED "signature_expired" 401
        "The signature is too old, from the future, or has no time." "`max_age` and `leeway` of the filter signature_auth"
    SIGNATURE_KEY "signature_key" 401
        "The signature's key belongs to no consumer." "consumers.*.signature_auth"
    SIGNATURE_MALFORMED "signature_malformed" 401
        "The signature's fields are malformed." "the client must follow RFC 9421"
    SIGNATURE_MEMORY "signature_memory" 503
        "The memory for used signatures is full." "`remember` of the filter signature_auth"
    SIGNATURE_MISSING "signature_missing" 401
        "The request carries no signature." "the client must sign the request: see the filter signature_auth",
        no_credentials: true
    SIGNATURE_REPLAYED "signature_replayed" 401
        "The signature was used before." "the client must sign each request with its own nonce"
    SIGNATURE_UNKNOWN "signature_unknown" 401
        "The signature covers a component that Weir does not support, such as a trailer (`tr`) or another message (`req`), or covers one twice." "the client must sign supported components: see the filter signature_auth"
    SIGNATURE_WRONG "signature_wrong" 401
        "The signature does not belong to this request." "consumers.*.signature_auth, or the proxy that changed the request on its way"
}

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
struct SignatureAuthSettings {
    /// What a signature must cover: field names in lower case, and `@method`, `@target-uri`, `@authority`, `@scheme`,
    /// `@request-target`, `@path`, `@query`. `content-digest` is required only of requests with a body. A signature
    /// may cover more, and fields with the parameters `sf`, `bs` and `key`. Default `@method`, `@target-uri` and
    /// `content-digest`.
    components: Vec<String>,
    /// Maximum age of a signature. Default 60s.
    max_age: Duration,
    /// Allowed clock difference. Default 10s.
    leeway: Duration,
    /// Whether a signature must have a nonce. Default false: without a nonce, two equal requests in the same second
    /// count as one.
    nonce: bool,
    /// How many signatures are remembered, 100 bytes each. Set it to as many as may come in `max_age`. 0 allows
    /// replays until a signature is too old. Default 100000.
    remember: u32,
    /// Only signatures with this `tag` are considered. Default any.
    tag: Option<String>,
    /// The scheme that clients sign, `http` or `https`, if a proxy before this gateway terminates TLS. Default: that
    /// of the connection.
    scheme: Option<Scheme>,
    /// Your own structured fields (RFC 9651), by name: `dictionary`, `list` or `item`. With `sf`, a client signs such
    /// a field's content regardless of spacing. Default none, in addition to the registered ones.
    structured: BTreeMap<String, Structure>,
    /// Lets requests without a signature pass, unnamed. A wrong signature is still refused. Default false.
    optional: bool,
}

/// A scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scheme {
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

struct SignatureAuth {
    settings: SignatureAuthSettings,
    structures: Vec<(String, Structure)>,
    keys: HashMap<String, Known>,
    directory: Option<Arc<Directory>>,
    nonces: Option<Arc<Nonces>>,
    names: Names,
    /// The challenge that asks a client for a signature (RFC 9421 §5.1).
    accept: Vec<u8>,
}

/// A key and its consumer.
struct Known {
    key: Key,
    algorithm: (&'static str, Algorithm),
    consumer: usize,
}

/// The keys of the consumers of a source.
struct SignatureKeys(HashMap<Box<str>, Arc<Known>>);

/// The key of a signature, with its consumer.
enum KnownKey<'a> {
    Config(&'a Known),
    Listed(Arc<Known>, Arc<Consumer>),
}

struct Names {
    accept_signature: FieldName,
    content_digest: FieldName,
    signature: FieldName,
    signature_input: FieldName,
    www_authenticate: FieldName,
}

/// The digests that the body of an exchange must match, if any.
#[derive(Default)]
struct Expected(Option<Digests>);

/// One of the signatures of a request.
struct Signature<'a> {
    components: &'a [Item],
    parameters: &'a Parameters,
    value: &'a [u8],
    key_id: &'a str,
    known: KnownKey<'a>,
}

/// Most signatures of a request that are verified, among those with known keys.
const TRIES: usize = 4;

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

impl Names {
    fn new() -> Self {
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Self {
            accept_signature: name("accept-signature"),
            content_digest: name("content-digest"),
            signature: name("signature"),
            signature_input: name("signature-input"),
            www_authenticate: name("www-authenticate"),
        }
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

impl KnownKey<'_> {
    fn key(&self) -> &Known {
        match self {
            Self::Config(known) => known,
            Self::Listed(known, _) => known,
        }
    }

    fn named(&self) -> Named {
        match self {
            Self::Config(known) => Named::Config(known.consumer),
            Self::Listed(_, consumer) => Named::Listed(Arc::clone(consumer)),
        }
    }
}

impl CredentialIndex for SignatureKeys {
    fn read(intake: &mut Intake<'_>) -> Self {
        let mut keys: HashMap<Box<str>, Arc<Known>> = HashMap::new();
        intake.each(|consumer, text| {
            let (id, key, algorithm) = read_key(text).map_err(|why| Refused::Wrong(why.into()))?;
            let known = Arc::new(Known { key, algorithm, consumer: consumer as usize });
            match keys.insert(id.into(), known) {
                Some(other) => Err(Refused::Common(other.consumer as u32)),
                None => Ok(()),
            }
        });
        Self(keys)
    }

    fn common(&self, other: &Self) -> Vec<(u32, u32)> {
        let both = self.0.iter().filter_map(|(id, ours)| Some((ours, other.0.get(id)?)));
        both.map(|(ours, theirs)| (ours.consumer as u32, theirs.consumer as u32)).collect()
    }
}

fn read_key(text: &str) -> Result<(String, Key, (&'static str, Algorithm)), String> {
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
fn parse_key(text: &str, algorithm: Algorithm) -> Result<Key, String> {
    if algorithm != Algorithm::HS256 {
        let (set, _) = KeySet::read(text.as_bytes(), Secrets::Allowed)
            .map_err(|why| format!("is not a public key: {why}"))?;
        return set.into_only().ok_or_else(|| "holds several keys; expected one".to_owned());
    }
    Key::secret(&secret(text)?).map_err(|why| format!("is weak: {why}"))
}

/// A secret as written: plain text, or `base64:` and its Base64.
pub(super) fn secret(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix("base64:") {
        Some(digits) => {
            weir_wire::base64::decode(digits.trim().as_bytes()).ok_or_else(|| "is not Base64".to_owned())
        }
        None => Ok(text.as_bytes().to_vec()),
    }
}

// === impl SignatureAuth ===

impl Filter for SignatureAuth {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY
    }

    fn guards(&self) -> FieldGuards {
        let Names { content_digest, signature, signature_input, .. } = &self.names;
        FieldGuards {
            request: vec![content_digest.clone(), signature.clone(), signature_input.clone()],
            response: Vec::new(),
        }
    }

    fn request_body(&self, head: &RequestHead, _: &mut Cx) -> BodyUse {
        if head.headers.contains(&self.names.content_digest) { BodyUse::Watch } else { BodyUse::Pass }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.settings.optional && !head.headers.contains(&self.names.signature_input) {
            cx.pass_unnamed();
            return Flow::Continue;
        }
        match self.check(head, cx, now) {
            Ok(()) => Flow::Continue,
            Err(cause) => self.refuse(cause),
        }
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let expected = cx.state::<Expected>();
        let Some(digests) = &mut expected.0 else { return Ok(()) };
        digests.update(piece.data());
        if piece.is_last() && !expected.0.take().is_some_and(Digests::agree) {
            return Err(Refusal::new(&DIGEST_WRONG));
        }
        Ok(())
    }
}

impl SignatureAuth {
    /// Verifies one of the signatures, and identifies its consumer.
    fn check(&self, head: &RequestHead, cx: &mut Cx, now: u64) -> Result<(), &'static Cause> {
        let (inputs, values) =
            (self.field(head, &self.names.signature_input)?, self.field(head, &self.names.signature)?);
        let mut failed = &SIGNATURE_KEY;
        let unavailable = Cell::new(false);
        for signature in self.candidates(&inputs, &values, &unavailable).take(TRIES) {
            match self.verify(&signature, head, cx, now) {
                Ok(()) => return self.accept(&signature, head, cx),
                Err(cause) => failed = cause,
            }
        }
        if unavailable.get() && *failed == SIGNATURE_KEY {
            failed = &CONSUMERS_UNAVAILABLE;
        }
        Err(failed)
    }

    /// The members of a dictionary, which may be split over several fields.
    fn field(&self, head: &RequestHead, name: &FieldName) -> Result<Vec<(String, Member)>, &'static Cause> {
        let values: Vec<&[u8]> = head.headers.get_all(name.as_str()).collect();
        if values.is_empty() {
            let other = head.headers.contains(&self.names.signature_input)
                || head.headers.contains(&self.names.signature);
            return Err(if other { &SIGNATURE_MALFORMED } else { &SIGNATURE_MISSING });
        }
        dictionary(&values.join(&b", "[..])).ok_or(&SIGNATURE_MALFORMED)
    }

    /// The signatures by known keys, with the required tag.
    fn candidates<'a>(
        &'a self,
        inputs: &'a [(String, Member)],
        values: &'a [(String, Member)],
        unavailable: &'a Cell<bool>,
    ) -> impl Iterator<Item = Signature<'a>> {
        inputs.iter().filter_map(move |(label, input)| {
            let Member::List(components, parameters) = input else { return None };
            let Some(Bare::String(key_id)) = parameter(parameters, "keyid") else { return None };
            let known = self.find(key_id).inspect_err(|nobody| {
                unavailable.set(unavailable.get() || *nobody == Nobody::Unavailable);
            });
            let known = known.ok()?;
            if let Some(tag) = &self.settings.tag
                && parameter(parameters, "tag") != Some(&Bare::String(tag.clone()))
            {
                return None;
            }
            let value = values.iter().find(|(other, _)| other == label);
            let Some((_, Member::Item(Item { value: Bare::Bytes(value), .. }))) = value else { return None };
            Some(Signature { components, parameters, value, key_id, known })
        })
    }

    fn find(&self, key_id: &str) -> Result<KnownKey<'_>, Nobody> {
        if let Some(known) = self.keys.get(key_id) {
            return Ok(KnownKey::Config(known));
        }
        let Some(directory) = &self.directory else { return Err(Nobody::Unknown) };
        let found = directory.find("signature_auth", |keys: &SignatureKeys| {
            let known = keys.0.get(key_id)?;
            Some((known.consumer as u32, Arc::clone(known)))
        });
        listed(found).map(|(consumer, known)| KnownKey::Listed(known, consumer))
    }

    fn verify(
        &self,
        signature: &Signature<'_>,
        head: &RequestHead,
        cx: &Cx,
        now: u64,
    ) -> Result<(), &'static Cause> {
        let Signature { components, parameters, known, .. } = signature;
        let known = known.key();
        let (name, algorithm) = known.algorithm;
        if parameter(parameters, "alg").is_some_and(|alg| *alg != Bare::String(name.to_owned())) {
            return Err(&SIGNATURE_KEY); // §3.2: `alg` must not differ from the key's algorithm
        }
        if !self.settings.components.iter().all(|wanted| is_covered(wanted, components, head)) {
            return Err(&SIGNATURE_COMPONENTS);
        }
        let created = self.check_time(parameters, now)?;
        let nonce = match parameter(parameters, "nonce") {
            Some(Bare::String(nonce)) => Some(nonce),
            None if !self.settings.nonce => None,
            _ => return Err(&SIGNATURE_COMPONENTS),
        };
        let base = base(components, parameters, &self.target(head, cx)).map_err(|why| match why {
            Unsigned::Missing => &SIGNATURE_COMPONENTS,
            Unsigned::Unknown => &SIGNATURE_UNKNOWN,
        })?;
        if !known.key.verify(algorithm, &base, signature.value) {
            return Err(&SIGNATURE_WRONG);
        }
        // Only valid signatures are remembered, so a client without a key cannot fill the memory.
        let Some(nonces) = &self.nonces else { return Ok(()) };
        let mark = match nonce {
            Some(nonce) => mark(signature.key_id, 0, nonce.as_bytes()),
            None => mark(signature.key_id, 1, &base),
        };
        match nonces.see(mark, created, now) {
            Seen::Now => Ok(()),
            Seen::Before => Err(&SIGNATURE_REPLAYED),
            Seen::Forgotten => Err(&SIGNATURE_EXPIRED),
            Seen::Full => Err(&SIGNATURE_MEMORY),
        }
    }

    /// Whether the signature is current. Returns the second in which it was made, and for how many seconds it is
    /// valid.
    fn check_time(&self, parameters: &Parameters, now: u64) -> Result<(u64, u64), &'static Cause> {
        let second = |name| match parameter(parameters, name) {
            None => Ok(None),
            Some(Bare::Integer(second)) => u64::try_from(*second).map(Some).map_err(|_| &SIGNATURE_EXPIRED),
            Some(_) => Err(&SIGNATURE_MALFORMED),
        };
        let leeway = self.settings.leeway.get().as_secs();
        let created = second("created")?.ok_or(&SIGNATURE_EXPIRED)?;
        let lifetime = self.settings.max_age.get().as_secs().saturating_add(leeway);
        let until = created.saturating_add(lifetime);
        let expires = second("expires")?.map_or(until, |expires| expires.saturating_add(leeway));
        let early = created > now.saturating_add(leeway);
        if early || now >= until.min(expires) { Err(&SIGNATURE_EXPIRED) } else { Ok((created, lifetime)) }
    }

    /// The request as the client sent it, without the changes of earlier filters.
    fn target<'h>(&'h self, head: &'h RequestHead, cx: &Cx) -> Target<'h> {
        let structures = &self.structures[..];
        let tls = self.settings.scheme.map_or(cx.tls, |scheme| scheme == Scheme::Https);
        let authority = head.asked_authority();
        if head.form() != TargetForm::Origin {
            return Target { head, tls, authority, path: head.path(), query: head.query(), structures };
        }
        let query = head.received_target().contains(&b'?').then(|| head.received_query());
        Target { head, tls, authority, path: head.received_path(), query, structures }
    }

    /// The signature is valid: checks that the body matches the digest and that the consumer may call from this
    /// address.
    fn accept(
        &self,
        signature: &Signature<'_>,
        head: &RequestHead,
        cx: &mut Cx,
    ) -> Result<(), &'static Cause> {
        signature.known.named().name(cx);
        let client = cx.client.to_canonical();
        let allowed = cx.consumer().map_or(&[][..], |consumer| &consumer.allow_ips);
        if !allowed.is_empty() && !allowed.iter().any(|net| net.contains(&client)) {
            return Err(&CONSUMER_ADDRESS);
        }
        if !signature.components.iter().any(|component| name_of(component) == Some("content-digest")) {
            return Ok(());
        }
        let values: Vec<&[u8]> = head.headers.get_all(self.names.content_digest.as_str()).collect();
        let digests = Digests::read(&values.join(&b", "[..])).ok_or(&DIGEST_WRONG)?;
        if has_body(head) {
            cx.state::<Expected>().0 = Some(digests);
            return Ok(());
        }
        if digests.agree() { Ok(()) } else { Err(&DIGEST_WRONG) }
    }

    fn refuse(&self, cause: &'static Cause) -> Flow {
        if cause.status != 401 {
            return Flow::refuse(cause);
        }
        // RFC 9110 §11.6.1 asks for a challenge, RFC 9421 §5.1 says what to sign.
        let challenge = (self.names.www_authenticate.clone(), b"Signature realm=\"weir\"".to_vec());
        Flow::refuse_with(cause, vec![challenge, (self.names.accept_signature.clone(), self.accept.clone())])
    }
}

fn parameter<'p>(parameters: &'p Parameters, name: &str) -> Option<&'p Bare> {
    parameters.iter().find(|(own, _)| own == name).map(|(_, value)| value)
}

fn has_body(head: &RequestHead) -> bool {
    head.body() != BodyKind::Empty
}

/// Whether a signature covers a component. A field may also be covered as bytes or strictly serialized. A digest is
/// required only with a body.
fn is_covered(wanted: &str, components: &[Item], head: &RequestHead) -> bool {
    let covers = |component: &Item| {
        let whole = matches!(Form::of(&component.parameters), Some(Form::Bytes | Form::Plain | Form::Strict));
        name_of(component) == Some(wanted) && whole
    };
    (wanted == "content-digest" && !has_body(head)) || components.iter().any(covers)
}

fn mark(key_id: &str, kind: u8, text: &[u8]) -> Mark {
    let mut hash = Sha256::new();
    hash.update(key_id.as_bytes());
    hash.update([0, kind]);
    hash.update(text);
    let hash: [u8; 32] = hash.finalize().into();
    hash.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
