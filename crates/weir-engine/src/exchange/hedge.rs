//! Phase 4 for an upstream with `hedge`: a second attempt beside a slow one.
//!
//! ```text
//!   sent ──── after ────┬─ first: its answer wins, the second is dropped
//!                       └─ second, at another endpoint: its answer wins, the first is dropped
//! ```
//! Only for requests that may arrive twice, were sent whole, and are still fully buffered. A bad answer does not win
//! while the other attempt may bring a better one. The loser counts as canceled and appears in the log.

use super::bodies::Watchers;
use super::retry_facts::is_well;
use super::script::write_whole;
use super::sent::{Sent, Written};
use super::upload::{Failure, Waits, await_head};
use super::{Exchange, Routed, unless};
use crate::autopsy::kept::Outcome as Ended;
use crate::call::cause_of;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_h1::{BodyKind, ResponseHead};
use weir_telemetry::Attempt as Outcome;
use weir_upstream::error::{self, Cause};
use weir_upstream::talk;
use weir_upstream::upstream::{
    Active, Attempts, Connection, Hedge, LocalUpstream, Measurement, Wanted, complain, connect,
};
use weir_wire::time;

/// The first attempt. The winner is stored here.
pub(super) struct First<'a> {
    pub(super) active: &'a mut Active,
    pub(super) sent: &'a mut Sent,
    pub(super) slot: &'a mut Option<Box<ResponseHead>>,
    pub(super) measured: &'a mut Option<Measurement>,
    pub(super) wait: Waits<'a>,
    /// When it began.
    pub(super) began: Instant,
}

/// What the filters' hooks know of a running attempt.
type Shown = Option<(Instant, u32, Arc<str>, Arc<str>)>;

/// The second attempt.
struct Second {
    active: Active,
    began: Instant,
    measured: Option<Measurement>,
    /// The first attempt, hidden from the hooks meanwhile.
    first: Shown,
}

