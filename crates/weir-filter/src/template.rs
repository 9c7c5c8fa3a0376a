//! Texts with `{placeholders}` in filter settings, and the values of placeholders.
//!
//! A template is compiled with the config, so that a misspelled placeholder is a mistake and not an empty text at
//! night.

mod computed;
mod logged;

pub use computed::{Keep, Kept, Names};
pub use logged::{Ended, LogTexts, Redacted};

use crate::filter::{Build, Cx, Mistake, RequestHead, Revealed, Written};
use crate::view::Later;
use computed::Computed;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use std::io::Write;
use weir_config::spelling::nearest_name;
use weir_expr::template::{Piece, pieces, whole};
use weir_h1::FieldName;

/// A compiled text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Expression(Box<Computed>),
    Text(Vec<u8>),
    Value(Var),
}

/// What a placeholder stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Var {
    /// Host and port as the client requested them.
    Authority,
    /// A part of the path that the route's pattern captured, as in the canonical path.
    Capture(String),
    /// The client's address.
    Client,
    /// The consumer's name; empty if no filter named one.
    Consumer,
    /// The host without its port.
    Host,
    /// The method.
    Method,
    /// The path when the filter runs.
    Path,
    /// The query without `?`.
    Query,
    /// The id of the request.
    RequestId,
    /// The route's name.
    Route,
    /// `http` or `https`.
    Scheme,
    /// SHA-256 of the client's certificate. Empty without one, like the next two.
    TlsClientFingerprint,
    /// Its subject alternative names.
    TlsClientSan,
    /// Its subject.
    TlsClientSubject,
}

/// The placeholders that always exist.
const FIXED: [(&str, Var); 13] = [
    ("authority", Var::Authority),
    ("client", Var::Client),
    ("consumer", Var::Consumer),
    ("host", Var::Host),
    ("method", Var::Method),
    ("path", Var::Path),
    ("query", Var::Query),
    ("request_id", Var::RequestId),
    ("route", Var::Route),
    ("scheme", Var::Scheme),
    ("tls_client_fingerprint", Var::TlsClientFingerprint),
    ("tls_client_san", Var::TlsClientSan),
    ("tls_client_subject", Var::TlsClientSubject),
];

/// What to escape in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// Characters that could end a text or an attribute in HTML and XML.
    Html,
    /// Characters that could end a string in JSON or JavaScript.
    Json,
    /// Nothing: a header value.
    Nothing,
    /// Characters not allowed in a query's name or value.
    Query,
    /// Characters not allowed in a URL. Values that come from one stay as they are.
    Url,
}

/// The source of values.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// The exchange's context.
    pub cx: &'a Cx,
    /// The request, while it exists.
    pub head: Option<&'a RequestHead>,
    /// Values kept from the request, beside their placeholders.
    pub kept: (&'a [Var], &'a [Vec<u8>]),
    pub(crate) later: Later<'a>,
}

/// Why a text is not a valid template.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong with it.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// The byte of the text at which it stands, within an expression.
    pub offset: Option<usize>,
}

// === impl Template ===

impl Template {
    /// Compiles `text`. A capture of `names` hides a fixed placeholder with its name. If the text begins with `= `, all
    /// of it is an expression.
    ///
    /// # Errors
    /// A brace that belongs to no placeholder, an unknown placeholder, or a mistake in an expression.
    pub fn parse(text: &str, names: &Names<'_>) -> Result<Self, Malformed> {
        if let Some((source, at)) = whole(text) {
            return Ok(Self {
                parts: vec![Part::Expression(Box::new(Computed::compile(source, at, names)?))],
            });
        }
        let mut parts = Parts::default();
        for piece in pieces(text)? {
            match piece {
                Piece::Expression(source, at) => parts.compute(Computed::compile(source, at, names)?),
                Piece::Literal(literal) => parts.plain.extend_from_slice(literal.as_bytes()),
                Piece::Text(part) => parts.placeholders(part, text, names.captures)?,
            }
        }
        Ok(parts.done())
    }

