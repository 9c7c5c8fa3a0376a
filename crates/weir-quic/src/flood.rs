//! Counts frames that carry nothing, such as PING, so that a peer cannot keep a core busy with them.
//!
//! A datagram holds some 1,400 PING frames, each of which quinn-proto looks at. Streams and what HTTP/3 makes of them
//! have limits of their own; these are the frames below them. Each kind of frame is honest now and then, so what a peer
//! may send depends on the data that passes: [`EARNED`] frames for each frame with data in either direction, and an
//! allowance per second beside.

use quinn_proto::ConnectionStats;
use std::time::{Duration, Instant};

/// Every so many bytes received, one frame counts as carrying data. If more frames arrive than that, such as empty
/// STREAM frames, the surplus counts as carrying nothing.
const CARRIED: u64 = 64;

/// Frames without data that each frame with data earns its receiver or sender. An honest peer acknowledges what it
/// gets and raises the limits of a stream and of the connection.
const EARNED: u64 = 4;

/// Most frames that can be earned in advance: a whole window of a fast download is acknowledged after its end.
const CREDIT: u64 = 100_000;

/// Datagrams after which the counts are looked at again. They have at most some 24,000 frames, whose cost is less
/// than a millisecond.
const DATAGRAMS: u32 = 16;

const SECOND: Duration = Duration::from_secs(1);

/// The counts of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// Frames without data that the peer may send per second, beyond what was earned.
    allowance: u64,
    /// Datagrams since the last look.
    datagrams: u32,
    /// The frames at the last look.
    seen: Frames,
    /// What the peer may still send of its allowance, and since when.
    left: u64,
    since: Option<Instant>,
    earned: u64,
}

/// What a connection has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    /// Received frames that carry nothing for a stream.
    pub(crate) empty: u64,
    /// Received frames that may.
    pub(crate) full: u64,
    /// Sent frames with data.
    pub(crate) sent: u64,
    /// Received bytes.
    pub(crate) bytes: u64,
}

impl From<&ConnectionStats> for Frames {
    fn from(stats: &ConnectionStats) -> Self {
        let (got, sent) = (&stats.frame_rx, &stats.frame_tx);
        let blocked =
            got.data_blocked + got.stream_data_blocked + got.streams_blocked_bidi + got.streams_blocked_uni;
        let credit = got.max_data + got.max_stream_data + got.max_streams_bidi + got.max_streams_uni;
        let path = got.path_challenge + got.path_response + got.new_connection_id + got.retire_connection_id;
        let acks = got.acks + got.ack_frequency + got.immediate_ack;
        Self {
            empty: got.ping + blocked + credit + path + acks,
            // Those of resets and stops are limited by kind where streams have a meaning.
            full: got.stream + got.crypto + got.reset_stream + got.stop_sending,
            sent: sent.stream + sent.crypto,
            bytes: stats.udp_rx.bytes,
        }
    }
}

impl Meter {
    pub(crate) const fn new(allowance: u32) -> Self {
        Self {
            allowance: allowance as u64,
            datagrams: 0,
            seen: Frames { empty: 0, full: 0, sent: 0, bytes: 0 },
            left: allowance as u64,
            since: None,
            earned: 0,
        }
    }

    /// Counts a datagram. Returns whether it is time to look at the frames.
    pub(crate) const fn is_due(&mut self) -> bool {
        self.datagrams += 1;
        if self.datagrams < DATAGRAMS {
            return false;
        }
        self.datagrams = 0;
        true
    }

    /// Whether the peer has sent too many frames that carry nothing.
    pub(crate) fn is_exceeded(&mut self, frames: Frames, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.seen, frames);
        let got = frames.full.saturating_sub(before.full);
        let carried = got.min(frames.bytes.saturating_sub(before.bytes) / CARRIED);
        let empty = frames.empty.saturating_sub(before.empty) + got - carried;
        let full = carried + frames.sent.saturating_sub(before.sent);
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND) {
            (self.since, self.left) = (Some(now), self.allowance);
        }
        self.earned = (self.earned + full.saturating_mul(EARNED)).min(CREDIT);
        let beyond = empty.saturating_sub(self.earned);
        self.earned = self.earned.saturating_sub(empty);
        let is_exceeded = beyond > self.left;
        self.left = self.left.saturating_sub(beyond);
        is_exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_an_allowance_and_data_earns_more() {
        let (begin, mut meter, mut so_far) = (Instant::now(), Meter::new(100), Frames::default());
        let mut sends = |meter: &mut Meter, at: Duration, empty: u64, full: u64| {
            so_far = Frames { empty: so_far.empty + empty, sent: so_far.sent + full, ..so_far };
            meter.is_exceeded(so_far, begin + at)
        };
        assert!(!sends(&mut meter, Duration::ZERO, 60, 0));
        assert!(!sends(&mut meter, Duration::ZERO, 40, 0));
        assert!(sends(&mut meter, Duration::from_millis(999), 1, 0));
        assert!(!sends(&mut meter, SECOND, 100, 0));
        assert!(!sends(&mut meter, SECOND, 40, 10), "data earns them");
        assert!(sends(&mut meter, SECOND, 1, 0));
        assert!(!sends(&mut meter, 2 * SECOND, 0, 1_000_000));
        assert!(!sends(&mut meter, 3 * SECOND, CREDIT, 0), "a download whose end is acknowledged late");
        assert!(sends(&mut meter, 3 * SECOND, 101, 0), "credit is bounded");
    }

    #[test]
    fn frames_for_streams_count_as_full_as_far_as_they_carry_data() {
        let (now, of) = (Instant::now(), |full, bytes| Frames { full, bytes, ..Frames::default() });
        // Requests of 64 bytes and more, up to any number.
        assert!(!Meter::new(10).is_exceeded(of(100_000, 6_400_000), now));
        // A datagram of empty STREAM frames.
        assert!(Meter::new(10).is_exceeded(of(490, 1472), now));
        // A page that is closed resets its requests.
        assert!(!Meter::new(200).is_exceeded(of(200, 1472), now));
    }

    #[test]
    fn frames_are_looked_at_now_and_then() {
        let mut meter = Meter::new(1);
        let due = (0..10 * DATAGRAMS).filter(|_| meter.is_due()).count();
        assert_eq!(due, 10);
    }
}
