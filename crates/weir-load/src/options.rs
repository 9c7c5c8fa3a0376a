//! Turns options as written into a plan that can run. Reports all mistakes together, each with its option.

mod address;
pub(crate) mod body;
mod call;
mod http3;
mod journey;
mod odd_values;
mod plain;
mod proxy;
mod rate;
mod replay;
mod request;
mod shape;

use crate::check::Check;
use crate::control::Control;
use crate::pace::{self, Rhythm, mix};
use crate::plan::Plan;
use crate::transport::origin::Origin;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_agents::Share;
use weir_report::Mistake;
use weir_report::Threshold;
use weir_report::comparison::baseline::ROUNDS_MOST;
use weir_report::report::{Pace, PlanAsRun, Protocol, Stop};
use weir_report::units;
use weir_wire::listen::Address;

/// Options as written on the command line (or elsewhere), not parsed yet. Empty and `None` mean the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// URLs, each with an optional weight: `3@http://host/path`.
    pub urls: Vec<String>,
    /// Method. Default GET, or POST with a body.
    pub method: Option<String>,
    /// `name: value`. May include Host.
    pub headers: Vec<String>,
    /// Body: text, or `@file`.
    pub data: Option<String>,
    /// Body as it is, if `data` is not set.
    pub body: Option<Vec<u8>>,
    /// WebSocket messages are binary.
    pub binary: bool,
    /// Parts of a multipart body: `name=value`, or `name=@file`.
    pub forms: Vec<String>,
    /// Rows for `{{data.NAME}}`: a CSV file with a header line, or JSON lines.
    pub feed: Option<PathBuf>,
    /// Send braces literally.
    pub raw: bool,
    /// Metadata of gRPC calls, `key: value`; values of `-bin` keys in base64.
    pub metadata: Vec<String>,
    /// .proto files with the gRPC methods. Without these and without a descriptor set, the target is asked by
    /// reflection.
    pub protos: Vec<PathBuf>,
    /// Folders to search for imports. Default: the folder of each file.
    pub import_paths: Vec<PathBuf>,
    /// A descriptor set instead of .proto files.
    pub protoset: Option<PathBuf>,
    /// `user:password` for basic authentication.
    pub user: Option<String>,
    /// Token for bearer authentication.
    pub bearer: Option<String>,
    /// `name=value`.
    pub cookies: Vec<String>,
    /// Connections (closed loop) or most connections (fixed rate). Default 50; 1,000 with a fixed rate.
    pub connections: Option<u64>,
    /// Threads. Default: the cores that the process may run on.
    pub threads: Option<u64>,
    /// HTTP/2: chosen by ALPN with TLS, by prior knowledge without.
    pub http2: bool,
    /// HTTP/3, over QUIC: only with https, and without falling back to another version.
    pub http3: bool,
    /// Concurrent requests on one HTTP/2 or HTTP/3 connection. Default 1.
    pub streams: Option<u64>,
    /// Requests sent ahead of their responses. Default 1.
    pub pipeline: Option<u64>,
    /// `-n`.
    pub requests: Option<String>,
    /// `-d`. Default 10 s without a count and without stages.
    pub duration: Option<String>,
    /// `5000/s`.
    pub rate: Option<String>,
    /// `30s:100,2m:1000,30s:0`; for a rate, with `/s` after the values.
    pub stages: Option<String>,
    /// Parts of a rate or of users: `hold 100/s 1m, jump 2000/s 10s`.
    pub shape: Option<String>,
    /// Spacing of the starts of a shape: `even`, `poisson` or `burst(N)`. Default even.
    pub spacing: Option<String>,
    /// Seed of `poisson`. Default 1.
    pub seed: Option<u64>,
    /// Socket for commands during the run: `unix:PATH`.
    pub control: Option<String>,
    /// Pause between a response and the next request of a client.
    pub think: Option<String>,
    /// Time at the start that is not measured.
    pub warmup: Option<String>,
    /// Default 30 s.
    pub graceful_stop: Option<String>,
    /// Equal blocks to cut the measured time into, each with its own histogram. Default none.
    pub rounds: Option<u64>,
    /// Default 30 s.
    pub timeout: Option<String>,
    /// One request per connection.
    pub no_keepalive: bool,
    /// New connections may resume TLS sessions. Default: each makes a full handshake, as those of strangers do.
    pub tls_resume: bool,
    /// A cache may answer in place of the target.
    pub cached: bool,
    /// Targets with different schemes, hosts or ports may do unequal work.
    pub unequal: bool,
    /// `host:port:address[,address]`, as in curl. Rules for the same host and port add up.
    pub resolve: Vec<String>,
    /// Other loads use `resolve` too, so a rule that no URL matches is no mistake.
    pub shares_resolve: bool,
    /// Connect to this Unix socket, whatever the URLs say.
    pub unix_socket: Option<PathBuf>,
    /// The proxy: `env` for the one in the environment, or `http://[user:password@]host:port`. Default none, even if
    /// the environment names one.
    pub proxy: Option<String>,
    /// Accept any certificate.
    pub insecure: bool,
    /// Root certificates instead of the system's.
    pub cacert: Option<PathBuf>,
    /// Client certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Server name for SNI and verification instead of the URL's host.
    pub server_name: Option<String>,
    /// See [`Check::parse`].
    pub checks: Vec<String>,
    /// See [`Threshold::parse`].
    pub thresholds: Vec<String>,
    /// Like `thresholds`, but the run ends when one is met.
    pub abort_on: Vec<String>,
    /// The target's process: a pid, or `auto` for the process that listens on the first target's address.
    pub pid: Option<String>,
    /// A name for the run.
    pub name: Option<String>,
    /// Which part of the load this process makes. Default all of it.
    #[serde(skip)]
    pub share: Share,
    /// Agents run the plan: hosts are not looked up here, and the limits of this process do not matter.
    #[serde(skip)]
    pub is_elsewhere: bool,
    /// They came from another machine: `--shape` names no file of this one.
    #[serde(skip)]
    pub is_sent: bool,
}

