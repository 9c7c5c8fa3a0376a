//! The formats of recordings, and how Weir recognizes each.

use crate::chunks::{CHUNK_MOST, Cut, LINE_MOST};
use crate::template::{self, Template};
use crate::{Record, UNREADABLE, Unread, gor, har, json};
use serde_json::Value;

/// Enough bytes from the start of a recording for [`Form::of`].
pub const PEEK_BYTES: usize = 64 << 10;

/// The names of the forms, for messages.
pub const FORMS: &str = "weir, replay, jsonl, combined, common, alb, elb, har, gor, or a log_format of nginx such as \
                         '$msec $request_method $request_uri'";

/// How many lines are tried until one has a known form.
const TRIED: usize = 20;

/// The form of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Gor,
    Har,
    /// `{"at":…,"method":…,"url":…}`, also of Weir's access log with `format: replay`.
    JsonLines,
    Template(Template),
    /// Weir's access log in JSON.
    Weir,
}

impl Form {
    /// The form with this name, or of a template.
    ///
    /// # Errors
    /// There is no such form, or the template lacks what a request needs.
    pub fn named(text: &str) -> Result<Self, String> {
        let (name, kind) = match text {
            "alb" => ("alb", Kind::Template(Template::new(template::ALB)?)),
            "combined" => ("combined", Kind::Template(Template::new(template::COMBINED)?)),
            "common" => ("common", Kind::Template(Template::new(template::COMMON)?)),
            "elb" => ("elb", Kind::Template(Template::new(template::ELB)?)),
            "gor" => ("gor", Kind::Gor),
            "har" => ("har", Kind::Har),
            "jsonl" => ("jsonl", Kind::JsonLines),
            "replay" => ("replay", Kind::JsonLines),
            "weir" => ("weir", Kind::Weir),
            _ if text.contains('$') => ("log_format", Kind::Template(Template::new(text)?)),
            _ => return Err(format!("expected {FORMS}")),
        };
        Ok(Self { name, kind })
    }

    /// The form of a recording that begins with these bytes; `None` if it has none that is known.
    pub fn of(first: &[u8]) -> Option<Self> {
        let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
        let named = |name| Self::named(name).ok();
        let lines = || first.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()).take(TRIED);
        if first.starts_with(b"{") {
            for line in lines() {
                let Ok(value) = serde_json::from_slice::<Value>(line) else { continue };
                if value.get("at").is_some() {
                    return named("jsonl");
                }
                if value.get("time").is_some() && value.get("total_us").is_some() {
                    return named("weir");
                }
            }
            // A line with a large body does not fit into what was peeked.
            if first.starts_with(b"{\"at\":") {
                return named("jsonl");
            }
            return if memchr::memmem::find(first, b"\"log\"").is_some() { named("har") } else { None };
        }
        if lines().next().is_some_and(gor::is_header) {
            return named("gor");
        }
        let mut forms = ["combined", "common", "alb", "elb"].into_iter().filter_map(named);
        forms.find(|form| lines().any(|line| form.read(line).is_ok()))
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it records bodies.
    pub fn has_bodies(&self) -> bool {
        match &self.kind {
            Kind::Gor | Kind::Har | Kind::JsonLines => true,
            Kind::Template(template) => template.has("request_body"),
            Kind::Weir => false,
        }
    }

    pub(crate) const fn cut(&self) -> Cut {
        match self.kind {
            Kind::Gor => Cut::Gor,
            Kind::Har => Cut::Har,
            _ => Cut::Lines,
        }
    }

    pub(crate) const fn chunk_most(&self) -> usize {
        match self.kind {
            Kind::Gor | Kind::Har | Kind::JsonLines => CHUNK_MOST,
            Kind::Template(_) | Kind::Weir => LINE_MOST,
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Why it is no request.
    pub fn read(&self, chunk: &[u8]) -> Result<Record, Unread> {
        let request = match &self.kind {
            Kind::Gor => return gor::read(chunk),
            Kind::Har => har::read(chunk),
            Kind::JsonLines => json::line(chunk),
            Kind::Template(template) => {
                template.read(str::from_utf8(chunk.trim_ascii_end()).map_err(|_| UNREADABLE)?)
            }
            Kind::Weir => json::weir(chunk),
        };
        request.map(|request| Record::Request(Box::new(request)))
    }
}
