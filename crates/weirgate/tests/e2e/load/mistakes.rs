//! Bad input: each mistake is reported with its option and the expected form, with exit code 2, before anything is
//! sent.

use super::load;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_testkit::{run_weir, table, unused_address};

/// Nobody listens there, and nothing is sent: the mistakes are reported first.
const URL: &str = "http://127.0.0.1:1/";
const TLS_URL: &str = "https://127.0.0.1:1/";

/// Arguments, and the message.
type Case = (&'static [&'static str], &'static str);

#[test]
fn each_mistake_is_told_with_its_place() {
    let cases: &[Case] = &[
        // targets
        (&["http://no.such.host.invalid/"], "the host `no.such.host.invalid` can not be found"),
        (&["run"], "run: expected a URL such as http://127.0.0.1:8080/path"),
        (&["http://127.0.0.1:99999/"], "`99999` is not a port; expected 1 to 65535"),
        (&["http://[::1"], "the bracket of the address is not closed"),
        (&["0@http://127.0.0.1:1/"], "a weight is 1 to 1000000"),
        (&[URL, "--resolve", "nonsense"], "--resolve nonsense: expected HOST:PORT:ADDRESS"),
        (
            &[URL, "--resolve", "127.0.0.1:1:localhost"],
            "--resolve 127.0.0.1:1:localhost: expected HOST:PORT:ADDRESS",
        ),
        (&[URL, "--unix-socket", "/no/such"], "--unix-socket /no/such: there is no such socket"),
        (&[URL, "--unix-socket", "/dev/null"], "--unix-socket /dev/null: there is no such socket"),
        // pace and stop
        (&[URL, "--rate", "0"], "--rate 0: expected a rate such as 5000/s"),
        (&[URL, "--rate", "1e12/s"], "--rate 1e12/s: expected a rate such as 5000/s"),
        (&[URL, "--rate", "1000000000000/s"], "--rate 1000000000000/s: expected 0.001/h to 10M/s"),
        (&[URL, "--rate=-5"], "--rate -5: expected a rate"),
        (&[URL, "-d", "0"], "-d: expected more than 0"),
        (&[URL, "-d=-1s"], "-d -1s: expected a time such as 250ms"),
        (&[URL, "-d", "99999999999d"], "-d 99999999999d: expected a time"),
        (&[URL, "-n", "0"], "-n 0: expected at least 1"),
        (&[URL, "-n", "99999999999999999999"], "-n 99999999999999999999: expected a number of requests"),
        (&[URL, "-c", "0"], "-c 0: expected 1 to 1000000"),
        (&[URL, "-c", "1000001"], "-c 1000001: expected 1 to 1000000"),
        (&[URL, "--threads", "0"], "--threads 0: expected 1 to 1024"),
        (&[URL, "--pipeline", "0"], "--pipeline 0: expected 1 to 1024"),
        (&[URL, "--timeout", "0"], "--timeout: expected more than 0"),
        (&[URL, "--stages", "30s"], "--stages 30s: `30s` is not a stage; expected TIME:USERS or TIME:RATE/s"),
        (&[URL, "--stages", "1s:5,"], "`` is not a stage"),
        (&[URL, "--stages", "1s:5/s,1s:5"], "`1s:5` is not a stage"),
        (&[URL, "--stages", "1s:2000000"], "at most 1000000 users or 10M/s"),
        (&[URL, "--stages", "1s:0"], "--stages: no stage has a user"),
        (&[URL, "--stages", "1s:5/s", "--rate", "5/s"], "--rate: --stages sets the rate already"),
        (&[URL, "--stages", "1s:5", "-c", "5"], "-c: --stages sets the number of users already"),
        (&[URL, "-m", "5"], "-m: streams are HTTP/2's and HTTP/3's: add --http2 or --http3"),
        (&[URL, "--think", "1s", "--rate", "5/s"], "--think: has no effect with a fixed rate"),
        (&[URL, "--stages", "1s:5", "-d", "9s"], "-d: --stages sets the duration already"),
        // judgement
        (&[URL, "--threshold", "p99"], "--threshold p99: expected METRIC<VALUE or METRIC>VALUE"),
        (&[URL, "--threshold", "p101<1s"], "--threshold p101<1s: the metrics are p50"),
        (&[URL, "--threshold", "errors<200%"], "--threshold errors<200%: expected a share"),
        (&[URL, "--abort-on", "cost<1s"], "--abort-on cost<1s: the cost is known at the end only"),
        (&[URL, "--check", "status"], "--check status: expected status=200"),
        (&[URL, "--find-knee", "fast"], "--find-knee fast: expected METRIC<VALUE"),
        (&[URL, "--require", "maybe"], "invalid value 'maybe'"),
        // requests
        (&[URL, "-X", "GE T"], "-X GE T: expected a method"),
        (&[URL, "-H", "a: b\r\nc: d"], "the value holds a control character"),
        (&[URL, "-u", "name"], "-u name: expected NAME:PASSWORD"),
        (
            &[URL, "--curl", "wget http://127.0.0.1:1/"],
            "--curl: expected a command line that begins with `curl`",
        ),
        (&[URL, "--curl", "curl 'open"], "--curl: a single quote is not closed"),
        (&["http://127.0.0.1:1/{{nope}}"], "`{{nope}}` is not a placeholder; expected {{uuid}}"),
        (&["http://127.0.0.1:1/{{data.a}}"], "`{{data.a}}` needs data: --feed FILE"),
        (&["http://127.0.0.1:1/{{data.a}}", "--feed", "/no/such"], "--feed /no/such: No such file"),
        (&["http://127.0.0.1:1/{{data.a}}", "--feed", "/"], "--feed /: Is a directory"),
        (
            &[URL, "--data", "a", "--curl", "curl -d b h"],
            "--data: the command line of --curl has a body already",
        ),
        // TLS
        (&[URL, "--server-name", "a"], "--server-name: no URL speaks TLS"),
        (&[TLS_URL, "--cert", "/no/such", "--key", "/no/such"], "/no/such cannot be read: No such file"),
        (&[URL, "--cert", "/no/such", "--key", "/no/such"], "/no/such cannot be read: No such file"),
        (&[TLS_URL, "--cert", "/dev/null"], "a client certificate needs both --cert and --key"),
        (&[TLS_URL, "--cacert", "/dev/null"], "/dev/null holds no certificate"),
        (&[TLS_URL, "--server-name", "a b"], "neither a DNS name nor an address"),
        // reports
        (&[URL, "--live", "--no-live"], "cannot be used with '--no-live'"),
        (&[URL, "--format", "excel"], "there is no report format `excel`; there are:"),
        (&[URL, "--save", "/no/such/run.json"], "/no/such/run.json: No such file"),
        (&[URL, "-o", "influx=x"], "expected prometheus=URL"),
        (&[URL, "--pid", "4194999"], "--pid 4194999: there is no such process"),
        (
            &[URL, "--pid", "auto"],
            "--pid auto: no process on this machine that Weir can inspect listens on 127.0.0.1:1",
        ),
    ];
    table(
        cases,
        |(args, _)| format!("{args:?}"),
        |(args, text)| {
            let begun = Instant::now();
            let told = load(args);
            told.expect_code(2).expect_text(text);
            assert!(told.stdout.is_empty(), "{}", told.stdout);
            assert!(!told.stderr.contains("panicked"), "{}", told.stderr);
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        },
    );
}

