//! `match.not`, and lists of paths.

use std::borrow::Cow;
use std::fmt;

use compact_str::CompactString;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::route::Case;
use super::values::{Network, Pairs};
use crate::de;

/// What a route does not match: one block, or a list of which none may match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exclusions {
    /// The blocks.
    pub all: Box<[Exclusion]>,
    /// Whether they were written as a list.
    pub is_list: bool,
}

/// Requests that a route does not match, although they meet the rest of its `match`: those that meet all of this.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Exclusion {
    /// Host names, as in `match`. Default: any host.
    #[schemars(with = "Vec<String>")]
    pub hosts: Box<[CompactString]>,
    /// One path or several, as in `match`, of which one has to match. Default: any path.
    pub path: Option<Paths>,
    /// How the letters of `path` are compared, as in `match`.
    pub case: Case,
    /// Methods. Default: any method.
    pub methods: Box<[String]>,
    /// Header fields, as in `match`. A repeated field matches no literal and no regular expression, so it is not
    /// excluded by them; `"*"` excludes it. Default: none.
    pub headers: Pairs,
    /// Query parameters, as in `match`. The same is true of a repeated one. Default: none.
    pub query: Pairs,
    /// Cookies, as in `match`. The same is true of a repeated one. Default: none.
    pub cookies: Pairs,
    /// Networks of clients, as in `match`. Default: any client.
    pub clients: Box<[Network]>,
    /// Names of listeners. Default: any listener.
    pub listeners: Box<[String]>,
}

/// Paths, at least one, each in the forms of `match.path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    first: CompactString,
    /// Those after the first; `None` if one path was written, and no list.
    more: Option<Box<[CompactString]>>,
}

// === impl Exclusions ===

impl Exclusions {
    /// The place of a block in `match`.
    pub fn place(&self, at: usize) -> String {
        if self.is_list { format!("not[{at}]") } else { "not".to_owned() }
    }
}

impl<'de> Deserialize<'de> for Exclusions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match de::TextOrMap::<Box<[Exclusion]>, Exclusion>::deserialize(deserializer)? {
            de::TextOrMap::Map(one) => Self { all: [one].into(), is_list: false },
            de::TextOrMap::Text(all) => Self { all, is_list: true },
        })
    }
}

impl JsonSchema for Exclusions {
    fn schema_name() -> Cow<'static, str> {
        "Exclusions".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Exclusion>();
        schemars::json_schema!({
            "description": "What is not matched: one block, or a list of which none may match.",
            "anyOf": [one, { "type": "array", "minItems": 1, "items": one }],
        })
    }
}

// === impl Paths ===

impl Paths {
    /// A single path.
    pub const fn one(path: CompactString) -> Self {
        Self { first: path, more: None }
    }

    /// The paths as written.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(&self.first).chain(self.more.iter().flatten()).map(CompactString::as_str)
    }

    /// Whether they were written as a list.
    pub const fn is_list(&self) -> bool {
        self.more.is_some()
    }

    /// The path, if there is only one.
    pub fn only(&self) -> Option<&str> {
        self.more.as_ref().is_none_or(|more| more.is_empty()).then_some(&*self.first)
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, path) in self.iter().enumerate() {
            write!(f, "{}{path}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathsVisitor;

        impl<'de> Visitor<'de> for PathsVisitor {
            type Value = Paths;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path such as /api/*, or a list of paths")
            }

            fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<Paths, E> {
                Ok(Paths::one(path.into()))
            }

            // A number is no path, which the checks say in their words.
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Paths, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Paths, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Paths, E> {
                self.visit_str(if value { "true" } else { "false" })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Paths, A::Error> {
                let Some(first) = seq.next_element()? else {
                    let hint = "leave `path` out to match any";
                    return Err(de::refuse("a path or a list of at least one path", Some(hint)));
                };
                let mut more = Vec::new();
                while let Some(path) = seq.next_element()? {
                    more.push(path);
                }
                Ok(Paths { first, more: Some(more.into()) })
            }
        }

        deserializer.deserialize_any(PathsVisitor)
    }
}

impl JsonSchema for Paths {
    fn schema_name() -> Cow<'static, str> {
        "Paths".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "A path, or a list of paths.",
            "anyOf": [{ "type": "string" }, { "type": "array", "minItems": 1, "items": { "type": "string" } }],
        })
    }
}
