//! Field names: those the gateway acts on, and those from a config.

use std::fmt;

/// A field that the gateway itself reads, recognized by length and letters while a head is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Known {
    /// Any other field.
    Other,
    /// A field that decides trust or framing (`X-Forwarded-*`, `X-Real-IP`, `Content-Length` and similar), spelled
    /// with `_` for `-`. Many servers map both spellings to one variable, so the parser drops it. Otherwise it could
    /// evade the rule that strips the real one.
    Alias,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Content-Location`
    ContentLocation,
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
    /// `Location`
    Location,
    /// `Proxy-Connection`
    ProxyConnection,
    /// `Refresh`, which browsers support
    Refresh,
    /// `Set-Cookie`
    SetCookie,
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
    /// Any other `X-Forwarded-…`: `-Port`, `-Prefix`, `-Ssl`, … Some framework trusts each of them. Includes
    /// `Front-End-Https`, `X-Scheme`, `X-URL-Scheme` and `X-Envoy-Original-Path`, which carry the same information.
    XForwardedOther,
    /// `X-Forwarded-Proto`
    XForwardedProto,
    /// `X-Original-URL` or `X-Rewrite-URL`: frameworks that trust them serve another path than the one in the request
    /// line, on which access was decided.
    XOriginalUrl,
    /// `X-Real-IP`, or `X-Envoy-External-Address`, which has the same meaning
    XRealIp,
    /// `X-Weir-Cause`
    XWeirCause,
}

/// What a field says of a request that came through a proxy. It is a stranger's word unless a trusted proxy said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The client's address, and nothing else.
    Address,
    /// Both, as `Forwarded` does.
    AddressAndUrl,
    /// The URL that the client asked for, or anything else by which an upstream may answer.
    Url,
}

impl Known {
    /// The fields that count only from a trusted proxy, and what they claim. Code that drops or forwards them, or
    /// that caches answers, uses this list.
    pub const CLAIMS: [(Self, Claim); 7] = [
        (Self::Forwarded, Claim::AddressAndUrl),
        (Self::XForwardedFor, Claim::Address),
        (Self::XForwardedHost, Claim::Url),
        (Self::XForwardedOther, Claim::Url),
        (Self::XForwardedProto, Claim::Url),
        (Self::XOriginalUrl, Claim::Url),
        (Self::XRealIp, Claim::Address),
    ];

    /// Those fields.
    pub const CLAIMED: [Self; Self::CLAIMS.len()] = {
        let mut claimed = [Self::Other; Self::CLAIMS.len()];
        let mut at = 0;
        while at < claimed.len() {
            claimed[at] = Self::CLAIMS[at].0;
            at += 1;
        }
        claimed
    };

    /// What the field says, if it counts only from a trusted proxy.
    pub fn claim(self) -> Option<Claim> {
        Self::CLAIMS.iter().find(|(known, _)| *known == self).map(|(_, claim)| *claim)
    }

    /// Its bit in a set of known names.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// Looks up a name, which must be a token. Cost: one match on the length and at most three comparisons of two
    /// words each.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let first = name.first().copied().unwrap_or_default();
        let lengths = LENGTHS[(first & LETTER) as usize];
        if name.len() < 32 && (lengths >> name.len()) & 1 == 0 {
            return Self::Other; // most fields of most messages
        }
        Self::of_length(name)
    }

    /// The same for a name whose first letter and length some known name has.
    fn of_length(name: &[u8]) -> Self {
        let folded = fold(name);
        let is = |text: &str| {
            let whole = (4..=16).contains(&text.len()); // the words cover only part of other lengths
            folded == fold(text.as_bytes()) && (whole || name.eq_ignore_ascii_case(text.as_bytes()))
        };
        match name.len() {
            2 if is("te") => Self::Te,
            4 if is("host") => Self::Host,
            4 if is("date") => Self::Date,
            6 if is("expect") => Self::Expect,
            7 if is("upgrade") => Self::Upgrade,
            7 if is("trailer") => Self::Trailer,
            7 if is("refresh") => Self::Refresh,
            8 if is("location") => Self::Location,
            8 if is("x-scheme") => Self::XForwardedOther,
            9 if is("forwarded") => Self::Forwarded,
            9 if is("x-real-ip") => Self::XRealIp,
            10 if is("connection") => Self::Connection,
            10 if is("keep-alive") => Self::KeepAlive,
            10 if is("set-cookie") => Self::SetCookie,
            12 if is("x-url-scheme") => Self::XForwardedOther,
            12 if is("x-weir-cause") => Self::XWeirCause,
            13 if is("x-rewrite-url") => Self::XOriginalUrl,
            14 if is("content-length") => Self::ContentLength,
            14 if is("x-original-url") => Self::XOriginalUrl,
            15 if is("front-end-https") => Self::XForwardedOther,
            15 if is("x-forwarded-for") => Self::XForwardedFor,
            16 if is("proxy-connection") => Self::ProxyConnection,
            16 if is("x-forwarded-host") => Self::XForwardedHost,
            16 if is("x-envoy-internal") => Self::XForwardedOther,
            16 if is("content-location") => Self::ContentLocation,
            17 if is("transfer-encoding") => Self::TransferEncoding,
            17 if is("x-forwarded-proto") => Self::XForwardedProto,
            21 if is("x-envoy-original-path") || is("x-envoy-original-host") => Self::XForwardedOther,
            24 if is("x-envoy-external-address") => Self::XRealIp,
            _ => Self::other(name),
        }
    }

    /// A name without its own arm: an `X-Forwarded` variant, a known name spelled with `_`, or any other.
    fn other(name: &[u8]) -> Self {
        const FAMILY: &[u8] = b"x-forwarded";
        let alias = |text: &str| if reads_as(name, text.as_bytes()) { Self::Alias } else { Self::Other };
        match (name.first(), name.len()) {
            (Some(b'c' | b'C'), 14) => alias("content-length"),
            (Some(b't' | b'T'), 17) => alias("transfer-encoding"),
            (Some(b'f' | b'F'), 15) => alias("front-end-https"),
            (Some(b'x' | b'X'), 8) => alias("x-scheme"),
            (Some(b'x' | b'X'), 9) => alias("x-real-ip"),
            (Some(b'x' | b'X'), 11..) => {
                let (start, rest) = name.split_at_checked(FAMILY.len()).unwrap_or_default();
                if matches!(rest.first(), None | Some(b'-' | b'_')) && reads_as(start, FAMILY) {
                    return if name.contains(&b'_') { Self::Alias } else { Self::XForwardedOther };
                }
                match name.len() {
                    12 => alias("x-url-scheme"),
                    13 => alias("x-rewrite-url"),
                    14 => alias("x-original-url"),
                    16 => alias("x-envoy-internal"),
                    21 if reads_as(name, b"x-envoy-original-host") => Self::Alias,
                    21 => alias("x-envoy-original-path"),
                    24 => alias("x-envoy-external-address"),
                    _ => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }
}

/// The bits of a letter that tell which one it is, in either case.
const LETTER: u8 = 0x1f;

/// By first letter, the lengths below 32 of the names that [`Known::of`] may know, a bit each. Names with `_` for `-`
/// have the same. A name that begins with `x` may have any length.
static LENGTHS: [u32; 32] = {
    let mut lengths = [0u32; 32];
    let names = [
        "te",
        "host",
        "date",
        "expect",
        "upgrade",
        "trailer",
        "refresh",
        "location",
        "forwarded",
        "connection",
        "keep-alive",
        "set-cookie",
        "content-length",
        "front-end-https",
        "proxy-connection",
        "content-location",
        "transfer-encoding",
    ];
    let mut i = 0;
    while i < names.len() {
        let name = names[i].as_bytes();
        lengths[(name[0] & LETTER) as usize] |= 1 << name.len();
        i += 1;
    }
    lengths[(b'x' & LETTER) as usize] = u32::MAX;
    lengths
};

/// The bit of each byte that distinguishes the cases of a letter.
const CASE: u64 = u64::MAX / 255 * 0x20;

/// The first and last eight bytes of a token (four if it is shorter), in lower case. For two tokens of the same
/// length, these are equal if the tokens differ only in case. No other byte of a token folds to a letter or a hyphen.
#[inline]
fn fold(token: &[u8]) -> (u64, u64) {
    let (first, last) = ends(token);
    if token.len() < 4 { (0, 0) } else { (first | CASE, last | CASE) }
}

/// The first and last eight bytes, four if there are fewer; 0 if there are fewer than four.
#[inline]
pub(crate) fn ends(text: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let word = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
        return (word(first), word(last));
    }
    (0, 0)
}

/// Whether two words of ASCII differ only in the case of letters.
#[inline]
const fn same_letters(a: u64, b: u64) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // Letters carry into the high bit from `a` on and not yet from `{` on.
    let lower = (a | CASE) & !HIGH;
    let letters = (lower + ONES * (0x80 - 0x61)) & !(lower + ONES * (0x80 - 0x7b)) & HIGH;
    let differs = a ^ b;
    differs & !CASE == 0 && (differs << 2) & !letters == 0
}

/// Whether two texts are equal. A call of memcmp costs more than comparing the ends of short ones.
#[inline]
pub(crate) fn same_text(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && if (4..=16).contains(&a.len()) { ends(a) == ends(b) } else { a == b }
}

/// Whether a received name is this one, which need not be valid.
#[inline]
pub(crate) fn same_name(received: &[u8], name: &[u8]) -> bool {
    if received.len() != name.len() {
        return false;
    }
    if !(4..=16).contains(&name.len()) {
        return received.eq_ignore_ascii_case(name);
    }
    let (a, b) = (ends(received), ends(name)); // which hold all bytes
    same_letters(a.0, b.0) && same_letters(a.1, b.1)
}

/// Whether CGI and its successors (WSGI, PHP, Rack) map both names to one variable: they do not distinguish `-` from
/// `_`, nor upper from lower case (RFC 3875 §4.1.18).
pub(crate) fn reads_as(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| READ_AS[*a as usize] == READ_AS[*b as usize])
}

/// The byte that a byte of a name maps to in CGI.
static READ_AS: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = if i as u8 == b'_' { b'-' } else { (i as u8).to_ascii_lowercase() };
        i += 1;
    }
    table
};

/// A valid field name from a config or a program, stored as written and compared case-insensitively.
///
/// Everything that messages need to know about it is computed when it is created.
#[derive(Clone)]
pub struct FieldName {
    text: Box<str>,
    folded: (u64, u64),
    known: Known,
    underscore: bool,
    /// `folded` alone distinguishes it from every other token of its length.
    whole: bool,
}

/// The text is not a field name: it must be a token (RFC 9110 §5.6.2) of 1 to 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(pub String);

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a header name: expected letters, digits and -_.!#$%&'*+^`|~",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for InvalidName {}

impl FieldName {
    /// Validates a name.
    ///
    /// # Errors
    /// When `name` is not a token or is longer than 256 bytes.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let fits = (1..=256).contains(&name.len()) && name.bytes().all(is_token);
        if !fits {
            return Err(InvalidName(name.to_owned()));
        }
        let (known, underscore) = (Known::of(name.as_bytes()), name.contains('_'));
        let whole = (4..=16).contains(&name.len()) && !name.contains(['^', '~']); // they differ in the case bit
        Ok(Self { text: name.into(), folded: fold(name.as_bytes()), known, underscore, whole })
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a received name is this one.
    #[inline]
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        let bytes = self.text.as_bytes();
        bytes.len() == name.len()
            && self.folded == fold(name)
            && (self.whole || bytes.eq_ignore_ascii_case(name))
    }

    /// The known name it is, if the gateway acts on it.
    pub(crate) const fn known(&self) -> Known {
        self.known
    }

    /// Whether it contains a `_`.
    pub(crate) const fn has_underscore(&self) -> bool {
        self.underscore
    }
}

