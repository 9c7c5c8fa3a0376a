//! `errors`: the operator's own pages or redirects in place of the gateway's errors and, if configured, an upstream's.
//! `settings` maps errors to them, `elsewhere` has redirects and the pages of upstreams.

mod elsewhere;
mod settings;

use super::prelude::*;
use super::shared::page::Pages;
use elsewhere::{Asked as OfRequest, Elsewhere, Fetched};
use settings::{ErrorsSettings, StatusSet};
use std::collections::HashMap;
use weir_filter::reason;
use weir_filter::template::{Keep, Kept, Template, Values, Var};
use weir_h1::FieldName;

pub(super) static KIND: FilterKind = FilterKind::made_from::<ErrorsSettings>("errors")
    .with_causes(&[&UPSTREAM_ERROR])
    .without_access()
    .judged_by_head();

static UPSTREAM_ERROR: Cause = Cause {
    code: "upstream_error",
    status: 502,
    meaning: "The upstream answered with an error, and the gateway replaced it with its own page.",
    change: "`upstream` of the filter errors; the access log has the status and the endpoint",
    nature: Nature::Failure,
    ..Cause::USUAL
};

/// The placeholders of error pages in addition to the usual ones, in the order of [`Errors::values`].
const PLACEHOLDERS: [&str; 4] = ["cause", "detail", "reason", "status"];

/// Fields that describe the replaced content.
const OF_CONTENT: [&str; 12] = [
    "accept-ranges",
    "cache-control",
    "content-digest",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "etag",
    "expires",
    "last-modified",
];

/// Fields of an upstream's error that are kept: how to retry or log in, and what the client needs in any case.
const OF_UPSTREAM: [&str; 7] =
    ["allow", "date", "proxy-authenticate", "retry-after", "set-cookie", "vary", "www-authenticate"];

/// Fields that say how to log in or retry. After a redirect they would be about another resource.
const OF_ERROR: [&str; 4] = ["allow", "proxy-authenticate", "retry-after", "www-authenticate"];

static PAGE_FAILED: Figure = Figure::counter(
    "page_failed",
    "weir_errors_page_failed",
    "Error pages of upstreams that could not be fetched.",
);

struct Errors {
    by_cause: HashMap<String, Instead>,
    by_status: HashMap<u16, Instead>,
    /// By the first digit of the status: one for 4xx, one for 5xx.
    by_class: [Option<Instead>; 2],
    /// Statuses that are also replaced in responses of others.
    upstream: StatusSet,
    /// Request values that pages need, because the request no longer exists then.
    keep: Keep,
    /// An upstream makes a page, and sees a part of the request.
    asks: bool,
    names: Names,
}

/// What takes the place of an error.
enum Instead {
    Elsewhere(Elsewhere),
    Fetched(Fetched),
    Pages(Pages),
}

/// What is kept of a request.
#[derive(Default)]
struct Held {
    kept: Kept,
    asked: OfRequest,
}

struct Names {
    cache_control: FieldName,
    content_type: FieldName,
    vary: FieldName,
}

impl Filter for Errors {
    fn hooks(&self) -> Hooks {
        let request = if self.keep.is_empty() && !self.asks { Hooks::NONE } else { Hooks::REQUEST };
        request | Hooks::RESPONSE | Hooks::UNROUTED
    }

