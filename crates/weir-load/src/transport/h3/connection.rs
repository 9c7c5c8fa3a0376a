//! An HTTP/3 connection to a target: takes requests and returns answers. It moves the bytes of streams between QUIC and
//! weir-h3's codec, which is the protocol; `sink` processes responses.
//!
//! Streams are opened before requests need them, because only an attempt tells whether the target allows another one.
//! Opening sends nothing.

use super::ready::Ready;
use super::request::data_header;
use crate::transport::failure::Failure;
use crate::transport::h2::counter::{Answer, Counter, Lost};
use crate::transport::h2::request::Rendered;
use crate::transport::reader::Response;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use weir_h3::qpack::DecoderLimits;
use weir_h3::{Bounds, Codec, Effect, FloodLimits, Own, Role, code};
use weir_quic::{Lost as QuicLost, Reader, StreamError, Writer};
use weir_report::report::Protocol;

/// Longest field section.
const SECTION_MOST: usize = 256 * 1024;

/// QPACK as in nghttp3's clients: a table of 4 KiB, and 100 streams that may wait for it.
const DECODER: DecoderLimits = DecoderLimits { capacity: 4096, blocked: 100 };

/// The limits that concern a client. Bodies are read at once, so none waits.
const BOUNDS: Bounds = Bounds {
    streams: 1,
    text: SECTION_MOST,
    heads: usize::MAX,
    body: usize::MAX,
    bodies: usize::MAX,
    out: usize::MAX,
    outs: usize::MAX,
    decoder: DECODER,
    encoder: 0,
    floods: FloodLimits::NONE,
};

/// Bytes read from a stream at a time.
const PIECE: usize = 64 * 1024;

/// Unidirectional streams of the target that are read at a time; `dial` allows as many.
pub(super) const THEIRS: usize = 16;

/// A target that raises its limit of streams with use has done so after this many requests per wanted stream.
const SETTLED: usize = 4;

/// The places of [`Ready`]. This one: the target opened a stream.
const ACCEPT: usize = 0;
/// We can open a stream.
const OPEN: usize = 1;
/// The connection has ended.
const ENDED: usize = 2;
/// The target reads more of a unidirectional stream of ours, or lets us open one.
const OURS: usize = 3;
/// The target's unidirectional streams.
const FIRST_THEIRS: usize = 4;
/// Requests.
const FIRST_CALL: usize = FIRST_THEIRS + THEIRS;

/// The stream of a request that could not begin: no stream has it.
const NONE: u64 = u64::MAX;

/// One connection.
///
/// Invariant: `calls` has every request begun by [`Connection::request`] that neither an [`Answer`] nor
/// [`Connection::cancel`] has ended; its place is the key that the codec's sink knows.
#[derive(Debug)]
pub(crate) struct Connection {
    quic: weir_quic::Connection,
    codec: Codec<Counter>,
    /// Our unidirectional streams, in the order of [`Own::ALL`]; fewer until the target allows them.
    own: Vec<Writer>,
    theirs: [Option<Reader>; THEIRS],
    /// Streams for the next requests.
    spare: VecDeque<(Writer, Reader)>,
    /// Most requests at a time that may be wanted.
    width: usize,
    /// Most requests that were in flight at a time.
    most: usize,
    /// Requests begun so far.
    begun: usize,
    calls: Vec<Option<Call>>,
    free: Vec<usize>,
    /// Places by stream.
    places: HashMap<u64, usize>,
    /// Places of requests that are not completely written.
    sending: Vec<usize>,
    ready: Arc<Ready>,
    wakers: Vec<Waker>,
    /// Places that have something to do.
    due: Vec<usize>,
    /// We closed the connection, or it ended: no further request may begin.
    closed: bool,
    /// Bytes received that belong to no response and were not reported yet.
    overhead: u64,
}

/// A request in flight.
#[derive(Debug)]
struct Call {
    id: u64,
    /// The caller's key.
    key: usize,
    slot: usize,
    /// `None` once everything is written.
    writer: Option<Writer>,
    reader: Option<Reader>,
    /// The request's body, and the offset of its unsent part.
    body: Option<(Arc<[u8]>, usize)>,
    /// What the codec has not taken yet: a section that waits for the dynamic table, and what follows it.
    rest: Vec<u8>,
    got_fin: bool,
    /// Bytes received on the stream.
    received: u64,
    is_captured: bool,
}

