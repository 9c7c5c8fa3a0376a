//! What a filter knows of its exchange besides the heads: the context and the route. `state` is what filters keep in it,
//! `bodies` what they ask of the bodies, and `background` continues a request after its answer.

mod background;
mod bodies;
mod rarely;
mod state;

pub use state::FILTER;

use super::consumer::{Consumer, Consumers};
use super::identity::CallerFacts;
use super::{BodyHooks, CallAnswer, CallRequest, CoreHandle, HeldBody, Hold, Overflow, PendingPiece};
use crate::phrases::neutral;
use background::Background;
use bodies::LoggedBody;
use bytes::Bytes;
use rarely::Rarely;
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_h1::{Fields, RequestHead};
use weir_route::{Parameters, RouteId, Table};
use weir_upstream::error::Cause;
use weir_upstream::upstream::balance::Random;
use weir_wire::tls::PeerCertificate;

/// No filter.
const NOBODY: u32 = u32::MAX;

/// What all exchanges of one route on one core share with its filters.
pub struct RouteScope {
    /// Name of the route.
    pub name: Arc<str>,
    /// Its table and its place in it: for captures.
    pub matched: Option<(Arc<Table>, RouteId)>,
    /// All consumers.
    pub consumers: Consumers,
    /// What the core does for filters.
    pub core: CoreHandle,
    /// Whether clients get to see causes.
    pub exposes_causes: bool,
}

/// How long filters allow an exchange to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// In total.
    pub exchange: Option<Duration>,
    /// To the response head, for each attempt.
    pub response: Option<Duration>,
}

/// The facts about an answer with a status of 400 or more, for filters that replace it.
#[derive(Debug, Default)]
pub struct Failure {
    /// Why the gateway refused; `None` if something else answered.
    pub cause: Option<&'static Cause>,
    /// The explanation for the client.
    pub detail: String,
    /// The client's `Accept`.
    pub accept: Option<Box<[u8]>>,
    /// Whether the client speaks gRPC and so reads no pages.
    pub grpc: bool,
}

/// What expressions read that few configs name.
#[derive(Clone, Default)]
pub(crate) struct Told {
    /// The name in the client's TLS handshake.
    pub(crate) server_name: Option<Rc<str>>,
    /// The upstream that the request went to.
    pub(crate) upstream: Option<Arc<str>>,
}

/// What few exchanges have. Boxed, because otherwise each exchange would initialize every part and drop it at its end.
#[derive(Default)]
pub(super) struct Rare {
    /// Consumers of sources that other filters named before.
    pub(super) replaced: Vec<Arc<Consumer>>,
    /// Where what exceeds [`Cx::reads_ahead`] waits.
    overflow: Option<Box<Overflow>>,
    /// The fields of a filter's answer, if given by [`Cx::answer_with`].
    ready: Option<Fields>,
    /// The request that continues after the answer.
    background: Option<Box<Background>>,
    /// The trailers after a response's body that was gathered whole.
    trailers: Vec<u8>,
    told: Told,
    logged_body: Option<LoggedBody>,
}

