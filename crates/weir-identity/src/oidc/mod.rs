//! `oidc`: logs browsers in at an identity provider. `provider` talks to it, and `seal` makes the cookies that hold
//! sessions and pending logins. `session` defines a session and refreshes it, `session_store` keeps sessions in a
//! store, and `settings` reads the config.

mod login;
mod provider;
mod seal;
mod session;
mod session_store;
mod settings;

use super::jwt::claims::{as_text, claim};
use super::key_auth::CONSUMER_ADDRESS;
use super::prelude::*;
use super::shared::claimed::{self, Claimed};
use super::shared::named::CONSUMERS_UNAVAILABLE;
use provider::{Asking, Failed, Provider};
use seal::{PARTS, Seal, parts};
use session::{Outcome, Session, judge};
use session_store::{SessionStore, Ticket};
use settings::OidcSettings;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::SystemTime;
use weir_filter::cookies;
use weir_filter::store::Away;
use weir_h1::{FieldName, Method};
use weir_wire::base64;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<OidcSettings>("oidc")
    .with_causes(&[
        &CONSUMER_ADDRESS,
        &CONSUMERS_UNAVAILABLE,
        &LOGIN_CONSUMER,
        &LOGIN_FAILED,
        &LOGIN_LOST,
        &LOGIN_NEEDED,
        &LOGIN_UNAVAILABLE,
        &SESSIONS_UNAVAILABLE,
    ])
    .with_index::<claimed::Values>();

causes! {
    LOGIN_CONSUMER "login_consumer" 403
        "The user is logged in, but matches no consumer." "consumers.*.oidc, and `consumer` of the filter oidc"
    LOGIN_FAILED "login_failed" 403
        "The identity provider did not log the user in." "the provider's log says why"
    LOGIN_LOST "login_lost" 400
        "The login was started in another browser or too long ago, or is already finished." "the user must log in again, with cookies allowed"
    LOGIN_NEEDED "login_needed" 401
        "The user is not logged in." "the user must open the page in a browser", no_credentials: true
    LOGIN_UNAVAILABLE "login_unavailable" 503
        "The identity provider did not answer." "`issuer` of the filter oidc; the log says why"
    SESSIONS_UNAVAILABLE "sessions_unavailable" 503
        "The session store did not answer." "stores.*, and `store` of the filter oidc"
}

/// How long a login may take, in seconds.
const LOGIN_SECONDS: u64 = 600;

/// Most pending logins of a browser; one more drops the oldest.
const LOGINS: usize = 5;

/// The largest file of authorities, in bytes.
const CA_BYTES: usize = 256 * 1024;

struct Oidc {
    settings: OidcSettings,
    provider: Arc<Provider>,
    seal: Arc<Seal>,
    session_store: Option<SessionStore>,
    session_cookie: String,
    login_cookie: String,
    headers: Vec<(FieldName, String)>,
    consumers: Claimed,
    names: Names,
}

struct Names {
    authorization: FieldName,
    cache_control: FieldName,
    location: FieldName,
    set_cookie: FieldName,
}

/// Cookies that the response of this exchange must set.
#[derive(Default)]
struct Renewed(Vec<Vec<u8>>);

/// What a request asks for.
enum Asks {
    Callback,
    Logout,
    Page(SessionCookie),
}

/// The session cookies of a browser.
enum SessionCookie {
    Nothing,
    Session(Session),
    /// A ticket for a session in the store.
    Ticket(Ticket),
}

impl IntoFilter for OidcSettings {
    type Filter = Oidc;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Oidc> {
        let before = build.mistakes.len();
        self.check(build);
        let headers = self.fields(build);
        let consumers = self.consumers(build);
        let (mut trust, mut trusted) = (Trust::default(), String::new());
        if let Some(ca) = &self.ca {
            match build.read_file(ca, CA_BYTES).and_then(|pem| Ok((Trust::file(&ca.0)?, pem))) {
                Ok((read, pem)) => (trust, trusted) = (read, base64::encode_url(&Sha256::digest(&pem))),
                Err(why) => build.refuse("ca", why, None),
            }
        }
        let store = self.store.as_ref().and_then(|name| build.store("store", name));
        if build.mistakes.len() > before {
            return None;
        }
        let issuer = self.issuer.clone();
        let asking = Asking {
            issuer: issuer.clone(),
            trust,
            insecure: self.insecure,
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.clone(),
            redirect: self.redirect.to_string(),
        };
        let secret = base64::encode_url(&Sha256::digest(self.client_secret.as_bytes()));
        let key = [&issuer, &self.client_id, &secret, &asking.redirect, &trusted, &self.insecure.to_string()];
        let key = key.map(String::as_str).join(" ");
        let purpose = format!("{issuer} {} {}", self.client_id, self.cookie);
        let seal = Arc::new(Seal::new(&self.client_secret, &purpose));
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Some(Oidc {
            provider: build.keep_tended(&key, || Provider::new(asking)),
            session_store: store.map(|store| SessionStore::new(store, Arc::clone(&seal), &purpose)),
            seal,
            session_cookie: format!("__Host-{}", self.cookie),
            login_cookie: format!("__Host-{}-login-", self.cookie),
            headers,
            consumers,
            names: Names {
                authorization: name("authorization"),
                cache_control: name("cache-control"),
                location: name("location"),
                set_cookie: name("set-cookie"),
            },
            settings: self,
        })
    }
}

