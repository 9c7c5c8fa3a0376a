//! Path patterns: the parsed `path:` of a route.
//!
//! | written | matches | captures |
//! |---|---|---|
//! | `/hello` | this path, no other (`/hello/` is another) | |
//! | `/users/{id}` | one non-empty segment in place of `{id}` | `id` |
//! | `/beta/*` | `/beta`, `/beta/` and all below; never `/betax` | |
//! | `/spot/{rest*}` | like `/spot/*` | `rest`: what follows `/spot/`, empty where nothing does |
//! | `~/v[0-9]+/(?<rest>.*)` | the whole path, on bytes | the named groups |
//! | `/*` | every path | |

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, literal::Extractor};
use smallvec::SmallVec;

mod parse;

/// Memory limit of one compiled regular expression, and of its lazy automaton's cache in each thread that runs it.
pub const REGEX_BYTES: usize = 1 << 20;

/// Most literal prefixes extracted from a regular expression to distinguish it from others.
const REGEX_PREFIXES: usize = 32;

/// A route's path pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    pub(super) shape: Shape,
}

/// Why a text is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

impl PatternError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl std::error::Error for PatternError {}

/// The structure of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// Boxed: few patterns are regexes, and a table holds thousands.
    Regex(Box<PathRegex>),
    Segments {
        segments: Box<[Segment]>,
        tail: Tail,
    },
}

/// A part between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Capture(Box<str>),
    Literal(Box<[u8]>),
}

/// What may follow the segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing: the segments are the whole path.
    Exact,
    /// Nothing, or a slash and anything. It has a name if it is captured.
    Rest(Option<Box<str>>),
}

/// A regular expression over the whole path.
#[derive(Clone, Debug)]
pub(super) struct PathRegex {
    pub(super) regex: Regex,
    pub(super) hir: Hir,
    /// Every match begins with one of these; empty if nothing is known.
    pub(super) prefixes: Vec<Box<[u8]>>,
    /// The common start of all `prefixes`.
    pub(super) prefix: Box<[u8]>,
}

// === impl Pattern ===

impl Pattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let shape = match text.strip_prefix('~') {
            Some(regex) => Shape::Regex(Box::new(PathRegex::parse(regex)?)),
            None => parse::parse_segments(text)?,
        };
        Ok(Self { text: text.into(), shape })
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches a canonical path. [`Table::find`](super::Table::find) does not try each pattern;
    /// this does.
    pub fn matches(&self, path: &[u8]) -> bool {
        match &self.shape {
            Shape::Regex(regex) => regex.matches(path),
            Shape::Segments { segments, tail } => walk(segments, tail, path, |_, _| ()),
        }
    }

    /// What the pattern captures in a canonical path; `None` if it does not match.
    ///
    /// Capturing segments needs no allocation (up to four names); a regular expression allocates.
    #[inline]
    pub fn captures<'t, 'p>(&'t self, path: &'p [u8]) -> Option<Captures<'t, 'p>> {
        let mut found = SmallVec::new();
        match &self.shape {
            Shape::Regex(regex) => {
                let groups = regex.regex.captures(path)?;
                for (group, name) in groups.iter().zip(regex.regex.capture_names()) {
                    let (Some(group), Some(name)) = (group, name) else { continue };
                    found.push((name, group.range()));
                }
            }
            Shape::Segments { segments, tail } => {
                walk(segments, tail, path, |name, range| found.push((name, range))).then_some(())?;
            }
        }
        Some(Captures { path, found })
    }

    /// The captured names, in the order of the pattern.
    pub fn capture_names(&self) -> Vec<&str> {
        match &self.shape {
            Shape::Regex(regex) => regex.regex.capture_names().flatten().collect(),
            Shape::Segments { segments, tail } => {
                let in_segments = segments.iter().filter_map(|segment| match segment {
                    Segment::Capture(name) => Some(&**name),
                    Segment::Literal(_) => None,
                });
                let in_tail = match tail {
                    Tail::Rest(Some(name)) => Some(&**name),
                    Tail::Exact | Tail::Rest(None) => None,
                };
                in_segments.chain(in_tail).collect()
            }
        }
    }

    /// Which of two patterns *that match one path* comes first: `Less` means `self`.
    ///
    /// Exact before regex before prefix. Exact ones compare segment by segment, a literal before a `{name}`; prefixes
    /// by length, then segment by segment. Two regexes are equal.
    pub(super) fn precedence(&self, other: &Self) -> Ordering {
        let class = |pattern: &Self| match &pattern.shape {
            Shape::Segments { tail: Tail::Exact, .. } => 0,
            Shape::Regex(_) => 1,
            Shape::Segments { tail: Tail::Rest(_), .. } => 2,
        };
        class(self).cmp(&class(other)).then_with(|| {
            let (Shape::Segments { segments: a, .. }, Shape::Segments { segments: b, .. }) =
                (&self.shape, &other.shape)
            else {
                return Ordering::Equal;
            };
            let capture = |segment: &Segment| matches!(segment, Segment::Capture(_));
            b.len().cmp(&a.len()).then_with(|| a.iter().map(capture).cmp(b.iter().map(capture)))
        })
    }

    /// Hashes the contents of [`shape_key`](Self::shape_key).
    pub(super) fn hash_shape(&self, hasher: &mut impl Hasher) {
        let Shape::Segments { segments, tail } = &self.shape else { return };
        for segment in segments {
            match segment {
                Segment::Capture(_) => hasher.write_u8(0),
                Segment::Literal(literal) => literal.hash(hasher),
            }
        }
        hasher.write_u8(u8::from(matches!(tail, Tail::Rest(_))));
    }

    /// A key that two patterns share if neither comes first: the segments without their names. All regexes share one.
    pub(super) fn shape_key(&self) -> String {
        let Shape::Segments { segments, tail } = &self.shape else { return "~".to_owned() };
        let mut key = String::with_capacity(self.text.len());
        for segment in segments {
            match segment {
                Segment::Capture(_) => key.push_str("/{}"),
                Segment::Literal(literal) => {
                    // Writing to a string cannot fail.
                    let _ = write!(key, "/{}", literal.escape_ascii());
                }
            }
        }
        if matches!(tail, Tail::Rest(_)) {
            key.push_str("/*");
        }
        key
    }
}

