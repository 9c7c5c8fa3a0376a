//! A thread's sampler: ten times a second it samples the rate, ends ticks, warm-up and run, and ends requests that
//! time out.

use super::{EndReason, Worker};
use crate::clock;
use crate::engine::replay::Feed;
use crate::engine::shared::{Message, ThreadEnd, TickPart};
use crate::engine::tally::Tally;
use crate::grpc::CODES;
use crate::os;
use crate::pace::Rhythm;
use crate::scenario::tally::JourneyTally;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use weir_report::report::{Errors, Window};

/// How often the sampler wakes: wrk's interval for `Req/Sec`.
pub(crate) const SAMPLE: u64 = 100_000_000;

/// The sampler's state between wakes.
pub(crate) struct Sampler {
    /// When to wake next.
    pub(crate) next: u64,
    tick: u64,
    tick_ns: u64,
    tick_begun: u64,
    measuring: bool,
    announced_stop: bool,
    /// Whether the coordinator knows that this thread waits for a processor.
    told_waits: bool,
    responses: u64,
    /// When the rate was last sampled, and when it is sampled next.
    sampled: u64,
    grid: Grid,
    cpu: u64,
    /// What the thread had spent when measuring began, and when the window closed.
    spent_first: Spent,
    spent_last: Option<Spent>,
    last: Counted,
}

/// Moments [`SAMPLE`] apart. A late sample does not shift later ones; otherwise the next one, now too early, would
/// wait for the one after it.
struct Grid {
    next: u64,
}

impl Grid {
    /// Whether a moment has passed since the last call. Several count as one.
    const fn passed(&mut self, now: u64) -> bool {
        let Some(late) = now.checked_sub(self.next) else { return false };
        self.next += (late / SAMPLE + 1) * SAMPLE;
        true
    }
}

/// What a thread has spent.
#[derive(Clone, Copy)]
struct Spent {
    at: u64,
    cpu: u64,
    waited: u64,
    /// What the whole process has spent.
    process: u64,
}

impl Spent {
    fn until(at: u64) -> Self {
        let process = os::process_cpu_ns(std::process::id()).unwrap_or(0);
        Self { at, cpu: os::thread_cpu_ns(), waited: os::thread_waited_ns(), process }
    }
}

/// Counts at the last tick.
#[derive(Default)]
struct Counted {
    requests: u64,
    late: u64,
    started: u64,
    responses: u64,
    unexpected: u64,
    statuses: Vec<u64>,
    grpc: [u64; CODES.len()],
    errors: Errors,
    sent: u64,
    received: u64,
    checks: Vec<(u64, u64)>,
    window: Window,
}

impl Counted {
    fn of(t: &Tally) -> Self {
        Self {
            requests: t.requests,
            late: t.late,
            started: t.started,
            responses: t.responses,
            unexpected: t.unexpected,
            statuses: t.statuses.clone(),
            grpc: t.grpc,
            errors: t.errors.clone(),
            sent: t.bytes.sent(),
            received: t.bytes.received(),
            checks: t.checks.clone(),
            window: t.window,
        }
    }

    /// Passed and failed of each check since `earlier`.
    fn checks_since(&self, earlier: &Self) -> Vec<(u64, u64)> {
        let before = earlier.checks.iter().copied().chain(std::iter::repeat((0, 0)));
        self.checks.iter().zip(before).map(|(now, then)| (now.0 - then.0, now.1 - then.1)).collect()
    }

    /// Responses by status since `earlier`.
    fn statuses_since(&self, earlier: &Self) -> BTreeMap<u16, u64> {
        let before = earlier.statuses.iter().chain(std::iter::repeat(&0));
        let since =
            (0..).zip(self.statuses.iter().zip(before)).map(|(status, (now, then))| (status, now - then));
        since.filter(|(_, n)| *n > 0).collect()
    }
}

impl Sampler {
    pub(crate) fn new(worker: &Worker) -> Self {
        let mut sampler = Self {
            next: 0,
            tick: 0,
            tick_ns: worker.plan.tick_ns(),
            tick_begun: worker.shared.measure_from,
            measuring: worker.shared.measure_from == 0,
            announced_stop: false,
            told_waits: false,
            responses: 0,
            sampled: worker.shared.measure_from,
            grid: Grid { next: worker.shared.measure_from + SAMPLE },
            cpu: os::thread_cpu_ns(),
            spent_first: Spent::until(worker.shared.measure_from),
            spent_last: None,
            last: Counted::default(),
        };
        sampler.plan_next(worker, worker.clock.now());
        sampler
    }

