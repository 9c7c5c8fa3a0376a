//! How an access log line is written: as JSON, or by a template that was compiled once.

use std::io::Write as _;
use std::net::IpAddr;

use super::entry::{Entry, Field, LONG_FIELD_BYTES, SHORT_FIELD_BYTES, Value};
use crate::error::{Error, Result};
use crate::text::{self, Style};
use crate::time::Stamp;

/// The format of access log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// One JSON object per line, without the fields that are absent. The default.
    Json,
    /// Fields and the text between them; see [`LineFormat::parse`].
    Template(Template),
}

/// A compiled template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Field(Field),
    Literal(String),
}

impl LineFormat {
    /// Reads the config's value: `json`, or a template like `{time} {client} "{method} {uri}" {status}`.
    ///
    /// `{{` and `}}` stand for braces. Line breaks and other control characters are refused.
    ///
    /// # Errors
    /// For an unknown field (lists the fields), a brace without its partner, or a text without any field.
    pub fn parse(value: &str) -> Result<Self> {
        if value == "json" {
            return Ok(Self::Json);
        }
        if value.chars().any(char::is_control) {
            return Err(Error::new("an access log template is one line without control characters"));
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = value;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = brace.strip_prefix("{{") {
                literal.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                literal.push('}');
                rest = after;
            } else {
                let (name, after) = brace
                    .strip_prefix('{')
                    .and_then(|inner| inner.split_once('}'))
                    .ok_or_else(|| Error::new(format!("access log template: a brace without its partner at `{brace}`; write {{{{ or }}}} for a brace itself")))?;
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Field(field(name)?));
                rest = after;
            }
        }
        literal.push_str(rest);
        if !parts.iter().any(|part| matches!(part, Part::Field(_))) {
            return Err(Error::new(format!(
                "unknown access log format `{value}`: expected json, or a template with fields like {{time}}"
            )));
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self::Template(Template { parts }))
    }

    /// Appends the line of `entry`, its break included.
    #[inline]
    pub(super) fn write(&self, entry: &Entry<'_>, stamp: &mut Stamp, out: &mut Vec<u8>) {
        match self {
            Self::Json => json(entry, stamp, out),
            Self::Template(template) => template.write(entry, stamp, out),
        }
    }
}

impl Template {
    fn write(&self, entry: &Entry<'_>, stamp: &mut Stamp, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Field(field) => plain(entry.value(*field), stamp, out),
                Part::Literal(literal) => out.extend_from_slice(literal.as_bytes()),
            }
        }
        out.push(b'\n');
    }
}

fn field(name: &str) -> Result<Field> {
    Field::ALL.iter().find(|(_, known)| *known == name).map(|(field, _)| *field).ok_or_else(|| {
        let known: Vec<&str> = Field::ALL.iter().map(|(_, name)| *name).collect();
        Error::new(format!(
            "access log template: unknown field {{{name}}}; the fields are {}",
            known.join(", ")
        ))
    })
}

/// One value in a template's line.
fn plain(value: Value<'_>, stamp: &mut Stamp, out: &mut Vec<u8>) {
    match value {
        Value::Absent => out.push(b'-'),
        Value::Address(ip, port) => address(out, ip, port),
        Value::Number(n) => number(out, n),
        Value::Text(text) => text::escape(out, text, SHORT_FIELD_BYTES, Style::Plain),
        Value::Time(time) => out.extend_from_slice(stamp.text(time)),
        Value::True => out.extend_from_slice(b"true"),
        Value::Uri(path, query) => uri(out, path, query, Style::Plain),
        Value::UserAgent(text) => text::escape(out, text, LONG_FIELD_BYTES, Style::Plain),
    }
}