/// What a filter knows of the exchange besides the heads.
pub struct Cx {
    /// The client's address: the peer's, or the one a trusted proxy reports.
    pub client: IpAddr,
    /// Whether the client's connection is TLS.
    pub tls: bool,
    /// The client's certificate from the TLS handshake with this gateway, if `client_auth` asks for one.
    pub certificate: Option<Rc<PeerCertificate>>,
    /// The request's id, once `request_id` has set one: for the log.
    pub request_id: Option<String>,
    pub(crate) scope: Rc<RouteScope>,
    pub(crate) consumer: Option<usize>,
    /// The consumer with that number, if it is one of a source.
    pub(crate) listed: Option<Arc<Consumer>>,
    pub(super) rare: Rarely<Option<Box<Rare>>>,
    /// Whether a filter admitted the request without credentials: for `any`.
    pub(crate) unnamed: bool,
    /// The running filter; see [`FILTER`].
    pub filter: u32,
    /// The key found in a segment of the path.
    pub(crate) path_key: Option<Box<[u8]>>,
    /// The claims of the token that `jwt` verified, if an expression of the config reads claims.
    pub(crate) claims: Option<Rc<serde_json::Value>>,
    /// Which of the consumer's credentials was used, for the log.
    pub credential: Option<[u8; 8]>,
    pub(super) facts: CallerFacts,
    /// The filters that see the request's body.
    pub request_bodies: BodyHooks,
    /// The filters that see the response's body.
    pub response_bodies: BodyHooks,
    /// The current message's body, if a filter asked for all of it.
    pub whole: Option<Bytes>,
    /// The request's body after all filters have seen its head: what every attempt sends.
    pub request_whole: Option<Bytes>,
    /// The same, if it is in a file.
    pub request_spool: Option<Rc<dyn HeldBody>>,
    /// Whether a filter has changed the body of a message: for the access log, which records the request's.
    pub body_changed: bool,
    /// How many bytes filters added to the response's body, less what they took away.
    pub body_grown: i64,
    /// Whether a filter turned the request into a gRPC call.
    pub calls_grpc: bool,
    /// The arm of the route's split, once drawn.
    arm: Option<u16>,
    /// The attempt shown to filters: when it began, its number, its upstream and endpoint.
    pub attempt: Option<(Instant, u32, Arc<str>, Arc<str>)>,
    /// A piece of the response's body that a filter has promised.
    pub pending: Option<Box<PendingPiece>>,
    /// The same of the request's body.
    pub request_pending: Option<Box<PendingPiece>>,
    /// What to wait for before more of the response's body is read.
    pub held: Option<Hold>,
    /// The length of our own answer's body, if it is sent to the client.
    pub own_length: Option<u64>,
    /// Whether a filter removed it.
    pub length_dropped: bool,
    /// The time limits that filters set.
    pub limits: TimeLimits,
    /// How far ahead of the client to read the response: see [`Cx::read_on`].
    pub reads_on: usize,
    /// The same for as long as the client is there: see [`Cx::read_ahead`].
    pub reads_ahead: usize,
    /// Whether the response is an upstream's whose body is unread: see [`Cx::hide_body`].
    pub is_relayed: bool,
    /// Whether its body is read but not sent.
    pub hides_body: bool,
    /// The prefix stripped from the path, followed by its replacement; and the length of the first.
    pub prefix: Option<(Box<[u8]>, usize)>,
    /// Why the gateway itself answers, or why a filter says it does.
    pub because: Option<&'static Cause>,
    /// The facts about an answer with a status of 400 or more.
    pub failure: Option<Box<Failure>>,
    /// Whether the route itself answers: with a file, or the text under `respond`.
    pub is_of_route: bool,
    /// Whether a filter answers with a response kept from another exchange.
    is_kept: bool,
    /// Whether this request continues after the answer to another.
    is_background: bool,
    pub(super) states: Rarely<Vec<(u32, Box<dyn Any>)>>,
    /// The note of the first filter that has one; and those of the others.
    note: (u32, u64),
    notes: SmallVec<[(u32, u64); 3]>,
    random: Random,
    /// When the exchange began, until something is waited for.
    began: Option<Instant>,
}

/// What an exchange knows before its first filter runs.
pub struct Begun {
    /// What all exchanges of the route share.
    pub scope: Rc<RouteScope>,
    /// The address of the client.
    pub client: IpAddr,
    /// Whether it uses TLS.
    pub tls: bool,
    /// Its certificate.
    pub certificate: Option<Rc<PeerCertificate>>,
    /// The key found in a segment of the path.
    pub path_key: Option<Box<[u8]>>,
    /// Seeds [`Cx::new_id`].
    pub random: u64,
    /// When it began, unless something has been waited for since.
    pub at: Option<Instant>,
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("client", &self.client)
            .field("route", &self.scope.name)
            .finish_non_exhaustive()
    }
}

