//! `cookies`: sets attributes of the cookies that responses set.

use super::prelude::*;
use schemars::{Schema, SchemaGenerator};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use weir_h1::{FieldName, Known};

pub(super) static KIND: FilterKind = FilterKind::made_from::<CookiesSettings>("cookies");

/// Sets attributes of the cookies that responses set, as nginx's `proxy_cookie_flags`, `proxy_cookie_path` and
/// `proxy_cookie_domain` do.
///
/// Each key is the name of a cookie, or a pattern in which `*` stands for any text. Names are case-sensitive. One rule
/// applies to a cookie: the one with exactly its name, otherwise the pattern with the most characters besides `*`. What
/// the rule leaves out stays as the upstream wrote it. Two patterns that could match the same name with equally many
/// characters are refused.
///
/// Every `Set-Cookie` field is changed on its own, after `links` of the upstream has translated the upstream's hosts
/// and prefixes, and so are the cookies of filters that stand behind this one in the list. A browser drops a `__Host-`
/// cookie that has a `Domain`, lacks `Secure` or has a path other than `/`, and a `__Secure-` cookie without `Secure`.
/// So a pattern leaves out changes that would break these rules, and a rule for the name itself that breaks one is
/// refused.
///
/// Browsers drop a cookie with `Secure` that arrives without TLS, and one with `SameSite=None` that lacks `Secure`.
///
/// ```yaml
/// - cookies: { "*": { secure: true, http_only: true, same_site: lax } }
/// - cookies:
///     session: { path: { /app/: / }, domain: { internal.example: www.example.com } }
///     "tracking_*": { same_site: none, secure: true, path: / }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
struct CookiesSettings(BTreeMap<String, Rule>);

/// The attributes of a cookie.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Rule {
    /// Whether the cookie has `Secure`. Default: as the upstream wrote it.
    secure: Option<bool>,
    /// Whether the cookie has `HttpOnly`. Default: as the upstream wrote it.
    http_only: Option<bool>,
    /// The value of `SameSite`; `remove` removes it. Default: as the upstream wrote it.
    same_site: Option<SameSite>,
    /// The `Path`: a text sets it, `remove` removes it, and a map such as `{ /app/: / }` replaces the longest of its
    /// texts with which a path begins. Default: as the upstream wrote it.
    path: Option<Change>,
    /// The `Domain`: a text sets it, and `remove` removes it, so that the cookie is for the host alone. A map such as
    /// `{ internal.example: www.example.com }` replaces whole names, in any case and with or without a leading dot.
    /// Default: as the upstream wrote it.
    domain: Option<Change>,
}

/// A value of `SameSite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SameSite {
    /// Sent with navigations from other sites.
    Lax,
    /// Sent with every request.
    None,
    /// No such attribute.
    Remove,
    /// Sent from the own site only.
    Strict,
}

/// What becomes of an attribute with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Remove,
    /// What is replaced by what; the longest first.
    Replace(Vec<(String, String)>),
    Set(String),
}

struct Cookies {
    /// Those with `*` behind the others, the most specific first.
    rules: Vec<(Pattern, Rule)>,
    set_cookie: FieldName,
}

/// A name in which `*` stands for any text.
#[derive(Debug, PartialEq, Eq)]
struct Pattern(String);

/// Most rules of one filter.
const MAX_RULES: usize = 100;

/// Longest name, path and domain, in bytes.
const MAX_TEXT: usize = 1024;

// === impl Change ===

const EXPECTED: &str = "a text, `remove`, or a map such as { /app/: / }";

impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChangeVisitor;

        impl<'de> Visitor<'de> for ChangeVisitor {
            type Value = Change;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E>(self, text: &str) -> Result<Change, E> {
                Ok(if text == "remove" { Change::Remove } else { Change::Set(text.to_owned()) })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Change, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<String, String>()? {
                    pairs.push(pair);
                }
                pairs.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
                Ok(Change::Replace(pairs))
            }
        }

        deserializer.deserialize_any(ChangeVisitor)
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Remove => serializer.serialize_str("remove"),
            Self::Replace(pairs) => serializer.collect_map(pairs.iter().map(|(from, to)| (from, to))),
            Self::Set(text) => serializer.serialize_str(text),
        }
    }
}

