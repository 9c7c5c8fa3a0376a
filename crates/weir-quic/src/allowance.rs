//! How many streams a peer may have open at a time.
//!
//! quinn-proto keeps two table entries for each stream that a peer may open. With 100 streams, its tables take 5 KiB of
//! each connection, though most connections never have more than a few requests under way. So a new connection has
//! entries for a few, and its client is told that it may open [`TOLD`] nevertheless. The keys that decrypt packets put
//! off the first packet for a stream without an entry (`keys`), the endpoint gives quinn-proto more entries, and passes
//! it the packet again.

use quinn_proto::VarInt;

/// Entries of a new connection, by direction: bidirectional streams first, as in quinn-proto. With our three
/// unidirectional streams, they fit into tables of 16 places.
const ROOM: [u32; 2] = [8, 6];

/// Bidirectional streams that a new client may open. A browser begins a page with 100 requests at most: the other limit
/// that servers have in common (RFC 9113 §6.5.2).
const TOLD: u32 = 100;

/// How many times as many entries there are after a packet that needs more.
const GROWTH: u32 = 4;

/// How many times as many streams a peer may have open that has used half of what it may.
const RAISE: u32 = 2;

/// How many streams of one direction a peer may have open now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Those that quinn-proto has entries for.
    room: u32,
    /// Those that the peer knows of.
    told: u32,
    most: u32,
}

impl Allowance {
    /// Those of a new client, by direction. `most` says how many streams it may have at most.
    pub(crate) fn of_client(most: [u32; 2]) -> [Self; 2] {
        let [both_ways, one_way] = Self::of_server(most);
        [Self { told: TOLD.min(both_ways.most), ..both_ways }, one_way]
    }

    /// Those of a server that we connect to, by direction. Nothing puts off its packets.
    pub(crate) fn of_server(most: [u32; 2]) -> [Self; 2] {
        std::array::from_fn(|dir| {
            let room = ROOM[dir].min(most[dir]);
            Self { room, told: room, most: most[dir] }
        })
    }

    /// The streams that quinn-proto has entries for.
    pub(crate) const fn room(self) -> u32 {
        self.room
    }

    /// The streams that the peer knows of.
    pub(crate) const fn told(self) -> u32 {
        self.told
    }

    /// Whether quinn-proto has entries for all streams that the peer knows of.
    pub(crate) const fn is_whole(self) -> bool {
        self.room >= self.told
    }

    /// Makes room for a stream that the peer knows of and that quinn-proto has no entry for. Returns the new number of
    /// entries.
    pub(crate) fn grow(&mut self) -> Option<VarInt> {
        if self.is_whole() {
            return None;
        }
        self.room = self.room.saturating_mul(GROWTH).min(self.told);
        Some(VarInt::from_u32(self.room))
    }

    /// Returns the new number of entries if the peer needs more: it has this many streams open, and this many have
    /// ended.
    ///
    /// quinn-proto tells the peer of no more streams than it has entries for. So as streams end, the peer may open fewer
    /// and fewer at a time, in the end as many as there are entries. A peer that asks often but never much at a time gets
    /// entries once, and the others only when it uses half of these.
    pub(crate) fn raise(&mut self, open: u64, ended: u64) -> Option<VarInt> {
        let uses_half = open > u64::from(self.room / 2);
        if !self.is_whole() {
            let knows_enough = ended <= u64::from(self.told / 2);
            let has_grown = self.room > ROOM[0];
            return if knows_enough || has_grown && !uses_half { None } else { self.grow() };
        }
        if self.is_final() || !uses_half {
            return None;
        }
        self.told = self.told.saturating_mul(RAISE).min(self.most);
        self.room = self.told;
        Some(VarInt::from_u32(self.room))
    }

    /// Whether it cannot grow.
    pub(crate) const fn is_final(self) -> bool {
        self.room >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: u32) -> Option<VarInt> {
        Some(VarInt::from_u32(n))
    }

    #[test]
    fn clients_know_of_more_streams_than_there_are_entries() {
        let [mut both_ways, one_way] = Allowance::of_client([128, 16]);
        assert_eq!((both_ways.told(), both_ways.room(), both_ways.is_whole()), (100, 8, false));
        assert!(one_way.is_whole());
        assert_eq!(both_ways.raise(8, 0), None);
        assert_eq!(both_ways.grow(), number(32));
        assert_eq!(both_ways.grow(), number(100));
        assert_eq!(both_ways.grow(), None);
        assert_eq!(both_ways.raise(50, 1000), None);
        assert_eq!(both_ways.raise(51, 0), number(128));
        assert!(both_ways.is_final());
        assert_eq!(both_ways.raise(128, 1000), None);
        let [few, _] = Allowance::of_client([3, 16]);
        assert!((few.told(), few.room()) == (3, 3) && few.is_final());
    }

    #[test]
    fn ended_streams_call_for_entries() {
        let [mut both_ways, _] = Allowance::of_client([100, 16]);
        assert_eq!(both_ways.raise(8, 50), None);
        assert_eq!(both_ways.raise(1, 51), number(32));
        assert_eq!(both_ways.raise(16, 1000), None);
        assert_eq!(both_ways.raise(17, 51), number(100));
        assert!(both_ways.is_final());
    }

    #[test]
    fn peers_that_use_half_may_open_more() {
        let [_, mut one_way] = Allowance::of_server([100, 16]);
        assert_eq!(one_way.raise(3, 100), None);
        assert_eq!(one_way.raise(4, 0), number(12));
        assert_eq!(one_way.raise(7, 0), number(16));
        assert_eq!(one_way.raise(16, 0), None);
    }
}