    /// Compiles a page. Pages are full of braces (CSS, JSON, scripts), so a brace is literal unless it encloses a
    /// name or an expression: `{name}` is a placeholder, and `{{name}}` stands for `{name}`. A number is a name only if
    /// the route captures it, because regular expressions in scripts have such braces. A mistake comes with its line,
    /// counted from 1.
    ///
    /// # Errors
    /// An unknown placeholder, or a mistake in an expression.
    pub fn parse_page(text: &str, names: &Names<'_>) -> Result<Self, (usize, Malformed)> {
        let line_at = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        let placed = |e: Malformed| (line_at(e.offset.unwrap_or_default()), e);
        let mut parts = Parts::default();
        let mut begins = 0; // where the piece stands in the text
        for piece in pieces(text).map_err(|e| placed(e.into()))? {
            match piece {
                Piece::Expression(source, at) => {
                    parts.compute(Computed::compile(source, at, names).map_err(placed)?);
                    begins = at + source.len() + 1;
                }
                Piece::Literal(literal) => {
                    parts.plain.extend_from_slice(literal.as_bytes());
                    begins += literal.len() + 2;
                }
                Piece::Text(part) => {
                    let captures = names.captures.unwrap_or_default();
                    parts.names(part, captures).map_err(|(at, e)| (line_at(begins + at), e))?;
                    begins += part.len();
                }
            }
        }
        Ok(parts.done())
    }

    /// A text without placeholders.
    pub fn literally(text: &str) -> Self {
        Self { parts: vec![Part::Text(text.into())] }
    }

    /// The text, if it has no placeholder.
    pub fn literal(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(b""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text before the first placeholder.
    pub fn beginning(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => b"",
        }
    }

    /// The placeholders.
    pub fn vars(&self) -> impl Iterator<Item = &Var> {
        self.parts.iter().filter_map(|part| match part {
            Part::Expression(_) | Part::Text(_) => None,
            Part::Value(var) => Some(var),
        })
    }

    fn computed(&self) -> impl Iterator<Item = &Computed> {
        self.parts
            .iter()
            .filter_map(|part| if let Part::Expression(computed) = part { Some(&**computed) } else { None })
    }

    /// Whether it has expressions.
    pub fn has_expressions(&self) -> bool {
        self.computed().next().is_some()
    }

    /// Whether its expressions read something that may tell one caller from another, such as a cookie.
    pub fn identifies(&self) -> bool {
        self.computed().any(|computed| computed.reading().identifies)
    }

    /// The header fields of the request that its expressions read, for [`Filter::guards`](crate::filter::Filter::guards).
    pub fn guarded(&self) -> impl Iterator<Item = FieldName> + '_ {
        self.computed().flat_map(|computed| computed.reading().guarded())
    }

