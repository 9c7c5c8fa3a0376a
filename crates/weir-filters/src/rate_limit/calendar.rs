//! Days and months in UTC, for quotas.
//!
//! A quota is a limit whose clock stands still at the beginning of its day or month, so nothing comes back before the
//! next one begins. `gcra` needs no other change for it.

use super::gcra::{self, SECOND, Time};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// The unit of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Day,
    Month,
}

/// The current day or month. Read without a lock; the first request of the next span takes the lock.
#[derive(Debug)]
pub(super) struct Calendar {
    unit: Unit,
    /// The beginning of the current span, on the clock of this process.
    begins: AtomicU64,
    ends: AtomicU64,
    /// The beginning of the current span, in seconds since 1970.
    began: Mutex<Option<u64>>,
}

impl Unit {
    /// Beginning and end of the span that contains a moment, in seconds since 1970.
    pub(super) fn around(self, unix: u64) -> (u64, u64) {
        let day = unix / DAY;
        match self {
            Self::Day => (day * DAY, (day + 1) * DAY),
            Self::Month => {
                let (begins, ends) = month_around(day);
                (begins * DAY, ends * DAY)
            }
        }
    }

    /// The shortest length of such a span.
    pub(super) const fn shortest(self) -> Duration {
        match self {
            Self::Day => Duration::from_secs(DAY),
            Self::Month => Duration::from_secs(28 * DAY),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// The first day of the month that contains a day, and of the next month; days since 1970.
///
/// Uses the civil calendar with years that begin in March, so that the leap day is the last day (Hinnant:
/// chrono-Compatible Low-Level Date Algorithms, 2013).
fn month_around(day: u64) -> (u64, u64) {
    const ERA: u64 = 146_097; // days in 400 years
    let shifted = day + 719_468; // since the first of March of the year 0
    let of_era = shifted % ERA;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let begins = |month: u64| (153 * month + 2) / 5;
    let first = day - (of_year - begins(month));
    // March has number 0. January and February, whose length depends on the next year, are 10 and 11.
    let length = match month {
        11 => {
            let next = year + 1; // the civil year
            let leap = next.is_multiple_of(4) && (!next.is_multiple_of(100) || next.is_multiple_of(400));
            28 + u64::from(leap)
        }
        month => begins(month + 1) - begins(month),
    };
    (first, first + length)
}

impl Calendar {
    pub(super) fn new(unit: Unit) -> Self {
        Self { unit, begins: AtomicU64::new(0), ends: AtomicU64::new(0), began: Mutex::new(None) }
    }

    /// When the current span began, on the clock of this process, and when it ends.
    pub(super) fn span(&self, now: Time) -> (Time, Time) {
        let ends = self.ends.load(Relaxed);
        if now < ends {
            return (self.begins.load(Relaxed), ends);
        }
        self.turn(now, unix_now())
    }

    /// When the current span began, in seconds since 1970.
    pub(super) fn began(&self) -> u64 {
        self.unit.around(unix_now().as_secs()).0
    }

    /// Begins the next span, or continues this one if the two clocks disagree about its end.
    fn turn(&self, now: Time, unix: Duration) -> (Time, Time) {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let (begins, ends) = self.unit.around(unix.as_secs());
        let left = Duration::from_secs(ends).saturating_sub(unix);
        let ends = now + time(left);
        if *began != Some(begins) {
            *began = Some(begins);
            let passed = unix.saturating_sub(Duration::from_secs(begins));
            self.begins.store(now.saturating_sub(time(passed)), Relaxed);
        }
        self.ends.store(ends, Relaxed);
        (self.begins.load(Relaxed), ends)
    }
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn time(duration: Duration) -> Time {
    duration.as_secs() * SECOND + u64::from(duration.subsec_nanos()) * 16
}

// A month is shorter than the clock's first reading, so a span never begins before the clock does.
const _: () = assert!(gcra::ORIGIN > 31 * DAY * SECOND);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_those_of_the_calendar() {
        for (day, first, next) in [
            (0, 0, 31),               // 1 January 1970
            (58, 31, 59),             // 28 February 1970
            (59, 59, 90),             // 1 March 1970
            (11_016, 10_988, 11_017), // 29 February 2000
            (20_778, 20_758, 20_788), // 21 November 2026
        ] {
            assert_eq!(month_around(day), (first, next), "{day}");
        }
    }

    #[test]
    fn months_follow_each_other_for_400_years() {
        let (mut day, mut lengths) = (0, Vec::new());
        while lengths.len() < 4800 {
            let (begins, ends) = month_around(day);
            assert_eq!(begins, day);
            assert_eq!(month_around(ends - 1), (begins, ends));
            lengths.push(ends - begins);
            day = ends;
        }
        assert_eq!(lengths[..14], [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 28]);
        assert_eq!(
            (lengths[25], lengths[30 * 12 + 1], lengths[130 * 12 + 1]),
            (29, 29, 28),
            "1972, 2000, 2100"
        );
        assert_eq!(day, 146_097, "400 years have so many days");
    }

    #[test]
    fn a_span_ends_by_the_wall_clock() {
        let calendar = Calendar::new(Unit::Day);
        let now = gcra::ORIGIN;
        let hour = 3600 * SECOND;
        let noon = Duration::from_secs(20_000 * DAY + DAY / 2);
        assert_eq!(calendar.turn(now, noon), (now - 12 * hour, now + 12 * hour));
        // Twelve hours on this clock, ten seconds less on the wall clock: the day continues, from the same beginning.
        let late = now + 12 * hour;
        let evening = Duration::from_secs(20_001 * DAY - 10);
        assert_eq!(calendar.turn(late, evening), (now - 12 * hour, late + 10 * SECOND));
        let next = late + 10 * SECOND;
        assert_eq!(calendar.turn(next, Duration::from_secs(20_001 * DAY)), (next, next + 24 * hour));
    }
}
