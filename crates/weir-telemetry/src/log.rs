//! The process's own log: events of the gateway, not of a request.
//!
//! One global log, usable from the first line of `main` (plain text to stderr), and configured as soon as the config
//! is known. A line is a short message with key-value pairs: `log::info("reload", &[("revision", &revision)])`. Once
//! configured, lines go through a bounded channel to a thread, like those of the access log, so a stuck terminal
//! never blocks a core. Call [`flush`] before the process ends.

mod pace;

pub use pace::{Every, PerSubject, SUBJECTS, every, per_subject};

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::sink::{Outcome, Output, Sink};
use crate::text::{self, Style};
use crate::time::Stamp;

/// Most bytes that a line keeps of one value.
pub const VALUE_BYTES: usize = 4096;

/// Most lines that wait for the writer thread; further ones are dropped and counted. Lines rarely exceed 1 KiB, so
/// this is about 1 MiB. Worst case: six times [`VALUE_BYTES`] for each value of each line.
pub const WAITING_LINES: usize = 1024;

/// The severity of a line. The log shows its level and more severe ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something does not work and needs an operator.
    Error,
    /// Something is wrong, but the gateway continues.
    Warn,
    /// Events that operators want to see: starts, reloads, drains. The default.
    #[default]
    Info,
    /// Details for debugging.
    Debug,
}

impl Level {
    /// Parses the config value.
    ///
    /// # Errors
    /// For anything but the four names; the error lists them.
    pub fn parse(value: &str) -> Result<Self> {
        match value {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => Err(Error::new(format!("unknown log level `{value}`: expected error, warn, info or debug"))),
        }
    }

    /// The name in the config and in JSON lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

impl Level {
    /// The priority prefix of a line in the journal (sd-daemon(3)).
    const fn priority(self) -> &'static [u8; 3] {
        match self {
            Self::Error => b"<3>",
            Self::Warn => b"<4>",
            Self::Info => b"<6>",
            Self::Debug => b"<7>",
        }
    }
}

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object: `time`, `level`, `message`, then the keys; all values are strings.
    Json,
    /// `2026-03-01T12:00:00.000Z INFO  reload revision=7f3a`. The default.
    #[default]
    Text,
}

/// The log settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Less severe lines are not written. Default info.
    pub level: Level,
    /// The format of lines. Default text.
    pub format: Format,
    /// Where lines go. Default stderr.
    pub output: Output,
}

impl Default for Settings {
    fn default() -> Self {
        Self { level: Level::Info, format: Format::Text, output: Output::Stderr }
    }
}

/// The key-value pairs of a line.
pub type Fields<'a> = &'a [(&'a str, &'a dyn Display)];

/// Applies the settings, at start and at each reload.
///
/// # Errors
/// If the output cannot be opened; the log then stays unchanged.
pub fn configure(settings: &Settings) -> Result<()> {
    let mut global = LOG.sink.write().unwrap_or_else(PoisonError::into_inner);
    if global.as_ref().is_none_or(|sink| *sink.output() != settings.output) {
        let mut lost = 0;
        let count = Box::new(move |outcome: Outcome<'_>| match outcome {
            Outcome::Failed(lines, _) => {
                LOG.dropped.fetch_add(lines, Relaxed);
                lost += lines;
            }
            Outcome::Written if lost > 0 => {
                warn("log is writable again", &[("lost", &std::mem::take(&mut lost))])
            }
            Outcome::Written => {}
        });
        *global = Some(Sink::start("weir-log", settings.output.clone(), None, WAITING_LINES, count)?);
    }
    LOG.level.store(settings.level as u8, Relaxed);
    LOG.in_journal.store(is_journal(&settings.output), Relaxed);
    LOG.format.store(settings.format as u8, Relaxed);
    Ok(())
}

