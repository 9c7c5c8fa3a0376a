//! One strict pass over a head (RFC 9112 §2 to §6).
//!
//! Whatever two implementations could read in two ways is refused here, not repaired: a gateway that repairs a message
//! sends on another one than its access rules saw. The pass is byte by byte over names and targets and eight bytes at
//! a time over values.

use crate::error::{Error, Kind};
use crate::fields::{Entry, Fields, Text};
use crate::head::{
    Common, Connection, Method, RequestHead, ResponseHead, TargetForm, Version, is_authority, is_target,
};
use crate::name::{Known, is_token};

/// What a head may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest head in bytes, start line and empty line included. Default 32 KiB: four times what browsers send with
    /// many cookies.
    pub head_bytes: usize,
    /// Most fields. Default 100.
    pub fields: usize,
    /// Longest request target in bytes. Default 8 KiB, the least that RFC 9110 §4.1 recommends.
    pub target_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, fields: 100, target_bytes: 8 * 1024 }
    }
}

/// How far the parser got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The head is complete; bytes behind it are the body's.
    Complete,
    /// More bytes are needed.
    Partial,
}

/// Parses the request head at the start of `head`'s buffer.
///
/// # Errors
/// The first rule that the bytes break. The head is then of no use but for its buffer.
pub fn parse_request(head: &mut RequestHead, limits: &Limits) -> Result<Progress, Error> {
    let base = std::mem::take(&mut head.headers.base);
    let mut tried = head.common.tried;
    let result = attempt(&base, &mut tried, limits, |c| request(c, head, limits));
    head.headers.base = base;
    head.common.tried = tried;
    result
}

/// Parses the response head at the start of `head`'s buffer.
///
/// # Errors
/// As [`parse_request`].
pub fn parse_response(head: &mut ResponseHead, limits: &Limits) -> Result<Progress, Error> {
    let base = std::mem::take(&mut head.headers.base);
    let mut tried = head.common.tried;
    let result = attempt(&base, &mut tried, limits, |c| response(c, head, limits));
    head.headers.base = base;
    head.common.tried = tried;
    result
}

