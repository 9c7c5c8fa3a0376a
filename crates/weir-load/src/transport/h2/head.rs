//! The parts of a response's head or trailers that we need.

use crate::grpc::{self, Code};
use crate::transport::response_kind::KindId;
use std::rc::Rc;
use weir_wire::h2::{HeadFacts, Malformed, is_grpc};

/// The values from one field block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    status: Option<u16>,
    length: Option<u64>,
    /// Whether the body consists of gRPC messages.
    pub(super) is_grpc: bool,
    /// The value of grpc-status.
    pub(super) code: Option<Code>,
    /// The value of grpc-message.
    pub(super) text: Option<Rc<str>>,
    /// Who made the response.
    pub(super) maker: KindId,
    /// Whether a regular field has appeared.
    begun: bool,
    wrong: Option<&'static str>,
}

impl Head {
    /// Reads a field.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        if let [b':', ..] = name {
            if name != b":status" || self.status.is_some() || self.begun {
                self.wrong = Some("a pseudo field that has no place in a response");
                return;
            }
            self.status = digits(value).filter(|n| (100..=599).contains(n)).map(|n| n as u16);
            if self.status.is_none() || value.len() != 3 {
                self.wrong = Some("a status that is none");
            }
            return;
        }
        self.begun = true;
        // RFC 9113 §8.2: names are lower case, and connection-specific fields are forbidden.
        if name.is_empty() || name.iter().any(|b| b.is_ascii_uppercase() || *b <= b' ' || *b >= 0x7f) {
            self.wrong = Some("a field name that is none");
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                self.wrong = Some("a field of the connection");
            }
            b"content-length" => {
                let length = digits(value);
                if length.is_none() || self.length.is_some_and(|n| Some(n) != length) {
                    self.wrong = Some("a Content-Length that is none");
                }
                self.length = length;
            }
            b"content-type" => self.is_grpc = is_grpc(value),
            b"grpc-message" if !value.is_empty() => self.text = Some(grpc::message(value).into()),
            b"grpc-status" => self.code = Some(Code::read(value)),
            _ => {}
        }
    }

    /// Its meaning for the protocol as a response head.
    pub(super) fn response(&self) -> Result<HeadFacts, Malformed> {
        match (self.wrong, self.status) {
            (Some(wrong), _) => Err(Malformed(wrong)),
            (None, None) => Err(Malformed("a head without a status")),
            (None, Some(101)) => Err(Malformed("status 101, which belongs to HTTP/1.1")),
            (None, Some(status)) => Ok(HeadFacts { status, length: self.length, ..HeadFacts::default() }),
        }
    }

    /// The same for trailers.
    pub(super) fn trailers(&self) -> Result<HeadFacts, Malformed> {
        match (self.wrong, self.status) {
            (Some(wrong), _) => Err(Malformed(wrong)),
            (None, Some(_)) => Err(Malformed("a second head")),
            (None, None) => Ok(HeadFacts::default()),
        }
    }
}

/// A decimal number.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}
