//! A server's connection: moves bytes between the streams of weir-quic and the codec of weir-h3, and answers requests.

use std::collections::BTreeMap;
use std::task::{Context, Poll};
use std::time::Instant;
use weir_h3::codec::Handshake;
use weir_h3::{Bounds, Effect, Own, Role, TextCodec};
use weir_quic::{Connection, Reader, StreamError, Writer};

/// Bytes read from a stream at a time.
const PIECE: usize = 16 * 1024;

/// What happens to a request.
#[allow(dead_code, reason = "the example needs the first only")]
pub(crate) enum Reply {
    /// The response: its head as HTTP/1.1 text, and its body.
    Whole(String, Vec<u8>),
    /// The stream is reset with this code.
    Reset(u64),
    /// No answer, ever.
    Silence,
    /// The response to this request, and GOAWAY for those that come later: the client closes the connection.
    Last(String, Vec<u8>),
}

/// Decides about a request by its request line and body.
pub(crate) trait Answer: Fn(&str, Vec<u8>) -> Reply + 'static {}

impl<F: Fn(&str, Vec<u8>) -> Reply + 'static> Answer for F {}

/// A connection and its codec, in one task.
pub(crate) struct Talk<A> {
    answer: A,
    connection: Connection,
    codec: TextCodec,
    /// Our unidirectional streams, once the client lets us open them.
    own: Vec<Writer>,
    writers: BTreeMap<u64, Writer>,
    readers: BTreeMap<u64, Reading>,
    /// Requests that are being read, by slot: head and body.
    requests: BTreeMap<usize, Vec<u8>>,
    /// Responses that are being sent, by slot: what is left of the body.
    responses: BTreeMap<usize, Vec<u8>>,
}

/// A stream that we read, and what the codec has not taken.
struct Reading {
    reader: Reader,
    bytes: Vec<u8>,
    fin: bool,
}

impl<A: Answer> Talk<A> {
    pub(crate) fn new(connection: Connection, answer: A) -> Self {
        let handshake = Handshake { key: String::new, accept: |_| String::new() };
        Self {
            answer,
            connection,
            codec: TextCodec::new(Role::Server, Bounds::default(), handshake),
            own: Vec::new(),
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            requests: BTreeMap::new(),
            responses: BTreeMap::new(),
        }
    }

