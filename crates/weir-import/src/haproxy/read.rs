//! HAProxy's config as sections of lines of words: quotes, escapes and variables as its manual, section 2.2, has them.

use crate::ledger::{Ledger, Piece};
use crate::source::{Place, SourceTree, Unreadable};

/// Most words of a line, as in HAProxy (MAX_LINE_ARGS).
const MAX_WORDS: usize = 64;
/// Longest line in bytes, sixteen times what HAProxy takes before it grows its buffer.
const MAX_LINE: usize = 32 << 10;
/// Keywords of rules that may decide which requests pass.
const GUARDS: &[&str] = &[
    "acl",
    "block",
    "default_backend",
    "filter",
    "http-request",
    "http-response",
    "redirect",
    "reqdeny",
    "reqideny",
    "tcp-request",
    "use_backend",
];
/// Most sections.
const MAX_SECTIONS: usize = 20_000;
/// Marks the name of a variable of the environment within a word: `MARK NAME MARK`. A character of private use.
pub(super) const MARK: char = '\u{F8FE}';

/// A line of a section.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its words, without quotes and escapes.
    pub(super) words: Vec<String>,
    pub(super) piece: Piece,
    pub(super) place: Place,
}

/// A section.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// `frontend`, `backend` and so on.
    pub(super) kind: String,
    /// Its name; empty for `global`, and for `defaults` without one.
    pub(super) name: String,
    /// The line that opens it.
    pub(super) head: Line,
    pub(super) lines: Vec<Line>,
}

/// Names of sections.
const SECTIONS: &[&str] = &[
    "backend",
    "cache",
    "defaults",
    "fcgi-app",
    "frontend",
    "global",
    "http-errors",
    "listen",
    "log-forward",
    "mailers",
    "peers",
    "program",
    "resolvers",
    "ring",
    "traces",
    "userlist",
];

impl Line {
    /// The word at a position; empty if there is none.
    pub(super) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// The first word.
    pub(super) fn key(&self) -> &str {
        self.word(0)
    }

    /// The words from a position on.
    pub(super) fn from(&self, at: usize) -> &[String] {
        self.words.get(at..).unwrap_or_default()
    }

    /// The word behind the first word `name` from `at` on.
    pub(super) fn after(&self, at: usize, name: &str) -> Option<&str> {
        let found = self.from(at).iter().position(|word| word == name)?;
        self.words.get(at + found + 1).map(String::as_str)
    }

    /// Whether a word stands at `at` or behind it.
    pub(super) fn has(&self, at: usize, name: &str) -> bool {
        self.from(at).iter().any(|word| word == name)
    }
}

/// The files that the command line named; of a folder its `*.cfg`, as HAProxy reads them.
pub(super) fn files(tree: &SourceTree<'_>) -> Vec<String> {
    let mut files = Vec::new();
    for given in tree.given() {
        let inside = tree.glob(&format!("{}/*.cfg", given.trim_end_matches('/')));
        if inside.is_empty() { files.push(given.clone()) } else { files.extend(inside) }
    }
    files
}

/// Reads all files.
///
/// # Errors
/// If one cannot be read, or its syntax is broken.
pub(super) fn read_all(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Vec<Section>, Unreadable> {
    let mut sections: Vec<Section> = Vec::new();
    for file in files(tree) {
        let source = tree.read(&file)?;
        read(&source.name, &source.text, ledger, &mut sections)?;
    }
    Ok(sections)
}

fn read(name: &str, text: &str, ledger: &mut Ledger, sections: &mut Vec<Section>) -> Result<(), Unreadable> {
    // How many `.if` are open.
    let mut conditions = 0_usize;
    let first = sections.len();
    for (at, raw) in text.lines().enumerate() {
        let place = Place::new(name, u32::try_from(at + 1).unwrap_or(u32::MAX));
        if raw.len() > MAX_LINE {
            return Err(Unreadable::at(&place, format!("the line has more than {MAX_LINE} bytes")));
        }
        let words = words(raw).map_err(|why| Unreadable::at(&place, why))?;
        if words.is_empty() {
            continue;
        }
        if words.len() > MAX_WORDS {
            return Err(Unreadable::at(&place, format!("the line has more than {MAX_WORDS} words")));
        }
        let piece = ledger.enter(place.clone(), without_comment(raw));
        let line = Line { words, piece, place };
        if line.key().starts_with('.') {
            match line.key() {
                ".if" => conditions += 1,
                ".endif" => conditions = conditions.saturating_sub(1),
                _ => {}
            }
            let why = "lines that depend on a condition of HAProxy's preprocessor";
            ledger.refused(piece, why, "import the file as it is on one machine, without `.if`");
            continue;
        }
        if conditions > 0 {
            let why =
                "it stands between .if and .endif, and weir import does not know whether the condition holds";
            ledger.refused(piece, why, "import the file as it is on one machine, without `.if`");
            // What may guard requests is remembered, so that those are refused.
            if GUARDS.contains(&line.key())
                && let Some(section) = sections.last_mut()
            {
                let words = vec![".if".to_owned()];
                section.lines.push(Line { words, ..line });
            }
            continue;
        }
        if SECTIONS.contains(&line.key()) {
            if sections.len() >= MAX_SECTIONS {
                return Err(Unreadable::at(&line.place, format!("more than {MAX_SECTIONS} sections")));
            }
            let named = !matches!(line.word(1), "from" | "");
            let name = if named { line.word(1).to_owned() } else { String::new() };
            let kind = line.key().to_owned();
            sections.push(Section { kind, name, head: line, lines: Vec::new() });
            continue;
        }
        let has_section = sections.len() > first;
        match sections.last_mut().filter(|_| has_section) {
            Some(section) => section.lines.push(line),
            None => {
                let why =
                    format!("`{}` stands before the first section, or is no section of HAProxy", line.key());
                return Err(Unreadable::at(&line.place, why));
            }
        }
    }
    Ok(())
}

/// A line for the ledger, without its comment. A `#` within quotes is rare enough to be looked for by words alone.
fn without_comment(raw: &str) -> &str {
    let text = raw.trim();
    match text.find(" #").or_else(|| text.find("\t#")) {
        Some(at) if !text[..at].contains(['"', '\'', '\\']) => text[..at].trim_end(),
        _ => text,
    }
}

/// The words of a line.
fn words(raw: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_open = false;
    let (mut double, mut single) = (false, false);
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            MARK => return Err("a character of private use (U+F8FE)".to_owned()),
            '\'' if single => single = false,
            c if single => word.push(c),
            '\'' if !double => (single, is_open) = (true, true),
            '"' => (double, is_open) = (!double, true),
            '\\' => {
                is_open = true;
                escape(&mut chars, double, &mut word)?;
            }
            '$' if double => word.push_str(&variable(&mut chars)?),
            '#' if !double => break,
            ' ' | '\t' if !double => {
                if is_open {
                    words.push(std::mem::take(&mut word));
                    is_open = false;
                }
            }
            '\r' if chars.peek().is_none() => {}
            c => {
                is_open = true;
                word.push(c);
            }
        }
    }
    if single || double {
        return Err("a quote is not closed".to_owned());
    }
    if is_open {
        words.push(word);
    }
    Ok(words)
}

