//! Regular expressions of other gateways: PCRE's syntax, and a match anywhere in the text.
//!
//! Weir's are those of Rust's regex crate, and match the whole text. What Rust's cannot say (look-around,
//! back-references) is refused with the reason; what it spells in another way is respelled.

use super::path;
use regex_syntax::ParserBuilder;
use std::fmt::Write;

/// Longest pattern that is looked at. The longest real one that we know has 2 KiB.
const MAX_BYTES: usize = 64 << 10;
/// Deepest nesting of groups.
const MAX_DEPTH: u32 = 100;

/// A regular expression that matches where it finds itself in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Searching {
    /// In Rust's syntax, without flags.
    pattern: String,
    /// Whether case counts.
    ignores_case: bool,
}

/// What a pattern is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A path, which Weir compares in canonical form: characters that a URL must escape are respelled so.
    Path,
    /// Any other text.
    Text,
}

impl Searching {
    /// Reads a pattern in PCRE's syntax.
    ///
    /// # Errors
    /// What Rust's regex crate lacks, or why the pattern is wrong.
    pub fn read(pattern: &str, ignores_case: bool, subject: Subject) -> Result<Self, String> {
        if pattern.len() > MAX_BYTES {
            return Err(format!("the pattern has {} bytes; at most {MAX_BYTES} are read", pattern.len()));
        }
        let (pattern, ignores_case) = match pattern.strip_prefix("(?i)") {
            Some(rest) => (rest, true),
            None => (pattern, ignores_case),
        };
        let spelled = without_look_ahead(pattern);
        let pattern = respell(spelled.as_deref().unwrap_or(pattern), subject)?;
        let mut parser = ParserBuilder::new().nest_limit(MAX_DEPTH).utf8(false).unicode(false).build();
        parser.parse(&pattern).map_err(|e| {
            let why = e.to_string();
            let last = why.lines().last().unwrap_or_default();
            format!("Weir cannot read the pattern: {}", last.trim_start_matches("error: "))
        })?;
        Ok(Self { pattern, ignores_case })
    }

    /// For `matches` of an expression, which searches too.
    #[must_use]
    pub fn searching(&self) -> String {
        self.flagged(&self.pattern)
    }

    /// For the places where Weir matches the whole text: routes, maps and values of fields.
    #[must_use]
    pub fn whole(&self) -> String {
        let mut inner = &*self.pattern;
        if has_alternatives(inner) {
            return self.flagged(&format!(".*(?:{inner}).*"));
        }
        let (mut before, mut behind) = (".*", ".*");
        if let Some(rest) = inner.strip_prefix('^') {
            (inner, before) = (rest, "");
        }
        if let Some(rest) = inner.strip_suffix('$').filter(|rest| !ends_escaped(rest)) {
            (inner, behind) = (rest, "");
        }
        // `^/a(.*)` and `^/a.*` match the rest already.
        if behind == ".*" && (inner.ends_with("(.*)") || inner.ends_with(".*") && !inner.ends_with("\\.*")) {
            behind = "";
        }
        if before == ".*" && inner.starts_with(".*") {
            before = "";
        }
        self.flagged(&format!("{before}{inner}{behind}"))
    }

    /// As [`Self::whole`], between `^` and `$` and so that its groups are those of the first place that it matches:
    /// for the places where Weir searches.
    #[must_use]
    pub fn whole_from_first(&self) -> String {
        let whole = self.whole();
        let (flag, bare) = match whole.strip_prefix("(?i)") {
            Some(bare) => ("(?i)", bare),
            None => ("", &*whole),
        };
        let is_own = self.pattern.starts_with(".*");
        let lazy = match bare.strip_prefix(".*").filter(|_| !is_own) {
            Some(rest) => format!(".*?{rest}"),
            None => bare.to_owned(),
        };
        format!("{flag}^{lazy}$")
    }

