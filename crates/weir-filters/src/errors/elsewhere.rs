//! Errors that lead elsewhere: a redirect to another URL, or a page that an upstream makes.

use super::super::prelude::*;
use super::super::redirect::{computes_authority, in_authority, keep_host};
use super::PLACEHOLDERS;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weir_filter::config::de::whole_number;
use weir_filter::route::{Slashes, canonical};
use weir_filter::template::{Template, Values};
use weir_h1::FieldName;
use weir_telemetry::log;

/// How long a page may take by default.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Longest page of an upstream, in bytes, as of one in a file.
const PAGE_BYTES: usize = 256 * 1024;

/// The statuses of redirects that make sense after an error: none is permanent, and none sends the body again.
const REDIRECTS: [u16; 3] = [302, 303, 307];

/// Fields of a page that go to the client with it.
const OF_PAGE: [&str; 4] =
    ["content-encoding", "content-language", "content-security-policy", "content-type"];

/// The client's fields that the upstream sees: they decide which page it makes.
const ASKED: [&str; 2] = ["accept", "accept-language"];

/// The status of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "u16")]
pub(super) struct RedirectStatus(u16);

/// A redirect in place of an error.
pub(super) struct Elsewhere {
    to: Template,
    status: u16,
    location: FieldName,
}

/// A page that an upstream makes in place of an error.
pub(super) struct Fetched {
    upstream: String,
    path: Template,
    /// How many dot segments the config itself writes.
    dots: usize,
    timeout: Duration,
    names: Vec<FieldName>,
    failed: Failures,
}

/// Pages that could not be fetched.
#[derive(Default)]
struct Failures {
    count: AtomicU64,
    /// The last one failed.
    fails: AtomicBool,
}

/// What of a request an upstream sees that makes a page.
#[derive(Default)]
pub(super) struct Asked {
    authority: Vec<u8>,
    /// Values of [`ASKED`], by position.
    fields: Vec<(usize, Vec<u8>)>,
}

/// What an upstream made.
pub(super) struct Made {
    pub(super) headers: Vec<(FieldName, Vec<u8>)>,
    pub(super) body: Bytes,
}

// === impl RedirectStatus ===

impl From<RedirectStatus> for u16 {
    fn from(status: RedirectStatus) -> Self {
        status.0
    }
}

impl<'de> Deserialize<'de> for RedirectStatus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a status of a redirect after an error; expected 302, 303 or 307";
        whole_number(deserializer, expected, |status| REDIRECTS.contains(status)).map(Self)
    }
}

impl JsonSchema for RedirectStatus {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ErrorRedirectStatus".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "enum": REDIRECTS })
    }
}

/// A text with the placeholders of error pages.
fn text(field: &str, text: &str, build: &mut Build<'_>) -> Option<Template> {
    let own = PLACEHOLDERS.iter().map(|name| (*name).to_owned());
    let names: Vec<String> = own.chain(build.captures.unwrap_or_default().iter().cloned()).collect();
    let names = build.names().with_captures(&names).of_response();
    build.text_with(field, text, &names)
}

// === impl Elsewhere ===

impl Elsewhere {
    pub(super) fn compile(
        key: &str,
        to: &str,
        status: Option<RedirectStatus>,
        build: &mut Build<'_>,
    ) -> Option<Self> {
        let field = format!("{key}.redirect");
        let template = text(&field, to, build)?;
        let sample = template.sample("x");
        if sample.is_empty() || !sample.iter().all(u8::is_ascii_graphic) {
            let hint = "escape other characters as in a URL: %20 for a space";
            build.refuse(&field, "is not a URL: it is empty or holds spaces or non-ASCII", Some(hint.into()));
            return None;
        }
        let by_client = computes_authority(to).then(|| "an expression".to_owned());
        let by_client = by_client.or_else(|| in_authority(to).map(|name| format!("{{{name}}}")));
        if let Some(what) = by_client {
            let message = format!("{what} is part of the host: a client could choose another host");
            let hint = "write scheme and host as text: https://login.example.com/?rd={= request.url }";
            build.refuse(&field, message, Some(hint.into()));
            return None;
        }
        if !to.contains("://") && !to.starts_with('/') && !to.starts_with("{path}") {
            let hint = "write https://login.example.com/, or a path such as /login";
            build.refuse(&field, "is neither a URL nor a path", Some(hint.into()));
            return None;
        }
        let location = FieldName::new("location").expect("a name in the source is a token");
        Some(Self { to: template, status: status.map_or(302, u16::from), location })
    }

    pub(super) const fn template(&self) -> &Template {
        &self.to
    }

    /// The redirect that replaces an error with these fields.
    pub(super) fn answer(&self, values: &Values<'_>, mut headers: Vec<(FieldName, Vec<u8>)>) -> Answer {
        let mut to = Vec::new();
        self.to.render_url(values, &mut to);
        keep_host(&mut to, &self.to);
        headers.push((self.location.clone(), to));
        Answer { status: self.status, headers, body: Body::default() }
    }
}

