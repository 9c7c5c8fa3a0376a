//! A request in flight on an HTTP/2 connection: its response so far, and its gRPC status.

use crate::grpc::{Code, Messages};
use crate::transport::reader::Response;
use std::rc::Rc;
use std::sync::Arc;
use weir_h1::Fields;

/// A request in flight.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(super) key: usize,
    /// When the head of the response arrived, or the first of several.
    pub(super) first: u64,
    pub(super) response: Response,
    /// The request's body, and the offset of its unsent part.
    pub(super) body: Option<(Arc<[u8]>, usize)>,
    /// The part of the response's body that is kept for checks.
    pub(super) kept: Vec<u8>,
    /// The fields of the response, if they are kept.
    pub(super) fields: Fields,
    pub(super) call: Call,
    /// Whether its response is kept for the ledger.
    pub(super) is_captured: bool,
}

/// The gRPC side of a response.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// Whether its head declares gRPC.
    pub(super) is_grpc: bool,
    pub(super) code: Option<Code>,
    pub(super) text: Option<Rc<str>>,
    pub(super) messages: Messages,
}

impl Stream {
    /// The response is complete: derives its gRPC outcome.
    pub(super) fn end_call(&mut self) {
        let call = &mut self.call;
        let r = &mut self.response;
        let (code, why) = match call.code {
            _ if !call.is_grpc => (Code::of_http(r.status), "the content-type of the response is not gRPC's"),
            None => (Code::INTERNAL, "the response ended without grpc-status"),
            Some(Code::OK) if !call.messages.is_whole() => (Code::INTERNAL, "the last message is cut"),
            Some(code) => (code, ""),
        };
        r.is_no_grpc = !call.is_grpc || call.code.is_none();
        (r.grpc, r.messages) = (Some(code), call.messages.count);
        if !why.is_empty() {
            call.text = Some(why.into());
        }
    }
}
