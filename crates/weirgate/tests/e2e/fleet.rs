//! Gateways that get their config from a source: another Weir, and a real etcd that is changed, killed, emptied and
//! compacted.
//!
//! Without etcd, those tests print a note and pass; `make test` installs it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_testkit::{Client, Finished, Upstream, Weir, eventually, run_weir, unused_address, weir_command};

use weir_wire::base64::encode;

use crate::support::WEB;

/// Whether long tests should run.
pub(crate) fn at_length() -> bool {
    let wanted = std::env::var_os("LONG_TESTS").is_some();
    if !wanted {
        eprintln!("SKIPPED: it takes long (LONG_TESTS=1)");
    }
    wanted
}

/// etcd and its folder.
pub(crate) struct Etcd {
    dir: TempDir,
    pub(crate) address: SocketAddr,
    peers: SocketAddr,
    child: Child,
}

impl Etcd {
    /// Starts it; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let path = std::env::var("PATH").unwrap_or_default();
        if !path.split(':').any(|folder| Path::new(folder).join("etcd").exists()) {
            eprintln!("SKIPPED: etcd is not installed (scripts/ensure-tools.sh etcd)");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let (address, peers) = (unused_address(), unused_address());
        let child = run_etcd(dir.path(), address, peers);
        let etcd = Self { dir, address, peers, child };
        etcd.wait();
        Some(etcd)
    }

    fn wait(&self) {
        let post = "POST /v3/kv/range HTTP/1.1\r\nHost: e\r\nContent-Length: 14\r\n\r\n{\"key\":\"YQ==\"}";
        within("etcd answers", || {
            Client::can_connect(self.address) && Client::connect(self.address).ask(post).status == 200
        });
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = run_etcd(self.dir.path(), self.address, self.peers);
        self.wait();
    }

    /// Starts it with its disk lost.
    pub(crate) fn start_empty(&mut self) {
        fs::remove_dir_all(self.dir.path().join("data")).unwrap();
        self.start_again();
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: e\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        Client::connect(self.address).ask(request).json()
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        self.post("/v3/kv/put", &json!({ "key": base64(key), "value": base64(value) }).to_string());
    }

    pub(crate) fn delete(&self, key: &str) {
        self.post("/v3/kv/deleterange", &json!({ "key": base64(key) }).to_string());
    }

