//! Names in the world of a proof: a resolver at 127.0.0.1:53 that knows the hosts of the upstreams (RFC 1035 §4).

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};

/// Where unknown names lead: nobody listens there.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(127, 127, 127, 127);

/// Answers from a thread of its own, as long as the world stands.
pub(super) fn serve(names: BTreeMap<String, Ipv4Addr>) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:53")?;
    std::thread::Builder::new().name("names".to_owned()).spawn(move || {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            if let Some(answer) = packet.get(..length).and_then(|asked| answer(asked, &names)) {
                let _ = socket.send_to(&answer, from); // it asks again
            }
        }
    })?;
    Ok(())
}

/// The answer to a packet with one question: an A record, or none of another type.
fn answer(asked: &[u8], names: &BTreeMap<String, Ipv4Addr>) -> Option<Vec<u8>> {
    let mut name = String::new();
    let mut at = 12;
    loop {
        let length = usize::from(*asked.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if length > 63 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&String::from_utf8_lossy(asked.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = asked.get(at..at + 4)?;
    let is_a = kind == [0, 1, 0, 1];
    let mut answer = Vec::from(asked.get(..2)?);
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(asked.get(12..at + 4)?);
    if is_a {
        let address = names.get(&name).copied().unwrap_or(NOWHERE);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered() {
        let names = BTreeMap::from([("app1".to_owned(), Ipv4Addr::new(127, 1, 0, 1))]);
        let question =
            |kind: u8| [&[7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4][..], b"App1", &[0, 0, kind, 0, 1]].concat();
        assert!(answer(&question(1), &names).unwrap().ends_with(&[0, 4, 127, 1, 0, 1]));
        assert!(answer(&question(28), &names).unwrap().ends_with(&[0, 28, 0, 1]));
        for length in 0..question(1).len() {
            assert_eq!(answer(&question(1)[..length], &names), None);
        }
    }
}
