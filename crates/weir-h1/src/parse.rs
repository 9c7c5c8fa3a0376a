//! One strict pass over a head (RFC 9112 §2 to §6).
//!
//! The parser refuses everything that two implementations could read in two ways; it never repairs. A gateway that
//! repairs a message forwards another one than its access rules saw. This module parses start lines and controls
//! incremental reading; `section` parses the field lines.

use crate::body::BodyKind;
use crate::cursor::{Cursor, Limits, Stop};
use crate::error::{Error, Kind};
use crate::fields::Text;
use crate::head::{
    Common, LINE_END, Method, RequestHead, ResponseHead, Seen, TargetForm, Version, is_authority,
};
use crate::name::Known;
use crate::scan::{end_of_line, end_of_part, is_authority_at};
use crate::section::{Found, fields};

/// How far the parser got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The head is complete; bytes after it belong to the body.
    Complete,
    /// More bytes are needed.
    Partial,
}

/// Parses the request head at the start of `head`'s buffer.
///
/// # Errors
/// The first rule that the bytes break. After that, only the buffer of the head is usable.
pub fn parse_request(head: &mut RequestHead, limits: &Limits) -> Result<Progress, Error> {
    let base = std::mem::take(&mut head.headers.base);
    let mut seen = head.common.seen;
    let result = attempt(&base, &mut seen, limits, |c| request(c, head, limits));
    head.headers.base = base;
    head.common.seen = seen;
    result
}

/// Parses the response head at the start of `head`'s buffer.
///
/// # Errors
/// As [`parse_request`].
pub fn parse_response(head: &mut ResponseHead, limits: &Limits) -> Result<Progress, Error> {
    let base = std::mem::take(&mut head.headers.base);
    let mut seen = head.common.seen;
    let result = attempt(&base, &mut seen, limits, |c| response(c, head, limits));
    head.headers.base = base;
    head.common.seen = seen;
    result
}

/// Runs a parser, but not over the same bytes again for each byte that a slow peer adds. After the first attempt, it
/// runs only when the end of the head has arrived or the bytes have doubled. So the work stays linear in the received
/// bytes. The parser sees no byte beyond the limit, so ranges fit into 31 bits.
fn attempt(
    base: &[u8],
    seen: &mut Seen,
    limits: &Limits,
    parse: impl FnOnce(Cursor<'_>) -> Result<Progress, Stop>,
) -> Result<Progress, Error> {
    let most = limits.head_bytes.min(HEAD_BYTES_MOST);
    let bytes = base.get(..most).unwrap_or(base);
    if seen.parsed > 0 && bytes.len() < 2 * seen.parsed && bytes.len() < most {
        let fresh = bytes.get(seen.scanned.saturating_sub(2)..).unwrap_or_default();
        seen.scanned = bytes.len();
        if !ends_head(fresh) {
            return Ok(Progress::Partial);
        }
    }
    match parse(Cursor { bytes, at: 0 }) {
        Ok(progress) => Ok(progress),
        Err(Stop::Broken(e)) => Err(e),
        Err(Stop::More) if bytes.len() >= most => Err(Error::new(Kind::HeadTooLarge, most)),
        Err(Stop::More) => {
            *seen = Seen { parsed: bytes.len(), scanned: bytes.len() };
            Ok(Progress::Partial)
        }
    }
}

/// The maximum for `Limits::head_bytes`.
const HEAD_BYTES_MOST: usize = 1 << 30;

/// Whether `bytes` contains an empty line. An empty line made of bare LFs counts too: it ends no head, but the peer
/// that sent it waits for a response.
fn ends_head(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| {
        let next = bytes.get(at + 1..).unwrap_or_default();
        next.starts_with(b"\n") || next.starts_with(b"\r\n")
    })
}

