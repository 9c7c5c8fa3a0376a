//! Users whose requests one core serves in turn, with the same scratch memory: none sees a byte of another's.
//!
//! In debug builds, memory that an exchange returns is overwritten with a byte that no message contains. So the test
//! also notices a range that outlives its exchange.

use std::thread;

use weir_testkit::{Conn, Upstream, Weir};

use crate::support::WEB;

/// The byte that returned memory is overwritten with.
const POISON: u8 = 0xdd;

/// How often each user goes through all forms of a request.
const ROUNDS: usize = 6;

/// Answers with what the request says of its user, in a length and framing that depend on the path.
fn answer(conn: &mut Conn) {
    while let Some(request) = conn.next_request() {
        let target = request.head.line.split(' ').nth(1).unwrap_or_default();
        let user = request.head.header("x-user").unwrap_or("nobody").to_owned();
        let told = format!("x-told: {user}\r\nx-path: {}\r\nset-cookie: session=of-{user}", target);
        let body = format!("{user};").repeat(target.len() * 40);
        let chunked = target.contains("chunked");
        let head = request.head.line.starts_with("HEAD");
        conn.send(match (head, chunked) {
            (true, _) => format!("HTTP/1.1 200 OK\r\n{told}\r\nContent-Length: {}\r\n\r\n", body.len()),
            (false, true) => format!(
                "HTTP/1.1 200 OK\r\n{told}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            ),
            (false, false) => {
                format!("HTTP/1.1 203 of {user}\r\n{told}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
        });
    }
}

/// The requests of a user, each with the status that it gets.
fn requests(user: &str, round: usize) -> Vec<(String, u16)> {
    let long = format!("{user}-").repeat(400 * (round % 3) + 1);
    let rest = format!("Host: {user}.test\r\nX-User: {user}\r\nX-Key: key-of-{user}\r\nX-Long: {long}\r\n");
    let body = format!("body of {user} ").repeat(30 * (round % 4) + 1);
    let length = body.len();
    vec![
        (format!("GET /a?from={user} HTTP/1.1\r\n{rest}\r\n"), 203),
        (format!("HEAD /short HTTP/1.1\r\n{rest}\r\n"), 200),
        (format!("GET /chunked/{user} HTTP/1.1\r\n{rest}\r\n"), 200),
        (format!("POST /post HTTP/1.1\r\n{rest}Content-Length: {length}\r\n\r\n{body}"), 203),
        (
            format!(
                "POST /b/./c HTTP/1.1\r\n{rest}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
            ),
            203,
        ),
        (format!("GET /closed/{user} HTTP/1.1\r\n{}\r\n", rest.replace("X-Key", "X-No-Key")), 401),
        (format!("GET /own HTTP/1.1\r\n{rest}\r\n"), 200),
        (format!("GET /nowhere HTTP/1.1\r\nHost: {user}.test\r\n\r\n"), 401),
    ]
}

#[test]
fn nobody_sees_the_bytes_of_another() {
    let upstream = Upstream::script(answer);
    let users = ["alice", "bob", "carol", "dave"];
    let consumers: Vec<String> =
        users.iter().map(|user| format!("{user}: {{ key_auth: [ key-of-{user} ] }}")).collect();
    let weir = Weir::start(&format!(
        r#"
workers: 1
{WEB}
upstreams: {{ up: {{ endpoints: [{}] }} }}
consumers: {{ {} }}
filters:
- key_auth: {{ header: x-key }}
- headers: {{ request: {{ set: {{ x-host: "{{= request.host }}" }} }}, response: {{ set: {{ x-asked: "{{= request.path }}" }} }} }}
routes:
  own: {{ match: {{ path: /own }}, respond: {{ status: 200, body: "own of {{= request.host }}" }} }}
  all: {{ match: {{ path: "/*" }}, upstream: up }}
"#,
        upstream.address(),
        consumers.join(", "),
    ));
    thread::scope(|scope| {
        for user in users {
            let (weir, strangers) = (&weir, users.iter().copied().filter(move |other| *other != user));
            let strangers: Vec<&str> = strangers.collect();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut client = weir.client();
                    let requests = requests(user, round);
                    // Every second round sends all requests at once.
                    let pipelines = round % 2 == 1;
                    if pipelines {
                        let all: String = requests.iter().map(|(request, _)| &**request).collect();
                        client.send(all);
                    }
                    for (request, status) in &requests {
                        if !pipelines {
                            client.send(request);
                        }
                        let is_head = request.starts_with("HEAD");
                        let response =
                            if is_head { client.read_response_to_head() } else { client.read_response() };
                        let seen = [&*response.head.raw, &*response.body.raw].concat();
                        let text = String::from_utf8_lossy(&seen).into_owned();
                        assert_eq!(response.status, *status, "{request}\n{text}");
                        assert!(!seen.contains(&POISON), "{request}\n{text}");
                        for other in &strangers {
                            assert!(!text.contains(other), "{user} sees {other}\n{request}\n{text}");
                        }
                        if matches!(status, 200 | 203) {
                            assert!(text.contains(user), "{request}\n{text}");
                        }
                    }
                }
            });
        }
    });
    for request in upstream.requests() {
        let seen = [&*request.head.raw, &*request.body.raw].concat();
        let text = String::from_utf8_lossy(&seen);
        assert!(!seen.contains(&POISON), "{text}");
        let named = users.iter().filter(|user| text.contains(**user)).count();
        assert_eq!(named, 1, "the upstream sees one user in a request\n{text}");
    }
}
