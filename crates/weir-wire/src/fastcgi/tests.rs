//! Responses of FastCGI servers, honest and not, as an exchange reads them.

use super::*;
use crate::{Peer, Socket};
use std::future::poll_fn;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

const OUT: u8 = 6;
const ERR: u8 = 7;

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 3, 0][..], content, &[0; 3]].concat()
}

fn end(status: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, status, 0, 0, 0])
}

/// A connection, and the server's end.
fn pair() -> (FastCgi, UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let ours = FastCgi::new(Transport::Plain(Socket::of_runtime(ours, Peer::Local).unwrap()));
    (ours, UnixStream::from_std(theirs).unwrap())
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// What is read of a response that arrives in pieces of `size`, and the error at its end.
async fn read(
    ours: &mut FastCgi,
    mut theirs: UnixStream,
    sent: Vec<u8>,
    size: usize,
) -> (String, Option<String>) {
    ours.begin(256);
    let mut text = Vec::new();
    let writing = async move {
        for piece in sent.chunks(size) {
            if theirs.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let reading = async {
        loop {
            match poll_fn(|cx| ours.poll_read(cx, &mut text)).await {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) => return Some(e.to_string()),
            }
        }
    };
    let (error, ()) = tokio::join!(reading, writing);
    (String::from_utf8(text).unwrap(), error)
}

#[test]
fn responses() {
    let head = b"Status: 404 No\r\nContent-Type: a/b\r\n\r\n";
    let http = "HTTP/1.1 404 No\r\nContent-Type: a/b\r\n\r\n";
    let usual = [record(OUT, head), record(OUT, b"body"), record(OUT, b""), end(0)].concat();
    let split = [record(OUT, &head[..5]), record(ERR, b"Notice"), record(OUT, &head[5..]), end(0)].concat();
    let short = [record(OUT, b"Content-Length: 5\n\nbody"), end(0)].concat();
    let long = [record(OUT, b"Content-Length: 3\n\nbod"), record(OUT, b"y\n"), end(0)].concat();
    let no_end = [record(OUT, head), record(OUT, b"body")].concat();
    let endless = record(OUT, &[b'a'; 300]);
    for (sent, text, error) in [
        (usual, format!("{http}body"), None),
        (split, http.to_owned(), None),
        (
            short,
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody".to_owned(),
            Some("the script ended before its Content-Length"),
        ),
        (long, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbod".to_owned(), None),
        (no_end, format!("{http}body"), Some("the FastCGI server closed the connection within its response")),
        (endless, String::new(), Some("head too large")),
        (end(0), String::new(), Some("the script ended without a response")),
        (
            [record(OUT, b"A: b\n"), end(0)].concat(),
            String::new(),
            Some("the script ended within the response head"),
        ),
        (end(1), String::new(), Some("it accepts no second request on a connection (FCGI_CANT_MPX_CONN)")),
        (end(2), String::new(), Some("it is overloaded (FCGI_OVERLOADED)")),
        (end(3), String::new(), Some("it is no responder (FCGI_UNKNOWN_ROLE)")),
        (record(OUT, b"Warning\n\n"), String::new(), Some("a line of the CGI response head is not a field")),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            String::new(),
            Some("a record of FastCGI version 72: the port may speak another protocol"),
        ),
        (
            record(ERR, b"cut")[..9].to_vec(),
            String::new(),
            Some("the FastCGI server closed the connection within its response"),
        ),
        (Vec::new(), String::new(), None),
    ] {
        for size in [1, 5, 4096] {
            let found = block_on(async {
                let (mut ours, theirs) = pair();
                read(&mut ours, theirs, sent.clone(), size).await
            });
            let expected = (text.clone(), error.map(str::to_owned));
            assert_eq!(found, expected, "{sent:?} in pieces of {size}");
        }
    }
}

#[test]
fn a_flood_of_errors_is_bounded() {
    block_on(async {
        let (mut ours, theirs) = pair();
        let mut sent: Vec<u8> = std::iter::repeat_n(record(ERR, &[b'e'; 4000]), 100).flatten().collect();
        sent.extend(std::iter::repeat_n(record(OUT, b""), 10_000).flatten());
        sent.extend([record(OUT, b"\n"), end(0)].concat());
        let found = read(&mut ours, theirs, sent, usize::MAX).await;
        assert_eq!(found, ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), None));
        let errors = ours.take_errors().unwrap();
        assert_eq!((errors.text.len(), errors.dropped), (ERROR_BYTES, 400_000 - ERROR_BYTES as u64));
        assert!(ours.take_errors().is_none(), "told once");
    });
}

/// A connection is used again only when the whole response has been read, and nothing else.
#[test]
fn what_comes_to_rest() {
    let head = record(OUT, b"A: b\n\n");
    let body = record(OUT, &[b'x'; 60_000]);
    for (sent, rests) in [
        ([head.clone(), end(0)].concat(), true),
        ([head.clone(), body.clone(), end(0)].concat(), true),
        ([head.clone(), body.clone(), body.clone(), end(0)].concat(), false),
        (head.clone(), false),
        ([head.clone(), end(2)].concat(), false),
        ([head.clone(), end(0), end(0)].concat(), false),
        ([head.clone(), end(0), vec![1]].concat(), false),
    ] {
        let length = sent.len();
        let found = block_on(async {
            let (mut ours, mut theirs) = pair();
            ours.begin(256);
            theirs.write_all(&sent).await.unwrap();
            let mut text = Vec::new();
            while !text.ends_with(b"\r\n\r\n") {
                text.truncate(text.len().min(32));
                poll_fn(|cx| ours.poll_read(cx, &mut text)).await.unwrap();
                if text.len() > 32 {
                    break;
                }
            }
            ours.comes_to_rest()
        });
        assert_eq!(found, rests, "{length} bytes");
    }
}

#[test]
fn the_end_is_known_with_the_head() {
    for (sent, over) in [
        ([record(OUT, b"A: b\n\n"), record(ERR, b"e"), end(0)].concat(), true),
        ([record(OUT, b"A: b\n\n"), record(OUT, b"x"), end(0)].concat(), true),
        ([record(OUT, b"Content-Length: 1\n\n"), end(0)].concat(), false),
        (record(OUT, b"A: b\n\n"), false),
    ] {
        let found = block_on(async {
            let (mut ours, mut theirs) = pair();
            ours.begin(256);
            theirs.write_all(&sent).await.unwrap();
            poll_fn(|cx| ours.poll_read(cx, &mut Vec::new())).await.unwrap();
            ours.is_over()
        });
        assert_eq!(found, over, "{sent:?}");
    }
}
