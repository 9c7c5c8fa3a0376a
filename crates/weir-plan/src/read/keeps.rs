//! `keep:` of a step: where a value is, and what is done with it.

use super::texts::{read_filter, split};
use crate::filter::Filter;
use crate::keep::Source;
use crate::path::Path;
use crate::plan::StepKind;
use regex::bytes::RegexBuilder;
use weir_expr::Type;
use weir_expr::spelling::nearest_name;

/// Largest compiled regular expression, in bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// A source of a keep, read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) source: Source,
    pub(super) filters: Vec<Filter>,
    pub(super) is_optional: bool,
    pub(super) ty: Type,
}

/// Message and hint.
type Wrong = (String, Option<String>);

/// Reads a source such as `json:$.items[*].id|random`.
pub(super) fn read(text: &str, kind: StepKind) -> Result<Read, Wrong> {
    let (source, rest) = source(text, kind)?;
    let (mut filters, mut is_optional) = (Vec::new(), false);
    for (_, filter) in split(rest).into_iter().skip(1) {
        match read_filter(filter)? {
            Some(Filter::Json) => {
                return Err(("the filter `json` is of placeholders: {{name|json}}".to_owned(), None));
            }
            Some(filter) => filters.push(filter),
            None => is_optional = true,
        }
    }
    let ty = ty(&source, &filters);
    Ok(Read { source, filters, is_optional, ty })
}

/// The type of what is kept, also of a source with mistakes.
pub(super) fn type_of(text: &str, kind: StepKind) -> Type {
    read(text, kind).map_or(Type::Json, |read| read.ty)
}

fn ty(source: &Source, filters: &[Filter]) -> Type {
    if filters.iter().any(|filter| matches!(filter, Filter::Count | Filter::Int))
        || matches!(source, Source::Status) && filters.is_empty()
    {
        return Type::Int;
    }
    match source {
        Source::Json(_) | Source::Status => Type::Json,
        Source::Body(_) | Source::Cookie(_) | Source::Header(_) => Type::Text,
    }
}

/// The source, and its filters from the first `|` on.
fn source(text: &str, kind: StepKind) -> Result<(Source, &str), Wrong> {
    let fail = |message: String| Err((message, None));
    if let Some(pattern) = text.strip_prefix("body~") {
        // A `|` may be part of the expression: only known filters at the end are filters.
        let end = end_of_pattern(pattern);
        let (pattern, rest) = pattern.split_at(end);
        let compiled =
            RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build();
        return match compiled {
            Ok(compiled) if compiled.captures_len() < 2 => fail(
                "the expression needs a group in brackets, whose text is kept: body~name=\"([^\"]+)\""
                    .to_owned(),
            ),
            Ok(compiled) => Ok((Source::Body(compiled), rest)),
            Err(regex::Error::CompiledTooBig(_)) => {
                fail(format!("the regular expression is larger than {PATTERN_BYTES} bytes when compiled"))
            }
            Err(wrong) => {
                let text = wrong.to_string();
                let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
                fail(format!("this is no regular expression: {last}"))
            }
        };
    }
    let end = end_of_path(text);
    let (word, rest) = text.split_at(end);
    let word = word.trim();
    let json = |path: &str| match Path::parse(path.trim()) {
        Some(path) => Ok((Source::Json(path), rest)),
        None => fail(format!(
            "`{path}` is no path; expected $.name, $.list[0].id, $.list[*].id, $..id or $['any name']"
        )),
    };
    let only = |of: StepKind, name: &str| {
        if kind == of {
            Ok(())
        } else {
            Err((format!("`{name}:` is of `{name}` steps; write json:$.path"), None))
        }
    };
    match word.split_once(':') {
        Some(("json", path)) => json(path),
        Some(("grpc", path)) => only(StepKind::Grpc, "grpc").and_then(|()| json(path)),
        Some(("ws", path)) => only(StepKind::WebSocket, "ws").and_then(|()| json(path)),
        Some(("header" | "cookie", _)) if matches!(kind, StepKind::WebSocket | StepKind::Exec) => {
            fail("the answer to a message has no header".to_owned())
        }
        Some(("header", name)) if is_token(name) => Ok((Source::Header(name.to_ascii_lowercase()), rest)),
        Some(("cookie", name)) if is_token(name) => Ok((Source::Cookie(name.to_owned()), rest)),
        Some(("header" | "cookie", name)) => fail(format!("`{name}` is no name of a header field or cookie")),
        None if word == "status" && !matches!(kind, StepKind::WebSocket | StepKind::Exec) => {
            Ok((Source::Status, rest))
        }
        _ => {
            const SOURCES: &[&str] = &["json", "header", "cookie", "body", "status", "grpc", "ws"];
            let begin = word.split([':', '~']).next().unwrap_or_default();
            let meant =
                nearest_name(begin, SOURCES.iter().copied()).map(|meant| format!("did you mean {meant}?"));
            let expected = "expected json:$.path, header:NAME, cookie:NAME, body~REGEX, status, grpc:$.path or ws:$.path";
            Err((expected.to_owned(), meant))
        }
    }
}

/// Where the filters of a regular expression begin: at the last `|`s that only filters follow.
fn end_of_pattern(pattern: &str) -> usize {
    let mut end = pattern.len();
    while let Some(at) = pattern.get(..end).and_then(|text| text.rfind('|')) {
        let filter = pattern.get(at + 1..end).unwrap_or_default();
        if read_filter(filter).is_err() {
            break;
        }
        end = at;
    }
    end
}

/// The first `|` outside the quotes of a path.
fn end_of_path(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '|') => return at,
            _ => {}
        }
    }
    text.len()
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`~".contains(&b))
}
