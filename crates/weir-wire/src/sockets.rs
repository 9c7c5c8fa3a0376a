//! The sockets of one core, of which its [`Driver`](crate::Driver) tells who waits for them.
//!
//! A socket here costs one line of memory and no lock. It joins the set when it first must wait: a client that has sent its request
//! by the time it is accepted, and is answered at once, never does.

use crate::Peer;
use crate::listen::{Accepted, BoundSocket, accept, queued};
use crate::round_trip::{has_retransmitted, round_trip};
use slab::Slab;
use socket2::{SockAddr, Socket};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};
use rustix::buffer::spare_capacity;
use rustix::fs::sendfile;
use rustix::net::{RecvFlags, SendFlags, recv, send, sendmsg};
use tokio::io::ReadBuf;

/// How many clients are told at once: few, so that a request is answered while what was touched for it is still in the cache.
pub(crate) const TAKEN: usize = 32;

/// The sockets of one core.
pub struct Sockets {
    registry: Registry,
    slots: RefCell<Slab<Rc<Slot>>>,
    /// Clients that are ready, in the order in which they became so.
    line: RefCell<VecDeque<Name>>,
    /// What those in line are ready for, by their places: 0 for who does not stand in it.
    pending: RefCell<Vec<u8>>,
    /// Tasks that have stepped back for others, until the kernel has been asked once more.
    resting: RefCell<Vec<Waker>>,
    /// Tells a socket from an earlier one that had its place.
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
            pending: RefCell::default(),
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
        CoreListener { socket, place: self.place(Class::Client, READ) }
    }

    /// Connects a socket, which must not block.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn connect(self: &Rc<Self>, socket: Socket, to: &SockAddr) -> io::Result<PolledSocket> {
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
        let mut pending = self.pending.borrow_mut();
        match pending.get_mut(key) {
            Some(of_another) => *of_another = 0,
            None => pending.resize(key + 1, 0),
        }
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

    /// Lets a client stand in line, once.
    fn queue(&self, name: Name, found: u8) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(name.key()) {
            if *pending == 0 && found != 0 {
                self.line.borrow_mut().push_back(name);
            }
            *pending |= found;
        }
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

    /// Tells the first of them.
    pub(crate) fn tell_line(&self, most: usize) {
        for _ in 0..most {
            let first = self.line.borrow_mut().pop_front();
            let Some(name) = first else { return };
            if self.is(name) {
                let found = self.pending.borrow_mut().get_mut(name.key()).map(std::mem::take);
                self.tell(name, found.unwrap_or_default());
            }
        }
    }

    /// Whether a socket is still there.
    fn is(&self, name: Name) -> bool {
        self.slots.borrow().get(name.key()).is_some_and(|slot| slot.generation == name.generation())
    }

    /// Tells a socket's tasks what was found, unless it is gone.
    fn tell(&self, name: Name, found: u8) {
        let slots = self.slots.borrow();
        if let Some(slot) = slots.get(name.key()).filter(|slot| slot.generation == name.generation()) {
            slot.tell(found);
        }
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
    /// Waits for what [`READ`] or [`WRITE`] stands for. Keeps the waker of whoever waits: nearly always the one it has already. Fails when
    /// the system cannot watch one more.
    fn wait(&self, socket: &impl AsFd, bit: u8, cx: &Context<'_>) -> io::Result<()> {
        let waiting = if bit == WRITE { &self.slot.writer } else { &self.slot.reader };
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

    /// Tries where it may be possible, else waits.
    fn poll_by<T>(
        &self,
        cx: &Context<'_>,
        socket: &impl AsFd,
        bit: u8,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        if self.slot.is_ready(bit) {
            match attempt() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.slot.forget(bit),
                done => return Poll::Ready(done),
            }
        }
        self.wait(socket, bit, cx)?;
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The close takes it out of the set: to say so would be one system call more.
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
        poll_fn(|cx| self.place.poll_by(cx, &self.socket, READ, || accept(&self.socket))).await
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
        queued(|| accept(&self.socket))
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

// === impl PolledSocket ===

impl PolledSocket {
    /// Reads into the spare capacity of a buffer that has some; 0 is the end.
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = buffer.capacity() - buffer.len();
        self.poll_read_by(cx, room, || Ok(recv(&self.socket, spare_capacity(buffer), RecvFlags::empty())?.1))
    }

    /// The same with a buffer of somebody else's.
    pub(crate) fn poll_read_buf(&self, cx: &Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let read =
            self.poll_read_by(cx, room.len(), || Ok(recv(&self.socket, &mut *room, RecvFlags::empty())?.1));
        read.map_ok(|n| buffer.advance(n))
    }

    fn poll_read_by(
        &self,
        cx: &Context<'_>,
        room: usize,
        mut read: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let slot = &self.place.slot;
        if slot.run.get() >= RUN {
            slot.run.set(0);
            self.place.sockets.rest(cx.waker());
            return Poll::Pending;
        }
        if slot.is_ready(READ | ENDED) {
            match read() {
                Ok(n) => {
                    if n >= room {
                        slot.run.set(slot.run.get().saturating_add(u32::try_from(n).unwrap_or(RUN)));
                    } else {
                        slot.run.set(0);
                        // A short read has emptied the socket: what comes next is reported anew.
                        if n > 0 {
                            slot.forget(READ);
                        }
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.place.slot.forget(READ | ENDED),
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.wait(cx, READ)?;
        Poll::Pending
    }

    /// Writes some of `data`.
    pub(crate) fn poll_write(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(cx, data.len(), || Ok(send(&self.socket, data, SendFlags::NOSIGNAL)?))
    }

    /// Writes some of several pieces that follow each other.
    pub(crate) fn poll_write_vectored(
        &self,
        cx: &Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = data.iter().map(|piece| piece.len()).sum();
        self.poll_write_by(cx, all, || {
            Ok(sendmsg(&self.socket, data, &mut Default::default(), SendFlags::NOSIGNAL)?)
        })
    }

    fn poll_write_by(
        &self,
        cx: &Context<'_>,
        all: usize,
        write: impl FnOnce() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.place.slot.is_ready(WRITE) {
            match write() {
                Ok(n) => {
                    if n < all {
                        self.place.slot.forget(WRITE); // it took what it had room for
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.place.slot.forget(WRITE),
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.wait(cx, WRITE)?;
        Poll::Pending
    }

    /// Sends some of a file that is in memory: the kernel takes the pages as they are.
    pub(crate) fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: &File,
        offset: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        if self.place.slot.is_ready(WRITE) {
            let mut offset = offset;
            match sendfile(&self.socket, file, Some(&mut offset), length) {
                // It may send less than it has room for: only EAGAIN tells that there is none.
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(rustix::io::Errno::AGAIN) => self.place.slot.forget(WRITE),
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
        self.wait(cx, WRITE)?;
        Poll::Pending
    }

    /// Whether a read may bring something, an error too. If not, the task is woken when it may.
    pub(crate) fn may_read(&self, cx: &Context<'_>) -> bool {
        self.place.slot.is_ready(READ | ENDED) || self.wait(cx, READ).is_err()
    }

    /// Reads at most so many bytes behind what is in the buffer, and leaves the rest to the next reader.
    pub(crate) fn poll_read_at_most(
        &self,
        cx: &Context<'_>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let start = buffer.len();
        buffer.resize(start + most, 0);
        let room = &mut buffer[start..];
        let read = self.poll_read_by(cx, most, || Ok(recv(&self.socket, &mut *room, RecvFlags::empty())?.1));
        buffer.truncate(if let Poll::Ready(Ok(n)) = read { start + n } else { start });
        read
    }

    /// See [`Stream::poll_first`](crate::Stream::poll_first).
    pub(crate) fn poll_first(&self, cx: &Context<'_>) -> Poll<io::Result<Option<u8>>> {
        let mut byte = [0];
        let came = self.poll_read_by(cx, 0, || Ok(recv(&self.socket, &mut byte, RecvFlags::PEEK)?.1));
        came.map_ok(|came| byte.first().copied().filter(|_| came > 0))
    }

    /// See [`Stream::is_reset`](crate::Stream::is_reset).
    pub(crate) fn is_reset(&self, cx: &Context<'_>) -> bool {
        if self.is_local {
            return false;
        }
        if self.place.slot.is_ready(READ | ENDED) {
            match recv(&self.socket, &mut [0], RecvFlags::PEEK) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => self.place.slot.forget(READ | ENDED),
                Err(_) => return true,
            }
        }
        self.wait(cx, READ).is_err()
    }

    /// See [`Stream::is_half_closed`](crate::Stream::is_half_closed). The set tells of the end even behind bytes that nobody has read.
    pub(crate) fn is_half_closed(&self) -> bool {
        !self.is_local && self.place.slot.is_ready(ENDED)
    }

    /// See [`Stream::is_quiet`](crate::Stream::is_quiet).
    pub(crate) fn is_quiet(&self) -> bool {
        if self.place.watched.get() && !self.place.slot.is_ready(READ | ENDED) {
            return true;
        }
        let is_quiet = matches!(recv(&self.socket, &mut [0], RecvFlags::PEEK), Err(rustix::io::Errno::AGAIN));
        if is_quiet {
            self.place.slot.forget(READ); // a read that exactly filled its buffer had left it so
        }
        is_quiet
    }

    /// Says that nothing more will be written.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self.socket.shutdown(Shutdown::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()), // the peer is gone
            done => done,
        }
    }

    /// The socket, for what is asked of the system.
    pub(crate) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Our own end; none of a Unix socket.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// See [`Stream::round_trip`](crate::Stream::round_trip).
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        if self.is_local { None } else { round_trip(&self.socket) }
    }

    /// See [`Stream::has_retransmitted`](crate::Stream::has_retransmitted).
    pub(crate) fn has_retransmitted(&self) -> bool {
        !self.is_local && has_retransmitted(&self.socket)
    }

    fn wait(&self, cx: &Context<'_>, bit: u8) -> io::Result<()> {
        self.place.wait(&self.socket, bit, cx)
    }
}

impl AsFd for PolledSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for PolledSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver;
    use crate::driver::tests::on_a_core;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A connection of this core, and its other end, which has sent this already.
    fn pair_after(sent: &[u8]) -> (PolledSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        if !sent.is_empty() {
            peer.write_all(sent).unwrap();
            accepted.peek(&mut [0]).unwrap();
        }
        accepted.set_nonblocking(true).unwrap();
        (driver::sockets().unwrap().add(accepted, Class::Client), peer)
    }

    fn pair() -> (PolledSocket, TcpStream) {
        pair_after(b"")
    }

    async fn read(socket: &PolledSocket, room: usize) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(room);
        poll_fn(|cx| socket.poll_read(cx, &mut buffer)).await.unwrap();
        buffer
    }

    #[test]
    fn bytes_and_the_end_arrive() {
        on_a_core(async {
            let (socket, mut peer) = pair();
            assert!(
                poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8))))
                    .await
                    .is_pending()
            );
            peer.write_all(b"first").unwrap();
            assert_eq!(read(&socket, 64).await, b"first");
            peer.write_all(b"second").unwrap();
            assert_eq!(read(&socket, 3).await, b"sec", "a buffer that was filled");
            assert_eq!(read(&socket, 64).await, b"ond");
            drop(peer);
            assert_eq!(read(&socket, 64).await, b"");
            assert_eq!(read(&socket, 64).await, b"", "the end is told as often as it is asked for");
        });
    }

    #[test]
    fn only_who_waits_is_watched() {
        on_a_core(async {
            let (socket, mut peer) = pair_after(b"first");
            assert_eq!(read(&socket, 64).await, b"first");
            poll_fn(|cx| socket.poll_write(cx, b"answer")).await.unwrap();
            assert!(!socket.place.watched.get());
            let waits = poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8)))).await;
            assert!(waits.is_pending() && socket.place.watched.get());
            peer.write_all(b"second").unwrap();
            assert_eq!(read(&socket, 64).await, b"second");
        });
    }

    #[test]
    fn an_end_behind_bytes_is_not_lost() {
        on_a_core(async {
            let (socket, mut peer) = pair();
            peer.write_all(b"last").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read(&socket, 64).await, b"last");
            assert_eq!(read(&socket, 64).await, b"");
        });
    }

    #[test]
    fn a_writer_waits_for_room() {
        on_a_core(async {
            let (socket, mut peer) = pair();
            let piece = vec![7; 1 << 20];
            let mut sent = 0;
            while let Poll::Ready(wrote) = poll_fn(|cx| Poll::Ready(socket.poll_write(cx, &piece))).await {
                sent += wrote.unwrap();
            }
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all.len()
            });
            let both = [IoSlice::new(b"ab"), IoSlice::new(b"c")];
            sent += poll_fn(|cx| socket.poll_write_vectored(cx, &both)).await.unwrap();
            drop(socket);
            assert_eq!(reader.join().unwrap(), sent);
        });
    }

    #[test]
    fn an_idle_connection_is_quiet_until_something_comes() {
        on_a_core(async {
            let (socket, mut peer) = pair();
            assert!(socket.is_quiet() && !socket.place.slot.is_ready(READ), "the kernel was asked once");
            let waits = poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8)))).await;
            assert!(waits.is_pending());
            peer.write_all(b"unasked").unwrap();
            while socket.is_quiet() {
                crate::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(read(&socket, 64).await, b"unasked", "it stays for the reader");
        });
    }

    #[test]
    fn one_that_was_never_watched_is_asked_whether_it_is_quiet() {
        on_a_core(async {
            let (ours, mut peer) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = driver::sockets().unwrap().add_local(ours, Class::Upstream);
            peer.write_all(b"answer").unwrap();
            assert_eq!(read(&ours, 64).await, b"answer");
            assert!(ours.is_quiet());
            drop(peer);
            assert!(!ours.is_quiet());
        });
    }

    #[test]
    fn others_have_their_turn_beside_what_never_ends() {
        on_a_core(async {
            let (socket, _peer) = pair();
            let room = RUN as usize / 4;
            for _ in 0..3 {
                let reads = poll_fn(|cx| {
                    let full = || socket.poll_read_by(cx, room, || Ok(room)).is_ready();
                    Poll::Ready((0..100).take_while(|_| full()).count())
                });
                assert_eq!(reads.await, 4);
            }
        });
    }

    #[test]
    fn a_client_stands_in_line_once() {
        on_a_core(async {
            let sockets = driver::sockets().unwrap();
            let (socket, _peer) = pair();
            socket.place.slot.forget(READ | WRITE);
            sockets.queue(socket.place.name, READ);
            sockets.queue(socket.place.name, WRITE);
            assert_eq!(sockets.line.borrow().len(), 1);
            sockets.tell_line(TAKEN);
            assert!(socket.place.slot.is_ready(READ) && socket.place.slot.is_ready(WRITE));
            sockets.queue(socket.place.name, READ);
            assert_eq!(sockets.line.borrow().len(), 1, "it may stand there again");
        });
    }

    #[test]
    fn an_upstream_is_told_before_clients() {
        on_a_core(async {
            let told: Rc<RefCell<Vec<&str>>> = Rc::default();
            let wait = |name, socket: PolledSocket| {
                let told = Rc::clone(&told);
                tokio::task::spawn_local(async move {
                    read(&socket, 8).await;
                    told.borrow_mut().push(name);
                })
            };
            let (client, mut its_peer) = pair();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let to = listener.local_addr().unwrap();
            let socket =
                Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM.nonblocking(), None).unwrap();
            let upstream = driver::sockets().unwrap().connect(socket, &to.into()).await.unwrap();
            let (mut its_end, _) = listener.accept().unwrap();
            let (client, upstream) = (wait("client", client), wait("upstream", upstream));
            tokio::task::yield_now().await; // both wait
            its_peer.write_all(b"request").unwrap();
            its_end.write_all(b"answer").unwrap();
            client.await.unwrap();
            upstream.await.unwrap();
            assert_eq!(*told.borrow(), ["upstream", "client"]);
        });
    }

    #[test]
    fn nobody_learns_of_an_earlier_socket_of_its_place() {
        on_a_core(async {
            let sockets = driver::sockets().unwrap();
            let (first, _peer) = pair();
            let name = first.place.name;
            drop(first);
            let (second, _peer) = pair();
            assert_eq!(second.place.name.key(), name.key());
            second.place.slot.forget(READ | ENDED | WRITE);
            sockets.tell(name, READ | ENDED);
            assert!(!second.place.slot.is_ready(READ | ENDED));
            sockets.tell(second.place.name, READ);
            assert!(second.place.slot.is_ready(READ));
        });
    }

    #[test]
    fn a_refused_connect_says_so() {
        on_a_core(async {
            let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let socket =
                Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM.nonblocking(), None).unwrap();
            let refused = driver::sockets().unwrap().connect(socket, &gone.into()).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        });
    }
}
