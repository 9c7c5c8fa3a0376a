//! HPACK (RFC 7541): fields out of a block, and blocks that need no memory. Bytes only.
//!
//! What is sent is literals and references to the static table, so that a request is rendered once and good for every connection.
//! What is received may be anything.

use super::tables::{LENGTHS, STATIC};
use std::collections::VecDeque;
use std::sync::OnceLock;

/// Most bytes of the dynamic table, as RFC 7541 §4.1 counts them: what SETTINGS say where they say nothing.
const TABLE_MOST: usize = 4096;

/// Most bytes of the fields of one block together: each may be a reference of one byte to a large one.
const FIELDS_MOST: usize = 1024 * 1024;

/// What a decoder remembers between blocks.
///
/// Invariant: `bytes` is the size of all entries, and at most `most`, which is at most [`TABLE_MOST`].
#[derive(Debug)]
pub struct Decoder {
    /// The newest first.
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    most: usize,
    /// How often the table has changed.
    changes: u64,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A block that is no HPACK: the connection is of no more use (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            bytes: 0,
            most: TABLE_MOST,
            changes: 0,
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

impl Decoder {
    /// How often the table has changed: a block that does not change it means the same until that grows.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Hands the fields of a block over, one after another.
    ///
    /// # Errors
    /// When it is no HPACK, or its fields together are larger than a mebibyte.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), Undecodable> {
        let mut rest = block;
        let mut total = 0;
        let mut begun = false;
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                // RFC 7541 §4.2: at the beginning of a block only.
                let most = integer(&mut rest, 5).filter(|n| *n <= TABLE_MOST && !begun).ok_or(Undecodable)?;
                self.most = most;
                self.changes += 1;
                self.evict(most);
                continue;
            }
            begun = true;
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7).ok_or(Undecodable)?;
                let (name, value) = self.entry(index).ok_or(Undecodable)?;
                total += name.len() + value.len() + 32;
                field(name, value);
            } else {
                let indexed = first & 0x40 != 0;
                let (mut name, mut value) = (std::mem::take(&mut self.name), std::mem::take(&mut self.value));
                let read = self.literal(&mut rest, if indexed { 6 } else { 4 }, &mut name, &mut value);
                read.ok_or(Undecodable)?;
                total += name.len() + value.len() + 32;
                field(&name, &value);
                if indexed {
                    self.insert(&name, &value);
                }
                (self.name, self.value) = (name, value);
            }
            if total > FIELDS_MOST {
                return Err(Undecodable);
            }
        }
        Ok(())
    }

    fn literal(&self, rest: &mut &[u8], prefix: u32, name: &mut Vec<u8>, value: &mut Vec<u8>) -> Option<()> {
        match integer(rest, prefix)? {
            0 => text(rest, name)?,
            index => {
                name.clear();
                name.extend_from_slice(self.entry(index)?.0);
            }
        }
        text(rest, value)
    }

    fn entry(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        match STATIC.get(index) {
            Some((name, value)) => Some((name.as_bytes(), value.as_bytes())),
            None => self.table.get(index - STATIC.len()).map(|(name, value)| (&name[..], &value[..])),
        }
    }

    /// RFC 7541 §4.4: an entry that is larger than the table empties it.
    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + 32;
        self.changes += 1;
        self.evict(self.most.saturating_sub(size));
        if size <= self.most {
            self.bytes += size;
            self.table.push_front((name.to_vec(), value.to_vec()));
        }
    }

    fn evict(&mut self, most: usize) {
        while self.bytes > most {
            let Some((name, value)) = self.table.pop_back() else { return };
            self.bytes -= name.len() + value.len() + 32;
        }
    }
}

/// Writes a field without touching any dynamic table. `secret` ones may not be put into one further on either.
pub fn encode(name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
    let same_name = |(n, _): &(&str, &str)| n.as_bytes() == name;
    let whole = STATIC.iter().position(|f| same_name(f) && f.1.as_bytes() == value);
    if let Some(index) = whole.filter(|_| !secret) {
        write_integer(index + 1, 7, 0x80, out);
        return;
    }
    let kind = if secret { 0x10 } else { 0 };
    let index = STATIC.iter().position(same_name).map_or(0, |i| i + 1);
    write_integer(index, 4, kind, out);
    if index == 0 {
        write_integer(name.len(), 7, 0, out);
        out.extend_from_slice(name);
    }
    write_integer(value.len(), 7, 0, out);
    out.extend_from_slice(value);
}

/// RFC 7541 §5.1.
fn write_integer(mut n: usize, prefix: u32, first: u8, out: &mut Vec<u8>) {
    let most = (1usize << prefix) - 1;
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

/// RFC 7541 §5.1; none where it does not end or is beyond all limits.
fn integer(rest: &mut &[u8], prefix: u32) -> Option<usize> {
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
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        n += (byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(n);
        }
    }
    None
}

/// RFC 7541 §5.2.
fn text(rest: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    let packed = rest.first()? & 128 != 0;
    let len = integer(rest, 7)?;
    let (text, others) = rest.split_at_checked(len)?;
    *rest = others;
    if packed {
        return unpack(text, out);
    }
    out.extend_from_slice(text);
    Some(())
}

/// The Huffman code by length. It is canonical: codes of a length follow each other in the order of their symbols, so the lengths
/// say all.
#[derive(Debug)]
struct Code {
    /// For each length: the first code, how many there are, and where their symbols begin.
    lengths: [(u32, u32, u32); 31],
    symbols: Vec<u8>,
}

