//! `tracing`: which exchanges are traced, and the data kept of a traced one. `exchange/trace.rs` fills it in and
//! makes spans of it; `export.rs` sends them.
//!
//! An unsampled exchange costs a `traceparent` and no memory: its ids are in the head that is sent on.

mod b3;
pub(crate) mod context;

use context::Parent;
use std::sync::Arc;
use std::time::Instant;
use weir_h1::{FieldName, RequestHead};
use weir_upstream::upstream::Endpoint;
use weir_upstream::upstream::balance::Random;

/// Most attempts of an exchange that get a span.
const ATTEMPTS: usize = 16;

/// Most filter waits that an exchange's span reports.
const WAITS: usize = 32;

/// Whose `traceparent` is honored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parents {
    /// Everybody's.
    Always,
    /// Nobody's: each exchange begins a new trace.
    Never,
    /// That of peers in `trusted_proxies`.
    Trusted,
}

/// How exchanges are traced.
#[derive(Debug)]
pub(crate) struct Tracing {
    parents: Parents,
    /// A trace that begins here is sampled if its last 56 bits are below this.
    threshold: u64,
    traceparent: FieldName,
    tracestate: FieldName,
    b3: b3::Names,
    /// The path pattern of each route: `http.route`.
    pub(crate) patterns: Box<[Arc<str>]>,
}

/// A sampled exchange.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The trace, and the span of the exchange.
    pub(crate) own: Parent,
    /// The caller's span; 0 for none.
    pub(crate) parent: u64,
    /// Which Zipkin fields arrived; they are sent on with this trace's ids.
    b3: b3::Forms,
    /// `tracestate` as received.
    pub(crate) state: String,
    /// The pattern of the route's path.
    pub(crate) route: Option<Arc<str>>,
    pub(crate) attempts: Vec<AttemptSpan>,
    pub(crate) waits: Vec<FilterWait>,
}

/// The data of one attempt's span.
#[derive(Debug)]
pub(crate) struct AttemptSpan {
    pub(crate) id: u64,
    /// When it began. Identifies the attempt.
    pub(crate) began: Instant,
    /// When it ended, if before the exchange.
    pub(crate) ended: Option<Instant>,
    pub(crate) upstream: Arc<str>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) tls: bool,
    /// The status of its answer.
    pub(crate) status: u16,
    /// Why it had no answer.
    pub(crate) error: Option<Box<str>>,
    pub(crate) protocol: &'static str,
    /// The call, if it is gRPC.
    pub(crate) call: Option<Call>,
}

/// A call of gRPC.
#[derive(Debug)]
pub(crate) struct Call {
    /// `/package.Service/Method`, without hidden parts.
    pub(crate) path: Box<[u8]>,
    /// Its status, once it is known.
    pub(crate) status: Option<u8>,
}

impl Call {
    /// The service and its method.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        let path = self.path.strip_prefix(b"/").unwrap_or(&self.path);
        let slash = path.iter().rposition(|&b| b == b'/').unwrap_or(path.len());
        (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default())
    }
}

