//! `weir shadow`: the running gateway judges a candidate config on live heads, after their answers.
//!
//! ```text
//!   start ─► check, compile (nothing is bound, opened or dialed) ─► a tap for every core ─► the judge's thread
//!   end: the command, its lease, `--for`, another config, a drain or an upgrade ─► taps removed ─► last report
//! ```
//!
//! One shadow runs at a time. Its judge may use 1 % of a core, measured as the processor time of its thread; cores drop
//! what does not fit, and count it. The last report, and the candidate's text for a promotion, stay for `KEPT` or
//! until another config runs.

mod compare;
mod promote;
mod report;

pub use promote::NotPromoted;
pub use report::{ChangedDecision, Example, ShadowReport, Unexplained};

use crate::Gateway;
use crate::reload::Control;
use compare::{Compare, Side};
use report::Tally;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use weir_config::candidate::{check_includes, restrict};
use weir_config::load::gather;
use weir_config::managed::{self, Managed, To};
use weir_config::parse::parse;
use weir_config::path_scope::{self, PathScope};
use weir_config::texts::{Overrides, Text, Texts};
use weir_config::{Diagnostic, Diagnostics, Mistakes, Node};
use weir_engine::core::Message;
use weir_engine::shadow::{Counts, Heads, Judge, Judged, Sample, tap};
use weir_engine::snapshot::{Carry, Snapshot, compile};
use weir_telemetry::{Setup, Telemetry, log, timestamp};
use weir_wire::limits::thread_cpu;

/// How long a shadow runs after its command was last heard of.
pub const LEASE: Duration = Duration::from_secs(15);

/// The longest time that a shadow may run.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How long the last report of a shadow that has ended is kept.
const KEPT: Duration = Duration::from_secs(3600);

/// The judge may use this share of a core.
const BUDGET: f64 = 0.01;

/// Processor time that the judge may use ahead of its share: enough for the heads of a small test.
const AHEAD: Duration = Duration::from_millis(50);

/// How long the heads that still wait are judged after the end.
const REST: Duration = Duration::from_secs(2);

/// How long a start waits until every core knows.
const TOLD: Duration = Duration::from_secs(1);

/// How often the judge checks whether it must end.
const TICK: Duration = Duration::from_millis(50);

/// What to judge, and how.
#[derive(Clone, Debug)]
pub struct ShadowRequest {
    /// The files of the candidate, the main one first: their names, relative to the main file's folder, and texts.
    pub files: Vec<(String, String)>,
    /// The share of requests to sample, above 0 and at most 1.
    pub sample: f64,
    /// How long to run, at most [`LONGEST`].
    pub time: Duration,
    /// The largest accepted share of changed decisions.
    pub max_change: Option<f64>,
    /// How many judged requests a conclusion needs.
    pub min_judged: u64,
    /// Who asks.
    pub holder: String,
    /// Whether the candidate may name any file and variable, as the files of the config may.
    pub unrestricted: bool,
}

/// Why no shadow was started.
#[derive(Clone, Debug)]
pub enum NoShadow {
    /// Another one runs: its holder, since when, and for how many more seconds at most.
    Busy(String, String, u64),
    /// The gateway drains.
    Draining,
    /// The candidate has mistakes.
    Refused(Mistakes),
    /// Another config began to run while the candidate was compiled.
    Reloaded,
    /// The system refused a thread.
    System(String),
}

/// The shadow that runs, or that ran last.
struct Session {
    id: String,
    request: ShadowRequest,
    since: SystemTime,
    began: Instant,
    until: Instant,
    /// The digest of the config that it compares with.
    base: String,
    not_shown: Vec<String>,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    /// The candidate's files, for a promotion.
    texts: Texts,
}

