//! Removes secrets, and values that came from the environment or a file, from messages about a config.
//!
//! Authors of messages do not think of secrets: they quote a value whole or in part, lower-cased, percent-encoded,
//! decoded or escaped. Searching for the value would miss those. Instead, we compare each word of the message with
//! the value in one normal form. Unless a word is plain prose, two adjacent characters in common conceal it. This
//! conceals too much rather than too little: examples are lost, but the prose, the place and the key stay.

use super::mask::MASK;
use std::borrow::Cow;

/// Stands for a whole value during processing.
const MARK: char = '\0';

/// Number of adjacent characters in common that conceals a word of prose. [`SHARED`] applies to all other words.
const SHARED_PROSE: usize = 4;

/// Number of adjacent characters in common that conceals a quoted text or a text that is no word.
const SHARED: usize = 2;

/// Words of our own that many messages have. Outside quotes they reveal nothing of a value.
const PROSE: &[&str] = &[
    "a",
    "an",
    "and",
    "are",
    "as",
    "at",
    "be",
    "by",
    "but",
    "cannot",
    "does",
    "exist",
    "expected",
    "for",
    "from",
    "has",
    "have",
    "hint",
    "in",
    "is",
    "it",
    "its",
    "list",
    "may",
    "must",
    "no",
    "not",
    "number",
    "of",
    "on",
    "one",
    "or",
    "put",
    "see",
    "sha256",
    "sha256sum",
    "take",
    "takes",
    "than",
    "that",
    "the",
    "there",
    "this",
    "to",
    "value",
    "which",
    "with",
    "without",
    "write",
];

/// The text without these values and without words derived from one.
pub(super) fn conceal<'t>(text: &'t str, values: &[&str]) -> Cow<'t, str> {
    let values: Vec<Value> = values.iter().filter_map(|value| Value::new(value)).collect();
    if values.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut text = text.replace(MARK, "\u{fffd}");
    for value in &values {
        text = value.mark(&text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut before, mut expected, mut counts) = (&*text, ' ', false, false);
    while let Some(first) = rest.chars().next() {
        let quotes = matches!(first, '`' | '"' | '\'') && !before.is_alphanumeric();
        let behind = rest.get(first.len_utf8()..).unwrap_or_default();
        // A value that contains the quote may close it early, so everything up to the last one counts as quoted.
        let holds = values.iter().any(|value| value.common.contains(first));
        let end = if holds { behind.rfind(first) } else { behind.find(first) };
        if let Some(end) = end.filter(|_| quotes) {
            let quoted = behind.get(..end).unwrap_or_default();
            out.push(first);
            out.push_str(&conceal_quoted(quoted, &values));
            out.push(first);
            (rest, before) = (behind.get(end + first.len_utf8()..).unwrap_or_default(), first);
        } else if first.is_whitespace() {
            out.push(first);
            (rest, before) = (behind, first);
        } else {
            let end = behind.find(|c: char| c.is_whitespace() || c == '`');
            let (word, behind) = rest.split_at(end.map_or(rest.len(), |end| first.len_utf8() + end));
            // The number of a line is ours. Where it is a whole value, it was marked above.
            let is_place =
                counts && word.trim_end_matches([',', ';', ':']).bytes().all(|b| b.is_ascii_digit());
            let telling =
                !is_place && values.iter().any(|value| value.tells(word, Around::Prose { expected }));
            counts = matches!(word, "line" | "column");
            out.push_str(if telling { MASK } else { word });
            if let Some(last) = word.chars().last().filter(|c| telling && ",;:".contains(*c)) {
                out.push(last);
            }
            expected |= matches!(word.trim_matches(['(', ',', ';', ':']), "expected" | "least" | "most");
            (rest, before) = (behind, word.chars().last().unwrap_or(' '));
        }
    }
    Cow::Owned(out.replace(MARK, MASK))
}

