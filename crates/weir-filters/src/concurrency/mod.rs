//! `concurrency`: limits concurrent requests, per route or per client, or to what the upstream can handle.
//!
//! This file holds the settings and the hooks. `places` counts and queues requests; `gradient` finds out what an
//! upstream can handle.

mod gradient;
mod places;

use self::gradient::{Bounds, Gradient};
use self::places::{Claim, Places, Slot, State, Waiter};
use super::prelude::*;
use super::shared::by::{By, Counted, IPV6_PREFIX, Who};
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use weir_h1::FieldName;
use weir_wire::time;

pub(super) static KIND: FilterKind = FilterKind::made_from::<ConcurrencySettings>("concurrency")
    .with_causes(&[&CLIENT_CONCURRENCY, &CONCURRENCY_LIMIT, &CONCURRENCY_TIMEOUT]);

static CLIENT_CONCURRENCY: Cause = Cause {
    code: "client_concurrency",
    status: 429,
    meaning: "This client has reached its limit of concurrent requests.",
    change: "the filter concurrency of the route or the consumer's plan",
    limit: Some(weir_filter::error::Limit::Concurrency),
    ..Cause::USUAL
};

static CONCURRENCY_LIMIT: Cause = Cause {
    code: "concurrency_limit",
    status: 503,
    meaning: "The limit of concurrent requests is reached, and the queue is full.",
    change: "`requests` or `queue` of the filter concurrency; with `adaptive`, the upstream is saturated",
    limit: Some(weir_filter::error::Limit::Concurrency),
    ..Cause::USUAL
};

static CONCURRENCY_TIMEOUT: Cause = Cause {
    code: "concurrency_timeout",
    status: 503,
    meaning: "The request waited too long in the queue.",
    change: "`requests`, `queue` or `wait` of the filter concurrency",
    limit: Some(weir_filter::error::Limit::Concurrency),
    ..Cause::USUAL
};

/// Limits concurrent requests. Requests over the limit wait in a queue or are refused.
///
/// A request holds its place until its response is sent, or until its tunnel (WebSocket) ends. A client that resets
/// its connection or stream gives up its place, or its turn in the queue. A client that closes its connection, or
/// half of it, leaves the queue; a place that it already has stays taken while its request continues (`client_gone`
/// of the upstream).
///
/// The limit is exact for the whole process, and each limit's queue is first in, first out. A request that finds no
/// place and a full queue gets 503 `concurrency_limit`, or 429 `client_concurrency` if each client has its own limit.
/// A request that waits longer than `wait` gets 503 `concurrency_timeout`. All three carry `Retry-After: 1`.
///
/// With `adaptive: true` the gateway finds the limit. The limit grows while the upstream is as fast as under light
/// load, and shrinks when more concurrent requests only make it slower. In a test, a simulated upstream that can
/// handle 1,600 requests per second was sent 3,200 for a minute. It gave over 1,520 useful responses per second with
/// a p99 under 80 ms; without the filter, under 100 per second with a p99 over 20 s.
///
/// Latency here is the time to the head of the response. Timeouts count as slow; failed connections and responses of
/// 500 and above do not count. A tunnel frees its place when it opens. Every 10 s under load the limit is briefly
/// halved to measure again. `weir status` shows the limit and the places taken, as do the metrics
/// `weir_concurrency_limit` and `weir_concurrency_taken`. An upgrade hands the limit to the new process.
///
/// A change of the settings resets the count: requests already under way no longer count.
///
/// ```yaml
/// - concurrency: { requests: 100, queue: 50, wait: 1s }
/// - concurrency: { requests: 4, by: consumer }
/// - concurrency: { adaptive: true, queue: 100 }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConcurrencySettings {
    /// Most concurrent requests. Required unless `adaptive`, where it is the upper bound of the limit, 1000 by
    /// default.
    requests: Option<NonZeroU32>,
    /// What has its own limit: each `route`, `consumer`, client `address`, value of a header (`header:x-tenant`), or
    /// value of a text with placeholders (`{consumer} {path}`). In addition to the usual placeholders there are
    /// `{header:NAME}`, `{cookie:NAME}` and `{query:NAME}`. Default `route`. In `filters`, `route` counts each route
    /// separately. Without a consumer, or without the header, the client's address is used; in a text, missing values
    /// are empty.
    #[serde(default = "route")]
    by: By,
    /// IPv6 addresses that share this many leading bits are one client, from 1 to 128. Default 64.
    #[serde(default = "ipv6_prefix")]
    ipv6_prefix: u8,
    /// Requests that may wait for a place, per limit. Default 0: none waits.
    #[serde(default)]
    queue: u32,
    /// Longest wait for a place. Default 1s.
    #[serde(default = "one_second")]
    wait: Duration,
    /// Adapts the limit to what the upstream can handle. Only by route. Default false.
    #[serde(default)]
    adaptive: bool,
    /// Lower bound of an adaptive limit. Default 4.
    minimum: Option<NonZeroU32>,
    /// How many times slower than under light load the upstream may get before an adaptive limit shrinks, from 1.1 to
    /// 10. Default 1.5.
    tolerance: Option<f64>,
}

