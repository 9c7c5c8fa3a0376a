//! `weir load`: load-tests a target. This file parses the command line; weir-load gives it its meaning.
//!
//! *Layout.* `ci` holds the options for CI systems and the exit codes, `aliases` translates the options of other load
//! testers, `args` holds options shared with other commands. `outputs` writes the report to places besides stdout,
//! `prometheus` is the thread that sends figures to Prometheus, `replay` is the subcommand of that name.
//! `plan_file` reads plans with scenarios. `live` is the view on the terminal (cargo feature `live`).

mod agents;
mod aliases;
mod args;
mod ci;
#[cfg(feature = "live")]
mod live;
#[cfg(not(feature = "live"))]
mod not_live;
mod outputs;
mod plan_file;
mod prometheus;
mod replay;

pub(super) use aliases::translated;
pub(super) use args::{ConnectionArgs, RequestArgs};
pub(super) use ci::{Failure, GateArgs, failures, lock as lock_baseline, read as read_baseline};
pub(super) use replay::Replay;

#[cfg(not(feature = "live"))]
use not_live as live;

use super::output_file::OutputFile;
use super::print;
use anyhow::Result;
use args::JudgeArgs;
use ci::{CiArgs, code};
use clap::{Args, ValueEnum};
use live::Live;
use outputs::{Output, Outputs};
use plan_file::NoRun;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use weir_load::agents::{NotBegun, lead};
use weir_load::{Interrupt, Options, Plan, Progress, find_knee};
use weir_report::layout::{Format, UnknownFormat, render, verdict_text};
use weir_report::report::{GateState, Grade};
use weir_report::{Knee, Mistake, Report};

#[derive(Args)]
pub(super) struct Load {
    /// A plan with scenarios (a .yaml, .yml or .json file), or targets: URLs (http, https, ws, wss; http if none is
    /// given), each with an optional weight, as in 3@http://127.0.0.1:8080/; a gRPC method as
    /// grpc://HOST:PORT/PACKAGE.SERVICE/METHOD
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// Connections, at most 1,000,000; with --rate, the most that may be open [default: 50, with --rate 1000]
    #[arg(short = 'c', long, visible_alias = "vus", value_name = "N", help_heading = "Pace and stop")]
    connections: Option<u64>,
    /// Total requests, such as 10000 or 50k
    #[arg(short = 'n', long, value_name = "N", help_heading = "Pace and stop")]
    requests: Option<String>,
    /// Duration [default: 10s without -n and --stages]
    #[arg(short = 'd', long, value_name = "TIME", help_heading = "Pace and stop")]
    duration: Option<String>,
    /// Start requests at this rate, such as 5000/s, however fast the target answers; at most 10M/s
    #[arg(long, value_name = "RATE", help_heading = "Pace and stop")]
    rate: Option<String>,
    /// Ramp the number of users, 30s:100,2m:1000,30s:0, or of requests per second, 1m:500/s; may be repeated
    #[arg(long, value_name = "TIME:N,…", help_heading = "Pace and stop")]
    stages: Vec<String>,
    /// Rate or users in parts, 'hold 100/s 1m, spike: jump 2000/s 10s, hold 100/s 1m'; parts: hold, ramp, jump, wave,
    /// steps, file, pause
    #[arg(long, value_name = "PART,…", help_heading = "Pace and stop")]
    shape: Option<String>,
    /// How the starts of --shape are spaced: even, poisson or burst(N) [default: even]
    #[arg(long, value_name = "SPACING", help_heading = "Pace and stop")]
    spacing: Option<String>,
    /// Seed of --spacing poisson [default: 1]
    #[arg(long, value_name = "N", help_heading = "Pace and stop")]
    seed: Option<u64>,
    /// Take commands during the run on this socket, unix:PATH: rate 500/s, pause, go, stop
    #[arg(long, value_name = "unix:PATH", help_heading = "Pace and stop")]
    control: Option<String>,
    /// Pause of each connection between a response and its next request
    #[arg(long, value_name = "TIME", help_heading = "Pace and stop")]
    think: Option<String>,
    /// Warm-up at the start, not counted [default: none, with --find-knee 1s for each step]
    #[arg(long, value_name = "TIME", help_heading = "Pace and stop")]
    warmup: Option<String>,
    /// How long requests in flight may take after the time is up [default: 30s, with --find-knee 2s]
    #[arg(long, value_name = "TIME", help_heading = "Pace and stop")]
    graceful_stop: Option<String>,
    /// Threads [default: one per available core]
    #[arg(long, value_name = "N", help_heading = "Pace and stop")]
    threads: Option<u64>,

    #[command(flatten)]
    agents: agents::AgentArgs,

