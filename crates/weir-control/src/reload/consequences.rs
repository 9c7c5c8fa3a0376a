//! What a new config does to existing connections and state: what it drains and what it drops.

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;
use weir_engine::snapshot::{Listener, Snapshot};
use weir_telemetry::{Telemetry, log};

/// What a change did to existing connections and state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Consequences {
    /// Connections that close after their current exchange.
    pub drains: Vec<Drained>,
    /// State of filters that no filter can ask for any more, such as `routes.orders rate_limit`.
    pub forgets: Vec<String>,
}

/// Connections of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Drained {
    /// The listener's name.
    pub listener: String,
    /// How many there were.
    pub connections: i64,
}

impl Consequences {
    /// What the next snapshot does to connections.
    pub(crate) fn of(before: &Snapshot, after: &Snapshot, telemetry: &Telemetry) -> Self {
        let drained = before.listeners.iter().filter(|old| {
            // One without an address is known by its name.
            let is_same = |new: &&Arc<Listener>| {
                new.address == old.address && (new.address.is_some() || new.name == old.name)
            };
            let now = after.listeners.iter().find(is_same);
            now.is_none_or(|new| new.policy != old.policy)
        });
        let drains = drained.map(|listener| Drained {
            listener: listener.name.to_string(),
            connections: telemetry.listener_connections(&listener.name),
        });
        Self { drains: drains.filter(|drained| drained.connections > 0).collect(), forgets: Vec::new() }
    }

    /// What an upgrade does: every connection is drained. The new process reports which state it drops.
    pub(crate) fn of_upgrade(running: &Snapshot, telemetry: &Telemetry) -> Self {
        let drains = running.listeners.iter().map(|listener| Drained {
            listener: listener.name.to_string(),
            connections: telemetry.listener_connections(&listener.name),
        });
        Self { drains: drains.filter(|drained| drained.connections > 0).collect(), forgets: Vec::new() }
    }

    /// Logs it.
    pub(crate) fn log(&self) {
        for Drained { listener, connections } in &self.drains {
            log::info(
                "connections are drained: their listener is gone or now requires more of clients",
                &[("listener", listener), ("connections", connections)],
            );
        }
        for what in &self.forgets {
            log::warn("state is forgotten", &[("of", what)]);
        }
    }

    /// For people: one line each.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for Drained { listener, connections } in &self.drains {
            let _ = writeln!(out, "drains {connections} connections of listeners.{listener}");
        }
        for what in &self.forgets {
            let _ = writeln!(out, "forgets the state of {what}");
        }
        out
    }
}