/// How the losing attempt ended.
enum Lost {
    /// It was dropped.
    Canceled,
    Failed(&'static Cause),
    /// It got a bad answer: this status, after this time.
    Unwell(u16, Duration),
}

/// The answer to the second attempt, and its connection.
type Answer = (Connection, Result<Box<ResponseHead>, &'static Cause>);

/// The running second attempt.
type Asking = Pin<Box<dyn Future<Output = Answer>>>;

/// Which of the two answered first.
enum Won {
    First(Result<(), Failure>),
    Second(Answer),
}

impl Exchange<'_> {
    /// Whether the request may be sent twice. An upgrade may not: its answer takes over the connection.
    pub(super) fn may_hedge(&self) -> bool {
        self.head.method().is_idempotent() && self.head.upgrade().is_none()
    }

    /// Waits for a response head as [`await_head`] does. If none comes in time, asks another endpoint too.
    pub(super) async fn await_hedged(
        &mut self,
        routed: Routed,
        upstream: &Rc<LocalUpstream>,
        attempts: &mut Attempts,
        hedge: &Hedge,
        mut first: First<'_>,
    ) -> Result<(), Failure> {
        tokio::select! {
            biased;
            done = self.await_first(&mut first) => return done,
            () = time::sleep(hedge.after) => {}
        }
        let whole = first.sent.upload.is_done()
            && !first.sent.upload.heard
            && first.sent.connection.relay.is_repeatable();
        if !whole {
            return self.await_first(&mut first).await;
        }
        first.wait.fix(first.sent.upload.ended);
        let Some(active) = attempts.hedge(upstream, first.active) else {
            return self.await_first(&mut first).await;
        };
        let Some(second) = self.begin_second(upstream, active).await else {
            return self.await_first(&mut first).await;
        };
        self.race(routed, upstream, attempts, first, second).await
    }

    async fn await_first(&mut self, first: &mut First<'_>) -> Result<(), Failure> {
        let First { sent, slot, wait, .. } = first;
        let watchers = Watchers { local: &self.local, ran: &self.ran, cx: self.cx.as_mut() };
        await_head(self.client, sent, slot, watchers, wait, Instant::now()).await
    }

    /// Shows the second attempt to the filters. A filter that refuses it refuses only this attempt.
    async fn begin_second(&mut self, upstream: &LocalUpstream, active: Active) -> Option<Second> {
        let shown = self.swap_shown(None);
        self.attempts += 1;
        upstream.cells.hedges.inc();
        let began = Instant::now();
        let measured = active.measure(|| began, true);
        let second = Second { active, began, measured, first: shown };
        if self.record.trace.is_some() {
            self.trace_attempt(upstream, &second.active, began);
        }
        let begun = match self.attempt_begins(upstream, second.active.get(), began) {
            Ok(true) => self.attempt_waits(upstream, second.active.get()).await,
            Ok(false) => Ok(()),
            Err(stop) => Err(stop),
        };
        if begun.is_err() {
            self.attempts -= 1;
            if let Some(trace) = &mut self.record.trace {
                trace.attempt_avoided(began);
            }
            self.swap_shown(second.first);
            return None;
        }
        Some(second)
    }

    /// Runs both attempts until one has won.
    async fn race(
        &mut self,
        routed: Routed,
        upstream: &Rc<LocalUpstream>,
        attempts: &mut Attempts,
        mut first: First<'_>,
        mut second: Second,
    ) -> Result<(), Failure> {
        let owner = upstream.spec.way.proxy_protocol.and_then(|_| self.client.owner().cloned());
        let end = self.end(routed, upstream.spec.timeouts.exchange);
        let wanted = Wanted { end, owner, ..attempts.wanted(false) };
        let connected = tokio::select! {
            biased;
            done = self.await_first(&mut first) => {
                self.second_lost(upstream, second, Lost::Canceled);
                return done;
            }
            connected = connect(upstream, &mut second.active, wanted) => connected,
        };
        let connection = match connected {
            Ok(connected) => connected.connection,
            Err(e) => {
                if let Some(outcome) = e.outcome {
                    upstream.cells.attempt(outcome);
                }
                self.end_second(second, e.cause);
                return self.await_first(&mut first).await;
            }
        };
        let Some(mut asking) =
            self.ask_again(routed, upstream, &second.active, connection, &first.sent.connection)
        else {
            self.second_lost(upstream, second, Lost::Canceled);
            return self.await_first(&mut first).await;
        };
        attempts.hedged();
        let won = tokio::select! {
            biased;
            done = self.await_first(&mut first) => Won::First(done),
            answer = &mut asking => Won::Second(answer),
        };
        match won {
            Won::Second(answer) => match self.good(answer, second.began) {
                Ok((connection, head)) => {
                    self.overtake(upstream, first, second, (connection, head), Lost::Canceled);
                    Ok(())
                }
                Err(lost) => {
                    self.second_lost(upstream, second, lost);
                    self.await_first(&mut first).await
                }
            },
            Won::First(done) => {
                let Some(lost) = self.unwell(&done, &first) else {
                    drop(asking);
                    self.second_lost(upstream, second, Lost::Canceled);
                    return done;
                };
                match unless(self.client, Pin::new(&mut asking), first.sent.upload.departure).await {
                    Err(stop) => {
                        self.second_lost(upstream, second, Lost::Canceled);
                        Err(Failure::Client(stop))
                    }
                    Ok(answer) => match self.good(answer, second.began) {
                        Ok(answer) => {
                            self.overtake(upstream, first, second, answer, lost);
                            Ok(())
                        }
                        Err(also) => {
                            self.second_lost(upstream, second, also);
                            done
                        }
                    },
                }
            }
        }
    }

    /// The request for another endpoint. `None` if that is impossible: it would need other framing, or has separate
    /// trailers. `before` is what the first attempt sent.
    fn ask_again(
        &mut self,
        routed: Routed,
        upstream: &Rc<LocalUpstream>,
        active: &Active,
        mut connection: Connection,
        before: &Connection,
    ) -> Option<Asking> {
        let over_h2 = connection.stream.h2().is_some();
        let framing = self.framing(&connection.stream);
        if self.head.body() != BodyKind::Empty && framing != self.framing(&before.stream) {
            return None;
        }
        let (body, trailers) = before.relay.sent_whole()?;
        if !trailers.is_empty() {
            return None; // HTTP/2 sends them outside the kept bytes
        }
        let body = body.to_vec();
        connection.stream.seal_like(&self.client.stream);
        let Written { mut out, whole } = self.write_request(routed, &upstream.spec, active, framing);
        match whole {
            Some(whole) => write_whole(framing, &whole, &mut out),
            None => out.extend_from_slice(&body),
        }
        if let Some(fastcgi) = connection.stream.fastcgi_mut() {
            fastcgi.begin(self.local.snapshot.head_limits.head_bytes);
        }
        let now = Instant::now();
        let wait = self.waits(routed, &upstream.spec, (now, now), over_h2);
        let limits = self.local.snapshot.head_limits;
        let end = wait.latest(now);
        let core = Rc::clone(&self.client.core);
        Some(Box::pin(async move {
            let asked = async {
                let mut sent = 0;
                talk::send(&mut connection.stream, &out, &mut sent).await?;
                talk::receive_head(&mut connection.stream, &limits).await
            };
            let answer = match end {
                None => asked.await.map_err(cause_of),
                Some((end, cause)) => match time::timeout_at(end, asked).await {
                    Ok(answer) => answer.map_err(cause_of),
                    Err(_) => Err(cause),
                },
            };
            core.give_buffer(out);
            (connection, answer.map(Box::new))
        }))
    }

    /// Whether the answer to the second attempt, which began then, may win.
    fn good(
        &self,
        (connection, answer): Answer,
        began: Instant,
    ) -> Result<(Connection, Box<ResponseHead>), Lost> {
        match answer {
            Ok(head) if is_well(head.status(), &head.headers, self.grpc) => Ok((connection, head)),
            Ok(head) => Err(Lost::Unwell(head.status(), began.elapsed())),
            Err(cause) => Err(Lost::Failed(cause)),
        }
    }

    /// Whether the first attempt ended so badly that the second may bring something better.
    fn unwell(&self, done: &Result<(), Failure>, first: &First<'_>) -> Option<Lost> {
        match (done, first.slot.as_deref()) {
            (Ok(()), Some(head)) if !is_well(head.status(), &head.headers, self.grpc) => {
                let sent = first.sent.upload.ended.unwrap_or(first.wait.began);
                Some(Lost::Unwell(head.status(), sent.elapsed()))
            }
            (Err(Failure::Upstream { cause, .. }), _) => Some(Lost::Failed(cause)),
            _ => None,
        }
    }

    /// The second attempt has won and replaces the first.
    fn overtake(
        &mut self,
        upstream: &LocalUpstream,
        first: First<'_>,
        second: Second,
        (connection, head): (Connection, Box<ResponseHead>),
        lost: Lost,
    ) {
        let First { active, sent, slot, measured, began, .. } = first;
        upstream.cells.hedges_won.inc();
        let shown = self.swap_shown(second.first);
        let loser = std::mem::replace(active, second.active);
        let relay = sent.connection.take_relay();
        drop(std::mem::replace(&mut sent.connection, connection));
        sent.connection.relay = relay;
        let unanswered = std::mem::replace(measured, second.measured);
        self.lost(upstream, &loser, unanswered, began, lost);
        self.swap_shown(shown);
        self.record.endpoint = Some(active.place());
        self.record.attempt = Some(second.began);
        if let Some(late) = slot.replace(head) {
            self.client.core.give_response(late);
        }
        sent.upload.heard = true;
        sent.upload.ended = Some(second.began);
    }

    /// The first attempt continues or has won.
    fn second_lost(&mut self, upstream: &LocalUpstream, second: Second, lost: Lost) {
        let Second { active, began, measured, first } = second;
        self.lost(upstream, &active, measured, began, lost);
        self.swap_shown(first);
    }

    /// Accounts for the losing attempt: the one that the hooks see now.
    fn lost(
        &mut self,
        upstream: &LocalUpstream,
        active: &Active,
        measured: Option<Measurement>,
        began: Instant,
        lost: Lost,
    ) {
        match lost {
            Lost::Canceled => {
                drop(measured); // it took at least this long
                upstream.cells.attempt(Outcome::Canceled);
                self.attempt_ends(0, None);
                self.attempt_failed(active, Ended::Canceled, began);
            }
            Lost::Unwell(status, first_byte) => {
                measured.into_iter().for_each(Measurement::answered);
                upstream.answered(active, status, first_byte, false);
                self.attempt_ends(status, None);
                self.attempt_failed(active, Ended::Status(status), began);
            }
            Lost::Failed(cause) => {
                measured.into_iter().for_each(Measurement::failed);
                upstream.cells.attempt(cause.outcome);
                upstream.note(active, false);
                active.get().cells.fail(self.client.core.cells.cause_index(cause.code), SystemTime::now());
                complain(&upstream.spec.name, &active.get().endpoint.label, cause, &cause.meaning);
                self.attempt_ends(0, Some(cause));
                self.attempt_failed(active, Ended::Cause(cause), began);
            }
        }
    }

    /// The second attempt got no connection; that is already counted.
    fn end_second(&mut self, second: Second, cause: &'static Cause) {
        self.attempt_ends(0, Some(cause));
        self.attempt_failed(&second.active, Ended::Cause(cause), second.began);
        self.swap_shown(second.first);
    }

    /// Shows the hooks another attempt, if any, and returns the previous one.
    fn swap_shown(&mut self, shown: Shown) -> Shown {
        self.cx.as_mut().and_then(|cx| std::mem::replace(&mut cx.attempt, shown))
    }
}

impl Waits<'_> {
    /// Starts the response's timer here, so that polling again does not restart it. `sent` is when the last byte was
    /// written, if that took more than one write.
    fn fix(&mut self, sent: Option<Instant>) {
        self.end = self.latest(sent.unwrap_or(self.began));
        self.response = Duration::ZERO;
    }

    /// Until when to wait for an attempt that was sent at that time.
    fn latest(&self, sent: Instant) -> Option<(Instant, &'static Cause)> {
        let limit = Some(self.response).filter(|limit| !limit.is_zero());
        let own = limit.and_then(|limit| Some((sent.checked_add(limit)?, &error::RESPONSE_TIMEOUT)));
        self.end.into_iter().chain(own).min_by_key(|(at, _)| *at)
    }
}
