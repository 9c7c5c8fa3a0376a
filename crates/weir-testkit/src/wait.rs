//! Polling, for state that sends no event: a figure in `/proc`, a counter behind an HTTP request.

use std::thread;
use std::time::{Duration, Instant};

use crate::DEADLINE;

/// Plays a peer that stays silent for this long. It is part of a scripted conversation, never a wait for an
/// event.
pub fn pause(time: Duration) {
    thread::sleep(time);
}

/// Polls until the condition is true; panics with `what` if it is not within 5 s.
///
/// Only this module polls. Whatever can be awaited as an event is: bytes on a socket, lines of a log, the end of
/// a process. The rest sends no wakeup, so this checks every 2 ms, which is short compared with a test.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(DEADLINE, what, condition);
}

/// As [`eventually`], for other programs, which take longer.
#[track_caller]
pub fn eventually_within(deadline: Duration, what: &str, condition: impl FnMut() -> bool) {
    eventually_every(Duration::from_millis(2), deadline, what, condition);
}

/// As [`eventually_within`], with this pause between checks: for many tests that wait for seconds at the same time.
#[track_caller]
pub fn eventually_every(
    interval: Duration,
    deadline: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    let until = Instant::now() + deadline;
    while !condition() {
        assert!(Instant::now() < until, "not within {deadline:?}: {what}");
        thread::park_timeout(interval);
    }
}
