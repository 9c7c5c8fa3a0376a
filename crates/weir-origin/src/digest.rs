//! CRC-32 for `/upload`: too few lines for a dependency.

/// CRC-32 as in zlib and Ethernet, so that `/upload` can be checked with common tools.
#[derive(Clone, Copy)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) const fn new() -> Self {
        Self(!0)
    }

    /// Eight bytes per step ("slicing by 8", Kounavis and Berry 2005): one byte at a time would be the slowest part
    /// of an upload.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let low = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) ^ crc;
            let [a, b, c, d] = low.to_le_bytes().map(usize::from);
            let [e, f, g, h] = [word[4], word[5], word[6], word[7]].map(usize::from);
            crc = TABLES[7][a] ^ TABLES[6][b] ^ TABLES[5][c] ^ TABLES[4][d];
            crc ^= TABLES[3][e] ^ TABLES[2][f] ^ TABLES[1][g] ^ TABLES[0][h];
        }
        for byte in words.remainder() {
            crc = TABLES[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
        }
        self.0 = crc;
    }

    pub(crate) const fn value(self) -> u32 {
        !self.0
    }
}

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut level = 1;
    while level < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[level - 1][byte];
            tables[level][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        level += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_of_known_texts() {
        let crc = |parts: &[&[u8]]| {
            let mut crc = Crc32::new();
            parts.iter().for_each(|part| crc.update(part));
            crc.value()
        };
        assert_eq!(crc(&[]), 0);
        assert_eq!(crc(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(crc(&[b"12345", b"6789"]), 0xcbf4_3926);
        assert_eq!(crc(&[b"The quick brown fox jumps over the lazy dog"]), 0x414f_a339);
    }
}
