//! When the users of a group begin their iterations: like the loop of `engine::worker`, for iterations in place of
//! requests.

use super::crew::Crew;
use crate::clock::{self, NEVER};
use crate::engine::shared::{Course, part};
use crate::engine::worker::{Pause, Worker};
use crate::pace::{Rhythm, Schedule, Way};
use crate::scenario::{Group, Journey};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use weir_agents::Share;
use weir_report::verdict;
use weir_wire::timer::Timer;

/// The longest sleep of a pacer: Ctrl-C moves the end of the run.
const NAP: Duration = Duration::from_millis(100);

/// One thread's part of a group.
pub(super) struct Gate {
    /// The number of the group's first user on this thread, among all users of the group.
    pub(super) first: usize,
    /// Users on this thread.
    pub(super) users: usize,
    group: usize,
    /// The number of this thread's first start, and the step to its next.
    index: u64,
    stride: u64,
    share: Share,
    start_at: u64,
    /// The starts of an open loop as this thread knows them, and their version.
    schedule: RefCell<Option<Arc<Schedule>>>,
    version: Cell<u64>,
    /// Starts of all threads in the warm-up.
    starts_in_warmup: u64,
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
    pub(super) fn new(
        journey: &Journey,
        group: usize,
        course: &Course,
        threads: usize,
        worker: &Worker,
    ) -> Self {
        let users = journey.groups.get(group).map_or(0, |g| g.users);
        let (first, mine) = part(users, threads, worker.index);
        let version = course.version.load(Ordering::Acquire);
        let share = journey.share;
        let first_start = share.number(worker.index as u64);
        let gate = Self {
            first,
            users: mine,
            group,
            index: first_start,
            stride: threads.min(users).max(1) as u64 * u64::from(share.of),
            share,
            start_at: course.begin,
            schedule: RefCell::new(course.now().filter(|_| mine > 0)),
            version: Cell::new(version),
            starts_in_warmup: worker.shared.measure_from.checked_sub(1).map_or(0, |last| course.due_by(last)),
            next: Cell::new(Next { k: first_start, at: NEVER, taken: 0 }),
            way: RefCell::default(),
            idle: RefCell::default(),
            bell: Notify::new(),
        };
        gate.load();
        gate
    }

    /// The number of this thread's user `i` among the group's users of all agents.
    pub(super) fn number(&self, i: usize) -> usize {
        self.share.number((self.first + i) as u64) as usize
    }

    /// Takes over changes of the schedule.
    pub(super) fn follow(&self, course: &Course) {
        let version = course.version.load(Ordering::Acquire);
        if self.users > 0 && self.version.replace(version) != version {
            self.schedule.replace(course.now());
            self.load();
            self.bell.notify_one();
        }
    }

    /// Computes the moment of the next start.
    fn load(&self) {
        let schedule = self.schedule.borrow();
        let Some(schedule) = &*schedule else { return };
        let mut next = self.next.get();
        next.at = schedule.at(next.k, &mut self.way.borrow_mut());
        if next.at != NEVER {
            next.at = next.at.saturating_add(self.start_at);
        }
        self.next.set(next);
    }

    fn take(&self) {
        let mut next = self.next.get();
        next.k += self.stride;
        next.taken += 1;
        self.next.set(next);
        self.load();
    }

    /// Whether a start at this moment means that none follows before the end of the run. With a control socket, a
    /// command may bring them back.
    fn is_last(&self, at: u64, now: u64, worker: &Worker) -> bool {
        let stop = worker.stop_at();
        at >= stop && (!worker.plan.is_controlled() || now >= stop)
    }

    /// Starts of this thread that are due at a moment.
    fn due_by(&self, worker: &Worker, at: u64) -> u64 {
        let at = at.min(worker.stop_at().saturating_sub(1));
        let schedule = self.schedule.borrow();
        let since = schedule.as_ref().zip(at.checked_sub(self.start_at));
        self.mine(since.map_or(0, |(schedule, since)| schedule.due_by(since)))
    }

    /// How many of the first `starts` belong to this thread.
    const fn mine(&self, starts: u64) -> u64 {
        starts.saturating_sub(self.index).div_ceil(self.stride)
    }

    /// Starts of this thread that are due and not made.
    pub(super) fn behind(&self, worker: &Worker, at: u64) -> u64 {
        self.due_by(worker, at).saturating_sub(self.next.get().taken)
    }

    /// How many of the starts that were due by `at` and count were never made.
    pub(super) fn not_started(&self, worker: &Worker, at: u64) -> u64 {
        let in_warmup = self.mine(self.starts_in_warmup).saturating_sub(self.next.get().taken);
        let missed = self.behind(worker, at);
        if self.users == 0 { 0 } else { missed - in_warmup.min(missed) }
    }

    /// The same by the parts of the load, which then has no warm-up; each with its position in `Journey::parts`.
    pub(super) fn not_started_by_part(&self, group: &Group, worker: &Worker, at: u64) -> Vec<(usize, u64)> {
        let Some(shape) = group.rhythm.shape().filter(|_| self.users > 0) else { return Vec::new() };
        let parts = shape.parts();
        let mut before = self.next.get().taken;
        let missed = parts.iter().enumerate().filter_map(|(i, one)| {
            let end = self.start_at.saturating_add(one.end_ns - 1);
            let end = if i + 1 == parts.len() { at } else { end.min(at) };
            let due = self.due_by(worker, end).max(before);
            let n = due - std::mem::replace(&mut before, due);
            Some((group.part_at(self.start_at.saturating_add(one.begin_ns))?, n))
        });
        missed.collect()
    }

    /// The next intended start for the user of this slot; none if no start is left. The pacer wakes the user.
    fn poll_start(&self, crew: &Crew, slot_number: usize, cx: &Context<'_>) -> Poll<Option<u64>> {
        let worker = &crew.worker;
        let Some(slot) = worker.slots.get(slot_number) else { return Poll::Ready(None) };
        let now = worker.clock.now();
        let lag = |at: u64| {
            if worker.counts(at) {
                worker.note_lag_of(crew.part(self.group, at), now.saturating_sub(at));
            }
        };
        if worker.is_abandoned() {
            return Poll::Ready(None);
        }
        let assigned = slot.assigned.replace(NEVER);
        if assigned != NEVER {
            lag(assigned);
            return Poll::Ready(Some(assigned));
        }
        let at = self.next.get().at;
        // A start that was due while this user was free is made late and not dropped.
        if self.is_last(at, now, worker) || (now >= worker.stop_at() && !slot.parked.get()) {
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
            self.take();
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
    let Some(gate) = crew.gates.get(group) else { return };
    let worker = &crew.worker;
    loop {
        let (now, at) = (worker.clock.now(), gate.next.get().at);
        if now >= worker.stop_at() || gate.is_last(at, now, worker) {
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
            gate.take();
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
    if worker.is_abandoned() {
        return None;
    }
    match &plan.rhythm {
        Rhythm::Open(_) => {
            let at = poll_fn(|cx| gate.poll_start(crew, slot, cx)).await?;
            if worker.counts(at) && worker.clock.now() > at.saturating_add(verdict::LATE_NS) {
                worker.tally.borrow_mut().late += 1;
            }
            Some(at)
        }
        Rhythm::Closed(users) => {
            let paced = begun.zip(plan.pace).map(|(begun, pace)| begun.saturating_add(clock::nanos(pace)));
            loop {
                let now = worker.clock.now();
                if now >= worker.stop_at() || worker.is_abandoned() {
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
