//! Counts what causes work but carries no message, by kind, as `h2/flood.rs` of weir-wire does for HTTP/2.
//!
//! Each kind has an allowance per second, and honest traffic earns more. A peer that exceeds its allowance gets
//! H3_EXCESSIVE_LOAD (RFC 9114 §10.5). Floods of packets and connection ids are the transport's to count.

use std::time::{Duration, Instant};

/// What a peer can send too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// DATA frames without data.
    Data,
    /// Things that made us reset streams, and cancellations of streams that we know nothing about.
    Errors,
    /// Instructions of the encoder stream.
    Insertions,
    /// PRIORITY_UPDATE, and frames of unknown types.
    Priority,
    /// CANCEL_PUSH, MAX_PUSH_ID and GOAWAY.
    Push,
    /// Streams that the peer reset.
    Resets,
    /// Unidirectional streams of unknown types.
    Streams,
}

/// Most of a kind per second, beyond what honest traffic earns. Names that HTTP/2 has too mean the same there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodLimits {
    /// Empty DATA frames. Each DATA frame with data earns one more.
    pub empty_data: u32,
    /// Streams that we reset because of what the peer did.
    pub errors: u32,
    /// Instructions of the encoder stream: an instruction of one byte copies an entry as large as the table. Each head
    /// earns 32 more.
    pub insertions: u32,
    /// PRIORITY_UPDATE and unknown frames. Each received head earns two more.
    pub priorities: u32,
    /// CANCEL_PUSH, MAX_PUSH_ID and GOAWAY: nobody needs many.
    pub pushes: u32,
    /// Streams that the peer reset. Each response earns one more.
    pub resets: u32,
    /// Unidirectional streams of unknown types.
    pub streams: u32,
}

impl Default for FloodLimits {
    /// Those of HTTP/2 where it has them.
    fn default() -> Self {
        Self {
            empty_data: 100,
            errors: 100,
            insertions: 1000,
            priorities: 500,
            pushes: 50,
            resets: 200,
            streams: 50,
        }
    }
}

impl FloodLimits {
    /// No limits.
    pub const NONE: Self = Self {
        empty_data: u32::MAX,
        errors: u32::MAX,
        insertions: u32::MAX,
        priorities: u32::MAX,
        pushes: u32::MAX,
        resets: u32::MAX,
        streams: u32::MAX,
    };

    const fn of(&self, kind: Flood) -> u32 {
        match kind {
            Flood::Data => self.empty_data,
            Flood::Errors => self.errors,
            Flood::Insertions => self.insertions,
            Flood::Priority => self.priorities,
            Flood::Push => self.pushes,
            Flood::Resets => self.resets,
            Flood::Streams => self.streams,
        }
    }
}

/// Most of a kind that can be earned in advance.
const CREDIT: i64 = 4096;

const SECOND: Duration = Duration::from_secs(1);

/// The counts of one connection.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: FloodLimits,
    since: Option<Instant>,
    /// The time of what is received now.
    now: Option<Instant>,
    /// This second's counts by kind, minus what was earned; a negative count is unused credit.
    counts: [i64; 7],
    flood: Option<Flood>,
}

impl Meter {
    pub(crate) const fn new(limits: FloodLimits) -> Self {
        Self { limits, since: None, now: None, counts: [0; 7], flood: None }
    }

    /// The kind that the peer sends too often, if any.
    pub(crate) const fn flood(&self) -> Option<Flood> {
        self.flood
    }

    /// Says what time it is.
    pub(crate) const fn at(&mut self, now: Instant) {
        self.now = Some(now);
    }

    pub(crate) fn earn(&mut self, kind: Flood, n: u32) {
        let count = &mut self.counts[kind as usize];
        *count = (*count - i64::from(n)).max(-CREDIT);
    }

    pub(crate) fn spend(&mut self, kind: Flood, n: u32) {
        if let Some(now) = self.now
            && self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND)
        {
            self.since = Some(now);
            self.counts = self.counts.map(|count| count.min(0));
        }
        let count = &mut self.counts[kind as usize];
        *count += i64::from(n);
        if *count > i64::from(self.limits.of(kind)) {
            self.flood.get_or_insert(kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowances_are_per_second_and_earned() {
        let begin = Instant::now();
        for kind in
            [Flood::Data, Flood::Errors, Flood::Insertions, Flood::Priority, Flood::Push, Flood::Resets]
        {
            let most = FloodLimits::default().of(kind);
            let mut meter = Meter::new(FloodLimits::default());
            for second in 0..3 {
                meter.at(begin + second * SECOND);
                meter.spend(kind, most);
                assert_eq!(meter.flood(), None, "{kind:?}");
            }
            meter.earn(kind, 2);
            meter.spend(kind, 2);
            assert_eq!(meter.flood(), None, "{kind:?}");
            meter.spend(kind, 1);
            assert_eq!(meter.flood(), Some(kind));
        }
        let mut meter = Meter::new(FloodLimits::default());
        meter.at(begin);
        (0..10).for_each(|_| meter.earn(Flood::Push, 1_000_000));
        meter.spend(Flood::Push, CREDIT as u32 + FloodLimits::default().pushes + 1);
        assert_eq!(meter.flood(), Some(Flood::Push), "credit is bounded");
    }
}