const MAXIMUM: NonZeroU32 = NonZeroU32::new(1000).expect("it is not zero");
const MINIMUM: NonZeroU32 = NonZeroU32::new(4).expect("it is not zero");
const TOLERANCE: f64 = 1.5;

fn route() -> By {
    By::Route
}

const fn ipv6_prefix() -> u8 {
    IPV6_PREFIX
}

const fn one_second() -> Duration {
    Duration::from_secs(1)
}

struct Concurrency {
    who: Who,
    state: Arc<State>,
    consumers: Vec<Arc<Places>>,
    gradient: Option<Arc<Gradient>>,
    queue: usize,
    wait: std::time::Duration,
    /// The cause for a request that finds neither a place nor room in the queue.
    full: &'static Cause,
    retry_after: FieldName,
}

/// What an exchange holds of the limit.
#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    Slot(#[allow(dead_code, reason = "it is held for its drop")] Slot),
    Waits(Waiter),
}

impl IntoFilter for ConcurrencySettings {
    type Filter = Concurrency;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Concurrency> {
        let before = build.mistakes.len();
        let bounds = self.bounds(build);
        let of_route = self.by == By::Route;
        let full = if of_route { &CONCURRENCY_LIMIT } else { &CLIENT_CONCURRENCY };
        if self.wait.is_zero() && self.queue > 0 {
            let hint = "leave `queue` out to refuse at once, or write 1s";
            build.refuse("wait", "requests in the queue would wait for no time", Some(hint.into()));
        }
        let who = Who::new(self.by, self.ipv6_prefix, build);
        if build.mistakes.len() > before {
            return None;
        }
        let load = |saved: &[u8]| Gradient::load(saved, bounds);
        let gradient = self.adaptive.then(|| {
            let fits = |gradient: &Gradient| gradient.is_within(bounds);
            let make = |before: Option<&Gradient>| {
                before.and_then(|before| load(&before.save())).unwrap_or_else(|| Gradient::new(bounds))
            };
            build.keep_portable_for("adaptive limit", fits, load, make)
        });
        // Starts from the limit that the previous process found. Requests that it still answers count only there.
        let limit = gradient.as_ref().map_or(bounds.maximum, |gradient| gradient.limit());
        let state = build.keep("", || State::new(limit));
        Some(Concurrency {
            who: who?,
            consumers: state.of_consumers(build.consumers),
            state,
            gradient,
            queue: self.queue as usize,
            wait: self.wait.get(),
            full,
            retry_after: FieldName::new("retry-after").expect("a name in the source is a token"),
        })
    }
}

impl ConcurrencySettings {
    fn bounds(&self, build: &mut Build<'_>) -> Bounds {
        let maximum = self.requests.unwrap_or(MAXIMUM).get();
        let minimum = self.minimum.unwrap_or(MINIMUM.min(self.requests.unwrap_or(MINIMUM))).get();
        let tolerance = self.tolerance.unwrap_or(TOLERANCE);
        if self.adaptive {
            if self.by != By::Route {
                let hint = "leave `by` out: the capacity of an upstream does not depend on the caller";
                build.refuse("by", "an adaptive limit is the route's", Some(hint.into()));
            }
            if !build.scope.starts_with("routes.") {
                let hint = "write it under `filters` of the routes it is for";
                build.refuse("adaptive", "an adaptive limit belongs to one route", Some(hint.into()));
            }
            if minimum > maximum {
                let hint = format!("write at most {maximum}");
                build.refuse(
                    "minimum",
                    format!("{minimum} is more than `requests` allows"),
                    Some(hint.into()),
                );
            }
            if !(1.1..=10.0).contains(&tolerance) {
                build.refuse(
                    "tolerance",
                    format!("{tolerance} is not from 1.1 to 10"),
                    Some("write 1.5".into()),
                );
            }
        } else {
            if self.requests.is_none() {
                let hint = "write requests: 100, or adaptive: true";
                build.refuse("requests", "it limits nothing", Some(hint.into()));
            }
            for (key, given) in [("minimum", self.minimum.is_some()), ("tolerance", self.tolerance.is_some())]
            {
                if given {
                    let hint = "write adaptive: true, or leave it out";
                    build.refuse(key, "only an adaptive limit has it", Some(hint.into()));
                }
            }
        }
        Bounds { minimum: minimum as usize, maximum: maximum as usize, tolerance }
    }
}

