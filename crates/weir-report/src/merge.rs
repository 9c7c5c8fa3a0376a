//! Reports of one load that several generators made, added up exactly: counts, sums and buckets of histograms.
//!
//! Percentiles come from the added histograms; those of single reports are never averaged. What cannot be added (the
//! percentiles of each second, the first exchange) is taken from one report or the larger of the two.

mod agents;

pub use agents::{AgentPart, merge_agents};

use crate::comparison::baseline::plan_digest;
use crate::report::{
    AddressUse, AnswerKind, Bytes, Counts, Grade, Percentiles, Reason, Report, Series, Tick, Verdict,
};
use crate::threshold::Threshold;
use crate::{Histogram, verdict};
use std::collections::BTreeMap;

/// Share of the longest run that all runs must have in common.
const OVERLAP: f64 = 0.90;

/// Adds up reports. `apart` says that runs at different times are intended.
///
/// # Errors
/// Fewer than two reports, or reports that do not belong together; the message names the second of them by its
/// number.
pub fn merge(reports: &[Report], apart: bool) -> Result<Report, String> {
    let [first, rest @ ..] = reports else { return Err("expected at least two reports".to_owned()) };
    if rest.is_empty() {
        return Err("expected at least two reports".to_owned());
    }
    let digest = plan_digest(first);
    for (i, other) in rest.iter().enumerate() {
        let no = i + 2;
        if other.schema != first.schema {
            return Err(format!("report {no} has schema `{}`, the first `{}`", other.schema, first.schema));
        }
        if other.generator.version != first.generator.version {
            return Err(format!(
                "report {no} is of version {}, the first of {}",
                other.generator.version, first.generator.version
            ));
        }
        if places(other) != places(first) || plan_digest(other) != digest {
            return Err(format!("report {no} is of another plan than the first"));
        }
        if reports.iter().take(no - 1).any(|earlier| earlier == other) {
            return Err(format!("report {no} is there twice"));
        }
    }
    if let Some(i) = reports.iter().position(|r| r.replay.is_some()) {
        return Err(format!(
            "report {} is of a replay, which is compared with its recording and not added up",
            i + 1
        ));
    }
    let common = overlap(reports);
    if common < OVERLAP && !apart {
        return Err(format!(
            "the runs have only {:.0} % of their time in common, so their rates do not add up: --apart ok if that is intended",
            common * 100.0
        ));
    }
    let mut all = first.clone();
    rest.iter().for_each(|other| add(&mut all, other));
    all.judge_parts();
    all.series = series(reports);
    all.merged = reports.len() as u64;
    all.thresholds = all
        .thresholds
        .iter()
        .filter_map(|t| Threshold::parse("", &t.threshold).ok())
        .map(|t| t.judge(&all))
        .collect();
    all.verdict = worst(verdict::judge(&all), reports, |i| format!("report {}", i + 1));
    Ok(all)
}

/// Where a load goes, which a plan's digest leaves out.
fn places(r: &Report) -> Vec<&str> {
    r.plan.targets.iter().map(|target| target.url.as_str()).collect()
}

/// The time that all runs have in common, as a share of the longest one.
fn overlap(reports: &[Report]) -> f64 {
    let end = |r: &Report| r.started_unix_ms + r.duration_ns / 1_000_000;
    let from = reports.iter().map(|r| r.started_unix_ms).max().unwrap_or(0);
    let to = reports.iter().map(end).min().unwrap_or(0);
    let longest = reports.iter().map(|r| r.duration_ns / 1_000_000).max().unwrap_or(0).max(1);
    to.saturating_sub(from) as f64 / longest as f64
}

/// The reasons of the sum, and those of each report that it does not have itself; the worst grade wins.
fn worst(mut verdict: Verdict, reports: &[Report], name: impl Fn(usize) -> String) -> Verdict {
    for (i, report) in reports.iter().enumerate() {
        for reason in &report.verdict.reasons {
            if !verdict.reasons.iter().any(|known| known.code == reason.code) {
                let text = format!("{}: {}", name(i), reason.text);
                verdict.reasons.push(Reason { text, ..reason.clone() });
            }
        }
    }
    verdict.reasons.sort_by_key(|reason| std::cmp::Reverse(reason.grade));
    verdict.grade = verdict.reasons.iter().map(|reason| reason.grade).max().unwrap_or(Grade::Valid);
    verdict
}

