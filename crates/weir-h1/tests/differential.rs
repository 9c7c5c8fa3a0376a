//! Compares the parser with an independent reading of the RFC (`reference`) on heads that are grown and damaged at
//! random, and what it writes with what it read.
//!
//! Deterministic: a failure prints the bytes. Add them to the tables of `request.rs` or `response.rs`.

mod reference;

use std::fmt::Debug;

use weir_h1::{
    BodyKind, Connection, FieldName, Fields, Head, Known, Limits, Method, ParsedHeads, Progress, RequestHead,
    ResponseHead, parse_request, parse_response,
};

/// Heads to try. A debug build does 100 000 a second.
const ROUNDS: u32 = 40_000;

struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n.max(1))
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.below(from.len())]
    }
}

const STARTS: &[&[u8]] = &[
    b"GET / HTTP/1.1",
    b"GET /a?b HTTP/1.1",
    b"POST /x HTTP/1.1",
    b"GET / HTTP/1.0",
    b"GET http://a/ HTTP/1.1",
    b"GET http://a:80?q HTTP/1.1",
    b"GET https://a:443/x?y HTTP/1.0",
    b"OPTIONS * HTTP/1.1",
    b"OPTIONS http://a HTTP/1.1",
    b"OPTIONS http://a?x HTTP/1.1",
    b"CONNECT a:443 HTTP/1.1",
    b"\r\nPUT /%41/../b HTTP/1.1",
    b"GET http://[::1]:8/ HTTP/1.0",
    b"get /a/b/c/d/e/f/g/h/i/j HTTP/1.1",
];

const STATUSES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 304",
    b"HTTP/1.1 101 x",
    b"HTTP/1.1 100 ",
    b"HTTP/1.1 599 a b\tc",
    b"HTTP/1.1 600 x",
];

const LINES: &[&[u8]] = &[
    b"Host: a",
    b"Host: a",
    b"Host: a",
    b"Host:a:80",
    b"host: [::1]:8",
    b"Host: b",
    b"Content-Length: 5",
    b"Content-Length:0",
    b"content-length: 12 ",
    b"Content-Length: 05",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding:\tChunked ",
    b"Transfer-Encoding: gzip, chunked",
    b"Connection: close",
    b"Connection: keep-alive, X-A",
    b"Connection: upgrade, te",
    b"Connection: host, content-type,x-a,,",
    b"Upgrade: websocket",
    b"Upgrade:",
    b"Expect: 100-continue",
    b"Expect: x",
    b"TE: trailers",
    b"TE: gzip, Trailers",
    b"Keep-Alive: 5",
    b"X-A: 1",
    b"x-a:2",
    b"X-B: a b\tc  ",
    b"X-C:",
    b"Content-Type: text/plain",
    b"X_Forwarded_For: 1",
    b"X-Forwarded-For: 1",
    b"Content_Length: 7",
    b"x_forwarded-Prefix: 1",
    b"X-Forwarded: 1",
    b"X_Original_URL: /",
    b"x-rewrite-url: /",
    b"X-Long: 0123456789012345678901234567890123456789",
    b"X-Obs: \xe4\xf6\xfc",
    b"Date: x",
    b"Cookie: a=b; c=d",
    b"Set-Cookie: a",
];

const BYTES: &[u8] = b"\0\x01\t\n\x0b\r \"#%*,-/019:;=?@[]\\_az{\x7f\x80\xff";

/// A head of one start line and some field lines, most of them damaged in some places.
fn grow(random: &mut Random, starts: &[&[u8]]) -> Vec<u8> {
    let mut wire = random.pick(starts).to_vec();
    wire.extend_from_slice(b"\r\n");
    if random.below(4) > 0 {
        wire.extend_from_slice(b"Host: a\r\n");
    }
    for _ in 0..random.below(6) {
        wire.extend_from_slice(random.pick(LINES));
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"\r\n");
    if random.below(4) == 0 {
        wire.extend_from_slice(b"body\r\n\r\n");
    }
    for _ in 0..[0, 0, 1, 1, 2, 4][random.below(6)] {
        let at = random.below(wire.len());
        let to = (at + 1 + random.below(6)).min(wire.len());
        match random.below(6) {
            0 => wire[at] = BYTES[random.below(BYTES.len())],
            1 => wire.insert(at, BYTES[random.below(BYTES.len())]),
            2 => drop(wire.drain(at..to)),
            3 => drop(wire.splice(at..at, wire[at..to].to_vec())),
            4 => wire[at] ^= 0x20,
            _ => wire[at] = random.0.u8(..),
        }
    }
    wire
}

