//! Runs fuzz targets without a fuzzer: every seed, then mutations of seeds. Deterministic, on any toolchain.
//!
//! `smoke [--runs N] [TARGET…]`: by default all targets, with 50 000 mutations each. An input that violates a
//! property is saved in `artifacts/TARGET/` as by libFuzzer, and the exit code is 1. Each core runs one target at a
//! time.

use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use weir_fuzz::{Random, TARGETS, Target};

/// Longest input, in bytes: more than the small limits that the targets set.
const INPUT_BYTES: usize = 1024;
/// Stack of a thread: that of a main thread on Linux, which libFuzzer calls the targets on.
const STACK_BYTES: usize = 8 * 1024 * 1024;

fn main() -> ExitCode {
    let mut runs = 50_000;
    let mut names = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg != "--runs" {
            names.push(arg);
            continue;
        }
        let Some(n) = args.next().and_then(|n| n.parse().ok()) else {
            eprintln!("--runs wants a number");
            return ExitCode::from(2);
        };
        runs = n;
    }
    if let Some(unknown) = names.iter().find(|n| TARGETS.iter().all(|(name, _)| name != n)) {
        let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("no target {unknown}; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let chosen: Vec<&Target> =
        TARGETS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name)).collect();
    let (next, broken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(target) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !smoke(target, runs) {
                broken.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, work).expect("the machine can start a thread per core");
        }
    });
    ExitCode::from(u8::from(broken.into_inner() > 0))
}

/// Runs one target; returns whether every property held.
fn smoke((name, run): &Target, runs: usize) -> bool {
    let started = Instant::now();
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = seeds(&home.join("seeds").join(name));
    let holds = |input: &[u8]| {
        if catch_unwind(|| run(input)).is_ok() {
            return true;
        }
        let kept = home.join("artifacts").join(name);
        let path = kept.join(format!("crash-{:016x}", hash(input)));
        match std::fs::create_dir_all(&kept).and_then(|()| std::fs::write(&path, input)) {
            Ok(()) => eprintln!("{name}: broken by {}", path.display()),
            Err(e) => eprintln!("{name}: broken by {} ({e})", input.escape_ascii()),
        }
        false
    };
    let mut random = Random(hash(name.as_bytes()) | 1);
    let fine = seeds.iter().all(|seed| holds(seed)) && (0..runs).all(|_| holds(&mutate(&seeds, &mut random)));
    let (seconds, result) = (started.elapsed().as_secs_f64(), if fine { "ok" } else { "BROKEN" });
    println!("{name}: {} seeds, {runs} mutations in {seconds:.1} s: {result}", seeds.len());
    fine
}

/// A target's seeds, sorted by name.
fn seeds(folder: &Path) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = files.map(|f| f.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no seeds", folder.display());
    paths.iter().map(|p| std::fs::read(p).expect("a readable seed")).collect()
}

/// A seed with a few bytes damaged, or with part of another seed inserted.
fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const BYTES: &[u8] = b"\0\t\n\x0b\r\r\n  ,:;?*/@[]_-0159aAfFgxX\x7f\x80\xff";
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(5) {
        let at = random.below(input.len());
        let to = (at + 1 + random.below(16)).min(input.len());
        match random.below(7) {
            0 => input.insert(at, BYTES[random.below(BYTES.len())]),
            1 => drop(input.drain(at..to)),
            2 => drop(input.splice(at..at, input[at..to].to_vec())),
            3 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let part = other[from..].iter().take(random.below(40)).copied();
                drop(input.splice(at..at, part));
            }
            _ if input.is_empty() => {}
            4 => input[at] = BYTES[random.below(BYTES.len())],
            5 => input[at] = random.below(256) as u8,
            _ => input[0] = random.below(256) as u8,
        }
    }
    input.truncate(INPUT_BYTES);
    input
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}
