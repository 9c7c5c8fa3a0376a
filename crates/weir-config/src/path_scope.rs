//! Which files a value that came over the admin API may name.
//!
//! Whoever may write routes must not be able to read the disk. Every path of a config is resolved in one place
//! (`schema::values::beside`), so this is asked where a path is read, before anything looks at the file.

use super::node::Node;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

/// What stands in one file may name nothing but what lies below these folders.
#[derive(Clone, Debug, Default)]
pub struct PathScope {
    /// The file that values from the API are said to stand in.
    pub file: PathBuf,
    /// The folders: `admin.paths`.
    pub below: Vec<PathBuf>,
}

thread_local! {
    static SCOPE: RefCell<Option<PathScope>> = const { RefCell::new(None) };
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` with this scope for what this thread reads meanwhile.
pub fn within<T>(scope: Option<&PathScope>, work: impl FnOnce() -> T) -> T {
    /// Puts the scope before it back, also where the work panics.
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

/// Whether a path was out of scope when this thread read last.
pub(super) fn refused() -> bool {
    REFUSED.get()
}

/// What is expected of a path that is out of scope.
pub(super) const EXPECTED: &str = "a path that may be written over the API; expected one below `admin.paths`";

/// Whether a value may name this file.
pub(super) fn allows(node: Option<&Node>, path: &Path) -> bool {
    SCOPE.with_borrow(|scope| match (scope, node) {
        (Some(scope), Some(node)) if **node.at.file == scope.file => {
            let covers = scope.covers(path);
            REFUSED.set(REFUSED.get() || !covers);
            covers
        }
        _ => true,
    })
}

impl PathScope {
    /// Whether a path, with its links followed, lies below one of the folders.
    fn covers(&self, path: &Path) -> bool {
        let Some(real) = real(path) else { return false };
        self.below.iter().any(|folder| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder)))
    }
}

/// A path without links and `..`; of one that does not exist yet, its folder must.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    // A link to nowhere may lead anywhere tomorrow.
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
        let scope = PathScope { file: PathBuf::new(), below: vec![root.clone()] };
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
