//! Draws the view on a screen in memory and reads it back.

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weir_load::SoFar;
use weir_report::report::{Stop, TargetPlan};

const S: u64 = 1_000_000_000;

fn plan() -> PlanAsRun {
    PlanAsRun {
        targets: vec![TargetPlan {
            method: "GET".to_owned(),
            url: "http://127.0.0.1:1/".to_owned(),
            ..TargetPlan::default()
        }],
        connections: 64,
        stop: Stop { requests: None, duration_ns: Some(30 * S) },
        ..PlanAsRun::default()
    }
}

/// The view after these seconds, each with the given number of responses of 2 ms.
fn after(plan: PlanAsRun, seconds: &[u64]) -> View {
    let mut view = View::new(plan, Duration::from_secs(5));
    let mut so_far = SoFar::default();
    for (second, responses) in (1..).zip(seconds) {
        let mut one = Histogram::new();
        one.record_n(2_000_000, *responses);
        so_far.service.add(&one);
        so_far.response.add(&one);
        so_far.counts.requests += responses;
        so_far.counts.responses += responses;
        so_far.measured_ns = second * S;
        so_far.window.responses += responses;
        so_far.window.length_ns = second * S;
        *so_far.counts.statuses.entry(200).or_default() += responses;
        let times = Percentiles::of(&one);
        let tick = Tick {
            end_ns: second * S,
            length_ns: S,
            responses: *responses,
            service: times,
            response: times,
            users: 7,
            ..Tick::default()
        };
        view.look(&Progress { elapsed_ns: (5 + second) * S, tick: Some(&tick), so_far: &so_far });
    }
    view
}

fn drawn(view: &View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

#[track_caller]
fn expect(rows: &[String], texts: &[&str]) {
    for text in texts {
        assert!(rows.iter().any(|row| row.contains(text)), "no {text:?} in:\n{}", rows.join("\n"));
    }
}

#[test]
fn the_warm_up_has_no_figures_yet() {
    let mut view = View::new(plan(), Duration::from_secs(5));
    view.look(&Progress { elapsed_ns: 2 * S, tick: None, so_far: &SoFar::default() });
    let rows = drawn(&view, 80, 24);
    expect(
        &rows,
        &["weir load  GET http://127.0.0.1:1/", "64 connections", "warm-up, 2 s of 5 s", " 0 responses"],
    );
}

#[test]
fn the_verdict_develops() {
    let mut view = View::new(plan(), Duration::ZERO);
    expect(&drawn(&view, 80, 24), &["no verdict yet"]);
    view = after(plan(), &[1000]);
    expect(&drawn(&view, 80, 24), &["VALID so far"]);
    let tick = Tick::default();
    let mut so_far = SoFar { measured_ns: 9 * S, ..SoFar::default() };
    so_far.counts.responses = 1000;
    so_far.counts.statuses.insert(200, 1000);
    so_far.counts.errors.reset = 11;
    view.look(&Progress { elapsed_ns: 9 * S, tick: Some(&tick), so_far: &so_far });
    expect(&drawn(&view, 80, 24), &["SUSPECT so far  errors: 1.1 % of the requests ended in an error"]);
    so_far.longest_silence_ns = 3 * S;
    so_far.counts.errors.reset = 3000;
    view.look(&Progress { elapsed_ns: 9 * S, tick: Some(&tick), so_far: &so_far });
    expect(&drawn(&view, 80, 24), &["INVALID so far (and 2 more)  mostly_errors: 75.0 %"]);
    so_far.counts = Counts::default();
    view.look(&Progress { elapsed_ns: 9 * S, tick: Some(&tick), so_far: &so_far });
    expect(&drawn(&view, 80, 24), &["no_responses: no response to"]);
}

#[test]
fn all_figures_are_to_be_seen() {
    let mut view = after(plan(), &[1000, 3000]);
    let rows = drawn(&view, 80, 24);
    let seen = [
        "2 s of 30 s",
        "3,000/s now       2,000/s on the whole         4,000 responses",
        "service time, now        2.000 ms   2.000 ms   2.000 ms   2.000 ms   2.000 ms",
        "status     200: 4,000",
        "errors                  0  0.00 %",
        "responses a second, up to 3,000",
        "response time p99, up to 2.0",
        "█",
        "Ctrl-C ends the run and prints the report",
    ];
    expect(&rows, &seen);
    view.counts.errors.reset = 3;
    view.counts.errors.timeout = 1;
    view.counts.statuses.insert(503, 12);
    view.counts.grpc.insert("Unavailable".to_owned(), 2);
    let cost = TargetCost {
        pid: 7,
        command: "nginx".to_owned(),
        cpu_ns: S,
        sampled_ns: 2 * S,
        ..TargetCost::default()
    };
    view.cost = Some(TargetCost { rss_bytes_end: 3 << 20, ..cost });
    let rows = drawn(&view, 80, 24);
    let seen = [
        "errors                  4  0.10 %   timeout: 1   reset: 3",
        "status     200: 4,000   503: 12   Unavailable: 2",
        "target     nginx (7): 0.50 cores, 250.0 µs per response, 3.00 MiB of memory",
    ];
    expect(&rows, &seen);
}

#[test]
fn each_pace_and_end_has_its_words() {
    let rate = Pace::Rate { per_second: 5000.0 };
    let stop = Stop { requests: Some(9000), duration_ns: None };
    let view = after(PlanAsRun { pace: rate, stop, ..plan() }, &[4500]);
    let rows = drawn(&view, 80, 24);
    expect(&rows, &["5,000/s, 7 requests under way", "1 s, 4,500 of 9,000 requests"]);
    let stages = Pace::Stages { of: StageUnit::Users, start: 0.0, stages: Vec::new() };
    let mut view = after(PlanAsRun { pace: stages, streams: 10, name: "mine".to_owned(), ..plan() }, &[10]);
    view.elapsed = Duration::from_secs(36);
    expect(
        &drawn(&view, 100, 24),
        &["mine  GET", "7 users, 10 streams each", "31 s of 30 s, waiting for the last responses"],
    );
}

#[test]
fn the_lines_over_time_end_with_the_last_second() {
    let seconds: Vec<u64> = (1..=600).collect();
    let view = after(plan(), &seconds);
    assert_eq!((view.rates.len(), view.rates.back()), (SECONDS_MOST, Some(&600)));
    let rows = drawn(&view, 40, 24);
    let head = rows.iter().position(|row| row.contains("up to 600")).unwrap();
    assert_eq!(rows[head + 1].chars().count(), 40, "{rows:#?}");
    assert!(rows[head + 1].ends_with('█'), "{rows:#?}");
}

#[test]
fn no_terminal_is_too_small() {
    let view = after(plan(), &[1000]);
    for (width, height) in [(1, 1), (2, 30), (200, 1), (20, 5), (80, 10), (300, 100)] {
        drawn(&view, width, height);
    }
}
