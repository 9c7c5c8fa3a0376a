//! Phase 7: runs `on_end`, updates counters, and writes an exchange's access log line.

use super::{Exchange, Next, Phase};
use crate::autopsy::body;
use crate::autopsy::kept::{Details, Exceeded, Kind, Outcome, Step, bare_path, cut_detail, micros};
use crate::tap::{Live, Sample};
use crate::tracing::Trace;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_filter::filter::{Cx, End, FILTER, Hooks, line_of};
use weir_filter::grpc;
use weir_filter::template::Ended;
use weir_h1::{BodyKind, RequestHead, ResponseHead, Version};
use weir_telemetry::{AccessLog, Closed, Computed, Entry, Header, RequestCopy, Timing, log};
use weir_upstream::error::{self, Cause};
use weir_upstream::id;
use weir_upstream::upstream::{Active, LocalEndpoint};
use weir_wire::relay::Seen;

/// Facts about an exchange for its end, beside what the exchange itself knows. Written along the way and read at the
/// end; nothing is decided by it.
#[derive(Default)]
pub(super) struct Record {
    pub(super) upstream: Option<usize>,
    pub(super) endpoint: Option<(Rc<[LocalEndpoint]>, usize)>,
    /// When the last attempt began.
    pub(super) attempt: Option<Instant>,
    /// Whether its connection had carried a request before.
    pub(super) reused: bool,
    /// The filter that stopped the exchange.
    pub(super) stopped_by: Option<u32>,
    pub(super) status: u16,
    /// The client had left when the upstream answered.
    pub(super) left: bool,
    pub(super) cause: Option<&'static Cause>,
    /// Bytes of the request's body.
    pub(super) body_in: u64,
    /// Bytes of the response's body as the upstream sent it, and all bytes written to the client.
    pub(super) body_out: u64,
    pub(super) sent: u64,
    /// See [`Timing`]; the rest of it is computed at the end.
    filters_took: Duration,
    pub(super) first_byte: Duration,
    /// Boxed: nearly all exchanges need none of it. With a thousand waiting exchanges, each cache line that one holds
    /// is fetched twice.
    rare: Option<Box<Rare>>,
    /// The data for a collector, if the exchange is sampled. Boxed: nearly all are not.
    pub(super) trace: Option<Box<Trace>>,
}

/// Facts that few exchanges have.
#[derive(Default)]
struct Rare {
    /// What else took time: failed attempts, waiting filters. At most [`STEPS`].
    steps: Vec<Step>,
    /// The error text of the system, TLS, a parser or a filter.
    detail: Option<Box<str>>,
    /// The start of the body of an upstream's error.
    heard: Option<Vec<u8>>,
    /// The endpoint of the last failed attempt.
    failed_at: Option<(Rc<[LocalEndpoint]>, usize)>,
    /// The id sent to the client if no filter had set one.
    id: Option<[u8; 32]>,
    /// The response fields that the access log asks for, by name.
    response_fields: Vec<(String, Vec<u8>)>,
    /// How long the last attempt's connection took, if it was new.
    connect: Duration,
    tls: Duration,
}

impl Record {
    #[cold]
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Notes how long an attempt's connection took: zero if it came from the pool.
    #[inline]
    pub(super) fn dialled(&mut self, connect: Duration, tls: Duration) {
        if self.rare.is_some() || !connect.is_zero() {
            let rare = self.rare();
            (rare.connect, rare.tls) = (connect, tls);
        }
    }

    /// Notes the error text of a failed attempt.
    pub(super) fn detail(&mut self, detail: Option<Box<str>>) {
        self.rare().detail = detail;
    }

    /// Notes an error answer. Keeps the start of its body until it is known whether the exchange is kept.
    #[cold]
    pub(super) fn listen(&mut self, response: &ResponseHead) {
        let heard = body::may_say(&response.headers).then(Vec::new);
        if heard.is_some() || self.rare.is_some() {
            self.rare().heard = heard;
        }
    }

    /// Takes the start of an error that a filter has made from an upstream's.
    pub(super) fn hear(&mut self, made: Vec<u8>) {
        self.rare().heard = Some(made);
    }

    /// The record, if it notes something of the response's body.
    #[inline]
    pub(super) fn notes(&mut self) -> Option<&mut Self> {
        if self.rare.is_none() && self.trace.is_none() {
            return None;
        }
        self.takes_notes()
    }

