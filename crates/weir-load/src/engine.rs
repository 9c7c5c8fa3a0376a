//! Runs a plan: per core one thread with a single-threaded runtime, with the clients divided among the threads. A
//! request touches nothing shared, except one counter if the plan has a count.
//!
//! *Layout.* This file is the coordinator: it starts the threads, merges their ticks and makes the report. `thread` is
//! one of the threads, `worker` the state that its tasks share, with sampler and pacer; `shared` is the state of all
//! threads. `commands` carries out commands from the control socket. `pulse` notices when the generator does not run.
//! `replay` paces recorded requests. `preconnect` opens connections before a fixed rate begins. `client` is the client
//! loop; `h1` is an exchange over HTTP/1.1, `h2` one over HTTP/2, `websocket` a message and its answer. `scenario` runs
//! users in place of clients. `tally` holds the counts, `blocks` those of `--rounds`. Connections and bytes are in
//! `transport`. A new protocol is a new module beside `h1`.

mod blocks;
mod client;
mod commands;
mod h1;
mod h2;
mod merge;
pub(crate) mod preconnect;
mod pulse;
pub(crate) mod replay;
mod scenario;
pub(crate) mod shared;
pub(crate) mod tally;
mod thread;
mod websocket;
pub(crate) mod worker;

pub use scenario::kill_programs;

use crate::clock::{self, Clock};
use crate::cores;
use crate::cost::{Begun, Watch};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::scenario::{Failed, Journey};
use crate::throttle::Throttled;
use commands::Hand;
use merge::Merge;
use shared::{Message, Shared};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};
use weir_report::report::{Change, End, Report};

/// How often the caller gets progress.
const LOOK: Duration = Duration::from_millis(250);

/// Ends a run from outside, for example on Ctrl-C. Clones end the same run. If several runs share one, it ends the
/// current run and all later ones.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<Interrupted>>);

#[derive(Debug, Default)]
struct Interrupted {
    ended: bool,
    run: Option<mpsc::Sender<Message>>,
}

impl Interrupt {
    /// Ends the run now, without a graceful stop; the report covers what was measured so far. Users of scenarios break
    /// off their iterations and run the steps of `end`. These may take as long as at the planned end of a run: a
    /// quarter of the graceful stop, at most 5 s. A later run ends immediately.
    pub fn end(&self) {
        self.interrupt(Message::Interrupt);
    }

    /// Ends the run at once: users run no steps of `end`.
    pub(crate) fn cut(&self) {
        self.interrupt(Message::Cut);
    }

    fn interrupt(&self, how: Message) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = true;
        if let Some(run) = &state.run {
            let _ = run.send(how); // the run has ended meanwhile
        }
    }

    /// Lets no further request begin; those under way may finish within the graceful stop. A run that has not begun is
    /// ended.
    pub fn halt(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.run {
            Some(run) => drop(run.send(Message::Halt)), // the run has ended meanwhile
            None => state.ended = true,
        }
    }

    /// Whether it was ended.
    pub fn is_ended(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    /// Applies to this run from now on.
    fn ends(&self, run: &mpsc::Sender<Message>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            let _ = run.send(Message::Interrupt); // the caller owns the inbox, so it exists
        }
        state.run = Some(run.clone());
    }
}

/// What a coordinator tells one of several agents about its run.
pub(crate) struct Direction {
    /// When to begin. Default at once.
    pub(crate) start_at: Option<Instant>,
    /// Hears when the load has begun.
    pub(crate) started: Option<Box<dyn FnOnce(Instant) + Send>>,
    /// Until when requests may begin, by the run's clock; it moves on.
    pub(crate) lease: Option<Arc<AtomicU64>>,
    /// Whether this agent runs `teardown`, which may become its task during the run.
    pub(crate) tears_down: Arc<AtomicBool>,
    /// Becomes true when it has run `teardown`.
    pub(crate) torn_down: Arc<AtomicBool>,
    /// Allows it.
    pub(crate) teardown: Option<mpsc::Receiver<()>>,
}

impl Default for Direction {
    fn default() -> Self {
        let tears_down = Arc::new(AtomicBool::new(true));
        Self {
            start_at: None,
            started: None,
            lease: None,
            tears_down,
            torn_down: Arc::default(),
            teardown: None,
        }
    }
}