    /// The text with every placeholder replaced by `value`, to check the fixed parts.
    pub fn sample(&self, value: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Expression(_) | Part::Value(_) => out.extend_from_slice(value.as_bytes()),
            }
        }
        out
    }

    /// Appends the text with its values to `out`, all escaped: a query parameter, written decoded.
    pub fn render_query(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Expression(computed) => values.compute(computed, Escape::Query, out),
                Part::Text(text) => text.iter().for_each(|&b| push_escaped(b, out)),
                Part::Value(var) => values.write(var, Escape::Query, out),
            }
        }
    }

    /// Appends a URL: values before its query are escaped as by [`Escape::Url`], values in it as a whole, so that whoever
    /// reads a parameter gets exactly the value. A `{query}` that follows `?` or `&` stays the query that it is.
    pub fn render_url(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        let mut in_query = false;
        for part in &self.parts {
            let is_pair = matches!(out.last(), Some(b'?' | b'&'));
            let mut raw = Vec::new();
            match part {
                Part::Text(text) => {
                    out.extend_from_slice(text);
                    in_query |= text.iter().any(|b| matches!(b, b'?' | b'#'));
                    continue;
                }
                Part::Value(Var::Query) if is_pair => {
                    values.write(&Var::Query, Escape::Url, out);
                    continue;
                }
                Part::Value(var) if in_query => values.write(var, Escape::Nothing, &mut raw),
                Part::Expression(computed) if in_query => values.compute(computed, Escape::Nothing, &mut raw),
                Part::Value(var) => values.write(var, Escape::Url, out),
                Part::Expression(computed) => values.compute(computed, Escape::Url, out),
            }
            raw.iter().for_each(|&b| push_escaped(b, out));
        }
    }

    /// The text with its values, unescaped. Notes nothing of what they tell of the caller: for a text that no answer
    /// depends on, such as a part of a cache's key, or the choice of an endpoint.
    pub fn apart(&self, values: &Values<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            match part {
                Part::Expression(computed) => {
                    computed.compute((values.head, values.later), values.cx, &mut out)
                }
                Part::Text(text) => out.extend_from_slice(text),
                Part::Value(var) => values.write_apart(var, &mut out),
            }
        }
        out
    }

    /// Appends the text with its values to `out`.
    pub fn render(&self, values: &Values<'_>, escape: Escape, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Expression(computed) => values.compute(computed, escape, out),
                Part::Text(text) => out.extend_from_slice(text),
                Part::Value(var) => values.write(var, escape, out),
            }
        }
    }
}

/// The parts of a text so far.
#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    /// The text after them.
    plain: Vec<u8>,
}

impl Parts {
    fn end_text(&mut self) {
        if !self.plain.is_empty() {
            self.parts.push(Part::Text(std::mem::take(&mut self.plain)));
        }
    }

    fn compute(&mut self, computed: Computed) {
        self.end_text();
        self.parts.push(Part::Expression(Box::new(computed)));
    }

    fn value(&mut self, var: Var) {
        self.end_text();
        self.parts.push(Part::Value(var));
    }

    fn done(mut self) -> Template {
        self.end_text();
        Template { parts: self.parts }
    }

    /// Adds `part` of the text `all`, in which every brace belongs to a placeholder.
    fn placeholders(&mut self, part: &str, all: &str, captures: Option<&[String]>) -> Result<(), Malformed> {
        let mut rest = part;
        while let Some(at) = rest.find(['{', '}']) {
            self.plain.extend_from_slice(&rest.as_bytes()[..at]);
            let (brace, tail) = rest[at..].split_at(1);
            if let Some(tail) = tail.strip_prefix(brace) {
                self.plain.extend_from_slice(brace.as_bytes());
                rest = tail;
                continue;
            }
            let inner = if brace == "{" { tail.split_once('}') } else { None };
            let Some((name, tail)) = inner else {
                let message = format!("`{all}` has a `{brace}` that belongs to no placeholder");
                return Err(Malformed::new(message, Some(format!("write `{brace}{brace}` for a brace"))));
            };
            self.value(Var::named(name, captures)?);
            rest = tail;
        }
        self.plain.extend_from_slice(rest.as_bytes());
        Ok(())
    }

    /// Adds a part of a page, in which a brace that encloses no name is text. A mistake comes with its byte.
    fn names(&mut self, part: &str, captures: &[String]) -> Result<(), (usize, Malformed)> {
        let mut rest = part;
        while let Some(at) = rest.find('{') {
            let (before, tail) = rest.split_at(at);
            self.plain.extend_from_slice(before.as_bytes());
            if let Some((name, after)) = enclosed(tail, "{{", "}}", captures) {
                self.plain.extend_from_slice(format!("{{{name}}}").as_bytes());
                rest = after;
            } else if let Some((name, after)) = enclosed(tail, "{", "}", captures) {
                let var = Var::named(name, Some(captures));
                self.value(var.map_err(|e| (part.len() - tail.len(), e.on_a_page(name)))?);
                rest = after;
            } else {
                self.plain.push(b'{');
                rest = &tail[1..];
            }
        }
        self.plain.extend_from_slice(rest.as_bytes());
        Ok(())
    }
}

