//! Heads of HTTP/2 as HTTP/1.1 text (RFC 9113 §8): what comes. `render` has what is sent.
//!
//! Fields are written as they are decoded, into the buffer that `weir-h1` parses. What only HTTP/2 knows (pseudo-fields,
//! Extended CONNECT) becomes what HTTP/1.1 says instead; fields of one connection are malformed (§8.2.2). What would change
//! where a head ends or what it is stops here; all other judgement is the parser's.

use crate::websocket;

/// A head that breaks this rule of HTTP/2: its stream is reset (RFC 9113 §8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// What is known of a head beside its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Of a response.
    pub status: u16,
    /// What the message says of its body.
    pub length: Option<u64>,
    /// A request for a WebSocket (RFC 8441).
    pub tunnel: bool,
    /// How many bytes are held of it.
    pub held: usize,
}

/// What is gathered while a head is read; kept from head to head for its memory.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pseudo: [Vec<u8>; 5],
    cookies: Vec<u8>,
}

/// The pseudo-fields of a request, by their place in [`Scratch`].
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;

/// Largest buffer that is kept for the next head.
const KEPT: usize = 4 * 1024;

impl Scratch {
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.pseudo.iter().chain([&self.cookies]).map(Vec::capacity).sum()
    }

    /// Frees what a large head has left.
    pub(super) fn trim(&mut self) {
        for buffer in self.pseudo.iter_mut().chain([&mut self.cookies]) {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }
}

/// Writes one head.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    kind: Kind<'a>,
    text: &'a mut Vec<u8>,
    scratch: &'a mut Scratch,
    /// Most bytes of text: a longer one of a request stays without its end, and is refused by the parser as too large.
    most: usize,
    told: Told,
    /// Which pseudo-fields came, by their place.
    seen: u8,
    /// The start line is written.
    begun: bool,
    /// `host` said again what `:authority` had said.
    host_again: bool,
    te_trailers: bool,
    full: bool,
    malformed: Option<Malformed>,
}

/// Whose fields they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A request's.
    Request,
    /// A response's. What a WebSocket is agreed to with, where the request asked for one.
    Response { accept: Option<&'a str> },
    /// Those behind a body.
    Trailers,
}

impl<'a> Reader<'a> {
    pub(super) fn new(kind: Kind<'a>, text: &'a mut Vec<u8>, scratch: &'a mut Scratch, most: usize) -> Self {
        scratch.cookies.clear();
        Self {
            kind,
            most: text.len().saturating_add(most),
            text,
            scratch,
            told: Told::default(),
            seen: 0,
            begun: false,
            host_again: false,
            te_trailers: false,
            full: false,
            malformed: None,
        }
    }

    /// Takes a field. Once the head is malformed or too large, fields only pass by: HPACK wants all of them decoded.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.malformed.is_some() || self.full {
            return;
        }
        let taken = match name.strip_prefix(b":") {
            Some(name) => self.pseudo(name, value),
            None => self.regular(name, value),
        };
        self.malformed = taken.err();
        self.full = self.text.len() + self.scratch.cookies.len() > self.most;
    }

    /// The head is over.
    pub(super) fn finish(mut self) -> Result<Told, Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        self.begin()?;
        if !self.scratch.cookies.is_empty() {
            // RFC 9113 §8.2.3: clients split it to compress it better; HTTP/1.1 allows one field only.
            pieces(self.text, &[b"cookie: ", &self.scratch.cookies, b"\r\n"]);
        }
        if self.full {
            return match self.kind {
                Kind::Request => Ok(self.told),
                // What is read behind a response's text is its body, and must not become the rest of its head.
                Kind::Response { .. } => Err(Malformed("a head that is too large")),
                Kind::Trailers => Err(Malformed("trailers are too large")),
            };
        }
        match self.kind {
            Kind::Request if self.told.tunnel => {
                let protocol = &self.scratch.pseudo[PROTOCOL];
                pieces(self.text, &[b"connection: upgrade\r\nupgrade: ", protocol]);
                pieces(self.text, &[b"\r\nsec-websocket-key: ", websocket::key().as_bytes(), b"\r\n"]);
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

    /// RFC 9113 §8.3: known ones, each once, before all others.
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
        // A space would end the word of a start line, and a line its line.
        let is_word = value.iter().all(|&b| b > b' ' && b != 0x7f);
        if self.begun || self.seen & came != 0 || !is_word {
            return Err(Malformed("a pseudo-field twice, behind others, or with what no start line holds"));
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

    /// Writes the start line, if it is not there yet.
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
        // Any other protocol is a CONNECT, and refused as such.
        let tunnel = protocol.is_some_and(|p| p.eq_ignore_ascii_case(b"websocket"));
        let [method, _, authority, path, _] = &self.scratch.pseudo;
        match (tunnel, is_connect) {
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
            // HTTP/2 has no 101; a tunnel opens with a 2xx (RFC 8441 §5).
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
        if name.is_empty() || !name.iter().all(|&b| is_name(b)) || !is_value(value) {
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
            // One that differs from the authority, or a second, is refused by the parser as two fields.
            b"host" if !self.host_again && self.repeats_authority(value) => {
                self.host_again = true;
                return Ok(());
            }
            // RFC 8441 §5: HTTP/2 has none. An upstream of HTTP/1.1 would see two, and may believe the wrong one.
            b"sec-websocket-key" if self.told.tunnel => return Ok(()),
            b"content-length" => {
                // What follows is the tunnel's. An upstream that was told of a body would take the next request for it.
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

/// A number of decimal digits.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

/// RFC 9113 §8.2.1: no control characters, and no white space at either end.
fn is_value(value: &[u8]) -> bool {
    let is_space = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    !is_space(value.first())
        && !is_space(value.last())
        // Without a branch for each: most bytes of a head are values.
        && !value.iter().fold(false, |bad, &b| bad | ((b < b' ') & (b != b'\t')) | (b == 0x7f))
}

/// What a name is made of, in lower case (RFC 9113 §8.2.1).
const fn is_name(byte: u8) -> bool {
    weir_h1::is_token(byte) && !byte.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_h1::{Limits, Progress, RequestHead, ResponseHead, parse_request, parse_response};

    fn read(kind: Kind<'_>, fields: &[(&[u8], &[u8])], most: usize) -> Result<(String, Told), Malformed> {
        let (mut text, mut scratch) = (Vec::new(), Scratch::default());
        let mut reader = Reader::new(kind, &mut text, &mut scratch, most);
        fields.iter().for_each(|(name, value)| reader.field(name, value));
        let told = reader.finish()?;
        Ok((String::from_utf8_lossy(&text).into_owned(), told))
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
        assert_eq!(told, Told { length: Some(5), ..Told::default() });
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

    /// The same bytes in every run.
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

    /// Whatever comes, the text is one head or none: never a head and something behind it, which another parser would take
    /// for a body or a second message.
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
            if reader.finish().is_err() {
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
