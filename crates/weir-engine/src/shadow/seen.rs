//! A request as a shadow's report shows it: bounded in bytes and free of secrets, as what `weir why` keeps.

use crate::autopsy::kept::{bare_path, parameters};
use crate::snapshot::Snapshot;
use crate::tap::Sample;
use std::borrow::Cow;
use weir_h1::RequestHead;

/// Longest method, host, path and id, in bytes.
const METHOD: usize = 24;
const HOST: usize = 96;
const PATH: usize = 384;
const ID: usize = 128;

/// Most bytes of the names of query parameters, and of fields.
const NAMES: usize = 320;

/// A request without anything that may be secret: no value of a field, cookie or query parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its id, as in the access log; empty if it has none.
    pub id: String,
    /// The method.
    pub method: String,
    /// The host.
    pub host: String,
    /// The path as received; keys that either config conceals are hidden.
    pub path: String,
    /// The names of its query parameters.
    pub query: Vec<String>,
    /// The names of its fields.
    pub fields: Vec<String>,
    /// The status of the live answer.
    pub status: u16,
}

impl Seen {
    /// The parsed head of a sample, without what these configs conceal.
    pub(super) fn of(sample: &Sample, head: &RequestHead, configs: [&Snapshot; 2]) -> Self {
        let mut path = Cow::Borrowed(bare_path(head.received_path()));
        for conceals in configs.iter().filter_map(|config| config.conceals.as_deref()) {
            path = Cow::Owned(conceals.path(&path).into_owned());
        }
        Self {
            id: cut(sample.live.id.as_bytes(), ID),
            method: cut(head.received_method(), METHOD),
            host: cut(head.asked_authority(), HOST),
            path: cut(&path, PATH),
            query: names(parameters(head.received_query()).map(|(name, _)| name)),
            fields: names(head.headers.iter().map(|(name, _)| name)),
            status: sample.live.status,
        }
    }
}

/// The beginning of a text that a peer may have written.
fn cut(text: &[u8], most: usize) -> String {
    let shown = String::from_utf8_lossy(text.get(..most).unwrap_or(text)).into_owned();
    if text.len() > most { format!("{shown}…") } else { shown }
}

/// The first names, within [`NAMES`] bytes.
fn names<'n>(all: impl Iterator<Item = &'n [u8]>) -> Vec<String> {
    let mut room = NAMES;
    let fits = |name: &&[u8]| {
        let left = room.checked_sub(name.len() + 1);
        room = left.unwrap_or_default();
        left.is_some()
    };
    all.take_while(fits).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}
