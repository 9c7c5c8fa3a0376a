//! Containers as endpoints (`discover: { docker }`), against an engine of our own on a Unix socket, written after the
//! documentation of its API: no engine runs in a test's sandbox.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::{Upstream, Weir, eventually, run_weir};

use crate::discovery::{come_to_be, comes_to_be_said, discovery, status};
use crate::support::config;

/// The part of the API that is used: the list of containers, and the events.
struct Engine {
    dir: tempfile::TempDir,
    state: Arc<(Mutex<Containers>, Condvar)>,
}

#[derive(Default)]
struct Containers {
    all: Vec<Value>,
    /// How many events there were.
    events: usize,
    /// How many streams of events were cut.
    cuts: usize,
    /// A wrong answer to send instead of a list.
    broken: Option<String>,
    lists: usize,
    ends: bool,
}

impl Engine {
    fn start() -> Self {
        let engine = Self { dir: tempfile::tempdir().unwrap(), state: Arc::default() };
        engine.listen();
        engine
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    fn listen(&self) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let state = Arc::clone(&self.state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if state.0.lock().unwrap().ends {
                    return;
                }
                let state = Arc::clone(&state);
                // The gateway may leave in the middle.
                thread::spawn(move || drop(answer(stream, &state)));
            }
        });
    }

    /// Changes the engine, and tells it by an event.
    fn change(&self, change: impl FnOnce(&mut Containers)) {
        let mut state = self.state.0.lock().unwrap();
        change(&mut state);
        state.events += 1;
        self.state.1.notify_all();
    }

    fn config(&self, more: &str) -> String {
        config(&format!("discover: {{ docker: {{ address: \"unix:{}\"{more} }} }}", self.socket().display()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.change(|engine| engine.ends = true);
        let _ = UnixStream::connect(self.socket()); // ends the accept loop
    }
}

fn answer(mut stream: UnixStream, (state, changed): &(Mutex<Containers>, Condvar)) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.contains("host: docker\r\n"), "{head}");
    let target = head.split(' ').nth(1).unwrap();
    assert!(target.contains("weir.service%3Dup") || target.contains("weir.service%3Dorders"), "{target}");
    let mut engine = state.lock().unwrap();
    if target.starts_with("/containers/json?") {
        engine.lists += 1;
        let body = Value::from(engine.all.clone()).to_string();
        let fine = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answer = engine.broken.clone().unwrap_or(fine);
        drop(engine);
        return stream.write_all(answer.as_bytes());
    }
    assert!(target.starts_with("/events?") && !target.contains("exec"), "{target}");
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let (cuts, mut told) = (engine.cuts, engine.events);
    while engine.cuts == cuts && !engine.ends {
        if engine.events > told {
            told = engine.events;
            let event = "{\"Type\":\"container\",\"Action\":\"start\"}\n";
            write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
        }
        engine = changed.wait_timeout(engine, Duration::from_secs(30)).unwrap().0;
    }
    Ok(())
}

/// A container with the host's network, so that it is at 127.0.0.1.
fn container(name: &str, address: SocketAddr, labels: Value) -> Value {
    let mut all = json!({ "weir.service": "up", "weir.port": address.port().to_string() });
    all.as_object_mut().unwrap().extend(labels.as_object().cloned().unwrap_or_default());
    json!({
        "Id": format!("{name}0123456789ab"), "Names": [format!("/{name}")], "Created": 1_700_000_000, "State": "running",
        "Status": "Up 2 minutes", "Labels": all, "Ports": [], "HostConfig": { "NetworkMode": "host" },
        "NetworkSettings": { "Networks": {} },
    })
}

