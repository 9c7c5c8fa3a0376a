//! Browser logins through a provider on sockets. The filter's own file tests refusals.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use weir_testkit::{Client, Response, Upstream, Weir};

use crate::cause::{LOGIN_NEEDED, SESSIONS_UNAVAILABLE};
use crate::jwt::{Signer, in_an_hour};
use crate::shared_limits::Redis;
use crate::support::{OK, WEB};

/// A provider. The expected code is the ID token's nonce, optionally followed by a dot and the user: `ann` by
/// default.
pub(crate) fn provider() -> Upstream {
    let signer = Signer::new("a");
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let issuer = format!("http://{}", request.head.header("host").unwrap_or_default());
            let target = request.head.line.split(' ').nth(1).unwrap_or_default().to_owned();
            let form = String::from_utf8_lossy(&request.body.bytes).into_owned();
            let body = match &*target {
                "/.well-known/openid-configuration" => format!(
                    r#"{{"issuer":"{issuer}","authorization_endpoint":"{issuer}/auth","token_endpoint":"{issuer}/token","jwks_uri":"{issuer}/keys"}}"#
                ),
                "/keys" => signer.jwks(),
                _ => {
                    let code =
                        form.split('&').find_map(|pair| pair.strip_prefix("code=")).unwrap_or_default();
                    let (nonce, user) = code.split_once('.').unwrap_or((code, "ann"));
                    let times = format!(r#""exp":{},"iat":{}"#, in_an_hour(), in_an_hour() - 3600);
                    let claims = format!(
                        r#"{{"iss":"{issuer}","aud":"app","sub":"{user}","email":"{user}@a.example","nonce":"{nonce}",{times}}}"#
                    );
                    format!(r#"{{"id_token":"{}","expires_in":3600}}"#, signer.token(&claims))
                }
            };
            if conn
                .try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
                .is_err()
            {
                return;
            }
        }
    })
}

/// The cookies that an answer sets, in request form.
fn cookies(answer: &Response) -> String {
    let pairs = answer.head.all("set-cookie").into_iter().filter(|cookie| !cookie.contains("Max-Age=0"));
    pairs.map(|cookie| cookie.split(';').next().unwrap_or_default().to_owned()).collect::<Vec<_>>().join("; ")
}

fn open(client: &mut Client, target: &str, cookies: &str) -> Response {
    client.ask(format!(
        "GET {target} HTTP/1.1\r\nHost: app.example.com\r\nAccept: text/html\r\nCookie: {cookies}\r\n\r\n"
    ))
}

/// Logs in; returns the session's cookies and the redirect target.
pub(crate) fn log_in(weir: &Weir, target: &str, callback: &str) -> (String, String) {
    log_in_as(weir, target, callback, "ann")
}

/// The same for a user that [`provider`] names.
pub(crate) fn log_in_as(weir: &Weir, target: &str, callback: &str, user: &str) -> (String, String) {
    let mut client = weir.client();
    let begun = open(&mut client, target, "");
    begun.expect_status(302);
    let to = begun.header("location").unwrap().to_owned();
    let parameter = |name: &str| {
        to.split(['?', '&'])
            .find_map(|pair| pair.strip_prefix(&format!("{name}=")))
            .unwrap_or_default()
            .to_owned()
    };
    let who = if user == "ann" { String::new() } else { format!(".{user}") };
    let back = format!("{callback}?code={}{who}&state={}", parameter("nonce"), parameter("state"));
    let done = open(&mut client, &back, &cookies(&begun));
    done.expect_status(302);
    (cookies(&done), done.header("location").unwrap().to_owned())
}

#[test]
fn a_browser_logs_in() {
    let (upstream, provider) = (Upstream::fixed(OK), provider());
    let oidc = |headers: &str| {
        format!(
            "{{ oidc: {{ issuer: \"http://{}\", client_id: app, client_secret: s, redirect: \"https://app.example.com/cb\", headers: {{ {headers} }} }} }}",
            provider.address()
        )
    };
    let weir = Weir::start(&format!(
        "{WEB}\nworkers: 2\naccess_log: {{}}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  a: {{ match: {{ path: \"/*\" }}, filters: [ {} ], upstream: up }}\n  \
         b: {{ match: {{ path: \"/b\" }}, filters: [ {} ], upstream: up }}\n",
        upstream.address(),
        oidc("x-user: sub"),
        oidc("x-email: email"),
    ));
    weir.client().get("/a").expect_cause(LOGIN_NEEDED);
    let (session, to) = log_in(&weir, "/a?b=c", "/cb");
    assert_eq!(to, "https://app.example.com/a?b=c");
    assert_eq!(upstream.connections(), 0);
    for (target, name, value) in [("/a", "x-user", "ann"), ("/b", "x-email", "ann@a.example")] {
        open(&mut weir.client(), target, &format!("{session}; theirs=1")).expect_status(200);
        let head = upstream.take_request().head;
        assert_eq!((head.all(name), head.header("cookie")), (vec![value], Some("theirs=1")));
    }
    // The provider's answer grants a session, but only once.
    let log = weir.wait_stdout("/cb?");
    assert!(log.contains("/cb?code=***&state=***\""), "{log}");
    // Another gateway with the same secret accepts the session; none accepts a modified one.
    let changed = session.replacen("-0=", "-0=A", 1);
    open(&mut weir.client(), "/a", &changed).expect_status(302);
}

