//! Looks through a finished plan for secrets that its importer missed, whatever the source. A secret is recognized by
//! the name of its field, by its place, or by its form.
//!
//! Texts of plans have placeholders; only what the source itself says can be a secret. [`super::vault`] then hides
//! each one wherever else it occurs.

use super::model::{Body, ConstantValue, Plan, Request};
use super::text::{self, Span};
use super::vault::{Vault, is_secret, within};
use crate::redact::is_random;
use crate::yaml::{Map, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Least letters and digits of a text beside a placeholder in a field of secrets that make it a secret too: the
/// scheme in `Token {{token}}` is none.
const BESIDE: usize = 4;
/// Names of fields whose random values are no secrets: they are the same for everybody.
const PUBLIC: &[&str] = &["checksum", "digest", "etag", "hash", "integrity", "md5", "nonce", "sha"];
/// Schemes of the field Authorization.
pub(super) const SCHEMES: &[&str] = &["apikey", "basic", "bearer", "digest", "negotiate", "token"];

/// Puts names in the places of secrets. Returns how many checks were taken out because they hold one.
pub fn hide(plan: &mut Plan, vault: &mut Vault) -> usize {
    let mut lost = 0;
    plan.each_request(&mut |request| of_request(request, vault, &mut lost));
    for (name, value) in &mut plan.headers {
        *value = field(name, value, vault);
    }
    plan.values.retain(|constant| {
        let (variable, value) = match &constant.value {
            ConstantValue::Text(value) => (constant.name.to_ascii_uppercase(), value),
            ConstantValue::Optional(variable, value) => (variable.clone(), value),
            ConstantValue::Variable(..) => return true,
        };
        let is_secret = is_secret_value(&constant.name, value);
        if is_secret {
            vault.adopt(&constant.name, &variable, value);
        }
        !is_secret
    });
    for (_, set) in plan.data.iter_mut() {
        if let Value::Map(set) = set
            && let Some(Value::List(rows)) =
                set.iter_mut().find(|(key, _)| *key == "rows").map(|(_, rows)| rows)
        {
            rows.iter_mut().for_each(|row| of_row(row, vault));
        }
    }
    lost
}

/// Whether a value is a secret by its name or its form.
#[must_use]
pub fn is_secret_value(name: &str, value: &str) -> bool {
    !value.is_empty() && (is_secret(name) || !within(value).is_empty() || is_random_secret(name, value))
}

/// Whether a whole value is a secret because it looks random.
fn is_random_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    is_random(value) && !PUBLIC.iter().any(|part| name.contains(part))
}

/// A row of data has no placeholders, but variables of the environment.
fn of_row(row: &mut Value, vault: &mut Vault) {
    let Value::Map(row) = row else { return };
    for (name, cell) in row.iter_mut() {
        if let Value::Text(text) = cell
            && is_secret_value(name, text)
        {
            let name = vault.hide_in_variable(name, text);
            *cell = Value::WithVariables(format!("${{{name}}}"));
        }
    }
}

fn of_request(request: &mut Request, vault: &mut Vault, lost: &mut usize) {
    request.checks.retain(|check| {
        let secret = secret_of_check(check);
        *lost += usize::from(secret.is_some());
        secret.iter().for_each(|value| vault.never_show(value));
        secret.is_none()
    });
    for keep in &request.keep {
        if let Some((_, default)) = keep.source.split_once("|default:")
            && is_secret_value("", default)
        {
            vault.never_show(default);
        }
    }
    if let Some(user) = take_user(&mut request.url) {
        let basic = format!("Basic {{{{base64:{}}}}}", user_and_password(&user, vault));
        if request.header("authorization").is_none() {
            request.set_header("authorization", basic);
        }
    }
    request.url = url(&request.url, vault);
    for (name, value) in &mut request.headers {
        *value = field(name, value, vault);
    }
    match &mut request.body {
        None | Some(Body::File(_)) => {}
        Some(Body::Text(body)) => *body = free_text(body, vault),
        Some(Body::Form(fields)) => {
            fields.iter_mut().for_each(|(name, value)| *value = named(name, value, vault))
        }
        Some(Body::Json(value)) => json(value, "", vault),
        Some(Body::Multipart(parts)) => {
            parts.iter_mut().for_each(|part| part.value = named(&part.name, &part.value, vault));
        }
    }
}

