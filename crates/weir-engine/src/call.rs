//! What a core does for its filters, above all their own requests to an upstream: one request, its whole answer.
//!
//! Pools, limits and timeouts are the upstream's. The only simplification: an answer is read whole, up to the
//! filter's limit.

use crate::core::{Core, Local};
use crate::open_call::open;
use std::any::Any;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;
use weir_filter::filter::{CallStream, CoreHandle, Job, Services, StreamRequest, Task, Waiting};
use weir_h1::Method;
use weir_telemetry::Attempt as Outcome;
use weir_upstream::error::{self, Cause};
use weir_upstream::talk::{self, After, CallAnswer, CallRequest, render, talk};
use weir_upstream::upstream::{
    Attempts, ConnectError, Connection, Facts, Failed, LocalUpstream, Lost, Measurement, Wanted, connect,
};
use weir_wire::h2::H2Stream;
use weir_wire::time;

/// The handle that gives the filters of a snapshot access to a core.
pub(crate) fn handle(core: &Weak<Core>, local: Weak<Local>) -> CoreHandle {
    CoreHandle::new(Rc::new(Caller { core: Weak::clone(core), local }))
}

/// Reaches the upstreams of a core: those of the snapshot while an exchange runs on it, so that a reload takes no
/// upstream from an exchange; then the current ones, for tasks that outlive it.
struct Caller {
    core: Weak<Core>,
    local: Weak<Local>,
}

impl Caller {
    /// # Errors
    /// There is no such upstream.
    fn find(&self, upstream: &str) -> Result<(Rc<Core>, Rc<LocalUpstream>), &'static Cause> {
        let core = self.core.upgrade().ok_or(&error::NO_ENDPOINT)?;
        let local = self.local.upgrade().unwrap_or_else(|| core.local());
        let found = local.upstreams.iter().find(|known| &*known.spec.name == upstream).map(Rc::clone);
        Ok((core, found.ok_or(&error::NO_ENDPOINT)?))
    }
}

impl Services for Caller {
    fn call<'a>(
        &'a self,
        upstream: &'a str,
        request: CallRequest,
    ) -> Waiting<'a, Result<CallAnswer, &'static Cause>> {
        Box::pin(async move {
            let (core, upstream) = self.find(upstream)?;
            call(&core, &upstream, &request).await
        })
    }

    fn open<'a>(
        &'a self,
        upstream: &'a str,
        request: StreamRequest,
    ) -> Waiting<'a, Result<Box<dyn CallStream>, &'static Cause>> {
        Box::pin(async move {
            let (core, upstream) = self.find(upstream)?;
            let limits = core.head_limits();
            open(&upstream, &request, limits).await
        })
    }

    fn spawn(&self, task: Task) -> bool {
        let Some(core) = self.core.upgrade().filter(|core| core.tasks() < MAX_TASKS) else { return false };
        let running = Running::new(&core);
        drop(tokio::task::spawn_local(async move {
            task.await;
            drop(running);
        }));
        true
    }

    fn block(&self, job: Job) -> bool {
        self.core.upgrade().is_some_and(|core| core.shared.blocking.run(job))
    }

    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        match self.core.upgrade() {
            Some(core) => core.local_state(key, make),
            None => make(), // the core is gone, and the caller soon will be
        }
    }
}

/// Most tasks that filters run beside exchanges on one core.
const MAX_TASKS: usize = 1024;

/// Counts a running task, however it ends.
struct Running(Weak<Core>);

impl Running {
    fn new(core: &Rc<Core>) -> Self {
        core.begin_task();
        Self(Rc::downgrade(core))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.end_task();
        }
    }
}

/// Sends one request within the time that its upstream allows an exchange.
async fn call(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    request: &CallRequest,
) -> Result<CallAnswer, &'static Cause> {
    let limit = Some(upstream.spec.timeouts.exchange).filter(|limit| !limit.is_zero());
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    let attempts = attempts(core, upstream, request, end);
    let Some(end) = end else { return attempts.await };
    time::timeout_at(end, attempts).await.unwrap_or(Err(&error::EXCHANGE_TIMEOUT))
}

