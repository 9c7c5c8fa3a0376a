//! Which systems have a program that a proof can run: above [`crate::proof`] and the systems, which do not know it.

use crate::proof::Stage;
use crate::source::{Loader, SourceTree, Unreadable};

/// Stages the old program's config. None for a system whose program weir cannot run.
///
/// # Errors
/// If the source cannot be read.
pub fn stage(
    system: &str,
    loader: &dyn Loader,
    files: &[String],
    around: &str,
) -> Result<Option<Stage>, Unreadable> {
    let mut tree = SourceTree::open(loader, files)?;
    match system {
        "nginx" => crate::nginx::stage::stage(&mut tree, around).map(Some),
        _ => Ok(None),
    }
}
