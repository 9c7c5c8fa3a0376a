//! Counts the frames of a connection by kind.
//!
//! The attacks of recent years have one thing in common: frames that cause work but carry no message cost the sender
//! nothing (CVE-2019-9511 to 9518, CVE-2023-44487 "rapid reset", CVE-2024-27316 and VU#421644 "CONTINUATION flood",
//! CVE-2025-8671 "MadeYouReset"). So each kind of frame has an allowance per second, and honest traffic earns more: a
//! response earns a reset, a piece of data its window update. A peer that exceeds its allowance gets GOAWAY.

use super::frame::{self, Header, Kind};
use std::time::{Duration, Instant};

/// Why a connection ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer closed or reset the connection.
    Closed,
    /// The peer sent more frames of one kind than any honest peer does.
    Flood(Flood),
    /// The peer violated the protocol.
    Protocol,
}

/// A kind of frame that a peer can send too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// CONTINUATION frames of one head.
    Continuation,
    /// DATA frames with little or no data.
    Data,
    /// Frames that made us reset streams.
    Errors,
    /// PING, and unsolicited acknowledgements.
    Ping,
    /// PRIORITY, PRIORITY_UPDATE, and unknown types.
    Priority,
    /// RST_STREAM.
    Resets,
    /// SETTINGS.
    Settings,
    /// WINDOW_UPDATE.
    WindowUpdate,
}

/// Most frames of a kind per second, beyond what honest traffic earns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodLimits {
    /// CONTINUATION frames per head, not per second.
    pub continuations: u32,
    /// Empty DATA frames, padded or not. Each DATA frame with data earns one more.
    pub empty_data: u32,
    /// Streams we reset because of what the peer did.
    pub errors: u32,
    /// PING, and unsolicited acknowledgements. Each HEADERS or DATA frame, in either direction, earns one more: gRPC
    /// measures its bandwidth with pings.
    pub pings: u32,
    /// PRIORITY and unknown frames. Each received HEADERS frame earns two more.
    pub priorities: u32,
    /// Received RST_STREAM. Each response earns one more: a client that cancels some of many requests is no attacker.
    pub resets: u32,
    /// SETTINGS, and unsolicited acknowledgements.
    pub settings: u32,
    /// WINDOW_UPDATE. Each KiB of sent DATA earns one more, and each DATA frame two.
    pub window_updates: u32,
}

impl Default for FloodLimits {
    /// Ten times what any client we know sends, and a thousandth of what an attacker needs.
    fn default() -> Self {
        Self {
            continuations: 16,
            empty_data: 100,
            errors: 100,
            pings: 100,
            priorities: 500,
            resets: 200,
            settings: 50,
            window_updates: 1000,
        }
    }
}

impl FloodLimits {
    /// For an upstream, which we trust but which may be broken: a hundred times what a working one sends. Frames that
    /// answer requests are not limited here: each response has its own limits.
    pub const UPSTREAM: Self = Self {
        empty_data: 10_000,
        pings: 10_000,
        priorities: 10_000,
        settings: 1_000,
        window_updates: 100_000,
        ..Self::NONE
    };

    /// No limits.
    pub const NONE: Self = Self {
        continuations: u32::MAX,
        empty_data: u32::MAX,
        errors: u32::MAX,
        pings: u32::MAX,
        priorities: u32::MAX,
        resets: u32::MAX,
        settings: u32::MAX,
        window_updates: u32::MAX,
    };
}

/// Most frames of a kind that can be earned in advance: the window updates for a body of 4 MiB that a client reads
/// before it sends any.
const CREDIT: i64 = 4096;

const SECOND: Duration = Duration::from_secs(1);

/// The frame counts of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    limits: FloodLimits,
    since: Option<Instant>,
    /// The time of this batch of frames, once one of them needed it.
    now: Option<Instant>,
    /// Frames of this second by kind, minus what was earned; a negative count is unused credit.
    counts: [i64; 8],
    continuations: u32,
    flood: Option<Flood>,
}

impl Meter {
    pub(super) const fn new(limits: FloodLimits) -> Self {
        Self { limits, since: None, now: None, counts: [0; 8], continuations: 0, flood: None }
    }

    /// The kind of frame that the peer sends too often, if any.
    pub(super) const fn flood(&self) -> Option<Flood> {
        self.flood
    }

    /// Starts a batch of frames that were read together: the clock is read at most once for them.
    pub(super) const fn batch(&mut self) {
        self.now = None;
    }

    /// Counts a received frame. `data` is the length of DATA without padding: a frame of padding only counts as
    /// empty.
    pub(super) fn received(&mut self, header: &Header, data: usize) {
        match header.kind {
            Kind::DATA if data > 0 => {
                self.earn(Flood::Data, 1);
                self.earn(Flood::Ping, 1);
            }
            Kind::DATA if !header.has(frame::END_STREAM) => self.spend(Flood::Data, self.limits.empty_data),
            Kind::HEADERS => {
                self.earn(Flood::Ping, 1);
                self.earn(Flood::Priority, 2);
                self.continuations = 0;
            }
            Kind::CONTINUATION => {
                self.continuations += 1;
                if self.continuations > self.limits.continuations {
                    self.flood.get_or_insert(Flood::Continuation);
                }
            }
            Kind::RST_STREAM => self.spend(Flood::Resets, self.limits.resets),
            Kind::SETTINGS | Kind::PING if header.has(frame::ACK) => {} // see `unasked`
            Kind::SETTINGS | Kind::GOAWAY | Kind::PUSH_PROMISE => {
                self.spend(Flood::Settings, self.limits.settings);
            }
            Kind::PING => self.spend(Flood::Ping, self.limits.pings),
            Kind::WINDOW_UPDATE => self.spend(Flood::WindowUpdate, self.limits.window_updates),
            Kind::DATA => {}
            _ => self.spend(Flood::Priority, self.limits.priorities),
        }
    }

