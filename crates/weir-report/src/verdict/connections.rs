//! Reasons in the connections: how many there were, how long they lived, and what they carried.

use super::{REOPENED, percent, share};
use crate::Report;
use crate::report::{Pace, Protocol};
use crate::units::{counted, grouped};

pub(super) fn starved_connections(r: &Report) -> Option<String> {
    let clients = &r.connections.responses_by_client;
    let starved = clients.iter().filter(|n| **n == 0).count() as u64;
    // With fewer requests than clients, and while users are still being added, some clients have none by design.
    // Users whose scenario ran out of rows have nothing to send.
    let closed = r.scenarios.iter().all(|s| s.data_ended.is_none())
        && matches!(r.plan.pace, Pace::AsFastAsPossible)
        && r.counts.requests >= 2 * clients.len() as u64;
    (closed && r.counts.responses > 0 && starved > 0)
        .then(|| format!("{starved} of {} connections got no response", clients.len()))
}

pub(super) fn not_kept_alive(r: &Report) -> Option<String> {
    // Some targets announce that they close, others just close; then more connections were opened than clients need.
    // (`errors` reports connections that an error ended, and a request that hangs keeps its own.)
    let said = r.counts.responses.saturating_sub(r.counts.kept_alive);
    let enough = needed_connections(r) + r.counts.errors.total() + r.counts.unfinished;
    let again = r.connections.opened_measured.saturating_sub(enough);
    // Users of a scenario open further connections for steps in parallel, a replay for further recorded clients.
    let closed = if r.is_journey() || r.replay.is_some() { said } else { said.max(again) };
    (r.plan.keepalive && share(closed, r.counts.responses) > REOPENED).then(|| {
        format!(
            "keep-alive was requested, but the target closed connections: {} of {} responses were the last on theirs",
            grouped(closed.min(r.counts.responses)),
            grouped(r.counts.responses)
        )
    })
}

/// Connections that are enough if none is closed: each active client has one per origin.
fn needed_connections(r: &Report) -> u64 {
    let mut origins: Vec<_> =
        r.plan.targets.iter().map(|t| (&t.scheme, &t.host, t.port, &t.addresses)).collect();
    origins.sort_unstable();
    origins.dedup();
    let listed = &r.connections.responses_by_client;
    // With a fixed rate, a client that was never needed opens none. Beyond the list, clients are unknown.
    let at_work = match r.plan.pace.is_closed() || listed.len() < r.plan.connections as usize {
        true => r.plan.connections,
        false => listed.iter().filter(|n| **n > 0).count() as u64,
    };
    at_work * origins.len().max(1) as u64
}

pub(super) fn syn_retransmits(r: &Report) -> Option<String> {
    let n = r.connections.syn_again;
    (n > 0).then(|| {
        format!(
            "{} had to send the first packet again after a second: the target, or a device before it, dropped it",
            counted(n, "connection")
        )
    })
}

pub(super) fn one_stream(r: &Report) -> Option<String> {
    let p = &r.plan;
    let has_streams = matches!(p.protocol, Protocol::Http2 | Protocol::Http3);
    let is_default = has_streams && p.streams == 1 && !p.streams_given && !r.is_grpc();
    // A report of an older version does not record what was given.
    (is_default && r.counts.responses > 0 && p.pace.is_closed()).then(|| {
        format!(
            "{} used one stream at a time on each of {}: set the number with -m, or -m 1 if this is intended",
            p.protocol,
            counted(p.connections, "connection")
        )
    })
}

/// With fewer streams than asked for, requests wait in the generator, and a closed loop holds the target to less load.
pub(super) fn few_streams(r: &Report) -> Option<String> {
    let allowed = r.connections.streams_allowed.filter(|n| *n < r.plan.streams)?;
    (r.counts.responses > 0).then(|| {
        format!(
            "the target allows {} on a connection, but {} were requested: the others waited in the generator; use more connections",
            counted(allowed, "stream"),
            grouped(r.plan.streams)
        )
    })
}

/// The time for which Linux delays an acknowledgement, with what a scheduler adds: TCP_DELACK_MIN is 40 ms.
const DELAYED_ACK: std::ops::RangeInclusive<u64> = 39_000_000..=46_000_000;

/// How far to look on either side of [`DELAYED_ACK`] for ordinary response times.
const BESIDE: u64 = 12_000_000;

/// Share of the responses that must be delayed.
const DELAYED: f64 = 0.01;

/// A peak at 40 ms, apart from the other response times: one side writes a message in two parts without TCP_NODELAY
/// and waits for the acknowledgement of the first (RFC 1122 §4.2.3.2 and §4.2.3.4).
pub(super) fn delayed_ack(r: &Report) -> Option<String> {
    let peak = |times: &crate::Histogram| {
        let (mut at, mut beside) = (0, 0);
        for (ns, n) in times.buckets() {
            if DELAYED_ACK.contains(&ns) {
                at += n;
            } else if (DELAYED_ACK.start() - BESIDE..=DELAYED_ACK.end() + BESIDE).contains(&ns) {
                beside += n;
            }
        }
        (at >= 10 && share(at, r.counts.responses) > DELAYED && beside * 4 < at).then_some(at)
    };
    // If most responses take 40 ms, the target may simply be that slow; but no body takes 40 ms to arrive.
    let is_usual = DELAYED_ACK.contains(&r.latency.service.quantile(0.5));
    let at = match is_usual {
        true => peak(&r.phases.receiving)?,
        false => peak(&r.latency.service)?,
    };
    Some(format!(
        "{} of the responses took 40 ms, apart from the others: probably a delayed acknowledgement, because one side sends a message in parts without TCP_NODELAY",
        percent(share(at, r.counts.responses))
    ))
}

pub(super) fn resumed(r: &Report) -> Option<String> {
    let n = r.connections.resumed;
    (n > 0).then(|| {
        format!(
            "{} of {} resumed a TLS session, because of --tls-resume: a full handshake costs the target more",
            grouped(n),
            counted(r.connections.opened_measured, "connection")
        )
    })
}

pub(super) fn no_keepalive(r: &Report) -> Option<String> {
    (!r.plan.keepalive && r.counts.responses > 0)
        .then(|| "each request opened its own connection, because of --no-keepalive".to_owned())
}

pub(super) fn sessions_differ(r: &Report) -> Option<String> {
    (r.ledger.sessions.len() > 1).then(|| {
        let all: Vec<&str> = r.ledger.sessions.keys().map(String::as_str).collect();
        format!("connections differ in TLS version or cipher: {}", all.join("; "))
    })
}
