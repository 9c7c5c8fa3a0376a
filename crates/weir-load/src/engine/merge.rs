//! Merges the threads' results: ticks during the run, the report at its end.

use super::blocks::Blocks;
use super::replay::{Replayed, RouteTally};
use super::shared::{Shared, ThreadEnd, TickPart};
use super::tally::PartTally;
use crate::cores::{self, Look};
use crate::grpc::CODES;
use crate::os;
use crate::plan::Plan;
use crate::progress::SoFar;
use crate::replay::Found;
use crate::scenario::{self, Journey};
use crate::throttle::Throttled;
use crate::transport::h2::request::{Rendered, Version};
use crate::transport::{CAPTURE_BYTES, is_secret};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};
use weir_h1::{Limits, Progress, ResponseHead, parse_response};
use weir_report::report::{
    AnswerKind, Change, CheckResult, ConnectionStats, Counts, End, Health, Ledger, LengthPair,
    PartIterations, PartStats, Percentiles, Protocol, ReplayStats, ReplayedRoute, Report, SCHEMA, Series,
    StatusPair, TargetCost, TargetStats, ThreadStats, Tick, WebSocketStats, Window,
};
use weir_report::units::shown;
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

/// This agent's starts of open loops that are due at a moment of the run. A load without scenarios makes at most
/// `most` with those of all agents.
fn due_by(plan: &Plan, shared: &Shared, at: u64, most: u64) -> u64 {
    let at = at.min(shared.stop_at.load(Ordering::Relaxed).saturating_sub(1));
    let of_groups = shared.courses.iter().map(|course| plan.share.part(course.due_by(at)));
    plan.share.part(shared.course.due_by(at).min(most)) + of_groups.sum::<u64>()
}

/// The parts of a shape, with the counts of all threads.
fn parts(plan: &Plan, shared: &Shared, threads: &[(usize, ThreadEnd)]) -> Vec<PartStats> {
    if let Some(journey) = &plan.journey {
        return parts_of_loads(journey, shared, threads);
    }
    let Some(shape) = plan.rhythm.shape() else { return Vec::new() };
    let mut planned_before = 0;
    let all = shape.parts().iter().enumerate().map(|(i, part)| {
        let mut p = PartStats { name: part.name.clone(), checks: no_checks(plan), ..PartStats::default() };
        let planned = due_by(plan, shared, part.end_ns - 1, plan.stop_requests.unwrap_or(u64::MAX));
        p.planned = planned - std::mem::replace(&mut planned_before, planned);
        for (_, thread) in threads {
            p.counts.unsent += thread.unsent_by_part.get(i).copied().unwrap_or(0);
            if let Some(t) = thread.tally.parts.get(i) {
                add_part(&mut p, t);
            }
        }
        p
    });
    all.collect()
}

/// The parts of all loads of scenarios.
fn parts_of_loads(journey: &Journey, shared: &Shared, threads: &[(usize, ThreadEnd)]) -> Vec<PartStats> {
    let last = shared.stop_at.load(Ordering::Relaxed).saturating_sub(1);
    let mut all = Vec::new();
    for (number, (group, course)) in journey.groups.iter().zip(&shared.courses).enumerate() {
        let Some(shape) = group.rhythm.shape() else { continue };
        let mut planned_before = 0;
        for part in shape.parts() {
            let i = all.len();
            let mut p = PartStats { group: number as u64, ..PartStats::default() };
            p.name = journey.parts.get(i).cloned().unwrap_or_default();
            let no_check = |c: &String| CheckResult { check: c.clone(), ..CheckResult::default() };
            p.checks = journey.checks.iter().map(no_check).collect();
            let planned = course.due_by((group.start_at + part.end_ns - 1).min(last));
            let planned = journey.share.part(planned);
            p.planned = planned - std::mem::replace(&mut planned_before, planned);
            let mut iterations = PartIterations::default();
            for (_, thread) in threads {
                p.counts.unsent += thread.unsent_by_part.get(i).copied().unwrap_or(0);
                if let Some(t) = thread.tally.parts.get(i) {
                    add_part(&mut p, t);
                }
                let of_thread = thread.journey.as_ref().and_then(|journey| journey.parts.get(i));
                of_thread.into_iter().for_each(|t| iterations.add(t));
            }
            p.iterations = Some(iterations);
            all.push(p);
        }
    }
    all
}

