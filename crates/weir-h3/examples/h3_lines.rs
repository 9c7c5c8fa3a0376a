//! Our codec behind a line protocol, so that `conformance/h3.py` can have another implementation talk to it without
//! QUIC in between.
//!
//! usage: h3_lines server|client. Each line on stdin is a command and gets a line on stdout. Bytes are in hexadecimal
//! digits.
//!
//! `r STREAM FIN BYTES`: what arrives on a stream; FIN is 1 at its end.
//! `x STREAM CODE`: the peer resets a stream.
//! `q HEAD BODY`: a client's request, as HTTP/1.1 text, and its body. It ends with a trailer `x-sum: 1`.
//!
//! An answer is a list of words: `w:STREAM:FIN:BYTES` for output, `reset:STREAM:CODE`, `stop:STREAM:CODE`,
//! `close:CODE`, and for complete messages `got:STREAM:BYTES` with head, body and trailers. The server answers each
//! request with its method and path in fields, its body, and a trailer.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use weir_h3::codec::Handshake;
use weir_h3::{Bounds, Effect, Own, Role, TextCodec};

const HANDSHAKE: Handshake =
    Handshake { key: || "dGhlIHNhbXBsZSBub25jZQ==".to_owned(), accept: |_| String::new() };

struct Talk {
    role: Role,
    codec: TextCodec,
    /// What arrived and was not taken: bytes and end.
    held: BTreeMap<u64, (Vec<u8>, bool)>,
    /// Messages that are being read, by slot: head and body.
    messages: BTreeMap<usize, Vec<u8>>,
    /// Bodies that are being sent, by slot.
    bodies: BTreeMap<usize, Vec<u8>>,
    /// Streams with output.
    writing: Vec<u64>,
    words: Vec<String>,
}

