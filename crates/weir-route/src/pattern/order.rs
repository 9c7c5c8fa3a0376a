//! The order of patterns: which of two that match one path comes first, and when neither does.

use std::cmp::{Ordering, Reverse};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use super::{Case, Pattern, Segment, Shape, Tail};

/// What decided between two patterns, in the order of comparison. Segments count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// From end to end, by a regex, or by a prefix.
    Class,
    /// The number of whole segments of a prefix.
    Segments,
    /// The bytes of a raw prefix after its last slash.
    RawBytes,
    /// Literal, part-literal or capture.
    Kind(usize),
    /// The literal bytes beside a capture.
    PartBytes(usize),
    /// The literal bytes before a capture.
    PartBefore(usize),
    /// Letters compared exactly, or without case.
    Case,
    /// Nothing did.
    Nothing,
}

/// How a pattern matches a path, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Class {
    /// From end to end.
    Exact,
    /// By a regular expression. Between the best regex and the best prefix of a path, the higher priority decides; this
    /// order counts where they are equal.
    Regex,
    /// By its beginning.
    Prefix,
}

impl Pattern {
    /// Which of two patterns *that match one path* comes first (`Less` means `self`), and what decided.
    ///
    /// Exact before regex before prefix. Of prefixes the one with more whole segments, then with more bytes after the
    /// last slash. Then segment by segment: a literal before a part-literal before a `{name}`; of two part-literals
    /// the one with more literal bytes, then with more of them before the capture. Exact letters before any case. Two
    /// regexes are equal.
    ///
    /// Patterns are compared by one key from left to right, so this is a total order of keys for any patterns, whether
    /// or not one path matches them. Patterns with equal keys that one path matches have equal
    /// [`shape_key`](Self::shape_key)s, apart from regexes.
    pub(in super::super) fn compare(&self, other: &Self) -> (Ordering, Step) {
        let class = (self.class().cmp(&other.class()), Step::Class);
        let (Shape::Segments { segments: a, tail: a_tail }, Shape::Segments { segments: b, tail: b_tail }) =
            (&self.shape, &other.shape)
        else {
            return if class.0.is_eq() { (Ordering::Equal, Step::Nothing) } else { class };
        };
        let raw_bytes = |tail: &Tail| match tail {
            Tail::Raw(raw) => raw.text.len(),
            Tail::Exact | Tail::Rest(_) => 0,
        };
        let lengths = [
            (b.len().cmp(&a.len()), Step::Segments),
            (raw_bytes(b_tail).cmp(&raw_bytes(a_tail)), Step::RawBytes),
        ];
        let segments = a.iter().zip(b).enumerate().flat_map(|(at, (a, b))| {
            let (a, b) = (a.key(), b.key());
            [
                (a.0.cmp(&b.0), Step::Kind(at + 1)),
                (a.1.cmp(&b.1), Step::PartBytes(at + 1)),
                (a.2.cmp(&b.2), Step::PartBefore(at + 1)),
            ]
        });
        let case = (self.ignores_case().cmp(&other.ignores_case()), Step::Case);
        let mut steps = std::iter::once(class).chain(lengths).chain(segments).chain([case]);
        steps.find(|(ordering, _)| ordering.is_ne()).unwrap_or((Ordering::Equal, Step::Nothing))
    }

    pub(in super::super) fn class(&self) -> Class {
        match &self.shape {
            Shape::Segments { tail: Tail::Exact, .. } => Class::Exact,
            Shape::Regex(_) => Class::Regex,
            Shape::Segments { tail: Tail::Raw(_) | Tail::Rest(_), .. } => Class::Prefix,
        }
    }

    /// Hashes the contents of [`shape_key`](Self::shape_key).
    pub(in super::super) fn hash_shape(&self, hasher: &mut impl Hasher) {
        let Shape::Segments { segments, tail } = &self.shape else { return };
        for segment in segments {
            match segment {
                Segment::Capture(_) => hasher.write_u8(0),
                Segment::Folded(literal) => hash_folded(literal, hasher),
                Segment::Literal(literal) => literal.hash(hasher),
                Segment::Part(part) if part.case == Case::Sensitive => {
                    (&part.before, &part.after).hash(hasher);
                }
                Segment::Part(part) => {
                    hash_folded(&part.before, hasher);
                    hash_folded(&part.after, hasher);
                }
            }
        }
        match tail {
            Tail::Raw(raw) if raw.case == Case::Sensitive => raw.text.hash(hasher),
            Tail::Raw(raw) => hash_folded(&raw.text, hasher),
            Tail::Exact | Tail::Rest(_) => hasher.write_u8(u8::from(matches!(tail, Tail::Rest(_)))),
        }
    }

    /// A key that two patterns share if neither comes first: the segments without their names, without case where it
    /// is ignored. All regexes share one.
    pub(in super::super) fn shape_key(&self) -> String {
        let Shape::Segments { segments, tail } = &self.shape else { return "~".to_owned() };
        let mut key = String::with_capacity(self.text.len());
        for segment in segments {
            key.push('/');
            match segment {
                Segment::Capture(_) => key.push_str("{}"),
                Segment::Folded(literal) => push(&mut key, literal, Case::Insensitive),
                Segment::Literal(literal) => push(&mut key, literal, Case::Sensitive),
                Segment::Part(part) => {
                    push(&mut key, &part.before, part.case);
                    key.push_str("{}");
                    push(&mut key, &part.after, part.case);
                }
            }
        }
        match tail {
            Tail::Exact => {}
            Tail::Raw(raw) => {
                key.push('/');
                push(&mut key, &raw.text, raw.case);
                key.push('*');
            }
            Tail::Rest(_) => key.push_str("/*"),
        }
        key
    }
}

// === impl Segment ===

impl Segment {
    /// What decides between two segments: the lesser comes first.
    fn key(&self) -> (u8, Reverse<usize>, Reverse<usize>) {
        match self {
            Self::Folded(_) | Self::Literal(_) => (0, Reverse(0), Reverse(0)),
            Self::Part(part) => {
                (1, Reverse(part.before.len() + part.after.len()), Reverse(part.before.len()))
            }
            Self::Capture(_) => (2, Reverse(0), Reverse(0)),
        }
    }
}

/// A text without case is marked by a space, which no canonical path holds.
fn push(key: &mut String, text: &[u8], case: Case) {
    // Writing to a string cannot fail.
    let _ = match case {
        Case::Insensitive => write!(key, " {}", text.to_ascii_lowercase().escape_ascii()),
        Case::Sensitive => write!(key, "{}", text.escape_ascii()),
    };
}

fn hash_folded(text: &[u8], hasher: &mut impl Hasher) {
    text.to_ascii_lowercase().hash(hasher);
    hasher.write_u8(2);
}
