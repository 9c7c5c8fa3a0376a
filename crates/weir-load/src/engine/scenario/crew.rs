//! State that the users of one thread share.

use super::exec::Programs;
use super::gate::Gate;
use super::h1::{Answered, Conn, Times, Wanted};
use super::h2::Link;
use super::witness::Witness;
use crate::clock::NEVER;
use crate::engine::shared::Message;
use crate::engine::worker::Worker;
use crate::scenario::data::Dealt;
use crate::scenario::tally::JourneyTally;
use crate::scenario::{Failed, Journey};
use crate::transport::failure::Failure;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};
use weir_plan::{Kind, Pick, Scope, StepId, Url};

/// Jobs whose buffers are kept for later requests.
const FREE_MOST: usize = 256;

/// Buffers longer than this are not kept.
const KEPT_BYTES: usize = 64 * 1024;

pub(super) struct Crew {
    pub(super) worker: Rc<Worker>,
    pub(super) journey: Arc<Journey>,
    pub(super) tally: RefCell<JourneyTally>,
    /// By group.
    pub(super) gates: Vec<Gate>,
    /// Connections of scenarios whose users share them.
    pub(super) pool: Rc<Pool>,
    /// Programs of `exec` steps.
    pub(super) programs: Programs,
    /// Origins that chose HTTP/1.1 where HTTP/2 was offered.
    pub(super) old: RefCell<BTreeSet<usize>>,
    pub(super) random: RefCell<fastrand::Rng>,
    /// Users that are in an iteration.
    pub(super) at_work: Cell<u64>,
    /// Records the first failure of a dry run, of setup or of teardown.
    pub(super) witness: RefCell<Option<Witness>>,
    /// By row, so that a job finds the head of the last answer to its step.
    #[allow(clippy::vec_box)] // a job goes through futures, which stay small with a pointer
    free: RefCell<Vec<Vec<Box<Job>>>>,
    /// Jobs in `free`.
    free_count: Cell<usize>,
    /// Requests of this thread.
    counter: Cell<u64>,
    /// When the clock read 0, since the Unix epoch.
    epoch: Duration,
    out: Option<mpsc::Sender<Message>>,
    /// Least time between two requests, of one user without load on an agent with a highest rate.
    gap_ns: u64,
    /// When the next request may begin.
    next_turn: Cell<u64>,
}

/// A request on its way.
#[derive(Default)]
pub(super) struct Job {
    /// Its row in the report.
    pub(super) row: usize,
    pub(super) origin: usize,
    /// The request: head and body.
    pub(super) bytes: Vec<u8>,
    pub(super) head_bytes: usize,
    /// What the head takes on the wire.
    pub(super) wire: u64,
    /// The body alone, while the head is written.
    pub(super) body: Vec<u8>,
    /// The URL, or path, as it was written.
    pub(super) text: Vec<u8>,
    /// The method, which a redirect may change.
    pub(super) method: String,
    /// Path and query.
    pub(super) path: String,
    pub(super) wanted: Option<Wanted>,
    /// What is spoken.
    pub(super) kind: Option<Kind>,
    /// Whether it goes over HTTP/2.
    pub(super) is_stream: bool,
    /// The error text of a gRPC call.
    pub(super) call_text: Option<Rc<str>>,
    pub(super) timeout: Duration,
    /// From when its response time counts: the end of the pause before it.
    pub(super) ready: u64,
    pub(super) times: Times,
    pub(super) answer: Answered,
    /// Redirects that were followed: the URLs before this one.
    pub(super) visited: Vec<Url>,
}

/// Open connections, by origin.
#[derive(Default)]
pub(super) struct Pool {
    idle: RefCell<Vec<(usize, Conn)>>,
    /// HTTP/2 connections by origin.
    links: RefCell<Vec<(usize, Rc<Link>)>>,
    /// Origins to which one is being opened, by a user that has its own.
    dialling: RefCell<Vec<(usize, Rc<Dial>)>>,
}

/// A connection that one request of a user opens while others wait for it.
#[derive(Default)]
pub(super) struct Dial {
    pub(super) is_over: Cell<bool>,
    /// Why there is none. Those that wait share this failure: each would wait as long for its own.
    pub(super) failure: RefCell<Option<Failure>>,
}

