//! The folder of a store: its lock, the version of its format, and the paths of its files.
//!
//! ```text
//!   PATH/weir-cache        "weir-cache 2", the format, and the owner's process id; the owner locks it
//!   PATH/incoming/         unfinished files
//!   PATH/00 … PATH/ff/     the objects, by number: 18a3f2c4b5d6e7f8, and 18a3f2c4b5d6e7f8.h for a newer head
//! ```

use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file that identifies the folder as a cache.
const MARK: &str = "weir-cache";

/// The version of the format. A higher version comes from a later program. Objects of a lower version are removed
/// and never served, because their keys may differ in meaning: keys of version 1 did not include the verified
/// caller.
const FORMAT: u32 = 2;

/// The folder of unfinished files.
const INCOMING: &str = "incoming";

/// Number of folders over which objects are spread, so that few of them become large.
pub(super) const FOLDERS: u64 = 256;

/// Longest text in [`MARK`].
const MARK_BYTES: u64 = 64;

/// Why a folder cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// The folder holds files of another format.
    Format(PathBuf, String),
    /// Another process holds the folder.
    InUse(PathBuf, Option<u32>),
    /// The folder cannot be created, read or written.
    Io(PathBuf, io::Error),
    /// The folder holds something else.
    NotEmpty(PathBuf),
}

/// A folder whose lock this process holds.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Closing it releases the folder.
    _lock: File,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(path, found) => {
                let path = path.display();
                write!(
                    f,
                    "{path} holds a cache of another form ({found}); this program knows {MARK} {FORMAT}"
                )
            }
            Self::InUse(path, Some(process)) => write!(f, "process {process} uses {}", path.display()),
            Self::InUse(path, None) => write!(f, "another process uses {}", path.display()),
            Self::Io(path, _) => path.display().fmt(f),
            Self::NotEmpty(path) => write!(f, "{} is not empty, and no cache", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, e) => Some(e),
            Self::Format(..) | Self::InUse(..) | Self::NotEmpty(_) => None,
        }
    }
}

impl Folder {
    /// Takes the lock on a folder. With `wait`, blocks until the process that holds it releases it.
    pub(super) fn open(path: &Path, wait: bool) -> Result<Self, OpenError> {
        let failed = |e: io::Error| OpenError::Io(path.to_owned(), e);
        make(path).map_err(failed)?;
        check(path)?;
        let mark = path.join(MARK);
        let mut options = OpenOptions::new();
        let mut lock =
            options.read(true).write(true).create(true).truncate(false).open(&mark).map_err(failed)?;
        let how = if wait { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
        loop {
            match flock(&lock, how) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(OpenError::InUse(path.to_owned(), holder(path)));
                }
                Err(e) => return Err(failed(e.into())),
            }
        }
        check(path)?; // another process may have changed it in the meantime
        lock.seek(SeekFrom::Start(0)).map_err(failed)?;
        lock.set_len(0).map_err(failed)?;
        write!(lock, "{MARK} {FORMAT}\n{}\n", std::process::id()).map_err(failed)?;
        let incoming = path.join(INCOMING);
        if incoming.exists() {
            fs::remove_dir_all(&incoming).map_err(failed)?; // leftovers of unfinished writes
        }
        make(&incoming).map_err(failed)?;
        for number in 0..FOLDERS {
            make(&below(path, number)).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }
}

/// Creates a folder that only this user can read, since cached answers may be private.
pub(super) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether a folder can hold a cache: it does not exist, is empty, or holds one already.
///
/// # Errors
/// Why it cannot.
pub fn check(path: &Path) -> Result<(), OpenError> {
    match read_mark(path) {
        Ok(Some(text)) => {
            let form = text.lines().next().unwrap_or_default();
            // A mark that was not written completely counts as empty.
            let number = form.strip_prefix(MARK).and_then(|rest| rest.trim_start().parse::<u32>().ok());
            let ours = form.is_empty() || number.is_some_and(|number| (1..=FORMAT).contains(&number));
            if ours { Ok(()) } else { Err(OpenError::Format(path.to_owned(), form.to_owned())) }
        }
        Ok(None) => match fs::read_dir(path) {
            Ok(mut entries) => {
                // A new file system has `lost+found`, which does not matter.
                let other =
                    |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|e| e.file_name() != "lost+found");
                if entries.any(other) { Err(OpenError::NotEmpty(path.to_owned())) } else { Ok(()) }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(OpenError::Io(path.to_owned(), e)),
        },
        Err(e) => Err(OpenError::Io(path.to_owned(), e)),
    }
}

fn read_mark(path: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    match File::open(path.join(MARK)) {
        Ok(file) => file.take(MARK_BYTES).read_to_end(&mut bytes)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The process that holds the folder, by its own entry.
fn holder(path: &Path) -> Option<u32> {
    read_mark(path).ok()??.lines().nth(1)?.parse().ok()
}

/// The subfolder of an object.
pub(super) fn below(path: &Path, number: u64) -> PathBuf {
    path.join(format!("{:02x}", number % FOLDERS))
}

/// The path of an object.
pub(super) fn object(path: &Path, number: u64) -> PathBuf {
    below(path, number).join(format!("{number:016x}"))
}

/// The path of an object's newer head.
pub(super) fn newer_head(path: &Path, number: u64) -> PathBuf {
    below(path, number).join(format!("{number:016x}.h"))
}

/// The path of an unfinished file.
pub(super) fn incoming(path: &Path, number: u64) -> PathBuf {
    path.join(INCOMING).join(format!("{number:016x}"))
}

/// The object number in a file name, and whether the file is a newer head.
pub(super) fn number_of(name: &str) -> Option<(u64, bool)> {
    let (digits, head) = name.strip_suffix(".h").map_or((name, false), |digits| (digits, true));
    let sound =
        digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| sound)?;
    Some((number, head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = Folder::open(&path, false).unwrap();
        let second = Folder::open(&path, false).unwrap_err();
        let ours = std::process::id();
        assert!(matches!(&second, OpenError::InUse(_, Some(process)) if *process == ours), "{second}");
        drop(first);
        fs::write(incoming(&path, 7), "half").unwrap();
        Folder::open(&path, false).unwrap();
        assert!(!incoming(&path, 7).exists());
    }

    #[test]
    fn what_is_no_cache_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
        assert!(matches!(Folder::open(dir.path(), false), Err(OpenError::NotEmpty(_))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join(MARK), "weir-cache 3\n").unwrap();
        let said = Folder::open(other.path(), false).unwrap_err().to_string();
        assert!(
            said.ends_with("holds a cache of another form (weir-cache 3); this program knows weir-cache 2"),
            "{said}"
        );
    }

    #[test]
    fn names() {
        let number = 0x18a3_f2c4_b5d6_e7f8;
        assert_eq!(object(Path::new("/c"), number), Path::new("/c/f8/18a3f2c4b5d6e7f8"));
        assert_eq!(number_of("18a3f2c4b5d6e7f8"), Some((number, false)));
        assert_eq!(number_of("18a3f2c4b5d6e7f8.h"), Some((number, true)));
        for other in ["18A3F2C4B5D6E7F8", "+8a3f2c4b5d6e7f8", "18a3f2c4b5d6e7f", "x", ""] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
