//! The file in which a source keeps a web server's last good answer for the next process.
//!
//! ```text
//! weir-consumers 1
//! origin SHA256            of the URL: another server's consumers are never used
//! confirmed MILLISECONDS   since 1970: when the server last said that they are current
//! checksum SHA256          of the lines above and the document
//!
//! the document, as the server sent it
//! ```
//!
//! Whoever can write the file can add consumers; the checksum finds accidents, not attacks. So only this user may
//! read or write it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_config::parse::MAX_CONSUMER_BYTES;
use weir_fleet::digest::Digest;
use weir_upstream::fetch::Url;

/// The first line, with the version of the format.
const MARK: &str = "weir-consumers 1";

/// The longest header: the mark, two digests, a number.
const HEADER_BYTES: usize = 512;

/// How far in the future a confirmation may lie, because clocks are corrected in small steps. Our guess.
const CLOCK_STEP: Duration = Duration::from_secs(5);

/// When a server last said that its consumers are current.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmation {
    /// By the machine's clock, for files and people.
    pub(super) at: SystemTime,
    /// How old it was at `seen`. From there on a clock counts that nobody can set.
    age: Duration,
    seen: Instant,
}

impl Confirmation {
    /// The server is asked now, and what it answers is taken as true as of now.
    pub(super) fn now() -> Self {
        Self { at: SystemTime::now(), age: Duration::ZERO, seen: Instant::now() }
    }

    /// One from an earlier process. `None` if it lies in the future: the clock was set back, so nobody knows how old
    /// it is.
    fn restored(at: SystemTime, now: SystemTime) -> Option<Self> {
        let age = match now.duration_since(at) {
            Ok(age) => age,
            Err(ahead) if ahead.duration() <= CLOCK_STEP => Duration::ZERO,
            Err(_) => return None,
        };
        Some(Self { at, age, seen: Instant::now() })
    }

    /// How long ago it was.
    pub(super) fn age(&self) -> Duration {
        self.age.saturating_add(self.seen.elapsed())
    }
}

/// What a cache file has.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) document: String,
    /// `None` if its age is unknown.
    pub(super) confirmed: Option<Confirmation>,
}

/// Names a server in cache files, without showing what the URL's query carries.
pub(super) fn origin_of(url: &Url) -> Digest {
    Digest::of(&[url.to_string().as_bytes()])
}

/// Reads the cache of this server.
///
/// # Errors
/// Why it is not used.
pub(super) fn read(path: &Path, origin: Digest) -> Result<Cached, String> {
    let (header, document) = parts(path)?;
    if header.origin != origin {
        return Err("it has the consumers of another URL".to_owned());
    }
    let confirmed = Confirmation::restored(header.confirmed, SystemTime::now());
    let document = String::from_utf8(document).map_err(|_| "it is not UTF-8")?;
    Ok(Cached { document, confirmed })
}

/// Replaces the cache by this document. One that was confirmed later, by a process that takes our place, stays.
///
/// # Errors
/// What could not be written.
pub(super) fn write(
    path: &Path,
    origin: Digest,
    confirmed: SystemTime,
    document: &[u8],
    still: impl Fn() -> bool,
) -> io::Result<()> {
    if let Ok((there, _)) = open(path).and_then(|mut file| header(&mut file))
        && there.origin == origin
        && there.confirmed > confirmed
        && there.confirmed <= SystemTime::now()
    {
        return Ok(());
    }
    let claims = claims(origin, confirmed);
    let checksum = Digest::of(&[claims.as_bytes(), document]);
    let head = format!("{claims}checksum {checksum}\n\n");
    let beside = beside(path);
    let written = write_beside(&beside, &[head.as_bytes(), document]);
    // Another source may have this path by now.
    let placed =
        written.and_then(|()| if still() { fs::rename(&beside, path) } else { fs::remove_file(&beside) });
    if placed.is_err() {
        let _ = fs::remove_file(&beside); // it may not exist
    }
    placed?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Writes the time of a newer confirmation of the same document.
///
/// # Errors
/// It could not be written. `InvalidData`: this file has another document, or none.
pub(super) fn confirm(
    path: &Path,
    origin: Digest,
    confirmed: SystemTime,
    document: Digest,
    still: impl Fn() -> bool,
) -> io::Result<()> {
    let other = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let (header, bytes) = parts(path).map_err(other)?;
    if header.origin != origin || Digest::of(&[&bytes]) != document {
        return Err(other("it has other consumers".to_owned()));
    }
    write(path, origin, confirmed, &bytes, still)
}

/// What the header says.
struct Header {
    origin: Digest,
    confirmed: SystemTime,
    checksum: Digest,
}

/// The lines that the checksum covers.
fn claims(origin: Digest, confirmed: SystemTime) -> String {
    let since = confirmed.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{MARK}\norigin {origin}\nconfirmed {}\n", since.as_millis())
}

fn open(path: &Path) -> Result<File, String> {
    let told = |e: io::Error| format!("it cannot be read: {e}");
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path).map_err(told)?;
    match file.metadata().map_err(told)?.is_file() {
        true => Ok(file),
        false => Err("it is not a file".to_owned()),
    }
}

/// Opening a pipe would wait for its writer.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

