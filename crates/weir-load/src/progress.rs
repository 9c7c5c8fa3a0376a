//! How a run goes while it lasts: what `Plan::run` tells whoever started it.

use crate::Histogram;
use crate::report::{CheckResult, Counts, TargetCost, Tick, Window};

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
}
