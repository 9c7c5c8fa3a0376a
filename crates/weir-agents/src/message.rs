//! What a coordinator and an agent say. JSON in frames; unknown keys are refused, because both sides must be of one
//! version anyway.

use crate::share::Share;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_report::Histogram;
use weir_report::report::{CheckResult, Counts, Generator, Report, Tick, Window};

/// The version of these messages. Another one is refused before anything else is read.
pub const PROTOCOL: u32 = 2;

/// Most bytes of all files of a run: what one machine holds in memory as data.
pub const FILES_BYTES: u64 = 1 << 30;

/// Most files of a run.
pub const FILES_MOST: usize = 1_000;

/// What an agent is asked to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// [`PROTOCOL`] of the coordinator.
    pub protocol: u32,
    /// Names the run: a random text.
    pub run: String,
    /// Who asks, for others who want the agent meanwhile.
    pub by: String,
    /// The load, in words that weir-load understands.
    pub work: Value,
    /// The agent's part of it.
    pub share: Share,
    /// The files that it needs, which follow in this order.
    pub files: Vec<File>,
    /// What the loss of an agent means to the others.
    pub on_loss: OnLoss,
    /// Whether the plan has a `teardown`.
    pub tears_down: bool,
}

/// What the loss of an agent means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLoss {
    /// The others stop.
    #[default]
    Abort,
    /// The others go on.
    Continue,
}

/// A file that follows an offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// SHA-256 of its content, in hex.
    pub digest: String,
    /// Its length.
    pub bytes: u64,
}

/// From the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToAgent {
    /// Keeps the run alive, and repeats an order to stop.
    Beat {
        /// How to stop, once it should.
        stop: Option<Stop>,
    },
    /// The run is over, or will not begin.
    Bye,
    /// The first message.
    Offer(Box<Offer>),
    /// What time is it?
    Ping {
        /// Repeated in the answer.
        number: u32,
    },
    /// Run `setup` and the dry run, or take over what another agent's `setup` kept.
    Prepare {
        /// None for the agent that runs `setup`.
        kept: Option<Value>,
    },
    /// Begin at this moment of the agent's clock.
    Start {
        /// Nanoseconds.
        at_ns: u64,
    },
    /// You are given up, and another agent runs `teardown`: do not run it.
    Retire,
    /// The agent that was to run `teardown` is lost: run it in its place, once it may.
    Succeed,
    /// All others have ended: `teardown` may run.
    Teardown,
}

/// How a run ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// No further request begins; those under way may finish.
    Gracefully,
    /// Users break off their iterations and run `end`.
    Leaving,
    /// Everything is cut.
    Now,
}

/// From an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromAgent {
    /// Keeps the run alive.
    Beat,
    /// The agent read nothing from the coordinator for [`SILENCE`](crate::SILENCE) and has cut its load. It may still
    /// run `teardown`.
    CutOff,
    /// The run is over; everything that was counted.
    Ended(Box<Report>),
    /// The run cannot go on, and the agent sends no more load.
    Failed {
        /// Why, in lines.
        why: Vec<String>,
        /// Whether it ran `setup`, and runs `teardown` once it is told goodbye.
        tears_down: bool,
    },
    /// The first message.
    Hello(Box<Hello>),
    /// The agent's operator ends it: its load stops. If there is a successor for `teardown`, it takes that over.
    Leaving,
    /// The answer to a ping.
    Pong {
        /// Of the ping.
        number: u32,
        /// The agent's clock.
        at_ns: u64,
    },
    /// `setup` and dry run are over.
    Prepared {
        /// What `setup` kept.
        kept: Value,
    },
    /// Files are there and the plan can run.
    Ready,
    /// The offer is refused.
    Refused {
        /// Each mistake.
        why: Vec<String>,
    },
    /// One second of the run.
    Second(Box<Second>),
    /// It heard [`ToAgent::Succeed`] in time.
    Succeeding,
    /// The run has begun.
    Started {
        /// When, on the agent's clock.
        at_ns: u64,
    },
    /// `teardown` has run, well or not; the report tells how.
    TornDown,
}

/// An agent introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// Its machine and version.
    pub generator: Generator,
    /// A digest of its binary.
    pub build: String,
}

/// What an agent counted up to the end of one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// From 0, without a gap.
    pub number: u64,
    /// The second itself.
    pub tick: Tick,
    /// Service times in it.
    pub service: Histogram,
    /// Response times in it.
    pub response: Histogram,
    /// All counts since the run began.
    pub counts: Counts,
    /// All checks since the run began.
    pub checks: Vec<CheckResult>,
    /// The window that rates refer to, since the run began.
    pub window: Window,
    /// Digest of this second and, by the digest before, of all earlier ones.
    pub digest: String,
}
