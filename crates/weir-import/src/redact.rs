//! Which names and texts of a source hold secrets, and excerpts of a source without them.
//!
//! The name of a thing says that its value is a secret: `Authorization`, `X-Api-Key`, `db_password`. Without a name,
//! its form does: tokens with the prefix of who issues them (`ghp_…`), and long random texts. Reports print excerpts,
//! so what may be a secret is left out there even where it is none.

use regex::Regex;
use std::sync::LazyLock;

/// What stands in the place of a secret.
pub(crate) const HIDDEN: &str = "***";

/// Names whose values are secrets wherever they stand, in lower case and with `-` for `_`.
const WHOLE: &[&str] = &[
    "acme-dns",
    "apikey",
    "authorization",
    "passwd",
    "proxy-authorization",
    "pw",
    "pwd",
    "secure-link-md5",
    "sig",
    "signature",
];
/// Names of cookies whose values are secrets behind a `=`; alone, they only name the cookie.
const SESSIONS: &[&str] = &["jsessionid", "phpsessid", "session", "session_id", "sessionid"];
/// Parts of such names.
const PARTS: &[&str] = &[
    "access-key",
    "accesskey",
    "api-key",
    "apikey",
    "auth-key",
    "authkey",
    "credential",
    "passphrase",
    "passwd",
    "password",
    "private-key",
    "secret",
    "token",
];
/// Ends of names that only describe a secret: where it stands, how it is called, how long it lives.
const DESCRIBES: &[&str] = &[
    "-cookie",
    "-endpoint",
    "-field",
    "-file",
    "-header",
    "-limit",
    "-name",
    "-path",
    "-ttl",
    "-type",
    "-uri",
    "-url",
    "tokens",
    "-tokens",
];

/// The user and password of a URL. A variable in front of the colon has its default behind it; our own marks of one are
/// private characters.
static USER_INFO: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?P<start>(?:^|[\s/])[^\s/?#@:${}\x{E000}\x{E001}]*:)(?P<password>[^\s/?#@]+)@[A-Za-z0-9\[]")
        .expect("the pattern is a literal")
});
/// `name=value`, as queries and settings write it.
static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?P<name>[A-Za-z][A-Za-z0-9_.-]*)=(?P<value>[^\s&"'`;,]+)"#)
        .expect("the pattern is a literal")
});
/// The value of a field Authorization.
static SCHEME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?P<scheme>[Bb]asic|BASIC|[Bb]earer|BEARER)\s+(?P<value>[A-Za-z0-9+/._~-]*[0-9=][A-Za-z0-9+/._~=-]*)")
        .expect("the pattern is a literal")
});

/// Tokens by the prefix of who issues them: Stripe, GitHub, GitLab, Slack, AWS, Google, SendGrid, npm; and JWTs.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    let forms = [
        "[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
        "gh[opsru]_[A-Za-z0-9]{20,}",
        "github_pat_[A-Za-z0-9_]{20,}",
        "glpat-[A-Za-z0-9_-]{15,}",
        "xox[abeoprs]-[A-Za-z0-9-]{10,}",
        "(?:AKIA|ASIA)[A-Z0-9]{16}",
        "AIza[A-Za-z0-9_-]{30,}",
        r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        "npm_[A-Za-z0-9]{30,}",
        r"ya29\.[A-Za-z0-9_-]{20,}",
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    ];
    Regex::new(&format!(r"\b(?P<value>{})", forms.join("|"))).expect("the patterns are literals")
});

/// Words that may be random: parts of paths and queries, for instance.
static RANDOM_WORD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[A-Za-z0-9_=-]{20,}").expect("the pattern is a literal"));
/// A name in a statement, which may be the one of a secret.
static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[A-Za-z][A-Za-z0-9_-]*").expect("the pattern is a literal"));
/// What stands between a name and the value that it is compared with or set to, and that value.
static COMPARED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"^(?P<between>[\s"'`)\]}:=~!<>,]*(?:-(?:m\s+(?:str|beg|end|sub|reg)|i)\s+)*["'`]?)(?P<value>[^\s"'`)\]};,]+)"#,
    )
    .expect("the pattern is a literal")
});

/// Shortest text whose randomness makes it a secret, and the shortest one of hexadecimal digits.
const RANDOM: usize = 20;
const RANDOM_HEX: usize = 32;

