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
//! *Layout:* [`api`] speaks to the API server. [`objects`] has the types of its objects, [`cluster`] stores those seen
//! last. [`translate`](mod@translate) turns them into a [`config`] and [`status`]es, without I/O; `names` and `text`
//! make the names and values, `quota` shares out the bytes of the config. The crate is not a default member of the
//! workspace, so the `weir` binary builds as fast as without it.
//!
//! # How the controller calls the translation
//!
//! 1. [`GatewayApi`] passes each change of an object to [`Cluster::apply`] or [`Cluster::delete`]. Only the result
//!    [`Change::Config`] asks for a new translation. So if a controller, even this one, writes a status, nothing is
//!    rebuilt, however many routes there are.
//! 2. Some milliseconds after the first change, [`translate()`] runs once, over all objects. If the text is the running
//!    one, for instance because a Gateway of another class changed, nothing is loaded.
//! 3. Weir checks the config and runs it, and only then the statuses are written: `Programmed` means live.
//! 4. If Weir refuses the config in spite of the checks here, its diagnostics name routes, upstreams or listeners, and
//!    [`Translation::owners`] says whose they are. First the route, upstream or listener is left out
//!    ([`Options::refused_parts`], [`Options::closed`]); if that does not help, the object ([`Options::refused`]). It
//!    is tried again when an object of its namespace changes, or one that its listeners refer to. So a mistake of ours
//!    costs one object its service, and its status says why.
//!
//! # What objects may not do
//!
//! Tenants write them, so:
//!
//! - No text is a `${variable}`, a placeholder or an expression, and none names a file or a socket.
//! - No reference leaves its namespace without a ReferenceGrant, and generated names carry the namespace.
//! - Endpoints never lead back into the pod.
//! - A rule that cannot be served as written answers 500.

pub mod api;
pub mod cluster;
pub mod config;
pub mod controller;
mod name;
mod names;
pub mod objects;
mod quota;
pub mod status;
mod text;
pub mod translate;
pub mod translator;
pub mod watch;

pub use cluster::{Change, Cluster};
pub use config::Config;
pub use objects::{Kind, Name, Refused};
pub use status::Status;
pub use translate::{Front, Memo, Options, Translation, translate};
pub use translator::GatewayApi;