impl Connection {
    /// Begins a connection, on which `width` requests at a time may be wanted.
    pub(crate) fn new(quic: weir_quic::Connection, counter: Counter, width: usize) -> Self {
        let ready = Arc::new(Ready::default());
        let wakers = (0..FIRST_CALL).map(|place| ready.waker(place)).collect();
        let mut this = Self {
            quic,
            codec: Codec::begin(counter, Role::Client, BOUNDS),
            own: Vec::new(),
            theirs: Default::default(),
            spare: VecDeque::new(),
            width,
            most: 0,
            begun: 0,
            calls: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            sending: Vec::new(),
            ready,
            wakers,
            due: vec![ACCEPT, ENDED],
            closed: false,
            overhead: 0,
        };
        this.refill();
        this
    }

    /// Collects the responses.
    pub(crate) const fn counter(&mut self) -> &mut Counter {
        &mut self.codec.sink
    }

    // === lifecycle ===

    /// How many waiting requests may begin here now. If none may any more, returns all, so that they go elsewhere.
    pub(crate) fn room(&self) -> usize {
        if self.is_closing() { usize::MAX } else { self.spare.len() }
    }

    /// How many concurrent streams the target allows, if fewer than wanted. `None` at first, since a target may raise
    /// its limit once many are in use, as Weir does.
    pub(crate) const fn allowed(&self) -> Option<u64> {
        let is_known = self.begun >= SETTLED.saturating_mul(self.width) && self.most < self.width;
        if is_known { Some(self.most as u64) } else { None }
    }

    /// Whether no further request may begin.
    pub(crate) const fn is_closing(&self) -> bool {
        self.closed || !self.codec.is_open()
    }

    /// Lets no further request begin.
    pub(crate) const fn close(&mut self) {
        self.closed = true;
    }

    /// Whether no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    /// Ends the connection.
    pub(crate) fn leave(&mut self) {
        self.closed = true;
        self.quic.close(self.codec.ended().map_or(code::NO_ERROR, |ended| ended.code));
    }

    /// Ends all requests without a response; returns their keys and the data received for them.
    pub(crate) fn abandon(&mut self) -> Vec<(usize, Response)> {
        self.leave();
        let mut left: Vec<_> = self.calls.iter().flatten().map(|call| (call.id, call.key)).collect();
        left.sort_unstable();
        let left = left.into_iter().map(|(id, key)| (key, self.cancel(id))).collect();
        self.codec.gone();
        self.spare.clear();
        left
    }

    /// Bytes read since the last call that belong to no response.
    pub(crate) const fn take_overhead(&mut self) -> u64 {
        std::mem::replace(&mut self.overhead, 0)
    }

    // === requests ===

    /// Begins a request and returns its stream. `body` is sent from the given offset. The caller has looked for
    /// [`Connection::room`].
    pub(crate) fn request(
        &mut self,
        key: usize,
        head: &Rendered,
        body: Option<(&Arc<[u8]>, usize)>,
        is_head: bool,
    ) -> u64 {
        let asked = self.ask(key, head, body, is_head);
        debug_assert!(asked.is_some(), "the caller has looked for room");
        asked.unwrap_or(NONE)
    }

