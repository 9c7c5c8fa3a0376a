//! Requests that differ: `{{uuid}}`, `{{counter}}`, `{{random:1:100}}` and `{{data.NAME}}` in path, header fields and
//! body.
//!
//! A request without placeholders is rendered once, in `options`, and never comes here.

use crate::schema::Call;
use fastrand::Rng;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt::Write as _;
use std::sync::Arc;

/// Text with placeholders.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Text(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Counter,
    /// A column of the data.
    Data(usize),
    Literal(Vec<u8>),
    /// Both ends included.
    Random(u64, u64),
    Uuid,
}

/// The known placeholders, for messages.
const KNOWN: &str =
    "{{uuid}}, {{counter}}, {{random:1:100}} and, with --feed, {{data.NAME}}; --raw sends braces as they are";

impl Text {
    /// Parses text with placeholders. The error names an unknown one.
    pub(crate) fn parse(text: &[u8], data: Option<&Data>) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = memchr::memmem::find(rest, b"{{") {
            let (before, from) = rest.split_at(at);
            let Some(end) = memchr::memmem::find(from, b"}}") else { break };
            let (name, after) =
                (from.get(2..end).unwrap_or_default(), from.get(end + 2..).unwrap_or_default());
            if !before.is_empty() {
                parts.push(Part::Literal(before.to_vec()));
            }
            parts.push(part(&String::from_utf8_lossy(name), data)?);
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_vec()));
        }
        Ok(Self(parts))
    }

    /// Whether the text is always the same.
    pub(crate) fn is_fixed(&self) -> bool {
        self.0.iter().all(|p| matches!(p, Part::Literal(_)))
    }

    /// The literal parts.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(|p| if let Part::Literal(bytes) = p { Some(&bytes[..]) } else { None })
    }

    /// The data columns that appear within quotes, as text does in JSON.
    pub(crate) fn quoted_columns(&self) -> impl Iterator<Item = usize> {
        let (mut is_quoted, mut is_escaped) = (false, false);
        self.0.iter().filter_map(move |part| match part {
            Part::Literal(bytes) => {
                for byte in bytes {
                    match byte {
                        _ if is_escaped => is_escaped = false,
                        b'\\' => is_escaped = is_quoted,
                        b'"' => is_quoted = !is_quoted,
                        _ => {}
                    }
                }
                None
            }
            Part::Data(column) if is_quoted => Some(*column),
            _ => None,
        })
    }

    /// The data columns that the text uses.
    pub(crate) fn columns(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|p| if let Part::Data(column) = p { Some(*column) } else { None })
    }

    fn write(&self, values: &mut Values, out: &mut Vec<u8>, escape: Escape) {
        for part in &self.0 {
            values.text.clear();
            match part {
                Part::Literal(bytes) => {
                    out.extend_from_slice(bytes);
                    continue;
                }
                Part::Counter => {
                    let _ = write!(values.text, "{}", values.number); // writing to a String cannot fail
                }
                Part::Data(column) => values.push_cell(*column),
                Part::Random(low, high) => {
                    let n = values.random.u64(low..=high);
                    let _ = write!(values.text, "{n}"); // as above
                }
                Part::Uuid => values.push_uuid(),
            }
            match escape {
                Escape::None => out.extend_from_slice(values.text.as_bytes()),
                Escape::Url => out.extend(utf8_percent_encode(&values.text, RESERVED).flat_map(str::bytes)),
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Escape {
    None,
    /// Escapes everything that RFC 3986 §2.3 does not call unreserved, so that a value cannot change the URL around
    /// it.
    Url,
}

/// Everything but the unreserved characters of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn part(name: &str, data: Option<&Data>) -> Result<Part, String> {
    let unknown = || format!("`{{{{{name}}}}}` is not a placeholder; expected {KNOWN}");
    match name.trim() {
        "counter" => Ok(Part::Counter),
        "uuid" => Ok(Part::Uuid),
        other => {
            if let Some(column) = other.strip_prefix("data.") {
                let data = data.ok_or_else(|| format!("`{{{{{other}}}}}` needs data: --feed FILE"))?;
                let found = data.columns.iter().position(|c| c == column);
                return found.map(Part::Data).ok_or_else(|| {
                    format!("the data has no `{column}`; it has {}", data.columns.join(", "))
                });
            }
            let (low, high) =
                other.strip_prefix("random:").and_then(|r| r.split_once(':')).ok_or_else(unknown)?;
            match (low.parse(), high.parse()) {
                (Ok(low), Ok(high)) if low <= high => Ok(Part::Random(low, high)),
                _ => Err(format!("`{{{{{other}}}}}`: expected two numbers, the smaller first")),
            }
        }
    }
}

/// A request with placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Method and path, without the version.
    pub(crate) line: Text,
    /// Field lines, each with its CRLF, without Content-Length.
    pub(crate) fields: Text,
    pub(crate) body: Text,
    pub(crate) length: Length,
    /// Turns a JSON body into gRPC messages.
    pub(crate) call: Option<Arc<Call>>,
}

impl Template {
    /// Whether the request uses data columns.
    pub(crate) fn takes_data(&self) -> bool {
        [&self.line, &self.fields, &self.body].iter().any(|text| text.columns().next().is_some())
    }
}

/// When Content-Length is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Even for an empty body.
    Always,
    /// What follows the head is a WebSocket message or the messages of a call.
    Never,
    WithBody,
}

