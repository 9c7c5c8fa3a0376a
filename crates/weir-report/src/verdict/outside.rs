//! Whether a block of a comparison was spoilt from outside of the test, so that it may be measured again.
//!
//! Repeating measurements makes it possible to pick results. Weir therefore accepts only causes that a target on cores
//! of its own cannot produce, whatever it answers:
//!
//! - The whole generator stood still.
//! - Other programs used the cores of the generator's threads. The kernel counts that time. The count is evidence only
//!   if the targets run on this machine and on other cores, because a thread also waits for a target on its own core.
//!
//! The evidence must also be large enough to explain each reason. All other reasons stand, including these on the
//! generator's side:
//!
//! - `generator_busy`: how much work a response is for the generator depends on how the target sends it.
//! - `generator_throttled`: the target may use up a limit that both share.
//! - Time stolen from the machine: a host that limits the whole machine takes more if a target uses more.
//! - Late starts while the generator was working, such as after a burst of responses.

use super::{BUSY, LATE_NS, WAITED, percent, share};
use crate::Report;
use crate::report::{Grade, ThreadStats};
use crate::units::time;

/// Where the targets run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On the generator's machine, but on none of its cores.
    Apart,
    /// On some of the generator's cores, or unknown.
    Shared,
}

/// What spoilt the block, if it explains every reason against it. `None` if the block counts as it is.
pub fn spoilt_from_outside(report: &Report, placement: Placement) -> Option<String> {
    let mut against = report.verdict.reasons.iter().filter(|r| r.grade > Grade::Valid).peekable();
    against.peek()?;
    against.all(|reason| explains(report, placement, &reason.code)).then(|| shown(report, placement))
}

fn explains(r: &Report, placement: Placement, code: &str) -> bool {
    match code {
        // Without the kernel's counts of waits, a thread that waited for the target looks like one that stood still.
        "generator_paused" => placement == Placement::Apart || r.threads.iter().any(|t| t.waited_ns > 0),
        "generator_waited" => longest_taken(r, placement) > WAITED,
        // In blocks under `JUDGED_NS`, the verdict does not look for `generator_busy`.
        "late_starts" => r.busiest_thread() <= BUSY && late_share(r) <= late_share_explained(r, placement),
        _ => false,
    }
}

/// The share of starts that were late.
fn late_share(r: &Report) -> f64 {
    let lag = &r.health.start_lag;
    let late = lag.ranges().filter(|(_, highest, _)| *highest > LATE_NS).map(|(_, _, n)| n).sum();
    share(late, lag.count())
}

/// The share of starts that are late if a thread that is busy for a share ρ of its time has no core for a share d:
/// those due meanwhile, and those due while it catches up. Together that is d / (1 - ρ).
fn late_share_explained(r: &Report, placement: Placement) -> f64 {
    let of = |thread: &ThreadStats| {
        let lost_ns = taken_ns(r, thread, placement) + r.health.paused_ns;
        share(lost_ns, thread.measured_ns.saturating_sub(thread.cpu_ns))
    };
    // Threads share the starts evenly.
    r.threads.iter().map(of).sum::<f64>() / r.threads.len().max(1) as f64
}

/// The longest that other programs had a thread's core, as a share of its time.
fn longest_taken(r: &Report, placement: Placement) -> f64 {
    let of = |thread: &ThreadStats| share(taken_ns(r, thread, placement), thread.measured_ns);
    r.threads.iter().map(of).fold(0.0, f64::max)
}

/// How long other programs had a thread's core, in nanoseconds; 0 if that is not certain.
fn taken_ns(r: &Report, thread: &ThreadStats, placement: Placement) -> u64 {
    // More threads than cores wait for each other.
    let is_certain = placement == Placement::Apart && r.threads.len() as u64 <= r.generator.cores;
    // What the generator's other threads do, such as watching the target's processes, may depend on the target. So may
    // throttling, which the kernel counts as waiting, if both share a limit.
    let of_ours = r.health.own_ns + r.health.throttled_ns;
    if is_certain { thread.waited_ns.saturating_sub(of_ours) } else { 0 }
}

