//! An HTTP/2 connection to a target, as bytes: takes requests and returns answers. The protocol is weir-wire's codec,
//! and `counter` processes responses. This file handles requests and their bodies, and accounts for bytes.
//!
//! No sockets and no clock.

use super::counter::{Answer, Counter};
use super::request::Rendered;
use crate::transport::reader::Response;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use weir_report::report::Protocol;
use weir_wire::h2::frame::{FRAME_MOST, HEADER, Header};
use weir_wire::h2::{Bounds, Codec, Fault, Flood, FloodLimits, Flow, Role};

/// The window of each stream: 1 GiB as in h2load, so that no target waits for us. Half of it is returned at a time.
const WINDOW: u32 = 1 << 30;

/// Longest field block.
const BLOCK_MOST: usize = 256 * 1024;

/// Streams opened before the target's SETTINGS announce its limit: the minimum that RFC 9113 §6.5.2 recommends.
const STREAMS_FIRST: usize = 100;

/// Unwritten bytes at which sending of bodies pauses.
const OUT_MOST: usize = 256 * 1024;

/// Unwritten bytes that count as a flood of PING and SETTINGS by a target that does not read our answers.
const ANSWERS_MOST: usize = 16 * OUT_MOST;

const BOUNDS: Bounds =
    Bounds { streams: 1, text: BLOCK_MOST, heads: usize::MAX, window: WINDOW, floods: FloodLimits::NONE };

const FLOW: Flow = Flow { first: WINDOW, growth: 0, credit: WINDOW / 2, out: OUT_MOST };

/// One connection.
///
/// Invariant: the codec holds every request begun by [`Connection::request`] that neither an [`Answer`] nor
/// [`Connection::cancel`] has ended.
#[derive(Debug)]
pub(crate) struct Connection {
    codec: Codec<Counter>,
    /// The beginning of an incomplete frame.
    partial: Vec<u8>,
    /// Streams with an unsent rest of their body: numbers and slots.
    sending: Vec<(u32, usize)>,
    /// We closed the connection: no further request may begin.
    closed: bool,
    /// Bytes of complete frames received.
    read: u64,
    /// How many of them were reported as belonging to no response.
    told: u64,
}

impl Connection {
    /// Begins a connection: the preface and our SETTINGS are pending.
    pub(crate) fn new(counter: Counter) -> Self {
        let codec = Codec::begin(counter, Role::Client, BOUNDS, FLOW);
        Self { codec, partial: Vec::new(), sending: Vec::new(), closed: false, read: 0, told: 0 }
    }

    /// Collects the responses.
    pub(crate) const fn counter(&mut self) -> &mut Counter {
        &mut self.codec.sink
    }

    // === lifecycle ===

    /// How many waiting requests may begin here now. If none may any more, returns all, so that they go elsewhere.
    pub(crate) fn room(&self) -> usize {
        if self.is_closing() {
            return usize::MAX;
        }
        let most = if self.codec.is_greeted() { self.codec.peer_streams() } else { STREAMS_FIRST };
        most.saturating_sub(self.codec.open())
    }

    /// How many concurrent streams the target allows, once its SETTINGS came.
    pub(crate) fn allowed(&self) -> Option<u64> {
        self.codec.is_greeted().then(|| self.codec.peer_streams() as u64)
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
        self.codec.open() == 0
    }

    /// Sends GOAWAY.
    pub(crate) fn leave(&mut self) {
        self.codec.end(Fault::Closed);
    }

    /// Ends all requests without a response; returns their keys and the data received for them.
    pub(crate) fn abandon(&mut self) -> Vec<(usize, Response)> {
        self.closed = true;
        self.codec.gone();
        self.read += self.partial.len() as u64;
        self.partial.clear();
        let left = self.codec.places();
        left.into_iter().map(|slot| self.release(slot)).collect()
    }

    /// Bytes read since the last call that belong to no response.
    pub(crate) fn take_overhead(&mut self) -> u64 {
        // A head may span several frames, of which only the first have arrived.
        let unfinished = if self.codec.ended().is_some() { 0 } else { self.codec.unfinished() as u64 };
        let all = self.read.saturating_sub(self.codec.sink.counted + unfinished);
        let news = all.saturating_sub(self.told);
        self.told += news;
        news
    }

    // === requests ===

    /// Begins a request and returns its stream. `body` is sent from the given offset.
    pub(crate) fn request(
        &mut self,
        key: usize,
        head: &Rendered,
        body: Option<(&Arc<[u8]>, usize)>,
        is_head: bool,
    ) -> u32 {
        let (slot, id) = self.codec.ask(is_head, body.is_none(), |id, out| head.write(id, out));
        let is_captured = self.codec.sink.is_wanted(u64::from(id));
        let stream = self.codec.kept(slot);
        (stream.key, stream.first, stream.is_captured) = (key, 0, is_captured);
        stream.response = Response { protocol: Protocol::Http2, keeps: true, ..Response::default() };
        if let Some((bytes, at)) = body
            && let Some(at) = self.send_from(slot, bytes, at)
        {
            self.codec.kept(slot).body = Some((Arc::clone(bytes), at));
            self.sending.push((id, slot));
        }
        id
    }