    /// Does what can be done, until the connection ends.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.step(cx) {}
        if let Some(ended) = self.codec.ended() {
            self.connection.close(ended.code);
            return Poll::Ready(());
        }
        self.connection.poll_lost(cx).map(|_| ())
    }

    fn step(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_news = false;
        while let Poll::Ready(Ok(reader)) = self.connection.poll_accept_one_way(cx) {
            self.readers.insert(reader.id(), Reading { reader, bytes: Vec::new(), fin: false });
            is_news = true;
        }
        while let Poll::Ready(Ok((writer, reader))) = self.connection.poll_accept(cx) {
            self.writers.insert(writer.id(), writer);
            self.readers.insert(reader.id(), Reading { reader, bytes: Vec::new(), fin: false });
            is_news = true;
        }
        while self.own.len() < Own::ALL.len()
            && let Poll::Ready(Ok(writer)) = self.connection.poll_open_one_way(cx)
        {
            self.own.push(writer);
        }
        for (own, writer) in Own::ALL.into_iter().zip(&mut self.own) {
            while !self.codec.pending_own(own).is_empty()
                && let Poll::Ready(Ok(n)) = writer.poll_write(cx, self.codec.pending_own(own))
            {
                self.codec.sent_own(own, n);
            }
        }
        for stream in self.readers.keys().copied().collect::<Vec<_>>() {
            is_news |= self.read(stream, cx);
        }
        while let Some(effect) = self.codec.next_effect() {
            is_news = true;
            match effect {
                Effect::Reset { stream, code } => {
                    if let Some(mut writer) = self.writers.remove(&stream) {
                        writer.reset(code);
                    }
                }
                Effect::Stop { stream, code } => {
                    if let Some(mut reading) = self.readers.remove(&stream) {
                        reading.reader.stop(code);
                    }
                }
                Effect::Read { stream } => self.pass(stream),
                Effect::Prioritize { stream, priority } => {
                    if let Some(writer) = self.writers.get(&stream) {
                        writer.set_priority(-i32::from(priority.urgency));
                    }
                }
                Effect::Write { .. } => {}
            }
        }
        is_news |= self.serve(cx);
        for stream in self.writers.keys().copied().collect::<Vec<_>>() {
            is_news |= self.write(stream, cx);
        }
        is_news
    }

    /// Reads from a stream, unless the codec has not taken what was read before.
    fn read(&mut self, stream: u64, cx: &Context<'_>) -> bool {
        let Some(reading) = self.readers.get_mut(&stream) else { return false };
        if !reading.bytes.is_empty() || reading.fin {
            return false;
        }
        match reading.reader.poll_read(cx, &mut reading.bytes, PIECE) {
            Poll::Ready(Ok(n)) => {
                reading.fin = n == 0;
                self.pass(stream);
                true
            }
            Poll::Ready(Err(StreamError::Reset(code))) => {
                self.readers.remove(&stream);
                self.codec.reset_came(stream, code, Instant::now());
                true
            }
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }

    fn pass(&mut self, stream: u64) {
        let Some(reading) = self.readers.get_mut(&stream) else { return };
        let used = self.codec.receive(stream, &reading.bytes, reading.fin, Instant::now());
        reading.bytes.drain(..used);
        if reading.fin && reading.bytes.is_empty() {
            self.readers.remove(&stream);
        }
    }

    fn write(&mut self, stream: u64, cx: &Context<'_>) -> bool {
        let Some(writer) = self.writers.get_mut(&stream) else { return false };
        let pending = self.codec.pending(stream);
        if !pending.bytes.is_empty() {
            return match writer.poll_write(cx, pending.bytes) {
                Poll::Ready(Ok(n)) => {
                    self.codec.sent(stream, n, false);
                    true
                }
                Poll::Ready(Err(StreamError::Stopped(code))) => {
                    self.writers.remove(&stream);
                    self.codec.stop_came(stream, code, Instant::now());
                    true
                }
                Poll::Ready(Err(_)) | Poll::Pending => false,
            };
        }
        if pending.ends {
            let _ = writer.finish(); // it fails if the client stopped reading, which is an end too
            self.writers.remove(&stream);
            self.codec.sent(stream, 0, true);
            return true;
        }
        false
    }

    /// Answers each request with its request line and its body.
    fn serve(&mut self, cx: &Context<'_>) -> bool {
        let mut is_news = false;
        while let Some(slot) = self.codec.next_arrival() {
            let mut head = Vec::new();
            self.codec.take_head(slot, &mut head);
            self.requests.insert(slot, head);
            is_news = true;
        }
        for slot in self.requests.keys().copied().collect::<Vec<_>>() {
            let Some(request) = self.requests.get_mut(&slot) else { continue };
            match self.codec.read(slot, request, cx) {
                Poll::Pending => continue,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) => self.answer(slot, cx),
                Poll::Ready(Err(_)) => {
                    self.requests.remove(&slot);
                    self.codec.release(slot);
                }
            }
            is_news = true;
        }
        for slot in self.responses.keys().copied().collect::<Vec<_>>() {
            let Some(body) = self.responses.get_mut(&slot) else { continue };
            match self.codec.send_data(slot, body, cx) {
                Poll::Pending => continue,
                Poll::Ready(Ok(n)) if n < body.len() => drop(body.drain(..n)),
                _ => {
                    self.responses.remove(&slot);
                    let _ = self.codec.send_end(slot, b""); // it fails if the client is gone
                    self.codec.release(slot);
                }
            }
            is_news = true;
        }
        is_news
    }

    fn answer(&mut self, slot: usize, cx: &Context<'_>) {
        let mut request = self.requests.remove(&slot).unwrap_or_default();
        let end = request.windows(4).position(|four| four == b"\r\n\r\n").map_or(request.len(), |at| at + 4);
        let body = request.split_off(end);
        let line = String::from_utf8_lossy(&request);
        let (head, body) = match (self.answer)(line.lines().next().unwrap_or_default(), body) {
            Reply::Whole(head, body) => (head, body),
            Reply::Last(head, body) => {
                self.codec.leave_now();
                (head, body)
            }
            Reply::Reset(code) => {
                self.codec.reset(slot, code);
                return self.codec.release(slot);
            }
            Reply::Silence => return,
        };
        match self.codec.send_response(slot, head.as_bytes(), cx) {
            Poll::Ready(Ok(_)) => drop(self.responses.insert(slot, body)),
            _ => self.codec.release(slot),
        }
    }
}
