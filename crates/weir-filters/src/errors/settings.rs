//! The settings of `errors`: what takes the place of an error by cause, status or status class, and which upstream
//! responses it replaces.

use super::elsewhere::{Elsewhere, Fetched, RedirectStatus};
use super::{Errors, Instead, Names, PLACEHOLDERS};
use crate::shared::page::{PageSettings, PagesSettings};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use weir_filter::config::spelling::nearest_name;
use weir_filter::config::units::Duration;
use weir_filter::error;
use weir_filter::filter::{Build, FilePath, IntoFilter};
use weir_filter::template::Keep;
use weir_h1::FieldName;

/// Most pages of one filter.
const MAX_PAGES: usize = 256;

/// Sends the operator's own pages or redirects in place of the gateway's errors and, if configured, an upstream's.
///
/// Each key is a status (`404`), a class of statuses (`4xx`, `5xx`) or a cause (`rate_limited`;
/// docs/reference/causes.md lists them). A cause takes precedence over a status, and a status over a class. A page is
/// a `body` or a watched `file`, at most 256 KiB. A page that cannot be read or that holds an unknown placeholder is
/// refused with its place in the config. `type` is its media type; by default the file's suffix decides, or how the
/// text begins. From a list of pages the client gets the one that its `Accept` prefers, otherwise the first.
///
/// In addition to the usual placeholders there are `{status}`, `{reason}`, `{cause}` and `{detail}` (neutral words,
/// or what `expose_causes` allows). Values are escaped for the type of the page. Braces around anything but a name
/// stay as they are; `{{name}}` gives `{name}`.
///
/// By default the filter replaces only the gateway's own errors. If `upstream` names statuses, it replaces upstream
/// responses with these too, with the cause `upstream_error`. Of their fields only `retry-after`, `www-authenticate`,
/// `set-cookie`, `allow`, `vary` and the CORS fields are kept. gRPC calls keep their own error format.
///
/// **Redirects.** `redirect` sends the client to another URL, by default with 302, such as to a login page after a 401.
/// Values in its query are escaped as a whole, so `?rd={= request.url }` gives the whole URL to whoever reads `rd`.
/// Nothing from the client can become the host, but for its own Host (`{host}`, `{authority}`). The access log keeps the
/// cause.
///
/// **Pages of an upstream.** `upstream` and `path` name a page that a service makes. It is asked with GET, gets the
/// client's Host, Accept and Accept-Language, and must answer 200 within `timeout`, with at most 256 KiB. The client gets
/// its body and content type with the status of the error. Otherwise the error stays as it is: it is not replaced by
/// another error. The request runs no route and no filter, so it cannot loop. `weir_errors_page_failed_total` counts
/// pages that could not be fetched, and the log tells the first.
///
/// Put this filter before the filters whose refusals it should replace. Under `filters` it also serves requests that
/// match no route.
///
/// ```yaml
/// - errors:
///     404: { body: "<h1>{path} is not here</h1>" }             # from a file: { file: pages/404.html }
///     5xx: [ { body: "Sorry" }, { type: application/json, body: '{"error":"{cause}","id":"{request_id}"}' } ]
///     rate_limited: { body: "Slow down.\n" }
///     401: { redirect: "https://login.example.com/?rd={= request.url }" }
///     503: { upstream: pages, path: "/{status}.html" }
///     upstream: [ 5xx ]
/// ```
#[derive(Debug, Default, JsonSchema)]
#[schemars(transform = with_pages)]
pub(super) struct ErrorsSettings {
    #[schemars(skip)]
    pages: Vec<(String, InsteadSettings)>,
    /// Statuses to replace in responses that are not the gateway's own errors (an upstream's, another filter's, or of
    /// `respond`), such as `[502, 5xx]`. Default none.
    #[schemars(default)]
    upstream: Vec<String>,
}

/// What takes the place of one error.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum InsteadSettings {
    One(Box<OneSettings>),
    Pages(PagesSettings),
}

