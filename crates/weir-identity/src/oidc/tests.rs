//! A test provider. It answers the filter's requests and signs correct tokens, or wrong ones on demand.

use super::super::testing::{Exchange, Running, Stand};
use super::*;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::sync::mpsc::Receiver;
use weir_filter::fetch::Asked;

const ISSUER: &str = "https://idp.example";

/// A change to the claims of an ID token.
type Twist = fn(&mut Map<String, Value>);

/// The behaviour of the provider.
struct Idp {
    key: Ed25519KeyPair,
    /// Changes the claims of the next ID token.
    twist: Mutex<Twist>,
    /// The forms that the token endpoint received.
    forms: Mutex<Vec<String>>,
    /// Makes the token endpoint answer with this status.
    fails: Mutex<Option<u16>>,
    seconds: u64,
    signer: Mutex<Option<Ed25519KeyPair>>,
    /// Whether its ID tokens have `alg: none`.
    unsigned: Mutex<bool>,
}

impl Idp {
    fn new(seconds: u64) -> Arc<Self> {
        Arc::new(Self {
            key: Ed25519KeyPair::generate().unwrap(),
            twist: Mutex::new(|_| ()),
            forms: Mutex::default(),
            fails: Mutex::default(),
            seconds,
            signer: Mutex::default(),
            unsigned: Mutex::default(),
        })
    }

    /// Answers until the test ends.
    async fn serve(self: Arc<Self>, mut asked: Receiver<Asked>) {
        while let Some(Asked { request, answer }) = asked.recv().await {
            let (status, body) = self.answer(&request);
            let _ = answer.send(Ok(CallAnswer { status, headers: Vec::new(), body: body.into() }));
        }
    }

    fn answer(&self, request: &FetchRequest) -> (u16, String) {
        match request.url.target() {
            "/.well-known/openid-configuration" => (200, json!({
                "issuer": ISSUER, "authorization_endpoint": "https://idp.example/auth?x=1", "token_endpoint": "https://idp.example/token",
                "jwks_uri": "https://idp.example/keys", "end_session_endpoint": "https://idp.example/end",
                "authorization_response_iss_parameter_supported": true,
            }).to_string()),
            "/keys" => {
                let x = base64::encode_url(self.key.public_key().as_ref());
                (200, json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "a" }] }).to_string())
            }
            _ => {
                let form = String::from_utf8(request.body.to_vec()).unwrap();
                self.forms.lock().unwrap().push(form.clone());
                if let Some(status) = *self.fails.lock().unwrap() {
                    return (status, json!({ "error": "invalid_grant" }).to_string());
                }
                // The code is the nonce that the token must contain.
                let value = |name: &str| form.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).map(str::to_owned);
                let mut claims = json!({ "iss": ISSUER, "aud": "web", "sub": "ann", "email": "ann@a.example", "exp": now() + 60, "iat": now() });
                if let Some(code) = value("code") {
                    claims["nonce"] = code.into();
                }
                let mut claims = claims.as_object().unwrap().clone();
                (self.twist.lock().unwrap())(&mut claims);
                let signed = format!(
                    "{}.{}",
                    base64::encode_url(br#"{"alg":"EdDSA","kid":"a"}"#),
                    base64::encode_url(Value::Object(claims).to_string().as_bytes())
                );
                if *self.unsigned.lock().unwrap() {
                    let head = base64::encode_url(br#"{"alg":"none"}"#);
                    let claims = signed.split('.').nth(1).unwrap();
                    let answer = json!({ "id_token": format!("{head}.{claims}."), "expires_in": self.seconds });
                    return (200, answer.to_string());
                }
                let signer = self.signer.lock().unwrap();
                let signature = signer.as_ref().unwrap_or(&self.key).sign(signed.as_bytes());
                let id = format!("{signed}.{}", base64::encode_url(signature.as_ref()));
                let count = self.forms.lock().unwrap().len();
                (200, json!({ "id_token": id, "access_token": "at", "refresh_token": format!("r{count}"), "expires_in": self.seconds }).to_string())
            }
        }
    }
}

