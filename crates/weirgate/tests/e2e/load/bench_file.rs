//! `weir compare -f` starts, compares and stops the processes in a bench file, and reports all mistakes together.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use weir_report::comparison::ComparisonSet;
use weir_testkit::{Finished, Upstream, eventually, run_weir, unused_address, weir_command};

use super::verdict::{beside_spinners, cores};
use crate::support::OK_BODY;

/// Runs `weir compare -f` with this file.
#[track_caller]
fn compare(yaml: &str, args: &[&str]) -> Finished {
    let dir = TempDir::new().unwrap();
    write(dir.path(), yaml);
    run_weir(dir.path(), &[&["compare", "-f", "sub/bench.yaml"], args].concat())
}

fn write(dir: &Path, yaml: &str) {
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/bench.yaml"), yaml).unwrap();
}

#[test]
fn a_file_reproduces_a_comparison() {
    let (origin, big, small) = (unused_address(), unused_address(), unused_address());
    let yaml = format!(
        r#"
name: sizes
about: what a larger body costs
processes:
  origin: {{ start: [weir, origin, --http, "{origin}"], ready: "http://{origin}/" }}
targets:
  small:
    url: "http://{small}/"
    prepare: [[sh, -c, 'echo $SIZE > size.txt']]
    env: {{ SIZE: 100B }}
    start: [sh, -c, 'exec "{weir}" origin --http {small} -t1 --fixed $(cat size.txt)']
    version: ["{weir}", --version]
  big: {{ url: "http://{big}/", start: [weir, origin, --http, "{big}", -t1, --fixed, 1MiB], stop: INT }}
  none: {{ url: "http://127.0.0.1:1/", start: [./no-such-program], optional: true }}
  breaks: {{ url: "http://127.0.0.1:1/", start: [sh, -c, 'echo it is broken; exit 3'], optional: true }}
  gone: {{ url: "http://127.0.0.1:1/", pid: auto, optional: true }}
workloads:
  post:
    connections: 1
    threads: 1
    method: POST
    path: /any?a=b
    body: hello
    duration: 1800ms
    block: 150ms
    warmup: 10ms
    checks: [status=200]
    published:
      - {{ who: someone, target: small, machine: a laptop, figures: {{ rate: 25445/s, p99: 68.65ms }} }}
  get: {{ targets: [big], connections: 1, threads: 1, duration: 500ms, block: 150ms }}
"#,
        weir = binary().display(),
    );
    let dir = TempDir::new().unwrap();
    let html = dir.path().join("set.html");
    let run = compare(&yaml, &["--format", "json", "--html", html.to_str().unwrap()]);
    run.expect_code(0);
    let set: ComparisonSet = serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {run:#?}"));
    let [post, get] = set.workloads.as_slice() else { panic!("{set:#?}") };
    let names: Vec<&str> = post.comparison.targets.iter().map(|t| t.name.as_str()).collect();
    assert_eq!((names.as_slice(), get.comparison.targets.len()), (&["small", "big"][..], 1));
    let [small_result, big_result] = post.comparison.targets.as_slice() else { panic!("{set:#?}") };
    assert!(small_result.url.ends_with("/any?a=b") && small_result.errors == 0, "{set:#?}");
    assert!(big_result.ratios["cost"].value > 1.0, "the cost of processes it started is told: {set:#?}");
    let left: Vec<&str> = set.left_out.iter().map(|l| l.target.as_str()).collect();
    assert_eq!(left, ["none", "breaks", "gone"]);
    assert!(set.left_out[2].reason.contains("nothing listens"), "{:?}", set.left_out);
    assert!(set.left_out[1].reason.contains("it is broken"), "{:?}", set.left_out);
    assert!(set.versions["small"].starts_with("weir "), "{:?}", set.versions);
    assert_eq!(post.published[0].figures["p99"], 68_650_000.0);
    let page = fs::read_to_string(html).unwrap();
    assert!(
        page.contains("<h2>post</h2>") && page.contains("aria-label=\"Latency by percentile\""),
        "{page}"
    );
    for address in [origin, small, big] {
        assert!(TcpStream::connect(address).is_err(), "{address} is still there");
    }
    let text = set.to_text();
    assert!(text.contains("someone (small here)") && text.contains("left out: none:"), "{text}");
}

/// The binary under test.
fn binary() -> PathBuf {
    weir_command(Path::new(".")).get_program().into()
}

#[test]
fn mistakes_are_told_at_once_with_their_places() {
    let yaml = r#"
targets:
  a: { url: "http://127.0.0.1:1/", strat: [x], stop: STOP, ready: 80 }
  b: { start: [x] }
processes: { p: { url: "http://127.0.0.1:1/" } }
workloads:
  w:
    targets: [a, c]
    duration: 60
    published: [ { who: x, target: d, figures: { rate: fast, p98: 1ms } } ]
"#;
    let run = compare(yaml, &[]);
    run.expect_code(2);
    for part in [
        "sub/bench.yaml:3:36",
        "unknown key `strat`",
        "did you mean start?",
        "targets.a.stop: `STOP` is not valid here",
        "targets.a.ready: `80` is not a readiness check",
        "workloads.w.duration: `60` is not a duration",
        "targets.b: a target needs a `url`",
        "processes.p: a process needs `start`",
        "workloads.w.targets[1]: `c` is not a target; expected one of a, b",
        "workloads.w.published[0].target: `d` is not a target",
        "workloads.w.published[0].figures.rate: `fast` is not a figure",
        "`p98` is not a figure; expected rate, mean",
    ] {
        run.expect_text(part);
    }
    let load = "targets: { a: { url: \"http://127.0.0.1:1/\" } }\nworkloads: { v: { fail_if: [p99] }, w: { connections: 0 } }\n";
    compare(load, &[])
        .expect_code(2)
        .expect_text("workloads.w: -c 0: expected 1 to")
        .expect_text("v: --fail-if");
    compare("name: x\n", &[]).expect_code(2).expect_text("at least one of `targets`");
    let good = "targets: { a: { url: \"http://127.0.0.1:1/\" } }\nworkloads: { w: {} }\n";
    compare(good, &["--check-file"]).expect_code(0).expect_text("good: 1 target, 1 workload\n");
    compare(good, &["--workload", "v"]).expect_code(2).expect_text("--workload v: sub/bench.yaml has w");
    compare(good, &["-d", "long"]).expect_code(2).expect_text("-d long");
    compare(good, &["-c", "5"]).expect_code(2).expect_text("cannot be used with");
    compare(good, &["--http2"]).expect_code(2).expect_text("cannot be used with");
    compare(good, &["--proxy", "http://127.0.0.1:1"]).expect_code(2).expect_text("cannot be used with");
}

#[test]
fn what_does_not_start_is_told_with_what_it_said() {
    let taken = Upstream::fixed(OK_BODY);
    for (start, ready, want) in [
        (
            "sh, -c, 'echo no config >&2; exit 3'",
            "127.0.0.1:1",
            "a: it ended with exit status: 3 before it served: no config",
        ),
        ("sleep, '60'", "127.0.0.1:1", "a: it does not serve after 200ms"),
        ("no-such-program", "127.0.0.1:1", "a: No such file"),
        ("sleep, '60'", &taken.address().to_string(), "a: something listens on"),
    ] {
        let yaml = format!(
            "targets: {{ a: {{ url: \"http://127.0.0.1:1/\", start: [{start}], ready: \"{ready}\", ready_within: 200ms }} }}\nworkloads: {{ w: {{}} }}\n"
        );
        compare(&yaml, &[]).expect_code(1).expect_text(want);
    }
}

#[test]
fn every_published_bench_file_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/published");
    let yaml = |folder: &Path, end: &str| -> Vec<PathBuf> {
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.to_string_lossy().ends_with(end)).collect()
    };
    let files = yaml(&folder, ".yaml");
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        run_weir(&folder, &["compare", "-f", file.to_str().unwrap(), "--check-file"]).expect_code(0);
    }
    for config in yaml(&folder.join("conf"), ".weir.yaml") {
        run_weir(&folder, &["check", "-c", config.to_str().unwrap()]).expect_code(0);
    }
}

