//! A session: the user, its lifetime, and how it is refreshed.

use super::super::prelude::*;
use super::provider::Tokens;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How far the provider's clock may differ, in seconds.
const LEEWAY: u64 = 30;

/// How long a session continues if it cannot be refreshed because the provider is down, in seconds.
const GRACE: u64 = 300;

/// How long the outcome of a refresh is kept for requests that still carry the previous session, in seconds.
const KEPT: u64 = 30;

/// Most refresh outcomes that are kept. Beyond that, refreshes run without being kept.
const MOST: usize = 10_000;

/// A pending login, in a cookie of the browser.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Login {
    pub(super) nonce: String,
    pub(super) verifier: String,
    pub(super) back: String,
    pub(super) until: u64,
}

/// A session, in cookies of the browser or in a store.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Session {
    pub(super) id: String,
    /// When it ends at the latest, in seconds since 1970.
    pub(super) until: u64,
    /// When it began; 0 for sessions of a version that did not record this.
    #[serde(default)]
    began: u64,
    /// When its tokens expire.
    fresh: u64,
    pub(super) claims: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) access: Option<String>,
}

/// Claims that are needed only during the login.
const USED: [&str; 10] =
    ["acr", "amr", "at_hash", "aud", "auth_time", "azp", "c_hash", "exp", "iat", "nonce"];

/// Checks that an ID token is for this client and currently valid (OpenID Connect Core §3.1.3.7).
pub(super) fn judge(
    claims: &Map<String, Value>,
    issuer: &str,
    client: &str,
    nonce: Option<&str>,
    now: u64,
) -> bool {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let (one, several) = match claims.get("aud") {
        Some(Value::Array(all)) => (all.iter().any(|aud| aud == client), all.len() > 1),
        Some(aud) => (aud == client, false),
        None => (false, false),
    };
    let authorized = match text("azp") {
        Some(azp) => azp == client,
        None => !several,
    };
    let time = |name: &str| claims.get(name).and_then(Value::as_f64);
    let leeway = LEEWAY as f64;
    let in_time = time("exp").is_some_and(|exp| (now as f64) < exp + leeway)
        && time("iat").is_some_and(|iat| iat <= now as f64 + leeway);
    text("iss") == Some(issuer)
        && one
        && authorized
        && in_time
        && text("sub").is_some_and(|sub| !sub.is_empty())
        && nonce.is_none_or(|nonce| text("nonce") == Some(nonce))
}

// === impl Session ===

impl Session {
    pub(super) fn new(
        id: String,
        mut claims: Map<String, Value>,
        tokens: &Tokens,
        now: u64,
        seconds: u64,
        access: bool,
    ) -> Self {
        claims.retain(|name, _| !USED.contains(&name.as_str()));
        Self {
            id,
            until: now.saturating_add(seconds),
            began: now,
            fresh: now.saturating_add(tokens.seconds),
            claims,
            refresh: tokens.refresh.clone(),
            access: tokens.access.clone().filter(|_| access),
        }
    }

    /// The same session with newer tokens and the same end.
    pub(super) fn renewed(&self, tokens: &Tokens, now: u64, access: bool) -> Self {
        let claims = tokens.id.clone().unwrap_or_else(|| self.claims.clone());
        let mut renewed = Self::new(self.id.clone(), claims, tokens, now, 0, access);
        (renewed.until, renewed.began) = (self.until, self.began);
        // RFC 6749 §6: without a new refresh token, the previous one stays valid.
        renewed.refresh = renewed.refresh.or_else(|| self.refresh.clone());
        renewed
    }

    /// Limits the session to this many seconds from its beginning. This may bring its end forward, but never extends
    /// it.
    pub(super) fn within(mut self, seconds: u64) -> Self {
        if self.began > 0 {
            self.until = self.until.min(self.began.saturating_add(seconds));
        }
        self
    }

    /// Whether this form of the session was refreshed later than `known`. Its end cannot tell, because it may have
    /// been brought forward.
    pub(super) fn is_newer_than(&self, known: &Self) -> bool {
        Self { until: known.until, ..self.clone() } != *known
    }

