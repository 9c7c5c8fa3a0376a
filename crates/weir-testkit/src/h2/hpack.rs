//! HPACK (RFC 7541): an encoder that needs no table, for sending, and a complete decoder for receiving. The decoder
//! insists on the table size updates that our SETTINGS call for.

use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;

/// Encodes fields as literals without indexing: no table, no Huffman code, any bytes.
pub(super) fn encode<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            write_integer(text.len(), &mut out);
            out.extend_from_slice(text);
        }
    }
    out
}

/// Encodes a length with a seven-bit prefix.
fn write_integer(mut n: usize, out: &mut Vec<u8>) {
    if n < 127 {
        out.push(n as u8);
        return;
    }
    out.push(127);
    n -= 127;
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Decoder state that persists between blocks.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The dynamic table, newest entry first.
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Size limit of the table in bytes, chosen by the peer's encoder.
    most: usize,
    /// The largest limit that our SETTINGS allow (RFC 7541 §4.2).
    allowed: usize,
    /// The smallest value of `allowed` since the last block.
    lowest: usize,
    /// The next block must begin with an update (RFC 9113 §4.3.1).
    is_owed: bool,
    /// The names of never-indexed literals in the last block (RFC 7541 §6.2.3).
    pub(super) never_indexed: Vec<Vec<u8>>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            most: 4096,
            allowed: 4096,
            lowest: 4096,
            is_owed: false,
            never_indexed: Vec::new(),
        }
    }
}

impl Decoder {
    /// The peer has acknowledged SETTINGS with this table size.
    pub(super) fn allow(&mut self, size: usize) {
        self.is_owed |= size < self.allowed;
        self.lowest = self.lowest.min(size);
        self.allowed = size;
    }

    /// Decodes the fields of a block; `None` if it is malformed.
    pub(super) fn decode(&mut self, block: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut rest = block;
        self.resize(&mut rest)?;
        self.never_indexed.clear();
        let mut fields = Vec::new();
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = read_integer(&mut rest, 7)?;
                fields.push(self.entry(index)?);
                continue;
            }
            if is_update(first) {
                return None; // not at the start
            }
            let indexed = first & 0x40 != 0;
            let index = read_integer(&mut rest, if indexed { 6 } else { 4 })?;
            let name = if index == 0 { read_text(&mut rest)? } else { self.entry(index)?.0 };
            let field = (name, read_text(&mut rest)?);
            if first & 0xf0 == 0x10 {
                self.never_indexed.push(field.0.clone());
            }
            if indexed {
                self.shrink(self.most.saturating_sub(size(&field)));
                if size(&field) <= self.most {
                    self.table.push_front(field.clone());
                }
            }
            fields.push(field);
        }
        Some(fields)
    }

    /// Reads the updates at the start of a block: at most two, the first of them for the smallest size that was
    /// allowed since the last block.
    fn resize(&mut self, rest: &mut &[u8]) -> Option<()> {
        let mut count = 0;
        while rest.first().is_some_and(|first| is_update(*first)) {
            let most = if count == 0 { self.lowest } else { self.allowed };
            self.most = read_integer(rest, 5).filter(|size| *size <= most)?;
            self.shrink(self.most);
            count += 1;
        }
        let is_owed = std::mem::take(&mut self.is_owed);
        self.lowest = self.allowed;
        (count <= 2 && !(is_owed && count == 0)).then_some(())
    }

    fn entry(&self, index: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let index = index.checked_sub(1)?;
        match STATIC.get(index) {
            Some((name, value)) => Some((name.as_bytes().to_vec(), value.as_bytes().to_vec())),
            None => self.table.get(index - STATIC.len()).cloned(),
        }
    }

    fn shrink(&mut self, most: usize) {
        while self.table.iter().map(size).sum::<usize>() > most {
            self.table.pop_back();
        }
    }
}

/// Whether a dynamic table size update begins with this byte.
const fn is_update(first: u8) -> bool {
    first & 0xe0 == 0x20
}

fn size((name, value): &(Vec<u8>, Vec<u8>)) -> usize {
    name.len() + value.len() + 32
}

fn read_integer(rest: &mut &[u8], prefix: u32) -> Option<usize> {
    let mut next = || {
        let (&first, others) = rest.split_first()?;
        *rest = others;
        Some(usize::from(first))
    };
    let most = (1 << prefix) - 1;
    let mut n = next()? & most;
    if n < most {
        return Some(n);
    }
    for shift in (0..28).step_by(7) {
        let byte = next()?;
        n += (byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(n);
        }
    }
    None
}

