//! A source of consumers: what it has now, and how a new set replaces the old one.

use super::super::{Fetcher, FilterKind, Tended, Tending};
use super::cache::{self, Confirmation};
use super::follow;
use super::roster::Roster;
use super::rules::{Misfit, Rules};
use crate::filter::followed_file::{Stamp, read_bounded, stamp};
use arc_swap::{ArcSwapOption, Guard};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use weir_config::consumers;
use weir_config::parse::MAX_CONSUMER_BYTES;
use weir_config::{Diagnostic, Diagnostics, Severity};
use weir_telemetry::log;
use weir_upstream::fetch::{Trust, Url};

/// Where consumers come from.
#[derive(Debug)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A web server.
    Http(Url),
}

/// How a web server is asked. A reload may change all of it while the consumers stay.
pub struct Asking {
    /// Which certificates are trusted.
    pub trust: Trust,
    /// How often to ask.
    pub every: Duration,
    /// Longest time for one answer.
    pub timeout: Duration,
    /// How much longer than `every` the last good answer is used while there is no other. `None`: without limit.
    pub stale: Option<Duration>,
    /// Sent as a bearer token.
    pub token: Option<String>,
    /// The file for the last good answer.
    pub cache: Option<PathBuf>,
}

/// A source of consumers. It outlives snapshots as long as its name and its file or URL stay the same.
pub struct Source {
    name: String,
    pub(super) origin: Origin,
    kinds: Box<[&'static FilterKind]>,
    current: ArcSwapOption<Roster>,
    /// The generation of the newest set it ever had. Invariant: no set replaces a newer one.
    newest: AtomicU64,
    /// `None` until a snapshot with this source runs.
    adopted: Mutex<Option<Adopted>>,
    told: Mutex<Told>,
    /// The version of the file that was read first.
    begun: Mutex<Option<Stamp>>,
    /// The rules have changed, so what was refused may fit now.
    pub(super) wanted: Notify,
}

/// What the running snapshot says about a source.
#[derive(Clone)]
pub(super) struct Adopted {
    /// What a new set must fit.
    pub(super) rules: Arc<Rules>,
    /// `None` for a file.
    pub(super) asking: Option<Arc<Asking>>,
}

/// Whoever changes `current` holds its lock, so that both always fit each other.
struct Told {
    status: SourceStatus,
    /// When the server last confirmed the current set.
    confirmed: Option<Confirmation>,
}

/// The state of a source, for people.
#[derive(Clone, Debug)]
pub struct SourceStatus {
    /// Whether its consumers can be relied on.
    pub state: State,
    /// How many consumers it has.
    pub consumers: usize,
    /// When they last changed.
    pub changed: Option<SystemTime>,
    /// When the web server last said that they are current.
    pub confirmed: Option<SystemTime>,
    /// Why the last attempt failed, if it did.
    pub error: Option<String>,
    /// How many attempts failed.
    pub failures: u64,
}

/// Whether the consumers of a source can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It has none: none yet, too old ones, or ones that no longer fit the config. Credentials that nobody else has
    /// get 503.
    #[default]
    Absent,
    /// They come from the cache of an earlier process.
    Cached,
    /// They are what the source said last.
    Current,
    /// The source is away, or what it says now has mistakes: the last good consumers are used.
    Kept,
}

/// One set of consumers at a time replaces another, so that two sources cannot take the same name at once.
static REPLACING: Mutex<()> = Mutex::new(());

/// Numbers the sets of all sources in the order in which they were asked for.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// What happens while a source has no consumers.
const NONE: &str = "there are no consumers: unknown credentials get 503";

/// How long a replaced set is kept for a core that still looks into it, so that no core has to free it.
const LINGER: Duration = Duration::from_millis(100);

impl State {
    /// Its name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Cached => "cached",
            Self::Current => "current",
            Self::Kept => "kept",
        }
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("every", &self.every).finish_non_exhaustive() // the token is secret
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

// === impl Source ===