fn sum_of<K: Ord + Clone>(all: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    other.iter().for_each(|(key, n)| *all.entry(key.clone()).or_default() += n);
}

fn histograms<const N: usize>(pairs: [(&mut Histogram, &Histogram); N]) {
    pairs.into_iter().for_each(|(all, other)| all.add(other));
}

fn add(all: &mut Report, other: &Report) {
    let end = |r: &Report| r.started_unix_ms * 1_000_000 + r.duration_ns;
    let until = end(all).max(end(other));
    all.started_unix_ms = all.started_unix_ms.min(other.started_unix_ms);
    all.duration_ns = until - all.started_unix_ms * 1_000_000;
    let mut window = all.rated();
    window.add(&other.rated());
    window.length_ns = window.length_ns.max(other.rated().length_ns);
    all.window = Some(window);
    all.plan.connections += other.plan.connections;
    all.plan.threads += other.plan.threads;
    add_counts(&mut all.counts, &other.counts);
    bytes(&mut all.bytes, &other.bytes);
    let (l, o) = (&mut all.latency, &other.latency);
    histograms([
        (&mut l.service, &o.service),
        (&mut l.response, &o.response),
        (&mut l.service_unexpected, &o.service_unexpected),
        (&mut l.first_byte, &o.first_byte),
    ]);
    let (p, o) = (&mut all.phases, &other.phases);
    histograms([
        (&mut p.blocked, &o.blocked),
        (&mut p.dns, &o.dns),
        (&mut p.connecting, &o.connecting),
        (&mut p.tls, &o.tls),
        (&mut p.sending, &o.sending),
        (&mut p.waiting, &o.waiting),
        (&mut p.receiving, &o.receiving),
    ]);
    all.threads.extend(other.threads.iter().cloned());
    connections(all, other);
    targets(all, other);
    steps(all, other);
    for (check, o) in all.checks.iter_mut().zip(&other.checks) {
        check.passed += o.passed;
        check.failed += o.failed;
    }
    shape_parts(all, other);
    // Blocks of different machines do not begin together.
    all.blocks.clear();
    all.judgement = None;
    let (h, o) = (&mut all.health, &other.health);
    h.start_lag.add(&o.start_lag);
    h.silences.add(&o.silences);
    h.backlog_max += o.backlog_max;
    h.longest_silence_ns = h.longest_silence_ns.max(o.longest_silence_ns);
    h.pauses += o.pauses;
    h.paused_ns = h.paused_ns.max(o.paused_ns);
    h.throttled += o.throttled;
    h.throttled_ns += o.throttled_ns;
    h.own_ns += o.own_ns;
    if o.clock_step_ns.unsigned_abs() > h.clock_step_ns.unsigned_abs() {
        h.clock_step_ns = o.clock_step_ns;
    }
    h.out_of_ports += o.out_of_ports;
    h.out_of_descriptors += o.out_of_descriptors;
    h.rss_bytes_max = h.rss_bytes_max.max(o.rss_bytes_max);
    h.cores = h.cores.take().or_else(|| o.cores.clone());
    all.target_cost = all.target_cost.take().or_else(|| other.target_cost.clone());
}

/// Adds the counts of another generator.
pub fn add_counts(c: &mut Counts, o: &Counts) {
    c.requests += o.requests;
    c.responses += o.responses;
    sum_of(&mut c.statuses, &o.statuses);
    sum_of(&mut c.grpc, &o.grpc);
    c.not_grpc += o.not_grpc;
    c.messages += o.messages;
    c.errors.add(&o.errors);
    sum_of(&mut c.error_texts, &o.error_texts);
    c.unfinished += o.unfinished;
    c.unsent += o.unsent;
    c.failed_checks += o.failed_checks;
    c.kept_alive += o.kept_alive;
    c.other_length += o.other_length;
    c.unexpected = c.unexpected.zip(o.unexpected).map(|(a, b)| a + b);
}