#[test]
fn a_block_beside_another_program_is_measured_again() {
    let cores = cores();
    let [own, .., other] = cores.as_slice() else {
        return eprintln!("SKIPPED a_block_beside_another_program_is_measured_again: it takes two cores");
    };
    // Busy loops share the generator's core. Beside a single one, it waits hardly longer than the time that its own other
    // threads take, which is no evidence.
    let run = |core: &str| {
        let (dir, address) = (TempDir::new().unwrap(), unused_address());
        let yaml = format!(
            r#"
targets:
  a: {{ url: "http://{address}/", start: [taskset, -c, "{core}", "{weir}", origin, --http, "{address}", -t1] }}
workloads:
  w: {{ rate: 1000/s, connections: 50, threads: 1, block: 400ms, warmup: 50ms, duration: 1400ms, repeat_blocks: 2 }}
"#,
            weir = binary().display(),
        );
        write(dir.path(), &yaml);
        let file = dir.path().join("sub/bench.yaml");
        let output = beside_spinners(4, own, &["compare", "--format", "json", "-f", file.to_str().unwrap()]);
        let set: ComparisonSet =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:#?}"));
        set.workloads[0].comparison.clone()
    };
    let apart = run(other);
    assert_eq!((apart.repeated.len(), apart.repeat_blocks), (2, 2), "{apart:?}");
    for block in &apart.repeated {
        assert!(block.reasons.iter().all(|r| r == "late_starts" || r == "generator_waited"), "{block:?}");
        assert!(block.cause.starts_with("other programs had") && block.figures["rate"] > 0.0, "{block:?}");
    }
    // The target shares the generator's core, so it may be the one that the generator waits for.
    let shared = run(own);
    assert!(shared.repeated.is_empty(), "{:?}", shared.repeated);
    assert!(shared.targets[0].reasons.contains_key("late_starts"), "{:?}", shared.targets[0].reasons);
}

