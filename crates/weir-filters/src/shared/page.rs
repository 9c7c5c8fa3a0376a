//! A page of the operator, in one or several media types: settings, loading, choice, rendering.

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use weir_filter::filter::{Build, FilePath};
use weir_filter::template::{Escape, Template, Values};

/// Largest page, in bytes.
const PAGE_BYTES: usize = 256 * 1024;

/// Most media types of one page.
const MAX_VARIANTS: usize = 8;

/// A page as written in the config.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PageSettings {
    /// The page, with placeholders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    /// A file with the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<FilePath>,
    /// Its media type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) media: Option<String>,
}

/// One page, or a list of the same page in several media types.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PagesSettings(Vec<PageSettings>);

/// A page ready to be sent.
pub(crate) struct Page {
    media: String,
    escape: Escape,
    text: Text,
}

enum Text {
    Fixed(Bytes),
    Template(Template),
}

/// The same page in one or more media types.
pub(crate) struct Pages(Vec<Page>);

// === impl PagesSettings ===

impl From<PageSettings> for PagesSettings {
    fn from(page: PageSettings) -> Self {
        Self(vec![page])
    }
}

impl PagesSettings {
    /// Loads the pages. `extra` lists placeholders that they may contain in addition to the usual ones, and that hide
    /// those; such pages stand for a response, and their expressions may name it.
    pub(crate) fn compile(&self, key: &str, extra: Option<&[&str]>, build: &mut Build<'_>) -> Option<Pages> {
        if self.0.is_empty() || self.0.len() > MAX_VARIANTS {
            let message = format!(
                "holds {} pages; expected one, or up to {MAX_VARIANTS} in several media types",
                self.0.len()
            );
            build.refuse(key, message, Some("write { file: sorry.html }".into()));
            return None;
        }
        let of = |at: usize| if self.0.len() == 1 { key.to_owned() } else { format!("{key}[{at}]") };
        let pages: Vec<_> =
            self.0.iter().enumerate().map(|(at, page)| page.compile(&of(at), extra, build)).collect();
        pages.into_iter().collect::<Option<_>>().map(Pages)
    }
}

impl<'de> Deserialize<'de> for PagesSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PagesVisitor;

        impl<'de> Visitor<'de> for PagesVisitor {
            type Value = PagesSettings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a page such as { file: sorry.html }, or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PagesSettings, A::Error> {
                PageSettings::deserialize(MapAccessDeserializer::new(map))
                    .map(|page| PagesSettings(vec![page]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<PagesSettings, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(PagesSettings)
            }
        }

        deserializer.deserialize_any(PagesVisitor)
    }
}

impl JsonSchema for PagesSettings {
    fn schema_name() -> Cow<'static, str> {
        "Page".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut page = PageSettings::json_schema(generator);
        page.remove("description");
        let list = serde_json::json!({ "type": "array", "items": page.clone(), "minItems": 1, "maxItems": MAX_VARIANTS });
        schemars::json_schema!({
            "description": "A page, or a list of the same in several media types.",
            "anyOf": [page, list],
        })
    }
}

// === impl PageSettings ===

impl PageSettings {
    fn compile(&self, key: &str, extra: Option<&[&str]>, build: &mut Build<'_>) -> Option<Page> {
        let (text, place) = self.load(key, build)?;
        let media = self.media.clone().unwrap_or_else(|| guess(&text, self.file.as_ref()).to_owned());
        if !is_media(&media) {
            let hint = "write text/html, application/json or text/plain";
            build.refuse(&format!("{key}.type"), format!("`{media}` is not a media type"), Some(hint.into()));
            return None;
        }
        let names: Vec<String> = extra
            .unwrap_or_default()
            .iter()
            .map(|name| (*name).to_owned())
            .chain(build.captures.unwrap_or_default().iter().cloned())
            .collect();
        let at = build.names().with_captures(&names);
        let at = if extra.is_some() { at.of_response() } else { at };
        let parsed = Template::parse_page(&text, &at);
        if place.is_empty() {
            build.written_page(&format!("{key}.body"), &text, parsed.is_ok());
        }
        let template = match parsed {
            Ok(template) => template,
            Err((line, e)) if !place.is_empty() => {
                build.refuse(key, format!("{place}:{line}: {}", e.message), e.hint.map(Into::into));
                return None;
            }
            Err((_, e)) => {
                let of_body = format!("{key}.body");
                build.malformed(if e.offset.is_some() { &of_body } else { key }, e);
                return None;
            }
        };
        let text = match template.literal() {
            Some(text) => Text::Fixed(Bytes::copy_from_slice(text)),
            None => Text::Template(template),
        };
        Some(Page { escape: Escape::of_media(&media), media, text })
    }

