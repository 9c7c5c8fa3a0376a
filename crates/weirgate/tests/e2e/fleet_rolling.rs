//! Rolling replacement of a fleet's nodes behind a TCP balancer that checks their readiness.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use weir_testkit::{Balancer, DEADLINE, Upstream, Weir, refusing_address};

use crate::fleet::{Config, Etcd, at_length, readiness, status, within};
use crate::support::{ALL_TO_UP, GET, OK_BODY, WEB};

/// How long a node may take to leave.
const PATIENCE: Duration = Duration::from_secs(40);

/// A config whose upstream must pass a probe before a node is ready. A leaving node reports it for a while before it
/// closes its listeners.
fn config(upstream: SocketAddr) -> Config {
    Config::of(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{upstream}], health: {{ probe: {{ interval: 20ms, timeout: 5s, healthy: 1, readyz: true }} }} }} }}\n\
         {ALL_TO_UP}\nshutdown: {{ delay: 2s, drain: 20s }}\n"
    ))
}

fn joins(balancer: &Balancer, weir: &Weir) {
    let address = weir.address("web");
    balancer.add(&address, &weir.admin());
    within("the new one is ready", || balancer.is_ready(&address));
}

fn names(etcd: &Etcd) -> Vec<String> {
    let status = etcd.status();
    let nodes = status["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn nodes_are_replaced_and_no_client_sees_an_error() {
    if !at_length() {
        return;
    }
    let Some(etcd) = Etcd::start() else { return };
    let upstream = Upstream::fixed(OK_BODY);
    etcd.publish(&config(upstream.address()), &[]);
    let balancer = Balancer::start();
    let mut weirs: Vec<Weir> = ["a", "b"].iter().map(|name| etcd.node(name, "")).collect();
    weirs.iter().for_each(|weir| joins(&balancer, weir));
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let ends = Ends(&done); // also on failure
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let (address, done, answered) = (balancer.address(), &done, &answered);
                scope.spawn(move || goes_on(address, number % 2 == 0, done, answered))
            })
            .collect();
        for (new, old) in [("c", "a"), ("d", "b")] {
            let enough = answered.load(Relaxed) + 50;
            within("requests are answered", || answered.load(Relaxed) > enough);
            let joined = etcd.node(new, "");
            joins(&balancer, &joined);
            weirs.push(joined);
            let mut leaves = weirs.remove(0);
            leaves.signal(15);
            leaves.wait_exit(PATIENCE).expect_code(0);
            within("it is not a node any more", || {
                let names = names(&etcd);
                !names.iter().any(|name| name == old) && names.iter().any(|name| name == new)
            });
        }
        let enough = answered.load(Relaxed) + 50;
        within("requests are answered by the new ones", || answered.load(Relaxed) > enough);
        drop(ends);
        for client in clients {
            client.join().unwrap();
        }
    });
    for weir in &weirs {
        assert!(balancer.got(&weir.address("web")) > 0);
    }
}

/// Twenty changes under load, an etcd that is killed and restarted meanwhile, and a replaced node: every request is
/// answered.
#[test]
fn no_request_fails_through_changes_a_killed_etcd_and_a_replaced_node() {
    const CHANGES: usize = 20;
    if !at_length() {
        return;
    }
    let Some(mut etcd) = Etcd::start() else { return };
    let upstream = Upstream::fixed(OK_BODY);
    let config = config(upstream.address());
    let publish = |etcd: &Etcd, change: usize| {
        let main = config.folder().join("weir.yaml");
        let text = std::fs::read_to_string(&main).unwrap();
        std::fs::write(&main, format!("{text}# change {change}\n")).unwrap();
        etcd.publish(&config, &[]);
    };
    publish(&etcd, 0);
    let balancer = Balancer::start();
    let mut weirs: Vec<Weir> = ["a", "b", "c"].iter().map(|name| etcd.node(name, "")).collect();
    weirs.iter().for_each(|weir| joins(&balancer, weir));
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let ends = Ends(&done);
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let (address, done, answered) = (balancer.address(), &done, &answered);
                scope.spawn(move || goes_on(address, number % 2 == 0, done, answered))
            })
            .collect();
        let more = |what: &str| {
            let enough = answered.load(Relaxed) + 50;
            within(what, || answered.load(Relaxed) > enough);
        };
        for change in 1..=CHANGES {
            publish(&etcd, change);
            let to = etcd.status()["pointer"]["to"].as_str().unwrap().to_owned();
            within("all run it", || weirs.iter().all(|weir| runs(weir, &to)));
            match change {
                7 => {
                    etcd.kill();
                    within("they notice", || weirs.iter().all(|weir| status(weir)["state"] == "away"));
                    more("requests are answered without etcd");
                    etcd.start_again();
                    within("they follow again", || {
                        weirs.iter().all(|weir| status(weir)["state"] == "following")
                    });
                }
                14 => {
                    let joined = etcd.node("d", "");
                    joins(&balancer, &joined);
                    weirs.push(joined);
                    let mut leaves = weirs.remove(0);
                    leaves.signal(15);
                    leaves.wait_exit(PATIENCE).expect_code(0);
                }
                _ => more("requests are answered"),
            }
        }
        more("requests are answered at the end");
        drop(ends);
        for client in clients {
            client.join().unwrap();
        }
    });
    println!(
        "FIGURE {} requests through {CHANGES} changes, a killed etcd and a replaced node: 0 failed",
        answered.load(Relaxed)
    );
}