fn read_text(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let huffman = rest.first()? & 128 != 0;
    let len = read_integer(rest, 7)?;
    let (text, others) = rest.split_at_checked(len)?;
    *rest = others;
    if huffman { unpack(text) } else { Some(text.to_vec()) }
}

/// Decodes Huffman-coded text. The code is canonical: codes of equal length are consecutive in the order of their
/// symbols, so the lengths define it completely.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let (mut code, mut len) = (0u32, 0u8);
    for bit in packed.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1))) {
        (code, len) = (code << 1 | bit, len + 1);
        if let Some(symbol) = symbol(code, len) {
            text.push(symbol);
            (code, len) = (0, 0);
        }
    }
    // The padding is fewer than eight bits, all ones.
    (len < 8 && code + 1 == 1 << len).then_some(text)
}

fn symbol(code: u32, len: u8) -> Option<u8> {
    static SYMBOLS: OnceLock<HashMap<(u32, u8), u8>> = OnceLock::new();
    let symbols = SYMBOLS.get_or_init(|| {
        let mut symbols = HashMap::new();
        let mut code = 0;
        for len in 1..=30 {
            code <<= 1;
            for symbol in (0..=255u8).filter(|&symbol| LENGTHS[usize::from(symbol)] == len) {
                symbols.insert((code, len), symbol);
                code += 1;
            }
        }
        symbols
    });
    symbols.get(&(code, len)).copied()
}

/// Code length in bits of each symbol (RFC 7541, Appendix B).
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

/// The static table (RFC 7541, Appendix A).
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""),
    ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""),
    ("retry-after", ""), ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""),
    ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541, Appendix C.4 and C.6.1: Huffman-coded requests and a response, with a shared table.
    #[test]
    fn the_examples_of_the_rfc() {
        let hex = |text: &str| -> Vec<u8> {
            let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
            digits
                .chunks(2)
                .map(|two| u8::from_str_radix(&two.iter().collect::<String>(), 16).unwrap())
                .collect()
        };
        let mut decoder = Decoder::default();
        for (block, expected) in [
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", (":authority", "www.example.com")),
            ("8286 84be 5886 a8eb 1064 9cbf", ("cache-control", "no-cache")),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", ("custom-key", "custom-value")),
        ] {
            let fields = decoder.decode(&hex(block)).unwrap();
            let last = fields.last().unwrap();
            assert_eq!((&last.0[..], &last.1[..]), (expected.0.as_bytes(), expected.1.as_bytes()));
        }
    }

    #[test]
    fn a_smaller_table_must_be_confirmed() {
        for (sizes, block, is_good) in [
            (&[][..], &[0x82][..], true),
            (&[], &[0x20, 0x82], true),
            (&[], &[0x82, 0x20], false),
            (&[4096, 8192], &[0x82], true),
            (&[100], &[0x82], false),
            (&[0, 4096], &[0x82], false),
            (&[0, 4096], &[0x20, 0x82], true),
            (&[0, 20], &[0x20, 0x34, 0x82], true),
            (&[0, 20], &[0x20, 0x35, 0x82], false),
            (&[0, 20], &[0x34, 0x82], false),
            (&[0, 20], &[0x20, 0x20, 0x20, 0x82], false),
        ] {
            let mut decoder = Decoder::default();
            sizes.iter().for_each(|size| decoder.allow(*size));
            assert_eq!(decoder.decode(block).is_some(), is_good, "{sizes:?}, {block:x?}");
            if is_good {
                assert!(decoder.decode(&[0x82]).is_some(), "{sizes:?}: once is enough");
            }
        }
        // The smallest size counts for one block only: the next may use 4096 bytes.
        let mut decoder = Decoder::default();
        [0, 4096].into_iter().for_each(|size| decoder.allow(size));
        for block in [&[0x20, 0x82][..], &[0x3f, 0xe1, 0x1f, 0x82]] {
            assert!(decoder.decode(block).is_some(), "{block:x?}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let long = vec![b'x'; 1000];
        let fields = [(&b":path"[..], &b"/"[..]), (b"a", &long), (b"", b"\0\n")];
        let decoded = Decoder::default().decode(&encode(fields)).unwrap();
        let decoded: Vec<_> = decoded.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(decoded, fields);
    }
}