    fn guards(&self) -> FieldGuards {
        let read = self.all().flat_map(Instead::templates).flat_map(Template::guarded);
        FieldGuards { request: read.collect(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let kept = self.keep.take(head, cx);
        let asked = if self.asks { OfRequest::of(head) } else { OfRequest::default() };
        *cx.state::<Held>() = Held { kept, asked };
        Flow::Continue
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let status = head.status();
        // A gRPC client gets its error in gRPC fields, with the status 200 in the head.
        if status < 400 || cx.failure().is_none_or(|failure| failure.grpc) {
            return Flow::Continue;
        }
        let cause = cx.failure().and_then(|failure| failure.cause);
        // A filter that answered with a stated reason, such as `maintenance`, sent its own page.
        if cause.is_none() && (cx.because().is_some() || !self.upstream.has(status)) {
            return Flow::Continue;
        }
        match self.instead(status, cause) {
            None => Flow::Continue,
            Some(Instead::Fetched(_)) => Flow::Wait,
            Some(instead) => {
                if cause.is_none() {
                    cx.answer_because(&UPSTREAM_ERROR);
                }
                cx.make_id();
                self.answer(instead, head, cx)
            }
        }
    }

    fn wait_response<'a>(&'a self, head: &'a mut ResponseHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let cause = cx.failure().and_then(|failure| failure.cause);
            let Some(Instead::Fetched(fetched)) = self.instead(head.status(), cause) else {
                return Flow::Continue;
            };
            cx.make_id();
            let held = self.held(cx);
            let values = self.values(head.status(), &held.kept, cx);
            let told = Values::later(cx, &self.keep, &held.kept, head);
            let request = fetched.request(&told.with(&values.0, &values.1), &held.asked);
            let Some(made) = fetched.fetch(request, cx).await else { return Flow::Continue };
            if cause.is_none() {
                cx.answer_because(&UPSTREAM_ERROR);
            }
            let mut headers = self.fields(head, cause.is_none());
            headers.extend(made.headers);
            headers.push((self.names.cache_control.clone(), b"no-store".to_vec()));
            Flow::Answer(Box::new(Answer { status: head.status(), headers, body: made.body.into() }))
        })
    }

    fn readings(&self) -> Vec<Reading> {
        let failed = self.all().map(|instead| match instead {
            Instead::Fetched(fetched) => fetched.failed(),
            _ => 0,
        });
        if self.asks { vec![Reading::one(&PAGE_FAILED, failed.sum())] } else { Vec::new() }
    }
}

impl Errors {
    fn all(&self) -> impl Iterator<Item = &Instead> {
        let by_class = self.by_class.iter().flatten();
        self.by_cause.values().chain(self.by_status.values()).chain(by_class)
    }

    /// What replaces an error: by its cause, else by its status, else by the status class.
    fn instead(&self, status: u16, cause: Option<&Cause>) -> Option<&Instead> {
        let by_cause = cause.and_then(|cause| self.by_cause.get(cause.code));
        let by_status = || self.by_status.get(&status);
        let class = usize::from(status / 100).checked_sub(4)?;
        by_cause.or_else(by_status).or_else(|| self.by_class.get(class)?.as_ref())
    }

    fn held(&self, cx: &mut Cx) -> Held {
        let none = self.keep.is_empty() && !self.asks;
        if none { Held::default() } else { std::mem::take(cx.state::<Held>()) }
    }

    fn answer(&self, instead: &Instead, head: &ResponseHead, cx: &mut Cx) -> Flow {
        let held = self.held(cx);
        let Some(failure) = cx.failure() else { return Flow::Continue };
        let values = self.values(head.status(), &held.kept, cx);
        let told = Values::later(cx, &self.keep, &held.kept, head).with(&values.0, &values.1);
        let mut headers = self.fields(head, failure.cause.is_none());
        let pages = match instead {
            Instead::Pages(pages) => pages,
            Instead::Elsewhere(elsewhere) => {
                headers.retain(|(name, _)| !OF_ERROR.iter().any(|of| name.as_str().eq_ignore_ascii_case(of)));
                headers.push((self.names.cache_control.clone(), b"no-store".to_vec()));
                return Flow::Answer(Box::new(elsewhere.answer(&told, headers)));
            }
            Instead::Fetched(_) => return Flow::Continue,
        };
        let Some(page) = pages.choose(failure.accept.as_deref()) else { return Flow::Continue };
        let body = page.render(&told);
        headers.push((self.names.content_type.clone(), page.media().as_bytes().to_vec()));
        headers.push((self.names.cache_control.clone(), b"no-store".to_vec()));
        if pages.vary() {
            headers.push((self.names.vary.clone(), b"accept".to_vec()));
        }
        Flow::Answer(Box::new(Answer { status: head.status(), headers, body: body.into() }))
    }

