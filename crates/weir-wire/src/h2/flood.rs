//! Counts what the crate does not show: the frames of a connection by kind, seen as they pass the socket.
//!
//! Frames that ask for work and carry no message are free in any number; that is what the attacks of the last years have in
//! common (CVE-2019-9511 to 9518, CVE-2023-44487 "rapid reset", CVE-2024-27316 and VU#421644 "CONTINUATION flood",
//! CVE-2025-8671 "MadeYouReset"). So each kind has an allowance a second, and honest traffic earns more of it: a response
//! earns a reset, a piece of data its window update. Who goes beyond is cut with GOAWAY.

use std::time::{Duration, Instant};

/// A kind of frame that a peer sends too many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// CONTINUATION frames of one head.
    Continuation,
    /// DATA frames without data, or with next to none.
    Data,
    /// Frames that made us reset streams.
    Errors,
    /// PING.
    Ping,
    /// PRIORITY, PRIORITY_UPDATE, and kinds that nobody knows.
    Priority,
    /// RST_STREAM.
    Resets,
    /// SETTINGS.
    Settings,
    /// WINDOW_UPDATE.
    WindowUpdate,
}

/// Most frames of a kind in one second, beyond what honest traffic earns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodLimits {
    /// CONTINUATION frames of one head, not a second.
    pub continuations: u32,
    /// Empty DATA frames, padding or not. Each DATA frame with data earns another.
    pub empty_data: u32,
    /// Streams reset by us for what the peer did.
    pub errors: u32,
    /// PING. Each HEADERS or DATA frame, either way, earns another: gRPC measures its bandwidth by pings.
    pub pings: u32,
    /// PRIORITY and unknown frames. Each HEADERS frame received earns two.
    pub priorities: u32,
    /// RST_STREAM received. Each response earns another: who cancels some of many requests is no attacker.
    pub resets: u32,
    /// SETTINGS.
    pub settings: u32,
    /// WINDOW_UPDATE. Each KiB of DATA sent earns another, and each frame of it two.
    pub window_updates: u32,
}

impl Default for FloodLimits {
    /// Ten times what any client we know sends, and a thousandth of what an attacker must.
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
    /// For a peer that we chose ourselves.
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

/// Most frames of a kind that can be earned ahead: what a client owes for a body of 4 MiB that it reads before it says so.
const CREDIT: i64 = 4096;

const SECOND: Duration = Duration::from_secs(1);

/// Frame types (RFC 9113 §6).
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PUSH_PROMISE: u8 = 5;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

/// END_STREAM of DATA and HEADERS; ACK of SETTINGS and PING.
const FLAG_FIRST: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// What is known of the frames of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    limits: FloodLimits,
    received: Walker,
    sent: Walker,
    since: Option<Instant>,
    /// Frames of this second by kind, less what was earned; below zero what is left of that.
    counts: [i64; 8],
    continuations: u32,
    /// Since when a head is incomplete.
    head_since: Option<Instant>,
    /// How many SETTINGS of the peer came.
    settings: u32,
    flood: Option<Flood>,
}

/// One frame as it passes.
struct Seen {
    kind: u8,
    flags: u8,
    len: u32,
    /// The error code of a RST_STREAM.
    code: u32,
}

impl Meter {
    /// `preface`: how many bytes come before the first frame from the peer and from us.
    pub(super) fn new(limits: FloodLimits, preface: (usize, usize)) -> Self {
        Self {
            limits,
            received: Walker::new(preface.0),
            sent: Walker::new(preface.1),
            since: None,
            counts: [0; 8],
            continuations: 0,
            head_since: None,
            settings: 0,
            flood: None,
        }
    }

    /// What the peer does too often, if anything.
    pub(super) const fn flood(&self) -> Option<Flood> {
        self.flood
    }

    /// How many SETTINGS of the peer came.
    pub(super) const fn settings(&self) -> u32 {
        self.settings
    }

    /// Since when the peer owes the rest of a head.
    pub(super) const fn head_since(&self) -> Option<Instant> {
        self.head_since
    }

