//! The tests sign tokens with a secret or with Ed25519. `shared/jose/vectors.rs` tests what each algorithm accepts.

use super::super::shared::jose::algorithm::Algorithm;
use super::super::shared::jose::key_set::Secrets;
use super::super::testing::{Exchange, Running, Stand};
use super::*;
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use tokio::sync::mpsc::Receiver;
use weir_filter::fetch::Asked;
use weir_wire::base64;

const SECRET: &str = "a secret of sixty-four bytes, so that it is one for every HS there is";

thread_local! {
    /// How many seconds the test on this thread is ahead of the clock.
    pub(super) static AHEAD: Cell<u64> = const { Cell::new(0) };
}

fn sign(header: &Value, claims: &str) -> String {
    let text = |part: &str| base64::encode_url(part.as_bytes());
    let signed = format!("{}.{}", text(&header.to_string()), text(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", base64::encode_url(tag.as_ref()))
}

/// A token with these claims, and an expiry if they have none.
fn token(mut claims: Value) -> String {
    if claims.get("exp").is_none() {
        claims["exp"] = json!(now() + 3600);
    }
    sign(&json!({ "alg": "HS256", "typ": "JWT" }), &claims.to_string())
}

fn with_secret(mut settings: Value) -> Value {
    settings["secret"] = json!(SECRET);
    settings
}

fn consumer(name: &str, values: &[&str]) -> Consumer {
    let values = values.iter().map(|v| (*v).to_owned()).collect();
    let credentials = BTreeMap::from([("jwt".to_owned(), values)]);
    Consumer { name: name.to_owned(), credentials, ..Consumer::default() }
}

fn build(settings: Value) -> Running {
    Stand::new(&KIND, with_secret(settings)).build()
}

async fn bearer(running: &Running, token: &str) -> Exchange {
    running.request(&format!("GET /\nAuthorization: Bearer {token}")).await
}

async fn run(settings: Value, token: &str) -> Exchange {
    bearer(&build(settings), token).await
}

#[tokio::test]
async fn a_good_token_passes() {
    for scheme in ["Bearer", "bearer", "Bearer "] {
        let request = format!("GET /\nAuthorization: {scheme} {}", token(json!({})));
        build(json!({})).request(&request).await.expect_continue();
    }
    let mut kept = run(json!({}), &token(json!({}))).await;
    assert_eq!(kept.expect_continue().header("authorization").len(), 1);
    run(json!({ "hide": true }), &token(json!({}))).await.expect_continue().expect_no_header("authorization");
}

#[tokio::test]
async fn a_verified_token_names_a_consumer_of_a_source_only_while_it_is_there() {
    let stand =
        Stand::new(&KIND, with_secret(json!({ "consumer": "sub" }))).consumer(consumer("own", &["own"]));
    let mut stand = stand.listed("consumers: { crm: { jwt: [ app, 7 ] } }");
    let running = stand.build();
    let (app, own) = (token(json!({ "sub": "app" })), token(json!({ "sub": "own" })));
    let name = |exchange: &Exchange| exchange.cx.consumer().map(|consumer| consumer.name.clone());
    assert_eq!(name(&bearer(&running, &app).await).as_deref(), Some("crm"));
    stand.relist("consumers: { other: { jwt: [ app ] } }");
    assert_eq!(name(&bearer(&running, &app).await).as_deref(), Some("other"));
    stand.relist("consumers: {}");
    bearer(&running, &app).await.expect_status(403).expect_cause(&TOKEN_CONSUMER);
    assert_eq!(name(&bearer(&running, &own).await).as_deref(), Some("own"));
}

#[tokio::test]
async fn without_a_token_there_is_a_challenge() {
    for none in ["", "Authorization: Basic YTpi", "Authorization: Bearer", "Cookie: t=x", "Authorization: x"]
    {
        let mut exchange = build(json!({})).request(&format!("GET /\n{none}")).await;
        exchange.expect_status(401).expect_cause(&TOKEN_MISSING);
        exchange.expect_header("www-authenticate", "Bearer realm=\"weir\"");
    }
}

#[tokio::test]
async fn where_it_is_optional_only_a_bad_one_is_refused() {
    let running = build(json!({ "optional": true, "headers": { "x-user": "sub" } }));
    running.request("GET /\nX-User: forged").await.expect_continue().expect_no_header("x-user");
    running.request("GET /\nAuthorization: Basic YTpi").await.expect_continue();
    bearer(&running, "bad").await.expect_cause(&TOKEN_MALFORMED);
    // Anything that an upstream may read as a token counts as one, however it is written.
    for odd in ["Bearer\tbad", "bearer \t bad", "Bearer, bad", "Bearer=bad"] {
        running.request(&format!("GET /\nAuthorization: {odd}")).await.expect_cause(&TOKEN_MALFORMED);
    }
    running.request("GET /\nAuthorization: Bearers bad").await.expect_continue();
    bearer(&running, &token(json!({ "exp": 1 }))).await.expect_cause(&TOKEN_EXPIRED);
    bearer(&running, &token(json!({ "sub": "ann" }))).await.expect_header("x-user", "ann");
}

/// A token that names no key is tried with every key that fits; if there are many, on a thread.
#[tokio::test]
async fn the_last_of_many_keys_counts() {
    let signers: Vec<Ed25519KeyPair> = (0..12).map(|_| Ed25519KeyPair::generate().unwrap()).collect();
    let jwks: Vec<Value> = signers
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let x = base64::encode_url(key.public_key().as_ref());
            json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": format!("k{at}") })
        })
        .collect();
    let running = Stand::new(&KIND, json!({ "keys": json!({ "keys": jwks }).to_string() })).build();
    let signed = |key: &Ed25519KeyPair, header: &Value| {
        let text = |part: String| base64::encode_url(part.as_bytes());
        let claims = json!({ "exp": now() + 60 }).to_string();
        let signed = format!("{}.{}", text(header.to_string()), text(claims));
        format!("{signed}.{}", base64::encode_url(key.sign(signed.as_bytes()).as_ref()))
    };
    for key in [&signers[0], &signers[8], &signers[11]] {
        bearer(&running, &signed(key, &json!({ "alg": "EdDSA" }))).await.expect_continue();
    }
    let forged = Ed25519KeyPair::generate().unwrap();
    bearer(&running, &signed(&forged, &json!({ "alg": "EdDSA" }))).await.expect_cause(&TOKEN_SIGNATURE);
    let named = json!({ "alg": "EdDSA", "kid": "k11" });
    bearer(&running, &signed(&signers[11], &named)).await.expect_continue();
    bearer(&running, &signed(&signers[10], &named)).await.expect_cause(&TOKEN_SIGNATURE);
}

