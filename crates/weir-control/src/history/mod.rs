//! The history of a config: every revision that ran, as written, in the gateway's own folder (`admin.state`).
//!
//! ```text
//!   state/pending              a revision about to run, written first: a crash leaves no change or a whole one
//!   state/revisions/00000042   a revision: a line of JSON that describes it, then its files
//!   state/verdicts/00000042    the verdict on it, if there is one
//!   state/refused              which hand-written files may not run again, and which revision replaces them
//!   state/taken-back           the same for a whole config if the disk is full: a link whose target is the record
//!   state/baseline             the figures that the change on trial is compared with
//!   state/switches             the switches of `maintenance` that are on
//! ```
//!
//! *Layout:* `durable` writes files that survive a crash, `store` keeps revisions, `diff` compares two trees.
//! `access` decides whether a change restricts access (`access.txt` lists what cannot; `shadow` decides whether a new
//! route takes another's requests). `mask` hides secrets in a text. Texts are kept as written: values of variables
//! never get here.

pub mod access;
pub mod diff;
mod durable;
pub(crate) mod mask;
mod shadow;
mod status;
mod store;

pub use access::Restriction;
#[cfg(test)]
pub(crate) use durable::Step;
pub use status::{Drift, HistoryStatus, RevisionStatus};
pub(crate) use store::{History, Pin, TakenBack, mark_of, write_managed};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What made a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A change over the admin API.
    Api,
    /// The guard went back automatically.
    Guard,
    /// A requested reload: SIGHUP, `weir reload`.
    Reload,
    /// A requested rollback.
    Rollback,
    /// The source of a fleet has a new bundle.
    Source,
    /// The process began with it.
    Start,
    /// A file changed.
    Watch,
    /// From a later version.
    #[serde(other)]
    Other,
}

/// Who changes the config, and why.
#[derive(Clone, Debug)]
pub struct By {
    /// Who: a token's name, a user id, or a part of the process.
    pub author: String,
    /// What made the change.
    pub origin: Origin,
    /// In the author's own words; may be empty.
    pub message: String,
}

/// One revision of the config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Counted from 1. A number is used once.
    pub number: u64,
    /// The digest of the config as written.
    pub hash: String,
    /// The digest of its hand-written part.
    pub hand: String,
    /// The previous revision.
    pub parent: Option<u64>,
    /// When it first ran: RFC 3339.
    pub time: String,
    /// Who made it.
    pub author: String,
    /// What made it.
    pub source: Origin,
    /// In the author's own words.
    pub message: String,
    /// The verdict on it.
    #[serde(default)]
    pub verdict: String,
    /// The things it changed, such as `routes.orders`: the first hundred.
    #[serde(default)]
    pub changed: Vec<String>,
    /// The conditions under which it stays, if it was made on trial. Over once it has another verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<OnTrial>,
    /// Its files: where each begins and ends in the stored text.
    pub(crate) files: Vec<Kept>,
}

/// The conditions of a trial, in wall-clock time because it outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnTrial {
    /// When it began: milliseconds since 1970.
    pub began: u64,
    /// How long it is watched, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<u64>,
    /// Within how many milliseconds it must be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<u64>,
    /// Whether it continues after later changes. False in revisions of 0.1, whose trial ended with the next change
    /// and left no verdict.
    #[serde(default)]
    pub goes_on: bool,
}

/// A file of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) path: String,
    pub(crate) bytes: usize,
    #[serde(default)]
    pub(crate) managed: bool,
}

impl Revision {
    /// Its trial, unless that is over.
    pub(crate) fn open_trial(&self) -> Option<OnTrial> {
        self.trial.filter(|_| self.verdict == ACCEPTED)
    }
}

/// The verdict of a revision without any other.
pub(crate) const ACCEPTED: &str = "accepted";

/// Most names of changed things in a revision.
pub(crate) const MOST_CHANGED: usize = 100;

impl By {
    /// A part of this process.
    pub fn process(origin: Origin) -> Self {
        Self { author: "weir".to_owned(), origin, message: String::new() }
    }
}

impl Origin {
    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Guard => "guard",
            Self::Other => "other",
            Self::Reload => "reload",
            Self::Rollback => "rollback",
            Self::Source => "source",
            Self::Start => "start",
            Self::Watch => "watch",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
