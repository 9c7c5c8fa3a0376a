//! Computes comparisons from made-up rounds, without a target.

use super::*;
use crate::report::{Counts, Reason, TargetStats};

fn block(rate: u64, ns: u64) -> Report {
    let mut report = Report { duration_ns: 1_000_000_000, ..Report::default() };
    report.counts = Counts { responses: rate, ..Counts::default() };
    report.latency.response.record_n(ns, rate);
    report
}

fn result(names: &[&str]) -> Comparison {
    let targets =
        names.iter().map(|name| TargetResult { name: (*name).to_owned(), ..TargetResult::default() });
    Comparison { seed: 1, targets: targets.collect(), ..Comparison::default() }
}

/// Rounds of two targets, the second `factor` times as slow, on a machine that keeps getting slower.
fn rounds(factor: u64) -> Comparison {
    let mut c = result(&["a", "b"]);
    for drift in 1..=6u64 {
        for (i, factor) in [1, factor].into_iter().enumerate() {
            let mut measured = Measured::default();
            measured.add(&block(12_000 / drift / factor, 1000 * drift * factor));
            measured.add(&block(12_000 / drift / factor, 1000 * drift * factor));
            c.targets[i].add(&measured);
        }
        c.rounds += 1;
    }
    c.compute(false, Way::Blocks);
    c
}

