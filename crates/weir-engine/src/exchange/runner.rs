//! Futures that run one exchange after another, lent by the core.
//!
//! The state of an exchange takes some kilobytes. As a part of its connection's task, it was the memory that a
//! connection touched last when its previous request came: among 1,000 connections, 30 of 47 cache misses of a request
//! (count h1-1000). Few exchanges are open at a time, so the runner that a core lends is one that it got back a moment
//! ago. An idle connection holds none.

use super::{Next, run};
use crate::client::Client;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use weir_h1::RequestHead;

/// A future that waits for an exchange or runs one.
///
/// Invariant: between two exchanges, it holds nothing of either.
struct Runner {
    future: Pin<Box<dyn Future<Output = ()>>>,
    desk: Rc<Desk>,
}

/// What a connection and its runner hand to each other.
#[derive(Default)]
struct Desk {
    job: Cell<Option<Job>>,
    ran: Cell<Option<Ran>>,
}

/// An exchange to run, as the arguments of [`run`].
struct Job {
    client: Box<Client>,
    head: Box<RequestHead>,
    started: Instant,
    head_took: Duration,
}

/// An exchange that ran, as the result of [`run`].
pub(crate) struct Ran {
    pub(crate) client: Box<Client>,
    pub(crate) next: Next,
    pub(crate) head: Box<RequestHead>,
    pub(crate) ended: Option<Instant>,
}

impl Runner {
    fn new() -> Self {
        let desk = Rc::<Desk>::default();
        Self { future: Box::pin(run_all(Rc::clone(&desk))), desk }
    }

    /// Ready once the exchange has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ran> {
        let _ = self.future.as_mut().poll(cx); // it has no end
        self.desk.ran.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Runs an exchange in a runner of the client's core. If it is dropped, so is the exchange.
pub(crate) fn run_apart(
    client: Box<Client>,
    head: Box<RequestHead>,
    started: Instant,
    head_took: Duration,
) -> impl Future<Output = Ran> {
    let lent = client.core.take_runner().and_then(|lent| lent.downcast().ok());
    let runner: Box<Runner> = lent.unwrap_or_else(|| Box::new(Runner::new()));
    runner.desk.job.set(Some(Job { client, head, started, head_took }));
    let mut runner = Some(runner);
    poll_fn(move |cx| {
        let Some(running) = &mut runner else { return Poll::Pending }; // only if polled after its end
        let ran = ready!(running.poll(cx));
        if let Some(free) = runner.take() {
            ran.client.core.give_runner(free);
        }
        Poll::Ready(ran)
    })
}

/// Runs the exchanges of a desk.
async fn run_all(desk: Rc<Desk>) {
    loop {
        let job = poll_fn(|_| desk.job.take().map_or(Poll::Pending, Poll::Ready)).await;
        let Job { mut client, head, started, head_took } = job;
        let (next, head, ended) = run(&mut client, head, started, head_took).await;
        desk.ran.set(Some(Ran { client, next, head, ended }));
    }
}
