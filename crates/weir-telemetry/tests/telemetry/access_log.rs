//! The access log: what a line says, and that nothing on the other side of it can hurt a core.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use weir_telemetry::access_log::{Field, LONG_FIELD_BYTES, MAX_HEADERS};
use weir_telemetry::{
    AccessLogWriter, Computed, Entry, FormatPiece, LineFormat, Output, Setup, Telemetry, Timing,
};
use weir_telemetry::{Redaction, Rotation, When};

const PATIENCE: Duration = Duration::from_secs(20);

/// A directory of this test's own, gone at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-telemetry-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What is written for one entry.
fn line(format: &str, entry: &Entry<'_>) -> String {
    line_of(LineFormat::parse(format).unwrap(), entry)
}

fn line_of(format: LineFormat, entry: &Entry<'_>) -> String {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let place = Place::new(&format!("line{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    let path = place.file("access.log");
    let telemetry = Telemetry::new(Setup::default());
    let writer = AccessLogWriter::open(&telemetry, Output::File(path.clone()), format).unwrap();
    let mut log = writer.core(0);
    log.record(entry);
    log.flush_tick();
    assert!(writer.flush(PATIENCE));
    fs::read_to_string(path).unwrap()
}

fn full() -> Entry<'static> {
    Entry {
        time: UNIX_EPOCH + Duration::from_millis(1_709_164_800_042),
        request_id: b"01JAZ",
        trace_id: b"4bf92f3577b34da6a3ce929d0e0e4736",
        span_id: b"00f067aa0ba902b7",
        client: Some("2001:db8::1".parse().unwrap()),
        peer: Some("10.0.0.9:51234".parse().unwrap()),
        listener: "web",
        method: b"GET",
        host: b"api.example.com",
        path: b"/a b",
        query: b"x=1",
        protocol: "HTTP/1.1",
        route: "orders",
        arm: "old",
        upstream: "orders_v1",
        endpoint: "127.0.0.1:8000",
        attempts: 2,
        failed_attempts: "127.0.0.1:3000 503 1.2ms",
        status: 502,
        cause: "connect_refused",
        bytes_in: 120,
        bytes_out: 0,
        body_bytes_out: 7,
        consumer: "shop",
        credential: b"2bb80d53",
        referer: b"https://a.example/?q=\"",
        user_agent: b"curl/8",
        tls_version: "TLSv1.3",
        tls_cipher: "TLS_AES_128_GCM_SHA256",
        tls_client_subject: "CN=shop",
        tls_client_san: "dns:shop.internal",
        tls_client_fingerprint: "0a1b",
        tunnel: true,
        timing: Timing {
            head: Duration::from_micros(1),
            filters: Duration::from_micros(2),
            connect: Duration::from_micros(3),
            tls: Duration::from_micros(4),
            first_byte: Duration::from_micros(5),
            total: Duration::from_millis(61_000),
        },
        headers: &[],
        computed: &[],
        request: None,
    }
}

#[test]
fn a_full_json_line() {
    assert_eq!(
        line("json", &full()),
        "{\"time\":\"2024-02-29T00:00:00.042Z\",\"request_id\":\"01JAZ\",\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"span_id\":\"00f067aa0ba902b7\",\"client\":\"2001:db8::1\",\
         \"peer\":\"10.0.0.9:51234\",\"listener\":\"web\",\"method\":\"GET\",\"host\":\"api.example.com\",\
         \"uri\":\"/a b?x=1\",\"protocol\":\"HTTP/1.1\",\"route\":\"orders\",\"arm\":\"old\",\"upstream\":\"orders_v1\",\
         \"endpoint\":\"127.0.0.1:8000\",\"attempts\":2,\"failed_attempts\":\"127.0.0.1:3000 503 1.2ms\",\"status\":502,\"cause\":\"connect_refused\",\"bytes_in\":120,\
         \"bytes_out\":0,\"consumer\":\"shop\",\"credential\":\"2bb80d53\",\"referer\":\"https://a.example/?q=\\\"\",\"user_agent\":\"curl/8\",\"tls_version\":\"TLSv1.3\",\
         \"tls_cipher\":\"TLS_AES_128_GCM_SHA256\",\"tls_client_subject\":\"CN=shop\",\"tls_client_san\":\"dns:shop.internal\",\
         \"tls_client_fingerprint\":\"0a1b\",\"tunnel\":true,\"head_us\":1,\"filters_us\":2,\"connect_us\":3,\
         \"tls_us\":4,\"first_byte_us\":5,\"total_us\":61000000}\n"
    );
}

