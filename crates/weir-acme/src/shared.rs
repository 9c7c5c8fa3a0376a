//! What the owner of the certificates shares with the thread that renews them (`keeper.rs`).

use crate::clock::Clock;
use crate::entry::{SharedEntry, Spec, Status};
use crate::publish::Stage;
use std::collections::HashMap;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Notify, mpsc};
use weir_wire::hex;

/// Called whenever the state of the certificates has changed.
pub type Watcher = Box<dyn Fn(&[Status]) + Send + Sync>;

/// The state that the thread and its owner share.
pub(crate) struct Shared {
    pub(crate) stage: Stage,
    /// Distinguishes this gateway from others with the same storage. Chosen when first needed: the first random bytes
    /// of a process take tens of milliseconds, and a config without ACME needs none.
    node: OnceLock<String>,
    pub(crate) clock: Clock,
    pub(crate) wake: Arc<Notify>,
    pub(crate) entries: Mutex<Entries>,
    pub(crate) running: Mutex<Option<Running>>,
    pub(crate) watcher: Mutex<Option<Watcher>>,
}

#[derive(Default)]
pub(crate) struct Entries {
    /// The entries in use.
    pub(crate) kept: HashMap<Spec, SharedEntry>,
    /// The entries that the config being compiled asked for.
    pub(crate) fresh: HashMap<Spec, SharedEntry>,
}

pub(crate) struct Running {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) ended: std_mpsc::Receiver<()>,
}

/// A command for the thread.
pub(crate) enum Command {
    /// Keep exactly these.
    Keep(Vec<SharedEntry>),
    Stop,
}

impl Shared {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            stage: Stage::default(),
            node: OnceLock::new(),
            clock,
            wake: Arc::default(),
            entries: Mutex::default(),
            running: Mutex::default(),
            watcher: Mutex::default(),
        }
    }

    /// This gateway's name among those with the same storage.
    pub(crate) fn node(&self) -> &str {
        self.node.get_or_init(|| {
            let mut node = [0; 8];
            let _ = aws_lc_rs::rand::fill(&mut node); // without randomness TLS does not work either
            hex::encode(&node)
        })
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn statuses(&self) -> Vec<Status> {
        let entries: Vec<SharedEntry> = self.entries().kept.values().cloned().collect();
        let mut all: Vec<Status> = entries.iter().map(|entry| entry.status()).collect();
        all.sort_unstable_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
        all
    }

    /// Notifies the watcher.
    pub(crate) fn tell(&self) {
        let statuses = self.statuses();
        if let Some(watcher) = &*self.watcher.lock().unwrap_or_else(PoisonError::into_inner) {
            watcher(&statuses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_name_and_chooses_it_when_asked() {
        let shared = Shared::new(Arc::new(|| 0));
        shared.statuses();
        assert_eq!(shared.node.get(), None);
        let name = shared.node().to_owned();
        assert_eq!((name.len(), shared.node()), (16, name.as_str()));
        assert_ne!(Shared::new(Arc::new(|| 0)).node(), name);
    }
}
