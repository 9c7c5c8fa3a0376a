//! Reload: builds the whole next snapshot, binds new sockets, hands it to every core, then releases the old one.
//!
//! As in caddy, on any error the old config has never stopped. Listeners with unchanged addresses keep their sockets;
//! unchanged things keep their connections, pools, WebSockets and filter state.

pub(crate) mod change;
mod consequences;
mod outputs;
mod owners;
pub(crate) mod rewrite;
mod staging;
mod supplied;
mod undo;
mod unsaved;
mod watch;

pub(crate) use change::{Books, warning};
pub use change::{Changed, Edit, NotChanged, OnlyIf, request_file};
pub use consequences::{Consequences, Drained};
pub(crate) use owners::Way;
pub use owners::{Moved, Owner};
pub(crate) use undo::Open;
pub(crate) use unsaved::warning as taken_back;
pub(crate) use watch::Watching;

use crate::crew::{Crew, Grown, add_udp};
use crate::history::By;
use crate::status::{self, CertificateStatus, Rate, ReloadStatus};
use outputs::{Change, LogWriter, configure_log};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;
use weir_acme::Acme;
use weir_config::schema::{self, Config};
use weir_config::{Diagnostics, Loaded, Mistakes, Overrides, Place, Severity, Source, Texts};
use weir_engine::acme;
use weir_engine::core::Message;
use weir_engine::export::{Exporter, Outbox};
use weir_engine::handover::{Handover, Inheritance};
use weir_engine::snapshot::{Carry, Snapshot};
use weir_filter::filter::{FilterKind, Purgeable, Switch};
use weir_telemetry::{AccessLog, CertificateEnd, Telemetry, log};
use weir_upstream::discovery;
use weir_upstream::fetch::{self, Environment, Fetcher};
use weir_upstream::upstream::discover::dns;
use weir_upstream::upstream::{Upstream, Watched, probe, try_out, watch};
use weir_wire::Context;
use weir_wire::listen::{self, Address, Beside, BoundSocket};
use weir_wire::tls::{Certificate, Identity, ServerTls};

/// A successful reload.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Revision of the running config.
    pub revision: String,
    /// Warnings about it.
    pub diagnostics: Diagnostics,
    /// What it did to connections and kept state.
    pub consequences: Consequences,
}

/// A refused reload. The previous config keeps running.
#[derive(Clone, Debug)]
pub struct Refused {
    /// What is wrong.
    pub diagnostics: Mistakes,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.diagnostics.for_readers().to_text().trim_end())
    }
}

impl Error for Refused {}

/// How long a start, or a reload with new names, waits for the first DNS answers: earlier requests would find no
/// endpoint.
const FIRST_NAMES: Duration = Duration::from_secs(3);

/// Everything that changes with a config. It is behind one lock: reloads run one after the other.
pub(crate) struct Control {
    source: Source,
    kinds: Vec<&'static FilterKind>,
    carry: Carry,
    telemetry: Arc<Telemetry>,
    pub(crate) config: Arc<Config>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) files: Vec<PathBuf>,
    /// The config's files as written.
    pub(crate) texts: Texts,
    pub(crate) books: Books,
    bound: Vec<BoundListener>,
    access_log: Option<LogWriter>,
    /// Where spans go.
    spans: Option<Exporter>,
    names: Names,
    /// What is checked once a second.
    watched: Watched,
    /// TLS of the admin listener, for its accept loop.
    admin_tls: AdminTls,
    /// Sockets that the previous process or systemd has opened. Empty once the first snapshot runs.
    inherited: Inheritance,
    /// Another process has been given the sockets and does not serve yet. A change would move them under it.
    pub(crate) gives_way: bool,
    /// Another process listens on the same sockets and now owns their files.
    handed_over: bool,
    pub(crate) rate: Arc<Rate>,
    pub(crate) last_reload: Option<ReloadStatus>,
    /// What the last change did to existing connections and state.
    consequences: Consequences,
    /// The warnings about the running config.
    warnings: Diagnostics,
}

