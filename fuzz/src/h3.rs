//! Fuzzes weir-h3: its QPACK, and its codec in both roles. Nothing panics, input split into pieces means the same as in
//! one piece, and memory stays within its bounds. Debug assertions compare the codec's counters.
//!
//! Inputs of a codec are steps of three bytes and their data: which stream, what happens on it, and how many bytes it
//! carries. The first byte of an input decides what the holders of streams do meanwhile.

use crate::Random;
use std::ops::ControlFlow;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use weir_fields::render::Encode;
use weir_h3::codec::{Failed, Handshake};
use weir_h3::qpack::{Decoded, Decoder, DecoderLimits, Encoder};
use weir_h3::{Bounds, Effect, FloodLimits, Own, Role, TextCodec};

/// Small enough for a fuzzer to reach.
const TABLE: DecoderLimits = DecoderLimits { capacity: 220, blocked: 2 };
const BOUNDS: Bounds = Bounds {
    streams: 4,
    text: 512,
    heads: 1024,
    body: 256,
    bodies: 512,
    out: 512,
    outs: 1024,
    decoder: TABLE,
    encoder: 256,
    floods: FloodLimits::NONE,
};

const HANDSHAKE: Handshake = Handshake { key: String::new, accept: |_| String::new() };
const REQUEST: &[u8] = b"POST /p HTTP/1.1\r\nHost: h\r\nX-A: b\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n";

fn quiet_task() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

// === QPACK ===

