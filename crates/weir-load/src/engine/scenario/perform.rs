//! Sends one request and reads its answer, on a connection of the user or the thread, and counts what became of it.

use super::crew::{Crew, Job, Pool};
use super::h1::{self, Conn, Times};
use super::h2::{Fate, Link};
use super::websocket::Talk;
use crate::clock::{self, NEVER};
use crate::engine::tally::Sample;
use crate::grpc::Code;
use crate::transport::failure::Failure;
use crate::transport::h2::request::Version;
use crate::transport::reader::Response;
use crate::transport::wire::Wire;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use weir_plan::Kind;
use weir_report::report::CallKind;

/// The slots of a request: `lane` has its deadline, `user` counts its response.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub(super) lane: usize,
    pub(super) user: usize,
    /// The user's group.
    pub(super) group: usize,
}

/// Sends the job's request; its answer is in the job afterwards. `talk` is of a WebSocket step.
pub(super) async fn perform(
    crew: &Crew,
    slots: Slots,
    pool: &Pool,
    talk: Option<Talk<'_>>,
    job: &mut Job,
) -> Result<(), Failure> {
    let worker = &crew.worker;
    let (Some(lane), Some(user)) = (worker.slots.get(slots.lane), worker.slots.get(slots.user)) else {
        return Err(Failure::Cut);
    };
    lane.end.set(None);
    if crew.has_turns() {
        // In a box: the users of a load, who have no turns, do not carry a timer for it.
        job.ready = job.ready.max(Box::pin(crew.turn()).await);
    }
    let turned = worker.clock.now();
    worker.begun(1, turned);
    let counts = worker.counts(job.ready);
    let part = crew.part(slots.group, job.ready);
    if counts {
        worker.tally.borrow_mut().began_in(part);
        crew.tally.borrow_mut().begun(job.row);
    }
    (job.answer.response, job.times) = (Response::default(), Times::default());
    job.wire = job.head_bytes as u64;
    job.is_stream = false;
    let outcome = match (talk, job.kind) {
        (Some(talk), _) => talk.exchange(crew, slots.lane, job, turned).await,
        (None, Some(Kind::Grpc)) => on_stream(crew, slots.lane, pool, job, turned).await,
        _ if worker.plan.is_multiplexed() => on_stream(crew, slots.lane, pool, job, turned).await,
        _ => attempt(crew, slots.lane, pool, job, turned).await,
    };
    lane.deadline.set(NEVER);
    let now = if outcome.is_ok() { job.times.done } else { worker.clock.now() };
    let measured = turned.max(worker.shared.measure_from);
    worker.tally.borrow_mut().busy_ns += now.saturating_sub(measured);
    let (head, body) = (job.wire, (job.bytes.len() - job.head_bytes) as u64);
    match outcome {
        Ok(dialled) => {
            worker.sent(counts, head, body, now);
            let Times { started, sent, first, done } = job.times;
            let response = job.answer.response;
            let sample =
                Sample { target: 0, response, intended: job.ready, started, sent, first, done, dialled };
            worker.answered_in(part, user, &sample, &[], job.call_text.as_deref());
            if counts {
                let in_window = done <= worker.stop_at();
                let time = done.saturating_sub(job.ready);
                crew.tally.borrow_mut().answered(job.row, &response, time, head + body, in_window);
            }
            Ok(())
        }
        Err(failure) => {
            let was_sent = job.times.started > 0;
            let (head, body) = if was_sent { (head, body) } else { (0, 0) };
            worker.sent(counts, head, body, now);
            worker.received(job.ready, &job.answer.response, now);
            worker.lost_in(part, job.ready, &failure, now);
            if counts {
                let received = job.answer.response.wire_bytes();
                crew.tally.borrow_mut().lost(job.row, &failure, head + body, received);
            }
            Err(failure)
        }
    }
}

/// How often a request is sent again after the target refused it, or closed the connection, without processing it.
const AGAIN_MOST: usize = 3;

/// Streams of a user's QUIC connection that are opened ahead of its requests at once.
#[cfg(feature = "http3")]
const AT_ONCE: usize = 8;

