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
    short: Vec<(u8, u8)>,
    /// For each length: the first code, the number of codes, and the index of their first symbol.
    lengths: [(u32, u32, u32); 31],
    symbols: Vec<u8>,
}

fn code() -> &'static Code {
    static CODE: OnceLock<Code> = OnceLock::new();
    CODE.get_or_init(|| {
        let short = vec![(0, 0); 1 << SHORT];
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

/// Appends the decoded text; `None` if a code is unknown, or the padding is longer than seven bits or not all ones.
///
/// Every symbol takes at least five bits, so it appends at most 8/5 of the bytes of `packed`.
pub fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let code = code();
    let (mut bits, mut held) = (0u64, 0u32);
    let mut bytes = packed.iter();
    out.reserve(packed.len() * 8 / 5);
    loop {
        while held <= 56 {
            let Some(byte) = bytes.next() else { break };
            bits = bits << 8 | u64::from(*byte);
            held += 8;
        }
        // Past the end, assume ones, as in the padding.
        let ahead = match held.checked_sub(SHORT) {
            Some(more) => bits >> more,
            None => bits << (SHORT - held) | ((1 << (SHORT - held)) - 1),
        };
        let (symbol, len) = code.short[ahead as usize & ((1 << SHORT) - 1)];
        if len > 0 && u32::from(len) <= held {
            out.push(symbol);
            held -= u32::from(len);
            continue;
        }
        let found = (SHORT + 1..=30.min(held)).find_map(|len| {
            let (first, count, at) = code.lengths[len as usize];
            let have = (bits >> (held - len)) as u32 & ((1u32 << len) - 1);
            let nth = have.checked_sub(first).filter(|n| *n < count)?;
            Some((len, *code.symbols.get((at + nth) as usize)?))
        });
        match found {
            Some((len, symbol)) => {
                out.push(symbol);
                held -= len;
            }
            // RFC 7541 §5.2: padding is the first bits of the end-of-string code, which are ones.
            None => return (held < 8 && bits & ((1 << held) - 1) == (1 << held) - 1).then_some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back() {
        let code = code();
        let mut of_symbol = vec![(0u32, 0u32); 256];
        for (len, &(first, count, at)) in code.lengths.iter().enumerate() {
            for n in 0..count {
                of_symbol[usize::from(code.symbols[(at + n) as usize])] = (first + n, len as u32);
            }
        }
        for text in [(0..=255u8).collect::<Vec<u8>>(), b"/index.html?a=b".to_vec(), vec![0xff; 9], Vec::new()]
        {
            let (mut packed, mut bits, mut held) = (Vec::new(), 0u64, 0);
            for &symbol in &text {
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
            let mut out = Vec::new();
            assert_eq!(unpack(&packed, &mut out), Some(()));
            assert_eq!(out, text);
            packed.push(0xff);
            assert_eq!(unpack(&packed, &mut Vec::new()), None, "eight bits of padding");
        }
    }
}
