//! Filters that answer requests, and that refuse responses.

use super::bodies::RUDE;
use super::{OK, client, counted, gateway};
use weir_gateway::prelude::*;
use weir_testkit::{Upstream, eventually};

/// Answers instead of upstreams.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Answers {
    /// `bytes`, `file`, `stream`, `endless`, `short`, `refuse`, or `call` (the upstream again, with a body).
    with: String,
    /// Answers in the request hook already.
    #[serde(default)]
    at_once: bool,
}

pub(super) static ANSWERS: FilterKind = FilterKind::of::<Answers>("answers").with_causes(&[&RUDE]);

/// A body in pieces of three bytes.
struct Pieces {
    left: usize,
    length: Option<u64>,
}

impl BodySource for Pieces {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn poll_piece(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<Option<Bytes>, &'static Cause>> {
        let piece = self.left.checked_sub(1).map(|left| {
            self.left = left;
            Bytes::from_static(b"abc")
        });
        std::task::Poll::Ready(Ok(piece))
    }
}

impl Answers {
    fn flow(&self) -> Flow {
        let file = || {
            let path = std::env::temp_dir().join(format!("weir-hooks-{}", std::process::id()));
            std::fs::write(&path, "0123456789".repeat(20_000)).unwrap();
            let file = std::fs::File::open(&path).unwrap();
            let _ = std::fs::remove_file(&path); // another test may have removed it
            FileRange { file: std::sync::Arc::new(file), offset: 5, length: 150_000 }
        };
        let body = match &*self.with {
            "bytes" => Body::from("bytes ".repeat(10_000)),
            "file" => Body::File(file()),
            "stream" => Body::Stream(Box::new(Pieces { left: 3, length: Some(9) })),
            "endless" => Body::Stream(Box::new(Pieces { left: 3, length: None })),
            "short" => Body::Stream(Box::new(Pieces { left: 3, length: Some(10) })),
            "refuse" => return Flow::refuse(&RUDE),
            _ => return Flow::Wait,
        };
        Flow::Answer(Box::new(Answer { status: 203, headers: Vec::new(), body }))
    }
}

impl Filter for Answers {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE
    }

    fn on_request(&self, _: &mut RequestHead, _: &mut Cx) -> Flow {
        if self.at_once { self.flow() } else { Flow::Continue }
    }

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) -> Flow {
        if self.at_once { Flow::Continue } else { self.flow() }
    }

    fn wait_response<'a>(&'a self, _: &'a mut ResponseHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let request = CallRequest {
                method: "POST".to_owned(),
                target: "/called".to_owned(),
                authority: b"h".to_vec(),
                headers: Vec::new(),
                body: Bytes::from_static(b"question"),
                limit: CALL_BODY_BYTES,
            };
            let sum = cx.core().blocking(|| 2 + 2).await;
            match (cx.call("up", request).await, sum) {
                (Ok(CallAnswer { body, .. }), Ok(4)) => {
                    Flow::Answer(Box::new(Answer { status: 203, headers: Vec::new(), body: body.into() }))
                }
                (Err(cause), _) => Flow::refuse(cause),
                _ => Flow::refuse(&RUDE),
            }
        })
    }
}

#[test]
fn an_answer_is_bytes_a_file_or_a_stream() {
    let file = "5678901234".repeat(15_000);
    for at_once in [true, false] {
        for (with, body, framing) in [
            ("bytes", &"bytes ".repeat(10_000), "content-length"),
            ("file", &file, "content-length"),
            ("stream", &"abcabcabc".to_owned(), "content-length"),
            ("endless", &"abcabcabc".to_owned(), "transfer-encoding"),
            ("call", &"ok".to_owned(), "content-length"),
        ] {
            if at_once && with == "call" {
                continue; // the request has its own hook for waiting
            }
            let upstream = Upstream::fixed(OK);
            let filters = format!(
                "{{ counts: {{ name: {with}{at_once} }} }}, {{ answers: {{ with: {with}, at_once: {at_once} }} }}"
            );
            let gateway = gateway(&upstream, &filters);
            let mut client = client(&gateway);
            for round in 1..=2 {
                let response = client.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
                response.expect_status(203).expect_body(body);
                assert!(response.header(framing).is_some(), "{with}");
                eventually("it is over", || counted(&format!("{with}{at_once}")).ends.len() == round);
            }
            assert_eq!(counted(&format!("{with}{at_once}")).responses, 2, "{with}");
            if with == "call" {
                let called = upstream.requests().into_iter().find(|r| r.head.line.contains("/called"));
                assert_eq!(called.map(|r| r.body.bytes), Some(b"question".to_vec()));
            }
            let head = client.request("HEAD", "/");
            head.expect_status(203).expect_body("");
            gateway.stop();
        }
    }
}

#[test]
fn an_answer_that_comes_short_is_cut() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "{ counts: { name: short } }, { answers: { with: short } }");
    let mut client = client(&gateway);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    client.read_to_close();
    eventually("it is over", || counted("short").ends == [(203, "source_failed")]);
    gateway.stop();
}

#[test]
fn a_response_filter_refuses() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "{ counts: { name: refused } }, { answers: { with: refuse } }");
    client(&gateway).ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect_status(400);
    eventually("it is over", || counted("refused").ends == [(400, "rude")]);
    assert_eq!(counted("refused").responses, 1);
    gateway.stop();
}