/// Whether a line of a file contains one of these values in any form.
pub(super) fn holds(line: &str, values: &[String]) -> bool {
    let line_common = common(line);
    values.iter().any(|value| {
        line.contains(value) || Value::new(value).is_some_and(|v| line_common.contains(&v.common))
    })
}

/// Conceals a quoted text: all of it if it is part of a value, otherwise each word that reveals one.
fn conceal_quoted(quoted: &str, values: &[Value]) -> String {
    let plain = common(quoted);
    if !plain.is_empty() && values.iter().any(|value| value.common.contains(&plain)) {
        return MASK.to_owned();
    }
    let tells = |word: &str| values.iter().any(|value| value.tells(word, Around::Quotes));
    let words = quoted.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_end();
        let gap = word.get(bare.len()..).unwrap_or_default();
        format!("{}{gap}", if tells(bare) { MASK } else { bare })
    });
    words.collect()
}

/// A value that must not be shown.
struct Value {
    text: String,
    common: String,
    has_digits: bool,
}

/// The surroundings of a word.
enum Around {
    /// Quotes: the word may be a value, whatever it looks like.
    Quotes,
    /// A sentence. `expected` is set in the part that says what is expected, which is our own text.
    Prose { expected: bool },
}

impl Value {
    fn new(text: &str) -> Option<Self> {
        let common = common(text);
        let has_digits = common.bytes().any(|b| b.is_ascii_digit());
        (!common.is_empty()).then(|| Self { text: text.to_owned(), common, has_digits })
    }

    /// Replaces the whole value, which may contain blanks and quotes. A short one could match inside any word of
    /// ours.
    fn mark(&self, text: &str) -> String {
        const SHORT: usize = 4;
        if self.text.chars().count() < SHORT {
            return text.to_owned();
        }
        let mark = MARK.to_string();
        let debug: String = self.text.chars().flat_map(char::escape_debug).collect();
        let forms = [self.text.clone(), debug.replace("\\'", "'"), debug, self.text.to_lowercase()];
        forms.iter().fold(text.to_owned(), |text, form| text.replace(form, &mark))
    }

    /// Whether a word reveals a part of the value.
    fn tells(&self, word: &str, around: Around) -> bool {
        let plain = common(word);
        if plain.contains(MARK) {
            return true;
        }
        let chars = self.common.chars().count();
        let bare = plain.trim_matches(['(', ')', '[', ']', ',', ';', ':', '.']);
        // A name, such as a key, counts as prose.
        let is_word = bare.chars().all(|c| c.is_ascii_alphabetic() || "-_'".contains(c));
        let Around::Prose { expected } = around else {
            let least = if is_word { SHARED_PROSE } else { SHARED };
            let is_one = plain.chars().count() == 1 && plain.chars().all(char::is_alphanumeric);
            return self.shares(&plain, least) || is_one && self.common.contains(&plain);
        };
        if bare.is_empty() || PROSE.contains(&bare) {
            return false;
        }
        if is_word && chars == 1 {
            return bare == self.common;
        }
        if is_word || expected {
            return self.shares(&plain, SHARED_PROSE);
        }
        // `90000ms` may be printed as `1m30s`.
        let is_number = bare.starts_with(|c: char| c.is_ascii_digit());
        is_number && self.has_digits || self.shares(&plain, SHARED)
    }

    /// Whether a text has this many adjacent characters from the value, or the whole value.
    fn shares(&self, text: &str, least: usize) -> bool {
        let least = least.min(self.common.chars().count());
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        starts.windows(least + 1).any(|run| match run {
            [from, .., to] => text.get(*from..*to).is_some_and(|part| self.common.contains(part)),
            _ => false,
        })
    }
}

/// The normal form in which values and words are compared: decoded, lower-cased, without blanks and backslashes.
fn common(text: &str) -> String {
    /// Percent-encoding is applied at most a few times.
    const ROUNDS: usize = 4;
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..ROUNDS {
        let decoded = percent_decoded(&bytes);
        if decoded == bytes {
            break;
        }
        bytes = decoded;
    }
    let text = String::from_utf8_lossy(&bytes);
    let kept = |c: &char| !c.is_whitespace() && *c != '\\' && (*c == MARK || !c.is_control());
    text.chars().filter(kept).flat_map(char::to_lowercase).collect()
}

fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        match behind {
            [a, b, after @ ..] if *first == b'%' => match (digit(*a), digit(*b)) {
                // A NUL would look like our mark.
                (Some(a), Some(b)) if a + b > 0 => {
                    out.push((a << 4) | b);
                    rest = after;
                    continue;
                }
                _ => out.push(*first),
            },
            _ => out.push(*first),
        }
        rest = behind;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_left() {
        for (text, value, shown) in [
            ("`Bearer s3cr3t {x` has a brace", "s3cr3t-x", "`Bearer *** {x` has a brace"),
            ("`s3cr3t` is no host", "s3cr3t", "`***` is no host"),
            (
                "`{def}` is no placeholder; expected `{host}`",
                "abc{def}ghi",
                "`***` is no placeholder; expected `{host}`",
            ),
            ("write \"/s3cr3t\"", "s3cr3t", "write \"***\""),
            ("regex parse error:\n  (s3cr3t-and-more\n", "(s3cr3t-and-more", "regex parse error:\n  ***\n"),
            ("see `weir explain GET http://h/a?v=s3cr3t`", "s3cr3t", "see `weir explain GET ***`"),
            ("-H 'x-key: s3cr3t'", "s3cr3t", "-H 'x-key: ***'"),
            ("it says s3cr3t-an", "s3cr3t-and-more", "it says ***"),
            ("`/v5/{x` in many places", "5", "`***` in many places"),
            ("expected 1 to 1024", "4", "expected 1 to ***"),
            ("expected e.g. orders.internal:80", "never-print-this", "expected e.g. orders.internal:80"),
            ("the key is base64url", "sha256:0123", "the key is base64url"),
            ("add `- key_auth: {}`", "a-secret", "add `- key_auth: {}`"),
            ("expected 400 to 599", "70000", "expected 400 to 599"),
            ("connect (1m30s) is longer", "90000ms", "connect *** is longer"),
            ("`ab`cdef` is none", "ab`cdef", "`***` is none"),
            ("`a\\\"bcd` is none", "a\"bcd", "`***` is none"),
            ("nothing of it, `quoted` or not", "s3cr3t", "nothing of it, `quoted` or not"),
            ("an unclosed ` and é", "s3cr3t", "an unclosed ` and é"),
            ("`pässwörd` ist es", "pässwörd", "`***` ist es"),
            ("?token=q8Zr%2F7%2BLmT0", "q8Zr/7+LmT0", "***"),
            ("http://s3cr3thunter.example.com/a", "S3cr3tHunter", "***"),
            ("write `/hook/a%20b/c`", "a b/c", "write `***`"),
            ("write `/hook/asecret`", "%61secret", "write `***`"),
            ("the value: `Hunter\\nLineTwo x`", "Hunter\nLineTwo", "the value: `*** x`"),
            ("at `ÜNTERß (`", "HÜNTERß", "at `*** (`"),
            ("at `{id}two (`", "Hunter{id}two", "at `*** (`"),
            ("at `H`", "Hunter", "at `***`"),
            ("/x/h9Z does not exist", "h9Z", "*** does not exist"),
            ("/x/my secret file does not exist", "my secret file", "*** does not exist"),
            ("the listener's `x` and a client's", "s3cr3t", "the listener's `x` and a client's"),
            ("%00", "\0", "%00"),
            ("line 127: the row has a key", "/srv/127-a/x", "line 127: the row has a key"),
            ("line 4711: no", "4711", "line ***: no"),
            ("line 47x1: no", "x1y2", "line ***: no"),
        ] {
            assert_eq!(conceal(text, &[value]), shown, "{text}");
        }
        assert!(matches!(conceal("as it is", &[]), Cow::Borrowed(_)));
    }
}
