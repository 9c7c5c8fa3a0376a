//! The last good config on disk, which a gateway serves when it starts while its source is unavailable.
//!
//! ```text
//!   FOLDER/bundle            the running bundle, with its digest: written to a temporary file, synced, renamed
//!   FOLDER/trees/<digest>/   its files, unpacked so that the config can refer to them; rebuilt from `bundle`
//!                            whenever they differ from it
//! ```

use crate::bundle::{Bundle, PACKED_BYTES};
use crate::digest::Digest;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The first line up to the digest.
const HEAD: &str = "weir bundle ";

/// A folder that belongs to one gateway.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Trees in other places, because the folder was not writable.
    elsewhere: Vec<PathBuf>,
}

impl Cache {
    /// A cache in this folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), elsewhere: Vec::new() }
    }

    /// The bundle that ran last; `None` if there is none. Reports a damaged bundle instead of using it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(&self) -> Result<Option<Bundle>, String> {
        let path = self.folder.join("bundle");
        let wrong = |why: &str| format!("{}: {why}", path.display());
        let mut bytes = Vec::new();
        let most = PACKED_BYTES as u64 + 1024;
        match File::open(&path).and_then(|file| file.take(most).read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(&e.to_string())),
        }
        let end = bytes.iter().position(|b| *b == b'\n').ok_or_else(|| wrong("it is damaged"))?;
        let (head, packed) = bytes.split_at(end);
        let head = std::str::from_utf8(head).ok().and_then(|head| head.strip_prefix(HEAD));
        let digest: Digest = head.and_then(|head| head.parse().ok()).ok_or_else(|| wrong("it is damaged"))?;
        let bundle =
            Bundle::unpack(packed.get(1..).unwrap_or_default()).map_err(|e| wrong(&e.to_string()))?;
        if bundle.digest() == digest {
            Ok(Some(bundle))
        } else {
            Err(wrong("its content is not what its digest says"))
        }
    }

    /// Makes a bundle the one to load after a restart. At any time, the file contains either this bundle or the
    /// previous one, complete.
    ///
    /// # Errors
    /// If it could not be written; the previous one is still there.
    pub fn keep(&self, bundle: &Bundle) -> io::Result<()> {
        let packed = bundle.pack().map_err(io::Error::other)?;
        make_folder(&self.folder)?;
        let beside = self.folder.join(format!(".bundle.{}.new", std::process::id()));
        let written =
            write_new(&beside, &[HEAD.as_bytes(), bundle.digest().to_string().as_bytes(), b"\n", &packed]);
        let renamed = written.and_then(|()| fs::rename(&beside, self.folder.join("bundle")));
        if renamed.is_err() {
            let _ = fs::remove_file(&beside); // it may not exist
            return renamed;
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Unpacks the files of a bundle and returns their folder. If the cache folder is not writable, uses a temporary
    /// folder: a full disk must not block a change.
    ///
    /// # Errors
    /// If neither folder is writable.
    pub fn lay_out(&mut self, bundle: &Bundle) -> io::Result<PathBuf> {
        let tree = self.folder.join("trees").join(bundle.digest().to_string());
        if is_tree(&tree, bundle) {
            return Ok(tree);
        }
        let first = match self.lay_out_at(&tree, bundle) {
            Ok(()) => return Ok(tree),
            Err(e) => e,
        };
        let elsewhere = std::env::temp_dir().join(format!(
            "weir-{}-{}-{}",
            std::process::id(),
            bundle.digest().short(),
            self.elsewhere.len()
        ));
        let made = DirBuilder::new().mode(0o700).create(&elsewhere); // never into a folder that someone else created
        if made.and_then(|()| fill(&elsewhere, bundle)).is_err() {
            let _ = fs::remove_dir_all(&elsewhere); // as above
            return Err(first);
        }
        self.elsewhere.push(elsewhere.clone());
        Ok(elsewhere)
    }

    fn lay_out_at(&self, tree: &Path, bundle: &Bundle) -> io::Result<()> {
        make_folder(&self.folder.join("trees"))?;
        let beside =
            self.folder.join("trees").join(format!(".{}.{}.new", bundle.digest(), std::process::id()));
        let _ = fs::remove_dir_all(&beside); // left by a killed process with our PID
        let filled = DirBuilder::new().mode(0o700).create(&beside).and_then(|()| fill(&beside, bundle));
        let moved = filled.and_then(|()| {
            if tree.exists() {
                fs::remove_dir_all(tree)?;
            }
            fs::rename(&beside, tree)
        });
        if moved.is_err() {
            let _ = fs::remove_dir_all(&beside); // it may not exist
        }
        moved
    }

    /// Removes the unpacked files of bundles that are not in `needed`.
    pub fn tidy(&mut self, needed: &[PathBuf]) {
        let trees = fs::read_dir(self.folder.join("trees")).into_iter().flatten().flatten();
        let unused = trees.map(|entry| entry.path()).filter(|path| !needed.contains(path));
        for path in unused.collect::<Vec<_>>() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // Remove only our own folders, whichever folder the operator configured.
            if name.parse::<Digest>().is_ok() {
                let _ = fs::remove_dir_all(&path); // retried next time
            }
        }
        self.elsewhere.retain(|path| {
            let keep = needed.contains(path);
            if !keep {
                let _ = fs::remove_dir_all(path); // it is in a temporary folder
            }
            keep
        });
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() { Ok(()) } else { DirBuilder::new().recursive(true).mode(0o700).create(folder) }
}

fn write_new(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let _ = fs::remove_file(path); // left by a killed process with our PID
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    file.sync_all()
}

fn fill(tree: &Path, bundle: &Bundle) -> io::Result<()> {
    for (path, content) in bundle.files() {
        let path = tree.join(path);
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content)?;
    }
    Ok(())
}

