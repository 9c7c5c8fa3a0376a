//! The control side's HTTP client: fetches an identity provider's keys, tokens, certificates, registries. It is for
//! services that are no upstream of the config and are rarely asked.
//!
//! A [`Fetcher`] may be used from any thread. [`serve`] does the work on the control thread (`reload.rs`): names by
//! our own resolver with the servers under `dns`, TLS by weir-wire, HTTP/1.1 by weir-h1. Requests that ask for it,
//! such as gRPC calls, use HTTP/2 (`h2.rs`). Each request has its own connection, a limit in bytes and one in time.
//! Redirects are not followed: a request goes where the operator wrote.

mod follow;
mod h2;

pub use follow::{Following, Lines};

pub use weir_config::url::Url;

use crate::talk::{self, After, CallAnswer, CallRequest, render, talk};
use crate::upstream::discover::dns;
use bytes::Bytes;
use hickory_resolver::TokioResolver;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use weir_config::schema::FilePath;
use weir_h1::{FieldName, Limits};
use weir_wire::Chain;
use weir_wire::dial::{DialError, Dialled, dial};
use weir_wire::listen::Address;
use weir_wire::tls::{ClientTls, TlsError};

/// Most requests that wait to start; one more is refused.
const WAITING: usize = 256;

/// Most concurrent requests.
const AT_ONCE: usize = 32;

/// How long one address may take to answer before the next is tried.
const CONNECT: Duration = Duration::from_secs(3);

/// Most addresses of a name to try.
const ADDRESSES: usize = 4;

/// Longest token in a file, in bytes. Tokens of service accounts have one to two KiB.
const TOKEN_BYTES: u64 = 64 << 10;

/// A request to a service that is not an upstream.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Method, such as `GET`.
    pub method: String,
    /// The URL.
    pub url: Url,
    /// Fields besides Host, User-Agent, Connection and Content-Length.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// The body. If it is empty, none is sent.
    pub body: Bytes,
    /// Longest body of the answer, in bytes.
    pub limit: usize,
    /// Longest time for the whole answer, including names and TLS.
    pub timeout: Duration,
    /// Which certificates are trusted.
    pub trust: Trust,
    /// The version of HTTP.
    pub version: Version,
    /// Connects here instead of to the host of the URL.
    pub socket: Option<Address>,
}

/// The version of HTTP for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2, by ALPN with TLS and by prior knowledge without. The answer's trailers follow its fields.
    Http2,
}

/// Which certificates are trusted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trust(Option<Arc<Trusted>>);

/// The certificates of a file, as one TLS policy for each version of HTTP.
#[derive(Debug)]
struct Trusted {
    pem: Vec<u8>,
    policies: Policies,
}

#[derive(Clone, Debug)]
struct Policies {
    http1: ClientTls,
    h2: ClientTls,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub enum FetchError {
    /// 256 requests wait already, or the gateway ends.
    Busy,
    /// The answer is not HTTP, or ended in the middle.
    BadAnswer,
    /// Nothing says where the answer ends, so it may have been cut.
    Endless,
    /// No address could be connected to, with the last reason.
    Connect(Arc<dyn Error + Send + Sync>),
    /// The name has no address, with the reason.
    Name(String),
    /// It took too long.
    Timeout,
    /// The body, or a line of it, exceeds this limit in bytes.
    TooLong(usize),
    /// The request contains something that cannot be sent.
    Unsendable,
}

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher(mpsc::Sender<Asked>);

/// A request and the recipient of its answer.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub request: FetchRequest,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<CallAnswer, FetchError>>,
}

/// What changes with the config: how names are resolved. The system's roots are read when first needed, and again
/// after a reload.
#[derive(Default)]
pub struct Environment {
    resolver: Mutex<Option<TokioResolver>>,
    system: Mutex<Option<Policies>>,
}

impl FetchRequest {
    /// A GET with these limits, trusting the system's certificates.
    pub fn get(url: Url, limit: usize, timeout: Duration) -> Self {
        Self {
            method: "GET".to_owned(),
            url,
            headers: Vec::new(),
            body: Bytes::new(),
            limit,
            timeout,
            trust: Trust::default(),
            version: Version::default(),
            socket: None,
        }
    }
}

// === impl Trust ===