    /// Whether part of a request's body is unsent.
    pub(crate) fn is_sending(&self, id: u32) -> bool {
        self.sending.iter().any(|(other, _)| *other == id)
    }

    /// Cancels a request; returns what was received of its response.
    pub(crate) fn cancel(&mut self, id: u32) -> Response {
        let found = self.codec.find(id);
        found.map(|slot| self.release(slot).1).unwrap_or_default()
    }

    /// Frees a stream's slot, and resets the stream if it is still open. Returns its key and the data received.
    fn release(&mut self, slot: usize) -> (usize, Response) {
        let stream = self.codec.kept(slot);
        let (key, response, is_sending) = (stream.key, stream.response, stream.body.is_some());
        if is_sending {
            self.sending.retain(|(_, other)| *other != slot);
        }
        self.codec.release(slot);
        (key, response)
    }

    // === output ===

    /// Bytes to write.
    pub(crate) fn pending(&self) -> &[u8] {
        self.codec.pending()
    }

    /// Marks `n` bytes as written.
    pub(crate) fn sent(&mut self, n: usize) {
        if let Some(spare) = self.codec.sent(n) {
            self.codec.lend(spare);
            self.send_more();
        }
    }

    /// Continues sending bodies that waited for room or for a window.
    pub(crate) fn send_more(&mut self) {
        if self.sending.is_empty() {
            return;
        }
        let mut sending = std::mem::take(&mut self.sending);
        sending.retain(|(_, slot)| {
            // A stream that has ended meanwhile has no body left.
            let Some((bytes, at)) = self.codec.kept(*slot).body.take() else { return false };
            let left = self.send_from(*slot, &bytes, at);
            self.codec.kept(*slot).body = left.map(|at| (bytes, at));
            left.is_some()
        });
        self.sending = sending;
    }

    /// Sends as much of a body as allowed, from the given offset. Returns the offset at which it stopped before the
    /// end.
    fn send_from(&mut self, slot: usize, bytes: &[u8], mut at: usize) -> Option<usize> {
        // Needs no waker: bodies that wait are polled again after windows grow or bytes are written.
        let nobody = Context::from_waker(Waker::noop());
        while let Some(left) = bytes.get(at..).filter(|left| !left.is_empty()) {
            match self.codec.send_data(slot, left, &nobody) {
                Poll::Ready(Ok(n)) => at += n,
                Poll::Ready(Err(_)) => return None, // it has failed, and is reported later
                Poll::Pending => return Some(at),
            }
        }
        let _ = self.codec.send_end(slot, &[]); // it has just accepted data
        None
    }

    // === input ===

    /// Takes the next piece of input, read at `now`, and appends the answers that it completes to `answers`.
    ///
    /// # Errors
    /// The rule that the target broke, in words. A GOAWAY is pending, and requests in flight are left to
    /// [`Self::abandon`].
    pub(crate) fn feed(&mut self, input: &[u8], now: u64, answers: &mut Vec<Answer>) -> Result<(), String> {
        self.codec.sink.now = now;
        let mut rest = input;
        std::mem::swap(&mut self.codec.sink.answers, answers);
        let outcome = self.frames(&mut rest);
        std::mem::swap(&mut self.codec.sink.answers, answers);
        if outcome.is_err() {
            self.read += rest.len() as u64; // counts as read, whatever it is
        }
        self.send_more(); // windows may have grown
        outcome
    }

    /// Processes all complete frames. If one breaks a rule, the rest of the input stays in `rest`.
    fn frames(&mut self, rest: &mut &[u8]) -> Result<(), String> {
        if !self.partial.is_empty() {
            let mut whole = std::mem::take(&mut self.partial);
            for _ in 0..2 {
                // First the header, then the length that it announces.
                let need = HEADER + Header::parse(&whole).map_or(0, |header| header.len.min(FRAME_MOST));
                let missing = need.saturating_sub(whole.len()).min(rest.len());
                let (more, after) = rest.split_at_checked(missing).unwrap_or((rest, &[]));
                whole.extend_from_slice(more);
                *rest = after;
            }
            let used = self.receive(&whole)?;
            whole.drain(..used);
            self.partial = whole;
            if !self.partial.is_empty() {
                return Ok(());
            }
        }
        let input = std::mem::take(rest);
        let used = self.receive(input)?;
        self.partial.extend_from_slice(input.get(used..).unwrap_or_default());
        Ok(())
    }

    /// Hands frames to the codec; returns how many bytes were complete frames.
    fn receive(&mut self, bytes: &[u8]) -> Result<usize, String> {
        if !self.codec.is_greeted() && bytes.starts_with(b"HTTP/") {
            self.read += bytes.len() as u64;
            self.codec.end(Fault::Protocol);
            return Err(weir_report::verdict::ANSWERED_OLD.to_owned());
        }
        let used = self.codec.receive(bytes);
        self.read += used as u64;
        self.codec.sink.keep_frames(bytes.get(..used).unwrap_or_default());
        if self.codec.ended().is_some() {
            return Err(format!("HTTP/2: {}", self.codec.rule()));
        }
        if self.codec.pending().len() > ANSWERS_MOST {
            self.codec.end(Fault::Flood(Flood::Ping));
            return Err("HTTP/2: a flood of frames that want an answer".to_owned());
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests;
