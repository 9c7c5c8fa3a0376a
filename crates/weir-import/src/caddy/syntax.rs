//! The syntax of a Caddyfile: words, quotes, heredocs, blocks and variables of the environment.

use crate::ledger::{Ledger, Piece};
use crate::source::{Place, SourceFile, Unreadable};
use crate::yaml::{VARIABLE_BEGIN, VARIABLE_END};
use std::collections::BTreeMap;

/// How deep blocks may be nested.
const MAX_BLOCKS: usize = 50;

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Whether it stood in quotes, so that `"{"` opens no block.
    pub(super) is_quoted: bool,
    pub(super) line: u32,
}

/// The words of a line, and the block that it opens.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) words: Vec<Word>,
    pub(super) block: Option<Vec<Self>>,
    pub(super) piece: Piece,
    pub(super) place: Place,
}

impl Segment {
    /// The first word, or nothing.
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", |word| &word.text)
    }

    /// The words behind the first.
    pub(super) fn args(&self) -> Vec<&str> {
        self.words.iter().skip(1).map(|word| &*word.text).collect()
    }

    /// The lines of the block.
    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// The statements of a file, and the variables that it names, with their default values.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) segments: Vec<Segment>,
    pub(super) variables: BTreeMap<String, Option<String>>,
}

/// Reads a file. Every line with words is entered in the ledger.
///
/// # Errors
/// If quotes or blocks are not closed.
pub(super) fn parse(file: &SourceFile, ledger: &mut Ledger) -> Result<Parsed, Unreadable> {
    let (text, variables) = with_variables(&file.text);
    let lines = lines(&text, file)?;
    let mut reader = Reader { file, ledger, lines: lines.into_iter().peekable() };
    let segments = reader.block(0, None)?;
    Ok(Parsed { segments, variables })
}

/// `{$NAME}` and `{$NAME:default}` between marks that [`crate::yaml`] writes as `${NAME}`. Caddy puts their values in
/// before it reads words, so a default value with white space becomes several words, and is put in here too.
fn with_variables(text: &str) -> (String, BTreeMap<String, Option<String>>) {
    let mut out = String::with_capacity(text.len());
    let mut variables = BTreeMap::new();
    let mut rest = text;
    while let Some(at) = rest.find("{$") {
        let behind = &rest[at + 2..];
        let Some(close) = behind.find(['}', '\n']).filter(|close| behind[*close..].starts_with('}')) else {
            out.push_str(&rest[..at + 2]);
            rest = behind;
            continue;
        };
        let (name, default) = match behind[..close].split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (&behind[..close], None),
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        out.push_str(&rest[..at]);
        rest = &behind[close + 1..];
        match default {
            _ if !is_name => out.push_str(&format!("{{${}}}", &behind[..close])),
            Some(default) if default.contains(char::is_whitespace) || default.is_empty() => {
                out.push_str(default);
                variables.insert(name.to_owned(), Some(default.to_owned()));
            }
            Some(default) => {
                out.push_str(&format!("{VARIABLE_BEGIN}{name}:-{default}{VARIABLE_END}"));
                variables.insert(name.to_owned(), Some(default.to_owned()));
            }
            None => {
                out.push_str(&format!("{VARIABLE_BEGIN}{name}{VARIABLE_END}"));
                variables.entry(name.to_owned()).or_insert(None);
            }
        }
    }
    out.push_str(rest);
    (out, variables)
}

/// The words of each line that has some. A line goes on behind `\` at its end.
fn lines(text: &str, file: &SourceFile) -> Result<Vec<Vec<Word>>, Unreadable> {
    let mut lines: Vec<Vec<Word>> = Vec::new();
    let mut current: Vec<Word> = Vec::new();
    let mut line = 1_u32;
    let mut chars = text.chars().peekable();
    let place = |line: u32| Place { file: file.name.clone(), line };
    while let Some(c) = chars.next() {
        let start = line;
        match c {
            '\n' => {
                line += 1;
                if !current.is_empty() {
                    lines.push(std::mem::take(&mut current));
                }
            }
            '\\' if matches!(chars.peek(), Some('\n')) => {
                chars.next();
                line += 1;
            }
            c if c.is_whitespace() => {}
            '#' => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    chars.next();
                }
            }
            '"' | '`' => {
                let mut word = String::new();
                loop {
                    match chars.next() {
                        None => {
                            return Err(Unreadable::at(&place(start), format!("a {c} that nothing closes")));
                        }
                        Some('\\') if c == '"' && chars.peek() == Some(&'"') => {
                            word.push('"');
                            chars.next();
                        }
                        Some(end) if end == c => break,
                        Some(inner) => {
                            line += u32::from(inner == '\n');
                            word.push(inner);
                        }
                    }
                }
                current.push(Word { text: word, is_quoted: true, line: start });
            }
            c => {
                let mut word = String::from(c);
                while let Some(next) = chars.peek().copied().filter(|c| !c.is_whitespace()) {
                    if next == '\\' {
                        let mut ahead = chars.clone();
                        ahead.next();
                        if ahead.next() == Some('\n') {
                            break;
                        }
                    }
                    word.push(next);
                    chars.next();
                }
                let mark = word.strip_prefix("<<").filter(|mark| {
                    !mark.is_empty()
                        && mark.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
                });
                let Some(mark) = mark.map(str::to_owned).filter(|_| chars.peek() == Some(&'\n')) else {
                    current.push(Word { text: word, is_quoted: false, line: start });
                    continue;
                };
                chars.next();
                line += 1;
                let mut body: Vec<String> = Vec::new();
                loop {
                    let mut one = String::new();
                    let mut is_end = true;
                    for c in chars.by_ref() {
                        if c == '\n' {
                            line += 1;
                            is_end = false;
                            break;
                        }
                        one.push(c);
                    }
                    let trimmed = one.trim_start();
                    if let Some(behind) = trimmed.strip_prefix(&*mark).filter(|behind| {
                        !behind.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
                    }) {
                        let indent = &one[..one.len() - trimmed.len()];
                        let text: Vec<&str> =
                            body.iter().map(|line| line.strip_prefix(indent).unwrap_or(line)).collect();
                        current.push(Word { text: text.join("\n"), is_quoted: true, line: start });
                        let more = lines_of_rest(behind);
                        current.extend(more.into_iter().map(|text| Word {
                            text,
                            is_quoted: false,
                            line: start,
                        }));
                        if !is_end {
                            lines.push(std::mem::take(&mut current));
                        }
                        break;
                    }
                    if is_end {
                        return Err(Unreadable::at(
                            &place(start),
                            format!("`<<{mark}` has no line `{mark}`"),
                        ));
                    }
                    body.push(one);
                }
            }
        }
    }
    if !current.is_empty() {
        lines.push(current);
    }
    Ok(lines)
}

