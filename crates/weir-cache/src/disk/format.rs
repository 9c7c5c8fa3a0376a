//! The file format of an object. Checksums cover everything, so a torn write, a bad disk or another program's
//! file is never taken for an answer.
//!
//! ```text
//!   fixed, 64 bytes │ head: names, and the owner's data │ body │ a checksum for each block of the body
//! ```
//! The fixed part is written last. Until then it is all zeros, and the file is not an object. A replacement head
//! is a separate file in the same format without a body.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the fixed part.
pub(super) const FIXED: usize = 64;

/// Bytes of body per checksum.
pub(super) const BLOCK: usize = 64 * 1024;

/// Longest head, in bytes.
pub(super) const MOST_HEAD: usize = 512 * 1024;

/// Longest body, in bytes. 16 TiB exceeds any disk that this is meant for, and is far from overflowing an offset.
const MOST_BODY: u64 = 1 << 44;

/// Magic number of a file; its last byte is the version of the format.
const OBJECT: [u8; 8] = *b"weirobj\x02";
const HEAD: [u8; 8] = *b"weirhed\x02";

/// The fixed part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) head: u32,
    pub(super) body: u64,
    head_sum: u64,
    table_sum: u64,
}

/// The names of an object, as its file states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The part that all objects of one URL share.
    pub stem: Vec<u8>,
    /// The part that distinguishes objects of the same URL.
    pub extra: Vec<u8>,
    /// Which requests the object answers.
    pub variant: Vec<u8>,
    /// Hashes of the words by which the object can be purged.
    pub tags: Vec<u64>,
}

impl Fixed {
    /// The fixed part of a file with this head, body length and checksums.
    pub(super) fn new(head: &[u8], body: u64, sums: &[u64]) -> Self {
        Self {
            head: u32::try_from(head.len()).unwrap_or(u32::MAX),
            body,
            head_sum: xxh3_64(head),
            table_sum: xxh3_64(&table(sums)),
        }
    }

    /// The bytes of the fixed part; `object` distinguishes an object from a separate head.
    pub(super) fn write(&self, object: bool) -> [u8; FIXED] {
        let mut out = [0; FIXED];
        let parts: [&[u8]; 5] = [
            if object { &OBJECT } else { &HEAD },
            &u64::from(self.head).to_le_bytes(),
            &self.body.to_le_bytes(),
            &self.head_sum.to_le_bytes(),
            &self.table_sum.to_le_bytes(),
        ];
        for (place, part) in out.chunks_exact_mut(8).zip(parts) {
            place.copy_from_slice(part);
        }
        let (said, sum) = out.split_at_mut(FIXED - 8);
        sum.copy_from_slice(&xxh3_64(said).to_le_bytes());
        out
    }

    /// Parses the fixed part; `None` if it is not ours or is damaged.
    pub(super) fn read(bytes: &[u8], object: bool) -> Option<Self> {
        let bytes = bytes.first_chunk::<FIXED>()?;
        let (said, sum) = bytes.split_at(FIXED - 8);
        let number = |at: usize| Some(u64::from_le_bytes(*said.get(at * 8..)?.first_chunk::<8>()?));
        let magic = if object { OBJECT } else { HEAD };
        if said.first_chunk::<8>() != Some(&magic) || sum != xxh3_64(said).to_le_bytes() {
            return None;
        }
        let head = u32::try_from(number(1)?).ok().filter(|&head| head as usize <= MOST_HEAD)?;
        let body = number(2).filter(|&body| body <= MOST_BODY)?;
        Some(Self { head, body, head_sum: number(3)?, table_sum: number(4)? })
    }

    pub(super) fn holds_head(&self, head: &[u8]) -> bool {
        head.len() == self.head as usize && xxh3_64(head) == self.head_sum
    }

    /// Parses and verifies the checksums of the blocks, from the bytes after the body.
    pub(super) fn sums(&self, table: &[u8]) -> Option<Vec<u64>> {
        if table.len() as u64 != blocks(self.body) * 8 || xxh3_64(table) != self.table_sum {
            return None;
        }
        Some(table.chunks_exact(8).filter_map(|sum| Some(u64::from_le_bytes(*sum.first_chunk()?))).collect())
    }

