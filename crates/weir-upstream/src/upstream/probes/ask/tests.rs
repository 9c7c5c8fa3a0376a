//! One probe at a time, over sockets.

use super::*;
use std::net::SocketAddr;
use std::time::Duration;
use weir_testkit::h2::{H2Origin, Options};
use weir_testkit::{Authority, ServerTls, Upstream, black_hole, refusing_address};

fn http(path: &str, expect: &[(u16, u16)], body: Option<&str>) -> ProbeKind {
    ProbeKind::Http { path: path.into(), expect: expect.into(), body: body.map(Into::into) }
}

fn healthz() -> ProbeKind {
    http("/healthz", &[(200, 299)], None)
}

fn question(address: SocketAddr, kind: ProbeKind, protocol: Protocol) -> Question {
    let (interval, timeout) = (Duration::from_secs(5), Duration::from_secs(20));
    let probe =
        Probe { kind, host: None, tls: None, interval, timeout, healthy: 1, unhealthy: 1, readyz: false };
    Question {
        probe: Arc::new(probe),
        address: Address::Tcp(address),
        authority: "svc.test:8000".into(),
        server_name: "svc.test".into(),
        tls: None,
        tls_key: "".into(),
        protocol,
        way: Way::default(),
        head_bytes: 32 * 1024,
    }
}

/// Asks as the control thread does. Returns a failure as its code.
fn ask(question: &Question) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asked = tokio::task::LocalSet::new().block_on(&runtime, question.ask());
    asked.map_err(|why| match why {
        NotPassed::Failed { cause, .. } => cause.to_owned(),
        NotPassed::Refused(_) => "refused".to_owned(),
        NotPassed::Unasked(why) => format!("unasked: {why}"),
    })
}

fn failed(cause: &str) -> Result<(), String> {
    Err(cause.to_owned())
}

