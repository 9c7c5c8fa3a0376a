//! Frames on a connection: four bytes of length, one of kind, then JSON or a piece of a file.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of a message to an agent: a plan with all that it names on the command line.
pub const TO_AGENT_MOST: usize = 16 << 20;

/// Most bytes of a message from an agent: a report with every histogram of a thousand steps.
pub const FROM_AGENT_MOST: usize = 64 << 20;

/// Bytes of a file in one frame.
pub const PIECE_BYTES: usize = 1 << 20;

/// Length and kind.
pub const HEAD_BYTES: usize = 5;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message in JSON.
    Message,
    /// A piece of a file.
    Piece,
}

/// The head of a frame: what follows, and how many bytes.
///
/// # Errors
/// More bytes than `most` for a message or [`PIECE_BYTES`] for a piece, or an unknown kind.
pub fn head(bytes: [u8; HEAD_BYTES], most: usize) -> Result<(Kind, usize), String> {
    let [a, b, c, d, kind] = bytes;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    let (kind, most) = match kind {
        0 => (Kind::Message, most),
        1 => (Kind::Piece, PIECE_BYTES),
        other => return Err(format!("a frame of the unknown kind {other}")),
    };
    if length > most {
        return Err(format!("a frame of {length} bytes, where at most {most} are allowed"));
    }
    Ok((kind, length))
}

/// A frame with a message.
///
/// # Errors
/// The message is longer than `most` bytes.
pub fn message(message: &impl Serialize, most: usize) -> Result<Vec<u8>, String> {
    let mut frame = vec![0; HEAD_BYTES];
    serde_json::to_writer(&mut frame, message).map_err(|e| e.to_string())?;
    let length = frame.len() - HEAD_BYTES;
    match u32::try_from(length) {
        Ok(written) if length <= most => {
            frame.splice(..4, written.to_be_bytes());
            Ok(frame)
        }
        _ => Err(format!("a message of {length} bytes, where at most {most} are allowed")),
    }
}

/// A frame with a piece of a file, of at most [`PIECE_BYTES`].
pub fn piece(bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + bytes.len());
    frame.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.push(1);
    frame.extend_from_slice(bytes);
    frame
}

/// Reads a message.
///
/// # Errors
/// It is none.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|e| format!("not a message: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Stop, ToAgent};

    #[test]
    fn a_message_comes_back_and_limits_hold() {
        let said = ToAgent::Beat { stop: Some(Stop::Now) };
        let frame = message(&said, 100).unwrap();
        let (head_bytes, body) = frame.split_first_chunk::<HEAD_BYTES>().unwrap();
        assert_eq!(head(*head_bytes, 100), Ok((Kind::Message, body.len())));
        assert_eq!(read::<ToAgent>(body), Ok(said.clone()));
        assert!(message(&said, 10).is_err());
        assert!(head(*head_bytes, 10).unwrap_err().contains("at most 10"));
        assert!(head([0, 0, 0, 1, 2], 10).is_err());
        assert!(head([255, 255, 255, 255, 1], usize::MAX).is_err());
        assert_eq!(piece(b"ab"), [0, 0, 0, 2, 1, b'a', b'b']);
        assert!(read::<ToAgent>(br#"{"beat":{"stop":null,"x":1}}"#).is_err());
        assert!(read::<ToAgent>(br#"{"run_this":{}}"#).is_err());
    }
}
