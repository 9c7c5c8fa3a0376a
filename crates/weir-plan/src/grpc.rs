//! Status codes of gRPC, by name and number.

/// The codes by number, spelled as in Go and in the output of ghz.
pub const CODES: [&str; 17] = [
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
pub struct Code(u8);

impl Code {
    /// The server broke an invariant.
    pub const INTERNAL: Self = Self(13);
    /// There is no such thing.
    pub const NOT_FOUND: Self = Self(5);
    /// Success.
    pub const OK: Self = Self(0);
    /// The method is not there.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// Any other error.
    pub const UNKNOWN: Self = Self(2);

    /// Reads grpc-status. Unknown numbers and values that are not numbers become Unknown.
    pub fn read(value: &[u8]) -> Self {
        let number = str::from_utf8(value).ok().and_then(|v| v.parse::<u8>().ok());
        number.filter(|n| usize::from(*n) < CODES.len()).map_or(Self::UNKNOWN, Self)
    }

    /// The code with this name, in any spelling (`NotFound`, `NOT_FOUND`), or with this number.
    pub fn named(text: &str) -> Option<Self> {
        let plain = |t: &str| t.replace('_', "").to_ascii_lowercase();
        let wanted = if text.eq_ignore_ascii_case("cancelled") { "canceled".to_owned() } else { plain(text) };
        let by_name = CODES.iter().position(|name| plain(name) == wanted);
        let found = by_name.or_else(|| text.parse().ok().filter(|n| *n < CODES.len()))?;
        u8::try_from(found).ok().map(Self)
    }

    /// The code that a gRPC client assigns to a response that is not gRPC (grpc/doc/http-grpc-status-mapping.md).
    pub const fn of_http(status: u16) -> Self {
        match status {
            400 => Self::INTERNAL,
            401 => Self(16),
            403 => Self(7),
            404 => Self::UNIMPLEMENTED,
            429 | 502..=504 => Self(14),
            _ => Self::UNKNOWN,
        }
    }

    /// Its name, as in Go.
    pub fn name(self) -> &'static str {
        CODES.get(self.index()).copied().unwrap_or("Unknown")
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
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
}
