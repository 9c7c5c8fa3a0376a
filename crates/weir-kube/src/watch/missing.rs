//! The permissions that a replica lacks, with the objects that wait for them. `keeper.rs` and `writer.rs` use it.
//!
//! A permission counts as missing only while an object waits for it. What nobody needs any more is not tried again, so
//! nobody would notice that it has been granted since. A success with one object says nothing about the others: a
//! RoleBinding grants a permission in its own namespace only.

use super::writer::Target;
use std::collections::{BTreeMap, BTreeSet};

/// A verb, and the kind that it is used on.
pub(super) type Permission = (&'static str, &'static str);

/// The missing permissions. No set of objects is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Missing(BTreeMap<Permission, BTreeSet<Target>>);

impl Missing {
    /// The server has refused it for this object. True if no object waited for the permission before.
    pub(super) fn refused(&mut self, permission: Permission, target: &Target) -> bool {
        let is_new = !self.0.contains_key(&permission);
        self.0.entry(permission).or_default().insert(target.clone());
        is_new
    }

    /// The server has permitted it for this object.
    pub(super) fn permitted(&mut self, permission: Permission, target: &Target) {
        self.0.retain(|known, waiting| {
            if *known == permission {
                waiting.remove(target);
            }
            !waiting.is_empty()
        });
    }

    /// This object needs no permission now.
    pub(super) fn forget(&mut self, target: &Target) {
        self.0.retain(|_, waiting| {
            waiting.remove(target);
            !waiting.is_empty()
        });
    }

    /// No object needs anything: this replica does not lead.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What is missing.
    pub(super) fn iter(&self) -> impl Iterator<Item = Permission> {
        self.0.keys().copied()
    }
}