/// See [`Control::admin_tls`].
pub(crate) type AdminTls = Arc<arc_swap::ArcSwapOption<ServerTls>>;

/// A listener with open sockets on every core.
#[derive(Clone, Debug)]
struct BoundListener {
    name: String,
    asked: Address,
    actual: Address,
}

/// The sockets that cores read now.
pub(crate) type OpenSockets<'a> = &'a dyn Fn() -> Vec<(Address, BoundSocket)>;

/// A snapshot ready to run: nothing can fail any more.
pub(crate) struct Prepared {
    pub(crate) snapshot: Arc<Snapshot>,
    loaded: Loaded,
    bound: Vec<BoundListener>,
    sockets: Vec<Vec<(Address, BoundSocket)>>,
    grown: Vec<Grown>,
    log: Change<LogWriter>,
    spans: Change<Exporter>,
}

/// Why the system does not let a config run: what it concerns, with the system's error as its source.
pub(crate) type Failed = Box<dyn Error + Send + Sync>;

impl Control {
    pub(crate) fn new(
        source: Source,
        kinds: Vec<&'static FilterKind>,
        carry: Carry,
        telemetry: Arc<Telemetry>,
        config: Config,
        inherited: Inheritance,
        books: Books,
    ) -> Result<Self, Context> {
        let watched = Watched::default();
        let names = Names::start(&watched)?;
        let rate = Arc::new(Rate::new(Instant::now()));
        names.runtime.spawn(status::sample(Arc::clone(&telemetry), Arc::clone(&rate)));
        let told = Arc::clone(&telemetry);
        carry
            .acme
            .watch(Box::new(move |statuses| told.show_kept(statuses.iter().map(acme::figures).collect())));
        names.runtime.spawn(watch(Arc::clone(&watched)));
        Ok(Self {
            inherited,
            gives_way: false,
            handed_over: false,
            source,
            kinds,
            carry,
            telemetry,
            config: Arc::new(config),
            snapshot: Arc::new(Snapshot::empty()),
            files: Vec::new(),
            texts: Texts::default(),
            books,
            bound: Vec::new(),
            access_log: None,
            spans: None,
            names,
            watched,
            admin_tls: AdminTls::default(),
            rate,
            last_reload: None,
            consequences: Consequences::default(),
            warnings: Diagnostics::default(),
        })
    }

    /// Where the config comes from.
    pub(crate) fn source(&self) -> Source {
        self.source.clone()
    }

    /// Does everything that can fail: binds new addresses, opens stores and a new log.
    pub(crate) fn prepare(
        &mut self,
        loaded: Loaded,
        mut snapshot: Snapshot,
        cores: usize,
        open: OpenSockets<'_>,
    ) -> Result<Prepared, Failed> {
        self.carry.open_stores(self.inherited.of_process)?;
        let mut bound = Vec::new();
        let alone = self.bound.is_empty() && self.inherited.is_empty();
        let beside = if alone { Beside::Nobody } else { Beside::Ourselves };
        let mut sockets: Vec<Vec<(Address, BoundSocket)>> = (0..cores).map(|_| Vec::new()).collect();
        for listener in &mut snapshot.listeners {
            let Some(asked) = listener.address.clone().filter(|_| listener.has_stream_socket()) else {
                continue;
            };
            let bind = || listen::bind(&asked, cores, beside).map(|b| (b.address, b.sockets));
            let (actual, _) = self.opened(&listener.name, &asked, bind, &mut sockets)?;
            bound.push(BoundListener { name: listener.name.to_string(), asked, actual: actual.clone() });
            if let Some(listener) = Arc::get_mut(listener) {
                listener.address = Some(actual);
            }
        }
        let grown = self.prepare_udp(&mut snapshot, beside, &mut bound, &mut sockets, open)?;
        let log = self.next_log(&loaded.config.access_log)?;
        let spans = self.next_spans(loaded.config.tracing.as_ref())?;
        configure_log(&loaded.config.log)?;
        Ok(Prepared { snapshot: Arc::new(snapshot), loaded, bound, sockets, grown, log, spans })
    }

