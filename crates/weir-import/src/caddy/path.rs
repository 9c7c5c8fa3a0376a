//! Caddy's patterns of paths, which ignore case: what they take, and what two of them take together.

use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::path::canonical;
use crate::shared::regex::{Searching, Subject, literal};
use crate::yaml::{Map, VARIABLE_BEGIN};
use regex::bytes::{Regex, RegexBuilder};

/// A pattern, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Any,
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    /// A regex for the whole path, and the text that it begins with.
    Glob(String, String),
}

/// A path that a request is known to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    #[default]
    Any,
    /// In lower case, decoded.
    Exact(String),
    Prefix(String),
    /// As Weir writes it, with the text that it begins with in lower case, and the name of its captures.
    Regex {
        whole: String,
        start: String,
        name: Option<String>,
    },
}

/// Whether something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Always,
    Never,
    Maybe,
}

impl Pattern {
    /// Reads a pattern.
    pub(super) fn read(text: &str) -> Self {
        let lower = text.to_lowercase();
        let stars = lower.matches('*').count();
        match (lower.strip_prefix('*'), lower.strip_suffix('*')) {
            _ if lower == "*" || lower == "/*" => Self::Any,
            (Some(_), Some(_)) if stars == 2 && lower.len() > 2 => {
                Self::Contains(lower[1..lower.len() - 1].to_owned())
            }
            (Some(rest), _) if stars == 1 => Self::Suffix(rest.to_owned()),
            (_, Some(start)) if stars == 1 => Self::Prefix(start.to_owned()),
            _ if stars == 0 && !lower.contains(['?', '[']) => Self::Exact(lower),
            _ => {
                let mut regex = String::new();
                for c in lower.chars() {
                    match c {
                        '*' => regex.push_str("[^/]*"),
                        '?' => regex.push_str("[^/]"),
                        '[' | ']' => regex.push(c),
                        c => regex.push_str(&literal(&canonical(c.encode_utf8(&mut [0; 4])))),
                    }
                }
                let start: String = lower.chars().take_while(|c| !matches!(c, '*' | '?' | '[')).collect();
                Self::Glob(regex, start)
            }
        }
    }

    /// The same pattern for paths that still have a prefix.
    pub(super) fn below(&self, prefix: &str) -> Self {
        match self {
            Self::Any => Self::Prefix(format!("{prefix}/")),
            Self::Exact(path) => Self::Exact(format!("{prefix}{path}")),
            Self::Prefix(path) => Self::Prefix(format!("{prefix}{path}")),
            Self::Glob(regex, start) => {
                Self::Glob(format!("{}{regex}", literal(&canonical(prefix))), format!("{prefix}{start}"))
            }
            other => other.clone(),
        }
    }

    /// Whether a path fits.
    pub(super) fn fits(&self, path: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => path == exact,
            Self::Prefix(start) => path.starts_with(start.as_str()),
            Self::Suffix(end) => path.ends_with(end.as_str()),
            Self::Contains(part) => path.contains(part.as_str()),
            Self::Glob(regex, _) => {
                whole(regex).is_some_and(|regex| regex.is_match(canonical(path).as_bytes()))
            }
        }
    }

    /// As a condition on the path that Weir sees.
    pub(super) fn expression(&self) -> Expression {
        let path = |text: &str| {
            let path = Expression::raw("request.path");
            match text.contains(|c: char| c.is_ascii_alphabetic()) {
                true => Expression::raw(format!("{}.lowerAscii()", path.as_str())),
                false => path,
            }
        };
        let lower = |text: &str| canonical(text).to_lowercase();
        match self {
            Self::Any => Expression::constant(true),
            Self::Exact(text) => path(text).equals(Expression::text(&lower(text))),
            Self::Prefix(text) => path(text).starts_with(&lower(text)),
            Self::Suffix(text) => path(text).ends_with(&lower(text)),
            Self::Contains(text) => path(text).contains(&lower(text)),
            Self::Glob(regex, _) => Expression::raw("request.path").matches(&format!("(?i)^{regex}$")),
        }
    }

    /// As a path of a route.
    fn known(&self) -> Known {
        let regex = |whole: String, start: &str| Known::Regex {
            whole: format!("(?i){whole}"),
            start: start.to_owned(),
            name: None,
        };
        match self {
            Self::Any => Known::Any,
            Self::Exact(path) => Known::Exact(path.clone()),
            Self::Prefix(path) => Known::Prefix(path.clone()),
            Self::Suffix(end) => regex(format!(".*{}", literal(&canonical(end))), ""),
            Self::Contains(part) => regex(format!(".*{}.*", literal(&canonical(part))), ""),
            Self::Glob(pattern, start) => regex(pattern.clone(), start),
        }
    }
}