    #[command(flatten)]
    plan: plan_file::PlanArgs,

    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Cut the measured time into this many blocks, each with its own histogram, so that --fail-if knows the noise
    /// within the run
    #[arg(long, value_name = "N", help_heading = "Pace and stop")]
    rounds: Option<u64>,
    #[command(flatten)]
    ci: CiArgs,

    #[command(flatten)]
    judging: JudgeArgs,
    /// Search for the highest rate that meets these conditions, such as 'p99<20ms,errors<0.1%'; -d is the length
    /// of a step [default: 5s]
    #[arg(long, value_name = "CONDITIONS", help_heading = "Judgement", conflicts_with_all = SEARCHED)]
    find_knee: Option<String>,
    /// Accept unequal work for targets at several places; otherwise this makes the result INVALID
    #[arg(long, value_enum, value_name = "ok", help_heading = "Judgement")]
    unequal: Option<Intended>,

    /// Output format: text, json, html, csv, csv-summary, junit, markdown, github, gitlab, or that of k6, k6-full,
    /// k6-json, wrk, wrk2, ab, ghz or oha-json
    #[arg(long, default_value = "text", value_name = "FORMAT", value_parser = format_named, help_heading = "Report")]
    format: &'static Format,
    /// Also save the whole report, for `weir report`
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    save: Option<PathBuf>,
    /// Also write the report as a single HTML page, readable offline
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    html: Option<PathBuf>,
    /// Also write the JSON of k6's option of the same name
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    summary_export: Option<PathBuf>,
    /// Send figures during the run: prometheus=URL of a Prometheus that accepts remote writes; may be repeated
    #[arg(short = 'o', long = "output", value_name = "WHERE", help_heading = "Report")]
    outputs: Vec<Output>,
    /// Report CPU time of the target's process: a pid, or `auto` for the process that listens on the first
    /// target's port
    #[arg(long, value_name = "PID|auto", help_heading = "Report")]
    pid: Option<String>,
    /// Show a live view during the run; the default if stdout and stderr are a terminal
    #[arg(long, conflicts_with = "no_live", help_heading = "Report")]
    live: bool,
    /// Show only a line of progress on stderr, and nothing if that is no terminal
    #[arg(long, help_heading = "Report")]
    no_live: bool,
    /// Name of the run
    #[arg(long, value_name = "NAME", help_heading = "Report")]
    name: Option<String>,
}

/// Options that make no sense with a search for the rate.
const SEARCHED: [&str; 23] = [
    "agents",
    "against",
    "annotations",
    "baseline_if_missing",
    "fail_if",
    "junit",
    "shape",
    "spacing",
    "seed",
    "control",
    "rate",
    "requests",
    "rounds",
    "stages",
    "think",
    "thresholds",
    "abort_on",
    "require",
    "exit_codes",
    "outputs",
    "live",
    "summary",
    "summary_export",
];

/// The verdict that is required.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Require {
    /// VALID or SUSPECT
    Suspect,
    /// VALID
    Valid,
}

/// Says that what would spoil a result is intended.
#[derive(Clone, Copy, Debug, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Intended {
    /// It is intended
    Ok,
}

/// The exit codes of which tool.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ExitCodes {
    /// 99 for a broken threshold, 105 for Ctrl-C
    K6,
    /// 10 threshold, 11 regression, 12 verdict, 13 no response, 14 aborted, 130 Ctrl-C; the smallest of several
    Split,
    /// 1 for every failure
    #[default]
    Weir,
}

/// Parses the name of a layout.
pub(super) fn format_named(name: &str) -> Result<&'static Format, UnknownFormat> {
    name.parse()
}

impl Require {
    /// The lowest grade that it accepts.
    pub(super) const fn grade(self) -> Grade {
        match self {
            Self::Suspect => Grade::Suspect,
            Self::Valid => Grade::Valid,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Suspect => "suspect",
            Self::Valid => "valid",
        }
    }
}