fn parts(path: &Path) -> Result<(Header, Vec<u8>), String> {
    let mut file = open(path)?;
    let (header, mut document) = header(&mut file)?;
    let rest = (MAX_CONSUMER_BYTES + 1).saturating_sub(document.len());
    file.take(rest as u64).read_to_end(&mut document).map_err(|e| format!("it cannot be read: {e}"))?;
    if document.len() > MAX_CONSUMER_BYTES {
        return Err(format!("it is longer than {MAX_CONSUMER_BYTES} bytes"));
    }
    let claims = claims(header.origin, header.confirmed);
    if Digest::of(&[claims.as_bytes(), &document]) != header.checksum {
        return Err("its checksum is wrong: it was damaged or edited".to_owned());
    }
    Ok((header, document))
}

/// The header, and the start of the document that was read with it.
fn header(file: &mut File) -> Result<(Header, Vec<u8>), String> {
    let mut start = Vec::with_capacity(HEADER_BYTES);
    let begun = Read::by_ref(file).take(HEADER_BYTES as u64).read_to_end(&mut start);
    begun.map_err(|e| format!("it cannot be read: {e}"))?;
    let read = || {
        let end = start.windows(2).position(|two| two == b"\n\n")?;
        let text = std::str::from_utf8(start.get(..end)?).ok()?;
        let mut lines = text.lines();
        let mark = lines.next()?;
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (origin, confirmed) = (value("origin")?.parse().ok()?, value("confirmed")?.parse().ok()?);
        let checksum = value("checksum")?.parse().ok()?;
        let confirmed = UNIX_EPOCH.checked_add(Duration::from_millis(confirmed))?;
        let is_ours = mark == MARK && lines.next().is_none();
        is_ours.then(|| {
            (Header { origin, confirmed, checksum }, start.get(end + 2..).unwrap_or_default().to_vec())
        })
    };
    read().ok_or_else(|| format!("it does not begin with the header of a cache (`{MARK}`)"))
}

/// A name of its own for each process and write, so that two never mix their data.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

fn write_beside(beside: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let _ = fs::remove_file(beside); // of a killed process with our number
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const DOCUMENT: &str = "{\"consumers\": {\"ann\": {}}}";

    fn origin(url: &str) -> Digest {
        origin_of(&url.parse().unwrap())
    }

    #[test]
    fn what_was_written_is_read_with_its_age() {
        let dir = tempfile::tempdir().unwrap();
        let (path, ours) = (dir.path().join("crm"), origin("https://crm.test/a?token=s3cret"));
        let hour = Duration::from_secs(3600);
        let before = SystemTime::now() - hour;
        write(&path, ours, before, DOCUMENT.as_bytes(), || true).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains("s3cret"));
        let cached = read(&path, ours).unwrap();
        let age = cached.confirmed.unwrap().age();
        assert_eq!(cached.document, DOCUMENT);
        assert!(age >= hour && age < hour * 2, "{age:?}");
        // A later confirmation, and one that comes too late.
        let document = Digest::of(&[DOCUMENT.as_bytes()]);
        confirm(&path, ours, SystemTime::now(), document, || true).unwrap();
        assert!(read(&path, ours).unwrap().confirmed.unwrap().age() < hour);
        write(&path, ours, before, b"consumers: {}", || true).unwrap();
        assert_eq!(read(&path, ours).unwrap().document, DOCUMENT);
        assert_eq!(
            confirm(&path, ours, SystemTime::now(), Digest::of(&[b"other"]), || true).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        // Nothing is placed for a source that is gone, and nothing is left beside the file.
        write(&path, ours, SystemTime::now(), b"consumers: {}", || false).unwrap();
        assert_eq!(read(&path, ours).unwrap().document, DOCUMENT);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, ours) = (dir.path().join("crm"), origin("http://crm.test/a"));
        write(&path, ours, SystemTime::now(), DOCUMENT.as_bytes(), || true).unwrap();
        let good = fs::read(&path).unwrap();
        let told = |path: &Path, url: &str| read(path, origin(url)).unwrap_err();
        for url in ["http://crm.test/b", "http://crm.test:81/a", "https://crm.test/a", "http://crm.test/a?x"]
        {
            assert!(told(&path, url).contains("another URL"), "{url}");
        }
        // Every byte counts; a file from elsewhere has no header.
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert!(read(&path, ours).is_err(), "byte {at}");
        }
        for bad in [&good[..good.len() - 1], &[&good[..], b"\n"].concat(), DOCUMENT.as_bytes(), b""] {
            fs::write(&path, bad).unwrap();
            assert!(read(&path, ours).is_err());
        }
        assert!(told(dir.path(), "http://crm.test/a").contains("not a file"));
        // After the clock was set back, nobody knows the age.
        let future = SystemTime::now() + Duration::from_secs(600);
        write(&path, ours, future, DOCUMENT.as_bytes(), || true).unwrap();
        assert!(read(&path, ours).unwrap().confirmed.is_none());
        // The next confirmation replaces it.
        write(&path, ours, SystemTime::now(), DOCUMENT.as_bytes(), || true).unwrap();
        assert!(read(&path, ours).unwrap().confirmed.is_some());
        let soon = SystemTime::now() + Duration::from_secs(2);
        write(&path, ours, soon, DOCUMENT.as_bytes(), || true).unwrap();
        assert!(read(&path, ours).unwrap().confirmed.unwrap().age() < Duration::from_secs(60));
    }
}
