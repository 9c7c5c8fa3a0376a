//! Parses responses from bytes: weir-h1 parses heads; bodies are counted and discarded. No sockets and no clock.
//!
//! Most responses repeat the same head. The last head is kept and compared before parsing: equal bytes mean the same.

use super::response_kind::{KindId, Kinds, Marks};
use crate::check::BODY_KEPT;
use crate::grpc::Code;
use weir_h1::{
    BodyKind, BodyReader, Connection, Limits, Method, Progress, ResponseHead, Step, Version, parse_response,
};
use weir_report::report::Protocol;

/// State that all connections of a thread share.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    head: ResponseHead,
    last: Known,
    limits: Limits,
    /// How often `last` changed.
    version: u64,
    /// The kinds of responses seen.
    pub(crate) kinds: Kinds,
}

/// A head and its meaning.
#[derive(Debug, Default, Clone)]
struct Known {
    /// Never empty once known.
    bytes: Vec<u8>,
    meaning: Meaning,
    /// Length of head and body, if the head alone says that the response is good, how long it is, and that the
    /// connection persists; otherwise 0.
    whole: usize,
}

impl Known {
    /// The response to anything but HEAD that consists of this head and the body that it announces.
    fn response(&self) -> Option<Response> {
        let Meaning { status, kind, keeps, protocol, maker } = self.meaning;
        let body_bytes = match kind {
            BodyKind::Empty => 0,
            BodyKind::Length(n) => n,
            _ => return None,
        };
        let head_bytes = self.bytes.len() as u64;
        let response =
            Response { status, head_bytes, body_bytes, keeps, protocol, maker, ..Response::default() };
        // 101 changes the protocol.
        let is_plain = status != 101 && keeps && response.is_good() && response.is_expected();
        is_plain.then_some(response)
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Meaning {
    status: u16,
    /// How the body of a response to anything but HEAD is delimited.
    kind: BodyKind,
    keeps: bool,
    protocol: Protocol,
    maker: KindId,
}

impl Parser {
    /// Whether the bytes are one whole response that has the last head and a body of the length that it announces,
    /// so that [`Parser::repeated`] describes it.
    #[inline]
    pub(crate) fn is_repeat(&self, input: &[u8]) -> bool {
        input.len() == self.last.whole && input.starts_with(&self.last.bytes)
    }

    /// How often the last head changed.
    #[inline]
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// The response for which [`Parser::is_repeat`] looks.
    pub(crate) fn repeated(&self) -> Option<Response> {
        self.last.response()
    }
}

/// Reads the responses of one connection in sequence.
#[derive(Debug)]
pub(crate) struct Reader {
    state: State,
    /// The beginning of an incomplete head.
    partial: Vec<u8>,
    response: Response,
    /// Collects the bytes of bodies, if wanted.
    kept: Option<Vec<u8>>,
}

#[derive(Debug)]
enum State {
    Body(BodyReader),
    Head,
    /// Remaining `Content-Length` bytes; a separate case because almost every response is of this kind.
    Length(u64),
}

/// One response, complete or in progress.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Bytes of heads, including interim responses.
    pub(crate) head_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) framing_bytes: u64,
    /// Whether the connection may serve another request.
    pub(crate) keeps: bool,
    pub(crate) protocol: Protocol,
    /// How a gRPC call ended.
    pub(crate) grpc: Option<Code>,
    /// Whether it should be gRPC but is not.
    pub(crate) is_no_grpc: bool,
    /// gRPC messages in the body.
    pub(crate) messages: u64,
    /// Who made it.
    pub(crate) maker: KindId,
}

impl Response {
    /// Whether the response is as expected: see [`Report::expected`](weir_report::Report::expected).
    pub(crate) fn is_expected(&self) -> bool {
        self.grpc.map_or_else(|| weir_report::report::is_expected(self.status), |code| code == Code::OK)
    }

    /// All its bytes.
    pub(crate) const fn wire_bytes(&self) -> u64 {
        self.head_bytes + self.body_bytes + self.framing_bytes
    }

    /// Whether its body is complete and valid.
    pub(crate) fn is_good(&self) -> bool {
        self.grpc.map_or(self.status == 101 || (200..300).contains(&self.status), |code| code == Code::OK)
    }
}

/// The result of a piece of input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// A response is complete after this many bytes of the input.
    Complete(usize, Response),
    /// All input is used and more is needed.
    More,
}

/// The violation in a response; the connection is unusable afterwards.
pub(crate) type Broken = String;

impl Reader {
    /// Whether nothing of the next response has arrived.
    pub(crate) fn is_between(&self) -> bool {
        !self.is_in_body() && self.partial.is_empty() && self.response == Response::default()
    }

    /// Whether the head has arrived but not all of the body.
    pub(crate) const fn is_in_body(&self) -> bool {
        !matches!(self.state, State::Head)
    }

    pub(crate) fn new(keeps_bodies: bool) -> Self {
        Self {
            state: State::Head,
            partial: Vec::new(),
            response: Response::default(),
            kept: keeps_bodies.then(Vec::new),
        }
    }

