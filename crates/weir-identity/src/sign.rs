//! `sign`: signs requests on their way to the upstream. What a signature covers is in `shared/signature.rs`.

use super::prelude::*;
use super::shared::jose::algorithm::Algorithm;
use super::shared::jose::pem::blocks;
use super::shared::signature::{ALGORITHMS, Target, base, check_components, component};
use super::signature_auth::{digest, secret};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::signature as sig;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use weir_filter::sfv::{Bare, Item, Parameters, write_list};
use weir_h1::{BodyKind, FieldName};
use weir_wire::base64;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<SignSettings>("sign").with_causes(&[&SIGN_FAILED]);

static SIGN_FAILED: Cause = Cause {
    code: "sign_failed",
    status: 500,
    meaning: "The request could not be signed for the upstream.",
    change: "`components` of the filter sign: every request must have all of them",
    nature: Nature::Failure,
    ..Cause::USUAL
};

/// Signs each request for the upstream (HTTP Message Signatures, RFC 9421), to prove it came from the gateway.
///
/// Each attempt is signed separately, as the upstream gets it. Signatures from the client are replaced. If
/// `content-digest` is signed, the filter reads the whole body, up to `body` bytes, and sets the field to its SHA-256
/// (RFC 9530); a longer body is refused. An RSA signature takes tens of times as long as the others and is computed
/// on the threads for blocking work: prefer `ed25519`.
///
/// ```yaml
/// - sign: { key_id: weir, algorithm: hmac-sha256, key: "a secret of thirty-two bytes or more" }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignSettings {
    /// The id by which the upstream knows the key.
    key_id: String,
    /// `ecdsa-p256-sha256`, `ecdsa-p384-sha384`, `ed25519`, `hmac-sha256`, `rsa-pss-sha512` or `rsa-v1_5-sha256`.
    algorithm: String,
    /// The private key in PEM, or the secret for HMAC: at least 32 bytes, as text, or `base64:` and its Base64.
    #[serde(serialize_with = "hidden")]
    key: String,
    /// What is signed: field names in lower case, and `@method`, `@target-uri`, `@authority`, `@scheme`,
    /// `@request-target`, `@path`, `@query`. `content-digest` applies only to requests with a body. Default
    /// `@method`, `@target-uri` and `content-digest`.
    #[serde(default = "components")]
    components: Vec<String>,
    /// Label of the signature. Default `sig`.
    #[serde(default = "label")]
    label: String,
    /// How long the signature is valid: sets `expires`. Default none.
    #[serde(default)]
    expires: Option<Duration>,
    /// Whether each signature has a nonce. Default true.
    #[serde(default = "yes")]
    nonce: bool,
    /// The purpose of the signature: sets `tag`. Default none.
    #[serde(default)]
    tag: Option<String>,
    /// Longest body that is signed. Default 1MiB.
    #[serde(default = "mebibyte")]
    body: ByteSize,
}

struct Sign {
    settings: SignSettings,
    key: Arc<SigningKey>,
    with_body: Vec<Item>,
    without_body: Vec<Item>,
    names: [FieldName; 3],
}

/// A key that signs.
enum SigningKey {
    Ecdsa(sig::EcdsaKeyPair),
    Ed25519(Box<sig::Ed25519KeyPair>),
    Hmac(Box<hmac::Key>),
    Rsa(Box<sig::RsaKeyPair>, &'static sig::RsaSignatureEncoding),
}

fn components() -> Vec<String> {
    ["@method", "@target-uri", "content-digest"].map(str::to_owned).into()
}

fn label() -> String {
    "sig".to_owned()
}

const fn yes() -> bool {
    true
}

const fn mebibyte() -> ByteSize {
    ByteSize(1024 * 1024)
}

/// Hides the key, because `weir explain` shows settings.
fn hidden<S: serde::Serializer>(_: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("***")
}

const DIGEST: &str = "content-digest";

impl IntoFilter for SignSettings {
    type Filter = Sign;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Sign> {
        let before = build.mistakes.len();
        check_components(build, &self.components);
        for (key, text) in [("key_id", Some(&self.key_id)), ("tag", self.tag.as_ref())] {
            if text.is_some_and(|text| text.is_empty() || !text.bytes().all(|b| matches!(b, 0x20..=0x7e))) {
                build.refuse(key, "is empty, or holds a letter that is not ASCII", None);
            }
        }
        let key_byte = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b);
        if !self.label.starts_with(|c: char| c.is_ascii_lowercase()) || !self.label.bytes().all(key_byte) {
            let hint = "write it in lower case, such as sig".to_owned();
            build.refuse(
                "label",
                format!("`{}` is not a name in a structured field", self.label),
                Some(hint.into()),
            );
        }
        let names = ALGORITHMS.map(|(name, _)| name).join(", ");
        let key = match ALGORITHMS.iter().find(|(name, _)| *name == self.algorithm) {
            None => {
                build.refuse(
                    "algorithm",
                    format!("`{}` is unknown; expected one of {names}", self.algorithm),
                    None,
                );
                None
            }
            Some((name, algorithm)) => match SigningKey::read(&self.key, *algorithm) {
                Ok(key) => Some(key),
                Err(why) => {
                    let hint = (*algorithm != Algorithm::HS256)
                        .then(|| format!("make one for {name}: see docs/guide/authentication.md"));
                    build.refuse("key", why, hint.map(Into::into));
                    None
                }
            },
        };
        if build.mistakes.len() > before {
            return None;
        }
        let with_body: Vec<Item> = self.components.iter().map(|name| component(name)).collect();
        let without_body =
            self.components.iter().filter(|name| *name != DIGEST).map(|name| component(name)).collect();
        let names = ["signature", "signature-input", DIGEST]
            .map(|name| FieldName::new(name).expect("a name in the source is a token"));
        Some(Sign { key: Arc::new(key?), with_body, without_body, names, settings: self })
    }
}

