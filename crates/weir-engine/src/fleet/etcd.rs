//! Questions to an etcd, over its JSON gateway. On one thread: connections do not change threads.

use super::{machine, trust};
use crate::config::schema::EtcdSource;
use crate::fetch::{FetchRequest, Following, Surroundings, Trust, Url, Version, fetch};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weir_fleet::coordinator::{Campaigned, Looked};
use weir_fleet::etcd::{self, Keys, Question, Range, WatchLine};
use weir_fleet::follower::{Seen, Told};
use weir_fleet::session::Lease;
use weir_fleet::{Bundle, Digest, NodeReport, Pointer};
use weir_h1::FieldName;

/// How long a question may take, each server that is tried included. Less than the machines of weir-fleet wait.
const WAIT: Duration = Duration::from_secs(8);

/// How long one server may take, where there are others.
const WAIT_ONE: Duration = Duration::from_secs(3);

/// Longest answer but for those that hold a bundle or reports, in bytes.
const SMALL: usize = 256 << 10;

/// Longest answer with a bundle: as base64, with some space around it.
const WITH_BUNDLE: usize = weir_fleet::bundle::PUBLISHED_BYTES / 3 * 4 + (64 << 10);

/// Longest page of reports.
const WITH_REPORTS: usize = etcd::PAGE * weir_fleet::report::REPORT_BYTES / 3 * 4 + (64 << 10);

/// Longest line of a watch: it holds the pointers of some moments.
const LINE: usize = 1 << 20;

/// An etcd and the keys of one fleet in it.
pub(crate) struct Etcd {
    servers: Vec<Url>,
    first: Url,
    /// The server that answered last.
    at: Cell<usize>,
    pub(crate) keys: Keys,
    pub(crate) node: String,
    trust: Trust,
    login: Option<(String, String)>,
    token: RefCell<Option<String>>,
    surroundings: Rc<Surroundings>,
}

/// What came of a question.
enum Asked {
    Answer(Bytes),
    /// The server does not answer, or not now.
    Away(String),
    /// The token is not valid any more.
    Stale,
    Refused(String),
}

impl Etcd {
    /// As the config has it.
    pub(crate) fn new(written: &EtcdSource, surroundings: Rc<Surroundings>) -> Result<Self, String> {
        let trust = trust(&written.ca, &written.client_cert, &written.client_key)?;
        let node = written.node.clone().unwrap_or_else(machine);
        let servers = written.servers.clone();
        // Nodes begin with different members.
        let start = Digest::of(&[node.as_bytes()]).number() % servers.len().max(1) as u64;
        Ok(Self {
            at: Cell::new(usize::try_from(start).unwrap_or(0)),
            first: servers.first().cloned().ok_or("no server is named")?,
            servers,
            keys: Keys::new(&written.prefix),
            node,
            trust,
            login: written
                .user
                .clone()
                .zip(written.password.as_ref().map(|secret| secret.reveal().to_owned())),
            token: RefCell::default(),
            surroundings,
        })
    }

    /// Where it is, in words.
    pub(crate) fn place(&self) -> String {
        let first = self.first.origin();
        format!("etcd {first} {}", self.keys.pointer().trim_end_matches("/current"))
    }

    // === asking ===

