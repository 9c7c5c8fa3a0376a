//! The clock of everything that renews certificates: the wall clock, or that of a test.

use std::sync::Arc;

/// Seconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;
