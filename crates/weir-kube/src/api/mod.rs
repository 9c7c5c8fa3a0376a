//! A small client of the Kubernetes API: lists in pages, watches, and writes.
//!
//! We use the control side's HTTP client (`fetch.rs` of weir-upstream) instead of kube-rs. A controller needs seven
//! requests: list, watch, get, create, replace, patch and delete. kube-rs brings hyper, tower, a second TLS setup and
//! the types of every Kubernetes API (k8s-openapi). Together they take longer to build than this workspace's control
//! side, and kube-rs had three major releases in 2026. Our client shares names, TLS and limits with what calls identity
//! providers, registries and etcd, and every buffer and wait in it has a named limit.
//!
//! *Layout:* `resource.rs` lists what is read and written, `object.rs` is an object as it arrives, `access.rs` knows
//! server and credentials, `client.rs` sends the requests, `error.rs` sorts what goes wrong.

mod access;
mod client;
mod error;
mod object;
mod resource;

pub use access::{Access, NoAccess};
pub use client::{Client, OBJECT, PAGE, Page, Told, Watch, Write};
pub use error::{ApiError, missing_rule};
pub use object::{CONTROLLER_ANNOTATION, NotAnObject, Object};
pub use resource::{EVENT, LEASE, Making, Presence, Resource, Scope, Status, WATCHED, watched};
