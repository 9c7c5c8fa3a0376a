//! The WebSockets of a user: opened by the first step at their URL, asked by later ones, closed with the iteration.
//! One that a step of `start` or `end` opened stays open as long as the user.
//!
//! A target may send at any time, so a user polls its WebSockets whatever else it does ([`tend`]): pings are answered
//! in pauses, and messages wait for a step that asks for them. The frames as bytes are `transport::websocket`.

use super::crew::{Crew, Job};
use super::h1::{self, Conn, Times};
use crate::clock;
use crate::engine::websocket::{CLOSED_MOST, agreed};
use crate::engine::worker::{EndReason, Slot, Worker};
use crate::transport::failure::{Failure, Wait};
use crate::transport::poll_write_rest;
use crate::transport::reader::Response;
use crate::transport::websocket::{self as frame, Broken, Fed, Frames, Mask};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use weir_h1::Fields;
use weir_plan::limits::WEBSOCKETS;
use weir_plan::{Answer, Awaits, Part, Request};
use weir_report::report::Protocol;
use weir_wire::{Transport, websocket};

/// Most messages of a WebSocket that wait for a step. The oldest makes room; it counts as unsolicited.
const UNREAD_MOST: usize = 256;

/// Most reads in a row. A target that never stops sending must not keep the thread from other users.
const READS_MOST: u32 = 64;

/// A user's open WebSockets.
pub(super) type Sockets = Rc<RefCell<Vec<Socket>>>;

/// A WebSocket, and what identifies it.
pub(super) struct Socket {
    scenario: Option<usize>,
    origin: usize,
    path: String,
    /// Opened by a step of `start` or `end`.
    is_of_user: bool,
    line: Line,
}

/// What a WebSocket step needs beside its job.
#[derive(Clone, Copy)]
pub(super) struct Talk<'a> {
    pub(super) sockets: &'a Sockets,
    pub(super) request: &'a Request,
}

/// An open connection.
struct Line {
    stream: Transport,
    frames: Frames,
    mask: Mask,
    out: Vec<u8>,
    written: usize,
    /// Where our last message ends in `out`; pongs may follow it.
    asked: usize,
    /// Messages that no step has taken.
    unread: VecDeque<Message>,
    /// Most bytes that they may take together, and of one that are kept.
    most: usize,
    /// When the message that is being read began, and whether before ours was written: then it is no answer to it.
    began: u64,
    is_early: bool,
    /// Why no more messages come.
    ended: Option<Failure>,
    opened: u64,
    is_closing: bool,
}

struct Message {
    response: Response,
    body: Vec<u8>,
    first: u64,
    done: u64,
    is_early: bool,
}

/// Runs a user's life, and serves its WebSockets meanwhile.
pub(super) async fn tend<T>(crew: &Crew, sockets: &Sockets, life: impl Future<Output = T>) -> T {
    let mut life = std::pin::pin!(life);
    poll_fn(|cx| {
        let outcome = life.as_mut().poll(cx);
        if outcome.is_pending() {
            sockets.borrow_mut().iter_mut().for_each(|socket| socket.line.poll(cx, &crew.worker));
        }
        outcome
    })
    .await
}

/// Which WebSockets end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All, with their user.
    All,
    /// Those that end with an iteration.
    Iteration,
    /// Also those of this scenario's `start`, which broke off and will run again.
    Start(usize),
}

/// Closes those that end.
pub(super) fn close(crew: &Crew, sockets: &Sockets, ending: Ending) {
    let mut sockets = sockets.borrow_mut();
    let mut at = 0;
    while let Some(socket) = sockets.get(at) {
        let ends = match ending {
            Ending::All => true,
            Ending::Iteration => !socket.is_of_user,
            Ending::Start(scenario) => !socket.is_of_user || socket.scenario == Some(scenario),
        };
        if ends {
            sockets.swap_remove(at).line.close(&crew.worker);
        } else {
            at += 1;
        }
    }
}