impl Template {
    /// Writes one request; returns the lengths of head and body. The error says why a filled-in body is no gRPC
    /// message.
    pub(crate) fn render(&self, values: &mut Values, out: &mut Vec<u8>) -> Result<(u64, u64), String> {
        values.next();
        let begin = out.len();
        let mut body = std::mem::take(&mut values.body);
        body.clear();
        self.body.write(values, &mut body, Escape::None);
        if let Some(call) = &self.call {
            let json = std::mem::take(&mut body);
            let framed = call.frame(&json, &mut body);
            if let Err(why) = framed {
                return Err(format!("{}: {why}", String::from_utf8_lossy(&json)));
            }
        }
        self.line.write(values, out, Escape::Url);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        self.fields.write(values, out, Escape::None);
        if self.length == Length::Always || (self.length == Length::WithBody && !body.is_empty()) {
            out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        let head = out.len() - begin;
        out.extend_from_slice(&body);
        let lengths = (head as u64, body.len() as u64);
        values.body = body;
        Ok(lengths)
    }
}

/// The source of values, one per thread, so that no two threads use the same counter or row.
#[derive(Debug)]
pub(crate) struct Values {
    /// The request's number, from 0, over all threads.
    number: u64,
    step: u64,
    begun: bool,
    random: Rng,
    data: Option<Arc<Data>>,
    text: String,
    body: Vec<u8>,
}

impl Values {
    /// Values for thread `index` of `threads`. With the same threads, each run draws the same random numbers.
    pub(crate) fn new(index: u64, threads: u64, data: Option<Arc<Data>>) -> Self {
        Self {
            number: index,
            step: threads,
            begun: false,
            // Seeds are far apart, so that neighboring threads do not draw the same numbers a step later.
            random: Rng::with_seed(0x9e37_79b9_7f4a_7c15 ^ (index + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9)),
            data,
            text: String::new(),
            body: Vec::new(),
        }
    }

    fn next(&mut self) {
        if self.begun {
            self.number += self.step;
        }
        self.begun = true;
    }

    fn push_cell(&mut self, column: usize) {
        let Some(data) = &self.data else { return };
        let row = self.number as usize % data.rows.len().max(1);
        if let Some(cell) = data.rows.get(row).and_then(|r| r.get(column)) {
            self.text.push_str(cell);
        }
    }

    /// RFC 9562 §5.4, version 4.
    fn push_uuid(&mut self) {
        let (a, b) = (self.random.u64(..), self.random.u64(..));
        let _ = write!(
            self.text,
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            0x8000 | (b >> 48 & 0x3fff),
            b & 0xffff_ffff_ffff
        ); // writing to a String cannot fail
    }
}

/// Rows that requests use in turn, starting again after the last.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Data {
    columns: Vec<String>,
    /// Never empty, each as long as `columns`.
    rows: Vec<Vec<String>>,
    /// For each column, the first row (from 1) with an object or a list, which is JSON and not text.
    nested: Vec<Option<usize>>,
}

