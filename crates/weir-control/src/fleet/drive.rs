//! The thread weir-fleet: performs the actions of weir-fleet's machines and reports the results to them. Anything
//! that blocks or waits runs beside it and returns its result as a message.

mod coordinate;
mod follow;
mod trial;

use super::remote::Remote;
use super::{FleetStatus, Found, Seen};
use crate::history::By;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use weir_config::{Diagnostics, Mistakes};
use weir_fleet::coordinator::{self, Coordinator};
use weir_fleet::follower::{self, Follower, Outcome};
use weir_fleet::report::Reason;
use weir_fleet::session::{self, Session};
use weir_fleet::{Bundle, Cache, Digest, Time, Weight};
use weir_telemetry::{Telemetry, log, timestamp};
use weir_upstream::etcd::fleet::machine;

/// How often it checks things that nobody reports, such as how a bundle on trial performs.
const LOOK: Duration = Duration::from_secs(1);

/// How long the source may take to list its nodes.
const LOOKING: Duration = Duration::from_secs(2);

/// How long a leaving node waits for its report to be removed.
const LEAVING: Duration = Duration::from_millis(1500);

/// A gateway that follows a source, as the thread needs it.
pub(crate) trait Follows: Send + Sync {
    /// Runs the bundle in this folder.
    ///
    /// # Errors
    /// What is wrong with it. The previous config keeps running, unchanged.
    fn run_bundle(self: Arc<Self>, folder: &Path, by: &By) -> Result<(), Mistakes>;

    /// Watches the new bundle until [`Self::end_bundle_trial`], with intervals suited to steps of this length.
    fn try_bundle(self: Arc<Self>, hold: Duration);

    /// The rollout of the bundle on trial is over, or another config runs.
    fn end_bundle_trial(self: Arc<Self>);

    /// Takes the complaint about the bundle on trial.
    fn bundle_blamed(self: Arc<Self>) -> Option<String>;
}

/// The gateway's handle on its thread.
pub(crate) struct Handle {
    tell: mpsc::UnboundedSender<Message>,
    status: Arc<Mutex<FleetStatus>>,
}

enum Message {
    Follower(follower::Event),
    Fetched(Digest, Result<Bundle, String>),
    Ran(Digest, Outcome, Option<(PathBuf, Weight)>),
    Session(session::Event),
    /// The node would not be reported missing if it went silent, for this reason.
    Forgotten(String),
    Coordinator(coordinator::Event),
    /// A request to see the fleet.
    Look(std_mpsc::Sender<Seen>),
    /// The gateway ends.
    Leave(std_mpsc::Sender<()>),
}

impl Handle {
    /// The gateway's report on its source.
    pub(crate) fn status(&self) -> FleetStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The fleet as the source reports it; `None` if that takes too long. Blocks.
    pub(crate) fn look(&self) -> Option<Seen> {
        let (to, seen) = std_mpsc::channel();
        self.tell.send(Message::Look(to)).ok()?;
        seen.recv_timeout(2 * LOOKING).ok()
    }

    /// Removes the node from the fleet's live nodes. Waits a moment for that.
    pub(crate) fn leave(&self) {
        let (done, left) = std_mpsc::channel();
        if self.tell.send(Message::Leave(done)).is_ok() {
            let _ = left.recv_timeout(LEAVING); // its lease expires anyway
        }
    }
}

/// Starts following.
pub(crate) fn start(
    found: Found,
    gateway: Weak<dyn Follows>,
    telemetry: Arc<Telemetry>,
    version: &'static str,
) -> Result<Handle, String> {
    let (tell, told) = mpsc::unbounded_channel();
    let status = Arc::new(Mutex::new(FleetStatus::default()));
    let handle = Handle { tell: tell.clone(), status: Arc::clone(&status) };
    let (started, start) = std_mpsc::channel();
    let work = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(e) => return drop(started.send(Err(e.to_string()))), // the receiver waits for this
        };
        let _in_runtime = runtime.enter();
        match Driver::new(found, gateway, telemetry, status, tell, version) {
            Ok(driver) => {
                let _ = started.send(Ok(())); // as above
                LocalSet::new().block_on(&runtime, driver.drive(told));
            }
            Err(e) => drop(started.send(Err(e))),
        }
    };
    let spawned = std::thread::Builder::new().name("weir-fleet".to_owned()).spawn(work);
    spawned.map_err(|e| format!("the thread that follows the source: {e}"))?;
    start.recv().unwrap_or_else(|_| Err("the thread that follows the source ended".to_owned()))?;
    Ok(handle)
}

