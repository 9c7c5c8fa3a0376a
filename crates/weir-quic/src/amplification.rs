//! Bounds what is sent to addresses that a peer has not proved (RFC 9000 §8): three times what came from there.
//!
//! quinn-proto begins another datagram as long as it has sent less than that, so its last datagram may exceed the
//! limit by nearly its whole length. Here each datagram counts before it is sent. What exceeds the limit during a
//! handshake waits for more from the client.
//!
//! A client whose address changes often sends small packets only, and quinn-proto asks it for a proof with a datagram
//! of 1,200 bytes (§8.2.1 allows a shorter one). So these may exceed the limit, [`EXCESS`] at once and one more per
//! [`REGAINED`]. Those to an address that the peer then proves do not count: a phone may change networks as often as it
//! likes. Longer datagrams, which only find out what the path carries, never exceed the limit. An address that differs
//! in its port alone, as behind NAT, is the same machine and is not bounded.

use crate::path::Budget;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How much more may be sent to an address than came from there.
const AMPLIFICATION: u64 = 3;

/// Addresses of a connection that are remembered, the latest.
const ADDRESSES: usize = 4;

/// The length of a datagram that asks for a proof (RFC 9000 §8.2.1).
pub(crate) const CHALLENGE: usize = 1200;

/// Datagrams of a connection that may exceed the limit at once.
const EXCESS: u32 = 2;

/// The time after which one more may.
const REGAINED: Duration = Duration::from_secs(10);

/// What came from and went to addresses that are not proved.
#[derive(Debug, Default)]
pub(crate) struct Unproved {
    addresses: Vec<Address>,
    /// Datagrams that may exceed the limit.
    excess: Budget,
}

#[derive(Debug)]
struct Address {
    address: SocketAddr,
    received: u64,
    sent: u64,
    /// Datagrams to it that exceeded the limit.
    exceeded: u32,
}

impl Unproved {
    /// Notes that this came from an address.
    pub(crate) fn received(&mut self, from: SocketAddr, bytes: u64) {
        if let Some(known) = self.addresses.iter_mut().find(|known| known.address == from) {
            known.received += bytes;
            return;
        }
        // Whatever is forgotten has received at most three times what it sent.
        if self.addresses.len() >= ADDRESSES {
            self.addresses.remove(0);
        }
        self.addresses.push(Address { address: from, received: bytes, sent: 0, exceeded: 0 });
    }

    /// How much may be sent to an address now.
    pub(crate) fn room(&self, to: SocketAddr) -> u64 {
        let known = self.addresses.iter().find(|known| known.address == to);
        known.map_or(0, |known| (AMPLIFICATION * known.received).saturating_sub(known.sent))
    }

    /// Notes that this goes to an address.
    pub(crate) fn sent(&mut self, to: SocketAddr, bytes: u64) {
        if let Some(known) = self.addresses.iter_mut().find(|known| known.address == to) {
            known.sent += bytes;
        }
    }

    /// Whether one datagram to an address may exceed the limit.
    pub(crate) fn may_exceed(&mut self, to: SocketAddr, now: Instant) -> bool {
        let may = self.excess.spend(now, EXCESS, REGAINED);
        if let Some(known) = self.addresses.iter_mut().find(|known| known.address == to) {
            known.exceeded += u32::from(may);
        }
        may
    }

    /// Notes that the peer has proved an address: what went there was no attack on somebody else.
    pub(crate) fn proved(&mut self, address: SocketAddr) {
        if let Some(at) = self.addresses.iter().position(|known| known.address == address) {
            self.excess.give_back(self.addresses.remove(at).exceeded);
        }
    }

    /// Forgets all addresses, because the one in use is proved.
    pub(crate) fn clear(&mut self) {
        self.addresses = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn three_times_what_came() {
        let mut unproved = Unproved::default();
        assert_eq!(unproved.room(address(1)), 0);
        unproved.received(address(1), 100);
        unproved.received(address(2), 1);
        assert_eq!((unproved.room(address(1)), unproved.room(address(2))), (300, 3));
        unproved.sent(address(1), 250);
        assert_eq!(unproved.room(address(1)), 50);
        unproved.received(address(1), 10);
        assert_eq!(unproved.room(address(1)), 80);
        for port in 3..9 {
            unproved.received(address(port), 10);
        }
        assert_eq!((unproved.addresses.len(), unproved.room(address(1))), (ADDRESSES, 0));
    }

    #[test]
    fn excess_is_regained() {
        let (begin, mut unproved) = (Instant::now(), Unproved::default());
        let mut exceed = |at| (0..10).filter(|_| unproved.may_exceed(address(1), begin + at)).count();
        assert_eq!(exceed(Duration::ZERO), EXCESS as usize);
        assert_eq!(exceed(REGAINED / 2), 0);
        assert_eq!(exceed(REGAINED), 1);
        assert_eq!(exceed(100 * REGAINED), EXCESS as usize);
    }

    #[test]
    fn a_proved_address_gives_back_what_it_took() {
        let (begin, mut unproved) = (Instant::now(), Unproved::default());
        for port in 1..100 {
            unproved.received(address(port), 50);
            assert!(unproved.may_exceed(address(port), begin), "{port}");
            unproved.proved(address(port));
        }
        // What went to others stays.
        unproved.received(address(100), 50);
        assert!(unproved.may_exceed(address(100), begin) && unproved.may_exceed(address(100), begin));
        unproved.received(address(101), 50);
        unproved.proved(address(101));
        assert!(!unproved.may_exceed(address(101), begin));
    }
}
