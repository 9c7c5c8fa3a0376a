//! A request in flight on a connection of HTTP/2 or HTTP/3: its response so far, and its gRPC status.

use crate::grpc::{Code, Messages};
use crate::transport::reader::Response;
use std::rc::Rc;
use std::sync::Arc;
use weir_h1::Fields;

/// A request in flight.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(in crate::transport) key: usize,
    /// When the head of the response arrived, or the first of several.
    pub(in crate::transport) first: u64,
    pub(in crate::transport) response: Response,
    /// The request's body, and the offset of its unsent part.
    pub(in crate::transport) body: Option<(Arc<[u8]>, usize)>,
    /// The part of the response's body that is kept for checks.
    pub(in crate::transport) kept: Vec<u8>,
    /// The fields of the response, if they are kept.
    pub(in crate::transport) fields: Fields,
    pub(in crate::transport) call: Call,
    /// Whether its response is kept for the ledger.
    pub(in crate::transport) is_captured: bool,
}

/// The gRPC side of a response.
#[derive(Debug, Default)]
pub(in crate::transport) struct Call {
    /// Whether its head declares gRPC.
    pub(in crate::transport) is_grpc: bool,
    pub(in crate::transport) code: Option<Code>,
    pub(in crate::transport) text: Option<Rc<str>>,
    pub(in crate::transport) messages: Messages,
}

impl Stream {
    /// Prepares it for the next request, which sets the other fields when it begins.
    pub(in crate::transport) fn clear(&mut self) {
        let Self { key: _, first: _, response: _, is_captured: _, body, kept, call, fields } = self;
        (*body, *kept, *fields) = (None, Vec::new(), Fields::default());
        let Call { is_grpc, code, text, messages } = call;
        (*is_grpc, *code, *text, *messages) = (false, None, None, Messages::default());
    }

    /// The response is complete: derives its gRPC outcome.
    pub(in crate::transport) fn end_call(&mut self) {
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
