//! What filters share that make calls of gRPC of other requests.

use weir_engine::error::Cause;

pub(crate) static RESPONSE_MALFORMED: Cause = Cause {
    code: "grpc_response_malformed",
    status: 502,
    meaning: "The upstream's answer is not gRPC, or cannot be translated for the client.",
    change: "the upstream and its `protocol` (h2c); the protos and the `limits` of the filter, where it has some",
    ..Cause::USUAL
};