// === impl SigningKey ===

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    fn read(text: &str, algorithm: Algorithm) -> Result<Self, String> {
        if algorithm == Algorithm::HS256 {
            let secret = secret(text)?;
            if secret.len() < 32 {
                return Err(format!(
                    "is a secret of {} bytes, which can be guessed; expected at least 32",
                    secret.len()
                ));
            }
            return Ok(Self::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &secret))));
        }
        let blocks = blocks(text.as_bytes()).map_err(|why| format!("is not PEM: {why}"))?;
        let [(label, der)] = &blocks[..] else {
            return Err(format!("holds {} PEM blocks; expected one private key", blocks.len()));
        };
        if !label.ends_with("PRIVATE KEY") {
            return Err(format!("is a {label}; expected a private key"));
        }
        let read = match algorithm {
            Algorithm::EdDSA => sig::Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
                .ok()
                .map(|pair| Self::Ed25519(Box::new(pair))),
            Algorithm::ES256 => {
                sig::EcdsaKeyPair::from_private_key_der(&sig::ECDSA_P256_SHA256_FIXED_SIGNING, der)
                    .ok()
                    .map(Self::Ecdsa)
            }
            Algorithm::ES384 => {
                sig::EcdsaKeyPair::from_private_key_der(&sig::ECDSA_P384_SHA384_FIXED_SIGNING, der)
                    .ok()
                    .map(Self::Ecdsa)
            }
            algorithm => {
                let pair = sig::RsaKeyPair::from_pkcs8(der).or_else(|_| sig::RsaKeyPair::from_der(der));
                let pss = algorithm == Algorithm::PS512;
                let encoding = if pss { &sig::RSA_PSS_SHA512 } else { &sig::RSA_PKCS1_SHA256 };
                pair.ok().map(|pair| Self::Rsa(Box::new(pair), encoding))
            }
        };
        read.ok_or_else(|| format!("is not a private key for {}", algorithm.name()))
    }

    /// Whether signing takes so long that it must not run on the core.
    const fn is_slow(&self) -> bool {
        matches!(self, Self::Rsa(..))
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        Some(match self {
            Self::Ecdsa(pair) => pair.sign(&random, message).ok()?.as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Hmac(key) => hmac::sign(key, message).as_ref().to_vec(),
            Self::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature).ok()?;
                signature
            }
        })
    }
}

// === impl Sign ===

impl Filter for Sign {
    fn hooks(&self) -> Hooks {
        let hooks = Hooks::REQUEST | Hooks::REQUEST_BODY | Hooks::ATTEMPT;
        if self.key.is_slow() { hooks | Hooks::ATTEMPT_WAIT } else { hooks }
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards { request: self.names.to_vec(), response: Vec::new() }
    }

    fn request_body(&self, head: &RequestHead, _: &mut Cx) -> BodyUse {
        let signed = self.with_body.len() != self.without_body.len() && head.body() != BodyKind::Empty;
        if signed { BodyUse::Whole(self.settings.body.as_usize()) } else { BodyUse::Pass }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let [_, _, content_digest] = &self.names;
        if self.with_body.len() == self.without_body.len() {
            return Flow::Continue;
        }
        head.headers.remove(content_digest);
        *cx.note() = u64::from(head.body() != BodyKind::Empty);
        if *cx.note() == 0 {
            return Flow::Continue;
        }
        match head.headers.insert(content_digest, digest::sha256(cx.whole()).as_bytes()) {
            Ok(()) => Flow::Continue,
            Err(_) => Flow::refuse(&SIGN_FAILED),
        }
    }

