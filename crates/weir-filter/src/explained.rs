//! What expressions come to for a made-up request, for `weir explain`.

use crate::filter::Asked;
use crate::view::{Known, Later, View, is_made_up};
use weir_expr::template::{Piece, pieces, whole};
use weir_expr::{Expression, Type, Value, literals};
use weir_route::variables::{
    HIDDEN, REQUEST_BODY, RESPONSE, RESPONSE_BODY_READ, Secrets, Vocabulary, all_came_to, shown,
};

/// A setting that holds expressions, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithExpressions {
    /// Its key within the settings around it, such as `request.set.x-user`.
    pub key: String,
    /// Its value.
    pub text: String,
    /// Whether all of it is an expression, without `= ` before it: a condition.
    pub is_condition: bool,
    /// Whether everybody who may ask may see the value.
    pub is_public: bool,
}

/// What one expression comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The expression, if it may be shown.
    pub source: Option<String>,
    /// Its value as people read it, or on what that depends.
    pub value: Result<String, &'static str>,
    /// What it read, and what the maps in it read: names and values.
    pub reads: Vec<(String, String)>,
}

impl WithExpressions {
    /// What its expressions come to, in their order. Nothing that may be a credential is in it.
    pub fn explain(&self, asked: &Asked<'_>, vocabulary: &Vocabulary, secrets: &Secrets) -> Vec<Explained> {
        let sources: Vec<&str> = match whole(&self.text) {
            Some((source, _)) => vec![source],
            None if self.is_condition => vec![&self.text],
            None => {
                let expression =
                    |piece| if let Piece::Expression(source, _) = piece { Some(source) } else { None };
                pieces(&self.text).unwrap_or_default().into_iter().filter_map(expression).collect()
            }
        };
        sources.iter().filter_map(|source| self.one(source, asked, vocabulary, secrets)).collect()
    }

    fn one(
        &self,
        source: &str,
        asked: &Asked<'_>,
        vocabulary: &Vocabulary,
        secrets: &Secrets,
    ) -> Option<Explained> {
        // Any captures, and the last phase: the check has compared them.
        let expression = Expression::compile(source, &vocabulary.schema(None), RESPONSE_BODY_READ).ok()?;
        let read: Vec<_> = vocabulary.maps.sources(expression.reads()).collect();
        let unknown = if expression.phase() >= RESPONSE {
            Some("is not known before the response")
        } else if read.iter().any(|read| read.var == REQUEST_BODY) {
            Some("depends on the request's body")
        } else if !read.iter().all(is_made_up) {
            Some("depends on the caller")
        } else {
            None
        };
        let known = Known::made_up(asked);
        let (value, reads) = View::with((Some(asked.head), Later::NONE), known, vocabulary, |view| {
            if let Some(unknown) = unknown {
                return (Err(unknown), Vec::new());
            }
            let value = expression.value(view);
            // Of what is true or false, or a number, nothing can be guessed back.
            let is_plain = matches!(expression.ty(), Type::Bool | Type::Int | Type::Uint);
            let mut all = vocabulary.maps.with_sources(expression.reads());
            let is_secret = !is_plain && all.any(|read| secrets.holds(view, &vocabulary.maps, &read))
                || !self.is_public && has_literal(&value, source);
            let value = if is_secret { HIDDEN.to_owned() } else { shown(&value) };
            (Ok(value), all_came_to(view, vocabulary, expression.reads(), secrets))
        });
        let source = self.is_public.then(|| source.trim().to_owned());
        Some(Explained { source, value, reads })
    }
}

/// Whether a value has a text of the expression in it, which the setting keeps from some who may ask.
fn has_literal(value: &Value<'_>, source: &str) -> bool {
    /// A shorter text is no credential.
    const LEAST: usize = 3;
    let mut text = Vec::new();
    value.write(&mut text);
    let long = literals(source).into_iter().filter(|literal| literal.len() >= LEAST);
    long.into_iter().any(|literal| text.windows(literal.len()).any(|part| part == literal))
}