/// What a session and its judge's thread share.
struct Shared {
    tally: Mutex<Tally>,
    /// When the command was last heard of.
    lease: Mutex<Instant>,
    stop: AtomicBool,
    /// When and why it ended.
    ended: Mutex<Option<(Instant, String)>>,
    /// Whether the thread has judged the rest.
    done: (Mutex<bool>, Condvar),
    cpu_ns: AtomicU64,
}

/// See [`Session`].
#[derive(Default)]
pub(crate) struct Shadows(Mutex<Option<Session>>);

/// A candidate, compiled.
struct Candidate {
    side: Side,
    texts: Texts,
}

/// What the running config was when the candidate was sent.
struct Base {
    side: Side,
    hash: String,
    texts: Texts,
    below: Vec<PathBuf>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Gateway ===

impl Gateway {
    /// Checks and compiles a candidate, and starts to judge it on live heads. Blocks while it compiles. Returns the
    /// warnings about it and the first report.
    ///
    /// # Errors
    /// Why not. Then nothing has changed.
    pub fn start_shadow(&self, request: ShadowRequest) -> Result<(Diagnostics, ShadowReport), NoShadow> {
        if !self.is_ready() {
            return Err(NoShadow::Draining);
        }
        self.shadows().is_free()?;
        let base = Base::of(&self.control());
        let (candidate, diagnostics) = self.compile_candidate(&request, &base)?;
        let running = Arc::clone(&base.side.snapshot);
        let compiled = Arc::clone(&candidate.side.snapshot);
        let compare = Compare::new(base.side, candidate.side);
        let (tap, heads) = tap(Arc::clone(&running), request.sample);
        let began = Instant::now();
        let shared = Arc::new(Shared {
            tally: Mutex::default(),
            lease: Mutex::new(began),
            stop: AtomicBool::new(false),
            ended: Mutex::default(),
            done: (Mutex::new(false), Condvar::new()),
            cpu_ns: AtomicU64::new(0),
        });
        let session = Session {
            id: new_id(),
            since: SystemTime::now(),
            began,
            until: began + request.time.min(LONGEST),
            base: base.hash,
            not_shown: compare.not_judged(),
            shared: Arc::clone(&shared),
            counts: Arc::clone(heads.counts()),
            texts: candidate.texts,
            request,
        };
        let report = session.report();
        {
            // Held until the cores know, so that the reload that ends this shadow comes after its beginning.
            let control = self.control();
            if !Arc::ptr_eq(&control.snapshot, &running) {
                return Err(NoShadow::Reloaded);
            }
            let mut held = locked(&self.shadows().0);
            if let Some(other) = held.as_ref().filter(|other| other.runs()) {
                return Err(other.busy());
            }
            let (id, until) = (session.id.clone(), session.until);
            let thread = Thread { gateway: self.weak(), id, until, shared, heads };
            let spawned = std::thread::Builder::new()
                .name("weir-shadow".to_owned())
                .spawn(move || thread.run(&compare, running, compiled));
            spawned.map_err(|e| NoShadow::System(e.to_string()))?;
            let tap = Arc::new(tap);
            self.tell_cores(|| Message::Shadow { tap: Some(Arc::clone(&tap)) });
            log::info(
                "shadow started",
                &[("holder", &session.request.holder), ("sample", &session.request.sample)],
            );
            *held = Some(session);
        }
        // From the answer on, every core copies: a core that is busy longer is not waited for.
        self.turns(TOLD);
        Ok((diagnostics, report))
    }

    /// The report of the shadow that runs or ran last. `id` renews the lease of that one.
    pub fn shadow(&self, id: Option<&str>) -> Option<ShadowReport> {
        let mut held = locked(&self.shadows().0);
        let is_old = |session: &Session| session.ended_before(KEPT);
        held.take_if(|session| is_old(session));
        let session = held.as_ref()?;
        match id {
            Some(id) if session.id != id => None,
            Some(_) => {
                *locked(&session.shared.lease) = Instant::now();
                Some(session.report())
            }
            None => Some(session.report()),
        }
    }

