//! The protocol between nodes and their coordinator: frames over one TCP connection, each with its length in four
//! bytes, then its kind and content. Numbers are big-endian.
//!
//! ```text
//!   node ◄── Hello(nonce) ── coordinator
//!        ── Proof(HMAC of the nonce) ──►        closes the connection without the term's secret, which is in etcd
//!        ◄── Pong(gateways) ──
//!        ── Ask(id, request) · Ping ──►
//!        ◄── Answer(id, numbers) · Pong(gateways) ──
//! ```

use super::ledger::{Asked, KEY_BYTES, LIMITS, Limit};
use sha2::{Digest as _, Sha256};

/// Longest frame, in bytes, excluding its length.
pub const FRAME_BYTES: usize = KEY_BYTES + 512;

/// Most numbers in a response.
const NUMBERS: usize = 4 + 2 * LIMITS;

/// A number that is used once.
pub type Nonce = [u8; 16];

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The coordinator's first message.
    Hello(Nonce),
    /// The node's first message: [`proof`] of the nonce.
    Proof([u8; 32]),
    /// A request, with a number that its response repeats.
    Ask(u64, Asked),
    /// A response; `None` if the coordinator has none.
    Answer(u64, Option<Vec<i64>>),
    /// A liveness check.
    Ping,
    /// Its answer, with the number of gateways that share the limits.
    Pong(u32),
}

