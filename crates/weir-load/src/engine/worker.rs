//! State that the tasks of one generator thread share: its clients' slots, its tally, its place in the schedule.
//! `thread` starts them.
//!
//! The *sampler* wakes ten times a second. It samples the rate, ends ticks, warm-up and run, and ends exchanges that
//! time out. An exchange therefore sets no timer; it writes its deadline into its slot. The *pacer*, only with a
//! fixed rate, wakes an idle client at each intended start by a kernel timer.

mod dial;
mod outcome;
pub(crate) mod sampler;

use super::h1::Repeats;
use super::h2::Place;
use super::preconnect::Ahead;
use super::replay::Feed;
use super::shared::Shared;
use super::tally::Tally;
use crate::clock::{Clock, NEVER};
use crate::pace::{Rhythm, Schedule, Way};
use crate::plan::Plan;
use crate::replay::Held;
use crate::template::Values;
use crate::transport::reader::Parser;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use weir_plan::shape::Part;
use weir_report::Histogram;
use weir_wire::time;
use weir_wire::timer::Timer;

/// Size of one read. All connections of a thread share one buffer, so that it stays in the cache.
const READ_BYTES: usize = 64 * 1024;

pub(crate) struct Worker {
    pub(crate) plan: Arc<Plan>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    pub(crate) slots: Vec<Slot>,
    pub(crate) tally: RefCell<Tally>,
    pub(crate) parser: RefCell<Parser>,
    /// Responses that `tally` does not have yet.
    pub(in crate::engine) repeats: Repeats,
    pub(crate) scratch: RefCell<Vec<u8>>,
    pub(crate) dial: RefCell<Histogram>,
    pub(crate) opened: Cell<u64>,
    /// Connections that wait for the target to close them.
    pub(crate) closing: Cell<usize>,
    /// Requests in flight.
    in_flight: Cell<u64>,
    /// Clients in backoff after failing to connect.
    in_backoff: Cell<u64>,
    /// When the last response arrived, or when the first request began after a pause of the plan.
    last_event: Cell<u64>,
    /// Since when at least one client has been waiting.
    waiting_since: Cell<u64>,
    /// Whether a request failed and no response has arrived since.
    is_failing: Cell<bool>,
    /// This thread's position in the cycle of targets. Per thread and not per client, so that the mix is exact.
    pub(crate) turn: Cell<usize>,
    pub(crate) values: RefCell<Values>,
    /// For each set of clients that share a connection of HTTP/2 or HTTP/3, and each origin.
    pub(in crate::engine) places: Vec<Place>,
    /// The text of the HTTP/2 or HTTP/3 request whose response is kept for the ledger, if it differs from the plan's.
    pub(crate) first_text: RefCell<Option<Vec<u8>>>,
    /// The UDP sockets of this thread, with HTTP/3.
    #[cfg(feature = "http3")]
    pub(crate) endpoints: crate::transport::h3::dial::Endpoints,
    /// Unused connections.
    pub(crate) ahead: RefCell<Ahead>,
    /// Who is at work, where that does not follow from the plan's pace: in scenarios.
    pub(crate) at_work: Cell<Option<u64>>,
    /// Starts of iterations that are due and not made.
    pub(crate) behind: Cell<u64>,
    pub(crate) index: usize,
    /// Number of this thread's first client among all threads.
    first_client: usize,
    /// The starts of an open loop as this thread knows them, and their version.
    schedule: RefCell<Option<Arc<Schedule>>>,
    version: Cell<u64>,
    next: RefCell<NextStart>,
    /// Starts of an open loop in the warm-up and in the whole run; those of the warm-up come on top of the count.
    starts_in_warmup: u64,
    starts_most: u64,
    idle: RefCell<Vec<usize>>,
    pub(crate) bell: Notify,
    /// With a replay, what its clients send.
    pub(in crate::engine) feed: Option<Feed>,
}

