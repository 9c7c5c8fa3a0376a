//! A connection to an upstream: many requests on it, one driver.

use super::codec::{Bounds, Role, TextCodec};
use super::flood::{Fault, FloodLimits};
use super::pulse::Pulse;
use super::stream::H2Stream;
use super::transport::{Came, Shared, Transport};
use crate::Stream;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
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
    shared: Shared,
    state: Rc<State>,
}

struct State {
    streams: Cell<usize>,
    /// Nobody sends new requests on it.
    abandoned: Cell<bool>,
    /// Called when a stream has ended: there is room for another.
    freed: Box<dyn Fn() + Send + Sync>,
}

/// What makes a connection move; must be polled while there is one.
///
/// Memory: 64 KiB for each of its streams and 32 MiB for those that grew, all of it only where clients do not take what the
/// upstream sends.
pub struct Driver {
    shared: Shared,
    pulse: Pulse,
    /// How many SETTINGS of the upstream were noticed.
    settings: u32,
    state: Rc<State>,
}

/// One stream's place in the count.
pub(super) struct Place(Rc<State>);

impl Place {
    /// Whether it is the only one, and no other will be.
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
    /// Begins HTTP/2 on a connection and waits for the upstream's first word: that it speaks HTTP/2, and how many streams it
    /// takes. `window` is how far that of a stream may grow. `freed` is called whenever a stream has ended.
    ///
    /// # Errors
    /// When the upstream speaks something else or is gone.
    pub async fn begin(
        stream: Stream,
        window: u32,
        header_bytes: u32,
        freed: Box<dyn Fn() + Send + Sync>,
    ) -> Result<(Self, Driver), Fault> {
        // Windows and limits of heads bound the memory.
        let bounds = Bounds {
            streams: STREAMS as u32,
            text: header_bytes.saturating_mul(2) as usize,
            heads: usize::MAX,
            window,
            floods: FloodLimits::UPSTREAM,
        };
        let shared = Transport::new(stream, Vec::new(), TextCodec::new(Role::Client, bounds));
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

    /// Requests under way.
    pub fn streams(&self) -> usize {
        self.state.streams.get()
    }

    /// Most requests at one time, by the upstream's word and ours.
    pub fn capacity(&self) -> usize {
        self.shared.borrow().codec.peer_streams().min(STREAMS)
    }

    /// Whether it takes another request: the upstream has not said goodbye.
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
    /// Does the work of one stream while the connection moves. That may end first, when all has come.
    pub async fn drive<T>(&mut self, mut work: impl Future<Output = T> + Unpin) -> T {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = poll_fn(|cx| self.poll(cx)) => {}
        }
        work.await
    }

    /// Moves everything on the connection. Ready when it has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let transport = &mut *self.shared.borrow_mut();
        transport.drive(cx);
        transport.lend();
        loop {
            let came = transport.poll_receive(cx);
            let is_idle = self.state.streams.get() == 0;
            if is_idle && (self.state.abandoned.get() || transport.codec.is_over()) {
                transport.codec.end(Fault::Closed);
            }
            let sent = transport.poll_send(cx);
            if let Some(fault) = transport.codec.ended() {
                return Poll::Ready(fault); // it was told, if its socket took that
            }
            match (came, sent) {
                (Poll::Ready(Came::End), _) | (_, Poll::Ready(Err(_))) => {
                    transport.codec.gone();
                    return Poll::Ready(Fault::Closed);
                }
                (Poll::Ready(_), Poll::Ready(Ok(()))) => {} // there is room again
                _ => return Poll::Pending,
            }
        }
    }

    /// Whether SETTINGS came since the last question: it may take more requests at one time, or fewer.
    pub fn take_settings(&mut self) -> bool {
        let came = self.shared.borrow().codec.settings_seen();
        std::mem::replace(&mut self.settings, came) != came
    }

    /// Looks for a sign of life, and asks for one after silence, while requests are under way. To be called every
    /// [`LOOK`](super::LOOK); false when the upstream is to be given up.
    pub fn is_alive(&mut self) -> bool {
        if self.streams() == 0 {
            self.pulse.rest();
            return true;
        }
        self.pulse.look(&mut self.shared.borrow_mut())
    }

    /// Requests under way.
    pub fn streams(&self) -> usize {
        self.state.streams.get()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.borrow_mut().close();
    }
}
