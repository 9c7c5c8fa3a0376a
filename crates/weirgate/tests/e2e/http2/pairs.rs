//! The same exchange through all four pairs of protocols: a message's meaning does not depend on the protocol.

use weir_testkit::h2::{H2, Message, Options};
use weir_testkit::{Body, Client, Conn, Head, Upstream, Weir, table};

use super::{H2C, ask, weir_with};

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    Http1,
    Http2,
}
use Spoken::{Http1, Http2};

const PAIRS: [(Spoken, Spoken); 4] = [(Http1, Http1), (Http1, Http2), (Http2, Http1), (Http2, Http2)];

/// The parts that both protocols have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    /// The method, or the status.
    start: String,
    /// Fields with names that begin with `x-`, and a few others.
    fields: Vec<(String, String)>,
    body: String,
    trailers: Vec<(String, String)>,
}

type Lines = &'static [(&'static str, &'static str)];

/// A message to send.
#[derive(Clone, Copy, Default)]
struct Say {
    start: &'static str,
    fields: Lines,
    body: &'static [&'static str],
    trailers: Lines,
}

impl Say {
    fn expected(&self) -> Said {
        let own = |lines: Lines| lines.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let mut fields: Vec<_> = own(self.fields);
        fields.retain(|(name, _)| name.starts_with("x-"));
        Said { start: self.start.to_owned(), fields, body: self.body.concat(), trailers: own(self.trailers) }
    }

    /// As text, chunked unless its fields specify its length.
    fn text(&self, line: &str) -> String {
        let mut text = format!("{line}\r\n");
        for (name, value) in self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        let has_length = self.fields.iter().any(|(name, _)| *name == "content-length");
        let bodyless = self.body.is_empty() && self.trailers.is_empty();
        if has_length || (bodyless && !line.starts_with("HTTP/1.1 2")) || line.contains(" 204") {
            return text + "\r\n" + &self.body.concat();
        }
        text += "transfer-encoding: chunked\r\n\r\n";
        for piece in self.body {
            text += &format!("{:x}\r\n{piece}\r\n", piece.len());
        }
        text += "0\r\n";
        for (name, value) in self.trailers {
            text += &format!("{name}: {value}\r\n");
        }
        text + "\r\n"
    }

    fn frames<W: AsMut<weir_testkit::Wire>>(&self, peer: &mut H2<W>, stream: u32, pseudo: &[(&str, &str)]) {
        let bodyless = self.body.is_empty() && self.trailers.is_empty();
        peer.headers(stream, &[pseudo, self.fields].concat(), bodyless);
        for (i, piece) in self.body.iter().enumerate() {
            peer.data(stream, piece, i + 1 == self.body.len() && self.trailers.is_empty());
        }
        if !self.trailers.is_empty() {
            peer.headers(stream, self.trailers, true);
        }
    }
}

fn kept(fields: &[(String, String)]) -> Vec<(String, String)> {
    let ours = ["x-forwarded-", "x-request-id", "x-weir-"];
    let mut kept = fields.to_vec();
    kept.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
    kept.retain(|(name, _)| name.starts_with("x-") && !ours.iter().any(|prefix| name.starts_with(prefix)));
    kept
}

