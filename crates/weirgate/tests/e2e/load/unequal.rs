//! Unintended work: targets that answer differently, redirects, unset variables, connections with a second SYN.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use tempfile::TempDir;
use weir_report::report::Grade;
use weir_report::{Comparison, Report};
use weir_testkit::{Upstream, eventually, run_weir};

use super::{codes, expect_reason, load, origin, report, url};
use crate::support::OK_BODY;

#[test]
fn targets_at_two_places_that_do_unequal_work_are_noticed() {
    let (one, small) = origin("/body/137");
    let (_other, large) = origin("/body/64KiB");
    let r = report(&["-n20", "-c2", &small, &large]);
    expect_reason(&r, "unequal_work", Grade::Invalid);
    assert!(r.verdict.reasons[0].text.contains("bodies of 64.00 KiB, not 137 B"), "{:?}", r.verdict);
    assert_eq!(r.targets[1].received_body, 10 * 65_536);
    let meant = report(&["-n20", "-c2", "--unequal", "ok", &small, &large]);
    assert!(!codes(&meant).contains(&"unequal_work"), "{:?}", meant.verdict);
    // Several targets at one place are a mix.
    let mixed = report(&["-n20", "-c2", &small, &format!("http://{}/body/64KiB", one.address())]);
    assert!(!codes(&mixed).contains(&"unequal_work"), "{:?}", mixed.verdict);
}

#[test]
fn a_comparison_of_unequal_work_is_invalid() {
    let (_origin, base) = origin("");
    let moved = Upstream::fixed("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n");
    let dir = TempDir::new().unwrap();
    let (page, moved) = (format!("page={base}/body/137"), format!("moved={}", url(&moved)));
    let args =
        ["compare", "-c1", "--threads=1", "-d1s", "--block", "60ms", "--format", "json", &page, &moved];
    let run = |more: &[&str]| run_weir(dir.path(), &[&args[..], more].concat());
    let told = run(&[]);
    let c: Comparison = serde_json::from_str(&told.expect_code(0).stdout).unwrap();
    assert_eq!(c.grade, Grade::Invalid);
    assert!(c.unequal[0].contains("moved differs from page: status 302, not 200; bodies of 0 B"), "{c:?}");
    run(&["--fail-if", "rate worse 1000%"]).expect_code(1);
    let meant = run(&["--fail-if", "rate worse 1000%", "--unequal", "ok"]);
    let c: Comparison = serde_json::from_str(&meant.expect_code(0).stdout).unwrap();
    assert!(c.unequal_ok && !c.unequal.is_empty() && c.targets[1].work.statuses.contains_key(&302), "{c:?}");
}

#[test]
fn redirects_and_what_was_asked_for_by_mistake_are_noticed() {
    let moved = Upstream::fixed("HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n");
    expect_reason(&report(&["-n3", "-c1", &url(&moved)]), "redirects", Grade::Suspect);
    let wanted = report(&["-n3", "-c1", "--check", "status=301", &url(&moved)]);
    assert!(!codes(&wanted).contains(&"redirects"), "{:?}", wanted.verdict);

    let (_origin, good) = origin("/body/10");
    expect_reason(&report(&["-n3", "-c1", "--no-keepalive", &good]), "no_keepalive", Grade::Valid);
    expect_reason(&report(&["-n3", "-c1", "--http2", &good]), "one_stream", Grade::Suspect);
    for meant in [&["-m1"][..], &["-m2"]] {
        let r = report(&[&["-n3", "-c1", "--http2", &good], meant].concat());
        assert!(!codes(&r).contains(&"one_stream"), "{:?}", r.verdict);
    }
}

