//! Fields that are made in advance, for filters that add the same ones to many messages.

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

impl Fields {
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
        self.seen |= fields.seen;
        self.entries.extend(fields.entries.iter().map(|e| e.moved(at)));
        if let Some(last) = self.entries.last_mut() {
            last.value.len += end.len() as u32;
        }
        Ok(())
    }
}

impl Entry {
    /// This range shifted by `by`, which may move it into the other buffer.
    const fn moved(self, by: u32) -> Self {
        let name = Text { at: self.name.at + by, ..self.name };
        Self { name, value: Text { at: self.value.at + by, ..self.value }, ..self }
    }
}