fn code() -> &'static Code {
    static CODE: OnceLock<Code> = OnceLock::new();
    CODE.get_or_init(|| {
        let mut code = Code { lengths: [(0, 0, 0); 31], symbols: Vec::with_capacity(256) };
        let mut next = 0u32;
        for (len, of_length) in code.lengths.iter_mut().enumerate().skip(1) {
            next <<= 1;
            let before = code.symbols.len();
            code.symbols.extend((0..=255u8).filter(|s| usize::from(LENGTHS[usize::from(*s)]) == len));
            let count = (code.symbols.len() - before) as u32;
            *of_length = (next, count, before as u32);
            next += count;
        }
        code
    })
}

/// Decodes a text in the Huffman code; none where a code is unknown or the padding is more than seven bits, or not ones.
fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let code = code();
    let (mut bits, mut held) = (0u64, 0u32);
    let mut bytes = packed.iter();
    loop {
        while held <= 32 {
            let Some(byte) = bytes.next() else { break };
            bits = bits << 8 | u64::from(*byte);
            held += 8;
        }
        let found = (5..=30.min(held)).find_map(|len| {
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
            // RFC 7541 §5.2: the first bits of the end-of-string code, which are ones.
            None => return (held < 8 && bits & ((1 << held) - 1) == (1 << held) - 1).then_some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    fn decode(decoder: &mut Decoder, block: &str) -> Result<Vec<String>, Undecodable> {
        let mut fields = Vec::new();
        decoder.decode(&hex(block), |n, v| {
            fields.push(format!("{}: {}", String::from_utf8_lossy(n), String::from_utf8_lossy(v)));
        })?;
        Ok(fields)
    }

    #[test]
    fn the_requests_of_appendix_c() {
        let first = vec![":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
        let second = [&first[..], &["cache-control: no-cache"]].concat();
        let third = vec![
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ];
        // C.3 without, C.4 with the Huffman code.
        for blocks in [
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
        ] {
            let mut decoder = Decoder::default();
            for (block, want) in blocks.iter().zip([&first, &second, &third]) {
                assert_eq!(decode(&mut decoder, block).unwrap(), *want, "{block}");
            }
            assert_eq!((decoder.bytes, decoder.table.len()), (164, 3));
        }
    }

    #[test]
    fn the_responses_of_appendix_c_evict_entries() {
        // C.6: the table holds 256 bytes there.
        let mut decoder = Decoder { most: 256, ..Decoder::default() };
        let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
        let location = "location: https://www.example.com";
        let block = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
        let got = decode(&mut decoder, block).unwrap();
        assert_eq!(got, [":status: 302", "cache-control: private", date, location]);
        assert_eq!(decoder.bytes, 222);
        let got = decode(&mut decoder, "4883 640e ffc1 c0bf").unwrap();
        assert_eq!(got, [":status: 307", "cache-control: private", date, location]);
        assert_eq!((decoder.bytes, decoder.table.len()), (222, 4));
        let block = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07";
        let got = decode(&mut decoder, block).unwrap();
        assert_eq!(got[0], ":status: 200");
        assert_eq!(got[5], "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
        assert_eq!((decoder.bytes, decoder.table.len()), (215, 3));
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let long = vec![b'x'; 300];
        let fields: [(&[u8], &[u8], bool); 6] = [
            (b":method", b"GET", false),
            (b":path", b"/a", false),
            (b"authorization", b"Basic x", true),
            (b"x-long", &long, false),
            (b"x", b"", false),
            (b"accept-encoding", b"gzip, deflate", false),
        ];
        let mut block = Vec::new();
        fields.iter().for_each(|(n, v, secret)| encode(n, v, *secret, &mut block));
        let (mut decoder, mut at) = (Decoder::default(), 0);
        decoder
            .decode(&block, |n, v| {
                assert_eq!((n, v), (fields[at].0, fields[at].1));
                at += 1;
            })
            .unwrap();
        assert_eq!((at, decoder.changes(), block[0]), (fields.len(), 0, 0x82));
        // C.2.3: never indexed.
        let mut secret = Vec::new();
        encode(b"password", b"secret", true, &mut secret);
        assert_eq!(secret, hex("1008 7061 7373 776f 7264 0673 6563 7265 74"));
    }

    #[test]
    fn integers_of_appendix_c() {
        for (n, prefix, bytes) in [(10, 5, &[0b01010][..]), (1337, 5, &[31, 154, 10]), (42, 8, &[42])] {
            let mut out = Vec::new();
            write_integer(n, prefix, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(integer(&mut &out[..], prefix), Some(n));
        }
    }

    #[test]
    fn what_is_no_hpack_is_refused() {
        for (block, why) in [
            ("80", "index 0"),
            ("be", "an index beyond the table"),
            ("ffffffffffffff", "an integer without end"),
            ("4003 6162", "a text that is cut"),
            ("0081 ff00", "padding that is a whole symbol of nothing"),
            ("0085 ffff ffff ff00", "the end of string"),
            ("0081 00 00", "padding of zeros"),
            ("3fe2 1f", "a table larger than it may be"),
            ("8220", "a change of size behind a field"),
        ] {
            assert_eq!(decode(&mut Decoder::default(), block), Err(Undecodable), "{why}");
        }
    }
}