/// What a check must not show: the value of a field whose name says so, or one that looks random.
fn secret_of_check(check: &str) -> Option<String> {
    let (name, value) = match check.split_once(':') {
        Some(("json", rest)) => {
            let (path, value) = rest.split_once('=')?;
            (
                path.rsplit(['.', '[']).next().unwrap_or_default().trim_matches(['\'', ']']),
                value.trim_matches('"'),
            )
        }
        Some(("header", rest)) => rest.split_at(rest.find(['=', '~'])?),
        _ => ("", check.strip_prefix("body~")?),
    };
    let value = value.trim_start_matches(['=', '~']);
    let is_scalar = matches!(value, "true" | "false" | "null") || value.parse::<f64>().is_ok();
    (!is_scalar && is_secret_value(name, value)).then(|| value.to_owned())
}

/// Takes user and password out of a URL, as a text of plans without escapes.
#[must_use]
pub fn take_user(url: &mut String) -> Option<String> {
    let (scheme, rest) = url.split_once("://").filter(|(scheme, _)| scheme.len() <= 10)?;
    let authority = ['/', '?', '#'].iter().map(|end| text::split(rest, *end)[0].len()).min()?;
    let (authority, after) = rest.split_at(authority);
    // The last `@` ends the user: a password may hold one.
    let host = text::split(authority, '@').last().map_or(0, |host| host.len());
    let user = authority.get(..authority.len() - host)?.strip_suffix('@')?.to_owned();
    let decoded = text::map_literals(&user, |own| {
        text::literal(&text::percent_decoded(own).unwrap_or_else(|| own.to_owned()))
    });
    *url = format!("{scheme}://{}{after}", authority.get(authority.len() - host..).unwrap_or_default());
    Some(decoded).filter(|user| !user.is_empty())
}

/// The value of the field Authorization for a user of a URL, as [`take_user`] returns it.
#[must_use]
pub(super) fn basic_field(user: &str) -> String {
    let end = if text::split_once(user, ':').is_some() { "" } else { ":" };
    format!("Basic {{{{base64:{user}{end}}}}}")
}

/// `user:password`, the password hidden.
fn user_and_password(user: &str, vault: &mut Vault) -> String {
    match text::split_once(user, ':') {
        Some((name, password)) => format!("{name}:{}", secret("url_password", password, vault)),
        None => format!("{user}:"),
    }
}

/// A URL: segments of its path, and values of its query by their names.
fn url(url: &str, vault: &mut Vault) -> String {
    let (before, query) = match text::split_once(url, '?') {
        Some((before, query)) => (before, Some(query)),
        None => (url, None),
    };
    let mut previous = String::new();
    let segments: Vec<String> = text::split(before, '/')
        .into_iter()
        .map(|segment| {
            let made = match text::has_placeholder(segment) {
                true => functions(segment, vault),
                false => {
                    let plain = text::percent_decoded(segment).unwrap_or_else(|| segment.to_owned());
                    let is_named =
                        is_secret(&previous) && plain.len() >= 8 && plain.bytes().any(|b| b.is_ascii_digit());
                    match is_named {
                        true => vault.hide(&previous, &plain),
                        false => {
                            vault.hidden_within("path_token", segment).unwrap_or_else(|| segment.to_owned())
                        }
                    }
                }
            };
            segment.clone_into(&mut previous);
            made
        })
        .collect();
    let before = segments.join("/");
    let Some(query) = query else { return before };
    let pairs = text::split(query, '&').into_iter().map(|pair| {
        let Some((name, value)) = text::split_once(pair, '=') else { return pair.to_owned() };
        let plain = text::form_decoded(name).unwrap_or_else(|| name.to_owned());
        let decoded = (!text::has_placeholder(value)).then(|| text::form_decoded(value)).flatten();
        match decoded {
            Some(value) if is_secret(&plain) && !value.is_empty() || is_random_secret(&plain, &value) => {
                format!("{name}={}", vault.hide(&plain, &value))
            }
            _ => format!("{name}={}", named(&plain, value, vault)),
        }
    });
    let pairs: Vec<String> = pairs.collect();
    format!("{before}?{}", pairs.join("&"))
}

/// The value of a header field.
fn field(name: &str, value: &str, vault: &mut Vault) -> String {
    if name.eq_ignore_ascii_case("cookie") {
        let pairs = text::split(value, ';').into_iter().map(|pair| {
            let pair = pair.trim();
            match text::split_once(pair, '=') {
                Some((cookie, value)) if !value.is_empty() => {
                    format!("{cookie}={}", secret(&format!("cookie_{cookie}"), value, vault))
                }
                _ => pair.to_owned(),
            }
        });
        return pairs.collect::<Vec<_>>().join("; ");
    }
    named(name, value, vault)
}

/// The value of a field with a name.
fn named(name: &str, value: &str, vault: &mut Vault) -> String {
    if is_secret(name) {
        return secret(name, value, vault);
    }
    if !text::has_placeholder(value) {
        let plain = text::spans(value);
        if let [Span::Literal(own)] = &plain[..]
            && is_random_secret(name, own)
        {
            return vault.hide(name, own);
        }
    }
    pieces(value, vault, |own, vault| vault.literal(name, own))
}

