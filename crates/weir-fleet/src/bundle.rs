//! A bundle: all files of a config as written, as one immutable unit. It travels as a compressed archive (`.tar.gz`);
//! its name is the digest of its content, regardless of compression.

use crate::digest::Digest;
use crate::tar;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::path::Path;

/// The file where reading a bundle starts.
pub const MAIN: &str = "weir.yaml";

/// Largest bundle that can be published, in compressed bytes. etcd accepts requests of 1.5 MiB.
pub const PUBLISHED_BYTES: usize = 1 << 20;

/// Largest bundle that we accept from a web server, in compressed bytes.
pub const PACKED_BYTES: usize = 8 << 20;

/// Most bytes of all files together.
pub const UNPACKED_BYTES: usize = 32 << 20;

/// Most bytes of one file.
pub const FILE_BYTES: usize = 16 << 20;

/// Most files.
pub const FILES: usize = 2_000;

/// Longest path of a file, in bytes, and most folders in it.
pub const PATH_BYTES: usize = 255;
const FOLDERS: usize = 16;

/// The files of a config.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    files: BTreeMap<String, Vec<u8>>,
    digest: Digest,
}

/// Why something is not a bundle. The names in it come from a stranger: do not use them as paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A file's path leads outside, or means different things to different programs.
    BadPath(String),
    /// The same path twice, or a file where another path needs a folder.
    Clash(String),
    /// A file is larger than [`FILE_BYTES`].
    FileTooLarge(String),
    /// It has no [`MAIN`].
    NoMain,
    /// It contains a link, a device or the like.
    NotAFile(String),
    /// It is not one of our archives, or is damaged.
    NotAnArchive(&'static str),
    /// A path is longer than [`PATH_BYTES`].
    PathTooLong(String),
    /// More than [`FILES`].
    TooManyFiles,
    /// Its compressed size, and the limit that it exceeds.
    TooLarge(usize, usize),
    /// A file or folder could not be read.
    Unreadable(String),
    /// The files together exceed [`UNPACKED_BYTES`].
    UnpacksTooLarge,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPath(path) => {
                write!(f, "the path {path:?} is not one of a file below the bundle's folder")
            }
            Self::Clash(path) => write!(f, "the path {path:?} occurs twice, or is a file and a folder"),
            Self::FileTooLarge(path) => write!(f, "the file {path:?} is larger than {FILE_BYTES} bytes"),
            Self::NoMain => write!(f, "there is no {MAIN}"),
            Self::NotAFile(path) => {
                write!(f, "{path:?} is not a regular file; links and devices are refused")
            }
            Self::NotAnArchive(why) => {
                write!(f, "this is not an archive of a bundle: {why}; make it with `tar --format=ustar -czf`")
            }
            Self::PathTooLong(path) => write!(f, "the path {path:?} is longer than {PATH_BYTES} bytes"),
            Self::TooManyFiles => write!(f, "there are more than {FILES} files"),
            Self::TooLarge(bytes, most) => write!(f, "it has {bytes} bytes compressed; {most} are the most"),
            Self::Unreadable(why) => f.write_str(why),
            Self::UnpacksTooLarge => write!(f, "the files have more than {UNPACKED_BYTES} bytes together"),
        }
    }
}

impl std::error::Error for Wrong {}

