//! The only place that brings a path into canonical form, which matching, access rules and forwarding share.
//!
//! Two spellings of one resource become one, and anything an upstream might read differently is refused. The rules,
//! based on RFC 3986 §6.2.2:
//!
//! - escapes of unreserved characters are decoded, the hex digits of the others are upper-cased (§6.2.2.1, §6.2.2.2);
//! - `.` and `..` segments are resolved, also when written `%2e` (§5.2.4, §6.2.2.3); above the root is an error;
//! - `//` becomes `/`, unless the listener keeps slashes;
//! - `%2F` stays and never equals `/` (`readings.rs` handles how servers behind us read it). But beside a `..`
//!   (`..%2f`, `%2f..`, `a%2F..%2Fb`) an upstream that decodes before it splits would climb, so that is an error;
//! - only one layer is decoded: `%252e%252e` is the data `%2e%2e`, and stays;
//! - characters that no URI may hold raw (`"<>^{|}` and the backtick) are escaped, as browsers do, so that `|` and
//!   `%7C` are one path;
//! - `..;` and `.;` are errors, also when written `%3B`: servlet containers drop what follows the `;`, and climb;
//! - control bytes (raw or escaped), backslash (raw or escaped), spaces, `#`, `?`, bytes from 0x80 up and bad escapes
//!   are errors.
//!
//! Invariant: `canonical(canonical(x)) == canonical(x)`.

use std::fmt;

/// How to treat empty segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slashes {
    /// `//` stays.
    Keep,
    /// `//` becomes `/`.
    #[default]
    Merge,
}

/// The signs that a path may hold raw or escaped (RFC 3986 §3.3: sub-delims, `:` and `@`), but for `;`. Most servers
/// behind us take both for the same; the canonical form keeps the difference, because some, such as S3, do not.
pub(crate) const SIGNS: &[u8] = b"!$&'()*+,:=@";

/// Where the canonical path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canonical {
    /// The raw path is canonical; the buffer's content is undefined.
    AsIs,
    /// The buffer holds the canonical path.
    Rewritten,
}

impl Canonical {
    /// The canonical path: `raw` or `out`, as given to [`canonical`].
    #[inline]
    pub fn choose<'a>(self, raw: &'a [u8], out: &'a [u8]) -> &'a [u8] {
        match self {
            Self::AsIs => raw,
            Self::Rewritten => out,
        }
    }
}

/// Parts of a canonical path that servers read differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ambiguity {
    /// `%2F`: nginx, WSGI and many others decode it before splitting the path; Node and others do not.
    pub slash: bool,
    /// `;` or `%3B`: servlet containers cut a segment there (RFC 3986 §3.3 calls the rest its parameters).
    pub semicolon: bool,
    /// An escaped sign such as `%40` that RFC 3986 §3.3 allows raw in a path: most servers take it for the raw sign.
    pub sign: bool,
}

/// Why a path has no canonical form. Each causes a 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathError {
    /// `..` climbs above `/`.
    AboveRoot,
    /// `\` or `%5C`.
    Backslash,
    /// `%` without two hex digits.
    BadEscape,
    /// A control byte, raw or escaped.
    Control,
    /// `..;` or `.;`.
    DotParameters,
    /// `..` beside a `%2F`.
    EncodedDotDot,
    /// `#`.
    Fragment,
    /// A raw byte from 0x80 up.
    NonAscii,
    /// No `/` at the beginning.
    NotAbsolute,
    /// `?`: the caller did not cut off the query.
    Query,
    /// A raw space.
    Space,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AboveRoot => "the path climbs above the root with `..`",
            Self::Backslash => "the path holds a backslash, raw or as %5C",
            Self::BadEscape => "the path holds a `%` that is not followed by two hex digits",
            Self::Control => "the path holds a control byte, raw or escaped",
            Self::DotParameters => {
                "the path holds a `.` or `..` segment with parameters, such as `..;`, which would climb where they are dropped"
            }
            Self::EncodedDotDot => "the path would gain a `..` segment if its %2F were decoded",
            Self::Fragment => "the path holds a `#`",
            Self::NonAscii => "the path holds a raw byte that is not ASCII; it must be percent-encoded",
            Self::NotAbsolute => "the path does not begin with `/`",
            Self::Query => "the path holds a `?`",
            Self::Space => "the path holds a raw space; it must be written %20",
        })
    }
}

