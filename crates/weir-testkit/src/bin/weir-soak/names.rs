//! A DNS server that returns one address for every name, and changes it on request.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

/// The server answers until the program ends.
pub(crate) struct NameServer {
    pub(crate) port: u16,
    address: Arc<AtomicU32>,
}

impl NameServer {
    pub(crate) fn start(address: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let address = Arc::new(AtomicU32::new(address.into()));
        let known = Arc::clone(&address);
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                if let Some(answer) = answer(&query[..length], known.load(Relaxed)) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { port, address }
    }

    pub(crate) fn know(&self, address: Ipv4Addr) {
        self.address.store(address.into(), Relaxed);
    }
}

/// Answers a query with one question (RFC 1035 §4): an IPv4 address with a TTL of one second, and no records of
/// other types.
fn answer(query: &[u8], address: u32) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|b| *b == 0)? + 13;
    let question = query.get(12..name + 4)?;
    let of_v4 = question.ends_with(&[0, 1, 0, 1]);
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(of_v4), 0, 0, 0, 0]);
    answer.extend(question);
    if of_v4 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.to_be_bytes());
    }
    Some(answer)
}