#[test]
fn dear_signatures_leave_the_core() {
    let token = |header: Value| format!("{}.e30.AAAA", base64::encode_url(header.to_string().as_bytes()));
    let one = Ed25519KeyPair::generate().unwrap();
    let x = base64::encode_url(one.public_key().as_ref());
    let of = |keys: usize| {
        let keys: Vec<Value> = (0..keys)
            .map(|at| json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": at.to_string() }))
            .collect();
        KeySet::read(json!({ "keys": keys }).to_string().as_bytes(), Secrets::Allowed).unwrap().0
    };
    for (keys, header, cost) in [
        (1, json!({ "alg": "EdDSA" }), 1),
        (12, json!({ "alg": "EdDSA" }), 12),
        (12, json!({ "alg": "EdDSA", "kid": "3" }), 1),
        (12, json!({ "alg": "ES512" }), 0),
    ] {
        let token = token(header);
        assert_eq!(of(keys).cost(&parse(token.as_bytes()).unwrap()), cost, "{keys} {token}");
    }
    assert!(
        Algorithm::ES512.cost() > COST && Algorithm::ES384.cost() > COST && Algorithm::RS256.cost() <= COST
    );
}

#[tokio::test]
async fn two_tokens_are_one_too_many() {
    let good = token(json!({}));
    let running = build(json!({ "cookie": "t" }));
    for two in [
        format!("Authorization: Bearer {good}\nAuthorization: Bearer {good}"),
        format!("Authorization: Bearer {good}\nAuthorization: Basic YTpi"),
        format!("Authorization: Bearer {good}\nCookie: t={good}"),
        format!("Cookie: t={good}; a=b\nCookie: t={good}"),
    ] {
        let mut exchange = running.request(&format!("GET /\n{two}")).await;
        exchange.expect_status(400).expect_cause(&TOKEN_REPEATED);
        assert!(exchange.header("www-authenticate")[0].contains("invalid_request"));
    }
    let mut exchange = running.request(&format!("GET /\nCookie: a=b; t={good}")).await;
    exchange.expect_continue().expect_header("cookie", &format!("a=b; t={good}"));
    let hiding = build(json!({ "cookie": "t", "hide": true }));
    hiding.request(&format!("GET /\nCookie: a=b; t={good}")).await.expect_header("cookie", "a=b");
}

#[tokio::test]
async fn hostile_headers() {
    let claims = json!({ "exp": now() + 3600 }).to_string();
    for (header, cause) in [
        (json!({ "alg": "none" }), &TOKEN_ALGORITHM),
        (json!({ "alg": "RS256" }), &TOKEN_KEY),
        (json!({ "alg": "HS512" }), &TOKEN_SIGNATURE),
        (json!({ "alg": "HS256", "crit": ["exp"] }), &TOKEN_MALFORMED),
        (json!({ "alg": "HS256", "b64": false }), &TOKEN_MALFORMED),
        (json!({ "alg": "HS256", "jwk": { "kty": "oct", "k": "AAAA" } }), &TOKEN_MALFORMED),
        (json!({ "alg": "HS256", "jku": "https://evil.example/" }), &TOKEN_MALFORMED),
        (json!({ "alg": "HS256", "x5u": "https://evil.example/" }), &TOKEN_MALFORMED),
        (json!({ "alg": "HS256", "kid": { "a": 1 } }), &TOKEN_MALFORMED),
    ] {
        run(json!({}), &sign(&header, &claims)).await.expect_cause(cause);
    }
    let header = json!({ "alg": "HS256" });
    for claims in
        ["[]", "", "{\"exp\":9999999999,\"exp\":1}", "{\"exp\":9999999999,\"sub\":\"a\",\"sub\":\"b\"}"]
    {
        run(json!({}), &sign(&header, claims)).await.expect_cause(&TOKEN_MALFORMED);
    }
    let good = token(json!({}));
    let (signed, _) = good.rsplit_once('.').unwrap();
    for cut in [
        signed.to_owned(),
        format!("{signed}."),
        format!("{good}."),
        format!("{good}="),
        format!(" {good} x"),
    ] {
        run(json!({}), &cut).await.expect_cause(&TOKEN_MALFORMED);
    }
    run(json!({}), &format!("{signed}.AAAA")).await.expect_cause(&TOKEN_SIGNATURE);
    run(json!({ "algorithms": ["HS512", "HS256"] }), &good).await.expect_continue();
    run(json!({ "algorithms": ["HS512"] }), &good).await.expect_status(401).expect_cause(&TOKEN_ALGORITHM);
}

#[tokio::test]
async fn times_issuers_audiences_and_types() {
    let endless = sign(&json!({ "alg": "HS256" }), "{}");
    run(json!({}), &endless).await.expect_cause(&TOKEN_TIME);
    run(json!({ "allow_endless": true }), &endless).await.expect_continue();
    run(json!({}), &token(json!({ "exp": now() - 31 }))).await.expect_cause(&TOKEN_EXPIRED).expect_header(
        "www-authenticate",
        "Bearer realm=\"weir\", error=\"invalid_token\", error_description=\"The token has expired.\"",
    );
    run(json!({ "leeway": "1h" }), &token(json!({ "exp": now() - 31 }))).await.expect_continue();
    run(json!({}), &token(json!({ "nbf": now() + 60 }))).await.expect_cause(&TOKEN_TIME);
    let strict = json!({ "issuers": ["https://a/"], "audiences": ["b", "c"], "types": ["at+jwt"] });
    let header = |typ: &str| json!({ "alg": "HS256", "typ": typ });
    let claims = |iss: &str, aud: Value| json!({ "exp": now() + 3600, "iss": iss, "aud": aud }).to_string();
    for (token, cause) in [
        (sign(&header("at+jwt"), &claims("https://a/", json!("b"))), None),
        (sign(&header("application/at+JWT"), &claims("https://a/", json!(["x", "c"]))), None),
        (sign(&header("JWT"), &claims("https://a/", json!("b"))), Some(&TOKEN_CLAIMS)),
        (sign(&json!({ "alg": "HS256" }), &claims("https://a/", json!("b"))), Some(&TOKEN_CLAIMS)),
        (sign(&header("at+jwt"), &claims("https://a", json!("b"))), Some(&TOKEN_ISSUER)),
        (sign(&header("at+jwt"), &claims("https://a/", json!("x"))), Some(&TOKEN_AUDIENCE)),
        (sign(&header("at+jwt"), &json!({ "exp": now() + 9 }).to_string()), Some(&TOKEN_ISSUER)),
    ] {
        let mut exchange = run(strict.clone(), &token).await;
        match cause {
            None => exchange.expect_continue(),
            Some(cause) => exchange.expect_cause(cause),
        };
    }
}

#[tokio::test]
async fn what_is_required() {
    let settings = json!({ "require": { "scope": "read", "realm.roles": { "contains": "ops" } } });
    let good = json!({ "scope": "write read", "realm": { "roles": ["dev", "ops"] } });
    run(settings.clone(), &token(good)).await.expect_continue();
    for bad in
        [json!({}), json!({ "scope": "read" }), json!({ "scope": "reader", "realm": { "roles": ["ops"] } })]
    {
        let mut exchange = run(settings.clone(), &token(bad)).await;
        exchange.expect_status(403).expect_cause(&TOKEN_CLAIMS);
        let challenge = exchange.header("www-authenticate").remove(0);
        assert!(
            challenge.contains("insufficient_scope") && challenge.ends_with("scope=\"read\""),
            "{challenge}"
        );
    }
}

#[tokio::test]
async fn claims_become_headers_and_name_the_consumer() {
    let settings =
        with_secret(json!({ "consumer": "azp", "headers": { "x-user": "sub", "x-roles": "roles" } }));
    let mut stand = Stand::new(&KIND, settings).consumer(consumer("shop", &["shop-app", "shop-web"]));
    let running = stand.build();
    let good = token(json!({ "azp": "shop-web", "sub": "ann" }));
    for _ in 0..2 {
        let request = format!("GET /\nX-User: forged\nX-Roles: forged\nAuthorization: Bearer {good}");
        let mut exchange = running.request(&request).await;
        exchange.expect_continue().expect_header("x-user", "ann").expect_no_header("x-roles");
        assert_eq!(exchange.cx.consumer().map(|c| c.name.as_str()), Some("shop"));
    }
    for claims in [json!({}), json!({ "azp": "other" }), json!({ "azp": ["shop-web"] })] {
        let mut exchange = bearer(&running, &token(claims)).await;
        exchange.expect_status(403).expect_cause(&TOKEN_CONSUMER);
        assert!(exchange.cx.consumer().is_none());
    }
    let split = token(json!({ "azp": "shop-web", "sub": "a\r\nx: y" }));
    bearer(&running, &split).await.expect_cause(&TOKEN_CLAIMS);
}

#[tokio::test]
async fn a_consumer_may_be_bound_to_addresses() {
    let bound = Consumer { allow_ips: ["10.0.0.0/8".parse().unwrap()].into(), ..consumer("bound", &["b"]) };
    let running = Stand::new(&KIND, with_secret(json!({ "consumer": "sub" }))).consumer(bound).build();
    let good = token(json!({ "sub": "b" }));
    bearer(&running, &good).await.expect_status(403).expect_cause(&CONSUMER_ADDRESS);
    bearer(&running.from("10.1.2.3"), &good).await.expect_continue();
}

#[tokio::test]
async fn what_is_remembered_ends_with_the_token() {
    let running = build(json!({ "leeway": "0s" }));
    let (good, soon) = (token(json!({})), token(json!({ "exp": now() + 60 })));
    for _ in 0..3 {
        bearer(&running, &good).await.expect_continue();
    }
    let (signed, tag) = good.rsplit_once('.').unwrap();
    let other = if tag.starts_with('A') { "B" } else { "A" };
    bearer(&running, &format!("{signed}.{other}{}", &tag[1..])).await.expect_cause(&TOKEN_SIGNATURE);
    bearer(&running, &soon).await.expect_continue();
    AHEAD.set(60);
    bearer(&running, &soon).await.expect_cause(&TOKEN_EXPIRED);
    AHEAD.set(0);
}

// === keys of a URL ===

/// A provider's key: its name and its key pair.
struct Signer(&'static str, Ed25519KeyPair);

impl Signer {
    fn new(name: &'static str) -> Self {
        Self(name, Ed25519KeyPair::generate().unwrap())
    }

    fn jwk(&self) -> Value {
        let x = base64::encode_url(self.1.public_key().as_ref());
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.0, "x": x })
    }

    fn token(&self) -> String {
        let header = json!({ "alg": "EdDSA", "kid": self.0 }).to_string();
        let claims = json!({ "exp": now() + 3600 }).to_string();
        let signed =
            format!("{}.{}", base64::encode_url(header.as_bytes()), base64::encode_url(claims.as_bytes()));
        let signature = self.1.sign(signed.as_bytes());
        format!("{signed}.{}", base64::encode_url(signature.as_ref()))
    }
}

