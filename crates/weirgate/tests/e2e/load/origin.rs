//! Targets of a load: `weir origin`, and the sink of `weir bench --self`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use tempfile::TempDir;
use weir_origin::{Options, Origin};
use weir_testkit::h2::{H2, code};
use weir_testkit::{Authority, Client, Tls, refusing_address, run_weir, weir_command};

use super::{origin, report};

#[test]
fn it_says_where_and_what_and_ends_when_told() {
    let dir = TempDir::new().unwrap();
    let mut origin =
        weir_command(dir.path()).args(["origin", "--http", "127.0.0.1:0", "-t2"]).spawn().unwrap();
    let mut lines = BufReader::new(origin.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let url = first.strip_prefix("It flows on ").unwrap_or_else(|| panic!("{first}"));
    let paths: Vec<String> = lines.by_ref().skip(1).take(weir_origin::PATHS.len()).collect();
    assert!(paths.iter().any(|line| line.trim_start().starts_with("/delay/250 ")), "{paths:?}");
    let address = url.strip_prefix("http://").unwrap();
    let load =
        run_weir(dir.path(), &["load", "-n20", "-c4", "--check", "size<2KiB", &format!("{url}/body/1KiB")]);
    load.expect_code(0).expect_text("status       200: 20");
    run_weir(dir.path(), &["origin", "--http", address])
        .expect_code(1)
        .expect_text(&format!("--http: {address} is taken by process {}", origin.id()));
    assert!(Command::new("kill").args(["-TERM", &origin.id().to_string()]).status().unwrap().success());
    assert_eq!(origin.wait().unwrap().code(), Some(0));
    let (_bound, taken) = refusing_address();
    run_weir(dir.path(), &["origin", "--http", &taken.to_string()]).expect_code(1).expect_text("--http");
    run_weir(dir.path(), &["origin", "--http", "here"]).expect_code(2);
}

/// Starts `weir origin` with these arguments; returns the child and its URL.
fn start(args: &[&str]) -> (Child, String) {
    let dir = TempDir::new().unwrap();
    let mut origin =
        weir_command(dir.path()).args(["origin", "--http", "127.0.0.1:0", "-t1"]).args(args).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(origin.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("It flows on ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (origin, url)
}

#[test]
fn it_speaks_tls_with_a_certificate_made_or_given() {
    let (mut made, url) = start(&["--tls"]);
    assert!(url.starts_with("https://"), "{url}");
    let r = report(&["-n20", "-c2", "--insecure", &format!("{url}/random/100KiB")]);
    assert_eq!((r.counts.responses, r.bytes.received_body), (20, 2_048_000), "{r:#?}");
    assert_eq!((r.ledger.tls_version.as_deref(), r.ledger.tls_key_bits), (Some("TLSv1.3"), Some(256)));
    assert_eq!(report(&["-n1", &url]).counts.errors.tls, 1, "nobody trusts it");
    made.kill().unwrap();
    made.wait().unwrap();

    let authority = Authority::new();
    let leaf = authority.leaf(&["localhost", "127.0.0.1"]);
    let (cert, key) = (leaf.cert_file.to_str().unwrap(), leaf.key_file.to_str().unwrap());
    let (mut given, url) = start(&["--cert", cert, "--key", key]);
    let r = report(&["-n3", "--cacert", authority.file().to_str().unwrap(), &format!("{url}/reset/10")]);
    assert_eq!((r.counts.errors.tls, r.counts.errors.reset), (0, 3), "{r:#?}");
    given.kill().unwrap();
    given.wait().unwrap();

    let dir = TempDir::new().unwrap();
    let origin = |args: &[&str]| run_weir(dir.path(), &[&["origin", "--http", "127.0.0.1:0"], args].concat());
    origin(&["--cert", cert]).expect_code(2).expect_text("--key");
    origin(&["--cert", "/no/such", "--key", key]).expect_code(2).expect_text("/no/such");
}

/// A protobuf message in a gRPC frame.
fn framed(message: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 0, message.len() as u8], message].concat()
}

#[test]
fn it_speaks_http2_and_grpc_over_tls() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]);
    let tls = weir_origin::Tls::Files { cert: leaf.cert_file.clone(), key: leaf.key_file.clone() };
    let origin = Origin::start(Options { tls, ..Options::default() }).unwrap();
    let connect = |offered: &[&str]| {
        Client::connect_tls(origin.address(), &Tls::new(&authority, "weir.test").alpn(offered))
    };
    let mut old = connect(&["http/1.1"]);
    old.get("/body/5").expect_status(200).expect_body("xxxxx");
    let new = connect(&["http/1.1", "h2"]);
    assert_eq!(new.tls().alpn.as_deref(), Some("h2"));
    let mut h2 = H2::client(new);
    let call = h2.request(
        &[
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "weir.test"),
            (":path", "/helloworld.v1.Greeter/SayHello"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ],
        false,
    );
    h2.data(call, framed(b"\x0a\x03Ann"), true);
    let answer = h2.message(call);
    answer.expect_status(200).expect_body(framed(b"\x0a\x09hello Ann"));
    assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    // A truncated answer resets only its stream, after the data sent.
    for (path, status, length) in [
        ("/reset/3", 200, 3),
        ("/truncated/8", 200, 4),
        ("/truncated/8?chunked", 200, 8),
        ("/garbage", 0, 0),
        ("/reset", 0, 0),
    ] {
        let stream = h2.get(path);
        let answer = h2.message(stream);
        answer.expect_reset(code::INTERNAL);
        assert_eq!((answer.status(), answer.body.len()), (status, length), "{path}");
    }
    let stream = h2.get("/metrics");
    let text = h2.message(stream).expect_status(200).text();
    for line in ["requests_total 8", "connections_total 2", "connections 2"] {
        assert!(text.contains(&format!("\nweir_origin_{line}\n")), "{line}: {text}");
    }
    let received = text.lines().find_map(|line| line.strip_prefix("weir_origin_received_bytes_total "));
    assert!(received.unwrap().parse::<u64>().unwrap() > 200, "{text}");
}

