//! What `weir fleet` asks an etcd with: questions that block until they are answered.

use super::etcd::Etcd;
use crate::config::schema::EtcdSource;
use crate::fetch::Surroundings;
use std::sync::Arc;
use weir_fleet::follower::Found;
use weir_fleet::{Bundle, Digest, NodeReport, Pointer, bundle};

/// Questions to the etcd of a fleet, from a thread that may block.
pub struct Console {
    runtime: tokio::runtime::Runtime,
    etcd: Etcd,
}

/// A fleet at one moment.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// What is to run; none where nothing was published.
    pub pointer: Option<Pointer>,
    /// The revision that the pointer was written at; 0 for none.
    pub revision: u64,
    /// The nodes that live, by name.
    pub nodes: Vec<NodeReport>,
}

impl Console {
    /// As a config has it.
    ///
    /// # Errors
    /// A file cannot be used, or the system refuses a runtime.
    pub fn new(written: &EtcdSource) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let etcd = {
            let _in_runtime = runtime.enter();
            Etcd::new(written, Arc::new(Surroundings::of_system()))?
        };
        Ok(Self { runtime, etcd })
    }

    /// Where it asks, in words.
    pub fn place(&self) -> String {
        self.etcd.place()
    }

    /// What the fleet runs.
    ///
    /// # Errors
    /// etcd does not answer, or what it holds is no pointer of ours.
    pub fn fleet(&self) -> Result<Fleet, String> {
        let (seen, looked) = self.block(async {
            let seen = self.etcd.read().await?;
            Ok::<_, String>((seen, self.etcd.look().await?))
        })?;
        let pointer = match seen.pointer {
            Found::Nothing => None,
            Found::Pointer(pointer) => Some(*pointer),
            Found::Unreadable(why) => {
                return Err(format!("what stands there is no pointer of a fleet: {why}"));
            }
        };
        let mut nodes = looked.nodes;
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(Fleet { pointer, revision: seen.modified, nodes })
    }

    /// A bundle of the fleet.
    ///
    /// # Errors
    /// It is not there, or is not what its name says.
    pub fn bundle(&self, digest: Digest) -> Result<Bundle, String> {
        self.block(self.etcd.bundle(digest))
    }

    /// Writes a pointer made from the one at `revision`, with its bundle where it is new. False: somebody else was faster.
    ///
    /// # Errors
    /// It is too large, or etcd does not answer. It may have been written nevertheless.
    pub fn write(
        &self,
        pointer: &Pointer,
        revision: u64,
        new: Option<&Bundle>,
        unused: &[Digest],
    ) -> Result<bool, String> {
        let packed = new.map(Bundle::pack).transpose().map_err(|e| e.to_string())?;
        if let Some(packed) = &packed
            && packed.len() > bundle::PUBLISHED_BYTES
        {
            return Err(bundle::Wrong::TooLarge(packed.len(), bundle::PUBLISHED_BYTES).to_string());
        }
        let question = self.etcd.keys.publish(pointer, revision, packed.as_deref(), unused);
        self.block(self.etcd.transact(&question))
    }

    fn block<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::task::LocalSet::new().block_on(&self.runtime, work)
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").finish_non_exhaustive()
    }
}
