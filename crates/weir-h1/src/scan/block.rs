//! Classes of bytes, sixteen at a time: bit `i` of the result stands for byte `i` of the block.
//!
//! With SSE2, which every x86-64 processor has; elsewhere in two general-purpose registers. Heads with long values (a
//! token, a signature) take 4,050 instructions of parsing instead of 4,560 with eight bytes at a time (bench/count.py,
//! filter-none, the names of [`Known`](crate::Known) included). For the shortest heads it hardly matters.

/// As many bytes as a register of SSE2 holds.
pub(super) type Block = [u8; 16];

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{controls, dots, no_host, no_part, no_word};
#[cfg(target_arch = "x86_64")]
pub(super) use sse2::{controls, dots, no_host, no_part, no_word};

#[cfg(target_arch = "x86_64")]
mod sse2 {
    #![allow(unsafe_code)] // the processor's own instructions

    use super::Block;
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8,
        _mm_or_si128, _mm_set1_epi8, _mm_sub_epi8,
    };

    /// Control bytes, the tab among them.
    #[inline]
    pub(crate) fn controls(block: &Block) -> u32 {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe {
            let bytes = load(block);
            let is_low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
            marks(_mm_or_si128(is_low, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f))))
        }
    }

    /// Dots.
    #[inline]
    pub(crate) fn dots(block: &Block) -> u32 {
        // SAFETY: as above.
        unsafe { marks(_mm_cmpeq_epi8(load(block), _mm_set1_epi8(b'.' as i8))) }
    }

    /// Bytes that are neither a letter nor a hyphen.
    #[inline]
    pub(crate) fn no_word(block: &Block) -> u32 {
        // SAFETY: as above.
        unsafe {
            let bytes = load(block);
            let is_hyphen = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'-' as i8));
            marks(_mm_or_si128(is_letter(bytes), is_hyphen)) ^ ALL
        }
    }

    /// Bytes that are none of a host's name: a letter, a digit, or one of `-._~`.
    #[inline]
    pub(crate) fn no_host(block: &Block) -> u32 {
        // SAFETY: as above.
        unsafe {
            let bytes = load(block);
            let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8));
            let is_digit = is_among(bytes, b'0', 9);
            let is_other = _mm_or_si128(is_among(bytes, b'-', 1), _mm_or_si128(is(b'_'), is(b'~')));
            marks(_mm_or_si128(_mm_or_si128(is_letter(bytes), is_digit), is_other)) ^ ALL
        }
    }

    /// Bytes that no target contains, and `?`.
    #[inline]
    pub(crate) fn no_part(block: &Block) -> u32 {
        // SAFETY: as above.
        unsafe {
            let bytes = load(block);
            let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8));
            let is_outside = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x21)); // signed: 0x80 and above are below 0
            let is_mark = _mm_or_si128(is(b'?'), is(b'#'));
            marks(_mm_or_si128(_mm_or_si128(is_outside, is_mark), is(0x7f)))
        }
    }

    /// All bytes of a block.
    const ALL: u32 = 0xffff;

    #[inline]
    unsafe fn is_letter(bytes: __m128i) -> __m128i {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { is_among(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), b'a', b'z' - b'a') }
    }

    /// Bytes from this one to the one that many places behind it.
    #[inline]
    unsafe fn is_among(bytes: __m128i, first: u8, further: u8) -> __m128i {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe {
            let place = _mm_sub_epi8(bytes, _mm_set1_epi8(first as i8));
            _mm_cmpeq_epi8(_mm_min_epu8(place, _mm_set1_epi8(further as i8)), place)
        }
    }

    #[inline]
    unsafe fn load(block: &Block) -> __m128i {
        // SAFETY: a block has as many bytes as are read.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    #[inline]
    unsafe fn marks(found: __m128i) -> u32 {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { _mm_movemask_epi8(found) as u32 }
    }
}

/// The same in general-purpose registers. No sum or difference carries into another byte.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use super::Block;

    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 0x80;

    pub(crate) fn controls(block: &Block) -> u32 {
        marks(block, |word, low| !(low + ONES * 0x60) & !word | is(low, 0x7f) & !word)
    }

    pub(crate) fn dots(block: &Block) -> u32 {
        marks(block, |word, low| is(low, b'.') & !word)
    }

    pub(crate) fn no_word(block: &Block) -> u32 {
        marks(block, |word, low| !((is_letter(low) | is(low, b'-')) & !word))
    }

    pub(crate) fn no_host(block: &Block) -> u32 {
        marks(block, |word, low| {
            let is_other = is_among(low, b'-', b'.') | is(low, b'_') | is(low, b'~');
            !((is_letter(low) | is_among(low, b'0', b'9') | is_other) & !word)
        })
    }

    pub(crate) fn no_part(block: &Block) -> u32 {
        marks(block, |word, low| {
            !(low + ONES * (0x80 - 0x21)) | word | is(low, b'?') | is(low, b'#') | is(low, 0x7f)
        })
    }

    const fn is_letter(low: u64) -> u64 {
        is_among(low | (ONES * 0x20), b'a', b'z')
    }

    /// Sets the high bit of each byte from the first to the last. `low` is without high bits.
    const fn is_among(low: u64, first: u8, last: u8) -> u64 {
        let from_first = low + ONES * (0x80 - first as u64);
        let beyond_last = low + ONES * (0x7f - last as u64);
        from_first & !beyond_last
    }

    /// Sets the high bit of each byte that is this one. `low` is without high bits.
    const fn is(low: u64, byte: u8) -> u64 {
        HIGHS - (low ^ (ONES * byte as u64))
    }

    /// Collects the high bits that `class` sets, given a word and the same without high bits.
    fn marks(block: &Block, class: impl Fn(u64, u64) -> u64) -> u32 {
        let [first, second] = [0, 8].map(|at| {
            let word = block.iter().skip(at).take(8).rev().fold(0, |word, b| word << 8 | u64::from(*b));
            let high = class(word, word & !HIGHS) & HIGHS;
            ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
        });
        first | second << 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{is_host, is_target};

    #[test]
    fn each_byte_has_its_class_in_each_place() {
        /// With the processor's instructions, portable, and by the byte.
        type Class = (fn(&Block) -> u32, fn(&Block) -> u32, fn(u8) -> bool);
        let classes: [Class; 5] = [
            (controls, portable::controls, |b| b < 0x20 || b == 0x7f),
            (dots, portable::dots, |b| b == b'.'),
            (no_host, portable::no_host, |b| !is_host(b)),
            (no_word, portable::no_word, |b| !b.is_ascii_alphabetic() && b != b'-'),
            (no_part, portable::no_part, |b| !is_target(b) || b == b'?'),
        ];
        for (ours, portable, class) in classes {
            for byte in 0..=255 {
                for place in 0..16 {
                    for around in [b'a', 0, 0xff, b'?'] {
                        let mut block = [around; 16];
                        block[place] = byte;
                        let expected =
                            block.iter().rev().fold(0, |marks, b| marks << 1 | u32::from(class(*b)));
                        assert_eq!(ours(&block), expected, "{block:?}");
                        assert_eq!(portable(&block), expected, "{block:?}");
                    }
                }
            }
        }
    }
}
