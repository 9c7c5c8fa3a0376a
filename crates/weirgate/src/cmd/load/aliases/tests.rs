//! Command lines as people type them, and their translations.

use super::*;
use clap::Parser;
use weir_load::Plan;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    load: Load,
}

/// Splits a line into words as a shell does, with quotes.
fn words(line: &str) -> Vec<OsString> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars().chain([' ']) {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.extend((!word.is_empty()).then(|| std::mem::take(&mut word).into())),
            _ => word.push(c),
        }
    }
    words
}

/// The options that a line means, or the messages that refuse it.
fn understood(line: &str) -> Result<String, String> {
    let told = |mistakes: Vec<Mistake>| mistakes.iter().map(|m| format!("{m}\n")).collect::<String>();
    let args = [words("weir load"), words(line)].concat();
    let ours = translated(args).map_err(told)?.into_iter().skip(1);
    let load = Line::try_parse_from(ours).map_err(|e| e.to_string())?.load;
    let options = load.options().map_err(told)?;
    Plan::new(&options).map_err(told)?;
    // url.rs knows which scheme is the default.
    let urls = options.urls.iter().map(|url| url.replace("http://", "")).collect();
    let options = weir_load::Options { urls, ..options };
    let report = (load.format.name, load.no_live, load.summary_export);
    Ok(format!("{options:?} {report:?}"))
}

/// Lines with the equivalent in our own options.
const TAKEN: &[(&str, &str)] = &[
    // wrk, wrk2
    ("--latency -c64 -d10s http://127.0.0.1:1/", "-c 64 -d 10s http://127.0.0.1:1/"),
    (
        "-c64 -d1m --timeout 2s -H 'A: b' http://127.0.0.1:1/",
        "-c 64 -d 1m --timeout 2s -H 'A: b' http://127.0.0.1:1/",
    ),
    (
        "--threads 2 --connections 64 --duration 10s http://127.0.0.1:1/",
        "--threads 2 -c 64 -d 10s http://127.0.0.1:1/",
    ),
    ("-c64 -d10s -R2000 --latency http://127.0.0.1:1/", "-c 64 -d 10s --rate 2000 http://127.0.0.1:1/"),
    ("-c64 -d10s -R 2k --u_latency http://127.0.0.1:1/", "-c 64 -d 10s --rate 2k http://127.0.0.1:1/"),
    ("-c64 -d10s --rate 2000 http://127.0.0.1:1/", "-c 64 -d 10s --rate 2000 http://127.0.0.1:1/"),
    // hey, oha
    ("-n 200 -c 50 http://127.0.0.1:1/", "-n 200 -c 50 http://127.0.0.1:1/"),
    ("-z 10s -c 50 http://127.0.0.1:1/", "-d 10s -c 50 http://127.0.0.1:1/"),
    ("-z10s http://127.0.0.1:1/", "-d 10s http://127.0.0.1:1/"),
    (
        "-n 200 -disable-keepalive -disable-compression http://127.0.0.1:1/",
        "-n 200 --no-keepalive http://127.0.0.1:1/",
    ),
    ("-n 200 -h2 http://127.0.0.1:1/", "-n 200 --http2 http://127.0.0.1:1/"),
    (
        "-n 200 --no-tui --disable-keepalive http://127.0.0.1:1/",
        "-n 200 --no-live --no-keepalive http://127.0.0.1:1/",
    ),
    (
        "-z 1s --http2 --latency-correction --insecure https://127.0.0.1:1/",
        "-d 1s --http2 --insecure https://127.0.0.1:1/",
    ),
    // ab
    ("-n 1000 -c 10 127.0.0.1:1/", "-n 1000 -c 10 http://127.0.0.1:1/"),
    // k6
    ("--vus 10 --duration 30s http://127.0.0.1:1/", "-c 10 -d 30s http://127.0.0.1:1/"),
    ("--vus=10 --iterations=100 http://127.0.0.1:1/", "-c 10 -n 100 http://127.0.0.1:1/"),
    ("--stage 5s:10 --stage 1m:20,5s:0 http://127.0.0.1:1/", "--stages 5s:10,1m:20,5s:0 http://127.0.0.1:1/"),
    (
        "--vus 10 --no-connection-reuse --insecure-skip-tls-verify https://127.0.0.1:1/",
        "-c 10 --no-keepalive --insecure https://127.0.0.1:1/",
    ),
    (
        "--quiet --summary-export out.json http://127.0.0.1:1/",
        "--no-live --summary-export out.json http://127.0.0.1:1/",
    ),
    // h2load, autocannon, bombardier, vegeta, fortio
    (
        "--http2 -n 1000 -c 10 -m 100 https://127.0.0.1:1/",
        "--http2 -n 1000 -c 10 -m 100 https://127.0.0.1:1/",
    ),
    ("--amount 100 --pipelining 10 --body x 127.0.0.1:1", "-n 100 --pipeline 10 --data x http://127.0.0.1:1"),
    ("-c 125 -n 100 --latencies --body=x http://127.0.0.1:1/", "-c 125 -n 100 --data x http://127.0.0.1:1/"),
    ("-rate 50/1s -duration=5s http://127.0.0.1:1/", "--rate 50/1s -d 5s http://127.0.0.1:1/"),
    // targets as a browser or curl takes them
    ("localhost:1", "http://localhost:1"),
    ("3@127.0.0.1:1/a 1@localhost:1/b", "3@http://127.0.0.1:1/a 1@http://localhost:1/b"),
    ("-n 1 -- 127.0.0.1:1", "-n 1 http://127.0.0.1:1"),
    // A value is not an option.
    ("--data=-k -H X:-q http://127.0.0.1:1/", "--data=-k -H 'X:-q' http://127.0.0.1:1/"),
];

