//! The Huffman code of HPACK and QPACK (RFC 7541 §5.2 and Appendix B). Decodes nine bits at a time, since most symbols
//! are no longer.

use std::sync::OnceLock;

/// The code length of each symbol in the Huffman code (RFC 7541, Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// Bits per table lookup.
const SHORT: u32 = 9;

/// The code, by length. It is canonical: codes of one length follow each other in the order of their symbols, so the
/// lengths define it completely.
#[derive(Debug)]
struct Code {
    /// For each prefix of [`SHORT`] bits: its first symbol and the length of that code; zero if the code is longer.
    short: [(u8, u8); 1 << SHORT],
    /// For each length: the first code, the number of codes, and the index of their first symbol.
    lengths: [(u32, u32, u32); 31],
    symbols: Vec<u8>,
}

fn code() -> &'static Code {
    static CODE: OnceLock<Code> = OnceLock::new();
    CODE.get_or_init(|| {
        let short = [(0, 0); 1 << SHORT];
        let mut code = Code { short, lengths: [(0, 0, 0); 31], symbols: Vec::with_capacity(256) };
        let mut next = 0u32;
        for len in 1..=30u32 {
            next <<= 1;
            let (first, before) = (next, code.symbols.len());
            for symbol in (0..=255u8).filter(|s| u32::from(LENGTHS[usize::from(*s)]) == len) {
                if let Some(more) = SHORT.checked_sub(len) {
                    let at = (next << more) as usize;
                    code.short[at..at + (1 << more)].fill((symbol, len as u8));
                }
                code.symbols.push(symbol);
                next += 1;
            }
            code.lengths[len as usize] = (first, next - first, before as u32);
        }
        code
    })
}

impl Code {
    /// The code of more than [`SHORT`] bits at the start of `bits`, of which the upper `held` count: its length and its
    /// symbol.
    fn long(&self, bits: u64, held: u32) -> Option<(u32, u8)> {
        (SHORT + 1..=30.min(held)).find_map(|len| {
            let (first, count, at) = self.lengths[len as usize];
            let have = (bits >> (64 - len)) as u32;
            let nth = have.checked_sub(first).filter(|n| *n < count)?;
            Some((len, *self.symbols.get((at + nth) as usize)?))
        })
    }
}

/// Symbols decoded per look at eight bytes. An unaligned look shows at least 57 bits.
const AT_ONCE: usize = 57 / SHORT as usize;

