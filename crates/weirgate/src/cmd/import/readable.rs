//! Replaces the exact form of a config with the readable one if both route every sampled request the same way.

use super::{Checked, check, winner};
use anyhow::Result;
use weir_gateway::snapshot::Snapshot;
use weir_import::config::Case;
use weir_import::readable::{Readable, readable, requests};
use weir_import::{Config, Import, Written};

/// Most requests that both forms are asked, and most comparisons of a request with a route: about 2 s.
const MAX_REQUESTS: usize = 20_000;
const MAX_COMPARISONS: usize = 4_000_000;

/// The exact form, which was put aside.
pub(super) struct Exact {
    pub(super) config: Config,
    pub(super) written: Vec<Written>,
    pub(super) checked: Checked,
}

/// Puts the readable form into `import`, `written` and `checked`. Returns the exact one; none if it stays.
///
/// # Errors
/// If the check needs a folder and there is none.
pub(super) fn make(
    import: &mut Import,
    written: &mut Vec<Written>,
    checked: &mut Checked,
) -> Result<Option<Exact>> {
    let Some(made) = readable(&import.config).filter(|_| checked.mistakes.is_empty()) else {
        return Ok(None);
    };
    let most = (MAX_COMPARISONS / import.config.routes.len().max(1)).min(MAX_REQUESTS);
    let asked = requests(&import.config, &made, most);
    let exact = std::mem::replace(&mut import.config, made.config.clone());
    let new_written = import.written();
    let new_checked = check(import, &new_written)?;
    let decide_alike = match (&checked.snapshot, &new_checked.snapshot) {
        (Some(exact), Some(new)) => asked.iter().all(|case| is_same(exact, new, case, &made)),
        _ => false,
    };
    if !decide_alike || !new_checked.mistakes.is_empty() {
        import.config = exact;
        return Ok(None);
    }
    Ok(Some(Exact {
        config: exact,
        written: std::mem::replace(written, new_written),
        checked: std::mem::replace(checked, new_checked),
    }))
}

fn is_same(exact: &Snapshot, new: &Snapshot, case: &Case, made: &Readable) -> bool {
    match (winner(exact, case), winner(new, case)) {
        (Ok(exact), Ok(new)) => exact.as_deref().map(|name| made.name_of(name)) == new.as_deref(),
        (Err(_), Err(_)) => true,
        _ => false,
    }
}
