//! One request and its answer over HTTP/1.1: like `engine::h1`, but one request at a time, with the answer's fields and
//! body kept for checks, keeps and cookies.

use crate::engine::worker::{EndReason, Slot, Worker};
use crate::transport::failure::{Failure, Wait};
use crate::transport::poll_write_rest;
use crate::transport::reader::Response;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use weir_h1::{
    BodyKind, BodyReader, Connection, Limits, Method, Progress, ResponseHead, Step, Version, parse_response,
};
use weir_report::report::Protocol;
use weir_wire::Transport;

/// An open connection.
pub(super) struct Conn {
    pub(super) stream: Transport,
    /// Its times until the first request is counted: blocked, connecting, TLS.
    pub(super) dialled: Option<[u64; 3]>,
}

/// What is needed to read an answer.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) is_head: bool,
    /// How much of the body is kept; 0 if nobody looks at it.
    pub(super) body_most: usize,
    /// The request asks for a WebSocket: 101 is its answer, and what follows belongs to the WebSocket.
    pub(super) upgrades: bool,
}

/// The parts of an answer; buffers of exchanges that are over are used again.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) head: ResponseHead,
    /// The body, or its beginning.
    pub(super) body: Vec<u8>,
    pub(super) response: Response,
    /// Whether `head` is still that of the answer before, which this one probably repeats.
    is_old: bool,
    /// Interim responses before it.
    interim: u32,
}

/// Most interim responses (1xx) before one answer.
const INTERIM_MOST: u32 = 100;

/// When the parts of an exchange happened.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) started: u64,
    pub(super) sent: u64,
    pub(super) first: u64,
    pub(super) done: u64,
}

/// What of an answer is read next.
enum Next {
    Body(BodyReader),
    Head,
    Length(u64),
}

impl Answered {
    /// Begins an answer with nothing of the one before.
    pub(super) fn begin(&mut self) {
        self.is_old = false;
        self.head.recycle(usize::MAX);
        self.body.clear();
        self.response = Response::default();
        self.interim = 0;
    }

    /// Begins an answer over HTTP/1.1. A head that was read to its end stays for comparison: nearly all answers of a
    /// step have the same, and reading it takes 1,500 instructions.
    fn begin_again(&mut self) {
        if self.head.wire_len() == 0 {
            return self.begin();
        }
        self.is_old = true;
        self.body.clear();
        self.response = Response::default();
        self.interim = 0;
    }

    /// Forgets the head of the answer before.
    fn forget_old(&mut self) {
        if std::mem::take(&mut self.is_old) {
            self.head.recycle(usize::MAX);
        }
    }

    fn keep(&mut self, data: &[u8], most: usize) {
        let room = most.saturating_sub(self.body.len()).min(data.len());
        self.body.extend_from_slice(data.get(..room).unwrap_or_default());
    }
}

/// Writes a request and reads its answer. `times.started` is given.
pub(super) async fn exchange(
    conn: &mut Conn,
    worker: &Worker,
    slot: &Slot,
    bytes: &[u8],
    wanted: Wanted,
    answer: &mut Answered,
    times: &mut Times,
) -> Result<(), Failure> {
    answer.begin_again();
    let (mut next, mut written) = (Next::Head, 0);
    let done = poll_fn(|cx| {
        slot.watch(cx);
        if let Some(end) = slot.end.take() {
            return Poll::Ready(Err(match (end, &next) {
                (EndReason::Cut, _) => Failure::Cut,
                (EndReason::Timeout, Next::Head) => Failure::Timeout(Wait::Head),
                (EndReason::Timeout, _) => Failure::Timeout(Wait::Body),
            }));
        }
        if times.sent == 0 {
            match poll_write(&mut conn.stream, cx, bytes, &mut written) {
                Poll::Ready(Ok(())) => times.sent = worker.clock.now(),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(Failure::Write(e.to_string()))),
                Poll::Pending => {}
            }
        }
        poll_answer(&mut conn.stream, cx, worker, &mut next, wanted, answer, times)
    })
    .await;
    answer.forget_old(); // nothing came
    done?;
    if Worker::is_late(slot, times.done) {
        let began_late = times.first > slot.deadline.get();
        return Err(Failure::Timeout(if began_late { Wait::Head } else { Wait::Body }));
    }
    if times.sent == 0 {
        // Answered before it was written: no other request can follow on the connection.
        (times.sent, answer.response.keeps) = (times.done, false);
    }
    Ok(())
}

fn poll_write(
    stream: &mut Transport,
    cx: &mut Context<'_>,
    bytes: &[u8],
    written: &mut usize,
) -> Poll<io::Result<()>> {
    ready!(poll_write_rest(stream, cx, bytes, written))?;
    stream.poll_flush(cx)
}