    /// The fields of an error that go to the client with what replaces it.
    fn fields(&self, head: &ResponseHead, of_upstream: bool) -> Vec<(FieldName, Vec<u8>)> {
        let fields = head.headers.iter().filter_map(|(name, value)| {
            let name = std::str::from_utf8(name).ok()?;
            let among = |names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
            let stays = if of_upstream { among(&OF_UPSTREAM) || is_cors(name) } else { !among(&OF_CONTENT) };
            if stays { Some((FieldName::new(name).ok()?, value.to_vec())) } else { None }
        });
        fields.collect()
    }

    /// The placeholders that depend on this response, and their values.
    fn values(&self, status: u16, kept: &Kept, cx: &Cx) -> (Vec<Var>, Vec<Vec<u8>>) {
        let failure = cx.failure();
        let code = failure.and_then(|failure| failure.cause).map_or("", |cause| cause.code);
        let detail = failure.map_or("", |failure| failure.detail.as_str());
        let told = [code, detail, reason(status), &status.to_string()].map(|text| text.as_bytes().to_vec());
        let mut vars: Vec<Var> = PLACEHOLDERS.iter().map(|name| Var::Capture((*name).to_owned())).collect();
        vars.extend(self.keep.vars().iter().cloned());
        let values = told.into_iter().chain(kept.vars.iter().cloned()).collect();
        (vars, values)
    }
}

// === impl Instead ===

impl Instead {
    /// The texts that take values of the exchange.
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let (pages, one) = match self {
            Self::Elsewhere(elsewhere) => (None, Some(elsewhere.template())),
            Self::Fetched(fetched) => (None, Some(fetched.template())),
            Self::Pages(pages) => (Some(pages), None),
        };
        pages.into_iter().flat_map(Pages::templates).chain(one)
    }
}

