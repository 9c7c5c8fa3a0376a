//! The Protocol Buffers wire format: reads and writes the fields of a message.
//!
//! Source: "Encoding" of the Protocol Buffers documentation.

/// A value in its wire format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A text, bytes, a message, or packed elements.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
    /// Eight bytes.
    Fixed64(u64),
    /// The content between the tags of a group.
    Group(&'a [u8]),
    /// A number, a boolean or an enum.
    Varint(u64),
}

pub(crate) const VARINT: u8 = 0;
pub(crate) const FIXED64: u8 = 1;
/// The wire type of bytes.
pub const BYTES: u8 = 2;
pub(crate) const GROUP: u8 = 3;
pub(crate) const GROUP_END: u8 = 4;
pub(crate) const FIXED32: u8 = 5;

/// Deepest nesting of groups. Source: the recursion limit of most libraries.
const GROUPS: usize = 100;

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads a varint from the front.
///
/// # Errors
/// It does not end, or is too large.
pub fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0u64;
    for at in 0..10 {
        let (&byte, after) = rest.split_first().ok_or(Malformed)?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return if at == 9 && byte > 1 { Err(Malformed) } else { Ok(number) };
        }
    }
    Err(Malformed)
}

/// Reads a field from the front: its number and its value.
///
/// # Errors
/// What follows is no field.
pub fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Value<'a>), Malformed> {
    let (number, wire) = key(rest)?;
    let value = match wire {
        GROUP => Value::Group(group(rest, number)?),
        _ => value(rest, wire)?,
    };
    Ok((number, value))
}

fn key(rest: &mut &[u8]) -> Result<(u32, u8), Malformed> {
    let key = u32::try_from(varint(rest)?).map_err(|_| Malformed)?;
    let number = key >> 3;
    if number == 0 { Err(Malformed) } else { Ok((number, (key & 7) as u8)) }
}

fn value<'a>(rest: &mut &'a [u8], wire: u8) -> Result<Value<'a>, Malformed> {
    Ok(match wire {
        VARINT => Value::Varint(varint(rest)?),
        FIXED64 => Value::Fixed64(u64::from_le_bytes(chunk(rest)?)),
        FIXED32 => Value::Fixed32(u32::from_le_bytes(chunk(rest)?)),
        BYTES => {
            let length = usize::try_from(varint(rest)?).map_err(|_| Malformed)?;
            let (bytes, after) = rest.split_at_checked(length).ok_or(Malformed)?;
            *rest = after;
            Value::Bytes(bytes)
        }
        _ => return Err(Malformed),
    })
}

fn chunk<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or(Malformed)?;
    *rest = after;
    Ok(*bytes)
}

/// The content of an open group up to its end tag.
fn group<'a>(rest: &mut &'a [u8], number: u32) -> Result<&'a [u8], Malformed> {
    let all = *rest;
    let mut open = vec![number];
    loop {
        let before = rest.len();
        let (number, wire) = key(rest)?;
        match wire {
            GROUP if open.len() < GROUPS => open.push(number),
            GROUP_END => {
                if open.pop() != Some(number) {
                    return Err(Malformed);
                }
                if open.is_empty() {
                    return all.get(..all.len() - before).ok_or(Malformed);
                }
            }
            _ => {
                value(rest, wire)?;
            }
        }
    }
}

/// The elements of a packed field.
pub(crate) struct Packed<'a> {
    rest: &'a [u8],
    wire: u8,
}

impl<'a> Packed<'a> {
    pub(crate) const fn new(bytes: &'a [u8], wire: u8) -> Self {
        Self { rest: bytes, wire }
    }
}

impl<'a> Iterator for Packed<'a> {
    type Item = Result<Value<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let next = value(&mut self.rest, self.wire);
        if next.is_err() {
            self.rest = &[];
        }
        Some(next)
    }
}

pub(crate) fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number as u8 & 0x7f) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes the number and the wire type of a field.
pub fn write_key(number: u32, wire: u8, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | u64::from(wire), out);
}

/// Writes a bytes field.
pub fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_key(number, BYTES, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a number field.
pub fn write_number(number: u32, value: u64, out: &mut Vec<u8>) {
    write_key(number, VARINT, out);
    write_varint(value, out);
}

/// Reserves room for the length of what follows; [`close`] writes it.
#[must_use]
pub fn open(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len()
}

/// Writes the length of everything after `begun`, which [`open`] returned. Most lengths fit into the reserved byte;
/// for a longer one, the content moves.
pub fn close(begun: usize, out: &mut Vec<u8>) {
    let length = out.len() - begun;
    if let (Ok(short @ 0..0x80), Some(byte)) = (u8::try_from(length), out.get_mut(begun - 1)) {
        *byte = short;
        return;
    }
    let mut written = Vec::with_capacity(10);
    write_varint(length as u64, &mut written);
    out.splice(begun - 1..begun, written);
}

pub(crate) const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(crate) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_there_and_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            write_varint(number, &mut out);
            assert_eq!(varint(&mut &out[..]), Ok(number));
        }
        for number in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        for bad in [&b""[..], b"\x80", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", &[0x80; 11]] {
            assert_eq!(varint(&mut &bad[..]), Err(Malformed), "{bad:?}");
        }
    }

    #[test]
    fn lengths_of_any_size() {
        for length in [0usize, 1, 127, 128, 16383, 16384, 3_000_000] {
            let mut out = b"before".to_vec();
            let begun = open(&mut out);
            out.resize(begun + length, b'x');
            close(begun, &mut out);
            let mut rest = &out[6..];
            assert_eq!(varint(&mut rest), Ok(length as u64));
            assert_eq!(rest.len(), length);
        }
    }

    #[test]
    fn groups_end_where_they_say() {
        let mut rest = &b"\x0b\x10\x01\x13\x08\x05\x14\x0c\x18\x07"[..];
        assert_eq!(field(&mut rest), Ok((1, Value::Group(b"\x10\x01\x13\x08\x05\x14"))));
        assert_eq!(field(&mut rest), Ok((3, Value::Varint(7))));
        for bad in [&b"\x0b"[..], b"\x0b\x14", b"\x0c", b"\x0b\x10", &[0x0b; 200]] {
            assert_eq!(field(&mut &bad[..]), Err(Malformed), "{bad:?}");
        }
    }

    #[test]
    fn fields_that_are_none() {
        for bad in [
            &b"\x00\x01"[..],
            b"\x0a\x05abc",
            b"\x0d\x01",
            b"\x09\x01",
            b"\x0e",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        ] {
            assert_eq!(field(&mut &bad[..]), Err(Malformed), "{bad:?}");
        }
    }
}
