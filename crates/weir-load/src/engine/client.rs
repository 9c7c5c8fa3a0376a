//! One client: the loop that every pace, stop and protocol shares.

use super::h1::{After, Batch, Conn};
use super::replay::Turn;
use super::websocket::Socket;
use super::worker::{Next, Pause, Worker};
use crate::clock::{self, NEVER};
use crate::plan::Plan;
use crate::transport::failure::Failure;
use crate::transport::h2::request::Rendered;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_report::verdict;
use weir_wire::Transport;

mod repeat;
mod session;
mod stream;

/// Longest pause of a client that cannot connect. It starts at 1 ms and doubles, so that a dead target costs no core.
const BACKOFF_MOST: Duration = Duration::from_millis(100);

struct Client {
    worker: Rc<Worker>,
    /// Its number in its thread.
    i: usize,
    /// One per origin; open if it was used and kept.
    conns: Vec<Option<Conn>>,
    /// One per WebSocket target; open if it was used and kept. Empty without WebSocket.
    sockets: Vec<Option<Socket>>,
    /// Whether it keeps the first answer on a WebSocket for the ledger.
    captures: bool,
    batch: Batch,
    /// The bytes of a batch with several requests or a template; otherwise empty.
    out: Vec<u8>,
    /// Where each request of the batch ends in `out`.
    ends: Vec<usize>,
    /// Bytes of heads and bodies: of the batch's counted requests, and of its others.
    sent: (u64, u64),
    sent_uncounted: u64,
    /// The head of an HTTP/2 or HTTP/3 request with a template.
    head: Rendered,
    /// Why the next request could not be rendered.
    unwritable: Option<String>,
    backoff: Duration,
    /// Whether it waited since its last exchange; then its connection may have been closed.
    waited: bool,
    /// Whether it sends one request again and again.
    repeats: bool,
}

/// Sends requests until the plan has no more for client `i`.
pub(super) async fn run(worker: Rc<Worker>, i: usize) {
    let mut client = Client {
        conns: worker.plan.origins.iter().map(|_| None).collect(),
        sockets: worker.plan.targets.iter().filter(|_| worker.plan.is_websocket()).map(|_| None).collect(),
        captures: worker.captures(i),
        batch: Batch::capturing(worker.captures(i)),
        out: Vec::new(),
        ends: Vec::new(),
        sent: (0, 0),
        sent_uncounted: 0,
        head: Rendered::of(worker.plan.version()),
        unwritable: None,
        backoff: Duration::ZERO,
        waited: false,
        repeats: worker.plan.is_repetitive(),
        worker,
        i,
    };
    client.run().await;
    client.end_sessions();
    let worker = &client.worker;
    let slot = &worker.slots[i];
    let since = worker.clock.now().saturating_sub(worker.shared.measure_from);
    slot.available_ns.set(since.saturating_sub(slot.idle_ns.get()));
}

impl Client {
    async fn run(&mut self) {
        let worker = Rc::clone(&self.worker);
        loop {
            if self.repeats {
                self.repeat().await;
            }
            let mut waited = false;
            let next = poll_fn(|cx| {
                let next = worker.poll_next(self.i, cx);
                if next.is_pending() {
                    waited = true;
                    self.tend(cx);
                }
                next
            })
            .await;
            self.waited |= waited;
            match next {
                Next::End => return,
                Next::Later(at) => {
                    self.pause_until(at, Pause::Stage).await;
                    self.waited = true;
                }
                Next::Start(intended) => {
                    self.exchange(intended).await;
                    for (pause, why) in [(worker.plan.think, Pause::Think), (self.backoff, Pause::Failed)] {
                        if !pause.is_zero() && worker.shared.has_more() {
                            let until = worker.clock.now().saturating_add(clock::nanos(pause));
                            self.pause_until(until, why).await;
                            self.waited = true;
                        }
                    }
                }
            }
        }
    }

    /// Runs one batch of requests, whatever the result.
    async fn exchange(&mut self, intended: u64) {
        self.fill(intended);
        let worker = Rc::clone(&self.worker);
        let slot = &worker.slots[self.i];
        slot.end.set(None);
        // A closed loop intends to start when it turns to a request: one clock reading serves both.
        let turned = if worker.plan.is_closed() { intended } else { worker.clock.now() };
        worker.begun(self.batch.items.len() as u64, turned);
        if !worker.plan.is_closed() {
            let is_late = |&&(_, at): &&(usize, u64)| worker.counts(at) && turned > at + verdict::LATE_NS;
            worker.tally.borrow_mut().late += self.batch.items.iter().filter(is_late).count() as u64;
        }
        let (target, _) = self.batch.items[0];
        let origin = worker.plan.targets[target].origin;
        let outcome = if let Some(why) = self.unwritable.take() {
            Err(Failure::Write(why))
        } else if worker.plan.is_multiplexed() {
            self.on_stream(origin, turned).await
        } else if worker.plan.is_websocket() {
            self.on_websocket(origin, turned).await
        } else {
            self.alone(origin, turned).await
        };
        self.conclude(turned, outcome);
    }

