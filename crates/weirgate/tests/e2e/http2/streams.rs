//! Many concurrent requests on one client connection, none blocking another.

use weir_testkit::h2::{H2, H2Origin, Options, code, setting};
use weir_testkit::{Upstream, Weir};

use super::{H2C, ask, weir, weir_with};
use crate::support::{ALL_TO_UP, OK_BODY};

/// More than all buffers for one response: the stream's window of 64 KiB, ours, and the sockets'.
const LARGE: usize = 1_000_000;

/// A client with zero windows for its streams.
fn without_windows(weir: &Weir) -> H2<weir_testkit::Client> {
    let options = Options { settings: vec![(setting::WINDOW, 0)], ..Options::default() };
    H2::client_with(weir.client(), &options)
}

#[test]
fn slow_requests_are_answered_side_by_side() {
    // None is answered until all have arrived; the last is answered first.
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let streams: Vec<u32> = (0..100).map(|n| client.get(&format!("/{n}"))).collect();
    let mut conns: Vec<_> = streams.iter().map(|_| upstream.accept()).collect();
    let paths: Vec<String> = conns.iter_mut().map(|conn| conn.read_request().head.line).collect();
    for (conn, line) in conns.iter_mut().zip(&paths).rev() {
        let path = line.split(' ').nth(1).unwrap();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()));
    }
    for (n, stream) in streams.iter().enumerate() {
        client.message(*stream).expect_status(200).expect_body(format!("/{n}"));
    }
}

/// A core's tasks run requests of all its connections: each request must keep the client of its own.
#[test]
fn connections_that_take_turns_keep_their_clients() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [h2], proxy_protocol: true }} }}\n\
         trusted_proxies: [ 127.0.0.1, 192.0.2.1 ]\n\
         upstreams: {{ up: {{ endpoints: [ {} ] }} }}\n{ALL_TO_UP}\n",
        upstream.address()
    ));
    let mut clients = ["192.0.2.1", "192.0.2.2"].map(|from| {
        let mut connection = weir.client();
        connection.send(format!("PROXY TCP4 {from} 192.0.2.9 1 2\r\n"));
        H2::client(connection)
    });
    let claim = [("x-forwarded-for", "203.0.113.7")];
    for _ in 0..5 {
        for (client, path) in clients.iter_mut().zip(["/trusted", "/stranger"]) {
            let streams = [(); 3].map(|()| client.request(&ask("GET", path, &claim), true));
            for stream in streams {
                client.message(stream).expect_status(200);
            }
        }
    }
    for request in upstream.wait_requests(30) {
        let is_trusted = request.head.line.starts_with("GET /trusted ");
        let told = if is_trusted { "203.0.113.7, 192.0.2.1" } else { "192.0.2.2" };
        assert_eq!(request.head.all("x-forwarded-for").join(", "), told, "{}", request.head.line);
    }
}

#[test]
fn more_than_the_limit_is_refused() {
    let upstream = Upstream::listen();
    let weir = weir_with(upstream.address(), "", "limits: { h2: { streams: 2 } }");
    let mut client = weir.h2();
    assert_eq!(client.setting(setting::STREAMS), Some(2));
    client.wait_confirmed(1);
    let streams = [client.get("/0"), client.get("/1"), client.get("/2")];
    client.message(streams[2]).expect_reset(code::REFUSED);
    for _ in 0..2 {
        // Each has its own connection, in no particular order.
        let mut conn = upstream.accept();
        let first = conn.read_request().head.line.contains("/0 ");
        conn.send(OK_BODY);
        conn.close();
        client.message(streams[usize::from(!first)]).expect_status(200);
    }
    let stream = client.get("/");
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.message(stream).expect_status(200);
}

