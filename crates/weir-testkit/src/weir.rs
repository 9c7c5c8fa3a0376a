//! Runs the binary: a gateway as a child process, or one command to its end.
//!
//! The required output is a contract with `weir run`. On stderr, as text, it prints one line `info listening
//! listener=NAME address=ADDRESS` per listener, `info admin address=ADDRESS`, and `info ready`. After a reload it
//! prints `info reloaded` or `error reload refused`.

#![allow(unsafe_code, reason = "kill, and a call between fork and exec")]

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::alone;
use crate::h2::H2;
use crate::output::{LogLine, Output};
use crate::wire::DEADLINE;
use crate::{Client, Conn, Upstream};

/// Defaults added to a config that does not set them, so that tests run in parallel and behave predictably. They
/// are a free port for the admin listener, one worker (so that two clients share a pool), no file watching, and
/// visible causes.
const DEFAULTS: &[(&str, &str)] = &[
    ("admin:", "admin: { address: 127.0.0.1:0 }"),
    ("workers:", "workers: 1"),
    ("watch:", "watch: false"),
    ("expose_causes:", "expose_causes: true"),
];

/// A running gateway. It is killed when this is dropped, or when the thread that started it ends.
#[derive(Debug)]
pub struct Weir {
    child: Child,
    dir: TempDir,
    stdout: Output,
    stderr: Output,
    /// Processes that replaced the first, in order.
    successors: Mutex<Vec<u32>>,
}

/// The result of a process.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr: diagnostics or log.
    pub stderr: String,
}

