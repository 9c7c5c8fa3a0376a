//! When the users of a group begin their iterations: like the loop of `engine::worker`, for iterations in place of
//! requests.

use super::crew::Crew;
use crate::clock::{self, NEVER};
use crate::engine::shared::part;
use crate::engine::worker::{Pause, Worker};
use crate::pace::{Rhythm, Starts, Way};
use crate::scenario::Journey;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use weir_agents::Share;
use weir_wire::timer::Timer;

/// The longest sleep of a pacer: Ctrl-C moves the end of the run.
const NAP: Duration = Duration::from_millis(100);

/// One thread's part of a group.
pub(super) struct Gate {
    /// The number of the group's first user on this thread, among all users of the group.
    pub(super) first: usize,
    /// Users on this thread.
    pub(super) users: usize,
    /// The number of this thread's first start, and the step to its next.
    index: u64,
    stride: u64,
    share: Share,
    start_at: u64,
    next: Cell<Next>,
    way: RefCell<Way>,
    idle: RefCell<Vec<usize>>,
    bell: Notify,
}

/// The next start of an open loop for this thread.
#[derive(Clone, Copy)]
struct Next {
    k: u64,
    at: u64,
    taken: u64,
}

impl Gate {
    pub(super) fn new(journey: &Journey, group: usize, threads: usize, index: usize) -> Self {
        let (users, start_at) = journey.groups.get(group).map_or((0, 0), |g| (g.users, g.start_at));
        let (first, mine) = part(users, threads, index);
        let share = journey.share;
        let gate = Self {
            first,
            users: mine,
            index: share.number(index as u64),
            stride: threads.min(users).max(1) as u64 * u64::from(share.of),
            share,
            start_at,
            next: Cell::new(Next { k: share.number(index as u64), at: NEVER, taken: 0 }),
            way: RefCell::default(),
            idle: RefCell::default(),
            bell: Notify::new(),
        };
        if let Some(Rhythm::Open(starts)) = journey.groups.get(group).map(|g| &g.rhythm)
            && mine > 0
        {
            gate.load(starts);
        }
        gate
    }

    /// The number of this thread's user `i` among the group's users of all agents.
    pub(super) fn number(&self, i: usize) -> usize {
        self.share.number((self.first + i) as u64) as usize
    }

    fn load(&self, starts: &Starts) {
        let mut next = self.next.get();
        next.at = starts.at(next.k, &mut self.way.borrow_mut());
        if next.at != NEVER {
            next.at = next.at.saturating_add(self.start_at);
        }
        self.next.set(next);
    }

    fn take(&self, starts: &Starts) {
        let mut next = self.next.get();
        next.k += self.stride;
        next.taken += 1;
        self.next.set(next);
        self.load(starts);
    }

    /// How many of the starts that were due by `at` and count were never made.
    pub(super) fn not_started(&self, starts: &Starts, worker: &Worker, at: u64) -> u64 {
        let end = at.min(worker.stop_at().saturating_sub(1));
        let due = |at: u64| at.checked_sub(self.start_at).map_or(0, |at| starts.due_by(at));
        let mine = |due: u64| due.saturating_sub(self.index).div_ceil(self.stride);
        let taken = self.next.get().taken;
        let in_warmup = worker.shared.measure_from.checked_sub(1).map_or(0, due);
        let missed = mine(due(end)).saturating_sub(taken);
        if self.users == 0 { 0 } else { missed - mine(in_warmup).saturating_sub(taken).min(missed) }
    }

    /// The next intended start for the user of this slot; none if no start is left. The pacer wakes the user.
    fn poll_start(
        &self,
        starts: &Starts,
        worker: &Worker,
        slot_number: usize,
        cx: &Context<'_>,
    ) -> Poll<Option<u64>> {
        let Some(slot) = worker.slots.get(slot_number) else { return Poll::Ready(None) };
        let now = worker.clock.now();
        let lag = |at: u64| {
            if worker.counts(at) {
                worker.tally.borrow_mut().start_lag.record(now.saturating_sub(at));
            }
        };
        let assigned = slot.assigned.replace(NEVER);
        if assigned != NEVER {
            lag(assigned);
            return Poll::Ready(Some(assigned));
        }
        let (at, stop) = (self.next.get().at, worker.stop_at());
        // A start that was due while this user was free is made late and not dropped.
        if at >= stop || (now >= stop && !slot.parked.get()) {
            return Poll::Ready(None);
        }
        if at <= now {
            let was_free = slot.parked.replace(false);
            if was_free {
                self.idle.borrow_mut().retain(|other| *other != slot_number);
            }
            if was_free || !self.idle.borrow().is_empty() {
                lag(at);
            }
            self.take(starts);
            return Poll::Ready(Some(at));
        }
        slot.watch(cx);
        if !slot.parked.replace(true) {
            self.idle.borrow_mut().push(slot_number);
            self.bell.notify_one();
        }
        Poll::Pending
    }
}

/// Wakes an idle user at each intended start of the group.
pub(super) async fn pace(crew: Rc<Crew>, group: usize, timer: Timer) {
    let (Some(gate), Some(plan)) = (crew.gates.get(group), crew.journey.groups.get(group)) else { return };
    let Rhythm::Open(starts) = &plan.rhythm else { return };
    let worker = &crew.worker;
    loop {
        let (now, stop, at) = (worker.clock.now(), worker.stop_at(), gate.next.get().at);
        if at >= stop || now >= stop {
            worker.wake_all();
            return;
        }
        if gate.idle.borrow().is_empty() {
            gate.bell.notified().await;
        } else if at <= now {
            let Some(i) = gate.idle.borrow_mut().pop() else { continue };
            let Some(slot) = worker.slots.get(i) else { continue };
            slot.assigned.set(at);
            slot.parked.set(false);
            gate.take(starts);
            slot.wake();
        } else {
            tokio::select! {
                () = timer.wait(Duration::from_nanos(at - now).min(NAP)) => {}
                () = gate.bell.notified() => {}
            }
        }
    }
}

/// When the user of this slot begins its next iteration; none if the load is over for it. `number` is its number in
/// the group, `begun` when its last iteration began.
pub(super) async fn next_start(
    crew: &Crew,
    group: usize,
    slot: usize,
    number: usize,
    begun: Option<u64>,
) -> Option<u64> {
    let (gate, plan) = (crew.gates.get(group)?, crew.journey.groups.get(group)?);
    let worker = &crew.worker;
    match &plan.rhythm {
        Rhythm::Open(starts) => poll_fn(|cx| gate.poll_start(starts, worker, slot, cx)).await,
        Rhythm::Closed(users) => {
            let paced = begun.zip(plan.pace).map(|(begun, pace)| begun.saturating_add(clock::nanos(pace)));
            loop {
                let now = worker.clock.now();
                if now >= worker.stop_at() {
                    return None;
                }
                let since = now.saturating_sub(gate.start_at);
                let allowed = match users.next(number as u64, since) {
                    NEVER => return None,
                    at => at.saturating_add(gate.start_at),
                };
                let at = allowed.max(gate.start_at).max(paced.unwrap_or(0));
                if at <= now {
                    // A user that was too slow for its pace begins at once; the plan had no earlier moment for it.
                    return Some(now);
                }
                let why = if Some(at) == paced { Pause::Think } else { Pause::Stage };
                worker.pause_until(slot, at, why).await;
            }
        }
    }
}
