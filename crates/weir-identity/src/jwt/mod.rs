//! `jwt`: requires a signed token. `claims` checks what a token must say, and `cache` remembers verified tokens.
//! Reading and verifying tokens and keys is in `shared/jose`.

mod cache;
pub(super) mod claims;
mod settings;

use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::after_scheme;
use super::shared::claimed::{self, Claimed};
use super::shared::fair_queue::{FairQueue, Lane};
use super::shared::jose::key_set::{KeySet, Verdict};
use super::shared::jose::remote::Remote;
use super::shared::jose::token::{Refused, Token, parse};
use super::shared::named::{CONSUMERS_UNAVAILABLE, Named};
use cache::{Cache, Holder, Verified};
use claims::{Claims, Requirement, Untimely, as_text, check_time, claim, holder, is_issued_by, is_meant_for};
use settings::JwtSettings;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::oneshot;
use weir_filter::cookies;
use weir_h1::FieldName;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<JwtSettings>("jwt")
    .with_causes(&[
        &CONSUMER_ADDRESS,
        &CONSUMERS_UNAVAILABLE,
        &TOKEN_ALGORITHM,
        &TOKEN_AUDIENCE,
        &TOKEN_BUSY,
        &TOKEN_CLAIMS,
        &TOKEN_CONSUMER,
        &TOKEN_EXPIRED,
        &TOKEN_ISSUER,
        &TOKEN_KEY,
        &TOKEN_KEYS,
        &TOKEN_MALFORMED,
        &TOKEN_MISSING,
        &TOKEN_REPEATED,
        &TOKEN_SIGNATURE,
        &TOKEN_TIME,
    ])
    .with_index::<claimed::Values>();

causes! {
    TOKEN_ALGORITHM "token_algorithm" 401
        "The token's algorithm is not allowed, or the token is not signed." "`algorithms` and `keys` of the filter jwt"
    TOKEN_AUDIENCE "token_audience" 401
        "The token is for another audience." "`audiences` of the filter jwt"
    TOKEN_BUSY "token_busy" 503
        "Too many tokens are waiting to be verified." "P-256 keys, or tokens that name their key; the queue holds 256, and the client with the most tokens in it loses one first"
    TOKEN_CLAIMS "token_claims" 403
        "The token lacks a required claim or value." "`require` of the filter jwt"
    TOKEN_CONSUMER "token_consumer" 403
        "The token matches no consumer." "consumers.*.jwt, and `consumer` of the filter jwt"
    TOKEN_EXPIRED "token_expired" 401
        "The token has expired." "the client must get a new token; `leeway` of the filter jwt"
    TOKEN_ISSUER "token_issuer" 401
        "The token is from another issuer." "`issuers` of the filter jwt"
    TOKEN_KEY "token_key" 401
        "The token is signed with a key that the provider does not publish." "`keys` of the filter jwt"
    TOKEN_KEYS "token_keys" 503
        "The keys that verify tokens could not be fetched." "`keys` of the filter jwt; the log says why"
    TOKEN_MALFORMED "token_malformed" 401
        "The token is malformed, or its header asks for an unsupported feature." "the client must send a well-formed token"
    TOKEN_MISSING "token_missing" 401
        "The request carries no token." "the client must send one: see `header` and `cookie` of the filter jwt",
        no_credentials: true
    TOKEN_REPEATED "token_repeated" 400
        "The request carries more than one token." "the client must send exactly one"
    TOKEN_SIGNATURE "token_signature" 401
        "The token's signature is wrong." "`keys` of the filter jwt"
    TOKEN_TIME "token_time" 401
        "The token has no expiry time, or is not valid yet."
        "`allow_endless` and `leeway` of the filter jwt"
}

struct Jwt {
    settings: JwtSettings,
    scheme: Option<String>,
    leeway: u64,
    keys: Keys,
    /// Fields and the claims that set them.
    headers: Vec<(FieldName, String)>,
    /// Consumers by the value of the claim.
    consumers: Claimed,
    cache: PerCore<RefCell<Cache>>,
    /// Whether the token is in `Authorization`.
    bearer: bool,
    /// Whether expressions may read the claims.
    reads_claims: bool,
    www_authenticate: FieldName,
}

/// Where the keys come from.
enum Keys {
    Here(Arc<KeySet>),
    Remote(Arc<Remote>),
}

