//! The folder with certificates, keys and orders. Several nodes may share it.
//!
//! ```text
//!   STORAGE/HOST-OF-THE-DIRECTORY-xxxxxxxx/     one for each authority
//!     account.json                              key and URL of the account
//!     nodes/ID                                  touched while a node lives
//!     challenges/NAME.json                      a pending proof: an authority may ask any node for it
//!     certificates/NAME/certificate.pem         the key, then the chain
//!                      /order.json              the order in progress, with its key
//!                      /state.json              failures, the next attempt, the authority's suggestion
//!                      /lock                    the node that orders
//! ```
//!
//! Only the owner can read the files. Each is always complete: we write a temporary file, sync it and rename it. A
//! key and its chain are one file, so that nobody ever reads one without the other.

use crate::failure::Failure;
use crate::name::Name;
use aws_lc_rs::digest::{SHA256, digest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_wire::Chain;
use weir_wire::hex;
use weir_wire::tls::Certificate;

/// Longest file that we read: a chain with its key takes some kilobytes.
const FILE_BYTES: u64 = 1024 * 1024;

/// One authority's part of a storage.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    root: PathBuf,
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// A stored certificate.
pub(crate) struct Stored {
    pub(crate) certificate: Certificate,
    pub(crate) stamp: Stamp,
}

impl Storage {
    /// The part of `storage` for the authority with this directory. Reads and creates nothing.
    pub(crate) fn new(storage: &Path, directory: &str) -> Self {
        let host = directory.strip_prefix("https://").unwrap_or(directory);
        let host = host.split(['/', ':', '?']).next().unwrap_or_default();
        let plain: String =
            host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')).take(100).collect();
        let digest = digest(&SHA256, directory.as_bytes());
        let short = hex::encode(digest.as_ref().get(..4).unwrap_or_default());
        Self { root: storage.join(format!("{plain}-{short}")) }
    }

    /// Creates its folders.
    pub(crate) fn prepare(&self) -> Result<(), Failure> {
        for folder in [self.nodes(), self.challenges(), self.root.join("certificates")] {
            make_folder(&folder)?;
        }
        Ok(())
    }

    pub(crate) fn account(&self) -> PathBuf {
        self.root.join("account.json")
    }

    pub(crate) fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    pub(crate) fn challenges(&self) -> PathBuf {
        self.root.join("challenges")
    }

    pub(crate) fn challenge(&self, name: &Name) -> PathBuf {
        self.challenges().join(format!("{}.json", name.folder()))
    }

    pub(crate) fn of(&self, name: &Name) -> PathBuf {
        self.root.join("certificates").join(name.folder())
    }

    pub(crate) fn certificate_file(&self, name: &Name) -> PathBuf {
        self.of(name).join("certificate.pem")
    }

    pub(crate) fn order(&self, name: &Name) -> PathBuf {
        self.of(name).join("order.json")
    }

    pub(crate) fn state(&self, name: &Name) -> PathBuf {
        self.of(name).join("state.json")
    }

    pub(crate) fn lock(&self, name: &Name) -> PathBuf {
        self.of(name).join("lock")
    }

    /// The stored certificate for a name, if any.
    pub(crate) fn certificate(&self, name: &Name) -> Result<Option<Stored>, Failure> {
        let path = self.certificate_file(name);
        let stamp = stamp(&path);
        let Some(pem) = read(&path)? else { return Ok(None) };
        let wrong = |what: &str| {
            Failure::storage(&path, &io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
        };
        let pem = String::from_utf8(pem).map_err(|_| wrong("it is not PEM"))?;
        let certificate = certificate_of(&pem).map_err(|e| wrong(&e))?;
        if !certificate.is_for(&name.to_string()) {
            return Err(wrong("its certificate is for another name"));
        }
        Ok(Some(Stored { certificate, stamp }))
    }

    /// The version of the stored certificate.
    pub(crate) fn stamp(&self, name: &Name) -> Stamp {
        stamp(&self.certificate_file(name))
    }
}

/// Parses a certificate and its key from one text.
pub(crate) fn certificate_of(pem: &str) -> Result<Certificate, String> {
    Certificate::of_pem(pem, pem).map_err(|e| Chain(&e).to_string())
}

pub(crate) fn make_folder(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| Failure::storage(folder, &e))
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let failed = |e: io::Error| Failure::storage(path, &e);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(failed(io::Error::other("it is longer than 1 MiB, so it is none of ours")));
    }
    Ok(Some(bytes))
}

