//! What stands in the place of a secret, and which pieces of a text are secret wherever it stands.

use std::borrow::Cow;
use std::ops::Range;

/// Stands where a secret is not shown. It may not be written back.
pub const MASK: &str = "***";

/// Which pieces of a text that may be shown are secret all the same: the user and password of a URL, and its query if asked for.
///
/// A password may hold any character, so all that stands before the last `@` counts as one.
pub(super) fn secret_ranges(text: &str, query: bool) -> impl Iterator<Item = Range<usize>> {
    let begin = text.find("://").map(|at| at + "://".len());
    let user = begin.zip(text.rfind('@')).filter(|(begin, at)| begin < at).map(|(begin, at)| begin..at);
    let user = user.filter(|user| !text[user.clone()].contains(char::is_whitespace));
    let asked = text[user.as_ref().map_or(0, |user| user.end)..].find('?');
    let asked = asked.map(|at| at + 1 + user.as_ref().map_or(0, |user| user.end));
    let asked = asked.filter(|at| query && *at < text.len()).map(|at| at..text.len());
    user.into_iter().chain(asked)
}

/// The pieces themselves.
pub(super) fn secret_pieces(text: &str) -> Vec<&str> {
    secret_ranges(text, true).filter_map(|range| text.get(range)).collect()
}

/// A URL without its secret pieces.
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
