//! Which values look made up for one session.

use super::{LONGEST, SHORTEST};
use crate::plan::text;

pub(super) fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether a value is long enough to be told from others, and is one word.
pub(super) fn may_be_made_up(value: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.~+/=:".contains(c);
    (SHORTEST..=LONGEST).contains(&value.len())
        && value.chars().all(fine)
        && !value.contains("://")
        && !value.starts_with('/')
}

/// Whether a value looks like one that a program made: long, without blanks, and no word, date or name of a type.
pub(in crate::plan::har) fn is_made_up(value: &str) -> bool {
    if !may_be_made_up(value) {
        return false;
    }
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let is_date = value.len() <= 29 && text::milliseconds(&format!("{value}T00:00:00Z")).is_some()
        || text::milliseconds(value).is_some();
    if is_date {
        return false;
    }
    // The name of a file or host, unless a part of it is random, as in `v4.public.…` and `ya29.…`.
    if value.contains('.') && letters > 0 && digits * 4 < letters && !value.starts_with("eyJ") {
        return value.split('.').any(|part| part.len() >= 16 && is_made_up(part));
    }
    // A word with capitals inside and no digit is no name of a thing: `dGhpc0lzQVRva2Vu`.
    let changes = value
        .as_bytes()
        .windows(2)
        .filter(|two| matches!(two, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    (digits >= 2 && letters >= 1 && digits * 8 >= value.len().min(32))
        || digits >= SHORTEST && letters == 0 && !value.contains('.')
        || value.len() >= 16 && is_mixed(changes.count(), digits)
}

/// Whether so many changes from small to capital letters, with so many digits, are more than those of a name.
const fn is_mixed(changes: usize, digits: usize) -> bool {
    changes >= 6 || digits >= 1 && changes + digits >= 5
}

/// Whether a text before a value is itself made up, so that it will differ next time.
pub(super) fn is_random(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .any(|word| word.len() >= 12 && is_made_up(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_values_are_told_from_words() {
        for value in [
            "a81f0c2e9b7d4c66",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "8f14e45f-ceea-467f-a9d5-6a2f0b1c3d4e",
            "10293847",
            "dGhpc0lzQVRva2VuWFla",
            "ord_93Hf72ks",
            "t.pQrstUV8xy6Ab-87zABcDeF5GhiJkLMnoPqRstUVwx_k",
        ] {
            assert!(is_made_up(value), "{value}");
        }
        for value in [
            "password",
            "application/json",
            "2026-01-31",
            "2026-01-31T12:00:00Z",
            "en-US",
            "checkout",
            "www.example.com",
            "static.assets.internationalization.example.com",
            "XMLHttpRequest",
            "hello world1234",
            "short1",
            "true",
            "undefined",
            "https://a/b12345678",
            "newsletter2",
        ] {
            assert!(!is_made_up(value), "{value}");
        }
    }
}
