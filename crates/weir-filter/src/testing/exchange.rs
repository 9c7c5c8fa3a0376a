//! One exchange after the request phase: what a test expects of it, and what follows.

use super::response_head;
use super::script::Script;
use crate::filter::{
    Attempt, AttemptEnd, BodyUse, CallRequest, Cx, End, Failure, Filter, Flow, GrpcStatus, HookResult, Hooks,
    Piece,
};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weir_h1::{BodyKind, Fields, RequestHead, ResponseHead};
use weir_upstream::error::Cause;
use weir_wire::relay::{Mark, Seen};

/// One exchange after the request phase.
pub struct Exchange {
    /// The request as the filter left it.
    pub head: RequestHead,
    /// The context after the filter.
    pub cx: Cx,
    /// What it decided.
    pub flow: Flow,
    /// Whether it had to wait before deciding.
    pub waited: bool,
    pub(super) filter: Rc<dyn Filter>,
    pub(super) script: Rc<Script>,
}

/// A response after the filter has seen it.
pub struct Response {
    /// The response as the filter left it.
    pub head: ResponseHead,
    /// How it uses the body, if it was asked.
    pub body_use: Option<BodyUse>,
}

// === impl Exchange ===

impl Exchange {
    /// Expects that the filter lets the request continue.
    pub fn expect_continue(&mut self) -> &mut Self {
        assert!(matches!(self.flow, Flow::Continue), "expected Continue, got {:?}", self.flow);
        self
    }

    /// Expects that the filter answers or refuses with this status.
    pub fn expect_status(&mut self, status: u16) -> &mut Self {
        let actual = match &self.flow {
            Flow::Answer(answer) => answer.status,
            Flow::Refuse(refusal) => refusal.cause.status,
            other => panic!("expected status {status}, got {other:?}"),
        };
        assert_eq!(actual, status, "{:?}", self.flow);
        self
    }

    /// Expects that the filter refuses for this cause.
    pub fn expect_cause(&mut self, cause: &Cause) -> &mut Self {
        match &self.flow {
            Flow::Refuse(refusal) => assert_eq!(refusal.cause, cause),
            other => panic!("expected {cause}, got {other:?}"),
        }
        self
    }

    /// Expects a field with only this value: on the filter's answer if there is one, else on the request.
    pub fn expect_header(&mut self, name: &str, value: &str) -> &mut Self {
        assert_eq!(self.header(name), [value], "{name}");
        self
    }

    /// Expects that a field is absent.
    pub fn expect_no_header(&mut self, name: &str) -> &mut Self {
        assert_eq!(self.header(name), [""; 0], "{name}");
        self
    }

    /// Expects this path and query to be sent on.
    pub fn expect_target(&mut self, target: &str) -> &mut Self {
        let query = self.head.query().map(|q| format!("?{}", String::from_utf8_lossy(q)));
        let actual = format!("{}{}", String::from_utf8_lossy(self.head.path()), query.unwrap_or_default());
        assert_eq!(actual, target);
        self
    }

    /// All values of a field: on the filter's answer if there is one, else on the request.
    pub fn header(&self, name: &str) -> Vec<String> {
        let made = match &self.flow {
            Flow::Answer(answer) => &answer.headers,
            Flow::Refuse(refusal) => &refusal.headers,
            _ => return texts(&self.head.headers, name),
        };
        let same = made.iter().filter(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        same.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }

    /// Begins an attempt at an endpoint of this upstream.
    ///
    /// # Errors
    /// The filter's refusal.
    pub fn attempt(&mut self, upstream: &str) -> HookResult {
        let attempt = Attempt { upstream, endpoint: "192.0.2.200:80", number: 1, host: None, tls: false };
        self.filter.on_attempt(&mut self.head, &attempt, &mut self.cx)
    }

    /// Ends it with a status, or with the cause for which there was none.
    pub fn attempt_end(&mut self, upstream: &str, ends: Result<u16, &'static Cause>, took: Duration) {
        self.ended(upstream, ends, None, took);
    }

    /// Ends it with the answer to a gRPC call.
    pub fn attempt_end_grpc(&mut self, upstream: &str, grpc: GrpcStatus) {
        self.ended(upstream, Ok(200), Some(grpc), Duration::ZERO);
    }

    fn ended(
        &mut self,
        upstream: &str,
        ends: Result<u16, &'static Cause>,
        grpc: Option<GrpcStatus>,
        took: Duration,
    ) {
        let attempt = Attempt { upstream, endpoint: "192.0.2.200:80", number: 1, host: None, tls: false };
        let (status, cause) = (ends.unwrap_or(0), ends.err());
        let end = AttemptEnd { attempt, status, head: None, grpc, cause, took, at: Instant::now() };
        self.filter.on_attempt_end(&end, &mut self.cx);
    }

    /// Passes a piece of the request body. Returns what would be sent on.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub fn body(&mut self, data: &[u8], last: bool) -> Result<Vec<u8>, &'static Cause> {
        let mut piece = Piece::new(data, last);
        match self.filter.on_request_body(&mut piece, &mut self.cx) {
            Ok(()) => Ok(piece.data().to_vec()),
            Err(refusal) => Err(refusal.cause),
        }
    }