impl Bundle {
    /// A bundle of these files, given by path.
    ///
    /// # Errors
    /// Which limit they exceed, or which path is wrong.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, Wrong> {
        let mut kept = BTreeMap::new();
        let mut bytes = 0;
        for (path, content) in files {
            add(&mut kept, &mut bytes, &path, content)?;
        }
        Self::of(kept)
    }

    fn of(files: BTreeMap<String, Vec<u8>>) -> Result<Self, Wrong> {
        let folder_of_another = |path: &String| {
            let folders = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
            folders.into_iter().any(|folder| files.contains_key(folder))
        };
        if let Some(path) = files.keys().find(|path| folder_of_another(path)) {
            return Err(Wrong::Clash(path.clone()));
        }
        if !files.contains_key(MAIN) {
            return Err(Wrong::NoMain);
        }
        let digest = digest(&files);
        Ok(Self { files, digest })
    }

    /// Reads a folder with all its files except hidden ones; or one file, which becomes [`MAIN`].
    ///
    /// # Errors
    /// What cannot be read, or why it is not a bundle.
    pub fn read(path: &Path) -> Result<Self, Wrong> {
        let mut files = BTreeMap::new();
        let mut bytes = 0;
        if path.is_dir() {
            walk(path, "", Hidden::Skip, &mut files, &mut bytes)?;
        } else {
            add(&mut files, &mut bytes, MAIN, read_file(path)?)?;
        }
        Self::of(files)
    }

    /// Reads a folder with all its files, including hidden ones.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_all(folder: &Path) -> Result<Self, Wrong> {
        let mut files = BTreeMap::new();
        walk(folder, "", Hidden::Take, &mut files, &mut 0)?;
        Self::of(files)
    }

    /// Unpacks data from a web server or a store: an archive, or one file, which becomes [`MAIN`]. Never uses more
    /// memory than the limits allow, whatever the input.
    ///
    /// # Errors
    /// Why it is not a bundle.
    pub fn unpack(bytes: &[u8]) -> Result<Self, Wrong> {
        const GZIP: &[u8] = &[0x1f, 0x8b];
        if bytes.len() > PACKED_BYTES {
            return Err(Wrong::TooLarge(bytes.len(), PACKED_BYTES));
        }
        if !bytes.starts_with(GZIP) {
            return Self::new([(MAIN.to_owned(), bytes.to_vec())]);
        }
        // Headers and padding: at most two blocks per file.
        let most = UNPACKED_BYTES + FILES * 1024 + 10_240;
        let mut archive = Vec::new();
        GzDecoder::new(bytes)
            .take(most as u64 + 1)
            .read_to_end(&mut archive)
            .map_err(|_| Wrong::NotAnArchive("it cannot be decompressed"))?;
        if archive.len() > most {
            return Err(Wrong::UnpacksTooLarge);
        }
        let mut files = BTreeMap::new();
        let mut sum = 0;
        tar::read(&archive, |path, content| {
            // `tar -C DIR .` writes `./weir.yaml`.
            let path = path.strip_prefix("./").unwrap_or(path);
            add(&mut files, &mut sum, path, content.to_vec())
        })?;
        Self::of(files)
    }

    /// Packs it into an archive.
    ///
    /// # Errors
    /// If a path does not fit into an archive.
    pub fn pack(&self) -> Result<Vec<u8>, Wrong> {
        let archive = tar::write(&self.files)?;
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail.
        let done = packed.write_all(&archive).and_then(|()| packed.finish());
        done.map_err(|_| Wrong::NotAnArchive("it cannot be compressed"))
    }

    /// Its digest, which is its name.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Its files: paths with `/` between folders, and contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, content)| (path.as_str(), content.as_slice()))
    }

    /// The total size of the files, in bytes.
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("digest", &self.digest).field("files", &self.files.len()).finish()
    }
}

/// Each length precedes its data, so that no two sets of files hash the same bytes.
fn digest(files: &BTreeMap<String, Vec<u8>>) -> Digest {
    let lengths: Vec<[[u8; 8]; 2]> = files
        .iter()
        .map(|(path, content)| [(path.len() as u64).to_be_bytes(), (content.len() as u64).to_be_bytes()])
        .collect();
    let mut pieces: Vec<&[u8]> = vec![b"weir bundle 1\n"];
    for ((path, content), [of_path, of_content]) in files.iter().zip(&lengths) {
        pieces.extend([of_path, path.as_bytes(), of_content, content.as_slice()]);
    }
    Digest::of(&pieces)
}

fn add(
    files: &mut BTreeMap<String, Vec<u8>>,
    bytes: &mut usize,
    path: &str,
    content: Vec<u8>,
) -> Result<(), Wrong> {
    if path.len() > PATH_BYTES {
        return Err(Wrong::PathTooLong(path.to_owned()));
    }
    if !is_below(path) {
        return Err(Wrong::BadPath(path.to_owned()));
    }
    if content.len() > FILE_BYTES {
        return Err(Wrong::FileTooLarge(path.to_owned()));
    }
    *bytes += content.len();
    if *bytes > UNPACKED_BYTES {
        return Err(Wrong::UnpacksTooLarge);
    }
    if files.len() == FILES {
        return Err(Wrong::TooManyFiles);
    }
    match files.insert(path.to_owned(), content) {
        None => Ok(()),
        Some(_) => Err(Wrong::Clash(path.to_owned())),
    }
}

