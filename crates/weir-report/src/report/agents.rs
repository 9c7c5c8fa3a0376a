//! The agents of a load from several machines.

use super::{Errors, Generator, Percentiles, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One agent: its share of everything that the report adds up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentStats {
    /// `HOST:PORT`, as given.
    pub name: String,
    /// Its machine and version.
    pub generator: Generator,
    /// Whether its binary is another one than the coordinator's.
    pub other_build: bool,
    /// How long after the first agent it began, by clocks compared before the run; none if it never began.
    pub started_ns: Option<u64>,
    /// The shortest exchange with it; the clocks are compared to half of this.
    pub clock_ns: u64,
    /// Its connections.
    pub connections: u64,
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Complete responses per second, in the window of its rates.
    pub rate: f64,
    /// Requests without a complete response.
    pub errors: Errors,
    /// Its response times.
    pub response: Percentiles,
    /// Processor time of its busiest thread, as a share of one core.
    pub busiest: f64,
    /// Whether its own figures can be believed.
    pub verdict: Verdict,
    /// After how many of its seconds it was lost, and why; none for one that came to its end.
    pub lost: Option<LostAgent>,
    /// What of its counts does not add up; none if everything does.
    pub mismatch: Option<String>,
}

/// The loss of an agent during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LostAgent {
    /// Seconds of it that were heard, which the report includes.
    pub seconds: u64,
    /// What happened.
    pub why: String,
    /// Whether the others went on, as asked.
    pub others_went_on: bool,
}

impl AgentStats {
    /// Its verdict in words, or what is worse.
    pub(crate) fn state(&self) -> String {
        match (&self.mismatch, &self.lost) {
            (Some(_), _) => "does not add up".to_owned(),
            (None, Some(lost)) => format!("lost after {} s", lost.seconds),
            (None, None) => self.verdict.grade.to_string(),
        }
    }
}
