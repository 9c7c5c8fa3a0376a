//! Origins as written in a config, and matching the origin of a request.

use std::collections::HashMap;
use weir_filter::filter::Build;

/// The origins that may call.
pub(super) struct Origins {
    /// Whether every page may call.
    pub(super) any: bool,
    listed: Vec<Box<[u8]>>,
    places: HashMap<Box<[u8]>, usize, foldhash::fast::RandomState>,
    patterns: Vec<Pattern>,
}

/// An origin with a wildcard.
struct Pattern {
    /// `https://`
    scheme: String,
    /// The host, or with `subdomains` its suffix `.example.com`.
    host: String,
    subdomains: bool,
    /// `:8443`, or empty for the scheme's default; `None` for any.
    port: Option<String>,
}

/// One origin as written.
enum Written {
    Any,
    Exact(String),
    Pattern(Pattern),
}

/// Names below which outsiders cannot register domains, so every subdomain belongs to the operator.
const PRIVATE: [&str; 5] = ["internal", "lan", "local", "localhost", "test"];

// === impl Origins ===

impl Origins {
    pub(super) fn read(written: &[String], credentials: bool, build: &mut Build<'_>) -> Self {
        let mut origins =
            Self { any: false, listed: Vec::new(), places: HashMap::default(), patterns: Vec::new() };
        if written.is_empty() {
            let hint = "write origins: [ \"https://app.example.com\" ]";
            build.refuse("origins", "is empty: no page could call", Some(hint.into()));
        }
        for (i, text) in written.iter().enumerate() {
            let field = format!("origins[{i}]");
            if credentials && matches!(text.as_str(), "*" | "null") {
                let whose = if text == "*" { "any page" } else { "any sandboxed frame" };
                let message = format!(
                    "`{text}` cannot be combined with credentials: true: {whose} could act as its visitor"
                );
                build.refuse(&field, message, Some("list the origins, or leave `credentials` out".into()));
                continue;
            }
            match parse(text) {
                Ok(Written::Any) => origins.any = true,
                Ok(Written::Pattern(pattern)) => origins.patterns.push(pattern),
                Ok(Written::Exact(origin)) => {
                    let origin: Box<[u8]> = origin.into_bytes().into();
                    if origins.places.insert(origin.clone(), origins.listed.len()).is_some() {
                        build.refuse(&field, format!("`{text}` is listed twice"), None);
                    }
                    origins.listed.push(origin);
                }
                Err((message, hint)) => {
                    build.refuse(&field, format!("`{text}` {message}"), Some(hint.into()))
                }
            }
        }
        if origins.any && written.len() > 1 {
            let hint = Some("write origins: [ \"*\" ], or leave `*` out".into());
            build.refuse("origins", "`*` already includes the other origins", hint);
        }
        origins
    }

    /// The index of a listed origin.
    pub(super) fn listed(&self, origin: &[u8]) -> Option<usize> {
        self.places.get(origin).copied()
    }

    /// The origin at an index.
    pub(super) fn at(&self, place: usize) -> Option<&[u8]> {
        self.listed.get(place).map(|origin| &**origin)
    }

    pub(super) fn has_pattern_for(&self, origin: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(origin))
    }
}

impl Pattern {
    /// Browsers write each origin in exactly one way (HTML, "ASCII serialisation of an origin"): lower case, no
    /// default port.
    fn matches(&self, origin: &[u8]) -> bool {
        let Some(rest) = origin.strip_prefix(self.scheme.as_bytes()) else { return false };
        let (host, port) = split_port(rest);
        let port_fits = match &self.port {
            Some(port_written) => port == port_written.as_bytes(),
            None => {
                port.is_empty()
                    || (2..=6).contains(&port.len()) && port.iter().skip(1).all(u8::is_ascii_digit)
            }
        };
        let host_fits = match host.strip_suffix(self.host.as_bytes()) {
            Some(front) if self.subdomains => is_labels(front),
            front => front == Some(b"") && !self.subdomains,
        };
        port_fits && host_fits
    }
}

