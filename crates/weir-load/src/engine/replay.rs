//! A generator thread's side of a replay: takes requests from the reader, waits for their planned moments, and gives
//! each to a client.
//!
//! Clients are otherwise those of any load (`client.rs`). Without sessions, any idle client takes the next request.
//! With them, each recorded client has a client of ours with a connection of its own, on which its requests keep
//! their order.

use super::worker::{Next, Worker};
use crate::clock::NEVER;
use crate::replay::{Entry, Held};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use weir_report::Histogram;
use weir_report::report::LengthPair;
use weir_wire::timer::Timer;

/// Most requests that wait for their busy clients; then those of others wait too.
const QUEUED_MOST: usize = 10_000;

/// Longest sleep, so that far moments need no thought about overflows.
const SLEEP_MOST: Duration = Duration::from_secs(60);

/// Bodies with another length that are kept as examples.
const LENGTHS_SHOWN: usize = 4;

pub(crate) struct Feed {
    inbox: Cell<Option<Receiver<Entry>>>,
    is_max: bool,
    clients: RefCell<Clients>,
    bell: Notify,
    /// The last request was given to a client.
    is_read: Cell<bool>,
    counts: RefCell<Replayed>,
}

/// Who has what to send.
struct Clients {
    /// What each is to send, in order.
    queues: Vec<VecDeque<Given>>,
    queued: usize,
    /// Those that wait for a request. With sessions, only those that nobody owns.
    idle: Vec<usize>,
    is_idle: Vec<bool>,
    sessions: Option<Sessions>,
}

/// Which recorded client has which of ours.
#[derive(Default)]
struct Sessions {
    of: HashMap<u64, usize>,
    owners: Vec<Option<u64>>,
    /// When each was last used, as a count.
    used: Vec<u64>,
    now: u64,
}

struct Given {
    entry: Entry,
    /// Its client was free when it was due.
    was_free: bool,
    /// It begins a session, so it needs a new connection.
    is_first: bool,
}

/// What a client is to send.
pub(super) struct Turn {
    pub(super) entry: Entry,
    pub(super) is_first: bool,
}

/// Counts of one thread.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) drift: Histogram,
    /// By status then and now; 0 for none.
    pub(crate) statuses: BTreeMap<(u16, u16), u64>,
    pub(crate) lengths_compared: u64,
    pub(crate) first_lengths: Vec<(u32, LengthPair)>,
    pub(crate) then: Histogram,
    pub(crate) now: Histogram,
    /// By the number of the route.
    pub(crate) routes: Vec<RouteTally>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTally {
    pub(crate) requests: u64,
    pub(crate) statuses_changed: u64,
    pub(crate) lengths_changed: u64,
    pub(crate) timed: u64,
    pub(crate) ln_sum: f64,
    pub(crate) ln_squares: f64,
}

impl Feed {
    pub(super) fn new(inbox: Receiver<Entry>, clients: usize, is_max: bool, by_client: bool) -> Self {
        let sessions = by_client.then(|| Sessions {
            owners: vec![None; clients],
            used: vec![0; clients],
            ..Sessions::default()
        });
        let queues = (0..clients).map(|_| VecDeque::new()).collect();
        let clients =
            Clients { queues, queued: 0, idle: Vec::new(), is_idle: vec![false; clients], sessions };
        Self {
            inbox: Cell::new(Some(inbox)),
            is_max,
            clients: clients.into(),
            bell: Notify::new(),
            is_read: Cell::new(false),
            counts: RefCell::default(),
        }
    }

    /// Whether every request was given to a client.
    pub(super) const fn is_over(&self) -> bool {
        self.is_read.get()
    }

    /// Wakes whoever waits, because the run ends.
    pub(super) fn stop(&self) {
        self.bell.notify_one();
    }

