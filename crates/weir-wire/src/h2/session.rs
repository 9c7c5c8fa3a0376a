//! Joins the codec and the transport. The driver of a connection reads what has arrived. It sends the output of all
//! streams in one write, after the ready streams have run.

use super::codec::TextCodec;
use super::flood::Fault;
use crate::Transport;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;
use weir_h1::{ParsedHeads, ResponseHead};

/// Bytes reserved per read: two frames of the largest size.
const READ_BYTES: usize = 32 * 1024;

/// Largest buffer for an incomplete frame that an idle connection keeps.
const KEPT_BYTES: usize = 2 * 1024;

/// Most bytes of buffers kept for sending. With one buffer, each of several connections that answer at the same time
/// grew one of its own, for 1,300 instructions per request (row h2-h2c).
const SPARE_BYTES: usize = 512 * 1024;

/// The first size of a buffer for sending, if none is kept.
const OUTPUT_BYTES: usize = 4 * 1024;

thread_local! {
    /// Buffers shared by the connections of this core: those for sending, and one for reading. An idle connection holds
    /// neither.
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { buffers: Vec::new(), bytes: 0 }) };
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Empty buffers for sending, the one used last on top.
///
/// Invariant: `bytes` is the sum of their capacities, at most [`SPARE_BYTES`]. None has more than a quarter of it.
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    fn take(&mut self) -> Vec<u8> {
        let Some(buffer) = self.buffers.pop() else { return Vec::with_capacity(OUTPUT_BYTES) };
        self.bytes -= buffer.capacity();
        buffer
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if bytes <= SPARE_BYTES && (1..=SPARE_BYTES / 4).contains(&buffer.capacity()) {
            weir_fields::wipe(&mut buffer);
            self.bytes = bytes;
            self.buffers.push(buffer);
        }
    }
}

/// Keeps a buffer for the next connection that sends, if there is one.
fn keep_spare(buffer: Option<Vec<u8>>) {
    if let Some(buffer) = buffer {
        SPARE.with_borrow_mut(|kept| kept.give(buffer));
    }
}

/// Frees the buffers that this thread keeps.
pub(super) fn free_buffers() {
    SPARE.set(Spare { buffers: Vec::new(), bytes: 0 });
    INPUT.set(Vec::new());
}

/// A connection, shared by its streams and its driver.
pub(super) type Shared = Rc<RefCell<Session>>;

/// A connection and its codec.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) codec: TextCodec,
    /// Heads of responses that came before.
    pub(super) parsed: ParsedHeads<ResponseHead>,
    /// `None` once the driver is gone.
    transport: Option<Transport>,
    pub(super) tls: Option<crate::TlsInfo>,
    /// The start of an incomplete frame.
    partial: Vec<u8>,
    /// Something was received since the last check.
    heard: bool,
    /// Something was sent since the last check.
    spoke: bool,
    /// Since when the peer has accepted no data.
    blocked: Option<Instant>,
    driver: Option<Waker>,
    /// The driver was woken but has not run yet.
    called: bool,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Streams have arrived.
    Arrivals,
    /// The peer has closed, or reading fails.
    End,
    /// No more input is accepted until answers have left.
    Full,
}

impl Session {
    /// `early`: bytes read before the connection was known to be HTTP/2.
    pub(super) fn new(transport: Transport, early: Vec<u8>, codec: TextCodec) -> Shared {
        let tls = transport.tls();
        Rc::new(RefCell::new(Self {
            codec,
            parsed: ParsedHeads::default(),
            transport: Some(transport),
            tls,
            partial: early,
            heard: false,
            spoke: false,
            blocked: None,
            driver: None,
            called: false,
        }))
    }

