//! An in-memory certificate authority, as strict as RFC 8555. It verifies every signature, accepts a nonce once,
//! rejects every fifth valid one, and looks for proofs like a real one.

use crate::session::{Answer, Answered, Ask, Transport};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use rcgen::{
    CertificateParams, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SerialNumber,
    SignatureAlgorithm,
};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use weir_wire::base64::decode_url;

pub(super) const URL: &str = "https://ca.test";

/// Looks for the proof of a name (kind, name, token); returns what it found.
type Look = Box<dyn Fn(&str, &str, &str) -> Option<String> + Send + Sync>;

pub(super) struct Authority {
    pub(super) now: Arc<AtomicI64>,
    pub(super) away: AtomicBool,
    /// While set, it does not check the proofs that it is asked to check.
    pub(super) slow: AtomicBool,
    pub(super) days: AtomicI64,
    pub(super) look: Mutex<Option<Look>>,
    pub(super) state: Mutex<State>,
    issuer: Issuer<'static, KeyPair>,
}

#[derive(Default)]
pub(super) struct State {
    counter: u64,
    nonces: HashSet<String>,
    /// Public key and thumbprint of each account, by URL.
    accounts: HashMap<String, Vec<u8>>,
    orders: Vec<Order>,
    pub(super) requests: usize,
    /// The payloads of new orders.
    pub(super) ordered: Vec<Value>,
    pub(super) window: Option<(String, String)>,
    /// The response to the next new order.
    pub(super) refuse: Option<(u16, Value, Option<String>)>,
}

struct Order {
    name: String,
    token: String,
    status: &'static str,
    error: Option<Value>,
    asked: bool,
    chain: Option<String>,
}

/// The public key in a certificate signing request.
struct Public(Vec<u8>);

impl PublicKeyData for Public {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    pub(super) fn new(now: &Arc<AtomicI64>) -> Arc<Self> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = Issuer::new(params, KeyPair::generate().unwrap());
        Arc::new(Self {
            now: Arc::clone(now),
            away: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            days: AtomicI64::new(90),
            look: Mutex::default(),
            state: Mutex::default(),
            issuer,
        })
    }

    pub(super) fn orders(&self) -> usize {
        self.state.lock().unwrap().ordered.len()
    }

    fn answer(&self, ask: &Ask) -> Answer {
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        let path = ask.url.strip_prefix(URL).unwrap();
        if ask.method != "POST" {
            return self.unsigned(&mut state, path);
        }
        let jws: Value = serde_json::from_slice(&ask.body).unwrap();
        let part = |name: &str| jws[name].as_str().unwrap().to_owned();
        let protected: Value =
            serde_json::from_slice(&decode_url(part("protected").as_bytes()).unwrap()).unwrap();
        assert_eq!(protected["url"], ask.url.as_str());
        let nonce = protected["nonce"].as_str().unwrap();
        let fresh = state.nonces.remove(nonce);
        if !fresh || state.requests.is_multiple_of(5) {
            return state.problem(400, json!({ "type": "urn:ietf:params:acme:error:badNonce" }));
        }
        let key = match protected["kid"].as_str() {
            Some(account) => match state.accounts.get(account) {
                Some(key) => key.clone(),
                None => {
                    let kind = "urn:ietf:params:acme:error:accountDoesNotExist";
                    return state.problem(400, json!({ "type": kind, "detail": "who?" }));
                }
            },
            None => {
                let coordinate =
                    |name: &str| decode_url(protected["jwk"][name].as_str().unwrap().as_bytes()).unwrap();
                [vec![4], coordinate("x"), coordinate("y")].concat()
            }
        };
        let signed = format!("{}.{}", part("protected"), part("payload"));
        let signature = decode_url(part("signature").as_bytes()).unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &key).verify(signed.as_bytes(), &signature).unwrap();
        let payload = decode_url(part("payload").as_bytes()).unwrap();
        self.signed(&mut state, path, &key, &payload)
    }

    fn unsigned(&self, state: &mut State, path: &str) -> Answer {
        match path {
            "/dir" => state.good(
                200,
                &json!({
                    "newNonce": format!("{URL}/nonce"), "newAccount": format!("{URL}/account"),
                    "newOrder": format!("{URL}/order"), "renewalInfo": format!("{URL}/renewal"),
                    "meta": { "profiles": { "shortlived": "six days" } },
                }),
            ),
            "/nonce" => state.good(200, &Value::Null),
            path if path.starts_with("/renewal/") => match state.window.clone() {
                Some((start, end)) => {
                    let mut answer =
                        state.good(200, &json!({ "suggestedWindow": { "start": start, "end": end } }));
                    answer.headers.push(("Retry-After".to_owned(), "21600".to_owned()));
                    answer
                }
                None => state.problem(404, json!({})),
            },
            other => panic!("{other} was asked for"),
        }
    }

    fn signed(&self, state: &mut State, path: &str, key: &[u8], payload: &[u8]) -> Answer {
        if let Some(number) = path.strip_prefix("/authz/").or_else(|| path.strip_prefix("/challenge/")) {
            let number: usize = number.parse().unwrap();
            if path.starts_with("/challenge/") {
                assert_eq!(payload, b"{}");
                state.orders[number].asked = !self.slow.load(Ordering::Relaxed);
            }
            self.validate(state, number);
            return state.authorization(number);
        }
        let read = || serde_json::from_slice::<Value>(payload).unwrap();
        match path {
            "/account" => {
                assert_eq!(read()["termsOfServiceAgreed"], true);
                let known =
                    state.accounts.iter().find(|(_, known)| *known == key).map(|(url, _)| url.clone());
                let url = known.unwrap_or_else(|| format!("{URL}/account/{}", state.accounts.len()));
                state.accounts.insert(url.clone(), key.to_vec());
                let mut answer = state.good(201, &json!({ "status": "valid" }));
                answer.headers.push(("location".to_owned(), url));
                answer
            }
            "/order" => {
                if let Some((status, problem, retry)) = state.refuse.take() {
                    let mut answer = state.problem(status, problem);
                    answer.headers.extend(retry.map(|retry| ("retry-after".to_owned(), retry)));
                    return answer;
                }
                let order = read();
                let name = order["identifiers"][0]["value"].as_str().unwrap().to_owned();
                state.ordered.push(order);
                state.counter += 1;
                let token = format!("token-{}", state.counter);
                state.orders.push(Order {
                    name,
                    token,
                    status: "pending",
                    error: None,
                    asked: false,
                    chain: None,
                });
                let number = state.orders.len() - 1;
                let mut answer = state.order(number);
                answer.headers.push(("Location".to_owned(), format!("{URL}/order/{number}")));
                answer
            }
            path if path.starts_with("/order/") => state.order(path[7..].parse().unwrap()),
            path if path.starts_with("/finalize/") => {
                let number: usize = path[10..].parse().unwrap();
                let csr = decode_url(read()["csr"].as_str().unwrap().as_bytes()).unwrap();
                let chain = self.issue(&state.orders[number].name, &csr, number);
                (state.orders[number].chain, state.orders[number].status) = (Some(chain), "valid");
                state.order(number)
            }
            path if path.starts_with("/cert/") => {
                let chain = state.orders[path[6..].parse::<usize>().unwrap()].chain.clone().unwrap();
                Answer { body: chain.into_bytes(), ..state.good(200, &Value::Null) }
            }
            other => panic!("{other} was asked for"),
        }
    }

    /// Looks for the proof, once asked to.
    fn validate(&self, state: &mut State, number: usize) {
        let order = &mut state.orders[number];
        if !order.asked || order.status != "pending" {
            return;
        }
        let base = order.name.trim_start_matches("*.");
        let look = self.look.lock().unwrap();
        let look = look.as_ref().unwrap();
        let found =
            ["http-01", "tls-alpn-01", "dns-01"].iter().any(|kind| look(kind, base, &order.token).is_some());
        if found {
            order.status = "ready";
        } else {
            order.status = "invalid";
            order.error =
                Some(json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": "nothing there" }));
        }
    }

    fn issue(&self, name: &str, csr: &[u8], number: usize) -> String {
        // The only point of a P-256 key in it, after the start of its bit string.
        let at = csr.windows(4).position(|window| window == [0x03, 0x42, 0x00, 0x04]).unwrap();
        let public = Public(csr[at + 3..at + 3 + 65].to_vec());
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        let now = u64::try_from(self.now.load(Ordering::Relaxed)).unwrap();
        let days = u64::try_from(self.days.load(Ordering::Relaxed)).unwrap();
        let begin = UNIX_EPOCH + Duration::from_secs(now - 3600);
        params.not_before = begin.into();
        params.not_after = (begin + Duration::from_secs(days * 86_400)).into();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from(u64::try_from(number).unwrap() + 1));
        params.signed_by(&public, &self.issuer).unwrap().pem()
    }
}

