//! Conditions of filters: expressions over the request and its caller.

use crate::filter::{Asked, Build, Cx, Mistake, RequestHead, Written};
use crate::view::{Known, Later, Reading, View, is_made_up};
use weir_config::schema::Expression;
use weir_h1::FieldName;
use weir_route::variables::{BODY, Vocabulary};

/// A compiled condition.
#[derive(Debug)]
pub struct Condition {
    source: Box<str>,
    compiled: weir_expr::Condition,
    vocabulary: Vocabulary,
    reading: Reading,
}

impl Condition {
    /// Compiles the expression under the key `field` of a filter's settings, and reports its mistakes.
    pub fn compile(written: &Expression, field: &str, build: &mut Build<'_>) -> Option<Self> {
        let captures: Option<Vec<&str>> =
            build.captures.map(|names| names.iter().map(String::as_str).collect());
        let schema = build.vocabulary.schema(captures.as_deref());
        let compiled = weir_expr::Condition::compile(&written.0, &schema, BODY);
        let is_sound = compiled.is_ok();
        build.expressions.push(Written { field: field.to_owned(), is_sound, in_text: false });
        match compiled {
            Ok(compiled) => {
                let warning = match compiled.constant() {
                    None => None,
                    Some(true) => Some("every request meets this condition"),
                    Some(false) => Some("no request meets this condition"),
                };
                if let Some(warning) = warning {
                    build.warn(field, "constant-condition", warning, None);
                }
                let vocabulary = build.vocabulary.clone();
                let reading = Reading::of(&vocabulary, compiled.reads());
                if reading.reads_body() {
                    build.reads_body.set(true);
                }
                Some(Self { source: written.0.clone(), compiled, vocabulary, reading })
            }
            Err(mistakes) => {
                build.mistakes.extend(mistakes.into_iter().map(|mistake| Mistake {
                    field: field.to_owned(),
                    message: mistake.message.into(),
                    hint: mistake.hint.map(Into::into),
                    offset: Some(mistake.range.start),
                }));
                None
            }
        }
    }

    /// Whether it holds, for a filter that refuses all others. If it does and tells callers apart, notes what it read as
    /// an identity that the filter `by` verified, so that no cache gives one caller's answer to another.
    pub fn admits(&self, by: &'static str, head: &RequestHead, cx: &Cx) -> bool {
        View::with((Some(head), Later::default()), Known::of(Some(head), cx), &self.vocabulary, |view| {
            let holds = self.compiled.holds(view);
            if holds && self.reading.identifies {
                cx.identify(by, &self.reading.who(view));
            }
            holds
        })
    }

    /// Whether it holds, for a filter that lets requests pass either way and treats them differently. Notes the same,
    /// and of all else that is not in the URL the outcome, whatever it is.
    pub fn chooses(&self, by: &'static str, head: &RequestHead, cx: &Cx) -> bool {
        View::with((Some(head), Later::default()), Known::of(Some(head), cx), &self.vocabulary, |view| {
            let holds = self.compiled.holds(view);
            self.reading.note(by, view, cx, &self.source, &[u8::from(holds)]);
            holds
        })
    }

    /// Whether it holds for a made-up request; `None` if that depends on the caller.
    pub fn holds_for(&self, asked: &Asked<'_>) -> Option<bool> {
        let is_known = self.compiled.constant().is_some() || self.reading.reads().iter().all(is_made_up);
        is_known.then(|| {
            View::with(
                (Some(asked.head), Later::default()),
                Known::made_up(asked),
                &self.vocabulary,
                |view| self.compiled.holds(view),
            )
        })
    }

    /// The header fields that it reads, for [`Filter::guards`](crate::filter::Filter::guards).
    pub fn guarded(&self) -> Vec<FieldName> {
        self.reading.guarded().collect()
    }
}
