//! `when`: chooses filters by an expression.
//!
//! The engine runs the chosen list in its place, so its filters are filters like all others. See `Flow::Run`.

use super::prelude::*;
use weir_filter::condition::Condition;
use weir_filter::config::de;
use weir_filter::config::schema::{Expression, FilterNode};
use weir_filter::filter::{Built, Judged, Settings};

/// The filter, for the registry.
pub(super) static KIND: FilterKind = FilterKind {
    name: "when",
    schema: || schemars::schema_for!(WhenSettings),
    causes: &[],
    access: Access::Decides,
    lists: &LISTS,
    index: None,
    judged: Judged::ByHead,
    build,
};

/// The settings that hold filters, in the order of [`Flow::Run`]: where the expression is true, and where it is false.
const LISTS: [&str; 2] = ["filters", "otherwise"];

/// Runs other filters by a condition: `filters` where the expression `is` is true, `otherwise` where it is false.
///
/// The expression is evaluated once, when the request reaches this place: a filter before it may have named the
/// consumer or changed the request. The chosen filters then run in this place, in the order written, and see the
/// response and its body in reverse as usual; those of the other list do not run at all. Lists may hold `when` again.
/// A filter here never replaces one of the same name in a consumer's plan, because it does not run for all requests.
///
/// If the expression names `request.body`, JSON bodies are read before, up to `limits.expression_body_bytes`. What says
/// that it is JSON and is not gets 400 `body_not_json`.
///
/// What the expression reads may decide the answer. A cookie, a client's certificate, or any field but the usual ones
/// (`accept`, `user-agent` …) is an identity: a `cache` keeps a copy for each value that the expression read. Of
/// anything else that is not in the URL, it keeps one copy for true and one for false. A `cache` before it stores no
/// answer whose request passed such an expression. An expression over the URL, the method and `consumer` changes
/// nothing.
///
/// ```yaml
/// - when:
///     is: 'request.headers["x-internal"] == "1" && client.ip in ["10.0.0.0/8"]'
///     filters: [ { headers: { request: { set: { x-trusted: "1" } } } } ]
///     otherwise: [ { key_auth: {} }, { rate_limit: { requests: 100, per: 1m } } ]
/// ```
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhenSettings {
    /// The expression that decides, over the request, its JSON body, the client and `consumer`.
    is: Expression,
    /// The filters that run where it is true.
    #[serde(default)]
    filters: Vec<FilterNode>,
    /// The filters that run where it is false.
    #[serde(default)]
    otherwise: Vec<FilterNode>,
}

struct When {
    is: Condition,
}

fn build(settings: &mut Settings<'_>, build: &mut Build<'_>) -> Option<Built> {
    let Settings { node, path, found } = settings;
    let errors = found.errors();
    let written: WhenSettings = de::read(node, path, found)?;
    if written.filters.is_empty() && written.otherwise.is_empty() && found.errors() == errors {
        let hint = "write filters: [ … ] for where it is true, or otherwise: [ … ]";
        build.refuse("", "has no filters to choose from", Some(hint.into()));
    }
    let is = Condition::compile(&written.is, "is", build)?;
    if found.errors() != errors || !build.mistakes.is_empty() {
        return None;
    }
    let settings = serde_json::json!({ "is": written.is });
    Some(Built { filter: Box::new(When { is }), settings })
}

impl Filter for When {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards { request: self.is.guarded(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        Flow::Run(usize::from(!self.is.chooses(KIND.name, head, cx)))
    }

    fn chooses(&self, asked: &Asked<'_>) -> Option<usize> {
        self.is.holds_for(asked).map(|holds| usize::from(!holds))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stand;
    use super::*;
    use serde_json::{Value, json};

    fn when(is: &str) -> Value {
        json!({ "is": is, "filters": [{ "request_id": {} }] })
    }

    #[tokio::test]
    async fn the_expression_chooses_a_list() {
        for (is, request, list) in [
            ("request.method == \"GET\"", "GET /", 0),
            ("request.method == \"GET\"", "PUT /", 1),
            ("request.cookies.a == \"1\"", "GET /\nCookie: b=2; a=1", 0),
            ("client.ip in [\"192.0.2.0/24\"]", "GET /", 0),
            ("consumer.name == \"\"", "GET /", 0),
        ] {
            let flow = Stand::new(&KIND, when(is)).build().request(request).await.flow;
            assert!(matches!(flow, Flow::Run(chosen) if chosen == list), "{is} {request}: {flow:?}");
        }
    }

    /// What tells callers apart is noted whatever the outcome is: the other outcome is an answer too.
    #[tokio::test]
    async fn both_outcomes_tell_callers_apart() {
        let who = async |is: &str, request: &str| {
            let cx = Stand::new(&KIND, when(is)).build().request(request).await.cx;
            cx.identities().iter().map(|known| known.who.to_vec()).collect::<Vec<_>>()
        };
        for is in ["request.cookies.s == \"alice\"", "request.headers[\"X-Key\"] == \"alice\""] {
            let [alice, bob, eve] =
                ["alice", "bob", "eve"].map(|name| format!("GET /\nCookie: s={name}\nX-Key: {name}"));
            let (alice, bob, eve) = (who(is, &alice).await, who(is, &bob).await, who(is, &eve).await);
            assert_eq!((alice.len(), bob.len()), (2, 2), "{is}"); // who it is, and what it came to
            assert!(alice != bob && bob != eve, "{is}");
        }
        // Beside a credential, what else decides counts too.
        let is = "request.headers[\"X-Key\"] == \"k\" && request.headers.accept == \"a\"";
        let (a, b) =
            (who(is, "GET /\nX-Key: k\nAccept: a").await, who(is, "GET /\nX-Key: k\nAccept: b").await);
        assert_ne!(a, b, "the same credential");
        // Of what is no credential, the outcome alone counts.
        let is = "request.headers.accept == \"a\"";
        let [a, b, c] = ["a", "b", "c"].map(|name| format!("GET /\nAccept: {name}"));
        let (a, b, c) = (who(is, &a).await, who(is, &b).await, who(is, &c).await);
        assert_eq!(a.len(), 1);
        assert!(a != b && b == c);
        assert_ne!(a, who("request.headers.accept != \"a\"", "GET /\nAccept: b").await, "another expression");
        for is in ["request.path == \"/\"", "request.args.a == \"\"", "request.method == \"GET\""] {
            assert_eq!(who(is, "GET /").await.len(), 0, "{is}");
        }
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({ "is": "true" }), "has no filters to choose from"),
            (json!({ "filters": [{ "request_id": {} }] }), "is"),
            (when("request.metod == \"GET\""), "is: there is no variable `request.metod`"),
            (json!({ "is": "request.method", "filters": [] }), "has no filters"),
            (json!({ "is": "request.method == \"GET\"", "filters": 1 }), "filters"),
        ] {
            let told = Stand::new(&KIND, settings).mistakes().join("\n");
            assert!(told.contains(expected), "{told}");
        }
    }
}
