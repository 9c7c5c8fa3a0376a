//! Opens what is below a folder and nothing else: no `..`, no link that leads outside, no device.
//!
//! Linux 5.6 does this in one call, openat2 with RESOLVE_BENEATH. If the kernel is older or a sandbox forbids the
//! call, [`walk`] opens one component after another and follows links itself.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Most links to follow on the way to a file, as in the kernel.
const LINKS: usize = 40;

/// Without O_NONBLOCK, opening a pipe would wait for its writer.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A folder on the way, which is not read.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);

/// Why something could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// Too much work waits for the blocking threads.
    Busy,
    /// It exists, but we may not read it.
    Denied,
    /// No descriptor is left.
    Descriptors,
    /// The disk failed, or similar.
    Failed,
    /// There is no such file.
    Missing,
    /// A link leads out of the root.
    Outside,
    /// It cannot be done without blocking on the disk.
    Waits,
}

/// Whether blocking on the disk is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// No: this is a core's thread.
    Never,
    /// Yes.
    Fine,
}

/// Opens the root itself, by a path from the config. That path is trusted and may contain links. If it may not wait, an
/// error says nothing about the folder.
pub(crate) fn open_root(path: &Path, waiting: Waiting) -> Result<OwnedFd, Errno> {
    match waiting {
        Waiting::Never => openat2(CWD, path, FOLDER, Mode::empty(), ResolveFlags::CACHED),
        Waiting::Fine => openat(CWD, path, FOLDER, Mode::empty()),
    }
}

/// Opens a name below the root: a file, or a folder.
pub(crate) fn open(root: BorrowedFd<'_>, name: &[u8], waiting: Waiting) -> Result<File, OpenError> {
    let name = if name.is_empty() { &b"."[..] } else { name };
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let resolve = match waiting {
        Waiting::Never => beneath | ResolveFlags::CACHED,
        Waiting::Fine => beneath,
    };
    match openat2(root, name, READ, Mode::empty(), resolve) {
        Ok(opened) => Ok(opened.into()),
        // RESOLVE_CACHED came with Linux 5.12.
        Err(Errno::AGAIN | Errno::INVAL | Errno::NOSYS | Errno::PERM) if waiting == Waiting::Never => {
            Err(OpenError::Waits)
        }
        // A sandbox answers a call that it does not know with ENOSYS or EPERM. EAGAIN means a concurrent rename.
        Err(Errno::AGAIN | Errno::NOSYS | Errno::PERM) => walk(root, name).map(|(opened, _)| opened.into()),
        Err(e) => Err(open_error(e)),
    }
}

/// The last name of an opened file behind all links; `name` is the one by which it was opened.
pub(crate) fn real_name(
    root: BorrowedFd<'_>,
    name: &[u8],
    file: &File,
    waiting: Waiting,
) -> Result<Vec<u8>, OpenError> {
    let path = readlinkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new());
    let last = |path: &[u8]| path.rsplit(|&b| b == b'/').next().unwrap_or_default().to_vec();
    match (path, waiting) {
        (Ok(path), _) => Ok(last(path.as_bytes())),
        // There is no /proc.
        (Err(_), Waiting::Never) => Err(OpenError::Waits),
        (Err(_), Waiting::Fine) => walk(root, name).map(|(_, name)| name),
    }
}

/// The same as [`open`], one component after another, each relative to the previous folder and none through a link that
/// the kernel follows. So it never leaves the root, whatever others rename meanwhile. Returns the last name behind all
/// links, too.
fn walk(root: BorrowedFd<'_>, name: &[u8]) -> Result<(OwnedFd, Vec<u8>), OpenError> {
    let mut above: Vec<OwnedFd> = Vec::new();
    let mut ahead: VecDeque<Vec<u8>> = components(name);
    let mut links = 0;
    while let Some(component) = ahead.pop_front() {
        if component == b".." {
            above.pop().ok_or(OpenError::Outside)?;
            continue;
        }
        let here = above.last().map_or(root, AsFd::as_fd);
        let last = ahead.is_empty();
        let flags = if last { READ } else { FOLDER };
        match openat(here, component.as_slice(), flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(opened) if last => return Ok((opened, component)),
            Ok(folder) => above.push(folder),
            // ELOOP: a link in place of a file. ENOTDIR: a link or a file in place of a folder.
            Err(refused @ (Errno::LOOP | Errno::NOTDIR)) => {
                let target = match readlinkat(here, component.as_slice(), Vec::new()) {
                    Ok(target) => target.into_bytes(),
                    Err(Errno::INVAL) => return Err(open_error(refused)),
                    Err(e) => return Err(open_error(e)),
                };
                links += 1;
                if links > LINKS {
                    return Err(OpenError::Missing);
                }
                if target.starts_with(b"/") {
                    return Err(OpenError::Outside);
                }
                for component in components(&target).into_iter().rev() {
                    ahead.push_front(component);
                }
            }
            Err(e) => return Err(open_error(e)),
        }
    }
    // Only `.` and `..`: a folder on the way.
    let here = above.last().map_or(root, AsFd::as_fd);
    openat(here, ".", READ, Mode::empty()).map_err(open_error).map(|opened| (opened, Vec::new()))
}

