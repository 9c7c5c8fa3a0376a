//! The sockets of one core; its [`Driver`](crate::Driver) wakes the tasks that wait for them.
//!
//! A socket here costs one cache line and no lock. It joins the poll set only when its task first has to wait. A
//! client whose request has arrived by the time we accept it, and whose response is ready immediately, never joins.

mod datagrams;
mod listener;
mod socket;
#[cfg(test)]
mod tests;

pub use datagrams::Datagrams;
pub use listener::CoreListener;
pub use socket::Socket;

use crate::Peer;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};

/// How many requests the clients of each [line](Sockets::singles) that the driver wakes per turn may bring: few, so that
/// we answer a request while its data is still in the cache. An HTTP/2 client counts for as many as it brought last: 32
/// such clients with 10 requests each would touch 3 MiB before the first answer. The limit applies to busy cores too.
/// When they took 32 clients regardless of what those brought, one busy moment led to the next: 140 cache lines per
/// request came from memory instead of 55 (row h2-h1).
pub(crate) const TAKEN: usize = 32;

/// Most slots of closed sockets that a core keeps for the next ones, 64 bytes each: as many as close in a turn or two.
/// glibc caches only 7 freed blocks of a size; beyond them, allocating and freeing a slot costs 280 instructions (row
/// nokeepalive).
const SPARE: usize = 64;

/// The sockets of one core.
pub struct Sockets {
    registry: Registry,
    slots: RefCell<Slab<Rc<Slot>>>,
    /// Slots of closed sockets, at most [`SPARE`]. The next sockets reuse only their memory.
    spare: RefCell<Vec<Rc<Slot>>>,
    /// Clients that are ready, in the order in which they became ready. Those whose last read brought several requests
    /// have a line of their own, so that nobody with a single request waits for them.
    singles: RefCell<VecDeque<Name>>,
    bulk: RefCell<VecDeque<Name>>,
    /// Tasks that yielded and wait until the driver has polled the kernel once more.
    resting: RefCell<Vec<Waker>>,
    /// Distinguishes a socket from earlier ones in the same place.
    ///
    /// An event can name a closed socket. A child process has a copy of every descriptor between fork and exec, and
    /// the kernel drops a registration only with the last copy. Until then it reports the peer's FIN under the old
    /// name. So every lookup by name goes through [`Sockets::of`], which compares generations, and an event changes
    /// only the [`Slot`] it finds.
    generation: Cell<u32>,
}

/// When the driver wakes a ready socket's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// After everything else, a few at a time: these sockets bring new work.
    Client,
    /// Immediately: these sockets continue work that has started.
    Upstream,
}

/// The place of a socket among [`Sockets`].
struct Place {
    slot: Rc<Slot>,
    name: Name,
    /// What the poll set reports of the socket: [`READ`] and [`WRITE`]; 0 until it has joined.
    watched: Cell<u8>,
    /// Nobody wants to know what arrives.
    is_deaf: Cell<bool>,
    sockets: Rc<Sockets>,
}

/// The state of a socket.
#[derive(Default)]
struct Slot {
    /// What the socket is known to be ready for: see [`READ`] and the constants beside it.
    ready: Cell<u8>,
    /// Readiness reported since the task was last woken; 0 when the socket is in no line of clients.
    pending: Cell<u8>,
    /// How many requests we expect of its next read; 0 counts as one.
    requests: Cell<u16>,
    generation: u32,
    /// Bytes read in a row by reads that filled their buffers.
    run: Cell<u32>,
    /// The wakers of the reading and the writing task. The reader's waker is kept between reads.
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
}

/// The token of a socket in the poll set. From the lowest bit up: 32 bits for its place, one for its class, 30 for
/// its generation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name(u64);

/// Bytes a task may read from one socket before other tasks run, when the socket always has more (a download faster
/// than we are). With 1 MiB, a small request beside two such downloads took 4 ms. A yield costs a few microseconds, a
/// hundredth of the time to move 256 KiB.
const RUN: u32 = 256 * 1024;

/// There may be data to read. Cleared when a read does not fill its buffer.
const READ: u8 = 1;
/// The peer sends nothing more: a read returns immediately.
const ENDED: u8 = 2;
/// There may be room to write. Cleared when a write is short.
const WRITE: u8 = 4;

// === impl Sockets ===

