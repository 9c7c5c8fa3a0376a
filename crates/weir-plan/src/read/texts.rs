//! Texts with placeholders: finds them, resolves their names, and compiles a [`Template`].

use super::names::{Found, Names};
use crate::filter::{Filter, NAMES as FILTERS};
use crate::scope::Operand;
use crate::template::{Clock, Escape, Form, Piece, Placeholder, Template, What};
use std::ops::Range;
use weir_expr::spelling::nearest_name;

/// How deep placeholders may stand in each other, as in `{{base64:{{user}}}}`.
const DEPTH: usize = 4;

/// What is wrong in a text, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// A part of a text as written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Span {
    Literal(String),
    /// What stands between `{{` and `}}`.
    Placeholder(Range<usize>),
}

/// The functions of placeholders, for messages.
const FUNCTIONS: &[&str] =
    &["base64", "counter", "hmac_sha256", "index", "iteration", "now", "random", "user", "uuid"];

/// Takes a text apart. `{{{{` is a literal `{{`.
pub(super) fn spans(text: &str) -> Result<Vec<Span>, Wrong> {
    let mut spans = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(open) = text.get(at..).and_then(|rest| rest.find("{{")).map(|found| at + found) {
        literal.push_str(text.get(at..open).unwrap_or_default());
        if text.get(open..).is_some_and(|rest| rest.starts_with("{{{{")) {
            literal.push_str("{{");
            at = open + 4;
            continue;
        }
        let end = closing(text, open + 2).ok_or_else(|| Wrong {
            at: open,
            message: "`{{` without a closing `}}`".to_owned(),
            hint: Some("write {{{{ for two braces".to_owned()),
        })?;
        if !literal.is_empty() {
            spans.push(Span::Literal(std::mem::take(&mut literal)));
        }
        spans.push(Span::Placeholder(open + 2..end));
        at = end + 2;
    }
    literal.push_str(text.get(at..).unwrap_or_default());
    if !literal.is_empty() {
        spans.push(Span::Literal(literal));
    }
    Ok(spans)
}

/// Where the `}}` begins that closes a placeholder.
fn closing(text: &str, from: usize) -> Option<usize> {
    let (mut at, mut depth) = (from, 1usize);
    loop {
        let rest = text.get(at..)?;
        let next = rest.find(['{', '}'])?;
        let found = rest.get(next..)?;
        if found.starts_with("}}") {
            depth -= 1;
            if depth == 0 {
                return Some(at + next);
            }
            at += next + 2;
        } else if found.starts_with("{{") {
            depth += 1;
            at += next + 2;
        } else {
            at += next + 1;
        }
    }
}

/// Compiles a text. All its placeholders are escaped in the same way.
pub(super) fn compile(
    text: &str,
    escape: &Escape,
    form: Form,
    names: &mut Names<'_>,
) -> Result<Template, Vec<Wrong>> {
    let mut pieces = Pieces::default();
    pieces.add(text, escape, names);
    pieces.finish(form)
}

/// Builds a template of several texts.
#[derive(Default)]
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    wrong: Vec<Wrong>,
    depth: usize,
}

