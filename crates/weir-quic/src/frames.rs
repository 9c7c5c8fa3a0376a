//! Looks into decrypted packets for what must be known before quinn-proto processes them.

/// Types of frames (RFC 9000 §19).
const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const RESET_STREAM: u64 = 0x04;
const STOP_SENDING: u64 = 0x05;
const CRYPTO: u64 = 0x06;
const STREAM: u64 = 0x08;
const STREAM_LAST: u64 = 0x0f;
const MAX_DATA: u64 = 0x10;
const MAX_STREAM_DATA: u64 = 0x11;
const MAX_STREAMS: u64 = 0x12;
const MAX_STREAMS_ONE_WAY: u64 = 0x13;
const DATA_BLOCKED: u64 = 0x14;
const STREAM_DATA_BLOCKED: u64 = 0x15;
const STREAMS_BLOCKED: u64 = 0x16;
const STREAMS_BLOCKED_ONE_WAY: u64 = 0x17;
const NEW_CONNECTION_ID: u64 = 0x18;
const RETIRE_CONNECTION_ID: u64 = 0x19;
const PATH_CHALLENGE: u64 = 0x1a;
const PATH_RESPONSE: u64 = 0x1b;
const CLOSE: u64 = 0x1c;
const APPLICATION_CLOSE: u64 = 0x1d;
/// Only a server sends it, and only in 1-RTT packets. The type is the whole frame.
pub(crate) const HANDSHAKE_DONE: u8 = 0x1e;
/// draft-ietf-quic-ack-frequency §4, §5.
const IMMEDIATE_ACK: u64 = 0x1f;
const ACK_FREQUENCY: u64 = 0xaf;

/// Bits of the type of a STREAM frame (RFC 9000 §19.8).
const HAS_OFFSET: u64 = 0x04;
const HAS_LENGTH: u64 = 0x02;

/// The bits of a stream's number that say who opened it, and whether it is unidirectional (RFC 9000 §2.1).
const KIND: u64 = 0x03;

/// Bytes of a stateless reset token, and of what a path is proved with.
const TOKEN: usize = 16;
const CHALLENGE: usize = 8;

/// Where the type of the first CONNECTION_CLOSE of the application is among the frames of an Initial or Handshake
/// packet. `None` also if a frame that may not be there comes first, for which quinn-proto ends the connection anyway.
pub(crate) fn application_close(frames: &[u8]) -> Option<usize> {
    let mut rest = frames;
    loop {
        let at = frames.len() - rest.len();
        let [kind] = integers(&mut rest)?;
        match kind {
            PADDING | PING => {}
            ACK | ACK_ECN => skip_ack(kind, &mut rest)?,
            CRYPTO => {
                let [_offset, len] = integers(&mut rest)?;
                skip(&mut rest, len)?;
            }
            CLOSE => {
                let [_code, _frame, len] = integers(&mut rest)?;
                skip(&mut rest, len)?;
            }
            APPLICATION_CLOSE => return Some(at),
            _ => return None,
        }
    }
}

/// Whether a 0-RTT or 1-RTT packet of a client names a bidirectional stream of the client whose index is not below
/// `room`. Looks no further than a frame that is malformed or unknown, for which quinn-proto ends the connection.
pub(crate) fn exceeds(frames: &[u8], room: u64) -> bool {
    let mut rest = frames;
    std::iter::from_fn(|| next_stream(&mut rest)).any(|stream| stream & KIND == 0 && stream >> 2 >= room)
}

/// The number of the next stream that a frame names.
fn next_stream(rest: &mut &[u8]) -> Option<u64> {
    loop {
        let [kind] = integers(rest)?;
        match kind {
            PADDING | PING | IMMEDIATE_ACK => {}
            ACK | ACK_ECN => skip_ack(kind, rest)?,
            RESET_STREAM => {
                let [stream, _code, _size] = integers(rest)?;
                return Some(stream);
            }
            STOP_SENDING | MAX_STREAM_DATA | STREAM_DATA_BLOCKED => {
                let [stream, _value] = integers(rest)?;
                return Some(stream);
            }
            STREAM..=STREAM_LAST => {
                let [stream] = integers(rest)?;
                if kind & HAS_OFFSET != 0 {
                    integers::<1>(rest)?;
                }
                if kind & HAS_LENGTH != 0 {
                    let [len] = integers(rest)?;
                    skip(rest, len)?;
                } else {
                    *rest = &[];
                }
                return Some(stream);
            }
            CRYPTO => {
                let [_offset, len] = integers(rest)?;
                skip(rest, len)?;
            }
            MAX_DATA
            | MAX_STREAMS
            | MAX_STREAMS_ONE_WAY
            | DATA_BLOCKED
            | STREAMS_BLOCKED
            | STREAMS_BLOCKED_ONE_WAY
            | RETIRE_CONNECTION_ID => {
                integers::<1>(rest)?;
            }
            NEW_CONNECTION_ID => {
                integers::<2>(rest)?;
                let (len, after) = rest.split_first()?;
                *rest = after.get(usize::from(*len) + TOKEN..)?;
            }
            PATH_CHALLENGE | PATH_RESPONSE => *rest = rest.get(CHALLENGE..)?,
            ACK_FREQUENCY => {
                integers::<4>(rest)?;
            }
            _ => return None,
        }
    }
}

