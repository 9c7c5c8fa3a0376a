//! `timeout`: shorter time limits for some requests than their route or upstream has.

use super::prelude::*;
use weir_filter::error::{EXCHANGE_TIMEOUT, RESPONSE_TIMEOUT};

pub(super) static KIND: FilterKind = FilterKind::made_from::<TimeoutSettings>("timeout")
    .with_causes(&[&EXCHANGE_TIMEOUT, &RESPONSE_TIMEOUT])
    .without_access()
    .judged_by_head();

/// Limits how long an exchange may take; of several limits the shortest applies.
///
/// Routes and upstreams have their own `timeouts`. Use this filter for shorter limits for the consumers of a plan, or
/// for one limit for all routes (under `filters`). At the limit the client gets 504, or a response that had begun is
/// cut off. The limit also ends the wait of a later filter, for example in the queue of `concurrency`. A gRPC
/// upstream gets the remaining time in `grpc-timeout`. Tunnels (WebSocket) end by `timeouts.tunnel` only.
///
/// ```yaml
/// - timeout: { exchange: 2s }
/// - timeout: { response: 500ms, exchange: 1m }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeoutSettings {
    /// From the request's first byte to the end of the response. Default: only the limits of route and upstream. Also
    /// cuts off long downloads and streams (SSE).
    #[serde(default)]
    exchange: Option<Duration>,
    /// From the end of the request to the head of the response, for each attempt. Default: only the limits of route
    /// and upstream.
    #[serde(default)]
    response: Option<Duration>,
}

struct Timeout {
    exchange: Option<std::time::Duration>,
    response: Option<std::time::Duration>,
}

impl IntoFilter for TimeoutSettings {
    type Filter = Timeout;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Timeout> {
        let before = build.mistakes.len();
        for (key, limit) in [("exchange", self.exchange), ("response", self.response)] {
            if limit.is_some_and(Duration::is_zero) {
                let hint = "leave it out, or write a time such as 2s";
                build.refuse(key, "a limit of no time lets nothing pass", Some(hint.into()));
            }
        }
        if self.exchange.is_none() && self.response.is_none() {
            build.refuse("", "it limits nothing", Some("write exchange: 2s, or response: 500ms".into()));
        }
        (build.mistakes.len() == before).then(|| Timeout {
            exchange: self.exchange.map(Duration::get),
            response: self.response.map(Duration::get),
        })
    }
}

impl Filter for Timeout {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn on_request(&self, _: &mut RequestHead, cx: &mut Cx) -> Flow {
        if let Some(limit) = self.exchange {
            cx.limit_exchange(limit);
        }
        if let Some(limit) = self.response {
            cx.limit_response(limit);
        }
        Flow::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;
    use std::time::Duration as Time;

    #[tokio::test]
    async fn the_shortest_limit_counts() {
        let settings = json!({ "exchange": "2s", "response": "500ms" });
        let mut exchange = run(&KIND, settings, "GET /").await;
        exchange.expect_continue();
        exchange.cx.limit_exchange(Time::from_secs(9));
        exchange.cx.limit_response(Time::from_millis(1));
        assert_eq!(exchange.cx.limits().exchange, Some(Time::from_secs(2)));
        assert_eq!(exchange.cx.limits().response, Some(Time::from_millis(1)));
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({}), "response: 500ms"),
            (json!({ "exchange": "0s" }), "leave it out"),
            (json!({ "exchange": "2" }), "duration"),
            (json!({ "exchnage": "2s" }), "unknown key"),
        ] {
            let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
            assert!(mistakes[0].contains(expected), "{settings}: {mistakes:#?}");
        }
    }
}
