//! `weir replay`: sends recorded traffic again. This file parses the command line; weir-load gives it its meaning.

use super::ci::{CiArgs, Failure, code, failures};
use super::outputs::{Output, Outputs};
use super::{ConnectionArgs, JudgeArgs, Require, end_load_on_signal, format_named, show};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_load::{Interrupt, Options, Plan, ReplayOptions};
use weir_report::layout::Format;

#[derive(Args)]
pub(in crate::cmd) struct Replay {
    /// The recording, plain or compressed with gzip; - for stdin
    #[arg(value_name = "FILE")]
    log: PathBuf,
    /// Where the requests go, such as http://staging:8080; their paths and queries are the recorded ones
    #[arg(long, value_name = "URL")]
    target: String,

    /// Format of the recording [default: recognized from its first lines]: weir, replay, jsonl, combined, common, alb,
    /// elb, har, gor, or a log_format of nginx such as '$msec $request_method $request_uri'
    #[arg(long, value_name = "FORM", help_heading = "Recording")]
    format: Option<String>,
    /// Methods to replay, such as GET,POST, or all [default: GET,HEAD,OPTIONS, which change nothing]
    #[arg(long, value_name = "METHODS", help_heading = "Recording")]
    methods: Option<String>,
    /// Only requests recorded at this time or later, such as 2026-11-24T06:40:00Z
    #[arg(long, value_name = "TIME", help_heading = "Recording")]
    from: Option<String>,
    /// Only requests recorded before this time
    #[arg(long, value_name = "TIME", help_heading = "Recording")]
    to: Option<String>,
    /// Send only this share of the requests, such as 1/10
    #[arg(long, value_name = "N/M", help_heading = "Recording")]
    sample: Option<String>,
    /// Sample clients instead of requests: all requests of a client are sent, or none
    #[arg(long, value_enum, value_name = "client", help_heading = "Recording")]
    by: Option<By>,
    /// Only requests to this host; may be repeated [default: all, and all go to the target]
    #[arg(long = "only-host", value_name = "HOST", help_heading = "Recording")]
    hosts: Vec<String>,
    /// Sort requests that are out of order by up to this time, at most 24h [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Recording")]
    reorder: Option<String>,

    /// How many times faster than recorded, 0.001 to 1000000, or max for as fast as responses come [default: 1]
    #[arg(long, value_name = "N|max", help_heading = "Pace and stop")]
    speed: Option<String>,
    /// Longest gap between two requests, or none; longer ones are shortened to this [default: 10m]
    #[arg(long, value_name = "TIME", help_heading = "Pace and stop")]
    gap_max: Option<String>,
    /// Replay the file this many times [default: 1]
    #[arg(long = "loop", value_name = "N", help_heading = "Pace and stop")]
    loops: Option<u64>,
    /// Most connections, at most 1,000,000 [default: 1000, with --speed max 50]
    #[arg(short = 'c', long, value_name = "N", help_heading = "Pace and stop")]
    connections: Option<u64>,
    /// Give each recorded client a connection of its own, on which its requests keep their order
    #[arg(long, value_enum, value_name = "client", help_heading = "Pace and stop")]
    connections_by: Option<By>,
    /// Threads [default: one per available core]
    #[arg(long, value_name = "N", help_heading = "Pace and stop")]
    threads: Option<u64>,

    /// A header field for every request, `name: value`, instead of a recorded one; may be repeated
    #[arg(short = 'H', long = "header", value_name = "K: V", help_heading = "Request")]
    headers: Vec<String>,
    /// Send the recorded Host instead of the target's
    #[arg(long, help_heading = "Request")]
    keep_host: bool,
    /// Body of requests whose body was not recorded, at most 1 GiB
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    body_from: Option<PathBuf>,
    /// Value of a query parameter that the recording masks as ***; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Request")]
    set: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    ci: CiArgs,

    #[command(flatten)]
    judging: JudgeArgs,