fn settings(more: Value) -> Value {
    let mut settings = json!({
        "issuer": ISSUER, "client_id": "web", "client_secret": "s3cret", "redirect": "https://app.example/cb",
        "headers": { "x-user": "sub", "x-email": "email" }, "logout": "/logout",
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

/// A filter and its provider.
fn start(idp: &Arc<Idp>, more: Value) -> (Running, Stand) {
    let shop = Consumer {
        name: "ann".to_owned(),
        credentials: BTreeMap::from([("oidc".to_owned(), vec!["ann".to_owned()])]),
        ..Consumer::default()
    };
    let mut stand = Stand::new(&KIND, settings(more)).consumer(shop).tls();
    let running = stand.build();
    let (fetcher, asked) = Fetcher::channel();
    stand.tend(&fetcher);
    drop(tokio::spawn(Arc::clone(idp).serve(asked)));
    (running, stand)
}

const PAGE: &str = "Host: app.example\nAccept: text/html,*/*\nSec-Fetch-Mode: navigate";

/// The cookies of a browser.
#[derive(Clone, Default)]
struct Jar(Vec<(String, String)>);

impl Jar {
    fn keep(&mut self, exchange: &Exchange) {
        for cookie in exchange.header("set-cookie") {
            assert!(cookie.starts_with("__Host-") && cookie.len() < 4096, "{cookie}");
            for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(cookie.contains(attribute), "{cookie}");
            }
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.0.retain(|(known, _)| known != name);
            if !cookie.contains("Max-Age=0") {
                self.0.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    fn line(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("Cookie: {}", pairs.join("; "))
    }
}

async fn open(running: &Running, target: &str, jar: &Jar) -> Exchange {
    running.request(&format!("GET {target}\n{PAGE}\n{}", jar.line())).await
}

/// A parameter of the query of a URL.
fn parameter(url: &str, name: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap_or_default().to_owned()
}

/// Logs in at the provider and returns; gives the last response.
async fn log_in(running: &Running, jar: &mut Jar, target: &str) -> Exchange {
    let mut exchange = open(running, target, jar).await;
    exchange.expect_status(302);
    jar.keep(&exchange);
    let to = exchange.header("location").remove(0);
    let back = format!(
        "/cb?code={}&state={}&iss=https%3A%2F%2Fidp.example",
        parameter(&to, "nonce"),
        parameter(&to, "state")
    );
    let exchange = open(running, &back, jar).await;
    jar.keep(&exchange);
    exchange
}

#[tokio::test]
async fn a_browser_logs_in_and_comes_back() {
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({ "consumer": "sub" }));
    let mut jar = Jar::default();
    let first = open(&running, "/a?b=c", &jar).await;
    let to = first.header("location").remove(0);
    assert!(to.starts_with("https://idp.example/auth?x=1&response_type=code&client_id=web&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&scope=openid&"), "{to}");
    assert_eq!(parameter(&to, "code_challenge_method"), "S256");
    let mut back = log_in(&running, &mut jar, "/a?b=c").await;
    back.expect_status(302)
        .expect_header("location", "https://app.example/a?b=c")
        .expect_header("cache-control", "no-store");
    let forms = idp.forms.lock().unwrap().clone();
    assert!(
        forms[0].starts_with("grant_type=authorization_code&") && forms[0].contains("code_verifier="),
        "{forms:?}"
    );
    let request = format!("GET /x\n{PAGE}\nX-User: forged\n{}; theirs=1", jar.line());
    let mut page = running.request(&request).await;
    page.expect_continue().expect_header("x-user", "ann").expect_header("x-email", "ann@a.example");
    page.expect_header("cookie", "theirs=1");
    assert_eq!(page.cx.consumer().map(|c| c.name.as_str()), Some("ann"));
    // Background requests use the session too; without a session they get a 401.
    let quiet = format!("POST /x\nAccept: application/json\n{}", jar.line());
    running.request(&quiet).await.expect_continue();
    for none in [
        "GET /x\nAccept: application/json",
        "GET /x",
        "POST /x\nAccept: text/html",
        "GET /x\nAccept: text/html\nSec-Fetch-Mode: cors",
    ] {
        running.request(none).await.expect_status(401).expect_cause(&LOGIN_NEEDED);
    }
}

/// OpenID Connect Core §11: without `prompt=consent` a provider may give no refresh token.
#[tokio::test]
async fn who_wants_refresh_tokens_asks_for_consent() {
    let idp = Idp::new(3600);
    for (more, prompt) in [
        (json!({}), ""),
        (json!({ "scopes": ["openid", "offline_access"] }), "consent"),
        (json!({ "scopes": ["openid", "offline_access"], "prompt": [] }), ""),
        (json!({ "prompt": ["login", "select_account"] }), "login%20select_account"),
    ] {
        let (running, _stand) = start(&idp, more.clone());
        let to = open(&running, "/", &Jar::default()).await.header("location").remove(0);
        assert_eq!(parameter(&to, "prompt"), prompt, "{more}");
    }
}

#[tokio::test]
async fn a_forged_or_foreign_answer_logs_nobody_in() {
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({}));
    let mut jar = Jar::default();
    let exchange = open(&running, "/", &jar).await;
    let before = jar.clone();
    jar.keep(&exchange);
    let to = exchange.header("location").remove(0);
    let (state, nonce) = (parameter(&to, "state"), parameter(&to, "nonce"));
    for (jar, query, cause) in [
        (&before, format!("code={nonce}&state={state}&iss={ISSUER}"), &LOGIN_LOST), // begun in another browser
        (&jar, format!("code={nonce}&state=other&iss={ISSUER}"), &LOGIN_LOST),
        (&jar, format!("code={nonce}&iss={ISSUER}"), &LOGIN_LOST),
        (&jar, format!("code={nonce}&state={state}&state={state}&iss={ISSUER}"), &LOGIN_LOST),
        (&jar, format!("code={nonce}&state={state}&iss=https://evil.example"), &LOGIN_FAILED),
        (&jar, format!("code={nonce}&state={state}"), &LOGIN_FAILED),
        (&jar, format!("error=access_denied&state={state}&iss={ISSUER}"), &LOGIN_FAILED),
        (&jar, format!("code=another-nonce&state={state}&iss={ISSUER}"), &LOGIN_FAILED),
    ] {
        let mut exchange = open(&running, &format!("/cb?{query}"), jar).await;
        exchange.expect_cause(cause).expect_no_header("set-cookie");
    }
}

/// The sixth tab drops the login of the first, and no other.
#[tokio::test]
async fn a_tab_more_costs_the_oldest_login() {
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({}));
    let mut jar = Jar(vec![("__Host-weir-login-nonsense".to_owned(), "x".to_owned())]);
    let mut tabs = Vec::new();
    for tab in 0..=LOGINS {
        let exchange = open(&running, &format!("/tab{tab}"), &jar).await;
        jar.keep(&exchange);
        let to = exchange.header("location").remove(0);
        tabs.push((parameter(&to, "nonce"), parameter(&to, "state")));
        let under_way = jar.0.iter().filter(|(name, _)| name.starts_with("__Host-weir-login-")).count();
        assert!(under_way <= LOGINS, "{under_way}");
    }
    // All began within the same second here, so any of them may be the oldest, but only one is dropped.
    let mut lost = 0;
    for (nonce, state) in tabs {
        let back = format!("/cb?code={nonce}&state={state}&iss={ISSUER}");
        let mut exchange = open(&running, &back, &jar).await;
        let Flow::Refuse(refusal) = &exchange.flow else {
            exchange.expect_status(302);
            continue;
        };
        assert_eq!(refusal.cause, &LOGIN_LOST);
        lost += 1;
    }
    assert_eq!(lost, 1);
}

/// A browser with a session that returns to the provider's answer gets the page, not an error.
#[tokio::test]
async fn the_back_button_leads_to_the_page() {
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({}));
    let mut jar = Jar::default();
    let exchange = open(&running, "/a", &jar).await;
    jar.keep(&exchange);
    let to = exchange.header("location").remove(0);
    let back = format!("/cb?code={}&state={}&iss={ISSUER}", parameter(&to, "nonce"), parameter(&to, "state"));
    let mut first = open(&running, &back, &jar).await;
    first.expect_status(302).expect_header("location", "https://app.example/a");
    jar.keep(&first);
    let mut again = open(&running, &back, &jar).await;
    again.expect_status(302).expect_header("location", "https://app.example/");
    again.expect_no_header("set-cookie");
    open(&running, &back, &Jar::default()).await.expect_cause(&LOGIN_LOST);
}

#[tokio::test]
async fn an_id_token_must_be_for_us_and_of_now() {
    let twists: [(&str, Twist); 8] = [
        ("iss", |c| drop(c.insert("iss".to_owned(), json!("https://evil.example")))),
        ("aud", |c| drop(c.insert("aud".to_owned(), json!("other")))),
        ("azp", |c| drop(c.insert("azp".to_owned(), json!("other")))),
        ("several", |c| drop(c.insert("aud".to_owned(), json!(["web", "other"])))),
        ("exp", |c| drop(c.insert("exp".to_owned(), json!(now() - 60)))),
        ("iat", |c| drop(c.insert("iat".to_owned(), json!(now() + 600)))),
        ("sub", |c| drop(c.remove("sub"))),
        ("nonce", |c| drop(c.remove("nonce"))),
    ];
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({}));
    for (name, twist) in twists {
        *idp.twist.lock().unwrap() = twist;
        let mut exchange = log_in(&running, &mut Jar::default(), "/").await;
        assert!(matches!(exchange.flow, Flow::Refuse(_)), "{name}");
        exchange.expect_cause(&LOGIN_FAILED);
    }
    *idp.twist.lock().unwrap() = |_| ();
    *idp.signer.lock().unwrap() = Some(Ed25519KeyPair::generate().unwrap());
    log_in(&running, &mut Jar::default(), "/").await.expect_cause(&LOGIN_UNAVAILABLE);
    *idp.signer.lock().unwrap() = None;
    // An unsigned token is always wrong, even on later attempts: the provider is reachable.
    *idp.unsigned.lock().unwrap() = true;
    log_in(&running, &mut Jar::default(), "/").await.expect_cause(&LOGIN_FAILED);
    *idp.unsigned.lock().unwrap() = false;
    *idp.fails.lock().unwrap() = Some(400);
    log_in(&running, &mut Jar::default(), "/").await.expect_cause(&LOGIN_FAILED);
}

