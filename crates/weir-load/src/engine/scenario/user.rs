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

use super::crew::{Crew, Job, Pool};
use super::gate;
use super::perform::{Slots, perform};
use super::render::{self, Hop};
use super::witness::redacted_body;
use crate::clock;
use crate::engine::worker::Pause as Why;
use crate::scenario::program::{Op, Program};
use crate::transport::failure::Failure;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use weir_plan::{Answer, CookieJar, Draw, OnFailure, Request, Scope};

/// A pause ends at the next millisecond of the runtime's timer. Less lateness than this is not the generator's.
const TIMER_NS: u64 = 2_000_000;

/// Longest pause of a user that cannot connect, as in `engine::client`.
const BACKOFF_MOST: Duration = Duration::from_millis(100);

/// A user of one scenario: its values and cookies.
pub(super) struct Session {
    pub(super) scope: Scope,
    pub(super) jar: CookieJar,
    pub(super) has_cookies: bool,
    /// The rows of data sets that it keeps for its whole life.
    pub(super) has_rows: bool,
    /// Whether `start` is done.
    pub(super) is_started: bool,
    pub(super) iterations: u64,
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

/// What follows the answer to a request.
enum After {
    /// The job holds a further request: a redirect.
    Again,
    Ended(Ended),
}

pub(super) struct User {
    crew: Rc<Crew>,
    /// Its number in the run.
    id: u64,
    slot: usize,
    /// Slots for requests at once.
    lanes: Range<usize>,
    /// By scenario.
    sessions: Vec<Option<Box<Session>>>,
    pool: Rc<Pool>,
    backoff: Duration,
    is_seen: bool,
}

/// Runs a user to its end.
pub(super) async fn run(crew: Rc<Crew>, group: usize, number: usize, slot: usize, lanes: Range<usize>) {
    let mut user = User::new(Rc::clone(&crew), group, number, slot, lanes);
    let mut begun = None;
    while let Some(intended) = gate::next_start(&crew, group, slot, number, begun).await {
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
    if let Some(slot) = crew.worker.slots.get(slot) {
        let since = crew.worker.clock.now().saturating_sub(crew.worker.shared.measure_from);
        slot.available_ns.set(since.saturating_sub(slot.idle_ns.get()));
    }
}

impl User {
    pub(super) fn new(crew: Rc<Crew>, group: usize, number: usize, slot: usize, lanes: Range<usize>) -> Self {
        let sessions = crew.journey.scenarios.iter().map(|_| None).collect();
        let id = crew.journey.groups.get(group).map_or(0, |g| g.first_user) + number as u64;
        let is_shared = crew.journey.groups.get(group).is_some_and(|g| g.shares_connections);
        let pool = if is_shared { Rc::clone(&crew.pool) } else { Rc::default() };
        let (backoff, is_seen) = (Duration::ZERO, false);
        Self { crew, id, slot, lanes, sessions, pool, backoff, is_seen }
    }

    /// Makes one iteration, whatever the result.
    pub(super) async fn iterate(&mut self, scenario: usize, intended: u64) -> Ended {
        let crew = Rc::clone(&self.crew);
        let Some(mut session) = self.session(scenario) else { return Ended::Cut };
        let ended = self.iteration(scenario, &mut session, intended).await;
        self.put(scenario, session);
        let counts = crew.worker.counts(intended);
        let (Some(ended), true) = (ended, counts) else { return ended.unwrap_or(Ended::Cut) };
        let mut tally = crew.tally.borrow_mut();
        if let Some(tally) = tally.scenarios.get_mut(scenario) {
            tally.started += 1;
            match ended {
                Ended::Whole => {
                    tally.done += 1;
                    tally.iteration.record(crew.worker.clock.now().saturating_sub(intended));
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
        session.scope.begin_iteration(session.iterations);
        session.iterations += 1;
        let mut ready = intended;
        if !session.is_started {
            let ended = self.walk(session, &compiled.start, &mut ready).await;
            if ended != Ended::Whole {
                return Some(ended);
            }
            session.is_started = true;
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
            has_cookies: plan.cookies,
            has_rows: false,
            is_started: false,
            iterations: 0,
        }))
    }

    fn put(&mut self, scenario: usize, session: Box<Session>) {
        if let Some(place) = self.sessions.get_mut(scenario) {
            *place = Some(session);
        }
    }

    /// Runs steps, until the graceful stop leaves no more time than `end` needs.
    async fn walk(&mut self, session: &mut Session, program: &Program, ready: &mut u64) -> Ended {
        self.steps(session, program, ready, true).await
    }

    /// Runs steps until the run is cut.
    pub(super) async fn walk_all(
        &mut self,
        session: &mut Session,
        program: &Program,
        ready: &mut u64,
    ) -> Ended {
        self.steps(session, program, ready, false).await
    }

    /// `ready` is when the last pause or step ended.
    async fn steps(
        &mut self,
        session: &mut Session,
        program: &Program,
        ready: &mut u64,
        leaves: bool,
    ) -> Ended {
        let (mut at, mut rounds) = (0, Vec::new());
        while let Some(op) = program.0.get(at) {
            at += 1;
            match op {
                Op::Jump(to) => at = *to,
                Op::Enter => {
                    session.scope.enter_repeat();
                    rounds.push(0u32);
                }
                Op::Next => {
                    session.scope.next_round();
                    rounds.last_mut().into_iter().for_each(|round| *round += 1);
                }
                Op::Leave => {
                    session.scope.leave_repeat();
                    rounds.pop();
                }
                Op::UnlessFewer(most, to) if rounds.last().is_some_and(|round| round >= most) => at = *to,
                Op::UnlessFewer(..) => {}
                Op::UnlessHolds(condition, to) => {
                    session.scope.set_now(self.crew.unix());
                    if !condition.holds(&session.scope) {
                        at = *to;
                    }
                }
                Op::Pause(pause) => {
                    let time = pause.draw(&mut self.crew.random.borrow_mut());
                    if !self.pause(time, leaves).await {
                        return Ended::Cut;
                    }
                    *ready = self.crew.worker.clock.now();
                }
                Op::Request(request) => {
                    if leaves && self.is_to_leave() {
                        return Ended::Cut;
                    }
                    match self.one(session, request, ready).await {
                        Ended::Whole => {}
                        ended => return ended,
                    }
                }
                Op::Parallel(most, requests) => {
                    if leaves && self.is_to_leave() {
                        return Ended::Cut;
                    }
                    match self.together(session, *most, requests, ready).await {
                        Ended::Whole => {}
                        ended => return ended,
                    }
                }
            }
        }
        Ended::Whole
    }

    fn is_to_leave(&self) -> bool {
        self.crew.worker.clock.now() >= self.crew.leave_at()
    }

    /// Waits. False if the run left no time for it.
    async fn pause(&mut self, time: Duration, leaves: bool) -> bool {
        let worker = &self.crew.worker;
        let begun = worker.clock.now();
        let until = begun.saturating_add(clock::nanos(time));
        let Some(slot) = worker.slots.get(self.slot) else { return false };
        slot.end.set(None);
        let whole = loop {
            let cut = if leaves { self.crew.leave_at() } else { u64::MAX };
            let now = worker.clock.now();
            if now >= cut {
                break false;
            }
            if now >= until {
                break true;
            }
            let Some(instant) = worker.clock.instant(until.min(cut)) else { break false };
            let mut sleep = std::pin::pin!(tokio::time::sleep_until(instant.into()));
            let is_cut = poll_fn(|cx| {
                slot.watch(cx);
                // The sampler cuts the run, and Ctrl-C moves the end.
                match slot.end.get().is_some() || (leaves && worker.clock.now() >= self.crew.leave_at()) {
                    true => Poll::Ready(true),
                    false => sleep.as_mut().poll(cx).map(|()| false),
                }
            })
            .await;
            if is_cut {
                break false;
            }
        };
        let now = worker.clock.now();
        slot.think_ns.set(slot.think_ns.get() + now.saturating_sub(begun.max(worker.shared.measure_from)));
        if whole && worker.counts(now) {
            let late = now.saturating_sub(until).saturating_sub(TIMER_NS);
            worker.tally.borrow_mut().start_lag.record(late);
        }
        whole
    }

    /// Runs one step with all its redirects.
    async fn one(&mut self, session: &mut Session, request: &Request, ready: &mut u64) -> Ended {
        let crew = Rc::clone(&self.crew);
        let mut job = crew.job();
        job.ready = *ready;
        let mut outcome = render::first(&crew, session, request, &mut job).map_err(Failure::Write);
        if let Err(failure) = &outcome {
            self.unwritten(&job, failure);
        } else {
            self.note_identity(session, request, &job);
        }
        let slots = Slots { lane: self.slot, user: self.slot };
        let pool = Rc::clone(&self.pool);
        let ended = loop {
            if outcome.is_ok() {
                outcome = perform(&crew, slots, &pool, &mut job).await;
            }
            match self.conclude(session, request, &mut job, outcome) {
                After::Again => outcome = Ok(()),
                After::Ended(ended) => break ended,
            }
        };
        *ready = crew.worker.clock.now();
        crew.give_back(job);
        ended
    }

    /// Runs requests at once, at most `most`; the step ends when all have.
    async fn together(
        &mut self,
        session: &mut Session,
        most: usize,
        requests: &[Request],
        ready: &mut u64,
    ) -> Ended {
        type Running<'a> = Pin<Box<dyn Future<Output = (Box<Job>, Result<(), Failure>)> + 'a>>;
        let crew = Rc::clone(&self.crew);
        let pool = Rc::clone(&self.pool);
        let mut ended = Ended::Whole;
        let mut free: Vec<usize> = std::iter::once(self.slot).chain(self.lanes.clone()).take(most).collect();
        let mut waiting = requests.iter();
        let mut running: Vec<(usize, &Request, Running<'_>)> = Vec::new();
        let start = |slot: usize, user: usize, mut job: Box<Job>| -> Running<'_> {
            let (crew, pool) = (&crew, &pool);
            Box::pin(async move {
                let outcome = perform(crew, Slots { lane: slot, user }, pool, &mut job).await;
                (job, outcome)
            })
        };
        loop {
            while ended == Ended::Whole
                && let Some(slot) = free.pop()
            {
                let Some(request) = waiting.next() else {
                    free.push(slot);
                    break;
                };
                let mut job = crew.job();
                job.ready = *ready;
                match render::first(&crew, session, request, &mut job) {
                    Ok(()) => {
                        self.note_identity(session, request, &job);
                        running.push((slot, request, start(slot, self.slot, job)));
                    }
                    Err(why) => {
                        let failure = Failure::Write(why);
                        self.unwritten(&job, &failure);
                        if let After::Ended(how) = self.conclude(session, request, &mut job, Err(failure)) {
                            ended = worse(ended, how);
                        }
                        free.push(slot);
                    }
                }
            }
            if running.is_empty() {
                break;
            }
            let (at, (mut job, outcome)) = poll_fn(|cx| {
                for (at, (.., future)) in running.iter_mut().enumerate() {
                    if let Poll::Ready(done) = future.as_mut().poll(cx) {
                        return Poll::Ready((at, done));
                    }
                }
                Poll::Pending
            })
            .await;
            let (slot, request, _) = running.swap_remove(at);
            match self.conclude(session, request, &mut job, outcome) {
                After::Again => running.push((slot, request, start(slot, self.slot, job))),
                After::Ended(how) => {
                    ended = worse(ended, how);
                    free.push(slot);
                    crew.give_back(job);
                }
            }
        }
        *ready = crew.worker.clock.now();
        ended
    }

    /// Counts a request that could not be written.
    fn unwritten(&self, job: &Job, failure: &Failure) {
        let worker = &self.crew.worker;
        let now = worker.clock.now();
        worker.begun(1, now);
        if worker.counts(job.ready) {
            worker.tally.borrow_mut().requests += 1;
            let mut tally = self.crew.tally.borrow_mut();
            tally.begun(job.row);
            tally.lost(job.row, failure, 0, 0);
        }
        worker.lost(&[(0, job.ready)], failure, now);
    }

    /// Looks at the answer of a step: cookies, redirects, checks and keeps.
    fn conclude(
        &mut self,
        session: &mut Session,
        request: &Request,
        job: &mut Job,
        outcome: Result<(), Failure>,
    ) -> After {
        let crew = Rc::clone(&self.crew);
        let step = usize::from(request.id.0);
        if let Err(failure) = outcome {
            if failure == Failure::Cut {
                return After::Ended(Ended::Cut);
            }
            let cannot_connect = matches!(
                failure,
                Failure::Connect(_) | Failure::Ports(_) | Failure::Descriptors(_) | Failure::Tls(_)
            );
            if cannot_connect {
                self.backoff = (self.backoff * 2).clamp(Duration::from_millis(1), BACKOFF_MOST);
            }
            self.witnessed(request, failure.text(), job);
            // Without an answer there is nothing to keep, and later steps need it.
            let ends = !request.keeps.is_empty();
            return After::Ended(self.failed(request, step, ends));
        }
        self.backoff = Duration::ZERO;
        if session.has_cookies
            && let Some(origin) = crew.journey.plan.origins.get(job.origin)
        {
            session.jar.store(origin, &job.path, &job.answer.head.headers, crew.unix());
        }
        match render::follow(&crew, session, request, job) {
            Hop::None => {}
            Hop::Next => return After::Again,
            Hop::Broken(why) => {
                if crew.worker.counts(job.ready) {
                    let mut tally = crew.worker.tally.borrow_mut();
                    tally.error_text(&why);
                    // The checks are about an answer that nobody got.
                    tally.failed_checks += 1;
                    if let Some(row) = crew.tally.borrow_mut().steps.get_mut(step) {
                        row.checks.iter_mut().for_each(|(_, failed)| *failed += 1);
                    }
                }
                self.witnessed(request, &why, job);
                return After::Ended(self.failed(request, step, true));
            }
        }
        self.judged(session, request, job)
    }

    /// Checks and keeps.
    fn judged(&mut self, session: &mut Session, request: &Request, job: &Job) -> After {
        let crew = Rc::clone(&self.crew);
        let step = usize::from(request.id.0);
        let response = &job.answer.response;
        let mut answer = Answer::new(response.status, &job.answer.head.headers, &job.answer.body);
        answer.body_bytes = response.body_bytes;
        answer.is_cut = request.needs_body && response.body_bytes > job.answer.body.len() as u64;
        let counts = crew.worker.counts(job.ready);
        let elapsed = Duration::from_nanos(job.times.done.saturating_sub(job.ready));
        let (mut bad, mut missing) = (None, None);
        let mut tally = crew.tally.borrow_mut();
        let mut counted = tally.steps.get_mut(step).filter(|_| counts);
        for (i, check) in request.checks.iter().enumerate() {
            let judged = check.judge(&answer, elapsed);
            if let Some((passed, failed)) = counted.as_mut().and_then(|t| t.checks.get_mut(i)) {
                *(if judged.is_ok() { passed } else { failed }) += 1;
            }
            bad = bad.or(judged.err());
        }
        for (i, keep) in request.keeps.iter().enumerate() {
            let taken = keep.take(&answer, &mut session.scope, &mut crew.random.borrow_mut());
            if let Some(keep) = counted.as_mut().and_then(|t| t.keeps.get_mut(i)) {
                match &taken {
                    Ok(()) => keep.taken += 1,
                    Err(failure) => {
                        keep.failed += 1;
                        keep.sample.get_or_insert_with(|| {
                            format!(
                                "{failure}; status {}, body `{}`",
                                answer.status,
                                redacted_body(answer.body)
                            )
                        });
                    }
                }
            }
            missing = missing.or(taken.err());
        }
        drop(tally);
        if counts && bad.is_some() {
            crew.worker.tally.borrow_mut().failed_checks += 1;
        }
        if let Some(failure) = &missing {
            self.witnessed(request, &failure.to_string(), job);
        } else if let Some(failure) = &bad {
            self.witnessed(request, &format!("check {failure}"), job);
        }
        After::Ended(match (&missing, &bad) {
            (None, None) => Ended::Whole,
            _ => self.failed(request, step, missing.is_some()),
        })
    }

    /// What a failed step does to the iteration. `ends` says that it cannot go on in any case.
    fn failed(&self, request: &Request, step: usize, ends: bool) -> Ended {
        match request.on_failure {
            OnFailure::GoOn if !ends => Ended::Whole,
            OnFailure::GoOn | OnFailure::End => Ended::Broken(step),
            OnFailure::Stop => {
                let name = self.crew.journey.plan.step(request.id).map_or("", |s| &*s.name);
                self.crew.stop(format!("step `{name}` failed, and its `on_failure` is `stop`"));
                Ended::Broken(step)
            }
        }
    }

    fn witnessed(&self, request: &Request, why: &str, job: &Job) {
        if let Some(witness) = &mut *self.crew.witness.borrow_mut() {
            let name = self.crew.journey.plan.step(request.id).map_or("", |s| &*s.name);
            witness.note(name, why, job);
        }
    }

    /// Notes the credentials of a request: of its `authorization`, or of its body where the step is a login.
    fn note_identity(&mut self, session: &Session, request: &Request, job: &Job) {
        let Some(scenario) = self.crew.journey.plan.step(request.id).and_then(|s| s.scenario) else { return };
        if !self.is_seen {
            self.is_seen = true;
            if let Some(tally) = self.crew.tally.borrow_mut().scenarios.get_mut(scenario) {
                tally.users_seen += 1;
            }
        }
        // A user has the same credentials in every iteration, so only the first is read.
        if session.iterations > 1 || !self.crew.journey.has_credentials(usize::from(request.id.0)) {
            return;
        }
        let mut lines = job.bytes.get(..job.head_bytes).unwrap_or_default().split(|b| *b == b'\n');
        let field = lines.find(|l| l.get(..14).is_some_and(|n| n.eq_ignore_ascii_case(b"authorization:")));
        let what = field.unwrap_or(&job.body);
        let digest = what
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |n, b| (n ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        self.crew.tally.borrow_mut().identity(scenario, digest);
    }
}

/// The worse of two ends.
const fn worse(a: Ended, b: Ended) -> Ended {
    match (a, b) {
        (Ended::Cut, _) | (_, Ended::Cut) => Ended::Cut,
        (Ended::Broken(row), _) | (_, Ended::Broken(row)) => Ended::Broken(row),
        (Ended::Whole, Ended::Whole) => Ended::Whole,
    }
}
