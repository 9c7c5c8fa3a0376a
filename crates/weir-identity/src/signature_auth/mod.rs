//! `signature_auth`: requires a signature by a consumer's key. `nonces` remembers signatures, and `digest` compares
//! the body with the signed digest. What a signature covers is in `shared/signature.rs`.

pub(super) mod digest;
mod nonces;
mod settings;

pub(super) use settings::secret;

use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::field_form::{Form, Structure};
use super::shared::jose::algorithm::Algorithm;
use super::shared::jose::key::Key;
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named, Nobody, listed};
use super::shared::signature::{Target, Unsigned, base, name_of};
use digest::Digests;
use nonces::{Mark, Nonces, Seen};
use settings::{Scheme, SignatureAuthSettings, read_key};
use sha2::{Digest as _, Sha256};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;
use weir_filter::directory::{CredentialIndex, Directory, Intake, Refused};
use weir_filter::sfv::{Bare, Item, Member, Parameters, dictionary};
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
