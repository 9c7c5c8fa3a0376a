//! The filters that speak gRPC: they translate to it from REST (`grpc_json`), the Connect protocol (`connect`) and
//! gRPC-Web (`grpc_web`), or ask a processor by it (`ext_proc`).
//!
//! A filter sees only what weir-filter exposes to filters. `descriptors/` loads the description of a gRPC service;
//! weir-transcode converts the bytes. weir-filters lists these filters with all others.

pub mod connect;
pub mod ext_proc;
pub mod grpc_json;
pub mod grpc_web;

mod descriptors;

use weir_filter::prelude;
#[cfg(test)]
use weir_filter::testing;
