//! A WebSocket from the client's side (RFC 6455): the handshake, then messages, each of which waits for the target's
//! next message.
//!
//! A message and its answer count as request and response. A session lasts as long as its connection: until the run
//! ends, the target closes, or an error occurs. Pings are answered at any time, also while a client waits for its
//! next start.
//!
//! The connection as bytes is `transport::websocket`. This file has sockets, times and counts.

use super::h1::Batch;
use super::shared::Captured;
use super::tally::Sample;
use super::worker::{EndReason, Slot, Worker};
use crate::transport::failure::{Failure, Wait};
use crate::transport::reader::Response;
use crate::transport::websocket::{self as frame, Broken, Fed, Frames, Kind, Mask};
use crate::transport::{CAPTURE_BYTES, poll_write_rest};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use weir_h1::{Limits, Progress, ResponseHead, parse_response};
use weir_report::report::Protocol;
use weir_report::units::shown;
use weir_wire::Transport;
use weir_wire::websocket;

/// Longest handshake response, and how much of a refusal is read.
const HANDSHAKE_MOST: usize = 64 * 1024;

/// An open WebSocket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: Transport,
    frames: Frames,
    mask: Mask,
    out: Vec<u8>,
    written: usize,
    /// Input left over from an earlier read, and how much of it was processed. It is not moved to the front: after a
    /// large read, every message would move the rest.
    input: Vec<u8>,
    looked: usize,
    /// Dial times until the first answer is counted: blocked, connecting, TLS.
    dialled: Option<[u64; 3]>,
    begun: u64,
    /// Whether a close frame was written.
    closing: bool,
    /// The message in flight.
    asked: Option<Asked>,
    /// Whether the rest of `input` was read before the message was written: then it contains no answer.
    is_stale: bool,
    /// Whether the incoming message began before ours was written: then it is no answer.
    is_early: bool,
    /// Bytes sent and received, until the run's first answer is complete.
    capture: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    started: u64,
    /// 0 until it is completely written.
    sent: u64,
    /// When its answer began; 0 until then.
    first: u64,
}

/// Close reasons that are counted separately.
pub(super) const CLOSED_MOST: usize = 32;

/// An event on a connection.
enum Event {
    Answer(Response),
    Closed(String),
    /// A message whose first byte was read before we sent one.
    Unasked(Response),
}

impl Socket {
    /// Performs the handshake on a new connection, whose opening started at `began` and took `dialled`. `head` is the
    /// request without its key.
    pub(super) async fn open(
        stream: Transport,
        worker: &Worker,
        slot: &Slot,
        head: &[u8],
        (began, dialled): (u64, [u64; 3]),
        captures: bool,
    ) -> Result<Self, Failure> {
        let key = websocket::key();
        let mut socket = Self {
            stream,
            frames: Frames::new(worker.plan.keeps_bodies()),
            mask: Mask::new(),
            out: [
                head.strip_suffix(b"\r\n").unwrap_or(head),
                b"Sec-WebSocket-Key: ",
                key.as_bytes(),
                b"\r\n\r\n",
            ]
            .concat(),
            written: 0,
            input: Vec::new(),
            looked: 0,
            dialled: Some(dialled),
            begun: began,
            closing: false,
            asked: None,
            is_stale: false,
            is_early: false,
            capture: captures.then(Default::default),
        };
        if let Some((sent, _)) = &mut socket.capture {
            sent.clone_from(&socket.out);
        }
        let started = worker.clock.now();
        worker.sent(worker.counts(started), socket.out.len() as u64, 0, started);
        let mut answer = ResponseHead::default();
        let mut read = 0;
        let answered = poll_fn(|cx| {
            slot.watch(cx);
            ended(slot)?;
            socket.poll_handshake(cx, worker, &mut answer, &mut read)
        })
        .await;
        if let Err(failure) = answered.and_then(|()| agreed(&answer, &key).map_err(Failure::Protocol)) {
            let (read, now) = (Response { head_bytes: read, ..Response::default() }, worker.clock.now());
            worker.received(now, &read, now);
            return Err(failure);
        }
        socket.input = answer.rest().to_vec();
        socket.frames.begin(read - socket.input.len() as u64);
        let now = worker.clock.now();
        let mut tally = worker.tally.borrow_mut();
        tally.sessions.handshake.record(now.saturating_sub(started));
        tally.sessions.connecting.record(now.saturating_sub(began));
        drop(tally);
        Ok(socket)
    }

    fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        answer: &mut ResponseHead,
        read: &mut u64,
    ) -> Poll<Result<(), Failure>> {
        if let Poll::Ready(Err(e)) = self.poll_write(cx) {
            return Poll::Ready(Err(Failure::Write(e.to_string())));
        }
        let mut scratch = worker.scratch.borrow_mut();
        loop {
            scratch.clear();
            match self.stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(Failure::Reset(e.to_string()))),
                Poll::Ready(Ok(0)) => {
                    let text = "the connection was closed before the handshake was answered";
                    return Poll::Ready(Err(Failure::Reset(text.to_owned())));
                }
                Poll::Ready(Ok(_)) => self.capture(&scratch),
            }
            *read += scratch.len() as u64;
            answer.buffer_mut().extend_from_slice(&scratch);
            loop {
                match parse_response(answer, &Limits::default()) {
                    Err(e) => return Poll::Ready(Err(Failure::Protocol(e.to_string()))),
                    Ok(Progress::Partial) if answer.buffer().len() > HANDSHAKE_MOST => {
                        let text = "the answer to the handshake is longer than 64 KiB";
                        return Poll::Ready(Err(Failure::Protocol(text.to_owned())));
                    }
                    Ok(Progress::Partial) => break,
                    // An interim response: the next head follows.
                    Ok(Progress::Complete)
                        if (100..200).contains(&answer.status()) && answer.status() != 101 =>
                    {
                        let rest = answer.rest().to_vec();
                        *answer = ResponseHead::default();
                        answer.buffer_mut().extend_from_slice(&rest);
                    }
                    Ok(Progress::Complete) => return Poll::Ready(Ok(())),
                }
            }
        }
    }

    /// Starts sending a message; [`Socket::poll_answer`] follows.
    pub(super) fn ask(&mut self, worker: &Worker, kind: Kind, message: &[u8], started: u64, counts: bool) {
        let code = if kind == Kind::Text { frame::TEXT } else { frame::BINARY };
        let size = frame::write(&mut self.out, code, message, self.mask.next());
        if let Some((sent, _)) = &mut self.capture {
            let from = self.out.len() - size - message.len();
            let room = CAPTURE_BYTES.saturating_sub(sent.len());
            sent.extend(self.out.iter().skip(from).take(room));
        }
        worker.sent(counts, size as u64, message.len() as u64, started);
        worker.tally.borrow_mut().sessions.sent += u64::from(counts);
        self.asked = Some(Asked { started, sent: 0, first: 0 });
    }

    /// Whether no message has been answered on it yet.
    pub(super) const fn is_fresh(&self) -> bool {
        self.dialled.is_some()
    }

    /// Reads everything that arrived before a message is sent, since none of it is an answer.
    pub(super) fn poll_clear(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        slot: &Slot,
    ) -> Poll<Result<(), Failure>> {
        ended(slot)?;
        loop {
            match self.poll_event(cx, worker) {
                // A target that never stops sending uses up the task's budget, which ends this loop.
                Poll::Pending if tokio::task::coop::has_budget_remaining() => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Event::Answer(response) | Event::Unasked(response))) => {
                    self.unasked(worker, &response);
                }
                Poll::Ready(Ok(Event::Closed(told))) => return Poll::Ready(Err(closed(&told))),
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
            }
        }
    }

    /// Writes the message and reads until its answer is complete.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        slot: &Slot,
        batch: &mut Batch,
    ) -> Poll<Result<(), Failure>> {
        ended(slot)?;
        loop {
            let response = match self.poll_event(cx, worker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
                Poll::Ready(Ok(Event::Closed(told))) => {
                    return Poll::Ready(Err(closed(&told)));
                }
                Poll::Ready(Ok(Event::Unasked(response))) => {
                    self.unasked(worker, &response);
                    continue;
                }
                Poll::Ready(Ok(Event::Answer(response))) => response,
            };
            let now = worker.clock.now();
            let Some(asked) = self.asked.take() else { continue };
            let Some(&(target, intended)) = batch.items.first() else {
                return Poll::Ready(Err(Failure::Cut));
            };
            if Worker::is_late(slot, now) {
                worker.received(intended, &response, now);
                let began_late = asked.first > slot.deadline.get();
                return Poll::Ready(Err(Failure::Timeout(if began_late { Wait::Head } else { Wait::Body })));
            }
            if worker.counts(intended) {
                worker.tally.borrow_mut().sessions.received += 1;
            }
            let response = Response { status: 101, keeps: true, protocol: Protocol::WebSocket, ..response };
            if let Some((request, bytes)) = self.capture.take() {
                let fields = None;
                worker.shared.captured(Captured { target, request: Some(request), bytes, response, fields });
            }
            let sample = Sample {
                target,
                response,
                intended,
                started: asked.started,
                sent: if asked.sent == 0 { now } else { asked.sent },
                first: if asked.first == 0 { now } else { asked.first },
                done: now,
                dialled: self.dialled.take(),
            };
            worker.answered(slot, &sample, self.frames.body(), None);
            (batch.done, batch.last) = (1, now);
            return Poll::Ready(Ok(()));
        }
    }

    /// Processes input while no message is in flight; `false` when the session is over.
    pub(super) fn poll_idle(&mut self, cx: &mut Context<'_>, worker: &Worker) -> bool {
        loop {
            match self.poll_event(cx, worker) {
                Poll::Pending => return true,
                Poll::Ready(Ok(Event::Answer(response) | Event::Unasked(response))) => {
                    self.unasked(worker, &response);
                }
                Poll::Ready(Ok(Event::Closed(_)) | Err(_)) => return false,
            }
        }
    }

    /// Handles an unsolicited message.
    fn unasked(&mut self, worker: &Worker, response: &Response) {
        if let Some((_, received)) = &mut self.capture {
            received
                .drain(..usize::try_from(response.wire_bytes()).unwrap_or(usize::MAX).min(received.len()));
        }
        let now = worker.clock.now();
        worker.received(now, response, now);
        if worker.counts(now) {
            let mut tally = worker.tally.borrow_mut();
            tally.sessions.received += 1;
            tally.sessions.unsolicited += 1;
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>, worker: &Worker) -> Poll<Result<Event, Failure>> {
        loop {
            if let Poll::Ready(Err(e)) = self.poll_write(cx) {
                return Poll::Ready(Err(Failure::Write(e.to_string())));
            }
            if self.out.is_empty()
                && let Some(asked) = self.asked.as_mut().filter(|a| a.sent == 0)
            {
                asked.sent = worker.clock.now();
                self.is_stale = self.input.len() > self.looked;
                self.is_early = self.frames.has_begun();
            }
            let kept = std::mem::take(&mut self.input);
            let rest = kept.get(self.looked..).unwrap_or_default();
            let event = if rest.is_empty() {
                let mut scratch = worker.scratch.borrow_mut();
                scratch.clear();
                match self.stream.poll_read(cx, &mut scratch) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(Failure::Reset(e.to_string()))),
                    Poll::Ready(Ok(0)) => {
                        let when = if self.frames.has_begun() { "in the middle of" } else { "before" };
                        let text =
                            format!("the connection was closed {when} a message, without a close frame");
                        return Poll::Ready(Err(Failure::Reset(text)));
                    }
                    Poll::Ready(Ok(_)) => self.capture(&scratch),
                }
                self.is_stale = false;
                let event = self.feed(&scratch, worker)?;
                if let Some((used, _)) = event {
                    (self.input, self.looked) = (scratch.get(used..).unwrap_or_default().to_vec(), 0);
                }
                event
            } else {
                let event = self.feed(rest, worker)?;
                if let Some((used, _)) = event {
                    (self.input, self.looked) = (kept, self.looked + used);
                }
                event
            };
            if let Some((_, event)) = event {
                return Poll::Ready(Ok(event));
            }
        }
    }

    /// Processes input. If it holds more than one event, returns how much the event used.
    fn feed(&mut self, input: &[u8], worker: &Worker) -> Result<Option<(usize, Event)>, Failure> {
        let (waiting, pings) = (self.out.len(), self.frames.pings);
        // Input that is read before the message is completely written is not part of its answer.
        let is_after = !self.is_stale && self.asked.is_some_and(|a| a.sent != 0);
        if let Some(asked) = self.asked.as_mut().filter(|a| is_after && a.first == 0) {
            asked.first = worker.clock.now();
        }
        let fed = self.frames.feed(input, &mut self.out, &mut self.mask);
        if self.frames.pings != pings {
            worker.tally.borrow_mut().sessions.pings += self.frames.pings - pings;
            let now = worker.clock.now();
            worker.sent(worker.counts(now), (self.out.len() - waiting) as u64, 0, now);
        }
        match fed {
            Ok(Fed::More) => {
                self.is_early |= self.is_stale && self.frames.has_begun();
                Ok(None)
            }
            Ok(Fed::Message(used, response)) if is_after && !self.is_early => {
                Ok(Some((used, Event::Answer(response))))
            }
            Ok(Fed::Message(used, response)) => {
                self.is_early = false;
                if let Some(asked) = &mut self.asked {
                    asked.first = 0;
                }
                Ok(Some((used, Event::Unasked(response))))
            }
            Ok(Fed::Close(used, told)) => {
                let mut tally = worker.tally.borrow_mut();
                let closed = &mut tally.sessions.closed;
                let known = closed.len() < CLOSED_MOST || closed.contains_key(&told);
                *closed.entry(if known { told.as_str() } else { "…" }.to_owned()).or_default() += 1;
                Ok(Some((used, Event::Closed(told))))
            }
            Err(Broken { code, text }) => {
                self.say_close(code);
                Err(Failure::Protocol(text))
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(poll_write_rest(&mut self.stream, cx, &self.out, &mut self.written))?;
        self.out.clear();
        self.written = 0;
        self.stream.poll_flush(cx)
    }

    fn capture(&mut self, bytes: &[u8]) {
        if let Some((_, received)) = &mut self.capture {
            let room = CAPTURE_BYTES.saturating_sub(received.len()).min(bytes.len());
            received.extend_from_slice(bytes.get(..room).unwrap_or_default());
        }
    }

    /// What was received since the last answer.
    pub(super) const fn unfinished(&self) -> Response {
        self.frames.unfinished()
    }

    fn say_close(&mut self, code: u16) {
        if !std::mem::replace(&mut self.closing, true) {
            frame::write(&mut self.out, frame::CLOSE, &code.to_be_bytes(), self.mask.next());
        }
    }

    /// Ends the session with a close frame, if it can be written immediately; returns the stream for the target to
    /// close.
    pub(super) fn close(mut self, worker: &Worker) -> Transport {
        let lasted = worker.clock.now().saturating_sub(self.begun);
        worker.tally.borrow_mut().sessions.duration.record(lasted);
        self.say_close(1000);
        let _ = self.poll_write(&mut Context::from_waker(std::task::Waker::noop())); // best effort
        self.stream
    }
}

/// The target closed for this reason.
fn closed(told: &str) -> Failure {
    Failure::Reset(format!("the target closed the WebSocket before an answer ({told})"))
}

/// Why an exchange is ended from outside, if it is.
fn ended(slot: &Slot) -> Result<(), Failure> {
    match slot.end.take() {
        None => Ok(()),
        Some(EndReason::Cut) => Err(Failure::Cut),
        Some(EndReason::Timeout) => Err(Failure::Timeout(Wait::Head)),
    }
}

/// Whether the handshake response accepts the upgrade (RFC 6455 §4.1); the error is what it said instead.
pub(super) fn agreed(answer: &ResponseHead, key: &str) -> Result<(), String> {
    if answer.status() != 101 {
        return Err(format!("the handshake was answered {} instead of 101", answer.status()));
    }
    let field = |name| answer.headers.get_str(name).map(|v| shown(v).trim().to_owned());
    // weir-h1 reports an upgrade only if Connection names it too.
    if !answer.upgrade().is_some_and(|to| to.eq_ignore_ascii_case(b"websocket")) {
        return Err("the answer to the handshake does not upgrade the connection to a WebSocket".to_owned());
    }
    if field("sec-websocket-accept") != Some(websocket::accept(key.as_bytes())) {
        return Err("the answer to the handshake has no Sec-WebSocket-Accept that fits its key".to_owned());
    }
    if let Some(extension) = field("sec-websocket-extensions") {
        return Err(format!("the target chose the extension `{extension}`, which was not offered"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_fits_agrees() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let good = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let told = |wire: &str| {
            let mut head = ResponseHead::default();
            head.buffer_mut().extend_from_slice(wire.as_bytes());
            assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Complete), "{wire}");
            agreed(&head, key).err().unwrap_or_default()
        };
        assert_eq!(told(good), "");
        for (from, to, want) in [
            ("101 Switching Protocols", "200 OK", "answered 200 instead of 101"),
            ("Upgrade: WebSocket", "Upgrade: h2c", "does not upgrade the connection"),
            ("Connection: Upgrade", "X: y", "does not upgrade the connection"),
            ("s3pP", "s3pQ", "no Sec-WebSocket-Accept that fits"),
            ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "`permessage-deflate`"),
        ] {
            let text = told(&good.replace(from, to));
            assert!(text.contains(want), "{text}");
        }
    }
}
