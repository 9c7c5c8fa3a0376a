//! The likely cause of a YAML syntax error. The parser says where it stopped; a reader wants the place of the
//! mistake.

use super::expression::{in_quotes, within_brackets};
use super::node::Place;
use super::secrecy::may_hold_secrets;

/// A syntax error in words for a reader of YAML.
pub(super) struct SyntaxError {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// Explains the mistake in a text that the parser rejected at a line and column with `info`.
pub(super) fn explain(text: &str, line: u32, column: u32, info: &str) -> SyntaxError {
    let index = (line as usize).saturating_sub(1);
    let here = text.lines().nth(index).unwrap_or("");
    let language = if text.trim_start().starts_with(['{', '[']) { "JSON" } else { "YAML" };
    let plain = format!("this is not {language}: {info}");
    let at = |message: String, hint: Option<String>| SyntaxError { line, column, message, hint };
    let before = text.lines().take(index + 1).filter(|l| !l.trim().is_empty());
    let indent = |line: &str| line.len() - line.trim_start().len();
    if before.clone().any(|l| l[..indent(l)].contains('\t')) && !text.trim_start().starts_with('{') {
        return at(plain, Some("indent with spaces, not tabs".to_owned()));
    }
    if let Some(written) = in_quotes(here) {
        let hint = match may_hold_secrets(text, index) {
            true => "put the expression into quotes".to_owned(),
            false => format!("put the expression into quotes: {written}"),
        };
        return at(plain, Some(hint));
    }
    if info.contains("flow")
        && let Some(word) = braced_word(here, column)
    {
        let word = if may_hold_secrets(text, index) && !word.starts_with("${") { "{ or }" } else { word };
        return at(plain, Some(format!("put the value with {word} in it into quotes")));
    }
    if language == "JSON"
        && let Some(error) = json_error(text)
    {
        return error;
    }
    if info.contains("flow") || info.contains("unclosed") {
        let open = unclosed(text).filter(|_| open_quote(text).is_none());
        // A new key begins at the start of a line: the mistake is an unclosed bracket before it.
        if let Some(open) = open.filter(|_| info.contains("unclosed") || column == 1) {
            return open.error(language);
        }
    }
    // An unterminated quote swallows the brackets after it.
    if let Some((line, column)) = open_quote(text)
        .filter(|_| info.contains("quote") || info.contains("unclosed") || info.contains("end of"))
    {
        let message = format!("this is not {language}: the closing quote of this text is missing");
        let hint = Some("look for a quote that is missing on this line".to_owned());
        return SyntaxError { line, column, message, hint };
    }
    let begins = here.chars().nth((column as usize).saturating_sub(1)).filter(|c| "@%`*&!".contains(*c));
    let above = text.lines().take(index).filter(|l| !l.trim().is_empty()).last().unwrap_or("");
    let trimmed = here.trim_start();
    let value = trimmed.split_once(": ").map_or(trimmed, |(_, value)| value);
    let hint = if info.contains("anchor") {
        Some("put text that begins with `*` into quotes".to_owned())
    } else if info.contains("mismatched bracket") && here.contains("${") {
        Some("write ${NAME} with both braces, and in quotes".to_owned())
    } else if let Some(begins) = begins.filter(|_| info.contains("unexpected character")) {
        Some(format!("put text that begins with `{begins}` into quotes"))
    } else if trimmed.trim_end().ends_with([',', ';']) && info.contains("block mapping") {
        Some(
            "remove the `,` or `;` at the end of the line: they are only allowed between `{ }` or `[ ]`"
                .to_owned(),
        )
    } else if info.contains("mapping values") && above.trim_start().starts_with("- ") && !above.contains(": ")
    {
        Some("end the line above with `:`, if this is a setting of what it names".to_owned())
    } else if trimmed.contains(" = ") && !trimmed.contains(": ") {
        Some("write `key: value`, with a colon in place of `=`".to_owned())
    } else if value.starts_with(['*', '&', '@', '%', '`', '!']) {
        Some(format!("put text that begins with `{}` into quotes", &value[..1]))
    } else if value.matches(": ").count() > 0 && !value.starts_with(['{', '[', '"', '\'']) {
        Some("put text with `: ` in it into quotes".to_owned())
    } else if info.contains("indent") || info.contains("block mapping") || info.contains("simple key") {
        Some("keys of one map begin in the same column, each followed by `: `".to_owned())
    } else if info.contains("flow") || info.contains("EOF") || info.contains("end of") {
        Some("look for a `}`, `]` or quote that is missing".to_owned())
    } else {
        None
    };
    at(plain, hint)
}

/// Where the tag of the value at `place` begins, and the rest of its line: it stands there or in front of it.
pub(super) fn tag_before(text: &str, place: Place) -> (Place, &str) {
    let lines: Vec<&str> = text.lines().take(place.line as usize).collect();
    for (index, line) in lines.iter().enumerate().rev() {
        let end = match index + 1 == place.line as usize {
            true => line.char_indices().nth(place.column as usize).map_or(line.len(), |(at, _)| at),
            false => line.len(),
        };
        let before = line.get(..end).unwrap_or_default();
        let begins = |at: &usize| before[..*at].chars().next_back().is_none_or(|c| " \t{[,:-".contains(c));
        if let Some(at) = before.match_indices('!').map(|(at, _)| at).find(begins) {
            let column = before[..at].chars().count() as u32 + 1;
            let written = within_brackets(line[at..].trim_end());
            return (Place { line: index as u32 + 1, column, ..place }, written);
        }
    }
    (place, "")
}

/// A missing quote or comma in JSON, where a string stays on one line and a comma separates two values.
fn json_error(text: &str) -> Option<SyntaxError> {
    let mut chars = text.chars().peekable();
    let (mut line, mut column) = (1, 0);
    // Whether a value ended before here, and its start if it is a text.
    let (mut value, mut word) = (false, String::new());
    let error = |line, column, message: &str, hint: &str| {
        let message = format!("this is not JSON: {message}");
        Some(SyntaxError { line, column, message, hint: Some(hint.to_owned()) })
    };
    let comma = |line, column| {
        error(line, column, "a comma is missing before this", "add a `,` after the preceding value")
    };
    while let Some(c) = chars.next() {
        column += 1;
        if c == '"' {
            value |= is_json_value(&word);
            if value {
                return comma(line, column);
            }
            let start = column;
            let closed = loop {
                match chars.next_if(|c| *c != '\n') {
                    Some('\\') => column += 1 + u32::from(chars.next_if(|c| *c != '\n').is_some()),
                    Some('"') => break true,
                    Some(_) => column += 1,
                    None => break false,
                }
            };
            column += 1;
            if !closed || chars.peek().is_some_and(|c| c.is_alphanumeric()) {
                let message =
                    "the closing quote of this text is missing, or its opening quote is one too many";
                return error(line, start, message, "look for a `\"` that is missing on this line");
            }
            (value, word) = (true, String::new());
        } else if matches!(c, '\'' | '#') && word.is_empty() {
            // YAML features that JSON lacks: single quotes and comments.
            let end = if c == '#' { '\n' } else { '\'' };
            while chars.next_if(|c| *c != end && *c != '\n').is_some() {
                column += 1;
            }
            if c == '\'' {
                column += u32::from(chars.next_if_eq(&end).is_some());
                value = true;
            }
        } else if matches!(c, '{' | '[') {
            if value || is_json_value(&word) {
                return comma(line, column);
            }
            word.clear();
        } else if matches!(c, '}' | ']') {
            (value, word) = (true, String::new());
        } else if matches!(c, ',' | ':') {
            (value, word) = (false, String::new());
        } else if !c.is_whitespace() {
            word.push(c);
        }
        if c == '\n' {
            (line, column) = (line + 1, 0);
        }
    }
    None
}

fn is_json_value(word: &str) -> bool {
    matches!(word, "true" | "false" | "null") || !word.is_empty() && word.parse::<f64>().is_ok()
}

/// The unquoted `${NAME}` or `{name}` at a column of a line, or just before it. Within `{ … }` or `[ … ]` YAML parses
/// its brace.
fn braced_word(line: &str, column: u32) -> Option<&str> {
    let at = line.char_indices().nth((column as usize).saturating_sub(1))?.0;
    let brace = if line[at..].starts_with('{') { at } else { return None };
    let length = line[brace..].find('}')? + 1;
    let word = &line[brace..brace + length];
    let name = word.trim_matches(['{', '}']).trim_end_matches('*');
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_:-./".contains(c));
    let glued = line[..brace].chars().next_back().is_some_and(|c| !c.is_whitespace() && !"{[,:".contains(c));
    let from = if line[..brace].ends_with('$') { brace - 1 } else { brace };
    (is_word && glued).then(|| &line[from..brace + length])
}

/// The start of a quoted text that does not end on its line; a quote on a later line would close a different one.
fn open_quote(text: &str) -> Option<(u32, u32)> {
    for (number, line) in (1u32..).zip(text.lines()) {
        let (mut open, mut previous, mut escaped) = (None, ' ', false);
        for (column, c) in (1u32..).zip(line.chars()) {
            match (open, c) {
                _ if std::mem::take(&mut escaped) => {}
                (Some(('"', _)), '\\') => escaped = true,
                (Some((quote, _)), c) if quote == c => open = None,
                (None, '"' | '\'') if " \t{[,:".contains(previous) => open = Some((c, column)),
                (None, '#') if previous.is_whitespace() => break,
                _ => {}
            }
            previous = c;
        }
        if let Some((_, column)) = open {
            return Some((number, column));
        }
    }
    None
}

/// A bracket that nothing closes.
#[derive(Clone, Copy)]
struct Open {
    bracket: char,
    line: u32,
    column: u32,
    indent: usize,
    /// The line of the closing bracket that was meant for another one.
    taken: Option<u32>,
}

impl Open {
    fn error(self, language: &str) -> SyntaxError {
        let closing = closing(self.bracket);
        let message =
            format!("this is not {language}: nothing closes the `{}` that is opened here", self.bracket);
        let hint = match self.taken {
            Some(line) => format!("a `{closing}` is missing before line {line}"),
            None => format!("add the `{closing}` that is missing"),
        };
        SyntaxError { line: self.line, column: self.column, message, hint: Some(hint) }
    }
}

/// The unclosed bracket. If lines are indented by their brackets, the one whose closing bracket is missing; otherwise
/// the innermost at the end of the text.
fn unclosed(text: &str) -> Option<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut suspect = None;
    let mut quote = None;
    for (number, line) in (1u32..).zip(text.lines()) {
        let indent = line.len() - line.trim_start().len();
        let mut previous = ' ';
        let mut escaped = false;
        for (column, c) in (1u32..).zip(line.chars()) {
            match (quote, c) {
                _ if std::mem::take(&mut escaped) => {}
                (Some('"'), '\\') => escaped = true,
                (Some(q), c) if q == c => quote = None,
                (Some(_), _) => {}
                // Right after a quote, a second one is an escaped quote.
                (None, '"' | '\'') if " \t{[,:-".contains(previous) || (previous, c) == ('\'', '\'') => {
                    quote = Some(c)
                }
                (None, '#') if previous.is_whitespace() => break,
                // In plain text of a block a brace is text.
                (None, '{' | '[') if !open.is_empty() || " \t{[,:".contains(previous) => {
                    open.push(Open { bracket: c, line: number, column, indent, taken: None });
                }
                (None, '}' | ']') => {
                    let of = open.pop()?;
                    let first_of_line = line.trim_start().starts_with(c) && column as usize == indent + 1;
                    if suspect.is_none() && first_of_line && of.indent > indent && of.line != number {
                        suspect = Some(Open { taken: Some(number), ..of });
                    }
                }
                _ => {}
            }
            previous = c;
        }
    }
    let innermost = open.pop()?;
    Some(suspect.unwrap_or(innermost))
}

