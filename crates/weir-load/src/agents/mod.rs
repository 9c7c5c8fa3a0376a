//! A load from several machines: `weir agent` serves, `weir load --agents` leads.
//!
//! *Layout.* weir-agents decides everything; here it is carried out. `serve` is the agent, `lead` the coordinator,
//! `wire` a connection between them. `strangers` bounds connections that have not asked for a run yet. `work` is
//! what an agent is asked to do, `limits` what it permits; `kept` is what `setup` kept, `second` what is counted in a
//! second. weir-report adds up the reports.

mod kept;
mod lead;
mod limits;
mod second;
mod serve;
mod strangers;
mod wire;
mod work;

pub use lead::{Lead, NotBegun, lead};
pub use limits::Limits;
pub use serve::{AgentOptions, serve_agent};
pub use weir_agents::coordinator::OnLoss;
pub use weir_agents::{AGENTS_MOST, Allow};
pub use work::{Packed, PlanFile};
