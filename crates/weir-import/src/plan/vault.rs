//! Secrets of a source. Each becomes a name under `values:` that stands for a variable of the environment, so that a
//! plan can be shown and committed. Steps use the name, escaped for the place where it stands.
//!
//! A secret is found by the name of its field, or by its own form. Wherever else a long one occurs, it is hidden too:
//! [`Vault::conceal`] looks through all texts of the finished plan, and [`Finder::masked`] through those of reports.

use super::model::{Constant, ConstantValue, Plan, Request, Step};
use super::text::{self, Span};
use crate::redact::{self, Found, is_secret_name};
use crate::yaml::Value;
use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

/// What stands in the place of a secret in reports.
const HIDDEN: &str = "***";
/// A secret of at least this length is looked for everywhere. A shorter one, such as `test`, may be an ordinary word
/// elsewhere.
const EVERYWHERE: usize = 8;
/// Most secrets of a source.
const MOST: usize = 2_000;

/// Names of fields whose values are secrets, beside those of [`is_secret_name`]: lower case, `-` for `_`.
const NAMES: &[&str] = &[
    "auth",
    "bearer",
    "card-number",
    "cardnumber",
    "client-assertion",
    "code-verifier",
    "cookie",
    "cvc",
    "cvv",
    "jsessionid",
    "jwt",
    "otp",
    "passcode",
    "phpsessid",
    "pin",
    "session",
    "session-id",
    "sessionid",
    "sid",
    "ssn",
    "x-amz-credential",
    "x-amz-signature",
    "x-auth",
];

/// Words of names, between hyphens, that say the same: `x-jwt-assertion`, `x-csrf`, `x-pwd`.
const WORDS: &[&str] =
    &["assertion", "csrf", "dpop", "hmac", "jwt", "otp", "passcode", "pwd", "saml", "xsrf"];

/// Texts that are secrets whatever they are called: JSON Web Tokens, keys of well-known services, private keys.
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?",
        r"|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bglpat-[A-Za-z0-9_-]{16,}",
        r"|\bAKIA[A-Z0-9]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAIza[A-Za-z0-9_-]{30,}|\bsk-[A-Za-z0-9_-]{20,}",
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]+-----END [A-Z ]*PRIVATE KEY-----",
    ))
    .expect("the pattern is a literal")
});

/// The secrets found so far.
#[derive(Debug, Default)]
pub struct Vault {
    secrets: Vec<Secret>,
    /// The position of each secret that the source has a value for, by that value.
    by_value: HashMap<String, usize>,
    /// Whether there were more than `MOST`.
    is_full: bool,
    /// Names that something else has: kept values, data sets.
    taken: BTreeSet<String>,
    /// The last number that was added to a name to make it unique.
    numbers: HashMap<String, usize>,
    /// Texts that reports must not show although the plan does not have them.
    unused: BTreeSet<String>,
}

#[derive(Debug)]
struct Secret {
    name: String,
    variable: String,
    /// What the source has; `None` if the source itself names a variable.
    value: Option<String>,
}

/// Whether what has this name is a secret.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let lower = with_hyphens(name);
    // A name with `token` in it is one of a secret unless its end says that it only describes one, such as `-header`.
    let is_word =
        || lower.split('-').any(|word| WORDS.contains(&word)) && is_secret_name(&format!("token-{lower}"));
    is_secret_name(&lower) || NAMES.contains(&&*lower) || lower.starts_with("x-auth-") || is_word()
}

/// A name in lower case with `-` between its words: `tokenUrl` describes a token as `token_url` does.
fn with_hyphens(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && was_lower {
            out.push('-');
        }
        was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(if c == '_' { '-' } else { c.to_ascii_lowercase() });
    }
    out
}

/// A member of JSON with a text, as texts within texts have it.
static MEMBER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"\\?"(?P<name>[A-Za-z][A-Za-z0-9_.-]*)\\?"\s*:\s*\\?"(?P<value>[^"\\]+)"#)
        .expect("the pattern is a literal")
});

/// An element of XML with a text.
static ELEMENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"<(?:[A-Za-z0-9_]+:)?(?P<name>[A-Za-z][A-Za-z0-9_.-]*)(?:\s[^<>]*)?>(?P<value>[^<>]+)</")
        .expect("the pattern is a literal")
});

