//! The access log: one line per exchange, formatted on the core, written by a thread of its own.
//!
//! [`AccessLogWriter`] is the output and its thread; [`AccessLog`] is a core's handle with the core's buffer. A core formats into its
//! buffer and hands it over when it is full or when the core's tick comes; if the thread is behind, the lines are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::error::Result;
use crate::log;
use crate::registry::{CoreCells, Telemetry};
use crate::sink::{Output, Sink};
use crate::time::Stamp;

mod entry;
mod format;

pub use entry::{Entry, Field, LONG_FIELD_BYTES, SHORT_FIELD_BYTES, Timing};
pub use format::{Header, LineFormat, MAX_HEADERS};

/// A core hands its buffer over once it holds this much.
pub const HAND_OVER_BYTES: usize = 32 * 1024;

/// How many buffers may wait for the writer thread; the lines of further ones are dropped and counted.
///
/// About 2 MiB per output; 14 MiB if each buffer ends in the longest line that a hostile client can cause.
pub const WAITING_BUFFERS: usize = 64;

/// One output of the access log and the thread that writes to it.
///
/// Keep it across reloads where output and format are unchanged ([`AccessLogWriter::is`]). The thread ends when the writer and all its
/// handles are gone and everything is written.
pub struct AccessLogWriter {
    telemetry: Arc<Telemetry>,
    sink: Sink,
    format: Arc<LineFormat>,
}

impl AccessLogWriter {
    /// Opens the output and starts its thread.
    ///
    /// # Errors
    /// If the file cannot be opened; names it, and its directory if that is what is missing.
    pub fn open(telemetry: &Arc<Telemetry>, output: Output, format: LineFormat) -> Result<Self> {
        let counted = Arc::clone(telemetry);
        let shown = output.to_string();
        let failed = Box::new(move |lines: u64, error: &std::io::Error| {
            static FAILED: log::Every = log::every(Duration::from_secs(10));
            counted.access_log_failed.fetch_add(lines, Relaxed);
            FAILED.warn("access log not written", &[("output", &shown), ("lines", &lines), ("error", error)]);
        });
        let sink = Sink::start("weir-access-log", output, WAITING_BUFFERS, failed)?;
        Ok(Self { telemetry: Arc::clone(telemetry), sink, format: Arc::new(format) })
    }

    /// A handle for the core with this index; that core alone may use it.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn core(&self, index: usize) -> AccessLog {
        AccessLog {
            cells: self.telemetry.core(index),
            sink: self.sink.clone(),
            format: Arc::clone(&self.format),
            buffer: Vec::new(),
            lines: 0,
            stamp: Stamp::new(),
        }
    }

    /// Whether this writer already does what these settings ask for.
    pub fn is(&self, output: &Output, format: &LineFormat) -> bool {
        self.sink.output() == output && *self.format == *format
    }

    /// Opens a log file anew after it was moved away (SIGUSR1).
    ///
    /// # Errors
    /// If the file cannot be opened; the log goes on in the old one.
    pub fn reopen(&self) -> Result<()> {
        self.sink.reopen()
    }

    /// Waits until everything handed over is written, at most `limit`; says whether it is. For the end of the process.
    pub fn flush(&self, limit: Duration) -> bool {
        self.sink.flush(limit)
    }
}

/// A core's handle to the access log. Holds a buffer while there are lines in it; dropping the handle hands them over.
pub struct AccessLog {
    cells: Arc<CoreCells>,
    sink: Sink,
    format: Arc<LineFormat>,
    buffer: Vec<u8>,
    lines: u64,
    stamp: Stamp,
}

impl AccessLog {
    /// The fields of requests and responses that a line tells, beside those that every line can: [`Entry::headers`] has their values.
    pub fn headers(&self) -> &[Header] {
        self.format.headers()
    }

    /// Whether fields of responses are among [`AccessLog::headers`].
    #[inline]
    pub fn wants_responses(&self) -> bool {
        self.format.wants_responses()
    }

    /// Whether a line tells the id of its request.
    #[inline]
    pub fn names_requests(&self) -> bool {
        self.format.names_requests()
    }

    /// Adds a line. Never waits and makes no system call, except for waking the thread once in [`HAND_OVER_BYTES`].
    #[inline]
    pub fn record(&mut self, entry: &Entry<'_>) {
        if self.buffer.capacity() == 0 {
            // A line is seldom longer than the slack; then the buffer grows. (Buffers that come back from the writer thread to be
            // filled again were tried: no gain that could be measured.)
            self.buffer.reserve_exact(HAND_OVER_BYTES + 4096);
        }
        self.format.write(entry, &mut self.stamp, &mut self.buffer);
        self.lines += 1;
        if self.buffer.len() >= HAND_OVER_BYTES {
            self.hand_over();
        }
    }

    /// Hands over what there is. To be called by the core every 200 ms or so, so that lines of a quiet core appear.
    pub fn flush_tick(&mut self) {
        if self.lines > 0 {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if let Err(mut refused) = self.sink.hand_over(buffer, self.lines) {
            self.cells.access_log_dropped.add(self.lines);
            refused.clear();
            self.buffer = refused;
        }
        self.lines = 0;
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush_tick();
    }
}
