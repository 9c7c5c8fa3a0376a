//! gRPC methods and the messages of their calls.
//!
//! *Layout.* `methods` finds the method: in .proto files, in a descriptor set, or by asking the target
//! (`reflection`). `call` converts between JSON and messages. These three need the cargo feature `grpc`; without it,
//! `absent` replaces them and a `grpc://` target is a mistake.

#[cfg(not(feature = "grpc"))]
mod absent;
#[cfg(feature = "grpc")]
mod call;
#[cfg(feature = "grpc")]
mod methods;
#[cfg(feature = "grpc")]
mod reflection;

#[cfg(not(feature = "grpc"))]
pub(crate) use absent::{Call, Schema};
#[cfg(feature = "grpc")]
pub(crate) use call::Call;
#[cfg(feature = "grpc")]
pub(crate) use methods::Schema;

use crate::transport::origin::Origin;
use std::path::PathBuf;

/// Where to look for a method's schema.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "grpc"), expect(dead_code, reason = "nobody reads schemas then"))]
pub(crate) enum Source {
    /// .proto files, and the folders to search for imports.
    Files(Vec<PathBuf>, Vec<PathBuf>),
    /// The target itself.
    Reflection,
    /// A FileDescriptorSet.
    Set(PathBuf),
}

/// A target that can be asked for its schema.
#[derive(Debug)]
#[cfg_attr(not(feature = "grpc"), expect(dead_code, reason = "nobody asks then"))]
pub(crate) struct Server<'a> {
    pub(crate) origin: &'a Origin,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    pub(crate) authority: &'a str,
    /// Sent with the reflection request as with every call: the target may require authentication.
    pub(crate) fields: &'a [(String, String)],
    pub(crate) timeout: std::time::Duration,
}
