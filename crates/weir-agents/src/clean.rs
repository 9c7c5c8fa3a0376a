//! Sanitizes texts from the other side before they are shown: control characters could drive a terminal, and a line
//! break could forge a line of the report.

use std::borrow::Cow;

/// Most characters of a text that is shown, such as the reason of a refusal.
pub const TEXT_MOST: usize = 2_000;

/// Most lines of such a text. The heads of a request and a response take about forty.
pub const LINES_MOST: usize = 100;

/// Separator between two lines that are joined into one.
pub(crate) const BREAK: &str = " | ";

/// Replacement for a character that may not be shown.
const INSTEAD: char = '\u{fffd}';

/// Whether a terminal may do something else than show this character, or show others in another order.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn push(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str(BREAK),
        '\r' => {}
        '\t' => out.push(' '),
        c if is_unsafe(c) => out.push(INSTEAD),
        c => out.push(c),
    }
}

/// A text on one line, of at most [`TEXT_MOST`] characters, without control characters.
pub fn line(text: &str) -> String {
    let mut out = String::new();
    text.chars().take(TEXT_MOST).for_each(|c| push(&mut out, c));
    if text.chars().nth(TEXT_MOST).is_some() {
        out.push('…');
    }
    out
}

/// The lines of a text, each as by [`line()`]; at most [`LINES_MOST`] of them.
pub fn lines(text: &str) -> Vec<String> {
    lines_of([text])
}

/// The lines of several texts, each as by [`line()`]; at most [`LINES_MOST`] in all.
pub fn lines_of<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut all = Vec::new();
    for text in texts {
        all.extend(text.as_ref().lines().take(LINES_MOST - all.len()).map(line));
    }
    all
}

/// JSON whose texts, keys included, have nothing in them that a terminal obeys. What is no JSON stays none.
pub fn json(text: &str) -> Cow<'_, str> {
    // Unescaped, JSON may have DEL and what is beyond ASCII; everything else needs a backslash.
    let is_clean = |c: char| c != '\\' && (c.is_ascii() && c != '\x7f' || !is_unsafe(c));
    let Some(first) = text.find(|c| !is_clean(c)) else { return Cow::Borrowed(text) };
    let (clean, mut rest) = text.split_at(first);
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(clean);
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        match c {
            '\\' => rest = rest.get(escaped(rest, &mut out)..).unwrap_or_default(),
            c if is_clean(c) => out.push(c),
            _ => out.push(INSTEAD),
        }
    }
    Cow::Owned(out)
}

/// Writes what stands for the escape whose backslash is before `rest`; returns how many bytes of `rest` belong to it.
fn escaped(rest: &str, out: &mut String) -> usize {
    let Some(kind) = rest.chars().next() else {
        out.push('\\');
        return 0;
    };
    let stands_for = match kind {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'b' => Some('\x08'),
        'f' => Some('\x0c'),
        // Halves of a pair are no characters, and stay as they are.
        'u' => {
            rest.get(1..5).and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32)
        }
        _ => None,
    };
    match stands_for.filter(|c| is_unsafe(*c)) {
        Some(c) => {
            push(out, c);
            if kind == 'u' { 5 } else { 1 }
        }
        None => {
            out.extend(['\\', kind]);
            kind.len_utf8()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (text, want) in [
            ("plain — ÿ 漢 🦀", "plain — ÿ 漢 🦀"),
            ("\x1b[2J\x07", "\u{fffd}[2J\u{fffd}"),
            ("a\u{9b}31m", "a\u{fffd}31m"),
            ("a\r\nverdict VALID\tx", "a | verdict VALID x"),
            ("\u{202e}abc\u{2066}\u{200b}\x7f", "\u{fffd}abc\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(line(text), want);
            // The same by JSON: as a value and as a key, with each way to write it.
            let escaped = |text: &str| -> String {
                text.chars()
                    .map(|c| match c as u32 {
                        n if n < 0x1_0000 && c.is_control() => format!("\\u{n:04x}"),
                        _ => c.to_string(),
                    })
                    .collect()
            };
            for text in [serde_json::to_string(text).unwrap(), format!("\"{}\"", escaped(text))] {
                let written = format!("{{{text}:[1,{text}]}}");
                let read: serde_json::Value = serde_json::from_str(&json(&written)).unwrap();
                assert_eq!(read, serde_json::json!({ want: [1, want] }), "{written}");
            }
        }
        for same in [
            r#"{"a\\n\"b":"\/\\u001b","c":"\ud83d\ude00 \u00e9"}"#,
            "{\"a\" :\n\t1 }",
            "[",
            "\"\\",
            "\"\\u00",
        ] {
            assert_eq!(json(same), same);
        }
    }

    #[test]
    fn texts_are_short() {
        assert_eq!(line(&"é".repeat(3_000)).chars().count(), TEXT_MOST + 1);
        assert_eq!(lines(&"a\n".repeat(1_000)).len(), LINES_MOST);
        assert_eq!(lines("setup: no\r\n\x1b[1mGET /"), ["setup: no", "\u{fffd}[1mGET /"]);
    }
}