/// Secrets within a text that needs no name to hold one, in order.
#[must_use]
pub fn within(text: &str) -> Vec<Found> {
    let mut all = redact::within(text);
    for found in FORMS.find_iter(text) {
        all.push(Found { range: found.range(), name: String::new() });
    }
    for captures in MEMBER.captures_iter(text).chain(ELEMENT.captures_iter(text)) {
        if let (Some(name), Some(value)) = (captures.name("name"), captures.name("value"))
            && is_secret(name.as_str())
            && !value.as_str().trim().is_empty()
        {
            all.push(Found { range: value.range(), name: name.as_str().to_owned() });
        }
    }
    all.sort_by_key(|found| (found.range.start, std::cmp::Reverse(found.range.end)));
    let mut end = 0;
    all.retain(|found| {
        let is_free = found.range.start >= end;
        end = end.max(found.range.end);
        is_free
    });
    all
}

impl Vault {
    /// Reserves a name, so that no secret gets it.
    pub fn take(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    /// Whether a secret has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.secrets.iter().any(|secret| secret.name == name)
    }

    /// A name that nothing has yet, which is reserved then.
    pub fn free(&mut self, wish: &str) -> String {
        let base = text::name(wish);
        let number = self.numbers.entry(base.clone()).or_insert(1);
        let mut name = base.clone();
        while self.taken.contains(&name) {
            *number += 1;
            name = format!("{base}_{number}");
        }
        self.taken.insert(name.clone());
        name
    }

    /// The placeholder for a secret. The same secret has one name, that of its first occurrence.
    pub fn hide(&mut self, wish: &str, value: &str) -> String {
        text::placeholder(&self.hidden(wish, value))
    }

    /// The name of a secret.
    fn hidden(&mut self, wish: &str, value: &str) -> String {
        if let Some(known) = self.by_value.get(value).and_then(|at| self.secrets.get(*at)) {
            return known.name.clone();
        }
        if self.secrets.len() >= MOST {
            // Still no secret is shown: one name stands for all that are too many.
            self.is_full = true;
            self.unused.insert(value.to_owned());
            return self.open("more_secrets");
        }
        let name = self.free(wish);
        let variable = name.to_ascii_uppercase();
        self.by_value.insert(value.to_owned(), self.secrets.len());
        self.secrets.push(Secret { name: name.clone(), variable, value: Some(value.to_owned()) });
        name
    }

    /// The variable of the environment for a secret, where a plan takes no placeholder.
    pub fn hide_in_variable(&mut self, wish: &str, value: &str) -> String {
        let name = self.hidden(wish, value);
        self.secrets.iter().find(|secret| secret.name == name).map_or(name, |known| known.variable.clone())
    }

    /// Whether some secrets share one name, because there were more than `MOST`.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The placeholder for a variable of the environment that the source itself leaves open.
    pub fn variable(&mut self, wish: &str) -> String {
        text::placeholder(&self.open(wish))
    }

    fn open(&mut self, wish: &str) -> String {
        let wanted = text::name(wish);
        let variable = wanted.to_ascii_uppercase();
        // A secret of the same name that the source has a value for is another one.
        if let Some(known) =
            self.secrets.iter().find(|known| known.variable == variable && known.value.is_none())
        {
            return known.name.clone();
        }
        let name = self.free(wish);
        let is_taken = self.secrets.iter().any(|known| known.variable == variable);
        let variable = if is_taken { name.to_ascii_uppercase() } else { variable };
        self.secrets.push(Secret { name: name.clone(), variable, value: None });
        name
    }

    /// Takes over a secret that the plan has a name for already.
    pub fn adopt(&mut self, name: &str, variable: &str, value: &str) {
        self.taken.insert(name.to_owned());
        self.by_value.entry(value.to_owned()).or_insert(self.secrets.len());
        let (name, variable) = (name.to_owned(), variable.to_owned());
        self.secrets.push(Secret { name, variable, value: Some(value.to_owned()) });
    }

    /// A text that no report may show, and that the plan does not have.
    pub fn never_show(&mut self, value: &str) {
        if value.len() >= EVERYWHERE {
            self.unused.insert(value.to_owned());
        }
    }

    /// A text with names for the secrets that need no name to be found; `None` if it has none.
    pub fn hidden_within(&mut self, wish: &str, text: &str) -> Option<String> {
        let mut out = String::new();
        let mut end = 0;
        for found in within(text) {
            out.push_str(&text::literal(text.get(end..found.range.start).unwrap_or_default()));
            if text::joins(&out) {
                end = found.range.start;
                continue;
            }
            let name = if found.name.is_empty() { wish } else { &*found.name };
            out.push_str(&self.hide(name, text.get(found.range.clone()).unwrap_or_default()));
            end = found.range.end;
        }
        if end == 0 {
            return None;
        }
        out.push_str(&text::literal(text.get(end..).unwrap_or_default()));
        Some(out)
    }

