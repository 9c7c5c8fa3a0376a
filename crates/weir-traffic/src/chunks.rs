//! Cuts a recording into records with bounded memory: lines, entries of a HAR file, messages of goreplay.

use memchr::memchr;
use std::io::BufRead;

/// Longest line of an access log: 1 MiB.
pub const LINE_MOST: usize = 1 << 20;

/// Longest body of a recorded request: 1 GiB.
pub const BODY_MOST: usize = 1 << 30;

/// Longest record with a body: a body of [`BODY_MOST`] in base64 and a head.
pub const CHUNK_MOST: usize = BODY_MOST / 3 * 4 + (16 << 20);

/// Ends a message of goreplay.
const GOR_END: &[u8] = "🐵🙈🙉".as_bytes();

/// Where records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// At each line break.
    Lines,
    /// At goreplay's separator line.
    Gor,
    /// Each object of the array `log.entries` is one.
    Har,
}

/// The records of a source.
pub(crate) struct Chunks<R> {
    source: R,
    cut: Cut,
    most: usize,
    /// Number of the current line.
    line: u64,
    /// How far a HAR file is read.
    har: Har,
    /// What the record that is being read has besides bodies.
    bulk: Bulk,
}

/// The place in a HAR file.
#[derive(Debug, Default)]
struct Har {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    /// The last string at the depth of `log`'s keys.
    key: Vec<u8>,
    /// Inside `log.entries`.
    in_entries: bool,
}

/// Longest key that is compared with `entries`.
const KEY_MOST: usize = 16;

/// Depth of the keys of `log`, and of the elements of `log.entries`.
const KEYS: u32 = 2;
const ENTRIES: u32 = 3;

impl<R: BufRead> Chunks<R> {
    pub(crate) fn new(source: R, cut: Cut, most: usize) -> Self {
        Self { source, cut, most, line: 0, har: Har::default(), bulk: Bulk::default() }
    }

    /// Puts the next record into `out`; returns its first line, and whether `out` has all of it.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> std::io::Result<Option<(u64, bool)>> {
        out.clear();
        match self.cut {
            Cut::Lines => Ok(self.line(out)?.map(|is_whole| (self.line, is_whole))),
            Cut::Gor => self.gor(out),
            Cut::Har => self.har(out),
        }
    }

    /// Appends the next line without its break; returns whether it is whole, `None` at the end.
    fn line(&mut self, out: &mut Vec<u8>) -> std::io::Result<Option<bool>> {
        let begin = out.len();
        let (mut any, mut is_whole) = (false, true);
        self.bulk = Bulk::default();
        loop {
            let bytes = self.source.fill_buf()?;
            if bytes.is_empty() {
                self.line += u64::from(any);
                return Ok(any.then_some(is_whole));
            }
            any = true;
            let end = memchr(b'\n', bytes);
            let taken = &bytes[..end.unwrap_or(bytes.len())];
            if is_whole {
                // A long line with control characters is neither text nor JSON: not worth its memory.
                let is_junk = self.cut == Cut::Lines
                    && out.len() > LINE_MOST
                    && taken.iter().any(|b| *b < b' ' && !b"\t\r".contains(b));
                let is_bulky = self.cut == Cut::Lines && self.bulk.is_too_much(out, taken);
                if out.len() - begin + taken.len() > self.most || is_junk || is_bulky {
                    is_whole = false;
                    out.truncate(begin);
                    out.shrink_to(LINE_MOST);
                } else {
                    out.extend_from_slice(taken);
                }
            }
            let n = taken.len() + usize::from(end.is_some());
            self.source.consume(n);
            if end.is_some() {
                self.line += 1;
                return Ok(Some(is_whole));
            }
        }
    }

    fn gor(&mut self, out: &mut Vec<u8>) -> std::io::Result<Option<(u64, bool)>> {
        let first = self.line + 1;
        let (mut any, mut is_whole) = (false, true);
        loop {
            let begin = out.len();
            let Some(is_line_whole) = self.line(out)? else { return Ok(any.then_some((first, is_whole))) };
            is_whole &= is_line_whole;
            if out[begin..] == *GOR_END {
                out.truncate(begin.saturating_sub(1)); // the break before the separator too
                return Ok(Some((first, is_whole)));
            }
            any = true;
            if is_whole && out.len() < self.most {
                out.push(b'\n');
            } else {
                is_whole = false;
                out.clear();
                out.shrink_to(LINE_MOST);
            }
        }
    }

    fn har(&mut self, out: &mut Vec<u8>) -> std::io::Result<Option<(u64, bool)>> {
        let mut first = self.line.max(1);
        let mut is_whole = true;
        self.bulk = Bulk::default();
        loop {
            let bytes = self.source.fill_buf()?;
            if bytes.is_empty() {
                // The file ends in the middle.
                return if self.har.depth > 0 {
                    Err(std::io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(None)
                };
            }
            let mut taken = 0;
            let mut ended = false;
            let mut begin = 0;
            for byte in bytes {
                if *byte == b'\n' {
                    self.line += 1;
                }
                let was_inside = self.har.is_inside();
                self.har.step(*byte);
                if !was_inside && self.har.is_inside() {
                    (first, begin) = (self.line + 1, taken);
                }
                taken += 1;
                if was_inside && !self.har.is_inside() {
                    ended = true;
                    break;
                }
            }
            let is_part = ended || self.har.is_inside();
            if is_part && is_whole {
                let part = &bytes[begin..taken];
                if out.len() + part.len() > self.most || self.bulk.is_too_much(out, part) {
                    is_whole = false;
                    *out = Vec::new();
                } else {
                    out.extend_from_slice(part);
                }
            }
            self.source.consume(taken);
            if ended {
                return Ok(Some((first, is_whole)));
            }
        }
    }
}

