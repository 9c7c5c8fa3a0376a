//! What a CI system needs: files of results, blocks, baselines, gates and exit codes.

use super::{expect_reason, load, origin, report, url};
use crate::support::{OK, OK_BODY};
use std::fs;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use weir_report::Report;
use weir_report::report::Grade;
use weir_testkit::{Finished, Upstream, run_weir, weir_command};

/// Runs `weir` in a folder.
#[track_caller]
fn weir(dir: &TempDir, args: &[&str]) -> Finished {
    run_weir(dir.path(), args)
}

fn text(dir: &TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn saved(dir: &TempDir, name: &str) -> Report {
    serde_json::from_str(&text(dir, name)).unwrap()
}

#[test]
fn files_are_written_although_the_run_fails() {
    let upstream = Upstream::fixed(OK_BODY);
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("step.md"), "before\n").unwrap();
    let hostile = "body~<b>]]>&\"`|*\u{1b}[31m";
    let run = |more: &[&str]| {
        let args = ["load", "-n20", "-c1", "--check", hostile, "--threshold", "max<1ns"];
        let files = ["--junit", "weir.xml", "--summary", "step.md", "--save", "r.json"];
        weir(&dir, &[&args[..], &files, more, &[&url(&upstream)]].concat())
    };
    run(&[]).expect_code(1);
    let xml = text(&dir, "weir.xml");
    assert!(
        xml.contains("<failure type=\"threshold\" message=\"max ") && xml.contains("wanted &lt; 1ns"),
        "{xml}"
    );
    assert!(xml.contains("name=\"body~&lt;b&gt;]]&gt;&amp;&quot;`|*\u{fffd}[31m\""), "{xml}");
    assert!(!xml.contains('\u{1b}') && xml.ends_with("</testsuites>\n"), "{xml}");
    let first = text(&dir, "step.md");
    assert!(
        first.starts_with("before\n### ") && first.contains("- ❌ threshold <code>max&#60;1ns</code>"),
        "{first}"
    );
    assert!(!first.contains("<b>") && !first.contains("]]>"), "{first}");
    assert_eq!(saved(&dir, "r.json").counts.responses, 20);
    // The second one is appended; other files are replaced as a whole.
    run(&["--format", "junit"]).expect_code(1).expect_text("<testsuites");
    let both = text(&dir, "step.md");
    assert!(both.starts_with(&first) && both.matches("### ").count() == 2, "{both}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "no temporary file is left: {left:?}");
    // A summary that GitHub would refuse is not written.
    fs::write(dir.path().join("step.md"), vec![b'x'; 1 << 20]).unwrap();
    run(&[]).expect_code(1).expect_text("would exceed 1 MiB");
    assert_eq!(text(&dir, "step.md").len(), 1 << 20);
    for (option, path) in
        [("--junit", "/no/such/x"), ("--summary", "/no/such/x"), ("--against", "/no/such/x")]
    {
        run(&[option, path]).expect_code(2);
    }
}

#[test]
fn annotations_are_for_github_actions_only() {
    let upstream = Upstream::fixed(OK);
    let run = |on: &str| {
        let dir = TempDir::new().unwrap();
        let args = ["load", "-n5", "-c1", "--annotations", "--threshold", "max<1ns", &url(&upstream)];
        let output = weir_command(dir.path()).env("GITHUB_ACTIONS", on).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let told = run("true");
    let line = told.lines().find(|line| line.starts_with("::error ")).unwrap_or_else(|| panic!("{told}"));
    assert!(line.starts_with("::error title=weir%3A%3Athreshold%3A%3Amax<1ns::max "), "{line}");
    assert!(!run("").contains("::error"));
}

#[test]
fn every_layout_for_ci_prints_a_saved_report() {
    let (_origin, url) = origin("/body/1KiB");
    let dir = TempDir::new().unwrap();
    let (a, b) = (format!("3@{url}?a"), format!("{url}?b"));
    weir(&dir, &["load", "-n40", "-c2", "--threads=1", "--save", "r.json", "--threshold", "max<1ns", &a, &b])
        .expect_code(1);
    for (format, part) in [
        ("junit", "<testsuite name="),
        ("markdown", "| rate |"),
        ("github", "::error title=weir%3A%3Athreshold"),
        ("gitlab", "\"severity\":\"major\""),
        ("csv-summary", "\nGET http://127.0.0.1"),
    ] {
        weir(&dir, &["report", "r.json", "--format", format]).expect_code(0).expect_text(part);
    }
    let table = weir(&dir, &["report", "r.json", "--format", "csv-summary"]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "a header, the whole, two targets: {table}");
    assert!(lines[2].contains(",30,30,0,0,") && lines[3].contains(",10,10,0,0,"), "{table}");
    let gitlab: serde_json::Value =
        serde_json::from_str(&weir(&dir, &["report", "r.json", "--format", "gitlab"]).stdout).unwrap();
    assert_eq!(gitlab[0]["location"]["path"], ".gitlab-ci.yml");
}

// === blocks and baselines ===

#[test]
fn blocks_that_are_too_short_are_told() {
    let (_origin, url) = origin("/delay/50");
    let r = report(&["-d500ms", "-c2", "--threads=1", "--rounds", "5", &url]);
    expect_reason(&r, "short_blocks", Grade::Suspect);
}

#[test]
fn blocks_are_the_run_cut_in_equal_parts() {
    let (_origin, url) = origin("/delay/5");
    for pace in [&["--threads=2"][..], &["--rate", "200/s"]] {
        let r = report(&[&["-d1250ms", "--warmup", "200ms", "-c4", "--rounds", "5", &url], pace].concat());
        assert_eq!(r.blocks.len(), 5, "{:?}", r.verdict);
        let sum = |of: fn(&weir_report::report::Block) -> u64| r.blocks.iter().map(of).sum::<u64>();
        assert_eq!(sum(|b| b.response.count()), r.counts.responses);
        assert_eq!(sum(|b| b.response.sum()), r.latency.response.sum());
        assert_eq!(sum(|b| b.unanswered), r.counts.errors.total() + r.counts.unfinished);
        assert_eq!(sum(|b| b.in_window), r.rated().responses);
        // A busy machine may wake a thread late, which moves the border between two blocks.
        assert!(sum(|b| b.length_ns).abs_diff(1_250_000_000) < 250_000_000, "{}", sum(|b| b.length_ns));
        assert!(r.blocks.iter().all(|b| b.response.count() > 0), "{:?}", r.counts);
        assert_eq!(r.series.tick_ns, 250_000_000);
    }
    for (args, hint) in [
        (&["--rounds", "1"][..], "--rounds 1: expected 2 to 1000"),
        (&["--rounds", "5", "-n10"], "--rounds 5: cuts a time into blocks: use -d"),
        (&["--rounds", "5", "-d", "400ms"], "--rounds 5: blocks would be shorter than 100 ms"),
        (&["--rounds", "5", "--stages", "1s:1"], "--rounds 5: blocks compare only under a constant load"),
    ] {
        load(&[args, &[&url]].concat()).expect_code(2).expect_text(hint);
    }
    // A saved run with blocks is enough for a gate of `compare`.
    let dir = TempDir::new().unwrap();
    weir(&dir, &["load", "-d1s", "-c2", "--rounds", "5", "--save", "now.json", &url]).expect_code(0);
    let (gate, target) = (["--against", "now.json", "--fail-if", "p50 worse 500%"], format!("a={url}"));
    weir(&dir, &[&["compare", "-d1s", "--block", "100ms", &target], &gate[..]].concat())
        .expect_code(0)
        .expect_text("held   p50 worse 500%: a is");
}

#[test]
fn a_run_is_held_against_those_before_it() {
    let (origin, quick) = origin("/delay/10");
    // The same request to another server: a plan is not its place.
    let slow = format!("http://{}/delay/10", origin.address());
    let slow = slow.replace("127.0.0.1", "localhost");
    let dir = TempDir::new().unwrap();
    let usual = ["load", "-d1s", "-c4", "--threads=1", "--rounds", "5", "--save", "now.json"];
    let gate = ["--against", "b.json", "--fail-if", "p50 worse 50%"];
    let run = |more: &[&str]| weir(&dir, &[&usual[..], more, &[&quick]].concat());
    run(&gate).expect_code(2).expect_text("--against b.json: there is no such file");
    let first = ["--baseline-if-missing", "write", "--commit", "c0ffee"];
    run(&[&gate[..], &first].concat())
        .expect_code(0)
        .expect_text("not enough to judge: there is no baseline yet");
    assert!(text(&dir, "b.json").contains("\"commit\":\"c0ffee\""));
    run(&[&gate[..], &["--fail-if-unknown"]].concat())
        .expect_code(1)
        .expect_text("not enough to judge: 1 run of this host");
    run(&[&gate[..], &["--fail-if-unknown", "--exit-codes", "split"]].concat()).expect_code(11);
    run(&gate).expect_code(0);
    for n in 2..=4 {
        let add = weir(&dir, &["baseline", "add", "b.json", "now.json", "--keep", "3"]);
        add.expect_code(0).expect_text(&format!("b.json: {} runs", n.min(3)));
        run(&[]).expect_code(0);
    }
    weir(&dir, &["baseline", "add", "b.json", "now.json"]).expect_code(0);
    weir(&dir, &["baseline", "add", "b.json", "now.json"]).expect_code(1).expect_text("already");
    run(&gate).expect_code(0).expect_text("gate         held     p50 worse 50%: p50 1");
    // The saved report is judged as the run was.
    let report = ["report", "now.json"];
    weir(&dir, &[&report[..], &gate].concat()).expect_code(0).expect_text("held     p50 worse 50%");
    weir(&dir, &[&report[..], &gate, &["--format", "markdown"]].concat())
        .expect_code(0)
        .expect_text("| figure | this run | baseline | change | |");
    // Twice as slow: the baseline is another one with the same plan, made of quicker figures.
    let baseline = text(&dir, "b.json");
    let mut quicker: serde_json::Value = serde_json::from_str(&baseline).unwrap();
    for run in quicker["runs"].as_array_mut().unwrap() {
        for (name, figure) in run["figures"].as_object_mut().unwrap() {
            let factor = if name == "rate" { 4.0 } else { 0.25 };
            figure["whole"] = (figure["whole"].as_f64().unwrap() * factor).into();
        }
    }
    fs::write(dir.path().join("b.json"), quicker.to_string()).unwrap();
    let rates = ["--fail-if", "rate worse 50%"];
    let broken = run(&[&gate[..], &rates, &["--junit", "j.xml"]].concat());
    broken
        .expect_code(1)
        .expect_text("gate         BROKEN   p50 worse 50%")
        .expect_text("BROKEN   rate worse 50%");
    assert_eq!(text(&dir, "j.xml").matches("<failure type=\"gate\"").count(), 2);
    run(&[&gate[..], &["--exit-codes", "split"]].concat()).expect_code(11);
    weir(&dir, &[&report[..], &gate].concat()).expect_code(1).expect_text("worse");
    // Another place is the same plan; another path is another plan, and nothing is sent.
    weir(&dir, &[&usual[..], &gate, &[&slow]].concat()).expect_code(1).expect_text("BROKEN");
    let other = Upstream::fixed(OK);
    weir(&dir, &[&usual[..], &gate, &[&url(&other)]].concat()).expect_code(2).expect_text("another plan");
    assert_eq!(other.connections(), 0);
    // Runs of another host are told and not compared.
    fs::write(dir.path().join("b.json"), baseline.replace("\"cores\":", "\"cores\":9")).unwrap();
    run(&gate).expect_code(0).expect_text("4 runs of other hosts or versions left aside");
    for (args, hint) in [
        (
            &["load", "-d1s", "--against", "b.json", "--fail-if", "p50 worse 5%"][..],
            "--fail-if: needs --rounds 5",
        ),
        (&["load", "-d1s", "--fail-if", "p50 worse 5%"], "--against"),
        (
            &["load", "-d1s", "--rounds=5", "--against", "b.json", "--fail-if", "p98 worse 5%"],
            "the figures are",
        ),
        (&["load", "-d1s", "--rounds=5", "--against", "b.json", "--fail-if", "cost worse 5%"], "--pid auto"),
        (&["load", "-d1s", "--against", "now.json"], "its schema is `weir.load/1`"),
    ] {
        weir(&dir, &[args, &[&quick]].concat()).expect_code(2).expect_text(hint);
    }
}

// === exit codes ===

#[test]
fn runs_added_at_once_are_all_kept() {
    let (_origin, url) = origin("/body/1KiB");
    let dir = TempDir::new().unwrap();
    let names: Vec<String> = (0..6).map(|i| format!("run{i}.json")).collect();
    for name in &names {
        weir(&dir, &["load", "-n200", "-c2", "--threads=1", "--save", name, &url]).expect_code(0);
    }
    let adding: Vec<_> = names
        .iter()
        .map(|name| {
            let args = ["baseline", "add", "base.json", name, "--commit", name];
            weir_command(dir.path()).args(args).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut add in adding {
        assert!(add.wait().unwrap().success());
    }
    for name in &names {
        assert!(text(&dir, "base.json").contains(name), "{name} was lost");
    }
}

#[test]
fn the_files_of_a_plan_are_part_of_its_digest() {
    let (_origin, url) = origin("/body/1KiB");
    let dir = TempDir::new().unwrap();
    let plan = format!(
        "data: {{ d: {{ file: d.csv }} }}\nscenarios: {{ s: {{ users: 1, iterations: 20, steps: [ {{ name: a, get: '{url}?{{{{d.x}}}}' }} ] }} }}"
    );
    fs::write(dir.path().join("plan.yaml"), plan).unwrap();
    let digest = |rows: &str, name: &str| {
        fs::write(dir.path().join("d.csv"), rows).unwrap();
        weir(&dir, &["load", "-f", "plan.yaml", "--save", name]).expect_code(0);
        saved(&dir, name).plan.file_digest
    };
    let first = digest("x\n1\n", "a.json");
    assert_eq!(first, digest("x\n1\n", "b.json"));
    assert_ne!(first, digest("x\n2\n", "c.json"));
    weir(&dir, &["baseline", "add", "base.json", "a.json"]).expect_code(0);
    weir(&dir, &["baseline", "add", "base.json", "c.json"]).expect_code(2).expect_text("of another plan");
}

#[test]
fn each_kind_of_failure_has_its_code() {
    let upstream = Upstream::fixed(OK);
    let refused = Upstream::fixed("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let split = |args: &[&str]| load(&[&["--exit-codes", "split"], args].concat());
    let (good, bad) = (url(&upstream), url(&refused));
    split(&["-n10", &good]).expect_code(0);
    split(&["-n10", "--threshold", "max<1ns", "--require", "valid", &bad]).expect_code(10);
    split(&["-n10", "--require", "valid", &bad])
        .expect_code(12)
        .expect_text("--require valid: the result is INVALID");
    split(&["-n10", "--timeout", "100ms", "http://127.0.0.1:1/"]).expect_code(13).expect_text("no response");
    split(&["-d60s", "-c1", "--abort-on", "failed>50%", &bad]).expect_code(14);
    split(&["-n10", "--no-such-option", &good]).expect_code(2);
    let dir = TempDir::new().unwrap();
    let args = ["load", "-d60s", "-c2", "--exit-codes", "split", "--junit", "j.xml", &good];
    let child = weir_command(dir.path()).args(args).spawn().unwrap();
    upstream.wait_requests(30);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(text(&dir, "j.xml").contains("ended_early"));
}
