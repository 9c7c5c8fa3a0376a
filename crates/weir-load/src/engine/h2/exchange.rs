//! Requests on a shared connection of HTTP/2 or HTTP/3: the client's side, and the driver that reads and writes for all
//! clients.

use super::{Ask, Exchange, Fate, Io, Link, Phase};
use crate::engine::shared::Captured;
use crate::engine::tally::Sample;
use crate::engine::worker::{EndReason, Slot, Worker};
use crate::grpc::Code;
use crate::transport::failure::{Failure, Wait};
use crate::transport::h2::counter::{Counter, Lost};
use crate::transport::reader::Response;
use crate::transport::wire::Wire;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

impl Link {
    /// A connection for `keys` clients of this thread, starting with `first_client`. `wire` begins it.
    pub(in crate::engine) fn new(
        wire: impl FnOnce(Counter) -> Wire,
        worker: &Worker,
        dialled: [u64; 3],
        first_client: usize,
        keys: usize,
    ) -> Self {
        let mut counter = Counter::new(worker.plan.keeps_bodies());
        counter.kinds = worker.parser.borrow().kinds.clone();
        counter.is_grpc = worker.plan.is_grpc();
        counter.capture = worker.captures(first_client).then(Default::default);
        let (unsent, answers) = (Vec::new(), Vec::new());
        Self {
            io: RefCell::new(Io { wire: wire(counter), unsent, answers }),
            exchanges: RefCell::new(vec![Exchange::default(); keys]),
            queue: RefCell::default(),
            called: Cell::new(0),
            driver: RefCell::default(),
            scheduled: Cell::new(true),
            dialled: Cell::new(Some(dialled)),
            first_client,
        }
    }

    /// Whether no further request may begin on it.
    pub(in crate::engine) fn is_closing(&self) -> bool {
        self.io.borrow().wire.is_closing()
    }

    /// Lets it end after its requests in flight.
    pub(in crate::engine) fn close(&self) {
        self.io.borrow_mut().wire.close();
        self.wake_driver();
    }

