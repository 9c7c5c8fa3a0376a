//! `match.when`: a condition that is written as an expression.

use weir_expr::{Condition, Mistake, Schema, Var};

use super::parameters::Parameters;
use super::request::{Headers, Request};
use super::variables::{self, HEADERS, REQUEST, Secrets, Seen, Vocabulary};

/// A compiled `match.when`.
#[derive(Clone, Debug)]
pub struct When {
    source: Box<str>,
    condition: Condition,
    vocabulary: Vocabulary,
}

impl When {
    /// Compiles `source` for a route that captures these names; without them any name may stand there.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn compile(
        source: &str,
        captures: Option<&[String]>,
        vocabulary: &Vocabulary,
    ) -> Result<Self, Vec<Mistake>> {
        let captures: Option<Vec<&str>> = captures.map(|names| names.iter().map(String::as_str).collect());
        let schema = schema(vocabulary, captures.as_deref());
        let condition = Condition::compile(source, &schema, REQUEST)?;
        Ok(Self { source: source.into(), condition, vocabulary: vocabulary.clone() })
    }

    #[cfg(test)]
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The value, if it is the same for every request.
    pub fn constant(&self) -> Option<bool> {
        self.condition.constant()
    }

    /// The names of the header fields that it reads, also through maps, in lower case; `*` for one that is computed.
    pub fn header_fields(&self) -> impl Iterator<Item = String> {
        let reads = self.vocabulary.maps.sources(self.condition.reads());
        reads.filter(|read| read.var == HEADERS).map(|read| read.key.unwrap_or_else(|| "*".to_owned()))
    }

    /// Whether it holds for a request, whose route captures `parameters`.
    #[inline]
    pub(super) fn holds<H: Headers>(&self, request: &Request<'_, H>, parameters: Parameters<'_>) -> bool {
        let parameters = Some(parameters);
        self.condition.holds(&Seen { request, parameters, vocabulary: &self.vocabulary })
    }

    /// What it reads of this request: names and values as text, each once, without `secrets`.
    pub(super) fn came_to<H: Headers>(
        &self,
        request: &Request<'_, H>,
        parameters: Parameters<'_>,
        secrets: &Secrets,
    ) -> Vec<(String, String)> {
        let seen = Seen { request, parameters: Some(parameters), vocabulary: &self.vocabulary };
        variables::all_came_to(&seen, &self.vocabulary, self.condition.reads(), secrets)
    }

    /// As [`Condition::texts`].
    pub(super) fn texts(&self) -> impl Iterator<Item = (Var, &[u8], &[u8])> {
        self.condition.texts()
    }

    /// Whether no request meets both.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        self.condition.excludes(&other.condition)
    }
}

/// What `match.when` may name: filters do not know the client's port.
fn schema(vocabulary: &Vocabulary, captures: Option<&[&str]>) -> Schema {
    vocabulary.schema(captures).with(variables::client_port())
}

/// Equal if they were written alike.
impl PartialEq for When {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for When {}