/// Lines that are refused, and the messages.
const REFUSED: &[(&str, &str)] = &[
    // wrk
    (
        "-t2 -c64 -d10s http://127.0.0.1:1/",
        "-t 2: write --threads 2 (wrk, h2load), -d 2s (ab) or --timeout 2s (hey, oha, autocannon, bombardier)\n",
    ),
    ("-t 12 -c 400 -d 30s http://127.0.0.1:1/", "-t 12: write --threads 12 (wrk, h2load)"),
    (
        "-c64 -d10 http://127.0.0.1:1/",
        "-d 10: expected a time with its unit: 10s (a bare number is seconds to wrk, milliseconds to k6)\n",
    ),
    ("--timeout 2 http://127.0.0.1:1/", "--timeout 2: expected a time with its unit: 2s"),
    ("-c64 -d10s -s post.lua http://127.0.0.1:1/", "or -X, -H, --data and --feed in place of a script (wrk)"),
    // hey, oha
    (
        "-z 10s -q 100 http://127.0.0.1:1/",
        "-q 100: write --rate 100/s for all connections together (oha), --rate with 100 times the connections for each one (hey), or nothing (ab)\n",
    ),
    ("-z 10s -q100 http://127.0.0.1:1/", "-q 100: write --rate 100/s"),
    (
        "-n 10 -m POST -d '{}' http://127.0.0.1:1/",
        "-m POST: here -m is the requests at a time on a connection of HTTP/2; a method (hey, oha) is -X POST\n-d {}: here -d is how long; a body (hey, oha, curl) is --data '{}'\n",
    ),
    (
        "-n 10 -T application/json -D body.json http://127.0.0.1:1/",
        "-T application/json: write -H 'Content-Type: application/json' (ab, hey, oha), -X PUT",
    ),
    (
        "-n 10 -D body.json http://127.0.0.1:1/",
        "-D body.json: write --data '@body.json' (hey, oha, ghz) or -d Ns (h2load)",
    ),
    (
        "-n 10 -a me:secret -x proxy:3128 http://127.0.0.1:1/",
        "-x proxy:3128: write --proxy 'http://proxy:3128' (hey, oha, curl)",
    ),
    ("-n 10 -host example.com http://127.0.0.1:1/", "--host example.com: write -H 'Host: example.com'"),
    ("-n 10 -cpus 4 http://127.0.0.1:1/", "--cpus 4: write --threads 4"),
    ("-n 10 -o csv http://127.0.0.1:1/", "another layout is --format csv"),
    ("-n 10 -p 100 --http2 http://127.0.0.1:1/", "--http2 -m 100 (oha)"),
    ("-n 10 --output-format json http://127.0.0.1:1/", "--output-format json: write --format oha-json"),
    // ab
    (
        "-k -n 1000 -c 10 http://127.0.0.1:1/",
        "-k: write --insecure (curl, bombardier) or nothing (ab: keep-alive is the default)\n",
    ),
    ("-kc 10 -n 1000 http://127.0.0.1:1/", "-k: write --insecure"),
    ("-n 100 -p post.json -T text/plain http://127.0.0.1:1/", "-p post.json: write --data '@post.json' (ab)"),
    ("-n 100 -A me:secret http://127.0.0.1:1/", "-A me:secret: write --user me:secret (ab)"),
    (
        "-n 100 -X 127.0.0.1:3128 http://127.0.0.1:1/",
        "-X 127.0.0.1:3128: here -X is the method; a proxy (ab) is --proxy 'http://127.0.0.1:3128'",
    ),
    ("-n 100 -i -C a=b http://127.0.0.1:1/", "-C a=b: write --cookie 'a=b' (ab)"),
    ("-q -n 100 http://127.0.0.1:1/", "or nothing (ab)"),
    ("-qkn 100 http://127.0.0.1:1/", "-q kn: write --rate N/s for"),
    ("-b 8192 http://127.0.0.1:1/", "or nothing (ab: the size of its buffers)"),
    ("-u body.json http://127.0.0.1:1/", "a file to PUT (ab) is -X PUT --data '@body.json'"),
    ("--redirect 0 http://127.0.0.1:1/", "--redirect 0: leave it out: redirects are never followed (oha)"),
    ("--no-thresholds http://127.0.0.1:1/", "--no-thresholds: leave it out: thresholds are those"),
    ("-s 500ms:5 http://127.0.0.1:1/", "--timeout Ns (ab), --stages 500ms:5 (k6)"),
    // k6
    (
        "--vus 10 --rps 100 http://127.0.0.1:1/",
        "--rps 100: write --rate 100/s for all connections together (k6, ghz), or --rate with 100 times",
    ),
    (
        "-u 10 -i 100 http://127.0.0.1:1/",
        "-u 10: here -u is NAME:PASSWORD; the users of k6 are -c 10\n-i 100: write -n 100 (k6)",
    ),
    ("run --vus 10 script.js", "script.js: this looks like a script, and scripts are not run"),
    ("run http://127.0.0.1:1/", "run: expected a URL such as http://127.0.0.1:8080/path"),
    (
        "--out json=out.json http://127.0.0.1:1/",
        "--out json=out.json: write -o prometheus=URL, or --save FILE (k6)",
    ),
    ("--summary-trend-stats 'avg,p(99)' http://127.0.0.1:1/", "leave it out: --format text has"),
    // wrk2 where others disagree, ghz, h2load, autocannon, fortio, curl
    (
        "-L http://127.0.0.1:1/",
        "-L: leave it out: percentiles are always printed (wrk2), and redirects are never followed (curl)\n",
    ),
    ("--call a.B/C --insecure 127.0.0.1:1", "--call a.B/C: write grpc://HOST:PORT/a.B/C as the URL"),
    ("--concurrency 50 --total 200 grpc://127.0.0.1:1/a.B/C", "write -c 50, or -c 1 -m 50 for gRPC"),
    ("-n 100 -r 500 http://127.0.0.1:1/", "-r 500: write --rate 500/s"),
    ("-c 10 -w 4 http://127.0.0.1:1/", "-w 4: write --threads 4 (autocannon)"),
    ("-qps 100 http://127.0.0.1:1/", "--qps 100: write --rate 100/s"),
    (
        "-k -q 5 -t 3 http://127.0.0.1:1/",
        "-k: write --insecure (curl, bombardier) or nothing (ab: keep-alive is the default)\n-q 5: ",
    ),
    (":8080", ":8080: expected a URL"),
    ("http:/127.0.0.1:1", "http:/127.0.0.1:1: expected a URL"),
];

