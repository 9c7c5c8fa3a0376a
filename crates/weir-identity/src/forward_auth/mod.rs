//! `forward_auth`: asks a service of the operator whether a request may pass. `decisions` caches the service's
//! answers.

mod decisions;

use super::prelude::*;
use decisions::{Decision, Decisions};
use std::rc::Rc;
use weir_filter::route::{Slashes, canonical};
use weir_h1::FieldName;

/// The filter, for the registry.
pub static KIND: FilterKind =
    FilterKind::made_from::<ForwardAuthSettings>("forward_auth").with_causes(&[&AUTH_UNAVAILABLE]);

static AUTH_UNAVAILABLE: Cause = Cause {
    code: "auth_unavailable",
    status: 503,
    meaning: "The authorization service did not answer.",
    change: "the upstream that the filter forward_auth names",
    ..Cause::USUAL
};

/// Asks a service of yours, in a separate request, whether a request may pass.
///
/// A status from 200 to 299 lets the request pass. Any other response goes to the client, with its body (at most 64
/// KiB) and its fields `cache-control`, `content-type`, `location`, `proxy-authenticate`, `retry-after`, `set-cookie`
/// and `www-authenticate`. If the service does not answer within the upstream's timeouts, the client gets 503: no
/// request passes without a decision.
///
/// The request to the service carries `x-forwarded-method`, `-proto`, `-host`, `-uri` (canonical path and query) and
/// `-for` (the client's address), as Traefik and Caddy send them.
///
/// With `cache`, each core remembers up to 1,024 decisions, and identical questions at the same time are sent once.
/// Questions are identical if they agree in the client's address, method, scheme, host, path, query and the fields
/// that the service sees. An answer that sets a cookie or has `cache-control: no-store` is valid for one request: it
/// is neither remembered nor shared. A request whose body is sent along (`body`) is never answered from the cache.
///
/// ```yaml
/// - forward_auth: { upstream: auth, path: /verify, copy: [ x-user, x-groups ] }
/// - forward_auth: { upstream: auth, copy_request: [ cookie ], cache: { headers: [ cookie ], time: 30s } }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForwardAuthSettings {
    /// Name of the upstream that decides.
    upstream: String,
    /// Path of the request to the service, with or without a query. Default `/`.
    #[serde(default = "root")]
    path: String,
    /// Method of the request to the service. Default `GET`; `POST` with `body`.
    #[serde(default)]
    method: Option<String>,
    /// Request fields that the service sees. Default `authorization` and `cookie`. The gateway always sets the fields
    /// that describe the request itself.
    #[serde(default = "credentials")]
    copy_request: Vec<HeaderName>,
    /// Fields of the service's answer to set on the request. The client's own fields of these names are removed even
    /// if the answer has none, so clients cannot forge them. Default none.
    #[serde(default)]
    copy: Vec<HeaderName>,
    /// Fields of the service's answer to add to the client's response, such as `set-cookie`, if the request passes.
    /// Default none.
    #[serde(default)]
    copy_response: Vec<HeaderName>,
    /// Also sends the request's body, up to this size; a longer body gets 413. The body stays in memory until the
    /// service has answered. Default: the service does not see it.
    #[serde(default)]
    body: Option<ByteSize>,
    /// Remembers decisions. Default: the service is asked for each request.
    #[serde(default)]
    cache: Option<CacheSettings>,
}

/// How decisions are remembered.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CacheSettings {
    /// Request fields that distinguish questions, in addition to the client's address, method, scheme, host, path and
    /// query. All of `copy_request` must be among them.
    headers: Vec<HeaderName>,
    /// How long a decision is remembered; `0s` only merges identical questions at the same time.
    time: Duration,
}

struct ForwardAuth {
    settings: ForwardAuthSettings,
    names: Names,
    method: String,
    decisions: Option<Decisions>,
}

/// Fields to add to the client's response.
#[derive(Default)]
struct ForClient(Vec<(FieldName, Vec<u8>)>);

/// Longest body that can be sent along.
const MAX_BODY: u64 = 16 * 1024 * 1024;

/// The names of the fields that describe the request.
struct Names {
    forwarded_for: FieldName,
    host: FieldName,
    method: FieldName,
    proto: FieldName,
    uri: FieldName,
    content_type: FieldName,
    content_encoding: FieldName,
}

/// Fields of a refusal that the client gets: those it needs to log in, to wait, and to read the body.
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

fn credentials() -> Vec<HeaderName> {
    vec![HeaderName::fixed("authorization"), HeaderName::fixed("cookie")]
}

