//! HTTP/1.1 from the client's side: one connection, one batch of requests at a time.
//!
//! An exchange costs two system calls if request and response fit into one each: a write, and the read that the
//! runtime's readiness announced. Bodies are read into the thread's single buffer and discarded.

use super::shared::Captured;
use super::tally::Sample;
use super::worker::{EndReason, Slot, Worker};
use crate::transport::failure::{Failure, Wait};
use crate::transport::reader::{Fed, Reader, Response};
use crate::transport::{CAPTURE_BYTES, poll_write_rest};
use std::io;
use std::task::{Context, Poll, ready};
use weir_wire::Transport;

mod repeat;

pub(super) use repeat::{Repeats, Stop};

/// The error for bytes that arrived before a request was written.
const EARLY: &str = "the target sent a response before any request";

/// The error for a response that continues past its end.
const SURPLUS: &str =
    "extra bytes after the response: more than its Content-Length, or a body that it must not have";

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    stream: Transport,
    reader: Reader,
    /// Dial times until the first request is counted: blocked, connecting, TLS.
    dialled: Option<[u64; 3]>,
    /// Whether the last read filled its buffer: then the socket may look readable although it is not.
    may_be_stale: bool,
}

/// Requests that are written together, each with its target and its intended start.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<(usize, u64)>,
    /// When writing began.
    pub(super) started: u64,
    written: usize,
    sent: u64,
    first: u64,
    /// Responses received.
    pub(super) done: usize,
    /// When the last of them arrived.
    pub(super) last: u64,
    /// Received bytes, until the run's first response is complete.
    capture: Option<Vec<u8>>,
    /// The request for that response, if it differs from the plan's.
    request: Option<Vec<u8>>,
}

/// The state of the connection after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Close,
    Keep,
}

impl Batch {
    /// A batch; `captures` says whether its first response is kept for the ledger.
    pub(super) fn capturing(captures: bool) -> Self {
        Self { capture: captures.then(Vec::new), ..Self::default() }
    }

    /// Keeps the batch's first request if its response is kept.
    pub(super) fn keep_request(&mut self, bytes: &[u8]) {
        self.request = Some(bytes.to_vec());
    }

    /// Whether the next response is kept.
    pub(super) const fn is_capturing(&self) -> bool {
        self.capture.is_some()
    }

    /// Counts the received bytes of an incomplete response.
    fn leave(&self, worker: &Worker, response: &Response, now: u64) {
        if let Some(&(_, intended)) = self.items.get(self.done) {
            worker.received(intended, response, now);
        }
    }

    /// Whether all its requests are answered.
    pub(super) const fn is_answered(&self) -> bool {
        self.done == self.items.len()
    }

    /// Starts writing the unanswered requests.
    pub(super) fn begin(&mut self, started: u64) {
        (self.started, self.written, self.sent, self.first) = (started, 0, 0, 0);
        if let Some(capture) = &mut self.capture {
            capture.clear();
        }
    }
}

impl Conn {
    pub(super) fn new(stream: Transport, keeps_bodies: bool, dialled: [u64; 3]) -> Self {
        Self { stream, reader: Reader::new(keeps_bodies), dialled: Some(dialled), may_be_stale: false }
    }

    /// Whether the target has sent nothing while the connection was idle.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }

    /// Whether no request has been sent on it yet.
    pub(super) const fn is_fresh(&self) -> bool {
        self.dialled.is_some()
    }

    /// What was received of an incomplete response.
    pub(super) fn unfinished(&self) -> Response {
        self.reader.unfinished()
    }

    /// Returns the socket for closing.
    pub(super) fn into_stream(self) -> Transport {
        self.stream
    }

