//! Stores that several gateways share: a Redis, or one node of the fleet (`fleet`), each with its own thread.
//!
//! ```text
//!   core ─ ask(Question) ─▶ channel ─▶ thread weir-store ─ EVALSHA ─▶ Redis
//!   core ◀─ the question's own answer, called on that thread ◀─────────┘
//! ```
//! A core never waits for a store in place: it leaves a question together with what to do with the answer, and
//! continues. The thread starts with the first question. While a store is unreachable, [`Store::is_up`] says so
//! without a question, so that no request waits in vain.

mod client;
mod fleet;

pub use weir_fleet::limits::lease;
pub use weir_fleet::limits::ledger::WINDOW;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use weir_config::schema::EtcdSource;
use weir_wire::time;

/// Most questions that wait for the thread; further ones get [`Away`] immediately. A question takes some 200 bytes.
const WAITING: usize = 16_384;

/// How a store is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The server behind it.
    pub server: Server,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The prefix of all keys.
    pub prefix: String,
}

/// The server behind a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A node of the fleet, elected in this etcd; `None` if this gateway is not in a fleet.
    Fleet(Option<Box<EtcdSource>>),
    /// A Redis.
    Redis {
        /// URLs of the server, or of some nodes of a cluster. They may contain passwords, so they are never shown.
        urls: Vec<String>,
        /// Whether the server is a cluster.
        cluster: bool,
        /// The trusted certificates, as PEM; without them, the system's.
        ca: Option<Vec<u8>>,
    },
}

/// The stores of a config, by name.
#[derive(Debug, Default)]
pub struct Stores {
    /// The stores that gateways share.
    pub shared: HashMap<String, Place>,
    /// The stores in this gateway's memory, perhaps also on its disk.
    pub memory: HashMap<String, Room>,
}

impl Stores {
    /// The store whose disk is in this folder.
    pub fn on_disk(&self, path: &Path) -> Option<&str> {
        let in_it = |room: &Room| room.disk.as_ref().is_some_and(|(known, _)| known == path);
        self.memory.iter().find(|(_, room)| in_it(room)).map(|(name, _)| name.as_str())
    }
}

/// A store's room for what filters keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Memory, in bytes.
    pub memory: u64,
    /// A folder, and the most bytes its files may take.
    pub disk: Option<(PathBuf, u64)>,
}

/// The store gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away;

/// A script that runs with one key.
pub struct Script {
    text: String,
    sha1: OnceLock<String>,
}

/// A question, and what to do with its answer.
pub struct Question {
    /// The script.
    pub script: Arc<Script>,
    /// The whole key, including [`Place::prefix`].
    pub key: Vec<u8>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Called once, on the store's thread: it must not block.
    pub answer: Box<dyn FnOnce(Result<Reply, Away>) + Send>,
}

/// What a script returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// One number or several.
    Numbers(Vec<i64>),
    /// A text.
    Bytes(Vec<u8>),
    /// `nil`, as for a missing key.
    Nothing,
}

/// A store by its name.
pub struct Store {
    /// Its name under `stores`.
    pub name: String,
    place: Place,
    state: Arc<State>,
    questions: OnceLock<mpsc::Sender<Question>>,
    leaving: OnceLock<mpsc::UnboundedSender<std::sync::mpsc::Sender<()>>>,
}

/// The thread's view of the store.
#[derive(Debug)]
struct State {
    /// True until it turns out to be unreachable: the first question finds out.
    up: AtomicBool,
    /// Gateways that used it when it was last reachable, including this one.
    gateways: AtomicU32,
    /// Since when the store has counted fewer than that.
    fewer_since: Mutex<Option<Instant>>,
}

/// How long a store must count fewer gateways before we believe it: as long as one may be silent before it is
/// dropped.
const BELIEVED: Duration = Duration::from_secs(5);

impl Default for State {
    fn default() -> Self {
        Self { up: AtomicBool::new(true), gateways: AtomicU32::new(1), fewer_since: Mutex::default() }
    }
}

impl State {
    /// Notes how many gateways the store counts. A store that was restarted, flushed or unreachable has lost gateways
    /// that have not returned yet. Each would take all of a limit if it believed that it is alone, above all if the
    /// store soon fails again.
    fn counted(&self, gateways: u32, now: Instant) {
        let mut fewer_since = self.fewer_since.lock().unwrap_or_else(PoisonError::into_inner);
        if gateways < self.gateways.load(Relaxed) {
            let since = *fewer_since.get_or_insert(now);
            if now.saturating_duration_since(since) < BELIEVED {
                return;
            }
        }
        *fewer_since = None;
        self.gateways.store(gateways, Relaxed);
    }