impl Load {
    pub(super) fn run(self) -> Result<ExitCode> {
        if let Some(conditions) = &self.find_knee {
            return self.search(conditions);
        }
        let file = self.plan_file();
        let mut options = self.options();
        let agents = match options.as_mut().map(|options| self.agents(options)) {
            Ok(Err(mistakes)) => {
                mistakes.iter().for_each(|m| errln!("weir load: {m}"));
                return Ok(ExitCode::from(2));
            }
            Ok(Ok(agents)) => agents,
            Err(_) => None, // told below
        };
        let plan = match (file, options) {
            (Some(file), Ok(options)) => match self.read_plan(file, &Options { urls: Vec::new(), ..options })
            {
                Ok(plan) => Ok(plan),
                Err(NoRun::Checked) => return Ok(ExitCode::SUCCESS),
                Err(NoRun::Wrong(told)) => {
                    errln!("{told}");
                    return Ok(ExitCode::from(2));
                }
            },
            (_, options) => {
                let mut wrong = if file.is_some() { Vec::new() } else { self.without_plan() };
                match options.and_then(|options| Plan::new(&options)) {
                    Ok(plan) if wrong.is_empty() => Ok(Arc::new(plan)),
                    Ok(_) => Err(wrong),
                    Err(mistakes) => {
                        wrong.extend(mistakes);
                        Err(wrong)
                    }
                }
            }
        };
        let plan = match (plan, &agents) {
            (Ok(plan), Some((by, _))) => by.shares(&plan).map(|()| plan),
            (plan, _) => plan,
        };
        // Before the run: a run whose result cannot be saved is not worth making.
        let outputs = Outputs::open(&self.files(), &self.outputs, self.name.as_deref());
        let ci = self.ci.open(plan.as_deref().ok(), agents.is_some());
        let (plan, mut outputs, ci) = match (plan, outputs, ci) {
            (Ok(plan), Ok(outputs), Ok(ci)) => (plan, outputs, ci),
            (plan, outputs, ci) => {
                let mistakes = plan.err().into_iter().chain(outputs.err()).chain(ci.err()).flatten();
                mistakes.for_each(|m| errln!("weir load: {m}"));
                return Ok(ExitCode::from(2));
            }
        };
        let interrupt = Interrupt::default();
        end_load_on_signal(&interrupt)?;
        if agents.is_none()
            && let Err(failed) = plan.prepare(&interrupt)
        {
            errln!("weir load: {failed}");
            return Ok(ExitCode::from(1));
        }
        let mut live = self.live(&plan);
        let tells = live.is_none() && std::io::stderr().is_terminal();
        let look = |now: &Progress<'_>| {
            if let Some(tick) = now.tick {
                outputs.tick(tick);
            }
            if let Some(live) = &mut live {
                live.show(now);
            }
            if let Some(tick) = now.tick.filter(|_| tells) {
                let rate = tick.responses as f64 * 1e9 / tick.length_ns.max(1) as f64;
                let seconds = tick.end_ns as f64 / 1e9;
                err!("\r{seconds:>6.0} s {rate:>12.0}/s {:>8} errors ", tick.errors);
            }
        };
        let mut report = match &agents {
            None => Plan::run_shared(plan, &interrupt, look)?,
            Some((by, packed)) => match lead(by, &plan, packed, &interrupt, look) {
                Ok(report) => report,
                Err(NotBegun(why)) => {
                    drop(live);
                    why.iter().for_each(|why| errln!("weir load: {why}"));
                    return Ok(ExitCode::from(1));
                }
            },
        };
        drop(live);
        if tells {
            err!("\r{:50}\r", "");
        }
        ci.judge(&mut report, self.judging.require.map(Require::grade));
        show(&report, self.format);
        let written = outputs.end(&report).and(ci.end(&report));
        let failures = failures(&report, self.ci.gates.fail_if_unknown);
        self.explain(&report, &failures);
        let code = code(&failures, self.judging.exit_codes);
        match written {
            Err(e) if code == 0 => Err(e),
            Err(e) => {
                errln!("weir load: {e:#}");
                Ok(ExitCode::from(code))
            }
            Ok(()) => Ok(ExitCode::from(code)),
        }
    }

    /// The files that the report goes to, each with its layout.
    const fn files(&self) -> [(&Option<PathBuf>, &'static str); 4] {
        [
            (&self.save, "json"),
            (&self.html, "html"),
            (&self.summary_export, "k6-json"),
            (&self.ci.junit, "junit"),
        ]
    }

    /// Says on stderr why the run fails, where stdout does not.
    fn explain(&self, report: &Report, failures: &[Failure]) {
        if let Some(required) = self.judging.require.filter(|_| failures.contains(&Failure::Verdict)) {
            let (verdict, most) = (&report.verdict, required.grade());
            let against = verdict.reasons.iter().filter(|r| r.grade > most).map(|r| r.code.as_str());
            let (name, codes) = (required.name(), against.collect::<Vec<_>>().join(", "));
            errln!("weir load: --require {name}: the result is {}: {codes}", verdict.grade);
        } else if failures.contains(&Failure::NoResponse) && self.judging.exit_codes != ExitCodes::K6 {
            errln!("weir load: there was no response");
        }
        let gates = report.judgement.iter().flat_map(|j| &j.gates);
        for gate in gates.filter(|gate| gate.state != GateState::Held && self.format.name != "text") {
            errln!("weir load: --fail-if '{}': {}", gate.condition, gate.text);
        }
    }

    /// The live view, if it is wanted and possible.
    fn live(&self, plan: &Plan) -> Option<Live> {
        if self.no_live {
            return None;
        }
        match Live::open(plan) {
            Ok(live) => Some(live),
            Err(why) => {
                if self.live {
                    errln!("weir load: --live: {why}: the run continues without it");
                }
                None
            }
        }
    }

    /// Searches for the highest rate that meets the conditions; exits with 1 if none does.
    fn search(&self, conditions: &str) -> Result<ExitCode> {
        type Print = fn(&Knee) -> String;
        let print_as: Print = match self.format.name {
            "html" => Knee::to_html,
            "json" => Knee::to_json,
            "text" => Knee::to_text,
            other => {
                errln!("weir load: --format {other}: a search is printed as text, json or html");
                return Ok(ExitCode::from(2));
            }
        };
        // Before the search: a search whose result cannot be saved is not worth making.
        let mut files: Vec<(OutputFile, Print)> = Vec::new();
        let wanted: [(_, Print); 2] = [(&self.save, Knee::to_json), (&self.html, Knee::to_html)];
        for (path, print_as) in wanted {
            let Some(path) = path else { continue };
            match OutputFile::open(path) {
                Ok(file) => files.push((file, print_as)),
                Err(mistake) => {
                    errln!("weir load: {mistake}");
                    return Ok(ExitCode::from(2));
                }
            }
        }
        let interrupt = Interrupt::default();
        end_load_on_signal(&interrupt)?;
        let tells = std::io::stderr().is_terminal();
        let found = self.options().and_then(|options| {
            find_knee(&options, conditions, &interrupt, |rate| {
                if tells {
                    err!("\rtrying {rate:>12.0}/s");
                }
            })
        });
        if tells {
            err!("\r{:30}\r", "");
        }
        let knee = match found {
            Ok(knee) => knee?,
            Err(mistakes) => {
                mistakes.iter().for_each(|m| errln!("weir load: {m}"));
                return Ok(ExitCode::from(2));
            }
        };
        print(&print_as(&knee));
        for (file, print_as) in files {
            file.write(&print_as(&knee))?;
        }
        Ok(ExitCode::from(u8::from(knee.rate.is_none())))
    }

    fn options(&self) -> Result<Options, Vec<Mistake>> {
        let mut options = Options {
            urls: self.urls.clone(),
            connections: self.connections,
            threads: self.threads,
            requests: self.requests.clone(),
            duration: self.duration.clone(),
            rate: self.rate.clone(),
            stages: (!self.stages.is_empty()).then(|| self.stages.join(",")),
            shape: self.shape.clone(),
            spacing: self.spacing.clone(),
            seed: self.seed,
            control: self.control.clone(),
            think: self.think.clone(),
            warmup: self.warmup.clone(),
            graceful_stop: self.graceful_stop.clone(),
            rounds: self.rounds,
            pid: self.pid.clone(),
            name: self.name.clone(),
            unequal: self.unequal.is_some(),
            ..Options::default()
        };
        self.judging.fill(&mut options);
        self.connection.fill(&mut options);
        self.request.fill(&mut options).map_err(|m| vec![m])?;
        Ok(options)
    }
}

