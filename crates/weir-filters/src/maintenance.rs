//! `maintenance`: answers 503 with a page during maintenance, except for clients that are allowed through.

use super::prelude::*;
use super::shared::page::{Pages, PagesSettings};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::sync::Arc;
use weir_filter::config::schema::{Network, Pairs};
use weir_filter::grpc;
use weir_filter::template::{Values, without_port};
use weir_h1::FieldName;

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<MaintenanceSettings>("maintenance").with_causes(&[&MAINTENANCE]);

static MAINTENANCE: Cause = Cause {
    code: "maintenance",
    status: 503,
    meaning: "The service is under maintenance.",
    change: "`on` of the filter maintenance, or `weir maintenance off` if it has a `switch`; `allow` and `allow_headers` let some clients pass",
    ..Cause::USUAL
};

/// Answers 503 with a page and `Retry-After` during maintenance; allowed clients still get through.
///
/// On a route the filter applies to that route; under `filters`, to all routes and to requests that match no route;
/// with `hosts`, to those hosts. A change of `on` in the config, or of a variable such as `${MAINTENANCE:-false}` in
/// its place, takes effect after the reload's half-second delay. With `switch: shop` an operator turns it on and off
/// without changing the config: `weir maintenance on shop --for 30m`. Connections and requests already under way are
/// not affected.
///
/// Clients in a network of `allow`, or that send a field of `allow_headers` with its value, pass. gRPC calls get
/// `UNAVAILABLE`. Without `page` the client gets the gateway's own response, or the page of the filter `errors` for
/// the cause `maintenance`.
///
/// ```yaml
/// - maintenance: { on: true, page: { body: "<h1>Back soon</h1>" }, retry_after: 30m, allow: [ 10.0.0.0/8 ] }
/// - maintenance: { on: false, hosts: [ shop.example.com ], allow_headers: { x-preview: "${PREVIEW}" } }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct MaintenanceSettings {
    /// Turns maintenance on, whatever the switch says. Default true; false if there is a `switch`.
    on: Option<bool>,
    /// Name of a switch with which `weir maintenance` and the admin API turn maintenance on for a while. Several
    /// filters may share a switch. Default none.
    switch: Option<String>,
    /// Hosts under maintenance, exact (`shop.example.com`) or all hosts below a name (`*.example.com`). Default: all.
    hosts: Vec<String>,
    /// When clients should try again. `0s` omits the field. Default `5m`.
    retry_after: Duration,
    /// The page: `{ file: back-soon.html }` or `{ body: "Back soon." }`, with an optional `type`, or a list of them
    /// from which the client's `Accept` chooses, as in the filter `errors`. Default: the gateway's own text.
    page: Option<PagesSettings>,
    /// Networks whose clients pass. Default none.
    allow: Vec<Network>,
    /// Header fields and values; a request with any of them passes. Choose values that are hard to guess. Default
    /// none.
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    #[serde(serialize_with = "as_map")]
    allow_headers: Pairs,
}

fn as_map<S: serde::Serializer>(pairs: &Pairs, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.0.iter().map(|(name, value)| (name, value)))
}

impl Default for MaintenanceSettings {
    fn default() -> Self {
        Self {
            on: None,
            switch: None,
            hosts: Vec::new(),
            retry_after: Duration::from_secs(300),
            page: None,
            allow: Vec::new(),
            allow_headers: Pairs::default(),
        }
    }
}

struct Maintenance {
    on: bool,
    switch: Option<(String, Arc<Switch>)>,
    hosts: Vec<String>,
    retry_after: Option<Vec<u8>>,
    page: Option<Pages>,
    allow: Vec<Network>,
    allow_headers: Vec<(FieldName, Vec<u8>)>,
    names: Names,
}

struct Names {
    cache_control: FieldName,
    content_type: FieldName,
    retry_after: FieldName,
    vary: FieldName,
}

