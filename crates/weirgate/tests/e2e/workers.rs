//! `workers` changes while the gateway serves: cores come and go, requests and connections do not notice.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::{fs, thread};

use weir_testkit::h2::H2;
use weir_testkit::{Client, Upstream, Weir, eventually};

use crate::health::{admin, metric};
use crate::support::{GET, OK_BODY};
use crate::upgrade::tunnel;

/// A gateway with this many workers, in front of this upstream.
fn config(workers: usize, address: &str, upstream: &Upstream) -> String {
    format!(
        "workers: {workers}\nlisteners: {{ web: {{ address: {address}, protocols: [ http1, h2 ] }}, local: {{ address: \"unix:local.sock\" }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes:\n  ours: {{ match: {{ path: /ours }}, respond: {{ body: hello }} }}\n  \
         all: {{ match: {{ path: \"/*\" }}, upstream: up }}\nshutdown: {{ drain: 3s }}\n",
        upstream.address()
    )
}

/// The threads of cores.
fn threads(weir: &Weir) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", weir.pid())).unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks
        .flatten()
        .filter(|task| fs::metadata(task.path()).is_ok())
        .map(name)
        .filter(|n| n.starts_with("weir-core-"))
        .count()
}

fn change(weir: &Weir, workers: usize, upstream: &Upstream) {
    weir.reload_with(&config(workers, &weir.address("web"), upstream)).unwrap();
    assert_eq!(metric(weir, &["weir_workers"]), Some(workers as f64));
}

#[test]
fn ten_changes_under_load_lose_nothing() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&config(2, "127.0.0.1:0", &upstream));
    let address = weir.address("web");
    let local = format!("unix:{}", weir.dir().join("local.sock").display());
    let (over, answered, streams) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        // A connection for each request, one for a few, and one for as many as it is given.
        for (address, requests, path) in [
            (&address, 1, "/ours"),
            (&address, 1, "/through"),
            (&address, 3, "/ours"),
            (&address, 1000, "/through"),
            (&address, 1000, "/ours"),
            (&local, 3, "/ours"),
        ] {
            let (over, answered) = (&over, &answered);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let mut client = Client::connect(address);
                    for _ in 0..requests {
                        // Panics with the received bytes if there is no answer.
                        let response = client.get(path);
                        response.expect_status(200);
                        answered.fetch_add(1, Relaxed);
                        if response.header("connection") == Some("close") || over.load(Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        let (over, streams, weir) = (&over, &streams, &weir);
        scope.spawn(move || {
            while !over.load(Relaxed) {
                let mut h2 = H2::client(weir.client());
                for _ in 0..20 {
                    let stream = h2.get("/ours");
                    let message = h2.message(stream);
                    // A connection that is to close may refuse a stream that it has not begun, for a repetition.
                    if message.status() != 200 {
                        break;
                    }
                    streams.fetch_add(1, Relaxed);
                }
            }
        });
        for workers in [1, 3, 2, 5, 1, 4, 1, 2, 6, 2] {
            let before = (answered.load(Relaxed), streams.load(Relaxed));
            change(weir, workers, &upstream);
            eventually("requests go on", || {
                answered.load(Relaxed) > before.0 + 50 && streams.load(Relaxed) > before.1 + 5
            });
        }
        over.store(true, Relaxed);
    });
    eventually("only two cores are left", || threads(&weir) == 2);
    let counted = || -> f64 {
        let text = admin(&weir, "/metrics");
        let lines = text.lines().filter(|line| line.starts_with("weir_requests_total{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let sent = (answered.load(Relaxed) + streams.load(Relaxed)) as f64;
    assert!(counted() >= sent, "{} of {sent}: the counts of cores that ended stay in the sums", counted());
    for connections in ["weir_connections_active", "weir_requests_active"] {
        eventually("nothing is open", || metric(&weir, &[connections]).unwrap_or_default() == 0.0);
    }
    // The sockets are as many as the most cores that there were, however often they changed hands.
    assert!(listening(&weir) <= 6, "{} sockets", listening(&weir));
}

/// The sockets that listen at the address of `web`.
fn listening(weir: &Weir) -> usize {
    let port: u16 = weir.address("web").rsplit_once(':').unwrap().1.parse().unwrap();
    let sockets = fs::read_to_string(format!("/proc/{}/net/tcp", weir.pid())).unwrap();
    sockets.lines().filter(|line| line.contains(&format!("0100007F:{port:04X} 00000000:0000 0A"))).count()
}

/// An idle connection of a core that goes brings one more request, and a tunnel lives until its time is over.
#[test]
fn connections_of_a_core_that_goes() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(4, "127.0.0.1:0", &upstream));
    let mut idle: Vec<_> = (0..40).map(|_| weir.client()).collect();
    for client in &mut idle {
        client.get("/ours").expect_no_header("connection");
    }
    let (mut client, mut conn) = tunnel(&weir, &upstream);
    change(&weir, 1, &upstream);
    client.send("still here?");
    conn.expect("still here?");
    conn.send("yes");
    client.expect("yes");
    let mut closed = 0;
    for mut client in idle {
        let response = client.get("/ours");
        response.expect_status(200).expect_body("hello");
        if response.header("connection") == Some("close") {
            client.expect_close();
            closed += 1;
        } else {
            client.get("/ours").expect_status(200);
        }
    }
    assert!((10..40).contains(&closed), "{closed} of 40 were on the three cores that left");
    client.close();
    conn.close();
    eventually("their threads end", || threads(&weir) == 1);
    assert_eq!(weir.stderr().matches("its connections are cut").count(), 0, "{}", weir.stderr());
}

/// What does not end by itself is cut when `shutdown.drain` is over, and a core that leaves may be called back.
#[test]
fn a_core_that_leaves_is_called_back_or_cut() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(8, "127.0.0.1:0", &upstream));
    let mut tunnels: Vec<_> = (0..12).map(|_| tunnel(&weir, &upstream)).collect();
    change(&weir, 1, &upstream);
    change(&weir, 8, &upstream);
    assert_eq!(threads(&weir), 8, "no second thread for a number that is in use");
    for (client, conn) in &mut tunnels {
        client.send("on");
        conn.expect("on");
    }
    let mut clients: Vec<_> = (0..32).map(|_| weir.client()).collect();
    for client in &mut clients {
        client.ask(GET.replace("/ ", "/ours ")).expect_status(200);
    }
    change(&weir, 1, &upstream);
    eventually("all others have ended", || threads(&weir) == 1);
    weir.wait_log("a worker's drain deadline passed: its connections are cut");
    weir.client().get("/ours").expect_status(200);
}