    fn wake_driver(&self) {
        if !self.scheduled.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Sends the request of the client with this key once, and returns its result.
    pub(in crate::engine) fn poll_exchange(
        &self,
        worker: &Worker,
        slot: &Slot,
        key: usize,
        ask: &Ask<'_>,
    ) -> Poll<Result<Fate, Failure>> {
        let mut exchanges = self.exchanges.borrow_mut();
        let Some(exchange) = exchanges.get_mut(key) else { return Poll::Ready(Err(Failure::Cut)) };
        // An answered request is already counted; an end at the same moment must not count it again.
        if let Phase::Done(_) = exchange.phase
            && let Phase::Done(outcome) = std::mem::take(&mut exchange.phase)
        {
            return Poll::Ready(outcome);
        }
        if let Some(end) = slot.end.take() {
            let mut wait = Wait::Stream;
            if let Phase::Open = exchange.phase {
                let mut io = self.io.borrow_mut();
                let received = io.wire.cancel(exchange.id);
                wait = if received.head_bytes > 0 { Wait::Body } else { Wait::Head };
                io.wire.counter().recapture(exchange.id);
                drop(io);
                worker.received(exchange.intended, &received, worker.clock.now());
                self.wake_driver();
            }
            self.leave_queue(key, exchange);
            drop(exchanges);
            let room = self.io.borrow().wire.room();
            self.call_next(worker, room);
            return Poll::Ready(Err(match end {
                EndReason::Cut => Failure::Cut,
                EndReason::Timeout => Failure::Timeout(wait),
            }));
        }
        match &exchange.phase {
            Phase::Done(_) | Phase::Open => Poll::Pending,
            Phase::Called | Phase::Idle | Phase::Queued => {
                let mut io = self.io.borrow_mut();
                if io.wire.is_closing() {
                    self.leave_queue(key, exchange);
                    return Poll::Ready(Ok(Fate::Elsewhere));
                }
                let (waited, room) = (!matches!(exchange.phase, Phase::Idle), io.wire.room());
                match exchange.phase {
                    Phase::Called => self.called.set(self.called.get() - 1),
                    Phase::Queued => return Poll::Pending, // a spurious wake
                    _ => {}
                }
                // A newcomer queues behind those that wait. The target may have lowered its limit since a client was
                // called.
                if room == 0 || (!waited && room <= self.called.get()) {
                    let mut queue = self.queue.borrow_mut();
                    if waited {
                        queue.push_front(key)
                    } else {
                        queue.push_back(key)
                    }
                    exchange.phase = Phase::Queued;
                    if let Some(allowed) = io.wire.allowed() {
                        let mut tally = worker.tally.borrow_mut();
                        tally.streams_allowed = tally.streams_allowed.into_iter().chain([allowed]).min();
                    }
                    return Poll::Pending;
                }
                let started = if waited || ask.turned == 0 { worker.clock.now() } else { ask.turned };
                let id = io.wire.request(key, ask.head, ask.body, ask.is_head);
                if io.wire.counter().is_captured(id) {
                    *worker.first_text.borrow_mut() = ask.text.map(<[u8]>::to_vec);
                }
                let Ask { target, intended, .. } = *ask;
                *exchange = Exchange { target, id, intended, started, sent: 0, phase: Phase::Open };
                io.unsent.push(key);
                drop(io);
                self.wake_driver();
                Poll::Pending
            }
        }
    }

    /// Calls the clients that have waited longest, as many as there is room for.
    fn call_next(&self, worker: &Worker, room: usize) {
        let mut queue = self.queue.borrow_mut();
        while room > self.called.get()
            && let Some(key) = queue.pop_front()
        {
            if let Some(exchange) = self.exchanges.borrow_mut().get_mut(key) {
                exchange.phase = Phase::Called;
                self.called.set(self.called.get() + 1);
                worker.wake(self.first_client + key);
            }
        }
    }

    /// Removes the client with this key from the queue.
    fn leave_queue(&self, key: usize, exchange: &mut Exchange) {
        match std::mem::take(&mut exchange.phase) {
            Phase::Called => self.called.set(self.called.get() - 1),
            Phase::Queued => self.queue.borrow_mut().retain(|other| *other != key),
            _ => {}
        }
    }

    /// Writes and reads until the connection ends.
    pub(in crate::engine) async fn drive(self: Rc<Self>, worker: Rc<Worker>) {
        poll_fn(|cx| self.poll_drive(cx, &worker)).await;
    }

    fn poll_drive(&self, cx: &mut Context<'_>, worker: &Worker) -> Poll<()> {
        self.driver.borrow_mut().get_or_insert_with(|| cx.waker().clone()); // a task keeps its waker for life
        self.scheduled.set(false);
        let mut io = self.io.borrow_mut();
        let io = &mut *io;
        loop {
            if let Poll::Ready(Err(e)) = self.poll_write(cx, worker, io) {
                self.end(worker, io, &|_| Failure::Write(e.to_string()));
                return Poll::Ready(());
            }
            if io.wire.is_closing() && io.wire.is_idle() {
                io.wire.leave();
                let _ = self.poll_write(cx, worker, io); // best effort
                self.end(worker, io, &|_| Failure::Cut);
                return Poll::Ready(());
            }
            let mut scratch = worker.scratch.borrow_mut();
            let mut now = 0;
            let read_at = || {
                now = worker.clock.now();
                now
            };
            let Poll::Ready(read) = io.wire.poll_read(cx, &mut scratch, read_at, &mut io.answers) else {
                return Poll::Pending;
            };
            drop(scratch);
            let answered = !io.answers.is_empty();
            if now > 0 {
                self.deliver(worker, io, now);
            }
            if let Err(failure) = read {
                if let Failure::Protocol(_) = failure {
                    let _ = self.poll_write(cx, worker, io); // best effort
                }
                self.end(worker, io, &|begun| match &failure {
                    Failure::Reset(text) if begun && text.ends_with("before a response") => {
                        Failure::Reset("the connection was closed in the middle of a response".to_owned())
                    }
                    other => other.clone(),
                });
                return Poll::Ready(());
            }
            if answered {
                // Runs after the clients, so that their next requests leave together.
                self.scheduled.set(true);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.call_next(worker, io.wire.room()); // SETTINGS or MAX_STREAMS may have raised the limit
        }
    }

    /// Writes all pending bytes, and notes the time.
    fn poll_write(&self, cx: &mut Context<'_>, worker: &Worker, io: &mut Io) -> Poll<io::Result<()>> {
        let flushed = io.wire.poll_write(cx);
        if flushed.is_ready() && !io.unsent.is_empty() {
            let now = worker.clock.now();
            let mut exchanges = self.exchanges.borrow_mut();
            let wire = &io.wire;
            io.unsent.retain(|key| {
                let Some(e) = exchanges.get_mut(*key).filter(|e| e.sent == 0) else { return false };
                let sending = wire.is_sending(e.id);
                e.sent = if sending { 0 } else { now };
                sending
            });
        }
        flushed
    }

    /// Counts the answers and wakes their clients.
    fn deliver(&self, worker: &Worker, io: &mut Io, now: u64) {
        Self::count_overhead(worker, io, now);
        for answer in io.answers.drain(..) {
            let mut exchanges = self.exchanges.borrow_mut();
            let Some(exchange) = exchanges.get_mut(answer.key) else { continue };
            let client = self.first_client + answer.key;
            let outcome = match answer.result {
                Ok(response) if worker.slots.get(client).is_some_and(|slot| Worker::is_late(slot, now)) => {
                    worker.received(exchange.intended, &response, now);
                    let began_late =
                        worker.slots.get(client).is_some_and(|s| answer.first > s.deadline.get());
                    Err(Failure::Timeout(if began_late { Wait::Head } else { Wait::Body }))
                }
                Ok(mut response) => {
                    let mut text = answer.text;
                    if let Some(why) = worker.wrong_count(exchange.target, &response) {
                        (response.grpc, text) = (Some(Code::INTERNAL), Some(why.into()));
                    }
                    if io.wire.counter().is_captured(exchange.id)
                        && let Some(c) = io.wire.counter().capture.take()
                    {
                        let fields = Some((c.server, c.content_type));
                        worker.shared.captured(Captured {
                            target: exchange.target,
                            request: worker.first_text.take(),
                            bytes: c.bytes,
                            response,
                            fields,
                        });
                    }
                    let sample = Sample {
                        target: exchange.target,
                        response,
                        intended: exchange.intended,
                        started: exchange.started,
                        sent: if exchange.sent == 0 { now } else { exchange.sent },
                        first: answer.first,
                        done: now,
                        dialled: self.dialled.take(),
                    };
                    if let Some(slot) = worker.slots.get(client) {
                        worker.answered(slot, &sample, &answer.body, text.as_deref());
                    }
                    Ok(Fate::Answered(now))
                }
                Err(lost) => {
                    io.wire.counter().recapture(exchange.id);
                    match lost {
                        Lost::Again => Ok(Fate::Again),
                        Lost::Protocol(text) => Err(Failure::Protocol(text)),
                        Lost::Reset(text) => Err(Failure::Reset(text)),
                    }
                }
            };
            exchange.phase = Phase::Done(outcome);
            drop(exchanges);
            worker.wake(client);
            self.call_next(worker, io.wire.room());
        }
    }

    /// Counts bytes that belong to no response.
    fn count_overhead(worker: &Worker, io: &mut Io, now: u64) {
        let overhead = io.wire.take_overhead();
        worker.received(now, &Response { framing_bytes: overhead, ..Response::default() }, now);
    }

    /// The connection has ended: fails all requests in flight. The argument of `failure` says whether the response
    /// had begun.
    fn end(&self, worker: &Worker, io: &mut Io, failure: &dyn Fn(bool) -> Failure) {
        let now = worker.clock.now();
        let abandoned = io.wire.abandon();
        Self::count_overhead(worker, io, now);
        for (key, received) in abandoned {
            let mut exchanges = self.exchanges.borrow_mut();
            let Some(exchange) = exchanges.get_mut(key) else { continue };
            worker.received(exchange.intended, &received, now);
            exchange.phase = Phase::Done(Err(failure(received.head_bytes > 0)));
            drop(exchanges);
            worker.wake(self.first_client + key);
        }
        let queued = std::mem::take(&mut *self.queue.borrow_mut());
        queued.into_iter().for_each(|key| worker.wake(self.first_client + key));
    }
}
