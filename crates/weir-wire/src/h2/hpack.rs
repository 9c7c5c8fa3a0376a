//! HPACK (RFC 7541): decodes blocks into fields, and encodes without a dynamic table. Bytes only.
//!
//! We send only literals and references to the static table, so that a head rendered once is valid on every
//! connection. We accept every valid encoding.

use super::tables::{STATIC, entries_of};
use std::collections::VecDeque;
use weir_fields::huffman;
use weir_fields::render::Encode;

/// Largest size of the dynamic table in bytes, counted as in RFC 7541 §4.1: the default of SETTINGS.
pub(super) const TABLE_MOST: usize = 4096;

/// A dynamic table size update to 0 (RFC 7541 §6.3): our encoder needs no table. It may only begin a block.
pub(super) const NO_TABLE: u8 = 0x20;

/// The overhead of an entry beside its text (RFC 7541 §4.1).
const ENTRY: usize = 32;

/// The state of a decoder between blocks.
#[derive(Debug, Default)]
pub struct Decoder {
    table: Table,
    /// How often the table has changed.
    changes: u64,
    /// Whether the last block has referred to an entry of the table, and whether it has resized the table.
    refers: bool,
    resizes: bool,
    /// The names of fields in the last block that no hop may index, each with a line break behind it.
    sealed: Vec<u8>,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// What an equal block means and does, in place of decoding it.
#[derive(Debug)]
pub(super) struct Meaning {
    /// If the block refers to the table: how often the table must have changed for it to mean the same.
    pub(super) table: Option<u64>,
    pub(super) additions: Additions,
}

/// Entries that a block adds to the table.
#[derive(Debug, Default)]
pub(super) struct Additions {
    text: Vec<u8>,
    /// The lengths of each name and value, oldest first.
    lengths: Vec<(usize, usize)>,
}

impl Additions {
    /// The bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&self.lengths[..])
    }
}

/// An invalid HPACK block: the connection is unusable (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

impl Decoder {
    /// How often the table has changed. A block that leaves this unchanged keeps its meaning until it grows.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// What the block means that was decoded last. `changes` is how often the table had changed before. `None` if that
    /// cannot be told in a few words.
    pub(super) fn meaning(&self, changes: u64) -> Option<Meaning> {
        let added = usize::try_from(self.changes - changes).ok()?;
        match (self.resizes, self.refers, added) {
            (false, true, 0) => Some(Meaning { table: Some(self.changes), additions: Additions::default() }),
            (false, false, _) => Some(Meaning { table: None, additions: self.table.newest(added)? }),
            _ => None,
        }
    }

    /// Adds entries, as the block did whose [meaning](Self::meaning) they are part of.
    pub(super) fn add(&mut self, additions: &Additions) {
        let mut rest = &additions.text[..];
        for &(name, value) in &additions.lengths {
            let Some((entry, others)) = rest.split_at_checked(name + value) else { return };
            let (name, value) = entry.split_at(name);
            self.changes += 1;
            self.table.insert(name, value);
            rest = others;
        }
    }

    /// Calls `field` for each field of a block. The receiver must limit their number and total size: one byte can
    /// reference a field of four KiB.
    ///
    /// # Errors
    /// When the block is not valid HPACK.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), Undecodable> {
        let mut rest = block;
        let mut begun = false;
        (self.refers, self.resizes) = (false, false);
        self.sealed.clear();
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7).ok_or(Undecodable)?;
                let (name, value) = self.table.entry(index).ok_or(Undecodable)?;
                self.refers |= index > STATIC.len();
                field(name, value);
            } else if first & 0xe0 == 0x20 {
                // RFC 7541 §4.2: only at the start of a block.
                let most = integer(&mut rest, 5).filter(|n| *n <= TABLE_MOST && !begun).ok_or(Undecodable)?;
                self.changes += 1;
                self.resizes = true;
                self.table.resize(most);
                continue;
            } else {
                self.literal(&mut rest, first, &mut field).ok_or(Undecodable)?;
            }
            begun = true;
        }
        Ok(())
    }

    /// The names of fields in the last block that no hop may index (RFC 7541 §6.2.3), each with a line break behind it.
    pub(super) fn take_sealed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sealed)
    }

    /// Shrinks buffers that a large field has grown.
    pub(super) fn trim(&mut self) {
        for buffer in [&mut self.name, &mut self.value] {
            if buffer.capacity() > TABLE_MOST {
                *buffer = Vec::new();
            }
        }
    }

    fn literal(&mut self, rest: &mut &[u8], first: u8, field: &mut impl FnMut(&[u8], &[u8])) -> Option<()> {
        let (indexed, never) = (first & 0x40 != 0, first & 0xf0 == NEVER);
        let index = integer(rest, if indexed { 6 } else { 4 })?;
        self.refers |= index > STATIC.len();
        if index > 0 && !indexed {
            let name = self.table.entry(index)?.0;
            field(name, text(rest, &mut self.value)?);
            if never {
                note_sealed(name, &mut self.sealed);
            }
            return Some(());
        }
        let name = match index.checked_sub(1).and_then(|at| STATIC.get(at)) {
            Some((name, _)) => name.as_bytes(),
            None if index == 0 => text(rest, &mut self.name)?,
            None => {
                // Copied, because adding the new entry may evict this one.
                self.name.clear();
                self.name.extend_from_slice(self.table.entry(index)?.0);
                &self.name
            }
        };
        let value = text(rest, &mut self.value)?;
        field(name, value);
        if never {
            note_sealed(name, &mut self.sealed);
        }
        if indexed {
            self.changes += 1;
            self.table.insert(name, value);
        }
        Some(())
    }
}

