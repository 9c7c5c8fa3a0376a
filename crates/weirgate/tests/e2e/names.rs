//! Endpoints given as names: how long an answer is used, and which addresses are probed.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use weir_testkit::{Upstream, Weir, eventually};

use crate::health::metric;
use crate::support::{ALL_TO_UP, OK};

/// A name server that resolves every name to these addresses, with this TTL in seconds.
struct NameServer {
    port: u16,
    asked: Arc<AtomicUsize>,
    addresses: Arc<Mutex<Vec<Ipv4Addr>>>,
}

impl NameServer {
    fn start(ttl: u32, addresses: &[Ipv4Addr]) -> Self {
        let addresses = Arc::new(Mutex::new(addresses.to_vec()));
        let known = Arc::clone(&addresses);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut query) {
                let known = known.lock().unwrap().clone();
                let Some((answer, of_v4)) = answer(&query[..len], ttl, &known) else { continue };
                count.fetch_add(usize::from(of_v4), Ordering::Relaxed);
                let _ = socket.send_to(&answer, from);
            }
        });
        Self { port, asked, addresses }
    }

    /// Resolves every name to these addresses from now on.
    fn know(&self, addresses: &[Ipv4Addr]) {
        *self.addresses.lock().unwrap() = addresses.to_vec();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The answer to a query with one question (RFC 1035 §4), and whether it was for IPv4 addresses, the only ones.
fn answer(query: &[u8], ttl: u32, known: &[Ipv4Addr]) -> Option<(Vec<u8>, bool)> {
    let name = query.get(12..)?.iter().position(|b| *b == 0)? + 13;
    let question = query.get(12..name + 4)?;
    let of_v4 = question.ends_with(&[0, 1, 0, 1]);
    let known = if of_v4 { known } else { &[] };
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::try_from(known.len()).ok()?, 0, 0, 0, 0]);
    answer.extend(question);
    for address in known {
        answer.extend([0xc0, 12, 0, 1, 0, 1]);
        answer.extend(ttl.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(address.octets());
    }
    Some((answer, of_v4))
}

#[test]
fn an_answer_is_used_no_longer_than_max_ttl() {
    let (names, upstream) = (NameServer::start(3600, &[Ipv4Addr::LOCALHOST]), Upstream::fixed(OK));
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
         dns: {{ servers: [127.0.0.1:{}], min_ttl: 10ms, max_ttl: 50ms }}\n\
         upstreams: {{ up: {{ endpoints: [service.test:{}] }} }}\n{ALL_TO_UP}\n",
        names.port,
        upstream.address().port()
    ));
    weir.client().get("/").expect_status(200);
    eventually("it is asked again, and again", || names.asked() >= 4);
}

/// Two listeners on the same port of two addresses, which one name can have.
fn twins(addresses: [Ipv4Addr; 2]) -> [TcpListener; 2] {
    loop {
        let first = TcpListener::bind((addresses[0], 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = TcpListener::bind((addresses[1], port)) {
            return [first, second];
        }
    }
}

#[test]
fn an_address_that_dns_adds_is_probed_and_one_that_it_drops_is_not() {
    let addresses = [Ipv4Addr::new(127, 0, 2, 1), Ipv4Addr::new(127, 0, 2, 2)];
    let [first, second] = twins(addresses);
    let port = first.local_addr().unwrap().port();
    let probes = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let endpoint = |listener, nth: usize, status: &'static str| {
        let probes = Arc::clone(&probes[nth]);
        Upstream::script_on(listener, move |conn| {
            while let Some(request) = conn.next_request() {
                let is_probe = request.head.line.starts_with("GET /healthz ");
                probes.fetch_add(usize::from(is_probe), Ordering::Relaxed);
                let status = if is_probe { status } else { "200 OK" };
                conn.send(format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\n\r\n{nth}"));
            }
        })
    };
    let _first = endpoint(first, 0, "200 OK");
    let _second = endpoint(second, 1, "503 Service Unavailable");
    let probed = |nth: usize| probes[nth].load(Ordering::Relaxed);
    let names = NameServer::start(0, &addresses[..1]);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
         dns: {{ servers: [127.0.0.1:{}], min_ttl: 10ms, max_ttl: 20ms }}\n\
         upstreams: {{ up: {{ endpoints: [service.test:{port}], balancer: round_robin, \
         health: {{ probe: {{ path: /healthz, interval: 20ms, timeout: 5s, unhealthy: 1 }} }} }} }}\n{ALL_TO_UP}\n",
        names.port
    ));
    eventually("the only address is probed", || probed(0) > 1);
    assert_eq!(probed(1), 0);
    // The new address is probed immediately, and the probe's result keeps requests away from it.
    names.know(&addresses);
    let healthy = |nth: usize| {
        metric(&weir, &["weir_endpoint_healthy", &format!("{}:{port}", addresses[nth])]) == Some(1.0)
    };
    eventually("the new address is probed and out", || probed(1) > 0 && !healthy(1));
    for _ in 0..6 {
        weir.client().get("/").expect_body("0");
    }
    // A dropped address is no longer probed; a remaining one is.
    names.know(&addresses[..1]);
    let is_listed = || {
        let host = weir.admin();
        let asked = format!("GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n");
        weir.admin_client().ask(asked).text().contains(&format!("{}:{port}", addresses[1]))
    };
    eventually("it is gone", || !is_listed());
    let mut last = probed(1);
    eventually("its probes have ended", || {
        let (before, stays) = (last, probed(0));
        eventually("the other is probed on", || probed(0) > stays + 2);
        last = probed(1);
        last == before
    });
    let (gone, stays) = (probed(1), probed(0));
    eventually("the other is probed on", || probed(0) > stays + 5);
    assert_eq!(probed(1), gone);
    assert!(healthy(0));
}
