//! gRPC beyond HTTP/2: status codes and message frames. This module knows no method and no schema: see `schema`.

use crate::url::unescape;
use std::time::Duration;
pub(crate) use weir_plan::grpc::{CODES, Code};
use weir_report::units::shown;

/// Parses message frames from a body that arrives in pieces: a byte for the coding, four for the length, the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    header: [u8; 5],
    /// Bytes of `header` that have arrived.
    begun: u8,
    /// Bytes of the message still to come.
    left: u32,
    /// Complete messages.
    pub(crate) count: u64,
}

/// A message is compressed although we accept no coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compressed;

impl Messages {
    /// Takes the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), Compressed> {
        let mut rest = piece;
        while let Some((&first, after)) = rest.split_first() {
            if self.left > 0 {
                let take = rest.len().min(self.left as usize);
                self.left -= take as u32;
                self.count += u64::from(self.left == 0);
                rest = rest.get(take..).unwrap_or_default();
                continue;
            }
            if let Some(byte) = self.header.get_mut(usize::from(self.begun)) {
                *byte = first;
            }
            self.begun += 1;
            rest = after;
            if self.begun == 5 {
                let [coding, len @ ..] = self.header;
                if coding != 0 {
                    return Err(Compressed);
                }
                (self.begun, self.left) = (0, u32::from_be_bytes(len));
                self.count += u64::from(self.left == 0);
            }
        }
        Ok(())
    }

    /// Whether the body ends at the end of a message.
    pub(crate) const fn is_whole(&self) -> bool {
        self.begun == 0 && self.left == 0
    }
}

/// Decodes grpc-message: resolves percent escapes, keeps it on one line and limits its length.
pub(crate) fn message(value: &[u8]) -> String {
    const MOST: usize = 512;
    let text = unescape(&String::from_utf8_lossy(value.get(..MOST).unwrap_or(value)));
    shown(text.as_bytes())
}

/// The value of grpc-timeout: up to eight digits and a unit, as exact as possible.
pub(crate) fn timeout(wait: Duration) -> String {
    const MOST: u128 = 99_999_999;
    let (ms, us) = (wait.as_millis(), wait.as_micros());
    if wait.subsec_millis() != 0 || wait.as_secs() == 0 {
        if us <= MOST {
            return format!("{us}u");
        }
        if ms <= MOST {
            return format!("{ms}m");
        }
    }
    format!("{}S", u128::from(wait.as_secs()).min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_in_any_pieces() {
        let body = b"\0\0\0\0\x02hi\0\0\0\0\0\0\0\0\0\x01x";
        for size in 1..=body.len() {
            let mut messages = Messages::default();
            for (i, piece) in body.chunks(size).enumerate() {
                messages.feed(piece).unwrap();
                let whole = [7, 12, body.len()].contains(&((i + 1) * size).min(body.len()));
                assert_eq!(messages.is_whole(), whole, "{i} pieces of {size}");
            }
            assert_eq!(messages.count, 3);
        }
        assert_eq!(Messages::default().feed(b"\x01\0\0\0\0"), Err(Compressed));
    }

    #[test]
    fn timeouts_have_eight_digits_at_most() {
        for (ms, want) in [
            (30_000, "30S"),
            (250, "250000u"),
            (99_999, "99999000u"),
            (100_001, "100001m"),
            (200_000_000_500, "99999999S"),
            (0, "0u"),
        ] {
            assert_eq!(timeout(Duration::from_millis(ms)), want);
        }
    }
}
