//! `respond`: answers the request, inside a list of filters.

use super::prelude::*;
use std::collections::BTreeMap;
use weir_filter::config::de::whole_number;
use weir_filter::template::{Escape, Template, Values};
use weir_h1::FieldName;

pub(super) static KIND: FilterKind = FilterKind::made_from::<RespondSettings>("respond").judged_by_head();

/// Answers every request that reaches it; no later filter and no upstream sees the request.
///
/// Most useful in a list of `when`; a route that only answers has `respond` as its target. Filters before it see the
/// answer. Body and fields may hold placeholders, escaped for the media type: as in HTML, as in a string of JSON, or
/// not at all in plain text. The answer has no cause: for a refusal that the log and metrics name, use `acl` or `ip`.
///
/// ```yaml
/// - respond: { status: 410, body: "{host} is closed\n" }
/// - respond: { status: 503, body: '{"error":"busy"}', headers: { content-type: application/json, retry-after: "5" } }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RespondSettings {
    /// Status of the answer, 200 to 599. Default 200.
    status: Status,
    /// Its body, with placeholders. Default none.
    body: String,
    /// Fields of the answer, with placeholders. Default: `content-type: text/plain; charset=utf-8` if there is a body.
    headers: BTreeMap<String, String>,
}

/// A status of a final answer.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(into = "u16")]
struct Status(u16);

struct Respond {
    status: u16,
    body: Template,
    escape: Escape,
    headers: Vec<(FieldName, Template)>,
}

impl Default for RespondSettings {
    fn default() -> Self {
        Self { status: Status(200), body: String::new(), headers: BTreeMap::new() }
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole_number(deserializer, "a status; expected 200 to 599", |status| (200..600).contains(status))
            .map(Self)
    }
}

impl From<Status> for u16 {
    fn from(status: Status) -> Self {
        status.0
    }
}

impl JsonSchema for Status {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnswerStatus".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 200, "maximum": 599 })
    }
}

/// Fields that the gateway writes itself.
const FRAMING: [&str; 3] = ["connection", "content-length", "transfer-encoding"];

impl IntoFilter for RespondSettings {
    type Filter = Respond;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Respond> {
        let before = build.mistakes.len();
        let mut media = None;
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            let field = format!("headers.{name}");
            if FRAMING.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                build.refuse(&field, "the gateway writes this field itself", Some("leave it out".into()));
            }
            if value.bytes().any(|b| b != b'\t' && b.is_ascii_control()) {
                build.refuse(&field, "the value holds a control byte, which would end the field", None);
            }
            if name.eq_ignore_ascii_case("content-type") {
                media = Some(value.as_str());
            }
            match (FieldName::new(name), build.page(&field, value)) {
                (Ok(name), Some(value)) => headers.push((name, value)),
                (Err(e), _) => build.refuse(&field, e.to_string(), None),
                (_, None) => {}
            }
        }
        let body = build.page("body", &self.body)?;
        if media.is_none() && !self.body.is_empty() {
            let media = Template::literally("text/plain; charset=utf-8");
            headers.push((FieldName::new("content-type").expect("a name in the source is a token"), media));
        }
        let escape = Escape::of_media(media.unwrap_or_default());
        (build.mistakes.len() == before).then_some(Respond { status: self.status.0, body, escape, headers })
    }
}

impl Filter for Respond {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::ANSWERS
    }

    fn guards(&self) -> FieldGuards {
        let texts = self.headers.iter().map(|(_, value)| value).chain([&self.body]);
        FieldGuards { request: texts.flat_map(Template::guarded).collect(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let values = Values::of(head, cx);
        let render = |template: &Template, escape| {
            let mut text = Vec::new();
            template.render(&values, escape, &mut text);
            text
        };
        let fields = self.headers.iter().map(|(name, value)| (name.clone(), render(value, Escape::Nothing)));
        // A value that cannot be sent is left out, as in `headers`.
        let is_sound = |value: &[u8]| value.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f));
        let headers = fields.filter(|(_, value)| !value.is_empty() && is_sound(value)).collect();
        let body = render(&self.body, self.escape).into();
        Flow::Answer(Box::new(Answer { status: self.status, headers, body }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;

    fn body(flow: &Flow) -> String {
        let Flow::Answer(answer) = flow else { panic!("{flow:?}") };
        let Body::Bytes(bytes) = &answer.body else { panic!("{answer:?}") };
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn answers_with_values() {
        let settings = json!({ "status": 403, "body": "{host} {path}", "headers": { "x-path": "{path}" } });
        let mut exchange = run(&KIND, settings, "GET /a%20b").await;
        exchange.expect_status(403).expect_header("x-path", "/a%20b");
        exchange.expect_header("content-type", "text/plain; charset=utf-8");
        assert_eq!(body(&exchange.flow), "example.com /a%20b");
        let html = json!({ "body": "<p>{header}</p>{query}", "headers": { "content-type": "text/html" } });
        let refused = Stand::new(&KIND, html).mistakes();
        assert!(refused[0].contains("`{header}` is not a placeholder"), "{refused:?}");
        let html = json!({ "body": "<p>{query}</p>", "headers": { "content-type": "text/html" } });
        assert_eq!(body(&run(&KIND, html, "GET /?<i>").await.flow), "<p>&lt;i&gt;</p>");
        let mut bare = run(&KIND, json!({}), "GET /").await;
        bare.expect_status(200).expect_no_header("content-type");
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({ "status": 101 }), "expected 200 to 599"),
            (json!({ "headers": { "content-length": "1" } }), "writes this field itself"),
            (json!({ "headers": { "a b": "1" } }), "headers.a b"),
            (json!({ "headers": { "a": "1\r\nb: 2" } }), "control byte"),
            (json!({ "body": "{hots}" }), "write {host}"),
        ] {
            let told = Stand::new(&KIND, settings).mistakes().join("\n");
            assert!(told.contains(expected), "{told}");
        }
    }
}