const fn bytes(b: &mut Bytes, o: &Bytes) {
    b.sent_head += o.sent_head;
    b.sent_body += o.sent_body;
    b.received_head += o.received_head;
    b.received_body += o.received_body;
    b.received_framing += o.received_framing;
}

fn connections(all: &mut Report, other: &Report) {
    let (c, o) = (&mut all.connections, &other.connections);
    c.opened += o.opened;
    c.opened_measured += o.opened_measured;
    c.reused += o.reused;
    c.syn_again += o.syn_again;
    c.lost_packets = c.lost_packets.into_iter().chain(o.lost_packets).reduce(|a, b| a + b);
    c.resumed += o.resumed;
    c.streams_allowed = c.streams_allowed.into_iter().chain(o.streams_allowed).min();
    let room = crate::report::ConnectionStats::CLIENTS_MOST.saturating_sub(c.responses_by_client.len());
    c.responses_by_client.extend(o.responses_by_client.iter().take(room));
    c.dial.add(&o.dial);
    let (l, o) = (&mut all.ledger, &other.ledger);
    sum_of(&mut l.protocols, &o.protocols);
    sum_of(&mut l.sessions, &o.sessions);
    sum_of(&mut l.proxies, &o.proxies);
    for (address, used) in &o.addresses {
        let known = l.addresses.entry(address.clone()).or_default();
        *known = AddressUse { opened: known.opened + used.opened, failed: known.failed + used.failed };
    }
    l.dns_ns += o.dns_ns;
    if let (Some(ws), Some(o)) = (&mut all.websocket, &other.websocket) {
        ws.sessions += o.sessions;
        ws.sent += o.sent;
        ws.received += o.received;
        ws.unsolicited += o.unsolicited;
        ws.pings += o.pings;
        sum_of(&mut ws.closed_by_target, &o.closed_by_target);
        histograms([
            (&mut ws.connecting, &o.connecting),
            (&mut ws.handshake, &o.handshake),
            (&mut ws.session_duration, &o.session_duration),
        ]);
    }
}

fn targets(all: &mut Report, other: &Report) {
    for (t, o) in all.targets.iter_mut().zip(&other.targets) {
        t.requests += o.requests;
        t.responses += o.responses;
        t.unexpected += o.unexpected;
        t.errors += o.errors;
        t.in_window += o.in_window;
        t.service.add(&o.service);
        // Lengths that differ from those of the other generator's first response.
        if t.document_bytes != o.document_bytes {
            all.counts.other_length = all.counts.other_length.max(1);
        }
        t.body_bytes = match (t.body_bytes, o.body_bytes) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
        sum_of(&mut t.statuses, &o.statuses);
        sum_of(&mut t.protocols, &o.protocols);
        t.received_head += o.received_head;
        t.received_body += o.received_body;
        for kind in &o.kinds {
            let same = |known: &&mut AnswerKind| {
                known.cached == kind.cached
                    && known.server == kind.server
                    && known.content_type == kind.content_type
            };
            match t.kinds.iter_mut().find(same) {
                Some(known) => known.responses += kind.responses,
                None => t.kinds.push(kind.clone()),
            }
        }
    }
}

/// The parts of a shape, which a plan has in the same order everywhere.
fn shape_parts(all: &mut Report, other: &Report) {
    for (p, o) in all.parts.iter_mut().zip(&other.parts) {
        p.planned += o.planned;
        add_counts(&mut p.counts, &o.counts);
        histograms([
            (&mut p.service, &o.service),
            (&mut p.response, &o.response),
            (&mut p.start_lag, &o.start_lag),
        ]);
        for (check, o) in p.checks.iter_mut().zip(&o.checks) {
            check.passed += o.passed;
            check.failed += o.failed;
        }
        if let (Some(all), Some(o)) = (&mut p.iterations, &o.iterations) {
            all.add(o);
        }
    }
}

