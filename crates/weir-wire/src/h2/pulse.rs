//! Liveness of a peer while requests are in progress.

use super::session::Session;
use std::time::Duration;

/// How often we check a connection.
pub const LOOK: Duration = Duration::from_secs(5);

/// After we have sent something: how many silent checks lead to a PING, and how many to giving up. That is within 10
/// and 20 s, since the first check after the last byte does not count. If neither side has anything to send, we send
/// no PING: gRPC servers close connections that ping without need.
const ASK_AFTER: u32 = 1;
const GIVE_UP_AFTER: u32 = 3;

/// The silence of a peer.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Checks since the last received byte.
    quiet: u32,
}

impl Pulse {
    /// Runs a check, every [`LOOK`]. False means: give the peer up.
    pub(super) fn look(&mut self, session: &mut Session) -> bool {
        self.quiet = if session.take_heard() {
            0
        } else if self.quiet > 0 || session.take_spoke() {
            self.quiet + 1
        } else {
            0 // neither side has sent anything: a silent stream is not a dead peer
        };
        if self.quiet >= ASK_AFTER {
            session.lend().ask_alive();
            session.call();
        }
        self.quiet < GIVE_UP_AFTER
    }

    /// Nothing is in progress, so silence means nothing.
    pub(super) const fn rest(&mut self) {
        self.quiet = 0;
    }
}