    fn on_attempt(&self, head: &mut RequestHead, attempt: &Attempt<'_>, cx: &mut Cx) -> HookResult {
        if self.key.is_slow() {
            return Ok(()); // wait_attempt signs
        }
        let unsigned = self.prepare(head, attempt, cx)?;
        let signature = self.key.sign(&unsigned.base).ok_or_else(failed)?;
        self.set(head, unsigned, &signature)
    }

    fn wait_attempt<'a>(
        &'a self,
        head: &'a mut RequestHead,
        attempt: &'a Attempt<'a>,
        cx: &'a mut Cx,
    ) -> Waiting<'a, HookResult> {
        Box::pin(async move {
            let mut unsigned = self.prepare(head, attempt, cx)?;
            let (key, base) = (Arc::clone(&self.key), std::mem::take(&mut unsigned.base));
            let signature = cx.core().blocking(move || key.sign(&base)).await.map_err(Refusal::new)?;
            self.set(head, unsigned, &signature.ok_or_else(failed)?)
        })
    }
}

/// What is signed, and the parameters that describe it.
struct Unsigned {
    base: Vec<u8>,
    input: String,
}

fn failed() -> Box<Refusal> {
    Refusal::new(&SIGN_FAILED)
}

impl Sign {
    fn prepare(
        &self,
        head: &RequestHead,
        attempt: &Attempt<'_>,
        cx: &mut Cx,
    ) -> Result<Unsigned, Box<Refusal>> {
        let components = if *cx.note() == 0 { &self.without_body } else { &self.with_body };
        let parameters = self.parameters().ok_or_else(failed)?;
        let authority = attempt.host.map_or_else(|| head.authority(), str::as_bytes);
        let (path, query) = (head.path(), head.query());
        let target = Target { head, tls: attempt.tls, authority, path, query, structures: &[] };
        let base = base(components, &parameters, &target).map_err(|_| failed())?;
        let mut input = format!("{}=", self.settings.label);
        write_list(components, &parameters, &mut input);
        Ok(Unsigned { base, input })
    }

    fn set(&self, head: &mut RequestHead, unsigned: Unsigned, signature: &[u8]) -> HookResult {
        let value = format!("{}=:{}:", self.settings.label, base64::encode(signature));
        let [signature, signature_input, _] = &self.names;
        head.headers.insert(signature_input, unsigned.input.as_bytes()).map_err(|_| failed())?;
        head.headers.insert(signature, value.as_bytes()).map_err(|_| failed())
    }

