//! How JSON is written and read, and how much of everything is accepted.

/// How JSON is written, and what is accepted. The default is the JSON mapping of proto3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonOptions {
    /// Fields that hold their default are written too.
    pub defaults: bool,
    /// Enums are written as numbers.
    pub enum_numbers: bool,
    /// Integers of 64 bits are written as numbers, which many readers round.
    pub int64_numbers: bool,
    /// Fields are written by the names that they have in the proto.
    pub proto_names: bool,
    /// Fields that are not known are ignored, and so are names of enums that are not.
    pub ignore_unknown: bool,
}

/// How much is accepted. What goes beyond is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, as JSON and as Protocol Buffers, after decompression. Default 4 MiB, as gRPC's libraries have it.
    pub message: usize,
    /// Messages, lists and objects within one another. Default 100.
    pub depth: usize,
    /// `Any` within `Any`. Default 8.
    pub any: usize,
    /// Values in one message, all of its messages together. Default 200,000.
    pub values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 4 * 1024 * 1024, depth: 100, any: 8, values: 200_000 }
    }
}

impl Limits {
    /// Bytes of JSON that one message may become: it may be longer than the message, but not by much.
    pub(crate) const fn json(&self) -> usize {
        self.message.saturating_mul(4).saturating_add(64 * 1024)
    }
}

/// The deepest that `depth` may be set: what a thread's stack holds in any build.
pub const DEPTH_MOST: usize = 100;