fn owned(fields: &Fields) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect()
}

/// The parser's reading in the words of the reference.
fn told(head: &RequestHead) -> reference::Head {
    reference::Head {
        start: [head.method_name().to_vec(), head.path().to_vec(), head.authority().to_vec()],
        query: head.query().map(<[u8]>::to_vec),
        fields: owned(&head.headers),
        chunked: head.body() == BodyKind::Chunked,
        length: match head.body() {
            BodyKind::Length(n) => Some(n),
            _ => head.headers.get_str("content-length").map(|_| 0),
        },
        close: head.connection() == Connection::Close,
        upgrade: head.upgrade().map(<[u8]>::to_vec),
        expects: head.expects_continue(),
        trailers: head.accepts_trailers(),
        len: head.wire_len(),
    }
}

#[test]
fn requests_are_read_as_the_reference_reads_them() {
    let mut random = Random(fastrand::Rng::with_seed(2));
    let (mut head, mut accepted) = (RequestHead::default(), 0);
    for _ in 0..ROUNDS {
        let wire = grow(&mut random, STARTS);
        head.recycle(usize::MAX);
        head.buffer_mut().extend_from_slice(&wire);
        let ours = parse_request(&mut head, &Limits::default());
        let theirs = reference::request(&wire);
        match (&ours, theirs) {
            (Ok(Progress::Complete), Some(theirs)) => {
                accepted += 1;
                assert_eq!(told(&head), theirs, "{}", wire.escape_ascii());
                written_again(&head);
                let (line, whole) =
                    (written(|out| head.write_line(out)), written(|out| head.write_line_and_fields(out)));
                written_in_one_copy((&line, &head.headers), &whole);
            }
            (Ok(Progress::Partial), None) => {
                let end = wire.windows(4).any(|w| w == b"\r\n\r\n");
                assert!(!end || wire.starts_with(b"\r\n\r\n"), "{}", wire.escape_ascii());
            }
            (Err(_), None) => {}
            (_, theirs) => panic!("{}\n ours {ours:?}\n theirs {theirs:?}", wire.escape_ascii()),
        }
    }
    assert!(
        (ROUNDS / 10..ROUNDS * 9 / 10).contains(&accepted),
        "{accepted} of {ROUNDS} accepted: a poor mixture"
    );
}

#[test]
fn responses_are_read_as_the_reference_reads_them() {
    let mut random = Random(fastrand::Rng::with_seed(1));
    let (mut head, mut accepted) = (ResponseHead::default(), 0);
    for _ in 0..ROUNDS {
        let wire = grow(&mut random, STATUSES);
        head.recycle(usize::MAX);
        head.buffer_mut().extend_from_slice(&wire);
        let ours = parse_response(&mut head, &Limits::default());
        match (&ours, reference::response(&wire)) {
            (Ok(Progress::Complete), Some(theirs)) => {
                accepted += 1;
                let shown = wire.escape_ascii().to_string();
                assert_eq!(head.status().to_string().as_bytes(), theirs.start[0], "{shown}");
                assert_eq!(owned(&head.headers), theirs.fields, "{shown}");
                assert_eq!(head.content_length(), theirs.length, "{shown}");
                assert_eq!(head.connection() == Connection::Close, theirs.close, "{shown}");
                assert_eq!(head.upgrade(), theirs.upgrade.as_deref(), "{shown}");
                assert_eq!(head.wire_len(), theirs.len, "{shown}");
                let none = matches!(head.status(), 100..=199 | 204 | 304);
                let body = match theirs.length {
                    _ if none => BodyKind::Empty,
                    _ if theirs.chunked => BodyKind::Chunked,
                    Some(0) => BodyKind::Empty,
                    Some(n) => BodyKind::Length(n),
                    None => BodyKind::UntilClose,
                };
                assert_eq!(head.body(Method::Get), body, "{shown}");
                let (line, whole) =
                    (written(|out| head.write_line(out)), written(|out| head.write_line_and_fields(out)));
                written_in_one_copy((&line, &head.headers), &whole);
            }
            (Ok(Progress::Partial), None) => assert!(!wire.windows(4).any(|w| w == b"\r\n\r\n")),
            (Err(_), None) => {}
            (_, theirs) => panic!("{}\n ours {ours:?}\n theirs {theirs:?}", wire.escape_ascii()),
        }
    }
    assert!(
        (ROUNDS / 10..ROUNDS * 9 / 10).contains(&accepted),
        "{accepted} of {ROUNDS} accepted: a poor mixture"
    );
}

