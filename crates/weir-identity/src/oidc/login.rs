//! Login and logout: the redirect to the provider, the way back from it, and the cookies in between.

use super::super::prelude::*;
use super::provider::{Failed, encode_form};
use super::seal::{end_parts, random, set, set_parts};
use super::session::{Login, Session, judge};
use super::session_store::Ticket;
use super::{
    LOGIN_FAILED, LOGIN_LOST, LOGIN_NEEDED, LOGIN_SECONDS, LOGIN_UNAVAILABLE, LOGINS, Oidc, Renewed,
    SESSIONS_UNAVAILABLE, SessionCookie, is_navigation, now, refreshed,
};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use weir_filter::store::Away;
use weir_filter::{cookies, query};
use weir_h1::{FieldName, Method};
use weir_wire::base64;

/// The requested page on this origin: path and query only, which cannot lead elsewhere.
fn back_to(head: &RequestHead) -> String {
    let path = String::from_utf8_lossy(head.routed_path());
    // Browsers read `//host` and `/\host` as other hosts.
    if !path.starts_with('/') || path.starts_with("//") || path.starts_with("/\\") || path.len() > 1024 {
        return "/".to_owned();
    }
    match head.query() {
        Some(query) if query.len() <= 1024 => format!("{path}?{}", String::from_utf8_lossy(query)),
        _ => path.into_owned(),
    }
}

impl Oidc {
    pub(super) async fn begin_or_refuse(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if self.settings.optional {
            return self.pass_unnamed(head, cx);
        }
        if is_navigation(head) { self.begin(head).await } else { Flow::refuse(&LOGIN_NEEDED) }
    }

