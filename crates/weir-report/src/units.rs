//! Parses and formats values with units: `30s`, `5000/s`, `10KiB`, `0.1%`, `1.25 ms`; makes text from targets
//! printable.

use std::time::Duration;

/// Parses `250ms`, `1.5s`, `2m`, `1h`; also a bare `0`.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    // Rounded: 0.2 ms must not become 199,999 ns.
    let ns = (number.parse::<f64>().ok()? * seconds * 1e9).round();
    (ns < 9e18).then(|| Duration::from_nanos(ns as u64))
}

/// Parses `5000/s`, `300/m`, `10/h`, or a bare number of requests per second.
pub fn rate(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = rate_seconds(unit)?;
    let n = count_f64(number)?;
    (n.is_finite() && n > 0.0).then_some(n / seconds)
}

/// The seconds of a rate's unit: 60 for the `m` of `300/m`.
pub(crate) fn rate_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "s" | "1s" | "sec" => 1.0,
        "m" | "1m" | "min" => 60.0,
        "h" | "1h" => 3600.0,
        _ => return None,
    })
}

/// Parses `1000000`, `1_000_000`, `50k`, `2M`.
pub fn count(text: &str) -> Option<u64> {
    let n = count_f64(text)?;
    (n.fract() == 0.0 && n <= 9e15).then_some(n as u64)
}

fn count_f64(text: &str) -> Option<f64> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit())
        || !digits.chars().all(|c| c.is_ascii_digit() || "._".contains(c))
    {
        return None;
    }
    Some(digits.replace('_', "").parse::<f64>().ok()? * factor)
}

/// Parses `512`, `10KiB`, `1MiB`, `1GiB`, `10kB`, `1MB`.
pub fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Formats a time to four digits in a suitable unit: `18.42 µs`, `1.250 ms`, `2.000 s`.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        n if n < 1e3 => return format!("{n:.0} ns"),
        n if n < 999_500.0 => (n / 1e3, "µs"),
        n if n < 999_500_000.0 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let digits = if value < 10.0 {
        3
    } else if value < 100.0 {
        2
    } else {
        1
    };
    format!("{value:.digits$} {unit}")
}

/// Formats a size in a suitable unit: `1.50 MiB`.
pub fn size(bytes: f64) -> String {
    match bytes {
        b if b < 1024.0 => format!("{b:.0} B"),
        b if b < 1024.0 * 1024.0 => format!("{:.2} KiB", b / 1024.0),
        b if b < 1024.0 * 1024.0 * 1024.0 => format!("{:.2} MiB", b / 1024.0 / 1024.0),
        b => format!("{:.2} GiB", b / 1024.0 / 1024.0 / 1024.0),
    }
}

/// Formats a count: `1 round`, `2,000 rounds`.
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Formats an integer in groups: `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A target's text on one line: a terminal would obey its control characters.
pub fn shown(said: &[u8]) -> String {
    String::from_utf8_lossy(said).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let ms = Duration::from_millis;
        for (text, want) in
            [("250ms", ms(250)), ("1.5s", ms(1500)), ("2m", ms(120_000)), ("1h", ms(3_600_000)), ("0", ms(0))]
        {
            assert_eq!(duration(text), Some(want), "{text}");
        }
        assert_eq!(duration("0.2ms"), Some(Duration::from_micros(200)));
        for bad in ["", "5", "s", "5 s", "-1s", "1.2.3s", "1y", "1e3s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(
            [rate("5000/s"), rate("300/m"), rate("10k"), rate("0.5")],
            [Some(5000.0), Some(5.0), Some(10_000.0), Some(0.5)]
        );
        assert_eq!([rate("0"), rate("x/s"), rate("5/y"), rate("-5"), rate("inf")], [None; 5]);
        assert_eq!(
            [count("1_000"), count("2M"), count("1.5k"), count("1.5"), count("x")],
            [Some(1000), Some(2_000_000), Some(1500), None, None]
        );
        assert_eq!(
            [bytes("512"), bytes("10KiB"), bytes("1 MB"), bytes("KiB"), bytes("-1")],
            [Some(512), Some(10_240), Some(1_000_000), None, None]
        );
    }

    #[test]
    fn values_are_written() {
        for (ns, want) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (1_000.0, "1.000 µs"),
            (18_420.0, "18.42 µs"),
            (999_499.0, "999.5 µs"),
            (999_500.0, "1.000 ms"),
            (123_456_789.0, "123.5 ms"),
            (2e9, "2.000 s"),
        ] {
            assert_eq!(time(ns), want);
        }
        assert_eq!([size(5.0), size(1536.0), size(1048576.0)], ["5 B", "1.50 KiB", "1.00 MiB"]);
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
