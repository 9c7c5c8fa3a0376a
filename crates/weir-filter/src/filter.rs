//! The [`Filter`] trait: what one filter sees, may do, and when.
//!
//! A filter is one file in weir-filters or a crate beside it: its settings, its documentation, its behaviour and its tests. One instance serves
//! all cores for the life of a snapshot, so it holds settings and shared state only; what belongs to one exchange lives in
//! [`Cx::state`], what belongs to a core in a [`PerCore`]. Hooks run in place on the core that serves the connection: none
//! of them may block. [`Filter::wait`] and [`Filter::wait_response`] are async, and run only after [`Flow::Wait`].
//!
//! ```text
//!  request head ─► on_request ─(Wait)─► wait ─► … next filter …        response: the same filters in reverse
//!  request body ─► on_request_body, piece by piece        response head ─► on_response ─(Wait)─► wait_response
//!  each attempt ─► on_attempt … on_attempt_end            response body ─► on_response_body, piece by piece
//!  the end, also of an aborted exchange ─► on_end, exactly once for each filter that saw the request
//! ```
//!
//! Before a filter sees a head it says what it does with the body behind it ([`BodyUse`]). `body.rs` has what bodies are
//! made of, `context.rs` what a filter knows of its exchange, `identity.rs` what it knows of the caller, `core_handle.rs` what its core does for it, and `kind.rs` how
//! settings become a filter.

mod body;
mod context;
mod core_handle;
mod header_name;
mod identity;
mod kind;
mod places;
mod switch;

pub use body::{Answer, Body, BodySource, BodyUse, FileRange, Mark, Piece};
pub use context::{Consumer, Consumers, Cx, Failure, RouteScope, TimeLimits};
pub use core_handle::{CoreHandle, Job, PerCore, Services, Task};
pub use header_name::{HeaderName, allow_name, is_address};
pub use identity::{Caller, Identity, Told};
pub use kind::{
    Access, Build, Built, FilterKind, IntoFilter, Kept, Mistake, Portable, Purge, Purgeable, Settings,
    Tended, Tending,
};
pub use switch::Switch;
pub use weir_config::schema::{FilePath, TextOrPath};
pub use weir_upstream::fetch::{FetchError, FetchRequest, Fetcher, Trust, Url, Version};
pub use weir_upstream::talk::{CALL_BODY_BYTES, CallAnswer, CallRequest, DISCARDED};

pub use crate::concealed::Conceals;
pub use body::{BodyHooks, Hold, Owed, line_of};
pub use context::{Begun, FILTER};
pub use places::Places;

use std::future::Future;
use std::ops::BitOr;
use std::pin::Pin;
use std::time::{Duration, Instant};
use weir_h1::FieldName;
pub use weir_h1::{RequestHead, ResponseHead};
use weir_telemetry::Figure;
use weir_upstream::error::Cause;

/// What happens next with an exchange.
#[derive(Debug)]
pub enum Flow {
    /// The filter answers: redirect, cached response. On the request, later filters do not run, and the ones that ran see
    /// the answer in their `on_response`. On the response, the answer takes its place for the filters that are left.
    Answer(Box<Answer>),
    /// On to the next filter.
    Continue,
    /// The filter refuses with a cause; `respond.rs` makes the answer.
    Refuse(Box<Refusal>),
    /// Call [`Filter::wait`] next, or [`Filter::wait_response`]. Only from `on_request` and `on_response`.
    Wait,
}

impl Flow {
    /// Refuses with a cause.
    pub fn refuse(cause: &'static Cause) -> Self {
        Self::Refuse(Refusal::new(cause))
    }

    /// Refuses with a cause and a field on the answer.
    pub fn refuse_with(cause: &'static Cause, headers: Vec<(FieldName, Vec<u8>)>) -> Self {
        Self::Refuse(Box::new(Refusal { cause, detail: None, headers }))
    }
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

impl Refusal {
    /// A refusal that says what its cause says.
    pub fn new(cause: &'static Cause) -> Box<Self> {
        Box::new(Self { cause, detail: None, headers: Vec::new() })
    }
}

/// What a hook returns that can only go on or refuse.
pub type HookResult = Result<(), Box<Refusal>>;

/// One try at one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// The endpoint's address.
    pub endpoint: &'a str,
    /// 1 for the first attempt of the exchange.
    pub number: u32,
    /// The Host that the endpoint gets, where it is not that of the head. Known where the attempt begins.
    pub host: Option<&'a str>,
    /// Whether it goes there by TLS. Known where the attempt begins.
    pub tls: bool,
}

