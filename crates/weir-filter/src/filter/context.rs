//! What a filter knows of its exchange beside the heads: the context, the route, the consumers.

use super::identity::CallerFacts;
use super::{BodyHooks, CallAnswer, CallRequest, CoreHandle, Hold, Owed};
use crate::phrases::neutral;
use bytes::Bytes;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_h1::{Fields, RequestHead, ResponseHead};
use weir_route::{Captures, RouteId, Table};
use weir_upstream::error::Cause;
use weir_upstream::upstream::balance::Random;
use weir_wire::tls::PeerCertificate;

/// Who calls, as written under `consumers`.
#[derive(Debug, Default)]
pub struct Consumer {
    /// The key under `consumers`.
    pub name: String,
    /// Index of its plan among the plans of the snapshot.
    pub plan: Option<usize>,
    /// What `acl` knows it by beside its name: `plan:NAME` and a `group:NAME` for each of its groups.
    pub labels: Vec<String>,
    /// Networks it may call from; empty for anywhere.
    pub allow_ips: Vec<ipnet::IpNet>,
    /// Its credentials, under the name of the filter that reads them.
    pub credentials: HashMap<String, Vec<String>>,
}

impl Consumer {
    /// Whether it may call from this address.
    pub fn may_call_from(&self, client: IpAddr) -> bool {
        if self.allow_ips.is_empty() {
            return true;
        }
        let client = client.to_canonical();
        self.allow_ips.iter().any(|network| network.contains(&client))
    }
}

/// The bits of [`Cx::filter`] that are an index; those above tell one member of a filter from another.
pub const FILTER: u32 = 0x00ff_ffff;

/// No filter.
const NOBODY: u32 = u32::MAX;

/// All consumers of a snapshot, in the order written.
pub type Consumers = Arc<[Consumer]>;

/// What all exchanges of one route on one core share with its filters.
pub struct RouteScope {
    /// Name of the route.
    pub name: Arc<str>,
    /// The table it stands in, and where: for captures.
    pub matched: Option<(Arc<Table>, RouteId)>,
    /// All consumers.
    pub consumers: Consumers,
    /// What the core does for filters.
    pub core: CoreHandle,
    /// Whether clients are told causes.
    pub exposes_causes: bool,
}

/// How long filters let an exchange take.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeLimits {
    /// In all.
    pub exchange: Option<Duration>,
    /// To the head of the response, for each attempt.
    pub response: Option<Duration>,
}

/// What is known of an answer of a status from 400 on, for filters that put another in its place.
#[derive(Debug, Default)]
pub struct Failure {
    /// Why the gateway refused; `None` where somebody else answered.
    pub cause: Option<&'static Cause>,
    /// What the client is told of it.
    pub detail: String,
    /// What the client would rather read.
    pub accept: Option<Box<[u8]>>,
    /// Whether it is a client of gRPC, which reads no pages.
    pub grpc: bool,
}

/// A request that goes on behind the answer that a filter gave its client.
pub(crate) struct Behind {
    pub(crate) head: Box<RequestHead>,
    /// The filter that asked for it, and what it knows of it.
    pub(crate) filter: u32,
    state: Box<dyn Any>,
    note: u64,
}