/// Whether every program agrees that the path is a file below the folder.
fn is_below(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..");
    path.split('/').all(part)
        && path.split('/').count() <= FOLDERS
        && !path.chars().any(|c| c.is_control() || c == '\\')
}

/// How to treat files and folders whose names start with a dot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Skip,
    Take,
}

fn walk(
    folder: &Path,
    below: &str,
    hidden: Hidden,
    files: &mut BTreeMap<String, Vec<u8>>,
    bytes: &mut usize,
) -> Result<(), Wrong> {
    let unreadable = |e: std::io::Error| Wrong::Unreadable(format!("cannot read {}: {e}", folder.display()));
    let mut entries =
        std::fs::read_dir(folder).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| Wrong::BadPath(format!("{below}{}", name.display())))?;
        if name.starts_with('.') && hidden == Hidden::Skip {
            continue;
        }
        let path = format!("{below}{name}");
        if path.split('/').count() > FOLDERS {
            return Err(Wrong::BadPath(path));
        }
        // Follow links: people have `/etc/weir/tls -> /srv/secrets`. The bundle contains the target.
        let meta = std::fs::metadata(entry.path()).map_err(unreadable)?;
        if meta.is_dir() {
            walk(&entry.path(), &format!("{path}/"), hidden, files, bytes)?;
        } else if meta.is_file() {
            add(files, bytes, &path, read_file(&entry.path())?)?;
        } else {
            return Err(Wrong::NotAFile(path));
        }
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<Vec<u8>, Wrong> {
    let unreadable = |e: std::io::Error| Wrong::Unreadable(format!("cannot read {}: {e}", path.display()));
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut content = Vec::new();
    file.take(FILE_BYTES as u64 + 1).read_to_end(&mut content).map_err(unreadable)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(files: &[(&str, &str)]) -> Result<Bundle, Wrong> {
        Bundle::new(files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    /// An archive with an extra entry that honest archives do not have.
    fn with_entry(change: impl Fn(&mut [u8])) -> Vec<u8> {
        let files = BTreeMap::from([("a".to_owned(), b"x".to_vec()), (MAIN.to_owned(), Vec::new())]);
        let mut archive = tar::write(&files).unwrap();
        change(&mut archive[..512]);
        let mut sum = 0;
        for (at, byte) in archive[..512].iter().enumerate() {
            sum += if (148..156).contains(&at) { 32 } else { u32::from(*byte) };
        }
        archive[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        gzip(&archive)
    }

    #[test]
    fn there_and_back() {
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(90));
        let there = bundle(&[(MAIN, "a: 1\n"), ("certs/api.pem", ""), (&long, "é")]).unwrap();
        let back = Bundle::unpack(&there.pack().unwrap()).unwrap();
        assert_eq!((back.digest(), &back), (there.digest(), &there));
        assert_eq!(there.pack().unwrap(), back.pack().unwrap());
    }

    #[test]
    fn the_content_is_the_name() {
        let one = bundle(&[(MAIN, "a"), ("b", "c")]).unwrap().digest();
        for other in [
            [(MAIN, "b"), ("b", "c")],
            [(MAIN, "a"), ("bc", "")],
            [(MAIN, "a"), ("b", "cc")],
            [(MAIN, "ab"), ("b", "")],
        ] {
            assert_ne!(bundle(&other).unwrap().digest(), one, "{other:?}");
        }
        assert_eq!(bundle(&[("b", "c"), (MAIN, "a")]).unwrap().digest(), one);
        let fast = {
            let files = BTreeMap::from([(MAIN.to_owned(), b"a".to_vec()), ("b".to_owned(), b"c".to_vec())]);
            let mut packed = GzEncoder::new(Vec::new(), Compression::none());
            packed.write_all(&tar::write(&files).unwrap()).unwrap();
            packed.finish().unwrap()
        };
        assert_eq!(Bundle::unpack(&fast).unwrap().digest(), one);
    }

    #[test]
    fn one_file_is_a_bundle() {
        let plain = Bundle::unpack(b"routes: {}\n").unwrap();
        assert_eq!(plain, bundle(&[(MAIN, "routes: {}\n")]).unwrap());
    }

    #[test]
    fn hostile_paths() {
        for path in [
            "../a",
            "/etc/passwd",
            "a/../b",
            "a//b",
            "./a",
            "a/.",
            "",
            "a\0b",
            "a\nb",
            "a\\b",
            &"a/".repeat(20),
        ] {
            let found = bundle(&[(MAIN, ""), (path, "")]);
            assert!(matches!(found, Err(Wrong::BadPath(_))), "{path:?} {found:?}");
        }
        assert_eq!(bundle(&[(MAIN, ""), (&"a".repeat(256), "")]), Err(Wrong::PathTooLong("a".repeat(256))));
        assert_eq!(bundle(&[(MAIN, ""), ("a", ""), ("a/b", "")]), Err(Wrong::Clash("a/b".to_owned())));
        assert_eq!(bundle(&[(MAIN, ""), ("a", ""), ("a", "")]), Err(Wrong::Clash("a".to_owned())));
        assert_eq!(bundle(&[("a", "")]), Err(Wrong::NoMain));
    }

    #[test]
    fn hostile_archives() {
        let climbs = with_entry(|head| head[..5].copy_from_slice(b"../aa"));
        assert_eq!(Bundle::unpack(&climbs), Err(Wrong::BadPath("../aa".to_owned())));
        for kind in [b'1', b'2', b'3', b'6', b'S', b'V'] {
            let link = with_entry(|head| head[156] = kind);
            assert_eq!(Bundle::unpack(&link), Err(Wrong::NotAFile("a".to_owned())), "{}", kind as char);
        }
        for kind in [b'x', b'L'] {
            let pax = with_entry(|head| head[156] = kind);
            assert!(matches!(Bundle::unpack(&pax), Err(Wrong::NotAnArchive(_))));
        }
        let huge = with_entry(|head| head[124..136].copy_from_slice(b"77777777777\0"));
        assert_eq!(Bundle::unpack(&huge), Err(Wrong::FileTooLarge("a".to_owned())));
        let longer = with_entry(|head| head[124..136].copy_from_slice(b"00000200000\0"));
        assert!(matches!(Bundle::unpack(&longer), Err(Wrong::NotAnArchive(_))));
        let binary = with_entry(|head| head[124] = 0x80);
        assert!(matches!(Bundle::unpack(&binary), Err(Wrong::NotAnArchive(_))));
    }

    #[test]
    fn bombs() {
        let zeros = gzip(&vec![0; UNPACKED_BYTES + (4 << 20)]);
        assert!(zeros.len() < 64 << 10);
        assert_eq!(Bundle::unpack(&zeros), Err(Wrong::UnpacksTooLarge));
        let many = Bundle::new((0..=FILES).map(|n| (format!("f{n}"), Vec::new())));
        assert_eq!(many, Err(Wrong::TooManyFiles));
        let large = Bundle::new((0..3).map(|n| (format!("f{n}"), vec![0; FILE_BYTES])));
        assert_eq!(large, Err(Wrong::UnpacksTooLarge));
        let packed = vec![0x1f; PACKED_BYTES + 1];
        assert_eq!(Bundle::unpack(&packed), Err(Wrong::TooLarge(PACKED_BYTES + 1, PACKED_BYTES)));
    }

    /// Truncated or corrupted input causes no panic, and never passes as the original.
    #[test]
    fn damaged_archives() {
        let whole = bundle(&[(MAIN, "listeners: {}\n"), ("a/b.txt", "hello")]).unwrap();
        let packed = whole.pack().unwrap();
        for end in 0..packed.len() - 8 {
            assert_ne!(Bundle::unpack(&packed[..end]).ok(), Some(whole.clone()), "{end}");
        }
        let archive = tar::write(&whole.files).unwrap();
        for at in 0..archive.len() {
            let mut turned = archive.clone();
            turned[at] ^= 0x55;
            let _ = tar::read(&turned, |_, _| Ok(())); // it may still be valid, if the byte is padding
        }
    }

    #[test]
    fn a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str| std::fs::write(folder.path().join(path), path).unwrap();
        std::fs::create_dir(folder.path().join("routes")).unwrap();
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        [MAIN, "routes/a.yaml", ".git/config", ".secret"].into_iter().for_each(put);
        let read = Bundle::read(folder.path()).unwrap();
        assert_eq!(read.files().map(|(path, _)| path).collect::<Vec<_>>(), ["routes/a.yaml", MAIN]);
        let single = Bundle::read(&folder.path().join("routes/a.yaml")).unwrap();
        assert_eq!(single.files().map(|(path, _)| path).collect::<Vec<_>>(), [MAIN]);
        assert!(matches!(Bundle::read(&folder.path().join("none")), Err(Wrong::Unreadable(_))));
    }
}