/// A page, a redirect, or a page of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct OneSettings {
    /// The page, with placeholders.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// A file with the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<FilePath>,
    /// Its media type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media: Option<String>,
    /// Where to send the client instead, with placeholders: a URL, or a path on the same host.
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<String>,
    /// The status of the redirect: 302, 303 or 307. Default 302.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<RedirectStatus>,
    /// The upstream that makes the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    /// The path of the page there, with placeholders; it begins with `/` or `{path}`. Default `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// How long the page may take. Default `2s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
}

/// A set of error statuses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatusSet {
    /// One bit per status, from 400 on.
    bits: [u64; 4],
}

// === impl StatusSet ===

impl StatusSet {
    /// Whether the set contains this status.
    pub(super) fn has(&self, status: u16) -> bool {
        let at = usize::from(status.wrapping_sub(400));
        at < 200 && self.bits.get(at / 64).is_some_and(|bits| bits & (1 << (at % 64)) != 0)
    }

    /// Adds the status or class that a text names; false if it names no error status.
    fn add(&mut self, text: &str) -> bool {
        let range = match (text.parse::<u16>(), class(text)) {
            (Ok(status), _) if (400..600).contains(&status) => status..status + 1,
            (_, Some(class)) => (4 + class) * 100..(5 + class) * 100,
            _ => return false,
        };
        for at in range.map(|status| usize::from(status - 400)) {
            if let Some(bits) = self.bits.get_mut(at / 64) {
                *bits |= 1 << (at % 64);
            }
        }
        true
    }
}

/// 0 for `4xx`, 1 for `5xx`.
fn class(text: &str) -> Option<u16> {
    ["4xx", "5xx"].iter().position(|class| class.eq_ignore_ascii_case(text)).map(|at| at as u16) // 0 or 1
}

// === impl ErrorsSettings ===

impl IntoFilter for ErrorsSettings {
    type Filter = Errors;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Errors> {
        let before = build.mistakes.len();
        if self.pages.is_empty() || self.pages.len() > MAX_PAGES {
            let message = format!("holds {} pages; expected 1 to {MAX_PAGES}", self.pages.len());
            build.refuse("", message, Some("write 5xx: { file: sorry.html }".into()));
        }
        let mut upstream = StatusSet::default();
        for (at, text) in self.upstream.iter().enumerate() {
            if !upstream.add(text) {
                let message = format!("`{text}` is not a status of an error; expected e.g. 503 or 5xx");
                build.refuse(&format!("upstream[{at}]"), message, None);
            }
        }
        let (mut by_cause, mut by_status, mut by_class) = (HashMap::new(), HashMap::new(), [None, None]);
        for (key, pages) in &self.pages {
            let Some(pages) = pages.compile(key, build) else { continue };
            match (key.parse::<u16>(), class(key)) {
                (Ok(status), _) if (400..600).contains(&status) => drop(by_status.insert(status, pages)),
                (Err(_), Some(class)) => {
                    if let Some(place) = by_class.get_mut(usize::from(class)) {
                        *place = Some(pages);
                    }
                }
                (Err(_), None) if is_cause(key, build) => drop(by_cause.insert(key.clone(), pages)),
                _ => refuse_key(key, build),
            }
        }
        if build.mistakes.len() > before {
            return None;
        }
        let all = || by_cause.values().chain(by_status.values()).chain(by_class.iter().flatten());
        let keep = Keep::of(all().flat_map(Instead::templates));
        let asks = all().any(|instead| matches!(instead, Instead::Fetched(_)));
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        let names = Names {
            cache_control: name("cache-control"),
            content_type: name("content-type"),
            vary: name("vary"),
        };
        Some(Errors { by_cause, by_status, by_class, upstream, keep, asks, names })
    }
}

// === impl InsteadSettings ===

