//! Reads plain JSON into the same tree as the YAML reader, in a tenth of the time.
//!
//! A controller's config is megabytes of JSON, loaded again whenever an object changes. If a text is not plain JSON, or
//! has a mistake, [`read`] returns `None` and the YAML reader takes it, because its messages are better. A test checks
//! that both readers agree.

use super::super::node::{Node, Place, Value};
use super::{Builder, Content};
use std::borrow::Cow;

/// Longest key, in bytes with its quotes. YAML requires a `?` before keys of more than 1,024 characters.
const MAX_KEY: usize = 1_000;

/// Reads a map. `None` if the text is not plain JSON, or has any mistake.
pub(super) fn read(builder: &mut Builder, text: &str) -> Option<()> {
    if text.len() > builder.bytes {
        return None;
    }
    let mut text = Reader { text, at: 0, line: 1, line_start: 0, wide: 0 };
    text.skip_space();
    if text.peek()? != b'{' {
        return None;
    }
    loop {
        value(builder, &mut text)?;
        // Close lists and maps until another value begins.
        loop {
            text.skip_space();
            let Some(open) = builder.open.last() else { return text.peek().is_none().then_some(()) };
            let is_map = matches!(open.content, Content::Map { .. });
            match (text.peek()?, is_map) {
                (b',', _) => {
                    text.at += 1;
                    text.skip_space();
                    if is_map {
                        key(builder, &mut text)?;
                    }
                    break;
                }
                (b'}', true) | (b']', false) => {
                    text.at += 1;
                    builder.end().ok()?;
                }
                _ => return None,
            }
        }
    }
}

/// Reads up to the end of the next scalar, or up to the closing bracket of an empty list or map.
fn value(builder: &mut Builder, text: &mut Reader<'_>) -> Option<()> {
    loop {
        text.skip_space();
        let at = text.place(builder);
        match text.peek()? {
            b'{' => {
                text.at += 1;
                builder.begin_at(at, 0, Content::map()).ok()?;
                text.skip_space();
                if text.peek()? == b'}' {
                    return Some(()); // the caller reads the bracket
                }
                key(builder, text)?;
            }
            b'[' => {
                text.at += 1;
                builder.begin_at(at, 0, Content::Seq(Vec::new())).ok()?;
                text.skip_space();
                if text.peek()? == b']' {
                    return Some(());
                }
            }
            b'"' => {
                let string = text.string()?;
                return builder.value(Node::new(at, Value::Str((&*string).into()), &string), 0).ok();
            }
            _ => {
                let word = text.word()?;
                return builder.value(Node::new(at, Value::plain(word), word), 0).ok();
            }
        }
    }
}

/// Reads a key and its colon.
fn key(builder: &mut Builder, text: &mut Reader<'_>) -> Option<()> {
    let at = text.place(builder);
    let begin = text.at;
    let key = text.string()?;
    let line = at.line;
    if text.at - begin > MAX_KEY {
        return None;
    }
    builder.key(&key, at).ok()?;
    text.skip_space();
    if text.peek()? != b':' || text.line != line {
        return None;
    }
    text.at += 1;
    Some(())
}

struct Reader<'t> {
    text: &'t str,
    /// The next byte.
    at: usize,
    line: u32,
    /// Where the line begins.
    line_start: usize,
    /// Bytes of this line before `at` that continue a character: columns count characters.
    wide: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The position of the next byte, with columns in characters.
    fn place(&self, builder: &Builder) -> Place {
        let column = self.at - self.line_start - self.wide + 1;
        Place {
            file: builder.file.clone(),
            line: self.line,
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    fn skip_space(&mut self) {
        while let Some(byte @ (b' ' | b'\n')) = self.peek() {
            self.at += 1;
            if byte == b'\n' {
                (self.line_start, self.wide) = (self.at, 0);
                self.line += 1;
            }
        }
    }

    /// A string with its quotes, decoded.
    fn string(&mut self) -> Option<Cow<'t, str>> {
        if self.peek()? != b'"' {
            return None;
        }
        let begin = self.at + 1;
        let mut end = begin;
        let bytes = self.text.as_bytes();
        loop {
            match *bytes.get(end)? {
                b'"' => break,
                b'\\' => return self.escaped(begin, end),
                b' '..=b'~' => {}
                0x80.. => self.wide += usize::from(is_inner(*bytes.get(end)?)),
                _ => return None,
            }
            end += 1;
        }
        self.at = end + 1;
        let found = self.text.get(begin..end)?;
        (found.is_ascii() || found.chars().all(is_plain)).then_some(Cow::Borrowed(found))
    }

    /// The rest of a string that has an escape at `end`.
    fn escaped(&mut self, begin: usize, mut end: usize) -> Option<Cow<'t, str>> {
        let mut out = self.text.get(begin..end)?.to_owned();
        let bytes = self.text.as_bytes();
        loop {
            let from = end;
            match *bytes.get(end)? {
                b'"' => break,
                b'\\' => {
                    let (decoded, length) = match *bytes.get(end + 1)? {
                        escape @ (b'"' | b'\\' | b'/') => (char::from(escape), 2),
                        b'b' => ('\u{8}', 2),
                        b'f' => ('\u{c}', 2),
                        b'n' => ('\n', 2),
                        b'r' => ('\r', 2),
                        b't' => ('\t', 2),
                        b'u' => {
                            let digits = self.text.get(end + 2..end + 6)?;
                            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                            let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
                            (char::from_u32(number)?, 6) // a lone surrogate is no character
                        }
                        _ => return None,
                    };
                    out.push(decoded);
                    end += length;
                    continue;
                }
                b' '..=b'~' => end += 1,
                0x80.. => {
                    end += 1;
                    while is_inner(*bytes.get(end)?) {
                        end += 1;
                        self.wide += 1;
                    }
                }
                _ => return None,
            }
            out.push_str(self.text.get(from..end)?);
        }
        self.at = end + 1;
        (out.is_ascii() || self.text.get(begin..end)?.chars().all(is_plain)).then_some(Cow::Owned(out))
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<&'t str> {
        let rest = self.text.get(self.at..)?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let word = rest.get(..rest.find(|c| !is_part(c))?)?;
        if !matches!(word, "true" | "false" | "null") && !is_number(word) {
            return None;
        }
        self.at += word.len();
        Some(word)
    }
}