impl Direction {
    /// Waits for the start, or until it will not come.
    fn wait(&self, interrupt: &Interrupt) {
        const NAP: Duration = Duration::from_millis(20);
        let Some(at) = self.start_at else { return };
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() || interrupt.is_ended() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

impl Plan {
    /// Runs `setup`, and each scenario once if there is a dry run: before a run, or by it.
    ///
    /// # Errors
    /// What failed, with the heads of request and response, or that it was interrupted. Nothing more is sent then.
    pub fn prepare(self: &Arc<Self>, interrupt: &Interrupt) -> Result<(), Failed> {
        self.journey.as_ref().map_or(Ok(()), |journey| scenario::prepare(self, journey, interrupt))
    }

    /// Runs the plan to its end and returns the report. Calls `look` four times a second on the calling thread; it
    /// may print.
    ///
    /// # Errors
    /// A thread or its runtime cannot be created. Failures of the target are no errors; they are in the report.
    pub fn run(self, interrupt: &Interrupt, look: impl FnMut(&Progress<'_>)) -> std::io::Result<Report> {
        Self::run_shared(Arc::new(self), interrupt, look)
    }

    /// Like [`Plan::run`], for a plan that the caller goes on to hold.
    ///
    /// # Errors
    /// As those of [`Plan::run`]; with scenarios, also a step of `setup` or of the dry run that failed.
    pub fn run_shared(
        plan: Arc<Self>,
        interrupt: &Interrupt,
        look: impl FnMut(&Progress<'_>),
    ) -> std::io::Result<Report> {
        Self::run_directed(plan, interrupt, Direction::default(), look)
    }

    /// Like [`Plan::run_shared`], as one of several agents.
    pub(crate) fn run_directed(
        plan: Arc<Self>,
        interrupt: &Interrupt,
        direction: Direction,
        mut look: impl FnMut(&Progress<'_>),
    ) -> std::io::Result<Report> {
        let _ = weir_wire::limits::raise_descriptors(); // on failure the run has fewer connections, and says so
        if let Some(journey) = &plan.journey {
            scenario::prepare(&plan, journey, interrupt).map_err(std::io::Error::other)?;
        }
        if let (Some(plain), Some(journey)) = (&plan.plain, &plan.journey)
            && !journey.has_cookies.load(Ordering::Relaxed)
        {
            let mut report = Self::run_directed(Arc::clone(plain), interrupt, direction, look)?;
            crate::scenario::add_plain_rows(&mut report, journey);
            report.thresholds = plan.thresholds.iter().map(|t| t.judge(&report)).collect();
            report.verdict = weir_report::verdict::judge(&report);
            return Ok(report);
        }
        // A run that is not judged by processor use need not know who had the processors.
        let is_judged = plan.stop_ns.is_none_or(|ns| ns >= weir_report::verdict::JUDGED_NS);
        let mut before = None;
        let (out, inbox) = mpsc::channel();
        interrupt.ends(&out);
        let mut shared = Shared::new(&plan);
        if let Some(lease) = &direction.lease {
            shared.lease = Arc::clone(lease);
        }
        let shared = Arc::new(shared);
        if plan.replay.is_some() {
            read_recording(&plan, &shared, interrupt)?;
        }
        let (ready, all_ready) = mpsc::channel();
        let mut threads = Vec::new();
        for index in 0..plan.threads {
            let (plan, shared, out, ready) =
                (Arc::clone(&plan), Arc::clone(&shared), out.clone(), ready.clone());
            let work = move || {
                let end = thread::run(plan, shared, index, ready, &out);
                let _ = out.send(Message::Thread(index, Box::new(end))); // the coordinator waits for all of them
            };
            threads.push(std::thread::Builder::new().name(format!("weir-load-{index}")).spawn(work)?);
        }
        drop(ready);
        let _: Result<Infallible, _> = all_ready.recv(); // returns when no thread holds the other end
        direction.wait(interrupt);
        if interrupt.is_ended() {
            shared.stop(0, 0); // so that not even one request begins
        }
        let (wall, begun) = (SystemTime::now(), Instant::now());
        // Reading all of /proc takes milliseconds. Without a warm-up, do it before the clock runs.
        let cost_begun = plan.pid.filter(|_| plan.warmup_ns == 0).map(Begun::now);
        let throttled = Throttled::now();
        let clock = *shared.clock.get_or_init(Clock::start);
        // One that was ended before its start did not begin.
        if let Some(started) = direction.started
            && direction.start_at.is_none_or(|at| begun >= at)
        {
            started(begun);
        }
        let pulse = shared.pulse.start(clock);
        let warmup = Duration::from_nanos(plan.warmup_ns);
        let watch = plan.pid.map(|pid| Watch::start(pid, cost_begun, warmup)).transpose()?;
        let hand = Hand::start(&plan, &shared, clock, out.clone())?;
        let mut merge = Merge::new(&plan, &shared);
        let mut end = None;
        let mut left = plan.threads;
        let mut next_look = Instant::now();
        while left > 0 {
            let wait = next_look.saturating_duration_since(Instant::now());
            let message = match inbox.recv_timeout(wait) {
                Ok(message) => message,
                Err(_) => {
                    next_look = Instant::now() + LOOK;
                    merge.so_far.cost = watch.as_ref().and_then(Watch::so_far);
                    look(&Progress { elapsed_ns: clock.now(), tick: None, so_far: &merge.so_far });
                    if !threads.iter().all(std::thread::JoinHandle::is_finished) {
                        continue;
                    }
                    // Messages may have arrived since: on a busy machine, a short run may fall between the two
                    // checks.
                    let Ok(message) = inbox.try_recv() else {
                        break; // a thread panicked: joining reports it
                    };
                    message
                }
            };
            let ticks = match message {
                Message::Fail(failed) => {
                    end.get_or_insert(End::Failed { reason: failed.to_string() });
                    shared.stop(clock.now(), clock::nanos(plan.grace));
                    Vec::new()
                }
                Message::Changed(change) => {
                    merge.changes.push(change);
                    Vec::new()
                }
                Message::Stop => {
                    let now = clock.now();
                    let at_ns = now.saturating_sub(plan.warmup_ns);
                    merge.changes.push(Change { at_ns, command: "stop".to_owned() });
                    end.get_or_insert(End::Stopped);
                    shared.stop(now, clock::nanos(plan.grace));
                    Vec::new()
                }
                Message::Halt => {
                    end.get_or_insert(End::Stopped);
                    shared.stop(clock.now(), clock::nanos(plan.grace));
                    Vec::new()
                }
                Message::Cut => {
                    end.get_or_insert(End::Interrupted);
                    shared.stop(clock.now(), 0);
                    Vec::new()
                }
                Message::Interrupt => {
                    end.get_or_insert(End::Interrupted);
                    shared.stop(clock.now(), clock::nanos(plan.leaving()));
                    Vec::new()
                }
                Message::Thread(index, thread) => {
                    left -= 1;
                    merge.thread(index, (*thread)?)
                }
                Message::Tick(part) => merge.tick(*part),
                Message::Waits => {
                    if is_judged && before.is_none() {
                        before = cores::Look::now();
                    }
                    Vec::new()
                }
            };
            for tick in ticks {
                look(&Progress { elapsed_ns: clock.now(), tick: Some(&tick), so_far: &merge.so_far });
                // Once all have ended, there is nothing to end.
                if end.is_none()
                    && left > 0
                    && let Some(condition) = aborts(&plan, || merge.report_so_far())
                {
                    end = Some(End::Aborted { condition });
                    shared.stop(clock.now(), clock::nanos(plan.grace));
                }
            }
        }
        drop(hand);
        let cost = watch.and_then(|w| w.end(merge.responses()));
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        if let Some(pulse) = pulse {
            pulse.end();
        }
        let tears_down = |journey: &&Arc<Journey>| {
            !journey.teardown.is_empty() && direction.tears_down.load(Ordering::Relaxed)
        };
        if let (Some(_), Some(permit)) = (plan.journey.as_ref().filter(tears_down), &direction.teardown) {
            let _ = permit.recv(); // the other end is dropped when another agent runs it, or this one ends
        }
        // Another agent may run it by now.
        if let Some(journey) = plan.journey.as_ref().filter(tears_down) {
            direction.torn_down.store(true, Ordering::Relaxed);
            match scenario::finish(&plan, journey, interrupt, None) {
                Err(failed) if end.is_none() => end = Some(End::Failed { reason: failed.to_string() }),
                Err(failed) => merge.notes.push(failed.to_string()),
                Ok(()) => {}
            }
        }
        merge.throttled = Throttled::now().since(throttled);
        let stepped = stepped(wall, SystemTime::now(), begun.elapsed());
        let end = end.unwrap_or_else(|| merge.natural_end());
        Ok(merge.report(&shared, wall, end, stepped, cost, before.as_ref()))
    }
}

fn signed(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

/// How far the wall clock moved relative to the monotonic one; forwards is positive.
fn stepped(from: SystemTime, to: SystemTime, monotonic: Duration) -> i64 {
    to.duration_since(from).map_or_else(|e| -signed(e.duration()), signed) - signed(monotonic)
}

/// The condition that ends the run early, if one holds.
pub(crate) fn aborts(plan: &Plan, so_far: impl FnOnce() -> Report) -> Option<String> {
    if plan.abort_on.is_empty() {
        return None;
    }
    let report = so_far();
    plan.abort_on.iter().find(|t| t.judge(&report).passed).map(|t| t.text.clone())
}

/// Starts the thread that reads the recording, and waits until the first request is there: otherwise a slow source
/// would look like a late generator.
fn read_recording(plan: &Arc<Plan>, shared: &Shared, interrupt: &Interrupt) -> std::io::Result<()> {
    let (out, inboxes) = Replay::feed(plan.threads);
    shared.give_inboxes(inboxes);
    let (first, is_there) = mpsc::channel::<Infallible>();
    let plan = Arc::clone(plan);
    // It ends with the recording, or when the threads that take requests are gone.
    let work = move || {
        if let Some(replay) = &plan.replay {
            replay.read(&out, || drop(first));
        }
    };
    std::thread::Builder::new().name("weir-replay".to_owned()).spawn(work)?;
    // The other end is dropped once a request is there.
    while is_there.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) && !interrupt.is_ended() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_is_told_in_both_directions() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        for (to, want) in [(at(110), 0), (at(170), 60), (at(109), -1), (at(40), -70)] {
            assert_eq!(stepped(at(100), to, Duration::from_secs(10)), want * 1_000_000_000);
        }
    }
}
