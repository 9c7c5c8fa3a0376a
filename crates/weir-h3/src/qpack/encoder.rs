//! Encodes field sections, with a dynamic table of few entries (RFC 9204 §2.1).
//!
//! The encoder never makes a section depend on an insertion that the peer has not acknowledged, so a section never
//! waits for another stream, whatever SETTINGS_QPACK_BLOCKED_STREAMS allows. A blocked head would wait for a lost
//! packet of the encoder stream: the head-of-line blocking that QUIC removes, for a few dozen bytes.
//!
//! A field enters the table when the same field is sent for the second time in a row, as far as a small memory of
//! fingerprints can tell. Secret fields and cookies never do, so that nobody can probe for their values by the length
//! of what we send (RFC 9204 §7.1).

use super::decoder::max_entries;
use super::integer;
use super::table::{ENTRY, Name, Table};
use super::tables::{Found, find};
use std::collections::VecDeque;
use weir_fields::render::Encode;

/// Most sections with references that wait for their acknowledgement; further ones refer to the static table only.
const SECTIONS: usize = 64;

/// Bytes of instructions that wait to be sent at which insertions stop: the peer does not read them.
const INSTRUCTIONS: usize = 4096;

/// Places of the memory of fields; a power of two.
const PLACES: usize = 128;

/// The state of an encoder between sections.
#[derive(Debug)]
pub struct Encoder {
    /// Most bytes of the dynamic table that we want to use.
    wanted: usize,
    /// The number that Required Insert Counts are taken modulo twice of.
    max_entries: u64,
    table: Table,
    /// How many insertions the peer has acknowledged.
    known: u64,
    /// The sections with references that the peer has not acknowledged, oldest first.
    sections: VecDeque<Sent>,
    /// Instructions for the encoder stream.
    out: Vec<u8>,
    /// The fields sent last, by fingerprint; empty until the table is used.
    places: Vec<Place>,
    current: Current,
    /// The beginning of an instruction of the decoder stream: at most ten bytes.
    partial: Vec<u8>,
}

/// A section with references.
#[derive(Clone, Copy, Debug)]
struct Sent {
    stream: u64,
    required: u64,
    /// The oldest entry it refers to.
    oldest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    fingerprint: u32,
    /// The absolute index of its entry, counted from 1; 0 if it has none.
    entry: u64,
}

/// The section that is being encoded.
#[derive(Clone, Copy, Debug)]
struct Current {
    base: u64,
    required: u64,
    oldest: u64,
    /// Whether it may refer to the dynamic table.
    may_refer: bool,
}

impl Encoder {
    /// An encoder that will use `wanted` bytes of dynamic table if the peer allows it. 0: the static table only.
    pub const fn new(wanted: usize) -> Self {
        Self {
            wanted,
            max_entries: 0,
            table: Table::EMPTY,
            known: 0,
            sections: VecDeque::new(),
            out: Vec::new(),
            places: Vec::new(),
            current: Current { base: 0, required: 0, oldest: u64::MAX, may_refer: false },
            partial: Vec::new(),
        }
    }

    /// Takes the peer's SETTINGS_QPACK_MAX_TABLE_CAPACITY: begins to use the table.
    pub fn allow(&mut self, capacity: u64) {
        let allowed = usize::try_from(capacity).unwrap_or(usize::MAX);
        let used = self.wanted.min(allowed);
        if used < ENTRY || self.table.capacity() > 0 {
            return;
        }
        self.max_entries = max_entries(allowed);
        self.table.resize(used);
        integer::write(used as u64, 5, 0x20, &mut self.out);
    }

