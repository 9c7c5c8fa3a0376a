//! ★ The life of one request, top to bottom. Read this first.
//!
//! ```text
//!  1 match      one route of the table, by the canonical path
//!  2 filters    in the written order; a plan's after the filter that names the consumer   (hooks.rs)
//!  3 pick       an upstream of the split, an endpoint of the upstream
//!  4 attempt    a connection, the request head and body, the response head      (attempt.rs)
//!  5 filters    in reverse, on the response head                                (hooks.rs)
//!  6 write      the response, both bodies concurrently if needed                (transfer.rs, local.rs)
//!  7 record     log line, counters, `on_end`
//! ```
//!
//! Anything that stops an exchange is a [`Stop`]; only `respond.rs` turns it into an answer. One task drives both
//! connections. An exchange ends on the snapshot it began with.

mod alt_svc;
mod attempt;
mod background;
mod bodies;
mod by_header;
mod deadline;
mod gather;
mod hedge;
mod hooks;
mod links;
mod local;
mod mock;
mod record;
mod retry_facts;
mod runner;
mod script;
mod sent;
mod trace;
mod transfer;
mod upload;
mod waits;

pub(crate) use local::write_answer;
pub(crate) use runner::{Ran, run_apart};

use crate::client::Client;
use crate::core::Local;
use crate::early_data::{self, Early};
use crate::fastcgi::Script;
use crate::links::LINKS;
use crate::matching::{self, Found};
use crate::respond::{self, LocalResponse};
use crate::snapshot::{Arm, Snapshot, Target};
use background::Resumed;
use hooks::{Reply, Unfiltered};
use record::{Record, Recorded, head_for_next};
use sent::Attempt;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::Cell;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use waits::{catch_panic, unless, unless_gone};
use weir_filter::filter::{Answer, Begun, Cx, FILTER, Failure, Hooks, Refusal, RouteScope};
use weir_filter::grpc;
use weir_h1::{BodyKind, BodyReader, FieldName, Method, RequestHead, Step};
use weir_telemetry::{Closed, log};
use weir_upstream::error::{self, Cause};
use weir_wire::relay::{Framing, Relay};

/// What to do with the client's connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Reset it: the client must not take the response for complete.
    Abort(Closed),
    /// Close it.
    Close(Closed),
    /// Keep it for the next request.
    Keep,
    /// Close it, but read for a while, because the client may still be sending: a reset would destroy the answer.
    Linger(Closed),
}

/// Why an exchange stopped early.
pub(crate) enum Stop {
    /// A filter answered.
    Answer(Box<Answer>),
    /// No answer is possible: the client is gone, or the response had begun.
    Cut(&'static Cause),
    /// The gateway or a filter refuses.
    Refuse(Box<Refusal>),
}

impl Stop {
    pub(crate) fn refuse(cause: &'static Cause) -> Self {
        Self::Refuse(Box::new(Refusal { cause, detail: None, headers: Vec::new() }))
    }

    /// The cause for which a response that had begun is cut.
    fn cause(&self) -> &'static Cause {
        match self {
            Self::Answer(_) => &error::INTERNAL, // no filter answers behind the head of an answer
            Self::Cut(cause) => cause,
            Self::Refuse(refusal) => refusal.cause,
        }
    }
}

/// The route and the target of a request, as indexes in the exchange's snapshot.
#[derive(Clone, Copy, Debug)]
struct Routed {
    route: usize,
    upstream: usize,
}

/// The route that a request takes.
#[derive(Clone, Copy, Debug)]
struct Matched {
    route: usize,
    /// The route was found for the method that a browser's preflight asks about.
    preflight: bool,
}

/// How far the response has come.
///
/// ```text
///   Open ─► Filtered ─┬─► Begun ─► ToldCut
///     │        ▲ │    └─► Tunnel
///     │        └─┼─────── Begun, but nothing was sent
///     └──────────┴─► Begun, an answer of our own
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is decided yet.
    Open,
    /// The response filters ran. No other response may pass them.
    Filtered,
    /// The client may have read part of the response, so no other can follow. The framing marks its end.
    Begun(Framing),
    /// The response was cut short, but its last frame says so.
    ToldCut,
    /// The upstream switched protocols.
    Tunnel,
}

