//! Third-party clients: curl, nghttp, and gRPC's own for Python.
//!
//! Without one of them, its tests print a note and pass; `make test` installs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use weir_origin::{Options, Origin};
use weir_testkit::{Authority, Upstream, Weir};

use super::H2C;
use crate::support::ALL_TO_UP;

/// A program's output; `None` if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    if !path.split(':').any(|folder| Path::new(folder).join(program).exists()) {
        eprintln!("SKIPPED: {program} is not installed (scripts/ensure-tools.sh {program})");
        return None;
    }
    let output =
        Command::new(program).args(args).stdin(Stdio::null()).env_remove("http_proxy").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {}\n{text}\n{errors}", output.status);
    Some(text)
}

/// A file to send.
fn body_of(weir: &Weir) -> String {
    let file = weir.dir().join("body");
    std::fs::write(&file, [b'x'; 100_000]).unwrap();
    file.display().to_string()
}

/// curl's answer, followed by version and status.
fn curl(args: &[&str]) -> Option<String> {
    run("curl", &[&["-s", "-S", "--max-time", "10", "-w", " %{http_version} %{http_code}"], args].concat())
}

#[test]
fn curl_by_prior_knowledge() {
    let origin = Origin::start(Options::default()).unwrap();
    let weir = super::weir(origin.address(), "");
    let url = format!("http://{}", weir.address("web"));
    let file = body_of(&weir);
    let Some(text) = curl(&["--http2-prior-knowledge", &format!("{url}/")]) else { return };
    assert!(text.ends_with(" 2 200"), "{text}");
    for (args, end) in [
        (&["-I"][..], " 2 200"),
        (&["-d", "some=body"], " 2 "),
        (&["-H", "Expect: 100-continue", "-d", "some=body"], " 2 "),
        (&["-T", &file], " 2 "),
        (&["-H", "Cookie: a=1; b=2"], " 2 200"),
    ] {
        let url = format!("{url}/");
        let text = curl(&[&["--http2-prior-knowledge"], args, &[&url]].concat()).unwrap();
        assert!(text.contains(end), "{args:?}: {text}");
    }
    // Its upgrade from HTTP/1.1 (h2c) is declined: it stays with HTTP/1.1.
    let text = curl(&["--http2", &format!("{url}/")]).unwrap();
    assert!(text.ends_with(" 1.1 200"), "{text}");
}

#[test]
fn curl_over_tls() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let upstream = weir_testkit::h2::H2Origin::answering(|request| {
        format!("{} {}", request.header(":method").unwrap(), request.text().len()).into_bytes()
    });
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}], {H2C} }} }}\n{ALL_TO_UP}\n",
        upstream.address()
    ));
    let address = weir.address("web");
    let port = address.rsplit(':').next().unwrap();
    let (resolve, ca) = (format!("weir.test:{port}:127.0.0.1"), authority.file().display().to_string());
    let url = format!("https://weir.test:{port}/");
    let common = ["--resolve", &resolve, "--cacert", &ca];
    for (args, expected) in [
        (&["--http2"][..], "GET 0 2 200"),
        (&["--http1.1"], "GET 0 1.1 200"),
        (&["--http2", "-d", "12345"], "POST 5 2 200"),
        (&["--http2", "-X", "PUT", "-d", "1"], "PUT 1 2 200"),
    ] {
        let Some(text) = curl(&[args, &common, &[&url]].concat()) else { return };
        assert_eq!(text, expected, "{args:?}");
    }
    // Many concurrent requests on one connection.
    let many = format!("{url}[1-50]");
    let text = curl(&[&["--http2", "--parallel"], &common[..], &[&many]].concat()).unwrap();
    assert_eq!((text.matches("GET 0").count(), text.matches(" 2 200").count()), (50, 50), "{text}");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn nghttp_with_its_priorities() {
    let upstream = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            let trailers =
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\nX-Sum: 7\r\n\r\n";
            if conn.try_send(trailers).is_err() {
                return;
            }
        }
    });
    let weir = super::weir(upstream.address(), "");
    let url = format!("http://{}/", weir.address("web"));
    let Some(text) = run("nghttp", &["-v", "-t", "10", &url]) else { return };
    assert!(text.contains(":status: 200") && text.contains("yes") && text.contains("x-sum: 7"), "{text}");
    let file = body_of(&weir);
    // Ten times, with a body, padding, and heads that need CONTINUATION.
    let text =
        run("nghttp", &["-v", "-t", "10", "-m", "10", "-b", "100", "-d", &file, "--continuation", &url]);
    let text = text.unwrap();
    assert_eq!(text.matches(":status: 200").count(), 10, "{}", seen(&text));
    assert_eq!(
        text.matches("error_code=NO_ERROR").count(),
        text.matches("error_code=").count(),
        "{}",
        seen(&text)
    );
}

#[test]
fn grpc_of_python_on_both_sides() {
    const PYTHON: &str = "/usr/bin/python3"; // Debian's: other interpreters do not see its library
    let known = Command::new(PYTHON).args(["-c", "import grpc"]).stderr(Stdio::null()).status();
    if !known.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: grpcio is not installed (scripts/ensure-tools.sh grpcio)");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/http2/grpc_client.py");
    let mut python = Command::new(PYTHON)
        .arg(script)
        .env("PYTHONIOENCODING", "utf-8")
        .env_remove("http_proxy")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(python.stdout.take().unwrap());
    let mut port = String::new();
    said.read_line(&mut port).unwrap();
    let weir = super::weir(format!("127.0.0.1:{}", port.trim()).parse().unwrap(), H2C);
    writeln!(python.stdin.take().unwrap(), "{}", weir.address("web")).unwrap();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(python.wait().unwrap().success(), "{text}");
    // At its deadline the client itself gives up, unless the gateway's answer arrives first.
    let of_gateway = "grpc_timeout: The client's deadline (grpc-timeout) has passed.";
    let text = text.replace(of_gateway, "Deadline Exceeded");
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "unary olleh yes the message OK",
            "large True",
            "down 1000",
            "up a,b,c",
            "both eno owt eerht",
            "many 500",
            "fail FAILED_PRECONDITION it was asked to b'\\x00\\xff' äh, not now: 100 %",
            "deadline DEADLINE_EXCEEDED None None Deadline Exceeded",
            "unknown UNIMPLEMENTED",
            "canceled CANCELLED",
            "after ba",
        ]
    );
}

/// What a verbose client reports as received.
fn seen(text: &str) -> String {
    text.lines().filter(|line| line.contains("recv") || line.contains("error")).collect::<Vec<_>>().join("\n")
}
