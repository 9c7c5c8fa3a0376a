//! Field values that are lists, whose parts may contain the separator in quotes (RFC 9110 §5.6.4).

/// Splits at the separators outside quotes and trims the parts. An unterminated quote hides every separator after it.
pub fn split_unquoted(text: &[u8], is_separator: impl Fn(u8) -> bool) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(move |&b| {
        let ends = !quoted && is_separator(b);
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        ends
    });
    parts.map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hide_separators() {
        let parts = |text: &'static str| -> Vec<&str> {
            let parts = split_unquoted(text.as_bytes(), |b| matches!(b, b',' | b';'));
            parts.map(|part| str::from_utf8(part).unwrap()).collect()
        };
        assert_eq!(parts("a ;b,, c=\"d;e,f\" "), ["a", "b", "", "c=\"d;e,f\""]);
        assert_eq!(parts(r#"a="\";b";c"#), [r#"a="\";b""#, "c"]);
        assert_eq!(parts(r#"a\,b"#), [r"a\", "b"], "only quotes know escapes");
        assert_eq!(parts(r#"a="b;c,d"#), [r#"a="b;c,d"#]);
        assert_eq!(parts(""), [""]);
    }
}
