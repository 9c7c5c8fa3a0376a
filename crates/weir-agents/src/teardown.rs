//! Which agent runs `teardown`, and when. Coordinator and agents carry the rule out; `tests/sim` holds them to it.
//!
//! One agent has the task: the one that ran `setup`, or its successor.
//!
//! - **Connected.** It runs `teardown` when the coordinator allows it: once the load of every other agent is over. A
//!   lost agent's load is over [`OVER_AFTER`] its loss, because an agent cuts its load [`SILENCE`] after the last
//!   message that it read.
//! - **Lost.** If the coordinator loses the agent that has the task, the next one whose load still runs gets it.
//! - **Cut off.** An agent that loses its coordinator cannot know whether the coordinator or only the network failed.
//!   With [`OnLoss::Abort`], the agent that has the task runs it after [`DETACHED`]: no other agent sends by then. With
//!   [`OnLoss::Continue`], the others go on and need what `setup` made, so it leaves the task to them. An agent without
//!   others runs it at once.
//! - **Ended by its operator.** It stops its load, and keeps the task until a successor has confirmed that it took over.
//!
//! So `teardown` runs at least once with `Abort`, as long as one agent that has the task lives. It runs twice only if
//! the coordinator lost an agent that had the task and could still run it: `Seen::may_tear_down` names each.

use crate::SILENCE;
use crate::message::OnLoss;
use std::time::Duration;

/// How long a message may be under way, and a load that is cut may take to end.
pub const TRANSIT: Duration = Duration::from_secs(2);

/// From the loss of an agent that said nothing of its end until its load is over for certain.
pub const OVER_AFTER: Duration = SILENCE.saturating_add(TRANSIT);

/// How long an agent that was cut off waits before it runs `teardown`. Within the first [`SILENCE`] the coordinator
/// misses it and stops the others; within the second, those that the order did not reach have cut their loads.
pub const DETACHED: Duration = SILENCE.saturating_mul(2).saturating_add(TRANSIT);

/// What an agent that was cut off does about its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    /// It runs `teardown` after [`DETACHED`].
    Later,
    /// It does not run it.
    Leaves,
    /// It runs it at once.
    Now,
}

impl CutOff {
    /// The rule for one of `agents` agents.
    pub const fn of(agents: u32, on_loss: OnLoss) -> Self {
        match (agents, on_loss) {
            (0 | 1, _) => Self::Now,
            (_, OnLoss::Abort) => Self::Later,
            (_, OnLoss::Continue) => Self::Leaves,
        }
    }
}