/// The value of a field whose name says that it is a secret.
fn secret(name: &str, value: &str, vault: &mut Vault) -> String {
    if !text::has_placeholder(value) {
        return match &text::spans(value)[..] {
            [Span::Literal(own)] if !own.trim().is_empty() => super::request::credentials(name, own, vault),
            _ => value.to_owned(),
        };
    }
    pieces(value, vault, |own, vault| {
        let (scheme, rest) = match own.split_once(' ') {
            Some((scheme, rest)) if SCHEMES.contains(&&*scheme.trim().to_ascii_lowercase()) => {
                (own.get(..=scheme.len()).unwrap_or_default(), rest)
            }
            _ => ("", own),
        };
        let is_word = SCHEMES.contains(&&*rest.trim().to_ascii_lowercase());
        let count = rest.chars().filter(|c| c.is_alphanumeric()).count();
        match count < BESIDE || is_word {
            true => text::literal(own),
            false => format!("{}{}", text::literal(scheme), vault.hide(name, rest)),
        }
    })
}

/// A text with each part that the source itself says changed, and secrets in functions hidden.
fn pieces(value: &str, vault: &mut Vault, change: impl Fn(&str, &mut Vault) -> String) -> String {
    let mut out = String::new();
    for span in text::spans(value) {
        match span {
            Span::Literal(own) => out.push_str(&change(&own, vault)),
            Span::Placeholder(inner) => out.push_str(&text::placeholder(&function(inner, vault))),
        }
    }
    out
}

/// A text whose functions have no secrets any more.
fn functions(value: &str, vault: &mut Vault) -> String {
    pieces(value, vault, |own, _| text::literal(own))
}

/// What stands between two braces: the password of `base64:user:password` and the key of `hmac_sha256:key:text`.
fn function(inner: &str, vault: &mut Vault) -> String {
    if let Some(plain) = inner.strip_prefix("base64:") {
        return match text::split_once(plain, ':') {
            Some((user, password)) => format!("base64:{user}:{}", secret("password", password, vault)),
            None => format!("base64:{}", pieces(plain, vault, |own, vault| vault.literal("secret", own))),
        };
    }
    if let Some((key, text)) = inner.strip_prefix("hmac_sha256:").and_then(|rest| text::split_once(rest, ':'))
    {
        let key = match text::has_placeholder(key) || key.is_empty() {
            true => functions(key, vault),
            false => vault.hide("hmac_key", key),
        };
        return format!("hmac_sha256:{key}:{}", functions(text, vault));
    }
    inner.to_owned()
}

fn json(value: &mut Value, key: &str, vault: &mut Vault) {
    match value {
        Value::Text(text) => *text = named(key, text, vault),
        // A number, such as a PIN.
        Value::Number(number) if is_secret(key) => {
            let hidden = vault.hide(key, &number.to_string());
            *value = Value::Text(hidden.replacen("}}", "|int}}", 1));
        }
        Value::List(items) => items.iter_mut().for_each(|item| json(item, key, vault)),
        Value::Map(map) => members(map, vault),
        _ => {}
    }
}

fn members(map: &mut Map, vault: &mut Vault) {
    for (key, value) in map.iter_mut() {
        let key = key.to_owned();
        json(value, &key, vault);
    }
}

/// A body that is a text: secrets by their form, behind their names, and words that look random.
fn free_text(body: &str, vault: &mut Vault) -> String {
    pieces(body, vault, |own, vault| {
        let mut out = String::new();
        let hidden = vault.literal("secret", own);
        for span in text::spans(&hidden) {
            match span {
                Span::Placeholder(inner) => out.push_str(&text::placeholder(inner)),
                Span::Literal(own) => random_words(&own, vault, &mut out),
            }
        }
        out
    })
}

/// Hides random words between quotes, blanks and signs. What `+` or `/` joins is Base64 of something longer.
fn random_words(own: &str, vault: &mut Vault, out: &mut String) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '/' | '.');
    let mut rest = own;
    while !rest.is_empty() {
        let word = rest.len() - rest.trim_start_matches(is_part).len();
        let (word, after) = rest.split_at(word);
        if is_random(word) && !text::joins(out) {
            out.push_str(&vault.hide("secret", word));
        } else {
            out.push_str(&text::literal(word));
        }
        let between = after.len() - after.trim_start_matches(|c| !is_part(c)).len();
        out.push_str(&text::literal(after.get(..between).unwrap_or_default()));
        rest = after.get(between..).unwrap_or_default();
    }
}