impl<'a> Build<'a> {
    /// What texts may name that are used when the filter sees a request.
    pub const fn names(&self) -> Names<'a> {
        Names::new(self.captures, self.vocabulary).with_body(self.reads_body)
    }

    /// Compiles a text with placeholders under this key of the settings, and reports its mistake.
    pub fn text(&mut self, field: &str, text: &str) -> Option<Template> {
        let names = self.names();
        self.text_with(field, text, &names)
    }

    /// The same with other names.
    pub fn text_with(&mut self, field: &str, text: &str, names: &Names<'_>) -> Option<Template> {
        let parsed = Template::parse(text, names);
        self.written(field, text, parsed.is_ok());
        self.parsed(field, parsed)
    }

    /// The same for a page, where braces that are no placeholder are text.
    pub fn page(&mut self, field: &str, text: &str) -> Option<Template> {
        let names = self.names();
        let parsed = Template::parse_page(text, &names).map_err(|(_, e)| e);
        self.written_page(field, text, parsed.is_ok());
        self.parsed(field, parsed)
    }

    /// Notes that a text may have expressions, so that their place in the file is looked at.
    pub fn written(&mut self, field: &str, text: &str, is_sound: bool) {
        let is_whole = whole(text).is_some();
        if is_whole || text.contains("{=") {
            self.expressions.push(Written { field: field.to_owned(), is_sound, in_text: !is_whole });
        }
    }

    /// The same for a page, which is never an expression as a whole.
    pub fn written_page(&mut self, field: &str, text: &str, is_sound: bool) {
        if text.contains("{=") {
            self.expressions.push(Written { field: field.to_owned(), is_sound, in_text: true });
        }
    }

    /// Reports the mistake of a text.
    pub fn parsed(&mut self, field: &str, parsed: Result<Template, Malformed>) -> Option<Template> {
        parsed.map_err(|e| self.malformed(field, e)).ok()
    }

    /// Reports why a text is refused.
    pub fn malformed(&mut self, field: &str, e: Malformed) {
        let hint = e.hint.map(Into::into);
        self.mistakes.push(Mistake {
            field: field.to_owned(),
            message: e.message.into(),
            hint,
            offset: e.offset,
        });
    }
}

/// The expressions in a text, as written. `None` if one does not end.
pub fn sources(text: &str) -> Option<Vec<String>> {
    let all = pieces(text).ok()?.into_iter();
    let source =
        |piece| if let Piece::Expression(source, _) = piece { Some(source.to_owned()) } else { None };
    Some(all.filter_map(source).collect())
}

impl Escape {
    /// How to escape values in a text of this media type.
    pub fn of_media(media: &str) -> Self {
        let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if essence.ends_with("json") || essence.ends_with("javascript") || essence.ends_with("ecmascript") {
            Self::Json
        } else if essence.ends_with("html") || essence.ends_with("xml") {
            Self::Html
        } else {
            Self::Nothing
        }
    }
}

impl Malformed {
    /// A mistake of the text as a whole.
    pub fn new(message: impl Into<String>, hint: Option<String>) -> Self {
        Self { message: message.into(), hint, offset: None }
    }

    /// The same for a page, where a brace need not be doubled.
    fn on_a_page(self, name: &str) -> Self {
        let hint = self.hint.filter(|hint| hint.starts_with("write {") && !hint.contains("{{"));
        let literal = format!("write {{{{{name}}}}} for the text {{{name}}}");
        Self { hint: Some(hint.map_or(literal.clone(), |hint| format!("{hint}, or {literal}"))), ..self }
    }
}

