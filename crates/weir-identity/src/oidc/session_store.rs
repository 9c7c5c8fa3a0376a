//! Sessions in a store: the browser holds a ticket; the store holds the session, sealed with the key of the cookies.

use super::super::prelude::*;
use super::seal::Seal;
use super::session::{Outcome, Session};
use sha2::{Digest, Sha256};
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use weir_filter::store::{Away, Reply, Script, Store};
use weir_telemetry::log;
use weir_wire::{hex, time};

/// How long one gateway may take to refresh a session before another tries, in seconds: longer than a provider may
/// take to answer.
const REFRESH_SECONDS: u64 = 15;

/// How often a gateway checks whether another has refreshed the session.
const LOOK: Duration = Duration::from_millis(100);

static GET: LazyLock<Arc<Script>> = LazyLock::new(|| Script::new("return redis.call('GET', KEYS[1])"));
static SET: LazyLock<Arc<Script>> =
    LazyLock::new(|| Script::new("redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2]) return { 1 }"));
/// Replaces an existing value and does nothing if there is none.
static REPLACE: LazyLock<Arc<Script>> = LazyLock::new(|| {
    Script::new("return { redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2], 'XX') and 1 or 0 }")
});
/// 1 for the first gateway that asks.
static CLAIM: LazyLock<Arc<Script>> = LazyLock::new(|| {
    Script::new("return { redis.call('SET', KEYS[1], '1', 'EX', ARGV[1], 'NX') and 1 or 0 }")
});
static DELETE: LazyLock<Arc<Script>> = LazyLock::new(|| Script::new("return { redis.call('DEL', KEYS[1]) }"));

/// The browser's ticket for a stored session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Ticket {
    id: String,
}

/// The sessions of a store.
#[derive(Clone)]
pub(super) struct SessionStore {
    store: Arc<Store>,
    seal: Arc<Seal>,
    prefix: String,
}

impl Ticket {
    pub(super) fn of(session: &Session) -> Self {
        Self { id: session.id.clone() }
    }
}

impl SessionStore {
    /// `purpose` separates the sessions of different clients.
    pub(super) fn new(store: Arc<Store>, seal: Arc<Seal>, purpose: &str) -> Self {
        let of = hex::encode(&Sha256::digest(purpose.as_bytes())[..8]);
        Self { prefix: format!("{}:session:{of}", store.place().prefix), store, seal }
    }

    /// Loads the session of a ticket; `None` if it has ended.
    pub(super) async fn load(&self, ticket: &Ticket) -> Result<Option<Session>, Away> {
        match self.store.call(&GET, self.key(&ticket.id).into_bytes(), Vec::new()).await? {
            Reply::Bytes(sealed) => Ok(self.seal.open(&kind(&ticket.id), &sealed)),
            Reply::Nothing => Ok(None),
            Reply::Numbers(_) => Err(Away),
        }
    }

    /// Stores a new session.
    pub(super) async fn save(&self, session: &Session, now: u64) -> Result<(), Away> {
        self.write(&SET, session, now).await.map(drop)
    }

    /// Ends a session in every browser that holds its ticket.
    pub(super) async fn end(&self, ticket: &Ticket) -> Result<(), Away> {
        self.delete(self.key(&ticket.id)).await.map(drop)
    }

    /// Refreshes a session, unless another gateway is doing so or has done so: a refresh token can be used once. The
    /// outcome is stored.
    pub(super) async fn refresh(
        self,
        session: Session,
        now: u64,
        refresh: impl Future<Output = Outcome>,
    ) -> Outcome {
        let ticket = Ticket::of(&session);
        let claim = format!("{}:refresh", self.key(&ticket.id));
        let seconds = REFRESH_SECONDS.to_string().into_bytes();
        let ends = Instant::now() + Duration::from_secs(REFRESH_SECONDS);
        loop {
            let claimed = self.store.call(&CLAIM, claim.clone().into_bytes(), vec![seconds.clone()]).await;
            let is_ours = claimed.map_err(|Away| ())? == Reply::Numbers(vec![1]);
            // Another gateway may have finished between our check and our claim.
            let outcome = match self.load(&ticket).await.map_err(|Away| ())? {
                Some(newer) if newer.is_newer_than(&session) => Ok(Some(newer)),
                None => Ok(None),
                Some(_) if is_ours => self.keep(refresh.await, &ticket, now).await,
                Some(_) if Instant::now() >= ends => return Err(()),
                Some(_) => {
                    time::sleep(LOOK).await;
                    continue;
                }
            };
            if is_ours {
                let _ = self.delete(claim).await; // the claim expires anyway
            }
            return outcome;
        }
    }

    /// Stores the outcome of a refresh. A session that was ended in the meantime stays ended.
    async fn keep(&self, outcome: Outcome, ticket: &Ticket, now: u64) -> Outcome {
        let kept = match &outcome {
            Ok(Some(renewed)) => self.write(&REPLACE, renewed, now).await,
            Ok(None) => self.delete(self.key(&ticket.id)).await,
            Err(()) => return outcome,
        };
        match kept {
            Ok(reply) if reply == Reply::Numbers(vec![0]) => Ok(None),
            Ok(_) => outcome,
            Err(Away) => {
                let store: &dyn std::fmt::Display = &self.store.name;
                log::warn(
                    "a refreshed session could not be saved: its user must log in again",
                    &[("store", store)],
                );
                outcome
            }
        }
    }

    async fn write(&self, script: &Arc<Script>, session: &Session, now: u64) -> Result<Reply, Away> {
        let sealed = self.seal.seal(&kind(&session.id), session).ok_or(Away)?;
        let seconds = session.until.saturating_sub(now).max(1).to_string();
        let key = self.key(&session.id).into_bytes();
        self.store.call(script, key, vec![sealed.into_bytes(), seconds.into_bytes()]).await
    }

    async fn delete(&self, key: String) -> Result<Reply, Away> {
        self.store.call(&DELETE, key.into_bytes(), Vec::new()).await
    }

    fn key(&self, id: &str) -> String {
        format!("{}:{id}", self.prefix)
    }
}

/// Binds the sealed value to its ticket: someone who can write to the store can swap sessions, but the gateway
/// rejects a swapped one.
fn kind(id: &str) -> String {
    format!("kept {id}")
}