static ADAPTED: Figure = Figure::gauge(
    "limit",
    "weir_concurrency_limit",
    "Requests that may be under way at once, as adaptive has it now.",
);
static TAKEN: Figure =
    Figure::gauge("taken", "weir_concurrency_taken", "Requests under way that count against the limit.");

impl Filter for Concurrency {
    fn hooks(&self) -> Hooks {
        match self.gradient {
            Some(_) => Hooks::REQUEST | Hooks::ATTEMPT | Hooks::RESPONSE,
            None => Hooks::REQUEST,
        }
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards { request: self.who.guards(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let held = match self.claim(head, cx).take() {
            Ok(slot) => Held::Slot(slot),
            Err(claim) => match claim.wait(self.queue) {
                Some(waiter) => Held::Waits(waiter),
                None => return self.refuse(self.full),
            },
        };
        let waits = matches!(held, Held::Waits(_));
        // Dropped with the exchange, which frees its place.
        *cx.state() = held;
        if waits { Flow::Wait } else { Flow::Continue }
    }

    fn wait<'a>(&'a self, _: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let held = cx.state::<Held>();
            let Held::Waits(waiter) = std::mem::take(held) else { return Flow::Continue };
            match time::timeout(self.wait, waiter.place()).await {
                Ok(Some(slot)) => {
                    *held = Held::Slot(slot);
                    Flow::Continue
                }
                Ok(None) => Flow::refuse(&weir_filter::error::INTERNAL), // the semaphore is never closed
                Err(_) => self.refuse(&CONCURRENCY_TIMEOUT),
            }
        })
    }

    fn is_queue(&self) -> bool {
        true
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, _: &mut Cx) {
        let slow = end.cause.is_some_and(|cause| cause.code.ends_with("_timeout"));
        if let Some(gradient) = &self.gradient
            && ((100..500).contains(&end.status) || slow)
        {
            static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
            gradient.sample(end.took, BEGAN.elapsed(), &self.state.all);
        }
    }

    fn readings(&self) -> Vec<Reading> {
        let reading = |figure, value: usize| Reading::one(figure, value as u64);
        match self.gradient {
            Some(_) => {
                vec![reading(&ADAPTED, self.state.all.limit()), reading(&TAKEN, self.state.all.taken())]
            }
            None => Vec::new(),
        }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if head.status() == 101 {
            *cx.state() = Held::Nothing; // latency does not reflect the load of an open tunnel
        }
        Flow::Continue
    }
}

impl Concurrency {
    fn claim(&self, head: &RequestHead, cx: &Cx) -> Claim {
        let counted = match self.who.of(head, cx) {
            Counted::Consumer(index) => match self.consumers.get(index) {
                Some(places) => return Claim::to(Arc::clone(places)),
                None => self.who.address(cx.client),
            },
            other => other,
        };
        match counted {
            Counted::Key(key) => self.state.keyed().claim(&key),
            Counted::All | Counted::Consumer(_) => Claim::to(Arc::clone(&self.state.all)),
        }
    }

    fn refuse(&self, cause: &'static Cause) -> Flow {
        Flow::refuse_with(cause, vec![(self.retry_after.clone(), b"1".to_vec())])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Running, Stand};
    use super::*;
    use serde_json::{Value, json};

    fn stand(settings: Value) -> Stand {
        Stand::new(&KIND, settings)
    }

    async fn passes(running: &Running, request: &str) -> super::super::testing::Exchange {
        let mut exchange = running.request(request).await;
        exchange.expect_continue();
        exchange
    }

    #[tokio::test]
    async fn a_place_is_held_for_the_whole_exchange() {
        let running = stand(json!({ "requests": 2 })).build();
        let (first, _second) = (passes(&running, "GET /").await, passes(&running, "GET /").await);
        let mut third = running.request("GET /").await;
        third.expect_status(503).expect_cause(&CONCURRENCY_LIMIT).expect_header("retry-after", "1");
        drop(third);
        drop(first);
        passes(&running, "GET /").await;
    }

