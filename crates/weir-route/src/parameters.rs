//! What a route captures of a request: from its path, and from its host by a regex.

use std::borrow::Cow;

use super::host::{self, HostBuffer, HostPattern};
use super::pattern::{Case, Pattern};

/// The captures of a route in one request, read on demand.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// The route's path that matched.
    pattern: &'a Pattern,
    /// Its hosts.
    hosts: &'a [HostPattern],
    path: &'a [u8],
    host: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// `path` is the canonical path that `pattern` matches, `host` the authority as received.
    pub(super) const fn new(
        pattern: &'a Pattern,
        hosts: &'a [HostPattern],
        path: &'a [u8],
        host: &'a [u8],
    ) -> Self {
        Self { pattern, hosts, path, host }
    }

    /// What `name` captured; `None` if neither path nor host captured it.
    pub fn get(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let of_path = self.pattern.captures(self.path).and_then(|captures| captures.get(name));
        of_path.map(Cow::Borrowed).or_else(|| self.of_host(name))
    }

    /// All names with their texts: those of the path, then those of the host.
    pub fn all(&self) -> Vec<(&'a str, Cow<'a, [u8]>)> {
        let captures = self.pattern.captures(self.path).unwrap_or_default();
        let mut all: Vec<_> = captures.iter().map(|(name, text)| (name, Cow::Borrowed(text))).collect();
        for name in self.hosts.iter().flat_map(HostPattern::names) {
            if all.iter().all(|(known, _)| *known != name) {
                all.extend(self.of_host(name).map(|text| (name, text)));
            }
        }
        all
    }

    /// Copied, because a host is compared, and so captured, in lower case.
    fn of_host(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        if !self.hosts.iter().any(|host| host.names().any(|own| own == name)) {
            return None;
        }
        let mut buffer = HostBuffer::new();
        let host = host::normalize(self.host, &mut buffer);
        let HostPattern::Regex(regex) = host::best(self.hosts, host)? else { return None };
        Some(Cow::Owned(regex.capture(host, name)?.to_vec()))
    }
}

/// The names that a route with these hosts and paths captures, each once. Malformed hosts capture nothing; `None` if a path
/// is malformed.
pub fn capture_names<'t>(
    hosts: impl IntoIterator<Item = &'t str>,
    paths: impl IntoIterator<Item = &'t str>,
    case: Case,
) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    for path in paths {
        Pattern::parse(path, case).ok()?.capture_names().into_iter().for_each(&mut add);
    }
    for host in hosts.into_iter().filter(|host| host.starts_with('~')) {
        let Ok(host) = HostPattern::parse(host) else { continue };
        host.names().for_each(&mut add);
    }
    Some(names)
}
