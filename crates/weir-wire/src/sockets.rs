//! The sockets of one core, of which its [`Driver`](crate::Driver) tells who waits for them.
//!
//! A socket here costs one line of memory and no lock. It joins the set when it first must wait: a client that has sent its request
//! by the time it is accepted, and is answered at once, never does.

mod connection;
#[cfg(test)]
mod tests;

use crate::Peer;
use crate::limits::{is_reserved, out_of_descriptors};
use crate::listen::{Accepted, BoundSocket, accept, queued};
use slab::Slab;
use socket2::{SockAddr, Socket};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};

/// How many clients are told at once: few, so that a request is answered while what was touched for it is still in the cache.
pub(crate) const TAKEN: usize = 32;

/// The sockets of one core.
pub struct Sockets {
    registry: Registry,
    slots: RefCell<Slab<Rc<Slot>>>,
    /// Clients that are ready, in the order in which they became so.
    line: RefCell<VecDeque<Name>>,
    /// Tasks that have stepped back for others, until the kernel has been asked once more.
    resting: RefCell<Vec<Waker>>,
    /// Distinguishes a socket from earlier ones that had its place.
    ///
    /// An event can name a socket that is closed: a child process has a copy of every descriptor between fork and exec, the kernel drops
    /// a registration only with the last copy, and until then it reports the peer's FIN under the old name. So every lookup by name
    /// goes through [`Sockets::of`], which compares generations, and nothing that an event changes lies outside the [`Slot`] it finds.
    generation: Cell<u32>,
}

/// When a socket's task is told that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Behind everything else, a few at a time: what brings new work.
    Client,
    /// At once: what carries on with work that was begun.
    Upstream,
}

/// A connection among [`Sockets`], by TCP or through a Unix socket. One task reads it and one writes it, which may be the same.
pub struct PolledSocket {
    socket: Socket,
    /// It is closed before it loses its place.
    place: Place,
    /// Whether it is a Unix socket.
    is_local: bool,
}

/// A listening socket of one core.
pub struct CoreListener {
    socket: BoundSocket,
    place: Place,
    /// A connection that was accepted into the [reserve](crate::limits) of descriptors, and waits there for an ordinary one.
    held: RefCell<Option<(Accepted, Peer)>>,
}

/// The place of a socket among [`Sockets`].
struct Place {
    slot: Rc<Slot>,
    name: Name,
    /// Whether it has joined the set.
    watched: Cell<bool>,
    sockets: Rc<Sockets>,
}

/// What is known of a socket.
#[derive(Default)]
struct Slot {
    /// What it can do, as far as is known: see [`READ`] and those beside it.
    ready: Cell<u8>,
    /// What the kernel reported since its task was last told: 0 where the socket does not stand in [`Sockets::line`].
    pending: Cell<u8>,
    generation: u32,
    /// Bytes of reads that filled their buffers, since the last one that did not.
    run: Cell<u32>,
    /// Who reads it, and who waits to write. The first stays from one read to the next.
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
}

/// What the kernel calls a socket: from the lowest bit on 32 for its place, one for its class, and 30 of its generation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name(u64);

/// How many bytes a task reads of one socket before others have their turn, where there are always more: a download that is faster than we are.
/// Beside two of them a small request took 4 ms with 1 MiB. The turn costs some microseconds, a hundredth of what moving so much does.
const RUN: u32 = 256 * 1024;

/// There may be something to read. Forgotten with a read that brought less than there was room for.
const READ: u8 = 1;
/// Nothing will come any more: a read tells at once.
const ENDED: u8 = 2;
/// There may be room to write. Forgotten with a write that found too little.
const WRITE: u8 = 4;

// === impl Sockets ===

