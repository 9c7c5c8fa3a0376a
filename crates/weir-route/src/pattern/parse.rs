//! Reads a path pattern that is not a regular expression.

use super::super::path::{self, Canonical, Slashes};
use super::{Case, Part, PatternError, Raw, Segment, Shape, Tail};

pub(super) fn parse_segments(text: &str, case: Case) -> Result<Shape, PatternError> {
    const EXPECTED: &str =
        "expected `/literal`, `/with/{name}`, `/prefix/*`, `/prefix/{rest*}`, `/raw*`, `/*` or `~regex`";
    let Some(inner) = text.strip_prefix('/') else {
        let what = if text.is_empty() { "the path is empty" } else { "the path does not begin with `/`" };
        return Err(PatternError::new(what, EXPECTED));
    };
    let mut segments = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    let mut tail = Tail::Exact;
    let mut pieces = inner.split('/').peekable();
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none();
        if piece.is_empty() && !last {
            return Err(PatternError::new(
                "the path holds an empty segment (`//`)",
                "`//` is merged before routes are asked; on a listener with `slashes: keep`, use a `~regex`",
            ));
        }
        let piece_parts = Piece::parse(piece)?;
        if let Some(name) = piece_parts.name() {
            if names.contains(&name) {
                let hint = "use each name only once in a path";
                return Err(PatternError::new(format!("`{{{name}}}` occurs twice in the path"), hint));
            }
            names.push(name);
        }
        match piece_parts {
            Piece::Literal(text) => segments.push(match case_of(case, text, "") {
                Case::Insensitive => Segment::Folded(text.as_bytes().into()),
                Case::Sensitive => Segment::Literal(text.as_bytes().into()),
            }),
            Piece::Part { before: "", name, after: "" } => segments.push(Segment::Capture(name.into())),
            Piece::Part { before, name, after } => segments.push(Segment::Part(Box::new(Part {
                before: before.as_bytes().into(),
                name: name.into(),
                after: after.as_bytes().into(),
                case: case_of(case, before, after),
            }))),
            Piece::Raw(text) => {
                tail =
                    Tail::Raw(Box::new(Raw { text: text.as_bytes().into(), case: case_of(case, text, "") }));
            }
            Piece::Rest(name) => tail = Tail::Rest(name.map(Into::into)),
        }
        if tail != Tail::Exact && !last {
            return Err(PatternError::new(
                format!("`{piece}` is not the last segment"),
                "`*` and `{rest*}` take the whole rest of the path; for one segment write `{name}`",
            ));
        }
    }
    check_canonical(text)?;
    Ok(Shape::Segments { segments: segments.into(), tail })
}

