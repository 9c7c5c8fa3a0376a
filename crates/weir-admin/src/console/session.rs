//! Browser sessions, kept in memory only.
//!
//! A session stands for the token that started it, and has the rights that this token has now. If the config
//! drops the token, the session is void. Only the digest of the session id is kept.

use crate::guard::Session;
use aws_lc_rs::{constant_time, digest, rand};
use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderValue};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_wire::hex;

/// Most concurrent sessions. A further one replaces the least recently used.
const MOST: usize = 64;

/// Idle timeout of a session. An open live page counts as use.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Longest lifetime of a session.
pub(crate) const AGE: Duration = Duration::from_secs(12 * 60 * 60);

/// The cookie with the id.
pub(crate) const COOKIE: &str = "weir_session";

/// The header that state-changing requests must carry, with the value from the page.
pub(crate) const CSRF: &str = "x-weir-csrf";

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Vec<Kept>>);

struct Kept {
    /// SHA-256 of the id.
    id: Vec<u8>,
    /// SHA-256 of the token, in hex.
    token: String,
    csrf: String,
    /// The only address that may use it: the one that started it.
    from: IpAddr,
    began: Instant,
    used: Instant,
}

impl Sessions {
    /// Starts a session for a valid token; returns the id for the cookie.
    pub(crate) fn begin(&self, token: &[u8], from: IpAddr, now: Instant) -> Option<String> {
        let (id, csrf) = (random()?, random()?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|kept| kept.lasts(now));
        if all.len() >= MOST
            && let Some(oldest) = (0..all.len()).min_by_key(|at| all.get(*at).map(|kept| kept.used))
        {
            all.swap_remove(oldest);
        }
        let token = hex::encode(digest::digest(&digest::SHA256, token).as_ref());
        all.push(Kept { id: hashed(&id), token, csrf, from, began: now, used: now });
        Some(id)
    }

    /// The session of a request, if it has one.
    pub(crate) fn find(
        &self,
        method: &Method,
        headers: &HeaderMap,
        from: IpAddr,
        now: Instant,
    ) -> Option<Session> {
        let id = hashed(cookie(headers, COOKIE)?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |kept: &&mut Kept| kept.id == id && kept.from == from && kept.lasts(now);
        let kept = all.iter_mut().find(is)?;
        kept.used = now;
        let sent = headers.get(CSRF).map_or(&b""[..], HeaderValue::as_bytes);
        let safe = matches!(*method, Method::GET | Method::HEAD);
        let proven = safe || constant_time::verify_slices_are_equal(sent, kept.csrf.as_bytes()).is_ok();
        Some(Session { token: kept.token.clone(), csrf: kept.csrf.clone(), proven })
    }

    /// Ends the session of a request.
    pub(crate) fn end(&self, headers: &HeaderMap) {
        let Some(id) = cookie(headers, COOKIE).map(hashed) else { return };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|kept| kept.id != id);
    }
}

impl Kept {
    fn lasts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) < IDLE && now.saturating_duration_since(self.began) < AGE
    }
}

/// The value of a cookie (RFC 6265 §5.4); the first one if several have this name.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let fields = headers.get_all(header::COOKIE).iter().filter_map(|field| field.to_str().ok());
    let mut pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

fn random() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(hex::encode(&bytes))
}

fn hashed(id: impl AsRef<[u8]>) -> Vec<u8> {
    digest::digest(&digest::SHA256, id.as_ref()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn sent(id: &str) -> HeaderMap {
        headers(&[("cookie", &format!("a=b; {COOKIE}={id}"))])
    }

    #[test]
    fn a_session_is_found_by_its_cookie_from_where_it_was_begun() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let id = sessions.begin(b"secret", HERE, now).unwrap();
        assert_eq!(id.len(), 64);
        let find = |id: &str, from| sessions.find(&Method::GET, &sent(id), from, now);
        let found = find(&id, HERE).unwrap();
        assert_eq!(found.token, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b");
        assert!(found.proven);
        assert!(find(&id, THERE).is_none() && find("x", HERE).is_none() && find("", HERE).is_none());
        assert!(sessions.find(&Method::GET, &HeaderMap::new(), HERE, now).is_none());
        sessions.end(&sent(&id));
        assert!(find(&id, HERE).is_none());
    }

    #[test]
    fn what_changes_something_carries_the_value_of_the_page() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let id = sessions.begin(b"secret", HERE, now).unwrap();
        let csrf = sessions.find(&Method::GET, &sent(&id), HERE, now).unwrap().csrf;
        for (method, value, proven) in [
            (Method::GET, "", true),
            (Method::HEAD, "", true),
            (Method::POST, "", false),
            (Method::POST, "x", false),
            (Method::POST, &*csrf, true),
            (Method::PUT, &*csrf, true),
            (Method::OPTIONS, "", false),
        ] {
            let headers = headers(&[("cookie", &format!("{COOKIE}={id}")), (CSRF, value)]);
            assert_eq!(
                sessions.find(&method, &headers, HERE, now).unwrap().proven,
                proven,
                "{method} {value}"
            );
        }
    }

    #[test]
    fn sessions_end_and_are_bounded() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let id = sessions.begin(b"secret", HERE, start).unwrap();
        let at = |now| sessions.find(&Method::GET, &sent(&id), HERE, now).is_some();
        let mut now = start;
        while now + IDLE / 2 < start + AGE {
            now += IDLE / 2;
            assert!(at(now), "it is used");
        }
        assert!(!at(start + AGE), "it is too old");
        let idle = sessions.begin(b"secret", HERE, start).unwrap();
        assert!(sessions.find(&Method::GET, &sent(&idle), HERE, start + IDLE).is_none());
        let first = sessions.begin(b"secret", HERE, start).unwrap();
        for n in 1..=MOST as u32 {
            sessions.begin(b"secret", HERE, start + Duration::from_millis(n.into())).unwrap();
        }
        assert_eq!(sessions.0.lock().unwrap().len(), MOST);
        assert!(sessions.find(&Method::GET, &sent(&first), HERE, start).is_none());
    }
}
