//! Runs one filter alone, without sockets: for tests of the gateway's filters and of filters in other programs.
//!
//! ```
//! use serde_json::json;
//! use weir_filter::filter::FilterKind;
//! use weir_filter::testing::run;
//!
//! async fn ids_are_given(request_id: &'static FilterKind) {
//!     run(request_id, json!({}), "GET /a").await.expect_continue().response("200").expect_present("x-request-id");
//! }
//! ```
//! Everything here panics where a test should fail.

use crate::concealed::split_path_key;
use crate::filter::directory::{Directory, Origin, Rules, Source};
use crate::filter::{
    Attempt, AttemptEnd, Begun, BodyUse, Build, CallAnswer, CallRequest, Consumer, CoreHandle, Cx, End,
    Failure, Fetcher, Filter, FilterKind, Flow, GrpcStatus, HookResult, Hooks, Job, Kept, Piece, Reading,
    RouteScope, Services, Settings, Task, Waiting,
};
use crate::store::{Place, Question, Room, Server, Store, Stores};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use weir_config::{Diagnostics, Node};
use weir_h1::{BodyKind, Fields, Limits, Progress, RequestHead, ResponseHead, parse_request, parse_response};
use weir_route::variables::{Bounds, Vocabulary};
use weir_route::{Canonical, RouteId, RouteSpec, Slashes, Table, canonical};
use weir_upstream::error::Cause;
use weir_wire::relay::{Mark, Seen};
use weir_wire::tls::PeerCertificate;

/// A filter that does nothing, for tests that need an exchange and no filter.
pub static PASS: FilterKind = FilterKind::of::<Pass>("pass");

#[derive(Deserialize, Serialize, JsonSchema)]
struct Pass {}

impl Filter for Pass {}

/// Builds a filter from its settings and sends it one request: `GET /a?b=1`, or a whole head whose lines end in `\n`.
pub async fn run(kind: &'static FilterKind, settings: Value, request: &str) -> Exchange {
    Stand::new(kind, settings).build().request(request).await
}

/// A map of the config: its name, its `of`, its keys and values.
type MapOfTest = (String, String, Vec<(String, String)>);

/// A filter's environment. Built twice, it shares kept state as two snapshots do.
pub struct Stand {
    kind: &'static FilterKind,
    settings: Value,
    scope: String,
    spec: RouteSpec,
    captures: Vec<String>,
    client: IpAddr,
    tls: bool,
    certificate: Option<Rc<PeerCertificate>>,
    named: Option<usize>,
    consumers: Vec<Consumer>,
    directory: Option<Arc<Directory>>,
    upstreams: Vec<String>,
    maps: Vec<MapOfTest>,
    stores: Stores,
    script: Rc<Script>,
    kept: Kept,
    kinds: &'static [&'static FilterKind],
    files: Vec<PathBuf>,
}

/// A filter ready to take requests.
pub struct Running {
    filter: Rc<dyn Filter>,
    reads_body: bool,
    /// Its settings as resolved.
    pub settings: Value,
    scope: Rc<RouteScope>,
    client: IpAddr,
    tls: bool,
    certificate: Option<Rc<PeerCertificate>>,
    named: Option<usize>,
    script: Rc<Script>,
}

/// One exchange after the request phase.
pub struct Exchange {
    /// The request as the filter left it.
    pub head: RequestHead,
    /// The context after the filter.
    pub cx: Cx,
    /// What it decided.
    pub flow: Flow,
    /// Whether it had to wait before deciding.
    pub waited: bool,
    filter: Rc<dyn Filter>,
    script: Rc<Script>,
}

/// A response after the filter has seen it.
pub struct Response {
    /// The response as the filter left it.
    pub head: ResponseHead,
    /// How it uses the body, if it was asked.
    pub body_use: Option<BodyUse>,
}

/// The longest body that expressions read.
const READ_BODY: usize = 64 * 1024;

/// State under its key. Holding the key keeps its address from being reused.
type CoreState = (Arc<()>, Rc<dyn Any>);

/// Upstreams with scripted answers.
#[derive(Default)]
struct Script {
    answers: RefCell<VecDeque<Result<CallAnswer, &'static Cause>>>,
    calls: RefCell<Vec<(String, CallRequest)>>,
    tasks: RefCell<Vec<Task>>,
    locals: RefCell<HashMap<usize, CoreState>>,
    blocked: Cell<u32>,
}