impl std::error::Error for PathError {}

/// Brings `raw` (a path without its query) into canonical form.
///
/// In the common case nothing changes: one quick scan, nothing is written, and the result is [`Canonical::AsIs`].
/// Otherwise `out` is cleared and filled. Cost: linear in the length of `raw`; `out` grows to at most three times
/// that length. Never panics, whatever the bytes.
pub fn canonical(raw: &[u8], slashes: Slashes, out: &mut Vec<u8>) -> Result<Canonical, PathError> {
    examine(raw, slashes, out).map(|(form, _)| form)
}

/// As [`canonical`], and also reports what can be read differently. It is found in the same pass, so the common path
/// pays nothing.
#[inline]
pub fn examine(raw: &[u8], slashes: Slashes, out: &mut Vec<u8>) -> Result<(Canonical, Ambiguity), PathError> {
    let mut ambiguity = Ambiguity::default();
    if is_plain(raw, slashes) {
        return Ok((Canonical::AsIs, ambiguity));
    }
    rewrite(raw, slashes, out, &mut ambiguity)?;
    Ok((if out == raw { Canonical::AsIs } else { Canonical::Rewritten }, ambiguity))
}

/// Whether `raw` is certainly canonical. A path with escapes or unusual characters is left to [`rewrite`].
#[inline]
fn is_plain(raw: &[u8], slashes: Slashes) -> bool {
    if raw.first() != Some(&b'/') {
        return false;
    }
    // Nearly every path has plain bytes between its slashes and dots. With branches, each byte cost 13 instructions
    // (callgrind, grpc).
    let (mut before, mut odd) = (0, 0);
    for &byte in raw {
        let mark = MARKS[byte as usize];
        odd |= (mark & ODD) | ((before & SLASH) * mark);
        before = mark;
    }
    if odd == 0 {
        return true;
    }
    if odd & ODD != 0 {
        return false;
    }
    let mut after_slash = false;
    for (at, &byte) in raw.iter().enumerate() {
        match CLASS[byte as usize] {
            Class::Plain => after_slash = false,
            Class::Slash if after_slash && slashes == Slashes::Merge => return false,
            Class::Slash => after_slash = true,
            // `/.well-known` is plain; `/.`, `/./`, `/..` and `/.%2e` need the careful path.
            Class::Dot if after_slash && matches!(raw.get(at + 1), None | Some(b'/' | b'.' | b'%')) => {
                return false;
            }
            Class::Dot => after_slash = false,
            _ => return false,
        }
    }
    true
}

/// Builds the canonical form in `out`, segment by segment. `out` itself is the stack that `..` pops.
fn rewrite(
    raw: &[u8],
    slashes: Slashes,
    out: &mut Vec<u8>,
    ambiguity: &mut Ambiguity,
) -> Result<(), PathError> {
    out.clear();
    let Some((b'/', mut rest)) = raw.split_first() else { return Err(PathError::NotAbsolute) };
    // Invariant: `out` is empty or a canonical path of whole segments, each preceded by its `/`.
    loop {
        let start = out.len();
        out.push(b'/');
        let (used, last) = segment(rest, out, ambiguity)?;
        rest = rest.get(used..).unwrap_or_default();
        match out.get(start + 1..).unwrap_or_default() {
            b"." => out.truncate(start),
            b".." => {
                out.truncate(start);
                let parent = memchr::memrchr(b'/', out).ok_or(PathError::AboveRoot)?;
                out.truncate(parent);
            }
            b"" if slashes == Slashes::Merge => out.truncate(start),
            _ if last => return Ok(()),
            _ => continue,
        }
        // The segment is gone, but at the end it leaves a `/`: `/a/b/..` is `/a/`.
        if last {
            out.push(b'/');
            return Ok(());
        }
    }
}

