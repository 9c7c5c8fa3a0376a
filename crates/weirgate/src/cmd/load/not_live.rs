//! Replaces `live` in a build without that feature.

use weir_load::{Plan, Progress};

/// The live view, which does not exist in this build.
pub(super) enum Live {}

impl Live {
    pub(super) fn open(_plan: &Plan) -> Result<Self, String> {
        Err("this weir is built without the live view (cargo feature `live`)".to_owned())
    }

    pub(super) const fn show(&mut self, _now: &Progress<'_>) {
        match *self {}
    }
}

/// Does nothing: the terminal was never taken.
pub(in crate::cmd) const fn give_back() {}
