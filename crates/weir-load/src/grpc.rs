//! gRPC beyond HTTP/2: status codes and message frames. This module knows no method and no schema: see `schema`.

use crate::url::unescape;
use weir_report::units::shown;

/// The codes by number, spelled as in Go and in the output of ghz.
pub(crate) const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// A gRPC status code.
///
/// Invariant: it is an index into [`CODES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Code(u8);

impl Code {
    pub(crate) const INTERNAL: Self = Self(13);
    #[cfg(feature = "grpc")]
    pub(crate) const NOT_FOUND: Self = Self(5);
    pub(crate) const OK: Self = Self(0);
    pub(crate) const UNIMPLEMENTED: Self = Self(12);
    pub(crate) const UNKNOWN: Self = Self(2);

    /// Reads grpc-status. Unknown numbers and values that are not numbers become Unknown.
    pub(crate) fn read(value: &[u8]) -> Self {
        let number = str::from_utf8(value).ok().and_then(|v| v.parse::<u8>().ok());
        number.filter(|n| usize::from(*n) < CODES.len()).map_or(Self::UNKNOWN, Self)
    }

    /// The code with this name, in any spelling (`NotFound`, `NOT_FOUND`), or with this number.
    pub(crate) fn named(text: &str) -> Option<Self> {
        let plain = |t: &str| t.replace('_', "").to_ascii_lowercase();
        let wanted = if text.eq_ignore_ascii_case("cancelled") { "canceled".to_owned() } else { plain(text) };
        let by_name = CODES.iter().position(|name| plain(name) == wanted);
        let found = by_name.or_else(|| text.parse().ok().filter(|n| *n < CODES.len()))?;
        u8::try_from(found).ok().map(Self)
    }

    /// The code that a gRPC client assigns to a response that is not gRPC (grpc/doc/http-grpc-status-mapping.md).
    pub(crate) const fn of_http(status: u16) -> Self {
        match status {
            400 => Self::INTERNAL,
            401 => Self(16),
            403 => Self(7),
            404 => Self::UNIMPLEMENTED,
            429 | 502..=504 => Self(14),
            _ => Self::UNKNOWN,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        CODES.get(self.index()).copied().unwrap_or("Unknown")
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Parses message frames from a body that arrives in pieces: a byte for the coding, four for the length, the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    header: [u8; 5],
    /// Bytes of `header` that have arrived.
    begun: u8,
    /// Bytes of the message still to come.
    left: u32,
    /// Complete messages.
    pub(crate) count: u64,
}

/// A message is compressed although we accept no coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compressed;

impl Messages {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), Compressed> {
        let mut rest = piece;
        while let Some((&first, after)) = rest.split_first() {
            if self.left > 0 {
                let take = rest.len().min(self.left as usize);
                self.left -= take as u32;
                self.count += u64::from(self.left == 0);
                rest = rest.get(take..).unwrap_or_default();
                continue;
            }
            if let Some(byte) = self.header.get_mut(usize::from(self.begun)) {
                *byte = first;
            }
            self.begun += 1;
            rest = after;
            if self.begun == 5 {
                let [coding, len @ ..] = self.header;
                if coding != 0 {
                    return Err(Compressed);
                }
                (self.begun, self.left) = (0, u32::from_be_bytes(len));
                self.count += u64::from(self.left == 0);
            }
        }
        Ok(())
    }

    /// Whether the body ends at the end of a message.
    pub(crate) const fn is_whole(&self) -> bool {
        self.begun == 0 && self.left == 0
    }
}

/// Decodes grpc-message: resolves percent escapes, keeps it on one line and limits its length.
pub(crate) fn message(value: &[u8]) -> String {
    const MOST: usize = 512;
    let text = unescape(&String::from_utf8_lossy(value.get(..MOST).unwrap_or(value)));
    shown(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_by_any_name() {
        for (text, want) in [
            ("OK", Some(0)),
            ("ok", Some(0)),
            ("NotFound", Some(5)),
            ("NOT_FOUND", Some(5)),
            ("CANCELLED", Some(1)),
            ("14", Some(14)),
            ("17", None),
            ("", None),
            ("Fine", None),
        ] {
            assert_eq!(Code::named(text).map(Code::index), want, "{text}");
        }
        for (value, want) in
            [("0", "OK"), ("14", "Unavailable"), ("99", "Unknown"), ("x", "Unknown"), ("-1", "Unknown")]
        {
            assert_eq!(Code::read(value.as_bytes()).name(), want);
        }
        for (status, want) in
            [(200, "Unknown"), (404, "Unimplemented"), (503, "Unavailable"), (401, "Unauthenticated")]
        {
            assert_eq!(Code::of_http(status).name(), want);
        }
    }

    #[test]
    fn messages_are_counted_in_any_pieces() {
        let body = b"\0\0\0\0\x02hi\0\0\0\0\0\0\0\0\0\x01x";
        for size in 1..=body.len() {
            let mut messages = Messages::default();
            for (i, piece) in body.chunks(size).enumerate() {
                messages.feed(piece).unwrap();
                let whole = [7, 12, body.len()].contains(&((i + 1) * size).min(body.len()));
                assert_eq!(messages.is_whole(), whole, "{i} pieces of {size}");
            }
            assert_eq!(messages.count, 3);
        }
        assert_eq!(Messages::default().feed(b"\x01\0\0\0\0"), Err(Compressed));
    }
}
