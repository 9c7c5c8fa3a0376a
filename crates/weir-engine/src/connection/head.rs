//! Reads the next request head of a connection, parses it as bytes arrive, and gives up when its time is over.

use crate::client::Client;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weir_h1::{Kind, Progress, RequestHead, parse_request};
use weir_telemetry::Closed;
use weir_upstream::error::{self, Cause};
use weir_wire::h2::{Opening, opening};

/// Why no (further) request came.
pub(super) enum NoRequest {
    Closed(Closed),
    /// The connection begins with the HTTP/2 preface.
    Http2(Box<RequestHead>),
    Refused(Box<RequestHead>, Instant, &'static Cause, Option<weir_h1::Error>),
}

/// Why no head was read.
enum Unread {
    /// It broke a rule.
    Broken(weir_h1::Error),
    /// The client left or its time is over.
    Ended,
    Http2,
    /// The client speaks HTTP/1.1 where only HTTP/2 is allowed.
    NotSpoken,
}

/// A head being read.
struct HeadRead {
    /// Borrowed from the core once a byte has arrived.
    head: Option<Box<RequestHead>>,
    /// Whether the connection has brought a request before.
    reused: bool,
    /// When its first byte arrived.
    started: Option<Instant>,
    /// What the deadline was last set for.
    armed: Option<Awaited>,
    /// The time, if it was read in this poll of the task.
    now: Option<Instant>,
}

/// What the deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    FirstByte,
    RestOfHead,
}

impl HeadRead {
    /// Ready with the time at which the head began once it is complete, or with the reason why none will come.
    fn poll(&mut self, client: &mut Client, cx: &mut Context<'_>) -> Poll<Result<Instant, Unread>> {
        let mut has_looked = false;
        loop {
            if let Some(read) = self.parse(client) {
                return Poll::Ready(read);
            }
            match self.poll_read(client, cx) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Unread::Ended)),
                Poll::Ready(Ok(_)) => _ = self.started.get_or_insert_with(Instant::now),
                Poll::Pending if self.head.is_some() || !client.handle.closes_idle() => break,
                Poll::Pending if has_looked => return Poll::Ready(Err(Unread::Ended)),
                // A request may have arrived that the driver has not reported: closing would reset the connection.
                Poll::Pending => {
                    has_looked = true;
                    client.stream.look_again();
                }
            }
        }
        self.arm(client);
        self.now = None;
        client.deadline.poll_passed(cx).map(|()| Err(Unread::Ended))
    }

    /// What the bytes so far are, if they suffice to decide.
    fn parse(&mut self, client: &Client) -> Option<Result<Instant, Unread>> {
        let head = self.head.as_mut().filter(|head| !head.buffer().is_empty())?;
        let started = *self.started.get_or_insert_with(Instant::now);
        let http1 = client.listener.spec.http1;
        match if self.reused { Opening::Other } else { client.opening(head.buffer()) } {
            Opening::Http2 => return Some(Err(Unread::Http2)),
            Opening::Maybe => return None,
            Opening::Other => {}
        }
        match parse_request(head, &client.core.head_limits()) {
            Ok(Progress::Complete) if !http1 => Some(Err(Unread::NotSpoken)),
            Ok(Progress::Complete) => Some(Ok(started)),
            Ok(Progress::Partial) => None,
            // Neither protocol: any answer might be misunderstood.
            Err(_) if !http1 => Some(Err(Unread::Ended)),
            Err(e) => Some(Err(Unread::Broken(e))),
        }
    }

    fn poll_read(&mut self, client: &mut Client, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Do not borrow a head only to find the socket silent.
        if !client.stream.may_read(cx) {
            return Poll::Pending;
        }
        let mut head = self.head.take().unwrap_or_else(|| client.core.take_request());
        let read = client.stream.poll_read(cx, head.buffer_mut());
        if !head.buffer().is_empty() || read.is_ready() {
            self.head = Some(head);
        } else {
            client.core.give_request(head);
        }
        read
    }

    /// Sets the deadline when the awaited thing changes, not per byte. The first head's limit counts from the start
    /// of the connection.
    fn arm(&mut self, client: &mut Client) {
        let awaited = if self.head.is_some() { Awaited::RestOfHead } else { Awaited::FirstByte };
        if self.armed == Some(awaited) || (self.armed.is_some() && !self.reused) {
            return;
        }
        self.armed = Some(awaited);
        let timeouts = &client.listener.spec.timeouts;
        let idle = self.reused && awaited == Awaited::FirstByte;
        let now = self.now.take().unwrap_or_else(Instant::now);
        client.deadline.set(now, if idle { timeouts.keepalive } else { timeouts.head });
    }
}

