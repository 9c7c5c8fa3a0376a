//! What expressions come to, as `weir explain` shows it.

use serde::Serialize;
use std::fmt;
use weir_engine::snapshot::Snapshot;
use weir_filter::explained::{Explained, WithExpressions};
use weir_filter::filter::Asked;
use weir_route::Captured;

/// What an expression comes to for this request.
#[derive(Clone, Debug, Serialize)]
pub struct ExpressionShown {
    /// The setting that it stands in, such as `request.set.x-user`.
    pub key: String,
    /// The expression. Left out where the setting may hold a credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    /// Its value: a text in quotes, or in the form of JSON; `absent` for none, `***` for what may be a credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why there is no value: it depends on the caller, the body or the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<&'static str>,
    /// What it read of the request, and which maps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Captured>,
}

/// What the expressions in these texts come to.
pub(super) fn expressions_of(
    snapshot: &Snapshot,
    texts: &[WithExpressions],
    asked: &Asked<'_>,
) -> Vec<ExpressionShown> {
    let Some((vocabulary, secrets)) = &snapshot.vocabulary else { return Vec::new() };
    let all = texts.iter().flat_map(|text| {
        let shown = |one: Explained| ExpressionShown {
            key: text.key.clone(),
            expression: one.source,
            unknown: one.value.as_ref().err().copied(),
            value: one.value.ok(),
            reads: one.reads.into_iter().map(|(name, value)| Captured { name, value }).collect(),
        };
        text.explain(asked, vocabulary, secrets).into_iter().map(shown)
    });
    all.collect()
}

impl fmt::Display for ExpressionShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        match &self.expression {
            Some(source) => write!(f, "{{= {source} }}")?,
            None => write!(f, "the expression")?,
        }
        match (&self.value, self.unknown) {
            (Some(value), _) => write!(f, " is {value}")?,
            (None, unknown) => write!(f, " {}", unknown.unwrap_or_default())?,
        }
        self.reads.iter().try_for_each(|one| write!(f, "; {} is {}", one.name, one.value))
    }
}