    /// Offset of the body.
    pub(super) const fn body_at(&self) -> u64 {
        FIXED as u64 + self.head as u64
    }

    /// Offset of the checksums.
    pub(super) const fn table_at(&self) -> u64 {
        self.body_at() + self.body
    }

    /// Length of the file.
    pub(super) const fn file(&self) -> u64 {
        self.table_at() + blocks(self.body) * 8
    }
}

/// Number of blocks in a body.
pub(super) const fn blocks(body: u64) -> u64 {
    body.div_ceil(BLOCK as u64)
}

/// The checksum of a block.
pub(super) fn sum(block: &[u8]) -> u64 {
    xxh3_64(block)
}

/// The checksums as bytes, for the end of the file.
pub(super) fn table(sums: &[u64]) -> Vec<u8> {
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

/// Builds a head: the names, followed by the owner's data. `None` if it would exceed the limit.
pub(super) fn write_head(named: &Named, kept: &[u8]) -> Option<Vec<u8>> {
    let mut out =
        Vec::with_capacity(named.stem.len() + named.extra.len() + named.variant.len() + kept.len() + 64);
    let tags = table(&named.tags);
    for part in [&named.stem, &named.extra, &named.variant, &tags] {
        out.extend_from_slice(&u32::try_from(part.len()).ok()?.to_le_bytes());
        out.extend_from_slice(part);
    }
    out.extend_from_slice(kept);
    (out.len() <= MOST_HEAD).then_some(out)
}

/// Splits a head into its names and the owner's data.
pub(super) fn read_head(head: &[u8]) -> Option<(Named, &[u8])> {
    let mut rest = head;
    let mut part = || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(part.to_vec())
    };
    let (stem, extra, variant, tags) = (part()?, part()?, part()?, part()?);
    if tags.len() % 8 != 0 {
        return None;
    }
    let tags = tags.chunks_exact(8).filter_map(|tag| Some(u64::from_le_bytes(*tag.first_chunk()?))).collect();
    Some((Named { stem, extra, variant, tags }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Named {
        Named {
            stem: b"r\0http://a/".to_vec(),
            extra: b"\0c".to_vec(),
            variant: Vec::new(),
            tags: vec![1, u64::MAX],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let head = write_head(&named(), b"kept").unwrap();
        assert_eq!(read_head(&head), Some((named(), &b"kept"[..])));
        let sums = [7, 8];
        let fixed = Fixed::new(&head, BLOCK as u64 + 1, &sums);
        assert_eq!(Fixed::read(&fixed.write(true), true), Some(fixed));
        assert_eq!(Fixed::read(&fixed.write(true), false), None, "a head is not an object");
        assert!(fixed.holds_head(&head) && !fixed.holds_head(&head[1..]));
        assert_eq!(fixed.sums(&table(&sums)), Some(sums.to_vec()));
        assert_eq!(fixed.sums(&table(&[7])), None);
        assert_eq!(fixed.file(), 64 + head.len() as u64 + BLOCK as u64 + 1 + 16);
    }

    /// A change to any byte is detected, and nothing panics.
    #[test]
    fn any_damage_is_seen() {
        let head = write_head(&named(), b"kept").unwrap();
        let written = Fixed::new(&head, 5, &[1]).write(true);
        for at in 0..FIXED {
            let mut damaged = written;
            damaged[at] ^= 1;
            assert_eq!(Fixed::read(&damaged, true), None, "byte {at}");
            assert_eq!(Fixed::read(&written[..at], true), None, "cut at {at}");
        }
        for at in 0..head.len() {
            let _ = read_head(&head[..at]);
            let mut damaged = head.clone();
            damaged[at] ^= 0x80;
            assert!(!Fixed::new(&head, 5, &[1]).holds_head(&damaged));
            let _ = read_head(&damaged);
        }
        assert_eq!(Fixed::read(&[0; FIXED], true), None, "what was not finished");
        assert!(write_head(&named(), &vec![0; MOST_HEAD]).is_none());
    }
}
