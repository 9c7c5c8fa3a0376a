//! `weir compare` reports which target is faster, with an interval, and noise fails nothing.

use super::{origin, url};
use crate::support::OK_BODY;
use tempfile::TempDir;
use weir_report::Comparison;
use weir_report::comparison::CompareEnd;
use weir_report::report::Grade;
use weir_testkit::{Finished, Upstream, Weir, run_weir, unused_address};

fn compare(dir: &TempDir, args: &[&str]) -> Finished {
    run_weir(dir.path(), &[&["compare", "-c1", "--threads=1", "--unequal", "ok"], args].concat())
}

#[track_caller]
fn result(finished: &Finished) -> Comparison {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"))
}

/// The names of two targets: one answers immediately, the other after 10 ms.
fn quick_and_slow() -> (weir_origin::Handle, String, String) {
    let (handle, url) = origin("");
    (handle, format!("quick={url}/body/1KiB"), format!("slow={url}/delay/10"))
}

#[test]
fn the_slower_one_is_told_and_fails_the_gate() {
    let (_origin, quick, slow) = quick_and_slow();
    let dir = TempDir::new().unwrap();
    // Enough rounds for an interval even if a busy machine slows some of them.
    let args = ["-d5s", "--block", "120ms", "--fail-if", "p50 worse 20%", "--fail-if", "p99 worse 900%"];
    let run = compare(&dir, &[&args[..], &["--format", "json", &quick, &slow]].concat());
    run.expect_code(1);
    let c = result(&run);
    assert_eq!(c.order, ["quick", "slow", "slow", "quick"]);
    assert!(c.rounds >= 2 && c.end == CompareEnd::Time, "{c:?}");
    let (quick_result, slow_result) = (&c.targets[0], &c.targets[1]);
    assert_eq!(slow_result.rounds["rate"].len() as u64, c.rounds);
    assert!(slow_result.figures["p50"].value > 1e7 && quick_result.figures["p50"].value < 1e7, "{c:?}");
    let ratio = slow_result.ratios["p50"];
    assert!(ratio.range.unwrap().0 > 1.0 && slow_result.ratios["rate"].value < 1.0, "{ratio:?}");
    assert!(!c.conditions[0].passed && c.conditions[0].target == "slow");
    // In the other order it is better, not worse.
    let run = compare(
        &dir,
        &["-d2s", "--block", "120ms", "--fail-if", "p50 worse 20%", "--html", "c.html", &slow, &quick],
    );
    run.expect_code(0).expect_text("held").expect_text("to slow").expect_text("slow quick quick slow");
    let page = std::fs::read_to_string(dir.path().join("c.html")).unwrap();
    assert!(page.contains("slow and quick") && page.contains("Ratios to the first"), "{page}");
}

#[test]
fn it_ends_when_the_intervals_are_narrow() {
    let (_origin, url) = origin("/delay/3");
    let dir = TempDir::new().unwrap();
    let (a, b) = (format!("a={url}"), format!("b={url}"));
    let run = compare(&dir, &["-d60s", "--block", "100ms", "--until", "95%", "--format", "json", &a, &b]);
    let c = result(run.expect_code(0));
    assert_eq!(c.end, CompareEnd::Narrow);
    assert!(c.rounds >= 5 && c.targets[1].ratios["rate"].spread().unwrap() <= 0.95, "{c:?}");
}

#[test]
fn a_saved_result_is_a_gate() {
    let (_origin, quick, slow) = quick_and_slow();
    let dir = TempDir::new().unwrap();
    let rounds = ["-d4s", "--block", "250ms"];
    compare(&dir, &[&rounds[..], &["--save", "before.json", &quick]].concat()).expect_code(0);
    let gate = ["--against", "before.json", "--fail-if", "p50 worse 20%"];
    compare(&dir, &[&rounds[..], &gate, &[&slow]].concat())
        .expect_code(1)
        .expect_text("BROKEN p50 worse 20%: slow");
    let lenient = ["--against", "before.json", "--fail-if", "rate worse 90%"];
    compare(&dir, &[&rounds[..], &lenient, &[&quick]].concat()).expect_code(0).expect_text("to before");
    // A report of `weir load` has one value per figure: informative, but no basis for a gate.
    let url = quick.trim_start_matches("quick=");
    run_weir(dir.path(), &["load", "-n200", "-c1", "--save", "load.json", url]).expect_code(0);
    let gate = ["--against", "load.json", "--fail-if", "p50 worse 20%"];
    compare(&dir, &[&rounds[..], &gate, &[&slow]].concat())
        .expect_code(2)
        .expect_text("one value for it")
        .expect_text("weir compare NAME=URL --save FILE");
    let look = ["-d500ms", "--against", "load.json"];
    compare(&dir, &[&look[..], &[&slow]].concat()).expect_code(0).expect_text("to before");
}

