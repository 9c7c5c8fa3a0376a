//! What a filter's file needs.

pub use crate::causes;
pub use crate::filter::{
    Access, Answer, Asked, Attempt, AttemptEnd, Body, BodySource, BodyUse, Build, CALL_BODY_BYTES,
    CallAnswer, CallRequest, Caller, Conceals, Consumer, Consumers, CoreHandle, Cx, End, FetchError,
    FetchRequest, Fetcher, FieldGuards, FilePath, FileRange, Filter, FilterKind, Flow, GrpcStatus,
    HeaderName, HookResult, Hooks, IntoFilter, Neighbour, PerCore, Piece, Portable, Reading, Refusal,
    RequestHead, ResponseHead, Switch, Tended, Tending, TextOrPath, Trust, Url, Waiting, allow_name,
    is_address,
};
pub use bytes::Bytes;
pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};
pub use weir_config::delay::Delay;
pub use weir_config::units::{ByteSize, Duration, Percent};
pub use weir_telemetry::Figure;
pub use weir_upstream::error::{Cause, Nature};