/// Appends one canonical segment to `out`. Returns the raw bytes consumed, including the `/` after it, and whether it
/// was the last.
fn segment(raw: &[u8], out: &mut Vec<u8>, ambiguity: &mut Ambiguity) -> Result<(usize, bool), PathError> {
    let start = out.len();
    let mut here = Ambiguity::default();
    let mut at = 0;
    let last = loop {
        let Some(&byte) = raw.get(at) else { break true };
        at += 1;
        match CLASS[byte as usize] {
            Class::Dot | Class::Plain => out.push(byte),
            Class::Semicolon => {
                here.semicolon = true;
                out.push(byte);
            }
            Class::Slash => break false,
            Class::Escape => {
                let (Some(high), Some(low)) = (hex(raw.get(at)), hex(raw.get(at + 1))) else {
                    return Err(PathError::BadEscape);
                };
                at += 2;
                let value = high << 4 | low;
                match value {
                    0..=0x1F | 0x7F => return Err(PathError::Control),
                    b'\\' => return Err(PathError::Backslash),
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(value),
                    _ => push_escape(value, out),
                }
                here.slash |= value == b'/';
                here.semicolon |= value == b';';
                here.sign |= SIGNS.contains(&value);
            }
            Class::Escaped => push_escape(byte, out),
            Class::Refused(error) => return Err(error),
        }
    };
    let written = out.get(start..).unwrap_or_default();
    if here.slash && pieces(written).any(|piece| piece == b"..") {
        return Err(PathError::EncodedDotDot);
    }
    if here.semicolon && pieces(written).any(has_dot_parameters) {
        return Err(PathError::DotParameters);
    }
    ambiguity.slash |= here.slash;
    ambiguity.semicolon |= here.semicolon;
    ambiguity.sign |= here.sign;
    Ok((at, last))
}

/// A canonical segment split at its `%2F`.
fn pieces(segment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(segment);
    std::iter::from_fn(move || {
        let all = rest?;
        let cut = memchr::memmem::find(all, b"%2F");
        rest = cut.and_then(|cut| all.get(cut + 3..));
        all.get(..cut.unwrap_or(all.len()))
    })
}

/// Whether a piece is `.` or `..` without its parameters.
fn has_dot_parameters(piece: &[u8]) -> bool {
    let behind = piece.strip_prefix(b"..").or_else(|| piece.strip_prefix(b"."));
    behind.is_some_and(|rest| rest.starts_with(b";") || rest.starts_with(b"%3B"))
}

fn push_escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]);
}

fn hex(byte: Option<&u8>) -> Option<u8> {
    match *byte? {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        letter @ b'a'..=b'f' => Some(letter - b'a' + 10),
        letter @ b'A'..=b'F' => Some(letter - b'A' + 10),
        _ => None,
    }
}

/// What a raw byte means in a path.
#[derive(Clone, Copy)]
enum Class {
    Dot,
    /// `%`.
    Escape,
    /// Becomes an escape.
    Escaped,
    /// Stands for itself: unreserved, sub-delims, `:` and `@` (RFC 3986 §3.3).
    Plain,
    Refused(PathError),
    /// `;`, which stands for itself but may mean more.
    Semicolon,
    Slash,
}

static CLASS: [Class; 256] = classes();

/// Marks of bytes for [`is_plain`]. A plain byte has none, any other than a slash or a dot is odd.
static MARKS: [u8; 256] = {
    let (mut marks, classes) = ([0; 256], classes());
    let mut byte = 0;
    while byte < marks.len() {
        marks[byte] = match classes[byte] {
            Class::Plain => 0,
            Class::Slash => SLASH,
            Class::Dot => DOT,
            _ => ODD,
        };
        byte += 1;
    }
    marks
};

const SLASH: u8 = 1;
const DOT: u8 = 2;
const ODD: u8 = 4;

const fn classes() -> [Class; 256] {
    let mut table = [Class::Refused(PathError::NonAscii); 256];
    let mut byte = 0;
    while byte < 0x80 {
        table[byte] = match byte as u8 {
            0..=0x1F | 0x7F => Class::Refused(PathError::Control),
            b' ' => Class::Refused(PathError::Space),
            b'#' => Class::Refused(PathError::Fragment),
            b'?' => Class::Refused(PathError::Query),
            b'\\' => Class::Refused(PathError::Backslash),
            b'%' => Class::Escape,
            b'.' => Class::Dot,
            b'/' => Class::Slash,
            b';' => Class::Semicolon,
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' => Class::Escaped,
            _ => Class::Plain,
        };
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests;