// === impl Oidc ===

impl Filter for Oidc {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE
    }

    fn conceals(&self) -> Conceals {
        // Anyone who uses the code before the browser does could make a session of it.
        Conceals { callbacks: vec![self.settings.redirect.target().to_owned()], ..Conceals::default() }
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards {
            request: self.headers.iter().map(|(name, _)| name.clone()).collect(),
            response: Vec::new(),
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let now = now();
        match self.asks(head) {
            Asks::Callback | Asks::Logout => Flow::Wait,
            Asks::Page(SessionCookie::Session(session)) if session.is_fresh(now) => {
                self.pass(&session, head, cx)
            }
            Asks::Page(SessionCookie::Session(session)) if session.is_alive(now) => Flow::Wait,
            Asks::Page(SessionCookie::Ticket(_)) => Flow::Wait,
            Asks::Page(_) if self.settings.optional => self.pass_unnamed(head, cx),
            Asks::Page(_) if is_navigation(head) => Flow::Wait,
            Asks::Page(_) => Flow::refuse(&LOGIN_NEEDED),
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            match self.asks(head) {
                Asks::Callback => self.finish(head).await,
                Asks::Logout => self.log_out(head).await,
                Asks::Page(brings) => match self.session(brings, head, cx).await {
                    Ok(Some(session)) => self.pass(&session, head, cx),
                    Ok(None) => self.begin_or_refuse(head, cx).await,
                    Err(cause) => Flow::refuse(cause),
                },
            }
        })
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        for cookie in std::mem::take(&mut cx.state::<Renewed>().0) {
            if head.headers.append(&self.names.set_cookie, &cookie).is_err() {
                return Flow::refuse(&LOGIN_UNAVAILABLE);
            }
        }
        Flow::Continue
    }
}

impl Oidc {
    fn asks(&self, head: &RequestHead) -> Asks {
        let path = head.routed_path();
        if path == self.settings.redirect.target().as_bytes() {
            return Asks::Callback;
        }
        if self.settings.logout.as_ref().is_some_and(|logout| path == logout.as_bytes()) {
            return Asks::Logout;
        }
        Asks::Page(self.brings(head))
    }

    fn brings(&self, head: &RequestHead) -> SessionCookie {
        let Some(sealed) = parts(head, &self.session_cookie) else { return SessionCookie::Nothing };
        match &self.session_store {
            None => {
                let session = self.seal.open("session", &sealed);
                session
                    .map_or(SessionCookie::Nothing, |session| SessionCookie::Session(self.limited(session)))
            }
            Some(_) => {
                self.seal.open("ticket", &sealed).map_or(SessionCookie::Nothing, SessionCookie::Ticket)
            }
        }
    }

    /// Applies the current lifetime limit: a shorter `session` applies to existing sessions too.
    fn limited(&self, session: Session) -> Session {
        session.within(self.settings.session.get().as_secs())
    }