#[test]
fn what_a_gateway_adds_is_told() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    let dir = TempDir::new().unwrap();
    let (direct, gateway) = (url(&upstream), format!("http://{}/", weir.address("web")));
    let run = compare(&dir, &["-d2s", "--block", "200ms", "--direct", &direct, "--format", "json", &gateway]);
    let c = result(run.expect_code(0));
    let names: Vec<&str> = c.targets.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["direct", "gateway"]);
    let (direct, gateway) = (&c.targets[0], &c.targets[1]);
    assert!(direct.responses.abs_diff(gateway.responses) <= c.rounds, "they take turns: {c:?}");
    assert!(gateway.added["p50"].value > 0.0 && direct.added.is_empty(), "{c:?}");
    assert!(c.to_text().contains("\nadded\n"), "{}", c.to_text());
}

#[test]
fn the_cost_of_each_is_told() {
    let upstream = Upstream::fixed(OK_BODY);
    let dir = TempDir::new().unwrap();
    let (a, b) = (format!("a={}", url(&upstream)), format!("b={}", url(&upstream)));
    let run = compare(&dir, &["-d1s", "--block", "100ms", "--pid", "auto", "--format", "json", &a, &b]);
    let c = result(run.expect_code(0));
    assert!(c.targets.iter().all(|t| t.figures["cost"].value > 0.0), "{c:?}");
}

#[test]
fn a_target_that_is_dead_ends_it() {
    let (_origin, quick, _) = quick_and_slow();
    let dir = TempDir::new().unwrap();
    let dead = format!("dead=http://{}/", unused_address());
    let run = compare(&dir, &["-d20s", "--block", "300ms", "--format", "json", &quick, &dead]);
    let c = result(run.expect_code(1));
    assert_eq!((c.end, c.grade, c.rounds), (CompareEnd::NoResponse, Grade::Invalid, 1));
    assert!(
        c.targets[1].reasons.contains_key("no_responses")
            && !c.targets[0].reasons.contains_key("no_responses"),
        "{c:?}"
    );
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let upstream = Upstream::fixed(OK_BODY);
    let (a, b) = (format!("a={}", url(&upstream)), format!("b={}", url(&upstream)));
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("odd.json"), "{}").unwrap();
    for (args, want) in [
        (&[][..], "TARGET: expected a target"),
        (&["a=ftp://x/", &b], "ftp://x/"),
        (&[&a, &a], "there is a target of this name already"),
        (&[&a, &b, "--fail-if", "p99 > 5%"], "expected FIGURE worse PERCENT"),
        (&[&a, &b, "--fail-if", "cost worse 5%"], "--pid auto"),
        (&[&a, "--fail-if", "p99 worse 5%"], "nothing to compare with"),
        (&[&a, &b, "--until", "much"], "--until much"),
        (&[&a, &b, "-d", "1s", "--block", "1s"], "--block: one round"),
        (&[&a, &b, "-d", "10ms"], "-d: is too short"),
        (&[&a, &b, "--pid", "c=1"], "--pid c=1"),
        (&[&a, "--against", "odd.json"], "expected what `weir compare --save`"),
        (&[&a, "--against", "none.json"], "--against none.json: No such file"),
        (&[&a, &b, "--direct", "http://127.0.0.1:1/"], "--direct takes one target"),
        (&[&a, &b, "--save", "/no/such/dir/c.json"], "/no/such/dir/c.json"),
        (&[&a, &b, "--html", "/no/such/dir/c.html"], "/no/such/dir/c.html"),
    ] {
        compare(&dir, args).expect_code(2).expect_text(want);
    }
    assert_eq!(upstream.connections(), 0);
}
