//! A gateway with the test's own filters, over sockets: cases that no filter shipped with Weir covers. Each module has
//! its filters; `gateway` registers all of them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

mod attempts;
mod bodies;
mod cores;
mod panics;
mod responses;

use attempts::NUMBERS;
use bodies::{HOLDS, LISTENS, READS, SHOUTS};
use cores::{BLOCKS, TALLIES};
use panics::PANICS;
use responses::ANSWERS;
use std::collections::HashMap;
use std::sync::Mutex;
use weir_gateway::prelude::*;
use weir_gateway::{Builder, Gateway, config::Source};
use weir_testkit::{Client, Upstream, eventually};

static COUNTS: FilterKind = FilterKind::of::<Counts>("counts");

/// Counts the hooks that ran under a name, and sums the arguments of `on_end`.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// The name.
    name: String,
}

/// Counts by name: responses, and the ends with status and cause.
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

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) -> Flow {
        self.counted(|counted| counted.responses += 1);
        Flow::Continue
    }

    fn on_end(&self, end: &End, _: &mut Cx) {
        self.counted(|counted| counted.ends.push((end.status, end.cause.map_or("", |cause| cause.code))));
    }
}

/// A gateway with these filters in front of an upstream.
fn gateway(upstream: &Upstream, filters: &str) -> Gateway {
    gateway_to(upstream.address(), filters)
}

fn gateway_to(address: std::net::SocketAddr, filters: &str) -> Gateway {
    let config = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nworkers: 1\naccess_log: {{ output: \"off\" }}\n\
         upstreams: {{ up: {{ endpoints: [{address}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
    );
    let builder = weir_gateway::builder(Source::text("test.yaml", &config));
    let kinds = [&PANICS, &COUNTS, &SHOUTS, &LISTENS, &READS, &HOLDS, &ANSWERS, &NUMBERS, &TALLIES, &BLOCKS];
    kinds.into_iter().fold(builder, Builder::filter).start().expect("the config is good")
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
fn response_filters_run_once() {
    // The head is valid, its body is not: an error answer replaces it.
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
    let gateway = gateway(&upstream, "{ counts: { name: once } }");
    client(&gateway).ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect_status(502);
    eventually("the exchange is over", || counted("once").ends.len() == 1);
    assert_eq!(counted("once"), Counted { responses: 1, ends: vec![(502, "bad_response")] });
    gateway.stop();
}
