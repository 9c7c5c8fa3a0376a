//! PEM (RFC 7468): blocks of Base64 between lines with a label.

use super::base64;

/// All blocks of a text, each with its label and its bytes.
pub(crate) fn blocks(bytes: &[u8]) -> Result<Vec<(&str, Vec<u8>)>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let mut blocks = Vec::new();
    for block in text.split("-----BEGIN ").skip(1) {
        let (label, rest) = block.split_once("-----").ok_or("a PEM block has no end")?;
        let (body, _) = rest.split_once(&format!("-----END {label}-----")).ok_or("a PEM block has no end")?;
        let digits: Vec<u8> = body.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        blocks.push((label, base64::decode(&digits).ok_or("a PEM block is not base64")?));
    }
    Ok(blocks)
}
