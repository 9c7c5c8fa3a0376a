//! Routes QUIC datagrams to the core or process that owns their connection: its home, which connection ids name.
//!
//! A TCP connection belongs to the socket that accepted it. QUIC connections share one UDP socket per core and address, so
//! each datagram must find the endpoint that has its connection: by the connection id, which names that endpoint's home.
//! The kernel reads the first byte of the id and picks the socket. A datagram that reaches another core or process,
//! because the number of cores has changed or another process serves, is forwarded.
//!
//! ```text
//!   kernel ─► socket and endpoint ─┬─ its connection ─────────────────────► connection/h3
//!                                  └─ another home ─► Homes ─┬─ another core
//!                                                            └─ relay ─► the process before or after this one
//! ```
//!
//! A home is the place of a socket among those of its address, and a generation. The place is what the kernel steers by.
//! The generation tells apart the endpoints that have read the same socket one after another: those of a core that leaves
//! and of the core that took its socket over, and those of two processes.

mod relay;

use relay::Relay;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_quic::{Datagram, Elsewhere, Home, Keys};
use weir_wire::listen::BoundSocket;

/// Bytes that a process keeps for the next one: the keys and the first generation that is free.
pub const KEPT_BYTES: usize = Keys::BYTES + 1;

/// What a core is told about QUIC.
#[derive(Debug)]
pub enum Passed {
    /// A datagram for an endpoint of this core, which another core or process received.
    Datagram {
        /// The endpoint's home.
        home: Home,
        /// The datagram.
        datagram: Datagram,
    },
    /// Another process reads the UDP sockets of this address now.
    Taken {
        /// The address.
        address: SocketAddr,
    },
    /// The process that replaced this one is gone, and reads no socket any more.
    Left,
}

/// Sends a message to a core. Returns false once the core has ended.
pub(crate) type Mailbox = Box<dyn Fn(Passed) -> bool + Send>;

/// The homes of a process. Touched when endpoints begin and end, and for datagrams that arrive at the wrong place.
#[derive(Debug)]
pub struct Homes {
    keys: Keys,
    state: Mutex<State>,
}

struct State {
    /// The generation that the process begins with.
    first: u8,
    /// How many generations it has used.
    used: u8,
    mailboxes: HashMap<Home, Mailbox>,
    /// The process that this one has replaced.
    before: Option<Arc<Relay>>,
    /// The process that replaces this one.
    after: Option<Arc<Relay>>,
    /// The addresses whose sockets that one reads.
    taken: Vec<SocketAddr>,
    /// Those that this one reads, of which the process before has not been told yet.
    untold: Vec<SocketAddr>,
    /// How many endpoints of an address have connections and read no socket.
    deaf: HashMap<SocketAddr, usize>,
}

