//! The settings of `validate`.

use super::super::prelude::*;
use super::verdict::{Counts, Names};
use super::{Rules, Validate};
use weir_schema::json::MAX_DEPTH;
use weir_schema::{FILE_BYTES, Schema};

/// Refuses requests whose JSON body does not fit a JSON Schema.
///
/// Requests with a body are checked, and POST, PUT and PATCH must have one. It must be JSON by its Content-Type, or the
/// answer is 415. What does not fit is answered 400 with a problem (RFC 9457, `application/problem+json`) that names
/// each fault: where, as a JSON pointer, and what was expected. It repeats no value of the request.
///
/// Two parsers must not read a body differently, so these are refused too: an object with the same key twice, a byte
/// order mark, a charset other than UTF-8, anything after the value, and several Content-Type fields. A body with
/// `Content-Encoding: gzip` is decoded to be checked; other codings are answered 415.
///
/// The body is held whole while it is checked, and then passed on byte for byte unchanged. A longer one than `body` is
/// answered 413. The upstream sees nothing of a refused request.
///
/// A schema without `$schema` is of the draft 2020-12; drafts 4, 6, 7 and 2019-09 are known too. `$ref` leads to places
/// in the file, or to files beside it and below its folder, never to the network. YAML is taken as well as JSON. Changes
/// of all these files are noticed as those of the config are. Known formats (date-time, email, uuid and others) are
/// checked. Regular expressions must take linear time: those with look-around or backreferences are a mistake.
///
/// ```yaml
/// - validate: { schema: order.json }
/// - validate: { schema: order.yaml, mode: report, body: 64KiB }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateSettings {
    /// A file with the JSON Schema of the body. At most 8 MiB and 256 files.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<FilePath>,
    /// What happens to a request that does not fit. `enforce` answers it. `report` counts it, logs it, at most once a
    /// second, and passes it on; no body is held for that, and one longer than `body` is not checked.
    #[serde(default)]
    mode: Mode,
    /// Longest body that is checked, as received and as decoded. Default 1 MiB, as other gateways have it. Memory: while
    /// it is checked, up to 30 times as much, for a body of nothing but tiny values.
    #[serde(default = "default_body")]
    body: ByteSize,
    /// How deep lists and objects may be nested. Default 64, at most 127.
    #[serde(default = "default_depth")]
    depth: usize,
}

/// What follows when something does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// It is refused.
    #[default]
    Enforce,
    /// It is counted and logged, and passes.
    Report,
}

const fn default_body() -> ByteSize {
    ByteSize(1 << 20)
}

const fn default_depth() -> usize {
    64
}

impl IntoFilter for ValidateSettings {
    type Filter = Validate;

    fn into_filter(self, build: &mut Build<'_>) -> Option<Validate> {
        let before = build.mistakes.len();
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            build.refuse("depth", format!("is {}; expected 1 to {MAX_DEPTH}", self.depth), None);
        }
        if self.body.get() == 0 {
            build.refuse(
                "body",
                "allows no body at all",
                Some("write the longest that is right, such as 1MiB".into()),
            );
        }
        let rules = match &self.schema {
            Some(path) => {
                let loaded = Schema::load(&path.0, &mut |path| {
                    build.read_file(&FilePath(path.to_owned()), FILE_BYTES)
                });
                loaded.map(Rules::Schema).map_err(|wrong| ("schema", wrong))
            }
            None => {
                let hint = "write { schema: order.json }";
                build.refuse("", "names nothing to validate by", Some(hint.into()));
                return None;
            }
        };
        let rules = match rules {
            Ok(rules) => rules,
            Err((field, all)) => {
                for wrong in all {
                    build.refuse(field, wrong.message, wrong.hint.map(Into::into));
                }
                return None;
            }
        };
        if build.mistakes.len() > before {
            return None;
        }
        Some(Validate {
            rules,
            mode: self.mode,
            body: self.body.as_usize(),
            depth: self.depth,
            place: build.scope.to_owned(),
            counts: build.keep_for("counts", |_| true, |_| Counts::default()),
            names: Names::default(),
        })
    }
}
