//! weir-filters' parsers of tokens and structured fields, compiled from their own files, so that they stay free of
//! keys and sockets. A token has one spelling and one interpretation; a structured field has one form.

#![allow(dead_code)] // settings and keys use the rest

#[path = "../../crates/weir-identity/src/shared/jose/algorithm.rs"]
mod algorithm;
#[path = "../../crates/weir-wire/src/base64.rs"]
mod base64;
#[path = "../../crates/weir-identity/src/shared/jose/json.rs"]
mod json;
#[path = "../../crates/weir-identity/src/shared/jose/token.rs"]
mod jws;
#[path = "../../crates/weir-filter/src/sfv.rs"]
pub(crate) mod sfv;

use serde_json::Value;

/// A compact token: its parts encode to the same bytes again, and any other JSON parser reads the same header and
/// claims.
pub fn token(data: &[u8]) {
    let Ok(token) = jws::parse(data) else { return };
    let again = [token.signed, b".", base64::encode_url(&token.signature).as_bytes()].concat();
    assert_eq!(again, data, "one spelling");

    let header = token.signed.split(|&b| b == b'.').next().unwrap_or_default();
    let header: Value =
        serde_json::from_slice(&base64::decode_url(header).expect("it was decoded")).expect("it was read");
    let named = header["alg"].as_str().and_then(algorithm::Algorithm::of);
    assert_eq!(named, Some(token.algorithm));
    assert_eq!(header["kid"].as_str(), token.key_id.as_deref());
    for refused in ["crit", "jku", "jwk", "x5c", "x5u"] {
        assert!(header.get(refused).is_none(), "{refused}");
    }
    assert_ne!(header["b64"], Value::Bool(false));

    if let Some(claims) = token.claims() {
        let payload = token.payload().expect("it was read");
        assert_eq!(serde_json::from_slice::<Value>(&payload).ok(), Some(Value::Object(claims)));
    }
}

/// A dictionary survives parsing, writing and parsing.
pub fn structured_field(data: &[u8]) {
    let Some(members) = sfv::dictionary(data) else { return };
    let mut text = String::new();
    for (name, member) in &members {
        text.push_str(if text.is_empty() { "" } else { ", " });
        text.push_str(name);
        text.push('=');
        match member {
            sfv::Member::Item(item) => sfv::write_item(item, &mut text),
            sfv::Member::List(items, parameters) => sfv::write_list(items, parameters, &mut text),
        }
    }
    assert_eq!(sfv::dictionary(text.as_bytes()), Some(members), "{text}");
}
