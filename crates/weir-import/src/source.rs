//! The source tree: the files of the other gateway, read with limits.
//!
//! [`Disk`] is the only part of the crate that opens files. It reads below one folder, the one of the first file: an
//! include that leads out of it is refused, through links too.

mod disk;
mod path;

pub use disk::Disk;
pub use path::{folder, has_wildcard, join};

use path::fits_wildcard;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Most files of one import.
pub const MAX_FILES: usize = 20_000;
/// Largest file. The largest real one that we know has 3 MB.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// Most bytes of all files.
pub const MAX_BYTES: u64 = 64 << 20;
/// Characters that mark parts of texts while they are translated. In a source they would become `${…}`.
const MARKS: [char; 3] = ['\u{e000}', '\u{e001}', '\u{f8fe}'];
/// How deep includes may be nested.
pub const MAX_DEPTH: usize = 20;
/// Most links that are followed one after another.
const MAX_LINKS: usize = 8;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file, as the person knows it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

/// A file of the source.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path, as the person knows it.
    pub name: Arc<str>,
    /// Its text, without a byte order mark.
    pub text: Arc<str>,
}

/// Why a source cannot be read. Exit code 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Where, if the file could be opened.
    pub place: Option<Place>,
    /// What is wrong.
    pub message: String,
}

/// Opens files. [`Disk`] in the program, [`Memory`] in tests.
pub trait Loader {
    /// The content of a file, at most `limit` bytes of it and one more.
    ///
    /// # Errors
    /// A sentence for people.
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, String>;
    /// The names in a folder, sorted. A folder that does not exist is empty.
    fn list(&self, folder: &str) -> Vec<String>;
    /// Whether absolute paths lead where the program itself would look. If not, the files may be a copy from elsewhere.
    fn is_in_place(&self) -> bool {
        false
    }
    /// The link on the way to a file whose absolute target was looked for below the folder, because the files are a copy
    /// from elsewhere.
    fn moved_link(&self, _path: &str) -> Option<MovedLink> {
        None
    }
}

/// A link of a copied tree: its target is an absolute path of the machine that the tree was copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedLink {
    /// Its target, as written.
    pub target: PathBuf,
    /// What was read in its place.
    pub read: PathBuf,
}

/// Files that the program itself read, by absolute path, and below them what it does not print, such as lists of users.
pub struct Printed {
    files: Memory,
    others: Disk,
}

/// The files that an import has read, with what it may still read.
pub struct SourceTree<'a> {
    loader: &'a dyn Loader,
    given: Vec<String>,
    read: Vec<Arc<str>>,
    bytes: u64,
    /// What a person should know of how the files were found.
    notes: Vec<String>,
}

/// Files of a test, by path.
#[derive(Debug, Default)]
pub struct Memory(pub BTreeMap<String, Vec<u8>>);

