//! Field values that are lists of parts, of which quotes may hold the separator (RFC 9110 §5.6.4).

/// The parts between separators that stand outside of quotes, without the spaces around them. A quote that nothing closes hides every
/// separator behind it.
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
