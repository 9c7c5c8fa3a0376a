//! Text forms of messages: times, durations, field masks.
//!
//! Source: RFC 3339, and the comments of google/protobuf/{timestamp,duration,field_mask}.proto.

/// From 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The longest duration: 10,000 years.
const DURATION: i64 = 315_576_000_000;

const DAY: i64 = 86_400;

/// A time in RFC 3339 notation; `None` if it is out of range.
pub(crate) fn write_timestamp(seconds: i64, nanos: i32) -> Option<String> {
    if !SECONDS.contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return None;
    }
    let (year, month, day) = date(seconds.div_euclid(DAY));
    let of_day = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let fraction = fraction(nanos);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// A duration in text form: `1.5s`.
pub(crate) fn write_duration(seconds: i64, nanos: i32) -> Option<String> {
    let one_sign = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
    if seconds.unsigned_abs() > DURATION.unsigned_abs() || nanos.unsigned_abs() > 999_999_999 || !one_sign {
        return None;
    }
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let fraction = fraction(nanos.abs());
    Some(format!("{sign}{}{fraction}s", seconds.unsigned_abs()))
}

/// Nothing, or three, six or nine digits.
fn fraction(nanos: i32) -> String {
    match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1000 == 0 => format!(".{:06}", n / 1000),
        n => format!(".{n:09}"),
    }
}

/// Parses the seconds and nanoseconds of an RFC 3339 time.
pub(crate) fn read_timestamp(text: &str) -> Option<(i64, i32)> {
    let bytes = text.as_bytes();
    let (date_part, rest) = bytes.split_at_checked(10)?;
    let [y @ .., b'-', m1, m2, b'-', d1, d2] = date_part else { return None };
    let (year, month, day) = (digits(y)?, digits(&[*m1, *m2])?, digits(&[*d1, *d2])?);
    let (time, rest) = rest.split_at_checked(9)?;
    let [b'T' | b't', h1, h2, b':', i1, i2, b':', s1, s2] = time else { return None };
    let (hour, minute, second) = (digits(&[*h1, *h2])?, digits(&[*i1, *i2])?, digits(&[*s1, *s2])?);
    let (nanos, rest) = match rest {
        [b'.', after @ ..] => {
            let count = after.iter().take_while(|b| b.is_ascii_digit()).count();
            let (fraction, rest) = after.split_at_checked(count)?;
            (read_fraction(fraction)?, rest)
        }
        _ => (0, rest),
    };
    let offset = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 3600 + minutes * 60;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let valid = (1..=12).contains(&month) && (1..=days(year, month)).contains(&day) && year > 0;
    if !valid || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = from_date(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    SECONDS.contains(&seconds).then_some((seconds, nanos))
}

/// Parses the seconds and nanoseconds of `1.5s`.
pub(crate) fn read_duration(text: &str) -> Option<(i64, i32)> {
    let text = text.strip_suffix('s')?;
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let seconds = digits(whole.as_bytes()).filter(|s| *s <= DURATION)?;
    let nanos = fraction.map_or(Some(0), |f| read_fraction(f.as_bytes()))?;
    if seconds == DURATION && nanos > 0 {
        return None;
    }
    Some(if negative { (-seconds, -nanos) } else { (seconds, nanos) })
}

/// One to nine digits after the point, in billionths.
fn read_fraction(text: &[u8]) -> Option<i32> {
    let (1..=9, Some(number)) = (text.len(), digits(text)) else { return None };
    let scale = 10i64.checked_pow(9 - u32::try_from(text.len()).ok()?)?;
    i32::try_from(number * scale).ok()
}

/// A number of at most 12 digits.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 12 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
}

const fn days(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date. Years start in March here, so that the leap day is the last day of its year.
const fn from_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day since 1970-01-01: the inverse of `from_date`.
const fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + (month <= 2) as i64, month, day)
}

