//! The etcd client of `weir fleet`: its calls block until they are answered.

use std::sync::Arc;
use std::time::Duration;
use weir_config::schema::EtcdSource;
use weir_fleet::follower::{Found, Seen};
use weir_fleet::{Bundle, Digest, NodeReport, Pointer, bundle};
use weir_upstream::etcd::fleet::Etcd;
use weir_upstream::fetch::Environment;

/// A client of a fleet's etcd, for a thread that may block.
pub struct Console {
    runtime: tokio::runtime::Runtime,
    etcd: Etcd,
}

/// A fleet at one moment.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// What should run; `None` if nothing was published.
    pub pointer: Option<Pointer>,
    /// The revision at which the pointer was written; 0 for none.
    pub revision: u64,
    /// The live nodes, by name.
    pub nodes: Vec<NodeReport>,
    /// Nodes seen in the last day that went silent without leaving, by name.
    pub silent: Vec<Silent>,
    /// The node that advances rollouts; `Some(None)` if there is none, `None` if it may not be read.
    pub leader: Option<Option<String>>,
}

/// A missing node.
#[derive(Clone, Debug)]
pub struct Silent {
    /// Its last report.
    pub report: NodeReport,
    /// How long it has been silent, to the minute; `None` if unknown.
    pub silence: Option<Duration>,
}

impl Console {
    /// A client from the config.
    ///
    /// # Errors
    /// A file is unusable, or the system refuses a runtime.
    pub fn new(written: &EtcdSource) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let etcd = {
            let _in_runtime = runtime.enter();
            Etcd::new(written, Arc::new(Environment::of_system()))?
        };
        Ok(Self { runtime, etcd })
    }

    /// Its location as text.
    pub fn place(&self) -> String {
        self.etcd.place()
    }

    /// What the fleet runs.
    ///
    /// # Errors
    /// etcd does not answer, or holds something else than our pointer.
    pub fn fleet(&self) -> Result<Fleet, String> {
        let (seen, (mut nodes, mut silent, leader)) = self.block(async {
            let seen = self.etcd.read().await?;
            let (nodes, silent) = self.etcd.look_at_all().await?;
            let leases: Vec<_> = silent.iter().map(|(_, lease)| *lease).collect();
            let silences = self.etcd.silences(&leases).await;
            let silent =
                silent.into_iter().zip(silences).map(|((report, _), silence)| Silent { report, silence });
            // A user who may not see the coordinator still sees the rest.
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
    /// It is missing, or its content does not match its digest.
    pub fn bundle(&self, digest: Digest) -> Result<Bundle, String> {
        self.block(self.etcd.bundle(digest))
    }

    /// Writes a pointer based on the one at `revision`, with its bundle if that is new. False if somebody else was
    /// faster.
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
                // If an answer was lost and the request repeated at another server, our own pointer may already be
                // there.
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
