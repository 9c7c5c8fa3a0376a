//! One HTTP/2 connection, in either role.

mod bodies;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::frame::{Frame, Kind, block, flag, setting};
use super::hpack::Decoder;
use super::message::{End, Message};
use crate::wire::{self, Wire};
use crate::{Client, Conn};
use bodies::Waiting;

/// The client connection preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The settings of an endpoint, and its automatic behaviour.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its SETTINGS.
    pub settings: Vec<(u16, u32)>,
    /// The initial increase of the connection window.
    pub window: u32,
    /// Whether it answers PING.
    pub pongs: bool,
}

impl Default for Options {
    /// The largest possible windows.
    fn default() -> Self {
        Self { settings: vec![(setting::WINDOW, 0x7fff_ffff)], window: 0x7fff_ffff - 65535, pongs: true }
    }
}

impl Options {
    /// Adds these settings, which override the others.
    #[must_use]
    pub fn with(mut self, settings: &[(u16, u32)]) -> Self {
        self.settings.extend_from_slice(settings);
        self
    }
}

/// A connection that speaks HTTP/2 in frames. See the module's page for its automatic behaviour.
#[derive(Debug)]
pub struct H2<W> {
    wire: W,
    pongs: bool,
    next: u32,
    decoder: Decoder,
    /// The header block that CONTINUATION extends.
    block: Vec<u8>,
    streams: BTreeMap<u32, Message>,
    /// The highest stream whose head was returned by [`Self::accept`].
    accepted: u32,
    settings: Vec<(u16, u32)>,
    confirmed: usize,
    /// The table sizes in each SETTINGS frame of ours that is not acknowledged yet.
    table_sizes: VecDeque<Vec<u32>>,
    pong: u64,
    /// PINGs not answered yet.
    pings: Vec<Vec<u8>>,
    go_aways: Vec<(u32, u32)>,
    ended: Option<wire::End>,
    /// The windows that the peer grants us.
    windows: BTreeMap<u32, i64>,
    /// Bodies that wait for a window.
    waiting: BTreeMap<u32, Waiting>,
    initial_window: i64,
}

impl H2<Client> {
    /// Starts as a client, with windows so large that they never limit the peer.
    #[track_caller]
    pub fn client(client: Client) -> Self {
        Self::client_with(client, &Options::default())
    }

    /// Starts as a client.
    #[track_caller]
    pub fn client_with(client: Client, options: &Options) -> Self {
        let mut this = Self::raw(client);
        this.wire().send(PREFACE);
        this.begin(options);
        this
    }

    /// A second handle of this connection, which writes while the first one reads. Only for plain TCP.
    pub fn writer(&self) -> crate::Writer {
        self.wire.writer()
    }
}

impl<W: AsMut<Wire>> H2<W> {
    /// Wraps a connection and sends nothing.
    pub fn raw(wire: W) -> Self {
        Self {
            wire,
            pongs: true,
            next: 1,
            decoder: Decoder::default(),
            block: Vec::new(),
            streams: BTreeMap::new(),
            accepted: 0,
            settings: Vec::new(),
            confirmed: 0,
            table_sizes: VecDeque::new(),
            pong: 0,
            pings: Vec::new(),
            go_aways: Vec::new(),
            ended: None,
            windows: BTreeMap::new(),
            waiting: BTreeMap::new(),
            initial_window: 65535,
        }
    }

    /// Starts as a server: reads the preface and sends SETTINGS.
    #[track_caller]
    pub fn server(wire: W, options: &Options) -> Self {
        let mut this = Self::raw(wire);
        this.wire().expect(PREFACE);
        this.begin(options);
        this
    }

    fn begin(&mut self, options: &Options) {
        self.pongs = options.pongs;
        let settings = Frame::settings(&options.settings);
        self.note_settings(&settings);
        let mut first = settings.bytes();
        if options.window > 0 {
            first.extend(Frame::window(0, options.window).bytes());
        }
        self.wire().send(first);
    }

    /// The underlying connection.
    pub fn wire(&mut self) -> &mut Wire {
        self.wire.as_mut()
    }

    // === Sending ===

    /// Sends a frame.
    #[track_caller]
    pub fn send(&mut self, frame: &Frame) {
        self.note_settings(frame);
        let bytes = frame.bytes();
        self.wire().send(bytes);
    }

    /// Sends a frame to a peer that may have closed already; returns whether that worked.
    pub fn try_send(&mut self, frame: &Frame) -> bool {
        let bytes = frame.bytes();
        self.wire().try_send(bytes).is_ok()
    }