fn components(name: &[u8]) -> VecDeque<Vec<u8>> {
    let parts = name.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.map(<[u8]>::to_vec).collect()
}

fn open_error(e: Errno) -> OpenError {
    match e {
        Errno::ACCESS => OpenError::Denied,
        Errno::MFILE | Errno::NFILE => OpenError::Descriptors,
        Errno::XDEV => OpenError::Outside,
        // ENXIO: a socket, or a device without its driver. Neither is a file.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::NAMETOOLONG
        | Errno::INVAL
        | Errno::NXIO
        | Errno::NODEV => OpenError::Missing,
        _ => OpenError::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// A root with files, and a secret beside it.
    fn site() -> (TempDir, OwnedFd) {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("root/a/b")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("secret"), "secret").unwrap();
        fs::write(at("root/top"), "top").unwrap();
        fs::write(at("root/a/b/deep"), "deep").unwrap();
        for (link, target) in [
            ("root/in", "a/b"),
            ("root/a/up", "../top"),
            ("root/a/b/around", "../../a/./b/deep"),
            ("root/out", "../secret"),
            ("root/a/far", "../../secret"),
            ("root/absolute", "/etc/passwd"),
            ("root/absolute_in", dir.path().join("root/top").to_str().unwrap()),
            ("root/outside", "../other"),
            ("root/back", "../root/top"),
            ("root/loop", "loop"),
            ("root/dangling", "nothing"),
            ("root/self", "."),
            ("root/magic", "/proc/self/root"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let root = open_root(&at("root"), Waiting::Fine).unwrap();
        (dir, root)
    }

    fn text(file: Result<File, OpenError>) -> Result<String, OpenError> {
        file.map(|mut file| {
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            text
        })
    }

    /// The kernel's call and our own walk give the same result.
    #[test]
    fn only_what_is_below_the_root() {
        let (_dir, root) = site();
        for (name, expected) in [
            ("top", Ok("top")),
            ("a/b/deep", Ok("deep")),
            ("in/deep", Ok("deep")),
            ("a/up", Ok("top")),
            ("in/around", Ok("deep")),
            ("self/self/top", Ok("top")),
            ("a", Ok("")),
            ("", Ok("")),
            ("self", Ok("")),
            ("out", Err(OpenError::Outside)),
            ("a/far", Err(OpenError::Outside)),
            ("absolute", Err(OpenError::Outside)),
            ("absolute_in", Err(OpenError::Outside)),
            ("outside/x", Err(OpenError::Outside)),
            ("back", Err(OpenError::Outside)),
            ("magic/etc/passwd", Err(OpenError::Outside)),
            ("loop", Err(OpenError::Missing)),
            ("dangling", Err(OpenError::Missing)),
            ("none", Err(OpenError::Missing)),
            ("top/x", Err(OpenError::Missing)),
            ("a/b/deep/", Err(OpenError::Missing)),
        ] {
            let expected = expected.map(str::to_owned);
            assert_eq!(text(open(root.as_fd(), name.as_bytes(), Waiting::Fine)), expected, "{name}");
            if name != "a/b/deep/" {
                assert_eq!(
                    text(walk(root.as_fd(), name.as_bytes()).map(|(opened, _)| opened.into())),
                    expected,
                    "{name}, step by step"
                );
            }
        }
        for name in ["../secret", "a/../../secret", "/etc/passwd"] {
            assert_eq!(
                text(open(root.as_fd(), name.as_bytes(), Waiting::Fine)),
                Err(OpenError::Outside),
                "{name}"
            );
        }
        assert_eq!(
            text(walk(root.as_fd(), b"a/../../secret").map(|(opened, _)| opened.into())),
            Err(OpenError::Outside)
        );
    }

    #[test]
    fn the_name_behind_links() {
        let (_dir, root) = site();
        for (name, expected) in
            [("top", "top"), ("a/up", "top"), ("in/around", "deep"), ("self/self/a/up", "top")]
        {
            let file = open(root.as_fd(), name.as_bytes(), Waiting::Fine).unwrap();
            let real = real_name(root.as_fd(), name.as_bytes(), &file, Waiting::Never).unwrap();
            assert_eq!(real, expected.as_bytes(), "{name}");
            let walked = walk(root.as_fd(), name.as_bytes()).unwrap().1;
            assert_eq!(walked, expected.as_bytes(), "{name}, step by step");
        }
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let (dir, root) = site();
        rustix::fs::mknodat(CWD, dir.path().join("root/pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .unwrap();
        let opened = open(root.as_fd(), b"pipe", Waiting::Fine).unwrap();
        assert!(!opened.metadata().unwrap().is_file());
        assert!(walk(root.as_fd(), b"pipe").is_ok());
    }

    #[test]
    fn what_is_known_needs_no_disk() {
        let (_dir, root) = site();
        open(root.as_fd(), b"top", Waiting::Fine).unwrap();
        // An old kernel, or a sandbox, always waits.
        let known = open(root.as_fd(), b"top", Waiting::Never);
        assert!(matches!(known, Ok(_) | Err(OpenError::Waits)), "{known:?}");
    }
}