/// A filter whose keys the test provides.
fn remote(settings: Value) -> (Running, Receiver<Asked>, Stand) {
    let mut stand = Stand::new(&KIND, settings);
    let running = stand.build();
    let (fetcher, asked) = Fetcher::channel();
    stand.tend(&fetcher);
    (running, asked, stand)
}

fn answer(asked: Asked, keys: &[&Signer]) {
    let body = json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }).to_string();
    asked.answer.send(Ok(CallAnswer { status: 200, headers: Vec::new(), body: body.into() })).unwrap();
}

#[tokio::test]
async fn the_first_request_waits_for_the_keys() {
    let key = Signer::new("a");
    let (running, mut asked, _stand) = remote(json!({ "keys": "https://idp.example/keys" }));
    let token = key.token();
    let (mut exchange, ()) = tokio::join!(bearer(&running, &token), async {
        answer(asked.recv().await.unwrap(), &[&key]);
    });
    exchange.expect_continue();
    bearer(&running, &token).await.expect_continue();
    // An unknown key right after a fetch: no further fetch, and no wait.
    bearer(&running, &Signer::new("b").token()).await.expect_status(401).expect_cause(&TOKEN_KEY);
    // A different key with the same name is still refused.
    bearer(&running, &Signer::new("a").token()).await.expect_cause(&TOKEN_SIGNATURE);
}

