//! The folder of a store: its lock, the version of its format, and the paths of its files.
//!
//! ```text
//!   PATH/weir-cache           "weir-cache 1", and the owner's process id; the owner locks it
//!   PATH/v2/incoming/         unfinished files
//!   PATH/v2/00 … PATH/v2/ff/  the objects, by number: 18a3f2c4b5d6e7f8, and 18a3f2c4b5d6e7f8.h for a newer head
//!   PATH/dropped-N/           what is being removed
//! ```
//!
//! 0.1 has its files in PATH itself, and uses a folder only if the mark says 1. So the mark stays, and later formats
//! have a folder each beside those files: whichever version starts finds its own state or none, and the lock keeps
//! them apart. Objects of another format are removed and never served.

use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file that identifies the folder as a cache.
const MARK: &str = "weir-cache";

/// The version in the mark, which 0.1 expects. Builds between 0.1 and 1.0 wrote 2, with their files where 0.1 has
/// them. A higher version comes from a later program.
const MARKED: u32 = 1;

/// The highest version in a mark that this program takes over.
const MARKED_AT_MOST: u32 = 2;

/// The folder of this format's files. Keys of version 1 did not include the verified caller, so its objects must not
/// be served.
const OURS: &str = "v2";

/// What the names of folders that are being removed begin with.
const DROPPED: &str = "dropped-";

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
                    "{path} holds a cache of another form ({found}); this program knows {MARK} 1 to {MARKED_AT_MOST}"
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
        write!(lock, "{MARK} {MARKED}\n{}\n", std::process::id()).map_err(failed)?;
        drop_earlier(path).map_err(failed)?;
        let incoming = path.join(OURS).join(INCOMING);
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

/// Puts the files of 0.1 aside. If there are any, 0.1 ran last, and purges that it carried out did not reach our
/// objects: those go first, so that none comes back if this is interrupted.
fn drop_earlier(path: &Path) -> io::Result<()> {
    let names = (0..FOLDERS).map(|number| format!("{number:02x}")).chain([INCOMING.to_owned()]);
    let earlier: Vec<PathBuf> = names.map(|name| path.join(name)).filter(|path| path.exists()).collect();
    if earlier.is_empty() {
        return Ok(());
    }
    let aside =
        (0..u32::MAX).map(|number| path.join(format!("{DROPPED}{number}"))).find(|path| !path.exists());
    let aside = aside.unwrap_or_else(|| path.join(DROPPED));
    make(&aside)?;
    for old in std::iter::once(path.join(OURS)).filter(|ours| ours.exists()).chain(earlier) {
        fs::rename(&old, aside.join(old.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Removes what [`Folder::open`] put aside, which can take minutes. What cannot be removed is tried again at the next
/// start.
pub(super) fn remove_dropped(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(DROPPED) {
            let _ = fs::remove_dir_all(entry.path());
        }
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
            let ours = form.is_empty() || number.is_some_and(|number| (1..=MARKED_AT_MOST).contains(&number));
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
    path.join(OURS).join(format!("{:02x}", number % FOLDERS))
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
    path.join(OURS).join(INCOMING).join(format!("{number:016x}"))
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
            said.ends_with(
                "holds a cache of another form (weir-cache 3); this program knows weir-cache 1 to 2"
            ),
            "{said}"
        );
    }

    /// The folder as 0.1 leaves it.
    fn as_of_0_1(path: &Path) -> PathBuf {
        fs::write(path.join(MARK), "weir-cache 1\n4711\n").unwrap();
        make(&path.join(INCOMING)).unwrap();
        (0..FOLDERS).for_each(|number| make(&path.join(format!("{number:02x}"))).unwrap());
        let object = path.join("f8/18a3f2c4b5d6e7f8");
        fs::write(&object, "weirobj\x01 whatever it holds").unwrap();
        object
    }

    #[test]
    fn versions_share_a_folder_and_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let old = as_of_0_1(path);
        drop(Folder::open(path, false).unwrap());
        remove_dropped(path);
        assert!(!old.exists());
        let mut left: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [OURS, MARK]);
        // 0.1 compares the whole line.
        assert_eq!(read_mark(path).unwrap().unwrap().lines().next(), Some("weir-cache 1"));
        fs::write(object(path, 7), "ours").unwrap();
        drop(Folder::open(path, false).unwrap());
        assert!(object(path, 7).exists(), "an object stays over a restart");
        // 0.1 ran again, and may have purged what our object holds.
        as_of_0_1(path);
        drop(Folder::open(path, false).unwrap());
        assert!(!object(path, 7).exists());
    }

    #[test]
    fn a_removal_that_was_interrupted_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        for _ in 0..2 {
            as_of_0_1(path);
            drop(Folder::open(path, false).unwrap());
        }
        assert!(path.join("dropped-0").exists() && path.join("dropped-1").exists());
        remove_dropped(path);
        assert!(!path.join("dropped-0").exists() && !path.join("dropped-1").exists());
    }

    #[test]
    fn names() {
        let number = 0x18a3_f2c4_b5d6_e7f8;
        assert_eq!(object(Path::new("/c"), number), Path::new("/c/v2/f8/18a3f2c4b5d6e7f8"));
        assert_eq!(number_of("18a3f2c4b5d6e7f8"), Some((number, false)));
        assert_eq!(number_of("18a3f2c4b5d6e7f8.h"), Some((number, true)));
        for other in ["18A3F2C4B5D6E7F8", "+8a3f2c4b5d6e7f8", "18a3f2c4b5d6e7f", "x", ""] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
