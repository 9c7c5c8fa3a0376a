//! A bench file as written, and its mistakes. The texts of its keys become tables of docs/reference/compare.md.

use crate::cmd::load::Intended;
use serde::Deserialize;
use serde::de::Deserializer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_gateway::config::schema::{FilePath, Named, Pairs};
use weir_gateway::config::units::Duration;
use weir_gateway::config::{Diagnostic, Diagnostics, Node, de, read_document};
use weir_load::compare::Contender;
use weir_load::{Compare, CompareOptions, Options};
use weir_report::Mistake;
use weir_report::comparison::{Published as PublishedFigures, figure_is_rate, figure_names};

/// A bench file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BenchFile {
    /// The name of the comparison.
    pub(super) name: String,
    /// A text about it.
    pub(super) about: String,
    /// Processes that targets need, such as an origin. They start before the targets.
    pub(super) processes: Named<Service>,
    /// What is compared: the others with the first.
    pub(super) targets: Named<Service>,
    /// The loads that are compared.
    pub(super) workloads: Named<Workload>,
}

/// A target, or a process that targets need.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Service {
    /// URL of a target.
    pub(super) url: Option<String>,
    /// Program and arguments; `weir` is the program that reads the file. Without it, the target must be running.
    pub(super) start: Vec<String>,
    /// Commands to run first, such as a compiler.
    pub(super) prepare: Vec<Vec<String>>,
    /// Limit of each of these commands. Default `30m`.
    pub(super) prepare_within: Option<Duration>,
    /// Folder of its commands. Default: that of the file.
    pub(super) cwd: Option<FilePath>,
    /// Additions to the environment of its commands.
    pub(super) env: Pairs,
    /// `HOST:PORT` that accepts connections, or a URL with a status below 500. Default: host and port of `url`.
    pub(super) ready: Option<Ready>,
    /// How long that may take. Default `10s`.
    pub(super) ready_within: Option<Duration>,
    /// `TERM` (default), `INT`, `QUIT`, `HUP` or `KILL`; killed after 5 s.
    pub(super) stop: Stop,
    /// Whose cost counts. Default: the process started, with descendants; `auto`: whoever listens there; or `none`.
    pub(super) pid: Option<Pid>,
    /// A command (5 s at most); the first line it prints goes into the result.
    pub(super) version: Vec<String>,
    /// If it cannot be prepared or started, or nothing listens there, leave it out and say so.
    pub(super) optional: bool,
    /// Whether requests to this target use HTTP/2. Default: as in the workload.
    pub(super) http2: Option<bool>,
    /// Whether requests to this target use HTTP/3. Default: as in the workload.
    pub(super) http3: Option<bool>,
    /// Header fields of requests to this target, beside those of the workload.
    pub(super) headers: Pairs,
}

/// How to tell that a process serves.
#[derive(Clone, Debug)]
pub(super) enum Ready {
    /// It accepts connections at this host and port.
    Port(String),
    /// It answers this URL with a status below 500.
    Url(String),
}

/// The signal that stops it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Stop {
    Hup,
    Int,
    Kill,
    Quit,
    #[default]
    Term,
}

/// Whose CPU time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pid {
    /// The process that listens at the target's address.
    Auto,
    None,
}

/// A load, and the figures that were published for it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Workload {
    /// Which targets, in this order. Default: all.
    pub(super) targets: Vec<String>,
    /// As `--connections`.
    connections: Option<u64>,
    /// As `--threads`.
    threads: Option<u64>,
    /// As `--streams`.
    streams: Option<u64>,
    /// As `--pipeline`.
    pipeline: Option<u64>,
    /// As `--rate`.
    rate: Option<String>,
    /// As `--http2`.
    http2: bool,
    /// As `--http3`.
    http3: bool,
    /// `false` as `--no-keepalive`.
    keepalive: Option<bool>,
    /// As `--insecure`.
    insecure: bool,
    /// As `--timeout`.
    timeout: Option<Duration>,
    /// As `--method`.
    method: Option<String>,
    /// Replaces path and query of the targets' URLs.
    path: Option<String>,
    /// Header fields.
    headers: Pairs,
    /// The body; for `grpc://` the message as JSON.
    body: Option<String>,
    /// A file that holds the body.
    body_file: Option<FilePath>,
    /// As `--proto`.
    protos: Vec<FilePath>,
    /// As `--metadata`.
    metadata: Pairs,
    /// As `--check`.
    checks: Vec<String>,
    /// As `--duration`.
    duration: Option<Duration>,
    /// As `--block`.
    block: Option<Duration>,
    /// As `--warmup`.
    warmup: Option<Duration>,
    /// As `--until`.
    until: Option<String>,
    /// As `--fail-if`.
    fail_if: Vec<String>,
    /// `ok` as `--cached ok`.
    cached: Option<Intended>,
    /// `true` as `--tls-resume`.
    tls_resume: bool,
    /// `ok` as `--unequal ok`.
    unequal: Option<Intended>,
    /// As `--seed`.
    seed: Option<u64>,
    /// As `--repeat-blocks`; what `processes` names must not use the generator's cores either.
    repeat_blocks: Option<u64>,
    /// Figures that others published, printed beside those measured.
    published: Vec<Published>,
}

