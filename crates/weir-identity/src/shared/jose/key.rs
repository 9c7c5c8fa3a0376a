//! A key that verifies tokens, read from a JWK (RFC 7517) or PEM. aws-lc, which also does TLS, does the cryptography.

use super::algorithm::Algorithm;
use super::base64;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::PublicEncryptingKey;
use aws_lc_rs::signature::{ParsedPublicKey, RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm};
use aws_lc_rs::{hmac, signature as sig};
use serde_json::{Map, Value};
use std::fmt;

/// Fewest bits of an RSA key (RFC 7518 §3.3).
const RSA_BITS: usize = 2048;

/// Most bits of an RSA key: a larger one costs more time than it is worth.
const RSA_MOST_BITS: usize = 8192;

/// A key, bound to the algorithms that it may be used with.
pub(crate) struct Key {
    /// Its `kid`.
    pub(super) id: Option<String>,
    verifiers: Vec<(Algorithm, Verifier)>,
}

enum Verifier {
    Public(ParsedPublicKey),
    Secret(Box<hmac::Key>),
}

/// The algorithms of RSA keys.
const RSA: [(Algorithm, &RsaParameters); 6] = [
    (Algorithm::PS256, &sig::RSA_PSS_2048_8192_SHA256),
    (Algorithm::PS384, &sig::RSA_PSS_2048_8192_SHA384),
    (Algorithm::PS512, &sig::RSA_PSS_2048_8192_SHA512),
    (Algorithm::RS256, &sig::RSA_PKCS1_2048_8192_SHA256),
    (Algorithm::RS384, &sig::RSA_PKCS1_2048_8192_SHA384),
    (Algorithm::RS512, &sig::RSA_PKCS1_2048_8192_SHA512),
];

/// The algorithm of each curve, and the length of a coordinate in bytes.
const CURVES: [(&str, Algorithm, &sig::EcdsaVerificationAlgorithm, usize); 3] = [
    ("P-256", Algorithm::ES256, &sig::ECDSA_P256_SHA256_FIXED, 32),
    ("P-384", Algorithm::ES384, &sig::ECDSA_P384_SHA384_FIXED, 48),
    ("P-521", Algorithm::ES512, &sig::ECDSA_P521_SHA512_FIXED, 66),
];

/// The algorithms of secrets, with the shortest secret for each: as long as the hash (RFC 7518 §3.2).
const SECRETS: [(Algorithm, hmac::Algorithm, usize); 3] = [
    (Algorithm::HS256, hmac::HMAC_SHA256, 32),
    (Algorithm::HS384, hmac::HMAC_SHA384, 48),
    (Algorithm::HS512, hmac::HMAC_SHA512, 64),
];

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms: Vec<Algorithm> = self.verifiers.iter().map(|(algorithm, _)| *algorithm).collect();
        f.debug_struct("Key").field("id", &self.id).field("algorithms", &algorithms).finish()
    }
}

impl Key {
    /// Reads a key of a JWKS. `None` for keys with another use or of an unknown kind, which must be ignored (RFC 7517
    /// §5).
    ///
    /// # Errors
    /// The reason why the key is invalid.
    pub(crate) fn from_jwk(jwk: &Map<String, Value>) -> Result<Option<Self>, String> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| {
            let decoded = text(name).and_then(|value| base64::decode_url(value.as_bytes()));
            decoded.ok_or_else(|| format!("`{name}` is missing or no base64url"))
        };
        let signs = text("use").is_none_or(|use_| use_ == "sig");
        let operations = jwk.get("key_ops").and_then(Value::as_array);
        if !signs || operations.is_some_and(|all| !all.iter().any(|op| op == "verify" || op == "sign")) {
            return Ok(None);
        }
        let only = match jwk.get("alg") {
            None => None,
            Some(name) => match name.as_str().and_then(Algorithm::of) {
                Some(algorithm) => Some(algorithm),
                None => return Ok(None),
            },
        };
        let mut key = match text("kty") {
            Some("RSA") => Self::rsa(&bytes("n")?, &bytes("e")?)?,
            Some("EC") => {
                let Some(curve) = CURVES.iter().find(|(name, ..)| text("crv") == Some(name)) else {
                    return Ok(None);
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                let (_, algorithm, verification, length) = *curve;
                // RFC 7518 §6.2.1.2: the length is that of the curve, zeros included.
                if x.len() != length || y.len() != length {
                    return Err(format!("`x` and `y` are not of {length} bytes"));
                }
                Self::public(algorithm, verification, &[&[4], &x[..], &y].concat())?
            }
            Some("OKP") if text("crv") == Some("Ed25519") => {
                Self::public(Algorithm::EdDSA, &sig::ED25519, &bytes("x")?)?
            }
            Some("oct") => Self::secret(&bytes("k")?)?,
            _ => return Ok(None),
        };
        if let Some(only) = only {
            key.verifiers.retain(|(algorithm, _)| *algorithm == only);
        }
        key.id = text("kid").map(str::to_owned);
        // An `alg` that does not belong to `kty` leaves no algorithm.
        if key.verifiers.is_empty() {
            Err("`alg` does not fit its type or length".to_owned())
        } else {
            Ok(Some(key))
        }
    }