struct Driver {
    gateway: Weak<dyn Follows>,
    telemetry: Arc<Telemetry>,
    status: Arc<Mutex<FleetStatus>>,
    tell: mpsc::UnboundedSender<Message>,
    remote: Remote,
    cache: Arc<Mutex<Cache>>,
    began: Instant,
    boot: u64,
    version: &'static str,
    node: String,
    labels: weir_fleet::pointer::Labels,
    zone: String,
    follower: Follower,
    session: Session,
    coordinator: Coordinator,
    /// Fetched bundles that may have to be written to disk.
    bundles: HashMap<Digest, Arc<Bundle>>,
    /// The folders of the running bundle and of previous ones.
    folders: Vec<PathBuf>,
    watch: Option<AbortHandle>,
    lease: Option<session::Lease>,
    shown: Option<u64>,
    since: Option<SystemTime>,
    /// The complaint about a bundle on trial.
    unwell: Option<Reason>,
    /// Whether the running bundle is watched; and what it cost.
    on_trial: bool,
    weight: Option<Weight>,
    /// Why its report could not be written last; and why it could not coordinate.
    unseen: String,
    unled: String,
    /// Whether it was logged that nobody would miss the node; and whether it waits for its first bundle.
    forgotten: bool,
    waited: bool,
}

impl Driver {
    fn new(
        found: Found,
        gateway: Weak<dyn Follows>,
        telemetry: Arc<Telemetry>,
        status: Arc<Mutex<FleetStatus>>,
        tell: mpsc::UnboundedSender<Message>,
        version: &'static str,
    ) -> Result<Self, String> {
        let remote = Remote::new(&found.source)?;
        let node = remote.etcd().map_or_else(machine, |etcd| etcd.node.clone());
        let (boot, seeds) = (random(0), [random(1), random(2), random(3)]);
        let settings = follower::Settings {
            node: node.clone(),
            labels: found.labels.clone(),
            spread: if remote.etcd().is_some() { follower::SPREAD } else { Duration::ZERO },
        };
        let running = found.bundle.as_ref().map(Bundle::digest);
        let driver = Self {
            waited: running.is_none(),
            gateway,
            telemetry,
            status,
            tell,
            remote,
            cache: Arc::new(Mutex::new(found.cache)),
            began: Instant::now(),
            boot,
            version,
            node,
            labels: found.labels,
            zone: found.zone,
            follower: Follower::new(settings, seeds[0]),
            session: Session::new(seeds[1]),
            coordinator: Coordinator::new(seeds[2]),
            bundles: HashMap::new(),
            folders: found.folder.into_iter().collect(),
            watch: None,
            lease: None,
            shown: None,
            since: running.map(|_| SystemTime::now()),
            unwell: None,
            on_trial: false,
            weight: running.map(|_| Weight { compile: found.opened.elapsed(), ..Weight::default() }),
            unseen: String::new(),
            unled: String::new(),
            forgotten: false,
        };
        let bundle = running.map_or_else(|| "none".to_owned(), |digest| digest.short());
        log::info("config from a source", &[("source", &driver.remote.place()), ("cached", &bundle)]);
        driver.show(&FleetState::of(&driver, running));
        // The first action comes by the loop, which soon runs on this thread.
        let _ = driver.tell.send(Message::Follower(follower::Event::Begin(running)));
        Ok(driver)
    }

    fn now(&self) -> Time {
        self.began.elapsed()
    }

    async fn drive(mut self, mut told: mpsc::UnboundedReceiver<Message>) {
        loop {
            let next = self.follower.next().min(self.session.next()).min(self.coordinator.next());
            let wait = next.saturating_sub(self.now()).min(LOOK);
            let message = tokio::time::timeout(wait, told.recv()).await;
            if self.gateway.strong_count() == 0 {
                return;
            }
            match message {
                Ok(Some(Message::Leave(done))) => return self.leave(done).await,
                Ok(Some(message)) => self.on_message(message),
                Ok(None) => return,
                Err(_) => self.tick(),
            }
            self.synchronize();
        }
    }

    async fn leave(self, done: std_mpsc::Sender<()>) {
        if let Some(etcd) = self.remote.etcd() {
            let _ = tokio::time::timeout(LEAVING, etcd.leave(self.session.lease())).await; // its leases expire anyway
        }
        let _ = done.send(()); // the receiver may have given up
    }

    fn on_message(&mut self, message: Message) {
        let now = self.now();
        match message {
            Message::Follower(event) => {
                if let follower::Event::Kept(digest, true) = &event {
                    self.bundles.remove(digest); // if it was not kept, it is tried again
                }
                self.follow(event);
            }
            Message::Fetched(digest, result) => {
                let result = result.map(|bundle| drop(self.bundles.insert(digest, Arc::new(bundle))));
                self.follow(follower::Event::Fetched(digest, result));
                // Drop bundles that nobody asks for any more.
                let wanted = self.follower.wanted();
                self.bundles.retain(|known, _| Some(*known) == wanted);
            }
            Message::Ran(digest, outcome, folder) => self.on_run(digest, outcome, folder),
            Message::Session(event) => {
                self.log_session_failure(&event);
                for action in self.session.on(now, event) {
                    self.keep_session(action);
                }
            }
            Message::Coordinator(event) => {
                self.log_coordinator_failure(&event);
                if let Some(action) = self.coordinator.on(now, event) {
                    self.coordinate(action);
                }
            }
            Message::Forgotten(why) => {
                if !std::mem::replace(&mut self.forgotten, true) {
                    let hint = "it still follows the fleet and reports; the role of its user needs `readwrite` on PREFIX/seen/";
                    log::warn("the node's absence would go unnoticed", &[("error", &why), ("hint", &hint)]);
                }
            }
            Message::Look(to) => self.send_state(to),
            Message::Leave(_) => {}
        }
    }

