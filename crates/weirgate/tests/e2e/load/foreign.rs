//! `weir report` on results of other tools, and on several reports.

use super::{expect_reason, origin};
use std::fs;
use tempfile::TempDir;
use weir_report::Report;
use weir_report::report::Grade;
use weir_testkit::{Finished, run_weir};

/// Runs `weir` in a folder.
#[track_caller]
fn weir(dir: &TempDir, args: &[&str]) -> Finished {
    run_weir(dir.path(), args)
}

#[test]
fn results_of_other_tools_are_judged_and_printed() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("a.jtl", b"timeStamp,elapsed,label,responseCode,success\n1795284234000,120,log in,200,true\n1795284234100,80,list,503,false\n");
    let run = weir(&dir, &["report", "a.jtl", "--save", "a.json"]);
    run.expect_code(0)
        .expect_text("SUSPECT")
        .expect_text(
            "imported: measured by JMeter, whose results do not say when a request should have started",
        )
        .expect_text("as JMeter ran it")
        .expect_text("status_mix");
    assert!(
        !run.stdout.contains("\ngenerator ") && !run.stdout.contains("as fast as possible"),
        "{}",
        run.stdout
    );
    // What was saved is a report like any other.
    let saved = fs::read(dir.path().join("a.json")).unwrap();
    let saved: Report = serde_json::from_slice(&saved).unwrap();
    expect_reason(&saved, "imported", Grade::Suspect);
    weir(&dir, &["report", "a.json"]).expect_code(0).expect_text("imported");
    weir(&dir, &["report", "a.json", "--verify"]).expect_code(0);
    for format in
        ["html", "json", "junit", "markdown", "csv", "csv-summary", "k6", "wrk", "ab", "ghz", "oha-json"]
    {
        weir(&dir, &["report", "a.jtl", "--format", format]).expect_code(0);
    }
    // Conditions of CI, on a file of another tool.
    let junit = |args: &[&str], code| {
        weir(&dir, &[&["report", "a.jtl", "--format", "junit"], args].concat())
            .expect_code(code)
            .stdout
            .clone()
    };
    junit(&["--threshold", "max<1s", "--require", "suspect"], 0);
    let broken = junit(&["--threshold", "max<100ms"], 1);
    assert!(broken.contains("max 120.0 ms, wanted &lt; 100ms"), "{broken}");
    assert!(junit(&["--require", "valid"], 1).contains("<failure type=\"verdict\""));
    weir(&dir, &["report", "a.jtl", "--threshold", "max"])
        .expect_code(2)
        .expect_text("expected METRIC<VALUE");
    write("v.gob", &[0x43, 0xff, 0x81, 0x03]);
    weir(&dir, &["report", "v.gob"]).expect_code(2).expect_text("vegeta encode");
    write("bad.jtl", b"timeStamp,elapsed\n1,x\n");
    weir(&dir, &["report", "bad.jtl"]).expect_code(2).expect_text("bad.jtl: line 2: elapsed is `x`");
    write("other.txt", b"hello\n");
    weir(&dir, &["report", "other.txt"])
        .expect_code(2)
        .expect_text("expected what `weir load --save` writes");
}

#[test]
fn runs_of_several_generators_add_up() {
    let (_origin, url) = origin("/body/1KiB");
    let dir = TempDir::new().unwrap();
    for name in ["a.json", "b.json"] {
        let file = ["--save", name, "--threshold", "p50<1s", &url];
        weir(&dir, &[&["load", "-n300", "-c2", "--threads=1"], &file[..]].concat()).expect_code(0);
    }
    let both = ["report", "--merge", "a.json", "b.json"];
    weir(&dir, &both).expect_code(2).expect_text("--apart ok if that is intended");
    weir(&dir, &[&both[..], &["--apart", "ok", "--save", "all.json"]].concat()).expect_code(0);
    let read = |name: &str| -> Report {
        serde_json::from_str(&fs::read_to_string(dir.path().join(name)).unwrap()).unwrap()
    };
    let (a, b, all) = (read("a.json"), read("b.json"), read("all.json"));
    let mut sum = a.latency.response.clone();
    sum.add(&b.latency.response);
    // A file holds the sum of squares as a float, which rounds it once a response has taken 95 ms.
    let kept = serde_json::from_str(&serde_json::to_string(&sum).unwrap()).unwrap();
    assert_eq!(all.latency.response, kept);
    assert_eq!((all.counts.responses, all.plan.connections, all.threads.len()), (600, 4, 2));
    assert_eq!(all.bytes.received(), a.bytes.received() + b.bytes.received());
    weir(&dir, &["report", "all.json", "--verify"]).expect_code(0);
    weir(&dir, &["load", "-n300", "-c3", "--threads=1", "--save", "c.json", &url]).expect_code(0);
    for (args, hint) in [
        (&["report", "--merge", "a.json", "c.json"][..], "report 2 is of another plan"),
        (&["report", "--merge", "a.json", "a.json"], "report 2 is there twice"),
        (&["report", "--merge", "a.json"], "at least two reports"),
        (&["report", "a.json", "b.json"], "with --merge"),
    ] {
        weir(&dir, args).expect_code(2).expect_text(hint);
    }
}
