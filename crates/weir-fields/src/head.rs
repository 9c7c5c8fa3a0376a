//! Received heads of HTTP/2 and HTTP/3 as HTTP/1.1 text (RFC 9113 §8, RFC 9114 §4). `render` does the reverse for sent
//! heads.
//!
//! Fields are decoded straight into the buffer that `weir-h1` parses. What HTTP/1.1 lacks (pseudo-fields, Extended
//! CONNECT) becomes its HTTP/1.1 equivalent; connection-specific fields are malformed (RFC 9113 §8.2.2, RFC 9114
//! §4.2). Both protocols have the same rules; comments cite HTTP/2's. This module rejects anything that would move the
//! end of a head or change its kind; the parser judges the rest.

use super::Priority;
use super::swar::is_free_of_controls;

/// A head that breaks this rule: its stream is reset (RFC 9113 §8.1.1, RFC 9114 §4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// The facts of a head beside its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFacts {
    /// The status of a response.
    pub status: u16,
    /// The announced length of the body.
    pub length: Option<u64>,
    /// Whether it requests a WebSocket (RFC 8441).
    pub tunnel: bool,
    /// How many bytes of it are held in memory.
    pub held: usize,
    /// The field `priority` of a request (RFC 9218 §5).
    pub priority: Option<Priority>,
}

/// Buffers for reading a head, reused from head to head.
#[derive(Debug, Default)]
pub struct Scratch {
    pseudo: [Vec<u8>; 5],
    cookies: Vec<u8>,
}

/// Indexes of a request's pseudo-fields in [`Scratch`].
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;

/// Largest buffer kept for the next head.
const KEPT: usize = 4 * 1024;

impl Scratch {
    /// Bytes of memory that the buffers hold.
    pub fn capacity(&self) -> usize {
        self.pseudo.iter().chain([&self.cookies]).map(Vec::capacity).sum()
    }

    /// Shrinks buffers that a large head has grown.
    pub fn trim(&mut self) {
        for buffer in self.pseudo.iter_mut().chain([&mut self.cookies]) {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }
}

/// Most bytes of fields that leave no text.
const MOST_DROPPED: usize = 8 * 1024;

/// Writes one head as text.
#[derive(Debug)]
pub struct Reader<'a> {
    kind: Kind<'a>,
    text: &'a mut Vec<u8>,
    scratch: &'a mut Scratch,
    /// Most bytes of text. A longer request head stays without its end, and the parser rejects it as too large.
    most: usize,
    told: HeadFacts,
    /// The pseudo-fields seen so far, as a bit set.
    seen: u8,
    /// The start line is written.
    begun: bool,
    /// A `host` field repeated `:authority`.
    host_again: bool,
    te_trailers: bool,
    /// Bytes of fields that left no text: with QPACK and HPACK, each costs the peer a byte, and us a look at its value.
    dropped: usize,
    full: bool,
    malformed: Option<Malformed>,
}

/// The message part that the fields belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A request's.
    Request,
    /// A response's fields. `accept` is the answer to the WebSocket key, if the request asked for a WebSocket.
    Response {
        /// Sent as `sec-websocket-accept`.
        accept: Option<&'a str>,
    },
    /// Trailers.
    Trailers,
}

impl<'a> Reader<'a> {
    /// Appends a head to `text`, of which `most` bytes may be held.
    pub fn new(kind: Kind<'a>, text: &'a mut Vec<u8>, scratch: &'a mut Scratch, most: usize) -> Self {
        scratch.cookies.clear();
        Self {
            kind,
            most: text.len().saturating_add(most),
            text,
            scratch,
            told: HeadFacts::default(),
            seen: 0,
            begun: false,
            host_again: false,
            te_trailers: false,
            dropped: 0,
            full: false,
            malformed: None,
        }
    }

