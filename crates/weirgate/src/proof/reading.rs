//! `weir import --use-program`: the old program reads its own config, in the sandbox of the proofs.
//!
//! A program that only checks its config opens what the config names all the same: logs, caches, listeners. The root is
//! read-only there, so what it must write to is put into memory, one refusal after another ([`mend`]). Names resolve,
//! to an address where nobody listens, and users exist, as the one user that the sandbox has.

use super::job::{Found, Job};
use super::world::{mount, spawn_tied};
use super::{path_of, play_in_a_world};
use anyhow::Result;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_import::proof::{Program, Reads, WORKSPACE};

/// Most paths that are put into memory.
const MAX_MENDED: usize = 64;
/// Most that is read of its output. The largest config that weir import reads has 64 MiB.
const MAX_PRINTED: u64 = 80 << 20;
/// Most that is read of what it says of mistakes.
const MAX_SAID: u64 = 1 << 20;
/// What the kernel says of a path that is missing, not permitted, or read-only, or whose owner it does not know:
/// errno(3).
const MENDABLE: &[&str] = &["(1: ", "(2: ", "(13: ", "(22: ", "(30: "];

/// Folders of logs, caches and sockets.
const HOLD_NO_CONFIG: &[&str] =
    &["/run", "/tmp", "/var/cache", "/var/lib", "/var/log", "/var/run", "/var/spool", "/var/tmp"];

/// What reading gave.
pub(crate) enum Reading {
    /// The files, the first first, by absolute path. None if the program only checks them.
    Read(Vec<(String, String)>),
    /// The program refuses the config, and says why.
    Refused(String),
    /// It could not be started here.
    Cannot(String),
}

/// Lets the program read the config.
///
/// # Errors
/// If the processes of the sandbox fail.
pub(crate) fn read_by_program(program: &Program, file: &Path) -> Result<Reading> {
    let title = program.title;
    let Some(path) = path_of(program) else {
        return Ok(Reading::Cannot(format!("{title} is not on this machine")));
    };
    let config = match file.canonicalize() {
        Ok(config) => config.display().to_string(),
        Err(e) => return Ok(Reading::Refused(format!("{}: {e}", file.display()))),
    };
    let job = Job {
        system: program.system.to_owned(),
        path: Some(path),
        reads: Some(config.clone()),
        ..Job::default()
    };
    let found = play_in_a_world(&job)?;
    if let Some(why) = found.no_world {
        return Ok(Reading::Cannot(format!("this kernel cannot create a sandbox for {title}: {why}")));
    }
    if let Some(said) = found.refused {
        return Ok(Reading::Refused(said));
    }
    if let Some(why) = found.failure {
        return Ok(Reading::Cannot(why));
    }
    let files = program.reads.files_in(&config, &found.printed);
    if let Some(why) = differing(program.reads, &files) {
        return Ok(Reading::Refused(why));
    }
    Ok(Reading::Read(files))
}

/// A comment that looks like the line before a file would split that file: so each must be as it is on the disk.
fn differing(reads: Reads, files: &[(String, String)]) -> Option<String> {
    let Reads::Files(_, mark) = reads else { return None };
    files.iter().find_map(|(path, text)| {
        let disk = fs::read(path).ok()?;
        let is_same = String::from_utf8_lossy(&disk).trim_end() == text.trim_end();
        (!is_same).then(|| format!("{path}: it is not what the program printed: has it a line `{mark}…`?"))
    })
}

/// In the sandbox: runs the program until it finds nothing that it cannot write to.
pub(super) fn read(program: &Program, path: &Path, config: &str) -> Result<Found, String> {
    let arguments = match program.reads {
        Reads::Checks => (program.check)(config),
        Reads::One(arguments, _) | Reads::Files(arguments, _) => arguments(config),
    };
    one_user("/etc/passwd")?;
    one_user("/etc/group")?;
    let mut mended: Vec<PathBuf> = Vec::new();
    loop {
        let (is_good, printed, said) = run(program, path, &arguments)?;
        if is_good {
            return Ok(Found { printed, ..Found::default() });
        }
        let next = unwritable(&said).filter(|next| mended.len() < MAX_MENDED && !mended.contains(next));
        match next {
            Some(next) if mend(&next, &said, mended.len(), Path::new(config)).is_ok() => mended.push(next),
            _ => return Ok(Found { refused: Some(last_words(&said)), ..Found::default() }),
        }
    }
}

fn run(program: &Program, path: &Path, arguments: &[String]) -> Result<(bool, String, String), String> {
    let mut command = Command::new(path);
    command.args(arguments).envs(program.environment.iter().copied()).current_dir(WORKSPACE);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn_tied(&mut command).map_err(|e| format!("{}: {e}", path.display()))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || {
        let mut said = Vec::new();
        err.map(|err| err.take(MAX_SAID).read_to_end(&mut said));
        said
    });
    let mut printed = Vec::new();
    if let Some(out) = out {
        out.take(MAX_PRINTED).read_to_end(&mut printed).map_err(|e| e.to_string())?;
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    let said = errors.join().unwrap_or_default();
    let printed =
        String::from_utf8(printed).map_err(|_| "what the program prints is not UTF-8".to_owned())?;
    if printed.len() as u64 >= MAX_PRINTED {
        return Err(format!("the program prints more than {} MiB", MAX_PRINTED >> 20));
    }
    Ok((status.success(), printed, String::from_utf8_lossy(&said).into_owned()))
}