// === impl Stand ===

impl Stand {
    /// The environment of a filter on the route `test` with the path `/*`, for a client at 192.0.2.1.
    pub fn new(kind: &'static FilterKind, settings: Value) -> Self {
        Self {
            kind,
            settings,
            scope: "routes.test".to_owned(),
            spec: RouteSpec { name: "test".into(), paths: vec!["/*".to_owned()], ..RouteSpec::default() },
            captures: Vec::new(),
            client: Ipv4Addr::new(192, 0, 2, 1).into(),
            tls: false,
            certificate: None,
            named: None,
            consumers: Vec::new(),
            directory: None,
            upstreams: Vec::new(),
            maps: Vec::new(),
            stores: Stores::default(),
            script: Rc::default(),
            kept: Kept::default(),
            kinds: &[],
            files: Vec::new(),
        }
    }

    /// The pattern of the route, such as `/spot/{rest*}`.
    #[must_use]
    pub fn path(mut self, pattern: &str) -> Self {
        self.spec.paths = vec![pattern.to_owned()];
        let names = pattern.split('{').skip(1).filter_map(|piece| piece.split_once('}'));
        self.captures = names.map(|(name, _)| name.trim_end_matches('*').to_owned()).collect();
        self
    }

    /// Where the filter is: `routes.NAME` (the default), `plans.NAME` or `filters`.
    #[must_use]
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = scope.to_owned();
        if let Some(name) = scope.strip_prefix("routes.") {
            self.spec.name = name.into();
        }
        self
    }

    /// The client's address.
    #[must_use]
    pub fn client(mut self, address: &str) -> Self {
        self.client = address.parse().expect("a test gives an IP address");
        self
    }

    /// Makes the client's connection TLS.
    #[must_use]
    pub const fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Gives the client this certificate.
    #[must_use]
    pub fn certificate(mut self, certificate: PeerCertificate) -> Self {
        self.certificate = Some(Rc::new(certificate));
        self
    }

    /// Adds a consumer.
    #[must_use]
    pub fn consumer(mut self, consumer: Consumer) -> Self {
        self.consumers.push(consumer);
        self
    }

    /// Has the consumers of a source too, which holds this document. [`Stand::relist`] replaces it.
    #[must_use]
    pub fn listed(self, document: &str) -> Self {
        let stand = self.awaiting();
        stand.relist(document);
        stand
    }

    /// Has a source that has no consumers yet. [`Stand::relist`] gives it some.
    #[must_use]
    pub fn awaiting(mut self) -> Self {
        let consumers = self.consumers.as_slice().into();
        let plans = ["gold".to_owned()].into_iter();
        let source = Arc::new(Source::new("test", Origin::File("listed.yaml".into()), &[self.kind]));
        let rules = Rules::new(&consumers, plans, &[self.kind], true);
        let directory = Directory::new(vec![(source, None)], rules, |_, misfit| panic!("{misfit:?}"));
        directory.adopt();
        self.directory = Some(Arc::new(directory));
        self
    }

    /// Replaces the document of the source.
    pub fn relist(&self, document: &str) {
        let directory = self.directory.as_ref().expect("a test calls `listed` or `awaiting` first");
        let source = directory.sources().first().expect("both make a source");
        source.relist(document).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Replaces the consumers, as after a reload.
    #[must_use]
    pub fn consumers(mut self, consumers: Vec<Consumer>) -> Self {
        self.consumers = consumers;
        self
    }

    /// An earlier filter has named the last consumer added.
    #[must_use]
    pub const fn named(mut self) -> Self {
        self.named = self.consumers.len().checked_sub(1);
        self
    }

    /// The existing kinds, for a filter that contains others or knows their causes.
    #[must_use]
    pub const fn kinds(mut self, kinds: &'static [&'static FilterKind]) -> Self {
        self.kinds = kinds;
        self
    }

    /// Adds a map of the config: its `of`, keys and values.
    #[must_use]
    pub fn map(mut self, name: &str, of: &str, entries: &[(&str, &str)]) -> Self {
        let entries = entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        self.maps.push((name.to_owned(), of.to_owned(), entries));
        self
    }

    /// Adds an upstream.
    #[must_use]
    pub fn upstream(mut self, name: &str) -> Self {
        self.upstreams.push(name.to_owned());
        self
    }

    /// Adds a store: a Redis at this URL, which need not exist.
    #[must_use]
    pub fn store(mut self, name: &str, url: &str) -> Self {
        let place = Place {
            server: Server::Redis { urls: vec![url.to_owned()], cluster: false, ca: None },
            timeout: Duration::from_secs(2),
            prefix: "test".to_owned(),
        };
        self.stores.shared.insert(name.to_owned(), place);
        self
    }

    /// Adds a store: this many bytes of memory.
    #[must_use]
    pub fn memory(mut self, name: &str, bytes: u64) -> Self {
        self.stores.memory.insert(name.to_owned(), Room { memory: bytes, disk: None });
        self
    }

    /// The answer to the filter's next own call.
    #[must_use]
    pub fn answer(self, answer: Result<CallAnswer, &'static Cause>) -> Self {
        self.script.answers.borrow_mut().push_back(answer);
        self
    }

    /// Builds the filter.
    pub fn build(&mut self) -> Running {
        self.try_build().unwrap_or_else(|mistakes| panic!("the settings are refused: {mistakes:#?}"))
    }

    /// The files being watched since the filter was built.
    pub fn watched(&self) -> &[PathBuf] {
        &self.files
    }

    /// Starts the control side's tasks for the filter's state, on the test's runtime.
    pub fn tend(&mut self, fetcher: &Fetcher) {
        let _ = self.kept.sweep(&tokio::runtime::Handle::current(), fetcher);
    }

    /// Why building the filter is refused, each as `key: message; hint`.
    pub fn mistakes(&mut self) -> Vec<String> {
        self.try_build().map(|_| ()).expect_err("the settings should be refused")
    }

    fn vocabulary(&self) -> Vocabulary {
        let bounds = Bounds { head_bytes: 32 * 1024, fields: 100 };
        let mut maps = Vocabulary::maps(bounds, self.maps.iter().map(|(name, ..)| &**name));
        for (index, (name, of, entries)) in self.maps.iter().enumerate() {
            let keys = maps.key(index, of).unwrap_or_else(|mistakes| panic!("{name}: {mistakes:?}"));
            let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
            let built = maps.entries(index, keys, &entries, None, false);
            built.unwrap_or_else(|mistakes| panic!("{name}: {mistakes:?}"));
        }
        let (vocabulary, mistakes) = Vocabulary::new(bounds, maps);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        vocabulary
    }

    fn try_build(&mut self) -> Result<Running, Vec<String>> {
        self.kept.settle(); // what was built before runs
        let consumers: Arc<[Consumer]> = self.consumers.as_slice().into();
        let vocabulary = self.vocabulary();
        let captures = self.scope.starts_with("routes.").then_some(self.captures.as_slice());
        let reads_body = Cell::new(false);
        let mut build = Build {
            scope: &self.scope,
            consumers: &consumers,
            directory: self.directory.as_ref(),
            upstreams: &self.upstreams,
            targets: &self.upstreams,
            stores: &self.stores,
            captures,
            kinds: self.kinds,
            kept: &mut self.kept,
            files: &mut self.files,
            kind: self.kind.name,
            settings: String::new(),
            mistakes: Vec::new(),
            vocabulary: &vocabulary,
            expressions: Vec::new(),
            reads_claims: true,
            reads_body: &reads_body,
            warnings: Vec::new(),
        };
        let (node, mut found) = (Node::of_json(&self.settings), Diagnostics::default());
        let mut settings = Settings { node: &node, path: "", found: &mut found };
        let built = (self.kind.build)(&mut settings, &mut build);
        let told = |field: &str, message: &str, hint: Option<&str>| {
            format!("{field}: {message}; {}", hint.unwrap_or("no hint"))
        };
        let refused = build.mistakes.iter().map(|m| told(&m.field, &m.message, m.hint.as_deref()));
        let misread =
            found.iter().map(|d| told(d.path.trim_start_matches('.'), &d.message, d.hint.as_deref()));
        let mistakes: Vec<_> = refused.chain(misread).collect();
        let Some(built) = built.filter(|_| mistakes.is_empty()) else { return Err(mistakes) };
        let table = Table::build(vec![self.spec.clone()]).expect("a test gives a sound route");
        Ok(Running {
            filter: built.filter.into(),
            reads_body: reads_body.get(),
            settings: built.settings,
            scope: Rc::new(RouteScope {
                name: Arc::clone(&self.spec.name),
                matched: Some((Arc::new(table), RouteId(0))),
                consumers,
                core: CoreHandle::new(Rc::clone(&self.script) as Rc<dyn Services>),
                exposes_causes: true,
            }),
            client: self.client,
            tls: self.tls,
            certificate: self.certificate.clone(),
            named: self.named,
            script: Rc::clone(&self.script),
        })
    }
}

