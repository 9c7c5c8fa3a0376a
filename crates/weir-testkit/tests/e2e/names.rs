//! Endpoints that are names: how long an answer is used.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir_testkit::{Upstream, Weir, eventually};

use crate::support::{ALL_TO_UP, OK};

/// A name server that knows every name, by one address, for this many seconds.
struct NameServer {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl NameServer {
    fn start(ttl: u32) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut query) {
                let Some((answer, of_v4)) = answer(&query[..len], ttl) else { continue };
                count.fetch_add(usize::from(of_v4), Ordering::Relaxed);
                let _ = socket.send_to(&answer, from);
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The answer to a query of one question (RFC 1035 §4), and whether that was for an address of IPv4: there is no other.
fn answer(query: &[u8], ttl: u32) -> Option<(Vec<u8>, bool)> {
    let name = query.get(12..)?.iter().position(|b| *b == 0)? + 13;
    let question = query.get(12..name + 4)?;
    let of_v4 = question.ends_with(&[0, 1, 0, 1]);
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(of_v4), 0, 0, 0, 0]);
    answer.extend(question);
    if of_v4 {
        answer.extend([0xc0, 12, 0, 1, 0, 1]);
        answer.extend(ttl.to_be_bytes());
        answer.extend([0, 4, 127, 0, 0, 1]);
    }
    Some((answer, of_v4))
}

#[test]
fn an_answer_is_used_no_longer_than_max_ttl() {
    let (names, upstream) = (NameServer::start(3600), Upstream::fixed(OK));
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
