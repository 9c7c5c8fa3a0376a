//! Evaluates an answer for its user: cookies, redirects, checks and keeps, and whether the iteration goes on.

use super::crew::Job;
use super::exec::{Told, Unanswered};
use super::render::{self, Hop};
use super::user::{Ended, Session, User};
use super::witness::redacted_body;
use crate::transport::failure::Failure;
use std::rc::Rc;
use std::time::Duration;
use weir_h1::Fields;
use weir_plan::{Answer, Exec, Keep, KeepFailure, Kind, OnFailure, Request, StepId};

/// Longest pause of a user that cannot connect, as in `engine::client`.
const BACKOFF_MOST: Duration = Duration::from_millis(100);

/// What follows the answer to a request.
pub(super) enum After {
    /// The job holds a further request: a redirect.
    Again,
    Ended(Ended),
}

impl User {
    /// Counts a request that could not be written.
    pub(super) fn unwritten(&self, job: &Job, failure: &Failure) {
        let worker = &self.crew.worker;
        let now = worker.clock.now();
        worker.begun(1, now);
        let part = self.crew.part(self.group, job.ready);
        if worker.counts(job.ready) {
            worker.tally.borrow_mut().began_in(part);
            let mut tally = self.crew.tally.borrow_mut();
            tally.begun(job.row);
            tally.lost(job.row, failure, 0, 0);
        }
        worker.lost_in(part, job.ready, failure, now);
    }