    #[tokio::test]
    async fn each_client_has_places_of_its_own() {
        for (by, other) in
            [("address", "GET /"), ("header:x-tenant", "GET /\nx-tenant: b"), ("{path}", "GET /b")]
        {
            let running = stand(json!({ "requests": 1, "by": by })).build();
            let first = passes(&running, "GET /\nx-tenant: a").await;
            let mut refused = running.request("GET /\nx-tenant: a").await;
            refused.expect_status(429).expect_cause(&CLIENT_CONCURRENCY);
            let elsewhere = running.from("192.0.2.77");
            passes(if by == "address" { &elsewhere } else { &running }, other).await;
            drop((first, refused));
            passes(&running, "GET /\nx-tenant: a").await;
        }
    }

    #[tokio::test]
    async fn consumers_keep_their_places_across_a_reload() {
        let consumer = |name: &str| Consumer { name: name.to_owned(), ..Consumer::default() };
        let mut stand = stand(json!({ "requests": 1, "by": "consumer" })).consumer(consumer("a")).named();
        let held = passes(&stand.build(), "GET /").await;
        stand = stand.consumers(vec![consumer("b"), consumer("a")]).named();
        let running = stand.build();
        running.request("GET /").await.expect_cause(&CLIENT_CONCURRENCY);
        drop(held);
        passes(&running, "GET /").await;
    }

    #[tokio::test]
    async fn who_waits_in_vain_is_told_so() {
        let running = stand(json!({ "requests": 1, "queue": 1, "wait": "5ms" })).build();
        let first = passes(&running, "GET /").await;
        let began = Instant::now();
        let mut waited = running.request("GET /").await;
        waited.expect_status(503).expect_cause(&CONCURRENCY_TIMEOUT).expect_header("retry-after", "1");
        assert!(began.elapsed() >= std::time::Duration::from_millis(5));
        drop(first);
        passes(&running, "GET /").await;
    }

    #[tokio::test]
    async fn who_waits_gets_the_next_place() {
        let running = stand(json!({ "requests": 1, "queue": 1, "wait": "1h" })).build();
        let first = passes(&running, "GET /").await;
        let (second, ()) = tokio::join!(running.request("GET /"), async {
            tokio::task::yield_now().await;
            running.request("GET /").await.expect_cause(&CONCURRENCY_LIMIT);
            drop(first);
        });
        drop(second);
        passes(&running, "GET /").await;
    }

    #[tokio::test]
    async fn who_leaves_the_queue_makes_room_in_it() {
        let running = stand(json!({ "requests": 1, "queue": 1 })).build();
        let first = passes(&running, "GET /").await;
        for _ in 0..3 {
            let waiting = tokio::time::timeout(std::time::Duration::ZERO, running.request("GET /"));
            assert!(waiting.await.is_err(), "it waits, and is not refused");
        }
        drop(first);
        passes(&running, "GET /").await;
    }

    #[tokio::test]
    async fn an_adaptive_limit_learns_from_answers_and_lets_tunnels_go() {
        let running = stand(json!({ "adaptive": true, "requests": 1 })).build();
        let mut tunnel = passes(&running, "GET /").await;
        running.request("GET /").await.expect_cause(&CONCURRENCY_LIMIT);
        tunnel.response("101");
        let mut other = passes(&running, "GET /").await;
        other.response("200");
        running.request("GET /").await.expect_cause(&CONCURRENCY_LIMIT);
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({}), "adaptive: true"),
            (json!({ "requests": 0 }), "above zero"),
            (json!({ "requests": 1, "by": "user" }), "expected address"),
            (json!({ "requests": 1, "by": "{usr}" }), "not a placeholder"),
            (json!({ "requests": 1, "by": "address", "ipv6_prefix": 129 }), "write 64"),
            (json!({ "requests": 1, "queue": 5, "wait": "0s" }), "write 1s"),
            (json!({ "requests": 1, "tolerance": 2.0 }), "adaptive"),
            (json!({ "adaptive": true, "by": "address" }), "leave `by` out"),
            (json!({ "adaptive": true, "requests": 5, "minimum": 6 }), "at most 5"),
            (json!({ "adaptive": true, "tolerance": 1.0 }), "write 1.5"),
        ] {
            let mistakes = stand(settings.clone()).mistakes();
            assert!(mistakes[0].contains(expected), "{settings}: {mistakes:#?}");
        }
        let everywhere = stand(json!({ "adaptive": true })).scope("filters").mistakes();
        assert!(everywhere[0].contains("one route"), "{everywhere:#?}");
    }
}
