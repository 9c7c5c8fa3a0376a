//! Between the codec and the socket. Whoever drives a connection reads what is there, and sends what all streams have written
//! in one go, once those that were ready have had their turn.

use super::codec::TextCodec;
use super::flood::Fault;
use crate::Stream;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

/// What one read makes room for: two frames of the largest size.
const READ_BYTES: usize = 32 * 1024;

/// Largest buffer for the beginning of a frame that an idle connection keeps.
const KEPT_BYTES: usize = 2 * 1024;

/// Largest buffer that is kept for the next connection.
const SPARE_BYTES: usize = 128 * 1024;

thread_local! {
    /// The buffer of whoever sent last on this core, and that of whoever read. An idle connection holds neither.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection as its streams and whoever drives it share it.
pub(super) type Shared = Rc<RefCell<Transport>>;

/// A socket and the codec above it.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) codec: TextCodec,
    /// None once whoever drove it is gone.
    stream: Option<Stream>,
    pub(super) tls: Option<crate::TlsInfo>,
    /// The beginning of a frame whose end is still to come.
    partial: Vec<u8>,
    /// Something was received since it was last asked.
    heard: bool,
    /// The same of what was sent.
    spoke: bool,
    /// Since when the peer takes nothing.
    blocked: Option<Instant>,
    driver: Option<Waker>,
    /// The driver was woken, and has not looked yet.
    called: bool,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Streams have arrived.
    Arrivals,
    /// The peer has closed, or cannot be read any more.
    End,
    /// Nothing more is taken before answers have left.
    Full,
}

impl Transport {
    /// `early`: what was read before it was known that this is HTTP/2.
    pub(super) fn new(stream: Stream, early: Vec<u8>, codec: TextCodec) -> Shared {
        let tls = stream.tls();
        Rc::new(RefCell::new(Self {
            codec,
            stream: Some(stream),
            tls,
            partial: early,
            heard: false,
            spoke: false,
            blocked: None,
            driver: None,
            called: false,
        }))
    }

    /// To be called by whoever drives it, whenever it begins to: from here on it is woken by what streams write.
    pub(super) fn drive(&mut self, cx: &Context<'_>) {
        self.called = false;
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    /// Has whoever drives it look: a stream has written.
    pub(super) fn call(&mut self) {
        if !self.called
            && !self.codec.pending().is_empty()
            && let Some(driver) = &self.driver
        {
            self.called = true;
            driver.wake_by_ref();
        }
    }

    /// Has whoever drives it look, also without anything to send.
    pub(super) fn call_always(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Ready when the peer has said that it speaks HTTP/2.
    pub(super) fn poll_greeting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.drive(cx);
        let came = if self.codec.is_greeted() { Poll::Pending } else { self.poll_receive(cx) };
        let sent = self.poll_send(cx);
        match (self.codec.ended(), sent) {
            (Some(fault), sent) => sent.map(|_| Err(fault)),
            (None, Poll::Ready(Err(_))) => Poll::Ready(Err(Fault::Closed)),
            _ if self.codec.is_greeted() => Poll::Ready(Ok(())),
            _ if came == Poll::Ready(Came::End) => Poll::Ready(Err(Fault::Closed)),
            _ => Poll::Pending,
        }
    }

    /// Takes what came before the first read.
    pub(super) fn take_early(&mut self) {
        let early = std::mem::take(&mut self.partial);
        let used = self.codec.receive(&early);
        self.partial = early.get(used..).unwrap_or_default().to_vec();
    }

    /// Reads until nothing more is there or streams have arrived.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        let mut input = INPUT.take();
        input.clear();
        input.append(&mut self.partial);
        let came = self.read_into(&mut input, cx);
        if !input.is_empty() {
            self.partial.extend_from_slice(&input);
        } else if self.partial.capacity() > KEPT_BYTES {
            self.partial = Vec::new();
        }
        INPUT.set(input);
        came
    }

    fn read_into(&mut self, input: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<Came> {
        while self.codec.wants_more() {
            let Some(stream) = &mut self.stream else { return Poll::Ready(Came::End) };
            input.reserve(READ_BYTES);
            match ready!(stream.poll_read(cx, input)) {
                Ok(0) | Err(_) => return Poll::Ready(Came::End),
                Ok(_) => {}
            }
            (self.heard, self.spoke) = (true, false);
            let used = self.codec.receive(input);
            input.drain(..used);
            if self.codec.has_arrivals() {
                return Poll::Ready(Came::Arrivals);
            }
        }
        Poll::Ready(Came::Full)
    }

    /// Sends what was gathered.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        while !self.codec.pending().is_empty() {
            self.spoke = true;
            match stream.poll_write(cx, self.codec.pending()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.blocked = None;
                    if let Some(spare) = self.codec.sent(n)
                        && spare.capacity() <= SPARE_BYTES
                    {
                        SPARE.set(spare);
                    }
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {
                    self.blocked.get_or_insert_with(Instant::now);
                    return Poll::Pending;
                }
            }
        }
        stream.poll_flush(cx)
    }

    /// Lends the codec a buffer that is grown already. To be called before something is written.
    pub(super) fn lend(&mut self) -> &mut TextCodec {
        if self.codec.out.capacity() == 0 {
            self.codec.lend(SPARE.take());
        }
        &mut self.codec
    }

    /// Says that nothing more will be sent.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Some(stream) => stream.poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Reads and drops.
    pub(super) fn poll_drop(
        &mut self,
        scratch: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Some(stream) => stream.poll_read(cx, scratch),
            None => Poll::Ready(Ok(0)),
        }
    }

    /// Whoever drove it is gone: the socket is closed, and all streams fail.
    pub(super) fn close(&mut self) {
        self.codec.gone();
        self.stream = None;
    }

    /// Whether something was received since the last question.
    pub(super) const fn take_heard(&mut self) -> bool {
        std::mem::replace(&mut self.heard, false)
    }

    /// Whether something was sent since the last question and nothing was received after it.
    pub(super) const fn take_spoke(&mut self) -> bool {
        std::mem::replace(&mut self.spoke, false)
    }

    /// Since when the peer takes nothing of what is sent to it.
    pub(super) const fn blocked(&self) -> Option<Instant> {
        self.blocked
    }
}
