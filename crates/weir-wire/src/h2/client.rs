//! A connection to an upstream: many requests, one driver.

use super::codec::{Bounds, Role, TextCodec};
use super::flood::{Fault, FloodLimits};
use super::pulse::Pulse;
use super::session::{Came, Session, Shared};
use super::stream::H2Stream;
use crate::Transport;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};

/// Most concurrent requests per connection, even if the upstream allows more: each may hold a window of memory.
const STREAMS: usize = 256;

/// The connection, as seen by code that sends requests on it.
pub struct Link {
    shared: Shared,
    state: Rc<State>,
}

struct State {
    streams: Cell<usize>,
    /// No user of the connection will send further requests.
    abandoned: Cell<bool>,
    /// Called when a stream has ended and there is room for another.
    freed: Box<dyn Fn() + Send + Sync>,
}

/// Drives a connection; poll it as long as the connection exists.
///
/// Memory: 64 KiB per stream and 32 MiB for windows that grew. That much is used only if clients do not read what the
/// upstream sends.
pub struct Driver {
    shared: Shared,
    pulse: Pulse,
    /// Number of upstream SETTINGS already processed.
    settings: u32,
    state: Rc<State>,
}

/// A stream's share in the stream count.
pub(super) struct Place(Rc<State>);

impl Place {
    /// Whether this is the last stream: no other is open, and none will open.
    pub(super) fn is_last_of_all(&self) -> bool {
        self.0.abandoned.get() && self.0.streams.get() == 1
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
        (self.0.freed)();
    }
}

impl Link {
    /// Starts HTTP/2 on a connection and waits for the upstream's SETTINGS, which confirm that it speaks HTTP/2 and
    /// say how many streams it accepts. `window` is the largest window of a stream. `freed` is called whenever a
    /// stream has ended.
    ///
    /// # Errors
    /// When the upstream speaks another protocol or is gone.
    pub async fn begin(
        transport: Transport,
        window: u32,
        header_bytes: u32,
        freed: Box<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, Driver), Fault> {
        // Windows and head limits bound the memory.
        let bounds = Bounds {
            streams: STREAMS as u32,
            text: header_bytes.saturating_mul(2) as usize,
            heads: usize::MAX,
            window,
            floods: FloodLimits::UPSTREAM,
        };
        let shared = Session::new(transport, Vec::new(), TextCodec::new(Role::Client, bounds));
        let state = Rc::new(State { streams: Cell::new(0), abandoned: Cell::new(false), freed });
        let driver = Driver {
            shared: Rc::clone(&shared),
            pulse: Pulse::default(),
            settings: 0,
            state: Rc::clone(&state),
        };
        poll_fn(|cx| shared.borrow_mut().poll_greeting(cx)).await?;
        Ok((Self { shared, state }, driver))
    }

    /// A stream for one request.
    pub fn stream(&self) -> H2Stream {
        self.state.streams.set(self.state.streams.get() + 1);
        H2Stream::client(&self.shared, Place(Rc::clone(&self.state)))
    }

    /// Requests in progress.
    pub fn streams(&self) -> usize {
        self.state.streams.get()
    }

    /// Most concurrent requests: the lower of the upstream's limit and ours.
    pub fn capacity(&self) -> usize {
        self.shared.borrow().codec.peer_streams().min(STREAMS)
    }

    /// Whether it accepts another request: the upstream has sent no GOAWAY.
    pub fn is_open(&self) -> bool {
        self.shared.borrow().codec.is_open()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.abandoned.set(true);
        self.shared.borrow().call_always();
    }
}

impl Driver {
    /// Runs `work` on one stream while driving the connection. Keeps running it if the connection ends first, since
    /// everything may have arrived.
    pub async fn drive<T>(&mut self, mut work: impl Future<Output = T> + Unpin) -> T {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = poll_fn(|cx| self.poll(cx)) => {}
        }
        work.await
    }

    /// Drives the connection. Ready when it has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let session = &mut *self.shared.borrow_mut();
        session.drive(cx);
        session.lend();
        loop {
            let came = session.poll_receive(cx);
            let is_idle = self.state.streams.get() == 0;
            if is_idle && (self.state.abandoned.get() || session.codec.is_over()) {
                session.codec.end(Fault::Closed);
            }
            let sent = session.poll_send(cx);
            if let Some(fault) = session.codec.ended() {
                return Poll::Ready(fault); // the upstream got the GOAWAY, if it still reads
            }
            match (came, sent) {
                (Poll::Ready(Came::End), _) | (_, Poll::Ready(Err(_))) => {
                    session.codec.gone();
                    return Poll::Ready(Fault::Closed);
                }
                (Poll::Ready(_), Poll::Ready(Ok(()))) => {} // there is room again
                _ => return Poll::Pending,
            }
        }
    }

    /// Whether new SETTINGS came since the last call: the limit of concurrent requests may have changed.
    pub fn take_settings(&mut self) -> bool {
        let came = self.shared.borrow().codec.settings_seen();
        std::mem::replace(&mut self.settings, came) != came
    }

    /// Checks whether the upstream is alive, and sends a PING after a silence, while requests are in progress. Call
    /// it every [`LOOK`](super::LOOK). False means: give the upstream up.
    pub fn is_alive(&mut self) -> bool {
        if self.streams() == 0 {
            self.pulse.rest();
            return true;
        }
        self.pulse.look(&mut self.shared.borrow_mut())
    }

    /// Requests in progress.
    pub fn streams(&self) -> usize {
        self.state.streams.get()
    }

    /// No request has been under way for a while: frees what only requests need.
    pub fn rest(&mut self) {
        self.shared.borrow_mut().rest();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.borrow_mut().close();
    }
}
