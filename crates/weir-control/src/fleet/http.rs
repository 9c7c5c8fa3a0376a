//! A bundle at a URL: requested with its ETag. The request is held open if the server delays its answer until there
//! is a new bundle.

use bytes::Bytes;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::schema::HttpSource;
use weir_fleet::follower::{Found, Seen, WatchEvent};
use weir_fleet::pointer::{Pointer, Rollout, State, VERSION};
use weir_fleet::{Bundle, Digest, bundle};
use weir_h1::FieldName;
use weir_upstream::fetch::{Environment, FetchRequest, Trust, Url, Version, fetch};

/// How long an answer may take.
const WAIT: Duration = Duration::from_secs(12);

/// How long the server is asked to wait, and how long that may take in total.
const HOLD: (&str, Duration) = ("wait=30s", Duration::from_secs(45));

/// A server that reports no change sooner than this does not wait.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A bundle at a URL.
pub(crate) struct Http {
    url: Url,
    waiting: Url,
    every: Duration,
    token: Option<String>,
    trust: Trust,
    environment: Arc<Environment>,
    held: RefCell<Held>,
}

/// What the server last sent.
#[derive(Default)]
struct Held {
    etag: Option<Vec<u8>>,
    /// Counted here, so that a change has a number as it has in etcd.
    revision: u64,
    found: Option<Result<Bundle, String>>,
}

impl Http {
    /// A source from the config.
    pub(crate) fn new(written: &HttpSource, environment: Arc<Environment>) -> Result<Self, String> {
        let trust = Trust::given(&written.ca, &written.client_cert, &written.client_key)?;
        let url = written.url.clone().ok_or("no URL is named")?;
        // A query may be signed, so it is sent as written.
        let waiting = match url.target().contains('?') {
            true => url.clone(),
            false => url.with_target(&format!("{}?{}", url.target(), HOLD.0)),
        };
        Ok(Self {
            url,
            waiting,
            every: written.every.get(),
            token: written.token.as_ref().map(|secret| secret.reveal().to_owned()),
            trust,
            environment,
            held: RefCell::default(),
        })
    }

    pub(crate) fn place(&self) -> String {
        let path = self.url.target().split('?').next().unwrap_or_default(); // a query may hold a key
        format!("{}{path}", self.url.origin())
    }

    pub(crate) async fn read(&self) -> Result<Seen, String> {
        self.ask(&self.url, WAIT).await?;
        Ok(self.seen())
    }

    /// The last bundle read.
    pub(crate) fn bundle(&self, digest: Digest) -> Result<Bundle, String> {
        match &self.held.borrow().found {
            Some(Ok(bundle)) if bundle.digest() == digest => Ok(bundle.clone()),
            _ => Err(format!("the server has another bundle than {} by now", digest.short())),
        }
    }

    /// Asks repeatedly and reports changes. Returns why it cannot continue.
    pub(crate) async fn watch(&self, tell: impl Fn(WatchEvent)) -> String {
        tell(WatchEvent::Nothing);
        loop {
            let began = Instant::now();
            match self.ask(&self.waiting, HOLD.1).await {
                Ok(true) => tell(WatchEvent::Changed(self.seen())),
                Ok(false) => tell(WatchEvent::Nothing),
                Err(why) => return why,
            }
            if began.elapsed() < AT_ONCE {
                tokio::time::sleep(self.every).await;
            }
        }
    }

    /// Asks for changes. Returns whether there are any.
    async fn ask(&self, url: &Url, wait: Duration) -> Result<bool, String> {
        let request = self.request(url, wait);
        let answer = tokio::time::timeout(wait, fetch(&request, &self.environment)).await;
        let answer = answer
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|e| weir_wire::Chain(&e).to_string())?;
        match answer.status {
            200 => {
                let etag = answer.field("etag");
                Ok(self.take(&answer.body, etag.map(<[u8]>::to_vec)))
            }
            304 => Ok(false),
            404 | 410 => Ok(self.take_nothing()),
            status => Err(format!("the server answers {status}")),
        }
    }

    fn request(&self, url: &Url, timeout: Duration) -> FetchRequest {
        let field = |name, value: Vec<u8>| FieldName::new(name).ok().map(|name| (name, value));
        let etag = self.held.borrow().etag.clone();
        let token = self.token.as_ref().map(|token| format!("Bearer {token}").into_bytes());
        let fields = [
            field("accept", b"application/gzip, application/yaml, */*".to_vec()),
            etag.and_then(|etag| field("if-none-match", etag)),
            token.and_then(|token| field("authorization", token)),
        ];
        FetchRequest {
            method: "GET".to_owned(),
            url: url.clone(),
            headers: fields.into_iter().flatten().collect(),
            body: Bytes::new(),
            limit: bundle::PACKED_BYTES,
            timeout,
            trust: self.trust.clone(),
            version: Version::Http11,
            socket: None,
        }
    }

    fn take(&self, body: &[u8], etag: Option<Vec<u8>>) -> bool {
        let found = Bundle::unpack(body).map_err(|e| e.to_string());
        let mut held = self.held.borrow_mut();
        held.etag = etag;
        let is_same = match (&held.found, &found) {
            (Some(Ok(old)), Ok(new)) => old.digest() == new.digest(),
            (Some(Err(old)), Err(new)) => old == new,
            _ => false,
        };
        if !is_same {
            held.revision += 1;
            held.found = Some(found);
        }
        !is_same
    }

    fn take_nothing(&self) -> bool {
        let mut held = self.held.borrow_mut();
        let changed = held.found.is_some();
        if changed {
            *held = Held { revision: held.revision + 1, ..Held::default() };
        }
        changed
    }

    fn seen(&self) -> Seen {
        let held = self.held.borrow();
        let pointer = match &held.found {
            None => Found::Nothing,
            Some(Ok(bundle)) => Found::Pointer(Box::new(pointer(bundle.digest(), held.revision))),
            Some(Err(why)) => Found::Unreadable(why.clone()),
        };
        Seen { revision: held.revision, modified: held.revision, pointer }
    }
}

/// A pointer to a server's bundle, which all nodes take immediately.
fn pointer(to: Digest, generation: u64) -> Pointer {
    Pointer {
        version: VERSION,
        generation,
        to,
        from: None,
        author: String::new(),
        message: String::new(),
        time: String::new(),
        rollout: Rollout { steps: Vec::new(), open: 0, hold_ms: 0, state: State::Done, why: String::new() },
        earlier: Vec::new(),
        left: Vec::new(),
        nodes: 0,
    }
}