/// How a call of gRPC was answered, as far as the head of the response tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcStatus {
    /// By no message, and this status.
    Told(u8),
    /// The trailers will tell.
    ToCome,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub struct AttemptEnd<'a> {
    /// The attempt. A connection that was handed over may lead to another endpoint than the one that was picked.
    pub attempt: Attempt<'a>,
    /// The status that the upstream answered with; 0 when it did not.
    pub status: u16,
    /// The head of the answer as the upstream sent it, before any filter has seen it; `None` without an answer, or where another attempt's
    /// is taken.
    pub head: Option<&'a ResponseHead>,
    /// What it came to where the request was a call of gRPC.
    pub grpc: Option<GrpcStatus>,
    /// Why it did not; `None` with a status of 0 where that says nothing about the upstream: the answer to another attempt came
    /// first (`hedge`), or a filter refused the attempt before anybody was asked.
    pub cause: Option<&'static Cause>,
    /// From the moment the endpoint was picked to the head of the response, or to the failure.
    pub took: Duration,
    /// When that was.
    pub at: Instant,
}

/// Which hooks a filter has. A hook that no filter of a route has costs one bit test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks(u16);

impl Hooks {
    /// None.
    pub const NONE: Self = Self(0);
    /// `on_request` (and `wait`).
    pub const REQUEST: Self = Self(1);
    /// `request_body` and `on_request_body`.
    pub const REQUEST_BODY: Self = Self(2);
    /// `on_response` (and `wait_response`).
    pub const RESPONSE: Self = Self(4);
    /// `response_body` and `on_response_body`.
    pub const RESPONSE_BODY: Self = Self(8);
    /// `on_end`.
    pub const END: Self = Self(16);
    /// `on_attempt` and `on_attempt_end`.
    pub const ATTEMPT: Self = Self(32);
    /// All of them.
    pub const ALL: Self = Self(63);
    /// `wait_attempt`. Only with `ATTEMPT`.
    pub const ATTEMPT_WAIT: Self = Self(128);
    /// Not a hook: `on_request` answers every preflight of a browser. So a preflight takes the route of the request that it asks
    /// about, whatever methods that route has; one that no filter answers there is refused.
    pub const PREFLIGHT: Self = Self(64);
    /// Not a hook: where the filter is written for all routes, it also runs for requests that find none, and sees how the gateway
    /// refuses them. It must not wait.
    pub const UNROUTED: Self = Self(256);
    /// Not a hook: `on_request` answers or refuses every request, so none reaches the filters and the target behind it. A route
    /// with such a filter needs no target.
    pub const ANSWERS: Self = Self(512);
    /// Not a hook: as [`Self::ANSWERS`], for requests that came without TLS.
    pub const ANSWERS_PLAIN: Self = Self(1024);

    /// Whether all hooks of `other` are among these.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether one of them is among these.
    #[inline]
    pub const fn has_any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }
}

