//! Which values the gateway may emit.

use crate::name::ends;
use std::fmt;

/// A value that must not be emitted: it contains CR, LF, NUL or another control byte (RFC 9110 §5.5), or exceeds
/// 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidValue;

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header value may not hold control bytes or be longer than 64 KiB")
    }
}

impl std::error::Error for InvalidValue {}

/// Longest value a filter may set, in bytes.
pub(crate) const VALUE_BYTES: usize = 64 * 1024;

/// RFC 9110 §5.5, checked for every value that is made, not only for parsed ones.
#[inline]
pub(super) fn check(value: &[u8]) -> Result<(), InvalidValue> {
    // Two words hold all of a short value.
    if let (8..=16, (first, last)) = (value.len(), ends(value))
        && !may_hold_control(first)
        && !may_hold_control(last)
    {
        return Ok(());
    }
    check_bytes(value)
}

#[inline(never)]
fn check_bytes(value: &[u8]) -> Result<(), InvalidValue> {
    // Without an early exit, the compiler checks sixteen bytes at a time; invalid values are rare.
    let bad = value.iter().fold(false, |bad, &b| bad | ((b < 0x20) & (b != b'\t')) | (b == 0x7f));
    if bad || value.len() > VALUE_BYTES { Err(InvalidValue) } else { Ok(()) }
}

/// Whether one of eight bytes is a control byte. Tabs, which are allowed, count too.
#[inline]
const fn may_hold_control(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = (word ^ (ONES * 0x7f)).wrapping_sub(ONES) & !(word ^ (ONES * 0x7f));
    (below_space | delete) & HIGH != 0
}
