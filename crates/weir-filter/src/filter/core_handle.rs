//! What a core does for its filters: calls to upstreams, tasks beside the exchange, blocking work, per-core state.

use super::Waiting;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::oneshot;
use weir_h1::FieldName;
use weir_upstream::error::{self, Cause};
use weir_upstream::talk::{CallAnswer, CallRequest};

/// A task that runs beside exchanges.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A job for the threads that may block.
pub type Job = Box<dyn FnOnce() + Send>;

/// The implementation behind a [`CoreHandle`]: a core, or a test.
pub trait Services {
    /// Sends one request to an upstream and reads its whole answer, within the upstream's timeouts.
    fn call<'a>(
        &'a self,
        upstream: &'a str,
        request: CallRequest,
    ) -> Waiting<'a, Result<CallAnswer, &'static Cause>>;

    /// Opens a call to an upstream over HTTP/2, in which both sides may send at any time, and waits until its answer
    /// begins.
    fn open<'a>(
        &'a self,
        upstream: &'a str,
        request: StreamRequest,
    ) -> Waiting<'a, Result<Box<dyn CallStream>, &'static Cause>> {
        let _ = (upstream, request);
        Box::pin(std::future::ready(Err(&error::NO_ENDPOINT)))
    }

    /// Runs a task on this core. False if too many already run.
    fn spawn(&self, task: Task) -> bool;

    /// Runs a job on a thread that may block. False if too many wait.
    fn block(&self, job: Job) -> bool;

    /// This core's state under a key, created by `make` if there is none. It ends with its key.
    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any>;
}

/// A request whose body is sent while its answer arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The path.
    pub path: String,
    /// Fields besides Host. The method is POST.
    pub headers: Vec<(FieldName, Vec<u8>)>,
    /// The beginning of the body. It may be sent again: if the endpoint before has certainly not processed it, if a
    /// connection from the pool turned out to be closed, or as `retry` of the upstream says.
    pub first: Vec<u8>,
    /// When the answer must have begun.
    pub end: Instant,
}

/// An open call to an upstream. Dropping it before both sides have ended resets it.
pub trait CallStream {
    /// Sends part of `data`.
    ///
    /// # Errors
    /// The upstream accepts no more.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, &'static Cause>>;

    /// Appends what the upstream sent to `into`; 0 bytes are the end.
    ///
    /// # Errors
    /// The upstream broke off.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, &'static Cause>>;

    /// A trailer, once all has arrived; or a field of the head.
    fn field(&self, name: &str) -> Option<Vec<u8>>;

    /// Ends our side.
    fn finish(&mut self);
}

/// The core of an exchange, as filters see it. Cheap to clone; a task may keep it.
#[derive(Clone)]
pub struct CoreHandle(Rc<dyn Services>);

impl CoreHandle {
    /// A handle to an implementation.
    #[inline]
    pub fn new(services: Rc<dyn Services>) -> Self {
        Self(services)
    }

    /// Sends a request to an upstream.
    ///
    /// # Errors
    /// Why there was no answer.
    pub async fn call(&self, upstream: &str, request: CallRequest) -> Result<CallAnswer, &'static Cause> {
        self.0.call(upstream, request).await
    }

    /// Opens a call over HTTP/2 in which both sides may send at any time, and waits until its answer begins. It ends
    /// with what is returned.
    ///
    /// # Errors
    /// No endpoint could be reached, it does not speak HTTP/2, or its answer did not begin in time or is no success.
    pub async fn open(
        &self,
        upstream: &str,
        request: StreamRequest,
    ) -> Result<Box<dyn CallStream>, &'static Cause> {
        self.0.open(upstream, request).await
    }

    /// Runs a task on this core that may outlive the exchange: a copy of a request, a refresh. It ends with the core.
    /// If 1,024 such tasks already run on this core, returns false and drops it.
    #[must_use]
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> bool {
        self.0.spawn(Box::pin(task))
    }

    /// Runs work that would block the core's connections on threads that all cores share.
    ///
    /// # Errors
    /// `blocking_limit` if 1,024 jobs already wait; `internal` if the work panicked.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, &'static Cause> {
        let (done, result) = oneshot::channel();
        let job = Box::new(move || drop(done.send(work()))); // the caller may have left
        if !self.0.block(job) {
            return Err(&error::BLOCKING_LIMIT);
        }
        result.await.map_err(|_| &error::INTERNAL)
    }
}

impl fmt::Debug for CoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreHandle").finish_non_exhaustive()
    }
}

/// State that each core has separately, so that it needs no lock: a cache of verified keys, a window of results. Part
/// of a filter; with [`Build::keep`](super::Build::keep) it outlives a reload.
pub struct PerCore<T> {
    key: Arc<()>,
    made: PhantomData<fn() -> T>,
}

impl<T: Default + 'static> PerCore<T> {
    /// A key to state that each core creates at first use.
    #[inline]
    pub fn new() -> Self {
        Self { key: Arc::new(()), made: PhantomData }
    }

    /// This core's state.
    pub fn get(&self, core: &CoreHandle) -> Rc<T> {
        let state = core.0.local(&self.key, &mut || Rc::new(T::default()));
        state.downcast().expect("the key belongs to one type")
    }
}

impl<T: Default + 'static> Default for PerCore<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerCore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCore").finish_non_exhaustive()
    }
}
