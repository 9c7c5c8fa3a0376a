//! Waiting for what cannot be waited for: a figure in `/proc`, a counter behind an HTTP request.

use std::thread;
use std::time::{Duration, Instant};

use crate::DEADLINE;

/// Plays a peer that says nothing for so long: part of a scripted conversation, never a wait for something to happen.
pub fn pause(time: Duration) {
    thread::sleep(time);
}

/// Asks again and again until the condition holds; panics with `what` when it does not within 5 s.
///
/// The one place that polls. Everything that can be waited for as an event (bytes on a socket, lines of a log, the end of
/// a process) is; the rest has nobody to wake us, so this looks every 2 ms, short against what a test takes.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(DEADLINE, what, condition);
}

/// As [`eventually`], for what other programs do, which takes longer.
#[track_caller]
pub fn eventually_within(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + deadline;
    while !condition() {
        assert!(Instant::now() < until, "not within {deadline:?}: {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}