impl Talk<'_> {
    /// Opens the WebSocket if it is not open, sends the message, and waits for the answer. Returns the times of the
    /// connection, if this step opened it.
    pub(super) async fn exchange(
        self,
        crew: &Crew,
        slot: usize,
        job: &mut Job,
        turned: u64,
    ) -> Result<Option<[u64; 3]>, Failure> {
        let worker = &crew.worker;
        let Some(place) = worker.slots.get(slot) else { return Err(Failure::Cut) };
        let message = job.bytes.split_off(job.head_bytes);
        let outcome = self.talk(crew, slot, place, (job, &message), turned).await;
        job.bytes.extend_from_slice(&message);
        let (socket, dialled) = outcome?;
        if self.request.closes {
            socket.line.close(worker);
        } else {
            self.sockets.borrow_mut().push(socket);
        }
        Ok(dialled)
    }

    async fn talk(
        self,
        crew: &Crew,
        slot: usize,
        place: &Slot,
        (job, message): (&mut Job, &[u8]),
        turned: u64,
    ) -> Result<(Socket, Option<[u64; 3]>), Failure> {
        let worker = &crew.worker;
        let step = crew.journey.plan.step(self.request.id);
        let scenario = step.and_then(|s| s.scenario);
        let found = self.sockets.borrow().iter().position(|socket| {
            (socket.scenario, socket.origin) == (scenario, job.origin) && socket.path == job.path
        });
        job.answer.begin();
        job.wire = 0;
        let mut dialled = None;
        let mut socket = match found {
            Some(at) => {
                job.times.started = turned;
                place.deadline.set(turned.saturating_add(clock::nanos(job.timeout)));
                self.sockets.borrow_mut().swap_remove(at)
            }
            None => {
                if self.sockets.borrow().len() >= WEBSOCKETS {
                    let text = format!("a user has at most {WEBSOCKETS} WebSockets open");
                    return Err(Failure::Write(text));
                }
                let (line, times) = open(crew, slot, place, job).await?;
                dialled = Some(times);
                let is_of_user = step.is_some_and(|s| matches!(s.part, Part::Start | Part::End));
                Socket { scenario, origin: job.origin, path: job.path.clone(), is_of_user, line }
            }
        };
        let line = &mut socket.line;
        let counts = worker.counts(job.ready);
        let asks = self.request.body.is_some();
        if asks {
            job.wire += line.ask(worker, message, counts) as u64;
        }
        let handshake = job.answer.response.head_bytes;
        let times = &mut job.times;
        let answer = poll_fn(|cx| self.poll_answer(cx, worker, place, line, (asks, counts), times)).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                socket.line.close(worker);
                return Err(failure);
            }
        };
        let now = worker.clock.now();
        if job.times.sent == 0 {
            job.times.sent = now;
        }
        let mut response =
            Response { status: 101, keeps: true, protocol: Protocol::WebSocket, ..Response::default() };
        (job.times.first, job.times.done) = (now, now);
        if let Some(answer) = answer {
            let (body_bytes, framing_bytes) = (answer.response.body_bytes, answer.response.framing_bytes);
            response = Response { body_bytes, framing_bytes, ..response };
            // One that had waited was there when the step began.
            (job.times.first, job.times.done) =
                (answer.first.max(job.times.started), answer.done.max(job.times.started));
            job.answer.body = answer.body;
            if counts {
                worker.tally.borrow_mut().sessions.received += 1;
            }
        }
        job.answer.response = Response { head_bytes: handshake, ..response };
        if Worker::is_late(place, job.times.done) {
            socket.line.close(worker);
            return Err(Failure::Timeout(Wait::Head));
        }
        Ok((socket, dialled))
    }

    fn poll_answer(
        self,
        cx: &mut Context<'_>,
        worker: &Worker,
        place: &Slot,
        line: &mut Line,
        (asks, counts): (bool, bool),
        times: &mut Times,
    ) -> Poll<Result<Option<Message>, Failure>> {
        place.watch(cx);
        line.poll(cx, worker);
        if let Some(end) = place.end.take() {
            return Poll::Ready(Err(match end {
                EndReason::Cut => Failure::Cut,
                EndReason::Timeout if line.frames.has_begun() => Failure::Timeout(Wait::Body),
                EndReason::Timeout => Failure::Timeout(Wait::Head),
            }));
        }
        if times.sent == 0 && !line.is_asking() {
            times.sent = worker.clock.now();
        }
        match &self.request.awaits {
            Awaits::Nothing if times.sent > 0 => return Poll::Ready(Ok(None)),
            Awaits::Nothing => {}
            Awaits::Message(checks) => {
                while let Some(message) = line.unread.pop_front() {
                    let fields = Fields::default();
                    let mut answer = Answer::new(101, &fields, &message.body);
                    answer.body_bytes = message.response.body_bytes;
                    answer.is_cut = answer.body_bytes > message.body.len() as u64;
                    let is_it = checks.iter().all(|check| check.judge(&answer, Duration::ZERO).is_ok());
                    if is_it && !(asks && message.is_early) {
                        return Poll::Ready(Ok(Some(message)));
                    }
                    unasked(worker, &message.response, counts);
                }
            }
        }
        line.ended.clone().map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)))
    }
}

