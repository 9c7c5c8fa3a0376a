//! Discovery: the instances of a service that a registry lists, and those of them that an upstream uses. No I/O,
//! threads or clocks.
//!
//! ```text
//!   etcd    keys of kratos, sponge or go-zero    ─► etcd::Table ──┐
//!   Consul  /v1/health/service, blocking queries ─► consul ───────┼─► Listing ─► Book ─► publish, keep, wait
//!   Docker  containers and their labels          ─► docker ───────┤
//!   Kubernetes  EndpointSlices of a Service      ─► kubernetes ───┤
//!   DNS     SRV records                          ─► srv ──────────┘
//! ```
//!
//! *Layout:* [`Instance`] is one listed instance; [`Listing`] contains all of them, including unusable ones. `kratos`
//! parses the JSON that kratos and sponge register. [`Book`] decides what an answer, or a failed request, does.
//!
//! *Architecture Invariant:* this crate knows neither the gateway nor a socket. Anyone who can write to a registry
//! controls its content, so every text and count has a limit.

pub mod book;
pub mod consul;
pub mod docker;
pub mod etcd;
pub mod kratos;
pub mod kubernetes;
pub mod srv;

pub use book::{Book, Verdict};

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Most instances of one upstream. More are left out, and `/status` reports that.
pub const INSTANCES: usize = 1_000;

/// Longest description of one instance that we read, in bytes.
pub const VALUE_BYTES: usize = 64 << 10;

/// Most left-out instances listed with a reason; the others are only counted.
const NAMED: usize = 8;

/// Longest text from a registry that we keep, in bytes.
const TEXT_BYTES: usize = 200;

/// The weight of an instance without one when others have one; the kratos default.
const KRATOS_WEIGHT: u32 = 100;

/// Largest weight, as in a config.
const MOST_WEIGHT: u32 = 65_535;

/// One instance of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id in the registry.
    pub id: String,
    /// Its reported version; empty if it reports none.
    pub version: String,
    /// An address, or a name in lower case.
    pub host: String,
    /// Its port; never 0.
    pub port: u16,
    /// Its share among the instances, 1 to 65535.
    pub weight: u32,
    /// Its zone.
    pub zone: Option<String>,
    /// Lower priorities are used first.
    pub priority: u8,
}

/// The instances that an upstream uses, and which of their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// `http` or `grpc`: instances of kratos list an address for each.
    pub scheme: String,
    /// Whether the address must use TLS; otherwise it must not.
    pub tls: bool,
    /// Use only this version. `None` for all.
    pub version: Option<String>,
}

/// The contents of a registry for an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The usable instances, sorted, each address once.
    pub instances: Vec<Instance>,
    /// The first unusable ones.
    pub left_out: Vec<LeftOut>,
    /// The number of unusable ones.
    pub unusable: usize,
}

/// An unusable instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its id in the registry.
    pub id: String,
    /// Why.
    pub why: String,
}

/// The effect of a line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The list changed.
    Changed,
    /// The registry no longer has the history that the watch asked for, with the reason: everything must be read again.
    Expired(String),
    /// Everything must be read again, with the reason.
    Reread(String),
    /// Nothing changed.
    Same,
}

/// A parsed instance, before comparison with the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) instance: Instance,
    /// Its own weight, if it names one.
    pub(crate) weight: Option<u32>,
    /// When it was registered. Of two instances at the same address, it tells which one still runs.
    pub(crate) since: u64,
}

impl Listing {
    /// Sorts and deduplicates instances. If some have a weight, the others get `unsaid`. Of two instances at one
    /// address the newer wins: the older was killed, and its lease has not expired yet.
    pub(crate) fn of<'a>(
        all: impl Iterator<Item = (&'a str, &'a Result<Found, String>)>,
        unsaid: u32,
    ) -> Self {
        let mut listing = Self::default();
        let mut found: BTreeMap<(String, u16), &Found> = BTreeMap::new();
        for (id, one) in all {
            match one {
                Ok(one) => {
                    let at = (one.instance.host.clone(), one.instance.port);
                    if found.len() >= INSTANCES && !found.contains_key(&at) {
                        listing.leave_out(id, too_many());
                    } else {
                        let known = found.entry(at).or_insert(one);
                        if known.since < one.since {
                            *known = one;
                        }
                    }
                }
                Err(why) => listing.leave_out(id, why.clone()),
            }
        }
        let weighted = found.values().any(|one| one.weight.is_some());
        listing.instances = found
            .into_values()
            .map(|one| Instance {
                weight: one.weight.unwrap_or(if weighted { unsaid } else { 1 }),
                ..one.instance.clone()
            })
            .collect();
        listing
    }

    /// Counts an unusable instance, and lists it if it is among the first.
    pub(crate) fn leave_out(&mut self, id: &str, why: String) {
        self.unusable += 1;
        if self.left_out.len() < NAMED {
            self.left_out.push(LeftOut { id: short(id), why });
        }
    }
}

/// Why instances beyond the limit are left out.
pub(crate) fn too_many() -> String {
    format!("there are more than {INSTANCES} instances")
}

/// Parses a weight; `None` if it is invalid.
pub(crate) fn weight(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|weight| (1..=MOST_WEIGHT).contains(weight))
}

/// Makes a text safe to keep and show: no control characters, limited length.
pub(crate) fn short(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars() {
        if kept.len() + c.len_utf8() > TEXT_BYTES {
            kept.push('…');
            break;
        }
        kept.push(if c.is_control() { '\u{fffd}' } else { c });
    }
    kept
}

