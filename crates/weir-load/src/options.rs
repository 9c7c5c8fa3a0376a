//! From options as they were written to a plan that can run. All mistakes are told in one go, each with its place.

use crate::check::Check;
use crate::pace::{self, Rhythm};
use crate::plan::{Origin, Plan, Target, mix};
use crate::report::{Pace, PlanAsRun, Stage, StageUnit, Stop};
use crate::threshold::Threshold;
use crate::units;
use crate::url::{Scheme, Url};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_h1::FieldName;
use weir_wire::listen::Address;
use weir_wire::tls::ClientTls;

/// What was written on the command line (or elsewhere), nothing of it understood yet. Empty and `None` stand for the default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// URLs, each with an optional weight: `3@http://host/path`.
    pub urls: Vec<String>,
    /// Method. Default GET, or POST where there is a body.
    pub method: Option<String>,
    /// `name: value`. Host may be among them.
    pub headers: Vec<String>,
    /// Body: text, or `@file`.
    pub data: Option<String>,
    /// Body as it is, where there is no `data`.
    pub body: Option<Vec<u8>>,
    /// `user:password` for basic authentication.
    pub user: Option<String>,
    /// Token for bearer authentication.
    pub bearer: Option<String>,
    /// `name=value`.
    pub cookies: Vec<String>,
    /// Connections (closed loop) or most connections (fixed rate). Default 50; 1,000 with a fixed rate.
    pub connections: Option<u64>,
    /// Threads. Default: the cores it may run on.
    pub threads: Option<u64>,
    /// Requests ahead of their responses. Default 1.
    pub pipeline: Option<u64>,
    /// `-n`.
    pub requests: Option<String>,
    /// `-d`. Default 10 s where there is no count and there are no stages.
    pub duration: Option<String>,
    /// `5000/s`.
    pub rate: Option<String>,
    /// `30s:100,2m:1000,30s:0`, or with `/s` behind the values for a rate.
    pub stages: Option<String>,
    /// Pause between a response and the next request of a client.
    pub think: Option<String>,
    /// Time that is not counted.
    pub warmup: Option<String>,
    /// Default 30 s.
    pub graceful_stop: Option<String>,
    /// Default 30 s.
    pub timeout: Option<String>,
    /// One request for each connection.
    pub no_keepalive: bool,
    /// `host:port:address[,address]`, as curl has it.
    pub resolve: Vec<String>,
    /// Connect to this Unix socket whatever the URLs say.
    pub unix_socket: Option<PathBuf>,
    /// Accept any certificate.
    pub insecure: bool,
    /// Roots instead of the system's.
    pub cacert: Option<PathBuf>,
    /// Client certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Name to ask for and to verify instead of the URL's.
    pub server_name: Option<String>,
    /// See [`Check::parse`].
    pub checks: Vec<String>,
    /// See [`Threshold::parse`].
    pub thresholds: Vec<String>,
    /// The same, but the run ends when one holds.
    pub abort_on: Vec<String>,
    /// The target's process: a pid, or `auto` for whoever listens where the first target is.
    pub pid: Option<String>,
    /// A name for the run.
    pub name: Option<String>,
}

/// Something that was written and can not be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where: the option with its value.
    pub place: String,
    /// What is wrong with it, or what was expected.
    pub hint: String,
}

impl Mistake {
    pub(crate) fn new(place: &str, hint: &str) -> Self {
        Self { place: place.to_owned(), hint: hint.to_owned() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.hint)
    }
}

impl Plan {
    /// Understands the options, reads the files they name and looks up the hosts.
    ///
    /// # Errors
    /// Every mistake that can be seen without sending a request.
    pub fn new(options: &Options) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader { options, mistakes: Vec::new() };
        let plan = reader.plan();
        match plan {
            Some(plan) if reader.mistakes.is_empty() => Ok(plan),
            _ => Err(reader.mistakes),
        }
    }
}

/// Default for connections of a closed loop: what oha, hey and ghz take.
const CONNECTIONS: u64 = 50;

/// Default for the most connections of a fixed rate. They are opened as they are needed.
const CONNECTIONS_RATE: u64 = 1000;