impl Cx {
    /// The context of an exchange before its first filter.
    #[inline(always)] // built in place: 180 instructions less than a copy
    pub fn new(begun: Begun) -> Self {
        let Begun { scope, client, tls, certificate, path_key, random, at } = begun;
        Self {
            client,
            tls,
            certificate,
            request_id: None,
            scope,
            consumer: None,
            listed: None,
            rare: Rarely::default(),
            unnamed: false,
            filter: 0,
            path_key,
            claims: None,
            credential: None,
            facts: CallerFacts::default(),
            request_bodies: BodyHooks::default(),
            response_bodies: BodyHooks::default(),
            whole: None,
            request_whole: None,
            request_spool: None,
            body_changed: false,
            body_grown: 0,
            calls_grpc: false,
            arm: None,
            attempt: None,
            pending: None,
            request_pending: None,
            held: None,
            own_length: None,
            length_dropped: false,
            limits: TimeLimits::default(),
            reads_on: 0,
            reads_ahead: 0,
            is_relayed: false,
            hides_body: false,
            prefix: None,
            because: None,
            failure: None,
            is_of_route: false,
            is_kept: false,
            is_background: false,
            states: Rarely::default(),
            note: (NOBODY, 0),
            notes: SmallVec::new(),
            random: Random::new(random),
            began: at,
        }
    }

    pub(super) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Name of the route.
    #[inline]
    pub fn route(&self) -> &str {
        &self.scope.name
    }

    /// The parts that the route captured from the path and the host that matched, whatever filters made of them.
    pub fn parameters<'a>(&'a self, head: &'a RequestHead) -> Option<Parameters<'a>> {
        let (table, route) = self.scope.matched.as_ref()?;
        table.parameters(*route, head.routed_path(), head.asked_authority())
    }

    /// All consumers of the config.
    pub fn consumers(&self) -> &Consumers {
        &self.scope.consumers
    }

    /// The caller, once a filter has named it.
    #[inline]
    pub fn consumer(&self) -> Option<&Consumer> {
        let index = self.consumer?;
        // The numbers of listed consumers are above all positions.
        self.scope.consumers.get(index).or(self.listed.as_deref())
    }

    /// The caller, if it is one of a source, shared.
    pub fn share_listed(&self) -> Option<Arc<Consumer>> {
        self.listed.clone()
    }

    /// The caller, if it is one of a source.
    #[inline]
    pub fn listed(&self) -> Option<&Consumer> {
        self.listed.as_deref()
    }

    /// The caller's index among [`Cx::consumers`], or the [number](Consumer::number) of one of a source.
    #[inline]
    pub const fn consumer_index(&self) -> Option<usize> {
        self.consumer
    }

    /// Notes that the filter is optional and admits the request without credentials.
    pub const fn pass_unnamed(&mut self) {
        self.unnamed = true;
    }

    /// Whether a filter has admitted the request without credentials since the last call: for a filter with members.
    #[inline]
    pub const fn take_unnamed(&mut self) -> bool {
        std::mem::replace(&mut self.unnamed, false)
    }

    /// The claims of the token that was verified, for expressions.
    pub fn set_claims(&mut self, claims: Rc<serde_json::Value>) {
        self.claims = Some(claims);
    }

    /// Those claims, once there are any.
    pub fn claims(&self) -> Option<&serde_json::Value> {
        self.claims.as_deref()
    }

    /// Tells expressions the name in the client's TLS handshake.
    pub fn tell_server_name(&mut self, name: Rc<str>) {
        self.rare_mut().told.server_name = Some(name);
    }

    /// Tells expressions the upstream that the request went to.
    pub fn tell_upstream(&mut self, name: Arc<str>) {
        self.rare_mut().told.upstream = Some(name);
    }

    /// What expressions were told.
    pub(crate) fn told(&self) -> Option<&Told> {
        self.rare.as_ref().map(|rare| &rare.told)
    }

    /// Notes which of the consumer's credentials was used, for the log: the first eight digits of its hash.
    #[inline]
    pub const fn set_credential(&mut self, digits: [u8; 8]) {
        self.credential = Some(digits);
    }

    /// The key in the path that a filter [conceals](super::Filter::conceals): decoded, and already removed from the
    /// path.
    #[inline]
    pub fn path_key(&self) -> Option<&[u8]> {
        self.path_key.as_deref()
    }

    /// Sets the fields of the answer that this filter is about to give, instead of a list in the answer. For fields
    /// that many answers share and that are copied as they are.
    pub fn answer_with(&mut self, fields: Fields) {
        self.rare_mut().ready = Some(fields);
    }

    /// Notes that this filter's answer was made for another request. What it says about that request, such as its
    /// cost, does not apply to this one.
    pub const fn answer_with_kept(&mut self) {
        self.is_kept = true;
    }

