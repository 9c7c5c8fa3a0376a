//! The counts of one thread, which no other thread touches until they are handed over.

use crate::grpc::CODES;
use crate::transport::reader::Response;
use std::collections::BTreeMap;
use weir_report::Histogram;
use weir_report::report::{AnswerKind, Bytes, Errors, Latency, Phases, Protocol, Window};

/// The shortest silence, a time without a response, that is recorded. Shorter ones may be ordinary scheduling.
pub(crate) const SILENCE_NS: u64 = 30_000_000;

/// Error texts that are counted separately.
const TEXTS_MOST: usize = 32;

/// One thread's counts while measuring; some also since the last tick.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    pub(crate) unexpected: u64,
    /// By status.
    pub(crate) statuses: Vec<u64>,
    /// By gRPC code.
    pub(crate) grpc: [u64; CODES.len()],
    /// Responses that should be gRPC but are not.
    pub(crate) not_grpc: u64,
    /// gRPC messages received.
    pub(crate) messages: u64,
    pub(crate) errors: Errors,
    pub(crate) error_texts: BTreeMap<String, u64>,
    pub(crate) unfinished: u64,
    pub(crate) failed_checks: u64,
    pub(crate) kept_alive: u64,
    pub(crate) other_length: u64,
    pub(crate) reused: u64,
    pub(crate) opened: u64,
    /// Responses by [`Protocol`](weir_report::report::Protocol).
    pub(crate) protocols: [u64; Protocol::ALL.len()],
    pub(crate) bytes: Bytes,
    times: Times,
    /// Service times since the last tick; added to `times` there.
    tick: Histogram,
    tick_late: Late,
    pub(crate) start_lag: Histogram,
    /// Requests, or iterations, begun much later than intended.
    pub(crate) late: u64,
    /// Iterations begun.
    pub(crate) started: u64,
    /// For each part of a shape.
    pub(crate) parts: Vec<PartTally>,
    pub(crate) rates: Histogram,
    pub(crate) targets: Vec<TargetTally>,
    /// Passed and failed, per check.
    pub(crate) checks: Vec<(u64, u64)>,
    /// WebSocket sessions.
    pub(crate) sessions: SessionTally,
    pub(crate) busy_ns: u64,
    pub(crate) out_of_ports: u64,
    pub(crate) out_of_descriptors: u64,
    /// Connections whose SYN had to be sent again.
    pub(crate) syn_again: u64,
    /// With HTTP/3, packets whose content was sent again, in the whole run.
    pub(crate) lost_packets: Option<u64>,
    /// TLS connections that resumed a session.
    pub(crate) resumed: u64,
    /// The fewest streams that a connection allowed, if requests waited for one.
    pub(crate) streams_allowed: Option<u64>,
    pub(crate) longest_silence_ns: u64,
    /// Silences of at least [`SILENCE_NS`] that a response ended.
    pub(crate) silences: Histogram,
    pub(crate) backlog_max: u64,
    /// When the last counted response arrived.
    pub(crate) last_response: u64,
    /// Requests that finished before the planned end, whenever they began. Without its length.
    pub(crate) window: Window,
    /// Responses since measuring began, whenever their requests began.
    pub(crate) arrived: u64,
}

#[derive(Debug, Default)]
struct Times {
    service: Histogram,
    late: Late,
    unexpected: Histogram,
    sending: Histogram,
    waiting: Histogram,
    /// For responses that needed several reads: service time, first byte, receiving.
    split: [Histogram; 3],
    /// For requests that opened their connection: blocked, connecting, TLS.
    fresh: [Histogram; 3],
}

/// Responses whose response time differs from their service time. Both are kept, so that one can replace the other. A
/// closed loop with keep-alive has almost none, which saves recording each time twice.
#[derive(Debug, Default)]
struct Late {
    service: Histogram,
    response: Histogram,
}

impl Late {
    fn record(&mut self, service: u64, response: u64) {
        self.service.record(service);
        self.response.record(response);
    }

    /// All response times, given all service times.
    fn response(&self, all: &Histogram) -> Histogram {
        let mut response = all.without(&self.service);
        response.add(&self.response);
        response
    }

    fn add(&mut self, other: &Self) {
        self.service.add(&other.service);
        self.response.add(&other.response);
    }