#[tokio::test]
async fn a_session_stays_fresh_and_one_refresh_serves_all() {
    let idp = Idp::new(0); // its tokens expire immediately
    let (running, _stand) = start(&idp, json!({}));
    let mut jar = Jar::default();
    log_in(&running, &mut jar, "/").await.expect_status(302);
    let old = jar.clone();
    let (mut a, mut b, mut c) =
        tokio::join!(open(&running, "/a", &old), open(&running, "/b", &old), open(&running, "/c", &old));
    for exchange in [&mut a, &mut b, &mut c] {
        exchange.expect_continue().expect_header("x-user", "ann");
    }
    let forms = idp.forms.lock().unwrap().clone();
    assert_eq!(forms.len(), 2, "{forms:?}");
    assert_eq!(forms[1], "grant_type=refresh_token&refresh_token=r1");
    a.response("200").expect_present("set-cookie");
    // The provider has ended the session.
    *idp.fails.lock().unwrap() = Some(400);
    let (other, _stand) = start(&idp, json!({}));
    open(&other, "/", &old).await.expect_status(302);
    // If the provider is down, the session does not end immediately.
    *idp.fails.lock().unwrap() = Some(503);
    let (other, _stand) = start(&idp, json!({}));
    open(&other, "/", &old).await.expect_continue();
}