impl Data {
    /// Parses JSON lines (objects), or CSV with a header line (RFC 4180). The error names the line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text); // spreadsheets write it at the start of a file
        let data = if text.trim_start().starts_with('{') {
            Self::json_lines(text)?
        } else {
            Self::csv(text)?.distinct()?
        };
        if data.rows.is_empty() {
            return Err("there are no rows".to_owned());
        }
        Ok(data)
    }

    /// The column names, for messages.
    pub(crate) fn names(&self) -> String {
        self.columns.join(", ")
    }

    /// Refuses duplicate names.
    fn distinct(self) -> Result<Self, String> {
        let mut names = self.columns.iter().enumerate();
        match names.find(|(i, name)| self.columns.iter().take(*i).any(|before| before == *name)) {
            Some((_, name)) => Err(format!("line 1: two columns are named `{name}`: name each differently")),
            None => Ok(self),
        }
    }

    /// The number of rows.
    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// The name of a column, and the first row (from 1) with an object or a list.
    pub(crate) fn nested(&self, column: usize) -> Option<(&str, usize)> {
        let row = self.nested.get(column).copied().flatten()?;
        Some((self.columns.get(column)?, row))
    }

    /// The cells of a column.
    pub(crate) fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }

    /// The row (from 1) whose cell in this column contains a control character.
    pub(crate) fn row_with_control(&self, column: usize) -> Option<usize> {
        let control = |r: &Vec<String>| r.get(column).is_some_and(|c| c.chars().any(char::is_control));
        self.rows.iter().position(control).map(|i| i + 1)
    }

    fn json_lines(text: &str) -> Result<Self, String> {
        let mut data = Self::default();
        for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            let row: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line).map_err(|e| format!("line {}: {e}", i + 1))?;
            if data.columns.is_empty() {
                data.columns = row.keys().cloned().collect();
                data.nested = vec![None; data.columns.len()];
            }
            for (column, nested) in data.columns.iter().zip(&mut data.nested) {
                if matches!(row.get(column), Some(serde_json::Value::Array(_) | serde_json::Value::Object(_)))
                {
                    nested.get_or_insert(data.rows.len() + 1);
                }
            }
            let cell = |column: &String| match row.get(column) {
                Some(serde_json::Value::String(s)) => Ok(s.clone()),
                Some(value) => Ok(value.to_string()),
                None => Err(format!("line {}: has no `{column}`, which the first line has", i + 1)),
            };
            data.rows.push(data.columns.iter().map(cell).collect::<Result<_, _>>()?);
        }
        Ok(data)
    }

    fn csv(text: &str) -> Result<Self, String> {
        let mut data = Self::default();
        let (mut row, mut cell, mut quoted, mut line) = (Vec::new(), String::new(), false, 1);
        let mut chars = text.chars().peekable();
        loop {
            match chars.next() {
                Some('"') if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    cell.push('"');
                }
                Some('"') => quoted = !quoted,
                Some(c) if quoted => cell.push(c),
                Some(',') => row.push(std::mem::take(&mut cell)),
                Some('\r') if chars.peek() == Some(&'\n') => {}
                end @ (Some('\n') | None) => {
                    if quoted {
                        return Err(format!("line {line}: a quote is not closed"));
                    }
                    let blank = row.is_empty() && cell.is_empty();
                    row.push(std::mem::take(&mut cell));
                    let row = std::mem::take(&mut row);
                    if data.columns.is_empty() {
                        data.columns = row.into_iter().map(|c| c.trim().to_owned()).collect();
                    } else if !blank {
                        if row.len() != data.columns.len() {
                            let (has, wants) = (row.len(), data.columns.len());
                            return Err(format!(
                                "line {line}: has {has} fields where the first line has {wants}"
                            ));
                        }
                        data.rows.push(row);
                    }
                    line += 1;
                    if end.is_none() {
                        return Ok(data);
                    }
                }
                Some(c) => cell.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Arc<Data> {
        Arc::new(Data::parse(text).unwrap())
    }

    #[test]
    fn requests_are_filled() {
        let data = data("name,age\n\"Bo, Jr.\",5\nAnn,7\n");
        let text = |t: &str| Text::parse(t.as_bytes(), Some(&data)).unwrap();
        let template = Template {
            line: text("POST /u/{{data.name}}?n={{counter}}"),
            fields: text("X: {{data.age}}\r\n"),
            body: text("{\"n\":\"{{data.name}}\"}"),
            length: Length::Always,
            call: None,
        };
        let mut values = Values::new(1, 2, Some(Arc::clone(&data)));
        let mut out = Vec::new();
        let lengths = template.render(&mut values, &mut out).unwrap();
        let want = "POST /u/Ann?n=1 HTTP/1.1\r\nX: 7\r\nContent-Length: 11\r\n\r\n{\"n\":\"Ann\"}";
        assert_eq!((String::from_utf8_lossy(&out).as_ref(), lengths), (want, (want.len() as u64 - 11, 11)));
        let mut first = Vec::new();
        template.render(&mut Values::new(0, 2, Some(data)), &mut first).unwrap();
        assert!(first.starts_with(b"POST /u/Bo%2C%20Jr.?n=0 "), "{}", first.escape_ascii());
    }

    #[test]
    fn random_values_are_in_their_range_and_differ() {
        let text = Text::parse(b"{{random:5:7}} {{uuid}}", None).unwrap();
        assert!(!text.is_fixed());
        let mut values = Values::new(0, 1, None);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let mut out = Vec::new();
            text.write(&mut values, &mut out, Escape::None);
            let all = String::from_utf8(out).unwrap();
            let (n, uuid) = all.split_once(' ').unwrap();
            assert!(["5", "6", "7"].contains(&n), "{n}");
            assert!(uuid.len() == 36 && &uuid[14..15] == "4" && "89ab".contains(&uuid[19..20]), "{uuid}");
            seen.insert(all);
        }
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn what_can_not_be_filled_is_refused() {
        let data = data("{\"a\":1}\n{\"a\":\"x\"}\n");
        for bad in ["{{nope}}", "{{random:9:1}}", "{{random:x:1}}", "{{data.b}}"] {
            assert!(Text::parse(bad.as_bytes(), Some(&data)).is_err(), "{bad}");
        }
        assert!(Text::parse(b"{{data.a}}", None).is_err());
        assert!(Text::parse(b"a {{ b", None).unwrap().is_fixed());
        for bad in ["", "a,b", "a\n\"x", "a,b\n1\n", "{\"a\":1}\n{\"b\":1}", "{\"a\":1}\n{"] {
            assert!(Data::parse(bad).is_err(), "{bad}");
        }
    }
}