#[test]
fn one_mistake_is_told_as_one() {
    // No mistakes that only follow from it.
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
    file("few.csv", b"id,name\n1,a\n2\n");
    file("bad.jsonl", b"{\"a\":1}\nnope\n");
    file("empty.csv", b"");
    file("twice.csv", b"id,id\n1,2\n");
    file("good.csv", b"id,name\n1,a\n");
    file("binary.csv", b"\xff\xfe,b\n1,2\n");
    let cases: &[(&str, &str, &str)] = &[
        ("--stages", "1s:x", "--stages 1s:x: `1s:x` is not a stage"),
        ("--feed", "few.csv", "--feed few.csv: line 3: has 1 fields where the first line has 2"),
        ("--feed", "bad.jsonl", "--feed bad.jsonl: line 2: "),
        ("--feed", "empty.csv", "--feed empty.csv: there are no rows"),
        ("--feed", "twice.csv", "--feed twice.csv: line 1: two columns are named `id`"),
        (
            "--feed",
            "good.csv",
            "--feed good.csv: its rows are for {{data.NAME}}, and no request has one: use one of id, name",
        ),
        ("--cacert", "binary.csv", "binary.csv holds no certificate"),
        ("--feed", "binary.csv", "--feed binary.csv: it is not UTF-8"),
    ];
    table(
        cases,
        |(option, value, _)| format!("{option} {value}"),
        |(option, value, text)| {
            let target = match (*option, *value) {
                ("--feed", "good.csv") => URL,
                ("--feed", _) => "http://127.0.0.1:1/{{data.id}}",
                ("--cacert", _) => TLS_URL,
                _ => URL,
            };
            let told = run_weir(dir.path(), &["load", option, value, target]);
            told.expect_code(2).expect_text(text);
            assert_eq!(told.stderr.lines().count(), 1, "{}", told.stderr);
        },
    );
}

#[test]
fn more_connections_than_descriptors_are_refused() {
    let dir = TempDir::new().unwrap();
    let weir = weir_testkit::weir_command(dir.path()).get_program().to_owned();
    let script = "ulimit -n 256 && exec \"$0\" load \"$@\"";
    let run = |args: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", script]).arg(&weir).args(args).arg(URL).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for args in [&["-c", "1000"][..], &["-c", "1000", "--rate", "5/s"], &["--stages", "1s:1000"]] {
        let (code, told) = run(args);
        assert_eq!(code, Some(2), "{args:?}: {told}");
        let text = format!("{} 1000: this process may open 256 descriptors (ulimit -n)", args[0]);
        assert!(told.contains(&text), "{args:?}: {told}");
    }
    // A default is never a mistake: a fixed rate has 1,000 connections by default.
    assert_eq!(run(&["--rate", "5/s", "-n1"]).0, Some(1), "nobody answers there");
}

#[test]
fn the_longest_and_the_fastest_begin_and_end() {
    let url = format!("http://{}/", unused_address());
    for args in [
        &["-d", "99999d", "-n1"][..],
        &["--rate", "10M/s", "-d100ms", "-c100"],
        &["-n5", "--stages", "1ms:1"],
    ] {
        load(&[args, &[&url]].concat()).expect_code(1).expect_text("no_responses");
    }
}
