//! One request and its answer over HTTP/2 or HTTP/3. Requests that a user sends at once share a connection of its own.
//!
//! Whichever request is polled writes and reads for all on the connection; answers wait in it until their request is
//! polled. A pool that users share hands a connection to one of them at a time, so all of its requests belong to one
//! task.

use super::crew::Job;
use super::h1::{Times, Wanted};
use crate::engine::worker::{EndReason, Slot, Worker};
use crate::transport::failure::{Failure, Wait};
use crate::transport::h2::counter::{Answer, Counter, Lost};
use crate::transport::h2::request::{Rendered, Version};
use crate::transport::wire::Wire;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use weir_h1::ResponseHead;

/// A connection.
pub(super) struct Link {
    io: RefCell<Io>,
    /// Its times until the first request is counted: blocked, connecting, TLS.
    pub(super) dialled: Cell<Option<[u64; 3]>>,
}

struct Io {
    wire: Wire,
    version: Version,
    next_key: usize,
    /// Answers by the keys of their requests.
    answers: Vec<Answer>,
    /// Why it carries no more requests.
    broken: Option<Failure>,
}

/// The result of a request that did not fail.
pub(super) enum Fate {
    /// The target did not process it; it may be sent on another connection.
    Again,
    Answered,
}

impl Link {
    /// `body_most` is the most of a body that a keep or check looks at; `is_grpc` says that requests are calls.
    /// `wire` begins the connection.
    pub(super) fn new(
        wire: impl FnOnce(Counter) -> Wire,
        version: Version,
        body_most: usize,
        is_grpc: bool,
        dialled: [u64; 3],
    ) -> Self {
        let mut counter = Counter::new(true);
        counter.is_grpc = is_grpc;
        counter.keeps_fields = true;
        counter.kept_most = body_most;
        let io = Io { wire: wire(counter), version, next_key: 0, answers: Vec::new(), broken: None };
        Self { io: RefCell::new(io), dialled: Cell::new(Some(dialled)) }
    }

    /// Whether a request may begin on it. Reads what arrived since the last one: a GOAWAY, or the end.
    pub(super) fn is_open(&self, worker: &Worker) -> bool {
        let mut io = self.io.borrow_mut();
        io.poll(&mut Context::from_waker(Waker::noop()), worker);
        io.broken.is_none() && !io.wire.is_closing()
    }

    /// Sends the job's request and reads its answer.
    pub(super) async fn exchange(
        &self,
        worker: &Worker,
        slot: &Slot,
        scheme: &str,
        wanted: Wanted,
        job: &mut Job,
    ) -> Result<Fate, Failure> {
        let (head, body) = job.bytes.split_at_checked(job.head_bytes).unwrap_or_default();
        let mut rendered = Rendered::of(self.io.borrow().version);
        rendered.render(head, scheme, body.is_empty());
        let whole: Option<Arc<[u8]>> = (!body.is_empty()).then(|| body.into());
        job.wire = rendered.wire_bytes(body.len()) as u64;
        // Its key, once it is on the connection, and its stream.
        let mut sent: Option<(usize, u64)> = None;
        let times: &mut Times = &mut job.times;
        let answer = poll_fn(|cx| {
            slot.watch(cx);
            let io = &mut *self.io.borrow_mut();
            if let Some(end) = slot.end.take() {
                let received = sent.map(|(_, id)| io.wire.cancel(id)).unwrap_or_default();
                io.poll(cx, worker); // tells the target
                job.answer.response = received;
                return Poll::Ready(Err(match end {
                    EndReason::Cut => Failure::Cut,
                    EndReason::Timeout if sent.is_none() => Failure::Timeout(Wait::Stream),
                    EndReason::Timeout if received.head_bytes > 0 => Failure::Timeout(Wait::Body),
                    EndReason::Timeout => Failure::Timeout(Wait::Head),
                }));
            }
            io.poll(cx, worker);
            if sent.is_none() && io.broken.is_none() {
                if io.wire.is_closing() {
                    return Poll::Ready(Ok(None));
                }
                if io.wire.room() > 0 {
                    let key = io.next_key;
                    io.next_key += 1;
                    let body = whole.as_ref().map(|body| (body, 0));
                    sent = Some((key, io.wire.request(key, &rendered, body, wanted.is_head)));
                    io.poll(cx, worker);
                }
            }
            let Some((key, id)) = sent else {
                return io.broken.clone().map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)));
            };
            if times.sent == 0 && !io.wire.has_pending() && !io.wire.is_sending(id) {
                times.sent = worker.clock.now();
            }
            if let Some(at) = io.answers.iter().position(|answer| answer.key == key) {
                return Poll::Ready(Ok(Some(io.answers.swap_remove(at))));
            }
            io.broken.clone().map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)))
        })
        .await?;
        let Some(answer) = answer else { return Ok(Fate::Again) };
        let response = match answer.result {
            Ok(response) => response,
            Err(Lost::Again) => return Ok(Fate::Again),
            Err(Lost::Protocol(text)) => return Err(Failure::Protocol(text)),
            Err(Lost::Reset(text)) => return Err(Failure::Reset(text)),
        };
        let now = answer.done;
        (times.first, times.done) = (answer.first, now);
        if times.sent == 0 {
            times.sent = now;
        }
        job.answer.response = response;
        if Worker::is_late(slot, now) {
            let began_late = answer.first > slot.deadline.get();
            return Err(Failure::Timeout(if began_late { Wait::Head } else { Wait::Body }));
        }
        job.answer.head = ResponseHead::made(response.status);
        job.answer.head.headers = answer.fields;
        job.answer.body = if wanted.body_most > 0 { answer.body } else { Vec::new() };
        job.call_text = answer.text;
        Ok(Fate::Answered)
    }
}

impl Io {
    /// Writes and reads as much as there is.
    fn poll(&mut self, cx: &mut Context<'_>, worker: &Worker) {
        while self.broken.is_none() {
            if let Poll::Ready(Err(e)) = self.wire.poll_write(cx) {
                self.end(Failure::Write(e.to_string()));
                return;
            }
            let mut scratch = worker.scratch.borrow_mut();
            let read = self.wire.poll_read(cx, &mut scratch, || worker.clock.now(), &mut self.answers);
            drop(scratch);
            match read {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {
                    // Another request of this task may have got its answer.
                    if !self.answers.is_empty() {
                        cx.waker().wake_by_ref();
                    }
                }
                Poll::Ready(Err(failure)) => self.end(failure),
            }
        }
    }

    fn end(&mut self, failure: Failure) {
        let _ = self.wire.abandon(); // its requests see `broken`
        self.broken = Some(failure);
    }
}