impl Homes {
    /// The homes of a process that replaces no other.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with(Keys::random()?, 0))
    }

    /// The homes of a process that replaces another, which kept these bytes. `None` if the bytes are invalid.
    pub fn kept(bytes: &[u8]) -> Option<Self> {
        let (keys, rest) = bytes.split_first_chunk()?;
        let [first] = *rest else { return None };
        Some(Self::with(Keys::of(*keys), first))
    }

    fn with(keys: Keys, first: u8) -> Self {
        let state = State {
            first,
            used: 1,
            mailboxes: HashMap::new(),
            before: None,
            after: None,
            taken: Vec::new(),
            untold: Vec::new(),
            deaf: HashMap::new(),
        };
        Self { keys, state: Mutex::new(state) }
    }

    /// What the next process gets: the same keys, so that each knows the other's ids and tokens, and generations of its
    /// own. Half of them stay here, for changes of `workers` in the meantime.
    pub fn keep(&self) -> Vec<u8> {
        let state = self.state();
        let mut kept = self.keys.bytes().to_vec();
        kept.push(state.first.wrapping_add(state.used).wrapping_add(SPARE));
        kept
    }

    /// The keys of all endpoints.
    pub(crate) const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// A home at this place for an endpoint whose core has this mailbox.
    pub(crate) fn claim(&self, place: u8, mailbox: Mailbox) -> Home {
        let mut state = self.state();
        let mut home = Home { core: place, generation: state.first };
        // There are no 128 endpoints that still read the same socket or have connections from when they did.
        let free = (0..128_u8).find(|n| {
            home.generation = state.first.wrapping_add(*n);
            !state.mailboxes.contains_key(&home)
        });
        state.used = state.used.max(free.unwrap_or(0).saturating_add(1));
        state.mailboxes.insert(home, mailbox);
        home
    }

    /// Removes a home whose endpoint has ended.
    pub(crate) fn release(&self, home: Home) {
        self.state().mailboxes.remove(&home);
    }

    /// Links this process with the one before it.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn follow(self: &Arc<Self>, link: OwnedFd) -> io::Result<()> {
        let relay = Arc::new(Relay::new(link));
        self.state().before = Some(Arc::clone(&relay));
        relay::listen(self, relay)
    }

    /// Links this process with one that replaces it, and returns that one's end of the link.
    ///
    /// # Errors
    /// When no socket or thread is left.
    pub fn precede(self: &Arc<Self>) -> io::Result<BoundSocket> {
        let (ours, theirs) = relay::pair()?;
        let relay = Arc::new(Relay::new(ours));
        let mut state = self.state();
        state.after = Some(Arc::clone(&relay));
        state.taken.clear(); // by an earlier process that failed
        drop(state);
        relay::listen(self, relay)?;
        Ok(BoundSocket::any(theirs))
    }

    /// Tells the process before this one that this one reads the socket of an address now.
    pub(crate) fn took(&self, address: SocketAddr) {
        self.state().untold.push(address);
        self.tell_again();
    }

    /// Tells it what it had no room for before.
    pub(crate) fn tell_again(&self) {
        let mut state = self.state();
        let State { before, untold, .. } = &mut *state;
        match before {
            Some(before) => untold.retain(|address| !before.took(*address)),
            None => untold.clear(),
        }
    }

    /// An endpoint of an address reads no socket any more, or has ended or reads again.
    pub(crate) fn count_deaf(&self, address: SocketAddr, is_deaf: bool) {
        let mut state = self.state();
        let count = state.deaf.entry(address).or_default();
        *count = if is_deaf { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            state.deaf.remove(&address);
        }
    }

    /// Whether others have connections whose datagrams may arrive at sockets of this address.
    pub(crate) fn needs_reader(&self, address: SocketAddr) -> bool {
        let state = self.state();
        state.before.is_some() || state.deaf.contains_key(&address)
    }

    /// The process after this one reads the socket of an address now.
    fn taken(&self, address: SocketAddr) {
        let mut state = self.state();
        state.taken.push(address);
        for mailbox in state.mailboxes.values() {
            mailbox(Passed::Taken { address }); // a core that has ended reads nothing
        }
    }

    /// The addresses whose sockets the process after this one reads.
    pub(crate) fn taken_over(&self) -> Vec<SocketAddr> {
        self.state().taken.clone()
    }

    /// Whether the process before this one is there, whose datagrams may arrive here.
    pub fn relays(&self) -> bool {
        self.state().before.is_some()
    }

    /// The other end of a link has closed.
    fn unlink(&self, relay: &Arc<Relay>) {
        let mut state = self.state();
        let is_it = |link: &Option<Arc<Relay>>| link.as_ref().is_some_and(|known| Arc::ptr_eq(known, relay));
        if is_it(&state.before) {
            state.before = None;
        }
        if is_it(&state.after) {
            state.after = None;
            state.taken.clear();
            for mailbox in state.mailboxes.values() {
                mailbox(Passed::Left); // a core that has ended reads nothing
            }
        }
    }

    /// Forwards a datagram to the core or process that owns its connection. Returns false if none does.
    fn forward(&self, home: Home, datagram: Datagram) -> bool {
        let state = self.state();
        if let Some(mailbox) = state.mailboxes.get(&home) {
            return mailbox(Passed::Datagram { home, datagram });
        }
        let offset = home.generation.wrapping_sub(state.first);
        let is_later = offset >= state.used && offset < 128;
        let link = if is_later { &state.after } else { &state.before };
        let link = link.clone();
        drop(state);
        link.is_some_and(|link| link.send(home, &datagram))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Generations between those of a process at an upgrade and those of the next.
const SPARE: u8 = 16;

/// Forwards datagrams that arrive at one endpoint for others.
pub(crate) struct Others(pub(crate) Arc<Homes>);

impl Elsewhere for Others {
    fn pass(&self, home: Home, datagram: Datagram) -> bool {
        self.0.forward(home, datagram)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("first", &self.first)
            .field("used", &self.used)
            .field("homes", &self.mailboxes.keys())
            .finish_non_exhaustive()
    }
}