/// Parses `host:port`, such as `10.0.0.7:80`, `[::1]:80` or `orders.internal:80`.
///
/// # Errors
/// What is wrong with it.
pub fn place(text: &str) -> Result<(String, u16), String> {
    let wrong = |what: &str| Err(format!("`{}` {what}", short(text)));
    let Some((host, port)) = text.rsplit_once(':') else { return wrong("is not a host and port") };
    let Some(port) = port.parse().ok().filter(|port| *port != 0) else {
        return wrong("has no port from 1 to 65535");
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bare.is_none() && host.contains(':') {
        return wrong("is not a host and port; an IPv6 address needs brackets");
    }
    host_of(bare.unwrap_or(host)).map(|host| (host, port)).or_else(wrong)
}

/// A host from a registry: an address or a name.
pub(crate) fn host_of(host: &str) -> Result<String, &'static str> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return if address.is_unspecified() || address.is_multicast() {
            Err("is not a reachable address: the instance must register one that others can reach")
        } else {
            Ok(address.to_string())
        };
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // Digits and dots alone would be a mistyped address.
    let is_name =
        host.len() <= 253 && host.split('.').all(label) && host.bytes().any(|b| b.is_ascii_alphabetic());
    if is_name {
        Ok(host.to_ascii_lowercase())
    } else {
        Err("has a host that is neither an address nor a name")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn grpc() -> Choice {
        Choice { scheme: "grpc".to_owned(), ..Choice::default() }
    }

    /// The addresses of a listing, with their weights.
    pub(crate) fn seen(listing: &Listing) -> Vec<(String, u32)> {
        listing.instances.iter().map(|i| (format!("{}:{}", i.host, i.port), i.weight)).collect()
    }

    fn found(host: &str, weight: Option<u32>, since: u64) -> Result<Found, String> {
        let (id, version) = (since.to_string(), String::new());
        let instance =
            Instance { id, version, host: host.to_owned(), port: 80, weight: 1, zone: None, priority: 0 };
        Ok(Found { instance, weight, since })
    }

    #[test]
    fn hosts_and_ports() {
        for (text, host, port) in [
            ("10.0.0.7:80", "10.0.0.7", 80),
            ("[::1]:8000", "::1", 8000),
            ("Orders.Internal.:1", "orders.internal", 1),
            ("my_service:65535", "my_service", 65535),
        ] {
            assert_eq!(place(text), Ok((host.to_owned(), port)), "{text}");
        }
        for text in [
            "",
            ":80",
            "10.0.0.7",
            "10.0.0.7:0",
            "10.0.0.7:70000",
            "::1:80",
            "0.0.0.0:80",
            "[::]:80",
            "256.1.1.1:80",
            "a b:80",
            "-a:80",
            "a/../b:80",
            "user@host:80",
            "224.0.0.1:80",
        ] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_those_that_dns_can_have() {
        let longest = "a".repeat(63);
        assert_eq!(host_of(&format!("{longest}.test")), Ok(format!("{longest}.test")));
        let whole = [longest.as_str(); 4].join(".");
        for host in ["a..b", "a-", &format!("{longest}a.test"), &whole, "1.2.3.4.5"] {
            assert!(host_of(host).is_err(), "{host}");
        }
        assert!(host_of(&whole[2..]).is_ok(), "253 bytes are the most");
    }

    #[test]
    fn one_address_is_one_instance_and_the_newer_one_counts() {
        let all =
            [found("b", None, 1), found("a", Some(7), 2), found("b", Some(5), 9), found("b", Some(6), 3)];
        let listing = Listing::of(all.iter().map(|one| ("x", one)), KRATOS_WEIGHT);
        assert_eq!(seen(&listing), [("a:80".to_owned(), 7), ("b:80".to_owned(), 5)]);
        assert_eq!(listing.instances[1].id, "9");
        // Of two equally old instances the first stays, so that the list does not change with each answer.
        let all = [found("a", Some(1), 5), found("a", Some(2), 5)];
        assert_eq!(seen(&Listing::of(all.iter().map(|one| ("x", one)), 1)), [("a:80".to_owned(), 1)]);
    }

    #[test]
    fn weights_that_are_not_said() {
        let plain = [found("a", None, 1), found("b", None, 1)];
        let of = |all: &[Result<Found, String>]| {
            seen(&Listing::of(all.iter().map(|one| ("x", one)), KRATOS_WEIGHT))
                .into_iter()
                .map(|(_, w)| w)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&plain), [1, 1]);
        assert_eq!(of(&[found("a", Some(50), 1), found("b", None, 1)]), [50, 100]);
        assert_eq!((weight("0"), weight("65536"), weight(" 3 "), weight("x")), (None, None, Some(3), None));
    }

    #[test]
    fn there_is_a_limit() {
        let all: Vec<_> = (0..INSTANCES as u64 + 3).map(|n| found(&format!("h{n}"), None, n)).collect();
        let listing = Listing::of(all.iter().map(|one| ("x", one)), 1);
        assert_eq!((listing.instances.len(), listing.unusable, listing.left_out.len()), (INSTANCES, 3, 3));
        assert_eq!(listing.left_out[0].why, "there are more than 1000 instances");
        let bad: Vec<_> = (0..50).map(|_| Err("why".to_owned())).collect();
        let listing = Listing::of(bad.iter().map(|one| ("x", one)), 1);
        assert_eq!((listing.unusable, listing.left_out.len()), (50, NAMED));
    }

    #[test]
    fn texts_are_cut() {
        assert_eq!(short("a\u{1b}[2J"), "a\u{fffd}[2J");
        let longest = "ä".repeat(TEXT_BYTES / 2);
        assert_eq!(short(&longest), longest);
        assert_eq!(short(&format!("{longest}ä")), format!("{longest}…"));
    }
}