/// Whether a browser uses this field to decide if a page of another origin may read the response.
fn is_cors(name: &str) -> bool {
    name.get(..15).is_some_and(|begin| begin.eq_ignore_ascii_case("access-control-"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Exchange, Stand};
    use super::*;
    use serde_json::json;
    use weir_filter::error::{NO_ENDPOINT, RESPONSE_TIMEOUT};
    use weir_filter::filter::Failure;
    use weir_h1::{Limits, parse_response};

    fn failed(exchange: &mut Exchange, cause: Option<&'static Cause>, accept: &str) {
        let accept = Some(accept.as_bytes().into());
        exchange.fail(Failure { cause, detail: "<told>".to_owned(), accept, grpc: false });
    }

    /// The fields and the body of the page that replaces this response; `None` if the response stays.
    fn replaced(
        settings: serde_json::Value,
        request: &str,
        cause: Option<&'static Cause>,
        accept: &str,
        response: &str,
    ) -> Option<(Vec<String>, String)> {
        let mut stand = Stand::new(&KIND, settings).path("/u/{id}/*");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut exchange = runtime.block_on(stand.build().request(request));
        exchange.expect_continue();
        failed(&mut exchange, cause, accept);
        let mut head = ResponseHead::default();
        head.buffer_mut().extend_from_slice(format!("HTTP/1.1 {response}\r\n\r\n").as_bytes());
        parse_response(&mut head, &Limits::default()).unwrap();
        match exchange.on_response(&mut head) {
            Flow::Answer(answer) => {
                let Body::Bytes(body) = answer.body else { panic!("a page is bytes") };
                let fields =
                    answer.headers.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v)));
                Some((fields.collect(), String::from_utf8(body.to_vec()).unwrap()))
            }
            Flow::Continue => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_page_that_fits_best() {
        let settings = || {
            json!({
                "response_timeout": { "body": "cause" }, "504": { "body": "status" }, "5xx": { "body": "class" },
                "upstream": ["503"],
            })
        };
        let body =
            |cause, response| replaced(settings(), "GET /u/7/", cause, "*/*", response).map(|(_, body)| body);
        assert_eq!(body(Some(&RESPONSE_TIMEOUT), "504 x").as_deref(), Some("cause"));
        assert_eq!(body(Some(&NO_ENDPOINT), "504 x").as_deref(), Some("status"));
        assert_eq!(body(Some(&NO_ENDPOINT), "503 x").as_deref(), Some("class"));
        assert_eq!(body(Some(&NO_ENDPOINT), "404 x"), None);
        assert_eq!(body(None, "503 x").as_deref(), Some("class"));
        assert_eq!(body(None, "504 x"), None);
        assert_eq!(body(None, "200 x"), None);
    }

    #[test]
    fn values_are_escaped() {
        let settings = json!({ "5xx": [
            { "body": "<p>{status} {reason} {cause} {detail} {path} {query} {id}</p>" },
            { "body": "{\"status\":{status},\"detail\":\"{detail}\",\"q\":\"{query}\"}" },
        ]});
        let html = "<p>503 Service Unavailable no_endpoint &lt;told&gt; /u/%3C/ a=&#39;&quot; %3C</p>";
        let page = |accept| {
            replaced(settings.clone(), "GET /u/%3C/?a='\"", Some(&NO_ENDPOINT), accept, "503 x").unwrap()
        };
        assert_eq!(page("text/html,*/*;q=0.1").1, html);
        assert!(page("text/html").0.contains(&"vary: accept".to_owned()));
        let (fields, json) = page("application/json");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json, json!({ "status": 503, "detail": "<told>", "q": "a='\"" }));
        assert!(fields.contains(&"content-type: application/json".to_owned()), "{fields:?}");
    }

    #[test]
    fn redirects() {
        let location = |to: &str, request: &str| {
            let settings = json!({ "401": { "redirect": to }, "upstream": ["401"] });
            let response = "401 x\r\nWWW-Authenticate: Basic\r\nSet-Cookie: a=1\r\nX-Other: 1";
            let (fields, body) = replaced(settings, request, None, "", response).unwrap();
            assert_eq!((fields.len(), body.as_str()), (3, ""), "{fields:?}");
            assert_eq!(fields[..2], ["Set-Cookie: a=1", "cache-control: no-store"]);
            fields[2].clone()
        };
        for (to, request, expected) in [
            (
                "https://login/?rd={= request.url }",
                "GET /u/a%20b/?x=1&y=%26",
                "https://login/?rd=http%3A%2F%2Fexample.com%2Fu%2Fa%2520b%2F%3Fx%3D1%26y%3D%2526",
            ),
            ("/login?from={path}&{query}", "GET /u/1/?a=b", "/login?from=%2Fu%2F1%2F&a=b"),
            ("/login?q={query}", "GET /u/1/?a=b&c", "/login?q=a%3Db%26c"),
            ("https://{host}/u{path}#{id}", "GET /u/1/", "https://example.com/u/u/1/#1"),
            ("{path}?login", "GET /u/1/", "/u/1/?login"),
            (
                "/{= request.headers['x-a'] }?s={status}",
                "GET /u/1/\nX-A: /evil.example?a",
                "/%2Fevil.example%3Fa?s=401",
            ),
        ] {
            assert_eq!(location(to, request), format!("location: {expected}"), "{to}");
        }
    }

    async fn fetched(
        answer: Result<CallAnswer, &'static Cause>,
        path: &str,
    ) -> (Option<Answer>, Vec<(String, CallRequest)>) {
        let settings = json!({ "5xx": { "upstream": "pages", "path": path } });
        let mut stand = Stand::new(&KIND, settings).upstream("pages").answer(answer).path("/u/{id}/*");
        let running = stand.build();
        let mut exchange = running.request("GET /u/7%2Fx/?a=b\nAccept: text/html\nCookie: secret=1").await;
        failed(&mut exchange, Some(&NO_ENDPOINT), "text/html");
        let mut head = ResponseHead::default();
        head.buffer_mut().extend_from_slice(b"HTTP/1.1 503 x\r\nRetry-After: 3\r\nContent-Type: a/b\r\n\r\n");
        parse_response(&mut head, &Limits::default()).unwrap();
        assert!(matches!(exchange.on_response(&mut head), Flow::Wait));
        let flow = {
            let filter = exchange.filter();
            filter.wait_response(&mut head, &mut exchange.cx).await
        };
        let answer = match flow {
            Flow::Answer(answer) => Some(*answer),
            Flow::Continue => None,
            other => panic!("{other:?}"),
        };
        (answer, exchange.calls())
    }

    #[tokio::test]
    async fn a_page_of_an_upstream() {
        let field = |name: &str, value: &str| (FieldName::new(name).unwrap(), value.as_bytes().to_vec());
        let page = |status| CallAnswer {
            status,
            headers: vec![
                field("content-type", "text/html"),
                field("set-cookie", "b=2"),
                field("cache-control", "max-age=1"),
            ],
            body: Bytes::from_static(b"<p>sorry"),
        };
        let (answer, calls) = fetched(Ok(page(200)), "/{status}/{id}.html?was={path}").await;
        let answer = answer.unwrap();
        let fields: Vec<_> =
            answer.headers.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v))).collect();
        assert_eq!(answer.status, 503);
        assert_eq!(fields, ["Retry-After: 3", "content-type: text/html", "cache-control: no-store"]);
        assert_eq!(
            (calls[0].1.method.as_str(), calls[0].1.target.as_str()),
            ("GET", "/503/7%2Fx.html?was=%2Fu%2F7%252Fx%2F")
        );
        assert_eq!(calls[0].1.headers, [field("accept", "text/html")], "no cookie");
        for other in [Ok(page(404)), Ok(page(301)), Err(&RESPONSE_TIMEOUT)] {
            let (answer, _) = fetched(other, "/500.html").await;
            assert!(answer.is_none(), "the error stays as it is");
        }
    }

    #[test]
    fn what_of_the_answer_stays() {
        let settings = json!({ "4xx": { "body": "x" }, "5xx": { "body": "x" }, "upstream": ["4xx", "5xx"] });
        let response = "429 x\r\nRetry-After: 3\r\nX-Secret: 1\r\nContent-Type: text/html\r\nETag: \"1\"\r\n\
                        Set-Cookie: a=1\r\nAccess-Control-Allow-Origin: *";
        let (own, _) = replaced(settings.clone(), "GET /u/1/", Some(&NO_ENDPOINT), "", response).unwrap();
        let page = ["content-type: text/plain; charset=utf-8", "cache-control: no-store"];
        assert_eq!(
            own[..4],
            ["Retry-After: 3", "X-Secret: 1", "Set-Cookie: a=1", "Access-Control-Allow-Origin: *"]
        );
        assert_eq!(own[4..], page);
        let (upstream, _) = replaced(settings, "GET /u/1/", None, "", response).unwrap();
        assert_eq!(upstream[..3], ["Retry-After: 3", "Set-Cookie: a=1", "Access-Control-Allow-Origin: *"]);
        assert_eq!(upstream[3..], page);
    }

    #[test]
    fn grpc_is_left_alone() {
        let mut exchange = {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(Stand::new(&KIND, json!({ "5xx": { "body": "x" } })).build().request("POST /"))
        };
        exchange.fail(Failure { cause: Some(&NO_ENDPOINT), grpc: true, ..Failure::default() });
        exchange.response("503");
    }
}
