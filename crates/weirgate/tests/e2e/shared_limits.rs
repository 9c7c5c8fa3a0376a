//! Limits that gateways share in a real Redis, also while it is killed, stopped, flushed and restarted.
//!
//! Without Redis, these tests print a note and pass; `make test` installs it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_testkit::{Authority, Client, Upstream, Weir, eventually, run_weir, unused_address};

use crate::cause::{QUOTA_EXCEEDED, RATE_LIMITED, STORE_UNAVAILABLE};
use crate::support::{GET, OK, WEB};

/// redis-server and its folder.
pub(crate) struct Redis {
    dir: TempDir,
    pub(crate) address: SocketAddr,
    arguments: Vec<String>,
    child: Child,
}

impl Redis {
    /// Starts it; `None` if it is not installed.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Option<Self> {
        let Some(binary) = binary("redis-server") else {
            eprintln!("SKIPPED: redis-server is not installed (scripts/ensure-tools.sh redis-server)");
            return None;
        };
        let dir = TempDir::new().unwrap();
        let address = unused_address();
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let child = run(&binary, dir.path(), address, &arguments);
        let redis = Self { dir, address, arguments, child };
        redis.wait();
        Some(redis)
    }

    /// Starts it with only TLS, at an address given in the arguments.
    fn start_tls(arguments: &[&str], address: SocketAddr) -> Option<Self> {
        let binary = binary("redis-server")?;
        let dir = TempDir::new().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let child = run(&binary, dir.path(), address, &arguments);
        let redis = Self { dir, address, arguments, child };
        redis.wait();
        Some(redis)
    }

    fn wait(&self) {
        eventually("Redis listens", || Client::can_connect(self.address));
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn start_again(&mut self) {
        self.child = run(&binary("redis-server").unwrap(), self.dir.path(), self.address, &self.arguments);
        self.wait();
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    fn cli(&self, words: &[&str]) -> String {
        let port = self.address.port().to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("-CONT"); // a stopped process would not exit
            self.kill();
        }
    }
}

fn binary(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    folders.map(|folder| Path::new(folder).join(name)).find(|file| file.exists())
}

