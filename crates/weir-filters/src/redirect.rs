//! `redirect`: sends the client to another URL.

use super::prelude::*;
use weir_filter::config::de::whole_number;
use weir_filter::error::BAD_HOST;
use weir_filter::template::{Escape, Names, Template, Values, Var};
use weir_h1::FieldName;

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<RedirectSettings>("redirect").with_causes(&[&BAD_HOST]).judged_by_head();

/// Redirects the client to another URL; no upstream sees the request.
///
/// Set either `to` or `https`. A route with `to` needs no `upstream`, and neither does a route with `https` that only
/// gets requests without TLS. Values come from the canonical path and the checked host and are escaped for URLs, so a
/// client can inject neither a line break nor another host.
///
/// ```yaml
/// - redirect: { https: true }
/// - redirect: { to: "https://www.example.com/new/{path}", status: 301 }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RedirectSettings {
    /// The target, with placeholders: a URL, or a path on the same host. Default none.
    to: Option<String>,
    /// Redirects requests without TLS to the same URL on `https` and its default port; other requests pass. For
    /// another port write `to: "https://{host}:8443{path}"` on a route of the plain listener. Default false.
    https: bool,
    /// Status of the response. Default 308: permanent and, unlike 301, keeps the method and the body (RFC 9110
    /// §15.4.9).
    status: Status,
    /// Whether the query is appended to `to`, unless `to` itself contains `{query}`. Default true.
    keep_query: bool,
}

/// A redirect status (RFC 9110 §15.4): 301 and 308 are permanent, 302, 303 and 307 temporary. 307 and 308 keep the
/// method; 303 changes it to GET.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(into = "u16")]
pub(super) struct Status(u16);

/// Every status that redirects.
pub(super) const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

struct Redirect {
    to: Template,
    status: u16,
    only_plain: bool,
    append_query: bool,
    needs_host: bool,
    location: FieldName,
}

impl Default for RedirectSettings {
    fn default() -> Self {
        Self { to: None, https: false, status: Status::default(), keep_query: true }
    }
}

impl Default for Status {
    fn default() -> Self {
        Self(308)
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a status that redirects; expected 301, 302, 303, 307 or 308";
        whole_number(deserializer, expected, |status| STATUSES.contains(status)).map(Self)
    }
}

impl From<Status> for u16 {
    fn from(status: Status) -> Self {
        status.0
    }
}

impl JsonSchema for Status {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RedirectStatus".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "enum": STATUSES })
    }
}

impl IntoFilter for RedirectSettings {
    type Filter = Redirect;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Redirect> {
        let to = match (self.to, self.https) {
            (Some(to), false) => to,
            (None, true) => "https://{host}{path}".to_owned(),
            (Some(_), true) => {
                build.refuse(
                    "to",
                    "cannot be combined with https: true",
                    Some("leave one of them out".into()),
                );
                return None;
            }
            (None, false) => {
                let hint = "write to: \"https://www.example.com{path}\", or https: true";
                build.refuse("", "says not where to", Some(hint.into()));
                return None;
            }
        };
        // Captures named `host` or `path` must not affect the shorthand.
        let names = if self.https { Names::new(None, build.vocabulary) } else { build.names() };
        let template = build.text_with("to", &to, &names)?;
        let sample = template.sample("x");
        if sample.is_empty() || !sample.iter().all(u8::is_ascii_graphic) {
            let hint = "escape other characters as in a URL: %20 for a space";
            build.refuse("to", "is not a URL: it is empty or holds spaces or non-ASCII", Some(hint.into()));
            return None;
        }
        if computes_authority(&to) {
            let message = "an expression is part of the host, or of what comes before it: a client could choose another host";
            let hint = "write scheme and host as text: https://www.example.com/{= … }; or choose among texts by `when`";
            build.refuse("to", message, Some(hint.into()));
            return None;
        }
        if let Some(name) = in_authority(&to) {
            let message = format!("`{{{name}}}` is part of the host: a client could choose another host");
            build.refuse("to", message, Some(format!("write /{{{name}}}").into()));
            return None;
        }
        let uses = |var: &Var| template.vars().any(|v| v == var);
        Some(Redirect {
            status: self.status.0,
            only_plain: self.https,
            append_query: self.keep_query && !uses(&Var::Query),
            needs_host: uses(&Var::Host) || uses(&Var::Authority),
            location: FieldName::new("location").expect("a name in the source is a token"),
            to: template,
        })
    }
}

