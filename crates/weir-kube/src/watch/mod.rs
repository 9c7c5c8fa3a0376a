//! What a replica does about what the API server says: state machines without I/O. Events go in, actions come out; the
//! driver in `controller/` carries the actions out, and `tests/sim/` plays driver, server and faults from a seed.
//!
//! *Layout:* [`reflector`] follows one resource, [`store`] holds the objects of all, [`election`] decides which
//! replica leads, [`status`] compares statuses, [`writer`] writes them, [`keeper`] keeps the Services of Gateways,
//! [`recorder`] tells users by Events what is refused, `missing` holds the permissions that writer and keeper lack.

pub mod election;
pub mod keeper;
mod missing;
pub mod recorder;
pub mod reflector;
pub mod status;
pub mod store;
pub mod writer;

use std::time::Duration;

/// Time since the process began. It never jumps.
pub type Time = Duration;