impl Pieces {
    pub(super) fn literal(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Literal(before)) => {
                let mut joined = std::mem::take(before).into_vec();
                joined.extend_from_slice(bytes);
                *before = joined.into();
            }
            _ if bytes.is_empty() => {}
            _ => self.pieces.push(Piece::Literal(bytes.into())),
        }
    }

    /// Adds a text; its own characters stay as they are.
    pub(super) fn add(&mut self, text: &str, escape: &Escape, names: &mut Names<'_>) {
        self.add_with(text, escape, names, |literal| literal.as_bytes().to_vec());
    }

    /// Adds a text whose own characters `literal` escapes.
    pub(super) fn add_with(
        &mut self,
        text: &str,
        escape: &Escape,
        names: &mut Names<'_>,
        literal: impl Fn(&str) -> Vec<u8>,
    ) {
        let spans = match spans(text) {
            Ok(spans) => spans,
            Err(wrong) => return self.wrong.push(wrong),
        };
        for span in spans {
            match span {
                Span::Literal(text) => self.literal(&literal(&text)),
                Span::Placeholder(range) => self.placeholder(text, range, escape, names),
            }
        }
    }

    /// Adds the placeholder in this range of a text.
    pub(super) fn placeholder(
        &mut self,
        text: &str,
        range: Range<usize>,
        escape: &Escape,
        names: &mut Names<'_>,
    ) {
        let at = range.start;
        let inside = text.get(range).unwrap_or_default();
        match placeholder(inside, escape, names, self.depth) {
            Ok(placeholder) => match constant(&placeholder, names) {
                Some(bytes) => self.literal(&bytes),
                None => self.pieces.push(Piece::Value(placeholder)),
            },
            Err(wrong) => {
                self.wrong.extend(wrong.into_iter().map(|wrong| Wrong { at: at + wrong.at, ..wrong }))
            }
        }
    }

    pub(super) fn finish(self, form: Form) -> Result<Template, Vec<Wrong>> {
        if self.wrong.is_empty() {
            Ok(Template { pieces: self.pieces.into(), form })
        } else {
            Err(self.wrong)
        }
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.pieces.push(piece);
    }
}

/// The escaped text of a placeholder that is a constant, so that no request has to look it up.
fn constant(placeholder: &Placeholder, names: &Names<'_>) -> Option<Vec<u8>> {
    let What::Named(Operand::Constant(at)) = placeholder.what else { return None };
    if !placeholder.filters.is_empty() {
        return None;
    }
    let (mut text, mut out) = (Vec::new(), Vec::new());
    names.constant(at).write(&mut text);
    placeholder.escape(&text, &mut out).ok()?;
    Some(out)
}

fn placeholder(
    inside: &str,
    escape: &Escape,
    names: &mut Names<'_>,
    depth: usize,
) -> Result<Placeholder, Vec<Wrong>> {
    let parts = split(inside);
    let (head_at, head) = parts.first().copied().unwrap_or((0, ""));
    let (mut filters, mut is_optional, mut wrong) = (Vec::new(), false, Vec::new());
    let mut escape = escape.clone();
    for (at, filter) in parts.iter().skip(1) {
        if filter.trim() == "raw" {
            match escape {
                Escape::Url => escape = Escape::UrlRaw,
                _ => wrong.push(Wrong {
                    at: *at,
                    message: "`raw` has a meaning only in URLs, and only once".to_owned(),
                    hint: None,
                }),
            }
            continue;
        }
        match read_filter(filter) {
            Ok(Some(filter)) => filters.push(filter),
            Ok(None) => is_optional = true,
            Err((message, hint)) => wrong.push(Wrong { at: *at, message, hint }),
        }
    }
    let what = match what(head, head_at, names, depth) {
        Ok((what, may_be_empty)) => {
            is_optional |= may_be_empty;
            Some(what)
        }
        Err(more) => {
            wrong.extend(more);
            None
        }
    };
    match what {
        Some(what) if wrong.is_empty() => {
            Ok(Placeholder { text: inside.trim().into(), what, filters: filters.into(), is_optional, escape })
        }
        _ => Err(wrong),
    }
}