/// A request sent on is read by the next server as we read it: same fields, same end.
fn written_again(head: &RequestHead) {
    let mut wire = [head.method_name(), b" ", head.path()].concat();
    if let Some(query) = head.query() {
        wire.extend_from_slice(&[b"?", query].concat());
    }
    wire.extend_from_slice(b" HTTP/1.1\r\n");
    head.headers.write_to(&mut wire);
    if head.body() == BodyKind::Chunked {
        wire.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if head.headers.get_str("host").is_none() {
        wire.extend_from_slice(b"host: a\r\n");
    }
    wire.extend_from_slice(b"\r\n");
    let mut next = RequestHead::default();
    next.buffer_mut().extend_from_slice(&wire);
    let shown = wire.escape_ascii().to_string();
    assert_eq!(parse_request(&mut next, &Limits::default()), Ok(Progress::Complete), "{shown}");
    assert_eq!((next.path(), next.query(), next.body()), (head.path(), head.query(), head.body()), "{shown}");
    assert!(next.rest().is_empty(), "{shown}");
    let mut fields = owned(&head.headers);
    if head.headers.get_str("host").is_none() {
        fields.push((b"host".to_vec(), b"a".to_vec()));
    }
    assert_eq!(owned(&next.headers), fields, "{shown}");
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// A line and fields that are written together are what they are apart.
fn written_in_one_copy((line, fields): (&[u8], &Fields), whole: &[u8]) {
    let lines = fields.iter().flat_map(|(n, v)| [n, &b": "[..], v, b"\r\n"].concat());
    let want: Vec<u8> = line.iter().copied().chain(lines).collect();
    assert_eq!(whole.escape_ascii().to_string(), want.escape_ascii().to_string());
}

/// A head that comes again, under whichever id and before whichever bytes, is what parsing makes of it.
#[test]
fn heads_that_come_again_are_as_if_parsed() {
    come_again::<RequestHead>(STARTS, RequestHead::buffer_mut);
    come_again::<ResponseHead>(STATUSES, ResponseHead::buffer_mut);
}

fn come_again<H: Head + Default + Debug>(starts: &[&[u8]], buffer: fn(&mut H) -> &mut Vec<u8>) {
    let mut random = Random(fastrand::Rng::with_seed(4));
    let mut known = ParsedHeads::default();
    let mut wires: Vec<Vec<u8>> = Vec::new();
    let (mut same, mut refused) = (0, 0);
    for _ in 0..ROUNDS / 4 {
        if wires.len() < 4 || random.below(4) == 0 {
            wires.push(grow(&mut random, starts));
        }
        let at = wires.len() - 1 - random.below(4.min(wires.len()));
        let wire = [&wires[at][..], random.pick(&[b"", b"\r\n", b"more"])].concat();
        // Mostly an id of its own, as a connection gives it; else that of another head.
        let id = if random.below(8) == 0 { 1 + random.below(6) } else { 1 + at };
        let limits = Limits { fields: [100, 100, 3][random.below(3)], ..Limits::default() };
        let [mut fresh, mut again] = [(); 2].map(|()| H::default());
        buffer(&mut fresh).extend_from_slice(&wire);
        buffer(&mut again).extend_from_slice(&wire);
        let want = fresh.parse(&limits);
        assert_eq!(known.parse(id as u32, &mut again, &limits), want, "{}", wire.escape_ascii());
        if want == Ok(Progress::Complete) {
            same += 1;
            assert_eq!(format!("{again:?}"), format!("{fresh:?}"), "{}", wire.escape_ascii());
        } else {
            refused += 1;
        }
    }
    assert!(same > 1_000 && refused > 1_000, "{same} and {refused}: a poor mixture");
}

/// Any order of edits leaves what a plain list of pairs would hold, and writes exactly that.
#[test]
fn edits_do_what_they_do_to_a_list() {
    let names: Vec<FieldName> =
        ["X-A", "x-a", "Host", "Cookie", "X-New"].iter().map(|n| FieldName::new(n).unwrap()).collect();
    let mut random = Random(fastrand::Rng::with_seed(3));
    let mut head = RequestHead::default();
    for _ in 0..ROUNDS / 8 {
        head.recycle(usize::MAX);
        head.buffer_mut().extend_from_slice(&grow(&mut random, STARTS));
        if parse_request(&mut head, &Limits::default()) != Ok(Progress::Complete) {
            continue;
        }
        let mut list = owned(&head.headers);
        for _ in 0..random.below(8) {
            let name = &names[random.below(names.len())];
            let same = |n: &[u8]| n.eq_ignore_ascii_case(name.as_str().as_bytes());
            let value = random.pick(&[b"", b"v", b"a b"]);
            match random.below(7) {
                0 => {
                    head.headers.append(name, value).unwrap();
                    list.push((name.as_str().as_bytes().to_vec(), value.to_vec()));
                }
                1 => {
                    head.headers.insert(name, value).unwrap();
                    list.retain(|(n, _)| !same(n));
                    list.push((name.as_str().as_bytes().to_vec(), value.to_vec()));
                }
                2 => {
                    let there = list.iter().any(|(n, _)| same(n));
                    assert_eq!(head.headers.remove(name), there);
                    list.retain(|(n, _)| !same(n));
                }
                3 => {
                    let there = list.iter().any(|(_, v)| v == b"1");
                    assert_eq!(head.headers.remove_where(|_, v| v == b"1"), there);
                    list.retain(|(_, v)| v != b"1");
                }
                4 => {
                    head.headers.remove_known(Known::Date);
                    list.retain(|(n, _)| !n.eq_ignore_ascii_case(b"date"));
                }
                5 => {
                    head.set_authority(b"b.test:8").unwrap();
                    let is_host = |(n, _): &(Vec<u8>, Vec<u8>)| n.eq_ignore_ascii_case(b"host");
                    let place = list.iter().position(is_host).unwrap_or_default();
                    list.insert(place, (b"Host".to_vec(), b"b.test:8".to_vec()));
                    let mut at = 0;
                    list.retain(|pair| {
                        at += 1;
                        at - 1 == place || !is_host(pair)
                    });
                }
                _ => assert!(head.headers.insert(name, b"a\r\nb").is_err()),
            }
            let first = list.iter().find(|(n, _)| same(n)).map(|(_, v)| &v[..]);
            assert_eq!(head.headers.get(name), first);
        }
        let mut out = Vec::new();
        head.headers.write_to(&mut out);
        let want: Vec<u8> = list.iter().flat_map(|(n, v)| [n, &b": "[..], v, b"\r\n"].concat()).collect();
        assert_eq!(out.escape_ascii().to_string(), want.escape_ascii().to_string());
        assert_eq!(owned(&head.headers), list);
        let line = written(|out| head.write_line(out));
        for copy in [head.headers.with_room(2, 20), head.headers.to_owned_fields(), head.copied().headers] {
            written_in_one_copy((b"", &head.headers), &written(|out| copy.write_to(out)));
        }
        written_in_one_copy((&line, &head.headers), &written(|out| head.write_line_and_fields(out)));
    }
}