    fn plan_next(&mut self, worker: &Worker, now: u64) {
        let grid = worker.shared.measure_from % SAMPLE;
        let mut next = (now.saturating_sub(grid) / SAMPLE + 1) * SAMPLE + grid;
        let short = clock::nanos(worker.plan.timeout) / 4;
        next = next.min(now + short.max(1_000_000));
        let cut = worker.shared.cut_at.load(Ordering::Relaxed);
        let tick_end = worker.shared.measure_from + (self.tick + 1) * self.tick_ns;
        for moment in [worker.shared.measure_from, worker.stop_at(), cut, tick_end] {
            if moment > now {
                next = next.min(moment);
            }
        }
        self.next = next;
    }

    /// `steps` are the counts of scenarios.
    pub(crate) fn sample(
        &mut self,
        worker: &Worker,
        steps: Option<&RefCell<JourneyTally>>,
        out: &mpsc::Sender<Message>,
    ) {
        worker.follow_course();
        worker.add_repeats();
        let now = worker.clock.now();
        if !self.measuring && now >= worker.shared.measure_from {
            self.begin_measuring(worker, now);
        }
        if self.measuring && self.grid.passed(now) {
            let mut tally = worker.tally.borrow_mut();
            let responses = tally.arrived;
            let seconds = (now - self.sampled) as f64 / 1e9;
            let rate = (responses - self.responses) as f64 / seconds;
            // After the end, only requests in flight finish; they are not part of the rate.
            if now <= worker.stop_at().saturating_add(SAMPLE / 2) {
                tally.rates.record(rate.round() as u64);
            }
            (self.responses, self.sampled) = (responses, now);
            drop(tally);
            if worker.is_waiting() {
                worker.note_silence(now, worker.is_failing.get());
            }
            let backlog = worker.backlog(now);
            let mut tally = worker.tally.borrow_mut();
            tally.backlog_max = tally.backlog_max.max(backlog);
            drop(tally);
            self.tell_waits(now, out);
        }
        while self.measuring && now >= worker.shared.measure_from + (self.tick + 1) * self.tick_ns {
            self.end_tick(worker, steps, now, out);
        }
        if now >= worker.stop_at() {
            self.spent_last.get_or_insert_with(|| Spent::until(now));
        }
        self.sweep(worker, now);
        self.plan_next(worker, now);
    }

    /// Tells the coordinator, once, that this thread waits for a processor, so that it looks who has it.
    fn tell_waits(&mut self, now: u64, out: &mpsc::Sender<Message>) {
        if !self.told_waits {
            let waited = os::thread_waited_ns().saturating_sub(self.spent_first.waited);
            let elapsed = now.saturating_sub(self.spent_first.at);
            self.told_waits = waited as f64 > weir_report::verdict::WAITED * elapsed as f64;
            if self.told_waits {
                let _ = out.send(Message::Waits); // the coordinator has gone
            }
        }
    }

    /// The warm-up is over. Requests are counted by their intended starts, so their counts stay; measurements of the
    /// time before are discarded.
    fn begin_measuring(&mut self, worker: &Worker, now: u64) {
        let mut tally = worker.tally.borrow_mut();
        (tally.longest_silence_ns, tally.backlog_max) = (0, 0);
        tally.silences.clear();
        self.measuring = true;
        self.spent_first = Spent::until(now);
        self.cpu = self.spent_first.cpu;
    }

