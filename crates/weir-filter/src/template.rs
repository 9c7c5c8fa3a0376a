//! Texts with `{placeholders}` in filter settings, and the values of placeholders.
//!
//! A template is compiled with the config, so that a misspelled placeholder is a mistake and not an empty text at
//! night.

mod build;
mod computed;
mod escape;
mod logged;
mod parse;

pub use computed::{Keep, Kept, Names};
pub use escape::{Escape, RESERVED, escape};
pub use logged::{Ended, LogTexts, Redacted};

use crate::filter::{Cx, RequestHead, Revealed};
use crate::view::Later;
use computed::Computed;
use escape::{push, push_escaped};
use std::io::Write;
use weir_config::spelling::nearest_name;
use weir_expr::template::{Piece, pieces};
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

/// The expressions in a text, as written. `None` if one does not end.
pub fn sources(text: &str) -> Option<Vec<String>> {
    let all = pieces(text).ok()?.into_iter();
    let source =
        |piece| if let Piece::Expression(source, _) = piece { Some(source.to_owned()) } else { None };
    Some(all.filter_map(source).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (authority, host) in
            [("a.b", "a.b"), ("a:80", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("", "")]
        {
            assert_eq!(without_port(authority.as_bytes()), host.as_bytes());
        }
    }
}