/// Runs a parser, but not again over the same bytes for each byte that a slow peer adds: after a first attempt only when
/// the end of the head has come or the bytes have doubled. So the work stays linear in the bytes received.
fn attempt(
    base: &[u8],
    tried: &mut usize,
    limits: &Limits,
    parse: impl FnOnce(Cursor<'_>) -> Result<Progress, Stop>,
) -> Result<Progress, Error> {
    let seen = *tried;
    if seen > 0 && base.len() < 2 * seen && base.len() <= limits.head_bytes {
        let fresh = base.get(seen.saturating_sub(3)..).unwrap_or_default();
        if memchr::memmem::find(fresh, b"\r\n\r\n").is_none() {
            return Ok(Progress::Partial);
        }
    }
    match parse(Cursor { bytes: base, at: 0 }) {
        Ok(progress) => Ok(progress),
        Err(Stop::Broken(e)) => Err(e),
        Err(Stop::More) if base.len() > limits.head_bytes => {
            Err(Error::new(Kind::HeadTooLarge, limits.head_bytes))
        }
        Err(Stop::More) => {
            *tried = base.len();
            Ok(Progress::Partial)
        }
    }
}

/// Why a parser stopped early.
enum Stop {
    More,
    Broken(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Self::Broken(e)
    }
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    fn broken(&self, kind: Kind) -> Stop {
        Stop::Broken(Error::new(kind, self.at))
    }

    fn expect(&mut self, text: &[u8], kind: Kind) -> Result<(), Stop> {
        for &want in text {
            if self.peek()? != want {
                return Err(self.broken(kind));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn line_end(&mut self) -> Result<(), Stop> {
        self.expect(b"\r\n", Kind::LineEnd)
    }

    fn text(&self, from: usize) -> Text {
        // Heads are bounded far below 2 GiB by `Limits::head_bytes`.
        Text { at: from as u32, len: (self.at - from) as u32 }
    }

    fn slice(&self, t: Text) -> &[u8] {
        self.bytes.get(t.at as usize..(t.at + t.len) as usize).unwrap_or_default()
    }

    /// `HTTP/1.0` or `HTTP/1.1`. Another number of the same shape is a version we do not speak.
    fn version(&mut self) -> Result<Version, Stop> {
        self.expect(b"HTTP/", Kind::StartLine)?;
        let major = self.peek()?;
        self.at += 1;
        let shaped = major.is_ascii_digit();
        if !shaped {
            return Err(self.broken(Kind::StartLine));
        }
        // `HTTP/2 200` and `HTTP/3` have no dot.
        if major != b'1' {
            return Err(self.broken(Kind::Version));
        }
        self.expect(b".", Kind::StartLine)?;
        let minor = self.peek()?;
        self.at += 1;
        match minor {
            b'0' => Ok(Version::Http10),
            b'1' => Ok(Version::Http11),
            b'2'..=b'9' => Err(self.broken(Kind::Version)),
            _ => Err(self.broken(Kind::StartLine)),
        }
    }
}

fn request(mut c: Cursor<'_>, head: &mut RequestHead, limits: &Limits) -> Result<Progress, Stop> {
    head.headers.clear();
    // RFC 9112 §2.2: one empty line before a request line is a known fault of old clients.
    if c.peek()? == b'\r' {
        c.line_end()?;
    }
    let start = c.at;
    while is_token(c.peek()?) {
        c.at += 1;
        if c.at - start > METHOD_BYTES {
            return Err(c.broken(Kind::StartLine));
        }
    }
    if c.at == start || c.peek()? != b' ' {
        return Err(c.broken(Kind::StartLine));
    }
    head.method_text = c.text(start);
    head.method = Method::of(c.slice(head.method_text));
    c.at += 1;
    target(&mut c, head, limits)?;
    c.expect(b" ", Kind::StartLine)?;
    head.common = Common { version: c.version()?, ..Common::default() };
    c.line_end()?;

    let found = fields(&mut c, &mut head.headers, &mut head.common, limits)?;
    head.expects_continue = false;
    head.accepts_trailers = found.te_trailers;
    if head.common.version == Version::Http11 {
        head.expects_continue = found.expects_continue;
    }
    host(&c, head, &found)?;
    head.asked = head.authority;
    head.common.len = c.at;
    Ok(Progress::Complete)
}

/// Longest method name. The longest registered one has 17 letters (UPDATEREDIRECTREF).
const METHOD_BYTES: usize = 32;

/// RFC 9112 §3.2.
fn target(c: &mut Cursor<'_>, head: &mut RequestHead, limits: &Limits) -> Result<(), Stop> {
    let start = c.at;
    let mut question = None;
    loop {
        let b = c.peek()?;
        if b == b' ' {
            break;
        }
        if !is_target(b) {
            return Err(c.broken(Kind::Target));
        }
        if b == b'?' && question.is_none() {
            question = Some(c.at);
        }
        c.at += 1;
        if c.at - start > limits.target_bytes {
            return Err(c.broken(Kind::TargetTooLong));
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
        (Method::Connect, _) => TargetForm::Authority, // whatever it says: the gateway refuses the method
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

/// RFC 9112 §3.2: exactly one valid Host in HTTP/1.1, at most one in HTTP/1.0, and none that differs from an
/// absolute target.
fn host(c: &Cursor<'_>, head: &mut RequestHead, found: &Found) -> Result<(), Stop> {
    let bad = |at: usize| Err(Stop::Broken(Error::new(Kind::Host, at)));
    if found.hosts > 1 || (found.hosts == 0 && head.common.version == Version::Http11) {
        return bad(c.at);
    }
    if head.form == TargetForm::Absolute && head.path.len == 0 {
        head.path = head.headers.keep(if head.method == Method::Options { b"*" } else { b"/" });
    }
    if found.hosts == 0 {
        return Ok(());
    }
    let value = c.slice(found.host);
    if !is_authority(value) {
        return bad(found.host.at as usize);
    }
    if head.form == TargetForm::Absolute {
        let scheme_port: &[u8] = if c.slice(head.target).get(4) == Some(&b':') { b":80" } else { b":443" };
        let bare = |a: &[u8]| a.strip_suffix(scheme_port).unwrap_or(a).to_ascii_lowercase();
        if bare(value) != bare(c.slice(head.authority)) {
            return bad(found.host.at as usize);
        }
    }
    head.authority = found.host;
    Ok(())
}

fn response(mut c: Cursor<'_>, head: &mut ResponseHead, limits: &Limits) -> Result<Progress, Stop> {
    head.headers.clear();
    let version = c.version()?;
    head.common = Common { version, ..Common::default() };
    c.expect(b" ", Kind::StartLine)?;
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
    head.status = status;
    // §4: the space is due even without a reason phrase, but servers that leave out both are common and harmless.
    if c.peek()? == b' ' {
        c.at += 1;
    } else if c.peek()? != b'\r' {
        return Err(c.broken(Kind::StartLine));
    }
    let start = c.at;
    skip_value(&mut c)?;
    head.reason = c.text(start);
    c.line_end()?;
    fields(&mut c, &mut head.headers, &mut head.common, limits)?;
    head.common.len = c.at;
    Ok(Progress::Complete)
}

/// What the fields of a head said, beside what `Common` keeps.
#[derive(Default)]
struct Found {
    hosts: u32,
    host: Text,
    expects_continue: bool,
    te_trailers: bool,
}

/// Reads field lines up to and including the empty line, and draws from them what decides framing and connection.
fn fields(c: &mut Cursor<'_>, out: &mut Fields, common: &mut Common, limits: &Limits) -> Result<Found, Stop> {
    let mut found = Found::default();
    let mut options = Options::default();
    let (mut lengths, mut codings, mut upgrade) = (0, 0, None::<Text>);
    loop {
        if c.peek()? == b'\r' {
            c.line_end()?;
            break;
        }
        let entry = field_line(c)?;
        if out.entries.len() >= limits.fields {
            return Err(c.broken(Kind::TooManyFields));
        }
        if c.at > limits.head_bytes {
            return Err(c.broken(Kind::HeadTooLarge));
        }
        let mut entry = entry;
        let value = c.slice(entry.value);
        match entry.known {
            Known::Other => {}
            Known::Alias | Known::KeepAlive | Known::ProxyConnection => entry.dropped = true,
            Known::Connection => {
                options.read(value);
                entry.dropped = true;
            }
            Known::ContentLength => {
                lengths += 1;
                common.content_length = Some(length(value).ok_or_else(|| c.broken(Kind::ContentLength))?);
                if lengths > 1 {
                    return Err(c.broken(Kind::ContentLength));
                }
            }
            Known::Expect => found.expects_continue = value.eq_ignore_ascii_case(b"100-continue"),
            Known::Host => {
                found.hosts += 1;
                found.host = entry.value;
            }
            Known::Te => {
                found.te_trailers |= tokens(value).any(|t| t.eq_ignore_ascii_case(b"trailers"));
                entry.dropped = true;
            }
            Known::TransferEncoding => {
                codings += 1;
                common.chunked = value.eq_ignore_ascii_case(b"chunked");
                entry.dropped = true;
                if !common.chunked || codings > 1 {
                    return Err(c.broken(Kind::TransferEncoding));
                }
            }
            Known::Upgrade => {
                upgrade.get_or_insert(entry.value);
                entry.dropped = true;
            }
            _ => {}
        }
        out.entries.push(entry);
    }
    if c.at > limits.head_bytes {
        return Err(c.broken(Kind::HeadTooLarge));
    }
    // §6.1 and §6.3: a message that says both, or that says chunked in HTTP/1.0, was made to be read in two ways.
    if common.chunked && (common.content_length.is_some() || common.version == Version::Http10) {
        return Err(c.broken(Kind::Framing));
    }
    common.connection = match (common.version, options) {
        (_, Options { close: true, .. }) | (Version::Http10, Options { keep_alive: false, .. }) => {
            Connection::Close
        }
        _ => Connection::KeepAlive,
    };
    if options.upgrade && common.version == Version::Http11 {
        common.upgrade = upgrade;
    }
    if options.nominates {
        drop_nominated(c, out);
    }
    Ok(found)
}

/// One field line: `name ":" OWS value OWS CRLF` (§5).
fn field_line(c: &mut Cursor<'_>) -> Result<Entry, Stop> {
    let start = c.at;
    if matches!(c.peek()?, b' ' | b'\t') {
        return Err(c.broken(Kind::Fold));
    }
    while is_token(c.peek()?) {
        c.at += 1;
    }
    let name = c.text(start);
    match c.peek()? {
        b':' if name.len > 0 => c.at += 1,
        b'\n' => return Err(c.broken(Kind::LineEnd)),
        _ => return Err(c.broken(Kind::FieldName)),
    }
    let colon = c.at;
    while matches!(c.peek()?, b' ' | b'\t') {
        c.at += 1;
    }
    let first = c.at;
    skip_value(c)?;
    let last = c.at;
    c.line_end()?;
    // The next line begins with white space: this one is folded. Seen here, so that the position is right.
    let raw = c.bytes.get(first..last).unwrap_or_default();
    let kept = raw.trim_ascii_end_ows();
    let value = Text { at: first as u32, len: kept as u32 };
    let clean = first == colon + 1 && c.bytes.get(colon) == Some(&b' ') && kept == raw.len();
    let known = Known::of(c.slice(name));
    Ok(Entry { name, value, known, clean, dropped: false })
}

trait Ows {
    /// The length without spaces and tabs at the end.
    fn trim_ascii_end_ows(&self) -> usize;
}

impl Ows for [u8] {
    fn trim_ascii_end_ows(&self) -> usize {
        self.iter().rposition(|&b| b != b' ' && b != b'\t').map_or(0, |i| i + 1)
    }
}

/// Moves over field-value bytes up to a CR. Eight at a time: a word with no byte below 0x20 and no 0x7f is all value.
fn skip_value(c: &mut Cursor<'_>) -> Result<(), Stop> {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 128;
    loop {
        while let Some(word) = c.bytes.get(c.at..).and_then(|b| b.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*word);
            let below_space = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
            let delete = word ^ (ONES * 0x7f);
            let delete = delete.wrapping_sub(ONES) & !delete & HIGHS;
            if below_space | delete != 0 {
                break;
            }
            c.at += 8;
        }
        match c.peek()? {
            b'\r' => return Ok(()),
            b'\n' => return Err(c.broken(Kind::LineEnd)),
            b'\t' | 0x20..=0x7e | 0x80..=0xff => c.at += 1,
            _ => return Err(c.broken(Kind::ControlByte)),
        }
    }
}

/// §6.2: `1*DIGIT`, at most 2^63 - 1.
fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = value.iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b - b'0')))?;
    (n <= i64::MAX as u64).then_some(n)
}

/// The members of a comma-separated list, without parameters' spaces (RFC 9110 §5.6.1).
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|t| !t.is_empty())
}