#[test]
fn one_answer_is_one_by_any_protocol() {
    let origin = Origin::start(Options { fixed: Some(70_000), ..Options::default() }).unwrap();
    let url = format!("http://{}/echo", origin.address());
    for protocol in [&["--http2", "-m2"][..], &[]] {
        for body in [&["--data", "some"][..], &[]] {
            let r = report(&[&["-n8", "-c2"], protocol, body, &[&url]].concat());
            assert_eq!((r.counts.responses, r.bytes.received_body), (8, 560_000), "{protocol:?} {body:?}");
        }
    }
    let mut h2 = H2::client(Client::connect(origin.address()));
    for (method, kind, length) in
        [("HEAD", "text/plain", 0), ("GET", "text/plain", 70_000), ("POST", "application/grpc", 70_000)]
    {
        let fields = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "o"),
            (":path", "/a"),
            ("content-type", kind),
        ];
        let stream = h2.request(&fields, true);
        let answer = h2.message(stream);
        answer.expect_status(200).expect_header("content-length", "70000");
        assert_eq!(answer.body.len(), length, "{method}");
    }
}

#[test]
fn a_head_request_gets_the_head_of_any_page() {
    let (origin, _) = origin("/");
    let mut h2 = H2::client(Client::connect(origin.address()));
    for path in ["/body/1KiB", "/chunked/1KiB", "/stream/3", "/sse/2?every=1", "/echo"] {
        let fields = [(":method", "HEAD"), (":scheme", "http"), (":authority", "o"), (":path", path)];
        let stream = h2.request(&fields, true);
        assert!(h2.message(stream).expect_status(200).body.is_empty(), "{path}");
    }
}

#[test]
fn any_target_is_answered() {
    let (origin, _) = origin("/");
    for target in ["é", "é/é", "*", "//", "http://o/é?é", "/é"] {
        let mut client = Client::connect(origin.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n"));
        let answer = client.read_to_close();
        assert!(answer.starts_with(b"HTTP/1.1 "), "{target}: {}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn the_generator_is_measured_against_a_sink() {
    let dir = TempDir::new().unwrap();
    run_weir(dir.path(), &["bench", "--self", "-d", "soon"]).expect_code(2).expect_text("-d soon");
    // Four ways of a second each: longer than `run_weir` waits on a busy machine.
    let run = weir_command(dir.path()).args(["bench", "--self", "-d1s"]).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(0), "{text}");
    assert!(!text.contains("interrupted"), "{text}");
    assert!(text.contains("64, pipelined by 16") && text.contains("fixed rate, half"), "{text}");
}

#[test]
fn what_was_not_measured_is_not_printed() {
    let dir = TempDir::new().unwrap();
    let mut run = weir_command(dir.path());
    let child = run.args(["bench", "--self", "-d60s"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    // Once its sink's thread exists, signals are handled.
    let threads = format!("/proc/{}/task", child.id());
    let named = |name: &str| {
        let tasks = std::fs::read_dir(&threads).into_iter().flatten().flatten();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
            .any(|n| n.trim() == name)
    };
    weir_testkit::eventually("the sink runs", || named("weir-sink"));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let run = child.wait_with_output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.ends_with("\ninterrupted\n"), "{text}");
    assert!(!text.contains("64 connections") && !text.contains("fixed rate"), "{text}");
}
