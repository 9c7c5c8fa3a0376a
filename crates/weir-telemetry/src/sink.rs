//! The outputs of logs, and the threads that write to them.
//!
//! Both logs use it. A producer hands over a whole buffer through a bounded channel and never waits; one thread per
//! output writes. A slow output fills the channel; the producer then drops lines and counts them.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use rotate::Rotating;
use syslog::Wire;

mod rotate;
mod syslog;

pub use rotate::Rotation;
pub use syslog::{Duplex, Secure, Server, Shake, Syslog};

/// The output of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Appends to a file. Creates the file if needed, but not its directory.
    File(PathBuf),
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A syslog server.
    Syslog(Syslog),
}

impl Output {
    /// Parses the config value: `stdout`, `stderr` or a path. (`off` means no output; the caller handles it.)
    pub fn parse(value: &str) -> Self {
        match value {
            "stderr" => Self::Stderr,
            "stdout" => Self::Stdout,
            path => Self::File(PathBuf::from(path)),
        }
    }

    /// Opens the output, as a file descriptor that child programs do not inherit.
    ///
    /// # Errors
    /// Names the file, and says if its directory is missing.
    pub(crate) fn open(&self) -> Result<File> {
        let opened = match self {
            Self::File(path) => return open_file(path),
            Self::Stderr => io::stderr().as_fd().try_clone_to_owned(),
            Self::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            Self::Syslog(_) => Err(io::Error::other("it is not a file")), // `Sink::start` only opens files
        };
        opened.map(File::from).map_err(|e| Error::io(format!("cannot use {self}"), e))
    }
}

impl Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::Syslog(syslog) => write!(f, "{syslog}"),
        }
    }
}

fn open_file(path: &Path) -> Result<File> {
    use std::os::unix::fs::FileTypeExt;
    // Opening a pipe for writing waits for its reader, while we hold the config's lock. Opening it for reading and
    // writing never waits. Without a reader, lines are dropped and counted once the pipe is full.
    let pipe = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo());
    OpenOptions::new().read(pipe).append(true).create(!pipe).open(path).map_err(|e| {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir());
        let message = format!("cannot open log file {}", path.display());
        match directory {
            Some(directory) => {
                Error::new(format!("{message}: there is no directory {}", directory.display()))
            }
            None => Error::io(message, e),
        }
    })
}

/// A handle to the writer thread of one output. The thread ends when the last handle is gone and everything is
/// written.
#[derive(Clone)]
pub(crate) struct Sink {
    sender: SyncSender<Message>,
    output: Output,
    rotation: Option<Rotation>,
    /// The file to continue with. The caller of `reopen` opened it, so that the caller sees a failure and the old
    /// file stays.
    reopened: Arc<Mutex<Option<File>>>,
}

enum Message {
    /// Replies when everything before it is written.
    Flush(SyncSender<()>),
    Lines {
        bytes: Vec<u8>,
        lines: u64,
    },
    /// A reopened file is available.
    Wake,
}

/// The result of writing a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// This many of its lines could not be written.
    Failed(u64, &'a io::Error),
    /// All of it was written.
    Written,
}

/// Writes a warn line to the process's own log, which has an output of this kind too.
pub(crate) type Warn = for<'a> fn(&str, &'a [(&'a str, &'a dyn Display)]);