    /// Counts how a batch ended. `turned` is when the client turned to it.
    fn conclude(&mut self, turned: u64, outcome: Result<(), Failure>) {
        let worker = Rc::clone(&self.worker);
        worker.slots[self.i].deadline.set(NEVER);
        let now = if outcome.is_ok() { self.batch.last } else { worker.clock.now() };
        // For requests that began in the warm-up, only the time after it counts.
        let measured = turned.max(worker.shared.measure_from);
        worker.tally.borrow_mut().busy_ns += now.saturating_sub(measured);
        let cannot_connect = matches!(
            outcome,
            Err(Failure::Connect(_) | Failure::Ports(_) | Failure::Descriptors(_) | Failure::Tls(_))
        );
        // With a fixed rate the plan says when to try: a pause would pile up starts.
        self.backoff = if cannot_connect && worker.plan.is_closed() {
            (self.backoff * 2).clamp(Duration::from_millis(1), BACKOFF_MOST)
        } else {
            Duration::ZERO
        };
        if let Some(feed) = &worker.feed
            && let (Err(failure), Some(held)) = (&outcome, worker.slots[self.i].held.take())
        {
            match failure {
                Failure::Cut => feed.cut(&held),
                _ => feed.lost(&held),
            }
        }
        if let Err(failure) = outcome {
            worker.lost(&self.batch.items[self.batch.done..], &failure, now);
        }
    }

    /// Runs the batch on the client's own connection. It needs more connections if the target announces in the middle
    /// of a pipeline that it closes. The target ignores later requests (RFC 9112 §9.6), so they are sent again
    /// (§9.3.2), whatever their method. Each connection answers at least one, so this terminates.
    async fn alone(&mut self, origin: usize, mut turned: u64) -> Result<(), Failure> {
        loop {
            self.connected(origin).await?;
            self.spoken(turned).await?;
            if self.batch.is_answered() {
                return Ok(());
            }
            let worker = &self.worker;
            worker.slots[self.i].deadline.set(NEVER);
            turned = worker.clock.now();
        }
    }

    /// Chooses the targets of a batch and renders it.
    fn fill(&mut self, intended: u64) {
        let plan = Arc::clone(&self.worker.plan);
        self.batch.items.clear();
        self.batch.done = 0;
        if self.worker.feed.is_some() && self.replay(intended) {
            self.keep_first(&plan);
            return;
        }
        let first = self.next_target();
        self.batch.items.push((first, intended));
        let origin = plan.targets[self.batch.items[0].0].origin;
        while self.batch.items.len() < plan.pipeline {
            let ahead = plan.order[self.worker.turn.get() % plan.order.len()] as usize;
            if plan.targets[ahead].origin != origin {
                break;
            }
            let Some(at) = self.worker.another(intended) else { break };
            let target = self.next_target();
            self.batch.items.push((target, at));
        }
        self.render(&plan);
        self.keep_first(&plan);
    }

    /// Makes a recorded request the batch's only one; `false` without a replay.
    fn replay(&mut self, intended: u64) -> bool {
        let worker = Rc::clone(&self.worker);
        let Some(Turn { entry, is_first }) = worker.feed.as_ref().and_then(|feed| feed.take(&worker, self.i))
        else {
            return false;
        };
        if is_first {
            self.conns.iter_mut().for_each(|conn| *conn = None);
        }
        let target = usize::from(entry.is_head);
        self.batch.items.push((target, intended));
        (self.sent, self.sent_uncounted) =
            ((entry.head_bytes as u64, (entry.bytes.len() - entry.head_bytes) as u64), 0);
        self.out = entry.bytes;
        self.ends.clear();
        self.ends.push(self.out.len());
        worker.slots[self.i].held.set(Some(entry.held));
        let mut tally = worker.tally.borrow_mut();
        tally.requests += 1;
        tally.targets[target].requests += 1;
        true
    }

