//! The name in a TLS ClientHello (SNI), read from the bytes before anything decides who ends TLS.
//!
//! It knows bytes only, keeps nothing and never fails on what it does not know: extensions, ciphers and versions of
//! GREASE (RFC 8701) are passed over. With Encrypted Client Hello the outer name counts: it is the one in the clear.
//! What breaks a rule of TLS is [`Hello::NotTls`]: whoever serves the connection then refuses it.
//!
//! Sources: RFC 9846 §4.1.2 and §5.1 (which follow RFC 8446), RFC 6066 §3.

/// Longest ClientHello that is read, with the headers of its records. Clients with post-quantum keys send 1.8 KiB; a
/// certificate cannot be in it.
pub const HELLO_BYTES: usize = 16 * 1024;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// A ClientHello for this name: in lower case, without a final dot, a valid DNS name.
    Name(String),
    /// A ClientHello without a name, or with one that is no DNS name.
    None,
    /// No TLS.
    NotTls,
    /// Perhaps a ClientHello. It is not decided before there are this many bytes.
    More(usize),
    /// A ClientHello longer than [`HELLO_BYTES`].
    TooLong,
}

/// The type of a record with handshake messages, and of the message ClientHello.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// The extension `server_name` and its only type of name.
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Longest content of a record (RFC 9846 §5.1).
const RECORD_BYTES: usize = 1 << 14;

/// The headers of a record and of a handshake message.
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;

/// Longest DNS name, without its final dot (RFC 1035 §2.3.4).
const NAME_BYTES: usize = 253;

/// Reads the name from the first bytes of a connection.
pub fn server_name(bytes: &[u8]) -> Hello {
    let message = match message(bytes) {
        Ok(message) => message,
        Err(other) => return other,
    };
    match name_in(&message) {
        Some(Some(name)) => host_name(name).map_or(Hello::None, Hello::Name),
        Some(None) => Hello::None,
        None => Hello::NotTls,
    }
}

/// The ClientHello without its header, put together from its records.
fn message(bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    let more = |needed: usize| if needed > HELLO_BYTES { Hello::TooLong } else { Hello::More(needed) };
    let mut message: Vec<u8> = Vec::new();
    let mut at = 0;
    loop {
        let header = bytes.get(at..).unwrap_or_default();
        // A wrong byte decides as soon as it is there: the client may wait for an answer to it.
        let is_tls = [HANDSHAKE, 3].iter().zip(header).all(|(expected, byte)| expected == byte);
        if !is_tls {
            return Err(Hello::NotTls);
        }
        let Some(&[_, _, _, high, low]) = header.get(..RECORD_HEADER) else {
            // Its next byte may be a wrong one.
            let is_too_long = at + RECORD_HEADER > HELLO_BYTES;
            return Err(if is_too_long { Hello::TooLong } else { Hello::More(bytes.len() + 1) });
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 || length > RECORD_BYTES {
            return Err(Hello::NotTls);
        }
        let start = at + RECORD_HEADER;
        let content = bytes.get(start..(start + length).min(bytes.len())).unwrap_or_default();
        message.extend_from_slice(content);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Hello::NotTls);
        }
        let size = match message.get(..MESSAGE_HEADER) {
            Some(&[_, high, middle, low]) => {
                Some(MESSAGE_HEADER + u32::from_be_bytes([0, high, middle, low]) as usize)
            }
            _ => None,
        };
        if let Some(size) = size {
            if at + RECORD_HEADER + size.saturating_sub(message.len() - content.len()) > HELLO_BYTES {
                return Err(Hello::TooLong);
            }
            if message.len() >= size {
                message.truncate(size);
                message.drain(..MESSAGE_HEADER);
                return Ok(message);
            }
        }
        if content.len() < length {
            let missing = size.map_or(1, |size| size - message.len()).min(length - content.len());
            return Err(more(bytes.len() + missing));
        }
        at = start + length;
    }
}

/// The name in a ClientHello: `None` if it breaks a rule.
fn name_in(message: &[u8]) -> Option<Option<&[u8]>> {
    let mut rest = message;
    take(&mut rest, 2 + 32)?; // version and random
    let session = take_short(&mut rest)?;
    let ciphers = take_long(&mut rest)?;
    let compressions = take_short(&mut rest)?;
    if session.len() > 32 || ciphers.is_empty() || ciphers.len() % 2 != 0 || compressions.is_empty() {
        return None;
    }
    if rest.is_empty() {
        return Some(None); // a client of TLS 1.2 may send no extensions
    }
    let mut extensions = take_long(&mut rest)?;
    if !rest.is_empty() {
        return None;
    }
    let mut list = None;
    while !extensions.is_empty() {
        let kind = take(&mut extensions, 2)?;
        let content = take_long(&mut extensions)?;
        // Two of a kind are forbidden: we and whoever ends TLS might read different ones.
        if kind == SERVER_NAME.to_be_bytes() && list.replace(content).is_some() {
            return None;
        }
    }
    let Some(mut list) = list else { return Some(None) };
    let mut names = take_long(&mut list)?;
    if !list.is_empty() || names.is_empty() {
        return None;
    }
    let mut found = None;
    while !names.is_empty() {
        let kind = take(&mut names, 1)?;
        let name = take_long(&mut names)?; // a name of any type begins with its length
        if kind == [HOST_NAME] && found.replace(name).is_some() {
            return None;
        }
    }
    Some(found)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// A value behind its length in one byte.
fn take_short<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take(rest, 1)?.first().copied()?;
    take(rest, length.into())
}

/// A value behind its length in two bytes.
fn take_long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length: [u8; 2] = take(rest, 2)?.try_into().ok()?;
    take(rest, u16::from_be_bytes(length).into())
}

/// The name in the form in which names are compared; `None` if it is no DNS name. Addresses are none (RFC 6066 §3).
fn host_name(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_label = |label: &[u8]| {
        (1..=63).contains(&label.len())
            && label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_')
    };
    if name.len() > NAME_BYTES || !name.split(|b| *b == b'.').all(is_label) {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    name.parse::<std::net::Ipv4Addr>().is_err().then_some(name)
}

#[cfg(test)]
mod tests;