impl Phase {
    /// Whether the client may have read a part of the response.
    const fn has_begun(self) -> bool {
        !matches!(self, Self::Open | Self::Filtered)
    }
}

/// One request and its response.
pub(crate) struct Exchange<'c> {
    client: &'c mut Client,
    local: Rc<Local>,
    head: Box<RequestHead>,
    cx: Option<Cx>,
    /// Filters whose `on_request` ran, in order.
    ran: SmallVec<[u32; 8]>,
    /// The union of their hooks.
    hooks: Hooks,
    started: Instant,
    /// How long the head took to arrive.
    head_took: Duration,
    /// When the last byte was written, once known; later, when the exchange was recorded.
    ended: Option<Instant>,
    /// The client's address if a trusted proxy named it.
    client_address: Option<IpAddr>,
    /// The route, once found.
    route: Option<usize>,
    /// The number of attempts so far, which is also the number of the current one.
    attempts: u32,
    /// What the log and counters report when the exchange ends. Nothing is decided by it.
    record: Record,
    /// How many bytes after the head belonged to the request's body.
    used: usize,
    /// Bytes read past the request's body while relaying it: the start of the next request.
    leftover: Vec<u8>,
    /// Forwarding fields for the next hop if the request already had some; the same for every attempt.
    forwarded: Option<Vec<u8>>,
    /// The body so far and the rest of it, left by an attempt that may be repeated.
    unsent: Option<Box<Relay>>,
    phase: Phase,
    /// Whether the request is gRPC, and the deadline that its client set.
    grpc: bool,
    grpc_timeout: Option<Duration>,
    /// Whether the head could not be parsed.
    is_headless: bool,
    /// Whether the request was read to its end.
    request_over: bool,
    /// Whether a filter had to wait before the request went on.
    has_waited: bool,
    /// The script that answers, if the upstream speaks FastCGI.
    script: Option<Box<Script>>,
    /// Where to continue, if the exchange continues after the client got its answer.
    resumed: Option<Box<Resumed>>,
    /// Whether the response allows the client's connection to be kept.
    can_keep: bool,
    /// Whether the written head allows another request on this connection.
    promised: Cell<bool>,
    /// Whether the answer explains a refusal. A client that is still sending must be able to read it.
    refused: bool,
}

/// Runs one exchange. Returns what to do with the connection, the head holding the bytes of the next request, and the
/// time.
pub(crate) async fn run(
    client: &mut Client,
    head: Box<RequestHead>,
    started: Instant,
    head_took: Duration,
) -> (Next, Box<RequestHead>, Option<Instant>) {
    let mut exchange = Exchange::new(client, head, started);
    exchange.head_took = head_took;
    let next = {
        let mut recorded = Recorded::new(&mut exchange);
        let next = recorded.exchange.serve().await;
        recorded.ended = true;
        next
    };
    let Exchange { head, used, leftover, ended, .. } = exchange;
    (next, head_for_next(head, used, &leftover), ended)
}

/// Answers a head that could not be parsed. No request exists, but the exchange is still recorded.
pub(crate) async fn refuse_head(
    client: &mut Client,
    head: Box<RequestHead>,
    started: Instant,
    refusal: Refusal,
) {
    let mut exchange = Exchange::new(client, head, started);
    (exchange.can_keep, exchange.is_headless) = (false, true);
    let received = match exchange.head.wire_len() {
        0 => exchange.head.buffer().len(), // no end was found, so all bytes received
        whole => whole,
    };
    if exchange.local.snapshot.tracing.is_some() {
        exchange.begin_trace();
    }
    let response = exchange.refused(&refusal);
    // The client may take its answer slowly. Until then keep only the request line, for the log.
    exchange.head.forget_fields();
    exchange.head.set_wire_len(received);
    exchange.client.stream.forget_head();
    {
        let mut recorded = Recorded::new(&mut exchange);
        recorded.exchange.send_local(response).await;
        recorded.ended = true;
    }
    let Exchange { head, used, leftover, .. } = exchange;
    client.core.give_request(head_for_next(head, used, &leftover));
}