/// A filter's wait.
#[derive(Debug)]
pub(crate) struct FilterWait {
    pub(crate) filter: &'static str,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl Tracing {
    pub(crate) fn new(parents: Parents, share: f64, patterns: Box<[Arc<str>]>) -> Self {
        let name = |text: &'static str| {
            FieldName::new(text).unwrap_or_else(|_| unreachable!("a name in the source is a token"))
        };
        let threshold = (share.clamp(0.0, 1.0) * (RANDOM_BITS + 1) as f64) as u64;
        Self {
            parents,
            threshold,
            traceparent: name("traceparent"),
            tracestate: name("tracestate"),
            b3: b3::Names::new(name),
            patterns,
        }
    }

    /// Begins an exchange: finds its trace, and writes its span where the next hop looks for its parent. `None` if it
    /// is not sampled.
    pub(crate) fn begin(
        &self,
        head: &mut RequestHead,
        trusted: bool,
        random: &mut Random,
    ) -> Option<Box<Trace>> {
        let followed = match self.parents {
            Parents::Always => true,
            Parents::Never => false,
            Parents::Trusted => trusted,
        };
        let incoming = IncomingContext::of(head);
        let zipkin = if incoming.b3 { b3::read(head) } else { b3::Incoming::default() };
        let mut parent = incoming.parent.filter(|_| followed && incoming.parents == 1);
        let mut decision = parent.map(|parent| parent.sampled);
        if followed && incoming.parents == 0 {
            (parent, decision) = (zipkin.parent, zipkin.decision);
        }
        if incoming.states > 0 && (parent.is_none() || !context::is_state(head.headers.get_all("tracestate")))
        {
            head.headers.remove(&self.tracestate); // it belongs to another trace or is malformed
        }
        let trace = match &parent {
            Some(parent) => parent.trace,
            None => (u128::from(random.next()) << 64 | u128::from(random.next())).max(1),
        };
        let sampled = decision.unwrap_or_else(|| self.samples(trace));
        let own = Parent { trace, span: random.next().max(1), sampled };
        if incoming.parents == 0 && !incoming.b3 {
            let _ = head.headers.append(&self.traceparent, &own.write()); // only digits
        } else {
            self.show(head, own, zipkin.forms);
        }
        if !sampled {
            return None;
        }
        let state: Vec<_> = head.headers.get_all("tracestate").map(String::from_utf8_lossy).collect();
        Some(Box::new(Trace {
            own,
            parent: parent.map_or(0, |parent| parent.span),
            b3: zipkin.forms,
            state: state.join(","),
            route: None,
            attempts: Vec::new(),
            waits: Vec::new(),
        }))
    }

    fn samples(&self, trace: u128) -> bool {
        (trace as u64 & RANDOM_BITS) < self.threshold
    }

    /// Sends the next hop its parent.
    fn show(&self, head: &mut RequestHead, context: Parent, forms: b3::Forms) {
        let _ = head.headers.insert(&self.traceparent, &context.write()); // only digits
        if forms.any() {
            b3::write(&self.b3, head, forms, context);
        }
    }
}

/// A caller's trace context, found in one pass over the fields.
#[derive(Default)]
struct IncomingContext {
    /// The first `traceparent`, if it is valid.
    parent: Option<Parent>,
    /// How many `traceparent` and how many `tracestate` fields there are.
    parents: usize,
    states: usize,
    /// Whether there are Zipkin fields.
    b3: bool,
}

impl IncomingContext {
    fn of(head: &RequestHead) -> Self {
        let mut incoming = Self::default();
        for (name, value) in head.headers.iter() {
            if name.eq_ignore_ascii_case(b"traceparent") {
                incoming.parent = if incoming.parents == 0 { Parent::parse(value) } else { None };
                incoming.parents += 1;
            } else if name.eq_ignore_ascii_case(b"tracestate") {
                incoming.states += 1;
            } else if b3::form_of(name).any() {
                incoming.b3 = true;
            }
        }
        incoming
    }
}

/// The part of a trace id that is certainly random (Trace Context Level 2 §2.2.2.2). All gateways that decide by it
/// sample the same traces.
const RANDOM_BITS: u64 = (1 << 56) - 1;

impl Trace {
    /// Begins an attempt. The endpoint sees the attempt's span as its parent.
    pub(crate) fn begin_attempt(&mut self, tracing: &Tracing, head: &mut RequestHead, attempt: AttemptSpan) {
        tracing.show(head, Parent { span: attempt.id, ..self.own }, self.b3);
        if self.attempts.len() < ATTEMPTS {
            self.attempts.push(attempt);
        }
    }

    /// Marks the attempt that began then as failed, by a status or a cause.
    pub(crate) fn attempt_failed(&mut self, began: Instant, what: &str) {
        let Some(attempt) = self.attempts.iter_mut().rev().find(|a| a.began == began && a.ended.is_none())
        else {
            return;
        };
        attempt.ended = Some(Instant::now());
        match what.parse() {
            Ok(status) => attempt.status = status,
            Err(_) => attempt.error = Some(what.into()),
        }
    }

