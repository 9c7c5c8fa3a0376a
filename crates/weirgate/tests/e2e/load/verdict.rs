//! Reasons of the verdict that need more than an odd target: a generator without ports, descriptors or its own
//! processor. The others are triggered where their targets are.

use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use weir_origin::{Options, Origin, Tls};
use weir_report::Report;
use weir_report::report::Grade;
use weir_report::verdict::REASONS;
use weir_testkit::{Authority, ServerTls, Upstream, own_network, unused_address, weir_command};

use super::{codes, expect_reason, origin, report};
use crate::support::OK;

/// Reasons that no end-to-end test triggers, with the explanation.
const NOT_PROVOKED: &[(&str, &str)] = &[
    ("agents_apart", "it takes clocks that disagree; merge/agents.rs in weir-report has tests"),
    ("agents_uneven", "as agents_apart"),
    ("builds_differ", "it takes another binary; as agents_apart"),
    ("changed_midway", "it takes a run of ten seconds; verdict/course.rs has tests"),
    ("cold_start", "as changed_midway"),
    (
        "delayed_ack",
        "it takes answers that are late by 40 ms to a few milliseconds; verdict/tests.rs has tests",
    ),
    ("drifted", "as changed_midway"),
    ("generator_throttled", "it takes a writable cgroup; throttle.rs and verdict/tests.rs have tests"),
    ("clock_step", "a test may not move the clock of the machine; engine.rs and verdict/tests.rs have tests"),
    ("weights_missed", "the shares are exact by construction; verdict/tests.rs has tests"),
    ("shared_cores", "it takes a machine that nobody else uses; verdict/contention.rs has tests"),
];

#[test]
fn every_reason_is_provoked() {
    let sources = [
        include_str!("../load.rs"),
        include_str!("agents.rs"),
        include_str!("agents/lies.rs"),
        include_str!("agents/losses.rs"),
        include_str!("answers.rs"),
        include_str!("ci.rs"),
        include_str!("faults.rs"),
        include_str!("foreign.rs"),
        include_str!("grpc.rs"),
        include_str!("http2.rs"),
        include_str!("journeys.rs"),
        include_str!("steps.rs"),
        include_str!("shapes.rs"),
        include_str!("unequal.rs"),
        include_str!("websocket.rs"),
        include_str!("verdict.rs"),
        include_str!("../replays.rs"),
    ]
    .concat();
    for rule in REASONS {
        let provoked = sources.contains(&format!("\"{}\", Grade::", rule.code));
        let known = NOT_PROVOKED.iter().any(|(code, _)| *code == rule.code);
        assert!(
            provoked != known,
            "{}: write a test that provokes it, or say in NOT_PROVOKED why not",
            rule.code
        );
    }
}

#[test]
fn errors_are_noticed() {
    let (origin, good) = origin("/body/1KiB");
    let reset = format!("http://{}/reset", origin.address());
    let r = report(&["-n40", "-c2", "--threads=1", &format!("9@{good}"), &reset]);
    assert_eq!((r.counts.responses, r.counts.errors.reset), (36, 4), "{:?}", r.counts);
    expect_reason(&r, "errors", Grade::Suspect);
    assert!(!codes(&r).contains(&"mostly_errors"), "{:?}", r.verdict);

    let r = report(&["-n40", "-c2", "--threads=1", &good, &format!("3@{reset}")]);
    assert_eq!((r.counts.responses, r.counts.errors.reset), (10, 30), "{:?}", r.counts);
    expect_reason(&r, "mostly_errors", Grade::Invalid);
    expect_reason(&report(&["-n9", "-c1", "--check", "status=404", &good]), "failed_checks", Grade::Suspect);
    let garbage = format!("http://{}/garbage", origin.address());
    assert_eq!(report(&["-n5", "-c1", &garbage]).counts.errors.protocol, 5);
    for cut in ["truncated/100", "truncated/100?chunked"] {
        let url = format!("http://{}/{cut}", origin.address());
        assert_eq!(report(&["-n5", "-c1", &url]).counts.errors.reset, 5, "{cut}");
    }
}

#[test]
fn a_generator_out_of_descriptors_is_noticed() {
    let upstream = Upstream::fixed(OK);
    let mut command = weir_command("/".as_ref());
    // The default of 50 connections: with `-c` it would be refused before the run.
    command
        .args(["load", "-n500", "--threads=1", "--format", "json"])
        .arg(format!("http://{}/", upstream.address()));
    let limit = libc::rlimit { rlim_cur: 32, rlim_max: 32 };
    #[allow(unsafe_code)]
    // SAFETY: a plain system call with a valid limit, and the closure neither allocates nor locks.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let r: Report = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    expect_reason(&r, "out_of_descriptors", Grade::Invalid);
    assert!(
        r.counts.responses > 0 && r.health.out_of_descriptors == r.counts.errors.connect,
        "{:?}",
        r.counts
    );
}

#[test]
fn a_generator_out_of_ports_is_noticed() {
    // Only this thread and its children, including the origin, are in this namespace.
    if let Err(e) = own_network(&(40_000..=40_009)) {
        eprintln!("not tried: a network of its own takes CAP_SYS_ADMIN: {e}");
        return;
    }
    let (_origin, url) = origin("/body/1KiB");
    let r = report(&["-c30", "-n300", "--threads=1", &url]);
    expect_reason(&r, "out_of_ports", Grade::Invalid);
    assert!(r.counts.responses > 0 && r.connections.opened <= 10, "{:?}", r.counts);
    assert_eq!(r.health.out_of_ports, r.counts.errors.connect);
}

