//! Query strings: `a=1&b=2`, read and edited without changing any other parameter.
//!
//! Names are compared decoded: a rule that removes `admin` also removes `%61dmin`, which an upstream would read as
//! the same name.

use percent_encoding::percent_decode;
use std::borrow::Cow;

/// The raw pieces between `&`.
fn pieces(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|&b| b == b'&')
}

/// Name and value of a piece, both still encoded.
fn split(piece: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'=', piece) {
        Some(at) => (&piece[..at], &piece[at + 1..]),
        None => (piece, b""),
    }
}

/// The decoded value of every parameter called `name`.
pub fn values<'q>(query: &'q [u8], name: &str) -> impl Iterator<Item = Cow<'q, [u8]>> {
    pieces(query).map(split).filter(move |(n, _)| is(n, name)).map(|(_, v)| decode(v))
}

/// The query without the parameters for which `gone` returns true, given their decoded names; nothing else changes.
/// `None` if no parameter is removed.
pub fn without(query: &[u8], gone: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(query.len());
    let mut any = false;
    for piece in pieces(query) {
        if gone(&decode_name(split(piece).0)) {
            any = true;
            continue;
        }
        if !kept.is_empty() {
            kept.push(b'&');
        }
        kept.extend_from_slice(piece);
    }
    any.then_some(kept)
}

/// Appends `name=value`, both already encoded.
pub fn push(query: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if !query.is_empty() {
        query.push(b'&');
    }
    query.extend_from_slice(name);
    query.push(b'=');
    query.extend_from_slice(value);
}

fn is(raw: &[u8], name: &str) -> bool {
    raw == name.as_bytes() || *decode_name(raw) == *name.as_bytes()
}

/// A name as forms encode it: `+` is a space.
fn decode_name(raw: &[u8]) -> Cow<'_, [u8]> {
    match decode(raw) {
        plain if !raw.contains(&b'+') => plain,
        _ => {
            let spaced: Vec<u8> = raw.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
            Cow::Owned(decode(&spaced).into_owned())
        }
    }
}

/// Decodes `%XX`. A `%` without two hex digits stays, and so does `+`, which stands for itself in keys and tokens.
fn decode(raw: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(raw).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(query: &str, name: &str) -> Vec<String> {
        values(query.as_bytes(), name).map(|v| String::from_utf8_lossy(&v).into_owned()).collect()
    }

    #[test]
    fn reads_values() {
        assert_eq!(all("a=1&b=2&a=3&a", "a"), ["1", "3", ""]);
        assert_eq!(all("%61=x%20y&a=p+q&a=%zz", "a"), ["x y", "p+q", "%zz"]);
        assert_eq!(all("a+b=1&a%20b=2", "a b"), ["1", "2"]);
        assert_eq!(all("", "a"), [""; 0]);
    }

    #[test]
    fn removes_and_keeps_the_rest_as_it_was() {
        let cut = |q: &str, n: &str| {
            without(q.as_bytes(), |name| name == n.as_bytes()).map(|q| String::from_utf8(q).unwrap())
        };
        assert_eq!(cut("a=1&b=%7e&%61=2", "a").as_deref(), Some("b=%7e"));
        assert_eq!(cut("a=1", "a").as_deref(), Some(""));
        assert_eq!(cut("b=1&&c", "a"), None);
    }
}
