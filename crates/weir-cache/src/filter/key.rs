//! The identity of an object: the route, the URL that the client requested, a trusted proxy's report of it, and the
//! additions of the config.
//!
//! ```text
//! route \0 https://example.com/path?query \0 extra \0 extra …
//! ```
//! No part can contain a zero byte, so two requests with the same key ask for the same object. A field outside the
//! key cannot change which object an answer becomes.

use super::caller::{add_caller, add_forwarded};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use weir_filter::filter::{Cx, RequestHead};
use weir_filter::template::{Template, Values};
use weir_h1::FieldName;
use weir_wire::hex;

/// An addition to keys, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    /// The caller, if a filter before this one verified it.
    Caller,
    /// A field of the request.
    Header(FieldName),
    /// Nothing: all callers share the same answers.
    Shared,
    /// A text with placeholders and expressions, as written.
    Text(String),
}

/// The additions to the keys of a cache.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) written: Vec<Extra>,
    /// The texts among them, in their order.
    pub(super) texts: Vec<Template>,
}

impl Extra {
    pub(super) fn is_header(&self, name: &str) -> bool {
        matches!(self, Self::Header(known) if known.as_str().eq_ignore_ascii_case(name))
    }
}

impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        match (text.as_str(), text.strip_prefix("header:")) {
            ("caller" | "consumer", _) => Ok(Self::Caller),
            ("shared", _) => Ok(Self::Shared),
            (_, Some(name)) => {
                FieldName::new(name.trim()).map(Self::Header).map_err(serde::de::Error::custom)
            }
            _ if text.starts_with("= ") || text.contains('{') => Ok(Self::Text(text)),
            _ => Err(serde::de::Error::custom(format!(
                "`{text}` cannot be part of a key; expected caller, shared, header:NAME, or an expression after `= `"
            ))),
        }
    }
}

impl Serialize for Extra {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Caller => s.serialize_str("caller"),
            Self::Shared => s.serialize_str("shared"),
            Self::Header(name) => s.collect_str(&format_args!("header:{name}")),
            Self::Text(text) => s.serialize_str(text),
        }
    }
}

impl schemars::JsonSchema for Extra {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CacheKeyPart".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": r"^(caller|consumer|shared|header:.+|.*\{.+\}.*|= .+)$",
            "examples": ["caller", "header:accept-language", "= maps.tenants"]
        })
    }
}

/// Longest text that is part of a key as it is; of longer ones it is the SHA-256.
const TEXT_BYTES: usize = 128;

/// A key, and where its URL ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    bytes: Box<[u8]>,
    stem: usize,
}

impl Key {
    /// The part that all objects of one URL on one route share.
    pub(super) fn stem(&self) -> &[u8] {
        self.bytes.get(..self.stem).unwrap_or_default()
    }

    /// The additions of the config; empty for most caches.
    pub(super) fn extra(&self) -> &[u8] {
        self.bytes.get(self.stem..).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[cfg(test)]
    pub(super) fn test(stem: &str, extra: &str) -> Self {
        Self { bytes: [stem, extra].concat().into_bytes().into(), stem: stem.len() }
    }
}

/// A cache's position in the config, as part of keys: its section, unless that is the route, which is in every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(Option<Box<[u8]>>);

impl Place {
    /// The position of a filter in this scope: `filters`, `plans.NAME`, `routes.NAME`, whose name is in the key anyway,
    /// or `routes.NAME.upstream.ARM`.
    pub(super) fn of(scope: &str) -> Self {
        let is_of_route = scope.starts_with("routes.") && !scope.contains(".upstream.");
        Self((!is_of_route).then(|| scope.as_bytes().into()))
    }