impl Client {
    /// Reads the next head. `kept` holds bytes that came with the last request; `now` is the time if it was just
    /// read.
    pub(super) async fn read_head(
        &mut self,
        kept: Option<Box<RequestHead>>,
        reused: bool,
        now: Option<Instant>,
    ) -> Result<(Box<RequestHead>, Instant, Duration), NoRequest> {
        let mut read = HeadRead { head: kept, reused, started: None, armed: None, now };
        let outcome = poll_fn(|cx| read.poll(self, cx)).await;
        let HeadRead { head, started, armed, .. } = read;
        let since = || started.unwrap_or_else(Instant::now);
        match (outcome, head) {
            (Ok(_), Some(head)) if !self.adopt_listener() => {
                self.core.give_request(head);
                Err(NoRequest::Closed(Closed::Drain))
            }
            (Ok(since), Some(head)) => {
                // A head that arrived in one piece took too little time to read the clock.
                let slow = armed == Some(Awaited::RestOfHead);
                Ok((head, since, if slow { since.elapsed() } else { Duration::ZERO }))
            }
            (Err(Unread::Broken(_)), Some(head)) if begins_handshake(head.buffer()) => {
                Err(NoRequest::Refused(head, since(), &error::UNEXPECTED_TLS, None))
            }
            (Err(Unread::Broken(e)), Some(head)) => {
                Err(NoRequest::Refused(head, since(), cause_of(e.kind()), Some(e)))
            }
            (Err(Unread::NotSpoken), Some(head)) => {
                Err(NoRequest::Refused(head, since(), &error::VERSION, None))
            }
            (Err(Unread::Http2), Some(head)) => Err(NoRequest::Http2(head)),
            (_, Some(head)) if !head.buffer().is_empty() => {
                if self.is_late() {
                    return Err(NoRequest::Refused(head, since(), &error::HEAD_TIMEOUT, None));
                }
                self.core.give_request(head); // half a head and then the end: no client to answer
                self.core.count(&error::CLIENT_CLOSED);
                Err(NoRequest::Closed(Closed::Error))
            }
            (_, head) => {
                if let Some(head) = head {
                    self.core.give_request(head);
                }
                Err(NoRequest::Closed(self.why_none(reused)))
            }
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.at().is_some_and(|at| at <= Instant::now())
    }

    /// Why a connection ends without a byte of a request.
    fn why_none(&self, reused: bool) -> Closed {
        match (self.handle.closing.get(), self.is_late(), reused) {
            (true, ..) => Closed::Drain,
            (_, true, true) => Closed::Idle,
            (_, true, false) => {
                self.core.count(&error::HEAD_TIMEOUT);
                Closed::Timeout
            }
            _ => Closed::Client,
        }
    }

    /// Which protocol the connection's first bytes suggest.
    fn opening(&self, first: &[u8]) -> Opening {
        if self.listener.spec.h2 { opening(first) } else { Opening::Other }
    }
}

/// Whether these bytes begin like a TLS handshake: a record of type 22, version 3.x (RFC 9846 §5.1). No head of HTTP
/// begins with 22, a control character.
const fn begins_handshake(first: &[u8]) -> bool {
    matches!(first, [22] | [22, 3, ..])
}

/// The cause for a rule of the parser that was broken.
pub const fn cause_of(kind: Kind) -> &'static Cause {
    match kind {
        Kind::Chunk | Kind::Trailers => &error::BAD_CHUNK,
        Kind::ContentLength | Kind::Framing | Kind::TransferEncoding => &error::BAD_FRAMING,
        Kind::Expect => &error::EXPECTATION_FAILED,
        Kind::HeadTooLarge => &error::HEADER_TOO_LARGE,
        Kind::Host => &error::BAD_HOST,
        Kind::Target => &error::BAD_TARGET,
        Kind::TargetTooLong => &error::TARGET_TOO_LONG,
        Kind::TooManyFields => &error::TOO_MANY_HEADERS,
        Kind::Version => &error::VERSION,
        _ => &error::BAD_HEAD,
    }
}
