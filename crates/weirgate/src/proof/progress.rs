//! The progress line of a proof on a terminal: the number of requests and the time so far.

use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_report::units::counted;

/// Time between two updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// Updates the line until it is dropped, then clears it.
pub(super) struct Progress {
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Draws on stderr. Draws nothing if that is no terminal.
    pub(super) fn begin(title: &str, requests: usize) -> Self {
        match std::io::stderr().is_terminal() {
            true => Self::draw(title, requests, |line| err!("{line}")),
            false => Self { drawing: None },
        }
    }

    fn draw(title: &str, requests: usize, mut out: impl FnMut(&str) + Send + 'static) -> Self {
        let text = format!("asking {title} and Weir: {}", counted(requests as u64, "request"));
        let (end, ended) = channel::<()>();
        let drawing = std::thread::spawn(move || {
            let begun = Instant::now();
            loop {
                let line = format!("{text}, {} s", begun.elapsed().as_secs());
                out(&format!("\r{line:<70.70}"));
                if ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            out(&format!("\r{:70}\r", ""));
        });
        Self { drawing: Some((end, drawing)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let Some((end, drawing)) = self.drawing.take() else { return };
        drop(end);
        let _ = drawing.join(); // a panic of the drawing thread must not fail the proof
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn the_line_is_drawn_and_cleared() {
        let drawn = Arc::new(Mutex::new(String::new()));
        let onto = Arc::clone(&drawn);
        drop(Progress::draw("nginx", 1234, move |line| onto.lock().unwrap().push_str(line)));
        let drawn = drawn.lock().unwrap();
        assert!(drawn.starts_with("\rasking nginx and Weir: 1,234 requests, 0 s"), "{drawn:?}");
        assert!(drawn.ends_with(&format!("\r{:70}\r", "")), "{drawn:?}");
    }
}