/// The dynamic table. The text of all entries is stored contiguously, oldest first.
///
/// Invariant: `size` is the total size of all entries, at most `most`, which is at most [`TABLE_MOST`].
#[derive(Debug)]
struct Table {
    text: Vec<u8>,
    /// Bytes of text evicted before `text`.
    before: usize,
    /// The newest entry first.
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The offset of its text, counted from the first byte ever stored.
    at: usize,
    name: usize,
    value: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { text: Vec::new(), before: 0, entries: VecDeque::new(), size: 0, most: TABLE_MOST }
    }
}

impl Table {
    fn entry(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(index - STATIC.len())?;
        let text = self.text.get(entry.at - self.before..)?;
        text.get(..entry.name + entry.value)?.split_at_checked(entry.name)
    }

    /// The newest entries, oldest first, if there are so many. If a block has added as many and the first of them has
    /// left again, there are fewer: entries leave in the order in which they came.
    fn newest(&self, count: usize) -> Option<Additions> {
        if self.entries.len() < count {
            return None;
        }
        let mut additions = Additions { text: Vec::new(), lengths: Vec::with_capacity(count) };
        for entry in self.entries.iter().take(count).rev() {
            let text = self.text.get(entry.at - self.before..)?;
            additions.text.extend_from_slice(text.get(..entry.name + entry.value)?);
            additions.lengths.push((entry.name, entry.value));
        }
        additions.text.shrink_to_fit();
        Some(additions)
    }

    /// RFC 7541 §4.4: an entry larger than the table empties it.
    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY;
        self.evict(self.most.saturating_sub(size));
        if size > self.most {
            return;
        }
        let oldest = self.entries.back().map_or(self.before + self.text.len(), |entry| entry.at);
        if oldest - self.before >= TABLE_MOST {
            self.text.drain(..oldest - self.before);
            self.before = oldest;
        }
        let at = self.before + self.text.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.size += size;
        self.entries.push_front(Entry { at, name: name.len(), value: value.len() });
    }

    fn resize(&mut self, most: usize) {
        self.most = most;
        self.evict(most);
    }

    fn evict(&mut self, most: usize) {
        while self.size > most {
            let Some(entry) = self.entries.pop_back() else { return };
            self.size -= entry.name + entry.value + ENTRY;
        }
    }
}

/// Encodes heads without a dynamic table.
#[derive(Debug)]
pub(super) struct Static;

impl Encode for Static {
    const IS_STATIC_HPACK: bool = true;

    #[inline]
    fn encode(&mut self, name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
        encode(name, value, secret, out);
    }
}

/// Encodes a field without a dynamic table. For `secret` fields, it also forbids later hops to index them.
#[inline]
pub fn encode(name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
    let (index, entries) = entries_of(name).unwrap_or_default();
    if !secret && let Some(n) = entries.iter().position(|(_, v)| v.as_bytes() == value) {
        write_integer(index + n, 7, 0x80, out);
        return;
    }
    write_integer(index, 4, if secret { 0x10 } else { 0 }, out);
    if index == 0 {
        write_integer(name.len(), 7, 0, out);
        out.extend_from_slice(name);
    }
    write_integer(value.len(), 7, 0, out);
    out.extend_from_slice(value);
}