#[test]
fn a_stalled_stream_stalls_no_neighbour_of_a_client() {
    for back in ["", H2C] {
        let origin = if back.is_empty() {
            Err(Upstream::script(|conn| {
                while let Some(request) = conn.next_request() {
                    let len = if request.head.line.contains("large") { LARGE } else { 2 };
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
                    if conn.try_send([head.into_bytes(), vec![b'x'; len]].concat()).is_err() {
                        return;
                    }
                }
            }))
        } else {
            Ok(H2Origin::answering(|request| {
                let len =
                    if request.header(":path").unwrap_or_default().contains("large") { LARGE } else { 2 };
                vec![b'x'; len]
            }))
        };
        let address = match &origin {
            Ok(h2) => h2.address(),
            Err(plain) => plain.address(),
        };
        let weir = weir(address, back);
        let mut client = without_windows(&weir);
        let stalled = client.get("/large");
        client.wait(stalled, "its head", |message| message.status() == 200);
        for n in 0..50 {
            let stream = client.get(&format!("/{n}"));
            client.send(&weir_testkit::h2::Frame::window(stream, 100));
            client.message(stream).expect_status(200).expect_body("xx");
        }
        // Another client on the same core and upstream connection.
        let mut other = weir.h2();
        for n in 0..50 {
            let stream = other.get(&format!("/{n}"));
            other.message(stream).expect_body("xx");
        }
        assert!(client.so_far(stalled).body.is_empty());
        client.send(&weir_testkit::h2::Frame::window(stalled, 2_000_000));
        assert_eq!(client.message(stalled).body.len(), LARGE);
        if let Ok(h2) = origin {
            assert_eq!(h2.connections(), 1, "all of it went over one connection");
            h2.verify();
        }
    }
}

#[test]
fn a_slow_reader_slows_its_own_upstream() {
    // Unread data stays at the upstream, which stops once the buffers on the way are full.
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = without_windows(&weir);
    let stream = client.get("/");
    let mut peer = H2::server(upstream.accept(), &Options::default());
    let (seen, _) = peer.accept();
    peer.headers(seen, &[(":status", "200")], false);
    let taken = peer.fill(seen, &[b'x'; 4 * LARGE]);
    assert!(taken < LARGE, "{taken} bytes were taken for a client that reads nothing");
    // Another stream on the same upstream connection is not affected.
    let other = client.get("/other");
    let (seen_other, _) = peer.accept();
    client.send(&weir_testkit::h2::Frame::window(other, 4 * LARGE as u32));
    peer.headers(seen_other, &[(":status", "200")], false);
    let reading = std::thread::spawn(move || {
        let answer = client.message(other);
        (client, answer)
    });
    peer.body(seen_other, &vec![b'y'; LARGE], true);
    let (mut client, answer) = reading.join().unwrap();
    assert_eq!(answer.body.len(), LARGE);
    client.reset(stream, code::CANCEL);
    assert!(peer.message(seen).end.is_some());
}

#[test]
fn a_reset_by_the_client_reaches_the_upstream() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    // Before the response's head, and in the middle of its body.
    let first = client.get("/first");
    let mut peer = H2::server(upstream.accept(), &Options::default());
    let (seen, request) = peer.accept_whole();
    request.expect_header(":path", "/first");
    client.reset(first, code::CANCEL);
    peer.message(seen).expect_reset(code::CANCEL);
    let second = client.get("/second");
    let (seen, _) = peer.accept_whole();
    peer.headers(seen, &[(":status", "200")], false);
    peer.data(seen, "half", false);
    client.wait(second, "the half", |message| message.body == b"half");
    client.reset(second, code::CANCEL);
    peer.message(seen).expect_reset(code::CANCEL);
    for path in ["/first", "/second"] {
        let line = weir.wait_stdout(path);
        assert!(line.contains("client_closed"), "{line}");
    }
    // The connections keep working.
    let third = client.get("/third");
    let (seen, _) = peer.accept_whole();
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(third).expect_body("ok");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_client_that_is_gone_cancels_all_its_requests() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    for n in 0..10 {
        client.get(&format!("/{n}"));
    }
    let mut peer = H2::server(upstream.accept(), &Options::default());
    let seen: Vec<u32> = (0..10).map(|_| peer.accept_whole().0).collect();
    drop(client);
    for stream in seen {
        peer.message(stream).expect_reset(code::CANCEL);
    }
}

#[test]
fn a_cancelled_request_closes_its_http1_connection() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.get("/");
    let mut conn = upstream.accept_request();
    client.reset(stream, code::CANCEL);
    conn.expect_close();
    weir.wait_stdout("client_closed");
}