impl Trust {
    /// The certificates in a PEM file and no others.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn file(path: &Path) -> Result<Self, String> {
        Self::files(Some(path), None)
    }

    /// The trust that a config describes: which certificates a server may have, and the gateway's own. Without
    /// settings, the system's certificates.
    pub fn given(
        ca: &Option<FilePath>,
        client_cert: &Option<FilePath>,
        client_key: &Option<FilePath>,
    ) -> Result<Self, String> {
        let path = |file: &'_ Option<FilePath>| file.as_ref().map(|file| file.0.clone());
        let (ca, cert, key) = (path(ca), path(client_cert), path(client_key));
        let identity = cert.as_deref().zip(key.as_deref());
        if ca.is_none() && identity.is_none() {
            return Ok(Self::default());
        }
        Self::files(ca.as_deref(), identity)
    }

    /// Trusts the certificates of a PEM file, or the system's. May have a certificate and key to present if the
    /// server asks.
    pub(crate) fn files(ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self, String> {
        let policies = Policies::new(ca, identity).map_err(|e| Chain(&e).to_string())?;
        let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let mut pem = Vec::new();
        for path in ca.into_iter().chain(identity.map(|(cert, _)| cert)) {
            pem.extend(read(path)?);
        }
        Ok(Self(Some(Arc::new(Trusted { pem, policies }))))
    }
}

/// Equal if the certificates are, whatever file they came from.
impl PartialEq for Trusted {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Policies {
    fn new(ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let policy = |protocol: &[u8]| ClientTls::new(ca, identity, None, true, &[protocol]);
        Ok(Self { http1: policy(b"http/1.1")?, h2: policy(b"h2")? })
    }

    fn of(&self, version: Version) -> ClientTls {
        match version {
            Version::Http11 => self.http1.clone(),
            Version::Http2 => self.h2.clone(),
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too many requests of the gateway's own are under way"),
            Self::BadAnswer => f.write_str("the answer is not HTTP, or it ended in the middle"),
            Self::Endless => {
                f.write_str("the answer has neither Content-Length nor chunks, so it may have been cut")
            }
            Self::Connect(_) => f.write_str("no connection"),
            Self::Name(why) => write!(f, "the name did not resolve: {why}"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::TooLong(limit) => write!(f, "the answer is longer than {limit} bytes"),
            Self::Unsendable => f.write_str("the request holds characters that cannot be sent"),
        }
    }
}

impl Error for FetchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(why) => Some(&**why),
            _ => None,
        }
    }
}

/// The last address tried, and its error.
#[derive(Debug)]
struct Unreached(Address, DialError);

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Unreached {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.1)
    }
}

// === impl Fetcher ===

impl Fetcher {
    /// A fetcher and the receiver of its requests: the control thread, or a test.
    pub fn channel() -> (Self, mpsc::Receiver<Asked>) {
        let (send, asked) = mpsc::channel(WAITING);
        (Self(send), asked)
    }

    /// Sends a request and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn fetch(&self, request: FetchRequest) -> Result<CallAnswer, FetchError> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(Asked { request, answer }).map_err(|_| FetchError::Busy)?;
        answered.await.unwrap_or(Err(FetchError::Busy))
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

// === impl Surroundings ===

impl Environment {
    /// The environment of this machine: names are resolved as it resolves them.
    pub fn of_system() -> Self {
        let environment = Self::default();
        let settings = dns::Settings {
            servers: Vec::new(),
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(300),
        };
        environment.set(dns::resolver(&settings).ok()); // a request by name reports the error
        environment
    }

