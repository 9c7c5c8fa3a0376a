//! Texts for a regular expression: a few that it matches, and many at its edges, which it may match or not.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::collections::HashSet;

/// Most samples of a pattern.
const MAX: usize = 6;
/// Most texts at the edges of a pattern.
const MAX_EDGES: usize = 96;
/// Most repetitions in one of them, and most ranges of a class that are looked at.
const MAX_REPEATED: u32 = 70;
const MAX_RANGES: usize = 8;
/// Longest sample.
const MAX_CHARS: usize = 200;
/// Deepest nesting.
const MAX_DEPTH: u32 = 60;

/// Texts that `pattern` finds itself in. Empty if Rust cannot read it.
pub(crate) fn samples(pattern: &str) -> Vec<String> {
    let Some(hir) = parsed(pattern) else { return Vec::new() };
    let mut found = of(&hir);
    found.dedup();
    found
}

fn parsed(pattern: &str) -> Option<Hir> {
    let of = |unicode| {
        let mut builder = ParserBuilder::new();
        builder.nest_limit(MAX_DEPTH).unicode(unicode).utf8(unicode).build().parse(pattern).ok()
    };
    // Without the tables of Unicode's cases, `(?i)` is for ASCII alone.
    of(true).or_else(|| of(false))
}

/// Texts at the edges of `pattern`: one that it matches, with one part changed in each. Every branch, the ends of each
/// class of characters and their neighbors, one repetition more and one less, another case, another sign for an escaped
/// one. A regular expression that differs in one place decides otherwise about one of them. Empty if Rust cannot read
/// the pattern.
pub(crate) fn edges(pattern: &str) -> Vec<String> {
    let Some(hir) = parsed(pattern) else { return Vec::new() };
    let (base, mut found) = around(&hir);
    // An anchor that was lost, in texts and in paths.
    found.truncate(MAX_EDGES - 4);
    found.splice(0..0, [base.clone(), format!("x{base}"), format!("{base}x"), format!("/w{base}")]);
    let mut seen = HashSet::new();
    found.retain(|text| text.len() <= MAX_CHARS && seen.insert(text.clone()));
    found.truncate(MAX_EDGES);
    found
}

/// A text that the expression matches, and texts at its edges.
fn around(hir: &Hir) -> (String, Vec<String>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => (String::new(), Vec::new()),
        HirKind::Literal(literal) => {
            let text = String::from_utf8_lossy(&literal.0).into_owned();
            let mut edges = vec![swapped(&text)];
            // An escaped dot that lost its escape.
            if let Some(at) = text.find(|c: char| c.is_ascii_punctuation() && c != '/') {
                edges.push(format!("{}x{}", &text[..at], &text[at + 1..]));
            }
            edges.extend(text.char_indices().next_back().map(|(at, _)| text[..at].to_owned()));
            (text, edges)
        }
        HirKind::Class(class) => around_class(class),
        HirKind::Capture(capture) => around(&capture.sub),
        HirKind::Repetition(repetition) => {
            let (one, edges) = around(&repetition.sub);
            let (least, most) = (repetition.min, repetition.max);
            let usual = least.clamp(1, MAX_REPEATED);
            // Nested repetitions multiply: what is too long is cut, and left out in the end.
            let most_times = 2 * MAX_CHARS / one.len().max(1) + 1;
            let times = |n: u32| one.repeat((n as usize).min(most_times));
            let mut counts = vec![least.saturating_sub(1), least, least + 1];
            match most {
                Some(most) => counts.extend([most.saturating_sub(1), most, most.saturating_add(1)]),
                None => counts.push(least + 40),
            }
            let mut found: Vec<String> =
                counts.into_iter().filter(|n| *n <= MAX_REPEATED).map(times).collect();
            for edge in edges {
                found.push(format!("{edge}{}", times(usual - 1)));
                if usual > 1 {
                    found.push(format!("{}{edge}", times(usual - 1)));
                }
            }
            (times(usual), cut_to(found, MAX_EDGES))
        }
        HirKind::Concat(parts) => {
            let parts: Vec<(String, Vec<String>)> = parts.iter().map(around).collect();
            let whole: String = parts.iter().map(|(base, _)| &**base).collect();
            let mut found = Vec::new();
            for (at, (_, edges)) in parts.iter().enumerate() {
                let before: String = parts[..at].iter().map(|(base, _)| &**base).collect();
                let behind: String = parts[at + 1..].iter().map(|(base, _)| &**base).collect();
                found.extend(edges.iter().map(|edge| format!("{before}{edge}{behind}")));
            }
            (whole, cut_to(found, MAX_EDGES))
        }
        HirKind::Alternation(branches) => {
            let all: Vec<(String, Vec<String>)> = branches.iter().map(around).collect();
            let base = all.first().map(|(base, _)| base.clone()).unwrap_or_default();
            let mut found: Vec<String> = all.iter().map(|(base, _)| base.clone()).collect();
            found.extend(all.into_iter().flat_map(|(_, edges)| edges));
            (base, cut_to(found, MAX_EDGES))
        }
    }
}