fn main() -> Result<(), String> {
    let role = match std::env::args().nth(1).as_deref() {
        Some("server") => Role::Server,
        Some("client") => Role::Client,
        _ => return Err("usage: h3_lines server|client".to_owned()),
    };
    let bounds = Bounds { body: 1000, out: 1000, ..Bounds::default() };
    let mut talk = Talk {
        role,
        codec: TextCodec::new(role, bounds, HANDSHAKE),
        held: BTreeMap::new(),
        messages: BTreeMap::new(),
        bodies: BTreeMap::new(),
        writing: Vec::new(),
        words: Vec::new(),
    };
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        talk.command(&line).map_err(|rule| format!("{line}: {rule}"))?;
        let answer = std::mem::take(&mut talk.words).join(" ");
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

impl Talk {
    fn command(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let number = |at: usize| word(at).parse::<u64>().map_err(|e| e.to_string());
        match word(0) {
            "r" => {
                let (bytes, fin) = self.held.entry(number(1)?).or_default();
                bytes.extend_from_slice(&unhex(word(3))?);
                *fin |= word(2) == "1";
                self.pass(number(1)?);
            }
            "x" => self.codec.reset_came(number(1)?, number(2)?, Instant::now()),
            "q" => {
                let slot = self.codec.send_request(&unhex(word(1))?, "https").map_err(|e| e.to_string())?;
                self.messages.insert(slot, Vec::new());
                self.bodies.insert(slot, unhex(word(2))?);
            }
            "" => {}
            other => return Err(format!("no command '{other}'")),
        }
        // Until nothing changes: reading makes room for more, and sending for more of a body.
        while self.step()? {}
        if let Some(ended) = self.codec.ended() {
            self.words.push(format!("close:{}", ended.code));
        }
        Ok(())
    }

    fn pass(&mut self, stream: u64) {
        if let Some((bytes, fin)) = self.held.get_mut(&stream) {
            let used = self.codec.receive(stream, bytes, *fin, Instant::now());
            bytes.drain(..used);
        }
    }

    /// Does what can be done; returns whether that was something.
    fn step(&mut self) -> Result<bool, String> {
        let mut is_news = false;
        while let Some(slot) = self.codec.next_arrival() {
            is_news = true;
            let mut head = Vec::new();
            self.codec.take_head(slot, &mut head);
            self.messages.insert(slot, head);
        }
        while let Some(effect) = self.codec.next_effect() {
            is_news = true;
            match effect {
                Effect::Read { stream } => self.pass(stream),
                Effect::Reset { stream, code } => self.words.push(format!("reset:{stream}:{code}")),
                Effect::Stop { stream, code } => self.words.push(format!("stop:{stream}:{code}")),
                Effect::Write { stream } => self.writing.push(stream),
                Effect::Prioritize { .. } => {}
            }
        }
        for slot in self.messages.keys().copied().collect::<Vec<_>>() {
            is_news |= self.read(slot)?;
        }
        for slot in self.bodies.keys().copied().collect::<Vec<_>>() {
            is_news |= self.send(slot)?;
        }
        Ok(self.write() || is_news)
    }

    fn read(&mut self, slot: usize) -> Result<bool, String> {
        let Some(message) = self.messages.get_mut(&slot) else { return Ok(false) };
        let cx = Context::from_waker(Waker::noop());
        match self.codec.read(slot, message, &cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(1..)) => return Ok(true),
            Poll::Ready(Ok(0)) => {}
            Poll::Ready(Err(_)) => {
                self.messages.remove(&slot);
                self.bodies.remove(&slot);
                self.codec.release(slot);
                return Ok(true);
            }
        }
        let mut message = self.messages.remove(&slot).unwrap_or_default();
        let end = message.windows(4).position(|four| four == b"\r\n\r\n").map_or(message.len(), |at| at + 4);
        let body = message.split_off(end);
        let stream = self.codec.stream_of(slot).unwrap_or_default();
        let trailers = self.codec.take_trailers(slot);
        let whole = [&message[..], &body, &trailers].concat();
        self.words.push(format!("got:{stream}:{}", hex(&whole)));
        if self.role == Role::Client {
            self.bodies.remove(&slot);
            self.codec.release(slot);
            return Ok(true);
        }
        let line = message.split(|b| *b == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let head = format!("HTTP/1.1 200 OK\r\nserver: weir\r\nx-method: {method}\r\nx-path: {path}\r\n\r\n");
        match self.codec.send_response(slot, head.as_bytes(), &cx) {
            Poll::Ready(Ok(true)) => drop(self.bodies.insert(slot, body)),
            other => return Err(format!("{other:?}")),
        }
        Ok(true)
    }

    fn send(&mut self, slot: usize) -> Result<bool, String> {
        let Some(body) = self.bodies.get_mut(&slot) else { return Ok(false) };
        if !body.is_empty() {
            return match self.codec.send_data(slot, body, &Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(len)) => {
                    body.drain(..len);
                    Ok(true)
                }
                Poll::Ready(Err(e)) => Err(format!("{e:?}")),
                Poll::Pending => Ok(false),
            };
        }
        self.bodies.remove(&slot);
        self.codec.send_end(slot, b"x-sum: 1\r\n").map_err(|e| e.to_string())?;
        if self.role == Role::Server {
            self.codec.release(slot);
        }
        Ok(true)
    }

    /// Sends everything, as a transport without limits.
    fn write(&mut self) -> bool {
        let before = self.words.len();
        for (n, own) in Own::ALL.into_iter().enumerate() {
            let bytes = self.codec.pending_own(own).to_vec();
            if !bytes.is_empty() {
                let id = 4 * n as u64 + if self.role == Role::Server { 3 } else { 2 };
                self.words.push(format!("w:{id}:0:{}", hex(&bytes)));
                self.codec.sent_own(own, bytes.len());
            }
        }
        for stream in std::mem::take(&mut self.writing) {
            let pending = self.codec.pending(stream);
            let (bytes, ends) = (pending.bytes.to_vec(), pending.ends);
            if !bytes.is_empty() || ends {
                self.words.push(format!("w:{stream}:{}:{}", u8::from(ends), hex(&bytes)));
                self.codec.sent(stream, bytes.len(), ends);
            }
        }
        self.words.len() > before
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let byte = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let all: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    all.ok_or_else(|| format!("'{text}' is no hexadecimal text"))
}
