//! Consumers that are kept outside of the config and change without a reload: `consumer_sources`.
//!
//! ```text
//! Directory            of a snapshot: all its sources
//!  └─ Source           outlives snapshots; a task on the control thread follows its file or URL
//!      └─ Roster       the consumers it has now, and an index of credentials for each kind of filter
//! ```
//!
//! Filters that identify callers look among the config's consumers first, then ask the directory. A roster is never
//! changed: a source replaces it whole, in one store, and the next request of every connection meets the new one. An
//! exchange holds its own consumer ([`Cx::set_listed`](crate::filter::Cx::set_listed)), never a roster.

mod cache;
mod follow;
mod roster;
mod rules;
mod source;

pub use roster::{CredentialIndex, CredentialReader, Intake, Listed, Refused, Roster, credential, labels};
pub use rules::{Misfit, Rules};
pub use source::{Asking, Origin, Source, SourceStatus, State};

use super::Consumer;
use source::Adopted;
use std::sync::{Arc, Mutex, PoisonError};

/// The sources of a snapshot.
pub struct Directory {
    sources: Box<[Arc<Source>]>,
    /// Until the snapshot runs.
    checked: Mutex<Option<Checked>>,
}

/// What the sources must fit, how each is asked, and which set each had when that was checked.
struct Checked {
    rules: Rules,
    sources: Vec<(Option<Arc<Asking>>, Option<u64>)>,
}

/// What a directory knows of a credential.
#[derive(Debug)]
pub enum Lookup<T> {
    /// It belongs to this consumer.
    Found(Arc<Consumer>, T),
    /// It belongs to nobody.
    Unknown,
    /// A source has no consumers yet, or too old ones, and no other has this credential.
    Unavailable,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Directory").field(&self.sources.len()).finish()
    }
}

impl Directory {
    /// The sources of a config with these rules, and how those on web servers are asked. What does not fit goes to
    /// `misfit`, with the source.
    pub fn new(
        sources: Vec<(Arc<Source>, Option<Arc<Asking>>)>,
        rules: Rules,
        mut misfit: impl FnMut(&Source, Misfit),
    ) -> Self {
        let (sources, asking): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
        let rosters: Vec<_> = sources.iter().map(|source| source.current()).collect();
        for (n, (source, roster)) in sources.iter().zip(&rosters).enumerate() {
            let Some(roster) = roster else { continue };
            // Those behind it compare themselves with it.
            let others = sources.iter().zip(&rosters).take(n);
            let others =
                others.filter_map(|(other, roster)| Some((other.name(), Arc::clone(roster.as_ref()?))));
            rules.misfits(roster, others).into_iter().for_each(|wrong| misfit(source, wrong));
        }
        let checked = rosters.iter().map(|roster| roster.as_ref().map(|roster| roster.generation()));
        let checked = Checked { rules, sources: asking.into_iter().zip(checked).collect() };
        Self { sources: sources.into(), checked: Mutex::new(Some(checked)) }
    }

    /// Finds the owner of a credential. `kind` is the filter's name; `find` looks into its index.
    pub fn find<I: CredentialIndex, T>(
        &self,
        kind: &str,
        find: impl Fn(&I) -> Option<(u32, T)>,
    ) -> Lookup<T> {
        self.search(|roster| {
            let (consumer, found) = roster.index::<I>(kind).and_then(&find)?;
            Some((roster.consumers().get(consumer as usize)?, found))
        })
    }

    /// Finds a consumer by its name.
    pub fn named(&self, name: &str) -> Lookup<()> {
        self.search(|roster| Some((roster.named(name)?, ())))
    }

    /// What the first source finds that finds something.
    fn search<T>(&self, find: impl Fn(&Roster) -> Option<(&Arc<Consumer>, T)>) -> Lookup<T> {
        let mut all = true;
        for source in &self.sources {
            let roster = source.roster();
            let Some(roster) = &*roster else {
                all = false;
                continue;
            };
            if let Some((consumer, found)) = find(roster) {
                return Lookup::Found(Arc::clone(consumer), found);
            }
        }
        if all { Lookup::Unknown } else { Lookup::Unavailable }
    }

    /// Shows all credentials of a kind.
    pub fn each<I: CredentialIndex>(&self, kind: &str, mut see: impl FnMut(&I)) {
        for source in &self.sources {
            if let Some(index) = source.roster().as_ref().and_then(|roster| roster.index(kind)) {
                see(index);
            }
        }
    }

    /// How many consumers all sources have now.
    pub fn consumers(&self) -> usize {
        self.sources.iter().map(|source| source.status().consumers).sum()
    }

    /// The sources.
    pub fn sources(&self) -> &[Arc<Source>] {
        &self.sources
    }

    /// The snapshot runs now: from here on its sources must fit it.
    pub fn adopt(&self) {
        let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Checked { rules, sources }) = checked else { return };
        let rules = Arc::new(rules.beside(self.sources.iter().map(Arc::downgrade).collect()));
        for (source, (asking, generation)) in self.sources.iter().zip(sources) {
            source.adopt(Adopted { rules: Arc::clone(&rules), asking }, generation);
        }
    }
}

#[cfg(test)]
mod tests;
