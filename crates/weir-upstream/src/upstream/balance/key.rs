//! The key of a request, as a number for `hash`.
//!
//! It depends on the request alone, so that every core, every gateway and every restart finds the same endpoint.

use crate::upstream::cookie;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;
use weir_h1::{FieldName, RequestHead};

/// A key. All its bits are equally good.
pub type Key = NonZeroU64;

/// Which part of a request is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The client's address.
    Address,
    /// A text that the gateway computes, as written.
    Computed(Box<str>),
    /// The value of a cookie.
    Cookie(Box<str>),
    /// The values of a header field.
    Header(FieldName),
    /// The path, without the query.
    Path,
    /// The value of a query parameter.
    Query(Box<str>),
}

impl By {
    /// The key of a request; `None` if the hashed part is missing or empty.
    #[inline]
    pub(crate) fn key(
        &self,
        head: &RequestHead,
        client: impl FnOnce() -> IpAddr,
        computed: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Key> {
        match self {
            Self::Address => address_key(client()),
            Self::Computed(_) => key_of(&computed()?),
            Self::Cookie(name) => key_of(cookie::value(&head.headers, name)?),
            Self::Header(name) => {
                let mut values = head.headers.get_all(name.as_str());
                let first = values.next()?;
                match values.next() {
                    None => key_of(first),
                    Some(second) => {
                        let all: Vec<&[u8]> = [first, second].into_iter().chain(values).collect();
                        key_of(&all.join(&b", "[..]))
                    }
                }
            }
            Self::Path => key_of(head.path()),
            Self::Query(name) => {
                let mut pairs = head.query()?.split(|b| *b == b'&');
                key_of(pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?)
            }
        }
    }
}

/// The key of a client's address.
#[inline]
pub(crate) fn address_key(client: IpAddr) -> Option<Key> {
    match client.to_canonical() {
        IpAddr::V4(address) => key_of(&address.octets()),
        IpAddr::V6(address) => key_of(&address.octets()),
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::Computed(text) => f.write_str(text),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Header(name) => write!(f, "header:{}", name.as_str()),
            Self::Path => f.write_str("path"),
            Self::Query(name) => write!(f, "query:{name}"),
        }
    }
}

#[inline]
fn key_of(text: &[u8]) -> Option<Key> {
    if text.is_empty() { None } else { Some(Key::new(digest(text)).unwrap_or(Key::MIN)) }
}

/// A hash of bytes that is the same everywhere and always. Not secret: a client that can choose the key can choose
/// the endpoint.
#[inline]
pub(in crate::upstream) fn digest(text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let words = words.iter().copied().chain([last]).map(u64::from_le_bytes);
    words.fold(text.len() as u64, |hash, word| mix(hash ^ word))
}

/// Spreads every bit over all of them (splitmix64, Steele et al.: Fast splittable pseudorandom number generators,
/// 2014).
#[inline]
pub(in crate::upstream) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_h1::{Limits, parse_request};

    fn head(text: &str) -> RequestHead {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(text.as_bytes());
        parse_request(&mut head, &Limits::default()).unwrap();
        head
    }

    #[test]
    fn comes_from_what_it_goes_by() {
        let text =
            "GET /orders/1?a=1&user=7 HTTP/1.1\r\nHost: a\r\nX-User: ann\r\nCookie: b=2; sid=x\r\n\r\n";
        let (head, client) = (head(text), "10.0.0.1".parse().unwrap());
        let field = |name| By::Header(FieldName::new(name).unwrap());
        for (by, text) in [
            (By::Path, Some("/orders/1")),
            (By::Query("user".into()), Some("7")),
            (By::Query("use".into()), None),
            (By::Cookie("sid".into()), Some("x")),
            (By::Cookie("id".into()), None),
            (field("x-user"), Some("ann")),
            (field("x-group"), None),
            (By::Address, Some("\n\0\0\u{1}")),
        ] {
            assert_eq!(
                by.key(&head, || client, || None),
                text.and_then(|text| key_of(text.as_bytes())),
                "{by}"
            );
        }
        assert_eq!(
            By::Address.key(&head, || "::ffff:10.0.0.1".parse().unwrap(), || None),
            By::Address.key(&head, || client, || None),
            "the same client of a socket for both families"
        );
        let shown =
            [By::Address, By::Cookie("sid".into()), field("x-user"), By::Path, By::Query("user".into())];
        let shown = shown.map(|by| by.to_string());
        assert_eq!(shown, ["address", "cookie:sid", "header:x-user", "path", "query:user"]);
    }

    #[test]
    fn an_empty_value_is_no_key_and_several_are_one() {
        let client = "::1".parse().unwrap();
        let by = By::Header(FieldName::new("k").unwrap());
        let key = |text: &str| {
            by.key(&head(&format!("GET / HTTP/1.1\r\nHost: a\r\n{text}\r\n")), || client, || None)
        };
        assert_eq!(key("K:\r\n"), None);
        assert_eq!(key("K: a\r\nK: b\r\n"), key("k: a, b\r\n"));
        assert_ne!(key("K: a\r\nK: b\r\n"), key("k: a\r\n"));
    }

    #[test]
    fn is_the_same_in_every_version() {
        // Gateways of different versions in front of one service must agree: these may never change.
        assert_eq!(digest(b""), 0xe220_a839_7b1d_cdaf);
        assert_eq!(digest(b"ann"), 0x6cd3_912f_7806_b415);
        assert_eq!(digest(b"12345678 and more"), 0xfe05_e12b_cfdc_405a);
        assert_ne!(digest(b"12345678"), digest(b"12345678\0"));
    }
}