/// Tries endpoints until one answers, by the same rules as `exchange/attempt.rs`. `end` is when the call must be
/// over.
async fn attempts(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    request: &CallRequest,
    end: Option<Instant>,
) -> Result<CallAnswer, &'static Cause> {
    let head = render(request).ok_or(&error::INTERNAL)?;
    let idempotent = Method::of(request.method.as_bytes()).is_idempotent();
    let timeouts = &upstream.spec.timeouts;
    let per_try = upstream.spec.retry.as_ref().and_then(|retry| retry.per_try);
    let limit = per_try.into_iter().chain(Some(timeouts.response).filter(|limit| !limit.is_zero())).min();
    let mut attempts = Attempts::new(upstream);
    loop {
        let mut active = attempts.next(upstream)?;
        let another = end.is_some() && attempts.has_another(upstream, &active);
        let end = end.map(|end| (end, &error::EXCHANGE_TIMEOUT));
        let wanted = Wanted { end, another, ..attempts.wanted(!idempotent) };
        let connected = connect(upstream, &mut active, wanted).await;
        if !connected.as_ref().is_err_and(ConnectError::is_avoided) {
            attempts.count(upstream);
        }
        let mut connection = match connected {
            Ok(connected) => connected.connection,
            Err(e) => {
                attempts.unreached(upstream, &active, e)?;
                continue;
            }
        };
        let measured = active.measure(Instant::now, true);
        let mut sent = 0;
        let work = exchange(core, &mut connection, request, &head, &mut sent);
        let outcome = match limit {
            None => work.await,
            Some(limit) => time::timeout(limit, work).await.unwrap_or(Err(&error::RESPONSE_TIMEOUT)),
        };
        match outcome {
            Ok((answer, after)) => {
                measured.into_iter().for_each(Measurement::answered);
                upstream.cells.attempt(Outcome::Answered);
                upstream.note(&active, answer.status < 500);
                if after == After::Kept {
                    upstream.give_back(&active, connection, Instant::now());
                }
                if upstream.spec.retry.is_none() {
                    return Ok(answer);
                }
                let failed = Failed::of_answer(answer.status, None, answer.field("retry-after"));
                let lost = Lost::answered(failed, idempotent, true);
                match attempts.again(upstream, &active, lost, None) {
                    Some(pause) => time::sleep(pause).await,
                    None => return Ok(answer),
                }
            }
            Err(cause) => {
                upstream.cells.attempt(cause.outcome);
                upstream.note(&active, false);
                let h2 = connection.stream.h2();
                let lost = Lost::of(&Facts {
                    cause,
                    idempotent,
                    written: sent != 0,
                    kept: true,
                    reused: connection.reused,
                    refused: h2.is_some_and(H2Stream::is_refused),
                    reset: h2.is_some_and(H2Stream::is_reset_by_peer),
                });
                if lost.is_none_or(|lost| lost.race.is_none()) {
                    measured.into_iter().for_each(Measurement::failed);
                }
                let pause = lost.and_then(|lost| attempts.again(upstream, &active, lost, None));
                let pause = pause.ok_or(cause)?;
                if !pause.is_zero() {
                    time::sleep(pause).await;
                }
            }
        }
    }
}

/// Exchanges one request and answer. `sent` counts the written bytes.
async fn exchange(
    core: &Rc<Core>,
    connection: &mut Connection,
    request: &CallRequest,
    out: &[u8],
    sent: &mut usize,
) -> Result<(CallAnswer, After), &'static Cause> {
    let limits = core.head_limits();
    talk(&mut connection.stream, request, out, sent, &limits).await.map_err(cause_of)
}

/// The cause for how a talk failed.
pub(crate) const fn cause_of(failed: talk::Failed) -> &'static Cause {
    match failed {
        talk::Failed::Closed => &error::UPSTREAM_CLOSED,
        talk::Failed::Malformed | talk::Failed::TooLong => &error::BAD_RESPONSE,
    }
}
