//! Several nodes with one storage: which of them are alive, and which proofs they publish, so that an authority can
//! reach any node.
//!
//! We compare only file times set by the storage itself, one node's file against another's: the clocks of two
//! machines need not agree.

use crate::Clock;
use crate::message::is_token;
use crate::publish::{Proof, Stage};
use crate::storage::{self, Storage, make_folder};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How often we look for proofs of other nodes.
pub(crate) const SHARED_EVERY: Duration = Duration::from_secs(1);

/// Number of looks after which a node refreshes its file.
const TOUCH_EVERY: u32 = 15;

/// A node has ended if its file is this much older than ours.
const GONE: Duration = Duration::from_secs(60);

/// We remove a node's file if it is this much older than ours.
const LONG_GONE: Duration = Duration::from_secs(24 * 60 * 60);

/// A proof published longer ago was left behind by a killed node.
const PROOF_SECONDS: i64 = 60 * 60;

/// Most proofs of other nodes that we show at the same time.
const PROOFS: usize = 1000;

/// Marks this node as alive, and shows the proofs of others, until dropped.
pub(crate) async fn share(storage: Storage, node: String, stage: Stage, clock: Clock) {
    let mut others = Others { storage, node, stage, shown: HashMap::new() };
    let mut looks = 0u32;
    loop {
        if looks.is_multiple_of(TOUCH_EVERY) {
            others.touch();
        }
        looks = looks.wrapping_add(1);
        others.look(clock());
        tokio::time::sleep(SHARED_EVERY).await;
    }
}

/// Whether another live node uses the storage.
pub(crate) fn others_live(storage: &Storage, node: &str) -> bool {
    let folder = storage.nodes();
    let Some(ours) = changed(&folder.join(node)) else { return false };
    let Ok(nodes) = fs::read_dir(folder) else { return false };
    let others = nodes.flatten().filter(|entry| entry.file_name() != *node);
    others.filter_map(|entry| changed(&entry.path())).any(|theirs| age(ours, theirs) < GONE)
}

fn changed(path: &std::path::Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

fn age(ours: SystemTime, theirs: SystemTime) -> Duration {
    ours.duration_since(theirs).unwrap_or_default()
}

struct Others {
    storage: Storage,
    node: String,
    stage: Stage,
    /// The proofs shown for others, by file.
    shown: HashMap<PathBuf, Proof>,
}

impl Others {
    fn touch(&self) {
        let folder = self.storage.nodes();
        if make_folder(&folder).is_err() || fs::write(folder.join(&self.node), "lives\n").is_err() {
            return; // the code that stores certificates reports this
        }
        let Some(ours) = changed(&folder.join(&self.node)) else { return };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if changed(&entry.path()).is_some_and(|theirs| age(ours, theirs) > LONG_GONE) {
                storage::remove(&entry.path());
            }
        }
    }

    /// Shows new proofs and hides removed ones.
    fn look(&mut self, now: i64) {
        let mut there: HashMap<PathBuf, Proof> = HashMap::new();
        for entry in fs::read_dir(self.storage.challenges()).into_iter().flatten().flatten().take(PROOFS) {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue; // still being written
            }
            let Ok(Some(proof)) = storage::read_json::<Proof>(&path) else { continue };
            if now.abs_diff(proof.made) > PROOF_SECONDS.unsigned_abs() {
                storage::remove(&path);
            } else if is_token(&proof.token) {
                there.insert(path, proof);
            }
        }
        let gone: Vec<Proof> = self
            .shown
            .iter()
            .filter(|(path, proof)| there.get(*path) != Some(proof))
            .map(|(_, p)| p.clone())
            .collect();
        for proof in gone {
            self.stage.hide(&proof);
        }
        for (path, proof) in &there {
            if self.shown.get(path) != Some(proof) {
                drop(self.stage.show(proof)); // an unreadable proof is another node's bug, reported by its order
            }
        }
        self.shown = there;
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for proof in self.shown.values() {
            self.stage.hide(proof);
        }
        storage::remove(&self.storage.nodes().join(&self.node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(kind: &str, made: i64) -> Proof {
        let [name, token, authorization] = ["a.test", "tok", "tok.thumb"].map(str::to_owned);
        Proof { kind: kind.to_owned(), name, token, authorization, made }
    }

    #[test]
    fn what_one_node_shows_another_answers() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path(), "https://ca.test/dir");
        storage.prepare().unwrap();
        let stage = Stage::default();
        let mut others = Others {
            storage: storage.clone(),
            node: "b".to_owned(),
            stage: stage.clone(),
            shown: HashMap::new(),
        };
        let file = storage.challenge(&"a.test".parse().unwrap());
        let path = b"/.well-known/acme-challenge/tok";
        for kind in ["http-01", "tls-alpn-01"] {
            storage::write_json(&file, &proof(kind, 1000)).unwrap();
            others.look(1010);
            assert_eq!(stage.tokens.answer(path).is_some(), kind == "http-01");
            assert_eq!(format!("{:?}", stage.proofs), if kind == "http-01" { "[]" } else { "[\"a.test\"]" });
        }
        storage::remove(&file);
        others.look(1020);
        assert_eq!(format!("{:?}", stage.proofs), "[]");
        storage::write_json(&file, &proof("http-01", 1000)).unwrap();
        others.look(1000 + PROOF_SECONDS + 1);
        assert!(stage.tokens.answer(path).is_none() && !file.exists(), "left behind");
    }

    #[test]
    fn nodes_see_each_other_while_they_live() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path(), "https://ca.test/dir");
        let node = |node: &str| Others {
            storage: storage.clone(),
            node: node.to_owned(),
            stage: Stage::default(),
            shown: HashMap::new(),
        };
        let (a, b) = (node("a"), node("b"));
        a.touch();
        assert!(!others_live(&storage, "a"));
        b.touch();
        assert!(others_live(&storage, "a") && others_live(&storage, "b"));
        drop(b);
        assert!(!others_live(&storage, "a"));
    }
}
