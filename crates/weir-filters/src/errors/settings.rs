//! The settings of `errors`: pages by cause, status or status class, and which upstream responses they replace.

use super::{Errors, Names, PLACEHOLDERS};
use crate::shared::page::{Pages, PagesSettings};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use weir_filter::config::spelling::nearest_name;
use weir_filter::error;
use weir_filter::filter::{Build, IntoFilter};
use weir_filter::template::Keep;
use weir_h1::FieldName;

/// Most pages of one filter.
const MAX_PAGES: usize = 256;

/// Sends the operator's own pages in place of the gateway's errors and, if configured, an upstream's.
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
/// Put this filter before the filters whose refusals it should replace. Under `filters` it also serves requests that
/// match no route.
///
/// ```yaml
/// - errors:
///     404: { body: "<h1>{path} is not here</h1>" }             # from a file: { file: pages/404.html }
///     5xx: [ { body: "Sorry" }, { type: application/json, body: '{"error":"{cause}","id":"{request_id}"}' } ]
///     rate_limited: { body: "Slow down.\n" }
///     upstream: [ 5xx ]
/// ```
#[derive(Debug, Default, JsonSchema)]
#[schemars(transform = with_pages)]
pub(super) struct ErrorsSettings {
    #[schemars(skip)]
    pages: Vec<(String, PagesSettings)>,
    /// Statuses to replace in responses that are not the gateway's own errors (an upstream's, another filter's, or of
    /// `respond`), such as `[502, 5xx]`. Default none.
    #[schemars(default)]
    upstream: Vec<String>,
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
            let Some(pages) = pages.compile(key, Some(&PLACEHOLDERS), build) else { continue };
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
        let pages = by_cause.values().chain(by_status.values()).chain(by_class.iter().flatten());
        let keep = Keep::of(pages.flat_map(Pages::templates));
        let name = |text| FieldName::new(text).expect("a name in the source is a token");
        let names = Names {
            cache_control: name("cache-control"),
            content_type: name("content-type"),
            vary: name("vary"),
        };
        Some(Errors { by_cause, by_status, by_class, upstream, keep, names })
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
    schema.insert("additionalProperties".to_owned(), PagesSettings::json_schema(&mut generator).to_value());
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
            (
                json!({ "5xx": { "bdy": "x" } }),
                "5xx.bdy: `bdy` is not a valid key; expected body, file or type",
            ),
            (json!({ "5xx": "sorry.html" }), "a page such as"),
        ] {
            let mistakes = Stand::new(&KIND, settings.clone()).kinds(crate::KINDS).mistakes();
            assert!(mistakes.iter().any(|m| m.contains(expected)), "{settings}: {mistakes:#?}");
        }
    }
}
