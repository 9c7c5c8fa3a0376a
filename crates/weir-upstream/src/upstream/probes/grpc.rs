//! The messages of `grpc.health.v1` as bytes: one field each way, so that no Protocol Buffers library is needed.
//!
//! Source: "GRPC Health Checking Protocol" (health-checking.md) of the gRPC project; "Encoding" of Protocol Buffers.

/// The path of the request.
pub(super) const PATH: &str = "/grpc.health.v1.Health/Check";

/// Longest answer, in bytes. A regular one has seven.
pub(super) const ANSWER_BYTES: usize = 4 * 1024;

/// `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;

/// `HealthCheckRequest { service }` as one gRPC message.
pub(super) fn question(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a); // field 1, a text
        write_number(service.len() as u64, &mut message);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0]; // not compressed
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

/// Reads an answer.
///
/// # Errors
/// The service does not serve, or the answer is invalid, as text.
pub(super) fn judge(body: &[u8]) -> Result<(), String> {
    match status(body) {
        Some(SERVING) => Ok(()),
        Some(0) => Err("it does not know whether it serves".to_owned()),
        Some(2) => Err("it says NOT_SERVING".to_owned()),
        Some(3) => Err("it does not know the service".to_owned()),
        Some(other) => Err(format!("it reports {other}, which is not a status")),
        None => Err("its answer is not a HealthCheckResponse".to_owned()),
    }
}

/// The status of a `HealthCheckResponse`; 0 if it is omitted.
fn status(body: &[u8]) -> Option<u64> {
    let (flag, rest) = body.split_first()?;
    let (length, mut message) = rest.split_first_chunk::<4>()?;
    if *flag != 0 || u32::from_be_bytes(*length) as usize != message.len() {
        return None;
    }
    let mut status = 0;
    while !message.is_empty() {
        let tag = read_number(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = read_number(&mut message)?,
            (_, 0) => drop(read_number(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(read_number(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

/// A varint: seven bits per byte, least significant first.
fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn write_number(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("a.B"), *b"\0\0\0\0\x05\x0a\x03a.B");
        let long = question(&"s".repeat(300));
        assert_eq!(long[..8], *b"\0\0\0\x01\x2f\x0a\xac\x02");
    }

    #[test]
    fn answers() {
        for (body, serving) in [
            (&b"\0\0\0\0\x02\x08\x01"[..], true),
            (b"\0\0\0\0\x02\x08\x02", false),
            (b"\0\0\0\0\x02\x08\x03", false),
            (b"\0\0\0\0\x00", false),
            (b"\0\0\0\0\x04\x10\x05\x08\x01", true),
            (b"\0\0\0\0\x05\x12\x01x\x08\x01", true),
            (b"\x01\0\0\0\x02\x08\x01", false),
            (b"\0\0\0\0\x03\x08\x01", false),
            (b"\0\0\0\0\x02\x08\x81", false),
            (b"\0\0\0\0\x02\x0b\x01", false),
            (b"\0\0\0\0\x02\x12\x7f", false),
            (b"\0\0\0", false),
            (b"", false),
        ] {
            assert_eq!(judge(body).is_ok(), serving, "{body:?}");
        }
        let endless = [&b"\0\0\0\0\x0c\x08"[..], &[0xff; 11]].concat();
        assert!(judge(&endless).is_err());
    }
}
