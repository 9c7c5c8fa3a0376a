//! `security_headers`: sends the response fields that make browsers strict with a site's pages.

use super::prelude::*;
use weir_filter::config::de;
use weir_h1::{FieldName, Fields, Prepared};

pub(super) static KIND: FilterKind =
    FilterKind::made_from::<SecurityHeadersSettings>("security_headers").judged_by_head();

/// Sends security fields that make browsers strict with a site's pages. Every setting is on by default.
///
/// Each setting is the field's value, or `"off"`. Responses of the gateway itself have these fields too. Fields of
/// the same names from the upstream are replaced, unless `replace: false`.
///
/// ```yaml
/// - security_headers: {}
/// - security_headers: { frame_options: SAMEORIGIN, content_security_policy: "off", replace: false }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct SecurityHeadersSettings {
    /// `Strict-Transport-Security`: browsers use only https from now on. Sent over TLS only (RFC 6797 §7.2). Default
    /// `max-age=31536000; includeSubDomains`.
    hsts: Value,
    /// `X-Content-Type-Options`: browsers trust the content type. Default `nosniff`.
    content_type_options: Value,
    /// `X-Frame-Options`: which sites may show the page in a frame, `DENY` or `SAMEORIGIN`. Default `DENY`.
    frame_options: Value,
    /// `Referrer-Policy`: what other sites learn about the page that links to them. Default `no-referrer`.
    referrer_policy: Value,
    /// `Content-Security-Policy`: where the page may load from. Default: only its own origin, no inline scripts, no
    /// frame around it.
    content_security_policy: Value,
    /// `Permissions-Policy`: which devices and features the page may use. Default: no camera, microphone, location,
    /// payment, USB and display capture.
    permissions_policy: Value,
    /// `Cross-Origin-Opener-Policy`: which windows share a process with the page. Default `same-origin`.
    opener_policy: Value,
    /// `Cross-Origin-Resource-Policy`: which sites may embed these responses without CORS. Default `same-origin`.
    resource_policy: Value,
    /// Whether fields from the upstream are replaced. With `false` they stay, and only missing fields are added.
    /// Default true.
    replace: bool,
}

/// A value, or `off`.
#[derive(Debug)]
struct Value(Option<String>);

struct SecurityHeaders {
    fields: Vec<Field>,
    /// Bit n is set if one of the names has n letters. Response fields of other lengths are skipped quickly.
    lengths: u64,
    replace: bool,
}

struct Field {
    name: FieldName,
    prepared: Prepared,
    /// Whether the field has a meaning over TLS only.
    tls: bool,
}

const CSP: &str =
    "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";
const PERMISSIONS: &str = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()";

/// Values of Referrer-Policy. Source: Referrer Policy §3.
const REFERRERS: &[&str] = &[
    "no-referrer",
    "no-referrer-when-downgrade",
    "origin",
    "origin-when-cross-origin",
    "same-origin",
    "strict-origin",
    "strict-origin-when-cross-origin",
    "unsafe-url",
];

impl Default for SecurityHeadersSettings {
    fn default() -> Self {
        let on = |text: &str| Value(Some(text.to_owned()));
        Self {
            hsts: on("max-age=31536000; includeSubDomains"),
            content_type_options: on("nosniff"),
            frame_options: on("DENY"),
            referrer_policy: on("no-referrer"),
            content_security_policy: on(CSP),
            permissions_policy: on(PERMISSIONS),
            opener_policy: on("same-origin"),
            resource_policy: on("same-origin"),
            replace: true,
        }
    }
}

impl IntoFilter for SecurityHeadersSettings {
    type Filter = SecurityHeaders;