    fn end_tick(
        &mut self,
        worker: &Worker,
        steps: Option<&RefCell<JourneyTally>>,
        now: u64,
        out: &mpsc::Sender<Message>,
    ) {
        let (service, response) = worker.tally.borrow_mut().take_tick();
        let counted = Counted::of(&worker.tally.borrow());
        let cpu = os::thread_cpu_ns();
        let users = match &worker.plan.rhythm {
            _ if worker.feed.is_some() => worker.in_flight.get(),
            Rhythm::Closed(users) => {
                let streams = worker.plan.streams as u64;
                let share = worker.plan.share;
                let most = (worker.plan.clients as u64 / streams).saturating_mul(u64::from(share.of));
                let all = share.part(users.at(now, most));
                let mine = worker.slots.len() as u64 / streams;
                all.saturating_sub(worker.connection(0) as u64).min(mine)
            }
            Rhythm::Open(_) => worker.in_flight.get(),
        };
        let part = TickPart {
            index: self.tick,
            begun_ns: self.tick_begun,
            end_ns: now,
            service,
            response,
            requests: counted.requests - self.last.requests,
            responses: counted.responses - self.last.responses,
            unexpected: counted.unexpected - self.last.unexpected,
            statuses: counted.statuses_since(&self.last),
            grpc: std::array::from_fn(|code| counted.grpc[code] - self.last.grpc[code]),
            errors: counted.errors.since(&self.last.errors),
            sent: counted.sent - self.last.sent,
            received: counted.received - self.last.received,
            checks: counted.checks_since(&self.last),
            window: counted.window.since(&self.last.window),
            users: worker.at_work.get().unwrap_or(users),
            backlog: worker.backlog(now),
            late: counted.late - self.last.late,
            started: counted.started - self.last.started,
            cpu_ns: cpu.saturating_sub(self.cpu),
            steps: steps.map(|steps| steps.borrow_mut().take_tick()).unwrap_or_default(),
        };
        (self.last, self.cpu, self.tick_begun) = (counted, cpu, now);
        self.tick += 1;
        let _ = out.send(Message::Tick(Box::new(part))); // the coordinator has gone
    }

    /// Ends requests that timed out, and all requests once the run is finally over.
    fn sweep(&mut self, worker: &Worker, now: u64) {
        let cut = now >= worker.shared.cut_at.load(Ordering::Relaxed);
        for slot in &worker.slots {
            let late = now >= slot.deadline.get();
            if (cut || late) && slot.end.get().is_none() {
                slot.end.set(Some(if cut { EndReason::Cut } else { EndReason::Timeout }));
                slot.wake();
            }
        }
        if !self.announced_stop && now >= worker.stop_at() {
            self.announced_stop = true;
            worker.bell.notify_one();
            worker.feed.iter().for_each(Feed::stop);
            worker.wake_all();
        }
    }

    pub(crate) fn end(
        mut self,
        worker: &Worker,
        steps: Option<&RefCell<JourneyTally>>,
        out: &mpsc::Sender<Message>,
    ) -> ThreadEnd {
        worker.add_repeats();
        // Before the moment of the end: later work is not part of the run.
        let mut last = Spent::until(0);
        let now = worker.clock.now();
        last.at = now;
        if !self.measuring {
            self.begin_measuring(worker, now); // interrupted in the warm-up: nothing counts
        }
        #[cfg(feature = "http3")]
        if worker.plan.is_h3() {
            worker.tally.borrow_mut().lost_packets = Some(worker.endpoints.lost_packets());
        }
        let (first, last) = (self.spent_first, self.spent_last.unwrap_or(last));
        let unsent = worker.unsent(now);
        let unsent_by_part = worker.unsent_by_part(now);
        self.end_tick(worker, steps, now, out);
        ThreadEnd {
            end_ns: now,
            replayed: worker.feed.as_ref().map(|feed| Box::new(feed.end())),
            last_tick: self.tick - 1, // the one just ended
            measured_ns: last.at.saturating_sub(first.at),
            cpu_ns: last.cpu.saturating_sub(first.cpu),
            waited_ns: last.waited.saturating_sub(first.waited),
            process_ns: last.process.saturating_sub(first.process),
            think_ns: worker.slots.iter().map(|s| s.think_ns.get()).sum(),
            available_ns: worker.slots.iter().map(|s| s.available_ns.get()).sum(),
            responses_by_client: worker
                .slots
                .chunks(worker.plan.streams)
                .map(|slots| slots.iter().map(|s| s.responses.get()).sum())
                .collect(),
            dial: worker.dial.take(),
            opened: worker.opened.get(),
            unsent,
            unsent_by_part,
            kinds: worker.parser.borrow().kinds.list(),
            tally: worker.tally.replace(Tally::default()),
            journey: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_looks_leave_no_sample_out() {
        let mut grid = Grid { next: SAMPLE };
        let late = [3_000_000, 1_000_000, 9_000_000, 0, 4_000_000];
        for (k, late) in (1..).zip(late) {
            assert!(!grid.passed(k * SAMPLE - 1) && grid.passed(k * SAMPLE + late), "{k}");
        }
        // If the thread had no processor for three of them, there is one sample of that length.
        assert!(grid.passed(8 * SAMPLE + 5) && !grid.passed(9 * SAMPLE - 1) && grid.passed(9 * SAMPLE));
    }
}
