//! Escaping: makes values from any source safe for a label, a JSON string or a plain line.
//!
//! Invariant: the output never contains a line break, a quote that closes an open one, a control character, or
//! invalid UTF-8.

/// Most bytes of a name as a label value; longer names are cut. Config names are far shorter.
pub(crate) const LABEL_BYTES: usize = 256;

/// A label pair: `key="value"`, escaped for Prometheus text and OpenMetrics alike.
pub(crate) fn label(out: &mut String, key: &str, value: &str) {
    out.push_str(key);
    out.push_str("=\"");
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A name cut to [`LABEL_BYTES`], between characters.
pub(crate) fn bounded(name: &str) -> &str {
    &name[..name.floor_char_boundary(LABEL_BYTES)]
}

/// The notation for a hostile byte or character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Inside a JSON string (RFC 8259 §7).
    Json,
    /// Inside a plain line, whether or not the template puts quotes around it: `\xHH` for bytes, as nginx does.
    Plain,
}

/// Appends at most `limit` bytes of `value`, escaped; a cut value ends in `…`.
///
/// Valid UTF-8 stays unchanged, except characters that end a line somewhere or control a terminal: U+0080 to U+009F,
/// U+2028, U+2029. Each maximal invalid sequence becomes U+FFFD. Worst case: six times `limit`.
#[inline]
pub(crate) fn escape(out: &mut Vec<u8>, value: &[u8], limit: usize, style: Style) {
    // Nearly all values are plain and short.
    if value.len() <= limit && is_plain(value) {
        out.extend_from_slice(value);
    } else {
        escape_some(out, value, limit, style);
    }
}

fn escape_some(out: &mut Vec<u8>, value: &[u8], limit: usize, style: Style) {
    let kept = cut(value, limit);
    let mut rest = kept;
    loop {
        let (plain, tail) = rest.split_at(plain_run(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = tail.split_first() else { break };
        if byte.is_ascii() {
            ascii(out, byte, style);
            rest = after;
        } else {
            let end = tail.iter().position(u8::is_ascii).unwrap_or(tail.len());
            let (wide, after) = tail.split_at(end);
            not_ascii(out, wide, style);
            rest = after;
        }
    }
    if kept.len() < value.len() {
        out.extend_from_slice("…".as_bytes());
    }
}

/// At most `limit` bytes, not ending within a character (as far as three bytes show).
fn cut(value: &[u8], limit: usize) -> &[u8] {
    if value.len() <= limit {
        return value;
    }
    let mut end = limit;
    while end > 0 && limit - end < 3 && value[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &value[..end]
}

/// Whether nothing needs an escape. Checks eight bytes at a time, the last ones overlapping: a JSON line of the
/// access log takes 323 ns, where `plain_run` took 351 (examples/measure.rs).
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    if let Some(last) = bytes.last_chunk::<8>() {
        let (words, _) = bytes.as_chunks::<8>();
        let found = words.iter().fold(0, |found, word| found | special_bytes(u64::from_le_bytes(*word)));
        found | special_bytes(u64::from_le_bytes(*last)) == 0
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let word = u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
        special_bytes(word) == 0
    } else {
        !bytes.iter().any(|byte| is_special(*byte))
    }
}

/// The number of leading bytes that need no escape.
fn plain_run(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return i * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let rest = tail.iter().position(|byte| is_special(*byte)).unwrap_or(tail.len());
    words.len() * 8 + rest
}

/// Sets the high bit of each byte that [`is_special`]. Bits above the first one set may be wrong; callers ignore
/// them.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let zero_in = |x: u64| x.wrapping_sub(ONES) & !x;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero_in(word ^ (ONES * b'"' as u64));
    let backslash = zero_in(word ^ (ONES * b'\\' as u64));
    let delete = zero_in(word ^ (ONES * 0x7f));
    (control | quote | backslash | delete | word) & HIGH
}

fn is_special(byte: u8) -> bool {
    !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\'
}

fn ascii(out: &mut Vec<u8>, byte: u8, style: Style) {
    let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit & 15)];
    match (style, byte) {
        (Style::Json, b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
        (Style::Json, b'\n') => out.extend_from_slice(b"\\n"),
        (Style::Json, b'\r') => out.extend_from_slice(b"\\r"),
        (Style::Json, b'\t') => out.extend_from_slice(b"\\t"),
        (Style::Json, _) => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte)]),
        (Style::Plain, _) => out.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte)]),
    }
}

