//! Signed tokens from the client's side, with a provider's keys. The filter's own file tests its decisions on tokens.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_testkit::{Response, Upstream, Weir};
use weir_wire::base64::encode_url;

use crate::cause::{TOKEN_EXPIRED, TOKEN_KEY, TOKEN_KEYS, TOKEN_MISSING, TOKEN_SIGNATURE};
use crate::support::{OK, WEB};

/// Signs tokens like a provider.
pub(crate) struct Signer {
    id: &'static str,
    pair: Ed25519KeyPair,
}

impl Signer {
    pub(crate) fn new(id: &'static str) -> Self {
        Self { id, pair: Ed25519KeyPair::generate().unwrap() }
    }

    /// The public key in a key set.
    pub(crate) fn jwks(&self) -> String {
        let x = encode_url(self.pair.public_key().as_ref());
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{}","x":"{x}"}}]}}"#, self.id)
    }

    /// A provider that publishes the set.
    pub(crate) fn provider(&self) -> Upstream {
        let set = self.jwks();
        Upstream::fixed(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{set}", set.len()))
    }

    pub(crate) fn token(&self, claims: &str) -> String {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, self.id);
        let signed = format!("{}.{}", encode_url(header.as_bytes()), encode_url(claims.as_bytes()));
        let signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", encode_url(signature.as_ref()))
    }

    fn good(&self) -> String {
        self.token(&format!(r#"{{"sub":"ann","exp":{}}}"#, in_an_hour()))
    }
}

/// In seconds since 1970.
pub(crate) fn in_an_hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600
}

#[track_caller]
fn start(upstream: &Upstream, keys: &str, more: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nworkers: 2\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
         filters: [ {{ jwt: {{ keys: \"{keys}\", headers: {{ x-user: sub }} {more} }} }} ]\n    upstream: up\n",
        upstream.address()
    ))
}

#[track_caller]
fn ask(weir: &Weir, token: &str) -> Response {
    weir.client()
        .ask(format!("GET / HTTP/1.1\r\nHost: h\r\nX_User: evil\r\nAuthorization: Bearer {token}\r\n\r\n"))
}

#[test]
fn keys_of_a_provider() {
    let (upstream, signer) = (Upstream::fixed(OK), Signer::new("a"));
    let provider = signer.provider();
    let weir = start(&upstream, &format!("http://{}/keys", provider.address()), "");
    for _ in 0..8 {
        ask(&weir, &signer.good()).expect_status(200);
        let head = upstream.take_request().head;
        assert_eq!((head.all("x-user"), head.header("x_user")), (vec!["ann"], None));
    }
    let refused = ask(&weir, &Signer::new("b").good());
    refused.expect_cause(TOKEN_KEY);
    assert!(refused.header("www-authenticate").is_some_and(|challenge| challenge.contains("invalid_token")));
    ask(&weir, &Signer::new("a").good()).expect_cause(TOKEN_SIGNATURE);
    ask(&weir, &signer.token(r#"{"exp":1}"#)).expect_cause(TOKEN_EXPIRED);
    weir.client()
        .get("/")
        .expect_cause(TOKEN_MISSING)
        .expect_header("www-authenticate", "Bearer realm=\"weir\"");
    // One fetch for all cores and requests, whatever their tokens.
    let fetched = provider.requests();
    assert_eq!(fetched.len(), 1, "{fetched:?}");
    assert_eq!(fetched[0].head.line, "GET /keys HTTP/1.1");
    // A reload keeps the keys, even while the provider is down.
    drop(provider);
    weir.reload().unwrap();
    ask(&weir, &signer.good()).expect_status(200);
}

#[test]
fn a_provider_that_is_down() {
    let (upstream, signer) = (Upstream::fixed(OK), Signer::new("a"));
    let (_held, nobody) = weir_testkit::refusing_address();
    let weir = start(&upstream, &format!("http://{nobody}/keys"), "");
    ask(&weir, &signer.good()).expect_cause(TOKEN_KEYS);
    weir.wait_log("keys not fetched");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn keys_of_a_file() {
    let (upstream, old, new) = (Upstream::fixed(OK), Signer::new("a"), Signer::new("b"));
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("keys.json");
    fs::write(&path, old.jwks()).unwrap();
    let weir = start(&upstream, &path.display().to_string(), "");
    ask(&weir, &old.good()).expect_status(200);
    ask(&weir, &new.good()).expect_cause(TOKEN_KEY);
    fs::write(&path, new.jwks()).unwrap();
    weir.reload().unwrap();
    ask(&weir, &new.good()).expect_status(200);
    ask(&weir, &old.good()).expect_cause(TOKEN_KEY);
    // An invalid file is refused, and the previous one stays in use.
    fs::write(&path, "{}").unwrap();
    weir.reload().unwrap_err();
    ask(&weir, &new.good()).expect_status(200);
}
