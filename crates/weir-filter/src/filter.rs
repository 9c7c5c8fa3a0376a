//! The [`Filter`] trait: what a filter sees, what it may do, and when.
//!
//! A filter is one file in weir-filters or a crate beside it, with its settings, documentation, behavior and tests.
//! One instance serves all cores for the life of a snapshot, so it holds only settings and shared state. State of one
//! exchange is in [`Cx::state`], state of a core in a [`PerCore`]. Hooks run in place on the core that serves the
//! connection, so none of them may block. [`Filter::wait`] and [`Filter::wait_response`] are async and run only after
//! [`Flow::Wait`].
//!
//! ```text
//!  request head ─► on_request ─(Wait)─► wait ─► … next filter …        response: the same filters in reverse
//!  request body ─► on_request_body, piece by piece        response head ─► on_response ─(Wait)─► wait_response
//!  each attempt ─► on_attempt … on_attempt_end            response body ─► on_response_body, piece by piece
//!  the end, also of an aborted exchange ─► on_end, exactly once for each filter that saw the request
//! ```
//!
//! Before a filter sees a head, it says how it uses the body that follows ([`BodyUse`]). `body.rs` defines bodies,
//! `context.rs` what a filter knows of its exchange, `consumer.rs` the callers of a config, and `identity.rs` what it knows of the caller. `core_handle.rs`
//! is what its core does for it, and `kind.rs` turns settings into a filter.

mod body;
mod consumer;
mod context;
mod core_handle;
pub mod directory;
pub mod followed_file;
mod header_name;
mod identity;
mod kind;
mod places;
mod read_body;
mod spooling;
mod switch;

pub use body::{Answer, Body, BodySource, BodyUse, FileRange, Made, Mark, Piece};
pub use consumer::{Consumer, Consumers};
pub use context::{Cx, Failure, RouteScope, TimeLimits};
pub use core_handle::{CallStream, CoreHandle, Job, PerCore, Services, StreamRequest, Task};
pub use header_name::{HeaderName, allow_name, is_address, is_of_gateway};
pub use identity::{Caller, Identity, Revealed};
pub use kind::{
    Access, Build, Built, FilterKind, IntoFilter, Judged, Kept, Mistake, Portable, Purge, Purgeable,
    Settings, Tended, Tending, Written,
};
pub use spooling::{HeldBody, Overflow, SpoolRoom, Spooling};
pub use switch::Switch;
pub use weir_config::schema::{FilePath, TextOrPath};
pub use weir_upstream::fetch::{FetchError, FetchRequest, Fetcher, Trust, Url, Version};
pub use weir_upstream::talk::{CALL_BODY_BYTES, CallAnswer, CallRequest, DISCARDED};

pub use crate::asked::Asked;
pub use crate::concealed::Conceals;
pub use body::{BodyHooks, Hold, PendingPiece, line_of, write_line};
pub use context::{Begun, FILTER};
pub use places::Places;
pub(crate) use read_body::ReadBody;
pub use read_body::{BODY_DEPTH, BODY_VALUES};

use std::future::Future;
use std::ops::BitOr;
use std::pin::Pin;
use std::time::{Duration, Instant};
use weir_h1::FieldName;
pub use weir_h1::{RequestHead, ResponseHead};
use weir_telemetry::Figure;
use weir_upstream::error::Cause;

/// What happens next in an exchange.
#[derive(Debug)]
pub enum Flow {
    /// The filter answers, for example with a redirect or a cached response. On the request, later filters do not
    /// run, and those that ran see the answer in their `on_response`. On the response, it replaces the response for
    /// the remaining filters.
    Answer(Box<Answer>),
    /// Continue with the next filter.
    Continue,
    /// Read the body whole, up to this size, then call the same hook again: for a filter that learns only then that it
    /// needs the body. As with [`BodyUse::Whole`] a longer body is refused. At most once in each direction, and only
    /// from `wait` and `wait_response`.
    Gather(usize),
    /// The filter refuses with a cause; `respond.rs` builds the answer.
    Refuse(Box<Refusal>),
    /// Continue with the filters of this list of the filter's own: the position of its key in
    /// [`FilterKind::lists`]. Only from `on_request`.
    Run(usize),
    /// Call [`Filter::wait`] next, or [`Filter::wait_response`]. Only from `on_request` and `on_response`.
    Wait,
}

