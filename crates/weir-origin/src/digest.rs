//! CRC-32 for `/upload`, SHA-1 and base64 for the WebSocket handshake: fifty lines each way, too few for a dependency.

/// CRC-32 as in zlib and Ethernet, so that `/upload` can be checked with common tools.
#[derive(Clone, Copy)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) const fn new() -> Self {
        Self(!0)
    }

    /// Eight bytes a step ("slicing by 8", Kounavis and Berry 2005): bytewise would be the slowest part of an upload.
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

/// SHA-1 (FIPS 180-4), which RFC 6455 §4.2.2 asks for. It protects nothing there.
pub(crate) fn sha1(message: &[u8]) -> [u8; 20] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());

    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for i in 16..80 {
            words[i] = (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, word) in words.iter().enumerate() {
            let (f, k) = match i / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*word);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (sum, word) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(word);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// Base64 with padding (RFC 4648 §4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|i| group.get(i).copied().unwrap_or(0));
        let bits = u32::from_be_bytes([0, a, b, c]);
        for digit in 0..4 {
            let filled = digit <= group.len();
            let index = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if filled { ALPHABET[index] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

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

    #[test]
    fn sha1_of_known_texts() {
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            hex(&sha1(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
        );
    }

    #[test]
    fn base64_of_known_texts() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