    /// Sends the state of the fleet, once the source has reported it.
    fn send_state(&self, to: std_mpsc::Sender<Seen>) {
        let pointer = self.follower.pointer().cloned();
        let Some(etcd) = self.remote.etcd() else {
            return drop(to.send(Seen { pointer, nodes: None, silent: Vec::new() })); // the receiver may have given up
        };
        drop(spawn_local(async move {
            let late = || Err("it does not answer in time".to_owned());
            let looked = tokio::time::timeout(LOOKING, etcd.look()).await.unwrap_or_else(|_| late());
            let looked = looked.map(|mut looked| {
                looked.nodes.sort_by(|a, b| a.node.cmp(&b.node));
                looked.silent.sort_by(|a, b| a.node.cmp(&b.node));
                looked
            });
            let (nodes, silent) = match looked {
                Ok(looked) => (Ok(looked.nodes), looked.silent),
                Err(why) => (Err(why), Vec::new()),
            };
            let _ = to.send(Seen { pointer, nodes: Some(nodes), silent }); // as above
        }));
    }

    fn tick(&mut self) {
        let now = self.now();
        self.follow(follower::Event::Tick);
        for action in self.session.on(now, session::Event::Tick) {
            self.keep_session(action);
        }
        if let Some(action) = self.coordinator.on(now, coordinator::Event::Tick) {
            self.coordinate(action);
        }
    }

    /// Passes what one machine knows to the others, and to status and metrics.
    fn synchronize(&mut self) {
        let now = self.now();
        self.check_trial();
        self.end_trial();
        if self.remote.etcd().is_some() {
            let report = self.report().write();
            for action in self.session.on(now, session::Event::Say(report)) {
                self.keep_session(action);
            }
            if self.session.lease() != self.lease {
                self.lease = self.session.lease();
                if let Some(action) = self.coordinator.on(now, coordinator::Event::Lease(self.lease)) {
                    self.coordinate(action);
                }
            }
            let modified = self.follower.pointer().map(|_| self.follower.modified());
            if self.shown != modified {
                self.shown = modified;
                let seen = self
                    .follower
                    .pointer()
                    .map(|pointer| Box::new((pointer.clone(), self.follower.modified())));
                if let Some(action) = self.coordinator.on(now, coordinator::Event::Pointer(seen)) {
                    self.coordinate(action);
                }
            }
        }
        self.show(&FleetState::of(self, self.follower.running()));
    }

    fn show(&self, state: &FleetState) {
        let FleetState { status, contact } = state;
        self.telemetry.source(weir_telemetry::SourceState {
            answers: status.state != "away",
            contact: *contact,
            refused: status.refused.is_some(),
            bundle: status.bundle.clone().unwrap_or_default(),
            node: status.node.clone(),
            zone: status.zone.clone(),
            labels: weir_fleet::pointer::labels_text(&status.labels),
        });
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status.clone();
    }
}

struct FleetState {
    status: FleetStatus,
    contact: Option<SystemTime>,
}

impl FleetState {
    fn of(driver: &Driver, running: Option<Digest>) -> Self {
        let follower = &driver.follower;
        let ago = follower.contact().map(|at| driver.now().saturating_sub(at));
        let trouble = Some(follower.trouble()).filter(|trouble| !trouble.is_empty()).map(str::to_owned);
        let refused = follower.refused();
        let status = FleetStatus {
            source: driver.remote.place(),
            node: driver.node.clone(),
            labels: driver.labels.clone(),
            zone: driver.zone.clone(),
            state: match running {
                None => "waiting",
                Some(_) if follower.is_away() => "away",
                Some(_) => "following",
            },
            bundle: running.map(|digest| digest.to_string()),
            since: driver.since.map(timestamp),
            cached: follower.is_kept(),
            generation: follower.pointer().map_or(0, |pointer| pointer.generation),
            contact_seconds_ago: ago.map(|ago| ago.as_secs()),
            refused: refused.map(|reason| reason.bundle.to_string()),
            why: refused.map(|reason| reason.why.clone()),
            trouble,
            coordinates: driver.coordinator.leads(),
        };
        Self { status, contact: ago.and_then(|ago| SystemTime::now().checked_sub(ago)) }
    }
}

/// Mistakes in a bundle are permanent; what the system refused may succeed later.
fn judged(diagnostics: &Diagnostics) -> Outcome {
    let text = diagnostics.for_readers().to_text();
    let of_system = |code: &str| matches!(code, "system" | "draining" | "state-unusable");
    let mut errors = diagnostics.iter().filter(|d| d.severity == weir_config::Severity::Error);
    if errors.all(|d| of_system(d.code)) {
        Outcome::Failed(text.trim_end().to_owned())
    } else {
        Outcome::Refused(text.trim_end().to_owned())
    }
}

/// This process's memory in bytes; 0 if the system does not say.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or_default() << 10
}

/// A number that differs between processes. Nothing secret depends on it.
fn random(which: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(which)
}