    /// Loads the text. Also returns the path of its file, which is empty for `body`.
    fn load(&self, key: &str, build: &mut Build<'_>) -> Option<(String, String)> {
        match (&self.body, &self.file) {
            (Some(body), None) if body.len() <= PAGE_BYTES => Some((body.clone(), String::new())),
            (Some(_), None) => {
                build.refuse(&format!("{key}.body"), format!("is longer than {PAGE_BYTES} bytes"), None);
                None
            }
            (None, Some(file)) => {
                let field = format!("{key}.file");
                let bytes = build
                    .read_file(file, PAGE_BYTES)
                    .map_err(|message| build.refuse(&field, message, None))
                    .ok()?;
                let place = file.0.display().to_string();
                match String::from_utf8(bytes) {
                    Ok(text) => Some((text, place)),
                    Err(e) => {
                        let good = e.as_bytes().get(..e.utf8_error().valid_up_to()).unwrap_or_default();
                        let line = good.iter().filter(|&&b| b == b'\n').count() + 1;
                        build.refuse(
                            &field,
                            format!("{place}:{line}: is not UTF-8"),
                            Some("save it as UTF-8".into()),
                        );
                        None
                    }
                }
            }
            (body, _) => {
                let message = if body.is_some() {
                    "has both `body` and `file`"
                } else {
                    "has neither `body` nor `file`"
                };
                build.refuse(key, message, Some("write { file: sorry.html } or { body: \"Sorry.\" }".into()));
                None
            }
        }
    }
}

/// The media type of a page without `type`.
fn guess(text: &str, file: Option<&FilePath>) -> &'static str {
    let suffix = file.and_then(|file| file.0.extension()).map(|s| s.to_string_lossy().to_ascii_lowercase());
    match (suffix.as_deref(), text.trim_start().chars().next()) {
        (Some("html" | "htm"), _) | (None, Some('<')) => "text/html; charset=utf-8",
        (Some("json"), _) | (None, Some('{' | '[')) => "application/json",
        (Some("xml"), _) => "application/xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn is_media(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let token = |part: &str| !part.is_empty() && part.bytes().all(weir_h1::is_token);
    let printable = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    printable && essence.split_once('/').is_some_and(|(kind, sub)| token(kind) && token(sub))
}

// === impl Pages ===

impl Pages {
    /// The texts of all pages.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.0.iter().filter_map(|page| match &page.text {
            Text::Fixed(_) => None,
            Text::Template(template) => Some(template),
        })
    }

    /// Whether there is more than one page to choose from.
    pub(crate) fn vary(&self) -> bool {
        self.0.len() > 1
    }

    /// The page that a client prefers by its `Accept`: the first of those with the highest quality, or the first of
    /// all if it accepts none.
    pub(crate) fn choose(&self, accept: Option<&[u8]>) -> Option<&Page> {
        let accept = accept.filter(|_| self.vary()).and_then(|accept| std::str::from_utf8(accept).ok());
        let Some(accept) = accept else { return self.0.first() };
        let mut best: Option<(u16, &Page)> = None;
        for page in &self.0 {
            let quality = quality(accept, &page.media);
            if best.is_none_or(|(other, _)| quality > other) {
                best = Some((quality, page));
            }
        }
        best.map(|(_, page)| page)
    }
}

impl Page {
    /// Its media type.
    pub(crate) fn media(&self) -> &str {
        &self.media
    }

    /// Renders the page with these values.
    pub(crate) fn render(&self, values: &Values<'_>) -> Bytes {
        match &self.text {
            Text::Fixed(bytes) => bytes.clone(),
            Text::Template(template) => {
                let mut out = Vec::new();
                template.render(values, self.escape, &mut out);
                out.into()
            }
        }
    }
}

/// The quality that a client gives a media type, in thousandths. The most specific match in `Accept` counts (RFC 9110
/// §12.5.1).
fn quality(accept: &str, media: &str) -> u16 {
    let media = media.split(';').next().unwrap_or_default().trim();
    let kind = media.split('/').next().unwrap_or_default();
    let mut best = (0, 0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let fits = match name.split_once('/') {
            _ if name.eq_ignore_ascii_case(media) => 3,
            Some((k, "*")) if k.eq_ignore_ascii_case(kind) => 2,
            Some(("*", "*")) => 1,
            _ => continue,
        };
        let q = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
        let q = q.map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0)).clamp(0.0, 1.0);
        if fits > best.0 {
            best = (fits, (q * 1000.0) as u16); // between 0 and 1000
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_decides() {
        const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        for (accept, html, json) in [
            (BROWSER, 1000, 800),
            ("application/json", 0, 1000),
            ("*/*", 1000, 1000),
            ("text/*;q=0.5, */*;q=0.1", 500, 100),
            ("text/html;level=1;q=0.3, text/*", 300, 0),
            ("TEXT/HTML ; Q=0.7", 700, 0),
            ("text/html;q=nan, application/json;q=-1", 0, 0),
            ("", 0, 0),
        ] {
            assert_eq!(quality(accept, "text/html; charset=utf-8"), html, "{accept}");
            assert_eq!(quality(accept, "application/json"), json, "{accept}");
        }
    }

    #[test]
    fn media_types() {
        let html = FilePath("a/b.HTML".into());
        assert_eq!(guess("x", Some(&html)), "text/html; charset=utf-8");
        assert_eq!(guess(" <!doctype html>", None), "text/html; charset=utf-8");
        assert_eq!(guess("{}", None), "application/json");
        assert_eq!(guess("Sorry.", None), "text/plain; charset=utf-8");
        for (media, escape) in [
            ("text/html; charset=utf-8", Escape::Html),
            ("application/problem+json", Escape::Json),
            ("image/svg+xml", Escape::Html),
            ("text/JavaScript", Escape::Json),
            ("text/plain", Escape::Nothing),
        ] {
            assert_eq!(Escape::of_media(media), escape, "{media}");
            assert!(is_media(media), "{media}");
        }
        assert!(!is_media("html") && !is_media("text/html\r\nx: y") && !is_media("text/"));
    }
}
