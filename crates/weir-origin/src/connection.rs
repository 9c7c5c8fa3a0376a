//! The life of one HTTP/1.1 connection (`h2.rs` serves HTTP/2). It reads a head and answers the measured path from
//! memory; for other paths it reads the body and calls `pages.rs`. Pipelined requests are answered with one write.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_wire::timer::Timer;

use crate::digest::Crc32;
use crate::pages::Fixed;
use crate::request::{self, Framing, Head, MAX_HEAD, Parsed};
use crate::site::Site;
use crate::stream::{Begun, Stream};
use crate::{h2, pages, websocket};

/// Responses are collected up to this size before they are written.
const FLUSH_AT: usize = 64 * 1024;

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
    stream: Stream,
    site: Arc<Site>,
    /// Created for the first response that needs an exact wait.
    timer: Option<Timer>,
    input: Vec<u8>,
    /// Consumed bytes of `input`.
    used: usize,
    output: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: Stream, site: Arc<Site>) -> Self {
        Self { stream, site, timer: None, input: Vec::new(), used: 0, output: Vec::new() }
    }

    /// Serves until either side closes. A socket error only ends the connection: nobody is left to report it to.
    pub(crate) async fn serve(mut self) {
        let site = Arc::clone(&self.site);
        site.cells.accepted.add(1);
        match self.is_h2().await {
            // Boxed: its state is large, and HTTP/1.1 connections do not need it.
            Ok(true) => Box::pin(h2::serve(Begun::new(self.input, self.stream), self.site)).await,
            Ok(false) => {
                let _ = self.run().await;
            }
            Err(_) => {}
        }
        site.cells.closed.add(1);
    }

    /// Whether the client chose HTTP/2 in the TLS handshake, or starts with its preface. Bytes read stay unread.
    async fn is_h2(&mut self) -> io::Result<bool> {
        if self.stream.chose_h2() {
            return Ok(true);
        }
        loop {
            let begun = self.unread();
            if begun.starts_with(h2::PREFACE) {
                return Ok(true);
            }
            if !begun.is_empty() && !h2::PREFACE.starts_with(begun) {
                return Ok(false);
            }
            if self.fill().await? == 0 {
                return Ok(false);
            }
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        loop {
            let head = match Head::parse(self.unread()) {
                Parsed::Head(head) => head,
                Parsed::Partial if self.unread().len() < MAX_HEAD => {
                    self.flush().await?;
                    if self.fill().await? == 0 {
                        return Ok(());
                    }
                    continue;
                }
                Parsed::Partial => return self.refuse(431, "the head is longer than 64 KiB").await,
                Parsed::Bad(why) => return self.refuse(400, why).await,
            };
            let length = head.length;
            self.site.cells.requests.add(1);
            if let Some((body, answer)) = measured(&head, self.site.fixed())
                && self.unread().len() - length >= body
            {
                self.used += length + body;
                self.output.extend_from_slice(answer);
                if self.output.len() >= FLUSH_AT {
                    self.flush().await?;
                }
                continue;
            }
            let (framing, expects_continue) = (head.framing, head.expects_continue);
            let mut request = owned(&head);
            self.used += length;
            if expects_continue && framing != Framing::Length(0) {
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            match self.read_body(framing).await? {
                Ok(body) => request.body = body,
                Err(why) => return self.refuse(400, why).await,
            }
            if let Some(length) = self.site.fixed().map(Fixed::length) {
                pages::body(self, &request, length).await?;
                if !request.keep_alive {
                    return self.end().await;
                }
                continue;
            }
            if request.path() == "/close" {
                request.keep_alive = false;
            }
            if request.path() == "/ws" && websocket::is_handshake(&request) {
                return websocket::serve(self, &request).await;
            }
            pages::answer(self, &request).await?;
            if !request.keep_alive {
                return self.end().await;
            }
        }
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

    async fn refuse(&mut self, status: u16, why: &str) -> io::Result<()> {
        pages::refuse(self, status, why);
        self.end().await
    }

    /// Reads a body to its end. The inner error says what is wrong with its framing.
    async fn read_body(&mut self, framing: Framing) -> io::Result<Result<Body, &'static str>> {
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

/// The length of the request's body and the response, if that is always the same bytes: the measured path.
fn measured<'a>(head: &Head<'_>, fixed: Option<&'a Fixed>) -> Option<(usize, &'a [u8])> {
    let Framing::Length(body) = head.framing else { return None };
    let body = usize::try_from(body).ok().filter(|_| head.keep_alive && head.minor_version == 1)?;
    match fixed {
        Some(fixed) if head.method != "HEAD" && !head.expects_continue => Some((body, fixed.answer())),
        None if body == 0 && head.method == "GET" && head.target == "/body/1KiB" => {
            Some((0, pages::BODY_1KIB))
        }
        _ => None,
    }
}

fn owned(head: &Head<'_>) -> Request {
    let headers = head.fields.split_terminator("\r\n").filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    });
    Request {
        method: head.method.to_owned(),
        target: head.target.to_owned(),
        version: if head.minor_version == 0 { Version::Http10 } else { Version::Http11 },
        headers: headers.collect(),
        keep_alive: head.keep_alive,
        body: Body { length: 0, crc32: 0, bytes: None },
    }
}
