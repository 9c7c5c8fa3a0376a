//! Which processes had the processor that the generator waited for, and whether the wait affects the result.
//!
//! Waiting makes times longer and rates lower, never better. A threshold that was met would be met without it; one
//! that was violated might not be. Without thresholds, a closed loop shows what target and generator do together on
//! their machine, and sharing it is part of that. A fixed rate shows times, and the lateness of its starts tells how
//! much of them is the generator's.

use crate::Report;
use crate::report::CoreUse;

/// Share of its time that a thread may wait for a processor.
pub const WAITED: f64 = 0.05;

/// Share of the clients' time that may be without a request, by Little's law. S2's published run reached 0.15.
pub const LITTLE: f64 = 0.05;

/// Whether the wait affects what the run should show.
pub(super) fn matters(r: &Report) -> bool {
    if of_strangers(r) > WAITED {
        return true;
    }
    if !r.thresholds.is_empty() {
        return r.thresholds.iter().any(|t| !t.passed);
    }
    let (lag, times) = (&r.health.start_lag, &r.latency.response);
    let is_late = |q: f64| lag.quantile(q) as f64 > LITTLE * times.quantile(q) as f64;
    !r.plan.pace.is_closed() && [0.5, 0.99].into_iter().any(is_late)
}

/// The part of the longest wait that was due to unrelated processes; all of it if unknown.
fn of_strangers(r: &Report) -> f64 {
    let share = r.longest_wait();
    let Some(cores) = r.health.cores.as_ref() else { return share };
    // A thread does not wait for itself.
    let own = cores.generator_ns.saturating_sub(r.threads.iter().map(|t| t.cpu_ns).min().unwrap_or(0));
    let all = own + cores.target_ns.unwrap_or(0) + cores.others_ns();
    // Every machine has kernel work and small helpers.
    if all == 0 { share } else { share * cores.others_ns() as f64 / all as f64 }
}

/// The processes that had the processors, each in cores.
pub(super) fn who(r: &Report) -> Option<String> {
    let cores = r.health.cores.as_ref()?;
    let of = |ns: u64| format!("{:.2}", ns as f64 / cores.length_ns.max(1) as f64);
    let mut all = Vec::new();
    all.extend(cores.target_ns.map(|ns| format!("the target used {}", of(ns))));
    all.push(format!("its own threads {}", of(cores.generator_ns)));
    all.push(format!("others {}{}", of(cores.others_ns()), named(cores)));
    Some(format!("of {} cores {}", cores.cores, all.join(", ")))
}

/// The other processes by name.
fn named(cores: &CoreUse) -> String {
    let mut all: Vec<String> = cores
        .others
        .iter()
        .filter(|user| user.cpu_ns * 50 > cores.length_ns) // 2 % of a core
        .map(|user| {
            format!(
                "{} ({}) {:.2}",
                user.command,
                user.pid,
                user.cpu_ns as f64 / cores.length_ns.max(1) as f64
            )
        })
        .collect();
    let stolen = cores.stolen_ns as f64 / cores.length_ns.max(1) as f64;
    all.extend((stolen > 0.02).then(|| format!("taken by the machine below {stolen:.2}")));
    if all.is_empty() { String::new() } else { format!(": {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{CoreUser, Pace, ThreadStats, ThresholdResult};

    /// Two threads that waited 30 % of 10 s on a machine with two cores.
    fn run(target: Option<u64>, others: u64) -> Report {
        let thread = ThreadStats {
            measured_ns: 10_000_000_000,
            cpu_ns: 4_000_000_000,
            waited_ns: 3_000_000_000,
            ..ThreadStats::default()
        };
        let mut r = Report { threads: vec![thread.clone(), thread], ..Report::default() };
        r.latency.response.record_n(10_000_000, 1000);
        r.health.cores = Some(CoreUse {
            length_ns: 10_000_000_000,
            cores: 2,
            busy_ns: 8_000_000_000 + target.unwrap_or(0) + others,
            generator_ns: 8_000_000_000,
            target_ns: target,
            others: vec![CoreUser { pid: 7, command: "sh".to_owned(), cpu_ns: others }],
            ..CoreUse::default()
        });
        r
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_machine_that_is_shared_with_the_target_alone_says_what_both_can_do() {
        assert!(!matters(&run(Some(11 * S), S / 2)));
        assert!(matters(&run(Some(6 * S), 5 * S)), "a stranger took a quarter of a core of us");
        assert!(matters(&run(None, 11 * S)), "a process that nobody knows is a stranger");
        let unknown = Report { health: Default::default(), ..run(Some(11 * S), 0) };
        assert!(matters(&unknown));
    }

    #[test]
    fn what_was_asked_decides() {
        let threshold = |passed| ThresholdResult { passed, ..ThresholdResult::default() };
        let mut r = run(Some(11 * S), 0);
        r.thresholds = vec![threshold(true)];
        assert!(!matters(&r), "it held, and would have held all the more");
        r.thresholds.push(threshold(false));
        assert!(matters(&r));

        let mut r = run(Some(11 * S), 0);
        r.plan.pace = Pace::Rate { per_second: 100.0 };
        r.health.start_lag.record_n(100_000, 1000);
        assert!(!matters(&r), "100 µs of 10 ms");
        r.health.start_lag.record_n(2_000_000, 100);
        assert!(matters(&r));
    }

    #[test]
    fn who_it_was_is_told() {
        assert_eq!(
            who(&run(Some(6 * S), 5 * S)).unwrap(),
            "of 2 cores the target used 0.60, its own threads 0.80, others 0.50: sh (7) 0.50"
        );
        assert_eq!(who(&run(None, 0)).unwrap(), "of 2 cores its own threads 0.80, others 0.00");
    }
}
