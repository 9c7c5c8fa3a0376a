//! The entries of a HAR file, in the order of time. Browsers differ: Firefox has no `_initiator`, Chrome lists the
//! pseudo-header fields of HTTP/2, Safari leaves out `pages`, and proxies write no `startedDateTime`.

use crate::plan::bodies::{SentBody, SentPart};
use crate::plan::json::Node;
use crate::plan::request::{Sent, Slot};
use crate::plan::text;
use crate::plan::vault::Vault;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Largest body of a response that values are looked for in.
const BODY_BYTES: usize = 4 << 20;

/// An entry.
pub(super) struct Entry {
    /// The line of the entry.
    pub(super) line: u32,
    /// Its position in the file, from 1.
    pub(super) number: usize,
    /// The page that it belongs to.
    pub(super) page: Option<String>,
    /// When it began, in milliseconds; relative to nothing that we know if the file has no times.
    pub(super) began: Option<i64>,
    /// How long it took, in milliseconds.
    pub(super) took: i64,
    /// The request, or why it is none of a plan.
    pub(super) sent: Result<Sent, String>,
    /// The method and URL, for reports; without query.
    pub(super) shown: String,
    /// The answer.
    pub(super) answer: Answer,
    /// What the browser says that it is: `document`, `xhr`, `websocket`.
    pub(super) resource: String,
    /// Whether the browser took the answer from its cache.
    pub(super) from_cache: bool,
    /// What is said about the body.
    pub(super) note: Option<&'static str>,
}

/// What was answered.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) media: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }

    /// The cookies that it sets, in order.
    pub(super) fn set_cookies(&self) -> impl Iterator<Item = SetCookie<'_>> {
        let fields = self.headers.iter().filter(|(name, _)| name == "set-cookie");
        fields.flat_map(|(_, value)| value.split('\n')).filter_map(SetCookie::read)
    }

    /// Names and values of the cookies that it sets.
    pub(super) fn cookies(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.headers.iter().filter(|(name, _)| name == "set-cookie");
        // Chrome joins several fields by line breaks.
        let lines = fields.flat_map(|(_, value)| value.split('\n'));
        lines.filter_map(|line| line.split(';').next()?.trim().split_once('='))
    }
}

/// A cookie that an answer sets (RFC 6265 §5.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetCookie<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    /// Without a dot at its beginning; empty for the host of the answer only.
    pub(super) domain: &'a str,
    /// Empty for the folder of the request.
    pub(super) path: &'a str,
    /// Whether the browser forgets it.
    pub(super) is_over: bool,
}

impl<'a> SetCookie<'a> {
    fn read(field: &'a str) -> Option<Self> {
        let mut parts = field.split(';');
        let (name, value) = parts.next()?.trim().split_once('=')?;
        let mut cookie = Self { name, value, is_over: value.is_empty(), ..Self::default() };
        for part in parts {
            let (key, value) = part.trim().split_once('=').unwrap_or((part.trim(), ""));
            match &*key.to_ascii_lowercase() {
                "domain" => cookie.domain = value.trim().trim_start_matches('.'),
                "path" if value.trim().starts_with('/') => cookie.path = value.trim(),
                "max-age" => cookie.is_over |= value.trim().parse::<i64>().is_ok_and(|age| age <= 0),
                _ => {}
            }
        }
        Some(cookie)
    }
}

/// The pages of a file: identifier and title, in their order.
pub(super) fn pages(log: &Node<'_>) -> Vec<(String, String)> {
    let pages = log.get("pages").map(Node::items).unwrap_or_default();
    let page = |(at, page): (usize, &Node<'_>)| {
        let id = page.text("id").map_or_else(|| format!("page_{}", at + 1), str::to_owned);
        let title = page.text("title").unwrap_or_default().to_owned();
        (id, title)
    };
    pages.iter().enumerate().map(page).collect()
}

/// All entries, in the order of time.
pub(super) fn entries(log: &Node<'_>, vault: &mut Vault) -> Vec<Entry> {
    let list = log.get("entries").map(Node::items).unwrap_or_default();
    let mut entries: Vec<Entry> = list.iter().enumerate().map(|(at, node)| entry(at, node, vault)).collect();
    // A file without times keeps its order.
    if entries.iter().all(|entry| entry.began.is_some()) {
        entries.sort_by_key(|entry| entry.began);
    }
    entries
}