fn skip_ack(kind: u64, rest: &mut &[u8]) -> Option<()> {
    let [_largest, _delay, ranges, _first] = integers(rest)?;
    for _ in 0..ranges {
        integers::<2>(rest)?;
    }
    if kind == ACK_ECN {
        integers::<3>(rest)?;
    }
    Some(())
}

fn skip(rest: &mut &[u8], len: u64) -> Option<()> {
    *rest = rest.get(usize::try_from(len).ok()?..)?;
    Some(())
}

/// Takes variable-length integers (RFC 9000 §16).
pub(crate) fn integers<const N: usize>(bytes: &mut &[u8]) -> Option<[u64; N]> {
    let mut all = [0; N];
    for value in &mut all {
        let first = *bytes.first()?;
        let (taken, rest) = bytes.split_at_checked(1 << (first >> 6))?;
        *value = taken.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        *value &= u64::MAX >> (66 - 8 * taken.len() as u32);
        *bytes = rest;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_four_lengths() {
        let mut bytes = &[
            0x25, 0x40, 0x25, 0x9d, 0x7f, 0x3e, 0x7d, 0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c, 9,
        ][..];
        assert_eq!(integers(&mut bytes), Some([37, 37, 494_878_333, 151_288_809_941_952_652]));
        assert_eq!(bytes, [9]);
        assert_eq!(integers::<1>(&mut &[0x40][..]), None);
    }

    #[test]
    fn an_application_close_is_found_where_a_frame_begins() {
        for (frames, found) in [
            (&[0x1d, 0, 0][..], Some(0)),
            (&[0, 0, 1, 0x1d, 0, 0], Some(3)),
            (&[2, 9, 0, 0, 9, 0x1d, 0, 0], Some(5)),
            (&[2, 9, 0, 1, 1, 0x1d, 0x1d, 0x1d, 0, 0], Some(7)),
            (&[3, 9, 0, 0, 9, 0x1d, 0x1d, 0x1d, 0x1d], Some(8)),
            (&[6, 0, 3, 0x1d, 0x1d, 0x1d], None),
            (&[6, 0, 3, 0x1d, 0x1d, 0x1d, 0x1d], Some(6)),
            (&[0x1c, 0, 0x1d, 1, 0x1d], None),
            (&[8, 0x1d], None),
            (&[6, 0, 9, 0x1d], None),
            (&[2, 9, 0, 0xff, 0x1d], None),
            (&[], None),
        ] {
            assert_eq!(application_close(frames), found, "{frames:x?}");
        }
    }

    #[test]
    fn a_stream_without_room_is_found_behind_every_frame() {
        let found: [(&[u8], bool); 5] = [
            (&[0x0a, 4, 1, 7], false),
            (&[0x0a, 8, 1, 7], true),
            (&[0x0a, 9, 1, 7], false),  // the server's
            (&[0x0a, 10, 1, 7], false), // unidirectional
            (&[0x0a, 11, 1, 7], false),
        ];
        let before: [&[u8]; 20] = [
            &[],
            &[0, 0, 1],
            &[2, 9, 0, 0, 9],
            &[3, 9, 0, 1, 1, 2, 2, 3, 3, 3],
            &[4, 0, 8, 8],
            &[5, 0, 8],
            &[6, 0, 3, 0x0a, 8, 1],
            &[0x0a, 0, 2, 0x0a, 8],
            &[0x0e, 0, 63, 0],
            &[0x10, 8],
            &[0x11, 0, 8],
            &[0x12, 8],
            &[0x13, 8],
            &[0x14, 8, 0x16, 8, 0x17, 8],
            &[0x15, 0, 8],
            &[0x18, 1, 0, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8],
            &[0x19, 8],
            &[0x1a, 8, 8, 8, 8, 8, 8, 8, 8, 0x1b, 8, 8, 8, 8, 8, 8, 8, 8],
            &[0x1f],
            &[0x40, 0xaf, 1, 9, 9, 9],
        ];
        for before in before {
            for (frame, is_found) in found {
                let frames = [before, frame].concat();
                assert_eq!(exceeds(&frames, 2), is_found, "{frames:x?}");
            }
        }
        for (frames, is_found) in [
            (&[0x08, 8][..], true),
            (&[0x0c, 8, 9], true),
            (&[0x08, 4, 0x08, 8], false), // data to the end of the packet
            (&[4, 8, 0, 0], true),
            (&[5, 8, 0], true),
            (&[0x11, 8, 0], true),
            (&[0x15, 12, 0], true),
            (&[0x30, 0x0a, 8, 1, 7], false), // DATAGRAM, which we allow nobody
            (&[0x0a, 4, 9, 0x0a, 8, 1, 7], false), // longer than the packet
            (&[0x40], false),
        ] {
            assert_eq!(exceeds(frames, 2), is_found, "{frames:x?}");
        }
    }
}