impl<'c> Exchange<'c> {
    fn new(client: &'c mut Client, head: Box<RequestHead>, started: Instant) -> Self {
        let local = client.core.local();
        let request_over = head.body() == BodyKind::Empty;
        let grpc = head.method() == Method::Post && grpc::is_grpc(&head.headers);
        let grpc_timeout = if grpc { grpc::timeout(&head.headers) } else { None };
        Self {
            client,
            local,
            head,
            cx: None,
            ran: SmallVec::new(),
            hooks: Hooks::NONE,
            started,
            head_took: Duration::ZERO,
            ended: None,
            client_address: None,
            route: None,
            attempts: 0,
            record: Record::default(),
            used: 0,
            leftover: Vec::new(),
            forwarded: None,
            unsent: None,
            phase: Phase::Open,
            grpc,
            grpc_timeout,
            is_headless: false,
            request_over,
            has_waited: false,
            script: None,
            resumed: None,
            can_keep: true,
            promised: Cell::new(false),
            refused: false,
        }
    }

    /// Runs the exchange to its end. A panic, most likely in a filter, ends only this exchange.
    async fn serve(&mut self) -> Next {
        let ended = catch_panic(pin!(self.proceed())).await;
        let stop = match ended {
            Ok(Ok(next)) => return next,
            Ok(Err(stop)) => stop,
            Err(panic) => self.panicked(&*panic),
        };
        let ended = catch_panic(pin!(self.stopped(stop))).await;
        match ended {
            Ok(next) => next,
            // A response filter panicked on the answer; the plain 500 passes no filter.
            Err(panic) => {
                let stop = self.panicked(&*panic);
                self.stopped(stop).await
            }
        }
    }

    /// Takes a request through all phases.
    async fn proceed(&mut self) -> Result<Next, Stop> {
        let Matched { route, preflight } = match &self.resumed {
            Some(resumed) => Matched { route: resumed.route, preflight: false },
            None => {
                if self.local.snapshot.tracing.is_some() {
                    self.begin_trace();
                }
                self.admit()?;
                if self.local.snapshot.tokens.is_some()
                    && let Some(proof) = self.proof()
                {
                    return Ok(self.write_local(proof).await);
                }
                let matched = self.find_route()?;
                if self.client.stream.is_early() {
                    Box::pin(self.wait_if_early(matched.route)).await?;
                }
                matched
            }
        };
        let local = Rc::clone(&self.local);
        if self.cx.is_some() {
            let ran = match self.filter_request(&local, route) {
                Ok(None) => Ok(()),
                // Boxed: few filters wait, and their future is large.
                Ok(Some(unrun)) => Box::pin(self.filter_request_rest(unrun)).await,
                Err(stop) => Err(stop),
            };
            if let Err(stop) = ran {
                self.record.stopped_by =
                    self.cx.as_ref().filter(|_| !matches!(stop, Stop::Cut(_))).map(|cx| cx.filter);
                return Err(stop);
            }
            if preflight {
                return Err(Stop::refuse(&error::NO_ROUTE)); // this route may not allow OPTIONS: a filter must answer
            }
        }
        let upstream = match &local.routes[route].handling.target {
            Target::Files(site) => match Box::pin(self.send_file(Arc::clone(site))).await? {
                Some(next) => return Ok(next),
                None => self.pick_for_missing(route)?,
            },
            Target::Filters => return Err(Stop::refuse(&error::NO_ROUTE)), // only if a filter broke its promise
            Target::Respond(fixed) => match &fixed.mock {
                Some(mock) => return Box::pin(self.respond_as(route, mock)).await,
                None => {
                    self.answers_itself();
                    return Ok(self.write_local(respond::fixed(fixed)).await);
                }
            },
            Target::Upstream(upstream) => *upstream,
            Target::Split(shares) => self.pick_upstream(shares),
            Target::Arms(arms) => self.upstream_of_arm(arms)?,
        };
        if let Some(scripts) = &local.routes[route].handling.scripts
            && let Some(next) = Box::pin(self.find_script(route, Arc::clone(scripts))).await?
        {
            return Ok(next);
        }
        let mut answered = None;
        self.attempt(Routed { route, upstream }, &mut answered).await?;
        if let Some(attempt) = answered.as_mut().filter(|attempt| attempt.response.headers.has_any(&LINKS)) {
            self.rewrite_links(attempt);
        }
        if let Some(by_header) = &local.routes[route].handling.by_header
            && let Some(attempt) = answered.take()
        {
            match Box::pin(self.send_named(Arc::clone(by_header), attempt)).await? {
                Ok(next) => return Ok(next),
                Err(unnamed) => answered = Some(unnamed),
            }
        }
        drop(local); // a tunnel may last for days, and must not keep the snapshot
        self.deliver(&mut answered).await
    }

