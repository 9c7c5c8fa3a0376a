//! `weir load`: load-tests a target. Here the command line is parsed; what it means stands in weir-load.

use super::print;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_load::report::{Format, Grade, verdict_text};
use weir_load::{Interrupt, Options, Plan, Report};

#[derive(Args)]
pub(super) struct Load {
    /// What to load: URLs, each with an optional weight, as in 3@http://127.0.0.1:8080/
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// Connections; with --rate the most that may be open [default: 50, with --rate 1000]
    #[arg(short = 'c', long, visible_alias = "vus", value_name = "N", help_heading = "Pace and stop")]
    connections: Option<u64>,
    /// Requests altogether, such as 10000 or 50k
    #[arg(short = 'n', long, value_name = "N", help_heading = "Pace and stop")]
    requests: Option<String>,
    /// How long [default: 10s without -n and --stages]
    #[arg(short = 'd', long, value_name = "TIME", help_heading = "Pace and stop")]
    duration: Option<String>,
    /// Start requests at this rate whatever the target does, such as 5000/s
    #[arg(long, value_name = "RATE", help_heading = "Pace and stop")]
    rate: Option<String>,
    /// Go from one number of users to the next, 30s:100,2m:1000,30s:0, or of requests a second, 1m:500/s
    #[arg(long, value_name = "TIME:N,…", help_heading = "Pace and stop")]
    stages: Option<String>,
    /// Pause of each connection between a response and its next request
    #[arg(long, value_name = "TIME", help_heading = "Pace and stop")]
    think: Option<String>,
    /// Load for so long before anything counts
    #[arg(long, value_name = "TIME", help_heading = "Pace and stop")]
    warmup: Option<String>,
    /// How long requests under way may take when the time is up [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Pace and stop")]
    graceful_stop: Option<String>,
    /// Threads [default: the cores it may run on]
    #[arg(short = 't', long, value_name = "N", help_heading = "Pace and stop")]
    threads: Option<u64>,

    /// Method [default: GET, with a body POST]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    method: Option<String>,
    /// A header field, `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "K: V", help_heading = "Request")]
    headers: Vec<String>,
    /// Body: text, or @FILE
    #[arg(long, value_name = "TEXT|@FILE", help_heading = "Request")]
    data: Option<String>,
    /// A part of a multipart body, name=value or name=@FILE; may be repeated
    #[arg(short = 'F', long = "form", value_name = "K=V", help_heading = "Request")]
    forms: Vec<String>,
    /// Rows for {{data.NAME}} in path, header fields and body: CSV with a line of names, or JSON lines
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    feed: Option<PathBuf>,
    /// Send {{ and }} as they are
    #[arg(long, help_heading = "Request")]
    raw: bool,
    /// Basic authentication
    #[arg(short = 'u', long, value_name = "NAME:PASSWORD", help_heading = "Request")]
    user: Option<String>,
    /// Bearer authentication
    #[arg(long, value_name = "TOKEN", help_heading = "Request")]
    bearer: Option<String>,
    /// A cookie, name=value; may be repeated
    #[arg(long = "cookie", value_name = "K=V", help_heading = "Request")]
    cookies: Vec<String>,
    /// A curl command line, as browsers copy it
    #[arg(long, value_name = "'curl …'", help_heading = "Request")]
    curl: Option<String>,

    /// Speak HTTP/2: chosen by ALPN for https, by prior knowledge for http
    #[arg(long, visible_alias = "http2-prior-knowledge", help_heading = "Connection")]
    http2: bool,
    /// Requests at a time on each connection of HTTP/2 [default: 1]
    #[arg(short = 'm', long, value_name = "N", help_heading = "Connection")]
    streams: Option<u64>,
    /// Open a connection for each request
    #[arg(long, help_heading = "Connection")]
    no_keepalive: bool,
    /// Write so many requests ahead of their responses [default: 1]
    #[arg(long, value_name = "N", help_heading = "Connection")]
    pipeline: Option<u64>,
    /// Longest wait for a connection, and for a response [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Connection")]
    timeout: Option<String>,
    /// Connect to this address instead of asking the DNS, as in curl; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR", help_heading = "Connection")]
    resolve: Vec<String>,
    /// Connect to this Unix socket
    #[arg(long, value_name = "PATH", help_heading = "Connection")]
    unix_socket: Option<PathBuf>,
    /// Accept any certificate
    #[arg(short = 'k', long, help_heading = "Connection")]
    insecure: bool,
    /// Trust these certificates instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    cacert: Option<PathBuf>,
    /// Client certificate
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    key: Option<PathBuf>,
    /// Name that TLS asks for and verifies instead of the URL's
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    server_name: Option<String>,

    /// What each response must be: status=200, body~TEXT, json:$.a=1, size<10KiB; may be repeated
    #[arg(long = "check", value_name = "CHECK", help_heading = "Judgement")]
    checks: Vec<String>,
    /// What the run must hold, or exit with 1: 'p99<20ms', 'errors<0.1%', 'rate>5000'; may be repeated
    #[arg(long = "threshold", value_name = "CONDITION", help_heading = "Judgement")]
    thresholds: Vec<String>,
    /// End the run when this holds, such as 'errors>50%'; may be repeated
    #[arg(long = "abort-on", value_name = "CONDITION", help_heading = "Judgement")]
    abort_on: Vec<String>,
    /// Exit with 1 when the verdict is less than this
    #[arg(long, value_enum, value_name = "GRADE", help_heading = "Judgement")]
    require: Option<Require>,
    /// Which exit codes: 1 for a broken threshold, or k6's 99
    #[arg(long, value_enum, default_value_t, value_name = "WHOSE", help_heading = "Judgement")]
    exit_codes: ExitCodes,