#[test]
fn a_real_time_policy_is_the_generators_alone() {
    let try_it = Command::new("chrt").args(["-f", "1", "true"]).output();
    if !try_it.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED a_real_time_policy_is_the_generators_alone: it takes CAP_SYS_NICE");
    }
    let (dir, origin) = (TempDir::new().unwrap(), Upstream::fixed(OK_BODY));
    let yaml = format!(
        "targets: {{ a: {{ url: \"http://{address}/\", version: [sh, -c, 'chrt -p $$$$'] }} }}\nworkloads: {{ w: {{ duration: 200ms, connections: 1, threads: 1 }} }}\n",
        address = origin.address()
    );
    write(dir.path(), &yaml);
    let compare = weir_command(dir.path());
    let mut command = Command::new("chrt");
    command.args(["-f", "1"]).arg(compare.get_program()).args(["compare", "-f", "sub/bench.yaml"]);
    let output = command.args(["--format", "json"]).current_dir(dir.path()).output().unwrap();
    let set: ComparisonSet =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:#?}"));
    assert!(set.versions["a"].contains("SCHED_OTHER"), "{:?}", set.versions);
}

#[test]
fn ctrl_c_ends_what_it_started() {
    let dir = TempDir::new().unwrap();
    let address = unused_address();
    write(
        dir.path(),
        &format!(
            "targets: {{ a: {{ url: \"http://{address}/\", start: [weir, origin, --http, \"{address}\"] }} }}\nworkloads: {{ w: {{ duration: 60s }} }}\n"
        ),
    );
    let mut compare = weir_command(dir.path()).args(["compare", "-f", "sub/bench.yaml"]).spawn().unwrap();
    eventually("the target serves", || TcpStream::connect(address).is_ok());
    assert!(Command::new("kill").args(["-INT", &compare.id().to_string()]).status().unwrap().success());
    compare.wait().unwrap();
    assert!(TcpStream::connect(address).is_err(), "it is still there");
}
