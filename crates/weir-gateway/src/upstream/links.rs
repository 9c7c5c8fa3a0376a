//! HTTP/2 connections of one core to one endpoint: few, each shared by many requests.
//!
//! A request goes on the connection with the fewest. Where all are fuller than [`SPREAD_AT`], another is opened, one at a
//! time: a burst on a cold pool waits for one handshake and does not make five hundred.

use super::pool::{Connection, Opened, Pool};
use crate::error::{self, Cause};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use weir_wire::h2::{Driver, LOOK, Link};
use weir_wire::{Deadline, Stream};

/// From this part of what the upstream takes at one time, in percent, another connection is opened.
const SPREAD_AT: usize = 80;

/// The connections.
#[derive(Default)]
pub(crate) struct Links {
    list: RefCell<Vec<Held>>,
    dialling: Cell<bool>,
    /// The last attempt to connect failed for this, and how many have failed.
    failed: Cell<(u64, Option<&'static Cause>)>,
    /// The endpoint was asked by ALPN and chose HTTP/1.1.
    chose_http1: Cell<bool>,
    /// Rung when a stream or the wait for a connection has ended.
    changed: Arc<Notify>,
    next: Cell<u64>,
}

struct Held {
    id: u64,
    link: Link,
    /// Has carried a request before.
    used: bool,
    expires: Option<Instant>,
}

/// The right to connect; others wait meanwhile. Dropped, they look again.
pub(crate) struct Dialling(Rc<Pool>);

impl Drop for Dialling {
    fn drop(&mut self) {
        self.0.links.dialling.set(false);
        self.0.links.changed.notify_waiters();
    }
}

/// How full a connection may be to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// So that none need be opened.
    Ample,
    /// Anything.
    Any,
}

impl Links {
    /// A stream of the connection with the fewest requests.
    pub(crate) fn take(&self, room: Room) -> Option<Connection> {
        let mut list = self.list.borrow_mut();
        if list.is_empty() {
            return None;
        }
        // What has said goodbye or is too old carries its requests to their end and gets no new one.
        let mut now = None;
        list.retain_mut(|held| {
            let young = held.expires.is_none_or(|end| *now.get_or_insert_with(Instant::now) < end);
            young && held.link.is_open()
        });
        let least = list.iter_mut().min_by_key(|held| held.link.streams())?;
        let (streams, capacity) = (least.link.streams(), least.link.capacity());
        let fits = match room {
            Room::Ample => streams * 100 < capacity * SPREAD_AT,
            Room::Any => streams < capacity,
        };
        let reused = std::mem::replace(&mut least.used, true);
        fits.then(|| Connection::shared(Stream::H2(Box::new(least.link.stream())), reused))
    }

    /// Whether the endpoint chose HTTP/1.1 when it was asked.
    pub(crate) const fn chose_http1(&self) -> bool {
        self.chose_http1.get()
    }

    /// Notes what the endpoint chose.
    pub(crate) fn choose_http1(&self, chose: bool) {
        self.chose_http1.set(chose);
    }

    pub(crate) const fn is_dialling(&self) -> bool {
        self.dialling.get()
    }

    /// How many attempts to connect have failed, and why the last did.
    pub(crate) const fn failed(&self) -> (u64, Option<&'static Cause>) {
        self.failed.get()
    }

    /// Notes a failed attempt to connect, for all who wait for it.
    pub(crate) fn fail(&self, cause: &'static Cause) {
        self.failed.set((self.failed.get().0 + 1, Some(cause)));
    }

    /// Waits for a stream to end or a connection to be made.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Called when a stream has ended: one who waits can have its place.
    pub(crate) fn freed(&self) -> Box<dyn Fn() + Send + Sync> {
        let changed = Arc::clone(&self.changed);
        Box::new(move || changed.notify_one())
    }

    /// Lets a connection without requests go; tells whether there was one.
    pub(crate) fn close_idle(&self) -> bool {
        let mut list = self.list.borrow_mut();
        let idle = list.iter().position(|held| held.link.streams() == 0);
        idle.map(|i| list.swap_remove(i)).is_some()
    }

    fn remove(&self, id: u64) {
        self.list.borrow_mut().retain(|held| held.id != id);
    }
}

/// Reserves the right to connect.
pub(crate) fn begin(pool: &Rc<Pool>) -> Dialling {
    pool.links.dialling.set(true);
    Dialling(Rc::clone(pool))
}

/// Takes a connection in and keeps it moving; returns its first stream.
pub(crate) fn add(
    pool: &Rc<Pool>,
    link: Link,
    driver: Driver,
    opened: Opened,
    keepalive: Duration,
) -> Connection {
    let links = &pool.links;
    let id = links.next.replace(links.next.get() + 1);
    let first = Connection::shared(Stream::H2(Box::new(link.stream())), false);
    links.list.borrow_mut().push(Held { id, link, used: true, expires: opened.expires });
    drop(tokio::task::spawn_local(drive(Rc::downgrade(pool), id, driver, opened, keepalive)));
    first
}

/// Keeps a connection moving until it ends. While it does, its place under the upstream's limit is taken.
async fn drive(pool: Weak<Pool>, id: u64, mut driver: Driver, opened: Opened, keepalive: Duration) {
    let mut deadline = Deadline::new();
    let mut idle_since = None;
    loop {
        let now = Instant::now();
        deadline.set(now, LOOK);
        let ended = poll_fn(|cx| {
            if let Poll::Ready(fault) = driver.poll(cx) {
                return Poll::Ready(Some(fault));
            }
            if driver.take_settings() {
                with(&pool, |links| links.changed.notify_waiters());
            }
            deadline.poll_passed(cx).map(|()| None)
        });
        if ended.await.is_some() {
            break;
        }
        if !driver.is_alive() {
            break;
        }
        if driver.streams() == 0 {
            let since = *idle_since.get_or_insert(now);
            if now.duration_since(since) >= keepalive {
                // Without its link the connection ends as soon as nothing is under way.
                with(&pool, |links| links.remove(id));
            }
        } else {
            idle_since = None;
        }
    }
    with(&pool, |links| links.remove(id));
    drop((driver, opened)); // in this order: its requests fail before others take its place
    with(&pool, |links| links.changed.notify_waiters());
}

fn with(pool: &Weak<Pool>, act: impl FnOnce(&Links)) {
    if let Some(pool) = pool.upgrade() {
        act(&pool.links);
    }
}

/// What those are told who waited for a connection that was not made.
pub(crate) fn why_not(failed: Option<&'static Cause>) -> &'static Cause {
    failed.unwrap_or(&error::CONNECT_FAILED)
}
