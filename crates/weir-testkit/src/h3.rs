//! A client of HTTP/3, and a path to it that can change the client's address.
//!
//! It speaks through weir-quic and the codec of weir-h3, as the gateway does, so it shows what the gateway does with
//! requests and connections, not whether it speaks HTTP/3 well. `conformance/` has independent clients for that.

mod udp_path;

pub use udp_path::UdpPath;

use crate::message::{Body, Framing, Head, Response};
use crate::tls::Tls;
use crate::wire::DEADLINE;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use weir_h3::codec::Handshake;
use weir_h3::{Bounds, Effect, Own, Role, TextCodec};
use weir_quic::{Client, Connection, Endpoint, Limits, Reader, StreamError, Writer};
use weir_wire::{Driver, websocket};

/// A connection to an HTTP/3 server. It closes when this is dropped.
#[derive(Debug)]
pub struct H3 {
    commands: UnboundedSender<Command>,
    ended: mpsc::Receiver<String>,
}

/// A request that was sent, and its response.
#[derive(Debug)]
pub struct Asked {
    id: usize,
    commands: UnboundedSender<Command>,
    events: mpsc::Receiver<Event>,
}

#[derive(Debug)]
enum Command {
    Ask { id: usize, head: String, body: Vec<u8>, ends: bool, to: mpsc::Sender<Event> },
    Body { id: usize, body: Vec<u8>, ends: bool },
    Forget { id: usize },
}

#[derive(Debug)]
enum Event {
    Bytes(Vec<u8>),
    End(Vec<u8>),
    Failed(String),
}

impl H3 {
    /// Connects to this UDP address; `tls` says what for.
    #[track_caller]
    pub fn connect(address: &str, tls: &Tls) -> Self {
        match Self::try_connect(address, tls) {
            Ok(client) => client,
            Err(why) => panic!("no HTTP/3 connection to {address}: {why}"),
        }
    }

    /// Connects along a path, asks once, leaves, and comes back with this request, which is early data. From then on the
    /// path holds back what the server sends, so that the handshake does not end before [`UdpPath::let_go`].
    #[track_caller]
    pub fn come_back(path: &UdpPath, tls: &Tls, head: &str) -> Response {
        let (commands, given) = unbounded_channel();
        let asked = Asked::of(&commands, head, Vec::new(), true);
        match Self::connect_as(&path.address, tls, commands, given, Some(path.clone())) {
            Ok(_client) => asked.response(),
            Err(why) => panic!("no HTTP/3 connection: {why}"),
        }
    }

    /// As [`H3::connect`].
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn try_connect(address: &str, tls: &Tls) -> Result<Self, String> {
        let (commands, given) = unbounded_channel();
        Self::connect_as(address, tls, commands, given, None)
    }

    fn connect_as(
        address: &str,
        tls: &Tls,
        commands: UnboundedSender<Command>,
        given: UnboundedReceiver<Command>,
        comes_back: Option<UdpPath>,
    ) -> Result<Self, String> {
        let address: SocketAddr = address.strip_prefix("udp:").unwrap_or(address).parse().unwrap();
        let (began, begun) = mpsc::channel();
        let (over, ended) = mpsc::channel();
        let (config, name) = tls.quic();
        thread::spawn(move || {
            let driver = Driver::new().unwrap();
            driver.run(async move {
                let here = if address.is_ipv4() { "127.0.0.1:0" } else { "[::]:0" };
                let endpoint = Endpoint::client(here.parse().unwrap()).unwrap();
                let runner = endpoint.clone();
                tokio::task::spawn_local(async move { runner.run().await });
                let client = Client::new(config, &Limits::default()).unwrap();
                if let Some(path) = &comes_back {
                    ask_once(endpoint.connect(&client, address, &name).unwrap()).await;
                    path.hold_back();
                }
                let connection = endpoint.connect(&client, address, &name).unwrap();
                assert!(
                    comes_back.is_none() || connection.may_be_early(),
                    "there is no ticket for early data"
                );
                let connected = match comes_back {
                    Some(_) => Ok(()),
                    None => poll_fn(|cx| connection.poll_connected(cx)).await,
                };
                let is_connected = connected.is_ok();
                let _ = began.send(connected.map_err(|lost| lost.to_string())); // nobody waits any more
                if is_connected {
                    let mut talk = Talk::new(connection, given);
                    let why = poll_fn(|cx| talk.poll(cx)).await;
                    talk.fail(&why);
                    let _ = over.send(why); // as above
                }
                endpoint.close_all(0);
                endpoint.flushed().await; // the server is told
            })
        });
        begun.recv_timeout(DEADLINE).unwrap_or_else(|_| Err("it takes too long".to_owned()))?;
        Ok(Self { commands, ended })
    }

