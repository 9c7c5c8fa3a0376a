//! The field section of a head (RFC 9112 §5), and what it says about framing and connection (§6, §9).
//!
//! `parse` calls [`fields`] after the start line; `scan` finds the ends of names and values.

use crate::cursor::{Cursor, Limits, Stop};
use crate::error::{Error, Kind};
use crate::fields::{Entry, Fields, Text};
use crate::head::{Common, Connection, Version};
use crate::name::{Known, same_name};
use crate::scan::{common_line, end_of_line, end_of_token};

/// Facts from the fields of a head, in addition to those in `Common`.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) hosts: u32,
    pub(crate) host: Text,
    pub(crate) expects_continue: bool,
    /// The position of an expectation other than `100-continue`.
    pub(crate) expects_other: Option<usize>,
    pub(crate) te_trailers: bool,
    options: Options,
    upgrade: Option<Text>,
}

/// Parses field lines up to and including the empty line, and extracts what decides framing and connection. `found` is
/// the default when it is passed; returned instead, it would be copied twice.
pub(crate) fn fields(
    c: &mut Cursor<'_>,
    out: &mut Fields,
    common: &mut Common,
    limits: &Limits,
    found: &mut Found,
) -> Result<(), Stop> {
    let mut is_as_written = true;
    while c.bytes.get(c.at) != Some(&b'\r') {
        let Some(Line { mut entry, plain, end }) = line(c.bytes, c.at) else { return Err(no_line(c)) };
        c.at = end;
        if out.entries.len() >= limits.fields {
            return Err(c.broken(Kind::TooManyFields));
        }
        if entry.known != Known::Other {
            let refused = |kind| Error::new(kind, entry.value.at as usize);
            entry.dropped =
                found.read(entry.known, entry.value, c.slice(entry.value), common).map_err(refused)?;
        }
        is_as_written &= entry.clean && !entry.dropped;
        out.add(entry, !plain);
    }
    c.line_end()?;
    (out.lines, out.gone) = if is_as_written { (out.entries.len() as u32, 0) } else { (0, u32::MAX) };
    // §6.1 and §6.3: a message with both fields, or with chunked in HTTP/1.0, was made to be read in two ways.
    if common.chunked && (common.content_length.is_some() || common.version == Version::Http10) {
        return Err(c.broken(Kind::Framing));
    }
    let options = found.options;
    common.connection = match (common.version, options) {
        (_, Options { close: true, .. }) | (Version::Http10, Options { keep_alive: false, .. }) => {
            Connection::Close
        }
        _ => Connection::KeepAlive,
    };
    if options.upgrade && common.version == Version::Http11 {
        // h2c makes a claim about the next hop (RFC 9113 §3.1 has withdrawn it), and bypasses every rule on the first
        // one.
        common.upgrade =
            found.upgrade.filter(|&at| !tokens(c.slice(at)).any(|t| t.eq_ignore_ascii_case(b"h2c")));
    }
    if options.nominations > 0 {
        // The work is nominations × fields. Without this limit, one head of 32 KiB cost 60 times as much as an honest
        // one.
        if options.nominations > limits.fields {
            return Err(c.broken(Kind::TooManyFields));
        }
        drop_nominated(c, out);
    }
    Ok(())
}

