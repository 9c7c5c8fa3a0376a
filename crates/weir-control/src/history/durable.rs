//! Files that are whole whatever happens: written beside, synced, renamed, and the folder synced.
//!
//! Each step is announced before it is taken, so that a test can fail it, or end there as a killed process would.

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

/// Is told of each step before it is taken; an error fails the step.
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

/// Puts `text` at `path`, for the owner only. Afterwards either the old file is there or the new one, whole; on an error the old one.
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
    // Whoever reads finds the new file now, so there is no going back: that a crash of the machine may do so is only told.
    told(path, sync_folder(path, steps));
    Ok(())
}

fn told(path: &Path, outcome: io::Result<()>) {
    if let Err(e) = outcome {
        log::warn(
            "a file is written, but might not survive a crash of the machine",
            &[("file", &path.display()), ("error", &e)],
        );
    }
}

/// A name of its own for each process: two that write one file must not write into each other's.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn write_beside(beside: &Path, text: &[&[u8]], steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::Create)?;
    let _ = fs::remove_file(beside); // of a process with our number that was killed
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    steps.next(Step::Write)?;
    for piece in text {
        file.write_all(piece)?;
    }
    steps.next(Step::SyncFile)?;
    file.sync_all()
}

/// Has the names in the folder of `path` survive a crash of the machine.
pub(crate) fn sync_folder(path: &Path, steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::SyncFolder)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Takes a file away that may not be there.
pub(crate) fn remove(path: &Path, steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::Unlink)?;
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(()) => sync_folder(path, steps),
    }
}

/// Puts a short text at `path` as the target of a symbolic link. File systems keep that beside the name and not in a block of data, so
/// there is room for it where there is none for a file.
pub(crate) fn write_link(path: &Path, text: &str, steps: &dyn Steps) -> io::Result<()> {
    let beside = beside(path);
    let _ = fs::remove_file(&beside); // of a process with our number that was killed
    steps.next(Step::Link)?;
    std::os::unix::fs::symlink(text, &beside)?;
    let renamed = steps.next(Step::Rename).and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside); // it may not be there
        return renamed;
    }
    told(path, sync_folder(path, steps));
    Ok(())
}

/// Gives the file at `from` the name `to`, unless there is one already.
pub(crate) fn claim(from: &Path, to: &Path, steps: &dyn Steps) -> io::Result<()> {
    steps.next(Step::Link)?;
    fs::hard_link(from, to)?;
    told(to, sync_folder(to, steps));
    told(from, steps.next(Step::Unlink).and_then(|()| fs::remove_file(from)));
    Ok(())
}
