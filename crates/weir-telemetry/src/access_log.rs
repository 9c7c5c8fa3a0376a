//! The access log: one line per exchange, formatted on the core, written by its own thread.
//!
//! [`AccessLogWriter`] is the output and its thread; [`AccessLog`] is a core's handle, with the core's buffer. A core
//! formats lines into its buffer, and hands it over when it is full or on the core's tick. If the thread falls
//! behind, the lines are dropped and counted.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::error::Result;
use crate::log;
use crate::registry::{CoreCells, Telemetry};
use crate::sink::{Outcome, Output, Rotation, Sink, Warn};
use crate::time::Stamp;

mod entry;
mod format;
mod redact;
mod replay;
mod when;

pub use entry::{Computed, Entry, Field, LONG_FIELD_BYTES, RequestCopy, SHORT_FIELD_BYTES, Timing};
pub use format::{FormatPiece, Header, LineFormat, MAX_HEADERS};
pub use redact::Redaction;
pub use when::When;

/// A core hands over its buffer once it holds this much.
pub const HAND_OVER_BYTES: usize = 32 * 1024;

/// Most buffers that wait for the writer thread; the lines of further ones are dropped and counted.
///
/// About 2 MiB per output; 14 MiB if each buffer ends in the longest line that a hostile client can cause. With the
/// format `replay` and the filter `log_body`, six times its limit is added to each.
pub const WAITING_BUFFERS: usize = 64;

/// One output of the access log and its writer thread.
///
/// Keep it across reloads if output and format are unchanged ([`AccessLogWriter::is`]). The thread ends when the
/// writer and all its handles are gone and everything is written.
pub struct AccessLogWriter {
    telemetry: Arc<Telemetry>,
    way: Way,
    format: Arc<LineFormat>,
    outage: Arc<Mutex<Option<Unwritten>>>,
}

/// An output that cannot be written now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The file, `stderr`, `stdout` or the syslog server.
    pub output: String,
    /// When the first write failed.
    pub since: SystemTime,
    /// Lines lost since then.
    pub lost: u64,
    /// Why the last write failed.
    pub error: String,
}

/// Accepts buffers of records that are not lines, such as those of [`LineFormat::otlp`].
pub trait TakesRecords: Send + Sync {
    /// Takes a buffer of `count` records. Never waits; returns the buffer as `Err` if too many are waiting.
    ///
    /// # Errors
    /// The buffer.
    fn take(&self, records: Vec<u8>, count: u64) -> std::result::Result<(), Vec<u8>>;
}

/// The destination of buffers.
#[derive(Clone)]
enum Way {
    Records(Arc<dyn TakesRecords>),
    Thread(Sink),
}

impl Way {
    fn hand_over(&self, buffer: Vec<u8>, lines: u64) -> std::result::Result<(), Vec<u8>> {
        match self {
            Self::Records(to) => to.take(buffer, lines),
            Self::Thread(sink) => sink.hand_over(buffer, lines),
        }
    }

    const fn sink(&self) -> Option<&Sink> {
        match self {
            Self::Records(_) => None,
            Self::Thread(sink) => Some(sink),
        }
    }
}

impl AccessLogWriter {
    /// Opens the output and starts its thread.
    ///
    /// # Errors
    /// If the file cannot be opened; the error names it, or its directory if that is missing.
    pub fn open(telemetry: &Arc<Telemetry>, output: Output, format: LineFormat) -> Result<Self> {
        Self::open_rotated(telemetry, output, format, None)
    }

    /// Like [`AccessLogWriter::open`], with rotation by size or age.
    ///
    /// # Errors
    /// As [`AccessLogWriter::open`].
    pub fn open_rotated(
        telemetry: &Arc<Telemetry>,
        output: Output,
        format: LineFormat,
        rotation: Option<Rotation>,
    ) -> Result<Self> {
        let counted = Arc::clone(telemetry);
        let shown = output.to_string();
        let mut outage = Outage::default();
        let now = Arc::new(Mutex::new(None));
        let (seen, mut fails) = (Arc::clone(&now), false);
        let watch = Box::new(move |outcome: Outcome<'_>| {
            if let Outcome::Failed(lines, error) = outcome {
                counted.access_log_failed.fetch_add(lines, Relaxed);
                fails = true;
                note(&seen, &shown, lines, error);
            } else if std::mem::take(&mut fails) {
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            let Some(told) = outage.after(outcome, Instant::now()) else { return };
            let Losses { lines, lost, seconds } = told;
            match outcome {
                Outcome::Failed(_, error) => {
                    let fields: log::Fields<'_> = &[("output", &shown), ("lines", &lines), ("error", error)];
                    log::warn("access log cannot be written", fields);
                }
                Outcome::Written => log::warn(
                    "access log is writable again",
                    &[("output", &shown), ("lines", &lines), ("lost", &lost), ("seconds", &seconds)],
                ),
            }
        });
        let rotation = rotation.map(|rotation| (rotation, log::warn as Warn));
        let sink = Sink::start("weir-access-log", output, rotation, WAITING_BUFFERS, watch)?;
        let format = Arc::new(format);
        Ok(Self { telemetry: Arc::clone(telemetry), way: Way::Thread(sink), format, outage: now })
    }