/// The parts between `|` outside nested placeholders, each with its place.
pub(super) fn split(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut begin, mut depth, mut at) = (0, 0usize, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("{{") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("}}") {
            depth = depth.saturating_sub(1);
            at += 2;
        } else {
            if rest.starts_with('|') && depth == 0 {
                parts.push((begin, text.get(begin..at).unwrap_or_default()));
                begin = at + 1;
            }
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    parts.push((begin, text.get(begin..).unwrap_or_default()));
    parts
}

/// A filter; `None` is `optional`. The error has a hint.
pub(super) fn read_filter(text: &str) -> Result<Option<Filter>, (String, Option<String>)> {
    Ok(Some(match text.trim() {
        "count" => Filter::Count,
        "first" => Filter::First,
        "int" => Filter::Int,
        "json" => Filter::Json,
        "last" => Filter::Last,
        "optional" => return Ok(None),
        "random" => Filter::Random,
        other => match text.trim_start().strip_prefix("default:") {
            Some(value) => Filter::Default(value.into()),
            None => {
                let meant = nearest_name(other, FILTERS.iter().copied())
                    .map(|meant| format!("did you mean {meant}?"));
                let all = "first, last, random, count, optional, default:X, int and json";
                return Err((format!("`{other}` is no filter; there are {all}"), meant));
            }
        },
    }))
}

/// What a placeholder writes, and whether it may write nothing.
fn what(text: &str, at: usize, names: &mut Names<'_>, depth: usize) -> Result<(What, bool), Vec<Wrong>> {
    let fail = |message: String, hint: Option<String>| Err(vec![Wrong { at, message, hint }]);
    let inner = |text: &str, from: usize, names: &mut Names<'_>| {
        if depth + 1 >= DEPTH {
            let message = format!("placeholders stand in each other at most {DEPTH} deep");
            return Err(vec![Wrong { at, message, hint: None }]);
        }
        let mut pieces = Pieces { depth: depth + 1, ..Pieces::default() };
        pieces.add(text, &Escape::None, names);
        let moved =
            |wrong: Vec<Wrong>| wrong.into_iter().map(|w| Wrong { at: at + from + w.at, ..w }).collect();
        pieces.finish(Form::Any).map_err(moved)
    };
    let name = text.trim();
    let fixed = match name {
        "now" => Some(What::Now(Clock::Seconds)),
        "now:ms" => Some(What::Now(Clock::Milliseconds)),
        "now:rfc3339" => Some(What::Now(Clock::Rfc3339)),
        "uuid" => Some(What::Uuid),
        _ => None,
    };
    if let Some(fixed) = fixed {
        return Ok((fixed, false));
    }
    if let Some(arguments) = name.strip_prefix("random:") {
        let ends =
            arguments.split_once(':').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        return match ends {
            Some((low, high)) if low <= high => Ok((What::Random(low, high), false)),
            _ => fail("expected two whole numbers, the smaller first: {{random:1:100}}".to_owned(), None),
        };
    }
    let from = text.len() - text.trim_start().len();
    if let Some(plain) = text.trim_start().strip_prefix("base64:") {
        return Ok((What::Base64(inner(plain, from + "base64:".len(), names)?), false));
    }
    if let Some(arguments) = text.trim_start().strip_prefix("hmac_sha256:") {
        let Some(end) = colon(arguments) else {
            return fail("expected a key and a text: {{hmac_sha256:key:text}}".to_owned(), None);
        };
        let from = from + "hmac_sha256:".len();
        let key = inner(arguments.get(..end).unwrap_or_default(), from, names)?;
        let text = inner(arguments.get(end + 1..).unwrap_or_default(), from + end + 1, names)?;
        return Ok((What::Hmac { key, text }, false));
    }
    if let Some((function, _)) = name.split_once(':') {
        let meant =
            nearest_name(function, FUNCTIONS.iter().copied()).map(|meant| format!("did you mean {meant}?"));
        return fail(format!("`{function}` is no function; there are {}", FUNCTIONS.join(", ")), meant);
    }
    if name.is_empty() {
        return fail(
            "expected a name between `{{` and `}}`".to_owned(),
            Some("write {{{{ for two braces".to_owned()),
        );
    }
    match names.find(name) {
        Ok(Found { operand, is_optional, .. }) => Ok((What::Named(operand), is_optional)),
        Err((message, hint)) => fail(message, hint.or_else(|| function_meant(name))),
    }
}

fn function_meant(name: &str) -> Option<String> {
    nearest_name(name, FUNCTIONS.iter().copied()).map(|meant| format!("did you mean {meant}?"))
}

/// The first colon outside nested placeholders.
fn colon(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("{{") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("}}") {
            depth = depth.saturating_sub(1);
            at += 2;
        } else if rest.starts_with(':') && depth == 0 {
            return Some(at);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}