/// Appends the decoded text; `None` if a code is unknown, or the padding is longer than seven bits or not all ones.
///
/// Every symbol takes at least five bits, so it appends at most 8/5 of the bytes of `packed`.
pub fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let code = code();
    out.reserve(packed.len() * 8 / 5 + AT_ONCE);
    // How many bits are decoded.
    let mut at = 0;
    while let Some(eight) = packed.get(at / 8..).and_then(|rest| rest.first_chunk()) {
        let mut bits = u64::from_be_bytes(*eight) << (at % 8);
        let (mut symbols, mut count) = ([0; AT_ONCE], 0);
        while let Some(place) = symbols.get_mut(count) {
            let (symbol, len) = code.short[(bits >> (64 - SHORT)) as usize];
            if len == 0 {
                break;
            }
            *place = symbol;
            bits <<= len;
            at += usize::from(len);
            count += 1;
        }
        if count == 0 {
            let (len, symbol) = code.long(bits, 30)?;
            (symbols[0], count) = (symbol, 1);
            at += len as usize;
        }
        // All of them, as their number is known when this is compiled, and then no more than were decoded.
        out.extend_from_slice(&symbols);
        out.truncate(out.len() - AT_ONCE + count);
    }
    // Fewer than eight bytes are left: `held` bits, followed by ones as in the padding.
    let rest = packed.get(at / 8..)?;
    let mut held = (8 * packed.len() - at) as u32;
    let mut bits =
        rest.iter().rev().fold(u64::MAX, |bits, byte| u64::from(*byte) << 56 | bits >> 8) << (at % 8);
    bits |= !(u64::MAX << (at % 8));
    loop {
        let (symbol, len) = code.short[(bits >> (64 - SHORT)) as usize];
        let short = Some((u32::from(len), symbol)).filter(|(len, _)| (1..=held).contains(len));
        match short.or_else(|| code.long(bits, held)) {
            Some((len, symbol)) => {
                out.push(symbol);
                held -= len;
                bits = !(!bits << len); // ones come in
            }
            // RFC 7541 §5.2: padding is the first bits of the end-of-string code, which are ones.
            None => return (held < 8 && bits == u64::MAX).then_some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The code of each symbol and its length.
    fn of_symbol() -> Vec<(u32, u32)> {
        let code = code();
        let mut of_symbol = vec![(0u32, 0u32); 256];
        for (len, &(first, count, at)) in code.lengths.iter().enumerate() {
            for n in 0..count {
                of_symbol[usize::from(code.symbols[(at + n) as usize])] = (first + n, len as u32);
            }
        }
        of_symbol
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let of_symbol = of_symbol();
        let (mut packed, mut bits, mut held) = (Vec::new(), 0u64, 0);
        for &symbol in text {
            let (code, len) = of_symbol[usize::from(symbol)];
            (bits, held) = (bits << len | u64::from(code), held + len);
            while held >= 8 {
                packed.push((bits >> (held - 8)) as u8);
                held -= 8;
            }
        }
        if held > 0 {
            packed.push((bits << (8 - held)) as u8 | (0xff >> held));
        }
        packed
    }

    /// Decodes bit by bit, by the definition.
    fn plainly(packed: &[u8]) -> Option<Vec<u8>> {
        let symbols: HashMap<(u32, u32), u8> = of_symbol().into_iter().zip(0..=255).collect();
        let (mut out, mut code, mut len) = (Vec::new(), 0, 0);
        for bit in packed.iter().flat_map(|byte| (0..8).rev().map(move |n| u32::from(byte >> n & 1))) {
            (code, len) = (code << 1 | bit, len + 1);
            if let Some(symbol) = symbols.get(&(code, len)) {
                out.push(*symbol);
                (code, len) = (0, 0);
            } else if len == 30 {
                return None;
            }
        }
        (len < 8 && code == (1 << len) - 1).then_some(out)
    }

    fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        unpack(packed, &mut out).map(|()| out)
    }

    #[test]
    fn every_text_comes_back() {
        let long = b"Mon, 29 Nov 2026 12:00:00 GMT \x01 text/html; charset=utf-8".to_vec();
        let all: Vec<u8> = (0..=255u8).collect();
        for text in [all, b"/index.html?a=b".to_vec(), vec![0xff; 9], Vec::new(), long] {
            for from in 0..text.len().min(20) {
                let text = &text[from..];
                let mut packed = packed(text);
                assert_eq!(unpacked(&packed).as_deref(), Some(text));
                packed.push(0xff);
                assert_eq!(unpacked(&packed), None, "eight bits of padding");
            }
        }
    }

    #[test]
    fn whatever_comes_is_decoded_as_defined() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut good = 0;
        for n in 0..4_000 {
            let text: Vec<u8> = (0..random.usize(..40))
                .map(|_| if n % 3 == 0 { random.u8(..) } else { random.u8(b' '..b'~') })
                .collect();
            let mut packed = packed(&text);
            match n % 4 {
                0 => packed = (0..random.usize(..20)).map(|_| random.u8(..) | random.u8(..)).collect(),
                1 if !packed.is_empty() => {
                    let at = random.usize(..packed.len());
                    packed[at] ^= 1 << random.u8(..8);
                }
                2 => packed.truncate(random.usize(..=packed.len())),
                _ => {}
            }
            let want = plainly(&packed);
            good += usize::from(want.is_some());
            assert_eq!(unpacked(&packed), want, "{packed:x?}");
        }
        assert!((1_000..3_900).contains(&good), "{good}: the test has lost its point");
    }
}