#[test]
fn statuses_and_bodies() {
    let long = format!("{}ok", "x".repeat(BODY_BYTES));
    for (status, body, kind, expected) in [
        ("204 No Content", "", healthz(), Ok(())),
        ("503 Service Unavailable", "", healthz(), failed("probe_status")),
        ("404 Not Found", "", http("/", &[(200, 299), (404, 404)], None), Ok(())),
        ("200 OK", "all is ok here", http("/", &[(200, 299)], Some("is ok")), Ok(())),
        ("200 OK", "all is well", http("/", &[(200, 299)], Some("is ok")), failed("probe_body")),
        ("200 OK", "", http("/", &[(200, 299)], Some("ok")), failed("probe_body")),
        ("200 OK", &*long, http("/", &[(200, 299)], Some("ok")), failed("probe_body")),
        ("200 OK", &*long, http("/", &[(200, 299)], Some("xx")), Ok(())),
    ] {
        let upstream =
            Upstream::fixed(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        let asked = ask(&question(upstream.address(), kind.clone(), Protocol::Http1));
        assert_eq!(asked, expected, "{status} {:.20} {kind:?}", body);
    }
}

#[test]
fn a_probe_says_who_it_is_and_whom_it_wants() {
    let upstream =
        Upstream::fixed("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let mut asked = question(upstream.address(), http("/a?b=c", &[(200, 200)], None), Protocol::Http1);
    assert_eq!(ask(&asked), Ok(()));
    let head = upstream.take_request().head;
    assert_eq!((head.line.as_str(), head.header("host")), ("GET /a?b=c HTTP/1.1", Some("svc.test:8000")));
    assert!(head.header("user-agent").is_some_and(|agent| agent.starts_with("weir-probe/")));
    Arc::make_mut(&mut asked.probe).host = Some("other.test".into());
    assert_eq!(ask(&asked), Ok(()));
    assert_eq!(upstream.take_request().head.header("host"), Some("other.test"));
}

#[test]
fn what_does_not_answer_does_not_pass() {
    let (_held, refusing) = refusing_address();
    assert_eq!(ask(&question(refusing, healthz(), Protocol::Http1)), failed("refused"));
    assert_eq!(ask(&question(refusing, ProbeKind::Tcp, Protocol::Http1)), failed("refused"));
    let (_full, hole) = black_hole();
    let silent = Upstream::listen();
    for (address, kind) in [(hole, ProbeKind::Tcp), (silent.address(), healthz())] {
        let mut asked = question(address, kind, Protocol::Http1);
        Arc::make_mut(&mut asked.probe).timeout = Duration::from_millis(50);
        assert_eq!(ask(&asked), failed("probe_timeout"));
    }
    assert_eq!(ask(&question(silent.address(), ProbeKind::Tcp, Protocol::Http1)), Ok(()));
    for bytes in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let upstream = Upstream::script(move |conn| {
            let _ = conn.read_request();
            conn.send(bytes);
        });
        let asked = ask(&question(upstream.address(), healthz(), Protocol::Http1));
        assert_eq!(asked, failed("probe_protocol"), "{bytes}");
        let asked = ask(&question(upstream.address(), healthz(), Protocol::Http2));
        assert_eq!(asked, failed("probe_protocol"), "{bytes} by HTTP/2");
    }
}

#[test]
fn probes_speak_tls_and_http2_like_requests() {
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["svc.test"]));
    let upstream = Upstream::fixed_tls(&tls, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let by_tls = |ca: &Authority, alpn: &[&[u8]]| {
        Some(ClientTls::new(Some(&ca.file()), None, None, true, alpn).unwrap())
    };
    let mut asked = question(upstream.address(), healthz(), Protocol::Http1);
    asked.tls = by_tls(&authority, &[b"http/1.1"]);
    assert_eq!(ask(&asked), Ok(()));
    assert_eq!(upstream.take_request().server_name.as_deref(), Some("svc.test"));
    asked.tls = by_tls(&Authority::new(), &[b"http/1.1"]);
    assert_eq!(ask(&asked), failed("upstream_tls"));
    asked.probe = Arc::new(Probe { kind: ProbeKind::Tcp, ..(*asked.probe).clone() });
    assert_eq!(ask(&asked), failed("upstream_tls"));
    let h2 = H2Origin::fixed("ok");
    let asked = question(h2.address(), http("/", &[(200, 200)], Some("ok")), Protocol::Http2);
    assert_eq!(ask(&asked), Ok(()));
    h2.verify();
}

#[test]
fn grpc_services_are_asked_for_their_health() {
    let about = |service: &str| ProbeKind::Grpc { service: service.into() };
    let origin = H2Origin::new(Options::default(), |peer, stream, request| {
        let asked = (request.header(":path"), request.header("te"), &request.body[..]);
        let end = |status| [("grpc-status", status)];
        let head = [(":status", "200"), ("content-type", "application/grpc")];
        match asked {
            (Some(grpc::PATH), Some("trailers"), b"\0\0\0\0\0") => {
                peer.headers(stream, &head, false);
                peer.data(stream, b"\0\0\0\0\x02\x08\x01", false);
                peer.headers(stream, &end("0"), true);
            }
            (_, _, b"\0\0\0\0\x03\x0a\x01n") => {
                peer.headers(stream, &head, false);
                peer.data(stream, b"\0\0\0\0\x02\x08\x02", false);
                peer.headers(stream, &end("0"), true);
            }
            (_, _, b"\0\0\0\0\x03\x0a\x01e") => {
                peer.headers(stream, &head, false);
                peer.data(stream, b"\0\0\0\0\x02\x08\x01", true); // without a status
            }
            _ => peer.headers(stream, &[head[0], head[1], ("grpc-status", "5")], true),
        }
    });
    for (service, expected) in [
        ("", Ok(())),
        ("n", failed("probe_not_serving")),
        ("unknown", failed("probe_not_serving")),
        ("e", failed("probe_protocol")),
    ] {
        let asked = question(origin.address(), about(service), Protocol::Http2);
        assert_eq!(ask(&asked), expected, "service {service:?}");
    }
    origin.verify();
}