fn request(mut c: Cursor<'_>, head: &mut RequestHead, limits: &Limits) -> Result<Progress, Stop> {
    head.headers.clear();
    // RFC 9112 §2.2: some old clients send one empty line before a request line.
    if c.peek()? == b'\r' {
        c.line_end()?;
    }
    method(&mut c, head)?;
    target(&mut c, head, limits)?;
    let version = if c.ahead().starts_with(LINE_END) {
        c.at += LINE_END.len();
        Version::Http11
    } else {
        end_of_request_line(&mut c)?
    };
    head.common = Common { version, ..Common::default() };

    let mut found = Found::default();
    fields(&mut c, &mut head.headers, &mut head.common, limits, &mut found)?;
    head.accepts_trailers = found.te_trailers;
    expect(head, &found)?;
    host(&c, head, &found)?;
    head.asked = head.authority;
    head.common.len = c.at;
    Ok(Progress::Complete)
}

/// The method and the space behind it. The two methods of nearly all requests are compared as words.
#[inline(always)]
fn method(c: &mut Cursor<'_>, head: &mut RequestHead) -> Result<(), Stop> {
    let start = c.at;
    if c.ahead().starts_with(b"GET ") {
        (head.method, c.at) = (Method::Get, start + 3);
    } else if c.ahead().starts_with(b"POST ") {
        (head.method, c.at) = (Method::Post, start + 4);
    } else {
        let end = c.skip_token();
        if c.at - start > METHOD_BYTES || end? != b' ' || c.at == start {
            return Err(c.broken(Kind::StartLine));
        }
        head.method = Method::of(c.slice(c.text(start)));
    }
    head.method_text = c.text(start);
    c.at += 1;
    Ok(())
}

/// What follows the target, if it is not [`LINE_END`].
#[cold]
fn end_of_request_line(c: &mut Cursor<'_>) -> Result<Version, Stop> {
    c.expect(b" ", Kind::StartLine)?;
    let version = c.version()?;
    if !matches!(c.peek()?, b'\r' | b'\n') {
        return Err(c.broken(Kind::StartLine));
    }
    c.line_end()?;
    Ok(version)
}

/// RFC 9110 §10.1.1. We refuse an expectation that we cannot meet, because the next server might ignore it. An
/// expectation in HTTP/1.0 must be ignored, so we do not forward it.
fn expect(head: &mut RequestHead, found: &Found) -> Result<(), Stop> {
    head.expects_continue = false;
    if head.common.version == Version::Http10 {
        head.headers.remove_known(Known::Expect);
        return Ok(());
    }
    if let Some(at) = found.expects_other {
        return Err(Stop::Broken(Error::new(Kind::Expect, at)));
    }
    head.expects_continue = found.expects_continue && head.body() != BodyKind::Empty;
    Ok(())
}

/// Longest method name. The longest registered one has 17 letters (UPDATEREDIRECTREF).
const METHOD_BYTES: usize = 32;

/// RFC 9112 §3.2.
fn target(c: &mut Cursor<'_>, head: &mut RequestHead, limits: &Limits) -> Result<(), Stop> {
    let start = c.at;
    let mut question = None;
    loop {
        // The first `?` ends the path; later ones belong to the query.
        c.at = end_of_part(c.bytes, c.at);
        let stop = c.peek();
        if c.at - start > limits.target_bytes {
            return Err(c.broken(Kind::TargetTooLong));
        }
        match stop? {
            b' ' => break,
            b'?' => {
                question.get_or_insert(c.at);
                c.at += 1;
            }
            _ => return Err(c.broken(Kind::Target)),
        }
    }
    head.target = c.text(start);
    head.authority = Text::default();
    let end = question.unwrap_or(c.at);
    head.query = question.map(|q| Text { at: q as u32 + 1, len: (c.at - q - 1) as u32 });
    head.path = Text { at: start as u32, len: (end - start) as u32 };
    let all = c.slice(head.target);
    let bad = Stop::Broken(Error::new(Kind::Target, start));
    head.form = match (head.method, all) {
        (Method::Connect, _) => {
            // §3.2.3: here the port is required.
            if !is_authority(all) || matches!(all.last(), Some(b':' | b']')) || !all.contains(&b':') {
                return Err(bad);
            }
            head.authority = head.target;
            TargetForm::Authority
        }
        (_, [b'/', ..]) => TargetForm::Origin,
        (Method::Options, b"*") => TargetForm::Asterisk,
        _ => {
            // absolute-form: scheme "://" authority path
            let skip = [&b"http://"[..], b"https://"]
                .iter()
                .find(|s| all.get(..s.len()).is_some_and(|a| a.eq_ignore_ascii_case(s)))
                .map(|s| s.len());
            let Some(skip) = skip else { return Err(bad) };
            let rest = c.bytes.get(start + skip..end).unwrap_or_default();
            let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
            head.authority = Text { at: (start + skip) as u32, len: slash as u32 };
            head.path = Text { at: (start + skip + slash) as u32, len: (rest.len() - slash) as u32 };
            if !is_authority(rest.get(..slash).unwrap_or_default()) {
                return Err(bad);
            }
            TargetForm::Absolute
        }
    };
    Ok(())
}