    /// The real address of a listener's sockets. If they are not open yet, gives each core its part of them: of those
    /// that were inherited, or of those that `bind` makes. Says which group of UDP sockets has grown.
    fn opened(
        &mut self,
        name: &str,
        asked: &Address,
        bind: impl FnOnce() -> io::Result<(Address, Vec<BoundSocket>)>,
        sockets: &mut [Vec<(Address, BoundSocket)>],
    ) -> Result<(Address, Option<Grown>), Context> {
        let same = |b: &&BoundListener| b.asked == *asked && (!asked.is_any_port() || b.name == name);
        if let Some(open) = self.bound.iter().find(same) {
            return Ok((open.actual.clone(), None));
        }
        let wrong = |e: io::Error| Context::new(format!("listeners.{name}"), e);
        let (address, mut opened) =
            self.inherited.take_listener(name, asked).map_or_else(bind, Ok).map_err(wrong)?;
        let grown = match address {
            // The process before may have had fewer cores.
            Address::Udp(at) => add_udp(at, &mut opened, sockets.len()),
            _ => None,
        };
        let spread = listen::spread(opened, sockets.len()).map_err(wrong)?;
        for (core, opened) in sockets.iter_mut().zip(spread) {
            core.extend(opened.into_iter().map(|socket| (address.clone(), socket)));
        }
        Ok((address, grown))
    }

    /// Binds the UDP sockets of HTTP/3, and tells the snapshot their real ports. Returns the groups that have grown.
    fn prepare_udp(
        &mut self,
        snapshot: &mut Snapshot,
        beside: Beside,
        bound: &mut Vec<BoundListener>,
        sockets: &mut [Vec<(Address, BoundSocket)>],
        open: OpenSockets<'_>,
    ) -> Result<Vec<Grown>, Failed> {
        let (cores, mut all_grown) = (sockets.len(), Vec::new());
        for listener in &mut snapshot.listeners {
            let Some(listener) = Arc::get_mut(listener) else { continue }; // nobody else has the snapshot yet
            let name = listener.name.to_string();
            let Some(http3) = listener.http3.as_deref_mut() else { continue };
            for door in &mut http3.doors {
                let asked = Address::Udp(door.address);
                // The TCP socket of the same address has got its port.
                let tcp = bound.iter().find(|b| {
                    b.asked == Address::Tcp(door.address)
                        && (!asked.is_any_port() || door.outer.is_some() || b.name == name)
                });
                let wanted = match tcp.map(|tcp| &tcp.actual) {
                    Some(Address::Tcp(actual)) => *actual,
                    _ => door.address,
                };
                // Where HTTP/3 was on before, connections may still hold sockets, to which the kernel goes on to give
                // clients: those must be among the ones that are read.
                let bind = || {
                    let address = Address::Udp(wanted);
                    let kept: Vec<_> = open().into_iter().filter(|(at, _)| *at == address).collect();
                    match kept.is_empty() {
                        true => bind_udp(wanted, cores, beside),
                        false => Ok((address, kept.into_iter().map(|(_, socket)| socket).collect())),
                    }
                };
                self.inherited.claim_udp(wanted, &name, &asked);
                let (actual, grown) = self.opened(&name, &asked, bind, sockets)?;
                all_grown.extend(grown);
                if let Address::Udp(actual) = actual {
                    door.address = actual;
                    if door.outer.is_none() {
                        listener.address = Some(Address::Tcp(actual));
                    }
                }
                bound.push(BoundListener { name: name.clone(), asked, actual });
            }
            listener.bound();
        }
        // Nobody serves there, but connections of the process before may still have these.
        for (address, left) in self.inherited.take_udp() {
            for (core, its) in sockets.iter_mut().zip(listen::spread(left, cores)?) {
                core.extend(its.into_iter().map(|socket| (Address::Udp(address), socket)));
            }
        }
        Ok(all_grown)
    }

