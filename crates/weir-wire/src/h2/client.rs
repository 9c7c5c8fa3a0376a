//! A connection to an upstream: many requests on it, one driver.

use super::flood::FloodLimits;
use super::pulse::Pulse;
use super::stream::H2Stream;
use super::transport::{Port, Transport};
use super::{Fault, PREFACE, SEND_BYTES};
use crate::Stream;
use bytes::Bytes;
use h2::client::{self, SendRequest};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll};
use std::time::Duration;

/// Most requests at one time on one connection, however many the upstream would take: each may hold a window of memory.
const STREAMS: usize = 256;

/// Smallest and largest window of a stream.
const WINDOW: (u32, u32) = (64 * 1024, 1024 * 1024);

/// The window of each stream for a peer this far away: what a gigabit a second has on its way. Far peers need large windows
/// to be fast; near ones need small ones, because what the other side of an exchange does not take may stand full here.
pub fn window_for(round_trip: Duration) -> u32 {
    const BYTES_A_MICROSECOND: u128 = 125;
    let on_its_way = round_trip.as_micros().saturating_mul(BYTES_A_MICROSECOND);
    u32::try_from(on_its_way).unwrap_or(u32::MAX).clamp(WINDOW.0, WINDOW.1)
}

/// A connection as those see it who send requests on it.
pub struct Link {
    open: SendRequest<Bytes>,
    state: Arc<State>,
    tls: Option<crate::TlsFacts>,
}

/// Atomic because a [`Stream`] can go to another thread where it is not of HTTP/2; one core alone uses it.
struct State {
    streams: AtomicUsize,
    ended: AtomicBool,
    /// Called when a stream has ended: there is room for another.
    freed: Box<dyn Fn() + Send + Sync>,
}

/// What makes a connection move; must be polled while there is one.
pub struct Driver {
    connection: client::Connection<Port, Bytes>,
    transport: Rc<RefCell<Transport>>,
    pulse: Pulse,
    /// How many SETTINGS of the upstream were noticed.
    settings: u32,
    state: Arc<State>,
}

/// One stream's place in the count.
pub(super) struct Place(Arc<State>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
        (self.0.freed)();
    }
}

impl Link {
    /// Begins HTTP/2 on a connection and waits for the upstream's first word: that it speaks HTTP/2, and how many streams it
    /// takes. `freed` is called whenever a stream has ended.
    ///
    /// # Errors
    /// When the upstream speaks something else or is gone.
    pub async fn begin(
        stream: Stream,
        window: u32,
        header_bytes: u32,
        freed: Box<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, Driver), Fault> {
        let tls = stream.tls();
        let transport = Transport::new(stream, Vec::new(), FloodLimits::NONE, (0, PREFACE.len()));
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(window)
            // A stalled stream holds its own window and nobody else's.
            .initial_connection_window_size(window.saturating_mul(STREAMS as u32))
            .max_header_list_size(header_bytes.saturating_mul(2))
            .max_send_buffer_size(SEND_BYTES)
            // An upstream is not suspected: small messages of streams that wait, and what is on its way to canceled ones, must
            // not end the connection for all others. Windows bound the memory.
            .data_frame_budget(usize::MAX)
            .max_local_error_reset_streams(None)
            .max_concurrent_reset_streams(STREAMS)
            .enable_push(false);
        let handshake = builder.handshake::<_, Bytes>(Port(Rc::clone(&transport))).await;
        let (open, mut connection) = handshake.map_err(|e| Fault::of(&e))?;
        let pulse = Pulse::new(connection.ping_pong());
        let state = Arc::new(State { streams: AtomicUsize::new(0), ended: AtomicBool::new(false), freed });
        let mut driver = Driver { connection, transport, pulse, settings: 0, state: Arc::clone(&state) };
        poll_fn(|cx| match driver.poll(cx) {
            Poll::Ready(fault) => Poll::Ready(Err(fault)),
            Poll::Pending if driver.take_settings() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        Ok((Self { open, state, tls }, driver))
    }

    /// A stream for one request.
    pub fn stream(&self) -> H2Stream {
        self.state.streams.fetch_add(1, Relaxed);
        H2Stream::client(self.open.clone(), Place(Arc::clone(&self.state)), self.tls)
    }

    /// Requests under way.
    pub fn streams(&self) -> usize {
        self.state.streams.load(Relaxed)
    }

    /// Most requests at one time, by the upstream's word and ours.
    pub fn capacity(&self) -> usize {
        self.open.current_max_send_streams().min(STREAMS)
    }

    /// Whether it takes another request: the upstream has not said goodbye.
    pub fn is_open(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        !self.state.ended.load(Relaxed) && matches!(self.open.poll_ready(&mut cx), Poll::Ready(Ok(())))
    }
}

impl Driver {
    /// Moves everything on the connection. Ready when it has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let ended = match Pin::new(&mut self.connection).poll(cx) {
            Poll::Ready(Ok(())) => Some(Fault::Closed),
            Poll::Ready(Err(e)) => Some(Fault::of(&e)),
            Poll::Pending => match self.transport.borrow_mut().poll_send(cx) {
                Poll::Ready(Err(_)) => Some(Fault::Closed),
                _ => None,
            },
        };
        self.pulse.poll(cx);
        match ended {
            Some(fault) => {
                self.state.ended.store(true, Relaxed);
                Poll::Ready(fault)
            }
            None => Poll::Pending,
        }
    }

    /// Whether SETTINGS came since the last question: it may take more requests at one time, or fewer.
    pub fn take_settings(&mut self) -> bool {
        let came = self.transport.borrow().meter.settings();
        std::mem::replace(&mut self.settings, came) != came
    }

    /// Looks for a sign of life, and asks for one after silence, while requests are under way. To be called every
    /// [`LOOK`](super::LOOK); false when the upstream is to be given up.
    pub fn is_alive(&mut self) -> bool {
        if self.streams() == 0 {
            self.pulse.rest();
            return true;
        }
        self.pulse.look(&mut self.transport.borrow_mut())
    }

    /// Requests under way.
    pub fn streams(&self) -> usize {
        self.state.streams.load(Relaxed)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.state.ended.store(true, Relaxed);
    }
}