// === impl Running ===

impl Running {
    /// How many jobs it gave to the blocking threads.
    pub fn blocked(&self) -> u32 {
        self.script.blocked.get()
    }

    /// The same filter for a client with another address.
    #[must_use]
    pub fn from(&self, address: &str) -> Self {
        let client = address.parse().expect("a test gives an IP address");
        let (filter, scope, script) =
            (Rc::clone(&self.filter), Rc::clone(&self.scope), Rc::clone(&self.script));
        let settings = self.settings.clone();
        let certificate = self.certificate.clone();
        let (tls, named, reads_body) = (self.tls, self.named, self.reads_body);
        Self { filter, reads_body, settings, scope, client, tls, certificate, named, script }
    }

    /// Passes a parsed request and its response, as the gateway does on its fast path: for measurements. The filter
    /// must not wait.
    pub fn pass(&self, request: &mut RequestHead, response: &mut ResponseHead) -> Flow {
        let mut cx = self.context();
        let flow = self.filter.on_request(request, &mut cx);
        if self.filter.hooks().has(Hooks::RESPONSE) {
            let _ = self.filter.on_response(response, &mut cx); // only its cost matters
        }
        flow
    }

    /// The hooks that the filter has.
    pub fn hooks(&self) -> Hooks {
        self.filter.hooks()
    }