impl JsonSchema for Change {
    fn schema_name() -> Cow<'static, str> {
        "CookieChange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": ["string", "object"],
            "additionalProperties": { "type": "string" },
            "examples": ["/", "remove", { "/app/": "/" }],
        })
    }
}

impl Change {
    /// The texts that go into a response.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match self {
            Self::Remove => (None, &[][..]),
            Self::Replace(pairs) => (None, &pairs[..]),
            Self::Set(text) => (Some(text.as_str()), &[][..]),
        };
        one.into_iter().chain(many.iter().map(|(_, to)| to.as_str()))
    }
}

// === impl Pattern ===

impl Pattern {
    fn matches(&self, name: &[u8]) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first.as_bytes())) else {
            return false;
        };
        let parts: Vec<&str> = parts.collect();
        let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
        for part in middle {
            let at = (!part.is_empty()).then(|| memchr::memmem::find(rest, part.as_bytes()));
            rest = match at {
                None => rest,
                Some(Some(at)) => rest.get(at + part.len()..).unwrap_or_default(),
                Some(None) => return false,
            };
        }
        rest.ends_with(last.as_bytes())
    }

    /// How many characters are not `*`.
    fn literal(&self) -> usize {
        self.0.chars().filter(|c| *c != '*').count()
    }

    fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether a name exists that both match.
    fn meets(&self, other: &Self) -> bool {
        fn meet(a: &[u8], b: &[u8]) -> bool {
            // Row i, column j: whether the rest of `a` from i meets the rest of `b` from j.
            let mut below = vec![false; b.len() + 1];
            for i in (0..=a.len()).rev() {
                let mut row = vec![false; b.len() + 1];
                for j in (0..=b.len()).rev() {
                    let get = |cells: &[bool], j: usize| cells.get(j).copied().unwrap_or_default();
                    let met = match (a.get(i), b.get(j)) {
                        (None, None) => true,
                        (Some(b'*'), None) => get(&below, j),
                        (None, Some(b'*')) => get(&row, j + 1),
                        (Some(b'*'), Some(_)) | (Some(_), Some(b'*')) => get(&below, j) || get(&row, j + 1),
                        (Some(x), Some(y)) => x == y && get(&below, j + 1),
                        _ => false,
                    };
                    if let Some(cell) = row.get_mut(j) {
                        *cell = met;
                    }
                }
                below = row;
            }
            below.first().copied().unwrap_or_default()
        }
        meet(self.0.as_bytes(), other.0.as_bytes())
    }
}

// === impl CookiesSettings ===

impl IntoFilter for CookiesSettings {
    type Filter = Cookies;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Cookies> {
        let before = build.mistakes.len();
        if self.0.is_empty() || self.0.len() > MAX_RULES {
            let message = format!("has {} rules; expected 1 to {MAX_RULES}", self.0.len());
            build.refuse("", message, Some("write \"*\": { secure: true, http_only: true }".into()));
        }
        for (name, rule) in &self.0 {
            check_name(name, build);
            rule.check(name, build);
        }
        let mut rules: Vec<_> = self.0.into_iter().map(|(name, rule)| (Pattern(name), rule)).collect();
        let patterns: Vec<&Pattern> =
            rules.iter().map(|(pattern, _)| pattern).filter(|pattern| !pattern.is_exact()).collect();
        for (n, pattern) in patterns.iter().enumerate() {
            for other in patterns.iter().take(n) {
                if pattern.literal() == other.literal() && pattern.meets(other) {
                    let message =
                        format!("and `{}` may match the same cookie, and neither is more specific", other.0);
                    build.refuse(
                        &pattern.0,
                        message,
                        Some("make one of them longer, or one rule of both".into()),
                    );
                }
            }
        }
        rules.sort_by_key(|(pattern, _)| (!pattern.is_exact(), std::cmp::Reverse(pattern.literal())));
        let set_cookie = FieldName::new("set-cookie").expect("a name in the source is a token");
        (build.mistakes.len() == before).then_some(Cookies { rules, set_cookie })
    }
}