    /// A text that stands for itself, with names for the secrets in it.
    pub fn literal(&mut self, wish: &str, text: &str) -> String {
        self.hidden_within(wish, text).unwrap_or_else(|| text::literal(text))
    }

    /// The names of `values:`, in the order in which the secrets were found.
    #[must_use]
    pub fn constants(&self) -> Vec<Constant> {
        let constant = |secret: &Secret| Constant {
            name: secret.name.clone(),
            value: ConstantValue::Variable(secret.variable.clone(), secret.value.clone()),
        };
        self.secrets.iter().map(constant).collect()
    }

    /// Hides secrets that occur in other places of the plan than that where they were found. Returns how many places
    /// a plan cannot have a name at, in which `***` stands now.
    pub fn conceal(&self, plan: &mut Plan) -> usize {
        let finder = self.finder();
        if finder.finder.is_none() {
            return 0;
        }
        let mut lost = 0;
        plan.each_request(&mut |request| {
            request.parts_mut(&mut |text| finder.hide(text, &mut lost));
            finder.drop_checks(request, &mut lost);
        });
        for (_, value) in &mut plan.headers {
            finder.hide(value, &mut lost);
        }
        for constant in &mut plan.values {
            if let ConstantValue::Optional(_, value) | ConstantValue::Text(value) = &mut constant.value {
                let masked = finder.masked(value);
                lost += usize::from(masked != *value);
                *value = masked;
            }
        }
        for (_, set) in plan.data.iter_mut() {
            finder.mask_rows(set, &mut lost);
        }
        let mut comments: Vec<&mut Vec<String>> = vec![&mut plan.comments];
        for list in [&mut plan.setup, &mut plan.teardown] {
            step_comments(list, &mut comments);
        }
        for scenario in &mut plan.scenarios {
            comments.push(&mut scenario.comment);
            for list in [&mut scenario.start, &mut scenario.steps, &mut scenario.end] {
                step_comments(list, &mut comments);
            }
        }
        for comment in comments.into_iter().flatten() {
            *comment = finder.masked(comment);
        }
        lost
    }

    /// Finds all secrets that are long enough to be looked for.
    #[must_use]
    pub fn finder(&self) -> Finder {
        let mut all = Vec::new();
        let named = self.secrets.iter().filter_map(|secret| Some((secret.value.as_deref()?, &*secret.name)));
        for (value, name) in named.chain(self.unused.iter().map(|value| (&**value, ""))) {
            if value.len() < EVERYWHERE || is_word(value) {
                continue;
            }
            let encoded = text::percent_encoded(value);
            let json = serde_json::Value::from(value).to_string();
            let json = json.trim_matches('"').to_owned();
            let mut forms = vec![
                (value.to_owned(), name),
                (encoded.to_ascii_lowercase(), name),
                (encoded.replace("%20", "+"), name),
                (text::url_literal(value), name),
                (encoded, name),
            ];
            if json != value {
                // The name stands for the text without the escapes of JSON.
                forms.push((json, ""));
            }
            for (form, name) in forms {
                if !all.iter().rev().take(6).any(|(known, _)| *known == form) {
                    all.push((form, name.to_owned()));
                }
            }
        }
        let patterns: Vec<&str> = all.iter().map(|(form, _)| &**form).collect();
        let builder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
        Finder {
            finder: builder.ok().filter(|_| !all.is_empty()),
            names: all.into_iter().map(|(_, n)| n).collect(),
        }
    }
}

/// Finds the secrets of a source in texts, as they are and as URLs and JSON write them. Made once for many texts.
#[derive(Debug)]
pub struct Finder {
    finder: Option<AhoCorasick>,
    /// The name for each form; empty where a plan cannot have one.
    names: Vec<String>,
}

impl Finder {
    /// A text without secrets, for reports and as the last guard of what is written.
    #[must_use]
    pub fn masked(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut end = 0;
        for found in self.finder.iter().flat_map(|finder| finder.find_iter(text)) {
            out.push_str(text.get(end..found.start()).unwrap_or_default());
            out.push_str(HIDDEN);
            end = found.end();
        }
        out.push_str(text.get(end..).unwrap_or_default());
        FORMS.replace_all(&out, HIDDEN).into_owned()
    }

