//! Finds values that nobody means to send: the result of a script's unset variable, or another tool's placeholder.

use percent_encoding::percent_decode;
use std::borrow::Cow;

/// How much of a body is searched.
const LOOKED_AT: usize = 1024 * 1024;

/// Longest name between braces.
const NAME_MOST: usize = 64;

/// How many of them are reported.
const REPORTED_MAX: usize = 4;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Body,
    Fields,
    /// Method and path.
    Line,
}

/// Adds the odd values in this text, each once, including percent-encoded ones. `braces` says whether names in braces
/// count. Other odd values must make up a whole value: `?id=undefined`, `"NaN"`.
pub(crate) fn odd(bytes: &[u8], place: Place, braces: bool, found: &mut Vec<String>) {
    let bytes = bytes.get(..LOOKED_AT).unwrap_or(bytes);
    written(bytes, place, braces, found);
    // Libraries send `{id}` as `%7Bid%7D`.
    if let Cow::Owned(decoded) = Cow::from(percent_decode(bytes)) {
        written(&decoded, place, braces, found);
    }
}

fn written(bytes: &[u8], place: Place, braces: bool, found: &mut Vec<String>) {
    let mut note = |value: &[u8]| {
        let value = String::from_utf8_lossy(value).into_owned();
        if found.len() < REPORTED_MAX && !found.contains(&value) {
            found.push(value);
        }
    };
    for object in [&b"[object Object]"[..], b"[object+Object]"] {
        if memchr::memmem::find(bytes, object).is_some() {
            note(b"[object Object]");
        }
    }
    for word in [&b"undefined"[..], b"NaN"] {
        if memchr::memmem::find_iter(bytes, word).any(|at| is_value(bytes, at, at + word.len(), place)) {
            note(word);
        }
    }
    if !braces {
        return;
    }
    for at in memchr::memchr_iter(b'{', bytes) {
        let inside = bytes.get(at + 1..).unwrap_or_default();
        let Some(len) = memchr::memchr(b'}', inside.get(..=NAME_MOST).unwrap_or(inside)) else { continue };
        let name = inside.get(..len).unwrap_or_default();
        let starts = name.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
        if !starts || !name.iter().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(b)) {
            continue;
        }
        let end = at + 2 + len;
        if let Some(dollar) = at.checked_sub(1).filter(|i| bytes.get(*i) == Some(&b'$')) {
            note(bytes.get(dollar..end).unwrap_or_default());
        } else if place != Place::Body || is_value(bytes, at, end, place) {
            note(bytes.get(at..end).unwrap_or_default());
        }
    }
}

/// Whether the text between these positions is a whole value, not part of a sentence or a longer word.
fn is_value(bytes: &[u8], from: usize, to: usize, place: Place) -> bool {
    let next = bytes.get(to).copied();
    let ends = next.is_none_or(|b| b"\r\n\"'/&?#,;)]} \t".contains(&b));
    let before = bytes.get(..from).unwrap_or_default();
    let last = before.iter().rev().find(|b| **b != b' ').copied();
    let begins = last.is_none_or(|b| b"\"'/=:,[(".contains(&b));
    // `Authorization: Bearer undefined`: the last word of a field.
    let ends_field = place == Place::Fields && next == Some(b'\r') && before.last() == Some(&b' ');
    // A part of a form by `-F` is its own line.
    let is_line = before.last() == Some(&b'\n') && next.is_none_or(|b| b == b'\r');
    ends && (begins || ends_field || is_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_means_to_send_is_found() {
        for (place, text, want) in [
            (Place::Line, "GET /users/undefined", &["undefined"][..]),
            (Place::Line, "GET /users/undefined/posts?x=NaN&y=1", &["undefined", "NaN"]),
            (Place::Line, "GET /users/{id}", &["{id}"]),
            (Place::Line, "GET /users/${id}/${user.name}", &["${id}", "${user.name}"]),
            (
                Place::Line,
                "GET /users/%7Bid%7D?a=%24%7Bid%7D&b=%5Bobject+Object%5D",
                &["[object Object]", "{id}", "${id}"],
            ),
            (Place::Line, "GET /a?q=what%20is%20undefined%20here&f=%7B%22a%22:1%7D", &[]),
            (
                Place::Body,
                "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nundefined\r\n--x--",
                &["undefined"],
            ),
            (Place::Line, "GET /is-undefined?q=undefinedness&z=NaNa", &[]),
            (Place::Line, "GET /a?f={\"a\":1}", &[]),
            (Place::Fields, "Host: a\r\nAuthorization: Bearer undefined\r\n", &["undefined"]),
            (Place::Fields, "X: undefined\r\nY: {token}\r\n", &["undefined", "{token}"]),
            (Place::Fields, "User-Agent: it is undefined here\r\n", &[]),
            (Place::Body, "{\"user\":\"[object Object]\",\"n\": NaN}", &["[object Object]", "NaN"]),
            (Place::Body, "a=[object%20Object]&b=undefined", &["undefined", "[object Object]"]),
            (Place::Body, "{\"id\":\"{id}\",\"x\":\"${x}\"}", &["{id}", "${x}"]),
            (Place::Body, "{\"query\":\"{ user {id} }\"}", &[]),
            (Place::Body, "what is undefined, stays undefined.", &[]),
            (Place::Body, "function f() {return}", &[]),
        ] {
            let mut found = Vec::new();
            odd(text.as_bytes(), place, true, &mut found);
            assert_eq!(found, want, "{text}");
        }
        let mut found = Vec::new();
        odd(b"GET /{id}/${x}/undefined", Place::Line, false, &mut found);
        assert_eq!(found, ["undefined"]);
    }
}
