//! The node that keeps the store for others: its books, and the connections over which they ask.

use crate::store::State;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet, spawn_local};
use tokio::time::timeout;
use weir_fleet::limits::Ledger;
use weir_fleet::limits::ledger::Asked;
use weir_fleet::limits::wire::{FRAME_BYTES, Frame, is_same, proof};
use weir_telemetry::log;

/// Most connections. Each costs a buffer of at most some 20 KiB.
const CONNECTIONS: u32 = 4096;

/// How long a node may take to prove itself, to send anything at all, and to read an answer.
const GREETING: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(10);
const READING: Duration = Duration::from_secs(5);

/// How long to pause after accepting failed, for example without descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// How many bytes are read in one go.
const READ_BYTES: usize = 16 << 10;

/// One term as keeper.
pub(super) struct Office {
    desk: Rc<Desk>,
    accepting: AbortHandle,
}

struct Desk {
    /// `None` once the term has ended: nothing is granted any more.
    books: RefCell<Option<Ledger>>,
    began: Instant,
    secret: String,
    connections: Cell<u32>,
    state: Arc<State>,
}

/// A counted connection.
struct Seat(Rc<Desk>);

impl Office {
    /// Opens it with new books.
    pub(super) fn open(listener: TcpListener, secret: String, state: Arc<State>) -> Self {
        let desk = Rc::new(Desk {
            books: RefCell::new(Some(Ledger::new(Duration::ZERO))),
            began: Instant::now(),
            secret,
            connections: Cell::new(0),
            state,
        });
        desk.counts();
        let accepting = spawn_local(accept(listener, Rc::clone(&desk))).abort_handle();
        Self { desk, accepting }
    }

    /// Answers this node's own question.
    pub(super) fn answer(&self, asked: &Asked) -> Option<Vec<i64>> {
        self.desk.answer(asked)
    }

    /// Grants nothing from now on.
    pub(super) fn close(&self) {
        self.desk.books.take();
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.close();
        self.accepting.abort(); // ends every connection too
    }
}

impl Desk {
    fn answer(&self, asked: &Asked) -> Option<Vec<i64>> {
        self.books.borrow_mut().as_mut()?.answer(self.began.elapsed(), asked)
    }

    /// The connected nodes and this one.
    fn gateways(&self) -> u32 {
        self.connections.get() + 1
    }

    fn counts(&self) {
        self.state.gateways.store(self.gateways(), Relaxed);
    }
}

impl Seat {
    fn take(desk: &Rc<Desk>) -> Self {
        desk.connections.set(desk.connections.get() + 1);
        desk.counts();
        Self(Rc::clone(desk))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get().saturating_sub(1));
        if self.0.books.borrow().is_some() {
            self.0.counts();
        }
    }
}

async fn accept(listener: TcpListener, desk: Rc<Desk>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                while connections.try_join_next().is_some() {}
                if connections.len() >= CONNECTIONS as usize {
                    continue; // dropping it closes it
                }
                let desk = Rc::clone(&desk);
                connections.spawn_local(async move {
                    if let Err(error) = serve(stream, &desk).await {
                        log::warn(
                            "a connection of a fleet node was closed",
                            &[("peer", &peer), ("error", &error)],
                        );
                    }
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Answers a node until it closes the connection.
async fn serve(mut stream: TcpStream, desk: &Rc<Desk>) -> Result<(), &'static str> {
    let _ = stream.set_nodelay(true); // slower without
    let mut read = Vec::new();
    let greeting = greet(&mut stream, desk, &mut read);
    timeout(GREETING, greeting).await.unwrap_or(Err("it did not show in time that it is a node"))?;
    let _seat = Seat::take(desk);
    let mut out = Vec::new();
    Frame::Pong(desk.gateways()).write(&mut out);
    loop {
        send(&mut stream, &mut out).await?;
        if !more(&mut stream, &mut read).await? {
            return Ok(());
        }
        let mut rest = read.as_slice();
        while let Some(frame) = Frame::take(&mut rest).map_err(|_| "it sends invalid frames")? {
            match frame {
                Frame::Ask(id, asked) => Frame::Answer(id, desk.answer(&asked)).write(&mut out),
                Frame::Ping => Frame::Pong(desk.gateways()).write(&mut out),
                _ => return Err("it sends unexpected frames"),
            }
        }
        let used = read.len() - rest.len();
        read.drain(..used);
    }
}

/// Makes a node prove that it knows the term's secret.
async fn greet(stream: &mut TcpStream, desk: &Desk, read: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut nonce = [0; 16];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| "there is no randomness")?;
    let mut out = Vec::new();
    Frame::Hello(nonce).write(&mut out);
    send(stream, &mut out).await?;
    loop {
        let mut rest = read.as_slice();
        let frame = Frame::take(&mut rest).map_err(|_| "it sends invalid frames")?;
        let used = read.len() - rest.len();
        read.drain(..used);
        match frame {
            Some(Frame::Proof(shown)) if is_same(&shown, &proof(&desk.secret, &nonce)) => return Ok(()),
            Some(_) => return Err("it does not know the secret of this term"),
            None if more(stream, read).await? => {}
            None => return Err("it hung up before it said anything"),
        }
    }
}

/// Reads more. False if the other side has closed.
async fn more(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<bool, &'static str> {
    if read.len() > FRAME_BYTES + READ_BYTES {
        return Err("it sends invalid frames"); // complete frames are taken immediately
    }
    read.reserve(READ_BYTES);
    match timeout(SILENCE, stream.read_buf(read)).await {
        Ok(Ok(0)) => Ok(false),
        Ok(Ok(_)) => Ok(true),
        Ok(Err(_)) => Ok(false), // a reset, as from a killed node
        Err(_) => Err("it is silent"),
    }
}

async fn send(stream: &mut TcpStream, out: &mut Vec<u8>) -> Result<(), &'static str> {
    match timeout(READING, stream.write_all(out)).await {
        Ok(Ok(())) => out.clear(),
        Ok(Err(_)) => return Err("it hung up while it was answered"),
        Err(_) => return Err("it does not read its answers"),
    }
    Ok(())
}