    /// Returns the lease that the key is now attached to.
    pub(crate) fn put_under_lease(&self, key: &str, value: &str) -> String {
        let lease = self.post("/v3/lease/grant", r#"{"TTL":"600"}"#)["ID"].as_str().unwrap().to_owned();
        let put = json!({ "key": base64(key), "value": base64(value), "lease": lease });
        self.post("/v3/kv/put", &put.to_string());
        lease
    }

    /// Ends a lease, as etcd does when nobody keeps it alive.
    pub(crate) fn revoke(&self, lease: &str) {
        self.post("/v3/lease/revoke", &json!({ "ID": lease }).to_string());
    }

    fn read(&self, key: &str) -> Value {
        self.post("/v3/kv/range", &json!({ "key": base64(key) }).to_string())["kvs"][0].clone()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        !self.read(key).is_null()
    }

    /// The lease of a key.
    #[track_caller]
    pub(crate) fn lease_of(&self, key: &str) -> String {
        self.read(key)["lease"].as_str().unwrap().to_owned()
    }

    /// Discards all earlier revisions.
    pub(crate) fn compact(&self) {
        let now =
            self.post("/v3/kv/range", r#"{"key":"YQ=="}"#)["header"]["revision"].as_str().unwrap().to_owned();
        self.post("/v3/kv/compaction", &format!(r#"{{"revision":"{now}","physical":true}}"#));
    }

    /// A node with this name and these labels.
    pub(crate) fn node(&self, name: &str, labels: &str) -> Weir {
        Weir::start(&self.bootstrap(name, labels, "{dir}/last-good"))
    }

    pub(crate) fn bootstrap(&self, name: &str, labels: &str, cache: &str) -> String {
        format!(
            "source: {{ etcd: {{ servers: [\"http://{}\"], prefix: /weir/test, node: {name}, cache: \"{cache}\" }} }}\n\
             labels: {{ {labels} }}\n",
            self.address
        )
    }

    /// Runs `weir fleet` with these arguments.
    pub(crate) fn fleet(&self, dir: &Path, words: &[&str]) -> Finished {
        let url = format!("http://{}", self.address);
        run_weir(dir, &[&["fleet"][..], words, &["--etcd", &url, "--prefix", "/weir/test"][..]].concat())
    }

    #[track_caller]
    pub(crate) fn publish(&self, config: &Config, more: &[&str]) {
        self.fleet(config.dir.path(), &[&["publish", "config"][..], more].concat()).expect_code(0);
    }

    pub(crate) fn status(&self) -> Value {
        let dir = TempDir::new().unwrap();
        let finished = self.fleet(dir.path(), &["status", "--json"]);
        serde_json::from_str(&finished.expect_code(0).stdout).unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// etcd's API uses base64 for keys and values.
fn base64(text: &str) -> String {
    encode(text.as_bytes())
}

fn run_etcd(dir: &Path, address: SocketAddr, peers: SocketAddr) -> Child {
    let (client, peer) = (format!("http://{address}"), format!("http://{peers}"));
    let cluster = format!("default={peer}");
    Command::new("etcd")
        .current_dir(dir)
        .args(["--data-dir", "data", "--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            &cluster,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Like `eventually`, for other programs that take longer.
#[track_caller]
pub(crate) fn within(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(40);
    while !condition() {
        assert!(Instant::now() < until, "not within 40 s: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// A folder with a config to publish.
pub(crate) struct Config {
    dir: TempDir,
}

impl Config {
    pub(crate) fn saying(text: &str) -> Self {
        let config = Self { dir: TempDir::new().unwrap() };
        config.say(text);
        config
    }

    /// A single file with this text.
    pub(crate) fn of(yaml: &str) -> Self {
        let config = Self { dir: TempDir::new().unwrap() };
        fs::create_dir_all(config.folder()).unwrap();
        fs::write(config.folder().join("weir.yaml"), yaml).unwrap();
        config
    }

    /// Sets the answer of the config's only route, which is in a separate file.
    pub(crate) fn say(&self, text: &str) {
        let folder = self.folder();
        fs::create_dir_all(folder.join("routes")).unwrap();
        fs::write(
            folder.join("weir.yaml"),
            format!("{WEB}\ninclude: [ \"routes/*.yaml\" ]\nexpose_causes: true\n"),
        )
        .unwrap();
        fs::write(folder.join("said.txt"), text).unwrap();
        let route = "routes: { all: { match: { path: \"/*\" }, respond: { status: 200, body: \"${file:../said.txt}\" } } }\n";
        fs::write(folder.join("routes/all.yaml"), route).unwrap();
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    /// The parent of its folder `config`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

pub(crate) fn says(weir: &Weir) -> String {
    weir.client().get("/").text()
}

#[track_caller]
pub(crate) fn comes_to_say(weir: &Weir, text: &str) {
    within(&format!("it says {text}"), || says(weir) == text);
}

pub(crate) fn readiness(weir: &Weir) -> u16 {
    weir.admin_client().ask("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").status
}

pub(crate) fn status(weir: &Weir) -> Value {
    weir.admin_client().ask("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").json()["fleet"].clone()
}

/// The console's fleet page.
fn screen(weir: &Weir) -> String {
    let page = weir.admin_client().ask("GET /fleet HTTP/1.1\r\nHost: localhost\r\n\r\n");
    page.expect_status(200).text()
}

fn runs(weir: &Weir) -> usize {
    weir.logged("bundle runs").len()
}

/// A single-file config as YAML, for a web server.
fn one_file(text: &str) -> String {
    format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: {text} }} }} }}\n"
    )
}

// === over HTTP ===

fn http_node(url: &str, cache: &str) -> String {
    format!("source: {{ http: {{ url: \"{url}\", cache: \"{cache}\", every: 50ms }} }}\n")
}

#[test]
fn one_weir_follows_another() {
    let first = Weir::start(&one_file("one"));
    let second = Weir::start(&http_node(&format!("http://{}/bundle", first.admin()), "{dir}/last-good"));
    assert_eq!(says(&second), "one");
    first.reload_with(&one_file("two")).unwrap();
    eventually("it says two", || says(&second) == "two");
    // The node in the middle passes on the bundle that it runs.
    let third = Weir::start(&http_node(&format!("http://{}/bundle", second.admin()), "{dir}/last-good"));
    assert_eq!(says(&third), "two");
    let status = status(&second);
    assert_eq!((&status["state"], &status["cached"]), (&"following".into(), &true.into()), "{status}");
    // The console shows it, but only if there is something to show.
    let page = screen(&second);
    assert!(page.contains("follows its source") && page.contains("knows no nodes"), "{page}");
    let alone = first.admin_client().ask("GET /fleet HTTP/1.1\r\nHost: localhost\r\n\r\n");
    alone.expect_status(404).expect_body_with("of no fleet");
    assert!(!alone.text().contains("href=\"/fleet\""));
}

#[test]
fn the_last_good_config_serves_while_the_source_is_away() {
    let first = Weir::start(&one_file("one"));
    let cache = TempDir::new().unwrap();
    let node = http_node(&format!("http://{}/bundle", first.admin()), &cache.path().display().to_string());
    let second = Weir::start(&node);
    within("it is on the disk", || status(&second)["cached"] == true);
    drop(first);
    eventually("it notices", || status(&second)["state"] == "away");
    assert_eq!((says(&second).as_str(), readiness(&second)), ("one", 200));
    drop(second);
    let again = Weir::start(&node);
    assert_eq!((says(&again).as_str(), readiness(&again)), ("one", 200));
    let metrics = again.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let contact =
        metrics.lines().find_map(|l| l.strip_prefix("weir_config_source_contact_timestamp_seconds "));
    assert_eq!(contact.and_then(|text| text.parse::<f64>().ok()), Some(0.0), "{metrics}");
    eventually("it says so", || !again.logged("the source does not answer").is_empty());
}

#[test]
fn a_damaged_cache_is_not_used() {
    let upstream = Upstream::fixed(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
        one_file("one").len(),
        one_file("one")
    ));
    let cache = TempDir::new().unwrap();
    fs::write(cache.path().join("bundle"), "weir bundle 0000\nnonsense").unwrap();
    let node = http_node(&format!("http://{}/", upstream.address()), &cache.path().display().to_string());
    let weir = Weir::start(&node);
    assert_eq!(says(&weir), "one");
    assert_eq!(weir.logged("the last good config is damaged and not used").len(), 1);
}

/// Without a cache and a source it keeps waiting, not ready.
#[test]
fn without_any_config_it_waits() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            if asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 {
                conn.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
            } else {
                let text = one_file("one");
                conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()));
            }
        }
    });
    let weir =
        Weir::start(&http_node(&format!("http://{}/weir.yaml", upstream.address()), "{dir}/last-good"));
    assert_eq!(weir.logged("there is no config yet").len(), 1);
    assert_eq!((says(&weir).as_str(), readiness(&weir)), ("one", 200));
}

