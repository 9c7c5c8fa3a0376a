//! The gateway's output about itself: the access log and the metrics.

use std::time::Instant;
use weir_testkit::{Authority, ServerTls, Upstream, Weir, eventually, run_weir};

use crate::support::{OK_BODY, WEB, config_for};

const LOG: &str = "access_log: { output: stdout }";

#[track_caller]
fn metrics(weir: &Weir, accept: &str) -> weir_testkit::Response {
    let host = weir.admin();
    weir.admin_client().ask(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{accept}\r\n"))
}

/// Whether a series whose name begins like this, with these labels, has this value.
fn has(text: &str, name: &str, labels: &[&str], value: &str) -> bool {
    text.lines().any(|line| {
        line.starts_with(name)
            && line.ends_with(&format!(" {value}"))
            && labels.iter().all(|label| line.contains(label))
    })
}

/// `/dev/full` acts as a full disk.
#[test]
fn a_full_disk_is_told_with_what_it_cost() {
    const LOST: u64 = 5;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, &format!("access_log: {{ output: {} }}", log.display()));
    let mut client = weir.client();
    for _ in 0..LOST {
        client.get("/").expect_status(200);
    }
    let counted = || {
        let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        let name = "weir_access_log_dropped_total{reason=\"failed\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok()).unwrap()
    };
    eventually("all are counted", || counted() == LOST);
    let status = |says: &str| {
        let said = run_weir(weir.dir(), &["status", "--admin", &weir.admin()]);
        said.expect_code(0).stdout.contains(says)
    };
    let full = format!("THE ACCESS LOG IS NOT WRITTEN: {}: No space left on device", log.display());
    assert!(status(&full) && status("; 5 lines lost since 20"));
    std::fs::remove_file(&log).unwrap();
    weir.signal(libc::SIGUSR1);
    eventually("the file is there", || log.exists());
    client.get("/after").expect_status(200);
    let again = weir.wait_log("access log is writable again");
    assert_eq!(again.field("lost"), Some("5"));
    let told = weir.logged("access log cannot be written").into_iter().chain([again]);
    assert!(!status("NOT WRITTEN"));
    let told: u64 = told.map(|line| line.field("lines").unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!((told, counted()), (LOST, LOST));
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(written.lines().count() == 1 && written.contains("/after"), "{written}");
}

#[test]
fn one_line_for_each_exchange() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, LOG);
    let request =
        "POST /a?b=c HTTP/1.1\r\nHost: weir.test\r\nUser-Agent: me \"too\"\r\nContent-Length: 3\r\n\r\nabc";
    weir.client().ask(request).expect_status(200);
    let line = weir.wait_stdout("/a?b=c");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    for (field, value) in [
        ("method", "POST"),
        ("uri", "/a?b=c"),
        ("host", "weir.test"),
        ("route", "all"),
        ("upstream", "up"),
        ("listener", "web"),
        ("user_agent", "me \"too\""),
        ("client", "127.0.0.1"),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    assert_eq!(line["endpoint"], upstream.address().to_string());
    assert_eq!((&line["status"], &line["attempts"]), (&200.into(), &1.into()), "{line}");
    assert!(line["total_us"].as_u64() >= line["first_byte_us"].as_u64(), "{line}");
}

#[test]
fn a_slow_upload_is_no_slow_upstream() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, LOG);
    let mut client = weir.client();
    client.send("POST /slow HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 6\r\n\r\nabc");
    eventually("the first half is on its way", || upstream.connections() == 1);
    let paused = Instant::now();
    let mut other = weir.client();
    for _ in 0..50 {
        other.get("/other").expect_status(200);
    }
    let pause = paused.elapsed().as_micros() as u64;
    client.send("def");
    client.read_response().expect_status(200);
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("/slow")).unwrap();
    let us = |field: &str| line[field].as_u64().unwrap_or_default();
    // On any machine, the pause is in the total and not in the time to first byte.
    assert!(us("first_byte_us") > 0 && us("total_us") - us("first_byte_us") >= pause, "{pause} in {line}");
}

#[test]
fn a_template() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(
        &upstream,
        "access_log: { output: stdout, format: \"{method} {uri} → {status}\" }",
    );
    weir.client().get("/t").expect_status(200);
    assert_eq!(weir.wait_stdout("/t"), "GET /t → 200");
}

