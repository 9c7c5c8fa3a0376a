//! Code shared by the filters that call gRPC services: loading a service's descriptors (`source`) and the settings
//! for it (`offer`). Also reading the head of a gRPC response, and the causes.

mod offer;
mod source;

pub(crate) use offer::{Enums, Int64, LimitSettings, Names, Offer, REFUSED_SHOWN, Unknown};
pub(crate) use source::{Described, Loaded, Source};

use crate::prelude::*;
use weir_filter::grpc;
use weir_transcode::Status;

/// Fields of gRPC and its framing.
const OF_GRPC: &[&[u8]] = &[
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"grpc-accept-encoding",
    b"grpc-encoding",
    b"grpc-message",
    b"grpc-status",
    b"grpc-status-details-bin",
    b"trailer",
];

/// Whether a field has no meaning for a client that does not speak gRPC.
pub(crate) fn is_of_grpc(name: &[u8]) -> bool {
    OF_GRPC.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether messages follow this response head.
pub(crate) fn is_messages(head: &ResponseHead) -> bool {
    let told = head.headers.get_str("grpc-status");
    head.status() == 200 && grpc::is_grpc(&head.headers) && told.is_none_or(|code| code == b"0")
}

/// The gRPC status of a response whose whole body was read: from its trailers, otherwise from its head (`told`).
pub(crate) fn status(cx: &Cx, told: Option<&[u8]>) -> Option<Status> {
    let code = cx.whole_trailer("grpc-status").or(told)?;
    Some(Status::read(code, cx.whole_trailer("grpc-message"), cx.whole_trailer("grpc-status-details-bin")))
}

/// An error of ours in the form for the client, with the request's id. Errors in the client's own message are always
/// explained; other reasons only if causes are exposed.
pub(crate) fn for_client(cause: &'static Cause, mut status: Status, cx: &mut Cx) -> Status {
    if cause.status != 400 && !cx.exposes_causes() {
        status.message = Cx::neutral(cause.status).to_owned();
    }
    named(status, cx)
}

/// Adds the request's id, which the log contains too.
pub(crate) fn named(mut status: Status, cx: &mut Cx) -> Status {
    cx.make_id();
    status.request_id.clone_from(&cx.request_id);
    status
}

pub(crate) static NOT_DESCRIBED: Cause = Cause {
    code: "grpc_not_described",
    status: 503,
    meaning: "The service has not described its methods yet.",
    change: "the service's server reflection; the log says why it failed",
    nature: Nature::Failure,
    ..Cause::USUAL
};

pub(crate) static RESPONSE_MALFORMED: Cause = Cause {
    code: "grpc_response_malformed",
    status: 502,
    meaning: "The upstream's response is not gRPC, or cannot be translated for the client.",
    change: "the upstream and its `protocol` (h2c); the filter's protos and `limits`, if it has them",
    nature: Nature::Failure,
    ..Cause::USUAL
};