impl Known {
    /// Whether a pattern fits every path, none, or some.
    pub(super) fn holds(&self, pattern: &Pattern) -> Holds {
        let maybe = |yes: bool, no: bool| match (yes, no) {
            (true, _) => Holds::Always,
            (_, true) => Holds::Never,
            _ => Holds::Maybe,
        };
        match (self, pattern) {
            (_, Pattern::Any) => Holds::Always,
            (Self::Exact(path), pattern) => maybe(pattern.fits(path), !pattern.fits(path)),
            (Self::Prefix(start), Pattern::Exact(path)) => maybe(false, !path.starts_with(start.as_str())),
            (Self::Prefix(start), Pattern::Prefix(other)) => {
                let apart = !start.starts_with(other.as_str()) && !other.starts_with(start.as_str());
                maybe(start.starts_with(other.as_str()), apart)
            }
            (Self::Prefix(start), Pattern::Glob(_, other)) => {
                maybe(false, !start.starts_with(other.as_str()) && !other.starts_with(start.as_str()))
            }
            (Self::Prefix(start), Pattern::Contains(part)) => maybe(start.contains(part.as_str()), false),
            (Self::Regex { start, .. }, Pattern::Prefix(other)) => {
                let apart = !start.starts_with(other.as_str()) && !other.starts_with(start.as_str());
                maybe(start.starts_with(other.as_str()), apart)
            }
            (Self::Regex { whole, .. }, pattern) => match pattern.known() {
                Self::Regex { whole: other, .. } => maybe(*whole == other, false),
                Self::Exact(path) => {
                    let fits =
                        whole_path(whole).is_none_or(|regex| regex.is_match(canonical(&path).as_bytes()));
                    maybe(false, !fits)
                }
                _ => Holds::Maybe,
            },
            _ => Holds::Maybe,
        }
    }

    /// What is known if the pattern fits too, and what must be asked besides.
    pub(super) fn and(&self, pattern: &Pattern) -> (Self, Option<Expression>) {
        let new = pattern.known();
        match (self, &new) {
            (Self::Any, _) => (new, None),
            (_, Self::Any) => (self.clone(), None),
            (_, Self::Exact(_)) => (new, None),
            (Self::Prefix(_), Self::Prefix(_)) => match self.holds(pattern) {
                Holds::Always => (self.clone(), None),
                _ => (new, None),
            },
            (Self::Regex { name: None, whole, .. }, Self::Prefix(_)) => {
                let asked = Expression::raw("request.path").matches(&format!("^(?:{whole})$"));
                (new, Some(asked))
            }
            _ => (self.clone(), Some(pattern.expression())),
        }
    }