/// Forbids later hops to index fields of these names, as the hop before has (RFC 7541 §6.2.3). `block` comes from
/// [`encode`], `names` from [`Decoder::take_sealed`]. A field that is an entry of the static table stays one.
#[cold]
pub(super) fn seal(block: &mut [u8], names: &[u8]) {
    let is_sealed = |name: &[u8]| names.split(|b| *b == b'\n').any(|sealed| sealed == name || sealed == ALL);
    let mut at = 0;
    while let Some((len, name)) = block.get(at..).and_then(representation) {
        if name.is_some_and(is_sealed)
            && let Some(first) = block.get_mut(at)
        {
            *first |= NEVER; // the pattern 0000 becomes 0001
        }
        at += len;
    }
}

/// The pattern of a literal that is never indexed (RFC 7541 §6.2.3).
const NEVER: u8 = 0x10;

/// Most bytes of names that a decoder notes. Beyond that, all fields count as noted.
const SEALED_MOST: usize = 1024;

/// Stands for all names.
const ALL: &[u8] = b"*";

/// Notes a name whose field no hop may index.
#[cold]
fn note_sealed(name: &[u8], sealed: &mut Vec<u8>) {
    let name = if sealed.len() + name.len() < SEALED_MOST { name } else { ALL };
    if name == ALL {
        sealed.clear();
    }
    sealed.extend_from_slice(name);
    sealed.push(b'\n');
}

/// The length of the first representation of a block that [`encode`] has made, and the name if it is a literal.
fn representation(block: &[u8]) -> Option<(usize, Option<&[u8]>)> {
    let mut rest = block;
    let first = *rest.first()?;
    let mut name = None;
    if first & 0x80 != 0 {
        integer(&mut rest, 7)?;
    } else if first & 0xe0 == 0x20 {
        integer(&mut rest, 5)?;
    } else {
        name = Some(match integer(&mut rest, 4)?.checked_sub(1) {
            Some(at) => STATIC.get(at)?.0.as_bytes(),
            None => plain(&mut rest)?,
        });
        plain(&mut rest)?;
    }
    Some((block.len() - rest.len(), name))
}

/// A text that is not packed.
fn plain<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = integer(rest, 7)?;
    let (text, others) = rest.split_at_checked(len)?;
    *rest = others;
    Some(text)
}

/// RFC 7541 §5.1.
#[inline]
fn write_integer(n: usize, prefix: u32, first: u8, out: &mut Vec<u8>) {
    let most = (1usize << prefix) - 1;
    if n < most {
        out.push(first | n as u8);
    } else {
        out.push(first | most as u8);
        write_rest(n - most, out);
    }
}