#[test]
fn expressions_are_written_like_other_fields() {
    let value = |text, is_bare| Computed { text, is_bare };
    let long = "x".repeat(600);
    let computed = [
        value(b"-1.5", true),
        value(b"gold", false),
        value(b"", true),
        value(b"a\"b\nc\xff", false),
        value(long.as_bytes(), false),
    ];
    let entry = Entry { computed: &computed, headers: &[b"h"], ..Entry::default() };
    let mut json = LineFormat::json();
    json.add_computed("number").unwrap();
    json.add("header:x-a").unwrap();
    ["text", "none", "odd", "long", "missing"].iter().for_each(|key| json.add_computed(key).unwrap());
    let line = line_of(json, &entry);
    let end = format!(
        "\"total_us\":0,\"number\":-1.5,\"header:x-a\":\"h\",\"text\":\"gold\",\"odd\":\"a\\\"b\\nc\u{fffd}\",\"long\":\"{}…\"}}\n",
        &long[..512]
    );
    assert!(line.ends_with(&end), "{line}");
    let pieces = [
        FormatPiece::Expression,
        FormatPiece::Text(" {status} "),
        FormatPiece::Literal("{= x}"),
        FormatPiece::Expression,
        FormatPiece::Expression,
        FormatPiece::Expression,
    ];
    let format = LineFormat::template("whole", pieces).unwrap();
    assert_eq!(line_of(format, &entry), "-1.5 - {= x}gold-a\\x22b\\x0ac\u{fffd}\n");
    let mut format = LineFormat::json();
    for key in ["", "a b", "status", "total_us", "ü", &"k".repeat(65)] {
        assert!(format.add_computed(key).is_err(), "{key}");
    }
    format.add_computed("a").unwrap();
    assert!(format.add_computed("a").is_err());
    for number in 1..MAX_HEADERS {
        format.add_computed(&format!("k{number}")).unwrap();
    }
    assert!(format.add_computed("more").is_err() && format.add("header:more").is_err());
}

#[test]
fn an_empty_json_line() {
    assert_eq!(
        line("json", &Entry::default()),
        "{\"time\":\"1970-01-01T00:00:00.000Z\",\"bytes_in\":0,\"bytes_out\":0,\"total_us\":0}\n"
    );
}

#[test]
fn templates() {
    let full = full();
    for (template, expected) in [
        (
            "{time} {client} \"{method} {path}\" {status}",
            "2024-02-29T00:00:00.042Z 2001:db8::1 \"GET /a b\" 502",
        ),
        ("{uri} {path} {query} {host}", "/a b?x=1 /a b x=1 api.example.com"),
        ("{peer}|{request_id}|{listener}|{route}", "10.0.0.9:51234|01JAZ|web|orders"),
        ("{{{status}}} {tunnel} {total_us}us", "{502} true 61000000us"),
        ("{bytes_in}{bytes_out}", "1200"),
    ] {
        assert_eq!(line(template, &full), format!("{expected}\n"), "{template}");
    }
    assert_eq!(
        line("combined", &full),
        "2001:db8::1 - shop [29/Feb/2024:00:00:00 +0000] \"GET /a b?x=1 HTTP/1.1\" 502 7 \
         \"https://a.example/?q=\\x22\" \"curl/8\"\n"
    );
    let peer = Some("[2001:db8::1]:443".parse().unwrap());
    assert_eq!(
        line("{peer} {client} {status} {uri}", &Entry { peer, ..Entry::default() }),
        "[2001:db8::1]:443 - - -\n"
    );
    let all: String = Field::ALL.iter().map(|(_, name)| format!("{{{name}}}")).collect();
    assert!(LineFormat::parse(&all).is_ok());
}

