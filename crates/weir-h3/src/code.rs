//! Error codes of HTTP/3 (RFC 9114 §8.1) and QPACK (RFC 9204 §8.3). Codes end connections and streams alike.

/// No error.
pub const NO_ERROR: u64 = 0x100;
/// A broken rule that has no code of its own.
pub const GENERAL_PROTOCOL: u64 = 0x101;
/// An error of ours.
pub const INTERNAL: u64 = 0x102;
/// A stream that the peer may not open.
pub const STREAM_CREATION: u64 = 0x103;
/// A stream ended that must live as long as the connection.
pub const CLOSED_CRITICAL: u64 = 0x104;
/// A frame that has no place on its stream, or none yet.
pub const FRAME_UNEXPECTED: u64 = 0x105;
/// A frame of the wrong length or form.
pub const FRAME: u64 = 0x106;
/// The peer causes more work than any honest peer does.
pub const EXCESSIVE_LOAD: u64 = 0x107;
/// A stream or push id that is used wrongly, such as one beyond a limit.
pub const ID: u64 = 0x108;
/// Invalid SETTINGS.
pub const SETTINGS: u64 = 0x109;
/// The control stream does not begin with SETTINGS.
pub const MISSING_SETTINGS: u64 = 0x10a;
/// A request that was not processed.
pub const REQUEST_REJECTED: u64 = 0x10b;
/// A request, or its response, that is no longer needed.
pub const REQUEST_CANCELLED: u64 = 0x10c;
/// A client's stream that ended before its request.
pub const REQUEST_INCOMPLETE: u64 = 0x10d;
/// A malformed message.
pub const MESSAGE: u64 = 0x10e;
/// The TCP connection of a CONNECT was reset or closed abnormally.
pub const CONNECT: u64 = 0x10f;
/// The request must be repeated over HTTP/1.1.
pub const VERSION_FALLBACK: u64 = 0x110;
/// A field section that cannot be decoded.
pub const QPACK_DECOMPRESSION: u64 = 0x200;
/// An invalid instruction on the encoder stream.
pub const QPACK_ENCODER_STREAM: u64 = 0x201;
/// An invalid instruction on the decoder stream.
pub const QPACK_DECODER_STREAM: u64 = 0x202;

/// The name of an error code. Codes of the form `0x1f * N + 0x21` are reserved and mean no error (RFC 9114 §8.1).
pub fn name(code: u64) -> String {
    const HTTP: [&str; 17] = [
        "H3_NO_ERROR",
        "H3_GENERAL_PROTOCOL_ERROR",
        "H3_INTERNAL_ERROR",
        "H3_STREAM_CREATION_ERROR",
        "H3_CLOSED_CRITICAL_STREAM",
        "H3_FRAME_UNEXPECTED",
        "H3_FRAME_ERROR",
        "H3_EXCESSIVE_LOAD",
        "H3_ID_ERROR",
        "H3_SETTINGS_ERROR",
        "H3_MISSING_SETTINGS",
        "H3_REQUEST_REJECTED",
        "H3_REQUEST_CANCELLED",
        "H3_REQUEST_INCOMPLETE",
        "H3_MESSAGE_ERROR",
        "H3_CONNECT_ERROR",
        "H3_VERSION_FALLBACK",
    ];
    const QPACK: [&str; 3] =
        ["QPACK_DECOMPRESSION_FAILED", "QPACK_ENCODER_STREAM_ERROR", "QPACK_DECODER_STREAM_ERROR"];
    let known = match code {
        0x200.. => QPACK.get((code - 0x200) as usize),
        _ => code.checked_sub(NO_ERROR).and_then(|n| HTTP.get(n as usize)),
    };
    known.map_or_else(|| format!("error {code:#x}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        for (code, want) in [
            (NO_ERROR, "H3_NO_ERROR"),
            (EXCESSIVE_LOAD, "H3_EXCESSIVE_LOAD"),
            (VERSION_FALLBACK, "H3_VERSION_FALLBACK"),
            (QPACK_DECODER_STREAM, "QPACK_DECODER_STREAM_ERROR"),
            (0x21, "error 0x21"),
            (0x111, "error 0x111"),
            (0x203, "error 0x203"),
            (u64::MAX, "error 0xffffffffffffffff"),
        ] {
            assert_eq!(name(code), want);
        }
    }
}