impl Finished {
    /// Asserts this exit code.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert!(self.code == Some(code), "expected exit code {code}, but:\n{self:#?}");
        self
    }

    /// Asserts that either stream contains this text.
    #[track_caller]
    pub fn expect_text(&self, text: &str) -> &Self {
        let found = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(found, "expected {text:?}, but:\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }
}

impl Weir {
    /// Starts `weir run` with this config and waits until it is ready.
    ///
    /// Adds settings that tests need if the config lacks them: `admin` on a free port, `workers: 1`, `watch:
    /// false`, `expose_causes: true`. `{dir}` stands for the folder of the config. Listeners should use port 0.
    #[track_caller]
    pub fn start(yaml: &str) -> Self {
        let dir = TempDir::new().unwrap();
        write_config(dir.path(), yaml);
        Self::run(weir_command(dir.path()).args(["run", "-c", "weir.yaml"]), dir)
    }

    /// As [`Self::start`], with the binary symlinked into its own folder as `{dir}/weir`, which a test may
    /// replace.
    #[track_caller]
    pub fn start_installed(yaml: &str) -> Self {
        let dir = TempDir::new().unwrap();
        write_config(dir.path(), yaml);
        let installed = dir.path().join("weir");
        install(&installed);
        let command = &mut command_for(&installed, dir.path());
        Self::run(command.args(["run", "-c", "weir.yaml"]), dir)
    }

    /// Starts `weir run` through this command, in a folder with this config. The command must finally exec the
    /// gateway.
    #[track_caller]
    pub fn start_by(yaml: &str, command: impl FnOnce(&Path) -> Command) -> Self {
        let dir = TempDir::new().unwrap();
        write_config(dir.path(), yaml);
        let mut command = command(dir.path());
        Self::run(&mut command, dir)
    }

    /// A gateway with one listener `web` and one route, `/*`, to an upstream `up` with these endpoints.
    #[track_caller]
    pub fn in_front_of(upstream: &Upstream) -> Self {
        Self::in_front_of_with(upstream, "")
    }

    /// As [`Self::in_front_of`], with more config: top-level keys in YAML, except `upstreams`, `routes` and
    /// `listeners`. See [`Self::start`] for a config of your own.
    #[track_caller]
    pub fn in_front_of_with(upstream: &Upstream, more: &str) -> Self {
        let address = upstream.address();
        Self::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
             upstreams: {{ up: {{ endpoints: [{address}] }} }}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }} }}\n{more}"
        ))
    }

    #[track_caller]
    fn run(command: &mut Command, dir: TempDir) -> Self {
        let mut tries = 1..PORT_TRIES;
        loop {
            let mut child = spawn(command);
            let (stdout, stderr) = outputs(&mut child);
            let is_ready = stderr.wait_for(START_DEADLINE, |text| find(text, "ready")).is_some();
            if !is_ready && is_port_of_another_test(&stderr.text()) && tries.next().is_some() {
                child.wait().unwrap();
                continue;
            }
            let weir = Self { child, dir, stdout, stderr, successors: Mutex::default() };
            assert!(is_ready, "weir did not become ready:\n{}", weir.stderr());
            return weir;
        }
    }

    // === Addresses and clients ===

    /// The address of a listener.
    #[track_caller]
    pub fn address(&self, listener: &str) -> String {
        let lines = self.logged("listening");
        let of = |line: &&LogLine| line.field("listener") == Some(listener);
        let mut addresses = lines.iter().rev().filter(of).filter_map(|line| line.field("address"));
        match addresses.find(|address| !address.starts_with("udp:")) {
            Some(address) => address.to_owned(),
            None => panic!("no listener {listener} in:\n{}", self.stderr()),
        }
    }

    /// The address of the UDP socket of the listener `web`.
    #[track_caller]
    pub fn udp_address(&self) -> String {
        let lines = self.logged("listening");
        let mut addresses = lines.iter().rev().filter_map(|line| line.field("address"));
        match addresses.find_map(|address| address.strip_prefix("udp:")) {
            Some(address) => address.to_owned(),
            None => panic!("no UDP socket in:\n{}", self.stderr()),
        }
    }

    /// The address of the admin listener.
    #[track_caller]
    pub fn admin(&self) -> String {
        match self.logged("admin").last().and_then(|line| line.field("address")) {
            Some(address) => address.to_owned(),
            None => panic!("no admin listener in:\n{}", self.stderr()),
        }
    }

    /// A client of the listener `web`.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address("web"))
    }

    /// A new client that has sent this, and the new connection on which the upstream has read it.
    #[track_caller]
    pub fn begin(&self, upstream: &Upstream, request: impl AsRef<[u8]>) -> (Client, Conn) {
        let mut client = self.client();
        client.send(request);
        (client, upstream.accept_request())
    }

    /// An HTTP/2 client of the listener `web`.
    #[track_caller]
    pub fn h2(&self) -> H2<Client> {
        H2::client(self.client())
    }

    /// A client of the admin listener.
    #[track_caller]
    pub fn admin_client(&self) -> Client {
        Client::connect(self.admin())
    }

    /// The folder of the config.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    // === Output ===

    /// Its log so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Its stdout so far: the access log, unless the config moves it.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// The log lines with this message.
    pub fn logged(&self, message: &str) -> Vec<LogLine> {
        let lines = self.stderr().lines().filter_map(LogLine::parse).collect::<Vec<_>>();
        lines.into_iter().filter(|line| line.message == message).collect()
    }

    /// Waits for a log line with this message.
    #[track_caller]
    pub fn wait_log(&self, message: &str) -> LogLine {
        match self.stderr.wait_for(DEADLINE, |text| find(text, message)) {
            Some(line) => line,
            None => panic!("no {message:?} in the log:\n{}", self.stderr()),
        }
    }

    /// Waits for a line on stdout that contains this text.
    #[track_caller]
    pub fn wait_stdout(&self, needle: &str) -> String {
        let find = |text: &str| text.lines().find(|line| line.contains(needle)).map(str::to_owned);
        match self.stdout.wait_for(DEADLINE, find) {
            Some(line) => line,
            None => panic!("no {needle:?} on stdout:\n{}", self.stdout()),
        }
    }

    // === Control ===

    /// Writes the config without triggering a reload.
    pub fn write_config(&self, yaml: &str) {
        write_config(self.dir.path(), yaml);
    }

    /// Replaces the config, sends SIGHUP, and waits for the result.
    ///
    /// # Errors
    /// The new config was refused; contains everything logged about it.
    #[track_caller]
    pub fn reload_with(&self, yaml: &str) -> Result<(), String> {
        self.write_config(yaml);
        self.reload()
    }

    /// Sends SIGHUP and waits for the result.
    ///
    /// # Errors
    /// The config was refused; contains everything logged about it.
    #[track_caller]
    pub fn reload(&self) -> Result<(), String> {
        let before = self.stderr().len();
        self.signal(libc::SIGHUP);
        self.wait_reload_after(before)
    }

    /// Waits for the result of a reload that something else triggered. Considers only the log after the first
    /// `before` bytes of [`Self::stderr`].
    ///
    /// # Errors
    /// The config was refused; contains everything logged about it.
    #[track_caller]
    pub fn wait_reload_after(&self, before: usize) -> Result<(), String> {
        let verdict = self.stderr.wait_for(DEADLINE, |text| {
            let text = &text[before..];
            match (find(text, "reloaded"), find(text, "reload refused")) {
                (Some(_), _) => Some(Ok(())),
                (_, Some(_)) => Some(Err(text.to_owned())),
                _ => None,
            }
        });
        verdict.unwrap_or_else(|| panic!("no verdict on the reload:\n{}", self.stderr()))
    }

    /// Sends SIGUSR2 to the serving process and waits for the result; returns the process that serves afterwards.
    ///
    /// # Errors
    /// Why the upgrade failed.
    #[track_caller]
    pub fn upgrade(&self) -> Result<u32, String> {
        let before = self.stderr().len();
        send_signal(self.serving(), libc::SIGUSR2);
        self.wait_upgrade_after(before)
    }

    /// Sends SIGUSR2 and waits until the next process has been started.
    #[track_caller]
    pub fn upgrade_begin(&self) {
        send_signal(self.serving(), libc::SIGUSR2);
        self.wait_log("upgrade begun");
    }

    /// Waits for the result of an upgrade, considering only the log after the first `before` bytes.
    ///
    /// # Errors
    /// Why the upgrade failed.
    #[track_caller]
    pub fn wait_upgrade_after(&self, before: usize) -> Result<u32, String> {
        let verdict = self.stderr.wait_for(RUN_DEADLINE, |text| {
            let text = &text[before..];
            match (find(text, "upgraded"), find(text, "not upgraded: this process keeps serving")) {
                (Some(line), _) => Some(Ok(line.field("pid")?.parse().ok()?)),
                (_, Some(_)) => Some(Err(text.to_owned())),
                _ => None,
            }
        });
        let verdict = verdict.unwrap_or_else(|| panic!("no verdict on the upgrade:\n{}", self.stderr()));
        if let Ok(pid) = verdict {
            self.successors.lock().unwrap().push(pid);
        }
        verdict
    }

    /// The serving process: the last one that an upgrade started, or else the first.
    pub fn serving(&self) -> u32 {
        self.successors.lock().unwrap().last().copied().unwrap_or_else(|| self.pid())
    }

    /// The processes that upgrades started, in order.
    pub fn successors(&self) -> Vec<u32> {
        self.successors.lock().unwrap().clone()
    }

    /// Sends a signal, such as `libc::SIGTERM`.
    pub fn signal(&self, signal: i32) {
        send_signal(self.pid(), signal);
    }

    /// Waits until it ends.
    #[track_caller]
    pub fn wait_exit(&mut self, deadline: Duration) -> Finished {
        match wait(&mut self.child, [&self.stdout, &self.stderr], deadline) {
            Some(status) => {
                Finished { code: status.code(), stdout: self.stdout.text(), stderr: self.stderr.text() }
            }
            None => panic!("weir did not end within {deadline:?}:\n{}", self.stderr()),
        }
    }

    /// Sends SIGTERM and waits until it ends.
    #[track_caller]
    pub fn stop(mut self) -> Finished {
        self.signal(libc::SIGTERM);
        self.wait_exit(DEADLINE)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    // === Resources ===

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory in KiB, without pages of files: those of the program come and go.
    pub fn rss_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let kib = |key: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        kib("RssAnon:") + kib("RssShmem:")
    }

    /// Number of open file descriptors.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // They are not our children. A pid may have been reused by now, so the process must also run our binary.
        for pid in self.successors.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let runs_here = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.dir.path());
            if runs_here {
                send_signal(pid, libc::SIGKILL);
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the log of weir\n{}---", self.stderr());
        }
    }
}