impl InsteadSettings {
    fn compile(&self, key: &str, build: &mut Build<'_>) -> Option<Instead> {
        let pages = |pages: &PagesSettings, build: &mut Build<'_>| {
            pages.compile(key, Some(&PLACEHOLDERS), build).map(Instead::Pages)
        };
        let one = match self {
            Self::Pages(many) => return pages(many, build),
            Self::One(one) => one,
        };
        let OneSettings { body, file, media, redirect, status, upstream, path, timeout } = &**one;
        let is_page = body.is_some() || file.is_some() || media.is_some();
        let is_redirect = redirect.is_some() || status.is_some();
        let is_fetched = upstream.is_some() || path.is_some() || timeout.is_some();
        if [is_page, is_redirect, is_fetched].iter().filter(|is| **is).count() > 1 {
            let hint = "write one: { file: .. }, { redirect: .. }, or { upstream: .., path: .. }";
            build.refuse(key, "is a page, a redirect and a page of an upstream at once", Some(hint.into()));
            return None;
        }
        match (redirect, upstream) {
            (Some(to), _) => Elsewhere::compile(key, to, *status, build).map(Instead::Elsewhere),
            (None, Some(upstream)) => {
                let fetched = Fetched::compile(key, upstream, path.as_deref(), *timeout, build);
                fetched.map(Instead::Fetched)
            }
            (None, None) if is_redirect => {
                build.refuse(key, "has `status`, and no `redirect`", Some("write redirect: /login".into()));
                None
            }
            (None, None) if is_fetched => {
                let hint = "write upstream: and the name of one";
                build.refuse(key, "has `path` or `timeout`, and no `upstream`", Some(hint.into()));
                None
            }
            (None, None) => {
                let page = PageSettings { body: body.clone(), file: file.clone(), media: media.clone() };
                pages(&page.into(), build)
            }
        }
    }
}

impl<'de> Deserialize<'de> for InsteadSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InsteadVisitor;

        impl<'de> Visitor<'de> for InsteadVisitor {
            type Value = InsteadSettings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a page such as { file: sorry.html }, a list of them, or { redirect: /login }")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<InsteadSettings, A::Error> {
                let one = OneSettings::deserialize(MapAccessDeserializer::new(map))?;
                Ok(InsteadSettings::One(Box::new(one)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<InsteadSettings, A::Error> {
                PagesSettings::deserialize(SeqAccessDeserializer::new(seq)).map(InsteadSettings::Pages)
            }
        }

        deserializer.deserialize_any(InsteadVisitor)
    }
}

/// The codes of all causes that lead to a response.
fn causes<'a>(build: &'a Build<'_>) -> impl Iterator<Item = &'static str> + 'a {
    let of_filters = build.kinds.iter().flat_map(|kind| kind.causes.iter().copied());
    error::CAUSES.iter().copied().chain(of_filters).filter(|cause| cause.status != 0).map(|cause| cause.code)
}

fn is_cause(key: &str, build: &Build<'_>) -> bool {
    causes(build).any(|code| code == key)
}

fn refuse_key(key: &str, build: &mut Build<'_>) {
    let near = nearest_name(key, causes(build).chain(["upstream"]));
    let message =
        format!("`{key}` is not an error; expected a status such as 404, 4xx or 5xx, a cause, or upstream");
    let hint = near.map_or_else(
        || "docs/reference/causes.md lists the causes".to_owned(),
        |near| format!("write {near}"),
    );
    build.refuse(key, message, Some(hint.into()));
}

impl<'de> Deserialize<'de> for ErrorsSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ErrorsVisitor;

        impl<'de> Visitor<'de> for ErrorsVisitor {
            type Value = ErrorsSettings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pages by status or cause, such as { 5xx: { file: sorry.html } }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ErrorsSettings, A::Error> {
                let mut settings = ErrorsSettings::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "upstream" => settings.upstream = map.next_value()?,
                        _ => settings.pages.push((key, map.next_value()?)),
                    }
                }
                Ok(settings)
            }
        }

        deserializer.deserialize_map(ErrorsVisitor)
    }
}

impl Serialize for ErrorsSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.pages.len() + 1))?;
        for (key, pages) in &self.pages {
            map.serialize_entry(key, pages)?;
        }
        map.serialize_entry("upstream", &self.upstream)?;
        map.end()
    }
}

