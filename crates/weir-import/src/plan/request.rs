//! A request as it was sent, in parts that may be replaced: path segments, values of the query, header values, values
//! of the body. What a part becomes in the plan is decided part by part, and only then is the request put together.

use super::bodies::{SentBody, SentPart};
use super::model::{Body, Part, Request};
use super::secrets;
use super::text;
use super::vault::{Vault, is_secret};
use crate::yaml::Value;

/// Longest URL.
const URL_BYTES: usize = 16 << 10;

/// Fields that frame a message or manage its connection. Weir writes them itself.
const OWN_FIELDS: &[&str] = &[
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Before the name of a variable of the shell, in the texts of a command line that is being read. A command line that
/// has this character itself is refused.
pub(super) const VARIABLE: char = '\u{e002}';
/// Behind the name of a variable of the shell.
pub(super) const VARIABLE_END: char = '\u{e003}';

/// A part of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// As sent, with its escapes.
    pub raw: String,
    /// Without its escapes.
    pub value: String,
    /// What the plan has instead: a text of plans.
    pub text: Option<String>,
}

/// A request as it was sent.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// The method, in capitals.
    pub method: String,
    /// Scheme and authority.
    pub server: String,
    /// The segments of the path, without their slashes.
    pub path: Vec<Slot>,
    /// Names, as sent, and values of the query. A name without `=` has no value.
    pub query: Vec<(String, Option<Slot>)>,
    /// Header fields, names in lower case, none twice.
    pub headers: Vec<(String, Slot)>,
    /// The body.
    pub body: SentBody,
    /// The whole URL, if a placeholder stands for it.
    pub whole_url: Option<String>,
}

impl Slot {
    /// A part that has no escapes.
    #[must_use]
    pub fn plain(value: &str) -> Self {
        Self { raw: value.to_owned(), value: value.to_owned(), text: None }
    }

    /// A part of a URL or form.
    #[must_use]
    pub fn of_url(raw: &str, is_form: bool) -> Self {
        let value = if is_form { text::form_decoded(raw) } else { text::percent_decoded(raw) };
        Self { raw: raw.to_owned(), value: value.unwrap_or_else(|| raw.to_owned()), text: None }
    }

    /// Its text in a place that has no escapes.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.text.clone().unwrap_or_else(|| text::literal(&self.value))
    }

    /// Its text in a URL.
    fn to_url(&self) -> String {
        self.text.clone().unwrap_or_else(|| text::url_literal(&self.raw))
    }
}

impl Sent {
    /// A request without header fields and body.
    ///
    /// # Errors
    /// Why it is not one of a plan.
    pub fn new(method: &str, url: &str, vault: &mut Vault) -> Result<Self, String> {
        let method = method.trim().to_ascii_uppercase();
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if method.is_empty() || method.len() > 32 || !method.bytes().all(is_token) {
            return Err("its method is none of HTTP".to_owned());
        }
        if method == "CONNECT" {
            return Err("CONNECT opens a tunnel and is no request of a plan".to_owned());
        }
        if url.len() > URL_BYTES {
            return Err(format!("its URL is longer than {} KiB", URL_BYTES >> 10));
        }
        let Some((server, rest)) = text::split_url(url) else {
            let scheme = url.split(':').next().unwrap_or_default();
            let scheme: String = scheme.chars().take(20).filter(|c| !c.is_control()).collect();
            let is_scheme =
                url.contains(':') && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            return Err(match is_scheme && !matches!(&*scheme, "http" | "https") {
                true => format!("`{scheme}:` is not HTTP"),
                false => "its URL is none of HTTP with a server".to_owned(),
            });
        };
        let (path, query) = rest.split_once('?').map_or((&*rest, None), |(path, query)| (path, Some(query)));
        let path =
            path.strip_prefix('/').unwrap_or(path).split('/').map(|part| Slot::of_url(part, false)).collect();
        let query = query.map(text::pairs).unwrap_or_default();
        let query =
            query.into_iter().map(|(name, value)| (name.to_owned(), value.map(|v| Slot::of_url(v, true))));
        let mut sent = Self { method, server, path, query: query.collect(), ..Self::default() };
        if let Some(user) = user_of(url) {
            let (name, password) = user.split_once(':').unwrap_or((&user, ""));
            let credentials = match password {
                "" => format!("{}:", text::literal(name)),
                // A variable gets its name later.
                password if password.contains(VARIABLE) => {
                    format!("{}:{}", text::literal(name), text::literal(password))
                }
                password => format!("{}:{}", text::literal(name), vault.hide("url_password", password)),
            };
            let text = Some(format!("Basic {{{{base64:{credentials}}}}}"));
            sent.headers.push(("authorization".to_owned(), Slot { text, ..Slot::default() }));
        }
        Ok(sent)
    }

