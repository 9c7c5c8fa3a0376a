//! Runs a plan: one thread with a single-threaded runtime for each core, clients partitioned among them, nothing shared on the path of a
//! request but one counter where the plan has a count.
//!
//! *Layout.* Here is the coordinator: it starts the threads, merges what they say at each tick, and makes the report.
//! `thread` is one of them, `worker` what its tasks have in common, with its sampler and pacer; `shared` is what the threads have. `ahead` opens
//! connections before a fixed rate begins; `client` is the one loop of a client; `h1` an exchange over
//! HTTP/1.1, `h2` one over HTTP/2, `websocket` one message and its answer; `tally` what is counted. Connections
//! and bytes are `transport`'s. Another protocol is another module beside `h1`.

mod ahead;
mod client;
mod h1;
mod h2;
mod merge;
mod shared;
mod tally;
mod thread;
mod websocket;
mod worker;

use crate::clock::{self, Clock};
use crate::cores;
use crate::cost::{Begun, Watch};
use crate::plan::Plan;
use crate::progress::Progress;
use merge::Merge;
use shared::{Message, Shared};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};
use weir_report::report::{End, Report};

/// How often whoever started a run may look at it.
const LOOK: Duration = Duration::from_millis(250);

/// Ends a run from outside, such as on Ctrl-C. Clones end the same run; of several runs with one of these, the one under way and all that follow.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<Interrupted>>);

#[derive(Debug, Default)]
struct Interrupted {
    ended: bool,
    run: Option<mpsc::Sender<Message>>,
}

impl Interrupt {
    /// Ends the run now, without a graceful stop; the report is of what was measured so far. A run that begins later ends at once.
    pub fn end(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = true;
        if let Some(run) = &state.run {
            let _ = run.send(Message::Interrupt); // ended by itself meanwhile
        }
    }

    /// Whether it was ended.
    pub fn is_ended(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    /// From now on, this run.
    fn ends(&self, run: &mpsc::Sender<Message>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            let _ = run.send(Message::Interrupt); // the inbox is there: its owner calls
        }
        state.run = Some(run.clone());
    }
}

impl Plan {
    /// Runs the plan to its end and tells what came of it. `look` is called four times a second, from the calling thread, and may print.
    ///
    /// # Errors
    /// When a thread or its runtime can not be made. What the target does is never an error: it is in the report.
    pub fn run(self, interrupt: &Interrupt, mut look: impl FnMut(&Progress<'_>)) -> std::io::Result<Report> {
        let _ = weir_wire::limits::raise_descriptors(); // fewer connections then, and the report says so
        let plan = Arc::new(self);
        // A run that is not judged by what the processor did need not know who had it. Before there are threads: those that wait for this would begin one after
        // the other.
        let is_judged = plan.stop_ns.is_none_or(|ns| ns >= weir_report::verdict::JUDGED_NS);
        let before = is_judged.then(cores::Look::now).flatten();
        let (out, inbox) = mpsc::channel();
        interrupt.ends(&out);
        let shared = Arc::new(Shared::new(&plan));
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
        let _: Result<Infallible, _> = all_ready.recv(); // until nobody holds the other end
        let (wall, begun) = (SystemTime::now(), Instant::now());
        // Looking at all of /proc takes milliseconds: before the clock runs, where there is no warm-up.
        let cost_begun = plan.pid.filter(|_| plan.warmup_ns == 0).map(Begun::now);
        let clock = *shared.clock.get_or_init(Clock::start);
        let warmup = Duration::from_nanos(plan.warmup_ns);
        let watch = plan.pid.map(|pid| Watch::start(pid, cost_begun, warmup)).transpose()?;
        let mut merge = Merge::new(&plan);
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
                    // What they said may have come since: on a busy machine all of a short run lies between the two looks.
                    let Ok(message) = inbox.try_recv() else {
                        break; // one of them panicked: joining says so
                    };
                    message
                }
            };
            let ticks = match message {
                Message::Interrupt => {
                    end.get_or_insert(End::Interrupted);
                    shared.stop(clock.now(), 0);
                    Vec::new()
                }
                Message::Thread(index, thread) => {
                    left -= 1;
                    merge.thread(index, (*thread)?)
                }
                Message::Tick(part) => merge.tick(*part),
            };
            for tick in ticks {
                look(&Progress { elapsed_ns: clock.now(), tick: Some(&tick), so_far: &merge.so_far });
                // When all have ended there is nothing to end.
                if end.is_none()
                    && left > 0
                    && let Some(condition) = aborts(&plan, || merge.report_so_far())
                {
                    end = Some(End::Aborted { condition });
                    shared.stop(clock.now(), clock::nanos(plan.grace));
                }
            }
        }
        let cost = watch.and_then(|w| w.end(merge.responses()));
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        let stepped = stepped(wall, SystemTime::now(), begun.elapsed());
        let end = end.unwrap_or_else(|| merge.natural_end());
        Ok(merge.report(&shared, wall, end, stepped, cost, before.as_ref()))
    }
}

fn signed(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

/// How far the wall clock moved against the monotonic one: forwards is positive.
fn stepped(from: SystemTime, to: SystemTime, monotonic: Duration) -> i64 {
    to.duration_since(from).map_or_else(|e| -signed(e.duration()), signed) - signed(monotonic)
}

/// The condition that ends the run early, if one holds.
fn aborts(plan: &Plan, so_far: impl FnOnce() -> Report) -> Option<String> {
    if plan.abort_on.is_empty() {
        return None;
    }
    let report = so_far();
    plan.abort_on.iter().find(|t| t.judge(&report).passed).map(|t| t.text.clone())
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