    /// Whether the pattern asks for nothing but the text that a match begins with.
    #[must_use]
    pub fn is_only_a_start(&self) -> bool {
        let start = format!("^{}", literal(&self.literal_start()));
        let written = self.pattern.replace("\\/", "/");
        let rest = written.strip_prefix(&start).or_else(|| written.strip_prefix(&start.replace("\\-", "-")));
        matches!(rest, Some("" | ".*" | "(.*)" | ".*$" | "(.*)$"))
    }

    /// Whether the pattern asks for nothing but the end of the last segment, such as `\.(png|jpe?g)$`.
    #[must_use]
    pub fn is_about_the_end(&self) -> bool {
        let whole = self.whole();
        let bare = whole.strip_prefix("(?i)").unwrap_or(&whole);
        bare.strip_prefix(".*").is_some_and(|rest| {
            !rest.ends_with(".*")
                && rest.replace("\\.", "").chars().all(|c| c.is_ascii_alphanumeric() || "()|?:_-".contains(c))
        })
    }

    /// The literal text that every match begins with, if the pattern is anchored at the start. Empty if unknown.
    #[must_use]
    pub fn literal_start(&self) -> String {
        let Some(rest) = self.pattern.strip_prefix('^').filter(|rest| !has_alternatives(rest)) else {
            return String::new();
        };
        let mut literal = String::new();
        let mut chars = rest.chars().peekable();
        while let Some(c) = chars.next() {
            let c = match c {
                '\\' => match chars.next() {
                    Some(c) if c.is_ascii_punctuation() => c,
                    _ => break,
                },
                c if "()[]{}.*+?|^$".contains(c) => break,
                c => c,
            };
            // A quantifier behind it makes it optional.
            if chars.peek().is_some_and(|next| "*?{".contains(*next)) {
                break;
            }
            literal.push(c);
        }
        literal
    }

    /// Whether the pattern has groups that are numbered or named.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.compiled().is_ok_and(|regex| regex.captures_len() > 1)
    }

    /// The pattern, compiled to search.
    ///
    /// # Errors
    /// If it is too large.
    pub fn compiled(&self) -> Result<regex::bytes::Regex, String> {
        regex::bytes::RegexBuilder::new(&self.searching())
            .unicode(false)
            .size_limit(1 << 20)
            .nest_limit(MAX_DEPTH)
            .build()
            .map_err(|e| format!("Weir cannot use the pattern: {e}"))
    }

    /// Whether letters are compared without case.
    #[must_use]
    pub const fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    fn flagged(&self, pattern: &str) -> String {
        if self.ignores_case { format!("(?i){pattern}") } else { pattern.to_owned() }
    }
}

/// A literal text as a part of a pattern.
#[must_use]
pub fn literal(text: &str) -> String {
    regex_syntax::escape(text)
}