    /// Takes the next piece of input. `is_head` says that the request was a HEAD.
    pub(crate) fn feed(&mut self, input: &[u8], is_head: bool, parser: &mut Parser) -> Result<Fed, Broken> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            match &mut self.state {
                State::Head => {
                    if rest.is_empty() {
                        return Ok(Fed::More);
                    }
                    let Some(used) = self.head(rest, is_head, parser)? else { return Ok(Fed::More) };
                    at += used;
                }
                State::Length(left) => {
                    let len = (rest.len() as u64).min(*left);
                    *left -= len;
                    self.response.body_bytes += len;
                    let done = *left == 0;
                    keep(&mut self.kept, rest.get(..len as usize).unwrap_or_default(), BODY_KEPT);
                    if !done {
                        return Ok(Fed::More);
                    }
                    return Ok(self.complete(at + len as usize));
                }
                State::Body(body) => match body.step(rest).map_err(|e| {
                    self.response.framing_bytes += rest.len() as u64; // counts as read, whatever it is
                    e.to_string()
                })? {
                    Step::Data { skip, len } => {
                        self.response.body_bytes += len as u64;
                        self.response.framing_bytes += skip as u64;
                        keep(&mut self.kept, rest.get(skip..skip + len).unwrap_or_default(), BODY_KEPT);
                        at += skip + len;
                    }
                    Step::End { used } => {
                        self.response.framing_bytes += used as u64;
                        return Ok(self.complete(at + used));
                    }
                    Step::More => {
                        self.response.framing_bytes += rest.len() as u64;
                        return Ok(Fed::More);
                    }
                },
            }
        }
    }

    /// The connection ended: returns the response that this completes, if any.
    pub(crate) fn end(&mut self) -> Option<Response> {
        match &self.state {
            State::Body(body) if body.ends_with_connection() => {
                let Fed::Complete(_, response) = self.complete(0) else { return None };
                Some(response)
            }
            _ => None,
        }
    }

    /// Whether any byte of the next response was read.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.state, State::Head) || !self.partial.is_empty() || self.response.head_bytes > 0
    }

    /// What was read of an incomplete response.
    pub(crate) fn unfinished(&self) -> Response {
        let mut response = self.response;
        response.head_bytes += self.partial.len() as u64;
        response
    }

    /// The kept bytes of the body of the response just completed.
    pub(crate) fn body(&self) -> &[u8] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// Reads one head. Returns how much of `rest` it used, or `None` if the head is incomplete.
    fn head(&mut self, rest: &[u8], is_head: bool, parser: &mut Parser) -> Result<Option<usize>, Broken> {
        if self.response == Response::default()
            && let Some(kept) = &mut self.kept
        {
            kept.clear();
        }
        let known = &parser.last;
        // Compares instead of parsing, which costs 150 ns for such a head (`parse_bench` of weir-h1), 2 % of a
        // request.
        if self.partial.is_empty() && !known.bytes.is_empty() && rest.starts_with(&known.bytes) {
            let used = known.bytes.len();
            self.begin(known.meaning, used, is_head);
            return Ok(Some(used));
        }
        let before = self.partial.len();
        if before > 0 {
            self.partial.extend_from_slice(rest);
            // Does not search the same bytes again for each byte from a slow target.
            let fresh = self.partial.get(before.saturating_sub(3)..).unwrap_or_default();
            if memchr::memmem::find(fresh, b"\r\n\r\n").is_none()
                && self.partial.len() < parser.limits.head_bytes
            {
                return Ok(None);
            }
        }
        let head = &mut parser.head;
        head.recycle(usize::MAX);
        head.buffer_mut().extend_from_slice(if before > 0 { &self.partial } else { rest });
        let parsed = parse_response(head, &parser.limits).map_err(|e| broken(e, head.buffer()));
        if parsed.is_err() && before == 0 {
            self.partial.extend_from_slice(rest); // bytes of an incomplete head count
        }
        match parsed? {
            Progress::Partial if before > 0 => Ok(None),
            Progress::Partial => {
                self.partial.extend_from_slice(rest);
                Ok(None)
            }
            Progress::Complete => {
                let len = head.wire_len();
                let mut marks = Marks::default();
                head.headers.iter().for_each(|(name, value)| marks.field(name, value));
                let meaning = Meaning {
                    maker: parser.kinds.of(marks),
                    status: head.status(),
                    kind: head.body(Method::Get),
                    keeps: head.connection() == Connection::KeepAlive,
                    protocol: match head.version() {
                        Version::Http10 => Protocol::Http10,
                        Version::Http11 => Protocol::Http11,
                        Version::Http2 => Protocol::Http2,
                        Version::Http3 => Protocol::Http3,
                    },
                };
                parser.last.bytes.clear();
                parser.last.bytes.extend_from_slice(head.buffer().get(..len).unwrap_or_default());
                parser.last.meaning = meaning;
                let repeated = parser.last.response();
                parser.last.whole = repeated.map_or(0, |r| usize::try_from(r.wire_bytes()).unwrap_or(0));
                parser.version += 1;
                self.partial = Vec::new();
                self.begin(meaning, len, is_head);
                Ok(Some(len.saturating_sub(before)))
            }
        }
    }

    fn begin(&mut self, meaning: Meaning, len: usize, is_head: bool) {
        self.response.head_bytes += len as u64;
        if meaning.status < 200 {
            return; // an interim response: the next head follows
        }
        let kind = if is_head { BodyKind::Empty } else { meaning.kind };
        self.response.status = meaning.status;
        self.response.keeps = meaning.keeps && kind != BodyKind::UntilClose;
        self.response.protocol = meaning.protocol;
        self.response.maker = meaning.maker;
        self.state = match kind {
            BodyKind::Empty => State::Length(0),
            BodyKind::Length(n) => State::Length(n),
            other => State::Body(BodyReader::new(other)),
        };
    }

    fn complete(&mut self, used: usize) -> Fed {
        self.state = State::Head;
        Fed::Complete(used, std::mem::take(&mut self.response))
    }
}