fn json(entry: &Entry<'_>, stamp: &mut Stamp, out: &mut Vec<u8>) {
    // `time` is the first field and always there: all others follow a comma.
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(stamp.text(entry.time));
    out.push(b'"');
    for (field, key) in &KEYS {
        match entry.value(*field) {
            Value::Absent | Value::Time(_) => continue,
            Value::Number(n) => {
                out.extend_from_slice(&key[..key.len() - 1]);
                number(out, n);
                continue;
            }
            Value::True => {
                out.extend_from_slice(&key[..key.len() - 1]);
                out.extend_from_slice(b"true");
                continue;
            }
            Value::Address(ip, port) => {
                out.extend_from_slice(key);
                address(out, ip, port);
            }
            Value::Text(text) => {
                out.extend_from_slice(key);
                text::escape(out, text, SHORT_FIELD_BYTES, Style::Json);
            }
            Value::Uri(path, query) => {
                out.extend_from_slice(key);
                uri(out, path, query, Style::Json);
            }
            Value::UserAgent(text) => {
                out.extend_from_slice(key);
                text::escape(out, text, LONG_FIELD_BYTES, Style::Json);
            }
        }
        out.push(b'"');
    }
    out.extend_from_slice(b"}\n");
}

/// The fields of a JSON line after `time`, with their keys as they are written before a text; a number has no quote.
static KEYS: [(Field, &[u8]); 27] = [
    (Field::RequestId, b",\"request_id\":\""),
    (Field::Client, b",\"client\":\""),
    (Field::Peer, b",\"peer\":\""),
    (Field::Listener, b",\"listener\":\""),
    (Field::Method, b",\"method\":\""),
    (Field::Host, b",\"host\":\""),
    (Field::Uri, b",\"uri\":\""),
    (Field::Protocol, b",\"protocol\":\""),
    (Field::Route, b",\"route\":\""),
    (Field::Upstream, b",\"upstream\":\""),
    (Field::Endpoint, b",\"endpoint\":\""),
    (Field::Attempts, b",\"attempts\":\""),
    (Field::Status, b",\"status\":\""),
    (Field::Cause, b",\"cause\":\""),
    (Field::BytesIn, b",\"bytes_in\":\""),
    (Field::BytesOut, b",\"bytes_out\":\""),
    (Field::Consumer, b",\"consumer\":\""),
    (Field::UserAgent, b",\"user_agent\":\""),
    (Field::TlsVersion, b",\"tls_version\":\""),
    (Field::TlsCipher, b",\"tls_cipher\":\""),
    (Field::Tunnel, b",\"tunnel\":\""),
    (Field::HeadUs, b",\"head_us\":\""),
    (Field::FiltersUs, b",\"filters_us\":\""),
    (Field::ConnectUs, b",\"connect_us\":\""),
    (Field::TlsUs, b",\"tls_us\":\""),
    (Field::FirstByteUs, b",\"first_byte_us\":\""),
    (Field::TotalUs, b",\"total_us\":\""),
];

fn uri(out: &mut Vec<u8>, path: &[u8], query: &[u8], style: Style) {
    text::escape(out, path, LONG_FIELD_BYTES, style);
    if !query.is_empty() {
        out.push(b'?');
        text::escape(out, query, LONG_FIELD_BYTES, style);
    }
}

#[inline]
fn number(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// `192.0.2.1:80`, `[2001:db8::1]:80`, or without the port and then without brackets.
fn address(out: &mut Vec<u8>, ip: IpAddr, port: Option<u16>) {
    match ip {
        // By hand: a JSON line with two addresses in 339 ns, with `Display` in 439 (examples/measure.rs).
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            number(out, a.into());
            for octet in [b, c, d] {
                out.push(b'.');
                number(out, octet.into());
            }
        }
        // A Vec takes every write.
        IpAddr::V6(ip) if port.is_some() => drop(write!(out, "[{ip}]")),
        IpAddr::V6(ip) => drop(write!(out, "{ip}")),
    }
    if let Some(port) = port {
        out.push(b':');
        number(out, port.into());
    }
}