    /// Ends a shadow, waits until the heads that still wait are judged, and returns the last report. `None` if there
    /// is none of this id.
    pub fn end_shadow(&self, id: &str, why: &str) -> Option<ShadowReport> {
        let shared = {
            let held = locked(&self.shadows().0);
            Arc::clone(&held.as_ref().filter(|session| session.id == id)?.shared)
        };
        self.stop_shadow(Some(id), why);
        let (done, bell) = &shared.done;
        let limit = REST + Duration::from_secs(1);
        drop(bell.wait_timeout_while(locked(done), limit, |done| !*done));
        self.shadow(None).filter(|report| report.id == id)
    }

    /// Ends the shadow of this id, or any. Does not wait for its judge.
    pub(crate) fn stop_shadow(&self, id: Option<&str>, why: &str) {
        {
            let held = locked(&self.shadows().0);
            let Some(session) = held.as_ref().filter(|session| id.is_none_or(|id| session.id == id)) else {
                return;
            };
            let mut ended = locked(&session.shared.ended);
            if ended.is_some() {
                return;
            }
            *ended = Some((Instant::now(), why.to_owned()));
            session.shared.stop.store(true, Ordering::Release);
            log::info("shadow ended", &[("holder", &session.request.holder), ("why", &why)]);
        }
        self.tell_cores(|| Message::Shadow { tap: None });
    }

    /// Another config runs: ends the shadow. What it has found is not about this config, so nobody may promote it.
    pub(crate) fn outdate_shadow(&self) {
        self.stop_shadow(None, "another config runs now");
    }

    fn compile_candidate(
        &self,
        request: &ShadowRequest,
        base: &Base,
    ) -> Result<(Candidate, Diagnostics), NoShadow> {
        let (source, kinds) = {
            let control = self.control();
            let (source, kinds) = control.origin();
            (source.clone(), kinds.clone())
        };
        let main = base.texts.written.first().map(|text| text.path.clone()).unwrap_or_default();
        let texts = candidate_texts(&request.files, main.parent().unwrap_or(Path::new("")));
        let texts = texts.map_err(|wrong| NoShadow::Refused((*wrong).into()))?;
        // The file of the API as it is now, wherever the candidate has it: nothing is read from there.
        let managed = base.managed(&texts);
        let mut scope = PathScope {
            files: texts.iter().map(|text| text.path.clone()).collect(),
            below: base.below.clone(),
            ..PathScope::default()
        };
        let managed = managed.as_ref().map(|managed| (&managed.tree, &managed.text));
        let instead = Overrides { written: Some(&texts), managed, bundle: None, scope: None };
        let gathered =
            gather(&source, instead).map_err(|unreadable| NoShadow::Refused(unreadable.diagnostics))?;
        let names: Vec<&str> = request.files.iter().map(|(name, _)| name.as_str()).collect();
        let mut missing = Diagnostics::default();
        check_includes(&gathered.tree, &names, &mut missing);
        if missing.errors() > 0 {
            return Err(NoShadow::Refused(missing.into()));
        }
        let sent = gathered.texts.clone();
        if !request.unrestricted {
            let mut found = Diagnostics::default();
            let running = base.texts.tree().unwrap_or_else(|| gathered.tree.clone());
            scope.known = restrict(&gathered.tree, &running, &mut found);
            if found.errors() > 0 {
                return Err(NoShadow::Refused(found.into()));
            }
        }
        let scope = (!request.unrestricted).then_some(&scope);
        let instead = Overrides { scope, ..instead };
        let mut loaded = gathered.finish(&source, instead);
        let mut carry = Carry::new(Telemetry::new(Setup::default()));
        let compiled = path_scope::within(scope, || compile(&mut loaded, &kinds, &mut carry));
        let snapshot = compiled.map_err(NoShadow::Refused)?;
        let tree = sent.tree().unwrap_or_else(|| loaded.tree.clone());
        let side = Side { config: Arc::new(loaded.config), snapshot: Arc::new(snapshot), tree };
        missing.iter().for_each(|warning| loaded.diagnostics.push(warning.clone()));
        Ok((Candidate { side, texts: sent }, loaded.diagnostics))
    }
}

/// The candidate's files, as if they lay beside those of the running config.
fn candidate_texts(files: &[(String, String)], folder: &Path) -> Result<Vec<Text>, Box<Diagnostic>> {
    let text = |(name, text): &(String, String)| {
        let path = Path::new(name);
        let is_plain = |part| matches!(part, std::path::Component::Normal(_));
        if name.is_empty() || !path.components().all(is_plain) {
            let message = format!("`{name}` is not the name of a file beside the main one");
            return Err(Box::new(Diagnostic::error("candidate-name", message)));
        }
        Ok(Text { path: folder.join(format!("{name} (candidate)")), text: text.as_str().into() })
    };
    let texts: Result<Vec<Text>, _> = files.iter().map(text).collect();
    texts.and_then(|texts| match texts.is_empty() {
        true => Err(Box::new(Diagnostic::error("candidate-name", "no file was sent"))),
        false => Ok(texts),
    })
}

/// An id that nobody guesses.
fn new_id() -> String {
    let mut random = [0; 16];
    let _ = aws_lc_rs::rand::fill(&mut random); // roles guard the calls; the id only tells shadows apart
    weir_wire::hex::encode(&random)
}

// === impl Base ===

impl Base {
    fn of(control: &Control) -> Self {
        let tree = control.texts.tree();
        let empty = || Node::empty_map(weir_config::Place { file: Arc::default(), line: 1, column: 1 });
        Self {
            hash: control.texts.hash.clone(),
            texts: control.texts.clone(),
            below: control.reachable(),
            side: Side {
                config: Arc::clone(&control.config),
                snapshot: Arc::clone(&control.snapshot),
                tree: tree.unwrap_or_else(empty),
            },
        }
    }