const fn closing(bracket: char) -> char {
    if bracket == '[' { ']' } else { '}' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bracket_that_was_left_open_is_found() {
        for (text, at) in [
            ("{\n  \"a\": { \"b\": 1,\n  \"c\": { \"d\": 2 }\n}\n", Some((2, 8))),
            ("{\n  \"a\": 1\n", Some((1, 1))),
            ("a: { b: 1\nc: 2\n", Some((1, 4))),
            ("a: \"{\"\nb: 'it''s ['\n", None),
            ("a: [ 1, # ]\nb: 2\n", Some((1, 4))),
            ("a: x{y\n", None),
            ("a: }\n", None),
        ] {
            assert_eq!(unclosed(text).map(|open| (open.line, open.column)), at, "{text}");
        }
    }

    #[test]
    fn a_missing_quote_or_comma_of_json_is_found() {
        for (text, at) in [
            ("{ \"a\": { \"b\": \"127.0.0.1:8080 } }", Some((1, 15))),
            ("{\n  \"a\": \"x,\n  \"b\": 1\n}", Some((2, 8))),
            ("{ \"a\": \"b, \"c\": 1 }", Some((1, 8))),
            ("{\n  \"a\": 1\n  \"b\": 2\n}", Some((3, 3))),
            ("{ \"a\": { \"b\": true } \"c\": [] }", Some((1, 22))),
            ("[ \"a\" \"b\" ]", Some((1, 7))),
            ("[ {} {} ]", Some((1, 6))),
            ("{ \"a\": \"\\\"ü\", \"b\": [ 1, 2 ] }", None),
            ("{ a: say \"x\" }", None),
        ] {
            assert_eq!(json_error(text).map(|error| (error.line, error.column)), at, "{text}");
        }
    }

    #[test]
    fn words_in_braces_are_found() {
        for (line, column, word) in [
            ("{ path: /x/{id} }", 12, Some("{id}")),
            ("{ token: ${X:-y} }", 11, Some("${X:-y}")),
            ("[${N}]", 3, Some("${N}")),
            ("{ a: {b: 1 }", 6, None),
            ("{ a }", 5, None),
            ("ü{x}", 2, Some("{x}")),
        ] {
            assert_eq!(braced_word(line, column), word, "{line}");
        }
    }
}
