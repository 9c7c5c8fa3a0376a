//! What filters may see: they are written against this crate, and know neither the engine that runs them nor each
//! other.
//!
//! - [`filter`] is the trait and its surroundings; [`prelude`] is what a filter's file imports; [`testing`] runs one
//!   filter alone.
//! - Building blocks: [`template`], [`store`], [`blocking`], [`fetch`], [`coding`], [`grpc`] and [`password`].
//! - [`explained`] says what expressions come to for `weir explain`.
//! - [`document`] is a template of JSON, [`json_body`] says which bodies are read as JSON.
//! - [`fields`] reads header fields of a request, an upgrade's among them.
//! - [`directory`] has the consumers that change without a reload; it is part of [`filter`].
//! - [`concealed`] finds keys in a request's target, [`file_source`] is a part of a file as a body, [`phrases`] the
//!   texts of statuses.
//! - Re-exported from below: [`config`], [`error`], [`expr`], [`route`].

/// Declares causes: NAME, code, status, what happened, and what the operator can change.
#[macro_export]
macro_rules! causes {
    ($($name:ident $code:literal $status:literal $meaning:literal $change:literal $(, $key:ident: $value:expr)*)*) => {$(
        static $name: $crate::error::Cause = $crate::error::Cause {
            code: $code,
            status: $status,
            meaning: $meaning,
            change: $change,
            $($key: $value,)*
            ..$crate::error::Cause::USUAL
        };
    )*};
}

mod asked;
pub mod blocking;
pub mod coding;
pub mod concealed;
pub mod condition;
pub mod cookies;
pub mod document;
pub mod explained;
pub mod fields;
pub mod file_source;
pub mod filter;
pub mod grpc;
pub mod json_body;
pub mod password;
pub mod phrases;
pub mod prelude;
pub mod query;
pub mod sfv;
pub mod spool;
pub mod store;
pub mod template;
pub mod testing;
mod view;

pub use filter::directory;
pub use weir_config as config;
pub use weir_expr as expr;
pub use weir_h1::reason;
pub use weir_route as route;
pub use weir_upstream::{error, fetch};

use weir_wire::base64; // `sfv` finds it here, because `fuzz/` compiles that file on its own
