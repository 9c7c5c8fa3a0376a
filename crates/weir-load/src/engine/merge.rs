//! Merges the threads' results: ticks during the run, the report at its end.

mod ledger;
mod parts;
mod threads;

use super::blocks::Blocks;
use super::shared::{Shared, ThreadEnd, TickPart};
use crate::cores::{self, Look};
use crate::grpc::CODES;
use crate::os;
use crate::plan::Plan;
use crate::progress::SoFar;
use crate::scenario;
use crate::throttle::Throttled;
use ledger::{join, ledger};
use parts::{add_replay, no_checks, parts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use threads::{add_thread, sessions};
use weir_report::report::{
    Change, End, Percentiles, Protocol, Report, SCHEMA, Series, TargetCost, TargetStats, Tick, Window,
};
use weir_report::{Histogram, verdict};

pub(super) struct Merge {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    /// This agent's starts due until the end of the last tick.
    planned: u64,
    /// Starts that the plan may make, those of the warm-up included.
    planned_most: u64,
    /// Parts of incomplete ticks.
    parts: BTreeMap<u64, Vec<TickPart>>,
    series: Series,
    /// Ticks merged into the last one of the series.
    in_last: u64,
    /// The blocks of `--rounds`.
    blocks: Blocks,
    pub(super) so_far: SoFar,
    /// What went wrong after the load, for the error texts.
    pub(super) notes: Vec<String>,
    /// How long no response had arrived at the last tick.
    silent_ns: u64,
    /// What the processor limit of our cgroup cost, known at the end.
    pub(super) throttled: Throttled,
    threads: Vec<(usize, ThreadEnd)>,
    /// Made on the control socket.
    pub(super) changes: Vec<Change>,
}

impl Merge {
    pub(super) fn new(plan: &Arc<Plan>, shared: &Arc<Shared>) -> Self {
        let in_warmup = |due: &dyn Fn(u64) -> u64| plan.warmup_ns.checked_sub(1).map_or(0, due);
        let planned = in_warmup(&|last| due_by(plan, shared, last, u64::MAX));
        let all_planned = in_warmup(&|last| shared.course.due_by(last));
        Self {
            plan: Arc::clone(plan),
            shared: Arc::clone(shared),
            planned,
            planned_most: plan.stop_requests.map_or(u64::MAX, |n| n.saturating_add(all_planned)),
            parts: BTreeMap::new(),
            series: Series { tick_ns: plan.tick_ns(), ticks: Vec::new() },
            in_last: 0,
            blocks: Blocks::new(plan),
            notes: Vec::new(),
            so_far: SoFar { checks: no_checks(plan), ..SoFar::default() },
            silent_ns: 0,
            throttled: Throttled::default(),
            threads: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Takes a thread's part of a tick; returns the tick if this part completes it.
    pub(super) fn tick(&mut self, part: TickPart) -> Vec<Tick> {
        let index = part.index;
        self.parts.entry(index).or_default().push(part);
        self.completed(index).into_iter().collect()
    }

    /// Takes a thread's final results, after all its ticks. Returns ticks that waited only for this thread.
    pub(super) fn thread(&mut self, index: usize, end: ThreadEnd) -> Vec<Tick> {
        self.threads.push((index, end));
        let waiting: Vec<u64> = self.parts.keys().copied().collect();
        waiting.into_iter().filter_map(|index| self.completed(index)).collect()
    }

    /// The tick, once each thread has sent its part or has ended. With stages, all users of one thread may be gone
    /// long before those of others.
    fn completed(&mut self, index: u64) -> Option<Tick> {
        let ended = self.threads.iter().filter(|(_, end)| end.last_tick < index).count();
        if self.parts.get(&index)?.len() + ended < self.plan.threads {
            return None;
        }
        let parts = self.parts.remove(&index)?;
        Some(self.complete(&parts))
    }

    fn complete(&mut self, parts: &[TickPart]) -> Tick {
        let (mut service, mut response) = (Histogram::new(), Histogram::new());
        let mut tick = Tick::default();
        let mut begun = u64::MAX;
        for p in parts {
            service.add(&p.service);
            response.add(&p.response);
            begun = begun.min(p.begun_ns);
            tick.end_ns = tick.end_ns.max(p.end_ns);
            tick.requests += p.requests;
            tick.responses += p.responses;
            tick.unexpected += p.unexpected;
            tick.errors += p.errors.total();
            let counts = &mut self.so_far.counts;
            counts.errors.add(&p.errors);
            if self.plan.journey.as_ref().is_some_and(|journey| journey.makes_calls()) {
                *counts.unexpected.get_or_insert(0) += p.unexpected;
            }
            p.statuses.iter().for_each(|(status, n)| *counts.statuses.entry(*status).or_default() += n);
            for (code, n) in CODES.iter().zip(p.grpc).filter(|(_, n)| *n > 0) {
                *counts.grpc.entry((*code).to_owned()).or_default() += n;
            }
            for (all, (passed, failed)) in self.so_far.checks.iter_mut().zip(&p.checks) {
                all.passed += passed;
                all.failed += failed;
            }
            self.so_far.window.add(&p.window);
            tick.sent += p.sent;
            tick.received += p.received;
            tick.users += p.users;
            tick.backlog += p.backlog;
            tick.late += p.late;
            tick.started += p.started;
            tick.generator_cpu_ns += p.cpu_ns;
        }
        if let Some(journey) = &self.plan.journey {
            let rows = scenario::tally::merged(parts.iter().flat_map(|p| &p.steps));
            tick.steps = scenario::tally::ticks(journey, &rows);
            if let Some(part) = parts.first() {
                self.blocks.add_steps(part.index, journey, &rows);
            }
        }
        tick.planned = match &self.plan.replay {
            Some(replay) => replay.found().planned_until(tick.end_ns),
            None => {
                let planned = due_by(&self.plan, &self.shared, tick.end_ns, self.planned_most);
                planned.saturating_sub(std::mem::replace(&mut self.planned, planned))
            }
        };
        tick.length_ns = tick.end_ns.saturating_sub(begun);
        tick.end_ns = tick.end_ns.saturating_sub(self.plan.warmup_ns);
        self.blocks.add(parts, &tick, &response);
        (tick.service, tick.response) = (Percentiles::of(&service), Percentiles::of(&response));
        self.so_far.service.add(&service);
        self.so_far.response.add(&response);
        self.so_far.counts.requests += tick.requests;
        self.so_far.counts.responses += tick.responses;
        self.so_far.measured_ns = tick.end_ns;
        self.so_far.generator_cpu_ns += tick.generator_cpu_ns;
        let is_silent = tick.responses == 0 && tick.errors == 0 && tick.users > 0;
        self.silent_ns = if is_silent { self.silent_ns + tick.length_ns } else { 0 };
        self.so_far.longest_silence_ns = self.so_far.longest_silence_ns.max(self.silent_ns);
        self.so_far.window.length_ns = tick.end_ns.min(self.plan.stop_ns.unwrap_or(u64::MAX));
        self.keep(tick.clone());
        tick
    }

    /// Appends a tick to the series, which never exceeds its limit.
    fn keep(&mut self, tick: Tick) {
        let each = self.series.tick_ns / self.plan.tick_ns();
        match self.series.ticks.last_mut() {
            Some(last) if self.in_last < each => {
                join(last, &tick);
                self.in_last += 1;
            }
            _ => {
                self.series.ticks.push(tick);
                self.in_last = 1;
            }
        }
        if self.series.ticks.len() > Series::TICKS_MOST {
            let old = std::mem::take(&mut self.series.ticks);
            for pair in old.chunks(2) {
                let mut one = pair[0].clone();
                pair.iter().skip(1).for_each(|t| join(&mut one, t));
                self.series.ticks.push(one);
            }
            self.series.tick_ns *= 2;
            // The last tick has no partner yet: the number is one more than even.
            const { assert!(Series::TICKS_MOST.is_multiple_of(2)) };
        }
    }

    /// A report for the conditions that may end the run early.
    pub(super) fn report_so_far(&self) -> Report {
        self.so_far.report(&self.plan.as_run)
    }

    /// Why the run ended, if nothing ended it early.
    pub(super) fn natural_end(&self) -> End {
        let requests: u64 = self.threads.iter().map(|(_, t)| t.tally.requests).sum();
        match self.plan.as_run.stop.requests {
            None if self.plan.replay.is_some() => End::Requests,
            Some(n) if requests >= n => End::Requests,
            _ => End::Duration,
        }
    }

    /// Responses since measuring began, of all threads that have ended.
    pub(super) fn responses(&self) -> u64 {
        self.threads.iter().map(|(_, t)| t.tally.arrived).sum()
    }

    pub(super) fn report(
        mut self,
        shared: &Shared,
        wall: SystemTime,
        end: End,
        clock_step_ns: i64,
        target_cost: Option<TargetCost>,
        look: Option<&Look>,
    ) -> Report {
        self.threads.sort_by_key(|(index, _)| *index);
        let plan = Arc::clone(&self.plan);
        let mut r = Report {
            schema: SCHEMA.to_owned(),
            plan: plan.as_run.clone(),
            started_unix_ms: unix_ms(wall + Duration::from_nanos(plan.warmup_ns)),
            warmup_ns: plan.warmup_ns,
            end,
            target_cost,
            series: std::mem::take(&mut self.series),
            blocks: std::mem::take(&mut self.blocks).end(&self.threads),
            generator: os::generator(),
            ..Report::default()
        };
        r.checks = no_checks(&plan);
        r.targets = plan.targets.iter().map(|_| TargetStats::default()).collect();
        let mut protocols = [0; Protocol::ALL.len()];
        for (_, thread) in &self.threads {
            protocols.iter_mut().zip(thread.tally.protocols).for_each(|(all, n)| *all += n);
            add_thread(&mut r, thread);
        }
        let sessions = sessions(&self.threads);
        if plan.is_websocket() || sessions.sessions > 0 {
            r.websocket = Some(sessions);
        }
        for (stats, document) in r.targets.iter_mut().zip(&shared.documents) {
            stats.document_bytes = document.get().copied();
        }
        r.duration_ns = duration(&plan, &r, &self.threads);
        r.window = Some(window(&plan, shared.stop_at.load(Ordering::Relaxed), &self.threads));
        r.health.clock_step_ns = clock_step_ns;
        r.health.rss_bytes_max = os::rss_bytes_max();
        (r.health.pauses, r.health.paused_ns) = shared.pulse.total(plan.warmup_ns);
        (r.health.throttled, r.health.throttled_ns) = (self.throttled.periods, self.throttled.ns);
        r.health.own_ns = own_ns(&self.threads);
        // Finding the targets' processes takes milliseconds, and only the verdict on a long wait names them.
        if r.longest_wait() > verdict::WAITED && r.duration_ns >= verdict::JUDGED_NS {
            r.health.cores =
                look.and_then(|look| look.until_now(&cores::of_targets(plan.pid, &plan.tcp_addresses())));
        }
        r.parts = parts(&plan, shared, &self.threads);
        if let Some(replay) = &plan.replay {
            add_replay(&mut r, &replay.found(), &self.threads);
        }
        r.changes = std::mem::take(&mut self.changes);
        r.ledger = ledger(&plan, shared, protocols);
        if let Some(journey) = &plan.journey {
            let threads = self.threads.iter().filter_map(|(_, t)| t.journey.as_deref());
            scenario::add_rows(&mut r, journey, threads);
        }
        for note in self.notes.drain(..) {
            *r.counts.error_texts.entry(note).or_default() += 1;
        }
        r.thresholds = plan.thresholds.iter().map(|t| t.judge(&r)).collect();
        r.judge_parts();
        r.verdict = verdict::judge(&r);
        r
    }
}

/// What the process spent while its generator threads were measured, apart from those threads.
fn own_ns(threads: &[(usize, ThreadEnd)]) -> u64 {
    let process = threads.iter().map(|(_, t)| t.process_ns).max().unwrap_or(0);
    process.saturating_sub(threads.iter().map(|(_, t)| t.cpu_ns).sum())
}

/// This agent's starts of open loops that are due at a moment of the run. A load without scenarios makes at most
/// `most` with those of all agents.
fn due_by(plan: &Plan, shared: &Shared, at: u64, most: u64) -> u64 {
    let at = at.min(shared.stop_at.load(Ordering::Relaxed).saturating_sub(1));
    let of_groups = shared.courses.iter().map(|course| plan.share.part(course.due_by(at)));
    plan.share.part(shared.course.due_by(at).min(most)) + of_groups.sum::<u64>()
}

/// From the start of measuring to the planned end, or to the last counted response if later. If the run ended early,
/// to that moment.
fn duration(plan: &Plan, r: &Report, threads: &[(usize, ThreadEnd)]) -> u64 {
    let last_response = threads.iter().map(|(_, t)| t.tally.last_response).max().unwrap_or(0);
    let end = threads.iter().map(|(_, t)| t.end_ns).max().unwrap_or(0);
    let planned = match (&r.end, plan.stop_ns) {
        (End::Duration, Some(ns)) => plan.warmup_ns.saturating_add(ns).min(end).max(last_response),
        _ => end,
    };
    planned.saturating_sub(plan.warmup_ns)
}

/// The requests that finished before the time at which none may begin any more, or before the threads ended if
/// earlier.
fn window(plan: &Plan, stop_at: u64, threads: &[(usize, ThreadEnd)]) -> Window {
    let end = threads.iter().map(|(_, t)| t.end_ns).max().unwrap_or(0).min(stop_at);
    let mut window = Window { length_ns: end.saturating_sub(plan.warmup_ns), ..Window::default() };
    threads.iter().for_each(|(_, t)| window.add(&t.tally.window));
    window
}

fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0))
}
