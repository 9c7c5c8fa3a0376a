//! What a core does for its filters; above all their own requests to an upstream: one request, its whole answer.
//!
//! The pools, limits and timeouts are those of the upstream; the only simplification is that an answer is read whole,
//! up to the limit that the filter names.

use crate::core::Core;
use crate::error::{self, Cause};
use crate::filter::{CallAnswer, CallRequest, CoreHandle, Job, Services, Task, Waiting};
use crate::upstream::{Attempts, Connection, Failed, LocalUpstream, Race, Request, connect};
use std::any::Any;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;
use weir_h1::{BodyKind, BodyReader, FieldName, Method, Progress, ResponseHead, Step, parse_response};
use weir_telemetry::Attempt as Outcome;

/// What a core is for its filters.
pub(crate) fn handle(core: &Weak<Core>) -> CoreHandle {
    CoreHandle::new(Rc::new(Caller(Weak::clone(core))))
}

/// Reaches the upstreams of a core.
struct Caller(Weak<Core>);

impl Services for Caller {
    fn call<'a>(
        &'a self,
        upstream: &'a str,
        request: CallRequest,
    ) -> Waiting<'a, Result<CallAnswer, &'static Cause>> {
        Box::pin(async move {
            let core = self.0.upgrade().ok_or(&error::NO_ENDPOINT)?;
            let local = core.local();
            let found = local.upstreams.iter().find(|u| &*u.spec.name == upstream);
            let upstream = found.ok_or(&error::NO_ENDPOINT)?;
            call(&core, upstream, &request).await
        })
    }

    fn spawn(&self, task: Task) -> bool {
        let Some(core) = self.0.upgrade().filter(|core| core.tasks.get() < MAX_TASKS) else { return false };
        let running = Running::new(&core);
        drop(tokio::task::spawn_local(async move {
            task.await;
            drop(running);
        }));
        true
    }

    fn block(&self, job: Job) -> bool {
        self.0.upgrade().is_some_and(|core| core.shared.blocking.run(job))
    }

    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        match self.0.upgrade() {
            Some(core) => core.local_state(key, make),
            None => make(), // the core is gone, and what asks for it soon will be
        }
    }
}

/// Most tasks that filters run beside exchanges, on one core.
const MAX_TASKS: usize = 1024;

/// Counts such a task, however it ends.
struct Running(Weak<Core>);

impl Running {
    fn new(core: &Rc<Core>) -> Self {
        core.tasks.set(core.tasks.get() + 1);
        Self(Rc::downgrade(core))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.tasks.set(core.tasks.get() - 1);
        }
    }
}

async fn call(
    core: &Rc<Core>,
    upstream: &Rc<LocalUpstream>,
    request: &CallRequest,
) -> Result<CallAnswer, &'static Cause> {
    let head = render(request)?;
    let idempotent = Method::of(request.method.as_bytes()).is_idempotent();
    let mut attempts = Attempts::new(upstream);
    loop {
        let mut active = attempts.next(upstream)?;
        let mut connection = match connect(upstream, &mut active, attempts.wanted(!idempotent)).await {
            Ok(connected) => connected.connection,
            Err(e) => {
                attempts.unreached(upstream, &active, e)?;
                continue;
            }
        };
        let mut sent = 0;
        let limit = upstream.spec.timeouts.response;
        let work = exchange(core, &mut connection, request, &head, &mut sent);
        let outcome = if limit.is_zero() {
            work.await
        } else {
            tokio::time::timeout(limit, work).await.unwrap_or(Err(&error::RESPONSE_TIMEOUT))
        };
        match outcome {
            Ok((answer, keep)) => {
                upstream.cells.attempt(Outcome::Answered);
                upstream.note(&active, answer.status < 500);
                if keep {
                    upstream.give_back(&active, connection, Instant::now());
                }
                return Ok(answer);
            }
            Err(cause) => {
                upstream.cells.attempt(outcome_of(cause));
                upstream.note(&active, false);
                // As in `exchange/attempt.rs`: the keep-alive race, and what HTTP/2 says was not looked at.
                let h2 = connection.stream.h2();
                let unseen = h2.as_ref().is_some_and(|stream| stream.is_refused());
                let reset = h2.is_some_and(|stream| stream.is_reset_by_peer());
                let ended = !reset && *cause == error::UPSTREAM_CLOSED;
                let raced = unseen || (ended && connection.reused && (idempotent || sent == 0));
                let race = if reset { Race::Stream } else { Race::Connection };
                if raced && attempts.raced(&active, race) {
                    continue;
                }
                let failed = match outcome_of(cause) {
                    _ if unseen => Failed::RefusedStream,
                    Outcome::Reset => Failed::Reset,
                    Outcome::ResponseTimeout => Failed::Timeout,
                    _ => return Err(cause),
                };
                let request = Request { idempotent, unseen: unseen || sent == 0, kept: true };
                tokio::time::sleep(attempts.again(upstream, &active, failed, request).ok_or(cause)?).await;
            }
        }
    }
}