fn shown(r: &Report, placement: Placement) -> String {
    let (taken, paused) = (longest_taken(r, placement), r.health.paused_ns);
    let mut all = Vec::new();
    if taken > 0.0 {
        all.push(format!("other programs had the generator's processor for {} of it", percent(taken)));
    }
    if paused > 0 {
        all.push(format!("the generator stood still for {}", time(paused as f64)));
    }
    all.join(", and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Generator, Health, Reason, Verdict};

    const MS: u64 = 1_000_000;

    /// A block of a second on one core with one thread that worked for 600 ms, with these reasons against it.
    fn block(codes: &[&str], waited_ms: u64, late: u64) -> Report {
        let reasons = codes.iter().map(|code| Reason {
            code: (*code).to_owned(),
            grade: crate::verdict::grade_of(code),
            text: String::new(),
        });
        let thread = ThreadStats {
            measured_ns: 1000 * MS,
            cpu_ns: 600 * MS,
            waited_ns: waited_ms * MS,
            ..ThreadStats::default()
        };
        let mut health = Health::default();
        health.start_lag.record_n(100_000, 1000 - late);
        health.start_lag.record_n(5 * MS, late);
        Report {
            threads: vec![thread],
            generator: Generator { cores: 1, ..Generator::default() },
            verdict: Verdict { grade: Grade::Suspect, reasons: reasons.collect() },
            health,
            ..Report::default()
        }
    }

    #[test]
    fn only_what_other_programs_took_explains_a_reason() {
        let cases: &[(&[&str], u64, u64, bool)] = &[
            (&[], 300, 0, false),
            (&["shared_cores"], 300, 0, false),
            (&["late_starts"], 20, 50, true),
            // 20 ms without a core, and 30 ms to catch up: no more than 50 of 1,000 starts.
            (&["late_starts"], 20, 51, false),
            (&["late_starts"], 0, 20, false),
            (&["generator_waited"], 60, 0, true),
            (&["generator_waited"], 40, 0, false),
            (&["generator_waited", "late_starts", "shared_cores"], 60, 100, true),
            (&["generator_waited", "late_starts"], 60, 200, false),
            (&["generator_busy"], 300, 0, false),
            (&["generator_busy", "late_starts"], 300, 20, false),
            (&["generator_throttled"], 300, 0, false),
            (&["late_starts", "errors"], 300, 20, false),
            (&["late_starts", "rate_missed"], 300, 20, false),
            (&["late_starts", "unfinished"], 300, 20, false),
            (&["stalled"], 300, 0, false),
        ];
        for (codes, waited_ms, late, want) in cases {
            let block = block(codes, *waited_ms, *late);
            let told = spoilt_from_outside(&block, Placement::Apart);
            assert_eq!(told.is_some(), *want, "{codes:?} {waited_ms} ms {late}: {told:?}");
        }
        assert_eq!(
            spoilt_from_outside(&block(&["late_starts"], 20, 50), Placement::Apart).unwrap(),
            "other programs had the generator's processor for 2.0 % of it"
        );
    }

    #[test]
    fn a_wait_that_the_target_may_have_caused_explains_nothing() {
        let spoilt = block(&["generator_waited", "late_starts"], 300, 100);
        assert!(spoilt_from_outside(&spoilt, Placement::Apart).is_some());
        assert_eq!(spoilt_from_outside(&spoilt, Placement::Shared), None);
        let mut own = spoilt.clone();
        own.health.own_ns = 290 * MS;
        assert_eq!(spoilt_from_outside(&own, Placement::Apart), None, "it waited for its own threads");
        let mut throttled = spoilt.clone();
        throttled.health.throttled_ns = 290 * MS;
        assert_eq!(spoilt_from_outside(&throttled, Placement::Apart), None, "a limit that both may share");
        let mut busy = block(&["late_starts"], 10, 100);
        busy.threads[0].cpu_ns = 990 * MS;
        assert_eq!(spoilt_from_outside(&busy, Placement::Apart), None, "it was working");
        let mut crowded = spoilt;
        crowded.threads.push(crowded.threads[0].clone());
        assert_eq!(spoilt_from_outside(&crowded, Placement::Apart), None, "two threads on one core");
    }

    #[test]
    fn a_pause_of_the_whole_generator_is_nobodys_answer() {
        let mut paused = block(&["generator_paused", "late_starts"], 1, 250);
        (paused.health.pauses, paused.health.paused_ns) = (1, 120 * MS);
        let told = spoilt_from_outside(&paused, Placement::Shared).unwrap();
        assert_eq!(told, "the generator stood still for 120.0 ms");
        let mut uncounted = paused.clone();
        uncounted.threads[0].waited_ns = 0;
        assert_eq!(spoilt_from_outside(&uncounted, Placement::Shared), None, "the kernel counts no waits");
        paused.health.start_lag.record_n(5 * MS, 200);
        assert_eq!(
            spoilt_from_outside(&paused, Placement::Shared),
            None,
            "so many are late for another reason"
        );
    }
}
