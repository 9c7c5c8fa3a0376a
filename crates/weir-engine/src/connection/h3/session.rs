//! Joins the codec and a QUIC connection, as a server: passes bytes of QUIC's streams to the codec, and what the
//! codec emits to the streams. One task drives it, and each request has its own [`Stream`](super::stream::Stream).

use bytes::{Buf, Bytes};
use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weir_h3::{Effect, Own, TextCodec, code};
use weir_quic::{Connection, Lost, News, Reader, StreamError, Then, Writer};
use weir_wire::TlsInfo;
use weir_wire::time::{Sleep, sleep};

/// Most bytes that are taken from a stream at a time.
const PIECE: usize = 64 * 1024;

/// Bytes of output from which QUIC gets the codec's buffer. Less is copied, which costs less than another buffer.
const HANDED_OVER: usize = 4096;

/// The least time between the steps of a drain.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// A connection, shared by its streams and its driver.
pub(super) type Shared = Rc<RefCell<Session>>;

/// A connection and its codec.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) codec: TextCodec,
    pub(super) connection: Connection,
    pub(super) tls: Option<TlsInfo>,
    /// Our unidirectional streams, in the order of [`Own::ALL`], as far as the client let us open them.
    own: Vec<Writer>,
    /// The streams that the client opened.
    streams: HashMap<u64, Both, foldhash::fast::FixedState>,
    /// Responses whose end the client has not acknowledged. A close would lose what is still on its way.
    unreceived: usize,
    /// How far a drain has come.
    leaving: Leaving,
    pub(super) lost: Option<Lost>,
    driver: Option<Waker>,
    /// The driver was woken but has not run yet.
    is_called: bool,
}

/// How far a drain has come. A close loses what is on its way, so there is time between the steps.
#[derive(Debug)]
enum Leaving {
    No,
    /// The client was told to send no more requests.
    Announced(Pin<Box<Sleep>>),
    /// Requests that arrive now are refused; a GOAWAY told the client which.
    Refuses(Pin<Box<Sleep>>),
    /// The GOAWAY has had time to arrive.
    Told,
}

/// The two directions of a stream, as far as they are open.
#[derive(Debug, Default)]
struct Both {
    reader: Option<Reader>,
    writer: Option<Writer>,
    /// Bytes that were read but not yet accepted by the codec.
    rest: Bytes,
    /// The end follows `rest`.
    has_end: bool,
}

impl Session {
    pub(super) fn new(connection: Connection, tls: Option<TlsInfo>, codec: TextCodec) -> Shared {
        connection.drive();
        Rc::new(RefCell::new(Self {
            codec,
            connection,
            tls,
            own: Vec::with_capacity(Own::ALL.len()),
            streams: HashMap::default(),
            unreceived: 0,
            leaving: Leaving::No,
            lost: None,
            driver: None,
            is_called: false,
        }))
    }

