//! The registrations of kratos and sponge: JSON with an address per protocol of an instance.
//!
//! `{"id": …, "name": "orders", "version": "v1", "metadata": {"weight": "10"},
//!  "endpoints": ["http://10.0.0.7:8000?isSecure=false", "grpc://…"]}`

use crate::{Choice, Found, Instance, VALUE_BYTES, place, short, weight};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most addresses that we read per instance.
const ENDPOINTS: usize = 32;

/// A registration. Go writes an empty list or map as null.
#[derive(Deserialize)]
struct Registered {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    endpoints: Option<Vec<String>>,
}

/// Parses an instance of the service `name`, registered at `since`; the error says why it is unusable.
pub(crate) fn read(value: &[u8], name: &str, since: u64, choice: &Choice) -> Result<Found, String> {
    if value.len() > VALUE_BYTES {
        return Err(format!("its description is longer than {VALUE_BYTES} bytes"));
    }
    let read: Registered = serde_json::from_slice(value)
        .map_err(|_| "it is not described by the JSON that kratos and sponge write".to_owned())?;
    if let Some(other) = read.name.as_deref().filter(|other| *other != name) {
        return Err(format!("it is an instance of `{}`", short(other)));
    }
    let version = read.version.unwrap_or_default();
    if choice.version.as_ref().is_some_and(|wanted| *wanted != version) {
        return Err(format!("it is version `{}`", short(&version)));
    }
    let endpoints = read.endpoints.unwrap_or_default();
    let (host, port) = endpoint(endpoints.iter().map(String::as_str), choice)?;
    let metadata = read.metadata.unwrap_or_default();
    let instance = Instance {
        id: short(&read.id.unwrap_or_default()),
        version: short(&version),
        host,
        port,
        weight: 1,
        zone: metadata.get("zone").filter(|zone| !zone.is_empty()).map(|zone| short(zone)),
        priority: 0,
    };
    Ok(Found { instance, weight: metadata.get("weight").and_then(|text| weight(text)), since })
}

/// The first address that matches `choice`.
pub(crate) fn endpoint<'a>(
    all: impl Iterator<Item = &'a str> + Clone,
    choice: &Choice,
) -> Result<(String, u16), String> {
    for text in all.clone().take(ENDPOINTS) {
        let Some((scheme, rest)) = text.split_once("://") else { continue };
        let (at, query) = rest.split_once('?').unwrap_or((rest, ""));
        let base = scheme.strip_suffix('s').unwrap_or(scheme);
        // kratos marks TLS in two ways, by scheme and by parameter. Either is enough.
        let secure = base.len() != scheme.len() || query.split('&').any(|part| part == "isSecure=true");
        if base == choice.scheme && secure == choice.tls {
            return place(at.split('/').next().unwrap_or_default());
        }
    }
    let listed: Vec<&str> = all.take(4).collect();
    let tls = if choice.tls { "with" } else { "without" };
    Err(match listed.as_slice() {
        [] => "it lists no address".to_owned(),
        listed => {
            format!("it has no address for {} {tls} TLS, but {}", choice.scheme, short(&listed.join(", ")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::grpc;

    const BOTH: &str = r#"{"id":"i-1","name":"orders","version":"v2","metadata":{"weight":"30","zone":"a"},
        "endpoints":["http://10.0.0.7:8000?isSecure=false","grpc://10.0.0.7:9000?isSecure=false"]}"#;

    fn at(value: &str, choice: &Choice) -> Result<String, String> {
        read(value.as_bytes(), "orders", 1, choice)
            .map(|f| format!("{}:{}", f.instance.host, f.instance.port))
    }

    #[test]
    fn an_instance_has_an_address_for_each_protocol() {
        let found = read(BOTH.as_bytes(), "orders", 1, &grpc()).unwrap();
        assert_eq!(
            (found.instance.port, found.weight, found.instance.zone.as_deref()),
            (9000, Some(30), Some("a"))
        );
        assert_eq!((&*found.instance.id, &*found.instance.version), ("i-1", "v2"));
        let http = Choice { scheme: "http".to_owned(), ..Choice::default() };
        assert_eq!(at(BOTH, &http), Ok("10.0.0.7:8000".to_owned()));
    }

    #[test]
    fn an_address_for_tls_is_not_one_without() {
        let secure = |choice: &Choice, text: &str| at(&format!(r#"{{"endpoints":["{text}"]}}"#), choice);
        let tls = Choice { tls: true, ..grpc() };
        for text in ["grpc://h:1?isSecure=true", "grpcs://h:1", "grpcs://h:1?isSecure=true"] {
            assert_eq!(secure(&tls, text), Ok("h:1".to_owned()), "{text}");
            assert_eq!(
                secure(&grpc(), text),
                Err(format!("it has no address for grpc without TLS, but {text}")),
                "{text}"
            );
        }
        for text in ["grpc://h:1", "grpc://h:1?isSecure=false"] {
            assert_eq!(secure(&grpc(), text), Ok("h:1".to_owned()), "{text}");
            assert!(secure(&tls, text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let v1 = Choice { version: Some("v1".to_owned()), ..grpc() };
        for (value, choice, why) in [
            ("10.0.0.7:80", grpc(), "it is not described by the JSON that kratos and sponge write"),
            (BOTH, v1, "it is version `v2`"),
            (r#"{"name":"orders2"}"#, grpc(), "it is an instance of `orders2`"),
            (r#"{"endpoints":null,"metadata":null}"#, grpc(), "it lists no address"),
            (
                r#"{"endpoints":["grpc://0.0.0.0:9000"]}"#,
                grpc(),
                "`0.0.0.0:9000` is not a reachable address: the instance must register one that others can reach",
            ),
            (r#"{"endpoints":["grpc://h"]}"#, grpc(), "`h` is not a host and port"),
        ] {
            assert_eq!(at(value, &choice), Err(why.to_owned()), "{value}");
        }
        let long = |bytes: usize| format!("{{\"id\":\"{}\"}}", "x".repeat(bytes - r#"{"id":""}"#.len()));
        assert_eq!(at(&long(VALUE_BYTES), &grpc()), Err("it lists no address".to_owned()));
        assert_eq!(
            at(&long(VALUE_BYTES + 1), &grpc()),
            Err("its description is longer than 65536 bytes".to_owned())
        );
    }
}
