//! The thread that renews certificates: one task per certificate, which checks every few seconds whether something is
//! due. It uses the wall clock, so a machine that slept, or whose clock was set, catches up immediately.
//!
//! ```text
//!   look  ──► the storage has a newer certificate ──────────────────────► use it
//!         ├─► time to ask the authority when to renew (ARI) ────────────► store the suggestion
//!         └─► due, and no failure says wait ─► permit ─► lock ─► order ─► check ─► store ─► use it
//!                                                                └─► failure: store, log, wait
//! ```
//! Whatever fails, the certificate in use stays.

use crate::account::Account;
use crate::entry::{Entry, LastFailure, SharedEntry};
use crate::failure::{Failure, Kind};
use crate::lock::{self, BEAT, Lock, Owner, Seen};
use crate::message::{RenewalInfo, time};
use crate::order::{Issued, Ordering};
use crate::publish::Stage;
use crate::schedule::{self, Suggestion};
use crate::session::{Session, SharedTransport};
use crate::shared::{Command, Shared};
use crate::storage;
use crate::{Clock, Spec, sharing};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use weir_telemetry::{log, timestamp};
use weir_wire::tls::Certificate;

/// Most concurrent orders and queries at one authority.
const AT_ONCE: usize = 4;

/// The longest time between two checks.
const LOOK: Duration = Duration::from_secs(10);

/// How long we wait after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(60);

/// How long we wait while another node orders.
const ELSEWHERE: Duration = Duration::from_secs(2);

/// The shortest time between two certificates for one name, in seconds. If this machine's clock is far ahead, every
/// new certificate is due immediately.
const AGE: i64 = 60 * 60;

/// A reload retries immediately, unless the last attempt was at most this many seconds ago.
const CALM: i64 = 30;

/// When to ask again for renewal information, in seconds: if an authority has none, and if asking failed.
const NO_SUGGESTIONS: i64 = 24 * 60 * 60;
const NOT_ANSWERED: i64 = 60 * 60;

/// The state that all tasks share.
pub(crate) struct Environment {
    pub(crate) stage: Stage,
    pub(crate) node: String,
    pub(crate) clock: Clock,
    owner: Owner,
    transport: SharedTransport,
    shared: Arc<Shared>,
    wake: Arc<Notify>,
    /// Permits for orders, by the authority's directory.
    places: RefCell<HashMap<String, Arc<Semaphore>>>,
}

/// Aborts a task when dropped.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs until told to stop.
pub(crate) fn run(
    shared: Arc<Shared>,
    transport: SharedTransport,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            return log::error(
                "no certificate will be ordered: the system refused a runtime",
                &[("error", &e)],
            );
        }
    };
    let around = Rc::new(Environment {
        stage: shared.stage.clone(),
        node: shared.node().to_owned(),
        clock: Arc::clone(&shared.clock),
        owner: Owner::ourselves(shared.node()),
        transport,
        wake: Arc::clone(&shared.wake),
        shared,
        places: RefCell::default(),
    });
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let mut tasks: HashMap<Spec, Task> = HashMap::new();
        let mut shares: HashMap<PathBuf, Task> = HashMap::new();
        while let Some(Command::Keep(entries)) = commands.recv().await {
            tasks.retain(|spec, _| entries.iter().any(|entry| entry.spec == *spec));
            shares.retain(|folder, _| entries.iter().any(|entry| entry.storage.nodes() == *folder));
            for entry in entries {
                let storage = entry.storage.clone();
                shares.entry(storage.nodes()).or_insert_with(|| {
                    let sharing = sharing::share(
                        storage,
                        around.node.clone(),
                        around.stage.clone(),
                        Arc::clone(&around.clock),
                    );
                    Task(spawn_local(sharing).abort_handle())
                });
                entry.state().eager = true;
                tasks.entry(entry.spec.clone()).or_insert_with(|| {
                    Task(spawn_local(watch_over(Rc::clone(&around), entry)).abort_handle())
                });
            }
            around.wake.notify_waiters();
        }
    });
    // All work in progress ends here and releases its lock and its proofs.
    let _inside = runtime.enter();
    drop(local);
}

