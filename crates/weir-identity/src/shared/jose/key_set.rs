//! Keys that verify tokens: from a JWKS (RFC 7517 §5), PEM, or a single JWK.

use super::algorithm::Algorithm;
use super::json;
use super::key::Key;
use super::pem::blocks;
use super::token::Token;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest JWKS or PEM, in bytes.
pub(crate) const KEY_SET_BYTES: usize = 256 * 1024;

/// Most keys of a set. More are an error, because it would be unclear which ones are ignored.
pub(crate) const KEYS: usize = 100;

/// Several keys. Each set has its own number, so that a token verified with one set does not count as verified with
/// another.
#[derive(Debug)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
    number: u64,
}

/// Whether a set may contain secrets: not if others can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// From a file or the config.
    Allowed,
    /// From a URL: anyone who can read the secrets can sign.
    Refused,
}

/// The verdict of a key set on a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The token names a key that does not fit its algorithm.
    Algorithm,
    /// No key has the name in the token, or none fits its algorithm: a newer set may have one.
    Unknown,
    /// One of the keys made the signature.
    Valid,
    /// None of the keys made the signature.
    Wrong,
}

impl KeySet {
    fn new(keys: Vec<Key>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { keys, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// A set of one shared secret.
    ///
    /// # Errors
    /// If it is too short.
    pub(crate) fn secret(secret: &[u8]) -> Result<Self, String> {
        Ok(Self::new(vec![Key::secret(secret)?]))
    }

    /// Reads a JWKS, a JWK, or PEM. Unusable keys of a JWKS are skipped; the second part of the result gives the
    /// reasons.
    ///
    /// # Errors
    /// If it contains no usable key.
    pub(crate) fn read(bytes: &[u8], secrets: Secrets) -> Result<(Self, Vec<String>), String> {
        if bytes.trim_ascii_start().starts_with(b"-----BEGIN") {
            let keys = read_pem(bytes)?;
            return bounded(keys).map(|keys| (Self::new(keys), Vec::new()));
        }
        let map = json::object(bytes).ok_or("it is neither PEM nor a JSON object with `keys`")?;
        let jwks = match map.get("keys") {
            Some(Value::Array(keys)) => keys.iter().map(Value::as_object).collect(),
            Some(_) => None,
            None => Some(vec![&map]),
        };
        let jwks: Vec<&Map<String, Value>> = jwks.ok_or("`keys` is not a list of objects")?;
        let jwks = bounded(jwks)?;
        let (mut keys, mut left_out) = (Vec::new(), Vec::new());
        for (number, jwk) in jwks.iter().enumerate() {
            let name = jwk
                .get("kid")
                .and_then(Value::as_str)
                .map_or(format!("key {}", number + 1), |id| format!("key `{id}`"));
            match Key::from_jwk(jwk) {
                Ok(Some(key)) if key.is_secret() && secrets == Secrets::Refused => {
                    left_out.push(format!("{name}: it is a shared secret, but published here"));
                }
                Ok(Some(key)) => keys.push(key),
                Ok(None) => {}
                Err(why) => left_out.push(format!("{name}: {why}")),
            }
        }
        if keys.is_empty() {
            let why = left_out.first().map_or(String::new(), |why| format!("; {why}"));
            return Err(format!("it has no key that verifies signatures{why}"));
        }
        Ok((Self::new(keys), left_out))
    }

    /// The key of a set with exactly one key.
    pub(crate) fn into_only(mut self) -> Option<Key> {
        if self.keys.len() == 1 { self.keys.pop() } else { None }
    }

    /// Whether one of its keys fits this algorithm.
    pub(crate) fn fits(&self, algorithm: Algorithm) -> bool {
        self.keys.iter().any(|key| key.fits(algorithm))
    }

    /// How many keys it has.
    pub(crate) const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Identifies this set.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The most that verifying the token can cost, where 1 is a signature of RSA or P-256. Keys that may have made
    /// the signature are tried one after another.
    pub(crate) fn cost(&self, token: &Token<'_>) -> u32 {
        let keys = self.candidates(token).filter(|key| key.fits(token.algorithm)).count();
        u32::try_from(keys).unwrap_or(u32::MAX).saturating_mul(token.algorithm.cost())
    }

    /// The keys that a token may refer to. A key without a name also fits tokens that name one, because PEM has no
    /// names.
    fn candidates<'a>(&'a self, token: &'a Token<'_>) -> impl Iterator<Item = &'a Key> {
        let named = |key: &Key| token.key_id.is_none() || key.id == token.key_id;
        let is_named = self.keys.iter().any(named);
        self.keys.iter().filter(move |key| if is_named { named(key) } else { key.id.is_none() })
    }

