//! The objects on disk, so that a restart serves while the API server is away. The file holds secrets: only this user
//! may read it, and it should be on a volume in memory.

use crate::api::Object;
use crate::watch::store::Store;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest file that is read, in bytes.
const LONGEST: u64 = 1 << 30;

/// Writes a file so that it is whole or not there, and that nobody else can read it.
///
/// # Errors
/// Why not. The earlier file stays.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    let temporary = path.with_extension("new");
    let put = || {
        // An earlier one may have been left by a crash, with any mode.
        match fs::remove_file(&temporary) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    put().map_err(|e| {
        let _ = fs::remove_file(&temporary); // it holds secrets and takes memory; there may be none
        format!("{}: {e}", path.display())
    })
}

/// Reads the objects, and the last usable versions of Secrets that are no longer usable; `None` if there is no file.
///
/// # Errors
/// Why the file cannot be used.
pub(super) fn read(path: &Path) -> Result<Option<(Store, Vec<Object>)>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(wrong(&e)),
    };
    if length > LONGEST {
        return Err(wrong(&format_args!("it is longer than {LONGEST} bytes")));
    }
    let text = fs::read_to_string(path).map_err(|e| wrong(&e))?;
    Store::restore(&text).map(Some).map_err(|e| wrong(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_this_user_may_read_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("objects.json");
        fs::write(path.with_extension("new"), "left by a crash").unwrap();
        for _ in 0..2 {
            write(&path, Store::default().save(&[]).as_bytes()).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(read(&path), Ok(Some((Store::default(), vec![]))));
        assert_eq!(read(&folder.path().join("none")), Ok(None));
        fs::write(&path, "half a fi").unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("objects.json");
        fs::create_dir(&path).unwrap();
        assert!(write(&path, b"secret").is_err());
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["objects.json"]);
    }
}