/// What a filter knows of the exchange beside the heads.
pub struct Cx {
    /// The client's address: the peer's, or the one that a trusted proxy told.
    pub client: IpAddr,
    /// Whether the client's connection is TLS.
    pub tls: bool,
    /// The certificate that the client showed in the TLS handshake with this gateway, where `client_auth` asks for one.
    pub certificate: Option<Rc<PeerCertificate>>,
    /// The id of the request, once `request_id` has given one: for the log.
    pub request_id: Option<String>,
    pub(crate) scope: Rc<RouteScope>,
    pub(crate) consumer: Option<usize>,
    /// Whether a filter let the request pass because it has no credentials: for `any`.
    pub(crate) unnamed: bool,
    /// The filter that runs; see [`FILTER`].
    pub filter: u32,
    /// The key that stood in a segment of the path.
    pub(crate) path_key: Option<Box<[u8]>>,
    /// Which of the consumer's credentials it was, for the log.
    pub credential: Option<[u8; 8]>,
    pub(super) facts: CallerFacts,
    /// Who sees the body of the request, and of the response.
    pub request_bodies: BodyHooks,
    /// Who sees the body of the response.
    pub response_bodies: BodyHooks,
    /// The body of the message that is looked at, where a filter asked for all of it.
    pub whole: Option<Bytes>,
    /// The request's, once all filters have seen its head: what every attempt sends.
    pub request_whole: Option<Bytes>,
    /// The trailers behind a response's body that was wanted whole.
    pub whole_trailers: Vec<u8>,
    /// Whether a filter has made a call of gRPC of the request.
    pub calls_grpc: bool,
    /// The attempt that filters were shown: when it began, its number, its upstream and endpoint.
    pub attempt: Option<(Instant, u32, Arc<str>, Arc<str>)>,
    /// What a filter owes of the response's body.
    pub owed: Option<Box<Owed>>,
    /// What the response's body waits for before more of it is read.
    pub held: Option<Hold>,
    /// How long the body of an answer of the gateway's own is, and whether the client is told.
    pub own_length: Option<u64>,
    /// Whether a filter took it away.
    pub length_dropped: bool,
    /// The limits of time that filters set.
    pub limits: TimeLimits,
    /// How far ahead of the client the response is read: see [`Cx::read_on`].
    pub reads_on: usize,
    /// Whether the response is an upstream's that has not been read: see [`Cx::hide_body`].
    pub is_relayed: bool,
    /// Whether its body is read and not sent.
    pub hides_body: bool,
    /// What was taken from the beginning of the path, and behind it what was put in its place; and how long the first is.
    pub prefix: Option<(Box<[u8]>, usize)>,
    /// Why the answer is one of the gateway, or of a filter that said so.
    pub because: Option<&'static Cause>,
    /// What is known of an answer of a status from 400 on.
    pub failure: Option<Box<Failure>>,
    /// Whether the answer is one that the route itself gives: a file, or the text under `respond`.
    pub is_of_route: bool,
    /// Whether a filter answers with what it kept of another exchange.
    is_kept: bool,
    /// The fields of the answer that a filter gives, if they were ready.
    ready: Option<Box<Fields>>,
    /// The request that is to go on behind the answer.
    behind: Option<Box<Behind>>,
    states: Vec<(u32, Box<dyn Any>)>,
    /// The note of the first filter that has one, and those of the others.
    note: (u32, u64),
    notes: SmallVec<[(u32, u64); 3]>,
    random: Random,
    /// When the exchange began, until something is waited for.
    began: Option<Instant>,
}

/// What an exchange knows when its first filter runs.
pub struct Begun {
    /// What all exchanges of the route share.
    pub scope: Rc<RouteScope>,
    /// The address of the client.
    pub client: IpAddr,
    /// Whether it came by TLS.
    pub tls: bool,
    /// Its certificate.
    pub certificate: Option<Rc<PeerCertificate>>,
    /// The key that stood in a segment of the path.
    pub path_key: Option<Box<[u8]>>,
    /// Seeds [`Cx::new_id`].
    pub random: u64,
    /// When, unless something was waited for since.
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
    /// The context of an exchange whose first filter is about to run.
    #[inline(always)] // it is built where it will stand: 180 instructions less than with a copy of it
    pub fn new(begun: Begun) -> Self {
        let Begun { scope, client, tls, certificate, path_key, random, at } = begun;
        Self {
            client,
            tls,
            certificate,
            request_id: None,
            scope,
            consumer: None,
            unnamed: false,
            filter: 0,
            path_key,
            credential: None,
            facts: CallerFacts::default(),
            request_bodies: BodyHooks::default(),
            response_bodies: BodyHooks::default(),
            whole: None,
            request_whole: None,
            whole_trailers: Vec::new(),
            calls_grpc: false,
            attempt: None,
            owed: None,
            held: None,
            own_length: None,
            length_dropped: false,
            limits: TimeLimits::default(),
            reads_on: 0,
            is_relayed: false,
            hides_body: false,
            prefix: None,
            because: None,
            failure: None,
            is_of_route: false,
            is_kept: false,
            ready: None,
            behind: None,
            states: Vec::new(),
            note: (NOBODY, 0),
            notes: SmallVec::new(),
            random: Random::new(random),
            began: at,
        }
    }