impl Source {
    /// A source that has nothing yet.
    pub fn new(name: &str, origin: Origin, kinds: &[&'static FilterKind]) -> Self {
        Self {
            name: name.to_owned(),
            origin,
            kinds: kinds.iter().filter(|kind| kind.index.is_some()).copied().collect(),
            current: ArcSwapOption::empty(),
            newest: AtomicU64::new(0),
            adopted: Mutex::default(),
            told: Mutex::new(Told {
                status: SourceStatus {
                    state: State::Absent,
                    consumers: 0,
                    changed: None,
                    confirmed: None,
                    error: None,
                    failures: 0,
                },
                confirmed: None,
            }),
            begun: Mutex::default(),
            wanted: Notify::new(),
        }
    }

    /// Its name in the config.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has now.
    pub(super) fn roster(&self) -> Guard<Option<Arc<Roster>>> {
        self.current.load()
    }

    /// What it has now, to keep.
    pub fn current(&self) -> Option<Arc<Roster>> {
        self.current.load_full()
    }

    /// Its state.
    pub fn status(&self) -> SourceStatus {
        self.told().status.clone()
    }

    /// Whether a snapshot with this source runs, so that it follows its file or URL by itself.
    pub fn runs(&self) -> bool {
        self.adopted().is_some()
    }

    /// Reads it for the first time: the file, or the cache of a web server. Mistakes in the file go to `found`.
    pub fn begin(&self, rules: &Rules, asking: Option<&Asking>, found: &mut Diagnostics) {
        let _one = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
        self.current.store(None); // of a config that never ran
        match &self.origin {
            Origin::File(path) => {
                *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = stamp(path);
                let (generation, before) = (Self::next_generation(), found.errors());
                let read = match read_text(path) {
                    Ok(text) => self.read(&text, path, generation, Some(rules), found),
                    Err(why) => {
                        found.push(Diagnostic::error("file-unreadable", why));
                        None
                    }
                };
                if let Some(roster) = read.filter(|_| found.errors() == before) {
                    self.set(Arc::new(roster), State::Current, None);
                }
            }
            Origin::Http(url) => {
                let Some(asking) = asking else { return };
                let Some(path) = asking.cache.as_ref().filter(|path| path.exists()) else { return };
                if let Err(why) = self.begin_cached(rules, asking, url, path) {
                    let fields: log::Fields<'_> =
                        &[("source", &self.name), ("file", &path.display()), ("why", &why)];
                    log::warn("the cache of a source of consumers is not used", fields);
                }
            }
        }
    }

    /// Takes the cache, if it is of this server and not too old.
    fn begin_cached(&self, rules: &Rules, asking: &Asking, url: &Url, path: &Path) -> Result<(), String> {
        let generation = Self::next_generation();
        let cached = cache::read(path, cache::origin_of(url))?;
        if let Some(longest) = asking.longest() {
            let confirmed = cached.confirmed.as_ref();
            let age =
                confirmed.ok_or("it is from the future: the clock was set back, so its age is unknown")?;
            if age.age() > longest {
                return Err("it is older than `every` and `stale` allow".to_owned());
            }
        }
        let mut found = Diagnostics::default();
        let roster = self.read(&cached.document, path, generation, Some(rules), &mut found);
        let roster = roster.ok_or_else(|| first_of(&found))?;
        self.set(Arc::new(roster), State::Cached, cached.confirmed);
        Ok(())
    }

    /// The version of the file that [`Self::begin`] read.
    pub(super) fn begun_with(&self) -> Option<Stamp> {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a set that is asked for now. Later ones are higher.
    pub(crate) fn next_generation() -> u64 {
        GENERATIONS.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads a document.
    fn read(
        &self,
        text: &str,
        name: &Path,
        generation: u64,
        rules: Option<&Rules>,
        found: &mut Diagnostics,
    ) -> Option<Roster> {
        let before = found.errors();
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
        let document = consumers::read(text, name, &kinds, found)?;
        let current = self.current();
        let roster = Roster::read(&document, &self.kinds, current.as_deref(), found).of(generation);
        for misfit in rules.iter().flat_map(|rules| self.misfits(rules, &roster)) {
            let wrong = Diagnostic::error(misfit.code, misfit.message).on(&document.tree, &misfit.path);
            found.push(wrong.hint(misfit.hint));
        }
        (found.errors() == before).then_some(roster)
    }

    /// What does not fit in these consumers, beside those of the other sources.
    fn misfits(&self, rules: &Rules, roster: &Roster) -> Vec<Misfit> {
        let siblings: Vec<Arc<Self>> = rules.siblings.iter().filter_map(Weak::upgrade).collect();
        let others = siblings.iter().filter(|other| !std::ptr::eq(&***other, self));
        rules.misfits(roster, others.filter_map(|other| Some((other.name(), other.current()?))))
    }

    /// Takes a new document, or says why not. `confirmed` is when the server was asked for it. Blocks: 100,000
    /// consumers take a second.
    pub(super) fn take(
        &self,
        text: &str,
        name: &Path,
        generation: u64,
        confirmed: Option<Confirmation>,
    ) -> Result<(), String> {
        let _one = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Diagnostics::default();
        let rules = self.adopted().map(|adopted| adopted.rules);
        match self.read(text, name, generation, rules.as_deref(), &mut found) {
            Some(roster) => {
                self.set(Arc::new(roster), State::Current, confirmed);
                self.wake_siblings();
                Ok(())
            }
            None => Err(first_of(&found)),
        }
    }

    /// Takes this document, for tests.
    pub(crate) fn relist(&self, document: &str) -> Result<(), String> {
        self.take(document, Path::new("listed.yaml"), Self::next_generation(), None)
    }

    /// What a sibling refused because of this source's consumers may fit now.
    fn wake_siblings(&self) {
        let Some(Adopted { rules, .. }) = self.adopted() else { return };
        for sibling in rules.siblings.iter().filter_map(Weak::upgrade) {
            if !std::ptr::eq(&*sibling, self) {
                sibling.wanted.notify_one();
            }
        }
    }

    /// Replaces the set, unless it is the newer one.
    fn set(&self, roster: Arc<Roster>, state: State, confirmed: Option<Confirmation>) {
        let consumers = roster.consumers().len();
        let old = {
            let mut told = self.told();
            if self.newest.fetch_max(roster.generation(), Ordering::Relaxed) >= roster.generation() {
                return;
            }
            told.confirmed = confirmed;
            told.status = SourceStatus {
                state,
                consumers,
                changed: Some(SystemTime::now()),
                confirmed: confirmed.map(|confirmed| confirmed.at),
                error: None,
                failures: told.status.failures,
            };
            self.current.swap(Some(roster))
        };
        log::info("consumers read", &[("source", &self.name), ("consumers", &consumers)]);
        free(old);
    }

    /// The server says that nothing has changed since this generation. Returns false if another is in use, or none.
    pub(super) fn confirmed(&self, generation: u64, confirmed: Confirmation) -> bool {
        let mut told = self.told();
        let is_used = self.roster().as_ref().is_some_and(|roster| roster.generation() == generation);
        if is_used {
            (told.status.state, told.status.error) = (State::Current, None);
            (told.confirmed, told.status.confirmed) = (Some(confirmed), Some(confirmed.at));
        }
        is_used
    }

    /// How long the current set may still be used without a confirmation. `None`: without limit, or there is none.
    pub(super) fn usable_for(&self) -> Option<Duration> {
        let longest = self.asking()?.longest()?;
        let told = self.told();
        if self.roster().is_none() {
            return None;
        }
        // One without a confirmation has an unknown age.
        Some(told.confirmed.map_or(Duration::ZERO, |confirmed| longest.saturating_sub(confirmed.age())))
    }

    /// Drops the current set if it is too old to be used. Blocks for [`LINGER`].
    pub(super) fn expire(&self) {
        let _one = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.usable_for() == Some(Duration::ZERO) {
            self.discard(None);
            let fields: log::Fields<'_> = &[("source", &self.name), ("meanwhile", &NONE)];
            log::warn("the consumers of a source are too old to be used", fields);
        }
    }

    /// Uses no consumers any more. Keeps the last error if there is no new one.
    fn discard(&self, why: Option<String>) {
        let old = {
            let mut told = self.told();
            (told.status.state, told.status.consumers) = (State::Absent, 0);
            (told.confirmed, told.status.confirmed) = (None, None);
            let before = || told.status.error.take().unwrap_or_else(|| "no answer in time".to_owned());
            let why = why.unwrap_or_else(before);
            told.status.error = Some(why);
            self.current.swap(None)
        };
        free(old);
        self.wake_siblings();
    }

    /// An attempt failed: the last good consumers are used as long as they may.
    pub(super) fn failed(&self, why: &str) {
        static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
        let known = {
            let mut told = self.told();
            let known = self.roster().is_some();
            told.status.state = if known { State::Kept } else { State::Absent };
            told.status.failures += 1;
            told.status.error = Some(why.to_owned());
            known
        };
        let meanwhile = if known { "the consumers from before are used" } else { NONE };
        let fields: log::Fields<'_> = &[("source", &self.name), ("why", &why), ("meanwhile", &meanwhile)];
        SEEN.warn(&self.name, "consumers not read", fields);
    }

    /// A snapshot with this source runs. `checked` is the generation that fitted it when it was checked.
    ///
    /// The source may have taken another set since, which fits the config before. If that one does not fit now, none is
    /// used: the one that was checked may have consumers who have been removed since.
    pub(super) fn adopt(&self, adopted: Adopted, checked: Option<u64>) {
        let _one = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = Arc::clone(&adopted.rules);
        *self.adopted.lock().unwrap_or_else(PoisonError::into_inner) = Some(adopted);
        if let Some(current) = self.current()
            && checked != Some(current.generation())
            && let Some(misfit) = self.misfits(&rules, &current).first()
        {
            let why = format!("{}: {}", misfit.path, misfit.message);
            let fields: log::Fields<'_> = &[("source", &self.name), ("why", &why), ("meanwhile", &NONE)];
            log::warn("consumers do not fit the new config", fields);
            self.discard(Some(why));
        }
        self.wanted.notify_one();
    }

    pub(super) fn adopted(&self) -> Option<Adopted> {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the web server is asked.
    pub(super) fn asking(&self) -> Option<Arc<Asking>> {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.asking.clone()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    /// How long after its confirmation a set may be used.
    fn longest(&self) -> Option<Duration> {
        self.stale.map(|stale| self.every.saturating_add(stale))
    }
}

/// Frees a replaced set here and not on a core.
fn free(old: Option<Arc<Roster>>) {
    if old.as_ref().is_some_and(|old| Arc::strong_count(old) > 1) {
        std::thread::sleep(LINGER);
    }
}

impl Tended for Source {
    fn tend(self: Arc<Self>, fetcher: Fetcher) -> Tending {
        Box::pin(follow::follow(self, fetcher))
    }
}

/// The text of a document in a file.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read_bounded(path, MAX_CONSUMER_BYTES)?;
    text_of(bytes).map_err(|why| format!("{} {why}", path.display()))
}

/// Bytes as text.
pub(super) fn text_of(bytes: Vec<u8>) -> Result<String, &'static str> {
    String::from_utf8(bytes).map_err(|_| "is not UTF-8")
}

/// The first mistake, as one line that shows no secret, and how many more there are.
fn first_of(found: &Diagnostics) -> String {
    let shown = found.for_readers();
    let mut errors = shown.iter().filter(|wrong| wrong.severity == Severity::Error);
    let Some(first) = errors.next() else { return "it cannot be read".to_owned() };
    let place = first.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
    let path = if first.path.is_empty() { String::new() } else { format!("{}: ", first.path) };
    let more = match errors.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{place}{path}{}{more}", first.message)
}
