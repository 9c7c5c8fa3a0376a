//! Which requests for its URL an answer matches: `Vary` (RFC 9111 §4.1).

use super::caller::View;
use super::control::end_of_member;
use super::{is_address, quality};
use weir_h1::{FieldName, Fields};

/// Most fields that an answer may vary by.
const MOST_FIELDS: usize = 16;

/// Maximum total length of values that tell variants apart, in bytes.
const MOST_BYTES: usize = 8 * 1024;

/// The answer cannot be told apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unbounded;

/// The request fields that an answer was made for; none for most answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Variant(Box<[(FieldName, Option<Vec<u8>>)]>);

impl Variant {
    /// The variant that answers `asked`, by the answer's `Vary`; where that is ignored, by its coding alone.
    ///
    /// # Errors
    /// `Vary` is `*`, is too large, or names a field that the upstream got with a different value: the client's
    /// address, which the gateway adds, or a field written by a filter behind the cache.
    pub(super) fn of(answer: &Fields, asked: &View, is_ignored: bool) -> Result<Self, Unbounded> {
        if is_ignored {
            let coded = answer.get_str("content-encoding").map(|_| "accept-encoding");
            let names = coded.into_iter().filter_map(|name| FieldName::new(name).ok());
            return Ok(Self(names.map(|name| (name.clone(), value(&asked.fields, name.as_str()))).collect()));
        }
        let mut fields: Vec<(FieldName, Option<Vec<u8>>)> = Vec::new();
        let mut bytes = 0;
        for line in answer.get_all("vary") {
            for name in line.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
                // `*` is also a valid token, so it needs its own test.
                let name = str::from_utf8(name).ok().filter(|&name| name != "*").ok_or(Unbounded)?;
                let name = FieldName::new(name).map_err(|_| Unbounded)?;
                if is_address(name.as_str()) || asked.is_altered(&name) {
                    return Err(Unbounded);
                }
                if fields.iter().any(|(known, _)| known.as_str().eq_ignore_ascii_case(name.as_str())) {
                    continue;
                }
                let value = value(&asked.fields, name.as_str());
                bytes += value.as_ref().map_or(0, Vec::len);
                fields.push((name, value));
                if fields.len() > MOST_FIELDS || bytes > MOST_BYTES {
                    return Err(Unbounded);
                }
            }
        }
        fields.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
        Ok(Self(fields.into()))
    }

    /// Whether it answers a request.
    pub(super) fn answers(&self, asked: &Fields) -> bool {
        self.0.iter().all(|(name, kept)| value(asked, name.as_str()) == *kept)
    }

    /// Its name for an object on a disk.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &self.0 {
            out.extend_from_slice(name.as_str().as_bytes());
            out.push(0);
            if let Some(value) = value {
                out.push(b'=');
                out.extend_from_slice(value);
            }
            out.push(0);
        }
        out
    }

    /// Parses the output of [`Variant::to_bytes`]. No part can contain a zero byte.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Vec::new();
        let mut parts = bytes.strip_suffix(b"\0").into_iter().flat_map(|all| all.split(|&b| b == 0));
        while let Some(name) = parts.next() {
            let name = FieldName::new(str::from_utf8(name).ok()?).ok()?;
            let value = match parts.next()? {
                b"" => None,
                value => Some(value.strip_prefix(b"=")?.to_vec()),
            };
            fields.push((name, value));
        }
        Some(Self(fields.into()))
    }

    /// Its size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.0.iter().map(|(name, value)| 64 + name.as_str().len() + value.as_ref().map_or(0, Vec::len)).sum()
    }
}

/// A field's value in comparable form: all lines joined, without insignificant spaces. For Accept-Encoding also
/// without order and weights, which only choose between codings that the client accepts anyway.
fn value(asked: &Fields, name: &str) -> Option<Vec<u8>> {
    let mut members: Vec<Vec<u8>> = Vec::new();
    let mut lines = asked.get_all(name).peekable();
    lines.peek()?;
    for line in lines {
        let mut rest = line;
        loop {
            let (member, behind) = rest.split_at_checked(end_of_member(rest)).unwrap_or((rest, &[]));
            members.push(member.trim_ascii().to_vec());
            match behind.get(1..) {
                Some(more) => rest = more,
                None => break,
            }
        }
    }
    if name.eq_ignore_ascii_case("accept-encoding") {
        members = members.iter().filter_map(|member| coding(member)).collect();
        members.sort_unstable();
        members.dedup();
    }
    Some(members.join(&b","[..]))
}

