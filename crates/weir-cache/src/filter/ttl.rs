//! `ttl` and `ignore`: lifetimes that the config gives to answers, and which fields of an answer it does not believe.

use super::freshness::{ByStatus, Ignored};
use crate::prelude::*;
use schemars::{Schema, SchemaGenerator};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The setting `ttl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ttl {
    /// For answers that report success.
    One(Duration),
    /// By status, by class (`2xx`), or `any`.
    ByStatus(BTreeMap<String, Duration>),
}

/// A field of an answer that the cache does not believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ignore {
    /// `Cache-Control`, also where it says `private` or `no-store`.
    CacheControl,
    /// `Expires`.
    Expires,
    /// `Set-Cookie`: the answer is kept without it.
    SetCookie,
    /// `Vary`.
    Vary,
}

// === impl Ttl ===

const EXPECTED: &str = "a duration such as 30s, or durations by status such as { 200: 7d, any: 1m }";

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TtlVisitor;

        impl<'de> Visitor<'de> for TtlVisitor {
            type Value = Ttl;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Ttl, E> {
                Duration::deserialize(StrDeserializer::new(text)).map(Ttl::One)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ttl, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Ttl::ByStatus)
            }
        }

        deserializer.deserialize_any(TtlVisitor)
    }
}

impl Serialize for Ttl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(ttl) => ttl.serialize(serializer),
            Self::ByStatus(map) => map.serialize(serializer),
        }
    }
}

impl JsonSchema for Ttl {
    fn schema_name() -> Cow<'static, str> {
        "CacheTtl".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let duration = generator.subschema_for::<Duration>();
        schemars::json_schema!({
            "anyOf": [
                duration.clone(),
                {
                    "type": "object",
                    "propertyNames": { "pattern": "^([2-5][0-9][0-9]|[2-5]xx|any)$" },
                    "additionalProperties": duration,
                },
            ],
        })
    }
}

impl Ttl {
    /// The lifetimes by status, if it has some. Reports statuses whose answers are never kept.
    pub(super) fn by_status(&self, build: &mut Build<'_>) -> Option<ByStatus> {
        let Self::ByStatus(map) = self else { return None };
        let mut by_status = ByStatus::default();
        if map.is_empty() {
            build.refuse("ttl", "names no status", Some("write { 200: 7d }, or leave it out".into()));
        }
        for (key, time) in map {
            let field = format!("ttl.{key}");
            let time = time.get();
            let class = key.strip_suffix("xx").and_then(|digit| digit.parse::<usize>().ok());
            let class = class.and_then(|digit| by_status.classes.get_mut(digit.checked_sub(2)?));
            match (key.parse::<u16>(), class) {
                (_, Some(class)) => *class = Some(time),
                (Ok(206 | 304 | 416), _) => {
                    build.refuse(&field, "is the status of answers that are never kept", None);
                }
                (Ok(status), _) if (200..600).contains(&status) => {
                    _ = by_status.statuses.insert(status, time)
                }
                _ if key == "any" => by_status.any = Some(time),
                _ => {
                    let hint = "write a status such as 200, a class such as 4xx, or any";
                    build.refuse(&field, format!("`{key}` is no status"), Some(hint.into()));
                }
            }
        }
        Some(by_status)
    }
}

// === impl Ignore ===

impl Ignore {
    /// What `ignore` names. Warns of what each field has protected until now.
    pub(super) fn ignored(ignore: &[Self], keeps_cookies: bool, build: &mut Build<'_>) -> Ignored {
        let mut ignored = Ignored::default();
        for (at, what) in ignore.iter().enumerate() {
            let field = format!("ignore[{at}]");
            if ignore.get(..at).is_some_and(|before| before.contains(what)) {
                build.refuse(&field, "is listed twice", Some("write it once".into()));
            }
            let risk = match what {
                Self::CacheControl => {
                    ignored.control = true;
                    "an answer that says `private` or `no-store` is kept, and other clients get it"
                }
                Self::Expires => {
                    ignored.expires = true;
                    continue;
                }
                Self::SetCookie if keeps_cookies => continue, // `set_cookie: keep` says it already
                Self::SetCookie => {
                    "an answer that sets a cookie is kept without it, and what was written for one session goes to all"
                }
                Self::Vary => {
                    ignored.vary = true;
                    "an answer for one language, cookie or origin goes to clients with another"
                }
            };
            let hint = "do so only where the upstream answers all clients alike, or write what it answers by in `key`";
            build.warn(&field, "cache-made-public", risk, Some(hint.into()));
        }
        ignored
    }
}

#[cfg(test)]
mod tests {
    use super::super::KIND;
    use serde_json::{Value, json};
    use weir_filter::testing::Stand;

    fn mistakes(settings: Value) -> Vec<String> {
        Stand::new(&KIND, settings).memory("pages", 1 << 24).mistakes()
    }

    #[test]
    fn mistakes_of_ttl() {
        for (settings, told) in [
            (json!({ "store": "pages", "ttl": {} }), "ttl: names no status"),
            (
                json!({ "store": "pages", "ttl": { "206": "1s" } }),
                "ttl.206: is the status of answers that are never",
            ),
            (json!({ "store": "pages", "ttl": { "600": "1s" } }), "`600` is no status"),
            (json!({ "store": "pages", "ttl": { "1xx": "1s" } }), "`1xx` is no status"),
            (json!({ "store": "pages", "ttl": { "all": "1s" } }), "`all` is no status"),
            (json!({ "store": "pages", "ttl": { "200": "1" } }), "ttl"),
            (json!({ "store": "pages", "ttl": [] }), "a duration such as 30s, or durations by status"),
            (
                json!({ "store": "pages", "ttl": { "404": "1s" }, "negative": "1s" }),
                "beside a `ttl` by status",
            ),
            (json!({ "store": "pages", "ignore": ["vary", "vary"] }), "is listed twice"),
            (json!({ "store": "pages", "ignore": ["age"] }), "ignore"),
        ] {
            let found = mistakes(settings.clone());
            assert!(found.len() == 1 && found[0].contains(told), "{settings}: {found:?}");
        }
    }
}