    fn clear(&mut self) {
        self.service.clear();
        self.response.clear();
    }
}

/// One target's part.
#[derive(Debug, Default)]
pub(crate) struct TargetTally {
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    pub(crate) unexpected: u64,
    pub(crate) errors: u64,
    /// Responses in the window.
    pub(crate) in_window: u64,
    pub(crate) service: Histogram,
    pub(crate) body_bytes: Option<(u64, u64)>,
    /// Good responses by kind.
    pub(crate) kinds: [u64; AnswerKind::MOST],
    /// With several targets: responses by status and by protocol, and bytes of heads and bodies.
    pub(crate) statuses: Vec<(u16, u64)>,
    pub(crate) protocols: [u64; Protocol::ALL.len()],
    pub(crate) received: (u64, u64),
}

impl TargetTally {
    fn note_work(&mut self, r: &Response) {
        match self.statuses.iter_mut().find(|(status, _)| *status == r.status) {
            Some((_, n)) => *n += 1,
            None => self.statuses.push((r.status, 1)), // limited by the number of statuses
        }
        if let Some(n) = self.protocols.get_mut(r.protocol as usize) {
            *n += 1;
        }
        self.received.0 += r.head_bytes;
        self.received.1 += r.body_bytes;
    }
}

/// One complete exchange. Times are nanoseconds of the run's clock, `intended <= started <= sent`, `first <= done`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) target: usize,
    pub(crate) response: Response,
    pub(crate) intended: u64,
    pub(crate) started: u64,
    pub(crate) sent: u64,
    pub(crate) first: u64,
    pub(crate) done: u64,
    /// Blocked, connecting and TLS, if this request opened the connection.
    pub(crate) dialled: Option<[u64; 3]>,
}

/// One part of a shape: requests by their intended starts.
#[derive(Debug, Default)]
pub(crate) struct PartTally {
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    /// Limited by the number of statuses.
    pub(crate) statuses: Vec<(u16, u64)>,
    pub(crate) grpc: [u64; CODES.len()],
    pub(crate) not_grpc: u64,
    pub(crate) errors: Errors,
    pub(crate) unfinished: u64,
    pub(crate) failed_checks: u64,
    /// Passed and failed, per check.
    pub(crate) checks: Vec<(u64, u64)>,
    pub(crate) service: Histogram,
    pub(crate) response: Histogram,
    pub(crate) start_lag: Histogram,
}

impl PartTally {
    /// Counts check `i`.
    pub(crate) fn count_check(&mut self, i: usize, passes: bool) {
        if let Some((passed, failed)) = self.checks.get_mut(i) {
            *(if passes { passed } else { failed }) += 1;
        }
    }

    fn record(&mut self, s: &Sample) {
        self.responses += 1;
        self.service.record(s.done.saturating_sub(s.started));
        self.response.record(s.done.saturating_sub(s.intended));
        match self.statuses.iter_mut().find(|(status, _)| *status == s.response.status) {
            Some((_, n)) => *n += 1,
            None => self.statuses.push((s.response.status, 1)),
        }
        if let Some(code) = s.response.grpc {
            if let Some(n) = self.grpc.get_mut(code.index()) {
                *n += 1;
            }
            self.not_grpc += u64::from(s.response.is_no_grpc);
        }
    }
}

impl Tally {
    /// `parts` is the number of parts of shapes, and how many checks each counts.
    pub(crate) fn new(targets: usize, checks: usize, (parts, checks_of_parts): (usize, usize)) -> Self {
        Self {
            statuses: vec![0; 600],
            targets: (0..targets).map(|_| TargetTally::default()).collect(),
            checks: vec![(0, 0); checks],
            parts: (0..parts)
                .map(|_| PartTally { checks: vec![(0, 0); checks_of_parts], ..PartTally::default() })
                .collect(),
            ..Self::default()
        }
    }

    /// Counts a request that begins, also in its part of a shape.
    pub(crate) fn began_in(&mut self, part: Option<usize>) {
        self.requests += 1;
        if let Some(part) = part.and_then(|part| self.parts.get_mut(part)) {
            part.requests += 1;
        }
    }

