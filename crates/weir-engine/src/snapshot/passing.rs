//! What a listener does with its connections: it speaks HTTP, passes their bytes on, or sends each one where the name
//! in its ClientHello says.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What a listener does with its connections.
#[derive(Debug)]
pub enum Serves {
    /// It speaks HTTP.
    Http,
    /// It sends each connection where the client's ClientHello says.
    Sni(Box<Names>),
    /// It passes bytes on.
    Tcp(Passing),
}

/// How bytes are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// The upstream, by index.
    pub upstream: usize,
    /// Longest silence; zero means none. `None`: the upstream's timeout for tunnels.
    pub(crate) idle: Option<Duration>,
    /// How long connecting may take. `None`: the upstream's timeout.
    pub(crate) connect: Option<Duration>,
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a listener without an address of its own, by index.
    Listener(usize),
    /// To an upstream, as bytes.
    Upstream(Passing),
}

/// The destinations of names.
#[derive(Debug, Default)]
pub struct Names {
    exact: HashMap<Box<str>, Destination>,
    /// By what follows `*.`.
    wildcards: HashMap<Box<str>, Destination>,
    /// The destination of all other connections.
    pub otherwise: Option<Destination>,
}

/// The networks whose clients a listener accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admits {
    pub(crate) allow: Vec<ipnet::IpNet>,
    pub(crate) deny: Vec<ipnet::IpNet>,
}

/// A limit on the connections of one listener, over all cores. It counts on across reloads.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit {
    pub(crate) most: usize,
    pub(crate) held: Arc<AtomicUsize>,
}

/// A place under a [`ConnectionLimit`].
pub(crate) struct HeldPlace(Arc<AtomicUsize>);

impl Names {
    /// The destinations of names in lower case, without a final dot.
    pub(crate) fn new<'a>(
        named: impl Iterator<Item = (&'a str, Destination)>,
        otherwise: Option<Destination>,
    ) -> Self {
        let mut names = Self { otherwise, ..Self::default() };
        for (name, destination) in named {
            match name.strip_prefix("*.") {
                Some(rest) => names.wildcards.insert(rest.into(), destination),
                None => names.exact.insert(name.into(), destination),
            };
        }
        names
    }

    /// The destination of a name that is listed itself or by a wildcard, the longest first.
    pub fn named(&self, name: &str) -> Option<Destination> {
        if let Some(exact) = self.exact.get(name) {
            return Some(*exact);
        }
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(found) = self.wildcards.get(parent) {
                return Some(*found);
            }
            rest = parent;
        }
        None
    }

    /// How many names are listed.
    pub fn len(&self) -> usize {
        self.exact.len() + self.wildcards.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The destination of the host in a request, which may have a port, capitals, and a final dot.
    pub(crate) fn of_host(&self, host: &[u8]) -> Option<Destination> {
        let host = str::from_utf8(host).ok()?;
        let name = host.split_once(':').map_or(host, |(name, _)| name);
        let name = name.strip_suffix('.').unwrap_or(name);
        self.named(&name.to_ascii_lowercase())
    }
}

impl Admits {
    pub(crate) fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let within = |networks: &[ipnet::IpNet]| networks.iter().any(|network| network.contains(&client));
        !within(&self.deny) && (self.allow.is_empty() || within(&self.allow))
    }
}

impl ConnectionLimit {
    /// Whether a place is free.
    pub(crate) fn has_room(&self) -> bool {
        self.held.load(Ordering::Relaxed) < self.most
    }

    /// Takes a place; `None` if all are taken.
    pub(crate) fn take(&self) -> Option<HeldPlace> {
        let place = HeldPlace(Arc::clone(&self.held)); // gives the place back when dropped
        let before = self.held.fetch_add(1, Ordering::Relaxed);
        (before < self.most).then_some(place)
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_name_wins_then_the_longest_wildcard() {
        let to = Destination::Listener;
        let named = [("a.test", to(0)), ("*.test", to(1)), ("*.b.test", to(2)), ("c.b.test", to(3))];
        let names = Names::new(named.into_iter(), None);
        for (name, expected) in [
            ("a.test", Some(0)),
            ("x.test", Some(1)),
            ("x.a.test", Some(1)),
            ("b.test", Some(1)),
            ("x.b.test", Some(2)),
            ("x.y.b.test", Some(2)),
            ("c.b.test", Some(3)),
            ("x.c.b.test", Some(2)),
            ("test", None),
            ("", None),
            ("a.test.other", None),
            ("atest", None),
        ] {
            assert_eq!(names.named(name), expected.map(to), "{name}");
        }
        for (host, expected) in [
            ("A.Test:443", Some(0)),
            ("a.test.", Some(0)),
            ("a.test.:443", Some(0)),
            ("[::1]:443", None),
            ("other", None),
        ] {
            assert_eq!(names.of_host(host.as_bytes()), expected.map(to), "{host}");
        }
        assert_eq!(names.of_host(b"\xff.test"), None);
    }

    #[test]
    fn addresses() {
        let networks = |all: &[&str]| all.iter().map(|n| n.parse().unwrap()).collect::<Vec<_>>();
        let admits = |allow: &[&str], deny: &[&str], client: &str| {
            Admits { allow: networks(allow), deny: networks(deny) }.admits(client.parse().unwrap())
        };
        assert!(admits(&[], &["10.0.0.0/8"], "192.0.2.1"));
        assert!(!admits(&[], &["10.0.0.0/8"], "::ffff:10.1.1.1"));
        assert!(admits(&["10.0.0.0/8"], &[], "10.1.1.1"));
        assert!(!admits(&["10.0.0.0/8"], &["10.1.0.0/16"], "10.1.1.1"));
        assert!(!admits(&["10.0.0.0/8"], &[], "2001:db8::1"));
    }

    #[test]
    fn places_are_given_back() {
        let limit = ConnectionLimit { most: 2, held: Arc::default() };
        let (one, two) = (limit.take(), limit.take());
        assert!(one.is_some() && two.is_some() && limit.take().is_none());
        drop(one);
        assert!(limit.take().is_some());
        drop(two);
        assert_eq!(limit.held.load(Ordering::Relaxed), 0);
    }
}