impl IntoFilter for ForwardAuthSettings {
    type Filter = ForwardAuth;

    fn into_filter(self, build: &mut Build<'_>) -> Option<ForwardAuth> {
        let before = build.mistakes.len();
        build.needs_upstream("upstream", &self.upstream);
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        if let Err(e) = canonical(path.as_bytes(), Slashes::Keep, &mut Vec::new()) {
            build.refuse("path", e.to_string(), Some("write it as in a URL: /verify".into()));
        }
        if !query.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
            build.refuse("path", "the query holds spaces, `#` or non-ASCII", Some("escape them".into()));
        }
        let method =
            self.method.as_deref().unwrap_or(if self.body.is_some() { "POST" } else { "GET" }).to_owned();
        if FieldName::new(&method).is_err() || method == "CONNECT" {
            build.refuse("method", format!("`{method}` cannot be used"), Some("write GET".into()));
        }
        if let Some(body) = self.body.filter(|body| !(1..=MAX_BODY).contains(&body.get())) {
            let hint = Some("write 64KiB, or leave it out".into());
            build.refuse("body", format!("{body} cannot be held; expected at most 16MiB"), hint);
        }
        if let Some(cache) = &self.cache {
            self.check_cache(cache, build);
        }
        let lists = [
            ("copy_request", &self.copy_request),
            ("copy", &self.copy),
            ("copy_response", &self.copy_response),
        ];
        for (key, names) in lists {
            for (i, name) in names.iter().enumerate() {
                allow_name(build, &format!("{key}[{i}]"), name);
            }
        }
        let decisions = self.cache.as_ref().map(|cache| Decisions::new(cache.time.get()));
        (build.mistakes.len() == before).then(|| ForwardAuth {
            settings: self,
            names: Names::new(),
            method,
            decisions,
        })
    }
}

impl ForwardAuthSettings {
    /// Everything that the service may decide by must distinguish decisions, otherwise one client could get
    /// another's.
    fn check_cache(&self, cache: &CacheSettings, build: &mut Build<'_>) {
        for name in self.copy_request.iter().filter(|name| !cache.headers.contains(name)) {
            let name = name.as_str();
            let message = format!("the service sees `{name}`, but the cache of decisions ignores it");
            let hint = format!("add {name}, or name in `copy_request` what the service needs");
            build.refuse("cache.headers", message, Some(hint.into()));
        }
        if cache.time.get() > std::time::Duration::from_secs(24 * 3600) {
            build.refuse("cache.time", "is longer than a day", Some("write 30s, or 5m".into()));
        }
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
            content_type: name("content-type"),
            content_encoding: name("content-encoding"),
        }
    }

    /// Whether `name` is one of the fields that only we may set.
    fn has(&self, name: &FieldName) -> bool {
        [&self.forwarded_for, &self.host, &self.method, &self.proto, &self.uri].contains(&name)
    }
}

impl Filter for ForwardAuth {
    fn hooks(&self) -> Hooks {
        let body = if self.settings.body.is_some() { Hooks::REQUEST_BODY } else { Hooks::NONE };
        let response = if self.settings.copy_response.is_empty() { Hooks::NONE } else { Hooks::RESPONSE };
        Hooks::REQUEST | body | response
    }

    fn guards(&self) -> FieldGuards {
        let ForwardAuthSettings { copy, copy_request, copy_response, .. } = &self.settings;
        let names = copy.iter().chain(copy_request);
        FieldGuards {
            request: names.map(|name| (**name).clone()).collect(),
            response: copy_response.iter().map(|name| (**name).clone()).collect(),
        }
    }

    fn request_body(&self, _: &RequestHead, _: &mut Cx) -> BodyUse {
        self.settings.body.map_or(BodyUse::Pass, |limit| BodyUse::Whole(limit.as_usize()))
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let known = self
            .decisions_for(cx)
            .and_then(|decisions| decisions.known(decisions.tag(head, cx, self.cached_by()), cx.core()));
        match known {
            Some(decision) => self.follow(&decision, head, cx),
            None => Flow::Wait,
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let question = self.question(head, cx);
            let ask =
                || async { self.decide(cx.core().call(&self.settings.upstream, question.clone()).await) };
            let decision = match self.decisions_for(cx) {
                Some(decisions) => {
                    let tag = decisions.tag(head, cx, self.cached_by());
                    decisions.decide(tag, cx.core(), ask).await
                }
                None => Rc::new(ask().await),
            };
            self.follow(&decision, head, cx)
        })
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        for (name, value) in std::mem::take(&mut cx.state::<ForClient>().0) {
            if !name.as_str().eq_ignore_ascii_case("set-cookie") {
                head.headers.remove(&name);
            }
            let _ = head.headers.append(&name, &value); // a value that cannot be sent is left out
        }
        Flow::Continue
    }
}