fn is_tree(tree: &Path, bundle: &Bundle) -> bool {
    tree.is_dir() && Bundle::read_all(tree).is_ok_and(|there| there.digest() == bundle.digest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::MAIN;

    fn bundle(text: &str) -> Bundle {
        let files = [(MAIN, text), ("routes/.hidden.yaml", "a")];
        Bundle::new(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))).unwrap()
    }

    #[test]
    fn what_was_kept_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("a/last-good"));
        assert_eq!(cache.load(), Ok(None));
        for text in ["one", "two"] {
            cache.keep(&bundle(text)).unwrap();
            assert_eq!(cache.load(), Ok(Some(bundle(text))));
        }
        let names = fs::read_dir(folder.path().join("a/last-good")).unwrap().count();
        assert_eq!(names, 1, "nothing is left over");
    }

    /// `of_0_1/bundle` was written by 0.1.
    #[test]
    fn versions_read_each_others_bundles() {
        let theirs = include_bytes!("of_0_1/bundle");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("bundle"), theirs).unwrap();
        let cache = Cache::new(folder.path());
        let bundle = cache.load().unwrap().unwrap();
        let files: Vec<_> = bundle.files().collect();
        let main = "include: [ routes/*.yaml ]\nlisteners: { web: { address: 127.0.0.1:8080 } }\n";
        let route = "routes:\n  a: { match: { path: /é }, respond: { status: 204 } }\n";
        assert_eq!(files, [("routes/a.yaml", route.as_bytes()), (MAIN, main.as_bytes())]);
        // 0.1 reads what we write: the same line with the same digest, then an archive of the same form.
        cache.keep(&bundle).unwrap();
        let ours = fs::read(folder.path().join("bundle")).unwrap();
        let line = |bytes: &[u8]| bytes[..=bytes.iter().position(|b| *b == b'\n').unwrap()].to_vec();
        assert_eq!(line(&ours), line(theirs));
        let unpacked = |bytes: &[u8]| {
            let mut archive = Vec::new();
            flate2::read::GzDecoder::new(&bytes[line(bytes).len()..]).read_to_end(&mut archive).unwrap();
            archive
        };
        assert_eq!(unpacked(&ours), unpacked(theirs));
    }

    #[test]
    fn what_is_damaged_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        cache.keep(&bundle("one")).unwrap();
        let path = folder.path().join("bundle");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            // Some bits of a compressed file have no effect; then the original must be found.
            match cache.load() {
                Ok(found) => assert_eq!(found, Some(bundle("one")), "{at}"),
                Err(why) => assert!(why.contains("bundle"), "{why}"),
            }
        }
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(cache.load().is_err());
        fs::write(&path, "").unwrap();
        assert!(cache.load().is_err());
    }

    #[test]
    fn files_are_laid_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = Cache::new(folder.path());
        let (one, two) = (bundle("one"), bundle("two"));
        let tree = cache.lay_out(&one).unwrap();
        assert_eq!(fs::read_to_string(tree.join(MAIN)).unwrap(), "one");
        assert_eq!(fs::read_to_string(tree.join("routes/.hidden.yaml")).unwrap(), "a");
        // An extra file might be included and a changed file would run, so both are repaired.
        fs::write(tree.join("routes/more.yaml"), "x").unwrap();
        assert_eq!(cache.lay_out(&one).unwrap(), tree);
        assert!(!tree.join("routes/more.yaml").exists());
        let second = cache.lay_out(&two).unwrap();
        fs::create_dir(folder.path().join("trees/mine")).unwrap();
        cache.tidy(std::slice::from_ref(&second));
        assert!(second.exists() && !tree.exists() && folder.path().join("trees/mine").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        fs::write(&blocked, "").unwrap();
        let mut cache = Cache::new(blocked.join("last-good"));
        assert!(cache.keep(&bundle("one")).is_err());
        let tree = cache.lay_out(&bundle("one")).unwrap();
        assert_eq!(fs::read_to_string(tree.join(MAIN)).unwrap(), "one");
        cache.tidy(&[]);
        assert!(!tree.exists());
    }
}
