//! Limits of one client address over all cores: `limits.per_client`.
//!
//! ```text
//!   address ─hash─▶ two buckets of 8 cells, each an atomic word in cache lines of its own
//!
//!   connections:  tag of the address, 40 bits │ connections that are open, 24 bits        0: free
//!   handshakes:   tag of the address, 32 bits │ when its handshakes are paid off, 32 bits  0 or in the past: free
//! ```
//! A word holds both whose it is and what it counts, so one compare-and-swap takes a cell, counts and frees it. The
//! tables have room for [`CLIENTS`] clients, take memory only where clients are (16 KiB at a time), and are never
//! touched without the setting.
//!
//! *If both buckets of a client are full*, it is not limited: `limits.connections` still is, and an attacker with
//! that many addresses must not be able to lock everybody else out. By the power of two choices that hardly happens
//! before half of all cells are taken.
//!
//! *If two cores take a cell for the same new client at once*, it has two, until both are free again. Connections in
//! both count together, so the limit holds.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weir_config::units::Frequency;
use weir_wire::Peer;

/// The limits of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientLimits {
    /// Most connections that it may hold.
    pub(crate) connections: Option<u32>,
    /// Most TLS handshakes that it may begin.
    pub(crate) handshakes: Option<Frequency>,
}

impl ClientLimits {
    /// Whether anything is limited.
    pub(crate) const fn is_set(self) -> bool {
        self.connections.is_some() || self.handshakes.is_some()
    }
}

/// How many clients each table has room for.
const CLIENTS: usize = 131_072;

const CELLS: usize = 8;
const BUCKETS: usize = CLIENTS / CELLS;

/// Buckets that are allocated together: 16 KiB.
const SEGMENT: usize = 16;

/// The clients that hold connections or begin handshakes.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Seeded, so that outsiders cannot know whose cells share a bucket.
    hasher: RandomState,
    connections: OnceLock<Table>,
    handshakes: OnceLock<Table>,
    /// Handshakes over QUIC from addresses that may be forged.
    unproved: OnceLock<Table>,
    start: Instant,
}

/// A connection counted for its client, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    clients: Arc<Clients>,
    cell: Cell,
}

/// What a limit counts by: whether it is IPv6, and the address; of IPv6 its first 64 bits, because whoever has one
/// address of a network has them all.
type Client = (bool, u64);

/// `None` for a Unix socket.
fn client_of(peer: Peer) -> Option<Client> {
    let Peer::Address(address) = peer else { return None };
    Some(match address.ip().to_canonical() {
        IpAddr::V4(ip) => (false, ip.to_bits().into()),
        IpAddr::V6(ip) => (true, (ip.to_bits() >> 64) as u64),
    })
}

/// The client is at its limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Default for Clients {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            connections: OnceLock::new(),
            handshakes: OnceLock::new(),
            unproved: OnceLock::new(),
            start: Instant::now(),
        }
    }
}

impl Clients {
    /// Counts a connection of this peer. `None` if it is not limited, as on a Unix socket.
    pub(crate) fn admit(self: &Arc<Self>, peer: Peer, most: u32) -> Result<Option<Place>, TooMany> {
        let Some(client) = client_of(peer) else { return Ok(None) };
        let cell = self.enter(client, most)?;
        Ok(cell.map(|cell| Place { clients: Arc::clone(self), cell }))
    }

    /// Counts a TLS handshake that this peer begins.
    pub(crate) fn admit_handshake(&self, peer: Peer, most: Frequency) -> Result<(), TooMany> {
        self.begin(&self.handshakes, peer, most)
    }

    /// Counts a handshake that somebody begins from this address, who may have forged it. These counts only decide who
    /// must prove the address first; otherwise a forger could have another client refused.
    pub(crate) fn admit_unproved(&self, peer: Peer, most: Frequency) -> Result<(), TooMany> {
        self.begin(&self.unproved, peer, most)
    }

    /// Counts a handshake in one of the tables. Those over Unix sockets are not limited.
    fn begin(&self, table: &OnceLock<Table>, peer: Peer, most: Frequency) -> Result<(), TooMany> {
        let Some(client) = client_of(peer) else { return Ok(()) };
        self.shake(table.get_or_init(Table::new), client, most, self.start.elapsed())
    }

    /// Counts a connection. `None` if there is no cell for the client.
    fn enter(&self, client: Client, most: u32) -> Result<Option<Cell>, TooMany> {
        let hash = self.hasher.hash_one(client);
        let table = self.connections.get_or_init(Table::new);
        let most = u64::from(most);
        loop {
            let found = table.find(hash, COUNT, |value| value == 0);
            if found.counted >= most {
                return Err(TooMany);
            }
            let Some((cell, value)) = found.own.or(found.free) else { return Ok(None) };
            let next = if value == 0 { tag(hash, COUNT) + 1 } else { value + 1 };
            if !table.swap(cell, value, next) {
                continue;
            }
            // Another core may have taken another cell for the client meanwhile. At least one of the two sees both.
            if table.find(hash, COUNT, |_| false).counted > most {
                table.leave(cell);
                return Err(TooMany);
            }
            return Ok(Some(cell));
        }
    }

