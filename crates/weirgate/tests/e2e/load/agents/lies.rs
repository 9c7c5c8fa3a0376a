//! Agents that report what cannot be true, or text that a terminal would obey.

use super::super::{codes, expect_reason, origin};
use super::{Agent, report};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use tempfile::TempDir;
use weir_report::report::Grade;
use weir_testkit::{Finished, run_weir};

/// Changes what an agent says.
type Lie = fn(&mut serde_json::Value);

/// Stands between coordinator and agent, without TLS, and changes what the agent says.
fn liar(agent: &str, lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, agent) = (listener.local_addr().unwrap(), agent.to_owned());
    std::thread::spawn(move || {
        let (mut down, _) = listener.accept().unwrap();
        let mut up = TcpStream::connect(agent).unwrap();
        let (mut from, mut to) = (down.try_clone().unwrap(), up.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            up.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        down.write_all(&head).unwrap();
        loop {
            let mut frame = [0; 5];
            if up.read_exact(&mut frame).is_err() {
                return;
            }
            let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
            let mut body = vec![0; length as usize];
            up.read_exact(&mut body).unwrap();
            let mut message: serde_json::Value = serde_json::from_slice(&body).unwrap();
            lie(&mut message);
            let body = serde_json::to_vec(&message).unwrap();
            down.write_all(&u32::try_from(body.len()).unwrap().to_be_bytes()).unwrap();
            down.write_all(&[0]).unwrap();
            if down.write_all(&body).is_err() {
                return;
            }
        }
    });
    address
}

/// Runs a load of two agents, the second of which lies.
fn lied(lie: Lie, layout: &str, args: &[&str]) -> Finished {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("token"), "correct-horse-battery\n").unwrap();
    let start = || Agent::start(dir.path(), &["--token-file", "token", "--allow", "http://127.0.0.1:*"]);
    let (honest, other) = (start(), start());
    let agents = format!("{},{}", honest.address, liar(&other.address, lie));
    let own = ["load", "--format", layout, "--agents", &agents, "--token-file", "token"];
    run_weir(dir.path(), &[&own, args].concat())
}

#[test]
fn a_lie_makes_the_result_invalid() {
    let (_origin, url) = origin("/");
    // The lie, whether it is found, and what is said of it.
    let lies: [(Lie, Option<&str>); 5] = [
        (|_| {}, None),
        // A tenth of the responses is claimed to have taken no time.
        (
            |message| {
                if let Some(report) = message.get_mut("ended") {
                    report["latency"]["response"]["buckets"][0][0] = 1.into();
                }
            },
            Some("response times: the sum of its seconds"),
        ),
        // A number that overflows every sum.
        (
            |message| {
                if let Some(second) = message.get_mut("second") {
                    second["counts"]["errors"]["reset"] = u64::MAX.into();
                }
            },
            Some("counts.errors.reset: 18446744073709551615 is more than a run can yield"),
        ),
        // An hour has passed.
        (
            |message| {
                if let Some(second) = message.get_mut("second") {
                    second["tick"]["end_ns"] = 3_600_000_000_000u64.into();
                }
            },
            Some("its end is 3600.000 s, and the load began"),
        ),
        // The target is claimed to have had more than all requests.
        (
            |message| {
                if let Some(report) = message.get_mut("ended") {
                    report["targets"][0]["requests"] = 99.into();
                }
            },
            Some("targets[].requests"),
        ),
    ];
    for (lie, want) in lies {
        let r = report(&lied(lie, "json", &["-n", "40", "-c", "2", &url]));
        assert_eq!(codes(&r).contains(&"merge_mismatch"), want.is_some(), "{:?}", r.verdict);
        assert!(r.agents[0].mismatch.is_none(), "{:?}", r.agents[0].mismatch);
        if let Some(want) = want {
            expect_reason(&r, "merge_mismatch", Grade::Invalid);
            let told = r.agents[1].mismatch.as_deref().unwrap();
            assert!(told.contains(want), "{want}: {told}");
        }
    }
}

#[test]
fn nothing_that_an_agent_says_is_obeyed_by_a_terminal() {
    let (_origin, url) = origin("/");
    for lie in [
        (|message| {
            if let Some(hello) = message.get_mut("hello") {
                hello["generator"]["cpu"] = EVIL.into();
            }
            if let Some(report) = message.get_mut("ended") {
                report["counts"]["error_texts"][EVIL] = 1.into();
                report["ledger"]["server"] = EVIL.into();
                report["generator"]["kernel"] = EVIL.into();
                report["end"] = serde_json::json!({ "failed": { "reason": EVIL } });
            }
        }) as Lie,
        |message| {
            if message.get("ready").is_some() || message.as_str() == Some("ready") {
                *message = serde_json::json!({ "refused": { "why": [EVIL] } });
            }
        },
    ] {
        for layout in ["text", "json"] {
            let done = lied(lie, layout, &["-n", "4", "-c", "2", &url]);
            let shown = format!("{}{}", done.stdout, done.stderr);
            assert!(shown.contains("owned") || layout == "text", "it is there, cleaned: {shown}");
            let is_obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!shown.contains(is_obeyed), "{shown:?}");
            assert!(!shown.lines().any(|line| line == "VALID"), "{shown}");
        }
    }
}

/// Clears the screen, names the window, colors, turns the reading direction, and poses as a line of the report.
const EVIL: &str = "\x1b[2J\x1b]0;owned\x07\u{9b}31m\u{202e}\nVALID";
