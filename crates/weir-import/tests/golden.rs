//! Golden outputs: `tests/SYSTEM/NAME.*` is a source (or `tests/SYSTEM/NAME/` a tree of them, which begins with its
//! `main.*`), and `NAME.out` what `weir import` makes of it, with the report. `WEIR_BLESS=1` writes them.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};
use weir_import::ledger::Counts;
use weir_import::{Disk, SYSTEMS, System, Verdict};

/// Least share of the lines of all samples that must be taken, in percent.
const TAKEN: usize = 90;
/// Least number of samples, of all systems and of each.
const SAMPLES: usize = 60;
const SAMPLES_OF_ONE: usize = 8;

#[test]
fn samples_are_imported_as_before() {
    let bless = std::env::var("WEIR_BLESS").is_ok();
    let (mut different, mut all, mut count) = (Vec::new(), Counts::default(), 0);
    for system in SYSTEMS {
        let mut own = Counts::default();
        let samples = samples(system);
        for (name, source) in &samples {
            let text = imported(system, source, &mut own);
            let golden = folder(system).join(format!("{name}.out"));
            if bless {
                fs::write(&golden, text).unwrap();
            } else if fs::read_to_string(&golden).unwrap_or_default() != text {
                different.push(golden.display().to_string());
            }
        }
        println!("{}: {} samples, {}", system.name, samples.len(), told(own));
        assert!(samples.len() >= SAMPLES_OF_ONE, "{} has {} samples", system.name, samples.len());
        count += samples.len();
        all.same += own.same;
        all.changed += own.changed;
        all.left_out += own.left_out;
        all.refused += own.refused;
    }
    println!("{count} samples: {}", told(all));
    assert!(different.is_empty(), "run with WEIR_BLESS=1 and look at the difference: {different:#?}");
    assert!(count >= SAMPLES, "{count} samples");
    assert!(all.percent_taken() >= TAKEN, "{}, which is less than {TAKEN} %", told(all));
}

/// What became of the lines of samples.
fn told(counts: Counts) -> String {
    format!(
        "{} lines: {} same, {} changed, {} left out, {} refused; {} % taken",
        counts.total(),
        counts.same,
        counts.changed,
        counts.left_out,
        counts.refused,
        counts.percent_taken()
    )
}

fn folder(system: &System) -> PathBuf {
    // Relative to the crate, where tests run: comments with names of files must not wrap by the checkout's path.
    Path::new("tests").join(system.name)
}

/// The samples of a system by name, with the file to begin with.
fn samples(system: &System) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder(system)) else { return Vec::new() };
    let mut samples: Vec<(String, PathBuf)> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|extension| extension != "out"))
        .filter_map(|path| {
            let name = path.file_stem()?.to_str()?.to_owned();
            let is_main = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "main");
            let main = match path.is_dir() {
                true => fs::read_dir(&path).ok()?.map(|entry| entry.unwrap().path()).find(is_main)?,
                false => path,
            };
            Some((name, main))
        })
        .collect();
    samples.sort();
    samples
}

/// What the import of a sample writes and says. Whatever it does not take as it is must have a reason.
fn imported(system: &'static System, source: &Path, all: &mut Counts) -> String {
    let files = [source.display().to_string()];
    let disk = Disk::around(&files).unwrap();
    let import = match weir_import::import(system, &disk, &files) {
        Ok(import) => import,
        Err(unreadable) => return short(&format!("unreadable: {unreadable}\n")),
    };
    let counts = import.ledger.counts();
    all.same += counts.same;
    all.changed += counts.changed;
    all.left_out += counts.left_out;
    all.refused += counts.refused;
    for line in import.ledger.lines() {
        let is_silent = line.verdict != Verdict::Same && line.why.iter().all(|why| why.is_empty());
        assert!(!is_silent, "{}: {} has no reason", line.place, line.text);
    }
    let mut text = import.to_text();
    for file in import.written() {
        let secret = if file.is_secret { " (0600)" } else { "" };
        text.push_str(&format!("\n==> {}{secret} <==\n{}", file.path, file.text));
    }
    short(&text)
}

/// Without the folder of the samples.
fn short(text: &str) -> String {
    SYSTEMS.iter().fold(text.to_owned(), |text, system| {
        text.replace(&format!("tests/{}/", system.name), &format!("{}/", system.name))
    })
}
