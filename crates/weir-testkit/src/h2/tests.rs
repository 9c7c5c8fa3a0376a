//! The two roles talking to each other directly, without a gateway.

use super::*;
use crate::{Client, Upstream};

#[test]
fn a_conversation() {
    let upstream = Upstream::listen();
    let mut client = H2::client(Client::connect(upstream.address()));
    let mut server = H2::server(upstream.accept(), &Options::default().with(&[(setting::STREAMS, 7)]));
    assert_eq!(client.setting(setting::STREAMS), Some(7));
    let one = client.get("/a");
    let two = client.post("/b");
    client.data(two, "hel", false);
    client.data(two, "lo", true);
    let (stream, request) = server.accept_whole();
    assert_eq!((stream, request.header(":path")), (one, Some("/a")));
    let (stream, request) = server.accept_whole();
    assert_eq!(stream, two);
    request.expect_body("hello").expect_frames(&["HEADERS", "DATA 3", "DATA 2 END"]);
    server.headers(two, &[(":status", "103"), ("link", "x")], false);
    server.headers(two, &[(":status", "200")], false);
    server.data(two, "ok", false);
    server.headers_in_pieces(two, &[("sum", "1234567890")], 5, true);
    let response = client.message(two);
    response.expect_status(200).expect_body("ok");
    assert_eq!(response.interim.len(), 1);
    assert_eq!(response.trailers, [("sum".to_owned(), "1234567890".to_owned())]);
    server.reset(one, code::REFUSED);
    client.message(one).expect_reset(code::REFUSED);
    server.send(&Frame::go_away(two, code::NONE));
    assert_eq!(client.go_away(0), (two, code::NONE));
    drop(server);
    client.expect_end();
}

#[test]
fn a_body_waits_for_its_windows() {
    let upstream = Upstream::script(|conn| {
        let mut server =
            H2::server(conn, &Options { settings: vec![(setting::WINDOW, 10)], window: 0, pongs: true });
        let (stream, _) = server.accept();
        server.wait(stream, "the first ten bytes", |message| message.body.len() == 10);
        server.send(&Frame::window(stream, 100_000));
        server.wait(stream, "the window of the connection", |message| message.body.len() == 65535);
        server.send(&Frame::window(0, 100_000));
        let request = server.message(stream);
        server.respond(stream, &[(":status", "200")], request.body.len().to_string());
        server.message(stream + 2); // until the client is gone
    });
    let mut client = H2::client(Client::connect(upstream.address()));
    client.setting(setting::WINDOW);
    let stream = client.post("/");
    client.body(stream, &[b'x'; 100_000], true);
    client.message(stream).expect_body("100000");
}
