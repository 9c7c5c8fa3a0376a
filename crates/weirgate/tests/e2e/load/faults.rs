//! Failing targets, and their effect on counts and verdict.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use weir_origin::{Options, Origin};
use weir_report::Report;
use weir_report::report::Grade;
use weir_testkit::{Authority, ServerTls, Upstream, unused_address, weir_command};

use super::{expect_reason, load, origin, report, url};
use crate::support::{OK, OK_BODY};

#[test]
fn a_dead_target_is_noticed() {
    let address = unused_address();
    let r = report(&["-n4", "-c2", &format!("http://{address}/")]);
    assert_eq!((r.counts.requests, r.counts.responses, r.counts.errors.connect), (4, 0, 4));
    expect_reason(&r, "no_responses", Grade::Invalid);
    assert!(r.counts.error_texts.keys().any(|t| t.contains("refused")), "{:?}", r.counts.error_texts);
}

#[test]
fn what_is_read_of_a_broken_answer_is_counted() {
    for bad in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        "HTTP/1.1 999 Foo\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
    ] {
        let r = report(&["-n2", "-c1", &url(&Upstream::fixed(bad))]);
        assert_eq!((r.counts.errors.protocol, r.bytes.received()), (2, 2 * bad.len() as u64), "{bad:?}");
    }
    let r = report(&["-n2", "-c1", &url(&Upstream::fixed(OK)).replace("http", "ws")]);
    assert_eq!((r.counts.errors.protocol, r.bytes.received()), (2, 2 * OK.len() as u64), "{:?}", r.bytes);
}

#[test]
fn a_target_that_is_gone_is_a_stall_at_every_pace() {
    for pace in [&["-c4"][..], &["-c2", "--think", "100ms"], &["-c4", "--rate", "200/s"]] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("http://{}/", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(OK.as_bytes()).unwrap();
        });
        let r = report(&[&["-d1500ms", "--threads=1", &target], pace].concat());
        served.join().unwrap();
        assert!(
            r.counts.responses > 0 && r.health.longest_silence_ns > 1_100_000_000,
            "{pace:?} {:?}",
            r.health
        );
        expect_reason(&r, "stalled", Grade::Suspect);
        if pace.contains(&"--rate") {
            // Each due start is tried, and none waits for a client that could not connect.
            assert_eq!((r.counts.requests, r.counts.unsent), (300, 0), "{:?}", r.counts);
            assert!(r.counts.errors.connect > 280 && r.health.backlog_max < 100, "{:?}", r.counts);
        }
    }
}

#[test]
fn think_time_and_rare_errors_are_no_stall_and_no_idle_connections() {
    let (_origin, fast) = origin("/body/10");
    for plan in [
        &["-c10", "--threads=2", "-d1s", "--think", "250ms"][..],
        &["--threads=2", "--stages", "300ms:10,300ms:0", "--think", "50ms"],
        &["--threads=2", "--stages", "500ms:5", "-n10"],
    ] {
        let r = report(&[plan, &[&fast]].concat());
        let told: Vec<_> = r.verdict.reasons.iter().filter(|r| r.code == "littles_law").collect();
        assert!(told.is_empty() && r.counts.responses > 0, "{plan:?} {told:?} {:?}", r.threads);
    }
    // One fails, and the next is due 1.2 s later.
    let turn = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() && turn.fetch_add(1, Ordering::Relaxed) != 1 {
            conn.send(OK);
        }
    });
    let r = report(&["-n3", "-c1", "--think", "1200ms", &url(&upstream)]);
    assert_eq!((r.counts.responses, r.counts.errors.reset), (2, 1), "{:?}", r.counts);
    assert!(r.health.longest_silence_ns < 1_000_000_000, "{:?}", r.health);
}

