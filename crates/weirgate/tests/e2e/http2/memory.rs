//! Streams borrow their buffers from the core, one after another, and connections remember heads that repeat. No user
//! may see a byte of another's.

use weir_testkit::Upstream;
use weir_testkit::h2::{H2Origin, Options, code};

use super::{H2C, ask, weir};

/// Lengths of bodies: long ones are followed by short ones, which a reused buffer could show more than.
const LENGTHS: [usize; 6] = [3_000, 1, 16_000, 5, 700, 0];

/// What the origin says in its head and its body about a request.
fn echo(path: &str, body: &[u8]) -> (String, Vec<u8>) {
    (format!("of{}", path.replace('/', "-")), [path.as_bytes(), body].concat())
}

#[test]
fn users_of_one_core_get_their_own_bytes() {
    let plain = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let (who, body) = echo(request.head.line.split(' ').nth(1).unwrap(), &request.body.bytes);
            let head = format!("HTTP/1.1 200 OK\r\nX-Who: {who}\r\nContent-Length: {}\r\n\r\n", body.len());
            if conn.try_send([head.into_bytes(), body].concat()).is_err() {
                return; // its client has left
            }
        }
    });
    let framed = H2Origin::new(Options::default(), |peer, stream, request| {
        let (who, body) = echo(request.header(":path").unwrap(), &request.body);
        peer.answer(stream, &[(":status", "200"), ("x-who", &who)], body);
    });
    for (address, settings) in [(plain.address(), ""), (framed.address(), H2C)] {
        let weir = weir(address, settings);
        let mut clients = [weir.h2(), weir.h2(), weir.h2()];
        for round in 0..12 {
            let mut asked = Vec::new();
            for n in 0..8 {
                for (user, client) in clients.iter_mut().enumerate() {
                    let body = vec![b"abc"[user]; LENGTHS[(round + n + user) % LENGTHS.len()]];
                    let path = format!("/{user}/{round}/{n}");
                    let stream = client.post(&path);
                    client.data(stream, &body, true);
                    if (round + n) % 5 == 4 {
                        client.reset(stream, code::CANCEL); // whatever it left behind is reused too
                    } else {
                        asked.push((user, stream, echo(&path, &body)));
                    }
                }
            }
            for (user, stream, (who, body)) in asked {
                let answer = clients[user].message(stream);
                answer.expect_status(200).expect_header("x-who", &who).expect_body(body);
            }
        }
    }
    framed.verify();
}

/// Heads that repeat, and heads that differ from them in one byte, by users who share connections to the upstream.
#[test]
fn users_with_nearly_the_same_heads_get_their_own() {
    const FIELDS: [&str; 3] = ["x-key", "x-user", "cookie"];
    fn told<'a>(path: &str, field: impl Fn(&'static str) -> Option<&'a str>) -> String {
        let fields = FIELDS.map(|name| field(name).unwrap_or("-"));
        format!("{path} {}", fields.join(" "))
    }
    let plain = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let path = request.head.line.split(' ').nth(1).unwrap();
            let told = told(path, |name| request.head.header(name));
            if conn
                .try_send(format!("HTTP/1.1 200 OK\r\nX-Told: {told}\r\nContent-Length: 0\r\n\r\n"))
                .is_err()
            {
                return; // its client has left
            }
        }
    });
    let framed = H2Origin::new(Options::default(), |peer, stream, request| {
        let told = told(request.header(":path").unwrap(), |name| request.header(name));
        peer.answer(stream, &[(":status", "200"), ("x-told", &told)], Vec::new());
    });
    for (address, settings) in [(plain.address(), ""), (framed.address(), H2C)] {
        let weir = weir(address, settings);
        let mut clients = [weir.h2(), weir.h2()];
        for round in 0..3 {
            for (path, key, cookie) in [
                ("/some/item/1", "1", None),
                ("/some/item/2", "1", None),
                ("/some/item/1", "2", None),
                ("/some/item/1", "1", Some("id=1")),
                ("/some/item/1", "1", Some("id=2")),
            ] {
                // Known from the third time on, on a connection where no other comes between.
                for again in 0..4 {
                    for (client, user) in clients.iter_mut().zip(["a", "b"]) {
                        let mut fields = vec![("x-key", key), ("x-user", user)];
                        fields.extend(cookie.map(|cookie| ("cookie", cookie)));
                        let stream = client.request(&ask("GET", path, &fields), true);
                        if round == 1 && again == 2 {
                            client.reset(stream, code::CANCEL);
                            continue;
                        }
                        let field =
                            |name: &str| fields.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
                        let answer = client.message(stream);
                        answer.expect_status(200).expect_header("x-told", &told(path, field));
                    }
                }
            }
        }
    }
    framed.verify();
}