    /// Adds a field. Once the head is malformed or too large, further fields are ignored; HPACK still requires
    /// decoding them all; for QPACK see [`Reader::wants_more`].
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.malformed.is_some() || self.full {
            return;
        }
        let taken = match name.strip_prefix(b":") {
            Some(name) => self.pseudo(name, value),
            None => {
                let before = self.text.len() + self.scratch.cookies.len();
                let taken = self.regular(name, value);
                if self.text.len() + self.scratch.cookies.len() == before {
                    self.dropped += name.len() + value.len() + b": \r\n".len();
                }
                if self.dropped > MOST_DROPPED {
                    Err(Malformed("too many fields without use"))
                } else {
                    taken
                }
            }
        };
        self.malformed = taken.err();
        self.full = self.text.len() + self.scratch.cookies.len() > self.most;
    }

    /// Whether further fields matter: the head is neither malformed nor too large.
    pub const fn wants_more(&self) -> bool {
        self.malformed.is_none() && !self.full
    }

    /// Ends the head. `key` makes the `sec-websocket-key` that HTTP/1.1 requires.
    ///
    /// # Errors
    /// When the head is malformed.
    pub fn finish(mut self, key: impl FnOnce() -> String) -> Result<HeadFacts, Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        self.begin()?;
        if !self.scratch.cookies.is_empty() {
            // RFC 9113 §8.2.3: clients split cookies to compress them better; HTTP/1.1 allows only one Cookie field.
            pieces(self.text, &[b"cookie: ", &self.scratch.cookies, b"\r\n"]);
        }
        if self.full {
            return match self.kind {
                Kind::Request => Ok(self.told),
                // The bytes after a response's text are its body, and must not become part of its head.
                Kind::Response { .. } => Err(Malformed("a head that is too large")),
                Kind::Trailers => Err(Malformed("trailers are too large")),
            };
        }
        match self.kind {
            Kind::Request if self.told.tunnel => {
                let protocol = &self.scratch.pseudo[PROTOCOL];
                pieces(self.text, &[b"connection: upgrade\r\nupgrade: ", protocol]);
                pieces(self.text, &[b"\r\nsec-websocket-key: ", key().as_bytes(), b"\r\n"]);
            }
            Kind::Request if self.te_trailers => {
                self.text.extend_from_slice(b"connection: te\r\nte: trailers\r\n");
            }
            Kind::Response { accept: Some(accept) } if self.told.status == 101 => {
                let upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ";
                pieces(self.text, &[upgrade, accept.as_bytes(), b"\r\n"]);
            }
            Kind::Request | Kind::Response { .. } => {}
            Kind::Trailers => return Ok(self.told),
        }
        self.text.extend_from_slice(b"\r\n");
        Ok(self.told)
    }

    /// RFC 9113 §8.3: only known pseudo-fields, each once, before all other fields.
    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let place = match (self.kind, name) {
            (Kind::Request, b"method") | (Kind::Response { .. }, b"status") => METHOD,
            (Kind::Request, b"scheme") => SCHEME,
            (Kind::Request, b"authority") => AUTHORITY,
            (Kind::Request, b"path") => PATH,
            (Kind::Request, b"protocol") => PROTOCOL,
            _ => return Err(Malformed("a pseudo-field that has no place here")),
        };
        let came = 1 << place;
        // A space would end the token in the start line, and a line break the line.
        let is_word = is_free_of_controls(value, b' ' + 1);
        if self.begun || self.seen & came != 0 || !is_word {
            return Err(Malformed(
                "a pseudo-field that is repeated, after other fields, or not valid in a start line",
            ));
        }
        self.seen |= came;
        let kept = &mut self.scratch.pseudo[place];
        kept.clear();
        kept.extend_from_slice(value);
        Ok(())
    }

    fn came(&self, place: usize) -> Option<&[u8]> {
        (self.seen & (1 << place) != 0).then_some(&self.scratch.pseudo[place][..])
    }

    /// Writes the start line, unless it is already written.
    fn begin(&mut self) -> Result<(), Malformed> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        match self.kind {
            Kind::Request => self.begin_request(),
            Kind::Response { accept } => self.begin_response(accept.is_some()),
            Kind::Trailers => Ok(()),
        }
    }

    fn begin_request(&mut self) -> Result<(), Malformed> {
        let method = self.came(METHOD).filter(|m| !m.is_empty()).ok_or(Malformed("no method"))?;
        let is_connect = method == b"CONNECT";
        let protocol = self.came(PROTOCOL);
        let has = |place: usize| self.seen & (1 << place) != 0;
        let is_whole = match (is_connect, protocol) {
            // RFC 9113 §8.5.
            (true, None) => has(AUTHORITY) && !has(SCHEME) && !has(PATH),
            // RFC 8441 §4.
            (true, Some(_)) => has(AUTHORITY) && has(SCHEME) && has(PATH),
            (false, None) => has(SCHEME) && has(PATH),
            (false, Some(_)) => false,
        };
        let path = self.came(PATH);
        if !is_whole || path.is_some_and(|path| path != b"*" && !path.starts_with(b"/")) {
            return Err(Malformed("pseudo-fields that make no request"));
        }
        // A CONNECT for any other protocol is a plain CONNECT, which we refuse.
        let tunnel = protocol.is_some_and(|p| p.eq_ignore_ascii_case(b"websocket"));
        let [method, scheme, authority, path, _] = &self.scratch.pseudo;
        let is_known = [&b"http"[..], b"https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        match (tunnel, is_connect) {
            // RFC 9110 §4.2: we serve no other scheme. HTTP/1.1 refuses such a target too, and nobody may see it as the
            // path alone. The name of the scheme is the client's text and stays out.
            (true, _) | (false, false) if !is_known => pieces(self.text, &[method, b" ://", authority, path]),
            (true, _) => pieces(self.text, &[b"GET ", path]),
            (false, true) => pieces(self.text, &[b"CONNECT ", authority]),
            (false, false) => pieces(self.text, &[method, b" ", path]),
        }
        self.text.extend_from_slice(b" HTTP/1.1\r\n");
        if has(AUTHORITY) && !authority.is_empty() {
            pieces(self.text, &[b"host: ", authority, b"\r\n"]);
        }
        self.told.tunnel = tunnel;
        Ok(())
    }

    fn begin_response(&mut self, asked_for_tunnel: bool) -> Result<(), Malformed> {
        let none = Malformed("no status, or one that is none");
        let status = self.came(METHOD).filter(|s| s.len() == 3).and_then(number).ok_or(none)?;
        self.told.status = match u16::try_from(status).map_err(|_| none)? {
            // HTTP/2 has no 101; a 2xx opens a tunnel (RFC 8441 §5).
            0..=99 | 101 | 600.. => return Err(none),
            200..=299 if asked_for_tunnel => 101,
            status => status,
        };
        let digits = match self.told.status {
            101 => b"101",
            _ => &self.scratch.pseudo[METHOD][..],
        };
        pieces(self.text, &[b"HTTP/1.1 ", digits, b" \r\n"]);
        Ok(())
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        if name.is_empty() || !name.iter().all(|&b| IS_NAME[usize::from(b)]) || !is_value(value) {
            return Err(Malformed("a field that is none"));
        }
        self.begin()?;
        match name {
            // RFC 9113 §8.2.2.
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return Err(Malformed("a field of the connection"));
            }
            b"te" if value == b"trailers" => {
                self.te_trailers = true;
                return Ok(());
            }
            b"te" => return Err(Malformed("te that is not trailers")),
            b"cookie" if self.kind == Kind::Request => {
                let cookies = &mut self.scratch.cookies;
                if !cookies.is_empty() {
                    cookies.extend_from_slice(b"; ");
                }
                cookies.extend_from_slice(value);
                return Ok(());
            }
            // The parser rejects a Host that differs from the authority, or a second one, as a duplicate field.
            b"host" if !self.host_again && self.repeats_authority(value) => {
                self.host_again = true;
                return Ok(());
            }
            // RFC 8441 §5: HTTP/2 has no such field. An HTTP/1.1 upstream would see two keys, and might use the wrong
            // one.
            b"sec-websocket-key" if self.told.tunnel => return Ok(()),
            b"priority" if self.kind == Kind::Request => {
                self.told.priority = Some(self.told.priority.unwrap_or_default().read(value));
            }
            b"content-length" => {
                // Tunnel data follows, not a body. An upstream that expects a body would read the next request as
                // that body.
                if self.told.tunnel || self.told.status == 101 {
                    return Ok(());
                }
                self.told.length = self.told.length.or_else(|| number(value));
            }
            _ => {}
        }
        pieces(self.text, &[name, b": ", value, b"\r\n"]);
        Ok(())
    }

    fn repeats_authority(&self, host: &[u8]) -> bool {
        self.kind == Kind::Request && self.came(AUTHORITY).is_some_and(|a| a.eq_ignore_ascii_case(host))
    }
}