/// The next start of an open loop for this thread.
struct NextStart {
    k: u64,
    at: u64,
    /// How many were made.
    taken: u64,
    way: Way,
}

/// One client's state for the tasks of its thread.
pub(crate) struct Slot {
    pub(crate) waker: RefCell<Option<Waker>>,
    /// When the current exchange times out; [`NEVER`] without one.
    pub(crate) deadline: Cell<u64>,
    pub(crate) end: Cell<Option<EndReason>>,
    /// The start that the pacer assigned to it.
    pub(crate) assigned: Cell<u64>,
    pub(crate) parked: Cell<bool>,
    /// With a replay, what is kept of its request until the response.
    pub(in crate::engine) held: Cell<Option<Held>>,
    pub(crate) responses: Cell<u64>,
    /// Idle before its stage began.
    pub(crate) idle_ns: Cell<u64>,
    pub(crate) think_ns: Cell<u64>,
    pub(crate) available_ns: Cell<u64>,
}

/// Why an exchange is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The run and its graceful stop are over.
    Cut,
    /// It timed out.
    Timeout,
}

/// Why a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It cannot connect and is about to retry.
    Failed,
    /// Its stage has not begun.
    Stage,
    /// Think time.
    Think,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Stop.
    End,
    /// It may not send before this moment.
    Later(u64),
    /// A request whose intended start is this moment.
    Start(u64),
}

impl Slot {
    pub(crate) const fn new() -> Self {
        Self {
            waker: RefCell::new(None),
            deadline: Cell::new(NEVER),
            end: Cell::new(None),
            assigned: Cell::new(NEVER),
            parked: Cell::new(false),
            held: Cell::new(None),
            responses: Cell::new(0),
            idle_ns: Cell::new(0),
            think_ns: Cell::new(0),
            available_ns: Cell::new(0),
        }
    }

