//! Phase 7: what an exchange leaves behind: `on_end`, counters, a line in the access log.

use super::{Exchange, Next, Phase};
use crate::error::{self, Cause};
use crate::filter::{Cx, End, Hooks};
use crate::id;
use crate::tracing::Trace;
use crate::upstream::{Active, LocalEndpoint};
use smallvec::SmallVec;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use weir_h1::{RequestHead, ResponseHead, Version};
use weir_telemetry::{Closed, Entry, Header, Timing, log};

/// What is known of an exchange when it ends.
pub(super) struct Record {
    pub(super) started: Instant,
    /// The client's address where a trusted proxy told it.
    pub(super) client: Option<std::net::IpAddr>,
    pub(super) route: Option<usize>,
    pub(super) upstream: Option<usize>,
    pub(super) endpoint: Option<(Rc<[LocalEndpoint]>, usize)>,
    pub(super) attempts: u32,
    /// Those that failed: endpoint, cause or status, and time of each.
    pub(super) failed_attempts: String,
    pub(super) status: u16,
    pub(super) cause: Option<&'static Cause>,
    /// Bytes of the request's body.
    pub(super) body_in: u64,
    /// Bytes of the response's body as it came from the upstream, and all bytes written to the client.
    pub(super) body_out: u64,
    pub(super) sent: u64,
    pub(super) tunnel: bool,
    /// The id that the client was told where no filter had given one. Boxed: nearly all exchanges have none.
    id: Option<Box<[u8; 32]>>,
    /// The fields of the response that the access log asks for, by name.
    response_fields: Vec<(String, Vec<u8>)>,
    pub(super) timing: Timing,
    /// What is told a collector, where the exchange is sampled. Boxed: nearly all are not.
    pub(super) trace: Option<Box<Trace>>,
}

impl Record {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            client: None,
            route: None,
            upstream: None,
            endpoint: None,
            attempts: 0,
            failed_attempts: String::new(),
            status: 0,
            cause: None,
            body_in: 0,
            body_out: 0,
            sent: 0,
            tunnel: false,
            id: None,
            response_fields: Vec::new(),
            timing: Timing::default(),
            trace: None,
        }
    }

    /// Notes an attempt that failed.
    pub(super) fn attempt_failed(&mut self, active: &Active, what: &dyn fmt::Display, began: Instant) {
        let comma = if self.failed_attempts.is_empty() { "" } else { ", " };
        let ms = began.elapsed().as_secs_f32() * 1000.0;
        let label = &active.get().endpoint.label;
        let _ = write!(self.failed_attempts, "{comma}{label} {what} {ms:.1}ms"); // a String takes all
        if let Some(trace) = &mut self.trace {
            trace.attempt_failed(began, &what.to_string());
        }
    }

    /// Notes the time that filters took, for the access log; without either it is not worth a look at the clock.
    pub(super) fn filtered(&mut self, ran: usize, logged: bool) {
        if ran > 0 && logged {
            self.timing.filters = self.started.elapsed().saturating_sub(self.timing.head);
        }
    }
}

/// How the connection of a cut exchange is counted.
pub(super) fn closed_by(cause: &Cause) -> Closed {
    if *cause == error::CLIENT_TOO_SLOW || *cause == error::TUNNEL_TIMEOUT {
        Closed::Timeout
    } else {
        Closed::Error
    }
}

/// Records an exchange when it ends, exactly once, whatever ends it: also a core that ends at the deadline of a drain, and
/// drops its tasks.
pub(super) struct Recorded<'e, 'c> {
    pub(super) exchange: &'e mut Exchange<'c>,
    /// It came to an end of its own.
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

impl Exchange<'_> {
    /// The gateway ends, and this exchange with it.
    #[cold]
    fn dropped(&mut self) {
        self.record.cause = Some(&error::SHUTDOWN);
        if self.phase == Phase::Begun && matches!(self.cut(&error::SHUTDOWN), Next::Abort(_)) {
            self.client.stream.abort();
        }
    }

    /// Hooks, counters, log.
    fn record(&mut self) {
        let total = self.record.started.elapsed();
        let now_total = Timing { total, ..self.record.timing };
        self.record.timing = now_total;
        let cause = self.record.cause.map(|cause| self.client.core.count_indexed(cause));
        self.end_filters();
        self.count(total, cause);
        if let Some(trace) = &self.record.trace {
            self.write_spans(trace);
        }
        if let Some(log) = &mut *self.client.core.access_log.borrow_mut() {
            let made = if log.names_requests() && self.id().is_none() { Some(self.new_id()) } else { None };
            let id = made.as_ref().map(<[u8; 32]>::as_slice);
            let headers: SmallVec<[&[u8]; 8]> = log.headers().iter().map(|h| self.logged(h)).collect();
            let trace = self.trace_ids();
            let (trace_id, span_id) =
                trace.as_ref().and_then(|ids| ids.split_at_checked(32)).unwrap_or_default();
            let entry = self.entry(id.or(self.id().map(str::as_bytes)).unwrap_or_default());
            let entry = Entry { trace_id, span_id, ..entry };
            let Some(conceals) = &self.local.snapshot.conceals else {
                log.record(&Entry { headers: &headers, ..entry });
                return;
            };
            let (path, query) = (conceals.path(entry.path), conceals.query(entry.query));
            log.record(&Entry { headers: &headers, path: &path, query: &query, ..entry });
        }
    }

    // === the id ===

    /// The id of the request: the one that the filter `request_id` gave, or else the one that was made for an answer.
    pub(super) fn id(&self) -> Option<&str> {
        let given = self.cx.as_ref().and_then(|cx| cx.request_id.as_deref());
        given.or_else(|| self.record.id.as_deref().and_then(|id| str::from_utf8(id).ok()))
    }