/// A provider whose tokens expire immediately and whose refresh tokens work once: a second use is refused, and
/// counted.
fn strict_provider(refused: Arc<AtomicUsize>) -> Upstream {
    let (signer, current) = (Signer::new("a"), Mutex::new(0));
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let issuer = format!("http://{}", request.head.header("host").unwrap_or_default());
            let target = request.head.line.split(' ').nth(1).unwrap_or_default().to_owned();
            let form = String::from_utf8_lossy(&request.body.bytes).into_owned();
            let value = |name: &str| form.split('&').find_map(|pair| pair.strip_prefix(name));
            let (status, body) = match &*target {
                "/.well-known/openid-configuration" => (
                    200,
                    format!(
                        r#"{{"issuer":"{issuer}","authorization_endpoint":"{issuer}/auth","token_endpoint":"{issuer}/token","jwks_uri":"{issuer}/keys"}}"#
                    ),
                ),
                "/keys" => (200, signer.jwks()),
                _ => {
                    let mut current = current.lock().unwrap();
                    if value("refresh_token=").is_some_and(|token| token != format!("r{current}")) {
                        refused.fetch_add(1, Relaxed);
                        (400, r#"{"error":"invalid_grant"}"#.to_owned())
                    } else {
                        *current += 1;
                        let nonce =
                            value("code=").map_or_else(String::new, |code| format!(r#""nonce":"{code}","#));
                        let times = format!(r#""exp":{},"iat":{}"#, in_an_hour(), in_an_hour() - 3600);
                        let groups = "g".repeat(11_600); // too large for cookies
                        let claims = format!(
                            r#"{{"iss":"{issuer}","aud":"app","sub":"ann","groups":"{groups}",{nonce}{times}}}"#
                        );
                        let token = signer.token(&claims);
                        (
                            200,
                            format!(
                                r#"{{"id_token":"{token}","refresh_token":"r{current}","expires_in":0}}"#
                            ),
                        )
                    }
                }
            };
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
            if conn.try_send(format!("{head}{body}")).is_err() {
                return;
            }
        }
    })
}

#[test]
fn gateways_share_sessions_in_a_store() {
    let Some(mut redis) = Redis::start_with(&[]) else { return };
    let refused = Arc::new(AtomicUsize::new(0));
    let (upstream, provider) = (Upstream::fixed(OK), strict_provider(Arc::clone(&refused)));
    let gateway = || {
        Weir::start(&format!(
            "{WEB}\nstores: {{ sessions: {{ redis: \"redis://{}\" }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    \
             match: {{ path: \"/*\" }}\n    upstream: up\n    filters:\n    - oidc: {{ issuer: \"http://{}\", client_id: app, client_secret: s, \
             redirect: \"https://app.example.com/cb\", logout: /bye, store: sessions, headers: {{ x-user: sub }} }}\n",
            redis.address,
            upstream.address(),
            provider.address()
        ))
    };
    let (one, other) = (gateway(), gateway());
    let (cookies, _) = log_in(&one, "/page", "/cb");
    assert!(cookies.len() < 400, "only a ticket: {cookies}");
    // Its tokens expire immediately, so each request needs a refresh, by whichever gateway.
    std::thread::scope(|scope| {
        for weir in [&one, &other, &one, &other] {
            let cookies = &cookies;
            scope.spawn(move || {
                let mut client = weir.client();
                for _ in 0..5 {
                    open(&mut client, "/page", cookies).expect_status(200);
                }
            });
        }
    });
    assert_eq!(refused.load(Relaxed), 0, "a refresh token was used twice");
    assert_eq!(upstream.requests()[0].head.header("x-user"), Some("ann"));
    // A logout at one gateway applies everywhere, even with the cookie.
    open(&mut other.client(), "/bye", &cookies).expect_status(302);
    for weir in [&one, &other] {
        open(&mut weir.client(), "/page", &cookies).expect_status(302);
    }
    let (cookies, _) = log_in(&one, "/page", "/cb");
    redis.kill();
    open(&mut one.client(), "/page", &cookies).expect_status(503).expect_cause(SESSIONS_UNAVAILABLE);
}
