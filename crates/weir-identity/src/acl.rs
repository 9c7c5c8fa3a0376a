//! `acl`: allows or refuses consumers that an earlier filter has identified, and requests by an expression.

use super::prelude::*;
use std::collections::HashSet;
use weir_filter::condition::Condition;
use weir_filter::config::schema::Expression;
use weir_filter::config::spelling::nearest_name;

/// The filter, for the registry.
pub static KIND: FilterKind =
    FilterKind::made_from::<AclSettings>("acl").with_causes(&[&ACL_DENIED]).judged_by_head();

static ACL_DENIED: Cause = Cause {
    code: "acl_denied",
    status: 403,
    meaning: "The caller may not use this route.",
    change: "`allow`, `deny` or `is` of the filter acl, or `groups` and `plan` of the consumer",
    ..Cause::USUAL
};

/// Allows or refuses consumers that an earlier filter has identified.
///
/// A list holds names of consumers, `plan:NAME`, `group:NAME` (`consumers.*.groups`) and `anonymous`. `anonymous` is
/// a client that a filter with `optional: true` let pass without naming it. `deny` takes precedence over `allow`.
/// With `allow`, every other consumer is refused; without it, every other consumer passes. `is` is an expression that
/// must be true as well: it may also name `consumer.name`, `consumer.groups`, `consumer.plan` and `route.name`. If it
/// reads a cookie, a client's certificate or any field but the usual ones (`accept`, `user-agent` …), that is an
/// identity, and a `cache` keeps a copy for each.
///
/// ```yaml
/// - acl: { allow: [ shop, "plan:gold" ] }
/// - acl: { deny: [ "group:trial", anonymous ] }
/// - acl: { is: 'client.ip in ["10.0.0.0/8"] || "staff" in consumer.groups' }
/// ```
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct AclSettings {
    /// Only these may pass. Default: everybody.
    allow: Vec<String>,
    /// These may not pass. Default none.
    deny: Vec<String>,
    /// An expression that must be true, beside `allow` and `deny`. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    is: Option<Expression>,
}

/// The decision for every consumer, computed when the config is loaded.
struct Acl {
    consumers: Vec<bool>,
    /// The lists, for consumers of sources.
    lists: Option<Box<[HashSet<String>; 2]>>,
    anonymous: bool,
    is: Option<Condition>,
}

/// The name for clients that no filter identified.
const ANONYMOUS: &str = "anonymous";

impl IntoFilter for AclSettings {
    type Filter = Acl;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Acl> {
        let before = build.mistakes.len();
        if self.allow.is_empty() && self.deny.is_empty() && self.is.is_none() {
            let hint = Some("write allow: [ shop, \"plan:gold\" ], or deny, or is".into());
            build.refuse("", "names no one, so everyone would pass", hint);
        }
        for (key, list) in [("allow", &self.allow), ("deny", &self.deny)] {
            for (i, name) in list.iter().enumerate() {
                check(&format!("{key}[{i}]"), name, build);
            }
        }
        let is = self.is.as_ref().and_then(|written| Condition::compile(written, "is", build));
        let may = |is: &dyn Fn(&String) -> bool| {
            !self.deny.iter().any(is) && (self.allow.is_empty() || self.allow.iter().any(is))
        };
        (build.mistakes.len() == before).then(|| Acl {
            consumers: build
                .consumers
                .iter()
                .map(|consumer| may(&|name| is_called(consumer, name)))
                .collect(),
            anonymous: may(&|name| name == ANONYMOUS),
            lists: build
                .open_consumers
                .then(|| Box::new([&self.allow, &self.deny].map(|list| list.iter().cloned().collect()))),
            is,
        })
    }
}

fn is_called(consumer: &Consumer, name: &str) -> bool {
    consumer.name == name || consumer.labels.iter().any(|label| label == name)
}