    /// Runs a prepared snapshot on every core. Returns when all have adopted it.
    pub(crate) fn commit(&mut self, prepared: Prepared, cores: &Crew, first: bool) {
        let Prepared { snapshot, loaded, bound, sockets, grown, log, spans } = prepared;
        let settings = dns_settings(&loaded.config.dns);
        let asked = self.names.keep(&snapshot.upstreams, &loaded.config, &settings, &self.telemetry);
        if asked.recv_timeout(FIRST_NAMES) == Err(std_mpsc::RecvTimeoutError::Timeout) {
            log::warn("ready before all names and registries have answered: their endpoints follow", &[]);
        }
        let old_log = match log {
            Change::Keep => None,
            Change::New(writer) => Some(std::mem::replace(&mut self.access_log, writer)),
        };
        // The old exporter sends the rest and ends on its own.
        let old_spans = match spans {
            Change::Keep => None,
            Change::New(exporter) => Some(std::mem::replace(&mut self.spans, exporter)),
        };
        let mut consequences = Consequences::of(&self.snapshot, &snapshot, &self.telemetry);
        let (done, adopted) = std_mpsc::channel();
        let (serving, leaving) = cores.siblings();
        let sockets = sockets.into_iter().chain(leaving.iter().map(|_| Vec::new()));
        for (core, sockets) in serving.iter().chain(&leaving).zip(sockets) {
            let log = (old_log.is_some() || first).then(|| self.log_of(core.index));
            let spans = old_spans.is_some().then(|| self.spans_of());
            let (snapshot, done) = (Arc::clone(&snapshot), done.clone());
            let _ = core.mailbox.send(Message::Adopt { snapshot, sockets, log, spans, done }); // it may have ended
        }
        drop(done);
        while adopted.recv().is_ok() {}
        grown.into_iter().for_each(Grown::steer);
        for new in bound.iter().filter(|b| !self.bound.iter().any(|o| o.actual == b.actual)) {
            log::info("listening", &[("listener", &new.name), ("address", &new.actual)]);
        }
        for gone in self.bound.iter().filter(|o| !bound.iter().any(|b| b.actual == o.actual)) {
            log::info("no longer listening", &[("listener", &gone.name), ("address", &gone.actual)]);
            if let Address::Unix(path) = &gone.actual {
                let _ = std::fs::remove_file(path); // it may already be gone
            }
        }
        self.bound = bound;
        self.watched.store(Arc::new(snapshot.upstreams.clone()));
        self.admin_tls.store(snapshot.admin_tls.clone().map(Arc::new));
        self.snapshot = snapshot;
        self.files = loaded.files;
        self.texts = loaded.texts;
        if first {
            self.books.started(&self.texts);
            let _ = self.save_unsaved(); // what cannot be written yet stays unsaved
        }
        self.show_drift();
        self.config = Arc::new(loaded.config);
        self.fit_workers(cores);
        self.snapshot.adopt_sources();
        consequences.forgets = self.carry.adopted(&self.names.runtime, &self.names.fetcher);
        consequences.log();
        self.consequences = consequences;
        self.telemetry.show_certificates(self.certificate_ends());
        self.telemetry.retire();
        let now = SystemTime::now();
        if first {
            self.telemetry.started(&self.snapshot.revision, now);
        } else {
            self.telemetry.reloaded(&self.snapshot.revision, now);
        }
    }

