//! What the check of an order of 1 KiB costs: `cargo bench -p weir-schema` tells microseconds.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use weir_schema::Schema;
use weir_schema::json::{Limits, parse};

const LIMITS: Limits = Limits { depth: 64, values: 1 << 20 };
const ROUNDS: u32 = 20_000;

fn main() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/tools");
    let order = std::fs::read(tools.join("order.json")).expect("the file is in the repository");
    let mut read = |path: &Path| std::fs::read(path).map_err(|e| e.to_string());
    let schema = Schema::load(&tools.join("order.schema.json"), &mut read).expect("the schema is sound");
    let wrong = String::from_utf8_lossy(&order).replace("ABC-0007", "abc").into_bytes();
    assert!(schema.check(&parse(&order, LIMITS).expect("it is JSON")).is_ok());
    time("parsed", || drop(black_box(parse(black_box(&order), LIMITS))));
    time("parsed and checked", || {
        let order = parse(black_box(&order), LIMITS).expect("it is JSON");
        assert!(black_box(schema.check(&order)).is_ok());
    });
    time("refused, with its fault named", || {
        let wrong = parse(black_box(&wrong), LIMITS).expect("it is JSON");
        assert_eq!(black_box(schema.check(&wrong)).map_err(|faults| faults.len()), Err(1));
    });
}

/// The best of five runs.
fn time(what: &str, run: impl Fn()) {
    let best = (0..5).map(|_| {
        let began = Instant::now();
        (0..ROUNDS).for_each(|_| run());
        began.elapsed() / ROUNDS
    });
    println!("{what}: {:.1} µs", best.min().unwrap_or_default().as_secs_f64() * 1e6);
}