    /// What client `i` does next.
    pub(super) fn poll_next(&self, worker: &Worker, i: usize, cx: &Context<'_>) -> Poll<Next> {
        let now = worker.clock.now();
        if now >= worker.stop_at() {
            return Poll::Ready(Next::End);
        }
        let mut clients = self.clients.borrow_mut();
        if let Some(given) = clients.queues[i].front() {
            let at = if self.is_max { now } else { given.entry.at };
            return Poll::Ready(Next::Start(at));
        }
        if self.is_read.get() {
            return Poll::Ready(Next::End);
        }
        worker.slots[i].watch(cx);
        if !std::mem::replace(&mut clients.is_idle[i], true) {
            clients.idle.push(i);
            self.bell.notify_one();
        }
        Poll::Pending
    }

    /// What client `i` is to send now.
    pub(super) fn take(&self, worker: &Worker, i: usize) -> Option<Turn> {
        let mut clients = self.clients.borrow_mut();
        let Given { mut entry, was_free, is_first } = clients.queues[i].pop_front()?;
        clients.queued -= 1;
        if clients.queued + 1 == QUEUED_MOST {
            self.bell.notify_one();
        }
        drop(clients);
        if !self.is_max {
            let now = worker.clock.now();
            entry.held.late_us = u32::try_from(now.saturating_sub(entry.at) / 1000).unwrap_or(u32::MAX);
            if was_free {
                worker.note_lag(entry.at, now);
            }
        }
        self.counts.borrow_mut().route(entry.held.route).requests += 1;
        Some(Turn { entry, is_first })
    }

    /// Counts the response to a request: how late the request was sent, its status, the length of its body, its service
    /// time.
    pub(super) fn answered(&self, held: &Held, late_ns: u64, status: u16, body_bytes: u64, took_ns: u64) {
        self.drifted(late_ns); // longer than until its client took it, if a connection had to be opened first
        self.counts.borrow_mut().answered(held, status, body_bytes, took_ns);
    }

    fn drifted(&self, late_ns: u64) {
        if !self.is_max {
            self.counts.borrow_mut().drift.record(late_ns);
        }
    }

    /// Counts a request that the end of the run cut.
    pub(super) fn cut(&self, held: &Held) {
        self.drifted(u64::from(held.late_us) * 1000);
    }

    /// Counts a request without a response. It may not have been sent at all, so its drift is that of its client.
    pub(super) fn lost(&self, held: &Held) {
        self.drifted(u64::from(held.late_us) * 1000);
        *self.counts.borrow_mut().statuses.entry((held.then.status.unwrap_or(0), 0)).or_default() += 1;
    }

    pub(super) fn end(&self) -> Replayed {
        self.counts.take()
    }
}

impl Clients {
    /// Gives a request to a client, and returns it; gives the request back if no client can take it now.
    fn give(&mut self, entry: Entry) -> Result<usize, Entry> {
        if self.queued >= QUEUED_MOST {
            return Err(entry);
        }
        let (i, is_first) = match &mut self.sessions {
            None => match self.idle.pop() {
                Some(i) => (i, false),
                None => return Err(entry),
            },
            Some(sessions) => match sessions.of.get(&entry.client) {
                Some(i) => (*i, false),
                None => match sessions.free(&self.is_idle) {
                    Some(i) => {
                        sessions.open(entry.client, i);
                        (i, true)
                    }
                    None => return Err(entry),
                },
            },
        };
        if let Some(sessions) = &mut self.sessions {
            sessions.now += 1;
            sessions.used[i] = sessions.now;
            self.idle.clear(); // `is_idle` says it
        }
        let was_free = std::mem::take(&mut self.is_idle[i]);
        self.queues[i].push_back(Given { entry, was_free, is_first });
        self.queued += 1;
        Ok(i)
    }
}

impl Sessions {
    /// An idle client: one that nobody owns, or else the one unused for the longest time.
    fn free(&self, is_idle: &[bool]) -> Option<usize> {
        let idle = (0..self.owners.len()).filter(|i| is_idle[*i]);
        idle.min_by_key(|i| (self.owners[*i].is_some(), self.used[*i]))
    }

