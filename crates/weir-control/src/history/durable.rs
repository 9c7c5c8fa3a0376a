//! Writes files that survive crashes whole: written beside, synced, renamed, and the folder synced.
//!
//! Each step is announced first, so that a test can fail it, or stop there as a killed process would.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_telemetry::log;

/// One step of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Write,
    SyncFile,
    Rename,
    SyncFolder,
    Link,
    Unlink,
}

/// Called before each step; an error fails the step.
pub(crate) trait Steps {
    fn next(&self, step: Step) -> io::Result<()>;
}

/// Fails nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sound;

impl Steps for Sound {
    fn next(&self, _: Step) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `text` to `path`, readable by the owner only. Afterwards either the old or the new file is there, whole; on
/// an error the old one.
pub(crate) fn write(path: &Path, text: &[&[u8]], steps: &dyn Steps) -> io::Result<()> {
    let beside = beside(path);
    let outcome = write_beside(&beside, text, steps).and_then(|()| {
        steps.next(Step::Rename)?;
        fs::rename(&beside, path)
    });
    if outcome.is_err() {
        let _ = fs::remove_file(&beside); // it may not be there
        return outcome;
    }
    // Readers now find the new file, so there is no going back. That a machine crash might still undo it is only
    // logged.
    log_sync(path, sync_folder(path, steps));
    Ok(())
}

fn log_sync(path: &Path, outcome: io::Result<()>) {
    if let Err(e) = outcome {
        log::warn(
            "a file is written, but might not survive a crash of the machine",
            &[("file", &path.display()), ("error", &e)],
        );
    }
}

/// A name that differs between processes: two that write one file must not mix their data.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn write_beside(beside: &Path, text: &[&[u8]], steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::Create)?;
    let _ = fs::remove_file(beside); // from a killed process with our number
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    steps.next(Step::Write)?;
    for piece in text {
        file.write_all(piece)?;
    }
    steps.next(Step::SyncFile)?;
    file.sync_all()
}

/// Makes the names in the folder of `path` survive a machine crash.
pub(crate) fn sync_folder(path: &Path, steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::SyncFolder)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Removes a file that may not exist.
pub(crate) fn remove(path: &Path, steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::Unlink)?;
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(()) => sync_folder(path, steps),
    }
}

/// Writes a short text to `path` as the target of a symbolic link. File systems store it with the name and not in a
/// data block, so it fits where a file has no room.
pub(crate) fn write_link(path: &Path, text: &str, steps: &dyn Steps) -> io::Result<()> {
    let beside = beside(path);
    let _ = fs::remove_file(&beside); // from a killed process with our number
    steps.next(Step::Link)?;
    std::os::unix::fs::symlink(text, &beside)?;
    let renamed = steps.next(Step::Rename).and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside); // it may not be there
        return renamed;
    }
    log_sync(path, sync_folder(path, steps));
    Ok(())
}

/// Renames the file at `from` to `to`, unless that exists.
pub(crate) fn claim(from: &Path, to: &Path, steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::Link)?;
    fs::hard_link(from, to)?;
    log_sync(to, sync_folder(to, steps));
    log_sync(from, steps.next(Step::Unlink).and_then(|()| fs::remove_file(from)));
    Ok(())
}