    /// The browser's session, refreshed if necessary; `None` if there is none.
    async fn session(
        &self,
        brings: SessionCookie,
        head: &RequestHead,
        cx: &mut Cx,
    ) -> Result<Option<Session>, &'static Cause> {
        let session = match (brings, &self.session_store) {
            (SessionCookie::Session(session), _) => Some(session),
            (SessionCookie::Ticket(ticket), Some(kept)) => {
                let session = kept.load(&ticket).await.map_err(|Away| &SESSIONS_UNAVAILABLE)?;
                session.map(|session| self.limited(session))
            }
            (SessionCookie::Nothing | SessionCookie::Ticket(_), _) => None,
        };
        match session {
            Some(session) if session.is_fresh(now()) => Ok(Some(session)),
            Some(session) if session.is_alive(now()) => self.renew(session, head, cx).await,
            _ => Ok(None),
        }
    }

    // === the logged-in user ===

    fn pass_unnamed(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        cx.pass_unnamed();
        for (name, _) in &self.headers {
            head.headers.remove(name);
        }
        self.hide(head);
        Flow::Continue
    }

    fn pass(&self, session: &Session, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if let Some(name) = &self.settings.consumer {
            let value = claim(&session.claims, name).and_then(serde_json::Value::as_str);
            let Some(value) = value else { return Flow::refuse(&LOGIN_CONSUMER) };
            match self.consumers.find(value) {
                Ok(named) => named.name(cx),
                Err(nobody) => return Flow::refuse(nobody.cause(&LOGIN_CONSUMER)),
            }
            let client = cx.client.to_canonical();
            let allowed = cx.consumer().map_or(&[][..], |consumer| &consumer.allow_ips);
            if !allowed.is_empty() && !allowed.iter().any(|net| net.contains(&client)) {
                return Flow::refuse(&CONSUMER_ADDRESS);
            }
        }
        if self.settings.consumer.is_none() || !self.headers.is_empty() || self.settings.forward_token {
            self.identify(session, cx);
        }
        for (name, claimed) in &self.headers {
            head.headers.remove(name);
            if let Some(value) = claim(&session.claims, claimed).and_then(as_text)
                && head.headers.append(name, value.as_bytes()).is_err()
            {
                return Flow::refuse(&LOGIN_FAILED);
            }
        }
        if self.settings.forward_token {
            head.headers.remove(&self.names.authorization);
            if let Some(token) = &session.access
                && head
                    .headers
                    .append(&self.names.authorization, format!("Bearer {token}").as_bytes())
                    .is_err()
            {
                return Flow::refuse(&LOGIN_FAILED);
            }
        }
        self.hide(head);
        Flow::Continue
    }

    /// Identifies the caller by the provider's subject (OpenID Connect Core §2) and by the values that the upstream
    /// gets.
    fn identify(&self, session: &Session, cx: &mut Cx) {
        let mut who = Vec::new();
        let names = ["iss", "sub"].into_iter().chain(self.headers.iter().map(|(_, claimed)| &**claimed));
        for name in names {
            let value = claim(&session.claims, name).and_then(as_text).unwrap_or_default();
            who.extend_from_slice(&value.len().to_le_bytes()); // different lists of values give different bytes
            who.extend_from_slice(value.as_bytes());
        }
        cx.identify("oidc", &who);
    }

    /// Removes the cookies of sessions and logins, which upstreams must not see.
    fn hide(&self, head: &mut RequestHead) {
        let is_own = |name: &[u8]| {
            let part =
                name.strip_prefix(self.session_cookie.as_bytes()).and_then(|rest| rest.strip_prefix(b"-"));
            name.starts_with(self.login_cookie.as_bytes())
                || part.is_some_and(|digit| (0..PARTS).any(|at| at.to_string().as_bytes() == digit))
        };
        cookies::remove(head, is_own);
    }
}

/// Exchanges the refresh token of a session; `None` if the provider has ended it.
async fn refreshed(provider: Arc<Provider>, session: Session, now: u64, forward_token: bool) -> Outcome {
    let Some(token) = &session.refresh else { return Ok(None) };
    let tokens = match provider.refresh(token).await {
        Ok(tokens) => tokens,
        Err(Failed::Refused) => return Ok(None),
        Err(Failed::Malformed | Failed::Unavailable) => return Err(()),
    };
    let asking = &provider.asking;
    // Core §12.2: the same issuer, audience and subject; a nonce is not needed.
    let fits =
        |claims: &_| judge(claims, &asking.issuer, &asking.client_id, None, now) && session.is_of(claims);
    if !tokens.id.as_ref().is_none_or(fits) {
        return Ok(None);
    }
    Ok(Some(session.renewed(&tokens, now, forward_token)))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a browser is opening a page. Background requests and other clients get a 401.
fn is_navigation(head: &RequestHead) -> bool {
    let field = |name| head.headers.get_str(name).unwrap_or_default();
    let asks_for_page = match field("sec-fetch-mode") {
        b"" => {
            field("accept").split(|&b| b == b',').any(|media| media.trim_ascii().starts_with(b"text/html"))
        }
        mode => mode == b"navigate",
    };
    asks_for_page
        && matches!(head.method(), Method::Get | Method::Head)
        && field("x-requested-with").is_empty()
}

#[cfg(test)]
mod tests;