    /// Counts a handshake at a time since the start. A client that has made none for a period may begin a whole
    /// period's at once (GCRA).
    fn shake(&self, table: &Table, client: Client, most: Frequency, now: Duration) -> Result<(), TooMany> {
        let hash = self.hasher.hash_one(client);
        let now = ticks(now) as u32; // wraps after 18 hours
        let period = (ticks(most.period) as u32).max(1); // an hour at most
        let count = most.count.clamp(1, period); // more than one a tick is no limit that the word could hold
        let step = period / count;
        let window = step * count;
        let owed = |value: u64| {
            let ahead = (value as u32).wrapping_sub(now);
            if ahead <= window { ahead } else { 0 }
        };
        loop {
            let found = table.find(hash, TIME, |value| owed(value) == 0);
            let owes = found.own.map_or(0, |(_, value)| owed(value));
            if owes + step > window {
                return Err(TooMany);
            }
            let Some((cell, value)) = found.own.or(found.free) else { return Ok(()) };
            if table.swap(cell, value, tag(hash, TIME) | u64::from(now.wrapping_add(owes + step))) {
                return Ok(());
            }
        }
    }

    /// How many connections of a client are counted.
    #[cfg(test)]
    fn held(&self, client: Client) -> u64 {
        let table = self.connections.get_or_init(Table::new);
        table.find(self.hasher.hash_one(client), COUNT, |_| false).counted
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(table) = self.clients.connections.get() {
            table.leave(self.cell);
        }
    }
}

/// The bits of a word that count connections, or hold a time. The others are the tag.
const COUNT: u64 = (1 << 24) - 1;
const TIME: u64 = (1 << 32) - 1;

/// The tag of an address. Never 0, so that a taken cell is not free.
const fn tag(hash: u64, others: u64) -> u64 {
    (hash & !others) | (others + 1)
}

/// A time in ticks of 1/65,536 s.
const fn ticks(time: Duration) -> u64 {
    (time.as_nanos() * 65_536 / 1_000_000_000) as u64
}

/// Where a cell is: its bucket, and its number in it.
type Cell = (u32, u8);

#[derive(Debug)]
struct Table(Box<[OnceLock<Box<[Bucket]>>]>);

#[derive(Debug, Default)]
struct Bucket([Word; CELLS]);

/// Two cache lines, because the prefetcher fetches pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Word(AtomicU64);

/// What the cells hold that a client may have.
#[derive(Debug, Default)]
struct Found {
    /// The client's cell and its word.
    own: Option<(Cell, u64)>,
    /// A free cell of the emptier bucket, and its word.
    free: Option<(Cell, u64)>,
    /// The sum of what the client's cells count.
    counted: u64,
}

impl Table {
    fn new() -> Self {
        Self((0..BUCKETS / SEGMENT).map(|_| OnceLock::new()).collect())
    }

    fn bucket(&self, at: u32) -> &Bucket {
        let at = at as usize % BUCKETS;
        let make = || (0..SEGMENT).map(|_| Bucket::default()).collect();
        &self.0[at / SEGMENT].get_or_init(make)[at % SEGMENT]
    }

    fn word(&self, (at, number): Cell) -> &AtomicU64 {
        &self.bucket(at).0[usize::from(number) % CELLS].0
    }

    fn find(&self, hash: u64, others: u64, is_free: impl Fn(u64) -> bool) -> Found {
        let tag = tag(hash, others);
        let mut found = Found::default();
        let mut most = 0;
        // The 24 bits that no tag holds, so that cells tell more addresses apart than their tags alone.
        let first = hash as u32 & (BUCKETS as u32 - 1);
        let second = first ^ ((hash >> 14) as u32 & 0x3ff) << 4 ^ 1;
        for at in [first, second] {
            let mut free = 0;
            let mut some = None;
            for (number, word) in (0..).zip(&self.bucket(at).0) {
                let value = word.0.load(SeqCst);
                if value & !others == tag {
                    found.own = found.own.or(Some(((at, number), value)));
                    found.counted += value & others;
                } else if is_free(value) {
                    free += 1;
                    some = some.or(Some(((at, number), value)));
                }
            }
            if free > most {
                (most, found.free) = (free, some);
            }
        }
        found
    }

    fn swap(&self, cell: Cell, value: u64, next: u64) -> bool {
        self.word(cell).compare_exchange(value, next, SeqCst, SeqCst).is_ok()
    }

    /// Counts a connection less, and frees the cell if it was the last.
    fn leave(&self, cell: Cell) {
        let fewer = |value: u64| Some(if value & COUNT <= 1 { 0 } else { value - 1 });
        let _ = self.word(cell).fetch_update(SeqCst, SeqCst, fewer); // never refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    fn v4(text: &str) -> Option<Client> {
        client_of(Peer::Address(format!("{text}:1").parse().unwrap()))
    }