    /// Makes sure that there is one, for an answer that tells it.
    pub(super) fn make_id(&mut self) {
        if self.id().is_none() {
            self.record.id = Some(Box::new(self.new_id()));
        }
    }

    fn new_id(&self) -> [u8; 32] {
        let mut random = self.client.core.random.borrow_mut();
        id::digits([random.next(), random.next()])
    }

    // === fields for the log ===

    /// Keeps the fields of a response that the access log asks for: the head is gone when its line is written.
    pub(super) fn keep_fields(&mut self, response: &ResponseHead) {
        let log = self.client.core.access_log.borrow();
        let Some(log) = log.as_ref().filter(|log| log.wants_responses()) else { return };
        let names = log.headers().iter().filter_map(|header| match header {
            Header::Response(name) => Some(name),
            Header::Request(_) => None,
        });
        let kept = names.filter_map(|name| Some((name.clone(), response.headers.get_str(name)?.to_vec())));
        self.record.response_fields = kept.collect();
    }

    fn logged(&self, header: &Header) -> &[u8] {
        match header {
            Header::Request(name) => self.head.headers.get_str(name).unwrap_or_default(),
            Header::Response(name) => {
                let mut kept = self.record.response_fields.iter();
                kept.find(|(known, _)| known == name).map_or(b"", |(_, value)| value)
            }
        }
    }

    // === the rest ===

    /// The head, for the next request: what came of it already is in its buffer.
    pub(super) fn into_head(self) -> Box<RequestHead> {
        let mut head = self.head;
        head.recycle(self.used);
        if !self.leftover.is_empty() {
            head.buffer_mut().extend_from_slice(&self.leftover);
        }
        head
    }

    fn end_filters(&mut self) {
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
                // One that panics must not keep the others from their end.
                let ended = catch_unwind(AssertUnwindSafe(|| instance.filter.on_end(&end, cx)));
                if ended.is_err() {
                    static SEEN: log::Every = log::every(Duration::from_secs(1));
                    let fields: log::Fields<'_> = &[("filter", &instance.name)];
                    SEEN.write(log::Level::Error, "a filter panicked at the end of an exchange", fields);
                }
            }
        }
    }

    /// `cause`: its index.
    fn count(&self, total: Duration, cause: Option<usize>) {
        let record = &self.record;
        let cells = match record.route {
            Some(route) => &self.local.routes[route].cells,
            None => &self.local.unrouted,
        };
        if record.route.is_some() {
            cells.active.dec();
        }
        if record.status != 0 {
            cells.requests.record(record.status);
        }
        if let Some(cause) = cause {
            cells.cause(cause);
        }
        if !record.tunnel {
            cells.duration.observe(total);
            if let Some(trace) = &record.trace {
                cells.exemplify(total, trace.own.trace, trace.own.span, SystemTime::now());
            }
        }
        if record.timing.first_byte > Duration::ZERO {
            cells.upstream_duration.observe(record.timing.first_byte);
        }
        cells.request_bytes.add(record.body_in);
        cells.response_bytes.add(record.body_out);
        let listener = &self.client.listener.cells;
        listener.received_bytes.add(self.head.wire_len() as u64 + record.body_in);
        listener.sent_bytes.add(record.sent);
    }

    fn entry<'a>(&'a self, request_id: &'a [u8]) -> Entry<'a> {
        let (record, snapshot) = (&self.record, &self.local.snapshot);
        let peer = match self.client.peer {
            weir_wire::Peer::Address(address) => Some(address),
            weir_wire::Peer::Local => None,
        };
        let cx = self.cx.as_ref();
        let certificate = self.client.certificate.as_deref();
        Entry {
            time: SystemTime::now().checked_sub(record.timing.total).unwrap_or(SystemTime::UNIX_EPOCH),
            request_id,
            trace_id: b"",
            span_id: b"",
            client: Some(cx.map_or_else(|| self.client_address(), |cx| cx.client)),
            peer,
            listener: &self.client.listener.spec.name,
            method: self.head.method_name(),
            host: self.head.asked_authority(),
            path: self.head.received_path(),
            query: self.head.received_query(),
            protocol: match self.head.version() {
                Version::Http10 => "HTTP/1.0",
                Version::Http11 => "HTTP/1.1",
                Version::Http2 => "HTTP/2",
            },
            route: record.route.map_or("", |route| &snapshot.routes[route].name),
            upstream: record.upstream.map_or("", |upstream| &snapshot.upstreams[upstream].name),
            endpoint: record.endpoint.as_ref().map_or("", |(list, i)| &list[*i].endpoint.label),
            attempts: record.attempts,
            failed_attempts: &record.failed_attempts,
            status: record.status,
            cause: record.cause.map_or("", |cause| cause.code),
            bytes_in: self.head.wire_len() as u64 + record.body_in,
            bytes_out: record.sent,
            body_bytes_out: record.body_out,
            consumer: cx.and_then(Cx::consumer).map_or("", |c| &c.name),
            credential: cx.and_then(|cx| cx.credential.as_ref()).map(<[u8; 8]>::as_slice).unwrap_or_default(),
            referer: self.head.headers.get_str("referer").unwrap_or_default(),
            user_agent: self.head.headers.get_str("user-agent").unwrap_or_default(),
            tls_version: self.client.stream.tls().map_or("", |tls| tls.version),
            tls_cipher: self.client.stream.tls().map_or("", |tls| tls.cipher),
            tls_client_subject: certificate.map_or("", |c| &c.subject),
            tls_client_san: certificate.map_or("", |c| &c.san),
            tls_client_fingerprint: certificate.map_or("", |c| &c.fingerprint),
            tunnel: record.tunnel,
            timing: record.timing,
            headers: &[],
        }
    }
}