#[test]
fn templates_that_are_refused() {
    for (template, expected) in [
        (
            "{time} {statsu}",
            "access log template: unknown field {statsu}; the fields are time, time_clf, request_id, trace_id, span_id, client,",
        ),
        (
            "{time",
            "access log template: a brace without its partner at `{time`; write {{ or }} for a brace itself",
        ),
        ("{time} }x", "access log template: a brace without its partner at `}x`"),
        (
            "jsno",
            "unknown access log format `jsno`: expected json, combined, or a template with fields like {time}",
        ),
        ("{header:a b}", "access log: `a b` is not a header name"),
        ("{response_header:}", "access log: `` is not a header name"),
        ("", "unknown access log format ``"),
        ("{{time}}", "unknown access log format"),
        ("{time}\n{status}", "an access log template is one line without control characters"),
    ] {
        let error = LineFormat::parse(template).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{template}: {error}");
    }
}

/// What is written for these fields of messages.
fn line_with(format: LineFormat, values: &[&[u8]]) -> String {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let place = Place::new(&format!("with{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    let path = place.file("access.log");
    let telemetry = Telemetry::new(Setup::default());
    let writer = AccessLogWriter::open(&telemetry, Output::File(path.clone()), format).unwrap();
    let mut log = writer.core(0);
    log.record(&Entry { headers: values, ..Entry::default() });
    log.flush_tick();
    assert!(writer.flush(PATIENCE));
    fs::read_to_string(path).unwrap()
}

#[test]
fn fields_of_messages() {
    let template = LineFormat::parse("{header:X-A}|{response_header:x-a}|{header:x-b}|{header:x-a}").unwrap();
    assert_eq!(line_with(template, &[b"a\r\n", b"b", b""]), "a\\x0d\\x0a|b|-|a\\x0d\\x0a\n");

    let mut json = LineFormat::json();
    for name in ["header:X-A", "response_header:x-a", "header:x-b", "header:x-a"] {
        json.add(name).unwrap();
    }
    assert_eq!(
        line_with(json, &[b"a\"", b"b", b""]),
        "{\"time\":\"1970-01-01T00:00:00.000Z\",\"bytes_in\":0,\"bytes_out\":0,\"total_us\":0,\
         \"header:x-a\":\"a\\\"\",\"response_header:x-a\":\"b\"}\n"
    );

    let mut format = LineFormat::parse("{time}").unwrap();
    let error = format.add("header:x-a").unwrap_err().to_string();
    assert_eq!(error, "only format json takes more fields; write {header:x-a} into the template");
    let mut format = LineFormat::json();
    for wrong in ["x-a", "headers:x-a", "header:", "header:a\"b"] {
        assert!(format.add(wrong).is_err(), "{wrong}");
    }
    for number in 0..MAX_HEADERS {
        format.add(&format!("header:h{number}")).unwrap();
    }
    assert!(format.add("header:h0").is_ok() && format.add("header:more").is_err());
}

#[test]
fn hostile_bytes_never_break_the_line() {
    let all: Vec<u8> = (0..=255).collect();
    let endless = vec![b'"'; 1 << 20];
    let hostile = [
        all.as_slice(),
        b"\r\n{\"status\":200}\r\n",
        b"\\",
        b"\xf0\x9f\x92",
        "\u{2028}\u{9b}2J".as_bytes(),
        endless.as_slice(),
    ];
    for value in hostile {
        let entry = Entry {
            request_id: value,
            method: value,
            host: value,
            path: value,
            query: value,
            user_agent: value,
            ..Entry::default()
        };
        for format in ["json", "{request_id} \"{method} {uri}\" \"{user_agent}\" {host}"] {
            let line = line(format, &entry);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(line.ends_with('\n'));
            let body = &line[..line.len() - 1];
            assert!(!body.contains(|c: char| c.is_control() || c == '\u{2028}'), "{line}");
            assert!(line.len() < 6 * 4 * (LONG_FIELD_BYTES + 100), "{}", line.len());
            if format == "json" {
                // Quotes that are not escaped: two for each of the keys, two for each text.
                let unescaped = body.replace("\\\\", "").replace("\\\"", "").matches('"').count();
                assert_eq!(unescaped, 2 * 9 + 2 * 6, "{line}");
            } else {
                assert_eq!(line.matches('"').count(), 4, "{line}");
            }
        }
    }
}

#[test]
fn a_pipe_that_nobody_reads_drops_and_never_blocks() {
    let (mut reader, writing_end) = std::io::pipe().unwrap();
    let output = Output::File(format!("/proc/self/fd/{}", writing_end.as_raw_fd()).into());
    let telemetry = Telemetry::new(Setup::default());
    let writer = AccessLogWriter::open(&telemetry, output, LineFormat::json()).unwrap();
    drop(writing_end);
    let mut log = writer.core(0);
    let start = Instant::now();
    const LINES: u64 = 30_000;
    for _ in 0..LINES {
        log.record(&full());
    }
    log.flush_tick();
    assert!(start.elapsed() < PATIENCE, "it waited");
    let dropped = telemetry.access_log_dropped();
    assert!(dropped > LINES / 2, "{dropped}");
    assert!(!writer.flush(Duration::from_millis(20)), "nobody reads");
    // Now somebody does: every line was either written, whole, or counted.
    drop((log, writer));
    let mut written = String::new();
    reader.read_to_string(&mut written).unwrap();
    assert_eq!(written.lines().count() as u64 + dropped, LINES);
    assert!(written.lines().all(|line| line.starts_with("{\"time\"") && line.ends_with('}')));
}

#[test]
fn a_full_disk_is_counted() {
    let telemetry = Telemetry::new(Setup::default());
    let writer = AccessLogWriter::open(&telemetry, Output::parse("/dev/full"), LineFormat::json()).unwrap();
    let mut log = writer.core(0);
    (0..5).for_each(|_| log.record(&full()));
    drop(log);
    assert!(writer.flush(PATIENCE));
    assert_eq!(telemetry.access_log_dropped(), 5);
}

#[test]
fn reopening_after_a_rotation() {
    let place = Place::new("rotation");
    let (path, old) = (place.file("access.log"), place.file("access.log.1"));
    let telemetry = Telemetry::new(Setup::default());
    let writer = AccessLogWriter::open(&telemetry, Output::File(path.clone()), LineFormat::json()).unwrap();
    let mut log = writer.core(0);
    let mut write = |n: usize| {
        (0..n).for_each(|_| log.record(&full()));
        log.flush_tick();
        assert!(writer.flush(PATIENCE));
    };
    write(1);
    fs::rename(&path, &old).unwrap();
    write(2);
    writer.reopen().unwrap();
    write(3);
    let lines = |path| fs::read_to_string(path).unwrap().lines().count();
    assert_eq!((lines(&old), lines(&path)), (3, 3));
    // What cannot be reopened goes on where it was.
    fs::remove_dir_all(&place.0).unwrap();
    assert!(writer.reopen().unwrap_err().to_string().contains("there is no directory"));
    write(1);
    assert_eq!(telemetry.access_log_dropped(), 0);
}

#[test]
fn an_existing_file_is_appended_to() {
    let place = Place::new("append");
    let path = place.file("access.log");
    fs::write(&path, "before\n").unwrap();
    let telemetry = Telemetry::new(Setup::default());
    let writer = AccessLogWriter::open(&telemetry, Output::File(path.clone()), LineFormat::json()).unwrap();
    assert!(writer.is(&Output::File(path.clone()), &LineFormat::json(), None));
    assert!(!writer.is(&Output::Stdout, &LineFormat::json(), None));
    writer.core(0).record(&full());
    assert!(writer.flush(PATIENCE));
    assert!(fs::read_to_string(path).unwrap().starts_with("before\n{\"time\""));
}

#[test]
fn a_missing_directory_is_an_error() {
    let telemetry = Telemetry::new(Setup::default());
    let error =
        AccessLogWriter::open(&telemetry, Output::parse("/no/such/a.log"), LineFormat::json()).err().unwrap();
    assert_eq!(error.to_string(), "cannot open log file /no/such/a.log: there is no directory /no/such");
}

#[test]
fn cores_share_a_file_by_whole_lines() {
    let place = Place::new("cores");
    let path = place.file("access.log");
    let telemetry = Telemetry::new(Setup { cores: 4, ..Setup::default() });
    let writer =
        Arc::new(AccessLogWriter::open(&telemetry, Output::File(path.clone()), LineFormat::json()).unwrap());
    std::thread::scope(|scope| {
        for index in 0..4 {
            let writer = Arc::clone(&writer);
            scope.spawn(move || {
                let mut log = writer.core(index);
                (0..500).for_each(|_| log.record(&full()));
            });
        }
    });
    assert!(writer.flush(PATIENCE));
    let mut text = String::new();
    File::open(path).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(
        text.lines().filter(|line| line.starts_with("{\"time\"") && line.ends_with('}')).count(),
        2000
    );
    assert_eq!(telemetry.access_log_dropped(), 0);
}

/// What a format writes for one entry; nothing where it has no line for it.
fn line_by(format: LineFormat, entry: &Entry<'_>) -> String {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let place = Place::new(&format!("by{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    let path = place.file("access.log");
    let writer =
        AccessLogWriter::open(&Telemetry::new(Setup::default()), Output::File(path.clone()), format).unwrap();
    writer.core(0).record(entry); // dropping the handle hands the line over
    assert!(writer.flush(PATIENCE));
    fs::read_to_string(path).unwrap()
}

#[test]
fn only_some_exchanges_have_a_line() {
    let mut format = LineFormat::parse("{status}").unwrap();
    format.limit(When::parse("status >= 500 and not share 0%").unwrap());
    assert_eq!(line_by(format.clone(), &Entry { status: 503, ..Entry::default() }), "503\n");
    assert_eq!(line_by(format, &Entry { status: 200, ..Entry::default() }), "");
}

#[test]
fn a_share_is_about_right() {
    let place = Place::new("share");
    let path = place.file("access.log");
    let mut format = LineFormat::parse("{status}").unwrap();
    format.limit(When::parse("share 10%").unwrap());
    let writer =
        AccessLogWriter::open(&Telemetry::new(Setup::default()), Output::File(path.clone()), format).unwrap();
    let mut log = writer.core(0);
    for _ in 0..10_000 {
        log.record(&Entry::default());
    }
    drop(log);
    assert!(writer.flush(PATIENCE));
    let lines = fs::read_to_string(path).unwrap().lines().count();
    assert!((850..1150).contains(&lines), "{lines}");
}

#[test]
fn redacted_fields() {
    let full = Entry { headers: &[b"geheim"], ..full() };
    for (template, rules, expected) in [
        (
            "{client} {peer}",
            &[("client", Redaction::Truncate), ("peer", Redaction::Drop)][..],
            "2001:db8:: -",
        ),
        ("{uri}", &[("query", Redaction::Hide)][..], "/a b?***"),
        ("{uri}", &[("query", Redaction::Drop)][..], "/a b"),
        ("{uri} {path}", &[("uri", Redaction::Hide)][..], "*** ***"),
        (
            "{consumer} {user_agent}",
            &[("consumer", Redaction::Hide), ("user_agent", Redaction::Drop)][..],
            "*** -",
        ),
        ("{header:x-key}", &[("header:X-Key", Redaction::Hide)][..], "***"),
        ("{header:x-key}", &[("header:other", Redaction::Hide)][..], "geheim"),
        ("{tls_client_subject}", &[("tls_client_subject", Redaction::Hide)][..], "***"),
    ] {
        let mut format = LineFormat::parse(template).unwrap();
        rules.iter().for_each(|(field, how)| format.redact(field, *how).unwrap());
        assert_eq!(line_by(format, &full), format!("{expected}\n"), "{template} {rules:?}");
    }
    let mut format = LineFormat::json();
    for (field, how) in [
        ("status", Redaction::Hide),
        ("client", Redaction::Hide),
        ("host", Redaction::Truncate),
        ("header:a b", Redaction::Hide),
        ("header:a", Redaction::Truncate),
        ("colour", Redaction::Hide),
    ] {
        assert!(format.redact(field, how).is_err(), "{field}");
    }
    // An absent field stays absent.
    let mut format = LineFormat::parse("{referer}").unwrap();
    format.redact("referer", Redaction::Hide).unwrap();
    assert_eq!(line_by(format, &Entry::default()), "-\n");
}

#[test]
fn a_full_file_is_put_aside() {
    const KEPT: usize = 2;
    let place = Place::new("rotate");
    let path = place.file("access.log");
    fs::write(place.file("access.log.old"), "somebody else's").unwrap();
    let telemetry = Telemetry::new(Setup::default());
    let rotation = Rotation { size: Some(100), age: None, keep: KEPT };
    let format = LineFormat::parse("{host}").unwrap();
    let output = Output::File(path.clone());
    let writer =
        AccessLogWriter::open_rotated(&telemetry, output.clone(), format.clone(), Some(rotation.clone()))
            .unwrap();
    assert!(writer.is(&output, &format, Some(&rotation)) && !writer.is(&output, &format, None));
    let mut log = writer.core(0);
    for n in 0..8 {
        let host = format!("{n}{}", "x".repeat(58)); // with its break 60 bytes: two do not fit
        log.record(&Entry { host: host.as_bytes(), ..Entry::default() });
        log.flush_tick();
    }
    assert!(writer.flush(PATIENCE));
    assert!(fs::read_to_string(&path).unwrap().starts_with("7x"));
    let aside =
        fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut aside: Vec<String> =
        aside.filter(|name| name != "access.log" && name != "access.log.old").collect();
    aside.sort();
    let first = aside.iter().map(|name| fs::read_to_string(place.file(name)).unwrap().remove(0));
    assert_eq!(first.collect::<String>(), "56", "{aside:?}");
    assert!(place.file("access.log.old").exists());
}

#[test]
fn an_old_file_is_put_aside_and_a_moved_one_is_left_alone() {
    let place = Place::new("age");
    let path = place.file("access.log");
    fs::write(&path, "before\n").unwrap();
    let rotation = Rotation { size: None, age: Some(Duration::ZERO), keep: 9 };
    let format = LineFormat::parse("{host}").unwrap();
    let telemetry = Telemetry::new(Setup::default());
    let writer =
        AccessLogWriter::open_rotated(&telemetry, Output::File(path.clone()), format, Some(rotation))
            .unwrap();
    let mut log = writer.core(0);
    let mut write = |host: &[u8]| {
        log.record(&Entry { host, ..Entry::default() });
        log.flush_tick();
        assert!(writer.flush(PATIENCE));
    };
    write(b"a");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
    fs::rename(&path, place.file("moved")).unwrap();
    write(b"b");
    assert_eq!(fs::read_to_string(&path).unwrap(), "b\n");
    assert_eq!(fs::read_to_string(place.file("moved")).unwrap(), "a\n");
}
