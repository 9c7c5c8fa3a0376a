//! Translates an upstream's addresses to the client's: redirects and cookies that name the endpoint itself, or a path
//! without the prefix that was stripped on the way.
//!
//! This does what nginx's `proxy_redirect`, `proxy_cookie_domain` and `proxy_cookie_path` do, without configuration.
//! An upstream that gets the client's host, and the prefix in `X-Forwarded-Prefix`, names both correctly; such fields
//! stay unchanged.

use weir_h1::{FieldName, Fields, Known};

/// The fields that contain addresses.
pub(crate) const LINKS: [Known; 4] =
    [Known::ContentLocation, Known::Location, Known::Refresh, Known::SetCookie];

/// What the filter `rewrite` did to the start of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix<'a> {
    /// The stripped prefix, without a trailing `/`.
    stripped: &'a [u8],
    /// The prefix that replaced it.
    added: &'a [u8],
}

/// The two sides of a request.
pub(crate) struct Sides<'a> {
    /// Host and port as the client requested them, and whether over TLS. Empty if it named none.
    pub(crate) asked: &'a [u8],
    pub(crate) tls: bool,
    /// The Host sent to the upstream.
    pub(crate) told: &'a [u8],
    /// The endpoint's other names, host and port: as the config writes it, and its address.
    pub(crate) own: [&'a [u8]; 2],
    /// Whether the upstream is reached over TLS.
    pub(crate) own_tls: bool,
    pub(crate) prefix: Option<Prefix<'a>>,
}

/// Rewrites the response fields that name an address on the upstream's side.
pub(crate) fn rewrite(fields: &mut Fields, sides: &Sides<'_>) {
    for (known, name) in [(Known::Location, "location"), (Known::ContentLocation, "content-location")] {
        replace(fields, known, name, |value| sides.url(value));
    }
    replace(fields, Known::Refresh, "refresh", |value| {
        let at = url_of_refresh(value)?;
        let (before, url) = value.split_at(at);
        let end = url.iter().position(|b| matches!(b, b'"' | b'\'')).unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        Some([before, &sides.url(url)?, after].concat())
    });
    replace(fields, Known::SetCookie, "set-cookie", |value| sides.cookie(value));
}

/// Replaces the values of a field if there is a new value; the values keep their order.
fn replace(fields: &mut Fields, known: Known, name: &str, new: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    if !fields.has_any(&[known]) {
        return;
    }
    let renewed: Vec<_> = fields.get_all(name).map(|value| (value.to_vec(), new(value))).collect();
    if renewed.iter().all(|(_, new)| new.is_none()) {
        return;
    }
    let Ok(name) = FieldName::new(name) else { return };
    fields.remove_known(known);
    for (old, new) in renewed {
        let _ = fields.append(&name, new.as_deref().unwrap_or(&old)); // from valid values
    }
}

/// Where the URL begins in `5; url=/next`, after a quote if there is one. Follows the HTML standard's "shared
/// declarative refresh".
fn url_of_refresh(value: &[u8]) -> Option<usize> {
    let separator = value.iter().position(|b| matches!(b, b';' | b','))?;
    let mut at = separator + 1;
    let skip = |mut at: usize| {
        while value.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };
    at = skip(at);
    if value.get(at..at + 3).is_some_and(|word| word.eq_ignore_ascii_case(b"url")) {
        let equals = skip(at + 3);
        if value.get(equals) == Some(&b'=') {
            at = skip(equals + 1);
        }
    }
    if matches!(value.get(at), Some(b'"' | b'\'')) {
        at += 1;
    }
    (at < value.len()).then_some(at)
}

impl<'a> Prefix<'a> {
    /// From the exchange's context, which stores both in one text, with the length of the first.
    pub(crate) fn of(kept: &'a (Box<[u8]>, usize)) -> Self {
        let (stripped, added) = kept.0.split_at_checked(kept.1).unwrap_or_default();
        Self { stripped, added }
    }
}

