//! Which listener receives a request if none is named: the one that a client of its URL reaches.

use std::net::IpAddr;
use std::sync::Arc;
use weir_engine::snapshot::{Destination as Sent, Listener, Serves};
use weir_wire::listen::Address;

/// The parts of a URL that decide where a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Destination<'a> {
    scheme: &'a str,
    /// Whether the scheme uses TLS.
    tls: bool,
    /// A name, or an address without brackets.
    host: &'a str,
    port: u16,
    /// Whether the URL names the port; otherwise it is the scheme's.
    port_is_written: bool,
}

/// The facts about a listener that the choice depends on.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    ip: IpAddr,
    port: u16,
    tls: bool,
}

/// The index of the listener that a client of this URL reaches, and the reason if there was a choice.
///
/// The port decides; among listeners with that port, an address in the URL, then TLS. If no listener has the port (a
/// load balancer may translate it), the first one whose TLS matches the scheme is used. A bare path goes to the
/// config's first listener.
pub(super) fn choose<'a>(
    listeners: impl Iterator<Item = &'a Listener>,
    url: &str,
) -> (usize, Option<String>) {
    let all: Vec<&Listener> = listeners.collect();
    let host = Destination::of(url).map(|to| to.host.to_ascii_lowercase()).unwrap_or_default();
    let served = all.iter().enumerate().filter_map(|(index, listener)| {
        let serving = match &listener.serves {
            Serves::Http => index,
            Serves::Sni(names) => match names.named(&host).or(names.otherwise)? {
                Sent::Listener(inner) => inner,
                Sent::Upstream(_) => return None,
            },
            Serves::Tcp(_) => return None,
        };
        let tls = all.get(serving)?.tls.is_some();
        let candidate = match &listener.address {
            Some(Address::Tcp(at)) => Some(Candidate { ip: at.ip(), port: at.port(), tls }),
            Some(Address::Udp(_) | Address::Unix(_)) | None => None,
        };
        Some((candidate, serving))
    });
    let (candidates, serving): (Vec<_>, Vec<_>) = served.unzip();
    let (chosen, why) = among(&candidates, url);
    (serving.get(chosen).copied().unwrap_or_default(), why)
}

/// What happens to a connection for this URL if nothing of it is served as HTTP: the name of the listener, and of the
/// upstream that gets its bytes.
pub(super) fn passed_on<'a>(listeners: &'a [Arc<Listener>], url: &str) -> Option<(&'a str, usize)> {
    let to = Destination::of(url)?;
    let host = to.host.to_ascii_lowercase();
    listeners.iter().find_map(|listener| {
        let Some(Address::Tcp(at)) = &listener.address else { return None };
        if at.port() != to.port {
            return None;
        }
        let passing = match &listener.serves {
            Serves::Http => return None,
            Serves::Sni(names) => match names.named(&host).or(names.otherwise)? {
                Sent::Upstream(passing) => passing,
                Sent::Listener(_) => return None,
            },
            Serves::Tcp(passing) => *passing,
        };
        Some((&*listener.name, passing.upstream))
    })
}

fn among(candidates: &[Option<Candidate>], url: &str) -> (usize, Option<String>) {
    if candidates.len() < 2 {
        return (0, None);
    }
    let Some(to) = Destination::of(url) else {
        return (0, Some("the first of the config: the URL names no host and port".to_owned()));
    };
    let known = || candidates.iter().enumerate().filter_map(|(at, known)| Some((at, (*known)?)));
    let address = to.address();
    let rank = |it: &Candidate| (address == Some(it.ip), it.tls == to.tls);
    // The first of the best.
    let better = |best: (usize, Candidate), next: (usize, Candidate)| {
        if rank(&next.1) > rank(&best.1) { next } else { best }
    };
    if let Some((at, it)) = known().filter(|(_, it)| it.port == to.port).reduce(better) {
        let from = if to.port_is_written { "the URL's" } else { "that of the scheme" };
        let mut why = format!("its port is {from}, {}", to.port);
        if it.tls != to.tls {
            let speaks = if it.tls { "it speaks TLS" } else { "it speaks no TLS" };
            why.push_str(&format!("; {speaks}, so a client of {}:// fails there", to.scheme));
        }
        return (at, Some(why));
    }
    let with = if to.tls { "with TLS" } else { "without TLS" };
    let alike = known().find(|(_, it)| it.tls == to.tls).map(|(at, _)| at);
    let which = match alike {
        Some(_) => format!("the first {with}"),
        None => "the first of the config".to_owned(),
    };
    (alike.unwrap_or(0), Some(format!("{which}: no listener has port {}", to.port)))
}

impl<'a> Destination<'a> {
    fn of(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let tls = match scheme {
            "http" | "grpc" => false,
            "https" | "grpcs" => true,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, after)| after);
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let written = port.and_then(|port| port.parse().ok());
        let usual = if tls { 443 } else { 80 };
        Some(Self { scheme, tls, host, port: written.unwrap_or(usual), port_is_written: written.is_some() })
    }

    /// The address in the URL, if it has one.
    fn address(&self) -> Option<IpAddr> {
        if self.host.eq_ignore_ascii_case("localhost") {
            return Some(IpAddr::from([127, 0, 0, 1]));
        }
        self.host.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, tls: bool) -> Option<Candidate> {
        let at: std::net::SocketAddr = address.parse().unwrap();
        Some(Candidate { ip: at.ip(), port: at.port(), tls })
    }

    #[test]
    fn the_url_decides() {
        let all = [
            at("10.0.0.1:8080", false),
            at("0.0.0.0:80", false),
            at("0.0.0.0:443", true),
            at("127.0.0.1:8080", false),
            None,
            at("[::1]:9443", true),
        ];
        for (url, index, why) in [
            ("/orders", 0, "the first of the config"),
            ("http://api.test/orders", 1, "that of the scheme, 80"),
            ("http://api.test", 1, "that of the scheme, 80"),
            ("https://api.test?x=http://a:8080", 2, "that of the scheme, 443"),
            ("grpcs://api.test/a.B/C", 2, "443"),
            ("http://api.test:8080/", 0, "the URL's, 8080"),
            ("http://127.0.0.1:8080/", 3, "the URL's, 8080"),
            ("http://LocalHost:8080/", 3, "the URL's, 8080"),
            ("http://u:80@10.0.0.1:8080/", 0, "the URL's, 8080"),
            ("https://[::1]:9443/", 5, "the URL's, 9443"),
            ("http://api.test:443/", 2, "it speaks TLS, so a client of http:// fails there"),
            ("https://api.test:80/", 1, "it speaks no TLS, so a client of https:// fails there"),
            ("https://api.test:8443/", 2, "the first with TLS: no listener has port 8443"),
            ("http://api.test:1/", 0, "the first without TLS: no listener has port 1"),
            ("ftp://api.test/", 0, "the first of the config"),
        ] {
            let (chosen, reason) = among(&all, url);
            let reason = reason.unwrap();
            assert!(chosen == index && reason.contains(why), "{url}: {chosen}, {reason}");
        }
        let (chosen, reason) = among(&[at("0.0.0.0:1", false), at("0.0.0.0:2", false)], "https://a.test/");
        assert_eq!(
            (chosen, reason.as_deref()),
            (0, Some("the first of the config: no listener has port 443"))
        );
    }

    #[test]
    fn without_a_choice_nothing_is_said() {
        assert_eq!(among(&[at("0.0.0.0:80", false)], "https://api.test:9/"), (0, None));
        assert_eq!(among(&[], "/"), (0, None));
    }
}