    /// Instructions to send on the encoder stream. The caller takes them.
    pub const fn instructions(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Begins a section; its fields are then encoded by [`Encode`].
    pub fn begin(&mut self) {
        if self.places.is_empty() && self.table.capacity() > 0 {
            self.places = vec![Place::default(); PLACES]; // not before: a connection may be opened in advance
        }
        let may_refer = self.known > 0 && self.sections.len() < SECTIONS;
        self.current = Current { base: self.known, required: 0, oldest: u64::MAX, may_refer };
    }

    /// Frees the memory of fields, which the next section begins anew.
    pub fn rest(&mut self) {
        self.places = Vec::new();
        self.sections.shrink_to_fit();
    }

    /// Ends the section that began last, for this stream: appends its prefix.
    pub fn finish(&mut self, stream: u64, out: &mut Vec<u8>) {
        let Current { base, required, oldest, .. } = self.current;
        if required == 0 {
            out.extend_from_slice(&[0, 0]);
            return;
        }
        self.sections.push_back(Sent { stream, required, oldest });
        // RFC 9204 §4.5.1. Only entries before Base are referred to, so Base is not below Required Insert Count.
        integer::write(required % (2 * self.max_entries) + 1, 8, 0, out);
        integer::write(base - required, 7, 0, out);
    }

    /// Takes bytes of the peer's decoder stream. Returns how many streams were cancelled that we know nothing about.
    ///
    /// # Errors
    /// When they are invalid: the connection ends with QPACK_DECODER_STREAM_ERROR.
    pub fn answers(&mut self, bytes: &[u8]) -> Result<u32, &'static str> {
        let joined;
        let mut rest = if self.partial.is_empty() {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.partial)[..], bytes].concat();
            &joined[..]
        };
        let mut unknown = 0;
        while let Some(&first) = rest.first() {
            let prefix = if first & 0x80 != 0 { 7 } else { 6 };
            let Some(number) = integer::read(&mut rest, prefix)? else {
                self.partial.extend_from_slice(rest);
                break;
            };
            match first >> 6 {
                0 => self.insertions(number)?,
                1 => unknown += u32::from(!self.cancelled(number)),
                _ => self.acknowledged(number)?,
            }
        }
        Ok(unknown)
    }

    /// RFC 9204 §4.4.3.
    fn insertions(&mut self, more: u64) -> Result<(), &'static str> {
        let known = self.known.checked_add(more).filter(|n| more > 0 && *n <= self.table.inserted());
        self.known = known.ok_or("an Insert Count Increment of 0, or beyond what was inserted")?;
        Ok(())
    }

    /// RFC 9204 §4.4.1.
    fn acknowledged(&mut self, stream: u64) -> Result<(), &'static str> {
        let nth = self.sections.iter().position(|sent| sent.stream == stream);
        let sent = nth.and_then(|nth| self.sections.remove(nth));
        let Sent { required, .. } =
            sent.ok_or("a Section Acknowledgment for a section without references")?;
        self.known = self.known.max(required);
        Ok(())
    }

    /// RFC 9204 §4.4.2. Returns whether the stream had sections.
    fn cancelled(&mut self, stream: u64) -> bool {
        let before = self.sections.len();
        self.sections.retain(|sent| sent.stream != stream);
        self.sections.len() < before
    }

    /// The entry with this field, if the peer has acknowledged it; remembers the field otherwise, and inserts it the
    /// second time.
    fn refer(&mut self, name: &[u8], value: &[u8]) -> Option<u64> {
        let fingerprint = fingerprint(name, value);
        let place = self.places.get_mut(fingerprint as usize & (PLACES - 1))?;
        if place.fingerprint != fingerprint {
            *place = Place { fingerprint, entry: 0 };
            return None;
        }
        if let Some(absolute) = place.entry.checked_sub(1)
            && let Some(entry) = self.table.get(absolute)
        {
            let is_usable = self.current.may_refer && absolute < self.current.base;
            return (is_usable && entry == (name, value)).then_some(absolute);
        }
        if self.insert(name, value) {
            self.places[fingerprint as usize & (PLACES - 1)].entry = self.table.inserted();
        }
        None
    }

    /// Inserts a field, unless that would evict an entry that is still needed (RFC 9204 §2.1.1).
    fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        let text = name.len() + value.len();
        // One large entry would push out many.
        if text > self.table.capacity() / 4 || self.out.len() > INSTRUCTIONS {
            return false;
        }
        let Some(first_left) = self.table.first_left(text) else { return false };
        if first_left > self.oldest_needed() {
            return false;
        }
        match find(name, value) {
            Found::Name(index) | Found::Field(index) => integer::write(index, 6, 0xc0, &mut self.out),
            Found::Nothing => integer::write_text(name, 5, 0x40, &mut self.out),
        }
        integer::write_text(value, 7, 0, &mut self.out);
        self.table.insert(Name::Literal(name), value).is_some()
    }

    /// The oldest entry that must not be evicted: the peer has not acknowledged it, or a section refers to it.
    fn oldest_needed(&self) -> u64 {
        let sent = self.sections.iter().map(|sent| sent.oldest).min();
        sent.unwrap_or(u64::MAX).min(self.known).min(self.current.oldest)
    }
}

impl Encode for Encoder {
    const IS_STATIC_HPACK: bool = false;

    fn encode(&mut self, name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
        let found = find(name, value);
        if let (Found::Field(index), false) = (found, secret) {
            return integer::write(index, 6, 0xc0, out);
        }
        if !self.places.is_empty()
            && !secret
            && may_enter(name)
            && let Some(absolute) = self.refer(name, value)
        {
            let current = &mut self.current;
            current.required = current.required.max(absolute + 1);
            current.oldest = current.oldest.min(absolute);
            return integer::write(current.base - absolute - 1, 6, 0x80, out);
        }
        // The bit N: no later hop may add it to a table either (RFC 9204 §4.5.4).
        match found {
            Found::Name(index) | Found::Field(index) => {
                integer::write(index, 4, if secret { 0x70 } else { 0x50 }, out);
            }
            Found::Nothing => integer::write_text(name, 3, if secret { 0x30 } else { 0x20 }, out),
        }
        integer::write_text(value, 7, 0, out);
    }
}

/// Whether a field may enter the table. The values of the others are secret, or are another one each second.
fn may_enter(name: &[u8]) -> bool {
    !matches!(name, b"age" | b"cookie" | b"date" | b"set-cookie")
}

/// A hash of a field, never 0. Whoever makes two fields collide costs us an insertion that is not used.
fn fingerprint(name: &[u8], value: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (name.len() as u64) << 32 | value.len() as u64;
    for text in [name, value] {
        let (words, rest) = text.as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(ODD).rotate_left(29);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(ODD).rotate_left(29);
    }
    ((hash ^ (hash >> 32)) as u32).max(1)
}

/// Appends a section that refers to the static table only, such as one that is rendered once for many connections. It
/// begins with an empty prefix.
#[derive(Clone, Copy, Debug)]
pub struct Static;

impl Encode for Static {
    const IS_STATIC_HPACK: bool = false;

    fn encode(&mut self, name: &[u8], value: &[u8], secret: bool, out: &mut Vec<u8>) {
        Encoder::new(0).encode(name, value, secret, out);
    }
}