/// Connects, and makes the handshake.
async fn open(crew: &Crew, slot: usize, place: &Slot, job: &mut Job) -> Result<(Line, [u64; 3]), Failure> {
    let worker = &crew.worker;
    let opened = worker.clock.now();
    let (stream, dialled) = worker.dial_to(job.origin, slot, job.timeout).await?;
    let key = websocket::key();
    let mut head = job.bytes.strip_suffix(b"\r\n").unwrap_or(&job.bytes).to_vec();
    head.extend_from_slice(format!("sec-websocket-key: {key}\r\n\r\n").as_bytes());
    job.times.started = worker.clock.now();
    place.deadline.set(job.times.started.saturating_add(clock::nanos(job.timeout)));
    job.wire = head.len() as u64;
    let mut conn = Conn { stream, dialled: None };
    let mut times = Times { started: job.times.started, ..Times::default() };
    let wanted = job.wanted.unwrap_or_default();
    h1::exchange(&mut conn, worker, place, &head, wanted, &mut job.answer, &mut times).await?;
    agreed(&job.answer.head, &key).map_err(Failure::Protocol)?;
    let mut tally = worker.tally.borrow_mut();
    tally.sessions.handshake.record(times.done.saturating_sub(times.started));
    tally.sessions.connecting.record(times.done.saturating_sub(opened));
    drop(tally);
    let most = crew.journey.plan.body_limit;
    let mut line = Line {
        stream: conn.stream,
        frames: Frames::keeping(most),
        mask: Mask::new(),
        out: Vec::new(),
        written: 0,
        asked: 0,
        unread: VecDeque::new(),
        most,
        began: 0,
        is_early: false,
        ended: None,
        opened,
        is_closing: false,
    };
    let rest = std::mem::take(&mut job.answer.body);
    line.feed(&rest, worker);
    Ok((line, dialled))
}

impl Line {
    /// Starts sending a message. Those that came before are no answers to it. Returns the length of the frame's head.
    fn ask(&mut self, worker: &Worker, message: &[u8], counts: bool) -> usize {
        self.poll(&mut Context::from_waker(Waker::noop()), worker);
        while let Some(message) = self.unread.pop_front() {
            unasked(worker, &message.response, counts);
        }
        self.is_early = self.frames.has_begun();
        worker.tally.borrow_mut().sessions.sent += u64::from(counts);
        let size = frame::write(&mut self.out, frame::TEXT, message, self.mask.next());
        self.asked = self.out.len();
        size
    }

    /// Whether a part of our message is not written yet.
    const fn is_asking(&self) -> bool {
        self.written < self.asked
    }

