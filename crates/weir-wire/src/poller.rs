//! The client sockets of one core, and when they are looked at: after everything else.
//!
//! The kernel reports what is ready in the order in which it became so. Among a thousand busy clients the answer that an
//! upstream gave to the first is reported behind the requests of all the others: every request is taken on before any is
//! finished, and all that was touched for it is out of the cache when its answer comes. So client sockets have a set of their
//! own. It stands in the runtime's set as one descriptor, is asked for a few at a time, and only when the runtime has been
//! asked for all the rest: what has an answer waiting is finished before new requests are taken on.
//!
//! A socket here costs one line of memory and no lock. It joins the set when it first must wait: a client that has sent its request
//! by the time it is accepted, and is answered at once, never does.

#![allow(unsafe_code)] // the runtime is told that a descriptor stays open

use slab::Slab;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
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
use tokio::io::unix::AsyncFd;

/// How many sockets are taken at once: few, so that a request is answered while what was touched for it is still in the cache.
const TAKEN: usize = 32;

/// Wakes the tasks of client sockets.
pub struct Poller {
    set: mio::Poll,
    sockets: Rc<Sockets>,
}

/// The client sockets of one core.
pub struct Sockets {
    registry: Registry,
    slots: RefCell<Slab<Rc<Slot>>>,
}

/// A TCP connection among [`Sockets`]. One task reads it and one writes it, which may be the same.
pub struct PolledTcp {
    socket: TcpStream,
    slot: Rc<Slot>,
    key: usize,
    /// Whether it has joined the set.
    watched: Cell<bool>,
    sockets: Rc<Sockets>,
}

/// What is known of a socket.
#[derive(Default)]
struct Slot {
    /// What it can do, as far as is known: see [`READ`] and those beside it.
    ready: Cell<u8>,
    /// Who reads it, and who waits to write. The first stays from one read to the next.
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

/// There may be something to read. Forgotten with a read that brought less than there was room for.
const READ: u8 = 1;
/// Nothing will come any more: a read tells at once.
const ENDED: u8 = 2;
/// There may be room to write. Forgotten with a write that found too little.
const WRITE: u8 = 4;

// === impl Poller ===

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn new() -> io::Result<Self> {
        let set = mio::Poll::new()?;
        let registry = set.registry().try_clone()?;
        Ok(Self { set, sockets: Rc::new(Sockets { registry, slots: RefCell::default() }) })
    }

    /// Its sockets.
    pub fn sockets(&self) -> Rc<Sockets> {
        Rc::clone(&self.sockets)
    }

    /// Wakes the tasks of sockets that are ready, for as long as it runs.
    ///
    /// # Errors
    /// When the runtime or the system cannot watch the set.
    pub async fn run(self) -> io::Result<()> {
        // SAFETY: the set owns its descriptor, and the `AsyncFd` owns the set.
        let mut set = unsafe { AsyncFd::register_with_interest(self.set, tokio::io::Interest::READABLE) }?;
        let mut events = Events::with_capacity(TAKEN);
        loop {
            let mut ready = set.readable_mut().await?;
            if let Err(e) = ready.get_inner_mut().poll(&mut events, Some(Duration::ZERO)) {
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
                continue;
            }
            self.sockets.note(&events);
            if events.iter().count() < TAKEN {
                ready.clear_ready(); // these were all: the runtime tells of the next
            } else {
                // Behind the tasks that were woken, and behind all that the runtime finds ready then.
                tokio::task::yield_now().await;
            }
        }
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sockets.fmt(f)
    }
}

// === impl Sockets ===

impl Sockets {
    /// Takes in a connection. It must not block.
    pub fn add(self: &Rc<Self>, socket: TcpStream) -> PolledTcp {
        let slot = Rc::new(Slot { ready: Cell::new(READ | WRITE), ..Slot::default() });
        let key = self.slots.borrow_mut().insert(Rc::clone(&slot));
        PolledTcp { socket, slot, key, watched: Cell::new(false), sockets: Rc::clone(self) }
    }

    fn note(&self, events: &Events) {
        let slots = self.slots.borrow();
        for event in events {
            if let Some(slot) = slots.get(event.token().0) {
                slot.note(event);
            }
        }
    }
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").field("count", &self.slots.borrow().len()).finish()
    }
}

// === impl Slot ===