#[test]
fn the_preset_combined() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, "access_log: { output: stdout, format: combined }");
    let request = "GET /t HTTP/1.1\r\nHost: weir.test\r\nReferer: http://a/\r\nUser-Agent: me\r\n\r\n";
    let body = weir.client().ask(request).text().len();
    let line = weir.wait_stdout("/t");
    assert!(line.starts_with("127.0.0.1 - - [") && line.contains(" +0000] "), "{line}");
    let rest = format!("\"GET /t HTTP/1.1\" 200 {body} \"http://a/\" \"me\"");
    assert!(body > 0 && line.ends_with(&rest), "{line}");
}

#[test]
fn fields_of_messages() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nX-Version: 7\r\nContent-Length: 0\r\n\r\n");
    let request = "GET /t HTTP/1.1\r\nHost: weir.test\r\nX-Tenant: a\"b\r\n\r\n";
    let weir = Weir::in_front_of_with(
        &upstream,
        "access_log: { output: stdout, fields: [ header:X-Tenant, header:x-none, response_header:x-version ] }",
    );
    weir.client().ask(request).expect_status(200);
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("/t")).unwrap();
    assert_eq!((&line["header:x-tenant"], &line["response_header:x-version"]), (&"a\"b".into(), &"7".into()));
    assert!(line.get("header:x-none").is_none(), "{line}");

    let weir = Weir::in_front_of_with(
        &upstream,
        "access_log: { output: stdout, format: \"{uri} {header:x-tenant} {response_header:X-Version}\" }",
    );
    weir.client().ask(request).expect_status(200);
    assert_eq!(weir.wait_stdout("/t"), "/t a\\x22b 7");
}

/// Without the filter `request_id`, the client's error still identifies its log line.
#[test]
fn a_problem_has_the_id_of_its_line() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, LOG);
    let refused = weir.client().ask("GET /x HTTP/1.1\r\n\r\n");
    let problem: serde_json::Value = serde_json::from_str(&refused.text()).unwrap();
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("bad_host")).unwrap();
    let id = line["request_id"].as_str().unwrap_or_default();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
    assert_eq!(problem["request_id"], id, "{problem}");

    let page = weir.client().ask("GET /y HTTP/1.1\r\nAccept: text/html\r\n\r\n").text();
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("\"/y\"")).unwrap();
    let other = line["request_id"].as_str().unwrap_or_default();
    assert!(other != id && page.contains(other), "{page} {line}");

    weir.client().get("/fine").expect_status(200);
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("/fine")).unwrap();
    assert_eq!(line["request_id"].as_str().map(str::len), Some(32), "{line}");
}

#[test]
fn what_was_refused_has_a_line_too() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, LOG);
    weir.client().ask("GET / HTTP/1.1\r\n\r\n").expect_status(400);
    let line = weir.wait_stdout("bad_host");
    assert!(line.contains("\"status\":400"), "{line}");
}

#[test]
fn nothing_in_a_request_breaks_a_line() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, LOG);
    weir.client()
        .ask(b"GET /x HTTP/1.1\r\nHost: h\r\nUser-Agent: \"\\ \xff\x80 \t }\r\n\r\n")
        .expect_status(200);
    let line = weir.wait_stdout("\"/x\"");
    serde_json::from_str::<serde_json::Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
}

#[test]
fn log_files_are_reopened() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "{}access_log: {{ output: \"{{dir}}/access.log\" }}\n",
        config_for(&upstream, "")
    ));
    let (log, old) = (weir.dir().join("access.log"), weir.dir().join("access.log.1"));
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    weir.client().get("/first").expect_status(200);
    eventually("the first line is written", || read(&log).contains("/first"));
    std::fs::rename(&log, &old).unwrap();
    weir.signal(libc::SIGUSR1);
    eventually("a new file is there", || log.exists());
    weir.client().get("/second").expect_status(200);
    eventually("the second line is in the new file", || read(&log).contains("/second"));
    assert!(!read(&old).contains("/second"));
}

