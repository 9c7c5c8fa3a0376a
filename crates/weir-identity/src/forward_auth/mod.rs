//! `forward_auth`: asks a service of the operator whether a request may pass. `question` writes the request to it,
//! `decisions` caches its answers.

mod decisions;
mod question;

use super::prelude::*;
use decisions::{Decision, Decisions};
use question::{CopyRequest, Names};
use std::collections::BTreeMap;
use std::rc::Rc;
use weir_filter::route::{Slashes, canonical};
use weir_filter::template::Template;
use weir_h1::FieldName;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<ForwardAuthSettings>("forward_auth").with_causes(&[
    &AUTH_FORBIDDEN,
    &AUTH_REQUIRED,
    &AUTH_UNAVAILABLE,
    &AUTH_UNEXPECTED,
]);

static AUTH_FORBIDDEN: Cause = Cause {
    code: "auth_forbidden",
    status: 403,
    meaning: "The authorization service refused the request with 403 (`answers: nginx`).",
    change: "the service's rules, or the filter errors for another page",
    ..Cause::USUAL
};

static AUTH_REQUIRED: Cause = Cause {
    code: "auth_required",
    status: 401,
    meaning: "The authorization service refused the request with 401 (`answers: nginx`).",
    change: "the client must log in; the filter errors can send it there",
    ..Cause::USUAL
};

static AUTH_UNAVAILABLE: Cause = Cause {
    code: "auth_unavailable",
    status: 503,
    meaning: "The authorization service did not answer.",
    change: "the upstream that the filter forward_auth names",
    ..Cause::USUAL
};

static AUTH_UNEXPECTED: Cause = Cause {
    code: "auth_unexpected",
    status: 500,
    meaning: "The authorization service answered neither 2xx nor 401 or 403, or not at all (`answers: nginx`).",
    change: "the service, or `answers: pass` of the filter forward_auth",
    nature: Nature::Failure,
    ..Cause::USUAL
};

/// Asks a service of yours, in a separate request, whether a request may pass.
///
/// A status from 200 to 299 lets the request pass. Any other response goes to the client, with its body (at most 64
/// KiB) and its fields `cache-control`, `content-type`, `location`, `proxy-authenticate`, `retry-after`, `set-cookie`
/// and `www-authenticate`. If the service does not answer within the upstream's timeouts, the client gets 503: no
/// request passes without a decision.
///
/// With `answers: nginx` the service decides as for nginx's `auth_request`: 401 and 403 are refusals with the causes
/// `auth_required` and `auth_forbidden`, with the service's `www-authenticate` and our own page, which the filter
/// `errors` may replace. Any other answer, or none, is a 500.
///
/// The request to the service carries `x-forwarded-method`, `-proto`, `-host`, `-uri` (canonical path and query) and
/// `-for` (the client's address), as Traefik and Caddy send them, and the fields of `set`.
///
/// `copy_request: all` sends the service every field of the request, with these exceptions: fields of the connection
/// and of the body's length, `accept-encoding`, `range`, conditions (`if-none-match` and others), and `forwarded`. Nor
/// does it send the fields of `copy` and `set`, in any spelling, so that a client cannot pretend to be somebody.
///
/// With `cache`, each core remembers up to 1,024 decisions, and identical questions at the same time are sent once.
/// Questions are identical if they agree in the client's address, method, scheme, host, path, query and the fields
/// that the service sees, which must be named for that. An answer that sets a cookie or has `cache-control: no-store`
/// is valid for one request: it is neither remembered nor shared. A request whose body is sent along (`body`) is
/// never answered from the cache.
///
/// ```yaml
/// - forward_auth: { upstream: auth, path: /verify, copy: [ x-user, x-groups ] }
/// - forward_auth: { upstream: auth, copy_request: [ cookie ], cache: { headers: [ cookie ], time: 30s } }
/// - forward_auth: { upstream: auth, copy_request: all, answers: nginx, set: { x-original-uri: "{path}" } }
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
    /// Request fields that the service sees, or `all`. Default `authorization` and `cookie`. The gateway always sets
    /// the fields that describe the request itself.
    #[serde(default)]
    copy_request: CopyRequest,
    /// Fields to set on the request to the service, with placeholders; also in place of those that describe the
    /// request. An empty value sets none. Default none.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// What the service's refusals mean. Default `pass`.
    #[serde(default)]
    answers: Answers,
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

/// What refusals of the service mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Answers {
    /// As in nginx: 401 and 403 refuse, and any other answer is a 500.
    Nginx,
    /// The client gets the service's answer.
    #[default]
    Pass,
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
    set: Vec<(FieldName, Template)>,
    www_authenticate: FieldName,
    decisions: Option<Decisions>,
}