#[test]
fn a_hostile_server() {
    // A bomb, a path that climbs, and garbage: the running config stays.
    let sent = std::sync::Arc::new(std::sync::Mutex::new(one_file("one").into_bytes()));
    let sends = std::sync::Arc::clone(&sent);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let body = sends.lock().unwrap().clone();
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            conn.send(body);
        }
    });
    let weir = Weir::start(&http_node(&format!("http://{}/b", upstream.address()), "{dir}/last-good"));
    let bomb = flate2_of(&vec![0; 48 << 20]);
    for body in [bomb, vec![0x1f, 0x8b, 0, 0], flate2_of(b"../../etc/passwd"), Vec::new()] {
        let before = weir.logged("the source cannot be followed").len() + weir.logged("bundle refused").len();
        *sent.lock().unwrap() = body;
        within("it says what is wrong", || {
            weir.logged("the source cannot be followed").len() + weir.logged("bundle refused").len() > before
        });
        assert_eq!(says(&weir), "one");
    }
    *sent.lock().unwrap() = one_file("two").into_bytes();
    comes_to_say(&weir, "two");
}

fn flate2_of(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

// === over etcd ===

#[test]
fn a_change_reaches_every_node() {
    let Some(etcd) = Etcd::start() else { return };
    let config = Config::saying("one");
    etcd.publish(&config, &[]);
    let weirs = ["a", "b", "c"].map(|name| etcd.node(name, ""));
    weirs.iter().for_each(|weir| assert_eq!(says(weir), "one"));
    // Connections stay open, and no request fails.
    let mut clients: Vec<Client> = weirs.iter().map(Weir::client).collect();
    for round in 0..5 {
        let text = format!("round {round}");
        config.say(&text);
        etcd.publish(&config, &[]);
        within("everybody says it", || {
            clients.iter_mut().all(|client| client.get("/").expect_status(200).text() == text)
        });
    }
    within("everybody has said so", || {
        let status = etcd.status();
        let nodes = status["nodes"].as_array().unwrap();
        nodes.len() == 3
            && nodes.iter().all(|n| n["running"] == status["pointer"]["to"] && n["cached"] == true)
    });
    let again = etcd.fleet(config.dir.path(), &["publish", "config"]);
    again.expect_code(1).expect_text("nothing to publish");
    etcd.fleet(config.dir.path(), &["rollback"]).expect_code(0);
    weirs.iter().for_each(|weir| comes_to_say(weir, "round 3"));
}

/// Two nodes, one of them a canary, with a config that answers "one" on both.
fn canary_and_other(etcd: &Etcd) -> (Config, Weir, Weir) {
    let config = Config::saying("one");
    etcd.publish(&config, &[]);
    let canary = etcd.node("canary", "canary: \"true\"");
    let other = etcd.node("other", "");
    within("both are known", || etcd.status()["nodes"].as_array().unwrap().len() == 2);
    (config, canary, other)
}

#[test]
fn a_canary_comes_first_and_the_rest_follows() {
    let Some(etcd) = Etcd::start() else { return };
    let (config, canary, other) = canary_and_other(&etcd);
    config.say("two");
    etcd.publish(&config, &["--canary", "canary=true", "--hold", "300ms"]);
    comes_to_say(&canary, "two");
    comes_to_say(&other, "two");
    within("it is done", || etcd.status()["pointer"]["rollout"]["state"] == "done");
    let nobody = etcd.fleet(config.dir.path(), &["publish", "config", "--canary", "zone=x"]);
    nobody.expect_code(1);
}

#[test]
fn a_bundle_that_a_canary_refuses_comes_no_further() {
    let Some(etcd) = Etcd::start() else { return };
    let (config, canary, other) = canary_and_other(&etcd);
    // It is valid here, but wrong if a variable is missing.
    let folder = config.folder();
    fs::write(
        folder.join("routes/more.yaml"),
        "routes: { more: { match: { path: \"/${ONLY_HERE}\" }, respond: { status: 200 } } }\n",
    )
    .unwrap();
    etcd.publish(&config, &["--canary", "canary=true", "--hold", "300ms"]);
    within("it halts", || etcd.status()["pointer"]["rollout"]["state"] == "halted");
    let shown = etcd.fleet(config.dir.path(), &["status"]);
    shown.expect_text("HALTED, every node returns to the previous bundle").expect_text("ONLY_HERE");
    assert_eq!((says(&canary).as_str(), says(&other).as_str()), ("one", "one"));
    assert_eq!((runs(&canary), runs(&other)), (1, 1));
    assert_eq!(canary.logged("bundle refused").len(), 1, "it is not tried again");
    within("the console of a node shows it all", || {
        let page = screen(&canary);
        let told = [
            "was halted, and every node returns to the previous bundle",
            "ONLY_HERE",
            "canary=true",
            "2 live nodes",
        ];
        told.iter().all(|text| page.contains(text)) && page.contains(">other<")
    });
}

#[test]
fn etcd_killed_emptied_and_compacted() {
    let Some(mut etcd) = Etcd::start() else { return };
    let config = Config::saying("one");
    etcd.publish(&config, &[]);
    let weir = etcd.node("a", "");
    within("it is on the disk", || status(&weir)["cached"] == true);
    etcd.compact();
    config.say("two");
    etcd.publish(&config, &[]);
    comes_to_say(&weir, "two");
    etcd.kill();
    within("it notices", || status(&weir)["state"] == "away");
    assert_eq!((says(&weir).as_str(), readiness(&weir)), ("two", 200));
    etcd.start_again();
    within("it follows again", || status(&weir)["state"] == "following");
    etcd.compact();
    assert_eq!((says(&weir).as_str(), runs(&weir)), ("two", 2), "nothing changed, so nothing is built");
    etcd.kill();
    etcd.start_empty();
    within("it says that there is nothing", || !weir.logged("the source has no config").is_empty());
    assert_eq!((says(&weir).as_str(), readiness(&weir)), ("two", 200));
    config.say("three");
    etcd.publish(&config, &[]);
    comes_to_say(&weir, "three");
}

#[test]
fn of_two_publishers_none_is_lost_unheard() {
    let Some(etcd) = Etcd::start() else { return };
    let config = Config::saying("one");
    etcd.publish(&config, &[]);
    let weir = etcd.node("a", "");
    let both = ["left", "right"].map(|text| (text, Config::saying(text)));
    let etcd = &etcd;
    let codes: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = both
            .iter()
            .map(|(text, config)| {
                (text, scope.spawn(move || etcd.fleet(config.dir.path(), &["publish", "config"])))
            })
            .collect();
        started.into_iter().map(|(text, thread)| (*text, thread.join().unwrap())).collect()
    });
    for (text, finished) in &codes {
        if finished.code != Some(0) {
            finished.expect_text("somebody else changed the fleet");
        }
        assert!(["left", "right"].contains(text));
    }
    let generation = etcd.status()["pointer"]["generation"].as_u64().unwrap();
    let done = codes.iter().filter(|(_, finished)| finished.code == Some(0)).count();
    assert_eq!(generation, 1 + done as u64);
    within("it runs one of them", || ["left", "right"].contains(&says(&weir).as_str()));
}

