//! Filters that see each attempt.

use super::{OK, client, gateway, gateway_to};
use std::sync::Mutex;
use weir_gateway::prelude::*;
use weir_testkit::{Upstream, refusing_address};

/// Writes the attempt's number to the request, and records how each attempt ended.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Numbers {}

pub(super) static NUMBERS: FilterKind = FilterKind::of::<Numbers>("numbers");
static NUMBERED: Mutex<Vec<(u32, u16, &str)>> = Mutex::new(Vec::new());

impl Filter for Numbers {
    fn hooks(&self) -> Hooks {
        Hooks::ATTEMPT
    }

    fn on_attempt(&self, head: &mut RequestHead, attempt: &Attempt<'_>, _: &mut Cx) -> HookResult {
        let number = format!("{} {}", attempt.upstream, attempt.number);
        head.headers.insert(&HeaderName::fixed("x-attempt"), number.as_bytes()).unwrap();
        Ok(())
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, _: &mut Cx) {
        let ended = (end.attempt.number, end.status, end.cause.map_or("", |cause| cause.code));
        NUMBERED.lock().unwrap().push(ended);
    }
}

#[test]
fn each_attempt_is_shown() {
    let upstream = Upstream::fixed(OK);
    let good = gateway(&upstream, "{ numbers: {} }");
    client(&good).get("/").expect_status(200);
    assert_eq!(upstream.take_request().head.all("x-attempt"), ["up 1"]);
    good.stop();
    let (_held, nobody) = refusing_address();
    let bad = gateway_to(nobody, "{ numbers: {} }");
    client(&bad).get("/").expect_status(502);
    bad.stop();
    assert_eq!(*NUMBERED.lock().unwrap(), [(1, 200, ""), (1, 0, "connect_refused")]);
}