fn lower(fields: &[(String, String)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect()
}

fn of_text(start: &str, head: &Head, body: &Body) -> Said {
    Said {
        start: start.to_owned(),
        fields: kept(&head.headers),
        body: String::from_utf8_lossy(&body.bytes).into_owned(),
        trailers: lower(&body.trailers),
    }
}

fn of_frames(start: &str, message: &Message) -> Said {
    Said {
        start: message.header(start).unwrap_or_default().to_owned(),
        fields: kept(&message.fields),
        body: message.text(),
        trailers: message.trailers.clone(),
    }
}

/// Both ends of a pair.
struct Pair {
    upstream: Upstream,
    weir: Weir,
    front: Spoken,
    back: Spoken,
}

enum Back {
    Plain(Conn),
    Framed(Box<H2<Conn>>),
}

enum Front {
    Plain(Client),
    Framed(Box<H2<Client>>),
}

impl Pair {
    fn new(spoken: (Spoken, Spoken)) -> Self {
        Self::with(spoken, "")
    }

    /// With further top-level config.
    fn with((front, back): (Spoken, Spoken), more: &str) -> Self {
        let upstream = Upstream::listen();
        let weir = weir_with(upstream.address(), if back == Http2 { H2C } else { "" }, more);
        Self { upstream, weir, front, back }
    }

    fn client(&self) -> Front {
        match self.front {
            Http1 => Front::Plain(self.weir.client()),
            Http2 => Front::Framed(Box::new(self.weir.h2())),
        }
    }

    fn accept(&self) -> Back {
        let conn = self.upstream.accept();
        match self.back {
            Http1 => Back::Plain(conn),
            Http2 => Back::Framed(Box::new(H2::server(conn, &Options::default()))),
        }
    }
}

/// Runs one exchange; returns what the upstream and the client understood.
fn exchange(
    client: &mut Front,
    back: &mut Option<Back>,
    pair: &Pair,
    request: &Say,
    response: &Say,
) -> (Said, Said) {
    let asked = match client {
        Front::Plain(client) => {
            client.send(request.text(&format!("{} / HTTP/1.1\r\nHost: weir.test", request.start)));
            0
        }
        Front::Framed(client) => {
            let stream = client.next_stream();
            request.frames(client, stream, &ask(request.start, "/", &[]));
            stream
        }
    };
    let seen = match back.get_or_insert_with(|| pair.accept()) {
        Back::Plain(conn) => {
            let seen = conn.read_request();
            conn.send(response.text(&format!("HTTP/1.1 {} Fine", response.start)));
            let method = seen.head.line.split(' ').next().unwrap_or_default().to_owned();
            of_text(&method, &seen.head, &seen.body)
        }
        Back::Framed(peer) => {
            let (stream, seen) = peer.accept_whole();
            response.frames(peer, stream, &[(":status", response.start)]);
            of_frames(":method", &seen)
        }
    };
    let told = match client {
        Front::Plain(client) => {
            let answer =
                if request.start == "HEAD" { client.read_response_to_head() } else { client.read_response() };
            of_text(&answer.status.to_string(), &answer.head, &answer.body)
        }
        Front::Framed(client) => of_frames(":status", &client.message(asked)),
    };
    (seen, told)
}

#[test]
fn a_message_means_the_same() {
    const GET: Say = Say { start: "GET", fields: &[], body: &[], trailers: &[] };
    const OK: Say = Say { start: "200", fields: &[("content-length", "2")], body: &["ok"], trailers: &[] };
    let rows: &[(&str, Say, Say)] = &[
        ("plain", GET, OK),
        ("fields", Say { fields: &[("x-a", "1"), ("x-a", "2"), ("x-b", "\u{e4}"), ("x-e", "")], ..GET }, OK),
        (
            "a body with a length",
            Say {
                start: "POST",
                fields: &[("content-length", "5"), ("x-a", "1")],
                body: &["he", "llo"],
                trailers: &[],
            },
            OK,
        ),
        (
            "a body in pieces",
            Say { start: "PUT", body: &["he", "llo"], ..GET },
            Say { body: &["a", "bc"], fields: &[], ..OK },
        ),
        (
            "trailers both ways",
            Say {
                start: "POST",
                body: &["hello"],
                trailers: &[("x-sum", "1"), ("x-sum", "2"), ("x-other", "")],
                ..GET
            },
            Say {
                fields: &[("x-a", "1")],
                body: &["some", "thing"],
                trailers: &[("x-sum", "3"), ("grpc-status", "0")],
                ..OK
            },
        ),
        (
            "trailers behind nothing",
            Say { start: "POST", trailers: &[("x-sum", "1")], ..GET },
            Say { start: "200", fields: &[], body: &[], trailers: &[("x-sum", "2")] },
        ),
        ("no body", GET, Say { start: "200", fields: &[], body: &[], trailers: &[] }),
        ("204", GET, Say { start: "204", fields: &[("x-a", "1")], body: &[], trailers: &[] }),
        ("304", GET, Say { start: "304", fields: &[("x-a", "1")], body: &[], trailers: &[] }),
        (
            "a refusal",
            GET,
            Say { start: "403", fields: &[("content-length", "2")], body: &["no"], trailers: &[] },
        ),
        (
            "HEAD",
            Say { start: "HEAD", ..GET },
            Say { start: "200", fields: &[("content-length", "5"), ("x-a", "1")], body: &[], trailers: &[] },
        ),
        ("an own method", Say { start: "PURGE", ..GET }, OK),
    ];
    for pair in PAIRS {
        let pair = Pair::new(pair);
        let (mut client, mut back) = (pair.client(), None);
        for (name, request, response) in rows {
            let what = format!("{name}, {:?} to {:?}", pair.front, pair.back);
            let (seen, told) = exchange(&mut client, &mut back, &pair, request, response);
            assert_eq!(seen, request.expected(), "the request: {what}");
            assert_eq!(told, response.expected(), "the response: {what}");
        }
    }
}

#[test]
fn trailers_name_nothing_that_a_filter_answers_for() {
    const FILTERS: &str = "consumers: { shop: { key_auth: [ the-key ] } }\nfilters:\n  \
         - key_auth: { consumer_header: x-user }\n  \
         - headers: { request: { set: { x-tier: one } }, response: { set: { x-origin: us }, remove: [ x-powered-by ] } }";
    let request = Say {
        start: "POST",
        fields: &[("x-api-key", "the-key")],
        body: &["hello"],
        trailers: &[
            ("x-user", "evil"),
            ("x_user", "evil"),
            ("x-api-key", "evil"),
            ("x-tier", "evil"),
            ("x-origin", "1"),
        ],
    };
    let response = Say {
        start: "200",
        fields: &[],
        body: &["some", "thing"],
        trailers: &[("x-origin", "evil"), ("x-powered-by", "evil"), ("x-user", "2"), ("grpc-status", "0")],
    };
    for pair in PAIRS {
        let pair = Pair::with(pair, FILTERS);
        let (seen, told) = exchange(&mut pair.client(), &mut None, &pair, &request, &response);
        let what = format!("{:?} to {:?}", pair.front, pair.back);
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(seen.trailers, [own("x-origin", "1")], "the request: {what}");
        assert_eq!(told.trailers, [own("x-user", "2"), own("grpc-status", "0")], "the response: {what}");
        assert_eq!((&*seen.body, &*told.body), ("hello", "something"), "{what}");
    }
}

#[test]
fn trailers_that_may_not_pass() {
    // A trailer that would be a field of the message itself, or its framing, if it came first (RFC 9110 §6.5.1).
    let rows: &[(&str, Lines)] = &[
        ("content-length", &[("content-length", "5")]),
        ("host", &[("host", "evil.test")]),
        ("transfer-encoding", &[("transfer-encoding", "chunked")]),
        ("a pseudo-field", &[(":path", "/evil")]),
        ("upper case", &[("X-Sum", "1")]),
        ("CR LF", &[("x-sum", "1\r\nx-evil: 1")]),
    ];
    for back in [Http1, Http2] {
        table(
            rows,
            |(name, _)| format!("{name} to {back:?}"),
            |(_, trailers)| {
                // One pair per row, so that rows do not share an upstream connection.
                let pair = Pair::new((Http2, back));
                let Front::Framed(mut client) = pair.client() else { panic!("it speaks HTTP/2") };
                let stream = client.post("/");
                client.data(stream, "body", false);
                let mut conn = pair.accept();
                match &mut conn {
                    Back::Plain(conn) => drop(conn.read_head()),
                    Back::Framed(peer) => drop(peer.accept()),
                }
                client.headers(stream, trailers, true);
                let seen = match &mut conn {
                    Back::Plain(conn) => match conn.next_body() {
                        Some(body) => {
                            conn.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
                            lower(&body.trailers)
                        }
                        None => Vec::new(),
                    },
                    Back::Framed(peer) => {
                        let seen = peer.message(1);
                        if seen.end == Some(weir_testkit::h2::End::Stream) {
                            peer.headers(1, &[(":status", "204")], true);
                        }
                        seen.trailers
                    }
                };
                assert!(seen.is_empty(), "it passed: {seen:?}");
                let answer = client.message(stream);
                assert!(
                    answer.status() == 204 || answer.status() == 400 || answer.status() == 0,
                    "{answer:?}"
                );
            },
        );
    }
}