/// Whether a byte continues a UTF-8 character.
const fn is_inner(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// Whether both readers take a character as it is. Texts with others are rare.
const fn is_plain(c: char) -> bool {
    !matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a text is a number of JSON (RFC 8259 §6).
fn is_number(text: &str) -> bool {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut rest = text.strip_prefix('-').unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || whole > 1 && rest.starts_with('0') {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let count = digits(exponent);
        if count == 0 {
            return false;
        }
        rest = &exponent[count..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn builder() -> Builder {
        Builder::new(Arc::new(PathBuf::from("t.yaml")))
    }

    /// The tree with all positions, from this reader and from the YAML reader.
    fn both(text: &str) -> (Option<String>, Option<String>) {
        let (mut json, mut yaml) = (builder(), builder());
        let read = read(&mut json, text).map(|()| format!("{:?} {:?}", json.root, json.duplicates));
        let other = yaml.run(text).ok().map(|root| format!("{root:?} {:?}", yaml.duplicates));
        (read, other)
    }

    #[test]
    fn json_is_what_yaml_says() {
        for text in [
            "{}",
            " \n {\n}\n\n",
            r#"{"a": {}, "b": [], "c": [[], {}], "d": [1, -2, 1.5, 1e3, -0.5E-2, 0, true, false, null]}"#,
            "{\n  \"routes\": {\n    \"a\": {\"match\": {\"path\": \"/*\"}},\n    \"b\": {\"x\": [\"1\", \"y\"]} },\n  \"z\": 1\n}\n",
            r#"{"q": "a\"b\\c\/d\b\f\n\r\té\u20ac", "": "", " ": " "}"#,
            "{\"ä\": \"ö, €, 𝄞\", \"after\": 1,\n \"next\": \"𝄞\\n𝄞\", \"then\": [\"é\", 2]}",
            r##"{"a": "#no comment", "b": "- x", "c": "{y}", "d": "a: b", "e": "&x *y !z", "f": "12", "g": "~"}"##,
            r#"{"a": 1, "a": 2, "b": {"c": 1, "c": 1}}"#,
            r#"{"a": 123456789012345678901234567890, "b": 1.0, "c": 1E400, "d": "null"}"#,
            "{\"a\":1,\"b\":{\"c\":[1,2,{\"d\":null}]}}",
        ] {
            let (json, yaml) = both(text);
            assert!(json.is_some(), "{text}");
            assert_eq!(json, yaml, "{text}");
        }
        let many: Vec<String> = (0..200).map(|n| format!("\"k{n}\": {n}")).collect();
        let (json, yaml) = both(&format!("{{{}, \"k7\": 0}}", many.join(",\n ")));
        assert!(json.is_some());
        assert_eq!(json, yaml);
    }

    #[test]
    fn the_rest_is_left_to_yaml() {
        for text in [
            "",
            "a: 1",
            "[1]",
            "{a: 1}",
            "{\"a\": 1,}",
            "{\"a\": 01}",
            "{\"a\": .5}",
            "{\"a\": 1.}",
            "{\"a\": +1}",
            "{\"a\": 1e}",
            "{\"a\": yes}",
            "{\"a\": 'x'}",
            "{\"a\": 1} # note",
            "{\"a\": 1}\n---\n",
            "{\"a\": 1} {}",
            "{\"a\": &x 1}",
            "{\"a\" 1}",
            "{\"a\"\n: 1}",
            "{\"a\": \"x",
            "{\"a\": \"x\ny\"}",
            "{\"a\": \"\t\"}",
            "{\"a\":\t1}",
            "{\"a\": 1\r\n}",
            "{\"a\": \"\\x41\"}",
            "{\"a\": \"\\ud834\\udd1e\"}",
            "{\"a\": \"\u{85}\"}",
            "{\"a\": [1}",
            "{\"a\": {]}",
            "{\"<<\": 1}",
            "{\"a\": ",
            "{\"a\": \"\\u12",
            "{\"a\": \"\\",
        ] {
            assert_eq!(read(&mut builder(), text), None, "{text}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(super::super::MAX_DEPTH + 1), "}".repeat(70));
        assert_eq!(read(&mut builder(), &deep), None);
        assert_eq!(read(&mut builder(), &format!("{{\"{}\": 1}}", "k".repeat(MAX_KEY))), None);
        let mut small = builder();
        small.bytes = 5;
        assert_eq!(read(&mut small, "{\"a\": 1}"), None);
    }
}
