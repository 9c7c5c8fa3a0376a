//! Times as other tools write them.

/// RFC 3339 as nanoseconds since 1970 UTC: `2026-11-28T18:03:54.123456789Z`, or with an offset such as `+01:00`.
pub(super) fn rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = (time.get(..zone)?, time.get(zone..)?);
    let mut parts = clock.split(':');
    let (hour, minute) = (parts.next()?.parse::<i64>().ok()?, parts.next()?.parse::<i64>().ok()?);
    let second = parts.next()?;
    let (second, part) = second.split_once('.').unwrap_or((second, ""));
    let second = second.parse::<i64>().ok()?;
    let nanos = format!("{part:0<9}").get(..9)?.parse::<i64>().ok()?;
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let is_good = (1970..2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second) // 60 is a leap second
        && offset.abs() < 24 * 60;
    if !is_good {
        return None;
    }
    // Years start in March, so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second;
    u64::try_from(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?).ok()
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn a_time_with_its_offset_is_a_moment() {
        let at = 1_795_284_234_000_000_000;
        for (text, want) in [
            ("2026-11-21T18:03:54Z", Some(at)),
            ("2026-11-21T19:03:54.5+01:00", Some(at + 500_000_000)),
            ("2026-11-21T12:33:54.000000001-05:30", Some(at + 1)),
            ("2000-02-29T00:00:00Z", Some(951_782_400_000_000_000)),
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-21T18:03:54", None),
            ("2026-13-21T18:03:54Z", None),
            ("9999999999999-01-01T00:00:00Z", None),
            ("é", None),
            ("2026-11-21T18:03:9223372036854775807Z", None),
            ("2026-11-21T18:03:61Z", None),
        ] {
            assert_eq!(rfc3339(text), want, "{text}");
        }
    }
}