impl Found {
    /// Processes one field that the gateway acts on; returns whether it is hop-by-hop and so not forwarded.
    fn read(&mut self, known: Known, at: Text, value: &[u8], common: &mut Common) -> Result<bool, Kind> {
        match known {
            Known::Alias | Known::KeepAlive | Known::ProxyConnection => return Ok(true),
            Known::Connection => {
                self.options.read(value);
                return Ok(true);
            }
            Known::ContentLength => {
                let second = common.content_length.is_some();
                common.content_length = length(value);
                if second || common.content_length.is_none() {
                    return Err(Kind::ContentLength);
                }
            }
            Known::Expect => {
                for expectation in tokens(value) {
                    if expectation.eq_ignore_ascii_case(b"100-continue") {
                        self.expects_continue = true;
                    } else {
                        self.expects_other = Some(at.at as usize);
                    }
                }
            }
            Known::Host => {
                self.hosts += 1;
                self.host = at;
            }
            Known::Te => {
                self.te_trailers |= tokens(value).any(|t| t.eq_ignore_ascii_case(b"trailers"));
                return Ok(true);
            }
            Known::TransferEncoding => {
                if common.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Kind::TransferEncoding);
                }
                common.chunked = true;
                return Ok(true);
            }
            Known::Upgrade => {
                if !value.is_empty() {
                    self.upgrade.get_or_insert(at);
                }
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }
}

/// One field line: `name ":" OWS value OWS CRLF` (§5).
struct Line {
    entry: Entry,
    /// Its name consists only of letters and hyphens.
    plain: bool,
    /// The start of the next line.
    end: usize,
}

/// Parses the line at `start`, if it is valid and complete. Diagnosing other lines is separate code, because this
/// path is a tenth of a request's cost.
#[inline]
fn line(bytes: &[u8], start: usize) -> Option<Line> {
    let Some((colon, end)) = common_line(bytes, start) else { return rarer_line(bytes, start) };
    let known = Known::of(bytes.get(start..colon)?);
    let (name, value) = (Cursor::text_of(start, colon), Cursor::text_of(colon + 2, end));
    Some(Line { entry: Entry { name, value, known, clean: true, dropped: false }, plain: true, end: end + 2 })
}

/// The same for a line with other bytes in its name, or with other spaces.
#[inline(never)]
fn rarer_line(bytes: &[u8], start: usize) -> Option<Line> {
    let (colon, plain) = end_of_token(bytes, start);
    if colon == start || bytes.get(colon) != Some(&b':') {
        return None;
    }
    // Nearly every value has one space before it and none after. Such a line can be copied as it is.
    let mut first = colon + 1;
    if bytes.get(first) == Some(&b' ') {
        first += 1;
    }
    let mut clean = first == colon + 2;
    while matches!(bytes.get(first), Some(b' ' | b'\t')) {
        (first, clean) = (first + 1, false);
    }
    let end = end_of_line(bytes, first)?;
    let mut last = end;
    while last > first && matches!(bytes.get(last - 1), Some(b' ' | b'\t')) {
        (last, clean) = (last - 1, false);
    }
    let known = Known::of(bytes.get(start..colon)?);
    let (name, value) = (Cursor::text_of(start, colon), Cursor::text_of(first, last));
    Some(Line { entry: Entry { name, value, known, clean, dropped: false }, plain, end: end + 2 })
}

/// Why there is no line, or none yet.
#[cold]
fn no_line(c: &mut Cursor<'_>) -> Stop {
    let start = c.at;
    (c.at, _) = end_of_token(c.bytes, start);
    match c.peek() {
        Err(more) => return more,
        Ok(b' ' | b'\t') if c.at == start => return c.broken(Kind::Fold),
        Ok(b'\n') => return c.broken(Kind::LineEnd),
        Ok(b':') if c.at > start => c.at += 1,
        Ok(_) => return c.broken(Kind::FieldName),
    }
    c.no_value_end()
}

/// §6.2: `1*DIGIT`, at most 2^63 - 1, without leading zeros: some servers read `010` as eight, some compare lengths
/// as text.
fn length(value: &[u8]) -> Option<u64> {
    let zero_in_front = value.len() > 1 && value.first() == Some(&b'0');
    if value.is_empty() || zero_in_front || value.len() > 19 {
        return None;
    }
    let mut n = 0u64;
    for b in value {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n * 10 + u64::from(digit); // 19 digits fit
    }
    (n <= i64::MAX as u64).then_some(n)
}

/// The members of a comma-separated list, without surrounding spaces (RFC 9110 §5.6.1).
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|t| !t.is_empty())
}