#[test]
fn an_address_that_refuses_is_passed_over() {
    // ::1 refuses, or this machine lacks it; nobody listens on 127.0.0.3.
    let (origin, _) = origin("/");
    let port = origin.address().port();
    let (url, with) = (format!("http://peer.weir.test:{port}/"), format!("peer.weir.test:{port}"));
    for (others, more) in [
        ("[::1],127.0.0.1", &["-c4"][..]),
        ("127.0.0.3,127.0.0.1", &["-c4", "--no-keepalive"]),
        ("127.0.0.3,127.0.0.1", &["-c4", "--rate", "400"]),
        ("127.0.0.3,[::1],127.0.0.1", &["--http2", "-c2", "-m2"]),
    ] {
        let run = || {
            report(&[&["-n40", "--threads=2", "--resolve", &format!("{with}:{others}"), &url], more].concat())
        };
        // On a busy machine, the other thread may get all answers before a client sends its first request. A client
        // that never moves on gets none in any run.
        let all_had_some = |r: &Report| r.connections.responses_by_client.iter().all(|n| *n > 0);
        let mut runs = (0..20).map(|_| run());
        let r = runs.find(|r| all_had_some(r) || more.contains(&"400")).unwrap();
        assert_eq!((r.counts.responses, r.counts.errors.total()), (40, 0), "{others}: {:?}", r.counts);
        assert_eq!(r.plan.targets[0].addresses.len(), others.split(',').count());
        let of = |address: &str| r.ledger.addresses[&format!("{address}:{port}")].clone();
        let dead = of(others.split(',').next().unwrap());
        assert!(dead.opened == 0 && dead.failed > 0, "{others}: {:?}", r.ledger.addresses);
        assert_eq!(of("127.0.0.1").opened, r.connections.opened, "{others}: {:?}", r.ledger.addresses);
    }
    let told = format!("address      127.0.0.3:{port}, 0 connections opened, ");
    let run = || load(&["-n4", "-c2", "--resolve", &format!("{with}:127.0.0.3,127.0.0.1"), &url]);
    assert!((0..20).any(|_| run().stdout.contains(&told)), "{told}");
    // Also where each address has its own rule. Every request has its answer, and the verdict names the dead one.
    let (dead, alive) = (format!("{with}:127.0.0.3"), format!("{with}:127.0.0.1"));
    let r = report(&["-n40", "-c4", "--no-keepalive", "--resolve", &dead, "--resolve", &alive, &url]);
    assert_eq!((r.counts.responses, r.ledger.addresses.len()), (40, 2), "{:?}", r.ledger.addresses);
    expect_reason(&r, "dead_address", Grade::Suspect);
    let told = &r.verdict.reasons.iter().find(|reason| reason.code == "dead_address").unwrap().text;
    assert!(told.starts_with(&format!("127.0.0.3:{port} accepted no connection")), "{told}");
    let none = report(&["-n4", "-c2", "--resolve", &format!("{with}:127.0.0.3,127.0.0.4"), &url]);
    assert_eq!((none.counts.responses, none.counts.errors.connect), (0, 4), "{:?}", none.counts);
    assert!(none.ledger.addresses.values().all(|used| used.failed > 0), "{:?}", none.ledger.addresses);
}

#[test]
fn connections_are_spread_over_all_addresses_that_accept() {
    let any = Options { address: "0.0.0.0:0".parse().unwrap(), ..Options::default() };
    let origin = Origin::start(any).unwrap();
    let port = origin.address().port();
    let resolve = format!("peer.weir.test:{port}:127.0.0.3,[::1],127.0.0.4");
    let url = format!("http://peer.weir.test:{port}/");
    let r = report(&["-n80", "-c8", "--threads=1", "--resolve", &resolve, &url]);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (80, 0), "{:?}", r.counts);
    let opened = |address: &str| r.ledger.addresses[&format!("{address}:{port}")].opened;
    assert_eq!(opened("127.0.0.3") + opened("127.0.0.4"), 8, "{:?}", r.ledger.addresses);
    assert!(opened("127.0.0.3") > 1 && opened("127.0.0.4") > 1, "{:?}", r.ledger.addresses);
}

#[test]
fn a_silent_target_times_out() {
    let upstream = Upstream::script(|conn| while conn.next_request().is_some() {});
    let r = report(&["-n4", "-c2", "--timeout", "150ms", &url(&upstream)]);
    assert_eq!((r.counts.errors.timeout, r.counts.unfinished), (4, 0), "{:?}", r.counts);
    assert!((300_000_000..1_500_000_000).contains(&r.duration_ns), "{}", r.duration_ns);
}

#[test]
fn what_comes_after_the_timeout_is_no_response() {
    // The excess is far shorter than the sampler's interval, so most are not ended before their answer arrives.
    let (_origin, target) = origin("/delay/105");
    for options in [&["-c4"][..], &["-c4", "--rate", "97"], &["--http2", "-c1", "-m4"]] {
        let r = report(&[&["-n20", "--timeout", "100ms", &target], options].concat());
        assert_eq!((r.counts.responses, r.counts.errors.timeout), (0, 20), "{options:?}: {:?}", r.counts);
    }
}

