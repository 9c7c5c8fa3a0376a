//! Who may ask what: hosts, origins, tokens, roles, sessions and certificates.

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
fn metrics_need_no_token_but_refuse_a_wrong_one() {
    let sent = |token| [("host", "10.0.0.1"), ("authorization", token)];
    for (access, token, known, decision) in [
        (Scrapers, "Bearer s3cret", Some("s3cret"), Ok(())),
        (Scrapers, "Bearer s3cre", Some("s3cret"), Err(Denied::TokenWrong)),
        (Scrapers, "Bearer ", Some("s3cret"), Err(Denied::TokenWrong)),
        (Scrapers, "Basic s3cret", Some("s3cret"), Ok(())),
        (Scrapers, "Bearer s3cre", None, Ok(())),
        (Open, "Bearer s3cre", Some("s3cret"), Ok(())),
    ] {
        assert_eq!(ask(access, OTHER, &sent(token), known), decision, "{access:?} {token}");
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
    let shown = |name: &str| PeerCertificate { names: vec![name.to_owned()], ..PeerCertificate::default() };
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
