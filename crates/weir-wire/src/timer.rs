//! A timer more exact than the runtime's, for planned load starts and for responses that should take a given time.

#![allow(unsafe_code)] // two system calls that no safe crate of ours wraps

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// A kernel timer that is polled like a socket. Exact to some microseconds; the runtime's timers are exact to a
/// millisecond.
#[derive(Debug)]
pub struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// A timer in the calling thread's runtime. Uses one descriptor.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an `OwnedFd` is one open descriptor for as long as it lives, and the `AsyncFd` owns it.
        Ok(Self(unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)?))
    }

    /// Waits `after`; zero counts as one nanosecond. Replaces an earlier wait that was cancelled.
    pub async fn wait(&self, after: Duration) {
        let after = after.max(Duration::from_nanos(1));
        let value = libc::timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos() as _ };
        let timer =
            libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: the descriptor is a timer's and `timer` a valid setting for the call to read.
        unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const timer, std::ptr::null_mut()) };
        if let Ok(mut guard) = self.0.readable().await {
            guard.clear_ready(); // setting the timer again clears the kernel's side
        }
    }
}
