//! How a user walks through the steps of a part: jumps, pauses, one request, or several at once.

use super::crew::Job;
use super::exec::Unanswered;
use super::judge::After;
use super::perform::{Slots, perform};
use super::render;
use super::user::{Ended, Session, User};
use super::websocket::Talk;
use crate::clock;
use crate::scenario::program::{Op, Program};
use crate::transport::failure::Failure;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use weir_plan::{Exec, Kind, Request};
use weir_wire::time;

/// A pause ends at the next millisecond of the runtime's timer. Less lateness than this is not the generator's.
const TIMER_NS: u64 = 2_000_000;

/// Rounds of `repeat` and `while` after which others have their turn.
const TURNS: u32 = 100;

/// Lets other tasks of the thread run once; on either kind of reactor.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl User {
    /// Runs steps, until the graceful stop leaves no more time than `end` needs.
    pub(super) async fn walk(&mut self, session: &mut Session, program: &Program, ready: &mut u64) -> Ended {
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
        let (mut at, mut rounds, mut turns) = (0, Vec::new(), 0u32);
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
                    // A round may hold nothing that waits; the sampler and other users must run all the same.
                    turns = turns.wrapping_add(1);
                    if turns.is_multiple_of(TURNS) {
                        yield_now().await;
                        if self.crew.worker.is_abandoned() || (leaves && self.is_to_leave()) {
                            return Ended::Cut;
                        }
                    }
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
                Op::Exec(exec) => {
                    if leaves && self.is_to_leave() {
                        return Ended::Cut;
                    }
                    match self.ask(session, exec, ready).await {
                        Ended::Whole => {}
                        ended => return ended,
                    }
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
            let mut sleep = std::pin::pin!(time::sleep_until(instant));
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
        let mut job = crew.job(request.id);
        job.ready = *ready;
        let written = render::first(&crew, session, request, &mut job);
        let mut outcome = written.map_err(|why| Failure::Write(crew.journey.masks.apply(&why)));
        if let Err(failure) = &outcome {
            self.unwritten(&job, failure);
        } else {
            self.note_identity(session, request, &job);
        }
        let slots = Slots { lane: self.slot, user: self.slot, group: self.group };
        let sockets = Rc::clone(&self.sockets);
        let is_talk = request.kind == Kind::WebSocket;
        let talk = is_talk.then_some(Talk { sockets: &sockets, request });
        let pool = Rc::clone(&self.pool);
        let ended = loop {
            if outcome.is_ok() {
                outcome = perform(&crew, slots, &pool, talk, &mut job).await;
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

    /// Asks a program. Its time is in the step's row and in no latency.
    async fn ask(&mut self, session: &mut Session, exec: &Exec, ready: &mut u64) -> Ended {
        let crew = Rc::clone(&self.crew);
        let (worker, row) = (&crew.worker, usize::from(exec.id.0));
        let Some(slot) = worker.slots.get(self.slot) else { return Ended::Cut };
        let (begun, counts) = (worker.clock.now(), worker.counts(*ready));
        if counts {
            crew.tally.borrow_mut().begun(row);
        }
        session.scope.set_counter(crew.count());
        session.scope.set_now(crew.unix());
        let mut line = Vec::new();
        let written = exec.message.write(&session.scope, &mut line, &mut crew.random.borrow_mut());
        let outcome = match written {
            Ok(()) => crew.programs.ask(&exec.command, &line, exec.timeout, slot).await,
            Err(why) => Err(Unanswered { failure: Failure::Write(why.to_string()), is_final: false }),
        };
        let now = worker.clock.now();
        let apart = now.saturating_sub(begun.max(worker.shared.measure_from));
        slot.think_ns.set(slot.think_ns.get() + apart);
        session.apart_ns += now.saturating_sub(begun);
        *ready = now;
        self.told(session, exec, outcome, (line.len() as u64 + 1, counts))
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
        let group = self.group;
        let start = |slot: usize, user: usize, mut job: Box<Job>| -> Running<'_> {
            let (crew, pool) = (&crew, &pool);
            Box::pin(async move {
                let outcome = perform(crew, Slots { lane: slot, user, group }, pool, None, &mut job).await;
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
                let mut job = crew.job(request.id);
                job.ready = *ready;
                match render::first(&crew, session, request, &mut job) {
                    Ok(()) => {
                        self.note_identity(session, request, &job);
                        running.push((slot, request, start(slot, self.slot, job)));
                    }
                    Err(why) => {
                        let failure = Failure::Write(crew.journey.masks.apply(&why));
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
}

/// The worse of two ends.
const fn worse(a: Ended, b: Ended) -> Ended {
    match (a, b) {
        (Ended::Cut, _) | (_, Ended::Cut) => Ended::Cut,
        (Ended::Broken(row), _) | (_, Ended::Broken(row)) => Ended::Broken(row),
        (Ended::Whole, Ended::Whole) => Ended::Whole,
    }
}
