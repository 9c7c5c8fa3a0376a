//! Reads a path pattern that is not a regular expression.

use super::super::path::{self, Canonical, Slashes};
use super::{PatternError, Segment, Shape, Tail};

pub(super) fn parse_segments(text: &str) -> Result<Shape, PatternError> {
    const EXPECTED: &str =
        "expected `/literal`, `/with/{name}`, `/prefix/*`, `/prefix/{rest*}`, `/*` or `~regex`";
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
        if piece == "*" {
            tail = Tail::Rest(None);
        } else if piece.contains(['{', '}']) {
            let name = parse_name(piece)?;
            let (name, rest) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
            if names.contains(&name) {
                let hint = "use each name only once in a path";
                return Err(PatternError::new(format!("`{{{name}}}` occurs twice in the path"), hint));
            }
            names.push(name);
            match rest {
                true => tail = Tail::Rest(Some(name.into())),
                false => segments.push(Segment::Capture(name.into())),
            }
        } else if piece.starts_with('*') || piece.ends_with('*') {
            return Err(PatternError::new(
                format!("`*` is only part of the segment `{piece}`"),
                "`*` must be the whole last segment, as in `/beta/*`; for a part of a segment use a `~regex`",
            ));
        } else {
            segments.push(Segment::Literal(piece.as_bytes().into()));
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

/// Returns the text between the braces of `{name}` or `{name*}`.
fn parse_name(piece: &str) -> Result<&str, PatternError> {
    let Some(inner) =
        piece.strip_prefix('{').and_then(|p| p.strip_suffix('}')).filter(|p| !p.contains(['{', '}']))
    else {
        return Err(PatternError::new(
            format!("the capture is only part of the segment `{piece}`"),
            "a `{name}` is a whole segment; for a part of one use a `~regex` with `(?<name>…)`",
        ));
    };
    let name = inner.strip_suffix('*').unwrap_or(inner);
    let mut bytes = name.bytes();
    let starts = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !starts || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(PatternError::new(
            format!("`{piece}` is not a name for a capture"),
            "a name is a letter or `_`, then letters, digits and `_`",
        ));
    }
    Ok(inner)
}

/// A request's path is canonical before it is matched, so a pattern that is not canonical would never match.
fn check_canonical(text: &str) -> Result<(), PatternError> {
    // A capture's braces are not part of a path; `*` and letters may be.
    let bare = text.replace(['{', '}'], "");
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