/// Reports a name that no cookie can have.
fn check_name(name: &str, build: &mut Build<'_>) {
    let is_token = |b: u8| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b);
    if name.is_empty() || name.len() > MAX_TEXT || !name.bytes().all(is_token) {
        build.refuse(
            name,
            "is no name of a cookie",
            Some("write session, or a pattern such as session_*".into()),
        );
    }
}

impl Rule {
    fn check(&self, name: &str, build: &mut Build<'_>) {
        let at = |key: &str| format!("{name}.{key}");
        if *self == Self::default() {
            build.refuse(name, "changes nothing", Some("write { secure: true }".into()));
        }
        for (key, change) in [("path", &self.path), ("domain", &self.domain)] {
            let Some(change) = change else { continue };
            let ok = |text: &str| {
                text.len() <= MAX_TEXT && text.bytes().all(|b| b.is_ascii_graphic() && b != b';' && b != b',')
            };
            let (fits, form) = match key {
                "path" => (change.texts().all(|text| ok(text) && text.starts_with('/')), "begins with `/`"),
                _ => (change.texts().all(|text| ok(text) && is_domain(text)), "is a domain name"),
            };
            if !fits {
                build.refuse(
                    &at(key),
                    format!("holds a text that no browser takes; expected one that {form}"),
                    None,
                );
            }
            if let Change::Replace(pairs) = change
                && (pairs.is_empty()
                    || pairs.len() > MAX_RULES
                    || pairs.iter().any(|(from, _)| from.is_empty()))
            {
                let message = format!("replaces no text, an empty one, or more than {MAX_RULES}");
                build.refuse(&at(key), message, None);
            }
        }
        if self.same_site == Some(SameSite::None) && self.secure != Some(true) {
            let hint = Some("write secure: true beside it".into());
            build.refuse(
                &at("same_site"),
                "browsers drop a cookie with SameSite=None that is not Secure",
                hint,
            );
        }
        let bound = Bound::of(name.as_bytes());
        if bound.is_some() && self.secure == Some(false) {
            build.refuse(&at("secure"), "browsers drop such a cookie without Secure", None);
        }
        if bound == Some(Bound::Host) {
            if !matches!(&self.domain, None | Some(Change::Remove)) {
                build.refuse(&at("domain"), "browsers drop a `__Host-` cookie with a Domain", None);
            }
            if self.path.is_some() && self.path != Some(Change::Set("/".to_owned())) {
                build.refuse(&at("path"), "browsers drop a `__Host-` cookie whose path is not `/`", None);
            }
        }
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        let parts = |rule: &Self| (rule.secure, rule.http_only, rule.same_site);
        parts(self) == parts(other) && self.path == other.path && self.domain == other.domain
    }
}

fn is_domain(text: &str) -> bool {
    let text = text.strip_prefix('.').unwrap_or(text);
    !text.is_empty()
        && text.split('.').all(|label| !label.is_empty())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// What the name of a cookie promises. Source: RFC 6265bis §4.1.3, which has browsers compare without case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Host,
    Secure,
}

impl Bound {
    fn of(name: &[u8]) -> Option<Self> {
        let begins =
            |prefix: &[u8]| name.get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix));
        match () {
            () if begins(b"__host-") => Some(Self::Host),
            () if begins(b"__secure-") => Some(Self::Secure),
            () => None,
        }
    }
}

impl Filter for Cookies {
    fn hooks(&self) -> Hooks {
        Hooks::RESPONSE
    }

    fn guards(&self) -> FieldGuards {
        FieldGuards { request: Vec::new(), response: vec![self.set_cookie.clone()] }
    }

