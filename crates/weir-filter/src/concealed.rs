//! The secret parts of a request's target: a key in a path segment or in the query. They are neither logged nor used
//! for routing.

use percent_encoding::percent_decode;
use std::borrow::Cow;
use weir_h1::{FieldName, Fields};

/// The parts of a request's target that a filter treats as secret: see
/// [`Filter::conceals`](crate::filter::Filter::conceals).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conceals {
    /// A segment of the path that begins with `~`.
    pub path_key: bool,
    /// Query parameters of these names.
    pub query: Vec<String>,
    /// Paths to which a provider sends browsers back with a code in the query that can open a session: see
    /// `CALLBACK`.
    pub callbacks: Vec<String>,
}

/// Parameters of a callback that may be logged (RFC 6749 §4.1.2.1, RFC 9207 §2): they say why a login failed.
const CALLBACK: &[&str] = &["error", "error_description", "error_uri", "iss"];

/// Replaces a secret in logs.
const HIDDEN: &[u8] = b"***";

impl Conceals {
    /// Merges both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.path_key |= other.path_key;
        self.query.extend(other.query);
        self.callbacks.extend(other.callbacks);
        self
    }

    /// Whether nothing is hidden.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        !self.path_key && self.query.is_empty() && self.callbacks.is_empty()
    }

    /// A path in the form for logs. It may be malformed: a path refused for its form may hold a key too.
    pub fn path<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        if !self.path_key || next_tilde(path).is_none() {
            return Cow::Borrowed(path);
        }
        let (mut shown, mut rest) = (Vec::with_capacity(path.len()), path);
        while let Some((at, length)) = next_tilde(rest) {
            shown.extend_from_slice(rest.get(..at + length).unwrap_or_default());
            shown.extend_from_slice(HIDDEN);
            rest = rest.get(at + length..).unwrap_or_default();
            rest = rest.get(rest.iter().position(|&b| b == b'/').unwrap_or(rest.len())..).unwrap_or_default();
        }
        shown.extend_from_slice(rest);
        Cow::Owned(shown)
    }

    /// A Referer: the previous page's path and query, which may contain a key (RFC 9110 §10.1.3).
    pub fn referer<'r>(&self, referer: &'r [u8]) -> Cow<'r, [u8]> {
        let (page, query) = referer.split_at(memchr::memchr(b'?', referer).unwrap_or(referer.len()));
        let asked = query.strip_prefix(b"?").unwrap_or_default();
        match (self.path(page), self.query(page, asked)) {
            (Cow::Borrowed(_), Cow::Borrowed(_)) => Cow::Borrowed(referer),
            (page, asked) if query.is_empty() => Cow::Owned([&page[..], &asked].concat()),
            (page, asked) => Cow::Owned([&page[..], b"?", &asked].concat()),
        }
    }

    /// Removes keys from a request's Referer: a browser repeats the address of the previous page.
    pub fn hide_in_referer(&self, fields: &mut Fields) {
        let mut hidden = None;
        for referer in fields.get_all("referer") {
            if let Cow::Owned(shown) = self.referer(referer) {
                hidden = Some(shown);
            }
        }
        if let (Some(shown), Ok(name)) = (hidden, FieldName::new("referer"))
            && fields.insert(&name, &shown).is_err()
        {
            fields.remove(&name);
        }
    }

    /// Whether a parameter of the query, whose decoded name this is, is secret in a request for this path or URL.
    pub fn hides(&self, path: &[u8], name: &[u8]) -> bool {
        let named = |names: &[&str]| names.iter().any(|known| known.as_bytes() == name);
        self.query.iter().any(|known| known.as_bytes() == name) || self.is_callback(path) && !named(CALLBACK)
    }

    fn is_callback(&self, path: &[u8]) -> bool {
        self.callbacks.iter().any(|one| one.as_bytes() == &*decoded(bare(path)))
    }

    /// A query in the form for logs, for a request for this path or URL.
    pub fn query<'q>(&self, path: &[u8], query: &'q [u8]) -> Cow<'q, [u8]> {
        let is_callback = !query.is_empty() && self.is_callback(path);
        let name_of = |piece: &'q [u8]| piece.split(|&b| b == b'=').next().unwrap_or_default();
        let hidden = |piece: &'q [u8]| {
            let name = decoded(name_of(piece));
            let named = |names: &[&str]| names.iter().any(|n| n.as_bytes() == &*name);
            let tells = self.query.iter().any(|n| n.as_bytes() == &*name) || is_callback && !named(CALLBACK);
            piece.len() > name_of(piece).len() && tells
        };
        if self.query.is_empty() && !is_callback || !query.split(|&b| b == b'&').any(hidden) {
            return Cow::Borrowed(query);
        }
        let show = |piece: &'q [u8]| match hidden(piece) {
            true => [name_of(piece), b"=", HIDDEN].concat(),
            false => piece.to_vec(),
        };
        Cow::Owned(query.split(|&b| b == b'&').map(show).collect::<Vec<_>>().join(&b'&'))
    }
}

/// The path of a URL; a path stays as it is.
fn bare(url: &[u8]) -> &[u8] {
    let behind = url.windows(3).position(|bytes| bytes == b"://").and_then(|at| url.get(at + 3..));
    let behind = behind.filter(|_| !url.starts_with(b"/"));
    behind
        .map_or(url, |rest| rest.get(memchr::memchr(b'/', rest).unwrap_or(rest.len())..).unwrap_or_default())
}

