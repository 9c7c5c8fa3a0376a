//! What caches are made of that is not HTTP: which objects leave a full store, and a store on a disk.
//!
//! [`policy`] decides for both stores, the one in memory (the filter `cache` has it) and the one on the [`disk`]. Keys and heads
//! are bytes here; what they mean, and when they are fresh, the filter knows. [`trace`] makes the requests by which the policy is
//! judged.

pub mod disk;
pub mod policy;
pub mod trace;