    /// The figures of the filter's state.
    pub fn readings(&self) -> Vec<Reading> {
        self.filter.readings()
    }

    fn context(&self) -> Cx {
        let mut cx = Cx::new(Begun {
            scope: Rc::clone(&self.scope),
            client: self.client,
            tls: self.tls,
            certificate: self.certificate.clone(),
            path_key: None,
            random: 1,
            at: None,
        });
        if let Some(consumer) = self.named {
            cx.set_consumer(consumer);
        }
        cx
    }

    /// Sends one request: `GET /a?b=1`, or a whole head whose lines end in `\n`. Without a Host it is `example.com`.
    pub async fn request(&self, text: &str) -> Exchange {
        self.decide(request_head(text), self.context()).await
    }

    /// The same with a body: whole before the filter sees the head if it asks for that, otherwise in one piece after
    /// it.
    pub async fn request_with(&self, text: &str, body: &str) -> Exchange {
        let (head, mut cx) = (request_head(text), self.context());
        let used = self.filter.request_body(&head, &mut cx);
        let whole = matches!(used, BodyUse::Whole(_) | BodyUse::WholeWatched(_));
        if matches!(used, BodyUse::WholeWatched(_))
            && let Err(refusal) = self.filter.on_request_body(&mut Piece::new(body.as_bytes(), true), &mut cx)
        {
            let (filter, script) = (Rc::clone(&self.filter), Rc::clone(&self.script));
            return Exchange { head, cx, flow: Flow::Refuse(refusal), waited: false, filter, script };
        }
        let reads = self.reads_body && cx.expects_json(&head);
        cx.whole = (whole || reads).then(|| body.to_owned().into());
        if reads && let Err(refusal) = cx.read_body(&head, READ_BODY) {
            let (filter, script) = (Rc::clone(&self.filter), Rc::clone(&self.script));
            return Exchange { head, cx, flow: Flow::Refuse(refusal), waited: false, filter, script };
        }
        let mut exchange = self.decide(head, cx).await;
        let mut piece = Piece::new(body.as_bytes(), true);
        if !whole
            && matches!(exchange.flow, Flow::Continue)
            && let Err(refusal) = self.filter.on_request_body(&mut piece, &mut exchange.cx)
        {
            exchange.flow = Flow::Refuse(refusal);
        }
        exchange
    }

