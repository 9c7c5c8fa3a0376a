//! `request_id`: gives every request an id by which it can be found in every log.

use super::prelude::*;

pub(super) static KIND: FilterKind =
    FilterKind::of::<RequestId>("request_id").without_access().judged_by_head();

/// Gives every request an id: to the upstream, to the client, and in the access log.
///
/// An id is 32 hexadecimal digits: 128 random bits, unique but not secret. An incoming id is kept if there is exactly
/// one and it has 1 to 128 visible ASCII characters; otherwise it is replaced.
///
/// ```yaml
/// - request_id: {}
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RequestId {
    /// Header that carries the id. Default `x-request-id`, which nginx, Envoy and most services use.
    header: HeaderName,
    /// What happens to an id from the client. Default `keep`, so that a chain of gateways and services shares one id.
    /// Use `replace` at the edge, to keep untrusted ids out of your logs.
    incoming: Incoming,
    /// Whether the response carries the id too, replacing the upstream's. Default true, so that users can report it.
    response: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Incoming {
    Keep,
    Replace,
}

/// Longest incoming id that is kept, in bytes. Our guess: twice the longest format we know (AWS X-Ray, 60).
const ID_BYTES: usize = 128;

impl Default for RequestId {
    fn default() -> Self {
        Self { header: HeaderName::fixed("x-request-id"), incoming: Incoming::Keep, response: true }
    }
}

impl Filter for RequestId {
    fn hooks(&self) -> Hooks {
        if self.response { Hooks::REQUEST | Hooks::RESPONSE } else { Hooks::REQUEST }
    }

    fn guards(&self) -> FieldGuards {
        let response = self.response.then(|| (*self.header).clone());
        FieldGuards { request: vec![(*self.header).clone()], response: response.into_iter().collect() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if self.incoming == Incoming::Keep
            && let Some(id) = self.sent(head)
        {
            cx.request_id = Some(id);
            return Flow::Continue;
        }
        let id = cx.new_id();
        head.headers.insert(&self.header, &id).expect("hexadecimal digits may be sent");
        cx.request_id = String::from_utf8(id.to_vec()).ok();
        Flow::Continue
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if let Some(id) = &cx.request_id {
            head.headers.insert(&self.header, id.as_bytes()).expect("the id was checked when it was taken");
        }
        Flow::Continue
    }
}

impl RequestId {
    /// The client's id, if it is valid.
    fn sent(&self, head: &RequestHead) -> Option<String> {
        let mut ids = head.headers.values(&self.header);
        let (id, None) = (ids.next()?, ids.next()) else { return None };
        let sound = (1..=ID_BYTES).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
        if sound { String::from_utf8(id.to_vec()).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn makes_an_id_for_upstream_client_and_log() {
        let mut exchange = run(&KIND, json!({}), "GET /a").await;
        let id = exchange.cx.request_id.clone().unwrap();
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        exchange.expect_continue().expect_header("x-request-id", &id);
        exchange.response("200\nX-Request-Id: upstream's").expect_header("x-request-id", &id);
    }

    #[tokio::test]
    async fn keeps_a_sound_incoming_id() {
        let mut exchange = run(&KIND, json!({}), "GET /a\nX-Request-ID: abc-1").await;
        exchange.expect_continue().expect_header("x-request-id", "abc-1");
        exchange.response("200").expect_header("x-request-id", "abc-1");
        assert_eq!(exchange.cx.request_id.as_deref(), Some("abc-1"));
    }

    #[tokio::test]
    async fn replaces_an_unsound_one() {
        let longest = "a".repeat(128);
        run(&KIND, json!({}), &format!("GET /\nx-request-id: {longest}"))
            .await
            .expect_header("x-request-id", &longest);
        for bad in ["", "a b", "\u{e4}", &"a".repeat(129), "a\nx-request-id: b"] {
            let exchange = run(&KIND, json!({}), &format!("GET /\nx-request-id: {bad}")).await;
            let ids = exchange.header("x-request-id");
            assert!(matches!(ids.as_slice(), [id] if id.len() == 32), "{bad:?}: {ids:?}");
        }
    }

    #[tokio::test]
    async fn settings() {
        let settings = json!({ "header": "x-trace", "incoming": "replace", "response": false });
        let exchange = run(&KIND, settings, "GET /\nx-trace: abc").await;
        assert_ne!(exchange.header("x-trace"), ["abc"]);
        let silent = RequestId { response: false, ..RequestId::default() };
        assert_eq!(silent.hooks(), Hooks::REQUEST);
    }
}
