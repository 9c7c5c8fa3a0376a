//! The parts of a running attempt, passed from `attempt.rs` to the code that repeats it, writes its body, or reads
//! its response.

use super::Routed;
use super::upload::Upload;
use bytes::Bytes;
use std::rc::Rc;
use weir_h1::ResponseHead;
use weir_upstream::upstream::{Active, Connection, LocalUpstream};

/// An attempt that was answered.
pub(super) struct Attempt {
    pub(super) routed: Routed,
    pub(super) upstream: Rc<LocalUpstream>,
    pub(super) active: Active,
    pub(super) sent: Sent,
    pub(super) response: Box<ResponseHead>,
    /// Whether the connection can carry another exchange. Known when the response is over.
    pub(super) reusable: bool,
}

/// A connection and the state of the upload on it.
pub(super) struct Sent {
    pub(super) connection: Connection,
    pub(super) upload: Upload,
}

/// A request ready to be sent.
pub(super) struct Written {
    /// Its head.
    pub(super) out: Vec<u8>,
    /// Its body, if a filter has it whole.
    pub(super) whole: Option<Bytes>,
}

/// A connection that brought a response head.
pub(super) struct Answered {
    pub(super) sent: Sent,
    pub(super) response: Box<ResponseHead>,
}