    /// Makes as many cores serve as the config says.
    fn fit_workers(&self, crew: &Crew) {
        let workers = self.config.workers.count();
        let adopt = |index, done| Message::Adopt {
            snapshot: Arc::clone(&self.snapshot),
            sockets: Vec::new(),
            log: Some(self.log_of(index)),
            spans: Some(self.spans_of()),
            done,
        };
        if let Err(e) = crew.fit(workers, &self.snapshot, self.snapshot.drain(), adopt) {
            let fields: log::Fields<'_> = &[("workers", &workers), ("error", &e)];
            log::error("the number of workers stays as it was", fields);
        }
    }

    /// A core's part of the access log.
    fn log_of(&self, index: usize) -> Option<Box<AccessLog>> {
        self.access_log.as_ref().map(|log| Box::new(log.writer.core(index)))
    }

    /// Where a core's spans go.
    fn spans_of(&self) -> Option<Outbox> {
        self.spans.as_ref().map(|exporter| exporter.outlet().outbox())
    }

    /// What filters keep in the config's stores, by store name.
    pub(crate) fn stored(&self) -> Vec<(String, Arc<dyn Purgeable>)> {
        self.carry.stored()
    }

    /// The switches that filters name.
    pub(crate) fn switches(&self) -> Vec<(String, Arc<Switch>)> {
        self.carry.switches()
    }

    /// Records which switches are on, so that a killed process does not turn them off.
    pub(crate) fn keep_switches(&self) {
        let Some(history) = &self.books.history else {
            return log::warn(
                "the switch is not persistent: a crash turns it off",
                &[("hint", &"set admin.state")],
            );
        };
        let unix =
            |until: SystemTime| until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let on = self.switches().into_iter().filter_map(|(name, switch)| Some((name, unix(switch.until()?))));
        if let Err(e) = history.write_switches(&on.collect()) {
            let folder = history.folder().display();
            log::error(
                "the switch could not be saved: a crash turns it off",
                &[("folder", &folder), ("error", &e)],
            );
        }
    }

    /// When each certificate ends, if its dates can be read.
    fn certificate_ends(&self) -> Vec<CertificateEnd> {
        let end = |(identity, certificate): (&Identity, &Certificate)| {
            Some(CertificateEnd {
                cert: identity.cert.display().to_string(),
                name: certificate.names().first().cloned().unwrap_or_default(),
                not_after: certificate.validity()?.not_after,
            })
        };
        self.carry.certificates().into_iter().filter_map(end).collect()
    }

    /// The certificates of listeners.
    pub(crate) fn certificates(&self) -> Vec<CertificateStatus> {
        let certificates = self.carry.certificates().into_iter();
        let status =
            |(identity, certificate)| CertificateStatus::of(identity, certificate, SystemTime::now());
        let kept = self.carry.acme.statuses();
        let kept = kept.iter().map(|kept| CertificateStatus::kept(kept, acme::now()));
        certificates.filter_map(status).chain(kept).collect()
    }

    /// Stops ordering certificates.
    pub(crate) fn stop_orders(&self) {
        self.carry.acme.stop();
    }

    /// Logs the warnings about a config, for those who never run `weir check`. Leaves out those that the config before
    /// had too, because a controller reloads many times a minute.
    pub(crate) fn log_warnings(diagnostics: &Diagnostics, before: &Diagnostics) {
        /// Most warnings to log; `weir check` prints all.
        const MOST: usize = 20;
        let known: HashSet<_> = before.iter().map(|d| (d.code, &*d.path, &*d.message)).collect();
        let mut fresh = diagnostics.clone();
        fresh
            .retain(|d| d.severity == Severity::Warning && !known.contains(&(d.code, &*d.path, &*d.message)));
        for warning in fresh.for_readers().iter().take(MOST) {
            let place = warning.place.as_ref().map_or_else(String::new, Place::to_string);
            let hint = warning.hint.as_deref().unwrap_or_default();
            log::warn(
                "config",
                &[("at", &place), ("key", &warning.path), ("warning", &warning.message), ("hint", &hint)],
            );
        }
    }

