//! Command lines in a file, as shells read them: quotes of POSIX, `$'…'` of bash, comments, and lines that go on. A
//! file may hold several, ended by lines, `;`, `&&` or `&`. Variables of the shell become names of the plan.

use crate::plan::request::{VARIABLE, VARIABLE_END};
use crate::source::{Place, Unreadable};
use std::iter::Peekable;
use std::str::Chars;

/// Most words of a file.
const WORDS: usize = 200_000;

/// A command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// The line on which it begins, from 1.
    pub(super) line: u32,
    pub(super) words: Vec<String>,
    /// Why only a part of it is a command of its own: what follows in the shell.
    pub(super) then: Option<String>,
}

/// The command lines of a text.
///
/// # Errors
/// If a quote is not closed, or the text is written for another shell.
pub(super) fn commands(file: &str, text: &str) -> Result<Vec<Command>, Unreadable> {
    if text.contains(" ^\n") || text.contains(" ^\r\n") || text.contains("^\"") {
        let why = "this is quoted for cmd.exe: choose `Copy as cURL (bash)` in the browser";
        return Err(Unreadable::at(&Place::new(file, 1), why));
    }
    if text.contains('`') && text.trim_start().starts_with("Invoke-WebRequest") {
        let why = "this is PowerShell: choose `Copy as cURL (bash)` in the browser";
        return Err(Unreadable::at(&Place::new(file, 1), why));
    }
    check_marks(text).map_err(|why| Unreadable::at(&Place::new(file, 1), why))?;
    let mut reader =
        Reader { chars: text.chars().peekable(), line: 1, word: String::new(), is_quoted: false };
    reader.all().map_err(|why| Unreadable::at(&Place::new(file, reader.line), why))
}

/// Refuses the characters that mark variables while a command line is translated: a source must not mean one by them.
///
/// # Errors
/// If the text has one of them.
pub(super) fn check_marks(text: &str) -> Result<(), String> {
    match text.chars().find(|c| [VARIABLE, VARIABLE_END].contains(c)) {
        Some(c) => Err(format!(
            "the character U+{:04X} for private use is not read: write it as an escape",
            u32::from(c)
        )),
        None => Ok(()),
    }
}

