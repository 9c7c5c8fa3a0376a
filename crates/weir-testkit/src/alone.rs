//! Tests that bound wall time run alone, because other tests would disturb their measurements.
//!
//! Every test that starts the binary belongs to the crowd until its thread ends. [`alone`] waits until the crowd
//! is gone and keeps a new one from forming. Both waits are bounded by [`PATIENCE`]. Otherwise a test that runs
//! one gateway while another of its threads waits to start a second would deadlock all tests. When the wait ends
//! early, the measurement is merely noisier.

use std::cell::{Cell, RefCell};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for other tests: several times the total of all tests that run alone.
const PATIENCE: Duration = Duration::from_secs(90);

static TURNS: Mutex<Turns> = Mutex::new(Turns { crowd: 0, alone: false, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

struct Turns {
    /// Threads that have started the binary.
    crowd: usize,
    /// A test runs alone.
    alone: bool,
    /// Tests that wait to run alone.
    waiting: usize,
}

thread_local! {
    /// This thread's membership in the crowd. It ends with its thread, that is, with its test.
    static PART: RefCell<Option<Part>> = const { RefCell::new(None) };
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

struct Part;

impl Drop for Part {
    fn drop(&mut self) {
        turns().crowd -= 1;
        CHANGED.notify_all();
    }
}

/// Keeps all other tests away until dropped.
#[derive(Debug)]
#[must_use = "others come back when it is dropped"]
pub struct Alone(());

impl Drop for Alone {
    fn drop(&mut self) {
        IS_ALONE.set(false);
        turns().alone = false;
        CHANGED.notify_all();
    }
}

/// Waits until no other test runs the binary, and holds up tests that want to start it. Call it first in a test
/// that bounds how long something takes.
pub fn alone() -> Alone {
    PART.with_borrow_mut(|part| drop(part.take()));
    let mut turns = turns();
    turns.waiting += 1;
    let (mut turns, _) = CHANGED
        .wait_timeout_while(turns, PATIENCE, |turns| turns.alone || turns.crowd > 0)
        .unwrap_or_else(PoisonError::into_inner);
    turns.waiting -= 1;
    turns.alone = true;
    IS_ALONE.set(true);
    Alone(())
}

/// This thread is about to start the binary.
pub(crate) fn join_crowd() {
    if IS_ALONE.get() {
        return;
    }
    PART.with_borrow_mut(|part| {
        if part.is_none() {
            let (mut turns, _) = CHANGED
                .wait_timeout_while(turns(), PATIENCE, |turns| turns.alone || turns.waiting > 0)
                .unwrap_or_else(PoisonError::into_inner);
            turns.crowd += 1;
            *part = Some(Part);
        }
    });
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn whoever_is_alone_has_no_crowd() {
        let (say, heard) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let crowd = {
            let say = say.clone();
            thread::spawn(move || {
                join_crowd();
                join_crowd(); // once per thread, however often it starts the binary
                say.send("crowd").unwrap();
                wait.recv().unwrap();
                say.send("crowd gone").unwrap();
            })
        };
        assert_eq!(heard.recv(), Ok("crowd"));
        let measured = {
            let say = say.clone();
            thread::spawn(move || {
                let alone = alone();
                assert!(turns().crowd == 0 && turns().alone);
                join_crowd(); // its own
                assert_eq!(turns().crowd, 0);
                say.send("alone").unwrap();
                drop(alone);
            })
        };
        while turns().waiting == 0 {
            thread::yield_now();
        }
        let late = thread::spawn(move || {
            join_crowd();
            say.send("late").unwrap();
        });
        go.send(()).unwrap();
        crowd.join().unwrap();
        measured.join().unwrap();
        late.join().unwrap();
        assert_eq!(heard.into_iter().collect::<Vec<_>>(), ["crowd gone", "alone", "late"]);
    }
}
