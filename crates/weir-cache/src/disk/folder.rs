//! The folder that a store is in: whose it is, which form its files have, where they are.
//!
//! ```text
//!   PATH/weir-cache        "weir-cache 2": the form; who holds the lock on it has the folder, and writes its process behind it
//!   PATH/incoming/         what is being written
//!   PATH/00 … PATH/ff/     the objects, by their numbers: 18a3f2c4b5d6e7f8, and 18a3f2c4b5d6e7f8.h for a newer head
//! ```

use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file that says what the folder is.
const MARK: &str = "weir-cache";

/// The form of what lies in it. A later number is a later program's. Of an earlier one the objects are removed and never served: what
/// tells one object from another may have been something else, as in form 1, whose keys held no verified caller.
const FORMAT: u32 = 2;

/// What is being written.
const INCOMING: &str = "incoming";

/// How many folders objects are spread over: few of them are large.
pub(super) const FOLDERS: u64 = 256;

/// Longest text in [`MARK`].
const MARK_BYTES: u64 = 64;

/// Why a folder cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// Files of another form are in it.
    Format(PathBuf, String),
    /// Another process has it.
    InUse(PathBuf, Option<u32>),
    /// It cannot be made, read or written.
    Io(PathBuf, io::Error),
    /// Something else is in it.
    NotEmpty(PathBuf),
}

/// A folder that this process has.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// It is ours until this is closed.
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
            Self::Io(path, e) => write!(f, "{}: {e}", path.display()),
            Self::NotEmpty(path) => write!(f, "{} is not empty, and no cache", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

impl Folder {
    /// Makes a folder ours. `wait`: until the process that has it gives it up.
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
        check(path)?; // another may have had it meanwhile
        lock.seek(SeekFrom::Start(0)).map_err(failed)?;
        lock.set_len(0).map_err(failed)?;
        write!(lock, "{MARK} {FORMAT}\n{}\n", std::process::id()).map_err(failed)?;
        let incoming = path.join(INCOMING);
        if incoming.exists() {
            fs::remove_dir_all(&incoming).map_err(failed)?; // what nobody finished
        }
        make(&incoming).map_err(failed)?;
        for number in 0..FOLDERS {
            make(&below(path, number)).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }
}

/// Makes a folder that nobody else looks into: what is cached may be for a few only.
pub(super) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether a folder can be a cache of ours: there is none yet, or it is empty, or it is one.
///
/// # Errors
/// Why not.
pub fn check(path: &Path) -> Result<(), OpenError> {
    match read_mark(path) {
        Ok(Some(text)) => {
            let form = text.lines().next().unwrap_or_default();
            // One whose mark was not written to its end is as good as empty.
            let number = form.strip_prefix(MARK).and_then(|rest| rest.trim_start().parse::<u32>().ok());
            let ours = form.is_empty() || number.is_some_and(|number| (1..=FORMAT).contains(&number));
            if ours { Ok(()) } else { Err(OpenError::Format(path.to_owned(), form.to_owned())) }
        }
        Ok(None) => match fs::read_dir(path) {
            Ok(mut entries) => {
                // What a new file system begins with is no reason.
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

/// The process that has it, as it said itself.
fn holder(path: &Path) -> Option<u32> {
    read_mark(path).ok()??.lines().nth(1)?.parse().ok()
}

/// A folder of objects.
pub(super) fn below(path: &Path, number: u64) -> PathBuf {
    path.join(format!("{:02x}", number % FOLDERS))
}

/// Where an object is.
pub(super) fn object(path: &Path, number: u64) -> PathBuf {
    below(path, number).join(format!("{number:016x}"))
}

/// Where its newer head is.
pub(super) fn newer_head(path: &Path, number: u64) -> PathBuf {
    below(path, number).join(format!("{number:016x}.h"))
}

/// Where a file is while it is written.
pub(super) fn incoming(path: &Path, number: u64) -> PathBuf {
    path.join(INCOMING).join(format!("{number:016x}"))
}

/// The number of a file in a folder of objects, and whether it is a newer head.
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
