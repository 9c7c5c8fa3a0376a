//! What a route captures of a request: from its path, and from its host by a regex.

use std::borrow::Cow;

use super::compiled::Route;
use super::host::{self, HostBuffer, HostPattern};
use super::pattern::{Case, Pattern};

/// The captures of a route in one request, read on demand.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    route: &'a Route,
    path: &'a [u8],
    host: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// `path` is the canonical path that the route matched, `host` the authority as received.
    pub(super) const fn new(route: &'a Route, path: &'a [u8], host: &'a [u8]) -> Self {
        Self { route, path, host }
    }

    /// What `name` captured; `None` if neither path nor host captured it.
    pub fn get(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let of_path = self.route.pattern.captures(self.path).and_then(|captures| captures.get(name));
        of_path.map(Cow::Borrowed).or_else(|| self.of_host(name))
    }

    /// All names with their texts: those of the path, then those of the host.
    pub fn all(&self) -> Vec<(&'a str, Cow<'a, [u8]>)> {
        let captures = self.route.pattern.captures(self.path).unwrap_or_default();
        let of_path = captures.iter().map(|(name, text)| (name, Cow::Borrowed(text)));
        let mut all: Vec<_> = of_path.collect();
        for host in self.route.hosts.iter() {
            let HostPattern::Regex(regex) = host else { continue };
            for name in
                regex.names().filter(|name| all.iter().all(|(known, _)| known != name)).collect::<Vec<_>>()
            {
                all.extend(self.of_host(name).map(|text| (name, text)));
            }
        }
        all
    }

    /// Copied, because a host is compared, and so captured, in lower case.
    fn of_host(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        if !self.route.hosts.iter().any(|host| matches!(host, HostPattern::Regex(_))) {
            return None;
        }
        let mut buffer = HostBuffer::new();
        let host = host::normalize(self.host, &mut buffer);
        let HostPattern::Regex(regex) = self.route.host_for(host)? else { return None };
        Some(Cow::Owned(regex.capture(host, name)?.to_vec()))
    }
}

/// The names that a route with these hosts and this path captures, each once. Malformed ones capture nothing; `None` if
/// the path is malformed.
pub fn capture_names<'h>(
    hosts: impl IntoIterator<Item = &'h str>,
    path: &str,
    case: Case,
) -> Option<Vec<String>> {
    let pattern = Pattern::parse(path, case).ok()?;
    let mut names: Vec<String> = pattern.capture_names().into_iter().map(str::to_owned).collect();
    for host in hosts.into_iter().filter(|host| host.starts_with('~')) {
        let Ok(HostPattern::Regex(regex)) = HostPattern::parse(host) else { continue };
        for name in regex.names() {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    Some(names)
}
