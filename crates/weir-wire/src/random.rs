//! Prepares the random generator of a thread.

/// Prepares the random generator of this thread. A thread's first random bytes cost tens of milliseconds of CPU time,
/// because the crypto library then gathers entropy. TLS and WebSocket handshakes both start with random bytes, so
/// call this before you measure one.
pub fn make_ready() {
    let _ = aws_lc_rs::rand::fill(&mut [0]); // a failure here shows up again when random bytes are needed
}
