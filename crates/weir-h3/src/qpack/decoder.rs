//! Decodes field sections, with a dynamic table that the peer's encoder stream fills (RFC 9204 §2.2).

use super::integer::{self, Text};
use super::table::{Name, Table};
use super::tables::STATIC;
use std::ops::ControlFlow;

/// What a decoder allows the peer's encoder: what our SETTINGS announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderLimits {
    /// Most bytes of the dynamic table, counted as in RFC 9204 §3.2.1. It holds at most three times as much memory.
    pub capacity: usize,
    /// Most streams that may wait for entries at the same time.
    pub blocked: usize,
}

/// The state of a decoder between sections.
#[derive(Debug)]
pub struct Decoder {
    limits: DecoderLimits,
    table: Table,
    /// The beginning of an instruction whose rest has not arrived.
    ///
    /// Invariant: shorter than two strings of the longest length and their prefixes.
    partial: Vec<u8>,
    /// How many insertions the peer knows to have arrived.
    told: u64,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A received section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// It refers to entries that have not arrived: nothing was decoded. Try again once [`Decoder::inserted`] is as
    /// large as this.
    Blocked(u64),
    /// Every field was passed on, until the receiver wanted no more.
    Done,
}

/// An invalid section: the connection ends with QPACK_DECOMPRESSION_FAILED (RFC 9204 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable(pub &'static str);

/// Largest buffer kept for the next strings.
const KEPT: usize = 4096;

impl Decoder {
    /// A decoder with an empty table of capacity 0: the encoder may raise it up to the limit.
    pub const fn new(limits: DecoderLimits) -> Self {
        Self {
            limits,
            table: Table::EMPTY,
            partial: Vec::new(),
            told: 0,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// How many entries were ever inserted.
    pub const fn inserted(&self) -> u64 {
        self.table.inserted()
    }

    /// Carries out instructions of the encoder stream; an incomplete one waits for its rest. Returns how many
    /// instructions were complete.
    ///
    /// # Errors
    /// When one is invalid: the connection ends with QPACK_ENCODER_STREAM_ERROR.
    pub fn instructions(&mut self, bytes: &[u8]) -> Result<u32, &'static str> {
        if self.partial.is_empty() {
            let (count, used) = self.carry_out(bytes)?;
            self.partial.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(count);
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let (count, used) = self.carry_out(&all)?;
        all.drain(..used);
        if !all.is_empty() {
            self.partial = all;
        }
        Ok(count)
    }

    /// Carries out the complete instructions; returns their number and length.
    fn carry_out(&mut self, bytes: &[u8]) -> Result<(u32, usize), &'static str> {
        let (mut rest, mut count) = (bytes, 0);
        while !rest.is_empty() {
            let before = rest;
            if self.instruction(&mut rest)?.is_none() {
                rest = before;
                break;
            }
            count += 1;
        }
        if self.name.capacity() > KEPT || self.value.capacity() > KEPT {
            (self.name, self.value) = (Vec::new(), Vec::new());
        }
        Ok((count, bytes.len() - rest.len()))
    }

    /// RFC 9204 §4.3.
    fn instruction(&mut self, rest: &mut &[u8]) -> Result<Option<()>, &'static str> {
        const NO_ENTRY: &str = "an instruction refers to an entry that does not exist";
        const TOO_LARGE: &str = "an entry larger than the dynamic table";
        let longest = self.limits.capacity;
        let Some(&first) = rest.first() else { return Ok(None) };
        if first & 0x80 != 0 {
            let Some(index) = integer::read(rest, 6)? else { return Ok(None) };
            let Some(value) = Text::read(rest, 7, longest)? else { return Ok(None) };
            let value = value.unpack(&mut self.value)?;
            let name = if first & 0x40 != 0 {
                Name::Literal(static_entry(index).ok_or(NO_ENTRY)?.0)
            } else {
                let absolute = relative(self.table.inserted(), index).ok_or(NO_ENTRY)?;
                self.table.get(absolute).ok_or(NO_ENTRY)?;
                Name::Of(absolute)
            };
            self.table.insert(name, value).ok_or(TOO_LARGE)?;
        } else if first & 0x40 != 0 {
            let Some(name) = Text::read(rest, 5, longest)? else { return Ok(None) };
            let Some(value) = Text::read(rest, 7, longest)? else { return Ok(None) };
            let name = Name::Literal(name.unpack(&mut self.name)?);
            self.table.insert(name, value.unpack(&mut self.value)?).ok_or(TOO_LARGE)?;
        } else if first & 0x20 != 0 {
            let Some(capacity) = integer::read(rest, 5)? else { return Ok(None) };
            let capacity = usize::try_from(capacity).ok().filter(|n| *n <= self.limits.capacity);
            self.table.resize(capacity.ok_or("a dynamic table larger than SETTINGS allow")?);
        } else {
            let Some(index) = integer::read(rest, 5)? else { return Ok(None) };
            let absolute = relative(self.table.inserted(), index).ok_or(NO_ENTRY)?;
            self.table.duplicate(absolute).ok_or(NO_ENTRY)?;
        }
        Ok(Some(()))
    }

