//! The settings of `validate`.

use super::super::prelude::*;
use super::Validate;
use super::plan::Rules;
use super::verdict::{Counts, Names};
use std::path::Path;
use std::sync::Arc;
use weir_schema::json::MAX_DEPTH;
use weir_schema::openapi::Api;
use weir_schema::{FILE_BYTES, Schema};

/// Refuses requests that do not fit an OpenAPI document, or whose JSON body does not fit a JSON Schema.
///
/// With `schema`, requests with a body are checked, and POST, PUT and PATCH must have one. With `openapi`, the operation
/// is found by path and method, and then its parameters and its body are checked. A path that the document does not have
/// is answered 404, another method 405, another media type 415, and everything else that does not fit 400.
///
/// The answer is a problem (RFC 9457, `application/problem+json`) that names each fault: where, as a JSON pointer, and
/// what was expected. It repeats no value of the request.
///
/// No two parsers may read a body differently. So these are refused too: an object with the same key twice, a byte
/// order mark, a charset other than UTF-8, anything after the value, several Content-Type fields. A body with
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
/// Documents are OpenAPI 3.0, 3.1 or 3.2. All styles of parameters are read. Undescribed parameters pass; a body for an
/// operation that describes none does not. Of bodies, JSON is checked; other media types that are described pass, and
/// `weir check` notes them. `readOnly` properties need not be in requests, nor `writeOnly` ones in answers. HEAD is
/// checked as GET if it is not described.
///
/// ```yaml
/// - validate: { openapi: api.yaml }
/// - validate: { openapi: api.yaml, answers: true, mode: report }
/// - validate: { schema: order.json, body: 64KiB }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateSettings {
    /// A file with the JSON Schema of request bodies. At most 8 MiB and 256 files.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<FilePath>,
    /// A file with an OpenAPI document, in YAML or JSON. At most 8 MiB and 256 files, and 5,000 operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    openapi: Option<FilePath>,
    /// What stands before the paths of the document, such as `/v1`; empty for nothing. Default: the paths of its
    /// `servers`, any of them. They are compared with the path as filters before this one left it.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    /// Whether answers are checked too: status, header fields and JSON. One that does not fit becomes 502. To be able to
    /// check, the upstream is asked for whole content (Range and If-Range are removed), with gzip or without a coding.
    /// Answers of the gateway itself are not checked, nor 304 and bodies that the document does not describe. Only with
    /// `openapi`.
    #[serde(default)]
    answers: bool,
    /// What happens to a message that does not fit. `enforce` refuses it. `report` counts it, logs it, at most once a
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
        if self.schema.is_some() && self.answers {
            let hint = "leave it out, or describe the answers in an OpenAPI document";
            build.refuse("answers", "needs `openapi`: a schema is for request bodies", Some(hint.into()));
        }
        if let Some(base) = &self.base
            && (self.openapi.is_none() || !base.is_empty() && !base.starts_with('/'))
        {
            build.refuse(
                "base",
                format!("`{base}` is not the beginning of the paths of `openapi`"),
                Some("write /v1".into()),
            );
        }
        let mut notes = Vec::new();
        let mut read = |path: &Path| build.read_file(&FilePath(path.to_owned()), FILE_BYTES);
        let rules = match (&self.schema, &self.openapi) {
            (Some(path), None) => {
                let loaded = Schema::load(&path.0, &mut read);
                loaded.map(|schema| Rules::Schema(Arc::new(schema))).map_err(|wrong| ("schema", wrong))
            }
            (None, Some(path)) => match Api::load(&path.0, self.base.as_deref(), self.answers, &mut read) {
                Ok((api, found)) => {
                    notes = found;
                    Ok(Rules::Api(Box::new(api)))
                }
                Err(wrong) => Err(("openapi", wrong)),
            },
            (None, None) => {
                let hint = "write { openapi: api.yaml } or { schema: order.json }";
                build.refuse("", "names nothing to validate by", Some(hint.into()));
                return None;
            }
            (Some(_), Some(_)) => {
                let hint = "keep one, or write the filter twice";
                build.refuse("schema", "stands beside `openapi`", Some(hint.into()));
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
            answers: self.answers,
            notes,
            body: self.body.as_usize(),
            depth: self.depth,
            place: build.scope.to_owned(),
            counts: build.keep_for("counts", |_| true, |_| Counts::default()),
            names: Names::default(),
        })
    }
}
