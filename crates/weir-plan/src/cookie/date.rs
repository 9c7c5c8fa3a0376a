//! Dates of `Expires`, as leniently as RFC 6265 §5.1.1 demands.

use std::time::Duration;

/// The time since the Unix epoch; zero for earlier ones. `None` if this is no date.
pub(super) fn read(text: &[u8]) -> Option<Duration> {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    let is_delimiter = |b: &u8| matches!(b, 0x09 | 0x20..=0x2f | 0x3b..=0x40 | 0x5b..=0x60 | 0x7b..=0x7e);
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        if time.is_none() && time_of(token).is_some() {
            time = time_of(token);
        } else if day.is_none() && digits(token, 1, 2).is_some() {
            day = digits(token, 1, 2);
        } else if month.is_none()
            && let Some(found) =
                MONTHS.iter().position(|m| token.get(..3).is_some_and(|t| t.eq_ignore_ascii_case(m)))
        {
            month = i64::try_from(found + 1).ok();
        } else if year.is_none() && digits(token, 2, 4).is_some() {
            year = digits(token, 2, 4);
        }
    }
    let (time, day, month) = (time?, day?, month?);
    let year = match year? {
        year @ 70..=99 => year + 1900,
        year @ 0..=69 => year + 2000,
        year => year,
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=longest).contains(&day) || year < 1601 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + time;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// `8:49:37`, in seconds.
fn time_of(token: &[u8]) -> Option<i64> {
    let mut parts = token.splitn(3, |b| *b == b':');
    let (hour, minute) = (exact(parts.next()?)?, exact(parts.next()?)?);
    let second = digits(parts.next()?, 1, 2)?;
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

fn exact(token: &[u8]) -> Option<i64> {
    token.iter().all(u8::is_ascii_digit).then(|| digits(token, 1, 2)).flatten()
}

/// The number that a token begins with, of so many digits; what follows them is no digit.
fn digits(token: &[u8], least: usize, most: usize) -> Option<i64> {
    let count = token.iter().take_while(|b| b.is_ascii_digit()).count();
    if !(least..=most).contains(&count) {
        return None;
    }
    str::from_utf8(token.get(..count)?).ok()?.parse().ok()
}

/// Days since the Unix epoch, by the civil calendar (Howard Hinnant, 2013).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        for (text, want) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Wed, 09 Jun 2100 10:18:14 GMT", Some(4_116_219_494)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Fri, 31 Dec 1965 00:00:00 GMT", Some(0)),
            ("29 Feb 2024 00:00:00", Some(1_709_164_800)),
            ("29 Feb 2023 00:00:00", None),
            ("06 Nov 1994", None),
            ("08:49:37 1994", None),
            ("06 Nov 1994 24:00:00", None),
            ("06 Nov 1994 8:61:00", None),
            ("", None),
        ] {
            assert_eq!(read(text.as_bytes()), want.map(Duration::from_secs), "{text}");
        }
    }
}
