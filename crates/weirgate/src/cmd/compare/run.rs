//! Runs a bench file: prepares and starts its processes, compares, and stops all of them however the run ends.

use super::file::{BenchFile, Pid, Ready, Service, authority, folder};
use crate::cmd::process::{LOOK, Process};
use anyhow::{Result, anyhow};
use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_load::{Compare, Interrupt, Options, Plan};
use weir_report::comparison::{ComparisonSet, LeftOut, Workload};

/// Defaults: how long a process may take until it serves, and how long a command that prepares it may take.
const READY: Duration = Duration::from_secs(10);
const PREPARE: Duration = Duration::from_secs(30 * 60);

/// How long a command that prints a version may take.
const VERSION: Duration = Duration::from_secs(5);

/// Timeout of one attempt to connect.
const CONNECT: Duration = Duration::from_millis(500);

/// A running bench file. Dropping it stops all processes, last started first.
pub(super) struct Bench<'a> {
    file: &'a BenchFile,
    folder: PathBuf,
    interrupt: &'a Interrupt,
    tell: &'a dyn Fn(&str),
    processes: Vec<Process>,
    pids: BTreeMap<String, String>,
    result: ComparisonSet,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        while self.processes.pop().is_some() {}
    }
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        file: &'a BenchFile,
        path: &Path,
        interrupt: &'a Interrupt,
        tell: &'a dyn Fn(&str),
    ) -> Self {
        let name = if file.name.is_empty() { path.display().to_string() } else { file.name.clone() };
        Self {
            file,
            folder: folder(path),
            interrupt,
            tell,
            processes: Vec::new(),
            pids: BTreeMap::new(),
            result: ComparisonSet::new(&name, &file.about),
        }
    }

    /// Runs the workloads with these names, or all, each for its own duration or for `time`.
    ///
    /// # Errors
    /// A process or target that is not optional fails to prepare or start.
    pub(super) fn run(mut self, only: &[String], time: Option<&str>) -> Result<ComparisonSet> {
        let workloads: Vec<_> = self
            .file
            .workloads
            .iter()
            .filter(|(name, _)| only.is_empty() || only.iter().any(|o| o == name))
            .collect();
        for (name, process) in self.file.processes.iter() {
            self.add(name, process)?;
        }
        for (name, target) in self.file.targets.iter() {
            if workloads.iter().any(|(_, w)| self.file.names(w).iter().any(|n| n == name)) {
                self.add(name, target)?;
            }
        }
        for (name, workload) in workloads {
            let out = |name: &String| !self.result.left_out.iter().any(|l| l.target == *name);
            let names: Vec<String> = self.file.names(workload).into_iter().filter(out).collect();
            if names.is_empty() || self.interrupt.is_ended() {
                continue;
            }
            let mut options = self.file.options(workload, &names, &self.pids, time);
            options.needed = self.processes.iter().map(Process::pid).collect();
            let compare = Compare::new(&options).map_err(|all| {
                anyhow!(
                    "workload {name}: {}",
                    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
                )
            })?;
            let tell = self.tell;
            let comparison = compare
                .run(self.interrupt, |round, target| tell(&format!("{name}: round {round}: {target}")))?;
            self.result.workloads.push(Workload {
                name: name.to_owned(),
                comparison,
                published: workload.published(),
            });
        }
        (self.tell)("\r");
        Ok(std::mem::take(&mut self.result))
    }

    /// Prepares and starts a process. An optional one that fails is left out.
    fn add(&mut self, name: &str, service: &Service) -> Result<()> {
        if self.interrupt.is_ended() {
            return Ok(());
        }
        match self.start(name, service) {
            Ok(()) => Ok(()),
            Err(_) if self.interrupt.is_ended() => Ok(()),
            Err(e) if service.optional => {
                let left = LeftOut { target: name.to_owned(), reason: format!("{e:#}") };
                self.result.left_out.push(left);
                Ok(())
            }
            Err(e) => Err(anyhow!("{name}: {e:#}")),
        }
    }

    fn start(&mut self, name: &str, service: &Service) -> Result<()> {
        let within = service.prepare_within.map_or(PREPARE, |time| time.0);
        for argv in &service.prepare {
            (self.tell)(&format!("{name}: {}", argv.join(" ")));
            self.finish(&mut self.command(argv, service)?, within)?;
        }
        if !service.version.is_empty()
            && let Ok(printed) = self.finish(&mut self.command(&service.version, service)?, VERSION)
        {
            let line = printed.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            self.result.versions.insert(name.to_owned(), line.trim().to_owned());
        }
        if service.start.is_empty() {
            // Another process serves this target, and that process may have been left out.
            let place = service.url.as_deref().and_then(authority).filter(|_| service.optional);
            if let Some(place) = place.filter(|place| !connects(place)) {
                return Err(anyhow!("nothing listens on {place}"));
            }
            if service.pid == Some(Pid::Auto) {
                self.pids.insert(name.to_owned(), "auto".to_owned());
            }
            return Ok(());
        }
        let ready = service.ready().ok_or_else(|| anyhow!("`ready` is missing"))?;
        let place = match &ready {
            Ready::Port(place) => Some(place.clone()),
            Ready::Url(url) => authority(url),
        };
        // A process that already listens there would be measured instead of ours.
        if place.as_deref().is_some_and(connects) {
            return Err(anyhow!("something listens on {} already", place.unwrap_or_default()));
        }
        (self.tell)(&format!("{name}: starting"));
        let mut process = Process::start(&mut self.command(&service.start, service)?, service.stop.signal())?;
        let within = service.ready_within.map_or(READY, |time| time.0);
        let until = Instant::now() + within;
        while !is_ready(&ready, self.interrupt) {
            if let Some(status) = process.ended() {
                return Err(anyhow!("it ended with {status} before it served: {}", process.printed()));
            }
            if self.interrupt.is_ended() || Instant::now() > until {
                return Err(anyhow!("it does not serve after {within:?}: {}", process.printed()));
            }
            std::thread::sleep(LOOK);
        }
        // If another process took the port meanwhile, ours fails only now.
        if let Some(status) = process.ended() {
            return Err(anyhow!("it ended with {status}: {}", process.printed()));
        }
        match service.pid {
            Some(Pid::Auto) => drop(self.pids.insert(name.to_owned(), "auto".to_owned())),
            Some(Pid::None) => {}
            None => drop(self.pids.insert(name.to_owned(), process.pid().to_string())),
        }
        self.processes.push(process);
        Ok(())
    }

    fn command(&self, argv: &[String], service: &Service) -> Result<Command> {
        let (program, args) = argv.split_first().ok_or_else(|| anyhow!("a command without a program"))?;
        let cwd = service.cwd.as_ref().map_or_else(|| self.folder.clone(), |cwd| self.folder.join(&cwd.0));
        let cwd = std::path::absolute(cwd)?;
        let mut command = match program.as_str() {
            "weir" => Command::new(std::env::current_exe()?),
            // Otherwise a relative path would be resolved against our working directory, not against `cwd`.
            path if path.contains('/') => Command::new(cwd.join(path)),
            name => Command::new(name),
        };
        command.args(args).current_dir(cwd);
        command.envs(service.env.0.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Runs a command to completion and returns its output.
    fn finish(&self, command: &mut Command, within: Duration) -> Result<String> {
        let shown = format!("{command:?}");
        let until = Instant::now() + within;
        let mut process = Process::start(command, libc::SIGTERM).map_err(|e| anyhow!("{shown}: {e}"))?;
        loop {
            match process.ended() {
                Some(status) if status.success() => return Ok(process.printed()),
                Some(status) => return Err(anyhow!("{shown} ended with {status}: {}", process.printed())),
                None if self.interrupt.is_ended() => return Err(anyhow!("interrupted")),
                None if Instant::now() > until => {
                    return Err(anyhow!("{shown} is not done after {within:?}: {}", process.printed()));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }
}

fn connects(place: &str) -> bool {
    let mut addresses = place.to_socket_addrs().into_iter().flatten();
    addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT).is_ok())
}

fn is_ready(ready: &Ready, interrupt: &Interrupt) -> bool {
    match ready {
        Ready::Port(place) => connects(place),
        Ready::Url(url) => {
            let options = Options {
                urls: vec![url.clone()],
                requests: Some("1".to_owned()),
                connections: Some(1),
                threads: Some(1),
                insecure: true,
                timeout: Some(format!("{}ms", CONNECT.as_millis())),
                ..Options::default()
            };
            let report = Plan::new(&options).ok().and_then(|plan| plan.run(interrupt, |_| ()).ok());
            report.is_some_and(|r| r.counts.statuses.keys().any(|status| *status < 500))
        }
    }
}

/// Whether a condition failed, or a target gave no answer.
pub(super) fn has_failed(set: &ComparisonSet) -> bool {
    set.workloads.iter().any(|w| w.comparison.has_failed())
}
