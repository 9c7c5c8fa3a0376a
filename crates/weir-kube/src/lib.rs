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
//! *Layout:* [`api`] speaks to the API server. [`objects`] are the types of its objects, [`cluster`] is the store of
//! what was seen. [`translate`](mod@translate) makes a [`config`] and [`status`]es of it, without I/O; `names` and `text`
//! are its texts. A crate of its own and not a default member, so that building the `weir` binary takes no longer.
//!
//! # How a controller calls it
//!
//! 1. Each event of a watch goes to [`Cluster::apply`] or [`Cluster::delete`]. The answer says what it means:
//!    [`Change::Nothing`] is forgotten, [`Change::Status`] leads to [`status::changes`] with the statuses of the last
//!    translation, and only [`Change::Config`] asks for a new one. So a status that any controller writes, our own
//!    included, rebuilds nothing, whatever the number of routes.
//! 2. Changes of the config are gathered for some milliseconds, then [`translate()`] runs once, over all objects. If the
//!    new [`Config`] equals the running one, for instance because a Gateway of another class changed, nothing is loaded.
//! 3. The controller writes [`Translation::pending`] statuses, lays the config out in a new folder, has Weir check and
//!    run it, and then writes the statuses of the translation: `Programmed` means live.
//! 4. If Weir refuses the config in spite of the checks here, its diagnostics name routes, upstreams or listeners, and
//!    [`Translation::owners`] says whose they are. The controller adds these objects to [`Options::refused`] and
//!    translates again: a mistake of ours costs one object its service, and its status says why.
//!
//! # What objects may not do
//!
//! Tenants write them, so no text is a `${variable}`, a placeholder or an expression; none names a file or a socket; no
//! reference leaves its namespace without a ReferenceGrant; generated names carry the namespace; endpoints never lead
//! back into the pod; what cannot be done as written answers 500, and is never left out.

pub mod api;
pub mod cluster;
pub mod config;
pub mod controller;
mod names;
pub mod objects;
pub mod status;
mod text;
pub mod translate;
pub mod watch;

pub use cluster::{Change, Cluster};
pub use config::Config;
pub use objects::{Kind, Name, Refused};
pub use status::{Patch, Status};
pub use translate::{Options, Translation, translate};
