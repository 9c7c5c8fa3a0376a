//! `fault`: delays or fails some requests, to test how their callers handle it.

use super::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration as Time;
use weir_filter::config::de;
use weir_filter::config::schema::Network;
use weir_h1::FieldName;
use weir_wire::time;

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<FaultSettings>("fault").with_causes(&[abort(503), &FAULT_MALFORMED]);

static FAULT_MALFORMED: Cause = Cause {
    code: "fault_malformed",
    status: 400,
    meaning: "The request asks for a fault, but its syntax is wrong.",
    change: "the client must send delay=2s, status=503, or both separated by a comma: see `ask` of the filter fault",
    ..Cause::USUAL
};

/// The statuses that a request can be made to fail with.
const STATUSES: std::ops::Range<u16> = 400..600;

/// One cause for each status; all of them look the same in the log and the metrics.
static ABORTS: [Cause; 200] = {
    const ABORT: Cause = Cause {
        code: "fault_abort",
        status: 503,
        meaning: "The filter fault made the request fail on purpose.",
        change: "`share` and `status` of the filter fault",
        nature: Nature::Failure,
        ..Cause::USUAL
    };
    let mut causes = [ABORT; 200];
    let mut at = 0;
    while at < causes.len() {
        causes[at].status = STATUSES.start + at as u16;
        at += 1;
    }
    causes
};

const fn abort(status: u16) -> &'static Cause {
    &ABORTS[(status - STATUSES.start) as usize]
}

/// Delays or fails some requests, to test how their callers handle it.
///
/// A share of the requests waits for `delay`, fails with `status`, or does both in this order; the others pass
/// untouched. The wait ends early if the client leaves or a `timeout` filter before this one expires. A gRPC call
/// fails with the `grpc-status` that corresponds to the status. Log and metrics show such a failure as `fault_abort`.
/// `weir status` counts `delayed` and `aborted` requests, and so do the metrics `weir_fault_delayed_total` and
/// `weir_fault_aborted_total`.
///
/// With `ask`, a client may request a fault for its own request in a header: `x-weir-fault: delay=2s`, `status=503`,
/// or `delay=100ms, status=429`. This replaces the fault by share, and the header is not forwarded. Without `ask`, no
/// client can request a fault.
///
/// ```yaml
/// - fault: { share: 5%, delay: 100ms..2s }
/// - fault: { share: 1%, status: 503 }
/// - fault: { share: 0%, ask: x-weir-fault, ask_from: [ 10.0.0.0/8 ] }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct FaultSettings {
    /// Share of requests that get the fault. Default `100%`.
    share: Percent,
    /// How long these requests wait: a time, or a random time in a range such as `100ms..2s`. Default: no wait.
    delay: Option<Delay>,
    /// Status that these requests fail with, 400 to 599, without reaching the upstream. Default: they do not fail.
    #[serde(deserialize_with = "failure")]
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Header in which a client may request a fault for its own request. Default none: clients cannot.
    ask: Option<HeaderName>,
    /// Networks whose clients may use `ask`. From others the header is ignored, and not forwarded. Default: everybody
    /// may.
    ask_from: Vec<Network>,
    /// Longest delay that a client may request; longer ones are shortened to this. Default `10s`.
    ask_delay: Duration,
}

/// Reads an error status.
fn failure<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    const EXPECTED: &str = "a status of a failure; expected 400 to 599";
    let text = de::text(deserializer, EXPECTED)?;
    let status = text.parse().ok().filter(|status| STATUSES.contains(status));
    status.map(Some).ok_or_else(|| de::refuse(EXPECTED, None))
}

impl Default for FaultSettings {
    fn default() -> Self {
        Self {
            share: Percent::new(100),
            delay: None,
            status: None,
            ask: None,
            ask_from: Vec::new(),
            ask_delay: Duration::from_secs(10),
        }
    }
}

struct Fault {
    share: Percent,
    usual: Planned,
    ask: Option<Ask>,
    counts: Arc<Counts>,
}

