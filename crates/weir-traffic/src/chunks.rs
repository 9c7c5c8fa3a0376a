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
        Self { source, cut, most, line: 0, har: Har::default() }
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
                if out.len() - begin + taken.len() > self.most || is_junk {
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
                if out.len() + part.len() > self.most {
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