/// Whether a whole text looks random, as keys and tokens do: letters of both cases and digits that alternate, or many
/// hexadecimal digits. Names of things do not: `MyLongServiceName2`.
#[must_use]
pub fn is_random(text: &str) -> bool {
    let count = |fits: fn(&u8) -> bool| text.bytes().filter(&fits).count();
    let digits = count(u8::is_ascii_digit);
    if text.len() >= RANDOM_HEX && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return digits > 0 && digits < text.len();
    }
    let class = |byte: u8| (byte.is_ascii_lowercase(), byte.is_ascii_uppercase(), byte.is_ascii_digit());
    let changes = text.as_bytes().windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();
    text.len() >= RANDOM
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_=-".contains(&byte))
        && digits >= 3
        && count(u8::is_ascii_lowercase) > 0
        && count(u8::is_ascii_uppercase) > 0
        && changes * 3 >= text.len()
}

/// Whether what has this name is a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let is_key = name.starts_with("x-") && (name.ends_with("-key") || name.ends_with("-auth"));
    let is_named = WHOLE.contains(&&*name) || is_key || PARTS.iter().any(|part| name.contains(part));
    is_named && !DESCRIBES.iter().any(|end| name.ends_with(end))
}

/// Shortest value that is taken for a secret by what it is compared with.
const SHORTEST: usize = 3;

/// The literal values that a statement compares a secret with, or sets one to: `$arg_token = abc`, `token: 'abc'`,
/// `Header(`X-Api-Key`, `abc`)`. In order.
fn compared(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    for name in NAME.find_iter(text) {
        let bare = name.as_str().to_ascii_lowercase();
        let bare =
            ["http_", "arg_", "cookie_"].iter().find_map(|kind| bare.strip_prefix(kind)).unwrap_or(&bare);
        if !is_secret_name(bare) {
            continue;
        }
        let Some(captures) = COMPARED.captures(&text[name.end()..]) else { continue };
        let (Some(between), Some(value)) = (captures.name("between"), captures.name("value")) else {
            continue;
        };
        // What only white space or a comma parts from the name is the next word of a list.
        let is_apart = matches!(
            between.as_str().trim(),
            "" | "," | "\"" | "'" | "`" | "\",\"" | "\", \"" | "','" | "', '" | ":" | "://"
        );
        let is_value = is_literal(value.as_str())
            && value.as_str().len() >= SHORTEST
            && value.as_str() != HIDDEN
            && !is_secret_name(value.as_str())
            && !value.as_str().starts_with(['/', '&', '|', '(', '[']);
        if !is_apart && is_value {
            found.push(name.end() + value.start()..name.end() + value.end());
            // HAProxy compares a sample with each of the words behind it.
            if between.as_str().contains(')') {
                found.extend(further(text, name.end() + value.end()));
            }
        }
    }
    found.sort_by_key(|range| range.start);
    found.dedup_by(|later, before| later.start < before.end);
    found
}

/// The words behind the first value of a condition of HAProxy, to its end: `{ req.hdr(x-token) abc def }`.
fn further(text: &str, from: usize) -> Vec<std::ops::Range<usize>> {
    let mut at = from;
    let mut found = Vec::new();
    if !text[from..].starts_with(char::is_whitespace) {
        return found;
    }
    for word in text[from..].split_inclusive(char::is_whitespace) {
        let bare = word.trim();
        if matches!(bare, "or" | "if" | "unless")
            || !bare.is_empty() && !bare.contains(|c: char| c.is_ascii_alphanumeric())
        {
            break;
        }
        if is_literal(bare) && bare != HIDDEN {
            found.push(at..at + bare.len());
        }
        at += word.len();
    }
    found
}

/// Where a secret begins that neither a name nor its form reveals: Caddy's key for sticky cookies, and the text that
/// nginx hashes, part of which is secret.
fn unnamed(text: &str) -> Option<usize> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let before = match &*words {
        ["secure_link_md5", _, ..] => 1,
        ["lb_policy", "cookie", _, _, ..] => 3,
        _ => return None,
    };
    let mut at = 0;
    for word in &words[..before] {
        at += text[at..].find(word)? + word.len();
    }
    Some(at + text[at..].find(|c: char| !c.is_whitespace())?)
}

/// A secret within a text: where it stands, and a name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Bytes of the text.
    pub range: std::ops::Range<usize>,
    /// A name for it.
    pub name: String,
}

