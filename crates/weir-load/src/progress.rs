//! Progress of a run, which `Plan::run` reports to its caller.

use weir_report::report::{
    CheckResult, Counts, PlanAsRun, Report, TargetCost, ThreadStats, Tick, Verdict, Window,
};
use weir_report::{Histogram, verdict};

/// A snapshot of a run in progress.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Since the run began, including its warm-up.
    pub elapsed_ns: u64,
    /// The second that has just completed, if any. Each is reported once.
    pub tick: Option<&'a Tick>,
    /// Everything measured up to the end of the last complete second.
    pub so_far: &'a SoFar,
}

/// Everything measured up to the end of a second: the sum of the ticks.
#[derive(Debug, Default)]
pub struct SoFar {
    /// The end of the last second, counted from the start of measuring.
    pub measured_ns: u64,
    /// Requests, responses by status and errors by kind. Values known only at the end are 0: error texts,
    /// `failed_checks` (see `checks`), unfinished and unsent requests.
    pub counts: Counts,
    /// Checks, in the order given.
    pub checks: Vec<CheckResult>,
    /// The window that rates refer to.
    pub window: Window,
    /// Service times.
    pub service: Histogram,
    /// Response times.
    pub response: Histogram,
    /// The target's cost; only with `--pid`.
    pub cost: Option<TargetCost>,
    /// Processor time of all generator threads.
    pub generator_cpu_ns: u64,
    /// The longest run of seconds without a response while requests were in flight.
    pub longest_silence_ns: u64,
}

impl SoFar {
    /// A report of what is known so far.
    pub(crate) fn report(&self, plan: &PlanAsRun) -> Report {
        let mut report = Report { counts: self.counts.clone(), plan: plan.clone(), ..Report::default() };
        report.latency.service.clone_from(&self.service);
        report.latency.response.clone_from(&self.response);
        report.duration_ns = self.measured_ns;
        report.checks.clone_from(&self.checks);
        report.window = Some(self.window);
        report
    }

    /// The verdict if the run ended now, from the reasons that are visible before its end.
    pub fn verdict(&self, plan: &PlanAsRun) -> Verdict {
        let mut report = self.report(plan);
        // At least this many: a response may fail several checks, and threads may differ in load.
        report.counts.failed_checks = self.checks.iter().map(|c| c.failed).max().unwrap_or(0);
        report.threads = vec![ThreadStats {
            cpu_ns: self.generator_cpu_ns / plan.threads.max(1),
            measured_ns: self.measured_ns,
            ..ThreadStats::default()
        }];
        report.health.longest_silence_ns = self.longest_silence_ns;
        verdict::developing(&report)
    }
}