/// Makes every name in a table of users or groups the one that there is in the sandbox.
fn one_user(path: &str) -> Result<(), String> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    let is_users = path.ends_with("passwd");
    let mut made = String::new();
    for line in text.lines() {
        let name = line.split(':').next().unwrap_or(line);
        made.push_str(name);
        made.push_str(if is_users { ":x:0:0::/:/bin/false\n" } else { ":x:0:\n" });
    }
    let ours = format!("{WORKSPACE}/{}", path.trim_start_matches("/etc/"));
    fs::write(&ours, made).map_err(|e| format!("{ours}: {e}"))?;
    mount(Some(&ours), path, None, libc::MS_BIND, None)
}

/// The path in the program's last refusal, if the kernel refused it: `open() "/var/log/x" failed (30: …)`.
fn unwritable(said: &str) -> Option<PathBuf> {
    let line = said.lines().rfind(|line| MENDABLE.iter().any(|mark| line.contains(mark)))?;
    let before = MENDABLE.iter().find_map(|mark| line.find(mark)).and_then(|at| line.get(..at))?;
    let from = before.rfind("\"/").map(|at| at + 1).or_else(|| before.find("unix:/").map(|at| at + 5))?;
    let path = before.get(from..)?.split(['"', ' ']).next()?;
    let path = Path::new(path);
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    is_plain.then(|| path.to_owned())
}

/// Makes a path writable, in memory: a layer over its folder, where the kernel lets us; else an empty folder in its
/// place, which hides no config. Nothing but memory is writable in the sandbox, so nothing outside can change.
fn mend(path: &Path, said: &str, count: usize, config: &Path) -> Result<(), String> {
    let parent = path.parent().unwrap_or(path);
    let is_data = HOLD_NO_CONFIG.iter().any(|folder| path.starts_with(folder));
    // A folder whose owner must be changed.
    let is_owner =
        said.lines().rfind(|line| line.contains("failed (")).is_some_and(|line| line.contains("chown("));
    if is_owner && path.is_dir() && !config.starts_with(path) {
        return memory(path.to_str().ok_or("a path that is no text")?);
    }
    if is_data && is_writable(parent) {
        return Ok(());
    }
    // A log with mode 0640 of an owner whom the sandbox does not know: below a layer it would stay closed. No file of
    // another folder, which may be a part of the config.
    if path.starts_with("/var/log") && path.is_file() && path != config {
        let ours = format!("{WORKSPACE}/file{count}");
        fs::write(&ours, "").map_err(|e| format!("{ours}: {e}"))?;
        return mount(Some(&ours), path.to_str().ok_or("a path that is no text")?, None, libc::MS_BIND, None);
    }
    let mut folder = parent;
    while !folder.is_dir() {
        folder = folder.parent().ok_or("no folder")?;
    }
    let at = folder.to_str().ok_or("a path that is no text")?;
    let (upper, work) = (format!("{WORKSPACE}/upper{count}"), format!("{WORKSPACE}/work{count}"));
    for folder in [&upper, &work] {
        fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    let options = format!("lowerdir={at},upperdir={upper},workdir={work}");
    let over = mount(Some("overlay"), at, Some("overlay"), libc::MS_NOSUID | libc::MS_NODEV, Some(&options));
    match over {
        // The config may be in such a folder too: a copy below /tmp.
        Err(_) if is_data && !config.starts_with(at) => memory(at)?,
        over => over?,
    }
    // Folders that this machine lacks and the config's own has.
    if is_data && !is_writable(parent) { Err(format!("{at} stays as it is")) } else { Ok(()) }
}

/// An empty folder in memory.
fn memory(at: &str) -> Result<(), String> {
    mount(Some("tmpfs"), at, Some("tmpfs"), libc::MS_NOSUID | libc::MS_NODEV, Some("size=16m"))
}

fn is_writable(folder: &Path) -> bool {
    let probe = folder.join(".weir-probe");
    fs::create_dir_all(folder).is_ok() && fs::write(&probe, "").is_ok() && fs::remove_file(&probe).is_ok()
}

/// What it says at last: the line of an emergency, or the end.
fn last_words(said: &str) -> String {
    let urgent = said.lines().find(|line| line.contains("[emerg]") || line.contains("[ALERT]"));
    match urgent {
        Some(line) => line.split_once("[emerg] ").map_or(line, |(_, words)| words).trim().to_owned(),
        None => {
            let lines: Vec<&str> =
                said.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_understood() {
        let cases = [
            (
                "nginx: [emerg] open() \"/var/log/nginx/a.log\" failed (30: Read-only file system)",
                Some("/var/log/nginx/a.log"),
            ),
            (
                "nginx: [emerg] mkdir() \"/var/cache/x/y\" failed (2: No such file or directory)",
                Some("/var/cache/x/y"),
            ),
            (
                "nginx: [emerg] chown(\"/var/lib/nginx/body\", 0) failed (1: Operation not permitted)",
                Some("/var/lib/nginx/body"),
            ),
            (
                "nginx: [emerg] bind() to unix:/var/run/a/b.sock failed (2: No such file)",
                Some("/var/run/a/b.sock"),
            ),
            ("nginx: [emerg] unknown directive \"x\" in /etc/nginx/nginx.conf:3", None),
            ("nginx: [emerg] open() \"/etc/../x\" failed (30: Read-only file system)", None),
        ];
        for (said, path) in cases {
            assert_eq!(unwritable(said), path.map(PathBuf::from), "{said}");
        }
        assert_eq!(last_words(cases[4].0), "unknown directive \"x\" in /etc/nginx/nginx.conf:3");
    }
}
