//! Checks a token's claims, and turns a claim into a header.

use super::super::prelude::*;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// A token's claims.
pub(crate) type Claims = Map<String, Value>;

/// The required content of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Requirement {
    /// The claim equals one of these.
    OneOf(Vec<Value>),
    /// The claim contains each of these: as an item of a list, or as a word of a text with spaces, as in `scope` (RFC
    /// 8693 §4.2).
    Contains(Vec<Value>),
}

/// Why a token is not valid at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untimely {
    /// A time is not a number.
    Malformed,
    /// The token has no expiry.
    Endless,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    Early,
}

/// A claim by name. A name that no claim has is read as a path with dots between its steps: `realm_access.roles`.
pub(crate) fn claim<'c>(claims: &'c Claims, name: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let mut steps = name.split('.');
    let first = claims.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

/// Identifies the holder of a token by a hash of its claims. Claims that differ between two tokens of one holder, its
/// times and its id (RFC 7519 §4.1.4 to §4.1.7), are left out, unless the upstream gets them.
pub(super) fn holder(claims: &Claims, is_told: impl Fn(&str) -> bool) -> [u8; 32] {
    const OF_ONE_TOKEN: [&str; 4] = ["exp", "iat", "jti", "nbf"];
    let mut hash = Sha256::new();
    let counts = |name: &str| !OF_ONE_TOKEN.contains(&name) || is_told(name);
    for (name, value) in claims.iter().filter(|(name, _)| counts(name)) {
        let value = value.to_string();
        for part in [name, &value] {
            hash.update(part.len().to_le_bytes()); // different lists of parts give different bytes
            hash.update(part.as_bytes());
        }
    }
    hash.finalize().into()
}

/// Checks `exp` and `nbf` (RFC 7519 §4.1.4 and §4.1.5); returns the second in which the token expires, leeway
/// included.
pub(super) fn check_time(
    claims: &Claims,
    now: u64,
    leeway: u64,
    endless: bool,
) -> Result<Option<u64>, Untimely> {
    let until = match time(claims, "exp")? {
        None if endless => None,
        None => return Err(Untimely::Endless),
        Some(exp) => Some(exp.saturating_add(leeway)),
    };
    if until.is_some_and(|until| now >= until) {
        return Err(Untimely::Expired);
    }
    match time(claims, "nbf")? {
        Some(nbf) if nbf > now.saturating_add(leeway) => Err(Untimely::Early),
        _ => Ok(until),
    }
}

/// A NumericDate: seconds since 1970, which some issuers write with fractions.
fn time(claims: &Claims, name: &str) -> Result<Option<u64>, Untimely> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    if let Some(seconds) = value.as_u64() {
        return Ok(Some(seconds));
    }
    match value.as_f64() {
        // Times before 1970 have passed; casting a float saturates at the largest number.
        Some(seconds) if seconds.is_finite() => Ok(Some(seconds.max(0.0) as u64)),
        _ => Err(Untimely::Malformed),
    }
}

/// Whether `iss` is one of these (§4.1.1).
pub(super) fn is_issued_by(claims: &Claims, issuers: &[String]) -> bool {
    let issuer = claims.get("iss").and_then(Value::as_str);
    issuer.is_some_and(|issuer| issuers.iter().any(|known| known == issuer))
}

/// Whether `aud`, a text or a list of them, has one of these (§4.1.3).
pub(super) fn is_meant_for(claims: &Claims, audiences: &[String]) -> bool {
    let known =
        |value: &Value| value.as_str().is_some_and(|text| audiences.iter().any(|known| known == text));
    match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().any(known),
        Some(one) => known(one),
        None => false,
    }
}

/// A claim as a field value: a text unchanged, a number or boolean in JSON form, a list separated by commas. `None`
/// for anything else, or if an item of a list contains a comma and would be read as two.
pub(crate) fn as_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(yes) => Some(yes.to_string().into()),
        Value::Array(all) => {
            let item = |one| as_text(one).filter(|text| !text.contains(','));
            let texts: Option<Vec<Cow<'_, str>>> = all.iter().map(item).collect();
            Some(texts?.join(",").into())
        }
        Value::Null | Value::Object(_) => None,
    }
}

// === impl Requirement ===

impl Requirement {
    pub(super) fn is_met_by(&self, name: &str, claim: Option<&Value>) -> bool {
        let Some(claim) = claim else { return false };
        match self {
            // `scope` is always a list of words, so `scope: read` asks for the word.
            Self::OneOf(values) if name == "scope" => values.iter().any(|value| contains(claim, value)),
            Self::OneOf(values) => values.iter().any(|value| same(claim, value)),
            Self::Contains(values) => values.iter().all(|value| contains(claim, value)),
        }
    }

    fn read(value: Value) -> Option<Self> {
        let scalar = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
        let several = |value: Value| match value {
            Value::Array(all) if !all.is_empty() && all.iter().all(scalar) => Some(all),
            one if scalar(&one) => Some(vec![one]),
            _ => None,
        };
        match value {
            Value::Object(mut map) if map.len() == 1 => several(map.remove("contains")?).map(Self::Contains),
            value => several(value).map(Self::OneOf),
        }
    }
}

/// Whether two scalars are equal; `1` equals `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}

fn contains(claim: &Value, wanted: &Value) -> bool {
    match (claim, wanted) {
        (Value::Array(all), wanted) => all.iter().any(|one| same(one, wanted)),
        (Value::String(words), Value::String(word)) => words.split(' ').any(|one| one == word),
        (claim, wanted) => same(claim, wanted),
    }
}

