//! What filters keep on a core, and a core that a filter blocks.

use super::{OK, client, gateway};
use std::sync::Mutex;
use weir_gateway::prelude::*;
use weir_testkit::{Upstream, eventually};

/// Counts requests per core, and in the exchange.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TalliesSettings {}

pub(super) static TALLIES: FilterKind = FilterKind::made_from::<TalliesSettings>("tallies");

impl IntoFilter for TalliesSettings {
    type Filter = Tallies;

    fn into_filter(self, _: &mut Build<'_>) -> Option<Tallies> {
        Some(Tallies { seen: PerCore::new() })
    }
}

struct Tallies {
    seen: PerCore<std::cell::Cell<u32>>,
}

impl Filter for Tallies {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let seen = self.seen.get(cx.core());
        let count = seen.get().to_string();
        head.headers.insert(&HeaderName::fixed("x-count"), count.as_bytes()).unwrap();
        let spawned = cx.core().spawn(async move { seen.set(seen.get() + 1) });
        assert!(spawned, "one task is not a crowd");
        Flow::Continue
    }
}

pub(super) static BLOCKS: FilterKind = FilterKind::of::<Blocks>("blocks");

/// Blocks its core until the test releases it.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Blocks {}

static BLOCKED: Mutex<()> = Mutex::new(());

impl Filter for Blocks {
    fn on_request(&self, _: &mut RequestHead, _: &mut Cx) -> Flow {
        drop(BLOCKED.lock());
        Flow::Continue
    }
}

#[test]
fn a_core_keeps_state_and_runs_tasks() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "{ tallies: {} }");
    let mut client = client(&gateway);
    client.get("/").expect_status(200);
    eventually("the task ran", || {
        client.get("/").expect_status(200);
        let count = upstream.requests().last().and_then(|r| r.head.header("x-count").map(str::to_owned));
        count.is_some_and(|count| count != "0")
    });
    gateway.stop();
}

#[test]
fn a_core_that_is_stuck_does_not_turn() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "blocks: {}");
    let (long, short) = (std::time::Duration::from_secs(20), std::time::Duration::from_millis(50));
    assert!(gateway.turns(long));
    let held = BLOCKED.lock().unwrap();
    let mut client = client(&gateway);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually("the core is stuck", || !gateway.turns(short));
    drop(held);
    client.read_response().expect_status(200);
    assert!(gateway.turns(long));
    gateway.stop();
    assert!(!gateway.turns(short), "one that has ended does not either");
}