/// A name between these delimiters, and the text after them.
fn enclosed<'a>(text: &'a str, open: &str, close: &str, captures: &[String]) -> Option<(&'a str, &'a str)> {
    let inner = text.strip_prefix(open)?;
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let (name, after) = inner.split_at(inner.find(|c| !is_of_name(c))?);
    let after = after.strip_prefix(close)?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (is_name || captures.iter().any(|captured| captured == name)).then_some((name, after))
}

// === impl Var ===

impl Var {
    fn named(name: &str, captures: Option<&[String]>) -> Result<Self, Malformed> {
        if captures.is_some_and(|names| names.iter().any(|n| n == name)) {
            return Ok(Self::Capture(name.to_owned()));
        }
        if let Some((_, var)) = FIXED.iter().find(|(n, _)| *n == name) {
            return Ok(var.clone());
        }
        let well_formed =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        match captures {
            None if well_formed => Ok(Self::Capture(name.to_owned())),
            _ => Err(Self::unknown(name, captures.unwrap_or_default())),
        }
    }

    fn unknown(name: &str, captures: &[String]) -> Malformed {
        let known = || FIXED.iter().map(|(n, _)| *n).chain(captures.iter().map(String::as_str));
        let list: Vec<_> = known().map(|n| format!("{{{n}}}")).collect();
        Malformed {
            message: format!("`{{{name}}}` is not a placeholder; expected one of {}", list.join(" ")),
            offset: None,
            hint: Some(match nearest_name(name.trim_end_matches('*'), known()) {
                Some(near) => format!("write {{{near}}}"),
                None => "name it in the route's path to capture it, or write {{ for a brace".to_owned(),
            }),
        }
    }

    /// Whether the value comes from the request head, which is gone when the response arrives.
    pub const fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::Authority | Self::Capture(_) | Self::Host | Self::Method | Self::Path | Self::Query
        )
    }

    /// Which client value it reveals, if the client's URL does not contain it.
    const fn revealed(&self) -> Option<Revealed> {
        match self {
            Self::Client => Some(Revealed::ADDRESS),
            Self::Consumer => Some(Revealed::CONSUMER),
            Self::TlsClientFingerprint | Self::TlsClientSan | Self::TlsClientSubject => {
                Some(Revealed::CERTIFICATE)
            }
            _ => None,
        }
    }

    /// Whether the value is already URL-escaped.
    const fn is_encoded(&self) -> bool {
        matches!(
            self,
            Self::Authority | Self::Capture(_) | Self::Host | Self::Path | Self::Query | Self::Scheme
        )
    }
}

// === impl Values ===

impl<'a> Values<'a> {
    /// Values of a request.
    pub const fn of(head: &'a RequestHead, cx: &'a Cx) -> Self {
        Self { cx, head: Some(head), kept: (&[], &[]), later: Later::NONE }
    }