/// `a_b.c` as `aB.c`; `None` if the conversion is not reversible.
pub(crate) fn camel(path: &str) -> Option<String> {
    let mut camel = String::with_capacity(path.len());
    let mut raise = false;
    for c in path.chars() {
        match c {
            '_' if raise => return None,
            '_' => raise = true,
            c if c.is_ascii_uppercase() => return None,
            c if raise && !c.is_ascii_lowercase() => return None,
            c if raise => {
                camel.push(c.to_ascii_uppercase());
                raise = false;
            }
            c => camel.push(c),
        }
    }
    (!raise).then_some(camel)
}

/// `aB.c` as `a_b.c`; `None` if it is not such a path.
pub(crate) fn snake(path: &str) -> Option<String> {
    let mut snake = String::with_capacity(path.len() + 4);
    for c in path.chars() {
        match c {
            '_' => return None,
            c if c.is_ascii_uppercase() => {
                snake.push('_');
                snake.push(c.to_ascii_lowercase());
            }
            c => snake.push(c),
        }
    }
    Some(snake)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("1972-01-01T10:00:20.021Z", 63_108_020, 21_000_000),
            ("2000-02-29T23:59:59.000001Z", 951_868_799, 1000),
            ("1969-12-31T23:59:59.999999999Z", -1, 999_999_999),
            ("0001-01-01T00:00:00Z", *SECONDS.start(), 0),
            ("9999-12-31T23:59:59Z", *SECONDS.end(), 0),
        ] {
            assert_eq!(read_timestamp(text), Some((seconds, nanos)), "{text}");
            assert_eq!(write_timestamp(seconds, nanos).as_deref(), Some(text));
        }
        for (text, seconds) in
            [("1970-01-01T02:00:00+02:00", 0), ("1969-12-31T19:00:00-05:00", 0), ("1970-01-01t00:00:01z", 1)]
        {
            assert_eq!(read_timestamp(text), Some((seconds, 0)), "{text}");
        }
        for bad in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:61Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01 00:00:00Z",
            "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:59-01:00",
            "1970-01-01T00:00:00+24:00",
            "197a-01-01T00:00:00Z",
            "1970-01-01T00:00:00Zx",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}T00:00:00Z",
        ] {
            assert_eq!(read_timestamp(bad), None, "{bad}");
        }
        assert_eq!(write_timestamp(0, -1), None);
        assert_eq!(write_timestamp(SECONDS.end() + 1, 0), None);
    }

    #[test]
    fn every_day_there_and_back() {
        for day in (SECONDS.start() / DAY..=SECONDS.end() / DAY).step_by(97) {
            let (y, m, d) = date(day);
            assert_eq!(from_date(y, m, d), day, "{y}-{m}-{d}");
            assert!((1..=days(y, m)).contains(&d));
        }
    }

    #[test]
    fn durations() {
        for (text, seconds, nanos) in [
            ("0s", 0, 0),
            ("1.500s", 1, 500_000_000),
            ("-0.000001s", 0, -1000),
            ("-3s", -3, 0),
            ("315576000000s", DURATION, 0),
        ] {
            assert_eq!(read_duration(text), Some((seconds, nanos)), "{text}");
            assert_eq!(write_duration(seconds, nanos).as_deref(), Some(text));
        }
        assert_eq!(read_duration("1.5s"), Some((1, 500_000_000)));
        for bad in [
            "",
            "s",
            "1",
            "1.s",
            ".5s",
            "1.0000000000s",
            "--1s",
            "1.5",
            "315576000001s",
            "315576000000.1s",
            "+1s",
        ] {
            assert_eq!(read_duration(bad), None, "{bad}");
        }
        assert_eq!(write_duration(1, -1), None);
    }

    #[test]
    fn masks() {
        for (snaked, cameled) in [("a_b.c", "aB.c"), ("plain", "plain"), ("a.b_c_d", "a.bCD")] {
            assert_eq!(camel(snaked).as_deref(), Some(cameled));
            assert_eq!(snake(cameled).as_deref(), Some(snaked));
        }
        for bad in ["a__b", "aB", "a_", "a_1"] {
            assert_eq!(camel(bad), None, "{bad}");
        }
        assert_eq!(snake("a_b"), None);
    }
}
