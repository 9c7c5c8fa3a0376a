//! Durations and sizes as Weir writes them: `250ms`, `60s`, `1MiB`.

/// A duration in the largest unit that keeps it whole, up to hours. Minutes only from ten on, because `60s` reads
/// better than `1m` beside other seconds.
#[must_use]
pub fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0 => "0s".to_owned(),
        ms if ms % 1000 != 0 => format!("{ms}ms"),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 && ms >= 600_000 => format!("{}m", ms / 60_000),
        ms => format!("{}s", ms / 1000),
    }
}

/// A size in the largest binary unit that keeps it whole.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    match fits {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

/// A number with units behind it, such as `1h 30m` or `10s`, in milliseconds. A number without one counts `bare`
/// milliseconds. Units: `ms`, `s`, `m`, `h`, `d`, `w`, `M` (30 days), `y` (365 days); and Go's `us` and fractions.
#[must_use]
pub fn read_duration(text: &str, bare: u64) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let unit = behind.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let each: f64 = match unit {
            "" => bare as f64,
            "us" | "µs" => 0.001,
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 6e4,
            "h" => 3.6e6,
            "d" => 8.64e7,
            "w" => 6.048e8,
            "M" => 2.592e9,
            "y" => 3.1536e10,
            _ => return None,
        };
        let value = number.parse::<f64>().ok()? * each;
        if !(0.0..=1e15).contains(&value) {
            return None;
        }
        total += value.round() as u64;
        rest = behind.trim_start();
    }
    Some(total)
}

/// A size such as `10m`, `512k`, `1g` or `4096`, in bytes: binary units, in either case.
#[must_use]
pub fn read_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_keep_their_value() {
        for (ms, text) in
            [(60_000, "60s"), (250, "250ms"), (3_600_000, "1h"), (600_000, "10m"), (90_000, "90s")]
        {
            assert_eq!((duration(ms).as_str(), read_duration(text, 1)), (text, Some(ms)));
        }
        for (bytes, text) in
            [(1 << 20, "1MiB"), (0, "0B"), (1000, "1000B"), (10 << 30, "10GiB"), (1536, "1536B")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn foreign_spellings_are_read() {
        let durations = [
            ("1h 30m", Some(5_400_000)),
            ("75", Some(75_000)),
            ("1.5s", Some(1500)),
            ("x", None),
            ("", None),
        ];
        durations.iter().for_each(|(text, ms)| assert_eq!(read_duration(text, 1000), *ms, "{text}"));
        let sizes =
            [("1m", Some(1 << 20)), ("8K", Some(8192)), ("0", Some(0)), ("1t", None), ("99999999999g", None)];
        sizes.iter().for_each(|(text, bytes)| assert_eq!(read_size(text), *bytes, "{text}"));
    }
}
