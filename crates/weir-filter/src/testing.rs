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

mod exchange;
mod script;

pub use exchange::{Exchange, Response};

use crate::concealed::split_path_key;
use crate::filter::directory::{Directory, Origin, Rules, Source};
use crate::filter::{
    Begun, BodyUse, Build, CallAnswer, Consumer, CoreHandle, Cx, Fetcher, Filter, FilterKind, Flow, Hooks,
    Kept, Piece, Reading, RouteScope, Services, Settings,
};
use crate::store::{Place, Question, Room, Server, Store, Stores};
use schemars::JsonSchema;
use script::Script;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::Cell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use weir_config::{Diagnostics, Node};
use weir_h1::{Limits, Progress, RequestHead, ResponseHead, parse_request, parse_response};
use weir_route::variables::{Bounds, Vocabulary};
use weir_route::{Canonical, RouteId, RouteSpec, Slashes, Table, canonical};
use weir_upstream::error::Cause;
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
    watch: bool,
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

/// The longest body that expressions read.
const READ_BODY: usize = 64 * 1024;

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
            watch: true,
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

    /// Has files not watched.
    #[must_use]
    pub const fn unwatched(mut self) -> Self {
        self.watch = false;
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
            open_consumers: self.directory.is_some(),
            watch: self.watch,
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
