//! Protocol Buffers as bytes: reads and writes fields without knowing their meaning.

use super::{Code, Status};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// A fixed-size value: no message that we read has one.
    Fixed,
    Number(u64),
}

impl<'a> Value<'a> {
    /// The text; empty if it is not text.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            _ => "",
        }
    }

    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Number(n) => n,
            _ => 0,
        }
    }
}

/// Passes each field of a message to `field`, with its number.
pub(super) fn read<'a>(message: &'a [u8], mut field: impl FnMut(u64, Value<'a>)) -> Result<(), Status> {
    let mut rest = message;
    while !rest.is_empty() {
        let (number, value) = next(&mut rest)
            .ok_or_else(|| Status::new(Code::INVALID_ARGUMENT, "the message is not Protocol Buffers"))?;
        field(number, value);
    }
    Ok(())
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = varint(rest)?;
    let value = match key & 7 {
        0 => Value::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Value::Fixed)?,
        2 => {
            let len = usize::try_from(varint(rest)?).ok()?;
            Value::Bytes(take(rest, len)?)
        }
        5 => take(rest, 4).map(|_| Value::Fixed)?,
        _ => return None, // groups are long obsolete
    };
    Some((key >> 3, value))
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        n |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(n);
        }
    }
    None
}

/// Writes a number field. Unlike proto3 it also writes zeros; the caller omits them where allowed.
pub(super) fn number(field: u64, n: u64, out: &mut Vec<u8>) {
    write_varint(field << 3, out);
    write_varint(n, out);
}

/// Writes a text, bytes or message field.
pub(super) fn bytes(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(field << 3 | 2, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a message field.
pub(super) fn message(field: u64, write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(field, &inner, out);
}

fn write_varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 128 {
        out.push((n & 127) as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u64, Value<'_>)>, Status> {
        let mut all = Vec::new();
        read(message, |number, value| all.push((number, value)))?;
        Ok(all)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        number(1, 300, &mut out);
        bytes(2, b"hello", &mut out);
        message(16, |m| number(1, u64::MAX, m), &mut out);
        assert_eq!(out[..5], [8, 0xac, 2, 0x12, 5]);
        let inner = [8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        let want = [(1, Value::Number(300)), (2, Value::Bytes(b"hello")), (16, Value::Bytes(&inner))];
        assert_eq!(fields(&out).unwrap(), want);
        assert_eq!(fields(&[0x0d, 1, 2, 3, 4, 0x11, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bad in [
            &[8][..],
            &[0x12, 5, 1],
            &[0x0b],
            &[0x0d, 1],
            &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        ] {
            assert!(fields(bad).is_err(), "{bad:?}");
        }
    }
}
