//! The [`Filter`] trait: what one filter sees, may do, and when.
//!
//! A filter is one file in `filters/`: its settings, its documentation, its behaviour and its tests. One instance serves
//! all cores for the life of a snapshot, so it holds settings and shared state only; what belongs to one exchange lives in
//! [`Cx::state`]. Hooks run in place on the core that serves the connection: none of them may block. Only
//! [`Filter::wait`] is async, and it runs only after `on_request` returned [`Flow::Wait`].
//!
//! ```text
//!  request head ─► on_request ─(Wait)─► wait ─► … next filter …        response: the same filters in reverse
//!  request body ─► on_request_body, piece by piece        response head ─► on_response
//!                                                         response body ─► on_response_body, piece by piece
//!  the end, also of an aborted exchange ─► on_end, exactly once for each filter that saw the request
//! ```
//!
//! `filter/kind.rs` is how settings become a filter.

mod kind;

pub use kind::{Build, Built, FilterKind, HeaderName, IntoFilter, Kept, Mistake, Settings};

use crate::error::Cause;
use crate::route::{Captures, RouteId, Table};
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::ops::BitOr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use weir_h1::FieldName;
pub use weir_h1::{RequestHead, ResponseHead};

/// What happens next with an exchange.
#[derive(Debug)]
pub enum Flow {
    /// The filter answers: redirect, cached response. Later filters do not run; the ones that ran see the answer in
    /// their `on_response`.
    Answer(Box<Answer>),
    /// On to the next filter.
    Continue,
    /// The filter refuses with a cause; `respond.rs` makes the answer.
    Refuse(Box<Refusal>),
    /// Call [`Filter::wait`] next. Only from `on_request`.
    Wait,
}

impl Flow {
    /// Refuses with a cause.
    pub fn refuse(cause: &'static Cause) -> Self {
        Self::Refuse(Box::new(Refusal { cause, detail: None, headers: Vec::new() }))
    }

    /// Refuses with a cause and a field on the answer.
    pub fn refuse_with(cause: &'static Cause, headers: Vec<(FieldName, Vec<u8>)>) -> Self {
        Self::Refuse(Box::new(Refusal { cause, detail: None, headers }))
    }
}

/// A response that a filter made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Fields, without framing ones: Content-Length is written by the gateway.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// A refusal: the status and the body come from the cause.
#[derive(Debug)]
pub struct Refusal {
    /// Why.
    pub cause: &'static Cause,
    /// What to tell the client instead of the cause's meaning, where `expose_causes` is on.
    pub detail: Option<String>,
    /// Fields for the answer, such as `Retry-After`.
    pub headers: Vec<(FieldName, Vec<u8>)>,
}

/// Which hooks a filter has. A hook that no filter of a route has costs one bit test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks(u8);

impl Hooks {
    /// None.
    pub const NONE: Self = Self(0);
    /// `on_request` (and `wait`).
    pub const REQUEST: Self = Self(1);
    /// `on_request_body`.
    pub const REQUEST_BODY: Self = Self(2);
    /// `on_response`.
    pub const RESPONSE: Self = Self(4);
    /// `on_response_body`.
    pub const RESPONSE_BODY: Self = Self(8);
    /// `on_end`.
    pub const END: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Whether all hooks of `other` are among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Hooks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The names of the fields that a filter answers for: see [`Filter::guards`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldGuards {
    /// Fields of requests.
    pub request: Vec<FieldName>,
    /// Fields of responses.
    pub response: Vec<FieldName>,
}

/// What [`Filter::wait`] returns.
pub type Waiting<'a, T = Flow> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One step on the way of a request and its response. Every hook does nothing by default.
pub trait Filter: Send + Sync + 'static {
    /// The hooks that this filter has. All by default: right for every filter, but a filter that says less costs less,
    /// above all where it leaves bodies alone.
    fn hooks(&self) -> Hooks {
        Hooks::ALL
    }

    /// The fields that this filter sets, hides or decides by. None by default.
    ///
    /// Nobody gets past the filter by another spelling of such a field of a request (`x_user` for `x-user`, which CGI and
    /// WSGI read as one): it is dropped before `on_request`. Nor by a trailer of that name, in either direction.
    fn guards(&self) -> FieldGuards {
        FieldGuards::default()
    }

    /// Sees, and may change, the request head before an upstream is chosen.
    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let _ = (head, cx);
        Flow::Continue
    }

    /// Waits for something outside, after `on_request` returned [`Flow::Wait`]. Dropped when the client goes away.
    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        let _ = (head, cx);
        Box::pin(std::future::ready(Flow::Continue))
    }

    /// Sees, and may change, each piece of the request body. `Flow::Wait` is not possible here.
    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> Flow {
        let _ = (piece, cx);
        Flow::Continue
    }

    /// Sees, and may change, the response head: the upstream's or the gateway's own.
    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) {
        let _ = (head, cx);
    }

    /// Sees, and may change, each piece of the response body.
    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) {
        let _ = (piece, cx);
    }

    /// Learns how the exchange ended. Exactly once for each filter whose `on_request` ran, also when it was aborted.
    fn on_end(&self, end: &End, cx: &mut Cx) {
        let _ = (end, cx);
    }
}

/// A piece of a body on its way through: as it was read, or replaced.
#[derive(Debug)]
pub struct Piece<'a> {
    data: &'a [u8],
    replaced: Option<Vec<u8>>,
    last: bool,
}

