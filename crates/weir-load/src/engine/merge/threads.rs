//! Adds the results of a thread to a report.

use super::super::shared::ThreadEnd;
use crate::grpc::CODES;
use weir_report::report::{
    AnswerKind, ConnectionStats, Counts, Health, Percentiles, Protocol, Report, ThreadStats, WebSocketStats,
};

pub(super) fn add_thread(r: &mut Report, thread: &ThreadEnd) {
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
pub(super) fn sessions(threads: &[(usize, ThreadEnd)]) -> WebSocketStats {
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

pub(super) fn worse(a: Percentiles, n: u64, b: Percentiles, m: u64) -> Percentiles {
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