/// What stands between two slashes of a pattern.
enum Piece<'p> {
    Literal(&'p str),
    /// A capture with text around it, or alone.
    Part {
        before: &'p str,
        name: &'p str,
        after: &'p str,
    },
    /// `*` behind this text.
    Raw(&'p str),
    /// `*` or `{name*}` alone.
    Rest(Option<&'p str>),
}

// === impl Piece ===

impl<'p> Piece<'p> {
    fn parse(piece: &'p str) -> Result<Self, PatternError> {
        if !piece.contains(['{', '}']) {
            return match piece.strip_suffix('*') {
                Some("") => Ok(Self::Rest(None)),
                Some(text) if !text.contains('*') => Ok(Self::Raw(text)),
                None if !piece.starts_with('*') => Ok(Self::Literal(piece)),
                _ => Err(star(piece)),
            };
        }
        let (before, inner, after) = braces(piece)?;
        if before.contains('*') || after.contains('*') {
            return Err(star(piece));
        }
        let (name, rest) = inner.strip_suffix('*').map_or((inner, false), |name| (name, true));
        check_name(name, piece)?;
        if rest && !(before.is_empty() && after.is_empty()) {
            return Err(PatternError::new(
                format!("`{{{inner}}}` is only part of the segment `{piece}`"),
                "`{rest*}` stands alone, as in `/beta/{rest*}`; for a part of one segment write `{name}`, for a prefix without a capture `/beta*`",
            ));
        }
        if after.contains(';') || after.contains("%3B") {
            return Err(PatternError::new(
                format!("`{piece}` has a `;` after its capture"),
                "a server that drops path parameters would see only what the client wrote before it; use a `~regex` with the values that you expect",
            ));
        }
        Ok(match rest {
            true => Self::Rest(Some(name)),
            false => Self::Part { before, name, after },
        })
    }

    fn name(&self) -> Option<&'p str> {
        match self {
            Self::Literal(_) | Self::Raw(_) => None,
            Self::Part { name, .. } => Some(name),
            Self::Rest(name) => *name,
        }
    }
}

fn star(piece: &str) -> PatternError {
    PatternError::new(
        format!("`*` has no meaning in this place of the segment `{piece}`"),
        "`*` ends a path, as in `/beta/*` and `/beta*`; for a part of a segment write `{name}`, as in `/{name}.html`",
    )
}

/// What stands before, within and after the one pair of braces.
fn braces(piece: &str) -> Result<(&str, &str, &str), PatternError> {
    let split = piece.split_once('{').and_then(|(before, rest)| {
        let (inner, after) = rest.split_once('}')?;
        Some((before, inner, after))
    });
    let Some((before, inner, after)) =
        split.filter(|(before, inner, _)| !before.contains('}') && !inner.contains('{'))
    else {
        return Err(PatternError::new(
            format!("the braces of the segment `{piece}` hold no name"),
            "write `{name}`; a brace that belongs to the path is written `%7B` or `%7D`",
        ));
    };
    if after.contains('{') {
        return Err(PatternError::new(
            format!(
                "the segment `{piece}` has two captures, and a text could be divided between them in several ways"
            ),
            "write one `{name}` in a segment; for more use a `~regex` with `(?<name>…)`",
        ));
    }
    if after.contains('}') {
        return Err(PatternError::new(
            format!("the segment `{piece}` has a `}}` too many"),
            "write `{name}`; a brace that belongs to the path is written `%7B` or `%7D`",
        ));
    }
    Ok((before, inner, after))
}

fn check_name(name: &str, piece: &str) -> Result<(), PatternError> {
    let mut bytes = name.bytes();
    let starts = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if starts && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Ok(());
    }
    Err(PatternError::new(
        format!("`{piece}` is not a name for a capture"),
        "a name is a letter or `_`, then letters, digits and `_`",
    ))
}

/// Insensitive only if there is a letter to ignore the case of. The digits of escapes are upper case in every path.
fn case_of(case: Case, before: &str, after: &str) -> Case {
    let has_letter = |text: &str| {
        let escaped = text
            .split('%')
            .enumerate()
            .map(|(at, part)| if at == 0 { part } else { part.get(2..).unwrap_or_default() });
        escaped.flat_map(str::bytes).any(|byte| byte.is_ascii_alphabetic())
    };
    if has_letter(before) || has_letter(after) { case } else { Case::Sensitive }
}

/// A request's path is canonical before it is matched, so a pattern that is not canonical would never match.
fn check_canonical(text: &str) -> Result<(), PatternError> {
    // A capture is no part of a path, and no digit of an escape beside it; `*` and letters may be.
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, (_, after))) =
        rest.split_once('{').and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
    {
        bare.push_str(before);
        bare.push('x');
        rest = after;
    }
    bare.push_str(rest);
    let mut out = Vec::new();
    let form = |text: &str, out: &mut Vec<u8>| path::canonical(text.as_bytes(), Slashes::Keep, out);
    match form(&bare, &mut out) {
        Ok(Canonical::AsIs) => Ok(()),
        Ok(Canonical::Rewritten) if bare == text => Err(PatternError::new(
            "the path is not in canonical form, so no request would match it",
            format!("write `{}`", String::from_utf8_lossy(&out)),
        )),
        Ok(Canonical::Rewritten) => Err(PatternError::new(
            "the path is not in canonical form, so no request would match it",
            "write it without `.` and `..`, with unreserved characters unescaped and hex digits in upper case",
        )),
        Err(path::PathError::NonAscii | path::PathError::Space) => {
            let escaped: String = text
                .chars()
                .map(|c| match c {
                    ' ' => "%20".to_owned(),
                    c if c.is_ascii() => c.to_string(),
                    c => c.to_string().bytes().map(|b| format!("%{b:02X}")).collect(),
                })
                .collect();
            Err(PatternError::new(
                "the path holds a character that a request must escape",
                format!("write `{escaped}`"),
            ))
        }
        Err(error) => {
            Err(PatternError::new(error.to_string(), "no request with such a path reaches a route"))
        }
    }
}