#[test]
fn a_disk_that_cannot_be_written_does_not_stop_a_change() {
    let Some(etcd) = Etcd::start() else { return };
    let config = Config::saying("one");
    etcd.publish(&config, &[]);
    let weir = Weir::start(&etcd.bootstrap("a", "", "{dir}/weir.yaml/last-good"));
    assert_eq!(says(&weir), "one");
    config.say("two");
    etcd.publish(&config, &[]);
    comes_to_say(&weir, "two");
    assert_eq!(status(&weir)["cached"], false);
    within("the fleet knows", || etcd.status()["nodes"][0]["cached"] == false);
    etcd.fleet(config.dir.path(), &["status"]).expect_text("not on its disk");
}

#[test]
fn who_ends_is_no_longer_a_node() {
    let Some(etcd) = Etcd::start() else { return };
    etcd.publish(&Config::saying("one"), &[]);
    let weir = etcd.node("a", "");
    within("it is known", || etcd.status()["nodes"].as_array().unwrap().len() == 1);
    weir.stop();
    assert_eq!(etcd.status()["nodes"].as_array().unwrap().len(), 0);
}

// === messages for operators ===

#[test]
fn mistakes_of_a_node() {
    let dir = TempDir::new().unwrap();
    fs::write(
        dir.path().join("weir.yaml"),
        "source: { etcd: { servers: [] } }\nroutes: {}\nadmin: { writes: managed.yaml }\n",
    )
    .unwrap();
    let finished = run_weir(dir.path(), &["check", "-c", "weir.yaml"]);
    finished.expect_code(1);
    for text in [
        "`routes` cannot stand beside `source`",
        "`cache` is missing",
        "`servers` is missing",
        "admin.writes",
    ] {
        finished.expect_text(text);
    }
}

#[test]
fn what_cannot_be_published() {
    let dir = TempDir::new().unwrap();
    let nobody = unused_address();
    let url = format!("http://{nobody}");
    let publish = |path: &str| run_weir(dir.path(), &["fleet", "publish", path, "--etcd", &url]);
    publish("none").expect_code(1).expect_text("none");
    fs::write(dir.path().join("weir.yaml"), "routes: {}\n").unwrap();
    publish(".").expect_code(1).expect_text("no-listeners");
    fs::write(dir.path().join("weir.yaml"), "source: { http: { url: \"http://a/\", cache: c } }\n").unwrap();
    publish(".").expect_code(1).expect_text("names a source");
    fs::write(dir.path().join("weir.yaml"), one_file("one")).unwrap();
    publish(".").expect_code(1).expect_text(&nobody.to_string());
    let mut command = weir_command(dir.path());
    let finished = command.args(["fleet", "status"]).output().unwrap();
    assert!(String::from_utf8_lossy(&finished.stderr).contains("--etcd"), "{finished:?}");
}
