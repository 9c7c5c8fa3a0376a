//! Translates options of other load testers, which people type out of habit.
//!
//! A word that means the same in every tool becomes our option. If tools disagree, we refuse it and say what to
//! write for each meaning, because a guess would run a different load. Source: the help texts of wrk 4, wrk2, ab
//! 2.4, hey 0.1, oha 1.16, k6 1.8, ghz 0.12x, h2load 1.6x, autocannon 8, bombardier 2, vegeta 12, fortio 1.7x and
//! curl 8.
//!
//! None of our options takes a separate value that begins with `-`. Every word that does is therefore an option,
//! whatever precedes it.

use super::Load;
use crate::cmd::compare::Compare;
use clap::{Args as _, Command};
use std::ffi::OsString;
use weir_report::Mistake;

#[cfg(test)]
mod tests;

/// How to treat a word.
#[derive(Clone, Copy)]
enum Meaning {
    /// Refused: it takes no value, and this is what to write instead.
    Flag(&'static str),
    /// Dropped: it asks for our default behaviour.
    Given,
    /// Our option of this name, which takes the same kind of value.
    Is(&'static str),
    /// Our own option, written with one dash.
    Own,
    /// Refused: it takes a value, which replaces `{}` in this text, and `{#}` if it is a number.
    Value(&'static str),
}
use Meaning::{Flag, Given, Is, Own, Value};

/// The words, sorted, capitals last.
static WORDS: &[(&str, Meaning)] = &[
    ("-a", Value("--user {} (hey, oha, bombardier) or -n {#} (autocannon)")),
    (
        "-b",
        Value(
            "--data '{}' (autocannon, bombardier), --cookie '{}' (curl), or nothing (ab: the size of its buffers)",
        ),
    ),
    ("-body", Value("--data '@{}' (vegeta)")),
    ("-e", Value("--format csv (ab); k6's variables are for scripts, which are not run")),
    ("-g", Value("--format csv (ab)")),
    ("-h2", Is("--http2")),
    ("-h2c", Is("--http2")),
    ("-i", Value("-n {#} (k6), -X HEAD (ab), or the URLs of the file (h2load)")),
    ("-j", Flag("--format json, or --format oha-json (oha)")),
    ("-k", Flag("--insecure (curl, bombardier) or nothing (ab: keep-alive is the default)")),
    (
        "-keepalive",
        Value("--no-keepalive for -keepalive=false (vegeta), or nothing: connections are kept by default"),
    ),
    (
        "-l",
        Flag(
            "nothing: percentiles are always printed (autocannon, bombardier), and bodies may differ in length (ab)",
        ),
    ),
    ("-lazy", Given),
    ("-max-connections", Value("-c {#} (vegeta)")),
    ("-max-workers", Value("-c {#} (vegeta)")),
    ("-p", Value("--data '@{}' (ab), --http2 -m {#} (oha) or --pipeline {#} (autocannon)")),
    (
        "-q",
        Value(
            "--rate {#}/s for all connections together (oha), --rate with {#} times the connections for each one (hey), or nothing (ab)",
        ),
    ),
    (
        "-r",
        Value(
            "--rate {#}/s for all connections together (ghz, bombardier), --rate with the sum for each one (autocannon), or nothing (ab, oha)",
        ),
    ),
    ("-redirects", Value("nothing: redirects are never followed (vegeta)")),
    ("-root-certs", Value("--cacert '{}' (vegeta)")),
    (
        "-s",
        Value(
            "--timeout {#}s (ab), --stages {} (k6), or -X, -H, --data and --feed in place of a script (wrk)",
        ),
    ),
    (
        "-t",
        Value(
            "--threads {#} (wrk, h2load), -d {#}s (ab) or --timeout {#}s (hey, oha, autocannon, bombardier)",
        ),
    ),
    (
        "-targets",
        Value("the URLs of {} as arguments, and -X, -H and --data for what they have in common (vegeta)"),
    ),
    ("-v", Flag("nothing, or --format json for everything")),
    ("-w", Value("--threads {#} (autocannon), --html FILE (ab) or --graceful-stop TIME (oha)")),
    ("-x", Value("--proxy 'http://{}' (hey, oha, curl) or -d {} (ghz)")),
    ("-z", Is("--duration")),
    ("-A", Value("--user {} (ab) or -H 'Accept: {}' (hey, oha)")),
    ("-C", Value("--cookie '{}' (ab)")),
    ("-D", Value("--data '@{}' (hey, oha, ghz) or -d {#}s (h2load)")),
    ("-E", Value("--cert {} --key {} (ab)")),
    ("-I", Flag("-X HEAD (curl)")),
    ("-L", Flag("nothing: percentiles are always printed (wrk2), and redirects are never followed (curl)")),
    ("-P", Value("--proxy 'http://{}@HOST:PORT' (ab)")),
    ("-R", Is("--rate")),
    ("-S", Value("--unix-socket '{}' (autocannon)")),
    (
        "-T",
        Value("-H 'Content-Type: {}' (ab, hey, oha), -X PUT --data '@{}' (curl) or --name '{}' (autocannon)"),
    ),
    ("-U", Value("-H 'User-Agent: {}' (hey) or --format wrk2 (wrk2)")),
    ("-V", Flag("`weir --version`")),
    ("-W", Value("--warmup {}")),
    ("-Z", Value("--feed FILE and --data '{{data.NAME}}' (oha)")),
    ("--amount", Is("--requests")),
    ("--body", Is("--data")),
    ("--body-file", Value("--data '@{}'")),
    ("--call", Value("grpc://HOST:PORT/{} as the URL")),
    ("--concurrency", Value("-c {#}, or -c 1 -m {#} for gRPC (ghz opens one connection for all of them)")),
    ("--connect-timeout", Value("--timeout {}, which bounds connecting too")),
    ("--connect-to", Value("--resolve HOST:PORT:ADDR")),
    ("--content-type", Value("-H 'Content-Type: {}'")),
    ("--cpus", Value("--threads {}")),
    ("--data-file", Value("--data '@{}'")),
    ("--disable-compression", Given),
    ("--disable-keepalive", Is("--no-keepalive")),
    ("--disable-redirects", Given),
    ("--h2", Is("--http2")),
    ("--host", Value("-H 'Host: {}'")),
    ("--insecure-skip-tls-verify", Is("--insecure")),
    ("--iterations", Is("--requests")),
    (
        "--json",
        Flag("--format json (oha, autocannon), or --data with -H 'Content-Type: application/json' (curl)"),
    ),
    ("--latencies", Given),
    ("--latency", Given),
    ("--latency-correction", Given),
    ("--max-redirects", Value("nothing: redirects are never followed")),
    ("--no-connection-reuse", Is("--no-keepalive")),
    ("--no-summary", Flag("nothing: --format says how the result is printed, and it always is (k6)")),
    ("--no-thresholds", Flag("nothing: thresholds are those that --threshold names (k6)")),
    ("--no-tui", Is("--no-live")),
    ("--out", Value("-o prometheus=URL, or --save FILE (k6)")),
    ("--output-format", Value("--format oha-json, csv or text (oha)")),
    ("--pipelining", Is("--pipeline")),
    ("--qps", Value("--rate {#}/s")),
    ("--quiet", Is("--no-live")),
    ("--redirect", Value("nothing: redirects are never followed (oha)")),
    (
        "--rps",
        Value(
            "--rate {#}/s for all connections together (k6, ghz), or --rate with {#} times the connections for each one (h2load, nighthawk)",
        ),
    ),
    ("--script", Value("-X, -H, --data and --feed: scripts are not run (wrk)")),
    ("--skipTLS", Is("--insecure")),
    ("--socketPath", Is("--unix-socket")),
    ("--stage", Is("--stages")),
    ("--summary-mode", Value("--format k6 (compact) or --format k6-full (full)")),
    (
        "--summary-trend-stats",
        Value("nothing: --format text has p50, p90, p99 and p99.9, --format json all percentiles"),
    ),
    ("--tag", Value("--name NAME, the label `testid` of -o prometheus (k6)")),
    ("--total", Is("--requests")),
    ("--u_latency", Given),
    ("--user-agent", Value("-H 'User-Agent: {}'")),
    ("--version", Flag("`weir --version`")),
    ("--workers", Value("-c {} if you mean connections, --threads {} if you mean threads")),
];

/// Options that `load` has and `compare` lacks, each with its substitute.
static ONLY_LOAD: &[(&str, Meaning)] = &[
    ("-n", BY_TIME),
    ("-o", Value("--save FILE")),
    ("--abort-on", Value("--fail-if 'p99 worse 5%', which is judged at the end")),
    ("--find-knee", Value("`weir load --find-knee '{}'` for each target")),
    ("--output", Value("--save FILE")),
    ("--requests", BY_TIME),
    ("--stages", Value("-c or --rate: every target gets the same constant load")),
    ("--summary-export", Value("--save {}")),
    ("--think", Value("--rate: connections do not pause")),
    ("--threshold", Value("--fail-if 'p99 worse 5%', which compares a target with the first")),
];

const BY_TIME: Meaning = Value("-d TIME, the longest total time, and --until 1% to stop early");

/// Translates the command line if its command generates load.
///
/// # Errors
/// Every word that is ambiguous or has no meaning here, each with what to write instead.
pub(in crate::cmd) fn translated(args: Vec<OsString>) -> Result<Vec<OsString>, Vec<Mistake>> {
    let command = match args.get(command_at(&args)).and_then(|command| command.to_str()) {
        Some("compare") => Compare::augment_args(Command::new("compare")),
        Some("load") => Load::augment_args(Command::new("load")),
        _ => return Ok(args),
    };
    let is_ours = |name: &str| {
        command.get_arguments().any(|a| match name.strip_prefix("--") {
            Some(long) => a.get_long_and_visible_aliases().is_some_and(|longs| longs.contains(&long)),
            None => a.get_short().is_some_and(|short| name.chars().eq(['-', short])),
        })
    };
    let (mut ours, mut mistakes) = (Vec::new(), Vec::new());
    let mut rest = args.into_iter().peekable();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            ours.push(arg);
            ours.extend(rest);
            break;
        }
        let Some(typed) = arg.to_str().filter(|typed| typed.starts_with('-')) else {
            ours.push(arg);
            continue;
        };
        match Word::of(typed, is_ours) {
            None => match doubtful(typed, rest.peek().and_then(|next| next.to_str())) {
                Some(mistake) => mistakes.push(mistake),
                None => ours.push(arg),
            },
            Some(Word { meaning: Given, .. }) => {}
            Some(Word { meaning: Own, name, value }) => ours.push(with(&name, value)),
            Some(Word { meaning: Is(name), value, .. }) => ours.push(with(name, value)),
            Some(word @ Word { meaning: Flag(hint), .. }) => mistakes.push(refused(&word.name, None, hint)),
            Some(Word { name, value, meaning: Value(hint) }) => {
                // A URL is not its value, because in some tools the option takes none.
                let own = |next: &OsString| {
                    next.to_str().is_some_and(|n| !n.starts_with('-') && !n.contains("://"))
                };
                let next = || rest.next_if(own)?.into_string().ok();
                mistakes.push(refused(&name, value.or_else(next).as_deref(), hint));
            }
        }
    }
    if mistakes.is_empty() { Ok(ours) } else { Err(mistakes) }
}

/// Index of the command; `-c FILE`, which all commands take, may precede it.
fn command_at(args: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(word) = args.get(at).and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) {
        at += if matches!(word, "-c" | "--config") { 2 } else { 1 };
    }
    at
}

