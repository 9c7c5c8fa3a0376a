//! Upstreams and a core whose answers a test writes in advance.

use crate::filter::{CallAnswer, CallRequest, Job, Services, Task, Waiting};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use weir_upstream::error::Cause;

/// State under its key. Holding the key keeps its address from being reused.
type CoreState = (Arc<()>, Rc<dyn Any>);

/// Upstreams with scripted answers.
#[derive(Default)]
pub(super) struct Script {
    pub(super) answers: RefCell<VecDeque<Result<CallAnswer, &'static Cause>>>,
    pub(super) calls: RefCell<Vec<(String, CallRequest)>>,
    pub(super) tasks: RefCell<Vec<Task>>,
    pub(super) locals: RefCell<HashMap<usize, CoreState>>,
    pub(super) blocked: Cell<u32>,
}

impl Script {
    /// Waits for something while running the tasks that filters have left beside their exchanges.
    pub(super) async fn run_beside<T>(&self, mut work: Waiting<'_, T>) -> T {
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
            tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
            self.tasks.borrow_mut().extend(tasks);
            Poll::Pending
        })
        .await
    }
}

impl Services for Script {
    fn call<'a>(
        &'a self,
        upstream: &'a str,
        request: CallRequest,
    ) -> Waiting<'a, Result<CallAnswer, &'static Cause>> {
        self.calls.borrow_mut().push((upstream.to_owned(), request));
        let answer = self.answers.borrow_mut().pop_front();
        Box::pin(std::future::ready(answer.unwrap_or(Err(&weir_upstream::error::NO_ENDPOINT))))
    }

    /// Keeps the task: it runs while a filter of this environment waits, and in [`Exchange::tasks`].
    fn spawn(&self, task: Task) -> bool {
        self.tasks.borrow_mut().push(task);
        true
    }

    /// Runs the job immediately: a test may block its thread.
    fn block(&self, job: Job) -> bool {
        self.blocked.set(self.blocked.get() + 1);
        job();
        true
    }

    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        let at = Arc::as_ptr(key).addr();
        let mut locals = self.locals.borrow_mut();
        let (_, state) = locals.entry(at).or_insert_with(|| (Arc::clone(key), make()));
        Rc::clone(state)
    }
}