fn run(binary: &Path, dir: &Path, address: SocketAddr, arguments: &[String]) -> Child {
    let mut command = Command::new(binary);
    command.current_dir(dir).args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    if !arguments.iter().any(|argument| argument == "--tls-port") {
        command.args(["--port", &address.port().to_string()]);
    }
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A gateway with this limit for all requests, kept in the store.
#[track_caller]
fn gateway(upstream: &Upstream, store: &str, limit: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nworkers: 2\nstores: {{ limits: {{ {store} }} }}\nupstreams: {{ up: {{ \
         endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    filters: [ {{ rate_limit: {{ {limit}, \
         by: route, store: limits }} }} ]\n    upstream: up\n",
        upstream.address()
    ))
}

fn reading(weir: &Weir, what: &str) -> u64 {
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let families = [
        format!("weir_rate_limit_store_{what}{{"),
        format!("weir_rate_limit_store_{what}_total{{"),
        format!("weir_rate_limit_{what}{{"),
        format!("weir_rate_limit_{what}_total{{"),
    ];
    let line = metrics.lines().find(|line| families.iter().any(|family| line.starts_with(family)));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {what} in\n{metrics}"))
}

/// The store in a Redis, which a busy machine has time to answer from.
fn store(redis: &Redis) -> String {
    format!("redis: \"{}\", timeout: 10s", redis.url())
}

/// How many of this many requests pass.
fn passed(client: &mut Client, requests: usize) -> usize {
    (0..requests).filter(|_| client.ask(GET).status == 200).count()
}

/// Waits until a gateway knows of this many.
#[track_caller]
fn knows(weir: &Weir, gateways: u64) {
    eventually("it knows the other gateways", || reading(weir, "gateways") == gateways);
}

#[test]
fn two_gateways_share_one_limit() {
    let Some(redis) = Redis::start() else { return };
    let upstream = Upstream::fixed(OK);
    let store = store(&redis);
    // A burst of 60, with almost no refill meanwhile. A lease is 3; one passes free.
    let weirs = [(), ()].map(|()| gateway(&upstream, &store, "requests: 60, per: 24h"));
    let mut clients = [weirs[0].client(), weirs[1].client()];
    let passed: usize = (0..100).map(|_| clients.iter_mut().map(|c| passed(c, 1)).sum::<usize>()).sum();
    assert!((50..=60 + 2 * (1 + 3)).contains(&passed), "{passed}");
    // An uneven load has the same limit: one gateway gets all of it.
    redis.cli(&["FLUSHALL"]);
    let third = gateway(&upstream, &store, "requests: 60, per: 24h");
    let alone = self::passed(&mut third.client(), 200);
    assert!((55..=60 + 2 * (1 + 3)).contains(&alone), "{alone}");
    let refused = third.client().ask(GET);
    refused.expect_cause(RATE_LIMITED).expect_header("ratelimit-policy", "\"default\";q=60;w=86400");
    // Leases and debts are counted once: nothing is left, and everything is refilled.
    let left = redis.cli(&["--raw", "KEYS", "weir:routes.all:*"]);
    assert_eq!(left.lines().count(), 1, "{left}");
    let ttl: u64 = redis.cli(&["--raw", "TTL", left.trim()]).trim().parse().unwrap();
    assert!((80_000..=2 * 86_401).contains(&ttl), "{ttl} s");
}

#[test]
fn quotas_and_costs_are_kept_in_the_store_too() {
    let Some(redis) = Redis::start() else { return };
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nX-Cost: 4\r\nContent-Length: 0\r\n\r\n");
    let store = store(&redis);
    for per in ["day", "month"] {
        let limit = format!("requests: 40, per: {per}, cost: \"header:x-cost\", name: {per}");
        let weir = gateway(&upstream, &store, &limit);
        let mut client = weir.client();
        let passed = passed(&mut client, 60);
        // Each costs 4. One or two more or fewer pass, depending on how much was reported to the store before the
        // last ones.
        assert!((9..=12).contains(&passed), "{per}: {passed}");
        let refused = client.ask(GET);
        refused.expect_cause(QUOTA_EXCEEDED);
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds <= 31 * 86_400, "{seconds}");
    }
}

#[test]
fn most_requests_do_not_wait_for_the_store() {
    let Some(redis) = Redis::start() else { return };
    let upstream = Upstream::fixed(OK);
    let store = store(&redis);
    let weir = gateway(&upstream, &store, "requests: 100000, per: 1s");
    let mut client = weir.client();
    assert_eq!(passed(&mut client, 2000), 2000);
    let (waited, asked) = (reading(&weir, "waited"), reading(&weir, "asked"));
    assert!(waited < 200 && asked < 200, "{waited} waited, {asked} questions");
}

#[test]
fn without_the_store_each_counts_its_part() {
    let Some(mut redis) = Redis::start() else { return };
    let upstream = Upstream::fixed(OK);
    let store = store(&redis);
    let weirs = [(), ()].map(|()| gateway(&upstream, &store, "requests: 60, per: 24h"));
    weirs.iter().for_each(|weir| drop(weir.client().ask(GET)));
    weirs.iter().for_each(|weir| knows(weir, 2));
    redis.kill();
    for weir in &weirs {
        weir.wait_log("store is unreachable");
        let passed = passed(&mut weir.client(), 60);
        assert!((25..=30 + 3).contains(&passed), "{passed} of its 30, and what was left of its lease");
        weir.client().ask(GET).expect_cause(RATE_LIMITED);
        assert!(reading(weir, "without_store") > 0);
        assert_eq!(reading(weir, "store_up"), 0);
    }
    // It restarts empty and without its script: requests are counted together again.
    redis.start_again();
    for weir in &weirs {
        weir.wait_log("store is reachable");
        eventually("it passes again", || weir.client().ask(GET).status == 200);
        assert_eq!(reading(weir, "store_up"), 1);
        assert_eq!(
            reading(weir, "gateways"),
            2,
            "the other one is taken to be there, whether it has come back or not"
        );
    }
    let passed: usize = weirs.iter().map(|weir| passed(&mut weir.client(), 100)).sum();
    assert!(passed <= 60 + 2 * (1 + 3), "{passed}");
}

#[test]
fn open_and_closed() {
    let Some(mut redis) = Redis::start() else { return };
    let upstream = Upstream::fixed(OK);
    let store = store(&redis);
    let open = gateway(&upstream, &store, "requests: 5, per: 24h, without_store: open");
    let closed = gateway(&upstream, &store, "requests: 5, per: 24h, without_store: closed, name: closed");
    open.client().ask(GET).expect_status(200);
    closed.client().ask(GET).expect_status(200);
    redis.kill();
    open.wait_log("store is unreachable");
    closed.wait_log("store is unreachable");
    assert_eq!(passed(&mut open.client(), 30), 30);
    closed.client().ask(GET).expect_cause(STORE_UNAVAILABLE).expect_header("retry-after", "1");
}

#[test]
fn a_store_that_stops_answering_holds_nobody_up() {
    let Some(redis) = Redis::start() else { return };
    let upstream = Upstream::fixed(OK);
    let store = format!("redis: \"{}\", timeout: 100ms", redis.url());
    let weir = gateway(&upstream, &store, "requests: 1000, per: 24h");
    let mut client = weir.client();
    assert_eq!(passed(&mut client, 10), 10);
    redis.signal("-STOP");
    let began = Instant::now();
    assert_eq!(passed(&mut client, 200), 200);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    weir.wait_log("store is unreachable");
    redis.signal("-CONT");
    eventually("the store is used again", || reading(&weir, "store_up") == 1);
    assert_eq!(passed(&mut client, 10), 10);
}

#[test]
fn a_flushed_store_counts_anew_and_needs_its_script_again() {
    let Some(redis) = Redis::start() else { return };
    let upstream = Upstream::fixed(OK);
    let weir = gateway(&upstream, &store(&redis), "requests: 40, per: 24h");
    let mut client = weir.client();
    let before = passed(&mut client, 80);
    assert!((38..=43).contains(&before), "{before}");
    redis.cli(&["FLUSHALL"]);
    redis.cli(&["SCRIPT", "FLUSH"]);
    // A gateway's allowance lasts as long as the store said; another gateway starts from zero.
    let other = gateway(&upstream, &store(&redis), "requests: 40, per: 24h");
    let after = passed(&mut other.client(), 80);
    assert!((38..=43).contains(&after), "{after}");
    assert_eq!(reading(&other, "without_store"), 0);
}

#[test]
fn tls_and_a_password() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["127.0.0.1", "localhost"]);
    let (address, ca) = (unused_address(), authority.file());
    let (cert, key) = (leaf.cert_file.display().to_string(), leaf.key_file.display().to_string());
    let port = address.port().to_string();
    let arguments = [
        "--port",
        "0",
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
        "--requirepass",
        "open sesame",
    ];
    let Some(mut redis) = Redis::start_tls(&arguments, address) else { return };
    let upstream = Upstream::fixed(OK);
    let url = format!("rediss://:open%20sesame@localhost:{port}");
    let store = format!("redis: \"{url}\", ca: {}, timeout: 10s", ca.display());
    let weir = gateway(&upstream, &store, "requests: 20, per: 24h");
    let passed = passed(&mut weir.client(), 60);
    assert!((18..=22).contains(&passed), "{passed}");
    assert_eq!(reading(&weir, "without_store"), 0);
    redis.kill();
    // A wrong password is reported, but not shown.
    redis.start_again();
    let wrong = store.replace("sesame", "barley");
    let weir = gateway(&upstream, &wrong, "requests: 20, per: 24h, without_store: closed");
    weir.client().ask(GET);
    let line = weir.wait_log("store is unreachable");
    assert!(!format!("{:?}", line.fields).contains("barley"), "{:?}", line.fields);
    eventually("nothing passes", || {
        weir.client().ask(GET).header("x-weir-cause") == Some(STORE_UNAVAILABLE.1)
    });
}

