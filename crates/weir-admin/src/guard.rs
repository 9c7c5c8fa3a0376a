//! Access control of the admin listener, as a pure function: a request head and its origin go in, a decision
//! comes out.
//!
//! It defends against two kinds of strangers. `admin.token` keeps out those on the network; without a token, only
//! this machine may ask. The others borrow a browser that *is* on this machine. A page of another site can send
//! requests here, which the browser reveals in `Origin` and `Sec-Fetch-Site`. Or it lets its own name point here,
//! so that the browser takes us for the page's own server (DNS rebinding), which only `Host` reveals. A browser
//! cannot forge any of the three.

use aws_lc_rs::{constant_time, digest};
use hyper::header::{self, HeaderMap};
use hyper::{Uri, Version};
use std::net::{IpAddr, Ipv6Addr};
use weir_gateway::config::schema::{AdminToken, Role};
use weir_wire::tls::PeerCertificate;
use weir_wire::{Peer, hex};

/// Who may use an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Callers with at least this role, and only if `Host` is an address or one of our names.
    Needs(Role),
    /// Everyone, under any name; the endpoint reveals nothing worth stealing.
    Open,
    /// Everyone without a wrong token, if `Host` is an address. Scrapers on other machines may also use a name.
    Scrapers,
    /// Everyone, if `Host` is an address: the sign-in page.
    Visitors,
}

/// The caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) peer: Peer,
    /// The user id of a process that connected over a Unix socket.
    pub(crate) uid: Option<u32>,
    /// The client's certificate, if the TLS handshake verified it.
    pub(crate) certificate: Option<&'a PeerCertificate>,
    pub(crate) version: Version,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// The session of a browser that has signed in.
    pub(crate) session: Option<&'a Session>,
}

/// The session, which replaces the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// SHA-256 of the token that started it, in hex.
    pub(crate) token: String,
    /// The token that state-changing requests must carry.
    pub(crate) csrf: String,
    /// Whether this request carries it, or changes nothing.
    pub(crate) proven: bool,
}

/// How callers are identified: `admin.token`, `admin.tokens` and `admin.hosts`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    pub(crate) token: Option<&'a str>,
    pub(crate) tokens: &'a [AdminToken],
    pub(crate) hosts: &'a [String],
}

impl Keys<'_> {
    /// Whether any caller is configured.
    const fn any(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty()
    }
}

/// An identified caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Their name in the history and the log.
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Identity {
    /// Whether they may change the managed config, and therefore see it unredacted.
    pub(crate) fn writes(&self) -> bool {
        self.role >= Role::Write
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No Host, two of them, or an invalid one (RFC 9112 §3.2).
    BadHost,
    /// Sent by a page of another site.
    ForeignOrigin,
    /// Sent to a name that is not ours.
    ForeignHost,
    /// A change requested by a signed-in browser, but not from one of our pages.
    Forged,
    /// Sent from another machine, while no token is configured.
    NotLocal,
    /// The caller is known but lacks this role.
    Role(Role),
    /// A token is configured, and the request has none.
    TokenMissing,
    /// A token is configured, and the request has a different one.
    TokenWrong,
}

impl Denied {
    /// Its name in the log.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BadHost => "bad_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::ForeignHost => "foreign_host",
            Self::Forged => "forged",
            Self::NotLocal => "not_local",
            Self::Role(_) => "role",
            Self::TokenMissing => "token_missing",
            Self::TokenWrong => "token_wrong",
        }
    }
}

/// A browser sends at least one of these fields with every request, and a scraper none.
///
/// `Sec-Fetch-*` alone is not enough: browsers omit it for plain-http names, and a rebound name is one.
/// `Accept-Language` is always sent: a script can change its value, but cannot remove it (Fetch §4).
const SENT_BY_BROWSERS: &[&str] =
    &["accept-language", "cookie", "origin", "referer", SEC_FETCH_SITE, "sec-fetch-mode", "sec-fetch-dest"];

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Decides whether to let the request in.
///
/// # Errors
/// The first reason to refuse. Mistakes of the request itself come before the token, so that a page of another
/// site learns nothing about tokens.
pub(crate) fn check(access: Access, caller: Caller<'_>, keys: Keys<'_>) -> Result<Option<Identity>, Denied> {
    let host = host(caller)?;
    check_origin(caller.headers, host)?;
    if host.is_some_and(|host| !is_ours(host, keys.hosts)) && !may_name(access, caller) {
        return Err(Denied::ForeignHost);
    }
    let Access::Needs(role) = access else {
        // Metrics need no token, but a scraper with an outdated one should learn about it.
        let sent = sent_token(caller.headers).filter(|_| access == Access::Scrapers && keys.any());
        let is_wrong = sent.is_some_and(|sent| of_token(sent, keys).is_none());
        return if is_wrong { Err(Denied::TokenWrong) } else { Ok(None) };
    };
    let who = who(caller, keys)?;
    if who.role < role { Err(Denied::Role(role)) } else { Ok(Some(who)) }
}