    /// Asks one server after the other until one answers.
    pub(crate) async fn ask(&self, question: &Question, limit: usize) -> Result<Bytes, String> {
        tokio::time::timeout(WAIT, self.ask_all(question, limit))
            .await
            .unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn ask_all(&self, question: &Question, limit: usize) -> Result<Bytes, String> {
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
                Asked::Stale => return Err("etcd takes no token of this user".to_owned()),
                Asked::Refused(why) => return Err(why),
                Asked::Away(why) => last = format!("{}: {why}", server.origin()),
            }
            self.at.set(self.at.get().wrapping_add(1));
            tries += 1;
        }
        Err(last)
    }

    fn server(&self) -> Url {
        let at = self.at.get() % self.servers.len().max(1);
        self.servers.get(at).unwrap_or(&self.first).clone()
    }

    async fn ask_one(&self, server: &Url, question: &Question, limit: usize) -> Asked {
        let token = match self.token(server).await {
            Ok(token) => token,
            Err(asked) => return asked,
        };
        self.post(server, question, token.as_deref(), limit).await
    }

    /// The token that this user has, asked for where there is none.
    async fn token(&self, server: &Url) -> Result<Option<String>, Asked> {
        let Some((user, password)) = &self.login else { return Ok(None) };
        if let Some(token) = self.token.borrow().clone() {
            return Ok(Some(token));
        }
        match self.post(server, &Keys::authenticate(user, password), None, SMALL).await {
            Asked::Answer(body) => {
                let token = etcd::token(&body).map_err(Asked::Refused)?;
                *self.token.borrow_mut() = Some(token.clone());
                Ok(Some(token))
            }
            Asked::Stale => {
                Err(Asked::Refused("etcd knows no such user, or not with this password".to_owned()))
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
        }
    }

    async fn post(&self, server: &Url, question: &Question, token: Option<&str>, limit: usize) -> Asked {
        let request = self.request(server, question, token, limit);
        match tokio::time::timeout(WAIT_ONE, fetch(&request, &self.surroundings)).await {
            Ok(Ok(answer)) => sorted(answer.status, answer.body),
            Ok(Err(e)) => Asked::Away(e.to_string()),
            Err(_) => Asked::Away("no answer in time".to_owned()),
        }
    }

    // === what a node asks ===

    pub(crate) async fn read(&self) -> Result<Seen, String> {
        let body = self.ask(&self.keys.read_pointer(), SMALL).await?;
        Ok(etcd::seen(&etcd::range(&body)?))
    }

    /// The pointer with the revision that it was written at, for a publisher.
    pub(crate) async fn bundle(&self, digest: Digest) -> Result<Bundle, String> {
        let body = self.ask(&self.keys.read_bundle(digest), WITH_BUNDLE).await?;
        let range: Range = etcd::range(&body)?;
        let entry = range.entries.first().ok_or_else(|| format!("bundle {} is not there", digest.short()))?;
        let bundle = Bundle::unpack(&entry.value).map_err(|e| format!("bundle {}: {e}", digest.short()))?;
        if bundle.digest() == digest {
            Ok(bundle)
        } else {
            Err(format!(
                "what is stored as bundle {} is another: {}",
                digest.short(),
                bundle.digest().short()
            ))
        }
    }

    pub(crate) async fn grant(&self) -> Result<Lease, String> {
        etcd::granted(&self.ask(&Keys::grant(), SMALL).await?)
    }

    pub(crate) async fn keep_alive(&self, lease: Lease) -> Result<bool, String> {
        etcd::kept_alive(&self.ask(&Keys::keep_alive(lease), SMALL).await?)
    }

    pub(crate) async fn revoke(&self, lease: Lease) -> Result<(), String> {
        self.ask(&Keys::revoke(lease), SMALL).await.map(drop)
    }

    pub(crate) async fn put_report(&self, lease: Lease, report: &[u8]) -> Result<(), String> {
        let body = self.ask(&self.keys.put_report(&self.node, lease, report), SMALL).await?;
        etcd::range(&body).map(drop)
    }

    pub(crate) async fn campaign(&self, lease: Lease) -> Result<Campaigned, String> {
        let body = self.ask(&self.keys.campaign(&self.node, lease), SMALL).await?;
        etcd::campaigned(&body, &self.node, lease)
    }

    pub(crate) async fn transact(&self, question: &Question) -> Result<bool, String> {
        etcd::succeeded(&self.ask(question, SMALL).await?)
    }

    pub(crate) async fn move_pointer(
        &self,
        pointer: &Pointer,
        revision: u64,
        key: u64,
    ) -> Result<bool, String> {
        self.transact(&self.keys.move_pointer(pointer, revision, key)).await
    }

    pub(crate) async fn look(&self) -> Result<Looked, String> {
        let mut nodes: Vec<NodeReport> = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let body = self.ask(&self.keys.read_nodes(after.as_deref()), WITH_REPORTS).await?;
            let range = etcd::range(&body)?;
            nodes.extend(etcd::reports(&range));
            match range.entries.last() {
                Some(last) if range.more && nodes.len() < etcd::NODES => after = Some(last.key.clone()),
                _ => return Ok(Looked { nodes }),
            }
        }
    }

    // === watching ===

    /// Watches the pointer until the watch ends; why it did.
    pub(crate) async fn watch(&self, from: u64, tell: impl Fn(Told)) -> String {
        let mut following = match tokio::time::timeout(WAIT, self.open_watch(from)).await {
            Ok(Ok(following)) => following,
            Ok(Err(why)) => return why,
            Err(_) => return "no answer in time".to_owned(),
        };
        let mut line = Vec::new();
        loop {
            let piece = match following.piece().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return "etcd ended the watch".to_owned(),
                Err(e) => return e.to_string(),
            };
            for part in piece.split_inclusive(|b| *b == b'\n') {
                line.extend_from_slice(part);
                if line.len() > LINE {
                    return format!("a line of the watch is longer than {LINE} bytes");
                }
                if line.last() != Some(&b'\n') {
                    continue;
                }
                match etcd::watch_line(&line) {
                    WatchLine::Told(told) => tell(told),
                    WatchLine::Over(why) => return why,
                }
                line.clear();
            }
        }
    }

    async fn open_watch(&self, from: u64) -> Result<Following, String> {
        let server = self.server();
        let token = match self.token(&server).await {
            Ok(token) => token,
            Err(Asked::Away(why) | Asked::Refused(why)) => return Err(why),
            Err(Asked::Answer(_) | Asked::Stale) => return Err("etcd takes no token of this user".to_owned()),
        };
        let request = self.request(&server, &self.keys.watch_pointer(from), token.as_deref(), SMALL);
        let opened = Following::open(&request, &self.surroundings).await.map_err(|e| e.to_string());
        let following = opened.inspect_err(|_| self.at.set(self.at.get().wrapping_add(1)))?;
        match following.status {
            200 => Ok(following),
            401 => {
                *self.token.borrow_mut() = None;
                Err("the token is not valid any more".to_owned())
            }
            status => Err(format!("etcd answers {status} to a watch")),
        }
    }
}

fn sorted(status: u16, body: Bytes) -> Asked {
    match status {
        200 => Asked::Answer(body),
        401 => Asked::Stale,
        500..=599 => Asked::Away(format!("{status}: {}", etcd::error(&body))),
        _ => Asked::Refused(etcd::error(&body)),
    }
}
