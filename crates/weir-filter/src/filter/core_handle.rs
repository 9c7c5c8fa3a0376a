//! What a core does for its filters: calls to upstreams, tasks beside the exchange, blocking work, per-core state.

use super::Waiting;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;
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

    /// Runs a task on this core. False if too many already run.
    fn spawn(&self, task: Task) -> bool;

    /// Runs a job on a thread that may block. False if too many wait.
    fn block(&self, job: Job) -> bool;

    /// This core's state under a key, created by `make` if there is none. It ends with its key.
    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any>;
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