    /// Writes and reads as much as there is.
    fn poll(&mut self, cx: &mut Context<'_>, worker: &Worker) {
        for read in 0.. {
            if self.ended.is_some() {
                return;
            }
            if read == READS_MOST {
                cx.waker().wake_by_ref();
                return;
            }
            if let Poll::Ready(Err(e)) = self.poll_write(cx) {
                self.ended = Some(Failure::Write(e.to_string()));
                return;
            }
            let mut scratch = worker.scratch.borrow_mut();
            scratch.clear();
            match self.stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => {
                    let when = if self.frames.has_begun() { "in the middle of" } else { "before" };
                    let text = format!("the connection was closed {when} a message, without a close frame");
                    self.ended = Some(Failure::Reset(text));
                }
                Poll::Ready(Err(e)) => self.ended = Some(Failure::of_read(e)),
                Poll::Ready(Ok(_)) => self.feed(&scratch, worker),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(poll_write_rest(&mut self.stream, cx, &self.out, &mut self.written))?;
        self.out.clear();
        (self.written, self.asked) = (0, 0);
        self.stream.poll_flush(cx)
    }

    /// Takes input: messages wait for a step, pings are answered, a close frame ends it.
    fn feed(&mut self, input: &[u8], worker: &Worker) {
        let now = worker.clock.now();
        let mut rest = input;
        while !rest.is_empty() && self.ended.is_none() {
            if !self.frames.has_begun() {
                (self.began, self.is_early) = (now, self.is_asking());
            }
            let (pings, waiting) = (self.frames.pings, self.out.len());
            match self.frames.feed(rest, &mut self.out, &mut self.mask) {
                Ok(Fed::More) => rest = &[],
                Ok(Fed::Message(used, response)) => {
                    rest = rest.get(used..).unwrap_or_default();
                    self.keep(response, now, worker);
                }
                Ok(Fed::Close(_, told)) => {
                    let mut tally = worker.tally.borrow_mut();
                    let (closed, told) = (&mut tally.sessions.closed, worker.plan.masked(&told));
                    let known = closed.len() < CLOSED_MOST || closed.contains_key(&*told);
                    *closed.entry(if known { &told } else { "…" }.to_owned()).or_default() += 1;
                    self.say_close(1000);
                    let text = format!("the target closed the WebSocket before an answer ({told})");
                    self.ended = Some(Failure::Reset(text));
                }
                Err(Broken { code, text }) => {
                    self.say_close(code);
                    self.ended = Some(Failure::Protocol(text));
                }
            }
            if self.frames.pings != pings {
                worker.tally.borrow_mut().sessions.pings += self.frames.pings - pings;
                let bytes = self.out.len().saturating_sub(waiting) as u64;
                worker.sent(worker.counts(now), bytes, 0, now);
            }
        }
    }

    fn keep(&mut self, response: Response, now: u64, worker: &Worker) {
        let body = self.frames.body().to_vec();
        let (first, is_early) = (self.began, std::mem::take(&mut self.is_early));
        let mut bytes: usize = self.unread.iter().map(|m| m.body.len()).sum::<usize>() + body.len();
        self.unread.push_back(Message { response, body, first, done: now, is_early });
        while self.unread.len() > 1 && (self.unread.len() > UNREAD_MOST || bytes > self.most) {
            let Some(oldest) = self.unread.pop_front() else { return };
            bytes -= oldest.body.len();
            unasked(worker, &oldest.response, worker.counts(now));
        }
    }

    fn say_close(&mut self, code: u16) {
        if !std::mem::replace(&mut self.is_closing, true) {
            frame::write(&mut self.out, frame::CLOSE, &code.to_be_bytes(), self.mask.next());
        }
    }

    /// Ends the session with a close frame, if it can be written immediately, and lets the target close.
    fn close(mut self, worker: &Rc<Worker>) {
        let lasted = worker.clock.now().saturating_sub(self.opened);
        worker.tally.borrow_mut().sessions.duration.record(lasted);
        let counts = worker.counts(worker.clock.now());
        while let Some(message) = self.unread.pop_front() {
            unasked(worker, &message.response, counts);
        }
        self.say_close(1000);
        let _ = self.poll_write(&mut Context::from_waker(Waker::noop())); // best effort
        worker.close(self.stream);
    }
}

/// Counts a message that is no answer.
fn unasked(worker: &Worker, response: &Response, counts: bool) {
    let now = worker.clock.now();
    worker.received(now, response, now);
    if counts {
        let mut tally = worker.tally.borrow_mut();
        tally.sessions.received += 1;
        tally.sessions.unsolicited += 1;
    }
}