impl PartialEq for FieldName {
    fn eq(&self, other: &Self) -> bool {
        self.text.eq_ignore_ascii_case(&other.text)
    }
}

impl Eq for FieldName {}

impl fmt::Debug for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Names to look for together, in every spelling that CGI and WSGI treat as the same.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    names: Box<[FieldName]>,
    /// A bit per length modulo 64, which rules out most fields of a message.
    lengths: u64,
    underscore: bool,
    /// It has the name `*`.
    every: bool,
}

impl NameSet {
    /// The set of these names. `*` stands for names that are not known yet: of each, only the spelling with `-` is allowed.
    pub fn new(names: impl IntoIterator<Item = FieldName>) -> Self {
        let names: Box<[FieldName]> = names.into_iter().collect();
        let lengths = names.iter().fold(0, |bits, name| bits | Self::bit(name.as_str().len()));
        let underscore = names.iter().any(FieldName::has_underscore);
        let every = names.iter().any(|name| name.as_str() == "*");
        Self { names, lengths, underscore, every }
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &FieldName> {
        self.names.iter()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether one of these contains a `_`.
    pub(crate) const fn has_underscore(&self) -> bool {
        self.underscore
    }

    /// Whether a server may read `name` as one of these.
    pub fn reads(&self, name: &[u8]) -> bool {
        self.lengths & Self::bit(name.len()) != 0
            && self.names.iter().any(|n| reads_as(n.as_str().as_bytes(), name))
    }

    /// Whether `name` is an alternative spelling of one of these, but none of them itself.
    pub(crate) fn has_twin(&self, name: &[u8]) -> bool {
        (self.reads(name) || (self.every && name.contains(&b'_')))
            && !self.names.iter().any(|n| n.as_str().as_bytes().eq_ignore_ascii_case(name))
    }

    const fn bit(len: usize) -> u64 {
        1 << (len % 64)
    }
}

/// Whether a token may contain `b` (RFC 9110 §5.6.2).
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

    /// Every two bytes, in every place of a name.
    #[test]
    fn sought_names() {
        let base: Vec<u8> = (0..24).map(|at| b"x-Request"[at % 9]).collect();
        for length in 0..=base.len() {
            let mut received = base[..length].to_vec();
            let mut name = received.to_ascii_uppercase();
            assert!(same_name(&received, &name), "{length}");
            for at in 0..length {
                let before = (received[at], name[at]);
                for (a, b) in (0..=127).flat_map(|a| (0..=255).map(move |b| (a, b))) {
                    (received[at], name[at]) = (a, b);
                    assert_eq!(
                        same_name(&received, &name),
                        a.eq_ignore_ascii_case(&b),
                        "{length} {at} {a} {b}"
                    );
                }
                (received[at], name[at]) = before;
            }
            assert!(length == 0 || !same_name(&base[..length - 1], &name));
        }
    }

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
            ("X_Forwarded_Prefix", Known::Alias),
            ("x_forwarded-ssl", Known::Alias),
            ("X-Forwarded-Client_Cert", Known::Alias),
            ("X_Forwarded", Known::Alias),
            ("x_original_url", Known::Alias),
            ("X-Rewrite_URL", Known::Alias),
            ("X-Original-URL", Known::XOriginalUrl),
            ("x-rewrite-url", Known::XOriginalUrl),
            ("x_api_key", Known::Other),
            ("x-forwardedfor", Known::Other),
            ("x-forwarded-for", Known::XForwardedFor),
            ("x-forwarded-fox", Known::XForwardedOther),
            ("X-Scheme", Known::XForwardedOther),
            ("x-url-scheme", Known::XForwardedOther),
            ("x_url_scheme", Known::Alias),
            ("Front-End-Https", Known::XForwardedOther),
            ("front_end_https", Known::Alias),
            ("X-Envoy-Original-Path", Known::XForwardedOther),
            ("x_envoy_original-path", Known::Alias),
            ("X-Envoy-Original-Host", Known::XForwardedOther),
            ("x-envoy-original_host", Known::Alias),
            ("X-Envoy-Internal", Known::XForwardedOther),
            ("X_Envoy_Internal", Known::Alias),
            ("X-Envoy-External-Address", Known::XRealIp),
            ("X_Envoy_External_Address", Known::Alias),
            ("x_scheme", Known::Alias),
            ("X-Forwarded-Port", Known::XForwardedOther),
            ("x-forwarded-", Known::XForwardedOther),
            ("X-Forwarded", Known::XForwardedOther),
            ("", Known::Other),
        ] {
            assert_eq!(Known::of(name.as_bytes()), known, "{name}");
        }
    }

    #[test]
    fn a_name_with_one_other_byte_is_another() {
        for name in [
            "te",
            "date",
            "expect",
            "upgrade",
            "trailer",
            "refresh",
            "location",
            "forwarded",
            "connection",
            "keep-alive",
            "set-cookie",
            "content-length",
            "proxy-connection",
            "content-location",
            "transfer-encoding",
        ] {
            let known = Known::of(name.as_bytes());
            assert_ne!(known, Known::Other, "{name}");
            for at in 0..name.len() {
                for byte in
                    (0..=255).filter(|b| is_token(*b) && !b.eq_ignore_ascii_case(&name.as_bytes()[at]))
                {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    assert_ne!(Known::of(&other), known, "{}", other.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn names_of_a_config_are_found_in_any_case() {
        for name in ["a", "x^a~", "x-id", "x-api-key", "sixteen-bytes-it", "a-name-of-more-than-16"] {
            let of_config = FieldName::new(name).unwrap();
            assert!(of_config.is(name.as_bytes()) && of_config.is(name.to_ascii_uppercase().as_bytes()));
            assert!(!of_config.is(format!("{name}a").as_bytes()));
            for at in 0..name.len() {
                for byte in
                    (0..=255).filter(|b| is_token(*b) && !b.eq_ignore_ascii_case(&name.as_bytes()[at]))
                {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    assert!(!of_config.is(&other), "{}", other.escape_ascii());
                }
            }
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
