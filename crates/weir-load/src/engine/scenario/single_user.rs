//! One user without load: setup before the run, a dry run of each scenario, teardown after it.

use super::crew::Crew;
use super::user::{Ended, Session, User};
use super::websocket::{self, Ending};
use super::witness::Witness;
use crate::clock::{self, Clock};
use crate::engine::Interrupt;
use crate::engine::preconnect::Ahead;
use crate::engine::shared::Shared;
use crate::engine::worker::{EndReason, Worker};
use crate::plan::Plan;
use crate::scenario::calls;
use crate::scenario::tally::JourneyTally;
use crate::scenario::{Failed, Journey};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use weir_plan::{CookieJar, Scope};
use weir_report::units;

/// How long teardown may take once Ctrl-C has ended the load, or from Ctrl-C on.
const TEARDOWN_MOST: Duration = Duration::from_secs(5);

/// How often timeouts are looked for.
const SWEEP: Duration = Duration::from_millis(20);

/// Runs `setup`, and then each scenario once if the plan has a dry run. If that fails after `setup` is done, runs
/// `teardown` too, since no load follows. A second call does nothing.
pub(crate) fn prepare(plan: &Arc<Plan>, journey: &Arc<Journey>, interrupt: &Interrupt) -> Result<(), Failed> {
    // Also where another agent has run setup: methods are not among what it passes on.
    calls::ask(journey, &plan.origins, || interrupt.is_ended())?;
    if journey.prepared.get().is_some() {
        return Ok(());
    }
    let ends = || interrupt.is_ended().then(|| "interrupted before the load began".to_owned());
    let outcome = solo(plan, journey, ends, async |crew| {
        let mut scope = journey.plan.scope_of_setup();
        if !journey.setup.is_empty() {
            let session = Session::around(scope);
            let (session, failed) = around(&crew, &journey.setup, session).await;
            scope = session.scope;
            if let Some(why) = failed {
                return Err(Failed(format!("setup: {why}")));
            }
        }
        let _ = journey.kept.set(scope.into_setup()); // set once, before any user
        count(journey, &crew);
        if !journey.is_rehearsed {
            return Ok(());
        }
        for (group, plan) in journey.groups.iter().enumerate() {
            for scenario in &plan.scenarios {
                rehearse(&crew, group, *scenario).await?;
            }
        }
        Ok(())
    });
    match outcome {
        Ok(()) => {
            let _ = journey.prepared.set(()); // the first wins, and did the same
            Ok(())
        }
        Err(Failed(why)) if journey.teardown.is_empty() => Err(Failed(why)),
        Err(Failed(why)) => {
            let told = match journey.kept.get() {
                // Without what setup keeps, it could delete something else.
                None => "teardown did not run, because setup did not come to its end".to_owned(),
                Some(_) => match finish(plan, journey, interrupt, Some(plan.grace)) {
                    Ok(()) => "teardown ran".to_owned(),
                    Err(Failed(also)) => also,
                },
            };
            Err(Failed(format!("{}\n{told}", why.trim_end())))
        }
    }
}

/// Runs `teardown`, for at most the given time. Its failures are in its rows.
pub(crate) fn finish(
    plan: &Arc<Plan>,
    journey: &Arc<Journey>,
    interrupt: &Interrupt,
    most: Option<Duration>,
) -> Result<(), Failed> {
    if journey.teardown.is_empty() {
        return Ok(());
    }
    // An interrupted run is torn down too, but nobody waits for long after Ctrl-C.
    let begun = Instant::now();
    let interrupted = Cell::new(None);
    let ends = || {
        if interrupt.is_ended() && interrupted.get().is_none() {
            interrupted.set(Some(Instant::now()));
        }
        if interrupted.get().is_some_and(|at| at.elapsed() >= TEARDOWN_MOST) {
            let seconds = TEARDOWN_MOST.as_secs();
            return Some(format!(
                "teardown: cut {seconds} s after the run was interrupted, before its last step"
            ));
        }
        most.filter(|most| begun.elapsed() >= *most).map(|most| {
            let time = units::time(clock::nanos(most) as f64);
            format!("teardown: cut after {time}, before its last step")
        })
    };
    solo(plan, journey, ends, async |crew| {
        let session = Session::around(journey.plan.scope_of_teardown(journey.kept()));
        let (_, failed) = around(&crew, &journey.teardown, session).await;
        count(journey, &crew);
        failed.map_or(Ok(()), |why| Err(Failed(format!("teardown: {why}"))))
    })
}

