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
    /// Everyone, if `Host` is an address. Scrapers on other machines may also use a name.
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
    let Access::Needs(role) = access else { return Ok(None) };
    let who = who(caller, keys)?;
    if who.role < role { Err(Denied::Role(role)) } else { Ok(Some(who)) }
}

/// Identifies the caller. If no caller is configured, this machine may do everything.
fn who(caller: Caller<'_>, keys: Keys<'_>) -> Result<Identity, Denied> {
    if keys.token.is_none() && keys.tokens.is_empty() {
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
mod tests {
    use super::*;
    use Access::{Open, Scrapers};
    use hyper::header::HeaderName;
    use weir_gateway::config::schema::Secret;

    const GUARDED: Access = Access::Needs(Role::Read);
    const NO_KEYS: Keys<'_> = Keys { token: None, tokens: &[], hosts: &[] };
    const LOCAL: &str = "127.0.0.1:50000";
    const OTHER: &str = "10.0.0.9:50000";

    /// A caller about whom nothing else is known.
    const fn caller<'a>(peer: Peer, uri: &'a Uri, headers: &'a HeaderMap) -> Caller<'a> {
        let version = Version::HTTP_11;
        Caller { peer, uid: None, certificate: None, version, uri, headers, session: None }
    }

    fn ask(access: Access, peer: &str, fields: &[(&str, &str)], token: Option<&str>) -> Result<(), Denied> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let peer = Peer::Address(peer.parse().unwrap());
        let uri = Uri::from_static("/status");
        let caller = caller(peer, &uri, &headers);
        check(access, caller, Keys { token, ..NO_KEYS }).map(drop)
    }

    #[test]
    fn hosts() {
        for (host, decision) in [
            ("127.0.0.1:9180", Ok(())),
            ("127.0.0.1", Ok(())),
            ("[::1]:9180", Ok(())),
            ("10.1.2.3:9180", Ok(())),
            ("localhost:1", Ok(())),
            ("LOCALHOST", Ok(())),
            ("evil.example", Err(Denied::ForeignHost)),
            ("127.0.0.1.evil.example:9180", Err(Denied::ForeignHost)),
            ("localhost.evil.example", Err(Denied::ForeignHost)),
            ("localhost.", Err(Denied::ForeignHost)),
            ("0x7f.1", Err(Denied::ForeignHost)),
            ("", Err(Denied::BadHost)),
            (":9180", Err(Denied::BadHost)),
            ("127.0.0.1:port", Err(Denied::BadHost)),
            ("127.0.0.1:99999", Err(Denied::BadHost)),
            ("evil.example@127.0.0.1", Err(Denied::BadHost)),
            ("[::1", Err(Denied::BadHost)),
            ("[::1]x", Err(Denied::BadHost)),
            ("::1", Err(Denied::BadHost)),
            ("[evil.example]", Err(Denied::ForeignHost)),
        ] {
            assert_eq!(ask(GUARDED, LOCAL, &[("host", host)], None), decision, "{host}");
            // A token does not make a foreign name ours.
            let authorized = [("host", host), ("authorization", "Bearer t")];
            assert_eq!(ask(GUARDED, LOCAL, &authorized, Some("t")), decision, "{host} with a token");
        }
        assert_eq!(ask(Open, LOCAL, &[("host", "evil.example")], None), Ok(()));
        assert_eq!(ask(GUARDED, LOCAL, &[], None), Err(Denied::BadHost));
        assert_eq!(ask(GUARDED, LOCAL, &[("host", "[::1]"), ("host", "[::1]")], None), Err(Denied::BadHost));
    }

    #[test]
    fn an_absolute_target_counts_for_more_than_host() {
        let headers = HeaderMap::from_iter([(header::HOST, "127.0.0.1".parse().unwrap())]);
        let uri = Uri::from_static("http://evil.example/status");
        let peer = Peer::Local;
        let caller = caller(peer, &uri, &headers);
        assert_eq!(check(GUARDED, caller, NO_KEYS), Err(Denied::ForeignHost));
    }

    #[test]
    fn http_1_0_needs_no_host() {
        let uri = Uri::from_static("/healthz");
        let headers = HeaderMap::new();
        let (peer, version) = (Peer::Local, Version::HTTP_10);
        let caller = Caller { version, ..caller(peer, &uri, &headers) };
        assert!(check(GUARDED, caller, NO_KEYS).is_ok());
    }

    #[test]
    fn origins() {
        for (name, value, decision) in [
            ("origin", "http://127.0.0.1:9180", Ok(())),
            ("origin", "https://127.0.0.1:9180", Ok(())),
            ("origin", "http://127.0.0.1:8080", Err(Denied::ForeignOrigin)),
            ("origin", "http://evil.example", Err(Denied::ForeignOrigin)),
            ("origin", "null", Err(Denied::ForeignOrigin)),
            ("sec-fetch-site", "none", Ok(())),
            ("sec-fetch-site", "same-origin", Ok(())),
            ("sec-fetch-site", "same-site", Err(Denied::ForeignOrigin)),
            ("sec-fetch-site", "cross-site", Err(Denied::ForeignOrigin)),
        ] {
            for access in [GUARDED, Open, Scrapers] {
                let fields = [("host", "127.0.0.1:9180"), (name, value)];
                assert_eq!(ask(access, LOCAL, &fields, None), decision, "{access:?} {name}: {value}");
            }
        }
    }

    #[test]
    fn only_scrapers_elsewhere_may_use_a_name() {
        let named = ("host", "weir.monitoring.svc:9180");
        assert_eq!(ask(Scrapers, OTHER, &[named], Some("t")), Ok(()));
        assert_eq!(ask(Scrapers, LOCAL, &[named], None), Err(Denied::ForeignHost));
        for sign in ["accept-language", "cookie", "referer", "sec-fetch-mode"] {
            assert_eq!(ask(Scrapers, OTHER, &[named, (sign, "")], None), Err(Denied::ForeignHost), "{sign}");
        }
        // With an address as Host, even a browser may read metrics.
        let browser = [("host", "10.0.0.1:9180"), ("accept-language", "en"), ("sec-fetch-site", "none")];
        assert_eq!(ask(Scrapers, OTHER, &browser, None), Ok(()));
    }

    #[test]
    fn tokens() {
        for (sent, decision) in [
            ("Bearer s3cret", Ok(())),
            ("bearer s3cret", Ok(())),
            ("Bearer  s3cret ", Ok(())),
            ("Bearer s3cre", Err(Denied::TokenWrong)),
            ("Bearer s3cret!", Err(Denied::TokenWrong)),
            ("Bearer ", Err(Denied::TokenWrong)),
            ("Basic s3cret", Err(Denied::TokenMissing)),
            ("s3cret", Err(Denied::TokenMissing)),
            ("", Err(Denied::TokenMissing)),
        ] {
            let fields = [("host", "localhost"), ("authorization", sent)];
            assert_eq!(ask(GUARDED, OTHER, &fields, Some("s3cret")), decision, "{sent}");
        }
        assert_eq!(ask(GUARDED, LOCAL, &[("host", "localhost")], Some("s3cret")), Err(Denied::TokenMissing));
        for access in [Open, Scrapers] {
            assert_eq!(ask(access, OTHER, &[("host", "10.0.0.1")], Some("s3cret")), Ok(()));
        }
    }

    #[test]
    fn without_a_token_only_this_machine_may_ask() {
        for (peer, decision) in [
            (LOCAL, Ok(())),
            ("[::1]:5", Ok(())),
            ("[::ffff:127.0.0.1]:5", Ok(())),
            (OTHER, Err(Denied::NotLocal)),
            ("[2001:db8::1]:5", Err(Denied::NotLocal)),
        ] {
            assert_eq!(ask(GUARDED, peer, &[("host", "10.0.0.1")], None), decision, "{peer}");
        }
        assert_eq!(ask(Scrapers, OTHER, &[("host", "10.0.0.1")], None), Ok(()));
    }

    fn entry(name: &str, token: Option<&str>, uid: Option<u32>, role: Role) -> AdminToken {
        let hash = |token: &str| {
            let hash = digest::digest(&digest::SHA256, token.as_bytes());
            let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
            Secret::new(format!("sha256:{digits}"))
        };
        AdminToken { name: name.to_owned(), token: token.map(hash), certificate: None, uid, role }
    }

    #[test]
    fn roles() {
        use Role::{Admin, Operate, Read, Write};
        let tokens = [
            entry("dash", Some("look"), None, Read),
            entry("ops", None, Some(1000), Operate),
            entry("ci", Some("change"), None, Write),
        ];
        let ask = |role, sent: Option<&str>, uid, token| {
            let mut headers = HeaderMap::from_iter([(header::HOST, "127.0.0.1".parse().unwrap())]);
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, format!("Bearer {sent}").parse().unwrap());
            }
            let uri = Uri::from_static("/status");
            let caller = Caller { uid, ..caller(Peer::Local, &uri, &headers) };
            let who = check(Access::Needs(role), caller, Keys { token, tokens: &tokens, hosts: &[] });
            who.map(|who| who.unwrap().name)
        };
        let name = |name: &str| Ok(name.to_owned());
        for (role, sent, uid, decision) in [
            (Read, Some("look"), None, name("dash")),
            (Operate, Some("look"), None, Err(Denied::Role(Operate))),
            (Write, Some("change"), None, name("ci")),
            (Operate, Some("change"), Some(1000), name("ci")),
            (Admin, Some("change"), None, Err(Denied::Role(Admin))),
            (Operate, None, Some(1000), name("ops")),
            (Write, None, Some(1000), Err(Denied::Role(Write))),
            (Read, None, Some(1001), Err(Denied::TokenMissing)),
            // A missing user id identifies nobody.
            (Read, None, None, Err(Denied::TokenMissing)),
            // A wrong token is refused, even from a known user.
            (Read, Some("guess"), Some(1000), Err(Denied::TokenWrong)),
            (Read, Some(""), None, Err(Denied::TokenWrong)),
            (Admin, Some("master"), None, Err(Denied::TokenWrong)),
        ] {
            assert_eq!(ask(role, sent, uid, None), decision, "{role:?} {sent:?} {uid:?}");
        }
        assert_eq!(ask(Admin, Some("master"), None, Some("master")), name("token"));
        // The hash itself is not accepted as a token.
        let hash = tokens[0].token.as_ref().unwrap().reveal().to_owned();
        assert_eq!(ask(Read, Some(&hash), None, None), Err(Denied::TokenWrong));
    }

    #[test]
    fn sessions() {
        let tokens = [entry("dash", Some("look"), None, Role::Read)];
        let ask = |token: &str, proven| {
            let headers = HeaderMap::from_iter([(header::HOST, "127.0.0.1".parse().unwrap())]);
            let uri = Uri::from_static("/status");
            let session = Session { token: hashed(token.as_bytes()), csrf: String::new(), proven };
            let caller = Caller { session: Some(&session), ..caller(Peer::Local, &uri, &headers) };
            let keys = Keys { tokens: &tokens, ..NO_KEYS };
            check(Access::Needs(Role::Read), caller, keys).map(|who| who.unwrap().name)
        };
        assert_eq!(ask("look", true), Ok("dash".to_owned()));
        assert_eq!(ask("look", false), Err(Denied::Forged), "a page from elsewhere made the browser ask");
        assert_eq!(ask("gone", true), Err(Denied::TokenMissing), "a session ends with its token");
    }

    #[test]
    fn certificates() {
        let ci = AdminToken {
            certificate: Some("dns:ci.internal".to_owned()),
            ..entry("ci", None, None, Role::Write)
        };
        let tokens = [entry("dash", Some("look"), None, Role::Read), ci];
        let shown =
            |name: &str| PeerCertificate { names: vec![name.to_owned()], ..PeerCertificate::default() };
        let ask = |certificate: Option<&PeerCertificate>, sent: Option<&str>| {
            let mut headers = HeaderMap::from_iter([(header::HOST, "10.0.0.1".parse().unwrap())]);
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, format!("Bearer {sent}").parse().unwrap());
            }
            let uri = Uri::from_static("/status");
            let peer = Peer::Address(OTHER.parse().unwrap());
            let caller = Caller { certificate, ..caller(peer, &uri, &headers) };
            let keys = Keys { tokens: &tokens, ..NO_KEYS };
            check(Access::Needs(Role::Read), caller, keys).map(|who| who.unwrap().name)
        };
        let name = |name: &str| Ok(name.to_owned());
        assert_eq!(ask(Some(&shown("dns:CI.internal")), None), name("ci"));
        assert_eq!(ask(Some(&shown("dns:cd.internal")), None), Err(Denied::TokenMissing));
        assert_eq!(ask(Some(&shown("email:ci.internal")), None), Err(Denied::TokenMissing));
        assert_eq!(ask(None, None), Err(Denied::TokenMissing));
        assert_eq!(ask(Some(&shown("dns:ci.internal")), Some("look")), name("dash"), "a token says more");
        assert_eq!(ask(Some(&shown("dns:ci.internal")), Some("guess")), Err(Denied::TokenWrong));
    }

    #[test]
    fn a_name_of_ours_is_no_foreign_one() {
        let hosts = ["gw1.internal".to_owned()];
        for (host, decision) in [
            ("gw1.internal", Ok(())),
            ("GW1.internal:9180", Ok(())),
            ("gw2.internal", Err(Denied::ForeignHost)),
            ("gw1.internal.evil.example", Err(Denied::ForeignHost)),
            ("x.gw1.internal", Err(Denied::ForeignHost)),
        ] {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            let uri = Uri::from_static("/status");
            let (peer, version) = (Peer::Local, Version::HTTP_11);
            let caller = Caller { version, ..caller(peer, &uri, &headers) };
            let keys = Keys { hosts: &hosts, ..NO_KEYS };
            assert_eq!(check(GUARDED, caller, keys).map(drop), decision, "{host}");
        }
    }
}
