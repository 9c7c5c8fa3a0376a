//! weir-wire's HTTP/2 codec in both roles, compiled from its own files, so that it stays free of sockets, TLS and
//! runtime. Input must parse the same in one piece and byte by byte. Whatever streams do meanwhile, nothing panics,
//! output consists of whole frames, and no more is buffered than windows allow.
//!
//! The first byte of an input decides what the streams do; the rest are the peer's frames.

#![allow(dead_code, unused_imports)] // only sockets use the rest

#[path = "../../crates/weir-wire/src/h2/codec/mod.rs"]
mod codec;
#[path = "../../crates/weir-wire/src/h2/flood.rs"]
mod flood;
#[path = "../../crates/weir-wire/src/h2/frame.rs"]
mod frame;
#[path = "../../crates/weir-wire/src/h2/hpack.rs"]
mod hpack;
#[path = "../../crates/weir-wire/src/h2/tables.rs"]
mod tables;

use crate::Random;
use codec::{Bounds, Role, TextCodec};
use flood::FloodLimits;
use frame::{FRAME_MOST, HEADER, Header, Kind, PREFACE};
use std::task::{Context, Poll, Waker};

/// Small enough for a fuzzer to reach.
const BOUNDS: Bounds =
    Bounds { streams: 4, text: 512, heads: 1024, window: 128 * 1024, floods: FloodLimits::NONE };

/// A request, the streams that send it, and their answers.
const REQUEST: &[u8] = b"POST /p HTTP/1.1\r\nHost: h\r\nX-A: b\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n";

/// A client's frames.
pub fn server(data: &[u8]) {
    run(Role::Server, data);
}

/// An upstream's frames.
pub fn client(data: &[u8]) {
    run(Role::Client, data);
}

fn run(role: Role, data: &[u8]) {
    let Some((&how, wire)) = data.split_first() else { return };
    let whole = quiet(role, &[wire]);
    let bytes: Vec<&[u8]> = wire.chunks(1).collect();
    assert!(whole == quiet(role, &bytes), "whole and byte by byte differ: {}", wire.escape_ascii());
    busy(role, how, wire);
}

fn begin(role: Role) -> TextCodec {
    let mut codec = TextCodec::new(role, BOUNDS);
    let mut hello = if role == Role::Server { PREFACE.to_vec() } else { Vec::new() };
    frame::write(Kind::SETTINGS, 0, 0, &[], &mut hello);
    frame::write(Kind::SETTINGS, frame::ACK, 0, &[], &mut hello);
    assert_eq!(codec.receive(&hello), hello.len());
    codec
}

fn quiet_task() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Streams that are left alone; returns all output.
fn quiet(role: Role, pieces: &[&[u8]]) -> Vec<u8> {
    let mut codec = begin(role);
    if role == Role::Client {
        for _ in 0..3 {
            let _ = ask(&mut codec); // it stays as it is
        }
    }
    let mut held = Vec::new();
    for piece in pieces {
        held.extend_from_slice(piece);
        let used = codec.receive(&held);
        held.drain(..used);
    }
    codec.pending().to_vec()
}

/// Begins a request.
fn ask(codec: &mut TextCodec) -> Option<usize> {
    let slot = codec.reserve();
    match codec.may_begin(slot, &quiet_task()) {
        Poll::Ready(Ok(())) => {
            codec.send_request(slot, REQUEST, "https").expect("it can be said");
            Some(slot)
        }
        _ => {
            codec.release(slot);
            None
        }
    }
}

/// Streams that read, write, end and are dropped between pieces; the first byte decides which.
fn busy(role: Role, how: u8, wire: &[u8]) {
    let mut random = Random(u64::from(how) * 0x9e37_79b9 + 1);
    let mut codec = begin(role);
    let mut streams: Vec<(usize, bool)> = Vec::new();
    let (mut held, mut left) = (Vec::new(), if role == Role::Client { PREFACE.len() } else { 0 });
    let mut rest = wire;
    let mut out = Vec::new();
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(1 + random.below(rest.len().min(64)));
        rest = others;
        held.extend_from_slice(piece);
        let used = codec.receive(&held);
        held.drain(..used);
        while let Some(slot) = codec.next_arrival() {
            let mut text = Vec::new();
            codec.take_head(slot, &mut text);
            assert!(!text.is_empty());
            streams.push((slot, false));
        }
        if role == Role::Client && streams.len() < 8 {
            streams.extend(ask(&mut codec).map(|slot| (slot, true)));
        }
        act(role, &mut codec, &mut streams, &mut random);
        // Sometimes the socket accepts part of it.
        let sent = random.below(codec.pending().len() + 1);
        out.extend_from_slice(&codec.pending()[..sent]);
        drop(codec.sent(sent));
    }
    streams.into_iter().for_each(|(slot, _)| codec.release(slot));
    out.extend_from_slice(codec.pending());
    let mut frames = &out[left.min(out.len())..];
    left = 0;
    while let Some(header) = Header::parse(frames) {
        assert!(header.len <= FRAME_MOST && header.kind.0 <= 9, "no frame: {}", out.escape_ascii());
        frames = frames.get(HEADER + header.len..).expect("the last frame is whole");
    }
    assert!(frames.len() == left, "bytes behind the last frame: {}", out.escape_ascii());
}

fn act(role: Role, codec: &mut TextCodec, streams: &mut Vec<(usize, bool)>, random: &mut Random) {
    for _ in 0..random.below(4) {
        if streams.is_empty() {
            return;
        }
        let at = random.below(streams.len());
        let (slot, headed) = streams[at];
        match random.below(8) {
            0..3 => {
                let mut buffer = vec![b'x'; random.below(2)];
                if let Poll::Ready(Ok(len)) = codec.read(slot, &mut buffer, &quiet_task()) {
                    assert!(len <= buffer.len());
                }
            }
            3 | 4 if !headed && role == Role::Server => {
                let sent = codec.send_response(slot, RESPONSE, &quiet_task());
                streams[at].1 = matches!(sent, Poll::Ready(Ok((_, true))));
            }
            3 | 4 => {
                let data = vec![b'y'; 1 + random.below(40_000)];
                if let Poll::Ready(Ok(len)) = codec.send_data(slot, &data, &quiet_task()) {
                    assert!(len > 0 && len <= FRAME_MOST);
                }
            }
            5 if headed => {
                let trailers: &[u8] = if random.below(2) == 0 { b"" } else { b"x-sum: 1\r\n" };
                let _ = codec.send_end(slot, trailers); // it may have failed
            }
            6 => {
                let _ =
                    (codec.is_reset(slot, &quiet_task()), codec.is_over_at(slot), codec.take_trailers(slot));
            }
            7 => {
                codec.release(slot);
                streams.swap_remove(at);
            }
            _ => codec.reset(slot, frame::code::CANCEL),
        }
    }
    if random.below(50) == 0 {
        codec.leave();
    }
}
