//! `weir bench`: what each route and filter of a config costs; with `--self`, what the load tester itself can do
//! on this machine.
//!
//! *Layout.* This file holds the command line and the order of measurements; `stage` starts the origin and
//! gateways.

mod stage;

use super::load::end_load_on_signal;
use super::{ConfigArgs, Format, print};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use stage::Stage;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use weir_gateway::rehearsal::{Ask, FilterPlace, Rehearsal, Rehearsed};
use weir_load::compare::Contender;
use weir_load::{Compare, CompareOptions, Interrupt, Options, Plan, ceiling};
use weir_report::bench::{DIRECT, GATEWAY};
use weir_report::{Bench as Found, duration};

/// Default durations: of a whole bench, and of each sending mode with `--self`.
const TIME: (&str, &str) = ("1m", "3s");

/// The shortest block and its warm-up: anything shorter gives too few responses for a percentile.
const BLOCK: Duration = Duration::from_millis(20);
const WARMUP: Duration = Duration::from_millis(5);

/// Minimum blocks per target, which is two rounds. If the time allows fewer, nothing is measured.
const BLOCKS: u32 = 4;

/// Blocks are longer than the shortest only if this many rounds fit.
const ROUNDS: u32 = 10;

/// Default number of connections: enough to keep a core busy, few enough that nothing queues for long.
const CONNECTIONS: u64 = 16;

/// Timeout of the first request to each gateway.
const TRY: &str = "5s";

#[derive(Args)]
pub(super) struct Bench {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Measure the load generator against a sink that ignores the requests, instead of a config
    #[arg(long = "self", conflicts_with_all = ["config", "routes", "connections", "rate", "threads", "format"])]
    generator: bool,
    /// Total time [default: 1m]; with --self, time for each sending mode [default: 3s]
    #[arg(short = 'd', long, visible_alias = "time", value_name = "TIME")]
    duration: Option<String>,
    /// Measure only this route; may be repeated
    #[arg(long = "route", value_name = "NAME")]
    routes: Vec<String>,
    /// Connections [default: 16; with --rate, the most that may be open]
    #[arg(long, value_name = "N")]
    connections: Option<u64>,
    /// Start requests at this rate, such as 1000/s, instead of as fast as responses arrive
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Load generator threads [default: one per available core]
    #[arg(short = 't', long, value_name = "N")]
    threads: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Bench {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let interrupt = Interrupt::default();
        end_load_on_signal(&interrupt)?;
        let default = if self.generator { TIME.1 } else { TIME.0 };
        let text = self.duration.as_deref().unwrap_or(default);
        let Some(time) = duration(text).filter(|time| !time.is_zero()) else {
            errln!("weir bench: -d {text}: expected a time such as 30s or 2m");
            return Ok(ExitCode::from(2));
        };
        if self.generator {
            let found = ceiling::ceilings(text, &interrupt)?;
            print(&ceiling::to_text(&found));
            if interrupt.is_ended() {
                print("\ninterrupted\n");
            }
            return Ok(ExitCode::from(u8::from(found.is_empty())));
        }
        let Some(found) = self.measure(time, &interrupt)? else { return Ok(ExitCode::from(2)) };
        print(&match self.format {
            Format::Json => found.to_json(),
            Format::Text => found.to_text(),
        });
        Ok(ExitCode::from(u8::from(found.routes.is_empty())))
    }

