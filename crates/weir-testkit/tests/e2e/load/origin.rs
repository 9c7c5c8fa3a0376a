//! What a load is made against: `weir origin`, and the sink of `weir bench --self`.

use std::io::{BufRead, BufReader};
use std::process::Command;
use tempfile::TempDir;
use weir_testkit::{refusing_address, run_weir, weir_command};

#[test]
fn it_says_where_and_what_and_ends_when_told() {
    let dir = TempDir::new().unwrap();
    let mut origin =
        weir_command(dir.path()).args(["origin", "--http", "127.0.0.1:0", "-t2"]).spawn().unwrap();
    let mut lines = BufReader::new(origin.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let url = first.strip_prefix("It flows on ").unwrap_or_else(|| panic!("{first}"));
    let paths: Vec<String> = lines.by_ref().skip(1).take(weir_origin::PATHS.len()).collect();
    assert!(paths.iter().any(|line| line.trim_start().starts_with("/delay/250 ")), "{paths:?}");
    let address = url.strip_prefix("http://").unwrap();
    let load =
        run_weir(dir.path(), &["load", "-n20", "-c4", "--check", "size<2KiB", &format!("{url}/body/1KiB")]);
    load.expect_code(0).expect_text("20 responses");
    run_weir(dir.path(), &["origin", "--http", address])
        .expect_code(1)
        .expect_text(&format!("--http {address}: process {} listens there", origin.id()));
    assert!(Command::new("kill").args(["-TERM", &origin.id().to_string()]).status().unwrap().success());
    assert_eq!(origin.wait().unwrap().code(), Some(0));
    let (_bound, taken) = refusing_address();
    run_weir(dir.path(), &["origin", "--http", &taken.to_string()]).expect_code(1).expect_text("--http");
    run_weir(dir.path(), &["origin", "--http", "here"]).expect_code(2);
}

#[test]
fn the_generator_is_measured_against_a_sink() {
    let dir = TempDir::new().unwrap();
    run_weir(dir.path(), &["bench", "--self", "-d", "soon"]).expect_code(2).expect_text("-d soon");
    // Four ways of a second each: longer than `run_weir` waits on a busy machine.
    let run = weir_command(dir.path()).args(["bench", "--self", "-d1s"]).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(0), "{text}");
    assert!(text.contains("64, pipelined by 16") && text.contains("fixed rate, half"), "{text}");
}
