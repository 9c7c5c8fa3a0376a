//! Follows a file of endpoints.

use super::desk::Desk;
use crate::upstream::discover::registry::Listed;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use weir_config::schema::read_endpoints;

/// How often to check the file. A check is one `stat`, on a thread that may block.
const LOOK: Duration = Duration::from_millis(200);

/// Longest file that is read, in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// A file must be this old before its time proves that it is unchanged: two writes within one clock tick look the
/// same.
const SETTLED: Duration = Duration::from_secs(2);

/// Identifies a version of the file.
#[derive(Clone, PartialEq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

/// The result of a check.
enum Looked {
    /// The file is unchanged.
    Same,
    /// Its content, and its stamp if that proves the next change.
    Read(Option<Stamp>, Result<Vec<Listed>, String>),
}

/// Returns only if asking is impossible.
pub(super) async fn follow(path: &Path, desk: &Desk) -> Result<Infallible, String> {
    let mut known: Option<Stamp> = None;
    let mut last: Option<Result<Vec<Listed>, String>> = None;
    let mut next = None;
    loop {
        let (path, before) = (PathBuf::from(path), known.clone());
        let looked = tokio::task::spawn_blocking(move || look(&path, before.as_ref())).await;
        if let Ok(Looked::Read(stamp, read)) = looked {
            known = stamp;
            // A file being written may hold half a list, so a content counts once two checks in a row find it.
            let counts = last.is_none() || next.as_ref() == Some(&read);
            if !counts {
                known = None;
            }
            if counts && last.as_ref() != Some(&read) {
                match read.clone() {
                    Ok(list) => desk.read(list),
                    Err(why) => drop(desk.failed(why)),
                }
                last = Some(read.clone());
            }
            next = Some(read);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn look(path: &Path, known: Option<&Stamp>) -> Looked {
    let told = |e: std::io::Error| format!("{}: {e}", path.display());
    let stamp = match fs::metadata(path) {
        Ok(meta) if meta.is_file() => {
            let settled = meta
                .modified()
                .is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > SETTLED));
            let stamp = Stamp {
                inode: meta.ino(),
                bytes: meta.len(),
                seconds: meta.mtime(),
                nanoseconds: meta.mtime_nsec(),
            };
            if known == Some(&stamp) {
                return Looked::Same;
            }
            settled.then_some(stamp)
        }
        Ok(_) => return Looked::Read(None, Err(format!("{} is not a file", path.display()))),
        Err(e) => return Looked::Read(None, Err(told(e))),
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES + 1).read_to_string(&mut text));
    let read = match read {
        Err(e) => Err(told(e)),
        Ok(_) if text.len() as u64 > FILE_BYTES => {
            Err(format!("{} is longer than {FILE_BYTES} bytes", path.display()))
        }
        Ok(_) => read_endpoints(path, &text).map(|list| list.iter().map(Listed::written).collect()).map_err(
            |mistakes| {
                let text = mistakes.to_text();
                text.lines()
                    .find_map(|line| line.strip_prefix("error: "))
                    .unwrap_or("it holds no list")
                    .to_owned()
            },
        ),
    };
    Looked::Read(stamp, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_within_a_tick_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("endpoints.yaml");
        fs::write(&path, "- 127.0.0.1:1\n").unwrap();
        let Looked::Read(stamp, Ok(list)) = look(&path, None) else { panic!() };
        assert!(stamp.is_none() && list.len() == 1);
        let old = SystemTime::now() - Duration::from_secs(60);
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let Looked::Read(stamp @ Some(_), Ok(_)) = look(&path, None) else { panic!() };
        assert!(matches!(look(&path, stamp.as_ref()), Looked::Same));
        fs::write(&path, "- nonsense\n").unwrap();
        let Looked::Read(None, Err(why)) = look(&path, stamp.as_ref()) else { panic!() };
        assert!(why.contains("endpoints.yaml:1"), "{why}");
        fs::remove_file(&path).unwrap();
        assert!(matches!(look(&path, None), Looked::Read(None, Err(_))));
        let Looked::Read(None, Err(why)) = look(dir.path(), None) else { panic!() };
        assert!(why.ends_with("is not a file"), "{why}");
    }

    #[test]
    fn a_file_has_a_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("endpoints.yaml");
        let read = |bytes: u64| {
            let mut text = "- 127.0.0.1:1\n#".to_owned();
            text.extend(std::iter::repeat_n('x', usize::try_from(bytes).unwrap() - text.len()));
            fs::write(&path, text).unwrap();
            let Looked::Read(_, read) = look(&path, None) else { panic!() };
            read.map(|list| list.len())
        };
        assert_eq!(read(FILE_BYTES), Ok(1));
        assert!(read(FILE_BYTES + 1).unwrap_err().ends_with("is longer than 4194304 bytes"));
    }
}
