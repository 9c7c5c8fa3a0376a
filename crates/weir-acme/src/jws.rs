//! An account's key and its signatures: JSON Web Signatures in the form that ACME requires (RFC 8555 §6.2, RFC 7515),
//! with ECDSA on P-256 (`ES256`).

use crate::failure::{Failure, Kind};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use weir_wire::base64::{decode_url, encode_url};

/// The key of an account.
pub(crate) struct AccountKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

/// The signer: the key itself before there is an account, else the account by its URL.
#[derive(Clone, Copy)]
pub(crate) enum Signer<'a> {
    Account(&'a AccountKey, &'a str),
    Key(&'a AccountKey),
}

impl AccountKey {
    pub(crate) fn generate() -> Result<Self, Failure> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let made = made.map_err(|_| Failure::new(Kind::Account, "no key could be made for the account"))?;
        Self::from_pkcs8(made.as_ref())
    }

    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, Failure> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
        let pair =
            pair.map_err(|_| Failure::new(Kind::Storage, "the stored key of the account is not a key"))?;
        Ok(Self { pair, pkcs8: pkcs8.to_vec() })
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The public key (RFC 7517), its members in the order that the thumbprint requires.
    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        // Uncompressed: a 4, then the two coordinates of 32 bytes each (SEC 1 §2.3.3).
        let (x, y) = point.get(1..).unwrap_or_default().split_at_checked(32).unwrap_or_default();
        json!({ "crv": "P-256", "kty": "EC", "x": encode_url(x), "y": encode_url(y) })
    }

    /// The digest that identifies the key (RFC 7638).
    pub(crate) fn thumbprint(&self) -> String {
        encode_url(digest(&SHA256, self.jwk().to_string().as_bytes()).as_ref())
    }

    /// Proves that a token was issued to this account (RFC 8555 §8.1).
    pub(crate) fn authorize(&self, token: &str) -> String {
        format!("{token}.{}", self.thumbprint())
    }
}

impl Signer<'_> {
    /// A signed request with a payload, or without one for a POST-as-GET (RFC 8555 §6.3).
    pub(crate) fn sign(self, url: &str, nonce: &str, payload: Option<&Value>) -> Result<Vec<u8>, Failure> {
        let mut protected = json!({ "alg": "ES256", "nonce": nonce, "url": url });
        let key = match self {
            Self::Account(key, account) => {
                protected["kid"] = account.into();
                key
            }
            Self::Key(key) => {
                protected["jwk"] = key.jwk();
                key
            }
        };
        let signed = signing_input(&protected, payload);
        let signature = key.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature =
            signature.map_err(|_| Failure::new(Kind::Account, "the request could not be signed"))?;
        Ok(flattened(&signed, signature.as_ref()).to_string().into_bytes())
    }

    const fn key(&self) -> &AccountKey {
        match self {
            Self::Account(key, _) | Self::Key(key) => key,
        }
    }

    /// Binds the account to one that the authority already knows (RFC 8555 §7.3.4). `mac` is the key of that account
    /// as the authority issued it: base64 for URLs.
    pub(crate) fn bind(&self, key_id: &str, mac: &str, url: &str) -> Result<Value, Failure> {
        let mac = decode_url(mac.trim_end_matches('=').as_bytes())
            .ok_or_else(|| Failure::new(Kind::Account, "the secret of external_account is not base64url"))?;
        let protected = json!({ "alg": "HS256", "kid": key_id, "url": url });
        let signed = signing_input(&protected, Some(&self.key().jwk()));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &mac), signed.as_bytes());
        Ok(flattened(&signed, signature.as_ref()))
    }
}

fn signing_input(protected: &Value, payload: Option<&Value>) -> String {
    let payload = payload.map(|payload| encode_url(payload.to_string().as_bytes())).unwrap_or_default();
    format!("{}.{payload}", encode_url(protected.to_string().as_bytes()))
}

fn flattened(signed: &str, signature: &[u8]) -> Value {
    let (protected, payload) = signed.split_once('.').unwrap_or_default();
    json!({ "protected": protected, "payload": payload, "signature": encode_url(signature) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    fn member(jws: &Value, name: &str) -> Vec<u8> {
        decode_url(jws[name].as_str().unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn a_request_verifies_by_the_key_in_it() {
        let key = AccountKey::generate().unwrap();
        let body = Signer::Key(&key).sign("https://ca.test/new", "n1", Some(&json!({ "a": 1 }))).unwrap();
        let jws: Value = serde_json::from_slice(&body).unwrap();
        let protected: Value = serde_json::from_slice(&member(&jws, "protected")).unwrap();
        assert_eq!((&protected["nonce"], &protected["url"]), (&json!("n1"), &json!("https://ca.test/new")));
        let coordinate =
            |name: &str| decode_url(protected["jwk"][name].as_str().unwrap().as_bytes()).unwrap();
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let signed = format!("{}.{}", jws["protected"].as_str().unwrap(), jws["payload"].as_str().unwrap());
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        public.verify(signed.as_bytes(), &member(&jws, "signature")).unwrap();
        assert_eq!(member(&jws, "payload"), br#"{"a":1}"#);
    }

    #[test]
    fn a_question_has_an_empty_payload_and_names_the_account() {
        let key = AccountKey::generate().unwrap();
        let body = Signer::Account(&key, "https://ca.test/1").sign("https://ca.test/o", "n", None).unwrap();
        let jws: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(jws["payload"], "");
        let protected: Value = serde_json::from_slice(&member(&jws, "protected")).unwrap();
        assert_eq!((&protected["kid"], &protected["jwk"]), (&json!("https://ca.test/1"), &Value::Null));
    }

    #[test]
    fn a_key_keeps_its_thumbprint() {
        let key = AccountKey::generate().unwrap();
        let again = AccountKey::from_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(key.thumbprint(), again.thumbprint());
        // RFC 7638 §3: the members in lexical order, without spaces.
        assert!(key.jwk().to_string().starts_with(r#"{"crv":"P-256","kty":"EC","x":""#));
        assert!(AccountKey::from_pkcs8(b"no key").is_err());
    }
}
