//! The spans of an exchange: its own and one per attempt, by the semantic conventions for HTTP.

use super::{Exchange, Phase};
use crate::tracing::{AttemptSpan, Call, Trace, context};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_filter::grpc;
use weir_h1::{ResponseHead, Version};
use weir_telemetry::otlp::{Attributes, Span, SpanKind};
use weir_upstream::upstream::{Active, LocalUpstream};
use weir_wire::listen::Address;

/// The moment at which spans are written, on both clocks.
#[derive(Clone, Copy)]
struct Now {
    instant: Instant,
    time: SystemTime,
}

impl Now {
    fn read() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }

    /// Converts a moment to wall-clock time.
    fn at(self, then: Instant) -> SystemTime {
        self.before(self.instant.saturating_duration_since(then))
    }

    fn before(self, by: Duration) -> SystemTime {
        self.time.checked_sub(by).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl Exchange<'_> {
    /// Continues the request's trace, or begins one.
    pub(super) fn begin_trace(&mut self) {
        let Some(tracing) = &self.local.snapshot.tracing else { return };
        let mut random = self.client.core.random.borrow_mut();
        self.record.trace = tracing.begin(&mut self.head, self.client.trusted, &mut random);
    }

    /// Notes the route of a sampled exchange.
    pub(super) fn trace_route(&mut self, route: usize) {
        if let (Some(trace), Some(tracing)) = (&mut self.record.trace, &self.local.snapshot.tracing) {
            trace.route = tracing.patterns.get(route).cloned();
        }
    }

    /// Notes a new attempt before filters and the endpoint see its head.
    pub(super) fn trace_attempt(&mut self, upstream: &LocalUpstream, active: &Active, began: Instant) {
        let call = self.grpc.then(|| Call { path: self.call_path(), status: None });
        let (Some(trace), Some(tracing)) = (&mut self.record.trace, &self.local.snapshot.tracing) else {
            return;
        };
        let attempt = AttemptSpan {
            id: self.client.core.random.borrow_mut().next().max(1),
            began,
            ended: None,
            upstream: Arc::clone(&upstream.spec.name),
            endpoint: Arc::clone(&active.get().endpoint),
            tls: upstream.spec.tls.is_some(),
            status: 0,
            error: None,
            protocol: "",
            call,
        };
        trace.begin_attempt(tracing, &mut self.head, attempt);
    }

    /// Notes the status of a gRPC call if the answer's head has it; otherwise the trailers do.
    pub(super) fn trace_status(&mut self, head: &ResponseHead) {
        let status = self.record.trace.as_mut().and_then(|trace| trace.call_status());
        if let (Some(status), Some(told)) = (status, grpc::status_of(&head.headers)) {
            *status = Some(told);
        }
    }

    /// Notes that a filter has waited since `began`, which is set if the exchange is sampled.
    pub(super) fn trace_wait(&mut self, filter: &'static str, began: Option<Instant>) {
        if let (Some(trace), Some(began)) = (&mut self.record.trace, began) {
            trace.waited(filter, began);
        }
    }

    /// The ids for the exchange's log line: its trace's, then its span's. If it is not sampled, they are read from
    /// its head as it was sent on.
    pub(super) fn trace_ids(&self) -> Option<[u8; 48]> {
        self.local.snapshot.tracing.as_ref()?;
        let mut ids = [0; 48];
        let (trace_id, span_id) = ids.split_at_mut(32);
        match &self.record.trace {
            Some(trace) => {
                context::digits(trace_id, trace.own.trace);
                context::digits(span_id, trace.own.span.into());
            }
            None => {
                let (trace, span) = context::ids(self.head.headers.get_str("traceparent")?)?;
                trace_id.copy_from_slice(trace);
                span_id.copy_from_slice(span);
            }
        }
        Some(ids)
    }

    /// Writes the spans of an exchange that has ended.
    #[cold]
    pub(super) fn write_spans(&self, trace: &Trace) {
        let mut outbox = self.client.core.spans.borrow_mut();
        let Some(outbox) = &mut *outbox else { return }; // tracing was turned off meanwhile
        let now = Now::read();
        let elements = 1 + trace.attempts.len() as u64;
        outbox.add(elements, |out| {
            self.write_own_span(trace, now, out);
            for (number, attempt) in trace.attempts.iter().enumerate() {
                self.write_attempt(trace, number, attempt, now, out);
            }
        });
    }

    fn write_own_span(&self, trace: &Trace, now: Now, out: &mut Vec<u8>) {
        let record = &self.record;
        // As received: a filter may have changed the request.
        let method = known_method(self.head.received_method());
        let shown = method.unwrap_or("HTTP");
        let name = match &trace.route {
            Some(route) => format!("{shown} {route}"),
            None => shown.to_owned(),
        };
        let call = self.served_call(trace);
        let error = match call.as_ref().and_then(|call| call.status) {
            Some(status) => is_server_error(status).then(|| {
                self.record.cause.map_or_else(|| status_name(status), |cause| cause.code.to_owned())
            }),
            None => self.error(),
        };
        let span = Span {
            trace: trace.own.trace,
            id: trace.own.span,
            parent: trace.parent,
            remote_parent: trace.parent != 0,
            state: &trace.state,
            name: &name,
            kind: SpanKind::Server,
            start: now.before(self.timing().total),
            end: now.time,
            failed: error.is_some(),
        };
        span.write(out, |to| {
            self.write_request_attributes(to);
            to.text("http.route", trace.route.as_deref().unwrap_or_default());
            if record.status != 0 {
                to.number("http.response.status_code", record.status.into());
            }
            to.text("error.type", error.unwrap_or_default());
            to.number("http.request.body.size", record.body_in);
            to.number("http.response.body.size", record.body_out);
            if let Some(call) = &call {
                write_call(to, call);
            }
            self.write_own_attributes(to);
            for wait in &trace.waits {
                to.event(now.at(wait.began), "filter.wait", |event| {
                    event.text("weir.filter", wait.filter);
                    let took = wait.ended.saturating_duration_since(wait.began);
                    event.number("weir.wait_us", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                });
            }
        });
    }

    /// The client's gRPC call and the status it got, if both are known. A request that a filter translated to gRPC
    /// counts as HTTP.
    fn served_call(&self, trace: &Trace) -> Option<Call> {
        if !self.grpc || self.calls_grpc() {
            return None;
        }
        let told = trace.attempts.last().and_then(|attempt| attempt.call.as_ref()?.status);
        Some(Call { path: self.call_path(), status: self.record.cause.map(grpc::status).or(told) })
    }

    /// The path of a call, without the parts hidden in logs.
    fn call_path(&self) -> Box<[u8]> {
        let path = self.head.path();
        let conceals = self.local.snapshot.conceals.as_deref();
        conceals.map_or_else(|| path.into(), |conceals| conceals.path(path).into())
    }

    /// The client's request as received.
    fn write_request_attributes(&self, to: &mut Attributes<'_>) {
        let received = self.head.received_method();
        match known_method(received) {
            Some(method) => to.text("http.request.method", method),
            None => {
                to.text("http.request.method", "_OTHER");
                to.text("http.request.method_original", received);
            }
        }
        to.text("url.scheme", if self.is_tls() { "https" } else { "http" });
        let (path, query) = (self.head.received_path(), self.head.received_query());
        match &self.local.snapshot.conceals {
            Some(conceals) => {
                to.text("url.path", conceals.path(path));
                to.text("url.query", conceals.query(path, query));
            }
            None => {
                to.text("url.path", path);
                to.text("url.query", query);
            }
        }
        let (host, port) = split_port(self.head.asked_authority());
        to.text("server.address", host);
        to.number("server.port", port.unwrap_or(if self.is_tls() { 443 } else { 80 }).into());
        to.text("client.address", self.client_address().to_string());
        if let weir_wire::Peer::Address(peer) = self.client.peer {
            to.address("network.peer.address", peer.ip());
            to.number("network.peer.port", peer.port().into());
        }
        to.text(
            "network.protocol.version",
            match self.head.version() {
                Version::Http10 => "1.0",
                Version::Http11 => "1.1",
                Version::Http2 => "2",
                Version::Http3 => "3",
            },
        );
        to.text("user_agent.original", self.head.headers.get_str("user-agent").unwrap_or_default());
    }

    /// Facts that only this gateway knows.
    fn write_own_attributes(&self, to: &mut Attributes<'_>) {
        let (record, snapshot) = (&self.record, &self.local.snapshot);
        to.text("weir.listener", &*self.client.listener.spec.name);
        to.text("weir.route", self.route.map_or("", |route| &snapshot.routes[route].name));
        to.text("weir.upstream", record.upstream.map_or("", |upstream| &snapshot.upstreams[upstream].name));
        let consumer = self.cx.as_ref().and_then(weir_filter::filter::Cx::consumer);
        to.text("weir.consumer", consumer.map_or("", |consumer| &consumer.name));
        to.text("weir.cause", record.cause.map_or("", |cause| cause.code));
        to.text("weir.request_id", self.id().unwrap_or_default());
        if self.phase == Phase::Tunnel {
            to.truth("weir.tunnel", true);
        }
    }

    fn write_attempt(
        &self,
        trace: &Trace,
        number: usize,
        attempt: &AttemptSpan,
        now: Now,
        out: &mut Vec<u8>,
    ) {
        let end = attempt.ended.map_or(now.time, |ended| now.at(ended));
        // An attempt that was neither answered nor failed ended with the exchange.
        let cut = (attempt.status == 0).then(|| self.record.cause.map_or("canceled", |cause| cause.code));
        let status = attempt.status.to_string();
        // A gRPC call with any status but 0 has failed, whatever its HTTP status.
        let told = attempt.call.as_ref().and_then(|call| call.status).filter(|status| *status != 0);
        let told = told.map(status_name);
        let error = attempt.error.as_deref().or(cut).or(told.as_deref());
        let error = error.or((attempt.status >= 400).then_some(&*status));
        let method = known_method(self.head.method_name());
        let span = Span {
            trace: trace.own.trace,
            id: attempt.id,
            parent: trace.own.span,
            remote_parent: false,
            state: &trace.state,
            name: method.unwrap_or("HTTP"),
            kind: SpanKind::Client,
            start: now.at(attempt.began),
            end,
            failed: error.is_some(),
        };
        span.write(out, |to| {
            to.text("http.request.method", method.unwrap_or("_OTHER"));
            let (host, port) = split_port(attempt.endpoint.authority.as_bytes());
            to.text("server.address", host);
            match (&attempt.endpoint.address, port) {
                (_, Some(port)) => to.number("server.port", port.into()),
                (Address::Tcp(address), None) => to.number("server.port", address.port().into()),
                (Address::Udp(_) | Address::Unix(_), None) => {}
            }
            if let Address::Tcp(address) = &attempt.endpoint.address {
                to.address("network.peer.address", address.ip());
                to.number("network.peer.port", address.port().into());
            }
            to.text("url.full", self.url_at(attempt));
            if attempt.status != 0 {
                to.number("http.response.status_code", attempt.status.into());
            }
            to.text("error.type", error.unwrap_or_default());
            if let Some(call) = &attempt.call {
                write_call(to, call);
            }
            if number > 0 {
                to.number("http.request.resend_count", number as u64);
            }
            to.text("network.protocol.version", attempt.protocol);
            to.text("weir.upstream", &*attempt.upstream);
            to.text("weir.endpoint", &*attempt.endpoint.label);
        });
    }

    /// The URL requested from an endpoint.
    fn url_at(&self, attempt: &AttemptSpan) -> Vec<u8> {
        let scheme = if attempt.tls { "https://" } else { "http://" };
        let mut url = [scheme.as_bytes(), attempt.endpoint.authority.as_bytes()].concat();
        let (path, query) = (self.head.path(), self.head.query().unwrap_or_default());
        let conceals = self.local.snapshot.conceals.as_deref();
        match conceals {
            Some(conceals) => url.extend_from_slice(&conceals.path(path)),
            None => url.extend_from_slice(path),
        }
        if !query.is_empty() {
            url.push(b'?');
            match conceals {
                Some(conceals) => url.extend_from_slice(&conceals.query(path, query)),
                None => url.extend_from_slice(query),
            }
        }
        url
    }

    /// What failed on our side of the exchange: the cause or the status. Refusing a client is not our error.
    fn error(&self) -> Option<String> {
        let status = self.record.status;
        match self.record.cause {
            Some(_) if (400..500).contains(&status) => None,
            Some(cause) => Some(cause.code.to_owned()),
            None => (status >= 500 || status == 0).then(|| status.to_string()),
        }
    }
}

/// The method, if the conventions know it: others would create too many names.
fn known_method(name: &[u8]) -> Option<&'static str> {
    const KNOWN: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
    KNOWN.into_iter().find(|known| known.as_bytes() == name)
}