#[test]
fn requests_are_counted() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    for _ in 0..3 {
        weir.client().get("/").expect_status(200);
    }
    eventually("three requests are counted", || {
        has(&metrics(&weir, "").text(), "weir_requests_total", &["route=\"all\""], "3")
    });
}

#[test]
fn requests_are_counted_by_protocol() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(
        &config_for(&upstream, "keepalive: 1m")
            .replace(WEB, "listeners: { web: { address: 127.0.0.1:0, protocols: [http1, h2] } }"),
    );
    let mut client = weir.client();
    for _ in 0..3 {
        client.get("/").expect_status(200);
    }
    let mut h2 = weir.h2();
    for _ in 0..2 {
        let stream = h2.get("/");
        h2.message(stream).expect_status(200);
    }
    let counted = |protocol: &str, value| {
        let label = format!("protocol=\"{protocol}\"");
        has(
            &metrics(&weir, "").text(),
            "weir_connection_requests_total",
            &["listener=\"web\"", &label],
            value,
        )
    };
    assert!(counted("http1", "3") && counted("h2", "2"), "{}", metrics(&weir, "").text());
    assert!(has(&metrics(&weir, "").text(), "weir_keepalive_requests_total", &["listener=\"web\""], "3"));
}

#[test]
fn both_formats() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    let plain = metrics(&weir, "");
    assert!(plain.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    let open = metrics(&weir, "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(open.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    assert!(open.text().ends_with("# EOF\n"));
}

#[test]
fn reloads_are_counted() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    weir.reload().unwrap();
    weir.reload_with("nonsense: true").unwrap_err();
    let text = metrics(&weir, "").text();
    assert!(has(&text, "weir_config_last_reload_successful", &[], "0"), "{text}");
    assert!(text.contains("weir_reloads_total"), "{text}");
}

#[test]
fn nobody_can_make_series_without_end() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    weir.client().get("/").expect_status(200);
    let before = metrics(&weir, "").text().lines().count();
    let mut client = weir.client();
    for number in 0..200 {
        client.ask(format!("M{number} /{number} HTTP/1.1\r\nHost: h{number}\r\n\r\n")).expect_status(200);
    }
    let after = metrics(&weir, "").text().lines().count();
    assert!(after < before + 100, "{before} lines grew to {after}");
}

#[test]
fn only_what_matters_is_logged_and_nothing_private() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}
upstreams: {{ up: {{ endpoints: [{}] }} }}
routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }}, gone: {{ match: {{ path: \"/gone\" }}, respond: {{ status: 410 }} }} }}
access_log:
  when: status >= 400 or method = POST
  redact: {{ client: truncate, user_agent: drop, \"query:token\": hide }}
",
        upstream.address()
    ));
    let mut client = weir.client();
    client.get("/quiet").expect_status(200);
    let request = "GET /gone?a=1&token=geheim HTTP/1.1\r\nHost: weir.test\r\nUser-Agent: me\r\n\r\n";
    client.ask(request).expect_status(410);
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("/gone")).unwrap();
    assert_eq!((&line["uri"], &line["client"]), (&"/gone?a=1&token=***".into(), &"127.0.0.0".into()));
    assert!(line.get("user_agent").is_none() && !weir.stdout().contains("/quiet"), "{line}");
}

#[test]
fn a_log_file_is_put_aside_when_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::fixed(OK_BODY);
    let log = dir.path().join("access.log");
    let section = format!("access_log: {{ output: {}, rotate: {{ size: 64KiB, keep: 3 }} }}", log.display());
    let weir = Weir::in_front_of_with(&upstream, &section);
    let mut client = weir.client();
    let long = "x".repeat(2000);
    let aside = || {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| *path != log).collect::<Vec<_>>()
    };
    eventually("the file is put aside", || {
        for _ in 0..8 {
            client.get(&format!("/{long}")).expect_status(200);
        }
        !aside().is_empty()
    });
    for path in aside() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.len() <= 64 << 10 && text.ends_with("}\n") && text.starts_with('{'),
            "{}",
            path.display()
        );
    }
}