impl Sockets {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            slots: RefCell::default(),
            line: RefCell::default(),
            resting: RefCell::default(),
            generation: Cell::new(0),
        }
    }

    /// Takes in a connection by TCP. It must not block.
    pub fn add(self: &Rc<Self>, socket: TcpStream, class: Class) -> PolledSocket {
        PolledSocket { socket: socket.into(), place: self.place(class, READ | WRITE), is_local: false }
    }

    /// Takes in a connection through a Unix socket. It must not block.
    pub fn add_local(self: &Rc<Self>, socket: UnixStream, class: Class) -> PolledSocket {
        PolledSocket { socket: socket.into(), place: self.place(class, READ | WRITE), is_local: true }
    }

    /// Takes in a listening socket.
    pub fn listen(self: &Rc<Self>, socket: BoundSocket) -> CoreListener {
        CoreListener { socket, place: self.place(Class::Client, READ), held: RefCell::default() }
    }

    /// Connects a socket, which must not block.
    ///
    /// # Errors
    /// What the system says; and that descriptors have run out where only the [reserve](crate::limits) is left.
    pub(crate) async fn connect(self: &Rc<Self>, socket: Socket, to: &SockAddr) -> io::Result<PolledSocket> {
        if is_reserved(&socket) {
            return Err(out_of_descriptors());
        }
        let ready = match socket.connect(to) {
            Ok(()) => READ | WRITE,
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => 0,
            Err(e) => return Err(e),
        };
        let polled =
            PolledSocket { socket, place: self.place(Class::Upstream, ready), is_local: to.is_unix() };
        poll_fn(|cx| polled.place.poll_by(cx, &polled.socket, WRITE, || Ok(()))).await?;
        match polled.socket.take_error()? {
            None => Ok(polled),
            Some(e) => Err(e),
        }
    }

    fn place(self: &Rc<Self>, class: Class, ready: u8) -> Place {
        let generation = self.generation.get().wrapping_add(1) & GENERATIONS;
        self.generation.set(generation);
        let slot = Rc::new(Slot { ready: Cell::new(ready), generation, ..Slot::default() });
        let key = self.slots.borrow_mut().insert(Rc::clone(&slot));
        let name = Name::new(key, class, generation);
        Place { slot, name, watched: Cell::new(false), sockets: Rc::clone(self) }
    }

    /// Notes what the kernel has told: upstreams learn of it, clients stand in line.
    pub(crate) fn note(&self, events: &Events) {
        for event in events {
            let name = Name(event.token().0 as u64);
            match name.class() {
                Class::Client => self.queue(name, found(event)),
                Class::Upstream => self.tell(name, found(event)),
            }
        }
    }

    /// Puts a client in the line, once. An event of a socket that is gone changes nothing.
    fn queue(&self, name: Name, found: u8) {
        let slots = self.slots.borrow();
        let Some(slot) = Self::of(&slots, name) else { return };
        let pending = slot.pending.get();
        if pending == 0 && found != 0 {
            self.line.borrow_mut().push_back(name);
        }
        slot.pending.set(pending | found);
    }

    /// Lets a task wait until others have had their turn, those among them that the kernel tells of.
    pub(crate) fn rest(&self, waker: &Waker) {
        self.resting.borrow_mut().push(waker.clone());
    }

    /// Whether nobody stands in line, nor rests.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.borrow().is_empty() && self.resting.borrow().is_empty()
    }

    /// Wakes those who rest.
    pub(crate) fn wake_resting(&self) {
        let resting = self.resting.take();
        resting.into_iter().for_each(Waker::wake);
    }

    /// Tells the first clients of the line.
    pub(crate) fn tell_line(&self, most: usize) {
        for _ in 0..most {
            let first = self.line.borrow_mut().pop_front();
            let Some(name) = first else { return };
            if let Some(slot) = Self::of(&self.slots.borrow(), name) {
                slot.tell(slot.pending.take());
            }
        }
    }

    /// Tells a socket's tasks what was found, unless it is gone.
    fn tell(&self, name: Name, found: u8) {
        if let Some(slot) = Self::of(&self.slots.borrow(), name) {
            slot.tell(found);
        }
    }

    /// The socket of a name; none if it is gone, even if another has its place by now.
    fn of(slots: &Slab<Rc<Slot>>, name: Name) -> Option<&Slot> {
        slots.get(name.key()).map(|slot| &**slot).filter(|slot| slot.generation == name.generation())
    }
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").field("count", &self.slots.borrow().len()).finish()
    }
}

/// What an event says a socket can do.
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

/// Bits of a generation.
const GENERATIONS: u32 = (1 << 30) - 1;

/// The bit that upstreams have.
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

    fn is_ready(&self, bits: u8) -> bool {
        self.ready.get() & bits != 0
    }

    fn forget(&self, bit: u8) {
        self.ready.set(self.ready.get() & !bit);
    }
}

// === impl Place ===

impl Place {
    /// Waits to write for [`WRITE`], else to read. Keeps the waker of whoever waits: nearly always the one it has already. Fails when
    /// the system cannot watch one more.
    fn wait(&self, socket: &impl AsFd, bits: u8, cx: &Context<'_>) -> io::Result<()> {
        let waiting = if bits == WRITE { &self.slot.writer } else { &self.slot.reader };
        let known = waiting.take().filter(|known| known.will_wake(cx.waker()));
        waiting.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
        if !self.watched.get() {
            self.watch(socket.as_fd())?;
        }
        Ok(())
    }

    /// Joins the set, which tells at once of what has come by now.
    #[cold]
    fn watch(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let source = socket.as_raw_fd();
        self.sockets.registry.register(&mut SourceFd(&source), Token(self.name.0 as usize), interest)?;
        self.watched.set(true);
        Ok(())
    }

    /// Tries where it may be possible, by one of `bits`, else waits.
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
        self.wait(socket, bits, cx)?;
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The close takes it out of the set, so deregistering would be a wasted system call. A child that still has a copy of the
        // descriptor delays that until its exec; events until then name a generation that is gone.
        self.sockets.slots.borrow_mut().remove(self.name.key());
    }
}

// === impl CoreListener ===

impl CoreListener {
    /// The next connection. Cancel safe.
    ///
    /// # Errors
    /// What the system says; see [`crate::limits::ran_out`].
    pub async fn accept(&self) -> io::Result<(Accepted, Peer)> {
        let (accepted, peer) = match self.held.take() {
            Some(held) => held,
            None => poll_fn(|cx| self.place.poll_by(cx, &self.socket, READ, || accept(&self.socket))).await?,
        };
        if !accepted.is_reserved() {
            return Ok((accepted, peer));
        }
        match accepted.leave_reserve() {
            Ok(accepted) => Ok((accepted, peer)),
            Err((accepted, e)) => {
                *self.held.borrow_mut() = Some((accepted, peer));
                Err(e)
            }
        }
    }

    /// The socket once more, for another process.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn lend(&self) -> io::Result<BoundSocket> {
        self.socket.try_clone()
    }

    /// Stops listening; returns what waits in the kernel's queue, which the close would reset. The system itself is asked:
    /// the core may not have heard of the last ones yet.
    pub fn close(self) -> Vec<(Accepted, Peer)> {
        let mut all = queued(|| accept(&self.socket));
        all.extend(self.held.take());
        all
    }
}

impl Drop for CoreListener {
    fn drop(&mut self) {
        // Another process may have the same socket, which the close then does not take out of the set.
        if self.place.watched.get() {
            let _ = self.place.sockets.registry.deregister(&mut SourceFd(&self.socket.as_fd().as_raw_fd()));
        }
    }
}

impl std::fmt::Debug for CoreListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}