/// Figures that were published.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Published {
    /// Who published them.
    who: String,
    /// Of which target.
    target: Option<String>,
    /// The machine they were measured on.
    machine: String,
    /// The figures, by the names of a gate.
    figures: Pairs,
}

impl<'de> Deserialize<'de> for Ready {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "a readiness check; expected e.g. 127.0.0.1:8081 or http://127.0.0.1:8081/health";
        let text = de::text(deserializer, EXPECTED)?;
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Self::Url(text));
        }
        let port = text
            .rsplit_once(':')
            .and_then(|(host, port)| port.parse::<u16>().ok().filter(|p| *p > 0 && !host.is_empty()));
        port.map(|_| Self::Port(text)).ok_or_else(|| de::refuse(EXPECTED, None))
    }
}

impl Stop {
    pub(super) const fn signal(self) -> libc::c_int {
        match self {
            Self::Hup => libc::SIGHUP,
            Self::Int => libc::SIGINT,
            Self::Kill => libc::SIGKILL,
            Self::Quit => libc::SIGQUIT,
            Self::Term => libc::SIGTERM,
        }
    }
}

impl Service {
    /// The readiness check: as written, else that something listens at the URL.
    pub(super) fn ready(&self) -> Option<Ready> {
        self.ready.clone().or_else(|| authority(self.url.as_deref()?).map(Ready::Port))
    }
}

/// Host and port of a URL.
pub(super) fn authority(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().filter(|a| !a.is_empty())?;
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if matches!(scheme, "https" | "grpcs" | "wss") { 443 } else { 80 };
    Some(if has_port { authority.to_owned() } else { format!("{authority}:{port}") })
}

impl BenchFile {
    /// Reads a file.
    ///
    /// # Errors
    /// Every mistake in it that can be found without starting anything.
    pub(super) fn read(path: &Path) -> Result<Self, Diagnostics> {
        let (read, mut found) = read_document::<Self>(path);
        let Some((file, tree)) = read else { return Err(found) };
        file.check(&tree, &mut found);
        if found.errors() == 0 { Ok(file) } else { Err(found) }
    }

    fn check(&self, tree: &Node, found: &mut Diagnostics) {
        let mut wrong = |path: &str, message: String| {
            found.push(Diagnostic::error("bad-bench", message).on(tree, path));
        };
        for (section, services) in [("processes", &self.processes), ("targets", &self.targets)] {
            for (name, service) in services.iter() {
                let path = format!("{section}.{name}");
                match (&service.url, section) {
                    (None, "targets") => wrong(&path, "a target needs a `url`".to_owned()),
                    (Some(_), "processes") => wrong(
                        &format!("{path}.url"),
                        "a process gets no requests: make it a target".to_owned(),
                    ),
                    _ => {}
                }
                if section == "processes" && service.start.is_empty() {
                    wrong(
                        &path,
                        "a process needs `start`, a list of the program and its arguments".to_owned(),
                    );
                }
                if !service.start.is_empty() && service.ready().is_none() {
                    wrong(
                        &path,
                        "`ready` is missing: add the address that shows when it serves, such as 127.0.0.1:8081".to_owned(),
                    );
                }
            }
        }
        for (section, is_empty) in
            [("targets", self.targets.is_empty()), ("workloads", self.workloads.is_empty())]
        {
            if is_empty {
                wrong(section, format!("expected at least one of `{section}`"));
            }
        }
        for (name, workload) in self.workloads.iter() {
            let path = format!("workloads.{name}");
            let known = |target: &str| self.targets.contains(target);
            let expected =
                || format!("expected one of {}", self.targets.names().collect::<Vec<_>>().join(", "));
            for (i, target) in workload.targets.iter().enumerate().filter(|(_, t)| !known(t)) {
                wrong(&format!("{path}.targets[{i}]"), format!("`{target}` is not a target; {}", expected()));
            }
            for (i, published) in workload.published.iter().enumerate() {
                let path = format!("{path}.published[{i}]");
                if let Some(target) = published.target.as_deref().filter(|t| !known(t)) {
                    wrong(&format!("{path}.target"), format!("`{target}` is not a target; {}", expected()));
                }
                for (figure, text) in &published.figures.0 {
                    if let Err(message) = read_figure(figure, text) {
                        wrong(&format!("{path}.figures.{figure}"), message);
                    }
                }
            }
            if workload.body.is_some() && workload.body_file.is_some() {
                wrong(
                    &format!("{path}.body_file"),
                    "there is already a `body`: give only one of the two".to_owned(),
                );
            }
        }
        // Do not repeat earlier mistakes in terms of a command line.
        if found.errors() > 0 {
            return;
        }
        for (name, workload) in self.workloads.iter() {
            let mut options = self.options(workload, &self.names(workload), &BTreeMap::new(), None);
            if self.prepares() && workload.body_file.as_ref().is_some_and(|path| !path.0.exists()) {
                options.own.iter_mut().for_each(|own| own.options.data = None);
            }
            if let Err(mistakes) = Compare::new(&options) {
                for mistake in mistakes {
                    let Mistake { place, hint } = mistake;
                    let message = format!("{place}: {hint}");
                    found.push(Diagnostic::error("bad-load", message).on(tree, &format!("workloads.{name}")));
                }
            }
        }
    }

