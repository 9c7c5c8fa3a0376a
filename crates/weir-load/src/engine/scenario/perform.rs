//! Sends one request and reads its answer, on a connection of the user or the thread, and counts what became of it.

use super::crew::{Crew, Job, Pool};
use super::h1::{self, Conn, Times, Wanted};
use crate::clock::{self, NEVER};
use crate::engine::tally::Sample;
use crate::transport::failure::Failure;
use crate::transport::reader::Response;

/// The slots of a request: `lane` has its deadline, `user` counts its response.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub(super) lane: usize,
    pub(super) user: usize,
}

/// Sends the job's request; its answer is in the job afterwards.
pub(super) async fn perform(crew: &Crew, slots: Slots, pool: &Pool, job: &mut Job) -> Result<(), Failure> {
    let worker = &crew.worker;
    let (Some(lane), Some(user)) = (worker.slots.get(slots.lane), worker.slots.get(slots.user)) else {
        return Err(Failure::Cut);
    };
    lane.end.set(None);
    let turned = worker.clock.now();
    worker.begun(1, turned);
    let counts = worker.counts(job.ready);
    if counts {
        worker.tally.borrow_mut().requests += 1;
        crew.tally.borrow_mut().begun(job.row);
    }
    (job.answer.response, job.times) = (Response::default(), Times::default());
    let outcome = attempt(crew, slots.lane, pool, job, turned).await;
    lane.deadline.set(NEVER);
    let now = if outcome.is_ok() { job.times.done } else { worker.clock.now() };
    let measured = turned.max(worker.shared.measure_from);
    worker.tally.borrow_mut().busy_ns += now.saturating_sub(measured);
    let (head, body) = (job.head_bytes as u64, (job.bytes.len() - job.head_bytes) as u64);
    match outcome {
        Ok(dialled) => {
            worker.sent(counts, head, body, now);
            let Times { started, sent, first, done } = job.times;
            let response = job.answer.response;
            let sample =
                Sample { target: 0, response, intended: job.ready, started, sent, first, done, dialled };
            worker.answered(user, &sample, &[], None);
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
            worker.lost(&[(0, job.ready)], &failure, now);
            if counts {
                let received = job.answer.response.wire_bytes();
                crew.tally.borrow_mut().lost(job.row, &failure, head + body, received);
            }
            Err(failure)
        }
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
    let wanted = job.wanted.unwrap_or(Wanted { is_head: false, body_most: 0 });
    h1::exchange(&mut conn, worker, place, &job.bytes, wanted, &mut job.answer, &mut job.times).await?;
    let dialled = conn.dialled.take();
    if job.answer.response.keeps {
        pool.put(job.origin, conn);
    } else {
        worker.close(conn.stream);
    }
    Ok(dialled)
}
