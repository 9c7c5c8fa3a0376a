//! The output of the running gateway: collects it, and waits for parts of it.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// One stream of a process. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output(Arc<(Mutex<Text>, Condvar)>);

#[derive(Debug, Default)]
struct Text {
    text: String,
    closed: bool,
}

impl Output {
    /// Collects the stream line by line, on a separate thread.
    pub(crate) fn collect(stream: impl Read + Send + 'static) -> Self {
        let output = Self::default();
        let shared = output.clone();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                shared.lock().text.push_str(&String::from_utf8_lossy(&line));
                shared.0.1.notify_all();
                line.clear();
            }
            shared.lock().closed = true;
            shared.0.1.notify_all();
        });
        output
    }

    pub(crate) fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Waits until `find` finds something in the text; `None` if the stream ends or the deadline passes first.
    pub(crate) fn wait_for<T>(&self, deadline: Duration, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut found = None;
        let waited = self.0.1.wait_timeout_while(self.lock(), deadline, |state| {
            found = find(&state.text);
            found.is_none() && !state.closed
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        found
    }

    /// Waits until the process closes the stream; false if it has not by the deadline.
    pub(crate) fn wait_closed(&self, deadline: Duration) -> bool {
        let waited = self.0.1.wait_timeout_while(self.lock(), deadline, |state| !state.closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    fn lock(&self) -> MutexGuard<'_, Text> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of Weir's text log: `[time] level message words key=value key="a value"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The words before the first `key=value`.
    pub message: String,
    /// The fields in order.
    pub fields: Vec<(String, String)>,
}

impl LogLine {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = words(line).into_iter();
        let levels = ["error", "warn", "info", "debug", "trace"];
        let level =
            words.by_ref().take(3).find(|word| levels.contains(&word.to_ascii_lowercase().as_str()))?;
        let mut parsed =
            Self { level: level.to_ascii_lowercase(), message: String::new(), fields: Vec::new() };
        for word in words {
            match word.split_once('=') {
                Some((name, value)) if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                    parsed.fields.push((name.to_owned(), value.to_owned()));
                }
                _ if parsed.fields.is_empty() => {
                    if !parsed.message.is_empty() {
                        parsed.message.push(' ');
                    }
                    parsed.message.push_str(&word);
                }
                _ => {}
            }
        }
        Some(parsed)
    }
}

/// Splits at spaces, but not within double quotes, which are removed.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut escaped) = (vec![String::new()], false, false);
    for c in line.chars() {
        let word = words.last_mut().expect("there is always one");
        match c {
            _ if escaped => {
                escaped = false;
                word.push(c);
            }
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => word.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines() {
        let line =
            LogLine::parse("2026-01-01T00:00:00Z INFO listening listener=web address=127.0.0.1:1").unwrap();
        assert_eq!((&*line.level, &*line.message), ("info", "listening"));
        assert_eq!(line.field("address"), Some("127.0.0.1:1"));
        let line = LogLine::parse("error reload refused reason=\"a \\\"b\\\" c\" line=3").unwrap();
        assert_eq!((&*line.level, &*line.message), ("error", "reload refused"));
        assert_eq!((line.field("reason"), line.field("line")), (Some("a \"b\" c"), Some("3")));
        assert_eq!(LogLine::parse("Weir listens. Try this next:"), None);
    }
}
