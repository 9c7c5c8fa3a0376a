//! A processor built with Envoy's own Go module and grpc-go (`tests/ext_proc/main.go`). Without Go, these tests say so
//! and pass.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use weir_testkit::h2::{H2Origin, Options};
use weir_testkit::{Upstream, Weir};

use crate::cause::EXT_PROC_UNAVAILABLE;
use crate::support::OK_BODY;

/// The program, built when the first test asks. Go keeps what it compiled, so a second run takes a moment. `None`
/// without Go.
static PROGRAM: LazyLock<Option<String>> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ext_proc");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ext-proc-processor").display().to_string();
    let built = Command::new("go")
        .args(["build", "-buildvcs=false", "-o", &program, "."])
        .current_dir(source)
        .output();
    if built.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        eprintln!("SKIPPED: Go is not installed (https://go.dev/doc/install)");
        return None;
    }
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
});

struct Processor {
    process: Child,
    address: String,
}

impl Processor {
    fn start() -> Option<Self> {
        let mut program = Command::new(PROGRAM.as_ref()?);
        let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Some(Self { process, address: address.trim().to_owned() })
    }

    #[track_caller]
    fn weir(&self, upstream: &str, settings: &str) -> Weir {
        Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\nupstreams:\n  \
             processor: {{ endpoints: [{}], protocol: h2c }}\n  up: {{ {upstream} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up, \
             filters: [ {{ ext_proc: {{ upstream: processor, timeout: 10s, {settings} }} }} ] }} }}\n",
            self.address
        ))
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn post(what: &str) -> String {
    format!("POST /a?b HTTP/1.1\r\nHost: weir.test\r\nX-Do: {what}\r\nContent-Length: 5\r\n\r\nhello")
}

#[test]
fn what_envoys_processor_does() {
    let Some(processor) = Processor::start() else { return };
    let upstream = Upstream::fixed(OK_BODY);
    let modes = [
        ("", "hello", "ok"),
        ("request: { body: buffered }, response: { body: buffered }", "HELLO", "OK"),
        ("request: { body: streamed }, response: { body: streamed }", "HELLO", "OK"),
    ];
    for (settings, request, response) in modes {
        let weir = processor.weir(&format!("endpoints: [{}]", upstream.address()), settings);
        let mut client = weir.client();
        for _ in 0..20 {
            let answer = client.ask(post("nothing"));
            answer.expect_status(200).expect_body(response).expect_header("x-processed", "200");
            let seen = upstream.take_request();
            assert_eq!(
                (seen.body.bytes.as_slice(), seen.head.header("x-path")),
                (request.as_bytes(), Some("/a?b"))
            );
        }
        client
            .ask(post("refuse"))
            .expect_status(403)
            .expect_header("x-why", "refused")
            .expect_body("by the processor");
        client.ask(post("replace")).expect_status(200);
        assert_eq!(upstream.take_request().body.bytes, b"replaced");
        weir.client().ask(post("end")).expect_status(200).expect_body("ok");
        assert_eq!(upstream.take_request().body.bytes, b"hello");
        weir.client().ask(post("fail")).expect_cause(EXT_PROC_UNAVAILABLE);
    }
}

#[test]
fn envoys_processor_changes_the_mode() {
    let Some(processor) = Processor::start() else { return };
    let upstream = Upstream::fixed(OK_BODY);
    let weir = processor.weir(&format!("endpoints: [{}]", upstream.address()), "mode_override: true");
    for (what, processed) in [("stream", None), ("buffer", Some("200"))] {
        let answer = weir.client().ask(post(what));
        answer.expect_status(200).expect_body("OK");
        assert_eq!(answer.head.header("x-processed"), processed);
        assert_eq!(upstream.take_request().body.bytes, b"HELLO");
    }
}

#[test]
fn envoys_processor_and_a_grpc_like_stream() {
    let Some(processor) = Processor::start() else { return };
    let origin = H2Origin::new(Options::default(), |h2, stream, request| {
        let sum = request.trailers.iter().find(|(name, _)| name == "x-sum").map(|(_, sum)| sum.clone());
        h2.headers(stream, &[(":status", "200"), ("x-saw", &sum.unwrap_or_default())], false);
        h2.body(stream, &request.body, false);
        h2.headers(stream, &[("x-sum", "1")], true);
    });
    let streamed =
        "request: { body: streamed, trailers: send }, response: { body: streamed, trailers: send }";
    let weir = processor.weir(&format!("endpoints: [{}], protocol: h2c", origin.address()), streamed);
    let mut h2 = weir.h2();
    let stream = h2.post("/");
    h2.body(stream, &[b'a'; 100_000], false);
    h2.headers(stream, &[("x-sum", "1")], true);
    let message = h2.message(stream);
    message.expect_status(200).expect_header("x-saw", "2").expect_body([b'A'; 100_000]);
    assert_eq!(message.trailers, [("x-sum".into(), "2".into())]);
    origin.verify();
}