    /// The same for a store that was unreachable: its earlier count proves nothing.
    fn counted_anew(&self, gateways: u32, now: Instant) {
        *self.fewer_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.counted(gateways, now);
    }
}

impl Store {
    pub(crate) fn new(name: String, place: Place) -> Self {
        let state = State::default();
        let (questions, leaving) = (OnceLock::new(), OnceLock::new());
        Self { name, place, state: Arc::new(state), questions, leaving }
    }

    /// Whether it is a node of the fleet, whose books end with its term.
    pub const fn is_of_fleet(&self) -> bool {
        matches!(self.place.server, Server::Fleet(_))
    }

    /// How to reach it.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Whether it answered the last question, or was not asked yet.
    pub fn is_up(&self) -> bool {
        self.state.up.load(Relaxed)
    }

    /// Gateways that use the store, including this one, as far as known.
    pub fn gateways(&self) -> u32 {
        self.state.gateways.load(Relaxed).max(1)
    }

    /// A store without a thread: whoever holds the receiver answers.
    pub(crate) fn without_thread(place: Place) -> (Arc<Self>, mpsc::Receiver<Question>) {
        let (store, (sender, receiver)) = (Self::new("fake".to_owned(), place), mpsc::channel(WAITING));
        let _ = store.questions.set(sender);
        (Arc::new(store), receiver)
    }

    /// Asks. The answer comes later on another thread, or immediately as [`Away`].
    pub fn ask(&self, question: Question) {
        let questions = self.questions.get_or_init(|| self.start());
        if let Err(refused) = questions.try_send(question) {
            (refused.into_inner().answer)(Err(Away));
        }
    }

    /// Asks and waits for the answer, at most [`Place::timeout`].
    ///
    /// # Errors
    /// No answer came.
    pub async fn call(
        &self,
        script: &Arc<Script>,
        key: Vec<u8>,
        arguments: Vec<Vec<u8>>,
    ) -> Result<Reply, Away> {
        let (sender, receiver) = oneshot::channel();
        let answer = Box::new(move |answer| {
            let _ = sender.send(answer); // the caller may be gone
        });
        self.ask(Question { script: Arc::clone(script), key, arguments, answer });
        match time::timeout(self.place.timeout, receiver).await {
            Ok(Ok(answer)) => answer,
            _ => Err(Away),
        }
    }

    /// This gateway ends: if it keeps the store for others, another one must take over. `done` is dropped once it may
    /// end.
    pub fn leave(&self, done: &std::sync::mpsc::Sender<()>) {
        if let Some(leaving) = self.leaving.get() {
            let _ = leaving.send(done.clone()); // its thread may have ended
        }
    }

    fn start(&self) -> mpsc::Sender<Question> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let (name, place, state) = (self.name.clone(), self.place.clone(), Arc::clone(&self.state));
        if self.is_of_fleet() {
            let (leave, leaving) = mpsc::unbounded_channel();
            let _ = self.leaving.set(leave); // it starts once
            fleet::start(name, place, state, receiver, leaving);
        } else {
            client::start(name, place, state, receiver);
        }
        sender
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.name).finish()
    }
}

impl Script {
    /// A Lua script.
    pub fn new(text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { text: text.into(), sha1: OnceLock::new() })
    }

    fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| ::redis::Script::new(&self.text).get_hash().to_owned())
    }
}

/// Checks whether a URL is usable. The error says why not.
pub fn check(url: &str, ca: Option<&[u8]>) -> Result<(), String> {
    client::check(url, ca)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_gateways_are_believed_after_a_while() {
        let (state, began) = (State::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        let known = || state.gateways.load(Relaxed);
        state.counted_anew(3, at(0));
        assert_eq!(known(), 3, "more are believed at once");
        // It returns empty for a moment, again and again: no gateway believes that it is alone.
        for back in [10_000, 20_000, 30_000] {
            state.counted_anew(1, at(back));
            state.counted(1, at(back + 300));
            assert_eq!(known(), 3);
        }
        state.counted(2, at(34_000));
        assert_eq!(known(), 3, "one more has come back");
        state.counted(2, at(35_000));
        assert_eq!(known(), 2, "and the third has not");
        state.counted(1, at(40_000));
        state.counted(2, at(41_000));
        state.counted(1, at(46_000));
        assert_eq!(known(), 2, "it was away for a moment only");
        state.counted(1, at(51_000));
        assert_eq!(known(), 1);
    }
}