impl Pool {
    /// An open connection to this origin that the target has not closed.
    pub(super) fn take(&self, origin: usize) -> Option<Conn> {
        loop {
            let mut idle = self.idle.borrow_mut();
            let at = idle.iter().rposition(|(to, _)| *to == origin)?;
            let (_, mut conn) = idle.swap_remove(at);
            drop(idle);
            if conn.stream.is_quiet() {
                return Some(conn);
            }
        }
    }

    /// An HTTP/2 connection to this origin on which a request may begin. With `is_shared`, no other user gets it
    /// until [`Pool::put_link`] gives it back.
    pub(super) fn link(&self, origin: usize, worker: &Worker, is_shared: bool) -> Option<Rc<Link>> {
        loop {
            let mut links = self.links.borrow_mut();
            let at = links.iter().rposition(|(to, _)| *to == origin)?;
            let link = Rc::clone(&links.get(at)?.1);
            if !link.is_open(worker) {
                links.swap_remove(at);
                continue;
            }
            if is_shared {
                links.swap_remove(at);
            }
            return Some(link);
        }
    }

    pub(super) fn put_link(&self, origin: usize, link: Rc<Link>) {
        self.links.borrow_mut().push((origin, link));
    }

    /// The connection that another request of the same user is opening to this origin. If there is none, this one
    /// must open it, and end with [`Pool::has_dialled`].
    pub(super) fn dials(&self, origin: usize) -> Option<Rc<Dial>> {
        let mut dialling = self.dialling.borrow_mut();
        let found = dialling.iter().find(|(to, _)| *to == origin).map(|(_, dial)| Rc::clone(dial));
        if found.is_none() {
            dialling.push((origin, Rc::default()));
        }
        found
    }

    pub(super) fn has_dialled(&self, origin: usize, failure: Option<&Failure>) {
        let mut dialling = self.dialling.borrow_mut();
        if let Some(at) = dialling.iter().position(|(to, _)| *to == origin) {
            let (_, dial) = dialling.swap_remove(at);
            dial.is_over.set(true);
            *dial.failure.borrow_mut() = failure.cloned();
        }
    }

    pub(super) fn put(&self, origin: usize, conn: Conn) {
        self.idle.borrow_mut().push((origin, conn));
    }
}

