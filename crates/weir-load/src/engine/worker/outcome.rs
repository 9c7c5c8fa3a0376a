//! Counts the outcomes of requests: in flight, answered, failed.

use super::{Slot, Worker};
use crate::engine::tally::{SILENCE_NS, Sample};
use crate::grpc::Code;
use crate::transport::failure::Failure;
use crate::transport::reader::Response;
use weir_report::report::{CallKind, Errors};

impl Worker {
    /// `n` requests began.
    pub(crate) fn begun(&self, n: u64, now: u64) {
        if self.in_flight.replace(self.in_flight.get() + n) == 0 && self.in_backoff.get() == 0 {
            self.waiting_since.set(now);
            if !self.is_failing.get() {
                self.last_event.set(now);
            }
        }
    }

    /// Whether any client waits, for a response or in backoff.
    pub(crate) fn is_waiting(&self) -> bool {
        self.in_flight.get() + self.in_backoff.get() > 0
    }

    /// Whether a response that is complete at `now` is too late. The sampler only ends timed-out requests when it
    /// wakes.
    pub(crate) const fn is_late(slot: &Slot, now: u64) -> bool {
        now > slot.deadline.get()
    }

    /// Whether a request that finishes now is part of the rates. Unlike for the counts, it does not matter when it
    /// began.
    fn is_rated(&self, at: u64) -> bool {
        at >= self.shared.measure_from && at <= self.stop_at()
    }

    /// Counts bytes of requests, head and body; `counts` says whether these requests count, `at` is when they
    /// finished.
    pub(crate) fn sent(&self, counts: bool, head: u64, body: u64, at: u64) {
        let mut tally = self.tally.borrow_mut();
        if counts {
            tally.bytes.sent_head += head;
            tally.bytes.sent_body += body;
        }
        if self.is_rated(at) {
            tally.window.sent += head + body;
        }
    }

    /// Counts the received bytes of an incomplete response. Its request had this intended start and ended `at`.
    pub(crate) fn received(&self, intended: u64, response: &Response, at: u64) {
        let mut tally = self.tally.borrow_mut();
        if self.counts(intended) {
            tally.received(response);
        }
        if self.is_rated(at) {
            tally.window.received += response.wire_bytes();
        }
    }

    /// Counts a complete response. `body` is the part that checks need, `text` the gRPC error text.
    pub(crate) fn answered(&self, slot: &Slot, sample: &Sample, body: &[u8], text: Option<&str>) {
        self.answered_in(self.part_of(sample.intended), slot, sample, body, text);
    }

    /// The same, with the part of a shape.
    pub(crate) fn answered_in(
        &self,
        part: Option<usize>,
        slot: &Slot,
        sample: &Sample,
        body: &[u8],
        text: Option<&str>,
    ) {
        self.ended(1, true, sample.done);
        let response = &sample.response;
        let mut tally = self.tally.borrow_mut();
        if sample.done >= self.shared.measure_from {
            tally.arrived += 1;
        }
        if self.is_rated(sample.done) {
            tally.window.responses += 1;
            tally.window.received += response.wire_bytes();
            if let Some(target) = tally.targets.get_mut(sample.target) {
                target.in_window += 1;
            }
        }
        if !self.counts(sample.intended) {
            return;
        }
        slot.responses.set(slot.responses.get() + 1);
        tally.record(sample, part);
        if let Some(code) = response.grpc.filter(|code| *code != Code::OK) {
            let text = text.unwrap_or_default();
            let text = self.plan.masked(text);
            tally.error_text(&format!("rpc error: code = {} desc = {text}", code.name())); // as in grpc-go and ghz
        }
        if let (Some(feed), Some(held)) = (&self.feed, slot.held.take()) {
            let took_ns = sample.done.saturating_sub(sample.started);
            let late_ns = sample.started.saturating_sub(sample.intended);
            feed.answered(&held, late_ns, response.status, response.body_bytes, took_ns);
        } else if response.is_good()
            && let Some(document) = self.shared.documents.get(sample.target)
            && *document.get_or_init(|| response.body_bytes) != response.body_bytes
        {
            tally.other_length += 1;
        }
        let mut good = true;
        // Checks see messages as JSON.
        let call = self.plan.targets.get(sample.target).and_then(|t| t.call.as_ref());
        let json = call.filter(|_| self.plan.keeps_bodies()).map(|c| c.json(body).unwrap_or_default());
        let body = json.as_deref().unwrap_or(body);
        let tally = &mut *tally;
        let mut of_part = part.and_then(|part| tally.parts.get_mut(part));
        for (i, (check, counts)) in self.plan.checks.iter().zip(&mut tally.checks).enumerate() {
            let passes = check.passes(response.status, response.grpc, body, response.body_bytes);
            *(if passes { &mut counts.0 } else { &mut counts.1 }) += 1;
            if let Some(counts) = of_part.as_deref_mut().and_then(|part| part.checks.get_mut(i)) {
                *(if passes { &mut counts.0 } else { &mut counts.1 }) += 1;
            }
            good &= passes;
        }
        tally.failed_checks += u64::from(!good);
        if let Some(part) = of_part {
            part.failed_checks += u64::from(!good);
        }
    }

