//! The thread weir-fleet: performs the actions of weir-fleet's machines and reports the results to them. Anything
//! that blocks or waits runs beside it and returns its result as a message.

use super::remote::Remote;
use super::{FleetStatus, Found, Seen};
use crate::history::{By, Origin};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use weir_config::{Diagnostics, Mistakes};
use weir_fleet::coordinator::{self, Coordinator};
use weir_fleet::follower::{self, Follower, Note, Outcome};
use weir_fleet::pointer::State;
use weir_fleet::report::Reason;
use weir_fleet::session::{self, Session};
use weir_fleet::{Bundle, Cache, Digest, NodeReport, Time, Weight};
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

    // === the follower ===

    fn follow(&mut self, event: follower::Event) {
        let actions = self.follower.on(self.now(), event);
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: follower::Action) {
        let (tell, remote) = (self.tell.clone(), self.remote.clone());
        match action {
            follower::Action::Read(number) => drop(spawn_local(async move {
                let read = remote.read().await;
                let _ = tell.send(Message::Follower(follower::Event::Read(number, read))); // the loop may have ended
            })),
            follower::Action::Watch(number, from) => {
                self.unwatch();
                let task = spawn_local(async move {
                    let say = |told| drop(tell.send(Message::Follower(follower::Event::Watch(number, told))));
                    let why = remote.watch(from, &say).await;
                    say(follower::WatchEvent::Ended(why));
                });
                self.watch = Some(task.abort_handle());
            }
            follower::Action::Unwatch => self.unwatch(),
            follower::Action::Fetch(digest) => drop(spawn_local(async move {
                let fetched = remote.bundle(digest).await;
                let _ = tell.send(Message::Fetched(digest, fetched)); // as above
            })),
            follower::Action::Run(digest) => self.run(digest),
            follower::Action::Keep(digest) => self.keep(digest),
            follower::Action::Report => {}
            follower::Action::Say(note) => self.log_note(note),
        }
    }

    fn unwatch(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
    }

    /// Lays a bundle out, compiles it and hands it to the cores, on a thread that may block.
    fn run(&self, digest: Digest) {
        let Some(bundle) = self.bundles.get(&digest).cloned() else {
            let lost = Outcome::Failed("it was fetched and is gone".to_owned());
            return drop(self.tell.send(Message::Ran(digest, lost, None))); // it may have ended
        };
        let (tell, cache, gateway) = (self.tell.clone(), Arc::clone(&self.cache), self.gateway.clone());
        drop(tokio::task::spawn_blocking(move || {
            let laid_out = cache.lock().unwrap_or_else(PoisonError::into_inner).lay_out(&bundle);
            let (outcome, folder) = match (laid_out, gateway.upgrade()) {
                (Err(e), _) => (Outcome::Failed(format!("its files cannot be written: {e}")), None),
                (_, None) => return,
                (Ok(folder), Some(gateway)) => {
                    let by = By {
                        author: "fleet".to_owned(),
                        origin: Origin::Source,
                        message: format!("bundle {}", digest.short()),
                    };
                    let (began, held) = (Instant::now(), memory());
                    match gateway.run_bundle(&folder, &by) {
                        Ok(()) => {
                            let weight = Weight { compile: began.elapsed(), held, memory: memory() };
                            (Outcome::Running, Some((folder, weight)))
                        }
                        Err(diagnostics) => (judged(&diagnostics), None),
                    }
                }
            };
            let _ = tell.send(Message::Ran(digest, outcome, folder)); // it may have ended
        }));
    }

    fn on_run(&mut self, digest: Digest, outcome: Outcome, ran: Option<(PathBuf, Weight)>) {
        if let Some((folder, weight)) = ran {
            self.since = Some(SystemTime::now());
            self.compare_weight(digest, weight);
            self.folders.retain(|known| *known != folder);
            self.folders.push(folder);
            // Running exchanges may still read the previous bundle's files.
            let most = self.folders.len().saturating_sub(2);
            self.folders.drain(..most);
        }
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).tidy(&self.folders);
        self.follow(follower::Event::Ran(digest, outcome));
    }

    fn keep(&self, digest: Digest) {
        let (tell, cache) = (self.tell.clone(), Arc::clone(&self.cache));
        // A bundle fetched since may have replaced it in memory; its files are still there.
        let bundle = self.bundles.get(&digest).cloned();
        let folder = self.folders.last().cloned();
        drop(tokio::task::spawn_blocking(move || {
            let laid_out = || {
                let bundle = Bundle::read_all(&folder?).ok()?;
                (bundle.digest() == digest).then(|| Arc::new(bundle))
            };
            let Some(bundle) = bundle.or_else(laid_out) else {
                let lost = Message::Follower(follower::Event::Kept(digest, false));
                return drop(tell.send(lost)); // it may have ended
            };
            let kept = cache.lock().unwrap_or_else(PoisonError::into_inner).keep(&bundle);
            if let Err(e) = &kept {
                log::error("the running config could not be saved to disk", &[("error", e)]);
            }
            let _ = tell.send(Message::Follower(follower::Event::Kept(digest, kept.is_ok()))); // it may have ended
        }));
    }

    fn log_note(&mut self, note: Note) {
        let source = self.remote.place();
        let hint = "the running config stays";
        match note {
            Note::Away(why) => {
                log::warn(
                    "the source does not answer",
                    &[("source", &source), ("error", &why), ("hint", &hint)],
                );
            }
            Note::Back => log::info("the source answers again", &[("source", &source)]),
            Note::Empty => log::warn("the source has no config", &[("source", &source), ("hint", &hint)]),
            Note::Unreadable(why) => {
                log::error(
                    "the source cannot be followed",
                    &[("source", &source), ("error", &why), ("hint", &hint)],
                );
            }
            Note::Runs(digest) => {
                let generation = self.follower.pointer().map_or(0, |pointer| pointer.generation);
                log::info(
                    "bundle runs",
                    &[("bundle", &digest.short()), ("generation", &generation), ("source", &source)],
                );
                if std::mem::take(&mut self.waited) {
                    log::info("ready", &[("bundle", &digest.short())]);
                }
                self.try_out(digest);
            }
            Note::Refused(digest, _) => {
                let hint = "it is not tried again; `weir fleet status` shows why";
                log::error(
                    "bundle refused",
                    &[("bundle", &digest.short()), ("source", &source), ("hint", &hint)],
                );
            }
            Note::Trouble(digest, why) => {
                log::error("bundle cannot be run now", &[("bundle", &digest.short()), ("error", &why)]);
            }
            Note::NotKept(digest) => {
                let hint = "a restart finds the one before it; it is tried again every 30 s";
                log::warn("bundle is not on the disk", &[("bundle", &digest.short()), ("hint", &hint)]);
            }
        }
    }

    // === the trial of a bundle ===

    /// During a rollout, the running bundle is watched like a change with `--watch`.
    fn try_out(&mut self, digest: Digest) {
        let Some(pointer) = self.follower.pointer().filter(|pointer| pointer.to == digest) else { return };
        let hold = Duration::from_millis(pointer.rollout.hold_ms);
        if pointer.rollout.state == State::Running
            && !hold.is_zero()
            && let Some(gateway) = self.gateway.upgrade()
        {
            gateway.try_bundle(hold);
            self.on_trial = true;
        }
    }

    /// The watch ends when the rollout is over or something else runs.
    fn end_trial(&mut self) {
        let running = self.follower.running();
        let is_under_way = self
            .follower
            .pointer()
            .is_some_and(|pointer| pointer.rollout.state != State::Done && Some(pointer.to) == running);
        if self.on_trial && !is_under_way {
            self.on_trial = false;
            if let Some(gateway) = self.gateway.upgrade() {
                gateway.end_bundle_trial();
            }
        }
    }

    /// Compares a bundle's cost with that of the previous one, while other bundles wait.
    fn compare_weight(&mut self, digest: Digest, weight: Weight) {
        let is_tried =
            self.follower.pointer().is_some_and(|pointer| pointer.to == digest && pointer.is_tried());
        let why = self.weight.and_then(|before| weight.complaint(before)).filter(|_| is_tried);
        if let Some(why) = &why {
            log::error("bundle is too large", &[("bundle", &digest.short()), ("why", why)]);
        }
        self.unwell = why.map(|why| Reason::new(digest, &why));
        self.weight = Some(weight);
    }

    fn check_trial(&mut self) {
        let Some(digest) = self.follower.running() else { return };
        if self.unwell.is_none()
            && let Some(gateway) = self.gateway.upgrade()
            && let Some(why) = gateway.bundle_blamed()
        {
            log::error("bundle is unhealthy", &[("bundle", &digest.short()), ("why", &why)]);
            self.unwell = Some(Reason::new(digest, &why));
        }
    }

    // === session and coordinator ===

    fn report(&self) -> NodeReport {
        NodeReport {
            zone: self.zone.clone(),
            version: self.version.to_owned(),
            boot: self.boot,
            since: self.since.map(timestamp).unwrap_or_default(),
            unwell: self.unwell.clone(),
            ..self.follower.report()
        }
    }

    /// Logs once what keeps the node from being seen, unless the whole source is unreachable, which is already
    /// logged.
    fn log_session_failure(&mut self, event: &session::Event) {
        let outcome = match event {
            session::Event::Granted(Err(why))
            | session::Event::Kept(Err(why))
            | session::Event::Done(Err(why)) => why,
            session::Event::Done(Ok(())) => return self.unseen.clear(),
            _ => return,
        };
        if self.unseen != *outcome && !self.follower.is_away() {
            self.unseen.clone_from(outcome);
            let hint = "`weir fleet status` does not show this node; it still follows the fleet";
            log::warn("the node cannot report itself", &[("error", outcome), ("hint", &hint)]);
        }
    }

    /// Logs once what keeps the node from coordinating. If all nodes have this problem, no rollout advances.
    fn log_coordinator_failure(&mut self, event: &coordinator::Event) {
        let why = match event {
            coordinator::Event::Campaigned(Err(why))
            | coordinator::Event::Moved(Err(why))
            | coordinator::Event::Nodes(Err(why)) => why,
            coordinator::Event::Moved(Ok(_)) => return self.unled.clear(),
            _ => return,
        };
        if self.unled != *why && !self.follower.is_away() {
            self.unled.clone_from(why);
            let hint = "another node may; `weir fleet status` says who does";
            log::warn("the node cannot coordinate the rollout", &[("error", why), ("hint", &hint)]);
        }
    }

    fn keep_session(&self, action: session::Action) {
        let Some(etcd) = self.remote.etcd() else { return };
        let tell = self.tell.clone();
        drop(spawn_local(async move {
            let say = |event| drop(tell.send(Message::Session(event))); // it may have ended
            // The session does not wait for what follows its answer.
            let remembered = match action {
                session::Action::Grant => {
                    say(session::Event::Granted(etcd.grant().await));
                    return;
                }
                session::Action::Keep(lease) => {
                    say(session::Event::Kept(etcd.keep_alive(lease).await));
                    etcd.stay_remembered().await
                }
                session::Action::Put(lease, report) => {
                    let put = etcd.put_report(lease, &report).await;
                    let is_put = put.is_ok();
                    say(session::Event::Done(put));
                    if is_put { etcd.remember(report).await } else { Ok(()) }
                }
            };
            // Any other reason affects everything else too, and is reported there.
            if let Err(why) =
                remembered.or_else(|why| if why.contains("permission") { Err(why) } else { Ok(()) })
            {
                let _ = tell.send(Message::Forgotten(why)); // as above
            }
        }));
    }

    fn coordinate(&self, action: coordinator::Action) {
        let Some(etcd) = self.remote.etcd() else { return };
        let tell = self.tell.clone();
        if let coordinator::Action::Move { pointer, .. } = &action {
            let rollout = &pointer.rollout;
            log::info(
                "rollout advances",
                &[
                    ("bundle", &pointer.to.short()),
                    ("open", &rollout.open),
                    ("state", &rollout.state.name()),
                    ("why", &rollout.why),
                ],
            );
        }
        drop(spawn_local(async move {
            let event = match action {
                coordinator::Action::Campaign(lease) => {
                    coordinator::Event::Campaigned(etcd.campaign(lease).await)
                }
                coordinator::Action::Look => coordinator::Event::Nodes(etcd.look().await),
                coordinator::Action::Move { pointer, revision, key } => {
                    coordinator::Event::Moved(etcd.move_pointer(&pointer, revision, key).await)
                }
            };
            let _ = tell.send(Message::Coordinator(event)); // it may have ended
        }));
    }

    // === what is shown ===

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
