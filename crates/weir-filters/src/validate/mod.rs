//! `validate`: checks requests by a JSON Schema.
//!
//! The crate weir-schema knows what fits. `settings` reads the config, `verdict` is what follows when something does
//! not fit: a problem for the client, a count, a line in the log. Here messages are taken apart.

mod settings;
#[cfg(test)]
mod tests;
mod verdict;

use super::prelude::*;
use super::shared::json_body::{Coded, Unread, coding, decoded, is_json, media_type, refuse_charset};
use settings::{Mode, ValidateSettings};
use std::sync::Arc;
use verdict::{Counts, Found, Names, Verdict};
use weir_filter::error::BODY_TOO_LARGE;
use weir_h1::{BodyKind, Fields, Method};
use weir_schema::json::{self, Limits};
use weir_schema::{Fault, Part, Schema};

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<ValidateSettings>("validate").with_causes(&[&BODY_TOO_LARGE, &MEDIA, &REFUSED]);

causes! {
    REFUSED "validate_refused" 400
        "The request does not fit its schema." "the client's request, as the answer says; the file that `schema` of the filter validate names; `mode: report` lets it pass"
    MEDIA "validate_media_type" 415
        "The body has a media type or content coding that the filter validate cannot check." "the client's Content-Type and Content-Encoding: JSON, plain or with gzip"
}

struct Validate {
    rules: Rules,
    mode: Mode,
    /// Longest body, received and decoded.
    body: usize,
    depth: usize,
    /// Where the filter stands, for the log.
    place: String,
    counts: Arc<Counts>,
    names: Names,
}

/// What messages are checked by.
enum Rules {
    Schema(Schema),
}

/// How a body is checked.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// As JSON, by one of the schemas.
    Json { coded: Coded, required: bool },
}

/// What is known of an exchange whose request has a body.
#[derive(Default)]
enum State {
    #[default]
    New,
    Planned(Found<Plan>),
    /// With `report`: the body so far.
    Watched(Plan, Vec<u8>),
    Done,
}

impl Filter for Validate {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::REQUEST_BODY
    }

    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        let plan = self.plan(head);
        let body = match (self.mode, &plan) {
            (_, Err(_)) => BodyUse::Pass, // refused before it comes
            (Mode::Enforce, Ok(_)) => BodyUse::Whole(self.body),
            (Mode::Report, Ok(_)) => BodyUse::Watch,
        };
        *cx.state() = State::Planned(plan);
        body
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if head.body() == BodyKind::Empty {
            let found = self.plan(head).and_then(|plan| self.check(plan, b""));
            return self.decide(found, cx);
        }
        let State::Planned(found) = std::mem::take(cx.state()) else { return Flow::Continue };
        let found = match (found, self.mode) {
            (Ok(plan), Mode::Enforce) => self.check(plan, cx.whole()),
            (Ok(plan), Mode::Report) => {
                *cx.state() = State::Watched(plan, Vec::new());
                return Flow::Continue;
            }
            (Err(verdict), _) => Err(verdict),
        };
        self.decide(found, cx)
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let State::Watched(plan, body) = cx.state() else { return Ok(()) };
        if body.len() + piece.data().len() > self.body {
            *cx.state() = State::Done;
            self.counts.note(&Verdict::size(self.body), &self.place, self.mode, cx);
            return Ok(());
        }
        body.extend_from_slice(piece.data());
        if piece.is_last() {
            let (plan, body) = (*plan, std::mem::take(body));
            *cx.state() = State::Done;
            if let Err(verdict) = self.check(plan, &body) {
                self.counts.note(&verdict, &self.place, self.mode, cx);
            }
        }
        Ok(())
    }

    fn readings(&self) -> Vec<Reading> {
        self.counts.readings()
    }
}

impl Validate {
    /// What to do with the body of a request, by its head.
    fn plan(&self, head: &RequestHead) -> Found<Plan> {
        let Rules::Schema(_) = &self.rules;
        let required = matches!(head.method(), Method::Patch | Method::Post | Method::Put);
        if head.body() == BodyKind::Empty {
            return Ok(Plan::Json { coded: Coded::No, required });
        }
        let coded = json_of(&head.headers)?;
        Ok(Plan::Json { coded, required })
    }

    /// Checks a body.
    fn check(&self, plan: Plan, body: &[u8]) -> Found<()> {
        let Plan::Json { coded, required } = plan;
        let Rules::Schema(schema) = &self.rules;
        if body.is_empty() {
            let missing = || Verdict::body(vec![Fault::new(Part::Body, "is missing")]);
            return if required { Err(missing()) } else { Ok(()) };
        }
        let body = decoded(coded, body, self.body).map_err(|e| self.unread(&e))?;
        // A value takes two bytes at least, so the length bounds their number.
        let limits = Limits { depth: self.depth, values: self.body };
        let document = json::parse(&body, limits)
            .map_err(|e| Verdict::body(vec![Fault::new(Part::Body, format!("is not taken as JSON: {e}"))]))?;
        if schema.fits(&document.value) { Ok(()) } else { Err(Verdict::body(schema.faults(&document))) }
    }

    fn unread(&self, why: &Unread) -> Box<Verdict> {
        match why {
            Unread::TooLong => Verdict::size(self.body),
            Unread::Undecodable => {
                Verdict::body(vec![Fault::new(Part::Body, "is not one gzip stream, or something follows it")])
            }
            other => unread(other),
        }
    }

    fn decide(&self, found: Found<()>, cx: &mut Cx) -> Flow {
        let Err(verdict) = found else { return Flow::Continue };
        self.counts.note(&verdict, &self.place, self.mode, cx);
        if self.mode == Mode::Report {
            return Flow::Continue;
        }
        cx.answer_because(verdict.cause);
        Flow::Answer(verdict.answer(&self.names))
    }
}

/// The content coding of a message that has to be JSON.
fn json_of(fields: &Fields) -> Found<Coded> {
    let media = media_type(fields).map_err(|e| unread(&e))?;
    if !is_json(media) {
        return Err(Verdict::media(
            Part::Header,
            "expected JSON: application/json, or a type that ends in +json",
        ));
    }
    refuse_charset(media).map_err(|e| unread(&e))?;
    coding(fields).map_err(|e| unread(&e))
}

fn unread(why: &Unread) -> Box<Verdict> {
    match why {
        Unread::Media(expected) => Verdict::media(Part::Header, expected),
        _ => Verdict::media(Part::Header, "expected no Content-Encoding, or gzip"),
    }
}
