//! A user: runs `start`, iterations of `steps`, and `end`.
//!
//! ```text
//!            ┌──────────── next iteration ─────────────┐
//!            ▼                                         │
//! wait for a start ─► rows ─► `start` (first time) ─► `steps` ─► done, broken off or cut
//!            │ no more
//!            ▼
//!         `end` of each scenario that it started
//! ```

use super::crew::{Crew, Pool};
use super::gate;
use super::websocket::{self, Ending, Sockets};
use crate::clock;
use crate::engine::worker::Pause as Why;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use weir_plan::{CookieJar, Cookies, Draw, Scope};

/// A user of one scenario: its values and cookies.
pub(super) struct Session {
    pub(super) scope: Scope,
    pub(super) jar: CookieJar,
    pub(super) has_cookies: bool,
    /// The cookies that each iteration begins with, if the user forgets what its steps got.
    pub(super) first_jar: Option<Box<CookieJar>>,
    /// The rows of data sets that it keeps for its whole life.
    pub(super) has_rows: bool,
    /// Whether `start` is done.
    pub(super) is_started: bool,
    pub(super) iterations: u64,
    /// Time of programs in this iteration, which is in no latency.
    pub(super) apart_ns: u64,
}

/// How a part of a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A step ended it; the row of the step.
    Broken(usize),
    /// The end of the run.
    Cut,
    Whole,
}

pub(super) struct User {
    pub(super) group: usize,
    pub(super) crew: Rc<Crew>,
    /// Its number in the run.
    id: u64,
    pub(super) slot: usize,
    /// Slots for requests at once.
    pub(super) lanes: Range<usize>,
    /// By scenario.
    sessions: Vec<Option<Box<Session>>>,
    pub(super) pool: Rc<Pool>,
    pub(super) sockets: Sockets,
    pub(super) backoff: Duration,
    pub(super) is_seen: bool,
}

/// Runs a user to its end.
pub(super) async fn run(crew: Rc<Crew>, group: usize, number: usize, slot: usize, lanes: Range<usize>) {
    let mut user = User::new(Rc::clone(&crew), group, number, slot, lanes);
    let sockets = Rc::clone(&user.sockets);
    websocket::tend(&crew, &sockets, live(&crew, &mut user, group, number)).await;
    if let Some(slot) = crew.worker.slots.get(slot) {
        let since = crew.worker.clock.now().saturating_sub(crew.worker.shared.measure_from);
        slot.available_ns.set(since.saturating_sub(slot.idle_ns.get()));
    }
}

async fn live(crew: &Rc<Crew>, user: &mut User, group: usize, number: usize) {
    let mut begun = None;
    let slot = user.slot;
    while let Some(intended) = gate::next_start(crew, group, slot, number, begun).await {
        let Some(scenario) = crew.choose(group) else { break };
        begun = Some(intended);
        crew.at_work.set(crew.at_work.get() + 1);
        user.iterate(scenario, intended).await;
        crew.at_work.set(crew.at_work.get() - 1);
        let is_closed = crew.journey.groups.get(group).is_some_and(|g| g.is_closed());
        if !user.backoff.is_zero() && is_closed {
            let until = crew.worker.clock.now().saturating_add(clock::nanos(user.backoff));
            crew.worker.pause_until(slot, until, Why::Failed).await;
        }
    }
    user.end().await;
}

impl User {
    pub(super) fn new(crew: Rc<Crew>, group: usize, number: usize, slot: usize, lanes: Range<usize>) -> Self {
        let sessions = crew.journey.scenarios.iter().map(|_| None).collect();
        let id = crew.journey.groups.get(group).map_or(0, |g| g.first_user) + number as u64;
        let is_shared = crew.journey.groups.get(group).is_some_and(|g| g.shares_connections);
        let pool = if is_shared { Rc::clone(&crew.pool) } else { Rc::default() };
        let (backoff, is_seen) = (Duration::ZERO, false);
        let sockets = Sockets::default();
        Self { crew, group, id, slot, lanes, sessions, pool, sockets, backoff, is_seen }
    }