/// The credentials of a request.
enum Presented<'h> {
    None,
    One(&'h [u8]),
    Several,
}

/// Why a request does not pass yet.
enum Stopped {
    /// Verifying the token would keep this core from its connections for too long.
    Costly(Costly),
    Refused(&'static Cause),
    /// Other keys than those of this number may help.
    Keys(Option<u64>, &'static Cause),
}

// === impl Jwt ===

impl Filter for Jwt {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let set = self.headers.iter().map(|(name, _)| name.clone());
        let carried = std::iter::once((*self.settings.header).clone());
        FieldGuards { request: set.chain(carried).collect(), response: Vec::new() }
    }

    fn credentials(&self) -> Vec<FieldName> {
        vec![(*self.settings.header).clone()]
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        match self.decide(head, cx, None) {
            Ok(flow) => flow,
            Err(Stopped::Costly(_) | Stopped::Keys(..)) => Flow::Wait,
            Err(Stopped::Refused(cause)) => self.refuse(cause),
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let mut stopped = self.decide(head, cx, None);
            if let (Keys::Remote(remote), Err(Stopped::Keys(seen, _))) = (&self.keys, &stopped) {
                remote.change(*seen).await;
                stopped = self.decide(head, cx, None);
            }
            if let Err(Stopped::Costly(costly)) = stopped {
                let Some(checked) = costly.check(Lane::of(cx.client)).await else {
                    return self.refuse(&TOKEN_BUSY);
                };
                stopped = self.decide(head, cx, Some(checked));
            }
            match stopped {
                Ok(flow) => flow,
                Err(Stopped::Refused(cause) | Stopped::Keys(_, cause)) => self.refuse(cause),
                Err(Stopped::Costly(_)) => self.refuse(&TOKEN_BUSY), // its keys changed in the meantime
            }
        })
    }
}

/// Most that verifying a token may cost on a core, see [`KeySet::cost`]. Costlier tokens are verified on threads:
/// P-521 takes ten times as long as P-256, and a token that names no key is tried with each key that fits.
const COST: u32 = 3;

/// The threads that verify costly signatures, one for every two processors, with the number of tokens that may wait
/// for them.
static VERIFYING: FairQueue = FairQueue::new("weir-verify", 256, 2);

/// A token that is verified on a thread.
struct Costly {
    token: Vec<u8>,
    keys: Arc<KeySet>,
}

/// The verdict of a key set on a token.
#[derive(Clone, Copy)]
struct Checked {
    key_set: u64,
    verdict: Verdict,
}

impl Costly {
    /// Verifies the token on a thread; `None` if too many wait.
    async fn check(self, lane: Lane) -> Option<Checked> {
        let (done, result) = oneshot::channel();
        let job = move || {
            let Self { token, keys } = self;
            if !done.is_closed()
                && let Ok(parsed) = parse(&token)
            {
                let verdict = keys.verify(&parsed);
                let _ = done.send(Checked { key_set: keys.number(), verdict }); // the exchange may have ended
            }
        };
        if !VERIFYING.run(lane, Box::new(job)) {
            return None;
        }
        result.await.ok()
    }
}

impl Jwt {
    /// Decides about a request. When called again, it decides again.
    fn decide(&self, head: &mut RequestHead, cx: &mut Cx, checked: Option<Checked>) -> Result<Flow, Stopped> {
        let token = match self.presented(head) {
            Presented::None if self.settings.optional => {
                for (name, _) in &self.headers {
                    head.headers.remove(name);
                }
                cx.pass_unnamed();
                return Ok(Flow::Continue);
            }
            Presented::None => return Err(Stopped::Refused(&TOKEN_MISSING)),
            Presented::One(token) => token,
            Presented::Several => return Err(Stopped::Refused(&TOKEN_REPEATED)),
        };
        let verified = self.verified(token, cx, checked)?;
        self.pass(&verified, head, cx)
    }

    fn presented<'h>(&'h self, head: &'h RequestHead) -> Presented<'h> {
        let mut presented = Presented::None;
        let mut fields = head.headers.values(&self.settings.header);
        if let Some(value) = fields.next() {
            if fields.next().is_some() {
                return Presented::Several;
            }
            if let Some(token) = self.token_of(value) {
                presented = Presented::One(token);
            }
        }
        // RFC 6750 §2: a client must not use more than one way at once.
        for token in self.settings.cookie.iter().flat_map(|name| cookies::values(head, name)) {
            match presented {
                Presented::None => presented = Presented::One(token),
                _ => return Presented::Several,
            }
        }
        presented
    }

