//! What the API answers, where the answer is a type of no other crate. `openapi` describes these types.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use weir_gateway::config::{Diagnostic, Diagnostics};
use weir_gateway::history::diff::Differences;
use weir_gateway::{Consequences, EndpointStatus, Touched};

/// The result of a change.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changed<'a> {
    pub(crate) revision: &'a str,
    pub(crate) hash: &'a str,
    pub(crate) number: Option<u64>,
    pub(crate) dry_run: bool,
    #[serde(flatten)]
    pub(crate) differences: &'a Differences,
    pub(crate) touched: Touched,
    /// Why it runs from memory only, where it could not be written down.
    pub(crate) unsaved: Option<&'a str>,
    #[serde(flatten)]
    pub(crate) consequences: &'a Consequences,
    #[serde(flatten)]
    pub(crate) checked: Checked<'a>,
}

/// Mistakes and warnings.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Checked<'a> {
    errors: usize,
    warnings: usize,
    diagnostics: Vec<&'a Diagnostic>,
    pub(crate) text: String,
}

impl<'a> Checked<'a> {
    pub(crate) fn of(found: &'a Diagnostics) -> Self {
        let (errors, warnings) = (found.errors(), found.warnings());
        Self { errors, warnings, diagnostics: found.sorted(), text: found.to_text() }
    }
}

/// What differs between two configs.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Differences")]
pub(crate) struct Compared {
    #[serde(flatten)]
    pub(crate) differences: Differences,
    pub(crate) text: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Config {
    pub(crate) hash: String,
    #[schemars(with = "Map<String, Value>")]
    pub(crate) config: Value,
    /// Where each named thing stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Map<String, Value>>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Confirmed {
    pub(crate) number: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Endpoints {
    pub(crate) upstream: String,
    pub(crate) endpoints: Vec<EndpointStatus>,
}

/// The managed file.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Managed {
    pub(crate) path: String,
    pub(crate) text: String,
    /// How many secrets are masked.
    pub(crate) hidden: usize,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Purged {
    pub(crate) store: String,
    pub(crate) purged: usize,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Turned {
    pub(crate) switch: String,
    pub(crate) on: bool,
    pub(crate) until: Option<String>,
}
