//! The id of a request, by which a person who was given it finds the request in the logs.

/// An id: 128 random bits as 32 hexadecimal digits. Unique, not secret.
#[inline]
pub fn digits(halves: [u64; 2]) -> [u8; 32] {
    let mut id = [0u8; 32];
    for (half, mut bits) in id.chunks_exact_mut(16).zip(halves) {
        for digit in half {
            *digit = b"0123456789abcdef"[(bits & 15) as usize];
            bits >>= 4;
        }
    }
    id
}
