//! Moments and lengths of time: RFC 3339 and Go's durations, in UTC or at a fixed distance from it. No clock.

use std::io::Write;

const DAY: i64 = 86_400;
const SECOND: i64 = 1_000_000_000;
/// 0001-01-01T00:00:00Z, the first second that CEL knows.
const FIRST: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z, the last one.
const LAST: i64 = 253_402_300_799;

/// A moment between the years 1 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
}

/// The parts of a moment.
pub(crate) struct Parts {
    pub(crate) year: i64,
    /// From 0.
    pub(crate) month: i64,
    /// From 0.
    pub(crate) day: i64,
    /// From 0, which is Sunday.
    pub(crate) weekday: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    pub(crate) second_of_day: i64,
    pub(crate) nanos: u32,
}

impl Timestamp {
    /// `nanos` after `seconds` since 1970, UTC; none outside the years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        ((FIRST..=LAST).contains(&seconds) && i64::from(nanos) < SECOND).then_some(Self { seconds, nanos })
    }

    /// Whole seconds since 1970.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// This moment and `nanos` more; none outside the years 1 to 9999.
    pub(crate) fn plus(self, nanos: i64) -> Option<Self> {
        let sum = i64::from(self.nanos) + nanos % SECOND;
        let seconds = self.seconds.checked_add(nanos / SECOND)?.checked_add(sum.div_euclid(SECOND))?;
        Self::new(seconds, u32::try_from(sum.rem_euclid(SECOND)).ok()?)
    }

    /// Nanoseconds since `earlier`; the end of the range where there are more.
    pub(crate) fn since(self, earlier: Self) -> i64 {
        let seconds = self.seconds - earlier.seconds;
        seconds.saturating_mul(SECOND).saturating_add(i64::from(self.nanos) - i64::from(earlier.nanos))
    }

    /// `2009-02-13T23:31:30.5Z`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let number = |at: usize, digits: usize| decimal(text.get(at..at + digits)?);
        let sign = |at: usize, signs: &[u8]| text.get(at).is_some_and(|b| signs.contains(b));
        let is_formed = sign(4, b"-") && sign(7, b"-") && sign(10, b"Tt") && sign(13, b":") && sign(16, b":");
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        let is_in_range = (1..=12).contains(&month) && day >= 1 && hour < 24 && minute < 60 && second < 60;
        if !is_formed || !is_in_range || day > days_of(year, month) {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0;
        if sign(at, b".") {
            let digits = text[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
            let kept = digits.min(9);
            nanos = number(at + 1, kept)? * 10_i64.pow(9 - u32::try_from(kept).ok()?);
            at += 1 + digits;
        }
        let offset = match text.get(at..)? {
            b"Z" | b"z" => 0,
            zone => offset(zone)?,
        };
        let days = days_since_1970(year, month, day);
        let seconds = days * DAY + hour * 3_600 + minute * 60 + second - offset;
        Self::new(seconds, u32::try_from(nanos).ok()?)
    }

    /// Appends it as RFC 3339 has it, in UTC.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let parts = self.parts(0);
        let (hour, minute, second) =
            (parts.second_of_day / 3_600, parts.second_of_day / 60 % 60, parts.second_of_day % 60);
        // Writing into a Vec cannot fail.
        let _ = write!(
            out,
            "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}",
            parts.year,
            parts.month + 1,
            parts.day + 1
        );
        write_fraction(self.nanos, out);
        out.push(b'Z');
    }

    /// Its parts, `offset` seconds east of Greenwich.
    pub(crate) fn parts(self, offset: i64) -> Parts {
        let local = self.seconds + offset;
        let days = local.div_euclid(DAY);
        // Howard Hinnant, chrono-Compatible Low-Level Date Algorithms, 2013: years begin in March.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_from_march + 2) / 153;
        let day = day_from_march - (153 * month_from_march + 2) / 5;
        let month = (month_from_march + 2) % 12;
        let year = era * 400 + year_of_era + i64::from(month < 2);
        Parts {
            year,
            month,
            day,
            weekday: (days + 4).rem_euclid(7),
            day_of_year: days - days_since_1970(year, 1, 1),
            second_of_day: local.rem_euclid(DAY),
            nanos: self.nanos,
        }
    }
}

/// Seconds east of Greenwich: `+02:00`, `-02:30`, `02:00`, `UTC`, `Z`.
pub(crate) fn offset(zone: &[u8]) -> Option<i64> {
    if matches!(zone, b"UTC" | b"Z" | b"") {
        return Some(0);
    }
    let (sign, zone) = match zone {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, zone),
    };
    let (hour, minute) = (decimal(zone.get(..2)?)?, decimal(zone.get(3..)?)?);
    let is_formed = zone.len() == 5 && zone.get(2) == Some(&b':') && hour < 24 && minute < 60;
    is_formed.then_some(sign * (hour * 3_600 + minute * 60))
}

/// Nanoseconds of `1h30m`, `1.5s`, `-250ms`: numbers with units, as in Go.
pub(crate) fn parse_duration(text: &[u8]) -> Option<i64> {
    let text = str::from_utf8(text).ok()?;
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut sum = 0_i128;
    while !rest.is_empty() || sum == 0 {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let nanos: i128 = match &tail[..unit] {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if number.len() > 20 || number == "." || number.is_empty() || fraction.contains('.') {
            return None;
        }
        let part = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<i128>().ok() };
        sum = sum.saturating_add(part(whole)? * nanos);
        sum = sum.saturating_add(part(fraction)? * nanos / 10_i128.pow(u32::try_from(fraction.len()).ok()?));
        rest = &tail[unit..];
        if rest.is_empty() {
            break;
        }
    }
    i64::try_from(sum.saturating_mul(sign)).ok()
}

/// Appends a duration as CEL has it: seconds, such as `1.5s`.
pub(crate) fn write_duration(nanos: i64, out: &mut Vec<u8>) {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let _ = write!(out, "{sign}{seconds}");
    write_fraction(u32::try_from(rest).unwrap_or_default(), out);
    out.push(b's');
}

fn write_fraction(nanos: u32, out: &mut Vec<u8>) {
    if nanos > 0 {
        let digits = format!("{nanos:09}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

/// A number of digits only, at most 18 of them.
fn decimal(digits: &[u8]) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |sum, b| sum * 10 + i64::from(b - b'0')))
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}
