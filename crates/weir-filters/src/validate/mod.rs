//! `validate`: checks requests, and answers if asked to, by a JSON Schema or an OpenAPI document.
//!
//! The crate weir-schema knows what fits. `settings` reads the config, `plan` finds out what a message has to be,
//! `verdict` is what follows when it is not: a problem for the client, a count, a line in the log. Here messages are
//! taken apart.

mod plan;
mod settings;
#[cfg(test)]
mod tests;
mod verdict;

use super::prelude::*;
use plan::{Plan, Rules};
use settings::{Mode, ValidateSettings};
use std::sync::Arc;
use verdict::{Counts, Found, Names, Verdict};
use weir_filter::coding::{Coding, ranked};
use weir_filter::error::BODY_TOO_LARGE;
use weir_filter::json_body::{Unread, decoded};
use weir_h1::BodyKind;
use weir_schema::json::{self, Limits};
use weir_schema::{Fault, Part};

pub(super) static KIND: FilterKind = FilterKind::made_from::<ValidateSettings>("validate").with_causes(&[
    &ANSWER,
    &BODY_TOO_LARGE,
    &MEDIA,
    &NO_METHOD,
    &NO_PATH,
    &REFUSED,
]);

causes! {
    ANSWER "validate_answer" 502
        "The upstream's answer does not fit the OpenAPI document." "the service, or the document that `openapi` of the filter validate names; `mode: report` lets it pass",
        nature: Nature::Failure
    MEDIA "validate_media_type" 415
        "The body has a media type or content coding that the filter validate cannot check." "the client's Content-Type and Content-Encoding: what the document describes; JSON plain or with gzip"
    NO_METHOD "validate_no_method" 405
        "The OpenAPI document has this path, but not with this method." "the client's method, or the document that `openapi` of the filter validate names"
    NO_PATH "validate_no_path" 404
        "The OpenAPI document has no such path." "the document that `openapi` of the filter validate names; `base`, if paths have another beginning here"
    REFUSED "validate_refused" 400
        "The request does not fit its description." "the client's request, as the answer says; the file that `schema` or `openapi` of the filter validate names; `mode: report` lets it pass"
}

struct Validate {
    rules: Rules,
    mode: Mode,
    answers: bool,
    /// Longest body, received and decoded.
    body: usize,
    depth: usize,
    /// Where the filter stands, for the log.
    place: String,
    notes: Vec<String>,
    counts: Arc<Counts>,
    names: Names,
}

/// What is known of a message that has a body.
#[derive(Default)]
enum State {
    #[default]
    Done,
    Planned(Found<Plan>),
    /// With `report`: the body so far.
    Watched(Plan, Vec<u8>),
}

/// The filter's note, if the request's operation is known: its number and 1.
type OperationNote = u64;

impl Filter for Validate {
    fn hooks(&self) -> Hooks {
        let answers = if self.answers { Hooks::RESPONSE | Hooks::RESPONSE_BODY } else { Hooks::NONE };
        Hooks::REQUEST | Hooks::REQUEST_BODY | answers
    }

    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        let plan = self.rules.of_request(head, cx.note());
        let body = self.body_use(&plan);
        *cx.state() = State::Planned(plan);
        body
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let found = if head.body() == BodyKind::Empty {
            let plan = self.rules.of_request(head, cx.note());
            plan.and_then(|plan| self.check(&plan, b"", &REFUSED))
        } else {
            match (std::mem::take(cx.state()), self.mode) {
                (State::Planned(Ok(plan)), Mode::Enforce) => self.check(&plan, cx.whole(), &REFUSED),
                (State::Planned(Ok(plan)), Mode::Report) => {
                    *cx.state() = State::Watched(plan, Vec::new());
                    Ok(())
                }
                (State::Planned(Err(verdict)), _) => Err(verdict),
                _ => Ok(()),
            }
        };
        if self.answers {
            self.ask_for_all(head);
        }
        let Err(verdict) = found else { return Flow::Continue };
        self.counts.note(&verdict, &self.place, self.mode, cx);
        if self.mode == Mode::Report {
            return Flow::Continue;
        }
        cx.answer_because(verdict.cause);
        Flow::Answer(verdict.answer(&self.names))
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        self.watch(piece, cx, &REFUSED);
        Ok(())
    }

    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        let Some(plan) = self.of_answer(head, true, cx) else { return BodyUse::Pass };
        let body = self.body_use(&plan);
        *cx.state() = State::Planned(plan);
        body
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let state = std::mem::take(cx.state());
        if is_own(cx) {
            return Flow::Continue;
        }
        let found = match (state, self.mode) {
            (State::Planned(Ok(plan)), Mode::Enforce) => self.check(&plan, cx.whole(), &ANSWER),
            (State::Planned(Ok(plan)), Mode::Report) => {
                *cx.state() = State::Watched(plan, Vec::new());
                Ok(())
            }
            (State::Planned(Err(verdict)), _) => Err(verdict),
            // Without a body: HEAD, 204 and others.
            _ => self.of_answer(head, false, cx).map_or(Ok(()), |plan| plan.map(|_| ())),
        };
        let Err(verdict) = found else { return Flow::Continue };
        self.counts.note(&verdict, &self.place, self.mode, cx);
        if self.mode == Mode::Report {
            return Flow::Continue;
        }
        let detail = Some(verdict.to_text());
        Flow::Refuse(Box::new(Refusal { cause: &ANSWER, detail, headers: Vec::new() }))
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        self.watch(piece, cx, &ANSWER);
        Ok(())
    }

    fn readings(&self) -> Vec<Reading> {
        self.counts.readings()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn explain(&self, asked: &Asked<'_>) -> Vec<String> {
        self.rules.explain(asked.head)
    }
}

