//! A load from several machines: real agents on loopback with certificates of their own, and origins whose trace is
//! the truth.

mod lies;
mod losses;
mod teardown;

use super::{codes, http3, origin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_gateway::config::{Diagnostics, Node, parse};
use weir_report::Report;
use weir_report::report::End;
use weir_testkit::{Authority, Certificate, Finished, Upstream, eventually_within, run_weir, weir_command};

/// A busy machine starts processes slowly.
const LONG: Duration = Duration::from_secs(20);

/// An agent that runs until it is dropped.
struct Agent {
    child: Child,
    address: String,
}

impl Agent {
    /// Starts one on a free port.
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = weir_command(dir);
        command.args(["agent", "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("weir agent listens on ").unwrap_or_else(|| panic!("{line}"));
        Self { address: address.to_owned(), child }
    }

    fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: a signal to a process that we started and have not waited for.
        #[allow(unsafe_code)]
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait(); // as above
    }
}

/// Certificates for agents and for a coordinator.
struct Keys {
    authority: Authority,
    agent: Certificate,
    coordinator: Certificate,
    dir: TempDir,
}

impl Keys {
    fn new() -> Self {
        let authority = Authority::new();
        let (agent, coordinator) = (authority.leaf(&["127.0.0.1"]), authority.client("ci"));
        Self { authority, agent, coordinator, dir: TempDir::new().unwrap() }
    }

    fn of(&self, certificate: &Certificate) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        ["--cert", &text(&certificate.cert_file), "--key", &text(&certificate.key_file), "--ca"]
            .map(str::to_owned)
            .into_iter()
            .chain([text(&self.authority.file())])
            .collect()
    }

    fn agent(&self, args: &[&str]) -> Agent {
        let keys = self.of(&self.agent);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Agent::start(self.dir.path(), &[&keys, args].concat())
    }

    /// Agents that may send anywhere by http.
    fn agents(&self, n: usize) -> Vec<Agent> {
        (0..n).map(|_| self.agent(&["--allow", "http://127.0.0.1:*"])).collect()
    }

    fn command(&self, agents: &[&Agent], args: &[&str]) -> Command {
        let all: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
        self.command_to(&all, args)
    }

    /// A load of agents at these addresses.
    fn command_to(&self, all: &[&str], args: &[&str]) -> Command {
        let mut command = weir_command(self.dir.path());
        command.args(["load", "--format", "json", "--agents", &all.join(",")]);
        command.args(self.of(&self.coordinator)).args(args);
        command
    }

    fn load(&self, agents: &[&Agent], args: &[&str]) -> Finished {
        let out = self.command(agents, args).stdin(Stdio::null()).output().unwrap();
        finished(out)
    }
}

