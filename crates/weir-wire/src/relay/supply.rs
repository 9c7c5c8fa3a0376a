//! A body that was held elsewhere, such as in a file, and is sent from there.

use super::Relay;
use std::fmt;
use std::io;
use std::task::{Context, Poll};

/// Where a body comes from, if not from its sender's connection.
pub trait Supply {
    /// Appends more of the body to `buffer` and returns the number of bytes; 0 means the end.
    ///
    /// # Errors
    /// It cannot be read.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>>;
}

impl fmt::Debug for dyn Supply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Supply")
    }
}

impl Relay {
    /// Reads the body from here instead of from the sender's connection.
    pub fn supply(&mut self, from: Box<dyn Supply>) {
        self.supply = Some(from);
    }

    /// Whether the body comes from a [`Supply`].
    pub const fn is_supplied(&self) -> bool {
        self.supply.is_some()
    }
}
