//! `maps`: named tables that expressions read.

use super::values::{Expression, FilePath, Pairs};
use schemars::JsonSchema;
use serde::Deserialize;

/// A table from a value to a value, which expressions read as `maps.NAME`. It is known as early as `of` is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueMap {
    /// The expression whose value is looked up, such as `'request.headers["x-tenant"]'` or `client.ip`: an address, or
    /// anything that has a text. It may read other maps.
    pub of: Expression,
    /// Keys and values, which are texts. A key is an exact text, a prefix (`"be*"`) or a regular expression for the
    /// whole text (`"~v[0-9]+"`). An exact key wins over a prefix, a longer prefix over a shorter one, and a prefix over
    /// a regular expression; of these, the first as written wins. If `of` is an address, keys are addresses and
    /// networks, and the smallest network wins.
    #[serde(default)]
    pub values: Pairs,
    /// A CSV file of further keys and values, one `key,value` in a line: a field with a comma or `#` stands in double
    /// quotes, empty lines and lines that begin with `#` are skipped. It is watched; a change with a mistake is
    /// ignored. At most 32 MiB. Default none.
    #[serde(default)]
    pub file: Option<FilePath>,
    /// The value where no key fits. Default: none, which is an empty text in an expression, and `has(maps.NAME)` is
    /// false.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub default: Option<String>,
}
