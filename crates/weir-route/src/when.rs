//! `match.when`: a condition that is written as an expression.

use weir_expr::{Condition, Mistake, Schema, Type, Variable};

use super::pattern::{Case, Pattern};
use super::request::{Headers, Request};
use super::variables::{self, Bounds, CLIENT_PORT, HEADERS, REQUEST, Seen};

/// A compiled `match.when`.
#[derive(Clone, Debug)]
pub struct When {
    source: Box<str>,
    condition: Condition,
    bounds: Bounds,
}

impl When {
    /// Compiles `source` for the route with this path; if its path is malformed, any capture may be named.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn compile(source: &str, path: &str, bounds: Bounds) -> Result<Self, Vec<Mistake>> {
        let pattern = Pattern::parse(path, Case::Sensitive).ok();
        let captures = pattern.as_ref().map(Pattern::capture_names);
        let schema = schema(bounds, captures.as_deref());
        let condition = Condition::compile(source, &schema, REQUEST)?;
        Ok(Self { source: source.into(), condition, bounds })
    }

    #[cfg(test)]
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The value, if it is the same for every request.
    pub fn constant(&self) -> Option<bool> {
        self.condition.constant()
    }

    /// The names of the header fields that it reads, in lower case.
    pub fn header_fields(&self) -> impl Iterator<Item = &str> {
        let reads = self.condition.reads().iter().filter(|read| read.var == HEADERS);
        reads.filter_map(|read| read.key.as_deref())
    }

    /// Whether it holds for a request whose path `pattern` matches.
    #[inline]
    pub(super) fn holds<H: Headers>(&self, request: &Request<'_, H>, pattern: &Pattern) -> bool {
        let captured = Some((pattern, request.path));
        self.condition.holds(&Seen { request, captured, fields: self.bounds.fields })
    }

    /// What it reads of this request: names and values as text, each once.
    pub(super) fn came_to<H: Headers>(
        &self,
        request: &Request<'_, H>,
        pattern: &Pattern,
    ) -> Vec<(String, String)> {
        let schema = schema(self.bounds, None);
        let seen = Seen { request, captured: Some((pattern, request.path)), fields: self.bounds.fields };
        let mut came = Vec::new();
        for read in self.condition.reads() {
            let one = variables::came_to(&seen, &schema, read);
            came.extend(one.filter(|one| !came.contains(one)));
        }
        came
    }

    /// Whether no request meets both.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        self.condition.excludes(&other.condition)
    }
}

/// What `match.when` may name: filters do not know the client's port.
fn schema(bounds: Bounds, captures: Option<&[&str]>) -> Schema {
    let port = Variable::new("client.port", CLIENT_PORT, REQUEST, Type::Int).optional();
    variables::schema(bounds, captures).with(port)
}

/// Equal if they were written alike.
impl PartialEq for When {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for When {}