    /// The token in the value of a header.
    fn token_of<'h>(&self, value: &'h [u8]) -> Option<&'h [u8]> {
        match &self.scheme {
            None => Some(value).filter(|token| !token.is_empty()),
            Some(scheme) => after_scheme(value, scheme),
        }
    }

    fn verified(&self, token: &[u8], cx: &Cx, checked: Option<Checked>) -> Result<Rc<Verified>, Stopped> {
        let keys = match &self.keys {
            Keys::Here(keys) => Some(Arc::clone(keys)),
            Keys::Remote(remote) => remote.current(),
        };
        let Some(keys) = keys else { return Err(self.stopped_by_keys(None, &TOKEN_KEYS)) };
        let now = now();
        let cache = self.cache.get(cx.core());
        if let Some(verified) = cache.borrow_mut().find(keys.number(), token, now) {
            return Ok(verified);
        }
        let parsed = parse(token).map_err(|refused| match refused {
            Refused::Algorithm => &TOKEN_ALGORITHM,
            Refused::Header | Refused::Malformed => &TOKEN_MALFORMED,
        });
        let parsed = parsed.map_err(Stopped::Refused)?;
        let allowed = &self.settings.algorithms;
        if !allowed.is_empty() && !allowed.contains(&parsed.algorithm) {
            return Err(Stopped::Refused(&TOKEN_ALGORITHM));
        }
        let verdict = match checked.filter(|checked| checked.key_set == keys.number()) {
            Some(checked) => checked.verdict,
            None if keys.cost(&parsed) > COST => {
                return Err(Stopped::Costly(Costly { token: token.to_vec(), keys }));
            }
            None => keys.verify(&parsed),
        };
        match verdict {
            Verdict::Valid => {}
            Verdict::Algorithm => return Err(Stopped::Refused(&TOKEN_ALGORITHM)),
            Verdict::Unknown => return Err(self.stopped_by_keys(Some(keys.number()), &TOKEN_KEY)),
            Verdict::Wrong => return Err(Stopped::Refused(&TOKEN_SIGNATURE)),
        }
        let verified = Rc::new(self.judge(&parsed, now).map_err(Stopped::Refused)?);
        cache.borrow_mut().remember(keys.number(), token, Rc::clone(&verified));
        Ok(verified)
    }

    /// Whether other keys may help.
    fn stopped_by_keys(&self, seen: Option<u64>, cause: &'static Cause) -> Stopped {
        match &self.keys {
            Keys::Remote(remote) if remote.may_change() => Stopped::Keys(seen, cause),
            _ => Stopped::Refused(cause),
        }
    }

    /// Checks a token whose signature is right.
    fn judge(&self, token: &Token<'_>, now: u64) -> Result<Verified, &'static Cause> {
        let settings = &self.settings;
        // RFC 7515 §4.1.9: the media type `application/at+jwt` may be written without the part before the slash.
        let media_type =
            token.media_type.as_deref().map(|typ| typ.strip_prefix("application/").unwrap_or(typ));
        let is_known = |typ: &str| settings.types.iter().any(|known| known.eq_ignore_ascii_case(typ));
        if !settings.types.is_empty() && !media_type.is_some_and(is_known) {
            return Err(&TOKEN_CLAIMS);
        }
        let claims = token.claims().ok_or(&TOKEN_MALFORMED)?;
        let until =
            check_time(&claims, now, self.leeway, settings.allow_endless).map_err(|why| match why {
                Untimely::Expired => &TOKEN_EXPIRED,
                Untimely::Early | Untimely::Endless => &TOKEN_TIME,
                Untimely::Malformed => &TOKEN_MALFORMED,
            })?;
        if !settings.issuers.is_empty() && !is_issued_by(&claims, &settings.issuers) {
            return Err(&TOKEN_ISSUER);
        }
        if !settings.audiences.is_empty() && !is_meant_for(&claims, &settings.audiences) {
            return Err(&TOKEN_AUDIENCE);
        }
        if !settings.require.iter().all(|(name, wanted)| wanted.is_met_by(name, claim(&claims, name))) {
            return Err(&TOKEN_CLAIMS);
        }
        let consumer = self.consumer(&claims)?;
        let value =
            |name: &str| claim(&claims, name).and_then(as_text).map(|text| text.into_owned().into_bytes());
        let headers = self.headers.iter().map(|(_, name)| value(name)).collect();
        let who = holder(&claims, |name| self.headers.iter().any(|(_, told)| told == name));
        let claims = self.reads_claims.then(|| Rc::new(serde_json::Value::Object(claims)));
        Ok(Verified { consumer, headers, who, until, claims })
    }

    fn consumer(&self, claims: &Claims) -> Result<Option<Holder>, &'static Cause> {
        let Some(name) = &self.settings.consumer else { return Ok(None) };
        let value = claim(claims, name).and_then(serde_json::Value::as_str).ok_or(&TOKEN_CONSUMER)?;
        match self.consumers.find(value).map_err(|nobody| nobody.cause(&TOKEN_CONSUMER))? {
            Named::Config(index) => Ok(Some(Holder::Config(index))),
            Named::Listed(_) => Ok(Some(Holder::Listed(value.into()))),
        }
    }

    /// Passes the token's claims to the upstream and to the rest of the exchange.
    fn pass(&self, verified: &Verified, head: &mut RequestHead, cx: &mut Cx) -> Result<Flow, Stopped> {
        if let Some(holder) = &verified.consumer {
            match holder {
                Holder::Config(index) => cx.set_consumer(*index),
                // A source may have removed it since the token was verified.
                Holder::Listed(value) => {
                    let found = self.consumers.find(value);
                    found.map_err(|nobody| Stopped::Refused(nobody.cause(&TOKEN_CONSUMER)))?.name(cx);
                }
            }
            let client = cx.client.to_canonical();
            let allowed = cx.consumer().map_or(&[][..], |consumer| &consumer.allow_ips);
            if !allowed.is_empty() && !allowed.iter().any(|net| net.contains(&client)) {
                return Err(Stopped::Refused(&CONSUMER_ADDRESS));
            }
        }
        // If the upstream learns no more than the consumer, the caller is identified by the consumer.
        if verified.consumer.is_none() || !self.headers.is_empty() || !self.settings.hide {
            cx.identify("jwt", &verified.who);
        }
        if let Some(claims) = &verified.claims {
            cx.set_claims(Rc::clone(claims));
        }
        for ((name, _), value) in self.headers.iter().zip(&verified.headers) {
            head.headers.remove(name);
            if let Some(value) = value
                && head.headers.append(name, value).is_err()
            {
                return Err(Stopped::Refused(&TOKEN_CLAIMS)); // a value that cannot be sent
            }
        }
        if self.settings.hide {
            head.headers.remove(&self.settings.header);
            if self.bearer {
                cx.hides_authorization();
            }
            if let Some(name) = &self.settings.cookie {
                cookies::remove(head, |own| own == name.as_bytes());
            }
        }
        Ok(Flow::Continue)
    }

    /// RFC 6750 §3: the challenge names the error, unless the request carried no token at all.
    fn refuse(&self, cause: &'static Cause) -> Flow {
        if cause.status == 503 || *cause == CONSUMER_ADDRESS {
            return Flow::refuse(cause);
        }
        let mut challenge = format!("{} realm=\"weir\"", self.scheme.as_deref().unwrap_or("Bearer"));
        let error = match cause.status {
            400 => "invalid_request",
            403 => "insufficient_scope",
            _ => "invalid_token",
        };
        if *cause != TOKEN_MISSING {
            challenge.push_str(&format!(", error=\"{error}\", error_description=\"{}\"", cause.meaning));
        }
        if *cause == TOKEN_CLAIMS
            && let Some(Requirement::OneOf(words) | Requirement::Contains(words)) =
                self.settings.require.get("scope")
        {
            let words: Vec<&str> = words.iter().filter_map(serde_json::Value::as_str).collect();
            challenge.push_str(&format!(", scope=\"{}\"", words.join(" ").replace(['"', '\\'], "")));
        }
        Flow::refuse_with(cause, vec![(self.www_authenticate.clone(), challenge.into_bytes())])
    }
}

/// Seconds since 1970; tests may add an offset.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    #[cfg(test)]
    let now = now + tests::AHEAD.get();
    now
}

#[cfg(test)]
mod tests;
