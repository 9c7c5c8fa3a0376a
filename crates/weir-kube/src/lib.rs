//! Weir as a Kubernetes ingress: a controller of the Gateway API that shares a process with the gateway it programs.
//!
//! Every replica watches the API server and serves. One replica, the holder of a Lease, writes statuses.
//!
//! ```text
//!   API server ──► api/ ──► watch/ ──► store ──► translate/ ──► Gateway (in this process)
//!       ▲      lists,    decides,                                      │ runs
//!       │      watches   without I/O                                   ▼
//!       └──────────── writes ◄──── statuses, if this replica leads ◄───┘
//! ```
//!
//! *Layout:* [`api`] speaks to the API server. A crate of its own and not a default member, so that building the
//! `weir` binary takes no longer.

pub mod api;
pub mod controller;
pub mod watch;
