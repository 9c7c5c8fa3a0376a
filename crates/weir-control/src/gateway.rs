//! The gateway as a program sees it: built from a config, started, queried, drained.

use weir_engine::autopsy::{self, Question};
mod changes;
mod ending;
mod figures;
mod followed;
mod guard;
pub mod shadow;
mod warm;

pub use changes::Touched;

use shadow::Shadows;

use crate::crew::Crew;
use crate::fleet;
use crate::history::{By, History, Origin, Pin, TakenBack};
use crate::reload::{self, AdminTls, Books, Control, Refused, Reloaded, Watching};
use crate::status::{
    self, CauseCount, ConsumerSourceStatus, EndpointStatus, ListenerStatus, Status, UpstreamStatus,
};
use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as mpsc_std;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;
use weir_acme::Acme;
use weir_config::load::Unreadable;
use weir_config::schema::Config;
use weir_config::{Diagnostics, Loaded, Mistakes, Overrides, Source, load};
use weir_engine::core::Message;
use weir_engine::handover::Inheritance;
use weir_engine::snapshot::{Carry, FilterStatus, Snapshot, compile};
use weir_filter::filter::{FilterKind, Purge};
use weir_telemetry::{Exposition, FilterReading, Setup, Telemetry, log};
use weir_upstream::error::{self, Limit};
use weir_upstream::upstream::{ByHand, Watched};
use weir_wire::tls::ServerTls;

/// A running gateway. Cheap to clone; it runs until [`Gateway::stop`] or [`Gateway::drain`] ends it, whatever is
/// dropped.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    telemetry: Arc<Telemetry>,
    control: Mutex<Control>,
    crew: Crew,
    draining: AtomicBool,
    configs: watch::Sender<Arc<Config>>,
    started: SystemTime,
    version: &'static str,
    ended: (Mutex<bool>, Condvar),
    watching: Mutex<Option<Watching>>,
    /// The running upstreams, and whether readiness waits for probes of any.
    watched: Watched,
    awaits_probes: AtomicBool,
    /// What readiness waits for by order of the embedding program.
    held: Mutex<Option<String>>,
    /// Figures of the embedding program.
    reported: Mutex<Vec<FilterStatus>>,
    /// The ACME certificates, and whether readiness waits for any.
    acme: Acme,
    certificates: warm::Certificates,
    admin_tls: AdminTls,
    guard: Mutex<guard::Guard>,
    shadows: Shadows,
    /// Where the config comes from; all clones know the running bundle.
    source: Source,
    /// The thread that follows a source, if the config has one.
    fleet: OnceLock<fleet::Handle>,
    /// All causes, and those answered with 5xx.
    causes: &'static [&'static str],
    errors: HashSet<&'static str>,
    /// The causes that report a failure instead of a refusal.
    failures: HashSet<&'static str>,
}

/// A gateway that has not started yet.
#[derive(Debug)]
pub struct Builder {
    source: Source,
    kinds: Vec<&'static FilterKind>,
    version: &'static str,
    commit: &'static str,
    inherited: Inheritance,
}

/// Why a gateway did not start.
#[derive(Debug)]
pub enum StartError {
    /// The config has errors.
    Config(Mistakes),
    /// The system refused something: an address is in use, a file cannot be written.
    System(Box<dyn Error + Send + Sync>),
}

/// A config as checked, for `weir check`, `weir explain` and tests.
pub struct Checked {
    /// All findings. If nothing was compiled, at least one is an error.
    pub diagnostics: Diagnostics,
    /// The config and its snapshot, unless there are errors.
    pub compiled: Option<(Loaded, Snapshot)>,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(mistakes) => mistakes.fmt(f),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(_) => None,
            Self::System(error) => error.source(),
        }
    }
}