    /// The value of one placeholder, unescaped.
    pub fn value(&self, var: &Var) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_raw(var, &mut out);
        out
    }

    fn write(&self, var: &Var, escape: Escape, out: &mut Vec<u8>) {
        if escape == Escape::Nothing || (escape == Escape::Url && var.is_encoded()) {
            return self.write_raw(var, out);
        }
        let mut raw = Vec::new();
        self.write_raw(var, &mut raw);
        push(&raw, escape, var.is_encoded(), out);
    }

    fn compute(&self, computed: &Computed, escape: Escape, out: &mut Vec<u8>) {
        let is_encoded = computed.is_encoded();
        let mut raw = Vec::new();
        computed.write((self.head, self.later), self.cx, &mut raw);
        match escape {
            Escape::Url if is_encoded => out.extend_from_slice(&raw),
            _ => push(&raw, escape, is_encoded, out),
        }
    }

    fn write_raw(&self, var: &Var, out: &mut Vec<u8>) {
        if let Some(at) = self.kept.0.iter().position(|v| v == var) {
            return out.extend_from_slice(self.kept.1.get(at).map_or(b"", Vec::as_slice));
        }
        // An empty consumer name distinguishes no caller.
        if let Some(revealed) =
            var.revealed().filter(|revealed| *revealed != Revealed::CONSUMER || self.cx.consumer.is_some())
        {
            self.cx.reveals(revealed);
        }
        self.write_apart(var, out);
    }

    /// The same, and notes nothing.
    fn write_apart(&self, var: &Var, out: &mut Vec<u8>) {
        let of_head = |get: fn(&RequestHead) -> &[u8]| self.head.map_or(&b""[..], get);
        let certificate = self.cx.certificate.as_deref();
        let text = match var {
            Var::Authority => of_head(RequestHead::asked_authority),
            Var::Capture(name) => {
                let parameters = self.head.and_then(|head| self.cx.parameters(head));
                let captured = parameters.and_then(|parameters| parameters.get(name));
                return out.extend_from_slice(&captured.unwrap_or_default());
            }
            Var::Client => {
                let _ = write!(out, "{}", self.cx.client.to_canonical()); // a Vec takes everything
                return;
            }
            Var::Consumer => self.cx.consumer().map_or(&b""[..], |c| c.name.as_bytes()),
            Var::Host => of_head(|head| without_port(head.asked_authority())),
            Var::Method => of_head(RequestHead::method_name),
            Var::Path => of_head(RequestHead::path),
            Var::Query => of_head(|head| head.query().unwrap_or_default()),
            Var::RequestId => self.cx.request_id.as_deref().unwrap_or_default().as_bytes(),
            Var::Route => self.cx.route().as_bytes(),
            Var::Scheme if self.cx.tls => b"https",
            Var::Scheme => b"http",
            Var::TlsClientFingerprint => certificate.map_or(&b""[..], |c| c.fingerprint.as_bytes()),
            Var::TlsClientSan => certificate.map_or(&b""[..], |c| c.san.as_bytes()),
            Var::TlsClientSubject => certificate.map_or(&b""[..], |c| c.subject.as_bytes()),
        };
        out.extend_from_slice(text);
    }
}

/// A host without its port. An IPv6 address keeps its brackets.
pub fn without_port(authority: &[u8]) -> &[u8] {
    let from = authority.iter().position(|&b| b == b']').unwrap_or(0);
    let end = authority.iter().skip(from).position(|&b| b == b':').map_or(authority.len(), |at| from + at);
    authority.get(..end).unwrap_or_default()
}

/// What is escaped in a URL: everything but unreserved characters (RFC 3986 §2.3).
pub static RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes everything but unreserved characters (RFC 3986 §2.3).
pub fn escape(text: &str) -> Vec<u8> {
    utf8_percent_encode(text, &RESERVED).flat_map(str::bytes).collect()
}

/// Appends a text that is safe within text or an attribute of HTML and XML.
fn push_html(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        match b {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            _ => out.push(b),
        }
    }
}

/// Appends a text that is safe within a string of JSON or JavaScript, also inside HTML or in single quotes.
fn push_json(text: &[u8], out: &mut Vec<u8>) {
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\0'..='\x1f' | '\x7f' | '&' | '\'' | '<' | '>' | '`' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c)); // a Vec takes everything
            }
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Appends an escaped value. With `is_encoded`, its escapes of a URL are left as they are.
fn push(raw: &[u8], escape: Escape, is_encoded: bool, out: &mut Vec<u8>) {
    match escape {
        Escape::Html => push_html(raw, out),
        Escape::Json => push_json(raw, out),
        Escape::Nothing => out.extend_from_slice(raw),
        Escape::Query | Escape::Url => raw.iter().for_each(|&b| match b {
            b'%' if is_encoded => out.push(b),
            _ => push_escaped(b, out),
        }),
    }
}