fn pieces(text: &mut Vec<u8>, pieces: &[&[u8]]) {
    text.reserve(pieces.iter().map(|piece| piece.len()).sum());
    for piece in pieces {
        text.extend_from_slice(piece);
    }
}

/// Parses a decimal number.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// RFC 9113 §8.2.1: no control characters but the tab, and no white space at either end.
fn is_value(value: &[u8]) -> bool {
    let is_space = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    let may_be_tab = || value.iter().all(|&b| (b >= b' ' && b != 0x7f) || b == b'\t');
    !is_space(value.first()) && !is_space(value.last()) && (is_free_of_controls(value, b' ') || may_be_tab())
}

/// Whether a byte may occur in a name, in lower case (RFC 9113 §8.2.1).
static IS_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = weir_h1::is_token(byte as u8) && !(byte as u8).is_ascii_uppercase();
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use weir_h1::{Limits, Progress, RequestHead, ResponseHead, parse_request, parse_response};

    fn read(
        kind: Kind<'_>,
        fields: &[(&[u8], &[u8])],
        most: usize,
    ) -> Result<(String, HeadFacts), Malformed> {
        let (mut text, mut scratch) = (Vec::new(), Scratch::default());
        let mut reader = Reader::new(kind, &mut text, &mut scratch, most);
        fields.iter().for_each(|(name, value)| reader.field(name, value));
        let told = reader.finish(key)?;
        Ok((String::from_utf8_lossy(&text).into_owned(), told))
    }

    fn key() -> String {
        "dGhlIHNhbXBsZSBub25jZQ==".to_owned()
    }

    const ASK: [(&[u8], &[u8]); 4] =
        [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a.test"), (b":path", b"/p?q")];

    #[test]
    fn a_request_becomes_text() {
        let more: [(&[u8], &[u8]); 7] = [
            (b"cookie", b"a=1"),
            (b"x-one", b"1"),
            (b"host", b"A.test"),
            (b"te", b"trailers"),
            (b"cookie", b"b=2"),
            (b"content-length", b"5"),
            (b"x-one", b"2"),
        ];
        let (text, told) = read(Kind::Request, &[&ASK[..], &more].concat(), 4096).unwrap();
        assert_eq!(
            text,
            "GET /p?q HTTP/1.1\r\nhost: a.test\r\nx-one: 1\r\ncontent-length: 5\r\nx-one: 2\r\ncookie: a=1; b=2\r\n\
             connection: te\r\nte: trailers\r\n\r\n"
        );
        assert_eq!(told, HeadFacts { length: Some(5), ..HeadFacts::default() });
    }

    #[test]
    fn websockets_become_upgrades() {
        let mut ask = ASK.to_vec();
        ask[0].1 = b"CONNECT";
        ask.push((b":protocol", b"websocket"));
        ask.push((b"sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA=="));
        ask.push((b"content-length", b"5"));
        let (text, told) = read(Kind::Request, &ask, 4096).unwrap();
        let begin = "GET /p?q HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: ";
        assert!(text.starts_with(begin) && told.tunnel && told.length.is_none(), "{text}");
        assert_eq!(text.matches("sec-websocket-key").count(), 1, "{text}");
        let agreed = Kind::Response { accept: Some("x=") };
        let (text, told) = read(agreed, &[(b":status", b"204"), (b"content-length", b"0")], 4096).unwrap();
        assert_eq!(
            text,
            "HTTP/1.1 101 \r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x=\r\n\r\n"
        );
        assert_eq!(told.status, 101);
        assert!(read(agreed, &[(b":status", b"403")], 4096).unwrap().0.starts_with("HTTP/1.1 403 \r\n\r\n"));
    }

    #[test]
    fn other_schemes_are_refused() {
        for (scheme, is_served) in [
            (&b"https"[..], true),
            (b"http", true),
            (b"HTTPS", true),
            (b"", false),
            (b"ftp", false),
            (b"httpss", false),
            (b"http://b.test/?", false),
            (b"https:", false),
        ] {
            for (method, more) in
                [(&b"GET"[..], &[][..]), (b"CONNECT", &[(&b":protocol"[..], &b"websocket"[..])])]
            {
                let mut ask = ASK.to_vec();
                (ask[0].1, ask[1].1) = (method, scheme);
                let (text, _) = read(Kind::Request, &[&ask[..], more].concat(), 4096).unwrap();
                let mut head = RequestHead::default();
                head.buffer_mut().extend_from_slice(text.as_bytes());
                let parsed = parse_request(&mut head, &Limits::default());
                assert_eq!(parsed.is_ok(), is_served, "{text}");
            }
        }
    }

    #[test]
    fn what_is_too_large_has_no_end() {
        let large = vec![b'x'; 600];
        let fields = [&ASK[..], &[(&b"x-a"[..], &large[..]), (b"cookie", &large), (b"x-b", &large)]].concat();
        let (text, _) = read(Kind::Request, &fields, 1000).unwrap();
        assert!(text.len() > 1000 && !text.contains("\r\n\r\n") && !text.contains("x-b"));
        let limits = Limits { head_bytes: 1000, ..Limits::default() };
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(text.as_bytes());
        let e = parse_request(&mut head, &limits).unwrap_err().to_string();
        assert!(e.contains("head too large"), "{e}");
    }

    /// Yields the same bytes in every run.
    struct Random(fastrand::Rng);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0.usize(..n)
        }

        fn field(&mut self) -> (Vec<u8>, Vec<u8>) {
            const NAMES: [&[u8]; 16] = [
                b"a",
                b"x-forwarded-for",
                b"cookie",
                b"content-length",
                b"host",
                b"te",
                b"connection",
                b"expect",
                b"x_y",
                b"trailer",
                b":path",
                b":method",
                b":authority",
                b":status",
                b"X-Up",
                b"",
            ];
            const VALUES: [&[u8]; 10] = [
                b"1",
                b"",
                b" x ",
                b"chunked",
                b"trailers",
                b"\xff\x80",
                b"a: b\tc",
                b"0, 1",
                b"a.test",
                b"/ HTTP/1.1",
            ];
            let mut name = NAMES[self.below(NAMES.len())].to_vec();
            let mut value = VALUES[self.below(VALUES.len())].to_vec();
            if self.below(3) == 0 {
                value.push(self.below(256) as u8);
            }
            if self.below(8) == 0 {
                name.push(self.below(256) as u8);
            }
            (name, value)
        }
    }

    /// For any input, the text is one head or none. It is never a head plus bytes that another parser would read as a
    /// body or a second message.
    #[test]
    fn no_head_becomes_two() {
        let mut random = Random(fastrand::Rng::with_seed(1));
        let (mut requests, mut responses) = (0, 0);
        for n in 0..40_000 {
            let of_request = n % 2 == 0;
            let mut fields: Vec<(Vec<u8>, Vec<u8>)> = if of_request {
                ASK.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect()
            } else {
                vec![(b":status".to_vec(), b"200".to_vec())]
            };
            if random.below(4) == 0 {
                let at = random.below(fields.len());
                fields[at].1.push(random.below(256) as u8);
            }
            (0..random.below(5)).for_each(|_| fields.push(random.field()));
            let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(n, v)| (&n[..], &v[..])).collect();
            let kind = if of_request { Kind::Request } else { Kind::Response { accept: None } };
            let (mut text, mut scratch) = (Vec::new(), Scratch::default());
            let mut reader = Reader::new(kind, &mut text, &mut scratch, 4096);
            fields.iter().for_each(|(name, value)| reader.field(name, value));
            if reader.finish(key).is_err() {
                continue;
            }
            let (progress, len) = if of_request {
                let mut head = RequestHead::default();
                head.buffer_mut().extend_from_slice(&text);
                (parse_request(&mut head, &Limits::default()), head.wire_len())
            } else {
                let mut head = ResponseHead::default();
                head.buffer_mut().extend_from_slice(&text);
                (parse_response(&mut head, &Limits::default()), head.wire_len())
            };
            match progress {
                Ok(Progress::Complete) => {
                    assert_eq!(len, text.len(), "{:?}", String::from_utf8_lossy(&text));
                    *(if of_request { &mut requests } else { &mut responses }) += 1;
                }
                Ok(Progress::Partial) => panic!("{:?}", String::from_utf8_lossy(&text)),
                Err(_) => {}
            }
        }
        assert!(requests > 1000 && responses > 1000, "{requests}, {responses}: the test has lost its point");
    }
}
