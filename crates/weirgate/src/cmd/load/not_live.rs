//! In the place of `live` where the program is built without it.

use weir_load::{Plan, Progress};

/// There is none.
pub(super) enum Live {}

impl Live {
    pub(super) fn open(_plan: &Plan) -> Result<Self, String> {
        Err("this weir is built without the live view (cargo feature `live`)".to_owned())
    }

    pub(super) const fn show(&mut self, _now: &Progress<'_>) {
        match *self {}
    }
}

/// Nothing was taken.
pub(in crate::cmd) const fn give_back() {}
