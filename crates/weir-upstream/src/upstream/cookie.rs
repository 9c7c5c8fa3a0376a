//! Cookies of a request (RFC 6265 §4.2, §5.4), as far as needed to choose an endpoint.

use weir_h1::Fields;

/// The value of the first cookie of that name.
#[inline]
pub(super) fn value<'a>(fields: &'a Fields, name: &str) -> Option<&'a [u8]> {
    let pairs = fields.get_all("cookie").flat_map(|line| line.split(|b| *b == b';'));
    let mut values = pairs.filter_map(|pair| {
        let (found, value) = pair.trim_ascii().split_at_checked(name.len())?;
        (found == name.as_bytes()).then(|| value.strip_prefix(b"="))?
    });
    values.next().map(unquoted)
}

#[inline]
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_h1::{Limits, RequestHead, parse_request};

    #[test]
    fn finds_the_one_of_that_name() {
        for (lines, found) in [
            ("Cookie: weir=1", Some("1")),
            ("Cookie: a=weir=2; weir=1;weir=3", Some("1")),
            ("Cookie: xweir=1; weirx=2", None),
            ("Cookie: weir=", Some("")),
            ("Cookie: a=b\r\nCookie: weir=\"q\"", Some("q")),
            ("Cookie: weir", None),
            ("Cookie: WEIR=1", None),
            ("X: weir=1", None),
        ] {
            let mut head = RequestHead::default();
            head.buffer_mut()
                .extend_from_slice(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n").as_bytes());
            parse_request(&mut head, &Limits::default()).unwrap();
            assert_eq!(value(&head.headers, "weir"), found.map(str::as_bytes), "{lines}");
        }
    }
}