/// Whether a node runs this bundle.
fn runs(weir: &Weir, bundle: &str) -> bool {
    status(weir)["bundle"].as_str().is_some_and(|runs| runs == bundle)
}

/// Stops the clients.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One client: sends requests until it is done, over one connection while it lasts, or each over a new one.
fn goes_on(address: SocketAddr, keeps: bool, done: &AtomicBool, answered: &AtomicUsize) {
    let mut connection: Option<TcpStream> = None;
    while !done.load(Relaxed) {
        let is_used = connection.is_some();
        let mut stream = connection.take().unwrap_or_else(|| connect(address));
        match ask(&mut stream) {
            Some(head) => {
                assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                answered.fetch_add(1, Relaxed);
                let closes = head.to_ascii_lowercase().contains("connection: close");
                connection = (keeps && !closes).then_some(stream);
            }
            // The connection was closed while idle, without a byte of an answer: every client retries then (RFC 9112
            // §9.3.1).
            None if is_used => {}
            None => panic!("a new connection gives no answer"),
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE * 2)).unwrap();
    stream
}

/// The head of the answer; `None` if the connection ends before its first byte.
fn ask(stream: &mut TcpStream) -> Option<String> {
    if stream.write_all(GET.as_bytes()).is_err() {
        return None;
    }
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body == "ok"
        {
            return Some(head.to_owned());
        }
        match stream.read(&mut piece) {
            Ok(read @ 1..) => answer.extend_from_slice(&piece[..read]),
            Ok(0) | Err(_) if answer.is_empty() => return None,
            other => panic!("{other:?} after {text}"),
        }
    }
}

/// A node with its bundle but without a probed upstream gets no connections yet.
#[test]
fn a_node_that_is_not_warm_is_not_ready() {
    let Some(etcd) = Etcd::start() else { return };
    let (_nobody, refuses) = refusing_address();
    etcd.publish(&config(refuses), &[]);
    let weir = etcd.node("a", "");
    within("its bundle runs", || status(&weir)["state"] == "following");
    assert_eq!(readiness(&weir), 503);
    let upstream = Upstream::fixed(OK_BODY);
    etcd.publish(&config(upstream.address()), &[]);
    within("it is ready once a probe has passed", || readiness(&weir) == 200);
}

/// If the authority is away, a fleet's node waits for its certificates. A single gateway does not, because no other
/// serves in its place.
#[test]
fn a_node_waits_for_its_certificates() {
    let Some(etcd) = Etcd::start() else { return };
    let storage = tempfile::tempdir().unwrap();
    let (_nobody, refuses) = refusing_address();
    let config = format!(
        "listeners:\n  web: {{ address: 127.0.0.1:0 }}\n  secure:\n    address: 127.0.0.1:0\n    tls: {{ acme: {{ domains: [a.test], directory: \"https://{refuses}/dir\", storage: \"{}\" }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200 }} }} }}\n",
        storage.path().display()
    );
    etcd.publish(&Config::of(&config), &[]);
    let weir = etcd.node("a", "");
    let asked = weir.admin_client().ask("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    asked.expect_status(503).expect_body("waiting for 1 certificates\n");
    assert_eq!(weir.client().ask(GET).status, 200, "it serves all the same");
    assert_eq!(readiness(&Weir::start(&config)), 200);
    etcd.publish(&Config::saying("clear text alone"), &["--force"]);
    within("it is ready once none is missing", || readiness(&weir) == 200);
}

#[test]
fn a_node_says_who_it_is() {
    let Some(etcd) = Etcd::start() else { return };
    etcd.publish(&Config::saying("one"), &[]);
    let weir =
        Weir::start(&format!("{}zone: eu-1\n", etcd.bootstrap("a", "canary: \"true\"", "{dir}/last-good")));
    let told = status(&weir);
    assert_eq!((&told["node"], &told["zone"]), (&"a".into(), &"eu-1".into()), "{told}");
    assert_eq!(told["labels"]["canary"], "true");
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let line = metrics.lines().find(|line| line.starts_with("weir_node_info{")).unwrap_or_default();
    assert!(line.contains("node=\"a\"") && line.contains("zone=\"eu-1\""), "{line}");
    within("the fleet knows", || {
        let answer = weir.admin_client().ask("GET /api/v1/fleet HTTP/1.1\r\nHost: localhost\r\n\r\n");
        answer.status == 200 && answer.json()["nodes"][0]["zone"] == "eu-1"
    });
    let fleet = weir.admin_client().ask("GET /api/v1/fleet HTTP/1.1\r\nHost: localhost\r\n\r\n").json();
    assert_eq!((&fleet["self"], &fleet["pointer"]["generation"]), (&"a".into(), &1.into()), "{fleet}");
    assert_eq!(fleet["nodes"][0]["is_open"], true);
}