    /// Counts an unsolicited acknowledgement.
    pub(super) fn unasked(&mut self, kind: Kind) {
        if kind == Kind::SETTINGS {
            self.spend(Flood::Settings, self.limits.settings);
        } else {
            self.spend(Flood::Ping, self.limits.pings);
        }
    }

    /// Counts sent DATA.
    pub(super) fn sent_data(&mut self, len: usize) {
        self.earn(Flood::Ping, 1);
        self.earn(Flood::WindowUpdate, 2 + (len / 1024) as u32);
    }

    /// Counts a sent head.
    pub(super) fn sent_head(&mut self) {
        self.earn(Flood::Ping, 1);
        self.earn(Flood::Resets, 1);
    }

    /// Counts a stream that we reset because of what the peer did.
    pub(super) fn provoked(&mut self) {
        self.spend(Flood::Errors, self.limits.errors);
    }

    fn earn(&mut self, kind: Flood, n: u32) {
        let count = &mut self.counts[kind as usize];
        *count = (*count - i64::from(n)).max(-CREDIT);
    }

    fn spend(&mut self, kind: Flood, limit: u32) {
        let now = *self.now.get_or_insert_with(Instant::now);
        if self.since.is_none_or(|since| now.duration_since(since) >= SECOND) {
            self.since = Some(now);
            self.counts = self.counts.map(|count| count.min(0));
        }
        let count = &mut self.counts[kind as usize];
        *count += 1;
        if *count > i64::from(limit) {
            self.flood.get_or_insert(kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn header(kind: Kind, flags: u8) -> Header {
        Header { len: 8, kind, flags, stream: 1 }
    }

    #[test]
    fn a_flood_of_each_kind_is_noticed() {
        for (kind, flags, data, flood) in [
            (Kind::SETTINGS, 0, 0, Flood::Settings),
            (Kind::PING, 0, 0, Flood::Ping),
            (Kind::RST_STREAM, 0, 0, Flood::Resets),
            (Kind::PRIORITY, 0, 0, Flood::Priority),
            (Kind(0x10), 0, 0, Flood::Priority),
            (Kind::DATA, 0, 0, Flood::Data),
            (Kind::DATA, frame::PADDED, 0, Flood::Data),
            (Kind::WINDOW_UPDATE, 0, 0, Flood::WindowUpdate),
            (Kind::CONTINUATION, 0, 0, Flood::Continuation),
        ] {
            let mut meter = Meter::new(FloodLimits::default());
            let sent = (0..2000).take_while(|_| {
                meter.received(&header(kind, flags), data);
                meter.flood().is_none()
            });
            assert!(sent.count() < 1001, "{flood:?}");
            assert_eq!(meter.flood(), Some(flood));
        }
    }

    #[test]
    fn an_upstream_is_cut_too() {
        for (kind, flood) in [
            (Kind::WINDOW_UPDATE, Flood::WindowUpdate),
            (Kind::SETTINGS, Flood::Settings),
            (Kind::PING, Flood::Ping),
            (Kind::PRIORITY, Flood::Priority),
            (Kind::DATA, Flood::Data),
        ] {
            let mut meter = Meter::new(FloodLimits::UPSTREAM);
            let sent = (0..200_000).take_while(|_| {
                meter.received(&header(kind, 0), 0);
                meter.flood().is_none()
            });
            assert!(sent.count() <= 100_000, "{flood:?}");
            assert_eq!(meter.flood(), Some(flood));
        }
    }

    #[test]
    fn answers_count_where_nobody_asked() {
        for (kind, flood) in [(Kind::PING, Flood::Ping), (Kind::SETTINGS, Flood::Settings)] {
            let mut meter = Meter::new(FloodLimits::default());
            (0..1000).for_each(|_| meter.received(&header(kind, frame::ACK), 0));
            assert_eq!(meter.flood(), None);
            (0..101).for_each(|_| meter.unasked(kind));
            assert_eq!(meter.flood(), Some(flood));
        }
    }

    #[test]
    fn data_earns_empty_data_for_life() {
        let mut meter = Meter::new(FloodLimits::default());
        for _ in 0..1000 {
            meter.received(&header(Kind::DATA, 0), 1);
            meter.received(&header(Kind::DATA, 0), 0);
        }
        assert_eq!(meter.flood(), None);
    }

    #[test]
    fn what_was_earned_before_counts_and_has_an_end() {
        let mut meter = Meter::new(FloodLimits::default());
        (0..1024).for_each(|_| meter.sent_data(4096)); // 4 MiB in one burst, acknowledged piece by piece
        (0..2048).for_each(|_| meter.received(&header(Kind::WINDOW_UPDATE, 0), 0));
        assert_eq!(meter.flood(), None);
        let more = (0..10_000).take_while(|_| {
            meter.received(&header(Kind::WINDOW_UPDATE, 0), 0);
            meter.flood().is_none()
        });
        assert!(more.count() < 4096);
    }

    #[test]
    fn honest_traffic_earns_what_it_spends() {
        let mut meter = Meter::new(FloodLimits::default());
        for _ in 0..10_000 {
            meter.sent_head();
            meter.received(&header(Kind::RST_STREAM, 0), 0); // every request answered, then cancelled
            meter.sent_data(4000);
            meter.received(&header(Kind::PING, 0), 0); // gRPC's bandwidth probes
            meter.received(&header(Kind::WINDOW_UPDATE, 0), 0);
            meter.received(&header(Kind::WINDOW_UPDATE, 0), 0);
        }
        assert_eq!(meter.flood(), None);
    }
}