    /// Looks at bytes from the peer.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        let mut now = None;
        let mut walker = std::mem::take(&mut self.received);
        walker.walk(bytes, |seen| self.received(seen, &mut now));
        self.received = walker;
    }

    /// Looks at bytes on their way to the peer.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let mut now = None;
        let mut walker = std::mem::take(&mut self.sent);
        walker.walk(bytes, |seen| self.sent(seen, &mut now));
        self.sent = walker;
    }

    fn received(&mut self, seen: &Seen, now: &mut Option<Instant>) {
        match seen.kind {
            kind::DATA if seen.len > 0 => {
                self.earn(Flood::Data, 1);
                self.earn(Flood::Ping, 1);
            }
            kind::DATA if seen.flags & FLAG_FIRST == 0 => {
                self.spend(Flood::Data, self.limits.empty_data, now);
            }
            kind::HEADERS => {
                self.earn(Flood::Ping, 1);
                self.earn(Flood::Priority, 2);
                self.continuations = 0;
                if seen.flags & END_HEADERS == 0 {
                    self.head_since = Some(Instant::now());
                }
            }
            kind::CONTINUATION => {
                self.continuations += 1;
                if self.continuations > self.limits.continuations {
                    self.flood = Some(Flood::Continuation);
                }
                if seen.flags & END_HEADERS != 0 {
                    self.head_since = None;
                }
            }
            kind::RST_STREAM => self.spend(Flood::Resets, self.limits.resets, now),
            kind::SETTINGS if seen.flags & FLAG_FIRST == 0 => {
                self.settings = self.settings.wrapping_add(1);
                self.spend(Flood::Settings, self.limits.settings, now);
            }
            kind::GOAWAY | kind::PUSH_PROMISE => self.spend(Flood::Settings, self.limits.settings, now),
            kind::PING if seen.flags & FLAG_FIRST == 0 => {
                self.spend(Flood::Ping, self.limits.pings, now);
            }
            kind::WINDOW_UPDATE => self.spend(Flood::WindowUpdate, self.limits.window_updates, now),
            kind::DATA | kind::SETTINGS | kind::PING => {}
            _ => self.spend(Flood::Priority, self.limits.priorities, now),
        }
    }

    fn sent(&mut self, seen: &Seen, now: &mut Option<Instant>) {
        match seen.kind {
            kind::DATA => {
                self.earn(Flood::Ping, 1);
                self.earn(Flood::WindowUpdate, 2 + seen.len / 1024);
            }
            kind::HEADERS => {
                self.earn(Flood::Ping, 1);
                self.earn(Flood::Resets, 1);
            }
            // NO_ERROR, CANCEL, and INTERNAL_ERROR for a response that an upstream cut, are ours to send: the rest is what the
            // peer made us do.
            kind::RST_STREAM if !matches!(seen.code, 0 | 2 | 8) => {
                self.spend(Flood::Errors, self.limits.errors, now);
            }
            _ => {}
        }
    }

    fn earn(&mut self, kind: Flood, n: u32) {
        let count = &mut self.counts[kind as usize];
        *count = (*count - i64::from(n)).max(-CREDIT);
    }

    fn spend(&mut self, kind: Flood, limit: u32, now: &mut Option<Instant>) {
        // The clock is read once for all the frames of one read, and only where one of them counts.
        let now = *now.get_or_insert_with(Instant::now);
        if self.since.is_none_or(|since| now.duration_since(since) >= SECOND) {
            self.since = Some(now);
            self.counts = self.counts.map(|count| count.min(0));
        }
        let count = &mut self.counts[kind as usize];
        *count += 1;
        if *count > i64::from(limit) {
            self.flood = Some(kind);
        }
    }
}

/// Finds the frame headers in a stream of bytes, however it is cut.
#[derive(Debug, Default)]
struct Walker {
    /// Bytes to pass over: the rest of a payload, or the preface.
    skip: usize,
    /// The beginning of a frame that is not whole yet: its header, of RST_STREAM the code, of padded DATA how much of it is.
    header: [u8; 13],
    have: usize,
}

const HEADER: usize = 9;

impl Walker {
    fn new(preface: usize) -> Self {
        Self { skip: preface, ..Self::default() }
    }