/// Renews one certificate, even after a panic: a bug of ours must not stop the renewals of a name for good.
async fn watch_over(around: Rc<Environment>, entry: SharedEntry) {
    loop {
        let kept = spawn_local(keep(Rc::clone(&around), Arc::clone(&entry)));
        let _ends_with_us = Task(kept.abort_handle());
        if let Err(e) = kept.await {
            let fields: log::Fields<'_> = &[("name", entry.name()), ("error", &e)];
            log::error("the renewal of a certificate panicked and will be retried", fields);
        }
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

/// Renews one certificate.
async fn keep(around: Rc<Environment>, entry: SharedEntry) {
    let mut seen = Seen::default();
    loop {
        let woken = around.wake.notified();
        let wait = around.look(&entry, &mut seen).await;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = woken => {}
        }
    }
}

impl Environment {
    fn now(&self) -> i64 {
        (self.clock)()
    }

    /// Does what is due; returns how long to wait.
    async fn look(&self, entry: &Entry, seen: &mut Seen) -> Duration {
        if entry.refresh() {
            log::info("certificate loaded from the storage", &[("name", entry.name())]);
            self.shared.tell();
        }
        let eager = std::mem::take(&mut entry.state().eager);
        if let Some(shown) = entry.shown()
            && self.may_ask(entry, &shown)
        {
            self.ask_when(entry, &shown).await;
            self.shared.tell();
        }
        let now = self.now();
        let before = entry.state().renew_at;
        let due = self.due(entry);
        if entry.state().renew_at != before {
            self.shared.tell();
        }
        let blocked = blocked(entry, now, eager);
        let next = due.max(blocked.unwrap_or(now));
        if next > now {
            let seconds = u64::try_from(next - now).unwrap_or(1);
            return Duration::from_secs(seconds).min(LOOK);
        }
        match self.attempt(entry, seen, eager).await {
            Ok(Some(issued)) => self.succeeded(entry, issued),
            Ok(None) => return ELSEWHERE, // another node is ordering, or has already ordered
            Err(failure) => self.failed(entry, failure),
        }
        self.shared.tell();
        Duration::from_secs(1)
    }

    /// When renewal is due; also updates the status.
    fn due(&self, entry: &Entry) -> i64 {
        let shown = entry.shown().and_then(|shown| Some((shown.validity()?, shown)));
        let mut state = entry.state();
        let due = shown.map(|(validity, shown)| {
            let id = shown.renewal_id();
            let suggestion = state.kept.suggestion.as_ref();
            let suggestion = suggestion.filter(|suggestion| Some(&suggestion.certificate) == id.as_ref());
            schedule::due(validity, suggestion, dice_of(&shown))
        });
        // A certificate issued in the future was issued by a clock that has since been set back.
        let aged = Some(state.kept.issued_at + AGE).filter(|_| state.kept.issued_at <= self.now());
        let due = due.max(due.and(aged));
        state.renew_at = due;
        due.unwrap_or(i64::MIN)
    }

    // === an order ===

    /// Orders, unless another node does. `None` if nothing remains to be done.
    async fn attempt(&self, entry: &Entry, seen: &mut Seen, eager: bool) -> Result<Option<Issued>, Failure> {
        let _place = self.place(entry).await?;
        let Entry { spec, storage, .. } = entry;
        storage.prepare()?;
        storage::make_folder(&storage.of(&spec.name))?;
        let path = storage.lock(&spec.name);
        let taken = lock::take(&path, &self.owner, seen, Instant::now());
        let Some(mut lock) = taken.map_err(|e| Failure::storage(&path, &e))? else { return Ok(None) };
        // Another node may have stored a certificate before it released the lock.
        if entry.refresh() {
            log::info("certificate loaded from the storage", &[("name", entry.name())]);
            return Ok(None);
        }
        entry.recall();
        if blocked(entry, self.now(), eager).is_some() {
            return Ok(None);
        }
        entry.state().ordering = true;
        self.shared.tell();
        let _done = Done(entry);
        let issued = tokio::select! {
            issued = self.obtain(entry) => issued?,
            lost = beat(&mut lock) => return Err(lost),
        };
        if !lock.is_held() {
            return Err(Failure::new(Kind::Lock, "another node took over the order"));
        }
        storage::write(&storage.certificate_file(&spec.name), issued.pem.as_bytes())?;
        entry.show(issued.certificate.clone(), storage.stamp(&spec.name));
        storage::remove(&storage.order(&spec.name));
        Ok(Some(issued))
    }

    /// A permit to talk to an authority.
    async fn place(&self, entry: &Entry) -> Result<OwnedSemaphorePermit, Failure> {
        let places = {
            let mut places = self.places.borrow_mut();
            let places = places.entry(entry.spec.settings.directory.clone());
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))))
        };
        places.acquire_owned().await.map_err(|_| Failure::new(Kind::Lock, "the gateway ends"))
    }

    async fn obtain(&self, entry: &Entry) -> Result<Issued, Failure> {
        let Entry { spec, storage, .. } = entry;
        let session = Session::open(&*self.transport, &spec.settings, &self.clock).await?;
        let account = Account::open(&session, storage, &self.owner).await?;
        let replaces = entry.shown().and_then(|shown| shown.renewal_id());
        let (stage, node, clock) = (&self.stage, &self.node, &self.clock);
        let ordering = Ordering { stage, node, clock, spec, storage, session: &session, account: &account };
        ordering.run(replaces.as_deref()).await
    }

    fn succeeded(&self, entry: &Entry, issued: Issued) {
        let now = self.now();
        let kept = entry.keep(|kept| {
            (kept.failures, kept.next_try, kept.last_error) = (0, 0, None);
            (kept.tried_at, kept.issued_at, kept.suggestion, kept.look_at) = (now, now, None, 0);
        });
        if let Err(failure) = kept {
            log::warn(
                "the state of a certificate could not be saved",
                &[("name", entry.name()), ("error", &failure)],
            );
        }
        let end =
            issued.certificate.validity().map_or_else(String::new, |validity| moment(validity.not_after));
        log::info(
            "certificate issued",
            &[("name", entry.name()), ("directory", &entry.spec.settings.directory), ("not_after", &end)],
        );
    }

    fn failed(&self, entry: &Entry, failure: Failure) {
        let now = self.now();
        let left = entry.shown().and_then(|shown| shown.validity()).map(|validity| validity.not_after - now);
        let told = LastFailure { failure: failure.clone(), at: now };
        let noted = entry.keep(|kept| {
            // A long outage of the authority must not lengthen the wait after its first refusal.
            let away = |failure: &Failure| failure.kind == Kind::Away;
            let same = kept.last_error.as_ref().is_some_and(|last| away(&last.failure) == away(&failure));
            kept.failures = if same { kept.failures.saturating_add(1) } else { 1 };
            kept.tried_at = now;
            kept.next_try = now + schedule::wait_after(&failure, kept.failures, left, dice());
            kept.last_error = Some(told);
        });
        if let Err(storing) = noted {
            static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(60));
            SEEN.warn(
                entry.name().to_string(),
                "the state of a certificate could not be saved",
                &[("name", entry.name()), ("error", &storing)],
            );
        }
        let next = moment(entry.state().kept.next_try);
        let shown = match left {
            None => "a self-signed stand-in, which clients refuse".to_owned(),
            Some(left) if left < 0 => "one that has expired".to_owned(),
            Some(left) => format!("one that is valid for {} days", left / 86_400),
        };
        static SEEN: log::PerSubject = log::per_subject(50, Duration::from_secs(10));
        let level =
            if left.is_some() && failure.kind == Kind::Away { log::Level::Warn } else { log::Level::Error };
        SEEN.write(
            level,
            entry.name().to_string(),
            "certificate not issued",
            &[
                ("name", entry.name()),
                ("challenge", &entry.spec.challenge.name()),
                ("reason", &failure.kind.name()),
                ("error", &failure),
                ("hint", &failure.kind.hint()),
                ("clients_see", &shown),
                ("next_try", &next),
            ],
        );
    }

    // === renewal information (RFC 9773) ===

    /// Whether to ask the authority when to renew.
    fn may_ask(&self, entry: &Entry, shown: &Certificate) -> bool {
        let Some(id) = shown.renewal_id() else { return false };
        let state = entry.state();
        let known = state.kept.suggestion.as_ref().filter(|suggestion| suggestion.certificate == id);
        let look_at =
            known.map_or(state.kept.look_at, |suggestion| suggestion.look_at.max(state.kept.look_at));
        // A time too far in the future was stored by a clock that has since been set back.
        let now = self.now();
        look_at <= now || look_at > now + 2 * NO_SUGGESTIONS
    }

    async fn ask_when(&self, entry: &Entry, shown: &Certificate) {
        let asked = self.suggestion(entry, shown).await;
        let now = self.now();
        let (suggestion, look_at) = match asked {
            Ok(Some(suggestion)) => {
                let look_at = suggestion.look_at;
                (Some(suggestion), look_at)
            }
            Ok(None) => (None, now + NO_SUGGESTIONS),
            Err(failure) => {
                log::debug("no renewal information", &[("name", entry.name()), ("error", &failure)]);
                let wait = failure.retry_after.map_or(NOT_ANSWERED, |wait| schedule::look_again(Some(wait)));
                (entry.state().kept.suggestion.clone(), now + wait)
            }
        };
        let before = entry.state().kept.suggestion.clone();
        let moved = |s: &Suggestion| before.as_ref().is_none_or(|b| (b.start, b.end) != (s.start, s.end));
        if let Some(suggestion) = suggestion.as_ref().filter(|suggestion| moved(suggestion)) {
            let why = suggestion.explanation.as_deref().map(crate::failure::one_line).unwrap_or_default();
            log::info(
                "the certificate authority says when to renew",
                &[
                    ("name", entry.name()),
                    ("from", &moment(suggestion.start)),
                    ("until", &moment(suggestion.end)),
                    ("explanation", &why),
                ],
            );
        }
        // If it could not be stored, the next process asks again.
        drop(entry.keep(|kept| (kept.suggestion, kept.look_at) = (suggestion, look_at)));
    }

    async fn suggestion(&self, entry: &Entry, shown: &Certificate) -> Result<Option<Suggestion>, Failure> {
        let _place = self.place(entry).await?;
        let session = Session::open(&*self.transport, &entry.spec.settings, &self.clock).await?;
        let (Some(at), Some(id)) = (session.directory.renewal_info.clone(), shown.renewal_id()) else {
            return Ok(None);
        };
        let good = session.get(&format!("{}/{id}", at.trim_end_matches('/'))).await?;
        let info: RenewalInfo = good.read()?;
        let window = (time(&info.suggested_window.start), time(&info.suggested_window.end));
        let (Some(start), Some(end)) = window else {
            return Err(Failure::bad_answer("the suggested window is none"));
        };
        let found = Suggestion::new(&id, start, end, self.now(), good.retry_after, dice());
        let mut found =
            found.ok_or_else(|| Failure::bad_answer("the suggested window ends before it begins"))?;
        found.explanation = info.explanation;
        // The chosen time stays as long as the window stays the same.
        let state = entry.state();
        let same = |known: &&Suggestion| {
            (&known.certificate, known.start, known.end) == (&found.certificate, found.start, found.end)
        };
        if let Some(known) = state.kept.suggestion.as_ref().filter(same) {
            found.chosen = known.chosen;
        }
        Ok(Some(found))
    }
}