    /// Looks at the answer of a step: cookies, redirects, checks and keeps.
    pub(super) fn conclude(
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
            && request.kind != Kind::Grpc
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
                    tally.error_text(&crew.journey.masks.apply(&why));
                    // The checks are about an answer that nobody got.
                    tally.failed_checks += 1;
                    if let Some(row) = crew.tally.borrow_mut().steps.get_mut(step) {
                        row.checks.iter_mut().for_each(|(_, failed)| *failed += 1);
                    }
                    let part = crew.part(self.group, job.ready);
                    if let Some(part) = part.and_then(|part| tally.parts.get_mut(part)) {
                        part.failed_checks += 1;
                        let numbers = crew.journey.rows.get(step).map_or(&[][..], |row| &row.check_numbers);
                        numbers.iter().for_each(|i| part.count_check(*i, false));
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
        // Keeps and checks see the messages of a call as JSON.
        let method = crew.journey.method(step).filter(|_| request.needs_body);
        let json = method.map(|m| m.call.json(&job.answer.body).unwrap_or_default());
        let body = json.as_deref().unwrap_or(&job.answer.body);
        let mut answer = Answer::new(response.status, &job.answer.head.headers, body);
        answer.code = response.grpc;
        answer.body_bytes = response.body_bytes;
        answer.is_cut = request.needs_body && response.body_bytes > job.answer.body.len() as u64;
        let counts = crew.worker.counts(job.ready);
        let elapsed = Duration::from_nanos(job.times.done.saturating_sub(job.ready));
        let mut bad = None;
        let mut tally = crew.tally.borrow_mut();
        let mut counted = tally.steps.get_mut(step).filter(|_| counts);
        let mut totals = crew.worker.tally.borrow_mut();
        let part = crew.part(self.group, job.ready).filter(|_| counts);
        let mut of_part = part.and_then(|part| totals.parts.get_mut(part));
        let numbers = crew.journey.rows.get(step).map_or(&[][..], |row| &row.check_numbers);
        for (i, check) in request.checks.iter().enumerate() {
            let judged = check.judge(&answer, elapsed);
            if let Some((passed, failed)) = counted.as_mut().and_then(|t| t.checks.get_mut(i)) {
                *(if judged.is_ok() { passed } else { failed }) += 1;
            }
            if let Some(part) = &mut of_part
                && let Some(number) = numbers.get(i)
            {
                part.count_check(*number, judged.is_ok());
            }
            bad = bad.or(judged.err());
        }
        if let Some(part) = &mut of_part {
            part.failed_checks += u64::from(bad.is_some());
        }
        drop(totals);
        drop(tally);
        let missing = self.keep(session, &request.keeps, &answer, counts.then_some(step));
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

    /// Keeps values of an answer. `row` is the step's, if this counts. Returns the first that failed.
    fn keep(
        &self,
        session: &mut Session,
        keeps: &[Keep],
        answer: &Answer<'_>,
        row: Option<usize>,
    ) -> Option<KeepFailure> {
        let mut missing = None;
        for (i, keep) in keeps.iter().enumerate() {
            let taken = keep.take(answer, &mut session.scope, &mut self.crew.random.borrow_mut());
            let mut tally = self.crew.tally.borrow_mut();
            let counted = row.and_then(|row| tally.steps.get_mut(row)).and_then(|t| t.keeps.get_mut(i));
            match (counted, &taken) {
                (Some(keep), Ok(())) => keep.taken += 1,
                (Some(keep), Err(failure)) => {
                    keep.failed += 1;
                    keep.sample.get_or_insert_with(|| {
                        let body = redacted_body(answer.body, &self.crew.journey.masks);
                        let status = if answer.status == 0 {
                            String::new()
                        } else {
                            format!("status {}, ", answer.status)
                        };
                        self.crew.journey.masks.apply(&format!("{failure}; {status}body `{body}`"))
                    });
                }
                (None, _) => {}
            }
            missing = missing.or(taken.err());
        }
        missing
    }

    /// Looks at the answer of a program: keeps values of it.
    pub(super) fn told(
        &self,
        session: &mut Session,
        exec: &Exec,
        outcome: Result<Told, Unanswered>,
        (sent, counts): (u64, bool),
    ) -> Ended {
        let crew = &self.crew;
        let row = usize::from(exec.id.0);
        let told = match outcome {
            Ok(told) => told,
            Err(Unanswered { failure, is_final }) => {
                if counts {
                    crew.tally.borrow_mut().lost(row, &failure, sent, 0);
                }
                if failure == Failure::Cut {
                    return Ended::Cut;
                }
                if counts {
                    crew.worker.tally.borrow_mut().error_text(&crew.worker.plan.masked(failure.text()));
                }
                if is_final {
                    crew.stop(failure.text());
                }
                self.noted(exec.id, failure.text(), &Job::default());
                return Ended::Broken(row);
            }
        };
        if counts {
            let time = crate::clock::nanos(told.time);
            let in_window = crew.worker.clock.now() <= crew.worker.stop_at();
            crew.tally.borrow_mut().told(row, time, (sent, told.line.len() as u64 + 1), in_window);
        }
        let fields = Fields::default();
        let answer = Answer::new(0, &fields, &told.line);
        match self.keep(session, &exec.keeps, &answer, counts.then_some(row)) {
            None => Ended::Whole,
            Some(failure) => {
                self.noted(exec.id, &failure.to_string(), &Job::default());
                Ended::Broken(row)
            }
        }
    }

    /// What a failed step does to the iteration. `ends` says that it cannot go on in any case.
    fn failed(&self, request: &Request, step: usize, ends: bool) -> Ended {
        match request.on_failure {
            OnFailure::GoOn if !ends => Ended::Whole,
            OnFailure::GoOn | OnFailure::End => Ended::Broken(step),
            OnFailure::Stop => {
                let name = self.crew.journey.plan.step(request.id).map_or("", |s| &*s.name);
                self.crew.stop(&format!("step `{name}` failed, and its `on_failure` is `stop`"));
                Ended::Broken(step)
            }
        }
    }

    fn witnessed(&self, request: &Request, why: &str, job: &Job) {
        self.noted(request.id, why, job);
    }

    fn noted(&self, step: StepId, why: &str, job: &Job) {
        if let Some(witness) = &mut *self.crew.witness.borrow_mut() {
            let name = self.crew.journey.plan.step(step).map_or("", |s| &*s.name);
            witness.note(name, why, job, &self.crew.journey.masks);
        }
    }

    /// Notes the credentials of a request: of its `authorization`, or of its body where the step is a login.
    pub(super) fn note_identity(&mut self, session: &Session, request: &Request, job: &Job) {
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
