//! Texts with `{placeholders}` in filter settings, and the values of placeholders.
//!
//! A template is compiled with the config, so that a misspelled placeholder is a mistake and not an empty text at
//! night.

use crate::filter::{Cx, RequestHead, Revealed};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use std::io::Write;
use weir_config::spelling::nearest_name;

/// A compiled text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
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
}

/// Why a text is not a valid template.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong with it.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

// === impl Template ===

impl Template {
    /// Compiles `text`. `captures` are the names that the route's path captures, if there is one route; a capture
    /// hides a fixed placeholder with its name.
    ///
    /// # Errors
    /// A brace that belongs to no placeholder, or an unknown placeholder.
    pub fn parse(text: &str, captures: Option<&[String]>) -> Result<Self, Malformed> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.extend_from_slice(&rest.as_bytes()[..at]);
            let (brace, tail) = rest[at..].split_at(1);
            if let Some(tail) = tail.strip_prefix(brace) {
                plain.extend_from_slice(brace.as_bytes());
                rest = tail;
                continue;
            }
            let inner = if brace == "{" { tail.split_once('}') } else { None };
            let Some((name, tail)) = inner else {
                return Err(Malformed {
                    message: format!("`{text}` has a `{brace}` that belongs to no placeholder"),
                    hint: Some(format!("write `{brace}{brace}` for a brace")),
                });
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Value(Var::named(name, captures)?));
            rest = tail;
        }
        plain.extend_from_slice(rest.as_bytes());
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }

    /// Compiles a page. Pages are full of braces (CSS, JSON, scripts), so a brace is literal unless it encloses a
    /// name: `{name}` is a placeholder, and `{{name}}` stands for `{name}`. A number is a name only if the route
    /// captures it, because regular expressions in scripts have such braces. A mistake comes with its line, counted
    /// from 1.
    ///
    /// # Errors
    /// An unknown placeholder.
    pub fn parse_page(text: &str, captures: &[String]) -> Result<Self, (usize, Malformed)> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, tail) = rest.split_at(at);
            plain.extend_from_slice(before.as_bytes());
            let enclosed = |open, close| enclosed(tail, open, close, captures);
            if let Some((name, after)) = enclosed("{{", "}}") {
                plain.extend_from_slice(format!("{{{name}}}").as_bytes());
                rest = after;
            } else if let Some((name, after)) = enclosed("{", "}") {
                let line = || text[..text.len() - tail.len()].matches('\n').count() + 1;
                let var = Var::named(name, Some(captures)).map_err(|e| (line(), e.on_a_page(name)))?;
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(Part::Value(var));
                rest = after;
            } else {
                plain.push(b'{');
                rest = &tail[1..];
            }
        }
        plain.extend_from_slice(rest.as_bytes());
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
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
            Part::Text(_) => None,
            Part::Value(var) => Some(var),
        })
    }

    /// The text with every placeholder replaced by `value`, to check the fixed parts.
    pub fn sample(&self, value: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Value(_) => out.extend_from_slice(value.as_bytes()),
            }
        }
        out
    }

    /// Appends the text with its values to `out`, all escaped: a query parameter, written decoded.
    pub fn render_query(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => text.iter().for_each(|&b| push_escaped(b, out)),
                Part::Value(var) => values.write(var, Escape::Query, out),
            }
        }
    }

    /// Appends the text with its values to `out`.
    pub fn render(&self, values: &Values<'_>, escape: Escape, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Value(var) => values.write(var, escape, out),
            }
        }
    }
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
    /// The same for a page, where a brace need not be doubled.
    fn on_a_page(self, name: &str) -> Self {
        let hint = self.hint.filter(|hint| hint.starts_with("write {") && !hint.contains("{{"));
        let literal = format!("write {{{{{name}}}}} for the text {{{name}}}");
        Self {
            message: self.message,
            hint: Some(hint.map_or(literal.clone(), |hint| format!("{hint}, or {literal}"))),
        }
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
        Self { cx, head: Some(head), kept: (&[], &[]) }
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
        match escape {
            Escape::Html => return push_html(&raw, out),
            Escape::Json => return push_json(&raw, out),
            Escape::Nothing | Escape::Query | Escape::Url => {}
        }
        let keep_percent = var.is_encoded();
        for &b in &raw {
            match b {
                b'%' if keep_percent => out.push(b),
                _ => push_escaped(b, out),
            }
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
        let of_head = |get: fn(&RequestHead) -> &[u8]| self.head.map_or(&b""[..], get);
        let certificate = self.cx.certificate.as_deref();
        let text = match var {
            Var::Authority => of_head(RequestHead::asked_authority),
            Var::Capture(name) => {
                let captures = self.head.and_then(|head| self.cx.captures(head));
                captures.and_then(|c| c.get(name)).unwrap_or_default()
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

fn push_escaped(b: u8, out: &mut Vec<u8>) {
    percent_encode(&[b], &RESERVED).for_each(|piece| out.extend_from_slice(piece.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn braces() {
        let text = |t: &str| Template::parse(t, None).unwrap().sample("V");
        assert_eq!(text("a{{b}}c"), b"a{b}c");
        assert_eq!(text("{client}"), b"V");
        assert_eq!(text("<{client}{path}>"), b"<VV>");
        assert_eq!(text("{{{client}}}"), b"{V}");
        assert_eq!(text(""), b"");
        for bad in ["{", "a}", "{client", "{}", "{a b}", "{\"a\": 1}"] {
            assert!(Template::parse(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn braces_of_pages() {
        let captures = names(&["id"]);
        let parse = |t: &str| Template::parse_page(t, &captures);
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
        let parse = |t: &str| Template::parse(t, Some(&captures));
        assert_eq!(parse("{rest}").unwrap().vars().next(), Some(&Var::Capture("rest".to_owned())));
        assert_eq!(parse("{host}").unwrap().vars().next(), Some(&Var::Capture("host".to_owned())));
        assert_eq!(parse("{clinet}").unwrap_err().hint.as_deref(), Some("write {client}"));
        assert_eq!(parse("{rest*}").unwrap_err().hint.as_deref(), Some("write {rest}"));
        assert!(parse("{id}").unwrap_err().message.contains("{rest}"));
        assert!(Template::parse("{id}", None).is_ok());
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