fn check(field: &str, name: &str, build: &mut Build<'_>) {
    let consumers = Consumers::clone(build.consumers);
    if name == ANONYMOUS {
        if consumers.iter().any(|consumer| consumer.name == ANONYMOUS) {
            let hint = Some("call the consumer otherwise".into());
            build.refuse(
                field,
                "`anonymous` means callers without a consumer, but a consumer has that name",
                hint,
            );
        }
        return;
    }
    // A source may have any consumer and group at some time, a file any user.
    let open = build.open_consumers;
    let kind = name.split_once(':').map(|(kind, _)| kind);
    if consumers.iter().any(|consumer| is_called(consumer, name))
        || open && kind.is_none_or(|kind| ["plan", "group"].contains(&kind))
    {
        return;
    }
    let labels = consumers.iter().flat_map(|c| c.labels.iter().map(String::as_str).chain([c.name.as_str()]));
    let hint = match nearest_name(name, labels.chain([ANONYMOUS])) {
        Some(near) => format!("write {near}"),
        None => "names of consumers, \"plan:NAME\", \"group:NAME\" and anonymous are known".to_owned(),
    };
    let message = match name.split_once(':') {
        Some((kind @ ("plan" | "group"), name)) => format!("no consumer is of the {kind} `{name}`"),
        Some(_) => format!("`{name}` is not a consumer; expected a consumer, plan:NAME or group:NAME"),
        None => format!("there is no consumer `{name}`"),
    };
    build.refuse(field, message, Some(hint.into()));
}

impl Filter for Acl {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let request = self.is.as_ref().map(Condition::guarded).unwrap_or_default();
        FieldGuards { request, response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let may = match cx.consumer_index() {
            None => self.anonymous,
            Some(consumer) => match self.consumers.get(consumer) {
                Some(may) => *may,
                None => cx.listed().is_some_and(|consumer| self.may(consumer)),
            },
        };
        cx.restricts();
        let may = may && self.is.as_ref().is_none_or(|is| is.admits("acl", head, cx));
        if may { Flow::Continue } else { Flow::refuse(&ACL_DENIED) }
    }
}

