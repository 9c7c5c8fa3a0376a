//! A session with a certificate authority: its directory, its nonces, and signed requests, repeated if the authority
//! wants another nonce.

use crate::failure::{Failure, Kind};
use crate::jws::Signer;
use crate::message::{Directory, Problem, may_ask, retry_after};
use crate::{Clock, Settings};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

/// How often we repeat a request because the authority rejects its nonce (RFC 8555 §6.5). Pebble rejects one in
/// twenty on purpose.
const NONCE_TRIES: usize = 10;

/// Most nonces that we keep: a session needs one at a time.
const NONCES: usize = 4;

/// Largest response, in bytes: a chain takes some kilobytes.
pub const ANSWER_BYTES: usize = 256 * 1024;

/// A request for the transport to send.
#[derive(Clone, Debug)]
pub struct Ask {
    /// `GET`, `HEAD` or `POST`.
    pub method: &'static str,
    /// The URL: always `https`.
    pub url: String,
    /// The body, as `application/jose+json`.
    pub body: Vec<u8>,
    /// A PEM file of authorities to trust instead of the system's.
    pub trust: Option<PathBuf>,
}

/// A response with any status.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The header fields; names may be in any case.
    pub headers: Vec<(String, String)>,
    /// The body, at most [`ANSWER_BYTES`].
    pub body: Vec<u8>,
}

/// The result of a request: a response, or why there is none.
pub type Answered<'a> = Pin<Box<dyn Future<Output = Result<Answer, String>> + 'a>>;

/// Sends requests to a certificate authority. Does not follow redirects, and has its own timeout.
pub trait Transport: Send + Sync + 'static {
    /// Sends one request.
    fn ask(&self, ask: Ask) -> Answered<'_>;
}

/// A session.
pub(crate) struct Session<'a> {
    transport: &'a dyn Transport,
    settings: &'a Settings,
    clock: &'a Clock,
    pub(crate) directory: Directory,
    nonces: RefCell<Vec<String>>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// A successful response, with the useful parts of its header.
pub(crate) struct Good {
    pub(crate) body: Vec<u8>,
    /// The URL of the created resource.
    pub(crate) location: Option<String>,
    pub(crate) retry_after: Option<u64>,
}

/// Why a request failed, with the authority's message if it sent one.
pub(crate) struct Refusal {
    pub(crate) problem: Option<Problem>,
    pub(crate) failure: Failure,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        refusal.failure
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { problem: None, failure }
    }
}

impl Good {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let read = serde_json::from_slice(&self.body);
        read.map_err(|e| Failure::bad_answer(format!("the certificate authority's answer is not ACME: {e}")))
    }
}

impl<'a> Session<'a> {
    /// Opens a session by fetching the directory.
    pub(crate) async fn open(
        transport: &'a dyn Transport,
        settings: &'a Settings,
        clock: &'a Clock,
    ) -> Result<Self, Failure> {
        let empty = Directory {
            new_nonce: String::new(),
            new_account: String::new(),
            new_order: String::new(),
            renewal_info: None,
            meta: Default::default(),
        };
        let mut session = Self { transport, settings, clock, directory: empty, nonces: RefCell::default() };
        let answer = session.get(&settings.directory).await?;
        session.directory = serde_json::from_slice(&answer.body).map_err(|_| {
            Failure::bad_answer(format!("what {} answers is not an ACME directory", settings.directory))
        })?;
        Ok(session)
    }

    /// Sends an unsigned request.
    pub(crate) async fn get(&self, url: &str) -> Result<Good, Failure> {
        let answer = self.send("GET", url, Vec::new()).await?;
        self.judge(answer).map_err(Failure::from)
    }

    /// Sends a signed request. Without a payload it is a read (POST-as-GET).
    pub(crate) async fn post(
        &self,
        signer: Signer<'_>,
        url: &str,
        payload: Option<&Value>,
    ) -> Result<Good, Refusal> {
        let mut last = None;
        for _ in 0..NONCE_TRIES {
            let nonce = self.nonce().await?;
            let body = signer.sign(url, &nonce, payload)?;
            match self.judge(self.send("POST", url, body).await?) {
                Err(refused) if refused.problem.as_ref().is_some_and(|p| p.is("badNonce")) => {
                    last = Some(refused);
                }
                judged => return judged,
            }
        }
        Err(last.unwrap_or_else(|| Failure::bad_answer("no nonce was accepted").into()))
    }

    async fn nonce(&self) -> Result<String, Failure> {
        if let Some(kept) = self.nonces.borrow_mut().pop() {
            return Ok(kept);
        }
        let url = self.directory.new_nonce.clone();
        let answer = self.send("HEAD", &url, Vec::new()).await?;
        if answer.status >= 400 {
            return Err(self
                .judge(answer)
                .err()
                .map_or_else(|| Failure::bad_answer("no nonce"), Failure::from));
        }
        let kept = self.nonces.borrow_mut().pop();
        kept.ok_or_else(|| Failure::bad_answer("the certificate authority gives no nonce"))
    }

    async fn send(&self, method: &'static str, url: &str, body: Vec<u8>) -> Result<Answer, Failure> {
        if !may_ask(url) {
            let text =
                format!("`{}` is not a URL that may be asked; expected https", crate::failure::one_line(url));
            return Err(Failure::bad_answer(text));
        }
        let ask = Ask { method, url: url.to_owned(), body, trust: self.settings.trust.clone() };
        let answer = self.transport.ask(ask).await;
        let answer = answer.map_err(|why| Failure::new(Kind::Away, format!("{url}: {why}")))?;
        if let Some(nonce) = answer.header("replay-nonce") {
            let good = nonce.len() <= 256 && nonce.bytes().all(|b| b.is_ascii_graphic());
            let mut nonces = self.nonces.borrow_mut();
            if good && nonces.len() < NONCES {
                nonces.push(nonce.to_owned());
            }
        }
        Ok(answer)
    }

    fn judge(&self, answer: Answer) -> Result<Good, Refusal> {
        let retry_after = answer.header("retry-after").and_then(|value| retry_after(value, (self.clock)()));
        if (200..300).contains(&answer.status) {
            let location = answer.header("location").map(str::to_owned);
            return Ok(Good { body: answer.body, location, retry_after });
        }
        let problem: Problem = serde_json::from_slice(&answer.body).unwrap_or_default();
        let failure = problem.failure(answer.status, retry_after);
        Err(Refusal { problem: Some(problem), failure })
    }

    pub(crate) const fn settings(&self) -> &Settings {
        self.settings
    }
}

/// Shared by everything that talks to authorities.
pub(crate) type SharedTransport = Arc<dyn Transport>;