impl IntoFilter for MaintenanceSettings {
    type Filter = Maintenance;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Maintenance> {
        let before = build.mistakes.len();
        for (at, host) in self.hosts.iter().enumerate() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            if name.is_empty() || name.contains(['*', '/', ':', ' ']) && !name.starts_with('[') {
                let hint = "write shop.example.com, or *.example.com for everything below it";
                build.refuse(&format!("hosts[{at}]"), format!("`{host}` is not a host"), Some(hint.into()));
            }
        }
        let mut allow_headers = Vec::new();
        for (name, value) in self.allow_headers.0 {
            let key = format!("allow_headers.{name}");
            match FieldName::new(&name) {
                Ok(_) if value.trim().is_empty() => {
                    build.refuse(
                        &key,
                        "is empty: anybody could send it",
                        Some("choose a value that is hard to guess".into()),
                    );
                }
                Ok(name) => allow_headers.push((name, value.into_bytes())),
                Err(e) => build.refuse(&key, e.to_string(), None),
            }
        }
        let is_name = |name: &String| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if let Some(name) = self.switch.as_ref().filter(|name| !is_name(name)) {
            let hint = "write 1 to 64 letters, digits, `-`, `_` and `.`, such as `shop`";
            build.refuse("switch", format!("`{name}` is not a switch name"), Some(hint.into()));
        }
        let page = self.page.as_ref().and_then(|page| page.compile("page", None, build));
        let seconds = self.retry_after.get().as_secs();
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        (build.mistakes.len() == before).then(|| Maintenance {
            on: self.on.unwrap_or(self.switch.is_none()),
            switch: self.switch.map(|name| {
                let switch = build.switch(&name);
                (name, switch)
            }),
            hosts: self.hosts,
            retry_after: (seconds > 0).then(|| seconds.to_string().into_bytes()),
            page,
            allow: self.allow,
            allow_headers,
            names: Names {
                cache_control: name("cache-control"),
                content_type: name("content-type"),
                retry_after: name("retry-after"),
                vary: name("vary"),
            },
        })
    }
}

static ON: Figure =
    Figure::gauge("on", "weir_maintenance_on", "1 while requests get the maintenance page.").of("switch");

impl Filter for Maintenance {
    fn hooks(&self) -> Hooks {
        if self.on || self.switch.is_some() { Hooks::REQUEST | Hooks::UNROUTED } else { Hooks::NONE }
    }

    fn readings(&self) -> Vec<Reading> {
        let reading = |(name, switch): &(String, Arc<Switch>)| {
            Reading::of(&ON, name, u64::from(self.on || switch.is_on()))
        };
        self.switch.iter().map(reading).collect()
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards {
            request: self.allow_headers.iter().map(|(name, _)| name.clone()).collect(),
            response: Vec::new(),
        }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if !self.is_on() || !self.is_for(head) {
            return Flow::Continue;
        }
        if self.lets_pass(head, cx) {
            // These clients see a service that is not ready for the public.
            cx.identify("maintenance", b"staff");
            return Flow::Continue;
        }
        let mut headers = Vec::new();
        if let Some(seconds) = &self.retry_after {
            headers.push((self.names.retry_after.clone(), seconds.clone()));
        }
        let pages = self.page.as_ref().filter(|_| !grpc::is_grpc(&head.headers));
        let page =
            pages.and_then(|pages| pages.choose(head.headers.get_str("accept")).zip(Some(pages.vary())));
        let Some((page, vary)) = page else { return Flow::refuse_with(&MAINTENANCE, headers) };
        headers.push((self.names.content_type.clone(), page.media().as_bytes().to_vec()));
        headers.push((self.names.cache_control.clone(), b"no-store".to_vec()));
        if vary {
            headers.push((self.names.vary.clone(), b"accept".to_vec()));
        }
        cx.make_id();
        let body = page.render(&Values::of(head, cx));
        cx.answer_because(&MAINTENANCE);
        Flow::Answer(Box::new(Answer { status: MAINTENANCE.status, headers, body: body.into() }))
    }
}

impl Maintenance {
    fn is_on(&self) -> bool {
        self.on || self.switch.as_ref().is_some_and(|(_, switch)| switch.is_on())
    }

    fn is_for(&self, head: &RequestHead) -> bool {
        let asked = without_port(head.asked_authority());
        self.hosts.is_empty() || self.hosts.iter().any(|host| is_of(asked, host.as_bytes()))
    }

    fn lets_pass(&self, head: &RequestHead, cx: &Cx) -> bool {
        let client = cx.client.to_canonical();
        let sends = |(name, value): &(FieldName, Vec<u8>)| {
            head.headers.get_all(name.as_str()).any(|sent| verify_slices_are_equal(sent, value).is_ok())
        };
        self.allow.iter().any(|network| network.0.contains(&client)) || self.allow_headers.iter().any(sends)
    }
}