impl Flow {
    /// Refuses with a cause.
    pub fn refuse(cause: &'static Cause) -> Self {
        Self::Refuse(Refusal::new(cause))
    }

    /// Refuses with a cause, and adds a field to the answer.
    pub fn refuse_with(cause: &'static Cause, headers: Vec<(FieldName, Vec<u8>)>) -> Self {
        Self::Refuse(Box::new(Refusal { cause, detail: None, headers }))
    }
}

/// A refusal: the status and the body come from the cause.
#[derive(Debug)]
pub struct Refusal {
    /// Why.
    pub cause: &'static Cause,
    /// What to tell the client instead of the cause's meaning, if `expose_causes` is on.
    pub detail: Option<String>,
    /// Fields for the answer, such as `Retry-After`.
    pub headers: Vec<(FieldName, Vec<u8>)>,
}

impl Refusal {
    /// A refusal with the text of its cause.
    pub fn new(cause: &'static Cause) -> Box<Self> {
        Box::new(Self { cause, detail: None, headers: Vec::new() })
    }
}

/// The result of a hook that can only continue or refuse.
pub type HookResult = Result<(), Box<Refusal>>;

/// One attempt at one endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// The endpoint's address.
    pub endpoint: &'a str,
    /// 1 for the first attempt of the exchange.
    pub number: u32,
    /// The Host that the endpoint gets, if it differs from the head's. Known when the attempt begins.
    pub host: Option<&'a str>,
    /// Whether the attempt uses TLS. Known when the attempt begins.
    pub tls: bool,
}

/// The status of a gRPC call, as far as the response head shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcStatus {
    /// This status, without a message.
    Received(u8),
    /// The trailers will carry it.
    ToCome,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub struct AttemptEnd<'a> {
    /// The attempt. A handed-over connection may lead to another endpoint than the one picked.
    pub attempt: Attempt<'a>,
    /// The upstream's status; 0 if it did not answer.
    pub status: u16,
    /// The answer's head as the upstream sent it, before any filter. `None` without an answer, or if another
    /// attempt's answer is used.
    pub head: Option<&'a ResponseHead>,
    /// The gRPC status, if the request was a gRPC call.
    pub grpc: Option<GrpcStatus>,
    /// Why there was no answer. `None` with a status of 0 if that says nothing about the upstream: another attempt's
    /// answer came first (`hedge`), or a filter refused the attempt before anything was sent.
    pub cause: Option<&'static Cause>,
    /// The time from picking the endpoint to the response head or the failure.
    pub took: Duration,
    /// When it ended.
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
    /// Not a hook: `on_request` answers every browser's preflight. So a preflight takes the route of the request it
    /// asks about, whatever methods that route allows. If no filter there answers it, it is refused.
    pub const PREFLIGHT: Self = Self(64);
    /// Not a hook: if the filter is configured for all routes, it also runs for requests without a route, and sees
    /// their refusal. It must not wait.
    pub const UNROUTED: Self = Self(256);
    /// Not a hook: `on_request` answers or refuses every request, so none reaches the filters and target after it. A
    /// route with such a filter needs no target.
    pub const ANSWERS: Self = Self(512);
    /// Not a hook: as [`Self::ANSWERS`], for requests that arrive without TLS.
    pub const ANSWERS_PLAIN: Self = Self(1024);
    /// Not a hook: its expressions name `request.body`, so JSON bodies are read before `on_request`. Set by who builds
    /// the filter, from [`Build::reads_body`].
    pub const READS_BODY: Self = Self(2048);

    /// Whether all hooks of `other` are among these.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of these hooks is set.
    #[inline]
    pub const fn has_any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }
}