    /// A log whose records `to` accepts; it has no thread of its own.
    pub fn to_records(telemetry: &Arc<Telemetry>, to: Arc<dyn TakesRecords>, format: LineFormat) -> Self {
        let (format, outage) = (Arc::new(format), Arc::default());
        Self { telemetry: Arc::clone(telemetry), way: Way::Records(to), format, outage }
    }

    /// A handle for the core with this index. Only that core may use it.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn core(&self, index: usize) -> AccessLog {
        AccessLog {
            cells: self.telemetry.core(index),
            way: self.way.clone(),
            format: Arc::clone(&self.format),
            buffer: Vec::new(),
            lines: 0,
            stamp: Stamp::new(),
            random: 0x9e37_79b9 ^ index as u32,
        }
    }

    /// Whether this writer already has these settings.
    pub fn is(&self, output: &Output, format: &LineFormat, rotation: Option<&Rotation>) -> bool {
        let same = |sink: &Sink| sink.output() == output && sink.rotation() == rotation;
        self.way.sink().is_some_and(same) && *self.format == *format
    }

    /// Whether it sends records in this format to another component.
    pub fn is_records(&self, format: &LineFormat) -> bool {
        self.way.sink().is_none() && *self.format == *format
    }

    /// The outage if the last write failed. A collector's outages are counts of its exporter.
    pub fn unwritten(&self) -> Option<Unwritten> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reopens the log file after it was moved away (SIGUSR1).
    ///
    /// # Errors
    /// If the file cannot be opened; the log then continues in the old one.
    pub fn reopen(&self) -> Result<()> {
        self.way.sink().map_or(Ok(()), Sink::reopen)
    }

    /// Waits until everything handed over is written, at most `limit`; returns whether it is. For the end of the
    /// process.
    pub fn flush(&self, limit: Duration) -> bool {
        self.way.sink().is_none_or(|sink| sink.flush(limit))
    }
}

/// A core's handle to the access log. Holds a buffer while it contains lines; dropping the handle hands them over.
pub struct AccessLog {
    cells: Arc<CoreCells>,
    way: Way,
    format: Arc<LineFormat>,
    buffer: Vec<u8>,
    lines: u64,
    stamp: Stamp,
    /// Random state that selects exchanges for a `share`.
    random: u32,
}

impl AccessLog {
    /// The request and response fields that a line contains in addition to the standard ones; [`Entry::headers`] has
    /// their values.
    pub fn headers(&self) -> &[Header] {
        self.format.headers()
    }

    /// Whether [`AccessLog::headers`] includes response fields.
    #[inline]
    pub fn wants_responses(&self) -> bool {
        self.format.wants_responses()
    }

    /// Whether a line contains the request id.
    #[inline]
    pub fn names_requests(&self) -> bool {
        self.format.names_requests()
    }

    /// Whether a line contains expressions, whose values `Entry::computed` has.
    #[inline]
    pub fn computes(&self) -> bool {
        self.format.computes()
    }

    /// Whether a line contains the whole request, which [`Entry::request`] has.
    #[inline]
    pub fn wants_requests(&self) -> bool {
        self.format.is_replay()
    }

    /// Adds a line, if this exchange gets one. Never waits and makes no system call, except to wake the thread once per
    /// [`HAND_OVER_BYTES`].
    #[inline]
    pub fn record(&mut self, entry: &Entry<'_>) {
        if self.selects(entry) {
            self.write(entry);
        }
    }

    /// Whether this exchange gets a line. To be asked once for each: the shares of `when` are drawn by chance.
    #[inline]
    pub fn selects(&mut self, entry: &Entry<'_>) -> bool {
        // A connection without a request cannot be replayed.
        if entry.method.is_empty() && self.format.is_replay() {
            return false;
        }
        let Some(when) = self.format.when() else { return true };
        self.random = xorshift(self.random);
        when.holds(entry, self.random)
    }