    /// The driver must call this whenever it starts driving; from then on, writes of streams wake it.
    pub(super) fn drive(&mut self, cx: &Context<'_>) {
        self.is_called = false;
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    /// Wakes the driver if a stream has work for it.
    pub(super) fn call(&mut self) {
        if !self.is_called
            && self.codec.has_effects()
            && let Some(driver) = &self.driver
        {
            self.is_called = true;
            driver.wake_by_ref();
        }
    }

    /// Wakes the driver.
    pub(super) fn call_always(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Reads and writes all streams until each would block.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) {
        let now = Instant::now();
        // Streams that had arrived before the first turn are no news.
        let mut is_opened = self.own.len() < Own::ALL.len();
        while let Poll::Ready(news) = self.connection.poll_news(cx) {
            match news {
                Ok(News::Opened) => is_opened = true,
                Ok(News::Readable(stream)) => self.read(stream, now, cx),
                Ok(News::Writable(stream)) => self.write(stream, now, cx),
                Ok(News::Received(stream)) => {
                    self.unreceived -= usize::from(stream & 3 == 0 && self.unreceived > 0)
                }
                Ok(News::Stopped(stream, code)) => self.codec.stop_came(stream, code, now),
                Err(lost) => {
                    self.lost = Some(lost);
                    self.codec.gone();
                    return;
                }
            }
        }
        if is_opened {
            self.open(now, cx);
        }
        self.step_away(cx);
        while let Some(effect) = self.codec.next_effect() {
            self.carry_out(effect, now, cx);
        }
        self.send_own(cx);
    }

    /// Accepts the streams that the client opened, and opens ours.
    fn open(&mut self, now: Instant, cx: &Context<'_>) {
        while let Poll::Ready(Ok(reader)) = self.connection.poll_accept_one_way(cx) {
            let stream = reader.id();
            self.streams.insert(stream, Both { reader: Some(reader), ..Both::default() });
            self.read(stream, now, cx);
        }
        while let Poll::Ready(Ok((writer, reader))) = self.connection.poll_accept(cx) {
            let stream = reader.id();
            let both = Both { reader: Some(reader), writer: Some(writer), ..Both::default() };
            self.streams.insert(stream, both);
            self.read(stream, now, cx);
        }
        while self.own.len() < Own::ALL.len()
            && let Poll::Ready(Ok(writer)) = self.connection.poll_open_one_way(cx)
        {
            self.own.push(writer);
        }
    }

    /// Reads a stream until it has no more, or the codec takes no more of it.
    fn read(&mut self, stream: u64, now: Instant, cx: &Context<'_>) {
        loop {
            let Some(both) = self.streams.get_mut(&stream) else { return };
            let Some(reader) = both.reader.as_mut().filter(|_| both.rest.is_empty() && !both.has_end) else {
                return;
            };
            let then = match reader.poll_piece(cx, PIECE) {
                Poll::Ready(Ok(piece)) => {
                    (both.rest, both.has_end) = (piece.bytes, piece.then == Then::End);
                    piece.then
                }
                Poll::Ready(Err(StreamError::Reset(code))) => {
                    both.reader = None;
                    self.forget(stream);
                    return self.codec.reset_came(stream, code, now);
                }
                Poll::Ready(Err(_)) | Poll::Pending => return,
            };
            self.pass(stream, now);
            if then != Then::More {
                return;
            }
        }
    }

    /// Passes to the codec what was read.
    fn pass(&mut self, stream: u64, now: Instant) {
        let Some(both) = self.streams.get_mut(&stream) else { return };
        let used = self.codec.receive(stream, &both.rest, both.has_end, now);
        both.rest.advance(used);
        if both.rest.is_empty() {
            both.rest = Bytes::new(); // an empty piece would keep the whole datagram
        }
        if both.has_end && both.rest.is_empty() {
            both.reader = None;
            self.forget(stream);
        }
    }

    /// Writes what the codec has for a stream, as far as there is room.
    fn write(&mut self, stream: u64, now: Instant, cx: &Context<'_>) {
        if stream & 3 != 0 {
            return; // one of ours: `send_own` does that
        }
        loop {
            let Some(both) = self.streams.get_mut(&stream) else { return };
            let Some(writer) = &mut both.writer else { return };
            let pending = self.codec.pending(stream);
            let (len, ends) = (pending.bytes.len(), pending.ends);
            let wrote = match len {
                0 if ends => Poll::Ready(Ok(0)),
                0 => return,
                1..HANDED_OVER => writer.poll_write(cx, pending.bytes),
                HANDED_OVER.. => {
                    let mut rest = Bytes::from(self.codec.take_pending(stream));
                    let wrote = writer.poll_hand_over(cx, &mut rest);
                    self.codec.put_back(stream, rest.into());
                    wrote
                }
            };
            // `put_back` has told the codec what was handed over.
            let untold = |n| if len < HANDED_OVER { n } else { 0 };
            match wrote {
                Poll::Ready(Ok(n)) if n == len && ends => {
                    // It fails if the client reads no more, which is an end too.
                    self.unreceived += usize::from(writer.finish().is_ok());
                    both.writer = None;
                    if both.reader.is_none() {
                        self.streams.remove(&stream);
                    }
                    return self.codec.sent(stream, untold(n), true);
                }
                Poll::Ready(Ok(n)) => self.codec.sent(stream, untold(n), false),
                Poll::Ready(Err(StreamError::Stopped(code))) => {
                    return self.codec.stop_came(stream, code, now);
                }
                Poll::Ready(Err(_)) | Poll::Pending => return,
            }
        }
    }

    /// Frees the record of a stream whose directions are both over.
    fn forget(&mut self, stream: u64) {
        let is_over = |both: &Both| both.reader.is_none() && both.writer.is_none();
        if self.streams.get(&stream).is_some_and(is_over) {
            self.streams.remove(&stream);
        }
    }

    fn carry_out(&mut self, effect: Effect, now: Instant, cx: &Context<'_>) {
        match effect {
            Effect::Write { stream } => self.write(stream, now, cx),
            Effect::Read { stream } => {
                self.pass(stream, now);
                self.read(stream, now, cx);
            }
            Effect::Reset { stream, code } => {
                if let Some(mut writer) = self.streams.get_mut(&stream).and_then(|both| both.writer.take()) {
                    writer.reset(code);
                    self.forget(stream);
                }
            }
            Effect::Stop { stream, code } => {
                if let Some(both) = self.streams.get_mut(&stream)
                    && let Some(mut reader) = both.reader.take()
                {
                    reader.stop(code);
                    both.rest = Bytes::new();
                    self.forget(stream);
                }
            }
            Effect::Prioritize { stream, priority } => {
                if let Some(writer) = self.streams.get(&stream).and_then(|both| both.writer.as_ref()) {
                    writer.set_priority(-i32::from(priority.urgency));
                }
            }
        }
    }

    /// Sends what our unidirectional streams have.
    fn send_own(&mut self, cx: &Context<'_>) {
        for (own, writer) in Own::ALL.into_iter().zip(&mut self.own) {
            while !self.codec.pending_own(own).is_empty()
                && let Poll::Ready(Ok(n)) = writer.poll_write(cx, self.codec.pending_own(own))
            {
                self.codec.sent_own(own, n);
            }
        }
    }

    /// Frees what only requests need.
    pub(super) fn rest(&mut self) {
        self.codec.rest();
        self.streams.shrink_to_fit();
        self.connection.rest();
    }

    /// Begins a drain: GOAWAY in two steps (RFC 9114 §5.2).
    pub(super) fn leave(&mut self) {
        if matches!(self.leaving, Leaving::No) {
            self.codec.leave();
            self.leaving = Leaving::Announced(self.on_its_way());
            self.call_always();
        }
    }

    /// Goes on with a drain.
    fn step_away(&mut self, cx: &mut Context<'_>) {
        if let Leaving::Announced(until) = &mut self.leaving
            && until.as_mut().poll(cx).is_ready()
        {
            self.codec.leave_now();
            self.leaving = Leaving::Refuses(self.on_its_way());
        }
        if let Leaving::Refuses(until) = &mut self.leaving
            && until.as_mut().poll(cx).is_ready()
        {
            self.leaving = Leaving::Told;
        }
    }

    /// How long packets in flight in either direction need to arrive.
    fn on_its_way(&self) -> Pin<Box<Sleep>> {
        Box::pin(sleep(self.connection.round_trip().saturating_mul(2).max(ON_ITS_WAY)))
    }

    /// Whether the connection is idle, and a GOAWAY of a drain has had time to arrive.
    pub(super) fn is_over(&self) -> bool {
        self.codec.is_over() && self.unreceived == 0 && !matches!(self.leaving, Leaving::Refuses(_))
    }

    /// The driver is gone: closes the connection and fails all streams.
    pub(super) fn close(&mut self) {
        let code = self.codec.ended().map_or(code::NO_ERROR, |ended| ended.code);
        self.codec.gone();
        self.streams.clear();
        self.connection.close(code);
    }
}