/// What `Connection` said.
#[derive(Clone, Copy, Default)]
struct Options {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    nominates: bool,
}

impl Options {
    fn read(&mut self, value: &[u8]) {
        for option in tokens(value) {
            match option {
                o if o.eq_ignore_ascii_case(b"close") => self.close = true,
                o if o.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                o if o.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                _ => self.nominates = true,
            }
        }
    }
}

/// RFC 9110 §7.6.1: fields that Connection names are hop-by-hop. But a client must not be able to take away what access
/// rules, framing and logs rest on: those nominations are ignored.
fn drop_nominated(c: &Cursor<'_>, out: &mut Fields) {
    const KEPT: [&str; 13] = [
        "authorization",
        "content-length",
        "content-type",
        "cookie",
        "forwarded",
        "host",
        "proxy-authorization",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-real-ip",
        "x-request-id",
    ];
    for i in 0..out.entries.len() {
        if out.entries[i].known != Known::Connection {
            continue;
        }
        for name in tokens(c.slice(out.entries[i].value)) {
            if KEPT.iter().any(|k| name.eq_ignore_ascii_case(k.as_bytes())) {
                continue;
            }
            for e in &mut out.entries {
                let (at, len) = (e.name.at as usize, e.name.len as usize);
                if c.bytes.get(at..at + len).is_some_and(|n| n.eq_ignore_ascii_case(name)) {
                    e.dropped = true;
                }
            }
        }
    }
}
