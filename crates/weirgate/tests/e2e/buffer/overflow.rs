//! Responses that wait for slow clients in files.

use super::*;

/// A filter that holds 1 MiB of a response in memory and 64 MiB in this folder.
fn to_disk(folder: &TempDir, more: &str) -> String {
    format!("{{ buffer: {{ response: 1MiB, disk: 64MiB, folder: {}{more} }} }}", folder.path().display())
}

fn on_disk(weir: &Weir) -> u64 {
    figure(weir, "disk_bytes")
}

/// Sends `LONG` numbered bytes on `/long` and a word otherwise, in chunks or with a length.
fn numbered_or_short(chunked: bool) -> Upstream {
    Upstream::script(move |conn| {
        let body = numbered(LONG);
        while let Some(request) = conn.next_request() {
            let fields = "Content-Type: text/plain\r\nCache-Control: max-age=60\r\n";
            if !request.head.line.starts_with("GET /long") {
                conn.send(OK_BODY);
            } else if chunked {
                conn.send(format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"));
                for part in body.as_bytes().chunks(100_000) {
                    conn.send(format!("{:x}\r\n{}\r\n", part.len(), std::str::from_utf8(part).unwrap()));
                }
                conn.send("0\r\nX-Sum: 1\r\n\r\n");
            } else {
                conn.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {LONG}\r\n\r\n{body}"));
            }
        }
    })
}

#[track_caller]
fn expect_numbered(body: &[u8]) {
    assert_eq!(body.len(), LONG);
    assert!(body == numbered(LONG).as_bytes(), "in order");
}

#[test]
fn a_slow_client_holds_no_connection() {
    for chunked in [false, true] {
        let (upstream, folder) = (numbered_or_short(chunked), TempDir::new().unwrap());
        let filters = to_disk(&folder, "");
        for filters in [filters.clone(), format!("{{ compress: {{ minimum: 32MiB }} }}, {filters}")] {
            let weir = start(&busy(&upstream), &filters);
            let mut slow = slow_client(&weir);
            weir.client().get("/short").expect_status(200).expect_body("ok");
            assert!(on_disk(&weir) > 8 * MIB as u64, "{}", on_disk(&weir));
            // 1 MiB, and two pieces on their way to the disk with what frames a chunk.
            let held_now = held(&weir);
            assert!((1280 * KIB as u64..=1536 * KIB as u64 + 64).contains(&held_now), "{held_now}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
            let response = slow.read_response();
            expect_numbered(&response.body.bytes);
            assert_eq!(!response.body.trailers.is_empty(), chunked);
            slow.get("/short").expect_status(200); // the connection goes on
            eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
            assert_eq!(figure(&weir, "disk_skipped_total"), 0);
        }
    }
}

#[test]
fn a_slow_stream_holds_no_connection() {
    let (upstream, folder) = (numbered_or_short(false), TempDir::new().unwrap());
    let weir = start(&busy(&upstream), &to_disk(&folder, ""));
    let options = Options { window: 0, ..Options::default() }.with(&[(setting::WINDOW, 1000)]);
    let mut slow = H2::client_with(weir.client(), &options);
    let stream = slow.get("/long");
    slow.wait(stream, "its first bytes", |message| message.body.len() == 1000);
    weir.client().get("/short").expect_status(200);
    slow.reset(stream, weir_testkit::h2::code::CANCEL);
    eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
    let mut h2 = weir.h2();
    let stream = h2.get("/long");
    expect_numbered(&h2.message(stream).body);
}

#[test]
fn a_fast_client_needs_no_disk() {
    let (upstream, folder) = (Upstream::fixed(OK_BODY), TempDir::new().unwrap());
    let weir = buffering(&upstream, &to_disk(&folder, ""));
    std::fs::remove_dir(folder.path()).unwrap();
    weir.client().get("/").expect_status(200);
    assert_eq!(figure(&weir, "disk_skipped_total"), 0);
}

/// A full file is used again when the client has caught up.
#[test]
fn beyond_the_bound_it_goes_on_at_the_speed_of_the_client() {
    for chunked in [false, true] {
        let (upstream, folder) = (numbered_or_short(chunked), TempDir::new().unwrap());
        let filters = to_disk(&folder, "").replace("64MiB", "2MiB");
        let weir = start(&busy(&upstream).replace("4s", "200ms"), &filters);
        let mut slow = slow_client(&weir);
        eventually("the file is full", || on_disk(&weir) > 1900 * KIB as u64);
        weir.client().get("/short").expect_status(503);
        assert!(on_disk(&weir) <= 2 * MIB as u64);
        expect_numbered(&slow.read_response().body.bytes);
        eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
        assert_eq!(figure(&weir, "disk_skipped_total"), 0, "a full file is no fault");
    }
}

#[test]
fn a_disk_that_fails_or_is_used_up() {
    for gone in [false, true] {
        let (upstream, folder) = (numbered_or_short(true), TempDir::new().unwrap());
        let filters = to_disk(&folder, ", disk_total: 2MiB").replace("disk: 64MiB", "disk: 2MiB");
        let weir = buffering(&upstream, &filters);
        if gone {
            std::fs::remove_dir(folder.path()).unwrap();
        }
        let mut first = slow_client(&weir);
        if !gone {
            eventually("the disk is used up", || on_disk(&weir) > 1900 * KIB as u64);
        }
        let mut more = [slow_client(&weir), slow_client(&weir)];
        let skipped = if gone { 3 } else { 2 };
        eventually("the others go on without", || figure(&weir, "disk_skipped_total") == skipped);
        expect_numbered(&first.read_response().body.bytes);
        for slow in &mut more {
            expect_numbered(&slow.read_response().body.bytes);
        }
        eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
        let log = weir.stderr();
        assert_eq!(log.matches("no longer buffered on disk").count(), 1, "{log}");
    }
}

#[test]
fn a_slow_client_that_leaves() {
    let (upstream, folder) = (numbered_or_short(false), TempDir::new().unwrap());
    let weir = start(&busy(&upstream), &to_disk(&folder, ""));
    let slow = slow_client(&weir);
    weir.client().get("/short").expect_status(200);
    slow.reset();
    eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
    weir.client().get("/short").expect_status(200);
}

/// What the upstream sent before it broke off still arrives; then the client sees the cut.
#[test]
fn a_response_that_breaks_off() {
    let (upstream, folder) = (Upstream::listen(), TempDir::new().unwrap());
    let weir = buffering(&upstream, &to_disk(&folder, ""));
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", LONG + 1, numbered(LONG)));
    conn.close();
    client.read_head();
    let got = client.read_to_close();
    assert!(got.len() <= LONG && numbered(LONG).as_bytes().starts_with(&got), "{}", got.len());
    eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
}

#[test]
fn a_cache_on_either_side() {
    let folder = TempDir::new().unwrap();
    let cache = "{ cache: { store: pages, max_object: 32MiB } }";
    for filters in
        [format!("{cache}, {}", to_disk(&folder, "")), format!("{}, {cache}", to_disk(&folder, ""))]
    {
        let upstream = numbered_or_short(false);
        let weir = start(&busy(&upstream), &filters);
        let mut slow = slow_client(&weir);
        weir.client().get("/short").expect_status(200);
        expect_numbered(&weir.client().ask(ASK_LONG).body.bytes);
        expect_numbered(&slow.read_response().body.bytes);
        let long = upstream.requests().into_iter().filter(|request| request.head.line.contains("/long"));
        assert_eq!(long.count(), 1, "{filters}");
        eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
    }
}

#[test]
fn with_replace_and_compress() {
    let (upstream, folder) = (numbered_or_short(true), TempDir::new().unwrap());
    let disk = to_disk(&folder, "");
    let replace = "{ replace: { types: [ text/plain ], text: { \"00000000\": \"zzzzzzzz\" } } }";
    for filters in [format!("{disk}, {replace}"), format!("{replace}, {disk}")] {
        let weir = buffering(&upstream, &filters);
        let mut slow = slow_client(&weir);
        eventually("it waits in a file", || on_disk(&weir) > MIB as u64);
        let body = slow.read_response().body.bytes;
        assert!(body.len() == LONG && body == numbered(LONG).replacen("00000000", "zzzzzzzz", 1).as_bytes());
    }
    let upstream = long_or_short(true); // its text takes less time to compress
    for filters in [format!("{disk}, {{ compress: {{}} }}"), format!("{{ compress: {{}} }}, {disk}")] {
        let weir = buffering(&upstream, &filters);
        let request = ASK_LONG.replace("TE:", "Accept-Encoding: br\r\nTE:");
        let response = weir.client().ask(request);
        assert_eq!(decoded("br", &response.body.bytes).len(), LONG, "{filters}");
    }
}

/// Requests and responses share the folder and `disk_total`.
#[test]
fn both_directions() {
    let folder = TempDir::new().unwrap();
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let body = request.body.bytes;
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            conn.send(body);
        }
    });
    let filters = to_disk(&folder, ", request: 64KiB");
    let weir = buffering(&upstream, &filters);
    let body = numbered(8 * MIB);
    let response = weir.client().ask(chunked(&body));
    assert!(response.body.bytes == body.as_bytes());
    eventually("all is freed", || (held(&weir), on_disk(&weir)) == (0, 0));
}
