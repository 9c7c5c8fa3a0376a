//! A load from several machines: `weir agent` serves, `weir load --agents` leads.
//!
//! *Layout.* weir-agents decides everything; here it is carried out. `serve` is the agent, `lead` the coordinator,
//! `wire` a connection between them. `work` is what an agent is asked to do, with the checks of what it permits; `kept`
//! is what `setup` kept, `second` what is counted in a second. weir-report adds up the reports.

mod kept;
mod lead;
mod second;
mod serve;
mod wire;
mod work;

pub use lead::{Lead, NotBegun, lead};
pub use serve::{AgentOptions, serve_agent};
pub use weir_agents::coordinator::OnLoss;
pub use weir_agents::{AGENTS_MOST, Allow};
pub use work::{Limits, Packed, PlanFile};
