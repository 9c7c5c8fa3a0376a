//! One core's HTTP/2 connections to one endpoint: few, each shared by many requests.
//!
//! A request uses the connection with the fewest streams. If all are fuller than [`SPREAD_AT`], another is opened,
//! one at a time: a burst on a cold pool waits for one handshake instead of making five hundred.

use super::connection::{ConnectError, Connection, Opened};
use crate::error;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use weir_telemetry::Attempt as Outcome;
use weir_wire::h2::{Driver, LOOK, Link};
use weir_wire::{Deadline, Stream};

/// When all connections carry this percentage of the upstream's concurrent streams, another is opened.
const SPREAD_AT: usize = 80;

/// Stands for `keepalive: 0s`, because a zero deadline would mean none.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The connections.
#[derive(Default)]
pub(crate) struct SharedConnections {
    list: RefCell<Vec<Held>>,
    dialling: Cell<bool>,
    /// How many connects have failed, and why the last one did.
    failed: Cell<(u64, Option<ConnectError>)>,
    /// How long the last connect took, and its TLS handshake.
    pub(super) took: Cell<(Duration, Duration)>,
    /// The endpoint chose HTTP/1.1 by ALPN.
    chose_http1: Cell<bool>,
    /// Notified when a stream has ended or a connect is over.
    changed: Arc<Notify>,
    next: Cell<u64>,
    /// A request found that the endpoint accepts none for now.
    was_paused: Cell<bool>,
    /// The memory of requests that are over, for the next ones.
    spare: RefCell<Vec<Connection>>,
}

/// Most of them, as many as a connection carries: half a KiB each. With 64, every other one of 500 requests under way
/// allocated its own (callgrind, h2-h2c).
const KEPT_SPARE: usize = 256;

struct Held {
    id: u64,
    link: Link,
    /// It has carried a request before.
    used: bool,
    expires: Option<Instant>,
}

/// The right to connect, while others wait. When it is dropped, they check again.
pub(super) struct Dialling(Rc<SharedConnections>);

impl Dialling {
    /// Tells all waiting requests why there is no connection.
    pub(super) fn fail(self, why: ConnectError) {
        self.0.note_failure(why);
    }
}

impl Drop for Dialling {
    #[inline]
    fn drop(&mut self) {
        self.0.dialling.set(false);
        self.0.changed.notify_waiters();
    }
}

/// How full a connection may be to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Room enough that no other need be opened.
    Ample,
    /// Anything.
    Any,
}

impl SharedConnections {
    /// A stream of the connection with the fewest requests, among those with room.
    #[inline]
    pub(super) fn take(&self, room: Room) -> Option<Connection> {
        let mut list = self.list.borrow_mut();
        if list.is_empty() {
            return None;
        }
        // After GOAWAY or at its maximum age, a connection finishes its requests and gets no new ones.
        let mut now = None;
        list.retain(|held| {
            let young = held.expires.is_none_or(|end| *now.get_or_insert_with(Instant::now) < end);
            let open = held.link.is_open();
            if !open {
                self.note_end(held);
            }
            young && open
        });
        let fits = |link: &Link| match room {
            Room::Ample => link.streams() * 100 < link.capacity() * SPREAD_AT,
            Room::Any => link.streams() < link.capacity(),
        };
        // Filter for room first: the one with the fewest streams may allow few, or none for now.
        let with_room = list.iter_mut().filter(|held| fits(&held.link));
        let least = with_room.min_by_key(|held| held.link.streams())?;
        let reused = std::mem::replace(&mut least.used, true);
        let stream = Stream::H2(least.link.stream());
        Some(match self.spare.borrow_mut().pop() {
            Some(spare) => spare.again(stream, reused),
            None => Connection::shared(stream, reused),
        })
    }

    /// Ends a stream and keeps its memory for the next one.
    pub(super) fn recycle(&self, connection: Connection) {
        let over = connection.over();
        let mut spare = self.spare.borrow_mut();
        if spare.len() < KEPT_SPARE {
            spare.push(over);
        }
    }

    /// Whether the endpoint chose HTTP/1.1 when it was asked.
    #[inline]
    pub(super) const fn chose_http1(&self) -> bool {
        self.chose_http1.get()
    }

    /// Notes the protocol that the endpoint chose.
    pub(super) fn choose_http1(&self, chose: bool) {
        self.chose_http1.set(chose);
    }

    #[inline]
    pub(super) const fn is_dialling(&self) -> bool {
        self.dialling.get()
    }

    /// How many connects have failed.
    #[inline]
    pub(super) const fn failures(&self) -> u64 {
        self.failed.get().0
    }

    /// Why the last connect failed, if more than `failures` have.
    #[inline]
    pub(super) fn failed_since(&self, failures: u64) -> Option<ConnectError> {
        let (now, why) = self.failed.get();
        why.filter(|_| now != failures)
    }

