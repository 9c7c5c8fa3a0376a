//! Reasons on the generator's side: its processor, its starts, and what its machine ran out of.

use super::contention::WAITED;
use super::{BUSY, JUDGED_NS, LATE_NS, contention, percent, replay};
use crate::Report;
use crate::units::{grouped, time};

pub(super) fn out_of_ports(r: &Report) -> Option<String> {
    let n = r.health.out_of_ports;
    (n > 0).then(|| format!("no local port was free for {} connections", grouped(n)))
}

pub(super) fn out_of_descriptors(r: &Report) -> Option<String> {
    let n = r.health.out_of_descriptors;
    (n > 0).then(|| format!("no descriptor was free for {} connections: raise `ulimit -n`", grouped(n)))
}

pub(super) fn generator_busy(r: &Report) -> Option<String> {
    let busy = r.busiest_thread();
    let busiest = r.agents.iter().max_by(|a, b| a.busiest.total_cmp(&b.busiest));
    let on = busiest.map_or_else(String::new, |agent| format!(" of {}", agent.name));
    (busy > BUSY && r.duration_ns >= JUDGED_NS).then(|| {
        format!(
            "a generator thread{on} used {} of its core: the target may be faster than this",
            percent(busy)
        )
    })
}

pub(super) fn generator_waited(r: &Report) -> Option<String> {
    waited(r).filter(|_| contention::matters(r))
}

pub(super) fn shared_cores(r: &Report) -> Option<String> {
    waited(r).filter(|_| !contention::matters(r))
}

/// How long the generator waited for a processor, and which processes had it.
fn waited(r: &Report) -> Option<String> {
    let share = r.longest_wait().min(1.0); // two clocks
    (share > WAITED && r.duration_ns >= JUDGED_NS).then(|| {
        let who = contention::who(r).map_or_else(|| " that others used".to_owned(), |who| format!("; {who}"));
        format!("a generator thread waited {} of the time for a processor{who}", percent(share))
    })
}

pub(super) fn late_starts(r: &Report) -> Option<String> {
    if let Some(replay) = &r.replay {
        return replay::late_starts(replay);
    }
    let p99 = r.health.start_lag.quantile(0.99);
    (p99 > LATE_NS)
        .then(|| format!("the generator started requests late: p99 {} behind the plan", time(p99 as f64)))
}