/// What stands behind a backslash.
fn escape(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    double: bool,
    word: &mut String,
) -> Result<(), String> {
    match chars.peek().copied() {
        Some(c @ (' ' | '#' | '\\' | '"' | '\'')) => word.push(c),
        Some('$') if double => word.push('$'),
        Some('n') => word.push('\n'),
        Some('r') => word.push('\r'),
        Some('t') => word.push('\t'),
        Some('x') => {
            chars.next();
            let digits: String = chars.by_ref().take(2).collect();
            let byte = u8::from_str_radix(&digits, 16).ok().filter(|byte| (1..0x80).contains(byte));
            let Some(byte) = byte else {
                return Err("`\\x` needs two hex digits of a character of ASCII".to_owned());
            };
            word.push(char::from(byte));
            return Ok(());
        }
        None => return Err("a backslash at the end of the line".to_owned()),
        // Any other stays, with its backslash: regular expressions live on it.
        Some(_) => {
            word.push('\\');
            return Ok(());
        }
    }
    chars.next();
    Ok(())
}

/// A variable of the environment: `NAME` or `{NAME}` or `{NAME-default}` behind the `$`.
fn variable(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let is_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let braced = chars.next_if_eq(&'{').is_some();
    let mut name = String::new();
    while let Some(c) = chars.next_if(is_name) {
        name.push(c);
    }
    if name.is_empty() {
        return Err("a `$` within double quotes is no variable: write `\\$`".to_owned());
    }
    if braced {
        let mut rest = String::new();
        loop {
            match chars.next() {
                Some('}') => break,
                Some(c) => rest.push(c),
                None => return Err("`${` is not closed".to_owned()),
            }
        }
        if let Some(default) = rest.strip_prefix('-') {
            return Ok(format!("{MARK}{name}:-{default}{MARK}"));
        }
        if !rest.is_empty() {
            return Err(format!("`${{{name}{rest}}}` is a list of words, which weir import does not read"));
        }
    }
    Ok(format!("{MARK}{name}{MARK}"))
}

/// Whether a word has a variable of the environment in it.
pub(super) fn has_variable(word: &str) -> bool {
    word.contains(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_haproxy_reads_them() {
        let cases: &[(&str, &[&str])] = &[
            ("  bind *:80 # all", &["bind", "*:80"]),
            (r"path_reg \.php$ a\ b \#x", &["path_reg", r"\.php$", "a b", "#x"]),
            (r#"x "a b" 'c "$d" \n' e"f"g"#, &["x", "a b", r#"c "$d" \n"#, "efg"]),
            (r#"x "\$1 \x41" $HOME"#, &["x", "$1 A", "$HOME"]),
            (r#"x """#, &["x", ""]),
        ];
        for (line, expected) in cases {
            assert_eq!(words(line).unwrap(), *expected, "{line}");
        }
        assert_eq!(words("x \"$A-${B}\"").unwrap()[1], format!("{MARK}A{MARK}-{MARK}B{MARK}"));
        for broken in ["x \"a", "x 'a", "x \\", "x \"$\"", "x \"${A\"", r"x \xZZ"] {
            assert!(words(broken).is_err(), "{broken}");
        }
    }
}
