//! Fields that are made in advance, for filters that add the same ones to many messages. [`Numbered`] ones end in two
//! numbers that differ from message to message.

use super::value::{InvalidValue, VALUE_BYTES, check};
use super::{ARENA, Entry, Fields, Text, UNDERSCORE};
use crate::name::FieldName;

const LINE_END: &[u8] = b"\r\n";

/// One or more fields that are known in advance except for the end of the last value. They are validated once, looked
/// up once and appended in one copy.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The lines, each in the form `name: value CRLF`.
    text: Vec<u8>,
    /// The fields, as ranges of `text`.
    entries: Vec<Entry>,
    /// The start of the last value in `text`.
    last: usize,
    seen: u32,
}

impl Prepared {
    /// A field whose value starts with `value_begin`.
    ///
    /// # Errors
    /// When the value must not be emitted.
    pub fn new(name: &FieldName, value_begin: &[u8]) -> Result<Self, InvalidValue> {
        Self::default().and(name, value_begin)
    }

    /// Completes the last field's value, and adds a field whose value starts with `value_begin`.
    ///
    /// # Errors
    /// When the value must not be emitted.
    pub fn and(mut self, name: &FieldName, value_begin: &[u8]) -> Result<Self, InvalidValue> {
        check(value_begin)?;
        let text = name.as_str().as_bytes();
        let at = self.text.len() as u32;
        self.text.extend([text, b": ", value_begin, LINE_END].concat());
        let value = Text { at: at + text.len() as u32 + 2, len: value_begin.len() as u32 };
        let name_at = Text { at, len: text.len() as u32 };
        self.entries.push(Entry { name: name_at, value, known: name.known(), clean: true, dropped: false });
        self.last = value_begin.len();
        self.seen |= name.known().bit() | if name.has_underscore() { UNDERSCORE } else { 0 };
        Ok(self)
    }
}

/// Prepared fields whose last value ends in a number, a fixed text of at most eight bytes, and a second number. Checked
/// when they are made, so appending them cannot fail.
#[derive(Clone, Debug)]
pub struct Numbered<const N: usize> {
    /// Their text ends with [`END_BYTES`] of room in place of the end of the last line.
    fields: Prepared,
    between: [u8; N],
}

/// Room for the end of a line: two numbers of at most 20 digits, each written in three groups of eight,
/// [`BETWEEN_BYTES`] and CRLF. Together 58.
const END_BYTES: usize = 64;

/// Longest text between two numbers.
const BETWEEN_BYTES: usize = 8;

impl<const N: usize> Numbered<N> {
    /// Fields whose last value is completed by a number, `between` and a second number.
    ///
    /// # Errors
    /// When `between` must not be emitted or is longer than eight bytes, or when there is no field, or its value would
    /// become too long.
    pub fn new(mut fields: Prepared, between: [u8; N]) -> Result<Self, InvalidValue> {
        check(&between)?;
        let begin = fields.text.len().checked_sub(LINE_END.len()).ok_or(InvalidValue)?; // fails if there is no field
        if N > BETWEEN_BYTES || fields.last + END_BYTES > VALUE_BYTES {
            return Err(InvalidValue);
        }
        fields.text.truncate(begin);
        fields.text.resize(begin + END_BYTES, b'0');
        Ok(Self { fields, between })
    }
}

impl Fields {
    /// Adds prepared fields beside others of their names. The two numbers complete the last value, in decimal digits.
    pub fn append_numbered<const N: usize>(&mut self, numbered: &Numbered<N>, [first, second]: [u64; 2]) {
        let Numbered { fields, between } = numbered;
        let at = self.arena.len() as u32 | ARENA;
        // Copies the room too and then overwrites it, because its length is known to the compiler: 190 instructions
        // instead of 233 (count filters).
        self.arena.extend_from_slice(&fields.text);
        let end = self.arena.last_chunk_mut().expect("the text contains room for an end");
        let between_at = put_number(end, 0, first);
        let second_at = between_at + N;
        end[between_at..second_at].copy_from_slice(between);
        let longer = put_number(end, second_at, second);
        let used = longer + LINE_END.len();
        end[longer..used].copy_from_slice(LINE_END);
        self.arena.truncate(self.arena.len() - END_BYTES + used);
        self.take_in(fields, at, longer);
    }