/// Instructions and sections of a hostile encoder: the first byte is the length of the instructions, and what follows
/// them is a section. Instructions in pieces do the same.
pub fn sections(data: &[u8]) {
    let Some((&len, rest)) = data.split_first() else { return };
    let (instructions, section) = rest.split_at(usize::from(len).min(rest.len()));
    let run = |size: usize| {
        let mut decoder = Decoder::new(TABLE);
        let done: Result<u32, _> = instructions.chunks(size).map(|piece| decoder.instructions(piece)).sum();
        let (mut fields, mut answers) = (Vec::new(), Vec::new());
        let decoded = decoder.decode(4, section, &mut answers, |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
            if fields.len() < 1000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if !matches!(decoded, Ok(Decoded::Done)) {
            assert!(answers.is_empty(), "only decoded sections are acknowledged");
        }
        assert!(decoder.required(section).is_ok() || decoded.is_err());
        decoder.acknowledge(&mut answers);
        (done, decoder.inserted(), decoded, fields, answers)
    };
    let whole = run(usize::MAX);
    let pieces = run(1);
    // After an error, the rest of the pieces is read, but the connection has ended.
    if whole.0.is_ok() {
        assert!(whole == pieces, "whole and byte by byte differ: {}", data.escape_ascii());
    } else {
        assert!(pieces.0.is_err());
    }
}

/// Our encoder and our decoder: the input chooses fields, and when which stream's bytes arrive. Every section comes
/// back and none waits.
pub fn qpack(data: &[u8]) {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let mut random = Random(u64::from(how) + 1);
    let limits = DecoderLimits { capacity: [0, 64, 220, 4096][usize::from(how & 3)], blocked: 0 };
    let (mut encoder, mut decoder) = (Encoder::new(300), Decoder::new(limits));
    encoder.allow(limits.capacity as u64);
    let (mut instructions, mut answers) = (Vec::new(), Vec::new());
    let mut stream = 0;
    while !rest.is_empty() {
        let (mut section, mut lines, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        encoder.begin();
        for _ in 0..random.below(4) {
            let Some((&[name, value], others)) = rest.split_first_chunk::<2>() else { break };
            rest = others;
            let (name, others) = rest.split_at(usize::from(name & 15).min(rest.len()));
            let (value, others) = others.split_at(usize::from(value & 31).min(others.len()));
            rest = others;
            encoder.encode(name, value, how & 0x80 != 0, &mut lines);
            fields.push((name.to_vec(), value.to_vec()));
        }
        rest = rest.get(1..).unwrap_or_default();
        encoder.finish(stream, &mut section);
        section.append(&mut lines);
        instructions.append(encoder.instructions());
        let mut got = Vec::new();
        let decoded = decoder.decode(stream, &section, &mut answers, |name, value| {
            got.push((name.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        assert!(decoded == Ok(Decoded::Done) && got == fields, "{decoded:?}: {got:?}, not {fields:?}");
        let some: Vec<u8> = instructions.drain(..random.below(instructions.len() + 1)).collect();
        decoder.instructions(&some).expect("our instructions are valid");
        decoder.acknowledge(&mut answers);
        let some: Vec<u8> = answers.drain(..random.below(answers.len() + 1)).collect();
        assert_eq!(encoder.answers(&some), Ok(0), "our answers are valid");
        stream += 4;
    }
    // What a hostile decoder answers.
    let _ = encoder.answers(data);
}

// === codec ===

/// A client's streams.
pub fn server(data: &[u8]) {
    run(Role::Server, data);
}

/// A server's streams.
pub fn client(data: &[u8]) {
    run(Role::Client, data);
}

/// What happens on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Data,
    Fin,
    Reset,
    Stop,
}

#[derive(Clone, Copy, Debug)]
struct Step<'a> {
    stream: u64,
    what: What,
    bytes: &'a [u8],
}

/// Reads the steps. Streams are few, so that they meet. Nothing follows a stream's end.
fn steps(mut data: &[u8], role: Role) -> Vec<Step<'_>> {
    const STREAMS: [u64; 12] = [0, 4, 8, 12, 16, 20, 2, 6, 10, 14, 1, 0];
    let (mut steps, mut over) = (Vec::new(), Vec::new());
    while let Some((&[stream, what, len], rest)) = data.split_first_chunk::<3>() {
        let (bytes, rest) = rest.split_at(usize::from(len).min(rest.len()));
        data = rest;
        let mut stream = STREAMS[usize::from(stream) % STREAMS.len()];
        if role == Role::Client && stream & 3 == 2 {
            stream += 1;
        }
        let what = [What::Data, What::Data, What::Fin, What::Reset, What::Stop][usize::from(what) % 5];
        if over.contains(&stream) {
            continue;
        }
        if matches!(what, What::Fin | What::Reset) {
            over.push(stream);
        }
        steps.push(Step { stream, what, bytes });
    }
    steps
}

fn run(role: Role, data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let steps = steps(rest, role);
    let whole = converse(role, how, &steps, usize::MAX);
    let pieces = converse(role, how, &steps, 1);
    // Of two broken rules in one piece, the first counts; between pieces, what the first did may break another. Also, a
    // hostile encoder may evict an entry while a section waits for it: then it matters which is looked at first.
    let is_of_qpack = |code: Option<u64>| code.is_some_and(|code| code >= 0x200);
    let both_end = whole.0.is_some() && pieces.0.is_some();
    if how & 1 == 0 && !both_end && !is_of_qpack(whole.0) && !is_of_qpack(pieces.0) {
        assert!(whole == pieces, "whole and byte by byte differ: {whole:?}, {pieces:?}");
    }
}

/// What is left of a stream with the transport.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    fin: bool,
    is_stopped: bool,
}

/// Goes through the steps; returns how the connection ended and what was sent. If `how` is odd, the holders of streams
/// act in between.
fn converse(role: Role, how: u8, steps: &[Step<'_>], size: usize) -> (Option<u64>, Vec<String>) {
    let now = Instant::now();
    let mut random = Random(u64::from(how) * 0x9e37_79b9 + 1);
    let mut codec = TextCodec::new(role, BOUNDS, HANDSHAKE);
    let mut slots: Vec<usize> = Vec::new();
    if role == Role::Client {
        slots.extend((0..4).map(|_| codec.send_request(REQUEST, "https").expect("it can be said")));
    }
    let mut held: Vec<(u64, Held)> = Vec::new();
    let mut told = Vec::new();
    for step in steps {
        let place = held.iter().position(|(stream, _)| *stream == step.stream).unwrap_or_else(|| {
            held.push((step.stream, Held::default()));
            held.len() - 1
        });
        if held[place].1.is_stopped {
            continue;
        }
        match step.what {
            What::Stop => codec.stop_came(step.stream, 0x10c, now),
            What::Reset => {
                held[place].1 = Held { is_stopped: true, ..Held::default() };
                codec.reset_came(step.stream, 0x10c, now);
            }
            What::Data | What::Fin => {
                held[place].1.bytes.extend_from_slice(step.bytes);
                held[place].1.fin |= step.what == What::Fin;
                pass(&mut codec, step.stream, &mut held, &mut told, size);
            }
        }
        carry_out(&mut codec, &mut held, &mut told, size);
        while let Some(slot) = codec.next_arrival() {
            let mut text = Vec::new();
            codec.take_head(slot, &mut text);
            assert!(!text.is_empty() || codec.is_reset(slot, &quiet_task()));
            told.push(text.escape_ascii().to_string());
            slots.push(slot);
        }
        if how & 1 == 1 {
            act(role, &mut codec, &mut slots, &mut random);
            carry_out(&mut codec, &mut held, &mut told, size);
        }
        if how & 2 == 2 {
            send(&mut codec, &mut random);
        }
        assert!(codec.open() <= BOUNDS.streams + 8, "streams are bounded");
    }
    for slot in slots {
        codec.release(slot);
    }
    let code = codec.ended().map(|ended| ended.code);
    if code.is_none() && how & 3 == 0 {
        told.push(codec.pending_own(Own::Control).escape_ascii().to_string());
    }
    (code, if code.is_some() { Vec::new() } else { told })
}

/// Passes what the transport has of a stream, in pieces, and carries out what each of them causes.
fn pass(codec: &mut TextCodec, stream: u64, held: &mut [(u64, Held)], told: &mut Vec<String>, size: usize) {
    loop {
        let Some((_, of)) = held.iter_mut().find(|(other, _)| *other == stream) else { return };
        if of.is_stopped {
            return;
        }
        let len = of.bytes.len().min(size);
        let is_all = len == of.bytes.len();
        let used = codec.receive(stream, &of.bytes[..len], of.fin && is_all, Instant::now());
        assert!(used <= len);
        of.bytes.drain(..used);
        let is_done = used < len || of.bytes.is_empty();
        // Whatever ended is not passed again.
        of.is_stopped |= is_all && used == len && of.fin;
        carry_out(codec, held, told, size);
        if is_done {
            return;
        }
    }
}

fn carry_out(codec: &mut TextCodec, held: &mut [(u64, Held)], told: &mut Vec<String>, size: usize) {
    while let Some(effect) = codec.next_effect() {
        match effect {
            Effect::Read { stream } => {
                pass(codec, stream, held, told, size);
                continue;
            }
            Effect::Stop { stream, .. } => {
                if let Some((_, held)) = held.iter_mut().find(|(other, _)| *other == stream) {
                    *held = Held { is_stopped: true, ..Held::default() };
                }
            }
            Effect::Prioritize { .. } | Effect::Reset { .. } | Effect::Write { .. } => {}
        }
        told.push(format!("{effect:?}"));
    }
}

/// The transport sends some of what is pending.
fn send(codec: &mut TextCodec, random: &mut Random) {
    for own in Own::ALL {
        let len = random.below(codec.pending_own(own).len() + 1);
        codec.sent_own(own, len);
    }
    for stream in [0, 4, 8, 12] {
        let pending = codec.pending(stream);
        assert!(pending.bytes.len() < 2 * BOUNDS.out + 256, "output is bounded");
        let (len, ends) = (random.below(pending.bytes.len() + 1), pending.ends);
        let is_all = len == pending.bytes.len();
        codec.sent(stream, len, ends && is_all);
    }
}

fn act(role: Role, codec: &mut TextCodec, slots: &mut Vec<usize>, random: &mut Random) {
    for _ in 0..random.below(4) {
        if slots.is_empty() {
            return;
        }
        let at = random.below(slots.len());
        let slot = slots[at];
        match random.below(8) {
            0..3 => {
                let mut buffer = Vec::new();
                if let Poll::Ready(Ok(len)) = codec.read(slot, &mut buffer, &quiet_task()) {
                    assert_eq!(len, buffer.len());
                }
            }
            3 if role == Role::Server => drop(codec.send_response(slot, RESPONSE, &quiet_task())),
            3 | 4 => match codec.send_data(slot, &[7; 300], &quiet_task()) {
                Poll::Ready(Ok(len)) => assert!(len > 0 && len <= 300),
                Poll::Ready(Err(Failed::Refused { by_reset: true })) => assert_eq!(role, Role::Client),
                _ => {}
            },
            5 => {
                let trailers: &[u8] = if random.below(2) == 0 { b"" } else { b"x-sum: 1\r\n" };
                let _ = codec.send_end(slot, trailers); // it may have failed
            }
            6 => {
                codec.forget_head(slot);
                let _ = (codec.is_over_at(slot), codec.take_trailers(slot), codec.priority(slot));
            }
            _ => {
                codec.release(slot);
                slots.swap_remove(at);
            }
        }
    }
    if random.below(50) == 0 {
        codec.leave();
        codec.leave_now();
    }
}