    /// Redirects a browser to the provider, and stores in a cookie what the provider's answer must match.
    async fn begin(&self, head: &RequestHead) -> Flow {
        let Some(known) = self.provider.known().await else { return Flow::refuse(&LOGIN_UNAVAILABLE) };
        let (Some(state), Some(nonce), Some(verifier)) = (random::<16>(), random::<16>(), random::<32>())
        else {
            return Flow::refuse(&LOGIN_UNAVAILABLE);
        };
        let challenge = base64::encode_url(&Sha256::digest(verifier.as_bytes()));
        let settings = &self.settings;
        let scope = settings.scopes.join(" ");
        let prompt = settings.prompt();
        let mut asked = encode_form(&[
            ("response_type", "code"),
            ("client_id", &settings.client_id),
            ("redirect_uri", &self.provider.asking.redirect),
            ("scope", &scope),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        if !prompt.is_empty() {
            asked.push_str(&format!("&{}", encode_form(&[("prompt", &prompt)])));
        }
        let login =
            Login { nonce, verifier, back: back_to(head), until: now().saturating_add(LOGIN_SECONDS) };
        let Some(sealed) = self.seal.seal(&format!("login {state}"), &login) else {
            return Flow::refuse(&LOGIN_UNAVAILABLE);
        };
        let mut cookies = vec![set(&format!("{}{state}", self.login_cookie), &sealed, LOGIN_SECONDS)];
        cookies.extend(self.surplus(head).iter().map(|name| set(name, "", 0)));
        let separator = if known.authorization.contains('?') { '&' } else { '?' };
        self.redirect(&format!("{}{separator}{asked}", known.authorization), cookies)
    }

    /// The browser has returned: exchanges the code and makes the session.
    pub(super) async fn finish(&self, head: &RequestHead) -> Flow {
        let parameter = |name: &str| {
            let mut values = query::values(head.query().unwrap_or_default(), name);
            let value = values.next().and_then(|value| String::from_utf8(value.into_owned()).ok());
            if values.next().is_some() { None } else { value }
        };
        let state = parameter("state")
            .filter(|state| state.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
        let Some(state) = state.filter(|_| head.method() == Method::Get) else {
            return Flow::refuse(&LOGIN_LOST);
        };
        let name = format!("{}{state}", self.login_cookie);
        let sealed = cookies::values(head, &name).next();
        let login: Option<Login> =
            sealed.and_then(|sealed| self.seal.open(&format!("login {state}"), sealed));
        let now = now();
        let Some(login) = login.filter(|login| now < login.until) else {
            // A browser that is already logged in has returned to the provider's answer with the back button or a
            // reload. That login is over.
            return match self.is_logged_in(head, now).await {
                Ok(true) => self.redirect(&format!("{}/", self.settings.redirect.origin()), Vec::new()),
                Ok(false) => Flow::refuse(&LOGIN_LOST),
                Err(cause) => Flow::refuse(cause),
            };
        };
        let Some(known) = self.provider.known().await else { return Flow::refuse(&LOGIN_UNAVAILABLE) };
        // RFC 9207 §2.4: an answer of another provider must not be taken for an answer of this one.
        let issuer = parameter("iss");
        let right =
            issuer.as_deref().map_or(!known.names_itself, |issuer| issuer == self.provider.asking.issuer);
        let Some(code) = parameter("code").filter(|_| right) else { return Flow::refuse(&LOGIN_FAILED) };
        let tokens = match self.provider.exchange(&code, &login.verifier).await {
            Ok(tokens) => tokens,
            Err(Failed::Malformed | Failed::Refused) => return Flow::refuse(&LOGIN_FAILED),
            Err(Failed::Unavailable) => return Flow::refuse(&LOGIN_UNAVAILABLE),
        };
        let asking = &self.provider.asking;
        let claims = tokens
            .id
            .as_ref()
            .filter(|claims| judge(claims, &asking.issuer, &asking.client_id, Some(&login.nonce), now));
        let Some(claims) = claims.cloned() else { return Flow::refuse(&LOGIN_FAILED) };
        let Some(id) = random::<16>() else { return Flow::refuse(&LOGIN_UNAVAILABLE) };
        let session = Session::new(
            id,
            claims,
            &tokens,
            now,
            self.settings.session.get().as_secs(),
            self.settings.forward_token,
        );
        if let Some(kept) = &self.session_store
            && kept.save(&session, now).await.is_err()
        {
            return Flow::refuse(&SESSIONS_UNAVAILABLE);
        }
        let Some(mut cookies) = self.cookies_of(&session, head, now) else {
            return Flow::refuse(&LOGIN_FAILED);
        };
        cookies.push(set(&name, "", 0));
        self.redirect(&format!("{}{}", self.settings.redirect.origin(), login.back), cookies)
    }

    /// Whether the browser has a session that has not expired.
    async fn is_logged_in(&self, head: &RequestHead, now: u64) -> Result<bool, &'static Cause> {
        let session = match (self.brings(head), &self.session_store) {
            (SessionCookie::Session(session), _) => Some(session),
            (SessionCookie::Ticket(ticket), Some(kept)) => {
                kept.load(&ticket).await.map_err(|Away| &SESSIONS_UNAVAILABLE)?
            }
            (SessionCookie::Nothing | SessionCookie::Ticket(_), _) => None,
        };
        Ok(session.is_some_and(|session| session.is_alive(now)))
    }

    /// Ends the session here, and at the provider.
    pub(super) async fn log_out(&self, head: &RequestHead) -> Flow {
        if let (SessionCookie::Ticket(ticket), Some(kept)) = (self.brings(head), &self.session_store)
            && kept.end(&ticket).await.is_err()
        {
            return Flow::refuse(&SESSIONS_UNAVAILABLE); // the user must not believe that the session is over
        }
        let settings = &self.settings;
        let after = settings
            .after_logout
            .as_ref()
            .map_or_else(|| format!("{}/", settings.redirect.origin()), Url::to_string);
        let known = self.provider.known().await;
        let to = match known.as_ref().and_then(|known| known.end_session.as_ref()) {
            Some(end) => {
                let separator = if end.contains('?') { '&' } else { '?' };
                let form: [(&str, &str); 2] =
                    [("client_id", &settings.client_id), ("post_logout_redirect_uri", &after)];
                format!("{end}{separator}{}", encode_form(&form))
            }
            None => after,
        };
        self.redirect(&to, end_parts(&self.session_cookie, 0, head))
    }

    /// Refreshes the session; `None` if the provider has ended it.
    pub(super) async fn renew(
        &self,
        session: Session,
        head: &RequestHead,
        cx: &mut Cx,
    ) -> Result<Option<Session>, &'static Cause> {
        let now = now();
        let (provider, forward) = (Arc::clone(&self.provider), self.settings.forward_token);
        let refresh = refreshed(provider, session.clone(), now, forward);
        let (kept, refreshes, id) =
            (self.session_store.clone(), &self.provider.refreshes, session.tokens_id());
        let renewed = match kept {
            Some(kept) => {
                refreshes.once(&id, now, cx.core(), kept.refresh(session.clone(), now, refresh)).await
            }
            None => refreshes.once(&id, now, cx.core(), refresh).await,
        };
        match renewed {
            Ok(Some(fresh)) => {
                if self.session_store.is_none() {
                    cx.state::<Renewed>().0 = self.cookies_of(&fresh, head, now).ok_or(&LOGIN_FAILED)?;
                }
                Ok(Some(fresh))
            }
            Ok(None) => Ok(None),
            // While the provider is down, sessions get a grace period.
            Err(()) if session.is_in_grace(now) => Ok(Some(session)),
            Err(()) => Err(&LOGIN_UNAVAILABLE),
        }
    }

    fn cookies_of(&self, session: &Session, head: &RequestHead, now: u64) -> Option<Vec<Vec<u8>>> {
        let sealed = match &self.session_store {
            Some(_) => self.seal.seal("ticket", &Ticket::of(session)),
            None => self.seal.seal("session", session),
        }?;
        set_parts(&self.session_cookie, &sealed, session.until.saturating_sub(now), head)
    }

    /// The names of the cookies that must go before another login begins: first the invalid ones, then the oldest.
    fn surplus(&self, head: &RequestHead) -> Vec<String> {
        let mut logins = self.logins(head);
        let until = |name: &String| {
            let state = name.strip_prefix(&self.login_cookie)?;
            let sealed = cookies::values(head, name).next()?;
            let login: Login = self.seal.open(&format!("login {state}"), sealed)?;
            Some(login.until)
        };
        logins.sort_by_cached_key(until); // `None` comes first
        let keep = LOGINS.saturating_sub(1).min(logins.len());
        logins.truncate(logins.len() - keep);
        logins
    }

    /// The names of the cookies of pending logins.
    fn logins(&self, head: &RequestHead) -> Vec<String> {
        let pairs = head.headers.get_all("cookie").flat_map(|field| field.split(|&b| b == b';'));
        let names = pairs.filter_map(|pair| std::str::from_utf8(pair.split(|&b| b == b'=').next()?).ok());
        let own = names.map(str::trim).filter(|name| name.starts_with(&self.login_cookie));
        own.filter(|name| FieldName::new(name).is_ok()).map(str::to_owned).collect()
    }

    pub(super) fn redirect(&self, to: &str, cookies: Vec<Vec<u8>>) -> Flow {
        let names = &self.names;
        let mut headers = vec![
            (names.location.clone(), to.as_bytes().to_vec()),
            (names.cache_control.clone(), b"no-store".to_vec()),
        ];
        headers.extend(cookies.into_iter().map(|cookie| (names.set_cookie.clone(), cookie)));
        Flow::Answer(Box::new(Answer { status: 302, headers, body: Body::default() }))
    }
}