/// Everything that `start` would refuse with these kinds of filters, without starting: loads, checks and compiles.
pub fn check(source: &Source, kinds: &[&'static FilterKind]) -> Checked {
    let mut loaded = match load(source) {
        Ok(loaded) => loaded,
        Err(unreadable) => {
            return Checked { diagnostics: unreadable.diagnostics.into_diagnostics(), compiled: None };
        }
    };
    let snapshot = compile(&mut loaded, kinds, &mut Carry::new(Telemetry::new(Setup::default())));
    // What a running gateway decided about these files.
    let pin = loaded.texts.state.as_deref().and_then(|state| Pin::read(state).ok().flatten());
    if let Some(pin) = pin.filter(|pin| pin.refused == loaded.texts.hand) {
        loaded.diagnostics.push(reload::warning(&pin));
    }
    let taken = loaded.texts.state.as_deref().and_then(TakenBack::read);
    if let Some(taken) = taken.filter(|taken| taken.is_all_of(&loaded.texts).is_some()) {
        loaded.diagnostics.push(reload::taken_back(&taken));
    }
    let diagnostics = loaded.diagnostics.clone();
    Checked { diagnostics, compiled: snapshot.ok().map(|snapshot| (loaded, snapshot)) }
}

// === impl Builder ===

impl Builder {
    /// A gateway without any filters, to be built from a config.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            kinds: Vec::new(),
            version: env!("CARGO_PKG_VERSION"),
            commit: "",
            inherited: Inheritance::default(),
        }
    }

    /// Adds kinds of filters. If two have one name, the first counts.
    #[must_use]
    pub fn filters(mut self, kinds: &[&'static FilterKind]) -> Self {
        self.kinds.extend(kinds);
        self
    }

    /// Adds a kind: a filter of the embedding program.
    #[must_use]
    pub fn filter(mut self, kind: &'static FilterKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Sets the program's version and commit, for `weir_build_info`.
    #[must_use]
    pub const fn version(mut self, version: &'static str, commit: &'static str) -> Self {
        (self.version, self.commit) = (version, commit);
        self
    }

    /// Starts with sockets that are already open, and with the previous process's state.
    #[must_use]
    pub fn inherit(mut self, inherited: Inheritance) -> Self {
        self.inherited = inherited;
        self
    }

    /// Loads the config, binds every listener and starts to serve.
    ///
    /// # Errors
    /// See [`StartError`]. Then nothing runs.
    pub fn start(mut self) -> Result<Gateway, StartError> {
        // Otherwise the first TLS handshake with an upstream would block a core while it gathers entropy.
        weir_wire::random::make_ready();
        let source = self.source.clone();
        let mut books = Books::default();
        let unreadable = |e: Unreadable| StartError::Config(e.diagnostics);
        let mut gathered = books.read(&self.source, Overrides::default()).map_err(unreadable)?;
        let found = if gathered.awaits { self.find_bundle() } else { None };
        if found.as_ref().is_some_and(|found| found.bundle.is_some()) {
            gathered = books.read(&self.source, Overrides::default()).map_err(unreadable)?;
        }
        let mut loaded = gathered.finish(&self.source, Overrides::default());
        let cores = loaded.config.workers.count();
        let causes =
            self.kinds.iter().flat_map(|k| k.causes.iter().copied()).chain(error::CAUSES.iter().copied());
        let mut codes: Vec<&'static str> = causes.map(|c| c.code).collect();
        codes.sort_unstable();
        codes.dedup();
        let causes = || self.kinds.iter().flat_map(|k| k.causes.iter()).chain(error::CAUSES);
        let errors = causes().filter(|cause| cause.status >= 500).map(|cause| cause.code).collect();
        let failures = causes().filter(|cause| cause.is_failure()).map(|cause| cause.code).collect();
        // Leaked, because the list and references to it live as long as the process.
        let codes: &'static [&'static str] = Vec::leak(codes);
        let telemetry = Telemetry::new(Setup {
            cores,
            causes: codes,
            limits: Limit::NAMES,
            version: self.version,
            commit: self.commit,
            route_cap: loaded.config.limits.metric_routes as usize,
            consumer_cap: loaded.config.limits.metric_consumers as usize,
            ..Setup::default()
        });
        let mut carry = Carry::new(Arc::clone(&telemetry));
        let switches = books.history.as_ref().map(History::switches).unwrap_or_default();
        carry
            .inherit_switches(switches.into_iter().map(|(name, until)| (name, until.to_le_bytes().to_vec())));
        let homes = self.inherited.take_homes().map_err(|e| StartError::System(e.into()))?;
        carry.inherit(self.inherited.take_state());
        let snapshot = compile(&mut loaded, &self.kinds, &mut carry).map_err(StartError::Config)?;
        let (telemetry_, config) = (Arc::clone(&telemetry), loaded.config.clone());
        let control = Control::new(self.source, self.kinds, carry, telemetry_, config, self.inherited, books);
        let mut control = control.map_err(|e| StartError::System(e.into()))?;
        let diagnostics = loaded.diagnostics.clone();
        let prepared = control.prepare(loaded, snapshot, cores, &Vec::new).map_err(StartError::System)?;

        let crew = Crew::start(cores, &telemetry, &prepared.snapshot, homes);
        let crew = crew.map_err(|e| StartError::System(e.into()))?;
        control.commit(prepared, &crew, true);
        Control::log_warnings(&diagnostics, &Diagnostics::default());
        control.note_warnings(&diagnostics);
        let config = Arc::clone(&control.config);
        let gateway = Gateway {
            inner: Arc::new(Inner {
                telemetry,
                crew,
                draining: AtomicBool::new(false),
                configs: watch::Sender::new(Arc::clone(&config)),
                started: SystemTime::now(),
                version: self.version,
                ended: (Mutex::new(false), Condvar::new()),
                watching: Mutex::new(None),
                watched: control.watched(),
                awaits_probes: AtomicBool::new(true),
                held: Mutex::default(),
                reported: Mutex::default(),
                acme: control.acme(),
                certificates: warm::Certificates::default(),
                admin_tls: control.admin_tls(),
                guard: Mutex::default(),
                shadows: Shadows::default(),
                causes: codes,
                source,
                fleet: OnceLock::new(),
                errors,
                failures,
                control: Mutex::new(control),
            }),
        };
        gateway.watch();
        gateway.resume_trials();
        gateway.start_guard();
        if let Some(found) = found {
            let telemetry = Arc::clone(&gateway.inner.telemetry);
            match fleet::start(found, gateway.downgrade(), telemetry, self.version) {
                Ok(handle) => drop(gateway.inner.fleet.set(handle)), // only set here
                Err(e) => {
                    gateway.stop();
                    return Err(StartError::System(format!("source: {e}").into()));
                }
            }
        }
        Ok(gateway)
    }

    /// If the config has a source, selects the bundle that last ran. If it no longer compiles, for example after an
    /// upgrade, the gateway starts anyway: the source may have another.
    fn find_bundle(&self) -> Option<fleet::Found> {
        let mut found = fleet::Found::open(&self.source)?;
        if found.bundle.is_some() {
            let checked = check(&self.source, &self.kinds);
            if checked.compiled.is_none() {
                let text = checked.diagnostics.for_readers().to_text();
                let first = text.lines().find(|line| line.starts_with("error")).unwrap_or_default();
                log::error("the last good config does not compile and is not used", &[("first", &first)]);
                self.source.set_bundle(None);
                (found.bundle, found.folder) = (None, None);
            }
        }
        Some(found)
    }
}