    fn ask(
        &mut self,
        key: usize,
        head: &Rendered,
        body: Option<(&Arc<[u8]>, usize)>,
        is_head: bool,
    ) -> Option<u64> {
        let len = body.map_or(0, |(bytes, at)| bytes.len() - at);
        // The body itself does not pass the codec: it would copy it.
        if self.spare.is_empty() {
            return None;
        }
        let asked = match len {
            0 => self.codec.ask(head.bytes(), is_head, true),
            _ => self.codec.ask(&[head.bytes(), &data_header(len)].concat(), is_head, false),
        };
        let slot = asked?;
        let (writer, reader) = self.spare.pop_front()?;
        let id = writer.id();
        debug_assert_eq!(self.codec.stream_of(slot), Some(id));
        let place = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            self.wakers.push(self.ready.waker(FIRST_CALL + self.calls.len() - 1));
            self.calls.len() - 1
        });
        let is_captured = self.codec.sink.is_wanted(id);
        let stream = self.codec.kept(slot);
        (stream.key, stream.first, stream.is_captured) = (place, 0, is_captured);
        stream.response = Response { protocol: Protocol::Http3, keeps: true, ..Response::default() };
        self.calls[place] = Some(Call {
            id,
            key,
            slot,
            writer: Some(writer),
            reader: Some(reader),
            body: body.filter(|_| len > 0).map(|(bytes, at)| (Arc::clone(bytes), at)),
            rest: Vec::new(),
            got_fin: false,
            received: 0,
            is_captured,
        });
        self.places.insert(id, place);
        (self.begun, self.most) = (self.begun.saturating_add(1), self.most.max(self.places.len()));
        self.sending.push(place);
        self.due.push(FIRST_CALL + place); // so that its reader gets a waker
        Some(id)
    }

    /// Whether part of a request is unsent.
    pub(crate) fn is_sending(&self, id: u64) -> bool {
        self.places.get(&id).is_some_and(|place| self.sending.contains(place))
    }

    /// Cancels a request; returns what was received of its response.
    pub(crate) fn cancel(&mut self, id: u64) -> Response {
        let Some(&place) = self.places.get(&id) else { return Response::default() };
        let Some(call) = self.calls.get(place).and_then(Option::as_ref) else { return Response::default() };
        let (slot, received) = (call.slot, call.received);
        if let Some(told) = self.codec.sink.answers.iter().position(|answer| answer.key == place) {
            // It has just failed, and the codec has freed its slot.
            self.codec.sink.answers.remove(told);
            self.forget(place);
            return Response::default();
        }
        let mut response = self.codec.kept(slot).response;
        response.framing_bytes = received.saturating_sub(response.head_bytes + response.body_bytes);
        let told = self.codec.sink.answers.len();
        self.codec.reset(slot, code::REQUEST_CANCELLED);
        self.codec.sink.answers.truncate(told); // the caller knows
        self.effects(Instant::now(), &mut Vec::new());
        self.forget(place);
        self.refill();
        response
    }

    /// Frees the place of a request that is over.
    fn forget(&mut self, place: usize) -> Option<Call> {
        let call = self.calls.get_mut(place)?.take()?;
        self.places.remove(&call.id);
        self.sending.retain(|other| *other != place);
        self.free.push(place);
        Some(call)
    }

    /// Opens streams for as many requests as may be wanted.
    fn refill(&mut self) {
        let wanted = if self.closed { 0 } else { self.width.saturating_sub(self.places.len()) };
        while self.spare.len() < wanted
            && let Poll::Ready(Ok(both)) = self.quic.poll_open(&Context::from_waker(&self.wakers[OPEN]))
        {
            self.spare.push_back(both);
        }
    }

    // === output ===

    /// Passes to QUIC what it takes of the requests and of our own streams.
    pub(crate) fn write(&mut self) {
        let cx = Context::from_waker(&self.wakers[OURS]);
        while self.own.len() < Own::ALL.len()
            && let Poll::Ready(Ok(writer)) = self.quic.poll_open_one_way(&cx)
        {
            self.own.push(writer);
        }
        for (own, writer) in Own::ALL.into_iter().zip(&mut self.own) {
            while !self.codec.pending_own(own).is_empty()
                && let Poll::Ready(Ok(n)) = writer.poll_write(&cx, self.codec.pending_own(own))
            {
                self.codec.sent_own(own, n);
            }
        }
        let mut sending = std::mem::take(&mut self.sending);
        sending.retain(|place| !self.send(*place));
        self.sending = sending;
    }

    /// Writes as much of a request as QUIC takes; returns whether nothing is left.
    fn send(&mut self, place: usize) -> bool {
        let (Some(Some(call)), Some(waker)) =
            (self.calls.get_mut(place), self.wakers.get(FIRST_CALL + place))
        else {
            return true;
        };
        let Some(writer) = &mut call.writer else { return true };
        let cx = Context::from_waker(waker);
        loop {
            let head = self.codec.pending(call.id).bytes;
            let is_head = !head.is_empty();
            let body = call.body.as_ref().and_then(|(bytes, at)| bytes.get(*at..)).unwrap_or_default();
            let bytes = if is_head { head } else { body };
            if bytes.is_empty() {
                break;
            }
            match writer.poll_write(&cx, bytes) {
                Poll::Ready(Ok(n)) if is_head => self.codec.sent(call.id, n, false),
                Poll::Ready(Ok(n)) => call.body.iter_mut().for_each(|(_, at)| *at += n),
                Poll::Ready(Err(StreamError::Stopped(code))) => {
                    // An answer or a failure is read next; the codec's effect resets the writer.
                    self.codec.stop_came(call.id, code, Instant::now());
                    self.due.push(FIRST_CALL + place);
                    return true;
                }
                Poll::Ready(Err(_)) => return true, // the connection has ended, which is read next
                Poll::Pending => return false,
            }
        }
        if call.body.take().is_some() {
            let _ = self.codec.send_end(call.slot, b""); // it fails if the stream has, which is told elsewhere
        }
        let _ = writer.finish(); // it fails if the target reads no more, and then resets the stream
        call.writer = None;
        self.codec.sent(call.id, 0, true);
        true
    }

    // === input ===

    /// Reads from all streams that have something, and appends the answers that it completes to `answers`. `scratch`
    /// is for reuse, and `now` reads the clock of the run.
    ///
    /// # Errors
    /// How the connection ended. Requests in flight are left to [`Connection::abandon`].
    pub(crate) fn poll_read(
        &mut self,
        cx: &Context<'_>,
        scratch: &mut Vec<u8>,
        now: impl FnOnce() -> u64,
        answers: &mut Vec<Answer>,
    ) -> Poll<Result<(), Failure>> {
        self.ready.watch(cx.waker());
        self.ready.take(&mut self.due);
        if self.due.is_empty() && self.codec.sink.answers.is_empty() {
            return Poll::Pending;
        }
        self.codec.sink.now = now();
        let at = Instant::now();
        let mut due = std::mem::take(&mut self.due);
        let mut lost = None;
        for place in due.drain(..) {
            match place {
                ACCEPT => self.accept(),
                OPEN | OURS => {} // both are tried below, and in `write`
                ENDED => {
                    if let Poll::Ready(why) = self.quic.poll_lost(&Context::from_waker(&self.wakers[ENDED])) {
                        lost = Some(why);
                    }
                }
                FIRST_THEIRS..FIRST_CALL => self.read_theirs(place, scratch, at),
                _ => self.read(place - FIRST_CALL, scratch, at),
            }
        }
        if self.due.is_empty() {
            self.due = due; // keeps its capacity
        }
        self.effects(at, scratch);
        self.settle(answers);
        self.refill();
        if let Some(ended) = self.codec.ended().filter(|_| !self.closed) {
            return Poll::Ready(Err(Failure::Protocol(format!("HTTP/3: {}", ended.rule))));
        }
        match lost {
            Some(why) => Poll::Ready(Err(failure(&why))),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Takes the unidirectional streams that the target opened.
    fn accept(&mut self) {
        while let Some(free) = self.theirs.iter().position(Option::is_none)
            && let Poll::Ready(Ok(reader)) =
                self.quic.poll_accept_one_way(&Context::from_waker(&self.wakers[ACCEPT]))
        {
            self.theirs[free] = Some(reader);
            self.due.push(FIRST_THEIRS + free);
        }
    }

    fn read_theirs(&mut self, place: usize, scratch: &mut Vec<u8>, at: Instant) {
        let (Some(reader), Some(waker)) = (&mut self.theirs[place - FIRST_THEIRS], self.wakers.get(place))
        else {
            return;
        };
        loop {
            scratch.clear();
            let is_over = match reader.poll_read(&Context::from_waker(waker), scratch, PIECE) {
                Poll::Pending => return,
                Poll::Ready(Ok(n)) => {
                    self.overhead += n as u64;
                    self.codec.receive(reader.id(), scratch, n == 0, at);
                    n == 0
                }
                Poll::Ready(Err(StreamError::Reset(code))) => {
                    self.codec.reset_came(reader.id(), code, at);
                    true
                }
                Poll::Ready(Err(_)) => true, // stopped, or the connection has ended
            };
            if is_over {
                self.theirs[place - FIRST_THEIRS] = None;
                self.due.push(ACCEPT); // there is a free place
                return;
            }
        }
    }

    fn read(&mut self, place: usize, scratch: &mut Vec<u8>, at: Instant) {
        let Some(waker) = self.wakers.get(FIRST_CALL + place) else { return };
        while let Some(Some(call)) = self.calls.get_mut(place)
            && call.rest.is_empty()
            && !call.got_fin
            && let Some(reader) = &mut call.reader
        {
            scratch.clear();
            match reader.poll_read(&Context::from_waker(waker), scratch, PIECE) {
                Poll::Pending => return,
                Poll::Ready(Ok(n)) => {
                    call.got_fin = n == 0;
                    call.received += n as u64;
                    if call.is_captured {
                        self.codec.sink.keep(scratch);
                    }
                    let used = self.codec.receive(call.id, scratch, call.got_fin, at);
                    call.rest.extend_from_slice(scratch.get(used..).unwrap_or_default());
                    // An effect may have stopped the stream.
                    if self.codec.ended().is_some() {
                        return;
                    }
                }
                Poll::Ready(Err(StreamError::Reset(code))) => {
                    call.reader = None;
                    self.codec.reset_came(call.id, code, at);
                }
                Poll::Ready(Err(_)) => return, // the connection has ended, which is read elsewhere
            }
        }
    }

    /// Carries out what the codec asks for.
    fn effects(&mut self, at: Instant, scratch: &mut Vec<u8>) {
        while let Some(effect) = self.codec.next_effect() {
            let (Effect::Prioritize { stream, .. }
            | Effect::Read { stream }
            | Effect::Reset { stream, .. }
            | Effect::Stop { stream, .. }
            | Effect::Write { stream }) = effect;
            if let Effect::Stop { stream, code } = effect
                && stream & 3 != 0
            {
                let stopped = self.theirs.iter_mut().find(|r| r.as_ref().is_some_and(|r| r.id() == stream));
                if let Some(mut reader) = stopped.and_then(Option::take) {
                    reader.stop(code);
                }
                continue;
            }
            let Some(&place) = self.places.get(&stream) else { continue };
            let Some(Some(call)) = self.calls.get_mut(place) else { continue };
            match effect {
                Effect::Reset { code, .. } => {
                    if let Some(mut writer) = call.writer.take() {
                        writer.reset(code);
                    }
                }
                Effect::Stop { code, .. } => {
                    if let Some(mut reader) = call.reader.take() {
                        reader.stop(code);
                    }
                }
                Effect::Read { .. } => {
                    let rest = std::mem::take(&mut call.rest);
                    let used = self.codec.receive(call.id, &rest, call.got_fin, at);
                    call.rest.extend_from_slice(rest.get(used..).unwrap_or_default());
                    self.read(place, scratch, at);
                }
                Effect::Prioritize { .. } | Effect::Write { .. } => {} // `sending` has it already
            }
        }
    }

    /// Frees the requests that got their answers, and moves these to `answers`.
    fn settle(&mut self, answers: &mut Vec<Answer>) {
        let mut own = std::mem::take(&mut self.codec.sink.answers);
        for answer in &own {
            // The target needs no more of the request: what is left of it is not sent.
            if let Some(Some(call)) = self.calls.get(answer.key)
                && call.writer.is_some()
                && answer.result.is_ok()
            {
                self.codec.reset(call.slot, code::NO_ERROR);
            }
        }
        self.effects(Instant::now(), &mut Vec::new());
        let rule = self.codec.ended().map(|ended| ended.rule);
        for mut answer in own.drain(..) {
            let Some(call) = self.forget(answer.key) else { continue };
            answer.key = call.key;
            match &mut answer.result {
                Ok(response) => {
                    response.framing_bytes =
                        call.received.saturating_sub(response.head_bytes + response.body_bytes);
                }
                Err(lost) => {
                    self.overhead += call.received;
                    if let (Lost::Protocol(text), Some(rule)) = (lost, rule)
                        && text.ends_with("a rule of the connection")
                    {
                        *text = format!("HTTP/3: {rule}");
                    }
                }
            }
            answers.push(answer);
        }
        if self.codec.sink.answers.is_empty() {
            self.codec.sink.answers = own; // keeps its capacity
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
    }
}

/// How the connection ended, for its requests in flight.
fn failure(why: &QuicLost) -> Failure {
    Failure::Reset(match why {
        QuicLost::Closed(code) => format!("the target closed the connection: {}", code::name(*code)),
        QuicLost::Idle => "the target was silent for the idle timeout of QUIC".to_owned(),
        QuicLost::Forgotten => "the target has forgotten the connection (stateless reset)".to_owned(),
        // Only a server counts floods.
        QuicLost::Flood | QuicLost::Local => "the connection has ended".to_owned(),
        QuicLost::Broken(why) => format!("QUIC: {why}"),
    })
}