    /// Adds the position, the number of caches that this request passed before, and the number of passed filters that
    /// turn requests away. A cache therefore never serves an object that another one stored in the same store behind
    /// such a filter, nor its own objects from before the filters were reordered.
    fn add(&self, cx: &Cx, key: &mut Vec<u8>) {
        if let Some(scope) = &self.0 {
            add(b"l", scope, key);
        }
        for (kind, number) in [(b"n", usize::from(cx.asks_cache())), (b"g", cx.caller().gates())] {
            if number > 0 {
                add(kind, itoa::Buffer::new().format(number).as_bytes(), key);
            }
        }
    }
}

/// The key of a request. Made once for each cache that the request meets.
pub(super) fn of(head: &RequestHead, cx: &Cx, (place, extras): (&Place, &Extras)) -> Key {
    let (path, query) = (head.routed_path(), head.query());
    let mut key = Vec::with_capacity(cx.route().len() + path.len() + query.map_or(0, <[u8]>::len) + 64);
    key.extend_from_slice(cx.route().as_bytes());
    key.push(0);
    write_origin(head.asked_authority(), cx.tls, &mut key);
    key.extend_from_slice(path);
    if let Some(query) = query {
        key.push(b'?');
        key.extend_from_slice(query);
    }
    let stem = key.len();
    place.add(cx, &mut key);
    // Changes by an earlier filter determine the upstream's answer.
    if head.path() != path {
        add(b"p", head.path(), &mut key);
    }
    if head.authority() != head.asked_authority() {
        add(b"a", head.authority(), &mut key);
    }
    add_forwarded(head, |kind, value| add(kind, value, &mut key));
    let mut texts = extras.texts.iter();
    for extra in &extras.written {
        match extra {
            Extra::Caller => {
                key.push(0);
                add_caller(cx, |kind, value| add(kind, value, &mut key));
            }
            Extra::Header(name) => {
                key.push(0);
                for value in head.headers.get_all(name.as_str()) {
                    add(b"h", value, &mut key);
                }
            }
            // Objects stored for everyone are not found after `shared` is removed from the config.
            Extra::Shared => add(b"s", b"", &mut key),
            Extra::Text(_) => {
                key.push(0);
                let text = texts.next().map(|text| text.apart(&Values::of(head, cx))).unwrap_or_default();
                // A value may have zero bytes, and be as long as a head.
                if text.len() <= TEXT_BYTES && !text.contains(&0) {
                    add(b"t", &text, &mut key);
                } else {
                    add(b"T", hex::encode(&Sha256::digest(&text)).as_bytes(), &mut key);
                }
            }
        }
    }
    Key { bytes: key.into(), stem }
}

/// Scheme and authority in lower case, without the scheme's default port.
fn write_origin(authority: &[u8], tls: bool, key: &mut Vec<u8>) {
    let (scheme, port): (&[u8], &[u8]) = if tls { (b"https://", b":443") } else { (b"http://", b":80") };
    key.extend_from_slice(scheme);
    let authority = authority.strip_suffix(port).unwrap_or(authority);
    key.extend(authority.iter().map(u8::to_ascii_lowercase));
}

fn add(kind: &[u8], value: &[u8], key: &mut Vec<u8>) {
    key.push(0);
    key.extend_from_slice(kind);
    key.extend_from_slice(value);
}

/// The URL of a stem.
pub(super) fn url(stem: &[u8]) -> &[u8] {
    stem.split(|&b| b == 0).nth(1).unwrap_or_default()
}

/// The stem of another URL on the same route and host, from `Location` or `Content-Location` (RFC 9111 §4.4). `None`
/// for another host, or without a path.
pub(super) fn stem_of_reference(stem: &[u8], reference: &[u8]) -> Option<Vec<u8>> {
    let url = url(stem);
    let path_at = url.iter().enumerate().filter(|(_, b)| **b == b'/').nth(2).map(|(at, _)| at)?;
    let (origin, path) = url.split_at_checked(path_at)?;
    let reference = reference.trim_ascii();
    let reference = reference.split(|&b| b == b'#').next().unwrap_or_default();
    let target = if reference.starts_with(b"//") {
        return None; // another authority, or another spelling of the same: too rare to handle
    } else if reference.starts_with(b"/") {
        reference.to_vec()
    } else if reference.get(..origin.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(origin)) {
        reference.get(origin.len()..).filter(|rest| rest.starts_with(b"/"))?.to_vec()
    } else if reference.is_empty() || reference.contains(&b':') {
        return None;
    } else {
        let folder = path.split(|&b| b == b'?').next().unwrap_or_default();
        let end = folder.iter().rposition(|&b| b == b'/')?;
        [folder.get(..=end)?, reference].concat()
    };
    let route = stem.split(|&b| b == 0).next()?;
    let (target, query) = match target.iter().position(|&b| b == b'?') {
        Some(at) => (target.get(..at)?, target.get(at..)?),
        None => (&target[..], &b""[..]),
    };
    let mut canonical = Vec::new();
    weir_filter::route::canonical(target, weir_filter::route::Slashes::Keep, &mut canonical).ok()?;
    let target = if canonical.is_empty() { target } else { &canonical };
    Some([route, b"\0", origin, target, query].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_filter::testing::{PASS, Stand, request_head};

    #[tokio::test]
    async fn what_a_key_holds() {
        let running = Stand::new(&PASS, json!({})).build();
        let route = Place::of("routes.r");
        let extras = [Extra::Header(FieldName::new("x-env").unwrap()), Extra::Shared];
        // The request, the path and authority that a filter gave it, and the key after the route's name.
        for (request, path, authority, extras, expected) in [
            ("GET /x", None, None, &extras[..0], "\0http://example.com/x"),
            ("GET /x?y=1\nhost: A.Example:80", None, None, &[], "\0http://a.example/x?y=1"),
            ("GET /x\nhost: a:8080", None, None, &[], "\0http://a:8080/x"),
            ("GET /x", Some("/y"), None, &[], "\0http://example.com/x\0p/y"),
            ("GET /x", None, Some("b"), &[], "\0http://example.com/x\0ab"),
            ("GET /x\nx-env: blue", None, None, &extras, "\0http://example.com/x\0\0hblue\0s"),
            ("GET /x\nx-env: a\nx-env: b", None, None, &extras, "\0http://example.com/x\0\0ha\0hb\0s"),
        ] {
            let mut exchange = running.request(request).await;
            let head = &mut exchange.head;
            path.iter().for_each(|path: &&str| head.set_path(path.as_bytes()).unwrap());
            authority.iter().for_each(|name: &&str| head.set_authority(name.as_bytes()).unwrap());
            let extras = Extras { written: extras.to_vec(), texts: Vec::new() };
            let key = of(head, &exchange.cx, (&route, &extras));
            let key = String::from_utf8(key.bytes.into()).unwrap();
            assert_eq!(key.strip_prefix(exchange.cx.route()), Some(expected), "{request}");
        }
    }

    /// Two caches that one request meets have different keys, even with nothing between them. So does one in another
    /// position, or behind a filter that turns requests away.
    #[tokio::test]
    async fn where_a_cache_stands() {
        let cx = || async { Stand::new(&PASS, json!({})).build().request("GET /").await.cx };
        let key = |cx: &Cx, scope: &str| {
            let key = of(&request_head("GET /a"), cx, (&Place::of(scope), &Extras::default()));
            (key.stem().to_vec(), key.extra().to_vec())
        };
        let one = cx().await;
        let mut keys = vec![key(&one, "routes.test"), key(&one, "routes.test"), key(&one, "routes.test")];
        assert!(keys[0].1.is_empty(), "the usual place adds nothing");
        for scope in ["filters", "plans.a", "plans.b"] {
            keys.push(key(&cx().await, scope));
        }
        let guarded = cx().await;
        guarded.restricts();
        keys.push(key(&guarded, "routes.test"));
        let stem = keys[0].0.clone();
        assert!(keys.iter().all(|(known, _)| *known == stem), "a purge finds all of them");
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn references() {
        let stem = b"r\0http://a.example/x/y?z=1";
        assert_eq!(url(stem), b"http://a.example/x/y?z=1");
        for (reference, expected) in [
            ("/n", Some("r\0http://a.example/n")),
            ("n", Some("r\0http://a.example/x/n")),
            ("n?q=/a", Some("r\0http://a.example/x/n?q=/a")),
            ("../n#f", Some("r\0http://a.example/n")),
            ("HTTP://A.example/n", Some("r\0http://a.example/n")),
            ("http://a.example.evil/n", None),
            ("http://b.example/n", None),
            ("//a.example/n", None),
            ("", None),
        ] {
            let found = stem_of_reference(stem, reference.as_bytes());
            assert_eq!(found.map(|s| String::from_utf8(s).unwrap()).as_deref(), expected, "{reference}");
        }
    }
}