    async fn decide(&self, mut head: RequestHead, mut cx: Cx) -> Exchange {
        if self.filter.conceals().path_key
            && let Some((path, key)) = split_path_key(head.path())
            && head.set_path(&path).is_ok()
        {
            cx.path_key = Some(key.into()); // removed before the route is known
        }
        let mut flow = self.filter.on_request(&mut head, &mut cx);
        let waited = matches!(flow, Flow::Wait);
        if waited {
            flow = self.script.run_beside(self.filter.wait(&mut head, &mut cx)).await;
        }
        let (filter, script) = (Rc::clone(&self.filter), Rc::clone(&self.script));
        Exchange { head, cx, flow, waited, filter, script }
    }
}

impl Script {
    /// Waits for something while running the tasks that filters have left beside their exchanges.
    async fn run_beside<T>(&self, mut work: Waiting<'_, T>) -> T {
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
            tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
            self.tasks.borrow_mut().extend(tasks);
            Poll::Pending
        })
        .await
    }
}

/// Parses a request as the gateway does: with a canonical path for routing.
pub fn request_head(text: &str) -> RequestHead {
    let (line, fields) = text.split_once('\n').unwrap_or((text, ""));
    let mut lines =
        vec![if line.contains(" HTTP/1.") { line.to_owned() } else { format!("{line} HTTP/1.1") }];
    lines.extend(fields.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned));
    if !lines.iter().any(|l| l.to_ascii_lowercase().starts_with("host:")) {
        lines.insert(1, "Host: example.com".to_owned());
    }
    let lines: Vec<_> = lines.iter().map(|l| l.trim_end_matches('\r')).collect();
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes());
    assert_eq!(parse_request(&mut head, &Limits::default()), Ok(Progress::Complete), "{text}");
    let mut path = Vec::new();
    if canonical(head.path(), Slashes::Merge, &mut path).expect("a test gives a sound path")
        == Canonical::Rewritten
    {
        head.set_path(&path).expect("a canonical path may be sent");
    }
    head.mark_routed();
    head
}

/// Parses the head of a response: `200`, or a status and fields in lines that end in `\n`.
pub fn response_head(text: &str) -> ResponseHead {
    let (status, fields) = text.split_once('\n').unwrap_or((text, ""));
    let mut bytes = format!("HTTP/1.1 {status} Test\r\n");
    for line in fields.lines() {
        bytes.push_str(line);
        bytes.push_str("\r\n");
    }
    bytes.push_str("\r\n");
    let mut head = ResponseHead::default();
    head.buffer_mut().extend_from_slice(bytes.as_bytes());
    assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Complete), "{text}");
    head
}

/// A store whose questions the test answers.
pub fn fake_store(place: Place) -> (Arc<Store>, mpsc::Receiver<Question>) {
    Store::without_thread(place)
}

// === impl Exchange ===

impl Exchange {
    /// Expects that the filter lets the request continue.
    pub fn expect_continue(&mut self) -> &mut Self {
        assert!(matches!(self.flow, Flow::Continue), "expected Continue, got {:?}", self.flow);
        self
    }

    /// Expects that the filter answers or refuses with this status.
    pub fn expect_status(&mut self, status: u16) -> &mut Self {
        let actual = match &self.flow {
            Flow::Answer(answer) => answer.status,
            Flow::Refuse(refusal) => refusal.cause.status,
            other => panic!("expected status {status}, got {other:?}"),
        };
        assert_eq!(actual, status, "{:?}", self.flow);
        self
    }

    /// Expects that the filter refuses for this cause.
    pub fn expect_cause(&mut self, cause: &Cause) -> &mut Self {
        match &self.flow {
            Flow::Refuse(refusal) => assert_eq!(refusal.cause, cause),
            other => panic!("expected {cause}, got {other:?}"),
        }
        self
    }

    /// Expects a field with only this value: on the filter's answer if there is one, else on the request.
    pub fn expect_header(&mut self, name: &str, value: &str) -> &mut Self {
        assert_eq!(self.header(name), [value], "{name}");
        self
    }

    /// Expects that a field is absent.
    pub fn expect_no_header(&mut self, name: &str) -> &mut Self {
        assert_eq!(self.header(name), [""; 0], "{name}");
        self
    }