fn entry(at: usize, node: &Node<'_>, vault: &mut Vault) -> Entry {
    let request = node.get("request");
    let method = request.and_then(|r| r.text("method")).unwrap_or_default();
    let url = request.and_then(|r| r.text("url")).unwrap_or_default();
    let mut note = None;
    let mut sent = Sent::new(method, url, vault);
    if let (Ok(sent), Some(request)) = (&mut sent, request) {
        note = fill(sent, request);
    }
    let shown = match &sent {
        Ok(sent) => sent.shown(),
        Err(_) => format!("{method} {}", url.split(['?', '#', ',']).next().unwrap_or_default()),
    };
    let cache = node.get("_fromCache").or_else(|| node.at(&["response", "_fromCache"]));
    Entry {
        line: node.line,
        number: at + 1,
        page: node.text("pageref").map(str::to_owned),
        began: node.text("startedDateTime").and_then(text::milliseconds),
        took: node
            .get("time")
            .and_then(Node::as_f64)
            .filter(|t| t.is_finite() && *t > 0.0)
            .map_or(0, |t| t.min(1e9) as i64),
        sent,
        shown,
        answer: node.get("response").map(answer).unwrap_or_default(),
        resource: node.text("_resourceType").unwrap_or_default().to_ascii_lowercase(),
        from_cache: cache.is_some(),
        note,
    }
}

/// Header fields, cookies and body. Returns what is to be said about them.
fn fill(sent: &mut Sent, request: &Node<'_>) -> Option<&'static str> {
    let mut note = None;
    for field in request.get("headers").map(Node::items).unwrap_or_default() {
        let (Some(name), Some(value)) = (field.text("name"), field.get("value").and_then(Node::as_text))
        else {
            continue;
        };
        if sent.header(name, &value).is_err() {
            note = Some("a header field that cannot be sent is not in it");
        }
    }
    // Some tools list cookies only apart.
    let cookies = request.get("cookies").map(Node::items).unwrap_or_default();
    if sent.field("cookie").is_none() && !cookies.is_empty() {
        let pair = |cookie: &Node<'_>| Some(format!("{}={}", cookie.text("name")?, cookie.text("value")?));
        let all: Vec<String> = cookies.iter().filter_map(pair).collect();
        let _ = sent.header("cookie", &all.join("; "));
    }
    let had_body = request.get("bodySize").and_then(Node::as_f64).is_some_and(|size| size > 0.0)
        || declared_length(request) > 0;
    let Some(post) = request.get("postData") else { return if had_body { Some(LOST) } else { note } };
    let media = post.text("mimeType").or_else(|| sent.field("content-type")).unwrap_or_default().to_owned();
    let params = post.get("params").map(Node::items).unwrap_or_default();
    let body = post.text("text").unwrap_or_default();
    let encoding = post.text("encoding").or_else(|| post.text("_encoding"));
    let decoded = match encoding {
        Some("base64") => match STANDARD.decode(body).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(decoded) => decoded,
            None => return Some(BINARY),
        },
        _ => body.to_owned(),
    };
    let is_binary = |c: char| c == '\u{fffd}' || c.is_control() && !matches!(c, '\t' | '\r' | '\n');
    if !decoded.is_empty() && (is_binary_media(&media) || decoded.contains(is_binary)) {
        return Some(BINARY);
    }
    sent.body = match (decoded.is_empty(), params.is_empty()) {
        (true, true) => SentBody::None,
        (true, false) => of_params(&media, params),
        (false, _) => SentBody::of(&media, &decoded),
    };
    if had_body && matches!(sent.body, SentBody::None) {
        return Some(LOST);
    }
    if let SentBody::Multipart(parts) = &sent.body
        && parts.iter().any(|part| part.filename.is_some() && part.value.value.is_empty())
    {
        return Some(FILE);
    }
    if sent.field("content-type").is_none() && !media.is_empty() {
        let _ = sent.header("content-type", &media);
    }
    note
}

