//! Why bytes were refused.

use std::fmt;

/// A refusal: the broken rule and its position in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    at: usize,
}

/// The broken rule. Each variant cites its section of RFC 9112 unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A chunk size, extension or line end is malformed (§7.1).
    Chunk,
    /// Content-Length is not one plain decimal number, or occurs twice (§6.3).
    ContentLength,
    /// A NUL or another control byte in a field value (RFC 9110 §5.5).
    ControlByte,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1; answered with status 417).
    Expect,
    /// A field name is empty, is not a token, or has a space before its colon (§5.1).
    FieldName,
    /// A field line is folded, or white space precedes the first one (§2.2, §5.2).
    Fold,
    /// Content-Length together with Transfer-Encoding, or Transfer-Encoding in HTTP/1.0 (§6.1, §6.3).
    Framing,
    /// The head is longer than the limit.
    HeadTooLarge,
    /// Host is missing, occurs twice, is malformed, or disagrees with the target (§3.2).
    Host,
    /// A bare CR or a bare LF instead of CRLF (§2.2).
    LineEnd,
    /// The request line or status line is malformed (§3, §4).
    StartLine,
    /// The request target is malformed (§3.2).
    Target,
    /// The request target is longer than the limit (§3).
    TargetTooLong,
    /// More fields than the limit.
    TooManyFields,
    /// Trailers longer than the limit, or malformed (§7.1.2).
    Trailers,
    /// Transfer-Encoding is anything but the single coding `chunked` (§6.1).
    TransferEncoding,
    /// Neither HTTP/1.0 nor HTTP/1.1 (§2.3).
    Version,
}

impl Error {
    pub(crate) const fn new(kind: Kind, at: usize) -> Self {
        Self { kind, at }
    }

    /// The broken rule.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The position of the error, in bytes from the start of the head (or of the input to the body reader).
    pub const fn at(&self) -> usize {
        self.at
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.kind, self.at)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chunk => "malformed chunk",
            Self::ContentLength => "Content-Length is not one plain number",
            Self::ControlByte => "control byte in a field value",
            Self::Expect => "Expect other than 100-continue",
            Self::FieldName => "malformed field name",
            Self::Fold => "folded field line",
            Self::Framing => "Transfer-Encoding conflicts with Content-Length or with HTTP/1.0",
            Self::HeadTooLarge => "head too large",
            Self::Host => "Host is missing, doubled, malformed or disagrees with the target",
            Self::LineEnd => "bare CR or LF",
            Self::StartLine => "malformed start line",
            Self::Target => "malformed request target",
            Self::TargetTooLong => "request target too long",
            Self::TooManyFields => "too many fields",
            Self::Trailers => "malformed or too long trailers",
            Self::TransferEncoding => "Transfer-Encoding other than chunked",
            Self::Version => "HTTP version other than 1.0 and 1.1",
        })
    }
}