impl State {
    fn nonce(&mut self) -> (String, String) {
        self.counter += 1;
        let nonce = format!("nonce-{}", self.counter);
        self.nonces.insert(nonce.clone());
        ("Replay-Nonce".to_owned(), nonce)
    }

    fn good(&mut self, status: u16, body: &Value) -> Answer {
        Answer { status, headers: vec![self.nonce()], body: body.to_string().into_bytes() }
    }

    fn problem(&mut self, status: u16, problem: Value) -> Answer {
        self.good(status, &problem)
    }

    fn order(&mut self, number: usize) -> Answer {
        let order = &self.orders[number];
        let body = json!({
            "status": order.status, "error": order.error, "authorizations": [format!("{URL}/authz/{number}")],
            "finalize": format!("{URL}/finalize/{number}"),
            "certificate": order.chain.as_ref().map(|_| format!("{URL}/cert/{number}")),
        });
        self.good(200, &body)
    }

    fn authorization(&mut self, number: usize) -> Answer {
        let order = &self.orders[number];
        let status = if matches!(order.status, "ready" | "valid") { "valid" } else { order.status };
        let offered = |kind: &str| json!({ "type": kind, "url": format!("{URL}/challenge/{number}"), "token": order.token, "error": order.error });
        let kinds = ["http-01", "tls-alpn-01", "dns-01"].map(offered);
        let body = json!({ "status": status, "challenges": kinds });
        self.good(200, &body)
    }

    /// Forgets all accounts.
    pub(super) fn forget_accounts(&mut self) {
        self.accounts.clear();
    }
}

/// A connection to it.
pub(super) struct Wire(pub(super) Arc<Authority>);

impl Transport for Wire {
    fn ask(&self, ask: Ask) -> Answered<'_> {
        let away = self.0.away.load(Ordering::Relaxed);
        let answer = if away { Err("connection refused".to_owned()) } else { Ok(self.0.answer(&ask)) };
        Box::pin(std::future::ready(answer))
    }
}