fn poll_answer(
    stream: &mut Transport,
    cx: &mut Context<'_>,
    worker: &Worker,
    next: &mut Next,
    wanted: Wanted,
    answer: &mut Answered,
    times: &mut Times,
) -> Poll<Result<(), Failure>> {
    let mut scratch = worker.scratch.borrow_mut();
    loop {
        scratch.clear();
        let n = match stream.poll_read(cx, &mut scratch) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(Failure::of_read(e))),
        };
        let now = worker.clock.now();
        if times.first == 0 {
            times.first = now;
        }
        times.done = now;
        if n == 0 {
            if let Next::Body(body) = next
                && body.ends_with_connection()
            {
                return Poll::Ready(Ok(()));
            }
            answer.forget_old();
            let has_begun = !matches!(next, Next::Head) || !answer.head.buffer().is_empty();
            let when = if has_begun { "in the middle of" } else { "before" };
            return Poll::Ready(Err(Failure::Reset(format!("the connection was closed {when} a response"))));
        }
        match feed(&scratch, next, wanted, answer) {
            Err(broken) => return Poll::Ready(Err(Failure::Protocol(broken))),
            Ok(None) => {}
            Ok(Some(used)) if wanted.upgrades && answer.head.status() == 101 => {
                answer.body.extend_from_slice(scratch.get(used..).unwrap_or_default());
                return Poll::Ready(Ok(()));
            }
            Ok(Some(used)) if used < n => {
                // RFC 9112 §9.2: nothing else was requested, so the length of the response was wrong.
                answer.response.framing_bytes += (n - used) as u64;
                let text = "extra bytes after the response: more than its Content-Length, or a body that it \
                            must not have";
                return Poll::Ready(Err(Failure::Protocol(text.to_owned())));
            }
            Ok(Some(_)) => return Poll::Ready(Ok(())),
        }
    }
}

/// Takes a piece of input. Returns how much of it completed the answer; none if more is needed.
fn feed(
    input: &[u8],
    next: &mut Next,
    wanted: Wanted,
    answer: &mut Answered,
) -> Result<Option<usize>, String> {
    let mut at = 0;
    loop {
        let rest = input.get(at..).unwrap_or_default();
        match next {
            Next::Head => {
                let Some(used) = read_head(rest, answer)? else { return Ok(None) };
                at += used;
                if answer.head.status() == 101 && wanted.upgrades {
                    answer.response.status = 101;
                    return Ok(Some(at));
                }
                if answer.head.status() < 200 {
                    answer.interim += 1;
                    if answer.interim > INTERIM_MOST {
                        return Err(format!("more than {INTERIM_MOST} interim responses"));
                    }
                    answer.head.recycle(usize::MAX); // an interim response: `rest` has the next head's beginning
                    continue;
                }
                *next = after_head(wanted, answer);
            }
            Next::Length(left) => {
                let len = (rest.len() as u64).min(*left);
                *left -= len;
                let is_done = *left == 0;
                answer.response.body_bytes += len;
                answer.keep(rest.get(..len as usize).unwrap_or_default(), wanted.body_most);
                return Ok(is_done.then_some(at + len as usize));
            }
            Next::Body(body) => match body.step(rest).map_err(|e| e.to_string())? {
                Step::Data { skip, len } => {
                    answer.response.framing_bytes += skip as u64;
                    answer.response.body_bytes += len as u64;
                    answer.keep(rest.get(skip..skip + len).unwrap_or_default(), wanted.body_most);
                    at += skip + len;
                }
                Step::End { used } => {
                    answer.response.framing_bytes += used as u64;
                    return Ok(Some(at + used));
                }
                Step::More => {
                    answer.response.framing_bytes += rest.len() as u64;
                    return Ok(None);
                }
            },
        }
    }
}

/// Reads one head. Returns how much of `rest` it used, or `None` if it is incomplete.
fn read_head(rest: &[u8], answer: &mut Answered) -> Result<Option<usize>, String> {
    if rest.is_empty() {
        return Ok(None);
    }
    if answer.is_old {
        let len = answer.head.wire_len();
        if answer.head.buffer().get(..len).is_some_and(|old| rest.starts_with(old)) {
            answer.is_old = false;
            answer.response.head_bytes += len as u64;
            return Ok(Some(len));
        }
        answer.forget_old();
    }
    let before = answer.head.buffer().len();
    // Copies no body behind the head.
    let end = if before == 0 { memchr::memmem::find(rest, b"\r\n\r\n").map(|at| at + 4) } else { None };
    let piece = end.and_then(|end| rest.get(..end)).unwrap_or(rest);
    answer.head.buffer_mut().extend_from_slice(piece);
    match parse_response(&mut answer.head, &Limits::default()) {
        Err(e) => match answer.head.buffer() {
            [20..=23, 3, ..] => Err("the data received is TLS: is this an https port?".to_owned()),
            _ => Err(e.to_string()),
        },
        Ok(Progress::Partial) => Ok(None),
        Ok(Progress::Complete) => {
            let len = answer.head.wire_len();
            answer.response.head_bytes += len as u64;
            Ok(Some(len.saturating_sub(before)))
        }
    }
}