#[tokio::test]
async fn without_keys_nothing_passes() {
    let (running, mut asked, _stand) = remote(json!({ "keys": "https://idp.example/keys" }));
    let token = Signer::new("a").token();
    let (mut exchange, ()) = tokio::join!(bearer(&running, &token), async {
        asked.recv().await.unwrap().answer.send(Err(FetchError::Timeout)).unwrap();
    });
    exchange.expect_status(503).expect_cause(&TOKEN_KEYS).expect_no_header("www-authenticate");
}

#[tokio::test]
async fn a_key_that_is_gone_verifies_nothing_remembered() {
    let (old, new) = (Signer::new("a"), Signer::new("b"));
    let (running, mut asked, _stand) = remote(json!({ "keys": "https://idp.example/keys", "refresh": "1s" }));
    let token = old.token();
    let (mut exchange, ()) = tokio::join!(bearer(&running, &token), async {
        answer(asked.recv().await.unwrap(), &[&old]);
    });
    exchange.expect_continue();
    answer(asked.recv().await.unwrap(), &[&new]);
    while let Flow::Continue = bearer(&running, &token).await.flow {
        tokio::task::yield_now().await;
    }
    bearer(&running, &token).await.expect_cause(&TOKEN_KEY);
    bearer(&running, &new.token()).await.expect_continue();
}