/// Scenarios and steps, which a plan has in the same order everywhere.
fn steps(all: &mut Report, other: &Report) {
    for (s, o) in all.scenarios.iter_mut().zip(&other.scenarios) {
        s.users += o.users;
        s.started += o.started;
        s.done += o.done;
        sum_of(&mut s.broken_off, &o.broken_off);
        s.unfinished += o.unfinished;
        s.not_started += o.not_started;
        s.iteration.add(&o.iteration);
        s.data_ended = s.data_ended.take().or_else(|| o.data_ended.clone());
        s.identities = s.identities.into_iter().chain(o.identities).max();
        s.users_seen += o.users_seen;
        s.cookies_dropped += o.cookies_dropped;
    }
    for (s, o) in all.steps.iter_mut().zip(&other.steps) {
        s.requests += o.requests;
        s.responses += o.responses;
        s.unexpected += o.unexpected;
        sum_of(&mut s.statuses, &o.statuses);
        sum_of(&mut s.grpc, &o.grpc);
        s.errors.add(&o.errors);
        s.unfinished += o.unfinished;
        s.in_window += o.in_window;
        s.response.add(&o.response);
        s.sent += o.sent;
        s.received += o.received;
        for (check, o) in s.checks.iter_mut().zip(&o.checks) {
            check.passed += o.passed;
            check.failed += o.failed;
        }
        for (keep, o) in s.keeps.iter_mut().zip(&o.keeps) {
            keep.taken += o.taken;
            keep.failed += o.failed;
            keep.sample = keep.sample.take().or_else(|| o.sample.clone());
        }
    }
}

/// The ticks of all reports by their time; none if their lengths differ. Of percentiles, the largest.
fn series(reports: &[Report]) -> Series {
    let tick_ns = reports.iter().map(|r| r.series.tick_ns).max().unwrap_or(0).max(1);
    let begun = reports.iter().map(|r| r.started_unix_ms).min().unwrap_or(0);
    let mut ticks: BTreeMap<u64, Tick> = BTreeMap::new();
    for report in reports {
        let offset = (report.started_unix_ms - begun) * 1_000_000;
        let mut within: BTreeMap<u64, Tick> = BTreeMap::new();
        for tick in &report.series.ticks {
            let number = (offset + tick.end_ns).saturating_sub(tick_ns / 2) / tick_ns;
            match within.get_mut(&number) {
                // Two ticks of one report in one of the merged ones follow each other.
                Some(known) => join(known, tick, true),
                None => {
                    within.insert(number, Tick { end_ns: offset + tick.end_ns, ..tick.clone() });
                }
            }
        }
        for (number, tick) in within {
            match ticks.get_mut(&number) {
                Some(known) => join(known, &tick, false),
                None => {
                    ticks.insert(number, tick);
                }
            }
        }
    }
    Series { tick_ns, ticks: ticks.into_values().take(Series::TICKS_MOST).collect() }
}

/// Adds the same tick of another generator. Of percentiles, the larger ones.
pub fn join_tick(all: &mut Tick, tick: &Tick) {
    join(all, tick, false);
}

fn join(all: &mut Tick, tick: &Tick, follows: bool) {
    all.service = larger(all.service, tick.service);
    all.response = larger(all.response, tick.response);
    all.end_ns = all.end_ns.max(tick.end_ns);
    all.length_ns = if follows { all.length_ns + tick.length_ns } else { all.length_ns.max(tick.length_ns) };
    all.requests += tick.requests;
    all.responses += tick.responses;
    all.unexpected += tick.unexpected;
    all.errors += tick.errors;
    all.sent += tick.sent;
    all.received += tick.received;
    all.users = if follows { tick.users } else { all.users + tick.users };
    all.backlog = if follows { tick.backlog } else { all.backlog + tick.backlog };
    all.generator_cpu_ns += tick.generator_cpu_ns;
    all.planned += tick.planned;
    all.late += tick.late;
    all.started += tick.started;
}