/// Members of JSON whose texts are bodies: of a line, and of an entry of HAR, which has that of the response too.
const BODIES: [&[u8]; 3] = [b"body", b"body_base64", b"text"];

/// Counts what a long JSON record has besides bodies, while it is read. A parsed document takes many times its length,
/// but for its texts, so only those of bodies may be long.
#[derive(Debug, Default)]
struct Bulk {
    /// Bytes that were looked at.
    seen: usize,
    /// Those of them that are no body.
    rest: usize,
    in_string: bool,
    is_escaped: bool,
    in_body: bool,
    /// A colon came last, so that a value follows.
    has_colon: bool,
    /// The beginning of the last string.
    key: Vec<u8>,
}

impl Bulk {
    /// Whether a record is too long apart from its bodies. `before` is what was read of it before `next`. Short records
    /// are not looked at.
    fn is_too_much(&mut self, before: &[u8], next: &[u8]) -> bool {
        if before.len() + next.len() <= LINE_MOST {
            return false;
        }
        let unseen = before.get(self.seen..).unwrap_or_default();
        self.seen = before.len() + next.len();
        self.add(unseen);
        self.add(next);
        self.rest > LINE_MOST
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => (self.in_string, self.in_body) = (false, false),
                    byte if self.key.len() < KEY_MOST => self.key.push(*byte),
                    _ => {}
                }
                self.rest += usize::from(!self.in_body);
                continue;
            }
            self.rest += 1;
            if *byte == b'"' {
                self.in_string = true;
                self.in_body = self.has_colon && BODIES.contains(&self.key.as_slice());
                self.key.clear();
            }
            if !byte.is_ascii_whitespace() {
                self.has_colon = *byte == b':';
            }
        }
    }
}

impl Har {
    /// Whether the last byte was part of an entry.
    const fn is_inside(&self) -> bool {
        self.in_entries && self.depth > ENTRIES
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            if self.is_escaped {
                self.is_escaped = false;
            } else if byte == b'\\' {
                self.is_escaped = true;
            } else if byte == b'"' {
                self.in_string = false;
            } else if self.depth == KEYS && self.key.len() < KEY_MOST {
                self.key.push(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == KEYS {
                    self.key.clear();
                }
            }
            b'[' if self.depth == KEYS => {
                self.depth += 1;
                self.in_entries = self.key == b"entries";
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth < ENTRIES {
                    self.in_entries = false;
                }
            }
            b',' if self.depth == KEYS => self.key.clear(),
            _ => {}
        }
    }
}