/// The user leaves the page while the provider is asked. The refresh token is used up, so the outcome must not be
/// lost.
#[tokio::test]
async fn a_refresh_outlives_the_request_that_began_it() {
    let idp = Idp::new(0);
    let (running, _stand) = start(&idp, json!({}));
    let mut jar = Jar::default();
    log_in(&running, &mut jar, "/").await.expect_status(302);
    let mut first = Box::pin(open(&running, "/a", &jar));
    std::future::poll_fn(|cx| {
        assert!(first.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    drop(first);
    let mut second = open(&running, "/b", &jar).await;
    second.expect_continue().response("200").expect_present("set-cookie");
    assert_eq!(idp.forms.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn routes_with_one_session_refresh_it_once() {
    let idp = Idp::new(0);
    let (running, stand) = start(&idp, json!({}));
    let mut jar = Jar::default();
    log_in(&running, &mut jar, "/").await.expect_status(302);
    let mut stand = stand.scope("routes.other");
    let other = stand.build();
    let (mut a, mut b) = tokio::join!(open(&running, "/a", &jar), open(&other, "/b", &jar));
    a.expect_continue().response("200").expect_present("set-cookie");
    b.expect_continue().response("200").expect_present("set-cookie");
    assert_eq!(idp.forms.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn logout_ends_the_session() {
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({}));
    let mut jar = Jar::default();
    log_in(&running, &mut jar, "/").await;
    assert_eq!(jar.0.len(), 1);
    let mut exchange = open(&running, "/logout", &jar).await;
    exchange.expect_status(302).expect_header(
        "location",
        "https://idp.example/end?client_id=web&post_logout_redirect_uri=https%3A%2F%2Fapp.example%2F",
    );
    jar.keep(&exchange);
    assert!(jar.0.is_empty());
}

#[tokio::test]
async fn nobody_is_sent_elsewhere() {
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({}));
    for target in ["//evil.example/", "/a"] {
        let mut jar = Jar::default();
        let asked = running.request(&format!("GET {target}\nHost: evil.example\nAccept: text/html")).await;
        jar.keep(&asked);
        let to = asked.header("location").remove(0);
        assert_eq!(parameter(&to, "redirect_uri"), "https%3A%2F%2Fapp.example%2Fcb");
        let back =
            format!("/cb?code={}&state={}&iss={ISSUER}", parameter(&to, "nonce"), parameter(&to, "state"));
        let exchange = open(&running, &back, &jar).await;
        let location = exchange.header("location").remove(0);
        assert!(
            location.starts_with("https://app.example/") && !location.contains(".example//"),
            "{location}"
        );
    }
}

#[tokio::test]
async fn optional_lets_pass_unnamed() {
    let idp = Idp::new(3600);
    let (running, _stand) = start(&idp, json!({ "optional": true }));
    running
        .request(&format!("GET /\n{PAGE}\nX-User: forged"))
        .await
        .expect_continue()
        .expect_no_header("x-user");
    running
        .request("GET /\nCookie: __Host-weir-0=forged; a=b")
        .await
        .expect_continue()
        .expect_header("cookie", "a=b");
}

#[test]
fn mistakes() {
    for (more, why) in [
        (json!({ "issuer": "http://idp.example" }), "issuer: is asked in clear text"),
        (json!({ "issuer": "idp" }), "not a URL"),
        (json!({ "redirect": "http://app.example/cb" }), "redirect: is in clear text"),
        (json!({ "redirect": "https://app.example/cb?a" }), "redirect: has a query"),
        (json!({ "client_id": "" }), "client_id: is empty"),
        (json!({ "client_secret": "" }), "client_secret: is empty"),
        (json!({ "scopes": ["email"] }), "lacks `openid`"),
        (json!({ "scopes": ["openid", "a b"] }), "scopes: has one"),
        (json!({ "cookie": "a b" }), "cookie: `a b`"),
        (json!({ "logout": "/cb" }), "logout: `/cb`"),
        (json!({ "session": "1s" }), "session: is under a minute"),
        (json!({ "consumer": "sub" }), "consumer: no consumer has a value"),
        (json!({ "headers": { "cookie": "sub" } }), "headers.cookie"),
        (json!({ "ca": "missing.pem" }), "ca: missing.pem cannot be read"),
    ] {
        let told = Stand::new(&KIND, settings(more.clone())).mistakes();
        assert!(told.iter().any(|one| one.contains(why)), "{more}: {told:?}");
    }
}