/// Each has its own bit.
const _: () = {
    let Hooks(beside) = Hooks::PREFLIGHT;
    let (Hooks(all), Hooks(waits), Hooks(unrouted)) = (Hooks::ALL, Hooks::ATTEMPT_WAIT, Hooks::UNROUTED);
    let (Hooks(every), Hooks(plain), Hooks(reads)) =
        (Hooks::ANSWERS, Hooks::ANSWERS_PLAIN, Hooks::READS_BODY);
    let bits = [all, beside, waits, unrouted, every, plain, reads];
    let (mut sum, mut union, mut at) = (0, 0, 0);
    while at < bits.len() {
        (sum, union, at) = (sum + bits[at], union | bits[at], at + 1);
    }
    assert!(sum == union);
};

impl BitOr for Hooks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The names of the fields that a filter guarantees: see [`Filter::guards`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldGuards {
    /// Fields of requests.
    pub request: Vec<FieldName>,
    /// Fields of responses.
    pub response: Vec<FieldName>,
}

/// What [`Filter::wait`] returns.
pub type Waiting<'a, T = Flow> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One step in the processing of a request and its response. Every hook does nothing by default.
pub trait Filter: Send + Sync + 'static {
    /// The hooks of this filter. All by default, which is right for every filter. Naming fewer costs less, above all
    /// without bodies.
    fn hooks(&self) -> Hooks {
        Hooks::ALL
    }

    /// The fields that this filter sets, hides or decides by. None by default.
    ///
    /// Nobody gets past the filter with another spelling of such a request field (`x_user` for `x-user`, which CGI
    /// and WSGI read as one): it is dropped before `on_request`. Trailers with that name are dropped in both
    /// directions.
    fn guards(&self) -> FieldGuards {
        FieldGuards::default()
    }

    /// The parts of a request's target that this filter treats as secret. None by default. They are not logged, and a
    /// key in the path is removed before routing: [`Cx::path_key`].
    fn conceals(&self) -> Conceals {
        Conceals::default()
    }

    /// The header fields in which it expects credentials: `weir explain` does not show them. None by default; names such
    /// as `authorization` need not be told.
    fn credentials(&self) -> Vec<FieldName> {
        Vec::new()
    }

    /// How this filter uses the body of this request, if there is one. Called right before `on_request`.
    ///
    /// The default is right for every filter that has the hook. One that only looks returns [`BodyUse::Watch`] and
    /// costs less.
    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        let _ = (head, cx);
        BodyUse::Change
    }

    /// Where the rest of a body goes that this filter wants whole and that is too long for memory. Then
    /// [`Cx::whole`] is empty, and every attempt sends the body from there. Called when the body is about to be read.
    fn spooling(&self) -> Option<Spooling> {
        None
    }

    /// Sees the request head before an upstream is chosen, and may change it.
    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let _ = (head, cx);
        Flow::Continue
    }

    /// Waits for something external, after `on_request` returned [`Flow::Wait`]. Dropped when the client leaves.
    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        let _ = (head, cx);
        Box::pin(std::future::ready(Flow::Continue))
    }

    /// Whether [`Filter::wait`] is a place in a queue. A client that closes its sending side loses its place, because
    /// it may have closed the connection. Other waits continue, because it may still read.
    fn is_queue(&self) -> bool {
        false
    }

    /// Sees each piece of the request body, its pauses and its trailers, and may change them if it returned
    /// [`BodyUse::Change`].
    ///
    /// # Errors
    /// A refusal ends the exchange. The piece does not reach the upstream, so if the last piece is refused, no
    /// upstream sees a whole message.
    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let _ = (piece, cx);
        Ok(())
    }

    /// Sees the request head for one endpoint, and may change it. Changes stay for later attempts.
    ///
    /// # Errors
    /// A refusal ends the exchange: no other endpoint is tried.
    fn on_attempt(&self, head: &mut RequestHead, attempt: &Attempt<'_>, cx: &mut Cx) -> HookResult {
        let _ = (head, attempt, cx);
        Ok(())
    }

    /// Waits for something external before the attempt continues, after every filter's `on_attempt`. Only for filters
    /// with [`Hooks::ATTEMPT_WAIT`]. Dropped when the client leaves.
    fn wait_attempt<'a>(
        &'a self,
        head: &'a mut RequestHead,
        attempt: &'a Attempt<'a>,
        cx: &'a mut Cx,
    ) -> Waiting<'a, HookResult> {
        let _ = (head, attempt, cx);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Called when an attempt ends: once for each `on_attempt`, unless the exchange itself is dropped.
    fn on_attempt_end(&self, end: &AttemptEnd<'_>, cx: &mut Cx) {
        let _ = (end, cx);
    }

    /// How this filter uses the body of this response, if there is one. Called right before `on_response`.
    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        let _ = (head, cx);
        BodyUse::Change
    }

    /// Sees the response head, the upstream's or our own, and may change it. Called once per exchange.
    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let _ = (head, cx);
        Flow::Continue
    }

    /// Waits for something external, after `on_response` returned [`Flow::Wait`]. Dropped when the client leaves.
    fn wait_response<'a>(&'a self, head: &'a mut ResponseHead, cx: &'a mut Cx) -> Waiting<'a> {
        let _ = (head, cx);
        Box::pin(std::future::ready(Flow::Continue))
    }

    /// Sees each piece of the response body, its pauses and its trailers, and may change them if it returned
    /// [`BodyUse::Change`].
    ///
    /// # Errors
    /// A refusal cuts the response, which has begun: the client must not take it for complete.
    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let _ = (piece, cx);
        Ok(())
    }

    /// Figures of its state for operators, for `/metrics` and `weir status`. Called by the admin listener, off the
    /// cores.
    fn readings(&self) -> Vec<Reading> {
        Vec::new()
    }

    /// The drained gateway ends: releases what this filter holds that others could use. The gateway waits briefly
    /// until all clones of `done` are dropped. Called once, off the cores.
    fn retire(&self, done: &std::sync::mpsc::Sender<()>) {
        let _ = done;
    }

    /// Notes for `weir check` besides mistakes, such as a bound that follows from its settings. One sentence each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Notes for `weir check` that depend on the neighboring filters of a route. One sentence each.
    fn notes_among(&self, before: &[Neighbour<'_>], behind: &[Neighbour<'_>]) -> Vec<String> {
        let _ = (before, behind);
        Vec::new()
    }

    /// What `weir explain` says about a made-up request, besides the settings. One sentence each. Not called on a
    /// core.
    fn explain(&self, asked: &Asked<'_>) -> Vec<String> {
        let _ = asked;
        Vec::new()
    }

    /// Which of its lists it would run for a made-up request, if it has any and that does not depend on the caller: for
    /// `weir explain`.
    fn chooses(&self, asked: &Asked<'_>) -> Option<usize> {
        let _ = asked;
        None
    }

    /// Called when the exchange ends: exactly once for each filter whose `on_request` ran, also after an abort.
    fn on_end(&self, end: &End, cx: &mut Cx) {
        let _ = (end, cx);
    }
}

/// Another filter of the same route.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// Its name.
    pub name: &'static str,
    /// Its settings with all defaults filled in.
    pub settings: &'a serde_json::Value,
}

/// One figure of a filter's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which figure it is.
    pub figure: &'static Figure,
    /// What it refers to, if the filter has several: an upstream's name.
    pub of: String,
    /// The figure.
    pub value: u64,
}

impl Reading {
    /// A figure that the filter has once.
    pub const fn one(figure: &'static Figure, value: u64) -> Self {
        Self { figure, of: String::new(), value }
    }

    /// A figure of one among several things.
    pub fn of(figure: &'static Figure, of: &str, value: u64) -> Self {
        Self { figure, of: of.to_owned(), value }
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Status sent to the client; 0 if none was.
    pub status: u16,
    /// Why the gateway itself answered or cut the exchange short.
    pub cause: Option<&'static Cause>,
    /// Bytes of the request body read.
    pub bytes_in: u64,
    /// Bytes of the response body sent.
    pub bytes_out: u64,
}