    /// Begins an attempt with all its facts, and waits if the filter does.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub async fn attempt_as(&mut self, attempt: &Attempt<'_>) -> Result<(), &'static Cause> {
        let mut begun = self.filter.on_attempt(&mut self.head, attempt, &mut self.cx);
        if begun.is_ok() && self.filter.hooks().has(Hooks::ATTEMPT_WAIT) {
            begun = self.filter.wait_attempt(&mut self.head, attempt, &mut self.cx).await;
        }
        begun.map_err(|refusal| refusal.cause)
    }

    /// Passes a response: `200`, or a status and fields in lines that end in `\n`.
    pub fn response(&mut self, text: &str) -> Response {
        let mut head = response_head(text);
        let hooks = self.filter.hooks();
        let body = head.body(self.head.method()) != BodyKind::Empty;
        let body_use =
            (body && hooks.has(Hooks::RESPONSE_BODY)).then(|| self.filter.response_body(&head, &mut self.cx));
        let flow = self.filter.on_response(&mut head, &mut self.cx);
        assert!(matches!(flow, Flow::Continue), "expected Continue, got {flow:?}");
        Response { head, body_use }
    }

    /// Makes the response an error with these facts from now on.
    pub fn fail(&mut self, failure: Failure) {
        self.cx.failure = Some(Box::new(failure));
    }

    /// Passes the head of a response. Returns the filter's decision.
    pub fn on_response(&mut self, head: &mut ResponseHead) -> Flow {
        self.filter.on_response(head, &mut self.cx)
    }

    /// Passes a piece of the response body. Returns what would be sent on.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub fn response_body(&mut self, data: &[u8], last: bool) -> Result<Vec<u8>, &'static Cause> {
        let mut piece = Piece::new(data, last);
        match self.filter.on_response_body(&mut piece, &mut self.cx) {
            Ok(()) => what_becomes_of(piece),
            Err(refusal) => Err(refusal.cause),
        }
    }

    /// Reports a pause of the upstream. Returns what is sent on then.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub fn response_pause(&mut self) -> Result<Vec<u8>, &'static Cause> {
        let mut piece = Piece::pause();
        match self.filter.on_response_body(&mut piece, &mut self.cx) {
            Ok(()) => what_becomes_of(piece),
            Err(refusal) => Err(refusal.cause),
        }
    }

    /// The filter, for hooks that have no method here.
    pub fn filter(&self) -> Rc<dyn Filter> {
        Rc::clone(&self.filter)
    }

    /// Ends the response with these trailers, in lines that end in `\n`; what precedes them is not shown.
    pub fn response_trailers(&mut self, trailers: &str) {
        let mut trailers = trailers.as_bytes().to_vec();
        let seen = Seen { data: b"", mark: Mark::Last, trailers: Some(&mut trailers) };
        let watched = self.filter.on_response_body(&mut Piece::seen(seen), &mut self.cx);
        assert!(watched.is_ok(), "{watched:?}");
    }

    /// Runs the tasks that the filter left beside the exchange.
    pub async fn tasks(&mut self) {
        let tasks = std::mem::take(&mut *self.script.tasks.borrow_mut());
        for task in tasks {
            task.await;
        }
    }

    /// Ends the exchange.
    pub fn end(&mut self, end: End) {
        self.filter.on_end(&end, &mut self.cx);
    }

    /// The filter's calls and their upstreams.
    pub fn calls(&self) -> Vec<(String, CallRequest)> {
        self.script.calls.borrow().clone()
    }
}

// === impl Response ===

impl Response {
    /// Expects a field with only this value.
    pub fn expect_header(&self, name: &str, value: &str) -> &Self {
        assert_eq!(texts(&self.head.headers, name), [value], "{name}");
        self
    }

    /// Expects that a field is absent.
    pub fn expect_no_header(&self, name: &str) -> &Self {
        assert_eq!(texts(&self.head.headers, name), [""; 0], "{name}");
        self
    }

    /// Expects that a field occurs once and is not empty.
    pub fn expect_present(&self, name: &str) -> &Self {
        let all = texts(&self.head.headers, name);
        assert!(matches!(all.as_slice(), [one] if !one.is_empty()), "{name}: {all:?}");
        self
    }
}

/// What is sent on for a piece, waiting if it is produced elsewhere.
fn what_becomes_of(piece: Piece<'_>) -> Result<Vec<u8>, &'static Cause> {
    let as_it_is = piece.data().to_vec();
    let (_, Some(mut later)) = piece.into_replaced() else { return Ok(as_it_is) };
    let mut task = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(made) = later.0.as_mut().poll(&mut task) {
            return made.map(|made| made.data);
        }
        std::thread::yield_now();
    }
}

fn texts(fields: &Fields, name: &str) -> Vec<String> {
    fields.get_all(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}
