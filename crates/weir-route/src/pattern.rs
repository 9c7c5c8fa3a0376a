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

use super::path::{self, Canonical, Slashes};

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
            None => parse_segments(text)?,
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

fn parse_segments(text: &str) -> Result<Shape, PatternError> {
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
mod tests {
    use super::super::testing::Pairs;
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn matches_what_it_says() {
        let cases: [(&str, &[&str], &[&str]); 14] = [
            ("/", &["/"], &["/a", ""]),
            ("/hello", &["/hello"], &["/hello/", "/hell", "/helloo", "/"]),
            ("/a/", &["/a/"], &["/a", "/a/b"]),
            ("/*", &["/", "/a", "/a/b/", "*"], &[]),
            ("/beta/*", &["/beta", "/beta/", "/beta/x", "/beta/x/y/"], &["/betax", "/bet", "/", "/betax/y"]),
            ("/spot/{rest*}", &["/spot", "/spot/", "/spot/a/b"], &["/spots"]),
            ("/{rest*}", &["/", "/a/b"], &[]),
            ("/u/{id}", &["/u/7", "/u/%2F"], &["/u", "/u/", "/u/7/", "/u/7/x"]),
            ("/u/{id}/", &["/u/7/"], &["/u/7", "/u//"]),
            ("/{a}/x/{b}/*", &["/1/x/2", "/1/x/2/3"], &["/1/x", "/1/x/", "/1/y/2"]),
            ("~/v[0-9]+/.*", &["/v1/", "/v22/a/b"], &["/v/", "/v1", "x/v1/"]),
            ("~^/a|/b$", &["/a", "/b"], &["/ab", "/a/b", "/a\n"]),
            ("~(?i)/Ab", &["/ab", "/AB"], &["/abc"]),
            ("~.*", &["/", "/x/y"], &[]),
        ];
        for (text, hits, misses) in cases {
            let pattern = pattern(text);
            for path in hits {
                assert!(pattern.matches(path.as_bytes()), "{text} should match {path}");
            }
            for path in misses {
                assert!(!pattern.matches(path.as_bytes()), "{text} should not match {path}");
                assert!(
                    pattern.captures(path.as_bytes()).is_none(),
                    "{text} should capture nothing in {path}"
                );
            }
        }
    }

    #[test]
    fn captures_by_name() {
        let cases: [(&str, &str, Pairs<'_>); 7] = [
            ("/spot/{rest*}", "/spot", &[("rest", "")]),
            ("/spot/{rest*}", "/spot/", &[("rest", "")]),
            ("/spot/{rest*}", "/spot/a/b", &[("rest", "a/b")]),
            ("/{rest*}", "/", &[("rest", "")]),
            ("/u/{id}/{rest*}", "/u/7/x/", &[("id", "7"), ("rest", "x/")]),
            ("~/v(?<major>[0-9]+)/(?P<rest>.*)", "/v2/x/y", &[("major", "2"), ("rest", "x/y")]),
            ("~/a(?<b>b)?", "/a", &[]),
        ];
        for (text, path, want) in cases {
            let pattern = pattern(text);
            let captures = pattern.captures(path.as_bytes()).unwrap();
            let got: Vec<_> = captures.iter().map(|(n, v)| (n, std::str::from_utf8(v).unwrap())).collect();
            assert_eq!(got, want, "{text} on {path}");
            for (name, value) in want {
                assert_eq!(captures.get(name), Some(value.as_bytes()));
            }
            assert_eq!(captures.get("absent"), None);
        }
        assert_eq!(pattern("/a/{b}/{c*}").capture_names(), ["b", "c"]);
    }

    #[test]
    fn says_what_it_expected() {
        let cases = [
            ("", "empty"),
            ("hello", "begin with `/`"),
            ("*", "begin with `/`"),
            ("/a//b", "slashes: keep"),
            ("//", "slashes: keep"),
            ("/a/*/b", "`{name}`"),
            ("/a/{rest*}/b", "`{name}`"),
            ("/a*", "`/beta/*`"),
            ("/a/*.html", "~regex"),
            ("/f/{name}.json", "whole segment"),
            ("/f/{a}{b}", "whole segment"),
            ("/f/{", "whole segment"),
            ("/f/{}", "letter"),
            ("/f/{1a}", "letter"),
            ("/f/{a-b}", "letter"),
            ("/{a}/{a}", "twice"),
            ("/%61bc", "write `/abc`"),
            ("/a/../b", "write `/b`"),
            ("/a%2fb", "write `/a%2Fb`"),
            ("/a|b", "write `/a%7Cb`"),
            ("/{x}/%61", "canonical"),
            ("/..", "climbs"),
            ("/a b", "write `/a%20b`"),
            ("/é", "write `/%C3%A9`"),
            ("/a?b=1", "`?`"),
            ("/a%zz", "hex digits"),
            ("~/a(", "malformed: unclosed group"),
            ("~users/.*", "begins with `/`"),
            ("~", "begins with `/`"),
            (r"~/\p{Greek}", "malformed"),
            ("~/(a{1000}){1000}", "1 MiB"),
        ];
        for (text, want) in cases {
            let error = Pattern::parse(text).expect_err(text).to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn regexes_with_different_prefixes_exclude_each_other() {
        let excludes = |a: &str, b: &str| {
            let (Shape::Regex(a), Shape::Regex(b)) = (pattern(a).shape, pattern(b).shape) else {
                unreachable!()
            };
            a.excludes(&b) && b.excludes(&a)
        };
        assert!(excludes("~/a/[0-9]+", "~/b/[0-9]+"));
        assert!(excludes("~/(a|b)/x", "~/(c|d)/x"));
        assert!(!excludes("~/a/[0-9]+", "~/a/[a-z]+"));
        assert!(!excludes("~/a.*", "~/ab"));
        assert!(!excludes("~.*", "~/b"));
    }
}
