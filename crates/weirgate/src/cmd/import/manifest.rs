//! The list of files that an import wrote, kept in the folder. The next import with `--force` takes away those that it
//! does not write itself: `weir.yaml` includes `routes/*.yaml`, so the routes of a site that is gone would stay.

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Component, Path, PathBuf};
use weir_import::Written;
use weir_wire::hex;

/// Its name in the folder.
const NAME: &str = ".weir-import";
/// Most that is read of it.
const MAX_BYTES: u64 = 16 << 20;
/// What stands for the checksum of a file with secrets, which a checksum could be used to guess.
const SECRET: &str = "secret";

/// How many names ending in `.old` a file may have beside it.
const OLD_MOST: u32 = 1000;

/// Files by their path below the folder, each with its checksum.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest(BTreeMap<String, String>);

/// What became of files of an earlier import.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cleared {
    pub(super) removed: Vec<String>,
    pub(super) renamed: Vec<(String, String)>,
    /// Edited files that stay, with the new text beside them.
    pub(super) kept: Vec<String>,
}

impl Cleared {
    /// Adds what was cleared later.
    pub(super) fn add(&mut self, later: Self) {
        self.removed.extend(later.removed);
        self.renamed.extend(later.renamed);
        self.kept.extend(later.kept);
    }
}

impl Manifest {
    /// The files that are written now.
    pub(super) fn of(written: &[Written]) -> Self {
        let sum =
            |file: &Written| if file.is_secret { SECRET.to_owned() } else { checksum(file.text.as_bytes()) };
        Self(written.iter().map(|file| (file.path.clone(), sum(file))).collect())
    }

    /// That of the last import into the folder; empty if there was none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let mut text = String::new();
        match fs::File::open(&path) {
            Ok(file) => {
                file.take(MAX_BYTES).read_to_string(&mut text).with_context(|| path.display().to_string())?
            }
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once(' '));
        Ok(Self(pairs.map(|(sum, path)| (path.to_owned(), sum.to_owned())).collect()))
    }

    /// Writes it to the folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let mut text = String::from(
            "# What `weir import` wrote. With --force, the next one takes away the files that it does not write.\n",
        );
        for (path, sum) in &self.0 {
            text.push_str(&format!("{sum} {path}\n"));
        }
        let path = folder.join(NAME);
        // A link would be followed.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(e).with_context(|| path.display().to_string());
            }
            _ => {}
        }
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Those of `written` that stand in the folder and were edited since the last import, or that no import wrote. Of a
    /// file with secrets nobody can tell, because it has no checksum: it counts as edited unless it is the same.
    pub(super) fn edited(&self, folder: &Path, written: &[Written]) -> BTreeSet<String> {
        let is_edited = |file: &&Written| {
            let Ok(text) = fs::read(folder.join(&file.path)) else {
                // A folder or a link that leads nowhere.
                return fs::symlink_metadata(folder.join(&file.path)).is_ok();
            };
            text != file.text.as_bytes() && self.0.get(&file.path).is_none_or(|sum| checksum(&text) != *sum)
        };
        written.iter().filter(is_edited).map(|file| file.path.clone()).collect()
    }

    /// Takes away the files that are not among `written`. One that was edited since, or may have been, is renamed.
    ///
    /// # Errors
    /// If a file cannot be removed or renamed.
    pub(super) fn clear(&self, folder: &Path, written: &[Written]) -> Result<Cleared> {
        let mut cleared = Cleared::default();
        let is_written = |path: &str| written.iter().any(|file| file.path == path);
        for (path, sum) in self.0.iter().filter(|(path, _)| !is_written(path)) {
            let Some(file) = within(folder, path) else { continue };
            let is_own = fs::read(&file).is_ok_and(|text| checksum(&text) == *sum);
            if is_own {
                fs::remove_file(&file).with_context(|| file.display().to_string())?;
                cleared.removed.push(path.clone());
            } else {
                let aside =
                    free_name(&file).with_context(|| format!("{}: too many .old files", file.display()))?;
                fs::rename(&file, &aside).with_context(|| file.display().to_string())?;
                let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
                cleared.renamed.push((path.clone(), name));
            }
        }
        Ok(cleared)
    }
}

/// The first of NAME.old, NAME.old1 and so on that does not exist: a file of the user may have that name.
fn free_name(file: &Path) -> Option<PathBuf> {
    let named = |n: u32| {
        let mut name = file.to_owned().into_os_string();
        name.push(if n == 0 { ".old".to_owned() } else { format!(".old{n}") });
        PathBuf::from(name)
    };
    (0..OLD_MOST).map(named).find(|name| fs::symlink_metadata(name).is_err())
}

