//! A client of etcd over its JSON gateway, for fleets (`fleet`) and discovery (`discovery`). It stays on one thread,
//! because connections do not change threads.

pub mod fleet;

use crate::fetch::{Environment, FetchRequest, Following, Lines, Trust, Url, Version, fetch};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use weir_fleet::kv::{self, Question};
use weir_h1::FieldName;

/// How long a request may take, over all servers tried. Less than weir-fleet's machines wait.
const WAIT: Duration = Duration::from_secs(8);

/// How long one server may take if there are others.
const WAIT_ONE: Duration = Duration::from_secs(3);

/// Longest answer with only a few fields, in bytes.
pub(crate) const SMALL: usize = 256 << 10;

/// The gRPC status NOT_FOUND.
const NOT_FOUND: u64 = 5;

/// The servers of one etcd, and our credentials for it.
pub(crate) struct Client {
    servers: Vec<Url>,
    first: Url,
    /// The server that answered last.
    at: Cell<usize>,
    trust: Trust,
    login: Option<(String, String)>,
    token: RefCell<Option<String>>,
    environment: Arc<Environment>,
}

/// An open watch. Dropping it ends it.
pub(crate) struct Watch(Lines);

/// The result of asking one server.
enum Asked {
    Answer(Bytes),
    /// The server does not answer, or not now.
    Away(String),
    /// The token is no longer valid.
    Stale,
    Refused(AskError),
}

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) struct AskError {
    text: String,
    /// The gRPC status with which etcd refused it.
    code: Option<u64>,
}

impl AskError {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: None }
    }

    /// Whether the named thing does not exist, such as a lease that has ended.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == Some(NOT_FOUND)
    }
}

impl From<AskError> for String {
    fn from(e: AskError) -> Self {
        e.text
    }
}

impl Client {
    /// Starts with the server that `start` selects, so that many clients spread over many servers.
    pub(crate) fn new(
        servers: &[Url],
        start: u64,
        trust: Trust,
        login: Option<(String, String)>,
        environment: Arc<Environment>,
    ) -> Result<Self, String> {
        let start = start % servers.len().max(1) as u64;
        Ok(Self {
            at: Cell::new(usize::try_from(start).unwrap_or(0)),
            first: servers.first().cloned().ok_or("no server is named")?,
            servers: servers.to_vec(),
            trust,
            login,
            token: RefCell::default(),
            environment,
        })
    }

    /// Its first server, for people.
    pub(crate) fn origin(&self) -> String {
        self.first.origin()
    }

    /// Asks one server after another until one answers.
    pub(crate) async fn ask(&self, question: &Question, limit: usize) -> Result<Bytes, AskError> {
        tokio::time::timeout(WAIT, self.ask_all(question, limit))
            .await
            .unwrap_or_else(|_| Err(AskError::new("no answer in time")))
    }

    async fn ask_all(&self, question: &Question, limit: usize) -> Result<Bytes, AskError> {
        let mut last = "no server is named".to_owned();
        let mut logged_in = false;
        let mut tries = 0;
        while tries < self.servers.len() {
            let server = self.server();
            match self.ask_one(&server, question, limit).await {
                Asked::Answer(body) => return Ok(body),
                Asked::Stale if !logged_in => {
                    *self.token.borrow_mut() = None;
                    logged_in = true;
                    continue; // the same server, with a new token
                }
                Asked::Stale => return Err(AskError::new("etcd takes no token of this user")),
                Asked::Refused(why) => return Err(why),
                Asked::Away(why) => last = format!("{}: {why}", server.origin()),
            }
            self.next_server();
            tries += 1;
        }
        Err(AskError::new(last))
    }

    fn server(&self) -> Url {
        let at = self.at.get() % self.servers.len().max(1);
        self.servers.get(at).unwrap_or(&self.first).clone()
    }

    fn next_server(&self) {
        self.at.set(self.at.get().wrapping_add(1));
    }