    /// Notes the running config's warnings.
    pub(crate) fn note_warnings(&mut self, diagnostics: &Diagnostics) {
        self.warnings = diagnostics.clone();
    }

    /// Loads, compiles, prepares and commits; or refuses with the reason.
    pub(crate) fn reload(&mut self, by: &By, cores: &Crew) -> Result<Reloaded, Refused> {
        self.reload_with(by, Overrides::default(), cores)
    }

    /// Runs the bundle in this folder, which a source sent, like a reload runs files.
    pub(crate) fn run_bundle(&mut self, folder: &Path, by: &By, cores: &Crew) -> Result<Reloaded, Refused> {
        let done = self.reload_with(by, Overrides { bundle: Some(folder), ..Overrides::default() }, cores)?;
        self.source.set_bundle(Some(folder.to_owned()));
        Ok(done)
    }

    fn reload_with(&mut self, by: &By, instead: Overrides<'_>, cores: &Crew) -> Result<Reloaded, Refused> {
        let began = Instant::now();
        let source = self.config.source.clone();
        let warned = self.warnings.clone();
        match self.load_files(by, instead, cores) {
            Ok(diagnostics) => {
                self.last_reload = Some(ReloadStatus::new(Ok(()), SystemTime::now()));
                let took = began.elapsed().as_millis();
                log::info("reloaded", &[("revision", &self.snapshot.revision), ("ms", &took)]);
                Self::log_warnings(&diagnostics, &warned);
                if self.config.source != source {
                    log::warn("source changed: that needs a restart", &[]);
                }
                let consequences = self.consequences.clone();
                Ok(Reloaded { revision: self.snapshot.revision.clone(), diagnostics, consequences })
            }
            Err(diagnostics) => {
                self.telemetry.reload_refused();
                self.last_reload = Some(ReloadStatus::new(Err(&diagnostics), SystemTime::now()));
                let text = diagnostics.for_readers().to_text();
                let errors = text.lines().filter(|line| line.starts_with("error")); // not a warning before it
                let first = errors.chain(text.lines()).next().unwrap_or_default();
                let file = self.source.path().map_or_else(String::new, |p| p.display().to_string());
                let hint = "the previous config keeps running; `weir check` lists all mistakes";
                log::error(
                    "reload refused",
                    &[
                        ("config", &file),
                        ("errors", &diagnostics.errors()),
                        ("first", &first),
                        ("hint", &hint),
                    ],
                );
                Err(Refused { diagnostics })
            }
        }
    }

    /// Where the config comes from, and which filters it may use.
    pub(crate) const fn origin(&self) -> (&Source, &Vec<&'static FilterKind>) {
        (&self.source, &self.kinds)
    }

    /// Watches the files of a refused config beside those of the running one.
    fn watch_too(&mut self, files: Vec<PathBuf>) {
        self.files.extend(files);
        self.files.sort();
        self.files.dedup();
    }

    pub(crate) fn reopen_log(&self) {
        if let Some(log) = &self.access_log
            && let Err(e) = log.writer.reopen()
        {
            log::error("access log not reopened", &[("error", &e)]);
        }
    }

    /// What the last change did to existing connections and state.
    pub(crate) const fn consequences(&self) -> &Consequences {
        &self.consequences
    }

    /// What an upgrade does to this process's connections and state.
    pub(crate) fn consequences_of_upgrade(&self) -> Consequences {
        Consequences::of_upgrade(&self.snapshot, &self.telemetry)
    }

