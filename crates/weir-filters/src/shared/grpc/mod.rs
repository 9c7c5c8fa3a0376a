//! What filters share that call gRPC services: where the descriptors of a service come from (`source`), the settings that say so
//! (`offer`), and causes.

mod offer;
mod source;

pub(crate) use offer::{Enums, Int64, LimitSettings, Names, Offer, Unknown};
pub(crate) use source::{Described, Loaded, Source};

use weir_engine::error::Cause;

pub(crate) static NOT_DESCRIBED: Cause = Cause {
    code: "grpc_not_described",
    status: 503,
    meaning: "The service has not told yet what it offers.",
    change: "server reflection of the service; the log says why it failed",
    ..Cause::USUAL
};

pub(crate) static RESPONSE_MALFORMED: Cause = Cause {
    code: "grpc_response_malformed",
    status: 502,
    meaning: "The upstream's answer is not gRPC, or cannot be translated for the client.",
    change: "the upstream and its `protocol` (h2c); the protos and the `limits` of the filter, where it has some",
    ..Cause::USUAL
};
