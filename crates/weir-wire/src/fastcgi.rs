//! A connection to a FastCGI server, read as if the server spoke HTTP/1.1.
//!
//! What is written goes out unchanged: a [`Relay`](crate::relay::Relay) with [`Framing::Records`] makes the records
//! of the body, and its owner those before it. What is read has left its records: a head in HTTP/1.1, then the body,
//! then the end. So an exchange treats a script as any other upstream.
//!
//! [`Framing::Records`]: crate::relay::Framing::Records

use crate::Transport;
use std::io;
use std::task::{Context, Poll, Waker, ready};
use weir_fcgi::{End, Output, Reader, Step, end_of_head, write_head};

/// Most of a script's standard error that is kept for the log, in bytes. The rest is counted.
pub const ERROR_BYTES: usize = 4 * 1024;

/// Reads in a row that may bring nothing for the response before other tasks get a turn: a script may write to its
/// standard error without end, and a hostile server empty records.
const IDLE_READS: u32 = 16;

/// How much of a response that nobody reads is dropped so that its connection can be used again, in bytes.
const REST_BYTES: usize = 64 * 1024;

/// A connection to a FastCGI server, which carries one request at a time.
#[derive(Debug)]
pub struct FastCgi {
    transport: Transport,
    reader: Reader,
    /// Read but not taken apart yet: `input[used..]`.
    input: Vec<u8>,
    used: usize,
    phase: Phase,
    /// The head so far, and how much of it holds no end.
    head: Vec<u8>,
    seen: usize,
    head_bytes: usize,
    /// What is left of the announced body.
    left: Option<u64>,
    heard: bool,
    end: Option<End>,
    errors: Errors,
}

/// What a script wrote to its standard error.
#[derive(Debug, Default)]
pub struct Errors {
    /// The beginning, up to [`ERROR_BYTES`].
    pub text: Vec<u8>,
    /// How many bytes followed.
    pub dropped: u64,
    /// How many bytes of the response followed behind the length that it announced. They were dropped.
    pub surplus: u64,
}

/// How far a response has come.
///
/// ```text
///   Idle ──► Head ──► Body ──► Over ──► Head …, with the next request
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request has been sent.
    Idle,
    Head,
    Body,
    Over,
}