    /// The hand-over to a successor. `sockets` are those of all cores, by address.
    pub(crate) fn hand_over(&self, sockets: Vec<(Address, BoundSocket)>) -> Handover {
        let mut handover = Handover::new(self.carry.save());
        let mut by_address: HashMap<Address, Vec<BoundSocket>> = HashMap::new();
        for (address, socket) in sockets {
            by_address.entry(address).or_default().push(socket);
        }
        for bound in &self.bound {
            if let Some(sockets) = by_address.remove(&bound.actual) {
                handover.add_listener(&bound.name, &bound.asked, bound.actual.clone(), sockets);
            }
        }
        // No listener has these, but the kernel gives clients to them for as long as they are open.
        for (address, sockets) in by_address {
            if matches!(address, Address::Udp(_)) {
                handover.add_unowned(address, sockets);
            }
        }
        handover
    }

    /// The admin listener's sockets, if they were open when this process began. Closes those that nobody took.
    pub(crate) fn take_admin_sockets(&mut self) -> Option<(Address, Vec<BoundSocket>)> {
        let mut inherited = std::mem::take(&mut self.inherited);
        let taken = match &self.config.admin.address {
            schema::AdminAddress::At(schema::ListenAddress::Tcp(asked)) => {
                inherited.take_admin(&Address::Tcp(*asked))
            }
            schema::AdminAddress::At(schema::ListenAddress::Unix(path)) => {
                inherited.take_admin(&Address::Unix(path.clone()))
            }
            schema::AdminAddress::Off => None,
        };
        for unused in inherited.left() {
            log::info("socket not taken over: no listener has this address any more", &[("address", unused)]);
        }
        taken
    }

    /// Another process serves now. It keeps what it was given when this one ends, and owns what only one process can
    /// have.
    pub(crate) fn handed_over(&mut self) {
        self.handed_over = true;
        self.gives_way = false;
        self.carry.stored().iter().for_each(|(_, stored)| stored.release());
    }

    /// The running snapshot's upstreams, always current.
    pub(crate) fn watched(&self) -> Watched {
        Arc::clone(&self.watched)
    }

    /// The automatically renewed certificates, always current.
    pub(crate) fn acme(&self) -> Acme {
        self.carry.acme.clone()
    }

    /// TLS of the admin listener, always current.
    pub(crate) fn admin_tls(&self) -> AdminTls {
        Arc::clone(&self.admin_tls)
    }

    /// The listeners' names and addresses as bound.
    pub(crate) fn addresses(&self) -> Vec<(String, Address)> {
        self.bound.iter().map(|b| (b.name.clone(), b.actual.clone())).collect()
    }

    /// The cores have ended: writes the rest of the logs, and removes the socket files.
    pub(crate) fn end(&mut self) {
        for bound in self.bound.drain(..) {
            if let (Address::Unix(path), false) = (bound.actual, self.handed_over) {
                let _ = std::fs::remove_file(path); // it may already be gone
            }
        }
        self.stop_orders();
        self.end_outputs();
    }
}

/// Binds UDP sockets for QUIC.
fn bind_udp(asked: SocketAddr, cores: usize, beside: Beside) -> io::Result<(Address, Vec<BoundSocket>)> {
    let group = weir_quic::bind(asked, cores, beside)?;
    if !group.is_steered {
        let fields: log::Fields<'_> = &[("address", &group.address)];
        log::warn("the kernel does not steer QUIC by connection ids: workers pass datagrams on", fields);
    }
    let sockets = group.sockets.into_iter().map(BoundSocket::any).collect();
    Ok((Address::Udp(group.address), sockets))
}

fn dns_settings(written: &schema::Dns) -> dns::Settings {
    let servers: Vec<SocketAddr> = written.servers.iter().map(|s| s.0).collect();
    dns::Settings { servers, min_ttl: written.min_ttl.get(), max_ttl: written.max_ttl.get() }
}