/// Whether an expression could change the host: it stands in the authority, or the text does not begin with a scheme or
/// a path.
pub(super) fn computes_authority(to: &str) -> bool {
    let at = if to.starts_with("= ") { Some(0) } else { to.find("{=") };
    let Some(before) = at.and_then(|at| to.get(..at)) else { return false };
    match before.split_once("://") {
        Some((_, rest)) => !rest.contains(['/', '?', '#']),
        None => !(before.starts_with('/') || before.starts_with("{path}")) || before.starts_with("//"),
    }
}

/// The first placeholder in a URL's authority with which a client could change the host: `https://example.com{rest}`
/// with `.evil.com` or `@evil.com`. The path always begins with `/`, so it ends the host itself.
pub(super) fn in_authority(to: &str) -> Option<&str> {
    let (_, rest) = to.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let mut host = &rest[..end];
    while let Some((_, after)) = host.split_once('{') {
        let (name, behind) = after.split_once('}')?;
        match name {
            "path" => return None,
            "authority" | "host" => host = behind,
            other => return Some(other),
        }
    }
    None
}

impl Filter for Redirect {
    fn guards(&self) -> FieldGuards {
        FieldGuards { request: self.to.guarded().collect(), response: Vec::new() }
    }

    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | if self.only_plain { Hooks::ANSWERS_PLAIN } else { Hooks::ANSWERS }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        if self.only_plain && cx.tls {
            return Flow::Continue;
        }
        // An HTTP/1.0 request may have no Host.
        if self.needs_host && head.asked_authority().is_empty() {
            return Flow::refuse(&BAD_HOST);
        }
        let mut to = Vec::new();
        self.to.render(&Values::of(head, cx), Escape::Url, &mut to);
        keep_host(&mut to, &self.to);
        if self.append_query
            && let Some(query) = head.query()
        {
            append_query(&mut to, query);
        }
        Flow::Answer(Box::new(Answer {
            status: self.status,
            headers: vec![(self.location.clone(), to)],
            body: Body::default(),
        }))
    }
}

/// Removes leading slashes that would mean another host (RFC 3986 §4.2): only the operator may write `//`.
pub(super) fn keep_host(to: &mut Vec<u8>, template: &Template) {
    // Browsers read `\` as `/` (WHATWG URL).
    let slashes = to.iter().take_while(|&&b| matches!(b, b'/' | b'\\')).count();
    if to.starts_with(b"/") && slashes > 1 && !template.beginning().starts_with(b"//") {
        to.drain(1..slashes);
    }
}