impl Sides<'_> {
    /// A reference (RFC 3986 §4.1) as the client must see it; `None` keeps it.
    fn url(&self, url: &[u8]) -> Option<Vec<u8>> {
        // Browsers take `\` for `/`, so what is a path here may be a host there. Leave it alone.
        if url.contains(&b'\\') {
            return None;
        }
        if url.first() == Some(&b'/') && url.get(1) != Some(&b'/') {
            return self.path(url);
        }
        let (tls, rest) = if begins(url, b"https://") {
            (Some(true), url.get(8..)?)
        } else if begins(url, b"http://") {
            (Some(false), url.get(7..)?)
        } else {
            (None, url.strip_prefix(b"//")?)
        };
        let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let of_url = tls.unwrap_or(self.own_tls);
        let is_asked = same(authority, of_url, self.asked, self.tls);
        if is_asked && self.told.eq_ignore_ascii_case(self.asked) {
            // It uses the host name that we sent it: only the prefix can be wrong.
            let begin = url.get(..url.len() - path.len())?;
            return Some([begin, &self.path(path)?].concat());
        }
        let is_own = !is_asked
            && [self.told, self.own[0], self.own[1]]
                .iter()
                .any(|own| same(authority, of_url, own, self.own_tls));
        if !is_own {
            return None;
        }
        let path = self.path(path).unwrap_or_else(|| path.to_vec());
        if self.asked.is_empty() {
            return Some(if path.first() == Some(&b'/') { path } else { [&b"/"[..], &path].concat() });
        }
        let scheme: &[u8] = match (tls, self.tls) {
            (None, _) => b"//",
            (_, true) => b"https://",
            (_, false) => b"http://",
        };
        Some([scheme, self.asked, &path].concat())
    }

    /// An absolute path with the prefix it has for the client; `None` if it already has it, or there is none.
    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let prefix = self.prefix?;
        if !prefix.stripped.is_empty() && is_below(path, prefix.stripped) {
            return None;
        }
        let rest = if prefix.added.is_empty() {
            path
        } else if is_below(path, prefix.added) {
            path.get(prefix.added.len()..)?
        } else {
            return None; // outside what this route leads to
        };
        let root: &[u8] = if prefix.stripped.is_empty() && rest.first() != Some(&b'/') { b"/" } else { b"" };
        Some([prefix.stripped, root, rest].concat())
    }

    /// A cookie as the client must see it. `Path=/` stays: the cookie still reaches the service, and others that
    /// should see it.
    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut changed = false;
        let mut out: Vec<&[u8]> = Vec::new();
        let (mut domain, mut path) = (Vec::new(), Vec::new());
        for (at, part) in value.split(|&b| b == b';').enumerate() {
            let (name, told) = match part.iter().position(|&b| b == b'=') {
                Some(equals) if at > 0 => {
                    (part.get(..equals)?.trim_ascii(), part.get(equals + 1..)?.trim_ascii())
                }
                _ => (&b""[..], &b""[..]),
            };
            if name.eq_ignore_ascii_case(b"domain") && self.is_own_domain(told) {
                domain = [&b" Domain="[..], host(self.asked)].concat();
                changed = true;
            } else if name.eq_ignore_ascii_case(b"path") && told != b"/" && told.first() == Some(&b'/') {
                match self.path(told) {
                    Some(new) => {
                        path = [&b" Path="[..], &new].concat();
                        changed = true;
                    }
                    None => out.push(part),
                }
            } else {
                out.push(part);
            }
        }
        if !changed {
            return None;
        }
        // If the client asked for an address or an unknown host, the cookie gets no Domain and belongs to the host
        // that set it.
        let named = self.asked.iter().any(u8::is_ascii_alphabetic) && !self.asked.starts_with(b"[");
        out.extend([&path[..], if named { &domain[..] } else { b"" }].iter().filter(|part| !part.is_empty()));
        Some(out.join(&b";"[..]))
    }

    /// Whether a cookie's domain names the endpoint and not the host that the client requested.
    fn is_own_domain(&self, domain: &[u8]) -> bool {
        let domain = domain.strip_prefix(b".").unwrap_or(domain);
        let is = |authority: &&[u8]| !domain.is_empty() && host(authority).eq_ignore_ascii_case(domain);
        !is(&self.asked) && [self.told, self.own[0], self.own[1]].iter().any(is)
    }
}

fn begins(text: &[u8], with: &[u8]) -> bool {
    text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
}

/// Whether a path equals a prefix or is below it, by whole segments.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?' | b'#')))
}

/// Whether two authorities are equal. A missing port is the scheme's default.
fn same(a: &[u8], a_tls: bool, b: &[u8], b_tls: bool) -> bool {
    let port = |authority: &[u8], tls: bool| match authority.get(host(authority).len() + 1..) {
        None | Some(b"") => Some(if tls { 443 } else { 80 }),
        Some(digits) => std::str::from_utf8(digits).ok()?.parse::<u16>().ok(),
    };
    !b.is_empty()
        && host(a).eq_ignore_ascii_case(host(b))
        && port(a, a_tls).is_some_and(|a| Some(a) == port(b, b_tls))
}