    /// The driver must call this whenever it starts driving; from then on, writes of streams wake it.
    pub(super) fn drive(&mut self, cx: &Context<'_>) {
        self.called = false;
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    /// Wakes the driver if a stream has written something. Returns a buffer that was lent in vain, which nothing
    /// else would do for seconds.
    pub(super) fn call(&mut self) {
        if self.codec.has_no_buffer() {
            return; // and so no output
        }
        keep_spare(self.codec.take_buffer());
        if !self.called
            && !self.codec.pending().is_empty()
            && let Some(driver) = &self.driver
        {
            self.called = true;
            driver.wake_by_ref();
        }
    }

    /// Wakes the driver, even with nothing to send.
    pub(super) fn call_always(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Ready when the peer has confirmed that it speaks HTTP/2.
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

    /// Processes the bytes that came before the first read.
    pub(super) fn take_early(&mut self) {
        let early = std::mem::take(&mut self.partial);
        let used = self.codec.receive(&early);
        self.partial = early.get(used..).unwrap_or_default().to_vec();
    }

    /// Reads until no more data is available or streams have arrived.
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
            let Some(transport) = &mut self.transport else { return Poll::Ready(Came::End) };
            input.reserve(READ_BYTES);
            match ready!(transport.poll_read(cx, input)) {
                Ok(0) | Err(_) => return Poll::Ready(Came::End),
                Ok(_) => {}
            }
            (self.heard, self.spoke) = (true, false);
            let used = self.codec.receive(input);
            input.drain(..used);
            transport.socket().brought(self.codec.arrivals());
            if self.codec.arrivals() > 0 {
                return Poll::Ready(Came::Arrivals);
            }
        }
        Poll::Ready(Came::Full)
    }