/// Removes the first segment that begins with `~` from a canonical path. Returns the path without it, and the decoded
/// key.
#[inline]
pub fn split_path_key(path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = path.windows(3).position(|bytes| bytes.starts_with(b"/~") && bytes.last() != Some(&b'/'))?;
    let key = path.get(at + 2..)?;
    let (key, rest) = key.split_at(key.iter().position(|&b| b == b'/').unwrap_or(key.len()));
    let mut without = path.get(..at)?.to_vec();
    without.extend_from_slice(rest);
    if without.is_empty() {
        without.push(b'/');
    }
    Some((without, decoded(key).into_owned()))
}

/// Where the next `~` begins, and its length: `%7E` counts too.
fn next_tilde(text: &[u8]) -> Option<(usize, usize)> {
    let escaped = |at: usize| text.get(at..at + 3).is_some_and(|t| t.eq_ignore_ascii_case(b"%7e"));
    (0..text.len()).find_map(|at| match text.get(at) {
        Some(b'~') => Some((at, 1)),
        Some(b'%') if escaped(at) => Some((at, 3)),
        _ => None,
    })
}

/// Decodes `%XX`; a `%` without two digits stays.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: impl AsRef<[u8]>) -> String {
        String::from_utf8_lossy(bytes.as_ref()).into_owned()
    }

    #[test]
    fn keys_in_paths() {
        let split = |path: &str| split_path_key(path.as_bytes()).map(|(path, key)| (text(path), text(key)));
        let some = |path: &str, key: &str| Some((path.to_owned(), key.to_owned()));
        assert_eq!(split("/spot/~key/price"), some("/spot/price", "key"));
        assert_eq!(split("/spot/~key"), some("/spot", "key"));
        assert_eq!(split("/~key/price/~b"), some("/price/~b", "key"));
        assert_eq!(split("/~key"), some("/", "key"));
        assert_eq!(split("/spot/~a%2Bb%zz/"), some("/spot/", "a+b%zz"));
        assert_eq!(split("/spot/~/price"), None);
        assert_eq!(split("/spot/~"), None);
        assert_eq!(split("/sp~ot/price"), None);
    }

    #[test]
    fn no_key_stays_in_a_referer() {
        let conceals = Conceals { path_key: true, query: vec!["key".to_owned()], ..Conceals::default() };
        for (sent, left) in [
            ("Referer: https://a/x?b=1", vec!["https://a/x?b=1"]),
            ("Referer: https://a/~secret/x?b=1", vec!["https://a/~***/x?b=1"]),
            (
                "Referer: https://a/x\nReferer: https://a/x?key=secret\nReferer: b",
                vec!["https://a/x?key=***"],
            ),
            ("Other: https://a/~secret", Vec::new()),
        ] {
            let mut head = crate::testing::request_head(&format!("GET /\n{sent}"));
            conceals.hide_in_referer(&mut head.headers);
            let shown: Vec<String> = head.headers.get_all("referer").map(text).collect();
            assert_eq!(shown, left, "{sent}");
        }
    }

    #[test]
    fn what_a_provider_sends_is_hidden_where_it_sends_browsers() {
        let conceals = Conceals { callbacks: vec!["/oidc/callback".to_owned()], ..Conceals::default() };
        for (path, query, shown) in [
            ("/oidc/callback", "code=c&state=s&x=", "code=***&state=***&x=***"),
            ("/oidc/c%61llback", "c%6fde=c", "c%6fde=***"),
            ("/oidc/callback", "error=denied&state=s&iss=i", "error=denied&state=***&iss=i"),
            ("/oidc/callback", "", ""),
            ("/elsewhere", "code=c&state=s", "code=c&state=s"),
        ] {
            assert_eq!(text(conceals.query(path.as_bytes(), query.as_bytes())), shown, "{path}?{query}");
        }
        for (referer, shown) in [
            ("https://a/oidc/callback?code=c", "https://a/oidc/callback?code=***"),
            ("https://a/b?code=c", "https://a/b?code=c"),
            ("https://a?code=c", "https://a?code=c"),
        ] {
            assert_eq!(text(conceals.referer(referer.as_bytes())), shown);
        }
    }

    #[test]
    fn what_logs_show() {
        let conceals = Conceals { path_key: true, query: vec!["key".to_owned()], ..Conceals::default() };
        for (path, shown) in [
            ("/spot/~secret/price", "/spot/~***/price"),
            ("/spot/%7esecret", "/spot/%7e***"),
            ("/spot%2F~secret;a/x/~b", "/spot%2F~***/x/~***"),
            ("/spot/price", "/spot/price"),
        ] {
            assert_eq!(text(conceals.path(path.as_bytes())), shown);
        }
        for (query, shown) in [
            ("a=1&key=secret&b=2", "a=1&key=***&b=2"),
            ("k%65y=secret", "k%65y=***"),
            ("key&keys=1", "key&keys=1"),
            ("", ""),
        ] {
            assert_eq!(text(conceals.query(b"/", query.as_bytes())), shown);
        }
        for (referer, shown) in [
            (
                "https://a.example/spot/~secret/price?a=1&key=secret",
                "https://a.example/spot/~***/price?a=1&key=***",
            ),
            ("https://a.example/spot/~secret", "https://a.example/spot/~***"),
            ("https://a.example/?key=secret", "https://a.example/?key=***"),
            ("https://a.example/spot/price?a=1", "https://a.example/spot/price?a=1"),
            ("", ""),
        ] {
            assert_eq!(text(conceals.referer(referer.as_bytes())), shown);
        }
        assert_eq!(text(Conceals::default().path(b"/~a")), "/~a");
        assert_eq!(text(Conceals::default().query(b"/", b"key=a")), "key=a");
    }
}
