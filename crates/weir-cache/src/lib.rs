//! The filter `cache` ([`filter`]) and the parts of a cache that do not depend on HTTP: the eviction policy and a
//! store on disk.
//!
//! [`policy`] serves both stores: the one in memory, which the filter owns, and the one on [`disk`]. Keys and heads
//! are opaque bytes there; the filter knows their meaning and their freshness. [`trace`] generates the requests that
//! evaluate the policy.

pub mod disk;
pub mod filter;
pub mod policy;
pub mod trace;

use weir_filter::prelude;