/// Reopens the log file after it was moved away (SIGUSR1).
///
/// # Errors
/// If the file cannot be opened; the log then continues in the old one.
pub fn reopen() -> Result<()> {
    match &*LOG.sink.read().unwrap_or_else(PoisonError::into_inner) {
        Some(sink) => sink.reopen(),
        None => Ok(()),
    }
}

/// Waits until all lines are written, at most `limit`; returns whether they are. Call it before the process ends.
pub fn flush(limit: Duration) -> bool {
    let sink = LOG.sink.read().unwrap_or_else(PoisonError::into_inner).clone();
    sink.is_none_or(|sink| sink.flush(limit))
}

/// Lines lost so far because the output was slow or failed.
pub fn dropped() -> u64 {
    LOG.dropped.load(Relaxed)
}

/// Whether lines of this level are written. Lets callers skip the work for others.
#[inline]
pub fn enabled(level: Level) -> bool {
    level as u8 <= LOG.level.load(Relaxed)
}

/// Writes an error line.
pub fn error(message: &str, fields: Fields<'_>) {
    write(Level::Error, message, fields);
}

/// Writes a warn line.
pub fn warn(message: &str, fields: Fields<'_>) {
    write(Level::Warn, message, fields);
}

/// Writes an info line.
pub fn info(message: &str, fields: Fields<'_>) {
    write(Level::Info, message, fields);
}

/// Writes a debug line.
pub fn debug(message: &str, fields: Fields<'_>) {
    write(Level::Debug, message, fields);
}

/// Writes a line.
pub fn write(level: Level, message: &str, fields: Fields<'_>) {
    if !enabled(level) {
        return;
    }
    let format = if LOG.format.load(Relaxed) == Format::Json as u8 { Format::Json } else { Format::Text };
    let mut line = line(SystemTime::now(), level, format, message, fields);
    let sink = LOG.sink.read().unwrap_or_else(PoisonError::into_inner);
    let in_journal = if sink.is_some() { LOG.in_journal.load(Relaxed) } else { is_journal(&Output::Stderr) };
    if format == Format::Text && in_journal {
        drop(line.splice(..0, level.priority().iter().copied()));
    }
    match &*sink {
        Some(sink) => {
            if sink.hand_over(line, 1).is_err() {
                LOG.dropped.fetch_add(1, Relaxed);
            }
        }
        // There is no writer thread yet, and no place to report a failure.
        None => drop(std::io::stderr().write_all(&line)),
    }
}

struct Log {
    level: AtomicU8,
    format: AtomicU8,
    /// Whether the output is the systemd journal, which reads a priority from the start of each line.
    in_journal: AtomicBool,
    dropped: AtomicU64,
    sink: RwLock<Option<Sink>>,
}

static LOG: Log = Log {
    level: AtomicU8::new(Level::Info as u8),
    format: AtomicU8::new(Format::Text as u8),
    in_journal: AtomicBool::new(false),
    dropped: AtomicU64::new(0),
    sink: RwLock::new(None),
};

/// Whether an output is the systemd journal: the stream that JOURNAL_STREAM names by device and inode
/// (systemd.exec(5)).
fn is_journal(output: &Output) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    if !matches!(output, Output::Stderr | Output::Stdout) {
        return false;
    }
    let named = |meta: std::fs::Metadata| *stream == *format!("{}:{}", meta.dev(), meta.ino());
    output.open().is_ok_and(|file| file.metadata().is_ok_and(named))
}

/// The text as the log would write it: if stderr is the journal, each line gets the priority of the first.
pub fn diagnostics(text: &str) -> String {
    if !is_journal(&Output::Stderr) {
        return text.to_owned();
    }
    let mut priority = Level::Info.priority();
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for line in text.split_inclusive('\n') {
        match line.split(':').next() {
            Some("error") => priority = Level::Error.priority(),
            Some("warning") => priority = Level::Warn.priority(),
            _ => {}
        }
        out.push_str(&String::from_utf8_lossy(priority));
        out.push_str(line);
    }
    out
}