struct Ask {
    name: FieldName,
    from: Vec<Network>,
    longest: Time,
}

/// The fault for the requests of the share.
struct Planned {
    delay: Option<Delay>,
    cause: Option<&'static Cause>,
}

/// The fault for one request.
#[derive(Debug, Default, PartialEq)]
struct Due {
    delay: Option<Time>,
    cause: Option<&'static Cause>,
}

#[derive(Default)]
struct Counts {
    delayed: AtomicU64,
    aborted: AtomicU64,
}

impl IntoFilter for FaultSettings {
    type Filter = Fault;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Fault> {
        let before = build.mistakes.len();
        let cause = self.status.map(abort);
        if self.delay.is_none() && self.status.is_none() && self.ask.is_none() {
            let hint = "write delay: 2s, status: 503, or ask: x-weir-fault";
            build.refuse("", "makes nothing late and nothing fail", Some(hint.into()));
        }
        if self.ask.is_none() && !self.ask_from.is_empty() {
            build.refuse(
                "ask_from",
                "has no effect, because `ask` is off",
                Some("write ask: x-weir-fault".into()),
            );
        }
        if let Some(name) = &self.ask {
            allow_name(build, "ask", name);
        }
        if self.ask_delay.get() > Delay::LONGEST {
            build.refuse("ask_delay", "is longer than 10m, the longest delay", Some("write 10m".into()));
        }
        let (from, longest) = (self.ask_from, self.ask_delay.get());
        (build.mistakes.len() == before).then(|| Fault {
            share: self.share,
            usual: Planned { delay: self.delay, cause },
            ask: self.ask.map(|name| Ask { name: (*name).clone(), from, longest }),
            counts: build.keep("counts", Counts::default),
        })
    }
}

impl Ask {
    /// Reads the fault that the client requests, if it may, and removes the header in any case.
    fn take(&self, head: &mut RequestHead, cx: &Cx) -> Result<Option<Due>, &'static Cause> {
        let client = cx.client.to_canonical();
        let may = self.from.is_empty() || self.from.iter().any(|network| network.0.contains(&client));
        let asked = head.headers.get(&self.name).filter(|_| may).map(|text| self.parse(text));
        if asked.is_some() || !may {
            head.headers.remove(&self.name);
        }
        match asked {
            None => Ok(None),
            Some(None) => Err(&FAULT_MALFORMED),
            Some(due) => Ok(due),
        }
    }

    fn parse(&self, text: &[u8]) -> Option<Due> {
        let mut due = Due::default();
        for part in std::str::from_utf8(text).ok()?.split(',') {
            match part.trim().split_once('=')? {
                ("delay", time) if due.delay.is_none() => {
                    due.delay = Some(time.parse::<Duration>().ok()?.get().min(self.longest));
                }
                ("status", status) if due.cause.is_none() => {
                    due.cause = Some(abort(status.parse().ok().filter(|status| STATUSES.contains(status))?));
                }
                _ => return None,
            }
        }
        Some(due)
    }
}

static DELAYED: Figure = Figure::counter("delayed", "weir_fault_delayed", "Requests that were delayed.");
static ABORTED: Figure =
    Figure::counter("aborted", "weir_fault_aborted", "Requests that were refused or cut.");

impl Filter for Fault {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards { request: self.ask.iter().map(|ask| ask.name.clone()).collect(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let due = match self.ask.as_ref().map_or(Ok(None), |ask| ask.take(head, cx)) {
            Err(cause) => return Flow::refuse(cause),
            Ok(Some(due)) => due,
            Ok(None) if self.share.takes(cx.random()) => {
                let delay = self.usual.delay.map(|delay| delay.draw(cx.random()));
                Due { delay, cause: self.usual.cause }
            }
            Ok(None) => return Flow::Continue,
        };
        match due {
            Due { delay: Some(delay), .. } if !delay.is_zero() => {
                self.counts.delayed.fetch_add(1, Relaxed);
                *cx.state::<Due>() = due;
                Flow::Wait
            }
            Due { cause, .. } => self.end(cause),
        }
    }

