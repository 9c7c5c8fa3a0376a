//! The live view, on a pseudo-terminal.

use super::{origin, url};
use crate::support::OK;
use std::process::{Child, Command, ExitStatus};
use tempfile::TempDir;
use weir_report::Report;
use weir_testkit::{Pty, Upstream, weir_command};

/// Sequences that switch to the alternate screen and back.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";
const CURSOR_SHOWN: &str = "\x1b[?25h";

/// Runs `weir load` with these arguments, with stdout and stderr on this terminal.
fn start(pty: &Pty, args: &[&str]) -> Child {
    let dir = TempDir::new().unwrap();
    pty.spawn(weir_command(dir.path()).arg("load").args(args), true, true).unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// Checks that the terminal is restored; returns what was printed after that.
#[track_caller]
fn given_back(pty: &Pty) -> String {
    // The terminal's reader may be behind a program that has ended.
    let given = pty.wait_for(0, GIVEN_BACK);
    pty.wait_for(given, CURSOR_SHOWN);
    assert!(pty.echoes(), "no echo");
    let shown = pty.shown();
    let (view, rest) = shown.rsplit_once(GIVEN_BACK).unwrap_or_else(|| panic!("not given back: {shown}"));
    assert_eq!(view.matches(TAKEN).count(), 1, "{shown}");
    assert!(rest.starts_with(CURSOR_SHOWN), "{rest:?}");
    let rest = rest.trim_start_matches(CURSOR_SHOWN);
    assert!(!rest.contains('\x1b'), "{rest:?}");
    rest.replace("\r\n", "\n")
}

fn ended(mut child: Child) -> ExitStatus {
    child.wait().unwrap()
}

#[test]
fn frames_are_shown_and_the_report_is_printed_below() {
    let (_origin, url) = origin("/body/100");
    let pty = Pty::open();
    let child = start(&pty, &["-c2", "--threads=1", "-d1300ms", "--pid", "auto", &url]);
    let taken = pty.wait_for(0, TAKEN);
    pty.wait_for(taken, "of 1 s");
    assert!(!pty.echoes(), "an echo would be drawn over the view");
    pty.wait_for(taken, "200: ");
    pty.wait_for(taken, "per response");
    assert_eq!(ended(child).code(), Some(0));
    pty.wait_for(taken, "of memory\r\n");
    let report = given_back(&pty);
    let verdict = ["VALID", "SUSPECT"].iter().any(|grade| report.starts_with(grade));
    assert!(verdict && report.contains("service time"), "{report}");
    assert!(!report.contains('\r'), "no line of progress besides the view: {report:?}");
}

#[test]
fn ctrl_c_gives_the_terminal_back_and_prints_the_report_so_far() {
    let upstream = Upstream::fixed(OK);
    let pty = Pty::open();
    let child = start(&pty, &["-c2", "--threads=1", "-d60s", &url(&upstream)]);
    pty.wait_for(0, "of 60 s");
    upstream.wait_requests(10);
    signal(&child, "-INT");
    assert_eq!(ended(child).code(), Some(0));
    pty.wait_for(0, "of memory\r\n");
    let report = given_back(&pty);
    assert!(report.starts_with("SUSPECT") && report.contains("ended_early"), "{report}");
}

#[test]
fn a_termination_gives_the_terminal_back() {
    let upstream = Upstream::fixed(OK);
    let pty = Pty::open();
    let child = start(&pty, &["-c2", "--threads=1", "-d60s", &url(&upstream)]);
    pty.wait_for(0, "of 60 s");
    signal(&child, "-TERM");
    assert_eq!(ended(child).code(), Some(0));
    let report = given_back(&pty);
    assert!(report.starts_with("SUSPECT") && report.contains("ended_early"), "{report}");
}

#[test]
fn a_second_ctrl_c_ends_it_at_once() {
    // The first Ctrl-C prints the report. Without the second, the program would wait for a Prometheus that accepts
    // data but never answers.
    let upstream = Upstream::fixed(OK);
    let silent = Upstream::script(|conn| while conn.next_request().is_some() {});
    let output = format!("prometheus=http://{}", silent.address());
    let pty = Pty::open();
    let child = start(&pty, &["-c2", "--threads=1", "-d60s", "-o", &output, &url(&upstream)]);
    upstream.wait_requests(10);
    signal(&child, "-INT");
    let printed = pty.wait_for(0, "ended_early");
    pty.wait_for(printed, "of memory\r\n");
    silent.wait_requests(1);
    signal(&child, "-INT");
    assert_eq!(ended(child).code(), Some(130));
    given_back(&pty);
}

#[test]
fn other_layouts_stay_whole() {
    let (_origin, url) = origin("/body/100");
    let pty = Pty::open();
    let child =
        start(&pty, &["-c1", "--threads=1", "-n20", "--format", "json", "--threshold", "p99<10s", &url]);
    let taken = pty.wait_for(0, TAKEN);
    assert_eq!(ended(child).code(), Some(0));
    let verdict = pty.wait_for(taken, "too_short");
    pty.wait_for(verdict, "\r\n"); // the layout is one line
    let printed = given_back(&pty);
    let report: Report = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!(report.counts.responses, 20);
}

#[test]
fn where_there_is_no_terminal_there_is_no_view() {
    let (_origin, url) = origin("/body/100");
    for (args, stdout, stderr, note) in [
        (&[][..], false, true, ""),
        (&[], true, false, ""),
        (&["--no-live"], true, true, ""),
        (&["--live"], false, true, "weir load: --live: stdout and stderr are not both a terminal"),
    ] {
        let pty = Pty::open();
        let dir = TempDir::new().unwrap();
        let mut command = weir_command(dir.path());
        command.args(["load", "-c1", "--threads=1", "-d1200ms", &url]).args(args);
        let child = pty.spawn(&mut command, stdout, stderr).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        if stdout {
            pty.wait_for(0, "of memory\r\n");
        }
        if stderr {
            pty.wait_for(0, " errors \r");
        }
        let piped = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let all = piped + &pty.shown();
        assert!(
            !all.contains(TAKEN) && all.contains("service time") && all.contains(note),
            "{args:?}: {all:?}"
        );
        assert_eq!(all.contains(" errors \r"), stderr, "a line of progress is for a terminal: {all:?}");
    }
}