    /// How to print
    #[arg(long, default_value = "text", value_name = "FORMAT", value_parser = format_named, help_heading = "Report")]
    format: &'static Format,
    /// Save the whole report as JSON too
    #[arg(short = 'o', long, value_name = "FILE", help_heading = "Report")]
    out: Option<PathBuf>,
    /// Tell what it cost the target's process: a pid, or `auto` for whoever listens on the first target's port
    #[arg(long, value_name = "PID|auto", help_heading = "Report")]
    pid: Option<String>,
    /// A name for the run
    #[arg(long, value_name = "NAME", help_heading = "Report")]
    name: Option<String>,
}

/// What a verdict must be.
#[derive(Clone, Copy, ValueEnum)]
enum Require {
    /// VALID or SUSPECT
    Suspect,
    /// VALID
    Valid,
}

/// Whose exit codes.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ExitCodes {
    /// 99 for a broken threshold, 105 for Ctrl-C
    K6,
    /// 1 for a broken threshold
    #[default]
    Weir,
}

fn format_named(name: &str) -> Result<&'static Format, String> {
    Format::named(name).ok_or_else(|| {
        let known: Vec<&str> = weir_load::report::FORMATS.iter().map(|f| f.name).collect();
        format!("the formats are {}", known.join(", "))
    })
}

impl Load {
    pub(super) fn run(self) -> Result<ExitCode> {
        let plan = match self.options().and_then(|options| Plan::new(&options)) {
            Ok(plan) => plan,
            Err(mistakes) => {
                mistakes.iter().for_each(|m| eprintln!("weir load: {m}"));
                return Ok(ExitCode::from(2));
            }
        };
        let interrupt = Interrupt::default();
        end_on_ctrl_c(&interrupt)?;
        let tells = std::io::stderr().is_terminal();
        let report = plan.run(&interrupt, |tick| {
            if tells {
                let rate = tick.responses as f64 * 1e9 / tick.length_ns.max(1) as f64;
                let seconds = tick.end_ns as f64 / 1e9;
                eprint!("\r{seconds:>6.0} s {rate:>12.0}/s {:>8} errors ", tick.errors);
            }
        })?;
        if tells {
            eprint!("\r{:50}\r", "");
        }
        if let Some(path) = &self.out {
            let json = Format::named("json").map(|f| (f.print)(&report)).unwrap_or_default();
            std::fs::write(path, json).with_context(|| path.display().to_string())?;
        }
        print(&(self.format.print)(&report));
        if self.format.name != "text" {
            // Its stdout holds that layout and nothing else.
            let _ = std::io::stderr().write_all(verdict_text(&report).as_bytes()); // nobody reads it then
        }
        Ok(ExitCode::from(self.exit_code(&report)))
    }

    fn exit_code(&self, report: &Report) -> u8 {
        let broken = report.thresholds.iter().any(|t| !t.passed);
        let interrupted = report.end == weir_load::report::End::Interrupted;
        let too_bad = match self.require {
            None => false,
            Some(Require::Suspect) => report.verdict.grade > Grade::Suspect,
            Some(Require::Valid) => report.verdict.grade > Grade::Valid,
        };
        match self.exit_codes {
            ExitCodes::K6 if broken => 99,
            ExitCodes::K6 if interrupted => 105,
            _ => u8::from(broken || too_bad),
        }
    }

    fn options(&self) -> Result<Options, Vec<weir_load::Mistake>> {
        let mut options = Options {
            urls: self.urls.clone(),
            method: self.method.clone(),
            headers: self.headers.clone(),
            data: self.data.clone(),
            body: None,
            forms: self.forms.clone(),
            feed: self.feed.clone(),
            raw: self.raw,
            user: self.user.clone(),
            bearer: self.bearer.clone(),
            cookies: self.cookies.clone(),
            connections: self.connections,
            threads: self.threads,
            http2: self.http2,
            streams: self.streams,
            pipeline: self.pipeline,
            requests: self.requests.clone(),
            duration: self.duration.clone(),
            rate: self.rate.clone(),
            stages: self.stages.clone(),
            think: self.think.clone(),
            warmup: self.warmup.clone(),
            graceful_stop: self.graceful_stop.clone(),
            timeout: self.timeout.clone(),
            no_keepalive: self.no_keepalive,
            resolve: self.resolve.clone(),
            unix_socket: self.unix_socket.clone(),
            insecure: self.insecure,
            cacert: self.cacert.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            server_name: self.server_name.clone(),
            checks: self.checks.clone(),
            thresholds: self.thresholds.clone(),
            abort_on: self.abort_on.clone(),
            pid: self.pid.clone(),
            name: self.name.clone(),
        };
        if let Some(curl) = &self.curl {
            options.add_curl(curl).map_err(|m| vec![m])?;
        }
        Ok(options)
    }
}

/// The first Ctrl-C ends the run and prints what was measured; the second ends the program at once.
fn end_on_ctrl_c(interrupt: &Interrupt) -> Result<()> {
    let interrupt = interrupt.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let wait = move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                interrupt.end();
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(130);
                }
            }
        });
    };
    std::thread::Builder::new().name("weir-signals".to_owned()).spawn(wait)?;
    Ok(())
}