    /// How many insertions a section needs: it can be decoded once [`Decoder::inserted`] is as large.
    ///
    /// # Errors
    /// When its prefix is invalid.
    pub fn required(&self, section: &[u8]) -> Result<u64, Undecodable> {
        self.prefix(&mut &*section).map(|prefix| prefix.required)
    }

    /// Decodes the section of a stream. Calls `field` for each field until that wants no more: unlike in HPACK, a
    /// section changes nothing in the table. The receiver must limit number and total size of fields: one byte can
    /// refer to a field as large as the table. `answers` gets what to send on the decoder stream.
    ///
    /// # Errors
    /// When the section is invalid.
    pub fn decode(
        &mut self,
        stream: u64,
        section: &[u8],
        answers: &mut Vec<u8>,
        mut field: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<Decoded, Undecodable> {
        let mut rest = section;
        let prefix = self.prefix(&mut rest)?;
        if prefix.required > self.table.inserted() {
            return Ok(Decoded::Blocked(prefix.required));
        }
        while let Some(&first) = rest.first() {
            if self.line(first, &mut rest, prefix, &mut field).map_err(Undecodable)?.is_break() {
                break;
            }
        }
        if self.name.capacity() > KEPT || self.value.capacity() > KEPT {
            (self.name, self.value) = (Vec::new(), Vec::new());
        }
        if prefix.required > 0 {
            // RFC 9204 §2.1.4: an acknowledged section also acknowledges the insertions it needs.
            integer::write(stream, 7, 0x80, answers);
            self.told = self.told.max(prefix.required);
        }
        Ok(Decoded::Done)
    }

    /// RFC 9204 §4.5.1.
    fn prefix(&self, rest: &mut &[u8]) -> Result<Prefix, Undecodable> {
        const CUT: Undecodable = Undecodable("a section that ends in its prefix");
        const NO_COUNT: Undecodable = Undecodable("an impossible Required Insert Count");
        let encoded = integer::read(rest, 8).map_err(Undecodable)?.ok_or(CUT)?;
        let is_negative = rest.first().is_some_and(|b| b & 0x80 != 0);
        let delta = integer::read(rest, 7).map_err(Undecodable)?.ok_or(CUT)?;
        let required = match encoded {
            0 => 0,
            encoded => {
                let entries = max_entries(self.limits.capacity);
                let range = 2 * entries;
                if encoded > range {
                    return Err(NO_COUNT);
                }
                let most = self.table.inserted() + entries;
                let required = most / range * range + encoded - 1;
                let required = if required > most { required.checked_sub(range) } else { Some(required) };
                required.filter(|n| *n > 0).ok_or(NO_COUNT)?
            }
        };
        let base = if is_negative { required.checked_sub(delta + 1) } else { required.checked_add(delta) };
        Ok(Prefix { required, base: base.ok_or(Undecodable("a negative Base"))? })
    }

    /// RFC 9204 §4.5.2 to §4.5.6.
    fn line(
        &mut self,
        first: u8,
        rest: &mut &[u8],
        prefix: Prefix,
        field: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, &'static str> {
        const CUT: &str = "a section that ends in a field line";
        let is_static = |bit: u8| first & bit != 0;
        if first & 0x80 != 0 {
            let index = integer::read(rest, 6)?.ok_or(CUT)?;
            let absolute = relative(prefix.base, index);
            let (name, value) = self.entry(is_static(0x40), index, absolute, prefix)?;
            return Ok(field(name, value));
        }
        if first & 0xf0 == 0x10 {
            let index = integer::read(rest, 4)?.ok_or(CUT)?;
            let (name, value) = self.entry(false, index, prefix.base.checked_add(index), prefix)?;
            return Ok(field(name, value));
        }
        if first & 0x60 == 0x20 {
            let name = Text::read(rest, 3, usize::MAX)?.ok_or(CUT)?.unpack(&mut self.name)?;
            let value = Text::read(rest, 7, usize::MAX)?.ok_or(CUT)?.unpack(&mut self.value)?;
            return Ok(field(name, value));
        }
        let (index, is_static, is_post_base) = if first & 0x40 != 0 {
            (integer::read(rest, 4)?.ok_or(CUT)?, is_static(0x10), false)
        } else {
            (integer::read(rest, 3)?.ok_or(CUT)?, false, true)
        };
        let absolute =
            if is_post_base { prefix.base.checked_add(index) } else { relative(prefix.base, index) };
        let value = Text::read(rest, 7, usize::MAX)?.ok_or(CUT)?.unpack(&mut self.value)?;
        let (name, _) = entry(&self.table, is_static, index, absolute, prefix)?;
        Ok(field(name, value))
    }

    fn entry(
        &self,
        is_static: bool,
        index: u64,
        absolute: Option<u64>,
        prefix: Prefix,
    ) -> Result<(&[u8], &[u8]), &'static str> {
        entry(&self.table, is_static, index, absolute, prefix)
    }

