//! Endpoints that die, hang and return under load: real processes, real signals.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use weir_testkit::{Weir, alone, eventually, weir_command};

use crate::cause::{CONNECT_REFUSED, NO_HEALTHY_ENDPOINT};
use crate::support::config;

/// Concurrent clients: enough for requests in every phase when the fault occurs, few enough to bound a request's
/// duration.
const CLIENTS: usize = 16;

/// The same for tests that do not depend on time.
const MANY_CLIENTS: usize = 200;

/// An origin in its own process, which can be killed and stopped.
struct Origin {
    child: Child,
    address: SocketAddr,
}

impl Origin {
    fn start() -> Self {
        let mut command = weir_command(std::env::temp_dir().as_path());
        let mut child = command
            .args(["origin", "--http", "127.0.0.1:0", "-t1", "--fixed", "1KiB"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.rsplit("://").next().unwrap().parse().unwrap();
        Self { child, address }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn stop(&self) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway in front of three origins.
fn three(more: &str) -> (Vec<Origin>, Weir) {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start()).collect();
    let list: Vec<String> = origins.iter().map(|origin| origin.address.to_string()).collect();
    let weir =
        Weir::start(&format!("{}workers: 2\n", config(&format!("endpoints: [{}]{more}", list.join(", ")))));
    (origins, weir)
}

/// A load's results: each answer other than 200, and the slowest duration.
#[derive(Debug, Default)]
struct Seen {
    requests: usize,
    failed: Vec<(u16, String)>,
    slowest: Duration,
}

/// Sends this many GETs on each connection, and more until `fault` has run; it runs when a quarter is answered.
fn load(weir: &Weir, clients: usize, each: usize, fault: impl FnOnce() + Send) -> Seen {
    let (answered, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let client = || {
            let (mut client, mut seen) = (weir.client(), Seen::default());
            while seen.requests < each || !done.load(Relaxed) {
                let sent = Instant::now();
                let response = client.get("/");
                seen.slowest = seen.slowest.max(sent.elapsed());
                if response.status != 200 {
                    seen.failed.push((response.status, response.text()));
                }
                seen.requests += 1;
                answered.fetch_add(1, Relaxed);
            }
            seen
        };
        let running: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        eventually("a quarter is answered", || answered.load(Relaxed) >= clients * each / 4);
        fault();
        done.store(true, Relaxed);
        let all = running.into_iter().map(|client| client.join().unwrap());
        all.fold(Seen::default(), |mut sum, one| {
            sum.requests += one.requests;
            sum.failed.extend(one.failed);
            sum.slowest = sum.slowest.max(one.slowest);
            sum
        })
    })
}

#[test]
fn an_endpoint_that_is_killed_costs_no_request() {
    let (mut origins, weir) = three("");
    let mut dead = origins.remove(0);
    let seen = load(&weir, MANY_CLIENTS, 60, move || dead.kill());
    assert!(seen.failed.is_empty(), "{seen:?}");
    assert_eq!(weir.wait_log("endpoint out of rotation").field("reason"), Some("unreachable"));
}

#[test]
fn an_endpoint_that_is_stopped_costs_a_try_each() {
    let _alone = alone();
    let per_try = Duration::from_millis(300);
    let (origins, weir) = three(
        ", retry: { on: [timeout, reset], attempts: 3, per_try: 300ms, budget: 100% }, \
         health: { outlier: { errors: 3, eject: 30s } }",
    );
    let seen = load(&weir, CLIENTS, 300, || origins[0].stop());
    assert!(seen.failed.is_empty(), "{seen:?}");
    // At most two tries: the second goes to another endpoint.
    assert!(seen.slowest < 2 * per_try, "{seen:?}");
    let ejected = weir.wait_log("endpoint out of rotation");
    assert_eq!(ejected.field("reason"), Some("ejected"));
    let after = load(&weir, CLIENTS, 20, || {});
    assert!(after.failed.is_empty() && after.slowest < per_try + Duration::from_millis(50), "{after:?}");
}

#[test]
fn where_all_are_killed_few_are_dialled_and_all_are_answered() {
    let _alone = alone();
    let (mut origins, weir) = three("");
    weir.client().get("/").expect_status(200);
    origins.iter_mut().for_each(Origin::kill);
    weir.client().get("/"); // notices it
    let began = Instant::now();
    let before = crate::health::metric(&weir, &["weir_upstream_connect_failures_total"]).unwrap();
    let seen = load(&weir, CLIENTS, 100, || {});
    let dials = crate::health::metric(&weir, &["weir_upstream_connect_failures_total"]).unwrap() - before;
    let most = 3.0 * (1.0 + began.elapsed().as_secs_f64() / 0.1);
    assert!(dials <= most, "{dials} dials; {most} are allowed");
    assert_eq!(seen.failed.len(), seen.requests);
    for (status, text) in &seen.failed {
        let expected = if *status == 502 { CONNECT_REFUSED } else { NO_HEALTHY_ENDPOINT };
        assert!(*status == expected.0 && text.contains(expected.1), "{status} {text}");
    }
    // No request waited for a dial: an endpoint is avoided for a second, and a connect may take three.
    assert!(seen.slowest < Duration::from_millis(900), "{:?}", seen.slowest);
    assert!(seen.failed.iter().any(|(status, _)| *status == 503));
    eventually("it is said", || weir.stderr().contains("endpoint out of rotation"));
}