#[test]
fn ratios_see_through_what_drifts() {
    let c = rounds(2);
    let (a, b) = (&c.targets[0], &c.targets[1]);
    assert!(a.ratios.is_empty() && b.added.is_empty());
    assert!(
        (b.ratios["rate"].value - 0.5).abs() < 1e-3 && b.ratios["rate"].spread().unwrap() < 0.01,
        "{b:?}"
    );
    assert!((b.ratios["p99"].value - 2.0).abs() < 0.01, "{b:?}");
    assert!(a.figures["rate"].spread().unwrap() > 0.3, "the drift is in the figures: {a:?}");
    assert!(!a.figures.contains_key("cost"));
    let text = c.to_text();
    for part in ["VALID", "6 rounds of", "to a", "rate", "p99", "×0.500", "responses"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_target_that_hangs_is_not_the_faster_one() {
    let mut c = result(&["steady", "hanging"]);
    for _ in 0..3 {
        let mut hanging = block(9_700, 1_000_000);
        hanging.plan.timeout_ns = 300_000_000;
        (hanging.counts.errors.timeout, hanging.counts.unfinished) = (200, 100);
        for (target, block) in [block(10_000, 2_000_000), hanging].iter().enumerate() {
            let mut measured = Measured::default();
            measured.add(block);
            c.targets[target].add(&measured);
        }
        c.rounds += 1;
    }
    c.compute(false, Way::Blocks);
    let ratios = &c.targets[1].ratios;
    assert!(ratios["p50"].value < 0.51, "most of its responses are faster: {ratios:?}");
    assert!(ratios["p99"].value > 100.0 && ratios["mean"].value > 4.0, "but 3 % never came: {ratios:?}");
}

#[test]
fn a_percentile_of_few_responses_is_no_figure() {
    let mut c = result(&["a", "b"]);
    // The third round of b has too few responses for a p99, but enough for a p90.
    for (of_a, of_b) in [(1000, 1000), (1000, 1000), (1000, 999)] {
        for (target, responses) in [of_a, of_b].into_iter().enumerate() {
            let mut measured = Measured::default();
            measured.add(&block(responses, 1000));
            c.targets[target].add(&measured);
        }
        c.rounds += 1;
        c.compute(false, Way::Blocks);
    }
    assert!(c.targets[0].figures.contains_key("p99") && !c.targets[1].figures.contains_key("p99"));
    assert!(!c.targets[1].ratios.contains_key("p99") && c.targets[1].ratios.contains_key("p90"));
    let broken = Condition::parse("p99 worse 5%").unwrap().judge(&c.targets[1]);
    assert!(!broken.passed);
    c.conditions = vec![broken];
    assert!(
        c.to_text().contains("b is not measured: a round had no response, or too few"),
        "{}",
        c.to_text()
    );
}

#[test]
fn blocks_that_are_too_short_are_told() {
    let of = |block_ns: u64, response_ns: u64| {
        let mut c = result(&["a", "b"]);
        (c.block_ns, c.order) = (block_ns, ["a", "b", "b", "a"].map(str::to_owned).to_vec());
        for target in &mut c.targets {
            let mut measured = Measured::default();
            measured.add(&block(1000, response_ns));
            target.add(&measured);
        }
        c.rounds = 1;
        c.measure_blocks(0, Way::Blocks);
        (c.grade, c.targets[1].reasons.get("short_blocks").copied())
    };
    assert_eq!(of(2_000_000_000, 1_000_000), (Grade::Valid, None));
    assert_eq!(of(400_000_000, 50_000_000), (Grade::Suspect, Some(2)));
    assert_eq!(of(199_000_000, 1_000_000), (Grade::Suspect, Some(2)));
}

#[test]
fn work_that_is_not_equal_makes_it_invalid() {
    let mut c = rounds(1);
    let work = |bytes: u64| Work { responses: 100, body_bytes: 100 * bytes, ..Work::default() };
    (c.targets[0].work, c.targets[1].work) = (work(137), work(65_536));
    c.conditions = vec![ConditionResult { passed: true, ..ConditionResult::default() }];
    let mut meant = c.clone();
    c.weigh();
    assert!(c.grade == Grade::Invalid && c.has_failed(), "{:?}", c.unequal);
    assert!(c.to_text().starts_with("INVALID  unequal_work: b differs from a: bodies of"), "{}", c.to_text());
    assert!(c.to_html().contains("unequal_work: b differs"), "{}", c.to_html());
    meant.unequal_ok = true;
    meant.weigh();
    assert!(meant.grade == Grade::Valid && !meant.has_failed());
    assert!(meant.to_text().contains("as --unequal ok allows"), "{}", meant.to_text());
}

#[test]
fn blocks_that_were_measured_again_are_told() {
    let mut c = rounds(2);
    assert!(!c.to_text().contains("measured again") && !c.to_html().contains("Measured again"));
    c.repeat_blocks = 4;
    for (target, code) in [("b", "late_starts"), ("a", "late_starts"), ("b", "generator_waited")] {
        let mut spoilt = block(1234, 1000);
        let reason = Reason { code: code.to_owned(), grade: Grade::Suspect, text: String::new() };
        let aside = Reason { code: "no_keepalive".to_owned(), ..Reason::default() };
        spoilt.verdict.reasons = vec![reason, aside];
        c.repeated.push(RepeatedBlock::new(2, target.to_owned(), &spoilt, "<others> had it".to_owned()));
    }
    let (text, page) = (c.to_text(), c.to_html());
    let words = "3 blocks of at most 4 measured again, because something outside of the test had spoilt the first \
                 measurement: 1 of a (late_starts), 2 of b (generator_waited, late_starts)";
    assert!(text.contains(&format!("time up\n{words}\n\n")), "{text}");
    crate::page::testing::expect_sound(&page);
    for part in [words, "<td>generator_waited</td>", "<td>1,234/s</td>", "<td>&lt;others&gt; had it</td>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(serde_json::from_str::<Comparison>(&c.to_json()).unwrap(), c);
}

#[test]
fn repeats_on_one_side_only_are_told() {
    let with = |before: Option<u64>, now: u64| {
        let mut c = rounds(2);
        (c.before_repeat_blocks, c.repeat_blocks) = (before, now);
        (c.to_text(), c.to_html())
    };
    for (before, now, words) in [
        (
            0,
            3,
            "VALID  one_sided_repeats: this comparison was measured with --repeat-blocks and `before` without",
        ),
        (
            3,
            0,
            "VALID  one_sided_repeats: `before` was measured with --repeat-blocks and this comparison without",
        ),
    ] {
        let (text, page) = with(Some(before), now);
        assert!(text.starts_with(words), "{text}");
        assert!(page.contains(words.strip_prefix("VALID  ").unwrap()), "{page}");
        crate::page::testing::expect_sound(&page);
    }
    for (before, now) in [(None, 3), (None, 0), (Some(0), 0), (Some(5), 3)] {
        let (text, page) = with(before, now);
        assert!(!text.contains("one_sided") && !page.contains("one_sided"), "{before:?} {now}: {text}");
    }
}

#[test]
fn a_page_shows_all_of_it() {
    let mut c = rounds(2);
    c.targets[1].name = "<b>".to_owned();
    c.targets[0].reasons.insert("unfinished".to_owned(), 2);
    c.targets[1].reasons.insert("no_responses".to_owned(), 1);
    c.targets[1].reasons.insert("stalled".to_owned(), 1);
    let (worst, other) = ("<b>: no_responses in 1 block\n", "a: unfinished in 2 blocks\n");
    let text = c.to_text();
    assert!(text.find(worst).unwrap() < text.find(other).unwrap(), "{text}");
    let worse = Some(Interval { value: 0.5, range: Some((0.4, 0.6)) });
    c.conditions = vec![ConditionResult {
        condition: "p99 worse 5%".to_owned(),
        target: "<b>".to_owned(),
        worse,
        passed: false,
    }];
    let page = c.to_html();
    crate::page::testing::expect_sound(&page);
    for part in [
        "<b>VALID</b>",
        "<code>stalled</code>: &lt;b&gt; in 1 block",
        "<td>×0.500<br>(0.5",
        "aria-label=\"Ratios to the first target\"",
        "aria-label=\"rate by round\"",
        "aria-label=\"p99 by round\"",
        "aria-label=\"Latency by percentile\"",
        "<span class=\"bad\">broken</span>",
        "p99 worse 5%: &lt;b&gt; is 50.0 % worse",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    crate::page::testing::expect_sound(&Comparison::default().to_html());
}

#[test]
fn a_saved_comparison_is_the_same_again() {
    let c = rounds(3);
    assert_eq!(serde_json::from_str::<Comparison>(&c.to_json()).unwrap(), c);
}

#[test]
fn what_a_gateway_adds_is_the_difference_within_rounds() {
    let mut c = result(&["direct", "gateway"]);
    for drift in [1000u64, 5000, 2000, 9000, 3000] {
        let target = |ns: u64| {
            let mut target = TargetStats { responses: 100, ..TargetStats::default() };
            target.service.record_n(ns, 100);
            target
        };
        let report = Report {
            duration_ns: 1_000_000_000,
            targets: vec![target(drift), target(drift + 400)],
            ..Report::default()
        };
        for (i, result) in c.targets.iter_mut().enumerate() {
            let mut measured = Measured::default();
            measured.add_target(&report, i);
            result.add(&measured);
        }
        c.rounds += 1;
    }
    c.compute(false, Way::Requests);
    let added = c.targets[1].added["p50"];
    assert!((added.value - 400.0).abs() < 10.0 && added.range.unwrap().0 > 380.0, "{added:?}");
    assert!(!c.targets[1].added.contains_key("rate") && !c.targets[1].ratios.contains_key("rate"));
    assert!(c.to_text().contains("added"));
}