    /// Adds a header field, unless Weir writes it itself. Fields of one name become one.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn header(&mut self, name: &str, value: &str) -> Result<(), String> {
        let lower = name.trim().to_ascii_lowercase();
        // The pseudo-header fields of HTTP/2, which browsers list with the others.
        if lower.starts_with(':') || OWN_FIELDS.contains(&&*lower) {
            return Ok(());
        }
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if lower.is_empty() || lower.len() > 200 || !lower.bytes().all(is_token) {
            return Err("a header field with a name that HTTP does not allow".to_owned());
        }
        let value = value.trim();
        if value.chars().any(|c| c.is_ascii_control() && c != '\t') {
            return Err(format!("the header field {lower} has control characters"));
        }
        if lower == "host" && Some(&*value.to_ascii_lowercase()) == self.server.split("://").nth(1) {
            return Ok(());
        }
        let between = if lower == "cookie" { "; " } else { ", " };
        match self.headers.iter_mut().find(|(own, _)| *own == lower) {
            Some((_, slot)) if slot.text.is_none() => {
                *slot = Slot::plain(&format!("{}{between}{value}", slot.value));
            }
            Some(_) => {}
            None => self.headers.push((lower, Slot::plain(value))),
        }
        Ok(())
    }

    /// The value of a header field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, slot)| &*slot.value)
    }

    /// All parts, each with the name of its field; those of the path have none.
    pub fn each_slot(&mut self, visit: &mut impl FnMut(Where<'_>, &mut Slot)) {
        for slot in &mut self.path {
            visit(Where::Path, slot);
        }
        for (name, slot) in &mut self.query {
            if let Some(slot) = slot {
                visit(Where::Query(name), slot);
            }
        }
        for (name, slot) in &mut self.headers {
            visit(Where::Header(name), slot);
        }
        self.body.each_slot(visit);
    }

    /// Puts names in the places of variables of the shell, which the parts of a command line have between `VARIABLE`
    /// and `VARIABLE_END`.
    ///
    /// # Errors
    /// If one stands where a plan cannot have a name.
    pub fn name_variables(&mut self, vault: &mut Vault) -> Result<(), String> {
        if self.query.iter().any(|(name, _)| name.contains(VARIABLE)) {
            return Err("a variable of the shell is the name of a query parameter".to_owned());
        }
        if let SentBody::Multipart(parts) = &self.body
            && parts.iter().any(|part| {
                [Some(&part.name), part.file.as_ref(), part.filename.as_ref(), part.media.as_ref()]
                    .into_iter()
                    .flatten()
                    .any(|text| text.contains(VARIABLE))
            })
        {
            return Err("a variable of the shell is the name or the file of a part of its form".to_owned());
        }
        // What is raw is what the command line has: only there do the marks mean variables.
        self.each_slot(&mut |place, slot| {
            let decoded =
                |own: &str| text::literal(&text::form_decoded(own).unwrap_or_else(|| own.to_owned()));
            slot.text = Some(match (&slot.text, place) {
                (Some(text), _) if text.contains(VARIABLE) => named(text, str::to_owned, "", vault),
                (Some(_), _) => return,
                (None, _) if !slot.raw.contains(VARIABLE) => return,
                (None, Where::Path | Where::Query(_)) => named(&slot.raw, text::url_literal, "|raw", vault),
                (None, Where::Form(_)) => named(&slot.raw, decoded, "", vault),
                (None, _) => named(&slot.raw, text::literal, "", vault),
            });
        });
        Ok(())
    }

    /// Puts names in the places of secrets.
    pub fn hide_secrets(&mut self, vault: &mut Vault) {
        let mut before = String::new();
        for slot in &mut self.path {
            let follows_name =
                is_secret(&before) && slot.value.len() >= 8 && slot.value.bytes().any(|b| b.is_ascii_digit());
            if follows_name && slot.text.is_none() {
                slot.text = Some(vault.hide(&before, &slot.value));
            }
            before.clone_from(&slot.value);
        }
        self.each_slot(&mut |place, slot| {
            if slot.text.is_some() || slot.value.is_empty() {
                return;
            }
            match place {
                Where::Header("cookie") => slot.text = Some(cookies(&slot.value, vault)),
                Where::Header(name) if is_secret(name) => {
                    slot.text = Some(credentials(name, &slot.value, vault))
                }
                Where::Path => slot.text = vault.hidden_within("path_token", &slot.value),
                Where::Query(name) | Where::Form(name) | Where::Json(name) | Where::Part(name)
                    if is_secret(name) =>
                {
                    slot.text = Some(vault.hide(name, &slot.value));
                }
                Where::Header(name)
                | Where::Query(name)
                | Where::Form(name)
                | Where::Json(name)
                | Where::Part(name) => {
                    slot.text = vault.hidden_within(name, &slot.value);
                }
                Where::Body => slot.text = vault.hidden_within("secret", &slot.value),
            }
        });
    }

    /// The request of the plan. Its URL is a path if it goes to `target`.
    #[must_use]
    pub fn to_request(&self, target: Option<&str>) -> Request {
        let mut request = Request::new(self.method.clone(), self.url(target));
        let (body, media) = self.body.to_plan();
        request.headers = self.headers.iter().map(|(name, slot)| (name.clone(), slot.to_text())).collect();
        if let Some(own) = media {
            // The plan sets this type itself.
            let is_own = |value: &str| value.trim().eq_ignore_ascii_case(own) || own == "multipart/form-data";
            request.headers.retain(|(name, value)| name != "content-type" || !is_own(value));
        }
        request.body = body;
        request
    }

    fn url(&self, target: Option<&str>) -> String {
        if let Some(whole) = &self.whole_url {
            return whole.clone();
        }
        let mut url = if target == Some(&*self.server) { String::new() } else { self.server.clone() };
        for slot in &self.path {
            url.push('/');
            url.push_str(&slot.to_url());
        }
        if url.starts_with("//") {
            // A path that begins with two slashes would be read as a server.
            url.insert_str(0, &self.server);
        }
        for (at, (name, slot)) in self.query.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(&text::url_literal(name));
            if let Some(slot) = slot {
                url.push('=');
                url.push_str(&slot.to_url());
            }
        }
        url
    }

    /// Method and path for a report, without the query.
    #[must_use]
    pub fn shown(&self) -> String {
        let path: String = self.path.iter().map(|slot| format!("/{}", slot.raw)).collect();
        format!("{} {}{path}", self.method, self.server)
    }
}