    /// Writes the batch's bytes, unless they equal one target's rendered request, and counts the requests.
    fn render(&mut self, plan: &Plan) {
        let worker = Rc::clone(&self.worker);
        let alone = self.batch.items.len() == 1;
        self.out.clear();
        self.ends.clear();
        (self.sent, self.sent_uncounted) = ((0, 0), 0);
        let mut tally = worker.tally.borrow_mut();
        for &(i, at) in &self.batch.items {
            let target = &plan.targets[i];
            let (head, body) = match &target.template {
                Some(template) => {
                    let rendered = template.render(&mut worker.values.borrow_mut(), &mut self.out);
                    rendered.unwrap_or_else(|why| {
                        self.unwritable = Some(why);
                        (0, 0)
                    })
                }
                None => {
                    if !alone {
                        self.out.extend_from_slice(&target.bytes);
                    }
                    (target.head_bytes as u64, (target.bytes.len() - target.head_bytes) as u64)
                }
            };
            self.ends.push(self.out.len());
            if worker.counts(at) {
                self.sent.0 += head;
                self.sent.1 += body;
                tally.requests += 1;
                tally.targets[i].requests += 1;
                if let Some(part) = worker.part_of(at).and_then(|part| tally.parts.get_mut(part)) {
                    part.requests += 1;
                }
            } else {
                self.sent_uncounted += head + body;
            }
        }
    }

    /// Keeps the batch's first request for the ledger if it was rendered for this batch.
    fn keep_first(&mut self, plan: &Plan) {
        if !self.batch.is_capturing() {
            return;
        }
        let made = plan.replay.is_some()
            || self.batch.items.first().is_some_and(|(i, _)| plan.targets[*i].template.is_some());
        if let Some(end) = self.ends.first().filter(|_| made) {
            self.batch.keep_request(self.out.get(..*end).unwrap_or_default());
        }
    }

    fn next_target(&self) -> usize {
        let order = &self.worker.plan.order;
        let turn = self.worker.turn.get() % order.len();
        self.worker.turn.set(turn + 1);
        order[turn] as usize
    }

    /// Ensures that there is a connection to the origin.
    async fn connected(&mut self, origin: usize) -> Result<(), Failure> {
        if std::mem::take(&mut self.waited) && self.conns[origin].as_mut().is_some_and(|c| !c.is_quiet()) {
            self.conns[origin] = None; // closed while idle: not an error, as nothing was sent on it
        }
        if self.conns[origin].is_some() {
            return Ok(());
        }
        let (stream, times) = self.dial(origin).await?;
        self.conns[origin] = Some(Conn::new(stream, self.worker.plan.keeps_bodies(), times));
        Ok(())
    }

    /// Opens a connection; returns it with its times: blocked, connecting, TLS.
    async fn dial(&mut self, origin: usize) -> Result<(Transport, [u64; 3]), Failure> {
        let worker = Rc::clone(&self.worker);
        let open = worker.ahead.borrow_mut().take(origin);
        if let Some(stream) = open {
            return Ok((stream, [0; 3])); // the client spent none of this time
        }
        worker.dial_to(origin, self.i, worker.plan.timeout).await
    }

    /// Sends the batch over its connection and reads the responses. `turned` is when the client turned to it.
    async fn spoken(&mut self, turned: u64) -> Result<After, Failure> {
        let worker = Rc::clone(&self.worker);
        let slot = &worker.slots[self.i];
        let plan = &worker.plan;
        let target = &plan.targets[self.batch.items[0].0];
        let Some(mut conn) = self.conns[target.origin].take() else { return Err(Failure::Cut) };
        let started = if conn.is_fresh() { worker.clock.now() } else { turned };
        self.batch.begin(started);
        slot.deadline.set(started.saturating_add(clock::nanos(plan.timeout)));
        let answered =
            self.batch.done.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        let bytes: &[u8] =
            if self.out.is_empty() { &target.bytes } else { self.out.get(answered..).unwrap_or_default() };
        let batch = &mut self.batch;
        let outcome = poll_fn(|cx| {
            slot.watch(cx);
            conn.poll_exchange(cx, &worker, slot, batch, bytes)
        })
        .await;
        self.put_back(target.origin, conn, outcome.as_ref().ok().copied());
        outcome
    }

    /// Counts the bytes of a batch that is over, and keeps or closes its connection. `after` is missing if the batch
    /// failed.
    fn put_back(&mut self, origin: usize, conn: Conn, after: Option<After>) {
        self.count_bytes(&conn, after.is_none());
        match after {
            Some(After::Keep) if self.worker.plan.keepalive => self.conns[origin] = Some(conn),
            Some(_) => self.worker.close(conn.into_stream()),
            None => drop(conn),
        }
    }

    /// Counts the batch's bytes once; the target ignored requests that are sent again.
    fn count_bytes(&mut self, conn: &Conn, failed: bool) {
        let ((head, body), uncounted) =
            (std::mem::take(&mut self.sent), std::mem::take(&mut self.sent_uncounted));
        let worker = &self.worker;
        let now = if failed { worker.clock.now() } else { self.batch.last };
        worker.sent(true, head, body, now);
        if uncounted > 0 {
            worker.sent(false, uncounted, 0, now);
        }
        if failed && let Some(&(_, intended)) = self.batch.items.get(self.batch.done) {
            worker.received(intended, &conn.unfinished(), now);
        }
    }
}