    /// Name of the route.
    #[inline]
    pub fn route(&self) -> &str {
        &self.scope.name
    }

    /// The parts of the path that the route's pattern captured, from the path by which it was matched.
    pub fn captures<'a>(&'a self, head: &'a RequestHead) -> Option<Captures<'a, 'a>> {
        self.scope.matched.as_ref().map(|(table, route)| table.captures(*route, head.routed_path()))
    }

    /// All consumers of the config.
    pub fn consumers(&self) -> &Consumers {
        &self.scope.consumers
    }

    /// Who calls, once a filter has said so.
    #[inline]
    pub fn consumer(&self) -> Option<&Consumer> {
        self.consumer.and_then(|i| self.scope.consumers.get(i))
    }

    /// The index of who calls among [`Cx::consumers`].
    #[inline]
    pub const fn consumer_index(&self) -> Option<usize> {
        self.consumer
    }

    /// Says that the request passes without credentials, because the filter is optional.
    pub const fn pass_unnamed(&mut self) {
        self.unnamed = true;
    }

    /// Whether a filter let the request pass without credentials since this was asked last: for a filter that has members.
    #[inline]
    pub const fn take_unnamed(&mut self) -> bool {
        std::mem::replace(&mut self.unnamed, false)
    }

    /// Says which of the consumer's credentials it was, for the log: the first eight digits of its hash.
    pub const fn set_credential(&mut self, digits: [u8; 8]) {
        self.credential = Some(digits);
    }

    /// Which of the consumer's credentials it was, as a filter said.
    pub const fn credential(&self) -> Option<[u8; 8]> {
        self.credential
    }

    /// The key that a filter said it [conceals](super::Filter::conceals): decoded, and already taken out of the path.
    #[inline]
    pub fn path_key(&self) -> Option<&[u8]> {
        self.path_key.as_deref()
    }

    /// Runs a filter that is part of this one. It has state of its own.
    pub fn member<T>(&mut self, at: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.enter(at);
        let done = run(self);
        self.leave(outer);
        done
    }

    /// The same for one that waits: until [`Cx::leave`] with what this returned.
    #[inline]
    pub const fn enter(&mut self, at: usize) -> u32 {
        let outer = self.filter;
        self.filter = outer & FILTER | (at as u32 + 1) << FILTER.count_ones();
        outer
    }

    /// Ends what [`Cx::enter`] began.
    #[inline]
    pub const fn leave(&mut self, outer: u32) {
        self.filter = outer;
    }

    /// This filter's state in this exchange, made on first use.
    pub fn state<T: Default + 'static>(&mut self) -> &mut T {
        let filter = self.filter;
        let at = match self.states.iter().position(|(f, s)| *f == filter && s.is::<T>()) {
            Some(at) => at,
            None => {
                self.states.push((filter, Box::<T>::default()));
                self.states.len() - 1
            }
        };
        self.states[at].1.downcast_mut().expect("the position was found by this very type")
    }

    /// This filter's number in this exchange, at first 0: state that needs no allocation.
    #[inline]
    pub fn note(&mut self) -> &mut u64 {
        if self.note.0 == NOBODY {
            self.note.0 = self.filter;
        }
        if self.note.0 == self.filter { &mut self.note.1 } else { self.other_note() }
    }

    fn other_note(&mut self) -> &mut u64 {
        let filter = self.filter;
        let at = self.notes.iter().position(|(f, _)| *f == filter).unwrap_or_else(|| {
            self.notes.push((filter, 0));
            self.notes.len() - 1
        });
        &mut self.notes[at].1
    }

    /// Has this request go on behind the answer that this filter is about to give, as `head`: through the filters that have not
    /// run yet and to the route's target. What comes of it is shown to those filters and to this one, which finds `state` and
    /// `note` as its own there, and to nobody else. The request has no body.
    pub fn go_on_behind<T: 'static>(&mut self, head: RequestHead, state: T, note: u64) {
        let filter = self.filter & FILTER;
        self.behind = Some(Box::new(Behind { head: Box::new(head), filter, state: Box::new(state), note }));
    }

    /// Gives the fields of the answer that this filter is about to give to a request, instead of a list in the answer itself: for those that
    /// many answers have in common, and that are copied as they lie.
    pub fn answer_with(&mut self, fields: Fields) {
        self.ready = Some(Box::new(fields));
    }

    /// Says that the answer that this filter is about to give was made for another request: what it tells of that one, such as its cost,
    /// is not this one's.
    pub const fn answer_with_kept(&mut self) {
        self.is_kept = true;
    }

    /// Whether a filter said so.
    #[inline]
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Those fields.
    #[inline]
    pub fn take_ready(&mut self) -> Option<Fields> {
        self.ready.take().map(|fields| *fields)
    }

    /// Whether a filter asked for that.
    #[inline]
    pub const fn goes_on_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// That request, with a context of its own.
    pub fn part_behind(&mut self) -> Option<(Self, Box<RequestHead>)> {
        let Behind { head, filter, state, note } = *self.behind.take()?;
        let mut cx = Self::new(Begun {
            scope: Rc::clone(&self.scope),
            client: self.client,
            tls: self.tls,
            certificate: self.certificate.clone(),
            path_key: None,
            random: self.random.next(),
            at: None,
        });
        cx.request_id.clone_from(&self.request_id);
        cx.unnamed = self.unnamed;
        self.copy_caller(&mut cx);
        cx.prefix.clone_from(&self.prefix);
        cx.limits = self.limits;
        cx.filter = filter;
        cx.states.push((filter, state));
        cx.note = (filter, note);
        Some((cx, head))
    }

    /// The filters have new indexes: their position in `old`.
    pub fn renumber(&mut self, scope: Rc<RouteScope>, old: &[u32]) {
        let new = |index: &mut u32| {
            let at = old.iter().position(|&o| o == *index & FILTER).unwrap_or(old.len()) as u32;
            *index = *index & !FILTER | at;
        };
        if self.note.0 != NOBODY {
            new(&mut self.note.0);
        }
        self.states.iter_mut().for_each(|(index, _)| new(index));
        self.notes.iter_mut().for_each(|(index, _)| new(index));
        self.request_bodies.clear(); // a tunnel has no bodies
        self.response_bodies.clear();
        self.scope = scope;
    }

    /// Limits how long the exchange may take in all. Of several limits, also those of the config, the shortest counts.
    pub fn limit_exchange(&mut self, limit: Duration) {
        self.limits.exchange = Some(self.limits.exchange.map_or(limit, |other| other.min(limit)));
    }

    /// The same for the time to the head of the response, for each attempt.
    pub fn limit_response(&mut self, limit: Duration) {
        self.limits.response = Some(self.limits.response.map_or(limit, |other| other.min(limit)));
    }

    /// The limits of this exchange that filters have set.
    #[inline]
    pub const fn limits(&self) -> TimeLimits {
        self.limits
    }

    /// Says that `taken` was taken from the beginning of the path, and `put` was put in its place: links of the response are
    /// translated back by it.
    #[inline]
    pub fn moved_path(&mut self, taken: &[u8], put: &[u8]) {
        self.prefix = Some(([taken, put].concat().into(), taken.len()));
    }

    /// What a filter said by [`Cx::moved_path`]: what was taken, and what was put in its place.
    #[inline]
    pub fn path_moved(&self) -> Option<(&[u8], &[u8])> {
        self.prefix.as_ref().and_then(|(text, taken)| text.split_at_checked(*taken))
    }

    /// Has the body of this response read to its end though the client is slow, at most so many bytes ahead of it, or gone: for
    /// a filter that watches it on behalf of others. Memory: that many bytes.
    pub const fn read_on(&mut self, ahead: usize) {
        self.reads_on = ahead;
    }

    /// Has the client told the head of this response alone, which this filter has made one that no body follows (a 304), while the body is
    /// read to its end for the filters that watch it. Those that see the head later do not see the body. False where that cannot be: the
    /// body has been read, or is no upstream's.
    #[must_use]
    pub const fn hide_body(&mut self) -> bool {
        self.hides_body = self.is_relayed;
        self.is_relayed
    }

    /// Now. While the request has not been waited for, that is when it began: what filters do meanwhile takes less time than matters
    /// to them, and the clock need not be read.
    #[inline]
    pub fn now(&self) -> Instant {
        self.began.unwrap_or_else(Instant::now)
    }

    /// Something is waited for.
    #[inline]
    pub const fn waits(&mut self) {
        self.began = None;
    }

    /// A random number. Good for sampling, not for secrets.
    pub const fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// Says why the answer that this filter gives is not the one that was asked for: for the log, the metrics, and
    /// `x-weir-cause`.
    pub const fn answer_because(&mut self, cause: &'static Cause) {
        self.because = Some(cause);
    }

    /// Whether a client is told why it is refused, and what happens behind the gateway; see [`Cx::neutral`].
    #[inline]
    pub fn exposes_causes(&self) -> bool {
        self.scope.exposes_causes
    }

    /// What a client is told in place of a cause, where causes are not exposed: the same for all causes of a status.
    pub const fn neutral(status: u16) -> &'static str {
        neutral(status)
    }

    /// The cause that a filter gave with [`Cx::answer_because`].
    pub const fn because(&self) -> Option<&'static Cause> {
        self.because
    }

    /// What is known of an answer of a status from 400 on, which this filter sees.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    /// A new id: 128 random bits as 32 hexadecimal digits. Unique, not secret.
    pub fn new_id(&mut self) -> [u8; 32] {
        weir_upstream::id::digits([self.random.next(), self.random.next()])
    }

    /// The whole body of the message whose head this filter sees, if it said [`BodyUse::Whole`](super::BodyUse::Whole).
    pub fn whole(&self) -> &[u8] {
        self.whole.as_deref().unwrap_or_default()
    }

    /// The same, shared: to be kept or sent elsewhere without a copy.
    pub fn share_whole(&self) -> Bytes {
        self.whole.clone().unwrap_or_default()
    }

    /// Replaces a body that this filter asked for whole. The head's length follows.
    pub fn set_whole(&mut self, body: impl Into<Bytes>) {
        if let Some(whole) = &mut self.whole {
            *whole = body.into();
        }
    }

    /// Gives the request this body, also one that came without a body. Only from `on_request` and `wait`; where the client sends
    /// a body, the filter must have asked for all of it.
    pub fn give_whole(&mut self, body: impl Into<Bytes>) {
        self.whole = Some(body.into());
    }

    /// A trailer of the response whose body this filter asked for whole.
    pub fn whole_trailer(&self, name: &str) -> Option<&[u8]> {
        super::body::line_of(&self.whole_trailers, name)
    }

    /// All trailers of that response, name and value.
    pub fn whole_trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        super::body::lines(&self.whole_trailers)
    }

    /// Makes a call of gRPC of a request that is none: POST, with trailers. The filter has set path, fields and body, and makes of the
    /// answer what the client understands; an answer of the gateway's own comes to it as one of gRPC.
    pub fn call_grpc(&mut self, head: &mut RequestHead) {
        head.become_grpc();
        self.calls_grpc = true;
    }

    /// How long the body of the response is that this filter sees, or would be if the request were no HEAD. Known where the
    /// upstream said so, and mostly where the gateway answers; a filter before this one may have changed the body since.
    pub fn response_length(&self, head: &ResponseHead) -> Option<u64> {
        head.content_length().or(self.own_length)
    }

    /// Whether a filter that sees the response before this one may change its body.
    pub fn response_body_changes(&self) -> bool {
        self.response_bodies.change()
    }

    /// Whether the response is one that the route gives itself: a file, or the answer under `respond`.
    pub const fn is_of_route(&self) -> bool {
        self.is_of_route
    }

    /// Leaves the length out of an answer to HEAD: a GET would be answered with another body than the one that is known.
    pub const fn drop_length(&mut self) {
        self.length_dropped = true;
    }

    /// Makes sure that the request has an id, for an answer that tells it: the log has the same.
    pub fn make_id(&mut self) {
        if self.request_id.is_none() {
            let id = self.new_id();
            self.request_id = str::from_utf8(&id).ok().map(str::to_owned);
        }
    }

    /// The core that this exchange runs on, for calls, tasks and blocking work.
    pub fn core(&self) -> &CoreHandle {
        &self.scope.core
    }

    /// Sends a request of the filter's own to an upstream. Only from [`Filter::wait`](super::Filter::wait).
    ///
    /// # Errors
    /// The cause for which there was no answer.
    pub async fn call(&self, upstream: &str, request: CallRequest) -> Result<CallAnswer, &'static Cause> {
        self.scope.core.call(upstream, request).await
    }
}