/// Words behind the end of a heredoc.
fn lines_of_rest(text: &str) -> Vec<String> {
    text.split_whitespace().take_while(|word| !word.starts_with('#')).map(str::to_owned).collect()
}

struct Reader<'a, 'b> {
    file: &'a SourceFile,
    ledger: &'b mut Ledger,
    lines: std::iter::Peekable<std::vec::IntoIter<Vec<Word>>>,
}

impl Reader<'_, '_> {
    /// Statements up to the `}` of the block that `opened`, or to the end of the file.
    fn block(&mut self, depth: usize, opened: Option<&Place>) -> Result<Vec<Segment>, Unreadable> {
        let mut segments: Vec<Segment> = Vec::new();
        loop {
            let Some(mut words) = self.lines.next() else {
                return match opened {
                    None => Ok(segments),
                    Some(open) => Err(Unreadable::at(open, "the block that begins here has no `}`")),
                };
            };
            let place = Place { file: self.file.name.clone(), line: words[0].line };
            let is = |word: &Word, text: &str| !word.is_quoted && word.text == text;
            if is(&words[0], "}") {
                if words.len() > 1 {
                    return Err(Unreadable::at(&place, "nothing may follow `}` on its line"));
                }
                if opened.is_none() {
                    return Err(Unreadable::at(&place, "`}` closes no block"));
                }
                return Ok(segments);
            }
            let opens = words.last().is_some_and(|word| is(word, "{"));
            if opens {
                words.pop();
            }
            if words.iter().any(|word| is(word, "{") || is(word, "}")) {
                let why = "a block's `{` ends its line, and its `}` stands on a line of its own";
                return Err(Unreadable::at(&place, why));
            }
            let text: Vec<&str> = words.iter().map(|word| &*word.text).collect();
            let text = text.join(" ");
            let text = match text.contains(VARIABLE_BEGIN) {
                true => text.replace(VARIABLE_BEGIN, "{$").replace(VARIABLE_END, "}").replace(":-", ":"),
                false => text,
            };
            let shown = if text.is_empty() { "{ (global options)" } else { &text };
            let piece = self.ledger.enter(place.clone(), shown);
            let mut block = None;
            if opens {
                if depth >= MAX_BLOCKS {
                    let why = format!("more than {MAX_BLOCKS} blocks in one another");
                    return Err(Unreadable::at(&place, why));
                }
                block = Some(self.block(depth + 1, Some(&place))?);
            }
            segments.push(Segment { words, block, piece, place });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        let file = SourceFile { name: "Caddyfile".into(), text: text.into() };
        let lines = lines(text, &file).unwrap();
        lines.into_iter().map(|line| line.into_iter().map(|word| word.text).collect()).collect()
    }

    #[test]
    fn words_are_read_as_caddy_reads_them() {
        assert_eq!(words("a \"b c\" `d \"e\"` # f\n g#h"), [vec!["a", "b c", "d \"e\""], vec!["g#h"]]);
        assert_eq!(words("a \\\n b\nc"), [vec!["a", "b"], vec!["c"]]);
        assert_eq!(words("a \"x\\\"y\\n\""), [vec!["a", "x\"y\\n"]]);
        assert_eq!(words("r <<E\n  x\n   y\n  E 404\nz"), [vec!["r", "x\n y", "404"], vec!["z"]]);
    }

    #[test]
    fn variables_are_marked() {
        let (text, variables) = with_variables("{$A} {$B:x} {$C:x y} {$9} {$D");
        let marked =
            format!("{VARIABLE_BEGIN}A{VARIABLE_END} {VARIABLE_BEGIN}B:-x{VARIABLE_END} x y {{$9}} {{$D");
        assert_eq!(text, marked);
        assert_eq!(variables["A"], None);
        assert_eq!(variables["B"], Some("x".to_owned()));
    }
}
