//! A source of consumers: what it has now, what a new set must fit, and how it replaces the old one.

use super::super::{Fetcher, FilterKind, Tended, Tending};
use super::follow::{self, Stamp};
use super::roster::Roster;
use super::rules::{Misfit, Rules};
use arc_swap::{ArcSwapOption, Guard};
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
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
    Http(Box<Fetched>),
}

/// How consumers are fetched.
pub struct Fetched {
    /// The URL.
    pub url: Url,
    /// Which certificates are trusted.
    pub trust: Trust,
    /// How often to ask.
    pub every: Duration,
    /// Longest time for one answer.
    pub timeout: Duration,
    /// How long the last good answer is used while there is no other. `None`: without limit.
    pub stale: Option<Duration>,
    /// Sent as a bearer token.
    pub token: Option<String>,
    /// The file for the last good answer.
    pub cache: Option<PathBuf>,
}

/// A source of consumers. It outlives snapshots as long as its settings stay the same.
pub struct Source {
    name: String,
    pub(super) origin: Origin,
    kinds: Box<[&'static FilterKind]>,
    current: ArcSwapOption<Roster>,
    /// What a new set must fit. `None` until a snapshot with this source runs.
    rules: Mutex<Option<Arc<Rules>>>,
    status: Mutex<SourceStatus>,
    /// The version of the file that was read first.
    begun: Mutex<Option<Stamp>>,
    /// The rules have changed, so what was refused may fit now.
    pub(super) wanted: Notify,
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
    /// Why the last attempt failed, if it did.
    pub error: Option<String>,
    /// How many attempts failed.
    pub failures: u64,
}

/// Whether the consumers of a source can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It has none yet, or too old ones. Credentials that nobody else has get 503.
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

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetched").field("url", &self.url.shown()).finish_non_exhaustive()
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
            rules: Mutex::default(),
            status: Mutex::new(SourceStatus {
                state: State::Absent,
                consumers: 0,
                changed: None,
                error: None,
                failures: 0,
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
        self.told().clone()
    }

    /// Whether a snapshot with this source runs, so that it follows its file or URL by itself.
    pub fn runs(&self) -> bool {
        self.rules().is_some()
    }

    /// Reads it for the first time: the file, or the cache of a web server. Mistakes in the file go to `found`.
    pub fn begin(&self, rules: &Rules, found: &mut Diagnostics) {
        let (path, cached) = match &self.origin {
            Origin::File(path) => (Some(path), false),
            Origin::Http(fetched) => (fetched.cache.as_ref().filter(|path| path.exists()), true),
        };
        let Some(path) = path else { return };
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = follow::stamp(path);
        let (mut own, before) = (Diagnostics::default(), found.errors());
        let into = if cached { &mut own } else { found };
        let read = match read_text(path) {
            Ok(text) => {
                self.read(&text, path, Some(rules), into).filter(|_| cached || into.errors() == before)
            }
            Err(why) => {
                into.push(Diagnostic::error("file-unreadable", why));
                None
            }
        };
        if own.errors() > 0 {
            let fields: log::Fields<'_> = &[("source", &self.name), ("why", &first_of(&own))];
            log::warn("the cache of a source of consumers is not used", fields);
            return;
        }
        if let Some(roster) = read {
            self.set(Arc::new(roster), if cached { State::Cached } else { State::Current });
        }
    }

    /// The version of the file that [`Self::begin`] read.
    pub(super) fn begun_with(&self) -> Option<Stamp> {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a document.
    fn read(
        &self,
        text: &str,
        name: &Path,
        rules: Option<&Rules>,
        found: &mut Diagnostics,
    ) -> Option<Roster> {
        let before = found.errors();
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
        let document = consumers::read(text, name, &kinds, found)?;
        let current = self.current();
        let roster = Roster::read(&document, &self.kinds, current.as_deref(), found);
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

    /// Takes a new document, or says why not. Blocks: 100,000 consumers take a second.
    pub(crate) fn take(&self, text: &str, name: &Path) -> Result<(), String> {
        let _one = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Diagnostics::default();
        match self.read(text, name, self.rules().as_deref(), &mut found) {
            Some(roster) => {
                self.set(Arc::new(roster), State::Current);
                self.wake_siblings();
                Ok(())
            }
            None => Err(first_of(&found)),
        }
    }

    /// What a sibling refused because of this source's consumers may fit now.
    fn wake_siblings(&self) {
        let Some(rules) = self.rules() else { return };
        for sibling in rules.siblings.iter().filter_map(Weak::upgrade) {
            if !std::ptr::eq(&*sibling, self) {
                sibling.wanted.notify_one();
            }
        }
    }

    fn set(&self, roster: Arc<Roster>, state: State) {
        let consumers = roster.consumers().len();
        let old = self.current.swap(Some(roster));
        {
            let mut told = self.told();
            *told = SourceStatus {
                state,
                consumers,
                changed: Some(SystemTime::now()),
                error: None,
                failures: told.failures,
            };
        }
        log::info("consumers read", &[("source", &self.name), ("consumers", &consumers)]);
        let Some(old) = old else { return };
        if Arc::strong_count(&old) > 1 {
            std::thread::sleep(LINGER);
        }
    }

    /// The source says that nothing has changed.
    pub(super) fn confirmed(&self) {
        let mut told = self.told();
        (told.state, told.error) = (State::Current, None);
    }

    /// An attempt failed. Without `keep`, the last good consumers are too old to be used.
    pub(super) fn failed(&self, why: &str, keep: bool) {
        static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
        if !keep {
            self.current.store(None);
        }
        let known = self.current.load().is_some();
        {
            let mut told = self.told();
            told.state = if known { State::Kept } else { State::Absent };
            told.failures += 1;
            told.error = Some(why.to_owned());
            if !known {
                told.consumers = 0;
            }
        }
        let meanwhile = match (known, keep) {
            (true, _) => "the consumers from before are used",
            (false, true) => "there are no consumers yet: unknown credentials get 503",
            (false, false) => "the consumers from before are too old: unknown credentials get 503",
        };
        let fields: log::Fields<'_> = &[("source", &self.name), ("why", &why), ("meanwhile", &meanwhile)];
        SEEN.warn(&self.name, "consumers not read", fields);
    }

    /// A snapshot with this source runs. `compiled` is what fitted it when it was checked.
    pub(super) fn adopt(&self, rules: &Arc<Rules>, compiled: Option<Arc<Roster>>) {
        let _one = REPLACING.lock().unwrap_or_else(PoisonError::into_inner);
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(rules));
        // It may have taken others since, which fit the config before.
        let current = self.current();
        let is_checked = current.as_ref().map(Arc::as_ptr) == compiled.as_ref().map(Arc::as_ptr);
        if !is_checked
            && let (Some(current), Some(compiled)) = (current, compiled)
            && !self.misfits(rules, &current).is_empty()
        {
            self.set(compiled, State::Kept);
        }
        self.wanted.notify_one();
    }

    pub(super) fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn told(&self) -> MutexGuard<'_, SourceStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tended for Source {
    fn tend(self: Arc<Self>, fetcher: Fetcher) -> Tending {
        Box::pin(follow::follow(self, fetcher))
    }
}

/// The text of a document in a file.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let told = |e: std::io::Error| format!("{shown} cannot be read: {e}");
    if !fs::metadata(path).map_err(told)?.is_file() {
        return Err(format!("{shown} is not a file")); // opening a pipe would wait for ever
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(told)?;
    file.take(MAX_CONSUMER_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() > MAX_CONSUMER_BYTES {
        return Err(format!("{shown} is longer than {MAX_CONSUMER_BYTES} bytes"));
    }
    text_of(bytes).map_err(|why| format!("{shown} {why}"))
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
