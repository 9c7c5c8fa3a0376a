//! Field names: the ones the gateway acts on, and names that come from a config.

use std::fmt;

/// A field the gateway itself looks at, found by length and letters while a head is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Known {
    /// Any other field.
    Other,
    /// A trust field (`Forwarded`, `X-Forwarded-*`, `X-Real-IP`) spelled with `_` for `-`: many servers read both as one
    /// variable, so it is dropped while parsing. It could otherwise pass by the rule that strips the real one.
    Alias,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Date`
    Date,
    /// `Expect`
    Expect,
    /// `Forwarded` (RFC 7239)
    Forwarded,
    /// `Host`
    Host,
    /// `Keep-Alive`
    KeepAlive,
    /// `Proxy-Connection`
    ProxyConnection,
    /// `TE`
    Te,
    /// `Trailer`
    Trailer,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Upgrade`
    Upgrade,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `X-Forwarded-Host`
    XForwardedHost,
    /// Any other `X-Forwarded-…`: `-Port`, `-Prefix`, `-Ssl`, … Each is trusted by some framework.
    XForwardedOther,
    /// `X-Forwarded-Proto`
    XForwardedProto,
    /// `X-Real-IP`
    XRealIp,
    /// `X-Weir-Cause`
    XWeirCause,
}

impl Known {
    /// Its bit in a set of known names.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// Looks a name up. Cost: one match on the length and at most two comparisons.
    pub fn of(name: &[u8]) -> Self {
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        match name.len() {
            2 if is("te") => Self::Te,
            4 if is("host") => Self::Host,
            4 if is("date") => Self::Date,
            6 if is("expect") => Self::Expect,
            7 if is("upgrade") => Self::Upgrade,
            7 if is("trailer") => Self::Trailer,
            9 if is("forwarded") => Self::Forwarded,
            10 if is("connection") => Self::Connection,
            10 if is("keep-alive") => Self::KeepAlive,
            12 if is("x-weir-cause") => Self::XWeirCause,
            14 if is("content-length") => Self::ContentLength,
            9 if is("x-real-ip") => Self::XRealIp,
            9 | 14..=17 => match name.len() {
                15 if is("x-forwarded-for") => Self::XForwardedFor,
                16 if is("proxy-connection") => Self::ProxyConnection,
                16 if is("x-forwarded-host") => Self::XForwardedHost,
                17 if is("transfer-encoding") => Self::TransferEncoding,
                17 if is("x-forwarded-proto") => Self::XForwardedProto,
                _ if is_alias(name) => Self::Alias,
                _ => Self::other(name),
            },
            _ => Self::other(name),
        }
    }
}

impl Known {
    /// A name that has no arm of its own.
    fn other(name: &[u8]) -> Self {
        const PREFIX: &[u8] = b"x-forwarded-";
        let forwarded = name.len() > PREFIX.len()
            && matches!(name.first(), Some(b'x' | b'X'))
            && name.get(..PREFIX.len()).is_some_and(|n| n.eq_ignore_ascii_case(PREFIX));
        if forwarded { Self::XForwardedOther } else { Self::Other }
    }
}

/// Whether `name` becomes a field that decides trust or framing once `_` is read as `-`.
fn is_alias(name: &[u8]) -> bool {
    const TRUST: [&str; 7] = [
        "content-length",
        "transfer-encoding",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-real-ip",
    ];
    let same = |text: &str| {
        text.len() == name.len()
            && text.bytes().zip(name).all(|(t, n)| t == n.to_ascii_lowercase() || (t == b'-' && *n == b'_'))
    };
    name.contains(&b'_') && TRUST.iter().any(|text| same(text))
}

/// A valid field name from a config or a program, kept as written and compared without regard to case.
#[derive(Clone)]
pub struct FieldName(Box<str>);

/// A text is no field name: it must be a token (RFC 9110 §5.6.2), 1 to 256 bytes long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(pub String);

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no header name: expected letters, digits and -_.!#$%&'*+^`|~",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for InvalidName {}

impl FieldName {
    /// Checks and keeps a name.
    ///
    /// # Errors
    /// When `name` is no token or is longer than 256 bytes.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let fits = (1..=256).contains(&name.len()) && name.bytes().all(is_token);
        if fits { Ok(Self(name.into())) } else { Err(InvalidName(name.to_owned())) }
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for FieldName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for FieldName {}

impl fmt::Debug for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `b` may stand in a token (RFC 9110 §5.6.2).
pub const fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        table[i] = b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_names_in_any_case() {
        for (name, known) in [
            ("Host", Known::Host),
            ("hOsT", Known::Host),
            ("Content-Length", Known::ContentLength),
            ("transfer-encoding", Known::TransferEncoding),
            ("Content_Length", Known::Alias),
            ("X_Forwarded_For", Known::Alias),
            ("x-forwarded_proto", Known::Alias),
            ("X_Real_IP", Known::Alias),
            ("x-forwarded-for", Known::XForwardedFor),
            ("x-forwarded-fox", Known::XForwardedOther),
            ("X-Forwarded-Port", Known::XForwardedOther),
            ("x-forwarded-", Known::Other),
            ("", Known::Other),
        ] {
            assert_eq!(Known::of(name.as_bytes()), known, "{name}");
        }
    }

    #[test]
    fn names_are_tokens() {
        assert!(FieldName::new("x-a").is_ok());
        for bad in ["", "a b", "a:", "a\r", "ä"] {
            assert!(FieldName::new(bad).is_err(), "{bad:?}");
        }
    }
}