/// Whether this can precede a domain: non-empty labels separated by dots.
fn is_labels(front: &[u8]) -> bool {
    let letter = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    front.split(|&b| b == b'.').all(|label| !label.is_empty() && label.iter().all(letter))
}

/// Splits `host:8443`; the port keeps its colon.
fn split_port(rest: &[u8]) -> (&[u8], &[u8]) {
    let from = rest.iter().rposition(|&b| b == b']').unwrap_or(0);
    let colon = rest.iter().skip(from).position(|&b| b == b':').map_or(rest.len(), |at| from + at);
    rest.split_at(colon)
}

type Refused = (String, String);

fn refused<T>(message: &str, hint: impl Into<String>) -> Result<T, Refused> {
    Err((message.to_owned(), hint.into()))
}

fn parse(text: &str) -> Result<Written, Refused> {
    match text {
        "*" => return Ok(Written::Any),
        "null" => return Ok(Written::Exact("null".to_owned())),
        _ => {}
    }
    if !text.is_ascii() {
        return refused("holds a letter that is not ASCII", "write the name as browsers send it: xn--…");
    }
    let lower = text.to_ascii_lowercase();
    let Some((scheme, rest)) = lower.split_once("://") else {
        return refused("is not an origin: it has no scheme", format!("write https://{lower}"));
    };
    let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if !scheme.bytes().all(letters) || !scheme.starts_with(|c: char| c.is_ascii_lowercase()) {
        return refused("is not an origin: its scheme is malformed", "write https://app.example.com");
    }
    if let Some(end) = rest.find(['/', '?', '#']) {
        let hint = format!("write {scheme}://{}", rest.get(..end).unwrap_or_default());
        return refused("has a path, which no origin has", hint);
    }
    let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
        Some((host, port)) => (host, parse_port(scheme, host, port)?),
        None => (rest, Some(String::new())),
    };
    let subdomains = host.strip_prefix("*.");
    check_host(scheme, host, subdomains)?;
    match (subdomains, &port) {
        (None, Some(_)) => Ok(Written::Exact(lower)),
        _ => Ok(Written::Pattern(Pattern {
            scheme: format!("{scheme}://"),
            host: subdomains.map_or_else(|| host.to_owned(), |domain| format!(".{domain}")),
            subdomains: subdomains.is_some(),
            port,
        })),
    }
}

/// The port with its colon, `None` for any.
fn parse_port(scheme: &str, host: &str, port: &str) -> Result<Option<String>, Refused> {
    match (scheme, port) {
        (_, "*") => Ok(None),
        ("http", "80") | ("https", "443") => {
            refused("names the default port, which browsers leave out", format!("write {scheme}://{host}"))
        }
        _ if port.parse::<u16>().is_ok_and(|n| n > 0) && !port.starts_with(['0', '+']) => {
            Ok(Some(format!(":{port}")))
        }
        _ => refused("has no sound port", format!("write {scheme}://{host}:8443, or :* for any port")),
    }
}

fn check_host(scheme: &str, host: &str, subdomains: Option<&str>) -> Result<(), Refused> {
    let name = subdomains.unwrap_or(host);
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    if bracketed.is_some_and(|ip| subdomains.is_none() && ip.parse::<std::net::Ipv6Addr>().is_ok()) {
        return Ok(());
    }
    if name.contains('*') {
        let hint = format!("write {scheme}://*.example.com, or list the origins");
        return refused("has a `*` that is not the whole first label", hint);
    }
    if name.is_empty() || !name.bytes().all(letter) || name.split('.').any(str::is_empty) {
        return refused(
            "is not an origin: its host is malformed",
            format!("write {scheme}://app.example.com"),
        );
    }
    if subdomains.is_some() && !name.contains('.') && !PRIVATE.contains(&name) {
        let hint = format!("write {scheme}://*.example.{name}");
        return refused("is every site of a top-level domain", hint);
    }
    Ok(())
}
