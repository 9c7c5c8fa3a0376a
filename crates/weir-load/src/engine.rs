//! Runs a plan: one thread with a single-threaded runtime for each core, clients partitioned among them, nothing shared on the path of a
//! request but one counter where the plan has a count.
//!
//! *Layout.* Here is the coordinator: it starts the threads, merges what they say at each tick, and makes the report.
//! `ahead` opens connections before a fixed rate begins; `worker` is one thread with its sampler and pacer; `client` is the one loop of a client; `h1` an exchange over
//! HTTP/1.1, `h2` one over HTTP/2, `websocket` one message and its answer; `tally` what is counted. Connections
//! and bytes are `transport`'s. Another protocol is another module beside `h1`.

mod ahead;
mod client;
mod h1;
mod h2;
mod merge;
mod tally;
mod websocket;
mod worker;

use crate::clock;
use crate::clock::{Clock, NEVER};
use crate::cores;
use crate::cost::{Begun, Watch};
use crate::grpc::CODES;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::transport::origin::Proxy;
use crate::transport::reader::Response;
use merge::Merge;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};
use tally::Tally;
use weir_report::Histogram;
use weir_report::report::{End, Errors, Report, Window};

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

/// What the coordinator hears.
#[derive(Debug)]
pub(crate) enum Message {
    Interrupt,
    Thread(usize, Box<std::io::Result<ThreadEnd>>),
    Tick(Box<TickPart>),
}

/// One thread's part of a tick.
#[derive(Debug, Default)]
pub(crate) struct TickPart {
    pub(crate) index: u64,
    /// By the run's clock, as `end_ns`.
    pub(crate) begun_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) service: Histogram,
    pub(crate) response: Histogram,
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    pub(crate) unexpected: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) grpc: [u64; CODES.len()],
    pub(crate) errors: Errors,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Passed and failed, for each check.
    pub(crate) checks: Vec<(u64, u64)>,
    pub(crate) window: Window,
    pub(crate) users: u64,
    pub(crate) backlog: u64,
    pub(crate) cpu_ns: u64,
}

/// What a thread has at its end.
#[derive(Debug)]
pub(crate) struct ThreadEnd {
    pub(crate) end_ns: u64,
    /// The last tick that it told its part of.
    pub(crate) last_tick: u64,
    /// How long the two below were measured.
    pub(crate) measured_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) waited_ns: u64,
    /// Processor time since the thread began.
    pub(crate) cpu_all_ns: u64,
    pub(crate) think_ns: u64,
    pub(crate) available_ns: u64,
    pub(crate) responses_by_client: Vec<u64>,
    pub(crate) dial: Histogram,
    pub(crate) opened: u64,
    pub(crate) unsent: u64,
    pub(crate) tally: Tally,
}

/// What all threads see.
#[derive(Debug)]
struct Shared {
    /// Shows 0 when the run begins: when all threads are ready.
    clock: OnceLock<Clock>,
    /// When measuring begins; the warm-up is before.
    measure_from: u64,
    /// No request starts from here on.
    stop_at: AtomicU64,
    /// What is still under way then is cut.
    cut_at: AtomicU64,
    /// Requests that may still be made.
    left: Option<AtomicU64>,
    /// Body length of the first good response of each target.
    documents: Vec<OnceLock<u64>>,
    /// TLS sessions by version and cipher.
    sessions: Mutex<BTreeMap<String, Session>>,
    /// Connections by the proxy that they went to.
    proxies: Mutex<BTreeMap<String, u64>>,
    /// What ALPN chose first, where HTTP/2 is asked for.
    alpn: OnceLock<String>,
    first: OnceLock<Captured>,
}

/// Connections of one kind.
#[derive(Debug, Default)]
struct Session {
    connections: u64,
    /// Of the first of them.
    keys: Option<weir_wire::TlsKeys>,
}

