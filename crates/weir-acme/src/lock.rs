//! Elects the node that orders: a lock file that exists while its owner lives, so that only one of several nodes with
//! the same storage orders a certificate.
//!
//! The owner writes into it every [`BEAT`]. A node that sees it unchanged for [`STALE`], by its own clock, considers
//! the owner dead and takes the lock over. Nobody compares the clocks of two machines. An owner on this machine whose
//! process has ended is dead immediately, so that a restart need not wait.
//!
//! To take over, a node first moves the file away and then creates a new one: if two try at the same time, one finds
//! it gone. An owner that slept notices by the inode that the file is no longer its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often an owner refreshes its lock.
pub(crate) const BEAT: Duration = Duration::from_secs(5);

/// How long a lock must stay unchanged before we consider its owner dead.
pub(crate) const STALE: Duration = Duration::from_secs(30);

/// Longest lock file, in bytes.
const LOCK_BYTES: usize = 512;

/// A process, identified so that others can tell whether it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The machine's boot id, and the PID namespace.
    machine: String,
    process: u32,
    /// The start time of the process: PIDs are reused.
    began: String,
    /// Distinguishes two gateways in one process.
    node: String,
}

/// A held lock. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    file: File,
    owner: String,
    beats: u64,
}

/// The last observation of another owner's lock: its content, and since when.
#[derive(Debug, Default)]
pub(crate) struct Seen(Option<(Vec<u8>, Instant)>);

/// Takes the lock, unless another node holds it. `seen` carries observations from one attempt to the next.
pub(crate) fn take(path: &Path, owner: &Owner, seen: &mut Seen, now: Instant) -> io::Result<Option<Lock>> {
    if let Some(lock) = create(path, owner)? {
        seen.0 = None;
        return Ok(Some(lock));
    }
    let content = match fs::read(path) {
        Ok(mut content) => {
            content.truncate(LOCK_BYTES);
            content
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return create(path, owner), // just released
        Err(e) => return Err(e),
    };
    let unchanged = match &seen.0 {
        Some((before, since)) if *before == content => now.saturating_duration_since(*since),
        _ => {
            seen.0 = Some((content.clone(), now));
            Duration::ZERO
        }
    };
    let dead = Owner::parse(&content).is_some_and(|other| other.is_dead(owner));
    if !dead && unchanged < STALE {
        return Ok(None);
    }
    seen.0 = None;
    if move_away(path, owner, &content)? { create(path, owner) } else { Ok(None) }
}

fn create(path: &Path, owner: &Owner) -> io::Result<Option<Lock>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = match file {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut lock = Lock { path: path.to_owned(), file, owner: owner.text(), beats: 0 };
    lock.beat()?;
    Ok(Some(lock))
}

/// Moves a dead owner's lock away. False if it belonged to another owner by then.
fn move_away(path: &Path, owner: &Owner, judged: &[u8]) -> io::Result<bool> {
    let aside = path.with_file_name(format!("lock.{}.{}", owner.process, owner.node));
    match fs::rename(path, &aside) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    }
    let ours = fs::read(&aside).is_ok_and(|content| content.get(..LOCK_BYTES).unwrap_or(&content) == judged);
    if !ours {
        // A live owner was faster. Put its lock back, unless a third node has created a new one by now.
        let _ = fs::hard_link(&aside, path);
    }
    let _ = fs::remove_file(&aside); // nobody else knows this name
    Ok(ours)
}

impl Lock {
    /// Refreshes the lock. False if it belongs to another owner now.
    pub(crate) fn beat(&mut self) -> io::Result<bool> {
        if self.beats > 0 && !self.is_held() {
            return Ok(false);
        }
        self.beats += 1;
        let text = format!("{}beat {}\n", self.owner, self.beats);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        Ok(true)
    }

    /// Whether the file at the path is still the one we created.
    pub(crate) fn is_held(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(ours), Ok(there)) => ours.ino() == there.ino() && ours.dev() == there.dev(),
            _ => false,
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_held() {
            let _ = fs::remove_file(&self.path); // otherwise it goes stale
        }
    }
}

