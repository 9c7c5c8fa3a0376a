//! Runs the users of plans with scenarios, beside `client`, which repeats a request.
//!
//! *Layout.* `thread` starts the users of a thread, `crew` is what they share, `gate` says when iterations begin.
//! `user` is the life of one, `walk` goes through its steps, `render` writes requests, `perform` sends one, over `h1`,
//! `h2` or `websocket`, and `judge` evaluates the answer. `single_user` runs setup, dry run and teardown with one user;
//! `witness` records what failed there. The plan and its counts are in `crate::scenario`.

mod crew;
mod exec;
mod gate;
mod h1;
mod h2;
mod judge;
mod perform;
mod render;
mod single_user;
mod thread;
mod user;
mod walk;
mod websocket;
mod witness;

pub use exec::kill_programs;
pub(super) use single_user::{finish, prepare};
pub(super) use thread::{drive, slots_of};
