//! Replaces the schema if weir-load is built without gRPC: lookups fail, so no call exists.

use super::{Server, Source};
use weir_report::report::CallKind;

/// A call that cannot exist.
#[derive(Debug)]
pub(crate) enum Call {}

impl Call {
    pub(crate) fn frame(&self, _: &[u8], _: &mut Vec<u8>) -> Result<usize, String> {
        match *self {}
    }

    pub(crate) fn fits(&self, _: &[u8], _: &str) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn json(&self, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }

    pub(crate) fn kind(&self) -> CallKind {
        match *self {}
    }

    pub(crate) fn path(&self) -> String {
        match *self {}
    }

    pub(crate) fn schema(&self) -> &str {
        match *self {}
    }
}

/// Finds nothing.
#[derive(Debug)]
pub(crate) struct Schema;

impl Schema {
    pub(crate) fn new(_: Source) -> Result<Self, (String, String)> {
        Ok(Self)
    }

    pub(crate) fn call(&mut self, _: &str, _: &Server<'_>) -> Result<Call, String> {
        Err("this weir was built without gRPC (the cargo feature `grpc` of weir-load)".to_owned())
    }
}