// === impl Fetched ===

impl Fetched {
    pub(super) fn compile(
        key: &str,
        upstream: &str,
        path: Option<&str>,
        timeout: Option<Duration>,
        build: &mut Build<'_>,
    ) -> Option<Self> {
        let before = build.mistakes.len();
        build.needs_upstream(&format!("{key}.upstream"), upstream);
        let field = format!("{key}.path");
        let path = path.unwrap_or("/");
        let template = text(&field, path, build)?;
        // The path of a request begins with a slash.
        let begins_with_path = path.starts_with("{path}");
        let sample = template.sample(if begins_with_path { "/x" } else { "x" });
        let plain = sample.split(|&b| b == b'?').next().unwrap_or_default();
        if let Err(e) = canonical(plain, Slashes::Keep, &mut Vec::new()) {
            let hint = "begin with `/` and escape as in a URL: /500.html";
            build.refuse(&field, e.to_string(), Some(hint.into()));
        } else if !begins_with_path && template.beginning().first() != Some(&b'/') {
            let hint = "write /{status}.html, or {path} for the path of the request";
            build.refuse(&field, "does not begin with `/`", Some(hint.into()));
        }
        let timeout = timeout.unwrap_or(TIMEOUT);
        if timeout.is_zero() {
            build.refuse(&format!("{key}.timeout"), "is zero, so no page would ever come", None);
        }
        let names = ASKED.iter().filter_map(|name| FieldName::new(name).ok()).collect();
        let dots = super::super::rewrite::dot_segments(plain);
        let failed = Failures::default();
        let upstream = upstream.to_owned();
        (build.mistakes.len() == before).then_some(Self {
            upstream,
            path: template,
            dots,
            timeout,
            names,
            failed,
        })
    }

    pub(super) const fn template(&self) -> &Template {
        &self.path
    }

    /// How many pages could not be fetched.
    pub(super) fn failed(&self) -> u64 {
        self.failed.count.load(Relaxed)
    }

    /// The request for the page; none if a value does not fit into its path.
    pub(super) fn request(&self, values: &Values<'_>, asked: &Asked) -> Option<CallRequest> {
        let mut written = Vec::new();
        self.path.render_url(values, &mut written);
        let query = written.iter().position(|&b| b == b'?').unwrap_or(written.len());
        let (path, query) = written.split_at(query);
        let mut out = Vec::new();
        let form = canonical(path, Slashes::Keep, &mut out).ok()?;
        if super::super::rewrite::dot_segments(path) > self.dots {
            return None; // a value must not choose another folder
        }
        let target = [form.choose(path, &out), query].concat();
        let fields =
            asked.fields.iter().filter_map(|(at, value)| Some((self.names.get(*at)?.clone(), value.clone())));
        Some(CallRequest {
            method: "GET".to_owned(),
            target: String::from_utf8(target).ok()?,
            authority: match &*asked.authority {
                b"" => self.upstream.as_bytes().to_vec(),
                authority => authority.to_vec(),
            },
            headers: fields.collect(),
            body: Bytes::new(),
            limit: PAGE_BYTES,
        })
    }

    /// Asks for the page. None if there is none: the error then stays as it is.
    pub(super) async fn fetch(&self, request: Option<CallRequest>, cx: &Cx) -> Option<Made> {
        let made = match request {
            None => Err("a value does not fit into its path".to_owned()),
            Some(request) => {
                let call = cx.core().call(&self.upstream, request);
                match tokio::time::timeout(self.timeout.get(), call).await {
                    Err(_) => Err("it did not come in time".to_owned()),
                    Ok(Err(cause)) => Err(cause.meaning.to_owned()),
                    Ok(Ok(answer)) if answer.status == 200 => Ok(answer),
                    Ok(Ok(answer)) => Err(format!("the upstream answered {}", answer.status)),
                }
            }
        };
        match made {
            Ok(answer) => {
                self.failed.fails.store(false, Relaxed);
                let of_page =
                    |name: &FieldName| OF_PAGE.iter().any(|of| name.as_str().eq_ignore_ascii_case(of));
                let headers = answer.headers.into_iter().filter(|(name, _)| of_page(name)).collect();
                Some(Made { headers, body: answer.body })
            }
            Err(why) => {
                self.failed.count.fetch_add(1, Relaxed);
                if !self.failed.fails.swap(true, Relaxed) {
                    log::warn(
                        "an error page could not be fetched",
                        &[("upstream", &self.upstream), ("error", &why)],
                    );
                }
                None
            }
        }
    }
}

// === impl Asked ===

impl Asked {
    pub(super) fn of(head: &RequestHead) -> Self {
        let values = ASKED.iter().enumerate().map(|(at, name)| (at, head.headers.get_str(name)));
        let fields = values.filter_map(|(at, value)| Some((at, value?.to_vec()))).collect();
        Self { authority: head.asked_authority().to_vec(), fields }
    }
}