fn finished(out: std::process::Output) -> Finished {
    Finished {
        code: out.status.code(),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

#[track_caller]
fn report(finished: &Finished) -> Report {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"))
}

fn refs(agents: &[Agent]) -> Vec<&Agent> {
    agents.iter().collect()
}

/// An upstream that notes every request's target.
fn noting() -> (Upstream, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let target = request.head.line.split(' ').nth(1).unwrap_or_default().to_owned();
            all.lock().unwrap().push(target);
            if conn.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    (upstream, seen)
}

#[test]
fn shares_add_up_to_the_whole_and_the_target_saw_the_same() {
    let keys = Keys::new();
    let agents = keys.agents(3);
    let (upstream, seen) = noting();
    let url = format!("http://{}/{{{{counter}}}}", upstream.address());
    let done = keys.load(&refs(&agents), &["-n", "100", "-c", "7", "--threshold", "p99<1h", &url]);
    done.expect_code(0);
    let r = report(&done);
    assert_eq!((r.counts.requests, r.counts.responses, r.plan.connections), (100, 100, 7));
    assert_eq!(r.latency.response.count(), 100);
    let each: Vec<u64> = r.agents.iter().map(|agent| agent.requests).collect();
    assert_eq!(each, [34, 33, 33]);
    let connections: Vec<u64> = r.agents.iter().map(|agent| agent.connections).collect();
    assert_eq!(connections, [3, 2, 2]);
    assert!(!codes(&r).contains(&"merge_mismatch") && r.thresholds[0].passed, "{:?}", r.verdict);
    // No two requests had the same number.
    let mut numbers = seen.lock().unwrap().clone();
    assert_eq!(numbers.len(), 100);
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
    // The agents are free again.
    keys.load(&refs(&agents), &["-n", "3", "-c", "3", &url]).expect_code(0);
}

#[test]
fn a_fixed_rate_is_striped_and_the_starts_are_together() {
    let keys = Keys::new();
    let agents = keys.agents(2);
    let (_origin, url) = origin("/");
    let done = keys.load(&refs(&agents), &["--rate", "101/s", "-d", "2s", "-c", "20", &url]);
    let r = report(&done);
    assert_eq!(r.counts.requests + r.counts.unsent, 202, "{:?}", r.counts);
    let planned: u64 = r.series.ticks.iter().map(|tick| tick.planned).sum();
    assert_eq!(planned, 202, "each start belongs to one agent");
    let each: Vec<u64> = r.agents.iter().map(|agent| agent.requests).collect();
    assert_eq!(each, [101, 101]);
    assert!(r.agents.iter().all(|agent| agent.started_ns.is_some()), "{:?}", r.agents);
    assert_eq!(r.plan.pace, weir_report::report::Pace::Rate { per_second: 101.0 });
}

#[test]
fn rows_of_data_are_used_once_by_all_agents_together() {
    let keys = Keys::new();
    let agents = keys.agents(2);
    let (upstream, seen) = noting();
    let rows: String = (0..20).map(|i| format!("u{i}\n")).collect();
    std::fs::write(keys.dir.path().join("users.csv"), format!("name\n{rows}")).unwrap();
    let plan = "target: \"${SHOP}\"\n\
         data: { users: { file: users.csv, pick: once, at_end: stop } }\n\
         setup: [ { name: token, get: /setup, keep: { token: \"body~(o)\" } } ]\n\
         dry_run: false\n\
         scenarios:\n  browse:\n    users: 4\n    \
         steps: [ { name: one, get: \"/{{users.name}}?{{token}}\" } ]\n\
         teardown: [ { name: bye, get: /teardown } ]\n";
    std::fs::write(keys.dir.path().join("plan.yaml"), plan).unwrap();
    let mut command = keys.command(&refs(&agents), &["-f", "plan.yaml", "-d", "5s"]);
    // The variable is known here and not to the agents.
    command.env("SHOP", format!("http://{}", upstream.address()));
    let r = report(&finished(command.output().unwrap()));
    assert_eq!(r.scenarios[0].done, 20, "{:?} {:?}", r.scenarios, r.verdict);
    let all = seen.lock().unwrap().clone();
    let count = |what: &str| all.iter().filter(|target| *target == what).count();
    assert_eq!((count("/setup"), count("/teardown")), (1, 1), "{all:?}");
    assert_eq!(
        (all.first().map(String::as_str), all.last().map(String::as_str)),
        (Some("/setup"), Some("/teardown"))
    );
    let mut rows: Vec<&String> = all.iter().filter(|target| target.starts_with("/u")).collect();
    rows.sort_unstable();
    let whole = rows.len();
    rows.dedup();
    assert_eq!((whole, rows.len()), (20, 20), "what setup kept is known to all: {all:?}");
    assert!(rows.iter().all(|target| target.ends_with("?o")), "{rows:?}");
}

/// The target has no TCP port.
#[test]
fn agents_speak_http3() {
    let keys = Keys::new();
    let agents = [(); 2].map(|()| keys.agent(&["--allow", "https://127.0.0.1:*"]));
    let (weir, url) = http3::target(&keys.authority);
    let r = report(
        &keys.load(&refs(&agents), &["--http3", "--insecure", "-n", "40", "-c", "2", "-m", "3", &url]),
    );
    assert_eq!((r.counts.responses, r.counts.errors.total()), (40, 0), "{r:#?}");
    assert_eq!(r.ledger.protocols.get("HTTP/3"), Some(&40));
    assert_eq!(http3::counted(&weir), Some(40.0));
}

#[test]
fn an_agent_that_cannot_be_reached_is_named_and_nothing_is_sent() {
    let keys = Keys::new();
    let agents = keys.agents(1);
    let (upstream, seen) = noting();
    // Ports that no test listens on.
    let nobody =
        |port| Agent { child: Command::new("true").spawn().unwrap(), address: format!("127.0.0.1:{port}") };
    let (a, b) = (nobody(1), nobody(2));
    let url = format!("http://{}/", upstream.address());
    let done = keys.load(&[&agents[0], &a, &b], &["-n", "10", "-c", "3", &url]);
    done.expect_code(1);
    assert!(
        done.stderr.contains("agent 127.0.0.1:1:") && done.stderr.contains("agent 127.0.0.1:2:"),
        "{done:#?}"
    );
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn who_is_no_coordinator_is_refused() {
    let keys = Keys::new();
    let agents = keys.agents(1);
    let (upstream, seen) = noting();
    let url = format!("http://{}/", upstream.address());
    // A certificate of another authority, and none.
    let stranger = Keys::new();
    let elsewhere = Authority::new();
    let theirs = elsewhere.client("x");
    let mut command = weir_command(keys.dir.path());
    command.args(["load", "--agents", &agents[0].address, "-n", "1", "-c", "1", &url]);
    command.arg("--cert").arg(&theirs.cert_file).arg("--key").arg(&theirs.key_file);
    command.arg("--ca").arg(keys.authority.file());
    finished(command.output().unwrap()).expect_code(1);
    // An agent that shows a certificate of another authority.
    let other = stranger.agents(1);
    keys.load(&refs(&other), &["-n", "1", "-c", "1", &url]).expect_code(1);
    let mut plain = TcpStream::connect(&agents[0].address).unwrap();
    plain.write_all(b"GET /run HTTP/1.1\r\nUpgrade: weir-agent/1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer); // an alert, or a reset
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn an_agent_sends_only_where_it_may() {
    let keys = Keys::new();
    let (upstream, seen) = noting();
    let port = upstream.address().port();
    let allowed = format!("http://shop.test:{port}");
    let direct = format!("http://127.0.0.1:{port}");
    let (shop, elsewhere) = (format!("{allowed}/"), format!("{direct}/"));
    let resolve = format!("shop.test:{port}:127.0.0.1");
    let agent = keys.agent(&["--allow", &allowed]);
    let few = ["--rate", "10/s", "-d", "1s", "-c", "2"];
    for (args, want) in [
        (&[elsewhere.as_str()][..], "not on the allow list"),
        // The name is allowed, the address that stands in for it is not.
        (&["--resolve", &resolve, &shop], "not on the allow list"),
        (&["--proxy", "http://127.0.0.1:1", &shop], "not on the allow list"),
        (&["--unix-socket", "/run/x.sock", &shop], "--unix-socket"),
    ] {
        let args: Vec<&str> = few.iter().chain(args).copied().collect();
        let done = keys.load(&[&agent], &args);
        assert!(done.code != Some(0) && done.stderr.contains(want), "{args:?}: {done:#?}");
    }
    assert!(seen.lock().unwrap().is_empty());
    let limits = ["--max-connections", "4", "--max-rate", "50/s", "--max-duration", "5s"];
    let both = ["--allow", allowed.as_str(), "--allow", direct.as_str()];
    let agent = keys.agent(&[&both[..], &limits].concat());
    for (args, want) in [
        (&["--rate", "60/s", "-d", "1s", "-c", "2", &elsewhere][..], "--max-rate"),
        (&["-d", "1s", "-c", "2", &elsewhere], "--max-rate"),
        (&["--rate", "10/s", "-d", "1s", "-c", "5", &elsewhere], "--max-connections"),
        (&["--rate", "10/s", "-d", "6s", "-c", "2", &elsewhere], "--max-duration"),
    ] {
        let done = keys.load(&[&agent], args);
        assert!(done.code == Some(1) && done.stderr.contains(want), "{args:?}: {done:#?}");
    }
    assert!(seen.lock().unwrap().is_empty());
    let args = ["--rate", "40/s", "-n", "4", "-c", "2", "--resolve", &resolve, &shop];
    keys.load(&[&agent], &args).expect_code(0);
    assert_eq!(seen.lock().unwrap().len(), 4);
}

#[test]
fn files_come_from_the_coordinator_and_never_from_the_agent() {
    let keys = Keys::new();
    let (upstream, _seen) = noting();
    let agent_dir = TempDir::new().unwrap();
    std::fs::write(agent_dir.path().join("body.txt"), "the agent's").unwrap();
    std::fs::write(keys.dir.path().join("body.txt"), "the coordinator's").unwrap();
    let own = keys.of(&keys.agent);
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let agent = Agent::start(agent_dir.path(), &[&own[..], &["--allow", "http://127.0.0.1:*"]].concat());
    let url = format!("http://{}/", upstream.address());
    let done = keys.load(&[&agent], &["-n", "1", "-c", "1", "--data", "@body.txt", &url]);
    done.expect_code(0);
    let r = report(&done);
    assert_eq!(r.bytes.sent_body, "the coordinator's".len() as u64);
}

#[test]
fn a_token_is_enough_on_loopback_and_one_run_at_a_time() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("token"), "correct-horse-battery\n").unwrap();
    std::fs::write(dir.path().join("other"), "incorrect-horse-battery\n").unwrap();
    let agent = Agent::start(dir.path(), &["--token-file", "token", "--allow", "http://127.0.0.1:*"]);
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let url = super::url(&upstream);
    let args =
        |token: &'static str| ["load", "--agents", &agent.address, "--token-file", token].map(str::to_owned);
    let load = |token: &'static str, more: &[&str]| {
        let own = args(token);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        run_weir(dir.path(), &[&own, more].concat())
    };
    let told = load("other", &["-n", "1", "-c", "1", &url]);
    assert!(told.code == Some(1) && told.stderr.contains("401"), "{told:#?}");
    let mut first = weir_command(dir.path());
    first.args(args("token")).args(["-d", "4s", "-c", "1", "--rate", "10/s", &url]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Otherwise the second might come first.
    eventually_within(LONG, "the first run has begun", || upstream.connections() > 0);
    eventually_within(LONG, "the agent is busy", || {
        let told = load("token", &["-n", "1", "-c", "1", &url]);
        told.code == Some(1) && told.stderr.contains("409") && told.stderr.contains("busy with a run of")
    });
    assert!(first.wait().unwrap().success());
    // Not beyond loopback.
    for args in [
        &["agent", "--listen", "0.0.0.0:0", "--token-file", "token", "--allow", "http://a"][..],
        &["agent", "--listen", "127.0.0.1:0", "--allow", "http://a"],
        &["agent", "--token-file", "token", "--allow", "nonsense"],
        &["load", "--agents", "10.1.2.3:7400", "--token-file", "token", "http://a/"],
        &["load", "--agents", "127.0.0.1:7400", "http://a/"],
        &["load", "--agents", "127.0.0.1:7400", "--token-file", "token", "--pid", "1", "http://a/"],
    ] {
        run_weir(dir.path(), args).expect_code(2);
    }
}

#[test]
fn conditions_are_judged_by_the_sum() {
    let keys = Keys::new();
    let agents = keys.agents(2);
    let (_origin, url) = origin("/");
    let begun = Instant::now();
    let args = ["--rate", "100/s", "-c", "4", "-d", "60s", "--abort-on", "http_reqs: count>150", &url];
    let done = keys.load(&refs(&agents), &args);
    let r = report(&done);
    assert!(matches!(r.end, End::Aborted { .. }), "{:?} {done:#?}", r.end);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(r.agents.iter().all(|agent| agent.requests < 150), "none of them alone: {:?}", r.agents);
}

#[test]
fn setup_keeps_to_the_highest_rate_of_the_agent() {
    let keys = Keys::new();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&begun);
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            if request.head.line.contains("/setup") {
                all.lock().unwrap().push(Instant::now());
            }
            if conn.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let agent = keys.agent(&["--allow", "http://127.0.0.1:*", "--max-rate", "20/s"]);
    let plan = format!(
        "target: http://{}\nsetup: [ {{ repeat: 7, steps: [ {{ name: up, get: /setup }} ] }} ]\n\
         scenarios: {{ a: {{ rate: 5/s, users_max: 2, steps: [ {{ name: one, get: /x }} ] }} }}\n",
        upstream.address()
    );
    std::fs::write(keys.dir.path().join("plan.yaml"), plan).unwrap();
    let r = report(&keys.load(&[&agent], &["-f", "plan.yaml", "-d", "1s"]));
    assert!(r.counts.responses > 0, "{:?}", r.verdict);
    let begun = begun.lock().unwrap();
    let took = begun[6] - begun[0];
    assert!(begun.len() == 7 && took >= Duration::from_millis(290), "six gaps of 50 ms: {took:?}");
}

#[test]
fn connections_that_stall_shut_nobody_out() {
    let keys = Keys::new();
    let agents = keys.agents(1);
    let (_origin, url) = origin("/");
    let stalled: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&agents[0].address).unwrap()).collect();
    let begun = Instant::now();
    keys.load(&refs(&agents), &["-n", "3", "-c", "1", &url]).expect_code(0);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(stalled);
}

