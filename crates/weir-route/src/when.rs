//! `match.when`: a condition that is written as an expression.

use weir_expr::{Condition, Mistake, Schema, Var};

use super::pattern::{Case, Pattern};
use super::request::{Headers, Request};
use super::variables::{self, HEADERS, REQUEST, Seen, Vocabulary};

/// A compiled `match.when`.
#[derive(Clone, Debug)]
pub struct When {
    source: Box<str>,
    condition: Condition,
    vocabulary: Vocabulary,
}

impl When {
    /// Compiles `source` for the route with this path; if its path is malformed, any capture may be named.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn compile(source: &str, path: &str, vocabulary: &Vocabulary) -> Result<Self, Vec<Mistake>> {
        let pattern = Pattern::parse(path, Case::Sensitive).ok();
        let captures = pattern.as_ref().map(Pattern::capture_names);
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

    /// Whether it holds for a request whose path `pattern` matches.
    #[inline]
    pub(super) fn holds<H: Headers>(&self, request: &Request<'_, H>, pattern: &Pattern) -> bool {
        let captured = Some((pattern, request.path));
        self.condition.holds(&Seen { request, captured, vocabulary: &self.vocabulary })
    }

    /// What it reads of this request: names and values as text, each once.
    pub(super) fn came_to<H: Headers>(
        &self,
        request: &Request<'_, H>,
        pattern: &Pattern,
    ) -> Vec<(String, String)> {
        let captured = Some((pattern, request.path));
        let seen = Seen { request, captured, vocabulary: &self.vocabulary };
        variables::all_came_to(&seen, &self.vocabulary, self.condition.reads())
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
