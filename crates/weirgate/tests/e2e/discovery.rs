//! Endpoints from a registry: a real etcd that is changed, killed, compacted and emptied; Consul's blocking queries;
//! SRV records; a file.
//!
//! Without etcd its tests print a note and pass; `make test` installs it. Consul is our own server, written after its
//! documentation: no Debian package exists, and `go install` refuses its Go module because of `replace` directives.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::{Upstream, Weir, eventually, eventually_within, run_weir};

use crate::fleet::Etcd;
use crate::health::metric;
use crate::support::{ALL_TO_UP, WEB, config};

/// How long another program may take on a busy machine.
const LONG: Duration = Duration::from_secs(40);

pub(crate) fn discovery(weir: &Weir) -> Value {
    status(weir)["discovery"].clone()
}

pub(crate) fn status(weir: &Weir) -> Value {
    let asked = format!("GET /status HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin());
    weir.admin_client().ask(asked).json()["upstreams"]["up"].clone()
}

/// The current endpoints' addresses, sorted.
fn endpoints(weir: &Weir) -> Vec<String> {
    let status = status(weir);
    let mut all: Vec<String> = status["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["address"].as_str().unwrap().to_owned())
        .collect();
    all.sort();
    all
}

#[track_caller]
pub(crate) fn come_to_be(weir: &Weir, expected: &[&Upstream]) {
    let mut expected: Vec<String> = expected.iter().map(|upstream| upstream.address().to_string()).collect();
    expected.sort();
    eventually_within(LONG, &format!("the endpoints are {expected:?}"), || endpoints(weir) == expected);
}

#[track_caller]
pub(crate) fn comes_to_be_said(weir: &Weir, state: &str) {
    eventually_within(LONG, &format!("the registry is {state}"), || discovery(weir)["state"] == state);
}

/// The registration format of kratos and sponge.
fn kratos(name: &str, http: SocketAddr, weight: u32) -> String {
    json!({
        "id": format!("id-{}", http.port()), "name": name, "version": "v1", "metadata": { "weight": weight.to_string() },
        "endpoints": [format!("grpc://127.0.0.1:1?isSecure=false"), format!("http://{http}?isSecure=false")],
    })
    .to_string()
}

fn etcd_config(etcd: &Etcd, more: &str) -> String {
    config(&format!(
        "discover: {{ etcd: {{ servers: [\"http://{}\"], key: /microservices/orders, format: kratos }} }}{more}",
        etcd.address
    ))
}

#[test]
fn instances_in_etcd_come_and_go() {
    let Some(etcd) = Etcd::start() else { return };
    let [a, b, other] = ["a", "b", "other"].map(Upstream::named);
    etcd.put("/microservices/orders/1", &kratos("orders", a.address(), 3));
    etcd.put("/microservices/orders2/1", &kratos("orders2", other.address(), 1));
    let weir = Weir::start(&etcd_config(&etcd, ""));
    weir.client().get("/").expect_body("a");
    assert_eq!(status(&weir)["endpoints"][0]["weight"], 3);
    etcd.put("/microservices/orders/2", &kratos("orders", b.address(), 1));
    come_to_be(&weir, &[&a, &b]);
    // An unusable entry is reported, and removes no other.
    etcd.put("/microservices/orders/3", "10.0.0.1:80");
    eventually("it is told", || discovery(&weir)["left_out"][0]["id"] == "3");
    assert_eq!(endpoints(&weir).len(), 2);
    // An entry whose lease ends is removed as if deleted.
    let lease = etcd.put_under_lease("/microservices/orders/4", &kratos("orders", other.address(), 1));
    come_to_be(&weir, &[&a, &b, &other]);
    etcd.revoke(&lease);
    etcd.delete("/microservices/orders/1");
    come_to_be(&weir, &[&b]);
    weir.client().get("/").expect_body("b");
    // The last one may leave.
    etcd.delete("/microservices/orders/2");
    etcd.delete("/microservices/orders/3");
    come_to_be(&weir, &[]);
    weir.client().get("/").expect_status(503);
    assert_eq!(discovery(&weir)["state"], "following");
    assert_eq!(metric(&weir, &["weir_discovery_up", "up"]), Some(1.0));
}

#[test]
fn an_etcd_that_is_away_takes_nobody_out() {
    let Some(mut etcd) = Etcd::start() else { return };
    let [a, b] = ["a", "b"].map(Upstream::named);
    etcd.put("/microservices/orders/1", &kratos("orders", a.address(), 1));
    let weir = Weir::start(&etcd_config(&etcd, ""));
    come_to_be(&weir, &[&a]);
    etcd.kill();
    comes_to_be_said(&weir, "away");
    let said = discovery(&weir);
    for field in ["error", "away_since", "last_good"] {
        assert!(said[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {said}");
    }
    weir.client().get("/").expect_body("a");
    // A reload that changes the upstream while the registry is unreachable keeps the known endpoints.
    weir.reload_with(&etcd_config(&etcd, ", keepalive: 30s")).unwrap();
    weir.client().get("/").expect_body("a");
    come_to_be(&weir, &[&a]);
    // Once etcd is back, changes made meanwhile are found although their revisions are compacted.
    etcd.start_again();
    comes_to_be_said(&weir, "following");
    etcd.put("/microservices/orders/2", &kratos("orders", b.address(), 1));
    etcd.delete("/microservices/orders/1");
    etcd.compact();
    come_to_be(&weir, &[&b]);
    // An etcd that lost its disk lists nothing. The endpoints stay.
    etcd.kill();
    etcd.start_empty();
    eventually_within(LONG, "it is told", || {
        discovery(&weir)["error"].as_str().is_some_and(|why| why.contains("lost"))
    });
    weir.client().get("/").expect_body("b");
    etcd.put("/microservices/orders/7", &kratos("orders", a.address(), 1));
    come_to_be(&weir, &[&a]);
    weir.client().get("/").expect_body("a");
}

#[test]
fn instances_of_go_zero() {
    let Some(etcd) = Etcd::start() else { return };
    let [a, b] = ["a", "b"].map(Upstream::named);
    let weir = Weir::start(&config(&format!(
        "discover: {{ etcd: {{ servers: [\"http://{}\"], key: greeter.rpc, format: go_zero }} }}",
        etcd.address
    )));
    come_to_be(&weir, &[]);
    etcd.put("greeter.rpc/7587848943239472414", &a.address().to_string());
    etcd.put("greeter.rpc2/7587848943239472415", &b.address().to_string());
    come_to_be(&weir, &[&a]);
    weir.client().get("/").expect_body("a");
    // Instances registered under this name in another format are reported.
    etcd.put("greeter.rpc/8", &kratos("greeter.rpc", b.address(), 1));
    eventually("it is told", || discovery(&weir)["unusable"] == 1);
    assert_eq!(endpoints(&weir).len(), 1);
}

/// The part of Consul that is used: `/v1/health/service/NAME`, blocking while the index equals the query's.
struct Consul {
    server: Upstream,
    state: Arc<(Mutex<Catalogue>, Condvar)>,
}

struct Catalogue {
    index: u64,
    services: Vec<Value>,
    /// A wrong answer to send instead.
    broken: Option<&'static str>,
}

impl Consul {
    fn start() -> Self {
        let state = Arc::new((
            Mutex::new(Catalogue { index: 10, services: Vec::new(), broken: None }),
            Condvar::new(),
        ));
        let shared = Arc::clone(&state);
        let server = Upstream::script(move |conn| {
            while let Some(request) = conn.next_request() {
                let answer = answer(&request.head.line, &shared);
                if conn.try_send(answer).is_err() {
                    return; // the requester has been stopped
                }
            }
        });
        Self { server, state }
    }

    fn change(&self, change: impl FnOnce(&mut Catalogue)) {
        let mut catalogue = self.state.0.lock().unwrap();
        catalogue.index += 1;
        change(&mut catalogue);
        self.state.1.notify_all();
    }

    fn config(&self, more: &str) -> String {
        config(&format!(
            "discover: {{ consul: {{ servers: [\"http://{}\"], service: orders{more} }} }}",
            self.server.address()
        ))
    }
}

impl Drop for Consul {
    /// Requests that still wait get an answer.
    fn drop(&mut self) {
        self.change(|catalogue| {
            catalogue.broken = Some("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        });
    }
}

fn answer(line: &str, (state, changed): &(Mutex<Catalogue>, Condvar)) -> String {
    let target = line.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    assert_eq!(path, "/v1/health/service/orders", "{line}");
    assert!(query.split('&').any(|pair| pair == "passing=1"), "{line}");
    let asked: Option<u64> = query.split('&').find_map(|pair| pair.strip_prefix("index=")?.parse().ok());
    let catalogue = state.lock().unwrap();
    let same = |catalogue: &mut Catalogue| asked == Some(catalogue.index) && catalogue.broken.is_none();
    let (catalogue, _) = changed.wait_timeout_while(catalogue, Duration::from_secs(30), same).unwrap();
    if let Some(broken) = catalogue.broken {
        return broken.to_owned();
    }
    let body = Value::from(catalogue.services.clone()).to_string();
    format!(
        "HTTP/1.1 200 OK\r\nX-Consul-Index: {}\r\nX-Consul-Knownleader: true\r\nContent-Length: {}\r\n\r\n{body}",
        catalogue.index,
        body.len()
    )
}

fn service(id: &str, address: SocketAddr) -> Value {
    json!({
        "Node": { "Node": "n", "Address": "127.0.0.9" },
        "Service": {
            "ID": id, "Service": "orders", "Tags": ["version=v1"], "Address": address.ip().to_string(), "Port": address.port(),
            "Meta": {}, "Weights": { "Passing": 5, "Warning": 1 }, "CreateIndex": 3,
        },
        "Checks": [{ "Status": "passing" }],
    })
}

#[test]
fn services_of_consul_come_and_go() {
    let consul = Consul::start();
    let [a, b] = ["a", "b"].map(Upstream::named);
    consul.change(|catalogue| catalogue.services = vec![service("1", a.address())]);
    let weir = Weir::start(&consul.config(""));
    weir.client().get("/").expect_body("a");
    assert_eq!(status(&weir)["endpoints"][0]["weight"], 5);
    assert_eq!(discovery(&weir)["instances"][0]["version"], "v1");
    consul.change(|catalogue| catalogue.services.push(service("2", b.address())));
    come_to_be(&weir, &[&a, &b]);
    consul.change(|catalogue| drop(catalogue.services.remove(0)));
    come_to_be(&weir, &[&b]);
    // Neither an error nor another service's page is a list.
    for broken in [
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 17\r\n\r\nNo cluster leader",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        "HTTP/1.1 200 OK\r\nX-Consul-Index: 99\r\nContent-Length: 6\r\n\r\n<html>",
    ] {
        consul.change(|catalogue| catalogue.broken = Some(broken));
        comes_to_be_said(&weir, "away");
        weir.client().get("/").expect_body("b");
        consul.change(|catalogue| catalogue.broken = None);
        comes_to_be_said(&weir, "following");
    }
    // Restored from an old snapshot that lists nothing.
    consul.change(|catalogue| {
        catalogue.index = 2;
        catalogue.services.clear();
    });
    eventually_within(LONG, "it is told", || {
        discovery(&weir)["error"].as_str().is_some_and(|why| why.contains("lost"))
    });
    weir.client().get("/").expect_body("b");
    consul.change(|catalogue| catalogue.services = vec![service("1", a.address())]);
    come_to_be(&weir, &[&a]);
}

/// A name server: SRV records for every name that begins with `_`, and 127.0.0.1 for all others.
struct Records {
    port: u16,
    /// Priority, weight, port; `None` answers with an error.
    records: Arc<Mutex<Option<Vec<[u16; 3]>>>>,
}

impl Records {
    fn start(records: &[[u16; 3]]) -> Self {
        let records = Arc::new(Mutex::new(Some(records.to_vec())));
        let known = Arc::clone(&records);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut query) {
                let known = known.lock().unwrap().clone();
                if let Some(answer) = dns_answer(&query[..len], known.as_deref()) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { port, records }
    }

    fn know(&self, records: Option<&[[u16; 3]]>) {
        *self.records.lock().unwrap() = records.map(<[_]>::to_vec);
    }
}

/// The answer to a query with one question, with a TTL of 0. Source: RFC 1035 §4, RFC 2782.
fn dns_answer(query: &[u8], known: Option<&[[u16; 3]]>) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|b| *b == 0)? + 13;
    let question = query.get(12..name + 4)?;
    let kind = question.get(question.len() - 4..)?;
    let mut all: Vec<(u8, Vec<u8>)> = Vec::new();
    let known = known.unwrap_or(&[]);
    match kind {
        [0, 33, 0, 1] => {
            for record in known {
                let mut data: Vec<u8> = record.iter().flat_map(|part| part.to_be_bytes()).collect();
                data.extend(b"\x04host\x04test\0");
                all.push((33, data));
            }
        }
        [0, 1, 0, 1] => all.push((1, vec![127, 0, 0, 1])),
        _ => {}
    }
    let code = if kind == [0, 33, 0, 1] && known.is_empty() { 0x82 } else { 0x80 }; // SERVFAIL, or an answer
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x81, code, 0, 1, 0, u8::try_from(all.len()).ok()?, 0, 0, 0, 0]);
    answer.extend(question);
    for (kind, data) in all {
        answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0]);
        answer.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        answer.extend(data);
    }
    Some(answer)
}

#[test]
fn srv_records_are_endpoints() {
    let [a, b, spare] = ["a", "b", "spare"].map(Upstream::named);
    let record =
        |priority: u16, weight: u16, upstream: &Upstream| [priority, weight, upstream.address().port()];
    let records = Records::start(&[record(10, 7, &a), record(500, 0, &spare)]);
    let weir = Weir::start(&format!(
        "{WEB}\ndns: {{ servers: [127.0.0.1:{}], min_ttl: 10ms, max_ttl: 50ms }}\n\
         upstreams: {{ up: {{ discover: {{ srv: _http._tcp.orders.test }} }} }}\n{ALL_TO_UP}\n",
        records.port
    ));
    come_to_be(&weir, &[&a, &spare]);
    weir.client().get("/").expect_body("a");
    let first = |weir: &Weir| {
        let status = status(weir);
        let of = |e: &Value| {
            (e["address"].as_str().unwrap().to_owned(), e["weight"].as_u64(), e["priority"].as_u64())
        };
        status["endpoints"].as_array().unwrap().iter().map(of).find(|(at, ..)| *at == a.address().to_string())
    };
    assert_eq!(first(&weir), Some((a.address().to_string(), Some(7), Some(0))));
    records.know(Some(&[record(10, 1, &b)]));
    come_to_be(&weir, &[&b]);
    records.know(None);
    comes_to_be_said(&weir, "away");
    weir.client().get("/").expect_body("b");
    records.know(Some(&[record(0, 0, &a)]));
    come_to_be(&weir, &[&a]);
}

#[test]
fn a_file_is_watched() {
    let [a, b] = ["a", "b"].map(Upstream::named);
    let yaml = config("discover: { file: endpoints.yaml }, balancer: round_robin");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("endpoints.yaml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    write(&format!("- {}\n", a.address()));
    let weir = Weir::start(&yaml.replace("endpoints.yaml", path.to_str().unwrap()));
    weir.client().get("/").expect_body("a");
    let mut list = String::new();
    for (upstream, weight) in [(&a, 2), (&b, 3)] {
        writeln!(list, "- {{ address: \"{}\", weight: {weight} }}", upstream.address()).unwrap();
    }
    write(&list);
    come_to_be(&weir, &[&a, &b]);
    // An unreadable file changes nothing, and is reported with its position.
    write("- 127.0.0.1\n");
    comes_to_be_said(&weir, "away");
    let error = discovery(&weir)["error"].as_str().unwrap().to_owned();
    assert!(error.contains("endpoints.yaml:1:3") && error.contains("is not an endpoint"), "{error}");
    fs::remove_file(&path).unwrap();
    eventually("it is missed", || {
        discovery(&weir)["error"].as_str().is_some_and(|why| why.contains("No such file"))
    });
    assert_eq!(endpoints(&weir).len(), 2);
    write(&format!("[ \"{}\" ]", b.address()));
    come_to_be(&weir, &[&b]);
    weir.client().get("/").expect_body("b");
    // None of this was a reload, and a reload changes none of it.
    assert!(weir.logged("reloaded").is_empty());
    weir.reload().unwrap();
    weir.client().get("/").expect_body("b");
    write("[]");
    come_to_be(&weir, &[]);
}

#[test]
fn what_is_asked_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let explained = |discover: &str| {
        let yaml = config(&format!("protocol: h2c, discover: {{ {discover} }}"));
        fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
        run_weir(dir.path(), &["explain", "GET", "http://weir.test/"]).expect_code(0).stdout.clone()
    };
    for (discover, told) in [
        (
            "etcd: { servers: [\"http://127.0.0.1:2379\"], key: /microservices/orders, format: kratos, version: v2 }",
            "etcd http://127.0.0.1:2379 /microservices/orders (kratos, grpc version v2)",
        ),
        ("consul: { service: orders, tag: blue }", "consul http://127.0.0.1:8500 orders tag blue (grpc)"),
        ("srv: _grpc._tcp.orders.internal", "srv _grpc._tcp.orders.internal"),
    ] {
        let text = explained(discover);
        assert!(text.contains(told), "{text}");
    }
    let checked = |dir: &Path| run_weir(dir, &["check"]).expect_code(0).stdout.clone();
    let _ = checked(dir.path()); // no registry is asked: nobody answers there
}