/// Secrets within a text that needs no name to hold one: passwords and parameters of URLs, and `Bearer …`. In order.
#[must_use]
pub fn within(text: &str) -> Vec<Found> {
    found(text, false)
}

/// As [`within`], and random words wherever they stand.
#[must_use]
pub fn within_random(text: &str) -> Vec<Found> {
    found(text, true)
}

fn found(text: &str, with_random: bool) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let mut add = |range: std::ops::Range<usize>, name: &str| {
        if is_literal(&text[range.clone()]) {
            found.push(Found { range, name: name.to_owned() });
        }
    };
    for captures in USER_INFO.captures_iter(text) {
        if let Some(password) = captures.name("password") {
            add(password.range(), "url_password");
        }
    }
    for captures in PAIR.captures_iter(text) {
        if let (Some(name), Some(value)) = (captures.name("name"), captures.name("value"))
            && (is_secret_name(name.as_str()) || SESSIONS.contains(&&*name.as_str().to_ascii_lowercase()))
        {
            add(value.range(), name.as_str());
        }
    }
    for captures in SCHEME.captures_iter(text) {
        if let Some(value) = captures.name("value") {
            add(value.range(), "authorization");
        }
    }
    for captures in TOKEN.captures_iter(text) {
        if let Some(value) = captures.name("value") {
            add(value.range(), "token");
        }
    }
    for word in RANDOM_WORD.find_iter(text).filter(|word| with_random && is_random(word.as_str())) {
        add(word.range(), "token");
    }
    found.sort_by_key(|found| found.range.start);
    let mut end = 0;
    found.retain(|found| {
        let is_free = found.range.start >= end;
        end = end.max(found.range.end);
        is_free
    });
    found
}

/// Whether a text stands for itself: it is no variable, placeholder or expression of any system.
#[must_use]
pub fn is_literal(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(['$', '{', '%', '*', '~'])
        && !text.contains(crate::yaml::VARIABLE_BEGIN)
        && !text.contains("${")
}

/// A text for a name: its random words are replaced.
#[must_use]
pub fn without_tokens(text: &str) -> std::borrow::Cow<'_, str> {
    let shown = |captures: &regex::Captures<'_>| {
        let word = captures.get(0).map_or("", |word| word.as_str());
        // A word of a name begins behind its dashes, which tokens may have too.
        let token = word.rsplit('-').next().unwrap_or(word);
        match (is_random(token), is_random(word)) {
            (true, _) => format!("{}token", &word[..word.len() - token.len()]),
            (_, true) => "token".to_owned(),
            _ => word.to_owned(),
        }
    };
    RANDOM_WORD.replace_all(text, shown)
}

/// A text without the secrets that [`within`] finds.
pub(crate) fn hidden(text: &str) -> String {
    without(text, &within(text))
}

/// A text without the secrets that were found in it, which are in order.
fn without(text: &str, all: &[Found]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for found in all {
        out.push_str(&text[end..found.range.start]);
        out.push_str(HIDDEN);
        end = found.range.end;
    }
    out.push_str(&text[end..]);
    out
}

