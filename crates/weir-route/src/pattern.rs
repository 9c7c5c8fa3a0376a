//! Path patterns: the parsed `path:` of a route.
//!
//! | written | matches | captures |
//! |---|---|---|
//! | `/hello` | this path, no other (`/hello/` is another) | |
//! | `/users/{id}` | one non-empty segment in place of `{id}` | `id` |
//! | `/users/{id}.json` | a segment with this end and something before it | `id`: what is before it |
//! | `/beta/*` | `/beta`, `/beta/` and all below; never `/betax` | |
//! | `/spot/{rest*}` | like `/spot/*` | `rest`: what follows `/spot/`, empty where nothing does |
//! | `/beta*` | every path that begins with these bytes: `/beta`, `/betax`, `/beta/x` | |
//! | `~/v[0-9]+/(?<rest>.*)` | the whole path, on bytes | the groups, by name or number: `rest` |
//! | `/*` | every path | |

use std::fmt;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, literal::Extractor};
use smallvec::SmallVec;

mod order;
mod parse;
mod segments;

pub(super) use self::order::{Class, Step};
pub(super) use self::segments::between;

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

/// Whether a route compares the letters of its path as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Case {
    /// ASCII letters are compared without case.
    Insensitive,
    /// They are compared exactly.
    #[default]
    Sensitive,
}

/// A part between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Capture(Box<str>),
    /// A literal with letters, as written, of a route that ignores case.
    Folded(Box<[u8]>),
    Literal(Box<[u8]>),
    /// Boxed: few segments have a capture within.
    Part(Box<Part>),
}

/// A segment with a capture and literal text before it, after it, or both.
///
/// What is captured is never empty, `.` or `..`, so that no text made of it has a dot segment. An escape such as `%2F`
/// belongs to one side as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) before: Box<[u8]>,
    pub(super) name: Box<str>,
    pub(super) after: Box<[u8]>,
    /// `Sensitive` if neither text has a letter.
    pub(super) case: Case,
}

/// `beta*`: the last text of a raw prefix, after its last slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) text: Box<[u8]>,
    /// `Sensitive` if the text has no letter.
    pub(super) case: Case,
}

/// What may follow the segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing: the segments are the whole path.
    Exact,
    /// A slash, this text, and anything.
    Raw(Box<Raw>),
    /// Nothing, or a slash and anything. It has a name if it is captured.
    Rest(Option<Box<str>>),
}

/// A regular expression over the whole path.
#[derive(Clone, Debug)]
pub(super) struct PathRegex {
    pub(super) regex: Regex,
    /// The names of its groups; the number of those that have no name.
    groups: Vec<Box<str>>,
    pub(super) hir: Hir,
    /// Every match begins with one of these; empty if nothing is known.
    pub(super) prefixes: Vec<Box<[u8]>>,
    /// The common start of all `prefixes`.
    pub(super) prefix: Box<[u8]>,
}

// === impl Pattern ===

impl Pattern {
    /// Parses a pattern.
    pub fn parse(text: &str, case: Case) -> Result<Self, PatternError> {
        let shape = match text.strip_prefix('~') {
            Some(_) if case == Case::Insensitive => {
                return Err(PatternError::new(
                    "`case: insensitive` does not apply to a regular expression",
                    "leave `case` out, and begin the expression with `(?i)`, as in `~(?i)/users/[0-9]+`",
                ));
            }
            Some(regex) => Shape::Regex(Box::new(PathRegex::parse(regex)?)),
            None => parse::parse_segments(text, case)?,
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
            Shape::Segments { segments, tail } => segments::walk(segments, tail, path, |_, _| ()),
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
                for (group, name) in groups.iter().skip(1).zip(&regex.groups) {
                    found.extend(group.map(|group| (&**name, group.range())));
                }
            }
            Shape::Segments { segments, tail } => {
                segments::walk(segments, tail, path, |name, range| found.push((name, range))).then_some(())?;
            }
        }
        Some(Captures { path, found })
    }

    /// The captured names, in the order of the pattern.
    pub fn capture_names(&self) -> Vec<&str> {
        match &self.shape {
            Shape::Regex(regex) => regex.groups.iter().map(|name| &**name).collect(),
            Shape::Segments { segments, tail } => {
                let in_segments = segments.iter().filter_map(|segment| match segment {
                    Segment::Capture(name) => Some(&**name),
                    Segment::Part(part) => Some(&*part.name),
                    Segment::Folded(_) | Segment::Literal(_) => None,
                });
                let in_tail = match tail {
                    Tail::Rest(name) => name.as_deref(),
                    Tail::Exact | Tail::Raw(_) => None,
                };
                in_segments.chain(in_tail).collect()
            }
        }
    }

    /// Whether it is `/*`.
    pub(super) fn is_everything(&self) -> bool {
        matches!(&self.shape, Shape::Segments { segments, tail: Tail::Rest(_) } if segments.is_empty())
    }

    /// Whether the path is compared without case. Never for a path without letters.
    pub(super) fn ignores_case(&self) -> bool {
        let Shape::Segments { segments, tail } = &self.shape else { return false };
        let folded = |segment: &Segment| match segment {
            Segment::Folded(_) => true,
            Segment::Part(part) => part.case == Case::Insensitive,
            Segment::Capture(_) | Segment::Literal(_) => false,
        };
        segments.iter().any(folded) || matches!(tail, Tail::Raw(raw) if raw.case == Case::Insensitive)
    }

    /// Whether it compares something other than whole segments and exact letters.
    pub(super) fn is_partial(&self) -> bool {
        let Shape::Segments { segments, tail } = &self.shape else { return false };
        matches!(tail, Tail::Raw(_))
            || segments.iter().any(|segment| matches!(segment, Segment::Folded(_) | Segment::Part(_)))
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
        let regex = compile_regex(text)?;
        let name =
            |(number, name): (usize, Option<&str>)| name.map_or_else(|| number.to_string(), str::to_owned);
        Ok(Self {
            groups: regex.capture_names().enumerate().skip(1).map(|group| name(group).into()).collect(),
            regex,
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