/// The host of an authority; an IPv6 address keeps its brackets.
fn host(authority: &[u8]) -> &[u8] {
    let from = authority.iter().position(|&b| b == b']').unwrap_or(0);
    let end = authority.iter().skip(from).position(|&b| b == b':').map_or(authority.len(), |at| from + at);
    authority.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix<'a>(stripped: &'a str, added: &'a str) -> Prefix<'a> {
        Prefix { stripped: stripped.as_bytes(), added: added.as_bytes() }
    }

    fn sides<'a>(asked: &'a str, told: &'a str, prefix: Option<Prefix<'a>>) -> Sides<'a> {
        let own = [&b"orders.internal:8000"[..], b"10.0.0.5:8000"];
        Sides { asked: asked.as_bytes(), tls: true, told: told.as_bytes(), own, own_tls: false, prefix }
    }

    #[test]
    fn urls_that_name_the_endpoint() {
        let api = prefix("/api", "");
        for (url, plain, behind) in [
            (
                "http://orders.internal:8000/a?b#c",
                Some("https://api.test/a?b#c"),
                Some("https://api.test/api/a?b#c"),
            ),
            ("HTTP://10.0.0.5:8000", Some("https://api.test"), None),
            ("http://10.0.0.5:8000/api/x", Some("https://api.test/api/x"), Some("https://api.test/api/x")),
            ("//orders.internal:8000/a", Some("//api.test/a"), Some("//api.test/api/a")),
            ("http://orders.internal/a", None, None),
            ("https://orders.internal:8000/a", Some("https://api.test/a"), Some("https://api.test/api/a")),
            ("https://elsewhere.test/a", None, None),
            ("http://orders.internal:8000@evil.test/", None, None),
            ("http://orders.internal:8000x/", None, None),
            ("/a", None, Some("/api/a")),
            ("/", None, Some("/api/")),
            ("/?q", None, Some("/api/?q")),
            ("/api", None, None),
            ("/api/a", None, None),
            ("/apix", None, Some("/api/apix")),
            ("/\\evil.test", None, None),
            ("a/b", None, None),
            ("", None, None),
            ("mailto:a@b", None, None),
        ] {
            let seen = |prefix| sides("api.test", "orders.internal:8000", prefix).url(url.as_bytes());
            let text = |url: Option<Vec<u8>>| url.map(|url| String::from_utf8(url).unwrap());
            assert_eq!(text(seen(None)).as_deref(), plain, "{url}");
            if behind.is_some() || plain.is_none() {
                assert_eq!(text(seen(Some(api))).as_deref(), behind, "{url}");
            }
        }
    }

    #[test]
    fn an_upstream_that_knows_the_clients_host() {
        let api = prefix("/api", "");
        let url = |url: &str, prefix| sides("api.test", "api.test", prefix).url(url.as_bytes());
        assert_eq!(url("https://api.test/a", None), None);
        // The service does not know that TLS ends at the gateway.
        assert_eq!(url("http://api.test/a", None).unwrap(), b"https://api.test/a");
        assert_eq!(url("https://api.test/a", Some(api)).unwrap(), b"https://api.test/api/a");
        assert_eq!(url("https://api.test:443/a", Some(api)).unwrap(), b"https://api.test:443/api/a");
        assert_eq!(url("http://10.0.0.5:8000/a", Some(api)).unwrap(), b"https://api.test/api/a");
        let nobody = sides("", "orders.internal:8000", None);
        assert_eq!(nobody.url(b"http://orders.internal:8000/a").unwrap(), b"/a");
        assert_eq!(nobody.url(b"http://orders.internal:8000?a").unwrap(), b"/?a");
    }

    #[test]
    fn a_prefix_in_place_of_another() {
        let v2 = prefix("/api", "/v2");
        let path = |path: &str| sides("api.test", "x", Some(v2)).path(path.as_bytes());
        assert_eq!(path("/v2/a").unwrap(), b"/api/a");
        assert_eq!(path("/v2").unwrap(), b"/api");
        assert_eq!(path("/v20"), None);
        assert_eq!(path("/other"), None);
        assert_eq!(path("/api/a"), None);
        let added = prefix("", "/v2");
        let path = |path: &str| sides("api.test", "x", Some(added)).path(path.as_bytes());
        assert_eq!(path("/v2/a").unwrap(), b"/a");
        assert_eq!(path("/v2").unwrap(), b"/");
        assert_eq!(path("/v2?a").unwrap(), b"/?a");
    }

    #[test]
    fn cookies() {
        let api = prefix("/api", "");
        for (cookie, seen) in [
            ("a=1; Path=/x; HttpOnly", Some("a=1; HttpOnly; Path=/api/x")),
            ("a=1; Path=/; Secure", None),
            ("a=1; path=/api/x", None),
            ("a=1; Path=x", None),
            ("a=1; Domain=orders.internal; Path=/", Some("a=1; Path=/; Domain=api.test")),
            ("a=1; domain=.10.0.0.5; Path=/y", Some("a=1; Path=/api/y; Domain=api.test")),
            ("a=1; Domain=api.test", None),
            ("a=1; Domain=elsewhere.test", None),
            ("domain=orders.internal", None),
            ("", None),
        ] {
            let text = sides("api.test:8443", "orders.internal:8000", Some(api)).cookie(cookie.as_bytes());
            assert_eq!(text.map(|text| String::from_utf8(text).unwrap()).as_deref(), seen, "{cookie}");
        }
        let address = sides("192.0.2.1:8443", "orders.internal:8000", None);
        assert_eq!(address.cookie(b"a=1; Domain=orders.internal; Secure").unwrap(), b"a=1; Secure");
    }

    #[test]
    fn refresh() {
        for (value, url) in [
            ("5; url=/a", Some("/a")),
            ("0;URL='/a'", Some("/a'")),
            ("5, /a", Some("/a")),
            ("5 ; url = \"/a\"", Some("/a\"")),
            ("5", None),
            ("5;", None),
            ("5; url=", None),
        ] {
            let at = url_of_refresh(value.as_bytes());
            assert_eq!(at.map(|at| &value[at..]), url, "{value}");
        }
    }
}