    /// Sends a request without a body: `GET /path HTTP/1.1` and `Host`, as HTTP/1.1 text.
    pub fn start(&self, head: &str) -> Asked {
        Asked::of(&self.commands, head, Vec::new(), true)
    }

    /// Sends a request with a body.
    pub fn start_with(&self, head: &str, body: impl Into<Vec<u8>>) -> Asked {
        Asked::of(&self.commands, head, body.into(), true)
    }

    /// Sends a request whose body is not complete yet.
    pub fn open(&self, head: &str, body: impl Into<Vec<u8>>) -> Asked {
        Asked::of(&self.commands, head, body.into(), false)
    }

    /// Sends a request without a body and reads its response.
    #[track_caller]
    pub fn ask(&self, head: &str) -> Response {
        self.start(head).response()
    }

    /// Asks for a path of the host `a.test`.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
    }

    /// Waits for the end of the connection.
    #[track_caller]
    pub fn wait_end(&self) -> String {
        self.ended.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("the connection does not end"))
    }
}

/// One request and its response, after which the client has tickets and tokens.
async fn ask_once(connection: Connection) {
    poll_fn(|cx| connection.poll_connected(cx)).await.unwrap();
    let (commands, given) = unbounded_channel();
    let (to, events) = mpsc::channel();
    let head = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned();
    commands.send(Command::Ask { id: 0, head, body: Vec::new(), ends: true, to }).unwrap();
    let mut talk = Talk::new(connection.clone(), given);
    poll_fn(|cx| match talk.poll(cx) {
        Poll::Pending if events.try_iter().any(|event| matches!(event, Event::End(_))) => Poll::Ready(()),
        Poll::Pending => Poll::Pending,
        Poll::Ready(why) => panic!("{why}"),
    })
    .await;
    connection.close(0);
}

impl Asked {
    fn of(commands: &UnboundedSender<Command>, head: &str, body: Vec<u8>, ends: bool) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let id = NEXT.fetch_add(1, Relaxed);
        let (to, events) = mpsc::channel();
        let command = Command::Ask { id, head: head.to_owned(), body, ends, to };
        let _ = commands.send(command); // a connection that has ended answers nothing
        Self { id, commands: commands.clone(), events }
    }

    /// The response.
    #[track_caller]
    pub fn response(self) -> Response {
        self.try_response().unwrap_or_else(|why| panic!("no response: {why}"))
    }

    /// The response.
    ///
    /// # Errors
    /// Why there is none, or not all of it.
    pub fn try_response(self) -> Result<Response, String> {
        let (mut bytes, until) = (Vec::new(), Instant::now() + DEADLINE);
        let trailers = loop {
            let event = self.events.recv_timeout(until.saturating_duration_since(Instant::now()));
            match event
                .map_err(|_| format!("it takes too long; so far: {}", String::from_utf8_lossy(&bytes)))?
            {
                Event::Bytes(more) => bytes.extend(more),
                Event::End(trailers) => break trailers,
                Event::Failed(why) => return Err(why),
            }
        };
        // Interim responses precede the final one.
        let end = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        loop {
            let at = end(&bytes).ok_or("a response without a head")?;
            let rest = bytes.split_off(at);
            let head = Head::parse(bytes);
            let status = head.line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
            if (100..200).contains(&status) {
                bytes = rest;
                continue;
            }
            let trailers = Head::parse([b"trailers\r\n", &trailers[..]].concat()).headers;
            let body = Body { bytes: rest, trailers, ..Body::default() };
            return Ok(Response { status, reason: String::new(), head, framing: Framing::None, body });
        }
    }

    /// Waits until some of the response has arrived.
    #[track_caller]
    pub fn wait_begin(&self) -> Vec<u8> {
        match self.events.recv_timeout(DEADLINE) {
            Ok(Event::Bytes(bytes)) => bytes,
            other => panic!("no response begins: {other:?}"),
        }
    }

    /// Waits for the end of the response, of which nothing more may come.
    #[track_caller]
    pub fn wait_end(&self) {
        match self.events.recv_timeout(DEADLINE) {
            Ok(Event::End(_)) => {}
            other => panic!("no end: {other:?}"),
        }
    }

    /// Waits until the server has reset the response, or ended it.
    #[track_caller]
    pub fn wait_over(&self) {
        match self.events.recv_timeout(DEADLINE) {
            Ok(Event::End(_) | Event::Failed(_)) => {}
            other => panic!("it is not over: {other:?}"),
        }
    }

    /// Sends more of the body, and its end if `ends`.
    pub fn send(&self, body: impl Into<Vec<u8>>, ends: bool) {
        let _ = self.commands.send(Command::Body { id: self.id, body: body.into(), ends }); // as above
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Forget { id: self.id }); // as above
    }
}