/// User and password of the credentials of `Basic`, if they are that.
#[must_use]
pub fn basic(credentials: &str) -> Option<(String, String)> {
    let plain = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (user, password) = plain.split_once(':')?;
    let is_plain = !plain.chars().any(char::is_control) && !password.is_empty();
    is_plain.then(|| (user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a request becomes, and the values that were hidden.
    fn hidden(mut request: Request) -> (Request, String) {
        let mut vault = Vault::default();
        of_request(&mut request, &mut vault, &mut 0);
        let shown = format!("{request:?}");
        (request, shown)
    }

    #[test]
    fn secrets_in_urls_are_hidden() {
        for (url, want) in [
            ("http://a/?token=hush-1&b=2", "http://a/?token={{token}}&b=2"),
            ("http://a/?access%5Ftoken=hush%2D1", "http://a/?access%5Ftoken={{access_token}}"),
            ("http://a/{{x}}?sid=hush{{n}}&c={{d}}", "http://a/{{x}}?sid={{sid}}{{n}}&c={{d}}"),
            ("http://a/reset-token/a1b2c3d4e5", "http://a/reset-token/{{reset_token}}"),
            ("http://a/?x=zQ8vL2mN4pR6tU8wY0aC2eG4", "http://a/?x={{x}}"),
            (
                "http://a/?sha=9f86d081884c7d659a2feaa0c55ad015",
                "http://a/?sha=9f86d081884c7d659a2feaa0c55ad015",
            ),
            ("/p?q={{base64:ann:hush-pass}}", "/p?q={{base64:ann:{{password}}}}"),
            ("/p?q={{hmac_sha256:hush-key:{{x}}}}", "/p?q={{hmac_sha256:{{hmac_key}}:{{x}}}}"),
        ] {
            let (request, shown) = hidden(Request::new("GET", url));
            assert_eq!(request.url, want, "{url}");
            assert!(!shown.contains("hush"), "{shown}");
        }
        let (request, shown) = hidden(Request::new("GET", "https://ann:hush%21pass@a/x"));
        assert_eq!(request.url, "https://a/x");
        assert_eq!(request.header("authorization"), Some("Basic {{base64:ann:{{url_password}}}}"));
        assert!(!shown.contains("hush"), "{shown}");
    }

    #[test]
    fn checks_with_secrets_are_known() {
        for (check, want) in [
            ("json:$.user.token=\"hush-1\"", Some("hush-1")),
            ("json:$['api-key']=\"hush-1\"", Some("hush-1")),
            ("header:x-api-key=hush-1", Some("hush-1")),
            ("body~zQ8vL2mN4pR6tU8wY0aC2eG4", Some("zQ8vL2mN4pR6tU8wY0aC2eG4")),
            ("json:$.token", None),
            ("json:$.has_token=true", None),
            ("json:$.name=\"Ann\"", None),
            ("body~token", None),
            ("status=200", None),
            ("p-max<200ms", None),
        ] {
            assert_eq!(secret_of_check(check).as_deref(), want, "{check}");
        }
    }

    #[test]
    fn secrets_in_fields_and_bodies_are_hidden() {
        let mut request = Request::new("POST", "/");
        for (name, value) in [
            ("cookie", "lang=hush-en; sid={{s}}"),
            ("authorization", "Basic YW5uOmh1c2gtcGFzcw=="),
            ("x-api-key", "{{env}}"),
            ("x-jwt-assertion", "hush-1"),
            ("x-pwd", "hush-2"),
            ("X-CSRF", "hush-3"),
            ("x-jwt-header", "x-user"),
            ("x-note", "zQ8vL2mN4pR6tU8wY0aC2eG4"),
            ("x-token", "Token hush{{n}}"),
        ] {
            request.set_header(name, value);
        }
        request.body =
            Some(Body::Text("<password>hush-xml</password> key=zQ8vL2mN4pR6tU8wY0aC2eG5".to_owned()));
        let (request, shown) = hidden(request);
        assert_eq!(request.header("cookie"), Some("lang={{cookie_lang}}; sid={{s}}"));
        assert_eq!(request.header("authorization"), Some("Basic {{base64:ann:{{password}}}}"));
        assert_eq!(request.header("x-api-key"), Some("{{env}}"));
        assert_eq!(request.header("x-jwt-assertion"), Some("{{x_jwt_assertion}}"));
        assert_eq!(request.header("x-pwd"), Some("{{x_pwd}}"));
        assert_eq!(request.header("x-csrf"), Some("{{x_csrf}}"));
        assert_eq!(request.header("x-jwt-header"), Some("x-user"), "names another field");
        assert_eq!(request.header("x-note"), Some("{{x_note}}"));
        assert_eq!(request.header("x-token"), Some("Token {{x_token}}{{n}}"));
        assert!(!shown.contains("hush") && !shown.contains("zQ8vL2"), "{shown}");
    }
}
