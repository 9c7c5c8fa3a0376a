//! Texts that a regular expression matches: a few, so that each branch occurs.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Most samples of a pattern.
const MAX: usize = 6;
/// Longest sample.
const MAX_CHARS: usize = 200;
/// Deepest nesting.
const MAX_DEPTH: u32 = 60;

/// Texts that `pattern` finds itself in. Empty if Rust cannot read it.
pub(crate) fn samples(pattern: &str) -> Vec<String> {
    let parsed = ParserBuilder::new().nest_limit(MAX_DEPTH).build().parse(pattern);
    let Ok(hir) = parsed else { return Vec::new() };
    let mut found = of(&hir);
    found.dedup();
    found
}

fn of(hir: &Hir) -> Vec<String> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => vec![String::new()],
        HirKind::Literal(literal) => vec![String::from_utf8_lossy(&literal.0).into_owned()],
        HirKind::Class(class) => of_class(class),
        HirKind::Capture(capture) => of(&capture.sub),
        HirKind::Repetition(repetition) => {
            let inner = of(&repetition.sub);
            let least = repetition.min.min(20) as usize;
            let mut found = Vec::new();
            if least == 0 {
                found.push(String::new());
            }
            if repetition.max != Some(0) {
                found.extend(inner.iter().map(|one| one.repeat(least.max(1))));
            }
            // Something of it is a better sample than nothing.
            let first = usize::from(least == 0 && found.len() > 1);
            found.rotate_left(first);
            cut(found)
        }
        HirKind::Concat(parts) => {
            let parts: Vec<Vec<String>> = parts.iter().map(of).collect();
            let most = parts.iter().map(Vec::len).max().unwrap_or(0).min(MAX);
            // The n-th of each part, so that all branches occur without multiplying them.
            let nth =
                |n: usize| parts.iter().filter_map(|part| part.get(n.min(part.len() - 1))).cloned().collect();
            cut((0..most).map(nth).collect())
        }
        HirKind::Alternation(branches) => {
            cut(branches.iter().filter_map(|branch| of(branch).into_iter().next()).collect())
        }
    }
}

fn of_class(class: &Class) -> Vec<String> {
    let good = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let fits = |c: char| match class {
        Class::Unicode(class) => class.iter().any(|range| range.start() <= c && c <= range.end()),
        Class::Bytes(class) => {
            c.is_ascii() && class.iter().any(|range| range.start() <= c as u8 && c as u8 <= range.end())
        }
    };
    let preferred = ('a'..='z').chain('0'..='9').chain('A'..='Z').filter(good).chain("-_./".chars());
    let found: Vec<String> = preferred.filter(|c| fits(*c)).take(1).map(String::from).collect();
    if found.is_empty() { vec!["x".to_owned()] } else { found }
}

fn cut(mut found: Vec<String>) -> Vec<String> {
    found.retain(|text| text.len() <= MAX_CHARS);
    found.truncate(MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_branch_has_a_sample_that_fits() {
        for pattern in [r"\.php$", "^/(api|v1)/[0-9]+", "^/a/?$", r"/\.(ht|git)", "(x|y){2,3}z", "^/é"] {
            let regex = regex::RegexBuilder::new(pattern).unicode(false).build();
            let found = samples(pattern);
            assert!(!found.is_empty(), "{pattern}");
            if let Ok(regex) = regex {
                for text in &found {
                    assert!(regex.is_match(text), "{pattern}: {text}");
                }
            }
        }
        assert_eq!(samples(r"/\.(ht|git)"), ["/.ht", "/.git"]);
        assert_eq!(samples("(?=x)"), Vec::<String>::new());
        assert!(samples(&"(".repeat(100_000)).is_empty());
    }
}
