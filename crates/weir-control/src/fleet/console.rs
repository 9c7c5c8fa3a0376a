//! What `weir fleet` asks an etcd with: questions that block until they are answered.

use std::sync::Arc;
use std::time::Duration;
use weir_config::schema::EtcdSource;
use weir_fleet::follower::{Found, Seen};
use weir_fleet::{Bundle, Digest, NodeReport, Pointer, bundle};
use weir_upstream::etcd::fleet::Etcd;
use weir_upstream::fetch::Environment;

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
    /// Those that were there in the last day and went silent without leaving, by name.
    pub silent: Vec<Silent>,
    /// Who opens the steps of rollouts, `None` inside where nobody does; `None` where that may not be read.
    pub leader: Option<Option<String>>,
}

/// A node that is missing.
#[derive(Clone, Debug)]
pub struct Silent {
    /// What it said last.
    pub report: NodeReport,
    /// For how long it has said nothing, to a minute; `None` where that is not known.
    pub silence: Option<Duration>,
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
            Etcd::new(written, Arc::new(Environment::of_system()))?
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
        let (seen, (mut nodes, mut silent, leader)) = self.block(async {
            let seen = self.etcd.read().await?;
            let (nodes, silent) = self.etcd.look_at_all().await?;
            let leases: Vec<_> = silent.iter().map(|(_, lease)| *lease).collect();
            let silences = self.etcd.silences(&leases).await;
            let silent =
                silent.into_iter().zip(silences).map(|((report, _), silence)| Silent { report, silence });
            // Whoever has no right to see who coordinates sees all the rest.
            Ok::<_, String>((seen, (nodes, silent.collect::<Vec<_>>(), self.etcd.leader().await.ok())))
        })?;
        let pointer = match seen.pointer {
            Found::Nothing => None,
            Found::Pointer(pointer) => Some(*pointer),
            Found::Unreadable(why) => {
                return Err(format!(
                    "the key {key} holds no pointer of a fleet: {why}; nodes serve what they ran before. Take it away (`etcdctl del {key}`) and publish again",
                    key = self.etcd.keys.pointer()
                ));
            }
        };
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        silent.sort_by(|a, b| a.report.node.cmp(&b.report.node));
        Ok(Fleet { pointer, revision: seen.modified, nodes, silent, leader })
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
        let is_ours = |seen: &Seen| matches!(&seen.pointer, Found::Pointer(found) if **found == *pointer);
        self.block(async {
            let written = self.etcd.transact(&question).await;
            match written {
                Ok(true) => Ok(true),
                // An answer that was lost, and the question asked again at another server: then it is ours that stands there.
                unsure => match self.etcd.read().await {
                    Ok(seen) if is_ours(&seen) => Ok(true),
                    _ => unsure,
                },
            }
        })
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
