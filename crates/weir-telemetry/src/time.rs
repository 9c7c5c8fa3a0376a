//! The time of a log line: RFC 3339, UTC, milliseconds; all but the milliseconds kept for a second.

use std::time::{SystemTime, UNIX_EPOCH};

/// Formats times. `2026-03-01T12:00:00.000Z`: 24 bytes.
#[derive(Debug)]
pub(crate) struct Stamp {
    second: u64,
    text: [u8; 24],
}

impl Stamp {
    pub(crate) const fn new() -> Self {
        Self { second: 0, text: *b"1970-01-01T00:00:00.000Z" }
    }

    /// The text of `time`. Times before 1970 show as 1970, years after 9999 as their last four digits.
    pub(crate) fn text(&mut self, time: SystemTime) -> &[u8; 24] {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if since.as_secs() != self.second {
            self.second = since.as_secs();
            self.renew();
        }
        digits(&mut self.text[20..23], u64::from(since.subsec_millis()));
        &self.text
    }

    fn renew(&mut self) {
        let (year, month, day) = date(self.second / 86_400);
        let second = self.second % 86_400;
        digits(&mut self.text[0..4], year);
        digits(&mut self.text[5..7], month);
        digits(&mut self.text[8..10], day);
        digits(&mut self.text[11..13], second / 3600);
        digits(&mut self.text[14..16], second / 60 % 60);
        digits(&mut self.text[17..19], second % 60);
    }
}

/// A moment as logs write it: UTC, RFC 3339, to the millisecond.
pub fn timestamp(time: SystemTime) -> String {
    String::from_utf8_lossy(Stamp::new().text(time)).into_owned()
}

fn digits(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Year, month and day of a day since 1970, in the Gregorian calendar. Source: Howard Hinnant, *chrono-Compatible Low-Level Date
/// Algorithms*, `civil_from_days`: years begin in March, so that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_times() {
        let mut stamp = Stamp::new();
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (999, "1970-01-01T00:00:00.999Z"),
            (951_782_400_007, "2000-02-29T00:00:00.007Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599_123, "2024-12-31T23:59:59.123Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_millis(ms);
            assert_eq!(std::str::from_utf8(stamp.text(time)).unwrap(), text);
        }
        assert_eq!(stamp.text(UNIX_EPOCH - Duration::from_secs(9)), b"1970-01-01T00:00:00.000Z");
    }
}