fn larger(a: Percentiles, b: Percentiles) -> Percentiles {
    Percentiles {
        min: if a.min == 0 { b.min } else { a.min.min(if b.min == 0 { a.min } else { b.min }) },
        mean: a.mean.max(b.mean),
        p50: a.p50.max(b.p50),
        p75: a.p75.max(b.p75),
        p90: a.p90.max(b.p90),
        p95: a.p95.max(b.p95),
        p99: a.p99.max(b.p99),
        p999: a.p999.max(b.p999),
        max: a.max.max(b.max),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::{Generator, SCHEMA, TargetPlan, TargetStats, ThresholdResult};

    /// A run of ten seconds that begins at this second.
    pub(crate) fn run(second: u64, times: std::ops::RangeInclusive<u64>) -> Report {
        let mut r = Report { schema: SCHEMA.to_owned(), duration_ns: 10_000_000_000, ..Report::default() };
        r.started_unix_ms = second * 1_000;
        r.plan.connections = 5;
        r.plan.threads = 1;
        r.plan.targets = vec![TargetPlan { url: "http://a/".to_owned(), ..TargetPlan::default() }];
        r.targets = vec![TargetStats::default()];
        r.generator = Generator { version: "1".to_owned(), ..Generator::default() };
        for ms in times {
            r.latency.response.record(ms * 1_000_000);
            r.latency.service.record(ms * 1_000_000);
            r.counts.responses += 1;
        }
        r.counts.requests = r.counts.responses;
        r.counts.statuses.insert(200, r.counts.responses);
        r.targets[0].responses = r.counts.responses;
        r.series.tick_ns = 1_000_000_000;
        let tick = |i: u64| Tick {
            end_ns: i * 1_000_000_000,
            length_ns: 1_000_000_000,
            responses: r.counts.responses / 10,
            users: 5,
            ..Tick::default()
        };
        r.series.ticks = (1..=10).map(tick).collect();
        r.thresholds =
            vec![ThresholdResult { threshold: "p99<150ms".to_owned(), passed: true, ..Default::default() }];
        r
    }

    #[test]
    fn the_sum_is_that_of_one_run_with_all_values() {
        let parts = [run(100, 1..=100), run(100, 101..=150), run(100, 151..=200)];
        let all = merge(&parts, false).unwrap();
        let whole = run(100, 1..=200);
        assert_eq!(all.latency.response, whole.latency.response, "bucket by bucket");
        assert_eq!(all.latency.response.quantile(0.99), whole.latency.response.quantile(0.99));
        assert_eq!(all.counts, whole.counts);
        assert_eq!((all.plan.connections, all.plan.threads, all.duration_ns), (15, 3, 10_000_000_000));
        assert_eq!(all.rate(), 20.0);
        assert!(!all.thresholds[0].passed, "judged again: {:?}", all.thresholds);
        let ticks: Vec<_> = all.series.ticks.iter().map(|t| (t.responses, t.users)).collect();
        assert_eq!(ticks, vec![(20, 15); 10]);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let said = |change: &dyn Fn(&mut Report)| {
            let mut other = run(100, 101..=150);
            change(&mut other);
            merge(&[run(100, 1..=100), other], false).err().unwrap_or_default()
        };
        assert_eq!(said(&|_| {}), "");
        type Case<'a> = (&'a dyn Fn(&mut Report), &'a str);
        let cases: &[Case<'_>] = &[
            (&|r| r.schema = "x".to_owned(), "report 2 has schema `x`"),
            (&|r| r.generator.version = "2".to_owned(), "report 2 is of version 2"),
            (&|r| r.plan.keepalive = true, "report 2 is of another plan"),
            (&|r| r.plan.targets[0].url = "http://b/".to_owned(), "report 2 is of another plan"),
            (&|r| r.started_unix_ms += 2_000, "only 80 % of their time in common"),
            (&|r| *r = run(100, 1..=100), "report 2 is there twice"),
        ];
        for (change, want) in cases {
            assert!(said(change).contains(want), "{want}: {}", said(change));
        }
        assert!(merge(&[run(1, 1..=2)], false).is_err());
        assert!(merge(&[run(100, 1..=100), run(200, 101..=150)], true).is_ok());
    }

    #[test]
    fn the_worst_verdict_wins() {
        let mut bad = run(100, 101..=150);
        bad.verdict.grade = Grade::Suspect;
        bad.verdict.reasons = vec![Reason {
            code: "generator_busy".to_owned(),
            grade: Grade::Suspect,
            text: "busy".to_owned(),
        }];
        let all = merge(&[run(100, 1..=100), bad], false).unwrap();
        let told: Vec<_> = all.verdict.reasons.iter().map(|r| (r.code.as_str(), r.text.as_str())).collect();
        assert!(
            told.contains(&("generator_busy", "report 2: busy")) && all.verdict.grade == Grade::Suspect,
            "{told:?}"
        );
    }
}