const EXPECTED: &str = "not a requirement; expected a value, a list of alternatives, or { contains: VALUE }";

impl<'de> Deserialize<'de> for Requirement {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::read(value).ok_or_else(|| serde::de::Error::custom(format_args!("is {EXPECTED}")))
    }
}

impl Serialize for Requirement {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::OneOf(values) if values.len() == 1 => values[0].serialize(serializer),
            Self::OneOf(values) => values.serialize(serializer),
            Self::Contains(values) => serializer.collect_map([("contains", values)]),
        }
    }
}

impl JsonSchema for Requirement {
    fn schema_name() -> Cow<'static, str> {
        "ClaimRequirement".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let scalar = serde_json::json!({ "type": ["string", "number", "boolean"] });
        let several =
            serde_json::json!({ "anyOf": [scalar, { "type": "array", "items": scalar, "minItems": 1 }] });
        schemars::json_schema!({
            "description": "A value, a list of alternatives, or { contains: VALUE }.",
            "anyOf": [
                several,
                { "type": "object", "properties": { "contains": several }, "required": ["contains"], "additionalProperties": false }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claims(value: Value) -> Claims {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn times() {
        let check = |value: Value| check_time(&claims(value), 100, 10, false);
        for (value, expected) in [
            (json!({ "exp": 101 }), Ok(Some(111))),
            (json!({ "exp": 91 }), Ok(Some(101))),
            (json!({ "exp": 90 }), Err(Untimely::Expired)),
            (json!({ "exp": 90.9 }), Err(Untimely::Expired)),
            (json!({ "exp": 1e300 }), Ok(Some(u64::MAX))),
            (json!({ "exp": -1 }), Err(Untimely::Expired)),
            (json!({ "exp": "101" }), Err(Untimely::Malformed)),
            (json!({ "exp": null }), Err(Untimely::Malformed)),
            (json!({}), Err(Untimely::Endless)),
            (json!({ "exp": 200, "nbf": 110 }), Ok(Some(210))),
            (json!({ "exp": 200, "nbf": 111 }), Err(Untimely::Early)),
            (json!({ "exp": 200, "nbf": "1" }), Err(Untimely::Malformed)),
        ] {
            assert_eq!(check(value.clone()), expected, "{value}");
        }
        assert_eq!(check_time(&claims(json!({})), 100, 10, true), Ok(None));
    }

    #[test]
    fn who_and_for_whom() {
        let known = ["a".to_owned(), "b".to_owned()];
        for (value, good) in
            [(json!("a"), true), (json!("c"), false), (json!(["a"]), false), (json!(null), false)]
        {
            assert_eq!(is_issued_by(&claims(json!({ "iss": value })), &known), good);
        }
        for (value, good) in [
            (json!("a"), true),
            (json!(["c", "b"]), true),
            (json!([]), false),
            (json!("ab"), false),
            (json!(1), false),
        ] {
            assert_eq!(is_meant_for(&claims(json!({ "aud": value })), &known), good);
        }
        assert!(!is_issued_by(&Claims::new(), &known) && !is_meant_for(&Claims::new(), &known));
    }

    #[test]
    fn requirements() {
        let met = |requirement: Value, name: &str, claim: Value| {
            let requirement: Requirement = serde_json::from_value(requirement).unwrap();
            requirement.is_met_by(name, Some(&claim))
        };
        for (requirement, name, claim, expected) in [
            (json!("admin"), "role", json!("admin"), true),
            (json!("admin"), "role", json!("admin user"), false),
            (json!("admin"), "role", json!(["admin"]), false),
            (json!(1), "level", json!(1.0), true),
            (json!(true), "email_verified", json!("true"), false),
            (json!(["a", "b"]), "role", json!("b"), true),
            (json!(["a", "b"]), "role", json!("c"), false),
            (json!({ "contains": "a" }), "roles", json!(["b", "a"]), true),
            (json!({ "contains": ["a", "b"] }), "roles", json!(["a", "b", "c"]), true),
            (json!({ "contains": ["a", "d"] }), "roles", json!(["a", "b", "c"]), false),
            (json!({ "contains": "read" }), "permissions", json!("write read"), true),
            (json!({ "contains": "read" }), "permissions", json!("readonly"), false),
            (json!("read"), "scope", json!("read write"), true),
            (json!("read"), "scope", json!("readonly"), false),
        ] {
            assert_eq!(met(requirement.clone(), name, claim.clone()), expected, "{requirement} {claim}");
        }
        let absent: Requirement = serde_json::from_value(json!("x")).unwrap();
        assert!(!absent.is_met_by("x", None));
        for bad in
            [json!(null), json!([]), json!([[]]), json!({}), json!({ "contains": {} }), json!({ "has": 1 })]
        {
            assert!(serde_json::from_value::<Requirement>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_and_texts() {
        let all = claims(json!({
            "https://a.example/role": "x", "a": { "b": { "c": [1, "two", true] } }, "n": null, "l": ["x,y"], "m": [{}], "o": {}
        }));
        let text = |name: &str| claim(&all, name).and_then(as_text).map(Cow::into_owned);
        assert_eq!(text("https://a.example/role").as_deref(), Some("x"));
        assert_eq!(text("a.b.c").as_deref(), Some("1,two,true"));
        for none in ["a.b.d", "a.b", "n", "l", "m", "o", "a.b.c.d", ""] {
            assert_eq!(text(none), None, "{none}");
        }
    }
}