    /// A request that arrived before the end of the handshake runs at once only if a replay of it is harmless.
    async fn wait_if_early(&mut self, route: usize) -> Result<(), Stop> {
        // A reload may have switched it off since the client's first packet.
        let is_on = self.client.listener.spec.http3.as_ref().is_some_and(|http3| http3.early_data);
        match early_data::judge(&self.head, is_on && self.local.routes[route].handling.early_data) {
            Early::Run => early_data::mark(&mut self.head).map_err(|_| Stop::refuse(&error::INTERNAL)),
            Early::Wait => {
                let confirmed = std::future::poll_fn(|cx| self.client.stream.poll_confirmed(cx)).await;
                confirmed.map_err(|_| Stop::Cut(&error::CLIENT_CLOSED))
            }
        }
    }

    /// Takes an upstream's response to the client. A future of its own, so that it takes the place of the attempt's
    /// future instead of one beside it. With smaller futures of attempts, that saves 5 of 50 cache lines per request
    /// among 1,000 connections (count h1-1000).
    #[allow(clippy::manual_async_fn, reason = "an async fn stores its arguments twice")]
    fn deliver<'a>(
        &'a mut self,
        answered: &'a mut Option<Attempt>,
    ) -> impl Future<Output = Result<Next, Stop>> {
        async move {
            if self.cx.is_some()
                && let Some(rest) = self.filter_at_hand(answered)
                && let Some(next) = Box::pin(self.filter_reply(rest)).await?
            {
                return Ok(next);
            }
            if let Some(upgraded) = answered.take_if(|attempt| attempt.response.status() == 101) {
                return self.tunnel(upgraded).await;
            }
            self.transfer(answered).await
        }
    }

    /// Runs the rest of the response filters on an upstream's response. Returns what follows if they leave nothing to
    /// transfer.
    async fn filter_reply(&mut self, rest: Box<Unfiltered<'_>>) -> Result<Option<Next>, Stop> {
        let Unfiltered { mut reply, due } = *rest;
        self.filter_response_rest(&mut reply, due).await?;
        match reply {
            Reply::Local(instead) => Ok(Some(self.send_local(instead).await)),
            Reply::Upstream(attempt) if self.cx.as_ref().is_some_and(|cx| cx.hides_body) => {
                match attempt.take() {
                    Some(attempt) => Ok(Some(Box::pin(self.tell_head(attempt)).await)),
                    None => Ok(None),
                }
            }
            Reply::Upstream(_) => Ok(None),
        }
    }

    // === 1 match ===

    /// Refuses what no route may serve, and drops fields that the client may not set.
    fn admit(&mut self) -> Result<(), Stop> {
        matching::refuse_method(&self.head).map_err(Stop::Refuse)?;
        let client = &*self.client;
        if client.handle.sent.get().is_some()
            && self.local.is_misdirected(&client.handle, &client.listener, self.head.authority())
        {
            return Err(Stop::refuse(&error::MISDIRECTED));
        }
        self.client_address =
            matching::admit(&self.local.snapshot, &*self.client, &mut self.head).map_err(Stop::Refuse)?;
        Ok(())
    }

    /// Answers a certificate authority's HTTP challenge (RFC 8555 §8.3) while one is expected. All other paths go to
    /// the routes.
    fn proof(&self) -> Option<LocalResponse> {
        let reads = matches!(self.head.method(), Method::Get | Method::Head);
        if !reads || self.client.tls {
            return None;
        }
        let answer = self.local.snapshot.tokens.as_ref()?.answer(self.head.path())?;
        let media = FieldName::new("content-type").map(|name| (name, b"application/octet-stream".to_vec()));
        let fields: Vec<_> = media.into_iter().collect();
        Some(respond::with_fields(200, &fields, answer.as_bytes().to_vec().into()))
    }

    /// Canonicalises the path and asks the table.
    fn find_route(&mut self) -> Result<Matched, Stop> {
        let listener = &self.client.listener;
        let found = matching::find_route(
            &self.local.snapshot,
            (&listener.spec, listener.number),
            (&*self.client, self.client_address),
            &mut self.head,
        )
        .map_err(Stop::Refuse)?;
        let Found { route, preflight, path_key } = found;
        self.route = Some(route);
        if self.record.trace.is_some() {
            self.trace_route(route);
        }
        let local = &self.local.routes[route];
        local.cells.active.inc();
        if !local.handling.chain.is_empty() {
            let begun = self.begun(Rc::clone(&local.scope), path_key);
            let cx = self.cx.get_or_insert_with(|| Cx::new(begun));
            tell(self.client, &self.local.snapshot, cx);
            if let Target::Arms(arms) = &local.handling.target
                && let Some(arm) = returning(&self.local, arms, &self.head)
            {
                cx.take_arm(arm);
            }
        }
        Ok(Matched { route, preflight })
    }

    /// The facts that filters get at the start.
    #[inline(always)] // as a call, they are copied
    fn begun(&self, scope: Rc<RouteScope>, path_key: Option<Box<[u8]>>) -> Begun {
        Begun {
            scope,
            client: self.client_address(),
            tls: self.is_tls(),
            certificate: self.client.certificate.clone(),
            path_key,
            random: self.client.core.random.borrow_mut().next(),
            at: self.head_took.is_zero().then_some(self.started),
        }
    }

    /// A context for a text of the config, on a route without filters.
    #[cold]
    fn context(&self, scope: Rc<RouteScope>) -> Cx {
        let mut cx = Cx::new(self.begun(scope, None));
        tell(self.client, &self.local.snapshot, &mut cx);
        cx
    }

    /// Whether the client uses TLS, see [`matching::is_tls`].
    fn is_tls(&self) -> bool {
        matching::is_tls(&*self.client, &self.head)
    }

    /// The client's address: the peer's, unless a trusted proxy names another.
    fn client_address(&self) -> IpAddr {
        self.client_address.unwrap_or_else(|| self.client.peer.ip().to_canonical())
    }

    // === 3 pick ===

    /// An upstream by weight, or the one whose `sticky` knows the client.
    fn pick_upstream(&self, shares: &[(u32, usize)]) -> usize {
        let knows = |upstream: &usize| self.local.upstreams[*upstream].knows_client(&self.head);
        if let Some((_, back)) = shares.iter().find(|(_, upstream)| knows(upstream)) {
            return *back;
        }
        let total = shares.last().map_or(0, |(total, _)| *total);
        let at = self.client.core.random.borrow_mut().below(total);
        shares.iter().find(|(upto, _)| at < *upto).map_or(0, |(_, upstream)| *upstream)
    }

    /// The upstream of the arm that a filter has drawn.
    fn upstream_of_arm(&self, arms: &[Arm]) -> Result<usize, Stop> {
        let arm = self.cx.as_ref().and_then(Cx::arm).and_then(|arm| arms.get(arm));
        // Without an upstream one of its filters answers, unless it broke its promise.
        arm.and_then(|arm| arm.upstream).ok_or_else(|| Stop::refuse(&error::NO_ROUTE))
    }

    /// The upstream for what is no file.
    fn pick_for_missing(&self, route: usize) -> Result<usize, Stop> {
        match self.local.routes[route].handling.missing.as_deref() {
            Some(Target::Upstream(upstream)) => Ok(*upstream),
            Some(Target::Split(shares)) => Ok(self.pick_upstream(shares)),
            _ => Err(Stop::refuse(&error::FILES_MISSING)), // the config has one where files pass requests on
        }
    }

    /// Tells filters that the route itself answers.
    fn answers_itself(&mut self) {
        if let Some(cx) = &mut self.cx {
            cx.is_of_route = true;
        }
    }

    // === the other ways out ===

    /// Answers or cuts, according to what stopped the exchange.
    async fn stopped(&mut self, stop: Stop) -> Next {
        if self.phase.has_begun() {
            return self.broken_off(stop.cause()).await;
        }
        let unrouted = self.cx.is_none() && !self.local.snapshot.unrouted.is_empty();
        let stop = if unrouted { self.filter_unrouted(stop) } else { stop };
        match stop {
            Stop::Cut(cause) => {
                self.record.cause = Some(cause);
                self.cut(cause)
            }
            Stop::Answer(answer) => {
                if self.cx.as_ref().is_some_and(Cx::continues_in_background) {
                    self.run_in_background();
                }
                let ready = self.cx.as_mut().and_then(Cx::take_ready);
                let mut response = match ready {
                    Some(fields) => respond::ready(answer.status, fields, answer.body),
                    None => respond::answer(*answer),
                };
                self.name_cause(&mut response);
                self.write_local(response).await
            }
            Stop::Refuse(refusal) => {
                let response = self.refused(&refusal);
                self.write_local(response).await
            }
        }
    }

    /// Cuts a response that had begun.
    async fn broken_off(&mut self, cause: &'static Cause) -> Next {
        self.record.cause = Some(cause);
        if self.phase == Phase::ToldCut {
            return Next::Close(record::closed_by(cause));
        }
        // A gRPC-Web client reads trailers only in the body, and the cut may be inside a frame.
        let reads_trailers = self.grpc && !self.calls_grpc() && !grpc::is_grpc_web(&self.head.headers);
        if reads_trailers && client_is_there(cause) { self.cut_grpc(cause).await } else { self.cut(cause) }
    }

    /// Turns a panic into a stop. The client learns only that the gateway failed.
    fn panicked(&mut self, panic: &(dyn Any + Send)) -> Stop {
        static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(1));
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
        let filter =
            self.cx.as_ref().and_then(|cx| self.local.snapshot.filters.get((cx.filter & FILTER) as usize));
        let filter = filter.map_or("", |filter| filter.name);
        let fields: log::Fields<'_> = &[("filter", &filter), ("panic", &text)];
        SEEN.write(log::Level::Error, (filter, text), "an exchange panicked", fields);
        self.can_keep = false;
        self.record.stopped_by = self.cx.as_ref().map(|cx| cx.filter);
        Stop::refuse(&error::INTERNAL)
    }

    /// Runs the filters that also see requests without a route. One may answer; all see the refusal.
    #[cold]
    fn filter_unrouted(&mut self, stop: Stop) -> Stop {
        let Stop::Refuse(_) = stop else { return stop };
        self.cx = Some(self.context(self.unrouted_scope()));
        self.filter_at_once().err().unwrap_or(stop)
    }

    /// What filters and texts see of a route where there is none.
    #[cold]
    fn unrouted_scope(&self) -> Rc<RouteScope> {
        let consumers = Arc::clone(&self.local.snapshot.consumers);
        let core = self.client.core.handle.clone();
        let exposes_causes = self.local.snapshot.expose_causes;
        Rc::new(RouteScope { name: "".into(), matched: None, consumers, core, exposes_causes })
    }

    /// Notes a filter's cause for its answer, if it gave one.
    fn name_cause(&mut self, response: &mut LocalResponse) {
        let Some(cause) = self.cx.as_ref().and_then(|cx| cx.because) else { return };
        self.record.cause = Some(cause);
        self.refused = true;
        if self.local.snapshot.expose_causes {
            respond::name_cause(&mut response.head, cause);
        }
    }

    /// Notes a refusal and builds its answer.
    fn refused(&mut self, refusal: &Refusal) -> LocalResponse {
        self.record.cause = Some(refusal.cause);
        self.refused = true;
        if let Some(detail) = &refusal.detail {
            self.record.say(detail);
        }
        // If the message can be read in two ways, the bytes after it can be too.
        self.can_keep &= !matches!(refusal.cause.status, 400 | 501);
        self.make_id();
        let expose = self.local.snapshot.expose_causes;
        if self.cx.is_some() {
            let id = self.id().map(str::to_owned);
            let detail = respond::detail(refusal, expose).to_owned();
            let failure = self.failure(Some(refusal.cause), detail);
            if let Some(cx) = &mut self.cx {
                cx.request_id = id;
                cx.because = Some(refusal.cause);
                cx.failure = Some(failure);
            }
        }
        respond::refusal(refusal, Some(&self.head.headers), self.id(), expose)
    }

    /// The facts about an error answer that filters get.
    fn failure(&self, cause: Option<&'static Cause>, detail: String) -> Box<Failure> {
        let accept = self.head.headers.get_str("accept").map(Box::from);
        Box::new(Failure { cause, detail, accept, grpc: self.grpc && !self.calls_grpc() })
    }

    /// Whether a filter turned a request into a gRPC call: the upstream's answer is gRPC, but the client's is not.
    fn calls_grpc(&self) -> bool {
        self.cx.as_ref().is_some_and(|cx| cx.calls_grpc)
    }

    /// Ends a connection so that a cut response is visibly incomplete. With a length or chunks a plain close shows it
    /// and the client keeps what it has; a multiplexed stream is reset.
    fn cut(&self, cause: &Cause) -> Next {
        let why = record::closed_by(cause);
        let is_multiplexed = self.client.stream.is_multiplexed();
        let reset = self.phase == Phase::Begun(Framing::Close) || is_multiplexed;
        // Dropping a stream resets it with CANCEL, which gRPC clients take for a canceled call.
        let late = is_multiplexed && *cause == error::GRPC_TIMEOUT;
        if reset && !late { Next::Abort(why) } else { Next::Close(why) }
    }

    /// Ends a gRPC response that had begun with trailers that give the reason.
    async fn cut_grpc(&mut self, cause: &Cause) -> Next {
        // On HTTP/1.1 a chunk may be half written; a plain close shows the cut.
        let told = self.client.stream.is_multiplexed()
            && self.client.finish(&grpc::trailers(cause, self.local.snapshot.expose_causes)).await.is_ok();
        if told { Next::Close(record::closed_by(cause)) } else { self.cut(cause) }
    }

    /// Consumes the request's body if all of it has arrived. Otherwise the connection cannot be kept, because the
    /// rest would be read as a request (RFC 9112 §9.3).
    fn read_off_body(&mut self) {
        if self.request_over || self.used > 0 {
            return;
        }
        if let Some(used) = end_of_body(self.head.body(), self.head.rest()) {
            self.used = used;
            self.request_over = true;
        }
    }
}