    async fn ask_one(&self, server: &Url, question: &Question, limit: usize) -> Asked {
        let token = match self.token(server).await {
            Ok(token) => token,
            Err(asked) => return asked,
        };
        self.post(server, question, token.as_deref(), limit).await
    }

    /// This user's token, requested if there is none.
    async fn token(&self, server: &Url) -> Result<Option<String>, Asked> {
        let Some((user, password)) = &self.login else { return Ok(None) };
        if let Some(token) = self.token.borrow().clone() {
            return Ok(Some(token));
        }
        match self.post(server, &kv::authenticate(user, password), None, SMALL).await {
            Asked::Answer(body) => {
                let token = kv::token(&body).map_err(|why| Asked::Refused(AskError::new(why)))?;
                *self.token.borrow_mut() = Some(token.clone());
                Ok(Some(token))
            }
            Asked::Stale => {
                Err(Asked::Refused(AskError::new("etcd knows no such user, or not with this password")))
            }
            other => Err(other),
        }
    }

    fn request(&self, server: &Url, question: &Question, token: Option<&str>, limit: usize) -> FetchRequest {
        let field =
            |name, value: &str| FieldName::new(name).ok().map(|name| (name, value.as_bytes().to_vec()));
        let fields = [
            field("content-type", "application/json"),
            token.and_then(|token| field("authorization", token)),
        ];
        FetchRequest {
            method: "POST".to_owned(),
            url: server.with_target(question.path),
            headers: fields.into_iter().flatten().collect(),
            body: question.body.clone().into(),
            limit,
            timeout: WAIT_ONE,
            trust: self.trust.clone(),
            version: Version::Http11,
            socket: None,
        }
    }

    async fn post(&self, server: &Url, question: &Question, token: Option<&str>, limit: usize) -> Asked {
        let request = self.request(server, question, token, limit);
        match tokio::time::timeout(WAIT_ONE, fetch(&request, &self.environment)).await {
            Ok(Ok(answer)) => sorted(answer.status, answer.body),
            Ok(Err(e)) => Asked::Away(weir_wire::Chain(&e).to_string()),
            Err(_) => Asked::Away("no answer in time".to_owned()),
        }
    }

    /// Opens a watch at the server that answered last. A line may have up to `longest` bytes.
    pub(crate) async fn watch(&self, question: &Question, longest: usize) -> Result<Watch, String> {
        tokio::time::timeout(WAIT, self.open_watch(question, longest))
            .await
            .unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn open_watch(&self, question: &Question, longest: usize) -> Result<Watch, String> {
        let server = self.server();
        let token = match self.token(&server).await {
            Ok(token) => token,
            Err(Asked::Away(why)) => return Err(why),
            Err(Asked::Refused(why)) => return Err(why.into()),
            Err(Asked::Answer(_) | Asked::Stale) => return Err("etcd takes no token of this user".to_owned()),
        };
        let request = self.request(&server, question, token.as_deref(), SMALL);
        let opened =
            Following::open(&request, &self.environment).await.map_err(|e| weir_wire::Chain(&e).to_string());
        let following = opened.inspect_err(|_| self.next_server())?;
        match following.status {
            200 => Ok(Watch(Lines::new(following, longest))),
            401 => {
                *self.token.borrow_mut() = None;
                Err("the token is not valid any more".to_owned())
            }
            status => Err(format!("etcd answers {status} to a watch")),
        }
    }
}

impl Watch {
    /// The next line with its end, or why there is none. Cancel safe: bytes already read are kept.
    pub(crate) async fn line(&mut self) -> Result<&[u8], String> {
        match self.0.next().await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err("etcd ended the watch".to_owned()),
            Err(e) => Err(weir_wire::Chain(&e).to_string()),
        }
    }
}

fn sorted(status: u16, body: Bytes) -> Asked {
    match status {
        200 => Asked::Answer(body),
        401 => Asked::Stale,
        500..=599 => Asked::Away(format!("{status}: {}", kv::error(&body))),
        _ => Asked::Refused(AskError { text: kv::error(&body), code: kv::code(&body) }),
    }
}