#[test]
fn connections_that_can_not_be_made_leave_clients_idle() {
    // Every second request fails to connect, and its client's pause doubles.
    let (_origin, good) = origin("/body/1KiB");
    let dead = format!("http://{}/", unused_address());
    let r = report(&["-c4", "-d500ms", "--threshold", "p99.999<10s", &good, &dead]);
    expect_reason(&r, "littles_law", Grade::Suspect);
    assert!(r.counts.responses > 0 && r.counts.errors.connect > 0, "{:?}", r.counts);
    expect_reason(&r, "too_short", Grade::Suspect);
}

#[test]
fn a_generator_that_is_slow_between_requests_is_noticed() {
    // Half a megabyte of JSON to check, during which no request is in flight.
    let body = format!("[{}0]", "[1],".repeat(120_000));
    let upstream =
        Upstream::fixed(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let url = format!("http://{}/", upstream.address());
    let r = report(&["-c1", "-d500ms", "--check", "json:$[0]", &url]);
    assert_eq!(r.counts.failed_checks, 0, "{:?}", r.checks);
    expect_reason(&r, "littles_law", Grade::Suspect);
}

#[test]
fn a_rate_above_what_the_generator_can_do_is_noticed() {
    let (_origin, url) = origin("/body/1KiB");
    let mut busy = None;
    for _ in 0..5 {
        let r = report(&["--rate", "500000/s", "-d400ms", "--threads=1", "--graceful-stop", "1s", &url]);
        expect_reason(&r, "rate_missed", Grade::Invalid);
        // On a shared machine it gets less than 80 % of a core, and reports that instead.
        let waited = ["generator_waited", "shared_cores"].iter().any(|code| codes(&r).contains(code));
        if waited && !codes(&r).contains(&"generator_busy") {
            continue;
        }
        busy = Some(r);
        break;
    }
    match busy {
        Some(r) => expect_reason(&r, "generator_busy", Grade::Suspect),
        None => eprintln!("generator_busy not seen: the machine had no core for it in five runs"),
    }
}

#[test]
fn a_generator_that_shares_its_core_starts_late_and_says_so() {
    let (_origin, url) = origin("/body/1KiB");
    let args = ["load", "--format", "json", "--threads=1", "-c50", "-d1s", "--rate", "1000/s", &url];
    let output = beside_a_spinner(&cores()[0], &args);
    let r: Report = serde_json::from_slice(&output.stdout).unwrap();
    expect_reason(&r, "generator_waited", Grade::Suspect);
    expect_reason(&r, "late_starts", Grade::Suspect);
    let cores = r.health.cores.as_ref().unwrap();
    assert!(cores.busy_ns > 0 && cores.generator_ns > 0 && cores.target_ns.is_some(), "{cores:?}");
    let told = r.verdict.reasons.iter().find(|reason| reason.code == "generator_waited").unwrap();
    assert!(told.text.contains("cores the target used") && told.text.contains("its own threads"), "{told:?}");
}

/// The cores that this test may use.
pub(super) fn cores() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let of = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        from.parse::<u32>().unwrap()..=to.parse().unwrap()
    };
    list.split(',').flat_map(of).map(|core| core.to_string()).collect()
}

/// Runs `weir` with these arguments on one core that a busy loop shares equally.
pub(super) fn beside_a_spinner(core: &str, args: &[&str]) -> Output {
    beside_spinners(1, core, args)
}

/// The same beside several busy loops.
pub(super) fn beside_spinners(count: usize, core: &str, args: &[&str]) -> Output {
    let spin = || {
        let mut spinner = Command::new("taskset")
            .args(["-c", core, "sh", "-c", "echo; while :; do :; done"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        spinner.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap(); // the loop is running now
        spinner
    };
    let spinners: Vec<_> = (0..count).map(|_| spin()).collect();
    let weir = weir_command("/".as_ref()).get_program().to_owned();
    let output = Command::new("taskset").args(["-c", core]).arg(weir).args(args).output();
    for mut spinner in spinners {
        spinner.kill().unwrap();
        spinner.wait().unwrap();
    }
    output.unwrap()
}

#[test]
fn connections_of_two_kinds_are_noticed() {
    // One name with two addresses: an old server at one, a new one at the other.
    let authority = Authority::new();
    let old = ServerTls::only_1_2(&authority.leaf(&["peer.weir.test"]));
    let old = Upstream::fixed_tls(&old, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold");
    let port = old.address().port();
    let address = SocketAddr::from(([127, 0, 0, 2], port));
    let new = Origin::start(Options { address, tls: Tls::SelfSigned, ..Options::default() }).unwrap();
    let resolve = format!("peer.weir.test:{port}:127.0.0.1,127.0.0.2");
    let url = format!("https://peer.weir.test:{port}/body/3");
    let r = report(&["-n40", "-c4", "--insecure", "--resolve", &resolve, &url]);
    expect_reason(&r, "sessions_differ", Grade::Suspect);
    assert_eq!((r.ledger.sessions.len(), r.counts.errors.total()), (2, 0), "{:?}", r.ledger);
    drop(new);
}
