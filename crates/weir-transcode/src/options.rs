//! Options of the JSON mapping, and limits for input.

/// Options of the JSON mapping. The default is the JSON mapping of proto3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonOptions {
    /// Also write fields that hold their default.
    pub defaults: bool,
    /// Write enums as numbers.
    pub enum_numbers: bool,
    /// Write 64-bit integers as numbers, which many readers round.
    pub int64_numbers: bool,
    /// Write fields by their proto names.
    pub proto_names: bool,
    /// Ignore unknown fields and unknown enum names.
    pub ignore_unknown: bool,
}

/// Limits for input. Anything beyond is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, as JSON and as Protocol Buffers, after decompression. Default 4 MiB, like the gRPC
    /// libraries.
    pub message: usize,
    /// Nesting depth of messages, lists and objects. Default 100.
    pub depth: usize,
    /// Nesting depth of `Any`. Default 8.
    pub any: usize,
    /// Values in one message, including nested messages. Default 200,000.
    pub values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 4 * 1024 * 1024, depth: 100, any: 8, values: 200_000 }
    }
}

impl Limits {
    /// Most bytes of JSON for one message: it may be longer than the message, but not by much.
    pub(crate) const fn json(&self) -> usize {
        self.message.saturating_mul(4).saturating_add(64 * 1024)
    }
}

/// Largest value of `depth`: what a thread's stack supports in any build.
pub const DEPTH_MOST: usize = 100;
