//! Every count and size has a limit, and each limit its own cause.

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use weir_testkit::{Upstream, Weir, eventually};

use crate::cause::{
    BAD_RESPONSE, BODY_TOO_LARGE, CONNECTION_LIMIT, HEADER_TOO_LARGE, OUT_OF_DESCRIPTORS, PENDING_LIMIT,
    PENDING_TIMEOUT, TARGET_TOO_LONG, TOO_MANY_HEADERS,
};
use crate::health::metric;
use crate::support::{GET, OK, OK_BODY, weir_with};

#[test]
fn no_descriptor_left_is_no_fault_of_the_upstream() {
    let upstream = Upstream::fixed(OK);
    let weir = weir_with(&upstream, "keepalive: 0s");
    let mut client = weir.client();
    client.get("/").expect_status(200);
    let maximum = getrlimit(Resource::Nofile).maximum;
    let pid = i32::try_from(weir.pid()).ok().and_then(Pid::from_raw);
    let limit = |current| {
        let limit = Rlimit { current: Some(current), maximum };
        prlimit(pid, Resource::Nofile, limit).expect("a process may change the limits of its child");
    };
    limit(3);
    client.get("/").expect_cause(OUT_OF_DESCRIPTORS);
    limit(256);
    let failures = |parts: &[&str]| metric(&weir, parts).unwrap_or_default();
    assert_eq!(failures(&["weir_upstream_connect_failures_total"]), 0.0);
    assert_eq!(failures(&["weir_upstream_attempts_total", "connect_failed"]), 0.0);
    assert_eq!(failures(&["weir_causes_total", "out_of_descriptors"]), 1.0);
}

#[test]
fn connections_leave_descriptors_to_the_admin_listener() {
    let upstream = Upstream::fixed(OK);
    let yaml = crate::support::config_for(&upstream, "");
    let weir = Weir::start_by(&yaml, |dir| {
        let program = weir_testkit::weir_command(dir).get_program().to_owned();
        let mut command = weir_testkit::command_for("/bin/sh".as_ref(), dir);
        command.args(["-c", "ulimit -n 160; exec \"$0\" run -c weir.yaml"]).arg(program);
        command
    });
    let mut held: Vec<_> = (0..200).map(|_| weir.client()).collect();
    held.iter_mut().for_each(|client| client.send("GET / HT"));
    weir.wait_log("out of descriptors: accepting pauses");
    // An eighth of them, less those that wait in the reserve.
    eventually("the reserve is left", || (130..=150).contains(&weir.open_files()));
    weir.admin_client().ask("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").expect_status(200);
    weir.reload().unwrap();
    // Waiting clients are served as soon as others leave.
    let mut last = held.pop().unwrap();
    held.clear();
    last.send("TP/1.1\r\nHost: weir.test\r\n\r\n");
    last.read_response().expect_status(200);
}

#[test]
fn header_bytes() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "limits: { header_bytes: 4KiB }");
    let with = |length: usize| format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "b".repeat(length));
    weir.client().ask(with(3800)).expect_status(200);
    upstream.take_request();
    let mut client = weir.client();
    client.ask(with(4200)).expect_cause(HEADER_TOO_LARGE);
    client.expect_close();
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn header_bytes_are_counted_while_they_come() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "limits: { header_bytes: 4KiB }");
    let mut client = weir.client();
    // The head has no end in sight: it is answered anyway.
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}", "b".repeat(5000)));
    client.read_response().expect_cause(HEADER_TOO_LARGE);
}

#[test]
fn what_came_of_a_refused_head_is_counted() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "access_log: { output: stdout }");
    for request in [
        "GET /malformed HTTP/1.1\r\nHost: h\r\nno field\r\n\r\n".to_owned(),
        format!("GET /long HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "b".repeat(20_000)),
        format!("GET /many HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(200)),
    ] {
        let path = request.split(' ').nth(1).unwrap();
        let answer = weir.client().ask(&request);
        let line = weir.wait_stdout(path);
        let bytes = line.split("\"bytes_in\":").nth(1).and_then(|rest| rest.split(',').next());
        let bytes: usize = bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
        let all = request.len();
        let least = if answer.status == 200 { all } else { 20 };
        assert!((least..=all).contains(&bytes), "{bytes} of {all}: {line}");
    }
}

#[test]
fn header_count() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "limits: { headers: 20 }");
    let with = |count: usize| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(count));
    weir.client().ask(with(19)).expect_status(200);
    weir.client().ask(with(20)).expect_cause(TOO_MANY_HEADERS);
}