    /// Whether the endpoint accepts no requests for now (RFC 9113 §6.5.2, a limit of 0).
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.list.borrow().iter().any(|held| held.link.capacity() == 0)
    }

    /// Notes that a request went elsewhere because the endpoint accepts none for now.
    pub(super) fn note_pause(&self) {
        self.was_paused.set(true);
    }

    /// Reserves the right to connect.
    pub(super) fn begin_dialling(self: &Rc<Self>) -> Dialling {
        self.dialling.set(true);
        Dialling(Rc::clone(self))
    }

    /// Adds a connection and drives it.
    pub(super) fn add(
        self: &Rc<Self>,
        link: Link,
        driver: Driver,
        opened: Opened,
        keepalive: Keepalive,
        on: Signs<impl FnOnce() + 'static, impl Fn() + 'static>,
    ) {
        let id = self.next.replace(self.next.get() + 1);
        self.list.borrow_mut().push(Held { id, link, used: false, expires: opened.expires });
        let shared = Rc::downgrade(self);
        weir_wire::spawn(Box::pin(async move {
            if let Ended::Silent = drive(&shared, id, driver, opened, (keepalive, on.resumed)).await {
                (on.silent)();
            }
        }));
    }

    /// Waits for a stream to end or a connect to finish.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Called when a stream has ended: a waiting request can use its place. The driver is notified only if it must
    /// be: see [`drive`].
    #[inline]
    pub(super) fn freed(&self, driver: Option<Arc<Notify>>) -> Box<dyn Fn() + Send + Sync> {
        let changed = Arc::clone(&self.changed);
        match driver {
            None => Box::new(move || changed.notify_one()),
            Some(driver) => Box::new(move || {
                changed.notify_one();
                driver.notify_one();
            }),
        }
    }

    /// Drops a connection without requests. Returns whether there was one.
    pub(super) fn close_idle(&self) -> bool {
        let mut list = self.list.borrow_mut();
        let idle = list.iter().position(|held| held.link.streams() == 0);
        idle.map(|i| list.swap_remove(i)).is_some()
    }

    fn remove(&self, id: u64) {
        self.list.borrow_mut().retain(|held| held.id != id);
    }

    /// The upstream or we closed it.
    #[inline]
    fn ended(&self, id: u64) {
        self.list.borrow_mut().retain(|held| {
            let stays = held.id != id;
            if !stays {
                self.note_end(held);
            }
            stays
        });
        if self.list.borrow().is_empty() {
            drop(self.spare.take());
        }
    }

    /// Counts a connection that ends before its first request as a failed attempt. Otherwise all waiting requests
    /// would have it made again, over and over.
    fn note_end(&self, held: &Held) {
        if !held.used {
            let outcome = Some(Outcome::Reset);
            self.note_failure(ConnectError { cause: &error::UPSTREAM_CLOSED, elsewhere: true, outcome });
        }
    }

    fn note_failure(&self, why: ConnectError) {
        self.failed.set((self.failures() + 1, Some(why)));
    }
}

/// Callbacks for a connection's signs of life.
pub(super) struct Signs<S, R> {
    /// Called when it was given up, because its peer answers no PING.
    pub(super) silent: S,
    /// Called when it accepts requests again.
    pub(super) resumed: R,
}

/// When an idle connection ends.
pub(super) struct Keepalive {
    limit: Duration,
    /// Notified when a stream has ended.
    ended: Option<Arc<Notify>>,
}

impl Keepalive {
    /// Waking for each stream that ends is costly, so long limits are checked every few seconds instead.
    #[inline]
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, ended: (limit < LOOK).then(Arc::default) }
    }

    /// For [`SharedConnections::freed`].
    #[inline]
    pub(super) fn ended(&self) -> Option<Arc<Notify>> {
        self.ended.clone()
    }
}

/// How a connection ended.
enum Ended {
    /// Its peer or we have closed it.
    Closed,
    /// It was given up.
    Silent,
}

/// Drives a connection until it ends. Until then it occupies its place under the upstream's limit.
async fn drive(
    shared: &Weak<SharedConnections>,
    id: u64,
    mut driver: Driver,
    opened: Opened,
    (keepalive, resumed): (Keepalive, impl Fn()),
) -> Ended {
    let mut deadline = Deadline::new();
    let mut idle_since = None;
    let how = loop {
        let look = if idle_since.is_some() { LOOK.min(keepalive.limit) } else { LOOK };
        deadline.set(Instant::now(), look.max(AT_ONCE));
        let moved = poll_fn(|cx| {
            if let Poll::Ready(fault) = driver.poll(cx) {
                return Poll::Ready(Some(fault));
            }
            if driver.take_settings() {
                with(shared, |it| {
                    it.changed.notify_waiters();
                    if it.was_paused.get() && !it.is_paused() {
                        it.was_paused.set(false);
                        resumed();
                    }
                });
            }
            deadline.poll_passed(cx).map(|()| None)
        });
        let (ended, looked) = match &keepalive.ended {
            None => (moved.await, true),
            Some(rung) => tokio::select! {
                ended = moved => (ended, true),
                () = rung.notified() => (None, false),
            },
        };
        if ended.is_some() {
            break Ended::Closed;
        }
        if looked && !driver.is_alive() {
            break Ended::Silent;
        }
        if driver.streams() == 0 {
            if looked {
                with(shared, |it| drop(it.spare.take())); // the memory of a burst
                driver.rest();
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= keepalive.limit {
                // Without its link the connection ends as soon as nothing is under way.
                with(shared, |it| it.remove(id));
            }
        } else {
            idle_since = None;
        }
    };
    with(shared, |it| it.ended(id));
    drop((driver, opened)); // in this order: its requests fail before others get its place
    with(shared, |it| it.changed.notify_waiters());
    how
}

fn with(shared: &Weak<SharedConnections>, act: impl FnOnce(&SharedConnections)) {
    if let Some(shared) = shared.upgrade() {
        act(&shared);
    }
}
