//! Compares a path with segments.

use std::ops::Range;

use super::{Case, Part, Raw, Segment, Tail};

/// Follows the segments along `path` and reports each capture. Returns whether the pattern matches.
pub(super) fn walk<'t>(
    segments: &'t [Segment],
    tail: &'t Tail,
    path: &[u8],
    mut capture: impl FnMut(&'t str, Range<usize>),
) -> bool {
    // `at` is the position of the next slash, or the end of the path.
    let mut at = 0;
    for segment in segments {
        if path.get(at) != Some(&b'/') {
            return false;
        }
        let start = at + 1;
        let text = path.get(start..).unwrap_or_default();
        let length = memchr::memchr(b'/', text).unwrap_or(text.len());
        let text = text.get(..length).unwrap_or_default();
        match segment {
            Segment::Capture(_) if length == 0 => return false,
            Segment::Capture(name) => capture(name, start..start + length),
            Segment::Folded(literal) if !text.eq_ignore_ascii_case(literal) => return false,
            Segment::Literal(literal) if *text != **literal => return false,
            Segment::Folded(_) | Segment::Literal(_) => {}
            Segment::Part(part) => match part.captured(text) {
                Some(range) => capture(&part.name, start + range.start..start + range.end),
                None => return false,
            },
        }
        at = start + length;
    }
    match tail {
        Tail::Exact => at == path.len(),
        Tail::Raw(raw) => {
            let rest = path.get(at..).unwrap_or_default().split_first();
            matches!(rest, Some((b'/', rest)) if raw.fits(rest))
        }
        Tail::Rest(name) => {
            if let Some(name) = name {
                capture(name, (at + 1).min(path.len())..path.len());
            }
            true
        }
    }
}

// === impl Case ===

impl Case {
    fn same(self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Self::Insensitive => a.eq_ignore_ascii_case(b),
            Self::Sensitive => a == b,
        }
    }
}

// === impl Part ===

impl Part {
    /// Where the capture is in a segment of a canonical path; `None` if the segment does not match.
    fn captured(&self, segment: &[u8]) -> Option<Range<usize>> {
        let range = between(segment, self.before.len(), self.after.len())?;
        let same = |part: Option<&[u8]>, text| part.is_some_and(|part| self.case.same(part, text));
        (same(segment.get(..range.start), &self.before) && same(segment.get(range.end..), &self.after))
            .then_some(range)
    }
}

/// What a capture with so many bytes before and after it takes of a segment, if it can take that.
pub(in super::super) fn between(segment: &[u8], before: usize, after: usize) -> Option<Range<usize>> {
    let end = segment.len().checked_sub(after)?;
    let captured = segment.get(before..end)?;
    // An escape has three bytes; none may be cut. The text before is whole, because it is canonical as written.
    let cut = after > 0 && captured.iter().rev().take(2).any(|&byte| byte == b'%');
    (!matches!(captured, b"" | b"." | b"..") && !cut).then_some(before..end)
}

// === impl Raw ===

impl Raw {
    /// Whether what follows the last slash begins with the text.
    fn fits(&self, rest: &[u8]) -> bool {
        rest.get(..self.text.len()).is_some_and(|start| self.case.same(start, &self.text))
    }
}
