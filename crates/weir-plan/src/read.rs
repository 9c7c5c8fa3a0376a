//! Reads a plan: the tree of the file, then every key of it, then what they mean together.

use crate::files::Files;
use crate::plan::Plan;
use weir_config::{Diagnostic, Diagnostics, Mistakes, Source};

/// Reads a plan. `set` replaces or adds keys, as `--set scenarios.browse.rate=50/s` does: pairs of path and value.
///
/// # Errors
/// Every mistake in it, with its place. Nothing has been sent then.
pub fn read(source: &Source, files: &dyn Files, set: &[(String, String)]) -> Result<Plan, Mistakes> {
    let _ = (source, files, set);
    let mut found = Diagnostics::default();
    found.push(Diagnostic::error("bad-plan", "this build reads no plans"));
    Err(found.into())
}