impl Acl {
    /// The decision for a consumer of a source.
    fn may(&self, consumer: &Consumer) -> bool {
        let Some([allow, deny]) = self.lists.as_deref() else { return false };
        let called = || consumer.labels.iter().chain([&consumer.name]);
        !called().any(|name| deny.contains(name))
            && (allow.is_empty() || called().any(|name| allow.contains(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stand;
    use super::*;
    use serde_json::{Value, json};

    fn consumer(name: &str, labels: &[&str]) -> Consumer {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Consumer { name: name.to_owned(), labels, ..Consumer::default() }
    }

    fn everybody() -> Vec<Consumer> {
        vec![
            consumer("shop", &["plan:gold"]),
            consumer("desk", &["group:staff", "plan:gold"]),
            consumer("trial", &[]),
        ]
    }

    /// Which of these may pass: shop, desk, trial, and a client that no filter identified.
    async fn passing(settings: Value) -> [bool; 4] {
        let mut passing = [false; 4];
        for (i, passes) in passing.iter_mut().enumerate() {
            let mut consumers = everybody();
            // The last consumer given is the one that the request is named as.
            let own = (i < consumers.len()).then(|| consumers.remove(i));
            let named = own.is_some();
            consumers.extend(own);
            let stand = Stand::new(&KIND, settings.clone()).consumers(consumers);
            let mut stand = if named { stand.named() } else { stand };
            *passes = matches!(stand.build().request("GET /").await.flow, Flow::Continue);
        }
        passing
    }

    #[tokio::test]
    async fn who_passes() {
        for (settings, expected) in [
            (json!({ "allow": ["shop"] }), [true, false, false, false]),
            (json!({ "allow": ["plan:gold"] }), [true, true, false, false]),
            (json!({ "allow": ["plan:gold"], "deny": ["group:staff"] }), [true, false, false, false]),
            (json!({ "allow": ["anonymous", "trial"] }), [false, false, true, true]),
            (json!({ "deny": ["trial"] }), [true, true, false, true]),
            (json!({ "deny": ["anonymous"] }), [true, true, true, false]),
        ] {
            assert_eq!(passing(settings.clone()).await, expected, "{settings}");
        }
    }

    #[tokio::test]
    async fn a_refusal_has_its_cause() {
        let mut stand = Stand::new(&KIND, json!({ "allow": ["shop"] })).consumers(everybody());
        stand.build().request("GET /").await.expect_status(403).expect_cause(&ACL_DENIED);
    }

    #[tokio::test]
    async fn an_expression_decides_beside_the_lists() {
        let of = async |settings: Value, request: &str| {
            let stand = Stand::new(&KIND, settings).consumers(everybody()).named();
            let mut stand = stand.map("names", "consumer.name", &[("trial", "on trial")]);
            matches!(stand.build().request(request).await.flow, Flow::Continue)
        };
        // The request is named as `trial`.
        for (settings, request, expected) in [
            (json!({ "is": "request.method == \"GET\"" }), "GET /", true),
            (json!({ "is": "request.method == \"GET\"" }), "POST /", false),
            (json!({ "is": "consumer.name == \"trial\" && consumer.plan == \"\"" }), "GET /", true),
            (json!({ "is": "\"staff\" in consumer.groups" }), "GET /", false),
            (json!({ "is": "route.name == \"test\"", "deny": ["trial"] }), "GET /", false),
            (json!({ "is": "route.name == \"test\"", "allow": ["trial"] }), "GET /", true),
            (json!({ "is": "request.method == \"PUT\"", "allow": ["trial"] }), "GET /", false),
            (json!({ "is": "request.cookies.a == \"1\"" }), "GET /\nCookie: b=2; a=1", true),
            (json!({ "is": "(request.size ?? -1) == 0" }), "GET /", true),
            (json!({ "is": "maps.names == \"on trial\"" }), "GET /", true),
        ] {
            assert_eq!(of(settings.clone(), request).await, expected, "{settings} {request}");
        }
    }

    #[tokio::test]
    async fn what_tells_callers_apart_is_an_identity() {
        let who = async |is: &str, request: &str| {
            let mut stand = Stand::new(&KIND, json!({ "is": is }));
            let cx = stand.build().request(request).await.cx;
            cx.identities().iter().map(|known| known.who.to_vec()).collect::<Vec<_>>()
        };
        for is in [
            "request.cookies.s != \"\"",
            "request.headers[\"Authorization\"] != \"x\"",
            "request.headers[\"x-key\"] != \"x\"",
            "request.headers[request.method + \"-x\"] == \"\"",
            "request.cookies[request.method] == \"\"",
            "client.cert.subject == \"\"",
        ] {
            let [alice, bob] = ["alice", "bob"]
                .map(|name| format!("GET /\nCookie: s={name}\nAuthorization: {name}\nX-Key: {name}"));
            let (alice, bob) = (who(is, &alice).await, who(is, &bob).await);
            assert_eq!((alice.len(), bob.len()), (1, 1), "{is}");
            assert_eq!(alice == bob, is.starts_with("client"), "{is}");
        }
        for is in [
            "client.ip in [\"0.0.0.0/0\", \"::/0\"]",
            "request.headers.accept != \"x\"",
            "request.path != \"\"",
        ] {
            assert_eq!(who(is, "GET /").await.len(), 0, "{is}");
        }
        // Through maps too, of which both come to one value.
        for is in ["maps.first == \"1\"", "maps.second == \"2\""] {
            let who = async |name: &str| {
                let stand = Stand::new(&KIND, json!({ "is": is }))
                    .map("second", "maps.first", &[("*", "2")])
                    .map("first", "request.cookies.s + consumer.name", &[("*", "1")]);
                let cx = { stand }.build().request(&format!("GET /\nCookie: s={name}")).await.cx;
                cx.identities().iter().map(|known| known.who.to_vec()).collect::<Vec<_>>()
            };
            let (alice, bob) = (who("alice").await, who("bob").await);
            assert_eq!((alice.len(), bob.len()), (1, 1), "{is}");
            assert_ne!(alice, bob, "{is}");
        }
        // Nobody was let in.
        assert_eq!(who("request.cookies.s == \"x\"", "GET /\nCookie: s=y").await.len(), 0);
    }

    #[test]
    fn mistakes() {
        let of = |settings: Value| Stand::new(&KIND, settings).consumers(everybody()).mistakes().join("\n");
        for (settings, expected) in [
            (json!({}), "everyone would pass"),
            (json!({ "allow": ["shpo"] }), "allow[0]: there is no consumer `shpo`; write shop"),
            (json!({ "deny": ["plan:glod"] }), "deny[0]: no consumer is of the plan `glod`; write plan:gold"),
            (json!({ "deny": ["group:none"] }), "no consumer is of the group `none`"),
            (
                json!({ "is": "consumer.nam == \"a\"" }),
                "is: there is no variable `consumer.nam`; did you mean",
            ),
            (json!({ "is": "client.port == 1" }), "is: there is no variable `client.port`"),
            (json!({ "allow": ["role:x"] }), "expected a consumer, plan:NAME or group:NAME"),
        ] {
            let told = of(settings);
            assert!(told.contains(expected), "{told}");
        }
        let named_so = Stand::new(&KIND, json!({ "deny": ["anonymous"] }))
            .consumer(consumer("anonymous", &[]))
            .mistakes();
        assert!(named_so[0].contains("a consumer has that name"), "{named_so:?}");
    }
}