    /// Puts names in the places of secrets of a text of plans; where it cannot have a name, `***`.
    fn hide(&self, text: &mut String, lost: &mut usize) {
        let Some(finder) = self.finder.as_ref().filter(|finder| finder.is_match(&**text)) else { return };
        let mut out = String::with_capacity(text.len());
        for span in text::spans(text) {
            let own = match span {
                Span::Literal(own) => own,
                Span::Placeholder(inner) => {
                    let mut inner = inner.to_owned();
                    // Only the texts of functions are texts; a name is none.
                    if inner.starts_with("base64:") || inner.starts_with("hmac_sha256:") {
                        self.hide(&mut inner, lost);
                    }
                    out.push_str(&text::placeholder(&inner));
                    continue;
                }
            };
            let mut end = 0;
            for found in finder.find_iter(&own) {
                out.push_str(&text::literal(own.get(end..found.start()).unwrap_or_default()));
                end = found.end();
                let name = self.names.get(found.pattern().as_usize()).map_or("", |name| name);
                if name.is_empty() || text::joins(&out) {
                    *lost += 1;
                    out.push_str(HIDDEN);
                } else {
                    out.push_str(&text::placeholder(name));
                }
            }
            out.push_str(&text::literal(own.get(end..).unwrap_or_default()));
        }
        *text = out;
    }

    /// Rows of data have no placeholders.
    fn mask_rows(&self, value: &mut Value, lost: &mut usize) {
        match value {
            Value::Text(text) => {
                let masked = self.masked(text);
                *lost += usize::from(masked != *text);
                *text = masked;
            }
            Value::List(items) => items.iter_mut().for_each(|item| self.mask_rows(item, lost)),
            Value::Map(map) => map.iter_mut().for_each(|(_, value)| self.mask_rows(value, lost)),
            _ => {}
        }
    }

    /// Takes out checks that hold a secret: a check is no place for a name.
    fn drop_checks(&self, request: &mut Request, lost: &mut usize) {
        let count = request.checks.len();
        let has_secret = |text: &str| self.finder.as_ref().is_some_and(|finder| finder.is_match(text));
        request.checks.retain(|check| !has_secret(check) && within(check).is_empty());
        *lost += count - request.checks.len();
    }
}

fn step_comments<'p>(steps: &'p mut [Step], all: &mut Vec<&'p mut Vec<String>>) {
    for step in steps {
        let Step { comment, does } = step;
        all.push(comment);
        match does {
            super::model::Does::Parallel(_, inner)
            | super::model::Does::Repeat(_, inner)
            | super::model::Does::While { steps: inner, .. }
            | super::model::Does::If { then: inner, .. } => step_comments(inner, all),
            super::model::Does::Pause(_) | super::model::Does::Request(_) => {}
        }
    }
}

/// Whether a text is one ordinary word, which may stand anywhere by chance.
fn is_word(text: &str) -> bool {
    text.len() < 16 && text.chars().all(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::model::{Request, Scenario};
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names_and_forms() {
        for name in [
            "Authorization",
            "X-Api-Key",
            "user_password",
            "clientSecret",
            "JSESSIONID",
            "x-auth-user",
            "apiKey",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["accept", "page", "content-type", "passage", "author", "x-request-id", "tokenUrl"] {
            assert!(!is_secret(name), "{name}");
        }
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln";
        let found = within(&format!("a {jwt} b"));
        assert_eq!(found.iter().map(|f| f.range.clone()).collect::<Vec<_>>(), vec![2..2 + jwt.len()]);
        assert!(within("eyes and ears").is_empty());
    }

    #[test]
    fn a_secret_is_hidden_wherever_it_occurs() {
        let mut vault = Vault::default();
        let name = vault.hide("password", "p@ss w0rd");
        assert_eq!(
            (name.as_str(), vault.hide("other", "p@ss w0rd").as_str()),
            ("{{password}}", "{{password}}")
        );
        let mut request = Request::new("GET", "/x?back=p%40ss%20w0rd");
        request.set_header("referer", "http://a/?p=p%40ss+w0rd");
        request.set_header("x", "p@ss w0rd!");
        let scenario = Scenario { steps: vec![Step::request(request)], ..Scenario::default() };
        let mut plan = Plan { scenarios: vec![scenario], ..Plan::default() };
        assert_eq!(vault.conceal(&mut plan), 0);
        plan.each_request(&mut |request| {
            assert_eq!(request.url, "/x?back={{password}}");
            assert_eq!(request.header("referer"), Some("http://a/?p={{password}}"));
            assert_eq!(request.header("x"), Some("{{password}}!"));
        });
        assert_eq!(vault.finder().masked("sent p@ss w0rd"), "sent ***");
    }
}