    /// Layout of the report: text, json, html, csv, csv-summary, junit, markdown, github, gitlab, or that of another
    /// tool as in `weir load --format`
    #[arg(long = "report", default_value = "text", value_name = "LAYOUT", value_parser = format_named, help_heading = "Report")]
    layout: &'static Format,
    /// Also save the whole report, for `weir report`
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    save: Option<PathBuf>,
    /// Also write the report as a single HTML page, readable offline
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    html: Option<PathBuf>,
    /// Send figures during the run: prometheus=URL of a Prometheus that accepts remote writes; may be repeated
    #[arg(short = 'o', long = "output", value_name = "WHERE", help_heading = "Report")]
    outputs: Vec<Output>,
    /// Report CPU time of the target's process: a pid, or `auto` for the process that listens on the target's port
    #[arg(long, value_name = "PID|auto", help_heading = "Report")]
    pid: Option<String>,
    /// Name of the run
    #[arg(long, value_name = "NAME", help_heading = "Report")]
    name: Option<String>,
}

/// What is kept together.
#[derive(Clone, Copy, ValueEnum)]
enum By {
    /// The requests of a client
    Client,
}

impl Replay {
    pub(in crate::cmd) fn run(self) -> Result<ExitCode> {
        let plan = Plan::replaying(&self.options(), &self.recording());
        // Before the run: a run whose result cannot be saved is not worth making.
        let files = [(&self.save, "json"), (&self.html, "html"), (&self.ci.junit, "junit")];
        let outputs = Outputs::open(&files, &self.outputs, self.name.as_deref());
        let ci = self.ci.open(plan.as_ref().ok(), false);
        let (plan, mut outputs, ci) = match (plan, outputs, ci) {
            (Ok(plan), Ok(outputs), Ok(ci)) => (plan, outputs, ci),
            (plan, outputs, ci) => {
                let mistakes = plan.err().into_iter().chain(outputs.err()).chain(ci.err()).flatten();
                mistakes.for_each(|m| errln!("weir replay: {m}"));
                return Ok(ExitCode::from(2));
            }
        };
        let interrupt = Interrupt::default();
        end_load_on_signal(&interrupt)?;
        let tells = std::io::stderr().is_terminal();
        let mut report = plan.run(&interrupt, |now| {
            let Some(tick) = now.tick else { return };
            outputs.tick(tick);
            if tells {
                let rate = tick.responses as f64 * 1e9 / tick.length_ns.max(1) as f64;
                err!("\r{:>6.0} s {rate:>12.0}/s {:>8} errors ", tick.end_ns as f64 / 1e9, tick.errors);
            }
        })?;
        if tells {
            err!("\r{:50}\r", "");
        }
        ci.judge(&mut report, self.judging.require.map(Require::grade));
        show(&report, self.layout);
        let written = outputs.end(&report).and(ci.end(&report));
        let failures = failures(&report, self.ci.gates.fail_if_unknown);
        if failures.contains(&Failure::NoResponse) {
            errln!("weir replay: there was no response");
        }
        if let Some(required) = self.judging.require.filter(|_| failures.contains(&Failure::Verdict)) {
            errln!("weir replay: --require {}: the result is {}", required.name(), report.verdict.grade);
        }
        let code = code(&failures, self.judging.exit_codes);
        match written {
            Err(e) if code == 0 => Err(e),
            Err(e) => {
                errln!("weir replay: {e:#}");
                Ok(ExitCode::from(code))
            }
            Ok(()) => Ok(ExitCode::from(code)),
        }
    }

    fn options(&self) -> Options {
        let mut options = Options {
            urls: vec![self.target.clone()],
            raw: true,
            headers: self.headers.clone(),
            connections: self.connections,
            threads: self.threads,
            pid: self.pid.clone(),
            name: self.name.clone(),
            ..Options::default()
        };
        self.judging.fill(&mut options);
        self.connection.fill(&mut options);
        options
    }

    fn recording(&self) -> ReplayOptions {
        ReplayOptions {
            log: self.log.clone(),
            format: self.format.clone(),
            speed: self.speed.clone(),
            gap_max: self.gap_max.clone(),
            loops: self.loops,
            from: self.from.clone(),
            to: self.to.clone(),
            sample: self.sample.clone(),
            sample_by_client: self.by.is_some(),
            connections_by_client: self.connections_by.is_some(),
            methods: self.methods.clone(),
            hosts: self.hosts.clone(),
            keeps_host: self.keep_host,
            body_from: self.body_from.clone(),
            set: self.set.clone(),
            reorder: self.reorder.clone(),
        }
    }
}