/// The ends of each range of a class, and their neighbors.
fn around_class(class: &Class) -> (String, Vec<String>) {
    let base = of_class(class).pop().unwrap_or_default();
    let ranges: Vec<(u32, u32)> = match class {
        Class::Unicode(class) => class.iter().map(|r| (u32::from(r.start()), u32::from(r.end()))).collect(),
        Class::Bytes(class) => class.iter().map(|r| (u32::from(r.start()), u32::from(r.end()))).collect(),
    };
    let ranges: Vec<(u32, u32)> = ranges.into_iter().filter(|(from, _)| *from < 0x7f).collect();
    let is_letter =
        |(from, to): &(u32, u32)| from == to && u8::try_from(*from).is_ok_and(|b| b.is_ascii_alphabetic());
    // A letter in both cases, by `(?i)`: its other case, and another letter.
    if ranges.len() == 2 && ranges.iter().all(is_letter) && ranges[0].0 + 32 == ranges[1].0 {
        let other = swapped(&base);
        return (base, vec![other, "-".to_owned()]);
    }
    let near = |(from, to): (u32, u32)| [from, to, from.wrapping_sub(1), to.wrapping_add(1)];
    let printable = |code: u32| char::from_u32(code).filter(char::is_ascii_graphic);
    let found = ranges.into_iter().take(MAX_RANGES).flat_map(near).filter_map(printable).map(String::from);
    (base, found.collect())
}

/// The same text with its letters in the other case.
pub(super) fn swapped(text: &str) -> String {
    let swap = |c: char| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
    text.chars().map(swap).collect()
}

fn cut_to(mut found: Vec<String>, most: usize) -> Vec<String> {
    found.truncate(most);
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

    /// Each pair of patterns differs in one place; some text at the edges of either tells them apart.
    #[test]
    fn edges_tell_patterns_apart() {
        let pairs = [
            ("^/(a|b|c|d|e|f|g)$", "^/(a|b|c|d|e|f)$"),
            ("^/(en|de|fr|it|es|pt|nl|pl)/", "^/(en|de|fr|it|es|pt|nl|xx)/"),
            ("^/[a-f]+$", "^/[a-g]+$"),
            ("^/[a-f]+$", "^/[a-e]+$"),
            ("^/[0-9a-f]{4,6}$", "^/[0-9a-f]{4,7}$"),
            ("^/[0-9a-f]{4,6}$", "^/[0-9a-f]{4,5}$"),
            ("^/[0-9a-f]{4,6}$", "^/[0-9a-f]{3,6}$"),
            ("^/[0-9a-f]{4,6}$", "^/[0-9a-f]{5,6}$"),
            ("^/x[0-9]+$", "^/x[0-9]*$"),
            ("^/x[0-9]?$", "^/x[0-9]*$"),
            ("^/x[0-9]+$", "^/x[0-9]{1,30}$"),
            (r"\.php$", ".php$"),
            ("(?i)^/admin", "^/admin"),
            ("^/a[!-.0-~]*$", "^/a[!-~]*$"),
            (r"^/a[0-9a-z.]*$", r"^/a[0-9a-z]*$"),
            ("^/about$", "/about$"),
            ("^yes", "yes"),
            ("^(GET|POST)$", "^(GET|POST)"),
        ];
        for (one, other) in pairs {
            let regex = |pattern| regex::bytes::RegexBuilder::new(pattern).unicode(false).build().unwrap();
            let regexes = [one, other].map(regex);
            let found: Vec<String> = [one, other].into_iter().flat_map(edges).collect();
            let apart = found
                .iter()
                .find(|text| regexes[0].is_match(text.as_bytes()) != regexes[1].is_match(text.as_bytes()));
            assert!(apart.is_some(), "{one} and {other}: {found:?}");
        }
        let long = format!("^/({})$", (0..500).map(|n| n.to_string()).collect::<Vec<_>>().join("|"));
        assert!((90..=MAX_EDGES).contains(&edges(&long).len()));
        assert!(edges(&"(".repeat(100_000)).is_empty());
        assert!(edges("(((((a{60}){60}){60}){60}){60})").len() <= MAX_EDGES);
    }

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