    /// Whether commands run before the measurement. Files that are missing now may be their output.
    fn prepares(&self) -> bool {
        self.processes.iter().chain(self.targets.iter()).any(|(_, service)| !service.prepare.is_empty())
    }

    /// The targets of a workload.
    pub(super) fn names(&self, workload: &Workload) -> Vec<String> {
        let all = || self.targets.names().map(str::to_owned).collect();
        if workload.targets.is_empty() { all() } else { workload.targets.clone() }
    }

    /// The comparison of a workload between some targets. `time` replaces its duration.
    pub(super) fn options(
        &self,
        workload: &Workload,
        names: &[String],
        pids: &BTreeMap<String, String>,
        time: Option<&str>,
    ) -> CompareOptions {
        let ns = |time: Option<Duration>| time.map(|time| format!("{}ns", time.0.as_nanos()));
        let own = names.iter().filter_map(|name| {
            let target = self.targets.get(name)?;
            let url = target.url.as_deref()?;
            let mut options = workload.options();
            options.urls =
                vec![workload.path.as_deref().map_or_else(|| url.to_owned(), |path| with_path(url, path))];
            // A target that names one version does not get the workload's other one too.
            options.http2 = target.http2.unwrap_or(workload.http2 && target.http3 != Some(true));
            options.http3 = target.http3.unwrap_or(workload.http3 && target.http2 != Some(true));
            let is_grpc = url.starts_with("grpc");
            options.streams = workload.streams.filter(|_| options.http2 || options.http3 || is_grpc);
            if is_grpc {
                // A message is written as JSON, which belongs in `data` and not in `body`.
                let text = options.body.take().and_then(|body| String::from_utf8(body).ok());
                options.data = options.data.or(text);
            }
            options.headers.extend(target.headers.0.iter().map(|(n, v)| format!("{n}: {v}")));
            options.pid = pids.get(name).cloned();
            Some(Contender { name: name.clone(), options })
        });
        CompareOptions {
            own: own.collect(),
            duration: time.map(str::to_owned).or_else(|| ns(workload.duration)),
            block: ns(workload.block).filter(|_| time.is_none()),
            warmup: ns(workload.warmup).filter(|_| time.is_none()),
            until: workload.until.clone(),
            fail_if: workload.fail_if.clone(),
            unequal: workload.unequal.is_some(),
            seed: workload.seed,
            repeat_blocks: workload.repeat_blocks,
            ..CompareOptions::default()
        }
    }
}

impl Workload {
    fn options(&self) -> Options {
        let pairs = |pairs: &Pairs| pairs.0.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        Options {
            method: self.method.clone(),
            headers: pairs(&self.headers),
            body: self.body.clone().map(String::into_bytes),
            data: self.body_file.as_ref().map(|path| format!("@{}", path.0.display())),
            raw: true,
            protos: self.protos.iter().map(|path| path.0.clone()).collect(),
            metadata: pairs(&self.metadata),
            connections: self.connections,
            threads: self.threads,
            pipeline: self.pipeline,
            rate: self.rate.clone(),
            no_keepalive: self.keepalive == Some(false),
            cached: self.cached.is_some(),
            tls_resume: self.tls_resume,
            insecure: self.insecure,
            timeout: self.timeout.map(|time| format!("{}ns", time.0.as_nanos())),
            checks: self.checks.clone(),
            ..Options::default()
        }
    }

    /// The published figures, in the units of a comparison.
    pub(super) fn published(&self) -> Vec<PublishedFigures> {
        let figures = |pairs: &Pairs| {
            let read = |(name, text): &(String, String)| Some((name.clone(), read_figure(name, text).ok()?));
            pairs.0.iter().filter_map(read).collect()
        };
        let one = |p: &Published| PublishedFigures {
            who: p.who.clone(),
            target: p.target.clone(),
            figures: figures(&p.figures),
            machine: p.machine.clone(),
        };
        self.published.iter().map(one).collect()
    }
}

/// `25445/s` for a rate, `68.65ms` for a time.
fn read_figure(name: &str, text: &str) -> Result<f64, String> {
    let read = match figure_is_rate(name) {
        None => {
            return Err(format!("`{name}` is not a figure; expected {}", figure_names()));
        }
        Some(true) => weir_report::rate(text),
        Some(false) => weir_report::duration(text).map(|time| time.as_nanos() as f64),
    };
    read.ok_or_else(|| {
        format!("`{text}` is not a figure; expected a rate such as 25445/s, a time such as 68.65ms")
    })
}

fn with_path(url: &str, path: &str) -> String {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(begin..).and_then(|rest| rest.find(['/', '?'])).map_or(url.len(), |at| begin + at);
    format!("{}{path}", &url[..end])
}

/// The folder in which commands of a file run.
pub(super) fn folder(file: &Path) -> PathBuf {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}
