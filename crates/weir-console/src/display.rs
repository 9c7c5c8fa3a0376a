//! Formats numbers, times and lists for people.

use crate::html::Html;

/// A count with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate, with a decimal if it is small.
pub(crate) fn rate(value: f64) -> String {
    match value {
        v if !v.is_finite() || v <= 0.0 => "0".to_owned(),
        v if v < 0.01 => "<0.01".to_owned(),
        v if v < 1.0 => format!("{v:.2}"),
        v if v < 10.0 => format!("{v:.1}"),
        v => count(v.round() as u64),
    }
}

/// A ratio in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".to_owned();
    }
    let share = part as f64 / whole as f64 * 100.0;
    if share < 0.01 {
        "<0.01 %".to_owned()
    } else if share < 10.0 {
        format!("{share:.2} %")
    } else {
        format!("{share:.1} %")
    }
}

/// A time in milliseconds.
pub(crate) fn ms(value: f64) -> String {
    match value {
        v if v < 1.0 => format!("{:.0} µs", v * 1e3),
        v if v < 10.0 => format!("{v:.1} ms"),
        v if v < 1000.0 => format!("{v:.0} ms"),
        v if v < 60_000.0 => format!("{:.2} s", v / 1e3),
        v => span((v / 1e3) as u64),
    }
}

/// A time in microseconds.
pub(crate) fn us(value: u64) -> String {
    ms(value as f64 / 1e3)
}

/// A duration in its two largest units.
pub(crate) fn span(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let mut left = seconds;
    let mut words = Vec::new();
    for (length, unit) in units {
        if left >= length {
            words.push(format!("{} {unit}", left / length));
            left %= length;
        } else if !words.is_empty() {
            break;
        }
        if words.len() == 2 {
            break;
        }
    }
    if words.is_empty() { "0 s".to_owned() } else { words.join(" ") }
}

/// Bytes in a fitting unit.
pub(crate) fn bytes(number: u64) -> String {
    match number {
        n if n < 1024 => format!("{n} B"),
        n if n < 1 << 20 => format!("{:.1} KiB", n as f64 / 1024.0),
        n => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
    }
}

/// `1 endpoint`, `2 endpoints`.
pub(crate) fn counted(number: usize, word: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {word}{plural}", count(number as u64))
}

/// A moment. Without the script it reads as in the log; the script shows how long ago it was.
pub(crate) fn moment(at: &str) -> Html {
    html!("<time datetime=\"{}\">{}</time>", at, clock(at))
}

/// `2026-03-01 12:00:00`, from RFC 3339.
pub(crate) fn clock(at: &str) -> String {
    let (date, time) = at.split_once('T').unwrap_or((at, ""));
    let time = time.split(['.', 'Z', '+']).next().unwrap_or_default();
    format!("{date} {time}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [(0.0, "0"), (0.001, "<0.01"), (0.25, "0.25"), (9.87, "9.9"), (1234.5, "1,235")]
        {
            assert_eq!(rate(number), text);
        }
        assert_eq!(rate(f64::NAN), "0");
        for (part, whole, text) in
            [(0, 0, "0 %"), (1, 3, "33.3 %"), (1, 100, "1.00 %"), (1, 1_000_000, "<0.01 %")]
        {
            assert_eq!(percent(part, whole), text);
        }
        for (value, text) in [
            (0.25, "250 µs"),
            (3.12, "3.1 ms"),
            (42.0, "42 ms"),
            (1500.0, "1.50 s"),
            (90_000.0, "1 min 30 s"),
        ] {
            assert_eq!(ms(value), text);
        }
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (3600, "1 h"),
            (3660, "1 h 1 min"),
            (90_061, "1 d 1 h"),
            (86_460, "1 d"),
        ] {
            assert_eq!(span(seconds), text);
        }
        for (number, text) in [(12, "12 B"), (2048, "2.0 KiB"), (3 << 20, "3.0 MiB")] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(
            (counted(1, "route"), counted(2000, "route")),
            ("1 route".to_owned(), "2,000 routes".to_owned())
        );
    }

    #[test]
    fn moments() {
        assert_eq!(
            moment("2026-03-01T12:00:00.123Z").into_string(),
            "<time datetime=\"2026-03-01T12:00:00.123Z\">2026-03-01 12:00:00</time>"
        );
        assert_eq!(moment("<").into_string(), "<time datetime=\"&lt;\">&lt;</time>");
    }
}
