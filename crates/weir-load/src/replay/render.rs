//! Writes recorded requests as HTTP/1.1: their line, fields and body, with our Host and our framing.

use super::ReplayOptions;
use super::found::Why;
use super::rules::WITH_BODY;
use crate::Mistake;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use weir_traffic::{BODY_MOST, Recorded};

/// What logs write in place of a secret.
const MASK: &str = "***";

/// Fields about the connection and the framing, which are ours (RFC 9110 §7.6.1, RFC 9112 §6).
const OURS: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Bytes that a value of `--set` may not have in a query.
const IN_QUERY: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'&').add(b'+').add(b'%');

#[derive(Debug)]
pub(super) struct Render {
    /// Fields of every request: the target's Host, our defaults, and those of the command line.
    base: Vec<Field>,
    keeps_host: bool,
    /// The value of each masked key, encoded.
    set: BTreeMap<String, String>,
    /// The body of requests whose body was not recorded.
    body: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Field {
    /// In lower case.
    name: String,
    /// With its line break.
    line: Vec<u8>,
    /// From the command line, so that it takes precedence over a recorded one.
    is_given: bool,
}

impl Render {
    pub(super) fn new(o: &ReplayOptions) -> Result<Self, Mistake> {
        let mut set = BTreeMap::new();
        for text in &o.set {
            let Some((key, value)) = text.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                return Err(Mistake::new(&format!("--set {text}"), "expected KEY=VALUE"));
            };
            set.insert(key.to_owned(), utf8_percent_encode(value, IN_QUERY).to_string());
        }
        let body = o.body_from.as_deref().map(read_body).transpose()?;
        Ok(Self { base: Vec::new(), keeps_host: o.keeps_host, set, body })
    }

    /// Takes over the fields of a rendered request to the target. Those named in `given` take precedence.
    pub(super) fn set_base(&mut self, head: &[u8], given: &BTreeSet<String>) {
        let lines =
            head.split_inclusive(|b| *b == b'\n').skip(1).filter(|line| !line.trim_ascii().is_empty());
        let base = lines.filter_map(|line| {
            let name = line.split(|b| *b == b':').next()?;
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            (name != "content-length").then(|| Field {
                is_given: given.contains(&name),
                name,
                line: line.to_vec(),
            })
        });
        self.base = base.collect();
    }

    /// Fills in what the recording hides or lacks: masked keys of the query, the body.
    pub(super) fn complete(&self, r: &mut Recorded) -> Result<(), Why> {
        if r.target.contains(MASK) {
            r.target = self.unmasked(&r.target)?;
        }
        if self.keeps_host && r.host.as_deref().is_some_and(|host| host.contains(MASK)) {
            return Err(Why::Hidden);
        }
        let is_known = r.body.is_some() && !r.is_body_cut && !r.is_body_changed;
        if !is_known && let Some(body) = self.body.as_ref().filter(|_| has_body(r)) {
            (r.body, r.is_body_cut, r.is_body_changed) = (Some(body.clone()), false, false);
            // They describe the recorded body.
            r.fields.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
        }
        if r.is_body_cut {
            return Err(Why::BodyCut);
        }
        // The recorded fields describe the body as the client sent it, such as its coding.
        if r.is_body_changed {
            return Err(Why::BodyChanged);
        }
        if r.body.is_none() && has_body(r) {
            return Err(Why::NoBody);
        }
        Ok(())
    }

    fn unmasked(&self, target: &str) -> Result<String, Why> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path.contains(MASK) {
            return Err(Why::Hidden);
        }
        let (mut pairs, mut missing) = (Vec::new(), Vec::new());
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some((key, value)) if value == MASK => match self.set.get(key) {
                    Some(known) => pairs.push(format!("{key}={known}")),
                    None => missing.push(key.to_owned()),
                },
                _ if pair == MASK => return Err(Why::Hidden),
                _ => pairs.push(pair.to_owned()),
            }
        }
        if !missing.is_empty() {
            return Err(Why::Masked(missing));
        }
        Ok(format!("{path}?{}", pairs.join("&")))
    }

    /// The request, how much of it is the head, and the names of fields that were left out because they are masked.
    pub(super) fn bytes(&self, r: &Recorded) -> (Vec<u8>, usize, Vec<String>) {
        let body = r.body.as_deref().unwrap_or_default();
        let mut out = Vec::with_capacity(512 + body.len());
        let line = [r.method.as_bytes(), b" ", r.target.as_bytes(), b" HTTP/1.1\r\n"];
        line.iter().for_each(|part| out.extend_from_slice(part));
        let host = r.host.as_deref().filter(|host| self.keeps_host && !host.is_empty());
        let recorded: Vec<String> = r.fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        for field in &self.base {
            match host.filter(|_| field.name == "host" && !field.is_given) {
                Some(host) => out.extend_from_slice(format!("host: {host}\r\n").as_bytes()),
                None if field.is_given || field.name == "host" || !recorded.contains(&field.name) => {
                    out.extend_from_slice(&field.line);
                }
                None => {}
            }
        }
        let mut masked = Vec::new();
        for ((name, value), lower) in r.fields.iter().zip(&recorded) {
            let is_given = || self.base.iter().any(|field| field.is_given && field.name == *lower);
            if OURS.contains(&lower.as_str()) || is_given() {
                continue;
            }
            if is_masked(value) {
                masked.push(lower.clone());
                continue;
            }
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        if !body.is_empty() || WITH_BODY.contains(&r.method.as_str()) {
            out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        let head_bytes = out.len();
        out.extend_from_slice(body);
        (out, head_bytes, masked)
    }
}

/// Whether a recorded value is hidden, wholly or behind its scheme (`Bearer ***`).
fn is_masked(value: &[u8]) -> bool {
    value == MASK.as_bytes() || value.ends_with(b" ***") || value.ends_with(b"=***")
}

/// Whether the request had a body, or may have had one.
fn has_body(r: &Recorded) -> bool {
    let field =
        |wanted: &str| r.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, v)| v);
    match field("content-length") {
        Some(length) => length.as_slice() != b"0",
        None if field("transfer-encoding").is_some() => true,
        // Without fields, nothing is known; with fields, there was none.
        None => r.body.is_none() && r.fields.is_empty() && WITH_BODY.contains(&r.method.as_str()),
    }
}

