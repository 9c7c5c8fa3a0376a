//! W3C Trace Context as bytes: `traceparent` and `tracestate` (Recommendation of 23 November 2021).
//!
//! Callers are hostile: anything malformed counts as absent, and a new trace begins.

/// The content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    /// The trace, never zero.
    pub(crate) trace: u128,
    /// The span that the caller opened for this call, never zero.
    pub(crate) span: u64,
    pub(crate) sampled: bool,
}

/// The length of a version 00 `traceparent`.
const LENGTH: usize = 55;

/// The positions of the dashes between a `traceparent`'s version, trace, span and flags.
const DASHES: [usize; 3] = [2, 35, 52];

/// Most members of a `tracestate` (§3.3.1.1).
const MEMBERS: usize = 32;

/// The longest `tracestate` that is passed on. At least 512 characters must be (§3.3.1.5); this is what others allow.
const STATE_BYTES: usize = 8 * 1024;

impl Parent {
    /// Reads a `traceparent` (§3.2); `None` if it is malformed. Of an unknown version, the fields of 00 are read, as
    /// §4.3 requires.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        if DASHES.iter().any(|&at| known.get(at) != Some(&b'-')) {
            return None;
        }
        let version = hex(known.get(..2)?)?;
        let behind = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more.starts_with(b"-"),
        };
        let trace = hex(known.get(3..35)?)?;
        let span = u64::try_from(hex(known.get(36..52)?)?).ok()?;
        let flags = hex(known.get(53..55)?)?;
        (behind && trace != 0 && span != 0).then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }

    /// The form in which it is sent on.
    pub(crate) fn write(&self) -> [u8; LENGTH] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        digits(&mut text[3..35], self.trace);
        digits(&mut text[36..52], self.span.into());
        text[54] = b'0' + u8::from(self.sampled);
        text
    }
}

/// The trace's and the span's digits in a `traceparent` written by [`Parent::write`].
pub(crate) fn ids(traceparent: &[u8]) -> Option<(&[u8], &[u8])> {
    Some((traceparent.get(3..35)?, traceparent.get(36..52)?))
}

/// The last digits of an id, two per byte of `out`.
pub(crate) fn digits(out: &mut [u8], value: u128) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = value.to_be_bytes();
    let last = bytes.len().saturating_sub(out.len() / 2);
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes.iter().skip(last)) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
}

/// Lowercase digits only: uppercase is malformed (§3.2.2).
pub(super) fn hex(text: &[u8]) -> Option<u128> {
    text.iter().try_fold(0u128, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

/// Whether `tracestate` fields may be passed on: at most 32 members in total, each a key and a value, no key twice
/// (§3.3.1).
pub(crate) fn is_state<'a>(fields: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut left = STATE_BYTES;
    for field in fields {
        let Some(rest) = left.checked_sub(field.len()) else { return false };
        left = rest;
        for member in field.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
        {
            let Some(equals) = member.iter().position(|&b| b == b'=') else { return false };
            let (key, value) =
                (member.get(..equals).unwrap_or_default(), member.get(equals + 1..).unwrap_or_default());
            if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == MEMBERS {
                return false;
            }
            keys.push(key);
        }
    }
    true
}

/// §3.3.1.3.1: `name`, or `tenant@system`.
fn is_key(key: &[u8]) -> bool {
    let fits = |text: &[u8], longest: usize, digit_first: bool| {
        let first =
            text.first().is_some_and(|b| b.is_ascii_lowercase() || (digit_first && b.is_ascii_digit()));
        let rest = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-*/".contains(b);
        first && text.len() <= longest && text.iter().all(rest)
    };
    match key.iter().position(|&b| b == b'@') {
        None => fits(key, 256, true),
        Some(at) => {
            fits(key.get(..at).unwrap_or_default(), 241, true)
                && fits(key.get(at + 1..).unwrap_or_default(), 14, false)
        }
    }
}

/// §3.3.1.3.2: printable characters but comma and equals, at most 256.
fn is_value(value: &[u8]) -> bool {
    let allowed = |b: &u8| (0x20..0x7f).contains(b) && !b",=".contains(b);
    (1..=256).contains(&value.len()) && value.iter().all(allowed) && value.last() != Some(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparents() {
        let good = Parent {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span: 0x00f0_67aa_0ba9_02b7,
            sampled: true,
        };
        assert_eq!(Parent::parse(GOOD.as_bytes()), Some(good));
        assert_eq!(good.write(), GOOD.as_bytes());
        let other = |from: &str, to: &str| Parent::parse(GOOD.replacen(from, to, 1).as_bytes());
        assert_eq!(other("-01", "-00"), Some(Parent { sampled: false, ..good }));
        assert_eq!(other("-01", "-03"), Some(good)); // an unknown flag
        assert_eq!(other("00-", "cc-"), Some(good)); // an unknown version
        assert_eq!(Parent::parse(format!("cc{}-more", &GOOD[2..]).as_bytes()), Some(good));
        for bad in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-more"),
            &format!("{GOOD} "),
            &format!("cc{}.more", &GOOD[2..]),
            &format!("ff{}", &GOOD[2..]),
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace("4bf", "4bg"),
        ] {
            assert_eq!(Parent::parse(bad.as_bytes()), None, "{bad}");
        }
        for end in 0..GOOD.len() {
            assert_eq!(Parent::parse(&GOOD.as_bytes()[..end]), None);
        }
    }

    #[test]
    fn tracestates() {
        let is = |fields: &[&str]| is_state(fields.iter().map(|field| field.as_bytes()));
        let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
        assert!(is(&[]));
        assert!(is(&["congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"]));
        assert!(is(&["a=1 , ,b=2", "0t_-*/@sys=x y"]));
        assert!(is(&[&many[..32].join(",")]));
        for bad in ["a", "a=", "A=1", "a=1,a=2", "a==1", "a=b=c", "@b=1", "a@0b=1", "a=\u{e9}", "=1"] {
            assert!(!is(&[bad]), "{bad}");
        }
        assert!(!is(&["a=1", "a=2"]));
        assert!(!is(&[&many.join(",")]));
        assert!(!is(&[&format!("a={}", "x".repeat(257))]));
        assert!(!is(&[&format!("{}=x", "a".repeat(257))]));
        assert!(!is(&[&",".repeat(STATE_BYTES + 1)]));
    }
}