    /// The error, in the words of grpc-go, if a successful call has the wrong number of messages.
    pub(crate) fn wrong_count(&self, target: usize, response: &Response) -> Option<&'static str> {
        let call = self.plan.targets.get(target)?.call.as_ref()?;
        let one = matches!(call.kind(), CallKind::ClientStreaming | CallKind::Unary);
        let wrong = one && response.grpc == Some(Code::OK) && response.messages != 1;
        wrong.then_some("cardinality violation: one message was to come")
    }

    /// `n` requests ended; `answered` if by a response.
    pub(crate) fn ended(&self, n: u64, answered: bool, now: u64) {
        if answered {
            let silence = self.note_silence(now, self.is_failing.replace(false));
            if silence >= SILENCE_NS {
                self.tally.borrow_mut().silences.record(silence);
            }
            self.last_event.set(now);
        }
        self.in_flight.set(self.in_flight.get().saturating_sub(n));
    }

    /// A response arrived, and the client sends again at once: as [`Worker::ended`] and [`Worker::begun`] together.
    #[inline]
    pub(crate) fn note_response(&self, now: u64) {
        let silence = now.saturating_sub(self.last_event.get().max(self.shared.measure_from));
        let longest = self.tally.borrow().longest_silence_ns.min(SILENCE_NS - 1);
        if self.is_failing.get() || silence > longest {
            self.ended(0, true, now);
        } else {
            self.last_event.set(now);
        }
    }

    /// Records how long no response has arrived. `is_apart` says that there were failures. If the plan then paused,
    /// the silence is not that of the current request, which may have begun after it.
    pub(crate) fn note_silence(&self, now: u64, is_apart: bool) -> u64 {
        let waiting_since = if is_apart { self.waiting_since.get() } else { 0 };
        let since = self.last_event.get().max(waiting_since).max(self.shared.measure_from);
        let silence = now.saturating_sub(since);
        // The generator's own pauses are not the target's silence.
        let silence = match silence >= SILENCE_NS {
            true => silence.saturating_sub(self.shared.pulse.paused(since, now)),
            false => silence,
        };
        let mut tally = self.tally.borrow_mut();
        tally.longest_silence_ns = tally.longest_silence_ns.max(silence);
        silence
    }

    /// Counts requests without a response, each with its target and its intended start.
    pub(crate) fn lost(&self, lost: &[(usize, u64)], failure: &Failure, now: u64) {
        self.note_lost(lost.len() as u64, failure, now);
        for &(target, intended) in lost.iter().filter(|(_, intended)| self.counts(*intended)) {
            self.failed(target, self.part_of(intended), failure);
        }
    }

    /// Counts one of a scenario, with its intended start and the part of a shape.
    pub(crate) fn lost_in(&self, part: Option<usize>, intended: u64, failure: &Failure, now: u64) {
        self.note_lost(1, failure, now);
        if self.counts(intended) {
            self.failed(0, part, failure);
        }
    }

    fn note_lost(&self, n: u64, failure: &Failure, now: u64) {
        self.ended(n, false, now);
        if *failure != Failure::Cut {
            self.is_failing.set(true);
            self.note_silence(now, false); // no response came between two failures
        }
        if *failure != Failure::Cut && self.is_rated(now) {
            self.tally.borrow_mut().window.errors += n;
        }
    }

    /// `part` is that of a shape.
    fn failed(&self, target: usize, part: Option<usize>, failure: &Failure) {
        let tally = &mut *self.tally.borrow_mut();
        let part = part.and_then(|part| tally.parts.get_mut(part));
        if *failure == Failure::Cut {
            tally.unfinished += 1;
            if let Some(part) = part {
                part.unfinished += 1;
            }
            return;
        }
        if let Some(t) = tally.targets.get_mut(target) {
            t.errors += 1;
        }
        if let Some(kind) = part.and_then(|part| kind_of(&mut part.errors, failure)) {
            *kind += 1;
        }
        let Some(kind) = kind_of(&mut tally.errors, failure) else { return };
        *kind += 1;
        let text = match failure {
            Failure::Connect(text)
            | Failure::Descriptors(text)
            | Failure::Ports(text)
            | Failure::Protocol(text)
            | Failure::Reset(text)
            | Failure::Tls(text)
            | Failure::Write(text) => text.as_str(),
            Failure::Timeout(wait) => wait.text(),
            Failure::Cut => return,
        };
        match failure {
            Failure::Ports(_) => tally.out_of_ports += 1,
            Failure::Descriptors(_) => tally.out_of_descriptors += 1,
            _ => {}
        }
        tally.error_text(&self.plan.masked(text));
    }
}

/// The count of this kind of failure; none if it is no error.
const fn kind_of<'a>(e: &'a mut Errors, failure: &Failure) -> Option<&'a mut u64> {
    Some(match failure {
        Failure::Connect(_) | Failure::Descriptors(_) | Failure::Ports(_) => &mut e.connect,
        Failure::Protocol(_) => &mut e.protocol,
        Failure::Reset(_) => &mut e.reset,
        Failure::Timeout(_) => &mut e.timeout,
        Failure::Tls(_) => &mut e.tls,
        Failure::Write(_) => &mut e.write,
        Failure::Cut => return None,
    })
}
