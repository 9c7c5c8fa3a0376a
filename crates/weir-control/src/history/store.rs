//! The folder that holds revisions.

use super::durable::{self, Sound, Steps};
use super::{ACCEPTED, By, Kept, MOST_CHANGED, OnTrial, Revision};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_config::{Text, Texts};
use weir_telemetry::{log, timestamp};
use weir_wire::hex;

/// Most revisions kept.
const MOST: usize = 100;

/// For how many changes on trial the way back is kept.
const ON_TRIAL: usize = 8;

/// Most bytes of all revisions; the newest is kept whatever its size.
const MOST_BYTES: u64 = 64 << 20;

/// The longest description of a revision, in bytes.
const HEAD_BYTES: u64 = 1 << 20;

/// Largest revision that is read, in bytes.
const REVISION_BYTES: u64 = 512 << 20;

/// Largest baseline of a trial that is read, in bytes.
const BASELINE_BYTES: u64 = 16 << 20;

/// Longest text of switches that is read.
const SWITCHES_BYTES: u64 = 1 << 20;

/// The revisions of a config, oldest first.
pub(crate) struct History {
    folder: PathBuf,
    revisions: Vec<Revision>,
    pin: Option<Pin>,
    /// The disk differs from `pin`, because it could not be written.
    pin_owed: bool,
    steps: Box<dyn Steps + Send>,
}

/// Hand-written files that may not run, and their replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pin {
    /// The digest of the rejected hand-written files.
    pub(crate) refused: String,
    /// The revision whose hand-written files run instead.
    pub(crate) accepted: u64,
    /// Why, for people.
    pub(crate) why: String,
}

/// A config that was reverted while the disk was full, so that neither its files nor the history could record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TakenBack {
    /// The digest of the whole config that may not run again.
    pub(crate) refused: String,
    /// The revision that runs instead.
    pub(crate) accepted: u64,
    /// The [mark](mark_of) of the managed file that may not run again, whatever people write beside it. `None` if it
    /// equals the revision's.
    pub(crate) managed: Option<String>,
}

/// Identifies a text in a few letters: file systems have little room in a name.
pub(crate) fn mark_of(text: &str) -> String {
    let digest = Sha256::digest(text);
    hex::encode(digest.get(..8).unwrap_or_default())
}

// === impl History ===