#[test]
fn a_port_of_the_other_kind_is_told() {
    let plain = Upstream::script(|conn| {
        conn.read_n(5);
        conn.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let r = report(&["-n1", "-c1", &url(&plain).replace("http", "https"), "--insecure"]);
    assert!(r.counts.error_texts.keys().all(|t| t.contains("is this a cleartext port?")), "{r:#?}");
    let tls = Upstream::fixed_tls(&ServerTls::new(&Authority::new().leaf(&["127.0.0.1"])), OK);
    let r = report(&["-n1", "-c1", &url(&tls)]);
    assert!(r.counts.error_texts.keys().all(|t| t.contains("is this an https port?")), "{r:#?}");
    assert_eq!((r.counts.errors.protocol, r.counts.responses), (1, 0), "{:?}", r.counts);
}

#[test]
fn what_is_no_http_and_what_ends_early_are_errors_of_their_own() {
    let garbage = Upstream::fixed("HTTP/1.1 200 OK\nbare: LF\n\n");
    assert_eq!(report(&["-n2", "-c1", &url(&garbage)]).counts.errors.protocol, 2);
    let short = Upstream::script(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let r = report(&["-n2", "-c1", &url(&short)]);
    assert_eq!((r.counts.errors.reset, r.counts.responses), (2, 0), "{:?}", r.counts);
    assert_eq!(r.bytes.received_body, 8);
    let long = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlonger");
    let r = report(&["-n2", "-c1", &url(&long)]);
    assert_eq!((r.counts.errors.protocol, r.counts.responses), (2, 0), "{:?}", r.counts);
    assert!(r.counts.error_texts.keys().all(|text| text.contains("more than its Content-Length")), "{r:?}");
    expect_reason(&r, "no_responses", Grade::Invalid);
}

#[test]
fn starved_connections_and_lost_responses_are_noticed() {
    // The first connection is served, the second is not.
    let first = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        let serves = first.fetch_add(1, Ordering::Relaxed) == 0;
        while conn.next_request().is_some() {
            if serves {
                conn.send(OK);
            }
        }
    });
    let r = report(&["-c2", "-d300ms", "--graceful-stop", "200ms", &url(&upstream)]);
    assert_eq!(r.counts.unfinished, 1, "{:?}", r.counts);
    expect_reason(&r, "starved_connections", Grade::Invalid);
    expect_reason(&r, "unfinished", Grade::Suspect);
    assert_eq!(r.counts.requests, r.counts.responses + 1);
    // Whichever thread had the served connection.
    assert!(r.ledger.first_response_bytes > 0, "{:?}", r.ledger);
}

#[test]
fn a_graceful_stop_waits_for_what_is_under_way() {
    let (_origin, url) = origin("/delay/300");
    let r = report(&["-c3", "-d100ms", &url]);
    assert_eq!((r.counts.responses, r.counts.unfinished), (3, 0));
    assert!(r.duration_ns >= 300_000_000, "{}", r.duration_ns);
}

#[test]
fn a_stall_is_noticed() {
    let (origin, fast) = origin("/body/1KiB");
    let slow = format!("http://{}/delay/1300", origin.address());
    let r = report(&["-n60", "-c1", &format!("59@{fast}"), &slow]);
    assert!(r.health.longest_silence_ns > 1_300_000_000, "{}", r.health.longest_silence_ns);
    expect_reason(&r, "stalled", Grade::Suspect);
}

#[test]
fn a_target_that_stands_still_again_and_again_is_noticed_by_a_closed_loop() {
    let begun = std::time::Instant::now();
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            // The second half of each second.
            let within = begun.elapsed().as_millis() % 1000;
            if within >= 500 {
                weir_testkit::pause(Duration::from_millis(1000 - within as u64));
            }
            conn.send(OK);
        }
    });
    let told = |r: &Report, code: &str| r.verdict.reasons.iter().find(|reason| reason.code == code).cloned();
    // On a busy machine the target is also slow between its pauses, so they do not stand out. One run of five must be
    // quiet enough, unless the generator had to wait for a processor in each.
    let mut always_waited = true;
    let noticed = (0..5).any(|_| {
        let r = report(&["-c8", "-d4500ms", &url(&upstream)]);
        always_waited &= told(&r, "generator_waited").is_some();
        let stalled = told(&r, "stalled");
        if let Some(told) = &stalled {
            assert!(told.grade == Grade::Suspect && told.text.contains("--rate"), "{told:?}");
            assert!(r.health.silences.count() >= 3, "{:?}", r.verdict);
        }
        stalled.is_some()
    });
    assert!(noticed || always_waited, "none of five runs noticed that the target stood still");
    let (_origin, slow) = origin("/delay/100");
    let r = report(&["-c2", "-d1500ms", &slow]);
    assert!(
        r.verdict.reasons.iter().all(|reason| reason.code != "stalled"),
        "slow by nature: {:?}",
        r.verdict
    );
}