/// Called by the writer thread after each buffer.
pub(crate) type OnOutcome = Box<dyn FnMut(Outcome<'_>) + Send>;

impl Sink {
    /// Opens the output and starts its thread; at most `depth` buffers may wait.
    pub(crate) fn start(
        thread: &str,
        output: Output,
        rotation: Option<(Rotation, Warn)>,
        depth: usize,
        on_outcome: OnOutcome,
    ) -> Result<Self> {
        let to = match &output {
            Output::Syslog(syslog) => To::Syslog(Box::new(Wire::new(syslog.clone()))),
            _ => To::File(output.open()?),
        };
        Self::start_on(thread, output, to, rotation, depth, on_outcome)
    }

    /// Like `start`, with a file that is already open.
    #[cfg(test)]
    fn start_with(
        thread: &str,
        output: Output,
        file: File,
        depth: usize,
        on_outcome: OnOutcome,
    ) -> Result<Self> {
        Self::start_on(thread, output, To::File(file), None, depth, on_outcome)
    }

    fn start_on(
        thread: &str,
        output: Output,
        to: To,
        rotation: Option<(Rotation, Warn)>,
        depth: usize,
        on_outcome: OnOutcome,
    ) -> Result<Self> {
        let (sender, receiver) = sync_channel(depth);
        let reopened = Arc::new(Mutex::new(None));
        let together = matches!(output, Output::Stderr | Output::Stdout) && one_console();
        let rotated = match (&output, &rotation) {
            (Output::File(path), Some((rotation, warn))) => Some((path.clone(), rotation.clone(), *warn)),
            _ => None,
        };
        let mut writer = Writer {
            to,
            reopened: Arc::clone(&reopened),
            on_outcome,
            together,
            torn: false,
            rotated,
            rotating: None,
        };
        writer.watch_size();
        std::thread::Builder::new()
            .name(thread.to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|e| Error::io(format!("cannot start the thread that writes to {output}"), e))?;
        Ok(Self { sender, output, rotation: rotation.map(|(rotation, _)| rotation), reopened })
    }

    pub(crate) const fn rotation(&self) -> Option<&Rotation> {
        self.rotation.as_ref()
    }

    pub(crate) fn output(&self) -> &Output {
        &self.output
    }

    /// Hands over a buffer of complete lines. Never waits; returns the buffer as `Err` when too many are waiting.
    pub(crate) fn hand_over(&self, bytes: Vec<u8>, lines: u64) -> std::result::Result<(), Vec<u8>> {
        self.sender.try_send(Message::Lines { bytes, lines }).map_err(|e| match e {
            TrySendError::Full(Message::Lines { bytes, .. })
            | TrySendError::Disconnected(Message::Lines { bytes, .. }) => bytes,
            _ => Vec::new(),
        })
    }

    /// Reopens a file output whose file was moved away; does nothing for other outputs.
    pub(crate) fn reopen(&self) -> Result<()> {
        let Output::File(path) = &self.output else { return Ok(()) };
        let file = open_file(path)?;
        *self.reopened.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        // If the channel is full, the thread is busy and checks before its next buffer anyway.
        let _ = self.sender.try_send(Message::Wake);
        Ok(())
    }

    /// Waits until everything handed over before is written, at most `limit`; returns whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let (done, wait) = sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(refused) = self.sender.try_send(message) {
            match refused {
                TrySendError::Disconnected(_) => return false,
                TrySendError::Full(_) if Instant::now() >= deadline => return false,
                TrySendError::Full(back) => message = back,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match wait.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }
}

/// The destination of the writer thread.
enum To {
    File(File),
    Syslog(Box<Wire>),
}

/// The writer thread's state.
struct Writer {
    to: To,
    reopened: Arc<Mutex<Option<File>>>,
    on_outcome: OnOutcome,
    /// Whether the other log may write to the same pipe.
    together: bool,
    /// The last write stopped within a line. The next one starts with a line break, so that only one line is damaged.
    torn: bool,
    /// The path of the file to rotate, and when.
    rotated: Option<(PathBuf, Rotation, Warn)>,
    rotating: Option<Rotating>,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) {
        for message in receiver {
            let reopened = self.reopened.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(file) = reopened {
                self.to = To::File(file);
                self.torn = false;
                self.watch_size();
            }
            match message {
                Message::Flush(done) => drop(done.send(())),
                Message::Lines { bytes, lines } => self.write(&bytes, lines),
                Message::Wake => {}
            }
        }
    }

    /// Starts tracking the size of the file.
    fn watch_size(&mut self) {
        if let (Some((path, rotation, warn)), To::File(file)) = (&self.rotated, &self.to) {
            self.rotating = Rotating::new(path, rotation, *warn, file);
        }
    }

    fn write(&mut self, bytes: &[u8], lines: u64) {
        let file = match &mut self.to {
            To::File(file) => file,
            To::Syslog(wire) => {
                return match wire.send(bytes) {
                    Ok(()) => (self.on_outcome)(Outcome::Written),
                    Err((lost, error)) => (self.on_outcome)(Outcome::Failed(lost, &error)),
                };
            }
        };
        if let Some(rotating) = &mut self.rotating {
            if let Some(fresh) = rotating.next(bytes.len(), file) {
                *file = fresh;
                self.torn = false;
            }
            rotating.wrote(bytes.len());
        }
        if self.torn && self.write_some(b"\n").is_ok() {
            self.torn = false;
        }
        match self.write_some(bytes) {
            Ok(()) => (self.on_outcome)(Outcome::Written),
            Err((written, error)) => {
                self.torn = written > 0 && bytes[written - 1] != b'\n';
                let whole = bytes[..written].iter().filter(|byte| **byte == b'\n').count() as u64;
                (self.on_outcome)(Outcome::Failed(lines.saturating_sub(whole), &error));
            }
        }
    }

    /// Writes everything, or returns how much was written before the failure.
    fn write_some(&mut self, bytes: &[u8]) -> std::result::Result<(), (usize, io::Error)> {
        static CONSOLE: Mutex<()> = Mutex::new(());
        let _turn = self.together.then(|| CONSOLE.lock().unwrap_or_else(PoisonError::into_inner));
        let To::File(file) = &mut self.to else { return Ok(()) };
        let mut written = 0;
        while written < bytes.len() {
            match file.write(&bytes[written..]) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(n) => written += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Another process with the same terminal or pipe made it non-blocking; only this thread waits.
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
                Err(e) => return Err((written, e)),
            }
        }
        Ok(())
    }
}