/// A draining gateway returns its unused leases: the store counts exactly what passed.
#[test]
fn a_gateway_that_drains_gives_back_what_it_did_not_use() {
    let Some(redis) = Redis::start() else { return };
    let upstream = Upstream::fixed(OK);
    let store = store(&redis);
    let weir = gateway(&upstream, &store, "requests: 60, per: 24h, lease: 30");
    assert_eq!(passed(&mut weir.client(), 20), 20);
    let weir = weir.stop();
    weir.expect_code(0);
    let key = redis.cli(&["--raw", "KEYS", "weir:routes.all:*"]);
    let left: f64 = redis.cli(&["--raw", "HGET", key.trim(), "v1"]).trim().parse().unwrap();
    assert!((40.0..41.0).contains(&left), "{left}");
}

#[test]
fn a_cluster() {
    // The cluster bus port is chosen here: Redis's default, 10,000 above the other, may be invalid.
    let bus = unused_address().port().to_string();
    let Some(redis) = Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]) else {
        return;
    };
    assert_eq!(redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).trim(), "OK");
    eventually("the cluster is up", || redis.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let upstream = Upstream::fixed(OK);
    let store = format!("redis: \"{}\", cluster: true, timeout: 10s", redis.url());
    let weir = gateway(&upstream, &store, "requests: 20, per: 24h");
    let passed = passed(&mut weir.client(), 60);
    assert!((18..=22).contains(&passed), "{passed}");
    assert_eq!(reading(&weir, "without_store"), 0);
}