/// PCRE's syntax as Rust's.
fn respell(pattern: &str, subject: Subject) -> Result<String, String> {
    let lacks = |what: &str| Err(format!("Weir's regular expressions take linear time and have no {what}"));
    let mut out = String::with_capacity(pattern.len());
    let mut in_class = false;
    let mut class_start = 0;
    let mut at = 0;
    while let Some(c) = pattern.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &pattern[at..];
        let next = rest[c.len_utf8()..].chars().next();
        let mut taken = c.len_utf8();
        match c {
            '\\' => {
                let Some(escaped) = next else { return Err("the pattern ends with a backslash".to_owned()) };
                taken += escaped.len_utf8();
                match escaped {
                    '1'..='9' if !in_class => return lacks("back-references"),
                    'k' | 'g' if !in_class => return lacks("back-references"),
                    'K' | 'G' | 'R' | 'X' | 'C' | 'Q' | 'E' => return lacks(&format!("`\\{escaped}`")),
                    'Z' => out.push_str("\\z"),
                    'h' => out.push_str(if in_class { " \\t" } else { "[ \\t]" }),
                    // Rust reads these as the edges of a word, PCRE as the characters.
                    '<' | '>' => out.push(escaped),
                    ' ' if subject == Subject::Path && !in_class => out.push_str("%20"),
                    c if c.is_ascii_alphanumeric() || is_meta(c) => {
                        out.push('\\');
                        out.push(c);
                    }
                    c => out.push(c),
                }
            }
            '[' if in_class => match rest.strip_prefix("[:").and_then(|rest| rest.find(":]")) {
                Some(length) => {
                    taken = length + 4;
                    out.push_str(&rest[..taken]);
                }
                None => out.push_str("\\["),
            },
            '[' => {
                in_class = true;
                class_start = at + if next == Some('^') { 2 } else { 1 };
                out.push('[');
                if next == Some('^') {
                    taken += 1;
                    out.push('^');
                }
                if pattern[class_start..].starts_with(']') {
                    taken += 1;
                    out.push_str("\\]");
                }
            }
            ']' if in_class && at >= class_start => {
                in_class = false;
                out.push(']');
            }
            ']' => out.push_str("\\]"),
            // Rust reads these pairs in a class as operators.
            '&' | '-' | '~' if in_class && next == Some(c) => {
                out.push('\\');
                out.push(c);
            }
            '(' if !in_class => {
                for (start, what) in [
                    ("(?=", "look-ahead"),
                    ("(?!", "look-ahead"),
                    ("(?<=", "look-behind"),
                    ("(?<!", "look-behind"),
                    ("(?>", "atomic groups"),
                    ("(?(", "conditions"),
                    ("(?R", "recursion"),
                    ("(?#", "comments"),
                    ("(*", "verbs"),
                ] {
                    if rest.starts_with(start) {
                        return lacks(what);
                    }
                }
                // The name of a group is no part of the text.
                let named = rest.starts_with("(?<") || rest.starts_with("(?P<");
                match rest.find('>').filter(|_| named) {
                    Some(end) => {
                        taken = end + 1;
                        out.push_str(&rest[..taken]);
                    }
                    None => out.push('('),
                }
            }
            '{' if !in_class && !is_quantifier(rest) => out.push_str("\\{"),
            '*' | '+' | '?' | '}' if !in_class && next == Some('+') && !out.is_empty() && c != '+' => {
                return lacks("possessive quantifiers");
            }
            c if subject == Subject::Path && !in_class && must_be_escaped(c) => {
                let mut bytes = [0; 4];
                let escaped = path::canonical(c.encode_utf8(&mut bytes));
                // The escapes of one character are one thing for a quantifier behind it.
                let _ = write!(out, "(?:{escaped})"); // into a String
            }
            c => out.push(c),
        }
        at += taken;
    }
    Ok(out)
}

/// Whether a literal character never stands in a canonical path as itself.
fn must_be_escaped(c: char) -> bool {
    !c.is_ascii() || matches!(c, ' ' | '"' | '<' | '>' | '`')
}

const fn is_meta(c: char) -> bool {
    matches!(
        c,
        '\\' | '.'
            | '+'
            | '*'
            | '?'
            | '('
            | ')'
            | '|'
            | '['
            | ']'
            | '{'
            | '}'
            | '^'
            | '$'
            | '#'
            | '&'
            | '-'
            | '~'
    )
}

/// Whether a text begins with `{n}`, `{n,}` or `{n,m}`.
fn is_quantifier(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(inner, _)| inner)
    else {
        return false;
    };
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

