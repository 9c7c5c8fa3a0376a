//! Expressions as they stand in YAML, which may read something else than its author wrote, and the place of a mistake
//! within one.

use std::iter::Peekable;
use std::str::Chars;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Node, Place};

/// A mistake in the way an expression is written. `is_sound` says whether what YAML read of it is one.
///
/// `key` is the setting's own name, such as `when`, for the hint.
pub fn refusal(
    node: &Node,
    key: &str,
    diagnostics: &Diagnostics,
    is_sound: impl Fn(&str) -> bool,
) -> Option<Diagnostic> {
    let refuse = |message: &'static str| Diagnostic::error("bad-expression", message).at(node.at.clone());
    if node.substituted {
        let message = "what a variable brings in is never a part of an expression";
        return Some(refuse(message).hint("write the value itself, or compare it by another setting"));
    }
    let (style, source) = source_at(node, diagnostics)?;
    let line = source.lines().next()?;
    let (before, comment) = comment_of(line).filter(|_| style == Style::Plain)?;
    if node.as_text().is_some_and(|text| ends_in_brackets(text, line)) {
        return None;
    }
    // What stands before it may be the whole expression.
    let text = if is_sound(before) { before } else { line.trim_end() };
    let after = if is_sound(before) { format!(" {comment}") } else { String::new() };
    let message =
        "YAML takes a ` #` without quotes for the beginning of a comment, and the expression ends before it";
    Some(refuse(message).hint(format!("write {key}: {}{after}", quoted(text))))
}

/// The same for a text with expressions in it. `sources` are those of a text, if they can be told apart; `is_sound` says
/// whether what YAML read of it has no mistakes.
pub fn refusal_in_text(
    node: &Node,
    key: &str,
    diagnostics: &Diagnostics,
    is_sound: bool,
    sources: impl Fn(&str) -> Option<Vec<String>>,
) -> Option<Diagnostic> {
    if node.substituted {
        let is_written = sources(node.unfilled()?) == sources(node.as_text()?);
        let refuse = |message: &'static str| Diagnostic::error("bad-expression", message).at(node.at.clone());
        let hint = "write the value itself, or {{= and }} for the text {= }";
        return (!is_written)
            .then(|| refuse("what a variable brings in is never a part of an expression").hint(hint));
    }
    if is_sound { None } else { refusal(node, key, diagnostics, |text| sources(text).is_some()) }
}

/// The text in single quotes, as YAML writes it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The names of settings that hold an expression.
const KEYS: &[&str] = &["is", "of", "when"];

/// The spelling in quotes of an expression that stands on this line without them.
pub(super) fn in_quotes(line: &str) -> Option<String> {
    let (at, key) = KEYS.iter().filter_map(|key| Some((line.rfind(&format!("{key}: "))?, key))).max()?;
    let is_key = line[..at].chars().next_back().is_none_or(|c| " \t{,-".contains(c));
    let value = within_brackets(line[at + key.len() + 2..].trim());
    (is_key && !value.is_empty() && !value.starts_with(['\'', '"', '|', '>', '*']))
        .then(|| format!("{key}: {}", quoted(value)))
}

/// The beginning of a text before a bracket or comma that belongs to a list or map around it.
pub(super) fn within_brackets(text: &str) -> &str {
    let (mut depth, mut quote) = (0u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}' | ',') if depth == 0 => return text[..at].trim_end(),
            (None, ')' | ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    text
}

/// Where the byte `offset` of an expression stands in its file. If YAML wrote it in a way that we do not follow, such as
/// with `\u0041`, the beginning of the expression.
pub fn place_within(node: &Node, offset: usize, diagnostics: &Diagnostics) -> Place {
    let walked = || {
        let (style, source) = source_at(node, diagnostics)?;
        let text = node.as_text()?.get(..offset)?;
        let mut walk = Walk { left: source.chars().peekable(), line: node.at.line, column: node.at.column };
        if matches!(style, Style::Double | Style::Single) {
            walk.next();
        }
        for wanted in text.chars() {
            walk.take(wanted, style)?;
        }
        Some(Place { line: walk.line, column: walk.column, ..node.at.clone() })
    };
    walked().unwrap_or_else(|| node.at.clone())
}

/// How a text is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Behind `|` or `>`.
    Block,
    Double,
    Plain,
    Single,
}

/// How a text is written, and the rest of the file from there on. Nothing if its place is that of an alias.
fn source_at<'d>(node: &Node, diagnostics: &'d Diagnostics) -> Option<(Style, &'d str)> {
    let text = diagnostics.source(&node.at.file)?;
    let mut rest = text;
    for _ in 1..node.at.line {
        rest = rest.split_once('\n')?.1;
    }
    let (column, _) = rest.char_indices().nth((node.at.column as usize).checked_sub(1)?)?;
    let (before, rest) = (text.get(..text.len() - rest.len() + column)?, rest.get(column..)?);
    let style = match rest.chars().next()? {
        '*' | '&' => return None,
        _ if before.trim_end().trim_end_matches(['-', '+']).ends_with(['|', '>']) => Style::Block,
        '"' => Style::Double,
        '\'' => Style::Single,
        _ => Style::Plain,
    };
    Some((style, rest))
}

