//! Randomness of the thread that asks.

/// Makes the randomness of this thread ready. The first random bytes of a thread cost tens of milliseconds of processor time, in which the library of
/// cryptography gathers noise for them, and TLS and WebSocket both begin with some: who measures a handshake calls this before.
pub fn make_ready() {
    let _ = aws_lc_rs::rand::fill(&mut [0]); // whoever needs more than its time is told again
}