impl History {
    /// Opens the folder, creating it if needed.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Self::open_with(folder, Box::new(Sound))
    }

    pub(crate) fn open_with(folder: &Path, steps: Box<dyn Steps + Send>) -> io::Result<Self> {
        for folder in [folder.to_owned(), folder.join("revisions"), folder.join("verdicts")] {
            if !folder.is_dir() {
                DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
                durable::sync_folder(&folder, &Sound)?;
            }
        }
        let mut history =
            Self { folder: folder.to_owned(), revisions: Vec::new(), pin: None, pin_owed: false, steps };
        history.revisions = history.read_all()?;
        history.pin = Pin::read(folder)?;
        Ok(history)
    }

    fn read_all(&self) -> io::Result<Vec<Revision>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.folder.join("revisions"))? {
            let entry = entry?;
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) else {
                continue;
            };
            match read_head(&entry.path()) {
                Ok((mut revision, _)) => {
                    revision.number = number;
                    revision.verdict = self.verdict(number);
                    found.push(revision);
                }
                Err(e) => log::warn(
                    "a revision cannot be read",
                    &[("file", &entry.path().display()), ("error", &e)],
                ),
            }
        }
        found.sort_unstable_by_key(|revision| revision.number);
        Ok(found)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All of them, oldest first.
    pub(crate) fn revisions(&self) -> &[Revision] {
        &self.revisions
    }

    pub(crate) fn latest(&self) -> Option<&Revision> {
        self.revisions.last()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Revision> {
        let at = self.revisions.binary_search_by_key(&number, |revision| revision.number).ok()?;
        self.revisions.get(at)
    }

    /// The files of a revision.
    pub(crate) fn texts(&self, number: u64) -> io::Result<Texts> {
        read_texts(&self.path(number))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join("revisions").join(format!("{number:08}"))
    }

    fn pending(&self) -> PathBuf {
        self.folder.join("pending")
    }

    // === adding one ===

    /// Writes a revision that is about to run. It counts once it is [accepted](Self::accept).
    pub(crate) fn stage(
        &self,
        texts: &Texts,
        by: &By,
        mut changed: Vec<String>,
        trial: Option<OnTrial>,
    ) -> io::Result<Revision> {
        changed.truncate(MOST_CHANGED);
        let latest = self.latest();
        let kept = |managed| {
            move |text: &Text| Kept {
                path: text.path.to_string_lossy().into_owned(),
                bytes: text.text.len(),
                managed,
            }
        };
        let revision = Revision {
            number: latest.map_or(1, |latest| latest.number + 1),
            hash: texts.hash.clone(),
            hand: texts.hand.clone(),
            parent: latest.map(|latest| latest.number),
            time: timestamp(SystemTime::now()),
            author: by.author.clone(),
            source: by.origin,
            message: by.message.clone(),
            verdict: ACCEPTED.to_owned(),
            changed,
            trial,
            files: texts
                .written
                .iter()
                .map(kept(false))
                .chain(texts.managed.iter().map(kept(true)))
                .collect(),
        };
        let mut head = serde_json::to_vec(&revision).map_err(io::Error::other)?;
        head.push(b'\n');
        let texts = texts.written.iter().chain(&texts.managed).map(|text| text.text.as_bytes());
        let pieces: Vec<&[u8]> = std::iter::once(head.as_slice()).chain(texts).collect();
        durable::write(&self.pending(), &pieces, &*self.steps)?;
        Ok(revision)
    }

    /// The staged revision runs: it now has its number. Drops revisions beyond the limits.
    pub(crate) fn accept(&mut self, mut revision: Revision) -> io::Result<u64> {
        loop {
            match durable::claim(&self.pending(), &self.path(revision.number), &*self.steps) {
                Ok(()) => break,
                // Another process on the same folder was faster.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => revision.number += 1,
                Err(e) => return Err(e),
            }
        }
        let number = revision.number;
        self.revisions.push(revision);
        self.prune();
        Ok(number)
    }

    /// The staged revision did not run.
    pub(crate) fn abandon(&self) {
        let _ = fs::remove_file(self.pending()); // it may not be there
    }

    /// Handles a revision staged by a killed process. It is accepted if it is what runs now, because then its change
    /// is on disk; otherwise it is dropped.
    pub(crate) fn recover(&mut self, texts: &Texts) {
        let pending = self.pending();
        let Ok((mut staged, _)) = read_head(&pending) else { return self.abandon() };
        let latest = self.latest();
        if staged.hash != texts.hash || latest.is_some_and(|latest| latest.hash == staged.hash) {
            return self.abandon();
        }
        staged.number = latest.map_or(1, |latest| latest.number + 1);
        if let Err(e) = self.accept(staged) {
            log::warn("a revision was not saved", &[("error", &e)]);
        }
    }

    /// Drops the oldest beyond the limits; never the newest, nor one that another depends on.
    fn prune(&mut self) {
        let size = |revision: &Revision| revision.files.iter().map(|file| file.bytes as u64).sum::<u64>();
        let mut bytes: u64 = self.revisions.iter().map(size).sum();
        let on_trial =
            self.revisions.iter().filter(|revision| revision.open_trial().is_some_and(|t| t.goes_on));
        let mut stood_on: Vec<u64> = on_trial
            .rev()
            .take(ON_TRIAL)
            .flat_map(|revision| [Some(revision.number), revision.parent])
            .flatten()
            .collect();
        stood_on.extend(self.pin.as_ref().map(|pin| pin.accepted));
        let mut at = 0;
        while self.revisions.len() > MOST || bytes > MOST_BYTES {
            // The newest stays, and so does the one before it, so that there is always a way back.
            if at + 2 >= self.revisions.len() {
                break;
            }
            if self.revisions.get(at).is_some_and(|revision| stood_on.contains(&revision.number)) {
                at += 1;
                continue;
            }
            let gone = self.revisions.remove(at);
            bytes = bytes.saturating_sub(size(&gone));
            let _ = fs::remove_file(self.path(gone.number)); // at worst it returns after a restart
            let _ = fs::remove_file(self.verdict_path(gone.number));
        }
    }

    // === verdicts ===

    fn verdict_path(&self, number: u64) -> PathBuf {
        self.folder.join("verdicts").join(format!("{number:08}"))
    }

    fn verdict(&self, number: u64) -> String {
        let text = fs::read_to_string(self.verdict_path(number)).unwrap_or_default();
        if text.is_empty() { ACCEPTED.to_owned() } else { text }
    }

    /// Records the verdict on a revision.
    pub(crate) fn judge(&mut self, number: u64, verdict: &str) -> io::Result<()> {
        durable::write(&self.verdict_path(number), &[verdict.as_bytes()], &*self.steps)?;
        if let Ok(at) = self.revisions.binary_search_by_key(&number, |revision| revision.number)
            && let Some(revision) = self.revisions.get_mut(at)
        {
            verdict.clone_into(&mut revision.verdict);
        }
        Ok(())
    }

    // === hand-written files that may not run ===

    pub(crate) fn pin(&self) -> Option<&Pin> {
        self.pin.as_ref()
    }

    /// Records which hand-written files may not run and what replaces them, or that all may run again. It holds for
    /// this process even if it cannot be saved.
    pub(crate) fn set_pin(&mut self, pin: Option<Pin>) -> io::Result<()> {
        if pin == self.pin && !self.pin_owed {
            return Ok(());
        }
        let path = Pin::path(&self.folder);
        self.pin_owed = true;
        self.pin = pin;
        match &self.pin {
            Some(pin) => {
                let text = serde_json::to_vec(pin).map_err(io::Error::other)?;
                durable::write(&path, &[&text], &*self.steps)?;
            }
            None => durable::remove(&path, &*self.steps)?,
        }
        self.pin_owed = false;
        Ok(())
    }

    // === a config that was taken back while the disk was full ===

    pub(crate) fn taken_back(&self) -> Option<TakenBack> {
        TakenBack::read(&self.folder)
    }

    /// Records that a config may not run again, in a form that fits on a full disk.
    pub(crate) fn mark_taken_back(&self, what: &TakenBack) -> io::Result<()> {
        let mut text = format!("{}@{}", what.refused, what.accepted);
        if let Some(managed) = &what.managed {
            text.push('@');
            text.push_str(managed);
        }
        durable::write_link(&TakenBack::path(&self.folder), &text, &*self.steps)
    }

    /// The files and the history now record it.
    pub(crate) fn clear_taken_back(&self) -> io::Result<()> {
        durable::remove(&TakenBack::path(&self.folder), &*self.steps)
    }

    // === what a change on trial is compared with ===

    fn baseline_path(&self) -> PathBuf {
        self.folder.join("baseline")
    }

    pub(crate) fn write_baseline(&self, text: &[u8]) -> io::Result<()> {
        durable::write(&self.baseline_path(), &[text], &*self.steps)
    }

    /// The last baseline written, if readable.
    pub(crate) fn baseline(&self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let file = File::open(self.baseline_path()).ok()?;
        file.take(BASELINE_BYTES).read_to_end(&mut text).ok()?;
        Some(text)
    }

    /// Writes which switches are on, and until when in Unix time.
    pub(crate) fn write_switches(&self, on: &BTreeMap<String, u64>) -> io::Result<()> {
        let text = serde_json::to_vec(on).unwrap_or_default();
        durable::write(&self.folder.join("switches"), &[&text], &*self.steps)
    }

    /// The switches last written, if readable.
    pub(crate) fn switches(&self) -> BTreeMap<String, u64> {
        let read = || {
            let mut text = Vec::new();
            File::open(self.folder.join("switches"))
                .ok()?
                .take(SWITCHES_BYTES)
                .read_to_end(&mut text)
                .ok()?;
            serde_json::from_slice(&text).ok()
        };
        read().unwrap_or_default()
    }

    /// Writes the managed file as carefully as the files kept here.
    pub(crate) fn write_managed(&self, text: &Text) -> io::Result<()> {
        durable::write(&text.path, &[text.text.as_bytes()], &*self.steps)
    }
}

