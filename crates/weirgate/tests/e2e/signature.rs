//! HTTP Message Signatures between clients, gateways and upstreams. The filters' own files test what a signature
//! covers, with the examples of RFC 9421.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_testkit::{Upstream, Weir};
use weir_wire::base64::encode;

use crate::cause::{DIGEST_WRONG, SIGNATURE_REPLAYED, SIGNATURE_UNKNOWN, SIGNATURE_WRONG};
use crate::support::{OK, WEB};

/// A client that signs.
pub(crate) struct Signing {
    id: &'static str,
    pair: Ed25519KeyPair,
}

impl Signing {
    pub(crate) fn new(id: &'static str) -> Self {
        Self { id, pair: Ed25519KeyPair::generate().unwrap() }
    }

    pub(crate) fn public_pem(&self) -> String {
        let der: PublicKeyX509Der<'_> = self.pair.public_key().as_der().unwrap();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", encode(der.as_ref()))
    }

    /// An http request with its body.
    pub(crate) fn request(&self, method: &str, host: &str, target: &str, body: &[u8]) -> Vec<u8> {
        let framing = format!("Content-Length: {}\r\n\r\n", body.len());
        [self.head(method, host, target, body).as_bytes(), framing.as_bytes(), body].concat()
    }

    /// A head signed for this body, without framing and end.
    pub(crate) fn head(&self, method: &str, host: &str, target: &str, body: &[u8]) -> String {
        let content_digest = format!("sha-256=:{}:", encode(digest(&SHA256, body).as_ref()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let input = format!(
            "(\"@method\" \"@target-uri\" \"content-digest\");created={};keyid=\"{}\";nonce=\"{}\"",
            now.as_secs(),
            self.id,
            now.as_nanos()
        );
        let base = format!(
            "\"@method\": {method}\n\"@target-uri\": http://{host}{target}\n\"content-digest\": {content_digest}\n\"@signature-params\": {input}"
        );
        let signature = encode(self.pair.sign(base.as_bytes()).as_ref());
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Digest: {content_digest}\r\nSignature-Input: s={input}\r\nSignature: s=:{signature}:\r\n"
        )
    }
}

/// A gateway that accepts this client's signatures.
#[track_caller]
fn verifying(upstream: &Upstream, key: &Signing) -> Weir {
    let pem = key.public_pem().replace('\n', "\\n");
    Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ shop: {{ signature_auth: [ {{ key_id: {}, algorithm: ed25519, \
         key: \"{pem}\" }} ] }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ signature_auth: {{}} }} ], upstream: up }} }}\n",
        upstream.address(),
        key.id
    ))
}

#[test]
fn a_signed_request_passes_once() {
    let (upstream, key) = (Upstream::fixed(OK), Signing::new("k"));
    let weir = verifying(&upstream, &key);
    let request = key.request("POST", "h", "/a%20b?c", b"hello");
    weir.client().ask(&request).expect_status(200);
    assert_eq!(upstream.take_request().body.bytes, b"hello");
    weir.client().ask(&request).expect_cause(SIGNATURE_REPLAYED);
    let of_trailer = String::from_utf8(key.request("POST", "h", "/a", b"hello")).unwrap();
    let of_trailer = of_trailer.replace("(\"@method\"", "(\"host\";tr \"@method\"");
    weir.client().ask(of_trailer).expect_cause(SIGNATURE_UNKNOWN);
    let changed = String::from_utf8(key.request("POST", "h", "/a", b"hello")).unwrap().replace("POST", "PUT");
    weir.client().ask(changed).expect_cause(SIGNATURE_WRONG);
    weir.client().ask(Signing::new("k").request("POST", "h", "/a", b"hello")).expect_cause(SIGNATURE_WRONG);
    assert_eq!(upstream.requests().len(), 0);
}

/// Regardless of its length and framing.
#[test]
fn no_upstream_sees_the_whole_of_a_forged_body() {
    let key = Signing::new("k");
    for length in [5, 100_000] {
        let body = vec![b'a'; length];
        let mut forged = body.clone();
        forged[length - 1] = b'b';
        let chunk = [format!("{length:x}\r\n").as_bytes(), &forged, b"\r\n0\r\n\r\n"].concat();
        for (framing, sent) in [
            (format!("Content-Length: {length}"), forged.clone()),
            ("Transfer-Encoding: chunked".to_owned(), chunk),
        ] {
            let upstream = Upstream::fixed(OK);
            let weir = verifying(&upstream, &key);
            let head = key.head("POST", "h", "/", &body);
            let answer = weir.client().ask([format!("{head}{framing}\r\n\r\n").as_bytes(), &sent].concat());
            answer.expect_cause(DIGEST_WRONG);
            drop(weir);
            assert!(upstream.requests().iter().all(|request| !request.complete), "{framing}, {length}");
        }
    }
}

/// One gateway signs, the next verifies.
#[test]
fn from_gateway_to_gateway() {
    const KEY: &str = "key_id: edge, algorithm: hmac-sha256, key: a-secret-of-thirty-two-bytes-or-more";
    pass_on(KEY, KEY);
}

/// The same with RSA, which signs off the core.
#[test]
fn from_gateway_to_gateway_by_rsa() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let pem = |label: &str, der: &[u8]| {
        format!("\"-----BEGIN {label}-----\\n{}\\n-----END {label}-----\\n\"", encode(der))
    };
    let private: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let key = |pem: String| format!("key_id: edge, algorithm: rsa-pss-sha512, key: {pem}");
    pass_on(&key(pem("PRIVATE KEY", private.as_ref())), &key(pem("PUBLIC KEY", public.as_ref())));
}

/// A gateway that signs with one key forwards requests to one that verifies with the other.
#[track_caller]
fn pass_on(signs: &str, verifies: &str) {
    let upstream = Upstream::fixed(OK);
    let inner = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ edge: {{ signature_auth: [ {{ {verifies} }} ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ signature_auth: {{ nonce: true }} }} ], upstream: up }} }}\n",
        upstream.address()
    ));
    let outer = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}], host: inner.test }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ sign: {{ {signs} }} }} ], upstream: up }} }}\n",
        inner.address("web")
    ));
    let mut client = outer.client();
    client.get("/a//b?c").expect_status(200);
    upstream.take_request();
    for framing in
        ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    {
        client
            .ask(format!("POST /a HTTP/1.1\r\nHost: outer.test\r\nSignature: x=:AA==:\r\n{framing}"))
            .expect_status(200);
        let request = upstream.take_request();
        assert_eq!(request.body.bytes, b"hello");
        assert_eq!(request.head.all("signature").len(), 1);
    }
}
