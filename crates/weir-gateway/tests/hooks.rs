//! A gateway with filters of a test's own, asked over sockets: what no filter that comes with Weir would show.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

use std::collections::HashMap;
use std::sync::Mutex;
use weir_gateway::filters::prelude::*;
use weir_gateway::{Gateway, config::Source};
use weir_testkit::{Client, Upstream, eventually};

static PANICS: FilterKind = FilterKind::of::<Panics>("panics");
static COUNTS: FilterKind = FilterKind::of::<Counts>("counts");

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

    fn on_request_body(&self, _: &mut Piece<'_>, _: &mut Cx) -> Flow {
        self.hook("request body");
        Flow::Continue
    }

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) {
        self.hook("response");
    }

    fn on_response_body(&self, _: &mut Piece<'_>, _: &mut Cx) {
        self.hook("response body");
    }

    fn on_end(&self, _: &End, _: &mut Cx) {
        self.hook("end");
    }
}

/// Counts the hooks that ran under a name, and sums what `on_end` told.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// The name.
    name: String,
}

/// What was counted, by name: responses, and the ends with status and cause.
static COUNTED: Mutex<Option<HashMap<String, Counted>>> = Mutex::new(None);

#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Counted {
    responses: u32,
    ends: Vec<(u16, &'static str)>,
}

impl Counts {
    fn counted(&self, count: impl FnOnce(&mut Counted)) {
        let mut all = COUNTED.lock().unwrap();
        count(all.get_or_insert_default().entry(self.name.clone()).or_default());
    }
}

fn counted(name: &str) -> Counted {
    COUNTED.lock().unwrap().get_or_insert_default().get(name).cloned().unwrap_or_default()
}

impl Filter for Counts {
    fn hooks(&self) -> Hooks {
        Hooks::RESPONSE | Hooks::END
    }

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) {
        self.counted(|counted| counted.responses += 1);
    }

    fn on_end(&self, end: &End, _: &mut Cx) {
        self.counted(|counted| counted.ends.push((end.status, end.cause.map_or("", |cause| cause.code))));
    }
}

/// A gateway with these filters in front of an upstream.
fn gateway(upstream: &Upstream, filters: &str) -> Gateway {
    let config = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nworkers: 1\naccess_log: {{ output: \"off\" }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
        upstream.address()
    );
    let builder = Gateway::builder(Source::text("test.yaml", &config));
    builder.filter(&PANICS).filter(&COUNTS).start().expect("the config is good")
}

fn client(gateway: &Gateway) -> Client {
    Client::connect(gateway.address("web").unwrap())
}

fn metric(gateway: &Gateway, series: &str) -> String {
    let (_, text) = gateway.metrics("");
    let line = text.lines().find(|line| line.starts_with(series));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0").to_owned()
}

const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_panic_in_a_filter_ends_one_exchange() {
    for (at, status) in [
        ("request", 500),
        ("wait", 500),
        ("request body", 500),
        ("response", 500),
        ("response body", 200), // its head may have left by then
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
        gateway.stop();
    }
}

#[test]
fn response_filters_run_once() {
    // The head is good, what follows it is not: an answer of our own takes its place.
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
    let gateway = gateway(&upstream, "{ counts: { name: once } }");
    client(&gateway).ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect_status(502);
    eventually("the exchange is over", || counted("once").ends.len() == 1);
    assert_eq!(counted("once"), Counted { responses: 1, ends: vec![(502, "bad_response")] });
    gateway.stop();
}