    fn open(&mut self, client: u64, i: usize) {
        if let Some(before) = self.owners[i].replace(client) {
            self.of.remove(&before);
        }
        self.of.insert(client, i);
    }
}

impl Replayed {
    fn route(&mut self, number: u32) -> &mut RouteTally {
        let number = number as usize;
        if self.routes.len() <= number {
            self.routes.resize_with(number + 1, RouteTally::default);
        }
        &mut self.routes[number]
    }

    fn answered(&mut self, held: &Held, status: u16, body_bytes: u64, took_ns: u64) {
        let then = held.then;
        *self.statuses.entry((then.status.unwrap_or(0), status)).or_default() += 1;
        if then.status.is_some_and(|then| then != status) {
            self.route(held.route).statuses_changed += 1;
        } else if let Some(length) = then.body_bytes {
            self.lengths_compared += 1;
            if length != body_bytes {
                self.route(held.route).lengths_changed += 1;
                if self.first_lengths.len() < LENGTHS_SHOWN {
                    let pair = LengthPair { route: String::new(), then: length, now: body_bytes };
                    self.first_lengths.push((held.route, pair));
                }
            }
        }
        if let Some(before) = then.took_ns {
            self.then.record(before);
            self.now.record(took_ns);
            // A log that counts in milliseconds has zeros.
            let ln = (took_ns.max(1) as f64 / before.max(1_000) as f64).ln();
            let route = self.route(held.route);
            route.timed += 1;
            route.ln_sum += ln;
            route.ln_squares += ln * ln;
        }
    }

    /// Adds another thread's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.drift.add(&other.drift);
        other.statuses.iter().for_each(|(pair, n)| *self.statuses.entry(*pair).or_default() += n);
        self.lengths_compared += other.lengths_compared;
        let room = LENGTHS_SHOWN.saturating_sub(self.first_lengths.len());
        self.first_lengths.extend(other.first_lengths.iter().take(room).cloned());
        self.then.add(&other.then);
        self.now.add(&other.now);
        for (number, theirs) in (0..).zip(&other.routes) {
            let ours = self.route(number);
            ours.requests += theirs.requests;
            ours.statuses_changed += theirs.statuses_changed;
            ours.lengths_changed += theirs.lengths_changed;
            ours.timed += theirs.timed;
            ours.ln_sum += theirs.ln_sum;
            ours.ln_squares += theirs.ln_squares;
        }
    }
}

/// Gives each request to a client at its moment, until the recording ends.
pub(super) async fn pace(worker: Rc<Worker>, timer: Timer) {
    let Some(feed) = &worker.feed else { return };
    let Some(mut inbox) = feed.inbox.take() else { return };
    'all: loop {
        let mut entry = tokio::select! {
            biased;
            entry = inbox.recv() => match entry {
                Some(entry) => entry,
                None => break,
            },
            () = ended(&worker) => break,
        };
        loop {
            let now = worker.clock.now();
            if now >= worker.stop_at() {
                break 'all;
            }
            if feed.is_max || entry.at <= now {
                break;
            }
            let left = Duration::from_nanos(entry.at.min(worker.stop_at()) - now).min(SLEEP_MOST);
            tokio::select! {
                () = timer.wait(left) => {}
                () = feed.bell.notified() => {}
            }
        }
        loop {
            let given = feed.clients.borrow_mut().give(entry);
            match given {
                Ok(i) => {
                    worker.slots[i].wake();
                    break;
                }
                Err(back) => entry = back,
            }
            if worker.clock.now() >= worker.stop_at() {
                break 'all;
            }
            feed.bell.notified().await;
        }
    }
    feed.is_read.set(true);
    worker.wake_all();
}

/// Returns once the run is to end.
async fn ended(worker: &Worker) {
    let Some(feed) = &worker.feed else { return };
    while worker.stop_at() == NEVER || worker.clock.now() < worker.stop_at() {
        feed.bell.notified().await;
    }
}
