//! What 100,000 consumers of a source cost: memory, counted by an allocator, so this is a binary of its own.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Instant;
use weir_gateway::config::Diagnostics;
use weir_gateway::directory::{Directory, Lookup, Origin, Rules, Source};
use weir_gateway::filter::Consumers;
use weir_gateway::filters::KINDS;

/// Bytes that are allocated now.
static LIVE: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: it passes everything on to the system's allocator and adds up sizes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const COUNT: isize = 100_000;

/// The bytes of a SHA-256: what is kept of a key.
const HASH: isize = 32;

#[test]
fn a_hundred_thousand_consumers_are_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crm.yaml");
    let mut text = "consumers:\n".to_owned();
    let mut names = 0;
    for n in 0..COUNT {
        let name = format!("customer-{n}");
        names += name.len() as isize;
        let plan = ["gold", "free"][n as usize % 2];
        writeln!(text, "  {name}: {{ key_auth: [ key-of-customer-{n:09} ], plan: {plan}, groups: [eu] }}")
            .unwrap();
    }
    std::fs::write(&path, &text).unwrap();
    drop(text);
    let plans = || ["gold", "free"].into_iter().map(str::to_owned);
    let rules = || Rules::new(&Consumers::from([]), plans(), KINDS, true);
    let source = Arc::new(Source::new("crm", Origin::File(path), KINDS));
    let mut found = Diagnostics::default();
    let (before, began) = (LIVE.load(Ordering::Relaxed), Instant::now());
    source.begin(&rules(), None, &mut found);
    assert_eq!(found.errors(), 0, "{}", found.to_text());
    let each = (LIVE.load(Ordering::Relaxed) - before - names) / COUNT - HASH;
    println!("{each} bytes each over name and hash; read in {} ms", began.elapsed().as_millis());
    assert!(each <= 256, "{each} bytes each");
    let directory =
        Directory::new(vec![(Arc::clone(&source), None)], rules(), |_, misfit| panic!("{misfit:?}"));
    directory.adopt();
    assert_eq!(source.status().consumers as isize, COUNT);
    let roster = source.current().unwrap();
    let one = &roster.consumers()[99_999];
    assert_eq!((&*one.name, one.plan_name()), ("customer-99999", Some("free")));
    assert!(matches!(directory.find::<Nothing, ()>("key_auth", |_| None), Lookup::Unknown));
}

/// No index is of this type.
struct Nothing;

impl weir_gateway::directory::CredentialIndex for Nothing {
    fn read(_: &mut weir_gateway::directory::Intake<'_>) -> Self {
        Self
    }

    fn common(&self, _: &Self) -> Vec<(u32, u32)> {
        Vec::new()
    }
}