/// The tasks that resolve names, on the control thread, which also fetches.
struct Names {
    runtime: tokio::runtime::Handle,
    fetcher: Fetcher,
    environment: Arc<Environment>,
    /// Sends the probes a new snapshot.
    probes: mpsc::UnboundedSender<Vec<Arc<Upstream>>>,
    /// Sends a new order to the tasks that ask registries.
    registries: mpsc::UnboundedSender<discovery::Order>,
    tasks: HashMap<String, (Arc<Upstream>, tokio::task::AbortHandle)>,
    settings: Option<dns::Settings>,
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Names {
    fn start(watched: &Watched) -> Result<Self, Context> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Context::new("the control runtime", e))?;
        let handle = runtime.handle().clone();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (fetcher, asked) = Fetcher::channel();
        let environment: Arc<Environment> = Arc::default();
        let served = Arc::clone(&environment);
        let (probes, orders) = mpsc::unbounded_channel();
        let (registries, followed) = mpsc::unbounded_channel();
        let asking = Arc::clone(&environment);
        let watched = Arc::clone(watched);
        let work = move || {
            let local = tokio::task::LocalSet::new();
            drop(local.spawn_local(fetch::serve(asked, served)));
            drop(local.spawn_local(probe(orders)));
            drop(local.spawn_local(try_out(watched)));
            drop(local.spawn_local(discovery::follow(followed, asking)));
            drop(local.block_on(&runtime, ended));
        };
        std::thread::Builder::new()
            .name("weir-control".to_owned())
            .spawn(work)
            .map_err(|e| Context::new("the control thread", e))?;
        let (tasks, settings) = (HashMap::new(), None);
        Ok(Self { runtime: handle, fetcher, environment, probes, registries, tasks, settings, _end: end })
    }

    /// Resolves the names of these upstreams and asks their registries, and no others. The receiver disconnects when
    /// all those without known answers have been asked once.
    fn keep(
        &mut self,
        upstreams: &[Arc<Upstream>],
        config: &Config,
        settings: &dns::Settings,
        telemetry: &Arc<Telemetry>,
    ) -> std_mpsc::Receiver<()> {
        let _ = self.probes.send(upstreams.to_vec()); // the control thread lives as long as we do
        let (first, asked) = std_mpsc::channel();
        let as_before = self.settings.as_ref() == Some(settings);
        let still = |u: &Arc<Upstream>| as_before && upstreams.iter().any(|now| Arc::ptr_eq(now, u));
        self.tasks.retain(|_, (upstream, task)| {
            let keep = still(upstream);
            if !keep {
                task.abort();
            }
            keep
        });
        self.settings = Some(settings.clone());
        {
            let _in_runtime = self.runtime.enter();
            self.environment.set(dns::resolver(settings).ok()); // upstreams with names report the error
        }
        let ordered = |upstream: &Arc<Upstream>| {
            let written = config.upstreams.get(&upstream.name)?;
            let (discover, choice) = (written.discover.clone()?, discovery::choice(written));
            Some(discovery::Ordered { upstream: Arc::clone(upstream), discover, choice })
        };
        // The control thread lives as long as we do. Without registries, an empty order ends the earlier tasks.
        let _ = self.registries.send(discovery::Order {
            upstreams: upstreams.iter().filter_map(ordered).collect(),
            settings: settings.clone(),
            telemetry: Arc::clone(telemetry),
            first: first.clone(),
        });
        for upstream in upstreams.iter().filter(|u| !u.names.names.is_empty()) {
            let name = upstream.name.to_string();
            if self.tasks.contains_key(&name) {
                continue;
            }
            let _in_runtime = self.runtime.enter();
            match dns::resolver(settings) {
                Ok(resolver) => {
                    let task = self.runtime.spawn(dns::keep(
                        Arc::clone(&upstream.names),
                        Arc::clone(&upstream.published),
                        resolver,
                        settings.clone(),
                        Arc::clone(telemetry),
                        Some(first.clone()),
                    ));
                    self.tasks.insert(name, (Arc::clone(upstream), task.abort_handle()));
                }
                Err(e) => {
                    log::error("names cannot be resolved", &[("upstream", &upstream.name), ("error", &e)])
                }
            }
        }
        asked
    }
}