/// What was read of a recording, with the counts of all threads.
fn add_replay(r: &mut Report, found: &Found, threads: &[(usize, ThreadEnd)]) {
    let mut all = Replayed::default();
    threads.iter().filter_map(|(_, t)| t.replayed.as_deref()).for_each(|t| all.add(t));
    let name = |number: usize| found.names.get(number).cloned().unwrap_or_default();
    let some = |status: u16| (status > 0).then_some(status);
    let pair = |((then, now), requests)| StatusPair { then: some(then), now: some(now), requests };
    let route = |(number, t): (usize, &RouteTally)| ReplayedRoute {
        route: name(number),
        requests: t.requests,
        statuses_changed: t.statuses_changed,
        lengths_changed: t.lengths_changed,
        timed: t.timed,
        ln_sum: t.ln_sum,
        ln_squares: t.ln_squares,
    };
    let stats = ReplayStats {
        drift: all.drift,
        statuses: all.statuses.into_iter().map(pair).collect(),
        lengths_compared: all.lengths_compared,
        lengths_changed: all.routes.iter().map(|t| t.lengths_changed).sum(),
        first_lengths: all
            .first_lengths
            .into_iter()
            .map(|(number, pair)| LengthPair { route: name(number as usize), ..pair })
            .collect(),
        then: all.then,
        now: all.now,
        routes: all.routes.iter().enumerate().filter(|(_, t)| t.requests > 0).map(route).collect(),
        ..found.stats.clone()
    };
    if let Some(last) = r.series.ticks.last_mut() {
        last.planned += found.planned.values().sum::<u64>();
    }
    r.counts.unsent = stats.planned.saturating_sub(r.counts.requests);
    r.replay = Some(stats);
}

fn add_part(p: &mut PartStats, t: &PartTally) {
    let c = &mut p.counts;
    c.requests += t.requests;
    c.responses += t.responses;
    c.not_grpc += t.not_grpc;
    c.unfinished += t.unfinished;
    c.failed_checks += t.failed_checks;
    c.errors.add(&t.errors);
    t.statuses.iter().for_each(|(status, n)| *c.statuses.entry(*status).or_default() += n);
    for (code, n) in CODES.iter().zip(t.grpc).filter(|(_, n)| *n > 0) {
        *c.grpc.entry((*code).to_owned()).or_default() += n;
    }
    for (all, (passed, failed)) in p.checks.iter_mut().zip(&t.checks) {
        all.passed += passed;
        all.failed += failed;
    }
    p.service.add(&t.service);
    p.response.add(&t.response);
    p.start_lag.add(&t.start_lag);
}