    fn on_response(&self, head: &mut ResponseHead, _: &mut Cx) -> Flow {
        if !head.headers.has_any(&[Known::SetCookie]) {
            return Flow::Continue;
        }
        let all = head.headers.get_all("set-cookie");
        let changed: Vec<_> = all.map(|value| (value.to_vec(), self.changed(value))).collect();
        if changed.iter().any(|(_, new)| new.is_some()) {
            head.headers.remove_known(Known::SetCookie);
            for (old, new) in changed {
                let _ = head.headers.append(&self.set_cookie, new.as_deref().unwrap_or(&old)); // from valid values
            }
        }
        Flow::Continue
    }
}

impl Cookies {
    /// The new value of a Set-Cookie field; `None` if it stays.
    fn changed(&self, value: &[u8]) -> Option<Vec<u8>> {
        let pair = value.split(|b| *b == b';').next().unwrap_or_default();
        let name = match pair.iter().position(|b| *b == b'=') {
            Some(at) => pair.get(..at).unwrap_or_default().trim_ascii(),
            None => b"", // RFC 6265bis §5.6: a value without a name
        };
        let (_, rule) = self.rules.iter().find(|(pattern, _)| pattern.matches(name))?;
        let new = rule.apply(value, Bound::of(name));
        (new != value).then_some(new)
    }
}

impl Rule {
    fn apply(&self, value: &[u8], bound: Option<Bound>) -> Vec<u8> {
        let mut cookie = SetCookie::read(value);
        if let Some(secure) = self.secure.filter(|secure| *secure || bound.is_none()) {
            cookie.flag("Secure", secure);
        }
        if let Some(http_only) = self.http_only {
            cookie.flag("HttpOnly", http_only);
        }
        match self.same_site {
            None => {}
            Some(SameSite::Lax) => cookie.set("SameSite", b"Lax"),
            Some(SameSite::None) => cookie.set("SameSite", b"None"),
            Some(SameSite::Remove) => cookie.remove("SameSite"),
            Some(SameSite::Strict) => cookie.set("SameSite", b"Strict"),
        }
        let is_host = bound == Some(Bound::Host);
        match &self.path {
            None => {}
            _ if is_host => {} // only `/` is possible, and it has that
            Some(Change::Remove) => cookie.remove("Path"),
            Some(Change::Set(path)) => cookie.set("Path", path.as_bytes()),
            Some(Change::Replace(pairs)) => {
                let new = cookie.get("Path").and_then(|path| {
                    let mut pairs = pairs.iter();
                    pairs.find_map(|(from, to)| {
                        Some([to.as_bytes(), path.strip_prefix(from.as_bytes())?].concat())
                    })
                });
                if let Some(new) = new {
                    cookie.set("Path", &new);
                }
            }
        }
        match &self.domain {
            None => {}
            Some(Change::Remove) => cookie.remove("Domain"),
            _ if is_host => {}
            Some(Change::Set(domain)) => cookie.set("Domain", domain.as_bytes()),
            Some(Change::Replace(pairs)) => {
                let undotted = |name: &[u8]| name.strip_prefix(b".").unwrap_or(name).to_ascii_lowercase();
                let new = cookie.get("Domain").map(|domain| undotted(&domain)).and_then(|domain| {
                    pairs.iter().find(|(from, _)| undotted(from.as_bytes()) == domain).map(|(_, to)| to)
                });
                if let Some(new) = new {
                    cookie.set("Domain", new.as_bytes());
                }
            }
        }
        cookie.parts.join(&b';')
    }
}

/// A value of Set-Cookie, cut at its semicolons: the pair, then attributes.
struct SetCookie {
    parts: Vec<Vec<u8>>,
}

impl SetCookie {
    fn read(value: &[u8]) -> Self {
        Self { parts: value.split(|b| *b == b';').map(<[u8]>::to_vec).collect() }
    }

    /// Name and value of an attribute as browsers read them.
    fn attribute(part: &[u8]) -> (&[u8], &[u8]) {
        let at = part.iter().position(|b| *b == b'=').unwrap_or(part.len());
        let (name, value) = part.split_at(at);
        (name.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii())
    }