impl FastCgi {
    /// Wraps a connection that has not been used.
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            reader: Reader::default(),
            input: Vec::new(),
            used: 0,
            phase: Phase::Idle,
            head: Vec::new(),
            seen: 0,
            head_bytes: 0,
            left: None,
            heard: false,
            end: None,
            errors: Errors::default(),
        }
    }

    /// Expects the response to a request that is sent now. Its head may have `head_bytes`.
    pub fn begin(&mut self, head_bytes: usize) {
        self.reader = Reader::default();
        self.phase = Phase::Head;
        (self.head_bytes, self.seen, self.left) = (head_bytes, 0, None);
        (self.heard, self.end) = (false, None);
        self.head = Vec::new();
        self.errors = Errors::default();
    }

    /// Reads what is left of the response, without its records: the number of bytes, 0 at its end.
    ///
    /// # Errors
    /// `InvalidData`: the server broke a rule, and the text says which. `UnexpectedEof`: it closed the connection
    /// within the response. Others: reading failed.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let before = buffer.len();
        for _ in 0..IDLE_READS {
            let decoded = self.decode(buffer);
            if buffer.len() > before {
                return Poll::Ready(Ok(buffer.len() - before)); // an error comes back with the next read
            }
            decoded?;
            match self.phase {
                Phase::Over if self.left.is_some_and(|left| left > 0) => {
                    return Poll::Ready(Err(invalid("the script ended before its Content-Length")));
                }
                Phase::Over => return Poll::Ready(Ok(0)),
                Phase::Idle => return Poll::Ready(Err(invalid("no request was sent"))), // a bug of ours
                Phase::Head | Phase::Body => {}
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(if self.heard { Err(cut_off()) } else { Ok(0) });
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads from the connection once all input is taken apart. Holds no buffer while it waits.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.clear();
        self.used = 0;
        let read = self.transport.poll_read(cx, &mut self.input);
        match &read {
            Poll::Pending => self.input = Vec::new(),
            Poll::Ready(Ok(n)) => self.heard |= *n > 0,
            Poll::Ready(Err(_)) => {}
        }
        read
    }

    /// Takes the input apart. All that is for the caller is appended.
    fn decode(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.phase != Phase::Over && self.used < self.input.len() {
            let input = self.input.get(self.used..).unwrap_or_default();
            match self.reader.step(input).map_err(invalid)? {
                Step::Data { of, skip, len } => {
                    let data = self.used + skip..self.used + skip + len;
                    self.used = data.end;
                    match of {
                        Output::Error => self.errors.note(self.input.get(data).unwrap_or_default()),
                        Output::Standard => self.take(data, out)?,
                    }
                }
                Step::End { used, end } => {
                    self.used += used;
                    self.finish(end)?;
                }
                Step::More => self.used = self.input.len(),
            }
        }
        Ok(())
    }

    /// Takes a piece of the response: `input[data]`.
    fn take(&mut self, data: std::ops::Range<usize>, out: &mut Vec<u8>) -> io::Result<()> {
        let mut data = self.input.get(data).unwrap_or_default();
        if self.phase == Phase::Head {
            let had = self.head.len();
            // No more is looked at than a head may have, and an empty line.
            let room = self.head_bytes.saturating_add(2).saturating_sub(had);
            self.head.extend_from_slice(data.get(..room).unwrap_or(data));
            let Some(end) = end_of_head(&self.head, self.seen) else {
                self.seen = self.head.len();
                let too_long = self.head.len() > self.head_bytes;
                return if too_long { Err(invalid(weir_h1::Kind::HeadTooLarge)) } else { Ok(()) };
            };
            let head = self.head.get(..end).unwrap_or_default();
            self.left = write_head(head, out).map_err(invalid)?.length;
            data = data.get(end.saturating_sub(had)..).unwrap_or_default();
            self.phase = Phase::Body;
            self.head = Vec::new();
        }
        // A client would read more than the announced length as the next response.
        let within = match &mut self.left {
            None => data,
            Some(left) => {
                let (within, surplus) = data
                    .split_at_checked(usize::try_from(*left).unwrap_or(usize::MAX))
                    .unwrap_or((data, &[]));
                *left -= within.len() as u64;
                self.errors.surplus += surplus.len() as u64;
                within
            }
        };
        out.extend_from_slice(within);
        Ok(())
    }

    /// Ends the response.
    fn finish(&mut self, end: End) -> io::Result<()> {
        self.end = Some(end);
        match (end, self.phase) {
            (End::Overloaded, Phase::Head) => Err(invalid("it is overloaded (FCGI_OVERLOADED)")),
            (End::CannotMultiplex, Phase::Head) => {
                Err(invalid("it accepts no second request on a connection (FCGI_CANT_MPX_CONN)"))
            }
            (End::UnknownRole, Phase::Head) => Err(invalid("it is no responder (FCGI_UNKNOWN_ROLE)")),
            (End::Complete, Phase::Head) if self.head.is_empty() => {
                Err(invalid("the script ended without a response"))
            }
            (End::Complete, Phase::Head) => Err(invalid("the script ended within the response head")),
            (_, Phase::Idle | Phase::Body | Phase::Over) => {
                self.phase = Phase::Over;
                Ok(())
            }
        }
    }

    /// Whether no more of the response will be read, because it has ended as announced.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.left.is_none_or(|left| left == 0)
    }

    /// Whether any byte of a response to this request has arrived.
    pub const fn has_heard(&self) -> bool {
        self.heard
    }

    /// Whether the server says that it has not processed the request.
    pub fn is_refused(&self) -> bool {
        matches!(self.end, Some(End::CannotMultiplex | End::Overloaded))
    }

    /// Whether the connection can carry another request. Drops what is left of the response, if it has arrived: the
    /// rest of one to HEAD, or behind its announced length.
    pub fn comes_to_rest(&mut self) -> bool {
        let mut dropped = Vec::new();
        for _ in 0..IDLE_READS {
            if self.decode(&mut dropped).is_err() {
                return false;
            }
            if self.phase != Phase::Body || dropped.len() > REST_BYTES {
                break;
            }
            if !matches!(self.poll_fill(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(1..))) {
                break;
            }
        }
        self.input = self.input.get(self.used..).unwrap_or_default().to_vec();
        self.used = 0;
        self.phase == Phase::Over && self.input.is_empty() && self.end == Some(End::Complete)
    }

    /// What the script wrote to its standard error, if it did. Only once.
    pub fn take_errors(&mut self) -> Option<Errors> {
        let any = !self.errors.text.is_empty() || self.errors.surplus > 0;
        any.then(|| std::mem::take(&mut self.errors))
    }

    /// Whether nothing is read that a request did not ask for.
    pub(crate) fn has_no_input(&self) -> bool {
        self.used >= self.input.len()
    }

    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) const fn transport_mut(&mut self) -> &mut Transport {
        &mut self.transport
    }
}

impl Errors {
    fn note(&mut self, piece: &[u8]) {
        let room = ERROR_BYTES.saturating_sub(self.text.len());
        let (kept, dropped) = piece.split_at_checked(room).unwrap_or((piece, &[]));
        self.text.extend_from_slice(kept);
        self.dropped += dropped.len() as u64;
    }
}

fn invalid(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

fn cut_off() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the FastCGI server closed the connection within its response",
    )
}

#[cfg(test)]
mod tests;