impl Place {
    /// A line of a file.
    #[must_use]
    pub fn new(file: &str, line: u32) -> Self {
        Self { file: file.into(), line }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Unreadable {
    /// A mistake at a place.
    pub fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), message: message.into() }
    }

    /// A mistake of no place.
    pub fn anywhere(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Unreadable {}

impl<'a> SourceTree<'a> {
    /// A tree of the files that the command line named. They are read later.
    ///
    /// # Errors
    /// If none is given, or too many are.
    pub fn open(loader: &'a dyn Loader, files: &[String]) -> Result<Self, Unreadable> {
        match files.len() {
            0 => Err(Unreadable::anywhere("no file is given")),
            count if count > MAX_FILES => {
                Err(Unreadable::anywhere(format!("{count} files are given; at most {MAX_FILES} are read")))
            }
            _ => Ok(Self { loader, given: files.to_vec(), read: Vec::new(), bytes: 0, notes: Vec::new() }),
        }
    }

    /// The paths that the command line named.
    #[must_use]
    pub fn given(&self) -> &[String] {
        &self.given
    }

    /// [`Loader::is_in_place`].
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.loader.is_in_place()
    }

    /// The files that were read so far.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.read.iter().map(|name| name.to_string()).collect()
    }

    /// What a person should know of how the files were found.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Reads a file as text.
    ///
    /// # Errors
    /// If it is missing, outside of the tree, no regular file, too large, or not UTF-8 text.
    pub fn read(&mut self, path: &str) -> Result<SourceFile, Unreadable> {
        let fail = |message: String| Err(Unreadable::anywhere(format!("{path}: {message}")));
        if self.read.len() >= MAX_FILES {
            return fail(format!("more than {MAX_FILES} files are included"));
        }
        let limit = MAX_FILE_BYTES.min(MAX_BYTES - self.bytes);
        let bytes = match self.loader.read(path, limit) {
            Ok(bytes) => bytes,
            Err(why) => return fail(why),
        };
        let length = bytes.len() as u64;
        if length > limit {
            let (one, all) = (MAX_FILE_BYTES >> 20, MAX_BYTES >> 20);
            return fail(format!("too large: a file may have {one} MiB, all together {all} MiB"));
        }
        self.bytes += length;
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let line_of = |at: usize| 1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count();
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            return fail(format!("line {} has a NUL byte, so this is no text file", line_of(at)));
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => return fail(format!("line {} is not UTF-8", line_of(e.valid_up_to()))),
        };
        if let Some((at, mark)) = text.char_indices().find(|(_, c)| MARKS.contains(c)) {
            return fail(format!(
                "line {} has the private-use character U+{:04X}, which weir import uses itself: remove it",
                line_of(at),
                u32::from(mark)
            ));
        }
        if let Some(link) = self.loader.moved_link(path) {
            let (target, read) = (link.target.display(), link.read.display());
            self.notes
                .push(format!("{path} is a link to {target}: {read} of the copy was read in its place"));
        }
        let file = SourceFile { name: path.into(), text: text.into() };
        self.read.push(file.name.clone());
        Ok(file)
    }

    /// Whether the folder is there in which a pattern looks for files. If not, the files may stand on another machine.
    #[must_use]
    pub fn has_folder(&self, pattern: &str) -> bool {
        let plain = pattern.find(['*', '?', '[']).map_or(pattern, |at| &pattern[..at]);
        let folder = plain.rfind('/').map_or("", |at| &plain[..at]);
        if folder.is_empty() || !self.loader.list(folder).is_empty() {
            return true;
        }
        let (outer, name) = folder.rsplit_once('/').unwrap_or((".", folder));
        let outer = if outer.is_empty() { "/" } else { outer };
        self.loader.list(outer).iter().any(|known| known == name)
    }

    /// The paths that fit a pattern in which `*`, `?` and `[…]` stand for parts of a name, sorted.
    /// A path without them is itself.
    #[must_use]
    pub fn glob(&self, pattern: &str) -> Vec<String> {
        if !has_wildcard(pattern) {
            return vec![pattern.to_owned()];
        }
        let mut found = vec![String::new()];
        for (depth, part) in pattern.split('/').enumerate() {
            let join = |folder: &String, name: &str| match depth {
                0 => name.to_owned(),
                _ => format!("{folder}/{name}"),
            };
            found = found
                .iter()
                .flat_map(|folder| {
                    if !has_wildcard(part) {
                        return vec![join(folder, part)];
                    }
                    let listed = match (depth, folder.is_empty()) {
                        (0, _) => ".",
                        (_, true) => "/",
                        _ => folder,
                    };
                    let names = self.loader.list(listed);
                    let fits = names.iter().filter(|name| !name.starts_with('.') || part.starts_with('.'));
                    fits.filter(|name| fits_wildcard(part, name)).map(|name| join(folder, name)).collect()
                })
                .take(MAX_FILES)
                .collect();
        }
        found
    }
}

impl Printed {
    /// The files that a program printed, before those of the disk.
    #[must_use]
    pub fn new(files: Vec<(String, String)>, others: Disk) -> Self {
        let files = files.into_iter().map(|(path, text)| (path, text.into_bytes()));
        Self { files: Memory(files.collect()), others }
    }
}

impl Loader for Printed {
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, String> {
        self.files.read(path, limit).or_else(|_| self.others.read(path, limit))
    }

    fn list(&self, folder: &str) -> Vec<String> {
        self.files.list(folder)
    }

    fn is_in_place(&self) -> bool {
        true
    }
}

impl Memory {
    /// Files with these texts.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect())
    }
}

impl Loader for Memory {
    fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, String> {
        self.0.get(path).cloned().ok_or_else(|| "no such file".to_owned())
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let below = |path: &String| match folder {
            "." => Some(path.clone()),
            folder => path.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned),
        };
        let mut names: Vec<String> =
            self.0.keys().filter_map(below).map(|rest| first_part(&rest).to_owned()).collect();
        names.dedup();
        names
    }
}

fn first_part(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn io_words(e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "may not be read".to_owned(),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_files_in_folders() {
        let files = Memory::of(&[("conf/b/x.conf", ""), ("conf/a/y.conf", ""), ("conf/a/.z.conf", "")]);
        let tree = SourceTree::open(&files, &["conf/a/y.conf".to_owned()]).unwrap();
        assert_eq!(tree.glob("conf/*/*.conf"), ["conf/a/y.conf", "conf/b/x.conf"]);
        assert_eq!(tree.glob("conf/c/*.conf"), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let files = Memory(BTreeMap::from([
            ("nul".to_owned(), b"a\nb\0".to_vec()),
            ("latin".to_owned(), b"a\xe4".to_vec()),
            ("large".to_owned(), vec![b' '; (MAX_FILE_BYTES + 1) as usize]),
        ]));
        let mut tree = SourceTree::open(&files, &["nul".to_owned()]).unwrap();
        let mut why = |name: &str| tree.read(name).unwrap_err().message;
        assert_eq!(why("nul"), "nul: line 2 has a NUL byte, so this is no text file");
        assert_eq!(why("latin"), "latin: line 1 is not UTF-8");
        assert!(why("large").contains("too large"));
        assert_eq!(why("none"), "none: no such file");
    }
}
