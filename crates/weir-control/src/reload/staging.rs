//! What the history records of a config about to run, whatever makes it run.

use crate::history::{By, History, OnTrial, Revision, diff};
use weir_config::texts::Texts;

/// Stages a config about to run as a revision, unless it is already the latest.
pub(super) fn stage(
    history: &History,
    texts: &Texts,
    by: &By,
    before: Option<&Texts>,
    trial: Option<OnTrial>,
) -> std::io::Result<Option<Revision>> {
    if history.latest().is_some_and(|latest| latest.hash == texts.hash) {
        return Ok(None);
    }
    let trees = before.and_then(Texts::tree).zip(texts.tree());
    let changed = trees.map(|(before, after)| diff::diff(&before, &after).things).unwrap_or_default();
    history.stage(texts, by, changed.into_iter().collect(), trial).map(Some)
}

/// The verdict for a revision that was rolled back.
pub(super) fn left_for(number: u64, by: &By) -> String {
    let why = if by.message.is_empty() { String::new() } else { format!(": {}", by.message) };
    format!("left for revision {number} by {}{why}", by.author)
}