/// Where a part of a request stands, with the name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where<'n> {
    /// The body as a whole.
    Body,
    /// A field of a form.
    Form(&'n str),
    /// A header field.
    Header(&'n str),
    /// A text or number of JSON, with its key.
    Json(&'n str),
    /// A part of a multipart body.
    Part(&'n str),
    /// A segment of the path.
    Path,
    /// A parameter of the query.
    Query(&'n str),
}

impl Where<'_> {
    /// In words.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Body => "the body".to_owned(),
            Self::Form(name) => format!("the form field {name}"),
            Self::Header(name) => format!("the header field {name}"),
            Self::Json(name) => format!("the JSON member {name}"),
            Self::Part(name) => format!("the part {name}"),
            Self::Path => "the path".to_owned(),
            Self::Query(name) => format!("the query parameter {name}"),
        }
    }

    /// The name of its field.
    #[must_use]
    pub const fn name(&self) -> &str {
        match self {
            Self::Form(name)
            | Self::Header(name)
            | Self::Json(name)
            | Self::Part(name)
            | Self::Query(name) => name,
            Self::Body => "body",
            Self::Path => "id",
        }
    }
}

/// A text of the plan with names for the variables of the shell.
fn named(text: &str, own: impl Fn(&str) -> String, filter: &str, vault: &mut Vault) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(VARIABLE) {
        let Some((name, behind)) = after.split_once(VARIABLE_END) else { break };
        out.push_str(&own(before));
        let name = vault.variable(name);
        if text::joins(&out) {
            // In JSON a blank changes nothing.
            out.push(' ');
        }
        out.push_str(&name.replacen("}}", &format!("{filter}}}}}"), 1));
        rest = behind;
    }
    out.push_str(&own(rest));
    out
}

