//! Reload: builds the whole next snapshot, binds new sockets, hands it to every core, then releases the old one.
//!
//! As in caddy, on any error the old config has never stopped. Listeners with unchanged addresses keep their sockets;
//! unchanged things keep their connections, pools, WebSockets and filter state.

pub(crate) mod change;
mod consequences;
mod names;
mod outputs;
mod owners;
pub(crate) mod rewrite;
mod sockets;
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

use crate::crew::{Crew, Grown};
use crate::history::By;
use crate::status::{self, CertificateStatus, Rate, ReloadStatus, UnwrittenLog};
use names::{FIRST_NAMES, Names, dns_settings};
use outputs::{Change, LogWriter, configure_log};
use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Instant, SystemTime};
use weir_acme::Acme;
use weir_config::schema::Config;
use weir_config::{Diagnostics, Loaded, Mistakes, Overrides, Place, Severity, Source, Texts};
use weir_engine::acme;
use weir_engine::core::Message;
use weir_engine::export::{Exporter, Outbox};
use weir_engine::handover::Inheritance;
use weir_engine::snapshot::{Carry, Snapshot};
use weir_filter::filter::{FilterKind, Purgeable, Switch};
use weir_telemetry::{AccessLog, CertificateEnd, Telemetry, log};
use weir_upstream::upstream::{Watched, watch};
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

    /// The access log's outage, if it cannot be written now.
    pub(crate) fn unwritten_log(&self) -> Option<UnwrittenLog> {
        self.access_log.as_ref()?.writer.unwritten().map(UnwrittenLog::from)
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
