//! Chooses the proxy for a target: from `--proxy URL`, or with `--proxy env` from the environment variables that curl
//! reads.

use super::Reader;
use crate::transport::origin::Proxy;
use crate::url::{Scheme, Url};
use std::net::IpAddr;
use weir_wire::base64;
use weir_wire::listen::Address;

/// The value of `--proxy` that selects the environment.
const ENVIRONMENT: &str = "env";

impl Reader<'_> {
    /// The proxy for this URL, if any, and its addresses.
    pub(super) fn proxy(&mut self, url: &Url) -> Option<(Proxy, Vec<Address>)> {
        let written = self.options.proxy.as_deref()?;
        let (place, text) = if written == ENVIRONMENT {
            from_environment(url, |name| std::env::var(name).ok().filter(|v| !v.is_empty()))?
        } else {
            (format!("--proxy {}", without_user(written)), written.to_owned())
        };
        if self.options.unix_socket.is_some() {
            self.wrong(&place, "--unix-socket says where connections go already: give one of the two");
            return None;
        }
        let at = match parse(&text) {
            Ok(at) => at,
            Err(hint) => {
                self.wrong(&place, &hint);
                return None;
            }
        };
        let addresses = self.addresses(&place, &at);
        let authorization =
            at.credentials.as_ref().map(|c| format!("Basic {}", base64::encode(c.as_bytes())));
        // A proxy accepts only plain http requests directly. Anything but a sequence of HTTP/1.1 requests needs a
        // tunnel.
        let is_tunnel = url.scheme != Scheme::Http || self.options.http2;
        let connect = is_tunnel.then(|| connect(url, authorization.as_deref()));
        let name = format!("http://{}", at.authority);
        Some((Proxy { name, connect, authorization }, addresses))
    }
}

/// The request that opens a tunnel. Its target is always host and port (RFC 9112 §3.2.3).
fn connect(url: &Url, authorization: Option<&str>) -> Vec<u8> {
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
    let to = format!("{host}:{}", url.port);
    let authorization = authorization.map(|a| format!("Proxy-Authorization: {a}\r\n")).unwrap_or_default();
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n").into_bytes()
}

/// Parses a proxy: a URL, or only host and port. The error names the expected form.
fn parse(text: &str) -> Result<Url, String> {
    const FORM: &str = "expected env, or the URL of a proxy such as http://127.0.0.1:3128";
    if let Some((scheme, _)) = text.split_once("://")
        && !scheme.eq_ignore_ascii_case("http")
    {
        return Err(format!("a proxy is spoken to by http, not by {scheme}"));
    }
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    match Url::parse(&url) {
        Ok(at) if at.path == "/" && at.weight == 1 => Ok(at),
        Ok(_) => Err(FORM.to_owned()),
        Err(hint) => Err(format!("{hint}; {FORM}")),
    }
}

/// The URL without user and password, for display.
fn without_user(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://***@{host}"),
        (None, Some((_, host))) => format!("***@{host}"),
        (_, None) => text.to_owned(),
    }
}

/// The variable that names the proxy for this URL, and its value.
fn from_environment(url: &Url, variable: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let excluded = ["no_proxy", "NO_PROXY"].iter().find_map(|name| variable(name)).unwrap_or_default();
    if excluded.split([',', ' ']).any(|rule| is_excluded(rule.trim(), url)) {
        return None;
    }
    let own = if url.scheme.is_tls() { ["https_proxy", "HTTPS_PROXY"] } else { ["http_proxy", "HTTP_PROXY"] };
    let names = own.into_iter().chain(["all_proxy", "ALL_PROXY"]);
    names.into_iter().find_map(|name| Some((name.to_owned(), variable(name)?)))
}