    /// Remembers the task to wake.
    pub(crate) fn watch(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.is_none() {
            *waker = Some(cx.waker().clone()); // a task keeps its waker for life
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Wakes an idle client at each intended start.
pub(crate) async fn pace(worker: Rc<Worker>, timer: Timer) {
    loop {
        let now = worker.clock.now();
        let stop = worker.stop_at();
        let at = worker.next.borrow().at;
        if now >= stop || worker.is_last(at) {
            worker.wake_all();
            return;
        }
        if worker.idle.borrow().is_empty() {
            worker.bell.notified().await;
        } else if at <= now {
            let Some(i) = worker.idle.borrow_mut().pop() else { continue };
            let slot = &worker.slots[i];
            slot.assigned.set(at);
            slot.parked.set(false);
            worker.take_start();
            slot.wake();
        } else {
            // Never spins for a near start: at 50,000/s that would take the whole core, and the generator would
            // report itself busy.
            tokio::select! {
                () = timer.wait(Duration::from_nanos(at.min(stop) - now)) => {}
                () = worker.bell.notified() => {}
            }
        }
    }
}

impl Worker {
    /// The worker of thread `index`, with `clients` of the run's clients, starting at `first`.
    pub(crate) fn new(
        plan: Arc<Plan>,
        shared: Arc<Shared>,
        clock: Clock,
        index: usize,
        (first, clients): (usize, usize),
        mut ahead: Ahead,
    ) -> Self {
        let places = if plan.is_multiplexed() { clients / plan.streams * plan.origins.len() } else { 0 };
        let version = shared.course.version.load(Ordering::Acquire);
        let schedule = shared.course.now();
        let starts_in_warmup = match (&schedule, shared.measure_from.checked_sub(1)) {
            (Some(schedule), Some(last)) => schedule.due_by(last),
            _ => 0,
        };
        let turn =
            (u64::from(plan.share.index) * plan.threads as u64 + index as u64) * plan.order.len() as u64;
        let turn = (turn / plan.stride()) as usize;
        let parts = match &plan.journey {
            Some(journey) => (journey.parts.len(), journey.checks.len()),
            None => (plan.rhythm.shape().map_or(0, |shape| shape.parts().len()), plan.checks.len()),
        };
        let worker = Self {
            slots: (0..clients).map(|_| Slot::new()).collect(),
            tally: RefCell::new(Tally::new(plan.targets.len(), plan.checks.len(), parts)),
            parser: RefCell::default(),
            repeats: Repeats::default(),
            scratch: RefCell::new(Vec::with_capacity(READ_BYTES)),
            opened: Cell::new(ahead.opened()),
            dial: RefCell::new(std::mem::take(&mut ahead.dial)),
            closing: Cell::new(0),
            in_flight: Cell::new(0),
            in_backoff: Cell::new(0),
            last_event: Cell::new(0),
            waiting_since: Cell::new(0),
            is_failing: Cell::new(false),
            values: RefCell::new(Values::new(plan.place(index), plan.stride(), plan.data.clone())),
            places: (0..places).map(|_| Place::default()).collect(),
            turn: Cell::new(turn),
            at_work: Cell::new(None),
            behind: Cell::new(0),
            #[cfg(feature = "http3")]
            endpoints: crate::transport::h3::dial::Endpoints::default(),
            index,
            first_client: first,
            first_text: RefCell::default(),
            ahead: RefCell::new(ahead),
            schedule: RefCell::new(schedule),
            version: Cell::new(version),
            next: RefCell::new(NextStart { k: plan.place(index), at: NEVER, taken: 0, way: Way::default() }),
            starts_in_warmup,
            starts_most: plan.stop_requests.map_or(u64::MAX, |n| n.saturating_add(starts_in_warmup)),
            idle: RefCell::default(),
            bell: Notify::new(),
            feed: shared.take_inbox(index).and_then(|inbox| {
                let replay = plan.replay.as_ref()?;
                Some(Feed::new(inbox, clients, replay.is_max(), replay.by_client))
            }),
            plan,
            shared,
            clock,
        };
        worker.load_start();
        worker
    }

    /// Whether the run is over once all clients are done. A fixed rate with a duration lasts to its end. The interval
    /// after the last start, in which nothing starts, belongs to it, or the rate would come out too high. Ctrl-C
    /// moves the end.
    pub(crate) fn is_over(&self) -> bool {
        if let Some(feed) = &self.feed {
            return feed.is_over() || self.clock.now() >= self.stop_at();
        }
        let all_made = || {
            let next = self.next.borrow();
            next.k >= self.starts_most || (next.at == NEVER && self.is_last(NEVER))
        };
        (self.plan.stop_requests.is_some() && all_made())
            || self.plan.is_closed()
            || self.clock.now() >= self.stop_at()
    }

    /// Whether a start at this moment means that none follows before the end of the run. With a control socket, a
    /// command may bring them back.
    fn is_last(&self, at: u64) -> bool {
        at >= self.stop_at() && (!self.plan.is_controlled() || self.clock.now() >= self.stop_at())
    }

    /// Takes over changes of the schedule.
    pub(super) fn follow_course(&self) {
        let version = self.shared.course.version.load(Ordering::Acquire);
        if self.version.replace(version) != version {
            self.schedule.replace(self.shared.course.now());
            self.load_start();
            self.bell.notify_one();
        }
    }

    /// The part of a shape that a request with this intended start belongs to; without scenarios.
    pub(super) fn part_of(&self, intended: u64) -> Option<usize> {
        self.plan.rhythm.shape().map(|shape| shape.part_at(intended))
    }

    /// Records how late a start was although a client was free.
    pub(in crate::engine) fn note_lag(&self, at: u64, now: u64) {
        self.note_lag_of(self.part_of(at), now.saturating_sub(at));
    }

    /// The same, with the part of a shape.
    pub(crate) fn note_lag_of(&self, part: Option<usize>, lag: u64) {
        let mut tally = self.tally.borrow_mut();
        tally.start_lag.record(lag);
        if let Some(part) = part.and_then(|part| tally.parts.get_mut(part)) {
            part.start_lag.record(lag);
        }
    }

    pub(crate) fn stop_at(&self) -> u64 {
        self.shared.stop_at.load(Ordering::Relaxed)
    }

    /// Whether the coordinator of this agent has been silent for so long that nothing may begin.
    pub(crate) fn is_abandoned(&self) -> bool {
        let lease = self.shared.lease.load(Ordering::Relaxed);
        lease != NEVER && self.clock.now() >= lease
    }

    /// The number of client `i`'s connection among those of all threads.
    pub(crate) fn connection(&self, i: usize) -> usize {
        (self.first_client + i) / self.plan.streams
    }

    /// Whether client `i` keeps its first response, which may be the run's first. One client per thread does: any
    /// single thread may be too late for a short run.
    pub(crate) fn captures(&self, i: usize) -> bool {
        i == 0 && self.shared.first.get().is_none()
    }

    /// Whether a request with this intended start is counted.
    pub(crate) fn counts(&self, intended: u64) -> bool {
        intended >= self.shared.measure_from
    }

    /// The next step of client `i` of this thread. In an open loop it may wait; the pacer wakes it.
    pub(crate) fn poll_next(&self, i: usize, cx: &Context<'_>) -> Poll<Next> {
        if let Some(feed) = &self.feed {
            return feed.poll_next(self, i, cx);
        }
        let slot = &self.slots[i];
        if self.is_abandoned() {
            return Poll::Ready(Next::End);
        }
        let assigned = slot.assigned.replace(NEVER);
        if assigned != NEVER {
            if self.counts(assigned) {
                self.note_lag(assigned, self.clock.now());
            }
            return Poll::Ready(Next::Start(assigned));
        }
        let now = self.clock.now();
        let over = now >= self.stop_at();
        match &self.plan.rhythm {
            Rhythm::Closed(_) if over => Poll::Ready(Next::End),
            Rhythm::Closed(users) => {
                if !users.all() {
                    match users.next(self.plan.share.number(self.connection(i) as u64), now) {
                        NEVER => return Poll::Ready(Next::End),
                        later if later > now => return Poll::Ready(Next::Later(later)),
                        _ => {}
                    }
                }
                Poll::Ready(if self.counts(now) && !self.shared.take_one() {
                    Next::End
                } else {
                    Next::Start(now)
                })
            }
            Rhythm::Open(_) => {
                let at = self.next.borrow().at;
                // A start that was due while this client was free is made late and not dropped. Otherwise, a thread
                // without a processor at the end would look like a target that occupied all connections.
                if self.is_last(at) || (over && !slot.parked.get()) {
                    return Poll::Ready(Next::End);
                }
                if at <= now {
                    let was_free = slot.parked.replace(false);
                    if was_free {
                        // Woken by something other than the pacer, which must not also choose it.
                        self.idle.borrow_mut().retain(|other| *other != i);
                    }
                    if self.counts(at) && (was_free || !self.idle.borrow().is_empty()) {
                        // A client was free: the pacer is late, not the target.
                        self.note_lag(at, now);
                    }
                    self.take_start();
                    return Poll::Ready(Next::Start(at));
                }
                slot.watch(cx);
                if !slot.parked.replace(true) {
                    self.idle.borrow_mut().push(i);
                    if self.idle.borrow().len() == 1 {
                        self.bell.notify_one();
                    }
                }
                Poll::Pending
            }
        }
    }

    /// Another start for a pipeline, if one is already due.
    ///
    /// `first` is the intended start of the pipeline's first request: in a closed loop they start together.
    pub(crate) fn another(&self, first: u64) -> Option<u64> {
        match &self.plan.rhythm {
            Rhythm::Closed(_) => (!self.counts(first) || self.shared.take_one()).then_some(first),
            Rhythm::Open(_) => {
                let (at, now) = (self.next.borrow().at, self.clock.now());
                (at <= now && at < self.stop_at()).then(|| {
                    self.take_start();
                    at
                })
            }
        }
    }

    fn take_start(&self) {
        let mut next = self.next.borrow_mut();
        next.k += self.plan.stride();
        next.taken += 1;
        drop(next);
        self.load_start();
    }

    /// Computes the moment of the next start.
    fn load_start(&self) {
        let schedule = self.schedule.borrow();
        let Some(schedule) = &*schedule else { return };
        let next = &mut *self.next.borrow_mut();
        next.at = if next.k < self.starts_most { schedule.at(next.k, &mut next.way) } else { NEVER };
    }

    /// Starts of this thread that are due and not made.
    fn backlog(&self, at: u64) -> u64 {
        self.due_by(at).saturating_sub(self.next.borrow().taken) + self.behind.get()
    }

    /// Starts of this thread that are due at a moment.
    fn due_by(&self, at: u64) -> u64 {
        let schedule = self.schedule.borrow();
        let Some(schedule) = &*schedule else { return 0 };
        let due = schedule.due_by(at.min(self.stop_at().saturating_sub(1))).min(self.starts_most);
        self.mine(due)
    }

    /// Starts that are due and not made, by the part of the shape. A shape has no warm-up.
    fn unsent_by_part(&self, at: u64) -> Vec<u64> {
        let Some(shape) = self.plan.rhythm.shape() else { return Vec::new() };
        let parts = shape.parts();
        let mut before = self.next.borrow().taken;
        let end =
            |(i, part): (usize, &Part)| if i + 1 == parts.len() { at } else { (part.end_ns - 1).min(at) };
        let unsent = parts.iter().enumerate().map(end).map(|end| {
            let due = self.due_by(end).max(before);
            due - std::mem::replace(&mut before, due)
        });
        unsent.collect()
    }

    /// How many of these would have counted.
    fn unsent(&self, at: u64) -> u64 {
        let in_warmup = self.mine(self.starts_in_warmup).saturating_sub(self.next.borrow().taken);
        self.due_by(at).saturating_sub(self.next.borrow().taken).saturating_sub(in_warmup)
    }

    /// How many of the first `starts` belong to this thread.
    fn mine(&self, starts: u64) -> u64 {
        starts.saturating_sub(self.plan.place(self.index)).div_ceil(self.plan.stride())
    }

    /// Waits until a moment or the end of the run, and accounts for how client `i` spent the time.
    pub(crate) async fn pause_until(&self, i: usize, at: u64, why: Pause) {
        let begun = self.clock.now();
        let Some(instant) = self.clock.instant(at.min(self.stop_at())) else { return };
        let mut sleep = std::pin::pin!(time::sleep_until(instant));
        let in_backoff = u64::from(why == Pause::Failed);
        self.in_backoff.set(self.in_backoff.get() + in_backoff);
        poll_fn(|cx| {
            self.slots[i].watch(cx);
            if self.clock.now() >= self.stop_at() { Poll::Ready(()) } else { sleep.as_mut().poll(cx) }
        })
        .await;
        self.in_backoff.set(self.in_backoff.get() - in_backoff);
        let spent = self.clock.now().saturating_sub(begun.max(self.shared.measure_from));
        let slot = &self.slots[i];
        match why {
            Pause::Failed => {}
            Pause::Stage => slot.idle_ns.set(slot.idle_ns.get() + spent),
            Pause::Think => slot.think_ns.set(slot.think_ns.get() + spent),
        }
    }

    /// Wakes a client.
    pub(crate) fn wake(&self, client: usize) {
        if let Some(slot) = self.slots.get(client) {
            slot.wake();
        }
    }

    pub(crate) fn wake_all(&self) {
        self.slots.iter().for_each(Slot::wake);
    }
}