impl Sockets {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            slots: RefCell::default(),
            spare: RefCell::default(),
            singles: RefCell::default(),
            bulk: RefCell::default(),
            resting: RefCell::default(),
            generation: Cell::new(0),
        }
    }

    /// Adds a connection to this peer. The socket must be non-blocking.
    pub fn add(self: &Rc<Self>, socket: impl Into<OwnedFd>, peer: Peer, class: Class) -> Socket {
        Socket::of_core(self.place(class, READ | WRITE), socket.into(), peer == Peer::Local)
    }

    fn place(self: &Rc<Self>, class: Class, ready: u8) -> Place {
        let generation = self.generation.get().wrapping_add(1) & GENERATIONS;
        self.generation.set(generation);
        let slot = self.allot(Slot { ready: Cell::new(ready), generation, ..Slot::default() });
        let key = self.slots.borrow_mut().insert(Rc::clone(&slot));
        let name = Name::new(key, class, generation);
        Place { slot, name, watched: Cell::new(0), is_deaf: Cell::new(false), sockets: Rc::clone(self) }
    }

    /// Puts a slot into the memory of a spare one, or into new memory if there is none.
    fn allot(&self, slot: Slot) -> Rc<Slot> {
        let spare = self.spare.borrow_mut().pop();
        if let Some(mut spare) = spare
            && let Some(memory) = Rc::get_mut(&mut spare)
        {
            *memory = slot; // overwrites all of the closed socket's state
            return spare;
        }
        Rc::new(slot)
    }

    /// Processes kernel events: wakes tasks of upstream sockets, and queues client sockets.
    pub(crate) fn note(&self, events: &Events) {
        for event in events {
            let name = Name(event.token().0 as u64);
            match name.class() {
                Class::Client => self.queue(name, found(event)),
                Class::Upstream => self.tell(name, found(event)),
            }
        }
    }

    /// Queues a client, once. Ignores events of a closed socket.
    fn queue(&self, name: Name, found: u8) {
        let slots = self.slots.borrow();
        let Some(slot) = Self::of(&slots, name) else { return };
        let pending = slot.pending.get();
        if pending == 0 && found != 0 {
            let line = if slot.requests.get() > 1 { &self.bulk } else { &self.singles };
            line.borrow_mut().push_back(name);
        }
        slot.pending.set(pending | found);
    }

    /// Parks a task until other tasks have run, including those the kernel reports in the meantime.
    pub(crate) fn rest(&self, waker: &Waker) {
        self.resting.borrow_mut().push(waker.clone());
    }

    /// Whether no client is queued and no task is parked.
    pub(crate) fn is_empty(&self) -> bool {
        self.singles.borrow().is_empty() && self.bulk.borrow().is_empty() && self.resting.borrow().is_empty()
    }

    /// Wakes the parked tasks.
    pub(crate) fn wake_resting(&self) {
        let resting = self.resting.take();
        resting.into_iter().for_each(Waker::wake);
    }

    /// Wakes the first clients of each line, until we expect `most` requests from them.
    pub(crate) fn tell_lines(&self, most: usize) {
        for line in [&self.singles, &self.bulk] {
            let mut requests = 0;
            while requests < most {
                let first = line.borrow_mut().pop_front();
                let Some(name) = first else { break };
                if let Some(slot) = Self::of(&self.slots.borrow(), name) {
                    requests += usize::from(slot.requests.get().max(1));
                    slot.tell(slot.pending.take());
                }
            }
        }
    }

    /// Wakes a socket's tasks with the readiness found, unless the socket is closed.
    fn tell(&self, name: Name, found: u8) {
        if let Some(slot) = Self::of(&self.slots.borrow(), name) {
            slot.tell(found);
        }
    }

    /// The slot a name stands for; `None` once the socket is closed, even if another socket has its place by now.
    fn of(slots: &Slab<Rc<Slot>>, name: Name) -> Option<&Slot> {
        slots.get(name.key()).map(|slot| &**slot).filter(|slot| slot.generation == name.generation())
    }
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").field("count", &self.slots.borrow().len()).finish()
    }
}

/// The readiness an event reports.
fn found(event: &Event) -> u8 {
    let mut found = 0;
    if event.is_readable() || event.is_error() {
        found |= READ;
    }
    if event.is_read_closed() {
        found |= READ | ENDED;
    }
    if event.is_writable() || event.is_write_closed() || event.is_error() {
        found |= WRITE;
    }
    found
}

// === impl Name ===

/// Mask of a generation.
const GENERATIONS: u32 = (1 << 30) - 1;

/// The bit that marks upstream sockets.
const UPSTREAM: u64 = 1 << 32;

impl Name {
    fn new(key: usize, class: Class, generation: u32) -> Self {
        let class = if class == Class::Upstream { UPSTREAM } else { 0 };
        Self(key as u64 | class | u64::from(generation) << 33)
    }

    const fn key(self) -> usize {
        self.0 as u32 as usize
    }