fn not_ascii(out: &mut Vec<u8>, bytes: &[u8], style: Style) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    let open = if style == Style::Json { "\\u" } else { "\\u{" };
                    let close = if style == Style::Json { "" } else { "}" };
                    out.extend_from_slice(format!("{open}{:04x}{close}", c as u32).as_bytes());
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(value: &[u8], limit: usize, style: Style) -> String {
        let mut out = Vec::new();
        escape(&mut out, value, limit, style);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn hostile_values_are_escaped() {
        let cases: &[(&[u8], &str, &str)] = &[
            (b"", "", ""),
            (
                b"plain text, longer than a word",
                "plain text, longer than a word",
                "plain text, longer than a word",
            ),
            (b"a\"b\\c", r#"a\"b\\c"#, r"a\x22b\x5cc"),
            (b"GET\r\n{\"x\":1}", r#"GET\r\n{\"x\":1}"#, r"GET\x0d\x0a{\x22x\x22:1}"),
            (b"\0\t\x1b[31m\x7f", r"\u0000\t\u001b[31m\u007f", r"\x00\x09\x1b[31m\x7f"),
            ("grüße €".as_bytes(), "grüße €", "grüße €"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}", "\u{fffd}\u{fffd}"),
            (b"\xe2\x82", "\u{fffd}", "\u{fffd}"),
            (b"x\xc0\xafy", "x\u{fffd}\u{fffd}y", "x\u{fffd}\u{fffd}y"),
            (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}", "\u{fffd}\u{fffd}\u{fffd}"),
            ("\u{85}\u{9b}\u{2028}".as_bytes(), r"\u0085\u009b\u2028", r"\u{0085}\u{009b}\u{2028}"),
        ];
        for (value, json, plain) in cases {
            assert_eq!(escaped(value, 99, Style::Json), *json, "{value:?}");
            assert_eq!(escaped(value, 99, Style::Plain), *plain, "{value:?}");
        }
    }

    #[test]
    fn every_byte_at_every_place_is_found() {
        for byte in 0..=255u8 {
            for place in 0..24 {
                let mut value = [b'a'; 24];
                value[place] = byte;
                let expected = if is_special(byte) { place } else { 24 };
                assert_eq!(plain_run(&value), expected, "{byte:#x} at {place}");
                for end in place + 1..=24 {
                    assert_eq!(is_plain(&value[..end]), !is_special(byte), "{byte:#x} at {place} of {end}");
                    assert_eq!(
                        is_plain(&value[place..end]),
                        !is_special(byte),
                        "{byte:#x} at 0 of {}",
                        end - place
                    );
                }
            }
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(escaped(b"abcdef", 6, Style::Json), "abcdef");
        assert_eq!(escaped(b"abcdefg", 6, Style::Json), "abcdef…");
        assert_eq!(escaped("ab€€".as_bytes(), 4, Style::Json), "ab…");
        assert_eq!(escaped("ab€€".as_bytes(), 5, Style::Json), "ab€…");
        assert_eq!(escaped(&[0x80; 9], 4, Style::Json), "\u{fffd}…");
        assert_eq!(escaped(&[0xff; 1000], 2, Style::Json), "\u{fffd}\u{fffd}…");
        assert_eq!(bounded(&"ü".repeat(200)).len(), 256);
    }

    #[test]
    fn labels_are_escaped() {
        let mut out = String::new();
        label(&mut out, "route", "a\\b\"c\nd");
        assert_eq!(out, r#"route="a\\b\"c\nd""#);
    }
}
