//! Builds the message that an agent sends every second: what it counted since the last one.

use crate::SoFar;
use weir_agents::Second;
use weir_agents::sum;
use weir_report::Histogram;
use weir_report::report::Tick;

/// Makes seconds of a run's progress.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    number: u64,
    service: Histogram,
    response: Histogram,
    digest: String,
}

impl Seconds {
    /// The next second.
    pub(super) fn next(&mut self, tick: &Tick, so_far: &SoFar) -> Second {
        let mut second = Second {
            number: self.number,
            tick: tick.clone(),
            service: so_far.service.without(&self.service),
            response: so_far.response.without(&self.response),
            counts: so_far.counts.clone(),
            checks: so_far.checks.clone(),
            window: so_far.window,
            digest: String::new(),
        };
        second.digest = sum::digest(&self.digest, &second);
        self.digest.clone_from(&second.digest);
        self.service.clone_from(&so_far.service);
        self.response.clone_from(&so_far.response);
        self.number += 1;
        second
    }
}