/// Clears the `ordering` flag, however the order ended.
struct Done<'a>(&'a Entry);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.state().ordering = false;
    }
}

/// Until when a failure blocks the next attempt, if one does.
fn blocked(entry: &Entry, now: i64, eager: bool) -> Option<i64> {
    let state = entry.state();
    let kept = &state.kept;
    // After a clock was set back, a wait of a day must not become one of a year.
    let waits = kept.failures > 0 && kept.next_try > now && kept.tried_at <= now;
    let asked = kept.last_error.as_ref().is_some_and(|last| last.failure.retry_after.is_some());
    let may_hurry = eager && !asked && now - kept.tried_at > CALM;
    (waits && !may_hurry).then_some(kept.next_try)
}

/// Keeps a lock alive. Returns when it is lost.
async fn beat(lock: &mut Lock) -> Failure {
    loop {
        tokio::time::sleep(BEAT).await;
        match lock.beat() {
            Ok(true) => {}
            Ok(false) => return Failure::new(Kind::Lock, "another node took over the order"),
            Err(e) => return Failure::new(Kind::Storage, format!("the lock cannot be written: {e}")),
        }
    }
}

/// A random number.
fn dice() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness nothing works; here it would only make renewals happen immediately.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// A number that is the same for a certificate after a restart and on every node.
fn dice_of(certificate: &Certificate) -> u64 {
    let leaf = certificate.chain().next().unwrap_or_default();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, leaf);
    let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}

/// A time in log format.
fn moment(seconds: i64) -> String {
    timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