    /// Measures the routes one after another. Returns `None` if the command line or config is wrong; the user has
    /// then seen why.
    fn measure(&self, time: Duration, interrupt: &Interrupt) -> Result<Option<Found>> {
        let stage = Stage::new().context("the built-in origin did not start")?;
        let source = self.config.source();
        let name =
            source.path().map_or_else(|| "the embedded default".to_owned(), |p| p.display().to_string());
        let checked = weir_gateway::check(&stage.for_default(source), &[]);
        let Some((loaded, snapshot)) = &checked.compiled else {
            err!("{}", checked.diagnostics.to_text());
            return Ok(None);
        };
        let mut secured = loaded.config.listeners.iter().filter_map(|(_, listener)| listener.tls.as_ref());
        let identity = secured.any(|tls| tls.client_auth.is_some()).then(|| stage.identity()).transpose()?;
        let mut rehearsal = Rehearsal::new(loaded, snapshot, stage.origin, &stage.admin(), identity.as_ref());
        let unknown = self.routes.iter().find(|name| !rehearsal.routes.iter().any(|r| r.name == **name));
        if let Some(unknown) = unknown {
            let known: Vec<&str> = rehearsal.routes.iter().map(|r| r.name.as_str()).collect();
            errln!("weir bench: --route {unknown}: the config has {}", known.join(", "));
            return Ok(None);
        }
        rehearsal.routes.retain(|route| self.routes.is_empty() || self.routes.contains(&route.name));
        let mut found = Found::new(&name);
        found.notes.clone_from(&rehearsal.notes);
        // Every target of a comparison gets the same amount of time.
        let targets = |route: &Rehearsed| if route.ask.is_ok() { route.filters.len() as u32 + 2 } else { 0 };
        let all: u32 = rehearsal.routes.iter().map(targets).sum();
        let least = BLOCKS * all * (BLOCK + WARMUP);
        if time < least {
            errln!("weir bench: -d {time:?}: this many routes and filters take at least {least:?}");
            return Ok(None);
        }
        for route in &rehearsal.routes {
            if interrupt.is_ended() {
                break;
            }
            match &route.ask {
                Err(why) => found.skip(&route.name, None, why),
                Ok(ask) => {
                    let set = Set { bench: self, stage: &stage, rehearsal: &rehearsal, route, ask };
                    if !set.measure(time * targets(route) / all, interrupt, &mut found)? {
                        return Ok(None);
                    }
                }
            }
        }
        found.interrupted = interrupt.is_ended();
        Ok(Some(found))
    }

    fn tell(text: &str) {
        if std::io::stderr().is_terminal() {
            err!("\r{text:<70}");
        }
    }
}

/// Everything needed to measure one route.
struct Set<'a> {
    bench: &'a Bench,
    stage: &'a Stage,
    rehearsal: &'a Rehearsal,
    route: &'a Rehearsed,
    ask: &'a Ask,
}

