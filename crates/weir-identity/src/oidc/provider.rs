//! The identity provider: its metadata (OpenID Connect Discovery 1.0), its keys, and its answers to codes and refresh
//! tokens.

use super::super::prelude::*;
use super::super::shared::jose::key_set::{KeySet, Verdict};
use super::super::shared::jose::remote::{Keeping, Remote};
use super::super::shared::jose::token::parse;
use super::session::Refreshes;
use arc_swap::ArcSwapOption;
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock};
use std::time::Duration as StdDuration;
use tokio::sync::watch;
use weir_h1::FieldName;
use weir_telemetry::log;
use weir_wire::{base64, time};

/// Longest answer of the provider, in bytes.
const ANSWER_BYTES: usize = 64 * 1024;

/// Longest time for one answer.
const TIMEOUT: StdDuration = StdDuration::from_secs(10);

/// How long the provider's metadata is used.
const REFRESH: StdDuration = StdDuration::from_secs(3600);

/// The wait after a failure; it doubles up to [`RETRY_MOST`].
const RETRY: StdDuration = StdDuration::from_secs(1);
const RETRY_MOST: StdDuration = StdDuration::from_secs(60);

/// How long a request waits for the provider's metadata.
const KNOWN: StdDuration = StdDuration::from_secs(5);

/// How the provider is asked.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) issuer: String,
    pub(super) trust: Trust,
    pub(super) insecure: bool,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) redirect: String,
}

/// The provider's metadata.
pub(super) struct Known {
    pub(super) authorization: String,
    pub(super) end_session: Option<String>,
    /// Whether its responses name the issuer (RFC 9207).
    pub(super) names_itself: bool,
    token: Url,
    basic: bool,
    keys: Arc<Remote>,
}

/// The provider.
pub(super) struct Provider {
    pub(super) asking: Asking,
    known: ArcSwapOption<Known>,
    rounds: watch::Sender<u64>,
    fetcher: OnceLock<Fetcher>,
    /// Shared by all routes, because they share sessions.
    pub(super) refreshes: Arc<Refreshes>,
}

/// The tokens that a code or a refresh token was exchanged for.
pub(super) struct Tokens {
    pub(super) access: Option<String>,
    pub(super) refresh: Option<String>,
    pub(super) id: Option<Map<String, Value>>,
    pub(super) seconds: u64,
}

/// Why there are no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The provider gave an invalid ID token: unsigned, or signed in an unsupported way.
    Malformed,
    /// The provider refused.
    Refused,
    /// The provider gave no response, or an invalid one.
    Unavailable,
}

impl Provider {
    pub(super) fn new(asking: Asking) -> Self {
        Self {
            asking,
            known: ArcSwapOption::empty(),
            rounds: watch::Sender::new(0),
            fetcher: OnceLock::new(),
            refreshes: Arc::default(),
        }
    }

    /// The metadata; waits a while if there is none yet.
    pub(super) async fn known(&self) -> Option<Arc<Known>> {
        let mut rounds = self.rounds.subscribe();
        if self.known.load().is_none() {
            let _ = time::timeout(KNOWN, rounds.changed()).await; // the next lines check whether metadata arrived
        }
        self.known.load_full()
    }