/// Prints a report. Our own text begins with the verdict. Any other layout has stdout to itself, and the verdict
/// goes to stderr.
pub(super) fn show(report: &Report, format: &Format) {
    print(&render(report, format));
    if format.name != "text" {
        let _ = std::io::stderr().write_all(verdict_text(report).as_bytes()); // nobody reads a closed stderr
    }
}

/// Ctrl-C or SIGTERM ends what waits for it; a second one exits immediately with 130.
pub(super) fn end_on_signal(interrupt: &Interrupt) -> Result<()> {
    end_twice(interrupt, || {})
}

/// The first Ctrl-C or SIGTERM ends the run, so that `teardown` runs and the report tells what was measured; a second
/// one exits immediately with 130. CI systems and containers send SIGTERM.
pub(super) fn end_load_on_signal(interrupt: &Interrupt) -> Result<()> {
    end_twice(interrupt, live::give_back)
}

fn end_twice(interrupt: &Interrupt, before_exit: impl Fn() + Send + 'static) -> Result<()> {
    let interrupt = interrupt.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut ctrl_c, mut term) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            for is_first in [true, false] {
                tokio::select! {
                    _ = ctrl_c.recv() => {}
                    _ = term.recv() => {}
                }
                if is_first {
                    interrupt.end();
                }
            }
            before_exit();
            weir_load::kill_programs();
            std::process::exit(130);
        });
    };
    std::thread::Builder::new().name("weir-signals".to_owned()).spawn(wait)?;
    Ok(())
}
