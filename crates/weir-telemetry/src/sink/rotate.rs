//! Rotates a log file on the thread that writes it. At a size or an age, the file is renamed with the time in its
//! name, and a new file replaces it. No line is split between two files, and no producer waits.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::{Warn, open_file};
use crate::time::timestamp;

/// When to rotate a log file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Before it would exceed this size, in bytes.
    pub size: Option<u64>,
    /// Once it is older than this.
    pub age: Option<Duration>,
    /// How many rotated files to keep.
    pub keep: usize,
}

/// How long we wait after a failed rotation.
const AGAIN: Duration = Duration::from_secs(60);

/// Most rotations within one second.
const SAME_SECOND: u32 = 1000;

/// The current file.
pub(super) struct Rotating {
    path: PathBuf,
    rotation: Rotation,
    warn: Warn,
    size: u64,
    began: SystemTime,
    next_try: Option<Instant>,
    /// The time in the last name we used, and the number after it: we do not reuse the name of a removed file.
    last: (String, u32),
}

impl Rotating {
    /// `None` unless it is a regular file: a pipe or a device has no size.
    pub(super) fn new(path: &Path, rotation: &Rotation, warn: Warn, file: &File) -> Option<Self> {
        let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
        // An empty file starts now, no matter when it was created. Some file systems do not record the creation time.
        let began = if meta.len() == 0 { None } else { meta.created().or_else(|_| meta.modified()).ok() };
        Some(Self {
            path: path.to_owned(),
            rotation: rotation.clone(),
            warn,
            size: meta.len(),
            began: began.unwrap_or_else(SystemTime::now),
            next_try: None,
            last: (String::new(), 0),
        })
    }

    /// Counts written bytes.
    pub(super) const fn wrote(&mut self, bytes: usize) {
        self.size += bytes as u64;
    }

    /// The next file, if this one is full or too old for `bytes` more.
    pub(super) fn next(&mut self, bytes: usize, file: &File) -> Option<File> {
        let full = self.rotation.size.is_some_and(|most| self.size > 0 && self.size + bytes as u64 > most);
        let old = self.rotation.age.is_some_and(|age| self.began.elapsed().is_ok_and(|is| is >= age));
        if !(full || old && self.size > 0) || self.next_try.is_some_and(|next| Instant::now() < next) {
            return None;
        }
        match self.rotate(file) {
            Ok(fresh) => {
                let last = std::mem::take(&mut self.last);
                *self = Self { last, ..Self::new(&self.path, &self.rotation, self.warn, &fresh)? };
                self.prune();
                Some(fresh)
            }
            Err(e) => {
                self.next_try = Some(Instant::now() + AGAIN);
                (self.warn)("log file not rotated", &[("file", &self.path.display()), ("error", &e)]);
                None
            }
        }
    }

    fn rotate(&mut self, file: &File) -> io::Result<File> {
        let ours = file.metadata()?;
        // If something else already moved the file away (logrotate, or another process of ours), we use the new one.
        let there = fs::metadata(&self.path).ok();
        if there.is_some_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            let aside = self.aside()?;
            fs::rename(&self.path, aside)?;
        }
        open_file(&self.path).map_err(io::Error::other)
    }

    /// An unused name: `access.log.20260301T120000Z`, with a number after it if that is taken.
    fn aside(&mut self) -> io::Result<PathBuf> {
        let time: String = timestamp(SystemTime::now()).chars().filter(|c| !"-:".contains(*c)).collect();
        let time = format!("{}Z", time.split('.').next().unwrap_or_default());
        let first = if time == self.last.0 { self.last.1 + 1 } else { 0 };
        for number in first..SAME_SECOND {
            let mut name = self.path.as_os_str().to_owned();
            name.push(if number == 0 { format!(".{time}") } else { format!(".{time}.{number:03}") });
            let path = PathBuf::from(name);
            if !path.exists() {
                self.last = (time, number);
                return Ok(path);
            }
        }
        Err(io::Error::other("too many files of this second"))
    }

    /// Removes the oldest rotated files. Their names sort by time.
    fn prune(&self) {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else { return };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Ok(entries) = fs::read_dir(folder) else { return };
        let is_ours = |other: &std::ffi::OsStr| {
            let behind = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
            behind.and_then(|behind| behind.strip_prefix(b".")).is_some_and(is_stamp)
        };
        let mut aside: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|p| p.file_name().is_some_and(is_ours))
            .collect();
        aside.sort();
        let spare = aside.len().saturating_sub(self.rotation.keep);
        for path in aside.iter().take(spare) {
            if let Err(e) = fs::remove_file(path) {
                (self.warn)("old log file not removed", &[("file", &path.display()), ("error", &e)]);
            }
        }
    }
}

/// `20260301T120000Z`, possibly followed by `.001`: nothing else is ever removed.
fn is_stamp(text: &[u8]) -> bool {
    let shape = |text: &[u8], shape: &[u8]| {
        text.len() == shape.len()
            && text.iter().zip(shape).all(|(b, s)| if *s == b'0' { b.is_ascii_digit() } else { b == s })
    };
    shape(text, b"00000000T000000Z") || shape(text, b"00000000T000000Z.000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_removed() {
        for (name, is) in [
            ("20260301T120000Z", true),
            ("20260301T120000Z.001", true),
            ("20260301T120000Z.gz", false),
            ("1", false),
            ("", false),
        ] {
            assert_eq!(is_stamp(name.as_bytes()), is, "{name}");
        }
    }
}