impl Plan {
    /// Parses the options, reads the files that they name and resolves the hosts.
    ///
    /// # Errors
    /// Every mistake that can be found without sending a request.
    pub fn new(options: &Options) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader {
            options,
            mistakes: Vec::new(),
            feed_is_missing: false,
            looked_up: Duration::ZERO,
            rules_used: HashSet::new(),
        };
        let plan = reader.plan();
        match plan {
            Some(plan) if reader.mistakes.is_empty() => Ok(plan),
            _ => Err(reader.mistakes),
        }
    }
}

/// Default connections of a closed loop, as in oha, hey and ghz.
const CONNECTIONS: u64 = 50;

/// Default maximum of connections with a fixed rate. A few are opened before the run, the others as needed.
const CONNECTIONS_RATE: u64 = 1000;

/// Most connections. Each costs a descriptor and about 1 KiB.
const CONNECTIONS_MOST: u64 = 1_000_000;

/// Descriptors reserved for other uses: files, timers, each thread's runtime. Our guess.
const DESCRIPTORS_OWN: u64 = 64;

/// Most requests ahead of their responses.
const PIPELINE_MOST: u64 = 1024;

/// Most streams of a connection.
const STREAMS_MOST: u64 = 10_000;

/// Shortest block of `--rounds`: the interval in which threads report.
const BLOCK_LEAST_NS: u64 = 100_000_000;

/// Default of `--timeout` and `--graceful-stop`.
const WAIT: Duration = Duration::from_secs(30);

struct Reader<'a> {
    options: &'a Options,
    mistakes: Vec<Mistake>,
    /// A feed was given but cannot be read, so the options that need it are not reported as mistakes.
    feed_is_missing: bool,
    /// Time spent on name lookups.
    looked_up: Duration,
    /// Numbers of the `--resolve` rules that match a URL.
    rules_used: HashSet<usize>,
}

