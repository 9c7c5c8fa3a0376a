//! The time of a log line: RFC 3339 (UTC, milliseconds), or the format of Apache's logs. Everything but the
//! milliseconds is cached for a second.

use std::time::{SystemTime, UNIX_EPOCH};

/// Formats times.
#[derive(Debug)]
pub(crate) struct Stamp {
    second: u64,
    text: [u8; 24],
    clf_second: u64,
    clf: [u8; 26],
}

impl Stamp {
    pub(crate) const fn new() -> Self {
        Self {
            second: 0,
            text: *b"1970-01-01T00:00:00.000Z",
            clf_second: 0,
            clf: *b"01/Jan/1970:00:00:00 +0000",
        }
    }

    /// `2026-03-01T12:00:00.000Z`: 24 bytes. Times before 1970 appear as 1970, years after 9999 as their last four
    /// digits.
    pub(crate) fn text(&mut self, time: SystemTime) -> &[u8; 24] {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if since.as_secs() != self.second {
            self.second = since.as_secs();
            self.renew();
        }
        digits(&mut self.text[20..23], u64::from(since.subsec_millis()));
        &self.text
    }

    /// `01/Mar/2026:12:00:00 +0000`, the time of the Common Log Format.
    pub(crate) fn clf(&mut self, time: SystemTime) -> &[u8; 26] {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if since != self.clf_second {
            self.clf_second = since;
            let (year, month, day) = date(since / 86_400);
            digits(&mut self.clf[0..2], day);
            self.clf[3..6].copy_from_slice(MONTHS[(month - 1) as usize % 12]);
            digits(&mut self.clf[7..11], year);
            clock(&mut self.clf[12..20], since);
        }
        &self.clf
    }

    fn renew(&mut self) {
        let (year, month, day) = date(self.second / 86_400);
        digits(&mut self.text[0..4], year);
        digits(&mut self.text[5..7], month);
        digits(&mut self.text[8..10], day);
        clock(&mut self.text[11..19], self.second);
    }
}

/// A time in the format of log lines: UTC, RFC 3339, in milliseconds.
pub fn timestamp(time: SystemTime) -> String {
    String::from_utf8_lossy(Stamp::new().text(time)).into_owned()
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Writes `12:00:00` into eight bytes that already contain the colons.
fn clock(out: &mut [u8], second: u64) {
    let second = second % 86_400;
    digits(&mut out[0..2], second / 3600);
    digits(&mut out[3..5], second / 60 % 60);
    digits(&mut out[6..8], second % 60);
}

fn digits(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Year, month and day of a day since 1970, in the Gregorian calendar. Source: Howard Hinnant, *chrono-Compatible
/// Low-Level Date Algorithms*, `civil_from_days`: years start in March, so that the leap day is the last day of its
/// year.
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
        assert_eq!(stamp.clf(UNIX_EPOCH), b"01/Jan/1970:00:00:00 +0000");
        let leap = UNIX_EPOCH + Duration::from_secs(951_782_400 + 3_723);
        assert_eq!(stamp.clf(leap), b"29/Feb/2000:01:02:03 +0000");
        assert_eq!(stamp.clf(UNIX_EPOCH + Duration::from_secs(1_735_689_599)), b"31/Dec/2024:23:59:59 +0000");
    }
}
