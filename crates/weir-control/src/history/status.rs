//! What the history tells of itself: to the admin API, and to the console.

use super::diff::Difference;
use super::{Origin, Revision};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// A revision, without the paths of its files, which readers need not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RevisionStatus {
    /// Counted from 1.
    pub number: u64,
    /// The digest of the config as written.
    pub hash: String,
    /// The revision that ran before.
    pub parent: Option<u64>,
    /// Since when it ran first: RFC 3339.
    pub time: String,
    /// Who made it.
    pub author: String,
    /// What made it.
    pub source: Origin,
    /// In the author's own words.
    pub message: String,
    /// What became of it: `accepted` until something else is known.
    pub verdict: String,
    /// The things that it changed, such as `routes.orders`: the first hundred.
    pub changed: Vec<String>,
}

impl RevisionStatus {
    pub(crate) fn of(revision: Revision, on_trial: bool) -> Self {
        let Revision { number, hash, parent, time, author, source, message, verdict, changed, .. } = revision;
        let verdict = if on_trial { "on trial".to_owned() } else { verdict };
        Self { number, hash, parent, time, author, source, message, verdict, changed }
    }
}

/// All revisions that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HistoryStatus {
    /// The one that runs.
    pub running: Option<u64>,
    /// The one that runs in the place of the files, if one does.
    pub pinned: Option<u64>,
    /// Why it does.
    pub why: Option<String>,
    /// The newest first.
    pub revisions: Vec<RevisionStatus>,
}

/// What differs between the config that runs, the files, and the last revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Drift {
    /// The digest of the config that runs.
    pub running: String,
    /// The digest of the files; none where they cannot be read.
    pub disk: Option<String>,
    /// The last revision.
    pub latest: Option<u64>,
    /// The revision that runs in the place of the files, if one does.
    pub pinned: Option<u64>,
    /// Why it does.
    pub why: Option<String>,
    /// Why what runs is not on the disk.
    pub unsaved: Option<String>,
    /// Whether the files say something else than what runs.
    pub drift: bool,
    /// The first thousand settings that differ.
    pub differences: Vec<Difference>,
    /// How many more there are; none where the files cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
    /// The named things concerned, such as `routes.orders`; none where the files cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub things: Option<BTreeSet<String>>,
    /// The same for people, or why the files cannot be read.
    pub text: String,
}
