//! A cache with a disk: its objects outlive the process, however it ends, and the disk never fails a request.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_testkit::{Client, Response, Upstream, Weir, command_for, eventually, run_weir, weir_command};

use super::{ask, counting, metrics};
use crate::support::WEB;

const KILL: i32 = 9;

/// The listener `web`, and one that speaks only HTTP/2.
const TWO: &str =
    "listeners: { web: { address: 127.0.0.1:0 }, two: { address: 127.0.0.1:0, protocols: [h2] } }";

/// A cache in that folder in front of that upstream.
fn config(upstream: &str, folder: &Path, cache: &str) -> String {
    format!(
        "{WEB}\nworkers: 2\nadmin: {{ address: 127.0.0.1:0 }}\nstores: {{ pages: {{ memory: 4MiB, disk: {{ path: {}, size: 64MiB }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{upstream}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ cache: {{ store: pages, {cache} }} }} ], upstream: up }} }}",
        folder.display()
    )
}

fn weir_with(upstream: &Upstream, folder: &Path) -> Weir {
    Weir::start(&config(&upstream.address().to_string(), folder, ""))
}

/// A metric of the cache's store.
fn reading(weir: &Weir, what: &str) -> u64 {
    let page = metrics(weir);
    let families = ["", "store_"].map(|part| format!("weir_cache_{part}{what}"));
    let of = |line: &str| families.iter().any(|family| line.starts_with(&**family));
    let line = page.lines().find(|line| of(line));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {what}:\n{page}"))
}

fn wait_written(weir: &Weir, objects: u64) {
    eventually("it is on the disk", || reading(weir, "disk_written") >= objects);
}

/// Asks only the cache, until it has read the object from its disk.
fn from_cache(client: &mut Client, line: &str, fields: &str) -> Response {
    let mut found = None;
    eventually("it is in the cache", || {
        let response = ask(client, line, &format!("Cache-Control: only-if-cached\r\n{fields}"));
        let is_there = response.status != 504;
        found = Some(response);
        is_there
    });
    found.unwrap()
}

/// Whether it exits cleanly, is killed, or is replaced by an upgrade.
#[test]
fn what_is_kept_outlives_the_process() {
    let upstream = counting("Cache-Control: max-age=600\r\nETag: \"e\"\r\nVary: X-Lang\r\nX-Own: 1\r\n");
    let folder = TempDir::new().unwrap();
    let mut weir = weir_with(&upstream, folder.path());
    ask(&mut weir.client(), "GET /a?b=1", "X-Lang: de\r\n").expect_body("answer 0");
    ask(&mut weir.client(), "GET /a?b=1", "").expect_body("answer 1");
    wait_written(&weir, 2);
    for end in ["in peace", "killed", "upgraded"] {
        match end {
            "in peace" => drop(weir.stop()),
            "killed" => {
                weir.signal(KILL);
                weir.wait_exit(Duration::from_secs(10));
            }
            _ => {
                weir.upgrade().unwrap();
                let mut client = weir.client();
                from_cache(&mut client, "GET /a?b=1", "").expect_body("answer 1");
                assert_eq!(upstream.requests().len(), 2, "{end}");
                return;
            }
        }
        weir = weir_with(&upstream, folder.path());
        let mut client = weir.client();
        let hit = from_cache(&mut client, "GET /a?b=1", "X-Lang: de\r\n");
        hit.expect_status(200).expect_body("answer 0").expect_header("x-own", "1");
        assert!(hit.header("cache-status").unwrap().starts_with("weir; hit; ttl="), "{hit:?}");
        from_cache(&mut client, "GET /a?b=1", "").expect_body("answer 1");
        ask(&mut client, "GET /a?b=1", "If-None-Match: \"e\"\r\n").expect_status(304);
        ask(&mut client, "GET /a?b=1", "X-Lang: de\r\nRange: bytes=-1\r\n")
            .expect_status(206)
            .expect_body("0");
        assert_eq!(upstream.requests().len(), 2, "{end}");
    }
}

