//! What an attempt is made of while it is under way: handed from `attempt.rs` to those that repeat it, write its body and read its response.

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
    /// The connection can carry another exchange: known when the response is over.
    pub(super) reusable: bool,
}

/// A connection, and how far what goes up on it is.
pub(super) struct Sent {
    pub(super) connection: Connection,
    pub(super) upload: Upload,
}

/// A request as it begins on its way.
pub(super) struct Written {
    /// Its head.
    pub(super) out: Vec<u8>,
    /// Its body, where a filter has it whole.
    pub(super) whole: Option<Bytes>,
}

/// A connection that brought a response head.
pub(super) struct Answered {
    pub(super) sent: Sent,
    pub(super) response: Box<ResponseHead>,
}