#[test]
fn values_that_were_not_filled_in_are_noticed() {
    let upstream = Upstream::fixed(OK_BODY);
    let target = url(&upstream);
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("ids.csv"), "id\n7\nundefined\n").unwrap();
    let run = |args: &[&str]| -> Report {
        let run = run_weir(dir.path(), &[&["load", "-n2", "-c1", "--format", "json"], args].concat());
        serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {run:#?}"))
    };
    for (args, value) in [
        (&["--data", "{\"user\":\"[object Object]\"}", &target][..], "`[object Object]`"),
        (&[&format!("{target}users/{{id}}")], "`{id}`"),
        (&["-H", "X-Id: ${id}", &target], "`${id}`"),
        (&["--feed", "ids.csv", &format!("{target}{{{{data.id}}}}")], "`undefined`"),
    ] {
        let r = run(args);
        expect_reason(&r, "odd_values", Grade::Suspect);
        let told = r.verdict.reasons.iter().find(|r| r.code == "odd_values").unwrap();
        assert!(told.text.contains(value), "{told:?}");
    }
    let meant = run(&["--raw", &format!("{target}users/{{id}}")]);
    assert!(!codes(&meant).contains(&"odd_values"), "{:?}", meant.verdict);

    std::fs::write(dir.path().join("users.jsonl"), "{\"id\":1,\"at\":{\"x\":1}}\n").unwrap();
    let feed = ["load", "-n1", "--feed", "users.jsonl"];
    for bad in [&["--data", "{\"at\":\"{{data.at}}\"}", &target][..], &[&format!("{target}{{{{data.at}}}}")]]
    {
        run_weir(dir.path(), &[&feed[..], bad].concat())
            .expect_code(2)
            .expect_text("row 1 has an object or a list as `at`");
    }
    run_weir(dir.path(), &[&feed[..], &["--data", "{\"at\":{{data.at}}}", &target]].concat()).expect_code(0);
}

#[test]
fn the_first_request_is_shown_as_it_was_sent() {
    let upstream = Upstream::fixed(OK_BODY);
    let target = format!("{}u/{{{{counter}}}}", url(&upstream));
    let r = report(&["-n1", "-c1", "-H", "X-Api-Key: k7", "--data", "n={{random:5:5}}", &target]);
    let sent = upstream.take_request();
    let shown = &r.ledger.first_request;
    assert!(shown.starts_with("POST /u/0 HTTP/1.1\\r\\n") && shown.ends_with("\\r\\n\\r\\nn=5"), "{shown}");
    assert!(shown.contains("X-Api-Key: ***") && !shown.contains("k7"), "{shown}");
    assert_eq!(r.ledger.first_request_bytes as usize, sent.head.raw.len() + sent.body.bytes.len());

    let (_origin, base) = origin("");
    let r = report(&["-n1", "-c1", "--http2", "-m1", &format!("{base}/body/1{{{{counter}}}}")]);
    assert!(r.ledger.first_request.contains("/body/10"), "{:?}", r.ledger);
    assert_eq!(r.ledger.first_request_bytes, r.bytes.sent(), "{:?}", r.ledger);
}

#[test]
fn a_connection_that_had_to_ask_twice_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    #[allow(unsafe_code)]
    // SAFETY: a plain system call on a socket that already listens: room for one unaccepted connection.
    unsafe {
        libc::listen(listener.as_raw_fd(), 0);
    }
    let first = TcpStream::connect(address).unwrap();
    let serve = std::thread::spawn(move || {
        // A SYN that finds the queue full is dropped, and its sender repeats it after a second.
        let remote = format!(":{:04X} 02 ", address.port());
        eventually("a connection that is not answered", || {
            std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&remote)
        });
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(OK_BODY.as_bytes()).unwrap();
    });
    let r = report(&["-n1", "-c1", &format!("http://{address}/")]);
    serve.join().unwrap();
    drop(first);
    assert_eq!((r.counts.responses, r.connections.syn_again), (1, 1), "{:?}", r.counts);
    expect_reason(&r, "syn_retransmits", Grade::Suspect);
    load(&["-n1", "--unequal", "no", "http://127.0.0.1:1/"]).expect_code(2);
}
