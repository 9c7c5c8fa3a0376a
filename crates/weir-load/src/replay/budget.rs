//! The memory for requests that were read ahead: taken by the reader, returned by the threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Most bytes of requests that are read ahead or in flight; a single larger one goes alone. Our guess: the requests
/// of all connections fit unless their bodies are large.
const BYTES_MOST: usize = 256 << 20;

/// How often a waiting reader looks whether the run is over.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Budget {
    used: Mutex<usize>,
    returned: Condvar,
}

/// Bytes that are in use until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    of: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// Waits until there is room; `None` once `is_over`.
    pub(super) fn take(self: &Arc<Self>, bytes: usize, is_over: impl Fn() -> bool) -> Option<Permit> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used > 0 && used.saturating_add(bytes) > BYTES_MOST {
            if is_over() {
                return None;
            }
            used = self.returned.wait_timeout(used, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        *used = used.saturating_add(bytes);
        drop(used);
        Some(Permit { of: Arc::clone(self), bytes })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.of.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.of.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_room_and_a_huge_one_goes_alone() {
        let budget = Arc::new(Budget::default());
        let huge = budget.take(BYTES_MOST * 2, || true).expect("it is alone");
        assert!(budget.take(1, || true).is_none(), "no room");
        let other = Arc::clone(&budget);
        let waits = std::thread::spawn(move || other.take(1, || false).is_some());
        drop(huge);
        assert!(waits.join().unwrap());
    }
}