/// Identifies the caller. If no caller is configured, this machine may do everything.
fn who(caller: Caller<'_>, keys: Keys<'_>) -> Result<Identity, Denied> {
    if !keys.any() {
        let name = caller.uid.map_or_else(|| "local".to_owned(), |uid| format!("uid {uid}"));
        return if is_local(caller.peer) {
            Ok(Identity { name, role: Role::Admin })
        } else {
            Err(Denied::NotLocal)
        };
    }
    let by_uid = || keys.tokens.iter().find(|entry| entry.uid.is_some() && entry.uid == caller.uid);
    let by_certificate = || {
        let is = |entry: &&AdminToken| {
            entry.certificate.as_deref().zip(caller.certificate).is_some_and(|(told, shown)| shown.is(told))
        };
        keys.tokens.iter().find(is)
    };
    match sent_token(caller.headers) {
        Some(sent) => of_token(sent, keys).ok_or(Denied::TokenWrong),
        None => match caller.session.and_then(|session| Some((session, of_hash(&session.token, keys)?))) {
            Some((session, _)) if !session.proven => Err(Denied::Forged),
            Some((_, who)) => Ok(who),
            None => by_uid().or_else(by_certificate).map(known).ok_or(Denied::TokenMissing),
        },
    }
}

/// Whether the token is known.
pub(crate) fn knows(token: &[u8], keys: Keys<'_>) -> bool {
    !token.is_empty() && of_token(token, keys).is_some()
}

fn known(entry: &AdminToken) -> Identity {
    Identity { name: entry.name.clone(), role: entry.role }
}

/// Finds the owner of a token.
fn of_token(sent: &[u8], keys: Keys<'_>) -> Option<Identity> {
    of_hash(&hashed(sent), keys)
}

fn hashed(token: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, token).as_ref())
}

/// Finds the owner of the token with this SHA-256, with constant-time comparisons.
fn of_hash(hash: &str, keys: Keys<'_>) -> Option<Identity> {
    let same =
        |known: &str| constant_time::verify_slices_are_equal(known.as_bytes(), hash.as_bytes()).is_ok();
    // A config may contain the hash instead of the token.
    let of_text = |token: &str| match token.strip_prefix("sha256:") {
        Some(hash) => hash.to_ascii_lowercase(),
        None => hashed(token.as_bytes()),
    };
    if keys.token.is_some_and(|token| same(&of_text(token))) {
        return Some(Identity { name: "token".to_owned(), role: Role::Admin });
    }
    let is = |entry: &AdminToken| entry.hash().is_some_and(|known| same(&known.to_ascii_lowercase()));
    // Compares all entries, even after a match.
    let mut found = None;
    for entry in keys.tokens {
        if is(entry) && found.is_none() {
            found = Some(known(entry));
        }
    }
    found
}

/// The requested host with its port; for a target in absolute form, the target's host, as RFC 9112 §3.2.2
/// requires. `None` only for HTTP/1.0, which allows it: old health checkers send no Host, and browsers always do.
fn host(caller: Caller<'_>) -> Result<Option<&str>, Denied> {
    let mut fields = caller.headers.get_all(header::HOST).iter();
    let field = match (fields.next(), fields.next()) {
        (Some(field), None) => Some(field.to_str().map_err(|_| Denied::BadHost)?),
        (None, None) if caller.version < Version::HTTP_11 => None,
        _ => return Err(Denied::BadHost),
    };
    let asked = caller.uri.authority().map(|authority| authority.as_str()).or(field);
    if asked.is_some_and(|asked| split_port(asked).is_none()) {
        return Err(Denied::BadHost);
    }
    Ok(asked)
}

/// The host of `name:port`, with any brackets; `None` if it is not a host.
fn split_port(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let port_is_one = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.is_empty() || digits.parse::<u16>().is_ok());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:[]".contains(c);
    (!name.is_empty() && name.chars().all(plain) && port_is_one).then_some(name)
}

/// Whether a host is an address, `localhost`, or one of our names. No foreign DNS server can make any of these
/// point here.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let Some(name) = split_port(host) else { return false };
    if hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
        return true;
    }
    match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost"),
    }
}

/// Whether this endpoint accepts any name.
///
/// A scraper on another machine knows a Weir by its service name. A scraper on this machine needs no name, and a
/// browser on this machine is the first target of a rebound name.
fn may_name(access: Access, caller: Caller<'_>) -> bool {
    match access {
        Access::Needs(_) | Access::Visitors => false,
        Access::Open => true,
        Access::Scrapers => {
            let browser = SENT_BY_BROWSERS.iter().any(|name| caller.headers.contains_key(*name));
            !browser && !is_local(caller.peer)
        }
    }
}

fn check_origin(headers: &HeaderMap, host: Option<&str>) -> Result<(), Denied> {
    let ours = |origin: &[u8]| {
        let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        authority.zip(host).is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host.as_bytes()))
    };
    let same_origin = headers.get_all(header::ORIGIN).iter().all(|origin| ours(origin.as_bytes()));
    // `none` means typed in, or from a bookmark.
    let same_site = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    let not_sent_elsewhere = headers.get_all(SEC_FETCH_SITE).iter().all(|site| same_site(site.as_bytes()));
    if same_origin && not_sent_elsewhere { Ok(()) } else { Err(Denied::ForeignOrigin) }
}

/// The token in `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
fn sent_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, sent) = field.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| sent.trim_ascii())
}

/// Whether the peer is a process on this machine.
fn is_local(peer: Peer) -> bool {
    peer.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
