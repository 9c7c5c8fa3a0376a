//! `forward_auth`: asks a service of yours whether a request may pass.

use super::prelude::*;
use super::shared::allow_name;
use crate::config::diagnostic::nearest_name;
use crate::route::{Slashes, canonical};
use weir_h1::FieldName;

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<ForwardAuthSettings>("forward_auth").with_causes(&[&AUTH_UNAVAILABLE]);

static AUTH_UNAVAILABLE: Cause = Cause {
    code: "auth_unavailable",
    status: 503,
    meaning: "The service that decides whether the request may pass gave no answer.",
    change: "upstreams.*: the one that the filter forward_auth names",
};

/// Asks a service of yours whether a request may pass, with a request of its own without a body.
///
/// A status from 200 to 299 lets the request pass. Any other is the answer to the client, with its body (at most 64 KiB)
/// and its fields `cache-control`, `content-type`, `location`, `proxy-authenticate`, `retry-after`, `set-cookie` and
/// `www-authenticate`. No answer within the upstream's timeouts is a 503: nothing passes unasked.
///
/// The service is told of the request by `x-forwarded-method`, `-proto`, `-host`, `-uri` (canonical path and query) and
/// `-for` (the client's address), as by Traefik and Caddy.
///
/// ```yaml
/// - forward_auth: { upstream: auth, path: /verify, copy: [ x-user, x-groups ] }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForwardAuthSettings {
    /// Name of the upstream that decides.
    upstream: String,
    /// Path, with or without a query, that is asked. Default `/`.
    #[serde(default = "root")]
    path: String,
    /// Method that is used. Default `GET`.
    #[serde(default = "get")]
    method: String,
    /// Fields of the request that the service sees. Default `authorization` and `cookie`. Those that tell of the request
    /// are always the gateway's own.
    #[serde(default = "credentials")]
    copy_request: Vec<HeaderName>,
    /// Fields of the service's answer that are set on the request. What the client sent under these names is removed
    /// also where the answer has none, so that nobody can forge them. Default none.
    #[serde(default)]
    copy: Vec<HeaderName>,
}

struct ForwardAuth {
    settings: ForwardAuthSettings,
    names: Names,
}

/// The names of the fields that tell of the request.
struct Names {
    forwarded_for: FieldName,
    host: FieldName,
    method: FieldName,
    proto: FieldName,
    uri: FieldName,
}

/// Fields of a refusal that the client gets: what it needs to log in, to wait, and to read the body.
const ANSWERED: [&str; 7] = [
    "cache-control",
    "content-type",
    "location",
    "proxy-authenticate",
    "retry-after",
    "set-cookie",
    "www-authenticate",
];

fn root() -> String {
    "/".to_owned()
}

fn get() -> String {
    "GET".to_owned()
}

fn credentials() -> Vec<HeaderName> {
    vec![HeaderName::fixed("authorization"), HeaderName::fixed("cookie")]
}

impl IntoFilter for ForwardAuthSettings {
    type Filter = ForwardAuth;

    fn into_filter(self, build: &mut Build<'_>) -> Option<ForwardAuth> {
        let before = build.mistakes.len();
        if !build.upstreams.contains(&self.upstream) {
            let hint = match nearest_name(&self.upstream, build.upstreams.iter().map(String::as_str)) {
                Some(near) => format!("write {near}"),
                None => "name one that stands under `upstreams`".to_owned(),
            };
            build.refuse("upstream", format!("there is no upstream `{}`", self.upstream), Some(hint));
        }
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        if let Err(e) = canonical(path.as_bytes(), Slashes::Keep, &mut Vec::new()) {
            build.refuse("path", e.to_string(), Some("write it as in a URL: /verify".to_owned()));
        }
        if !query.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
            build.refuse("path", "the query holds spaces, `#` or non-ASCII", Some("escape them".to_owned()));
        }
        if FieldName::new(&self.method).is_err() || self.method == "CONNECT" {
            build.refuse("method", format!("`{}` cannot be used", self.method), Some("write GET".to_owned()));
        }
        for (key, names) in [("copy_request", &self.copy_request), ("copy", &self.copy)] {
            for (i, name) in names.iter().enumerate() {
                allow_name(build, &format!("{key}[{i}]"), name);
            }
        }
        (build.mistakes.len() == before).then(|| ForwardAuth { settings: self, names: Names::new() })
    }
}