/// The part of an integer that its prefix has no room for.
#[inline]
fn write_rest(mut n: usize, out: &mut Vec<u8>) {
    while n >= 128 {
        out.push((n & 127) as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

/// RFC 7541 §5.1; `None` if the integer is incomplete or too large.
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

/// RFC 7541 §5.2. Decompresses Huffman-coded text into `room`.
fn text<'a, 'b: 'a>(rest: &mut &'b [u8], room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let packed = rest.first()? & 128 != 0;
    let len = integer(rest, 7)?;
    let (text, others) = rest.split_at_checked(len)?;
    *rest = others;
    if !packed {
        return Some(text);
    }
    room.clear();
    huffman::unpack(text, room)?;
    Some(room)
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
        // C.3 without Huffman coding, C.4 with it.
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
            assert_eq!((decoder.table.size, decoder.table.entries.len()), (164, 3));
        }
    }

    #[test]
    fn the_responses_of_appendix_c_evict_entries() {
        // C.6 uses a table of 256 bytes.
        let mut decoder = Decoder::default();
        decoder.table.resize(256);
        let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
        let location = "location: https://www.example.com";
        let block = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
        let got = decode(&mut decoder, block).unwrap();
        assert_eq!(got, [":status: 302", "cache-control: private", date, location]);
        assert_eq!(decoder.table.size, 222);
        let got = decode(&mut decoder, "4883 640e ffc1 c0bf").unwrap();
        assert_eq!(got, [":status: 307", "cache-control: private", date, location]);
        assert_eq!((decoder.table.size, decoder.table.entries.len()), (222, 4));
        let block = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07";
        let got = decode(&mut decoder, block).unwrap();
        assert_eq!(got[0], ":status: 200");
        assert_eq!(got[5], "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
        assert_eq!((decoder.table.size, decoder.table.entries.len()), (215, 3));
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
            ("8220", "a change of size after a field"),
        ] {
            assert_eq!(decode(&mut Decoder::default(), block), Err(Undecodable), "{why}");
        }
    }

    /// RFC 7541 §6.2.3: who passes such a field on must use the same representation.
    #[test]
    fn what_no_hop_may_index_is_told_to_the_next() {
        let mut decoder = Decoder::default();
        // Never indexed: `password: secret`, the cookie `a`, and `x: y` whose name is the newest in the table.
        let fields = decode(
            &mut decoder,
            "4001 7801 79 1008 7061 7373 776f 7264 0673 6563 7265 74 1f11 01 61 1f2f 01 79 0001 6e01 76",
        );
        assert_eq!(fields.unwrap(), ["x: y", "password: secret", "cookie: a", "x: y", "n: v"]);
        let names = decoder.take_sealed();
        assert_eq!(names, b"password\ncookie\nx\n");
        let mut block = vec![NO_TABLE];
        for (name, value) in
            [(":method", "GET"), ("password", "secret"), ("n", "v"), ("cookie", "a"), ("accept", "x")]
        {
            encode(name.as_bytes(), value.as_bytes(), false, &mut block);
        }
        seal(&mut block, &names);
        assert_eq!(
            block,
            hex("20 82 1008 7061 7373 776f 7264 0673 6563 7265 74 0001 6e01 76 1f11 01 61 0f04 01 78")
        );
        decode(&mut decoder, "82").unwrap();
        assert_eq!(decoder.take_sealed(), b"");
    }

    #[test]
    fn few_names_are_noted() {
        let mut decoder = Decoder::default();
        let mut block = Vec::new();
        for n in 0..200 {
            encode(format!("name-{n}").as_bytes(), b"v", true, &mut block);
        }
        decoder.decode(&block, |_, _| {}).unwrap();
        let names = decoder.take_sealed();
        assert!(names.starts_with(b"*\n") && names.len() <= SEALED_MOST + 16, "{}", names.len());
        let mut block = Vec::new();
        encode(b"other", b"v", false, &mut block);
        seal(&mut block, &names);
        assert_eq!(block[0], NEVER);
    }

    #[test]
    fn an_update_to_nothing_empties_the_table() {
        let mut decoder = Decoder::default();
        assert_eq!(decode(&mut decoder, "4001 6101 62 be").unwrap(), ["a: b", "a: b"]);
        decoder.decode(&[NO_TABLE, 0x82], |_, _| {}).unwrap();
        assert_eq!((decoder.table.most, decoder.table.entries.len()), (0, 0));
        assert_eq!(decode(&mut decoder, "4001 6101 62").unwrap(), ["a: b"]);
        assert_eq!(decode(&mut decoder, "be"), Err(Undecodable));
    }

    #[test]
    fn entries_come_and_go() {
        let (mut decoder, mut kept) = (Decoder::default(), VecDeque::new());
        for n in 0..2000usize {
            let (name, value) = (format!("name-{n}").into_bytes(), vec![b'v'; n * 7 % 600]);
            let mut block = vec![0x40];
            write_integer(name.len(), 7, 0, &mut block);
            block.extend_from_slice(&name);
            write_integer(value.len(), 7, 0, &mut block);
            block.extend_from_slice(&value);
            decoder.decode(&block, |_, _| {}).unwrap();
            kept.push_front((name, value));
            kept.truncate(decoder.table.entries.len());
            let size: usize = kept.iter().map(|(n, v)| n.len() + v.len() + ENTRY).sum();
            assert!(
                size == decoder.table.size && size <= TABLE_MOST && decoder.table.text.len() < 3 * TABLE_MOST
            );
            for (at, (name, value)) in kept.iter().enumerate() {
                assert_eq!(decoder.table.entry(62 + at), Some((&name[..], &value[..])));
            }
        }
    }

    #[test]
    fn every_static_entry_is_found() {
        for (at, (name, value)) in STATIC.iter().enumerate() {
            let mut block = Vec::new();
            encode(name.as_bytes(), value.as_bytes(), false, &mut block);
            assert_eq!(block, [0x80 | (at as u8 + 1)], "{name}: {value}");
        }
    }
}