#[tokio::test]
async fn filters_with_the_same_url_share_its_keys() {
    let (_running, mut asked, mut stand) = remote(json!({ "keys": "https://idp.example/keys" }));
    stand = stand.scope("routes.other");
    let other = stand.build();
    let (fetcher, mut nobody) = Fetcher::channel();
    stand.tend(&fetcher);
    let key = Signer::new("a");
    let token = key.token();
    let (mut exchange, ()) = tokio::join!(bearer(&other, &token), async {
        answer(asked.recv().await.unwrap(), &[&key]);
    });
    exchange.expect_continue();
    assert!(nobody.try_recv().is_err());
}

// === mistakes ===

#[test]
fn mistakes() {
    let told = |settings: Value| Stand::new(&KIND, settings).mistakes();
    for (settings, why) in [
        (json!({}), "keys: is missing"),
        (json!({ "keys": "https://a/", "secret": SECRET }), "there are `keys` too"),
        (json!({ "secret": "short" }), "at least 32"),
        (json!({ "keys": "http://idp.example/keys" }), "clear text"),
        (json!({ "keys": "https:///keys" }), "keys: is not a URL"),
        (json!({ "keys": "missing.json" }), "missing.json cannot be read"),
        (json!({ "keys": "{}" }), "no key that verifies"),
        (json!({ "keys": "https://a/", "algorithms": ["HS256"] }), "algorithms: HS256"),
        (json!({ "keys": "https://a/", "ca": "missing.pem" }), "ca: missing.pem cannot be read"),
        (with_secret(json!({ "algorithms": ["ES256"] })), "no key is for one of them"),
        (with_secret(json!({ "algorithms": ["none"] })), "none"),
        (with_secret(json!({ "refresh": "0s" })), "refresh: is under a second"),
        (with_secret(json!({ "consumer": "azp" })), "consumer: no consumer has a value"),
        (with_secret(json!({ "headers": { "host": "sub" } })), "headers.host"),
        (with_secret(json!({ "headers": { "authorization": "sub" } })), "carries the token"),
        (with_secret(json!({ "issuers": [""] })), "issuers[0]: is empty"),
        (with_secret(json!({ "require": { "a": [] } })), "is not a requirement"),
        (with_secret(json!({ "scheme": "a b" })), "not a single word"),
        (with_secret(json!({ "requires": {} })), "requires"),
    ] {
        let told = told(settings.clone());
        assert!(told.iter().any(|one| one.contains(why)), "{settings}: {told:?}");
    }
    let twice = Stand::new(&KIND, with_secret(json!({ "consumer": "azp" })))
        .consumer(consumer("a", &["x"]))
        .consumer(consumer("b", &["x"]))
        .mistakes();
    assert!(twice[0].contains("consumer `b` already belongs to consumer `a`"), "{twice:?}");
}

#[test]
fn a_file_is_watched() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("keys.json");
    std::fs::write(&path, json!({ "keys": [Signer::new("a").jwk()] }).to_string()).unwrap();
    let mut stand = Stand::new(&KIND, json!({ "keys": path }));
    stand.build();
    assert_eq!(stand.watched(), [path]);
}
