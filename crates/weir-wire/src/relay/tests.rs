//! Bodies that a watcher changes asynchronously, and ends that the relay makes for the sender.

use super::*;
use crate::{Peer, Socket, Transport};
use std::future::poll_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Upper-cases each piece, adds `~` for each pause and `!` for the end, and takes three polls for each.
#[derive(Default)]
struct Slow {
    pending: Option<(Vec<u8>, u8)>,
}

impl Watch for Slow {
    fn sees_pieces(&self) -> bool {
        true
    }

    fn may_trail(&self, _: &[u8]) -> bool {
        true
    }

    fn piece(&mut self, seen: Seen<'_>) -> Result<Option<Vec<u8>>, Stopped> {
        assert!(self.pending.is_none(), "one piece after another");
        let mut made = seen.data.to_ascii_uppercase();
        match seen.mark {
            Mark::Last => made.push(b'!'),
            Mark::More => {}
            Mark::Pause => made.push(b'~'),
        }
        self.pending = Some((made, 3));
        Ok(Some(Vec::new()))
    }

    fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    fn poll_pending(
        &mut self,
        cx: &mut Context<'_>,
        _: Option<&mut Vec<u8>>,
    ) -> Poll<Result<Option<Vec<u8>>, Stopped>> {
        if let Some((_, polls @ 1..)) = &mut self.pending {
            *polls -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(self.pending.take().map(|(made, _)| made)))
    }
}

/// A connection, and its other end.
pub(super) fn pair() -> (Stream, UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let ours = Transport::Plain(Socket::of_runtime(ours, Peer::Local).unwrap());
    (ours.into(), UnixStream::from_std(theirs).unwrap())
}

/// What the receiver gets of a body whose first bytes `rest` came with the head, and what is left over.
async fn relayed(kind: BodyKind, framing: Framing, rest: &[u8]) -> (String, usize) {
    let ((mut from, _), (mut to, mut receiver)) = (pair(), pair());
    let mut slow = Slow::default();
    let mut relay = Relay::new(kind, framing, b"head|".to_vec());
    relay.prime(rest, Some(&mut slow)).unwrap();
    poll_fn(|cx| relay.poll(cx, &mut from, &mut to, Some(&mut slow))).await.unwrap();
    drop(to);
    let mut got = String::new();
    receiver.read_to_string(&mut got).await.unwrap();
    (got, relay.leftover().len())
}

#[tokio::test]
async fn pieces_that_are_owed_come_in_order() {
    let length = relayed(BodyKind::Length(6), Framing::Close, b"abcdef").await;
    assert_eq!(length, ("head|ABCDEF!".to_owned(), 0));
    let chunks = relayed(BodyKind::Chunked, Framing::Chunked, b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\nnext").await;
    assert_eq!(chunks, ("head|3\r\nABC\r\n3\r\nDEF\r\n1\r\n!\r\n0\r\n\r\n".to_owned(), 4));
    let until_close = relayed(BodyKind::UntilClose, Framing::Close, b"abc").await;
    assert_eq!(until_close, ("head|ABC!".to_owned(), 0));
}

#[tokio::test]
async fn what_is_owed_at_a_pause_goes_out_before_more_comes() {
    let ((mut from, mut sender), (mut to, mut receiver)) = (pair(), pair());
    let mut slow = Slow::default();
    let mut relay = Relay::new(BodyKind::Length(6), Framing::Close, Vec::new());
    let relaying = poll_fn(|cx| relay.poll(cx, &mut from, &mut to, Some(&mut slow)));
    let talking = async {
        let mut got = [0; 4];
        sender.write_all(b"abc").await.unwrap();
        receiver.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"ABC~");
        sender.write_all(b"def").await.unwrap();
        receiver.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"DEF!");
    };
    tokio::join!(async { relaying.await.unwrap() }, talking);
}

#[tokio::test]
async fn pauses_can_be_hidden() {
    let ((mut from, mut sender), (mut to, mut receiver)) = (pair(), pair());
    let mut slow = Slow::default();
    let mut relay = Relay::new(BodyKind::Length(6), Framing::Close, Vec::new());
    relay.hide_pauses();
    let relaying = poll_fn(|cx| relay.poll(cx, &mut from, &mut to, Some(&mut slow)));
    let talking = async {
        let mut got = [0; 3];
        sender.write_all(b"abc").await.unwrap();
        receiver.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"ABC");
        sender.write_all(b"def").await.unwrap();
        let mut got = [0; 4];
        receiver.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"DEF!");
    };
    tokio::join!(async { relaying.await.unwrap() }, talking);
}