    /// The managed file as it runs, without what these texts replace; an empty one if there is none.
    fn managed(&self, instead: &[Text]) -> Option<Managed> {
        let path = self.texts.managed_path.clone().unwrap_or_else(|| PathBuf::from("(managed)"));
        let mut tree = self.texts.managed_tree().unwrap_or_else(|| managed::empty(&path));
        for text in instead {
            // Mistakes are told when they are gathered.
            let Some(sent) = parse(&text.text, &text.path, &mut Diagnostics::default()) else { continue };
            for (section, things) in sent.entries().iter().filter(|(key, _)| managed::is_section(&key.text)) {
                for (name, _) in things.entries() {
                    managed::set(&mut tree, &section.text, &name.text, To::Nothing);
                }
            }
        }
        managed::write(tree, path).ok()
    }
}

// === impl Session ===

impl Session {
    fn runs(&self) -> bool {
        locked(&self.shared.ended).is_none()
    }

    fn ended_before(&self, time: Duration) -> bool {
        locked(&self.shared.ended).as_ref().is_some_and(|(at, _)| at.elapsed() > time)
    }

    fn busy(&self) -> NoShadow {
        let left = self.until.saturating_duration_since(Instant::now());
        NoShadow::Busy(self.request.holder.clone(), timestamp(self.since), left.as_secs())
    }

