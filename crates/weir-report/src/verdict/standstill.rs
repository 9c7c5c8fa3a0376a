//! Whether load stood still: because of the target, or because the generator itself did not run.

use super::{JUDGED_NS, share};
use crate::Report;
use crate::units::{grouped, time};

/// A silence this many times the usual response time is a pause of the target.
pub const STILL: u64 = 10;

/// Share of a closed loop's time in which the target may pause.
pub const STILL_SHARE: f64 = 0.01;

/// How often it must pause to count: a single pause may be the machine's.
pub const STILL_TIMES: u64 = 3;

/// Concurrent requests per thread, below which a silence may be one slow response.
const FEW: u64 = 4;

/// A single pause of the generator that makes the result suspect, however long the run.
const PAUSE_NS: u64 = 1_000_000_000;

pub(super) fn stalled(r: &Report) -> Option<String> {
    let silence = r.health.longest_silence_ns;
    // With few clients and a slow target, silences as long as a response are normal.
    let usual = r.latency.service.quantile(0.9).max(1);
    (silence > 1_000_000_000 && silence > 3 * usual)
        .then(|| format!("no response came for {}, although requests were in progress", time(silence as f64)))
        .or_else(|| stood_still(r))
}

/// How often and how long a target paused under a closed loop. Such a loop sends nothing meanwhile, so a pause costs
/// each connection one slow response, which percentiles hide.
fn stood_still(r: &Report) -> Option<String> {
    if !r.plan.pace.is_closed() || r.duration_ns < JUDGED_NS {
        return None;
    }
    let threads = r.threads.len().max(1) as u64;
    let few = r.plan.connections.saturating_mul(r.plan.streams.max(1)) < FEW * threads;
    // With few concurrent requests, a silence may be one slow response.
    let usual = r.latency.service.quantile(if few { 0.98 } else { 0.9 });
    let pauses = r.health.silences.buckets().filter(|(ns, _)| *ns > STILL * usual);
    let (times, all) = pauses.fold((0, 0), |(times, all), (ns, n)| (times + n, all + ns * n));
    // Every thread sees the same pause. The generator's waits for its own processor are not the target's fault.
    let (times, all) = (times.div_ceil(threads), all / threads);
    let still = all.saturating_sub((r.longest_wait() * r.duration_ns as f64) as u64);
    (times >= STILL_TIMES && still as f64 > STILL_SHARE * r.duration_ns as f64).then(|| {
        format!(
            "the target stalled {} times, for {} in total: a closed loop sends nothing during a stall, so its percentiles hide it; measure with --rate",
            grouped(times),
            time(all as f64)
        )
    })
}

/// The whole process did not run: a signal or a debugger stopped it, its cgroup was frozen, or its machine was
/// suspended. The engine takes such pauses out of the target's silences, but the requests in flight were longer by
/// them.
pub(super) fn generator_paused(r: &Report) -> Option<String> {
    let paused = r.health.paused_ns;
    (paused >= PAUSE_NS || share(paused, r.duration_ns) > STILL_SHARE && r.health.pauses > 0).then(|| {
        format!(
            "the generator itself stood still {}, for {} in total, stopped or frozen from outside: the times of the requests in flight contain that",
            match r.health.pauses {
                1 => "once".to_owned(),
                n => format!("{} times", grouped(n)),
            },
            time(paused as f64)
        )
    })
}

/// The generator's cgroup used up its share of processor time, as containers with a CPU limit do.
pub(super) fn generator_throttled(r: &Report) -> Option<String> {
    let throttled = r.health.throttled_ns;
    (r.health.throttled > 0 && share(throttled, r.duration_ns) > STILL_SHARE).then(|| {
        format!(
            "the processor limit of the generator's cgroup throttled it in {} periods, for {} in total: raise the limit (cpu.max)",
            grouped(r.health.throttled),
            time(throttled as f64)
        )
    })
}