    #[test]
    fn who_is_one_client() {
        assert_eq!(v4("192.0.2.1"), v4("[::ffff:192.0.2.1]"));
        assert_ne!(v4("192.0.2.1"), v4("192.0.2.2"));
        assert_eq!(v4("[2001:db8:0:1::1]"), v4("[2001:db8:0:1:ffff::2]"));
        assert_ne!(v4("[2001:db8:0:1::1]"), v4("[2001:db8:0:2::1]"));
        assert_ne!(v4("[::192.0.2.1]"), v4("192.0.2.1"));
        assert_eq!(client_of(Peer::Local), None);
    }

    #[test]
    fn connections_are_counted_up_and_down() {
        let clients = Clients::default();
        let (one, other) = ((false, 1), (false, 2));
        let first = clients.enter(one, 2).unwrap().unwrap();
        let second = clients.enter(one, 2).unwrap().unwrap();
        assert_eq!(clients.enter(one, 2), Err(TooMany));
        assert!(clients.enter(other, 2).is_ok());
        assert!(clients.enter(one, 3).is_ok(), "a raised limit counts at once");
        let table = clients.connections.get().unwrap();
        table.leave(first);
        assert_eq!(clients.enter(one, 2), Err(TooMany));
        table.leave(second);
        assert_eq!(clients.held(one), 1);
        assert!(clients.enter(one, 2).is_ok());
    }

    /// Never above the limit, whoever comes and goes at once, and nothing is left when all have gone.
    #[test]
    fn threads_share_the_limit() {
        const MOST: usize = 5;
        let clients = Clients::default();
        let inside: [AtomicUsize; 3] = Default::default();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (clients, inside) = (&clients, &inside);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let who = (round + thread) % inside.len();
                        let Ok(Some(cell)) = clients.enter((true, who as u64), MOST as u32) else { continue };
                        assert!(inside[who].fetch_add(1, Relaxed) < MOST);
                        if round % 3 == 0 {
                            std::thread::yield_now();
                        }
                        inside[who].fetch_sub(1, Relaxed);
                        clients.connections.get().unwrap().leave(cell);
                    }
                });
            }
        });
        for who in 0..inside.len() {
            assert_eq!(clients.held((true, who as u64)), 0);
        }
    }

    #[test]
    fn half_the_cells_find_their_client() {
        let clients = Clients::default();
        let table = clients.connections.get_or_init(Table::new);
        let cells: Vec<_> = (0..CLIENTS as u64 / 2).map(|i| clients.enter((false, i), 1)).collect();
        assert!(cells.iter().all(|cell| matches!(cell, Ok(Some(_)))));
        assert!((0..CLIENTS as u64 / 2).all(|i| clients.enter((false, i), 1) == Err(TooMany)));
        for cell in cells.into_iter().flatten().flatten() {
            table.leave(cell);
        }
        let taken = |segment: &OnceLock<Box<[Bucket]>>| {
            segment.get().is_some_and(|s| s.iter().any(|b| b.0.iter().any(|w| w.0.load(SeqCst) != 0)))
        };
        assert!(!table.0.iter().any(taken), "every cell is free again");
    }

    /// Beyond the room, clients are let in without a count, and those that are counted stay limited.
    #[test]
    fn a_full_table_locks_nobody_out() {
        let clients = Clients::default();
        let entered: Vec<_> = (0..CLIENTS as u64 * 3 / 2).map(|i| clients.enter((false, i), 1)).collect();
        assert!(entered.iter().all(Result::is_ok));
        let counted = entered.iter().filter(|cell| matches!(cell, Ok(Some(_)))).count();
        assert!((CLIENTS * 9 / 10..=CLIENTS).contains(&counted), "{counted}");
        assert_eq!(clients.enter((false, 0), 1), Err(TooMany));
    }

    #[test]
    fn handshakes_in_a_period() {
        let clients = Clients::default();
        let most: Frequency = "20/s".parse().unwrap();
        let at = |millis: u64| Duration::from_millis(3_000_000 + millis);
        let table = Table::new();
        let begun =
            |client, time| (0..100).filter(|_| clients.shake(&table, client, most, time) == Ok(())).count();
        assert_eq!(begun((false, 1), at(0)), 20);
        assert_eq!(begun((false, 2), at(0)), 20);
        assert_eq!(begun((false, 1), at(100)), 2);
        assert_eq!(begun((false, 1), at(1100)), 20);
        assert_eq!(begun((false, 1), at(100_000)), 20);
        // The clock of a cell wraps after 65,536 s.
        let before = Duration::from_millis(65_535_900);
        assert_eq!(begun((false, 1), before), 20);
        assert_eq!(begun((false, 1), before + Duration::from_millis(200)), 4);
        for (client, rate) in (10..).zip(["1/s", "1000/s", "100/m", "1000/h", "60000/m"]) {
            let most: Frequency = rate.parse().unwrap();
            let shakes = |_: &u32| clients.shake(&table, (true, client), most, at(0)) == Ok(());
            let begun = (0..70_000).filter(shakes).count();
            assert_eq!(begun, most.count as usize, "{rate}");
        }
    }
}