    /// What is known if a searching regex fits too.
    pub(super) fn and_regex(
        &self,
        whole: String,
        start: String,
        name: String,
        asked: Expression,
    ) -> (Self, Option<Expression>) {
        let name = Some(name);
        match self {
            Self::Any => (Self::Regex { whole, start: start.to_lowercase(), name }, None),
            Self::Prefix(prefix) if start.starts_with(prefix.as_str()) => {
                (Self::Regex { whole, start: start.to_lowercase(), name }, None)
            }
            Self::Prefix(prefix) => (
                Self::Regex { whole, start: start.to_lowercase(), name },
                Some(Pattern::Prefix(prefix.clone()).expression()),
            ),
            Self::Exact(exact) => (
                Self::Regex { whole, start: start.to_lowercase(), name },
                Some(Pattern::Exact(exact.clone()).expression()),
            ),
            Self::Regex { .. } => (self.clone(), Some(asked)),
        }
    }
}

fn whole(regex: &str) -> Option<Regex> {
    whole_path(&format!("(?i){regex}"))
}

fn whole_path(written: &str) -> Option<Regex> {
    RegexBuilder::new(&format!("^(?:{written})$")).unicode(false).size_limit(1 << 20).build().ok()
}

/// `uri path_regexp PATTERN REPLACEMENT`. None for the merging of slashes, which Weir does itself.
///
/// # Errors
/// Why Weir has no such rewrite.
pub(super) fn replace(pattern: &str, with: &str) -> Result<Option<Filter>, String> {
    if matches!(pattern, "/{2,}" | "/+" | "//+") && with == "/" {
        return Ok(None);
    }
    // Caddy replaces every match; Weir the first.
    let is_once = (pattern.starts_with('^') || pattern.ends_with('$')) && !pattern.contains('|');
    if !is_once {
        return Err("Weir replaces the first match of a pattern, Caddy every one".to_owned());
    }
    if super::text::has_placeholder(with) || with.contains(['{', '}', VARIABLE_BEGIN]) {
        return Err("the replacement is not fixed".to_owned());
    }
    let groups = with.split('$').skip(1);
    let is_number = |rest: &str| {
        let mut chars = rest.chars();
        chars.next().is_some_and(|c| c.is_ascii_digit())
            && !chars.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !groups.into_iter().all(is_number) {
        return Err("the replacement names groups in a way that Weir does not read".to_owned());
    }
    let regex = Searching::read(pattern, false, Subject::Path)?;
    Ok(Some(Filter::new("rewrite", Map::new().with("replace", Map::new().with(regex.searching(), with)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_caddy_reads_them() {
        let cases = [
            ("*", Pattern::Any),
            ("/A", Pattern::Exact("/a".to_owned())),
            ("/a/*", Pattern::Prefix("/a/".to_owned())),
            ("/a*", Pattern::Prefix("/a".to_owned())),
            ("*.php", Pattern::Suffix(".php".to_owned())),
            ("*/x/*", Pattern::Contains("/x/".to_owned())),
            ("/a/*/b", Pattern::Glob("/a/[^/]*/b".to_owned(), "/a/".to_owned())),
        ];
        for (text, pattern) in cases {
            assert_eq!(Pattern::read(text), pattern, "{text}");
        }
        assert!(Pattern::read("/a/*/b").fits("/a/x/b"));
        assert!(!Pattern::read("/a/*/b").fits("/a/x/y/b"));
    }

    #[test]
    fn what_is_known_decides() {
        let api = Known::Prefix("/api/".to_owned());
        let holds = |text: &str| api.holds(&Pattern::read(text));
        assert_eq!(holds("/api/*"), Holds::Always);
        assert_eq!(holds("/ap*"), Holds::Always);
        assert_eq!(holds("/api/v1/*"), Holds::Maybe);
        assert_eq!(holds("/other/*"), Holds::Never);
        assert_eq!(holds("/api"), Holds::Never);
        assert_eq!(holds("*.js"), Holds::Maybe);
        assert_eq!(api.and(&Pattern::read("/api/v1/*")).0, Known::Prefix("/api/v1/".to_owned()));
        let (known, asked) = api.and(&Pattern::read("*.js"));
        assert_eq!(known, api);
        assert_eq!(asked.unwrap().as_str(), "request.path.lowerAscii().endsWith(\".js\")");
    }
}
