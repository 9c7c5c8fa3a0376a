//! Protobuf as bytes: tags, lengths, numbers. Source: protobuf.dev, *Encoding*.

use std::net::IpAddr;
use std::time::SystemTime;

use super::{TEXT_BYTES, nanos};

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// Writes the fields of one message.
pub(super) struct Fields<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Fields<'o> {
    pub(super) const fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(value);
    }

    pub(super) fn fixed64(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | FIXED64);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u64, value: u32) {
        self.varint(field << 3 | FIXED32);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | LENGTH);
        self.varint(value.len() as u64);
        self.out.extend_from_slice(value);
    }

    /// A text from any source. A string must be UTF-8, or a decoder rejects the whole batch. Cut at [`TEXT_BYTES`].
    pub(super) fn text(&mut self, field: u64, value: &[u8]) {
        let kept = value.get(..TEXT_BYTES).unwrap_or(value);
        match str::from_utf8(kept) {
            Ok(text) => self.bytes(field, text.as_bytes()),
            // Cut within a character, or not UTF-8 at all.
            Err(e) if value.len() > kept.len() && e.error_len().is_none() => {
                self.bytes(field, kept.get(..e.valid_up_to()).unwrap_or_default());
            }
            Err(_) => self.bytes(field, String::from_utf8_lossy(kept).as_bytes()),
        }
    }

    /// Appends fields that are already encoded.
    pub(super) fn raw(&mut self, fields: &[u8]) {
        self.out.extend_from_slice(fields);
    }

    /// A nested message. Its length precedes it but is known only afterwards. We reserve one byte for it, and move
    /// the content if that is not enough.
    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Fields<'_>)) {
        self.varint(field << 3 | LENGTH);
        let at = self.out.len();
        self.out.push(0);
        write(&mut Fields { out: self.out });
        let mut length = (self.out.len() - at - 1) as u64;
        if length < 0x80 {
            self.out[at] = length as u8;
            return;
        }
        let mut encoded = [0u8; 10];
        let mut size = 0;
        loop {
            let byte = (length & 0x7f) as u8;
            length >>= 7;
            encoded[size] = if length > 0 { byte | 0x80 } else { byte };
            size += 1;
            if length == 0 {
                break;
            }
        }
        self.out.splice(at..=at, encoded.into_iter().take(size));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80); // the low seven bits
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}

/// Writes attributes (`KeyValue` with `AnyValue`), and the events of a span.
pub struct Attributes<'o> {
    fields: Fields<'o>,
    /// The number of the message field that holds attributes.
    field: u64,
}

impl std::fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attributes").field("field", &self.field).finish_non_exhaustive()
    }
}

impl<'o> Attributes<'o> {
    pub(super) const fn new(of: &'o mut Fields<'_>, field: u64) -> Self {
        Self { fields: Fields { out: of.out }, field }
    }

    /// A text attribute; omitted if empty.
    pub fn text(&mut self, key: &str, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        if !value.is_empty() {
            self.attribute(key, |any| any.text(1, value));
        }
    }

    /// A number attribute.
    pub fn number(&mut self, key: &str, value: u64) {
        self.attribute(key, |any| any.number(3, value.min(i64::MAX as u64)));
    }

    /// The same for a number that may be negative, as two's complement.
    pub fn integer(&mut self, key: &str, value: i64) {
        self.attribute(key, |any| any.number(3, value.cast_unsigned()));
    }

    /// A boolean attribute.
    pub fn truth(&mut self, key: &str, value: bool) {
        self.attribute(key, |any| any.number(2, value.into()));
    }

    /// An address attribute.
    pub fn address(&mut self, key: &str, value: IpAddr) {
        self.text(key, value.to_string());
    }

    /// An event of a span. Only valid within [`Span::write`](super::Span::write).
    pub fn event(&mut self, time: SystemTime, name: &str, more: impl FnOnce(&mut Attributes<'_>)) {
        self.fields.message(11, |event| {
            event.fixed64(1, nanos(time));
            event.text(2, name.as_bytes());
            more(&mut Attributes::new(event, 3));
        });
    }

    fn attribute(&mut self, key: &str, value: impl FnOnce(&mut Fields<'_>)) {
        self.fields.message(self.field, |pair| {
            pair.text(1, key.as_bytes());
            pair.message(2, value);
        });
    }
}

/// A value in its wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Bytes(&'a [u8]),
    /// A number of any width.
    Number(u64),
}

/// Reads the fields of a message from a peer; stops at the first malformed one.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tag = self.varint()?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let value = match tag & 7 {
            VARINT => Value::Number(self.varint()?),
            FIXED64 => Value::Number(number(self.take(8)?)),
            LENGTH => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED32 => Value::Number(number(self.take(4)?)),
            _ => return None, // groups are long obsolete
        };
        Some((tag >> 3, value))
    }
}
