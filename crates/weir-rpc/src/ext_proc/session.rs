//! The conversation with a processor: one call for each exchange, one message and its answer after the other in each
//! direction.
//!
//! ```text
//!  Fresh ─(first question)─► Opening ─(its answer begins)─► Open ─(it ends the call with OK, or may be
//!                               │                             │      passed by)─► Over: everything passes
//!                               └─────────────────────────────┴──(it fails, lies, or is late)─► Failed: every later
//!                                                                                              question fails
//! ```

use super::messages::{Common, Immediate, Override, Phase, Reply, Wrong, reply};
use crate::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use weir_filter::error::{self, Cause};
use weir_filter::filter::{CallStream, StreamRequest};
use weir_h1::FieldName;
use weir_transcode::frames::{FrameError, Messages};
use weir_wire::time;

/// The method that every processor serves.
const METHOD: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// A conversation that the hooks of an exchange and the pieces under way share.
pub(super) type Shared = Rc<RefCell<Session>>;

/// Where a processor is and what it may do.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) upstream: Rc<str>,
    pub(super) core: CoreHandle,
    /// How long each answer may take, including the connection for the first.
    pub(super) timeout: Duration,
}

/// How long a processor has at most to end the call after us.
const LINGER: Duration = Duration::from_secs(1);

/// A conversation.
pub(super) struct Session {
    /// The call while it is opened. A second question may come before that is done: of a piece of the request's body
    /// and of the response's head, for example.
    opening: Option<Waiting<'static, Result<Box<dyn CallStream>, &'static Cause>>>,
    stream: Option<Box<dyn CallStream>>,
    state: State,
    frames: Messages,
    /// What was read and not asked for yet.
    answers: VecDeque<(Phase, Common)>,
    /// What was asked and not answered.
    asked: Vec<Phase>,
    /// What is to be sent.
    out: Vec<u8>,
    /// The request's trace context, which the call carries.
    trace: Vec<(FieldName, Vec<u8>)>,
    /// A wish of the last answer about headers.
    pub(super) wish: Option<Override>,
    /// The processor's own answer.
    pub(super) immediate: Option<Immediate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Failed(Wrong),
    Fresh,
    Open,
    Opening,
    Over,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The processor answers the request itself: [`Session::immediate`].
    Answered,
    /// Why it cannot be followed.
    Failed(Wrong),
}

/// A problem with what was read.
enum Unread {
    Frames(FrameError),
    Fault(Fault),
}

impl From<FrameError> for Unread {
    fn from(e: FrameError) -> Self {
        Self::Frames(e)
    }
}

impl Session {
    /// Its messages may have at most `limit` bytes.
    pub(super) const fn new(limit: usize, trace: Vec<(FieldName, Vec<u8>)>) -> Self {
        Self {
            opening: None,
            stream: None,
            state: State::Fresh,
            frames: Messages::new(limit, false),
            answers: VecDeque::new(),
            asked: Vec::new(),
            out: Vec::new(),
            trace,
            wish: None,
            immediate: None,
        }
    }

