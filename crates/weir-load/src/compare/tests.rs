//! The order of blocks, blocks that are measured again, and comparisons that are refused.

use super::*;
use std::collections::VecDeque;
use weir_report::layout;
use weir_report::report::{Counts, Generator, Reason, ThreadStats, Verdict};

const MS: u64 = 1_000_000;

/// A machine that measures what its script says, and good blocks after it.
struct Scripted {
    elapsed: Duration,
    blocks: VecDeque<Report>,
    placement: Placement,
    /// The targets in the order in which they were measured.
    order: Vec<String>,
}

impl World for Scripted {
    fn elapsed(&self) -> Duration {
        self.elapsed
    }

    fn measure(&mut self, contender: &Contender) -> Result<Option<Report>, Error> {
        self.elapsed += Duration::from_millis(500);
        self.order.push(contender.name.clone());
        Ok(Some(self.blocks.pop_front().unwrap_or_else(|| block(1000, &[]))))
    }

    fn placement(&self) -> Result<Placement, Error> {
        Ok(self.placement)
    }
}

/// A block of a second with these reasons against it. Other programs had the generator's core for 100 ms.
fn block(rate: u64, codes: &[&str]) -> Report {
    let reason =
        |code: &&str| Reason { code: (*code).to_owned(), grade: Grade::Suspect, text: String::new() };
    let reasons: Vec<Reason> = codes.iter().map(reason).collect();
    let grade = if reasons.is_empty() { Grade::Valid } else { Grade::Suspect };
    let thread = ThreadStats {
        measured_ns: 1000 * MS,
        cpu_ns: 500 * MS,
        waited_ns: 100 * MS,
        ..ThreadStats::default()
    };
    let mut report = Report {
        duration_ns: 1000 * MS,
        counts: Counts { responses: rate, ..Counts::default() },
        threads: vec![thread],
        generator: Generator { cores: 1, ..Generator::default() },
        verdict: Verdict { grade, reasons },
        ..Report::default()
    };
    report.latency.response.record_n(MS, rate);
    report.health.start_lag.record_n(MS / 10, 90);
    report.health.start_lag.record_n(5 * MS, 10);
    report
}

/// Compares a and b for two rounds, of which these are the first blocks.
fn compare(repeat_blocks: u64, placement: Placement, blocks: &[Report]) -> (Comparison, Vec<String>) {
    let options = CompareOptions {
        targets: vec!["a=http://127.0.0.1:1/".to_owned(), "b=http://127.0.0.1:2/".to_owned()],
        block: Some("400ms".to_owned()),
        warmup: Some("100ms".to_owned()),
        duration: Some("4s".to_owned()),
        repeat_blocks: Some(repeat_blocks),
        ..CompareOptions::default()
    };
    let mut world = Scripted {
        elapsed: Duration::ZERO,
        blocks: blocks.iter().cloned().collect(),
        placement,
        order: Vec::new(),
    };
    let result = Compare::new(&options).unwrap().run_in(&mut world, |_, _| ()).unwrap();
    assert_eq!((result.rounds, result.end), (2, CompareEnd::Time));
    (result, world.order)
}

#[test]
fn a_block_that_other_programs_spoilt_is_measured_again() {
    let blocks =
        [block(1000, &[]), block(10, &["late_starts"]), block(20, &["late_starts"]), block(800, &[])];
    let (result, order) = compare(3, Placement::Apart, &blocks);
    assert_eq!(order, ["a", "b", "b", "b", "b", "a", "a", "b", "b", "a"]);
    assert_eq!((result.grade, result.targets[1].reasons.len()), (Grade::Valid, 0));
    let rates: Vec<f64> = result.targets[1].rounds["rate"].iter().map(|rate| rate.round()).collect();
    assert_eq!(rates, [900.0, 1000.0], "the spoilt ones are in no figure");
    let repeated: Vec<_> = result
        .repeated
        .iter()
        .map(|b| (b.round, b.target.as_str(), b.reasons.join(" "), b.figures["rate"].round()))
        .collect();
    let late = || "late_starts".to_owned();
    assert_eq!(repeated, [(1, "b", late(), 10.0), (1, "b", late(), 20.0)]);
    assert!(result.repeated[0].cause.contains("for 10.0 % of it"), "{:?}", result.repeated);
}

