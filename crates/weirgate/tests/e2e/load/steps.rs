//! Steps of plans that speak something else than HTTP: gRPC calls, WebSocket messages, and programs.

use std::collections::BTreeSet;

use tempfile::TempDir;
use weir_report::report::{Grade, StepKind};
use weir_testkit::h2::{Frame, H2Origin, Options};
use weir_testkit::{Authority, Conn, ServerTls, Upstream, run_weir};
use weir_wire::websocket::accept;

use super::codes;
use super::journeys::{report, run, run_with, step};

/// The folder of `greeter.proto`.
const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-origin/proto");

// === gRPC ===

#[test]
fn calls_of_each_kind_are_steps_with_keeps_and_checks() {
    let (origin, _) = super::origin("");
    let server = origin.address().to_string();
    for protos in ["", &format!("protos: [ {PROTO}/greeter.proto ]")] {
        let plan = format!(
            "
target: http://{server}
{protos}
defaults: {{ checks: [ status=2xx ] }}
scenarios:
  a:
    users: 2
    iterations: 10
    steps:
      - name: hello
        grpc: /helloworld.v1.Greeter/SayHello
        message: {{ name: 'user {{{{user}}}}' }}
        checks: [ grpc-status=OK, 'json:$.message', 'header:grpc-status=0' ]
        keep: {{ said: 'grpc:$.message' }}
      - name: many
        grpc: /helloworld.v1.Greeter/LotsOfReplies
        message: {{ name: '{{{{said}}}}', replies: 3 }}
        checks: [ 'body~hello hello user' ]
        keep: {{ last: 'grpc:$[-1].message' }}
      - {{ name: up, grpc: /helloworld.v1.Greeter/LotsOfGreetings, message: [ {{ name: A }}, {{ name: '{{{{last}}}}' }} ] }}
      - {{ name: plain, get: '/body/3?{{{{said}}}}' }}
"
        );
        let upstream = Upstream::fixed("");
        let finished = run(&upstream, &plan, &["--threads", "2"]);
        finished.expect_code(0);
        let r = report(&finished);
        assert_eq!((r.scenarios[0].done, r.counts.responses, r.counts.errors.total()), (10, 40, 0), "{r:#?}");
        for name in ["hello", "many", "up"] {
            let step = step(&r, &format!("a.{name}"));
            assert_eq!((step.kind, step.grpc.get("OK")), (StepKind::Grpc, Some(&10)), "{step:#?}");
            assert_eq!((step.checked().1, step.keeps_failed(), step.unexpected), (0, 0, 0), "{step:#?}");
        }
        assert_eq!(step(&r, "a.hello").checked(), (40, 0));
        assert_eq!(r.counts.messages, 10 + 30 + 10);
        // A run that mixes protocols is judged by what each step speaks.
        assert_eq!((r.expected(), r.failed()), (40, 0), "{:?}", r.counts);
        assert_eq!(r.ledger.protocols, [("HTTP/1.1".to_owned(), 10), ("HTTP/2".to_owned(), 30)].into());
        assert!(
            !codes(&r).contains(&"wrong_protocol") && !codes(&r).contains(&"not_grpc"),
            "{:?}",
            r.verdict
        );
    }
}

#[test]
fn a_call_that_fails_is_unexpected_whatever_its_http_status() {
    let peer = H2Origin::new(Options::default(), |peer, stream, request| {
        assert_eq!(request.header("te"), Some("trailers"));
        assert_eq!(request.header("grpc-timeout"), Some("1500000u"));
        assert_eq!(
            (request.header("content-type"), request.header("cookie")),
            (Some("application/grpc"), None)
        );
        let head = [(":status", "200"), ("content-type", "application/grpc"), ("set-cookie", "a=b")];
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::headers(stream, &[("grpc-status", "5"), ("grpc-message", "no%20such")], true));
    });
    let plan = format!(
        "
target: http://{}
protos: [ {PROTO}/greeter.proto ]
defaults: {{ timeout: 1500ms, headers: {{ content-type: application/json }} }}
scenarios:
  a: {{ users: 1, iterations: 4, steps: [ {{ name: x, grpc: /helloworld.v1.Greeter/SayHello }} ] }}
thresholds: [ 'x: failed<1%', 'a: failed<1%', 'failed<1%' ]
",
        peer.address()
    );
    let upstream = Upstream::fixed("");
    let finished = run(&upstream, &plan, &["--no-dry-run"]);
    finished.expect_code(1);
    let r = report(&finished);
    let x = step(&r, "a.x");
    assert_eq!((x.grpc.get("NotFound"), x.unexpected, r.failed()), (Some(&4), 4, 4), "{r:#?}");
    assert!(r.thresholds.iter().all(|t| !t.passed), "{:?}", r.thresholds);
    assert!(r.counts.error_texts.keys().any(|t| t.contains("no such")), "{:?}", r.counts);
    // The dry run shows nothing of it, because the step has no check; with one, it does.
    let checked = plan.replace("SayHello }", "SayHello, checks: [ grpc=OK ] }");
    let finished = run(&upstream, &checked, &[]);
    finished.expect_code(1);
    for told in
        ["step `x` failed: check grpc=OK: NotFound", "> POST /helloworld.v1.Greeter/SayHello", "< HTTP/2 200"]
    {
        assert!(finished.stderr.contains(told), "{told}: {finished:#?}");
    }
    peer.verify();
}

