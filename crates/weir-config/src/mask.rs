//! The mask for secrets, and the parts of a text that are always secret.

use std::borrow::Cow;
use std::ops::Range;

/// Shown in place of a secret. It cannot be written back.
pub const MASK: &str = "***";

/// Ranges that are secret even in a public text: the user and password of a URL, and its query if `query` is set.
///
/// A password may contain any character, so everything before the last `@` counts as secret.
pub(super) fn secret_ranges(text: &str, query: bool) -> impl Iterator<Item = Range<usize>> {
    let begin = text.find("://").map(|at| at + "://".len());
    let user = begin.zip(text.rfind('@')).filter(|(begin, at)| begin < at).map(|(begin, at)| begin..at);
    let user = user.filter(|user| !text[user.clone()].contains(char::is_whitespace));
    let asked = text[user.as_ref().map_or(0, |user| user.end)..].find('?');
    let asked = asked.map(|at| at + 1 + user.as_ref().map_or(0, |user| user.end));
    let asked = asked.filter(|at| query && *at < text.len()).map(|at| at..text.len());
    user.into_iter().chain(asked)
}

/// The secret parts of a text.
pub(super) fn secret_pieces(text: &str) -> Vec<&str> {
    secret_ranges(text, true).filter_map(|range| text.get(range)).collect()
}

/// A URL without its secret parts.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let (mut shown, mut from) = (String::new(), 0);
    for range in secret_ranges(text, true) {
        shown.push_str(text.get(from..range.start).unwrap_or_default());
        shown.push_str(MASK);
        from = range.end;
    }
    match from {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(shown + text.get(from..).unwrap_or_default()),
    }
}