/// The first response of a run.
#[derive(Debug)]
struct Captured {
    target: usize,
    /// What was sent, where it is not what the plan holds.
    request: Option<Vec<u8>>,
    bytes: Vec<u8>,
    response: Response,
    /// Of HTTP/2, `server` and `content-type`: they can not be read off the bytes.
    fields: Option<(Option<String>, Option<String>)>,
}

impl Shared {
    fn new(plan: &Plan) -> Self {
        let stop = plan.stop_ns.map_or(NEVER, |ns| plan.warmup_ns.saturating_add(ns));
        Self {
            clock: OnceLock::new(),
            measure_from: plan.warmup_ns,
            stop_at: AtomicU64::new(stop),
            cut_at: AtomicU64::new(stop.saturating_add(clock::nanos(plan.grace))),
            left: plan.stop_requests.filter(|_| plan.is_closed()).map(AtomicU64::new),
            documents: plan.targets.iter().map(|_| OnceLock::new()).collect(),
            sessions: Mutex::default(),
            proxies: Mutex::default(),
            alpn: OnceLock::new(),
            first: OnceLock::new(),
        }
    }

    /// Takes one request of the count; `false` when there are none left.
    #[inline]
    fn take_one(&self) -> bool {
        let Some(left) = &self.left else { return true };
        let mut now = left.load(Ordering::Relaxed);
        while now > 0 {
            match left.compare_exchange_weak(now, now - 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Whether any of the count are left.
    fn has_more(&self) -> bool {
        self.left.as_ref().is_none_or(|left| left.load(Ordering::Relaxed) > 0)
    }

    /// Notes a new connection.
    fn saw(&self, stream: &weir_wire::Stream, proxy: Option<&Proxy>) {
        if let Some(proxy) = proxy {
            let mut proxies = self.proxies.lock().unwrap_or_else(PoisonError::into_inner);
            *proxies.entry(proxy.name.clone()).or_default() += 1;
        }
        let session =
            stream.tls().map_or_else(|| "plain".to_owned(), |t| format!("{} {}", t.version, t.cipher));
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.entry(session).or_default();
        session.connections += 1;
        if session.connections == 1 {
            session.keys = stream.tls_keys();
        }
        drop(sessions);
        if let Some(alpn) = stream.alpn() {
            let _ = self.alpn.set(String::from_utf8_lossy(alpn).into_owned()); // the first one
        }
    }

    fn captured(&self, mut capture: Captured) {
        let response = &capture.response;
        let whole = response.head_bytes + response.body_bytes + response.framing_bytes;
        capture.bytes.truncate(usize::try_from(whole).unwrap_or(usize::MAX));
        let _ = self.first.set(capture); // one of each thread captures, the first counts
    }

    /// Ends the run at `at`, if it has not ended before; with a graceful stop of `grace`.
    fn stop(&self, at: u64, grace: u64) {
        self.stop_at.fetch_min(at, Ordering::Relaxed);
        self.cut_at.fetch_min(at.saturating_add(grace), Ordering::Relaxed);
    }
}

/// The part of `all` that thread `index` has: the number of its first, and how many. What can not be shared evenly goes to the first threads.
fn part(all: usize, threads: usize, index: usize) -> (usize, usize) {
    let (each, over) = (all / threads, all % threads);
    (index * each + index.min(over), each + usize::from(index < over))
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
                let end = worker::run(plan, shared, index, ready, &out);
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
    fn threads_share_without_a_gap_or_an_overlap() {
        for (all, threads) in [(1, 1), (10, 3), (11, 4), (8, 8), (3, 2), (100, 7)] {
            let mut next = 0;
            for index in 0..threads {
                let (first, mine) = part(all, threads, index);
                assert!(first == next && mine.abs_diff(all / threads) <= 1, "{all} {threads} {index}");
                next += mine;
            }
            assert_eq!(next, all);
        }
    }

    #[test]
    fn a_step_of_the_clock_is_told_in_both_directions() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        for (to, want) in [(at(110), 0), (at(170), 60), (at(109), -1), (at(40), -70)] {
            assert_eq!(stepped(at(100), to, Duration::from_secs(10)), want * 1_000_000_000);
        }
    }
}