impl Names {
    fn new() -> Self {
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        Self {
            forwarded_for: name("x-forwarded-for"),
            host: name("x-forwarded-host"),
            method: name("x-forwarded-method"),
            proto: name("x-forwarded-proto"),
            uri: name("x-forwarded-uri"),
        }
    }

    /// Whether one of them is `name`: what the client sent as such must not speak for us.
    fn has(&self, name: &FieldName) -> bool {
        [&self.forwarded_for, &self.host, &self.method, &self.proto, &self.uri].contains(&name)
    }
}

impl Filter for ForwardAuth {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn guards(&self) -> FieldGuards {
        let ForwardAuthSettings { copy, copy_request, .. } = &self.settings;
        let names = copy.iter().chain(copy_request);
        FieldGuards { request: names.map(|name| (**name).clone()).collect(), response: Vec::new() }
    }

    fn on_request(&self, _: &mut RequestHead, _: &mut Cx) -> Flow {
        Flow::Wait
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let question = self.question(head, cx);
            match cx.call(&self.settings.upstream, question).await {
                Ok(answer) if (200..300).contains(&answer.status) => self.pass(head, &answer),
                Ok(answer) if (300..600).contains(&answer.status) => Flow::Answer(told(answer)),
                _ => Flow::refuse(&AUTH_UNAVAILABLE),
            }
        })
    }
}

impl ForwardAuth {
    fn question(&self, head: &RequestHead, cx: &Cx) -> CallRequest {
        let Self { settings, names } = self;
        let mut headers = Vec::with_capacity(5 + settings.copy_request.len());
        for name in settings.copy_request.iter().filter(|name| !names.has(name)) {
            let values = head.headers.get_all(name.as_str());
            headers.extend(values.map(|value| ((**name).clone(), value.to_vec())));
        }
        let mut uri = head.routed_path().to_vec();
        if let Some(query) = head.query() {
            uri.push(b'?');
            uri.extend_from_slice(query);
        }
        let proto: &[u8] = if cx.tls { b"https" } else { b"http" };
        headers.push((names.method.clone(), head.method_name().to_vec()));
        headers.push((names.proto.clone(), proto.to_vec()));
        if !head.asked_authority().is_empty() {
            headers.push((names.host.clone(), head.asked_authority().to_vec()));
        }
        headers.push((names.uri.clone(), uri));
        headers.push((names.forwarded_for.clone(), cx.client.to_canonical().to_string().into_bytes()));
        // HTTP/1.0 may come without a Host; the question needs one.
        let authority = match head.asked_authority() {
            b"" => settings.upstream.as_bytes(),
            authority => authority,
        };
        CallRequest {
            method: settings.method.clone(),
            target: settings.path.clone(),
            authority: authority.to_vec(),
            headers,
            body: Bytes::new(),
            limit: CALL_BODY_BYTES,
        }
    }

    fn pass(&self, head: &mut RequestHead, answer: &CallAnswer) -> Flow {
        for name in &self.settings.copy {
            head.headers.remove(name);
            for (_, value) in answer.headers.iter().filter(|(n, _)| *n == **name) {
                if head.headers.append(name, value).is_err() {
                    return Flow::refuse(&AUTH_UNAVAILABLE);
                }
            }
        }
        Flow::Continue
    }
}