    fn into_filter(self, build: &mut Build<'_>) -> Option<SecurityHeaders> {
        let before = build.mistakes.len();
        let resource = &["same-origin", "same-site", "cross-origin"];
        let opener = &["same-origin", "same-origin-allow-popups", "noopener-allow-popups", "unsafe-none"];
        let settings = [
            ("hsts", "strict-transport-security", self.hsts, &[][..]),
            ("content_type_options", "x-content-type-options", self.content_type_options, &["nosniff"]),
            ("frame_options", "x-frame-options", self.frame_options, &["DENY", "SAMEORIGIN"]),
            ("referrer_policy", "referrer-policy", self.referrer_policy, REFERRERS),
            ("content_security_policy", "content-security-policy", self.content_security_policy, &[]),
            ("permissions_policy", "permissions-policy", self.permissions_policy, &[]),
            ("opener_policy", "cross-origin-opener-policy", self.opener_policy, opener),
            ("resource_policy", "cross-origin-resource-policy", self.resource_policy, resource),
        ];
        let mut fields = Vec::new();
        for (key, name, Value(value), known) in settings {
            let Some(value) = value else { continue };
            let name = FieldName::new(name).expect("a name in the source is a token");
            match check(key, &value, known).and_then(|()| {
                let control = |_| ("holds a control byte, or is too long".to_owned(), None);
                Prepared::new(&name, value.as_bytes()).map_err(control)
            }) {
                Ok(prepared) => fields.push(Field { name, prepared, tls: key == "hsts" }),
                Err((message, hint)) => {
                    build.refuse(key, format!("`{value}` {message}"), hint.map(Into::into))
                }
            }
        }
        if fields.is_empty() && build.mistakes.len() == before {
            build.refuse("", "sends nothing: every field is off", Some("leave the filter out".into()));
        }
        let lengths = fields.iter().fold(0, |bits, field| bits | 1 << (field.name.as_str().len() & 63));
        (build.mistakes.len() == before).then_some(SecurityHeaders { fields, lengths, replace: self.replace })
    }
}

type Refused = (String, Option<String>);

fn check(key: &str, value: &str, known: &[&str]) -> Result<(), Refused> {
    let refused = |message: String, hint: &str| Err((message, Some(hint.into())));
    if value.trim().is_empty() {
        return refused("is empty".to_owned(), "write \"off\" to leave the field out");
    }
    if key == "hsts" {
        return check_hsts(value);
    }
    // Only Referrer-Policy is a list: a browser takes the last value that it knows.
    let mut words = value.split(',').map(str::trim);
    match known.first() {
        Some(first)
            if !words.all(|word| known.contains(&word))
                || key != "referrer_policy" && value.contains(',') =>
        {
            let expected = format!("is not known; expected {}, or \"off\"", known.join(", "));
            refused(expected, &format!("write {first}"))
        }
        _ => Ok(()),
    }
}

/// RFC 6797 §6.1, and `preload` as hstspreload.org requires it.
fn check_hsts(value: &str) -> Result<(), Refused> {
    let refused = |message: &str, hint: &str| Err((message.to_owned(), Some(hint.into())));
    let (mut age, mut subdomains, mut preload) = (None, false, false);
    for directive in value.split(';').map(str::trim).filter(|directive| !directive.is_empty()) {
        let (name, number) = directive.split_once('=').unwrap_or((directive, ""));
        match (name.trim().to_ascii_lowercase().as_str(), number.trim().parse::<u64>()) {
            ("max-age", Ok(seconds)) => age = Some(seconds),
            ("includesubdomains", Err(_)) if number.is_empty() => subdomains = true,
            ("preload", Err(_)) if number.is_empty() => preload = true,
            _ => return refused("holds something unknown", "write max-age=31536000; includeSubDomains"),
        }
    }
    match age {
        None => refused("has no max-age", "write max-age=31536000; includeSubDomains"),
        Some(seconds) if preload && (seconds < 31_536_000 || !subdomains) => refused(
            "asks for `preload` with less than lists of browsers want",
            "write max-age=31536000; includeSubDomains; preload",
        ),
        Some(_) => Ok(()),
    }
}

impl Filter for SecurityHeaders {
    fn hooks(&self) -> Hooks {
        Hooks::RESPONSE
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards {
            request: Vec::new(),
            response: self.fields.iter().map(|field| field.name.clone()).collect(),
        }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let sent = |field: &&Field| cx.tls || !field.tls;
        if self.replace {
            head.headers.remove_where(|name, _| self.has(name));
            self.fields.iter().filter(sent).for_each(|field| add(&mut head.headers, field));
        } else {
            for field in self.fields.iter().filter(sent) {
                if !head.headers.contains(&field.name) {
                    add(&mut head.headers, field);
                }
            }
        }
        Flow::Continue
    }
}