    #[cold]
    fn takes_notes(&mut self) -> Option<&mut Self> {
        let heard = self.rare.as_ref().is_some_and(|rare| rare.heard.is_some());
        let status = self.trace.as_mut().is_some_and(|trace| trace.call_status().is_some());
        (heard || status).then_some(self)
    }

    /// Notes parts of an upstream's response body: the start if it is an error, and a gRPC call's status from the
    /// trailers.
    #[cold]
    pub(super) fn note(&mut self, seen: &Seen<'_>) {
        if let Some(heard) = self.rare.as_mut().and_then(|rare| rare.heard.as_mut()) {
            let room = body::HEARD_BYTES.saturating_sub(heard.len()).min(seen.data.len());
            heard.extend_from_slice(seen.data.get(..room).unwrap_or_default());
        }
        let status = self.trace.as_mut().and_then(|trace| trace.call_status());
        if let (Some(status), Some(trailers)) = (status, seen.trailers.as_deref()) {
            let told = line_of(trailers, "grpc-status").and_then(grpc::read_status);
            *status = told.or(*status);
        }
    }

    /// Notes an error text.
    #[cold]
    pub(super) fn say(&mut self, detail: &str) {
        self.rare().detail = Some(cut_detail(detail));
    }

    /// The status to report. If the client left before it had one, nginx's status for that.
    fn reported_status(&self) -> u16 {
        let is_gone = self.cause.is_some_and(|cause| *cause == error::CLIENT_CLOSED);
        if is_gone && (self.left || self.status == 0) { CLIENT_GONE } else { self.status }
    }

    /// The failed attempts in the access log's form: endpoint, cause or status, and time of each.
    fn failed_attempts(&self) -> String {
        let mut text = String::new();
        for step in self.rare.iter().flat_map(|rare| &rare.steps) {
            if let Step::Attempt { endpoint, outcome, took, .. } = step {
                let comma = if text.is_empty() { "" } else { ", " };
                let ms = f64::from(*took) / 1000.0;
                let _ = write!(text, "{comma}{endpoint} {outcome} {ms:.1}ms"); // a String takes everything
            }
        }
        text
    }
}

impl Rare {
    fn step(&mut self, step: Step) {
        if self.steps.len() == STEPS {
            self.steps.remove(0); // the last steps say more
        }
        self.steps.push(step);
    }
}

/// The status reported if the client left before there was one. No client ever sees it.
const CLIENT_GONE: u16 = 499;

/// Most steps of one exchange: as many as fit in its access log line.
const STEPS: usize = 16;

/// How the connection of a cut exchange is counted.
pub(super) fn closed_by(cause: &Cause) -> Closed {
    if *cause == error::CLIENT_TOO_SLOW || *cause == error::TUNNEL_TIMEOUT {
        Closed::Timeout
    } else {
        Closed::Error
    }
}

/// Records an exchange exactly once when it ends, whatever ends it. That includes a core that drops its tasks at a
/// drain's deadline.
pub(super) struct Recorded<'e, 'c> {
    pub(super) exchange: &'e mut Exchange<'c>,
    /// Whether it ended normally.
    pub(super) ended: bool,
}

impl<'e, 'c> Recorded<'e, 'c> {
    pub(super) const fn new(exchange: &'e mut Exchange<'c>) -> Self {
        Self { exchange, ended: false }
    }
}

impl Drop for Recorded<'_, '_> {
    fn drop(&mut self) {
        if !self.ended {
            self.exchange.dropped();
        }
        self.exchange.record();
    }
}

// === along the way ===