    /// Writes the rest of the batch, whose bytes are `bytes`, and reads its responses, counting each as it arrives.
    /// The connection may end before all have arrived, but not before the first.
    pub(super) fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        slot: &Slot,
        batch: &mut Batch,
        bytes: &[u8],
    ) -> Poll<Result<After, Failure>> {
        if let Some(end) = slot.end.take() {
            return Poll::Ready(Err(match end {
                EndReason::Cut => Failure::Cut,
                EndReason::Timeout if self.reader.is_in_body() => Failure::Timeout(Wait::Body),
                EndReason::Timeout => Failure::Timeout(Wait::Head),
            }));
        }
        let unwritten = batch.sent == 0 && batch.written == 0;
        if batch.sent == 0 {
            match self.poll_write(cx, batch, bytes) {
                Poll::Ready(Ok(())) => batch.sent = worker.clock.now(),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(Failure::Write(e.to_string()))),
                Poll::Pending => {}
            }
        }
        // The runtime has not polled sockets since, so readable data arrived before the request. After a read that
        // filled its buffer this is unknown.
        let is_early = unwritten && !self.may_be_stale && !matches!(self.stream, Transport::Tls(_));
        self.poll_responses(cx, worker, slot, batch, is_early)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, batch: &mut Batch, bytes: &[u8]) -> Poll<io::Result<()>> {
        ready!(poll_write_rest(&mut self.stream, cx, bytes, &mut batch.written))?;
        self.stream.poll_flush(cx)
    }

    fn poll_responses(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        slot: &Slot,
        batch: &mut Batch,
        is_early: bool,
    ) -> Poll<Result<After, Failure>> {
        let mut scratch = worker.scratch.borrow_mut();
        loop {
            scratch.clear();
            let n = match self.stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(Failure::of_read(e))),
            };
            self.may_be_stale = n == scratch.capacity();
            let now = worker.clock.now();
            if let Some(done) = self.take(worker, slot, batch, &scratch, now, is_early) {
                return Poll::Ready(done);
            }
        }
    }

    /// Takes what a read brought; nothing means that the connection ended. Returns how the batch ended, if it did.
    fn take(
        &mut self,
        worker: &Worker,
        slot: &Slot,
        batch: &mut Batch,
        mut input: &[u8],
        now: u64,
        is_early: bool,
    ) -> Option<Result<After, Failure>> {
        if is_early && !input.is_empty() {
            let framing_bytes = input.len() as u64;
            batch.leave(worker, &Response { framing_bytes, ..Response::default() }, now);
            return Some(Err(Failure::Protocol(EARLY.to_owned())));
        }
        if batch.first == 0 {
            batch.first = now;
        }
        if input.is_empty() {
            let Some(response) = self.reader.end() else {
                let when = if self.reader.has_begun() { "in the middle of" } else { "before" };
                return Some(Err(Failure::Reset(format!("the connection was closed {when} a response"))));
            };
            return Some(self.count(worker, slot, batch, &response, now).map(|()| After::Close));
        }
        if let Some(capture) = &mut batch.capture {
            let room = CAPTURE_BYTES.saturating_sub(capture.len()).min(input.len());
            capture.extend_from_slice(input.get(..room).unwrap_or_default());
        }
        while let Some(&(target, _)) = batch.items.get(batch.done) {
            let is_head = worker.plan.targets[target].is_head;
            let fed = self.reader.feed(input, is_head, &mut worker.parser.borrow_mut());
            match fed.map_err(Failure::Protocol) {
                Err(e) => return Some(Err(e)),
                Ok(Fed::More) => break,
                Ok(Fed::Complete(used, response)) => {
                    input = input.get(used..).unwrap_or_default();
                    if !input.is_empty() && batch.done + 1 == batch.items.len() {
                        // RFC 9112 §9.2: nothing was requested, so the length of the response was wrong.
                        let framing_bytes = response.framing_bytes + input.len() as u64;
                        batch.leave(worker, &Response { framing_bytes, ..response }, now);
                        return Some(Err(Failure::Protocol(SURPLUS.to_owned())));
                    }
                    if let Err(e) = self.count(worker, slot, batch, &response, now) {
                        return Some(Err(e));
                    }
                    batch.first = if input.is_empty() { 0 } else { now };
                    // If a request is answered before it is written, no other request can follow on the
                    // connection.
                    if !response.keeps || (batch.sent == 0 && batch.is_answered()) {
                        return Some(Ok(After::Close));
                    }
                }
            }
        }
        batch.is_answered().then_some(Ok(After::Keep))
    }

    /// Counts a complete response, unless it came too late.
    fn count(
        &mut self,
        worker: &Worker,
        slot: &Slot,
        batch: &mut Batch,
        response: &Response,
        now: u64,
    ) -> Result<(), Failure> {
        if Worker::is_late(slot, now) {
            batch.leave(worker, response, now);
            let began_late = batch.first > slot.deadline.get();
            return Err(Failure::Timeout(if began_late { Wait::Head } else { Wait::Body }));
        }
        let Some(&(target, intended)) = batch.items.get(batch.done) else { return Ok(()) };
        batch.done += 1;
        batch.last = now;
        if let Some(bytes) = batch.capture.take() {
            worker.shared.captured(Captured {
                target,
                request: batch.request.take(),
                bytes,
                response: *response,
                fields: None,
            });
        }
        let dialled = self.dialled.take();
        let sample = Sample {
            target,
            response: *response,
            intended,
            started: batch.started,
            sent: if batch.sent == 0 { now } else { batch.sent },
            first: batch.first,
            done: now,
            dialled,
        };
        worker.answered(slot, &sample, self.reader.body(), None);
        Ok(())
    }
}