impl<'a> Piece<'a> {
    /// A piece as read; `last` when the message ends with it (it may then be empty).
    pub const fn new(data: &'a [u8], last: bool) -> Self {
        Self { data, replaced: None, last }
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        self.replaced.as_deref().unwrap_or(self.data)
    }

    /// Whether the message ends with this piece.
    pub const fn is_last(&self) -> bool {
        self.last
    }

    pub(crate) fn into_replaced(self) -> Option<Vec<u8>> {
        self.replaced
    }

    /// Replaces the bytes; an empty vector swallows them. The message is then sent in chunks, because its length is no
    /// longer known.
    pub fn replace(&mut self, data: Vec<u8>) {
        self.replaced = Some(data);
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Status sent to the client; 0 when none was.
    pub status: u16,
    /// Why the gateway answered itself or cut the exchange short.
    pub cause: Option<&'static Cause>,
    /// Bytes of the request body read.
    pub bytes_in: u64,
    /// Bytes of the response body sent.
    pub bytes_out: u64,
}

/// Who calls, as written under `consumers`.
#[derive(Debug, Default)]
pub struct Consumer {
    /// The key under `consumers`.
    pub name: String,
    /// Index of its plan among the plans of the snapshot.
    pub plan: Option<usize>,
    /// Networks it may call from; empty for anywhere.
    pub allow_ips: Vec<ipnet::IpNet>,
    /// Its credentials, under the name of the filter that reads them.
    pub credentials: HashMap<String, Vec<String>>,
}

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
    /// How filters reach an upstream.
    pub caller: Option<Rc<dyn Call>>,
}

/// How a filter reaches an upstream while it waits.
pub trait Call {
    /// Sends one request without a body to an upstream and reads its whole answer, within the upstream's timeouts and
    /// [`CALL_BODY_BYTES`].
    fn call<'a>(
        &'a self,
        upstream: &'a str,
        request: CallRequest,
    ) -> Waiting<'a, Result<Answer, &'static Cause>>;
}

/// Longest body that a filter's own call may be answered with, in bytes.
pub const CALL_BODY_BYTES: usize = 64 * 1024;

/// A filter's own request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// Method, such as `GET`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Host and port.
    pub authority: Vec<u8>,
    /// Fields beside Host.
    pub headers: Vec<(FieldName, Vec<u8>)>,
}

/// What a filter knows of the exchange beside the heads.
pub struct Cx {
    /// The client's address: the peer's, or the one that a trusted proxy told.
    pub client: IpAddr,
    /// Whether the client's connection is TLS.
    pub tls: bool,
    /// The id of the request, once `request_id` has given one: for the log.
    pub request_id: Option<String>,
    pub(crate) scope: Rc<RouteScope>,
    pub(crate) consumer: Option<usize>,
    pub(crate) filter: u32,
    states: Vec<(u32, Box<dyn Any>)>,
    notes: SmallVec<[(u32, u64); 4]>,
    random: u64,
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
    /// What an exchange knows when it begins. `random` seeds [`Cx::new_id`].
    pub fn new(scope: Rc<RouteScope>, client: IpAddr, tls: bool, random: u64) -> Self {
        Self {
            client,
            tls,
            request_id: None,
            scope,
            consumer: None,
            filter: 0,
            states: Vec::new(),
            notes: SmallVec::new(),
            random,
        }
    }

    /// Name of the route.
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
    pub fn consumer(&self) -> Option<&Consumer> {
        self.consumer.and_then(|i| self.scope.consumers.get(i))
    }

    /// The index of who calls among [`Cx::consumers`].
    pub const fn consumer_index(&self) -> Option<usize> {
        self.consumer
    }

    /// Says who calls. The filters of the consumer's plan run next.
    pub const fn set_consumer(&mut self, index: usize) {
        self.consumer = Some(index);
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
    pub fn note(&mut self) -> &mut u64 {
        let filter = self.filter;
        let at = self.notes.iter().position(|(f, _)| *f == filter).unwrap_or_else(|| {
            self.notes.push((filter, 0));
            self.notes.len() - 1
        });
        &mut self.notes[at].1
    }

    /// The filters have new indexes: their position in `old`.
    pub(crate) fn renumber(&mut self, scope: Rc<RouteScope>, old: &[u32]) {
        let new = |index: &mut u32| *index = old.iter().position(|o| o == index).unwrap_or(old.len()) as u32;
        self.states.iter_mut().for_each(|(index, _)| new(index));
        self.notes.iter_mut().for_each(|(index, _)| new(index));
        self.scope = scope;
    }

    /// A new id: 128 random bits as 32 hexadecimal digits. Unique, not secret.
    pub fn new_id(&mut self) -> [u8; 32] {
        let mut id = [0u8; 32];
        for half in id.chunks_exact_mut(16) {
            let mut bits = self.next_random();
            for digit in half {
                *digit = b"0123456789abcdef"[(bits & 15) as usize];
                bits >>= 4;
            }
        }
        id
    }

    /// Sends a request of the filter's own to an upstream. Only from [`Filter::wait`].
    ///
    /// # Errors
    /// The cause for which there was no answer.
    pub async fn call(&self, upstream: &str, request: CallRequest) -> Result<Answer, &'static Cause> {
        match &self.scope.caller {
            Some(caller) => caller.call(upstream, request).await,
            None => Err(&crate::error::NO_ENDPOINT),
        }
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