    /// Sends the collected output.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(transport) = &mut self.transport else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        while !self.codec.pending().is_empty() {
            self.spoke = true;
            match transport.poll_write(cx, self.codec.pending()) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.blocked = None;
                    keep_spare(self.codec.sent(n));
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {
                    self.blocked.get_or_insert_with(Instant::now);
                    return Poll::Pending;
                }
            }
        }
        keep_spare(self.codec.take_buffer());
        transport.poll_flush(cx)
    }

    /// Lends the codec a grown buffer. Call this before writing.
    pub(super) fn lend(&mut self) -> &mut TextCodec {
        if self.codec.has_no_buffer() {
            self.codec.lend(SPARE.with_borrow_mut(Spare::take));
        }
        &mut self.codec
    }

    /// Closes the write side.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Some(transport) => transport.poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Reads and discards.
    pub(super) fn poll_drop(
        &mut self,
        scratch: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Some(transport) => transport.poll_read(cx, scratch),
            None => Poll::Ready(Ok(0)),
        }
    }

    /// Frees what only streams need.
    pub(super) fn rest(&mut self) {
        self.codec.rest();
        self.parsed.clear();
    }

    /// The driver is gone: closes the socket and fails all streams.
    pub(super) fn close(&mut self) {
        self.codec.gone();
        self.transport = None;
    }

    /// Whether something was received since the last call.
    pub(super) const fn take_heard(&mut self) -> bool {
        std::mem::replace(&mut self.heard, false)
    }

    /// Whether something was sent since the last call, with nothing received after it.
    pub(super) const fn take_spoke(&mut self) -> bool {
        std::mem::replace(&mut self.spoke, false)
    }

    /// Since when the peer has accepted no data.
    pub(super) const fn blocked(&self) -> Option<Instant> {
        self.blocked
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Bounds, Role};
    use super::super::flood::FloodLimits;
    use super::super::frame::{self, Kind, PREFACE, code};
    use super::super::stream::H2Stream;
    use super::*;
    use crate::Stream;
    use crate::relay::{Framing, Relay};
    use weir_h1::BodyKind;

    /// A client's connection without a socket that has received SETTINGS and a request, and the request's stream.
    /// `flags` belong to the request's HEADERS frame.
    fn asked(settings: &[u8], flags: u8) -> (Shared, H2Stream) {
        let floods = FloodLimits::default();
        let bounds = Bounds { streams: 8, text: 8192, heads: 64 * 1024, window: 256 * 1024, floods };
        let mut codec = TextCodec::new(Role::Server, bounds);
        // `GET http://a/` in HPACK (RFC 7541 appendix A).
        let get = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];
        let mut bytes = PREFACE.to_vec();
        frame::write(Kind::SETTINGS, 0, 0, settings, &mut bytes);
        frame::write(Kind::HEADERS, frame::END_HEADERS | flags, 1, &get, &mut bytes);
        assert_eq!(codec.receive(&bytes), bytes.len());
        let slot = codec.next_arrival().unwrap();
        let shared = Rc::new(RefCell::new(Session {
            codec,
            parsed: ParsedHeads::default(),
            transport: None,
            tls: None,
            partial: Vec::new(),
            heard: false,
            spoke: false,
            blocked: None,
            driver: None,
            called: false,
        }));
        let stream = H2Stream::server(&shared, slot, false);
        (shared, stream)
    }

    fn hear(shared: &Shared, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::write(kind, flags, stream, payload, &mut bytes);
        assert_eq!(shared.borrow_mut().codec.receive(&bytes), bytes.len());
    }

    /// The driver of an idle connection may not run for seconds, and other connections could use the buffer.
    #[test]
    fn a_buffer_for_a_head_that_is_not_sent_comes_back_at_once() {
        let (shared, mut stream) = asked(&[], frame::END_STREAM);
        hear(&shared, Kind::RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes());
        {
            let codec = &mut shared.borrow_mut().codec;
            let _ = codec.sent(codec.pending().len());
            let _ = codec.take_buffer();
        }
        let wrote = stream.poll_write(&mut Context::from_waker(Waker::noop()), b"HTTP/1.1 200 OK\r\n\r\n");
        assert!(matches!(wrote, Poll::Ready(Err(_))), "{wrote:?}");
        assert!(shared.borrow().codec.has_no_buffer());
    }

    /// RFC 7541 §6.2.3. The relay has read the trailers long before it may send them.
    #[test]
    fn trailers_that_wait_for_a_window_stay_never_indexed() {
        let marked = b"\x10\x05x-key\x06secret";
        let (from, sender) = asked(&[], 0);
        sender.take_head(&mut Vec::new());
        hear(&from, Kind::DATA, 0, 1, b"body");
        hear(&from, Kind::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, marked);
        // The receiver's windows are closed: SETTINGS_INITIAL_WINDOW_SIZE is 0.
        let (to, receiver) = asked(&[0, 4, 0, 0, 0, 0], frame::END_STREAM);
        let (mut sender, mut receiver) = (Stream::H2(sender), Stream::H2(receiver));

        let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        let mut relay = Relay::new(BodyKind::UntilClose, Framing::Close, head);
        relay.read_ahead(1024);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(relay.poll(cx, &mut sender, &mut receiver, None).is_pending() && relay.is_finished());
        hear(&to, Kind::WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes());
        assert!(matches!(relay.poll(cx, &mut sender, &mut receiver, None), Poll::Ready(Ok(()))));
        let session = to.borrow();
        let sent = session.codec.pending();
        assert!(sent.ends_with(marked), "{}", sent.escape_ascii());
    }

    #[test]
    fn buffers_for_sending_are_kept_up_to_a_limit() {
        let mut spare = Spare { buffers: Vec::new(), bytes: 0 };
        for _ in 0..100 {
            spare.give(Vec::with_capacity(20_000));
        }
        assert!(spare.bytes <= SPARE_BYTES && spare.bytes > SPARE_BYTES - 20_000);
        while spare.bytes > 0 {
            assert!(spare.take().is_empty());
        }
        assert!(spare.buffers.is_empty() && spare.take().capacity() >= OUTPUT_BYTES);
    }

    #[test]
    fn a_buffer_shows_nothing_of_its_last_connection() {
        let mut spare = Spare { buffers: Vec::new(), bytes: 0 };
        spare.give(b"secret".to_vec());
        let mut buffer = spare.take();
        assert_eq!((buffer.len(), buffer.capacity()), (0, 6));
        buffer.extend_from_slice(b"other");
        assert_eq!(buffer, b"other");
    }
}
