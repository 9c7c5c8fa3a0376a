//! A filter that panics ends its exchange, and nothing else.

use super::{OK, POST, client, counted, gateway, metric};
use weir_gateway::autopsy::Question;
use weir_gateway::prelude::*;
use weir_testkit::{Upstream, eventually};

pub(super) static PANICS: FilterKind = FilterKind::of::<Panics>("panics");

/// Panics in one of its hooks.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Panics {
    /// The hook.
    at: String,
}

impl Panics {
    fn hook(&self, name: &str) {
        assert!(self.at != name, "deliberately, at {name}");
    }
}

impl Filter for Panics {
    fn on_request(&self, _: &mut RequestHead, _: &mut Cx) -> Flow {
        self.hook("request");
        Flow::Wait
    }

    fn wait<'a>(&'a self, _: &'a mut RequestHead, _: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async {
            self.hook("wait");
            Flow::Continue
        })
    }

    fn on_request_body(&self, _: &mut Piece<'_>, _: &mut Cx) -> HookResult {
        self.hook("request body");
        Ok(())
    }

    fn on_attempt(&self, _: &mut RequestHead, _: &Attempt<'_>, _: &mut Cx) -> HookResult {
        self.hook("attempt");
        Ok(())
    }

    fn on_attempt_end(&self, _: &AttemptEnd<'_>, _: &mut Cx) {
        self.hook("attempt end");
    }

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) -> Flow {
        self.hook("response");
        Flow::Wait
    }

    fn wait_response<'a>(&'a self, _: &'a mut ResponseHead, _: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async {
            self.hook("wait response");
            Flow::Continue
        })
    }

    fn on_response_body(&self, _: &mut Piece<'_>, _: &mut Cx) -> HookResult {
        self.hook("response body");
        Ok(())
    }

    fn on_end(&self, _: &End, _: &mut Cx) {
        self.hook("end");
    }
}

#[test]
fn a_panic_in_a_filter_ends_one_exchange() {
    for (at, status) in [
        ("request", 500),
        ("wait", 500),
        ("request body", 500),
        ("attempt", 500),
        ("attempt end", 500),
        ("response", 500),
        ("wait response", 500),
        ("response body", 200), // its head may have been sent by then
        ("end", 200),
    ] {
        let upstream = Upstream::fixed(OK);
        let filters = format!("{{ counts: {{ name: \"{at}\" }} }}, {{ panics: {{ at: \"{at}\" }} }}");
        let gateway = gateway(&upstream, &filters);
        for round in 1..=2 {
            let mut client = client(&gateway);
            client.send(POST);
            match (status, at) {
                (500, _) => {
                    client.read_response().expect_status(500).expect_header("connection", "close");
                }
                (_, "end") => {
                    client.read_response().expect_status(200);
                }
                _ => {
                    let text = client.read_to_close();
                    assert!(!text.ends_with(b"0\r\n\r\n"), "{at}: the response looks whole");
                }
            }
            eventually("the exchange is over", || counted(at).ends.len() == round);
        }
        let cause = if at == "end" { "" } else { "internal" };
        assert!(counted(at).ends.iter().all(|(_, told)| *told == cause), "{at}: {:?}", counted(at));
        assert_eq!(metric(&gateway, "weir_requests_active{"), "0", "{at}");
        let failed = metric(&gateway, "weir_causes_total{cause=\"internal\"}");
        assert_eq!(failed, if at == "end" { "0" } else { "2" }, "{at}");
        if at != "end" {
            let question = Question { cause: Some("internal".to_owned()), most: 1, ..Question::default() };
            let told = gateway.why(question).found;
            assert!(told[0].sentence.contains("failed in the filter `panics`"), "{at}: {told:#?}");
        }
        gateway.stop();
    }
}

/// If a panic lost a slot for good, the second request would be refused.
#[test]
fn a_panic_gives_a_place_back() {
    for at in ["request", "wait", "attempt", "response", "end"] {
        let upstream = Upstream::fixed(OK);
        let filters = format!("{{ concurrency: {{ requests: 1 }} }}, {{ panics: {{ at: \"{at}\" }} }}");
        let gateway = gateway(&upstream, &filters);
        for _ in 0..2 {
            let status = if at == "end" { 200 } else { 500 };
            client(&gateway).ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect_status(status);
            eventually("the exchange is over", || metric(&gateway, "weir_requests_active{") == "0");
        }
        gateway.stop();
    }
}
