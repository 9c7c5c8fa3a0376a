//! `headers`: sets, adds and removes fields of requests and responses.

use super::prelude::*;
use std::collections::BTreeMap;
use weir_filter::filter::{Revealed, is_of_gateway};
use weir_filter::template::{Escape, Keep, Kept, Template, Values, Var};
use weir_h1::{FieldName, Fields, Prepared};

pub(super) static KIND: FilterKind = FilterKind::made_from::<HeadersSettings>("headers").judged_by_head();

/// Sets, adds and removes fields of requests and responses, in the order `remove`, `set`, `add`.
///
/// Values may hold placeholders. An empty value sets or adds nothing. `set` with an empty value removes the field, so
/// an unnamed client cannot send its own `x-user` past `x-user: "{consumer}"`. Request values in a response field
/// (`{host}`, `{path}`, captures) are those of the request when it passed this filter.
///
/// In `remove`, a `*` at the beginning or the end of a name stands for any characters. Such a name spares Host and the
/// fields that the gateway itself writes for each connection, such as Content-Length. It does not apply to trailers.
///
/// ```yaml
/// - headers:
///     request:
///       set: { x-client: "{client}" }
///       remove: [ x-debug, "x-internal-*" ]
///     response:
///       set: { strict-transport-security: max-age=31536000 }
///       add: { vary: origin }
///       remove: [ server, x-powered-by ]
/// ```
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct HeadersSettings {
    /// Changes to the request before it goes to the upstream.
    request: EditSettings,
    /// Changes to the response before it goes to the client, including responses of the gateway itself.
    response: EditSettings,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct EditSettings {
    /// Names and values; replaces all existing fields of the name.
    set: BTreeMap<String, String>,
    /// Names and values; keeps existing fields of the name.
    add: BTreeMap<String, String>,
    /// Names of fields to remove, such as `x-debug`, `x-internal-*` or `*-token`.
    remove: Vec<HeaderName>,
}

struct Headers {
    request: Edit,
    response: Edit,
    /// Request values that response fields need, because the request no longer exists then.
    keep: Keep,
}

#[derive(Default)]
struct Edit {
    set: Vec<(FieldName, Template)>,
    add: Vec<(FieldName, Template)>,
    remove: Vec<HeaderName>,
    /// Removed by a part of their names.
    remove_like: Vec<Pattern>,
    /// Fields to set and add, if all values are literals.
    fixed: Option<Prepared>,
    /// Whether the client's address is written only to fields in which every proxy sends it.
    only_forwards: bool,
}

/// A name with a `*` at its beginning, its end or both.
#[derive(Debug, PartialEq)]
struct Pattern {
    /// The text beside the `*`: in lower case, with `-` for `_`, never empty.
    text: Vec<u8>,
    star_before: bool,
    star_after: bool,
}

impl IntoFilter for HeadersSettings {
    type Filter = Headers;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Headers> {
        if self.request.is_empty() && self.response.is_empty() {
            build.refuse("", "changes nothing", Some("set, add or remove something".into()));
        }
        let request = self.request.compile("request", build);
        let response = self.response.compile("response", build);
        let (request, response) = (request?, response?);
        let keep = Keep::of(response.values());
        Some(Headers { request, response, keep })
    }
}

impl EditSettings {
    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    fn compile(self, side: &str, build: &mut Build<'_>) -> Option<Edit> {
        let set = compile(self.set, &format!("{side}.set"), build);
        let add = compile(self.add, &format!("{side}.add"), build);
        let mut sound = true;
        let (mut remove, mut remove_like) = (Vec::new(), Vec::new());
        for (i, name) in self.remove.into_iter().enumerate() {
            let field = format!("{side}.remove[{i}]");
            sound &= allow_name(build, &field, &name);
            if !name.as_str().contains('*') {
                remove.push(name);
                continue;
            }
            match Pattern::read(name.as_str()) {
                Some(pattern) => remove_like.push(pattern),
                None => {
                    let message = format!("`{}` is no name with a `*` at one of its ends", name.as_str());
                    build.refuse(&field, message, Some("write x-internal-* or *-token".into()));
                    sound = false;
                }
            }
        }
        let (set, add) = (set?, add?);
        let fixed = set.iter().chain(&add).try_fold(Prepared::default(), |all, (name, template)| {
            let value = template.literal()?;
            if value.is_empty() { Some(all) } else { all.and(name, value).ok() }
        });
        let mut of_client = set.iter().chain(&add).filter(|(_, template)| {
            template.vars().any(|var| {
                use Var::{Client, TlsClientFingerprint, TlsClientSan, TlsClientSubject};
                matches!(var, Client | TlsClientFingerprint | TlsClientSan | TlsClientSubject)
            })
        });
        let only_forwards = of_client
            .all(|(name, template)| is_address(name.as_str()) && template.vars().eq([&Var::Client]))
            && !set.iter().chain(&add).any(|(_, template)| template.has_expressions());
        sound.then_some(Edit { set, add, remove, remove_like, fixed, only_forwards })
    }
}

fn compile(
    fields: BTreeMap<String, String>,
    key: &str,
    build: &mut Build<'_>,
) -> Option<Vec<(FieldName, Template)>> {
    let names = if key.starts_with("response") { build.names().of_response() } else { build.names() };
    let count = fields.len();
    let mut compiled: Vec<(FieldName, Template)> = Vec::with_capacity(count);
    for (name, value) in fields {
        let field = format!("{key}.{name}");
        let parsed: Result<HeaderName, serde_json::Error> = serde_json::from_value(name.clone().into());
        let template = build.text_with(&field, &value, &names);
        let control = value.bytes().any(|b| b != b'\t' && b.is_ascii_control());
        match &parsed {
            Err(e) => build.refuse(&field, e.to_string(), None),
            Ok(name) if compiled.iter().any(|(n, _)| *n == **name) => {
                build.refuse(&field, "is listed twice", Some("case does not matter in names".into()));
            }
            Ok(name) => {
                allow_name(build, &field, name);
            }
        }
        if control {
            build.refuse(&field, "the value holds a control byte, which would end the field", None);
        }
        if let (Ok(name), Some(template), false) = (parsed, template, control) {
            compiled.push(((*name).clone(), template));
        }
    }
    (compiled.len() == count).then_some(compiled)
}

impl Pattern {
    /// None if a `*` stands elsewhere, or alone: that would remove every field.
    fn read(name: &str) -> Option<Self> {
        let text = name.strip_prefix('*').unwrap_or(name);
        let star_before = text.len() < name.len();
        let inner = text.strip_suffix('*').unwrap_or(text);
        let star_after = inner.len() < text.len();
        let text = inner.bytes().map(fold).collect();
        (!inner.is_empty() && !inner.contains('*')).then_some(Self { text, star_before, star_after })
    }

    fn matches(&self, name: &[u8]) -> bool {
        let is_text = |part: &[u8]| part.iter().copied().map(fold).eq(self.text.iter().copied());
        let len = self.text.len();
        match (self.star_before, self.star_after) {
            (true, true) => name.windows(len).any(is_text),
            (true, false) => name.len().checked_sub(len).and_then(|at| name.get(at..)).is_some_and(is_text),
            _ => name.get(..len).is_some_and(is_text),
        }
    }
}

/// Servers read `_` as `-`.
const fn fold(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

impl Edit {
    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty() && self.remove_like.is_empty()
    }

    /// The fields that only this filter may set. Fields that it only adds to may come from others too.
    fn guarded(&self) -> Vec<FieldName> {
        let set = self.set.iter().map(|(name, _)| name);
        set.chain(self.remove.iter().map(|name| &**name)).cloned().collect()
    }

    fn values(&self) -> impl Iterator<Item = &Template> {
        self.set.iter().chain(&self.add).map(|(_, template)| template)
    }

    /// Renders the values that are not literals, in the order of [`Edit::values`], before the fields are borrowed
    /// mutably.
    fn render(&self, values: &Values<'_>) -> Vec<Vec<u8>> {
        if self.fixed.is_some() {
            return Vec::new();
        }
        let dynamic = self.values().filter(|template| template.literal().is_none());
        let render = |template: &Template| {
            let mut out = Vec::new();
            template.render(values, Escape::Nothing, &mut out);
            out
        };
        dynamic.map(render).collect()
    }

    fn apply(&self, fields: &mut Fields, rendered: &[Vec<u8>]) {
        let mut rendered = rendered.iter();
        let mut value = |template| match Template::literal(template) {
            Some(text) => text,
            None => rendered.next().map_or(&b""[..], Vec::as_slice),
        };
        for name in &self.remove {
            fields.remove(name);
        }
        if !self.remove_like.is_empty() {
            fields.remove_where(|name, _| {
                !is_of_gateway(name) && self.remove_like.iter().any(|pattern| pattern.matches(name))
            });
        }
        if let Some(fixed) = &self.fixed {
            for (name, _) in &self.set {
                fields.remove(name);
            }
            let _ = fields.append_prepared(fixed, b""); // checked when it was prepared
            return;
        }
        for (name, template) in &self.set {
            let value = value(template);
            // A value that cannot be sent counts as empty: the old value must not stay under a name that we own.
            if value.is_empty() || fields.insert(name, value).is_err() {
                fields.remove(name);
            }
        }
        for (name, template) in &self.add {
            let value = value(template);
            if !value.is_empty() {
                let _ = fields.append(name, value); // as above: a value that cannot be sent is left out
            }
        }
    }
}

impl Filter for Headers {
    fn hooks(&self) -> Hooks {
        let request = !self.request.is_empty() || !self.keep.is_empty();
        let response = !self.response.is_empty();
        (if request { Hooks::REQUEST } else { Hooks::NONE })
            | (if response { Hooks::RESPONSE } else { Hooks::NONE })
    }

    fn guards(&self) -> FieldGuards {
        let read = self.request.values().chain(self.response.values()).flat_map(Template::guarded);
        let request = self.request.guarded().into_iter().chain(read).collect();
        FieldGuards { request, response: self.response.guarded() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if !self.keep.is_empty() {
            *cx.state::<Kept>() = self.keep.take(head, cx);
        }
        let caller = cx.caller();
        let rendered = self.request.render(&Values::of(head, cx));
        if self.request.only_forwards {
            cx.unreveal(Revealed::ADDRESS, caller);
        }
        self.request.apply(&mut head.headers, &rendered);
        Flow::Continue
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let kept = match self.keep.is_empty() {
            true => Kept::default(),
            false => std::mem::take(cx.state::<Kept>()),
        };
        let rendered = self.response.render(&Values::later(cx, &self.keep, &kept, head));
        self.response.apply(&mut head.headers, &rendered);
        Flow::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;
    use weir_wire::tls::PeerCertificate;

    #[tokio::test]
    async fn edits_requests() {
        let settings = json!({ "request": {
            "set": { "x-a": "1", "X-New": "2" }, "add": { "x-b": "3" }, "remove": ["x-c"]
        }});
        let mut exchange = run(&KIND, settings, "GET /\nX-A: 0\nx-a: 00\nX-B: 0\nx-c: 0\nx-d: 0").await;
        exchange.expect_continue().expect_header("x-a", "1").expect_header("x-new", "2");
        exchange.expect_no_header("x-c").expect_header("x-d", "0");
        assert_eq!(exchange.header("x-b"), ["0", "3"]);
    }

    #[tokio::test]
    async fn removes_by_a_part_of_the_name() {
        let settings = json!({ "request": { "remove": ["x-in-*", "*-token", "*secret*", "content-*"] },
            "response": { "remove": ["x-*"] } });
        let request = "POST /\nX-In-A: 1\nx_in_b: 2\nx-in: 3\nA-TOKEN: 4\na-tokens: 5\nmysecretword: 6\n\
                       content-type: 7\ncontent-length: 0\nhost: h\nin-: 8";
        let mut exchange = run(&KIND, settings, request).await;
        exchange.expect_continue().expect_no_header("x-in-a").expect_no_header("x_in_b");
        exchange
            .expect_no_header("a-token")
            .expect_no_header("mysecretword")
            .expect_no_header("content-type");
        exchange.expect_header("x-in", "3").expect_header("a-tokens", "5").expect_header("in-", "8");
        exchange.response("200\nX-A: 1\nServer: x").expect_no_header("x-a").expect_header("server", "x");
        for (pattern, name, is) in [
            ("*-length", "content-length", true),
            ("x-*", "x", false),
            ("*a*", "b", false),
            ("*ab", "b", false),
        ] {
            assert_eq!(Pattern::read(pattern).unwrap().matches(name.as_bytes()), is, "{pattern} {name}");
        }
        assert!(
            is_of_gateway(b"Content-Length") && is_of_gateway(b"HOST") && !is_of_gateway(b"content-type")
        );
    }

    #[tokio::test]
    async fn edits_responses() {
        let settings = json!({ "response": {
            "set": { "x-frame-options": "DENY" }, "add": { "set-cookie": "b=2" }, "remove": ["server"]
        }});
        let mut exchange = run(&KIND, settings, "GET /").await;
        let response = exchange.response("200\nServer: x\nSet-Cookie: a=1");
        response.expect_no_header("server").expect_header("x-frame-options", "DENY");
        let cookies: Vec<_> = response.head.headers.get_all("set-cookie").collect();
        assert_eq!(cookies, [b"a=1", b"b=2"]);
    }

    #[tokio::test]
    async fn placeholders() {
        let settings = json!({ "request": { "set": {
            "a": "{client} {scheme}://{authority}{path}?{query} {method}",
            "b": "{host}/{route}/{{{consumer}}}", "c": "{request_id}"
        }}});
        let mut stand = Stand::new(&KIND, settings).client("::ffff:10.0.0.1").tls();
        let mut exchange = stand.build().request("POST /x%7e?q=1\nHost: a:81\nc: forged").await;
        exchange
            .expect_header("a", "10.0.0.1 https://a:81/x~?q=1 POST")
            .expect_header("b", "a/test/{}")
            .expect_no_header("c");
    }

    #[tokio::test]
    async fn what_the_client_showed() {
        let settings = json!({ "request": { "set": {
            "a": "{tls_client_subject}|{tls_client_san}|{tls_client_fingerprint}", "b": "{tls_client_subject}"
        } } });
        let mut anonymous = Stand::new(&KIND, settings.clone());
        anonymous.build().request("GET /\nb: forged").await.expect_header("a", "||").expect_no_header("b");
        let certificate = PeerCertificate {
            subject: "CN=shop".to_owned(),
            san: "dns:a,dns:b".to_owned(),
            fingerprint: "0a".to_owned(),
            ..PeerCertificate::default()
        };
        let mut stand = Stand::new(&KIND, settings).tls().certificate(certificate);
        stand.build().request("GET /").await.expect_header("a", "CN=shop|dns:a,dns:b|0a");
    }

    #[tokio::test]
    async fn a_response_value_remembers_the_request() {
        let settings = json!({ "response": { "set": { "x-was": "{method} {path} {consumer}" } } });
        let consumer = Consumer { name: "shop".to_owned(), ..Consumer::default() };
        let mut stand = Stand::new(&KIND, settings).consumer(consumer).named();
        let mut exchange = stand.build().request("GET /a").await;
        exchange.response("200").expect_header("x-was", "GET /a shop");
    }

    #[test]
    fn only_used_hooks_cost() {
        let hooks = |settings| {
            let settings: HeadersSettings = serde_json::from_value(settings).unwrap();
            let compile = |edit: EditSettings| {
                let one = |(n, v): (String, String)| (FieldName::new(&n).unwrap(), Template::literally(&v));
                Edit { set: edit.set.into_iter().map(one).collect(), ..Edit::default() }
            };
            let (request, response) = (compile(settings.request), compile(settings.response));
            Headers { request, response, keep: Keep::default() }.hooks()
        };
        assert_eq!(hooks(json!({ "request": { "set": { "a": "b" } } })), Hooks::REQUEST);
        assert_eq!(hooks(json!({ "response": { "set": { "a": "b" } } })), Hooks::RESPONSE);
    }

    #[test]
    fn mistakes() {
        let mistakes = |settings| Stand::new(&KIND, settings).mistakes();
        let several = mistakes(json!({
            "request": { "set": { "a b": "1", "x": "{clinet}", "y": "a\r\nb" }, "remove": ["content-length"] },
            "response": { "add": { "connection": "close" } }
        }));
        assert_eq!(several.len(), 5, "{several:#?}");
        assert!(several.iter().any(|m| m.starts_with("request.set.x: ") && m.contains("{client}")));
        assert!(several.iter().any(|m| m.starts_with("request.remove[0]: `content-length`")));
        assert!(mistakes(json!({ "request": { "set": { "host": "a" } } }))[0].contains("rewrite"));
        assert!(mistakes(json!({ "request": { "set": { "a": "1", "A": "2" } } }))[0].contains("twice"));
        for name in ["*", "**", "x-*-y", "x*y*"] {
            let said = mistakes(json!({ "request": { "remove": [name] } }));
            assert!(
                said[0].starts_with("request.remove[0]: ") && said[0].contains("x-internal-*"),
                "{said:?}"
            );
        }
        assert!(mistakes(json!({}))[0].contains("nothing"));
        assert!(mistakes(json!({ "set": {} }))[0].contains("unknown key"));
    }
}