// === impl Gateway ===

impl Gateway {
    /// Loads the config again and, if it is valid, runs it instead of the current one. Blocks until every core has
    /// adopted it, which takes milliseconds.
    ///
    /// # Errors
    /// What is wrong with the config. The current one keeps running, unchanged.
    pub fn reload(&self) -> Result<Reloaded, Refused> {
        self.reload_by(&By::process(Origin::Reload))
    }

    /// Whether every core's loop answers a message within `limit`. A core stuck in a task, or whose thread has ended,
    /// does not. Blocks until all have answered or `limit` is over.
    pub fn turns(&self, limit: Duration) -> bool {
        let (to, turned) = mpsc_std::channel();
        let (serving, _) = self.inner.crew.siblings(); // none once it has ended
        for core in &serving {
            let _ = core.mailbox.send(Message::Turn { to: to.clone() }); // a core that is gone does not answer
        }
        drop(to);
        let by = Instant::now() + limit;
        let left = || by.saturating_duration_since(Instant::now());
        !serving.is_empty() && serving.iter().all(|_| turned.recv_timeout(left()).is_ok())
    }

    /// Whether it was stopped or has drained.
    pub fn has_ended(&self) -> bool {
        *self.inner.ended.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no config because the source has not sent one yet: then nothing listens.
    pub fn awaits_config(&self) -> bool {
        self.inner.fleet.get().is_some() && self.inner.source.bundle().is_none()
    }

    /// Removes this node from the fleet's live nodes.
    fn leave_fleet(&self) {
        if let Some(fleet) = self.inner.fleet.get() {
            fleet.leave();
        }
    }

    /// For the gateway's own threads, which must not keep it alive.
    fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    /// Whether new requests are welcome: false from the start of a drain.
    pub fn is_ready(&self) -> bool {
        !self.inner.draining.load(Ordering::Relaxed)
    }

    /// The upstreams whose probes readiness waits for (`readyz: true`), because none of their endpoints has passed
    /// one yet. Once all have, readiness no longer waits, whatever happens to them or to the config.
    pub fn awaited_probes(&self) -> Vec<String> {
        if !self.inner.awaits_probes.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let upstreams = self.inner.watched.load();
        let awaited = upstreams.iter().filter(|upstream| upstream.awaits_probes());
        let names: Vec<String> = awaited.map(|upstream| upstream.name.to_string()).collect();
        if names.is_empty() {
            self.inner.awaits_probes.store(false, Ordering::Relaxed);
        }
        names
    }

    /// Makes readiness wait for something that the embedding program knows of, such as its first complete config; with
    /// `None` it no longer does. Everybody who may ask `/readyz` reads the text.
    pub fn hold_readiness(&self, awaited: Option<String>) {
        *self.inner.held.lock().unwrap_or_else(PoisonError::into_inner) = awaited;
    }

    /// What readiness waits for by [`Self::hold_readiness`].
    pub fn held_by(&self) -> Option<String> {
        self.inner.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows these figures of the embedding program among those of filters, in metrics and in the status. They replace
    /// those reported before.
    pub fn report(&self, figures: Vec<FilterStatus>) {
        *self.inner.reported.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    fn reported(&self) -> Vec<FilterStatus> {
        self.inner.reported.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The running config and every later one.
    pub fn configs(&self) -> watch::Receiver<Arc<Config>> {
        self.inner.configs.subscribe()
    }

    /// TLS of the admin listener in the current config (`admin.tls`).
    pub fn admin_tls(&self) -> Option<Arc<ServerTls>> {
        self.inner.admin_tls.load_full()
    }

    /// The listeners' names and addresses as bound.
    pub fn addresses(&self) -> Vec<(String, weir_wire::listen::Address)> {
        self.control().addresses()
    }

    /// The address of a TCP listener, by name.
    pub fn address(&self, listener: &str) -> Option<std::net::SocketAddr> {
        self.addresses().into_iter().find_map(|(name, address)| match address {
            weir_wire::listen::Address::Tcp(address) if name == listener => Some(address),
            _ => None,
        })
    }

    /// All metrics with their content type, in a format negotiated from an `Accept` value.
    pub fn metrics(&self, accept: &str) -> (&'static str, String) {
        let format: Exposition = weir_telemetry::negotiate(accept);
        let snapshot = Arc::clone(&self.control().snapshot);
        let readings: Vec<_> = snapshot
            .readings()
            .chain(self.reported())
            .map(|r| FilterReading { place: r.place, figure: r.figure, of: r.of, value: r.value })
            .collect();
        (format.content_type(), self.inner.telemetry.expose_with(format, &readings))
    }

    /// What the gateway says about itself.
    pub fn status(&self) -> Status {
        let control = self.control();
        let snapshot = &control.snapshot;
        let telemetry = &self.inner.telemetry;
        let requests = telemetry.requests_total();
        Status {
            version: self.inner.version.to_owned(),
            revision: snapshot.revision.clone(),
            state: if self.is_ready() { "running" } else { "draining" },
            uptime_seconds: self.inner.started.elapsed().unwrap_or_default().as_secs(),
            workers: self.inner.crew.serving(),
            connections: self.connections(),
            requests,
            requests_per_second: control.rate.per_second(Instant::now(), requests),
            last_reload: control.last_reload.clone(),
            causes: telemetry.causes().into_iter().take(status::TOP_CAUSES).map(CauseCount::from).collect(),
            listeners: snapshot
                .listeners
                .iter()
                .map(|l| (l.name.to_string(), ListenerStatus::of(l, snapshot, telemetry)))
                .collect(),
            certificates: control.certificates(),
            upstreams: snapshot
                .upstreams
                .iter()
                .map(|u| (u.name.to_string(), UpstreamStatus::of(u, telemetry)))
                .collect(),
            routes: snapshot.routes.len(),
            number: control.books.history.as_ref().and_then(|history| Some(history.latest()?.number)),
            trial: self.trial(),
            fleet: self.inner.fleet.get().map(fleet::Handle::status),
            pinned: control.books.pinned.as_ref().map(|pin| pin.why.clone()),
            unsaved: control.unsaved(),
            access_log: control.unwritten_log(),
            consumer_sources: snapshot
                .consumer_sources()
                .iter()
                .map(|source| (source.name().to_owned(), ConsumerSourceStatus::of(source)))
                .collect(),
            filters: snapshot.readings().chain(self.reported()).collect(),
        }
    }

    /// What happened to the requested exchanges, and why. Blocks: it asks every core, and reads the config to locate
    /// keys.
    pub fn why(&self, question: Question) -> autopsy::Answer {
        let (to, found) = mpsc_std::channel();
        let question = Arc::new(question);
        self.tell_all(|| Message::Why { question: Arc::clone(&question), to: to.clone() });
        drop(to);
        let by = Instant::now() + WHY;
        let mut after = question.after.clone();
        let (mut kept, mut held, mut since) = (Vec::new(), 0, None);
        while let Ok(of_core) = found.recv_timeout(by.saturating_duration_since(Instant::now())) {
            after.resize(after.len().max(of_core.core + 1), 0);
            after[of_core.core] = of_core.last;
            held += of_core.held;
            since = [since, of_core.oldest].into_iter().flatten().min();
            kept.extend(of_core.kept);
        }
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.began + kept.timing.total));
        let mut alike = vec![0; kept.len()];
        if question.grouped {
            (kept, alike) = autopsy::rings::grouped(kept);
        }
        kept.truncate(question.most);
        let (snapshot, source) = {
            let control = self.control();
            (Arc::clone(&control.snapshot), control.source())
        };
        // Read the files only if something was found: a large config must not be read twice a second.
        let files = if kept.is_empty() { None } else { autopsy::Files::read(&source) };
        let context = autopsy::ReportContext { snapshot: &snapshot, files: files.as_ref() };
        autopsy::Answer {
            found: kept
                .iter()
                .zip(alike)
                .map(|(kept, alike)| autopsy::Autopsy { alike, ..context.render(kept) })
                .collect(),
            cursor: after.iter().map(u64::to_string).collect::<Vec<_>>().join("-"),
            held,
            since: since.map(weir_telemetry::timestamp),
            sample: autopsy::SAMPLE,
            on: snapshot.autopsy > 0,
        }
    }

    /// Drains an endpoint, takes it out, or brings it back, as an operator asks. Returns its new state. `endpoint` is
    /// an address as in `/status`, or a host and port as written in the config, which may be several addresses. The
    /// setting survives reloads and upgrades, but not a restart.
    ///
    /// # Errors
    /// There is no such upstream or endpoint. The text lists the existing ones.
    pub fn put_endpoint(
        &self,
        upstream: &str,
        endpoint: &str,
        by_hand: ByHand,
    ) -> Result<Vec<EndpointStatus>, String> {
        let snapshot = Arc::clone(&self.control().snapshot);
        let Some(found) = snapshot.upstreams.iter().find(|known| *known.name == *upstream) else {
            let names: Vec<&str> = snapshot.upstreams.iter().map(|known| &*known.name).collect();
            return Err(format!("there is no upstream `{upstream}`; expected one of: {}", few(&names)));
        };
        let list = found.published.list();
        let is_it = |label: &str| label == endpoint;
        let all = list.iter().filter(|known| is_it(&known.label) || is_it(&known.authority));
        let all: Vec<_> = all.collect();
        if all.is_empty() {
            let labels: Vec<&str> = list.iter().map(|known| &*known.label).collect();
            let there = few(&labels);
            return Err(format!("upstream `{upstream}` has no endpoint `{endpoint}`; it has: {there}"));
        }
        let now = Instant::now();
        all.iter().for_each(|endpoint| endpoint.health.put(by_hand, now));
        Ok(all.iter().map(|endpoint| EndpointStatus::of(endpoint, &self.inner.telemetry)).collect())
    }

    /// Removes what filters keep in a store of the config. Returns the number of removed objects. Objects on their
    /// way into the store are not kept either. It scans the whole store, however many URLs and tags are given.
    ///
    /// # Errors
    /// No filter keeps anything in such a store. The text lists the existing ones.
    pub fn purge(&self, store: &str, what: &[Purge]) -> Result<usize, String> {
        let found = self.control().stored();
        let (of_name, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(name, _)| name == store);
        if of_name.is_empty() {
            let names: Vec<&str> = others.iter().map(|(name, _)| name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { few(&names) };
            return Err(format!("no filter keeps answers in a store `{store}`; those in use: {there}"));
        }
        Ok(of_name.iter().map(|(_, stored)| stored.purge(what)).sum())
    }

    /// The fleet of this gateway; `None` if it is in none, or its source takes too long. Blocks for a moment.
    pub fn fleet(&self) -> Option<fleet::Seen> {
        self.inner.fleet.get()?.look()
    }

    /// Turns a switch that filters name on for this long, or off. Returns until when it is on. The setting survives
    /// reloads and upgrades, and with `admin.state` restarts and crashes.
    ///
    /// # Errors
    /// No filter names such a switch. The text lists the existing ones.
    pub fn turn(&self, switch: &str, time: Option<Duration>) -> Result<Option<SystemTime>, String> {
        let all = self.control().switches();
        let Some((_, found)) = all.iter().find(|(name, _)| name == switch) else {
            let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            if names.is_empty() {
                let add = format!("maintenance: {{ switch: {switch} }}");
                return Err(format!(
                    "no filter of the config has a switch: add the filter `{add}` to a route"
                ));
            }
            return Err(format!("no filter has `switch: {switch}`; expected one of: {}", few(&names)));
        };
        found.turn(time);
        self.control().keep_switches();
        Ok(found.until())
    }

    /// Reopens the log files after they were moved.
    pub fn reopen_logs(&self) {
        if let Err(e) = log::reopen() {
            log::error("log not reopened", &[("error", &e)]);
        }
        self.control().reopen_log();
    }

    fn connections(&self) -> usize {
        self.inner.crew.shared.connections.load(Ordering::Relaxed)
    }

    /// The shadow that runs, or ran last.
    pub(crate) fn shadows(&self) -> &Shadows {
        &self.inner.shadows
    }

    /// For threads that must not keep the gateway alive; [`Gateway::upgrade`] reverses it.
    pub(crate) fn weak(&self) -> Weak<Inner> {
        self.downgrade()
    }

    /// The gateway, unless it is gone.
    pub(crate) fn upgrade(weak: &Weak<Inner>) -> Option<Self> {
        Some(Self { inner: weak.upgrade()? })
    }

    /// Sends a message to every core.
    pub(crate) fn tell_cores(&self, message: impl Fn() -> Message) {
        self.tell_all(message);
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        self.inner.crew.tell_all(message);
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.inner.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cores, to be sent a new snapshot.
    pub(crate) fn cores(&self) -> &Crew {
        &self.inner.crew
    }

    /// After a change or an attempt: notifies those who follow the config, and watches its files.
    pub(crate) fn changed(&self, control: MutexGuard<'_, Control>, done: bool) {
        if done {
            // No receiver is no error: nobody may have subscribed.
            self.inner.configs.send_replace(Arc::clone(&control.config));
        }
        if done {
            self.outdate_shadow(); // with the lock: a shadow that begins later compares with this config
        }
        drop(control);
        if done {
            self.end_trials();
            self.start_guard();
        }
        self.watch();
    }

    /// Watches the current config's files, if the config says so. It also watches after a refused reload, because
    /// those files are about to be fixed.
    fn watch(&self) {
        let (wanted, files): (bool, Vec<PathBuf>) = {
            let control = self.control();
            (control.config.watch, control.files.clone())
        };
        let mut watching = self.inner.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if !wanted {
            *watching = None;
            return;
        }
        if watching.as_ref().is_some_and(|w| w.files() == files) {
            return;
        }
        let weak = Arc::downgrade(&self.inner);
        let made = Watching::new(files, move |changed| {
            let Some(inner) = weak.upgrade() else { return };
            let gateway = Self { inner };
            if !gateway.wrote(changed) {
                let _ = gateway.reload_by(&By::process(Origin::Watch)); // it logs what it did
            }
        });
        match made {
            Ok(made) => *watching = Some(made),
            Err(e) => log::warn("files are not watched", &[("error", &e)]),
        }
    }
}

impl From<Arc<Inner>> for Gateway {
    fn from(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("ready", &self.is_ready()).finish_non_exhaustive()
    }
}

/// The first few names of a list.
fn few(names: &[&str]) -> String {
    const FEW: usize = 10;
    let more = if names.len() > FEW { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(FEW)].join(", "))
}

/// How long a core may take to report what it keeps.
const WHY: Duration = Duration::from_secs(2);
