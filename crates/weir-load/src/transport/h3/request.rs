//! Renders the head of a request as a HEADERS frame of HTTP/3.

use crate::transport::h2::request::fields;
use weir_h3::frame::{self, kind};
use weir_h3::qpack::{Encode, Static};

/// The prefix of a section that refers to QPACK's static table only (RFC 9204 §4.5.1).
const PREFIX: [u8; 2] = [0, 0];

/// Renders a head into `out`. It refers to the static table only, so that every stream of every connection may have the
/// same bytes. `lines` is for reuse, and empty.
pub(crate) fn render(head: &[u8], scheme: &str, lines: &mut Vec<u8>, out: &mut Vec<u8>) {
    lines.extend_from_slice(&PREFIX);
    fields(head, scheme, |name, value, secret| Static.encode(name, value, secret, lines));
    frame::write(kind::HEADERS, lines, out);
}

/// The header of the one DATA frame that carries a body of this length; empty without a body.
pub(crate) fn data_header(body: usize) -> Vec<u8> {
    let mut header = Vec::new();
    if body > 0 {
        frame::write_header(kind::DATA, body, &mut header);
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;
    use weir_h3::qpack::{Decoder, DecoderLimits};

    #[test]
    fn a_head_is_translated() {
        let head = b"GET /a?b HTTP/1.1\r\nHost: h:1\r\nX-A: b\r\nConnection: close\r\nTE: gzip\r\n\r\n";
        let mut out = Vec::new();
        render(head, "https", &mut Vec::new(), &mut out);
        assert_eq!((out[0], usize::from(out[1])), (1, out.len() - 2));
        let (mut decoder, mut seen) = (Decoder::new(DecoderLimits { capacity: 0, blocked: 0 }), Vec::new());
        let decoded = decoder.decode(0, &out[2..], &mut Vec::new(), |name, value| {
            seen.push(format!("{} {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
            ControlFlow::Continue(())
        });
        assert!(decoded.is_ok());
        assert_eq!(seen, [":method GET", ":scheme https", ":authority h:1", ":path /a?b", "x-a b"]);
        assert_eq!(
            (data_header(0), data_header(63), data_header(70)),
            (vec![], vec![0, 63], vec![0, 0x40, 70])
        );
    }
}