impl Owner {
    /// This process. `node` distinguishes two gateways in it.
    pub(crate) fn ourselves(node: &str) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let process = std::process::id();
        let machine = match boot.trim() {
            "" => String::new(), // unknown, so nobody is dead before STALE
            boot => format!("{boot}/{}", space.display()),
        };
        Self { machine, process, began: began(process).unwrap_or_default(), node: node.to_owned() }
    }

    fn text(&self) -> String {
        format!("machine {}\nprocess {} {}\nnode {}\n", self.machine, self.process, self.began, self.node)
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(content).ok()?.lines();
        let machine = lines.next()?.strip_prefix("machine ")?.to_owned();
        let (process, began) = lines.next()?.strip_prefix("process ")?.split_once(' ')?;
        let node = lines.next()?.strip_prefix("node ")?.to_owned();
        Some(Self { machine, process: process.parse().ok()?, began: began.to_owned(), node })
    }

    /// Whether this owner has certainly ended, as far as `here` can tell.
    fn is_dead(&self, here: &Self) -> bool {
        let comparable = !self.machine.is_empty() && self.machine == here.machine && !self.began.is_empty();
        comparable && began(self.process).is_none_or(|now| now != self.began)
    }
}

/// The start time of a process, in ticks since boot (proc(5), field 22 of `stat`); `None` if there is no such
/// process.
fn began(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain anything, so count fields after it.
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(node: &str) -> Owner {
        Owner::ourselves(node)
    }

    #[test]
    fn one_of_two_has_it_until_it_gives_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let now = Instant::now();
        let (mut a, mut b) = (Seen::default(), Seen::default());
        let mut held = take(&path, &owner("a"), &mut a, now).unwrap().unwrap();
        assert!(take(&path, &owner("b"), &mut b, now).unwrap().is_none());
        assert!(held.beat().unwrap());
        drop(held);
        assert!(take(&path, &owner("b"), &mut b, now).unwrap().is_some());
        assert!(!path.exists());
    }

    #[test]
    fn one_that_does_not_change_is_taken_over_and_its_owner_finds_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let now = Instant::now();
        let mut slept = take(&path, &owner("a"), &mut Seen::default(), now).unwrap().unwrap();
        let mut seen = Seen::default();
        assert!(take(&path, &owner("b"), &mut seen, now).unwrap().is_none());
        assert!(take(&path, &owner("b"), &mut seen, now + STALE / 2).unwrap().is_none());
        assert!(slept.beat().unwrap(), "it lives: the count begins again");
        assert!(take(&path, &owner("b"), &mut seen, now + STALE).unwrap().is_none());
        let taken = take(&path, &owner("b"), &mut seen, now + STALE * 2).unwrap().unwrap();
        assert!(!slept.beat().unwrap() && !slept.is_held());
        drop(slept);
        assert!(taken.is_held(), "who lost it takes it from nobody");
    }

    #[test]
    fn a_process_that_is_gone_is_dead_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mut gone = owner("a");
        gone.began = "1".to_owned(); // our PID, another process
        fs::write(&path, gone.text() + "beat 7\n").unwrap();
        assert!(take(&path, &owner("b"), &mut Seen::default(), Instant::now()).unwrap().is_some());
        gone.machine = "elsewhere".to_owned();
        fs::write(&path, gone.text()).unwrap();
        assert!(take(&path, &owner("b"), &mut Seen::default(), Instant::now()).unwrap().is_none());
        assert_eq!(Owner::parse(owner("x").text().as_bytes()), Some(owner("x")));
        fs::write(&path, b"\xff junk").unwrap();
        assert!(take(&path, &owner("b"), &mut Seen::default(), Instant::now()).unwrap().is_none());
    }

    #[test]
    fn a_lock_that_changed_hands_meanwhile_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = take(&path, &owner("a"), &mut Seen::default(), Instant::now()).unwrap().unwrap();
        assert!(!move_away(&path, &owner("b"), b"what stood there before").unwrap());
        assert!(held.is_held());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