fn send_signal(pid: u32, signal: i32) {
    // SAFETY: kill touches no memory of ours.
    let sent = unsafe { libc::kill(pid.cast_signed(), signal) };
    assert_eq!(sent, 0, "kill {pid}: {}", io::Error::last_os_error());
}

/// Installs the binary at this path, replacing what is there.
pub fn install(path: &Path) {
    // A symlink, because a copy is briefly open for writing, and a test that forks meanwhile keeps it open
    // (ETXTBSY).
    let beside = path.with_extension("new");
    std::os::unix::fs::symlink(binary(), &beside).unwrap();
    fs::rename(beside, path).unwrap();
}

/// How long a gateway may take until it serves. The largest config of a test, every pair of filters behind a cache,
/// compiles for more than 10 s where the tests are not optimized and the machine is busy.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// How often a gateway is started if another test has its UDP port.
const PORT_TRIES: u32 = 3;

/// Timeout of a command: some measure for seconds, on a machine that runs other tests at the same time.
const RUN_DEADLINE: Duration = Duration::from_secs(90);

/// Runs `weir` with these arguments in this folder, to completion.
#[track_caller]
pub fn run_weir(dir: &Path, args: &[&str]) -> Finished {
    let mut child = spawn(weir_command(dir).args(args));
    let (stdout, stderr) = outputs(&mut child);
    let status = wait(&mut child, [&stdout, &stderr], RUN_DEADLINE);
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
        panic!("weir {args:?} did not end within {RUN_DEADLINE:?}:\n{}\n{}", stdout.text(), stderr.text());
    }
    Finished { code: status.and_then(|status| status.code()), stdout: stdout.text(), stderr: stderr.text() }
}