    /// Whether a filter answers with a kept response.
    #[inline]
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Takes the fields set by [`Cx::answer_with`].
    #[inline]
    pub fn take_ready(&mut self) -> Option<Fields> {
        self.rare.as_mut()?.ready.take()
    }

    /// Limits how long the exchange may take in total. The shortest limit applies, including the config's.
    pub fn limit_exchange(&mut self, limit: Duration) {
        self.limits.exchange = Some(self.limits.exchange.map_or(limit, |other| other.min(limit)));
    }

    /// Limits the time to the response head, for each attempt.
    pub fn limit_response(&mut self, limit: Duration) {
        self.limits.response = Some(self.limits.response.map_or(limit, |other| other.min(limit)));
    }

    /// The time limits that filters have set for this exchange.
    #[inline]
    pub const fn limits(&self) -> TimeLimits {
        self.limits
    }

    /// Notes that the path's prefix `taken` was replaced by `put`. Links in the response are translated back
    /// accordingly.
    #[inline]
    pub fn moved_path(&mut self, taken: &[u8], put: &[u8]) {
        self.prefix = Some(([taken, put].concat().into(), taken.len()));
    }

    /// The current time. Until something is waited for, it is when the request began: filters take too little time to
    /// matter, and the clock need not be read.
    #[inline]
    pub fn now(&self) -> Instant {
        self.began.unwrap_or_else(Instant::now)
    }

    /// Notes that something is waited for.
    #[inline]
    pub const fn waits(&mut self) {
        self.began = None;
    }

    /// The arm that this request takes of the route's split, by its position, if the arms have filters.
    pub fn arm(&self) -> Option<usize> {
        self.arm.map(usize::from)
    }

    /// Takes an arm. Of more than 65,535 the last ones cannot be taken.
    pub fn take_arm(&mut self, arm: usize) {
        self.arm = u16::try_from(arm).ok();
    }

    /// A random number. Good for sampling, not for secrets.
    pub const fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// Gives the reason why this filter's answer is not the requested one: for the log, the metrics, and
    /// `x-weir-cause`.
    pub const fn answer_because(&mut self, cause: &'static Cause) {
        self.because = Some(cause);
    }

    /// Whether a client may learn why it is refused and what happens behind the gateway; see [`Cx::neutral`].
    #[inline]
    pub fn exposes_causes(&self) -> bool {
        self.scope.exposes_causes
    }

    /// The text for a client that may not see causes: the same for all causes of a status.
    pub const fn neutral(status: u16) -> &'static str {
        neutral(status)
    }

    /// The cause that a filter gave with [`Cx::answer_because`].
    pub const fn because(&self) -> Option<&'static Cause> {
        self.because
    }

    /// The facts about the error answer (status of 400 or more) that this filter sees.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    /// A new id: 128 random bits as 32 hexadecimal digits. Unique, not secret.
    pub fn new_id(&mut self) -> [u8; 32] {
        weir_upstream::id::digits([self.random.next(), self.random.next()])
    }

    /// Turns a request into a gRPC call: POST, with trailers. The filter has set path, fields and body, and
    /// translates the answer for the client. The gateway's own answers reach the filter as gRPC too.
    pub fn call_grpc(&mut self, head: &mut RequestHead) {
        head.become_grpc();
        self.calls_grpc = true;
    }

    /// Whether the route itself answers: with a file, or the answer under `respond`.
    pub const fn is_of_route(&self) -> bool {
        self.is_of_route
    }

    /// Ensures that the request has an id, for an answer that states it. The log shows the same.
    pub fn make_id(&mut self) {
        if self.request_id.is_none() {
            let id = self.new_id();
            self.request_id = str::from_utf8(&id).ok().map(str::to_owned);
        }
    }

    /// The core of this exchange, for calls, tasks and blocking work.
    pub fn core(&self) -> &CoreHandle {
        &self.scope.core
    }

    /// Sends the filter's own request to an upstream. Only from [`Filter::wait`](super::Filter::wait).
    ///
    /// # Errors
    /// Why there was no answer.
    pub async fn call(&self, upstream: &str, request: CallRequest) -> Result<CallAnswer, &'static Cause> {
        self.scope.core.call(upstream, request).await
    }
}