/// A connection and its codec, in one task.
struct Talk {
    connection: Connection,
    codec: TextCodec,
    given: UnboundedReceiver<Command>,
    /// A WebSocket that waits for the server's SETTINGS.
    early: Option<Command>,
    own: Vec<Writer>,
    streams: BTreeMap<u64, Both>,
    exchanges: BTreeMap<usize, Exchange>,
    /// Streams that the codec has opened and QUIC has not.
    unopened: std::collections::VecDeque<u64>,
}

struct Both {
    writer: Option<Writer>,
    reader: Option<Reader>,
    bytes: Vec<u8>,
    has_end: bool,
}

struct Exchange {
    slot: usize,
    body: Vec<u8>,
    ends: bool,
    to: Option<mpsc::Sender<Event>>,
}

impl Talk {
    fn new(connection: Connection, given: UnboundedReceiver<Command>) -> Self {
        let handshake = Handshake { key: websocket::key, accept: websocket::accept };
        Self {
            connection,
            codec: TextCodec::new(Role::Client, Bounds { text: 1 << 20, ..Bounds::default() }, handshake),
            given,
            early: None,
            own: Vec::new(),
            streams: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            unopened: Default::default(),
        }
    }

    /// Does what can be done until the connection ends; then says why it ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            match self.given.poll_recv(cx) {
                Poll::Ready(Some(command)) => {
                    self.obey(command);
                    continue;
                }
                Poll::Ready(None) => return Poll::Ready("its owner has gone".to_owned()),
                Poll::Pending => {}
            }
            if !self.step(cx) {
                break;
            }
            if let Some(command) = self.early.take() {
                self.obey(command);
            }
        }
        if let Some(ended) = self.codec.ended() {
            return Poll::Ready(format!("{}: {}", weir_h3::code::name(ended.code), ended.rule));
        }
        self.connection.poll_lost(cx).map(|lost| lost.to_string())
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Ask { id, head, body, ends, to } => {
                match self.codec.send_request(head.as_bytes(), "https") {
                    // Until the server's SETTINGS arrive, it is not known to take WebSockets.
                    Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                        self.early = Some(Command::Ask { id, head, body, ends, to });
                    }
                    Ok(slot) => {
                        self.unopened.extend(self.codec.stream_of(slot));
                        self.exchanges.insert(id, Exchange { slot, body, ends, to: Some(to) });
                    }
                    Err(e) => drop(to.send(Event::Failed(e.to_string()))),
                }
            }
            Command::Body { id, body, ends } => {
                if let Some(exchange) = self.exchanges.get_mut(&id) {
                    exchange.body.extend(body);
                    exchange.ends = ends;
                }
            }
            Command::Forget { id } => {
                if let Some(exchange) = self.exchanges.remove(&id) {
                    self.codec.release(exchange.slot);
                }
            }
        }
    }

    fn fail(&mut self, why: &str) {
        for exchange in self.exchanges.values_mut() {
            let _ = exchange.to.take().map(|to| to.send(Event::Failed(why.to_owned()))); // as above
        }
    }

    /// Returns whether anything moved.
    fn step(&mut self, cx: &Context<'_>) -> bool {
        let mut is_news = false;
        while self.own.len() < Own::ALL.len()
            && let Poll::Ready(Ok(writer)) = self.connection.poll_open_one_way(cx)
        {
            self.own.push(writer);
        }
        while let Poll::Ready(Ok(reader)) = self.connection.poll_accept_one_way(cx) {
            let both = Both { writer: None, reader: Some(reader), bytes: Vec::new(), has_end: false };
            self.streams.insert(both.reader.as_ref().map_or(0, Reader::id), both);
            is_news = true;
        }
        while let Some(stream) = self.unopened.front().copied()
            && let Poll::Ready(Ok((writer, reader))) = self.connection.poll_open(cx)
        {
            assert_eq!(writer.id(), stream);
            self.unopened.pop_front();
            let both = Both { writer: Some(writer), reader: Some(reader), bytes: Vec::new(), has_end: false };
            self.streams.insert(stream, both);
            is_news = true;
        }
        for (own, writer) in Own::ALL.into_iter().zip(&mut self.own) {
            while !self.codec.pending_own(own).is_empty()
                && let Poll::Ready(Ok(n)) = writer.poll_write(cx, self.codec.pending_own(own))
            {
                self.codec.sent_own(own, n);
            }
        }
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            is_news |= self.read(stream, cx);
        }
        while let Some(effect) = self.codec.next_effect() {
            is_news = true;
            self.carry_out(effect);
        }
        for id in self.exchanges.keys().copied().collect::<Vec<_>>() {
            is_news |= self.exchange(id, cx);
        }
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            is_news |= self.write(stream, cx);
        }
        is_news
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Reset { stream, code } => {
                let writer = self.streams.get_mut(&stream).and_then(|both| both.writer.take());
                let _ = writer.map(|mut writer| writer.reset(code)); // it has not begun otherwise
            }
            Effect::Stop { stream, code } => {
                let reader = self.streams.get_mut(&stream).and_then(|both| both.reader.take());
                let _ = reader.map(|mut reader| reader.stop(code)); // as above
            }
            Effect::Read { stream } => self.pass(stream),
            Effect::Prioritize { .. } | Effect::Write { .. } => {}
        }
    }

    fn read(&mut self, stream: u64, cx: &Context<'_>) -> bool {
        let Some(both) = self.streams.get_mut(&stream) else { return false };
        let Some(reader) = both.reader.as_mut().filter(|_| both.bytes.is_empty() && !both.has_end) else {
            return false;
        };
        match reader.poll_read(cx, &mut both.bytes, 64 * 1024) {
            Poll::Ready(Ok(count)) => {
                both.has_end = count == 0;
                self.pass(stream);
                true
            }
            Poll::Ready(Err(StreamError::Reset(code))) => {
                both.reader = None;
                self.codec.reset_came(stream, code, Instant::now());
                true
            }
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }

    fn pass(&mut self, stream: u64) {
        let Some(both) = self.streams.get_mut(&stream) else { return };
        let used = self.codec.receive(stream, &both.bytes, both.has_end, Instant::now());
        both.bytes.drain(..used);
        if both.has_end && both.bytes.is_empty() {
            both.reader = None;
        }
    }

    fn write(&mut self, stream: u64, cx: &Context<'_>) -> bool {
        let Some(writer) = self.streams.get_mut(&stream).and_then(|both| both.writer.as_mut()) else {
            return false;
        };
        let pending = self.codec.pending(stream);
        if !pending.bytes.is_empty() {
            return match writer.poll_write(cx, pending.bytes) {
                Poll::Ready(Ok(n)) => {
                    self.codec.sent(stream, n, false);
                    true
                }
                Poll::Ready(Err(StreamError::Stopped(code))) => {
                    self.codec.stop_came(stream, code, Instant::now());
                    true
                }
                Poll::Ready(Err(_)) | Poll::Pending => false,
            };
        }
        if pending.ends {
            let _ = writer.finish(); // it fails if the server stopped reading, which is an end too
            if let Some(both) = self.streams.get_mut(&stream) {
                both.writer = None;
            }
            self.codec.sent(stream, 0, true);
            return true;
        }
        false
    }

    /// Sends what a request has left, and passes on what has arrived of its response.
    fn exchange(&mut self, id: usize, cx: &Context<'_>) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return false };
        let mut is_news = false;
        while !exchange.body.is_empty()
            && let Poll::Ready(Ok(n)) = self.codec.send_data(exchange.slot, &exchange.body, cx)
        {
            exchange.body.drain(..n);
            is_news = true;
        }
        if exchange.body.is_empty() && std::mem::replace(&mut exchange.ends, false) {
            let _ = self.codec.send_end(exchange.slot, b""); // its response tells of a failure
            is_news = true;
        }
        let Some(to) = &exchange.to else { return is_news };
        let mut bytes = Vec::new();
        let event = match self.codec.read(exchange.slot, &mut bytes, cx) {
            Poll::Pending => return is_news,
            Poll::Ready(Ok(0)) => Event::End(self.codec.take_trailers(exchange.slot)),
            Poll::Ready(Ok(_)) => Event::Bytes(bytes),
            Poll::Ready(Err(failed)) => Event::Failed(format!("{failed:?}")),
        };
        let is_last = !matches!(event, Event::Bytes(_));
        let _ = to.send(event); // nobody waits any more
        if is_last {
            exchange.to = None;
        }
        true
    }
}
