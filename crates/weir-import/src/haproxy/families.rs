//! Listeners of both address families at one port.
//!
//! HAProxy binds `0.0.0.0:80` and `[::]:80` separately, and the kernel gives IPv4 clients to the first, even if the
//! second accepts them too (`v4v6`). Weir's `[::]:80` serves both families, so `weir check` refuses a config with both.

use super::bind::{Made, binds};
use super::context::Cx;
use super::model::Proxy;
use crate::config::Listener;
use crate::shared::families::{any_ipv6_port, left_out};
use std::net::SocketAddrV4;

/// A port at which a frontend listens for IPv4.
pub(super) struct Ipv4Port<'a> {
    port: u16,
    frontend: &'a str,
    /// On all addresses, not on one.
    is_on_all: bool,
}

fn ipv4_port(address: &str) -> Option<u16> {
    address.strip_prefix("0.0.0.0:")?.parse().ok()
}

/// The ports at which a proxy listens for IPv4 on all addresses.
pub(super) fn ipv4_ports(proxy: &Proxy<'_>) -> Vec<u16> {
    ports(proxy, ipv4_port)
}

fn ports(proxy: &Proxy<'_>, of: fn(&str) -> Option<u16>) -> Vec<u16> {
    let addresses = binds(proxy).into_iter().flat_map(|bind| bind.addresses);
    addresses.filter_map(|address| of(&address)).collect()
}

/// Joins each frontend for IPv6 with the one for IPv4 at the same port, if both have the same lines.
pub(super) fn join_frontends<'a>(cx: &mut Cx<'a, '_, '_>, fronts: &[&Proxy<'a>]) -> Vec<Proxy<'a>> {
    let mut all: Vec<Proxy<'a>> = fronts.iter().map(|proxy| (*proxy).clone()).collect();
    let mut at = 0;
    while at < all.len() {
        let ipv6 = ports(&all[at], any_ipv6_port);
        let is_twin = |other: &Proxy<'a>| {
            ipv4_ports(other).iter().any(|port| ipv6.contains(port)) && has_same_lines(other, &all[at])
        };
        let Some(twin) = (0..all.len()).find(|other| *other != at && is_twin(&all[*other])) else {
            at += 1;
            continue;
        };
        let gone = all.remove(at);
        let twin = &mut all[if twin > at { twin - 1 } else { twin }];
        let head = gone.section.head.piece;
        let why =
            format!("joined with `{}`, which has the same lines: they share limits and counters", twin.name);
        cx.ledger.changed(head, why);
        for line in gone.lines.iter().skip(gone.inherited).filter(|line| line.key() != "bind") {
            cx.ledger.by_itself(line.piece, format!("as in `{}`", twin.name));
        }
        twin.lines.extend(gone.all("bind"));
    }
    // Of one address, too: left to `[::]`, its clients would get the lines of that frontend.
    let any_ipv4 = |address: &str| Some(address.parse::<SocketAddrV4>().ok()?.port());
    let ports_of = |proxy: &Proxy<'a>| {
        let (frontend, on_all) = (proxy.name, ipv4_ports(proxy));
        let ports = ports(proxy, any_ipv4).into_iter();
        ports.map(move |port| Ipv4Port { port, frontend, is_on_all: on_all.contains(&port) })
    };
    cx.ipv4_ports = all.iter().flat_map(ports_of).collect();
    all
}

/// Whether two frontends have the same lines in the same order, except for `bind`, and no line but `log-format` reads
/// the name of its frontend (`fe_name`, `%f`).
fn has_same_lines(a: &Proxy<'_>, b: &Proxy<'_>) -> bool {
    fn lines<'p>(proxy: &'p Proxy<'_>) -> impl Iterator<Item = &'p [String]> {
        proxy.lines.iter().filter(|line| line.key() != "bind").map(|line| &*line.words)
    }
    let is_log = |words: &[String]| words.first().is_some_and(|key| key.starts_with("log-format"));
    let reads_frontend =
        |words: &[String]| words.iter().any(|word| word.contains("fe_") || word.contains("%f"));
    a.kind == "frontend"
        && b.kind == "frontend"
        && lines(a).eq(lines(b))
        && !lines(a).any(|words| !is_log(words) && reads_frontend(words))
}

/// Joins `0.0.0.0:80` and `[::]:80` of one proxy into `[::]:80` if their settings are the same. Otherwise, or if
/// another `bind` has IPv4 at the port, refuses `[::]:80`, because Weir's would serve IPv4 too.
pub(super) fn join_listeners(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, made: &mut Vec<Made<'_>>) {
    let on_both = |listener: &Listener| {
        let port = ipv4_port(listener.address.as_deref()?)?;
        Some(Listener { address: Some(format!("[::]:{port}")), ..listener.clone() })
    };
    let wanted = made.iter().filter_map(|made| on_both(&made.listener));
    let joined: Vec<Listener> =
        wanted.filter(|both| made.iter().any(|made| made.listener == *both)).collect();
    made.retain(|made| !joined.contains(&made.listener));
    for made in &mut *made {
        if let Some(both) = on_both(&made.listener).filter(|both| joined.contains(both)) {
            made.listener = both;
        }
    }
    let is_joined = |listener: &Listener| joined.contains(listener);
    made.retain(|made| {
        let port = made.listener.address.as_deref().and_then(any_ipv6_port).filter(|_| !is_joined(&made.listener));
        let Some(port) = port else { return true };
        let Some(other) = cx.ipv4_ports.iter().find(|known| known.port == port) else {
            if made.line.has(2, "v6only") {
                let why = "HAProxy takes IPv6 only here; Weir's listener takes clients of IPv4 too";
                cx.ledger.changed(made.line.piece, why);
            }
            return true;
        };
        let whose = match (other.frontend == proxy.name, other.is_on_all) {
            (true, true) => "its settings differ from those of IPv4 at this port".to_owned(),
            (true, false) => "its frontend has one address of IPv4 at this port, too".to_owned(),
            (false, _) => format!("`{}` serves IPv4 at this port, with other lines", other.frontend),
        };
        let clients = if other.is_on_all { "IPv6 clients" } else { "its clients" };
        let why = left_out(&whose, &format!("[::]:{port}"), clients);
        let nearest = "use the same lines for IPv4 and IPv6 and import again, or bind an address of the machine, such \
                       as `[2001:db8::1]:80`";
        cx.ledger.refused(made.line.piece, why, nearest);
        false
    });
}