/// Most connections. A descriptor and about 1 KiB each.
const CONNECTIONS_MOST: u64 = 1_000_000;

/// Most requests ahead.
const PIPELINE_MOST: u64 = 1024;

/// Default of `--timeout` and `--graceful-stop`.
const WAIT: Duration = Duration::from_secs(30);

/// Longest body: it is held in memory.
const BODY_MOST: u64 = 1 << 30;

struct Reader<'a> {
    options: &'a Options,
    mistakes: Vec<Mistake>,
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
        let pace = self.pace();
        let of_stages = pace::stages_ns(&pace);
        stop_ns = match (stop_ns, of_stages) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (None, None) if stop_requests.is_none() => Some(10_000_000_000),
            (a, b) => a.or(b),
        };
        if stop_requests == Some(0) {
            self.wrong("-n 0", "expected at least 1");
        }
        if stop_ns == Some(0) {
            self.wrong("-d", "expected more than 0");
        }
        let clients = self.clients(&pace, stop_requests);
        let threads = self.within("-t", o.threads, crate::os::cores() as u64, 1024).min(clients);
        let pipeline = self.within("--pipeline", o.pipeline, 1, PIPELINE_MOST);
        if pipeline > 1 && o.no_keepalive {
            self.wrong("--pipeline", "needs keep-alive: leave out --no-keepalive");
        }
        let timeout = self.time("--timeout", o.timeout.as_deref()).map_or(WAIT, Duration::from_nanos);
        if timeout.is_zero() {
            self.wrong("--timeout", "expected more than 0");
        }
        let think = Duration::from_nanos(self.time("--think", o.think.as_deref()).unwrap_or(0));
        if !think.is_zero() && matches!(Rhythm::of(&pace), Rhythm::Open(_)) {
            self.wrong("--think", "has no meaning beside a fixed rate: the rate says when requests start");
        }
        let warmup_ns = self.time("--warmup", o.warmup.as_deref()).unwrap_or(0);
        if warmup_ns > 0 && of_stages.is_some() {
            self.wrong("--warmup", "--stages has its own beginning: make the warm-up its first stage");
        }
        let grace =
            self.time("--graceful-stop", o.graceful_stop.as_deref()).map_or(WAIT, Duration::from_nanos);
        let checks = self.all(&o.checks, Check::parse);
        let thresholds = self.all(&o.thresholds, |t| Threshold::parse("--threshold", t));
        let abort_on = self.all(&o.abort_on, |t| Threshold::parse("--abort-on", t));

        for bad in abort_on.iter().filter(|t| t.needs_cost()) {
            self.wrong(&format!("--abort-on {}", bad.text), "the cost is known at the end only");
        }

        let begun = Instant::now();
        let (origins, targets, weights, plans) = self.targets();
        let dns_ns = crate::clock::nanos(begun.elapsed());
        let pid = self.pid(&origins, thresholds.iter().any(Threshold::needs_cost));
        if targets.is_empty() || !self.mistakes.is_empty() {
            return None;
        }
        let as_run = PlanAsRun {
            name: o.name.clone().unwrap_or_default(),
            targets: plans,
            pace: pace.clone(),
            stop: Stop { requests: stop_requests, duration_ns: stop_ns },
            connections: clients,
            threads,
            streams: 1,
            pipeline,
            keepalive: !o.no_keepalive,
            timeout_ns: crate::clock::nanos(timeout),
            think_ns: crate::clock::nanos(think),
            graceful_stop_ns: crate::clock::nanos(grace),
            ..PlanAsRun::default()
        };
        Some(Plan {
            as_run,
            origins,
            targets,
            order: mix(&weights),
            rhythm: Rhythm::of(&pace),
            stop_requests,
            stop_ns,
            warmup_ns,
            threads: threads as usize,
            clients: clients as usize,
            pipeline: pipeline as usize,
            keepalive: !o.no_keepalive,
            timeout,
            think,
            grace,
            checks,
            thresholds,
            abort_on,
            dns_ns,
            pid,
        })
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
        let address = origins.first().and_then(|o| o.addresses.first()).and_then(|a| match a {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        match crate::cost::find(pid, address) {
            Ok(pid) => Some(pid),
            Err(mistake) => {
                self.mistakes.push(mistake);
                None
            }
        }
    }

    fn pace(&mut self) -> Pace {
        let o = self.options;
        match (&o.rate, &o.stages) {
            (Some(_), Some(_)) => {
                self.wrong("--rate", "--stages says when requests start already: give one of the two");
                Pace::AsFastAsPossible
            }
            (Some(rate), None) => match units::rate(rate) {
                Some(per_second) => Pace::Rate { per_second },
                None => {
                    self.wrong(&format!("--rate {rate}"), "expected a rate such as 5000/s or 300/m");
                    Pace::AsFastAsPossible
                }
            },
            (None, Some(stages)) => self.stages(stages),
            (None, None) => Pace::AsFastAsPossible,
        }
    }

    fn stages(&mut self, text: &str) -> Pace {
        let of = if text.contains('/') { StageUnit::Rate } else { StageUnit::Users };
        let mut stages = Vec::new();
        for part in text.split(',') {
            let read = part.trim().split_once(':').and_then(|(time, value)| {
                let duration_ns = crate::clock::nanos(units::duration(time)?);
                let target = match of {
                    StageUnit::Users => units::count(value).filter(|n| *n <= CONNECTIONS_MOST)? as f64,
                    StageUnit::Rate if matches!(value.split('/').next(), Some("0")) => 0.0,
                    StageUnit::Rate => units::rate(value)?,
                };
                Some(Stage { duration_ns, target })
            });
            match read {
                Some(stage) => stages.push(stage),
                None => self.wrong(
                    &format!("--stages {text}"),
                    &format!("`{part}` is no stage; expected TIME:USERS or TIME:RATE/s, such as 30s:100,2m:1000,30s:0 or 1m:500/s"),
                ),
            }
        }
        Pace::Stages { of, start: 0.0, stages }
    }

    fn clients(&mut self, pace: &Pace, requests: Option<u64>) -> u64 {
        let o = self.options;
        let default = match pace {
            Pace::AsFastAsPossible => CONNECTIONS.min(requests.unwrap_or(u64::MAX)).max(1),
            Pace::Rate { .. } | Pace::Stages { of: StageUnit::Rate, .. } => CONNECTIONS_RATE,
            Pace::Stages { of: StageUnit::Users, stages, .. } => {
                let most = stages.iter().map(|s| s.target as u64).max().unwrap_or(0);
                if o.connections.is_some() {
                    self.wrong("-c", "--stages says how many users there are already");
                }
                if most == 0 {
                    self.wrong("--stages", "no stage has a user");
                }
                return most.max(1);
            }
        };
        self.within("-c", o.connections, default, CONNECTIONS_MOST)
    }

    // === targets ===

    #[allow(clippy::type_complexity)] // four lists that belong together for the length of one call
    fn targets(&mut self) -> (Vec<Origin>, Vec<Target>, Vec<u32>, Vec<crate::report::TargetPlan>) {
        let o = self.options;
        let body = self.body();
        let fields = self.fields();
        let method = self.method(body.is_some());
        if o.urls.is_empty() {
            self.wrong("URL", "expected one, such as http://127.0.0.1:8080/");
        }
        let mut tls: Option<ClientTls> = None;
        let mut seen: Vec<(Scheme, String, u16)> = Vec::new();
        let (mut origins, mut targets, mut weights, mut plans) = (vec![], vec![], vec![], vec![]);
        for text in &o.urls {
            let url = match Url::parse(text) {
                Ok(url) => url,
                Err(hint) => {
                    self.wrong(text, &hint);
                    continue;
                }
            };
            let key = (url.scheme, url.host.clone(), url.port);
            let origin = seen.iter().position(|s| *s == key).unwrap_or_else(|| {
                let addresses = self.addresses(text, &url);
                if url.scheme == Scheme::Https && tls.is_none() {
                    tls = self.tls();
                }
                let tls = (url.scheme == Scheme::Https)
                    .then(|| tls.clone().map(|t| (t, url.host.clone())))
                    .flatten();
                origins.push(Origin { addresses, tls });
                seen.push(key);
                origins.len() - 1
            });
            let mut plan = url.plan();
            plan.method.clone_from(&method);
            plan.addresses = origins
                .get(origin)
                .map(|o| o.addresses.iter().map(ToString::to_string).collect())
                .unwrap_or_default();
            let body = body.as_deref().unwrap_or_default();
            plan.body_bytes = body.len() as u64;
            let bytes = self.render(&method, &url, &fields, body, &mut plan.headers);
            let head_bytes = bytes.len() - body.len();
            targets.push(Target { origin, is_head: method == "HEAD", bytes: bytes.into(), head_bytes });
            weights.push(url.weight);
            plans.push(plan);
        }
        (origins, targets, weights, plans)
    }

    /// The request on the wire. Beside what was asked for it has Host, and Content-Length where there is a body: nothing
    /// else, as with wrk.
    fn render(
        &self,
        method: &str,
        url: &Url,
        fields: &[(String, String)],
        body: &[u8],
        shown: &mut Vec<(String, String)>,
    ) -> Vec<u8> {
        let mut all: Vec<(String, String)> = Vec::new();
        let has = |name: &str| fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has("host") {
            all.push(("Host".to_owned(), url.authority.clone()));
        }
        all.extend(fields.iter().cloned());
        if let (Some(credentials), false) = (&url.credentials, has("authorization")) {
            all.push(("Authorization".to_owned(), format!("Basic {}", base64(credentials.as_bytes()))));
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            all.push(("Content-Length".to_owned(), body.len().to_string()));
        }
        if self.options.no_keepalive && !has("connection") {
            all.push(("Connection".to_owned(), "close".to_owned()));
        }
        let mut out = format!("{method} {} HTTP/1.1\r\n", url.path).into_bytes();
        for (name, value) in &all {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
        *shown = all
            .into_iter()
            .map(|(n, v)| if is_secret(&n) { (n, "***".to_owned()) } else { (n, v) })
            .collect();
        out
    }

    fn method(&mut self, has_body: bool) -> String {
        let method =
            self.options.method.clone().unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned());
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if method.is_empty() || method.len() > 32 || !method.bytes().all(token) || method == "CONNECT" {
            self.wrong(&format!("-X {method}"), "expected a method such as GET, POST or DELETE");
        }
        method
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        let o = self.options;
        let mut fields = Vec::new();
        for header in &o.headers {
            let place = format!("-H {header:?}");
            let Some((name, value)) = header.split_once(':') else {
                self.wrong(&place, "expected `name: value`");
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let framing =
                ["content-length", "transfer-encoding"].iter().any(|f| name.eq_ignore_ascii_case(f));
            if FieldName::new(name).is_err() {
                self.wrong(&place, "this is no name of a header field");
            } else if value.bytes().any(|b| b != b'\t' && (b < 0x20 || b == 0x7f)) {
                self.wrong(&place, "the value holds a control character");
            } else if framing {
                self.wrong(&place, "follows from the body and can not be set");
            } else {
                fields.push((name.to_owned(), value.to_owned()));
            }
        }
        if o.user.is_some() && o.bearer.is_some() {
            self.wrong("--bearer", "--user says who asks already: give one of the two");
        }
        if let Some(user) = &o.user {
            fields.push(("Authorization".to_owned(), format!("Basic {}", base64(user.as_bytes()))));
        }
        if let Some(token) = &o.bearer {
            if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
                self.wrong("--bearer", "a token is visible ASCII without blanks");
            }
            fields.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        if !o.cookies.is_empty() {
            let fine = |c: &String| c.contains('=') && !c.bytes().any(|b| b < 0x20 || b == 0x7f);
            for bad in o.cookies.iter().filter(|c| !fine(c)) {
                self.wrong(&format!("--cookie {bad:?}"), "expected name=value");
            }
            fields.push(("Cookie".to_owned(), o.cookies.join("; ")));
        }
        fields
    }

    fn body(&mut self) -> Option<Vec<u8>> {
        let Some(data) = &self.options.data else { return self.options.body.clone() };
        let Some(path) = data.strip_prefix('@') else { return Some(data.as_bytes().to_vec()) };
        let size = std::fs::metadata(path).map(|m| m.len()).unwrap_or(0);
        if size > BODY_MOST {
            self.wrong(&format!("--data @{path}"), "a body is at most 1 GiB");
            return None;
        }
        match std::fs::read(path) {
            Ok(body) => Some(body),
            Err(e) => {
                self.wrong(&format!("--data @{path}"), &e.to_string());
                None
            }
        }
    }

    fn tls(&mut self) -> Option<ClientTls> {
        let o = self.options;
        let identity = match (&o.cert, &o.key) {
            (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
            (None, None) => None,
            _ => {
                self.wrong("--cert", "a client certificate needs both --cert and --key");
                None
            }
        };
        match ClientTls::new(o.cacert.as_deref(), identity, o.server_name.as_deref(), !o.insecure) {
            Ok(tls) => Some(tls),
            Err(e) => {
                self.wrong("TLS", &e.to_string());
                None
            }
        }
    }

    fn addresses(&mut self, text: &str, url: &Url) -> Vec<Address> {
        if let Some(path) = &self.options.unix_socket {
            if !path.exists() {
                self.wrong(&format!("--unix-socket {}", path.display()), "there is no such socket");
            }
            return vec![Address::Unix(path.clone())];
        }
        for rule in &self.options.resolve {
            match resolve(rule, url) {
                Ok(Some(addresses)) => return addresses,
                Ok(None) => {}
                Err(hint) => {
                    self.wrong(&format!("--resolve {rule}"), hint);
                    return vec![];
                }
            }
        }
        match (url.host.as_str(), url.port).to_socket_addrs() {
            Ok(found) => {
                let mut found: Vec<SocketAddr> = found.collect();
                found.dedup();
                if found.is_empty() {
                    self.wrong(text, &format!("`{}` has no address", url.host));
                }
                // One family, the first: `localhost` is often ::1 and 127.0.0.1 with a server on one of them only.
                let first = found.first().map(SocketAddr::is_ipv4);
                let usable = found.iter().copied().filter(|a| Some(a.is_ipv4()) == first);
                let usable: Vec<_> = usable.map(Address::Tcp).collect();
                if url.host == "localhost" { localhost(&found) } else { usable }
            }
            Err(e) => {
                self.wrong(text, &format!("the host `{}` can not be found: {e}", url.host));
                vec![]
            }
        }
    }

    // === reading values ===

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
        self.read(place, text, units::duration, "a time such as 250ms, 30s or 2m").map(crate::clock::nanos)
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

/// `localhost`: the address where someone listens, of those it has.
fn localhost(found: &[SocketAddr]) -> Vec<Address> {
    let answers =
        |a: &&SocketAddr| std::net::TcpStream::connect_timeout(a, Duration::from_millis(500)).is_ok();
    let one = found.iter().find(answers).or_else(|| found.first());
    one.copied().map(Address::Tcp).into_iter().collect()
}

/// The addresses of a `--resolve` rule, if it is about this URL.
fn resolve(rule: &str, url: &Url) -> Result<Option<Vec<Address>>, &'static str> {
    const FORM: &str = "expected HOST:PORT:ADDRESS[,ADDRESS], such as api.example.com:443:127.0.0.1";
    let mut parts = rule.splitn(3, ':');
    let (Some(host), Some(port), Some(list)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(FORM);
    };
    let port: u16 = port.parse().map_err(|_| FORM)?;
    let mut addresses = Vec::new();
    for address in list.split(',') {
        let ip: IpAddr = address.trim_matches(['[', ']']).parse().map_err(|_| FORM)?;
        addresses.push(Address::Tcp(SocketAddr::new(ip, url.port)));
    }
    let same = (host == "*" || host.eq_ignore_ascii_case(&url.host)) && port == url.port;
    Ok(same.then_some(addresses))
}

/// Whether a field's value must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    const SECRET: [&str; 6] =
        ["authorization", "cookie", "proxy-authorization", "x-api-key", "apikey", "x-auth-token"];
    SECRET.iter().any(|s| name.eq_ignore_ascii_case(s))
}

/// RFC 4648 §4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}
