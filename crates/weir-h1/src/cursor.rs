//! A position in the bytes of a head, and the limits of a head. `parse` and `section` read through it.

use crate::error::{Error, Kind};
use crate::fields::Text;
use crate::head::Version;
use crate::scan::{end_of_token, end_of_value};

/// Limits for a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest head in bytes, including the start line and the empty line. Default 32 KiB: four times what browsers
    /// send with many cookies. More than 1 GiB counts as 1 GiB.
    pub head_bytes: usize,
    /// Most fields. Default 100.
    pub fields: usize,
    /// Longest request target in bytes. Default 8 KiB, the minimum that RFC 9110 §4.1 recommends.
    pub target_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, fields: 100, target_bytes: 8 * 1024 }
    }
}

/// Why a parser stopped early.
pub(crate) enum Stop {
    More,
    Broken(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Self::Broken(e)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    pub(crate) fn broken(&self, kind: Kind) -> Stop {
        Stop::Broken(Error::new(kind, self.at))
    }

    /// The unread bytes.
    pub(crate) fn ahead(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Skips a token; returns the byte after it.
    pub(crate) fn skip_token(&mut self) -> Result<u8, Stop> {
        (self.at, _) = end_of_token(self.bytes, self.at);
        self.peek()
    }

    /// Skips the bytes of a field value or reason phrase, up to the CR after them.
    pub(crate) fn skip_value(&mut self) -> Result<(), Stop> {
        self.at = end_of_value(self.bytes, self.at);
        match self.peek()? {
            b'\r' => Ok(()),
            b'\n' => Err(self.broken(Kind::LineEnd)),
            _ => Err(self.broken(Kind::ControlByte)),
        }
    }

    /// Why the value that begins here has no end, or none yet.
    #[cold]
    pub(crate) fn no_value_end(&mut self) -> Stop {
        match self.skip_value().and_then(|()| self.line_end()) {
            Err(stop) => stop,
            Ok(()) => Stop::More, // it has one, so other bytes are missing
        }
    }

    pub(crate) fn expect(&mut self, text: &[u8], kind: Kind) -> Result<(), Stop> {
        if self.ahead().starts_with(text) {
            self.at += text.len();
            return Ok(());
        }
        for &want in text {
            if self.peek()? != want {
                return Err(self.broken(kind));
            }
            self.at += 1;
        }
        Ok(())
    }

    pub(crate) fn line_end(&mut self) -> Result<(), Stop> {
        if self.bytes.get(self.at..self.at + 2) == Some(b"\r\n") {
            self.at += 2;
            return Ok(());
        }
        self.expect(b"\r\n", Kind::LineEnd)
    }

    pub(crate) const fn text(&self, from: usize) -> Text {
        Self::text_of(from, self.at)
    }

    /// The range between two positions.
    pub(crate) const fn text_of(from: usize, to: usize) -> Text {
        // Both fit: `parse::attempt` passes no byte beyond HEAD_BYTES_MOST.
        Text { at: from as u32, len: (to - from) as u32 }
    }

    pub(crate) fn slice(&self, t: Text) -> &'a [u8] {
        self.bytes.get(t.at as usize..(t.at + t.len) as usize).unwrap_or_default()
    }

    /// Parses `HTTP/1.0` or `HTTP/1.1`. Any other number of the same form is an unsupported version.
    pub(crate) fn version(&mut self) -> Result<Version, Stop> {
        if self.ahead().starts_with(b"HTTP/1.1") {
            self.at += 8;
            return Ok(Version::Http11);
        }
        self.expect(b"HTTP/", Kind::StartLine)?;
        match self.peek()? {
            b'1' => self.at += 1,
            // `HTTP/2 200` and `HTTP/3` have no dot.
            b'0'..=b'9' => return Err(self.broken(Kind::Version)),
            _ => return Err(self.broken(Kind::StartLine)),
        }
        self.expect(b".", Kind::StartLine)?;
        let version = match self.peek()? {
            b'0' => Version::Http10,
            b'1' => Version::Http11,
            b'2'..=b'9' => return Err(self.broken(Kind::Version)),
            _ => return Err(self.broken(Kind::StartLine)),
        };
        self.at += 1;
        Ok(version)
    }
}