/// Whether a rule of `no_proxy` matches this URL. A rule is a name with all its subdomains, an address or a network,
/// each with an optional port; `*` matches all.
fn is_excluded(rule: &str, url: &Url) -> bool {
    if let (Ok(host), Some((network, bits))) = (url.host.parse::<IpAddr>(), rule.split_once('/')) {
        return network.parse().is_ok_and(|n| bits.parse().is_ok_and(|bits| is_within(host, n, bits)));
    }
    let (name, port) = match rule.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port.parse().ok()),
        _ => (rule, None),
    };
    let name = name.trim_matches(['[', ']']);
    let name =
        name.strip_prefix("*.").or_else(|| name.strip_prefix('.')).unwrap_or(name).to_ascii_lowercase();
    let host = url.host.to_ascii_lowercase();
    let below = || host.strip_suffix(&name).is_some_and(|rest| rest.ends_with('.'));
    let same = name == "*" || host == name || (host.parse::<IpAddr>().is_err() && below());
    !name.is_empty() && same && port.is_none_or(|port: u16| port == url.port)
}

/// Whether an address is in a network with this many leading bits.
fn is_within(host: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (host, network, all) = match (host, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    // With a prefix of zero bits every address matches; a shift by the whole width would be undefined.
    bits <= all && (host ^ network).checked_shr(all - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn the_environment_names_a_proxy_by_scheme() {
        let all =
            [("http_proxy", "a:1"), ("HTTP_PROXY", "b:1"), ("HTTPS_PROXY", "c:1"), ("ALL_PROXY", "d:1")];
        let ask = |target: &str, known: &[(&str, &str)]| {
            let found = |name: &str| known.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            from_environment(&url(target), found).map(|(name, at)| format!("{name}={at}"))
        };
        assert_eq!(ask("http://x/", &all).as_deref(), Some("http_proxy=a:1"));
        assert_eq!(ask("ws://x/", &all[1..]).as_deref(), Some("HTTP_PROXY=b:1"));
        assert_eq!(ask("wss://x/", &all).as_deref(), Some("HTTPS_PROXY=c:1"));
        assert_eq!(ask("https://x/", &all[3..]).as_deref(), Some("ALL_PROXY=d:1"));
        assert_eq!(ask("http://x/", &[]), None);
        assert_eq!(ask("http://x/", &[all[0], ("no_proxy", "y, x")]), None);
    }

    #[test]
    fn some_hosts_are_excluded() {
        for (rule, target, want) in [
            ("*", "http://a/", true),
            ("example.com", "http://example.com/", true),
            ("example.com", "http://API.example.com/", true),
            (".example.com", "http://example.com/", true),
            ("*.example.com", "http://a.example.com/", true),
            ("example.com", "http://notexample.com/", false),
            ("example.com:8080", "http://example.com:8080/", true),
            ("example.com:8080", "http://example.com/", false),
            ("127.0.0.1", "http://127.0.0.1:9/", true),
            ("0.0.1", "http://127.0.0.1/", false),
            ("::1", "http://[::1]/", true),
            ("[::1]:80", "http://[::1]/", true),
            ("10.0.0.0/8", "http://10.9.8.7/", true),
            ("10.0.0.0/8", "http://11.9.8.7/", false),
            ("0.0.0.0/0", "http://11.9.8.7/", true),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("10.0.0.0/33", "http://10.0.0.0/", false),
            ("", "http://a/", false),
        ] {
            assert_eq!(is_excluded(rule, &url(target)), want, "{rule} {target}");
        }
    }

    #[test]
    fn where_a_proxy_is() {
        for (text, want) in [("http://p:3128", "p:3128"), ("p:3128", "p:3128"), ("http://u:x@p/", "p")] {
            assert_eq!(parse(text).unwrap().authority, want, "{text}");
        }
        for bad in ["https://p:1", "socks5://p:1", "http://", "http://p/path", "2@http://p/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(without_user("http://u:x@p:1"), "http://***@p:1");
        assert_eq!(
            String::from_utf8(connect(&url("https://[::1]/x"), Some("Basic eA=="))).unwrap(),
            "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nProxy-Authorization: Basic eA==\r\n\r\n"
        );
    }
}