struct Reader<'t> {
    chars: Peekable<Chars<'t>>,
    line: u32,
    word: String,
    /// Whether a part of the word had quotes, so that it counts even if it is empty.
    is_quoted: bool,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.next();
        if c == Some('\n') {
            self.line = self.line.saturating_add(1);
        }
        c
    }

    fn all(&mut self) -> Result<Vec<Command>, String> {
        let mut all = Vec::new();
        let mut open = Command { line: 1, words: Vec::new(), then: None };
        let mut count = 0;
        loop {
            let begins = self.line;
            let is_free = self.word.is_empty() && !self.is_quoted;
            let c = self.next();
            match c {
                None | Some('\n' | ';' | '&' | '|' | '<' | '>') => {
                    if self.ends(&mut open, begins) {
                        count += 1;
                    }
                    match c {
                        Some('|' | '<' | '>') => {
                            let what = if c == Some('|') { "pipes its output on" } else { "redirects it" };
                            open.then = Some(what.to_owned());
                            self.skip_line();
                        }
                        Some('&') => _ = self.chars.next_if_eq(&'&'),
                        _ => {}
                    }
                    let next = Command { line: self.line, words: Vec::new(), then: None };
                    let done = std::mem::replace(&mut open, next);
                    if !done.words.is_empty() {
                        all.push(done);
                    }
                    if c.is_none() {
                        return Ok(all);
                    }
                }
                Some('#') if is_free => self.skip_comment(),
                Some(c) if c.is_whitespace() => {
                    if self.ends(&mut open, begins) {
                        count += 1;
                    }
                }
                Some('\\') => match self.next() {
                    Some('\n') | None => {}
                    Some('\r') if self.chars.peek() == Some(&'\n') => _ = self.next(),
                    Some(c) => {
                        self.is_quoted = true;
                        self.word.push(c);
                    }
                },
                Some('\'') => self.single()?,
                Some('"') => self.double()?,
                Some('$') if self.chars.peek() == Some(&'\'') => {
                    self.next();
                    self.dollar()?;
                }
                Some('$') => self.variable()?,
                Some(c) => self.word.push(c),
            }
            if open.words.is_empty() && (!self.word.is_empty() || self.is_quoted) {
                open.line = open.line.max(begins);
            }
            if count > WORDS {
                return Err(format!("more than {WORDS} words"));
            }
        }
    }

    /// Ends a word, if there is one.
    fn ends(&mut self, open: &mut Command, line: u32) -> bool {
        let is_word = !self.word.is_empty() || self.is_quoted;
        if is_word {
            if open.words.is_empty() {
                open.line = open.line.min(line).max(1);
            }
            open.words.push(std::mem::take(&mut self.word));
        }
        self.is_quoted = false;
        is_word
    }

    fn skip_comment(&mut self) {
        while self.chars.next_if(|c| *c != '\n').is_some() {}
    }

    /// What follows a pipe, up to the end of the command.
    fn skip_line(&mut self) {
        let mut before = ' ';
        while let Some(c) = self.chars.next_if(|c| *c != '\n' || before == '\\') {
            if c == '\n' {
                self.line = self.line.saturating_add(1);
            }
            before = c;
        }
    }

    fn single(&mut self) -> Result<(), String> {
        self.is_quoted = true;
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(c) => self.word.push(c),
                None => return Err("a single quote is not closed".to_owned()),
            }
        }
    }

    fn double(&mut self) -> Result<(), String> {
        self.is_quoted = true;
        let open = || "a double quote is not closed".to_owned();
        loop {
            match self.next().ok_or_else(open)? {
                '"' => return Ok(()),
                '\\' => match self.next().ok_or_else(open)? {
                    '\n' => {}
                    c @ ('"' | '\\' | '$' | '`') => self.word.push(c),
                    c => self.word.extend(['\\', c]),
                },
                '$' => self.variable()?,
                '`' => return Err("a command within a command (`…`) is not run".to_owned()),
                c => self.word.push(c),
            }
        }
    }

    /// `$NAME`, `${NAME}`; `$(…)` is refused.
    fn variable(&mut self) -> Result<(), String> {
        let has_brace = self.chars.next_if_eq(&'{').is_some();
        if self.chars.peek() == Some(&'(') {
            return Err("a command within a command, `$(…)`, is not run".to_owned());
        }
        let mut name = String::new();
        while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
            name.push(c);
        }
        if has_brace {
            // Defaults and the like are the shell's own language.
            if self.next() != Some('}') {
                return Err(format!("`${{{name}…` has more than a name"));
            }
        }
        match name.is_empty() {
            true => self.word.push('$'),
            false => {
                self.word.push(VARIABLE);
                self.word.push_str(&name);
                self.word.push(VARIABLE_END);
            }
        }
        Ok(())
    }

    /// `$'…'`: escapes as in C, and `\u`.
    fn dollar(&mut self) -> Result<(), String> {
        self.is_quoted = true;
        let open = || "a single quote is not closed".to_owned();
        let mut bytes = Vec::new();
        let push =
            |bytes: &mut Vec<u8>, c: char| bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        loop {
            match self.next().ok_or_else(open)? {
                '\'' => break,
                '\\' => match self.next().ok_or_else(open)? {
                    'a' => bytes.push(7),
                    'b' => bytes.push(8),
                    'e' | 'E' => bytes.push(27),
                    'f' => bytes.push(12),
                    'n' => bytes.push(b'\n'),
                    'r' => bytes.push(b'\r'),
                    't' => bytes.push(b'\t'),
                    'v' => bytes.push(11),
                    'x' => {
                        let code = self.hex(2).and_then(|n| u8::try_from(n).ok());
                        bytes.push(code.ok_or("\\x needs a hexadecimal digit")?);
                    }
                    'u' => push(&mut bytes, self.unicode()?),
                    'U' => {
                        let c = self.hex(8).and_then(char::from_u32);
                        push(&mut bytes, c.ok_or("\\U needs the number of a character")?);
                    }
                    c => push(&mut bytes, c),
                },
                c => push(&mut bytes, c),
            }
        }
        let text = String::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())?;
        check_marks(&text)?;
        self.word.push_str(&text);
        Ok(())
    }

    /// At most `most` hexadecimal digits.
    fn hex(&mut self, most: usize) -> Option<u32> {
        let mut found = None;
        for _ in 0..most {
            let Some(digit) = self.chars.peek().and_then(|c| c.to_digit(16)) else { break };
            self.next();
            found = Some(found.unwrap_or(0) << 4 | digit);
        }
        found
    }

    /// A character after `\u`. Browsers write characters beyond the first 65,536 as two escapes.
    fn unicode(&mut self) -> Result<char, String> {
        let mut code = self.hex(4).ok_or("\\u needs hexadecimal digits")?;
        if (0xd800..0xdc00).contains(&code)
            && self.chars.next_if_eq(&'\\').is_some()
            && self.chars.next_if_eq(&'u').is_some()
        {
            let low = self.hex(4).filter(|low| (0xdc00..0xe000).contains(low));
            code = low.map_or(code, |low| 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
        }
        char::from_u32(code).ok_or_else(|| format!("\\u{code:x} is half of a character"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_several_commands() {
        let text = "# two\ncurl 'a b' \\\n  -H \"x: \\\"y\\\"\" ;\n\ncurl c && curl $'d\\u0021' | jq .\ncurl \"$HOST/x\"\n";
        let all = commands("f", text).unwrap();
        let shown: Vec<_> = all.iter().map(|c| (c.line, c.words.join("|"), c.then.is_some())).collect();
        let variable = format!("curl|{VARIABLE}HOST{VARIABLE_END}/x");
        assert_eq!(
            shown,
            [
                (2, "curl|a b|-H|x: \"y\"".to_owned(), false),
                (5, "curl|c".to_owned(), false),
                (5, "curl|d!".to_owned(), true),
                (6, variable, false)
            ]
        );
        for (text, why) in [
            ("curl 'a", "single quote"),
            ("curl \"a", "double quote"),
            ("curl $(cat x)", "not run"),
            ("curl \"`cat x`\"", "not run"),
            ("curl ^\"http://h/^\" ^\n -k", "cURL (bash)"),
            ("curl ${A:-b}", "more than a name"),
        ] {
            assert!(commands("f", text).unwrap_err().message.contains(why), "{text}");
        }
    }
}