#[test]
fn a_timeout_breaks_a_bound_on_time() {
    let turn = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            if turn.fetch_add(1, Ordering::Relaxed) % 20 == 19 {
                weir_testkit::pause(Duration::from_millis(400));
            }
            conn.send(OK);
        }
    });
    let args =
        ["-n200", "-c4", "--timeout=200ms", "--threshold=max<10s", "--threshold=p50<10s", &url(&upstream)];
    let r = report(&args);
    assert!(r.counts.errors.timeout > 0, "{:?}", r.counts);
    let [max, median] = &r.thresholds[..] else { panic!("{:?}", r.thresholds) };
    assert!(!max.passed && max.unanswered && max.measured.is_none(), "{max:?}");
    assert!(median.passed && median.measured.is_some(), "{median:?}");
}

#[test]
fn a_target_that_does_not_close_costs_no_descriptors() {
    let upstream = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            conn.send(OK)
        }
    });
    let dir = TempDir::new().unwrap();
    let weir = weir_command(dir.path());
    let args = ["load", "-n600", "-c4", "--threads=1", "--no-keepalive", "--format", "json", &url(&upstream)];
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 250; exec \"$@\"", "sh"]).arg(weir.get_program()).args(args);
    let r: Report = serde_json::from_slice(&limited.output().unwrap().stdout).unwrap();
    assert_eq!((r.counts.responses, r.health.out_of_descriptors), (600, 0), "{:?}", r.counts);
}

#[test]
fn an_older_protocol_is_noticed() {
    let upstream = Upstream::script(|conn| {
        conn.read_request();
        conn.send("HTTP/1.0 200 OK\r\n\r\nbody");
    });
    let r = report(&["-n3", "-c1", &url(&upstream)]);
    assert_eq!((r.counts.responses, r.bytes.received_body), (3, 12));
    expect_reason(&r, "wrong_protocol", Grade::Invalid);
    expect_reason(&r, "not_kept_alive", Grade::Suspect);
}

#[test]
fn bodies_and_statuses_that_change_are_noticed() {
    let n = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            match n.fetch_add(1, Ordering::Relaxed) {
                3 => conn.send("HTTP/1.1 500 Bad\r\nContent-Length: 0\r\n\r\n"),
                5 => conn.send(OK),
                _ => conn.send(OK_BODY),
            }
        }
    });
    let r = report(&["-n10", "-c1", &url(&upstream)]);
    expect_reason(&r, "body_length_changed", Grade::Suspect);
    expect_reason(&r, "status_mix", Grade::Suspect);
    assert_eq!((r.counts.other_length, r.targets[0].body_bytes), (1, Some((0, 2))));
    assert_eq!(r.latency.service_unexpected.count(), 1);
}

#[test]
fn a_pause_follows_what_failed_and_nothing_else() {
    let (_origin, good) = origin("/body/10");
    let dead = format!("http://{}/", unused_address());
    let r = report(&["-n60", "-c1", &dead, &good]);
    assert_eq!((r.counts.responses, r.counts.errors.connect), (30, 30), "{:?}", r.counts);
    assert!(
        r.duration_ns < 1_500_000_000,
        "30 pauses of 1 ms, as each failure is the first: {}",
        r.duration_ns
    );

    // One client: of two, the first could take both requests before the other wakes, and would correctly pause.
    let r = report(&["-n1", "-c1", "--think", "20s", &good]);
    assert!(r.duration_ns < 10_000_000_000, "nothing comes after the last: {}", r.duration_ns);
}