/// Sends the request over HTTP/3 if the plan says so and it is no call; else over HTTP/2, or over HTTP/1.1 if the
/// target chose that.
async fn on_stream(
    crew: &Crew,
    slot: usize,
    pool: &Pool,
    job: &mut Job,
    turned: u64,
) -> Result<Option<[u64; 3]>, Failure> {
    let worker = &crew.worker;
    let Some(place) = worker.slots.get(slot) else { return Err(Failure::Cut) };
    let is_shared = std::ptr::eq(pool, Rc::as_ptr(&crew.pool));
    let scheme =
        if worker.plan.origins.get(job.origin).is_some_and(|o| o.tls.is_some()) { "https" } else { "http" };
    let wanted = job.wanted.unwrap_or_default();
    let is_call = job.kind == Some(Kind::Grpc);
    let mut tries = 0;
    while tries <= AGAIN_MOST {
        // Another request of this user may have found out while this one waited for it.
        if crew.old.borrow().contains(&job.origin) {
            return attempt(crew, slot, pool, job, turned).await;
        }
        let link = match pool.link(job.origin, worker, is_shared) {
            Some(link) => link,
            None => {
                if !is_shared && let Some(dial) = pool.dials(job.origin) {
                    // The futures of a user's requests at once are polled together.
                    poll_fn(|_| if dial.is_over.get() { Poll::Ready(()) } else { Poll::Pending }).await;
                    if let Some(failure) = dial.failure.borrow().clone() {
                        return Err(failure);
                    }
                    continue;
                }
                let has_dialled = |failure: Option<&Failure>| {
                    if !is_shared {
                        pool.has_dialled(job.origin, failure);
                        place.wake(); // those that wait are futures of this task, and may have been polled before
                    }
                };
                let most = crew.journey.plan.body_limit;
                let link = match worker.plan.is_h3() && !is_call {
                    #[cfg(feature = "http3")]
                    true => {
                        let dialled = worker.dial_quic(job.origin, slot, job.timeout).await;
                        has_dialled(dialled.as_ref().err());
                        let (quic, times) = dialled?;
                        let wire = |counter| Wire::h3(quic, counter, AT_ONCE);
                        Link::new(wire, Version::H3, most, is_call, times)
                    }
                    _ => {
                        let dialled = worker.dial_to(job.origin, slot, job.timeout).await;
                        has_dialled(dialled.as_ref().err());
                        let (stream, times) = dialled?;
                        if stream.tls().is_some() && !stream.chose_h2() && is_call {
                            return Err(Failure::Connect(weir_report::verdict::CHOSE_OLD.to_owned()));
                        }
                        if stream.tls().is_some() && !stream.chose_h2() {
                            crew.old.borrow_mut().insert(job.origin);
                            pool.put(job.origin, Conn { stream, dialled: Some(times) });
                            return attempt(crew, slot, pool, job, turned).await;
                        }
                        let wire = |counter| Wire::h2(stream, counter);
                        Link::new(wire, Version::H2, most, is_call, times)
                    }
                };
                let link = Rc::new(link);
                if !is_shared {
                    pool.put_link(job.origin, Rc::clone(&link));
                }
                link
            }
        };
        tries += 1;
        job.is_stream = true;
        let is_fresh = link.dialled.get().is_some();
        job.times = Times { started: if is_fresh { worker.clock.now() } else { turned }, ..Times::default() };
        place.deadline.set(job.times.started.saturating_add(clock::nanos(job.timeout)));
        match link.exchange(worker, place, scheme, wanted, job).await? {
            Fate::Again => {}
            Fate::Answered => {
                let dialled = link.dialled.take();
                if is_shared {
                    pool.put_link(job.origin, link);
                }
                one_message(crew, job);
                return Ok(dialled);
            }
        }
    }
    let text = "the target repeatedly refused the request or closed the connection without processing it";
    Err(Failure::Reset(text.to_owned()))
}

/// A call whose answer is one message fails with another number of them, in the words of grpc-go.
fn one_message(crew: &Crew, job: &mut Job) {
    let Some(method) = crew.journey.method(job.row).filter(|_| job.kind == Some(Kind::Grpc)) else { return };
    let is_one = matches!(method.call.kind(), CallKind::ClientStreaming | CallKind::Unary);
    let response = &mut job.answer.response;
    if is_one && response.grpc == Some(Code::OK) && response.messages != 1 {
        response.grpc = Some(Code::INTERNAL);
        job.call_text = Some("cardinality violation: one message was to come".into());
    }
}

/// Returns the times of the connection, if this request opened it.
async fn attempt(
    crew: &Crew,
    slot: usize,
    pool: &Pool,
    job: &mut Job,
    turned: u64,
) -> Result<Option<[u64; 3]>, Failure> {
    let worker = &crew.worker;
    let mut conn = match pool.take(job.origin) {
        Some(conn) => conn,
        None => {
            let (stream, times) = worker.dial_to(job.origin, slot, job.timeout).await?;
            Conn { stream, dialled: Some(times) }
        }
    };
    let Some(place) = worker.slots.get(slot) else { return Err(Failure::Cut) };
    job.times.started = if conn.dialled.is_some() { worker.clock.now() } else { turned };
    place.deadline.set(job.times.started.saturating_add(clock::nanos(job.timeout)));
    let wanted = job.wanted.unwrap_or_default();
    h1::exchange(&mut conn, worker, place, &job.bytes, wanted, &mut job.answer, &mut job.times).await?;
    let dialled = conn.dialled.take();
    if job.answer.response.keeps {
        pool.put(job.origin, conn);
    } else {
        worker.close(conn.stream);
    }
    Ok(dialled)
}