/// Fields to add to the client's response.
#[derive(Default)]
struct ForClient(Vec<(FieldName, Vec<u8>)>);

/// Longest body that can be sent along.
const MAX_BODY: u64 = 16 * 1024 * 1024;

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
            ("copy_request", self.copy_request.named()),
            ("copy", &self.copy[..]),
            ("copy_response", &self.copy_response),
        ];
        for (key, names) in lists {
            for (i, name) in names.iter().enumerate() {
                allow_name(build, &format!("{key}[{i}]"), name);
            }
        }
        let set = question::set(&self.set, build);
        let decisions = self.cache.as_ref().map(|cache| Decisions::new(cache.time.get()));
        (build.mistakes.len() == before).then(|| ForwardAuth {
            names: Names::new(&self),
            settings: self,
            method,
            set,
            decisions,
            www_authenticate: FieldName::new("www-authenticate").expect("a name in the source is a token"),
        })
    }
}

impl ForwardAuthSettings {
    /// Everything that the service may decide by must distinguish decisions, otherwise one client could get
    /// another's.
    fn check_cache(&self, cache: &CacheSettings, build: &mut Build<'_>) {
        if self.copy_request == CopyRequest::All {
            let hint = "name in `copy_request` what the service decides by";
            build.refuse(
                "cache",
                "the service sees all fields, so no two questions are alike",
                Some(hint.into()),
            );
        }
        for name in self.copy_request.named().iter().filter(|name| !cache.headers.contains(name)) {
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

impl Filter for ForwardAuth {
    fn hooks(&self) -> Hooks {
        let body = if self.settings.body.is_some() { Hooks::REQUEST_BODY } else { Hooks::NONE };
        let response = if self.settings.copy_response.is_empty() { Hooks::NONE } else { Hooks::RESPONSE };
        Hooks::REQUEST | body | response
    }

    fn guards(&self) -> FieldGuards {
        let ForwardAuthSettings { copy, copy_request, copy_response, .. } = &self.settings;
        let names = copy.iter().chain(copy_request.named()).map(|name| (**name).clone());
        FieldGuards {
            request: names.chain(self.set.iter().flat_map(|(_, template)| template.guarded())).collect(),
            response: copy_response.iter().map(|name| (**name).clone()).collect(),
        }
    }

    fn request_body(&self, _: &RequestHead, _: &mut Cx) -> BodyUse {
        self.settings.body.map_or(BodyUse::Pass, |limit| BodyUse::Whole(limit.as_usize()))
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let known = self
            .decisions_for(cx)
            .and_then(|decisions| decisions.known(self.tag(decisions, head, cx), cx.core()));
        match known {
            Some(decision) => self.follow(&decision, head, cx),
            None => Flow::Wait,
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let question = self.question(head, self.written(head, cx), cx);
            let ask =
                || async { self.decide(cx.core().call(&self.settings.upstream, question.clone()).await) };
            let decision = match self.decisions_for(cx) {
                Some(decisions) => {
                    let tag = self.tag(decisions, head, cx);
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

    fn tag(&self, decisions: &Decisions, head: &RequestHead, cx: &Cx) -> u128 {
        let written = self.written(head, cx);
        decisions.tag(head, cx, self.cached_by(), &written)
    }

    /// The fields that distinguish questions.
    fn cached_by(&self) -> &[HeaderName] {
        self.settings.cache.as_ref().map(|cache| &cache.headers[..]).unwrap_or_default()
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
            Ok(answer) if self.settings.answers == Answers::Nginx => {
                let CallAnswer { status, mut headers, .. } = answer;
                headers.retain(|(name, _)| name.as_str().eq_ignore_ascii_case("www-authenticate"));
                Decision::Refuse { status, headers, body: Bytes::new() }
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
        self.copied(head).iter().for_each(|(name, value)| add(name.as_str(), value));
        made.iter().for_each(|(name, value)| add(name.as_str(), value));
        cx.restricts();
        if !who.is_empty() {
            cx.identify("forward_auth", &who);
        }
    }

    fn follow(&self, decision: &Decision, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let is_nginx = self.settings.answers == Answers::Nginx;
        let (request, response) = match decision {
            Decision::Pass { request, response, .. } => (request, response),
            Decision::Refuse { status: 401, headers, .. } if is_nginx => {
                let fields = headers.iter().map(|(_, value)| (self.www_authenticate.clone(), value.clone()));
                return Flow::refuse_with(&AUTH_REQUIRED, fields.collect());
            }
            Decision::Refuse { status: 403, .. } if is_nginx => return Flow::refuse(&AUTH_FORBIDDEN),
            Decision::Refuse { .. } | Decision::Unavailable if is_nginx => {
                return Flow::refuse(&AUTH_UNEXPECTED);
            }
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
