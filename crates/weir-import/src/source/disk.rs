//! Loads files from a folder on disk.

use super::{Loader, MAX_FILES, MAX_LINKS, MovedLink, Unreadable, io_words};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Files below a folder of this machine.
pub struct Disk {
    /// The folder, without links.
    root: PathBuf,
}

impl Disk {
    /// Files below `root`.
    ///
    /// # Errors
    /// If the folder does not exist.
    pub fn below(root: &Path) -> Result<Self, Unreadable> {
        match root.canonicalize() {
            Ok(root) => Ok(Self { root }),
            Err(e) => Err(Unreadable::anywhere(format!("{}: {e}", root.display()))),
        }
    }

    /// Files below the folder that holds all of `files`.
    ///
    /// # Errors
    /// If one of their folders does not exist.
    pub fn around(files: &[String]) -> Result<Self, Unreadable> {
        let mut root: Option<PathBuf> = None;
        for file in files {
            let folder = match Path::new(file).parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            let folder = Self::below(folder).map_err(|e| Unreadable::anywhere(format!("{file}: {e}")))?.root;
            root = Some(match root {
                None => folder,
                Some(root) => root
                    .components()
                    .zip(folder.components())
                    .take_while(|(a, b)| a == b)
                    .map(|(a, _)| a)
                    .collect(),
            });
        }
        Ok(Self { root: root.unwrap_or_else(|| PathBuf::from("/")) })
    }

    /// The file or folder below the root that a path leads to.
    ///
    /// # Errors
    /// A sentence for people.
    fn resolve(&self, path: &str) -> Result<PathBuf, String> {
        let real = match Path::new(path).canonicalize() {
            Ok(real) if real.starts_with(&self.root) => return Ok(real),
            real => real,
        };
        if let Some(link) = self.moved_link(path) {
            return Ok(link.read);
        }
        let link = link_in(Path::new(path)).map(|(_, target)| target.display().to_string());
        match (real, link) {
            (_, Some(target)) => Err(format!(
                "is a link to {target}, which is not below {}: copy what it leads to, and put it in the place of the link",
                self.root.display()
            )),
            (Err(e), None) => Err(io_words(&e)),
            (Ok(_), None) => Err(format!(
                "leads out of {}: weir import reads only files below the folder of the given ones",
                self.root.display()
            )),
        }
    }

    /// The path below the root that has the most parts of an absolute path at its end: of `/etc/nginx/conf.d/a.conf` it
    /// may be `conf.d/a.conf`. A name alone is enough only if its folder has the root's name.
    fn copied(&self, target: &Path) -> Option<PathBuf> {
        let parts: Vec<Component<'_>> = target.components().skip(1).collect();
        let is_named = |at: usize| {
            let folder = at.checked_sub(1).and_then(|at| parts.get(at)).map(|part| part.as_os_str());
            folder.is_some() && folder == self.root.file_name()
        };
        let tries = (0..parts.len()).filter(|at| at + 1 < parts.len() || is_named(*at));
        tries
            .map(|at| self.root.join(parts[at..].iter().collect::<PathBuf>()))
            .find(|path| path.symlink_metadata().is_ok())
    }
}

/// The first link in a path, with everything behind it, and its target.
fn link_in(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut at = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        at.push(part);
        if let Ok(target) = fs::read_link(&at) {
            return Some((parts.as_path().to_owned(), target));
        }
    }
    None
}

impl Loader for Disk {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, String> {
        let real = self.resolve(path)?;
        // Asked before it is opened, because opening a pipe waits for its writer.
        let about = fs::metadata(&real).map_err(|e| io_words(&e))?;
        if !about.is_file() {
            return Err("is not a regular file".to_owned());
        }
        if about.len() > limit {
            return Ok(vec![b' '; usize::try_from(limit + 1).unwrap_or(usize::MAX).min(1 << 27)]);
        }
        let mut bytes = Vec::new();
        let file = File::open(&real).map_err(|e| io_words(&e))?;
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| io_words(&e))?;
        Ok(bytes)
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let Ok(real) = self.resolve(folder) else { return Vec::new() };
        let Ok(entries) = fs::read_dir(real) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.take(MAX_FILES).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn moved_link(&self, path: &str) -> Option<MovedLink> {
        let mut path = Path::new(path).to_owned();
        let mut link = None;
        for _ in 0..MAX_LINKS {
            if path.canonicalize().is_ok_and(|real| real.starts_with(&self.root)) {
                break;
            }
            let (rest, target) = link_in(&path)?;
            if !target.is_absolute() {
                return None;
            }
            path = self.copied(&target.join(rest))?;
            link = Some(target);
        }
        // The root is asked again: what was found may be a link itself.
        let read = path.canonicalize().ok().filter(|real| real.starts_with(&self.root))?;
        Some(MovedLink { target: link?, read })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SourceTree;
    use super::*;

    /// A copy of Debian's tree: `sites-enabled/app` is a link to an absolute path of the machine it came from.
    #[test]
    fn links_of_a_copied_tree_lead_below_it() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("nginx");
        let outside = folder.path().join("outside");
        for name in ["sites-available", "sites-enabled"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("nginx.conf"), "main").unwrap();
        fs::write(root.join("sites-available/app"), "app").unwrap();
        fs::write(root.join("mime.types"), "types").unwrap();
        fs::write(&outside, "outside").unwrap();
        let enabled = |name: &str| root.join("sites-enabled").join(name);
        for (name, target) in [
            ("app", "/weir-nowhere/nginx/sites-available/app"),
            ("twice", "/weir-nowhere/nginx/sites-enabled/app"),
            ("types", "/weir-nowhere/nginx/mime.types"),
            ("gone", "/weir-nowhere/nginx/sites-available/gone"),
            ("circle", "/weir-nowhere/nginx/sites-enabled/circle"),
        ] {
            symlink(target, enabled(name)).unwrap();
        }
        symlink(&outside, enabled("outside")).unwrap();
        symlink("/weir-nowhere/nginx/sites-enabled", root.join("linked")).unwrap();
        let main = root.join("nginx.conf").display().to_string();
        let disk = Disk::around(std::slice::from_ref(&main)).unwrap();
        let mut tree = SourceTree::open(&disk, &[main]).unwrap();
        let mut read =
            |path: PathBuf| tree.read(&path.display().to_string()).map(|file| file.text.to_string());
        assert_eq!(read(enabled("app")).unwrap(), "app");
        assert_eq!(read(enabled("twice")).unwrap(), "app");
        assert_eq!(read(enabled("types")).unwrap(), "types");
        assert_eq!(read(root.join("linked/app")).unwrap(), "app");
        for name in ["gone", "circle", "outside"] {
            let said = read(enabled(name)).unwrap_err().message;
            assert!(
                said.contains("is a link to /") && said.contains("copy what it leads to"),
                "{name}: {said}"
            );
        }
        let listed = disk.list(&root.join("linked").display().to_string());
        assert_eq!(listed, ["app", "circle", "gone", "outside", "twice", "types"]);
        let notes = tree.take_notes();
        assert!(
            notes[0].contains("sites-enabled/app is a link to /weir-nowhere/nginx/sites-available/app"),
            "{notes:?}"
        );
        assert_eq!(notes.len(), 4);
    }
}
