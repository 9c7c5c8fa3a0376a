//! `version`: which language a config is written in.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Unexpected, Visitor};

use crate::de;

/// The version of the config's language. Keys may be added, and deprecated ones removed, within a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfigVersion {
    /// The only one so far.
    #[default]
    One,
}

/// Continues "`3` is not …".
const EXPECTED: &str = "a version of the config that this Weir reads; expected 1";

impl<'de> Deserialize<'de> for ConfigVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VersionVisitor;

        impl Visitor<'_> for VersionVisitor {
            type Value = ConfigVersion;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_i64<E: serde::de::Error>(self, version: i64) -> Result<ConfigVersion, E> {
                match version {
                    1 => Ok(ConfigVersion::One),
                    2.. => Err(de::refuse(EXPECTED, Some("a config of a later version needs a newer Weir"))),
                    _ => Err(E::invalid_value(Unexpected::Signed(version), &self)),
                }
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ConfigVersion, E> {
                let hint = matches!(text, "1" | "v1").then_some("write version: 1");
                Err(de::refuse(EXPECTED, hint))
            }
        }

        deserializer.deserialize_any(VersionVisitor)
    }
}

impl JsonSchema for ConfigVersion {
    fn schema_name() -> Cow<'static, str> {
        "ConfigVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "The version of the config's language.",
            "type": "integer",
            "enum": [1],
        })
    }
}
