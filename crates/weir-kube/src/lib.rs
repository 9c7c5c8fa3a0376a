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
//! # How the controller calls the translation
//!
//! 1. Each change of an object goes to [`Cluster::apply`] or [`Cluster::delete`], by [`GatewayApi`]. The answer says
//!    what it means: only [`Change::Config`] asks for a new translation. So a status that any controller writes, our own
//!    included, rebuilds nothing, whatever the number of routes.
//! 2. When no further change comes for some milliseconds, [`translate()`] runs once, over all objects. If the text is the
//!    running one, for instance because a Gateway of another class changed, nothing is loaded.
//! 3. Weir checks the config and runs it, and only then the statuses are written: `Programmed` means live.
//! 4. If Weir refuses the config in spite of the checks here, its diagnostics name routes, upstreams or listeners, and
//!    [`Translation::owners`] says whose they are. These objects are left out ([`Options::refused`]) until they change:
//!    a mistake of ours costs one object its service, and its status says why.
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
pub mod translator;
pub mod watch;

pub use cluster::{Change, Cluster};
pub use config::Config;
pub use objects::{Kind, Name, Refused};
pub use status::Status;
pub use translate::{Options, Translation, translate};
pub use translator::GatewayApi;
