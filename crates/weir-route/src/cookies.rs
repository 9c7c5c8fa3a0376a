//! The Cookie field of a request (RFC 6265 §4.2): pairs separated by semicolons, in one or several fields.

/// The pairs of these fields as written, in order.
pub fn pairs<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    fields.into_iter().flat_map(|field| field.split(|&b| b == b';'))
}

/// The name and the value of a pair.
pub fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', pair)?;
    Some((pair.get(..at)?.trim_ascii(), pair.get(at + 1..)?.trim_ascii()))
}

/// The values of a cookie, in order.
pub fn values<'a>(fields: impl IntoIterator<Item = &'a [u8]>, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    pairs(fields).filter_map(split).filter(move |(own, _)| *own == name).map(|(_, value)| value)
}