    fn parameters(&self) -> Option<Parameters> {
        let settings = &self.settings;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        let second = |second: u64| i64::try_from(second).ok().map(Bare::Integer);
        let mut parameters = vec![("created".to_owned(), second(now)?)];
        if let Some(expires) = settings.expires {
            parameters.push(("expires".to_owned(), second(now.saturating_add(expires.get().as_secs()))?));
        }
        if settings.nonce {
            let mut nonce = [0; 16];
            SystemRandom::new().fill(&mut nonce).ok()?;
            parameters.push(("nonce".to_owned(), Bare::String(base64::encode_url(&nonce))));
        }
        parameters.push(("alg".to_owned(), Bare::String(settings.algorithm.clone())));
        parameters.push(("keyid".to_owned(), Bare::String(settings.key_id.clone())));
        if let Some(tag) = &settings.tag {
            parameters.push(("tag".to_owned(), Bare::String(tag.clone())));
        }
        Some(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::jose::key_set::{KeySet, Secrets};
    use super::super::testing::Stand;
    use super::*;
    use aws_lc_rs::encoding::AsDer;
    use serde_json::{Value, json};
    use weir_filter::sfv::{Member, dictionary};

    const SECRET: &str = "a secret of thirty-two bytes or more";

    /// Private keys for tests only: those of RFC 9421 B.1.3 and B.1.4.
    const P256: &str = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIFKbhfNZfpDsW43+0+JjUr9K+bTeuxopu653+hBaXGA7oAoGCCqGSM49\nAwEHoUQDQgAEqIVYZVLCrPZHGHjP17CTW0/+D9Lfw0EkjqF7xB4FivAxzic30tMM\n4GF+hR6Dxh71Z50VGGdldkkDXZCnTNnoXQ==\n-----END EC PRIVATE KEY-----\n";
    const ED25519: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n";
    const P256_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqIVYZVLCrPZHGHjP17CTW0/+D9Lf\nw0EkjqF7xB4FivAxzic30tMM4GF+hR6Dxh71Z50VGGdldkkDXZCnTNnoXQ==\n-----END PUBLIC KEY-----\n";
    const ED25519_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----\n";

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", base64::encode(der))
    }

    #[tokio::test]
    async fn what_is_signed_can_be_verified() {
        let rsa = sig::RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let rsa_public =
            AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(sig::KeyPair::public_key(&rsa))
                .unwrap();
        let rsa_private = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&rsa).unwrap();
        let (rsa_private, rsa_public) =
            (pem("PRIVATE KEY", rsa_private.as_ref()), pem("PUBLIC KEY", rsa_public.as_ref()));
        let secret = json!({ "kty": "oct", "k": base64::encode_url(SECRET.as_bytes()) }).to_string();
        for (name, private, public) in [
            ("hmac-sha256", SECRET, secret.as_str()),
            ("ecdsa-p256-sha256", P256, P256_PUBLIC),
            ("ed25519", ED25519, ED25519_PUBLIC),
            ("rsa-pss-sha512", &rsa_private, &rsa_public),
            ("rsa-v1_5-sha256", &rsa_private, &rsa_public),
        ] {
            let settings =
                json!({ "key_id": "k", "algorithm": name, "key": private, "tag": "t", "expires": "1m" });
            let running = Stand::new(&KIND, settings).build();
            let mut exchange =
                running.request("GET /a?b=1\nHost: in.example\nSignature: forged=:AA==:").await;
            exchange.expect_continue();
            let attempt =
                Attempt { upstream: "up", endpoint: "e", number: 1, host: Some("Up.example:443"), tls: true };
            exchange.attempt_as(&attempt).await.unwrap();
            let input = exchange.header("signature-input").remove(0);
            let members = dictionary(input.as_bytes()).unwrap();
            let (label, Member::List(components, parameters)) = &members[0] else { panic!("{input}") };
            assert_eq!((label.as_str(), components.len()), ("sig", 2), "{input}");
            let values = dictionary(exchange.header("signature").remove(0).as_bytes()).unwrap();
            let [(_, Member::Item(Item { value: Bare::Bytes(value), .. }))] = &values[..] else {
                panic!("{values:?}")
            };
            let target = Target {
                head: &exchange.head,
                tls: true,
                authority: b"up.example",
                path: b"/a",
                query: Some(b"b=1"),
                structures: &[],
            };
            let base = base(components, parameters, &target).unwrap();
            assert!(base.starts_with(b"\"@method\": GET\n\"@target-uri\": https://up.example/a?b=1\n"));
            let (_, algorithm) = ALGORITHMS.into_iter().find(|(other, _)| *other == name).unwrap();
            let key = KeySet::read(public.as_bytes(), Secrets::Allowed).unwrap().0.into_only().unwrap();
            assert!(key.verify(algorithm, &base, value), "{name}");
            assert_eq!(running.blocked(), u32::from(name.starts_with("rsa")), "{name}");
            // The next attempt has its own signature.
            exchange.attempt_as(&attempt).await.unwrap();
            assert_ne!(exchange.header("signature-input"), [input]);
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_not_left_out() {
        let settings =
            json!({ "key_id": "k", "algorithm": "hmac-sha256", "key": SECRET, "components": ["x-tenant"] });
        let running = Stand::new(&KIND, settings).build();
        let attempt = Attempt { upstream: "up", endpoint: "e", number: 1, host: None, tls: false };
        assert_eq!(running.request("GET /").await.attempt_as(&attempt).await, Err(&SIGN_FAILED));
        assert_eq!(running.request("GET /\nX-Tenant: a").await.attempt_as(&attempt).await, Ok(()));
    }

    #[test]
    fn mistakes() {
        let good = json!({ "key_id": "k", "algorithm": "ed25519", "key": ED25519 });
        for (key, value, why) in [
            ("key_id", json!(""), "key_id: is empty"),
            ("algorithm", json!("ed448"), "expected one of ecdsa-p256"),
            ("algorithm", json!("ecdsa-p256-sha256"), "key: is not a private key for ES256"),
            ("algorithm", json!("hmac-sha256"), "sign"),
            ("key", json!("x"), "key: "),
            ("key", json!(ED25519_PUBLIC), "expected a private key"),
            ("components", json!(["Date"]), "components[0]: `Date`"),
            ("components", json!(["@status"]), "components[0]: `@status`"),
            ("label", json!("Sig"), "label: `Sig`"),
        ] {
            let mut settings = good.clone();
            settings[key] = value.clone();
            let mut stand = Stand::new(&KIND, settings);
            if why == "sign" {
                stand.build(); // any text of 32 bytes is a secret
                continue;
            }
            let told = stand.mistakes();
            assert!(told.iter().any(|one| one.contains(why)), "{key} {value}: {told:?}");
        }
        assert!(!Stand::new(&KIND, good).build().settings.is_null());
        let short: Value = json!({ "key_id": "k", "algorithm": "hmac-sha256", "key": "short" });
        assert!(Stand::new(&KIND, short).mistakes()[0].contains("can be guessed"));
    }
}