/// The piece is written from the buffer into which it was read, so the body may be finished before all of it is sent.
#[tokio::test]
async fn a_large_last_piece_waits_for_its_receiver() {
    let ((mut from, mut sender), (mut to, mut receiver)) = (pair(), pair());
    let mut before = poll_fn(|cx| to.poll_write(cx, b"-")).await.unwrap();
    while let Poll::Ready(wrote) = poll_fn(|cx| Poll::Ready(to.poll_write(cx, &[b'-'; 4096]))).await {
        before += wrote.unwrap();
    }
    let body = vec![b'b'; 2 * COPY_BYTES];
    let mut relay = Relay::new(BodyKind::Length(body.len() as u64), Framing::Length, Vec::new());
    sender.write_all(&body).await.unwrap();
    poll_fn(|cx| {
        assert!(relay.poll(cx, &mut from, &mut to, None).is_pending());
        if relay.is_finished() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let relaying = async move {
        poll_fn(|cx| relay.poll(cx, &mut from, &mut to, None)).await.unwrap();
    };
    let mut got = Vec::new();
    let (_, read) = tokio::join!(relaying, receiver.read_to_end(&mut got));
    assert_eq!(read.unwrap(), before + body.len());
    assert!(got.ends_with(&body));
}

#[tokio::test]
async fn a_body_is_ended_for_a_sender_that_does_not() {
    let ((mut from, _), (mut to, mut receiver)) = (pair(), pair());
    let mut slow = Slow::default();
    let mut relay = Relay::new(BodyKind::UntilClose, Framing::Chunked, Vec::new());
    assert!(relay.end_for_sender(b"a: b\r\n".to_vec(), Some(&mut slow)).unwrap());
    assert!(!relay.end_for_sender(Vec::new(), Some(&mut slow)).unwrap(), "it has an end");
    poll_fn(|cx| relay.poll(cx, &mut from, &mut to, Some(&mut slow))).await.unwrap();
    drop(to);
    let mut got = String::new();
    receiver.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "1\r\n!\r\n0\r\na: b\r\n\r\n");
    for kind in [BodyKind::Length(3), BodyKind::Chunked] {
        let mut relay = Relay::new(kind, Framing::Chunked, Vec::new());
        assert!(!relay.end_for_sender(Vec::new(), Some(&mut slow)).unwrap(), "{kind:?} ends by itself");
    }
}

#[tokio::test]
async fn a_body_that_is_gathered_waits_for_what_is_owed() {
    let (mut from, _) = pair();
    let mut slow = Slow::default();
    let mut relay = Relay::new(BodyKind::Chunked, Framing::Close, Vec::new());
    relay.gather(100);
    relay.prime(b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", Some(&mut slow)).unwrap();
    poll_fn(|cx| relay.poll_gather(cx, &mut from, Some(&mut slow))).await.unwrap();
    assert_eq!(relay.take_buffer().unwrap(), b"ABCD!");
}

/// The connection of an upstream keeps its relay, so nothing of a message may reach the next one.
#[tokio::test]
async fn a_released_relay_begins_like_a_new_one() {
    let ((mut from, _sender), (mut to, mut receiver)) = (pair(), pair());
    let mut relay = Relay::new(BodyKind::Chunked, Framing::Chunked, b"first|".to_vec());
    relay.keep(1024);
    relay.read_on(1024);
    relay.hide_pauses();
    let mut slow = Slow::default();
    relay.prime(b"3\r\nabc\r\n0\r\na: b\r\n\r\nnext", Some(&mut slow)).unwrap();
    poll_fn(|cx| relay.poll(cx, &mut from, &mut to, Some(&mut slow))).await.unwrap();
    assert_eq!(relay.leftover(), b"next");
    relay.release();
    assert_eq!(format!("{relay:?}"), format!("{:?}", Relay::idle()));
    relay.begin_head(b"|second".to_vec());
    poll_fn(|cx| relay.poll(cx, &mut from, &mut to, None)).await.unwrap();
    assert_eq!((relay.sent(), relay.taken(), relay.leftover()), (7, 0, &b""[..]));
    drop(to);
    let mut got = String::new();
    receiver.read_to_string(&mut got).await.unwrap();
    assert!(got.starts_with("first|3\r\nABC\r\n") && got.ends_with("a: b\r\n\r\n|second"), "{got:?}");
}