impl Slot {
    fn note(&self, event: &Event) {
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
        self.ready.set(self.ready.get() | found);
        if found & READ != 0
            && let Some(waker) = &*self.reader.borrow()
        {
            waker.wake_by_ref();
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

// === impl PolledTcp ===

impl PolledTcp {
    /// Waits to read.
    fn wait_to_read(&self, cx: &Context<'_>) -> io::Result<()> {
        self.wait(&self.slot.reader, cx)
    }

    /// Waits for room to write.
    fn wait_to_write(&self, cx: &Context<'_>) -> io::Result<()> {
        self.wait(&self.slot.writer, cx)
    }

    /// Keeps the waker of whoever waits: nearly always the one it has already. Fails when the system cannot watch one more.
    fn wait(&self, waiting: &RefCell<Option<Waker>>, cx: &Context<'_>) -> io::Result<()> {
        {
            let mut waiting = waiting.borrow_mut();
            match &*waiting {
                Some(known) if known.will_wake(cx.waker()) => {}
                _ => *waiting = Some(cx.waker().clone()),
            }
        }
        if !self.watched.get() {
            self.watch()?;
        }
        Ok(())
    }

    /// Joins the set, which tells at once of what has come by now.
    #[cold]
    fn watch(&self) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let source = self.socket.as_raw_fd();
        self.sockets.registry.register(&mut SourceFd(&source), Token(self.key), interest)?;
        self.watched.set(true);
        Ok(())
    }

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
        if self.slot.is_ready(READ | ENDED) {
            match read() {
                Ok(n) => {
                    // A short read has emptied the socket: what comes next is reported anew.
                    if n > 0 && n < room {
                        self.slot.forget(READ);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.slot.forget(READ | ENDED),
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.wait_to_read(cx)?;
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
        if self.slot.is_ready(WRITE) {
            match write() {
                Ok(n) => {
                    if n < all {
                        self.slot.forget(WRITE); // it took what it had room for
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.slot.forget(WRITE),
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.wait_to_write(cx)?;
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
        if self.slot.is_ready(WRITE) {
            let mut offset = offset;
            match sendfile(&self.socket, file, Some(&mut offset), length) {
                // It may send less than it has room for: only EAGAIN tells that there is none.
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(rustix::io::Errno::AGAIN) => self.slot.forget(WRITE),
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
        self.wait_to_write(cx)?;
        Poll::Pending
    }

    /// Whether a read may bring something, an error too. If not, the task is woken when it may.
    pub(crate) fn may_read(&self, cx: &Context<'_>) -> bool {
        self.slot.is_ready(READ | ENDED) || self.wait_to_read(cx).is_err()
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
        if self.slot.is_ready(READ | ENDED) {
            match recv(&self.socket, &mut [0], RecvFlags::PEEK) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => self.slot.forget(READ | ENDED),
                Err(_) => return true,
            }
        }
        self.wait_to_read(cx).is_err()
    }

    /// See [`Stream::is_half_closed`](crate::Stream::is_half_closed). The set tells of the end even behind bytes that nobody has read.
    pub(crate) fn is_half_closed(&self) -> bool {
        self.slot.is_ready(ENDED)
    }

    /// Says that nothing more will be written.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self.socket.shutdown(Shutdown::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()), // the peer is gone
            done => done,
        }
    }

    /// The socket, for what is asked of the system.
    pub(crate) const fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

impl AsFd for PolledTcp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PolledTcp {
    fn drop(&mut self) {
        // The close takes it out of the set: to say so would be one system call more.
        self.sockets.slots.borrow_mut().remove(self.key);
    }
}

impl std::fmt::Debug for PolledTcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A connection in a poller that runs, and its other end, which has sent this already.
    async fn pair_after(sent: &[u8]) -> (PolledTcp, TcpStream) {
        let poller = Poller::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        if !sent.is_empty() {
            peer.write_all(sent).unwrap();
            accepted.peek(&mut [0]).unwrap();
        }
        accepted.set_nonblocking(true).unwrap();
        let polled = poller.sockets().add(accepted);
        tokio::task::spawn_local(poller.run());
        (polled, peer)
    }

    async fn pair() -> (PolledTcp, TcpStream) {
        pair_after(b"").await
    }

    async fn read(socket: &PolledTcp, room: usize) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(room);
        poll_fn(|cx| socket.poll_read(cx, &mut buffer)).await.unwrap();
        buffer
    }

    fn local(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn bytes_and_the_end_arrive() {
        local(async {
            let (socket, mut peer) = pair().await;
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
        local(async {
            let (socket, mut peer) = pair_after(b"first").await;
            assert_eq!(read(&socket, 64).await, b"first");
            poll_fn(|cx| socket.poll_write(cx, b"answer")).await.unwrap();
            assert!(!socket.watched.get());
            let waits = poll_fn(|cx| Poll::Ready(socket.poll_read(cx, &mut Vec::with_capacity(8)))).await;
            assert!(waits.is_pending() && socket.watched.get());
            peer.write_all(b"second").unwrap();
            assert_eq!(read(&socket, 64).await, b"second");
        });
    }

    #[test]
    fn an_end_behind_bytes_is_not_lost() {
        local(async {
            let (socket, mut peer) = pair().await;
            peer.write_all(b"last").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read(&socket, 64).await, b"last");
            assert_eq!(read(&socket, 64).await, b"");
        });
    }

    #[test]
    fn a_writer_waits_for_room() {
        local(async {
            let (socket, mut peer) = pair().await;
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
    fn a_place_is_taken_again() {
        local(async {
            let poller = Poller::new().unwrap();
            let (first, _kept) = pair().await;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            for _ in 0..3 {
                let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let polled = poller.sockets().add(listener.accept().unwrap().0);
                assert_eq!(polled.key, 0);
            }
            assert_eq!(first.key, 0, "of another poller");
        });
    }
}