/// One complete line, with its line break.
fn line(time: SystemTime, level: Level, format: Format, message: &str, fields: Fields<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut stamp = Stamp::new();
    match format {
        Format::Json => {
            out.extend_from_slice(b"{\"time\":\"");
            out.extend_from_slice(stamp.text(time));
            out.extend_from_slice(b"\",\"level\":\"");
            out.extend_from_slice(level.name().as_bytes());
            out.extend_from_slice(b"\",\"message\":\"");
            text::escape(&mut out, message.as_bytes(), VALUE_BYTES, Style::Json);
            each_value(fields, |key, value| {
                out.extend_from_slice(b"\",\"");
                text::escape(&mut out, key.as_bytes(), VALUE_BYTES, Style::Json);
                out.extend_from_slice(b"\":\"");
                text::escape(&mut out, value.as_bytes(), VALUE_BYTES, Style::Json);
            });
            out.extend_from_slice(b"\"}\n");
        }
        Format::Text => {
            out.extend_from_slice(stamp.text(time));
            let shown = ["ERROR", "WARN ", "INFO ", "DEBUG"][level as usize];
            out.extend_from_slice(format!(" {shown} ").as_bytes());
            text::escape(&mut out, message.as_bytes(), VALUE_BYTES, Style::Plain);
            each_value(fields, |key, value| {
                let quote: &[u8] =
                    if value.is_empty() || value.contains([' ', '=', '"']) { b"\"" } else { b"" };
                out.push(b' ');
                out.extend_from_slice(key.as_bytes());
                out.push(b'=');
                out.extend_from_slice(quote);
                text::escape(&mut out, value.as_bytes(), VALUE_BYTES, Style::Plain);
                out.extend_from_slice(quote);
            });
            out.push(b'\n');
        }
    }
    out
}

fn each_value(fields: Fields<'_>, mut f: impl FnMut(&str, &str)) {
    let mut value = String::new();
    for (key, shown) in fields {
        value.clear();
        // A failing `Display` has written what it could.
        let _ = write!(value, "{shown}");
        f(key, &value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn lines_of_both_formats() {
        let at = UNIX_EPOCH + Duration::from_millis(1_709_164_800_042);
        let shown = |format, message: &str, fields: Fields<'_>| {
            String::from_utf8(line(at, Level::Warn, format, message, fields)).unwrap()
        };
        let fields: Fields<'_> = &[("revision", &"7f"), ("routes", &3), ("why", &"a \"b\"\n"), ("none", &"")];
        assert_eq!(
            shown(Format::Text, "reload", fields),
            "2024-02-29T00:00:00.042Z WARN  reload revision=7f routes=3 why=\"a \\x22b\\x22\\x0a\" none=\"\"\n"
        );
        assert_eq!(
            shown(Format::Json, "re\"load", fields),
            "{\"time\":\"2024-02-29T00:00:00.042Z\",\"level\":\"warn\",\"message\":\"re\\\"load\",\"revision\":\"7f\",\
             \"routes\":\"3\",\"why\":\"a \\\"b\\\"\\n\",\"none\":\"\"}\n"
        );
        assert_eq!(shown(Format::Text, "plain", &[]), "2024-02-29T00:00:00.042Z WARN  plain\n");
        let long = "x".repeat(3 * VALUE_BYTES);
        assert!(shown(Format::Text, "m", &[("k", &long)]).len() < VALUE_BYTES + 100);
    }

    #[test]
    fn levels_are_read_and_ordered() {
        for level in [Level::Error, Level::Warn, Level::Info, Level::Debug] {
            assert_eq!(Level::parse(level.name()).unwrap(), level);
        }
        assert!(Level::Error < Level::Debug);
        assert_eq!(
            Level::parse("trace").unwrap_err().to_string(),
            "unknown log level `trace`: expected error, warn, info or debug"
        );
    }
}
