//! Splits a command line into words: POSIX shell quotes and bash's `$'…'`, but no variables and no globs.

use std::iter::Peekable;
use std::str::Chars;

/// Words that end a command line if they stand alone and unquoted.
const OPERATORS: [&str; 11] = ["|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"];

/// The words of a command line.
///
/// # Errors
/// The part that cannot be read, and what to do.
pub(super) fn shell_words(text: &str) -> Result<Vec<String>, String> {
    if text.contains("^\"") || text.lines().any(|line| line.trim_end().ends_with(" ^")) {
        return Err("this is quoted for cmd.exe: choose `Copy as cURL (bash)` in the browser".to_owned());
    }
    let (mut words, mut word, mut quoted) = (Vec::new(), Vec::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                quoted = true;
                single(&mut chars, &mut word)?;
            }
            '"' => {
                quoted = true;
                double(&mut chars, &mut word)?;
            }
            '$' if chars.next_if_eq(&'\'').is_some() => {
                quoted = true;
                dollar(&mut chars, &mut word)?;
            }
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some('\r') if chars.next_if_eq(&'\n').is_some() => {}
                Some(c) => {
                    quoted = true;
                    push(&mut word, c);
                }
            },
            c if c.is_whitespace() => end(&mut words, &mut word, &mut quoted)?,
            c => push(&mut word, c),
        }
    }
    end(&mut words, &mut word, &mut quoted)?;
    Ok(words)
}

/// Ends a word, if there is one.
fn end(words: &mut Vec<String>, word: &mut Vec<u8>, quoted: &mut bool) -> Result<(), String> {
    let quoted = std::mem::take(quoted);
    if !quoted && word.is_empty() {
        return Ok(());
    }
    let text = String::from_utf8(std::mem::take(word))
        .map_err(|e| format!("`{}` is not UTF-8", String::from_utf8_lossy(e.as_bytes())))?;
    if !quoted && OPERATORS.contains(&text.as_str()) {
        return Err(format!("expected one command line of curl alone; it ends at `{text}`"));
    }
    words.push(text);
    Ok(())
}

fn push(word: &mut Vec<u8>, c: char) {
    word.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn single(chars: &mut Peekable<Chars<'_>>, word: &mut Vec<u8>) -> Result<(), String> {
    loop {
        match chars.next() {
            Some('\'') => return Ok(()),
            Some(c) => push(word, c),
            None => return Err("a single quote is not closed".to_owned()),
        }
    }
}

fn double(chars: &mut Peekable<Chars<'_>>, word: &mut Vec<u8>) -> Result<(), String> {
    let open = || "a double quote is not closed".to_owned();
    loop {
        match chars.next().ok_or_else(open)? {
            '"' => return Ok(()),
            '\\' => match chars.next().ok_or_else(open)? {
                '\n' => {}
                c @ ('"' | '\\' | '$' | '`') => push(word, c),
                c => {
                    word.push(b'\\');
                    push(word, c);
                }
            },
            c => push(word, c),
        }
    }
}

/// `$'…'`: escapes as in C, and `\u`.
fn dollar(chars: &mut Peekable<Chars<'_>>, word: &mut Vec<u8>) -> Result<(), String> {
    let open = || "a single quote is not closed".to_owned();
    loop {
        match chars.next().ok_or_else(open)? {
            '\'' => return Ok(()),
            '\\' => match chars.next().ok_or_else(open)? {
                'a' => word.push(7),
                'b' => word.push(8),
                'e' | 'E' => word.push(27),
                'f' => word.push(12),
                'n' => word.push(b'\n'),
                'r' => word.push(b'\r'),
                't' => word.push(b'\t'),
                'v' => word.push(11),
                'x' => word.push(
                    hex(chars, 2)
                        .and_then(|n| u8::try_from(n).ok())
                        .ok_or("\\x needs a hexadecimal digit")?,
                ),
                'u' => push(word, unicode(chars)?),
                'U' => push(
                    word,
                    hex(chars, 8).and_then(char::from_u32).ok_or("\\U needs the number of a character")?,
                ),
                c => push(word, c),
            },
            c => push(word, c),
        }
    }
}

/// Reads at most `most` hexadecimal digits.
fn hex(chars: &mut Peekable<Chars<'_>>, most: usize) -> Option<u32> {
    let mut found = None;
    for _ in 0..most {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(16)) else { break };
        chars.next();
        found = Some(found.unwrap_or(0) << 4 | digit);
    }
    found
}

/// A character after `\u`. Browsers write characters beyond the first 65,536 as two escapes, as JavaScript does.
fn unicode(chars: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    let mut code = hex(chars, 4).ok_or("\\u needs hexadecimal digits")?;
    if (0xd800..0xdc00).contains(&code)
        && chars.next_if_eq(&'\\').is_some()
        && chars.next_if_eq(&'u').is_some()
    {
        let low = hex(chars, 4).filter(|low| (0xdc00..0xe000).contains(low));
        code = low.map_or(code, |low| 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
    }
    char::from_u32(code).ok_or_else(|| format!("\\u{code:x} is half of a character"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_those_of_bash() {
        for (text, want) in [
            ("a 'b c'\"d\\\"\\n\" ''", vec!["a", "b cd\"\\n", ""]),
            (r"$'\u0021\x41\n\'\ud83d\ude00é\\'", vec!["!A\n'😀é\\"]),
            ("a \\\r\n  b \\\n c", vec!["a", "b", "c"]),
            ("a '|' h/?x=1&y=2", vec!["a", "|", "h/?x=1&y=2"]),
        ] {
            assert_eq!(shell_words(text).unwrap(), want, "{text}");
        }
        for (text, hint) in [
            ("'a", "single quote"),
            ("\"a", "double quote"),
            ("$'a", "single quote"),
            (r"$'\ud83d'", "half"),
            (r"$'\xff'", "UTF-8"),
            ("curl h | jq", "ends at `|`"),
            ("curl ^\"http://h/^\" ^\n -k", "cURL (bash)"),
        ] {
            assert!(shell_words(text).unwrap_err().contains(hint), "{text}");
        }
    }
}