#[test]
fn the_default_allows_a_hundred_headers_and_32_kib() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let fields = format!("A: {}\r\n", "b".repeat(290)).repeat(99);
    weir.client().ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).expect_status(200);
    let fields = "A: b\r\n".repeat(100);
    weir.client().ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).expect_cause(TOO_MANY_HEADERS);
    let field = "b".repeat(33 * 1024);
    weir.client()
        .ask(format!("GET / HTTP/1.1\r\nHost: h\r\nA: {field}\r\n\r\n"))
        .expect_cause(HEADER_TOO_LARGE);
}

#[test]
fn target_bytes() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    weir.client().get(&format!("/{}", "a".repeat(8000))).expect_status(200);
    weir.client().get(&format!("/{}", "a".repeat(9000))).expect_cause(TARGET_TOO_LONG);
}

#[test]
fn body_bytes_that_are_announced() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "limits: { body_bytes: 1KiB }");
    let fits = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1024\r\n\r\n{}", "b".repeat(1024));
    weir.client().ask(fits).expect_status(200);
    upstream.take_request();
    let mut client = weir.client();
    client.ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1025\r\n\r\n").expect_cause(BODY_TOO_LARGE);
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn body_bytes_that_just_come() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "limits: { body_bytes: 1KiB }");
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("400\r\n{}\r\n1\r\nb\r\n", "b".repeat(1024)));
    client.read_response().expect_cause(BODY_TOO_LARGE);
    client.expect_close();
    assert!(upstream.requests().iter().all(|request| !request.complete));
}

#[test]
fn chunk_extensions_have_an_end() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("1;{}", "a".repeat(20_000)));
    assert_eq!(client.read_response().status, 400);
}

#[test]
fn trailers_have_an_end() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
    let _ = client.try_send("A: b\r\n".repeat(20_000));
    let status = client.read_response().status;
    assert!(matches!(status, 400 | 431), "{status}");
}

#[test]
fn the_head_of_an_answer_has_an_end() {
    let upstream = Upstream::script(|conn| {
        conn.next_request();
        let _ = conn.try_send("HTTP/1.1 200 OK\r\n");
        while conn.try_send("A: b\r\n".repeat(1000)).is_ok() {}
    });
    let weir = Weir::in_front_of(&upstream);
    weir.client().get("/").expect_cause(BAD_RESPONSE);
}

#[test]
fn connections_of_clients() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of_with(&upstream, "limits: { connections: 2 }");
    let (mut one, mut two) = (weir.client(), weir.client());
    one.get("/").expect_status(200);
    two.get("/").expect_status(200);
    // The third is refused or waits; it is not served.
    let mut three = weir.client();
    three.set_deadline(Duration::from_millis(100));
    let _ = three.try_send(GET);
    if let Ok(response) = three.try_read_response() {
        response.expect_cause(CONNECTION_LIMIT);
    }
    three.close();
    one.close();
    eventually("a place becomes free", || {
        let mut client = weir.client();
        let _ = client.try_send(GET);
        client.set_deadline(Duration::from_millis(200));
        client.try_read_response().is_ok_and(|response| response.status == 200)
    });
    two.get("/").expect_status(200);
}

#[test]
fn connections_to_an_upstream() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "limits: { connections: 1, pending: 1 }");
    let (mut one, mut two, mut three) = (weir.client(), weir.client(), weir.client());
    one.send(GET);
    let mut conn = upstream.accept_request();
    two.send(GET);
    // The second waits. Once it is in the queue, the third finds no room; before that, the third would wait itself.
    // Whichever of the two is answered first is the one too many.
    three.send(GET);
    let mut refused = 0;
    for client in [&mut two, &mut three] {
        client.set_deadline(Duration::from_millis(500));
        if let Ok(response) = client.try_read_response() {
            response.expect_cause(PENDING_LIMIT);
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    conn.send(OK_BODY);
    one.read_response().expect_body("ok");
    // The waiting request gets the slot.
    conn.read_request();
    conn.send(OK_BODY);
    upstream.expect_no_connection();
}

#[test]
fn waiting_for_a_connection_has_an_end() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "limits: { connections: 1 }, timeouts: { connect: 100ms }");
    let (mut one, mut two) = (weir.client(), weir.client());
    one.send(GET);
    let mut conn = upstream.accept_request();
    two.get("/").expect_cause(PENDING_TIMEOUT);
    conn.send(OK_BODY);
    one.read_response().expect_body("ok");
}

#[test]
fn idle_connections_are_cheap() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    weir.client().get("/").expect_status(200);
    let before = weir.rss_kib();
    let mut clients: Vec<_> = (0..300).map(|_| weir.client()).collect();
    for client in &mut clients {
        client.get("/").expect_status(200);
    }
    let grown = weir.rss_kib().saturating_sub(before);
    assert!(grown < 300 * 16, "300 idle connections cost {grown} KiB");
}
