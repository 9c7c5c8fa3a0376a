//! How a run goes while it lasts: what `Plan::run` tells whoever started it.

use weir_report::report::{
    CheckResult, Counts, PlanAsRun, Report, TargetCost, ThreadStats, Tick, Verdict, Window,
};
use weir_report::{Histogram, verdict};

/// A look at a run under way.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Since the run began, its warm-up included.
    pub elapsed_ns: u64,
    /// The second that is complete now, if one is. Each is told once.
    pub tick: Option<&'a Tick>,
    /// Everything measured until the end of the last complete second.
    pub so_far: &'a SoFar,
}

/// Everything measured until the end of a second: the ticks added up.
#[derive(Debug, Default)]
pub struct SoFar {
    /// The end of the last second, from the start of measuring.
    pub measured_ns: u64,
    /// Requests, responses by status and errors by kind. What only the end knows is 0: texts of errors, `failed_checks` (see `checks`), what is unfinished or was not sent.
    pub counts: Counts,
    /// Checks, in the order given.
    pub checks: Vec<CheckResult>,
    /// What rates are of.
    pub window: Window,
    /// Service times.
    pub service: Histogram,
    /// Response times.
    pub response: Histogram,
    /// What the target has spent; only with `--pid`.
    pub cost: Option<TargetCost>,
    /// Processor time of all threads of the generator.
    pub generator_cpu_ns: u64,
    /// The longest row of seconds without a response though requests were under way.
    pub longest_silence_ns: u64,
}

impl SoFar {
    /// A report of what is known by now.
    pub(crate) fn report(&self, plan: &PlanAsRun) -> Report {
        let mut report = Report { counts: self.counts.clone(), plan: plan.clone(), ..Report::default() };
        report.latency.service.clone_from(&self.service);
        report.latency.response.clone_from(&self.response);
        report.duration_ns = self.measured_ns;
        report.checks.clone_from(&self.checks);
        report.window = Some(self.window);
        report
    }

    /// What the verdict would be if the run ended now, by the reasons that can be seen before its end.
    pub fn verdict(&self, plan: &PlanAsRun) -> Verdict {
        let mut report = self.report(plan);
        // At least: a response may fail several checks, and a thread may be busier than the others.
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