    /// Counts a response, also in its part of a shape.
    #[inline]
    pub(crate) fn record(&mut self, s: &Sample, part: Option<usize>) {
        if let Some(part) = part.and_then(|part| self.parts.get_mut(part)) {
            part.record(s);
        }
        let service = s.done.saturating_sub(s.started);
        self.tick.record(service);
        if s.intended != s.started {
            self.tick_late.record(service, s.done.saturating_sub(s.intended));
        }
        self.times.sending.record(s.sent.saturating_sub(s.started));
        self.times.waiting.record(s.first.saturating_sub(s.sent));
        if s.first != s.done {
            let [all, first, receiving] = &mut self.times.split;
            all.record(service);
            first.record(s.first.saturating_sub(s.started));
            receiving.record(s.done.saturating_sub(s.first));
        }
        match s.dialled {
            None => self.reused += 1,
            Some(times) => self.times.fresh.iter_mut().zip(times).for_each(|(h, t)| h.record(t)),
        }
        let r = &s.response;
        self.responses += 1;
        self.last_response = s.done;
        self.kept_alive += u64::from(r.keeps);
        if let Some(n) = self.protocols.get_mut(r.protocol as usize) {
            *n += 1;
        }
        if let Some(n) = self.statuses.get_mut(usize::from(r.status)) {
            *n += 1;
        }
        self.received(r);
        if let Some(code) = r.grpc {
            if let Some(n) = self.grpc.get_mut(code.index()) {
                *n += 1;
            }
            self.not_grpc += u64::from(r.is_no_grpc);
            self.messages += r.messages;
        }
        let expected = r.is_expected();
        if !expected {
            self.unexpected += 1;
            self.times.unexpected.record(service);
        }
        let alone = self.targets.len() == 1;
        if let Some(t) = self.targets.get_mut(s.target) {
            t.responses += 1;
            t.unexpected += u64::from(!expected);
            if !alone {
                t.service.record(service);
                t.note_work(r);
            }
            if r.is_good() {
                if let Some(n) = t.kinds.get_mut(usize::from(r.maker)) {
                    *n += 1;
                }
                let n = r.body_bytes;
                t.body_bytes = Some(t.body_bytes.map_or((n, n), |(low, high)| (low.min(n), high.max(n))));
            }
        }
    }

    /// Records the times of a response to a request that began as intended, on a connection that was open, and that
    /// arrived in one piece. Everything else about it comes with [`Tally::add_repeats`].
    #[inline]
    pub(crate) fn record_repeat(&mut self, started: u64, sent: u64, done: u64) {
        let service = done.saturating_sub(started);
        self.tick.record(service);
        self.times.sending.record(sent.saturating_sub(started));
        self.times.waiting.record(done.saturating_sub(sent));
        self.last_response = done;
        self.busy_ns += service;
    }

    /// Counts `begun` requests to the only target, and `answered` responses that all equal `r` and whose times are
    /// recorded. `request` is what a request takes: head and body.
    pub(crate) fn add_repeats(&mut self, begun: u64, answered: u64, r: &Response, request: (u64, u64)) {
        self.requests += begun;
        self.responses += answered;
        self.arrived += answered;
        self.reused += answered;
        self.kept_alive += answered;
        self.window.responses += answered;
        self.window.received += answered * r.wire_bytes();
        self.window.sent += answered * (request.0 + request.1);
        self.bytes.sent_head += answered * request.0;
        self.bytes.sent_body += answered * request.1;
        self.bytes.received_head += answered * r.head_bytes;
        self.bytes.received_body += answered * r.body_bytes;
        if let Some(n) = self.protocols.get_mut(r.protocol as usize) {
            *n += answered;
        }
        if let Some(n) = self.statuses.get_mut(usize::from(r.status)) {
            *n += answered;
        }
        let Some(t) = self.targets.first_mut() else { return };
        t.requests += begun;
        t.responses += answered;
        t.in_window += answered;
        if answered > 0 {
            if let Some(n) = t.kinds.get_mut(usize::from(r.maker)) {
                *n += answered;
            }
            let n = r.body_bytes;
            t.body_bytes = Some(t.body_bytes.map_or((n, n), |(low, high)| (low.min(n), high.max(n))));
        }
    }

