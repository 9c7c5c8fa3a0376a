//! Every bound of the language in one place. A text beyond one of the first four is a mistake of the config.

/// Longest source of an expression, in bytes.
pub const SOURCE_BYTES: usize = 16 * 1024;

/// Deepest nesting of operators, brackets, calls and selections. CEL asks for 32; parsing, checking and evaluation recurse
/// this deep and no deeper.
pub const DEPTH: u16 = 40;

/// Most literals, names and operators in one expression.
pub const NODES: usize = 4_000;

/// Highest cost of an expression. A step costs 1, and 1 more for each [`COST_BYTES`] of text it may have to look at; the
/// body of a macro costs as often as its list is long. At 1 to 10 ns a step, no expression takes over 10 ms.
pub const COST: u64 = 1_000_000;

/// How much text a step looks at for a cost of 1.
pub const COST_BYTES: u64 = 64;

/// Most bytes of text and lists that one evaluation may build, such as by `+`, `replace` and `map`. What would not fit has
/// no value: an empty text, an absent list.
pub const BUILT_BYTES: usize = 1024 * 1024;

/// Most bytes that one evaluation looks at in texts longer than [`TEXT_BYTES`], which are of JSON and cost more than the
/// check has counted. What would need more has no value.
pub const LOOKED_BYTES: usize = 16 * 1024 * 1024;

/// Longest list of JSON that a macro walks through or `in` searches. A longer one counts as absent.
pub const JSON_ITEMS: u32 = 1_000;

/// Most parts that `split` gives. The last holds the rest.
pub const SPLIT_PARTS: u32 = 1_000;

/// Length that a text counts with in the cost where the schema gives no other.
pub const TEXT_BYTES: u64 = 32 * 1024;

/// Largest compiled regular expression, in bytes.
pub const PATTERN_BYTES: usize = 256 * 1024;