    /// Resolves names by this from now on.
    pub fn set(&self, resolver: Option<TokioResolver>) {
        *self.resolver.lock().unwrap_or_else(PoisonError::into_inner) = resolver;
        *self.system.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn tls(&self, trust: &Trust, version: Version) -> Result<ClientTls, FetchError> {
        if let Some(given) = &trust.0 {
            return Ok(given.policies.of(version));
        }
        let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
        let policies = match &*system {
            Some(known) => known.clone(),
            None => system
                .insert(Policies::new(None, None).map_err(|e| FetchError::Connect(Arc::new(e)))?)
                .clone(),
        };
        Ok(policies.of(version))
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, FetchError> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let resolver = self.resolver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let resolver = resolver.ok_or_else(|| FetchError::Name("there is no resolver".to_owned()))?;
        let found = resolver.lookup_ip(host).await.map_err(|e| FetchError::Name(dns::words(&e)))?;
        let found: Vec<IpAddr> = found.iter().take(ADDRESSES).collect();
        if found.is_empty() { Err(FetchError::Name("it has no address".to_owned())) } else { Ok(found) }
    }
}

/// Serves requests until every [`Fetcher`] is gone. Runs on a `LocalSet`, because connections do not change threads.
pub async fn serve(mut asked: mpsc::Receiver<Asked>, environment: Arc<Environment>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(Asked { request, mut answer }) = asked.recv().await {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let environment = Arc::clone(&environment);
        drop(tokio::task::spawn_local(async move {
            let work = tokio::time::timeout(request.timeout, fetch(&request, &environment));
            let done = tokio::select! {
                done = work => done.unwrap_or(Err(FetchError::Timeout)),
                () = answer.closed() => return, // nobody waits any more
            };
            drop(place);
            drop(answer.send(done)); // as above
        }));
    }
}

/// Sends a request on this thread and reads the whole answer. The caller limits the time.
pub async fn fetch(request: &FetchRequest, environment: &Environment) -> Result<CallAnswer, FetchError> {
    let (call, out) = rendered(request)?;
    let Dialled { transport, round_trip, .. } = connect(request, environment).await?;
    if request.version == Version::Http2 {
        return h2::talk(transport, round_trip, &out, request.limit).await;
    }
    let talked = talk(&mut transport.into(), &call, &out, &mut 0, &Limits::default()).await;
    let (answer, after) = talked.map_err(|failed| match failed {
        talk::Failed::Closed | talk::Failed::Malformed => FetchError::BadAnswer,
        talk::Failed::TooLong => FetchError::TooLong(request.limit),
    })?;
    // TLS says where a document ends; without it, a server that died and one that finished look the same. The answer
    // to a report (POST) is its status.
    let is_document = request.method == "GET" && !answer.body.is_empty();
    if after == After::Ended && is_document && !request.url.is_tls() {
        return Err(FetchError::Endless);
    }
    Ok(answer)
}

/// The bearer token in a file, as it is on disk now: Kubernetes replaces a pod's token before it expires.
///
/// # Errors
/// If the file cannot be read, is longer than 64 KiB, or holds what cannot be the value of a field.
pub fn token_in(path: &Path) -> Result<String, String> {
    let wrong = |why: &dyn fmt::Display| format!("token {}: {why}", path.display());
    let length = std::fs::metadata(path).map_err(|e| wrong(&e))?.len();
    if length > TOKEN_BYTES {
        return Err(wrong(&format_args!("it is longer than {TOKEN_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(wrong(&"it is empty, or holds a character that no token has"));
    }
    Ok(token.to_owned())
}

/// A request and its bytes.
fn rendered(request: &FetchRequest) -> Result<(CallRequest, Vec<u8>), FetchError> {
    let url = &request.url;
    let mut headers = request.headers.clone();
    let agent = concat!("weir/", env!("CARGO_PKG_VERSION"));
    let close = (request.version == Version::Http11).then_some(("connection", "close"));
    for (name, value) in [("user-agent", agent)].into_iter().chain(close) {
        let name = FieldName::new(name).map_err(|_| FetchError::Unsendable)?;
        headers.push((name, value.as_bytes().to_vec()));
    }
    let call = CallRequest {
        method: request.method.clone(),
        target: url.target().to_owned(),
        authority: url.authority().as_bytes().to_vec(),
        headers,
        body: request.body.clone(),
        limit: request.limit,
    };
    let out = render(&call).ok_or(FetchError::Unsendable)?;
    Ok((call, out))
}

/// Connects to the first address that accepts.
async fn connect(request: &FetchRequest, environment: &Environment) -> Result<Dialled, FetchError> {
    let FetchRequest { url, trust, version, socket, .. } = request;
    let tls = if url.is_tls() { Some(environment.tls(trust, *version)?) } else { None };
    let tls = tls.as_ref().map(|tls| (tls, url.host()));
    let mut last = FetchError::Timeout;
    if let Some(address) = socket {
        let unreached = |e| FetchError::Connect(Arc::new(Unreached(address.clone(), e)));
        return dial(address, tls, CONNECT).await.map_err(unreached);
    }
    for ip in environment.addresses(url.host()).await? {
        let address = Address::Tcp(SocketAddr::new(ip, url.port()));
        match dial(&address, tls, CONNECT).await {
            Ok(dialled) => return Ok(dialled),
            Err(e) => last = FetchError::Connect(Arc::new(Unreached(address, e))),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::{Authority, Upstream, refusing_address};

    /// Plays the control thread.
    async fn ask(request: FetchRequest) -> Result<CallAnswer, FetchError> {
        let local = tokio::task::LocalSet::new();
        let (fetcher, asked) = Fetcher::channel();
        local.spawn_local(serve(asked, Arc::default()));
        local.run_until(fetcher.fetch(request)).await
    }

    fn get(url: &str, limit: usize) -> FetchRequest {
        FetchRequest::get(url.parse().unwrap(), limit, Duration::from_secs(20))
    }

    #[tokio::test]
    async fn a_whole_answer() {
        let upstream = Upstream::fixed("HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 3\r\n\r\nabc");
        let answer = ask(get(&format!("http://{}/a?b", upstream.address()), 3)).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (404, &b"abc"[..]));
        let head = upstream.take_request().head;
        assert_eq!(head.line, "GET /a?b HTTP/1.1");
        assert_eq!(head.header("host"), Some(upstream.address().to_string().as_str()));
    }

    #[tokio::test]
    async fn an_answer_has_limits() {
        for body in
            ["Content-Length: 4\r\n\r\nabcd", "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"]
        {
            let upstream = Upstream::fixed(format!("HTTP/1.1 200 OK\r\n{body}"));
            let url = format!("http://{}/", upstream.address());
            assert!(matches!(ask(get(&url, 3)).await, Err(FetchError::TooLong(3))));
            assert_eq!(&ask(get(&url, 4)).await.unwrap().body[..], b"abcd");
        }
        let silent = Upstream::listen();
        let mut request = get(&format!("http://{}/", silent.address()), 3);
        request.timeout = Duration::from_millis(50);
        assert!(matches!(ask(request).await, Err(FetchError::Timeout)));
    }

    #[tokio::test]
    async fn what_is_no_answer() {
        let (_held, nobody) = refusing_address();
        let refused = ask(get(&format!("http://{nobody}/"), 3)).await.unwrap_err();
        let told = Chain(&refused).to_string();
        assert!(told.starts_with(&format!("no connection: {nobody}: Connection refused")), "{told}");
        for bytes in ["SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"] {
            let upstream = Upstream::script(move |conn| {
                let _ = conn.read_request();
                conn.send(bytes);
            });
            let answer = ask(get(&format!("http://{}/", upstream.address()), 99)).await;
            assert!(matches!(answer, Err(FetchError::BadAnswer)), "{bytes}");
        }
    }

    #[tokio::test]
    async fn an_answer_without_an_end_may_have_been_cut() {
        for (fields, body, is_taken) in
            [("", "consumers:\n", false), ("", "", true), ("Content-Length: 11\r\n", "consumers:\n", true)]
        {
            let upstream = Upstream::script(move |conn| {
                let _ = conn.read_request();
                conn.send(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{fields}\r\n{body}"));
            });
            let answer = ask(get(&format!("http://{}/", upstream.address()), 99)).await;
            match answer {
                Ok(answer) => assert!(is_taken && answer.body == body, "{fields}{body}"),
                Err(why) => assert!(!is_taken && matches!(why, FetchError::Endless), "{fields}{body}: {why}"),
            }
        }
    }

    #[tokio::test]
    async fn certificates_are_verified() {
        let authority = Authority::new();
        let tls = weir_testkit::ServerTls::new(&authority.leaf(&["127.0.0.1"]));
        let upstream = Upstream::fixed_tls(&tls, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let mut request = get(&format!("https://{}/", upstream.address()), 3);
        request.trust = Trust::file(&authority.file()).unwrap();
        assert_eq!(ask(request.clone()).await.unwrap().status, 200);
        request.trust = Trust::file(&Authority::new().file()).unwrap();
        let refused = ask(request).await;
        assert!(matches!(refused, Err(FetchError::Connect(_))), "{refused:?}");
    }
}