/// Follows the segments along `path` and reports each capture. Returns whether the pattern matches.
fn walk<'t>(
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
        match segment {
            Segment::Capture(_) if length == 0 => return false,
            Segment::Capture(name) => capture(name, start..start + length),
            Segment::Literal(literal) if text.get(..length) != Some(literal) => return false,
            Segment::Literal(_) => {}
        }
        at = start + length;
    }
    match tail {
        Tail::Exact => at == path.len(),
        Tail::Rest(name) => {
            if let Some(name) = name {
                capture(name, (at + 1).min(path.len())..path.len());
            }
            true
        }
    }
}

// === impl PathRegex ===

impl PathRegex {
    fn parse(text: &str) -> Result<Self, PatternError> {
        let hir = parse_hir(text)?;
        let prefixes = Extractor::new().limit_total(REGEX_PREFIXES).extract(&hir);
        let literals = prefixes.literals().unwrap_or_default();
        let absolute = prefixes.literals().is_none_or(|literals| {
            literals.iter().any(|l| l.as_bytes().first().map_or(!l.is_exact(), |&first| first == b'/'))
        });
        if !absolute {
            return Err(PatternError::new(
                "the regular expression matches no path, because every path begins with `/`",
                "it is matched against the whole path, as in `~/users/[0-9]+`",
            ));
        }
        Ok(Self {
            regex: compile_regex(text)?,
            prefix: prefixes.longest_common_prefix().unwrap_or_default().into(),
            prefixes: literals.iter().map(|literal| literal.as_bytes().into()).collect(),
            hir,
        })
    }

    /// Whether the regex matches the whole path. The prefix is checked first because it needs no automaton.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        path.starts_with(&self.prefix) && self.regex.is_match(path)
    }

    /// Whether no path can match both, judging by their literal prefixes.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        let apart = |a: &[u8], b: &[u8]| !a.starts_with(b) && !b.starts_with(a);
        let known = !self.prefixes.is_empty() && !other.prefixes.is_empty();
        known && self.prefixes.iter().all(|a| other.prefixes.iter().all(|b| apart(a, b)))
    }
}

/// Parses a regular expression on bytes; `.` is any byte but a line feed, `\d` and `\w` are ASCII.
pub(super) fn parse_hir(text: &str) -> Result<Hir, PatternError> {
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(text);
    parsed.map_err(|error| regex_error(&error.to_string()))
}

/// Compiles a regular expression that must match its whole input.
pub(super) fn compile_regex(text: &str) -> Result<Regex, PatternError> {
    RegexBuilder::new(&format!("^(?:{text})$"))
        .unicode(false)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES)
        .build()
        .map_err(|error| regex_error(&error.to_string()))
}

fn regex_error(error: &str) -> PatternError {
    // The parser draws a picture over several lines; the last one says what is wrong.
    let reason = error.lines().last().unwrap_or(error).trim_start_matches("error: ");
    PatternError::new(
        format!("the regular expression is malformed: {reason}"),
        "syntax: https://docs.rs/regex/#syntax, on bytes (no Unicode classes), at most 1 MiB compiled",
    )
}

// === impl Captures ===

/// The named pieces of a path.
#[derive(Clone, Debug, Default)]
pub struct Captures<'t, 'p> {
    path: &'p [u8],
    found: SmallVec<[(&'t str, Range<usize>); 4]>,
}

impl<'t, 'p> Captures<'t, 'p> {
    /// The bytes that `name` captured.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&'p [u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Every name with its bytes, in the order of the pattern.
    pub fn iter(&self) -> impl Iterator<Item = (&'t str, &'p [u8])> {
        self.found.iter().filter_map(|(name, range)| Some((*name, self.path.get(range.clone())?)))
    }
}

#[cfg(test)]
mod tests;