    pub(crate) const fn received(&mut self, r: &Response) {
        self.bytes.received_head += r.head_bytes;
        self.bytes.received_body += r.body_bytes;
        self.bytes.received_framing += r.framing_bytes;
    }

    pub(crate) fn error_text(&mut self, text: &str) {
        let known = self.error_texts.len() < TEXTS_MOST || self.error_texts.contains_key(text);
        *self.error_texts.entry(if known { text } else { "…" }.to_owned()).or_default() += 1;
    }

    /// Ends a tick; returns its service and response times.
    pub(crate) fn take_tick(&mut self) -> (Histogram, Histogram) {
        let service = self.tick.clone();
        let response = self.tick_late.response(&service);
        self.times.service.add(&self.tick);
        self.times.late.add(&self.tick_late);
        self.tick.clear();
        self.tick_late.clear();
        (service, response)
    }

    /// The latencies and phases of all ticks. Call [`Tally::take_tick`] first.
    pub(crate) fn times(&self) -> (Latency, Phases) {
        let t = &self.times;
        let [split_service, split_first, receiving] = &t.split;
        let mut first_byte = t.service.without(split_service);
        first_byte.add(split_first);
        let with_zeros = |h: &Histogram| {
            let mut all = h.clone();
            all.record_n(0, self.responses.saturating_sub(h.count()));
            all
        };
        let latency = Latency {
            response: t.late.response(&t.service),
            service: t.service.clone(),
            service_unexpected: t.unexpected.clone(),
            first_byte,
        };
        let [blocked, connecting, tls] = &t.fresh;
        let phases = Phases {
            blocked: with_zeros(blocked),
            dns: with_zeros(&Histogram::new()),
            connecting: with_zeros(connecting),
            tls: with_zeros(tls),
            sending: t.sending.clone(),
            waiting: t.waiting.clone(),
            receiving: with_zeros(receiving),
        };
        (latency, phases)
    }
}

/// The counts of WebSocket sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionTally {
    pub(crate) connecting: Histogram,
    pub(crate) handshake: Histogram,
    pub(crate) duration: Histogram,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) unsolicited: u64,
    pub(crate) pings: u64,
    pub(crate) closed: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(intended: u64, started: u64, first: u64, done: u64) -> Sample {
        let response = Response { status: 200, body_bytes: 5, ..Response::default() };
        Sample { target: 0, response, intended, started, sent: started + 10, first, done, dialled: None }
    }

    #[test]
    fn each_response_has_one_value_in_each_histogram() {
        let mut tally = Tally::new(1, 0, (0, 0));
        tally.record(&sample(100, 100, 300, 300), None);
        tally.record(&Sample { dialled: Some([50, 30, 20]), ..sample(50, 100, 300, 500) }, None);
        let (tick_service, tick_response) = tally.take_tick();
        tally.record(&sample(0, 1000, 1100, 1100), None);
        let _ = tally.take_tick();
        assert_eq!((tick_service.count(), tick_service.sum()), (2, 600));
        assert_eq!((tick_response.count(), tick_response.sum()), (2, 650));
        let (latency, phases) = tally.times();
        let sums = [
            (&latency.service, 200 + 400 + 100),
            (&latency.response, 200 + 450 + 1100),
            (&latency.first_byte, 200 + 200 + 100),
            (&phases.blocked, 50),
            (&phases.connecting, 30),
            (&phases.tls, 20),
            (&phases.sending, 30),
            (&phases.waiting, 190 + 190 + 90),
            (&phases.receiving, 200),
            (&phases.dns, 0),
        ];
        for (i, (histogram, sum)) in sums.into_iter().enumerate() {
            assert_eq!((histogram.count(), histogram.sum()), (3, sum), "histogram {i}");
        }
        assert_eq!((tally.reused, tally.targets[0].body_bytes), (2, Some((5, 5))));
    }

    #[test]
    fn texts_of_errors_are_limited() {
        let mut tally = Tally::new(1, 0, (0, 0));
        (0..100).for_each(|i| tally.error_text(&format!("error {i}")));
        tally.error_text("error 3");
        assert_eq!(
            (tally.error_texts.len(), tally.error_texts["…"], tally.error_texts["error 3"]),
            (33, 68, 2)
        );
    }
}