impl Crew {
    pub(super) fn new(
        worker: Rc<Worker>,
        journey: &Arc<Journey>,
        threads: usize,
        out: Option<mpsc::Sender<Message>>,
    ) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            journey: Arc::clone(journey),
            tally: RefCell::new(JourneyTally::new(journey)),
            gates: (0..)
                .zip(&worker.shared.courses)
                .map(|(g, course)| Gate::new(journey, g, course, threads, &worker))
                .collect(),
            pool: Rc::default(),
            programs: Programs::default(),
            old: RefCell::default(),
            random: RefCell::new(fastrand::Rng::new()),
            at_work: Cell::new(0),
            witness: RefCell::default(),
            free: RefCell::new(journey.rows.iter().map(|_| Vec::new()).collect()),
            free_count: Cell::new(0),
            counter: Cell::new(0),
            epoch: now.saturating_sub(Duration::from_nanos(worker.clock.now())),
            gap_ns: if out.is_none() { worker.plan.gap_ns } else { 0 },
            next_turn: Cell::new(0),
            out,
            worker,
        }
    }

    /// Whether requests keep a distance from each other.
    pub(super) const fn has_turns(&self) -> bool {
        self.gap_ns > 0
    }

    /// Waits until a request may begin; returns when that was.
    pub(super) async fn turn(&self) -> u64 {
        let clock = self.worker.clock;
        let at = clock.now().max(self.next_turn.get());
        self.next_turn.set(at.saturating_add(self.gap_ns));
        if let Some(instant) = clock.instant(at) {
            tokio::time::sleep_until(instant.into()).await;
        }
        at
    }

    /// The part of a group's load that this moment belongs to.
    pub(super) fn part(&self, group: usize, at: u64) -> Option<usize> {
        self.journey.groups.get(group)?.part_at(at)
    }

    /// Takes over changes of the loads, and notes how far behind they are.
    pub(super) fn follow_courses(&self) {
        let now = self.worker.clock.now();
        let mut behind = 0;
        for (gate, course) in self.gates.iter().zip(&self.worker.shared.courses) {
            gate.follow(course);
            behind += gate.behind(&self.worker, now);
        }
        self.worker.behind.set(behind);
    }

    /// Since the Unix epoch.
    pub(super) fn unix(&self) -> Duration {
        self.epoch + Duration::from_nanos(self.worker.clock.now())
    }

    /// The number of the next request, over all threads.
    pub(super) fn count(&self) -> u64 {
        let n = self.counter.replace(self.counter.get() + 1);
        n * self.worker.plan.stride() + self.worker.plan.place(self.worker.index)
    }

    /// A job for a request of this step.
    pub(super) fn job(&self, step: StepId) -> Box<Job> {
        let job = self.free.borrow_mut().get_mut(usize::from(step.0)).and_then(Vec::pop);
        if job.is_some() {
            self.free_count.set(self.free_count.get() - 1);
        }
        job.unwrap_or_default()
    }

    pub(super) fn give_back(&self, mut job: Box<Job>) {
        let mut free = self.free.borrow_mut();
        let is_short = job.answer.body.capacity() + job.bytes.capacity() <= KEPT_BYTES;
        if let Some(free) = free.get_mut(job.row)
            && self.free_count.get() < FREE_MOST
            && is_short
        {
            job.visited.clear();
            free.push(job);
            self.free_count.set(self.free_count.get() + 1);
        }
    }

    /// The scenario of the group's next iteration. Iterations of all threads are counted together, so that the shares
    /// are exact. None if all its scenarios have ended.
    pub(super) fn choose(&self, group: usize) -> Option<usize> {
        let plan = self.journey.groups.get(group)?;
        for _ in 0..plan.order.len() {
            let turn = plan.turn.fetch_add(1, Ordering::Relaxed) as usize;
            let scenario = *plan.order.get(turn % plan.order.len())? as usize;
            if self.journey.scenarios.get(scenario).is_some_and(|s| s.take_one()) {
                return Some(scenario);
            }
        }
        None
    }

    /// Gives a user rows of the data sets that are drawn at this moment. False if there are none left, which ends the
    /// scenario.
    pub(super) fn deal(&self, scenario: usize, draw: weir_plan::Draw, user: u64, scope: &mut Scope) -> bool {
        let Some(plan) = self.journey.plan.scenarios.get(scenario) else { return false };
        let is_rehearsal = self.witness.borrow().is_some();
        let mut taken = Vec::new();
        for used in plan.data.iter().filter(|used| used.draw == draw) {
            let Some(set) = self.journey.plan.shared.data.get(used.set) else { continue };
            // A row of `once` goes out once: what the dry run sends is not sent again.
            let is_once = set.pick == Pick::Once;
            let dealer = self.journey.dealer(is_rehearsal && !is_once);
            match dealer.deal(used.set, set, user, &mut self.random.borrow_mut()) {
                Dealt::Row(row) => {
                    scope.set_row(used.set, row);
                    taken.push((used.set, set, row));
                }
                ended => {
                    // Another scenario may still need the rows of the other sets.
                    for (number, set, row) in taken {
                        self.journey
                            .dealer(is_rehearsal && set.pick != Pick::Once)
                            .take_back(number, set, row);
                    }
                    self.end(scenario, set.name.as_str(), ended);
                    return false;
                }
            }
        }
        if is_rehearsal {
            let once = taken.iter().filter(|(_, set, _)| set.pick == Pick::Once).count() as u64;
            let rows = self.journey.scenarios.get(scenario).map(|s| &s.rehearsed_rows);
            if let Some(rows) = rows {
                rows.fetch_add(once, Ordering::Relaxed);
            }
        }
        true
    }

    /// A data set has no more rows.
    fn end(&self, scenario: usize, set: &str, how: Dealt) {
        if let Some(s) = self.journey.scenarios.get(scenario) {
            s.is_over.store(true, Ordering::Relaxed);
        }
        if let Some(tally) = self.tally.borrow_mut().scenarios.get_mut(scenario) {
            tally.data_ended = Some(set.to_owned());
        }
        if how == Dealt::Failed {
            self.stop(&format!("the data set `{set}` has no more rows, and its `at_end` is `fail`"));
        }
    }

    /// Ends the run early, with users finishing their iterations.
    pub(super) fn stop(&self, why: &str) {
        if let Some(out) = &self.out {
            let _ = out.send(Message::Fail(Failed(self.journey.masks.apply(why)))); // the coordinator has gone
        }
    }

    /// From when on users break off their iterations, so that the steps of `end` fit into the graceful stop.
    pub(super) fn leave_at(&self) -> u64 {
        let cut = self.worker.shared.cut_at.load(Ordering::Relaxed);
        if cut == NEVER { cut } else { cut.saturating_sub(self.journey.end_reserve) }
    }
}
