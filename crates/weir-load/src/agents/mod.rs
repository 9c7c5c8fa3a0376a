//! A load from several machines: `weir agent` serves, `weir load --agents` leads.
//!
//! *Layout.* weir-agents decides everything; here it is carried out. `serve` is the agent, `coordinate` the
//! coordinator, `wire` a connection between them. `handshakes` bounds connections that have not asked for a run yet.
//! `work` is what an agent is asked to do, `limits` what it permits; `kept` is what `setup` kept, `progress` what is
//! counted in a second. weir-report adds up the reports.

mod coordinate;
mod handshakes;
mod kept;
mod limits;
mod progress;
mod serve;
mod wire;
mod work;

pub use coordinate::{Lead, NotBegun, lead};
pub use limits::Limits;
pub use serve::{AgentOptions, serve_agent};
pub use weir_agents::coordinator::OnLoss;
pub use weir_agents::{AGENTS_MOST, Allow};
pub use work::{Packed, PlanFile};
