//! The file that receives a result. It is checked before the run, because a run whose result cannot be saved is a
//! waste.
//!
//! Its old content stays until the result is complete: a mistake on the command line, Ctrl-C or a full disk costs
//! no baseline.

use anyhow::{Context as _, Result};
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};
use weir_report::Mistake;

/// Mode of a new file, before the umask.
const RIGHTS: u32 = 0o666;

/// A path that can be written to.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    way: Way,
}

/// How the result is written.
#[derive(Debug)]
enum Way {
    /// Write a temporary file in the same folder and rename it, so readers see either the old or the new content.
    Beside {
        /// The target, if the path is a symlink.
        real: PathBuf,
        /// Mode of the file that it replaces.
        rights: Option<Permissions>,
    },
    /// Write in place: a device or pipe, which cannot be replaced, or a file in a folder that accepts no new
    /// files.
    Into(File),
}

impl OutputFile {
    /// Checks that the path can be written to; changes nothing.
    ///
    /// # Errors
    /// The path cannot be written to, as far as can be known before the run.
    pub(super) fn open(path: &Path) -> Result<Self, Mistake> {
        let way =
            Way::of(path).map_err(|e| Mistake { place: path.display().to_string(), hint: e.to_string() })?;
        Ok(Self { path: path.to_owned(), way })
    }

    /// As given.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the result, atomically where possible.
    pub(super) fn write(self, text: &str) -> Result<()> {
        self.way.write(text.as_bytes()).with_context(|| self.path.display().to_string())
    }
}

impl Way {
    fn of(path: &Path) -> std::io::Result<Self> {
        let there = match std::fs::metadata(path) {
            Ok(there) => there,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                // A dangling symlink stays, and its target is created.
                let real =
                    std::fs::read_link(path).map_or_else(|_| path.to_owned(), |to| folder(path).join(to));
                std::fs::metadata(folder(&real))?;
                drop(beside(&real)?);
                return Ok(Self::Beside { real, rights: None });
            }
            Err(e) => return Err(e),
        };
        // Not truncated: this only tests whether the file is writable.
        let file = OpenOptions::new().write(true).open(path)?;
        let real = std::fs::canonicalize(path)?;
        if !there.is_file() || beside(&real).is_err() {
            return Ok(Self::Into(file));
        }
        Ok(Self::Beside { real, rights: Some(there.permissions()) })
    }

    fn write(self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Beside { real, rights } => {
                let mut file = beside(&real)?;
                file.write_all(bytes)?;
                if let Some(rights) = rights {
                    file.as_file().set_permissions(rights)?;
                }
                file.persist(&real)?;
                Ok(())
            }
            Self::Into(mut file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                file.write_all(bytes)
            }
        }
    }
}

/// A temporary file in the same folder, removed when dropped.
fn beside(path: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(".weir-").permissions(Permissions::from_mode(RIGHTS)).tempfile_in(folder(path))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read_dir, read_to_string};
    use tempfile::TempDir;

    #[test]
    fn nothing_changes_before_the_result_is_there() {
        let dir = TempDir::new().unwrap();
        let (new, old) = (dir.path().join("new.json"), dir.path().join("old.json"));
        std::fs::write(&old, "a longer baseline").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o640)).unwrap();
        let kept = [&new, &old].map(|path| OutputFile::open(path).unwrap());
        assert_eq!((new.exists(), read_to_string(&old).unwrap().as_str()), (false, "a longer baseline"));
        assert_eq!(read_dir(dir.path()).unwrap().count(), 1, "nothing lies about while the run lasts");
        kept.into_iter().for_each(|kept| kept.write("result").unwrap());
        let rights = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (read_to_string(&new).unwrap(), read_to_string(&old).unwrap()),
            ("result".into(), "result".into())
        );
        assert_eq!(rights(&old), 0o640);
        // The mode that any new file gets here, since the umask is unknown.
        std::fs::write(dir.path().join("any"), "").unwrap();
        assert_eq!(rights(&new), rights(&dir.path().join("any")));
        assert_eq!(read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_link_stays_one_and_a_device_is_written_to() {
        let dir = TempDir::new().unwrap();
        let (link, real) = (dir.path().join("link"), dir.path().join("real"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        OutputFile::open(&link).unwrap().write("new").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read_to_string(&real).unwrap(), "new");
        std::fs::remove_file(&real).unwrap();
        OutputFile::open(&link).unwrap().write("again").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read_to_string(&real).unwrap(), "again");
        OutputFile::open(Path::new("/dev/null")).unwrap().write("result").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        for bad in [Path::new("/no/such/x"), dir.path()] {
            assert!(OutputFile::open(bad).is_err(), "{}", bad.display());
        }
    }
}
