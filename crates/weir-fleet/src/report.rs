//! What a node says about itself, under its name and a lease: `weir fleet status` prints it, and the coordinator decides by it.

use crate::digest::Digest;
use crate::pointer::Labels;
use serde::{Deserialize, Serialize};

/// Largest report, in bytes.
pub const REPORT_BYTES: usize = 16 << 10;

/// Most bytes of a reason.
pub const REASON_BYTES: usize = 4 << 10;

/// A node, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name in the fleet.
    pub node: String,
    /// Its labels.
    #[serde(default)]
    pub labels: Labels,
    /// Where it stands.
    #[serde(default)]
    pub zone: String,
    /// The version of the program.
    #[serde(default)]
    pub version: String,
    /// A number that changes when the process starts anew.
    #[serde(default)]
    pub boot: u64,
    /// What its process began with, from its disk.
    #[serde(default)]
    pub began: Option<Digest>,
    /// The revision of etcd at which its process began to follow. One that began with a bundle after that bundle's step was opened has started
    /// anew with it.
    #[serde(default)]
    pub began_at: u64,
    /// What it runs.
    #[serde(default)]
    pub running: Option<Digest>,
    /// Since when: RFC 3339, by its own clock. For people only.
    #[serde(default)]
    pub since: String,
    /// The generation of the pointer that it saw last.
    #[serde(default)]
    pub generation: u64,
    /// The revision of the pointer by which it tries a bundle out before all others do; 0 where it does not.
    #[serde(default)]
    pub tries: u64,
    /// What it was to run and would not.
    #[serde(default)]
    pub refused: Option<Reason>,
    /// What it runs and does badly with.
    #[serde(default)]
    pub unwell: Option<Reason>,
    /// What keeps it from following, where something does.
    #[serde(default)]
    pub trouble: String,
    /// Whether what it runs is on its disk too, so that a restart finds it.
    #[serde(default)]
    pub cached: bool,
}

/// A bundle, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The bundle.
    pub bundle: Digest,
    /// In words.
    pub why: String,
}

impl Reason {
    /// Of a bundle; words beyond [`REASON_BYTES`] are left out.
    pub fn new(bundle: Digest, why: &str) -> Self {
        Self { bundle, why: shortened(why, REASON_BYTES) }
    }
}

/// The beginning of a text, with `…` where something is missing.
pub fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

impl NodeReport {
    /// Reads one; `None` where it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > REPORT_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }

    /// As it is written.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default() // strings, numbers and maps always can be
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
