//! A node's report about itself, stored under its name and a lease. `weir fleet status` prints it, and the
//! coordinator decides by it.

use crate::digest::Digest;
use crate::pointer::Labels;
use serde::{Deserialize, Serialize};

/// Largest report, in bytes.
pub const REPORT_BYTES: usize = 16 << 10;

/// Most bytes of a reason.
pub const REASON_BYTES: usize = 4 << 10;

/// A node's report about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name in the fleet.
    pub node: String,
    /// Its labels.
    #[serde(default)]
    pub labels: Labels,
    /// Its zone.
    #[serde(default)]
    pub zone: String,
    /// The version of the program.
    #[serde(default)]
    pub version: String,
    /// A number that changes when the process restarts.
    #[serde(default)]
    pub boot: u64,
    /// The bundle that its process started with, from disk.
    #[serde(default)]
    pub began: Option<Digest>,
    /// The etcd revision at which its process started to follow. If it started with a bundle after that bundle's step
    /// was opened, it has restarted with it.
    #[serde(default)]
    pub began_at: u64,
    /// The bundle that it runs.
    #[serde(default)]
    pub running: Option<Digest>,
    /// When that started: RFC 3339, by its own clock. For people only.
    #[serde(default)]
    pub since: String,
    /// The generation of the last pointer it saw.
    #[serde(default)]
    pub generation: u64,
    /// The revision of the pointer whose bundle it tries before all other nodes; 0 if it tries none.
    #[serde(default)]
    pub tries: u64,
    /// The bundle that it should run but refused.
    #[serde(default)]
    pub refused: Option<Reason>,
    /// The bundle that it runs but is unhealthy with.
    #[serde(default)]
    pub unwell: Option<Reason>,
    /// What prevents it from following, if anything.
    #[serde(default)]
    pub trouble: String,
    /// Whether the running bundle is also on disk, so that a restart finds it.
    #[serde(default)]
    pub cached: bool,
}

/// A bundle, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The bundle.
    pub bundle: Digest,
    /// What is wrong.
    pub why: String,
}

impl Reason {
    /// A reason about a bundle; cuts texts beyond [`REASON_BYTES`].
    pub fn new(bundle: Digest, why: &str) -> Self {
        Self { bundle, why: shortened(why, REASON_BYTES) }
    }
}

/// The start of a text, with `…` if it was cut.
pub fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

impl NodeReport {
    /// Parses a report; `None` if it is invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > REPORT_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }

    /// The encoded form.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default() // strings, numbers and maps always serialize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_bounded() {
        let reason = Reason::new(Digest::of(&[]), &"ä".repeat(REASON_BYTES));
        assert!(reason.why.len() <= REASON_BYTES + 3 && reason.why.ends_with("ä…"));
        assert_eq!(shortened("aä", 2), "a…");
        let report = NodeReport { refused: Some(reason), ..NodeReport::default() };
        assert_eq!(NodeReport::read(&report.write()), Some(report));
        assert_eq!(NodeReport::read(b"[]"), None);
    }
}