    const fn class(self) -> Class {
        if self.0 & UPSTREAM == 0 { Class::Client } else { Class::Upstream }
    }

    const fn generation(self) -> u32 {
        (self.0 >> 33) as u32 & GENERATIONS
    }
}

// === impl Slot ===

impl Slot {
    fn tell(&self, found: u8) {
        self.ready.set(self.ready.get() | found);
        if found & READ != 0
            && let Some(waker) = self.reader.take()
        {
            waker.wake_by_ref();
            self.reader.set(Some(waker));
        }
        if found & WRITE != 0
            && let Some(waker) = self.writer.take()
        {
            waker.wake();
        }
    }

    #[inline]
    fn is_ready(&self, bits: u8) -> bool {
        self.ready.get() & bits != 0
    }

    fn forget(&self, bit: u8) {
        self.ready.set(self.ready.get() & !bit);
    }
}

// === impl Place ===

impl Place {
    /// Waits to write if `bits` is [`WRITE`], else to read. Stores the task's waker, unless the stored one already
    /// wakes it, as it nearly always does. Fails when the system cannot watch another socket.
    fn wait(&self, socket: &impl AsFd, bits: u8, cx: &Context<'_>) -> io::Result<()> {
        let waiting = if bits == WRITE { &self.slot.writer } else { &self.slot.reader };
        let known = waiting.take().filter(|known| known.will_wake(cx.waker()));
        waiting.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
        if self.watched.get() & bits == 0 {
            self.watch(socket.as_fd(), bits)?;
        }
        Ok(())
    }

    /// Joins the poll set, or has it report `bits` too. The set then reports what is already ready.
    ///
    /// A client's socket nearly always has room to write, and the set would report that as soon as a new connection
    /// joins: a poll that wakes nobody. So the set reports room to a client only once a write has had to wait.
    #[cold]
    fn watch(&self, socket: BorrowedFd<'_>, bits: u8) -> io::Result<()> {
        let source = socket.as_raw_fd();
        let token = Token(self.name.0 as usize);
        let before = self.watched.get();
        let watched = match self.name.class() {
            Class::Client => READ | bits,
            Class::Upstream => READ | WRITE, // it waits for room when it connects
        };
        let registry = &self.sockets.registry;
        if before == 0 {
            registry.register(&mut SourceFd(&source), token, self.interest(watched))?;
        } else {
            registry.reregister(&mut SourceFd(&source), token, self.interest(watched))?;
        }
        self.watched.set(watched);
        Ok(())
    }

    fn interest(&self, watched: u8) -> Interest {
        match (self.is_deaf.get(), watched & WRITE != 0) {
            (true, _) => Interest::WRITABLE,
            (false, true) => Interest::READABLE | Interest::WRITABLE,
            (false, false) => Interest::READABLE,
        }
    }

    /// Whether the socket has joined the poll set.
    fn is_watched(&self) -> bool {
        self.watched.get() != 0
    }

    /// Says whether the socket's task wants to know what arrives.
    fn set_deaf(&self, socket: BorrowedFd<'_>, is_deaf: bool) -> io::Result<()> {
        if self.is_deaf.replace(is_deaf) == is_deaf || !self.is_watched() {
            return Ok(());
        }
        let source = socket.as_raw_fd();
        let token = Token(self.name.0 as usize);
        self.sockets.registry.reregister(&mut SourceFd(&source), token, self.interest(self.watched.get()))
    }

    /// Tries the operation if any of `bits` is set, else waits.
    #[inline(always)]
    fn poll_by<T>(
        &self,
        cx: &Context<'_>,
        socket: &impl AsFd,
        bits: u8,
        attempt: impl FnOnce() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        if self.slot.is_ready(bits) {
            match attempt() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.slot.forget(bits),
                done => return Poll::Ready(done),
            }
        }
        self.wait_apart(socket, bits, cx)?;
        Poll::Pending
    }

    /// A separate function, because a socket nearly always has room, and an inlined call would save registers in
    /// vain.
    #[cold]
    fn wait_apart(&self, socket: &impl AsFd, bits: u8, cx: &Context<'_>) -> io::Result<()> {
        self.wait(socket, bits, cx)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Closing the socket removes it from the poll set, so deregistering would waste a system call. If a child
        // process still has a copy of the descriptor, that happens at its exec; until then events name an old
        // generation.
        let slot = self.sockets.slots.borrow_mut().remove(self.name.key());
        // A spare slot must not keep a task alive. Dropped while nothing is borrowed: a task may own other sockets.
        drop((slot.reader.take(), slot.writer.take()));
        let mut spare = self.sockets.spare.borrow_mut();
        if spare.len() < SPARE {
            spare.push(slot);
        }
    }
}