/// Each has a bit of its own.
const _: () = {
    let Hooks(beside) = Hooks::PREFLIGHT;
    let (Hooks(all), Hooks(waits), Hooks(unrouted)) = (Hooks::ALL, Hooks::ATTEMPT_WAIT, Hooks::UNROUTED);
    let (Hooks(every), Hooks(plain)) = (Hooks::ANSWERS, Hooks::ANSWERS_PLAIN);
    assert!(
        all + beside + waits + unrouted + every + plain == all | beside | waits | unrouted | every | plain
    );
};

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

    /// What of a request's target this filter takes for a secret. Nothing by default. It is not logged, and a key in the path is
    /// taken out before the request is routed: [`Cx::path_key`].
    fn conceals(&self) -> Conceals {
        Conceals::default()
    }

    /// What this filter does with the body of this request, where there is one. Asked right before `on_request`.
    ///
    /// The default is right for every filter that has the hook; one that only looks says [`BodyUse::Watch`] and costs less.
    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        let _ = (head, cx);
        BodyUse::Change
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

    /// Whether [`Filter::wait`] is a place in a queue. A client that sends nothing more loses it, because it may have closed the
    /// connection; elsewhere it is waited for, because it may still read.
    fn is_queue(&self) -> bool {
        false
    }

    /// Sees each piece of the request body, its pauses and its trailers, and may change them if it said
    /// [`BodyUse::Change`].
    ///
    /// # Errors
    /// A refusal ends the exchange. The piece does not reach the upstream, so no upstream sees a whole message of which the
    /// last piece was refused.
    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let _ = (piece, cx);
        Ok(())
    }

    /// Sees, and may change, the request head as it goes to one endpoint; the changes stay for the attempts that follow.
    ///
    /// # Errors
    /// A refusal ends the exchange: no other endpoint is tried.
    fn on_attempt(&self, head: &mut RequestHead, attempt: &Attempt<'_>, cx: &mut Cx) -> HookResult {
        let _ = (head, attempt, cx);
        Ok(())
    }

    /// Waits for something outside before the attempt goes on, after `on_attempt` of all filters: only for those that say
    /// [`Hooks::ATTEMPT_WAIT`]. Dropped when the client goes away.
    fn wait_attempt<'a>(
        &'a self,
        head: &'a mut RequestHead,
        attempt: &'a Attempt<'a>,
        cx: &'a mut Cx,
    ) -> Waiting<'a, HookResult> {
        let _ = (head, attempt, cx);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Learns how an attempt ended: once for each `on_attempt`, unless the exchange itself is dropped.
    fn on_attempt_end(&self, end: &AttemptEnd<'_>, cx: &mut Cx) {
        let _ = (end, cx);
    }

    /// What this filter does with the body of this response, where there is one. Asked right before `on_response`.
    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        let _ = (head, cx);
        BodyUse::Change
    }

    /// Sees, and may change, the response head: the upstream's or the gateway's own. Once for each exchange.
    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let _ = (head, cx);
        Flow::Continue
    }

    /// Waits for something outside, after `on_response` returned [`Flow::Wait`]. Dropped when the client goes away.
    fn wait_response<'a>(&'a self, head: &'a mut ResponseHead, cx: &'a mut Cx) -> Waiting<'a> {
        let _ = (head, cx);
        Box::pin(std::future::ready(Flow::Continue))
    }

    /// Sees each piece of the response body, its pauses and its trailers, and may change them if it said
    /// [`BodyUse::Change`].
    ///
    /// # Errors
    /// A refusal cuts the response, which has begun: the client must not take it for whole.
    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let _ = (piece, cx);
        Ok(())
    }

    /// What an operator may want to know of its state now, for `/metrics` and `weir status`. Called by the admin listener,
    /// off the cores.
    fn readings(&self) -> Vec<Reading> {
        Vec::new()
    }

    /// The gateway has drained and ends: gives back what this filter holds that others could use. Whoever keeps a clone of `done` is
    /// waited for, but not for long. Called once, off the cores.
    fn retire(&self, done: &std::sync::mpsc::Sender<()>) {
        let _ = done;
    }

    /// What `weir check` tells of it beside mistakes, in a sentence each: a bound that follows from its settings.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// What `weir check` tells of it because of the filters that stand around it on a route, in a sentence each.
    fn notes_among(&self, before: &[Neighbour<'_>], behind: &[Neighbour<'_>]) -> Vec<String> {
        let _ = (before, behind);
        Vec::new()
    }

    /// What `weir explain` tells of a request with this path, in canonical form, beside the settings: a sentence each. Called by no core.
    fn explain(&self, head: &RequestHead, path: &[u8]) -> Vec<String> {
        let _ = (head, path);
        Vec::new()
    }

    /// Learns how the exchange ended. Exactly once for each filter whose `on_request` ran, also when it was aborted.
    fn on_end(&self, end: &End, cx: &mut Cx) {
        let _ = (end, cx);
    }
}

/// Another filter of the same route.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// Its name.
    pub name: &'static str,
    /// Its settings with every default filled in.
    pub settings: &'a serde_json::Value,
}

/// One figure of a filter's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it is.
    pub figure: &'static Figure,
    /// Of what it is, where the filter has several: the name of an upstream.
    pub of: String,
    /// The figure.
    pub value: u64,
}

impl Reading {
    /// A figure of which the filter has one.
    pub const fn one(figure: &'static Figure, value: u64) -> Self {
        Self { figure, of: String::new(), value }
    }

    /// A figure of one of several things.
    pub fn of(figure: &'static Figure, of: &str, value: u64) -> Self {
        Self { figure, of: of.to_owned(), value }
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
