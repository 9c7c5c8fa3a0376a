//! A file of users that is followed: its new versions apply without a reload.

use super::htpasswd::{self, Wrong};
use super::users::note_cost;
use crate::prelude::*;
use crate::shared::named::Named;
use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_filter::filter::followed_file::{FollowedFile, Stamp, follow_file, read_bounded, stamp};
use weir_filter::password::PasswordHash;
use weir_telemetry::log;

/// Largest file, in bytes: [`htpasswd::MAX_USERS`] with argon2id hashes and names of usual length.
const FILE_BYTES: usize = 16 * 1024 * 1024;

/// Most mistakes of a file that are reported.
const MAX_MISTAKES: usize = 20;

/// How long a replaced set is kept for a core that still looks into it, so that no core has to free it.
const LINGER: std::time::Duration = std::time::Duration::from_millis(100);

/// The users of a filter's file, with the consumers of its config.
pub(super) struct FileUsers {
    file: Arc<UserFile>,
    /// The positions of the config's consumers.
    own: HashMap<Box<[u8]>, usize, foldhash::fast::RandomState>,
}

/// The users of a file. All filters that name the file share it.
struct UserFile {
    path: PathBuf,
    current: ArcSwap<UserSet>,
    begun: Mutex<Option<Stamp>>,
    /// Whether a snapshot with this file runs, so that the file is followed.
    runs: AtomicBool,
}

#[derive(Default)]
struct UserSet {
    by_name: HashMap<Box<[u8]>, FileUser, foldhash::fast::RandomState>,
    costs: Vec<PasswordHash>,
}

struct FileUser {
    consumer: Arc<Consumer>,
    hash: Arc<PasswordHash>,
    /// Distinguishes its hash from others.
    seal: u64,
}

/// The consumers that users of files are, by name: a name stands for one consumer, whatever the file.
static CONSUMERS: Mutex<Option<HashMap<Box<str>, Weak<Consumer>>>> = Mutex::new(None);

// === impl FileUsers ===

impl FileUsers {
    /// The users of this file. Reports mistakes in it, unless it runs already: then a version with a mistake is not
    /// taken, and the log says so.
    pub(super) fn open(path: &FilePath, build: &mut Build<'_>) -> Self {
        let make = || UserFile {
            path: path.0.clone(),
            current: ArcSwap::default(),
            begun: Mutex::default(),
            runs: AtomicBool::new(false),
        };
        let file = match build.watch {
            true => build.keep_tended(&format!("file\0{}", path.0.display()), make),
            false => Arc::new(make()),
        };
        if !file.runs.load(Ordering::Relaxed)
            && let Err(wrong) = file.begin()
        {
            for (message, hint) in wrong {
                build.refuse("file", message, hint.map(Into::into));
            }
        }
        let names = build.consumers.iter().map(|consumer| consumer.name.as_bytes().into());
        Self { file, own: names.enumerate().map(|(index, name)| (name, index)).collect() }
    }

    /// The user of this name: the consumer, the hash, and what distinguishes the hash from others.
    pub(super) fn find(&self, name: &[u8]) -> Option<(Named, Arc<PasswordHash>, u64)> {
        let users = self.file.current.load();
        let user = users.by_name.get(name)?;
        let named = match self.own.get(name) {
            Some(index) => Named::Config(*index),
            None => Named::Listed(Arc::clone(&user.consumer)),
        };
        Some((named, Arc::clone(&user.hash), user.seal))
    }

    /// One hash of each cost that a user has.
    pub(super) fn costs(&self) -> Vec<PasswordHash> {
        self.file.current.load().costs.clone()
    }
}

// === impl UserFile ===

impl UserFile {
    /// Reads the file for the first time, or finds every mistake, each with a hint.
    fn begin(&self) -> Result<(), Vec<(String, Option<&'static str>)>> {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = stamp(&self.path);
        let bytes = read_bounded(&self.path, FILE_BYTES).map_err(|why| vec![(why, None)])?;
        let users = htpasswd::read(&bytes).map_err(|wrong| {
            let more = wrong.len().saturating_sub(MAX_MISTAKES);
            let shown = wrong.into_iter().take(MAX_MISTAKES);
            let mut told: Vec<_> = shown.map(|wrong| (self.tell(&wrong), Some(wrong.hint))).collect();
            if more > 0 {
                told.push((format!("{}: {more} more lines are refused", self.path.display()), None));
            }
            told
        })?;
        self.set(&users);
        Ok(())
    }

    fn tell(&self, wrong: &Wrong) -> String {
        let mut told = self.path.display().to_string();
        if wrong.line > 0 {
            let _ = write!(told, ":{}", wrong.line); // writing to a text cannot fail
        }
        let _ = write!(told, ": {}", wrong.message);
        told
    }

    fn set(&self, users: &[htpasswd::Line<'_>]) {
        let mut set = UserSet::default();
        for user in users {
            note_cost(&mut set.costs, &user.hash);
            let seal = Sha256::digest(user.text.as_bytes());
            let seal = seal.first_chunk().map_or(0, |digits| u64::from_le_bytes(*digits));
            let (consumer, hash) = (consumer(user.name), Arc::new(user.hash.clone()));
            set.by_name.insert(user.name.as_bytes().into(), FileUser { consumer, hash, seal });
        }
        let old = self.current.swap(Arc::new(set));
        if Arc::strong_count(&old) > 1 {
            std::thread::sleep(LINGER);
        }
        drop(old);
        forget_consumers();
    }
}

impl FollowedFile for UserFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn begun_with(&self) -> Option<Stamp> {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<(), String> {
        let bytes = read_bounded(&self.path, FILE_BYTES)?;
        let users = htpasswd::read(&bytes).map_err(|wrong| {
            let first = wrong.first().map_or_else(String::new, |first| self.tell(first));
            match wrong.len() - 1 {
                0 => first,
                more => format!("{first} (and {more} more)"),
            }
        })?;
        self.set(&users);
        log::info("users read", &[("file", &self.path.display()), ("users", &users.len())]);
        Ok(())
    }

    fn failed(&self, why: &str) {
        static SEEN: log::PerSubject = log::per_subject(1, std::time::Duration::from_secs(10));
        let meanwhile = "the users from before are used";
        let fields: log::Fields<'_> =
            &[("file", &self.path.display()), ("why", &why), ("meanwhile", &meanwhile)];
        // Each mistake once: another one is news.
        SEEN.warn(format!("{} {why}", self.path.display()), "users not read", fields);
    }
}

impl Tended for UserFile {
    fn tend(self: Arc<Self>, _: Fetcher) -> Tending {
        self.runs.store(true, Ordering::Relaxed);
        Box::pin(async move { follow_file(&self).await })
    }
}

/// The consumer that a user of this name is.
fn consumer(name: &str) -> Arc<Consumer> {
    let mut known = CONSUMERS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(known) = known.get(name).and_then(Weak::upgrade) {
        return known;
    }
    let new = Arc::new(Consumer::outside(name));
    known.insert(name.into(), Arc::downgrade(&new));
    new
}

/// Forgets the consumers that no file has any more.
fn forget_consumers() {
    let mut known = CONSUMERS.lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_default().retain(|_, consumer| consumer.strong_count() > 0);
}