impl Exchange<'_> {
    /// Notes an attempt that failed.
    #[cold]
    pub(super) fn attempt_failed(&mut self, active: &Active, outcome: Outcome, began: Instant) {
        let (started, record) = (self.started, &mut self.record);
        if let Some(trace) = &mut record.trace {
            trace.attempt_failed(began, &outcome.to_string());
        }
        let (reused, failed_at) = (record.reused, record.endpoint.clone());
        let rare = record.rare();
        rare.failed_at = failed_at;
        let step = Step::Attempt {
            endpoint: Arc::clone(&active.get().endpoint.label),
            outcome,
            at: micros(began.saturating_duration_since(started)),
            took: micros(began.elapsed()),
            connect: micros(rare.connect),
            tls: micros(rare.tls),
            reused,
            detail: rare.detail.take(),
        };
        rare.step(step);
    }

    /// Removes the attempt that began then: its endpoint was skipped and nothing was sent.
    #[cold]
    pub(super) fn attempt_avoided(&mut self, began: Instant) {
        self.attempts = self.attempts.saturating_sub(1);
        let record = &mut self.record;
        if let Some(trace) = &mut record.trace {
            trace.attempt_avoided(began);
        }
        record.endpoint = record.rare().failed_at.clone();
    }

    /// Notes that a filter has waited since then.
    pub(super) fn waited(&mut self, filter: &'static str, since: Option<Instant>) {
        if let Some(since) = since {
            let at = micros(since.saturating_duration_since(self.started));
            self.record.rare().step(Step::Waited { filter, at, took: micros(since.elapsed()) });
        }
    }

    /// Notes the time that filters took, if the access log or a trace needs it. Otherwise the clock is not worth
    /// reading.
    pub(super) fn time_filters(&mut self) {
        if !self.ran.is_empty() && self.client.core.access_log.borrow().is_some() {
            self.record.filters_took = self.started.elapsed().saturating_sub(self.head_took);
        }
    }

    /// How long each part took.
    pub(super) fn timing(&self) -> Timing {
        let record = &self.record;
        let (connect, tls) =
            record.rare.as_ref().map_or_else(Default::default, |rare| (rare.connect, rare.tls));
        let total = self.ended.map_or(Duration::ZERO, |ended| ended.saturating_duration_since(self.started));
        Timing {
            head: self.head_took,
            filters: record.filters_took,
            connect,
            tls,
            first_byte: record.first_byte,
            total,
        }
    }
}

// === at the end ===

