//! What the tasks of one thread of the generator have in common: its clients' slots, its tally, its place in the schedule. `thread` starts them.
//!
//! The *sampler* wakes ten times a second: it samples the rate, ends ticks, warm-up and run, and ends what took too long. So an exchange
//! sets no timer: it writes its deadline into its slot. The *pacer*, only with a fixed rate, wakes an idle client at each intended
//! start, by a timer of the kernel.

mod outcome;
pub(super) mod sampler;

use super::ahead::Ahead;
use super::h2::Place;
use super::shared::Shared;
use super::tally::Tally;
use crate::clock::{Clock, NEVER};
use crate::pace::Rhythm;
use crate::plan::Plan;
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
use weir_report::Histogram;
use weir_wire::timer::Timer;

/// What one read may bring. One buffer for all connections of a thread, so that it stays in the cache.
const READ_BYTES: usize = 64 * 1024;

pub(super) struct Worker {
    pub(super) plan: Arc<Plan>,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    pub(super) slots: Vec<Slot>,
    pub(super) tally: RefCell<Tally>,
    pub(super) parser: RefCell<Parser>,
    pub(super) scratch: RefCell<Vec<u8>>,
    pub(super) dial: RefCell<Histogram>,
    pub(super) opened: Cell<u64>,
    /// Connections that wait for the target to close them.
    pub(super) closing: Cell<usize>,
    /// Requests under way.
    in_flight: Cell<u64>,
    /// Clients that could not connect and try again in a moment.
    in_backoff: Cell<u64>,
    /// When a response last came, or the first request after a pause in which the plan wanted none began.
    last_event: Cell<u64>,
    /// Since when there is always someone who waits.
    waiting_since: Cell<u64>,
    /// Whether a request failed and no response has come since.
    is_failing: Cell<bool>,
    /// The place of this thread in the round of targets. Of the thread and not of each client, so that the mix is exact.
    pub(super) turn: Cell<usize>,
    pub(super) values: RefCell<Values>,
    /// For each set of clients that share a connection of HTTP/2, and each origin.
    pub(super) places: Vec<Place>,
    /// The text of the request of HTTP/2 whose response is kept for the ledger, where the plan does not hold it.
    pub(super) first_text: RefCell<Option<Vec<u8>>>,
    /// Connections that nobody has used yet.
    pub(super) ahead: RefCell<Ahead>,
    index: usize,
    /// Number of the first client among those of all threads.
    first_client: usize,
    next: RefCell<NextStart>,
    /// Starts of an open loop in the warm-up, and in the whole run: as many more as are asked for.
    starts_in_warmup: u64,
    starts_most: u64,
    idle: RefCell<Vec<usize>>,
    bell: Notify,
}

/// The next start of an open loop that this thread has to make.
struct NextStart {
    k: u64,
    at: u64,
    /// How many were made.
    taken: u64,
}

/// What the tasks of a thread know of one client.
pub(super) struct Slot {
    waker: RefCell<Option<Waker>>,
    /// When the exchange under way takes too long; [`NEVER`] when there is none.
    pub(super) deadline: Cell<u64>,
    pub(super) end: Cell<Option<EndReason>>,
    /// The start that the pacer chose it for.
    assigned: Cell<u64>,
    parked: Cell<bool>,
    pub(super) responses: Cell<u64>,
    /// Before its stage.
    pub(super) idle_ns: Cell<u64>,
    pub(super) think_ns: Cell<u64>,
    pub(super) available_ns: Cell<u64>,
}

/// Why an exchange is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The run is over, and so is the graceful stop.
    Cut,
    /// It took too long.
    Timeout,
}

/// Why a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// It can not connect, and tries again in a moment.
    Failed,
    /// Its stage has not come.
    Stage,
    /// Think time.
    Think,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing any more.
    End,
    /// It may not send before this moment.
    Later(u64),
    /// A request whose intended start is this moment.
    Start(u64),
}