/// A coding that a client accepts; with `-` in front, one that it refuses, if that has any effect.
fn coding(member: &[u8]) -> Option<Vec<u8>> {
    let (name, weight) = match member.iter().position(|&b| b == b';') {
        Some(at) => (member.get(..at)?, member.get(at + 1..)?),
        None => (member, &b""[..]),
    };
    let name = name.trim_ascii().to_ascii_lowercase();
    // As the code that chooses the coding reads it: an invalid weight refuses.
    let refused = quality(weight.split(|&b| b == b';').map(<[u8]>::trim_ascii)) == 0;
    match (refused, &*name) {
        (_, b"") => None,
        (false, _) => Some(name),
        (true, b"identity" | b"*") => Some([b"-", &*name].concat()),
        (true, _) => None, // as if it were not listed
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Lines, fields};
    use super::*;

    #[test]
    fn variants() {
        let cases: &[(&str, Lines<'_>, Lines<'_>, bool)] = &[
            ("foo", &[("Foo", "1")], &[("foo", "1")], true),
            ("foo", &[("Foo", "1")], &[("foo", "2")], false),
            ("foo", &[("Foo", "1")], &[("foo", "1"), ("bar", "2")], true),
            ("foo", &[("Foo", "1")], &[], false),
            ("foo", &[], &[("Foo", "")], false),
            ("foo", &[], &[], true),
            ("Foo, Bar", &[("Foo", "1")], &[("Foo", "1"), ("Bar", "1")], false),
            ("foo", &[("Foo", "1,2")], &[("Foo", "1"), ("Foo", " 2 ")], true),
            ("foo", &[("Foo", "1, 2")], &[("Foo", "2, 1")], false),
            ("foo", &[("Foo", "\"1, 2\"")], &[("Foo", "\"1,2\"")], false),
            ("foo", &[("Foo", "A")], &[("Foo", "a")], false),
            (
                "accept-encoding",
                &[("Accept-Encoding", "gzip, br")],
                &[("accept-encoding", "BR;q=0.5,gzip")],
                true,
            ),
            (
                "accept-encoding",
                &[("Accept-Encoding", "gzip, br")],
                &[("accept-encoding", "br;q=0,gzip")],
                false,
            ),
            (
                "accept-encoding",
                &[("Accept-Encoding", "gzip")],
                &[("accept-encoding", "br;q=0.000,gzip")],
                true,
            ),
            (
                "accept-encoding",
                &[("Accept-Encoding", "gzip")],
                &[("accept-encoding", "identity;q=0,gzip")],
                false,
            ),
            ("accept-encoding", &[("Accept-Encoding", "gzip")], &[("accept-encoding", "gzip;q=abc")], false),
            (
                "accept-encoding",
                &[("Accept-Encoding", "br")],
                &[("accept-encoding", "gzip;q=2,br;q=1.0")],
                true,
            ),
            ("accept-encoding", &[], &[("accept-encoding", "gzip")], false),
        ];
        for (vary, stored, asked, same) in cases {
            let variant = Variant::of(&fields(&[("Vary", vary)]), &fields(stored).into(), false).unwrap();
            assert_eq!(variant.answers(&fields(asked)), *same, "{vary}: {stored:?} {asked:?}");
            assert_eq!(Variant::of_bytes(&variant.to_bytes()), Some(variant));
        }
    }

    #[test]
    fn what_cannot_be_kept_apart() {
        let long = "x".repeat(MOST_BYTES + 1);
        let many: Vec<String> = (0..=MOST_FIELDS).map(|n| format!("f{n}")).collect();
        let mut asked = View::from(fields(&[("Long", &long)]));
        asked.departs(&fields(&[("x-client", "192.0.2.1")]));
        for vary in [
            "*",
            "*, *",
            ", *",
            "*, foo",
            "foo, *",
            "f o",
            "X-Forwarded-For",
            "X-Client",
            "long",
            &many.join(","),
        ] {
            assert_eq!(Variant::of(&fields(&[("Vary", vary)]), &asked, false), Err(Unbounded), "{vary}");
        }
        let lines = fields(&[("Vary", ""), ("Vary", "*")]);
        assert_eq!(Variant::of(&lines, &asked, false), Err(Unbounded));
        let same = Variant::of(&fields(&[("Vary", "b, a")]), &asked, false);
        assert_eq!(same, Variant::of(&fields(&[("Vary", "a, A,, b")]), &asked, false));
    }
}