fn read_body(path: &Path) -> Result<Vec<u8>, Mistake> {
    let place = || format!("--body-from {}", path.display());
    let mut body = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| Mistake::new(&place(), &e.to_string()))?;
    let read = file.take(BODY_MOST as u64 + 1).read_to_end(&mut body);
    read.map_err(|e| Mistake::new(&place(), &e.to_string()))?;
    if body.len() > BODY_MOST {
        return Err(Mistake::new(&place(), "expected at most 1 GiB"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: target:80\r\nuser-agent: weir\r\nx-env: staging\r\n\r\n";

    fn render(change: impl FnOnce(&mut ReplayOptions)) -> Render {
        let mut o = ReplayOptions::default();
        change(&mut o);
        let mut render = Render::new(&o).unwrap();
        render.set_base(HEAD, &BTreeSet::from(["x-env".to_owned()]));
        render
    }

    fn request(fields: &[(&str, &str)]) -> Recorded {
        let field = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        Recorded {
            method: "POST".to_owned(),
            target: "/a".to_owned(),
            host: Some("shop.example".to_owned()),
            fields: fields.iter().map(field).collect(),
            body: Some(b"abc".to_vec()),
            ..Recorded::default()
        }
    }

    #[test]
    fn host_and_framing_are_ours_and_given_fields_take_precedence() {
        let recorded = request(&[
            ("User-Agent", "browser"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "99"),
            ("Connection", "upgrade"),
            ("X-Env", "production"),
            ("Accept", "a"),
            ("Authorization", "***"),
            ("Cookie", "sid=***"),
        ]);
        let (bytes, head, masked) = render(|_| {}).bytes(&recorded);
        let want = "POST /a HTTP/1.1\r\nhost: target:80\r\nx-env: staging\r\nUser-Agent: browser\r\nAccept: a\r\n\
                    content-length: 3\r\n\r\nabc";
        assert_eq!(String::from_utf8(bytes).unwrap(), want);
        assert_eq!((head, masked), (want.len() - 3, vec!["authorization".to_owned(), "cookie".to_owned()]));
        let (bytes, ..) = render(|o| o.keeps_host = true).bytes(&recorded);
        assert!(bytes.starts_with(b"POST /a HTTP/1.1\r\nhost: shop.example\r\n"));
    }

    #[test]
    fn masked_keys_are_set_or_refused() {
        let r = render(|o| o.set = vec!["key=a b&c".to_owned()]);
        let complete = |target: &str| {
            let mut request = Recorded { target: target.to_owned(), ..request(&[]) };
            r.complete(&mut request).map(|()| request.target)
        };
        assert_eq!(complete("/a?x=1&key=***"), Ok("/a?x=1&key=a%20b%26c".to_owned()));
        assert_eq!(complete("/a?token=***"), Err(Why::Masked(vec!["token".to_owned()])));
        assert_eq!(complete("/a?***"), Err(Why::Hidden));
        assert_eq!(complete("/***"), Err(Why::Hidden));
        assert_eq!(complete("/a?x=**"), Ok("/a?x=**".to_owned()));
    }

    #[test]
    fn a_body_that_was_not_recorded_is_told() {
        let complete = |r: &Render, change: fn(&mut Recorded)| {
            let mut request = request(&[("content-length", "3")]);
            change(&mut request);
            r.complete(&mut request).map(|()| request.body.unwrap_or_default().len())
        };
        let plain = render(|_| {});
        assert_eq!(complete(&plain, |_| {}), Ok(3));
        assert_eq!(complete(&plain, |r| r.body = None), Err(Why::NoBody));
        assert_eq!(complete(&plain, |r| r.is_body_cut = true), Err(Why::BodyCut));
        assert_eq!(complete(&plain, |r| r.is_body_changed = true), Err(Why::BodyChanged));
        let none = |r: &mut Recorded| (r.body, r.fields) = (None, Vec::new());
        assert_eq!(complete(&plain, none), Err(Why::NoBody));
        let empty = |r: &mut Recorded| {
            (r.body, r.fields) = (None, vec![("content-length".to_owned(), b"0".to_vec())])
        };
        assert_eq!(complete(&plain, empty), Ok(0));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "other").unwrap();
        let with = render(|o| o.body_from = Some(file.path().to_owned()));
        assert_eq!(complete(&with, |_| {}), Ok(3));
        assert_eq!(complete(&with, |r| r.body = None), Ok(5));
        assert_eq!(complete(&with, |r| r.is_body_cut = true), Ok(5));
        assert_eq!(complete(&with, |r| r.is_body_changed = true), Ok(5));
    }
}
