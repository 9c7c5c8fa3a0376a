//! The offset of an agent's clock from the coordinator's, estimated from the fastest round trip, as in NTP.

use crate::Time;
use std::time::Duration;

/// Exchanges of clocks before a run.
pub const EXCHANGES: u32 = 16;

/// What the exchanges with one agent found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    best: Option<(Duration, i128)>,
    /// Exchanges made.
    pub made: u32,
}

const fn nanos(time: Time) -> i128 {
    time.as_nanos() as i128
}

impl Skew {
    /// Takes an exchange: asked at `sent`, answered at `theirs` on the agent's clock, heard at `heard`.
    pub fn note(&mut self, sent: Time, theirs: Time, heard: Time) {
        let trip = heard.saturating_sub(sent);
        let middle = nanos(sent) + nanos(trip) / 2;
        let ahead = nanos(theirs) - middle;
        self.made += 1;
        if self.best.is_none_or(|(least, _)| trip < least) {
            self.best = Some((trip, ahead));
        }
    }

    /// The shortest round trip; the error of both conversions is at most half of it.
    pub fn round_trip(&self) -> Duration {
        self.best.map_or(Duration::ZERO, |(trip, _)| trip)
    }

    /// A moment on the agent's clock.
    pub fn theirs(&self, ours: Time) -> Time {
        shifted(ours, self.best.map_or(0, |(_, ahead)| ahead))
    }

    /// A moment on our clock.
    pub fn ours(&self, theirs: Time) -> Time {
        shifted(theirs, -self.best.map_or(0, |(_, ahead)| ahead))
    }
}

fn shifted(time: Time, by: i128) -> Time {
    Duration::from_nanos(u64::try_from((nanos(time) + by).max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_exchange_decides() {
        let ms = Duration::from_millis;
        let mut skew = Skew::default();
        // The agent's clock is 1,000 ms ahead. A slow answer misjudges that by half of its delay.
        skew.note(ms(0), ms(1_001), ms(40));
        assert_eq!(skew.theirs(ms(100)), ms(1_081));
        skew.note(ms(100), ms(1_101), ms(102));
        skew.note(ms(200), ms(1_230), ms(231));
        assert_eq!((skew.theirs(ms(300)), skew.ours(ms(1_300))), (ms(1_300), ms(300)));
        assert_eq!((skew.round_trip(), skew.made), (ms(2), 3));
        // A clock that began later than ours.
        let mut behind = Skew::default();
        behind.note(ms(5_000), ms(1), ms(5_002));
        assert_eq!((behind.theirs(ms(5_001)), behind.ours(ms(10))), (ms(1), ms(5_010)));
    }
}