    /// Whether the processor wants no more.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether no answer will come: it wants no more, or it failed and the exchange is refused.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Failed(_) | State::Over)
    }

    /// From here everything passes.
    pub(super) fn pass(&mut self) {
        self.state = State::Over;
        (self.opening, self.stream) = (None, None);
    }

    fn fail(&mut self, why: Wrong) -> Fault {
        if self.state != State::Over {
            self.state = State::Failed(why);
        }
        (self.opening, self.stream) = (None, None);
        Fault::Failed(why)
    }

    /// Asks a question; the first one opens the call. False if the processor wants no more.
    fn begin(&mut self, place: &Place, phase: Phase, message: Vec<u8>, end: Instant) -> Result<bool, Fault> {
        match self.state {
            State::Over => return Ok(false),
            State::Failed(why) => return Err(Fault::Failed(why)),
            State::Open | State::Opening => self.out.extend_from_slice(&message),
            State::Fresh => {
                self.state = State::Opening;
                let (core, upstream) = (place.core.clone(), Rc::clone(&place.upstream));
                let request = request(message, end, std::mem::take(&mut self.trace));
                self.opening = Some(Box::pin(async move { core.open(&upstream, request).await }));
            }
        }
        self.asked.push(phase);
        Ok(true)
    }

    fn poll_opened(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Some(opening) = &mut self.opening else { return Poll::Ready(Ok(())) };
        let opened = ready!(opening.as_mut().poll(cx));
        self.opening = None;
        Poll::Ready(match opened {
            Ok(stream) => {
                (self.stream, self.state) = (Some(stream), State::Open);
                Ok(())
            }
            Err(cause) => Err(self.fail(unopened(cause))),
        })
    }

    /// Sends what is due.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.out.is_empty() {
            let Some(stream) = &mut self.stream else { return Poll::Ready(()) }; // its end says why
            match ready!(stream.poll_send(cx, &self.out)) {
                Ok(sent) if sent > 0 => drop(self.out.drain(..sent)),
                // It may have answered before it stopped reading.
                _ => self.out.clear(),
            }
        }
        Poll::Ready(())
    }

    /// Reads until this answer is there. `None`: the processor wants no more.
    fn poll_answer(&mut self, cx: &mut Context<'_>, phase: Phase) -> Poll<Result<Option<Common>, Fault>> {
        loop {
            if let Some(at) = self.answers.iter().position(|(of, _)| *of == phase) {
                return Poll::Ready(Ok(self.answers.remove(at).map(|(_, common)| common)));
            }
            match self.state {
                State::Over => return Poll::Ready(Ok(None)),
                State::Failed(why) => return Poll::Ready(Err(Fault::Failed(why))),
                State::Fresh | State::Open | State::Opening => {}
            }
            if self.immediate.is_some() {
                return Poll::Ready(Err(Fault::Answered));
            }
            let Some(stream) = &mut self.stream else {
                return Poll::Ready(Err(self.fail("it closed the call")));
            };
            let mut bytes = Vec::new();
            match ready!(stream.poll_receive(cx, &mut bytes)) {
                Ok(0) => {
                    let is_ok = stream.field("grpc-status").as_deref() == Some(b"0");
                    if !is_ok || self.frames.finish().is_err() {
                        return Poll::Ready(Err(self.fail("it ended the call with an error")));
                    }
                    self.pass();
                }
                Ok(_) => self.read(&bytes)?,
                Err(_) => return Poll::Ready(Err(self.fail("the call broke off"))),
            }
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Self { frames, answers, asked, wish, immediate, .. } = self;
        let read = frames.feed(bytes, |message| {
            match reply(message).map_err(|why| Unread::Fault(Fault::Failed(why)))? {
                Reply::Immediate(answer) => *immediate = Some(answer),
                Reply::Of(phase, common, mode) => {
                    let Some(at) = asked.iter().position(|asked| *asked == phase) else {
                        return Err(Unread::Fault(Fault::Failed("it answered what was not asked")));
                    };
                    asked.swap_remove(at);
                    if matches!(phase, Phase::RequestHeaders | Phase::ResponseHeaders) {
                        *wish = mode;
                    }
                    answers.push_back((phase, common));
                }
            }
            Ok(())
        });
        match read {
            Ok(()) if self.immediate.is_some() => {
                self.stream = None;
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(Unread::Frames(FrameError::TooLong)) => Err(self.fail("its answer is too long")),
            Err(Unread::Frames(_)) => Err(self.fail("it sent no valid message")),
            Err(Unread::Fault(Fault::Failed(why))) => Err(self.fail(why)),
            Err(Unread::Fault(fault)) => Err(fault),
        }
    }
}

/// Why no call was opened.
fn unopened(cause: &'static Cause) -> Wrong {
    match cause {
        cause if *cause == error::RESPONSE_TIMEOUT => "it did not answer in time",
        cause if *cause == error::BAD_RESPONSE => "its answer is no success",
        cause if *cause == error::UPSTREAM_PROTOCOL => "it does not speak HTTP/2",
        cause if *cause == error::UPSTREAM_CLOSED || *cause == error::UPSTREAM_RESET => "the call broke off",
        _ => "it could not be reached",
    }
}

/// Sends a message and waits for its answer. `None`: the processor wants no more.
pub(super) async fn ask(
    session: &Shared,
    place: &Place,
    phase: Phase,
    message: Vec<u8>,
) -> Result<Option<Common>, Fault> {
    let now = Instant::now();
    let end = now.checked_add(place.timeout).unwrap_or(now);
    if !session.borrow_mut().begin(place, phase, message, end)? {
        return Ok(None);
    }
    let answered = poll_fn(|cx| {
        let mut session = session.borrow_mut();
        ready!(session.poll_opened(cx))?;
        let _ = session.poll_send(cx);
        session.poll_answer(cx, phase)
    });
    // The opening has the same end, and looks first: then the endpoint is to blame.
    let answered = time::timeout_at(end, answered).await;
    answered.unwrap_or_else(|_| Err(session.borrow_mut().fail("it did not answer in time")))
}

fn request(first: Vec<u8>, end: Instant, trace: Vec<(FieldName, Vec<u8>)>) -> StreamRequest {
    let fields = [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "weir")];
    let fields =
        fields.into_iter().filter_map(|(name, value)| Some((FieldName::new(name).ok()?, value.into())));
    StreamRequest { path: METHOD.to_owned(), headers: fields.chain(trace).collect(), first, end }
}

/// Ends a conversation properly: a processor that reads the end of our side ends the call with a status. It has the
/// time of one answer for that, [`LINGER`] at most.
pub(super) fn end(session: &Shared, place: &Place) {
    let Some(mut stream) = session.borrow_mut().stream.take() else { return };
    stream.finish();
    let timeout = place.timeout.min(LINGER);
    let ends = async move {
        let mut rest = Vec::new();
        let read = poll_fn(|cx| {
            loop {
                rest.clear();
                match ready!(stream.poll_receive(cx, &mut rest)) {
                    Ok(read) if read > 0 => {}
                    _ => return Poll::Ready(()),
                }
            }
        });
        let _ = time::timeout(timeout, read).await;
    };
    let _ = place.core.spawn(ends); // without a place it is reset
}