    /// Expects this path and query to be sent on.
    pub fn expect_target(&mut self, target: &str) -> &mut Self {
        let query = self.head.query().map(|q| format!("?{}", String::from_utf8_lossy(q)));
        let actual = format!("{}{}", String::from_utf8_lossy(self.head.path()), query.unwrap_or_default());
        assert_eq!(actual, target);
        self
    }

    /// All values of a field: on the filter's answer if there is one, else on the request.
    pub fn header(&self, name: &str) -> Vec<String> {
        let made = match &self.flow {
            Flow::Answer(answer) => &answer.headers,
            Flow::Refuse(refusal) => &refusal.headers,
            _ => return texts(&self.head.headers, name),
        };
        let same = made.iter().filter(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        same.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }

    /// Begins an attempt at an endpoint of this upstream.
    ///
    /// # Errors
    /// The filter's refusal.
    pub fn attempt(&mut self, upstream: &str) -> HookResult {
        let attempt = Attempt { upstream, endpoint: "192.0.2.200:80", number: 1, host: None, tls: false };
        self.filter.on_attempt(&mut self.head, &attempt, &mut self.cx)
    }

    /// Ends it with a status, or with the cause for which there was none.
    pub fn attempt_end(&mut self, upstream: &str, ends: Result<u16, &'static Cause>, took: Duration) {
        self.ended(upstream, ends, None, took);
    }

    /// Ends it with the answer to a gRPC call.
    pub fn attempt_end_grpc(&mut self, upstream: &str, grpc: GrpcStatus) {
        self.ended(upstream, Ok(200), Some(grpc), Duration::ZERO);
    }

    fn ended(
        &mut self,
        upstream: &str,
        ends: Result<u16, &'static Cause>,
        grpc: Option<GrpcStatus>,
        took: Duration,
    ) {
        let attempt = Attempt { upstream, endpoint: "192.0.2.200:80", number: 1, host: None, tls: false };
        let (status, cause) = (ends.unwrap_or(0), ends.err());
        let end = AttemptEnd { attempt, status, head: None, grpc, cause, took, at: Instant::now() };
        self.filter.on_attempt_end(&end, &mut self.cx);
    }

    /// Passes a piece of the request body. Returns what would be sent on.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub fn body(&mut self, data: &[u8], last: bool) -> Result<Vec<u8>, &'static Cause> {
        let mut piece = Piece::new(data, last);
        match self.filter.on_request_body(&mut piece, &mut self.cx) {
            Ok(()) => Ok(piece.data().to_vec()),
            Err(refusal) => Err(refusal.cause),
        }
    }