/// Describes a malformed head. A TLS record, usually an alert, is the reaction of a TLS port to cleartext.
fn broken(e: weir_h1::Error, head: &[u8]) -> Broken {
    match head {
        [20..=23, 3, ..] => "the data received is TLS: is this an https port?".to_owned(),
        _ => e.to_string(),
    }
}

#[inline]
pub(crate) fn keep(kept: &mut Option<Vec<u8>>, data: &[u8], most: usize) {
    if let Some(kept) = kept {
        let room = most.saturating_sub(kept.len()).min(data.len());
        kept.extend_from_slice(data.get(..room).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all responses in `wire`, fed in pieces of `size`: status, body, framing, and whether the connection
    /// persists.
    fn read(wire: &str, size: usize, is_head: bool) -> Result<Vec<(u16, u64, bool, String)>, Broken> {
        let (mut reader, mut parser) = (Reader::new(true), Parser::default());
        let mut all = Vec::new();
        for mut piece in wire.as_bytes().chunks(size) {
            while let Fed::Complete(used, r) = reader.feed(piece, is_head, &mut parser)? {
                let body = String::from_utf8_lossy(reader.body()).into_owned();
                assert_eq!(r.body_bytes, body.len() as u64);
                all.push((r.status, r.head_bytes + r.body_bytes + r.framing_bytes, r.keeps, body));
                piece = &piece[used..];
            }
        }
        if let Some(r) = reader.end() {
            all.push((r.status, r.head_bytes + r.body_bytes + r.framing_bytes, r.keeps, String::new()));
        }
        Ok(all)
    }

    #[test]
    fn responses_are_read_in_any_pieces() {
        let one = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "HTTP/1.1 201 C\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let interim = "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\nConnection: close\r\n\r\n";
        let wire = [one, one, chunked, one, interim].concat();
        let want = vec![
            (200, one.len() as u64, true, "hello".to_owned()),
            (200, one.len() as u64, true, "hello".to_owned()),
            (201, chunked.len() as u64, true, "abc".to_owned()),
            (200, one.len() as u64, true, "hello".to_owned()),
            (204, interim.len() as u64, false, String::new()),
        ];
        for size in 1..=wire.len() {
            assert_eq!(read(&wire, size, false), Ok(want.clone()), "in pieces of {size}");
        }
    }

    #[test]
    fn a_body_may_end_with_the_connection_and_a_head_may_have_none() {
        let until_close = "HTTP/1.0 200 OK\r\n\r\nhello";
        let read_all = read(until_close, 7, false).unwrap();
        assert_eq!((read_all[0].0, read_all[0].1, read_all[0].2), (200, until_close.len() as u64, false));
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(read(&head.repeat(2), 100, true).unwrap().len(), 2);
        assert_eq!(read(head, 100, false), Ok(vec![]));
    }

    #[test]
    fn what_was_read_of_a_broken_response_counts() {
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        for bad in [
            "HTTP/1.1 200 OK\nA: b\n\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 103 A\r\n\r\nHTTP/1.1 999 Foo\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nxx\r\n",
        ] {
            let (mut reader, mut parser) = (Reader::new(false), Parser::default());
            let wire = [good, bad].concat();
            let Ok(Fed::Complete(used, first)) = reader.feed(wire.as_bytes(), false, &mut parser) else {
                panic!("{bad}");
            };
            assert!(reader.feed(&wire.as_bytes()[used..], false, &mut parser).is_err(), "{bad}");
            assert_eq!(first.wire_bytes() + reader.unfinished().wire_bytes(), wire.len() as u64, "{bad}");
        }
    }

    #[test]
    fn what_breaks_a_rule_is_an_error() {
        for bad in [
            "HTTP/1.1 200 OK\nA: b\n\n",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ] {
            assert!(read(bad, 100, false).is_err(), "{bad}");
        }
    }
}
