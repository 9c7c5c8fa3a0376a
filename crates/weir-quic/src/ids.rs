//! Connection ids that say which core of which process has the connection.
//!
//! An id has 12 bytes: the core, the generation of the process, six random bytes, and a tag of four bytes over the
//! others. The kernel steers by the first byte (`steer`), the endpoint by the first two. The tag tells our ids
//! from those that clients choose for their first packet.
//!
//! The first two bytes are in the clear, so an observer can guess that two ids belong to the same core. It can not tell
//! which of that core's connections they belong to (RFC 9000 §5.1).

use aws_lc_rs::hmac;
use aws_lc_rs::rand;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use std::time::Duration;

/// Bytes of an id.
pub const ID_BYTES: usize = 12;

/// Bytes in front of the tag.
const SIGNED: usize = 8;

/// The socket and the process that have a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// The place of the socket among those of its address, from 0: usually the number of its core.
    pub core: u8,
    /// Tells apart those that have read the same socket one after another, as after an upgrade.
    pub generation: u8,
}

/// Makes and recognizes ids.
#[derive(Debug)]
pub(crate) struct Ids {
    home: Home,
    key: hmac::Key,
}

/// Who an arriving datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressee {
    /// Ours, or a client's first packet, or garbage: the endpoint decides.
    Here,
    /// A connection of another core or process.
    Elsewhere(Home),
}

impl Ids {
    pub(crate) fn new(home: Home, key: &[u8]) -> Self {
        Self { home, key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    fn tag(&self, signed: &[u8]) -> [u8; ID_BYTES - SIGNED] {
        let mut tag = [0; ID_BYTES - SIGNED];
        let whole = hmac::sign(&self.key, signed);
        tag.copy_from_slice(&whole.as_ref()[..ID_BYTES - SIGNED]);
        tag
    }

    /// Whether we (some core, this process or another with the same key) made this id.
    fn made(&self, id: &[u8]) -> bool {
        id.len() == ID_BYTES && self.tag(&id[..SIGNED]) == id[SIGNED..]
    }

    /// Who a datagram is for, by the id in its first packet.
    ///
    /// The first two bytes say whether that is here. If not, the tag must fit, which costs a hash: clients choose the
    /// id of their first packet, and anybody can send garbage, which must not occupy the other cores.
    pub(crate) fn addressee(&self, datagram: &[u8]) -> Addressee {
        let id = match datagram {
            [first, ..] if first & LONG == 0 => datagram.get(1..1 + ID_BYTES),
            [_, _, _, _, _, length, rest @ ..] => rest.get(..usize::from(*length)),
            _ => None,
        };
        let Some(id) = id else { return Addressee::Here };
        let Some(home) = home_of(id) else { return Addressee::Here };
        if home == self.home || !self.made(id) {
            return Addressee::Here;
        }
        Addressee::Elsewhere(home)
    }
}

/// The bit of a long header (RFC 8999 §5.1).
const LONG: u8 = 0x80;

/// What an id says, if it has the length of ours. Does not check the tag.
pub fn home_of(id: &[u8]) -> Option<Home> {
    match id {
        [core, generation, rest @ ..] if rest.len() == ID_BYTES - 2 => {
            Some(Home { core: *core, generation: *generation })
        }
        _ => None,
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        id[0] = self.home.core;
        id[1] = self.home.generation;
        // Fails only where the system has no randomness. The tag then still differs between keys, and the handshake
        // of the connection fails, because TLS needs randomness as well.
        let _ = rand::fill(&mut id[2..SIGNED]);
        let tag = self.tag(&id[..SIGNED]);
        id[SIGNED..].copy_from_slice(&tag);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if self.made(id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(core: u8, generation: u8) -> Ids {
        Ids::new(Home { core, generation }, b"the key of all cores")
    }

    fn short(id: &[u8]) -> Vec<u8> {
        [&[0x40], id, &[7; 20]].concat()
    }

    fn long(id: &[u8]) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, id.len() as u8], id, &[7; 20]].concat()
    }

    #[test]
    fn an_id_leads_home() {
        let (mut maker, other) = (ids(3, 7), ids(0, 7));
        let id = maker.generate_cid();
        let home = Home { core: 3, generation: 7 };
        assert_eq!(home_of(&id), Some(home));
        for datagram in [short(&id), long(&id)] {
            assert_eq!(maker.addressee(&datagram), Addressee::Here);
            assert_eq!(other.addressee(&datagram), Addressee::Elsewhere(home));
        }
        assert_eq!(ids(3, 8).addressee(&short(&id)), Addressee::Elsewhere(home));
        assert!(other.validate(&id).is_ok());
    }

    #[test]
    fn an_id_that_a_client_chose_stays() {
        let chosen = [9; ID_BYTES];
        assert_eq!(ids(0, 0).addressee(&long(&chosen)), Addressee::Here);
        assert!(ids(0, 0).validate(&ConnectionId::new(&chosen)).is_err());
        assert_eq!(ids(0, 0).addressee(&long(&[9; 8])), Addressee::Here);
    }

    #[test]
    fn garbage_stays() {
        for length in 0..40 {
            for first in [0x00, 0x40, 0xc0, 0xff] {
                let mut datagram = vec![first; length];
                assert_eq!(ids(first, first).addressee(&datagram), Addressee::Here, "{first} {length}");
                datagram.truncate(5);
                assert_eq!(ids(1, 1).addressee(&datagram), Addressee::Here);
            }
        }
    }

    #[test]
    fn ids_differ() {
        let mut maker = ids(1, 1);
        let made: std::collections::HashSet<_> = (0..1000).map(|_| maker.generate_cid()).collect();
        assert_eq!(made.len(), 1000);
    }
}
