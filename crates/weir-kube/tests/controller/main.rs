//! The controller in one process with a gateway and a fake API server, over real sockets. What it translates here is
//! made up: a route is a path and a body, so that these tests say nothing about the Gateway API. `each_permission.rs`
//! alone translates the Gateway API, because a permission can be for anything.
//!
//! *Layout:* `made_up.rs` is that translator, `world.rs` starts everything, `serving.rs` is about what is served,
//! `statuses.rs` about what is written, `permissions.rs`, `each_permission.rs` and `manifests.rs` about RBAC.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod each_permission;
mod made_up;
mod manifests;
mod permissions;
mod serving;
mod statuses;
mod world;
