//! The same request again and again: the loop of nearly every run, without what only other runs need.
//!
//! A response that equals the last one, which nearly every response does, is compared and counted as one more of its
//! kind: [`Repeats`] holds their number, and [`Worker::add_repeats`] adds them to the tally before somebody reads it.
//! Only times are recorded one by one. Whatever differs leaves the loop, and the general code goes on from the same
//! state, so that nothing is decided twice. Gain: 3,960 instructions per request with the general code alone, 1,480
//! with this (row `load-h1` of `bench/count.py`, profile `release`).

use super::{After, Batch, Conn};
use crate::clock;
use crate::engine::worker::{Slot, Worker};
use crate::transport::failure::Failure;
use crate::transport::reader::Response;
use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};
use weir_wire::Transport;

/// Requests and equal responses of one thread that its tally does not have yet. All of them count and are rated: they
/// began and ended between the warm-up and the planned end.
#[derive(Debug, Default)]
pub(in crate::engine) struct Repeats {
    begun: Cell<u64>,
    answered: Cell<u64>,
    /// What each of the responses is.
    response: Cell<Response>,
    /// The version of the parser that knows this response.
    version: Cell<u64>,
}

/// Why the loop was left.
#[derive(Debug)]
pub(in crate::engine) enum Stop {
    /// The request in flight is over.
    Ended(Result<After, Failure>),
    /// No request is in flight, and the next one is not for this loop.
    Idle,
    /// A request is in flight, and what follows is not for this loop.
    Open,
}

impl Conn {
    /// Whether the next response can be compared with the last one.
    pub(in crate::engine) fn may_repeat(&self) -> bool {
        !self.is_fresh() && self.reader.is_between()
    }

    /// Sends the request `bytes` and waits for its response, as long as one response is like the other. `batch` holds
    /// the request in flight, if there is one: that is what [`Batch::started`] tells.
    pub(in crate::engine) fn poll_repeats(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        slot: &Slot,
        batch: &mut Batch,
        bytes: &[u8],
    ) -> Poll<Stop> {
        let mut scratch = worker.scratch.borrow_mut();
        loop {
            let begins = batch.started == 0;
            if begins {
                if !worker.may_repeat(batch.last) {
                    return Poll::Ready(Stop::Idle);
                }
                // One reading of the clock serves the end of a response and the start of the next request: less lies
                // between them than a reading costs.
                batch.open(batch.last);
                slot.deadline.set(batch.started.saturating_add(clock::nanos(worker.plan.timeout)));
                match self.poll_send(cx, bytes) {
                    Poll::Ready(Ok(n)) if n == bytes.len() => batch.sent = worker.clock.now(),
                    Poll::Ready(Ok(0)) => {
                        let e = io::Error::from(io::ErrorKind::WriteZero);
                        return Poll::Ready(Stop::Ended(Err(Failure::Write(e.to_string()))));
                    }
                    Poll::Ready(Ok(n)) => {
                        batch.written = n;
                        return Poll::Ready(Stop::Open);
                    }
                    Poll::Ready(Err(e)) => {
                        return Poll::Ready(Stop::Ended(Err(Failure::Write(e.to_string()))));
                    }
                    Poll::Pending => return Poll::Ready(Stop::Open),
                }
            } else if slot.end.get().is_some() {
                return Poll::Ready(Stop::Open);
            }
            scratch.clear();
            let n = match self.stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => return Poll::Ready(Stop::Ended(Err(Failure::of_read(e)))),
            };
            let now = worker.clock.now();
            // As in `poll_exchange`.
            let is_early = begins && !self.may_be_stale && !matches!(self.stream, Transport::Tls(_));
            self.may_be_stale = n == scratch.capacity();
            if !is_early && !Worker::is_late(slot, now) && worker.repeated(slot, batch, &scratch, now) {
                (batch.last, batch.started) = (now, 0);
                continue;
            }
            let taken = self.take(worker, slot, batch, &scratch, now, is_early);
            return Poll::Ready(taken.map_or(Stop::Open, Stop::Ended));
        }
    }

    /// Writes the request, with what a TLS session buffers.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = self.stream.poll_write(cx, bytes);
        if matches!(self.stream, Transport::Tls(_)) && matches!(sent, Poll::Ready(Ok(_))) {
            return match self.stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => sent,
                Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                // The general code flushes what it finds written.
                Poll::Pending => sent.map_ok(|n| n.min(bytes.len() - 1)),
            };
        }
        sent
    }
}

impl Batch {
    /// Makes a batch of one request to the only target, without one in flight.
    pub(in crate::engine) fn alone(&mut self, now: u64) {
        self.items.clear();
        self.items.push((0, 0));
        (self.last, self.started) = (now, 0);
    }

    /// Begins the request.
    fn open(&mut self, at: u64) {
        if let Some(only) = self.items.first_mut() {
            only.1 = at;
        }
        (self.started, self.written, self.sent, self.first, self.done) = (at, 0, 0, 0, 0);
    }
}

impl Worker {
    /// Whether a request may begin at this moment and counts. If so, it is counted.
    #[inline]
    fn may_repeat(&self, now: u64) -> bool {
        let may = now < self.stop_at()
            && !self.is_abandoned()
            && self.counts(now)
            && now > 0
            && self.shared.take_one();
        if may {
            self.repeats.begun.set(self.repeats.begun.get() + 1);
        }
        may
    }

    /// Counts a response that equals the last one; false if it does not.
    #[inline]
    fn repeated(&self, slot: &Slot, batch: &Batch, input: &[u8], now: u64) -> bool {
        let parser = self.parser.borrow();
        if !parser.is_repeat(input) || now > self.stop_at() {
            return false;
        }
        if parser.version() != self.repeats.version.get() {
            self.add_repeats();
            let Some(response) = parser.repeated() else { return false };
            self.repeats.response.set(response);
            self.repeats.version.set(parser.version());
        }
        drop(parser);
        self.repeats.answered.set(self.repeats.answered.get() + 1);
        slot.responses.set(slot.responses.get() + 1);
        self.note_response(now);
        self.tally.borrow_mut().record_repeat(batch.started, batch.sent, now);
        true
    }

    /// Adds the responses since the last call to the tally.
    pub(in crate::engine) fn add_repeats(&self) {
        let (begun, answered) = (self.repeats.begun.take(), self.repeats.answered.take());
        if begun == 0 && answered == 0 {
            return;
        }
        let response = self.repeats.response.get();
        let request = self.plan.targets.first().map_or((0, 0), |t| (t.head_bytes, t.bytes.len()));
        let request = (request.0 as u64, (request.1 - request.0) as u64);
        let mut tally = self.tally.borrow_mut();
        tally.add_repeats(begun, answered, &response, request);
        if let Some(document) = self.shared.documents.first()
            && answered > 0
            && *document.get_or_init(|| response.body_bytes) != response.body_bytes
        {
            tally.other_length += answered;
        }
    }
}