/// A word of `WORDS` as typed, or one of our options with a single dash.
struct Word {
    name: String,
    meaning: Meaning,
    /// The value attached to the word: `5` in `-q5` and `--rps=5`.
    value: Option<String>,
}

impl Word {
    fn of(typed: &str, is_ours: impl Fn(&str) -> bool) -> Option<Self> {
        let (name, value) = typed.split_once('=').map_or((typed, None), |(name, value)| (name, Some(value)));
        let known = |name: &str, value: Option<&str>| {
            // The command's own option of the same name takes precedence: `compare -f` is a bench file.
            let of = |list: &[(&str, Meaning)], name: &str| {
                list.iter().find(|(known, _)| *known == name && !is_ours(name)).map(|(_, meaning)| *meaning)
            };
            let meaning = match of(WORDS, name).or_else(|| of(ONLY_LOAD, name))? {
                Is(option) if !is_ours(option) => of(ONLY_LOAD, option)?,
                meaning => meaning,
            };
            Some(Self { name: name.to_owned(), meaning, value: value.map(str::to_owned) })
        };
        if let Some(word) = known(name, value) {
            return Some(word);
        }
        if name.starts_with("--") {
            return None;
        }
        // Go programs take long names with a single dash.
        let long = format!("-{name}");
        if name.len() > 2
            && let Some(word) = known(&long, value)
        {
            return Some(word);
        }
        if name.len() > 2 && is_ours(&long) {
            return Some(Self { name: long, meaning: Own, value: value.map(str::to_owned) });
        }
        let (short, attached) = typed.split_at_checked(2)?;
        known(short, Some(attached.strip_prefix('=').unwrap_or(attached)).filter(|v| !v.is_empty()))
    }
}