/// Describes the keys that are errors.
fn with_pages(schema: &mut Schema) {
    let mut generator =
        SchemaSettings::default().with(|settings| settings.inline_subschemas = true).into_generator();
    let pages = PagesSettings::json_schema(&mut generator).to_value();
    let mut one = OneSettings::json_schema(&mut generator);
    one.remove("description");
    let list = pages.get("anyOf").and_then(|any| any.get(1)).cloned().unwrap_or_default();
    let described = serde_json::json!({
        "description": "A page, a list of the same in several media types, a redirect, or a page of an upstream.",
        "anyOf": [one.to_value(), list],
    });
    schema.insert("additionalProperties".to_owned(), described);
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Stand;
    use super::super::KIND;
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses() {
        let mut set = StatusSet::default();
        assert!(set.add("5xx") && set.add("404"));
        assert!(set.has(500) && set.has(599) && set.has(404));
        assert!(!set.has(403) && !set.has(499) && !set.has(600) && !set.has(200) && !set.has(0));
        assert!(!set.add("200") && !set.add("xx") && !set.add("600"));
    }

    #[test]
    fn mistakes() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let typo = file("typo.html", b"<html>\n<p>{statsu}\n");
        let latin = file("latin.html", b"<html>\n\xe9");
        for (settings, expected) in [
            (json!({}), "write 5xx"),
            (json!({ "upstream": ["5xx"] }), "write 5xx"),
            (json!({ "200": { "body": "x" } }), "200: `200` is not an error"),
            (json!({ "rate_limitd": { "body": "x" } }), "write rate_limited"),
            (json!({ "5xx": {} }), "neither `body` nor `file`"),
            (json!({ "5xx": { "body": "x", "file": "y" } }), "both `body` and `file`"),
            (json!({ "5xx": [] }), "holds 0 pages"),
            (
                json!({ "5xx": [ { "body": "x" }, { "body": "x", "type": "html" } ] }),
                "5xx[1].type: `html` is not a media type",
            ),
            (json!({ "5xx": { "body": "x" }, "upstream": ["2xx"] }), "upstream[0]: `2xx`"),
            (json!({ "5xx": { "body": "{statu}" } }), "write {status}, or write {{statu}}"),
            (json!({ "5xx": { "file": "/nowhere/at all" } }), "5xx.file: /nowhere/at all cannot be read"),
            (json!({ "5xx": { "file": typo } }), "typo.html:2: `{statsu}` is not a placeholder"),
            (json!({ "5xx": { "file": latin } }), "latin.html:2: is not UTF-8"),
            (json!({ "5xx": { "bdy": "x" } }), "5xx.bdy: `bdy` is not a valid key; expected body, file"),
            (
                json!({ "401": { "redirect": "https://{cause}.example/" } }),
                "401.redirect: {cause} is part of the host",
            ),
            (
                json!({ "401": { "redirect": "https://{= request.host}/" } }),
                "an expression is part of the host",
            ),
            (json!({ "401": { "redirect": "//{path}" , "body": "x" } }), "at once"),
            (json!({ "401": { "redirect": "login" } }), "neither a URL nor a path"),
            (json!({ "401": { "redirect": "/a b" } }), "%20"),
            (json!({ "401": { "redirect": "/login", "status": 301 } }), "expected 302, 303 or 307"),
            (json!({ "401": { "status": 302 } }), "no `redirect`"),
            (json!({ "5xx": { "path": "/500.html" } }), "no `upstream`"),
            (
                json!({ "5xx": { "upstream": "pags", "path": "/" } }),
                "5xx.upstream: there is no upstream `pags`",
            ),
            (json!({ "5xx": { "upstream": "pages", "path": "500.html" } }), "5xx.path: "),
            (json!({ "5xx": { "upstream": "pages", "timeout": "0s" } }), "5xx.timeout: is zero"),
            (json!({ "5xx": { "upstream": "pages", "path": "/{statu}" } }), "write {status}"),
            (json!({ "5xx": "sorry.html" }), "a page such as"),
        ] {
            let mistakes =
                Stand::new(&KIND, settings.clone()).kinds(crate::KINDS).upstream("pages").mistakes();
            assert!(mistakes.iter().any(|m| m.contains(expected)), "{settings}: {mistakes:#?}");
        }
    }
}