impl SecurityHeaders {
    fn has(&self, name: &[u8]) -> bool {
        self.lengths >> (name.len() & 63) & 1 == 1
            && self.fields.iter().any(|field| name.eq_ignore_ascii_case(field.name.as_str().as_bytes()))
    }
}

fn add(fields: &mut Fields, field: &Field) {
    let _ = fields.append_prepared(&field.prepared, b""); // checked when it was prepared
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = de::text(deserializer, "a value or \"off\"")?;
        Ok(Self(if matches!(text.as_str(), "off" | "false") { None } else { Some(text) }))
    }
}

impl Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_deref().unwrap_or("off"))
    }
}

impl JsonSchema for Value {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecurityHeader".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "boolean"], "description": "A value, or `off`." })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stand;
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn the_default_is_strict() {
        for (stand, hsts) in
            [(Stand::new(&KIND, json!({})).tls(), true), (Stand::new(&KIND, json!({})), false)]
        {
            let mut stand = stand;
            let mut exchange = stand.build().request("GET /").await;
            let response = exchange.response("200\nX-Frame-Options: ALLOWALL\nServer: a");
            response
                .expect_header("x-content-type-options", "nosniff")
                .expect_header("x-frame-options", "DENY")
                .expect_header("referrer-policy", "no-referrer")
                .expect_header("content-security-policy", CSP)
                .expect_header("permissions-policy", PERMISSIONS)
                .expect_header("cross-origin-opener-policy", "same-origin")
                .expect_header("cross-origin-resource-policy", "same-origin")
                .expect_header("server", "a");
            match hsts {
                true => {
                    response.expect_header("strict-transport-security", "max-age=31536000; includeSubDomains")
                }
                false => response.expect_no_header("strict-transport-security"),
            };
        }
    }

    #[tokio::test]
    async fn each_can_be_turned_off() {
        let settings = json!({ "frame_options": "off", "referrer_policy": "origin, strict-origin" });
        let mut exchange = Stand::new(&KIND, settings).build().request("GET /").await;
        exchange
            .response("200\nX-Frame-Options: SAMEORIGIN")
            .expect_header("x-frame-options", "SAMEORIGIN")
            .expect_header("referrer-policy", "origin, strict-origin");
    }

    #[tokio::test]
    async fn the_upstream_may_know_better() {
        let settings = json!({ "replace": false });
        let mut exchange = Stand::new(&KIND, settings).build().request("GET /").await;
        exchange
            .response("200\nContent-Security-Policy: default-src a.example")
            .expect_header("content-security-policy", "default-src a.example")
            .expect_header("x-frame-options", "DENY");
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (
                json!({ "frame_options": "ALLOW" }),
                "frame_options: `ALLOW` is not known; expected DENY, SAMEORIGIN, or \"off\"; write DENY",
            ),
            (json!({ "frame_options": "DENY, SAMEORIGIN" }), "is not known"),
            (json!({ "content_type_options": "true" }), "write nosniff"),
            (json!({ "referrer_policy": "origin, never" }), "is not known"),
            (json!({ "content_security_policy": " " }), "write \"off\""),
            (json!({ "permissions_policy": "a\nb" }), "control byte"),
            (json!({ "hsts": "includeSubDomains" }), "has no max-age"),
            (json!({ "hsts": "max-age=1y" }), "holds something unknown"),
            (json!({ "hsts": "max-age=300; includeSubDomains; preload" }), "lists of browsers"),
        ] {
            let told = Stand::new(&KIND, settings).mistakes().join("\n");
            assert!(told.contains(expected), "{told}");
        }
        let off = json!({
            "hsts": "off", "content_type_options": "off", "frame_options": "off", "referrer_policy": "off",
            "content_security_policy": "off", "permissions_policy": "off", "opener_policy": "off",
            "resource_policy": "off"
        });
        assert!(Stand::new(&KIND, off).mistakes()[0].contains("every field is off"));
    }
}