/// RFC 9112 §3.2: HTTP/1.1 requires exactly one valid Host, HTTP/1.0 allows at most one, and it must match an
/// absolute target. If an absolute target comes without Host, we forward its authority as the Host (§3.2.2).
fn host(c: &Cursor<'_>, head: &mut RequestHead, found: &Found) -> Result<(), Stop> {
    let bad = |at: usize| Err(Stop::Broken(Error::new(Kind::Host, at)));
    if found.hosts > 1 || (found.hosts == 0 && head.common.version == Version::Http11) {
        return bad(c.at);
    }
    let absolute = head.form == TargetForm::Absolute;
    if absolute && head.path.len == 0 {
        // §3.2.4: only a target without path and query means the whole server.
        let whole = head.method == Method::Options && head.query.is_none();
        head.path = head.headers.keep(if whole { b"*" } else { b"/" });
        if whole {
            head.form = TargetForm::Asterisk;
        }
    }
    if found.hosts == 0 {
        if absolute {
            head.headers.set_host(c.slice(head.authority));
        }
        return Ok(());
    }
    if !is_authority_at(c.bytes, found.host) {
        return bad(found.host.at as usize);
    }
    if absolute {
        let value = c.slice(found.host);
        let scheme_port: &[u8] = if c.slice(head.target).get(4) == Some(&b':') { b":80" } else { b":443" };
        if !without(value, scheme_port).eq_ignore_ascii_case(without(c.slice(head.authority), scheme_port)) {
            return bad(found.host.at as usize);
        }
    }
    head.authority = found.host;
    Ok(())
}

/// An authority without the default port of its scheme.
fn without<'a>(authority: &'a [u8], port: &[u8]) -> &'a [u8] {
    authority.strip_suffix(port).unwrap_or(authority)
}

fn response(mut c: Cursor<'_>, head: &mut ResponseHead, limits: &Limits) -> Result<Progress, Stop> {
    head.headers.clear();
    let version = if c.ahead().starts_with(b"HTTP/1.1 ") {
        c.at += 9;
        Version::Http11
    } else {
        let version = c.version()?;
        c.expect(b" ", Kind::StartLine)?;
        version
    };
    head.common = Common { version, ..Common::default() };
    let mut status = 0u16;
    for _ in 0..3 {
        let b = c.peek()?;
        if !b.is_ascii_digit() {
            return Err(c.broken(Kind::StartLine));
        }
        status = status * 10 + u16::from(b - b'0');
        c.at += 1;
    }
    if !(100..=599).contains(&status) {
        return Err(c.broken(Kind::StartLine));
    }
    (head.status, head.received_status) = (status, status);
    // §4: the space is required even without a reason phrase, but servers that omit both are common and harmless.
    if c.peek()? == b' ' {
        c.at += 1;
    } else if !matches!(c.peek()?, b'\r' | b'\n') {
        return Err(c.broken(Kind::StartLine));
    }
    let start = c.at;
    match end_of_line(c.bytes, start) {
        Some(end) => {
            head.reason = Cursor::text_of(start, end);
            c.at = end + 2;
        }
        None => return Err(c.no_value_end()),
    }
    fields(&mut c, &mut head.headers, &mut head.common, limits, &mut Found::default())?;
    if matches!(status, 100..=199 | 204) {
        // RFC 9110 §8.6: not allowed here. Forwarded, it would make a client wait for bytes that never come.
        head.headers.remove_known(Known::ContentLength);
        head.common.content_length = None;
    }
    head.common.len = c.at;
    Ok(Progress::Complete)
}
