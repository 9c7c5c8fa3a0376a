//! Agents that are killed, stand still or lose their coordinator.

use super::super::{codes, expect_reason};
use super::{Agent, Keys, LONG, finished, noting, refs, report};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_report::Report;
use weir_report::report::{End, Grade};
use weir_testkit::{Upstream, eventually_within, pause};

/// Runs a load of two agents and does something to the second as soon as the target has seen requests.
fn disturbed(args: &[&str], what: impl FnOnce(&Agent)) -> (Report, Duration, Arc<AtomicU64>) {
    let keys = Keys::new();
    let agents = keys.agents(2);
    let requests = Arc::new(AtomicU64::new(0));
    let all = Arc::clone(&requests);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            all.fetch_add(1, Ordering::Relaxed);
            if conn.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let url = format!("http://{}/", upstream.address());
    let mut command = keys.command(&refs(&agents), &[args, &["--rate", "40/s", "-c", "4", &url]].concat());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually_within(LONG, "requests", || requests.load(Ordering::Relaxed) > 60);
    let begun = Instant::now();
    what(&agents[1]);
    let done = finished(child.wait_with_output().unwrap());
    let took = begun.elapsed();
    // Paused agents end too.
    agents[1].signal(libc::SIGCONT);
    (report(&done), took, requests)
}

#[test]
fn a_killed_agent_ends_the_run() {
    let (r, took, requests) = disturbed(&["-d", "60s"], |agent| agent.signal(libc::SIGKILL));
    expect_reason(&r, "agent_lost", Grade::Invalid);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(matches!(r.end, End::Failed { .. }), "{:?}", r.end);
    let lost = r.agents[1].lost.as_ref().unwrap();
    assert!(lost.seconds >= 1 && r.agents[1].responses > 0, "what it told is in the sum: {lost:?}");
    // Nobody sends any more.
    let then = requests.load(Ordering::Relaxed);
    pause(Duration::from_millis(500));
    assert_eq!(requests.load(Ordering::Relaxed), then);
}

#[test]
fn the_others_go_on_if_asked_to() {
    let (r, took, _) =
        disturbed(&["-d", "8s", "--on-agent-loss", "continue"], |agent| agent.signal(libc::SIGKILL));
    expect_reason(&r, "agent_lost", Grade::Suspect);
    assert!(took > Duration::from_secs(3), "{took:?}");
    assert!(r.agents[0].lost.is_none() && r.agents[0].responses > r.agents[1].responses, "{:?}", r.agents);
}

#[test]
fn a_paused_agent_is_lost_after_five_seconds() {
    let (r, took, _) = disturbed(&["-d", "60s"], |agent| agent.signal(libc::SIGSTOP));
    expect_reason(&r, "agent_lost", Grade::Invalid);
    assert!((4..12).contains(&took.as_secs()), "{took:?}");
    assert!(r.agents[1].lost.as_ref().unwrap().why.contains("no word for 5 s"), "{:?}", r.agents[1].lost);
}

#[test]
fn agents_stop_when_their_coordinator_is_gone() {
    let keys = Keys::new();
    let agents = keys.agents(2);
    let (upstream, seen) = noting();
    let url = format!("http://{}/", upstream.address());
    let mut command = keys.command(&refs(&agents), &["--rate", "40/s", "-c", "4", "-d", "60s", &url]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let count = || seen.lock().unwrap().len();
    eventually_within(LONG, "requests", || count() > 20);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually_within(LONG, "silence", || {
        let before = count();
        pause(Duration::from_millis(300));
        count() == before
    });
    // They are free for another run.
    keys.load(&refs(&agents), &["-n", "4", "-c", "2", &url]).expect_code(0);
}

#[test]
fn of_three_agents_one_is_killed_and_one_stands_still() {
    let keys = Keys::new();
    let agents = keys.agents(3);
    let (upstream, seen) = noting();
    let target = format!("http://{}", upstream.address());
    // The first agent, which ran `setup` and is to run `teardown`, is the one that stands still.
    let plan = format!(
        "target: {target}\nsetup: [ {{ name: up, get: /setup }} ]\ndry_run: false\n\
         scenarios: {{ a: {{ rate: 60/s, users_max: 9, steps: [ {{ name: one, get: /x }} ] }} }}\n\
         teardown: [ {{ name: down, get: /teardown }} ]\n"
    );
    std::fs::write(keys.dir.path().join("plan.yaml"), plan).unwrap();
    let args = ["-f", "plan.yaml", "-d", "12s", "--on-agent-loss", "continue"];
    let mut command = keys.command(&refs(&agents), &args);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually_within(LONG, "requests", || seen.lock().unwrap().len() > 60);
    agents[0].signal(libc::SIGSTOP);
    agents[1].signal(libc::SIGKILL);
    let done = finished(child.wait_with_output().unwrap());
    agents[0].signal(libc::SIGCONT);
    let r = report(&done);
    expect_reason(&r, "agent_lost", Grade::Suspect);
    let lost: Vec<Option<&str>> = r.agents.iter().map(|a| a.lost.as_ref().map(|l| l.why.as_str())).collect();
    let by = format!("{} ran `teardown`", agents[2].address);
    assert!(lost[0].is_some_and(|why| why.contains("no word for 5 s") && why.contains(&by)), "{lost:?}");
    assert!(lost[1].is_some_and(|why| why.contains(&by)), "{lost:?}");
    assert!(lost[2].is_none() && r.agents[2].responses > r.agents[0].responses, "{lost:?}");
    assert!(!codes(&r).contains(&"merge_mismatch"), "{:?}", r.verdict);
    // What woke up is free again once it has read that it was given up, and sends nothing more.
    let then = seen.lock().unwrap().len();
    let again = ["-n", "1", "-c", "1", &format!("{target}/again")];
    eventually_within(LONG, "it is free", || keys.load(&[&agents[0]], &again).code == Some(0));
    let all = seen.lock().unwrap().clone();
    assert_eq!(all.len(), then + 1, "{all:?}");
    let of = |what: &str| all.iter().filter(|target| *target == what).count();
    assert_eq!((of("/setup"), of("/teardown")), (1, 1), "{all:?}");
}