/// Whether a pattern matches a host: the exact name, or `*.` and a parent name.
fn is_of(host: &[u8], pattern: &[u8]) -> bool {
    let Some(above) = pattern.strip_prefix(b"*") else { return host.eq_ignore_ascii_case(pattern) };
    let end = host.len().checked_sub(above.len()).filter(|at| *at > 0).and_then(|at| host.get(at..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(above))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_page_and_when_to_ask_again() {
        let page = json!([{ "body": "<h1>{host}</h1>" }, { "body": "{\"host\":\"{host}\"}" }]);
        let running = Stand::new(&KIND, json!({ "page": page, "retry_after": "10m" })).build();
        let mut exchange = running.request("GET /\nHost: a.test:81\nAccept: text/html").await;
        exchange
            .expect_status(503)
            .expect_header("retry-after", "600")
            .expect_header("cache-control", "no-store");
        exchange.expect_header("content-type", "text/html; charset=utf-8").expect_header("vary", "accept");
        assert_eq!(exchange.cx.because(), Some(&MAINTENANCE));
        let Flow::Answer(answer) = exchange.flow else { panic!("an answer") };
        let Body::Bytes(body) = answer.body else { panic!("a page is bytes") };
        assert_eq!(body, "<h1>a.test</h1>");
        let mut exchange = running.request("POST /\nContent-Type: application/grpc").await;
        exchange.expect_cause(&MAINTENANCE).expect_header("retry-after", "600");
    }

    #[tokio::test]
    async fn without_a_page_it_is_a_refusal() {
        let mut exchange = run(&KIND, json!({ "retry_after": "0s" }), "GET /").await;
        exchange.expect_cause(&MAINTENANCE).expect_no_header("retry-after");
        let off = Stand::new(&KIND, json!({ "on": false })).build();
        assert_eq!(off.hooks(), Hooks::NONE);
    }

    #[tokio::test]
    async fn who_passes() {
        let settings = json!({ "allow": ["10.0.0.0/8"], "allow_headers": { "x-preview": "s3cret" } });
        let running = Stand::new(&KIND, settings).build();
        running.request("GET /").await.expect_cause(&MAINTENANCE);
        running.from("::ffff:10.1.2.3").request("GET /").await.expect_continue();
        running.request("GET /\nX-Preview: s3cret").await.expect_continue();
        for wrong in ["", "s3cre", "s3crett", "S3cret"] {
            running.request(&format!("GET /\nX-Preview: {wrong}")).await.expect_cause(&MAINTENANCE);
        }
    }

    #[tokio::test]
    async fn hosts() {
        let running = Stand::new(&KIND, json!({ "hosts": ["a.test", "*.b.test"] })).build();
        for (host, down) in [
            ("a.test", true),
            ("A.TEST:80", true),
            ("x.a.test", false),
            ("x.b.test", true),
            ("y.x.b.test", true),
            ("b.test", false),
            ("xb.test", false),
        ] {
            let exchange = running.request(&format!("GET /\nHost: {host}")).await;
            assert_eq!(matches!(exchange.flow, Flow::Refuse(_)), down, "{host}");
        }
    }

    #[tokio::test]
    async fn a_switch_that_is_off_lets_all_pass() {
        let running = Stand::new(&KIND, json!({ "switch": "shop" })).build();
        running.request("GET /").await.expect_continue();
        let readings: Vec<_> =
            running.readings().into_iter().map(|r| (r.figure.what, r.of, r.value)).collect();
        assert_eq!(readings, [("on", "shop".to_owned(), 0)]);
        let on = Stand::new(&KIND, json!({ "switch": "shop", "on": true })).build();
        on.request("GET /").await.expect_cause(&MAINTENANCE);
        assert_eq!(on.readings()[0].value, 1);
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({ "switch": "a shop" }), "`a shop` is not a switch name"),
            (json!({ "switch": "" }), "is not a switch name"),
            (json!({ "hosts": ["a.test/x"] }), "hosts[0]: `a.test/x` is not a host"),
            (json!({ "hosts": ["*.*.test"] }), "is not a host"),
            (json!({ "allow_headers": { "x-preview": "" } }), "anybody could send it"),
            (json!({ "allow_headers": { "x preview": "1" } }), "not a header name"),
            (json!({ "page": { "file": "/nowhere/at all" } }), "page.file"),
            (json!({ "page": { "body": "{pth}" } }), "write {path}"),
        ] {
            let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
            assert!(mistakes.iter().any(|m| m.contains(expected)), "{settings}: {mistakes:#?}");
        }
    }
}