impl Reader<'_> {
    fn plan(&mut self) -> Option<Plan> {
        let o = self.options;
        let stop_requests = self.read(
            "-n",
            o.requests.as_deref(),
            units::count,
            "a number of requests, such as 10000 or 50k",
        );
        let mut stop_ns = self.time("-d", o.duration.as_deref());
        let (pace, rhythm) = self.pace();
        let of_stages = pace::stages_ns(&pace);
        if o.duration.is_some() && of_stages.is_some() {
            let hint = format!("{} sets the duration already: leave one of them out", self.in_parts());
            self.wrong("-d", &hint);
        }
        stop_ns = match (stop_ns, of_stages) {
            (None, None) if stop_requests.is_none() => Some(10_000_000_000),
            (a, b) => a.or(b),
        };
        if stop_requests == Some(0) {
            self.wrong("-n 0", "expected at least 1");
        }
        if stop_ns == Some(0) {
            self.wrong("-d", "expected more than 0");
        }
        let clients = o.share.part(self.clients(&pace, &rhythm, stop_requests));
        if clients == 0 {
            self.wrong("--agents", "there are fewer connections than agents");
        }
        let own_requests = stop_requests.map(|n| o.share.part(n));
        if own_requests == Some(0) && stop_requests != Some(0) {
            self.wrong("--agents", "there are fewer requests than agents");
        }
        self.burst_fits(&rhythm, clients);
        let threads =
            self.within("--threads", o.threads, crate::os::cores() as u64, 1024).min(clients.max(1));
        let pipeline = self.within("--pipeline", o.pipeline, 1, PIPELINE_MOST);
        if pipeline > 1 && o.no_keepalive {
            self.wrong("--pipeline", "needs keep-alive: leave out --no-keepalive");
        }
        let streams = self.streams(clients, pipeline);
        let timeout = self.time("--timeout", o.timeout.as_deref()).map_or(WAIT, Duration::from_nanos);
        if timeout.is_zero() {
            self.wrong("--timeout", "expected more than 0");
        }
        let think = Duration::from_nanos(self.time("--think", o.think.as_deref()).unwrap_or(0));
        if !think.is_zero() && matches!(rhythm, Rhythm::Open(_)) {
            self.wrong("--think", "has no effect with a fixed rate, which determines when requests start");
        }
        let warmup_ns = self.time("--warmup", o.warmup.as_deref()).unwrap_or(0);
        if warmup_ns > 0 && of_stages.is_some() {
            let hint = format!("{} has no warm-up: make it the first part", self.in_parts());
            self.wrong("--warmup", &hint);
        }
        let grace =
            self.time("--graceful-stop", o.graceful_stop.as_deref()).map_or(WAIT, Duration::from_nanos);
        let rounds = self.rounds(&pace, stop_requests, stop_ns);
        let checks = self.all(&o.checks, Check::parse);
        let thresholds = self.all(&o.thresholds, |t| Threshold::parse("--threshold", t));
        let abort_on = self.all(&o.abort_on, |t| Threshold::parse("--abort-on", t));

        for bad in abort_on.iter().filter(|t| t.needs_cost()) {
            self.wrong(&format!("--abort-on {}", bad.text), "the cost is known at the end only");
        }

        self.not_of_replay("--threshold", &thresholds);
        self.not_of_replay("--abort-on", &abort_on);
        self.scopes_exist(&thresholds, &abort_on, &rhythm);
        let data = self.feed().map(Arc::new);
        self.feed_is_missing = o.feed.is_some() && data.is_none();
        let (origins, targets, weights, plans) = self.targets(data.as_ref());
        self.feed_is_used(&targets, data.as_deref());
        let pid = self.pid(&origins, thresholds.iter().any(Threshold::needs_cost));
        if o.control.is_some() && matches!(rhythm, Rhythm::Closed(_)) {
            self.wrong("--control", "changes a rate: add --rate, or --shape with one");
        }
        if targets.is_empty() || !self.mistakes.is_empty() {
            return None;
        }
        // Last, because it makes a file.
        let control = match o.control.as_deref().map(Control::open).transpose() {
            Ok(control) => control,
            Err(mistake) => {
                self.mistakes.push(mistake);
                return None;
            }
        };
        let is_websocket = plans.iter().any(|t| t.scheme.starts_with("ws"));
        let is_closed = matches!(rhythm, Rhythm::Closed(_));
        let as_run = PlanAsRun {
            name: o.name.clone().unwrap_or_default(),
            targets: plans,
            pace: pace.clone(),
            stop: Stop { requests: own_requests, duration_ns: stop_ns },
            connections: clients,
            threads,
            streams,
            streams_given: o.streams.is_some(),
            pipeline,
            keepalive: !o.no_keepalive,
            unequal_ok: o.unequal,
            cached_ok: o.cached,
            tls_resume: o.tls_resume,
            also: Vec::new(),
            protocol: match () {
                () if is_websocket => Protocol::WebSocket,
                () if o.http3 => Protocol::Http3,
                () if self.is_h2() => Protocol::Http2,
                () => Protocol::Http11,
            },
            timeout_ns: crate::clock::nanos(timeout),
            think_ns: crate::clock::nanos(think),
            graceful_stop_ns: crate::clock::nanos(grace),
            rounds,
            file_digest: String::new(),
        };
        Some(Plan {
            as_run,
            origins,
            targets,
            order: mix(&weights),
            share: o.share,
            rhythm,
            stop_requests: if is_closed { own_requests } else { stop_requests },
            stop_ns,
            warmup_ns,
            threads: threads as usize,
            clients: (clients * streams) as usize,
            streams: streams as usize,
            pipeline: pipeline as usize,
            keepalive: !o.no_keepalive,
            timeout,
            think,
            grace,
            checks,
            thresholds,
            abort_on,
            dns_ns: crate::clock::nanos(self.looked_up),
            gap_ns: 0,
            pid,
            data,
            journey: None,
            control,
            replay: None,
            plain: None,
        })
    }

    /// The number of blocks; 0 without `--rounds`.
    pub(super) fn rounds(&mut self, pace: &Pace, requests: Option<u64>, stop_ns: Option<u64>) -> u64 {
        let Some(rounds) = self.options.rounds else { return 0 };
        let place = format!("--rounds {rounds}");
        if !(2..=ROUNDS_MOST).contains(&rounds) {
            self.wrong(&place, &format!("expected 2 to {ROUNDS_MOST}"));
        } else if requests.is_some() {
            self.wrong(&place, "cuts a time into blocks: use -d and leave out -n");
        } else if matches!(pace, Pace::Shape { .. } | Pace::Stages { .. }) || self.options.control.is_some() {
            let hint = "blocks compare only under a constant load: leave out --stages, --shape and --control";
            self.wrong(&place, hint);
        } else if stop_ns.is_some_and(|ns| ns / rounds < BLOCK_LEAST_NS) {
            self.wrong(&place, "blocks would be shorter than 100 ms: use a longer -d");
        }
        rounds
    }

    fn pid(&mut self, origins: &[Origin], needed: bool) -> Option<u32> {
        let Some(pid) = &self.options.pid else {
            if needed {
                self.wrong(
                    "--pid",
                    "a condition on `cost` or `percore` needs the target's process: --pid auto",
                );
            }
            return None;
        };
        if pid == "auto" && origins.first().is_some_and(|o| o.proxy.is_some()) {
            self.wrong("--pid auto", "the target is behind a proxy: give the number of its process");
            return None;
        }
        let addresses = origins.first().into_iter().flat_map(|o| o.addresses.iter());
        let addresses = addresses.filter_map(|a| match a {
            Address::Tcp(address) => Some(*address),
            Address::Udp(_) | Address::Unix(_) => None,
        });
        match crate::cost::find(pid, &addresses.collect::<Vec<_>>(), self.options.http3) {
            Ok(pid) => Some(pid),
            Err(mistake) => {
                self.mistakes.push(mistake);
                None
            }
        }
    }

    /// The option that gives a rate or users in parts.
    const fn in_parts(&self) -> &'static str {
        if self.options.shape.is_some() { "--shape" } else { "--stages" }
    }

    /// Refuses conditions on parts that there are not.
    fn scopes_exist(&mut self, thresholds: &[Threshold], abort_on: &[Threshold], rhythm: &Rhythm) {
        let names: Vec<&str> =
            rhythm.shape().map_or_else(Vec::new, |s| s.parts().iter().map(|p| p.name.as_str()).collect());
        // If the shape is wrong, its names are not known.
        let is_unknown = names.is_empty() && self.options.shape.is_some();
        for t in thresholds.iter().filter(|_| !is_unknown) {
            if let Some(scope) = t.scope().filter(|scope| !names.contains(scope)) {
                let hint = match names.is_empty() {
                    true => format!("there is no part called `{scope}`: parts are those of --shape"),
                    false => format!("there is no part called `{scope}`: the parts are {}", names.join(", ")),
                };
                self.wrong(&format!("--threshold {}", t.text), &hint);
            }
        }
        for t in abort_on.iter().filter(|t| t.scope().is_some()) {
            self.wrong(
                &format!("--abort-on {}", t.text),
                "parts are judged at the end only: use --threshold",
            );
        }
    }

    /// Refuses conditions on figures that only a replay has, at its end.
    fn not_of_replay(&mut self, option: &str, all: &[Threshold]) {
        for t in all.iter().filter(|t| t.is_of_replay()) {
            self.wrong(
                &format!("{option} {}", t.text),
                "only --threshold of `weir replay` knows this figure: there is nothing recorded to compare with",
            );
        }
    }

    // === parsing values ===

    fn wrong(&mut self, place: &str, hint: &str) {
        self.mistakes.push(Mistake::new(place, hint));
    }

    fn read<T>(
        &mut self,
        place: &str,
        text: Option<&str>,
        read: impl Fn(&str) -> Option<T>,
        form: &str,
    ) -> Option<T> {
        let value = read(text?);
        if value.is_none() {
            self.wrong(&format!("{place} {}", text.unwrap_or_default()), &format!("expected {form}"));
        }
        value
    }

    fn time(&mut self, place: &str, text: Option<&str>) -> Option<u64> {
        const FORM: &str = "a time such as 250ms, 30s or 2m";
        let bare = text.filter(|t| *t != "0" && t.parse::<f64>().is_ok_and(|n| n >= 0.0));
        let form = match bare {
            None => FORM.to_owned(),
            Some(n) => {
                format!("a time with its unit: {n}s (a bare number is seconds to wrk, milliseconds to k6)")
            }
        };
        self.read(place, text, units::duration, &form).map(crate::clock::nanos)
    }

    /// `--timeout`, or its default if it is absent or wrong.
    fn timeout(&self) -> Duration {
        self.options.timeout.as_deref().and_then(units::duration).unwrap_or(WAIT)
    }

    fn within(&mut self, place: &str, value: Option<u64>, default: u64, most: u64) -> u64 {
        match value {
            None => default,
            Some(n) if (1..=most).contains(&n) => n,
            Some(n) => {
                self.wrong(&format!("{place} {n}"), &format!("expected 1 to {most}"));
                default
            }
        }
    }

    fn all<T>(&mut self, texts: &[String], read: impl Fn(&str) -> Result<T, Mistake>) -> Vec<T> {
        let mut good = Vec::new();
        for text in texts {
            match read(text) {
                Ok(value) => good.push(value),
                Err(mistake) => self.mistakes.push(mistake),
            }
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_lookups_is_that_of_lookups() {
        // Without a lookup the time is zero, whatever else is read, tried and asked meanwhile.
        let of = |url: &str, resolve: &[&str]| {
            let resolve = resolve.iter().map(|rule| (*rule).to_owned()).collect();
            let options = Options { urls: vec![url.to_owned()], resolve, ..Options::default() };
            Plan::new(&options).unwrap().dns_ns
        };
        assert_eq!(of("https://no.such.host.invalid/", &["*:443:127.0.0.1"]), 0);
        assert!(of("http://localhost/", &[]) > 0);
    }
}
