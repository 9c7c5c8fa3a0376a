//! One HTTP/1.1 connection with its buffers, and a request whose body has been read. `serve.rs` reads requests from
//! it, and the pages write to it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_wire::timer::Timer;

use crate::digest::Crc32;
use crate::request::{self, Framing, MAX_HEAD};
use crate::site::Site;
use crate::stream::Stream;

/// The longest request body that `/echo` returns.
const MAX_ECHO: usize = 64 * 1024;

/// A request whose body has been read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: Version,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) keep_alive: bool,
    pub(crate) body: Body,
}

impl Request {
    /// The path of the target, in any form, without the query.
    pub(crate) fn path(&self) -> &str {
        let target = match self.target.split_once("://") {
            Some((_, rest)) if !self.target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
            _ => &self.target,
        };
        target.split(['?', '#']).next().unwrap_or("/")
    }

    /// The value of a query parameter; empty for one without a value. No unescaping: our parameters need none.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| match pair.split_once('=') {
            Some((known, value)) => (known == name).then_some(value),
            None => (pair == name).then_some(""),
        })
    }

    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// The HTTP version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
    Http2,
}

/// The stored part of a request body.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) length: u64,
    pub(crate) crc32: u32,
    /// The bytes, if there were at most 64 KiB.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// One accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) site: Arc<Site>,
    /// Created for the first response that needs an exact wait.
    timer: Option<Timer>,
    pub(crate) input: Vec<u8>,
    /// Consumed bytes of `input`.
    pub(crate) used: usize,
    pub(crate) output: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: Stream, site: Arc<Site>) -> Self {
        Self { stream, site, timer: None, input: Vec::new(), used: 0, output: Vec::new() }
    }

    /// The state shared with the other connections.
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Waits this long, exact to some microseconds.
    ///
    /// # Errors
    /// If no descriptor is free for a timer.
    pub(crate) async fn wait(&mut self, time: Duration) -> io::Result<()> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(Timer::new()?),
        };
        timer.wait(time).await;
        Ok(())
    }

    /// Turns the coming close into a reset.
    pub(crate) fn abort(&mut self) {
        self.stream.abort();
    }

    /// Writes the pushed bytes and closes the write side.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.stream.shutdown().await
    }

    /// The bytes received but not consumed yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.used..]
    }

    /// Moves the first `n` unread bytes to the output, each XORed with the byte that `mask` returns for its index.
    pub(crate) fn echo(&mut self, n: usize, mask: impl Fn(usize) -> u8) {
        let piece = &self.input[self.used..self.used + n];
        self.output.extend(piece.iter().enumerate().map(|(number, byte)| byte ^ mask(number)));
        self.used += n;
    }

    /// Marks the first `n` unread bytes as consumed.
    pub(crate) fn consume(&mut self, n: usize) {
        self.used += n;
    }

    /// Reads more. Returns 0 at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        if self.used == self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..self.used);
        }
        self.used = 0;
        self.input.reserve(16 * 1024);
        self.stream.read_buf(&mut self.input).await
    }

    /// Adds bytes to the next flush.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Writes everything pushed so far.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
            self.stream.flush().await?;
        }
        Ok(())
    }

    /// Writes everything pushed so far, then these bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush().await?;
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Reads a body to its end. The inner error says what is wrong with its framing.
    pub(crate) async fn read_body(&mut self, framing: Framing) -> io::Result<Result<Body, &'static str>> {
        let mut sink = Sink::default();
        match framing {
            Framing::Length(length) => self.read_exactly(length, &mut sink).await?,
            Framing::Chunked => loop {
                let (size, line) = match request::chunk_size(self.unread()) {
                    Ok(Some(found)) => found,
                    Ok(None) => {
                        self.fill_some().await?;
                        continue;
                    }
                    Err(why) => return Ok(Err(why)),
                };
                self.consume(line);
                if size == 0 {
                    if let Err(why) = self.read_trailers().await? {
                        return Ok(Err(why));
                    }
                    break;
                }
                self.read_exactly(size, &mut sink).await?;
                while self.unread().len() < 2 {
                    self.fill_some().await?;
                }
                if !self.unread().starts_with(b"\r\n") {
                    return Ok(Err("a chunk does not end with CRLF"));
                }
                self.consume(2);
            },
        }
        Ok(Ok(sink.into()))
    }

    async fn read_exactly(&mut self, mut length: u64, sink: &mut Sink) -> io::Result<()> {
        while length > 0 {
            if self.unread().is_empty() {
                self.fill_some().await?;
            }
            let take = usize::try_from(length).unwrap_or(usize::MAX).min(self.unread().len());
            sink.take(&self.input[self.used..self.used + take]);
            self.consume(take);
            length -= take as u64;
        }
        Ok(())
    }

    /// Reads and discards trailers.
    async fn read_trailers(&mut self) -> io::Result<Result<(), &'static str>> {
        let mut total = 0;
        loop {
            match request::line(self.unread(), 0) {
                Ok(Some((b"", next))) => {
                    self.consume(next);
                    return Ok(Ok(()));
                }
                Ok(Some((_, next))) => {
                    self.consume(next);
                    total += next;
                }
                Ok(None) if self.unread().len() > MAX_HEAD => return Ok(Err("trailers")),
                Ok(None) => self.fill_some().await?,
                Err(why) => return Ok(Err(why)),
            }
            if total > MAX_HEAD {
                return Ok(Err("trailers"));
            }
        }
    }

    async fn fill_some(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// A body in progress.
pub(crate) struct Sink {
    length: u64,
    crc32: Crc32,
    bytes: Option<Vec<u8>>,
}

impl Default for Sink {
    fn default() -> Self {
        Self { length: 0, crc32: Crc32::new(), bytes: Some(Vec::new()) }
    }
}

impl From<Sink> for Body {
    fn from(sink: Sink) -> Self {
        Self { length: sink.length, crc32: sink.crc32.value(), bytes: sink.bytes }
    }
}

impl Sink {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.crc32.update(bytes);
        if let Some(kept) = &mut self.bytes {
            if kept.len() + bytes.len() <= MAX_ECHO {
                kept.extend_from_slice(bytes);
            } else {
                self.bytes = None;
            }
        }
    }
}