/// Inserts a query after any existing query and before a fragment.
pub(super) fn append_query(url: &mut Vec<u8>, query: &[u8]) {
    let end = memchr::memchr(b'#', url).unwrap_or(url.len());
    let fragment = url.split_off(end);
    url.push(if url.contains(&b'?') { b'&' } else { b'?' });
    url.extend_from_slice(query);
    url.extend_from_slice(&fragment);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stand, run};
    use super::*;
    use serde_json::json;
    use weir_filter::route::variables::{Bounds, Vocabulary};

    fn template(text: &str) -> Template {
        Template::parse(
            text,
            &Names::new(None, &Vocabulary::without_maps(Bounds { head_bytes: 32 * 1024, fields: 100 })),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn sends_elsewhere() {
        for (to, request, location) in [
            ("https://b.example{path}", "GET /x%7e?a=1", "https://b.example/x~?a=1"),
            ("{scheme}://{authority}/new", "GET /\nHost: a:81", "http://a:81/new"),
            ("https://{host}:8443{path}", "GET /x\nHost: [::1]:81", "https://[::1]:8443/x"),
            ("/new?b=2", "GET /?a=1", "/new?b=2&a=1"),
            ("/new#part", "GET /?a=1", "/new?a=1#part"),
            ("/find?was={query}", "GET /?a=1", "/find?was=a=1"),
        ] {
            let mut exchange = run(&KIND, json!({ "to": to }), request).await;
            exchange.expect_status(308).expect_header("location", location);
        }
    }

    #[tokio::test]
    async fn captures() {
        let mut stand = Stand::new(&KIND, json!({ "to": "/new/{path}" })).path("/old/{path*}");
        stand.build().request("GET /old/a/b%2fc").await.expect_header("location", "/new/a/b%2Fc");
    }

    #[tokio::test]
    async fn https_only_for_plain_requests() {
        let mut plain = Stand::new(&KIND, json!({ "https": true }));
        let mut exchange = plain.build().request("GET /a?b=1\nHost: a.example:8080").await;
        exchange.expect_status(308).expect_header("location", "https://a.example/a?b=1");
        plain.tls().build().request("GET /a").await.expect_continue();
    }

    #[tokio::test]
    async fn status_and_query() {
        let settings = json!({ "to": "/b", "status": 302, "keep_query": false });
        run(&KIND, settings, "POST /a?x").await.expect_status(302).expect_header("location", "/b");
    }

    #[tokio::test]
    async fn a_client_cannot_choose_the_host() {
        let filter = Stand::new(&KIND, json!({ "to": "{path}" })).build();
        let mut cx = filter.request("GET /").await.cx;
        for path in [&b"//evil.example/"[..], b"/\\evil.example/", b"/\\/evil.example/"] {
            let mut head = super::super::testing::request_head("GET /");
            head.set_path(path).unwrap();
            let to = template("{path}");
            let location = FieldName::new("location").unwrap();
            let redirect = Redirect {
                to,
                status: 308,
                only_plain: false,
                append_query: true,
                needs_host: false,
                location,
            };
            let Flow::Answer(answer) = redirect.on_request(&mut head, &mut cx) else { panic!("no answer") };
            assert_eq!(answer.headers[0].1, b"/evil.example/", "{}", path.escape_ascii());
        }
    }

    #[tokio::test]
    async fn no_host_no_redirect() {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(b"GET / HTTP/1.0\r\n\r\n");
        weir_h1::parse_request(&mut head, &weir_h1::Limits::default()).unwrap();
        let mut cx = run(&KIND, json!({ "https": true }), "GET /").await.cx;
        let to = template("https://{host}/");
        let location = FieldName::new("location").unwrap();
        let redirect =
            Redirect { to, status: 308, only_plain: true, append_query: true, needs_host: true, location };
        assert!(matches!(redirect.on_request(&mut head, &mut cx), Flow::Refuse(r) if *r.cause == BAD_HOST));
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!({}), "not where to"),
            (json!({ "to": "/a", "https": true }), "leave one"),
            (json!({ "to": "/a", "status": 200 }), "308"),
            (json!({ "to": "/a b" }), "%20"),
            (json!({ "to": "/a\r\nb" }), "%20"),
            (json!({ "to": "" }), "empty"),
            (json!({ "to": "/{rest}" }), "not a placeholder"),
        ] {
            let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
            assert!(mistakes[0].contains(expected), "{settings}: {mistakes:#?}");
        }
    }

    #[test]
    fn a_client_can_not_write_the_host() {
        for (to, bent) in [
            ("https://www.example.com{path}", None),
            ("https://{host}{path}", None),
            ("https://{host}/{rest}", None),
            ("https://www.example.com{rest}", Some("rest")),
            ("https://{client}/", Some("client")),
            ("/{rest}", None),
        ] {
            assert_eq!(in_authority(to), bent, "{to}");
        }
        for (to, computes) in [
            ("{path}?u={= request.path }", false),
            ("/a/{= request.path }", false),
            ("https://a.example/{= request.path }", false),
            ("https://{= request.path }", true),
            ("{host}/{= request.path }", true),
            ("//{= request.path }", true),
        ] {
            assert_eq!(computes_authority(to), computes, "{to}");
        }
    }
}
