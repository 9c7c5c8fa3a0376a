//! URLs of steps: the scheme, host and port that a connection needs, and the path that a request names.

use std::fmt;

/// What is spoken, and whether over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `grpc`
    Grpc,
    /// `grpcs`
    Grpcs,
    /// `http`
    Http,
    /// `https`
    Https,
    /// `ws`
    Ws,
    /// `wss`
    Wss,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// What is spoken there.
    pub scheme: Scheme,
    /// A host name in lower case, or an address; IPv6 without brackets.
    pub host: String,
    /// The port, given or that of the scheme.
    pub port: u16,
}

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Where it leads.
    pub origin: Origin,
    /// Path and query; begins with `/`.
    pub path: String,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl(pub String);

impl Scheme {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Whether it runs over TLS.
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Grpcs | Self::Https | Self::Wss)
    }

    /// The port where none is given.
    pub const fn port(self) -> u16 {
        if self.is_secure() { 443 } else { 80 }
    }

    fn named(text: &str) -> Option<Self> {
        let all = [Self::Grpc, Self::Grpcs, Self::Http, Self::Https, Self::Ws, Self::Wss];
        all.into_iter().find(|scheme| text.eq_ignore_ascii_case(scheme.name()))
    }
}

impl Origin {
    /// Host and port as `Host` has them: without the port of the scheme.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether a connection to the other serves this one too: `ws` and `http` share their ports.
    pub fn shares_server_with(&self, other: &Self) -> bool {
        self.scheme.is_secure() == other.scheme.is_secure()
            && self.host == other.host
            && self.port == other.port
    }

    /// Reads `SCHEME://HOST[:PORT]`; also returns what follows, which is empty or begins with `/`, `?` or `#`.
    ///
    /// # Errors
    /// It has no scheme, an unknown one, credentials, or no valid host and port.
    pub fn parse(text: &str) -> Result<(Self, &str), BadUrl> {
        let bad = |why: String| Err(BadUrl(why));
        let Some((scheme, rest)) = text.split_once("://") else {
            return bad("expected a URL such as http://127.0.0.1:8080/path".to_owned());
        };
        let Some(scheme) = Scheme::named(scheme) else {
            return bad(format!(
                "the scheme `{scheme}` is not known; expected http, https, grpc, grpcs, ws or wss"
            ));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains('@') {
            return bad("a URL of a plan has no user and password: send them in `authorization`".to_owned());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inside) => {
                let Some((host, after)) = inside.split_once(']') else {
                    return bad("the bracket of the address is not closed".to_owned());
                };
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return bad(format!("`{host}` is not an IPv6 address"));
                }
                (host, after)
            }
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._~:".contains(&b);
        if host.is_empty() || !host.bytes().all(fine) {
            return bad(format!("`{host}` is not a host name"));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(scheme.port()),
            Some("") => Some(scheme.port()),
            Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().ok().filter(|p| *p > 0),
            _ => None,
        };
        let Some(port) = port else { return bad(format!("`{authority}` has no port from 1 to 65535")) };
        Ok((Self { scheme, host: host.to_ascii_lowercase(), port }, rest))
    }
}

impl Url {
    /// Reads an absolute URL.
    ///
    /// # Errors
    /// The text is no URL, or it holds characters that must be escaped.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let (origin, rest) = Origin::parse(text)?;
        let rest = rest.split('#').next().unwrap_or_default();
        let path = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        match path.chars().find(|c| !c.is_ascii_graphic()) {
            Some(bad) => Err(BadUrl(format!("{bad:?} cannot stand in a URL: percent-encode it"))),
            None => Ok(Self { origin, path }),
        }
    }

    /// Reads a URL that may be relative to this one, such as that of `Location` (RFC 3986 §5.2).
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub fn join(&self, reference: &str) -> Result<Self, BadUrl> {
        let reference = reference.split('#').next().unwrap_or_default();
        let scheme = reference.split(['/', '?', ':']).next().unwrap_or_default();
        if reference.get(scheme.len()..).is_some_and(|rest| rest.starts_with(':')) && !scheme.is_empty() {
            return Self::parse(reference);
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.origin.scheme.name()));
        }
        let (own, query) =
            self.path.split_once('?').map_or((&*self.path, None), |(path, query)| (path, Some(query)));
        let (path, its_query) = reference.split_once('?').map_or((reference, None), |(p, q)| (p, Some(q)));
        let (path, query) = match path {
            "" => (own.to_owned(), its_query.or(query)),
            path if path.starts_with('/') => (without_dots(path), its_query),
            path => {
                let folder = own.rfind('/').map_or("", |at| own.get(..=at).unwrap_or_default());
                (without_dots(&format!("{folder}{path}")), its_query)
            }
        };
        let path = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        let whole = format!("{}://{}{path}", self.origin.scheme.name(), self.origin.authority());
        Self::parse(&whole)
    }
}

/// RFC 3986 §5.2.4.
fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (i, segment) in segments.iter().enumerate() {
        let is_last = i + 1 == segments.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." {
                    parts.pop();
                }
                if is_last {
                    parts.push("");
                }
            }
            segment => parts.push(segment),
        }
    }
    format!("/{}", parts.join("/"))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.authority())
    }
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, host, port, authority, path) in [
            ("http://A:8080/x?y=1#z", "a", 8080, "a:8080", "/x?y=1"),
            ("https://a.b", "a.b", 443, "a.b", "/"),
            ("HTTP://[::1]:81?q", "::1", 81, "[::1]:81", "/?q"),
            ("grpcs://a/b.C/D", "a", 443, "a", "/b.C/D"),
            ("ws://a:80", "a", 80, "a", "/"),
        ] {
            let url = Url::parse(text).unwrap();
            let found = (&*url.origin.host, url.origin.port, &*url.origin.authority(), &*url.path);
            assert_eq!(found, (host, port, authority, path), "{text}");
        }
        for bad in [
            "",
            "/x",
            "a:80",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://a:0/",
            "http://a:99999/",
            "http://a:+1/",
            "http://[::1/",
            "http://[x]/",
            "http://[::1]x/",
            "http://a b/",
            "http://a/ b",
            "http://a/ü",
            "http://me:secret@a/",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn references_are_resolved() {
        let base = Url::parse("http://a:81/b/c/d?q").unwrap();
        for (reference, want) in [
            ("g", "http://a:81/b/c/g"),
            ("./g", "http://a:81/b/c/g"),
            ("g/", "http://a:81/b/c/g/"),
            ("/g", "http://a:81/g"),
            ("//g", "http://g/"),
            ("?y", "http://a:81/b/c/d?y"),
            ("g?y", "http://a:81/b/c/g?y"),
            ("g?y/../x", "http://a:81/b/c/g?y/../x"),
            ("#s", "http://a:81/b/c/d?q"),
            ("", "http://a:81/b/c/d?q"),
            (".", "http://a:81/b/c/"),
            ("..", "http://a:81/b/"),
            ("../../../g", "http://a:81/g"),
            ("/a/./b/../c", "http://a:81/a/c"),
            ("https://h/x", "https://h/x"),
        ] {
            let found = base.join(reference).unwrap();
            assert_eq!(format!("{}{}", found.origin, found.path), want, "{reference}");
        }
        for bad in ["javascript:alert(1)", "mailto:a@b", "http:g", "/ x"] {
            assert!(base.join(bad).is_err(), "{bad}");
        }
    }
}