/// Reads a JSON file; `None` if it does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|e| Failure::storage(path, &io::Error::new(io::ErrorKind::InvalidData, e)))
}

/// Writes `bytes` to `path`. Afterwards either the old file is there or the complete new one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let beside = beside(path);
    let written = write_beside(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if let Err(e) = written {
        let _ = fs::remove_file(&beside); // it may not exist
        return Err(Failure::storage(path, &e));
    }
    // The new file is in place. A machine crash may still undo the rename, but that is no reason to order again.
    let _ = path.parent().map(|folder| File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(value).map_err(|e| Failure::storage(path, &io::Error::other(e)))?;
    write(path, &text)
}

/// Removes a file that may be absent.
pub(crate) fn remove(path: &Path) {
    let _ = fs::remove_file(path); // readers detect an outdated file
}

/// A unique name for each process and write.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

fn write_beside(beside: &Path, bytes: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(beside); // left by a killed process with our PID
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn stamp(path: &Path) -> Stamp {
    let Ok(meta) = fs::metadata(path) else { return Stamp::default() };
    Stamp { inode: meta.ino(), length: meta.len(), changed: (meta.mtime(), meta.mtime_nsec()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_written_is_for_its_owner_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path(), "https://ca.test:14000/dir");
        let name: Name = "a.test".parse().unwrap();
        storage.prepare().unwrap();
        write(&storage.order(&name), b"one").unwrap();
        let before = stamp(&storage.order(&name));
        write(&storage.order(&name), b"two").unwrap();
        assert_eq!(read(&storage.order(&name)).unwrap().unwrap(), b"two");
        assert_ne!(stamp(&storage.order(&name)), before);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&storage.order(&name)), mode(&storage.of(&name))), (0o600, 0o700));
        assert_eq!(fs::read_dir(storage.of(&name)).unwrap().count(), 1, "nothing is left beside");
        assert!(storage.root.file_name().unwrap().to_str().unwrap().starts_with("ca.test-"));
        assert_ne!(storage.root, Storage::new(dir.path(), "https://ca.test:14000/other").root);
    }

    #[test]
    fn a_storage_that_is_none_is_told_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let storage = Storage::new(&dir.path().join("file"), "https://ca.test/dir");
        let failed = storage.prepare().unwrap_err();
        assert_eq!(failed.kind, crate::failure::Kind::Storage);
        assert!(failed.text.contains("/file/ca.test-"), "{failed}");
    }

    #[test]
    fn a_stored_certificate_must_be_for_its_name_and_have_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path(), "https://ca.test/dir");
        let name: Name = "a.test".parse().unwrap();
        assert!(storage.certificate(&name).unwrap().is_none());
        let made = |host: &str| rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        let (ours, other) = (made("a.test"), made("b.test"));
        let file = storage.certificate_file(&name);
        for (text, good) in [
            (ours.signing_key.serialize_pem() + &ours.cert.pem(), true),
            (other.signing_key.serialize_pem() + &ours.cert.pem(), false),
            (other.signing_key.serialize_pem() + &other.cert.pem(), false),
            (ours.cert.pem(), false),
            ("junk".to_owned(), false),
        ] {
            write(&file, text.as_bytes()).unwrap();
            assert_eq!(storage.certificate(&name).is_ok(), good, "{text}");
        }
        write(&file, &vec![b'a'; FILE_BYTES as usize + 1]).unwrap();
        assert!(storage.certificate(&name).err().unwrap().text.contains("longer"));
    }
}