fn outcome_of(cause: &Cause) -> Outcome {
    if *cause == error::BAD_RESPONSE {
        Outcome::ProtocolError
    } else if *cause == error::RESPONSE_TIMEOUT {
        Outcome::ResponseTimeout
    } else {
        Outcome::Reset
    }
}

/// The head of a request. What a filter of another program asks is checked here, as every generated value is.
fn render(request: &CallRequest) -> Result<Vec<u8>, &'static Cause> {
    let target = |b: u8| b > 0x20 && b < 0x7f;
    let sound = !request.method.is_empty()
        && request.method.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-')
        && request.target.starts_with('/')
        && request.target.bytes().all(target)
        && request.authority.iter().copied().all(target)
        && request.headers.iter().all(|(_, v)| v.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f)));
    if !sound {
        return Err(&error::INTERNAL);
    }
    let mut out = format!("{} {} HTTP/1.1\r\nhost: ", request.method, request.target).into_bytes();
    out.extend_from_slice(&request.authority);
    out.extend_from_slice(b"\r\n");
    for (name, value) in &request.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if !request.body.is_empty() || matches!(&*request.method, "PATCH" | "POST" | "PUT") {
        out.extend_from_slice(format!("content-length: {}\r\n", request.body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&request.body);
    Ok(out)
}

/// One request and its answer; whether the connection can be kept. `sent`: how much of the request was written.
async fn exchange(
    core: &Rc<Core>,
    connection: &mut Connection,
    request: &CallRequest,
    out: &[u8],
    sent: &mut usize,
) -> Result<(CallAnswer, bool), &'static Cause> {
    while *sent < out.len() {
        let rest = out.get(*sent..).unwrap_or_default();
        let n = poll_fn(|cx| connection.stream.poll_write(cx, rest))
            .await
            .map_err(|_| &error::UPSTREAM_CLOSED)?;
        if n == 0 {
            return Err(&error::UPSTREAM_CLOSED);
        }
        *sent += n;
    }
    poll_fn(|cx| connection.stream.poll_finish(cx, &[])).await.map_err(|_| &error::UPSTREAM_CLOSED)?;

    let limits = core.local().snapshot.head_limits;
    let mut head = ResponseHead::default();
    loop {
        let read = poll_fn(|cx| connection.stream.poll_read(cx, head.buffer_mut())).await;
        match read {
            Ok(0) | Err(_) if head.buffer_mut().is_empty() => return Err(&error::UPSTREAM_CLOSED),
            Ok(0) | Err(_) => return Err(&error::BAD_RESPONSE),
            Ok(_) => {}
        }
        while let Progress::Complete = parse_response(&mut head, &limits).map_err(|_| &error::BAD_RESPONSE)? {
            if head.status() >= 200 {
                if let Some(stream) = connection.stream.h2() {
                    head.came_by_http2(stream.is_over());
                }
                let method = if request.method == "HEAD" { Method::Head } else { Method::Get };
                let (body, clean) = read_body(connection, &head, method, request.limit).await?;
                let keep = clean && head.connection() == weir_h1::Connection::KeepAlive;
                return Ok((answer(&head, body), keep));
            }
            head.recycle(0); // an interim response
        }
    }
}

async fn read_body(
    connection: &mut Connection,
    head: &ResponseHead,
    method: Method,
    limit: usize,
) -> Result<(Vec<u8>, bool), &'static Cause> {
    let kind = head.body(method);
    let mut reader = BodyReader::new(kind);
    let mut input = head.rest().to_vec();
    let (mut at, mut body) = (0, Vec::new());
    loop {
        match reader.step(input.get(at..).unwrap_or_default()).map_err(|_| &error::BAD_RESPONSE)? {
            Step::Data { skip, len } => {
                body.extend_from_slice(input.get(at + skip..at + skip + len).unwrap_or_default());
                at += skip + len;
                if body.len() > limit {
                    return Err(&error::BAD_RESPONSE);
                }
            }
            Step::End { used } => return Ok((body, at + used == input.len())),
            Step::More => {
                input.clear();
                at = 0;
                match poll_fn(|cx| connection.stream.poll_read(cx, &mut input)).await {
                    Ok(0) if kind == BodyKind::UntilClose => return Ok((body, false)),
                    Ok(0) | Err(_) => return Err(&error::BAD_RESPONSE),
                    Ok(_) => {}
                }
            }
        }
    }
}

fn answer(head: &ResponseHead, body: Vec<u8>) -> CallAnswer {
    let fields = head.headers.iter().filter_map(|(name, value)| {
        let name = std::str::from_utf8(name).ok()?;
        // Framing is written anew for whoever gets this answer.
        let framing = name.eq_ignore_ascii_case("content-length");
        if framing { None } else { Some((FieldName::new(name).ok()?, value.to_vec())) }
    });
    CallAnswer { status: head.status(), headers: fields.collect(), body: body.into() }
}
