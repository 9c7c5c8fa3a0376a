//! Takes values that came from the environment or a file, and secrets, out of what is told about a config.
//!
//! A message quotes what is wrong, whole or in part, and whoever writes one does not think of secrets. So they are taken out
//! where a diagnostic learns which value it is about, whatever the message says.

use std::borrow::Cow;

/// Stands in a message where a value stood.
const CONCEALED: &str = "***";

/// A shorter piece of a value is looked for in quotes only: `5` is in many messages that do not mean it.
const WHOLE_CHARS: usize = 4;

/// Outside of quotes, a part of a value counts from this length.
const PART_CHARS: usize = 8;

/// The text without these values and without what is recognisably part of one.
pub(super) fn conceal<'t>(text: &'t str, values: &[&str]) -> Cow<'t, str> {
    if values.iter().all(|value| value.is_empty()) {
        return Cow::Borrowed(text);
    }
    // Whole values first: one may hold the very quotes that it stands in.
    let whole = values.iter().filter(|value| value.chars().count() >= WHOLE_CHARS);
    let text = whole.fold(text.to_owned(), |text, value| text.replace(*value, CONCEALED));
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        if let Some(len) = values.iter().filter_map(|value| shared(rest, value)).max() {
            out.push_str(CONCEALED);
            rest = rest.get(len..).unwrap_or_default();
        } else if matches!(first, '`' | '"' | '\'')
            && let Some((quoted, behind)) = rest.get(1..).and_then(|inner| inner.split_once(first))
        {
            out.push(first);
            out.push_str(&conceal_quoted(quoted, values));
            out.push(first);
            rest = behind;
        } else {
            out.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    Cow::Owned(out)
}

/// How much at the beginning of `text` is of `value`, if it is enough to count.
fn shared(text: &str, value: &str) -> Option<usize> {
    let chars = value.chars().count();
    let least = if chars < WHOLE_CHARS { return None } else { chars.min(PART_CHARS) };
    let mut len = text.char_indices().nth(least - 1).map(|(at, c)| at + c.len_utf8())?;
    if !value.contains(text.get(..len)?) {
        return None;
    }
    for (at, c) in text.char_indices().skip(least) {
        let longer = at + c.len_utf8();
        if !text.get(..longer).is_some_and(|t| value.contains(t)) {
            break;
        }
        len = longer;
    }
    Some(len)
}

/// What stands in quotes: all of it goes where it is part of a value, and each short value that stands in it.
fn conceal_quoted(quoted: &str, values: &[&str]) -> String {
    let plain = quoted.replace("\\\\", "\\").replace("\\\"", "\"").replace("\\'", "'");
    let is_part = |text: &str| text.chars().count() > 1 && values.iter().any(|value| value.contains(text));
    if is_part(quoted) || is_part(&plain) {
        return CONCEALED.to_owned();
    }
    let mut out = conceal(quoted, values).into_owned();
    for value in values.iter().filter(|value| (1..WHOLE_CHARS).contains(&value.chars().count())) {
        out = out.replace(*value, CONCEALED);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_left() {
        for (text, value, shown) in [
            ("`Bearer s3cr3t {x` has a brace", "s3cr3t", "`Bearer *** {x` has a brace"),
            ("`s3cr3t` is no host", "s3cr3t", "`***` is no host"),
            (
                "`{def}` is no placeholder; expected `{host}`",
                "abc{def}ghi",
                "`***` is no placeholder; expected `{host}`",
            ),
            ("write \"/s3cr3t\"", "s3cr3t", "write \"/***\""),
            ("regex parse error:\n  (s3cr3t-and-more\n", "(s3cr3t-and-more", "regex parse error:\n  ***\n"),
            (
                "see `weir explain GET http://h/a?v=s3cr3t`",
                "s3cr3t",
                "see `weir explain GET http://h/a?v=***`",
            ),
            ("-H 'x-key: s3cr3t'", "s3cr3t", "-H 'x-key: ***'"),
            ("it says s3cr3t-an", "s3cr3t-and-more", "it says ***"),
            ("`/v5/{x` in 5 places", "5", "`/v***/{x` in 5 places"),
            ("expected 1 to 1024", "4", "expected 1 to 1024"),
            ("`ab`cdef` is none", "ab`cdef", "`***` is none"),
            ("`a\\\"bcd` is none", "a\"bcd", "`***` is none"),
            ("nothing of it, `quoted` or not", "s3cr3t", "nothing of it, `quoted` or not"),
            ("an unclosed ` and é", "s3cr3t", "an unclosed ` and é"),
            ("`pässwörd` ist es", "pässwörd", "`***` ist es"),
        ] {
            assert_eq!(conceal(text, &[value]), shown, "{text}");
        }
        assert!(matches!(conceal("as it is", &[]), Cow::Borrowed(_)));
    }
}