/// What the client gets of a refusal.
fn told(answer: CallAnswer) -> Box<Answer> {
    let CallAnswer { status, mut headers, body } = answer;
    headers.retain(|(name, _)| ANSWERED.iter().any(|a| a.eq_ignore_ascii_case(name.as_str())));
    Box::new(Answer { status, headers, body: body.into() })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stand;
    use super::*;
    use crate::error::CONNECT_REFUSED;
    use serde_json::{Value, json};

    fn stand(settings: Value) -> Stand {
        Stand::new(&KIND, settings).upstream("auth")
    }

    fn answer(status: u16, headers: &[(&str, &str)]) -> CallAnswer {
        let field = |(n, v): &(&str, &str)| (FieldName::new(n).unwrap(), v.as_bytes().to_vec());
        CallAnswer { status, headers: headers.iter().map(field).collect(), body: "body".into() }
    }

    #[tokio::test]
    async fn a_2xx_lets_pass_and_sets_what_it_says() {
        let settings = json!({ "upstream": "auth", "copy": ["x-user", "x-groups"] });
        let yes = answer(204, &[("X-User", "ann"), ("x-other", "1")]);
        let mut stand = stand(settings).answer(Ok(yes));
        let request = "GET /\nx-user: root\nX-Groups: admin\nx-other: 0";
        stand
            .build()
            .request(request)
            .await
            .expect_continue()
            .expect_header("x-user", "ann")
            .expect_no_header("x-groups")
            .expect_header("x-other", "0");
    }

    #[tokio::test]
    async fn the_service_is_told_of_the_request() {
        let settings = json!({
            "upstream": "auth", "path": "/verify?x=1", "method": "HEAD",
            "copy_request": ["cookie", "x-forwarded-for"]
        });
        let mut stand = stand(settings).client("::ffff:10.0.0.1").tls().answer(Ok(answer(200, &[])));
        let request = "PUT /%61?b=1\nHost: a:81\nCookie: c=1\nAuthorization: no\nX-Forwarded-For: forged";
        let exchange = stand.build().request(request).await;
        let (upstream, call) = exchange.calls().remove(0);
        assert_eq!((upstream.as_str(), call.method.as_str()), ("auth", "HEAD"));
        assert_eq!((call.target.as_str(), call.authority.as_slice()), ("/verify?x=1", &b"a:81"[..]));
        let fields: Vec<_> =
            call.headers.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v))).collect();
        assert_eq!(
            fields,
            [
                "cookie: c=1",
                "x-forwarded-method: PUT",
                "x-forwarded-proto: https",
                "x-forwarded-host: a:81",
                "x-forwarded-uri: /a?b=1",
                "x-forwarded-for: 10.0.0.1",
            ]
        );
    }

    #[tokio::test]
    async fn any_other_status_is_the_answer() {
        for status in [302, 401, 403, 500] {
            let fields =
                [("Location", "/login"), ("set-cookie", "s=1"), ("x-secret", "1"), ("connection", "close")];
            let mut stand = stand(json!({ "upstream": "auth" })).answer(Ok(answer(status, &fields)));
            let mut exchange = stand.build().request("GET /").await;
            exchange
                .expect_status(status)
                .expect_header("location", "/login")
                .expect_header("set-cookie", "s=1");
            exchange.expect_no_header("x-secret").expect_no_header("connection");
            assert!(
                matches!(&exchange.flow, Flow::Answer(a) if matches!(&a.body, Body::Bytes(b) if b == "body"))
            );
        }
    }

    #[tokio::test]
    async fn no_answer_lets_nothing_pass() {
        for none in [Err(&CONNECT_REFUSED), Ok(answer(101, &[])), Ok(answer(0, &[])), Ok(answer(999, &[]))] {
            let mut stand = stand(json!({ "upstream": "auth" })).answer(none);
            stand.build().request("GET /").await.expect_status(503).expect_cause(&AUTH_UNAVAILABLE);
        }
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_copied_lets_nothing_pass() {
        let split = answer(200, &[("x-user", "a\r\nb: c")]);
        let mut stand = stand(json!({ "upstream": "auth", "copy": ["x-user"] })).answer(Ok(split));
        stand.build().request("GET /").await.expect_cause(&AUTH_UNAVAILABLE);
    }

    #[test]
    fn mistakes() {
        assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("upstream"));
        let all = json!({
            "upstream": "atuh", "path": "verify", "method": "GET /", "copy": ["host"], "copy_request": ["te"]
        });
        let mistakes = stand(all).mistakes();
        assert_eq!(mistakes.len(), 5, "{mistakes:#?}");
        assert!(mistakes[0].contains("write auth"));
    }
}
