//! Archives of regular files in the ustar format (POSIX.1-1988, `pax` §ustar), as `tar --format=ustar` writes them.
//! Refuses everything that could lead out of a folder, such as a link or a device.

use crate::bundle::Wrong;
use std::collections::BTreeMap;

/// The unit of an archive.
const BLOCK: usize = 512;

/// The longest name, and the longest prefix, which is joined to it with a slash.
const NAME: usize = 100;
const PREFIX: usize = 155;

/// An archive of these files. It depends on nothing else, such as its author or the time.
pub(crate) fn write(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, Wrong> {
    let mut out = Vec::new();
    for (path, content) in files {
        let (prefix, name) = split(path).ok_or_else(|| Wrong::PathTooLong(path.clone()))?;
        let mut head = [0; BLOCK];
        put(&mut head, 0, name.as_bytes());
        put(&mut head, 100, b"0000644\0");
        put(&mut head, 108, b"0000000\0");
        put(&mut head, 116, b"0000000\0");
        put(&mut head, 124, format!("{:011o}\0", content.len()).as_bytes());
        put(&mut head, 136, b"00000000000\0");
        put(&mut head, 148, b"        ");
        put(&mut head, 156, b"0");
        put(&mut head, 257, b"ustar\x0000");
        put(&mut head, 345, prefix.as_bytes());
        let sum = sum(&head);
        put(&mut head, 148, format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

fn put(head: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
    head.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
}

/// The checksum of a header: the sum of its bytes, with its own field counted as spaces.
fn sum(head: &[u8]) -> u64 {
    let own = 148..156;
    head.iter()
        .enumerate()
        .map(|(at, b)| if own.contains(&at) { u64::from(b' ') } else { u64::from(*b) })
        .sum()
}

/// Splits a path at a slash, so that both parts fit.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= NAME {
        return Some(("", path));
    }
    let fits = |at: &usize| *at <= PREFIX && path.len() - at - 1 <= NAME;
    let at = path.match_indices('/').map(|(at, _)| at).find(fits)?;
    Some((path.get(..at)?, path.get(at + 1..)?))
}

/// Reads an archive. Calls `keep` for each file before keeping it, with its length.
pub(crate) fn read(
    archive: &[u8],
    mut keep: impl FnMut(&str, &[u8]) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let mut rest = archive;
    loop {
        let Some((head, behind)) = rest.split_at_checked(BLOCK) else {
            return Err(Wrong::NotAnArchive("it ends in the middle"));
        };
        if head.iter().all(|b| *b == 0) {
            return Ok(());
        }
        let entry = Entry::of(head)?;
        let padded = entry.length.next_multiple_of(BLOCK);
        let Some((body, behind)) = behind.split_at_checked(padded) else {
            return Err(Wrong::NotAnArchive("a file in it ends in the middle"));
        };
        rest = behind;
        match entry.kind {
            b'0' | 0 => keep(&entry.path, body.get(..entry.length).unwrap_or_default())?,
            // A folder: the folders of files are created anyway. Or a global comment, as `git archive` writes.
            b'5' | b'g' => {}
            b'x' | b'L' | b'K' => return Err(Wrong::NotAnArchive("it is not in the ustar format")),
            _ => return Err(Wrong::NotAFile(entry.path)),
        }
    }
}

struct Entry {
    path: String,
    length: usize,
    kind: u8,
}

impl Entry {
    fn of(head: &[u8]) -> Result<Self, Wrong> {
        let field = |at: usize, length: usize| head.get(at..at + length).unwrap_or_default();
        let octal =
            |at, length| number(field(at, length)).ok_or(Wrong::NotAnArchive("a number in it is wrong"));
        if octal(148, 8)? != sum(head) {
            return Err(Wrong::NotAnArchive("a checksum in it is wrong"));
        }
        let text = |at, length| {
            let bytes = field(at, length).split(|b| *b == 0).next().unwrap_or_default();
            std::str::from_utf8(bytes).map_err(|_| Wrong::NotAnArchive("a name in it is not UTF-8"))
        };
        let (name, prefix) =
            (text(0, NAME)?, if field(257, 5) == b"ustar" { text(345, PREFIX)? } else { "" });
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        let length =
            usize::try_from(octal(124, 12)?).map_err(|_| Wrong::NotAnArchive("a number in it is wrong"))?;
        if length > crate::bundle::FILE_BYTES {
            return Err(Wrong::FileTooLarge(path));
        }
        let kind = field(156, 1).first().copied().unwrap_or_default();
        Ok(Self { path, length: if kind == b'5' { 0 } else { length }, kind })
    }
}

/// An octal number, surrounded by spaces and NULs.
fn number(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}
