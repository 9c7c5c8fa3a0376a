//! Carries datagrams between a process and the one that replaces it, over a pair of Unix sockets that keep messages apart.
//!
//! ```text
//!   ┌───────────┬────────────┬─────────┬──────────────┬────────────┬───────┐
//!   │ DATAGRAM  │ home (2)   │ ECN (1) │ from (23)    │ to (17)    │ bytes │
//!   ├───────────┼────────────┴─────────┴──────────────┴────────────┴───────┘
//!   │ TAKEN     │ address (23)
//!   └───────────┘
//!   address: 4 or 6, IP (16), port (2), scope (4)        to: 0, 4 or 6, IP (16)        ECN: 255 for none
//! ```
//! Both ends are the same program or versions of it. Neither trusts the other's messages more than network input.

use super::Homes;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use weir_quic::{Datagram, Home};
use weir_telemetry::log;

/// Longest message: a datagram of 64 KiB and what is told about it.
const MESSAGE_BYTES: usize = 64 * 1024 + 64;

const DATAGRAM: u8 = 1;
const TAKEN: u8 = 2;
const NO_ECN: u8 = 255;

/// One end of a link between two processes.
#[derive(Debug)]
pub(super) struct Relay(OwnedFd);

/// The two ends of a link.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let made = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    Ok(made?)
}

impl Relay {
    pub(super) const fn new(link: OwnedFd) -> Self {
        Self(link)
    }

    /// Sends a datagram. If the other process lags, drops it, as a network would, and QUIC resends its content. False
    /// if the other process has ended.
    pub(super) fn send(&self, home: Home, datagram: &Datagram) -> bool {
        let mut message = vec![DATAGRAM, home.core, home.generation, datagram.ecn.unwrap_or(NO_ECN)];
        write_address(datagram.from, &mut message);
        match datagram.to {
            Some(ip) => write_ip(ip, &mut message),
            None => message.extend_from_slice(&[0; 17]),
        }
        message.extend_from_slice(&datagram.bytes);
        match send(&self.0, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => true,
            Err(_) => false,
        }
    }

    /// Says that this process reads the socket of an address now. False if the other process lags and must be told
    /// again: a core may not wait for it.
    pub(super) fn took(&self, address: SocketAddr) -> bool {
        let mut message = vec![TAKEN];
        write_address(address, &mut message);
        match send(&self.0, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => true,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => false,
            Err(e) => {
                log::debug("the process before is not told of a socket", &[("error", &e)]); // it has ended
                true
            }
        }
    }
}

/// Starts the thread that receives what the other process forwards. It ends with the link.
pub(super) fn listen(homes: &Arc<Homes>, relay: Arc<Relay>) -> io::Result<()> {
    let homes = Arc::downgrade(homes);
    let thread = std::thread::Builder::new().name("weir-quic-relay".to_owned());
    thread.spawn(move || run(&homes, &relay)).map(drop)
}

fn run(homes: &Weak<Homes>, relay: &Arc<Relay>) {
    let mut message = vec![0; MESSAGE_BYTES];
    loop {
        let received = match recv(&relay.0, &mut message[..], RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((count, _)) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        };
        let Some(homes) = homes.upgrade() else { return };
        match read(message.get(..received).unwrap_or_default()) {
            Some(Told::Datagram(home, datagram)) => {
                homes.forward(home, datagram); // to nobody if its connection has ended
            }
            Some(Told::Taken(address)) => homes.taken(address),
            None => {} // of a later version
        }
    }
    if let Some(homes) = homes.upgrade() {
        homes.unlink(relay);
    }
}

/// A message of the other process.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Datagram(Home, Datagram),
    Taken(SocketAddr),
}

fn read(message: &[u8]) -> Option<Told> {
    match message {
        [DATAGRAM, core, generation, ecn, rest @ ..] => {
            let (from, rest) = read_address(rest)?;
            let (to, bytes) = read_ip(rest)?;
            let ecn = (*ecn != NO_ECN).then_some(*ecn);
            let home = Home { core: *core, generation: *generation };
            Some(Told::Datagram(home, Datagram { bytes: bytes.to_vec(), from, to, ecn }))
        }
        [TAKEN, rest @ ..] => Some(Told::Taken(read_address(rest)?.0)),
        _ => None,
    }
}

fn write_ip(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.to_ipv6_mapped().octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
}