    fn walk(&mut self, mut bytes: &[u8], mut see: impl FnMut(&Seen)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return;
            }
            let want = self.want();
            let taken = (want - self.have).min(bytes.len());
            self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have < self.want() {
                continue;
            }
            let h = &self.header;
            let len = u32::from_be_bytes([0, h[0], h[1], h[2]]);
            let code = u32::from_be_bytes([h[9], h[10], h[11], h[12]]);
            // Padding is no data: a frame of nothing else is as empty as one of nothing.
            let padding = if self.is_padded() { 1 + u32::from(h[9]) } else { 0 };
            see(&Seen { kind: h[3], flags: h[4], len: len.saturating_sub(padding), code });
            self.skip = len as usize - (self.have - HEADER);
            self.have = 0;
        }
    }

    /// How much of the frame must be here to look at it.
    const fn want(&self) -> usize {
        // A RST_STREAM of another length is an error that the crate finds.
        let reset = self.have >= HEADER && self.header[3] == kind::RST_STREAM && self.header[2] == 4;
        if reset && self.header[0] == 0 && self.header[1] == 0 {
            HEADER + 4
        } else if self.is_padded() {
            HEADER + 1
        } else {
            HEADER
        }
    }

    /// Whether the frame is DATA with padding, whose length is its first byte.
    const fn is_padded(&self) -> bool {
        let [a, b, c, kind, flags, ..] = self.header;
        self.have >= HEADER && kind == kind::DATA && flags & PADDED != 0 && (a | b | c) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.extend_from_slice(payload);
        frame
    }

    fn meter() -> Meter {
        Meter::new(FloodLimits::default(), (3, 0))
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let wire = [
            b"PRI".to_vec(),
            frame(kind::SETTINGS, 0, &[0; 6]),
            frame(kind::RST_STREAM, 0, &8u32.to_be_bytes()),
            frame(kind::DATA, 0, b"hello"),
            frame(kind::PING, 0, &[0; 8]),
        ]
        .concat();
        for size in 1..wire.len() {
            let mut meter = meter();
            for piece in wire.chunks(size) {
                meter.receive(piece);
            }
            // The DATA has earned the PING.
            let count = |kind: Flood| meter.counts[kind as usize];
            assert_eq!(
                (count(Flood::Settings), count(Flood::Resets), count(Flood::Ping)),
                (1, 1, 0),
                "{size}"
            );
        }
    }

    #[test]
    fn a_flood_of_each_kind_is_noticed() {
        for (kind, flags, payload, flood) in [
            (kind::SETTINGS, 0, &[0; 6][..], Flood::Settings),
            (kind::PING, 0, &[0; 8], Flood::Ping),
            (kind::RST_STREAM, 0, &[0, 0, 0, 8], Flood::Resets),
            (2, 0, &[0; 5], Flood::Priority),
            (0x10, 0, &[0; 5], Flood::Priority),
            (kind::DATA, 0, &[], Flood::Data),
            (kind::DATA, PADDED, &[3, 0, 0, 0], Flood::Data),
            (kind::WINDOW_UPDATE, 0, &[0, 0, 0, 1], Flood::WindowUpdate),
            (kind::CONTINUATION, 0, &[0; 5], Flood::Continuation),
        ] {
            let mut meter = meter();
            meter.receive(b"PRI");
            let frame = frame(kind, flags, payload);
            let sent = (0..2000).take_while(|_| {
                meter.receive(&frame);
                meter.flood().is_none()
            });
            assert!(sent.count() < 1001, "{flood:?}");
            assert_eq!(meter.flood(), Some(flood));
        }
    }

    #[test]
    fn resets_that_the_peer_provokes_count_and_our_own_do_not() {
        let mut meter = meter();
        for _ in 0..1000 {
            meter.send(&frame(kind::RST_STREAM, 0, &8u32.to_be_bytes()));
            meter.send(&frame(kind::RST_STREAM, 0, &0u32.to_be_bytes()));
        }
        assert_eq!(meter.flood(), None);
        for _ in 0..101 {
            meter.send(&frame(kind::RST_STREAM, 0, &1u32.to_be_bytes()));
        }
        assert_eq!(meter.flood(), Some(Flood::Errors));
    }

    #[test]
    fn what_was_earned_before_counts_and_has_an_end() {
        let mut meter = meter();
        meter.receive(b"PRI");
        for _ in 0..1024 {
            meter.send(&frame(kind::DATA, 0, &[0; 4096])); // 4 MiB in one go, acknowledged by the piece
        }
        for _ in 0..2048 {
            meter.receive(&frame(kind::WINDOW_UPDATE, 0, &[0, 0, 16, 0]));
        }
        assert_eq!(meter.flood(), None);
        let more = (0..10_000).take_while(|_| {
            meter.receive(&frame(kind::WINDOW_UPDATE, 0, &[0, 0, 0, 1]));
            meter.flood().is_none()
        });
        assert!(more.count() < 4096);
    }

    #[test]
    fn honest_traffic_earns_what_it_spends() {
        let mut meter = meter();
        meter.receive(b"PRI");
        for _ in 0..10_000 {
            meter.send(&frame(kind::HEADERS, END_HEADERS, b"x"));
            meter.receive(&frame(kind::RST_STREAM, 0, &8u32.to_be_bytes())); // every request answered, then canceled
            meter.send(&frame(kind::DATA, 0, &[0; 4000]));
            meter.receive(&frame(kind::PING, 0, &[0; 8])); // gRPC's bandwidth probes
            meter.receive(&frame(kind::WINDOW_UPDATE, 0, &[0; 4]));
            meter.receive(&frame(kind::WINDOW_UPDATE, 0, &[0; 4]));
        }
        assert_eq!(meter.flood(), None);
    }
}