    /// Removes the attempt that began then.
    pub(crate) fn attempt_avoided(&mut self, began: Instant) {
        self.attempts.retain(|attempt| attempt.began != began || attempt.ended.is_some());
    }

    /// Marks the attempt that began then as answered.
    pub(crate) fn answered(&mut self, began: Option<Instant>, status: u16, by_http2: bool) {
        let is_it = |attempt: &&mut AttemptSpan| Some(attempt.began) == began && attempt.ended.is_none();
        if let Some(attempt) = self.attempts.iter_mut().rev().find(is_it) {
            attempt.status = status;
            attempt.protocol = if by_http2 { "2" } else { "1.1" };
        }
    }

    /// Where to note the status of the current call; `None` if it is not gRPC.
    pub(crate) fn call_status(&mut self) -> Option<&mut Option<u8>> {
        let attempt = self.attempts.iter_mut().rev().find(|attempt| attempt.ended.is_none())?;
        attempt.call.as_mut().map(|call| &mut call.status)
    }

    /// Notes a filter's wait.
    pub(crate) fn waited(&mut self, filter: &'static str, began: Instant) {
        if self.waits.len() < WAITS {
            self.waits.push(FilterWait { filter, began, ended: Instant::now() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_h1::{Limits, Progress, parse_request};

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn head(fields: &str) -> RequestHead {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        assert!(matches!(parse_request(&mut head, &Limits::default()), Ok(Progress::Complete)));
        head
    }

    fn begin(tracing: &Tracing, head: &mut RequestHead, trusted: bool) -> (Parent, Option<Box<Trace>>) {
        let trace = tracing.begin(head, trusted, &mut Random::new(7));
        let all: Vec<&[u8]> = head.headers.get_all("traceparent").collect();
        assert_eq!(all.len(), 1);
        (Parent::parse(all[0]).unwrap(), trace)
    }

    fn tracing(parents: Parents, share: f64) -> Tracing {
        Tracing::new(parents, share, [].into())
    }

    #[test]
    fn a_parent_is_followed_and_decides() {
        for (share, flag) in [(0.0, "01"), (1.0, "00")] {
            let said = format!("{}{flag}", &PARENT[..53]);
            let mut head = head(&format!("TraceParent: {said}\r\nTraceState: a=1\r\ntracestate: b=2\r\n"));
            let (sent, trace) = begin(&tracing(Parents::Always, share), &mut head, false);
            let parent = Parent::parse(said.as_bytes()).unwrap();
            assert_eq!((sent.trace, sent.sampled), (parent.trace, parent.sampled));
            assert_ne!(sent.span, parent.span);
            assert_eq!(head.headers.get_all("tracestate").count(), 2);
            assert_eq!(trace.is_some(), flag == "01");
            if let Some(trace) = trace {
                assert_eq!((trace.parent, &*trace.state, trace.own), (parent.span, "a=1,b=2", sent));
            }
        }
    }

    #[test]
    fn what_is_malformed_or_not_believed_is_replaced() {
        let good = Parent::parse(PARENT.as_bytes()).unwrap();
        let twice = format!("{PARENT}\r\ntraceparent: {PARENT}");
        for (parents, trusted, said) in [
            (Parents::Always, true, "00-xyz"),
            (Parents::Always, true, &twice),
            (Parents::Never, true, PARENT),
            (Parents::Trusted, false, PARENT),
        ] {
            let mut head = head(&format!("traceparent: {said}\r\ntracestate: a=1\r\n"));
            let (sent, trace) = begin(&tracing(parents, 1.0), &mut head, trusted);
            assert_ne!(sent.trace, good.trace, "{said}");
            assert!(trace.is_some_and(|trace| trace.parent == 0 && trace.state.is_empty()));
            assert!(head.headers.get_str("tracestate").is_none());
        }
        let mut believed = head(&format!("traceparent: {PARENT}\r\ntracestate: no state\r\n"));
        let (sent, _) = begin(&tracing(Parents::Trusted, 0.0), &mut believed, true);
        assert_eq!(sent.trace, good.trace);
        assert!(believed.headers.get_str("tracestate").is_none());
    }

    /// Zipkin fields name the same trace as the `traceparent`, whoever began it.
    #[test]
    fn zipkin_names_the_same_trace() {
        const ZIPKIN: &str = "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1";
        let several = "X-B3-TraceId: 80f198ee56343ba864fe8b2a57d3eff7\r\nx-b3-spanid: e457b5a2e4d86bd1\r\nx-b3-parentspanid: 05e3ac9a4f6e3b90";
        for (fields, share, followed, sampled) in [
            (format!("b3: {ZIPKIN}-1"), 0.0, true, true),
            (format!("B3: {ZIPKIN}-0-05e3ac9a4f6e3b90"), 1.0, true, false),
            (format!("b3: {ZIPKIN}"), 1.0, true, true),
            ("b3: 64fe8b2a57d3eff7-e457b5a2e4d86bd1-d".to_owned(), 0.0, false, true),
            ("b3: 0".to_owned(), 1.0, false, false),
            ("b3: no-such-thing".to_owned(), 1.0, false, true),
            (format!("{several}\r\nX-B3-Sampled: 1"), 0.0, true, true),
            (format!("{several}\r\nX-B3-Flags: 1"), 0.0, true, true),
            (format!("{several}\r\nb3: {ZIPKIN}-1"), 0.0, true, true),
            (format!("traceparent: {PARENT}\r\nb3: {ZIPKIN}-0"), 0.0, false, true),
            (format!("b3: {ZIPKIN}-1\r\nb3: {ZIPKIN}-1"), 1.0, false, true),
        ] {
            let mut head = head(&format!("{fields}\r\n"));
            let (sent, trace) = begin(&tracing(Parents::Always, share), &mut head, false);
            assert_eq!(sent.trace == 0x80f1_98ee_5634_3ba8_64fe_8b2a_57d3_eff7, followed, "{fields}");
            assert_eq!((sent.sampled, trace.is_some()), (sampled, sampled), "{fields}");
            let named = format!("{:032x}-{:016x}-{}", sent.trace, sent.span, u8::from(sampled));
            let single: Vec<_> = head.headers.get_all("b3").collect();
            let ids = ["x-b3-traceid", "x-b3-spanid", "x-b3-sampled"].map(|name| head.headers.get_str(name));
            if fields.to_ascii_lowercase().contains("b3: ") {
                assert_eq!(single, [named.as_bytes()], "{fields}");
            }
            if fields.contains("X-B3-TraceId") {
                let several = ids.map(|id| String::from_utf8(id.unwrap().to_vec()).unwrap()).join("-");
                assert_eq!(several, named);
            } else {
                assert_eq!(ids, [None; 3]);
            }
            assert!(
                head.headers.get_str("x-b3-parentspanid").is_none()
                    && head.headers.get_str("x-b3-flags").is_none()
            );
        }
        // An untrusted caller's trace is not continued.
        let mut stranger = head(&format!("b3: {ZIPKIN}-1\r\n"));
        let (sent, _) = begin(&tracing(Parents::Trusted, 0.0), &mut stranger, false);
        assert_ne!(sent.trace, 0x80f1_98ee_5634_3ba8_64fe_8b2a_57d3_eff7);
        assert!(!sent.sampled && head_names(&stranger, sent));
    }

    fn head_names(head: &RequestHead, sent: Parent) -> bool {
        let named = format!("{:032x}-{:016x}-0", sent.trace, sent.span);
        head.headers.get_str("b3") == Some(named.as_bytes())
    }

    #[test]
    fn a_share_of_what_begins_here() {
        let mut random = Random::new(1);
        for (share, most) in [(0.0, 0), (0.01, 150), (1.0, 10_000)] {
            let tracing = tracing(Parents::Always, share);
            let sampled = (0..10_000).filter(|_| tracing.begin(&mut head(""), false, &mut random).is_some());
            let sampled = sampled.count();
            assert!(sampled <= most && sampled * 2 >= most, "{sampled} of 10000 at {share}");
        }
    }
}
