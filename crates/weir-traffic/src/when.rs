//! Parses the timestamps of logs into nanoseconds since 1970 UTC.

/// One second.
const S: i128 = 1_000_000_000;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `2026-11-24T06:40:56.423Z`, also with an offset such as `+02:00` and up to nine decimals.
pub fn rfc3339(text: &str) -> Option<i128> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    Some(moment(year, month, day, clock(time)?)? - offset(zone)?)
}

/// `10/Oct/2000:13:55:36 -0700`.
pub(crate) fn common(text: &str) -> Option<i128> {
    let (time, zone) = text.split_once(' ')?;
    let (date, time) = time.split_once(':')?;
    let mut date = date.split('/');
    let (day, month, year) = (date.next()?.parse().ok()?, date.next()?, date.next()?.parse().ok()?);
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    Some(moment(year, month, day, clock(time)?)? - offset(zone)?)
}

/// Seconds with decimals, such as `1732430456.423`.
pub(crate) fn seconds(text: &str) -> Option<i128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || whole.len() > 20 || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(whole.parse::<i128>().ok()? * S + decimals(part)?)
}

/// `13:55:36.5` in nanoseconds.
fn clock(text: &str) -> Option<i128> {
    let mut parts = text.split(':');
    let (h, m, s) = (parts.next()?, parts.next()?, parts.next()?);
    let (s, part) = s.split_once('.').unwrap_or((s, ""));
    let [h, m, s] = [h, m, s].map(|n| n.parse::<u32>().ok());
    let (h, m, s) = (h.filter(|h| *h < 24)?, m.filter(|m| *m < 60)?, s.filter(|s| *s <= 60)?);
    parts.next().is_none().then_some(())?;
    Some(i128::from(h * 3600 + m * 60 + s) * S + decimals(part)?)
}

/// The nanoseconds of up to nine decimals; further ones are cut.
fn decimals(text: &str) -> Option<i128> {
    text.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    let digits = text.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some(digits.fold(0, |n, digit| n * 10 + i128::from(digit - b'0')))
}

/// `Z`, `+02:00`, `-0700` in nanoseconds.
fn offset(text: &str) -> Option<i128> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = text.get(1..)?.chars().filter(|c| *c != ':').collect();
    (digits.len() == 4).then_some(())?;
    let n: i128 = digits.parse().ok()?;
    Some(sign * (n / 100 * 3600 + n % 100 * 60) * S)
}

/// A day of the Gregorian calendar and a time in it.
fn moment(year: i64, month: i64, day: i64, clock: i128) -> Option<i128> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years start in March, so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(i128::from(days) * 86_400 * S + clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_their_zones() {
        for (read, text, want) in [
            (rfc3339 as fn(&str) -> Option<i128>, "1970-01-01T00:00:00Z", Some(0)),
            (rfc3339, "2026-11-24T06:40:56.423Z", Some(1_795_502_456_423_000_000)),
            (rfc3339, "2026-11-24T08:40:56.423+02:00", Some(1_795_502_456_423_000_000)),
            (rfc3339, "2000-02-29T00:00:00-00:30", Some(951_784_200 * S)),
            (rfc3339, "2026-13-24T06:40:56Z", None),
            (rfc3339, "2026-11-24T25:40:56Z", None),
            (rfc3339, "2026-11-24T06:40:56", None),
            (common, "10/Oct/2000:13:55:36 -0700", Some(971_211_336 * S)),
            (common, "10/Okt/2000:13:55:36 -0700", None),
            (seconds, "1732430456.423", Some(1_732_430_456_423_000_000)),
            (seconds, "1732430456", Some(1_732_430_456 * S)),
            (seconds, "-5", None),
            (seconds, "1e9", None),
        ] {
            assert_eq!(read(text), want, "{text}");
        }
    }
}