#[test]
fn blocks_are_measured_again_up_to_a_limit() {
    let spoilt = vec![block(1000, &["late_starts"]); 20];
    let (result, order) = compare(3, Placement::Apart, &spoilt);
    assert_eq!(order, ["a", "a", "a", "a", "b", "b", "a", "a", "b", "b", "a"]);
    assert_eq!((result.repeated.len(), result.repeat_blocks, result.grade), (3, 3, Grade::Suspect));
    assert_eq!(result.targets.iter().map(|t| t.reasons["late_starts"]).sum::<u64>(), 8);
    let (result, order) = compare(0, Placement::Apart, &spoilt);
    assert_eq!((order.len(), result.repeated.len(), result.grade), (8, 0, Grade::Suspect));
}

#[test]
fn a_comparison_knows_whether_an_earlier_one_could_repeat_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("before.json");
    let (earlier, _) = compare(3, Placement::Apart, &[]);
    let report = Report { schema: weir_report::report::SCHEMA.to_owned(), ..block(1000, &[]) };
    let report = layout::render(&report, layout::Format::named("json").unwrap());
    for (saved, could) in [(earlier.to_json(), 3), (report, 0)] {
        std::fs::write(&file, saved).unwrap();
        let options = CompareOptions {
            targets: vec!["a=http://127.0.0.1:1/".to_owned()],
            against: Some(file.clone()),
            ..CompareOptions::default()
        };
        let result = Compare::new(&options).unwrap().empty();
        assert_eq!((result.before_repeat_blocks, result.repeat_blocks), (Some(could), 0));
        assert_eq!(result.targets[0].name, "before");
    }
    assert_eq!(compare(0, Placement::Apart, &[]).0.before_repeat_blocks, None);
}

#[test]
fn a_reason_that_a_target_may_have_caused_stands() {
    let all: &[&[&str]] = &[&["errors"], &["generator_busy"], &["stalled"], &["late_starts", "unfinished"]];
    for codes in all {
        let (result, order) = compare(9, Placement::Apart, &[block(1000, codes)]);
        assert_eq!((order.len(), result.repeated.len(), result.grade), (8, 0, Grade::Suspect), "{codes:?}");
        assert!(codes.iter().all(|code| result.targets[0].reasons[*code] == 1), "{codes:?}");
    }
    // The target may have had the core.
    let (result, order) = compare(9, Placement::Shared, &[block(1000, &["late_starts"])]);
    assert_eq!((order.len(), result.repeated.len(), result.grade), (8, 0, Grade::Suspect));
}

#[test]
fn blocks_go_there_and_back() {
    let options = |targets: &[&str]| CompareOptions {
        targets: targets.iter().map(|t| (*t).to_owned()).collect(),
        duration: Some("10s".to_owned()),
        ..CompareOptions::default()
    };
    let compare =
        Compare::new(&options(&["a=http://127.0.0.1:1/", "b=http://127.0.0.1:2/", "http://127.0.0.1:3/"]))
            .unwrap();
    assert_eq!(compare.order(), [0, 1, 2, 2, 1, 0]);
    assert_eq!(compare.names(), ["a", "b", "127.0.0.1:3"]);
    // Long enough to be judged, though fewer than ten rounds fit.
    assert_eq!(compare.block, Duration::from_millis(200));
    let shorter = CompareOptions {
        duration: Some("1s".to_owned()),
        ..options(&["a=http://127.0.0.1:1/", "b=http://127.0.0.1:2/"])
    };
    let two = Compare::new(&shorter).unwrap();
    assert!(
        (two.block + two.warmup) * 4 * 2 <= Duration::from_secs(1) && two.block >= Duration::from_millis(100)
    );
    // One round says nothing about its noise.
    let one = CompareOptions {
        block: Some("400ms".to_owned()),
        fail_if: vec!["p99 worse 5%".to_owned()],
        duration: Some("2s".to_owned()),
        ..options(&["a=http://127.0.0.1:1/", "b=http://127.0.0.1:2/"])
    };
    let told = Compare::new(&one).unwrap_err();
    assert!(told.iter().any(|m| m.to_string().contains("two rounds")), "{told:?}");
    assert_eq!(Compare::new(&options(&["a=http://127.0.0.1:1/"])).unwrap().order(), [0]);
    let endless =
        CompareOptions { repeat_blocks: Some(REPEAT_BLOCKS_MOST + 1), ..options(&["a=http://127.0.0.1:1/"]) };
    assert!(Compare::new(&endless).unwrap_err()[0].to_string().contains("at most 100"));
    for bad in [&[][..], &["a=http://127.0.0.1:1/", "a=http://127.0.0.1:2/"], &["a=ftp://x/"]] {
        assert!(Compare::new(&options(bad)).is_err(), "{bad:?}");
    }
}
