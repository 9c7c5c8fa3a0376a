//! The text of a query, as conditions compare it.

/// Decodes a query's text: escapes are decoded, and `+` is a space, as in forms. A bad escape stands for itself.
pub(super) fn decoded(text: &[u8]) -> impl Iterator<Item = u8> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *text.get(at)?;
        at += 1;
        let digit = |at: usize| Some((*text.get(at)? as char).to_digit(16)? as u8);
        match byte {
            b'+' => Some(b' '),
            b'%' => match (digit(at), digit(at + 1)) {
                (Some(high), Some(low)) => {
                    at += 2;
                    Some(high << 4 | low)
                }
                _ => Some(b'%'),
            },
            _ => Some(byte),
        }
    })
}
