//! Signs of life: whether the peer of a connection with requests under way is still there.

use super::transport::Transport;
use std::time::Duration;

/// How often a connection is looked at.
pub const LOOK: Duration = Duration::from_secs(5);

/// After how many looks without a byte, when we have said something, a sign of life is asked for, and after how many the
/// peer is given up: within 10 and 20 s, since the first look behind the last byte counts for nothing. A silent stream on
/// which nobody has anything to say is not asked: gRPC servers close connections that ping without need.
const ASK_AFTER: u32 = 1;
const GIVE_UP_AFTER: u32 = 3;

/// What is known of a peer's silence.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Looks since a byte came.
    quiet: u32,
}

impl Pulse {
    /// Looks, every [`LOOK`]; false when the peer is to be given up.
    pub(super) fn look(&mut self, transport: &mut Transport) -> bool {
        self.quiet = if transport.take_heard() {
            0
        } else if self.quiet > 0 || transport.take_spoke() {
            self.quiet + 1
        } else {
            0 // nobody has said anything: a silent stream is no dead peer
        };
        if self.quiet >= ASK_AFTER {
            transport.lend().ask_alive();
            transport.call();
        }
        self.quiet < GIVE_UP_AFTER
    }

    /// Nothing is under way: silence says nothing.
    pub(super) const fn rest(&mut self) {
        self.quiet = 0;
    }
}
