//! The format `replay`: a line per request with what `weir replay` needs to send it again.

use super::entry::{Entry, RequestCopy};
use super::format::{address, number};
use super::redact::Redaction;
use crate::text::{self, Style};
use crate::time::Stamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::UNIX_EPOCH;

/// Replaces what is hidden.
const HIDDEN: &[u8] = b"***";

/// Writes a line. `redacted` says how a request field is redacted.
pub(super) fn write(
    entry: &Entry<'_>,
    redacted: impl Fn(&[u8]) -> Option<Redaction>,
    stamp: &mut Stamp,
    out: &mut Vec<u8>,
) {
    let none = RequestCopy::default();
    let request = entry.request.unwrap_or(&none);
    out.extend_from_slice(b"{\"at\":\"");
    let at = stamp.text(entry.time);
    // Milliseconds are too coarse for the order of a client's requests.
    let micros = entry.time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_micros() % 1000);
    out.extend_from_slice(at.strip_suffix(b"Z").unwrap_or(at));
    out.extend_from_slice(format!("{micros:03}Z\"").as_bytes());
    if let Some(client) = entry.client {
        out.extend_from_slice(b",\"client\":\"");
        address(out, client, None);
        out.push(b'"');
    }
    key(out, "method");
    string(out, entry.method);
    key(out, "url");
    out.push(b'"');
    if !entry.host.is_empty() && entry.path.starts_with(b"/") {
        out.extend_from_slice(if request.is_tls { b"https://" } else { b"http://" });
        escape(out, entry.host);
    }
    escape(out, entry.path);
    if !entry.query.is_empty() {
        out.push(b'?');
        escape(out, entry.query);
    }
    out.push(b'"');
    fields(request.fields, redacted, out);
    if let Some(body) = request.body {
        match str::from_utf8(body) {
            Ok(body) => {
                key(out, "body");
                string(out, body.as_bytes());
            }
            Err(_) => {
                key(out, "body_base64");
                string(out, STANDARD.encode(body).as_bytes());
            }
        }
    }
    if request.is_body_cut {
        key(out, "body_cut");
        out.extend_from_slice(b"true");
    }
    if request.is_body_changed {
        key(out, "body_changed");
        out.extend_from_slice(b"true");
    }
    if !entry.route.is_empty() {
        key(out, "route");
        string(out, entry.route.as_bytes());
    }
    if entry.status > 0 {
        key(out, "status");
        number(out, entry.status.into());
        key(out, "bytes");
        number(out, entry.body_bytes_out);
    }
    if entry.tunnel {
        key(out, "tunnel");
        out.extend_from_slice(b"true");
    }
    key(out, "ms");
    let micros = entry.timing.total.as_micros();
    out.extend_from_slice(format!("{}.{:03}}}\n", micros / 1000, micros % 1000).as_bytes());
}

/// The fields as an object; values of a repeated field are an array.
fn fields(all: &[(&[u8], &[u8])], redacted: impl Fn(&[u8]) -> Option<Redaction>, out: &mut Vec<u8>) {
    key(out, "headers");
    out.push(b'{');
    let begin = out.len();
    for (at, (name, _)) in all.iter().enumerate() {
        let same = |(other, _): &&(&[u8], &[u8])| other.eq_ignore_ascii_case(name);
        let how = redacted(name);
        if how == Some(Redaction::Drop) || all.iter().take(at).any(|field| same(&field)) {
            continue;
        }
        if out.len() > begin {
            out.push(b',');
        }
        string(out, &name.to_ascii_lowercase());
        out.push(b':');
        let shown = |value: &'_ [u8]| if how.is_some() { HIDDEN.to_vec() } else { value.to_vec() };
        let values: Vec<Vec<u8>> = all.iter().filter(same).map(|(_, value)| shown(value)).collect();
        if values.len() > 1 {
            out.push(b'[');
        }
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            string(out, value);
        }
        if values.len() > 1 {
            out.push(b']');
        }
    }
    out.push(b'}');
}

fn key(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn string(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    escape(out, value);
    out.push(b'"');
}

/// Whole, unlike the fields of other formats: a cut request cannot be sent again. `limits.header_bytes` and the filter
/// `log_body` bound it.
fn escape(out: &mut Vec<u8>, value: &[u8]) {
    text::escape(out, value, usize::MAX, Style::Json);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::Timing;
    use std::time::Duration;

    fn line(entry: &Entry<'_>, redacted: impl Fn(&[u8]) -> Option<Redaction>) -> String {
        let mut out = Vec::new();
        write(entry, redacted, &mut Stamp::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_what_a_replay_needs() {
        let fields: &[(&[u8], &[u8])] =
            &[(b"Accept", b"a"), (b"X-Key", b"k"), (b"accept", b"b\"\\"), (b"x-drop", b"d")];
        let request = RequestCopy {
            is_tls: true,
            fields,
            body: Some(b"a\n\"b\x01"),
            is_body_cut: true,
            is_body_changed: true,
        };
        let entry = Entry {
            time: UNIX_EPOCH + Duration::from_micros(1_000_001),
            client: Some([10, 0, 0, 1].into()),
            method: b"POST",
            host: b"h.example",
            path: b"/a",
            query: b"b=c",
            route: "orders",
            status: 201,
            body_bytes_out: 7,
            timing: Timing { total: Duration::from_micros(1_500), ..Timing::default() },
            request: Some(&request),
            ..Entry::default()
        };
        let redacted = |name: &[u8]| match name {
            b"X-Key" => Some(Redaction::Hide),
            b"x-drop" => Some(Redaction::Drop),
            _ => None,
        };
        let want = concat!(
            r#"{"at":"1970-01-01T00:00:01.000001Z","client":"10.0.0.1","method":"POST","url":"https://h.example/a?b=c","#,
            r#""headers":{"accept":["a","b\"\\"],"x-key":"***"},"body":"a\n\"b\u0001","body_cut":true,"body_changed":true,"#,
            r#""route":"orders","status":201,"bytes":7,"ms":1.500}"#,
            "\n"
        );
        assert_eq!(line(&entry, redacted), want);
        let request = RequestCopy { body: Some(b"\xff\0"), ..RequestCopy::default() };
        let entry = Entry { method: b"GET", path: b"/", request: Some(&request), ..Entry::default() };
        let want = concat!(
            r#"{"at":"1970-01-01T00:00:00.000000Z","method":"GET","url":"/","headers":{},"body_base64":"/wA=","ms":0.000}"#,
            "\n"
        );
        assert_eq!(line(&entry, |_| None), want);
    }
}
