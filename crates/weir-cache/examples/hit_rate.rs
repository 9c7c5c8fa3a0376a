//! Prints how many of a million requests hit our store, and how many hit a store of the crate moka of the same size.
//! `bench/run.py --suite hit-rate` shows the result.
//!
//! One line for each store size: its capacity in objects, our hits, moka's hits, requests.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use weir_cache::policy::{Place, Placed, Queues};
use weir_cache::trace::Trace;

/// Shares of the objects that a store has room for: a thousandth, a hundredth, a tenth.
const PARTS: [usize; 3] = [1000, 100, 10];

fn main() -> io::Result<()> {
    let trace = Trace::WHOLE;
    let mut out = io::stdout();
    for part in PARTS {
        let room = trace.objects / part;
        let (ours, theirs) = hits(trace, room);
        writeln!(out, "{room} {ours} {theirs} {}", trace.requests)?;
    }
    Ok(())
}

struct Object {
    number: u64,
    place: Place,
}

impl Placed for Object {
    fn place(&self) -> &Place {
        &self.place
    }
}

/// Hits of a store of ours and of one of moka with room for so many objects.
pub(crate) fn hits(trace: Trace, room: usize) -> (usize, usize) {
    let limit = room as u64;
    let mut store: HashMap<u64, Arc<Object>> = HashMap::new();
    let mut queues = Queues::default();
    let moka = moka::sync::Cache::new(limit);
    let (mut ours, mut theirs) = (0, 0);
    for number in trace.wanted() {
        if let Some(object) = store.get(&number) {
            object.place.used();
            ours += 1;
        } else {
            while queues.bytes() + 1 > limit {
                let Some(out) = queues.throw_out(limit, |object: &Object| object.number) else { break };
                store.remove(&out.number);
            }
            let object = Arc::new(Object { number, place: Place::new(1) });
            queues.enter(&object, number);
            store.insert(number, object);
        }
        match moka.get(&number) {
            Some(()) => theirs += 1,
            None => moka.insert(number, ()),
        }
        moka.run_pending_tasks();
    }
    assert!(store.len() <= room, "a store holds no more than it may");
    (ours, theirs)
}