/// A command that runs the binary in this folder, with a clean environment.
///
/// The binary is the one named by `WEIR_BIN`, or else the one in the target folder of the running test.
pub fn weir_command(dir: &Path) -> Command {
    command_for(&binary(), dir)
}

/// As [`weir_command`], for a program that the test provides.
pub fn command_for(program: &Path, dir: &Path) -> Command {
    alone::join_crowd();
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") || name == "NOTIFY_SOCKET" {
            command.env_remove(name);
        }
    }
    // SAFETY: prctl is a plain system call, and the closure neither allocates nor locks.
    unsafe {
        command.pre_exec(|| {
            // A killed test takes its gateway along. The signal arrives when the *thread* that started the
            // gateway ends, so no gateway outlives its test.
            match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    command
}

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        return path.into();
    }
    // target/<profile>/deps/e2e-<hash> → target/<profile>/weir
    let test = std::env::current_exe().unwrap();
    let beside = test.with_file_name("weir"); // if the program is a test
    let path = if beside.exists() { beside } else { test.ancestors().nth(2).unwrap().join("weir") };
    assert!(
        path.exists(),
        "{} is not there: build it first (`cargo build -p weirgate`, with the profile of the tests), or set WEIR_BIN",
        path.display()
    );
    path
}

fn spawn(command: &mut Command) -> Child {
    command
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", command.get_program().display()))
}

fn outputs(child: &mut Child) -> (Output, Output) {
    let stdout = child.stdout.take().expect("stdout is a pipe");
    let stderr = child.stderr.take().expect("stderr is a pipe");
    (Output::collect(stdout), Output::collect(stderr))
}

/// Whether a gateway did not start because another test has its UDP port. For port 0, the system chooses a free port of
/// TCP, and HTTP/3 needs that of UDP with the same number.
fn is_port_of_another_test(stderr: &str) -> bool {
    stderr.lines().any(|line| line.contains(": UDP 127.0.0.1:") && line.contains(" is taken by "))
}

/// Waits until the process ends, at which point its outputs close, and until both have been read to their ends.
fn wait(child: &mut Child, outputs: [&Output; 2], deadline: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + deadline;
    let ended =
        outputs.iter().all(|output| output.wait_closed(until.saturating_duration_since(Instant::now())));
    ended.then(|| child.wait().unwrap())
}

fn write_config(dir: &Path, yaml: &str) {
    let mut yaml = yaml.replace("{dir}", &dir.display().to_string());
    // A config with a source may contain only the node's own settings.
    let is_node = yaml.lines().any(|line| line.starts_with("source:"));
    for (key, line) in DEFAULTS.iter().filter(|(key, _)| !is_node || matches!(*key, "admin:" | "workers:")) {
        if !yaml.lines().any(|line| line.starts_with(key)) {
            yaml = format!("{}\n{line}\n", yaml.trim_end());
        }
    }
    // By a rename, so that a watcher never reads half a file.
    fs::write(dir.join("weir.yaml.new"), yaml).unwrap();
    fs::rename(dir.join("weir.yaml.new"), dir.join("weir.yaml")).unwrap();
}

fn find(text: &str, message: &str) -> Option<LogLine> {
    text.lines().filter_map(LogLine::parse).find(|line| line.message == message)
}
