//! Golden outputs of sources of plans: `plans/KIND/NAME.*` is a source, `NAME.out` what `weir import` makes of it, with
//! the report. `WEIR_BLESS=1` writes them. weirgate's end-to-end tests pass each plan through `weir load --check-file`.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};
use weir_import::plan::{self, KINDS, Kind, Options, Source};
use weir_import::{Disk, Verdict};

/// Least number of samples of each source.
const SAMPLES: usize = 6;

/// A text that stands in samples wherever a secret does. No output may have it.
const SECRET: &str = "hush";

#[test]
fn samples_are_imported_as_before() {
    let bless = std::env::var("WEIR_BLESS").is_ok();
    let mut different = Vec::new();
    for kind in KINDS {
        let samples = samples(kind);
        assert!(samples.len() >= SAMPLES, "{} has {} samples", kind.name, samples.len());
        for source in samples {
            let text = imported(kind, &source);
            assert!(!text.contains(SECRET), "{} shows a secret: {text}", source.display());
            let golden = source.with_extension("out");
            if bless {
                fs::write(&golden, text).unwrap();
            } else if fs::read_to_string(&golden).unwrap_or_default() != text {
                different.push(golden.display().to_string());
            }
        }
    }
    assert!(different.is_empty(), "run with WEIR_BLESS=1 and look at the difference: {different:#?}");
}

/// The samples of a source. Data sets beside them are no samples of their own.
fn samples(kind: &Kind) -> Vec<PathBuf> {
    let folder = Path::new("plans").join(kind.name);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && path.extension().is_none_or(|extension| extension != "out"))
        .collect();
    all.sort();
    all
}

/// The options of a sample: those in its name, `shop.static.har`.
fn options(source: &Path) -> Options {
    let name = source.file_name().unwrap().to_str().unwrap();
    let has = |option: &str| name.contains(&format!(".{option}."));
    Options {
        static_files: has("static"),
        no_pauses: has("no-pauses"),
        hosts: if has("all-hosts") { vec!["*".to_owned()] } else { Vec::new() },
        writes: has("writes"),
        examples: has("examples"),
        tags: if has("tag-orders") { vec!["orders".to_owned()] } else { Vec::new() },
        target: None,
    }
}

fn imported(kind: &'static Kind, source: &Path) -> String {
    let path = source.display().to_string();
    let disk = Disk::around(std::slice::from_ref(&path)).unwrap();
    let options = options(source);
    let result = plan::read(&disk, &path)
        .and_then(|file| plan::import(kind, Source { file, words: None }, &disk, &options));
    let text = match result {
        Ok(imported) => {
            for line in imported.ledger.lines() {
                let is_silent = line.verdict != Verdict::Same && line.why.iter().all(|why| why.is_empty());
                assert!(!is_silent, "{}: {} has no reason", line.place, line.text);
            }
            format!(
                "{}\n==> exit {} <==\n{}",
                imported.to_text(),
                imported.exit_code(false),
                imported.written()
            )
        }
        Err(unreadable) => format!("unreadable: {unreadable}\n"),
    };
    text.replace("plans/", "")
}