/// Runs the steps of `setup` or `teardown`. Returns what failed.
async fn around(
    crew: &Rc<Crew>,
    program: &crate::scenario::program::Program,
    mut session: Session,
) -> (Session, Option<String>) {
    *crew.witness.borrow_mut() = Some(Witness::default());
    let mut user = User::new(Rc::clone(crew), 0, 0, 0, 1..crew.worker.slots.len());
    let mut ready = crew.worker.clock.now();
    let sockets = Rc::clone(&user.sockets);
    let ended = websocket::tend(crew, &sockets, user.walk_all(&mut session, program, &mut ready)).await;
    websocket::close(crew, &sockets, Ending::All);
    let failed = crew.witness.borrow_mut().take().and_then(|w| w.failed);
    let failed = failed.or_else(|| (ended != Ended::Whole).then(|| "it was cut".to_owned()));
    (session, failed)
}

/// Runs one scenario once.
async fn rehearse(crew: &Rc<Crew>, group: usize, scenario: usize) -> Result<(), Failed> {
    *crew.witness.borrow_mut() = Some(Witness::default());
    let mut user = User::new(Rc::clone(crew), group, 0, 0, 1..crew.worker.slots.len());
    let sockets = Rc::clone(&user.sockets);
    let ended = websocket::tend(crew, &sockets, async {
        let ended = user.iterate(scenario, crew.worker.clock.now()).await;
        if user.has_cookies() {
            crew.journey.has_cookies.store(true, Ordering::Relaxed);
        }
        user.end().await;
        ended
    })
    .await;
    let failed = crew.witness.borrow_mut().take().and_then(|w| w.failed);
    let name = crew.journey.scenario_name(Some(scenario));
    match (failed, ended) {
        (Some(why), _) => Err(Failed(format!("dry run of `{name}`: {why}"))),
        (None, Ended::Whole) => Ok(()),
        (None, _) => {
            let ended = crew.tally.borrow().scenarios.get(scenario).and_then(|s| s.data_ended.clone());
            let why = ended.map_or_else(
                || "it did not come to its end".to_owned(),
                |set| format!("the data set `{set}` has no row left for it: earlier dry runs took them"),
            );
            Err(Failed(format!("dry run of `{name}`: {why}")))
        }
    }
}

/// Adds the rows of setup and teardown.
fn count(journey: &Journey, crew: &Crew) {
    let tally = std::mem::replace(&mut *crew.tally.borrow_mut(), JourneyTally::new(journey));
    let mut all = journey.around.lock().unwrap_or_else(PoisonError::into_inner);
    for (row, (all, one)) in all.steps.iter_mut().zip(tally.steps).enumerate() {
        if journey.rows.get(row).is_some_and(|r| r.scenario.is_none()) && one.requests > 0 {
            *all = one;
        }
    }
}

/// Runs one user on a runtime of its own, with timeouts and without the counts of a run. `ends` says why it must end
/// now, if it must.
fn solo<F>(
    plan: &Arc<Plan>,
    journey: &Arc<Journey>,
    ends: impl Fn() -> Option<String>,
    work: impl FnOnce(Rc<Crew>) -> F,
) -> Result<(), Failed>
where
    F: Future<Output = Result<(), Failed>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|e| Failed(e.to_string()))?;
    if plan.origins.iter().any(|o| o.tls.is_some()) {
        weir_wire::random::make_ready();
    }
    let shared = Shared::alone(plan);
    let slots = journey.groups.iter().map(|g| g.slots).max().unwrap_or(1).max(
        [&journey.setup, &journey.teardown]
            .map(crate::scenario::program::Program::most_at_once)
            .into_iter()
            .max()
            .unwrap_or(1),
    );
    let clock = *shared.clock.get_or_init(Clock::start);
    let worker = Worker::new(Arc::clone(plan), Arc::new(shared), clock, 0, (0, slots), Ahead::default());
    let crew = Rc::new(Crew::new(Rc::new(worker), journey, 1, None));
    runtime.block_on(async {
        let mut work = std::pin::pin!(work(Rc::clone(&crew)));
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                () = tokio::time::sleep(SWEEP) => {
                    if let Some(why) = ends() {
                        count(journey, &crew);
                        break Err(Failed(why));
                    }
                    let now = crew.worker.clock.now();
                    for slot in crew.worker.slots.iter().filter(|slot| now >= slot.deadline.get()) {
                        slot.end.set(Some(EndReason::Timeout));
                        slot.wake();
                    }
                }
            }
        };
        #[cfg(feature = "http3")]
        crew.worker.endpoints.end().await;
        outcome
    })
}

impl Session {
    /// The one of `setup` or `teardown`.
    fn around(scope: Scope) -> Self {
        Self {
            scope,
            jar: CookieJar::default(),
            has_cookies: true,
            first_jar: None,
            has_rows: true,
            is_started: true,
            iterations: 0,
            apart_ns: 0,
        }
    }
}