/// Whether the text ends with an odd number of backslashes, so that what follows is escaped.
fn ends_escaped(text: &str) -> bool {
    text.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// Whether there is a `|` outside of groups and classes.
fn has_alternatives(pattern: &str) -> bool {
    let (mut depth, mut in_class, mut escaped) = (0_u32, false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// The text that every path begins with in which an anchored pattern matches at the start, also for patterns that Weir
/// cannot read. `/` if none is sure.
#[must_use]
pub fn sure_start(pattern: &str) -> String {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let mut depth = 0_usize;
    let mut escaped = false;
    for c in pattern.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return "/".to_owned(),
            _ => {}
        }
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    let end = pattern.find(|c| !plain(c)).unwrap_or(pattern.len());
    let mut start = pattern[..end].to_owned();
    if pattern[end..].starts_with(['?', '*', '{']) {
        start.pop();
    }
    if start.starts_with('/') { start } else { "/".to_owned() }
}

/// Most branches that a negative look-ahead is written out as.
const MAX_BRANCHES: usize = 200;

/// The same pattern with its one negative look-ahead of literal words written out, which Rust's regexes lack. Only where
/// nothing but the rest of the text follows, as in `/\.(?!well-known).*`.
fn without_look_ahead(pattern: &str) -> Option<String> {
    let (before, rest) = pattern.split_once("(?!")?;
    let (inner, after) = rest.split_once(')')?;
    if rest.contains("(?!")
        || before.ends_with('\\')
        || inner.contains(['(', '[']) && !inner.starts_with("(?:")
    {
        return None;
    }
    let inner = inner.strip_prefix("(?:").unwrap_or(inner);
    let after = if rest.starts_with("(?:") { after.strip_prefix(')')? } else { after };
    let is_group = matches!(after, "(.*)" | "(.*)$");
    if !is_group && !matches!(after, "" | ".*" | ".*$") {
        return None;
    }
    let mut words = Vec::new();
    for word in inner.split('|') {
        let word = word.strip_suffix(".*").unwrap_or(word);
        let mut literal = String::new();
        let mut chars = word.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => literal.push(chars.next().filter(|c| matches!(c, '.' | '/' | '-' | '_'))?),
                c if c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_') => literal.push(c),
                _ => return None,
            }
        }
        words.push(literal);
    }
    let mut count = 0;
    let not = begins_with_none(&words, &mut count)?;
    Some(if is_group { format!("{before}({not}.*)") } else { format!("{before}{not}.*") })
}

