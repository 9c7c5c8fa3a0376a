//! The history as the admin API and the console show it.

use super::diff::Difference;
use super::{Origin, Revision};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// A revision without the paths of its files, which readers do not need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Revision")]
pub struct RevisionStatus {
    /// Counted from 1.
    pub number: u64,
    /// The digest of the config as written.
    pub hash: String,
    /// The revision that ran before.
    pub parent: Option<u64>,
    /// When it first ran, in RFC 3339 form.
    pub time: String,
    /// The author's name.
    pub author: String,
    /// The kind of change that made it.
    pub source: Origin,
    /// The author's message.
    pub message: String,
    /// The verdict: `accepted` until another replaces it.
    pub verdict: String,
    /// The first hundred entries that it changed, such as `routes.orders`.
    pub changed: Vec<String>,
}

impl RevisionStatus {
    pub(crate) fn of(revision: Revision, on_trial: bool) -> Self {
        let Revision { number, hash, parent, time, author, source, message, verdict, changed, .. } = revision;
        let verdict = if on_trial { "on trial".to_owned() } else { verdict };
        Self { number, hash, parent, time, author, source, message, verdict, changed }
    }
}

/// All revisions in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Revisions")]
pub struct HistoryStatus {
    /// The running revision.
    pub running: Option<u64>,
    /// The revision that runs instead of the files, if any.
    pub pinned: Option<u64>,
    /// Why it runs instead of the files.
    pub why: Option<String>,
    /// The revisions, newest first.
    pub revisions: Vec<RevisionStatus>,
}

/// The differences between the running config, the files, and the last revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Drift {
    /// The digest of the running config.
    pub running: String,
    /// The digest of the files; none if they cannot be read.
    pub disk: Option<String>,
    /// The last revision.
    pub latest: Option<u64>,
    /// The revision that runs instead of the files, if any.
    pub pinned: Option<u64>,
    /// Why it runs instead of the files.
    pub why: Option<String>,
    /// Why the running config is not on the disk.
    pub unsaved: Option<String>,
    /// Whether the files differ from the running config.
    pub drift: bool,
    /// The first thousand settings that differ.
    pub differences: Vec<Difference>,
    /// The number of further differences; none if the files cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
    /// The named entries that differ, such as `routes.orders`; none if the files cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub things: Option<BTreeSet<String>>,
    /// The same for people, or why the files cannot be read.
    pub text: String,
}