    fn wait<'a>(&'a self, _: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        let Due { delay, cause } = std::mem::take(cx.state::<Due>());
        Box::pin(async move {
            time::sleep(delay.unwrap_or_default()).await;
            self.end(cause)
        })
    }

    fn readings(&self) -> Vec<Reading> {
        let reading = |figure, count: &AtomicU64| Reading::one(figure, count.load(Relaxed));
        vec![reading(&DELAYED, &self.counts.delayed), reading(&ABORTED, &self.counts.aborted)]
    }
}

impl Fault {
    fn end(&self, cause: Option<&'static Cause>) -> Flow {
        let Some(cause) = cause else { return Flow::Continue };
        self.counts.aborted.fetch_add(1, Relaxed);
        Flow::refuse(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::{Value, json};
    use std::time::Instant;

    #[tokio::test]
    async fn late_and_failing() {
        let began = Instant::now();
        run(&KIND, json!({ "delay": "20ms" }), "GET /").await.expect_continue();
        run(&KIND, json!({ "delay": "20ms", "status": 429 }), "GET /")
            .await
            .expect_cause(abort(429))
            .expect_status(429);
        assert!(began.elapsed() >= Time::from_millis(40));
        run(&KIND, json!({ "status": 599, "share": "0%" }), "GET /").await.expect_continue();
    }

    #[tokio::test]
    async fn a_client_asks_where_it_may() {
        let settings =
            json!({ "share": "0%", "ask": "x-fault", "ask_from": ["192.0.2.0/24"], "ask_delay": "20ms" });
        let running = Stand::new(&KIND, settings).build();
        let mut exchange = running.request("GET /\nX-Fault: status=418").await;
        exchange.expect_cause(abort(418));
        let mut exchange = running.request("GET /\nX-Fault: delay=1h, status=500").await;
        exchange.expect_status(500); // after 20 ms, the longest delay that it may request
        let mut exchange = running.request("GET /\nX-Fault: delay=5ms\nx_fault: status=500").await;
        exchange.expect_continue().expect_no_header("x-fault").expect_no_header("x_fault");
        for text in [
            "",
            "delay",
            "delay=1",
            "status=200",
            "status=600",
            "status=500,",
            "status=500,status=501",
            "x=1",
        ] {
            let mut exchange = running.request(&format!("GET /\nX-Fault: {text}")).await;
            exchange.expect_cause(&FAULT_MALFORMED);
        }
        let mut exchange = running.from("198.51.100.1").request("GET /\nX-Fault: status=500").await;
        exchange.expect_continue().expect_no_header("x-fault");
        let readings = running.readings().into_iter().map(|r| (r.figure.what, r.value)).collect::<Vec<_>>();
        assert_eq!(readings, [("delayed", 2), ("aborted", 2)]);
    }

    #[test]
    fn mistakes() {
        let long = json!({ "ask": "x-fault", "ask_delay": "1h" });
        let told: [(Value, &str); 10] = [
            (json!({}), "makes nothing late"),
            (json!({ "status": 200 }), "400 to 599"),
            (json!({ "status": 70000 }), "400 to 599"),
            (json!({ "status": "abc" }), "400 to 599"),
            (json!({ "delay": "2" }), "add a unit"),
            (json!({ "delay": "20m" }), "at most 10m"),
            (json!({ "share": "5", "status": 500 }), "write 5%"),
            (json!({ "ask": "content-length" }), "gateway alone"),
            (json!({ "status": 500, "ask_from": ["10.0.0.0/8"] }), "`ask` is off"),
            (long, "longest delay"),
        ];
        for (settings, expected) in told {
            let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
            assert!(mistakes.iter().any(|m| m.contains(expected)), "{settings}: {mistakes:#?}");
        }
    }
}