/// A statement of a source for a report: without what may be a secret.
#[must_use]
pub fn statement(text: &str) -> String {
    if let Some(at) = unnamed(text) {
        return format!("{}{HIDDEN}", &text[..at]);
    }
    let mut out = without(text, &within_random(text));
    for range in compared(&out.clone()).into_iter().rev() {
        out.replace_range(range, HIDDEN);
    }
    let random = |word: &str| is_random(word.trim().trim_matches(['"', '\'', '`', ';']));
    if out.split_whitespace().any(random) {
        let hidden = |word: &str| match random(word) {
            true => format!("{HIDDEN}{}", &word[word.trim_end().len()..]),
            false => word.to_owned(),
        };
        out = out.split_inclusive(char::is_whitespace).map(hidden).collect();
    }
    // A word that names a secret hides what follows it: `X-Api-Key: abc`, `set-header Authorization "Basic abc"`.
    let mut at = 0;
    for word in out.split_inclusive(char::is_whitespace) {
        at += word.len();
        let colon = word.trim_end().ends_with(':');
        let bare = word
            .trim()
            .trim_end_matches(':')
            .trim_matches(['"', '\'', '`'])
            .trim_start_matches(['+', '-', '?', '>', '$', '@']);
        let rest = out[at..].trim().trim_matches(['"', '\'', '`', ';']);
        let is_name = is_secret_name(bare) && (colon || bare.chars().all(is_name_char));
        if is_name && is_literal(rest) && rest != HIDDEN {
            return format!("{}{HIDDEN}", &out[..at]);
        }
    }
    out
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_hide_secrets() {
        let cases = [
            ("proxy_pass http://bob:s3cret@up/x", "proxy_pass http://bob:***@up/x"),
            ("header_up Authorization \"Basic abc==\"", "header_up Authorization ***"),
            ("X-Api-Key: abc", "X-Api-Key: ***"),
            ("proxy_set_header X-Origin-Auth abc;", "proxy_set_header X-Origin-Auth ***"),
            ("set $db_password abc;", "set $db_password ***"),
            ("uri /x?token=abc&a=1", "uri /x?token=***&a=1"),
            ("Header(`X`, `Bearer abc123`)", "Header(`X`, `Bearer ***`)"),
            // By its form alone: the key of a map, a field with a name that says nothing.
            ("sk_live_4eC39HqLyjWDarjtT1zdp7dc shop", "*** shop"),
            ("\"zQ8vL2mN4pR6tU8wY0aC2eG4\" 1", "\"***\" 1"),
            ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 app", "*** app"),
            ("proxy_set_header X-Foo xoxb-123456789012-abcdef", "proxy_set_header X-Foo ***"),
            ("Cookie \"session=abc123\"", "Cookie \"session=***\""),
            ("if ($arg_token = abc)", "if ($arg_token = ***)"),
            ("if ($http_x_api_key != 'abc')", "if ($http_x_api_key != '***')"),
            (
                "http-request deny unless { req.hdr(x-api-key) abc }",
                "http-request deny unless { req.hdr(x-api-key) *** }",
            ),
            ("acl ok req.hdr(x-token) -m str abc", "acl ok req.hdr(x-token) -m str ***"),
            ("Header(`X-Api-Key`, `abc`) && Path(`/x`)", "Header(`X-Api-Key`, `***`) && Path(`/x`)"),
            ("@a expression {query.token} != 'abc'", "@a expression {query.token} != '***'"),
            ("local token='abc' end", "local token='***' end"),
            ("secure_link_md5 abc$uri", "secure_link_md5 ***"),
            ("secure_link_md5 \"$secure_link_expires$uri word\"", "secure_link_md5 ***"),
            ("acl ok req.hdr(x-token) -m str abc def", "acl ok req.hdr(x-token) -m str *** ***"),
            (
                "http-request deny unless { req.hdr(x-token) abc def } or { path /x }",
                "http-request deny unless { req.hdr(x-token) *** *** } or { path /x }",
            ),
            ("lb_policy cookie lb s3cretlb", "lb_policy cookie lb ***"),
            ("lb_policy cookie lb", "lb_policy cookie lb"),
            ("location /hook/zQ8vL2mN4pR6tU8wY0aC2eG4/x", "location /hook/***/x"),
            ("server bob:s3cret@10.0.0.1:80", "server bob:***@10.0.0.1:80"),
            ("map $http_authorization $user", "map $http_authorization $user"),
            (
                "cors Authorization,Content-Type,X-Api-Key,DNT",
                "cors Authorization,Content-Type,X-Api-Key,DNT",
            ),
            (
                "if ($http_authorization = \"\") { return 401; }",
                "if ($http_authorization = \"\") { return 401; }",
            ),
            ("use_backend MyVeryLongServiceName2Backend", "use_backend MyVeryLongServiceName2Backend"),
            (
                "server_name very-long-name-of-a-host-2026-07-31-b",
                "server_name very-long-name-of-a-host-2026-07-31-b",
            ),
            // A name or a placeholder of a secret is no secret.
            (
                "header_up Authorization {http.request.header.X}",
                "header_up Authorization {http.request.header.X}",
            ),
            ("proxy_set_header Authorization $http_x;", "proxy_set_header Authorization $http_x;"),
            ("token_header: X-Token", "token_header: X-Token"),
            ("auth-type: basic", "auth-type: basic"),
            (
                "Access-Control-Allow-Headers \"Authorization, X-Api-Key\"",
                "Access-Control-Allow-Headers \"Authorization, X-Api-Key\"",
            ),
            ("http://host:8080/a@b", "http://host:8080/a@b"),
        ];
        for (text, shown) in cases {
            assert_eq!(statement(text), shown, "{text}");
        }
    }
}