impl Exchange<'_> {
    /// The gateway ends and takes this exchange with it.
    #[cold]
    fn dropped(&mut self) {
        self.record.cause = Some(&error::SHUTDOWN);
        if self.phase.has_begun() && matches!(self.cut(&error::SHUTDOWN), Next::Abort(_)) {
            self.client.stream.abort();
        }
    }

    /// Hooks, counters, log.
    fn record(&mut self) {
        if self.resumed.is_some() {
            return self.end_filters(); // its client was counted when it got its answer
        }
        let ended = *self.ended.get_or_insert_with(Instant::now);
        let total = ended.saturating_duration_since(self.started);
        let cause = self.record.cause.map(|cause| self.client.core.count(cause));
        self.end_filters();
        self.count(total, cause);
        if let Some(trace) = &self.record.trace {
            self.write_spans(trace);
        }
        let kept = self.is_kept(total);
        let mut made = None;
        // A head that could not be parsed cannot be replayed.
        let has_line = |log: &&mut AccessLog| !(self.is_headless && log.wants_requests());
        if let Some(log) = self.client.core.access_log.borrow_mut().as_mut().filter(has_line) {
            let names_requests = log.names_requests() || log.computes();
            made = if names_requests && self.id().is_none() { Some(self.new_id()) } else { None };
            let id = made.as_ref().map(<[u8; 32]>::as_slice);
            let headers: SmallVec<[&[u8]; 8]> = log.headers().iter().map(|h| self.logged(h)).collect();
            let trace = self.trace_ids();
            let (trace_id, span_id) =
                trace.as_ref().and_then(|ids| ids.split_at_checked(32)).unwrap_or_default();
            let failed = self.record.failed_attempts();
            let entry = self.entry(id.or(self.id().map(str::as_bytes)).unwrap_or_default(), &failed);
            let copied = log.wants_requests().then(|| self.received_fields());
            let fields: Vec<(&[u8], &[u8])> =
                copied.iter().flatten().map(|(name, value)| (*name, &**value)).collect();
            let request = copied.as_ref().map(|_| self.request_copy(&fields));
            let request = request.as_ref();
            let query = match &self.local.snapshot.vocabulary {
                Some((_, secrets)) if request.is_some() => secrets.masked_query(entry.query),
                _ => Cow::Borrowed(entry.query),
            };
            let entry = Entry { trace_id, span_id, request, query: &query, ..entry };
            match &self.local.snapshot.conceals {
                None => self.write_line(log, &Entry { headers: &headers, ..entry }),
                Some(conceals) => {
                    let (path, query) = (conceals.path(entry.path), conceals.query(entry.path, entry.query));
                    let referer = conceals.referer(entry.referer);
                    let entry =
                        Entry { headers: &headers, path: &path, query: &query, referer: &referer, ..entry };
                    self.write_line(log, &entry);
                }
            }
        }
        if let Some((kind, exceeded)) = kept {
            self.keep(kind, exceeded, made);
        }
        if self.client.core.is_shadowed.get() {
            self.shadow(made);
        }
    }

    // === for `weir shadow` ===

    /// Copies the head and what became of it for the judge of a shadow, if this exchange is sampled. `made` is the id
    /// in its log line if it had none before.
    #[cold]
    fn shadow(&self, made: Option<[u8; 32]>) {
        let client = &*self.client;
        let Some(tap) = client.core.tap_of(&self.local.snapshot) else { return };
        let random = client.core.random.borrow_mut().next();
        if !tap.samples(random) {
            return;
        }
        let text = self.head.buffer().get(..self.head.wire_len()).unwrap_or_default();
        if !tap.has_room(text.len()) {
            return;
        }
        let (record, cx) = (&self.record, self.cx.as_ref());
        let id = made.as_ref().map(<[u8; 32]>::as_slice).or(self.id().map(str::as_bytes));
        let is_streamed = self.head.version().is_multiplexed();
        tap.give(Sample {
            head: text.to_vec(),
            // The head of a stream does not say whether a body follows.
            streamed: is_streamed
                .then(|| record.body_in == 0 && self.head.content_length().unwrap_or(0) == 0),
            peer: client.peer,
            tls: client.tls,
            server_name: client.forwarding.server_name().map(|name| Box::from(&**name)),
            certificate: client.certificate.as_deref().cloned().map(Box::new),
            unnamed: client.forwarding.is_unnamed(),
            listener: Arc::clone(&client.listener.spec.name),
            live: Live {
                route: self.route,
                upstream: record.upstream,
                status: record.reported_status(),
                cause: record.cause,
                stopped_by: record.stopped_by,
                ran: self.ran.to_vec(),
                arm: self.arm().cloned(),
                consumer: cx.and_then(Cx::consumer).map(|consumer| Box::from(&*consumer.name)),
                listed: cx.and_then(Cx::share_listed),
                id: id.map(String::from_utf8_lossy).unwrap_or_default().into(),
            },
        });
    }

    /// The name of the arm that the request took, if it took one of a split with filters.
    fn arm(&self) -> Option<&Arc<str>> {
        let arm = self.cx.as_ref()?.arm()?;
        self.local.snapshot.arm_name(&self.ran, arm)
    }

    #[inline]
    fn write_line(&self, log: &mut AccessLog, entry: &Entry<'_>) {
        if log.computes() { self.compute_line(log, entry) } else { log.record(entry) }
    }

    /// Writes a line with expressions, which are evaluated only for exchanges that get one.
    #[cold]
    fn compute_line(&self, log: &mut AccessLog, entry: &Entry<'_>) {
        if !log.selects(entry) {
            return;
        }
        // Those of the snapshot that came with the log, not of the one that the exchange began with.
        let newest = self.client.core.local();
        let Some(texts) = &newest.snapshot.log_texts else { return log.write(entry) };
        let made;
        let cx = match &self.cx {
            Some(cx) => cx,
            None => {
                let scope = match self.route {
                    Some(route) => Rc::clone(&self.local.routes[route].scope),
                    None => self.unrouted_scope(),
                };
                made = self.context(scope);
                &made
            }
        };
        let values = texts.values(&Ended {
            head: &self.head,
            cx,
            status: entry.status,
            fields: self.record.rare.as_ref().map_or(&[], |rare| &rare.response_fields),
            upstream: entry.upstream,
            cause: entry.cause,
            request_id: entry.request_id,
            server_name: self.client.forwarding.server_name().map(|name| &**name),
            conceals: self.local.snapshot.conceals.as_deref(),
        });
        let values: SmallVec<[Computed<'_>; 8]> =
            values.iter().map(|(text, is_bare)| Computed { text, is_bare: *is_bare }).collect();
        log.write(&Entry { computed: &values, ..entry.clone() });
    }

    // === for `weir why` ===

    /// Whether this exchange is kept, why, and what it exceeded if it was slow.
    #[inline]
    fn is_kept(&self, total: Duration) -> Option<(Kind, Option<Exceeded>)> {
        let autopsies = &self.client.core.autopsies;
        if !autopsies.is_on() {
            return None;
        }
        let record = &self.record;
        if record.cause.is_some() || record.status >= 500 {
            return Some((Kind::Failed, None));
        }
        if let Some(route) = self.route.filter(|_| self.phase != Phase::Tunnel)
            && let Some(exceeded) = self.local.routes[route].usual.exceeded_by(total)
        {
            return Some((Kind::Slow, Some(exceeded)));
        }
        autopsies.samples().then_some((Kind::Sampled, None))
    }

    /// Keeps the facts of this exchange. `made` is the id in its log line if it had none before.
    #[cold]
    fn keep(&self, kind: Kind, exceeded: Option<Exceeded>, made: Option<[u8; 32]>) {
        let (record, snapshot) = (&self.record, &self.local.snapshot);
        let made = made.or_else(|| if self.id().is_none() { Some(self.new_id()) } else { None });
        let id = made.as_ref().map(<[u8; 32]>::as_slice);
        let entry = self.entry(id.or(self.id().map(str::as_bytes)).unwrap_or_default(), "");
        let path = bare_path(entry.path);
        let path = snapshot.conceals.as_ref().map_or(Cow::Borrowed(path), |conceals| conceals.path(path));
        let filter = |index: &u32| snapshot.filters.get((*index & FILTER) as usize);
        let rare = record.rare.as_deref();
        let stopped_by = record.stopped_by.as_ref().and_then(filter);
        let heard = rare.and_then(|rare| body::said(rare.heard.as_deref()?));
        let beside = Details {
            kind,
            cause: record.cause,
            revision: &snapshot.revision,
            steps: rare.map_or(&[], |rare| &rare.steps),
            attempt: record.attempt.map(|at| at.saturating_duration_since(self.started)),
            reused: record.reused,
            exceeded,
            filters: &mut self.ran.iter().filter_map(filter).map(|filter| filter.name),
            fields: &mut self.head.headers.iter().map(|(name, value)| (name, value.len())),
            stopped_by: stopped_by.map(|filter| (filter.name, &*filter.place)),
            detail: rare.and_then(|rare| rare.detail.as_deref()).or(heard.as_deref()),
            begun: self.phase.has_begun(),
        };
        let (protocol, tls) = (self.protocol(), self.client.stream.tls());
        self.client.core.autopsies.keep(kind, record.cause.map_or("", |cause| cause.code), |kept| {
            kept.fill(&Entry { path: &path, ..entry }, protocol, beside);
            kept.tls = tls.map(|tls| (tls.version, tls.cipher));
        });
    }

    /// The protocol that the client speaks.
    fn protocol(&self) -> &'static str {
        match self.head.version() {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
            Version::Http3 => "HTTP/3",
        }
    }

    // === the id ===

    /// The request's id: from the filter `request_id`, or else the one made for an answer.
    pub(super) fn id(&self) -> Option<&str> {
        let given = self.cx.as_ref().and_then(|cx| cx.request_id.as_deref());
        let made = || self.record.rare.as_ref()?.id.as_ref();
        given.or_else(|| str::from_utf8(made()?).ok())
    }

    /// Makes an id if there is none, for an answer that states it.
    pub(super) fn make_id(&mut self) {
        if self.id().is_none() {
            self.record.rare().id = Some(self.new_id());
        }
    }

    fn new_id(&self) -> [u8; 32] {
        let mut random = self.client.core.random.borrow_mut();
        id::digits([random.next(), random.next()])
    }

    // === fields for the log ===

    /// Keeps the response fields that the access log asks for, because the head is gone when its line is written.
    #[inline]
    pub(super) fn keep_fields(&mut self, response: &ResponseHead) {
        if self.client.core.access_log.borrow().is_some() {
            self.keep_logged(response);
        }
    }

    fn keep_logged(&mut self, response: &ResponseHead) {
        let log = self.client.core.access_log.borrow();
        let Some(log) = log.as_ref().filter(|log| log.wants_responses() || log.computes()) else { return };
        let names = log.headers().iter().filter_map(|header| match header {
            Header::Response(name) => Some(name),
            Header::Request(_) => None,
        });
        let kept = names.filter_map(|name| Some((name.clone(), response.headers.get_str(name)?.to_vec())));
        let mut kept: Vec<_> = kept.collect();
        if log.computes() {
            let newest = self.client.core.local();
            for name in newest.snapshot.log_texts.iter().flat_map(|texts| texts.fields()) {
                kept.retain(|(known, _)| known != name); // all values, of which a header field is the first
                kept.extend(
                    response.headers.get_all(name.as_bytes()).map(|value| (name.to_owned(), value.to_vec())),
                );
            }
        }
        if !kept.is_empty() {
            self.record.rare().response_fields = kept;
        }
    }

    /// The header fields as the client sent them, before any filter, with `***` for what may be a credential.
    #[cold]
    fn received_fields(&self) -> Vec<(&[u8], Cow<'_, [u8]>)> {
        let snapshot = &self.local.snapshot;
        let head = self.head.buffer().get(..self.head.wire_len()).unwrap_or_default();
        let lines = head.split(|byte| *byte == b'\n').skip(1);
        let parted = lines.filter_map(|line| {
            let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
            let (name, value) = (name.trim_ascii(), value.get(1..)?.trim_ascii());
            let known = String::from_utf8_lossy(name);
            let is_secret = snapshot.vocabulary.as_ref().is_none_or(|(_, secrets)| secrets.in_field(&known));
            let shown = match &snapshot.conceals {
                _ if is_secret => Cow::Borrowed(&b"***"[..]),
                Some(conceals) if known.eq_ignore_ascii_case("referer") => conceals.referer(value),
                _ => Cow::Borrowed(value),
            };
            let shown = match &snapshot.vocabulary {
                Some((_, secrets)) if known.eq_ignore_ascii_case("referer") => {
                    Cow::Owned(secrets.masked_url(&shown).into_owned())
                }
                _ => shown,
            };
            // The host is part of the URL.
            (!known.eq_ignore_ascii_case("host")).then_some((name, shown))
        });
        parted.collect()
    }

    /// The request for the format `replay`.
    #[cold]
    fn request_copy<'a>(&'a self, fields: &'a [(&'a [u8], &'a [u8])]) -> RequestCopy<'a> {
        // The length that was received says nothing: a client may leave before the end, and filters change bodies.
        let (body, is_body_cut, is_body_changed) = match self.cx.as_ref().and_then(Cx::logged_body) {
            Some((body, is_whole, is_changed)) => (Some(body), !is_whole, is_changed),
            None => (None, self.head.body() != BodyKind::Empty, false),
        };
        RequestCopy { is_tls: self.is_tls(), fields, body, is_body_cut, is_body_changed }
    }

    fn logged(&self, header: &Header) -> &[u8] {
        match header {
            Header::Request(name) => self.head.headers.get_str(name).unwrap_or_default(),
            Header::Response(name) => {
                let mut kept = self.record.rare.iter().flat_map(|rare| &rare.response_fields);
                kept.find(|(known, _)| known == name).map_or(b"", |(_, value)| value)
            }
        }
    }

    // === the rest ===

    #[inline]
    fn end_filters(&mut self) {
        if self.hooks.has(Hooks::END) {
            self.tell_end();
        }
    }

    fn tell_end(&mut self) {
        let Some(cx) = &mut self.cx else { return };
        let end = End {
            status: self.record.status,
            cause: self.record.cause,
            bytes_in: self.record.body_in,
            bytes_out: self.record.body_out,
        };
        for &index in self.ran.iter().rev() {
            let instance = &self.local.snapshot.filters[index as usize];
            if instance.hooks.has(Hooks::END) {
                cx.filter = index;
                // A filter that panics must not keep the others from their end.
                let ended = catch_unwind(AssertUnwindSafe(|| instance.filter.on_end(&end, cx)));
                if ended.is_err() {
                    static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(1));
                    let (name, message) = (instance.name, "a filter panicked at the end of an exchange");
                    SEEN.write(log::Level::Error, name, message, &[("filter", &name)]);
                }
            }
        }
    }

    /// `cause` is its index.
    fn count(&self, total: Duration, cause: Option<usize>) {
        let record = &self.record;
        let cells = match self.route {
            Some(route) => &self.local.routes[route].cells,
            None => &self.local.unrouted,
        };
        if self.route.is_some() {
            cells.active.dec();
        }
        if record.status != 0 {
            cells.requests.record(record.status);
        }
        if let Some(cause) = cause {
            cells.cause(cause);
        }
        if self.phase != Phase::Tunnel {
            cells.duration.observe(total);
            if let Some(trace) = &record.trace {
                cells.exemplify(total, trace.own.trace, trace.own.span, SystemTime::now());
            }
        }
        if record.first_byte > Duration::ZERO {
            cells.upstream_duration.observe(record.first_byte);
        }
        cells.request_bytes.add(record.body_in);
        cells.response_bytes.add(record.body_out);
        if let Some(consumer) = self.cx.as_ref().and_then(Cx::consumer_index) {
            self.count_consumer(consumer);
        }
        let listener = &self.client.listener.cells;
        listener.received_bytes.add(self.head.wire_len() as u64 + record.body_in);
        listener.sent_bytes.add(record.sent);
    }

    fn count_consumer(&self, index: usize) {
        let record = &self.record;
        let core = &self.client.core.cells;
        let listed = || self.local.listed(self.cx.as_ref()?.listed()?, core);
        let listed_cells;
        let cells = match self.local.consumer(index, core) {
            Some(cells) => cells,
            None => {
                listed_cells = listed();
                let Some(cells) = &listed_cells else { return };
                cells
            }
        };
        if record.status != 0 {
            cells.requests.record(record.status);
        }
        cells.request_bytes.add(record.body_in);
        cells.response_bytes.add(record.body_out);
    }

    fn entry<'a>(&'a self, request_id: &'a [u8], failed_attempts: &'a str) -> Entry<'a> {
        let (record, snapshot) = (&self.record, &self.local.snapshot);
        let peer = match self.client.peer {
            weir_wire::Peer::Address(address) => Some(address),
            weir_wire::Peer::Local => None,
        };
        let cx = self.cx.as_ref();
        let certificate = self.client.certificate.as_deref();
        let timing = self.timing();
        Entry {
            time: SystemTime::now().checked_sub(timing.total).unwrap_or(SystemTime::UNIX_EPOCH),
            request_id,
            trace_id: b"",
            span_id: b"",
            client: Some(cx.map_or_else(|| self.client_address(), |cx| cx.client)),
            peer,
            listener: &self.client.listener.spec.name,
            method: self.head.received_method(),
            host: self.head.asked_authority(),
            path: self.head.received_path(),
            query: self.head.received_query(),
            protocol: self.protocol(),
            route: self.route.map_or("", |route| &snapshot.routes[route].name),
            arm: self.arm().map_or("", |arm| arm),
            upstream: record.upstream.map_or("", |upstream| &snapshot.upstreams[upstream].name),
            endpoint: record.endpoint.as_ref().map_or("", |(list, i)| &list[*i].endpoint.label),
            attempts: self.attempts,
            failed_attempts,
            status: record.reported_status(),
            cause: record.cause.map_or("", |cause| cause.code),
            bytes_in: self.head.wire_len() as u64 + record.body_in,
            bytes_out: record.sent,
            body_bytes_out: record.body_out.saturating_add_signed(cx.map_or(0, |cx| cx.body_grown)),
            consumer: cx.and_then(Cx::consumer).map_or("", |c| &c.name),
            credential: cx.and_then(|cx| cx.credential.as_ref()).map(<[u8; 8]>::as_slice).unwrap_or_default(),
            referer: self.head.headers.get_str("referer").unwrap_or_default(),
            user_agent: self.head.headers.get_str("user-agent").unwrap_or_default(),
            tls_version: self.client.stream.tls().map_or("", |tls| tls.version),
            tls_cipher: self.client.stream.tls().map_or("", |tls| tls.cipher),
            tls_client_subject: certificate.map_or("", |c| &c.subject),
            tls_client_san: certificate.map_or("", |c| &c.san),
            tls_client_fingerprint: certificate.map_or("", |c| &c.fingerprint),
            tunnel: self.phase == Phase::Tunnel,
            timing,
            headers: &[],
            computed: &[],
            request: None,
        }
    }
}

/// The head of a finished exchange, reused for the next request, whose first bytes its buffer may hold.
///
/// Takes the parts, because passing the whole exchange through a future copies it: a kilobyte per request.
pub(super) fn head_for_next(mut head: Box<RequestHead>, used: usize, leftover: &[u8]) -> Box<RequestHead> {
    head.recycle(used);
    if !leftover.is_empty() {
        head.buffer_mut().extend_from_slice(leftover);
    }
    head
}