fn read_ip(bytes: &[u8]) -> Option<(Option<IpAddr>, &[u8])> {
    let (version, rest) = bytes.split_first()?;
    let (octets, rest) = rest.split_first_chunk::<16>()?;
    let ip = match version {
        0 => None,
        4 => {
            let [.., a, b, c, d] = *octets;
            Some(Ipv4Addr::new(a, b, c, d).into())
        }
        6 => Some(Ipv6Addr::from(*octets).into()),
        _ => return None,
    };
    Some((ip, rest))
}

fn write_address(address: SocketAddr, out: &mut Vec<u8>) {
    write_ip(address.ip(), out);
    out.extend_from_slice(&address.port().to_be_bytes());
    let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
    out.extend_from_slice(&scope.to_be_bytes());
}

fn read_address(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (ip, rest) = read_ip(bytes)?;
    let (port, rest) = rest.split_first_chunk()?;
    let (scope, rest) = rest.split_first_chunk()?;
    let port = u16::from_be_bytes(*port);
    let address = match ip? {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, u32::from_be_bytes(*scope)).into(),
    };
    Some((address, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homes::{Mailbox, Passed};
    use std::sync::mpsc;

    fn datagram(from: &str, to: Option<&str>) -> Datagram {
        Datagram {
            bytes: b"a packet".to_vec(),
            from: from.parse().unwrap(),
            to: to.map(|to| to.parse().unwrap()),
            ecn: Some(2),
        }
    }

    #[test]
    fn what_is_told_arrives_as_it_was() {
        let home = Home { core: 3, generation: 200 };
        let all = [
            datagram("192.0.2.1:443", Some("198.51.100.7")),
            datagram("[2001:db8::1]:50000", None),
            Datagram { ecn: None, ..datagram("[fe80::1%3]:1", Some("::1")) },
        ];
        let (here, there) = pair().unwrap();
        let here = Relay::new(here);
        let mut message = vec![0; MESSAGE_BYTES];
        let mut received = || {
            let (count, _) = recv(&there, &mut message[..], RecvFlags::empty()).unwrap();
            let message = message[..count].to_vec();
            for cut in 0..48.min(count) {
                let _ = read(&message[..cut]); // never panics
            }
            read(&message)
        };
        for one in all {
            assert!(here.send(home, &one));
            assert_eq!(received(), Some(Told::Datagram(home, one)));
        }
        let address = "[2001:db8::1]:443".parse().unwrap();
        assert!(here.took(address));
        assert_eq!(received(), Some(Told::Taken(address)));
    }

    /// A core's mailbox and the messages it received.
    fn core() -> (Mailbox, mpsc::Receiver<Passed>) {
        let (to, at) = mpsc::channel();
        (Box::new(move |passed| to.send(passed).is_ok()), at)
    }

    #[test]
    fn datagrams_find_the_process_that_has_the_connection() {
        let old = Arc::new(Homes::new().unwrap());
        let new = Arc::new(Homes::kept(&old.keep()).unwrap());
        let link = OwnedFd::from(old.precede().unwrap());
        new.follow(link).unwrap();
        let ((to_old, at_old), (to_new, at_new)) = (core(), core());
        let (home_old, home_new) = (old.claim(1, to_old), new.claim(1, to_new));
        assert_ne!(home_old, home_new);
        // Each passes on what is the other's.
        assert!(new.forward(home_old, datagram("192.0.2.1:1", None)));
        assert!(matches!(at_old.recv().unwrap(), Passed::Datagram { home, .. } if home == home_old));
        assert!(old.forward(home_new, datagram("192.0.2.1:2", None)));
        assert!(matches!(at_new.recv().unwrap(), Passed::Datagram { home, .. } if home == home_new));
        // The old one stops reading.
        let address = "192.0.2.9:443".parse().unwrap();
        new.took(address);
        assert!(matches!(at_old.recv().unwrap(), Passed::Taken { address: told } if told == address));
        // Its end is noticed: nobody has its connections any more.
        drop(old);
        let gone = || !new.forward(home_old, datagram("192.0.2.1:3", None));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !gone() {
            assert!(std::time::Instant::now() < until, "the link stays open");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_place_has_one_home_at_a_time() {
        let homes = Homes::new().unwrap();
        let first = homes.claim(2, core().0);
        let second = homes.claim(2, core().0);
        assert_ne!(first, second, "the core that leaves still has connections");
        homes.release(first);
        assert_eq!(homes.claim(2, core().0), first);
        assert!(!homes.forward(Home { core: 9, generation: 0 }, datagram("192.0.2.1:1", None)));
    }
}