/// The file at a path below the folder, if it is a plain file there: the list may have been changed, so nothing that it
/// names may lead out of the folder.
fn within(folder: &Path, path: &str) -> Option<PathBuf> {
    let relative = Path::new(path);
    let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    let file = folder.join(relative);
    let is_file = fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_file());
    let parent = file.parent()?.canonicalize().ok()?;
    (is_plain && is_file && parent.starts_with(folder.canonicalize().ok()?)).then_some(file)
}

fn checksum(text: &[u8]) -> String {
    hex::encode(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Written {
        Written { path: path.to_owned(), text: text.to_owned(), is_secret: path.ends_with(".env") }
    }

    #[test]
    fn what_an_earlier_import_wrote_is_taken_away_and_nothing_else() {
        let dir = tempfile::TempDir::new().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir(at("routes")).unwrap();
        let first = [
            file("weir.yaml", "a"),
            file("routes/gone.yaml", "b"),
            file("routes/edited.yaml", "c"),
            file("secrets.env", "d"),
        ];
        for file in &first {
            fs::write(at(&file.path), &file.text).unwrap();
        }
        Manifest::of(&first).write(dir.path()).unwrap();
        fs::write(at("routes/edited.yaml"), "by hand").unwrap();
        fs::write(at("routes/own.yaml"), "by hand").unwrap();
        fs::write(at("routes/edited.yaml.old"), "the user's").unwrap();
        let old = Manifest::read(dir.path()).unwrap();
        assert_eq!(old, Manifest::of(&first));
        let cleared = old.clear(dir.path(), &[file("weir.yaml", "new")]).unwrap();
        assert_eq!(cleared.removed, ["routes/gone.yaml"]);
        let renamed = [("routes/edited.yaml", "edited.yaml.old1"), ("secrets.env", "secrets.env.old")];
        assert_eq!(cleared.renamed, renamed.map(|(path, aside)| (path.to_owned(), aside.to_owned())));
        assert_eq!(fs::read_to_string(at("routes/edited.yaml.old")).unwrap(), "the user's");
        let left = ["weir.yaml", "routes/edited.yaml.old1", "routes/own.yaml", "secrets.env.old"];
        assert!(left.iter().all(|path| at(path).exists()), "{cleared:?}");
        assert!(!at("routes/gone.yaml").exists() && !at("routes/edited.yaml").exists());
    }

    #[test]
    fn what_was_edited_is_known() {
        let dir = tempfile::TempDir::new().unwrap();
        let first = ["own", "edited", "same", "a.env", "b.env"].map(|path| file(path, path));
        for file in &first {
            fs::write(dir.path().join(&file.path), &file.text).unwrap();
        }
        Manifest::of(&first).write(dir.path()).unwrap();
        for edited in ["edited", "same", "a.env"] {
            fs::write(dir.path().join(edited), "by hand").unwrap();
        }
        fs::write(dir.path().join("foreign"), "by hand").unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        let now = [
            file("own", "new"),
            file("edited", "new"),
            file("same", "by hand"),
            file("a.env", "new"),
            file("b.env", "b.env"),
            file("foreign", "new"),
            file("folder", "new"),
            file("missing", "new"),
        ];
        let edited = Manifest::read(dir.path()).unwrap().edited(dir.path(), &now);
        assert_eq!(edited.into_iter().collect::<Vec<_>>(), ["a.env", "edited", "folder", "foreign"]);
    }

    #[test]
    fn nothing_outside_of_the_folder_is_touched() {
        let dir = tempfile::TempDir::new().unwrap();
        let (own, other) = (dir.path().join("own"), dir.path().join("other"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("x"), "b").unwrap();
        std::os::unix::fs::symlink(&other, own.join("link")).unwrap();
        std::os::unix::fs::symlink(other.join("x"), own.join("file")).unwrap();
        let sum = checksum(b"b");
        let absolute = other.join("x").display().to_string();
        let paths = ["../other/x", "link/x", "file", &absolute, "", "."];
        let manifest = Manifest(paths.iter().map(|path| ((*path).to_owned(), sum.clone())).collect());
        assert_eq!(manifest.clear(&own, &[]).unwrap(), Cleared::default());
        assert_eq!(fs::read(other.join("x")).unwrap(), b"b");
    }
}