#[test]
fn check_prints_the_bound_and_refuses_what_cannot_be_used() {
    let dir = TempDir::new().unwrap();
    let config = |stores: &str, filter: &str| {
        format!(
            "{WEB}\nstores: {{ {stores} }}\nroutes: {{ all: {{ filters: [ {{ rate_limit: {{ requests: 100, per: 1s, {filter} }} }} ], \
             respond: {{}} }} }}\n"
        )
    };
    let check = |stores: &str, filter: &str| {
        std::fs::write(dir.path().join("weir.yaml"), config(stores, filter)).unwrap();
        run_weir(dir.path(), &["check", "-c", "weir.yaml"])
    };
    let good = "limits: { redis: \"redis://127.0.0.1:1\" }";
    let checked = check(good, "store: limits");
    checked.expect_code(0).expect_text("N gateways let pass at most 100 + N × 6");
    check(good, "store: limits, strict: true, lease: 10").expect_code(0).expect_text("100 + N × 10");
    for (stores, filter, expected) in [
        (good, "store: limit", "write limits"),
        (good, "without_store: open", "needs a store"),
        (good, "store: limits, lease: 101", "from 1 to 100"),
        ("limits: {}", "store: limits", "redis://127.0.0.1:6379"),
        ("limits: { redis: \"http://127.0.0.1\" }", "store: limits", "rediss://HOST:PORT"),
        ("limits: { redis: \"redis://a:secret@:x\" }", "store: limits", "rediss://HOST:PORT"),
        (
            "limits: { redis: \"redis://127.0.0.1\", nodes: [ \"redis://127.0.0.2\" ] }",
            "store: limits",
            "cluster: true",
        ),
        ("limits: { redis: \"redis://127.0.0.1\", timeout: 0s }", "store: limits", "100ms"),
        ("limits: { redis: \"redis://127.0.0.1\", prefix: \"a b\" }", "store: limits", "letters"),
    ] {
        check(stores, filter).expect_code(1).expect_text(expected);
    }
}
