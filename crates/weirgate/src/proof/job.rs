//! What the processes of a proof tell one another.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weir_import::proof::patterns::{Front, Origin};
use weir_import::proof::{Ask, Observation};

/// What to play.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Job {
    /// The system whose program is the old one, and where that program is; none if it runs elsewhere and was asked
    /// already.
    pub(super) system: String,
    pub(super) path: Option<PathBuf>,
    /// Files that its config names, by path below the workspace.
    pub(super) files: Vec<(String, String)>,
    /// Its config, without and with its limits of time.
    pub(super) old: String,
    pub(super) old_limited: Option<String>,
    /// Ours, as JSON, without and with its limits.
    pub(super) ours: String,
    pub(super) ours_limited: String,
    /// The folder that ours is in, for the files that it names.
    pub(super) our_folder: PathBuf,
    /// Addresses of upstreams.
    pub(super) origins: Vec<Origin>,
    /// Addresses that the old program listens on.
    pub(super) fronts: Vec<Front>,
    /// What to ask.
    pub(super) asks: Vec<Ask>,
    pub(super) limit_asks: Vec<Ask>,
    /// Whether the old program only checks its config.
    pub(super) only_checks: bool,
    /// Instead of all this: the config at this path, which the program only reads.
    pub(super) reads: Option<String>,
}

/// What was found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// Why there is no world to play in.
    pub(super) no_world: Option<String>,
    /// What the old program says when it refuses its config.
    pub(super) refused: Option<String>,
    /// Why it ended early.
    pub(super) failure: Option<String>,
    /// The old program with its version.
    pub(super) version: String,
    /// What it did, and what Weir did, for each witness.
    pub(super) old: Vec<Observation>,
    pub(super) new: Vec<Observation>,
    pub(super) old_limited: Vec<Observation>,
    pub(super) new_limited: Vec<Observation>,
    /// What it printed of a config that it only read.
    pub(super) printed: String,
}