    /// Whether the session can be used as it is. A session that cannot be refreshed stays fresh to its end.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        self.is_alive(now) && (now < self.fresh || self.refresh.is_none())
    }

    pub(super) const fn is_alive(&self, now: u64) -> bool {
        now < self.until
    }

    pub(super) const fn is_in_grace(&self, now: u64) -> bool {
        now < self.fresh.saturating_add(GRACE)
    }

    /// Identifies its tokens: the outcome of refreshing them is of no use to a session with newer tokens.
    pub(super) fn tokens_id(&self) -> String {
        format!("{} {}", self.id, self.fresh)
    }

    /// Whether claims belong to the same user.
    pub(super) fn is_of(&self, claims: &Map<String, Value>) -> bool {
        self.claims.get("sub") == claims.get("sub")
    }
}

// === refreshes ===

/// The outcome of a refresh: a session, the end of the session, or a failure.
pub(super) type Outcome = Result<Option<Session>, ()>;

/// The running and recent refreshes of all cores. A refresh token can be used once, and a page makes many requests.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<HashMap<String, Refresh>>);

/// Receives an outcome.
type OutcomeReceiver = watch::Receiver<Option<Outcome>>;

/// Until when an outcome is kept, and its receiver.
type Refresh = (u64, OutcomeReceiver);

impl Refreshes {
    /// The outcome of refreshing a session's tokens. The first caller starts the refresh, which runs independently of
    /// the exchanges. A refresh token can be used once, so the provider's answer must not be lost with the request
    /// that happened to be first.
    pub(super) async fn once(
        self: &Arc<Self>,
        id: &str,
        now: u64,
        core: &CoreHandle,
        refresh: impl Future<Output = Outcome> + 'static,
    ) -> Outcome {
        let (sender, mut receiver) = self.join(id, now);
        if let Some(sender) = sender {
            let (all, id) = (Arc::clone(self), id.to_owned());
            let is_begun = core.spawn(async move {
                let outcome = refresh.await;
                if outcome.is_err() {
                    all.all().remove(&id); // the next request tries again
                }
                sender.send_replace(Some(outcome));
            });
            if !is_begun {
                return Err(());
            }
        }
        match receiver.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(())),
            Err(_) => Err(()), // its core stopped during the refresh
        }
    }

    /// The receiver of the outcome, and the sender if no refresh is running.
    fn join(&self, id: &str, now: u64) -> (Option<watch::Sender<Option<Outcome>>>, OutcomeReceiver) {
        let mut all = self.all();
        // A sender that was dropped before it finished will never send an outcome.
        let is_good = |told: &OutcomeReceiver| told.borrow().is_some() || told.has_changed().is_ok();
        if let Some((_, told)) = all.get(id).filter(|(until, told)| now < *until && is_good(told)) {
            return (None, told.clone());
        }
        let (sender, receiver) = watch::channel(None);
        all.retain(|_, (until, _)| now < *until);
        if all.len() < MOST {
            all.insert(id.to_owned(), (now.saturating_add(KEPT), receiver.clone()));
        }
        (Some(sender), receiver)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Refresh>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(until: u64, began: u64) -> Session {
        let (id, claims) = ("a".to_owned(), Map::new());
        Session { id, until, began, fresh: 0, claims, refresh: None, access: None }
    }

    #[test]
    fn a_shorter_time_holds_for_live_sessions() {
        for (until, began, seconds, ends) in [
            (8000, 1000, 7000, 8000),
            (8000, 1000, 600, 1600),
            (8000, 1000, 9000, 8000),
            (8000, 0, 600, 8000), // its beginning is unknown
        ] {
            assert_eq!(session(until, began).within(seconds).until, ends, "{seconds}");
        }
        let kept = session(8000, 1000);
        assert!(!kept.is_newer_than(&kept.clone().within(600)));
        assert!(Session { fresh: 5, ..kept.clone() }.is_newer_than(&kept));
    }
}