impl Slot {
    const fn new() -> Self {
        Self {
            waker: RefCell::new(None),
            deadline: Cell::new(NEVER),
            end: Cell::new(None),
            assigned: Cell::new(NEVER),
            parked: Cell::new(false),
            responses: Cell::new(0),
            idle_ns: Cell::new(0),
            think_ns: Cell::new(0),
            available_ns: Cell::new(0),
        }
    }

    /// Remembers whom to wake.
    pub(super) fn watch(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.is_none() {
            *waker = Some(cx.waker().clone()); // a task keeps its waker for life
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Wakes an idle client at each intended start.
pub(super) async fn pace(worker: Rc<Worker>, timer: Timer) {
    loop {
        let now = worker.clock.now();
        let stop = worker.stop_at();
        let at = worker.next.borrow().at;
        if at >= stop || now >= stop {
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
            // No spinning for what is close: it would take the whole core at 50,000/s, and the generator would call itself busy.
            tokio::select! {
                () = timer.wait(Duration::from_nanos(at - now)) => {}
                () = worker.bell.notified() => {}
            }
        }
    }
}

impl Worker {
    /// That of thread `index`, of the run's clients from `first` on so many as `clients` says.
    pub(super) fn new(
        plan: Arc<Plan>,
        shared: Arc<Shared>,
        clock: Clock,
        index: usize,
        (first, clients): (usize, usize),
        mut ahead: Ahead,
    ) -> Self {
        let places = if plan.is_h2() { clients / plan.streams * plan.origins.len() } else { 0 };
        let starts_in_warmup = match (&plan.rhythm, shared.measure_from.checked_sub(1)) {
            (Rhythm::Open(starts), Some(last)) => starts.due_by(last),
            _ => 0,
        };
        let worker = Self {
            slots: (0..clients).map(|_| Slot::new()).collect(),
            tally: RefCell::new(Tally::new(plan.targets.len(), plan.checks.len())),
            parser: RefCell::default(),
            scratch: RefCell::new(Vec::with_capacity(READ_BYTES)),
            opened: Cell::new(ahead.opened()),
            dial: RefCell::new(std::mem::take(&mut ahead.dial)),
            closing: Cell::new(0),
            in_flight: Cell::new(0),
            in_backoff: Cell::new(0),
            last_event: Cell::new(0),
            waiting_since: Cell::new(0),
            is_failing: Cell::new(false),
            values: RefCell::new(Values::new(index, plan.threads, plan.data.clone())),
            places: (0..places).map(|_| Place::default()).collect(),
            turn: Cell::new(index * plan.order.len() / plan.threads),
            index,
            first_client: first,
            first_text: RefCell::default(),
            ahead: RefCell::new(ahead),
            next: RefCell::new(NextStart { k: index as u64, at: NEVER, taken: 0 }),
            starts_in_warmup,
            starts_most: plan.stop_requests.map_or(u64::MAX, |n| n.saturating_add(starts_in_warmup)),
            idle: RefCell::default(),
            bell: Notify::new(),
            plan,
            shared,
            clock,
        };
        worker.load_start();
        worker
    }

    /// Whether the run is over when all clients are done. A fixed rate that was to last for a time lasts until then: the interval after its last start, in
    /// which nothing starts, belongs to it, or the rate would come out too high. Ctrl-C moves the end.
    pub(super) fn is_over(&self) -> bool {
        let all_made = self.plan.stop_requests.is_some() && self.next.borrow().at == NEVER;
        all_made || self.plan.is_closed() || self.clock.now() >= self.stop_at()
    }

    pub(super) fn stop_at(&self) -> u64 {
        self.shared.stop_at.load(Ordering::Relaxed)
    }

    /// The number of client `i`'s connection among those of all threads.
    pub(super) fn connection(&self, i: usize) -> usize {
        (self.first_client + i) / self.plan.streams
    }

    /// Whether client `i` keeps its first response, in case that it is the first of the run. One of each thread does: any of them may come too late
    /// for a short run.
    pub(super) fn captures(&self, i: usize) -> bool {
        i == 0 && self.shared.first.get().is_none()
    }

    /// Whether a request with this intended start is counted.
    pub(super) fn counts(&self, intended: u64) -> bool {
        intended >= self.shared.measure_from
    }

    /// What client `i` of this thread does next. An open loop may let it wait; the pacer wakes it.
    pub(super) fn poll_next(&self, i: usize, cx: &Context<'_>) -> Poll<Next> {
        let slot = &self.slots[i];
        let assigned = slot.assigned.replace(NEVER);
        if assigned != NEVER {
            if self.counts(assigned) {
                let lag = self.clock.now().saturating_sub(assigned);
                self.tally.borrow_mut().start_lag.record(lag);
            }
            return Poll::Ready(Next::Start(assigned));
        }
        let now = self.clock.now();
        let over = now >= self.stop_at();
        match &self.plan.rhythm {
            Rhythm::Closed(_) if over => Poll::Ready(Next::End),
            Rhythm::Closed(users) => {
                if !users.all() {
                    match users.next(self.connection(i) as u64, now) {
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
                // A start that was due while this client was free is made late, not missed: a thread that had no processor at the end
                // must not look like a target that took all connections.
                if at >= self.stop_at() || (over && !slot.parked.get()) {
                    return Poll::Ready(Next::End);
                }
                if at <= now {
                    let was_free = slot.parked.replace(false);
                    if was_free {
                        // Woken by something else than the pacer, which must not choose it too.
                        self.idle.borrow_mut().retain(|other| *other != i);
                    }
                    if self.counts(at) && (was_free || !self.idle.borrow().is_empty()) {
                        // One was free: it is the pacer that is late, and not the target.
                        self.tally.borrow_mut().start_lag.record(now - at);
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

    /// One more start of the schedule for a pipeline, if one is due already.
    ///
    /// `first` is the intended start of the first in the pipeline: in a closed loop they start together.
    pub(super) fn another(&self, first: u64) -> Option<u64> {
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
        next.k += self.plan.threads as u64;
        next.taken += 1;
        drop(next);
        self.load_start();
    }

    /// Finds the moment of the next start.
    fn load_start(&self) {
        let Rhythm::Open(starts) = &self.plan.rhythm else { return };
        let mut next = self.next.borrow_mut();
        next.at = if next.k < self.starts_most { starts.at(next.k) } else { NEVER };
    }

    /// Starts of this thread that are due and not made.
    fn backlog(&self, at: u64) -> u64 {
        let Rhythm::Open(starts) = &self.plan.rhythm else { return 0 };
        let due = starts.due_by(at.min(self.stop_at().saturating_sub(1))).min(self.starts_most);
        self.mine(due).saturating_sub(self.next.borrow().taken)
    }

    /// Of these, those that were to be counted.
    fn unsent(&self, at: u64) -> u64 {
        let in_warmup = self.mine(self.starts_in_warmup).saturating_sub(self.next.borrow().taken);
        self.backlog(at).saturating_sub(in_warmup)
    }

    /// How many of the first `starts` are this thread's.
    fn mine(&self, starts: u64) -> u64 {
        starts.saturating_sub(self.index as u64).div_ceil(self.plan.threads as u64)
    }

    /// Waits until a moment or the end of the run, and counts for what client `i` did.
    pub(super) async fn pause_until(&self, i: usize, at: u64, why: Pause) {
        let begun = self.clock.now();
        let Some(instant) = self.clock.instant(at.min(self.stop_at())) else { return };
        let mut sleep = std::pin::pin!(tokio::time::sleep_until(instant.into()));
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

    /// Lets a client look again.
    pub(super) fn wake(&self, client: usize) {
        if let Some(slot) = self.slots.get(client) {
            slot.wake();
        }
    }

    fn wake_all(&self) {
        self.slots.iter().for_each(Slot::wake);
    }
}