/// The attributes of a gRPC call, by the semantic conventions for it.
fn write_call(to: &mut Attributes<'_>, call: &Call) {
    let (service, method) = call.parts();
    to.text("rpc.system", "grpc");
    to.text("rpc.service", service);
    to.text("rpc.method", method);
    if let Some(status) = call.status {
        to.number("rpc.grpc.status_code", status.into());
    }
}

/// Whether the same conventions count this status as a server error. The others report a client's mistake.
const fn is_server_error(status: u8) -> bool {
    // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS
    matches!(status, 2 | 4 | 12..=15)
}

/// The name of a status as the gRPC project writes it.
fn status_name(status: u8) -> String {
    grpc::name(status).to_ascii_uppercase()
}

/// Splits a host from its port.
fn split_port(authority: &[u8]) -> (&[u8], Option<u16>) {
    let colon = authority.iter().rposition(|&b| b == b':');
    let split = colon.and_then(|at| {
        let (host, port) = authority.split_at_checked(at)?;
        let port = str::from_utf8(port.get(1..)?).ok()?.parse().ok()?;
        // A colon within an IPv6 address without brackets does not begin a port.
        (!host.contains(&b':') || host.ends_with(b"]")).then_some((host, port))
    });
    let (host, port) = split.map_or((authority, None), |(host, port)| (host, Some(port)));
    (host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Semantic conventions for gRPC, *gRPC Status*.
    #[test]
    fn errors_of_servers() {
        let errors: Vec<u8> = (0..=20).filter(|status| is_server_error(*status)).collect();
        assert_eq!(errors, [2, 4, 12, 13, 14, 15]);
        assert_eq!(
            (status_name(4), status_name(16)),
            ("DEADLINE_EXCEEDED".to_owned(), "UNAUTHENTICATED".to_owned())
        );
    }

    #[test]
    fn calls_by_their_paths() {
        for (path, service, method) in [
            ("/a.b.S/M", "a.b.S", "M"),
            ("/S/M", "S", "M"),
            ("/prefix/a.S/M", "prefix/a.S", "M"),
            ("/nothing", "nothing", ""),
            ("*", "*", ""),
        ] {
            let call = Call { path: path.as_bytes().into(), status: None };
            assert_eq!(call.parts(), (service.as_bytes(), method.as_bytes()), "{path}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        for (text, host, port) in [
            ("a.example", "a.example", None),
            ("a.example:81", "a.example", Some(81)),
            ("[::1]:81", "::1", Some(81)),
            ("[::1]", "::1", None),
            ("::1", "::1", None),
            ("a:b", "a:b", None),
            ("", "", None),
        ] {
            assert_eq!(split_port(text.as_bytes()), (host.as_bytes(), port), "{text}");
        }
    }
}
