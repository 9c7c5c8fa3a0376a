//! Targets as URLs, with an optional weight in front: `3@http://host:8080/path?query`.

use percent_encoding::percent_decode_str;
use weir_report::report::TargetPlan;

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) weight: u32,
    pub(crate) scheme: Scheme,
    /// `user:password`, unescaped.
    pub(crate) credentials: Option<String>,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port in the form of the Host field.
    pub(crate) authority: String,
    /// Path and query, from the first slash; no fragment.
    pub(crate) path: String,
}

/// The protocol of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Grpc,
    Grpcs,
    Http,
    Https,
    Ws,
    Wss,
}

impl Scheme {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    pub(crate) const fn is_tls(self) -> bool {
        matches!(self, Self::Grpcs | Self::Https | Self::Wss)
    }

    pub(crate) const fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    const fn port(self) -> u16 {
        match self {
            Self::Grpc | Self::Http | Self::Ws => 80,
            Self::Grpcs | Self::Https | Self::Wss => 443,
        }
    }

    /// Whether the protocol is gRPC.
    pub(crate) const fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::Grpcs)
    }

    /// The scheme for HTTP/2, where gRPC is plain HTTP.
    pub(crate) const fn on_the_wire(self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }
}

impl Url {
    /// Parses a URL. The error names the expected form.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (weight, url) = match text.split_once('@') {
            Some((weight, rest)) if !weight.is_empty() && weight.bytes().all(|b| b.is_ascii_digit()) => {
                let weight = weight.parse().ok().filter(|w| (1..=1_000_000).contains(w));
                (weight.ok_or("a weight is 1 to 1000000: 3@http://host/")?, rest)
            }
            _ => (1, text),
        };
        // After a path, `://` would be part of the path.
        let with_scheme = url.split_once("://").filter(|(scheme, _)| !scheme.contains([':', '/', '?', '#']));
        let (scheme, rest) = match with_scheme {
            Some(parts) => parts,
            None if names_host(url)? => ("http", url),
            None => return Err("expected a URL such as http://127.0.0.1:8080/path".to_owned()),
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "grpc" => Scheme::Grpc,
            "grpcs" => Scheme::Grpcs,
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "ws" => Scheme::Ws,
            "wss" => Scheme::Wss,
            other => {
                return Err(format!(
                    "the scheme `{other}` is not known; expected http, https, grpc, grpcs, ws or wss"
                ));
            }
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (credentials, authority) = match authority.rsplit_once('@') {
            Some((user, rest)) => (Some(unescape(user)), rest),
            None => (None, authority),
        };
        let (host, port) = host_and_port(authority, scheme.port())?;
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if let Some(bad) = path.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!(
                "{bad:?} can not stand in a URL: write it as %{:02X}",
                u32::from(bad).min(255)
            ));
        }
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = if port == scheme.port() { shown } else { format!("{shown}:{port}") };
        Ok(Self { weight, scheme, credentials, host, port, authority, path })
    }

    /// Its description in a report.
    pub(crate) fn plan(&self) -> TargetPlan {
        TargetPlan {
            url: format!("{}://{}{}", self.scheme.name(), self.authority, self.path),
            scheme: self.scheme.name().to_owned(),
            host: self.host.clone(),
            port: self.port,
            path: self.path.clone(),
            weight: self.weight,
            ..TargetPlan::default()
        }
    }
}

/// Whether a URL without a scheme starts with something that can only be a host: an address, `localhost`, or a name
/// with a dot or a port. A lone word is more likely another program's subcommand.
fn names_host(url: &str) -> Result<bool, &'static str> {
    const SCHEMES: [&str; 6] = ["grpc", "grpcs", "http", "https", "ws", "wss"];
    // Scripts for k6 (JavaScript, TypeScript) and wrk (Lua).
    const SCRIPTS: [&str; 4] = [".js", ".lua", ".mjs", ".ts"];
    let authority = url.split(['/', '?', '#']).next().unwrap_or_default();
    if SCRIPTS.iter().any(|s| url.ends_with(s)) && (authority == url || [".", ".."].contains(&authority)) {
        return Err("this looks like a script, and scripts are not run: expected a URL, \
                    and the options that say what the script does");
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // `http:/host` lacks a slash.
    let scheme = host.split_once(':').is_some_and(|(s, _)| SCHEMES.contains(&s));
    let named = host == "localhost" || host.contains(['.', ':']);
    Ok(named && !scheme && host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '['))
}

fn host_and_port(authority: &str, default: u16) -> Result<(String, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("the bracket of the address is not closed")?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| format!("`{host}` is not an IPv6 address"))?;
            (host, rest.strip_prefix(':').unwrap_or(rest))
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._~:".contains(&b);
    if host.is_empty() || !host.bytes().all(fine) {
        return Err(format!("`{host}` is not a host name"));
    }
    let port = match port {
        "" => default,
        p => p
            .parse()
            .ok()
            .filter(|p| *p > 0)
            .ok_or_else(|| format!("`{p}` is not a port; expected 1 to 65535"))?,
    };
    Ok((host.to_owned(), port))
}

/// Resolves percent escapes and leaves malformed ones as they are.
pub(crate) fn unescape(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, host, port, authority, path) in [
            ("http://a", "a", 80, "a", "/"),
            ("http://a:8080/x?y=1#z", "a", 8080, "a:8080", "/x?y=1"),
            ("https://a.b", "a.b", 443, "a.b", "/"),
            ("HTTP://[::1]:81?q", "::1", 81, "[::1]:81", "/?q"),
            ("http://a:80/@b", "a", 80, "a", "/@b"),
            ("grpc://a:5/b.C/D", "a", 5, "a:5", "/b.C/D"),
            ("grpcs://a/b.C/D", "a", 443, "a", "/b.C/D"),
            ("ws://a", "a", 80, "a", "/"),
            ("WSS://a:8443/x", "a", 8443, "a:8443", "/x"),
            // Without a scheme, as in curl.
            ("localhost", "localhost", 80, "localhost", "/"),
            ("localhost:8080/x?to=http://y", "localhost", 8080, "localhost:8080", "/x?to=http://y"),
            ("127.0.0.1/x", "127.0.0.1", 80, "127.0.0.1", "/x"),
            ("[::1]:81?q", "::1", 81, "[::1]:81", "/?q"),
            ("a.b/app.js", "a.b", 80, "a.b", "/app.js"),
            ("a:80", "a", 80, "a", "/"),
        ] {
            let u = Url::parse(text).unwrap();
            assert_eq!(
                (u.host.as_str(), u.port, u.authority.as_str(), u.path.as_str()),
                (host, port, authority, path),
                "{text}"
            );
        }
        let u = Url::parse("3@http://me:p%40ss@a/").unwrap();
        assert_eq!(
            (u.weight, u.credentials.as_deref(), u.plan().url.as_str()),
            (3, Some("me:p@ss"), "http://a/")
        );
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for bad in [
            "",
            "a",
            "a/b",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://a:0/",
            "http://a:99999/",
            "http://[::1/",
            "http://[x]/",
            "http://a b/",
            "http://a/ b",
            "0@http://a/",
            "http://a/ü",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }
}
