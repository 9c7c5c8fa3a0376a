//! Targets of requests: splits URLs, and says which requests can be sent.

use crate::Recorded;

/// Longest target: 64 KiB, twice what Weir's listeners accept by default.
const TARGET_MOST: usize = 64 << 10;

/// The parts of a URL that a request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// Whether the scheme is `https`.
    pub is_tls: bool,
    /// Host and port, if the URL has them.
    pub host: Option<&'a str>,
    /// Path and query, from the first `/` or `?`. Empty for none.
    pub local: &'a str,
}

impl Target<'_> {
    /// Path and query with a `/` at the front.
    pub fn path(&self) -> String {
        if self.local.starts_with('/') || self.local == "*" {
            self.local.to_owned()
        } else {
            format!("/{}", self.local)
        }
    }
}

/// Splits a URL, or a path, without its fragment.
pub fn split(url: &str) -> Target<'_> {
    let url = url.split('#').next().unwrap_or(url);
    let absolute = url.split_once("://").filter(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    let Some((scheme, rest)) = absolute else { return Target { local: url, ..Target::default() } };
    let (authority, local) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty());
    Target { is_tls: scheme.eq_ignore_ascii_case("https"), host, local }
}

/// Whether the request can be written as one message: nothing in it ends a line, a word or the message early.
pub fn is_sendable(r: &Recorded) -> bool {
    let is_token = |name: &[u8]| {
        !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
    };
    let is_value = |value: &[u8]| value.iter().all(|b| *b == b'\t' || (*b >= b' ' && *b != 0x7f));
    let is_host = |host: &str| host.bytes().all(|b| b.is_ascii_graphic() && !b"/?#@\\".contains(&b));
    is_token(r.method.as_bytes())
        && r.method.len() <= 32
        && (r.target.starts_with('/') || (r.target == "*" && r.method == "OPTIONS"))
        && r.target.len() <= TARGET_MOST
        && r.target.bytes().all(|b| b > b' ' && b != 0x7f)
        && r.host.as_deref().is_none_or(is_host)
        && r.fields.iter().all(|(name, value)| is_token(name.as_bytes()) && is_value(value))
}