    fn report(&self) -> ShadowReport {
        let ended = locked(&self.shared.ended).clone();
        let ran = match &ended {
            Some((at, _)) => at.saturating_duration_since(self.began),
            None => self.began.elapsed(),
        };
        let report = ShadowReport {
            id: self.id.clone(),
            state: if ended.is_some() { "ended" } else { "running" },
            ended: ended.map(|(_, why)| why),
            holder: self.request.holder.clone(),
            since: timestamp(self.since),
            for_seconds: self.request.time.as_secs_f64(),
            ran_seconds: ran.as_secs_f64(),
            sample: self.request.sample,
            seen: self.counts.seen(),
            sampled: self.counts.sampled(),
            dropped: self.counts.dropped(),
            not_judged: 0,
            unexplained: 0,
            judged: 0,
            changed: 0,
            share: 0.0,
            max_change: self.request.max_change,
            min_judged: self.request.min_judged,
            verdict: "",
            sentence: String::new(),
            cpu_ms: self.shared.cpu_ns.load(Ordering::Relaxed) as f64 / 1e6,
            changes: Vec::new(),
            more: 0,
            misfits: Vec::new(),
            not_shown: self.not_shown.clone(),
            text: String::new(),
        };
        locked(&self.shared.tally).tell(report)
    }
}

// === impl Shadows ===

impl Shadows {
    fn is_free(&self) -> Result<(), NoShadow> {
        match locked(&self.0).as_ref().filter(|session| session.runs()) {
            Some(other) => Err(other.busy()),
            None => Ok(()),
        }
    }
}

// === the judge's thread ===

struct Thread {
    gateway: Weak<super::Inner>,
    id: String,
    until: Instant,
    shared: Arc<Shared>,
    heads: Heads,
}

impl Thread {
    fn run(self, compare: &Compare, running: Arc<Snapshot>, candidate: Arc<Snapshot>) {
        let judge = Judge::new(running, candidate);
        let (began, cpu) = (Instant::now(), thread_cpu());
        loop {
            if self.shared.stop.load(Ordering::Acquire) {
                break;
            }
            if let Some(why) = self.is_over() {
                match Gateway::upgrade(&self.gateway) {
                    Some(gateway) => gateway.stop_shadow(Some(&self.id), why),
                    None => break,
                }
                continue;
            }
            if self.is_over_budget(began, cpu) {
                std::thread::sleep(TICK.min(Duration::from_millis(10)));
                continue;
            }
            if let Some(sample) = self.heads.next(TICK) {
                self.judge(&judge, compare, &sample);
            }
        }
        let rest = Instant::now() + REST;
        while Instant::now() < rest {
            if self.is_over_budget(began, cpu) {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            // A core may still be giving the exchange that it ended while it was told.
            let Some(sample) = self.heads.next(TICK) else { break };
            self.judge(&judge, compare, &sample);
        }
        self.heads.drop_rest();
        let used = thread_cpu().saturating_sub(cpu);
        self.shared.cpu_ns.store(used.as_nanos() as u64, Ordering::Relaxed);
        let (done, bell) = &self.shared.done;
        *locked(done) = true;
        bell.notify_all();
    }

    /// Why it must end, if it must.
    fn is_over(&self) -> Option<&'static str> {
        if Instant::now() >= self.until {
            return Some("its time is over");
        }
        (locked(&self.shared.lease).elapsed() > LEASE).then_some("its command is gone")
    }

    /// Whether the thread has used more than its share of a core.
    fn is_over_budget(&self, began: Instant, cpu: Duration) -> bool {
        let used = thread_cpu().saturating_sub(cpu);
        self.shared.cpu_ns.store(used.as_nanos() as u64, Ordering::Relaxed);
        used > AHEAD + began.elapsed().mul_f64(BUDGET)
    }

    fn judge(&self, judge: &Judge, compare: &Compare, sample: &Sample) {
        let judged = judge.judge(sample);
        let change = match &judged {
            Judged::Both(both) => compare.change(judge, &both.0, &both.1),
            Judged::Neither | Judged::Unexplained(_) => None,
        };
        let mut tally = locked(&self.shared.tally);
        match judged {
            Judged::Neither => tally.not_judged += 1,
            Judged::Unexplained(odd) => tally.misfit(odd.2, compare.running_words(&odd.0), &odd.1),
            Judged::Both(both) => {
                tally.judged += 1;
                if let Some(change) = change {
                    tally.change(change, &both.2);
                }
            }
        }
    }
}
