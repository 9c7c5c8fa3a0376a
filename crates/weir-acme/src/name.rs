//! The name of a certificate, which becomes an identifier in orders, a folder in the storage and a label in reports.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest host name (RFC 1035 §2.3.4), without the final dot.
const LONGEST: usize = 253;

/// Longest label between two dots.
const LONGEST_LABEL: usize = 63;

/// The name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// An address (RFC 8738).
    Address(IpAddr),
    /// A host, in lower case.
    Host(String),
    /// All direct subdomains of this host.
    Wildcard(String),
}

/// Why a text is not a valid certificate name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoName(&'static str);

impl Name {
    /// Type and value of the identifier in an order (RFC 8555 §7.1.3, RFC 8738 §3).
    pub(crate) fn identifier(&self) -> (&'static str, String) {
        let kind = if matches!(self, Self::Address(_)) { "ip" } else { "dns" };
        (kind, self.to_string())
    }

    /// Its folder in the storage. No two names share a folder, and no folder is outside the storage.
    pub(crate) fn folder(&self) -> String {
        match self {
            Self::Address(address) => address.to_string(),
            Self::Host(host) => host.clone(),
            Self::Wildcard(base) => format!("_.{base}"), // no host contains a `_`
        }
    }

    /// The SNI that a certificate authority sends in a proof handshake (RFC 8737 §3, RFC 8738 §6).
    pub(crate) fn server_name(&self) -> String {
        match self {
            Self::Host(host) | Self::Wildcard(host) => host.clone(),
            Self::Address(IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Self::Address(IpAddr::V6(address)) => {
                let digits = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
                let mut name: String = digits.map(|digit| format!("{digit:x}.")).collect();
                name.push_str("ip6.arpa");
                name
            }
        }
    }

    /// The TXT record that proves control over it (RFC 8555 §8.4); `None` for an address.
    pub(crate) fn record(&self) -> Option<String> {
        match self {
            Self::Address(_) => None,
            Self::Host(host) | Self::Wildcard(host) => Some(format!("_acme-challenge.{host}")),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Host(host) => f.write_str(host),
            Self::Wildcard(base) => write!(f, "*.{base}"),
        }
    }
}

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        let lower = text.to_ascii_lowercase();
        match lower.strip_prefix("*.") {
            Some(base) if !base.contains('.') => Err(NoName("a wildcard needs two labels after it")),
            Some(base) => host(base).map(Self::Wildcard),
            None => host(&lower).map(Self::Host),
        }
    }
}

fn host(text: &str) -> Result<String, NoName> {
    if !text.is_ascii() {
        return Err(NoName("it holds letters that are not ASCII; write it in its form for DNS (`xn--…`)"));
    }
    if text.contains(['/', ':', '@']) {
        return Err(NoName("only the name is written, without scheme, port or path"));
    }
    if text.is_empty() || text.len() > LONGEST {
        return Err(NoName("a name has 1 to 253 letters"));
    }
    for label in text.split('.') {
        let good = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if label.is_empty() || label.len() > LONGEST_LABEL {
            return Err(NoName("each part between two dots has 1 to 63 letters"));
        }
        if !good || label.starts_with('-') || label.ends_with('-') {
            return Err(NoName("the parts of a name hold letters, digits, and `-` between them"));
        }
    }
    let last = text.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NoName("it ends with a number, so it is neither a name nor an address"));
    }
    Ok(text.to_owned())
}

impl fmt::Display for NoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NoName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for (text, identifier, folder, server_name) in [
            ("API.example.com", ("dns", "api.example.com"), "api.example.com", "api.example.com"),
            ("*.example.com", ("dns", "*.example.com"), "_.example.com", "example.com"),
            ("localhost", ("dns", "localhost"), "localhost", "localhost"),
            ("203.0.113.7", ("ip", "203.0.113.7"), "203.0.113.7", "7.113.0.203.in-addr.arpa"),
        ] {
            let name: Name = text.parse().unwrap();
            let (kind, value) = name.identifier();
            assert_eq!((kind, value.as_str()), identifier, "{text}");
            assert_eq!(
                (name.folder().as_str(), name.server_name().as_str()),
                (folder, server_name),
                "{text}"
            );
        }
        let six: Name = "2001:db8::1".parse().unwrap();
        let zeros = "0.".repeat(23);
        assert_eq!(six.server_name(), format!("1.{zeros}8.b.d.0.1.0.0.2.ip6.arpa"));
        assert_eq!(six.record(), None);
        let wildcard: Name = "*.example.com".parse().unwrap();
        assert_eq!(wildcard.record().as_deref(), Some("_acme-challenge.example.com"));
    }

    #[test]
    fn what_is_no_name_says_why() {
        for (text, why) in [
            ("", "1 to 253"),
            ("https://example.com", "without scheme"),
            ("example.com:443", "without scheme"),
            ("../../etc", "without scheme"),
            ("..", "between two dots"),
            ("a..b", "between two dots"),
            ("example.com.", "between two dots"),
            ("-a.test", "letters, digits"),
            ("a_b.test", "letters, digits"),
            ("*.com", "two labels"),
            ("a.*.test", "letters, digits"),
            ("bücher.example", "xn--"),
            ("10.0.0.256", "number"),
        ] {
            let refused = text.parse::<Name>().unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        assert!("a".repeat(254).parse::<Name>().is_err());
        assert!(format!("{}.test", "a".repeat(64)).parse::<Name>().is_err());
    }
}