/// An option as written, with its value if known.
fn with(name: &str, value: Option<String>) -> OsString {
    value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}")).into()
}

fn refused(name: &str, value: Option<&str>, hint: &str) -> Mistake {
    let place = value.map_or_else(|| name.to_owned(), |value| format!("{name} {value}"));
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    let number = if value.is_none() { "VALUE" } else { "N" };
    let hint = hint.replace("{#}", value.filter(|value| is_number(value)).unwrap_or(number));
    let hint = hint.replace("{}", value.unwrap_or("VALUE"));
    let hint = match hint.strip_prefix("nothing") {
        Some(why) => format!("leave it out{why}"),
        None => format!("write {hint}"),
    };
    Mistake { place, hint }
}

/// Refuses a value that another tool expects for one of our short options.
fn doubtful(word: &str, next: Option<&str>) -> Option<Mistake> {
    let (option, value) = match word.split_at_checked(2)? {
        (option, "") => (option, next?),
        (option, attached) => (option, attached),
    };
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let hint = match option {
        "-d" if !is_number(value) && !value.starts_with(['-', '=']) => {
            format!("here -d is how long; a body (hey, oha, curl) is --data '{value}'")
        }
        "-m" if value.chars().all(|c| c.is_ascii_alphabetic()) => {
            format!(
                "here -m is the requests at a time on a connection of HTTP/2; a method (hey, oha) is -X {value}"
            )
        }
        "-u" if is_number(value) && !value.contains(':') => {
            format!("here -u is NAME:PASSWORD; the users of k6 are -c {value}")
        }
        "-u" if !value.contains(':') && value.contains('.') => {
            format!("here -u is NAME:PASSWORD; a file to PUT (ab) is -X PUT --data '@{value}'")
        }
        "-X" if value.contains(':') => {
            format!("here -X is the method; a proxy (ab) is --proxy 'http://{value}'")
        }
        _ => return None,
    };
    Some(Mistake { place: format!("{option} {value}"), hint })
}