    fn is(part: &[u8], name: &str) -> bool {
        Self::attribute(part).0.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The value that counts: the last.
    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let attributes = self.parts.iter().skip(1).rev();
        let found = attributes
            .map(|part| Self::attribute(part))
            .find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| value.to_vec())
    }

    fn remove(&mut self, name: &str) {
        let mut is_pair = true;
        self.parts.retain(|part| std::mem::take(&mut is_pair) || !Self::is(part, name));
    }

    /// Replaces all attributes of this name by one, unless the one that counts has this value.
    fn set(&mut self, name: &str, value: &[u8]) {
        if self.get(name).as_deref() == Some(value) {
            return;
        }
        self.remove(name);
        self.parts.push([b" ", name.as_bytes(), b"=", value].concat());
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        if !is_set {
            self.remove(name);
        } else if self.get(name).is_none() {
            self.parts.push([b" ", name.as_bytes()].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stand;
    use super::*;
    use serde_json::{Value, json};

    async fn cookies(settings: Value, fields: &[&str]) -> Vec<String> {
        let mut exchange = Stand::new(&KIND, settings).build().request("GET /").await;
        let text: String = fields.iter().map(|value| format!("\nSet-Cookie: {value}")).collect();
        let response = exchange.expect_continue().response(&format!("200\nx-a: 1{text}"));
        let all = response.head.headers.get_all("set-cookie");
        all.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    #[tokio::test]
    async fn attributes_are_set_and_kept() {
        let flags = json!({ "*": { "secure": true, "http_only": true, "same_site": "lax" } });
        for (value, expected) in [
            ("a=1", "a=1; Secure; HttpOnly; SameSite=Lax"),
            ("a=1; Path=/; Max-Age=5", "a=1; Path=/; Max-Age=5; Secure; HttpOnly; SameSite=Lax"),
            ("a=1;secure;HTTPONLY;samesite=lax", "a=1;secure;HTTPONLY; SameSite=Lax"),
            ("a=1; Secure; HttpOnly; SameSite=Lax", "a=1; Secure; HttpOnly; SameSite=Lax"),
            ("a=1; SameSite=Lax; SameSite=None", "a=1; Secure; HttpOnly; SameSite=Lax"),
            ("secure=1", "secure=1; Secure; HttpOnly; SameSite=Lax"),
            ("Secure", "Secure; Secure; HttpOnly; SameSite=Lax"),
            ("", "; Secure; HttpOnly; SameSite=Lax"),
            ("a=1; x=\"Secure", "a=1; x=\"Secure; Secure; HttpOnly; SameSite=Lax"),
        ] {
            assert_eq!(cookies(flags.clone(), &[value]).await, [expected], "{value}");
        }
        let off = json!({ "*": { "secure": false, "http_only": false, "same_site": "remove", "domain": "remove", "path": "remove" } });
        let cookie = "a=1; Secure; secure; HttpOnly; SameSite=None; Domain=x.example; Path=/b; Expires=Thu, 01 Jan 1970";
        assert_eq!(cookies(off, &[cookie]).await, ["a=1; Expires=Thu, 01 Jan 1970"]);
    }

    #[tokio::test]
    async fn every_field_gets_its_own_rule() {
        let rules = json!({
            "session": { "http_only": true }, "s*": { "secure": true }, "se*n": { "path": "/" },
            "*": { "same_site": "strict" }
        });
        let fields = ["b=1", "session=1", "sea_n=2", "s=", "Session=1"];
        let changed = [
            "b=1; SameSite=Strict",
            "session=1; HttpOnly",
            "sea_n=2; Path=/",
            "s=; Secure",
            "Session=1; SameSite=Strict",
        ];
        assert_eq!(cookies(rules, &fields).await, changed, "the order stays too");
        assert!(cookies(json!({ "a": { "secure": true } }), &[]).await.is_empty());
    }

    #[tokio::test]
    async fn paths_and_domains_are_replaced() {
        let rules = json!({ "*": {
            "path": { "/two/": "/", "/two/three/": "/3/" },
            "domain": { "localhost": "example.org", ".Old.example": "new.example" }
        } });
        for (value, expected) in [
            ("a=1; path=/two/some/uri/", "a=1; Path=/some/uri/"),
            ("a=1; Path=/two/three/x", "a=1; Path=/3/x"),
            ("a=1; Path=/other", "a=1; Path=/other"),
            ("a=1; Path=/other; Path=/two/", "a=1; Path=/"),
            ("a=1; Domain=LOCALHOST", "a=1; Domain=example.org"),
            ("a=1; Domain=old.example", "a=1; Domain=new.example"),
            ("a=1; Domain=not-old.example", "a=1; Domain=not-old.example"),
            ("a=1", "a=1"),
        ] {
            assert_eq!(cookies(rules.clone(), &[value]).await, [expected], "{value}");
        }
    }

    #[tokio::test]
    async fn what_a_name_promises_is_kept() {
        let rules = json!({ "*": { "secure": false, "domain": "x.example", "path": "/a" } });
        let fields = ["__Host-a=1; Secure; Path=/", "__secure-a=1; Secure", "a=1; Secure"];
        let expected = [
            "__Host-a=1; Secure; Path=/",
            "__secure-a=1; Secure; Path=/a; Domain=x.example",
            "a=1; Path=/a; Domain=x.example",
        ];
        assert_eq!(cookies(rules, &fields).await, expected);
    }

    #[test]
    fn patterns() {
        let is = |pattern: &str, name: &str| Pattern(pattern.to_owned()).matches(name.as_bytes());
        for (pattern, name) in
            [("*", ""), ("*", "a"), ("a*", "a"), ("*a", "ba"), ("a*b*c", "axbbyc"), ("a**b", "ab")]
        {
            assert!(is(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("a*", "b"), ("ab*ba", "aba"), ("a*b*c", "acb"), ("a", "A")] {
            assert!(!is(pattern, name), "{pattern} {name}");
        }
        let meet = |a: &str, b: &str| Pattern(a.to_owned()).meets(&Pattern(b.to_owned()));
        assert!(meet("a*", "*b") && meet("*", "a*") && meet("a*c", "ab*") && meet("*a*", "b*"));
        assert!(!meet("a*", "b*") && !meet("*a", "*b") && !meet("a", "b"));
    }

    #[test]
    fn mistakes() {
        for (settings, told) in [
            (json!({}), "has 0 rules"),
            (json!({ "a": {} }), "a: changes nothing"),
            (json!({ "a b": { "secure": true } }), "is no name of a cookie"),
            (json!({ "a": { "path": "x" } }), "a.path: holds a text that no browser takes"),
            (json!({ "a": { "path": "/;Secure" } }), "a.path: holds a text that no browser takes"),
            (json!({ "a": { "path": { "/x": "y" } } }), "a.path"),
            (json!({ "a": { "domain": "a b" } }), "a.domain"),
            (json!({ "a": { "domain": {} } }), "a.domain: replaces no text"),
            (json!({ "a": { "same_site": "none" } }), "write secure: true"),
            (json!({ "__Host-a": { "domain": "x.example" } }), "`__Host-` cookie with a Domain"),
            (json!({ "__Host-a": { "path": "/x" } }), "path is not `/`"),
            (json!({ "__Secure-a": { "secure": false } }), "without Secure"),
            (
                json!({ "a*": { "secure": true }, "*b": { "secure": false } }),
                "`*b` may match the same cookie",
            ),
            (json!({ "a": { "max_age": 1 } }), "max_age"),
            (json!({ "a": { "same_site": "lose" } }), "same_site"),
        ] {
            let found = Stand::new(&KIND, settings.clone()).mistakes();
            assert!(found.len() == 1 && found[0].contains(told), "{settings}: {found:?}");
        }
    }
}