    /// Writes that the sections of a stream will not be decoded (RFC 9204 §2.2.2.2), unless no section can refer to
    /// the table.
    pub fn cancel(&self, stream: u64, answers: &mut Vec<u8>) {
        if self.limits.capacity > 0 {
            integer::write(stream, 6, 0x40, answers);
        }
    }

    /// Writes how many insertions have arrived that no acknowledged section told (RFC 9204 §4.4.3).
    pub fn acknowledge(&mut self, answers: &mut Vec<u8>) {
        let news = self.table.inserted() - self.told;
        if news > 0 {
            integer::write(news, 6, 0, answers);
            self.told = self.table.inserted();
        }
    }
}

/// The first two numbers of a section.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    /// How many insertions it needs.
    required: u64,
    base: u64,
}

/// The entry that a field line refers to.
fn entry(
    table: &Table,
    is_static: bool,
    index: u64,
    absolute: Option<u64>,
    prefix: Prefix,
) -> Result<(&[u8], &[u8]), &'static str> {
    const NO_ENTRY: &str = "a field line refers to an entry that does not exist";
    if is_static {
        return static_entry(index).ok_or(NO_ENTRY);
    }
    // RFC 9204 §2.2.1: also if the entry has arrived in the meantime.
    let absolute = absolute.filter(|n| *n < prefix.required).ok_or(NO_ENTRY)?;
    table.get(absolute).ok_or(NO_ENTRY)
}

fn static_entry(index: u64) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = STATIC.get(usize::try_from(index).ok()?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// RFC 9204 §3.2.5: index 0 is the entry just before `base`.
fn relative(base: u64, index: u64) -> Option<u64> {
    base.checked_sub(index)?.checked_sub(1)
}

/// RFC 9204 §4.5.1.1.
pub(super) const fn max_entries(capacity: usize) -> u64 {
    capacity as u64 / 32
}
