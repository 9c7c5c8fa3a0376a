//! House rules that the compiler does not check: the form of files, dependencies between crates, and complete
//! registries. Each test lists every violation of its rule.
//!
//! It uses only the standard library: `rustc --test` compiles it alone, in seconds.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod crates;
mod filters;
#[path = "../../../weir-testkit/src/generated.rs"]
mod generated;
mod modules;
mod mutants;
mod pages;

use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of code in a file; look for the seam at 500.
const MAX_CODE_LINES: usize = 800;

/// Files that may be longer, with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

#[test]
fn every_file_says_what_it_is_for() {
    check("begin with `//!`: what the file is for, then how it relates to its neighbours", |broken| {
        for file in sources() {
            let text = read(&file);
            let first = text.lines().find(|line| !line.starts_with("#!"));
            if !first.is_some_and(|line| line.starts_with("//! ")) {
                broken.push(name(&file));
            }
        }
    });
}

#[test]
fn no_file_is_too_long() {
    check("look for the seam, or add the file to LONG_FILES with its reason", |broken| {
        for file in sources() {
            let lines = code_lines(&read(&file));
            let name = name(&file);
            if lines > MAX_CODE_LINES
                && !LONG_FILES.iter().any(|(known, _)| *known == name)
                && !is_test(&name)
            {
                broken.push(format!("{name}: {lines} lines of code"));
            }
        }
    });
}

#[test]
fn no_exemption_is_out_of_date() {
    check("take it out of LONG_FILES", |broken| {
        for (file, _) in LONG_FILES {
            if !fs::read_to_string(root().join(file)).is_ok_and(|text| code_lines(&text) > MAX_CODE_LINES) {
                broken.push((*file).to_owned());
            }
        }
    });
}

#[test]
fn nothing_is_left_undone() {
    // Assembled here, so that this file does not match itself.
    let banned = [["to", "do!("].concat(), ["unimplem", "ented!("].concat(), ["#[ig", "nore"].concat()];
    check("finish it, or take it out", |broken| {
        for file in sources() {
            for (number, line) in read(&file).lines().enumerate() {
                if banned.iter().any(|word| line.contains(word)) {
                    broken.push(format!("{}:{}: {}", name(&file), number + 1, line.trim()));
                }
            }
        }
    });
}

#[test]
fn lines_about_one_thing_are_limited_for_each() {
    check(
        "use log::per_subject: a storm about one thing must not hide the line about another. If the line names nothing, add the file here",
        |broken| {
            let about_the_process =
                ["crates/weir-engine/src/connection.rs", "crates/weir-engine/src/listener.rs"];
            for (place, line) in code_below("crates/") {
                let file = place.split(':').next().unwrap_or_default();
                let is_test = file.contains("/tests/");
                if line.contains("log::every(") && !is_test && !about_the_process.contains(&file) {
                    broken.push(format!("{place}: {}", line.trim()));
                }
            }
        },
    );
}

#[test]
fn no_test_sleeps() {
    let banned = ["sle", "ep("].concat();
    check(
        "wait for an event with a deadline (weir_testkit::eventually polls where there is none)",
        |broken| {
            for file in sources().into_iter().filter(|file| name(file).contains("/tests/")) {
                for (number, line) in read(&file).lines().enumerate() {
                    if line.contains(&banned) {
                        broken.push(format!("{}:{}: {}", name(&file), number + 1, line.trim()));
                    }
                }
            }
        },
    );
}

#[test]
fn every_layout_is_registered() {
    let report = root().join("crates/weir-report/src/layout.rs");
    let registry = read(&report);
    check("add `mod x;` and `&x::FORMAT` to layout.rs", |broken| {
        for file in files_below(&report.with_extension("")).iter().map(Path::new) {
            let stem = file.file_stem().unwrap().to_string_lossy();
            if read(file).contains("static FORMAT: Format") && !registry.contains(&format!("&{stem}::FORMAT"))
            {
                broken.push(name(file));
            }
        }
    });
}

// === Helpers ===

/// Collects violations of a rule, and fails with advice.
#[track_caller]
fn check(advice: &str, look: impl Fn(&mut Vec<String>)) {
    let mut broken = Vec::new();
    look(&mut broken);
    assert!(broken.is_empty(), "{advice}:\n  {}", broken.join("\n  "));
}

/// The workspace for which cargo runs the test. Determined at run time: with a shared target folder, the executable
/// may have been built for another checkout.
fn root() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&here).ancestors().nth(2).unwrap().to_owned()
}

/// Every Rust file of every crate.
fn sources() -> Vec<PathBuf> {
    let files = files_below(&root().join("crates")).into_iter().map(PathBuf::from);
    files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Every line of code in the Rust files below a folder, with its place; without tests and comments.
fn code_below(folder: &str) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for file in sources().into_iter().filter(|file| name(file).starts_with(folder) && !is_test(&name(file))) {
        let text = read(&file);
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        lines.extend(code.map(|(number, line)| (format!("{}:{}", name(&file), number + 1), line.to_owned())));
    }
    lines
}

/// Every file below a folder, except build output and version control.
fn files_below(folder: &Path) -> Vec<String> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("target") || path.ends_with(".git") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    files
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn name(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs")
}

/// Lines before the tests that are neither empty nor comments.
fn code_lines(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//")).count()
}