/// The plan's checks before any response.
fn no_checks(plan: &Plan) -> Vec<CheckResult> {
    let checks = plan.checks.iter();
    checks.map(|c| CheckResult { check: c.text.clone(), ..CheckResult::default() }).collect()
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

fn add_thread(r: &mut Report, thread: &ThreadEnd) {
    let t = &thread.tally;
    let (latency, phases) = t.times();
    r.threads.push(ThreadStats {
        connections: thread.responses_by_client.len() as u64,
        requests: t.requests,
        responses: t.responses,
        errors: t.errors.total(),
        service: latency.service.clone(),
        rates: t.rates.clone(),
        measured_ns: thread.measured_ns,
        cpu_ns: thread.cpu_ns,
        waited_ns: thread.waited_ns,
        busy_ns: t.busy_ns,
        think_ns: thread.think_ns,
        available_ns: thread.available_ns,
    });
    let pairs = [
        (&mut r.latency.service, &latency.service),
        (&mut r.latency.response, &latency.response),
        (&mut r.latency.service_unexpected, &latency.service_unexpected),
        (&mut r.latency.first_byte, &latency.first_byte),
        (&mut r.phases.blocked, &phases.blocked),
        (&mut r.phases.dns, &phases.dns),
        (&mut r.phases.connecting, &phases.connecting),
        (&mut r.phases.tls, &phases.tls),
        (&mut r.phases.sending, &phases.sending),
        (&mut r.phases.waiting, &phases.waiting),
        (&mut r.phases.receiving, &phases.receiving),
        (&mut r.health.start_lag, &t.start_lag),
        (&mut r.connections.dial, &thread.dial),
    ];
    for (all, one) in pairs {
        all.add(one);
    }
    add_counts(&mut r.counts, thread);
    r.bytes.sent_head += t.bytes.sent_head;
    r.bytes.sent_body += t.bytes.sent_body;
    r.bytes.received_head += t.bytes.received_head;
    r.bytes.received_body += t.bytes.received_body;
    r.bytes.received_framing += t.bytes.received_framing;
    let c: &mut ConnectionStats = &mut r.connections;
    c.opened += thread.opened;
    c.opened_measured += t.opened;
    c.reused += t.reused;
    c.syn_again += t.syn_again;
    c.lost_packets = c.lost_packets.into_iter().chain(t.lost_packets).reduce(|a, b| a + b);
    c.resumed += t.resumed;
    c.streams_allowed = c.streams_allowed.into_iter().chain(t.streams_allowed).min();
    let room = ConnectionStats::CLIENTS_MOST.saturating_sub(c.responses_by_client.len());
    c.responses_by_client.extend(thread.responses_by_client.iter().take(room));
    for (all, one) in r.targets.iter_mut().zip(&t.targets) {
        all.requests += one.requests;
        all.responses += one.responses;
        all.unexpected += one.unexpected;
        all.errors += one.errors;
        all.in_window += one.in_window;
        all.service.add(&one.service);
        one.statuses.iter().for_each(|(status, n)| *all.statuses.entry(*status).or_default() += n);
        for (name, n) in Protocol::ALL.iter().zip(one.protocols).filter(|(_, n)| *n > 0) {
            *all.protocols.entry(name.to_string()).or_default() += n;
        }
        for (kind, n) in thread.kinds.iter().zip(one.kinds).filter(|(_, n)| *n > 0) {
            add_kind(&mut all.kinds, kind, n);
        }
        all.received_head += one.received.0;
        all.received_body += one.received.1;
        all.body_bytes = match (all.body_bytes, one.body_bytes) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
    }
    for (all, (passed, failed)) in r.checks.iter_mut().zip(&t.checks) {
        all.passed += passed;
        all.failed += failed;
    }
    let h: &mut Health = &mut r.health;
    h.backlog_max += t.backlog_max;
    h.longest_silence_ns = h.longest_silence_ns.max(t.longest_silence_ns);
    h.silences.add(&t.silences);
    h.out_of_ports += t.out_of_ports;
    h.out_of_descriptors += t.out_of_descriptors;
}

/// Adds responses of a kind to those of other threads. Beyond the most kinds, to the last one.
fn add_kind(all: &mut Vec<AnswerKind>, kind: &AnswerKind, n: u64) {
    let same = |other: &&mut AnswerKind| {
        other.cached == kind.cached && other.server == kind.server && other.content_type == kind.content_type
    };
    if let Some(known) = all.iter_mut().find(same) {
        known.responses += n;
    } else if let Some(last) = all.get_mut(AnswerKind::MOST - 1) {
        last.responses += n;
    } else {
        all.push(AnswerKind { responses: n, ..kind.clone() });
    }
}

/// The sum of all sessions.
fn sessions(threads: &[(usize, ThreadEnd)]) -> WebSocketStats {
    let mut all = WebSocketStats::default();
    for one in threads.iter().map(|(_, t)| &t.tally.sessions) {
        all.connecting.add(&one.connecting);
        all.handshake.add(&one.handshake);
        all.session_duration.add(&one.duration);
        all.sent += one.sent;
        all.received += one.received;
        all.unsolicited += one.unsolicited;
        all.pings += one.pings;
        for (told, n) in &one.closed {
            *all.closed_by_target.entry(told.clone()).or_default() += n;
        }
    }
    all.sessions = all.handshake.count();
    all
}

fn add_counts(c: &mut Counts, thread: &ThreadEnd) {
    let t = &thread.tally;
    c.requests += t.requests;
    c.responses += t.responses;
    for (code, n) in CODES.iter().zip(t.grpc).filter(|(_, n)| *n > 0) {
        *c.grpc.entry((*code).to_owned()).or_default() += n;
    }
    c.not_grpc += t.not_grpc;
    c.messages += t.messages;
    for (status, n) in t.statuses.iter().enumerate().filter(|(_, n)| **n > 0) {
        *c.statuses.entry(status as u16).or_default() += n;
    }
    c.errors.add(&t.errors);
    for (text, n) in &t.error_texts {
        *c.error_texts.entry(text.clone()).or_default() += n;
    }
    c.unfinished += t.unfinished;
    c.unsent += thread.unsent;
    c.failed_checks += t.failed_checks;
    c.kept_alive += t.kept_alive;
    c.other_length += t.other_length;
}

fn ledger(plan: &Plan, shared: &Shared, protocols: [u64; Protocol::ALL.len()]) -> Ledger {
    let mut l = Ledger { dns_ns: plan.dns_ns, ..Ledger::default() };
    let sessions = shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((name, most)) = sessions.iter().max_by_key(|(_, s)| s.connections)
        && name != "plain"
    {
        let (version, cipher) = name.split_once(' ').map_or((&name[..], None), |(v, c)| (v, Some(c)));
        (l.tls_version, l.tls_cipher) = (Some(version.to_owned()), cipher.map(str::to_owned));
        let keys = most.keys.unwrap_or_default();
        (l.tls_group, l.tls_key_bits) = (keys.group.map(str::to_owned), keys.certificate_bits);
    }
    l.proxies.clone_from(&shared.proxies.lock().unwrap_or_else(PoisonError::into_inner));
    for (address, used) in plan.origins.iter().flat_map(|o| o.addresses.used()) {
        let all = l.addresses.entry(address).or_default(); // origins may share an address
        (all.opened, all.failed) = (all.opened + used.opened, all.failed + used.failed);
    }
    l.sessions = sessions.iter().map(|(name, s)| (name.clone(), s.connections)).collect();
    drop(sessions);
    l.alpn = shared.alpn.get().cloned();
    let names = Protocol::ALL.map(|p| p.to_string());
    l.protocols.extend(names.into_iter().zip(protocols));
    l.protocols.retain(|_, n| *n > 0);
    // Recorded requests have secrets and personal data of others; a report is passed on.
    let Some(first) = shared.first.get().filter(|_| plan.replay.is_none()) else { return l };
    if let Some(target) = plan.targets.get(first.target).filter(|_| first.request.is_none()) {
        let is_framed = target.frames.is_some() && first.fields.is_some();
        let framed = is_framed.then(|| (plan.version(), target.scheme));
        (l.first_request, l.first_request_bytes) = shown_request(&target.bytes, target.head_bytes, framed);
    }
    if let Some((request, scheme)) =
        first.request.as_ref().zip(plan.targets.get(first.target).map(|t| t.scheme))
    {
        let end = memchr::memmem::find(request, b"\r\n\r\n").map_or(request.len(), |at| at + 4);
        let framed = first.fields.is_some().then(|| (plan.version(), scheme));
        (l.first_request, l.first_request_bytes) = shown_request(request, end, framed);
    }
    let f = &first.response;
    l.first_response_bytes = f.head_bytes + f.body_bytes + f.framing_bytes;
    l.first_response = first.bytes.escape_ascii().to_string();
    if let Some(fields) = &first.fields {
        (l.server, l.content_type) = fields.clone();
        return l;
    }
    let mut head = ResponseHead::default();
    head.buffer_mut().extend_from_slice(&first.bytes);
    if parse_response(&mut head, &Limits::default()) == Ok(Progress::Complete) {
        let field = |name| head.headers.get_str(name).map(shown);
        (l.server, l.content_type) = (field("server"), field("content-type"));
    }
    l
}

/// A request for display, and its length on the wire. With a version and a scheme it was sent as frames: its text is
/// kept, and the frames are rendered again.
fn shown_request(bytes: &[u8], head_bytes: usize, framed: Option<(Version, &'static str)>) -> (String, u64) {
    let shown = without_secrets(bytes.get(..CAPTURE_BYTES).unwrap_or(bytes));
    let Some((version, scheme)) = framed else {
        return (shown.escape_ascii().to_string(), bytes.len() as u64);
    };
    let (head, body) = bytes.split_at_checked(head_bytes).unwrap_or((bytes, &[]));
    let len = Rendered::new_of(version, head, scheme, body.is_empty()).wire_bytes(body.len()) + body.len();
    let end = memchr::memmem::find(&shown, b"\r\n\r\n").map_or(shown.len(), |at| at + 4);
    let shown_head = shown.get(..end).unwrap_or(&shown);
    let mut frames = Rendered::new_of(version, shown_head, scheme, body.is_empty()).bytes().to_vec();
    frames.extend_from_slice(shown.get(end..).unwrap_or_default());
    frames.truncate(CAPTURE_BYTES);
    (frames.escape_ascii().to_string(), len as u64)
}

/// A request for display, with credentials hidden.
fn without_secrets(bytes: &[u8]) -> Vec<u8> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
    let (head, rest) = bytes.split_at(end);
    let lines: Vec<Vec<u8>> = head
        .split(|b| *b == b'\n')
        .enumerate()
        .map(|(i, line)| {
            let name = line.split(|b| *b == b':').next().unwrap_or_default();
            // The first line has no name.
            if i > 0 && is_secret(&String::from_utf8_lossy(name)) {
                [name, b": ***\r"].concat()
            } else {
                line.to_vec()
            }
        })
        .collect();
    let mut shown = lines.join(&b'\n');
    shown.extend_from_slice(rest);
    shown
}

fn join(into: &mut Tick, t: &Tick) {
    into.service = worse(into.service, into.responses, t.service, t.responses);
    into.response = worse(into.response, into.responses, t.response, t.responses);
    into.end_ns = t.end_ns;
    into.length_ns += t.length_ns;
    into.requests += t.requests;
    into.responses += t.responses;
    into.unexpected += t.unexpected;
    into.errors += t.errors;
    into.sent += t.sent;
    into.received += t.received;
    (into.users, into.backlog) = (t.users, t.backlog);
    into.planned += t.planned;
    into.late += t.late;
    into.started += t.started;
    into.generator_cpu_ns += t.generator_cpu_ns;
}

fn worse(a: Percentiles, n: u64, b: Percentiles, m: u64) -> Percentiles {
    if n == 0 || m == 0 {
        return if n == 0 { b } else { a };
    }
    Percentiles {
        min: a.min.min(b.min),
        mean: (a.mean * n as f64 + b.mean * m as f64) / (n + m) as f64,
        p50: a.p50.max(b.p50),
        p75: a.p75.max(b.p75),
        p90: a.p90.max(b.p90),
        p95: a.p95.max(b.p95),
        p99: a.p99.max(b.p99),
        p999: a.p999.max(b.p999),
        max: a.max.max(b.max),
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0))
}