/// Where a body ends, if all of it has arrived.
fn end_of_body(kind: BodyKind, bytes: &[u8]) -> Option<usize> {
    let mut reader = BodyReader::new(kind);
    let mut at = 0;
    loop {
        match reader.step(bytes.get(at..).unwrap_or_default()) {
            Ok(Step::Data { skip, len }) => at += skip + len,
            Ok(Step::End { used }) => return Some(at + used),
            Ok(Step::More) | Err(_) => return None,
        }
    }
}

/// The arm whose upstream has seen the client before, by the cookie of `sticky`. The cookie names an endpoint: if
/// several arms have this upstream, it does not say which of them it was.
fn returning(local: &Local, arms: &[Arm], head: &RequestHead) -> Option<usize> {
    let knows = |upstream: usize| local.upstreams[upstream].knows_client(head);
    let mut known =
        (0..arms.len()).filter(|at| arms[*at].weight > 0 && arms[*at].upstream.is_some_and(knows));
    let first = known.next()?;
    known.next().is_none().then_some(first)
}

/// Whether the client is still there to learn of a cause.
fn client_is_there(cause: &Cause) -> bool {
    *cause != error::CLIENT_CLOSED && *cause != error::CLIENT_TOO_SLOW
}

/// Tells expressions what the config may name, see [`Reads`](crate::snapshot::Reads).
#[inline]
fn tell(client: &Client, snapshot: &Snapshot, cx: &mut Cx) {
    if snapshot.reads.server_name
        && let Some(name) = client.forwarding.server_name()
    {
        cx.tell_server_name(Rc::clone(name));
    }
}