impl Validate {
    fn body_use(&self, plan: &Found<Plan>) -> BodyUse {
        match (plan, self.mode) {
            (Ok(Plan::Form { .. } | Plan::Json { .. }), Mode::Enforce) => BodyUse::Whole(self.body),
            (Ok(Plan::Form { .. } | Plan::Json { .. }), Mode::Report) => BodyUse::Watch,
            (Ok(Plan::Free) | Err(_), _) => BodyUse::Pass, // what is refused by its head is not waited for
        }
    }

    /// Checks a body. `cause` says whose it is.
    fn check(&self, plan: &Plan, body: &[u8], cause: &'static Cause) -> Found<()> {
        let (coded, required) = match plan {
            Plan::Free => return Ok(()),
            Plan::Form { coded, required, .. } | Plan::Json { coded, required, .. } => (*coded, *required),
        };
        if body.is_empty() {
            let missing = || Verdict::body(cause, vec![Fault::new(Part::Body, "is missing")]);
            return if required { Err(missing()) } else { Ok(()) };
        }
        // A value takes a byte at least, so the length bounds their number.
        let limits = Limits { depth: self.depth, values: self.body };
        let decoded = || {
            decoded(coded, body, self.body).map_err(|why| match why {
                Unread::TooLong => Verdict::size(cause, self.body),
                _ => Verdict::body(
                    cause,
                    vec![Fault::new(Part::Body, "is not one gzip stream, or something follows it")],
                ),
            })
        };
        match plan {
            Plan::Json { schema: Some(schema), .. } => {
                let document = json::parse(&decoded()?, limits).map_err(|e| {
                    Verdict::body(cause, vec![Fault::new(Part::Body, format!("is not taken as JSON: {e}"))])
                })?;
                schema.check(&document).map_err(|faults| Verdict::body(cause, faults))
            }
            Plan::Form { form, media, .. } => {
                form.check(&decoded()?, media, limits).map_err(|faults| Verdict::body(cause, faults))
            }
            Plan::Json { schema: None, .. } | Plan::Free => Ok(()),
        }
    }

    /// With `report`: gathers a copy of a body that passes, and checks it at its end.
    fn watch(&self, piece: &Piece<'_>, cx: &mut Cx, cause: &'static Cause) {
        let State::Watched(_, body) = cx.state() else { return };
        if body.len() + piece.data().len() > self.body {
            *cx.state() = State::Done;
            self.counts.note(&Verdict::size(cause, self.body), &self.place, self.mode, cx);
            return;
        }
        body.extend_from_slice(piece.data());
        if piece.is_last()
            && let State::Watched(plan, body) = std::mem::take(cx.state())
            && let Err(verdict) = self.check(&plan, &body, cause)
        {
            self.counts.note(&verdict, &self.place, self.mode, cx);
        }
    }

    /// Asks for content that can be checked: all of it, and in no coding but gzip, if the client takes that.
    fn ask_for_all(&self, head: &mut RequestHead) {
        let gzip = !ranked(head.headers.get_all("accept-encoding"), &[Coding::Gzip]).is_empty();
        let coding: &[u8] = if gzip { b"gzip" } else { b"identity" };
        let _ = head.headers.insert(&self.names.accept_encoding, coding); // ours: a token
        head.headers.remove_where(|name, _| {
            name.eq_ignore_ascii_case(b"range") || name.eq_ignore_ascii_case(b"if-range")
        });
    }

    /// What an answer has to be; none if that is not known or does not matter.
    fn of_answer(&self, head: &ResponseHead, has_body: bool, cx: &mut Cx) -> Option<Found<Plan>> {
        let operation: OperationNote = *cx.note();
        let operation = usize::try_from(operation).ok()?.checked_sub(1)?;
        if is_own(cx) || matches!(head.status(), 0..=199 | 304) {
            return None;
        }
        Some(self.rules.of_answer(operation, head, has_body))
    }
}

/// Whether the gateway answers because something is wrong, or a filter says that it does.
fn is_own(cx: &Cx) -> bool {
    cx.because().is_some() || cx.failure().is_some_and(|failure| failure.cause.is_some())
}
