//! State that the threads of a run share, and their messages to the coordinator.

use super::pulse::Pulse;
use super::replay::Replayed;
use super::tally::Tally;
use crate::clock::{self, Clock, NEVER};
use crate::grpc::CODES;
use crate::pace::{Rhythm, Schedule};
use crate::plan::Plan;
use crate::replay::Entry;
use crate::scenario::Failed;
use crate::scenario::tally::{JourneyTally, StepPart};
use crate::transport::origin::Proxy;
use crate::transport::reader::Response;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::mpsc::Receiver;
use weir_report::Histogram;
use weir_report::report::{AnswerKind, Change, Errors, Window};

/// A message to the coordinator.
#[derive(Debug)]
pub(crate) enum Message {
    /// A command on the control socket changed the load.
    Changed(Change),
    /// Ends the run without the steps of `end`.
    Cut,
    /// The run cannot go on.
    Fail(Failed),
    /// No further request may begin.
    Halt,
    /// Ends the run, with the steps of `end`.
    Interrupt,
    /// `stop` on the control socket.
    Stop,
    Thread(usize, Box<std::io::Result<ThreadEnd>>),
    /// A thread has waited for a processor for more than a run may.
    Waits,
    Tick(Box<TickPart>),
}

/// One thread's part of a tick.
#[derive(Debug, Default)]
pub(crate) struct TickPart {
    pub(crate) index: u64,
    /// By the run's clock, like `end_ns`.
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
    /// Passed and failed, per check.
    pub(crate) checks: Vec<(u64, u64)>,
    pub(crate) window: Window,
    pub(crate) users: u64,
    pub(crate) backlog: u64,
    pub(crate) late: u64,
    pub(crate) started: u64,
    pub(crate) cpu_ns: u64,
    /// The steps of scenarios.
    pub(crate) steps: Vec<StepPart>,
}

/// A thread's final results.
#[derive(Debug)]
pub(crate) struct ThreadEnd {
    pub(crate) end_ns: u64,
    /// The last tick whose part it sent.
    pub(crate) last_tick: u64,
    /// How long the next three were measured.
    pub(crate) measured_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) waited_ns: u64,
    /// Processor time of the whole process meanwhile.
    pub(crate) process_ns: u64,
    pub(crate) think_ns: u64,
    pub(crate) available_ns: u64,
    pub(crate) responses_by_client: Vec<u64>,
    pub(crate) dial: Histogram,
    pub(crate) opened: u64,
    pub(crate) unsent: u64,
    /// For each part of a shape.
    pub(crate) unsent_by_part: Vec<u64>,
    /// The kinds that `tally` counts by number.
    pub(crate) kinds: Vec<AnswerKind>,
    pub(crate) tally: Tally,
    /// With a replay.
    pub(crate) replayed: Option<Box<Replayed>>,
    /// By step and scenario, with scenarios.
    pub(crate) journey: Option<Box<JourneyTally>>,
}

/// State that all threads see.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Reads 0 when the run begins, which is when all threads are ready.
    pub(crate) clock: OnceLock<Clock>,
    /// When measuring begins, after the warm-up.
    pub(crate) measure_from: u64,
    /// No request starts after this moment.
    pub(crate) stop_at: AtomicU64,
    /// As `stop_at`, for an agent: as long as its coordinator lives. It moves on with each word, so that a process that
    /// stood still and wakes sends nothing more.
    pub(crate) lease: Arc<AtomicU64>,
    /// Requests still in flight at this moment are cut.
    pub(crate) cut_at: AtomicU64,
    /// Requests left of the count.
    pub(crate) left: Option<AtomicU64>,
    /// Body length of the first good response of each target.
    pub(crate) documents: Vec<OnceLock<u64>>,
    /// TLS sessions by version and cipher, with QUIC by version.
    pub(crate) sessions: Mutex<BTreeMap<String, Session>>,
    /// Connections by proxy.
    pub(crate) proxies: Mutex<BTreeMap<String, u64>>,
    /// The first choice of ALPN, with HTTP/2 or HTTP/3.
    pub(crate) alpn: OnceLock<String>,
    pub(crate) first: OnceLock<Captured>,
    /// Notices when the generator does not run.
    pub(in crate::engine) pulse: Arc<Pulse>,
    /// The starts of an open loop.
    pub(in crate::engine) course: Course,
    /// With scenarios: those of each group.
    pub(in crate::engine) courses: Vec<Course>,
    /// With a replay, where each thread takes its requests from.
    inboxes: Mutex<Vec<Option<Receiver<Entry>>>>,
}

/// The starts of an open loop as they are in effect, which commands on the control socket change.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// None in a closed loop.
    schedule: Option<Mutex<Arc<Schedule>>>,
    /// When it begins, by the run's clock.
    pub(super) begin: u64,
    /// How often it changed. Threads compare it with theirs.
    pub(super) version: AtomicU64,
}

impl Course {
    fn of(rhythm: &Rhythm, begin: u64) -> Self {
        let schedule = match rhythm {
            Rhythm::Closed(_) => None,
            Rhythm::Open(starts) => Some(Mutex::new(Arc::new(Schedule::of(starts.clone())))),
        };
        Self { schedule, begin, version: AtomicU64::new(0) }
    }

    /// Starts that are due at a moment of the run.
    pub(super) fn due_by(&self, at: u64) -> u64 {
        let since = at.checked_sub(self.begin);
        since.zip(self.now()).map_or(0, |(since, schedule)| schedule.due_by(since))
    }