    /// Reads a public key from the content of PEM: SubjectPublicKeyInfo, or PKCS#1 for RSA.
    ///
    /// # Errors
    /// The reason why the key is invalid.
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, String> {
        if let Ok(key) = Self::public(Algorithm::EdDSA, &sig::ED25519, der) {
            return Ok(key);
        }
        for (_, algorithm, verification, _) in CURVES {
            if let Ok(key) = Self::public(algorithm, verification, der) {
                return Ok(key);
            }
        }
        let parse = |verification: &'static dyn VerificationAlgorithm| {
            ParsedPublicKey::new(verification, der).map_err(|_| UNKNOWN.to_owned())
        };
        let any = parse(&sig::RSA_PKCS1_2048_8192_SHA256)?;
        let whole = any.as_der().map_err(|_| UNKNOWN.to_owned())?;
        let size = PublicEncryptingKey::from_der(whole.as_ref()).map_err(|_| UNKNOWN.to_owned())?;
        check_bits(size.key_size_bits())?;
        let verifiers =
            RSA.iter().map(|(algorithm, parameters)| Ok((*algorithm, Verifier::Public(parse(*parameters)?))));
        Ok(Self { id: None, verifiers: verifiers.collect::<Result<_, String>>()? })
    }

    /// A shared secret.
    ///
    /// # Errors
    /// If it is too short for every algorithm.
    pub(crate) fn secret(bytes: &[u8]) -> Result<Self, String> {
        let fits = SECRETS.iter().filter(|(.., least)| bytes.len() >= *least);
        let verifiers: Vec<_> = fits
            .map(|(algorithm, hash, _)| {
                (*algorithm, Verifier::Secret(Box::new(hmac::Key::new(*hash, bytes))))
            })
            .collect();
        if verifiers.is_empty() {
            return Err(format!("a secret of {} bytes can be guessed; expected at least 32", bytes.len()));
        }
        Ok(Self { id: None, verifiers })
    }

    fn rsa(n: &[u8], e: &[u8]) -> Result<Self, String> {
        // Some issuers write leading zero bytes, against RFC 7518 §6.3.1.1.
        let shortest = |bytes: &[u8]| bytes.iter().copied().skip_while(|b| *b == 0).collect::<Vec<u8>>();
        let (n, e) = (shortest(n), shortest(e));
        let unused = n.first().map_or(0, |first| first.leading_zeros() as usize);
        check_bits((8 * n.len()).saturating_sub(unused))?;
        let components = RsaPublicKeyComponents { n: &n, e: &e };
        let verifiers = RSA.iter().map(|(algorithm, parameters)| {
            let parsed = components.to_parsed_public_key(parameters).map_err(|_| UNKNOWN.to_owned())?;
            Ok((*algorithm, Verifier::Public(parsed)))
        });
        Ok(Self { id: None, verifiers: verifiers.collect::<Result<_, String>>()? })
    }

    fn public(
        algorithm: Algorithm,
        verification: &'static dyn VerificationAlgorithm,
        bytes: &[u8],
    ) -> Result<Self, String> {
        let parsed = ParsedPublicKey::new(verification, bytes).map_err(|_| UNKNOWN.to_owned())?;
        Ok(Self { id: None, verifiers: vec![(algorithm, Verifier::Public(parsed))] })
    }

    /// Whether the key is a secret.
    pub(crate) fn is_secret(&self) -> bool {
        self.verifiers.iter().any(|(_, verifier)| matches!(verifier, Verifier::Secret(_)))
    }

    /// Whether this algorithm can use the key.
    pub(crate) fn fits(&self, algorithm: Algorithm) -> bool {
        self.verifiers.iter().any(|(own, _)| *own == algorithm)
    }

    /// Whether this key made the signature.
    pub(crate) fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match self.verifiers.iter().find(|(own, _)| *own == algorithm) {
            Some((_, Verifier::Public(key))) => key.verify_sig(message, signature).is_ok(),
            Some((_, Verifier::Secret(key))) => hmac::verify(key, message, signature).is_ok(),
            None => false,
        }
    }
}

