//! Where an agent may send: patterns such as `https://*.staging.example:443`. An agent without one sends nowhere.

use std::fmt;

/// The allow list of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow(Vec<Pattern>);

/// One pattern: a scheme, a host that may begin with `*.`, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    is_tls: bool,
    host: Host,
    /// None for any.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    /// `*`.
    Any,
    /// `*.staging.example`: every name below it, at any depth, and not the name itself.
    Below(String),
    /// A name or an address.
    Exactly(String),
}

/// A place that requests go to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// `https`, `wss` or `grpcs`, and not `http`, `ws` or `grpc`.
    pub is_tls: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

const FORM: &str = "expected SCHEME://HOST:PORT, such as https://*.staging.example:443 or http://10.0.0.7:8080; \
                    HOST may be * or begin with *., PORT may be *";

impl Allow {
    /// Reads patterns.
    ///
    /// # Errors
    /// The first pattern that is none, with the expected form.
    pub fn parse(patterns: &[String]) -> Result<Self, String> {
        let all = patterns.iter().map(|text| pattern(text).ok_or_else(|| format!("--allow {text}: {FORM}")));
        Ok(Self(all.collect::<Result<_, _>>()?))
    }

    /// Whether requests may go to a place.
    pub fn allows(&self, place: &Place) -> bool {
        self.0.iter().any(|pattern| pattern.matches(place))
    }
}

impl Pattern {
    fn matches(&self, place: &Place) -> bool {
        // A final dot names the same host; other spellings of an address are not resolved here and do not match.
        let host = place.host.strip_suffix('.').unwrap_or(&place.host).to_ascii_lowercase();
        let is_host = match &self.host {
            Host::Any => true,
            Host::Below(name) => host
                .strip_suffix(name.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|label| !label.is_empty()),
            Host::Exactly(name) => *name == host,
        };
        is_host && self.is_tls == place.is_tls && self.port.is_none_or(|port| port == place.port)
    }
}

fn pattern(text: &str) -> Option<Pattern> {
    let (scheme, rest) = text.split_once("://")?;
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "grpc" | "http" | "ws" => false,
        "grpcs" | "https" | "wss" => true,
        _ => return None,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '@', '?', '#', ' ']) {
        return None;
    }
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']')?;
            (address, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = match port {
        None => Some(if is_tls { 443 } else { 80 }),
        Some("*") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    let host = if host.ends_with("*.") { host } else { host.strip_suffix('.').unwrap_or(host) };
    let host = host.to_ascii_lowercase();
    let host = match host.strip_prefix("*.") {
        _ if host == "*" => Host::Any,
        Some(below) if !below.is_empty() && !below.contains('*') => Host::Below(below.to_owned()),
        Some(_) => return None,
        None if host.is_empty() || host.contains('*') => return None,
        None => Host::Exactly(host),
    };
    Some(Pattern { is_tls, host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        let (scheme, rest) = text.split_once("://").unwrap();
        let (host, port) = rest.rsplit_once(':').unwrap();
        let host = host.trim_matches(['[', ']']).to_owned();
        Place { is_tls: scheme == "https", host, port: port.parse().unwrap() }
    }

    #[test]
    fn places_match_by_scheme_host_and_port() {
        for (rule, to, want) in [
            ("https://*.staging:443", "https://a.staging:443", true),
            ("https://*.staging:443", "https://b.a.STAGING.:443", true),
            ("https://*.staging", "https://a.staging:443", true),
            ("https://*.staging:443", "https://staging:443", false),
            ("https://*.staging:443", "https://.staging:443", false),
            ("https://*.staging:443", "https://evilstaging:443", false),
            ("https://*.staging:443", "https://a.staging.evil:443", false),
            ("https://*.staging:443", "http://a.staging:443", false),
            ("https://*.staging:443", "https://a.staging:8443", false),
            ("wss://a.staging", "https://a.staging:443", true),
            ("http://a", "http://a:80", true),
            ("http://a:*", "http://a:8080", true),
            ("http://*:*", "http://anything:1", true),
            ("http://*:*", "https://anything:1", false),
            ("http://10.0.0.7:80", "http://10.0.0.7:80", true),
            ("http://10.0.0.7:80", "http://010.0.0.7:80", false),
            ("http://[::1]:80", "http://[::1]:80", true),
            ("http://[::1]", "http://[::2]:80", false),
        ] {
            let allow = Allow::parse(&[rule.to_owned()]).unwrap();
            assert_eq!(allow.allows(&place(to)), want, "{rule} {to}");
        }
        assert!(!Allow::default().allows(&place("http://a:80")), "no pattern allows nothing");
    }

    #[test]
    fn patterns_that_are_none_are_refused() {
        for bad in [
            "",
            "*",
            "a:443",
            "ftp://a",
            "https://",
            "https://a/b",
            "https://u@a",
            "https://*a.b",
            "https://a.*",
            "https://*.",
            "https://*.*.b",
            "https://a:0x1",
            "https://a:99999",
            "https://[::1",
        ] {
            let told = Allow::parse(&[bad.to_owned()]).unwrap_err();
            assert!(told.contains("expected SCHEME://HOST:PORT"), "{bad}: {told}");
        }
        assert_eq!(place("http://[::1]:80").to_string(), "http://[::1]:80");
    }
}