/// A body too large for memory streams to all clients while it is written, and is served from the disk afterwards.
#[test]
fn large_objects_stream_while_they_are_stored() {
    const LARGE: usize = 8 * 1024 * 1024;
    let body: Arc<Vec<u8>> =
        Arc::new((0..LARGE).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect());
    let upstream = Upstream::listen();
    let folder = TempDir::new().unwrap();
    // Room for data waiting to be written: the disk's speed must not matter here.
    let yaml = config(&upstream.address().to_string(), folder.path(), "");
    let weir = Weir::start(&yaml.replace("memory: 4MiB", "memory: 64MiB"));
    let address = weir.address("web");
    let (mut leader, mut follower) = (Client::connect(&address), Client::connect(&address));
    leader.send("GET /large HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut conn = upstream.accept_request();
    conn.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {LARGE}\r\n\r\n"));
    conn.send(&body[..1000]);
    follower.send("GET /large HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let head = follower.read_head();
    assert_eq!(head.line, "HTTP/1.1 200 OK");
    follower.expect(&body[..1000]); // long before its end
    let rest = Arc::clone(&body);
    let sender = std::thread::spawn(move || {
        conn.send(&rest[1000..]);
        conn
    });
    let reader = std::thread::spawn(move || leader.read_response().body.bytes);
    assert!(reader.join().unwrap() == *body, "the leader has all of it");
    follower.expect(&body[1000..]);
    let _conn = sender.join().unwrap();
    wait_written(&weir, 1);
    assert!(reading(&weir, "memory") < 4 << 20, "none of it is held in memory");
    let mut client = weir.client();
    let again = client.get("/large");
    assert!(
        again.header("cache-status").unwrap().starts_with("weir; hit"),
        "{:?}",
        again.header("cache-status")
    );
    assert!(again.body.bytes == *body);
    let part = ask(&mut client, "GET /large", "Range: bytes=5000000-5200000\r\n");
    part.expect_status(206);
    assert!(part.body.bytes == body[5_000_000..=5_200_000]);
    drop(weir);
    let weir = weir_with(&upstream, folder.path());
    let kept = from_cache(&mut weir.client(), "GET /large", "");
    assert!(kept.body.bytes == *body);
    assert_eq!(upstream.requests().len(), 1);
}

/// Killed during a write, it leaves no truncated object that would be served as complete.
#[test]
fn half_an_answer_is_not_kept_by_a_process_that_is_killed() {
    let upstream = Upstream::listen();
    let folder = TempDir::new().unwrap();
    let mut weir = weir_with(&upstream, folder.path());
    let (_client, mut conn) = weir.begin(&upstream, "GET /a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 3000000\r\n\r\n");
    conn.send(vec![b'x'; 2_000_000]);
    let incoming = folder.path().join("v2/incoming");
    eventually("it is being written", || std::fs::read_dir(&incoming).unwrap().count() > 0);
    weir.signal(KILL);
    weir.wait_exit(Duration::from_secs(10));
    let weir = weir_with(&upstream, folder.path());
    assert_eq!(std::fs::read_dir(&incoming).unwrap().count(), 0);
    let (mut client, mut conn) = weir.begin(&upstream, "GET /a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 5\r\n\r\nwhole");
    client.read_response().expect_body("whole");
}

/// An object that was changed on the disk is fetched again, and logged.
#[test]
fn damage_costs_a_fetch() {
    let upstream = counting("Cache-Control: max-age=600\r\n");
    let folder = TempDir::new().unwrap();
    let weir = weir_with(&upstream, folder.path());
    weir.client().get("/a").expect_body("answer 0");
    wait_written(&weir, 1);
    drop(weir);
    let mut damaged = 0;
    for below in
        std::fs::read_dir(folder.path().join("v2")).unwrap().flatten().filter(|entry| entry.path().is_dir())
    {
        for file in std::fs::read_dir(below.path()).unwrap().flatten() {
            let mut bytes = std::fs::read(file.path()).unwrap();
            let at = bytes.windows(8).position(|eight| eight == b"answer 0").unwrap();
            bytes[at] = b'A';
            std::fs::write(file.path(), bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    let weir = weir_with(&upstream, folder.path());
    eventually("what is there is known", || reading(&weir, "disk_objects") == 1);
    weir.client().get("/a").expect_body("answer 1");
    assert_eq!(reading(&weir, "disk_broken"), 1);
    weir.client().get("/a").expect_body("answer 1");
}

/// A disk that accepts no more data: a file size limit simulates a full one.
#[test]
fn a_disk_that_takes_no_more_fails_no_request() {
    const LARGE: usize = 300_000;
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let length = if request.head.line.contains("/large") { LARGE } else { 100 };
            let head =
                format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {length}\r\n\r\n");
            if conn.try_send([head.into_bytes(), vec![b'x'; length]].concat()).is_err() {
                return;
            }
        }
    });
    let folder = TempDir::new().unwrap();
    let yaml = config(&upstream.address().to_string(), folder.path(), "");
    let weir = Weir::start_by(&yaml, |dir| {
        let mut command = command_for(Path::new("/bin/sh"), dir);
        let program = weir_command(dir);
        let run = format!(
            "trap '' XFSZ; ulimit -f 256; exec '{}' run -c weir.yaml",
            Path::new(program.get_program()).display()
        );
        command.args(["-c", &run]);
        command
    });
    let mut client = weir.client();
    client.get("/small").expect_status(200);
    wait_written(&weir, 1);
    for _ in 0..3 {
        assert_eq!(client.get("/large").expect_status(200).body.bytes.len(), LARGE);
    }
    eventually("it is counted", || reading(&weir, "disk_failed") == 1);
    weir.wait_log("a cache cannot be written to its disk: for 10 s answers are kept in memory alone");
    assert_eq!(upstream.requests().len(), 2, "memory has it");
    client.get("/small").expect_status(200);
    eventually("nothing is left of it", || {
        std::fs::read_dir(folder.path().join("v2/incoming")).unwrap().count() == 0
    });
}

#[test]
fn a_folder_has_one_process() {
    let upstream = counting("");
    let folder = TempDir::new().unwrap();
    let weir = weir_with(&upstream, folder.path());
    let other = TempDir::new().unwrap();
    let yaml = config(&upstream.address().to_string(), folder.path(), "");
    std::fs::write(other.path().join("weir.yaml"), yaml).unwrap();
    let refused = run_weir(other.path(), &["run", "-c", "weir.yaml"]);
    refused.expect_code(1).expect_text(&format!("stores.pages.disk: process {} uses", weir.pid()));
    run_weir(other.path(), &["check", "-c", "weir.yaml"]).expect_code(0);
    drop(weir);
    let taken = TempDir::new().unwrap();
    std::fs::write(taken.path().join("thesis.txt"), "years of work").unwrap();
    let yaml = config(&upstream.address().to_string(), taken.path(), "");
    std::fs::write(other.path().join("weir.yaml"), yaml).unwrap();
    run_weir(other.path(), &["check", "-c", "weir.yaml"])
        .expect_code(1)
        .expect_text("is not empty, and no cache");
    assert!(taken.path().join("thesis.txt").exists());
}

#[test]
fn a_purge_reaches_the_disk() {
    let upstream = counting("Cache-Control: max-age=600\r\nSurrogate-Key: one two\r\n");
    let folder = TempDir::new().unwrap();
    let mut weir = weir_with(&upstream, folder.path());
    for (way, value, gone) in
        [("--url", "http://weir.test/x/1", 1), ("--prefix", "http://weir.test/x/", 2), ("--tag", "two", 2)]
    {
        let mut client = weir.client();
        client.get("/x/1").expect_status(200);
        client.get("/x/2").expect_status(200);
        eventually("both are on the disk", || reading(&weir, "disk_objects") == 2);
        drop((client, weir));
        weir = weir_with(&upstream, folder.path()); // memory is empty again
        eventually("both are known", || reading(&weir, "disk_objects") == 2);
        let admin = weir.admin();
        let done = run_weir(weir.dir(), &["purge", "pages", "--admin", &admin, way, value]);
        done.expect_code(0).expect_text(&format!("{gone} object"));
        assert_eq!(reading(&weir, "disk_objects"), 2 - gone, "{way}");
        drop(weir);
        weir = weir_with(&upstream, folder.path());
        eventually("what is left is known", || reading(&weir, "disk_objects") == 2 - gone);
    }
}

/// A revalidation by a 304 also counts for the next process.
#[test]
fn what_was_found_good_stays_good() {
    let upstream = Upstream::listen();
    let folder = TempDir::new().unwrap();
    let weir = weir_with(&upstream, folder.path());
    let (mut client, mut conn) = weir.begin(&upstream, "GET /a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nAge: 100\r\nETag: \"e\"\r\nContent-Length: 2\r\n\r\nok");
    client.read_response().expect_body("ok");
    wait_written(&weir, 1);
    client.send("GET /a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    assert_eq!(conn.read_request().head.header("if-none-match"), Some("\"e\""));
    conn.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\nETag: \"e\"\r\nX-New: 1\r\n\r\n");
    client.read_response().expect_body("ok").expect_header("x-new", "1");
    let newer = || {
        let folders = std::fs::read_dir(folder.path().join("v2"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().is_dir());
        let files = folders.flat_map(|below| std::fs::read_dir(below.path()).unwrap().flatten());
        files.filter(|file| file.file_name().to_string_lossy().ends_with(".h")).count()
    };
    eventually("it is written", || newer() == 1);
    drop(weir);
    let weir = weir_with(&upstream, folder.path());
    from_cache(&mut weir.client(), "GET /a", "")
        .expect_status(200)
        .expect_body("ok")
        .expect_header("x-new", "1");
}

/// Ten thousand concurrent requests for an object that is not stored cause one request to the upstream.
#[test]
fn ten_thousand_ask_at_once() {
    let upstream = Upstream::listen();
    let folder = TempDir::new().unwrap();
    let weir = Weir::start(&config(&upstream.address().to_string(), folder.path(), "").replace(WEB, TWO));
    let url = format!("http://{}/cold", weir.address("two"));
    let mut load = weir_command(weir.dir());
    load.args([
        "load",
        "--http2",
        "-n",
        "10000",
        "-c",
        "100",
        "-m",
        "100",
        "--timeout",
        "120s",
        "--no-live",
        &url,
    ]);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut conn = upstream.accept_request();
    let waiting = || {
        let page = metrics(&weir);
        let active =
            |line: &&str| line.starts_with("weir_requests_active{") && line.contains("route=\"all\"");
        let line = page.lines().find(active).unwrap_or_else(|| panic!("{page}"));
        line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap()
    };
    let until = Instant::now() + Duration::from_secs(100);
    while waiting() < 10_000 {
        assert!(Instant::now() < until, "{} wait", waiting());
    }
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 2\r\n\r\nok");
    let done = load.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(reading(&weir, "followed"), 9_999);
    wait_written(&weir, 1);
}