/// The length of the body by the field Content-Length.
fn declared_length(request: &Node<'_>) -> u64 {
    let fields = request.get("headers").map(Node::items).unwrap_or_default();
    let is_length = |field: &&Node<'_>| {
        field.text("name").is_some_and(|name| name.eq_ignore_ascii_case("content-length"))
    };
    let length = fields.iter().find(is_length).and_then(|field| field.text("value"));
    length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)
}

/// Whether bodies of this type are no texts, whatever a recording shows of them: browsers write such a body as text
/// in which bytes are lost.
fn is_binary_media(media: &str) -> bool {
    const APPLICATIONS: &[&str] = &[
        "application/gzip",
        "application/msgpack",
        "application/octet-stream",
        "application/pdf",
        "application/protobuf",
        "application/x-msgpack",
        "application/x-protobuf",
        "application/zip",
    ];
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    ["audio/", "font/", "image/", "video/"].iter().any(|kind| media.starts_with(kind))
        && media != "image/svg+xml"
        || media.starts_with("application/grpc")
        || APPLICATIONS.contains(&&*media)
}

/// A body that is no text.
pub(super) const BINARY: &str = "its body is no text, and a plan takes such a body from a file";
/// A part of a form whose file the recording lacks.
pub(super) const FILE: &str = "it uploads a file whose content the recording does not have";
/// A body that the recording lacks.
pub(super) const LOST: &str = "it had a body that the recording does not have";

fn of_params(media: &str, params: &[Node<'_>]) -> SentBody {
    let field = |param: &Node<'_>| {
        let value = param.text("value").unwrap_or_default().to_owned();
        (
            param.text("name").unwrap_or_default().to_owned(),
            value,
            param.text("fileName").map(str::to_owned),
            param.text("contentType").map(str::to_owned),
        )
    };
    let fields: Vec<_> = params.iter().map(field).filter(|(name, ..)| !name.is_empty()).collect();
    if media.starts_with("multipart/") {
        let part = |(name, value, filename, media): (String, String, Option<String>, Option<String>)| {
            SentPart { name, value: Slot::plain(&value), file: None, filename, media }
        };
        return SentBody::Multipart(fields.into_iter().map(part).collect());
    }
    // Whether browsers write the values of params with their escapes is not the same in all: escape what needs it.
    let pair = |(name, value, ..): &(String, String, Option<String>, Option<String>)| {
        let is_escaped =
            value.contains('%') && text::percent_decoded(value).is_some_and(|plain| plain != *value);
        let value = if is_escaped { value.clone() } else { text::percent_encoded(value) };
        format!("{}={value}", text::percent_encoded(name))
    };
    let body: Vec<String> = fields.iter().map(pair).collect();
    SentBody::of("application/x-www-form-urlencoded", &body.join("&"))
}

fn answer(response: &Node<'_>) -> Answer {
    let status = response
        .get("status")
        .and_then(Node::as_f64)
        .filter(|s| (0.0..1000.0).contains(s))
        .map_or(0, |s| s as u16);
    let mut headers = Vec::new();
    for field in response.get("headers").map(Node::items).unwrap_or_default() {
        if let (Some(name), Some(value)) = (field.text("name"), field.text("value")) {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
    if !headers.iter().any(|(name, _)| name == "set-cookie") {
        for cookie in response.get("cookies").map(Node::items).unwrap_or_default() {
            if let (Some(name), Some(value)) = (cookie.text("name"), cookie.text("value")) {
                headers.push(("set-cookie".to_owned(), format!("{name}={value}")));
            }
        }
    }
    let content = response.get("content");
    let text = content.and_then(|c| c.text("text")).unwrap_or_default();
    let body = match content.and_then(|c| c.text("encoding")) {
        Some("base64") if text.len() <= BODY_BYTES * 2 => {
            STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
        }
        Some("base64") => String::new(),
        _ => text.to_owned(),
    };
    let body = if body.len() > BODY_BYTES { String::new() } else { body };
    let media = content.and_then(|c| c.text("mimeType")).unwrap_or_default().to_ascii_lowercase();
    Answer { status, headers, media, body }
}