    pub(super) fn now(&self) -> Option<Arc<Schedule>> {
        let schedule = self.schedule.as_ref()?;
        Some(Arc::clone(&schedule.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(super) fn replace(&self, schedule: Schedule) {
        if let Some(current) = &self.schedule {
            *current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(schedule);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// Connections with the same TLS parameters.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) connections: u64,
    /// From the first of them.
    pub(crate) keys: Option<weir_wire::TlsKeys>,
}

/// The first response of a run.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) target: usize,
    /// The request, if it differs from the plan's.
    pub(crate) request: Option<Vec<u8>>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) response: Response,
    /// For HTTP/2 and HTTP/3, `server` and `content-type`, which cannot be read from the raw bytes.
    pub(crate) fields: Option<(Option<String>, Option<String>)>,
}

impl Shared {
    pub(crate) fn new(plan: &Plan) -> Self {
        let stop = plan.stop_ns.map_or(NEVER, |ns| plan.warmup_ns.saturating_add(ns));
        let groups = plan.journey.as_ref().map_or(&[][..], |journey| &journey.groups);
        Self {
            clock: OnceLock::new(),
            measure_from: plan.warmup_ns,
            stop_at: AtomicU64::new(stop),
            lease: Arc::new(AtomicU64::new(NEVER)),
            cut_at: AtomicU64::new(stop.saturating_add(clock::nanos(plan.grace))),
            left: plan.stop_requests.filter(|_| plan.is_closed()).map(AtomicU64::new),
            documents: plan.targets.iter().map(|_| OnceLock::new()).collect(),
            sessions: Mutex::default(),
            proxies: Mutex::default(),
            alpn: OnceLock::new(),
            first: OnceLock::new(),
            pulse: Arc::default(),
            course: Course::of(&plan.rhythm, 0),
            courses: groups.iter().map(|g| Course::of(&g.rhythm, g.start_at)).collect(),
            inboxes: Mutex::default(),
        }
    }

    /// For a user outside of the load: it ends by itself, and nothing is counted.
    pub(crate) fn alone(plan: &Plan) -> Self {
        Self {
            stop_at: AtomicU64::new(NEVER),
            cut_at: AtomicU64::new(NEVER),
            measure_from: 0,
            ..Self::new(plan)
        }
    }

    /// Gives each thread the end from which it takes recorded requests.
    pub(super) fn give_inboxes(&self, inboxes: Vec<Receiver<Entry>>) {
        *self.inboxes.lock().unwrap_or_else(PoisonError::into_inner) =
            inboxes.into_iter().map(Some).collect();
    }

    /// Takes that of thread `index`; none without a replay.
    pub(super) fn take_inbox(&self, index: usize) -> Option<Receiver<Entry>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index)?.take()
    }

    /// Takes one request from the count; `false` if none is left.
    #[inline]
    pub(crate) fn take_one(&self) -> bool {
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

    /// Whether any request of the count is left.
    pub(crate) fn has_more(&self) -> bool {
        self.left.as_ref().is_none_or(|left| left.load(Ordering::Relaxed) > 0)
    }

    /// Records a new connection.
    pub(crate) fn saw(&self, stream: &weir_wire::Transport, proxy: Option<&Proxy>) {
        if let Some(proxy) = proxy {
            let mut proxies = self.proxies.lock().unwrap_or_else(PoisonError::into_inner);
            *proxies.entry(proxy.name.clone()).or_default() += 1;
        }
        let session =
            stream.tls().map_or_else(|| "plain".to_owned(), |t| format!("{} {}", t.version, t.cipher));
        self.saw_session(session, || stream.tls_keys(), stream.alpn());
    }

    /// Records a new connection of QUIC, which always has this version of TLS. Its cipher is not known here.
    #[cfg(feature = "http3")]
    pub(crate) fn saw_quic(&self, alpn: Option<&[u8]>) {
        self.saw_session("TLSv1.3".to_owned(), || None, alpn);
    }

    fn saw_session(
        &self,
        name: String,
        keys: impl FnOnce() -> Option<weir_wire::TlsKeys>,
        alpn: Option<&[u8]>,
    ) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.entry(name).or_default();
        session.connections += 1;
        if session.connections == 1 {
            session.keys = keys();
        }
        drop(sessions);
        if let Some(alpn) = alpn {
            let _ = self.alpn.set(String::from_utf8_lossy(alpn).into_owned()); // the first one wins
        }
    }

    pub(crate) fn captured(&self, mut capture: Captured) {
        let response = &capture.response;
        let whole = response.head_bytes + response.body_bytes + response.framing_bytes;
        capture.bytes.truncate(usize::try_from(whole).unwrap_or(usize::MAX));
        let _ = self.first.set(capture); // each thread captures one, the first counts
    }

    /// Ends the run at `at`, unless it ends earlier, with a graceful stop of `grace`.
    pub(crate) fn stop(&self, at: u64, grace: u64) {
        self.stop_at.fetch_min(at, Ordering::Relaxed);
        self.cut_at.fetch_min(at.saturating_add(grace), Ordering::Relaxed);
    }
}

/// The share of thread `index` in `all`: its first number and its size. The first threads get the remainder.
pub(crate) fn part(all: usize, threads: usize, index: usize) -> (usize, usize) {
    let (each, over) = (all / threads, all % threads);
    (index * each + index.min(over), each + usize::from(index < over))
}

#[cfg(test)]
mod tests {
    use super::part;

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
}