const UNKNOWN: &str = "it is not a public key of RSA, P-256, P-384, P-521 or Ed25519";

fn check_bits(bits: usize) -> Result<(), String> {
    match bits {
        RSA_BITS..=RSA_MOST_BITS => Ok(()),
        _ => Err(format!("it is an RSA key of {bits} bits; expected {RSA_BITS} to {RSA_MOST_BITS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn jwk(value: Value) -> Result<Option<Key>, String> {
        Key::from_jwk(value.as_object().unwrap())
    }

    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    #[test]
    fn a_key_is_bound_to_its_algorithms() {
        let ec = json!({ "kty": "EC", "crv": "P-256", "x": X, "y": Y, "kid": "a" });
        let key = jwk(ec.clone()).unwrap().unwrap();
        assert_eq!(key.id.as_deref(), Some("a"));
        let fits: Vec<_> = Algorithm::ALL.into_iter().filter(|a| key.fits(*a)).collect();
        assert_eq!(fits, [Algorithm::ES256]);
        let secret = jwk(json!({ "kty": "oct", "k": base64::encode_url(&[7; 48]) })).unwrap().unwrap();
        let fits: Vec<_> = Algorithm::ALL.into_iter().filter(|a| secret.fits(*a)).collect();
        assert_eq!(fits, [Algorithm::HS256, Algorithm::HS384]);
        // `alg` narrows the algorithms; an `alg` of another type leaves none.
        let mut narrowed = ec;
        narrowed["alg"] = json!("ES256");
        assert!(jwk(narrowed.clone()).unwrap().is_some());
        narrowed["alg"] = json!("HS256");
        assert!(jwk(narrowed).is_err());
    }

    #[test]
    fn keys_for_something_else_are_passed_over() {
        for other in [
            json!({ "kty": "EC", "crv": "P-256", "x": X, "y": Y, "use": "enc" }),
            json!({ "kty": "EC", "crv": "P-256", "x": X, "y": Y, "key_ops": ["deriveKey"] }),
            json!({ "kty": "EC", "crv": "secp256k1", "x": X, "y": Y }),
            json!({ "kty": "OKP", "crv": "X25519", "x": X }),
            json!({ "kty": "RSA", "alg": "RSA-OAEP", "n": X, "e": "AQAB" }),
            json!({ "kty": "AKP" }),
            json!({}),
        ] {
            assert!(jwk(other.clone()).unwrap().is_none(), "{other}");
        }
    }

    #[test]
    fn bad_keys() {
        let bits = |n: usize| {
            let mut modulus = vec![0xff; n / 8];
            modulus[0] >>= (8 - n % 8) % 8;
            json!({ "kty": "RSA", "n": base64::encode_url(&modulus), "e": "AQAB" })
        };
        for (bad, why) in [
            (json!({ "kty": "EC", "crv": "P-256", "x": X }), "`y` is missing"),
            (json!({ "kty": "EC", "crv": "P-256", "x": X, "y": X }), "not a public key"),
            (json!({ "kty": "EC", "crv": "P-384", "x": X, "y": Y }), "48 bytes"),
            (json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" }), "not a public key"),
            (json!({ "kty": "oct", "k": "c2hvcnQ" }), "at least 32"),
            (json!({ "kty": "RSA", "n": "", "e": "AQAB" }), "0 bits"),
            (bits(1024), "1024 bits"),
            (bits(16384), "16384 bits"),
        ] {
            let told = jwk(bad.clone()).expect_err("it is bad");
            assert!(told.contains(why), "{bad}: {told}");
        }
        assert!(jwk(bits(2048)).unwrap().is_some());
    }
}
