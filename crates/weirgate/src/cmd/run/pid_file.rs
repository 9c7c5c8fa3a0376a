//! `--pid-file`: the id of the process that serves, for scripts.
//!
//! The process that serves holds a lock on the file. The lock distinguishes a file in use from one left behind by
//! a crash, even if another process has the same id by now. An upgrade replaces the file.

use anyhow::{Context, Result, bail};
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_telemetry::log;

/// Most bytes that are read of an existing file.
const PID_BYTES: u64 = 32;

/// The file of this process. Dropping it removes the file, unless another process has replaced it.
pub(super) struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Succeeds if the path is free: there is no file, or no process has locked it.
    ///
    /// # Errors
    /// A running process has locked the file, or it cannot be read.
    pub(super) fn check(path: &Path) -> Result<()> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e).context(format!("--pid-file {}", path.display())),
        };
        match file.try_lock_shared() {
            Ok(()) => {
                log::info(
                    "replaced the pid file of a process that no longer runs",
                    &[("path", &path.display())],
                );
                Ok(())
            }
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.take(PID_BYTES).read_to_string(&mut pid); // used only in the message
                let pid = pid.trim();
                bail!(
                    "--pid-file {}: process {pid} holds it, so Weir runs already. `weir upgrade` replaces it",
                    path.display()
                )
            }
            Err(TryLockError::Error(e)) => Err(e).context(format!("--pid-file {}", path.display())),
        }
    }

    /// Writes the id of this process, replacing any existing file.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(super) fn write(path: &Path) -> Result<Self> {
        let write = || -> std::io::Result<File> {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let mut beside = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
            writeln!(beside, "{}", std::process::id())?;
            beside.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
            beside.as_file().lock()?;
            Ok(beside.persist(path)?)
        };
        let file = write().with_context(|| format!("--pid-file {}", path.display()))?;
        // An absolute path, so that the file is found at exit even from another working directory.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { path, file })
    }

    /// Whether the file at the path is still this one.
    fn is_there(&self) -> bool {
        match (std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(there), Ok(own)) => (there.dev(), there.ino()) == (own.dev(), own.ino()),
            _ => false,
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = std::fs::remove_file(&self.path); // if somebody else removed it, that is fine too
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_file_in_use_is_told_from_one_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.pid");
        PidFile::check(&path).unwrap();
        std::fs::write(&path, "1\n").unwrap();
        PidFile::check(&path).unwrap();
        let held = PidFile::write(&path).unwrap();
        assert_eq!(content(&path), format!("{}\n", std::process::id()));
        let refused = PidFile::check(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} holds it", std::process::id())), "{refused}");
        drop(held);
        assert!(!path.exists());
    }

    #[test]
    fn the_file_of_a_successor_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.pid");
        let old = PidFile::write(&path).unwrap();
        let new = PidFile::write(&path).unwrap();
        drop(old);
        assert!(path.exists() && PidFile::check(&path).is_err());
        drop(new);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let refused = PidFile::write(Path::new("/nowhere/weir.pid")).err().unwrap();
        assert!(format!("{refused:#}").starts_with("--pid-file /nowhere/weir.pid: "), "{refused:#}");
    }
}
