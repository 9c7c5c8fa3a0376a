//! Addresses of sites: `example.com`, `http://a.test:8080/api/*`, `:443`.

/// An address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) scheme: String,
    /// In lower case; empty for any.
    pub(super) host: String,
    pub(super) port: Option<String>,
    pub(super) path: String,
}

impl Address {
    /// Reads an address.
    pub(super) fn read(text: &str) -> Self {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None => (String::new(), text),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, ""),
        };
        let (host, port) = match authority.rsplit_once(':') {
            // The default value of a variable holds a colon too.
            Some((host, port))
                if !port.contains([']', crate::yaml::VARIABLE_END])
                    || port.starts_with(crate::yaml::VARIABLE_BEGIN) =>
            {
                (host, Some(port.to_owned()).filter(|port| !port.is_empty()))
            }
            _ => (authority, None),
        };
        let host = if host == "*" { "" } else { host };
        let host = match host.contains(crate::yaml::VARIABLE_BEGIN) {
            true => host.to_owned(),
            false => host.to_ascii_lowercase(),
        };
        let path = if path == "/" { "" } else { path };
        Self { scheme, host, port, path: path.to_owned() }
    }

    /// Whether Caddy gives the host a certificate of its own authority.
    pub(super) fn is_internal(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost"
            || [".localhost", ".local", ".internal", ".home.arpa"].iter().any(|end| host.ends_with(end))
            || host.parse::<std::net::IpAddr>().is_ok()
            || !host.contains('.') && !host.is_empty() && !host.contains(crate::yaml::VARIABLE_BEGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let of = |text: &str| {
            let address = Address::read(text);
            (address.scheme, address.host, address.port.unwrap_or_default(), address.path)
        };
        let made =
            |a: &str, b: &str, c: &str, d: &str| (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned());
        assert_eq!(of("Example.com"), made("", "example.com", "", ""));
        assert_eq!(of("http://a.test:8080/api/*"), made("http", "a.test", "8080", "/api/*"));
        assert_eq!(of(":443"), made("", "", "443", ""));
        assert_eq!(of("[::1]:80"), made("", "[::1]", "80", ""));
        assert!(Address::read("localhost:3000").is_internal());
        assert!(!Address::read("a.example.com").is_internal());
    }
}
