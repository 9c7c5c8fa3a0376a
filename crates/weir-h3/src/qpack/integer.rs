//! Integers and strings of QPACK (RFC 9204 §4.1): those of HPACK, with up to 62 bits and a prefix of any length.

use weir_fields::huffman;

/// The largest integer that a decoder must accept (RFC 9204 §4.1.1).
const MOST: u64 = (1 << 62) - 1;

/// Appends an integer. `first` has the bits before the prefix.
pub(super) fn write(mut n: u64, prefix: u32, first: u8, out: &mut Vec<u8>) {
    let most = (1 << prefix) - 1;
    if n < most {
        out.push(first | n as u8);
        return;
    }
    out.push(first | most as u8);
    n -= most;
    while n >= 128 {
        out.push((n & 127) as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a string without Huffman coding: the flag for it is the bit above the prefix. Like HPACK's encoder, ours
/// does not spend time on a fifth fewer bytes.
pub(super) fn write_text(text: &[u8], prefix: u32, first: u8, out: &mut Vec<u8>) {
    write(text.len() as u64, prefix, first, out);
    out.extend_from_slice(text);
}

/// Takes an integer; `Ok(None)` if more bytes are needed.
///
/// # Errors
/// When the integer has more than 62 bits.
#[inline]
pub(super) fn read(rest: &mut &[u8], prefix: u32) -> Result<Option<u64>, &'static str> {
    let Some((&first, others)) = rest.split_first() else { return Ok(None) };
    let most = (1u64 << prefix) - 1;
    let n = u64::from(first) & most;
    if n < most {
        *rest = others;
        return Ok(Some(n));
    }
    read_long(rest, others, n)
}

fn read_long(rest: &mut &[u8], others: &[u8], mut n: u64) -> Result<Option<u64>, &'static str> {
    const TOO_LARGE: &str = "an integer of more than 62 bits";
    for (at, &byte) in others.iter().enumerate() {
        // Nine bytes carry 63 bits; a tenth could only be an encoding of zeros.
        if at == 9 {
            return Err(TOO_LARGE);
        }
        n += u64::from(byte & 127) << (7 * at);
        if n > MOST {
            return Err(TOO_LARGE);
        }
        if byte & 128 == 0 {
            *rest = rest.get(at + 2..).unwrap_or_default();
            return Ok(Some(n));
        }
    }
    if others.len() >= 9 { Err(TOO_LARGE) } else { Ok(None) }
}

/// A string as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    bytes: &'a [u8],
    is_packed: bool,
}

impl<'a> Text<'a> {
    /// Takes a string of at most `most` bytes; `Ok(None)` if more bytes are needed.
    ///
    /// # Errors
    /// When it is longer.
    pub(super) fn read(rest: &mut &'a [u8], prefix: u32, most: usize) -> Result<Option<Self>, &'static str> {
        let Some(&first) = rest.first() else { return Ok(None) };
        let mut after = *rest;
        let Some(len) = read(&mut after, prefix)? else { return Ok(None) };
        let is_packed = first & (1 << prefix) != 0;
        // A symbol of the Huffman code has at most 30 bits.
        let most = if is_packed { most.saturating_mul(4) } else { most };
        let len = usize::try_from(len).ok().filter(|len| *len <= most).ok_or("a string that is too long")?;
        let Some((bytes, others)) = after.split_at_checked(len) else { return Ok(None) };
        *rest = others;
        Ok(Some(Self { bytes, is_packed }))
    }

    /// The text; `room` takes it if it is Huffman-coded.
    ///
    /// # Errors
    /// When it is no valid Huffman code.
    #[inline]
    pub(super) fn unpack<'b>(self, room: &'b mut Vec<u8>) -> Result<&'b [u8], &'static str>
    where
        'a: 'b,
    {
        if !self.is_packed {
            return Ok(self.bytes);
        }
        room.clear();
        huffman::unpack(self.bytes, room).ok_or("a string that is no Huffman code")?;
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back_and_need_all_their_bytes() {
        let examples = [0, 1, 6, 7, 30, 31, 62, 63, 127, 128, 1337, 1 << 20, u64::from(u32::MAX), MOST];
        for n in examples {
            for prefix in 3..=8 {
                let mut out = Vec::new();
                write(n, prefix, 0, &mut out);
                for cut in 0..out.len() {
                    let mut rest = &out[..cut];
                    assert_eq!(read(&mut rest, prefix), Ok(None), "{n} with {cut} bytes");
                    assert_eq!(rest.len(), cut, "an incomplete integer takes nothing");
                }
                out.push(7);
                let mut rest = &out[..];
                assert_eq!(read(&mut rest, prefix), Ok(Some(n)));
                assert_eq!(rest, [7]);
            }
        }
    }

    #[test]
    fn integers_beyond_62_bits_are_refused() {
        let mut out = Vec::new();
        write(MOST + 1, 5, 0, &mut out);
        assert!(read(&mut &out[..], 5).is_err());
        assert!(read(&mut &[0x1f, 255, 255, 255, 255, 255, 255, 255, 255, 255][..], 5).is_err());
        assert!(read(&mut &[0x1f, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0][..], 5).is_err());
        // Not the shortest form, but valid (RFC 7541 §5.1).
        assert_eq!(read(&mut &[0x1f, 128, 128, 0][..], 5), Ok(Some(31)));
    }
}