    /// Whether one of these keys signed the token.
    pub(crate) fn verify(&self, token: &Token<'_>) -> Verdict {
        let mut fit = self.candidates(token).filter(|key| key.fits(token.algorithm)).peekable();
        if fit.peek().is_none() {
            let known = token.key_id.is_some() && self.candidates(token).next().is_some();
            return if known { Verdict::Algorithm } else { Verdict::Unknown };
        }
        let made = fit.any(|key| key.verify(token.algorithm, token.signed, &token.signature));
        if made { Verdict::Valid } else { Verdict::Wrong }
    }
}

fn bounded<T>(keys: Vec<T>) -> Result<Vec<T>, String> {
    match keys.len() {
        0 => Err("it holds no key".to_owned()),
        1..=KEYS => Ok(keys),
        n => Err(format!("it holds {n} keys; expected at most {KEYS}")),
    }
}

/// The public keys of a PEM text.
fn read_pem(bytes: &[u8]) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    for (label, der) in blocks(bytes)? {
        match label {
            "PUBLIC KEY" | "RSA PUBLIC KEY" => keys.push(Key::from_der(&der)?),
            "CERTIFICATE" => {
                return Err(
                    "it is a certificate; expected its public key: openssl x509 -in FILE -pubkey -noout"
                        .to_owned(),
                );
            }
            label if label.ends_with("PRIVATE KEY") => {
                return Err(
                    "it is a private key; expected the public one: openssl pkey -in FILE -pubout".to_owned()
                );
            }
            label => return Err(format!("it holds a {label}; expected a PUBLIC KEY")),
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::super::{base64, token};
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<(KeySet, Vec<String>), String> {
        KeySet::read(text.as_bytes(), Secrets::Refused)
    }

    fn ec(kid: Option<&str>) -> Value {
        let mut key = json!({
            "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        });
        if let Some(kid) = kid {
            key["kid"] = kid.into();
        }
        key
    }

    #[test]
    fn the_name_chooses_the_key() {
        let verdict = |keys: Value, header: Value| {
            let (set, _) = read(&json!({ "keys": keys }).to_string()).unwrap();
            let text = format!("{}.e30.AAAA", base64::encode_url(header.to_string().as_bytes()));
            set.verify(&token::parse(text.as_bytes()).unwrap())
        };
        let es = |kid: &str| json!({ "alg": "ES256", "kid": kid });
        assert_eq!(verdict(json!([ec(Some("a"))]), es("a")), Verdict::Wrong);
        assert_eq!(verdict(json!([ec(Some("a"))]), es("b")), Verdict::Unknown);
        assert_eq!(verdict(json!([ec(Some("a"))]), json!({ "alg": "ES256" })), Verdict::Wrong);
        assert_eq!(
            verdict(json!([ec(Some("a"))]), json!({ "alg": "HS256", "kid": "a" })),
            Verdict::Algorithm
        );
        assert_eq!(verdict(json!([ec(Some("a"))]), json!({ "alg": "RS256" })), Verdict::Unknown);
        assert_eq!(verdict(json!([ec(None)]), es("b")), Verdict::Wrong);
        assert_eq!(verdict(json!([ec(None), ec(Some("a"))]), es("b")), Verdict::Wrong);
    }

    #[test]
    fn what_cannot_be_used_is_left_out() {
        let secret = json!({ "kty": "oct", "kid": "s", "k": base64::encode_url(&[7; 32]) });
        let weak = json!({ "kty": "RSA", "kid": "w", "n": base64::encode_url(&[255; 128]), "e": "AQAB" });
        let enc = json!({ "kty": "RSA", "use": "enc" });
        let text = json!({ "keys": [secret, weak, enc, ec(Some("a"))] }).to_string();
        let (set, left_out) = read(&text).unwrap();
        assert_eq!((set.keys.len(), left_out.len()), (1, 2), "{left_out:?}");
        assert!(left_out[0].contains("`s`") && left_out[1].contains("1024 bits"), "{left_out:?}");
        assert_eq!(KeySet::read(text.as_bytes(), Secrets::Allowed).unwrap().0.keys.len(), 2);
    }

    #[test]
    fn what_is_no_set() {
        for (text, why) in [
            ("", "neither"),
            ("[]", "neither"),
            (r#"{"keys":1}"#, "not a list"),
            (r#"{"keys":[1]}"#, "not a list"),
            (r#"{"keys":[]}"#, "no key"),
            (r#"{"keys":[],"keys":[]}"#, "neither"),
            (r#"{"keys":[{"kty":"x"}]}"#, "no key"),
            ("-----BEGIN PUBLIC KEY-----", "no end"),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "not a public key"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "x509"),
            ("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----", "pubout"),
        ] {
            let told = read(text).expect_err("it is none");
            assert!(told.contains(why), "{text}: {told}");
        }
        let many = json!({ "keys": vec![ec(None); KEYS + 1] }).to_string();
        assert!(read(&many).unwrap_err().contains("at most 100"));
    }

    #[test]
    fn no_two_sets_have_a_number() {
        let text = ec(None).to_string();
        assert_ne!(read(&text).unwrap().0.number(), read(&text).unwrap().0.number());
    }

    /// Prints a figure of docs/dev/benchmarks.md, which explains how. Meaningful only in a release build on a quiet
    /// machine.
    #[test]
    fn measured_es256_against_the_library_alone() {
        use aws_lc_rs::rand::SystemRandom;
        use aws_lc_rs::signature::{self as sig, KeyPair, ParsedPublicKey};
        use std::hint::black_box;
        const TIMES: u32 = 200;
        let pair = sig::EcdsaKeyPair::generate(&sig::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point: &[u8] = pair.public_key().as_ref();
        let coordinate = |at: std::ops::Range<usize>| base64::encode_url(&point[at]);
        let jwk = json!({ "kty": "EC", "crv": "P-256", "kid": "a", "x": coordinate(1..33), "y": coordinate(33..65) });
        let (set, _) = read(&json!({ "keys": [jwk] }).to_string()).unwrap();
        let part = |value: Value| base64::encode_url(value.to_string().as_bytes());
        let claims = json!({ "iss": "https://id.example.com", "sub": "shop", "aud": "orders", "exp": 4_102_444_800_u64 });
        let signed = format!("{}.{}", part(json!({ "alg": "ES256", "kid": "a" })), part(claims));
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        let token = format!("{signed}.{}", base64::encode_url(signature.as_ref()));
        let library = ParsedPublicKey::new(&sig::ECDSA_P256_SHA256_FIXED, point).unwrap();
        let alone = || library.verify_sig(black_box(signed.as_bytes()), signature.as_ref()).is_ok();
        let ours = || {
            let token = token::parse(black_box(token.as_bytes())).unwrap();
            set.verify(&token) == Verdict::Valid && token.claims().is_some()
        };
        let timed = |what: &dyn Fn() -> bool| {
            let began = std::time::Instant::now();
            assert!((0..TIMES).all(|_| what()));
            began.elapsed() / TIMES
        };
        // The best of several turns, because other load on the machine can only make it slower.
        let (mut best_alone, mut best_ours) = (std::time::Duration::MAX, std::time::Duration::MAX);
        for _ in 0..5 {
            best_alone = best_alone.min(timed(&alone));
            best_ours = best_ours.min(timed(&ours));
        }
        println!(
            "ES256: {best_alone:?} by aws-lc-rs alone, {best_ours:?} for a whole token, its claims read"
        );
    }
}