/// User and password of a URL, without their escapes.
fn user_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    text::percent_decoded(user).filter(|user| !user.is_empty())
}

/// The value of a field with credentials; the scheme stays as it is.
#[must_use]
pub fn credentials(name: &str, value: &str, vault: &mut Vault) -> String {
    if name.eq_ignore_ascii_case("cookie") {
        return cookies(value, vault);
    }
    match value.trim_start().split_once(' ') {
        Some((scheme, rest)) if secrets::SCHEMES.contains(&&*scheme.to_ascii_lowercase()) => {
            if scheme.eq_ignore_ascii_case("basic")
                && let Some((user, password)) = secrets::basic(rest)
                && !user.ends_with('{')
            {
                let password = vault.hide("password", &password);
                return format!("{scheme} {{{{base64:{}:{password}}}}}", text::literal(&user));
            }
            let wish = if name.contains("auth") {
                format!("{}_credentials", scheme.to_ascii_lowercase())
            } else {
                name.to_owned()
            };
            format!("{scheme} {}", vault.hide(&wish, rest.trim()))
        }
        _ => vault.hide(name, value),
    }
}

/// A field Cookie, each value a name.
#[must_use]
pub fn cookies(value: &str, vault: &mut Vault) -> String {
    let pairs = value.split(';').map(str::trim).filter(|pair| !pair.is_empty());
    let hidden = pairs.map(|pair| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() => {
            format!("{}={}", text::literal(name), vault.hide(&format!("cookie_{name}"), value))
        }
        _ => text::literal(pair),
    });
    hidden.collect::<Vec<_>>().join("; ")
}

impl SentBody {
    /// The body in a plan, and the media type that the plan sets for it.
    #[must_use]
    pub fn to_plan(&self) -> (Option<Body>, Option<&'static str>) {
        match self {
            Self::None => (None, None),
            Self::Text(slot) => (Some(Body::Text(slot.to_text())), None),
            Self::Form(fields) => {
                let pair = |(name, slot): &(String, Slot)| (name.clone(), slot.to_text());
                (
                    Some(Body::Form(fields.iter().map(pair).collect())),
                    Some("application/x-www-form-urlencoded"),
                )
            }
            Self::Json(json) => (Some(Body::Json(json.to_value())), Some("application/json")),
            Self::Multipart(parts) => {
                let part = |part: &SentPart| Part {
                    name: part.name.clone(),
                    value: part.value.to_text(),
                    file: part.file.clone(),
                    filename: part.filename.clone(),
                    media: part.media.clone(),
                };
                (Some(Body::Multipart(parts.iter().map(part).collect())), Some("multipart/form-data"))
            }
        }
    }
}

/// A scalar of JSON in a plan: a placeholder for a number has no quotes.
#[must_use]
pub fn json_scalar(slot: &Slot, is_number: bool) -> Value {
    match (&slot.text, is_number) {
        // A variable of the environment is a text, which `json` would put into quotes.
        (Some(text), true) => {
            let filter = if slot.value.parse::<i64>().is_ok() { "|int}}" } else { "|json}}" };
            Value::Text(text.replacen("}}", filter, 1))
        }
        (Some(text), false) => Value::Text(text.clone()),
        (None, true) => slot.value.parse().map_or_else(|_| Value::Plain(slot.value.clone()), Value::Number),
        (None, false) => Value::Text(text::literal(&slot.value)),
    }
}
