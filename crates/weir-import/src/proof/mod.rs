//! The proof of an import, without its impure half: what to ask, what to compare, and what to tell.
//!
//! ```text
//! source ─stage─▶ Stage: the old program's config for a world of its own, and Patterns (what its lines tell apart)
//! Patterns + our routes ─witness─▶ Vec<Witness>   (asked by weirgate: first the old program, then Weir)
//! two Observations ─compare─▶ Vec<Difference> ─report─▶ a table per source line: text, JSON, HTML
//! ```
//! The oracle is the old program. Nothing here predicts what it would answer: [`Patterns`] only say which requests are
//! worth asking and which line of the source a difference belongs to, so a mistake in them costs a witness, never a
//! wrong verdict.

mod address;
pub mod callers;
pub mod compare;
pub mod corpus;
mod forms;
pub mod html;
mod mask;
pub mod ours;
pub mod patterns;
pub mod program;
pub mod report;
mod sample;
pub(crate) use address::edges_of_network;
pub(crate) use sample::{edges, samples};
pub mod witness;

pub use compare::{Difference, Observation, Seen};
pub use ours::OurRoute;
pub use patterns::{Effect, Patterns, Stage};
pub use program::{Program, Reads};
pub use report::{Accepted, Report, Row};
pub use witness::{Ask, Scenario, Witness};

/// The folder that the staged program may write to, and the only one: a filesystem in memory.
pub const WORKSPACE: &str = "/run/weir-proof";