/// The contents of `Connection`.
#[derive(Clone, Copy, Default)]
struct Options {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    /// How many other fields it named.
    nominations: usize,
}

impl Options {
    fn read(&mut self, value: &[u8]) {
        // Nearly always one word. To read it as a list takes 70 instructions more (count nokeepalive).
        if same_name(value, b"close") {
            self.close = true;
            return;
        }
        for option in tokens(value) {
            match option {
                o if o.eq_ignore_ascii_case(b"close") => self.close = true,
                o if o.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                o if o.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                _ => self.nominations += 1,
            }
        }
    }
}

/// RFC 9110 §7.6.1: fields named in Connection are hop-by-hop, except those of [`stays`].
fn drop_nominated(c: &Cursor<'_>, out: &mut Fields) {
    (out.lines, out.gone) = (0, u32::MAX);
    for i in 0..out.entries.len() {
        if out.entries[i].known != Known::Connection {
            continue;
        }
        for name in tokens(c.slice(out.entries[i].value)).filter(|name| !stays(name)) {
            for e in &mut out.entries {
                if c.slice(e.name).eq_ignore_ascii_case(name) {
                    e.dropped = true;
                }
            }
        }
    }
}

/// Whether a nomination of this name is ignored. Nobody may remove the fields that access rules, framing and logs
/// depend on, least of all fields that a proxy before us has set.
fn stays(name: &[u8]) -> bool {
    const NAMES: [&str; 12] = [
        "authorization",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "proxy-authenticate",
        "proxy-authorization",
        "set-cookie",
        "via",
        "www-authenticate",
        "x-real-ip",
        "x-request-id",
    ];
    const FAMILIES: [&str; 2] = ["content-", "x-forwarded-"];
    NAMES.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
        || FAMILIES
            .iter()
            .any(|f| name.get(..f.len()).is_some_and(|start| start.eq_ignore_ascii_case(f.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two readings of a line agree wherever it begins, wherever its parts end, and however many bytes follow. The
    /// window of the common one is 32 bytes long.
    #[test]
    fn a_common_line_is_read_as_any_other() {
        const RARE: &[u8] = b"\0\t\n\r !-09:;@AZ[_`az{\x7f\x80\xff";
        let told =
            |line: Option<Line>| line.map(|Line { entry, plain, end }| format!("{entry:?} {plain} {end}"));
        let mut random = fastrand::Rng::with_seed(6);
        let (mut common, mut rare, mut none) = (0, 0, 0);
        for name in 1..36 {
            for value in 0..36 {
                for rest in 0..36 {
                    let before = random.usize(..36);
                    let mut bytes: Vec<u8> = (0..before).map(|_| RARE[random.usize(..RARE.len())]).collect();
                    bytes.extend((0..name).map(|_| b"-AZaz"[random.usize(..5)]));
                    bytes.extend_from_slice(b": ");
                    bytes.extend((0..value).map(|_| b"a:\xff;"[random.usize(..4)]));
                    bytes.extend_from_slice(b"\r\n");
                    bytes.extend((0..rest).map(|_| b"a: \r\n\0"[random.usize(..6)]));
                    if random.bool() {
                        let at = random.usize(before..bytes.len());
                        bytes[at] = RARE[random.usize(..RARE.len())];
                    }
                    let shown = bytes.escape_ascii();
                    let read = line(&bytes, before);
                    let kind = match (&read, common_line(&bytes, before)) {
                        (None, _) => &mut none,
                        (Some(_), None) => &mut rare,
                        (Some(_), Some(_)) => &mut common,
                    };
                    *kind += 1;
                    assert_eq!(told(read), told(rarer_line(&bytes, before)), "{before} {shown}");
                }
            }
        }
        assert!(common > 5_000 && rare > 2_000 && none > 2_000, "{common}, {rare}, {none}: a poor mixture");
    }
}