/// Whether an unquoted text ends at a comma or bracket of the surrounding flow list or map. A comment later on the line
/// then cuts nothing off. In block style, commas and brackets belong to the text.
fn ends_in_brackets(text: &str, line: &str) -> bool {
    line.strip_prefix(text).is_some_and(|rest| rest.trim_start().starts_with([',', '}', ']']))
}

/// What stands before and from a `#` that begins a comment in text without quotes.
fn comment_of(line: &str) -> Option<(&str, &str)> {
    let at = line.match_indices('#').map(|(at, _)| at).find(|at| line[..*at].ends_with([' ', '\t']))?;
    Some((line[..at].trim_end(), &line[at..]))
}

/// Reads a file character by character beside what YAML made of it.
struct Walk<'s> {
    left: Peekable<Chars<'s>>,
    line: u32,
    column: u32,
}

impl Walk<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.left.next()?;
        match next {
            '\n' => (self.line, self.column) = (self.line + 1, 1),
            _ => self.column += 1,
        }
        Some(next)
    }

    /// Takes what stands for one character of the value.
    fn take(&mut self, wanted: char, style: Style) -> Option<()> {
        let found = self.next()?;
        let folds = found == '\n' && matches!(wanted, ' ' | '\n');
        if folds || (matches!(wanted, ' ' | '\n') && found == ' ' && self.is_fold(style)) {
            while self.left.peek().is_some_and(|c| c.is_whitespace()) {
                self.next();
            }
            return Some(());
        }
        match (style, found) {
            (Style::Single, '\'') => (self.next()? == wanted).then_some(()),
            (Style::Double, '\\') => {
                let escaped = self.next()?;
                (escaped == wanted && matches!(escaped, '"' | '\\' | '/')).then_some(())
            }
            _ => (found == wanted).then_some(()),
        }
    }

    /// Whether only spaces stand before the end of the line.
    fn is_fold(&self, style: Style) -> bool {
        style != Style::Block && self.left.clone().find(|c| *c != ' ') == Some('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> (Option<Node>, Diagnostics) {
        let mut diagnostics = Diagnostics::default();
        let tree = crate::parse::parse(text, Path::new("t"), &mut diagnostics);
        (tree.and_then(|tree| tree.get("when").cloned()), diagnostics)
    }

    #[test]
    fn the_place_of_a_mistake_is_found_in_each_style() {
        for (text, line, column) in [
            ("when: a == b", 1, 12),
            ("when: 'a == b'", 1, 13),
            ("when: \"a == b\"", 1, 13),
            ("when: '''x'' == b'", 1, 17),
            ("when: \"\\\"x\\\" == b\"", 1, 17),
            ("when: a ==\n  b", 2, 3),
            ("when: 'a ==   \n\n  b'", 3, 3),
            ("when: |\n  a ==\n  b\n", 3, 3),
            ("when: >-\n  a ==\n  b\n", 3, 3),
            ("when: 'ü == b'", 1, 13),
            // Not followed: the beginning.
            ("when: \"\\u0061 == b\"", 1, 7),
        ] {
            let (node, diagnostics) = read(text);
            let node = node.unwrap();
            let offset = node.as_text().unwrap().rfind('b').unwrap();
            let place = place_within(&node, offset, &diagnostics);
            assert_eq!((place.line, place.column), (line, column), "{text}");
        }
    }

    #[test]
    fn an_expression_is_spelled_in_quotes() {
        for (line, want) in [
            ("  when: client.tls ? true : false", Some("when: 'client.tls ? true : false'")),
            ("a: { match: { when: f(x, y)[\"}\"] == 'a' }, b: {} }", Some("when: 'f(x, y)[\"}\"] == ''a'''")),
            ("- acl: { is: ![1, 2], deny: [] }", Some("is: '![1, 2]'")),
            ("  when: 'a: b'", None),
            ("  this: a: b", None),
            ("  when:", None),
        ] {
            assert_eq!(in_quotes(line).as_deref(), want, "{line}");
        }
    }

    #[test]
    fn what_yaml_would_change_is_refused() {
        let sound = |text: &str| text.matches('"').count().is_multiple_of(2);
        for (text, hint) in [
            ("when: a == \"x #y\"", Some("write when: 'a == \"x #y\"'")),
            ("when: a == \"x\" # why", Some("write when: 'a == \"x\"' # why")),
            ("when: a == 'x' # why", Some("write when: 'a == ''x''' # why")),
            ("when: 'a == \"x #y\"'", None),
            ("when: 'a' # why", None),
            ("when: |\n  a # b", None),
            ("when: a#b", None),
        ] {
            let (node, diagnostics) = read(text);
            let refused = refusal(&node.unwrap(), "when", &diagnostics, sound);
            assert_eq!(refused.and_then(|refused| refused.hint).as_deref(), hint, "{text}");
        }
    }
}