/// Not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// HMAC-SHA-256 of the nonce, by a secret (RFC 2104).
pub fn proof(secret: &str, nonce: &Nonce) -> [u8; 32] {
    const BLOCK: usize = 64;
    let short: Vec<u8> =
        if secret.len() > BLOCK { Sha256::digest(secret).to_vec() } else { secret.as_bytes().to_vec() };
    let pad = |with: u8| -> Vec<u8> {
        (0..BLOCK).map(|at| short.get(at).copied().unwrap_or_default() ^ with).collect()
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(nonce).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

/// Compares two proofs in constant time.
pub fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

impl Frame {
    /// Appends the encoded frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 4]);
        match self {
            Self::Hello(nonce) => {
                out.push(0);
                out.extend(nonce);
            }
            Self::Proof(proof) => {
                out.push(1);
                out.extend(proof);
            }
            Self::Ask(id, asked) => {
                out.push(2);
                out.extend(id.to_be_bytes());
                write_asked(asked, out);
            }
            Self::Answer(id, numbers) => {
                out.push(3);
                out.extend(id.to_be_bytes());
                let numbers = numbers.as_deref().unwrap_or_default();
                numbers.iter().take(NUMBERS).for_each(|number| out.extend(number.to_be_bytes()));
            }
            Self::Ping => out.push(4),
            Self::Pong(gateways) => {
                out.push(5);
                out.extend(gateways.to_be_bytes());
            }
        }
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX); // too long: the peer refuses it
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Decodes the next frame; `None` if part of it is missing.
    ///
    /// # Errors
    /// If it is invalid, or longer than [`FRAME_BYTES`].
    pub fn take(bytes: &mut &[u8]) -> Result<Option<Self>, Malformed> {
        let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Malformed)?;
        if length > FRAME_BYTES {
            return Err(Malformed);
        }
        let Some((frame, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        *bytes = rest;
        Self::read(frame).map(Some).ok_or(Malformed)
    }

    fn read(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        let mut rest = Rest(rest);
        let frame = match kind {
            0 => Self::Hello(rest.array()?),
            1 => Self::Proof(rest.array()?),
            2 => Self::Ask(rest.u64()?, read_asked(&mut rest)?),
            3 => {
                let id = rest.u64()?;
                let mut numbers = Vec::new();
                while !rest.0.is_empty() {
                    numbers.push(i64::from_be_bytes(rest.array()?));
                }
                let fits = numbers.len() <= NUMBERS;
                Self::Answer(id, (!numbers.is_empty()).then_some(numbers)).only_if(fits)?
            }
            4 => Self::Ping,
            5 => Self::Pong(rest.u32()?),
            _ => return None,
        };
        frame.only_if(rest.0.is_empty())
    }

    fn only_if(self, holds: bool) -> Option<Self> {
        holds.then_some(self)
    }
}

fn write_asked(asked: &Asked, out: &mut Vec<u8>) {
    let length = asked.key.len().min(KEY_BYTES);
    out.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(asked.key.iter().take(length));
    out.extend(asked.owed.to_be_bytes());
    out.extend(asked.want.to_be_bytes());
    out.extend(asked.cost.to_be_bytes());
    for limit in asked.limits.iter().take(LIMITS) {
        out.extend(limit.requests.to_be_bytes());
        out.extend(limit.micros.to_be_bytes());
        out.extend(limit.burst.to_be_bytes());
    }
}

fn read_asked(rest: &mut Rest<'_>) -> Option<Asked> {
    let length = usize::from(u16::from_be_bytes(rest.array()?));
    let key = rest.bytes(length)?.to_vec();
    let (owed, want, cost) = (i64::from_be_bytes(rest.array()?), rest.u32()?, rest.u32()?);
    let mut asked = Asked { key, owed, want, cost, limits: smallvec::SmallVec::new() };
    while !rest.0.is_empty() {
        let limit = Limit { requests: rest.u32()?, micros: rest.u64()?, burst: rest.u32()? };
        asked.limits.push(limit);
    }
    let sound = asked.key.len() <= KEY_BYTES && asked.limits.len() <= LIMITS;
    sound.then_some(asked)
}

/// The unread bytes.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(key: Vec<u8>) -> Asked {
        let limit = Limit { requests: 100, micros: 1_000_000, burst: 50 };
        Asked { key, owed: -3, want: 5, cost: 1, limits: [limit; 3].into_iter().collect() }
    }

    fn all() -> Vec<Frame> {
        vec![
            Frame::Hello([7; 16]),
            Frame::Proof([9; 32]),
            Frame::Ask(u64::MAX, asked(vec![0xff; KEY_BYTES])),
            Frame::Ask(1, asked(Vec::new())),
            Frame::Answer(2, None),
            Frame::Answer(3, Some(vec![i64::MIN; NUMBERS])),
            Frame::Ping,
            Frame::Pong(3),
        ]
    }

    #[test]
    fn frames_there_and_back_however_they_are_cut() {
        let mut bytes = Vec::new();
        all().iter().for_each(|frame| frame.write(&mut bytes));
        let mut rest = bytes.as_slice();
        for frame in all() {
            assert_eq!(Frame::take(&mut rest), Ok(Some(frame)));
        }
        assert!(rest.is_empty());
        let mut first = Vec::new();
        all()[2].write(&mut first);
        for end in 0..first.len() {
            let mut part = &first[..end];
            assert_eq!(Frame::take(&mut part), Ok(None), "{end}");
            assert_eq!(part.len(), end, "nothing is taken of a part");
        }
    }

    #[test]
    fn what_is_no_frame() {
        let frame = |body: &[u8]| [&u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
        for bytes in [
            frame(&[]),
            frame(&[9]),
            frame(&[4, 0]),
            frame(&[0, 1, 2]),
            frame(&[3, 0, 0, 0, 0, 0, 0, 0, 1, 5]),
            frame(&[&[3][..], &[0; 8 + 8 * (NUMBERS + 1)]].concat()),
            frame(&[&[2][..], &[0; 8], &[0xff, 0xff], &[0; 16]].concat()),
            frame(&[&[2][..], &[0; 8], &[0, 0], &[0; 16], &[0; 16 * (LIMITS + 1)]].concat()),
            vec![0, 0x10, 0, 0],
            vec![0xff; 8],
        ] {
            assert_eq!(Frame::take(&mut bytes.as_slice()), Err(Malformed), "{bytes:?}");
        }
    }

    /// Computed by Python's hmac.
    #[test]
    fn proofs() {
        let shown = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            shown(proof("Jefe", b"what do ya want ")),
            "b4f901c96804e22a9b5e2e9d945c655c01d5987121cec6f55ff5f5beaed22e4f"
        );
        assert_eq!(
            shown(proof(&"k".repeat(100), &[0; 16])),
            "59faa5707f39cd966bc4b7aa333865ede5ea622d0949d2cb47e53d6d6c96f7fa"
        );
        assert!(is_same(&[1; 32], &[1; 32]));
        let mut other = [1; 32];
        other[31] = 0;
        assert!(!is_same(&[1; 32], &other));
    }
}
