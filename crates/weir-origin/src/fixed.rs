//! Bytes that are made in advance: the measured response, the only response of some origins, filler.

use bytes::Bytes;

pub(crate) const TEXT: &str = "text/plain";

/// The whole response to `GET /body/1KiB`.
pub(crate) const BODY_1KIB: &[u8] = &BODY_1KIB_BYTES;

const HEAD_1KIB: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n";
const BODY_1KIB_BYTES: [u8; HEAD_1KIB.len() + 1024] = {
    let mut bytes = [b'x'; HEAD_1KIB.len() + 1024];
    let mut at = 0;
    while at < HEAD_1KIB.len() {
        bytes[at] = HEAD_1KIB[at];
        at += 1;
    }
    bytes
};

/// The body only.
pub(crate) fn body_1kib() -> &'static [u8] {
    &BODY_1KIB[HEAD_1KIB.len()..]
}

/// A response that is the same for every request.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// Head and body.
    answer: Bytes,
    /// The body only: HTTP/2 has its own head.
    body: Bytes,
}

impl Fixed {
    /// A response with a body of `length` bytes.
    pub(crate) fn new(length: usize) -> Self {
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Length: {length}\r\n\r\n")
                .into_bytes();
        let head = answer.len();
        answer.resize(head + length, b'x');
        let answer = Bytes::from(answer);
        Self { body: answer.slice(head..), answer }
    }

    /// Head and body in HTTP/1.1 form.
    pub(crate) fn answer(&self) -> &[u8] {
        &self.answer
    }

    pub(crate) const fn body(&self) -> &Bytes {
        &self.body
    }

    pub(crate) const fn length(&self) -> u64 {
        self.body.len() as u64
    }
}

/// The source of filler bodies.
pub(crate) static FILL: [u8; 64 * 1024] = [b'x'; 64 * 1024];