/// Writes the managed file of a gateway without a history.
pub(crate) fn write_managed(text: &Text) -> io::Result<()> {
    durable::write(&text.path, &[text.text.as_bytes()], &Sound)
}

// === impl Pin ===

impl Pin {
    fn path(folder: &Path) -> PathBuf {
        folder.join("refused")
    }

    /// Reads what is refused from a history's folder; also for `weir check`, which must not change anything there.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(Self::path(folder)) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

// === impl TakenBack ===

impl TakenBack {
    fn path(folder: &Path) -> PathBuf {
        folder.join("taken-back")
    }

    /// Whether all of these texts may not run, or (false) only the managed file, because people have changed theirs
    /// since.
    pub(crate) fn is_all_of(&self, texts: &Texts) -> Option<bool> {
        let all = self.refused == texts.hash;
        let managed = || texts.managed.as_ref().map(|managed| mark_of(&managed.text));
        (all || (self.managed.is_some() && self.managed == managed())).then_some(all)
    }

    /// Reads what was reverted from a history's folder; also for `weir check`.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let target = fs::read_link(Self::path(folder)).ok()?;
        let mut parts = target.to_str()?.split('@');
        let (refused, accepted) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(Self { refused, accepted, managed: parts.next().map(str::to_owned) })
    }
}

/// A revision's description, and the reader for the rest.
fn read_head(path: &Path) -> io::Result<(Revision, BufReader<File>)> {
    let mut file = BufReader::new(File::open(path)?);
    let mut head = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_until(b'\n', &mut head)?;
    Ok((serde_json::from_slice(&head).map_err(io::Error::other)?, file))
}

fn read_texts(path: &Path) -> io::Result<Texts> {
    let (revision, mut file) = read_head(path)?;
    let bytes: u64 = revision.files.iter().map(|file| file.bytes as u64).sum();
    if bytes > REVISION_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    let mut texts = Texts { hand: revision.hand, hash: revision.hash, ..Texts::default() };
    for kept in revision.files {
        let mut text = String::new();
        let read = file.by_ref().take(kept.bytes as u64).read_to_string(&mut text)?;
        if read != kept.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = Text { path: kept.path.into(), text: text.into() };
        if kept.managed {
            texts.managed_path = Some(text.path.clone());
            texts.managed = Some(text);
        } else {
            texts.written.push(text);
        }
    }
    Ok(texts)
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "store/versions.rs"]
mod versions;