    /// Sends a head on a new stream of this client, and returns the stream.
    #[track_caller]
    pub fn request(&mut self, fields: &[(&str, &str)], end: bool) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.headers(stream, fields, end);
        stream
    }

    /// The next stream id of this client, for a head that is sent by other means.
    pub const fn next_stream(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Sends a GET for this path of `weir.test`, and returns the stream.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> u32 {
        self.request(
            &[(":method", "GET"), (":scheme", "http"), (":authority", "weir.test"), (":path", path)],
            true,
        )
    }

    /// Starts a POST to this path of `weir.test`, and returns the stream.
    #[track_caller]
    pub fn post(&mut self, path: &str) -> u32 {
        self.request(
            &[(":method", "POST"), (":scheme", "http"), (":authority", "weir.test"), (":path", path)],
            false,
        )
    }

    /// Sends HEADERS.
    #[track_caller]
    pub fn headers(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) {
        self.send(&Frame::headers(stream, fields, end));
    }

    /// Sends a head as HEADERS and CONTINUATION, in pieces of this size.
    #[track_caller]
    pub fn headers_in_pieces(&mut self, stream: u32, fields: &[(&str, &str)], size: usize, end: bool) {
        let block = block(fields);
        let count = block.len().div_ceil(size);
        for (i, piece) in block.chunks(size).enumerate() {
            let last = if i + 1 == count { flag::END_HEADERS } else { 0 };
            let (kind, end) = match i {
                0 => (Kind::Headers, if end { flag::END_STREAM } else { 0 }),
                _ => (Kind::Continuation, 0),
            };
            self.send(&Frame::new(kind, last | end, stream, piece));
        }
    }

    /// Sends DATA in a single frame, ignoring the windows.
    #[track_caller]
    pub fn data(&mut self, stream: u32, data: impl AsRef<[u8]>, end: bool) {
        self.send(&Frame::data(stream, data, end));
    }

    /// Sends RST_STREAM.
    #[track_caller]
    pub fn reset(&mut self, stream: u32, code: u32) {
        self.send(&Frame::reset(stream, code));
    }

    // === Receiving ===

    /// Reads the message on this stream to its end, whether regular or not.
    #[track_caller]
    pub fn message(&mut self, stream: u32) -> Message {
        self.pump_until("the end of a stream", |peer| {
            peer.ended.is_some() || peer.streams.get(&stream).is_some_and(|message| message.end.is_some())
        });
        let mut message = self.streams.remove(&stream).unwrap_or_default();
        message.end.get_or_insert(End::Closed);
        message
    }

    /// Waits until the condition is true, and returns the message so far.
    #[track_caller]
    pub fn wait(&mut self, stream: u32, what: &str, holds: impl Fn(&Message) -> bool) -> Message {
        self.pump_until(what, |peer| peer.streams.get(&stream).is_some_and(&holds));
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    /// The message on this stream so far.
    pub fn so_far(&self, stream: u32) -> Message {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    /// The next request whose head has arrived.
    #[track_caller]
    pub fn accept(&mut self) -> (u32, Message) {
        let fresh = |peer: &Self| {
            let mut later = peer.streams.range(peer.accepted + 1..);
            later.find(|(_, message)| !message.fields.is_empty()).map(|(stream, _)| *stream)
        };
        self.pump_until("a request", |peer| fresh(peer).is_some());
        let stream = fresh(self).unwrap_or_default();
        self.accepted = stream;
        (stream, self.so_far(stream))
    }

    /// The next request whose head has arrived; `None` if the connection ends first.
    pub fn next_head(&mut self) -> Option<(u32, Message)> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let mut later = self.streams.range(self.accepted + 1..);
            let found = later.find(|(_, message)| !message.fields.is_empty()).map(|(stream, _)| *stream);
            if let Some(stream) = found {
                self.accepted = stream;
                return Some((stream, self.so_far(stream)));
            }
            self.pump(until).ok()?;
        }
    }

    /// Waits until the condition is true, and returns the message so far; `None` if the connection ends first.
    pub fn try_wait(&mut self, stream: u32, holds: impl Fn(&Message) -> bool) -> Option<Message> {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.streams.get(&stream).is_some_and(&holds) {
            self.pump(until).ok()?;
        }
        self.streams.get(&stream).cloned()
    }

    /// The next complete request.
    #[track_caller]
    pub fn accept_whole(&mut self) -> (u32, Message) {
        let (stream, _) = self.accept();
        (stream, self.message(stream))
    }

    /// The next stream whose request has ended; `None` if the connection ends first.
    pub fn next_whole(&mut self) -> Option<(u32, Message)> {
        self.try_accept_whole(Duration::from_secs(60))
    }

    /// The next stream whose request has ended; `None` if the connection ends or the time runs out first.
    pub fn try_accept_whole(&mut self, within: Duration) -> Option<(u32, Message)> {
        let until = Instant::now() + within;
        loop {
            let whole = self.streams.iter().find(|(_, message)| message.end == Some(End::Stream));
            if let Some(stream) = whole.map(|(stream, _)| *stream) {
                self.accepted = self.accepted.max(stream);
                return Some((stream, self.streams.remove(&stream)?));
            }
            self.pump(until).ok()?;
        }
    }

    /// Sends a PING and waits for its answer. By then, both sides have read everything that was sent before.
    #[track_caller]
    pub fn ping(&mut self) {
        let sent = self.pong + 1;
        self.send(&Frame::ping(sent.to_be_bytes()));
        self.pump_until("the answer to a PING", |peer| peer.pong == sent);
    }

    /// The value of a setting of the peer; waits for its SETTINGS.
    #[track_caller]
    pub fn setting(&mut self, id: u16) -> Option<u32> {
        self.pump_until("SETTINGS", |peer| !peer.settings.is_empty());
        self.settings.iter().rev().find(|(known, _)| *known == id).map(|(_, value)| *value)
    }

    /// Waits until the peer has acknowledged this many SETTINGS.
    #[track_caller]
    pub fn wait_confirmed(&mut self, count: usize) {
        self.pump_until("the ACK of SETTINGS", |peer| peer.confirmed >= count);
    }

    /// The n-th GOAWAY: its last stream and its code.
    #[track_caller]
    pub fn go_away(&mut self, n: usize) -> (u32, u32) {
        self.pump_until("GOAWAY", |peer| peer.go_aways.len() > n);
        self.go_aways[n]
    }

    /// The first GOAWAY, without answering PINGs that follow it. A peer that shuts down in two steps waits for
    /// such an answer.
    #[track_caller]
    pub fn peek_go_away(&mut self) -> (u32, u32) {
        self.pongs = false;
        self.go_away(0)
    }

    /// Answers the pending PINGs, and future ones.
    #[track_caller]
    pub fn take_pings(&mut self) {
        self.pongs = true;
        for payload in std::mem::take(&mut self.pings) {
            self.send(&Frame::new(Kind::Ping, flag::ACK, 0, payload));
        }
    }

    /// Number of GOAWAY frames received.
    pub const fn go_aways(&self) -> usize {
        self.go_aways.len()
    }

    /// Asserts that the peer ends the connection, possibly after further frames.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let until = self.until();
        while self.ended.is_none() {
            if self.pump(until) == Err(wire::End::Deadline) {
                self.wire().fail("the peer did not close");
            }
        }
    }

    /// Asserts that the connection stays open for this long. Like [`Wire::expect_silence`], it always takes the
    /// full duration.
    #[track_caller]
    pub fn expect_quiet(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        while self.pump(until).is_ok() {}
        if self.ended.is_some() || !self.go_aways.is_empty() {
            self.wire().fail("the connection ended");
        }
    }

    /// Whether the connection has ended, as far as it has been read.
    pub const fn is_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Reads until the condition is true. Also returns if the connection ended and the condition is true then.
    #[track_caller]
    fn pump_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let until = self.until();
        while !holds(self) {
            if let Err(end) = self.pump(until)
                && !holds(self)
            {
                let seen = format!("{:?}, GOAWAY {:?}", self.streams, self.go_aways);
                self.wire().fail(&format!("{end:?} while waiting for {what}; so far: {seen}"));
            }
        }
    }

    fn until(&mut self) -> Instant {
        self.wire().until()
    }

    /// Reads one frame and reacts as a well-behaved peer does.
    fn pump(&mut self, until: Instant) -> Result<(), wire::End> {
        match self.read_frame(until) {
            Ok(frame) => self.take(&frame),
            Err(wire::End::Deadline) => return Err(wire::End::Deadline),
            Err(end) => {
                self.ended = Some(end);
                for message in self.streams.values_mut() {
                    message.end.get_or_insert(End::Closed);
                }
                return Err(end);
            }
        }
        self.send_waiting();
        Ok(())
    }

    /// Reads one frame without reacting to it. A partial frame stays in the buffer.
    fn read_frame(&mut self, until: Instant) -> Result<Frame, wire::End> {
        let wire = self.wire.as_mut();
        loop {
            if let Some(header) = wire.unread.get(..9) {
                let (mut frame, len) = Frame::parse_header(header);
                if wire.unread.len() >= 9 + len {
                    frame.payload = wire.unread.drain(..9 + len).skip(9).collect();
                    return Ok(frame);
                }
            }
            wire.fill(until)?;
        }
    }

    fn take(&mut self, frame: &Frame) {
        match frame.kind {
            Kind::Settings if frame.has(flag::ACK) => {
                self.confirmed += 1;
                let sizes = self.table_sizes.pop_front().unwrap_or_default();
                sizes.into_iter().for_each(|size| self.decoder.allow(size as usize));
            }
            Kind::Settings => self.take_settings(frame),
            Kind::Ping if frame.has(flag::ACK) => {
                self.pong = u64::from(frame.number(0)) << 32 | u64::from(frame.number(4));
            }
            Kind::Ping if self.pongs => {
                self.try_send(&Frame::new(Kind::Ping, flag::ACK, 0, frame.payload.clone()));
            }
            Kind::GoAway => self.go_aways.push((frame.number(0), frame.number(4))),
            Kind::WindowUpdate => *self.window(frame.stream) += i64::from(frame.number(0)),
            Kind::Headers | Kind::Continuation => self.take_head(frame),
            Kind::Data => {
                let message = self.streams.entry(frame.stream).or_default();
                message.body.extend_from_slice(&frame.payload);
                note(message, &format!("DATA {}", frame.payload.len()), frame.has(flag::END_STREAM));
            }
            Kind::Reset => {
                let message = self.streams.entry(frame.stream).or_default();
                note(message, &format!("RST_STREAM {}", frame.number(0)), false);
                message.end.get_or_insert(End::Reset(frame.number(0)));
            }
            Kind::Ping => self.pings.push(frame.payload.clone()),
            Kind::Priority | Kind::PushPromise | Kind::Other(_) => {}
        }
    }

    /// Remembers the table sizes in a SETTINGS frame of ours: they apply once it is acknowledged.
    fn note_settings(&mut self, frame: &Frame) {
        if frame.kind == Kind::Settings && !frame.has(flag::ACK) {
            let sizes = pairs(frame).filter(|(id, _)| *id == setting::TABLE).map(|(_, size)| size);
            self.table_sizes.push_back(sizes.collect());
        }
    }

    fn take_settings(&mut self, frame: &Frame) {
        for (id, value) in pairs(frame) {
            if id == setting::WINDOW {
                let more = i64::from(value) - self.initial_window;
                self.initial_window += more;
                self.windows.range_mut(1..).for_each(|(_, window)| *window += more);
            }
            self.settings.push((id, value));
        }
        self.try_send(&Frame::new(Kind::Settings, flag::ACK, 0, []));
    }

    fn take_head(&mut self, frame: &Frame) {
        // Weir sends neither padding nor priorities.
        self.block.extend_from_slice(&frame.payload);
        let name = if frame.kind == Kind::Headers { "HEADERS" } else { "CONTINUATION" };
        let message = self.streams.entry(frame.stream).or_default();
        message.frames.push(name.to_owned());
        if frame.kind == Kind::Headers && frame.has(flag::END_STREAM) {
            message.frames.push("END".to_owned());
        }
        if frame.has(flag::END_HEADERS) {
            let block = std::mem::take(&mut self.block);
            let Some(fields) = self.decoder.decode(&block) else {
                self.wire().fail("a block of fields that is not HPACK");
            };
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let fields = fields.into_iter().map(|(name, value)| (text(name), text(value)));
            let fields = fields.collect();
            let never_indexed = std::mem::take(&mut self.decoder.never_indexed);
            let message = self.streams.entry(frame.stream).or_default();
            message.never_indexed.extend(never_indexed.into_iter().map(text));
            message.add_head(fields);
            if message.frames.iter().any(|frame| frame == "END") {
                message.frames.retain(|frame| frame != "END");
                if let Some(last) = message.frames.last_mut() {
                    last.push_str(" END");
                }
                message.end.get_or_insert(End::Stream);
            }
        }
    }
}

/// The pairs in a SETTINGS frame.
fn pairs(frame: &Frame) -> impl Iterator<Item = (u16, u32)> {
    frame.payload.chunks_exact(6).map(|pair| {
        let id = u16::from_be_bytes([pair[0], pair[1]]);
        (id, u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]))
    })
}

fn note(message: &mut Message, frame: &str, end: bool) {
    message.frames.push(if end { format!("{frame} END") } else { frame.to_owned() });
    if end {
        message.end.get_or_insert(End::Stream);
    }
}

impl AsMut<Wire> for Client {
    fn as_mut(&mut self) -> &mut Wire {
        self
    }
}

impl AsMut<Wire> for Conn {
    fn as_mut(&mut self) -> &mut Wire {
        self
    }
}