impl Set<'_> {
    /// Compares the gateway with one that lacks each filter in turn; `false` if the command line is wrong.
    fn measure(&self, time: Duration, interrupt: &Interrupt, found: &mut Found) -> Result<bool> {
        let route = &self.route.name;
        let never: Vec<&FilterPlace> = self.route.unsatisfied.iter().map(|(place, _)| place).collect();
        for (place, why) in &self.route.unsatisfied {
            found.skip(route, Some(&format!("{} ({})", place.path(), place.name)), why);
        }
        let mut gateways = Vec::new();
        let mut own = Vec::new();
        let mut filters = Vec::new();
        if self.ask.answers.is_none() {
            own.push(Contender { name: DIRECT.to_owned(), options: self.direct() });
        }
        let whole = match self.start(&never, interrupt) {
            Ok(whole) => whole,
            Err(why) => {
                found.skip(route, None, why.to_string());
                return Ok(true);
            }
        };
        let status = whole.status;
        own.push(Contender { name: GATEWAY.to_owned(), options: whole.options.clone() });
        gateways.push(whole);
        for place in &self.route.filters {
            let path = place.path();
            let without: Vec<&FilterPlace> = never.iter().copied().chain([place]).collect();
            match self.start(&without, interrupt) {
                Ok(less) if less.status == status => {
                    own.push(Contender { name: path.clone(), options: less.options.clone() });
                    filters.push((place.name.clone(), path));
                    gateways.push(less);
                }
                Ok(less) => {
                    let why = format!("without it the status is {}, not {status}", less.status);
                    found.skip(route, Some(&format!("{path} ({})", place.name)), why);
                }
                Err(why) => found.skip(route, Some(&format!("{path} ({})", place.name)), why.to_string()),
            }
        }
        if interrupt.is_ended() {
            return Ok(true);
        }
        let short = time < ROUNDS * (BLOCK + WARMUP) * 2 * own.len() as u32;
        let options = CompareOptions {
            own,
            unequal: true, // the difference between gateway and filters is what we measure
            duration: Some(format!("{}ns", time.as_nanos())),
            // If unset, the block length is chosen to fit ten rounds.
            block: short.then(|| format!("{}ns", BLOCK.as_nanos())),
            warmup: short.then(|| format!("{}ns", WARMUP.as_nanos())),
            ..CompareOptions::default()
        };
        let compare = match Compare::new(&options) {
            Ok(compare) => compare,
            Err(mistakes) => {
                mistakes.iter().for_each(|m| errln!("weir bench: route {route}: {m}"));
                return Ok(false);
            }
        };
        let comparison = compare.run(interrupt, |round, name| {
            Bench::tell(&format!("{route}: round {round}: {name}"));
        })?;
        Bench::tell("\r");
        let request = format!("{} {}", self.ask.method, self.url(None));
        found.add(route, &request, status, &filters, comparison);
        Ok(true)
    }

    /// Starts a gateway without some filters and checks that it answers the request.
    fn start(&self, without: &[&FilterPlace], interrupt: &Interrupt) -> Result<Gateway> {
        let left = without.last().map_or_else(String::new, |place| format!(" without {}", place.path()));
        Bench::tell(&format!("{}: starting a gateway{left}", self.route.name));
        let running = self.stage.gateway(&self.rehearsal.text(without))?;
        let address = running.listener(&self.ask.listener)?;
        let options = Options {
            urls: vec![self.url(Some(&address))],
            pid: Some(running.pid().to_string()),
            insecure: self.ask.tls,
            server_name: Some(self.ask.host.clone()).filter(|_| self.ask.tls),
            http2: self.ask.http2,
            cert: self.ask.identity.then(|| self.stage.certificate()),
            key: self.ask.identity.then(|| self.stage.key()),
            ..self.options()
        };
        let status = answer(&options, self.ask.answers, interrupt)?;
        // With this check, the verdict does not hold the status against the run.
        let options = Options { checks: vec![format!("status={status}")], ..options };
        Ok(Gateway { options, status, _running: running })
    }

    fn direct(&self) -> Options {
        let url = format!("http://{}{}", self.stage.origin, self.ask.target);
        Options { urls: vec![url], pid: Some(self.stage.origin_pid().to_string()), ..self.options() }
    }

    /// The request, without its destination.
    fn options(&self) -> Options {
        let mut headers = vec![format!("Host: {}", self.ask.host)];
        headers.extend(self.ask.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        Options {
            method: Some(self.ask.method.clone()),
            headers,
            raw: true,
            connections: self.bench.connections.or_else(|| self.bench.rate.is_none().then_some(CONNECTIONS)),
            threads: self.bench.threads,
            rate: self.bench.rate.clone(),
            cached: true, // the filter `cache` may be what is measured
            ..Options::default()
        }
    }

    /// The URL as the client writes it, with an address or with the host.
    fn url(&self, address: Option<&str>) -> String {
        let scheme = if self.ask.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", address.unwrap_or(&self.ask.host), self.ask.target)
    }
}

/// A gateway that has answered a request.
struct Gateway {
    options: Options,
    status: u16,
    /// Stops the gateway when dropped.
    _running: stage::Gateway,
}

/// Sends one request and returns its status, which must be expected: 2xx, 3xx, or the status of the route's own
/// answer.
fn answer(options: &Options, answers: Option<u16>, interrupt: &Interrupt) -> Result<u16> {
    let once = Options {
        requests: Some("1".to_owned()),
        connections: Some(1),
        threads: Some(1),
        rate: None,
        pid: None,
        timeout: Some(TRY.to_owned()),
        ..options.clone()
    };
    let plan = Plan::new(&once)
        .map_err(|all| anyhow!("{}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    let report = plan.run(interrupt, |_| ())?;
    let Some((&status, _)) = report.counts.statuses.iter().next() else {
        let errors: Vec<&str> = report.counts.error_texts.keys().map(String::as_str).collect();
        return Err(anyhow!("the request is not answered: {}", errors.join(", ")));
    };
    if (200..400).contains(&status) || answers == Some(status) {
        return Ok(status);
    }
    let head = &report.ledger.first_response;
    let cause = head
        .split("\\r\\n")
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("x-weir-cause: ").map(str::to_owned));
    let cause = cause.map(|cause| format!(" {cause}")).unwrap_or_default();
    Err(anyhow!("the generated request got {status}{cause}, but success was expected"))
}