fn after_head(wanted: Wanted, answer: &mut Answered) -> Next {
    let head = &answer.head;
    let method = if wanted.is_head { Method::Head } else { Method::Get };
    let kind = head.body(method);
    let response = &mut answer.response;
    response.status = head.status();
    response.keeps = head.connection() == Connection::KeepAlive && kind != BodyKind::UntilClose;
    response.protocol = match head.version() {
        Version::Http10 => Protocol::Http10,
        Version::Http11 => Protocol::Http11,
        Version::Http2 => Protocol::Http2,
        Version::Http3 => Protocol::Http3,
    };
    match kind {
        BodyKind::Empty => Next::Length(0),
        BodyKind::Length(n) => Next::Length(n),
        other => Next::Body(BodyReader::new(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one answer, fed in pieces of `size`: status, body, bytes on the wire, whether the connection persists.
    fn read(wire: &str, size: usize, wanted: Wanted) -> Result<(u16, String, u64, bool), String> {
        let (mut answer, mut next) = (Answered::default(), Next::Head);
        answer.begin();
        for piece in wire.as_bytes().chunks(size) {
            if let Some(used) = feed(piece, &mut next, wanted, &mut answer)? {
                if used < piece.len() {
                    return Err(format!("{} bytes too many", piece.len() - used));
                }
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                return Ok((
                    answer.response.status,
                    body,
                    answer.response.wire_bytes(),
                    answer.response.keeps,
                ));
            }
        }
        Err("more".to_owned())
    }

    const ALL: Wanted = Wanted { is_head: false, body_most: 100, upgrades: false };

    #[test]
    fn answers_are_read_in_any_pieces() {
        for (wire, status, body, keeps) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", true),
            ("HTTP/1.1 201 C\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 201, "abc", true),
            ("HTTP/1.1 103 H\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\nConnection: close\r\n\r\n", 204, "", false),
            ("HTTP/1.1 304 No\r\nEtag: x\r\n\r\n", 304, "", true),
        ] {
            for size in 1..=wire.len() {
                let want = (status, body.to_owned(), wire.len() as u64, keeps);
                assert_eq!(read(wire, size, ALL), Ok(want), "in pieces of {size}: {wire}");
            }
        }
    }

    #[test]
    fn an_answer_after_another_is_read_as_the_first_one_is() {
        let heads = ["Content-Length: 5\r\n", "Content-Length: 5\r\nEtag: x\r\n", "Content-Length: 2\r\n"];
        let mut answer = Answered::default();
        for turn in 0..40 {
            let (fields, body) = (heads[turn / 3 % 3], if turn / 3 % 3 == 2 { "ok" } else { "hello" });
            let wire = format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}");
            answer.begin_again();
            let mut next = Next::Head;
            let mut used = None;
            for piece in wire.as_bytes().chunks([wire.len(), 7, 30][turn % 3]) {
                used = feed(piece, &mut next, ALL, &mut answer).unwrap();
            }
            let found = (answer.body.as_slice(), answer.response.wire_bytes(), answer.response.status);
            assert_eq!(found, (body.as_bytes(), wire.len() as u64, 200), "{turn}");
            assert!(
                used.is_some() && answer.head.headers.get_str("etag").is_some() == fields.contains("Etag")
            );
        }
    }

    #[test]
    fn interim_responses_end() {
        let many = |count| "HTTP/1.1 103 H\r\n\r\n".repeat(count) + "HTTP/1.1 204 No\r\n\r\n";
        assert_eq!(read(&many(100), 37, ALL).unwrap().0, 204);
        assert!(read(&many(101), 37, ALL).unwrap_err().contains("interim"));
    }

    #[test]
    fn only_the_wanted_part_of_a_body_is_kept() {
        let wire = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
        let few = Wanted { body_most: 4, ..ALL };
        assert_eq!(read(wire, 3, few).unwrap().1, "0123");
        let head = Wanted { is_head: true, ..ALL };
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", 99, head).unwrap().0, 200);
    }

    #[test]
    fn what_breaks_a_rule_is_an_error() {
        for bad in [
            "SSH-2.0-x\r\n",
            "\x15\x03\x01\x00\x02\x02\x50",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
        ] {
            assert_ne!(read(bad, 200, ALL).unwrap_err(), "more", "{bad}");
        }
    }
}