#[test]
fn mistakes_in_calls_are_told_before_anything_is_sent() {
    let upstream = Upstream::fixed("");
    let plan = |step: &str| {
        format!(
            "target: TARGET\nprotos: [ {PROTO}/greeter.proto ]\nscenarios: {{ a: {{ users: 1, steps: [ {{ name: x, {step} }} ] }} }}\n"
        )
    };
    for (step, want) in [
        (
            "grpc: /helloworld.v1.Greeter/SayHi",
            "scenarios.a.steps[0].grpc: helloworld.v1.Greeter has no method `SayHi`",
        ),
        (
            "grpc: /helloworld.v1.Greeter/SayHello, message: { nam: x }",
            "scenarios.a.steps[0].message: does not fit helloworld.v1.HelloRequest: there is no field `nam`",
        ),
        (
            "grpc: /helloworld.v1.Greeter/SayHello, message: { nam: 'x{{user}}' }",
            "scenarios.a.steps[0].message: does not fit helloworld.v1.HelloRequest: there is no field `nam`",
        ),
        (
            "grpc: /helloworld.v1.Greeter/SayHello, message: [ { name: x }, { name: y } ]",
            "expected an object, found [",
        ),
    ] {
        let finished = run(&upstream, &plan(step), &[]);
        finished.expect_code(2);
        assert!(finished.stderr.contains(want), "{want}: {finished:#?}");
    }
    assert_eq!(upstream.connections(), 0);
    // Without files, the server is asked; here it is none.
    let reflected =
        plan("grpc: /helloworld.v1.Greeter/SayHello").replace(&format!("{PROTO}/greeter.proto"), "");
    let finished = run(&upstream, &reflected, &[]);
    finished.expect_code(1);
    assert!(finished.stderr.contains("step `x`") && finished.stderr.contains("reflection"), "{finished:#?}");
}

#[test]
fn a_server_without_http2_is_told() {
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["localhost"])).alpn(&["http/1.1"]);
    let upstream = Upstream::fixed_tls(&tls, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let plan = format!(
        "target: https://localhost:{}\nprotos: [ {PROTO}/greeter.proto ]\nscenarios: {{ a: {{ users: 1, iterations: 2, steps: [ {{ name: x, grpc: /helloworld.v1.Greeter/SayHello }} ] }} }}\n",
        upstream.address().port()
    );
    let r = report(&run(&upstream, &plan, &["--no-dry-run", "--insecure"]));
    super::expect_reason(&r, "wrong_protocol", Grade::Invalid);
    assert_eq!(r.counts.responses, 0);
}

// === WebSocket ===

/// Answers a handshake; returns its head, or `None` when the client is done.
pub(super) fn shake(conn: &mut Conn, fields: &str) -> Option<weir_testkit::Head> {
    let head = conn.next_request()?.head;
    let accept = accept(head.header("sec-websocket-key").unwrap().as_bytes());
    conn.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{fields}\r\n"
    ));
    Some(head)
}