#[test]
fn the_manifest_for_kubernetes_fits_the_command_line() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes/load-agents.yaml");
    let written = std::fs::read_to_string(path).unwrap();
    let documents: Vec<Node> = written
        .split("---\n")
        .map(|text| {
            // The parser of configs tells Kubernetes' files from Weir's by this key.
            let text = text.replace("apiVersion: ", "version: ");
            let mut wrong = Diagnostics::default();
            parse::parse(&text, Path::new("k8s.yaml"), &mut wrong)
                .unwrap_or_else(|| panic!("{}", wrong.to_text()))
        })
        .collect();
    let args = |kind: &str| -> Vec<String> {
        let text =
            |node: &Node, key: &str| node.get(key).and_then(Node::as_text).unwrap_or_default().to_owned();
        let one = documents.iter().find(|node| text(node, "kind") == kind).unwrap();
        let spec = ["spec", "template", "spec"].iter().fold(one, |node, key| node.get(key).unwrap());
        let container = &spec.get("containers").unwrap().elements()[0];
        container
            .get("args")
            .unwrap()
            .elements()
            .iter()
            .map(|arg| arg.as_text().unwrap().to_owned())
            .collect()
    };
    let keys = Keys::new();
    let dir = keys.dir.path();
    for (name, certificate) in [("agent", &keys.agent), ("ci", &keys.coordinator)] {
        std::fs::copy(&certificate.cert_file, dir.join(format!("{name}.pem"))).unwrap();
        std::fs::copy(&certificate.key_file, dir.join(format!("{name}.key"))).unwrap();
    }
    std::fs::copy(keys.authority.file(), dir.join("ca.pem")).unwrap();
    let (_origin, url) = origin("/");
    std::fs::write(dir.join("plan.yaml"), format!(
        "target: {url}\nscenarios: {{ one: {{ users: 4, iterations: 40, steps: [ {{ name: a, get: / }} ] }} }}\n"
    ))
    .unwrap();
    let here = |arg: &String| arg.replace("=/keys/", "=").replace("=/plan/", "=");
    // The last of two listens, like any repeated option, would be a mistake: it is replaced.
    let agent_args: Vec<String> = args("StatefulSet").iter().skip(1).map(here).collect();
    let agent_args: Vec<&str> = agent_args
        .iter()
        .filter(|arg| !arg.starts_with("--listen="))
        .map(|arg| if arg.starts_with("--allow=") { "--allow=http://127.0.0.1:*" } else { arg.as_str() })
        .collect();
    let agents = [Agent::start(dir, &agent_args), Agent::start(dir, &agent_args)];
    let job: Vec<String> = args("Job")
        .iter()
        .map(here)
        .map(|arg| match arg.strip_prefix("--agents=") {
            Some(list) => {
                let hosts: Vec<&str> = list.split(',').collect();
                assert_eq!(hosts.len(), 4, "{hosts:?}");
                assert!(hosts.iter().all(|host| host.ends_with(".weir-agents.load.svc.cluster.local:7400")));
                format!("--agents={},{}", agents[0].address, agents[1].address)
            }
            None => arg,
        })
        .filter(|arg| arg != "--require=valid") // forty requests are too few
        .collect();
    let job: Vec<&str> = job.iter().map(String::as_str).collect();
    run_weir(dir, &job).expect_code(0).expect_text("by agent");
}
