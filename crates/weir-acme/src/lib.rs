//! Automatic certificates: the client side of ACME (RFC 8555), without sockets, routes or configs.
//!
//! ```text
//!   Spec ──► Acme::entry ──► Entry: a Slot for handshakes, filled from the storage or with a stand-in
//!                 │
//!            Acme::adopt ──► keeper.rs: one thread, one task per entry
//!                              │   schedule.rs   when to renew, when to retry: no clock, no I/O
//!                              ├─► order.rs      one order, resumed after a restart
//!                              │     session.rs  directory, nonces, signed requests (jws.rs), over a Transport
//!                              │     publish.rs  the proof: tokens.rs, a handshake (weir-wire), a command (hook.rs)
//!                              ├─► storage.rs    files, always complete; lock.rs: only one of several nodes orders
//!                              └─► sharing.rs    other live nodes, and the proofs that each of them must answer
//! ```
//!
//! Checking a config needs no thread: [`Acme::entry`] reads the storage and writes nothing. A running gateway never
//! loses its certificate. A failed order, a missing storage, or an authority that is down for a month leaves the last
//! good certificate in its slot.

mod account;
mod clock;
mod entry;
mod failure;
mod hook;
mod jws;
mod keeper;
mod lock;
mod message;
mod name;
mod order;
mod publish;
mod schedule;
mod session;
mod shared;
mod sharing;
mod storage;
mod tokens;

#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use entry::{Entry, External, LastFailure, Settings, Spec, Status};
pub use failure::{Failure, Kind};
pub use hook::Hook;
pub use name::{Name, NoName};
pub use publish::Challenge;
pub use session::{ANSWER_BYTES, Answer, Answered, Ask, Transport};
pub use shared::Watcher;
pub use tokens::Tokens;

use entry::SharedEntry;
use shared::{Command, Running, Shared};
use std::fmt;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use storage::certificate_of;
use tokio::sync::mpsc;
use weir_telemetry::log;
use weir_wire::tls::Proofs;

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// How long we wait for the thread to end.
const ENDING: Duration = Duration::from_secs(3);

/// The certificates to renew. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Acme(Arc<Shared>);

impl Acme {
    /// Starts without certificates.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        }))
    }

    /// Like `new`, with another clock: for tests.
    pub fn with_clock(clock: Clock) -> Self {
        Self(Arc::new(Shared::new(clock)))
    }

    /// The tokens that clients on cleartext listeners may currently request.
    pub fn tokens(&self) -> &Tokens {
        &self.0.stage.tokens
    }

    /// The proofs that handshakes currently present.
    pub fn proofs(&self) -> &Proofs {
        &self.0.stage.proofs
    }

    /// Sets the function to call on changes.
    pub fn watch(&self, watcher: Watcher) {
        *self.0.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// A config is being compiled: forgets entries of an earlier config that never ran.
    pub fn begin(&self) {
        self.0.entries().fresh.clear();
    }

    /// The certificate of a spec: the entry in use if there is one, else the certificate in the storage, else a
    /// stand-in.
    ///
    /// # Errors
    /// When no stand-in can be made.
    pub fn entry(&self, spec: &Spec) -> Result<Arc<Entry>, String> {
        let mut entries = self.0.entries();
        let known = entries.fresh.get(spec).or_else(|| entries.kept.get(spec)).cloned();
        let entry = match known {
            Some(known) => known,
            None => Arc::new(Entry::new(spec)?),
        };
        entries.fresh.insert(spec.clone(), Arc::clone(&entry));
        Ok(entry)
    }

    /// The compiled config is now running: keeps the entries requested since [`Acme::begin`], and no others.
    pub fn adopt(&self, transport: impl FnOnce() -> Arc<dyn Transport>) {
        let entries: Vec<SharedEntry> = {
            let mut entries = self.0.entries();
            let fresh = std::mem::take(&mut entries.fresh);
            let before = std::mem::replace(&mut entries.kept, fresh);
            for (spec, entry) in &entries.kept {
                if !before.contains_key(spec) && entry.state().stand_in {
                    let told: log::Fields<'_> =
                        &[("name", &spec.name), ("directory", &spec.settings.directory)];
                    log::warn("clients see a self-signed stand-in until a certificate is issued", told);
                }
            }
            entries.kept.values().cloned().collect()
        };
        self.0.tell();
        let mut running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() && !entries.is_empty() {
            *running = self.start(transport());
        }
        if let Some(running) = &*running {
            let _ = running.commands.send(Command::Keep(entries)); // a thread that ended has said why
        }
    }

    fn start(&self, transport: Arc<dyn Transport>) -> Option<Running> {
        let (commands, told) = mpsc::unbounded_channel();
        let (ending, ended) = std_mpsc::channel::<()>();
        let shared = Arc::clone(&self.0);
        let work = move || {
            let _ending = ending; // disconnects when the thread ends
            keeper::run(shared, transport, told);
        };
        match thread::Builder::new().name("weir-acme".to_owned()).spawn(work) {
            Ok(_) => Some(Running { commands, ended }),
            Err(e) => {
                log::error("no certificate will be ordered: the system refused a thread", &[("error", &e)]);
                None
            }
        }
    }

    /// Stops all work. Releases locks and proofs; an order continues after the next start.
    pub fn stop(&self) {
        let running = self.0.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { commands, ended }) = running {
            let _ = commands.send(Command::Stop); // it may have ended
            let _ = ended.recv_timeout(ENDING); // disconnected, or we wait no longer
        }
    }

    /// Checks everything now: for tests that have moved the clock.
    pub fn wake(&self) {
        self.0.wake.notify_waiters();
    }

    /// The status of each certificate, by name.
    pub fn statuses(&self) -> Vec<Status> {
        self.0.statuses()
    }
}

impl Default for Acme {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acme").field("kept", &self.0.entries().kept.len()).finish_non_exhaustive()
    }
}