    /// Exchanges a code (RFC 6749 §4.1.3, RFC 7636 §4.5).
    pub(super) async fn exchange(&self, code: &str, verifier: &str) -> Result<Tokens, Failed> {
        let redirect = &self.asking.redirect;
        let form: [(&str, &str); 4] = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", verifier),
        ];
        self.tokens(&form).await
    }

    /// Exchanges a refresh token (RFC 6749 §6).
    pub(super) async fn refresh(&self, token: &str) -> Result<Tokens, Failed> {
        self.tokens(&[("grant_type", "refresh_token"), ("refresh_token", token)]).await
    }

    async fn tokens(&self, form: &[(&str, &str)]) -> Result<Tokens, Failed> {
        let known = self.known().await.ok_or(Failed::Unavailable)?;
        let fetcher = self.fetcher.get().ok_or(Failed::Unavailable)?;
        let Asking { client_id, client_secret, trust, .. } = &self.asking;
        let mut body = encode_form(form);
        let mut headers = vec![
            (field("content-type"), b"application/x-www-form-urlencoded".to_vec()),
            (field("accept"), b"application/json".to_vec()),
        ];
        if known.basic {
            // RFC 6749 §2.3.1: both are form-encoded first.
            let pair = format!("{}:{}", encode(client_id), encode(client_secret));
            headers.push((
                field("authorization"),
                format!("Basic {}", base64::encode(pair.as_bytes())).into_bytes(),
            ));
        } else {
            body.push_str(&format!(
                "&{}",
                encode_form(&[("client_id", client_id), ("client_secret", client_secret)])
            ));
        }
        let request = FetchRequest {
            method: "POST".to_owned(),
            url: known.token.clone(),
            headers,
            body: body.into(),
            limit: ANSWER_BYTES,
            timeout: TIMEOUT,
            trust: trust.clone(),
            version: weir_filter::fetch::Version::default(),
            socket: None,
        };
        let answer = fetcher.fetch(request).await.map_err(|e| self.failed(&weir_wire::Chain(&e)))?;
        let answered: Option<Map<String, Value>> = serde_json::from_slice(&answer.body).ok();
        match (answer.status, answered) {
            (200, Some(answered)) => self.read(answered, &known).await,
            // §5.2: 400 or 401 with an error means that the code or the refresh token is no longer valid.
            (400 | 401, Some(answered)) if answered.contains_key("error") => Err(Failed::Refused),
            (status, _) => Err(self.failed(&format!("the token endpoint answered with the status {status}"))),
        }
    }

    async fn read(&self, mut answered: Map<String, Value>, known: &Known) -> Result<Tokens, Failed> {
        let mut text = |name: &str| match answered.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (access, refresh, id) = (text("access_token"), text("refresh_token"), text("id_token"));
        let seconds = answered.get("expires_in").and_then(Value::as_u64).unwrap_or(REFRESH.as_secs());
        let id = match id {
            None => None,
            Some(id) => Some(self.verify(id.as_bytes(), known).await?),
        };
        Ok(Tokens { access, refresh, id, seconds })
    }

    /// Verifies the signature of an ID token and returns its claims, which still have to be checked.
    async fn verify(&self, id: &[u8], known: &Known) -> Result<Map<String, Value>, Failed> {
        let token = parse(id).map_err(|_| {
            let _ = self.failed(&"the ID token is malformed or not signed"); // for the log
            Failed::Malformed
        })?;
        let mut verdict = known.keys.current().map(|keys| (keys.number(), KeySet::verify(&keys, &token)));
        if !matches!(verdict, Some((_, Verdict::Valid))) && known.keys.may_change() {
            known.keys.change(verdict.map(|(number, _)| number)).await;
            verdict = known.keys.current().map(|keys| (keys.number(), keys.verify(&token)));
        }
        match verdict {
            Some((_, Verdict::Valid)) => {
                token.claims().ok_or_else(|| self.failed(&"the ID token is malformed"))
            }
            _ => Err(self.failed(&"the ID token is not signed by the provider's keys")),
        }
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> Failed {
        static SEEN: log::PerSubject = log::per_subject(1, StdDuration::from_secs(10));
        let fields: log::Fields<'_> = &[("issuer", &self.asking.issuer), ("why", why)];
        SEEN.warn(&self.asking.issuer, "login at the provider failed", fields);
        Failed::Unavailable
    }

    async fn discover(&self, fetcher: &Fetcher) -> Result<Known, String> {
        let Asking { issuer, trust, insecure, .. } = &self.asking;
        let place = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let url: Url = place.parse().map_err(|e| format!("{place}: {e}"))?;
        let mut request = FetchRequest::get(url, ANSWER_BYTES, TIMEOUT);
        request.trust = trust.clone();
        let answer = fetcher.fetch(request).await.map_err(|e| weir_wire::Chain(&e).to_string())?;
        if answer.status != 200 {
            return Err(format!("{place} has the status {}", answer.status));
        }
        let said: Map<String, Value> =
            serde_json::from_slice(&answer.body).map_err(|_| format!("{place} is not a JSON object"))?;
        let text = |name: &str| said.get(name).and_then(Value::as_str);
        // Discovery §4.3: the issuer must be exactly the one that was asked.
        if text("issuer") != Some(issuer) {
            return Err(format!("{place} is of another issuer: {}", text("issuer").unwrap_or("none")));
        }
        let endpoint = |name: &str| -> Result<Url, String> {
            let url: Url = text(name)
                .ok_or(format!("it names no {name}"))?
                .parse()
                .map_err(|e| format!("{name}: {e}"))?;
            if url.is_safe() || *insecure { Ok(url) } else { Err(format!("{name} is in clear text")) }
        };
        let list = |name: &str| said.get(name).and_then(Value::as_array);
        // §3: without a list, the method is `client_secret_basic`.
        let methods = list("token_endpoint_auth_methods_supported");
        let basic = methods.is_none_or(|all| all.iter().any(|method| method == "client_secret_basic"));
        let keys = endpoint("jwks_uri")?;
        let before = self
            .known
            .load_full()
            .filter(|known| known.keys.url() == &keys)
            .map(|known| Arc::clone(&known.keys));
        let keeping = Keeping {
            url: keys,
            trust: trust.clone(),
            refresh: StdDuration::from_secs(600),
            stale: StdDuration::from_secs(24 * 3600),
        };
        Ok(Known {
            authorization: endpoint("authorization_endpoint")?.to_string(),
            end_session: endpoint("end_session_endpoint").ok().map(|url| url.to_string()),
            names_itself: said.get("authorization_response_iss_parameter_supported")
                == Some(&Value::Bool(true)),
            token: endpoint("token_endpoint")?,
            basic,
            keys: before.unwrap_or_else(|| Arc::new(Remote::new(keeping))),
        })
    }

    /// Fetches the provider's metadata and keeps its keys fresh, forever.
    async fn work(&self, fetcher: Fetcher) {
        let _ = self.fetcher.set(fetcher.clone()); // if already set, it is the same fetcher
        let mut failures = 0u32;
        loop {
            let wait = match self.discover(&fetcher).await {
                Ok(known) => {
                    failures = 0;
                    self.known.store(Some(Arc::new(known)));
                    REFRESH
                }
                Err(why) => {
                    failures = failures.saturating_add(1);
                    self.failed(&why);
                    RETRY.saturating_mul(1 << (failures - 1).min(6)).min(RETRY_MOST)
                }
            };
            self.rounds.send_modify(|rounds| *rounds += 1);
            let next = tokio::time::sleep(wait);
            match self.known.load_full() {
                Some(known) => {
                    tokio::select! {
                        () = next => {}
                        () = known.keys.work(fetcher.clone()) => {}
                    }
                }
                None => next.await,
            }
        }
    }
}

impl Tended for Provider {
    fn tend(self: Arc<Self>, fetcher: Fetcher) -> Tending {
        Box::pin(async move { self.work(fetcher).await })
    }
}

fn field(name: &'static str) -> FieldName {
    FieldName::new(name).expect("a name in the source is a token")
}

/// Names and values, form-encoded, for a body or a query.
pub(super) fn encode_form(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

/// Escapes everything but letters, digits, `-`, `.`, `_` and `~`.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
