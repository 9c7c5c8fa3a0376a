//! Restricts the files that a value from the admin API may name.
//!
//! Permission to write routes must not allow reading the disk. `schema::values::beside` resolves every path of a
//! config, so we check there, before any code opens the file.

use super::node::{Node, Place};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Values of these files may only name paths below these folders.
#[derive(Clone, Debug, Default)]
pub struct PathScope {
    /// The files that values from the API are attributed to.
    pub files: Vec<PathBuf>,
    /// The places of values that may name any file, because the running config has the same values.
    pub known: HashSet<Place>,
    /// The folders: `admin.paths`.
    pub below: Vec<PathBuf>,
}

thread_local! {
    static SCOPE: RefCell<Option<PathScope>> = const { RefCell::new(None) };
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with this scope for all reads of this thread.
pub fn within<T>(scope: Option<&PathScope>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous scope, also after a panic.
    struct Back(Option<PathScope>);
    impl Drop for Back {
        fn drop(&mut self) {
            let before = self.0.take();
            SCOPE.with_borrow_mut(|scope| *scope = before);
        }
    }
    REFUSED.set(false);
    let _back = Back(SCOPE.replace(scope.cloned()));
    work()
}

/// Whether the last read of this thread met a path out of scope.
pub(super) fn refused() -> bool {
    REFUSED.get()
}

/// The expected form of a path, shown for a path out of scope.
pub(super) const EXPECTED: &str = "a path that may be written over the API; expected one below `admin.paths`";

/// Whether a value may name this file.
pub(super) fn allows(node: Option<&Node>, path: &Path) -> bool {
    SCOPE.with_borrow(|scope| match (scope, node) {
        (Some(scope), Some(node))
            if scope.files.contains(&node.at.file) && !scope.known.contains(&node.at) =>
        {
            let covers = scope.covers(path);
            REFUSED.set(REFUSED.get() || !covers);
            covers
        }
        _ => true,
    })
}

impl PathScope {
    /// Whether a path lies below one of the folders once its links are followed.
    fn covers(&self, path: &Path) -> bool {
        let Some(real) = real(path) else { return false };
        self.below.iter().any(|folder| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder)))
    }
}

/// A path without links and `..`. If it does not exist yet, its folder must exist.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    // A dangling link may lead anywhere tomorrow.
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let name = path.file_name()?;
    Some(path.parent()?.canonicalize().ok()?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_below_is_covered() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("www");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.pem"), "").unwrap();
        std::fs::write(folder.path().join("secret"), "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", root.join("dangling")).unwrap();
        let scope = PathScope { below: vec![root.clone()], ..PathScope::default() };
        for (path, covered) in [
            ("a.pem", true),
            ("new.pem", true),
            ("../www/a.pem", true),
            ("../secret", false),
            ("link", false),
            ("dangling", false),
            ("no/folder", false),
            ("/etc/passwd", false),
            ("..", false),
        ] {
            assert_eq!(scope.covers(&root.join(path)), covered, "{path}");
        }
        assert!(!PathScope::default().covers(&root.join("a.pem")));
    }
}