/// Whether stdout and stderr are the same pipe, socket or terminal, as under systemd or with `2>&1`. A long write to
/// a pipe is not atomic, so the two logs then take turns and no line ends up inside another. (Appending to a regular
/// file is atomic.)
fn one_console() -> bool {
    let identity = |output: Output| {
        let meta = output.open().ok()?.metadata().ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let stdout = identity(Output::Stdout);
    stdout.is_some() && stdout == identity(Output::Stderr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn outputs_are_read() {
        assert_eq!(Output::parse("stdout"), Output::Stdout);
        assert_eq!(Output::parse("stderr"), Output::Stderr);
        assert_eq!(Output::parse("logs/a.log"), Output::File("logs/a.log".into()));
        assert_eq!(Output::parse("logs/a.log").to_string(), "logs/a.log");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = Output::parse("/no/such/place/access.log").open().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot open log file /no/such/place/access.log: there is no directory /no/such/place"
        );
        let error = Output::parse("/").open().unwrap_err();
        assert_eq!(error.to_string(), "cannot open log file /");
        assert!(error.source().is_some_and(|source| source.to_string().starts_with("Is a directory")));
    }

    #[test]
    fn a_failed_write_is_reported_with_its_lines() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (report, reports) = std::sync::mpsc::channel();
        let report = Mutex::new(report);
        let on_outcome = Box::new(move |outcome: Outcome<'_>| {
            let Outcome::Failed(lines, e) = outcome else { panic!("it was written") };
            report.lock().unwrap().send((lines, e.raw_os_error())).unwrap();
        });
        let sink = Sink::start_with("test", Output::parse("/dev/full"), full, 4, on_outcome).unwrap();
        sink.hand_over(b"a\nb\n".to_vec(), 2).unwrap();
        assert!(sink.flush(Duration::from_secs(5)));
        assert_eq!(reports.recv().unwrap(), (2, Some(28)));
    }
}
