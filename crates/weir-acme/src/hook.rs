//! The command that creates and removes TXT records (`dns-01`). It gets arguments, never a shell: `present` or
//! `cleanup`, the name of the record, and its value.
//!
//! It ends on its own, or we kill it with its whole process group, after its timeout or when nobody waits for it any
//! more. On failure we report its output, up to a limit.

use crate::failure::{Failure, Kind, one_line};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Most bytes of a command's output that we keep; the rest is discarded.
const SAID_BYTES: usize = 4096;

/// How often we check whether it has ended.
const ASK: Duration = Duration::from_millis(20);

/// A command for DNS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hook {
    /// The program, and the arguments that precede ours.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// How long a record takes to become visible everywhere.
    pub wait: Duration,
}

/// The task of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Cleanup,
    Present,
}

impl Action {
    const fn argument(self) -> &'static str {
        match self {
            Self::Cleanup => "cleanup",
            Self::Present => "present",
        }
    }
}

impl Hook {
    /// Runs the command to its end. Dropping this future kills it.
    pub(crate) async fn run(&self, action: Action, record: &str, value: &str) -> Result<(), Failure> {
        let child = self.spawn(action, record, value)?;
        let (done, ended) = oneshot::channel();
        let given_up = GiveUp(Arc::default());
        let (gone, timeout) = (Arc::clone(&given_up.0), self.timeout);
        thread::Builder::new()
            .name("weir-acme-hook".to_owned())
            .spawn(move || drop(done.send(watch(child, timeout, &gone)))) // nobody may wait any more
            .map_err(|e| self.failed(action, &e.to_string()))?;
        match ended.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(self.failed(action, &why)),
            Err(_) => Err(self.failed(action, "nothing is known of its end")),
        }
    }

    /// Runs the command without waiting for it; its timeout still applies.
    pub(crate) fn run_detached(&self, action: Action, record: &str, value: &str) {
        let Ok(child) = self.spawn(action, record, value) else { return };
        let timeout = self.timeout;
        let watching = thread::Builder::new().name("weir-acme-hook".to_owned());
        drop(watching.spawn(move || watch(child, timeout, &AtomicBool::new(false))));
    }

    fn spawn(&self, action: Action, record: &str, value: &str) -> Result<Child, Failure> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| Failure::new(Kind::Hook, "there is no command for DNS"))?;
        let mut command = Command::new(program);
        command.args(arguments).args([action.argument(), record, value]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0); // so that we can kill all of it
        command.spawn().map_err(|e| self.failed(action, &format!("it cannot be started: {e}")))
    }

    fn failed(&self, action: Action, why: &str) -> Failure {
        let program = self.command.first().map_or("", String::as_str);
        Failure::new(Kind::Hook, format!("{program} {}: {why}", action.argument()))
    }
}

/// Tells the watching thread that nobody waits for the command.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for a command to end.
fn watch(mut child: Child, timeout: Duration, given_up: &AtomicBool) -> Result<(), String> {
    let said = [child.stdout.take().map(read), child.stderr.take().map(read)];
    let end = Instant::now().checked_add(timeout);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if given_up.load(Ordering::Relaxed) => {
                break Err("nobody waits for it any more".to_owned());
            }
            Ok(None) if end.is_some_and(|end| Instant::now() >= end) => {
                break Err(format!("it took longer than {} s and was killed", timeout.as_secs_f64()));
            }
            Ok(None) => thread::sleep(ASK),
            Err(e) => break Err(e.to_string()),
        }
    };
    let status = status.inspect_err(|_| {
        kill(&child);
        let _ = child.wait(); // it is dead
    })?;
    if status.success() {
        return Ok(());
    }
    let said: Vec<String> =
        said.into_iter().flatten().filter_map(|said| said.recv_timeout(ASK * 10).ok()).collect();
    Err(format!("{}: {}", ended(status), one_line(&said.join(" "))))
}

/// Reads to the end and keeps the beginning. Runs in its own thread: a command that writes more than a pipe holds
/// would otherwise never end.
fn read(mut from: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<String> {
    let (to, said) = std::sync::mpsc::channel();
    drop(thread::Builder::new().name("weir-acme-hook".to_owned()).spawn(move || {
        let mut kept = Vec::new();
        let limit = u64::try_from(SAID_BYTES).unwrap_or(u64::MAX);
        let _ = (&mut from).take(limit).read_to_end(&mut kept); // keep what came until then
        let _ = to.send(String::from_utf8_lossy(&kept).into_owned()); // on success nobody asks
        let _ = io::copy(&mut from, &mut io::sink());
    }));
    said
}

fn ended(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("it ended with {code}"),
        None => "a signal ended it".to_owned(),
    }
}

/// Kills the command and all its child processes.
fn kill(child: &Child) {
    let group = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL); // it may have ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn hook(dir: &Path, script: &str, timeout: Duration) -> Hook {
        let path = dir.join("hook");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // Run by the interpreter: a file that another thread's child still has open for writing cannot be executed.
        let command = vec!["/bin/sh".to_owned(), path.display().to_string(), "first".to_owned()];
        Hook { command, timeout, wait: Duration::ZERO }
    }

    fn run(hook: &Hook) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(hook.run(Action::Present, "_acme-challenge.a.test", "v; $(touch x)"))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_gets_arguments_and_no_shell_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let hook = hook(dir.path(), &format!("printf '%s|' \"$@\" > {}", out.display()), LONG);
        run(&hook).unwrap();
        assert_eq!(fs::read_to_string(out).unwrap(), "first|present|_acme-challenge.a.test|v; $(touch x)|");
    }

    #[test]
    fn what_it_says_is_told_where_it_fails() {
        let dir = tempfile::tempdir().unwrap();
        let failed = run(&hook(dir.path(), "echo no zone; echo twice >&2; exit 3", LONG)).unwrap_err();
        assert_eq!(failed.kind, Kind::Hook);
        assert!(failed.text.ends_with("present: it ended with 3: no zone twice"), "{failed}");
        let missing = Hook { command: vec!["/nowhere/hook".to_owned()], timeout: LONG, wait: Duration::ZERO };
        assert!(run(&missing).unwrap_err().text.contains("cannot be started"));
    }

    #[test]
    fn one_that_says_much_or_takes_long_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let much = "i=0; while [ $i -lt 4000 ]; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; i=$((i+1)); done; exit 1";
        let failed = run(&hook(dir.path(), much, LONG)).unwrap_err();
        assert!(failed.text.len() < 700, "{}", failed.text.len());
        let forever = hook(dir.path(), "tail -f /dev/null & wait", Duration::from_millis(50));
        assert!(run(&forever).unwrap_err().text.contains("was killed"));
    }
}
