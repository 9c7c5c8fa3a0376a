//! Takes a compact token apart (RFC 7515 §7.1), and refuses tokens that try to decide how they are verified. Bytes
//! in, bytes out: this module handles no keys.

use super::algorithm::Algorithm;
use super::base64;
use super::json;

/// Longest token, in bytes.
pub(crate) const TOKEN_BYTES: usize = 16 * 1024;

/// A well-formed token. Trust nothing in it before its signature is verified.
#[derive(Debug)]
pub(crate) struct Token<'a> {
    /// The algorithm that the token names.
    pub(crate) algorithm: Algorithm,
    /// The key that the token names.
    pub(crate) key_id: Option<String>,
    /// Its `typ`.
    pub(crate) media_type: Option<String>,
    /// What is signed: the header, a dot and the payload, as sent.
    pub(crate) signed: &'a [u8],
    /// The signature.
    pub(crate) signature: Vec<u8>,
    payload: &'a [u8],
}

/// Why a token cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// `alg` is unknown; `none` counts as unknown.
    Algorithm,
    /// The header brings or names its own key, or asks for an unsupported extension (`crit`, `b64`).
    Header,
    /// Not three parts of base64url with a JSON object in the first, or too long.
    Malformed,
}

/// Parameters that contain a key or a URL of one (RFC 7515 §4.1.2 to 4.1.6). Only keys of the config are used, so a
/// token that brings another is an attack or a mistake. `x5t` and `kid` only name a key.
const KEYS: [&str; 4] = ["jku", "jwk", "x5c", "x5u"];

/// Parses a compact token.
pub(crate) fn parse(bytes: &[u8]) -> Result<Token<'_>, Refused> {
    if bytes.len() > TOKEN_BYTES {
        return Err(Refused::Malformed);
    }
    let mut dots = bytes.iter().enumerate().filter(|(_, b)| **b == b'.').map(|(at, _)| at);
    let (Some(first), Some(second), None) = (dots.next(), dots.next(), dots.next()) else {
        return Err(Refused::Malformed);
    };
    let part = |from, to| bytes.get(from..to).ok_or(Refused::Malformed);
    let header = base64::decode_url(part(0, first)?).and_then(|header| json::object(&header));
    let header = header.ok_or(Refused::Malformed)?;
    let text = |name: &str| match header.get(name) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(Refused::Malformed),
    };
    // We support no extension, so every `crit` names an unsupported one (§4.1.11). RFC 7797 requires `crit` with
    // `b64: false`; without `crit` it is just as bad.
    let own = header.contains_key("crit") || header.get("b64").is_some_and(|b64| b64 != true);
    if own || KEYS.iter().any(|name| header.contains_key(*name)) {
        return Err(Refused::Header);
    }
    let algorithm = text("alg")?.ok_or(Refused::Malformed)?;
    let algorithm = Algorithm::of(algorithm).ok_or(Refused::Algorithm)?;
    let signature = base64::decode_url(part(second + 1, bytes.len())?).ok_or(Refused::Malformed)?;
    if signature.is_empty() {
        return Err(Refused::Malformed);
    }
    Ok(Token {
        algorithm,
        key_id: text("kid")?.map(str::to_owned),
        media_type: text("typ")?.map(str::to_owned),
        signed: part(0, second)?,
        signature,
        payload: part(first + 1, second)?,
    })
}

impl Token<'_> {
    /// The decoded payload; `None` if it is not base64url.
    pub(crate) fn payload(&self) -> Option<Vec<u8>> {
        base64::decode_url(self.payload)
    }

    /// The claims of a JWT; `None` if the payload is not a JSON object, or repeats a claim.
    pub(crate) fn claims(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        json::object(&self.payload()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(header: &str) -> Result<(), Refused> {
        let text = format!("{}.e30.AAAA", base64::encode_url(header.as_bytes()));
        parse(text.as_bytes()).map(|_| ())
    }

    #[test]
    fn headers() {
        for (header, expected) in [
            (r#"{"alg":"ES256"}"#, Ok(())),
            (r#"{"alg":"ES256","typ":"JWT","kid":"a","x5t":"b","b64":true,"other":{"a":[1]}}"#, Ok(())),
            (r#"{"alg":"none"}"#, Err(Refused::Algorithm)),
            (r#"{"alg":"es256"}"#, Err(Refused::Algorithm)),
            (r#"{"alg":"dir","enc":"A128GCM"}"#, Err(Refused::Algorithm)),
            (r#"{"alg":"ES256","crit":["exp"],"exp":1}"#, Err(Refused::Header)),
            (r#"{"alg":"ES256","crit":[]}"#, Err(Refused::Header)),
            (r#"{"alg":"ES256","b64":false}"#, Err(Refused::Header)),
            (r#"{"alg":"ES256","jwk":{}}"#, Err(Refused::Header)),
            (r#"{"alg":"ES256","jku":"https://a/"}"#, Err(Refused::Header)),
            (r#"{"alg":"ES256","x5u":"https://a/"}"#, Err(Refused::Header)),
            (r#"{"alg":"ES256","x5c":[]}"#, Err(Refused::Header)),
            (r#"{"alg":"ES256","alg":"ES256"}"#, Err(Refused::Malformed)),
            (r#"{"alg":["ES256"]}"#, Err(Refused::Malformed)),
            (r#"{"alg":"ES256","kid":1}"#, Err(Refused::Malformed)),
            (r#"{"typ":"JWT"}"#, Err(Refused::Malformed)),
            ("[]", Err(Refused::Malformed)),
            ("", Err(Refused::Malformed)),
        ] {
            assert_eq!(with_header(header), expected, "{header}");
        }
    }

    #[test]
    fn shapes() {
        let header = base64::encode_url(br#"{"alg":"ES256"}"#);
        for rest in [
            "",
            ".",
            "..",
            ".e30",
            ".e30.",
            ".e30.A",
            ".e30.AA==",
            ".e30.AAAA.",
            ".e30.AAAA.e30",
            ".e30.AA A",
        ] {
            let text = format!("{header}{rest}");
            assert_eq!(parse(text.as_bytes()).map(|_| ()), Err(Refused::Malformed), "{text}");
        }
        let long = format!("{header}.{}.AAAA", "A".repeat(TOKEN_BYTES));
        assert!(parse(long.as_bytes()).is_err());
        // The payload is decoded only on demand, because the signature covers its digits.
        for (payload, claims) in
            [("e30", true), ("", false), ("W10", false), ("e3=", false), ("eyJhIjoxLCJhIjoyfQ", false)]
        {
            let text = format!("{header}.{payload}.AAAA");
            let token = parse(text.as_bytes()).unwrap();
            assert_eq!(token.signed, format!("{header}.{payload}").as_bytes());
            assert_eq!(token.claims().is_some(), claims, "{payload}");
        }
    }
}