    /// Adds the entries of prepared fields whose text begins at `at`; the last value is `longer` than prepared.
    #[inline]
    fn take_in(&mut self, fields: &Prepared, at: u32, longer: usize) {
        self.seen |= fields.seen;
        self.entries.extend(fields.entries.iter().map(|e| e.moved(at)));
        if let Some(last) = self.entries.last_mut() {
            last.value.len += longer as u32;
        }
    }

    /// Adds prepared fields beside others of their names; `end` completes the last value.
    ///
    /// # Errors
    /// When `end` must not be emitted, or makes the value too long. The fields stay unchanged.
    pub fn append_prepared(&mut self, fields: &Prepared, end: &[u8]) -> Result<(), InvalidValue> {
        let at = self.arena.len() as u32 | ARENA;
        if end.is_empty() {
            self.arena.extend_from_slice(&fields.text);
        } else {
            check(end)?;
            let Some((text, line_end)) = fields.text.split_last_chunk::<{ LINE_END.len() }>() else {
                return Err(InvalidValue); // there is no field whose value it could complete
            };
            if fields.last + end.len() > VALUE_BYTES {
                return Err(InvalidValue);
            }
            self.arena.reserve(fields.text.len() + end.len());
            self.arena.extend_from_slice(text);
            self.arena.extend_from_slice(end);
            self.arena.extend_from_slice(line_end);
        }
        self.take_in(fields, at, end.len());
        Ok(())
    }
}

/// The numbers of one group of eight digits.
const GROUP: u64 = 100_000_000;

/// Writes a number at `at`, eight digits at a time, and returns its end. May overwrite up to seven bytes after it.
#[inline]
fn put_number(out: &mut [u8; END_BYTES], at: usize, number: u64) -> usize {
    if number < 10 {
        out[at] = b'0' + number as u8; // the seconds until a reset mostly have one digit
        return at + 1;
    }
    if number >= GROUP {
        return put_groups(out, at, number);
    }
    let digits = u64::from_le_bytes(eight_digits(number as u32));
    let leading_zeros = ((digits ^ ZEROS) | LAST_DIGIT).trailing_zeros() / 8;
    // All eight bytes, because a copy of a fixed length is a single store.
    out[at..at + 8].copy_from_slice(&(digits >> (8 * leading_zeros)).to_le_bytes());
    at + 8 - leading_zeros as usize
}

/// The same for a number of more than eight digits.
#[cold]
fn put_groups(out: &mut [u8; END_BYTES], at: usize, number: u64) -> usize {
    let at = put_number(out, at, number / GROUP);
    out[at..at + 8].copy_from_slice(&eight_digits((number % GROUP) as u32));
    at + 8
}

/// The digit 0 eight times.
const ZEROS: u64 = u64::MAX / 255 * 0x30;

/// A bit of the last of eight digits, which is written even if it is 0.
const LAST_DIGIT: u64 = 1 << 56;

/// The digits of a number below 100,000,000. All eight are computed together: two halves of four digits, four pairs,
/// eight digits. A multiplication and a shift divide all parts at once: by 100 (10,486 / 2^20, exact below 10,000),
/// then by 10 (103 / 2^10, exact below 100). No product reaches into the next part.
#[inline]
const fn eight_digits(number: u32) -> [u8; 8] {
    let halves = (number / 10_000) as u64 | ((number % 10_000) as u64) << 32;
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (halves - hundreds * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (pairs - tens * 10) << 8;
    (digits | ZEROS).to_le_bytes()
}

impl Entry {
    /// This range shifted by `by`, which may move it into the other buffer.
    const fn moved(self, by: u32) -> Self {
        let name = Text { at: self.name.at + by, ..self.name };
        Self { name, value: Text { at: self.value.at + by, ..self.value }, ..self }
    }
}