fn push_escaped(b: u8, out: &mut Vec<u8>) {
    percent_encode(&[b], &RESERVED).for_each(|piece| out.extend_from_slice(piece.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary for each test is small, and lives on.
    fn names_of(captures: Option<&[String]>) -> Names<'_> {
        let bounds = weir_route::variables::Bounds { head_bytes: 32 * 1024, fields: 100 };
        Names::new(captures, Box::leak(Box::new(weir_route::variables::Vocabulary::without_maps(bounds))))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn braces() {
        let text = |t: &str| Template::parse(t, &names_of(None)).unwrap().sample("V");
        assert_eq!(text("a{{b}}c"), b"a{b}c");
        assert_eq!(text("{client}"), b"V");
        assert_eq!(text("<{client}{path}>"), b"<VV>");
        assert_eq!(text("{{{client}}}"), b"{V}");
        assert_eq!(text(""), b"");
        for bad in ["{", "a}", "{client", "{}", "{a b}", "{\"a\": 1}"] {
            assert!(Template::parse(bad, &names_of(None)).is_err(), "{bad}");
        }
    }

    #[test]
    fn braces_of_pages() {
        let captures = names(&["id"]);
        let parse = |t: &str| Template::parse_page(t, &names_of(Some(&captures)));
        let text = |t: &str| String::from_utf8(parse(t).unwrap().sample("V")).unwrap();
        for (page, shown) in [
            ("body{margin:0} {}", "body{margin:0} {}"),
            ("{\"a\":{\"b\":{id}}}", "{\"a\":{\"b\":V}}"),
            ("{{id}} {{{id}}} {{ id }}", "{id} {{id}} {{ id }}"),
            ("\\d{3} {", "\\d{3} {"),
            ("{id", "{id"),
            ("", ""),
        ] {
            assert_eq!(text(page), shown);
        }
        let (line, e) = parse("a\nb\n{request-id}").unwrap_err();
        assert_eq!(line, 3);
        assert_eq!(
            e.hint.as_deref(),
            Some("write {request_id}, or write {{request-id}} for the text {request-id}")
        );
        assert_eq!(
            parse("{xyzzy}").unwrap_err().1.hint.as_deref(),
            Some("write {{xyzzy}} for the text {xyzzy}")
        );
    }

    #[test]
    fn values_cannot_leave_their_place() {
        let html = |text: &str| {
            let mut out = Vec::new();
            push_html(text.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(html("<a href='x' b=\"&\">"), "&lt;a href=&#39;x&#39; b=&quot;&amp;&quot;&gt;");
        let json = |text: &[u8]| {
            let mut out = Vec::new();
            push_json(text, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(json(b"a\"b\\c\n</script>\xff"), "a\\\"b\\\\c\\u000a\\u003c/script\\u003e\u{fffd}");
        let parsed: String = serde_json::from_str(&format!("\"{}\"", json(b"\"\\'\t<"))).unwrap();
        assert_eq!(parsed, "\"\\'\t<");
    }

    #[test]
    fn unknown_names_are_mistakes_where_the_captures_are_known() {
        let captures = names(&["rest", "host"]);
        let parse = |t: &str| Template::parse(t, &names_of(Some(&captures)));
        assert_eq!(parse("{rest}").unwrap().vars().next(), Some(&Var::Capture("rest".to_owned())));
        assert_eq!(parse("{host}").unwrap().vars().next(), Some(&Var::Capture("host".to_owned())));
        assert_eq!(parse("{clinet}").unwrap_err().hint.as_deref(), Some("write {client}"));
        assert_eq!(parse("{rest*}").unwrap_err().hint.as_deref(), Some("write {rest}"));
        assert!(parse("{id}").unwrap_err().message.contains("{rest}"));
        assert!(Template::parse("{id}", &names_of(None)).is_ok());
    }

    #[test]
    fn hosts_and_ports() {
        for (authority, host) in
            [("a.b", "a.b"), ("a:80", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("", "")]
        {
            assert_eq!(without_port(authority.as_bytes()), host.as_bytes());
        }
    }
}