#[test]
fn what_people_type_is_taken_or_translated() {
    const { assert!(TAKEN.len() + REFUSED.len() >= 44) };
    let taken = TAKEN.iter().filter_map(|(line, ours)| {
        let (wanted, got) = (understood(ours), understood(line));
        (wanted.is_err() || got != wanted).then(|| format!("{line}\n  {wanted:?}\n  {got:?}\n"))
    });
    let refused = REFUSED.iter().filter_map(|(line, text)| {
        let got = understood(line);
        got.as_ref()
            .err()
            .is_none_or(|told| !told.contains(text))
            .then(|| format!("{line}\n  {text}\n  {got:?}\n"))
    });
    let wrong: String = taken.chain(refused).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn no_word_hides_an_option_of_ours() {
    let command = Load::augment_args(Command::new("load"));
    let longs: Vec<String> =
        command.get_arguments().filter_map(|a| Some(format!("--{}", a.get_long()?))).collect();
    let shorts: Vec<String> =
        command.get_arguments().filter_map(|a| Some(format!("-{}", a.get_short()?))).collect();
    for (i, (name, meaning)) in WORDS.iter().enumerate() {
        assert!(!longs.iter().chain(&shorts).any(|own| own == name), "{name} is ours");
        assert!(WORDS.iter().skip(i + 1).all(|(other, _)| other != name), "{name} stands there twice");
        if let Is(option) = meaning {
            assert!(longs.iter().any(|own| own == option), "{name} is {option}, which there is not");
        }
    }
}

#[test]
fn what_only_load_has_is_refused_elsewhere_with_what_stands_for_it() {
    let names = |command: Command| -> Vec<String> {
        let longs = command.get_arguments().filter_map(|a| Some(format!("--{}", a.get_long()?)));
        let shorts = command.get_arguments().filter_map(|a| Some(format!("-{}", a.get_short()?)));
        longs.chain(shorts).collect()
    };
    let load = names(Load::augment_args(Command::new("load")));
    let compare = names(Compare::augment_args(Command::new("compare")));
    for (name, _) in ONLY_LOAD {
        assert!(load.iter().any(|own| own == name) && !compare.iter().any(|own| own == name), "{name}");
    }
    for (line, told) in [
        ("-n 5 a=http://127.0.0.1:1/ b=http://127.0.0.1:1/", "-n 5: write -d TIME, the longest total time"),
        ("a=http://127.0.0.1:1/ -n5", "-n 5: write -d TIME"),
        ("--requests=5 a=http://127.0.0.1:1/", "--requests 5: write -d TIME"),
        ("--iterations 5 a=http://127.0.0.1:1/", "--iterations 5: write -d TIME"),
        ("--stages 5s:1 a=http://127.0.0.1:1/", "--stages 5s:1: write -c or --rate: every target"),
        (
            "--threshold 'p99<5ms' a=http://127.0.0.1:1/",
            "--threshold p99<5ms: write --fail-if 'p99 worse 5%'",
        ),
        ("--summary-export a.json a=http://127.0.0.1:1/", "--summary-export a.json: write --save a.json"),
    ] {
        let told_here = translated([words("weir compare"), words(line)].concat()).unwrap_err();
        assert!(told_here.len() == 1 && told_here[0].to_string().contains(told), "{line}: {told_here:?}");
    }
}

#[test]
fn other_commands_are_left_alone() {
    for line in ["weir run -q -k", "weir origin -t 2", "weir", "weir compare -f bench.yaml --check-file"] {
        assert_eq!(translated(words(line)).unwrap(), words(line));
    }
    let compared = translated(words("weir compare -z 5s a=http://127.0.0.1:1/ --quiet")).unwrap();
    // Options of every command may precede the command.
    let told = translated(words("weir -c weir.yaml load -t 2 http://127.0.0.1:1/")).unwrap_err();
    assert!(told.iter().any(|m| m.to_string().starts_with("-t 2: write --threads 2")), "{told:?}");
    assert_eq!(compared, words("weir compare --duration 5s a=http://127.0.0.1:1/ --quiet"));
}

/// The tables of docs/reference/load.md.
#[test]
fn the_words_are_documented() {
    let code = |word: &str| format!("`{}`", word.replace('|', "\\|"));
    let list = |words: &[&str]| words.iter().map(|word| code(word)).collect::<Vec<_>>().join(", ");
    let mut ours: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
    let mut refused = String::new();
    for (word, meaning) in WORDS {
        match meaning {
            Is(option) => ours.entry(option).or_default().push(word),
            Given => ours.entry("nothing: the default").or_default().push(word),
            Own => unreachable!("{word} is not a word of another tool"),
            Flag(hint) | Value(hint) => {
                let hint = hint.replace("{{", "\u{1}").replace("{}", "VALUE").replace("{#}", "N");
                let hint = hint.replace('\u{1}', "{{").replace('|', "\\|").replace('<', "\\<");
                refused.push_str(&format!("| {} | {hint} |\n", code(word)));
            }
        }
    }
    let mut rows = String::new();
    for (option, words) in ours {
        let option = if option.starts_with('-') { code(option) } else { option.to_owned() };
        rows.push_str(&format!("| {} | {option} |\n", list(&words)));
    }
    let page = "docs/reference/load.md";
    weir_testkit::generated(page, "taken", &format!("| typed | means |\n|---|---|\n{rows}"));
    weir_testkit::generated(page, "refused", &format!("| refused | write |\n|---|---|\n{refused}"));
}