#[test]
fn requests_are_counted_by_consumer() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}
upstreams: {{ up: {{ endpoints: [{}] }} }}
consumers: {{ shop: {{ key_auth: [one] }}, idle: {{ key_auth: [two] }} }}
routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ key_auth: {{}} }} ], upstream: up }} }}
",
        upstream.address()
    ));
    let mut client = weir.client();
    client.ask("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Api-Key: one\r\n\r\n").expect_status(200);
    client.ask("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n").expect_status(401);
    let mut text = String::new();
    eventually("the request is counted", || {
        text = metrics(&weir, "").text();
        has(&text, "weir_consumer_requests_total", &["consumer=\"shop\"", "code=\"200\""], "1")
    });
    assert!(has(&text, "weir_consumer_response_body_bytes_total", &["consumer=\"shop\""], "2"), "{text}");
    assert!(!text.contains("consumer=\"idle\""), "{text}");
}

#[test]
fn lines_for_a_syslog_server() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let upstream = Upstream::fixed(OK_BODY);
    let section = format!(
        "access_log: {{ syslog: {{ server: \"udp://{}\", facility: local3 }} }}",
        server.local_addr().unwrap()
    );
    let weir = Weir::in_front_of_with(&upstream, &section);
    weir.client().get("/t").expect_status(200);
    let mut buffer = [0; 16 * 1024];
    let n = server.recv(&mut buffer).unwrap();
    let text = String::from_utf8(buffer[..n].to_vec()).unwrap();
    // RFC 5424 §6.2.1: facility 19, severity 6.
    assert!(
        text.starts_with("<158>1 ") && text.contains(&format!(" weir {} access - {{", weir.pid())),
        "{text}"
    );
    let line: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    assert_eq!((&line["uri"], &line["status"]), (&"/t".into(), &200.into()));
}

#[test]
fn lines_for_a_syslog_server_by_tls() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = ServerTls::demanding(&authority.leaf(&["logs.test"]), &authority).alpn(&[]);
    let server = Upstream::listen_tls(&tls);
    let upstream = Upstream::fixed(OK_BODY);
    let identity = authority.client("weir");
    let section = |server: &Upstream, authority: &Authority| {
        format!(
            "access_log: {{ syslog: {{ server: \"tls://{}\", server_name: logs.test, ca: {}, client_cert: {}, client_key: {} }} }}",
            server.address(),
            authority.file().display(),
            identity.cert_file.display(),
            identity.key_file.display()
        )
    };
    // A server whose certificate no known authority signed gets no data.
    let refused = Upstream::script_tls(&tls, |conn| drop(conn.next_request()));
    let weir = Weir::in_front_of_with(&upstream, &section(&refused, &other));
    weir.client().get("/lost").expect_status(200);
    assert!(
        weir.wait_log("access log cannot be written")
            .field("error")
            .unwrap_or_default()
            .contains("certificate")
    );
    drop(weir);
    let weir = Weir::in_front_of_with(&upstream, &section(&server, &authority));
    weir.client().get("/t").expect_status(200);
    let mut conn = server.accept();
    // RFC 5425 §4.3: the length, a space, the message.
    let length: usize = String::from_utf8(conn.read_until(" ")).unwrap().trim().parse().unwrap();
    let message = String::from_utf8(conn.read_n(length)).unwrap();
    assert!(message.starts_with("<134>1 ") && message.contains(" weir "), "{message}");
    let line: serde_json::Value = serde_json::from_str(&message[message.find('{').unwrap()..]).unwrap();
    assert_eq!((&line["uri"], &line["status"]), (&"/t".into(), &200.into()));
    // Unusable settings are reported before it runs.
    let wrong = tempfile::tempdir().unwrap();
    std::fs::write(wrong.path().join("ca.pem"), "nothing").unwrap();
    let ca = wrong.path().join("ca.pem").display().to_string();
    let section = section(&server, &authority).replace(&authority.file().display().to_string(), &ca);
    let text = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nroutes: {{ a: {{ respond: {{}} }} }}\n{section}\n"
    );
    std::fs::write(wrong.path().join("weir.yaml"), text).unwrap();
    run_weir(wrong.path(), &["check"]).expect_code(1).expect_text("access_log.syslog.ca");
    // After a server hangs up, it is connected again.
    conn.close();
    eventually("a line on a new connection", || {
        weir.client().get("/again").expect_status(200);
        server.try_accept().is_some()
    });
}