/// The client's next frame, which must be masked and short: first byte and payload.
pub(super) fn frame(conn: &mut Conn) -> (u8, String) {
    let head = conn.read_n(6);
    assert!(head[1] & 0x80 != 0 && head[1] & 0x7f < 126, "{head:?}");
    let payload = conn.read_n(usize::from(head[1] & 0x7f));
    let plain = payload.iter().zip(head[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    (head[0], String::from_utf8(plain).unwrap_or_default())
}

/// A short text message from a server.
fn say(conn: &mut Conn, text: &str) {
    conn.send([&[0x81, text.len() as u8], text.as_bytes()].concat());
}

#[test]
fn a_user_talks_over_a_websocket() {
    let upstream = Upstream::script(|conn| {
        let Some(head) = shake(conn, "Set-Cookie: sid=ws\r\n") else { return };
        let user = head.line.split(['=', ' ']).nth(2).unwrap().to_owned();
        assert_eq!((head.header("x-token"), head.header("sec-websocket-version")), (Some("t"), Some("13")));
        loop {
            let (first, text) = frame(conn);
            match &*text {
                "hello" => {
                    conn.send([0x89, 1, b'p']); // a ping
                    say(conn, "{\"type\":\"news\"}");
                    say(conn, &format!("{{\"type\":\"ready\",\"id\":\"{user}\"}}"));
                    say(conn, "{\"type\":\"tick\",\"n\":7}");
                }
                "p" => assert_eq!(first, 0x8a, "the pong"),
                _ if first == 0x88 => return,
                text => say(conn, &format!("{{\"echo\":{text:?}}}")),
            }
        }
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 2
    iterations: 6
    steps:
      - { name: open, ws: '/room?user={{user}}', headers: { x-token: t } }
      - name: hello
        ws: '/room?user={{user}}'
        message: hello
        answer: json:$.type=ready
        keep: { id: 'ws:$.id' }
        checks: [ 'body~ready', 'p-max<9s' ]
      - { name: tick, ws: '/room?user={{user}}', answer: [ 'json:$.type=tick' ], keep: { n: 'ws:$.n|int' } }
      - { name: say, ws: '/room?user={{user}}', message: { id: '{{id}}', n: '{{n|int}}' }, checks: [ 'body~id' ] }
      - { name: bye, ws: '/room?user={{user}}', message: bye, answer: none, close: true }
thresholds: [ 'hello: failed<1%' ]
";
    let finished = run(&upstream, plan, &["--no-dry-run", "--threads", "2"]);
    finished.expect_code(0);
    let r = report(&finished);
    assert_eq!((r.scenarios[0].done, r.counts.responses, r.failed()), (6, 30, 0), "{r:#?}");
    for name in ["open", "hello", "tick", "say", "bye"] {
        let step = step(&r, &format!("a.{name}"));
        let counted =
            (step.kind, step.responses, step.statuses.get(&101), step.checked().1, step.keeps_failed());
        assert_eq!(counted, (StepKind::WebSocket, 6, Some(&6), 0, 0), "{step:#?}");
    }
    // Each iteration has a WebSocket of its own, since a step of `steps` opened it.
    assert_eq!((upstream.connections(), r.connections.opened), (6, 6));
    let ws = r.websocket.as_ref().unwrap();
    assert_eq!((ws.sessions, ws.sent, ws.pings, ws.unsolicited), (6, 18, 6, 6), "{ws:#?}");
    assert_eq!(r.ledger.protocols, [("WebSocket".to_owned(), 30)].into());
    let seen = upstream.requests();
    let users: BTreeSet<&str> = seen.iter().map(|r| r.head.line.as_str()).collect();
    let cookies = seen.iter().filter(|r| r.head.header("cookie") == Some("sid=ws")).count();
    assert_eq!(cookies, 6 - users.len(), "a user's jar has the cookie of its first handshake");
    upstream.verify();
}

#[test]
fn a_websocket_of_start_lasts_as_long_as_its_user() {
    let upstream = Upstream::script(|conn| {
        if shake(conn, "").is_none() {
            return;
        }
        conn.send([0x89, 1, b'p']);
        loop {
            let (first, text) = frame(conn);
            match first {
                0x8a => say(conn, "ponged"),
                0x88 => return,
                _ => say(conn, &text),
            }
        }
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 3
    start: [ { name: open, ws: /feed } ]
    steps:
      - { pause: 60ms }
      - { name: ponged, ws: /feed, answer: body~pong, timeout: 5s, on_failure: end }
      - { name: ask, ws: /feed, message: 'n{{iteration}}', checks: [ body~n ] }
    end: [ { name: bye, ws: /feed, message: bye, answer: none } ]
";
    // Only the first iteration gets the message that the ping in its pause brought.
    let once = plan.replace("iterations: 3", "iterations: 1");
    let r = report(&run(&upstream, &once, &["--no-dry-run"]));
    assert_eq!((r.scenarios[0].done, step(&r, "a.ponged").responses), (1, 1), "{r:#?}");
    let asked = plan.replace(
        "      - { name: ponged, ws: /feed, answer: body~pong, timeout: 5s, on_failure: end }\n",
        "",
    );
    upstream.forget();
    let r = report(&run(&upstream, &asked, &["--no-dry-run"]));
    assert_eq!((r.scenarios[0].done, step(&r, "a.ask").checked()), (3, (3, 0)), "{r:#?}");
    assert_eq!((r.connections.opened, step(&r, "a.bye").responses), (1, 1));
    upstream.verify();
}

#[test]
fn a_websocket_that_fails_is_told() {
    let upstream = Upstream::script(|conn| match conn.next_request() {
        Some(request) if request.head.line.contains("/no") => {
            conn.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        }
        Some(request) => {
            let accept = accept(request.head.header("sec-websocket-key").unwrap().as_bytes());
            conn.send(format!(
                "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            ));
            let _ = frame(conn);
            conn.send([0x88, 5, 0x0f, 0xa0, b'b', b'y', b'e']);
            let _ = frame(conn);
        }
        None => {}
    });
    let plan = "
target: TARGET
defaults: { timeout: 300ms }
scenarios:
  no: { users: 1, iterations: 2, steps: [ { name: shake, ws: /no, message: x } ] }
  closed: { users: 1, iterations: 2, steps: [ { name: ask, ws: /x, message: x, keep: { a: 'ws:$.a' } }, { name: b, get: '/{{a}}' } ] }
";
    let r = report(&run(&upstream, plan, &["--no-dry-run"]));
    assert_eq!((step(&r, "no.shake").errors.protocol, step(&r, "closed.ask").errors.reset), (2, 2), "{r:#?}");
    let texts: Vec<&String> = r.counts.error_texts.keys().collect();
    assert!(texts.iter().any(|t| t.contains("answered 403 instead of 101")), "{texts:?}");
    assert!(texts.iter().any(|t| t.contains("code 4000: bye")), "{texts:?}");
    assert_eq!(r.scenarios[1].broken_off, [("ask".to_owned(), 2)].into());
    upstream.verify();

    let silent = Upstream::script(|conn| {
        if shake(conn, "").is_some() {
            let _ = frame(conn);
            let _ = conn.read_to_close(); // a close frame, then the end
        }
    });
    let plan = "
target: TARGET
scenarios: { a: { users: 1, iterations: 1, steps: [ { name: ask, ws: /x, message: x, timeout: 200ms } ] } }
";
    let r = report(&run(&silent, plan, &["--no-dry-run"]));
    assert_eq!(step(&r, "a.ask").errors.timeout, 1, "{r:#?}");
}

// === programs ===

#[test]
fn a_program_answers_steps_and_its_time_is_in_no_latency() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let script =
        "#!/bin/sh\nwhile read -r line; do sleep 0.6; echo \"{\\\"pid\\\":$$,\\\"got\\\":$line}\"; done\n";
    let plan = "
target: TARGET
scenarios:
  a:
    users: 2
    iterations: 4
    steps:
      - { name: sign, exec: [ sh, sign.sh, now ], message: { user: '{{user|int}}' }, keep: { pid: 'json:$.pid', who: 'json:$.got.user' } }
      - { name: use, get: '/u/{{who}}?{{pid}}' }
";
    let finished = run_with(&upstream, plan, &[("sign.sh", script)], &["--no-dry-run", "--threads", "1"]);
    finished.expect_code(0);
    let r = report(&finished);
    let sign = step(&r, "a.sign");
    assert_eq!(
        (sign.kind, sign.requests, sign.responses, r.counts.responses),
        (StepKind::Exec, 4, 4, 4),
        "{r:#?}"
    );
    assert!(sign.response.min() > 500_000_000 && sign.sent > 40, "{sign:#?}");
    assert!(r.latency.response.max() < 500_000_000 && r.scenarios[0].iteration.max() < 500_000_000, "{r:#?}");
    let seen: BTreeSet<String> = upstream
        .requests()
        .iter()
        .map(|r| r.head.line.split(['?', ' ']).nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(seen.len(), 1, "one process for a thread: {seen:?}");
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("r.json"), &finished.stdout).unwrap();
    run_weir(dir.path(), &["report", "r.json", "--verify"]).expect_code(0);
}

#[test]
fn the_death_of_a_program_is_told() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 20
    steps: [ { name: sign, exec: [ sh, -c, 'read -r line; exit 7' ] }, { name: use, get: / } ]
";
    let finished = run(&upstream, plan, &["--no-dry-run", "--threads", "1"]);
    finished.expect_code(1);
    let r = report(&finished);
    assert_eq!((step(&r, "a.sign").errors.reset, step(&r, "a.use").requests), (10, 0), "{r:#?}");
    assert!(r.counts.error_texts.keys().any(|t| t.contains("exit status: 7")), "{:?}", r.counts);
    assert!(finished.stdout.contains("was started 10 times"), "{finished:#?}");
    super::expect_reason(&r, "broken_off", Grade::Invalid);
    // The dry run finds it before any load.
    let finished = run(&upstream, plan, &[]);
    finished.expect_code(1);
    assert!(
        finished.stderr.contains("step `sign` failed: the program `sh` ended before it answered"),
        "{finished:#?}"
    );
    assert!(upstream.requests().is_empty());
}