    /// Begins an attempt with all its facts, and waits if the filter does.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub async fn attempt_as(&mut self, attempt: &Attempt<'_>) -> Result<(), &'static Cause> {
        let mut begun = self.filter.on_attempt(&mut self.head, attempt, &mut self.cx);
        if begun.is_ok() && self.filter.hooks().has(Hooks::ATTEMPT_WAIT) {
            begun = self.filter.wait_attempt(&mut self.head, attempt, &mut self.cx).await;
        }
        begun.map_err(|refusal| refusal.cause)
    }

    /// Passes a response: `200`, or a status and fields in lines that end in `\n`.
    pub fn response(&mut self, text: &str) -> Response {
        let mut head = response_head(text);
        let hooks = self.filter.hooks();
        let body = head.body(self.head.method()) != BodyKind::Empty;
        let body_use =
            (body && hooks.has(Hooks::RESPONSE_BODY)).then(|| self.filter.response_body(&head, &mut self.cx));
        let flow = self.filter.on_response(&mut head, &mut self.cx);
        assert!(matches!(flow, Flow::Continue), "expected Continue, got {flow:?}");
        Response { head, body_use }
    }

    /// Makes the response an error with these facts from now on.
    pub fn fail(&mut self, failure: Failure) {
        self.cx.failure = Some(Box::new(failure));
    }

    /// Passes the head of a response. Returns the filter's decision.
    pub fn on_response(&mut self, head: &mut ResponseHead) -> Flow {
        self.filter.on_response(head, &mut self.cx)
    }

    /// Passes a piece of the response body. Returns what would be sent on.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub fn response_body(&mut self, data: &[u8], last: bool) -> Result<Vec<u8>, &'static Cause> {
        let mut piece = Piece::new(data, last);
        match self.filter.on_response_body(&mut piece, &mut self.cx) {
            Ok(()) => what_becomes_of(piece),
            Err(refusal) => Err(refusal.cause),
        }
    }

    /// Reports a pause of the upstream. Returns what is sent on then.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub fn response_pause(&mut self) -> Result<Vec<u8>, &'static Cause> {
        let mut piece = Piece::pause();
        match self.filter.on_response_body(&mut piece, &mut self.cx) {
            Ok(()) => what_becomes_of(piece),
            Err(refusal) => Err(refusal.cause),
        }
    }

    /// The filter, for hooks that have no method here.
    pub fn filter(&self) -> Rc<dyn Filter> {
        Rc::clone(&self.filter)
    }

    /// Ends the response with these trailers, in lines that end in `\n`; what precedes them is not shown.
    pub fn response_trailers(&mut self, trailers: &str) {
        let mut trailers = trailers.as_bytes().to_vec();
        let seen = Seen { data: b"", mark: Mark::Last, trailers: Some(&mut trailers) };
        let watched = self.filter.on_response_body(&mut Piece::seen(seen), &mut self.cx);
        assert!(watched.is_ok(), "{watched:?}");
    }

    /// Runs the tasks that the filter left beside the exchange.
    pub async fn tasks(&mut self) {
        let tasks = std::mem::take(&mut *self.script.tasks.borrow_mut());
        for task in tasks {
            task.await;
        }
    }

    /// Ends the exchange.
    pub fn end(&mut self, end: End) {
        self.filter.on_end(&end, &mut self.cx);
    }

    /// The filter's calls and their upstreams.
    pub fn calls(&self) -> Vec<(String, CallRequest)> {
        self.script.calls.borrow().clone()
    }
}

// === impl Response ===

impl Response {
    /// Expects a field with only this value.
    pub fn expect_header(&self, name: &str, value: &str) -> &Self {
        assert_eq!(texts(&self.head.headers, name), [value], "{name}");
        self
    }

    /// Expects that a field is absent.
    pub fn expect_no_header(&self, name: &str) -> &Self {
        assert_eq!(texts(&self.head.headers, name), [""; 0], "{name}");
        self
    }

    /// Expects that a field occurs once and is not empty.
    pub fn expect_present(&self, name: &str) -> &Self {
        let all = texts(&self.head.headers, name);
        assert!(matches!(all.as_slice(), [one] if !one.is_empty()), "{name}: {all:?}");
        self
    }
}

/// What is sent on for a piece, waiting if it is produced elsewhere.
fn what_becomes_of(piece: Piece<'_>) -> Result<Vec<u8>, &'static Cause> {
    let as_it_is = piece.data().to_vec();
    let (_, Some(mut later)) = piece.into_replaced() else { return Ok(as_it_is) };
    let mut task = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(made) = later.0.as_mut().poll(&mut task) {
            return made.map(|made| made.data);
        }
        std::thread::yield_now();
    }
}

fn texts(fields: &Fields, name: &str) -> Vec<String> {
    fields.get_all(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}

impl Services for Script {
    fn call<'a>(
        &'a self,
        upstream: &'a str,
        request: CallRequest,
    ) -> Waiting<'a, Result<CallAnswer, &'static Cause>> {
        self.calls.borrow_mut().push((upstream.to_owned(), request));
        let answer = self.answers.borrow_mut().pop_front();
        Box::pin(std::future::ready(answer.unwrap_or(Err(&weir_upstream::error::NO_ENDPOINT))))
    }

    /// Keeps the task: it runs while a filter of this environment waits, and in [`Exchange::tasks`].
    fn spawn(&self, task: Task) -> bool {
        self.tasks.borrow_mut().push(task);
        true
    }

    /// Runs the job immediately: a test may block its thread.
    fn block(&self, job: Job) -> bool {
        self.blocked.set(self.blocked.get() + 1);
        job();
        true
    }

    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        let at = Arc::as_ptr(key).addr();
        let mut locals = self.locals.borrow_mut();
        let (_, state) = locals.entry(at).or_insert_with(|| (Arc::clone(key), make()));
        Rc::clone(state)
    }
}

macro_rules! opaque {
    ($($type:ident)*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    )*};
}

opaque!(Exchange Response Running Stand);