    /// Adds the line of a selected exchange, as [`AccessLog::record`] does.
    #[inline]
    pub fn write(&mut self, entry: &Entry<'_>) {
        if self.buffer.capacity() == 0 {
            // A line is rarely longer than the slack; if it is, the buffer grows. (Recycling buffers from the writer
            // thread brought no measurable gain.)
            self.buffer.reserve_exact(HAND_OVER_BYTES + 4096);
        }
        self.format.write(entry, &mut self.stamp, &mut self.buffer);
        self.lines += 1;
        if self.buffer.len() >= HAND_OVER_BYTES {
            self.hand_over();
        }
    }

    /// Hands over the buffered lines. The core should call it every 200 ms or so, so that lines of a quiet core
    /// appear.
    pub fn flush_tick(&mut self) {
        if self.lines > 0 {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if let Err(mut refused) = self.way.hand_over(buffer, self.lines) {
            self.cells.access_log_dropped.add(self.lines);
            refused.clear();
            self.buffer = refused;
        }
        self.lines = 0;
    }
}

/// Notes that `lines` could not be written.
fn note(outage: &Mutex<Option<Unwritten>>, output: &str, lines: u64, error: &std::io::Error) {
    let mut outage = outage.lock().unwrap_or_else(PoisonError::into_inner);
    let outage = outage.get_or_insert_with(|| {
        let (output, error) = (output.to_owned(), String::new());
        Unwritten { output, since: SystemTime::now(), lost: 0, error }
    });
    outage.lost += lines;
    outage.error = error.to_string();
}

/// Marsaglia, *Xorshift RNGs*, 2003. No secret depends on it.
const fn xorshift(mut state: u32) -> u32 {
    state ^= state << 13;
    state ^= state >> 17;
    state ^ state << 5
}

/// The lines lost since the last successful write, and how many of them the log has reported. The sum of all reported
/// `lines` equals the metric.
#[derive(Debug, Default)]
struct Outage {
    since: Option<Instant>,
    lost: u64,
    unreported: u64,
    /// When the next line about a failure may be written, and the next about a recovery.
    next: [Option<Instant>; 2],
}

/// A report in the process log.
#[derive(Debug, PartialEq, Eq)]
struct Losses {
    /// Lines lost since the last report.
    lines: u64,
    /// Lines lost since the outage began.
    lost: u64,
    /// The duration of the outage.
    seconds: u64,
}

/// The shortest time between two reports of an outage.
const TELL: Duration = Duration::from_secs(10);

impl Outage {
    /// The report after a buffer, if any. If an outage ends soon after another one ended, its end is reported with
    /// the next.
    fn after(&mut self, outcome: Outcome<'_>, now: Instant) -> Option<Losses> {
        let over = match outcome {
            Outcome::Failed(lines, _) => {
                self.since.get_or_insert(now);
                self.lost += lines;
                self.unreported += lines;
                false
            }
            Outcome::Written => true,
        };
        let since = self.since?;
        let next = &mut self.next[usize::from(over)];
        if next.is_some_and(|next| now < next) {
            return None;
        }
        *next = Some(now + TELL);
        let seconds = now.saturating_duration_since(since).as_secs();
        let told = Losses { lines: std::mem::take(&mut self.unreported), lost: self.lost, seconds };
        if over {
            (self.since, self.lost) = (None, 0);
        }
        Some(told)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush_tick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_of_so_that_the_counts_add_up() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let start = Instant::now();
        let mut outage = Outage::default();
        let mut counted = 0;
        let mut told = 0;
        let mut after = |seconds, lines: Option<u64>| {
            let outcome = lines.map_or(Outcome::Written, |lines| Outcome::Failed(lines, &full));
            counted += lines.unwrap_or(0);
            let said = outage.after(outcome, start + Duration::from_secs(seconds));
            told += said.as_ref().map_or(0, |said| said.lines);
            (said, counted - told)
        };
        let says = |lines, lost, seconds| Some(Losses { lines, lost, seconds });
        assert_eq!(after(0, None).0, None);
        assert_eq!(after(1, Some(3)).0, says(3, 3, 0));
        assert_eq!(after(2, Some(4)).0, None);
        assert_eq!(after(12, Some(5)).0, says(9, 12, 11));
        assert_eq!(after(13, Some(1)).0, None);
        assert_eq!(after(14, None), (says(1, 13, 13), 0));
        assert_eq!(after(15, None).0, None);
        // Outages come and go.
        assert_eq!(after(16, Some(2)).0, None);
        assert_eq!(after(17, None).0, None);
        assert_eq!(after(18, Some(2)).0, None);
        assert_eq!(after(24, None), (says(4, 4, 8), 0));
    }
}
