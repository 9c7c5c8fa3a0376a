//! Bodies through stores that wait, refuse and fail, between peers of every speed.

use super::*;
use crate::relay::tests::pair;
use crate::relay::{Framing, RelayError};
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_h1::BodyKind;

/// A store in memory that decides by a number what goes wrong.
struct Moody {
    pieces: VecDeque<Vec<u8>>,
    storing: Option<Vec<u8>>,
    mood: u64,
    stored: Rc<Cell<usize>>,
    cut: bool,
}

impl Moody {
    fn new(seed: u64) -> (Self, Rc<Cell<usize>>) {
        let stored = Rc::new(Cell::new(0));
        let store = Self {
            pieces: VecDeque::new(),
            storing: None,
            mood: seed,
            stored: Rc::clone(&stored),
            cut: false,
        };
        (store, stored)
    }

    /// True once in so many calls.
    fn one_in(&mut self, n: u64) -> bool {
        self.mood = self.mood.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.mood >> 33).is_multiple_of(n)
    }
}

impl Store for Moody {
    fn has_place(&self, _: usize) -> bool {
        true
    }

    fn push(&mut self, piece: Vec<u8>) -> Result<(), Vec<u8>> {
        assert!(self.storing.is_none(), "one piece after another");
        if self.one_in(5) {
            return Err(piece);
        }
        self.storing = Some(piece);
        Ok(())
    }

    fn poll_stored(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if self.one_in(2) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let fails = self.one_in(4);
        let Some(piece) = self.storing.take() else { return Poll::Ready(None) };
        if fails {
            return Poll::Ready(Some(piece));
        }
        self.stored.set(self.stored.get() + piece.len());
        self.pieces.push_back(piece);
        Poll::Ready(None)
    }

    fn poll_take(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        if self.one_in(3) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.cut && !self.pieces.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let Some(piece) = self.pieces.pop_front() else { return Poll::Ready(Ok(0)) };
        buffer.extend_from_slice(&piece);
        Poll::Ready(Ok(piece.len()))
    }
}

fn body() -> Vec<u8> {
    (0u32..100_000).flat_map(u32::to_be_bytes).collect()
}

/// What a receiver gets that reads this many bytes at a time, with a break after each.
async fn relayed(seed: u64, framing: Framing, at_a_time: usize) -> (Vec<u8>, usize) {
    let ((mut from, mut sender), (mut to, mut receiver)) = (pair(), pair());
    let (store, stored) = Moody::new(seed);
    let mut relay = Relay::new(BodyKind::UntilClose, framing, Vec::new());
    relay.read_ahead(1000);
    relay.overflow(Box::new(store), 10_000);
    let sending = async move {
        sender.write_all(&body()).await.unwrap();
    };
    let relaying = async move {
        poll_fn(|cx| relay.poll(cx, &mut from, &mut to, None)).await.unwrap();
    };
    let receiving = async {
        let (mut got, mut piece) = (Vec::new(), vec![0; at_a_time]);
        loop {
            let n = receiver.read(&mut piece).await.unwrap();
            if n == 0 {
                return got;
            }
            got.extend_from_slice(&piece[..n]);
            for _ in 0..seed % 7 {
                tokio::task::yield_now().await;
            }
        }
    };
    let ((), (), got) = tokio::join!(sending, relaying, receiving);
    (got, stored.get())
}

#[tokio::test]
async fn every_byte_in_order_whatever_the_store_does() {
    let mut through = 0;
    for seed in 0..40 {
        let (got, stored) = relayed(seed, Framing::Close, 100 + 977 * (seed as usize % 20)).await;
        assert!(got == body(), "seed {seed}: {} bytes", got.len());
        through += stored;
    }
    assert!(through > 1_000_000, "only {through} bytes went through the store");
}

#[tokio::test]
async fn chunks_stay_whole() {
    let (got, _) = relayed(3, Framing::Chunked, 5000).await;
    let (mut reader, mut at, mut whole) = (weir_h1::BodyReader::new(BodyKind::Chunked), 0, Vec::new());
    loop {
        match reader.step(&got[at..]).unwrap() {
            weir_h1::Step::Data { skip, len } => {
                whole.extend_from_slice(&got[at + skip..at + skip + len]);
                at += skip + len;
            }
            weir_h1::Step::End { used } => {
                assert_eq!(at + used, got.len());
                break;
            }
            weir_h1::Step::More => panic!("it has an end"),
        }
    }
    assert!(whole == body());
}

/// The sender is done long before the receiver begins to read.
#[tokio::test]
async fn the_sender_need_not_wait() {
    let ((mut from, mut sender), (mut to, mut receiver)) = (pair(), pair());
    let (mut store, stored) = Moody::new(1);
    store.mood = 3;
    let length = body().len();
    let mut relay = Relay::new(BodyKind::Length(length as u64), Framing::Length, Vec::new());
    relay.read_ahead(1000);
    relay.overflow(Box::new(store), 10_000);
    let sending = tokio::spawn(async move {
        sender.write_all(&body()).await.unwrap();
        sender
    });
    poll_fn(|cx| match relay.poll(cx, &mut from, &mut to, None) {
        Poll::Pending if relay.is_finished() => Poll::Ready(()),
        Poll::Pending => {
            cx.waker().wake_by_ref(); // a store that refused is asked again
            Poll::Pending
        }
        Poll::Ready(_) => panic!("the receiver has read nothing"),
    })
    .await;
    sending.await.unwrap();
    assert!(stored.get() > 0);
    let rest = async {
        poll_fn(|cx| relay.poll_rest(cx, &mut to)).await.unwrap();
        drop(to);
    };
    let mut got = Vec::new();
    let (_, read) = tokio::join!(rest, receiver.read_to_end(&mut got));
    read.unwrap();
    assert!(got == body());
}

#[tokio::test]
async fn a_store_that_cannot_be_read() {
    let ((mut from, mut sender), (mut to, mut receiver)) = (pair(), pair());
    let (mut store, stored) = Moody::new(1);
    store.cut = true;
    let mut relay = Relay::new(BodyKind::UntilClose, Framing::Close, Vec::new());
    relay.read_ahead(1000);
    relay.overflow(Box::new(store), 10_000);
    tokio::spawn(async move {
        let _ = sender.write_all(&body()).await; // nobody reads it to its end
    });
    let ended = async {
        let ended = poll_fn(|cx| {
            let polled = relay.poll(cx, &mut from, &mut to, None);
            cx.waker().wake_by_ref();
            polled
        })
        .await;
        drop(to);
        ended
    };
    let reading = async {
        while stored.get() == 0 {
            tokio::task::yield_now().await;
        }
        let mut got = Vec::new();
        receiver.read_to_end(&mut got).await.unwrap();
        got
    };
    let (ended, got) = tokio::join!(ended, reading);
    assert!(matches!(ended, Err(RelayError::Supply(_))), "{ended:?}");
    assert!(body().starts_with(&got));
}
