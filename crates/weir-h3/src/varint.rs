//! Variable-length integers of QUIC (RFC 9000 §16), which frames and settings consist of.

/// The largest integer.
pub const MOST: u64 = (1 << 62) - 1;

/// Most bytes of an integer.
pub const LONGEST: usize = 8;

/// The integer at the start of `bytes`, and its length; `None` if bytes are missing.
#[inline]
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1usize << (first >> 6);
    let rest = bytes.get(1..len)?;
    let high = u64::from(first & 0x3f);
    Some((rest.iter().fold(high, |n, byte| n << 8 | u64::from(*byte)), len))
}

/// Appends an integer in its shortest form. Anything above [`MOST`] cannot be expressed and becomes [`MOST`].
pub fn write(n: u64, out: &mut Vec<u8>) {
    match n {
        0..=0x3f => out.push(n as u8),
        0x40..=0x3fff => out.extend_from_slice(&(n as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend_from_slice(&(n as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(n.min(MOST) | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_rfc_9000_appendix_a() {
        for (bytes, n) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(read(bytes), Some((n, bytes.len())));
            assert_eq!(read(&bytes[..bytes.len() - 1]), None);
            let mut out = Vec::new();
            write(n, &mut out);
            assert_eq!(out, bytes);
        }
        assert_eq!(read(&[0x40, 0x25]), Some((37, 2)), "longer than necessary, but valid");
        for n in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MOST] {
            let mut out = Vec::new();
            write(n, &mut out);
            assert_eq!(read(&out), Some((n, out.len())));
        }
    }
}