#[test]
fn containers_come_and_go() {
    let engine = Engine::start();
    let [a, b] = ["a", "b"].map(Upstream::named);
    engine.change(|engine| engine.all = vec![container("a", a.address(), json!({ "weir.weight": "3" }))]);
    let weir = Weir::start(&engine.config(""));
    weir.client().get("/").expect_body("a");
    assert_eq!(status(&weir)["endpoints"][0]["weight"], 3);
    assert_eq!(discovery(&weir)["instances"][0]["id"], "a");
    engine.change(|engine| engine.all.push(container("b", b.address(), json!({}))));
    come_to_be(&weir, &[&a, &b]);
    // What labels say beyond an endpoint counts for nothing.
    engine.change(|engine| {
        engine.all.push(container("c", a.address(), json!({ "weir.routes.admin.match": "/*" })));
        engine.all.push(container("d", a.address(), json!({ "weir.service": "other" })));
    });
    eventually("they are told", || discovery(&weir)["unusable"] == 2);
    come_to_be(&weir, &[&a, &b]);
    engine.change(|engine| drop(engine.all.remove(0)));
    come_to_be(&weir, &[&b]);
    weir.client().get("/").expect_body("b");
    // A stream that ends is opened again, and nothing that happened meanwhile is missed.
    engine.change(|engine| {
        engine.cuts += 1;
        engine.all = vec![container("a", a.address(), json!({}))];
    });
    come_to_be(&weir, &[&a]);
    engine.change(|engine| engine.all.clear());
    come_to_be(&weir, &[]);
    assert!(weir.logged("reloaded").is_empty());
}

#[test]
fn an_engine_that_is_away_takes_nobody_out() {
    let engine = Engine::start();
    let a = Upstream::named("a");
    engine
        .change(|engine| engine.all = vec![container("a", a.address(), json!({ "weir.service": "orders" }))]);
    let weir = Weir::start(&engine.config(", service: orders"));
    weir.client().get("/").expect_body("a");
    let long =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", (8 << 20) + 1) + &" ".repeat((8 << 20) + 1);
    for broken in [
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 14\r\n\r\n{\"message\":\"\"}",
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        "SSH-2.0\r\n\r\n",
        &long,
    ] {
        engine.change(|engine| engine.broken = Some(broken.to_owned()));
        comes_to_be_said(&weir, "away");
        weir.client().get("/").expect_body("a");
        engine.change(|engine| engine.broken = None);
        comes_to_be_said(&weir, "following");
    }
    // Restarted: the socket is gone for a while.
    fs::remove_file(engine.socket()).unwrap();
    engine.change(|engine| engine.cuts += 1);
    comes_to_be_said(&weir, "away");
    assert!(discovery(&weir)["error"].as_str().unwrap().contains("docker.sock"), "{}", discovery(&weir));
    weir.client().get("/").expect_body("a");
    engine.listen();
    comes_to_be_said(&weir, "following");
}

/// Many containers that start together cost a few lists, not one each.
#[test]
fn a_burst_of_events_is_gathered() {
    let engine = Engine::start();
    let a = Upstream::named("a");
    let weir = Weir::start(&engine.config(""));
    eventually("the first list is read", || engine.state.0.lock().unwrap().lists > 0);
    let before = engine.state.0.lock().unwrap().lists;
    for _ in 0..200 {
        engine.change(|engine| engine.all = vec![container("a", a.address(), json!({}))]);
    }
    come_to_be(&weir, &[&a]);
    let lists = engine.state.0.lock().unwrap().lists - before;
    assert!(lists < 50, "{lists} lists");
}

#[test]
fn check_knows_it() {
    let dir = tempfile::tempdir().unwrap();
    let told = |discover: &str, args: &[&str]| {
        fs::write(dir.path().join("weir.yaml"), config(&format!("discover: {{ {discover} }}"))).unwrap();
        run_weir(Path::new(dir.path()), args)
    };
    let explain = ["explain", "GET", "http://weir.test/"];
    told("docker: {}", &explain).expect_text("docker unix:/var/run/docker.sock up");
    told("docker: { address: 127.0.0.1:2375, network: back }", &explain)
        .expect_text("docker 127.0.0.1:2375 up network back");
    told("docker: { adress: x }", &["check"]).expect_code(1);
    told("docker: {}, file: x.yaml", &["check"]).expect_code(1).expect_text("several registries");
}