impl ForwardAuth {
    /// The cache for decisions about this request.
    fn decisions_for(&self, cx: &Cx) -> Option<&Decisions> {
        self.decisions.as_ref().filter(|_| cx.whole().is_empty())
    }

    /// The fields that distinguish questions.
    fn cached_by(&self) -> &[HeaderName] {
        self.settings.cache.as_ref().map(|cache| &cache.headers[..]).unwrap_or_default()
    }

    fn question(&self, head: &RequestHead, cx: &Cx) -> CallRequest {
        let Self { settings, names, .. } = self;
        let body = cx.share_whole();
        let mut headers = Vec::with_capacity(7 + settings.copy_request.len());
        for name in settings.copy_request.iter().filter(|name| !names.has(name)) {
            let values = head.headers.get_all(name.as_str());
            headers.extend(values.map(|value| ((**name).clone(), value.to_vec())));
        }
        if !body.is_empty() {
            // Without these fields the service cannot read the body.
            for name in [&names.content_type, &names.content_encoding] {
                if let Some(value) =
                    head.headers.get(name).filter(|_| !headers.iter().any(|(n, _)| n == name))
                {
                    headers.push((name.clone(), value.to_vec()));
                }
            }
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
        // An HTTP/1.0 request may have no Host, but the question needs one.
        let authority = match head.asked_authority() {
            b"" => settings.upstream.as_bytes(),
            authority => authority,
        };
        CallRequest {
            method: self.method.clone(),
            target: settings.path.clone(),
            authority: authority.to_vec(),
            headers,
            body,
            limit: CALL_BODY_BYTES,
        }
    }

    /// What the service's answer means.
    fn decide(&self, answer: Result<CallAnswer, &'static Cause>) -> Decision {
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => {
                let of = |names: &[HeaderName]| {
                    let named = |(name, _): &&(FieldName, Vec<u8>)| names.iter().any(|n| **n == *name);
                    answer.headers.iter().filter(named).cloned().collect()
                };
                let no_store = decisions::says_no_store(&answer.headers);
                let (request, response) = (of(&self.settings.copy), of(&self.settings.copy_response));
                Decision::Pass { request, response, no_store }
            }
            Ok(answer) if (300..600).contains(&answer.status) => {
                let CallAnswer { status, mut headers, body } = answer;
                headers.retain(|(name, _)| ANSWERED.iter().any(|a| a.eq_ignore_ascii_case(name.as_str())));
                Decision::Refuse { status, headers, body }
            }
            _ => Decision::Unavailable,
        }
    }

    /// Identifies the caller by these credentials and by what the service answered. Even without either, the service
    /// may have refused others, for instance by their addresses.
    fn identify(&self, made: &[(FieldName, Vec<u8>)], head: &RequestHead, cx: &mut Cx) {
        let mut who = Vec::new();
        let mut add = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), value] {
                who.extend_from_slice(&part.len().to_le_bytes()); // different lists of parts give different bytes
                who.extend_from_slice(part);
            }
        };
        for name in &self.settings.copy_request {
            head.headers.get_all(name.as_str()).for_each(|value| add(name.as_str(), value));
        }
        made.iter().for_each(|(name, value)| add(name.as_str(), value));
        cx.restricts();
        if !who.is_empty() {
            cx.identify("forward_auth", &who);
        }
    }

    fn follow(&self, decision: &Decision, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let (request, response) = match decision {
            Decision::Pass { request, response, .. } => (request, response),
            Decision::Refuse { status, headers, body } => {
                let answer = Answer { status: *status, headers: headers.clone(), body: body.clone().into() };
                return Flow::Answer(Box::new(answer));
            }
            Decision::Unavailable => return Flow::refuse(&AUTH_UNAVAILABLE),
        };
        self.identify(request, head, cx);
        for name in &self.settings.copy {
            head.headers.remove(name);
        }
        for (name, value) in request {
            if head.headers.append(name, value).is_err() {
                return Flow::refuse(&AUTH_UNAVAILABLE);
            }
        }
        if !response.is_empty() {
            cx.state::<ForClient>().0.clone_from(response);
        }
        Flow::Continue
    }
}

#[cfg(test)]
mod tests;