    /// Makes one iteration, whatever the result.
    pub(super) async fn iterate(&mut self, scenario: usize, intended: u64) -> Ended {
        let crew = Rc::clone(&self.crew);
        let Some(mut session) = self.session(scenario) else { return Ended::Cut };
        let ended = self.iteration(scenario, &mut session, intended).await;
        let ending = if session.is_started { Ending::Iteration } else { Ending::Start(scenario) };
        websocket::close(&crew, &self.sockets, ending);
        let apart = session.apart_ns;
        self.put(scenario, session);
        let counts = crew.worker.counts(intended);
        let (Some(ended), true) = (ended, counts) else { return ended.unwrap_or(Ended::Cut) };
        let mut tally = crew.tally.borrow_mut();
        if let Some(part) = crew.part(self.group, intended).and_then(|part| tally.parts.get_mut(part)) {
            part.started += 1;
            match ended {
                Ended::Whole => {
                    part.done += 1;
                    part.time.record(crew.worker.clock.now().saturating_sub(intended + apart));
                }
                Ended::Broken(_) => part.broken_off += 1,
                Ended::Cut => part.unfinished += 1,
            }
        }
        if let Some(tally) = tally.scenarios.get_mut(scenario) {
            tally.started += 1;
            match ended {
                Ended::Whole => {
                    tally.done += 1;
                    tally.iteration.record(crew.worker.clock.now().saturating_sub(intended + apart));
                }
                Ended::Broken(row) => *tally.broken_off.entry(row).or_default() += 1,
                Ended::Cut => tally.unfinished += 1,
            }
        }
        ended
    }

    /// None if it did not begin, because the data sets have no more rows.
    async fn iteration(&mut self, scenario: usize, session: &mut Session, intended: u64) -> Option<Ended> {
        let crew = Rc::clone(&self.crew);
        let journey = std::sync::Arc::clone(&crew.journey);
        let compiled = journey.scenarios.get(scenario)?;
        if !session.has_rows && !crew.deal(scenario, Draw::User, self.id, &mut session.scope) {
            return None;
        }
        session.has_rows = true;
        if !crew.deal(scenario, Draw::Iteration, self.id, &mut session.scope) {
            return None;
        }
        if crew.worker.counts(intended) {
            crew.worker.tally.borrow_mut().started += 1;
        }
        session.scope.begin_iteration(session.iterations);
        session.apart_ns = 0;
        session.iterations += 1;
        let mut ready = intended;
        if !session.is_started {
            let ended = self.walk(session, &compiled.start, &mut ready).await;
            if ended != Ended::Whole {
                return Some(ended);
            }
            session.is_started = true;
            if let Some(first) = &mut session.first_jar {
                first.copy(&session.jar);
            }
        } else if let Some(first) = &session.first_jar {
            session.jar.copy(first);
        }
        Some(self.walk(session, &compiled.steps, &mut ready).await)
    }

    /// Runs the steps of `end` of each scenario that it started, unless the run is finally over.
    pub(super) async fn end(&mut self) {
        let crew = Rc::clone(&self.crew);
        for scenario in 0..self.sessions.len() {
            let Some(mut session) = self.sessions.get_mut(scenario).and_then(Option::take) else { continue };
            if session.is_started
                && let Some(compiled) = crew.journey.scenarios.get(scenario)
                && !compiled.end.is_empty()
            {
                let mut ready = crew.worker.clock.now();
                let _ = self.walk_all(&mut session, &compiled.end, &mut ready).await; // its rows tell
            }
            if let Some(tally) = crew.tally.borrow_mut().scenarios.get_mut(scenario) {
                tally.cookies_dropped += session.jar.dropped();
            }
        }
        websocket::close(&crew, &self.sockets, Ending::All);
    }

    /// Whether an answer set a cookie.
    pub(super) fn has_cookies(&self) -> bool {
        self.sessions.iter().flatten().any(|session| !session.jar.is_empty())
    }

    fn session(&mut self, scenario: usize) -> Option<Box<Session>> {
        if let Some(session) = self.sessions.get_mut(scenario)?.take() {
            return Some(session);
        }
        let journey = &self.crew.journey;
        let plan = journey.plan.scenarios.get(scenario)?;
        let scope = journey.plan.scope(plan, journey.kept(), self.id);
        Some(Box::new(Session {
            scope,
            jar: CookieJar::default(),
            has_cookies: plan.cookies != Cookies::Off,
            first_jar: (plan.cookies == Cookies::Iteration).then(Box::default),
            has_rows: false,
            is_started: false,
            iterations: 0,
            apart_ns: 0,
        }))
    }

    fn put(&mut self, scenario: usize, session: Box<Session>) {
        if let Some(place) = self.sessions.get_mut(scenario) {
            *place = Some(session);
        }
    }
}