/// What a text begins with that begins with none of these words. None if there is no such text, or it is too long.
fn begins_with_none(words: &[String], count: &mut usize) -> Option<String> {
    *count += 1;
    if *count > MAX_BRANCHES || words.iter().any(String::is_empty) {
        return None;
    }
    let mut firsts: Vec<char> = words.iter().filter_map(|word| word.chars().next()).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let class: String =
        firsts.iter().map(|c| if *c == '-' { "\\-".to_owned() } else { c.to_string() }).collect();
    let mut out = format!("(?:$|[^{class}]");
    for first in firsts {
        let rests: Vec<String> =
            words.iter().filter_map(|word| word.strip_prefix(first)).map(str::to_owned).collect();
        // A word that ends here is never begun with: nothing may follow.
        if rests.iter().all(|rest| !rest.is_empty()) {
            out.push('|');
            out.push_str(&literal(&first.to_string()));
            out.push_str(&begins_with_none(&rests, count)?);
        }
    }
    out.push(')');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ahead_for_words_is_written_out() {
        let cases = [
            (
                r"/\.(?!well-known).*",
                &["/.env", "/a/.git/x", "/.well-know", "/.well-known/.env", "/."][..],
                &["/.well-known/x", "/.well-known", "/.well-knownx", "/a"][..],
            ),
            (r"/\.(?!well-known\/)", &["/.well-known", "/.x"], &["/.well-known/x"]),
            (
                r"^/(?!api|app/v1|a-b)(.*)$",
                &["/", "/ap", "/apx", "/app/v2", "/x"],
                &["/api", "/apix", "/app/v1/x", "/a-b"],
            ),
        ];
        for (pattern, yes, no) in cases {
            let read = Searching::read(pattern, false, Subject::Path).unwrap();
            let regex = regex::Regex::new(&read.searching()).unwrap();
            let whole = regex::Regex::new(&format!("^(?:{})$", read.whole())).unwrap();
            for (paths, is) in [(yes, true), (no, false)] {
                for path in paths {
                    assert_eq!((regex.is_match(path), whole.is_match(path)), (is, is), "{pattern} {path}");
                }
            }
        }
        for pattern in [r"^/(?!api)[a-z]+$", "(?!a)b(?!c)", "/(?!x+).*", "/(?=x).*", "/(?!).*"] {
            assert!(Searching::read(pattern, false, Subject::Path).is_err(), "{pattern}");
        }
    }

    #[test]
    fn the_sure_start_of_a_pattern() {
        let cases = [
            ("^/admin(?=x)", "/admin"),
            ("/a+", "/a"),
            ("/ab?", "/a"),
            ("/a|/b", "/"),
            ("/(a|b)", "/"),
            ("/x(a|b)", "/x"),
            ("(?i)/a", "/"),
            ("", "/"),
        ];
        cases.iter().for_each(|(pattern, start)| assert_eq!(sure_start(pattern), *start, "{pattern}"));
    }

    #[test]
    fn what_searches_becomes_what_matches_the_whole() {
        let cases = [
            (r"\.php$", r".*\.php"),
            (r"^/api/", r"/api/.*"),
            (r"^/a(.*)$", r"/a(.*)"),
            (r"^/a(.*)", r"/a(.*)"),
            (r"(/x)?/api", r".*(/x)?/api.*"),
            (r"^/a|/b$", r".*(?:^/a|/b$).*"),
            (r"/c\$", r".*/c\$.*"),
            (r"[[]x", r".*[\[]x.*"),
            (r"^/u/{x}", r"/u/\{x}.*"),
            (r"a\/b", ".*a/b.*"),
            (r"^/a b", "/a(?:%20)b.*"),
            (r"\.*$", r".*\.*"),
            (r"^/u/(?<id>[0-9]+)$", r"/u/(?<id>[0-9]+)"),
        ];
        for (pattern, whole) in cases {
            let read = Searching::read(pattern, false, Subject::Path).unwrap();
            assert_eq!(read.whole(), whole, "{pattern}");
            regex::bytes::Regex::new(&read.whole()).unwrap();
        }
    }

    #[test]
    fn both_forms_take_the_same_paths() {
        let patterns =
            [r"\.php$", r"^/api/", r"(/x)?/api", r"^/a|/b$", r"^(?!x)", r"[.]js|css", "^/$", "^", "$", "x*"];
        let paths =
            ["/", "/api/x", "/x/api", "/a.php", "/a.phpx", "/b", "/bb", "/c/b", "/a", "/x.js", "/css", ""];
        for pattern in patterns {
            let Ok(read) = Searching::read(pattern, false, Subject::Path) else { continue };
            let whole = regex::bytes::Regex::new(&format!("^(?:{})$", read.whole())).unwrap();
            for path in paths {
                let path = path.as_bytes();
                assert_eq!(
                    read.compiled().unwrap().is_match(path),
                    whole.is_match(path),
                    "{pattern} {path:?}"
                );
            }
        }
    }

    #[test]
    fn what_weir_lacks_is_named() {
        let cases = [
            ("^/(?=x)", "look-ahead"),
            (r"(a)\1", "back-references"),
            ("(?>a)", "atomic"),
            ("a++", "Weir cannot read"),
            ("(", "Weir cannot read"),
            ("a*+", "possessive"),
        ];
        for (pattern, why) in cases {
            match Searching::read(pattern, false, Subject::Text) {
                Err(told) => assert!(told.contains(why), "{pattern}: {told}"),
                Ok(read) => assert_eq!(pattern, "a++", "{read:?}"),
            }
        }
        assert!(Searching::read(&"(".repeat(5000), false, Subject::Text).is_err());
    }

    #[test]
    fn literal_beginnings_are_found() {
        let cases = [
            ("^/api/v1", "/api/v1"),
            (r"^/a\.b/[0-9]", "/a.b/"),
            ("^/ab?", "/a"),
            ("/x", ""),
            ("^/a|^/b", ""),
        ];
        for (pattern, start) in cases {
            assert_eq!(Searching::read(pattern, false, Subject::Path).unwrap().literal_start(), start);
        }
    }
}
