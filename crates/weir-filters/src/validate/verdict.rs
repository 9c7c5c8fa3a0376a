//! What follows when a message does not fit: a problem for the client, a count, a line in the log.

use super::super::prelude::*;
use super::settings::Mode;
use super::{ANSWER, MEDIA, NO_METHOD, NO_PATH, REFUSED};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use weir_filter::error::BODY_TOO_LARGE;
use weir_h1::FieldName;
use weir_schema::{Fault, Part, fault};
use weir_telemetry::log;

/// What kind of fault a message has, for the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Answer,
    Body,
    Media,
    Method,
    Parameter,
    Path,
    Size,
}

/// The label values, in the order of the variants.
const REASONS: [&str; 7] = ["answer", "body", "media_type", "method", "parameter", "path", "size"];

static FAULTY: Figure = Figure::counter(
    "faulty",
    "weir_validate_faulty",
    "Messages that did not fit, by reason: answer, body, media_type, method, parameter, path or size. With mode report they passed.",
)
.of("reason");

/// Why a message does not fit.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) reason: Reason,
    pub(super) cause: &'static Cause,
    pub(super) faults: Vec<Fault>,
    /// The methods that the path has.
    allow: Option<String>,
}

/// A refusal on the way: boxed, because hardly any message has one.
pub(super) type Found<T> = Result<T, Box<Verdict>>;

/// What has happened, over all cores.
#[derive(Default)]
pub(super) struct Counts {
    faulty: [AtomicU64; REASONS.len()],
    /// The second in which the log last had a line, and how many more there would have been since.
    logged: AtomicU64,
    unlogged: AtomicU64,
}

/// The names of the fields of an answer.
pub(super) struct Names {
    pub(super) accept_encoding: FieldName,
    allow: FieldName,
    cache_control: FieldName,
    content_type: FieldName,
}

impl Default for Names {
    fn default() -> Self {
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Self {
            accept_encoding: name("accept-encoding"),
            allow: name("allow"),
            cache_control: name("cache-control"),
            content_type: name("content-type"),
        }
    }
}

impl Verdict {
    fn new(reason: Reason, cause: &'static Cause, faults: Vec<Fault>) -> Box<Self> {
        let reason = if *cause == ANSWER { Reason::Answer } else { reason };
        Box::new(Self { reason, cause, faults, allow: None })
    }

    pub(super) fn body(cause: &'static Cause, faults: Vec<Fault>) -> Box<Self> {
        Self::new(Reason::Body, cause, faults)
    }

    pub(super) fn undescribed_body() -> Box<Self> {
        let fault = Fault::new(Part::Body, "this operation takes no body");
        Self::new(Reason::Body, &REFUSED, vec![fault])
    }

    pub(super) fn media(detail: &str) -> Box<Self> {
        Self::new(Reason::Media, &MEDIA, vec![Fault::new(Part::Header, detail)])
    }

    pub(super) fn method(known: &[&str]) -> Box<Self> {
        let known = known.join(", ");
        let fault = Fault::new(Part::Method, format!("expected one of {known}"));
        let verdict = Self::new(Reason::Method, &NO_METHOD, vec![fault]);
        Box::new(Self { allow: Some(known), ..*verdict })
    }

    pub(super) fn parameters(cause: &'static Cause, faults: Vec<Fault>) -> Box<Self> {
        Self::new(Reason::Parameter, cause, faults)
    }

    pub(super) fn path() -> Box<Self> {
        Self::new(Reason::Path, &NO_PATH, vec![Fault::new(Part::Path, "is not described")])
    }

    pub(super) fn size(cause: &'static Cause, limit: usize) -> Box<Self> {
        let cause = if *cause == ANSWER { &ANSWER } else { &BODY_TOO_LARGE };
        let fault = Fault::new(Part::Body, format!("is longer than {limit} bytes when decoded"));
        Self::new(Reason::Size, cause, vec![fault])
    }

    pub(super) fn status(status: u16) -> Box<Self> {
        let fault = Fault::new(Part::Status, format!("{status} is not described"));
        Self::new(Reason::Answer, &ANSWER, vec![fault])
    }

    /// Its faults in one line.
    pub(super) fn to_text(&self) -> String {
        self.faults.iter().map(Fault::to_text).collect::<Vec<_>>().join("; ")
    }

    /// The answer for the client. 404 and others may be stored by caches unless told otherwise (RFC 9110 §15.1).
    pub(super) fn answer(&self, names: &Names) -> Box<Answer> {
        let Cause { status, meaning, .. } = self.cause;
        let title = weir_filter::reason(*status);
        let body = fault::problem(*status, title, meaning, &self.faults);
        let mut headers = vec![
            (names.content_type.clone(), b"application/problem+json".to_vec()),
            (names.cache_control.clone(), b"no-store".to_vec()),
        ];
        if let Some(allow) = &self.allow {
            headers.push((names.allow.clone(), allow.clone().into_bytes())); // RFC 9110 §15.5.6
        }
        Box::new(Answer { status: *status, headers, body: body.into() })
    }
}

impl Counts {
    /// Counts a message. One that passes nevertheless gets a line in the log, unless the last is less than a second old:
    /// who sends such messages must not be able to fill the log.
    pub(super) fn note(&self, verdict: &Verdict, place: &str, mode: Mode, cx: &Cx) {
        if let Some(count) = self.faulty.get(verdict.reason as usize) {
            count.fetch_add(1, Relaxed);
        }
        if mode == Mode::Enforce {
            return; // the access log has the cause, and the client the faults
        }
        let (now, last) = (seconds(), self.logged.load(Relaxed));
        if now == last || self.logged.compare_exchange(last, now, Relaxed, Relaxed).is_err() {
            self.unlogged.fetch_add(1, Relaxed);
            return;
        }
        let (faults, route, more) = (verdict.to_text(), cx.route(), self.unlogged.swap(0, Relaxed));
        let fields: log::Fields<'_> = &[
            ("place", &place),
            ("route", &route),
            ("client", &cx.client),
            ("faults", &faults),
            ("unlogged", &more),
        ];
        log::warn("a message does not fit its schema", fields);
    }

    pub(super) fn readings(&self) -> Vec<Reading> {
        let all = REASONS.iter().zip(&self.faulty);
        all.map(|(reason, count)| Reading::of(&FAULTY, reason, count.load(Relaxed))).collect()
    }
}

/// Seconds since the first call, counted from 1.
fn seconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs() + 1
}
